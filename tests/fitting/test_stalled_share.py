"""Prior of times against the clock: cells by hand, and scipy's beta law."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, lognorm

from fitting.stalled_share import StalledShare, StalledSharePrior, noise_grid

GHZ = 1e9
PRIOR = StalledSharePrior(
    core_bound=0.4,
    share_alpha=0.7,
    share_beta=1.5,
    uniform=0.2,
    overlap=(1.0, 2.0),
    overlap_weight=(0.75, 0.25),
    noise=0.03,
    noise_spread=0.8,
    drift_of_noise=2.0,
    drift_floor=0.01,
    drift_of_stalls=0.5,
    shares=5,
    scales=3,
)
SHARE = np.array([0.0, 1 / 16, 1 / 4, 9 / 16, 1.0])


@pytest.fixture
def law():
    return StalledShare(np.array([2 * GHZ]), PRIOR)


def test_shares_are_denser_near_none_for_each_overlap(law):
    assert law.share == pytest.approx(np.tile(SHARE, 2))
    assert law.overlap.tolist() == [1.0] * 5 + [2.0] * 5


def test_shares_weigh_as_the_beta_law_between_their_middles(law):
    edges = [0.0, 1 / 32, 5 / 32, 13 / 32, 25 / 32, 1.0]
    rest = 0.8 * np.diff(beta.cdf(edges, 0.7, 1.5)) + 0.2 * np.diff(edges)
    weight = 0.6 * rest + np.array([0.4, 0, 0, 0, 0])
    found = law.grid.shape_weight[0]
    assert found == pytest.approx(np.concatenate([0.75 * weight, 0.25 * weight]))
    assert found.sum() == pytest.approx(1)


def test_noise_is_log_normal_over_its_range():
    noise, weight = noise_grid(0.03, 0.8, 5, (0.003, 0.3))
    assert noise == pytest.approx(0.003 * 10 ** np.array([0, 0.5, 1, 1.5, 2]))
    # Levels are evenly spaced in the logarithm, in which the density is noise times that of noise.
    density = noise * lognorm.pdf(noise, 0.8, scale=0.03)
    assert weight == pytest.approx(density / density.sum())


def test_model_error_by_hand(law):
    noise = law.grid.noise
    assert noise == pytest.approx([0.0005, 0.01, 0.2])
    # Stalls of a sixteenth and a quarter: roots of 15/256 and of 3/16.
    stalls = np.sqrt([0, 15 / 256, 3 / 16, 63 / 256, 0])
    # Of the noise: a thousandth, two hundredths, and no more than five.
    expected = 0.01 + np.array([0.001, 0.02, 0.05]) + 0.5 * np.tile(stalls, 2)[:, None]
    assert law.grid.drift == pytest.approx(expected)
    assert law.grid.beyond == PRIOR.beyond


def test_times_by_hand(law):
    found = np.exp(law.log_shape(np.array([[1.0, 2.0]]) * GHZ, np.array([0])))
    # Half the clock doubles what is no stall; with an overlap of 2 the squares add up.
    assert found[0, 0, 2] == pytest.approx(0.75 * 2 + 0.25)
    assert found[0, 0, 7] == pytest.approx(np.sqrt(0.75 * 4 + 0.25))
    assert found[0, 1] == pytest.approx(np.ones(10))
