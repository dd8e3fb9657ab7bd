"""Draws of a walk one by one, from random numbers that are known ahead."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_draws import ahead, begun, giving

from fitting.hash_table import hashed
from fitting.interarrival import (
    CONSTANT,
    EMPIRICAL,
    EXPONENTIAL,
    GAMMA,
    LOGNORMAL,
    NORMAL,
    POISSON,
)
from fitting.random_numbers import standard_exponential, standard_gamma, standard_normal, uniform
from fitting.walk_draws import (
    Batches,
    Features,
    _permuted,
    between,
    draw,
    draw_gap,
    new_batches,
    poisson,
)


def test_batches_are_of_whole_draws_and_one_at_least():
    rng = np.random.default_rng(0)
    found = new_batches(np.array([0.0, 0.4, 1.4, 2.0, 2.6, 4.0, 5.0, 8.0, 1000.0]), rng)
    assert found.length.tolist() == [1, 1, 1, 2, 3, 4, 5, 8, 1000]
    assert found.bits.tolist() == [0, 0, 0, 1, 2, 2, 3, 3, 10]
    assert found.made.tolist() == [0] * 9
    assert len(set(found.key.tolist())) == 9
    keys = new_batches(np.ones(200), rng).key
    assert 2**61 < keys.max() < 2**62
    assert keys.min() >= 0


def permuted(k, bits, key):
    """Add, multiply by odd numbers and fold the upper half down, three times, modulo 2^bits."""
    size, half = 2**bits, 2 ** math.ceil(bits / 2)
    x = (k + key) % size
    x = x * (key // 2**20 | 1) % size
    x ^= x // half
    x = x * 0x5851F42D4C957F2D % size
    x ^= x // half
    x = (x * 0x14057B7EF767814F + key // 2**40) % size
    return x ^ x // half


@given(st.integers(0, 20), st.integers(0, 2**62 - 1), st.data())
def test_an_order_is_one_of_whole_numbers_that_its_key_chooses(bits, key, data):
    k = data.draw(st.integers(0, 2**bits - 1))
    assert _permuted(k, np.int64(bits), np.int64(key)) == permuted(k, bits, key)


@given(st.integers(0, 7), st.integers(0, 2**62 - 1))
def test_an_order_has_every_number_once(bits, key):
    found = [int(_permuted(k, np.int64(bits), np.int64(key))) for k in range(2**bits)]
    assert sorted(found) == list(range(2**bits))


@pytest.mark.parametrize("length", [2, 3, 5, 8])
def test_a_batch_is_drawn_in_the_order_of_its_key(length):
    """Numbers beyond the batch are passed over; the next batch has another key."""
    key, r = 123_456_789_012_345_678, begun(2)
    bits = (length - 1).bit_length()
    batches = Batches(
        *(np.array(of) for of in ([0, 0], [9, length], [4, bits], [5, key])),
    )
    for _ in range(3):
        for k in range(length):
            place = permuted(k, bits, key)
            while place >= length:
                place = permuted(place, bits, key)
            (u,) = ahead(r, 1)
            assert draw(batches, 1, r) == (place + u) / length
            assert batches.made.tolist() == [0, k + 1]
        key = int(hashed(key + 1))
    assert batches.length.tolist() == [9, length]


def test_a_batch_of_one_is_a_draw_of_its_own():
    batches, r = Batches(*(np.array([of]) for of in (0, 1, 0, 7))), begun(4)
    expected = ahead(r, 5)
    assert [draw(batches, 0, r) for _ in range(5)] == expected
    assert (batches.made[0], batches.key[0]) == (0, 7)


QUANTILES = np.array([[9.0] * 4, [0.1, 0.5, 2.0, 5.0]])
GAPS = {
    CONSTANT: lambda r, shape: 1,
    EXPONENTIAL: lambda r, shape: standard_exponential(r),
    NORMAL: lambda r, shape: max(0, 1 + shape * standard_normal(r)),
    GAMMA: lambda r, shape: standard_gamma(r, shape) / shape,
    LOGNORMAL: lambda r, shape: math.exp(shape * standard_normal(r) - shape**2 / 2),
    EMPIRICAL: lambda r, shape: np.interp(uniform(r), [0.0, 0.5, 0.8, 1.0], QUANTILES[int(shape)]),
    POISSON: lambda r, shape: shape * poisson(0.02 / shape, r) / 0.02,
}


def gap(law, shape, r):
    nothing = np.zeros(0)
    return draw_gap(
        Features(
            *(nothing.astype(np.int64), nothing.astype(np.int64), nothing),
            np.array([CONSTANT, law], dtype=np.int8),
            *(np.array([9.0, 0.02]), np.array([9.0, shape])),
            *(QUANTILES, np.array([0.0, 0.5, 0.8, 1.0]), nothing),
        ),
        1,
        r,
    )


@pytest.mark.parametrize("law", GAPS)
@pytest.mark.parametrize("shape", [1.0, 1.7])
def test_a_gap_is_a_draw_of_its_law(law, shape):
    for seed in range(30):
        r, copy = begun(seed), begun(seed)
        assert gap(law, shape, r) == pytest.approx(0.02 * GAPS[law](copy, shape), rel=1e-12)
        assert r == copy


@pytest.mark.parametrize(
    ("u", "expected"), [(0.0, 0.1), (0.25, 0.3), (0.5, 0.5), (0.65, 1.25), (0.8, 2.0), (0.9, 3.5)]
)
def test_an_empirical_gap_by_hand(u, expected):
    assert gap(EMPIRICAL, 1.0, giving(u)) == pytest.approx(0.02 * expected, abs=1e-9)


def test_a_wide_normal_gap_is_none_where_it_would_be_negative():
    found = [gap(NORMAL, 5.0, begun(seed)) for seed in range(50)]
    assert min(found) == 0
    assert 10 < found.count(0.0) < 35


def test_a_share_falls_on_whole_steps():
    cumulated = np.array([7.0, 8.0, 8.0, 10.0, 12.0, 99.0])
    found = [int(between(cumulated, 1, 4, u)) for u in (0.0, 0.25, 0.49, 0.5, 0.75, 0.99)]
    assert found == [2, 2, 2, 3, 3, 3]
    assert between(cumulated, 2, 3, 0.99) == 2
    assert [int(between(cumulated, 0, 2, u)) for u in (0.0, 0.99)] == [0, 0]
