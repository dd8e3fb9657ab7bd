"""Tables for compiled loops against Python's own dict, whole numbers and arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from requests_reference import FIBONACCI, WHOLE, hashed

from fitting import hash_table
from fitting.compiled import compiled
from fitting.hash_table import EMPTY, doubled, find, mixed, new_keys, places, remove, roomy
from fitting.lookups import Numbers, longer, looked_up, lookup_of, numbered
from fitting.octaves import octave_part
from fitting.side_by_side import lines, side_by_side

KEYS = st.one_of(st.integers(0, 40), st.integers(0, 2**62))


@given(st.lists(st.tuples(KEYS, st.booleans()), max_size=120))
def test_a_table_holds_what_a_dict_holds(steps):
    keys = new_keys(256)
    values = np.zeros(len(keys), dtype=np.int64)
    wanted = {}
    for number, (key, put) in enumerate(steps):
        place = find(keys, key)
        assert (keys[place] != EMPTY) == (key in wanted)
        if put:
            keys[place], values[place], wanted[key] = key, number, number
        elif key in wanted:
            remove(keys, values, place)
            del wanted[key]
        for known, value in wanted.items():
            assert values[find(keys, known)] == value
    assert np.count_nonzero(keys != EMPTY) == len(wanted)
    known = np.array(sorted(wanted), dtype=np.int64)
    for more, moved in (doubled(keys, values), roomy(keys, values)):
        assert moved[places(more, known)].tolist() == [wanted[key] for key in known.tolist()]
        assert 4 * len(wanted) <= len(more) == len(moved)


def test_tables_are_powers_of_two_at_most_a_quarter_full():
    assert [len(new_keys(k)) for k in (1, 16, 17, 64, 65)] == [16, 16, 32, 64, 128]
    for held, room in ((4, 16), (5, 32), (9, 64)):
        keys = new_keys(16)
        keys[:held] = range(held)
        assert len(roomy(keys, np.zeros(16, dtype=np.int64))[0]) == room


@given(st.integers(0, 2**62))
def test_keys_are_spread_by_multiplication(key):
    assert hash_table.hashed(key) == hashed(key)
    assert mixed(key) == (key * FIBONACCI % WHOLE) >> 30


def test_consecutive_keys_are_neighbours():
    keys = new_keys(1 << 12)
    at = [find(keys, key) for key in range(64, 72)]
    assert at == list(range(at[0], at[0] + 8))


@compiled
def look_up(table, keys, found):
    for i in range(len(keys)):
        found[i] = looked_up(table, keys[i])


@compiled
def number_all(table, keys, found):
    for i in range(len(keys)):
        found[i] = numbered(table, keys[i])


def found(work, table, keys):
    out = np.empty(len(keys), dtype=np.int64)
    work(table, np.array(keys, dtype=np.int64), out)
    return out.tolist()


@given(st.dictionaries(KEYS, st.integers(0, 2**31 - 1), min_size=1, max_size=60))
def test_a_lookup_has_what_a_dict_has(held):
    lookup = lookup_of(*(np.array(list(of)) for of in (held.keys(), held.values())))
    assert (len(lookup.keys) == 0) == (max(held) < 2**16)
    assert found(look_up, lookup, list(held)) == list(held.values())


def test_a_key_that_a_lookup_has_not_stays_inside_it():
    lookup = lookup_of(np.array([3, 5]), np.array([1, 2]))
    assert found(look_up, lookup, [2**40, -(2**40), 6]) == [2, 0, 2]
    for largest, direct in ((2**16 - 1, True), (2**16, False)):
        assert (len(lookup_of(np.array([largest]), np.array([1])).keys) == 0) == direct


@given(st.lists(st.lists(KEYS, max_size=30), max_size=8))
def test_numbers_follow_the_order_in_which_keys_appear(parts):
    bound = max([key for part in parts for key in part], default=0) + 1
    numbers, wanted = Numbers(bound), {}
    for part in parts:
        numbers.make_room(len(part))
        expected = [wanted.setdefault(key, len(wanted)) for key in part]
        assert found(number_all, numbers.numbering, part) == expected
        assert len(numbers) == len(wanted)
    keys, of = numbers.in_order()
    assert list(zip(keys.tolist(), of.tolist(), strict=True)) == sorted(wanted.items())


def test_a_table_of_numbers_grows():
    numbers, keys = Numbers(2**62), np.random.default_rng(0).integers(2**62, size=6000)
    for start in range(0, 6000, 1500):
        numbers.make_room(1500)
        assert len(numbers.numbering.keys) >= 2 * (start + 1500)
        found(number_all, numbers.numbering, keys[start : start + 1500])
    assert numbers.in_order()[1].tolist() == np.argsort(keys).tolist()


def test_rows_behind_those_used_are_noughts():
    rows = np.arange(6.0).reshape(3, 2)
    assert longer(rows, 2, 1) is rows
    more = longer(rows, 2, 3)
    assert more.shape == (10, 2)
    assert more[:2].tolist() == rows[:2].tolist()
    assert not more[2:].any()


@pytest.mark.parametrize("bits", [0, 1, 2])
@given(number=st.one_of(st.integers(1, 5000), st.integers(1, 2**53 - 1)))
def test_an_octave_and_its_part_are_the_first_bits_of_a_number(number, bits):
    octave = number.bit_length() - 1
    part = (number - 2**octave) * 2**bits // 2**octave
    assert octave_part(number, bits) == (octave << bits) + part


DTYPES = st.sampled_from([np.int8, np.int32, np.int64, np.float64])


class TestSideBySide:
    @given(
        st.lists(st.tuples(DTYPES, st.integers(0, 5)), min_size=1, max_size=9), st.integers(1, 7)
    )
    def test_arrays_hold_what_each_held(self, columns, rows):
        rng = np.random.default_rng(rows)
        held = [
            rng.integers(100, size=(rows, wide) if wide else rows).astype(dtype)
            for dtype, wide in columns
        ]
        arrays = side_by_side(*held)
        for one, other in zip(arrays, held, strict=True):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)
            assert one.ctypes.data % one.itemsize == 0
            one[...] = 0
        width = sum(dtype().itemsize * max(wide, 1) for dtype, wide in columns)
        # Rows are whole or half lines of a cache.
        assert {one.strides[0] for one in arrays} == {-(-width // 32) * 32}
        first = min(one.ctypes.data for one in arrays)
        assert first % 64 == 0
        assert max(one.ctypes.data + one[0].nbytes for one in arrays) <= first + width

    def test_columns_are_in_the_order_of_their_widths(self):
        """Eight bytes, four, and twice two."""
        short, wide, middle, last = side_by_side(
            *(np.zeros((3, 2), dtype=np.int16), np.zeros(3), np.zeros(3, dtype=np.int32)),
            np.zeros(3, "b"),
        )
        at = [a.ctypes.data - wide.ctypes.data for a in (wide, middle, short, last)]
        assert at == [0, 8, 12, 16]

    def test_lines_begin_where_lines_of_a_cache_do(self):
        # Memory is given in steps of 16 bytes: of so many pieces some begin everywhere.
        shapes = [(rows, width) for rows in range(1, 9) for width in (1, 32, 48, 64, 65)]
        held = [lines(rows, width) for rows, width in shapes]
        assert [a.shape for a in held] == shapes
        assert not any(a.any() for a in held)
        assert {a.ctypes.data % 64 for a in held} == {0}
