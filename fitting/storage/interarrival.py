"""Laws of inter-arrival times, fitted to many transitions at once and chosen by likelihood.

Every law keeps the mean m of its gaps, so that its rate is 1/m.

=============  ==============================================  ======================
law            gap g                                           shape
=============  ==============================================  ======================
constant       m
exponential    density e^(−g/m)/m
poisson        whole ticks τ, counted by Poisson's law of m/τ  τ (s)
normal         mean m, standard deviation c·m, at least 0      c, at most 0.3
gamma          density of shape k and scale m/k                k
lognormal      ln g normal with standard deviation s           s
empirical      m times the quantiles found, linear between     row of the quantiles
=============  ==============================================  ======================

The choice is by Schwarz's criterion, log-likelihood less ½·ln n a free parameter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fitting.compiled.loops import compiled
from fitting.errors import FittingError
from fitting.storage.transitions import (
    G_LOGS,
    GAPS,
    LARGEST,
    LOG_SQUARES,
    LOGS,
    SMALLEST,
    SQUARES,
    SUM,
    gap_classes,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]
    from numpy.typing import NDArray


LAWS = ("constant", "exponential", "poisson", "normal", "gamma", "lognormal", "empirical")
CONSTANT, EXPONENTIAL, POISSON, NORMAL, GAMMA, LOGNORMAL, EMPIRICAL = range(7)
PUBLISHED = ("constant", "exponential", "poisson", "normal", "gamma")
# Probabilities of the quantiles that an empirical law keeps: closer together in its tails.
KNOTS = np.array([0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0])
# Fewer gaps than this tell a mean and nothing more.
_LEAST_GAPS = 5
_EMPIRICAL_FROM = 64
# A wider normal law would have gaps below 0, and cutting those would raise its mean.
_WIDEST_NORMAL = 0.3
_LARGEST_SHAPE = 1e6


@dataclass(frozen=True)
class GapLaws:
    """Laws of inter-arrival times, one an element.

    Parameters
    ----------
    law : array
        Index into `LAWS`.
    mean_s : array
        Mean gap (s); the rate is its reciprocal.
    shape : array
        As the table of this module says; NaN for laws without one.
    quantiles : array
        Rows of quantiles at `KNOTS` of gaps over their mean, for the empirical laws.
    """

    law: NDArray[np.int8]
    mean_s: FloatArray
    shape: FloatArray
    quantiles: FloatArray

    def draw(self, which: ArrayLike, rng: np.random.Generator) -> FloatArray:
        """Draw a gap (s) from each law named by its index."""
        index = np.asarray(which, dtype=np.int64)
        law, shape = self.law[index], self.shape[index]
        relative = np.ones(len(index))
        for code in np.unique(law):
            members = np.flatnonzero(law == code)
            if code == POISSON:
                tick = shape[members]
                mean = self.mean_s[index[members]]
                relative[members] = rng.poisson(mean / tick) * tick / mean
            elif code != CONSTANT:
                relative[members] = self._relative(code, shape[members], rng)
        return relative * self.mean_s[index]

    def _relative(self, law: int, shape: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw gaps over their mean."""
        n = len(shape)
        if law == EXPONENTIAL:
            return rng.standard_exponential(n)
        if law == GAMMA:
            return rng.standard_gamma(shape) / shape
        z = rng.random(n) if law == EMPIRICAL else rng.standard_normal(n)
        if law == NORMAL:
            return np.maximum(0.0, 1 + shape * z)
        if law == LOGNORMAL:
            return np.exp(shape * z - shape**2 / 2)
        at = np.clip(np.searchsorted(KNOTS, z, side="right") - 1, 0, len(KNOTS) - 2)
        share = (z - KNOTS[at]) / (KNOTS[at + 1] - KNOTS[at])
        rows = self.quantiles[shape.astype(np.int64)]
        low, high = (np.take_along_axis(rows, k[:, None], 1)[:, 0] for k in (at, at + 1))
        return np.asarray(low + share * (high - low))

    def variation(self) -> FloatArray:
        """Coefficient of variation: standard deviation over mean."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            by_law = {
                CONSTANT: np.zeros(len(self.law)),
                EXPONENTIAL: np.ones(len(self.law)),
                POISSON: np.sqrt(self.shape / self.mean_s),
                NORMAL: self.shape,
                GAMMA: 1 / np.sqrt(self.shape),
                LOGNORMAL: np.sqrt(np.expm1(self.shape**2)),
            }
        found = np.full(len(self.law), np.nan)
        for code, values in by_law.items():
            found[self.law == code] = values[self.law == code]
        rows = self.shape[self.law == EMPIRICAL].astype(np.int64)
        found[self.law == EMPIRICAL] = np.sqrt(_square_of(self.quantiles[rows]) - 1)
        return found


def fit_gaps(
    sums: FloatArray,
    histogram: NDArray[np.uint32],
    tick_s: float,
    laws: str = "likelihood",
) -> GapLaws:
    """Fit a law to the gaps of every transition.

    Parameters
    ----------
    sums, histogram : array
        As `transition_counts.TransitionCounts` has them.
    tick_s : float
        Resolution of the clock that gaps were read from.
    laws : str
        ``"likelihood"``, the likeliest of `LAWS`; ``"published"``, the likeliest of the five
        that Delimitrou et al. (2011) name; or one law for all. Whichever it is, the mean stays.

    Raises
    ------
    FittingError
        For a name that is no law.
    """
    allowed = {"likelihood": LAWS, "published": PUBLISHED}.get(laws, (laws,))
    if not set(allowed) <= set(LAWS):
        raise FittingError(
            f"no inter-arrival law {laws!r}: give likelihood, published, or {', '.join(LAWS)}"
        )
    n = sums[:, GAPS]
    mean = sums[:, SUM] / n
    fitted = _moments(sums, tick_s, n >= (_LEAST_GAPS if len(allowed) > 1 else 1))
    # No histogram has more gaps than there were, and most transitions have few.
    kept = np.flatnonzero(n >= _EMPIRICAL_FROM)
    kept = kept[histogram[kept].sum(axis=1) >= _EMPIRICAL_FROM]
    quantiles = _quantiles(histogram, kept)
    shapes = np.full((len(LAWS), len(n)), np.nan)
    shapes[POISSON], shapes[NORMAL] = tick_s, fitted["normal"]
    shapes[GAMMA], shapes[LOGNORMAL] = fitted["gamma"], fitted["lognormal"]
    shapes[EMPIRICAL, kept] = np.arange(len(kept))
    if len(allowed) == 1:
        chosen = np.full(len(n), LAWS.index(allowed[0]))
        chosen[np.isnan(shapes[chosen, np.arange(len(n))]) & (chosen > EXPONENTIAL)] = EXPONENTIAL
    else:
        scores = _scores(sums, _histogram_likelihood(histogram, kept, n), shapes, tick_s)
        scores[[LAWS.index(name) for name in LAWS if name not in allowed]] = -np.inf
        chosen = np.argmax(scores, axis=0)
        chosen[n < _LEAST_GAPS] = EXPONENTIAL
    chosen[mean <= 0] = CONSTANT
    shape = shapes[chosen, np.arange(len(n))]
    return _compact(GapLaws(chosen.astype(np.int8), mean, shape, quantiles))


def _moments(sums: FloatArray, tick_s: float, enough: NDArray[np.bool_]) -> dict[str, FloatArray]:
    """Shapes by maximum likelihood, or by moments for the normal law.

    That of the gamma law takes the most time, and is found where there are gaps enough.
    """
    n = sums[:, GAPS]
    mean = np.maximum(sums[:, SUM] / n, tick_s / 2)
    variance = np.maximum(sums[:, SQUARES] / n - (sums[:, SUM] / n) ** 2, 0)
    log_variance = np.maximum(sums[:, LOG_SQUARES] / n - (sums[:, LOGS] / n) ** 2, 0)
    wide = np.sqrt(variance) / mean
    # No gap is known better than the clock's tick: no law is narrower.
    least = tick_s / 2 / mean
    shape = np.full(len(n), np.nan)
    log_ratio = np.maximum(np.log(mean) - sums[:, LOGS] / n, 1e-12)
    shape[enough] = _gamma_shape(log_ratio[enough])
    return {
        "normal": np.where(wide <= _WIDEST_NORMAL, np.maximum(wide, least), np.nan),
        "gamma": np.minimum(shape, 1 / least**2),
        "lognormal": np.maximum(np.sqrt(log_variance), least),
    }


def _gamma_shape(log_ratio: FloatArray) -> FloatArray:
    """Solve ln k − ψ(k) = ln mean − mean ln, from Minka's start by Newton's steps."""
    from scipy.special import digamma, polygamma

    s = log_ratio
    k = (3 - s + np.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
    for _ in range(3):
        k = np.maximum(k - (np.log(k) - digamma(k) - s) / (1 / k - polygamma(1, k)), 1e-3)
    return np.asarray(np.clip(k, 1e-3, _LARGEST_SHAPE))


def _scores(
    sums: FloatArray, empirical: FloatArray, shapes: FloatArray, tick_s: float
) -> FloatArray:
    """Log-likelihood of every law less half the log of n a parameter; −inf where it cannot be."""
    from scipy.special import gammaln

    n, total, logs = sums[:, GAPS], sums[:, SUM], sums[:, LOGS]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.maximum(total / n, tick_s / 2)
        k, sigma, log_mean = shapes[GAMMA], shapes[LOGNORMAL], logs / n
        deviation = shapes[NORMAL] * mean
        spread = sums[:, LARGEST] - sums[:, SMALLEST]
        # ln k! by Stirling's series; gaps g = k·tick, and g·ln k = g·ln g − g·ln tick.
        k_logs = (sums[:, G_LOGS] - total * np.log(tick_s)) / tick_s
        factorials = k_logs - total / tick_s + 0.5 * (n * np.log(2 * np.pi / tick_s) + logs)
        # The lognormal law's median follows from the mean kept and its own s.
        off = log_mean - (np.log(mean) - sigma**2 / 2)
        found = {
            CONSTANT: np.where(spread <= 1.5 * tick_s, -n * np.log(tick_s), -np.inf),
            EXPONENTIAL: -n * np.log(mean) - total / mean,
            POISSON: np.log(mean / tick_s) * total / tick_s
            - n * mean / tick_s
            - factorials
            - n * np.log(tick_s),
            NORMAL: -n * (np.log(deviation) + 0.5 * np.log(2 * np.pi) + 0.5),
            GAMMA: n * (k * np.log(k / mean) - gammaln(k)) + (k - 1) * logs - k * total / mean,
            LOGNORMAL: -logs
            - n * (np.log(sigma) + 0.5 * np.log(2 * np.pi) + 0.5 + off**2 / (2 * sigma**2)),
            EMPIRICAL: empirical,
        }
        free = np.array([1, 1, 1, 2, 2, 2, len(KNOTS) - 1])[:, None]
        scores = np.array([found[code] for code in range(len(LAWS))]) - free * np.log(n) / 2
    scores[np.isnan(scores)] = -np.inf
    return scores


def _histogram_likelihood(
    histogram: NDArray[np.uint32], kept: IntArray, n: FloatArray
) -> FloatArray:
    """Log-likelihood of n gaps whose density is that of the classes counted, for those kept."""
    found = np.full(len(n), -np.inf)
    mean = np.empty(len(kept))
    _mean_logs(histogram, kept, np.diff(gap_classes()), mean)
    found[kept] = n[kept] * mean
    return found


def _quantiles(histogram: NDArray[np.uint32], kept: IntArray) -> FloatArray:
    """Quantiles over their mean of the transitions with gaps enough."""
    bounds = np.log(gap_classes())
    rows = np.empty((len(kept), len(KNOTS)))
    _interpolate(histogram, kept, bounds, KNOTS, rows)
    return rows / _mean_of(rows)[:, None]


@compiled
def _mean_logs(
    histogram: NDArray[np.uint32], kept: IntArray, widths: FloatArray, mean: FloatArray
) -> None:
    """Find the mean logarithm of the density over the counts of each histogram kept."""
    for i in range(len(kept)):
        counts = histogram[kept[i]]
        total, logs = float(counts.sum()), 0.0
        for class_ in range(len(counts)):
            if counts[class_]:
                logs += counts[class_] * np.log(counts[class_] / total / widths[class_])
        mean[i] = logs / total


@compiled
def _interpolate(
    histogram: NDArray[np.uint32],
    kept: IntArray,
    bounds: FloatArray,
    knots: FloatArray,
    quantiles: FloatArray,
) -> None:
    """Find quantiles as if gaps were spread evenly over the logarithms of their class."""
    for i in range(len(kept)):
        counts = histogram[kept[i]]
        total, below, class_ = float(counts.sum()), 0.0, 0
        for k in range(len(knots)):
            wanted = knots[k] * total
            while counts[class_] == 0 or (
                below + counts[class_] < wanted and below + counts[class_] < total
            ):
                below += counts[class_]
                class_ += 1
            share = min(1.0, (wanted - below) / counts[class_])
            width = bounds[class_ + 1] - bounds[class_]
            quantiles[i, k] = np.exp(bounds[class_] + share * width)


def _mean_of(rows: FloatArray) -> FloatArray:
    """Mean of laws that are linear between their quantiles."""
    return np.asarray(((rows[:, 1:] + rows[:, :-1]) / 2) @ np.diff(KNOTS))


def _square_of(rows: FloatArray) -> FloatArray:
    low, high = rows[:, :-1], rows[:, 1:]
    return np.asarray(((low**2 + low * high + high**2) / 3) @ np.diff(KNOTS))


def _compact(laws: GapLaws) -> GapLaws:
    """Keep the quantiles of the laws that use them."""
    used = laws.law == EMPIRICAL
    rows = laws.shape[used].astype(np.int64)
    shape = laws.shape.copy()
    shape[used] = np.arange(len(rows))
    shape[(laws.law == CONSTANT) | (laws.law == EXPONENTIAL)] = np.nan
    return replace(laws, shape=shape, quantiles=laws.quantiles[rows])


# Gaps between arrivals that follow each other: a Markov chain over eighths of their law.


CLASSES = 8


def chain_of(gaps_s: FloatArray) -> FloatArray:
    """Probability, by eighth of a gap, that the next one is in each eighth or below it."""
    counts = np.full((CLASSES, CLASSES), 1e-9)
    n = len(gaps_s)
    # Equal gaps are in no order.
    order = np.random.default_rng(0).permutation(n)
    order = order[np.argsort(gaps_s[order], kind="stable")]
    eighth = np.empty(n, dtype=np.int64)
    eighth[order] = np.arange(n) * CLASSES // n
    np.add.at(counts, (eighth[:-1], eighth[1:]), 1.0)
    return np.asarray(np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True))


def chained(chain: FloatArray, number: int, rng: np.random.Generator) -> FloatArray:
    """Probabilities, of the law of all gaps, that follow each other as the gaps did."""
    at = rng.random(number)
    _follow(chain, rng.random(number), at)
    return at


@compiled
def _follow(chain: FloatArray, chance: FloatArray, at: FloatArray) -> None:
    """Move probabilities into the eighth that the one before leads to."""
    if not len(at):
        return
    eighth = int(chance[0] * CLASSES)
    for k in range(len(at)):
        if k:
            row, eighth = chain[eighth], 0
            while eighth < CLASSES - 1 and chance[k] >= row[eighth]:
                eighth += 1
        at[k] = (eighth + at[k]) / CLASSES
