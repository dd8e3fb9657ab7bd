"""The course of load: orders by given draws, windows by hand, and levels that are plainly loose."""

from __future__ import annotations

import numpy as np
import pytest

from fitting.course import (
    _alike,
    _arrivals,
    _Band,
    _bands,
    _Cuts,
    _reached,
    _variation,
    loose_levels,
    turned,
)
from fitting.dispersion import dispersion_band, index_of_dispersion


class Given:
    """Random numbers that are given, one after the other."""

    def __init__(self, *numbers):
        self.left = list(numbers)

    def random(self, size):
        """Draw the next ones."""
        drawn, self.left = self.left[:size], self.left[size:]
        return np.array(drawn)


class TestTurned:
    @pytest.mark.parametrize(
        ("loose", "draws", "order"),
        [
            ([False, False], [], [0, 1, 2, 3, 4, 5, 6, 7]),
            # Halves of two periods, as likely to change places as not.
            ([True, False], [0.499, 0.5], [2, 3, 0, 1, 4, 5, 6, 7]),
            ([True, False], [0.5, 0.499], [0, 1, 2, 3, 6, 7, 4, 5]),
            # Quarters of periods only.
            ([False, True], [0.1, 0.9, 0.9, 0.1], [1, 0, 2, 3, 4, 5, 7, 6]),
            ([False, True], [0.9, 0.1, 0.1, 0.9], [0, 1, 3, 2, 5, 4, 6, 7]),
            # Halves first, then those of what is in their place.
            ([True, True], [0.1, 0.9, 0.1, 0.9, 0.9, 0.9], [3, 2, 0, 1, 4, 5, 6, 7]),
        ],
    )
    def test_halves_change_places_as_drawn(self, loose, draws, order):
        rng = Given(*draws)
        found = turned(np.ones(8, dtype=int), 2, np.array(loose), rng)
        assert found.tolist() == order
        assert not rng.left

    @pytest.mark.parametrize(
        ("counts", "order"),
        [
            # The first period begins and the last ends with arrivals, whatever is drawn.
            ([5, 0, 5, 0, 0, 5], [[0, 1], [4, 5]]),
            ([0, 5, 5, 0, 5, 0], [[1, 0], [5, 4]]),
            ([0, 5, 0, 5, 0, 5], [[1, 0], [4, 5]]),
            ([5, 0, 0, 5, 5, 0], [[0, 1], [5, 4]]),
        ],
    )
    @pytest.mark.parametrize("draw", [0.1, 0.9])
    @pytest.mark.parametrize(("other", "middle"), [(0.1, [3, 2]), (0.9, [2, 3])])
    def test_a_trace_begins_and_ends_with_an_arrival(self, counts, order, draw, other, middle):
        found = turned(np.array(counts), 3, np.array([True]), Given(draw, other, draw))
        assert found.reshape(3, 2).tolist() == [order[0], middle, order[1]]

    @pytest.mark.parametrize(("draw", "order"), [(0.1, [1, 0]), (0.9, [0, 1])])
    def test_the_ends_change_places_too_where_both_halves_have_arrivals(self, draw, order):
        found = turned(np.ones(6, dtype=int), 3, np.array([True]), Given(draw, 0.9, draw))
        assert found.tolist() == [*order, 2, 3, *(4 + k for k in order)]


class TestWindows:
    def test_cuts_by_hand(self):
        cuts = _Cuts.of(5, 1.5)
        assert cuts.window.tolist() == [0, 1, 3, 4]
        assert cuts.part.tolist() == [0.0, 0.5, 0.0, 0.5]

    def test_the_end_of_all_is_the_end_of_the_last(self):
        cuts = _Cuts.of(3, 1.5)
        assert cuts.window.tolist() == [0, 1, 2]
        assert cuts.part.tolist() == [0.0, 0.5, 1.0]

    def test_arrivals_of_windows_that_are_cut(self):
        reached = _reached(np.array([[2, 4, 6, 8, 10], [1, 1, 1, 1, 1]]))
        assert reached.tolist() == [[0, 2, 6, 12, 20, 30], [0, 1, 2, 3, 4, 5]]
        # Up to 1.5, 3 and 4.5: 4, 12 and 25 of the first.
        found = _arrivals(reached, _Cuts.of(5, 1.5))
        assert found.tolist() == [[4.0, 8.0, 13.0], [1.5, 1.5, 1.5]]

    @pytest.mark.parametrize("counts", [[2, 0, 0, 1, 4], [0, 1, 1, 3, 0], [7]])
    def test_variation_is_that_of_arrivals_even_in_their_windows(self, counts):
        times = [w + (k + 0.5) / n for w, n in enumerate(counts) for k in range(n)]
        expected = (np.diff(times) ** 2).sum() / len(times)
        assert _variation(np.array(counts)) == pytest.approx(expected)


class TestBands:
    """Bands at lengths from those of twenty arrivals on, of which there are more than 21."""

    @pytest.mark.parametrize(
        ("windows", "each", "width_s", "lengths"),
        [
            # Ten windows hold twenty arrivals, and a hundred are a 21st: from 1 s to below 10 s.
            (2100, 2.0, 0.1, [1, 2, 5]),
            # A little more than ten, and of 102.4 windows a length of 100.
            (2150, 1.95, 0.1, [2, 5, 10]),
            # No shorter than windows are.
            (2100, 40.0, 0.1, [0.1, 0.2, 0.5, 1, 2, 5]),
            # From nanoseconds on, and to billions.
            (2150, 40.0, 1e-11, [1e-9]),
            (2150, 40.0, 1e9, [1e9, 2e9, 5e9]),
            # Too few arrivals, or windows.
            *((2100, 0.1, 0.1, []), (20, 40.0, 0.1, [])),
        ],
    )
    def test_lengths_are_round(self, windows, each, width_s, lengths):
        counts = np.diff(np.floor(np.arange(windows + 1) * each)).astype(np.int64)
        found = [band.cuts for band in _bands(counts, width_s)]
        expected = [_Cuts.of(windows, length / width_s) for length in lengths]
        assert len(found) == len(expected)
        for cuts, as_expected in zip(found, expected, strict=True):
            assert cuts.window.tolist() == as_expected.window.tolist()
            assert cuts.part == pytest.approx(as_expected.part, abs=1e-6)

    def test_four_tenths_of_the_way_to_the_edge_of_the_bootstrap_are_allowed(self):
        counts = np.random.default_rng(1).poisson(2.0, 2100)
        (band, *_) = _bands(counts, 0.1)
        # 20 arrivals in 10.2 windows or so: 2 s are the shortest length, or 1 s.
        length = int(band.cuts.window[1])
        arrivals = counts[: 2100 // length * length].reshape(-1, length).sum(axis=1)
        index = index_of_dispersion(arrivals)
        low, high = dispersion_band(arrivals, draws=100)
        assert band.lower == pytest.approx(0.6 * index + 0.4 * low)
        assert band.upper == pytest.approx(0.6 * index + 0.4 * high)

    def test_load_without_variation_may_have_a_thousandth(self):
        (band, *_) = _bands(np.full(2100, 2), 0.1)
        assert (band.lower, band.upper) == pytest.approx((-1e-3, 1e-3))


class TestAlike:
    # Gaps of 1; and 1, 3, 1.
    EVEN, LONG = np.ones(6, dtype=int), np.array([1, 1, 0, 0, 1, 1])

    @pytest.mark.parametrize(
        ("ratio", "alike"), [(1.0599, True), (1.0601, False), (0.9401, True), (0.9399, False)]
    )
    def test_gaps_vary_by_three_hundredths_more_or_less(self, ratio, alike):
        # Mean squares of 5/6 and 11/4.
        given = (5 / 6 + 11 / 4) / 2
        courses = np.array([self.EVEN, self.LONG])
        assert _alike(courses, [], given / ratio) == alike

    @pytest.mark.parametrize(
        ("lower", "upper", "alike"),
        [
            *((1.25, 1.25, True), (1.0, 1.25, True), (1.25, 1.5, True)),
            *((1.0, 1.2, False), (1.3, 1.5, False)),
        ],
    )
    def test_the_mean_index_is_within_every_band(self, lower, upper, alike):
        # In windows of two: 1, 3, 2 and 0, 4, 2, whose variances are 1 and 4, and means 2.
        courses = np.array([[1, 0, 2, 1, 1, 1], [0, 0, 2, 2, 1, 1]])
        indices = [index_of_dispersion(c.reshape(3, 2).sum(axis=1)) for c in courses]
        assert np.mean(indices) == 1.25
        variation = float(np.mean([_variation(course) for course in courses]))
        wide, cuts = _Band(_Cuts.of(6, 3.0), -1.0, 100.0), _Cuts.of(6, 2.0)
        assert _alike(courses, [wide, _Band(cuts, lower, upper)], variation) == alike


class TestLooseLevels:
    """Sixteen windows with an arrival each, but for those that one long gap holds."""

    @pytest.mark.parametrize(
        ("empty", "loose"),
        [
            ([], [True, True, True, True]),
            # Cut by the middle, the gap is whole in its own order only.
            ([7, 8], [False, False, False, False]),
            # The second half would end with it. Its quarter may not begin the trace; others are
            # alike, and so are all the windows in any quarter.
            ([4, 5, 6, 7], [False, True, True, True]),
        ],
    )
    @pytest.mark.parametrize("parts", [1, 2])
    def test_halves_do_not_cut_a_long_gap(self, empty, loose, parts):
        counts = np.ones(16, dtype=int)
        counts[empty] = 0
        found = loose_levels(parts * counts, np.repeat(counts, parts), 1, 1.0)
        assert found.tolist() == loose

    def test_periods_have_the_levels_of_their_own_windows(self):
        assert loose_levels(np.ones(24, dtype=int), np.ones(24, dtype=int), 3, 1.0).tolist() == (
            [True] * 3
        )

    @pytest.mark.parametrize(("empty", "loose"), [([7], False), ([3, 7], True)])
    def test_the_mean_of_eight_orders_decides(self, empty, loose):
        # Of eight draws for the halves, three make them change places, and a gap of 2 is lost.
        assert (np.random.default_rng(0).random(8) < 0.5).sum() == 3
        counts = np.ones(16, dtype=int)
        counts[empty] = 0
        # Squares of gaps are 3 less of 17 then, or 3 of 19: 6.6 % on average, or 5.9 %.
        assert loose_levels(counts, counts, 1, 1.0)[0] == loose
