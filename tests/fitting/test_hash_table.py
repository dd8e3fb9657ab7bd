"""Tables for compiled loops against Python's own dict, whole numbers and arrays."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fitting.compiled import hashing
from fitting.compiled.loops import log2_bin

WHOLE, FIBONACCI = 2**64, 0x9E3779B97F4A7C15
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


def hashed(key):
    spread = key * FIBONACCI % WHOLE
    spread ^= spread >> 29
    return (spread * FIBONACCI % WHOLE) >> 1


@given(st.integers(0, 2**62))
def test_keys_are_spread_by_multiplication(key):
    assert hashing.scramble(key) == hashed(key)
    home = ((key >> 3) * FIBONACCI % WHOLE) >> 30 << 3 | key & 7
    assert hashing.home_slot(key, 2**20 - 1) == home % 2**20


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
