"""Places by age, against a list that is searched from end to end."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fitting.compiled import uncounted
from fitting.marks import begun_at, last_touch, new_marks, note_begin, touched_row
from fitting.recency import LBN, nearest, new_recency, put

PIECE = 8


@uncounted
def touch(m, u, device, state, lbn, clock, begins):
    """Touch a piece, as a request does that begins there or passes."""
    piece = lbn >> m.bits
    row = touched_row(m, device, piece)
    m.clock[row, piece & 7] = clock
    if begins:
        note_begin(m, row, lbn)
    if begun_at(m, row, piece) >= 0:
        put(u, m, device, state, begun_at(m, row, piece), clock)


@uncounted
def found(m, u, device, state, clock):
    at = nearest(u, m, device, state, clock)
    return u.entry[at, LBN] if at >= 0 else -1


USES = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 25), st.integers(0, PIECE - 1), st.booleans()),
    min_size=1,
    max_size=300,
)


@given(USES, st.integers(0, 1), st.integers(0, 310))
def test_requests_come_back_to_where_requests_began(uses, device, asked):
    marks, memory, held = new_marks(PIECE, 2), new_recency(np.full(2, 500.0), stops=False), {}
    for clock, (state, piece, inside, begins) in enumerate(uses, 1):
        lbn = piece * PIECE + inside
        assert last_touch(marks, device, lbn) == held.get(piece, (0,))[0]
        touch(marks, memory, device, state, lbn, clock, begins)
        if not begins and held.get(piece, (0, 0, 0, False))[3]:
            lbn, begins = held[piece][2], True
        held[piece] = (clock, state, lbn, begins)
    for state in (0, 1):
        starts = [
            (abs(c - asked), c, at) for c, s, at, begun in held.values() if s == state and begun
        ]
        # Twice, as what is out of date is taken out by the way.
        for _ in range(2):
            assert found(marks, memory, device, state, asked) == (min(starts)[2] if starts else -1)


def test_of_pieces_passed_at_once_the_first_is_found():
    marks, memory = new_marks(PIECE, 1), new_recency(np.full(1, 500.0), stops=False)
    for clock, piece in enumerate([4, 5, 6, 9], 1):
        touch(marks, memory, 0, 0, piece * PIECE, clock, True)
    for piece in (4, 5, 6):
        touch(marks, memory, 0, 0, piece * PIECE, 5, False)
    assert found(marks, memory, 0, 0, 6) == 4 * PIECE
    assert found(marks, memory, 0, 0, 3) == 9 * PIECE


class TestWhereRunsStopped:
    """A run can go on where it stopped until the place is touched, or another stops there."""

    def stopped(self, end, *, then=()):
        marks, begins = new_marks(PIECE, 1), new_recency(np.full(1, 50.0), stops=False)
        ends = new_recency(np.full(1, 50.0), stops=True)
        touch(marks, begins, 0, 0, end - 1, 1, True)
        put(ends, marks, 0, 0, end, 1)
        for clock, lbn in enumerate(then, 2):
            touch(marks, begins, 0, 0, lbn, clock, True)
        return found(marks, ends, 0, 0, 9)

    def test_is_found(self):
        assert self.stopped(24) == 24
        assert self.stopped(27) == 27
        assert self.stopped(24, then=[8, 800]) == 24

    def test_is_not_once_a_request_was_there(self):
        assert self.stopped(24, then=[24]) == -1
        assert self.stopped(27, then=[28]) == -1

    def test_is_the_last_that_stopped_there(self):
        marks, begins = new_marks(PIECE, 1), new_recency(np.full(1, 50.0), stops=False)
        ends = new_recency(np.full(1, 50.0), stops=True)
        for clock in (1, 5):
            touch(marks, begins, 0, 0, 16, clock, True)
            put(ends, marks, 0, 0, 24, clock)
        at = nearest(ends, marks, 0, 0, 1)
        assert ends.entry[at].tolist() == [5, 24]


def test_the_newest_are_kept_where_there_is_no_room():
    marks, memory = new_marks(PIECE, 1), new_recency(np.zeros(2), stops=False)
    for clock in range(1, 400):
        touch(marks, memory, 0, clock % 2, PIECE * clock, clock, True)
        for used in range(max(1, clock - 7), clock + 1):
            assert found(marks, memory, 0, used % 2, used) == PIECE * used
    assert (memory.used <= memory.room).all()
    assert found(marks, memory, 0, 1, 1) > PIECE * 300


def test_entries_out_of_date_leave_room_for_others():
    marks, memory = new_marks(PIECE, 1), new_recency(np.full(1, 100.0), stops=False)
    for clock in range(1, 5000):
        touch(marks, memory, 0, 0, PIECE * (clock % 40), clock, True)
    for used in range(5000 - 40, 5000):
        assert found(marks, memory, 0, 0, used) == PIECE * (used % 40)
