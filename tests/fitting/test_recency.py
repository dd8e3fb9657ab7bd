"""Addresses by age, against a list that is searched from end to end."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fitting.compiled import uncounted
from fitting.recency import forget, knows, last_use, nearest, new_recency, use


@uncounted
def step(m, action, state, lbn, clock):
    if action:
        use(m, 0, state, lbn, clock, True)
    else:
        forget(m, 0, lbn)


@uncounted
def answers(m, state, lbn, clock):
    return knows(m, 0, lbn), last_use(m, 0, lbn), nearest(m, state, clock)


STEPS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 25), st.integers(0, 400)),
    min_size=1,
    max_size=300,
)


@given(STEPS)
def test_finds_the_nearest_use(steps):
    memory = new_recency(np.full(3, 500.0), 8)
    wanted = {}
    for clock, (put, state, piece, asked) in enumerate(steps, 1):
        step(memory, put, state, piece * 8, clock)
        if put:
            wanted[piece] = (clock, state)
        else:
            wanted.pop(piece, None)
        known, last, found = answers(memory, state, piece * 8, asked)
        assert known == (piece in wanted)
        assert last == (wanted[piece][0] if piece in wanted else -1)
        here = {c: p for p, (c, s) in wanted.items() if s == state}
        if not here:
            assert found == -1
            continue
        best = min(abs(c - asked) for c in here)
        assert found // 8 in {p for c, p in here.items() if abs(c - asked) == best}


def test_forgets_the_oldest_where_there_is_no_room():
    memory = new_recency(np.zeros(1), 1)
    for clock in range(1, 200):
        step(memory, True, 0, clock, clock)
    assert answers(memory, 0, 1, 1)[0] == 0
    assert answers(memory, 0, 199, 199) == (1, 199, 199)
    assert memory.live[0] <= memory.room[0]
