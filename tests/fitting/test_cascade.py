"""Each step of a cascade by hand, against the same draws, or with what it calls left open."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fitting import burstiness
from fitting.arrival_character import character
from fitting.burstiness import (
    GAP_KNOTS,
    Cascade,
    Windows,
    _keeps_pace,
    _nearest,
    _trial,
    _within,
    fit_cascade,
)
from fitting.course import turned
from fitting.gap_chain import chain_of, chained
from fitting.pace import LATE_KNOTS, ON_TIME, Lateness, lateness_of
from fitting.placing import CHAINED, EVEN, GAPS, PACED, kept_halves
from fitting.splits import LARGE_SHAPE, SMALL_SHAPE, split_laws

ANYWHERE = 0
KNOTS = [0, 0.01, *(k / 20 for k in range(1, 20)), 0.98, 0.99, 0.995, 0.998, 0.999, 1]


def cascade(counts, *, depth=2, stop=0, placement=EVEN, busy=(), lateness=ON_TIME, tick_s=0.0):
    """A cascade of one period whose windows last 20 s; gaps are twice their probabilities.

    Windows of few arrivals have all of them in the first half.
    """
    kept = len(counts).bit_length() - 1
    return Cascade(
        Windows(20.0 * len(counts), 1, kept, kept + depth),
        np.array(counts),
        np.ones(kept, dtype=bool),
        kept_halves([(np.array([whole]), np.array([first])) for whole, first in busy]),
        np.tile(np.eye(8), (depth, SMALL_SHAPE[0], 1, 1)),
        np.ones((depth, *LARGE_SHAPE)),
        kept + stop,
        placement,
        2 * GAP_KNOTS,
        chain_of(np.array([1.0, 3, 2, 4, 6, 5, 7, 8] * 4)),
        lateness,
        tick_s,
    )


class TestWindows:
    @pytest.mark.parametrize(
        ("duration_s", "requests", "expected"),
        [
            # 440 windows, and 27 of four arrivals.
            (100.0, 110, (1, 4, 8)),
            # No more than 2²² windows, and 1024 whose counts are kept.
            (1800.0, 10**7, (1, 10, 22)),
            # As near 1800 s as divides the whole.
            *((2701.0, 8, (2, 0, 4)), (2699.0, 8, (1, 1, 5))),
            # However few arrivals there are, windows are halved once.
            *((18_000.0, 2, (10, 0, 1)), (3600.0, 0, (2, 0, 1))),
        ],
    )
    def test_cut_by_hand(self, duration_s, requests, expected):
        assert Windows.of(duration_s, requests) == Windows(duration_s, *expected)

    def test_periods_may_be_short(self):
        assert Windows.of(0.5, 8, 0.25) == Windows(0.5, 2, 0, 4)

    def test_arrivals_are_added_to_what_windows_have(self):
        counts = np.array([10, 0, 0, 0], dtype=np.int32)
        # Windows of 2.5 s; what comes in the end is of the last.
        Windows(10.0, 1, 0, 2).counts(np.array([0.0, 2.4, 2.5, 9.9, 10.0]), counts)
        assert counts.tolist() == [12, 1, 0, 2]


class TestGaps:
    def test_probabilities_of_quantiles(self):
        assert GAP_KNOTS.tolist() == pytest.approx(KNOTS)

    def test_gaps_are_straight_between_their_quantiles(self):
        gaps = np.random.default_rng(1).exponential(1.0, len(KNOTS)).cumsum()
        at = np.concatenate([(np.arange(9999) + 0.5) / 1e4, [0.99999]])
        found = replace(cascade([1]), gaps=gaps)._of_law(at.copy())
        assert found == pytest.approx(np.interp(at, KNOTS, gaps), rel=1e-9)

    @pytest.mark.parametrize("placement", [ANYWHERE, EVEN, GAPS])
    def test_gaps_of_any_order(self, placement):
        found = cascade([1], placement=placement).draw_gaps(9, np.random.default_rng(2))
        assert found == pytest.approx(2 * np.random.default_rng(2).random(9))

    def test_gaps_that_follow_each_other(self):
        given = cascade([1], placement=CHAINED)
        expected = 2 * chained(given.chain, 50, np.random.default_rng(2))
        assert given.draw_gaps(50, np.random.default_rng(2)) == pytest.approx(expected)
        # Other placements have no gaps of other streams either.
        found = given.ordered_gaps(np.arange(50.0), np.random.default_rng(2))
        assert found == pytest.approx(expected)

    def test_gaps_of_the_order_of_others(self):
        others = np.array([5.0, 1.0, 9.0, 2.0, 4.0])
        found = cascade([1], placement=GAPS).ordered_gaps(others, np.random.default_rng(2))
        # By length, the others are fourth, first, fifth and so on: of ten tenths, two each.
        assert np.floor(found / 2 * 5).tolist() == [3, 0, 4, 1, 2]
        rng = np.random.default_rng(2)
        rng.permutation(5)
        assert found[np.argsort(others)] / 2 == pytest.approx((np.arange(5) + rng.random(5)) / 5)

    def test_equal_gaps_are_in_any_order(self):
        given = cascade([1], placement=GAPS)
        found = given.ordered_gaps(np.ones(9), np.random.default_rng(2))
        order = np.random.default_rng(2).permutation(9)
        assert np.floor(found[order] / 2 * 9).tolist() == list(range(9))


class TestCourse:
    def test_windows_in_their_own_order(self):
        course = cascade([3, 2, 1, 4]).course(rng=np.random.default_rng(5), in_order=True)
        assert course.tolist() == [0, 1, 2, 3]

    @pytest.mark.parametrize("loose", [[True, False], [False, True], [True, True]])
    def test_halves_change_places_where_they_are_loose(self, loose):
        loose = np.array(loose)
        given = replace(cascade([3, 2, 1, 4]), loose=loose)
        for seed in range(8):
            expected = turned(given.counts, 1, loose, np.random.default_rng(seed))
            assert given.course(np.random.default_rng(seed)).tolist() == expected.tolist()


class TestPlace:
    RNG = np.random.default_rng(3)

    def test_windows_one_after_the_other_from_a_start(self):
        # Windows of 20 s: one arrival in the middle of the first, and two in the second.
        found = cascade([1, 2, 5, 5]).place(np.array([0, 1]), 40.0, np.ones(3), self.RNG)
        assert found == pytest.approx([50.0, 65.0, 75.0])
        found = cascade([1, 2, 5, 5]).place(np.array([1, 0]), 0.0, np.ones(3), self.RNG)
        assert found == pytest.approx([5.0, 15.0, 30.0])

    def test_windows_are_halved_below_those_whose_counts_are_kept(self):
        # All are in the first quarter of the window.
        found = cascade([2, 2], stop=2).place(np.array([1]), 0.0, np.ones(2), self.RNG)
        assert found == pytest.approx([1.25, 3.75])

    def test_halves_that_are_kept_are_those_of_the_window(self):
        # Of 16 in the second, 15 are in the first half; of 17 in the last, one.
        given = cascade([1, 16, 1, 17], busy=[(16, 15), (17, 1)])
        for window, first in ((1, 15), (3, 1)):
            found = given.place(np.array([window]), 0.0, np.ones(20), self.RNG)
            assert (found < 10.0).sum() == first

    def test_gaps_are_those_given(self):
        gaps = np.array([1.0, 2.0, 4.0])
        edges = np.random.default_rng(3).random(3)
        given = cascade([3], placement=GAPS)
        found = given.place(np.array([0]), 0.0, gaps, np.random.default_rng(3))
        assert np.diff(found) == pytest.approx(20.0 * gaps[1:] / (gaps.sum()))
        assert found[0] == pytest.approx(20.0 * (1 - edges[0]) / 7.0)

    def test_one_pace(self):
        # Of 18 arrivals, a half before these: the places in a cycle of four are 1, 2, 3, 0 and so
        # on. Nine arrivals in two windows of 20 s are 40/9 s apart.
        late = np.array([0.1, 0.2, 0.3, 0.4])
        lateness = Lateness(late, np.zeros(len(LATE_KNOTS)), 0.0, 0.0)
        given = cascade([5, 4, 5, 4], placement=PACED, lateness=lateness)
        found = given.place(np.array([2, 3]), 40.0, np.ones(9), self.RNG)
        expected = 40.0 + (np.arange(9) + late[(9 + np.arange(9)) % 4]) * 40 / 9
        assert found == pytest.approx(expected, abs=1e-4)

    @pytest.mark.parametrize(
        ("options", "first"), [({}, 5), ({"in_order": False}, 5), ({"in_order": True}, 2)]
    )
    def test_one_pace_takes_no_arrivals_out_of_windows_in_order(self, options, first):
        asked = {"windows": np.arange(2), "start_s": 0.0, "gaps_s": np.ones(9), "rng": self.RNG}
        found = cascade([2, 7], placement=PACED).place(**asked, **options)
        assert (found < 20.0).sum() == first

    def test_times_within_their_windows(self):
        found = _within(np.array([2, 0, 1, 1]), np.array([-0.5, 1.2, 1.5, 3.25]))
        assert found.tolist() == pytest.approx([0.0, 1.0, 2.0, 3.25], abs=2e-9)
        assert 1 - found[1] == pytest.approx(1e-9, rel=1e-6)

    def test_times_of_a_clock(self):
        # A clock that tells 20 s in ticks of 5 s has five of them: times are 25/20 of that, cut.
        given = cascade([8], tick_s=5.0)
        found = given.place(np.array([0]), 0.0, np.ones(8), self.RNG)
        told = 1.25 * (20 / 8) * (np.arange(8) + 0.5)
        assert found.tolist() == (5 * np.floor(told / 5)).tolist() == [0, 0, 5, 10, 10, 15, 20, 20]


@pytest.mark.parametrize(
    ("counts", "keeps"),
    [
        # A hundred arrivals may be 2 and a tenth of 10 ahead or behind.
        *(([28, 25, 25, 22], True), ([29, 25, 25, 21], False)),
        *(([22, 25, 25, 28], True), ([21, 25, 25, 29], False)),
        ([25, 25, 29, 21], False),
    ],
)
def test_a_pace_is_kept_by_windows_that_are_never_far_from_it(counts, keeps):
    assert _keeps_pace(np.array(counts)) == keeps


def finest_of(times, windows):
    counts = np.zeros(windows.finest, dtype=np.int64)
    windows.counts(times, counts)
    return counts


class TestFit:
    WINDOWS = Windows(200.0, 2, 2, 5)

    @pytest.fixture
    def times(self):
        rng = np.random.default_rng(4)
        times = np.cumsum(rng.exponential(np.repeat(rng.choice([0.1, 2.0], 40), 10)))
        return (times - times[0]) * 199.0 / (times[-1] - times[0])

    def test_all_is_that_of_its_parts(self, times):
        gaps = np.diff(times)
        found = fit_cascade(self.WINDOWS, finest_of(times, self.WINDOWS), gaps)
        counts, laws, busy = finest_of(times, self.WINDOWS), [], []
        for _ in range(3):
            first = counts[::2]
            counts, *here = split_laws(counts)
            laws.insert(0, here)
            busy.insert(0, (counts[counts >= 16], first[counts >= 16]))
        assert all(len(whole) for whole, _ in busy)
        assert found.counts.tolist() == counts.tolist()
        np.testing.assert_array_equal(found.small, [small for small, _ in laws])
        np.testing.assert_array_equal(found.large, [large for _, large in laws])
        assert found.halves.least == kept_halves(busy).least
        assert found.halves.first.tolist() == kept_halves(busy).first.tolist()
        assert found.gaps == pytest.approx(np.quantile(gaps, KNOTS) / gaps.mean())
        np.testing.assert_array_equal(found.chain, chain_of(gaps))
        # Bursts have no pace.
        assert found.lateness is ON_TIME
        assert found.tick_s == 0.0

    def test_arrivals_at_one_pace_have_a_lateness(self):
        rng = np.random.default_rng(4)
        times = np.arange(200) + 0.2 * rng.random(200)
        times -= times[0]
        gaps = np.diff(times)
        found = fit_cascade(self.WINDOWS, finest_of(times, self.WINDOWS), gaps).lateness
        expected = lateness_of(gaps, 200.0, 200)
        assert found.quantiles.tolist() == expected.quantiles.tolist()
        assert found.drift == expected.drift != 0.0

    @pytest.mark.parametrize(
        ("depth", "parts"),
        # As few as there are of more than 4096, if there are.
        [(5, 32), (12, 4096), (13, 8192), (14, 8192)],
    )
    def test_another_course_is_looked_at_in_parts_of_windows(self, depth, parts, monkeypatch):
        windows, given = Windows(64.0, 1, 1, depth), []

        def spy(*arguments):
            given.append(arguments)
            return np.zeros(1, dtype=bool)

        monkeypatch.setattr(burstiness, "loose_levels", spy)
        monkeypatch.setattr(burstiness, "_nearest", lambda full, _: full)
        times = np.array([0.0, 1.0, 5.0, 40.0, 63.0])
        found = fit_cascade(windows, finest_of(times, windows), np.diff(times))
        ((counts, fine, periods, fine_s),) = given
        assert counts.tolist() == [3, 2]
        assert len(fine) == parts
        assert np.repeat(np.arange(parts), fine).tolist() == (times * parts // 64).tolist()
        assert (periods, fine_s) == (1, 64.0 / parts)
        # Until a trial says more, windows are halved as long as there are any below.
        assert (found.stop, found.placement) == (depth, ANYWHERE)

    def test_arrivals_that_share_ticks_are_spread_over_them(self, monkeypatch):
        monkeypatch.setattr(burstiness, "_nearest", lambda full, _: full)
        # Two a tick, of which 34 are told in 33 s. Quarters hold 18, 16, 16 and 18 as told.
        windows = Windows(33.0, 1, 2, 6)
        gaps = np.tile([0.0, 1.0], 34)[:-1]
        found = fit_cascade(windows, finest_of(np.cumsum([0.0, *gaps]), windows), gaps)
        assert found.tick_s == 1.0
        assert found.gaps == pytest.approx(np.ones(len(KNOTS)))
        assert found.counts.tolist() == [17, 17, 17, 17]

    def test_few_arrivals_of_a_long_time_have_a_cascade(self):
        windows = Windows.of(1e5, 2)
        assert windows.periods > 8
        found = fit_cascade(windows, finest_of(np.array([0.0, 5e4]), windows), np.array([5e4]))
        made = found.place(found.course(self.rng()), 0.0, np.ones(2), self.rng())
        assert np.abs(made - [0.0, 5e4]).max() < 1e5 / windows.periods

    @staticmethod
    def rng():
        return np.random.default_rng(1)


class TestNearest:
    """The trial that comes nearest to the character of the gaps is chosen, whichever it is."""

    GAPS_S = np.random.default_rng(5).exponential(1.0, 400)

    @pytest.fixture
    def offered(self, monkeypatch):
        """Trials that are made of a cascade, whose characters are drawn anywhere."""

        def tried(counts, wanted=None):
            seen = []

            def spy(trial, gaps_s):
                seen.append((trial.stop, trial.placement))
                assert gaps_s is not None
                return character(self.GAPS_S) * (1.0 if seen[-1] == wanted else 0.5)

            monkeypatch.setattr(burstiness, "_trial", spy)
            found = _nearest(cascade(counts), self.GAPS_S)
            return seen, (found.stop, found.placement)

        return tried

    HALVED = tuple((depth, way) for depth in (1, 2, 3) for way in (ANYWHERE, EVEN, GAPS, CHAINED))

    def test_bursts_are_tried_at_each_depth_in_each_way(self, offered):
        for wanted in self.HALVED:
            assert offered([9, 90], wanted) == ([*self.HALVED], wanted)

    def test_arrivals_at_one_pace_are_tried_at_that_too(self, offered):
        trials = [*self.HALVED, (1, PACED)]
        for wanted in trials:
            assert offered([50, 50], wanted) == (trials, wanted)


class TestTrial:
    @pytest.fixture(autouse=True)
    def gaps_themselves(self, monkeypatch):
        """The gaps of a trial, not their character."""
        monkeypatch.setattr(burstiness, "character", np.array)

    @pytest.mark.parametrize(
        ("counts", "number"),
        [
            # Windows in which fewer than 25 000 are reached, or the first.
            ([10_000, 15_000, 1, 1], 10_000),
            ([10_000, 14_999, 1, 1], 24_999),
            ([30_000, 5], 30_000),
            ([3, 4, 30_000, 1], 7),
        ],
    )
    def test_windows_of_as_many_as_are_looked_at(self, counts, number):
        assert len(_trial(cascade(counts), np.ones(9))) == number - 1

    @pytest.mark.parametrize("placement", [ANYWHERE, GAPS, CHAINED])
    def test_a_trial_is_placed_from_the_begin_without_a_clock(self, placement):
        given, rng = cascade([3, 5, 30_000, 1], placement=placement), np.random.default_rng(0)
        gaps_s = np.arange(1.0, 10.0)
        gaps = given.draw_gaps(8, rng) if placement == CHAINED else rng.choice(gaps_s, 8)
        expected = np.diff(given.place(np.arange(2), 0.0, gaps, rng))
        found = _trial(replace(given, tick_s=5.0), gaps_s)
        assert found.tolist() == expected.tolist()

    def test_the_first_arrival_of_a_trial_is_that_of_the_trace(self):
        # On time, as the others are not: by half a gap of 20 s in 8.
        lateness = Lateness(np.zeros(1), np.full(len(LATE_KNOTS), 0.5), 0.0, 0.0)
        found = _trial(cascade([8, 30_000], placement=PACED, lateness=lateness), np.ones(9))
        assert found == pytest.approx([3.75, *[2.5] * 6], abs=1e-4)
