"""Random numbers one by one against the published methods, and their laws against scipy's."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, strategies as st
from requests_reference import FIBONACCI, WHOLE, Batch, permuted
from scipy import special, stats

from fitting.compiled import random as module
from fitting.compiled.random import draw, new_randomness, random_bits, uniform

FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def begun(seed=0):
    return np.array([seed * 0x123456789ABCDEF % WHOLE], dtype=np.uint64)


def giving_bits(bits):
    """Sequence whose next bits are given: SplitMix64 backwards."""

    def unmixed(z, shift):
        found = z
        for _ in range(64 // shift):
            found = z ^ found >> shift
        return found

    z = unmixed(bits, 31) * pow(SECOND, -1, WHOLE) % WHOLE
    z = unmixed(z, 27) * pow(FIRST, -1, WHOLE) % WHOLE
    return np.array([(unmixed(z, 30) - FIBONACCI) % WHOLE], dtype=np.uint64)


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
    yield from map(begun, range(300))


def test_bits_are_those_of_the_published_sequence():
    """The first numbers from the state 1234567, as the reference code of SplitMix64 prints them."""
    begins = [int(new_randomness(np.random.default_rng(seed))[0]) for seed in range(40)]
    assert len(set(begins)) == 40
    assert 2**63 < max(begins) < 2**64
    r = np.array([1234567], dtype=np.uint64)
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [int(random_bits(r)) for _ in published] == published
    for bits in (0, 5, 2**11, 3 * 2**62, 2**64 - 2**11, 2**64 - 1):
        assert random_bits(giving_bits(bits)) == bits
        assert uniform(giving_bits(bits)) == (bits >> 11) / 2**53


# Tables, the edge and the area of a layer as Marsaglia and Tsang give them, density, back, tail.
LAWS = {
    "exponential": (
        (module._EXPONENTIAL_X, module._EXPONENTIAL_Y),
        (7.69711747013104972, 0.0039496598225815571993),
        (lambda x: math.exp(-x), lambda y: -math.log(y), lambda x: math.exp(-x)),
    ),
    "normal": (
        (module._NORMAL_X, module._NORMAL_Y),
        (3.6541528853610088, 0.00492867323399),
        (
            lambda x: math.exp(-x * x / 2),
            lambda y: math.sqrt(-2 * math.log(y)),
            lambda x: math.sqrt(math.pi / 2) * special.erfc(x / math.sqrt(2)),
        ),
    ),
}


@pytest.mark.parametrize("law", LAWS)
def test_layers_have_the_published_area(law):
    tables, (edge, area), (density, back, tail) = LAWS[law]
    for x, y in (tables, module._ziggurat(edge, area, density, back)):
        assert len(x) == len(y) == 257
        assert np.diff(y)[1:] * x[1:-1] == pytest.approx(np.full(255, area), rel=1e-7)
        assert y[1:] == pytest.approx([density(width) for width in x[1:]], rel=1e-12)
        assert (y[0], x[1], x[-1], y[-1]) == (0, edge, 0, 1)
        assert x[0] * density(edge) == pytest.approx(area, rel=1e-9)
    assert edge * density(edge) + tail(edge) == pytest.approx(area, rel=1e-9)


def ziggurat(law, r):
    """Draw by the ziggurat: the exponential tail is the law again, the normal one Marsaglia's."""
    (x, y), _, (density, _, _) = LAWS[law]
    beyond = 0.0
    while True:
        bits = int(random_bits(r))
        layer, at = bits % 256, (bits >> 11) / 2**53 * x[bits % 256]
        sign = -1 if law == "normal" and bits >> 8 & 1 else 1
        if at < x[layer + 1]:
            return sign * (beyond + at)
        if layer:
            if y[layer] + uniform(r) * (y[layer + 1] - y[layer]) < density(at):
                return sign * (beyond + at)
        elif law == "exponential":
            beyond += x[1]
        else:
            further, other = (ziggurat("exponential", r) for _ in range(2))
            if 2 * other > (further / x[1]) ** 2:
                return sign * (x[1] + further / x[1])


def gamma(shape, r):
    """Gamma law of Marsaglia and Tsang, by the acceptance that their squeeze only abbreviates."""
    d = (shape if shape >= 1 else shape + 1) - 1 / 3
    while True:
        x = ziggurat("normal", r)
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(uniform(r)) < x * x / 2 + d - d * v + d * math.log(v):
            small = 1 if shape >= 1 else math.exp(-ziggurat("exponential", r) / shape)
            return d * v * small


def poisson_count(mean, r):
    """Exponential gaps up to the mean; beyond 100 a rounded normal draw."""
    if mean > 100:
        return math.floor(mean + mean**0.5 * module.standard_normal(r) + 0.5)
    count, reached = 0, module.standard_exponential(r)
    while reached < mean:
        reached += module.standard_exponential(r)
        count += 1
    return count


def some_begun(number):
    return [giving_bits(255), *map(begun, range(number))]


@pytest.mark.cases(
    "draw_one, reference, begins",
    (module.standard_exponential, partial(ziggurat, "exponential"), [*crafted()]),
    (module.standard_normal, partial(ziggurat, "normal"), [*crafted()]),
    *(
        (partial(module.standard_gamma, shape=shape), partial(gamma, shape), some_begun(n))
        for shape, n in ((0.05, 1000), (0.4, 200), (1.0, 200), (1.7, 200), (60.0, 200))
    ),
    *(
        (partial(module.draw_poisson, mean), partial(poisson_count, mean), some_begun(20))
        for mean in (0.0, 0.3, 5.0, 100.0, 100.5)
    ),
)
def test_draws_are_those_of_their_authors(draw_one, reference, begins):
    for r in begins:
        copy = r.copy()
        assert draw_one(r) == pytest.approx(reference(copy), rel=1e-9)
        assert r == copy


@pytest.mark.cases(
    "draw_one, law",
    (uniform, stats.uniform()),
    (module.standard_exponential, stats.expon()),
    (module.standard_normal, stats.norm()),
    *((partial(module.standard_gamma, shape=s), stats.gamma(s)) for s in (0.4, 60.0)),
)
def test_draws_follow_their_laws_and_tails(draw_one, law):
    r = new_randomness(np.random.default_rng(1))
    out = np.array([draw_one(r) for _ in range(10_000)])
    assert stats.kstest(out, law.cdf).pvalue > 1e-3
    edge = law.isf(0.02)
    tail = out[out > edge]
    assert abs(len(tail) - 200) < 4 * 14
    assert stats.kstest(1 - law.sf(tail) / 0.02, "uniform").pvalue > 1e-3


class TestBatches:
    """One draw from each of n equal parts, in an order that a key chooses."""

    @given(st.integers(0, 20), st.integers(0, 2**62 - 1), st.data())
    def test_are_in_the_order_of_their_key(self, bits, key, data):
        k = data.draw(st.integers(0, 2**bits - 1))
        assert module._permute(k, np.int64(bits), np.int64(key)) == permuted(k, bits, key)
        few = bits % 8
        found = [int(module._permute(k, np.int64(few), np.int64(key))) for k in range(2**few)]
        assert sorted(found) == list(range(2**few))

    @given(st.integers(1, 100), st.integers(0, 99))
    def test_deal_out_every_part_once_and_then_in_another_order(self, length, seed):
        batches = module.new_batches(np.array([3.0, float(length)]), np.random.default_rng(seed))
        reference, r = Batch(length, batches.key[1]), begun(seed)
        copy, dealt = r.copy(), []
        for _ in range(3):
            found = [draw(batches, 1, r) for _ in range(length)]
            assert found == [reference.draw(copy) for _ in range(length)]
            dealt.append([int(u * length) for u in found])
            assert length == 1 or sorted(dealt[-1]) == list(range(length))
        assert length < 20 or dealt[0] != dealt[1] != dealt[2]
        assert batches.made[0] == 0
