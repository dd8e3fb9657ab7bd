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

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fitting.compiled.loops import Array, BoolArray, CountArray, FloatArray, IntArray
from fitting.errors import FittingError
from fitting.storage.transitions import INTERARRIVAL_BOUNDS

Rng = np.random.Generator
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
# Histograms taken at once.
_ROWS = 4096


class GapLaws(NamedTuple):
    """Laws of inter-arrival times, one an element."""

    law: Array  # index into `LAWS`
    mean_s: FloatArray  # mean gap (s); the rate is its reciprocal
    shape: FloatArray  # as the table of this module says; NaN for laws without one
    quantiles: FloatArray  # of gaps over their mean, at `KNOTS`: a row an empirical law

    def draw(self, which: Array, rng: Rng) -> FloatArray:
        """Draw a gap (s) from each law in ``which``, by index."""
        index = np.asarray(which, dtype=np.int64)
        law, shape, mean = self.law[index], self.shape[index], self.mean_s[index]
        relative = np.ones(len(index))
        for code in np.flatnonzero(np.bincount(law, minlength=len(LAWS))).tolist():
            if code == CONSTANT:
                continue
            members = np.flatnonzero(law == code)
            relative[members] = self._draw_relative(code, shape[members], mean[members], rng)
        return relative * mean

    def _draw_relative(self, law: int, shape: FloatArray, mean: FloatArray, rng: Rng) -> FloatArray:
        """Draw gaps from one sort of law, as multiples of their means."""
        if law == POISSON:
            return rng.poisson(mean / shape) * shape / mean
        if law == EXPONENTIAL:
            return rng.standard_exponential(len(shape))
        if law == GAMMA:
            return rng.standard_gamma(shape) / shape
        z = rng.random(len(shape)) if law == EMPIRICAL else rng.standard_normal(len(shape))
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
        shape = self.shape
        # In the order of `LAWS`; the empirical law has no formula.
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            zeros, poisson = np.zeros_like(shape), np.sqrt(shape / self.mean_s)
            gamma, lognormal = 1 / np.sqrt(shape), np.sqrt(np.expm1(shape**2))
        by_law = np.array([zeros, zeros + 1, poisson, shape, gamma, lognormal, shape])
        found = by_law[self.law, np.arange(len(shape))]
        empirical = self.law == EMPIRICAL
        rows = self.quantiles[shape[empirical].astype(np.int64)]
        low, high = rows[:, :-1], rows[:, 1:]
        squares = ((low**2 + low * high + high**2) / 3) @ np.diff(KNOTS)
        found[empirical] = np.sqrt(squares - 1)
        return np.asarray(found)


def fit_interarrivals(
    sums: FloatArray, histogram: CountArray, tick_s: float, laws: str = "likelihood"
) -> GapLaws:
    """Fit a law to the gaps of each transition, as read from a clock with a tick (s).

    ``sums`` and ``histogram`` are as `transitions.TransitionCounts` has them. ``laws`` is
    ``"likelihood"``, the likeliest of `LAWS`; ``"published"``, the likeliest of the five that
    Delimitrou et al. (2011) name; or one law for all. Whichever it is, the mean stays. Raises
    `FittingError` for a name that is no law.
    """
    allowed = {"likelihood": LAWS, "published": PUBLISHED}.get(laws, (laws,))
    if not set(allowed) <= set(LAWS):
        raise FittingError(
            f"unknown inter-arrival law {laws!r}: give likelihood, published, or {', '.join(LAWS)}"
        )
    n, total = sums.T[:2]
    mean = total / n
    # No histogram has more gaps than there were, and most transitions have few.
    kept = np.flatnonzero(n >= _EMPIRICAL_FROM)
    kept = kept[histogram[kept].sum(axis=1) >= _EMPIRICAL_FROM]
    quantiles = _histogram_quantiles(histogram, kept, np.log(INTERARRIVAL_BOUNDS), KNOTS)
    # Quantiles are over the mean of the law that is linear between them.
    quantiles /= (((quantiles[:, 1:] + quantiles[:, :-1]) / 2) @ np.diff(KNOTS))[:, None]
    shapes = _fit_shapes(sums, tick_s, n >= (_LEAST_GAPS if len(allowed) > 1 else 1))
    shapes[EMPIRICAL, kept] = np.arange(len(kept))
    if len(allowed) == 1:
        chosen = np.full(len(n), LAWS.index(allowed[0]))
        chosen[np.isnan(shapes[chosen, np.arange(len(n))]) & (chosen > EXPONENTIAL)] = EXPONENTIAL
    else:
        empirical = np.full(len(n), -np.inf)
        empirical[kept] = n[kept] * _mean_log_density(histogram, kept, np.diff(INTERARRIVAL_BOUNDS))
        scores = _score_laws(sums, empirical, shapes, tick_s)
        scores[[LAWS.index(name) for name in LAWS if name not in allowed]] = -np.inf
        chosen = np.argmax(scores, axis=0)
        chosen[n < _LEAST_GAPS] = EXPONENTIAL
    chosen[mean <= 0] = CONSTANT
    shape = shapes[chosen, np.arange(len(n))]
    # Only the quantiles of laws that use them are kept.
    used = chosen == EMPIRICAL
    rows = shape[used].astype(np.int64)
    shape[used] = np.arange(len(rows))
    shape[(chosen == CONSTANT) | (chosen == EXPONENTIAL)] = np.nan
    return GapLaws(chosen.astype(np.int8), mean, shape, quantiles[rows])


def _fit_shapes(sums: FloatArray, tick_s: float, enough: BoolArray) -> FloatArray:
    """Fit the shape of each law (rows) to each transition; NaN where a law does not apply."""
    n, total, squares, logs, log_squares = sums.T[:5]
    mean = np.maximum(total / n, tick_s / 2)
    log_variance = np.maximum(log_squares / n - (logs / n) ** 2, 0)
    wide = np.sqrt(np.maximum(squares / n - (total / n) ** 2, 0)) / mean
    # No gap is known better than the clock's tick: no law is narrower.
    least = tick_s / 2 / mean
    log_ratio = np.maximum(np.log(mean) - logs / n, 1e-12)
    shapes = np.full((len(LAWS), len(n)), np.nan)
    shapes[POISSON] = tick_s
    shapes[NORMAL] = np.where(wide <= _WIDEST_NORMAL, np.maximum(wide, least), np.nan)
    # The gamma law takes the most time.
    shapes[GAMMA, enough] = _gamma_shape(log_ratio[enough])
    shapes[GAMMA] = np.minimum(shapes[GAMMA], 1 / least**2)
    shapes[LOGNORMAL] = np.maximum(np.sqrt(log_variance), least)
    return shapes


def _gamma_shape(log_ratio: FloatArray) -> FloatArray:
    """Solve ln k − ψ(k) = log_ratio (ln mean − mean ln) for the gamma law's shape k."""
    from scipy.special import digamma, polygamma

    s = log_ratio
    k = (3 - s + np.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
    for _ in range(3):
        k = np.maximum(k - (np.log(k) - digamma(k) - s) / (1 / k - polygamma(1, k)), 1e-3)
    return np.asarray(np.clip(k, 1e-3, _LARGEST_SHAPE))


def _score_laws(
    sums: FloatArray, empirical: FloatArray, shapes: FloatArray, tick_s: float
) -> FloatArray:
    """Score laws by transition: log-likelihood less ½·ln n a parameter; −inf if impossible."""
    from scipy.special import gammaln

    n, total, _, logs, _, g_logs, smallest, largest = sums.T
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.maximum(total / n, tick_s / 2)
        k, sigma = shapes[GAMMA], shapes[LOGNORMAL]
        # ln k! by Stirling's series; gaps g = k·tick, and g·ln k = g·ln g − g·ln tick.
        k_logs = (g_logs - total * np.log(tick_s)) / tick_s
        factorials = k_logs - total / tick_s + 0.5 * (n * np.log(2 * np.pi / tick_s) + logs)
        poisson = np.log(mean / tick_s) * total / tick_s - n * mean / tick_s - factorials
        poisson -= n * np.log(tick_s)
        # The lognormal law's median follows from the mean kept and its own s.
        off = logs / n - (np.log(mean) - sigma**2 / 2)
        log_tau = 0.5 * np.log(2 * np.pi)
        scores = np.array(
            [
                np.where(largest - smallest <= 1.5 * tick_s, -n * np.log(tick_s), -np.inf),
                -n * np.log(mean) - total / mean,
                poisson,
                -n * (np.log(shapes[NORMAL] * mean) + log_tau + 0.5),
                n * (k * np.log(k / mean) - gammaln(k)) + (k - 1) * logs - k * total / mean,
                -logs - n * (np.log(sigma) + log_tau + 0.5 + off**2 / (2 * sigma**2)),
                empirical,
            ]
        )
        free = np.array([1, 1, 1, 2, 2, 2, len(KNOTS) - 1])[:, None]
        scores -= free * np.log(n) / 2
    scores[np.isnan(scores)] = -np.inf
    return scores


def _mean_log_density(histogram: CountArray, kept: IntArray, widths: FloatArray) -> FloatArray:
    """Return the mean log density of the gaps of each kept histogram under the histogram itself."""
    mean = np.empty(len(kept))
    for part in _parts(len(kept)):
        counts = histogram[kept[part]].astype(np.float64)
        total = counts.sum(axis=1)
        # An empty class adds nothing.
        density = np.maximum(counts, 1) / total[:, None] / widths
        mean[part] = (counts * np.log(density)).sum(axis=1) / total
    return mean


def _histogram_quantiles(
    histogram: CountArray, kept: IntArray, bounds: FloatArray, knots: FloatArray
) -> FloatArray:
    """Return quantiles of the kept histograms at ``knots``, from log bounds of their classes."""
    quantiles = np.empty((len(kept), len(knots)))
    for part in _parts(len(kept)):
        counts = histogram[kept[part]].astype(np.float64)
        reached, row = np.cumsum(counts, axis=1), np.arange(len(counts))
        for k, knot in enumerate(knots):
            wanted = knot * reached[:, -1]
            # The first class that reaches it, and has a gap.
            class_ = (reached < np.maximum(wanted, 0.5)[:, None]).sum(axis=1)
            here = counts[row, class_]
            share = np.minimum(1.0, (wanted - (reached[row, class_] - here)) / here)
            width = bounds[class_ + 1] - bounds[class_]
            quantiles[part, k] = np.exp(bounds[class_] + share * width)
    return quantiles


def _parts(rows: int) -> Iterator[slice]:
    """Yield slices of rows few enough for the memory that their classes take."""
    yield from (slice(start, start + _ROWS) for start in range(0, rows, _ROWS))
