"""Change points of several series: made ones, noise alone, and dynamic programming as oracle."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitting.errors import FittingError
from fitting.phases import NOISE_FLOOR, _noise, change_points, penalty


def stages(lengths, series=4, noise=0.03, seed=5):
    """A series for each stage, 1 in its own stage; after the last series, none."""
    table = np.zeros((sum(lengths), series))
    ends = np.cumsum(lengths)
    for stage, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        if stage % (series + 1) < series:
            table[end - length : end, stage % (series + 1)] = 1.0
    return table + np.random.default_rng(seed).normal(0, noise, table.shape), list(ends[:-1])


@pytest.mark.parametrize("lengths", [(10, 10, 10, 10), (5, 5, 5, 5), (3, 30, 4), (100, 7, 300)])
def test_stages_are_found_exactly(lengths):
    table, ends = stages(lengths)
    assert change_points(table, shortest=3) == ends


@given(
    st.lists(st.integers(4, 25), min_size=1, max_size=7),
    st.integers(1, 5),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_any_stages_within_one_sample(lengths, series, seed):
    table, ends = stages(lengths, series, noise=0.05, seed=seed)
    found = change_points(table)
    assert len(found) == len(ends)
    assert np.abs(np.subtract(found, ends)).max(initial=0) <= 1


@pytest.mark.parametrize("count", [20, 60, 600, 7000])
@pytest.mark.parametrize("series", [1, 5])
def test_noise_alone_is_one_phase(count, series):
    rng = np.random.default_rng(11)
    found = [bool(change_points(rng.normal(0.5, 0.2, (count, series)))) for _ in range(20)]
    assert sum(found) <= 1


def test_a_flat_run_is_one_phase():
    assert change_points(np.full((50, 3), 0.7)) == []
    small = 0.7 + 0.5 * NOISE_FLOOR * np.sin(np.arange(50))[:, None]
    assert change_points(small) == []


def test_no_other_division_is_cheaper():
    """All divisions of a short series into phases of at least two points, one by one."""
    table, _ = stages((5, 4, 6), series=2, noise=0.0)
    wave = 0.04 * np.sin(7 * np.arange(15))[:, None]
    # Noise is below its floor, so that it is known.
    scaled = (table + wave) / NOISE_FLOOR

    def cost(points):
        parts = np.split(scaled, points)
        within = sum(((part - part.mean(axis=0)) ** 2).sum() for part in parts)
        return within + penalty(15, 2) * len(points)

    divisions = [
        points
        for count in range(5)
        for points in itertools.combinations(range(2, 14), count)
        if min(np.diff([0, *points, 15])) >= 2
    ]
    assert change_points(table + wave) == list(min(divisions, key=cost))


def test_a_day_of_seconds():
    """Long recordings are searched in averages; each change is then placed to the second."""
    table, ends = stages((20_000, 30_001, 300, 36_099), series=4, noise=0.1)
    assert change_points(table, shortest=3) == ends


def test_what_is_not_known_is_no_change():
    table, ends = stages((10, 10))
    table[3:5, 0] = np.nan
    assert change_points(table) == ends
    assert change_points(np.column_stack([table, np.full(20, np.nan)])) == ends
    assert change_points(np.full((20, 2), np.nan)) == []


def test_the_shortest_phase():
    table, _ = stages((10, 2, 10), series=1, noise=0.0)
    assert change_points(table, shortest=2) == [10, 12]
    assert change_points(table, shortest=12) == []
    assert change_points(table[:3]) == []


def test_refused():
    with pytest.raises(FittingError, match="one row a point"):
        change_points([1.0, 2.0])
    with pytest.raises(FittingError, match="at least 2"):
        change_points([[1.0]], shortest=1)


def test_a_steady_drift_is_no_noise():
    rng = np.random.default_rng(1)
    table = 5.0 * np.arange(2000)[:, None] + rng.normal(0, 1, (2000, 3))
    assert _noise(table) == pytest.approx(np.full(3, 1 + 2 / np.sqrt(2000)), rel=0.1)
