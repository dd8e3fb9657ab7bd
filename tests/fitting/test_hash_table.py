"""Open addressing against Python's own dict."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fitting.hash_table import EMPTY, find, new_keys, places, rehashed, remove

KEYS = st.one_of(st.integers(0, 40), st.integers(0, 2**62))


@given(st.lists(st.tuples(KEYS, st.booleans()), max_size=120))
def test_holds_what_a_dict_holds(steps):
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


@given(st.sets(KEYS, max_size=60))
def test_a_larger_table_holds_the_same(held):
    keys = new_keys(128)
    values = np.zeros(len(keys), dtype=np.int64)
    for key in held:
        place = find(keys, key)
        keys[place], values[place] = key, key // 3
    larger = new_keys(512)
    moved = np.zeros(len(larger), dtype=np.int64)
    rehashed(keys, values, larger, moved)
    wanted = np.array(sorted(held), dtype=np.int64)
    assert list(moved[places(larger, wanted)]) == [key // 3 for key in sorted(held)]


def test_consecutive_keys_are_neighbours():
    keys = new_keys(1 << 12)
    at = [find(keys, key) for key in range(64, 72)]
    assert at == list(range(at[0], at[0] + 8))
