"""Steps that other programs of a machine stand in for: against the conditional normal, by hand."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from strategies import GHZ

from fitting.bayes import machine as mc
from fitting.bayes.draws import curve_posteriors
from fitting.bayes.pooling import NO_POOLING, CmosPowerCurve, Neighbours
from fitting.bayes.posterior import FrequencyTarget, MeasuredSteps
from fitting.bayes.prediction import project_curve

CURVE = CmosPowerCurve(pooling=NO_POOLING)
LOW, TOP = np.array([1.0, 1.5]) * GHZ, 2.0 * GHZ
EDGES = (0.05, 0.5, 0.95)


def measured(programs, at_top, miss=0.1, machines=None):
    """Steps of programs of one machine, those ``at_top`` at 2 GHz too, and their neighbours."""
    group, frequency, value = [], [], []
    for number in range(programs):
        share = 0.3 + 0.4 * number / max(programs - 1, 1)
        for f in [*LOW, TOP][: 3 if number in at_top else 2]:
            group.append(number)
            frequency.append(f)
            value.append(np.log(20 * (1 - share + share * f / TOP)) + miss * (f == TOP))
    steps = MeasuredSteps.of(*map(np.array, (group, frequency, value)), programs)
    number = np.arange(programs)
    on = np.zeros(programs, dtype=np.int64) if machines is None else np.array(machines)
    return steps, Neighbours(number, np.zeros(programs), on)


def asked(steps, near, at=TOP, runs=1e6):
    target = FrequencyTarget(*np.tile([[at], [runs]], len(steps.count)))
    return project_curve(CURVE, steps, target, near, EDGES)


@pytest.mark.parametrize("others", [1, 2, 5])
def test_a_borrowed_step_is_the_conditional_normal_of_equally_correlated_misses(others):
    steps, near = measured(others + 1, range(1, others + 1))
    alone = asked(steps.choose(steps.frequency < TOP), near)
    mean, variance = alone.mixture.moments()
    of_others = asked(steps.choose(steps.frequency < TOP), near, runs=1).mixture.moments()
    miss = steps.log_value[steps.frequency == TOP] - of_others[0][1:]
    z = (miss / np.sqrt(of_others[1][1:])).mean()
    # The miss of the first given those of the others: a normal with one correlation between all.
    rho = mc.SHARED_MISS
    covariance = np.full((others + 1, others + 1), rho) + (1 - rho) * np.eye(others + 1)
    pull = np.linalg.solve(covariance[1:, 1:], covariance[1:, 0])
    expected, left = pull.sum() * z, 1 - pull @ covariance[1:, 0]
    found = mc.borrow_steps(CURVE, steps, near)
    at = np.flatnonzero(found.borrowed)
    assert found.frequency[at] == pytest.approx([TOP])
    assert found.count.tolist() == [3] * (others + 1)
    # Joined to what the program's own steps say, the borrowed one gives that normal.
    precision = 1 / variance[0] + 1 / found.borrowed[at[0]]
    joined = (mean[0] / variance[0] + found.log_value[at[0]] / found.borrowed[at[0]]) / precision
    assert joined == pytest.approx(mean[0] + expected * np.sqrt(variance[0]))
    assert 1 / precision == pytest.approx(left * variance[0])


@given(st.integers(1, 6), st.floats(-0.2, 0.2))
def test_another_program_at_the_target_draws_the_answer_and_narrows_it(others, miss):
    steps, near = measured(others + 1, range(1, others + 1), miss)
    before = asked(steps.choose(steps.frequency < TOP), near).quantiles[:, 0]
    after = asked(mc.borrow_steps(CURVE, steps, near), near).quantiles[:, 0]
    top = np.log(20) + miss
    assert abs(after[1] - top) <= abs(before[1] - top) + 0.01
    assert after[2] - after[0] < before[2] - before[0]
    # However many the others are, the program's own part stays open.
    assert (after[2] - after[0]) ** 2 > (1 - mc.SHARED_MISS) / 2 * (before[2] - before[0]) ** 2


def test_nothing_is_borrowed_from_another_machine_nor_where_all_were_measured():
    for table in (measured(3, [1], machines=[0, 1, 1]), measured(3, range(3)), measured(3, [])):
        steps, near = table
        found = mc.borrow_steps(CURVE, steps, near)
        of_first = found.borrowed[found.first[0] : found.first[0] + found.count[0]]
        assert not of_first.any()


def test_core_counts_of_one_program_are_one_witness():
    steps, near = measured(4, [1, 2, 3])
    several = near._replace(cluster=np.array([0, 1, 1, 1]))
    one, three = (mc.borrow_steps(CURVE, steps, n).borrowed.max() for n in (several, near))
    share = mc.SHARED_MISS**2
    assert one / three == pytest.approx(
        (1 / share - 1) / (1 / (3 * share / (1 + 2 * mc.SHARED_MISS)) - 1)
    )


@pytest.mark.parametrize("at", [1.2 * GHZ, TOP, 2.4 * GHZ])
def test_draws_through_borrowed_steps_have_the_moments_of_the_projection(at):
    steps, near = measured(3, [1, 2])
    steps = mc.borrow_steps(CURVE, steps, near)
    one = curve_posteriors(CURVE, steps, near, np.arange(3))[0]
    drawn = one.draw(np.array([at]), 20_000, np.random.default_rng(5), runs=1e6)[:, 0]
    mean, variance = (part[0] for part in asked(steps, near, at).mixture.moments())
    assert drawn.mean() == pytest.approx(mean, abs=0.03 * np.sqrt(variance))
    assert drawn.std() == pytest.approx(np.sqrt(variance), rel=0.05)


def test_drawn_power_never_falls_with_the_frequency():
    steps, near = measured(2, [1])
    one = curve_posteriors(CURVE, steps, near, np.arange(2))[0]
    drawn = one.draw(np.linspace(0.6, 3, 25) * GHZ, 500, np.random.default_rng(6))
    assert (np.diff(drawn, axis=1) >= -1e-12).all()
