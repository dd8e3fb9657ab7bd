"""Tables for compiled loops against Python's own dict, whole numbers and arrays."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, strategies as st
from requests_reference import FIBONACCI, WHOLE, Memory, Places, hashed

from fitting.compiled import hashing
from fitting.compiled.loops import aligned_rows, interleave, log2_bin
from fitting.storage import addresses as ad

KEYS = st.one_of(st.integers(0, 40), st.integers(0, 2**62))


@given(st.integers(0, 10**6), st.integers(10, 60))
def test_a_table_holds_what_a_dict_holds(seed, most):
    rng, table, wanted = np.random.default_rng(seed), hashing.new_table(64), {}
    keys, values, used = table
    some = np.r_[rng.integers(60, size=30), rng.integers(2**62, size=40)].tolist()
    for number, key in enumerate(rng.choice(some, size=120).tolist()):
        slot = hashing.find(keys, key)
        assert (keys[slot] != hashing.EMPTY) == (key in wanted)
        if key in wanted:
            hashing.remove(keys, values, slot)
            del wanted[key]
        elif len(wanted) < most:
            keys[slot], values[slot], wanted[key] = key, number, number
        if number % 8 == 0:
            assert [values[hashing.find(keys, known)] for known in wanted] == list(wanted.values())
    assert np.count_nonzero(keys != hashing.EMPTY) == len(wanted)
    used[0] = len(wanted)
    for more in (table, hashing.resize(table, 100), hashing.ensure_room(table, 40)):
        held = {key: more.values[hashing.find(more.keys, key)] for key in wanted}
        assert held == wanted
        items = zip(*(of.tolist() for of in hashing.sorted_items(more)), strict=True)
        assert list(items) == sorted(wanted.items())
        assert more.used.tolist() == used.tolist()


def test_tables_are_powers_of_two_at_most_half_full():
    assert [len(hashing.new_table(k).keys) for k in (1, 16, 17, 64, 65)] == [16, 16, 32, 64, 128]
    for more, room in ((8, 16), (9, 32), (33, 128)):
        assert len(hashing.ensure_room(hashing.new_table(16), more).keys) == room
    # Consecutive keys are neighbours.
    keys = hashing.new_table(1 << 12).keys
    at = [hashing.find(keys, key) for key in range(64, 72)]
    assert at == list(range(at[0], at[0] + 8))
    assert len({hashing.find(keys, key) // 8 for key in range(0, 2**16, 8)}) == 512


@given(st.integers(0, 2**62))
def test_keys_are_spread_by_multiplication(key):
    assert hashing.scramble(key) == hashed(key)
    assert hashing.spread_bits(key) == (key * FIBONACCI % WHOLE) >> 30


@given(st.dictionaries(KEYS, st.integers(0, 2**31 - 1), min_size=1, max_size=60))
def test_a_table_has_what_it_was_made_of(held):
    table = hashing.build_table(*(np.array(list(of)) for of in (held.keys(), held.values())))
    assert (len(table.keys) == 0) == (max(held) < 2**16)
    assert [hashing.value_of(table, key) for key in held] == list(held.values())


def test_a_key_that_a_table_has_not_stays_inside_it():
    table = hashing.build_table(np.array([3, 5]), np.array([1, 2]))
    assert [hashing.value_of(table, key) for key in (2**40, -(2**40), 6)] == [2, 0, 2]
    many = hashing.build_table(np.arange(0, 2**40, 2**33), np.arange(128))
    assert [hashing.value_of(many, k * 2**33) for k in range(128)] == list(range(128))
    for largest, direct in ((2**16 - 1, True), (2**16, False)):
        assert (len(hashing.build_table(np.array([largest]), np.array([1])).keys) == 0) == direct


@given(st.lists(st.lists(KEYS, max_size=30), max_size=8))
def test_codes_follow_the_order_in_which_keys_appear(parts):
    bound = max([key for part in parts for key in part], default=0) + 1
    codes, wanted = hashing.new_codes(bound), {}
    for part in parts:
        codes = hashing.ensure_room(codes, len(part))
        expected = [wanted.setdefault(key, len(wanted)) for key in part]
        assert [hashing.code_of(codes, key) for key in part] == expected
        assert codes.used.tolist() == [len(wanted)]
    keys, of = hashing.sorted_items(codes)
    assert list(zip(keys.tolist(), (of - 1).tolist(), strict=True)) == sorted(wanted.items())


def test_a_table_of_codes_grows_and_rows_behind_those_used_are_noughts():
    codes, keys = hashing.new_codes(2**62), np.random.default_rng(0).integers(2**62, size=6000)
    for start in range(0, 6000, 1500):
        codes = hashing.ensure_room(codes, 1500)
        assert len(codes.keys) >= 2 * (start + 1500)
        for key in keys[start : start + 1500].tolist():
            hashing.code_of(codes, key)
    assert (hashing.sorted_items(codes)[1] - 1).tolist() == np.argsort(keys).tolist()
    for bound, direct in ((2**22, True), (2**22 + 1, False)):
        assert (len(hashing.new_codes(bound).keys) == 0) == direct
    rows = np.arange(6.0).reshape(3, 2)
    assert hashing.grow_rows(rows, 2, 1) is rows
    assert hashing.grow_rows(rows, 2, 3).tolist() == [*rows[:2].tolist(), *[[0.0, 0.0]] * 8]


@pytest.mark.parametrize("bits", [0, 1, 2])
@given(number=st.one_of(st.integers(1, 5000), st.integers(1, 2**53 - 1)))
def test_an_octave_and_its_part_are_the_first_bits_of_a_number(number, bits):
    octave = number.bit_length() - 1
    part = (number - 2**octave) * 2**bits // 2**octave
    assert log2_bin(number, bits) == (octave << bits) + part


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
        arrays = interleave(*held)
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

    def test_lines_begin_where_lines_of_a_cache_do(self):
        # Memory is given in steps of 16 bytes: of so many pieces some begin everywhere.
        shapes = [(rows, width) for rows in range(1, 9) for width in (1, 32, 48, 64, 65)]
        held = [aligned_rows(rows, width) for rows, width in shapes]
        assert [a.shape for a in held] == shapes
        assert not any(a.any() for a in held)
        assert {a.ctypes.data % 64 for a in held} == {0}


@pytest.mark.parametrize("devices", [1, 3])
def test_rows_are_where_the_hash_of_their_pair_says(devices):
    """Eight pieces have a row, and two rows that follow one another two lines of a cache."""
    for device, piece in [(0, 0), (0, 7), (devices - 1, 8), (0, 12_345), (devices - 1, 2**40)]:
        marks, number = ad.new_last_access(8, devices, 256), piece // 8 * devices + device + 1
        pair = number // 2 * FIBONACCI % WHOLE // 2**30
        expected = (2 * pair + number % 2) % 256
        assert ad.row_of(marks, device, piece) == ad.add_row(marks, device, piece) == expected
        assert (marks.key[expected], np.count_nonzero(marks.key)) == (number, 1)
        assert marks.held.tolist() == [1, 128]
        assert marks.key.ctypes.data % 64 == 0
        assert marks.key.strides == marks.clock.strides[:1] == marks.begin.strides[:1] == (64,)


def test_fields_of_a_row_do_not_overlap():
    marks = ad.new_last_access(8, 1)
    assert marks.clock.shape == marks.begin.shape == (4096, 8)
    assert (marks.bits, marks.devices, marks.held.tolist()) == (3, 1, [0, 2048])
    fields = marks.key, marks.clock, marks.begin
    for value, of in enumerate(fields, 1):
        of[...] = value
    assert [np.unique(of).tolist() for of in fields] == [[1], [2], [3]]
    assert np.iinfo(marks.clock.dtype).max == ad.MOST_CLOCK


def test_where_rows_are_taken_the_next_one_is_until_all_are_in_use():
    marks = ad.new_last_access(8, 1, 16)
    rows = [ad.add_row(marks, 0, 8 * k) for k in range(16)]
    assert sorted(rows) == list(range(16))
    assert [ad.row_of(marks, 0, 8 * k) for k in range(16)] == rows
    for k, row in enumerate(rows):
        at = ad.row_of(ad.new_last_access(8, 1, 16), 0, 8 * k)
        assert row == next(r % 16 for r in range(at, at + 16) if r % 16 not in rows[:k])


def test_places_in_a_piece_are_told_apart_as_far_as_their_field_goes():
    marks, first = ad.new_last_access(2**17, 1), 5 * 2**17
    row, found = ad.add_row(marks, 0, 5), []
    for inside in (0, 1, 65533, 65534, 65535, 2**17 - 1):
        ad.note_begin(marks, row, first + inside)
        found.append(ad.begun_at(marks, row, 5) - first)
    assert found == [0, 1, 65533, 65534, 65534, 65534]
    assert ad.begun_at(marks, row, 4) == -1


def test_lists_share_what_room_there_is():
    assert ad.new_lru_lists(np.full(2, 2.0**23), stops=False).room.tolist() == [2**22 + 16] * 2
    found = ad.new_lru_lists(np.array([3.7, 0.0, 100.0]), stops=True)
    room, limit = [19, 16, 116], [19, 16, 64]
    assert (found.stops, found.room.tolist(), found.limit.tolist()) == (True, room, limit)
    assert (found.start.tolist(), len(found.entry)) == ([0, 19, 35], 151)


@given(st.integers(0, 99), st.booleans(), st.sampled_from([0, 60, 400]), st.sampled_from([1, 8]))
def test_lists_are_those_of_the_reference(seed, stops, wanted, piece):
    """Of two states of the second device, places are used and asked for by their clocks."""
    rng = np.random.default_rng(seed)
    marks, memory = ad.new_last_access(piece, 2), Memory(piece, 2)
    space = int(rng.choice([50, 500, 9000]))
    lists = ad.new_lru_lists(np.full(2, float(wanted)), stops=stops)
    holds = partial(memory.stopped_there if stops else memory.began_there, 1)
    plain = [Places(wanted + 16, holds) for _ in range(2)]
    for clock in range(1, 250):
        lbn, v, asked = int(rng.integers(space)), clock % 2, int(rng.integers(260))
        row = ad.add_row(marks, 1, lbn // piece)
        marks.clock[row, lbn // piece % 8] = clock
        ad.note_begin(marks, row, lbn)
        memory.rows.setdefault((1, lbn // piece // 8), {})[lbn // piece] = clock, lbn
        for at in {lbn, lbn + piece - lbn % piece} if stops else {lbn}:
            ad.append_entry(lists, marks, 1, v, at, clock)
            plain[v].put(clock, at)
        if clock % 3 == 0:
            found, expected = ad.nearest_entry(lists, marks, 1, v, asked), plain[v].nearest(asked)
            assert found - lists.start[v] == expected if expected is not None else found == -1
            assert found < 0 or lists.entry[found, ad.LBN] == plain[v].entries[expected][1]
