"""Curves drawn from the posterior: against its quantiles, and against a Gaussian solved by hand."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import kstest, spearmanr
from strategies import GHZ, OneCell

from fitting.bayes import posterior as pt
from fitting.bayes.draws import CurvePosterior, _systematic, curve_posteriors, pair_draws
from fitting.bayes.pooling import CmosPowerCurve, Neighbours, TimeCurve
from fitting.bayes.prediction import project_curve
from fitting.errors import FittingError

LEVELS, ALL = np.linspace(0.01, 0.99, 99), np.arange(4)


def table(cores=True, kind="time"):
    """Steps of four time-like groups of one workload, or of one each, with three repeats."""
    rng, groups = np.random.default_rng(3), 4
    frequency = np.repeat([1.2, 1.6, 2.0, 2.4], 3) * GHZ
    codes = np.repeat(np.arange(groups), len(frequency))
    share = np.linspace(0.1, 0.6, groups)[:, None]
    time = share + (1 - share) * 2.4 * GHZ / frequency
    noisy = (np.log(time) + 0.01 * rng.standard_normal(time.shape)).ravel()
    value = -noisy if kind == "power" else noisy
    steps = pt.MeasuredSteps.of(codes, np.tile(frequency, groups), value, groups)
    cluster = np.zeros(groups, dtype=np.int64) if cores else np.arange(groups)
    return steps, Neighbours(cluster, np.log(1.0 + np.arange(groups)), cluster)


@pytest.mark.parametrize("kind", ["time", "power"])
@pytest.mark.parametrize("cores", [True, False], ids=["clusters", "workloads"])
@pytest.mark.parametrize("runs", [1.0, 4.0])
def test_draws_at_one_frequency_have_the_quantiles_of_the_projection(kind, cores, runs):
    curve = TimeCurve() if kind == "time" else CmosPowerCurve()
    steps, neighbours = table(cores, kind)
    target = pt.FrequencyTarget(np.full(4, 3.0 * GHZ), np.full(4, runs))
    known = project_curve(curve, steps, target, neighbours, LEVELS)
    mean, variance = known.mixture.moments()
    asked, curves = np.array([1.4, 3.0]) * GHZ, curve_posteriors(curve, steps, neighbours, ALL)
    for group in range(4):
        drawn = curves[group].draw(asked, 4000, np.random.default_rng(group), runs=runs)[:, 1]
        # Systematic resampling is nearer than independent draws are: 1.63/sqrt(n) is 1 %.
        found = np.searchsorted(np.sort(drawn), known.quantiles[:, group]) / len(drawn)
        assert np.abs(found - LEVELS).max() < 1.63 / np.sqrt(len(drawn))
        spread = np.sqrt(variance[group])
        assert drawn.mean() == pytest.approx(mean[group], abs=0.1 * spread)
        assert drawn.std() == pytest.approx(spread, rel=0.1)


def test_noise_is_that_of_so_many_new_runs():
    steps, neighbours = table()
    target = pt.FrequencyTarget(np.full(4, 3.0 * GHZ), np.ones(4))
    known = project_curve(TimeCurve(), steps, target, neighbours, [0.5])

    def drawn(runs):
        curve = curve_posteriors(TimeCurve(), steps, neighbours, ALL)[1]
        return curve.draw(np.array([3.0 * GHZ]), 8000, np.random.default_rng(0), runs=runs)

    assert drawn(None).var() == pytest.approx(known.fit[1] + known.form[1], rel=0.1)
    one, four = drawn(1.0) - drawn(None), drawn(4.0) - drawn(None)
    assert four == pytest.approx(one * np.sqrt(pt.noise_share(np.array(4.0))), abs=1e-12)


class TestOneCellByHand:
    """Level with a flat prior, model error and noise: the textbook formula, densely."""

    measured = np.array([1.0, 1.5, 2.2]) * GHZ
    asked = np.array([0.8, 1.5, 2.2, 2.6, 3.0]) * GHZ
    value = np.array([0.4, 0.05, -0.3])
    runs = np.array([1.0, 3.0, 2.0])

    def exact(self, law):
        u, at = (np.log(f / self.measured[-1]) for f in (self.measured, self.asked))
        sigma = law.drift**2 * pt.error_covariance(u[:, None], u)
        sigma = np.linalg.inv(sigma + law.noise**2 * np.diag(pt.noise_share(self.runs)))
        cross = law.drift**2 * pt.error_covariance(u[:, None], at)
        one, value = np.ones(3), self.value + np.log(self.measured)
        level = one @ sigma @ value / (one @ sigma @ one)
        mean = level + cross.T @ sigma @ (value - level)
        left = 1 - cross.T @ sigma @ one
        covariance = law.drift**2 * pt.error_covariance(at[:, None], at) - cross.T @ sigma @ cross
        covariance += np.outer(left, left) / (one @ sigma @ one)
        above = np.maximum(at, 0.0)
        covariance += (law.drift * law.beyond) ** 2 * np.minimum(above[:, None], above)
        under = np.maximum(u.min() - at, 0.0)
        covariance += (law.drift * law.below) ** 2 * np.minimum(under[:, None], under)
        return mean - np.log(self.asked), covariance

    def posterior(self, law):
        steps = self.measured[None], self.value[None], self.runs[None]
        sweep = pt.SweepSteps(*steps, *np.zeros((2, 1)), np.zeros_like(steps[0]))
        return CurvePosterior(law, 0, sweep, np.ones((1, 1)))

    @pytest.mark.cases(
        "law",
        *(OneCell(0.03, 0.4), OneCell(0.03), OneCell(0.001, 2.0)),
        OneCell(0.03, 0.4, beyond=0.7, below=0.5),
    )
    def test_mean_and_covariance(self, law):
        mean, covariance = self.exact(law)
        drawn = self.posterior(law).draw(self.asked, 100_000, np.random.default_rng(5))
        spread = np.sqrt(np.diag(covariance))
        assert np.abs((drawn.mean(axis=0) - mean) / spread).max() < 0.02
        off = np.cov(drawn.T) - covariance
        assert np.abs(off / np.outer(spread, spread)).max() < 0.02
        # Each frequency is normal; without model error all move together.
        for i, column in enumerate(drawn[:5000].T):
            assert kstest((column - mean[i]) / spread[i], "norm").pvalue > 0.01
        if not law.drift:
            assert np.ptp(drawn + np.log(self.asked), axis=1).max() < 1e-12


@pytest.fixture(scope="module")
def known():
    return curve_posteriors(TimeCurve(), *table(), ALL)


@given(st.permutations(range(5)), st.integers(0, 3))
def test_the_order_of_frequencies_is_the_order_of_columns(known, order, group):
    at = np.array([0.9, 1.2, 1.7, 2.4, 3.1]) * GHZ
    draws = (known[group].draw(f, 4000, np.random.default_rng(0)) for f in (at, at[order]))
    one, other = (drawn.mean(axis=0) for drawn in draws)
    assert np.allclose(one[order], other, atol=0.01)


def test_equal_frequencies_and_equal_seeds_have_equal_draws(known):
    at = np.array([1.7, 3.0, 1.7]) * GHZ
    one, other = (known[0].draw(at, 50, np.random.default_rng(0)) for _ in range(2))
    assert (one == other).all()
    assert np.allclose(one[:, 0], one[:, 2], rtol=0, atol=1e-6)


def test_cells_come_in_proportion_to_their_weight():
    weight = np.array([[0.5, 0.25], [0.0, 0.25]])
    shape, scale = _systematic(weight, 400, np.random.default_rng(0))
    count = np.zeros((2, 2))
    np.add.at(count, (shape, scale), 1)
    assert np.abs(count - 400 * weight).max() <= 1
    assert count[1, 0] == 0


def test_a_single_step_is_drawn_at_the_step_and_is_no_curve():
    steps = pt.MeasuredSteps.of(np.zeros(3, dtype=int), np.full(3, 2e9), np.log([9.9, 10, 10.1]), 1)
    one = Neighbours(*np.zeros((3, 1), dtype=int))
    curves = curve_posteriors(TimeCurve(), steps, one, np.array([0]))
    drawn = curves[0].draw(np.array([2e9]), 4000, np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(np.log(10), abs=0.002)
    assert 0.003 < drawn.std() < 0.05


def test_groups_without_steps_are_refused():
    empty = pt.MeasuredSteps.of(np.zeros(2, dtype=int), np.array([1e9, 2e9]), np.zeros(2), 2)
    with pytest.raises(FittingError, match="group 1 was not measured"):
        curve_posteriors(TimeCurve(), empty, table()[1], np.array([0, 1]))


@pytest.mark.parametrize("correlation", [-0.35, 0.0, 0.8])
def test_paired_draws_correlate_as_asked_and_stay_what_they_were(correlation):
    rng = np.random.default_rng(8)
    curves, beside = (
        rng.standard_normal((4000, 1)) + 0.1 * rng.standard_normal((4000, 3)) for _ in "ab"
    )
    paired = pair_draws(curves, beside, correlation, rng)
    assert spearmanr(paired.mean(axis=1), beside.mean(axis=1))[0] == pytest.approx(
        correlation, abs=0.05
    )
    assert np.array_equal(np.sort(paired, axis=0), np.sort(curves, axis=0))
    rows = {row.tobytes() for row in curves}
    assert all(row.tobytes() in rows for row in paired)
