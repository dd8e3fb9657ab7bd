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

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from fitting.regression.lines import BoolArray, FloatArray, IntArray, Repeats

# Frequencies are one step when they agree to a thousandth: counters and kHz tables round.
SAME_STEP = 1e-3
# Of the noise variance of a run, what all repeats at one step share: the set-up, the input, the
# temperature of the day. The rest averages out over the repeats.
SHARED_NOISE = 0.5
# Degrees of freedom that the usual scatter counts for in the test of lack of fit.
_USUAL_DF = 4.0
# Groups computed together; their cells then stay in a core's cache.
_BLOCK = 64


class SweepSteps(NamedTuple):
    """Measured steps of groups that have the same number of them."""

    frequency: FloatArray  # (groups, steps): Hz, rising along a row
    log_value: FloatArray  # (groups, steps): mean of ln y over the runs at a step
    runs: FloatArray  # (groups, steps): at least 1
    scatter: FloatArray  # (groups,): sum of squares of ln y about their step's mean
    scatter_df: FloatArray  # (groups,): degrees of freedom of the scatter, runs less steps

    def take(self, groups: IntArray | list[int]) -> SweepSteps:
        """Select some groups."""
        return SweepSteps._make(part[groups] for part in self)


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

    @classmethod
    def of(
        cls, codes: IntArray, frequency: FloatArray, values: FloatArray | Repeats, groups: int
    ) -> MeasuredSteps:
        """Aggregate points labelled by group 0 … ``groups`` − 1.

        ``values`` are ln y of each run, or of several runs at each point; none is NaN.
        """
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
        )

    def sweep(self, groups: IntArray) -> SweepSteps:
        """Select groups that all have the same number of steps."""
        at = self.first[groups][:, None] + np.arange(self.count[groups[0]])
        parts = (self.frequency[at], self.log_value[at], self.runs[at])
        return SweepSteps(*parts, self.scatter[groups], self.scatter_df[groups])

    def highest(self, groups: IntArray) -> tuple[FloatArray, FloatArray]:
        """Highest frequency (Hz) of groups that have a step, and ln y there."""
        last = self.first[groups] + self.count[groups] - 1
        return self.frequency[last], self.log_value[last]


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
    no lower step can show them. 0 for none.
    """

    shape_weight: FloatArray  # (groups or 1, shapes): prior probability; rows sum to 1
    noise: FloatArray  # (scales,): standard deviation of ln y from one run to the next
    noise_weight: FloatArray  # (scales,): prior probability of each column; sums to 1
    # (shapes, scales): scale of the model error, the standard deviation that the local exponent
    # d ln y/d ln f gains over one e-fold of frequency.
    drift: FloatArray
    beyond: float = 0.0


class ShapeLaw(Protocol):
    """A family of curves on a grid: what `evidence` needs of it."""

    grid: Grid

    def log_shape(self, frequency: FloatArray, groups: IntArray) -> FloatArray:
        """Logarithm of the shapes at (groups, k) frequencies: (groups, k, shapes)."""
        ...

    def log_spread(self, frequency: FloatArray, group: int) -> FloatArray | None:
        """Change of ln shape at (k,) frequencies by one deviation of θ from its node: (k, shapes).

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


def integrated_wiener(a: FloatArray, b: FloatArray) -> FloatArray:
    """Covariance of a two-sided integrated Wiener process at ``a`` and ``b``, flat and zero at 0.

    min²·(max/2 − min/6) of the distances on one side of 0; the sides are independent.
    """
    near, far = np.minimum(np.abs(a), np.abs(b)), np.maximum(np.abs(a), np.abs(b))
    return np.where(np.sign(a) == np.sign(b), near**2 * (far / 2 - near / 6), 0.0)


def noise_share(runs: FloatArray) -> FloatArray:
    """Variance of the mean of ``runs`` runs, in units of one run's."""
    return SHARED_NOISE + (1 - SHARED_NOISE) / runs


def pick_cells(weight: FloatArray, share: FloatArray) -> IntArray:
    """Number the cells at shares of the total weight, each share inside (0, 1)."""
    total = np.cumsum(weight)
    # Rounding must not pick a cell beyond the last.
    picked: IntArray = np.searchsorted(total[:-1], share * total[-1])
    return picked


class _Design(NamedTuple):
    """What follows from steps, target and repeats alone, which several groups share.

    All but ``whiten`` are (shapes, scales) arrays with the steps, where there are any, in front.
    ``bend`` is what one deviation of θ does to the points; ``None`` where θ has none.
    """

    whiten: FloatArray
    weight: FloatArray
    one: FloatArray
    pull: FloatArray
    log_det: FloatArray
    bend: FloatArray | None
    bend_pull: FloatArray | None
    at_target: tuple[FloatArray, FloatArray, FloatArray]  # variance, form, noise


def _solve_design(
    frequency: FloatArray,
    runs: FloatArray,
    target: float,
    target_runs: FloatArray,
    grid: Grid,
    spread: FloatArray | None,
) -> _Design:
    """Solve the Gaussian part for the steps of one design and its one target (Hz)."""
    # Where the model error is zero and flat, whatever is asked.
    u, ut = np.log(frequency / frequency[-1]), np.log(target / frequency[-1])
    root = 1 / np.sqrt(noise_share(runs))
    kernel = integrated_wiener(u[:, None], u) * root[:, None] * root
    eigenvalue, basis = np.linalg.eigh(kernel)
    noise2, drift2 = grid.noise**2, grid.drift**2
    # In these co-ordinates noise and model error are both diagonal, whatever their sizes.
    weight = 1 / (np.maximum(eigenvalue, 0.0)[:, None, None] * drift2 + noise2)
    one = (basis.T @ root)[:, None, None]
    cross = (basis.T @ (integrated_wiener(u, ut) * root))[:, None, None]
    s11 = (one**2 * weight).sum(axis=0)
    s1k = (one * cross * weight).sum(axis=0)
    # Above the highest step what is added is independent of all the points.
    at_target = integrated_wiener(ut, ut) + grid.beyond**2 * max(ut, 0.0)
    form = drift2 * (at_target - drift2 * (cross**2 * weight).sum(axis=0))
    new = np.broadcast_to(noise2 * noise_share(target_runs), form.shape)
    to_level = (1 - drift2 * s1k) / s11
    variance = form + to_level**2 * s11 + new
    log_det = np.log(s11) - np.log(weight).sum(axis=0)
    bend = bend_pull = None
    if spread is not None:
        # θ after the level: what is left of its effect once the level has followed it.
        h = (basis.T @ (spread[:-1] * root[:, None]))[:, :, None]
        level = (one * h * weight).sum(axis=0) / s11
        left = h - one * level
        precision = 1 + (left**2 * weight).sum(axis=0)
        bend = left * weight / np.sqrt(precision)
        bend_pull = spread[-1][:, None] - level - drift2 * (left * cross * weight).sum(axis=0)
        bend_pull = bend_pull / np.sqrt(precision)
        variance = variance + bend_pull**2
        log_det = log_det + np.log(precision)
    return _Design(
        whiten=basis.T * root,
        weight=weight,
        one=one * weight / np.sqrt(s11),
        pull=weight * (one * to_level + drift2 * cross),
        log_det=log_det,
        bend=bend,
        bend_pull=bend_pull,
        at_target=(variance, form, new),
    )


def evidence(
    law: ShapeLaw, sweep: SweepSteps, target: FrequencyTarget, groups: IntArray
) -> Evidence:
    """Compute likelihood and prediction of every cell, for one target of each group of ``sweep``.

    ``groups`` is the number of each group of ``sweep`` in the law.
    """
    grid = law.grid
    steps = np.log(sweep.frequency / target.frequency[:, None]).round(9)
    _, first, design = np.unique(
        np.column_stack([steps, sweep.runs, target.runs]),
        axis=0,
        return_index=True,
        return_inverse=True,
    )
    design = design.reshape(-1)
    every = np.column_stack([sweep.frequency, target.frequency])
    solved = [
        _solve_design(
            sweep.frequency[i],
            sweep.runs[i],
            target.frequency[i],
            target.runs[i],
            grid,
            law.log_spread(every[i], int(groups[i])),
        )
        for i in first
    ]
    shape = law.log_shape(every, groups)
    # The level has a flat prior, so it may be taken off first; its digits are not lost then.
    level = sweep.log_value[:, -1:]
    residual = (sweep.log_value - level)[:, :, None] - shape[:, :-1]
    cells = (len(groups), shape.shape[2], len(grid.noise))
    quadratic, mean = np.empty(cells), np.empty(cells)
    for number, d in enumerate(solved):
        _fill_cells(d, np.flatnonzero(design == number), residual, quadratic, mean)
    mean += (shape[:, -1] + level)[:, :, None]
    # Repeats about their step's mean tell of the noise alone.
    within = (1 - SHARED_NOISE) * grid.noise**2
    scatter = 0.5 * (sweep.scatter_df[:, None] * np.log(within) + sweep.scatter[:, None] / within)
    quadratic += 2 * scatter[:, None, :]
    quadratic -= quadratic.min(axis=(1, 2), keepdims=True)
    quadratic *= -0.5
    likelihood = np.exp(quadratic, out=quadratic)
    at_target = zip(*(d.at_target for d in solved), strict=True)
    return Evidence(likelihood, mean, design, *map(np.stack, at_target))


def _fill_cells(
    d: _Design, groups: IntArray, residual: FloatArray, quadratic: FloatArray, mean: FloatArray
) -> None:
    """Write the quadratic form and the mean of ln y of the groups of one design."""
    for at in range(0, len(groups), _BLOCK):
        part = groups[at : at + _BLOCK]
        # (shapes, groups, steps) @ (shapes, steps, scales): one product a shape for all groups.
        e = np.einsum("ij,gjt->tgi", d.whiten, residual[part])
        of_part = (e**2) @ d.weight.transpose(1, 0, 2)
        of_part -= (e @ d.one.transpose(1, 0, 2)) ** 2
        of_part += d.log_det[:, None, :]
        to_target = e @ d.pull.transpose(1, 0, 2)
        if d.bend is not None and d.bend_pull is not None:
            bent = e @ d.bend.transpose(1, 0, 2)
            of_part -= bent**2
            to_target += bent * d.bend_pull[:, None, :]
        quadratic[part] = of_part.transpose(1, 0, 2)
        mean[part] = to_target.transpose(1, 0, 2)
