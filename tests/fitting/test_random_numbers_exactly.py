"""Random numbers one by one, against the published methods in Python's own numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from known_draws import ahead, begun, bits_ahead, giving, giving_bits
from scipy import special

from fitting import random_numbers as module
from fitting.random_numbers import (
    _ziggurat,
    random_bits,
    randomness,
    standard_exponential,
    standard_gamma,
    standard_normal,
    uniform,
)
from fitting.walk_draws import poisson

# Tables, the edge and the area of a layer as Marsaglia and Tsang give them, the density and back.
LAWS = {
    "exponential": (
        (module._EXPONENTIAL_X, module._EXPONENTIAL_Y),
        (7.69711747013104972, 0.0039496598225815571993),
        lambda x: math.exp(-x),
        lambda y: -math.log(y),
    ),
    "normal": (
        (module._NORMAL_X, module._NORMAL_Y),
        (3.6541528853610088, 0.00492867323399),
        lambda x: math.exp(-x * x / 2),
        lambda y: math.sqrt(-2 * math.log(y)),
    ),
}


@pytest.mark.parametrize("law", LAWS)
class TestLayers:
    def test_have_the_published_area(self, law):
        tables, (edge, area), density, at = LAWS[law]
        for x, y in (tables, _ziggurat(edge, area, density, at)):
            assert len(x) == len(y) == 257
            assert np.diff(y)[1:] * x[1:-1] == pytest.approx(np.full(255, area), rel=1e-7)
            assert y[1:] == pytest.approx([density(width) for width in x[1:]], rel=1e-12)
            assert (y[0], x[1], x[-1], y[-1]) == (0, edge, 0, 1)
            assert x[0] * density(edge) == pytest.approx(area, rel=1e-9)

    def test_hold_the_tail_in_the_lowest(self, law):
        _, (edge, area), density, _ = LAWS[law]
        tail = {
            "exponential": math.exp(-edge),
            "normal": math.sqrt(math.pi / 2) * special.erfc(edge / math.sqrt(2)),
        }
        assert edge * density(edge) + tail[law] == pytest.approx(area, rel=1e-9)


def crafted():
    """Sequences that begin in some layers: at 0, inside, in the wedge, and at the end of it.

    Then some that begin in the tail, and some anywhere.
    """
    for layer in (0, 1, 2, 100, 254, 255):
        for part in (0, 2**52, 2**53 - 2**44, 2**53 - 2**48, 2**53 - 1):
            for sign in (0, 1):
                yield giving_bits(part << 11 | sign << 8 | layer)
    for k in range(400):
        yield giving_bits(int((0.95 + k / 8000) * 2**53) << 11)
    for seed in range(300):
        yield begun(seed)


def exponential(r):
    """Law of mean 1 by the ziggurat; its tail is the law again."""
    (x, y), beyond = LAWS["exponential"][0], 0.0
    while True:
        bits = int(random_bits(r))
        layer, at = bits % 256, (bits >> 11) / 2**53 * x[bits % 256]
        if at < x[layer + 1]:
            return beyond + at
        if layer == 0:
            beyond += x[1]
        elif y[layer] + uniform(r) * (y[layer + 1] - y[layer]) < np.exp(-at):
            return beyond + at


def normal(r):
    """Normal law by the ziggurat; its tail is Marsaglia's of 1964."""
    x, y = LAWS["normal"][0]
    while True:
        bits = int(random_bits(r))
        layer, at = bits % 256, (bits >> 11) / 2**53 * x[bits % 256]
        sign = -1 if bits >> 8 & 1 else 1
        if at < x[layer + 1]:
            return sign * at
        if layer == 0:
            further, other = exponential(r) / x[1], exponential(r)
            if 2 * other > further**2:
                return sign * (x[1] + further)
        elif y[layer] + uniform(r) * (y[layer + 1] - y[layer]) < np.exp(-at * at / 2):
            return sign * at


def gamma(r, shape):
    """Gamma law of Marsaglia and Tsang, by the acceptance that their squeeze only abbreviates."""
    more = shape if shape >= 1 else shape + 1
    d = more - 1 / 3
    while True:
        x = normal(r)
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(uniform(r)) < x * x / 2 + d - d * v + d * math.log(v):
            return d * v * (1 if shape >= 1 else math.exp(-exponential(r) / shape))


@pytest.mark.parametrize(
    ("draw", "reference"), [(standard_exponential, exponential), (standard_normal, normal)]
)
def test_the_ziggurat_draws_what_its_authors_say(draw, reference):
    for r in crafted():
        copy = r.copy()
        assert draw(r) == pytest.approx(reference(copy), rel=1e-14)
        assert r == copy


@pytest.mark.parametrize("shape", [0.05, 0.4, 1.0, 1.7, 60.0])
def test_the_gamma_law_is_drawn_as_its_authors_say(shape):
    for seed in range(1000 if shape < 0.1 else 200):
        r = begun(seed)
        copy = r.copy()
        assert standard_gamma(r, shape) == pytest.approx(gamma(copy, shape), rel=1e-9)
        assert r == copy


def test_a_uniform_draw_is_the_upper_bits():
    for r in (*crafted(), giving(0.0), giving(0.75)):
        expected, (bits,) = ahead(r, 1), bits_ahead(r, 1)
        assert random_bits(r.copy()) == bits
        assert [uniform(r)] == expected
    assert uniform(giving(0.75)) == 0.75
    assert uniform(giving_bits(2**64 - 1)) == 1 - 2.0**-53


def test_a_sequence_begins_by_a_draw_of_64_bits():
    begins = [int(randomness(np.random.default_rng(seed))[0]) for seed in range(40)]
    assert len(set(begins)) == 40
    assert 2**63 < max(begins) < 2**64
    assert randomness(np.random.default_rng(0)).shape == (1,)


@pytest.mark.parametrize("mean", [0.0, 0.3, 5.0, 100.0])
def test_a_poisson_count_is_of_exponential_gaps(mean):
    for r in (giving_bits(255), *(begun(seed) for seed in range(20))):
        copy, count, reached = r.copy(), -1, 0.0
        while reached <= mean and (mean > 0 or count < 0):
            reached += standard_exponential(copy)
            count += 1
        assert poisson(mean, r) == count
        assert r == copy


def test_a_large_poisson_count_is_a_rounded_normal_draw():
    for seed in range(20):
        r, copy = begun(seed), begun(seed)
        assert poisson(100.5, r) == round(100.5 + 100.5**0.5 * standard_normal(copy))
        assert r == copy
