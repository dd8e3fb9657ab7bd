"""Arrivals put in windows: halves that are kept by hand, and laws that leave no choice."""

from __future__ import annotations

import numpy as np
import pytest

from fitting.placing import (
    CHAINED,
    EVEN,
    GAPS,
    LEAST_HALVED,
    PACED,
    PLACEMENTS,
    Halves,
    Linked,
    _place_by_gaps,
    _place_last,
    kept_halves,
    linked,
    place,
)
from fitting.splits import LARGE_SHAPE, SMALL_SHAPE

ANYWHERE = 0
UNLINKED = Linked(16, np.zeros(0, dtype=np.int64), np.zeros(0, int), np.zeros(0, int))


def laws(*depths):
    """Laws by depth: how many of seven, by context, are surely in the first half.

    Of fewer, all are; of more, half.
    """
    small = np.ones((len(depths), *SMALL_SHAPE))
    for k, first in enumerate(depths):
        for number in range(1, 7):
            small[k, :, number, :number] = 0.0
        for kind, of_seven in enumerate(first):
            small[k, kind, 7, :of_seven] = 0.0
    return small, np.full((len(depths), *LARGE_SHAPE), 0.5)


def placed(counts, kept=None, links=UNLINKED, of_seven=((0, 1, 2, 3),), **options):
    counts = np.array(counts)
    kept = np.full(len(counts), -1) if kept is None else np.array(kept)
    given = {"stop": 0, "placement": EVEN, "gaps": np.ones(counts.sum())} | options
    rng = np.random.default_rng(3)
    asked = {"counts": counts, "kept": kept, "links": links, "laws": laws(*of_seven)}
    return place(**asked, rng=rng, **given)


class TestKeptHalves:
    def test_none(self):
        found = kept_halves([])
        assert (found.least, found.first.tolist()) == (LEAST_HALVED, [])

    def test_few_are_all_kept(self):
        pairs = [(np.array([40, 20]), np.array([24, 4])), (np.array([16]), np.array([9]))]
        found = kept_halves(pairs)
        assert (found.least, found.first.tolist()) == (16, [24, 4, 9])

    @pytest.mark.parametrize(
        ("whole", "least", "kept"),
        [
            (np.arange(16, 16 + 2048), 16, 2048),
            (np.arange(16, 16 + 2049), 17, 2048),
            (np.arange(16, 16 + 3000), 16 + 952, 2048),
            # Of those that are alike, all are kept or none.
            (np.repeat([100, 50, 30], [2000, 49, 10]), 51, 2000),
            (np.repeat([100, 50, 30], [2000, 48, 10]), 31, 2048),
        ],
    )
    def test_of_many_the_busiest_are_kept(self, whole, least, kept):
        whole = np.random.default_rng(162).permutation(whole)
        found = kept_halves([(whole[:7], whole[:7] - 10), (whole[7:], whole[7:] - 10)])
        assert found.least == least
        assert found.first.tolist() == (whole[whole >= least] - 10).tolist()
        assert len(found.first) == kept


# 40 and 20 arrivals, of which 24 and 4 are in their first halves; of 24, 16 and 16 14, 16 and 0;
# of the 16 in the second quarter's first half 7, and of those in the last half 9.
COUNTS, FIRST = [40, 10, 20], [24, 4, 14, 16, 0, 7, 9]


class TestLinked:
    def test_halves_are_linked_to_those_below(self):
        found = linked(Halves(16, np.array(FIRST)), np.array(COUNTS))
        assert found.least == 16
        assert found.first.tolist() == FIRST
        assert found.coarse.tolist() == [0, -1, 1]
        # The halves of 40 are 24 and 16; of 20, 4 and 16; of 24, 14 and 10; and so on.
        assert found.below.tolist() == [2, 4, 5, 5, 6, 7, 7]

    def test_the_finest_windows_have_halves_without_halves(self):
        found = linked(Halves(16, np.array([24, 4])), np.array(COUNTS))
        assert found.coarse.tolist() == [0, -1, 1]
        assert found.below.tolist() == [2, 4]

    @pytest.mark.parametrize(("first", "coarse"), [([4], [-1, 0, -1]), ([], [-1, -1, -1])])
    def test_windows_that_are_not_halved_have_no_number(self, first, coarse):
        found = linked(Halves(16, np.array(first, dtype=np.int64)), np.array([3, 16, 15]))
        assert found.coarse.tolist() == coarse


def evenly(counts, width):
    """Arrivals of windows of a width, evenly in each."""
    return [width * (w + (k + 0.5) / n) for w, n in enumerate(counts) for k in range(n)]


class TestPlaced:
    def test_none_whichever_way(self):
        names = [PLACEMENTS[way] for way in (ANYWHERE, EVEN, GAPS, PACED, CHAINED)]
        assert names == ["anywhere", "even", "gaps", "paced", "chained"]
        for way in (ANYWHERE, EVEN, GAPS, CHAINED):
            assert not len(placed([0, 0], placement=way))

    def test_nothing_is_halved_at_the_stop(self):
        assert placed([2, 0, 3]).tolist() == pytest.approx(evenly([2, 0, 3], 1.0))

    @pytest.mark.parametrize("stop", [0, 1])
    def test_kept_halves_are_what_they_were_below_the_stop(self, stop):
        links = linked(Halves(16, np.array(FIRST)), np.array(COUNTS))
        found = placed(COUNTS, links.coarse, links, stop=stop)
        # Ten arrivals are not kept: five are in each half, which is as even.
        expected = [
            # Of 40, by eighths: 14 and 10 in quarters, 7 and 9 of 16.
            *evenly([14, 10], 0.25),
            *(0.5 + at for at in evenly([7, 9], 0.125)),
            *(1 + at for at in evenly([10], 1.0)),
            *(2 + at for at in evenly([4], 0.5)),
            *(2.75 + at for at in evenly([9, 7], 0.125)),
        ]
        assert found == pytest.approx(expected)

    def test_halves_of_the_finest_windows_are_not_kept(self):
        links = linked(Halves(16, np.array([24, 4])), np.array(COUNTS))
        found = placed(COUNTS, links.coarse, links)
        expected = [*evenly([24, 16, 5, 5, 4, 16], 0.5)]
        assert found == pytest.approx(expected)

    def test_windows_that_are_not_kept_are_not_taken_for_those_that_are(self):
        # Both hold 40 arrivals; the second's are known: all in the first half.
        links = linked(Halves(16, np.array([40, 40])), np.array([0, 40]))
        found = placed([40, 40], [-1, 0], links, stop=2)
        expected = [*evenly([10] * 4, 0.25), *(1 + a for a in evenly([40], 0.25))]
        assert found == pytest.approx(expected)

    @pytest.mark.parametrize(
        ("counts", "window", "first"),
        [
            # By context: 0 alone, 1 among others alike, 2 (5) where the one before (after) is
            # somewhat busier, 3 (4) where it is much busier.
            ([7], 0, 0),
            ([1, 7, 0, 5], 1, 0),
            ([3, 7, 3], 1, 1),
            ([8, 7, 3], 1, 2),
            ([3, 7, 8], 1, 5),
            ([9, 7, 0, 7, 9], 1, 3),
            ([9, 7, 0, 7, 9], 3, 4),
            # One that holds nothing is as none.
            ([2, 7, 1, 7, 1], 1, 2),
            ([2, 7, 0, 7, 2], 1, 3),
            ([2, 7, 0, 7, 2], 3, 4),
            ([0, 2, 7, 0, 0, 7], 2, 3),
            # Beyond its ends it goes on as on the other side.
            ([7, 9, 7], 0, 1),
            ([7, 9, 7], 2, 1),
            ([7, 0, 7], 0, 0),
            ([9, 7, 9, 7], 3, 1),
        ],
    )
    def test_a_window_is_divided_as_its_neighbours_have_it(self, counts, window, first):
        found = placed(counts, stop=1)
        half = np.floor(2 * found).astype(int)
        assert np.bincount(half, minlength=2 * len(counts))[2 * window] == first

    def test_each_depth_has_its_laws_and_those_below_the_last(self):
        # Of seven: all in the first half, then none, then none again.
        found = placed([7], of_seven=([7] * 4, [0] * 4), stop=3)
        assert found == pytest.approx([3 / 8 + at for at in evenly([7], 1 / 8)])
        # One law for all depths.
        assert placed([7], of_seven=([7] * 4,), stop=4) == pytest.approx(evenly([7], 1 / 16))

    @pytest.mark.parametrize(("first", "second"), [(2, 5), (5, 2)])
    def test_arrivals_of_both_halves_are_in_order(self, first, second):
        # All of each half are in the first half of that.
        found = placed([7], of_seven=([first] * 4,), stop=2)
        assert found == pytest.approx(evenly([first, 0, second], 0.25))

    def test_by_gaps_the_outer_ones_are_shared(self):
        # Two windows, 2 and 1 arrivals; those of each begin somewhere in the gap before.
        gaps = np.array([1.0, 2.0, 4.0])
        edges = np.random.default_rng(3).random(3)
        first, _, third = (1 - edges) * gaps
        whole = first + 2.0 + edges[2] * 4.0
        expected = [first / whole, (first + 2.0) / whole, 1 + third / 4.0]
        for placement in (GAPS, CHAINED):
            found = placed([2, 1], gaps=gaps, placement=placement)
            assert found == pytest.approx(expected)

    @pytest.mark.parametrize("placement", [GAPS, CHAINED])
    def test_by_gaps_windows_are_halved_first(self, placement):
        # One arrival, in its window's first quarter: where in the gap that begins is drawn first.
        edge = np.random.default_rng(3).random()
        found = placed([0, 1], gaps=np.array([5.0]), placement=placement, stop=2)
        assert found == pytest.approx([1 + 0.25 * (1 - edge)])

    def test_anywhere_is_anywhere_in_order(self):
        drawn = np.random.default_rng(3).random(5)
        found = placed([2, 3], placement=ANYWHERE)
        assert found == pytest.approx([*np.sort(drawn[:2]), *(1 + np.sort(drawn[2:]))])


def test_evenly_by_hand():
    times = np.empty(4)
    _place_last(3.0, 0.5, True, times, np.random.default_rng(1))
    assert times == pytest.approx([3.0625, 3.1875, 3.3125, 3.4375])


@pytest.mark.parametrize(
    ("first", "end", "expected"),
    [
        # 3/4 of 1, then 2, then half of 3: at 0.75 and 2.75 of 4.25.
        (0, 2, [0.75 / 4.25, 2.75 / 4.25]),
        # Half of 3, then 5; after the last comes what its first gap left before it.
        (2, 4, [1.5 / 8.0, 6.5 / 8.0]),
        (3, 4, [0.9]),
    ],
)
def test_by_gaps_by_hand(first, end, expected):
    gaps, edges = np.array([1.0, 2.0, 3.0, 5.0]), np.array([0.25, 0.75, 0.5, 0.1])
    times = np.zeros(4)
    # In a unit of which a gap is a small part.
    _place_by_gaps(8.0, 0.5, first, end, 1e-3 * gaps, edges, times)
    assert times[first:end] == pytest.approx(8 + 0.5 * np.array(expected))
    assert np.count_nonzero(times) == end - first


def test_arrivals_without_gaps_are_where_their_window_begins():
    times = np.ones(2)
    _place_by_gaps(8.0, 0.5, 0, 2, np.zeros(2), np.array([0.25, 0.5]), times)
    assert times.tolist() == [8.0, 8.0]
