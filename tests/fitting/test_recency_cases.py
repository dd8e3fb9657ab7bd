"""Addresses at which requests begin, and those they only pass; what is left when room is short."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fitting.compiled import uncounted
from fitting.recency import forget, knows, last_use, nearest, new_recency, use

PIECE = 8


@uncounted
def put(m, state, lbn, clock, begins):
    return use(m, 0, state, lbn, clock, begins)


@uncounted
def take_away(m, lbn):
    forget(m, 0, lbn)


@uncounted
def found(m, state, lbn, clock):
    return knows(m, 0, lbn), last_use(m, 0, lbn), nearest(m, state, clock)


USES = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(0, 9),
        st.integers(0, PIECE - 1),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=80,
)


@given(USES, st.integers(0, 90))
def test_requests_come_back_to_where_requests_began(uses, asked):
    memory, held = new_recency(np.full(2, 300.0), PIECE), {}
    for clock, (state, piece, inside, begins, gone) in enumerate(uses, 1):
        lbn = piece * PIECE + inside
        if gone:
            take_away(memory, lbn)
            held.pop(piece, None)
            continue
        assert put(memory, state, lbn, clock, begins) == (piece in held)
        if not begins and held.get(piece, (0, 0, 0, False))[3]:
            lbn, begins = held[piece][2], True
        held[piece] = (clock, state, lbn, begins)
    for state in (0, 1):
        starts = [
            (abs(c - asked), c, at) for c, s, at, begun in held.values() if s == state and begun
        ]
        assert found(memory, state, 0, asked)[2] == (min(starts)[2] if starts else -1)


def test_the_newest_are_kept_where_room_is_short():
    memory, held = new_recency(np.zeros(2), PIECE), []
    for clock in range(1, 400):
        state, lbn = clock % 2, PIECE * clock
        put(memory, state, lbn, clock, True)
        held.append((clock, state, lbn))
        if clock % 5 == 0:
            _, _, gone = held.pop(-3)
            take_away(memory, gone)
            assert found(memory, state, gone, clock)[:2] == (False, -1)
        for used, of, at in held[-12:]:
            assert found(memory, of, at, used) == (True, used, at)
    assert (memory.used <= memory.room).all()
    assert (memory.live <= memory.room).all()
