"""Laws of how arrivals divide over the halves of windows, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fitting.splits import split_laws


def test_few_arrivals_have_the_shares_of_their_number():
    # Three arrivals divide 3 and 0 three times, 2 and 1 once; each counts the other way round too.
    n, small, _ = split_laws(np.array([3, 0, 2, 1, 3, 0, 0, 0, 3, 0]))
    assert n.tolist() == [3, 3, 3, 0, 3]
    assert small[3, :4] == pytest.approx(np.array([3, 4, 5, 8]) / 8)
    # Nobody knows of two: any division is as likely.
    assert small[2, :3] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert small[0, 0] == 0.0


def test_many_arrivals_have_the_quantiles_of_their_octave():
    # Of 16, a quarter are in one half; of 1000, a tenth.
    n, _, large = split_laws(np.array([4, 12] * 40 + [900, 100] * 40))
    assert set(n.tolist()) == {16, 1000}
    for octave, share in ((1, 0.25), (6, 0.1)):
        assert large[octave, :8] == pytest.approx(np.full(8, share))
        assert large[octave, 9:] == pytest.approx(np.full(8, 1 - share))
    # An octave without splits has the law of the nearest.
    np.testing.assert_array_equal(large[2], large[1])
    np.testing.assert_array_equal(large[9], large[6])


def test_an_octave_with_few_splits_has_those_of_its_neighbours_too():
    _, _, large = split_laws(np.array([4, 12] * 40 + [32, 0]))
    assert large[2, 0] == 0.0
    assert large[2, 2:8] == pytest.approx(np.full(6, 0.25))
