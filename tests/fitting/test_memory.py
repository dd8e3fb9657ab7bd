"""What a walk remembers, and where it starts requests by that: in a space laid out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from counted_traces import columns, counted
from known_draws import begun, giving
from laid_space import entries, memory, pending, space, touch

from fitting.marks import MOST_CLOCK
from fitting.memory import (
    _has_stopped,
    _law,
    _stop,
    _stopped,
    drawn_class,
    emptied,
    holds_more,
    known_address,
    memory_of,
)
from fitting.places import Addresses, places_of
from fitting.recency import put
from fitting.request_kinds import KINDS
from fitting.reuse import AGAIN, CLASSES, FRESH

NONE = {"start": [0] * 6, "chance": (), "class_": ()}


@pytest.fixture(scope="module")
def counts():
    stream = np.arange(12) % 2
    lbn = 8 * np.random.default_rng(1).integers(16, size=12)
    return counted(columns(lbn, stream=stream, device=stream, op=np.arange(12) % 4 < 2)).counts


class TestRoom:
    def made(self, counts, reuse, expected, share=0.5):
        addresses = Addresses(1, 0, 128, reuse, 16, np.array([0, 1]), np.array([0.1, 0.2]))
        started = np.arange(len(counts.state)) + 3
        rng = np.random.default_rng(0)
        return memory_of(counts, started, addresses, expected, share, rng)

    @pytest.mark.parametrize(("expected", "times"), [(0.5, 1), (1.0, 1), (1.5, 1.5), (10.0, 10)])
    def test_is_for_twice_the_requests_to_come_and_a_few(self, counts, expected, times):
        found = self.made(counts, np.ones((len(counts.state), CLASSES)), expected)
        for lists, kinds in ((found.begins, 1), (found.ends, KINDS)):
            place = places_of(counts, np.array([0, 1]), kinds)
            requests = np.bincount(place, counts.occupancy)
            assert lists.room.tolist() == (16 + 256 + 2 * times * requests).astype(int).tolist()
        assert (found.begins.stops, found.ends.stops) == (False, True)

    def test_is_hardly_any_where_nothing_is_remembered(self, counts):
        found = self.made(counts, None, 10.0)
        assert set(found.begins.room) == set(found.ends.room) == {16}
        assert len(found.law.chance) == 0
        assert found.law.start.tolist() == [0]

    def test_is_of_every_device(self, counts):
        found = self.made(counts, np.ones((len(counts.state), CLASSES)), 1.0)
        assert (found.marks.bits, found.marks.devices) == (4, 2)
        assert found.clock.tolist() == found.pieces_met[:, 0].tolist() == [0, 0]
        assert found.pieces_met.shape == (2, 2)
        assert found.met.tolist() == [0.1, 0.2]

    @pytest.mark.parametrize(("share", "length"), [(0.5, 0.5), (1.0, 1), (3.0, 1)])
    def test_batches_are_of_the_runs_to_come(self, counts, share, length):
        found = self.made(counts, None, 1.0, share).draws.length
        assert found.tolist() == np.round(length * (np.arange(len(found)) + 3)).tolist()


class TestLaw:
    def test_leaves_out_classes_without_a_chance(self):
        found = _law(np.array([[0.0, 0.5, 0.5, 1.0], [0.25, 0.25, 1.0, 1.0], [0, 0, 0, 1]]))
        assert found.start.tolist() == [0, 2, 4, 5]
        assert found.chance.tolist() == [0.5, 1.0, 0.25, 1.0, 1.0]
        assert found.class_.tolist() == [1, 3, 0, 2, 3]

    @pytest.mark.parametrize(
        ("v", "u", "expected"),
        [
            *((0, 0.0, 1), (0, 0.49, 1), (0, 0.5, 3), (0, 0.99, 3), (1, 0.0, 9), (1, 0.99, 9)),
            *((2, 0.0, 4), (2, 0.24, 4), (2, 0.25, 5), (2, 0.5, 6), (2, 0.74, 6), (2, 0.75, 192)),
        ],
    )
    def test_is_drawn_from(self, v, u, expected):
        m = memory(
            3,
            start=[0, 2, 3, 7],
            chance=(0.5, 1.0, 1.0, 0.25, 0.5, 0.75, 1.0),
            class_=(1, 3, 9, 4, 5, 6, FRESH),
        )
        assert drawn_class(m, v, giving(u)) == expected

    def test_without_one_all_is_fresh(self):
        r = begun()
        assert drawn_class(memory(**NONE), 0, r) == FRESH
        assert r == begun()


def test_a_memory_that_is_emptied_holds_nothing():
    m = memory()
    touch(m, 1, 1004, 3)
    for lists in (m.begins, m.ends):
        put(lists, m.marks, 1, 2, 1004, 3)
    m.clock[:], m.pieces_met[:] = 5, 7
    found = emptied(m)
    assert (found.marks.bits, found.marks.devices) == (3, 2)
    assert not found.marks.key.any()
    for of in (found.clock, found.pieces_met, found.begins.used, found.ends.used):
        assert not of.any()
    assert np.array_equal(found.begins.room, m.begins.room)


class TestHoldsMore:
    def test_until_the_clock_ends(self):
        m = memory(clock=[0, MOST_CLOCK - 1])
        assert holds_more(m, 1, 4096)
        m.clock[1] += 1
        assert not holds_more(m, 1, 4096)
        assert holds_more(m, 0, 4096)

    def test_until_the_rows_are_in_use(self):
        # A row has 64 blocks of 512 B.
        m = memory()
        m.marks.held[:] = 4, 8
        assert holds_more(m, 0, 3 * 64 * 512 - 1)
        assert not holds_more(m, 0, 3 * 64 * 512)
        assert holds_more(memory(**NONE, clock=[MOST_CLOCK]), 0, 2**40)

    def test_as_many_pieces_of_one_as_are_kept(self):
        m = memory()
        m.marks.held[:] = 0, 2**20 // 8 + 2
        assert holds_more(m, 0, 2**50)
        m.marks.held[1] -= 1
        assert not holds_more(m, 0, 2**50)


class TestKnownAddress:
    """Of the class of ages from 8 to 11, at the clock 20: the requests 12, 11, 10 and 9."""

    def known(self, class_, u=0.0, now=20, m=None):
        m = m or self.remembered(now)
        return known_address(
            space(place=np.arange(5)[::-1], stop=np.arange(5) + 5), m, 1, 3, class_, 8, giving(u)
        )

    def remembered(self, now):
        m = memory(10, clock=[0, now])
        for clock in range(1, 20):
            touch(m, 1, 1300 + 8 * clock, clock)
            put(m.begins, m.marks, 1, 1, 1300 + 8 * clock, clock)
            # Where runs stopped: far away, behind pieces that were touched then.
            touch(m, 1, 9000 + 64 * clock, clock)
            put(m.ends, m.marks, 1, 8, 9001 + 64 * clock, clock)
        return m

    @pytest.mark.parametrize(
        ("u", "clock"), [(0.0, 12), (0.24, 12), (0.25, 11), (0.5, 10), (0.75, 9), (0.99, 9)]
    )
    def test_is_where_a_request_began_so_long_ago(self, u, clock):
        assert self.known(AGAIN + 6, u) == 1300 + 8 * clock
        assert self.known(6, u) == 9001 + 64 * clock

    def test_is_of_the_least_ages_too(self):
        assert self.known(AGAIN) == 1300 + 8 * 19
        assert self.known(0) == 9001 + 64 * 19

    def test_is_the_first_of_all(self):
        m, d = memory(clock=[0, 1]), space(place=np.zeros(5, int), stop=np.zeros(5, int))
        touch(m, 1, 1300, 1)
        put(m.begins, m.marks, 1, 0, 1300, 1)
        put(m.ends, m.marks, 1, 0, 1303, 1)
        assert known_address(d, m, 1, 3, AGAIN, 8, giving(0.5)) == -1
        m.clock[1] = 2
        assert known_address(d, m, 1, 3, AGAIN, 8, giving(0.5)) == 1300
        assert known_address(d, m, 1, 3, 0, 8, giving(0.5)) == 1303

    def test_is_none_ahead_of_the_first_request(self):
        assert [self.known(AGAIN + 6, now=now) > 0 for now in (8, 9)] == [False, True]
        assert [self.known(6, now=now) > 0 for now in (8, 9)] == [False, True]

    def test_is_none_where_nothing_was_or_where_it_is_to_be_fresh(self):
        r = begun()
        assert known_address(space(), memory(clock=[0, 20]), 1, 3, FRESH, 8, r) == -1
        assert r == begun()
        assert self.known(AGAIN + 6, m=memory(10, clock=[0, 20])) == -1
        assert self.known(6, m=memory(10, clock=[0, 20])) == -1


class TestARunThatStopped:
    @pytest.mark.parametrize(
        ("lbn", "blocks", "touched", "clock", "expected"),
        [
            # Clocks up to 952 are long ago; pieces are 125, 126 …
            (1000, 8, 1008, 952, True),
            (1000, 8, 1008, 953, False),
            (1000, 1, 1015, 953, False),
            (1000, 8, 1000, 953, True),
            (1000, 8, 1016, 953, True),
            (1000, 64, 1008, 952, True),
            (1000, 64, 1008, 953, False),
            (1000, 64, 1056, 952, True),
            (1000, 64, 1056, 953, False),
            (1000, 64, 1064, 953, True),
            (1000, 64, 1040, 953, True),
            (1007, 10, 1016, 953, False),
            (1007, 9, 1016, 953, True),
        ],
    )
    def test_can_go_on_unless_another_has_been_ahead_lately(
        self, lbn, blocks, touched, clock, expected
    ):
        m = memory(clock=[0, 3000])
        touch(m, 1, touched, clock)
        assert _has_stopped(m, 1, lbn, blocks) == expected
        assert _has_stopped(m, 0, lbn, blocks)

    def test_cannot_where_one_has_ever_been_of_few(self):
        m = memory(clock=[0, 100])
        touch(m, 1, 1008, 1)
        assert not _has_stopped(m, 1, 1000, 8)
        assert _has_stopped(m, 1, 1008, 8)

    @pytest.mark.parametrize(("passed", "expected"), [(0, 1601), (3, 1601 + 3 * 64), (4, -1)])
    def test_is_the_nearest_that_can(self, passed, expected):
        """Where it cannot, it is taken out; of those four are looked at."""
        m, d = memory(8, clock=[0, 100]), space(stop=np.arange(5) + 2)
        for k in range(5):
            touch(m, 1, 1600 + 64 * k, 10 + k)
            put(m.ends, m.marks, 1, 5, 1601 + 64 * k, 10 + k)
            if k < passed:
                touch(m, 1, 1608 + 64 * k, 90)
        assert _stopped(d, m, 1, 3, 5, 8) == expected
        assert [lbn for _, lbn in entries(m.ends, 5)] == [
            -1 if k < passed else 1601 + 64 * k for k in range(5)
        ]

    def test_is_none_where_none_stopped(self):
        assert _stopped(space(), memory(), 1, 3, 5, 8) == -1

    @pytest.mark.parametrize(
        ("end", "kind", "state"),
        [
            *((1256, 0, 3), (1511, 0, 3), (1512, 0, 4), (1767, 0, 4)),
            *((1255, 0, -1), (1768, 0, -1), (-1, 0, -1), (1300, 1, -1), (1800, 1, 5)),
        ],
    )
    def test_is_noted_in_a_state_that_was_touched(self, end, kind, state):
        """Of stream 1, which has touched the states 1 and 2, and state 3 by the second kind."""
        m, p = memory(10), pending(end=[7, end], kind=[7, kind], made=[7, 42])
        starts = [0, 2, *[3] * (KINDS - 1), 5, *[6] * (KINDS - 1)]
        d = space(origin_start=np.array(starts), state=np.array([0, 2, 3, 1, 2, 3]))
        _stop(d._replace(stop=np.arange(9, 3, -1)), m, p, 1)
        noted = {v: entries(m.ends, v) for v in range(10) if m.ends.used[v]}
        assert noted == ({} if state < 0 else {9 - state: [(42, end)]})
