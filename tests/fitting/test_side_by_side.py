"""Arrays that lie side by side, against themselves."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fitting.side_by_side import side_by_side

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
