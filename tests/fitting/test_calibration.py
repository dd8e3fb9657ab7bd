"""Simulation-based calibration: what the prior makes, the posterior must find at its own rates.

Talts et al. (2018), https://arxiv.org/abs/1804.06788: where cell, curve and noise are drawn from
the prior and the runs from them, the posterior's cdf at the truth is uniform. Here the truth is the
mean of new runs at the target. The path of the model error is simulated step by step from the
differential equation, not from the covariance under test.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binomtest, chisquare, kstest
from strategies import GHZ

from fitting.dynamic_share import DynamicShare, DynamicSharePrior
from fitting.pooled_curves import NO_POOLING, Neighbours, PowerCurve, TimeCurve
from fitting.pooling import posterior_cells
from fitting.posterior import SHARED_NOISE, Target
from fitting.projected import project_curve
from fitting.stalled_share import StalledShare, StalledSharePrior
from fitting.steps import Steps

DRAWS = 10_000
# By chance a right model falls short of it once in a thousand seeds.
LEAST = 0.001
BINS = 20


@dataclass(frozen=True)
class Design:
    """Measured steps (GHz) with their runs, and what is asked."""

    steps: tuple[float, ...]
    runs: tuple[int, ...]
    target: float
    target_runs: int


# Above, below and between two or three steps, with and without repeats.
DESIGNS = (
    Design((1.5, 2.5), (1, 1), 3.5, 1),
    Design((2.0, 2.4), (3, 2), 1.1, 3),
    Design((1.2, 1.8, 2.6), (1, 1, 1), 3.6, 1),
    Design((1.0, 1.9, 3.4), (2, 1, 4), 2.4, 2),
)

# A fixed prior, so that tuning what is shipped moves no test. Every part of it is in play.
TIME = TimeCurve(
    prior=StalledSharePrior(
        core_bound=0.3,
        share_alpha=0.7,
        share_beta=1.1,
        uniform=0.2,
        overlap=(1.0, 4.0),
        overlap_weight=(0.6, 0.4),
        noise=0.02,
        noise_spread=1.0,
        drift_of_noise=1.5,
        drift_floor=0.01,
        drift_of_stalls=0.4,
        beyond=0.6,
    ),
    pooling=NO_POOLING,
)
POWER = PowerCurve(
    prior=DynamicSharePrior(
        share_alpha=1.2,
        share_beta=0.8,
        slope_alpha=1.1,
        slope_beta=1.3,
        noise=0.03,
        noise_spread=1.0,
        drift=0.1,
        drift_floor=0.02,
        wander=(1.0, 4.0),
        wander_weight=(0.7, 0.3),
        beyond=0.5,
    ),
    pooling=NO_POOLING,
)
CURVES = {"time": TIME, "power": POWER}
curves = pytest.mark.parametrize("kind", CURVES)


def log_time(law: StalledShare, cell, frequency, reference):
    stalled, q = law.share[cell][:, None], law.overlap[cell][:, None]
    return np.log(stalled + (1 - stalled) * (reference / frequency) ** q) / q


def log_power(law: DynamicShare, cell, frequency, reference):
    dynamic, slope = law.share[0, cell][:, None], law.slope[cell][:, None]
    clock = frequency / reference
    voltage = np.maximum(law.prior.lowest_voltage, 1 + slope * (clock - 1))
    return np.log((1 - dynamic) + dynamic * clock * voltage**2)


def wandered(rng, scale, u):
    """Paths at distances u of a curve that sets out flat from 0 with a slope that does a walk."""
    path = np.zeros((len(scale), len(u)))
    for side in (1, -1):
        level, slope, at = np.zeros(len(scale)), np.zeros(len(scale)), 0.0
        for i in np.argsort(side * u):
            if side * u[i] <= 0:
                continue
            h, at = side * u[i] - at, side * u[i]
            first, second = rng.standard_normal((2, len(scale)))
            # Increments of (∫W, W) over h: variances h³/3 and h, covariance h²/2.
            level = level + h * slope + scale * np.sqrt(h) * h * (first / 2 + second / np.sqrt(12))
            slope = slope + scale * np.sqrt(h) * first
            path[:, i] = level
    return path


def law_and_shape(kind, reference):
    """Law of one group, and its formula."""
    if kind == "time":
        return StalledShare(reference, TIME.prior), log_time
    return DynamicShare(reference, np.ones(1), POWER.prior), log_power


def simulated(kind, draws, seed, noisier=1.0):
    """Runs of groups drawn from the prior, and the mean of new runs of each at its target.

    ``noisier`` times the noise is in the runs that is in their cell.
    """
    rng = np.random.default_rng(seed)
    size = draws // len(DESIGNS)
    rows, truth, target = [], [], []
    for number, design in enumerate(DESIGNS):
        frequency = np.array([*design.steps, design.target]) * GHZ
        reference = frequency[:-1].max(keepdims=True)
        law, log_shape = law_and_shape(kind, reference)
        grid = law.grid
        prior = grid.prior()[0]
        drawn = rng.choice(prior.size, size, p=prior.ravel())
        shape, scale = np.unravel_index(drawn, prior.shape)
        nearest = np.argmin(np.abs(np.log(frequency[:-1] / frequency[-1])))
        drift = wandered(rng, grid.drift[shape, scale], np.log(frequency / frequency[nearest]))
        out = np.log(np.maximum(frequency / reference, 1.0))
        beyond = grid.beyond * grid.drift[shape, scale] * rng.standard_normal(size)
        drift += beyond[:, None] * np.sqrt(out)
        sigma = noisier * grid.noise[scale][:, None]
        shared = sigma * np.sqrt(SHARED_NOISE) * rng.standard_normal(drift.shape)
        own = sigma * np.sqrt(1 - SHARED_NOISE)
        # The level is anything.
        level = rng.uniform(-9, 9, (size, 1))
        at_step = level + log_shape(law, shape, frequency, reference) + drift + shared
        for i, runs in enumerate(design.runs):
            value = at_step[:, [i]] + own * rng.standard_normal((size, runs))
            group = np.repeat(number * size + np.arange(size), runs)
            rows.append((group, np.full(len(group), frequency[i]), value.ravel()))
        new = own * rng.standard_normal((size, design.target_runs))
        truth.append(at_step[:, -1] + new.mean(axis=1))
        target.append(np.tile([frequency[-1], design.target_runs], (size, 1)))
    columns = (np.concatenate(column) for column in zip(*rows, strict=True))
    return Steps.of(*columns, draws), Target(*np.concatenate(target).T), np.concatenate(truth)


def apart(truth):
    """Every group a cluster of its own."""
    return Neighbours(np.arange(len(truth)), np.zeros(len(truth)))


def ranks(kind, steps, target, truth):
    """Posterior cdf at the truth, summed over all cells of the grid."""
    rank = np.empty(len(truth))
    groups = np.arange(len(truth))
    for cells in posterior_cells(CURVES[kind], steps, target, apart(truth), groups):
        found = cells.evidence
        miss = truth[cells.groups][:, None, None] - found.mean
        below = ndtr(miss / np.sqrt(found.variance)[found.design])
        rank[cells.groups] = np.einsum("gts,gts->g", cells.weight, below)
    return rank


def uniformity(rank):
    """p values of chi-square over 20 bins and of Kolmogorov and Smirnov."""
    counts, _ = np.histogram(rank, BINS, (0, 1))
    return chisquare(counts).pvalue, kstest(rank, "uniform").pvalue


@curves
def test_ranks_of_the_truth_are_uniform(kind):
    rank = ranks(kind, *simulated(kind, 4 * DRAWS, seed=20180418))
    assert min(uniformity(rank)) > LEAST
    # And for each design by itself.
    for part in np.split(rank, len(DESIGNS)):
        assert min(uniformity(part)) > LEAST


@curves
def test_ranks_tell_when_the_noise_is_twice_what_the_runs_say(kind):
    rank = ranks(kind, *simulated(kind, DRAWS, seed=20180418, noisier=2.0))
    assert max(uniformity(rank)) < LEAST


@curves
def test_projected_quantiles_cover_at_their_rates(kind):
    # A projection gathers the cells into few components: what is left of the uniformity.
    steps, target, truth = simulated(kind, DRAWS, seed=20180418)
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    made = project_curve(CURVES[kind], steps, target, apart(truth), levels)
    for level, quantile in zip(levels, made.quantiles, strict=True):
        covered = int((truth <= quantile).sum())
        assert binomtest(covered, DRAWS, level).pvalue > LEAST
    moved = made.mixture.cdf(truth) - ranks(kind, steps, target, truth)
    assert np.sqrt((moved**2).mean()) < 0.01


@curves
def test_variances_are_those_of_the_misses(kind):
    steps, target, truth = simulated(kind, DRAWS, seed=20180418)
    made = project_curve(CURVES[kind], steps, target, apart(truth), (0.5,))
    middle, variance = made.mixture.moments()
    np.testing.assert_allclose(made.fit + made.form + made.noise, variance, rtol=1e-9)
    squares = (truth - middle) ** 2 / variance
    # The mean of squares that are 1 on average, within four of its own standard errors.
    assert abs(squares.mean() - 1) < 4 * squares.std() / np.sqrt(DRAWS)
