"""Lookups and numbers of keys against Python's own dict, in arrays and in tables."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fitting.compiled import compiled
from fitting.lookups import Numbers, looked_up, lookup_of, numbered

KEYS = st.one_of(st.integers(0, 40), st.integers(0, 2**62))


@compiled
def _look_up(lookup, keys, found):
    for i in range(len(keys)):
        found[i] = looked_up(lookup, keys[i])


@compiled
def _number(numbering, keys, found):
    for i in range(len(keys)):
        found[i] = numbered(numbering, keys[i])


def _found(work, table, keys):
    found = np.empty(len(keys), dtype=np.int64)
    work(table, keys, found)
    return found.tolist()


@given(st.dictionaries(KEYS, st.integers(0, 2**31 - 1), min_size=1, max_size=60))
def test_a_lookup_has_what_a_dict_has(held):
    keys = np.array(list(held), dtype=np.int64)
    lookup = lookup_of(keys, np.array(list(held.values()), dtype=np.int64))
    assert (len(lookup.keys) == 0) == (max(held) < 2**16)
    assert _found(_look_up, lookup, keys) == list(held.values())


def test_a_key_that_a_lookup_has_not_stays_inside_it():
    lookup = lookup_of(np.array([3, 5]), np.array([1, 2]))
    assert _found(_look_up, lookup, np.array([2**40, -(2**40)])) == [2, 0]


@given(st.lists(st.lists(KEYS, max_size=30), max_size=8))
def test_numbers_follow_the_order_in_which_keys_appear(parts):
    bound = max([key for part in parts for key in part], default=0) + 1
    numbers, wanted = Numbers(bound), {}
    for part in parts:
        numbers.make_room(len(part))
        keys = np.array(part, dtype=np.int64)
        assert _found(_number, numbers.numbering, keys) == [
            wanted.setdefault(key, len(wanted)) for key in part
        ]
        assert len(numbers) == len(wanted)
    keys, found = numbers.in_order()
    assert dict(zip(keys.tolist(), found.tolist(), strict=True)) == wanted
    assert keys.tolist() == sorted(wanted)


def test_a_table_of_numbers_grows():
    numbers, keys = Numbers(2**62), np.arange(0, 2**62, 2**48)
    for part in np.split(keys, 8):
        numbers.make_room(len(part))
        _found(_number, numbers.numbering, part)
    assert numbers.in_order()[1].tolist() == list(range(len(keys)))
