"""Laws of divisions that are noted, pooled and drawn: each part by hand or from the same draws."""

from __future__ import annotations

import numpy as np
import pytest

from fitting.splits import (
    LARGE_SHAPE,
    SMALL_SHAPE,
    _by_octave,
    _count_splits,
    _number_laws,
    _octave,
    _share_laws,
    drawn_split,
    split_laws,
)

ALONE, ALIKE, BUSIER, MUCH_BUSIER = range(4)


def noted(*halves):
    """Few arrivals by context, number and first half; of many, context, octave and share."""
    halves = np.array(halves)
    n = halves[::2] + halves[1::2]
    found, many = np.zeros(SMALL_SHAPE), int((n >= 8).sum())
    context, octave, share = np.empty(many, np.int8), np.empty(many, np.int8), np.empty(many)
    _count_splits(halves, n, found, context, octave, share)
    assert found.sum() + many == np.count_nonzero(n)
    few = [(*map(int, at), int(found[tuple(at)])) for at in np.argwhere(found)]
    return few, list(zip(context.tolist(), octave.tolist(), share.tolist(), strict=True))


class TestNoted:
    def test_few_arrivals_between_others(self):
        # 3, 6, 3, 0, 1: before the first is another 6, and behind the last none, as before it.
        few, many = noted(1, 2, 3, 3, 2, 1, 0, 0, 1, 0)
        assert few == [(ALONE, 1, 1, 1), (ALIKE, 3, 1, 1), (ALIKE, 6, 3, 1), (MUCH_BUSIER, 3, 2, 1)]
        assert not many

    def test_the_first_half_is_that_towards_the_busier_neighbour(self):
        # 0, 3, 6, 3, 4: before 6, three have 2 + 1; the last has 3 on both sides.
        few, _ = noted(0, 0, 2, 1, 6, 0, 2, 1, 4, 0)
        assert few == [(ALIKE, 3, 2, 1), (ALIKE, 4, 4, 1), (ALIKE, 6, 6, 1), (MUCH_BUSIER, 3, 1, 1)]

    def test_alone_in_a_trace_of_one_window_is_as_among_others_alike(self):
        assert noted(2, 1)[0] == [(ALIKE, 3, 2, 1)]
        assert noted(2, 1, 2, 1)[0] == [(ALIKE, 3, 2, 2)]

    def test_many_are_noted_one_by_one_as_they_come(self):
        # 8, 16, 40, 7 and 8; of 16 the second half is towards the 40.
        few, many = noted(2, 6, 4, 12, 30, 10, 6, 1, 2, 6)
        assert many == [(ALIKE, 0, 0.25), (BUSIER, 1, 0.75), (BUSIER, 2, 0.75), (ALIKE, 0, 0.25)]
        assert few == [(BUSIER, 7, 6, 1)]

    @pytest.mark.parametrize(
        ("n", "octave"), [(8, 0), (15, 0), (16, 1), (31, 1), (32, 2), (2**40, 37)]
    )
    def test_octaves_from_eight_on(self, n, octave):
        assert _octave(n) == octave


def counted(**numbers):
    """Divisions that were seen, by number."""
    found = np.zeros((8, 8))
    for number, firsts in numbers.items():
        found[int(number[1:]), : len(firsts)] = firsts
    return found


class TestNumberLaws:
    SEEN = counted(n2=[3, 1, 0])
    ALL = counted(n2=[5, 1, 1], n3=[1, 0, 0, 1], n4=[6, 0, 0, 0, 2])

    @pytest.mark.parametrize(
        ("mirrored", "two"), [(True, [3 / 8, 5 / 8, 1]), (False, [3 / 4, 1, 1])]
    )
    def test_by_hand(self, mirrored, two):
        small = _number_laws(self.SEEN, self.ALL, mirrored)
        assert small[0].tolist() == [0.0] * 8
        # One is as likely here as there, where none was seen; of three, all are together; what
        # contexts that are not alike have not seen is that of all and its mirror image.
        assert small[1] == pytest.approx([0.5] + [1] * 7)
        assert small[2] == pytest.approx(two + [1] * 5)
        assert small[3] == pytest.approx([0.5] * 3 + [1] * 5)
        assert small[4] == pytest.approx([0.5] * 4 + [1] * 4)
        assert small[7] == pytest.approx(np.arange(1, 9) / 8)


def quantiles(*shares):
    return pytest.approx(np.quantile(shares, np.arange(17) / 16))


class TestShareLaws:
    def test_none(self):
        assert (_share_laws({}, True) == 0.5).all()

    def test_shares_of_each_octave_in_their_order(self):
        found = _by_octave(np.array([3, 1, 3, 1]), np.array([0.1, 0.2, 0.3, 0.4]))
        assert {k: part.tolist() for k, part in found.items()} == {1: [0.2, 0.4], 3: [0.1, 0.3]}

    def test_an_octave_has_its_own_law_from_32_splits_on(self):
        large = _share_laws({1: np.full(31, 0.25), 2: np.full(32, 0.75)}, False)
        assert large[1] == quantiles(*[0.25] * 31, *[0.75] * 32)
        assert large[2] == quantiles(0.75)

    @pytest.mark.parametrize(
        ("lower", "pooled"),
        [(22, [0.5] * 10 + [0.1] * 22), (21, [0.5] * 10 + [0.1] * 21 + [0.9] * 5)],
    )
    def test_the_nearest_octaves_are_added_the_lower_first(self, lower, pooled):
        shares = {3: np.full(lower, 0.1), 4: np.full(10, 0.5), 5: np.full(5, 0.9)}
        large = _share_laws(shares | {9: np.full(40, 0.3)}, False)
        assert large[4] == quantiles(*pooled)

    def test_octaves_without_splits_have_the_law_of_the_nearest(self):
        large = _share_laws({1: np.full(40, 0.25), 3: np.full(40, 0.75)}, False)
        assert large[:, 0].tolist() == [0.25] * 3 + [0.75] * 37

    def test_a_mirrored_law_has_each_share_of_both_halves(self):
        shares = np.linspace(0.1, 0.4, 40)
        assert _share_laws({0: shares}, True)[0] == quantiles(*shares, *(1 - shares))
        assert _share_laws({0: shares}, False)[0] == quantiles(*shares)

    @pytest.mark.parametrize(("number", "every"), [(5000, 1), (5001, 2), (10_001, 3)])
    def test_no_more_than_five_thousand_splits_are_looked_at(self, number, every):
        shares = np.tile([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 2000)[:number]
        assert _share_laws({0: shares}, False)[0] == quantiles(*shares[::every])


class TestLaws:
    def test_each_context_has_the_shares_that_were_met_in_it(self):
        # 64 and 32, between 0 and 0; a quarter of 64 is towards the 32, and an eighth of
        # 32 towards the 64.
        halves = [0, 0, 48, 16, 4, 28, 0, 0] * 40
        _, _, large = split_laws(np.array(halves))
        assert large.shape == LARGE_SHAPE == (4, 40, 17)
        assert large[MUCH_BUSIER, 2] == quantiles(4 / 32)
        assert large[MUCH_BUSIER, 3] == quantiles(16 / 64)
        # Contexts that were not met have all of these, and their mirror images.
        for kind in (ALONE, ALIKE, BUSIER):
            assert large[kind, 2] == quantiles(*[4 / 32, 28 / 32] * 40)
            assert large[kind, 3] == quantiles(*[16 / 64, 48 / 64] * 40)

    def test_eight_are_the_first_of_many(self):
        n, small, large = split_laws(np.array([2, 6] * 40 + [3, 4] * 2))
        assert n.tolist() == [8] * 40 + [7] * 2
        assert small.shape == SMALL_SHAPE == (4, 8, 8)
        assert large[ALIKE, 0] == quantiles(*[0.25, 0.75] * 8)
        # The last but one of 7 lies between 8 and 7.
        assert small[ALIKE, 7] == pytest.approx([0, 0, 0, 0.5, 1, 1, 1, 1])

    def test_alone_and_alike_are_mirrored_and_others_not(self):
        # Three among windows of none, in their second half; and three in the half towards seven.
        _, small, _ = split_laws(np.array([0, 0, 0, 3, 0, 0, 0, 0, 0, 3, 7, 0, 0, 0, 0, 0] * 2))
        assert small[ALONE, 3] == pytest.approx([0.5] * 3 + [1] * 5)
        assert small[MUCH_BUSIER, 3] == pytest.approx([0] * 3 + [1] * 5)


class TestDrawn:
    SMALL, LARGE = np.ones(SMALL_SHAPE), np.empty(LARGE_SHAPE)
    SMALL[:, 7, :7] = np.arange(1, 8) / 8
    for _kind in range(4):
        LARGE[_kind] = np.linspace(0, 1, 17) ** (_kind + 1)

    @pytest.mark.parametrize(
        ("left", "right", "kind"),
        [
            *((2, 2, ALONE), (16, 16, ALIKE), (15, 8, BUSIER), (8, 15, BUSIER)),
            *((22, 3, MUCH_BUSIER), (3, 22, MUCH_BUSIER)),
        ],
    )
    def test_many_are_divided_by_the_law_of_their_context(self, left, right, kind):
        towards = kind >= BUSIER and right > left
        for seed in range(20):
            u, rest = np.random.default_rng(seed).random(2)
            share = np.interp(16 * u, np.arange(17), self.LARGE[kind, 0])
            first = int(16 * share + rest)
            found = drawn_split(
                16, left, right, self.SMALL, self.LARGE, np.random.default_rng(seed)
            )
            assert found == (16 - first if towards else first)

    @pytest.mark.parametrize(
        ("left", "right", "towards"), [(7, 7, False), (15, 1, False), (1, 15, True), (5, 8, False)]
    )
    def test_few_are_divided_by_the_law_of_their_number(self, left, right, towards):
        for seed in range(20):
            first = int(8 * np.random.default_rng(seed).random())
            found = drawn_split(7, left, right, self.SMALL, self.LARGE, np.random.default_rng(seed))
            assert found == (7 - first if towards else first)

    def test_a_draw_as_large_as_a_probability_is_beyond_it(self):
        u = np.random.default_rng(1).random()
        small = np.ones(SMALL_SHAPE)
        small[ALIKE, 7, 0] = u
        assert drawn_split(7, 7, 7, small, self.LARGE, np.random.default_rng(1)) == 1
        small[ALIKE, 7, 0] = np.nextafter(u, 1)
        assert drawn_split(7, 7, 7, small, self.LARGE, np.random.default_rng(1)) == 0
