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


@pytest.mark.parametrize("counts", [[], [3], [0, 0, 0]])
def test_too_little_is_refused(counts):
    with pytest.raises(FittingError, match="two windows and one arrival"):
        index_of_dispersion(counts)
