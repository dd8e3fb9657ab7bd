"""Random frequencies for property tests, priors that tuning does not move, a law of one cell."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from scipy.stats import norm

from fitting.bayes.posterior import Grid
from fitting.bayes.priors import DynamicSharePrior, StalledSharePrior

GHZ = 1e9


def frequencies(least=2, most=8):
    """Different core frequencies (Hz), 0.8 to 4.8 GHz in steps of 100 MHz, in any order."""
    steps = st.lists(st.integers(8, 48), min_size=least, max_size=most, unique=True)
    return steps.map(lambda tenths: np.array(tenths) * 1e8)


TIME_PRIOR = StalledSharePrior(
    core_bound=0.3,
    share_alpha=0.7,
    share_beta=1.1,
    uniform=0.2,
    overlap=(1.0, 4.0),
    overlap_weight=(0.6, 0.4),
    noise=0.02,
    noise_spread=1.0,
    drift_floor=0.02,
    drift_of_stalls=0.4,
    wander=(0.2, 1.0),
    wander_weight=(0.4, 0.6),
    beyond=0.6,
)
POWER_PRIOR = DynamicSharePrior(
    share_alpha=1.2,
    share_beta=0.8,
    slope=(0.1, 0.35, 0.6, 0.85, 1.1, 1.35, 1.6),
    slope_weight=(0.1, 0.15, 0.16, 0.16, 0.16, 0.15, 0.12),
    shares=11,
    noise=0.03,
    noise_spread=1.0,
    drift=0.1,
    drift_floor=0.02,
    wander=(1.0, 4.0),
    wander_weight=(0.7, 0.3),
    beyond=0.5,
)


def cdf(mixture, x):
    """P(value ≤ x) of each mixture of normals, one x a group or one for all, by scipy."""
    x = np.broadcast_to(x, mixture.mean.shape[:1])[:, None]
    below = norm.cdf(x, mixture.mean, np.sqrt(mixture.variance))
    return (mixture.weight * below).sum(axis=1)


def prior_of(grid):
    """Prior probability of each cell of a grid: (groups or 1, shapes, scales)."""
    return grid.shape_weight[:, :, None] * grid.noise_weight


class OneCell(NamedTuple):
    """A law with one cell, whose posterior is Gaussian: ln y = level + exponent·ln f."""

    noise: float = 0.03
    drift: float = 0.0
    exponent: float = -1.0
    beyond: float = 0.0
    below: float = 0.0
    direction: int = 0

    @property
    def grid(self):
        one = np.ones((1, 1))
        noise, outside = np.array([self.noise]), (self.beyond, self.below)
        return Grid(one, noise, np.ones(1), self.drift * one, *outside)

    def log_shape(self, frequency, groups):
        return self.exponent * np.log(frequency)[:, :, None]

    def log_spread(self, frequency, groups):
        return None
