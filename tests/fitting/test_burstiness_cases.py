"""How windows are divided, by hand and against the same draws."""

from __future__ import annotations

import numpy as np
import pytest

from fitting.burstiness import (
    GAP_KNOTS,
    Windows,
    _gap_quantiles,
    fit_cascade,
)
from fitting.splits import LARGE_SHAPE, SMALL_SHAPE, drawn_split


def laws():
    """Of one depth: three arrivals by hand, many by a share that is uniform."""
    small, large = np.ones((1, *SMALL_SHAPE)), np.full((1, *LARGE_SHAPE), 0.5)
    small[0, :, 3, :4] = [0.1, 0.4, 0.8, 1.0]
    large[0, :] = np.linspace(0, 1, LARGE_SHAPE[-1])
    return small[0], large[0]


def test_few_arrivals_are_divided_by_their_law():
    rng = np.random.default_rng(5)
    found = np.bincount([drawn_split(3, 5, 5, *laws(), rng) for _ in range(4000)], minlength=4)
    assert found / 4000 == pytest.approx([0.1, 0.3, 0.4, 0.2], abs=0.03)


@pytest.mark.parametrize("n", [8, 15, 16, 100, 5000, 100_000])
def test_many_are_divided_by_a_share_of_their_own_octave(n):
    small, large = laws()
    large[:, n.bit_length() - 3 :] = 0.0
    large[:, : n.bit_length() - 4] = 0.0
    for seed in range(20):
        share, rest = np.random.default_rng(seed).random(2)
        found = drawn_split(n, n, n, small, large, np.random.default_rng(seed))
        assert found == pytest.approx(int(n * share + rest), abs=1e-6 * n)


def test_windows_by_hand():
    # Two periods of 1800 s; four windows an arrival, and four arrivals a window that is kept.
    assert Windows.of(3600.0, 1024) == Windows(3600.0, 2, 7, 11)
    assert Windows.of(3600.0, 10) == Windows(3600.0, 2, 0, 4)
    assert Windows.of(100.0, 2) == Windows(100.0, 1, 0, 3)
    assert Windows.of(100.0, 10).finest == 2**5


@pytest.mark.parametrize("gaps", [[], [0.0, 0.0]])
def test_where_there_are_no_gaps_all_are_alike(gaps):
    assert _gap_quantiles(np.array(gaps)).tolist() == [1.0] * len(GAP_KNOTS)


def test_gaps_are_drawn_as_they_were():
    gaps = np.random.default_rng(1).gamma(0.5, 2.0, 8000)
    times = np.cumsum(gaps)
    windows = Windows.of(times[-1], len(times))
    counts = np.zeros(windows.finest, dtype=np.int64)
    windows.counts(times - times[0], counts)
    cascade = fit_cascade(windows, counts, gaps)
    assert cascade.gaps == pytest.approx(np.quantile(gaps, GAP_KNOTS) / gaps.mean())
    drawn = cascade.draw_gaps(8000, np.random.default_rng(2)) * gaps.mean()
    for share in (0.1, 0.5, 0.9):
        assert np.quantile(drawn, share) == pytest.approx(np.quantile(gaps, share), rel=0.1)
