"""Ticks that arrivals share, and arrivals spread over them, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fitting.clock import Clock, _even, _spread, shared_tick


@pytest.mark.parametrize(
    "gaps",
    [
        *([], [0.0, 0.0], [2.0, 4.0, 6.0]),
        # One gap of eleven is in the tick of the one before: too few.
        [0.0, *[2.0] * 10],
        # No whole numbers of anything.
        [0.0, 2.0, 3.0],
    ],
)
def test_a_clock_that_no_arrivals_share_has_no_tick(gaps):
    assert shared_tick(np.array(gaps), 1.0) == 0.0


def test_a_tick_is_the_mean_of_gaps_of_one():
    # Those of two and three ticks are not asked; a ninth of all are shared.
    gaps = np.array([0.0, 2 - 2**-12, 2 + 2**-12, 4.0, 6.0, 2.0, 2.0, 2.0, 2.0])
    assert shared_tick(gaps, 1.0) == 2.0


@pytest.mark.parametrize(("finest_s", "tick_s"), [(2.0, 2.0), (2.5, 0.0)])
def test_a_tick_is_no_shorter_than_the_finest_windows(finest_s, tick_s):
    assert shared_tick(np.array([0.0, 2.0, 2.0]), finest_s) == tick_s


@pytest.mark.parametrize(
    ("gaps", "whole"),
    [
        # A thousandth of a tick, where that is the gap, and of the gap where that is longer.
        *(([1 - 0.0009995, 1 + 0.0009995], True), ([1 - 0.0010005, 1 + 0.0010005], False)),
        *(([1.0, 100.09], True), ([1.0, 100.11], False), ([1.0, 99.91], True)),
    ],
)
def test_gaps_are_whole_numbers_of_ticks_to_a_thousandth(gaps, whole):
    found = shared_tick(np.array([0.0, *gaps]) / 4, 0.125)
    assert found == (pytest.approx(0.25) if whole else 0.0)


def test_the_last_tick_belongs_to_the_time_of_a_clock():
    assert Clock(2.0).stretch(8.0) == 1.25


@pytest.mark.parametrize(("counts", "even"), [([2, 2, 2], True), ([1, 2], True), ([1, 3], False)])
def test_ticks_are_even_that_vary_less_than_half_as_much_as_those_of_chance(counts, even):
    # Variance over mean: 0, a sixth, a half.
    assert _even(np.array(counts)) == even


def windows_of(ticks):
    """Sixteen windows of half a second, with arrivals where ticks of two seconds begin."""
    counts = np.zeros(16, dtype=np.int64)
    # What comes in the end is counted in the last window.
    counts[[0, 4, 8, 12, 15]] = ticks
    return counts


@pytest.mark.parametrize("ticks", [[2, 2, 3, 2, 2], [3] * 5])
def test_even_arrivals_are_spread_evenly_over_their_ticks(ticks):
    # Five ticks are 10 s, told in 8: each lasts 3.2 windows. Two arrivals come 0.8 and 2.4 after
    # its begin, three 0.53, 1.6 and 2.67.
    spread = Clock(2.0).spread_counts(windows_of(ticks), 8.0)
    after = {2: [0.8, 2.4], 3: [1.6 / 3, 1.6, 8 / 3]}
    at = [3.2 * tick + part for tick, held in enumerate(ticks) for part in after[held]]
    assert spread.tolist() == np.bincount(np.array(at).astype(int), minlength=16).tolist()


def test_arrivals_of_chance_are_anywhere_in_their_ticks():
    ticks = [1, 6, 1, 1, 7]
    spread = Clock(2.0).spread_counts(windows_of(ticks), 8.0)
    within = np.random.default_rng(0).random(16)
    at = 3.2 * (np.repeat(np.arange(5), ticks) + within)
    assert spread.tolist() == np.bincount(at.astype(int), minlength=16).tolist()


def test_nothing_is_spread_beyond_the_last_window():
    windows = np.zeros(4, dtype=np.int64)
    # At 1.5, and at 4.5 of four.
    _spread(np.array([1, 1]), 3.0, True, windows, np.random.default_rng(0))
    assert windows.tolist() == [0, 1, 0, 1]


def test_gaps_of_even_ticks_are_those_of_equal_parts_of_a_tick():
    # Ticks of one, two, none, one and two arrivals, and so on: at 1/2; 1/4, 3/4; 1/2; ...
    held = [1, 2, 0, 2, 1, 2, 1, 2]
    tick = np.repeat(np.arange(8), held)
    at = [0.5, 1.25, 1.75, 3.25, 3.75, 4.5, 5.25, 5.75, 6.5, 7.25, 7.75]
    # Half a second a tick; the time of 3.5 s and the last tick is told in 3.5 s.
    found = Clock(0.5).spread_gaps(np.diff(tick) * 0.5, 3.5)
    assert found == pytest.approx(np.diff(at) * 0.5 / (4 / 3.5))


def test_gaps_of_ticks_of_chance_are_those_of_arrivals_anywhere():
    tick = np.repeat([0, 1, 4, 5], [1, 6, 1, 2])
    at = np.sort(tick + np.random.default_rng(0).random(10))
    found = Clock(0.5).spread_gaps(np.diff(tick) * 0.5, 2.5)
    assert found == pytest.approx(np.diff(at) * 0.5 / 1.2)
