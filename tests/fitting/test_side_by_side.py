"""Arrays that lie side by side, against themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitting.side_by_side import lines, side_by_side

DTYPES = st.sampled_from([np.int8, np.int32, np.int64, np.float64])


@given(st.lists(st.tuples(DTYPES, st.integers(0, 5)), min_size=1, max_size=9), st.integers(1, 7))
def test_holds_what_each_held(columns, rows):
    rng = np.random.default_rng(rows)
    given_ = [
        rng.integers(100, size=(rows, wide) if wide else rows).astype(dtype)
        for dtype, wide in columns
    ]
    found = side_by_side(*given_)
    for one, other in zip(found, given_, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
        assert one.ctypes.data % one.itemsize == 0
        one[...] = 0
    assert len({one.strides[0] for one in found}) == 1


def test_rows_are_whole_or_half_lines_of_a_cache():
    narrow = side_by_side(np.zeros(3), np.zeros(3, dtype=np.int8))
    wide = side_by_side(*(np.zeros(3) for _ in range(5)))
    assert {a.strides for a in narrow} == {(32,)}
    assert {a.strides for a in wide} == {(64,)}
    assert {int(a.ctypes.data) % 64 // 32 for a in narrow} == {0}


@pytest.mark.parametrize(("columns", "line"), [(4, 32), (5, 64), (8, 64), (9, 96)])
def test_half_a_line_is_added_only_where_a_row_is_longer(columns, line):
    numbers = side_by_side(*(np.zeros(3) for _ in range(columns)))
    tables = side_by_side(np.zeros((3, columns - 1)), np.zeros(3))
    assert {a.strides[0] for a in (*numbers, *tables)} == {line}


def test_columns_are_apart_by_the_width_of_those_before():
    """Eight bytes, four, and twice two, in the order of their widths."""
    short, wide, middle, last = side_by_side(
        np.zeros((3, 2), dtype=np.int16), np.zeros(3), np.zeros(3, dtype=np.int32), np.zeros(3, "b")
    )
    at = [a.ctypes.data - wide.ctypes.data for a in (wide, middle, short, last)]
    assert at == [0, 8, 12, 16]


def test_lines_begin_where_lines_of_a_cache_do():
    # Memory is given in steps of 16 bytes: of so many pieces some begin everywhere.
    held = [lines(rows, width) for rows in range(1, 9) for width in (1, 32, 48, 64, 65)]
    shapes = [(rows, width) for rows in range(1, 9) for width in (1, 32, 48, 64, 65)]
    assert [a.shape for a in held] == shapes
    assert not any(a.any() for a in held)
    assert {a.ctypes.data % 64 for a in held} == {0}
