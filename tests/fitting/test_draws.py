"""Curves drawn from the posterior: against its quantiles, and against a Gaussian solved by hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from fitting.draws import CurvePosterior, curve_posteriors, draw_curve
from fitting.errors import FittingError
from fitting.pooled_curves import NO_POOLING, Neighbours, PowerCurve, TimeCurve
from fitting.posterior import Grid, Sweep, Target, integrated_wiener, noise_share
from fitting.projected import project_curve
from fitting.steps import Steps

GHZ = 1e9
LEVELS = np.linspace(0.01, 0.99, 99)


def table(groups=4, seed=3, cores=True):
    """Steps of time-like groups of one workload, or of one each, with three repeats."""
    rng = np.random.default_rng(seed)
    frequency = np.repeat([1.2, 1.6, 2.0, 2.4], 3) * GHZ
    codes = np.repeat(np.arange(groups), len(frequency))
    share = np.linspace(0.1, 0.6, groups)[:, None]
    time = share + (1 - share) * 2.4 * GHZ / frequency
    noisy = np.log(time) + 0.01 * rng.standard_normal(time.shape)
    steps = Steps.of(codes, np.tile(frequency, groups), noisy.ravel(), groups)
    cluster = np.zeros(groups, dtype=np.int64) if cores else np.arange(groups)
    return steps, Neighbours(cluster, np.log(1.0 + np.arange(groups)))


@dataclass(frozen=True)
class Flat:
    """Law of one shape, 1/f, and one cell: its posterior is one Gaussian."""

    noise: float = 0.03
    drift: float = 0.4
    beyond: float = 0.0

    def log_shape(self, frequency, groups):
        return -np.log(frequency)[:, :, None]

    @property
    def grid(self):
        one = np.ones((1, 1))
        return Grid(one, np.array([self.noise]), np.ones(1), self.drift * one, self.beyond)


class TestAgainstTheQuantilesOfTheProjection:
    @pytest.mark.parametrize("curve", [TimeCurve(), PowerCurve()], ids=["time", "power"])
    @pytest.mark.parametrize("cores", [True, False], ids=["clusters", "workloads"])
    @pytest.mark.parametrize("runs", [1.0, 4.0])
    def test_at_one_frequency(self, curve, cores, runs):
        steps, neighbours = table(cores=cores)
        if isinstance(curve, PowerCurve):
            steps = Steps(
                *(getattr(steps, n) for n in steps.__slots__[:3]),
                -steps.log_value,
                steps.runs,
                steps.scatter,
                steps.scatter_df,
            )
        target = Target(np.full(4, 3.0 * GHZ), np.full(4, runs))
        known = project_curve(curve, steps, target, neighbours, LEVELS)
        for group in range(4):
            rng = np.random.default_rng(group)
            asked = np.array([1.4, 3.0]) * GHZ
            drawn = draw_curve(curve, steps, neighbours, group, asked, 4000, rng, runs=runs)[:, 1]
            expected = known.quantiles[:, group]
            # Systematic resampling is nearer than independent draws are: 1.63/sqrt(n) is 1 %.
            found = np.searchsorted(np.sort(drawn), expected) / len(drawn)
            assert np.abs(found - LEVELS).max() < 1.63 / np.sqrt(len(drawn))
            mean, variance = known.mixture.moments()
            spread = np.sqrt(variance[group])
            assert drawn.mean() == pytest.approx(mean[group], abs=0.1 * spread)
            assert drawn.std() == pytest.approx(spread, rel=0.1)

    def test_without_new_runs_the_noise_is_left_out(self):
        steps, neighbours = table()
        target = Target(np.full(4, 3.0 * GHZ), np.ones(4))
        known = project_curve(TimeCurve(), steps, target, neighbours, [0.5])
        rng = np.random.default_rng(0)
        drawn = draw_curve(TimeCurve(), steps, neighbours, 1, [3.0 * GHZ], 8000, rng)
        assert drawn.var() == pytest.approx(known.fit[1] + known.form[1], rel=0.1)

    def test_more_new_runs_have_less_of_the_same_noise(self):
        steps, neighbours = table()

        def drawn(runs):
            rng = np.random.default_rng(0)
            return draw_curve(TimeCurve(), steps, neighbours, 1, [3.0 * GHZ], 50, rng, runs=runs)

        one, four = drawn(1.0) - drawn(None), drawn(4.0) - drawn(None)
        assert four == pytest.approx(one * np.sqrt(noise_share(np.array(4.0))), abs=1e-12)


class TestOneCellByHand:
    """Level with a flat prior, model error and noise: the textbook formula, densely."""

    measured = np.array([1.0, 1.5, 2.2]) * GHZ
    asked = np.array([0.8, 1.5, 2.2, 2.6, 3.0]) * GHZ
    value = np.array([0.4, 0.05, -0.3])
    runs = np.array([1.0, 3.0, 2.0])

    def exact(self, law):
        u, at = (np.log(f / self.measured[-1]) for f in (self.measured, self.asked))
        sigma = law.drift**2 * integrated_wiener(u[:, None], u)
        sigma = np.linalg.inv(sigma + law.noise**2 * np.diag(noise_share(self.runs)))
        cross = law.drift**2 * integrated_wiener(u[:, None], at)
        one = np.ones(3)
        level = one @ sigma @ (self.value + np.log(self.measured)) / (one @ sigma @ one)
        mean = level + cross.T @ sigma @ (self.value + np.log(self.measured) - level)
        left = 1 - cross.T @ sigma @ one
        covariance = law.drift**2 * integrated_wiener(at[:, None], at) - cross.T @ sigma @ cross
        covariance += np.outer(left, left) / (one @ sigma @ one)
        above = np.maximum(at, 0.0)
        covariance += (law.drift * law.beyond) ** 2 * np.minimum(above[:, None], above)
        return mean - np.log(self.asked), covariance

    def posterior(self, law):
        sweep = Sweep(self.measured[None], self.value[None], self.runs[None], *np.zeros((2, 1)))
        return CurvePosterior(law, 0, sweep, np.ones((1, 1)))

    @pytest.mark.parametrize(
        "law", [Flat(), Flat(drift=0.0), Flat(noise=0.001, drift=2.0)], ids=str
    )
    def test_mean_and_covariance(self, law):
        mean, covariance = self.exact(law)
        drawn = self.posterior(law).draw(self.asked, 200_000, np.random.default_rng(5))
        spread = np.sqrt(np.diag(covariance))
        assert np.abs((drawn.mean(axis=0) - mean) / spread).max() < 0.02
        off = np.cov(drawn.T) - covariance
        assert np.abs(off / np.outer(spread, spread)).max() < 0.02

    def test_each_frequency_is_normal(self):
        law = Flat()
        mean, covariance = self.exact(law)
        drawn = self.posterior(law).draw(self.asked, 5000, np.random.default_rng(6))
        for i, spread in enumerate(np.sqrt(np.diag(covariance))):
            assert kstest((drawn[:, i] - mean[i]) / spread, "norm").pvalue > 0.01

    def test_without_model_error_all_frequencies_move_together(self):
        drawn = self.posterior(Flat(drift=0.0)).draw(self.asked, 100, np.random.default_rng(1))
        assert np.allclose(np.ptp(drawn + np.log(self.asked), axis=1), 0, atol=1e-12)


@pytest.fixture(scope="module")
def known():
    steps, neighbours = table()
    return curve_posteriors(TimeCurve(), steps, neighbours, np.arange(4))


class TestProperties:
    @given(st.permutations(range(5)), st.integers(0, 3))
    def test_the_order_of_frequencies_is_the_order_of_columns(self, order, group):
        steps, neighbours = table()
        at = np.array([0.9, 1.2, 1.7, 2.4, 3.1]) * GHZ
        curves = curve_posteriors(
            TimeCurve(pooling=NO_POOLING), steps, neighbours, np.array([group])
        )
        one, other = (
            curves[group].draw(f, 4000, np.random.default_rng(0)).mean(axis=0)
            for f in (at, at[order])
        )
        assert np.allclose(one[order], other, atol=0.01)

    def test_equal_frequencies_have_equal_draws(self, known):
        at = np.array([1.7, 3.0, 1.7]) * GHZ
        drawn = known[0].draw(at, 50, np.random.default_rng(0))
        assert np.allclose(drawn[:, 0], drawn[:, 2], rtol=0, atol=1e-6)

    def test_a_seed_fixes_the_draws(self, known):
        at = np.array([3.0 * GHZ])
        one, other = (known[2].draw(at, 20, np.random.default_rng(9)) for _ in range(2))
        assert (one == other).all()

    def test_cells_come_in_proportion_to_their_weight(self):
        weight = np.array([[0.5, 0.25], [0.0, 0.25]])
        from fitting.draws import _systematic

        shape, scale = _systematic(weight, 400, np.random.default_rng(0))
        count = np.zeros((2, 2))
        np.add.at(count, (shape, scale), 1)
        assert np.abs(count - 400 * weight).max() <= 1
        assert count[1, 0] == 0


class TestASingleStep:
    def test_is_drawn_at_the_step(self):
        steps = Steps.of(np.zeros(3, dtype=int), np.full(3, 2e9), np.log([9.9, 10, 10.1]), 1)
        alone = Neighbours(np.zeros(1, dtype=int), np.zeros(1))
        curves = curve_posteriors(TimeCurve(), steps, alone, np.array([0]))
        drawn = curves[0].draw(np.array([2e9]), 4000, np.random.default_rng(0))
        assert drawn.mean() == pytest.approx(np.log(10), abs=0.002)
        assert 0.003 < drawn.std() < 0.05

    def test_is_no_curve(self):
        steps = Steps.of(np.array([0]), np.array([2e9]), np.array([0.0]), 1)
        alone = Neighbours(np.zeros(1, dtype=int), np.zeros(1))
        with pytest.raises(FittingError, match="group 0 has fewer than two steps"):
            draw_curve(TimeCurve(), steps, alone, 0, [3e9], 10, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"frequencies": [0.0]}, "not all positive"),
        ({"frequencies": [np.nan]}, "not all positive"),
        ({"draws": 0}, "0 draws"),
        ({"group": 7}, "group 7 has fewer than two steps"),
    ],
)
def test_what_cannot_be_drawn(changed, said):
    steps, neighbours = table()
    asked = {"group": 0, "frequencies": [3e9], "draws": 5, "rng": np.random.default_rng(0)}
    with pytest.raises(FittingError, match=said):
        draw_curve(TimeCurve(), steps, neighbours, **(asked | changed))


def test_a_group_without_steps_is_named():
    _, neighbours = table()
    empty = Steps.of(np.zeros(2, dtype=int), np.array([1e9, 2e9]), np.zeros(2), 2)
    with pytest.raises(FittingError, match="group 1 has no step"):
        curve_posteriors(TimeCurve(), empty, neighbours, np.array([0, 1]))
