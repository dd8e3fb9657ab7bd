"""Index of dispersion: known processes, and how often a band covers."""

from __future__ import annotations

import numpy as np
import pytest

from fitting.dispersion import dispersion_band, index_of_dispersion
from fitting.errors import FittingError


def test_worked_by_hand():
    # Mean 3, squared deviations 4 + 0 + 4 over 2.
    assert index_of_dispersion([1, 3, 5]) == pytest.approx(4 / 3)


def test_poisson_counts_have_one_and_even_ones_none():
    counts = np.random.default_rng(2).poisson(50, 20_000)
    assert index_of_dispersion(counts) == pytest.approx(1, rel=0.03)
    assert index_of_dispersion(np.full(100, 7)) == 0.0


def test_the_band_covers_what_a_process_has():
    """Of 60 series of a process whose index is 1, most bands at 90 % hold it."""
    inside = 0
    for seed in range(60):
        counts = np.random.default_rng(seed).poisson(30, 400)
        low, high = dispersion_band(counts, draws=300, seed=seed)
        inside += low <= 1.0 <= high
    assert 45 <= inside <= 60


def test_the_band_is_the_same_for_the_same_seed():
    counts = np.random.default_rng(1).poisson(5, 200)
    assert dispersion_band(counts, seed=4) == dispersion_band(counts, seed=4)


def ring_of_blocks(counts, level, draws, seed):
    """The same resamples, window by window around the ring."""
    n, length = len(counts), round(len(counts) ** (1 / 3))
    rng, found = np.random.default_rng(seed), []
    for _ in range(draws):
        chosen = rng.integers(n, size=n // length)
        drawn = np.concatenate([counts[(c + np.arange(length)) % n] for c in chosen])
        found.append(drawn.var() / drawn.mean() if drawn.any() else np.nan)
    return np.nanquantile(found, [(1 - level) / 2, (1 + level) / 2])


@pytest.mark.parametrize("n", [30, 64, 200])
def test_the_band_is_that_of_blocks_drawn_one_by_one(n):
    counts = np.random.default_rng(n).poisson(0.2, n)
    for level in (0.5, 0.9):
        found = dispersion_band(counts, level=level, draws=40, seed=3)
        assert found == pytest.approx(ring_of_blocks(counts, level, 40, 3))
    assert dispersion_band(counts) == dispersion_band(counts, level=0.9, draws=1000, seed=0)


def test_two_windows_are_enough():
    # Mean 2, squared deviations 1 + 1.
    assert index_of_dispersion([1, 3]) == pytest.approx(1)


def test_resamples_without_any_arrival_are_left_out():
    low, high = dispersion_band(np.array([0] * 40 + [3]), draws=200)
    assert 0 < low <= high


@pytest.mark.parametrize("counts", [[], [3], [0, 0, 0]])
def test_too_little_is_refused(counts):
    with pytest.raises(FittingError, match="two windows and one arrival"):
        index_of_dispersion(counts)
