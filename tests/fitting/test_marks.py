"""Touched pieces against Python's own dict, and what is forgotten where memory is short."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitting import marks as module
from fitting.compiled import uncounted
from fitting.marks import (
    MOST_CLOCK,
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


def key(device, piece, devices):
    """Number of eight pieces of a device, from 1 on."""
    return piece // 8 * devices + device + 1


def test_fields_of_a_row_do_not_overlap():
    marks = new_marks(PIECE, 1)
    assert marks.clock.shape == marks.begin.shape == (4096, 8)
    assert (marks.bits, marks.devices, marks.held.tolist()) == (3, 1, [0, 2048])
    for value, of in enumerate((marks.key, marks.clock, marks.begin), 1):
        of[...] = value
    assert [np.unique(of).tolist() for of in (marks.key, marks.clock, marks.begin)] == [
        [1],
        [2],
        [3],
    ]


def test_clocks_and_places_are_told_apart_as_far_as_their_fields_go():
    assert np.iinfo(np.uint32).max == MOST_CLOCK
    marks, first = new_marks(2**17, 1), 5 * 2**17
    row = touched_row(marks, 0, 5)
    found = []
    for inside in (0, 1, 65533, 65534, 65535, 2**17 - 1):
        note_begin(marks, row, first + inside)
        found.append(begun_at(marks, row, 5) - first)
    assert found == [0, 1, 65533, 65534, 65534, 65534]
    assert begun_at(marks, row, 4) == -1


@pytest.mark.parametrize("devices", [1, 3])
def test_rows_are_where_the_hash_of_their_pair_says(devices):
    for device, piece in [(0, 0), (0, 7), (devices - 1, 8), (0, 12_345), (devices - 1, 2**40)]:
        marks, number = new_marks(PIECE, devices, 256), key(device, piece, devices)
        pair = number // 2 * 0x9E3779B97F4A7C15 % 2**64 // 2**30
        expected = (2 * pair + number % 2) % 256
        assert row_of(marks, device, piece) == touched_row(marks, device, piece) == expected
        assert (marks.key[expected], np.count_nonzero(marks.key)) == (number, 1)
        assert marks.held[0] == 1


def test_a_table_is_full_when_all_rows_are_in_use():
    marks = new_marks(PIECE, 1, 16)
    rows = [touched_row(marks, 0, 8 * k) for k in range(16)]
    assert sorted(rows) == list(range(16))
    assert [row_of(marks, 0, 8 * k) for k in range(16)] == rows
    assert marks.held.tolist() == [16, 8]


def test_where_a_row_is_taken_the_next_one_is():
    """Of the keys of the table, the first that belongs where another is has the next row."""
    marks, homes = new_marks(PIECE, 1, 256), []
    for piece in np.random.default_rng(1).integers(2**40, size=120).tolist():
        homes.append(row_of(new_marks(PIECE, 1, 256), 0, piece))
        if homes[-1] in homes[:-1] and homes[-1] + 1 not in homes[:-1]:
            break
        touched_row(marks, 0, piece)
    assert row_of(marks, 0, piece) == homes[-1] + 1


def test_there_is_room_for_the_rows_of_a_request_and_one_at_either_end():
    """Of eight rows five are in use: a request may take three, of 64 blocks each."""
    marks = new_marks(PIECE, 1, 16)
    for k in range(5):
        touched_row(marks, 0, 8 * k)
    assert has_room(marks, 127)
    assert not has_room(marks, 128)
    touched_row(marks, 0, 40)
    assert has_room(marks, 63)
    assert not has_room(marks, 64)
    touched_row(marks, 0, 48)
    assert not has_room(marks, 1)


@pytest.mark.parametrize("touched", [0, 3, 7, 8, 11, 17, 30])
@pytest.mark.parametrize("first", [0, 8, 64, 69, 100])
def test_ahead_of_a_touched_piece_are_the_blocks_before_it(first, touched):
    """Looked at by pieces, in rows that have none touched and in the one that has."""
    marks = new_marks(PIECE, 1, 64)
    touch(marks, 0, touched * PIECE, 1)
    met = [k for k in range(0, 160, PIECE) if (first + k) // PIECE == touched]
    assert untouched(marks, 0, first, 160, PIECE) == (met[0] if met else 160)
    assert untouched(marks, 0, touched * PIECE, 1, PIECE) == 0
    assert untouched(marks, 0, touched * PIECE, 0, PIECE) == 0


def test_of_several_devices_what_is_older_in_requests_of_its_own_is_forgotten(monkeypatch):
    """Ages 0 to 9 of the first device and 0 to 4 of the third: the median is 3."""
    marks = new_marks(PIECE, 3, 32)
    clock = np.array([100, 0, 1000])
    for age in range(10):
        touch(marks, 0, 64 * age, 100 - age)
        if age < 5:
            touch(marks, 2, 64 * age + 9, 1000 - age)
    monkeypatch.setattr(module, "_MOST_ROWS", 32)
    fewer = roomier(marks, clock)
    assert fewer.held.tolist() == [6, 16]
    for age in range(10):
        kept = age < 3
        assert asked(fewer, 0, 64 * age) == ((100 - age, 64 * age) if kept else (0, -1))
        assert asked(fewer, 2, 64 * age + 9) == ((1000 - age, 64 * age + 9) if kept else (0, -1))
    for of in (fewer.key, fewer.clock, fewer.begin):
        assert np.count_nonzero(of) == 6


def test_a_larger_table_has_twice_the_rows_until_it_has_the_most(monkeypatch):
    monkeypatch.setattr(module, "_MOST_ROWS", 64)
    marks = new_marks(16, 3, 32)
    touch(marks, 2, 1000, 7)
    larger = roomier(marks, np.array([9, 9, 9]))
    assert (larger.bits, larger.devices, larger.held.tolist()) == (4, 3, [1, 32])
    assert asked(larger, 2, 1000) == (7, 1000)
    assert len(roomier(larger, np.array([9, 9, 9])).key) == 64
