"""Bayesian curves through a handful of points: steps, and a posterior closed in all but its grid.

Runs of a group at one frequency are a step: one mean, with the scatter of its repeats. A metric y
measured at frequencies f is taken as

    ln y(f) = level + ln shape(f; θ) + d(ln f) + noise

with a shape of a few parameters θ on a grid (`fitting.bayes.priors`), a model error d that is a
Wiener process integrated once (a curve whose slope wanders), and normal noise. Given a cell of the
grid (θ, noise, scale of the model error) all the rest is Gaussian and solved exactly: the level has
a flat prior, the model error is zero and flat at the highest measured step, and θ lies about its
node of the grid, where the shape is taken as straight in it. The same curve answers at every
frequency; the prediction is a mixture of normals over the cells (`fitting.bayes.prediction`).

Sources: Rasmussen & Williams, *Gaussian Processes for Machine Learning* (2006), ch. 2 and 6.3.1
(the integrated Wiener process as the prior of the cubic spline); Kennedy & O'Hagan (2001),
https://doi.org/10.1111/1467-9868.00294 (an explicit model error).
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from fitting.regression.lines import BoolArray, FloatArray, IntArray, Repeats

if TYPE_CHECKING:
    from types import ModuleType

# Numbers of a cell, or arrays of them for many cells.
Parts: TypeAlias = tuple[Any, ...]
# Frequencies are one step when they agree to a thousandth: counters and kHz tables round.
SAME_STEP = 1e-3
# Runs whose mean has only the noise that repeats share.
MANY_RUNS = 1e6
# Of the noise variance of a run, what all repeats at one step share: the set-up, the input, the
# temperature of the day. The rest averages out over the repeats.
SHARED_NOISE = 0.5
# Degrees of freedom that the usual scatter counts for in the test of lack of fit.
_USUAL_DF = 4.0
# Groups computed together; their cells then stay in a core's cache.
_BLOCK = 64
# Compiled loops take over at this many groups: for fewer, numpy is done before they are loaded.
COMPILED_GROUPS = 2000
_MOST_COMPILED = 40


def loops_for(groups: int) -> ModuleType | None:
    """Choose the compiled loops for a table of many groups; None for numpy, their reference."""
    if groups < COMPILED_GROUPS:
        return None
    try:
        return importlib.import_module("fitting.bayes.kernels")
    except ImportError:  # Numba is not installed.
        return None


class SweepSteps(NamedTuple):
    """Measured steps of groups that have the same number of them."""

    frequency: FloatArray  # (groups, steps): Hz, rising along a row
    log_value: FloatArray  # (groups, steps): mean of ln y over the runs at a step
    runs: FloatArray  # (groups, steps): at least 1
    scatter: FloatArray  # (groups,): sum of squares of ln y about their step's mean
    scatter_df: FloatArray  # (groups,): degrees of freedom of the scatter, runs less steps
    # (groups, steps): variance of ln y at a step that other programs of the machine stand in for,
    # 0 at the group's own.
    borrowed: FloatArray

    @property
    def anchor(self) -> FloatArray:
        """Highest frequency (Hz) that each group was measured at itself: (groups,)."""
        return np.where(self.borrowed > 0, 0.0, self.frequency).max(axis=1)

    @property
    def lowest(self) -> FloatArray:
        """Lowest frequency (Hz) that each group was measured at itself: (groups,)."""
        return np.where(self.borrowed > 0, np.inf, self.frequency).min(axis=1)


def step_starts(codes: IntArray, frequency: FloatArray) -> BoolArray:
    """Mark where a step begins, in rows sorted by group and then by frequency."""
    begins: BoolArray = np.diff(codes, prepend=-1) != 0
    begins |= np.diff(frequency, prepend=0.0) > SAME_STEP * frequency
    return begins


def step_counts(codes: IntArray, frequency: FloatArray, groups: int) -> IntArray:
    """Count the steps of each group, from rows in any order."""
    order = np.lexsort((frequency, codes))
    codes = codes[order]
    return np.bincount(codes[step_starts(codes, frequency[order])], minlength=groups)


@dataclass(frozen=True, slots=True)
class MeasuredSteps:
    """Steps of all groups, sorted by group and then by frequency."""

    first: IntArray  # where the steps of each group begin
    count: IntArray  # steps of each group; 0 without points
    frequency: FloatArray  # of each step (Hz)
    log_value: FloatArray  # mean of ln y at each step
    runs: FloatArray  # at each step
    scatter: FloatArray  # squares of each group's ln y about the steps' means
    scatter_df: FloatArray  # degrees of freedom of the scatter
    borrowed: FloatArray  # see `SweepSteps`

    @classmethod
    def of(
        cls, codes: IntArray, frequency: FloatArray, values: FloatArray | Repeats, groups: int
    ) -> MeasuredSteps:
        """Aggregate ln y of points, or of several runs at each, labelled by group from 0 on."""
        each = Repeats.single(values) if isinstance(values, np.ndarray) else values
        order = np.lexsort((each.mean, frequency, codes))
        weight, log_value, scatter = (part[order] for part in each)
        codes, frequency, weight = codes[order], frequency[order], weight.astype(np.float64)
        begin = np.flatnonzero(step_starts(codes, frequency))
        runs = np.add.reduceat(weight, begin)
        mean = np.add.reduceat(weight * log_value, begin) / runs
        apart = log_value - np.repeat(mean, np.diff(np.append(begin, len(codes))))
        count = np.bincount(codes[begin], minlength=groups)
        squares = np.bincount(codes, weight * apart**2 + scatter, groups)
        return cls(
            first=np.cumsum(count) - count,
            count=count,
            frequency=np.add.reduceat(weight * frequency, begin) / runs,
            log_value=mean,
            runs=runs,
            # Without a point numpy counts in integers.
            scatter=squares.astype(np.float64, copy=False),
            scatter_df=(np.bincount(codes, weight, groups) - count).astype(np.float64, copy=False),
            borrowed=np.zeros(len(begin)),
        )

    def sweep(self, groups: IntArray) -> SweepSteps:
        """Select groups that all have the same number of steps."""
        at = self.first[groups][:, None] + np.arange(self.count[groups[0]])
        parts = (self.frequency[at], self.log_value[at], self.runs[at])
        return SweepSteps(*parts, self.scatter[groups], self.scatter_df[groups], self.borrowed[at])

    def highest(self, groups: IntArray) -> tuple[FloatArray, FloatArray]:
        """Highest frequency (Hz) of groups that have a step of their own, and ln y there."""
        own = np.flatnonzero(self.borrowed == 0)
        last = own[np.searchsorted(own, self.first[groups] + self.count[groups]) - 1]
        return self.frequency[last], self.log_value[last]

    def choose(self, rows: BoolArray) -> MeasuredSteps:
        """Keep the marked steps; scatter stays that of all."""
        group = np.repeat(np.arange(len(self.count)), self.count)
        count = np.bincount(group[rows], minlength=len(self.count))
        frequency, value, runs = (
            part[rows] for part in (self.frequency, self.log_value, self.runs)
        )
        first, borrowed = np.cumsum(count) - count, self.borrowed[rows]
        of_group = (self.scatter, self.scatter_df)
        return MeasuredSteps(first, count, frequency, value, runs, *of_group, borrowed)

    def borrow(
        self, group: IntArray, frequency: FloatArray, log_value: FloatArray, variance: FloatArray
    ) -> MeasuredSteps:
        """Add steps that other groups stand in for, with the variances of ln y there."""
        codes = np.append(np.repeat(np.arange(len(self.count)), self.count), group)
        many = np.full(len(group), MANY_RUNS)
        pairs = (
            (self.frequency, frequency),
            (self.log_value, log_value),
            (self.runs, many),
            (self.borrowed, variance),
        )
        columns = [np.append(*pair) for pair in pairs]
        order = np.lexsort((columns[0], codes))
        count = np.bincount(codes, minlength=len(self.count))
        f, value, runs, borrowed = (c[order] for c in columns)
        return MeasuredSteps(
            np.cumsum(count) - count, count, f, value, runs, self.scatter, self.scatter_df, borrowed
        )


class LackOfFit(NamedTuple):
    """Test of the straight line in 1/f; one element a group, NaN below three steps."""

    p_value: FloatArray  # of the F test
    # Residual at the highest step as a share of the measured time: above 0 the highest frequency
    # gains less than the line says, below 0 more.
    at_top: FloatArray


def lack_of_fit(steps: MeasuredSteps, *, usual: float) -> LackOfFit:
    """Test whether the steps lie on the line T = t_fixed + w/f through them.

    The scatter of the steps about the weighted line is compared with that of repeated runs. Few
    repeats say little of their own scatter, so it is moderated towards the usual standard deviation
    of ln(time) from run to run, as if that had been seen in a few runs. Sources: Draper & Smith,
    *Applied Regression Analysis*, 3rd ed., ch. 2 (lack of fit against pure error); Smyth (2004),
    https://doi.org/10.2202/1544-6115.1027 (moderated variances).
    """
    from scipy.special import fdtrc

    groups = len(steps.count)
    group = np.repeat(np.arange(groups), steps.count)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Each group in units of its own mean, where squares keep their digits.
        level = np.bincount(group, steps.log_value, groups) / steps.count
        value = np.exp(steps.log_value - level[group])
        x = 1 / steps.frequency
        x = x / (np.bincount(group, x, groups) / steps.count)[group]
        # Errors are relative, so each step weighs as its runs over its square.
        weight = steps.runs / value**2
        total = np.bincount(group, weight, groups)
        mean_x, mean_y = (np.bincount(group, weight * a, groups) / total for a in (x, value))
        dx, dy = x - mean_x[group], value - mean_y[group]
        sxy, sxx = (np.bincount(group, weight * dx * d, groups) for d in (dy, dx))
        residual = (dy - (sxy / sxx)[group] * dx) / value
        squares = np.bincount(group, steps.runs * residual**2, groups)
        free = steps.count - 2.0
        spread = (steps.scatter + _USUAL_DF * usual**2) / (steps.scatter_df + _USUAL_DF)
        p_value = fdtrc(free, steps.scatter_df + _USUAL_DF, squares / free / spread)
    enough = steps.count > 2
    at_top = np.full(groups, np.nan)
    at_top[enough] = residual[(steps.first + steps.count - 1)[enough]]
    return LackOfFit(np.where(enough, p_value, np.nan), at_top)


class FrequencyTarget(NamedTuple):
    """What to predict of each group: the mean of some runs at a frequency."""

    frequency: FloatArray  # Hz
    runs: FloatArray


class Grid(NamedTuple):
    """Cells of the posterior: shapes along the first axis, noise and model error along the second.

    ``beyond``: above the highest measured frequency a plain Wiener process of that many times
    ``drift`` is added: power caps, steeper voltage and full memory buses begin there at once, and
    no lower step can show them. ``below``: the same below the lowest one, where the lowest voltage
    and sleep begin. 0 for none.
    """

    shape_weight: FloatArray  # (groups or 1, shapes): prior probability; rows sum to 1
    noise: FloatArray  # (scales,): standard deviation of ln y from one run to the next
    noise_weight: FloatArray  # (scales,): prior probability of each column; sums to 1
    # (shapes, scales): scale of the model error, the standard deviation that the local exponent
    # d ln y/d ln f gains over one e-fold of frequency.
    drift: FloatArray
    beyond: float = 0.0
    below: float = 0.0

    def choose(self, columns: IntArray) -> Grid:
        """Take some columns."""
        noise, weight = self.noise[columns], self.noise_weight[columns]
        return self._replace(noise=noise, noise_weight=weight, drift=self.drift[:, columns])


class ShapeLaw(Protocol):
    """A family of curves on a grid: what `evidence` needs of it."""

    grid: Grid
    direction: int  # 1 where curves rise with the frequency, −1 where they fall, 0 where either

    def log_shape(self, frequency: FloatArray, groups: IntArray) -> FloatArray:
        """Logarithm of the shapes at (groups, k) frequencies: (groups, k, shapes)."""
        ...

    def log_spread(self, frequency: FloatArray, groups: IntArray) -> FloatArray | None:
        """Change of ln shape by one deviation of θ from its node, of the shape of `log_shape`.

        The same for all groups of a design. None where nodes stand for themselves alone.
        """
        ...


class Evidence(NamedTuple):
    """What the points say in each cell.

    Groups measured at the same steps share a design. The variance of ln y at the target comes from
    the model error (``form``), the noise of the new runs, and that of the points in the level.
    """

    likelihood: FloatArray  # (groups, shapes, scales): 1 at each group's best cell
    mean: FloatArray  # (groups, shapes, scales): of ln y at the target given the cell
    design: IntArray  # (groups,): row of each group in the designs
    variance: FloatArray  # (designs, shapes, scales): of ln y at the target given the cell
    form: FloatArray  # (designs, shapes, scales): part of the model error in it
    noise: FloatArray  # (designs, shapes, scales): part of the new runs' own noise in it

    def posterior(self, prior: FloatArray) -> FloatArray:
        """Compute the probability of each cell under a prior that broadcasts over the cells."""
        weight = self.likelihood * prior
        weight /= weight.sum(axis=(1, 2), keepdims=True)
        return weight


def error_covariance(
    a: FloatArray,
    b: FloatArray,
    beyond: float = 0.0,
    below: float = 0.0,
    lowest: FloatArray | float = -np.inf,
) -> FloatArray:
    """Covariance of the model error at ln frequencies above the anchor, for a scale of 1.

    A two-sided integrated Wiener process, flat and zero at the anchor: min²·(max/2 − min/6) of the
    distances on one side. A plain one begins at the anchor, upwards, and at ``lowest``, downwards:
    see `Grid`.
    """
    near, far = np.minimum(np.abs(a), np.abs(b)), np.maximum(np.abs(a), np.abs(b))
    smooth = np.where(np.sign(a) == np.sign(b), near**2 * (far / 2 - near / 6), 0.0)
    above = np.minimum(np.maximum(a, 0.0), np.maximum(b, 0.0))
    under = np.minimum(np.maximum(lowest - a, 0.0), np.maximum(lowest - b, 0.0))
    return smooth + beyond**2 * above + below**2 * under


def noise_share(runs: FloatArray) -> FloatArray:
    """Variance of the mean of ``runs`` runs, in units of one run's."""
    return SHARED_NOISE + (1 - SHARED_NOISE) / runs


def pick_cells(weight: FloatArray, share: FloatArray) -> IntArray:
    """Number the cells at shares of the total weight, each share inside (0, 1)."""
    total = np.cumsum(weight)
    # Rounding must not pick a cell beyond the last.
    return np.searchsorted(total[:-1], share * total[-1])


class Designs(NamedTuple):
    """Designs with the same number of steps, in co-ordinates that make their covariance diagonal.

    A design is what groups share that are measured at the same steps, equally often. In these
    co-ordinates the points of a cell have the variances drift²·eigenvalue + noise².
    """

    whiten: FloatArray  # (designs, steps, steps): from ln y at the steps to the co-ordinates
    eigenvalue: FloatArray  # (designs, steps)
    one: FloatArray  # (designs, steps): effect of the level
    cross: FloatArray  # (designs, steps): covariance of the model error with that at the target
    error: FloatArray  # (designs,): variance of the model error at the target, for a drift of 1
    new: FloatArray  # (designs,): variance of the target's runs, in units of one run's
    bend: FloatArray  # (designs, shapes, steps + 1): effect of a deviation of θ, on the target last


def _solve_designs(
    law: ShapeLaw, grid: Grid, sweep: SweepSteps, target: FrequencyTarget, groups: IntArray
) -> Designs:
    """Solve the eigenproblem of each design, given by one of its groups."""
    # Where the model error is zero and flat, whatever is asked.
    top = sweep.anchor[:, None]
    u, ut = np.log(sweep.frequency / top), np.log(target.frequency[:, None] / top)
    share = noise_share(sweep.runs)
    if sweep.borrowed.any():
        share = share + sweep.borrowed / grid.noise[0] ** 2
    root = 1 / np.sqrt(share)
    lowest = np.log(sweep.lowest[:, None] / top)
    outside = grid.beyond, grid.below
    kernel = error_covariance(u[:, :, None], u[:, None], *outside, lowest[:, :, None])
    kernel *= root[:, :, None] * root[:, None]
    eigenvalue, basis = np.linalg.eigh(kernel)
    whiten = basis.transpose(0, 2, 1) * root[:, None]
    error = error_covariance(ut, ut, *outside, lowest)
    bend = law.log_spread(np.column_stack([sweep.frequency, target.frequency]), groups)
    if bend is None:
        bend = np.zeros((len(u), u.shape[1] + 1, len(grid.drift)))
    bend = bend.transpose(0, 2, 1)
    return Designs(
        whiten=whiten,
        eigenvalue=np.maximum(eigenvalue, 0.0),
        one=whiten.sum(axis=2),
        cross=(whiten @ error_covariance(u, ut, *outside, lowest)[:, :, None])[:, :, 0],
        error=error[:, 0],
        new=noise_share(target.runs),
        bend=np.concatenate([bend[:, :, :-1] @ whiten.transpose(0, 2, 1), bend[:, :, -1:]], axis=2),
    )


def solve_cell(inner: Parts, drift2: Any, noise2: Any, asked: Parts) -> tuple[Parts, Any, Any]:
    """Solve the Gaussian part of cells: what `explain_points` needs, and variance and form."""
    one2, one_cross, one_bend, cross2, cross_bend, bend2 = inner
    error, new, at_target = asked
    by_level = 1 / one2
    # θ after the level: what is left of its effect once the level has followed it.
    followed = one_bend * by_level
    by_bend = 1 / (1 + (bend2 - followed * one_bend))
    to_level = (1 - drift2 * one_cross) * by_level
    to_bend = at_target - followed - drift2 * (cross_bend - followed * one_cross)
    form = drift2 * (error - drift2 * cross2)
    variance = form + to_level**2 * one2 + to_bend**2 * by_bend + noise2 * new
    return (followed, by_level, by_bend, to_level, drift2, to_bend * by_bend), variance, form


def explain_points(product: Parts, solved: Parts) -> Parts:
    """Quadratic form of residuals, less what level and θ explain; and the move at the target."""
    one, cross, bend, square = product
    followed, by_level, by_bend, to_level, to_error, to_bend = solved
    bent = bend - followed * one
    quadratic = square - (one**2 * by_level + bent**2 * by_bend)
    return quadratic, one * to_level + cross * to_error + bent * to_bend


def evidence(
    law: ShapeLaw,
    sweep: SweepSteps,
    target: FrequencyTarget,
    groups: IntArray,
    *,
    loops: ModuleType | None = None,
) -> Evidence:
    """Compute likelihood and prediction of every cell for a target each, with `loops_for` loops."""
    if sweep.borrowed.any():
        parts = _evidence_by_noise(law, sweep, target, groups)
    else:
        prepared = _prepare(law, law.grid, sweep, target, groups)
        # Of more steps the determinant, a product of so many factors, could underflow there.
        if loops is not None and sweep.runs.shape[1] <= _MOST_COMPILED:
            return Evidence(*loops.fill_evidence(*prepared))
        parts = _fill_evidence(*prepared)
    quadratic, mean, design, *at_target = parts
    quadratic -= quadratic.min(axis=(1, 2), keepdims=True)
    quadratic *= -0.5
    return Evidence(np.exp(quadratic, out=quadratic), mean, design, *at_target)


def _evidence_by_noise(
    law: ShapeLaw, sweep: SweepSteps, target: FrequencyTarget, groups: IntArray
) -> tuple[FloatArray, FloatArray, IntArray, FloatArray, FloatArray, FloatArray]:
    """Compute −2·ln likelihood and the other parts of `Evidence` where steps are borrowed."""
    # A variance that is not the noise's makes each noise level a design of its own.
    levels, column = np.unique(law.grid.noise, return_inverse=True)
    order = np.argsort(column, kind="stable")
    parts = [law.grid.choose(order[column[order] == number]) for number in range(len(levels))]
    made = [_fill_evidence(*_prepare(law, grid, sweep, target, groups)) for grid in parts]
    back = np.argsort(order)
    joined = [np.concatenate(part, axis=-1) for part in zip(*made, strict=True)]
    quadratic, mean, _, *at_target = joined
    every = (part[..., back] for part in (quadratic, mean, *at_target))
    quadratic, mean, variance, form, noise = every
    return quadratic, mean, made[0][2], variance, form, noise


def _prepare(
    law: ShapeLaw, grid: Grid, sweep: SweepSteps, target: FrequencyTarget, groups: IntArray
) -> tuple[Designs, IntArray, Grid, FloatArray, FloatArray, FloatArray]:
    """Solve the designs; what is left at the steps, expected at the target, and the scatter."""
    steps = np.log(sweep.frequency / target.frequency[:, None]).round(9)
    table = np.column_stack([steps, sweep.runs, sweep.borrowed, target.runs])
    order = np.lexsort(table.T)
    begins = np.append(True, (np.diff(table[order], axis=0) != 0).any(axis=1))
    first, design = order[begins], np.empty_like(order)
    design[order] = np.cumsum(begins) - 1
    of_first = FrequencyTarget._make(part[first] for part in target)
    steps_of_first = SweepSteps._make(part[first] for part in sweep)
    designs = _solve_designs(law, grid, steps_of_first, of_first, groups[first])
    shape = law.log_shape(np.column_stack([sweep.frequency, target.frequency]), groups)
    # The level has a flat prior, so it may be taken off first; its digits are not lost then.
    level = sweep.log_value[:, -1:]
    residual = (sweep.log_value - level)[:, :, None] - shape[:, :-1]
    # Repeats about their step's mean tell of the noise alone.
    within = (1 - SHARED_NOISE) * grid.noise**2
    scatter = sweep.scatter_df[:, None] * np.log(within) + sweep.scatter[:, None] / within
    return designs, design, grid, residual, shape[:, -1] + level, scatter


def _fill_evidence(
    designs: Designs,
    design: IntArray,
    grid: Grid,
    residual: FloatArray,
    at_target: FloatArray,
    scatter: FloatArray,
) -> tuple[FloatArray, FloatArray, IntArray, FloatArray, FloatArray, FloatArray]:
    """Compute −2·ln likelihood and the other parts of `Evidence`, a design at a time."""
    cells = (*at_target.shape, len(grid.noise))
    quadratic, mean = np.empty(cells), np.empty(cells)
    parts = []
    for number, one in enumerate(zip(*designs, strict=True)):
        of_design = np.flatnonzero(design == number)
        parts.append(_fill_design(one, grid, of_design, residual, (quadratic, mean)))
    mean += at_target[:, :, None]
    quadratic += scatter[:, None, :]
    variance, form = map(np.stack, zip(*parts, strict=True))
    noise = np.broadcast_to(grid.noise**2 * designs.new[:, None, None], form.shape)
    return quadratic, mean, design, variance, form, noise


def _fill_design(
    design: Parts, grid: Grid, groups: IntArray, residual: FloatArray, made: Parts
) -> tuple[FloatArray, FloatArray]:
    """Write the quadratic form and the move of the groups of one design; return its variances."""
    whiten, eigenvalue, one, cross, error, new, bend = design
    noise2, drift2 = grid.noise**2, grid.drift[:, None] ** 2
    weight = 1 / (eigenvalue[:, None] * drift2 + noise2)
    # One product a shape for all groups: (shapes, groups, steps) @ (shapes, steps, scales).
    vectors = (one[None, None], cross[None, None], bend[:, None, :-1])
    inner = tuple((a * b) @ weight for a, b in combinations_with_replacement(vectors, 2))
    solved, variance, form = solve_cell(inner, drift2, noise2, (error, new, bend[:, None, -1:]))
    log_det = -np.log(solved[1] * solved[2]) - np.log(weight).sum(axis=1, keepdims=True)
    for at in range(0, len(groups), _BLOCK):
        part = groups[at : at + _BLOCK]
        e = np.einsum("ij,gjt->tgi", whiten, residual[part])
        quadratic, moved = explain_points(tuple((e * v) @ weight for v in (*vectors, e)), solved)
        for whole, cells in zip(made, (quadratic + log_det, moved), strict=True):
            whole[part] = cells.transpose(1, 0, 2)
    return variance[:, 0], form[:, 0]
