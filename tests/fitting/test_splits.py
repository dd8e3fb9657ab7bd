"""Laws of how arrivals divide over the halves of windows, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fitting.splits import context_of, split_laws

ALONE, ALIKE, BUSIER, MUCH_BUSIER = range(4)


@pytest.mark.parametrize(
    ("left", "right", "context"),
    [
        *((0, 0, ALONE), (2, 2, ALONE), (3, 2, ALIKE), (16, 16, ALIKE), (15, 9, ALIKE)),
        *((15, 8, BUSIER), (8, 15, BUSIER), (21, 3, BUSIER), (22, 3, MUCH_BUSIER)),
    ],
)
def test_what_sixteen_arrivals_lie_between(left, right, context):
    assert context_of(16, left, right) == context


def test_few_arrivals_have_the_shares_of_their_number():
    # Three arrivals divide 3 and 0 three times, 2 and 1 once; each counts the other way round too.
    n, small, _ = split_laws(np.array([3, 0, 2, 1, 3, 0, 3, 0]))
    assert n.tolist() == [3, 3, 3, 3]
    assert small[ALIKE, 3, :4] == pytest.approx(np.array([3, 4, 5, 8]) / 8)
    # Nobody knows of two: any division is as likely.
    assert small[ALIKE, 2, :3] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert small[ALIKE, 0, 0] == 0.0
    # A context that is not met has the shares of all.
    np.testing.assert_array_equal(small[BUSIER], small[ALIKE])


def test_towards_a_busier_neighbour_halves_are_not_alike():
    # Of three arrivals, two are always in the half towards the seven, before or after it.
    n, small, _ = split_laws(np.array([1, 2, 4, 3, 2, 1, 0, 0, 1, 2, 3, 4, 2, 1, 0, 0]))
    assert n.tolist() == [3, 7, 3, 0, 3, 7, 3, 0]
    assert small[MUCH_BUSIER, 3, :4] == pytest.approx([0.0, 0.0, 1.0, 1.0])


def test_many_arrivals_have_the_quantiles_of_their_octave():
    # Of 16, a quarter are in one half; of 1000, a tenth.
    n, _, large = split_laws(np.array([4, 12] * 40 + [900, 100] * 40))
    assert set(n.tolist()) == {16, 1000}
    for octave, share in ((1, 0.25), (6, 0.1)):
        assert large[ALIKE, octave, :8] == pytest.approx(np.full(8, share))
        assert large[ALIKE, octave, 9:] == pytest.approx(np.full(8, 1 - share))
    # An octave without splits has the law of the nearest.
    np.testing.assert_array_equal(large[ALIKE, 2], large[ALIKE, 1])
    np.testing.assert_array_equal(large[ALIKE, 9], large[ALIKE, 6])


def test_an_octave_with_few_splits_has_those_of_its_neighbours_too():
    _, _, large = split_laws(np.array([4, 12] * 40 + [32, 0]))
    assert large[ALIKE, 2, 0] == 0.0
    assert large[ALIKE, 2, 2:8] == pytest.approx(np.full(6, 0.25))
