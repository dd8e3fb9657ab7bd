"""Cards dealt from decks, against what a deck holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_draws import ahead, begun
from scipy import stats

from fitting.compiled import uncounted
from fitting.decks import LARGEST, card, new_decks
from fitting.random_numbers import randomness, uniform


@uncounted
def deal(decks, deck, r, out):
    for i in range(len(out)):
        out[i] = card(decks, deck, r)


def dealt(decks, deck, number, seed=0):
    out = np.empty(number, dtype=np.int64)
    deal(decks, deck, randomness(np.random.default_rng(seed)), out)
    return out


DECKS = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), min_size=1, max_size=5),
    min_size=1,
    max_size=4,
)


def laid(decks, share):
    """Decks of faces, each with its copies."""
    face, copies = np.array([pair for deck in decks for pair in deck]).T
    return new_decks(face, copies, np.cumsum([0, *map(len, decks)]), share)


@given(DECKS, st.integers(0, 99))
def test_a_round_deals_every_card_once(decks, seed):
    held = laid(decks, 1.0)
    for deck, pairs in enumerate(decks):
        cards = sorted(face for face, copies in pairs for _ in range(copies))
        for found in dealt(held, deck, 3 * len(cards), seed).reshape(3, -1):
            assert sorted(found) == cards


@given(st.integers(1, 30), st.integers(0, 99))
def test_of_half_a_deck_each_pair_gives_one_card(pairs, seed):
    held = laid([[(face, 1) for face in range(2 * pairs)], [(1, 2)]], 0.5)
    for found in dealt(held, 0, 2 * pairs, seed).reshape(2, -1):
        assert sorted(found // 2) == list(range(pairs))


def test_rounds_of_one_card_are_independent_draws():
    found = np.bincount(dealt(laid([[(0, 1), (1, 2), (2, 3)]], 0.0), 0, 6000))
    assert stats.chisquare(found, [1000, 2000, 3000]).pvalue > 1e-3


def test_orders_are_alike():
    """Every order of three cards comes as often as another."""
    orders = dealt(laid([[(0, 1), (1, 1), (2, 1)]], 1.0), 0, 18_000).reshape(-1, 3) @ [9, 3, 1]
    assert stats.chisquare(np.unique(orders, return_counts=True)[1]).pvalue > 1e-3
    assert len(np.unique(orders)) == 6


@pytest.mark.parametrize(("more", "dealt_"), [(0, 4096), (1, 0)])
def test_too_large_a_deck_is_not_dealt(more, dealt_):
    assert laid([[(0, LARGEST - 1), (1, 1 + more)], [(2, 3)]], 1.0).number.tolist() == [dealt_, 3]


def test_rounds_are_shares_of_their_decks():
    """A card at least, all at most; half a card is rounded to the even number (10/4 to 2)."""
    decks = [[(0, 4), (1, 6)], [(2, 3)], [(3, LARGEST + 1)], [(4, 1)], [(5, LARGEST)]]
    for share, number in [(0.25, [2, 1, 0, 1, 1024]), (3.0, [10, 3, 0, 1, LARGEST])]:
        found = laid(decks, share)
        assert found.size.tolist() == [10, 3, 0, 1, LARGEST]
        assert found.number.tolist() == found.dealt.tolist() == number
        assert found.start.tolist() == [0, *np.cumsum(number)[:-1]]
        assert len(found.cards) == sum(number)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.4])
def test_cards_are_those_of_fisher_and_yates(share):
    """Of a deck between two others: chosen in order of their parts, then shuffled."""
    held = laid([[(9, 2)], [(5, 3), (6, 1), (7, 4), (8, 2)], [(4, 3)]], share)
    deck, number, r = [5, 5, 5, 6, 7, 7, 7, 7, 8, 8], int(10 * share), begun(3)
    others = [dealt(held, k, 1).tolist() for k in (0, 2)]
    expected, copy = [], r.copy()
    for _ in range(3):
        part, cards = ahead(copy, number + 1), deck[:]
        if share < 1:
            # One draw more than there are parts.
            cards = [deck[int((k + part[k]) * 10 / number)] for k in range(number)]
            for _ in part:
                uniform(copy)
        for k in range(number - 1, 0, -1):
            other = int(uniform(copy) * (k + 1))
            cards[k], cards[other] = cards[other], cards[k]
        expected += cards
    out = np.empty(3 * number, dtype=np.int64)
    deal(held, 1, r, out)
    assert out.tolist() == expected
    assert r == copy
    assert others == [[9], [4]]
