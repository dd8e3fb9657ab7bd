"""Arrivals at one pace: lateness by hand, cycles that are known, and times of the same draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fitting.pace import LATE_KNOTS, Lateness, _cycle, lateness_of

KNOTS = [0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1]


def late_by(quantiles=0.0, cycle=(0.0,), correlation=0.0, drift=0.0):
    """Lateness of one value, but for its cycle."""
    return Lateness(
        np.array(cycle), np.broadcast_to(quantiles, len(LATE_KNOTS)), correlation, drift
    )


@pytest.mark.parametrize(
    ("lateness", "before", "expected"),
    [
        (late_by(), 1, [0, 1, 2]),
        # The first of all is on time, whatever the others are.
        (late_by(0.25), 0, [0, 1.25, 2.25]),
        (late_by(0.25), 1, [0.25, 1.25, 2.25]),
        (late_by(cycle=[0.1, 0.2, 0.3]), 4, [0.2, 1.3, 2.1]),
        (late_by(drift=0.25), 1, [0, 1.25, 2.5]),
        # None comes out of the time of three gaps, nor before another.
        (late_by(2.5), 1, [2.5, 3, 3]),
        (late_by(-1.5), 1, [0, 0, 0.5]),
        (late_by(cycle=[0.5, -0.75]), 1, [0, 1.25, 1.5]),
    ],
)
def test_arrivals_are_late_by(lateness, before, expected):
    found = lateness.times(3, before, np.random.default_rng(1))
    assert found == pytest.approx(expected, abs=1.5e-6)


@pytest.mark.parametrize("before", [0, 1])
def test_arrivals_on_time_are_in_the_window_that_begins_then(before):
    found = late_by().times(3, before, np.random.default_rng(1))
    assert found - [0, 1, 2] == pytest.approx(np.full(3, 1e-6), rel=1e-6)


def test_lateness_goes_on_from_arrival_to_arrival():
    draws = np.random.default_rng(6).standard_normal(200)
    state, states = 0.0, []
    for k, draw in enumerate(draws):
        state = draw if k == 0 else 0.6 * state + 0.8 * draw
        states.append(state)
    # Its law is uniform: the probability of each state is the lateness.
    late = [(1 + math.erf(x / math.sqrt(2))) / 2 for x in states]
    found = late_by(LATE_KNOTS, correlation=0.6).times(200, 1, np.random.default_rng(6))
    assert found == pytest.approx(np.sort(np.arange(200) + late), abs=2e-6)


@pytest.mark.parametrize("gaps", [0, 4])
def test_few_gaps_are_on_time(gaps):
    found = lateness_of(np.full(gaps, 1.1), 6.0, 6)
    assert found.cycle.tolist() == [0.0]
    assert found.quantiles.tolist() == [0.0] * len(KNOTS)
    assert (found.correlation, found.drift) == (0.0, 0.0)


def test_lateness_of_the_first_gaps_by_hand():
    # Arrivals at 1.5, 2, 3, 4.25 and 5 gaps of 0.02 s.
    found = lateness_of(0.02 * np.array([1.5, 0.5, 1.0, 1.25, 0.75]), 2.0, 100)
    assert found.quantiles == pytest.approx(np.quantile([0.5, 0, 0, 0.25, 0], KNOTS))
    # (0, 0, 1/4, 0) with (1/2, 0, 0, 1/4): −3/64 over the root of 3/64 times 11/64.
    assert found.correlation == pytest.approx(-math.sqrt(3 / 11))
    assert found.drift == 0.0


@pytest.mark.parametrize(
    ("gaps", "correlation"),
    [([1.1] * 5, 0.999), ([1.5, 0, 2, 0, 2], -0.999), ([1.0] * 5, 0.0)],
)
def test_correlation_is_never_whole(gaps, correlation):
    assert lateness_of(np.array(gaps), 100.0, 100).correlation == correlation


def test_a_pace_that_its_ends_do_not_tell():
    # Six arrivals, all later by a tenth of a gap, and a wave without trend on that.
    wave = np.array([0.1, -0.2, 0.2, -0.2, 0.1])
    times = 1.1 * np.arange(1, 6) + wave
    found = lateness_of(np.diff(times, prepend=0.0), 6.0, 6)
    # Nor does the wave's mean, as the line is one through the mean.
    assert found.drift == pytest.approx(0.1)
    assert found.quantiles == pytest.approx(np.quantile(wave, KNOTS))
    # Of seven arrivals, these are not all: the pace is that of the whole trace.
    assert lateness_of(np.diff(times, prepend=0.0), 7.0, 7).drift == 0.0


def test_a_cycle_is_not_counted_as_late():
    # Every second and third arrival of three, by a quarter and a half.
    late = np.tile([0.0, 0.25, 0.5], 30)
    found = lateness_of(1 + np.diff(late), 1000.0, 1000)
    assert found.cycle == pytest.approx([0.0, 0.25, 0.5])
    assert found.quantiles == pytest.approx(np.zeros(len(KNOTS)), abs=1e-9)


@pytest.mark.parametrize(
    ("late", "length"),
    [
        # Twenty cycles tell it.
        (np.tile([0.0, 0.5], 20), 2),
        (np.tile([0.0, 0.5], 20)[:39], 1),
        # Two cycles are no better than one, however small.
        (1e-4 * np.tile([0.0, 1.0, 3.0], 100), 3),
        # What is of rounding has none, nor has chance.
        (1e-7 * np.tile([0.0, 1.0], 100), 1),
        (0.2 + np.random.default_rng(7).uniform(-0.1, 0.1, 1300), 1),
        (np.tile(np.arange(64) == 0, 20).astype(float), 64),
    ],
)
def test_the_length_of_a_cycle(late, length):
    found = _cycle(late)
    assert found == pytest.approx(late[:length] if length > 1 else [0.0])


def test_a_cycle_of_more_than_sixty_four_is_not_looked_for():
    # One arrival of 65 is late: of 13, a fifth as much on average.
    late = np.tile(np.arange(65) == 0, 21).astype(float)
    assert _cycle(late) == pytest.approx([0.2, *[0.0] * 12])


def test_of_few_arrivals_no_cycle_is_known():
    assert _cycle(np.arange(19.0)).tolist() == [0.0]


def test_a_cycle_is_looked_for_in_twenty_thousand_arrivals():
    late = np.tile([0.0, 0.5], 10_001)
    # One more at the last of them, which moves a mean of ten thousand; and much more beyond.
    late[[19_999, 20_000]] += [1.0, 1e6]
    assert _cycle(late) == pytest.approx([0.0, 0.5001], abs=1e-9)
