"""Hit ratios of a sample of the blocks against those of all."""

from __future__ import annotations

import numpy as np
import pytest

from fitting.errors import FittingError
from fitting.lru import HitRatioCurve, hit_ratio_curve
from fitting.reuse import followed
from fitting.sampled_reuse import ReuseSample, SampledCurve


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


def test_an_eighth_of_the_blocks_by_hand():
    # Of 4 sampled blocks 10 accesses, at distances 0, 1, 1, 2, 2, 2: of all, 0, 8 and 16.
    curve = SampledCurve(HitRatioCurve(10, 4, np.array([1, 2, 3])), 3)
    assert curve.footprint == 32
    assert curve.hit_ratio([0, 1, 8, 9, 16, 17, 200]).tolist() == [0, 0.1, 0.1, 0.3, 0.3, 0.6, 0.6]
    shares = curve.distances()
    assert len(shares) == 65
    assert (shares[0], shares[4], shares[5], shares[64]) == (0.1, 0.2, 0.3, 0.4)
    assert shares.sum() == pytest.approx(1)


@pytest.mark.parametrize("halvings", [0, 1, 2])
def test_a_sample_that_just_fits_is_kept(halvings):
    accessed = load(3000, 400)
    fits = sum(followed(b, halvings) for b in accessed) if halvings else len(accessed)
    for room, made in ((fits, halvings), (fits - 1, halvings + 1)):
        sample = ReuseSample(room)
        sample.add(accessed)
        assert sample.curve().halvings == made


def test_a_sample_is_halved_as_often_as_it_takes():
    accessed, most = load(3000, 400), 500
    sample = ReuseSample(most)
    for part in np.array_split(accessed, 4):
        sample.add(part)
    curve = sample.curve()

    def kept(halvings):
        return np.array([b for b in accessed if halvings == 0 or followed(b, halvings)])

    assert len(kept(curve.halvings)) <= most < len(kept(curve.halvings - 1))
    expected = hit_ratio_curve(kept(curve.halvings))
    assert curve.footprint == expected.footprint << curve.halvings
    assert curve.curve.hits[1:].tolist() == expected.hits[1:].tolist()
    assert curve.curve.accesses == len(accessed) >> curve.halvings
    assert curve.curve.hits.sum() + expected.footprint == curve.curve.accesses
