"""Laws of inter-arrival times against plain sums over gaps and scipy's distributions."""

import math
from itertools import accumulate, pairwise
from statistics import fmean as mean

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy import var as variance
from scipy import stats
from scipy.optimize import brentq
from scipy.special import digamma

from fitting.errors import FittingError
from fitting.storage.interarrival import LAWS, PUBLISHED, GapLaws, fit_interarrivals
from fitting.storage.transitions import INTERARRIVAL_BOUNDS

CONSTANT, EXPONENTIAL, POISSON, NORMAL, GAMMA, LOGNORMAL, EMPIRICAL = range(7)
TICK = 1e-6
TAIL = [0, 0.01, 0.05, *(k / 10 for k in range(1, 10)), 0.95, 0.99, 1]
BOUNDS = [2 ** (k / 4 - 30) for k in range(201)]


def empirical_quantiles(counts):
    """Quantiles over their mean, where ln g is spread evenly over each class."""
    busy = [k for k, count in enumerate(counts) if count]
    reached, found = [0, *accumulate(counts[k] for k in busy)], []
    for p in TAIL:
        wanted = p * reached[-1]
        at = sum(end < wanted for end in reached[1:-1])
        share = min(1, (wanted - reached[at]) / counts[busy[at]])
        found.append(2 ** ((busy[at] + share) / 4 - 30))
    middles = [(a + b) / 2 for a, b in pairwise(found)]
    whole = sum(m * (b - a) for m, (a, b) in zip(middles, pairwise(TAIL), strict=True))
    return [quantile / whole for quantile in found]


def gap_shapes(gaps, counts, tick_s):
    """Shape of each law that can be, by moments or the largest likelihood."""
    middle = max(mean(gaps), tick_s / 2)
    logs = [math.log(max(gap, tick_s / 2)) for gap in gaps]
    wide, narrowest = math.sqrt(variance(gaps)) / middle, tick_s / 2 / middle
    found = {"constant": math.nan, "exponential": math.nan, "poisson": tick_s}
    if wide <= 0.3:
        found["normal"] = max(wide, narrowest)
    # The largest likelihood is where ln k − ψ(k) is the log of the mean less the mean of the logs.
    ratio = max(math.log(middle) - mean(logs), 1e-12)
    shape = brentq(lambda k: math.log(k) - digamma(k) - ratio, 1e-9, 1e15, xtol=1e-12, maxiter=999)
    found["gamma"] = min(max(shape, 1e-3), 1e6, 1 / narrowest**2)
    found["lognormal"] = max(math.sqrt(variance(logs)), narrowest)
    if len(gaps) >= 64 and sum(counts) >= 64:
        found["empirical"] = empirical_quantiles(counts)
    return found


def gap_scores(gaps, counts, tick_s):
    """Log-likelihood of each law that can be, less half the log of n for each parameter."""
    logs = [math.log(max(gap, tick_s / 2)) for gap in gaps]
    middle, root, scores = max(mean(gaps), tick_s / 2), math.log(2 * math.pi) / 2, {}

    def log_density(law, shape, gap, log):
        if law == "exponential":
            return -math.log(middle) - gap / middle
        if law == "poisson":
            # ln k! by Stirling's series.
            k, log_k = gap / tick_s, log - math.log(tick_s)
            factorial = k * log_k - k + log_k / 2 + root
            return k * math.log(middle / tick_s) - middle / tick_s - factorial - math.log(tick_s)
        if law == "gamma":
            rate = shape / middle
            return shape * math.log(rate) - math.lgamma(shape) + (shape - 1) * log - rate * gap
        # Half a square each, on average, is what gaps are off their own mean, and logs off theirs.
        if law == "normal":
            return -math.log(shape * middle) - root - 0.5
        off = mean(logs) - math.log(middle) + shape**2 / 2
        return -log - math.log(shape) - root - 0.5 - (off / shape) ** 2 / 2

    for law, shape in gap_shapes(gaps, counts, tick_s).items():
        if law == "empirical":
            classes = zip(counts, pairwise(BOUNDS), strict=True)
            shares = [(c / sum(counts), b - a) for c, (a, b) in classes if c]
            found = len(gaps) * sum(share * math.log(share / width) for share, width in shares)
        elif law == "constant":
            apart = max(gaps) - min(gaps) > 1.5 * tick_s
            found = -math.inf if apart else -len(gaps) * math.log(tick_s)
        else:
            found = sum(log_density(law, shape, *pair) for pair in zip(gaps, logs, strict=True))
        free = 14 if law == "empirical" else 1 + (law in ("normal", "gamma", "lognormal"))
        scores[law] = found - free * math.log(len(gaps)) / 2
    return scores


def gaps_of(law, n, rng):
    """Gaps (s) that a law is the likeliest of, where there are enough."""
    return {
        "constant": lambda: np.full(n, 0.01) + rng.choice([0, 1.4 * TICK], n),
        "exponential": lambda: rng.exponential(0.01, n),
        "poisson": lambda: rng.poisson(400, n) * TICK,
        "normal": lambda: np.abs(rng.normal(0.01, 0.0015, n)),
        "gamma": lambda: rng.gamma(3.0, 0.01, n),
        "narrow": lambda: rng.gamma(99.0, 0.01, n),
        "lognormal": lambda: rng.lognormal(-5, 0.7, n),
        "empirical": lambda: rng.choice([1e-4, 1.0], n) * np.abs(rng.normal(1, 0.01, n)),
    }[law]()


GAPS = {law: gaps_of(law, 5000, np.random.default_rng(11)) for law in LAWS}


def sums_of(*samples):
    rows = []
    for g in samples:
        logs = np.log(np.maximum(g, TICK / 2))
        rows.append([len(g), g.sum(), (g**2).sum(), logs.sum(), (logs**2).sum()])
        rows[-1] += [(g * logs).sum(), g.min(), g.max()]
    histograms = [np.histogram(g, INTERARRIVAL_BOUNDS)[0] for g in samples]
    return np.array(rows), np.array(histograms, dtype=np.uint32)


@st.composite
def samples(draw):
    """Gaps of some transitions: a few to some hundred, of any law and length."""
    rng, found = np.random.default_rng(draw(st.integers(0, 999))), []
    for _ in range(draw(st.integers(1, 9))):
        n = draw(st.integers(1, 8) | st.integers(62, 66) | st.integers(100, 300))
        law, unit = draw(st.sampled_from([*LAWS, "narrow"])), draw(st.sampled_from([1, 1e-3]))
        made = gaps_of(law, n, rng) * unit
        made[: draw(st.sampled_from([0, 0, 1, n]))] = draw(st.sampled_from([0.0, 0.02]))
        found.append(np.rint(made / TICK) * TICK if draw(st.booleans()) else made)
    return found


@pytest.mark.parametrize("asked", ["likelihood", "published", *LAWS])
@given(samples())
def test_laws_are_those_of_sums_over_gaps(asked, given_gaps):
    sums, histogram = sums_of(*given_gaps)
    laws = fit_interarrivals(sums, histogram, TICK, asked)
    for k, gaps in enumerate(given_gaps):
        counts, law = histogram[k].tolist(), LAWS[laws.law[k]]
        shapes = gap_shapes(gaps, counts, TICK)
        assert laws.mean_s[k] == pytest.approx(gaps.mean())
        if not gaps.any():
            assert law == "constant"
        elif asked in LAWS:
            assert law == (asked if asked in shapes else "exponential")
        elif len(gaps) < 5:
            assert law == "exponential"
        else:
            scores = gap_scores(gaps, counts, TICK)
            allowed = LAWS if asked == "likelihood" else PUBLISHED
            best = max(score for name, score in scores.items() if name in allowed)
            assert scores[law] == pytest.approx(best, rel=1e-6, abs=1e-6)
        if law == "empirical":
            assert laws.quantiles[int(laws.shape[k])] == pytest.approx(shapes[law])
        else:
            assert laws.shape[k] == pytest.approx(shapes[law], rel=1e-5, nan_ok=True)
    assert len(laws.quantiles) == (laws.law == EMPIRICAL).sum()


@pytest.mark.parametrize("asked", ["likelihood", *LAWS])
def test_the_mean_and_variation_of_what_is_drawn_are_those_of_the_law(asked):
    laws = fit_interarrivals(*sums_of(*GAPS.values()), TICK, asked)
    if asked == "likelihood":
        assert [LAWS[law] for law in laws.law] == list(GAPS)
    for k, gaps in enumerate(GAPS.values()):
        drawn = laws.draw(np.full(20_000, k), np.random.default_rng(5))
        variation = laws.variation()[k]
        error = 5 * variation / math.sqrt(len(drawn)) + 1e-3
        assert drawn.mean() == pytest.approx(gaps.mean(), rel=error)
        # Twenty thousand gaps would not tell the variation of a wider law.
        if (found := drawn.std() / drawn.mean()) < 2:
            assert found == pytest.approx(variation, rel=0.15, abs=1e-9)
        assert drawn.min() >= 0


def test_gamma_shape_is_scipys_maximum_likelihood_and_an_unknown_law_is_refused():
    laws = fit_interarrivals(*sums_of(GAPS["gamma"]), TICK, "gamma")
    expected, _, _ = stats.gamma.fit(GAPS["gamma"], floc=0)
    assert laws.shape[0] == pytest.approx(expected, rel=1e-4)
    with pytest.raises(FittingError, match="weibull"):
        fit_interarrivals(*sums_of(GAPS["gamma"]), TICK, "weibull")


def test_a_histogram_of_fewer_gaps_than_there_were_has_no_quantiles():
    sums, histogram = sums_of(GAPS["exponential"][:100])
    for kept, law in ((63, "exponential"), (64, "empirical")):
        fewer = np.zeros_like(histogram)
        fewer[0, 100] = kept
        assert LAWS[fit_interarrivals(sums, fewer, TICK, "empirical").law[0]] == law


LEVELS, EVENLY = np.array(TAIL), np.linspace(0, 1, 15)
MEAN, QUANTILES = 0.02, np.array([9 + EVENLY, 3 * EVENLY**2, 2 * EVENLY])
DISTRIBUTIONS = [
    (EXPONENTIAL, np.nan, stats.expon(scale=MEAN).cdf),
    (NORMAL, 0.2, stats.norm(MEAN, 0.2 * MEAN).cdf),
    (GAMMA, 0.4, stats.gamma(0.4, scale=MEAN / 0.4).cdf),
    (GAMMA, 2.5, stats.gamma(2.5, scale=MEAN / 2.5).cdf),
    (LOGNORMAL, 1.1, stats.lognorm(1.1, scale=MEAN * np.exp(-(1.1**2) / 2)).cdf),
    (EMPIRICAL, 1.0, lambda x: np.interp(x / MEAN, QUANTILES[1], LEVELS)),
]


def laws_of(law, shape):
    """Of two transitions; the second has the law that is looked at."""
    laws = np.array([CONSTANT, law], dtype=np.int8)
    return GapLaws(laws, np.array([9.0, MEAN]), np.array([9.0, shape]), QUANTILES)


def drawn(law, shape, number):
    """Gaps of the second transition."""
    return laws_of(law, shape).draw([1] * number, np.random.default_rng(5))


class TestDrawn:
    @pytest.mark.parametrize(("law", "shape", "expected"), DISTRIBUTIONS)
    def test_gaps_are_of_their_distribution(self, law, shape, expected):
        assert stats.kstest(drawn(law, shape, 2000), expected).pvalue > 0.001

    def test_a_constant_gap_and_no_negative_one_of_a_wide_normal_law(self):
        assert (drawn(CONSTANT, np.nan, 10) == MEAN).all()
        found = drawn(NORMAL, 1.0, 2000)
        assert found.min() == 0.0
        assert np.mean(found == 0) == pytest.approx(stats.norm.cdf(-1), abs=0.02)

    @pytest.mark.parametrize("mean", [3.0, 400.0])
    def test_gaps_of_a_coarse_clock_are_poisson_in_ticks(self, mean):
        ticks = drawn(POISSON, MEAN / mean, 2000) * mean / MEAN
        assert ticks == pytest.approx(np.round(ticks), abs=1e-9)
        counts = np.bincount(np.round(ticks).astype(int), minlength=int(2 * mean) + 2)
        expected = len(ticks) * stats.poisson(mean).pmf(np.arange(len(counts)))
        often = expected > 10
        squares = ((counts - expected)[often] ** 2 / expected[often]).sum()
        assert stats.chi2.sf(squares, often.sum() - 1) > 0.001
