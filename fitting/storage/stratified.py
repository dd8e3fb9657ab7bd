"""Draws of a walk: stratified shares, gaps by their laws, and places among cumulated weights.

A share is drawn from a batch of n: one from each of n equal parts of the unit interval, in random
order. Where n is the number of times that something was counted, a batch deals out exactly what was
counted; so a walk as long as its trace is in every state about as often as the trace was, far more
closely than by independent draws, while what follows what stays a matter of chance.
"""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.compiled.hashing import hashed
from fitting.compiled.loops import inlined, side_by_side, uncounted
from fitting.compiled.random import standard_exponential, standard_gamma, standard_normal, uniform
from fitting.storage.interarrival import CONSTANT, EMPIRICAL, EXPONENTIAL, GAMMA, LOGNORMAL, NORMAL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.compiled.random import Randomness

    IntArray = NDArray[np.int64]
    FloatArray = NDArray[np.float64]
    ShortArray = NDArray[np.int32]


_NORMAL_FROM = 100.0


class Batches(NamedTuple):
    """Batches of draws, one an element: draws made, length, its bits, key of the order."""

    made: IntArray
    length: IntArray
    bits: IntArray
    key: IntArray


class Features(NamedTuple):
    """Sizes by class, and laws of gaps by transition."""

    size_start: IntArray
    size: IntArray
    size_share: FloatArray
    law: NDArray[np.int8]
    mean: FloatArray
    shape: FloatArray
    quantiles: FloatArray
    knots: FloatArray
    pace: FloatArray


def new_batches(length: FloatArray, rng: np.random.Generator) -> Batches:
    """Make batches of about such lengths; those of one are independent draws."""
    whole = np.maximum(np.round(length), 1).astype(np.int64)
    bits = np.ceil(np.log2(whole)).astype(np.int64)
    return Batches(np.zeros_like(whole), whole, bits, rng.integers(2**62, size=len(whole)))


@uncounted
def _permuted(k: int, bits: int, key: int) -> int:
    """Place of k in an order of 0 … 2^bits − 1 that a key chooses."""
    mask = (1 << bits) - 1
    half = (bits + 1) >> 1
    x = (k + key) & mask
    x = (x * ((key >> 20) | 1)) & mask
    x ^= x >> half
    x = (x * 0x5851F42D4C957F2D) & mask
    x ^= x >> half
    x = (x * 0x14057B7EF767814F + (key >> 40)) & mask
    return x ^ (x >> half)


@inlined
def draw(b: Batches, at: int, rng: Randomness) -> float:
    """Draw from [0, 1): the next of a batch."""
    n = b.length[at]
    if n == 1:
        return uniform(rng)
    k = b.made[at]
    if k == n:
        k = 0
        b.key[at] = hashed(b.key[at] + 1)
    b.made[at] = k + 1
    place = _permuted(k, b.bits[at], b.key[at])
    while place >= n:
        place = _permuted(place, b.bits[at], b.key[at])
    return (place + uniform(rng)) / n


@uncounted
def poisson(mean: float, rng: Randomness) -> float:
    """Count of Poisson's law; rounded from the normal law of its moments where that is as good."""
    if mean > _NORMAL_FROM:
        return max(0.0, np.floor(mean + np.sqrt(mean) * standard_normal(rng) + 0.5))
    count, left = 0.0, mean - standard_exponential(rng)
    while left > 0:
        left -= standard_exponential(rng)
        count += 1
    return count


@inlined
def draw_gap(f: Features, t: int, rng: Randomness) -> float:
    """Draw a gap (s) by the law of a transition."""
    law, mean, shape = f.law[t], f.mean[t], f.shape[t]
    if law == CONSTANT:
        return mean
    if law == EXPONENTIAL:
        return mean * standard_exponential(rng)
    if law == NORMAL:
        return mean * max(0.0, 1 + shape * standard_normal(rng))
    if law == GAMMA:
        return mean / shape * standard_gamma(rng, shape)
    if law == LOGNORMAL:
        return mean * np.exp(shape * standard_normal(rng) - shape * shape / 2)
    if law == EMPIRICAL:
        u, k = uniform(rng), 0
        while u >= f.knots[k + 1]:
            k += 1
        row = f.quantiles[int(shape)]
        share = (u - f.knots[k]) / (f.knots[k + 1] - f.knots[k])
        return mean * (row[k] + share * (row[k + 1] - row[k]))
    return shape * poisson(mean / shape, rng)


@inlined
def between(cumulated: FloatArray, low: int, high: int, u: float) -> int:
    """Index in [low, high) that a share u of what is cumulated falls on."""
    wanted = cumulated[low] + u * (cumulated[high] - cumulated[low])
    while high - low > 1:
        middle = (low + high) >> 1
        if cumulated[middle] <= wanted:
            low = middle
        else:
            high = middle
    return low


# Cards dealt one after another from shuffled decks, one deck an element.
#
# A round deals every card of its deck once. Where rounds are to be shorter, each of n equal parts
# of the deck gives one card to a round of n; those of one card are independent draws.


# Larger ones take more memory than other ways to draw from them.
LARGEST = 4096


class Decks(NamedTuple):
    """Decks, and the rounds that are dealt of them.

    Parameters
    ----------
    face, copies, first : array
        Deck i has the cards ``face[first[i]:first[i + 1]]``, each so many times.
    cards : array
        Those of the rounds, shuffled: of round i from ``start[i]`` on.
    start, number, size, dealt : array
        By deck: where its round is, its cards, those of the deck, and how many have been dealt.
    """

    face: IntArray
    copies: IntArray
    first: IntArray
    cards: ShortArray
    start: IntArray
    number: ShortArray
    size: ShortArray
    dealt: ShortArray


def new_decks(face: IntArray, copies: IntArray, first: IntArray, share: float) -> Decks:
    """Begin to deal; a round is a share of its deck, or all of it. The largest are not dealt."""
    size = np.add.reduceat(copies, first[:-1])
    size = np.where(size > LARGEST, 0, size).astype(np.int32)
    number = np.minimum(np.maximum(np.round(size * share), 1), size).astype(np.int32)
    start = np.cumsum(number, dtype=np.int64) - number
    cards = np.empty(int(number.sum()), dtype=np.int32)
    return Decks(face, copies, first, cards, *side_by_side(start, number, size, number))


@uncounted
def card(d: Decks, deck: int, rng: Randomness) -> int:
    """Deal the next card of a deck that has any."""
    if d.dealt[deck] == d.number[deck]:
        _lay_out(d, deck, rng)
        _shuffle(d.cards, d.start[deck], int(d.number[deck]), rng)
        d.dealt[deck] = 0
    at = d.dealt[deck]
    d.dealt[deck] = at + 1
    return np.int64(d.cards[d.start[deck] + at])


@uncounted
def _lay_out(d: Decks, deck: int, rng: Randomness) -> None:
    """Choose the cards of a round."""
    n, size, start = int(d.number[deck]), int(d.size[deck]), d.start[deck]
    done, passed = 0, 0
    wanted = int(uniform(rng) * size / n) if n < size else 0
    for k in range(d.first[deck], d.first[deck + 1]):
        passed += d.copies[k]
        # What is wanted after the last card of a round is beyond the deck.
        while wanted < passed:
            d.cards[start + done] = d.face[k]
            done += 1
            wanted = int((done + uniform(rng)) * size / n) if n < size else done


@uncounted
def _shuffle(cards: ShortArray, first: int, number: int, rng: Randomness) -> None:
    """Put cards in random order, each order as likely as another (Fisher and Yates)."""
    for k in range(number - 1, 0, -1):
        other = int(uniform(rng) * (k + 1))
        cards[first + k], cards[first + other] = cards[first + other], cards[first + k]
