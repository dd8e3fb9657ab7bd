"""Laws of inter-arrival times: chosen by likelihood, means kept."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fitting.errors import FittingError
from fitting.interarrival import LAWS, fit_gaps
from fitting.transition_counts import HISTOGRAM_CLASSES, gap_classes

TICK = 1e-6
N = 5000
RNG = np.random.default_rng(11)
GAPS = {
    "constant": np.full(N, 0.01),
    "exponential": RNG.exponential(0.01, N),
    "poisson": RNG.poisson(400, N) * TICK,
    "normal": RNG.normal(0.01, 0.0015, N),
    "gamma": RNG.gamma(3.0, 0.01, N),
    "lognormal": RNG.lognormal(-5, 0.7, N),
    "empirical": np.where(RNG.random(N) < 0.5, RNG.normal(1e-4, 1e-6, N), RNG.normal(1, 0.01, N)),
}


def sums_of(*samples):
    rows = []
    for g in samples:
        logs = np.log(np.maximum(g, TICK / 2))
        rows.append([len(g), g.sum(), (g**2).sum(), logs.sum(), (logs**2).sum()])
        rows[-1] += [(g * logs).sum(), g.min(), g.max()]
    histograms = [np.histogram(g, gap_classes())[0] for g in samples]
    return np.array(rows), np.array(histograms, dtype=np.uint32)


@pytest.mark.parametrize("law", LAWS)
def test_the_law_that_gaps_were_drawn_from_is_chosen(law):
    laws = fit_gaps(*sums_of(GAPS[law]), TICK)
    assert LAWS[laws.law[0]] == law


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("forced", ["likelihood", "published", *LAWS])
def test_the_mean_of_what_is_drawn_is_that_of_the_gaps(law, forced):
    laws = fit_gaps(*sums_of(GAPS[law]), TICK, forced)
    drawn = laws.draw(np.zeros(200_000, dtype=int), np.random.default_rng(5))
    error = 5 * laws.variation()[0] / np.sqrt(len(drawn)) + 1e-3
    assert drawn.mean() == pytest.approx(GAPS[law].mean(), rel=error)
    assert drawn.min() >= 0


def test_gamma_shape_is_scipys_maximum_likelihood():
    laws = fit_gaps(*sums_of(GAPS["gamma"]), TICK, "gamma")
    shape, _, scale = stats.gamma.fit(GAPS["gamma"], floc=0)
    assert laws.shape[0] == pytest.approx(shape, rel=1e-4)
    assert laws.mean_s[0] / laws.shape[0] == pytest.approx(scale, rel=1e-4)


def test_too_few_gaps_tell_a_mean():
    laws = fit_gaps(*sums_of(np.array([0.1, 0.3])), TICK)
    assert (LAWS[laws.law[0]], laws.mean_s[0]) == ("exponential", pytest.approx(0.2))


def test_requests_at_one_instant_follow_without_a_gap():
    laws = fit_gaps(*sums_of(np.zeros(50), GAPS["gamma"]), TICK)
    assert (LAWS[laws.law[0]], laws.mean_s[0]) == ("constant", 0)
    assert not laws.draw(np.zeros(20, dtype=int), np.random.default_rng(1)).any()


def test_classes_of_gaps_double_every_fourth():
    bounds = gap_classes()
    assert len(bounds) == HISTOGRAM_CLASSES + 1
    assert bounds[4:] == pytest.approx(2 * bounds[:-4])


def test_an_unknown_law_is_refused():
    with pytest.raises(FittingError, match="weibull"):
        fit_gaps(*sums_of(GAPS["gamma"]), TICK, "weibull")
