"""Time against cores, machines or data, by an average of laws.

No one law of scaling holds for all jobs, and a few counts seldom tell which one does. Each law here
is a sum of terms with coefficients θ of zero or more, n the count and D the data (1 where unknown):

    constant           T = θ0
    reciprocal         T = θ0·D/n
    Amdahl             T = θ0 + θ1·D/n
    Gunther            T = θ0 + θ1·D/n + θ2·(n − 1)
    Ernest             T = θ0 + θ1·D/n + θ2·ln n + θ3·n
    square root        T = θ0 + θ1·D/√n
    super-linear       T = θ0 + θ1·D/n^p,   p = 1.5, 2, 3

Gunther's law is written for the time, which is linear in its parameters. Super-linear laws are for
jobs that outgrow the memory of few machines. Over data alone the laws are a constant, θ0·D and
θ0 + θ1·D^p with p = 1 (line), 0.5, 1.5 and 2, and D stands where the count does. All are fitted to
ln T, one mean per cell: a cell is one (count, data) of one group, and its repeats have errors in
common.

Weights of the laws have three parts: prior shares; how the law, fitted to the smaller counts,
forecasts the greatest one; and how it fits all counts, less a penalty for each parameter. The
forecasts and fits of the other groups of a table count as those of a few more groups. The spread
of the answer has three parts too: the laws differ; all may be wrong, as far as past forecasts were,
and more so the farther out the target is; and the mean of runs at the target has noise.

References
----------
J. A. Hoeting, D. Madigan, A. E. Raftery, C. T. Volinsky: Bayesian Model Averaging: A Tutorial.
Statistical Science 14(4), 1999. doi:10.1214/ss/1009212519
A. P. Dawid: Statistical Theory: The Prequential Approach. J. R. Stat. Soc. A 147(2), 1984.
doi:10.2307/2981683 (weights by forecasts)
G. K. Smyth, 2004, doi:10.2202/1544-6115.1027 (moderated variances)
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import stdtr

from fitting.regression.lines import BoolArray, FloatArray, Number, variance_of_mean

if TYPE_CHECKING:
    from fitting.bayes.posterior import MeasuredSteps

Term = Callable[[FloatArray, FloatArray], FloatArray]


class Law(NamedTuple):
    """Terms of a law, as functions of count and data, and its share before any run is seen."""

    terms: tuple[Term, ...]
    prior: float
    bounded: bool = True  # coefficients are zero or more


class Family(NamedTuple):
    """Laws that compete, and the usual error of their average."""

    laws: dict[str, Law]
    line: str  # the law that a summary quotes
    # The usual error of ln T is miss·sqrt(_NEAR² + ln(target/last)²), and ``unjudged`` times that
    # where all groups have two counts: no forecast then shows how far the laws are off.
    miss: float
    unjudged: float


def _share(power: float) -> Term:
    return lambda count, data: data * count**-power


def _one(count: FloatArray, data: FloatArray) -> FloatArray:
    return np.ones_like(count)


# Below one core (a share of one) nothing is to be coordinated: no term is negative.
def _others(count: FloatArray, data: FloatArray) -> FloatArray:
    return np.maximum(count - 1, 0)


def _levels(count: FloatArray, data: FloatArray) -> FloatArray:
    return np.log(np.maximum(count, 1))


LAWS = {
    "constant": Law((_one,), 0.015),
    "reciprocal": Law((_share(1),), 0.05),
    "amdahl": Law((_one, _share(1)), 0.725),
    "gunther": Law((_one, _share(1), _others), 0.05),
    "ernest": Law((_one, _share(1), _levels, lambda count, data: count), 0.05),
    "square root": Law((_one, _share(0.5)), 0.025),
    "super-linear 1.5": Law((_one, _share(1.5)), 0.05),
    "super-linear 2": Law((_one, _share(2)), 0.02),
    "super-linear 3": Law((_one, _share(3)), 0.015),
}

# Priors and usual errors were chosen on the Spark jobs of C3O and on shared-memory programs of five
# machines (Loghin & Teo; Nornir). Choices that leave out the job or machine in question have median
# errors up to 1.25 times as large there. The usual error is 10 % at 2.6 times the last count.
CORES = Family(LAWS, "amdahl", 0.10, 2.0)
DATA = Family(
    {
        "constant": Law((_one,), 0.005),
        "proportional": Law((_share(-1),), 0.03),
        "line": Law((_one, _share(-1)), 0.94),
        "square root": Law((_one, _share(-0.5)), 0.005),
        "super-linear 1.5": Law((_one, _share(-1.5)), 0.015),
        "super-linear 2": Law((_one, _share(-2)), 0.005),
    },
    "line",
    0.10,
    1.3,
)
# Energy is time times power, which rises with the cores: Gunther's terms, if both are lines.
_OF_ENERGY = {
    name: LAWS[name]._replace(prior=p) for name, p in (("amdahl", 0.375), ("gunther", 0.4))
}
ENERGY = CORES._replace(laws=LAWS | _OF_ENERGY)
# Power over cores: an idle part, and one that rises with the cores in use.
_OF_POWER = {"constant": 0.05, "line": 0.75, "square root": 0.20}
_POWER_LAWS = {name: DATA.laws[name]._replace(prior=prior) for name, prior in _OF_POWER.items()}
POWER = Family(_POWER_LAWS, "line", 0.05, 2.0)
_NEAR = 0.35
# Degrees of freedom of the usual error beside those of a table, and of the table's beside a group.
_USUAL_DF, _TABLE_DF = 6.0, 4.0
# Groups of one table are alike: however many there are, the others count as so many.
_OTHERS = 2.0
# Degrees of freedom of the Student t likelihood of forecasts: a cell far off decides little.
_LIKELIHOOD_DF = 4.0
# Usual scatter of ln T from run to run, and its degrees of freedom.
_SCATTER, _SCATTER_DF = 0.02, 4.0
_ROUNDS = 4
_BISECTIONS = 60


class ScalingCells(NamedTuple):
    """Cells of groups: counts rise along a row, rows with fewer cells begin with NaN."""

    counts: FloatArray  # (groups, cells): cores or machines, or data where laws are over data alone
    data: FloatArray  # (groups, cells): data in any unit, 1 where unknown
    log_time: FloatArray  # (groups, cells): mean of ln T over the runs of a cell
    run_variance: float  # variance of ln T from run to run at one cell

    @classmethod
    def of_steps(cls, steps: MeasuredSteps) -> ScalingCells:
        """Lay out steps of ln(time), over counts or data in place of a frequency."""
        groups, most = len(steps.count), int(steps.count.max(initial=1))
        row = np.repeat(np.arange(groups), steps.count)
        column = most - (steps.first + steps.count)[row] + np.arange(len(row))
        count, log_time = np.full((2, groups, most), np.nan)
        count[row, column], log_time[row, column] = steps.frequency, steps.log_value
        variance = _run_variance(steps.scatter.sum(), steps.scatter_df.sum())
        return cls(count, np.where(np.isnan(count), np.nan, 1.0), log_time, variance)

    @classmethod
    def of_runs(
        cls, count: FloatArray, time: FloatArray, data: FloatArray | None = None
    ) -> ScalingCells:
        """Aggregate the runs of one group: counts, times and data, if they differ, above zero.

        >>> cells = ScalingCells.of_runs(np.array([1.0, 1.0, 2.0]), np.array([9.0, 4.0, 5.0]))
        >>> np.exp(cells.log_time).round(9)
        array([[6., 5.]])
        """
        size = np.ones_like(count) if data is None else data
        cells, code = np.unique(np.column_stack([count, size]), axis=0, return_inverse=True)
        code, log_time = code.ravel(), np.log(time)
        mean = np.bincount(code, log_time) / np.bincount(code)
        squares = float(((log_time - mean[code]) ** 2).sum())
        variance = _run_variance(squares, len(time) - len(cells))
        return cls(cells[None, :, 0], cells[None, :, 1], mean[None], variance)


class LawAverage(NamedTuple):
    """The prediction of each group, or target: a mixture of Student t distributions of ln T."""

    weight: FloatArray  # (laws, groups) in the order of the family; sums to 1, NaN below two cells
    log_time: FloatArray  # (laws, groups): ln T of each law at the target
    miss: FloatArray  # (groups,): scale of the error of ln T that all laws have in common
    degrees_of_freedom: FloatArray  # (groups,): of that scale
    run_variance: float  # of ln T from run to run
    line: FloatArray  # (groups, terms): coefficients of the family's line, for a summary

    @property
    def target_time(self) -> FloatArray:
        """Median of the mixture, (groups,), in the unit of the times."""
        return np.exp(self._quantile(0.5, self.miss))

    def interval(
        self, *, level: float = 0.90, repeats: Number = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Prediction interval of the mean of ``repeats`` runs at the target, (lower, upper)."""
        scale = np.sqrt(self.miss**2 + self.run_variance * variance_of_mean(repeats))
        lower, upper = (self._quantile(p, scale) for p in ((1 - level) / 2, (1 + level) / 2))
        return np.exp(lower), np.exp(upper)

    def _quantile(self, probability: float, scale: FloatArray) -> FloatArray:
        """Bisect the distribution function of each mixture."""
        freedom = self.degrees_of_freedom
        # A law that is impossible at the target (weight 0) may be far away.
        known = ~np.isnan(self.weight[0])
        used = (self.weight > 1e-12) | ~known
        low = np.where(used, self.log_time, np.inf).min(axis=0)
        high = np.where(used, self.log_time, -np.inf).max(axis=0)
        # At four degrees of freedom one in 1e8 is this far out.
        low, high = low - 150 * scale, high + 150 * scale
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            below = (self.weight * stdtr(freedom, (middle - self.log_time) / scale)).sum(axis=0)
            low, high = np.where(below < probability, (middle, high), (low, middle))
        return np.where(known, (low + high) / 2, np.nan)


def average_laws(
    cells: ScalingCells, target: Number, *, data: Number = 1.0, family: Family = CORES
) -> LawAverage:
    """Fit all laws of a family to the cells of each group, and average their times at a target.

    The groups are of one table: they tell of each other how far the laws are off. The target is a
    count, or data where the family is `DATA`: one for all groups, one each, or many for one group.
    ``data`` at the target are in the unit of ``cells.data``. All are above 0. Groups with fewer
    than two counts have NaN.

    >>> cells = ScalingCells.of_runs(np.array([2.0, 4.0, 8.0]), np.array([110.0, 60.0, 35.0]))
    >>> average_laws(cells, 16).target_time.round(1)
    array([22.5])
    """
    groups, last = len(cells.counts), cells.counts[:, -1]
    count, size, _ = np.broadcast_arrays(np.asarray(target, float), np.asarray(data, float), last)
    asked = [part.reshape(groups, part.size // max(groups, 1)) for part in (count, size)]
    first = np.nanmin(cells.counts, axis=1, initial=np.inf)
    enough = first < last
    evidence, distance = _split_evidence(cells.counts)
    answers, misses, scores = [], [], []
    for law in family.laws.values():
        theta = fit_law(law, cells)
        miss = _forecast_errors(law, cells, evidence > 0) / distance
        likely = (evidence * _log_likelihood(miss / family.miss)).sum(axis=1)
        answers.append(predict_law(law, theta, *asked).ravel())
        misses.append(miss)
        scores.append(likely + _fit_score(law, cells, theta, family.miss))
    weight = _weights(family, np.array(scores), enough)
    squares = (evidence * np.einsum("lg,lgs->gs", weight, misses) ** 2).sum(axis=1)
    variance, freedom = _moderate(squares, evidence.sum(axis=1), enough, family)
    with np.errstate(divide="ignore"):
        out = np.log(np.maximum(1, np.maximum(first / count, count / last)))
    scale = np.sqrt(variance) * np.hypot(_NEAR, np.where(enough, out, 0.0))
    line = fit_law(family.laws[family.line], cells)
    return LawAverage(weight, np.array(answers), scale, freedom, cells.run_variance, line)


def fit_law(law: Law, cells: ScalingCells) -> FloatArray:
    """Fit a law's coefficients to ln T, (groups, terms), each cell weighted by its count."""
    weight = _cell_weights(cells)
    known = weight > 0
    terms = np.where(known[:, :, None], term_values(law, cells.counts, cells.data), 0.0)
    size = terms.max(axis=1)
    size[size == 0] = 1.0
    terms /= size[:, None]
    unit = (weight * np.where(known, cells.log_time, 0.0)).sum(axis=1, keepdims=True)
    log_time = np.where(known, cells.log_time - unit, 0.0)
    # Relative errors first; then Gauss-Newton steps on ln T, taken where they are better.
    fitted, theta, least = np.exp(log_time), np.zeros_like(size), np.full(len(size), np.inf)
    for _ in range(1 + _ROUNDS):
        step = _solve_terms(law, terms, fitted, log_time, weight)
        off = np.log(np.maximum(np.einsum("gck,gk->gc", terms, step), 1e-300)) - log_time
        squares = (weight * off**2).sum(axis=1)
        theta = np.where((squares < least)[:, None], step, theta)
        least = np.minimum(squares, least)
        fitted = np.where(known, np.einsum("gck,gk->gc", terms, theta), 1.0).clip(1e-9)
    return np.asarray(theta / size * np.exp(unit))


def predict_law(law: Law, theta: FloatArray, count: FloatArray, data: FloatArray) -> FloatArray:
    """Give ln T of a law at counts and data of shape (groups, points)."""
    time = np.einsum("gck,gk->gc", term_values(law, count, data), theta)
    return np.asarray(np.log(np.maximum(time, 1e-300)))


def term_values(law: Law, count: FloatArray, data: FloatArray) -> FloatArray:
    """Give each term of a law without its coefficient, along a last axis."""
    return np.stack([term(count, data) for term in law.terms], axis=-1)


def _cell_weights(cells: ScalingCells) -> FloatArray:
    """Weigh cells by their counts: 1 in all for each group, 0 for NaN."""
    weight = np.nan_to_num(cells.counts)
    return np.asarray(weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-300))


def _solve_terms(
    law: Law, terms: FloatArray, fitted: FloatArray, log_time: FloatArray, weight: FloatArray
) -> FloatArray:
    """Minimise Σ w·(ln fitted + T/fitted − 1 − ln time)² over T = terms·θ, θ ≥ 0 if bounded.

    The solution is that of least squares in one of the few sets of terms that are not zero.
    """
    root = np.sqrt(weight)
    rows = terms * (root / fitted)[:, :, None]
    aim = root * (1 + log_time - np.log(fitted))
    gram = np.einsum("gci,gcj->gij", rows, rows)
    moment = np.einsum("gci,gc->gi", rows, aim)
    best, theta = np.full(len(terms), np.inf), np.zeros((len(terms), terms.shape[2]))
    each = range(terms.shape[2])
    # Small sets first: where fewer cells than terms leave a choice, the simpler sum is taken.
    sets = (list(s) for k in each for s in combinations(each, k + 1)) if law.bounded else [[*each]]
    for some in sets:
        inverse = _invert_symmetric(gram[:, some][:, :, some])
        found = np.einsum("gij,gj->gi", inverse, moment[:, some])
        squares = ((np.einsum("gci,gi->gc", rows[:, :, some], found) - aim) ** 2).sum(axis=1)
        allowed = (found >= 0).all(axis=1) | (not law.bounded)
        better = allowed & (squares < best * (1 - 1e-9) - 1e-22)
        best = np.where(better, squares, best)
        chosen = np.zeros_like(theta)
        chosen[:, some] = found
        theta = np.where(better[:, None], chosen, theta)
    return theta


def _invert_symmetric(matrix: FloatArray) -> FloatArray:
    """Pseudo-inverse of symmetric matrices; `numpy.linalg.pinv` takes thrice the time for few."""
    value, vector = matrix[:, 0], np.ones_like(matrix)
    if matrix.shape[-1] > 1:
        value, vector = (part[..., ::-1] for part in np.linalg.eigh(matrix))
    size = np.abs(value)
    kept = size > 1e-13 * size.max(axis=1, keepdims=True)
    inverse = np.divide(1.0, value, out=np.zeros_like(value), where=kept)
    return np.asarray(vector @ (inverse[:, :, None] * vector.swapaxes(1, 2)))


def _split_evidence(count: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weigh each forecast of the last cell from the first 2, 3, … cells, and say how far it goes.

    Neighbouring counts miss alike: a forecast counts as the octaves to the next count, 1 at most,
    and 0 where fewer than two cells are learnt from.
    """
    with np.errstate(invalid="ignore"):
        octaves = np.log2(count[:, 2:] / count[:, 1:-1])
        known = ~np.isnan(count[:, :-2])
        distance = np.log(count[:, -1:] / count[:, 1:-1])
    evidence = np.where(known, np.clip(octaves, 0, 1), 0.0)
    return evidence, np.hypot(_NEAR, np.where(known, distance, 0.0))


def _forecast_errors(law: Law, cells: ScalingCells, known: BoolArray) -> FloatArray:
    """Errors of ln T at the last cell from the first 2, 3, … cells; 0 where not ``known``."""
    groups, splits = known.shape
    learnt = np.arange(cells.counts.shape[1]) < np.tile(np.arange(splits) + 2, groups)[:, None]
    # Each split of each group is fitted as a group of its own.
    parts = (np.where(learnt, np.repeat(part, splits, axis=0), np.nan) for part in cells[:3])
    counts, data, log_time = parts
    theta = fit_law(law, ScalingCells(counts, data, log_time, cells.run_variance))
    last = (np.repeat(part[:, -1:], splits, axis=0) for part in (cells.counts, cells.data))
    errors = predict_law(law, theta, *last).reshape(known.shape) - cells.log_time[:, -1:]
    return np.where(known, errors, 0.0)


def _log_likelihood(error: FloatArray) -> FloatArray:
    """Student t log density, but for a constant."""
    return -(_LIKELIHOOD_DF + 1) / 2 * np.log1p(error**2 / _LIKELIHOOD_DF)


def _fit_score(law: Law, cells: ScalingCells, theta: FloatArray, miss: float) -> FloatArray:
    """Log likelihood of the fit to all cells, less 1 for each parameter."""
    error = np.nan_to_num(predict_law(law, theta, cells.counts, cells.data) - cells.log_time)
    rms = np.sqrt((_cell_weights(cells) * error**2).sum(axis=1))
    known = ~np.isnan(cells.counts)
    with np.errstate(invalid="ignore"):
        first = np.where(known, cells.counts, np.inf).min(axis=1)
        octaves = np.nan_to_num(np.log2(cells.counts[:, -1] / first))
    independent = np.minimum(known.sum(axis=1), 1 + octaves)
    return np.asarray(independent * _log_likelihood(rms / (miss * _NEAR)) - len(law.terms))


def _mean_of_others(values: FloatArray, enough: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Mean over the other groups, of the last axis, and how many groups that counts as."""
    others = enough.sum() - enough
    used = np.where(enough, values, 0.0)
    mean = (used.sum(axis=-1, keepdims=True) - used) / np.maximum(others, 1)
    return mean, np.minimum(others, _OTHERS)


def _weights(family: Family, score: FloatArray, enough: BoolArray) -> FloatArray:
    """Share of each law, (laws, groups), from its own score and those of other groups."""
    priors = np.log([[law.prior] for law in family.laws.values()])
    mean, groups = _mean_of_others(score, enough)
    total = priors + score + groups * mean
    weight = np.exp(total - total.max(axis=0))
    return np.where(enough, weight / weight.sum(axis=0), np.nan)


def _moderate(
    squares: FloatArray, evidence: FloatArray, enough: BoolArray, family: Family
) -> tuple[FloatArray, FloatArray]:
    """Variance of a group's errors, moderated to those of its table and to the usual one."""
    mean, groups = _mean_of_others(np.stack([squares, evidence]), enough)
    usual = family.miss * np.where(groups * mean[1] + evidence > 0, 1.0, family.unjudged)
    pooled = (_USUAL_DF * usual**2 + groups * mean[0]) / (_USUAL_DF + groups * mean[1])
    freedom = _TABLE_DF + evidence
    return (_TABLE_DF * pooled + squares) / freedom, freedom


def _run_variance(squares: float, freedom: float) -> float:
    """Variance of ln T between runs at one cell, moderated to the usual one."""
    return float((_SCATTER_DF * _SCATTER**2 + squares) / (_SCATTER_DF + freedom))
