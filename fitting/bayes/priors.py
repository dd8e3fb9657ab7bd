"""How time and power change with core frequency, as laws with a prior.

    T(f) = T_ref·(β + (1 − β)·(f_ref/f)^q)^(1/q),  0 ≤ β ≤ 1, f_ref the highest measured frequency

β is the memory-bound (stall) fraction: the share of time that the core frequency does not change.
With q = 1 stalls and work follow each other: Amdahl's law (Issa & Figueira 2012). With larger q
they overlap, so that a program turns from core-bound to memory-bound more abruptly, towards the
roofline T = max(work/f, stalls) (Williams, Waterman & Patterson 2009,
https://doi.org/10.1145/1498765.1498785). β = 0 is a core-bound program for any q.

    P(f) = P_ref·((1 − δ) + δ·φ·u(φ)²),  φ = f/f_ref,  u(φ) = V(f)/V(f_ref)

with the dynamic power fraction δ in (0, 1). The voltage is affine in the frequency down to the
lowest that the chip holds: u(φ) = max(u_min, 1 + v·(φ − 1)), so that v = 0 is the straight line
(Issa & Figueira 2012), v = 1 the cube, and v = 2 has the local exponent 5 at f_ref. A recorded V-f
table or a given exponent takes the place of v. Source: dynamic CMOS power C·V²·f, e.g. Weste &
Harris, *CMOS VLSI Design*, ch. 5.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fitting.bayes.posterior import Grid
from fitting.regression.lines import FloatArray, IntArray

STALLED_NOISE_RANGE = (0.0005, 0.2)
DYNAMIC_NOISE_RANGE = (0.004, 0.15)


@dataclass(frozen=True)
class StalledSharePrior:
    """Prior of β, q, noise and model error.

    Judgement, set once on public frequency sweeps: two servers, two single-board computers, 56
    phone clusters and five graphics cards, with the splits of the validation. No user's table
    needs those data; pooling moves the prior to what the user's own table shows.

    The scale of the model error is floor + of_stalls·sqrt(β(1 − β)), times ``wander``: a program
    that is all work or all stalls has little to change into, and many follow the law to a hair.
    """

    core_bound: float = 0.1  # probability of β = 0 exactly: many programs never wait for memory
    share_alpha: float = 0.3  # beta distribution of the other β
    share_beta: float = 1.1
    uniform: float = 0.12  # share of a uniform distribution beside it
    overlap: tuple[float, ...] = (1.0, 2.0)  # exponents q
    overlap_weight: tuple[float, ...] = (0.72, 0.28)  # their probabilities
    noise: float = 0.012  # median standard deviation of ln T from run to run, by source of figures
    noise_spread: float = 1.3  # standard deviation of its logarithm
    drift_floor: float = 0.045
    drift_of_stalls: float = 0.75
    wander: tuple[float, ...] = (0.045, 0.3, 1.0)  # multiples of the scale of the model error
    wander_weight: tuple[float, ...] = (0.35, 0.4, 0.25)  # their probabilities
    beyond: float = 0.055  # see `fitting.bayes.posterior.Grid`
    shares: int = 24
    scales: int = 7


class StalledShare:
    """The law's grid for groups whose highest measured frequencies are ``reference`` (Hz)."""

    direction = -1

    def __init__(self, reference: FloatArray, prior: StalledSharePrior | None = None) -> None:
        from scipy.special import betainc

        self.reference = reference
        self.prior = p = prior or StalledSharePrior()
        # β = 0, then cells that are narrower near 0, where a small share decides how far a higher
        # frequency carries, and near 1. Inside its cell β is normal: neighbours overlap to a smooth
        # density.
        edges = 1 - (1 - np.linspace(0, 1, p.shares + 1) ** 2) ** 1.5
        middle = (edges[1:] + edges[:-1]) / 2
        smooth = np.diff(betainc(p.share_alpha, p.share_beta, edges))
        smooth = (1 - p.core_bound) * ((1 - p.uniform) * smooth + p.uniform * np.diff(edges))
        laws = len(p.overlap)
        # β, its deviation and the exponent q of each shape. With β = 0 all q are one law.
        self.share = np.append(0.0, np.tile(middle, laws))
        self.spread = np.append(0.0, np.tile(0.4 * np.diff(edges), laws))
        self.overlap = np.append(1.0, np.repeat(p.overlap, p.shares))
        weight = np.append(p.core_bound, np.outer(p.overlap_weight, smooth))
        noise, noise_weight = noise_grid(p.noise, p.noise_spread, p.scales, STALLED_NOISE_RANGE)
        stalls = np.sqrt(self.share * (1 - self.share))
        drift = p.drift_floor + p.drift_of_stalls * stalls[:, None]
        # The cells and their prior are the same for all groups. Scales run over the noise, then
        # over ``wander``.
        self.grid = Grid(
            weight[None] / weight.sum(),
            np.tile(noise, len(p.wander)),
            np.outer(p.wander_weight, noise_weight).ravel(),
            drift * np.repeat(p.wander, p.scales),
            p.beyond,
        )

    def log_shape(self, frequency: FloatArray, groups: IntArray) -> FloatArray:
        """Ln T/T_ref of the shapes at (groups, k) frequencies: (groups, k, shapes)."""
        power = self._power(frequency, groups)
        power *= 1 - self.share
        power += self.share
        return np.log(power, out=power) / self.overlap

    def log_spread(self, frequency: FloatArray, groups: IntArray) -> FloatArray | None:
        """Change of ln T/T_ref by one deviation of β, of the same shape."""
        power = self._power(frequency, groups)
        change: FloatArray = (1 - power) / (self.share + (1 - self.share) * power)
        change *= self.spread / self.overlap
        return change

    def _power(self, frequency: FloatArray, groups: IntArray) -> FloatArray:
        """(f_ref/f)^q of the shapes, which have few different q."""
        slower = np.log(self.reference[groups, None] / frequency)[:, :, None]
        overlap, number = np.unique(self.overlap, return_inverse=True)
        return np.exp(slower * overlap)[:, :, number]


def noise_grid(
    median: float, spread: float, scales: int, limits: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """Log-spaced noise levels and their log-normal prior probabilities."""
    noise = np.geomspace(*limits, scales)
    weight = np.exp(-0.5 * (np.log(noise / median) / spread) ** 2)
    return noise, weight / weight.sum()


@dataclass(frozen=True)
class DynamicSharePrior:
    """Prior of δ, v, noise and model error; judgement of the same origin as that of β.

    The scale of the model error is floor + drift·(1 + 2v); 1 + 2v is the dynamic part's exponent.
    Most curves follow their form; some have a knee (a lowest voltage, a power cap) that their low
    frequencies cannot show, hence ``wander``.
    """

    share_alpha: float = 1.2  # beta distribution of the dynamic power fraction δ
    share_beta: float = 1.4
    # Voltage slopes v, and their probabilities: power bends down, is a straight line, is nearly one
    # (servers), or grows with the cube and more (small chips at their limit).
    slope: tuple[float, ...] = (-0.2, 0.0, 0.1, 0.2, 0.3, 0.45, 0.65, 0.9, 1.15, 1.4, 1.65)
    slope_weight: tuple[float, ...] = (
        *(0.045, 0.05, 0.16, 0.16, 0.16, 0.025),
        *(0.035, 0.05, 0.07, 0.1, 0.145),
    )
    lowest_voltage: float = 0.27  # u_min
    noise: float = 0.033  # median standard deviation of ln P from run to run
    noise_spread: float = 1.3  # standard deviation of its logarithm
    drift: float = 0.03
    drift_floor: float = 0.012
    wander: tuple[float, ...] = (1.0, 3.0, 8.0)  # multiples of the scale of the model error
    wander_weight: tuple[float, ...] = (0.85, 0.05, 0.1)  # their probabilities
    known_voltage: float = 0.5  # multiple of the scale where a V-f table or exponent is given
    beyond: float = 0.5  # see `fitting.bayes.posterior.Grid`
    below: float = 0.4
    shares: int = 16
    scales: int = 4

    def static_nodes(self) -> FloatArray:
        """Nodes of the static power, as shares of the most that it can be: (shares,)."""
        return (np.arange(self.shares) + 0.5) / self.shares


class DynamicShare:
    """The law's grid for groups whose highest measured frequencies are ``reference`` (Hz).

    ``most_static`` is the largest static fraction 1 − δ of each group: 1, or less where groups
    share their static power, whose grid then runs from 0 to the least power of them all.
    ``clock_power`` gives φ·u(φ)² at (groups, k) frequencies (Hz) of the groups numbered, where the
    voltage or the exponent is known; v then has one value.
    """

    direction = 1

    def __init__(
        self,
        reference: FloatArray,
        most_static: FloatArray,
        prior: DynamicSharePrior | None = None,
        clock_power: Callable[[FloatArray, IntArray], FloatArray] | None = None,
    ) -> None:
        self.reference = reference
        prior = prior or DynamicSharePrior()
        if clock_power is not None:
            prior = replace(prior, slope=(1.0,), slope_weight=(1.0,))
        self.prior = p = prior
        self.most_static, self.clock_power = most_static, clock_power
        # Slope v and static share of the most of each shape, and its δ: (groups, shapes).
        self.slope = np.repeat(p.slope, p.shares)
        self.static = np.tile(p.static_nodes(), len(p.slope))
        self.share = 1 - most_static[:, None] * self.static
        inside = np.clip(self.share, 1e-3, 1 - 1e-3)
        weight = _beta(inside, p.share_alpha, p.share_beta)
        weight = weight * np.repeat(p.slope_weight, p.shares)
        noise, noise_weight = noise_grid(p.noise, p.noise_spread, p.scales, DYNAMIC_NOISE_RANGE)
        scale_weight = np.outer(p.wander_weight, noise_weight).ravel()
        # A known curve's own exponent is in its shape; what is left is like a cube's error.
        exponent = np.full_like(self.slope, 3.0) if clock_power else 1 + 2 * np.abs(self.slope)
        drift = (p.drift_floor + p.drift * exponent)[:, None] * np.repeat(p.wander, p.scales)
        # Scales run over the noise, then over ``wander``.
        self.grid = Grid(
            weight / weight.sum(axis=1, keepdims=True),
            np.tile(noise, len(p.wander)),
            scale_weight / scale_weight.sum(),
            drift if clock_power is None else drift * p.known_voltage,
            p.beyond,
            p.below,
        )

    def log_shape(self, frequency: FloatArray, groups: IntArray) -> FloatArray:
        """Ln P/P_ref of the shapes at (groups, k) frequencies: (groups, k, shapes)."""
        reference = self.reference[groups]
        if self.clock_power is None:
            clock = (frequency / reference[:, None])[:, :, None]
            voltage = np.maximum(self.prior.lowest_voltage, 1 + self.slope * (clock - 1))
            dynamic = clock * voltage**2
        else:
            dynamic = self.clock_power(frequency, groups)[:, :, None]
        share = self.share[groups][:, None, :]
        return np.log(1 + share * (dynamic - 1))

    def log_spread(self, frequency: FloatArray, groups: IntArray) -> None:
        """No node has a spread: groups of a host share δ and v, each node as it stands."""


def _beta(x: FloatArray, alpha: float, beta: float) -> FloatArray:
    """Density of a beta distribution within (0, 1), up to a factor."""
    return x ** (alpha - 1) * (1 - x) ** (beta - 1)
