"""Prior of watts against the clock: cells by hand, and scipy's beta densities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

from fitting.dynamic_share import DynamicShare, DynamicSharePrior

GHZ = 1e9
PRIOR = DynamicSharePrior(
    slope_alpha=2.0,
    slope_beta=1.5,
    share_alpha=3.0,
    share_beta=2.0,
    steepest=1.2,
    drift=0.1,
    drift_floor=0.02,
    known_voltage=0.25,
    shares=2,
    slopes=3,
    scales=2,
)
# Middles of halves and of thirds; slopes run slowest.
STATIC = np.array([0.25, 0.75] * 3)
SLOPES = np.repeat([0.2, 0.6, 1.0], 2)


def law(clock_power=None, most_static=(1.0, 0.5)):
    most = np.array(most_static)
    return DynamicShare(np.full(len(most), 2 * GHZ), most, PRIOR, clock_power)


def cube(frequency, groups):
    return (frequency / (2 * GHZ)) ** 3


class TestVoltageUnknown:
    def test_cells_are_in_the_middle_of_equal_parts(self):
        made = law()
        assert made.static == pytest.approx(STATIC)
        assert made.slope == pytest.approx(SLOPES)
        assert made.share == pytest.approx(1 - np.outer([1.0, 0.5], STATIC))

    def test_shapes_weigh_as_the_two_beta_laws(self):
        made = law()
        for group, most in enumerate([1.0, 0.5]):
            density = beta.pdf(1 - most * STATIC, 3, 2) * beta.pdf(SLOPES / 1.2, 2, 1.5)
            assert made.grid.shape_weight[group] == pytest.approx(density / density.sum())

    def test_the_model_error_goes_with_the_exponent_and_wanders(self):
        made = law().grid
        scale = 0.02 + 0.1 * (1 + 2 * SLOPES)
        expected = scale[:, None] * np.repeat(PRIOR.wander, 2)
        assert made.drift == pytest.approx(expected)

    def test_power_by_hand(self):
        # At half the clock and v = 0.6 the voltage is 0.7: a dynamic part of 0.245.
        found = law().log_shape(np.array([[1.0, 2.0]]) * GHZ, np.array([0]))
        assert np.exp(found[0, 0, 2]) == pytest.approx(1 + 0.75 * (0.5 * 0.49 - 1))
        assert found[0, 1] == pytest.approx(np.zeros(6), abs=1e-15)


class TestVoltageKnown:
    def test_one_slope_and_less_model_error(self):
        made = law(cube)
        assert made.static == pytest.approx(STATIC[:2])
        scale = 0.25 * (0.02 + 0.1 * 3)
        expected = np.tile(scale * np.repeat(PRIOR.wander, 2), (2, 1))
        assert made.grid.drift == pytest.approx(expected)

    def test_any_share_is_as_likely_unless_said(self):
        weight = DynamicShare(np.full(1, 2 * GHZ), np.ones(1), clock_power=cube).grid.shape_weight
        assert weight == pytest.approx(np.full((1, 11), 1 / 11))

    def test_shapes_weigh_as_the_share_alone(self):
        density = beta.pdf(1 - STATIC[:2], 3, 2)
        assert law(cube).grid.shape_weight[0] == pytest.approx(density / density.sum())

    def test_power_by_hand(self):
        # A cube at half the clock: an eighth of the dynamic part.
        found = law(cube).log_shape(np.array([[1.0]]) * GHZ, np.array([1]))
        expected = 1 + (1 - 0.5 * STATIC[:2]) * (1 / 8 - 1)
        assert np.exp(found[0, 0]) == pytest.approx(expected)
