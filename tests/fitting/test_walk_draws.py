"""Stratified draws: a batch deals out exactly what was counted."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fitting.compiled import uncounted
from fitting.random_numbers import randomness
from fitting.walk_draws import draw, new_batches


@uncounted
def draws(batches, at, out, rng):
    for i in range(len(out)):
        out[i] = draw(batches, at, rng)


def drawn(length, number, seed=0):
    rng = np.random.default_rng(seed)
    batches, out = new_batches(np.array([float(length)]), rng), np.empty(number)
    draws(batches, 0, out, randomness(rng))
    return out


@given(st.integers(2, 300), st.integers(0, 99))
def test_every_part_once_a_batch(length, seed):
    for batch in drawn(length, 3 * length, seed).reshape(3, -1):
        assert sorted((batch * length).astype(int)) == list(range(length))


def test_batches_are_in_different_orders():
    first, second = (drawn(64, 128) * 64).astype(int).reshape(2, -1)
    assert (first != second).any()


def test_batches_of_one_are_independent():
    found = drawn(1, 4000)
    assert abs(found.mean() - 0.5) < 0.03
    assert np.unique((found[:64] * 64).astype(int)).size < 60
