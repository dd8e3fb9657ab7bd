"""Next best measurement: hand-worked Gaussian cases, and what must hold of any posterior."""

import numpy as np
import pytest
from scipy.special import ndtri
from strategies import GHZ, OneCell

from fitting.bayes.next_measurement import (
    Candidate,
    CommonNumbers,
    GroupPosterior,
    attainable,
    choose,
    group_posteriors,
    half_width,
    judge_candidates,
    look_ahead,
    present,
    shares,
    step_of,
)
from fitting.bayes.pooling import CmosPowerCurve, Neighbours, TimeCurve
from fitting.bayes.posterior import (
    FrequencyTarget,
    MeasuredSteps,
    SweepSteps,
    error_covariance,
    evidence,
)
from fitting.bayes.prediction import TIME_AND_POWER, project_curve
from fitting.errors import FittingError

Z = ndtri(0.95)


def one_cell(law, value=(0.5, -0.2)):
    """A group measured once at 1 and at 2 GHz, and asked at 3 GHz."""
    sweep = SweepSteps(
        np.array([[1.0, 2.0]]) * GHZ,
        np.array([value]),
        np.ones((1, 2)),
        *np.zeros((2, 1)),
        np.zeros((1, 2)),
    )
    target = FrequencyTarget(np.array([3.0 * GHZ]), np.ones(1))
    return GroupPosterior(law, 0, np.ones((1, 1, 1)), np.ones(1), sweep, target)


def chances(draws=16, quantities=1):
    return [CommonNumbers.of(draws, (1, i)) for i in range(quantities)]


def share(runs):
    return 0.5 + 0.5 / runs


class TestOneCellByHand:
    """The variance of a Gaussian does not depend on the outcome: 1/(Σ 1/share) of the steps."""

    NOISE = 0.03

    def mean_half_width(self, *runs):
        level = 1 / sum(1 / share(r) for r in runs)
        return Z * self.NOISE * np.sqrt(level + 1)

    def judged(self, known, *candidates):
        return judge_candidates(
            [known], [Candidate(f * GHZ, r) for f, r in candidates], 0.90, chances()
        )

    def test_now_and_after_a_new_step_and_more_runs_of_an_old_one(self):
        known = one_cell(OneCell(self.NOISE))
        assert present([known], 0.90) == pytest.approx(self.mean_half_width(1, 1), rel=1e-3)
        for runs in (1, 2, 5):
            made = self.judged(known, (1.5, runs), (2.0, runs))
            new, old = self.mean_half_width(1, 1, runs), self.mean_half_width(1, 1 + runs)
            assert made.half_width == pytest.approx(np.outer([new, old], np.ones(16)), rel=1e-3)
            assert made.mean_half_width == pytest.approx([new, old], rel=1e-3)

    def test_variances_of_a_product_add(self):
        pair = [one_cell(OneCell(0.03)), one_cell(OneCell(0.04, exponent=2.0))]
        made = judge_candidates(pair, [Candidate(1.5 * GHZ, 2)], 0.90, chances(16, 2))
        level = 1 / (2 + 1 / share(2)) + 1
        both = 0.03**2 + 0.04**2 + 2 * TIME_AND_POWER * 0.03 * 0.04
        assert made.mean_half_width == pytest.approx([Z * np.sqrt(both * level)], rel=1e-3)

    def test_all_candidates_in_turn(self):
        known = one_cell(OneCell(self.NOISE))
        steps = [Candidate(f * GHZ, 5) for f in (1.0, 1.5, 2.0, 2.5)]
        widths, form, noise = attainable([known], steps, 0.90, chances())
        expected = self.mean_half_width(6, 5, 6, 5)
        assert widths == pytest.approx(np.full(16, expected), rel=1e-3)
        assert form == 0
        assert noise == pytest.approx((Z * self.NOISE / expected) ** 2, rel=1e-3)

    def test_drift_falls_with_the_distance_to_the_target(self):
        # No noise: what is left is the integrated Wiener process from the nearest step, the
        # other steps having no say on its other side.
        known = one_cell(OneCell(1e-6, drift=0.5))
        made = self.judged(known, (2.2, 1), (2.8, 1))
        for half, nearest in zip(made.mean_half_width, (2.2, 2.8), strict=True):
            u = np.log(3.0 / nearest)
            form = 0.5**2 * error_covariance(u, u)
            assert half == pytest.approx(Z * np.sqrt(form), rel=1e-3)
        assert shares([known])[0] == pytest.approx(1.0, abs=1e-3)

    def test_outcomes_are_those_predicted(self):
        law = OneCell(0.03, drift=0.5)
        known, candidates = one_cell(law), [Candidate(2.5 * GHZ, 1)]
        at = FrequencyTarget(np.array([2.5 * GHZ]), np.ones(1))
        found = evidence(law, known.sweep, at, np.array([0]))
        (middle,) = judge_candidates([known], candidates, 0.90, [CommonNumbers.of(1, 0)]).typical(0)
        assert middle.log_value[0, 2] == pytest.approx(found.mean.item(), rel=1e-9)
        assert list(middle.frequency[0] / GHZ) == [1.0, 2.0, 2.5]
        made = judge_candidates([known], candidates, 0.90, chances(400))
        drawn = made.points[0][0].log_value[:, 2]
        assert drawn.var() == pytest.approx(found.variance.item(), rel=0.02)


def known(ghz, value, curve=None):
    """One group of a real law, from rows."""
    ghz, value = np.asarray(ghz), np.asarray(value)
    steps = MeasuredSteps.of(np.zeros(len(ghz), dtype=np.int64), ghz * GHZ, value, 1)
    target = FrequencyTarget(np.array([3.0 * GHZ]), np.ones(1))
    alone = Neighbours(*np.zeros((3, 1), dtype=np.int64))
    ((_, made),) = group_posteriors(curve or TimeCurve(), steps, target, alone, np.arange(1))
    return made, (steps, target, alone)


def sweep(seed, curve=None):
    """Rows of a time that falls, or of a power that rises, with the frequency."""
    ghz = np.repeat((1.2, 1.6, 2.0), 2)
    true = 20 + 5 * ghz**2 if isinstance(curve, CmosPowerCurve) else 0.3 + 1 / ghz
    return ghz, np.log(true) + np.random.default_rng(seed).normal(0, 0.01, len(ghz))


curves = pytest.mark.parametrize("curve", [TimeCurve(), CmosPowerCurve()], ids=["time", "power"])


class TestRealLaws:
    @curves
    def test_the_present_is_that_of_a_projection(self, curve):
        made, (steps, target, alone) = known(*sweep(1, curve), curve)
        projected = project_curve(curve, steps, target, alone, (0.05, 0.95))
        width = np.diff(projected.quantiles[:, 0]) / 2
        assert present([made], 0.90) == pytest.approx(width, rel=0.02)
        found, expected = made.answer().moments(), projected.mixture.moments()
        assert np.ravel(found) == pytest.approx(np.ravel(expected), rel=0.02)

    def test_what_is_known_of_each_group_is_what_is_projected(self):
        rows = [sweep(seed) for seed in (1, 2, 3)]
        ghz, value = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        codes = np.repeat(np.arange(3), 6)
        # Each has its own highest frequency, which the law refers to.
        ghz = ghz * (1 + 0.1 * codes)
        steps = MeasuredSteps.of(codes, ghz * GHZ, value + 0.3 * codes * np.log(ghz), 3)
        target = FrequencyTarget(np.array([3.0, 2.5, 4.0]) * GHZ, np.ones(3))
        one = np.zeros(3, dtype=np.int64)
        together = Neighbours(one, np.log([1.0, 2.0, 4.0]), one)
        expected = project_curve(TimeCurve(), steps, target, together, (0.5,)).mixture.moments()
        for group, made in group_posteriors(TimeCurve(), steps, target, together, np.arange(3)):
            mean, variance = made.answer().moments()
            assert mean[0] == pytest.approx(expected[0][group], rel=1e-3)
            assert variance[0] == pytest.approx(expected[1][group], rel=0.02)
            again = made.with_sweep(made.sweep)
            assert again.weight == pytest.approx(made.weight, abs=1e-9)

    def test_four_runs_one_by_one_leave_what_four_at_once_do(self):
        made, _ = known(*sweep(3))
        once = attainable([made], [Candidate(3 * GHZ, 4)], 0.90, chances(256))[0]
        each = attainable([made], [Candidate(3 * GHZ, 1)] * 4, 0.90, chances(256))[0]
        assert each.mean() == pytest.approx(once.mean(), rel=0.03)

    @curves
    @pytest.mark.parametrize("seed", range(2))
    def test_more_repeats_never_widen(self, seed, curve):
        made, _ = known(*sweep(seed, curve), curve)
        for at in (1.2, 1.8, 3.0):
            candidates = [Candidate(at * GHZ, runs) for runs in (1, 3, 10)]
            expected = judge_candidates([made], candidates, 0.90, chances(256)).mean_half_width
            # To the accuracy of 256 draws.
            assert (np.diff(expected) < 0.01 * expected[0]).all(), (at, expected)

    @pytest.mark.parametrize("seed", range(3))
    def test_a_run_is_expected_to_narrow(self, seed):
        made, _ = known(*sweep(seed))
        now = present([made], 0.90)[0]
        candidates = [Candidate(f * GHZ, 1) for f in (1.2, 1.4, 1.8, 2.0, 2.4, 2.8)]
        together = judge_candidates([made], candidates, 0.90, chances(256))
        alone = [
            judge_candidates([made], [c], 0.90, chances(256)).half_width[0] for c in candidates
        ]
        np.testing.assert_allclose(together.half_width, alone, rtol=1e-4)
        expected = together.mean_half_width
        assert (expected < 1.03 * now).all()
        assert expected[-1] < expected[-2] < 0.9 * now

    def test_points_are_those_of_the_rows(self):
        ghz, value = sweep(3)
        made, _ = known(ghz, value)
        candidate = Candidate(1.6 * GHZ, 1)
        (after,) = judge_candidates([made], [candidate], 0.90, chances(1)).typical(0)
        new = 3 * after.log_value[0, 1] - 2 * made.sweep.log_value[0, 1]
        again, _ = known(np.append(ghz, 1.6), np.append(value, new))
        for one, other in zip(after, again.sweep, strict=True):
            assert one == pytest.approx(other, rel=1e-12)

    def test_a_step_alone_has_an_outlook(self):
        made, _ = known([1.2], [0.0])
        one, again = (
            judge_candidates([made], [Candidate(2.4 * GHZ, 1)], 0.90, chances()).mean_half_width
            for _ in range(2)
        )
        assert 0 < one < present([made], 0.90)
        assert one == again


@pytest.mark.cases(
    "expected, goal, best",
    # The cheapest that reaches the goal; of equally cheap ones the narrowest.
    ([0.19, 0.09, 0.05, 0.15], 0.10, 1),
    ([0.09, 0.05, 0.05, 0.08], 0.10, 3),
    # Else the most gained a run, else what leaves least.
    ([0.19, 0.12, 0.11, 0.17], 0.01, 1),
    ([0.21, 0.20, 0.1999, 0.22], 0.01, 2),
)
def test_the_best_candidate(expected, goal, best):
    assert choose(0.20, np.array(expected), np.array([1.0, 2.0, 5.0, 1.0]), goal) == best


def test_look_ahead_ends_with_the_goal_or_at_its_bounds():
    made, _ = known(*sweep(5))
    candidates = [Candidate(f * GHZ, r) for f in (1.6, 2.0, 2.4) for r in (1, 3)]
    first = judge_candidates([made], candidates, 0.90, chances(32))

    def ahead(goal, most_runs=30, most_stages=12):
        bounds = goal, 0.90, chances(12), most_runs, most_stages
        return look_ahead([made], first, candidates, *bounds)

    assert ahead(1.0) == []
    (stage,) = ahead(1e-4, most_stages=1)
    assert [s.candidate for s in ahead(1.001 * stage.half_width)] == [stage.candidate]
    assert sum(s.candidate.runs for s in ahead(1e-4, most_runs=4)) <= 4
    assert len(ahead(1e-4, most_stages=3)) == 3


def test_a_step_is_found_to_a_thousandth_and_no_width_of_an_impossible_level():
    cell = one_cell(OneCell(0.1))
    assert [step_of(cell.sweep, f * GHZ) for f in (1.0, 1.9995, 1.99, 3.0)] == [0, 1, None, None]
    with pytest.raises(FittingError, match=r"level 1\.5 is not inside"):
        half_width([cell.answer()], 1.5)


def test_chances_are_even_and_differ():
    cell, value, scatter = CommonNumbers.of(50, 1)
    for part in (cell, value, scatter):
        assert np.sort(part) == pytest.approx((np.arange(50) + 0.5) / 50)
    assert (cell != value).any()
    with pytest.raises(FittingError, match="0 posterior draws"):
        CommonNumbers.of(0, 1)
