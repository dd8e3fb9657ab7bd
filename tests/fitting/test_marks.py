"""Touched pieces against Python's own dict, and what is forgotten where memory is short."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitting import marks as module
from fitting.compiled import uncounted
from fitting.marks import (
    begun_at,
    has_room,
    last_touch,
    new_marks,
    note_begin,
    roomier,
    row_of,
    touched_row,
    untouched,
)

PIECE, DEVICES = 8, 3


@uncounted
def touch(m, device, lbn, clock):
    piece = lbn >> m.bits
    row = touched_row(m, device, piece)
    m.clock[row, piece & 7] = clock
    note_begin(m, row, lbn)


@uncounted
def asked(m, device, lbn):
    piece = lbn >> m.bits
    return last_touch(m, device, lbn), begun_at(m, row_of(m, device, piece), piece)


LBNS = st.one_of(st.integers(0, 300), st.integers(0, 2**44))
TOUCHES = st.lists(st.tuples(st.integers(0, DEVICES - 1), LBNS), max_size=80)


@given(TOUCHES, st.booleans())
def test_holds_what_a_dict_holds(touches, grown):
    marks, held = new_marks(PIECE, DEVICES, 128), {}
    for clock, (device, lbn) in enumerate(touches, 1):
        assert has_room(marks, 1)
        touch(marks, device, lbn, clock)
        held[device, lbn // PIECE] = clock, lbn
    if grown:
        marks = roomier(marks, np.zeros(DEVICES, dtype=np.int64))
    for _, lbn in touches:
        for other in range(DEVICES):
            expected = held.get((other, lbn // PIECE), (0, -1))
            assert asked(marks, other, lbn) == expected
    assert marks.held[0] == len({(device, piece // 8) for device, piece in held})


@given(
    st.sets(st.integers(0, 60), max_size=10),
    st.integers(0, 20),
    st.integers(1, 300),
    st.integers(8, 40),
)
def test_blocks_ahead_of_the_first_touched_piece(touched, first, blocks, step):
    marks = new_marks(PIECE, 1, 128)
    for piece in touched:
        touch(marks, 0, piece * PIECE, 1)
    looked = range(0, blocks, step)
    met = [ahead for ahead in looked if (first + ahead) // PIECE in touched]
    assert untouched(marks, 0, first, blocks, step) == (met[0] if met else blocks)


def test_neighbours_share_a_line_of_a_cache():
    marks = new_marks(PIECE, 1)
    rows = {row_of(marks, 0, piece) for piece in range(64, 72)}
    assert len(rows) == 1
    assert marks.key.ctypes.data % 64 == 0
    assert marks.key.strides == marks.clock.strides[:1] == marks.begin.strides[:1] == (64,)


def test_the_latest_half_is_kept_where_memory_is_short(monkeypatch):
    marks = new_marks(PIECE, 2, 256)
    monkeypatch.setattr(module, "_MOST_ROWS", 256)
    clock = np.zeros(2, dtype=np.int64)
    # The second device has had a tenth of the requests: an age is in those of its own.
    for k in range(150):
        device = k % 10 == 9
        clock[int(device)] += 1
        touch(marks, int(device), 64 * k, clock[int(device)])
    fewer = roomier(marks, clock)
    assert len(fewer.key) == 256
    assert fewer.held[0] == pytest.approx(75, abs=2)
    kept = [last_touch(fewer, int(k % 10 == 9), 64 * k) > 0 for k in range(150)]
    first = [k % 10 != 9 and kept[k] for k in range(150)]
    assert not any(first[:60])
    assert all(kept[k] for k in range(90, 150))
    assert all(kept[9::10])
