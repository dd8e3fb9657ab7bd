"""Lists of places, entry by entry."""

from __future__ import annotations

import numpy as np
import pytest

from fitting import recency as module
from fitting.marks import new_marks, note_begin, touched_row
from fitting.recency import _first_after, _holds, _tidy, drop, nearest, new_recency, put

PIECE = 8


def touched(*touches, piece=PIECE, devices=1):
    """Marks of a device: first blocks of requests, or blocks passed (negative), by clock from 1."""
    marks = new_marks(piece, devices, 256)
    for clock, lbn in enumerate(touches, 1):
        touch(marks, abs(lbn), clock, begins=lbn >= 0, device=devices - 1)
    return marks


def touch(marks, lbn, clock, *, begins=True, device=0):
    row = touched_row(marks, device, lbn >> marks.bits)
    marks.clock[row, (lbn >> marks.bits) % 8] = clock
    if begins:
        note_begin(marks, row, lbn)


def lists(entries, *, stops=False, room=40):
    """The second of two lists, with entries of a clock and a block."""
    found = new_recency(np.array([5.0, room - 16]), stops=stops)
    found.used[1] = len(entries)
    found.entry[21 : 21 + len(entries)] = np.reshape(entries, (-1, 2))
    return found


class TestRoom:
    def test_is_what_is_wanted_and_a_little(self):
        found = new_recency(np.array([3.7, 0.0, 100.0]), stops=True)
        assert found.stops
        with pytest.raises(TypeError, match="positional"):
            new_recency(np.zeros(1), True)
        assert found.start.tolist() == [0, 19, 35]
        assert found.room.tolist() == [19, 16, 116]
        assert found.used.tolist() == [0, 0, 0]
        assert found.limit.tolist() == [19, 16, 64]
        assert found.entry.shape == (151, 2)

    def test_is_shared_where_too_much_is_wanted(self):
        """Twice and half as much as there is for all."""
        found = new_recency(np.full(2, 2.0**23), stops=False)
        assert found.room.tolist() == [2**22 + 16, 2**22 + 16]
        assert new_recency(np.array([2.0**22]), stops=False).room.tolist() == [2**22 + 16]

    def test_of_one_place_is_that_place(self, monkeypatch):
        monkeypatch.setattr(module, "_MOST", 1)
        assert new_recency(np.array([1.5]), stops=False).room.tolist() == [17]
        assert new_recency(np.array([0.5]), stops=False).room.tolist() == [16]


class TestAPlace:
    """The request at block 17 comes second, of a device that is the last of three."""

    @pytest.mark.parametrize(
        ("when", "lbn", "expected"),
        [(2, 17, True), (1, 17, False), (3, 17, False), (2, 16, False), (2, 18, False)],
    )
    def test_where_one_began_is_the_last_use_of_its_piece(self, when, lbn, expected):
        marks = touched(100, 17, 200, devices=3)
        assert _holds(lists([(when, lbn)]), marks, 2, 21) == expected
        assert not _holds(lists([(when, lbn)]), marks, 1, 21)

    @pytest.mark.parametrize(
        ("when", "lbn", "expected"),
        [(2, 23, True), (1, 23, False), (2, 24, True), (1, 24, False), (2, 25, False)],
    )
    def test_where_one_stopped_is_ahead_of_the_last_use(self, when, lbn, expected):
        marks = touched(100, 17, 200)
        assert _holds(lists([(when, lbn)], stops=True), marks, 0, 21) == expected

    def test_where_one_stopped_at_the_end_of_a_piece_nothing_is_since(self):
        assert not _holds(lists([(2, 24)], stops=True), touched(100, 17, 24), 0, 21)
        assert not _holds(lists([(3, 24)], stops=True), touched(100, 17, 24), 0, 21)
        assert not _holds(lists([(1, 0)], stops=True), touched(0), 0, 21)

    def test_of_one_block_is_the_one_before(self):
        marks = touched(100, 17, 200, piece=1)
        stopped = [_holds(lists([(2, lbn)], stops=True), marks, 0, 21) for lbn in (17, 18, 19)]
        assert stopped == [False, True, False]
        assert _holds(lists([(1, 1)], stops=True), touched(0, piece=1), 0, 21)

    def test_taken_out_is_none(self):
        found = lists([(2, 17), (2, 17)])
        drop(found, 21)
        marks = touched(100, 17)
        assert [bool(_holds(found, marks, 0, at)) for at in (21, 22)] == [False, True]
        assert found.entry[21:23].tolist() == [[2, -1], [2, 17]]


def test_the_first_later_one_of_a_list():
    found = lists([(when, 8) for when in (2, 4, 4, 6, 9)])
    asked = [_first_after(found, 21, 26, clock) - 21 for clock in (1, 2, 3, 4, 5, 6, 8, 9, 10)]
    assert asked == [0, 1, 1, 3, 3, 4, 4, 5, 5]
    assert _first_after(found, 21, 21, 1) == 21


class TestNearest:
    """Places at the blocks 8, 16 …, touched at the clocks 1, 2 …."""

    marks = touched(*range(8, 80, 8))

    def found(self, entries, clock):
        held = lists(entries)
        return nearest(held, self.marks, 0, 1, clock) - 21, held

    def test_is_the_earlier_of_two_as_near(self):
        held = [(2, 16), (4, 32), (8, 64)]
        assert [self.found(held, clock)[0] for clock in (0, 2, 3, 4, 6, 7, 99)] == [
            *(0, 0, 0, 1, 1, 2, 2)
        ]

    def test_of_a_use_is_the_one_put_there_first(self):
        marks = touched(8, 16, 24, 32)
        for lbn in (16, 24, 32):
            touch(marks, lbn, 5, begins=False)
        held = lists([(1, 8), (5, 16), (5, 24), (5, 32)])
        assert nearest(held, marks, 0, 1, 5) == 22
        # The first is out of date: the next is found, and it is left where it is.
        touch(marks, 16, 6)
        assert nearest(held, marks, 0, 1, 5) == 23
        assert nearest(held, marks, 0, 1, 1) == 21

    def test_takes_out_what_is_out_of_date_on_its_way(self):
        at, held = self.found([(1, 8), (2, 99), (3, 99), (5, 99), (7, 56)], 4)
        # Ahead of 4 are 3 and 2, behind it 5; 1 and 7 are as near.
        assert at == 0
        assert held.entry[21:26].tolist() == [[1, 8], [2, -1], [3, -1], [5, -1], [7, 56]]

    def test_is_none_of_an_empty_list_or_of_others(self):
        held = new_recency(np.zeros(3), stops=False)
        for at, used in ((0, 16), (2, 1)):
            held.used[at] = used
            held.entry[16 * at : 16 * at + used] = 2, 16
        assert nearest(held, self.marks, 0, 1, 2) == -1
        assert nearest(held, self.marks, 0, 0, 2) == 0
        assert self.found([(2, 99), (3, 99)], 2)[0] == -22


class TestTidying:
    def test_keeps_what_holds_in_its_order(self):
        held = lists([(1, 8), (2, 99), (3, 24), (4, -1), (5, 40)])
        _tidy(held, TestNearest.marks, 0, 1)
        assert held.used.tolist() == [0, 3]
        assert held.entry[21:24].tolist() == [[1, 8], [3, 24], [5, 40]]
        # Twice as many and 64 more, but no more than there is room for.
        assert held.limit.tolist() == [21, 40]
        larger = lists([(1, 8), (2, 99), (3, 24)], room=116)
        _tidy(larger, TestNearest.marks, 0, 1)
        assert larger.limit.tolist() == [21, 68]

    @pytest.mark.parametrize(("room", "kept"), [(16, 8), (17, 8), (18, 9), (20, 9)])
    def test_keeps_the_latest_of_what_would_fill_more_than_half(self, room, kept):
        entries = [(k, 8 * k) for k in range(1, 10)]
        held = lists(entries, room=room)
        _tidy(held, TestNearest.marks, 0, 1)
        assert held.used[1] == kept
        assert held.entry[21 : 21 + kept].tolist() == [list(e) for e in entries[9 - kept :]]

    def test_is_done_when_the_limit_is_reached(self):
        held = lists([(1, 8), (2, 99)], room=16)
        held.limit[1] = 4
        for clock in (3, 4):
            put(held, TestNearest.marks, 0, 1, 8 * clock, clock)
        assert held.used.tolist() == [0, 4]
        put(held, TestNearest.marks, 0, 1, 40, 5)
        assert held.used.tolist() == [0, 4]
        assert held.entry[21:25].tolist() == [[1, 8], [3, 24], [4, 32], [5, 40]]
        assert held.limit[1] == 16
