"""How time falls with core frequency, as a law with a prior: the share β that the clock leaves.

    T(f) = T_ref·(β + (1 − β)·(f_ref/f)^q)^(1/q),  0 ≤ β ≤ 1, f_ref the highest measured frequency

With q = 1 stalls and work follow each other: Amdahl's law (Issa & Figueira 2012). With larger q
they overlap, so that a program turns from core-bound to memory-bound more abruptly, towards the
roofline T = max(work/f, stalls) (Williams, Waterman & Patterson 2009,
https://doi.org/10.1145/1498765.1498785). β = 0 is a core-bound program for any q.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fitting.posterior import Grid

if TYPE_CHECKING:
    from fitting.line import FloatArray, IntArray


@dataclass(frozen=True)
class StalledSharePrior:
    """Prior of β, q, noise and model error.

    Judgement, set once on public frequency sweeps: two servers, two single-board computers, 56
    phone clusters and five graphics cards, with the splits of the validation. No user's table
    needs those data; pooling moves the prior to what the user's own table shows.

    Attributes
    ----------
    core_bound : float
        Probability of β = 0 exactly: many programs never wait for memory.
    share_alpha, share_beta, uniform : float
        The rest: a Beta distribution of β, and beside it this share of a uniform one.
    overlap, overlap_weight : tuples of float
        Exponents q with their probabilities.
    noise, noise_spread : float
        Median standard deviation of ln T from run to run, and the standard deviation of its
        logarithm. The median depends on the source of the figures.
    drift_of_noise, drift_floor, drift_of_stalls : float
        Scale of the model error: floor + min(of_noise·noise, 0.05) + of_stalls·sqrt(β(1 − β)). A
        program that is all work or all stalls has little to change into.
    beyond : float
        See `fitting.posterior.Grid`.
    """

    core_bound: float = 0.3
    share_alpha: float = 0.3
    share_beta: float = 1.2
    uniform: float = 0.1
    overlap: tuple[float, ...] = (1.0, 4.0)
    overlap_weight: tuple[float, ...] = (0.85, 0.15)
    noise: float = 0.02
    noise_spread: float = 1.0
    drift_of_noise: float = 1.5
    drift_floor: float = 0.005
    drift_of_stalls: float = 0.75
    beyond: float = 0.1
    shares: int = 19
    scales: int = 8


NOISE_RANGE = (0.0005, 0.2)


class StalledShare:
    """The law's grid for groups whose highest measured frequencies are ``reference`` (Hz)."""

    def __init__(self, reference: FloatArray, prior: StalledSharePrior | None = None) -> None:
        self.reference = reference
        self.prior = prior or StalledSharePrior()

    @cached_property
    def share(self) -> FloatArray:
        """β of each shape: (shapes,)."""
        # Denser near 0, where a small share decides how far a higher clock carries.
        return np.tile(np.linspace(0, 1, self.prior.shares) ** 2, len(self.prior.overlap))

    @cached_property
    def overlap(self) -> FloatArray:
        """Exponent q of each shape: (shapes,)."""
        return np.repeat(self.prior.overlap, self.prior.shares)

    @cached_property
    def grid(self) -> Grid:
        """Cells with their prior; the same for all groups."""
        p = self.prior
        noise, noise_weight = noise_grid(p.noise, p.noise_spread, p.scales, NOISE_RANGE)
        weight = np.outer(p.overlap_weight, _share_weight(p)).ravel()
        stalls = np.sqrt(self.share * (1 - self.share))
        drift = p.drift_floor + np.minimum(p.drift_of_noise * noise, 0.05)
        drift = drift + p.drift_of_stalls * stalls[:, None]
        return Grid(weight[None] / weight.sum(), noise, noise_weight, drift, p.beyond)

    def log_shape(self, frequency: FloatArray, groups: IntArray) -> FloatArray:
        """Ln T/T_ref of the shapes at (groups, k) frequencies: (groups, k, shapes)."""
        slower = np.log(self.reference[groups, None] / frequency)[:, :, None]
        power = np.exp(slower * self.overlap)
        power *= 1 - self.share
        power += self.share
        return np.log(power, out=power) / self.overlap


def noise_grid(
    median: float, spread: float, scales: int, limits: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """Log-spaced noise levels and their log-normal prior probabilities."""
    noise = np.geomspace(*limits, scales)
    weight = np.exp(-0.5 * (np.log(noise / median) / spread) ** 2)
    return noise, weight / weight.sum()


def _share_weight(prior: StalledSharePrior) -> FloatArray:
    from scipy.special import betainc

    share = np.linspace(0, 1, prior.shares) ** 2
    edges = np.concatenate([[0.0], (share[1:] + share[:-1]) / 2, [1.0]])
    smooth = np.diff(betainc(prior.share_alpha, prior.share_beta, edges))
    smooth = (1 - prior.uniform) * smooth + prior.uniform * np.diff(edges)
    weight = (1 - prior.core_bound) * smooth
    weight[0] += prior.core_bound
    return weight
