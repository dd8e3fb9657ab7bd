"""Mixtures of normal distributions, one a group: quantiles, products and comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fitting.line import FloatArray, IntArray

# A quantile is found to about this share of the mixture's standard deviation.
_PRECISION = 5e-4
_MOST_STEPS = 60


class Mixture(NamedTuple):
    """Mixtures of normals: (groups, components) arrays; weights of a group sum to 1."""

    mean: FloatArray
    variance: FloatArray
    weight: FloatArray

    @classmethod
    def unknown(cls, groups: int, components: int = 1) -> Mixture:
        """Mixtures of NaN."""
        return cls(*(np.full((groups, components), np.nan) for _ in range(3)))

    def take(self, groups: IntArray) -> Mixture:
        """Select some groups."""
        return Mixture(*(part[groups] for part in self))

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of each mixture."""
        middle = np.einsum("gc,gc->g", self.weight, self.mean)
        apart = (self.mean - middle[:, None]) ** 2
        return middle, np.einsum("gc,gc->g", self.weight, self.variance + apart)

    def cdf(self, x: FloatArray | float) -> FloatArray:
        """P(value ≤ x), one x a group or one for all."""
        from scipy.special import ndtr

        at = np.broadcast_to(x, self.mean.shape[:1])[:, None]
        probability: FloatArray = np.einsum(
            "gc,gc->g", self.weight, ndtr((at - self.mean) / np.sqrt(self.variance))
        )
        return probability

    def scaled(self, factor: float) -> Mixture:
        """Distribution of ``factor`` times the value."""
        return Mixture(self.mean * factor, self.variance * factor**2, self.weight)

    def shifted(self, by: FloatArray | float) -> Mixture:
        """Distribution of the value plus a constant, one a group or one for all."""
        return self._replace(mean=self.mean + np.reshape(by, (-1, 1)))

    def plus(self, other: Mixture) -> Mixture:
        """Distribution of the sum of two independent values."""
        groups = len(self.mean)
        pairs = (
            self.mean[:, :, None] + other.mean[:, None, :],
            self.variance[:, :, None] + other.variance[:, None, :],
            self.weight[:, :, None] * other.weight[:, None, :],
        )
        return Mixture(*(part.reshape(groups, -1) for part in pairs))

    def trimmed(self, most: int) -> Mixture:
        """Keep the ``most`` weighty components; the rest become one with their moments."""
        if self.mean.shape[1] <= most + 1:
            return self
        kept = np.argpartition(-self.weight, most, axis=1)
        part = [np.take_along_axis(a, kept, 1) for a in self]
        rest = Mixture(*(a[:, most:] for a in part))
        mass = rest.weight.sum(axis=1)
        share = rest.weight / np.maximum(mass, 1e-300)[:, None]
        mean, variance = rest._replace(weight=share).moments()
        # Without mass there are no moments to keep.
        variance[mass <= 1e-200] = 1.0
        ends = (mean, variance, mass)
        return Mixture(
            *(np.column_stack([a[:, :most], e]) for a, e in zip(part, ends, strict=True))
        )

    def quantiles(self, probabilities: Sequence[float]) -> FloatArray:
        """Quantiles: (probabilities, groups), NaN for an unknown mixture.

        To about a thousandth of each mixture's standard deviation.
        """
        made = np.full((len(probabilities), len(self.mean)), np.nan)
        known = np.flatnonzero(~np.isnan(self.mean).any(axis=1))
        mixture = self.take(known)
        middle, spread = mixture.moments()
        for row, p in zip(made, probabilities, strict=True):
            row[known] = _quantile(p, mixture, middle, np.sqrt(spread))
        return made


def _quantile(p: float, mixture: Mixture, middle: FloatArray, scale: FloatArray) -> FloatArray:
    """Illinois regula falsi in a bracket that Cantelli's inequality gives, all groups at once."""
    from scipy.special import ndtri

    # All but a share p of a distribution lies within sqrt(1/p − 1) deviations of its mean.
    low = middle - scale * np.sqrt(1 / p - 1)
    high = middle + scale * np.sqrt(1 / (1 - p) - 1)
    at_low, at_high = np.full_like(low, -p), np.full_like(high, 1 - p)
    x = np.clip(middle + scale * ndtri(p), low, high)
    for step in range(_MOST_STEPS):
        excess = mixture.cdf(x) - p
        above = excess > 0
        # An end that stays is believed half as much, so that it cannot stay for long.
        at_high = np.where(above, excess, at_high / 2 if step else at_high)
        at_low = np.where(above, at_low / 2 if step else at_low, excess)
        high, low = np.where(above, x, high), np.where(above, low, x)
        guess = low - at_low * (high - low) / (at_high - at_low)
        moved = np.abs(guess - x)
        x = guess
        if (np.minimum(high - low, 2 * moved) < _PRECISION * scale).all():
            break
    return x
