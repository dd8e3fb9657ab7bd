"""Bayesian curves through a handful of points: grid posterior, closed form in all but the grid.

A metric y measured at frequencies f is taken as

    ln y(f) = level + ln shape(f; θ) + d(ln f) + noise

with a shape of a few parameters θ on a grid (`fitting.bayes.priors`), a
model error d that is a Wiener process integrated once (a curve whose slope wanders), and normal
noise. Given a cell of the grid (θ, noise, scale of the model error) all the rest is Gaussian and
solved exactly: the level has a flat prior, the model error is zero and flat at the measured step
nearest the target, so that measurements count the more the nearer they are. What is projected is a
mixture of normals over the cells (`fitting.bayes.prediction`).

Sources: Rasmussen & Williams, *Gaussian Processes for Machine Learning* (2006), ch. 2 and 6.3.1
(the integrated Wiener process as the prior of the cubic spline); Kennedy & O'Hagan (2001),
https://doi.org/10.1111/1467-9868.00294 (an explicit model error).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from fitting.regression.lines import FloatArray, IntArray

# Of the noise variance of a run, what all repeats at one step share: the set-up, the input, the
# temperature of the day. The rest averages out over the repeats.
SHARED_NOISE = 0.5

# Groups worked on together; their cells then stay in a core's cache.
_BLOCK = 64


class Sweep(NamedTuple):
    """Measured steps of groups that have the same number of them."""

    frequency: FloatArray  # (groups, steps): Hz, rising along a row
    log_value: FloatArray  # (groups, steps): mean of ln y over the runs at a step
    runs: FloatArray  # (groups, steps): at least 1
    scatter: FloatArray  # (groups,): sum of squares of ln y about their step's mean
    scatter_df: FloatArray  # (groups,): degrees of freedom of the scatter, runs less steps

    def take(self, groups: IntArray | list[int]) -> Sweep:
        """Select some groups."""
        return Sweep._make(part[groups] for part in self)

    @property
    def highest(self) -> FloatArray:
        """Highest measured frequency of each group (Hz)."""
        return self.frequency[:, -1]


class Target(NamedTuple):
    """What to predict of each group: the mean of some runs at a frequency."""

    frequency: FloatArray  # Hz
    runs: FloatArray

    def take(self, groups: IntArray | list[int]) -> Target:
        """Select some groups."""
        return Target(self.frequency[groups], self.runs[groups])


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

    def prior(self) -> FloatArray:
        """Prior probability of each cell: (groups or 1, shapes, scales)."""
        return self.shape_weight[:, :, None] * self.noise_weight


class Law(Protocol):
    """A family of curves: what `evidence` needs of it."""

    def log_shape(self, frequency: FloatArray, groups: IntArray) -> FloatArray:
        """Logarithm of the shapes at (groups, k) frequencies: (groups, k, shapes)."""
        ...

    @property
    def grid(self) -> Grid:
        """Cells with their prior."""
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
        """Probability of each cell under a prior that broadcasts over the cells."""
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


def anchors(frequency: FloatArray, target: FloatArray) -> FloatArray:
    """Measured frequency nearest to each group's target, on the logarithmic scale."""
    nearest = np.argmin(np.abs(np.log(frequency / target[:, None])), axis=1)
    return np.take_along_axis(frequency, nearest[:, None], 1)[:, 0]


def pick_cells(weight: FloatArray, share: FloatArray) -> IntArray:
    """Cells, numbered through, at shares of the total weight, each inside (0, 1)."""
    total = np.cumsum(weight)
    # Rounding must not pick a cell beyond the last.
    picked: IntArray = np.searchsorted(total[:-1], share * total[-1])
    return picked


class _Design(NamedTuple):
    """Steps, target and repeats that several groups share; what follows from them alone.

    All but ``whiten`` are (shapes, scales) arrays with the steps, where there are any, in front.
    """

    whiten: FloatArray
    weight: FloatArray
    one: FloatArray
    pull: FloatArray
    log_det: FloatArray
    at_target: tuple[FloatArray, FloatArray, FloatArray]  # variance, form, noise


def _design(sweep: Sweep, target: Target, grid: Grid) -> _Design:
    """Solve the Gaussian part for one group's steps; every other group of the design is alike."""
    anchor = anchors(sweep.frequency, target.frequency)[:, None]
    u = np.log(sweep.frequency / anchor)[0]
    ut = np.log(target.frequency / anchor)[0]
    root = 1 / np.sqrt(noise_share(sweep.runs[0]))
    kernel = integrated_wiener(u[:, None], u) * root[:, None] * root
    eigenvalue, basis = np.linalg.eigh(kernel)
    noise2, drift2 = grid.noise**2, grid.drift**2
    # In these co-ordinates noise and model error are both diagonal, whatever their sizes.
    weight = 1 / (np.maximum(eigenvalue, 0.0)[:, None, None] * drift2 + noise2)
    one = (basis.T @ root)[:, None, None]
    cross = (basis.T @ (integrated_wiener(u, ut) * root))[:, None, None]
    s11 = (one**2 * weight).sum(axis=0)
    s1k = (one * cross * weight).sum(axis=0)
    # The anchor is then the highest step: what lies beyond is independent of all the points.
    outside = bool((target.frequency > sweep.highest)[0])
    at_target = integrated_wiener(ut, ut)[0] + (grid.beyond**2 * ut[0] if outside else 0.0)
    form = drift2 * (at_target - drift2 * (cross**2 * weight).sum(axis=0))
    new = np.broadcast_to(noise2 * noise_share(target.runs[0]), form.shape)
    to_level = (1 - drift2 * s1k) / s11
    return _Design(
        whiten=basis.T * root,
        weight=weight,
        one=one * weight / np.sqrt(s11),
        pull=weight * (one * to_level + drift2 * cross),
        log_det=np.log(s11) - np.log(weight).sum(axis=0),
        at_target=(form + to_level**2 * s11 + new, form, new),
    )


def evidence(law: Law, sweep: Sweep, target: Target, groups: IntArray) -> Evidence:
    """Likelihood and prediction of every cell, for one target a group of ``sweep``.

    ``groups`` is the number of each group of ``sweep`` in the law.
    """
    first, design = _designs(sweep, target)
    shape = law.log_shape(np.column_stack([sweep.frequency, target.frequency]), groups)
    cells = (len(groups), shape.shape[2], len(law.grid.noise))
    likelihood, mean = np.empty(cells), np.empty(cells)
    solved = [_design(sweep.take([i]), target.take([i]), law.grid) for i in first]
    # The level has a flat prior, so it may be taken off first; its digits are not lost then.
    level = sweep.log_value[:, -1:]
    residual = (sweep.log_value - level)[:, :, None] - shape[:, :-1]
    for number, d in enumerate(solved):
        same = np.flatnonzero(design == number)
        for at in range(0, len(same), _BLOCK):
            part = same[at : at + _BLOCK]
            # (shapes, groups, steps) @ (shapes, steps, scales): one product a shape for all groups.
            e = np.einsum("ij,gjt->tgi", d.whiten, residual[part])
            quadratic = (e**2) @ d.weight.transpose(1, 0, 2)
            quadratic -= (e @ d.one.transpose(1, 0, 2)) ** 2
            quadratic += d.log_det[:, None, :]
            likelihood[part] = quadratic.transpose(1, 0, 2)
            mean[part] = (e @ d.pull.transpose(1, 0, 2)).transpose(1, 0, 2)
    mean += (shape[:, -1] + level)[:, :, None]
    likelihood += 2 * _scatter_term(sweep, law.grid.noise)[:, None, :]
    likelihood -= likelihood.min(axis=(1, 2), keepdims=True)
    likelihood *= -0.5
    np.exp(likelihood, out=likelihood)
    parts = (np.stack(part) for part in zip(*(d.at_target for d in solved), strict=True))
    return Evidence(likelihood, mean, design, *parts)


def _designs(sweep: Sweep, target: Target) -> tuple[IntArray, IntArray]:
    """First group of each design, and the design of each group."""
    steps = np.log(sweep.frequency / target.frequency[:, None]).round(9)
    rows = np.column_stack([steps, sweep.runs, target.runs])
    _, first, design = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, design.reshape(-1)


def _scatter_term(sweep: Sweep, noise: FloatArray) -> FloatArray:
    """Minus the log-likelihood of the repeats about their step: (groups, scales)."""
    within = (1 - SHARED_NOISE) * noise**2
    return 0.5 * (sweep.scatter_df[:, None] * np.log(within) + sweep.scatter[:, None] / within)
