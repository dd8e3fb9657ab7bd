"""Cards dealt one after another from shuffled decks, one deck an element.

A round deals every card of its deck once. Where rounds are to be shorter, each of n equal parts of
the deck gives one card to a round of n; those of one card are independent draws.
"""

# mypy: disable-error-code="no-any-return,return-value"
# Compiled code returns numbers of the machine, which mypy takes for numpy's.

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.compiled import uncounted
from fitting.random_numbers import uniform
from fitting.side_by_side import side_by_side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.random_numbers import Randomness

    IntArray = NDArray[np.int64]
    ShortArray = NDArray[np.int32]


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
