"""Hit ratios of a sample of the blocks against those of all."""

from __future__ import annotations

import numpy as np
import pytest

from fitting.errors import FittingError
from fitting.lru import hit_ratio_curve
from fitting.sampled_reuse import ReuseSample


def load(n=200_000, blocks=20_000):
    rng = np.random.default_rng(9)
    return (blocks * rng.random(n) ** 2).astype(np.int64)


def test_all_blocks_where_there_is_room():
    accessed = load()
    sample = ReuseSample()
    for part in np.array_split(accessed, 7):
        sample.add(part)
    curve, whole = sample.curve(), hit_ratio_curve(accessed)
    sizes = [1, 10, 500, 5000, 50_000]
    assert curve.halvings == 0
    np.testing.assert_array_equal(curve.hit_ratio(sizes), whole.hit_ratio(sizes))
    assert curve.footprint == whole.footprint


def test_a_sample_comes_near():
    accessed = load()
    sample = ReuseSample(most=30_000)
    for part in np.array_split(accessed, 7):
        sample.add(part)
    curve, whole = sample.curve(), hit_ratio_curve(accessed)
    assert curve.halvings >= 3
    sizes = np.array([200, 1000, 4000, 10_000])
    np.testing.assert_allclose(curve.hit_ratio(sizes), whole.hit_ratio(sizes), atol=0.03)
    assert curve.footprint == pytest.approx(whole.footprint, rel=0.05)


def test_shares_of_distances_sum_to_one():
    sample = ReuseSample()
    sample.add(load(5000, 300))
    shares = sample.curve().distances()
    assert shares.sum() == pytest.approx(1)
    assert shares[-1] == pytest.approx(len(np.unique(load(5000, 300))) / 5000)


def test_nothing_is_refused():
    with pytest.raises(FittingError, match="no block"):
        ReuseSample().curve()
