"""Power against load from few levels: what a server draws at a load that was not measured.

The power of a server is a straight line in its load plus a departure from it, a Gaussian process
whose covariance is known (universal kriging with a linear drift: Cressie, *Statistics for Spatial
Data*, rev. ed. 1993, section 3.4; Rasmussen & Williams, *Gaussian Processes for Machine Learning*,
2006, section 2.7). Two levels leave the line; a third one also tells how far the curve bends, and
its bend is shrunk towards none.

Two covariances are in use. The shape, which weighs the levels, is a quadratic with some roughness:
it was chosen for small errors at full load over servers of 2007 to 2012. The spread, which gives
the intervals, is an integrated Wiener process (the prior of a cubic smoothing spline: Wahba,
*Spline Models for Observational Data*, 1990), as wide as the errors of the servers of 2012 are,
whose core frequencies rise at high load; older servers are closer to the line than it says. The
scale of a server is the share of its full power that follows the load, raised to an exponent; what
its levels show of a departure widens or narrows it (inverse gamma prior, so that the interval is
Student's t). Newer servers depart in ways that these did not: the interval's tails grow, and its
width above the levels, with the years between them.

Source of the constants: published results of SPECpower_ssj2008 (www.spec.org/power_ssj2008).
Its tasks in `make accuracy` (`benchmarks/accuracy_power_load.py`) show errors and coverage, also of
years that took no part.
"""

from typing import NamedTuple

import numpy as np

from fitting.errors import FittingError
from fitting.regression.lines import BoolArray, FloatArray, student_quantile


class Covariance(NamedTuple):
    """Standard deviations of what makes a curve leave its straight line, by cause."""

    quadratic: float  # coefficient of load²
    bend: float  # integrated Wiener process: change of the slope over a load of 1
    rough: float  # departure that is forgotten within `ROUGHNESS_RANGE`
    asleep: float  # of idle alone, where a server enters states it never enters under load


# Only ratios count in the shape.
SHAPE = Covariance(quadratic=30.0, bend=20.0, rough=1.0, asleep=5.0)
# In units of the scale of a server.
SPREAD = Covariance(quadratic=0.0, bend=1.0, rough=0.0045, asleep=0.10)
ROUGHNESS_RANGE = 0.4
SCALE_EXPONENT = 1.45
# Near full load core frequencies rise and power limits begin, of which lower levels show nothing:
# factor of the width above the levels. Both for servers of the years learnt from, and for servers
# newer by `YEARS_TO_WIDEST` or more; 1/degrees of freedom and the factor rise evenly between.
SCALE_DEGREES_OF_FREEDOM = (15.0, 5.0)
ABOVE_THE_LEVELS = (1.4, 1.8)
YEARS_TO_WIDEST = 3.0
LEARNT_TO_YEAR = 2012
# A server has some part that follows the load, even where two levels show none.
_LEAST_SHARE, _MOST_SHARE = 0.05, 1.5

_DRIFT = 2
_SAME_LOAD = 1e-6


class PowerForecast(NamedTuple):
    """Power (W) at the loads asked for; (servers, asked) arrays."""

    watts: FloatArray  # NaN where the curve falls to zero or a server has less than two levels
    half_width: FloatArray  # of the prediction interval, which is symmetric
    extrapolated: BoolArray  # True outside the levels of the server

    @property
    def lower(self) -> FloatArray:
        """Lower end of the prediction interval (W), at least 0."""
        return np.maximum(self.watts - self.half_width, 0)

    @property
    def upper(self) -> FloatArray:
        """Upper end of the prediction interval (W)."""
        return self.watts + self.half_width


def forecast_power(
    load: FloatArray,
    power: FloatArray,
    asked: FloatArray,
    *,
    level: float = 0.90,
    years_newer: FloatArray | float = 0.0,
) -> PowerForecast:
    """Forecast the power (W) of many servers at loads that were not measured.

    Loads are shares of full load, 0 or more, in any order: (servers, levels), or one row for all
    servers; NaN where a server has no such level. ``power`` is (servers, levels), above 0; NaN
    where not measured. ``level`` is that of the intervals, inside (0, 1). ``years_newer`` is how
    much newer the servers are than those that the widths of the intervals were learnt from, one
    for all or one a server: intervals widen up to `YEARS_TO_WIDEST`.
    """
    load, power, asked = _check_levels(load, power, asked)
    age = np.clip(np.asarray(years_newer, dtype=float) / YEARS_TO_WIDEST, 0.0, 1.0)
    age = np.broadcast_to(age, len(power))
    found = np.full((2, *asked.shape), np.nan)
    extrapolated = np.zeros(asked.shape, dtype=bool)
    known = ~(np.isnan(load) | np.isnan(power))
    # Servers with the same levels missing are one stack of equal systems.
    patterns, which = np.unique(known, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        if pattern.sum() < _DRIFT:
            continue
        of = np.flatnonzero(which.reshape(-1) == number)
        stack = _Stack(load[of][:, pattern], power[of][:, pattern], asked[of], age[of])
        found[:, of] = stack.forecast(level)
        low, high = stack.load.min(axis=1)[:, None], stack.load.max(axis=1)[:, None]
        extrapolated[of] = (asked[of] < low - _SAME_LOAD) | (asked[of] > high + _SAME_LOAD)
    return PowerForecast(found[0], found[1], extrapolated)


# Figures of energy proportionality: how nearly the power of a server follows its load. All take
# loads and power of the levels, rising from idle (load 0) to full load (1). Sources: EP: Ryckbosch,
# Polfliet & Eeckhout (2011), https://doi.org/10.1109/MC.2011.130. IPR and LDR: Varsamopoulos &
# Gupta (2010), https://doi.org/10.1109/ICPPW.2010.68. Dynamic range: Wong & Annavaram
# (2012), https://doi.org/10.1109/MICRO.2012.20.


def idle_to_peak(power: FloatArray) -> float:
    """P(idle)/P(full), the IPR: 0 for a proportional server, 1 for one whose load costs nothing."""
    return float(power[0] / power[-1])


def dynamic_range(power: FloatArray) -> float:
    """1 − P(idle)/P(full): share of the full power that follows the load."""
    return 1 - idle_to_peak(power)


def energy_proportionality(load: FloatArray, power: FloatArray) -> float:
    """EP = 1 − (A − 1/2)/(1/2), with A the area under P(u)/P(full) by trapezoids.

    1 for power in proportion to load, 0 for constant power, above 1 for a curve below the
    proportional line. For a straight line it is the dynamic range.
    """
    area = float(np.trapezoid(power / power[-1], load))
    return 1 - (area - 0.5) / 0.5


def linear_deviation(load: FloatArray, power: FloatArray) -> tuple[float, float]:
    """Return the largest deviation (with its sign) from the line idle to full, and its load."""
    line = power[0] + (power[-1] - power[0]) * load
    deviation = power / line - 1
    at = int(np.argmax(np.abs(deviation)))
    return float(deviation[at]), float(load[at])


def peak_efficiency(load: FloatArray, power: FloatArray) -> tuple[float, float]:
    """Return the load with most work per joule, and that work over the one at full load."""
    relative = load * power[-1] / power
    at = int(np.argmax(relative))
    return float(load[at]), float(relative[at])


def _check_levels(
    load: FloatArray, power: FloatArray, asked: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return loads and power as (servers, …) arrays. Raises `FittingError` for impossible ones."""
    power = np.asarray(power, dtype=np.float64)
    load, asked = np.asarray(load, dtype=np.float64), np.asarray(asked, dtype=np.float64)
    # One row of loads may serve all servers.
    fits = power.ndim == 2 and load.shape in (power.shape, power.shape[1:])
    if not fits or asked.ndim not in (1, 2) or (asked.ndim == 2 and len(asked) != len(power)):
        raise FittingError(
            f"load {load.shape}, power {power.shape} and asked {asked.shape} are not arrays of "
            "(servers, levels) and (servers, asked)"
        )
    load = np.broadcast_to(load, power.shape)
    asked = np.broadcast_to(asked, (len(power), asked.shape[-1]))
    if (load < 0).any() or (asked < 0).any() or np.isinf(load).any() or np.isinf(asked).any():
        raise FittingError("a load is negative or infinite: give shares of full load")
    if (power <= 0).any() or np.isinf(power).any():
        raise FittingError("power must be above 0: leave out levels that were not measured")
    steps = np.diff(np.sort(np.where(np.isnan(power), np.nan, load), axis=1), axis=1)
    if (steps < _SAME_LOAD).any():
        raise FittingError("a server has two power values at the same load: give their mean")
    return load, power, asked


class _Stack(NamedTuple):
    """Servers with the same number of levels."""

    load: FloatArray  # (servers, levels)
    power: FloatArray  # (servers, levels)
    asked: FloatArray  # (servers, asked)
    age: FloatArray  # (servers,): 0 for the years learnt from, 1 for the widest intervals

    def forecast(self, level: float) -> FloatArray:
        """Return the power (W) at the loads asked, and half widths of its intervals, stacked."""
        weights = self._weights()
        power = np.einsum("snm,sn->sm", weights, self.power)
        deviation, freedom = self._deviation(weights)
        half = student_quantile(np.rint(freedom).astype(int), level)[:, None] * deviation
        with np.errstate(invalid="ignore"):
            power = np.where(power > 0, power, np.nan)
        return np.stack([power, half])

    def _weights(self) -> FloatArray:
        """Return kriging weights of the levels in each forecast, (servers, levels, asked)."""
        levels = self.load.shape[1]
        between = covariance(self.load, self.load, SHAPE)
        drift = _drift(self.load)
        # Universal kriging: the rows of the drift make the weights reproduce any straight line.
        corner = np.zeros((len(self.load), _DRIFT, _DRIFT))
        system = np.block([[between, drift], [drift.swapaxes(1, 2), corner]])
        towards = [covariance(self.load, self.asked, SHAPE), _drift(self.asked).swapaxes(1, 2)]
        solved: FloatArray = np.linalg.solve(system, np.concatenate(towards, axis=1))
        return solved[:, :levels]

    def _deviation(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the standard deviation (W) of each forecast, and each server's freedom."""
        between = covariance(self.load, self.load, SPREAD)
        towards = covariance(self.load, self.asked, SPREAD)
        variance = (
            np.einsum("snm,snk,skm->sm", weights, between, weights)
            - 2 * np.einsum("snm,snm->sm", weights, towards)
            + _variance(self.asked, SPREAD)
        )
        # A measured level is known: rounding must not leave it an interval.
        apart = np.abs(self.asked[:, :, None] - self.load[:, None, :]).min(axis=2)
        variance = np.where(apart < _SAME_LOAD, 0, np.maximum(variance, 0))
        scale = self._scale()
        prior = 1 / np.interp(self.age, (0, 1), 1 / np.array(SCALE_DEGREES_OF_FREEDOM))
        freedom = prior + self.load.shape[1] - _DRIFT
        shown = (prior + _departure(self.load, self.power / scale[:, None], between)) / freedom
        wider = np.interp(self.age, (0, 1), ABOVE_THE_LEVELS)[:, None]
        above = np.where(self.asked > self.load.max(axis=1, keepdims=True), wider, 1.0)
        deviation = scale[:, None] * np.sqrt(variance * shown[:, None]) * above
        return deviation, freedom

    def _scale(self) -> FloatArray:
        """Return each server's scale (W): fitted full power times a power of its dynamic share."""
        centre, mean = self.load.mean(axis=1), self.power.mean(axis=1)
        offset = self.load - centre[:, None]
        slope = (offset * self.power).sum(axis=1) / (offset**2).sum(axis=1)
        full = np.maximum(mean + slope * (1 - centre), mean / 2)
        share = np.clip(slope / full, _LEAST_SHARE, _MOST_SHARE)
        return full * share**SCALE_EXPONENT


def covariance(first: FloatArray, second: FloatArray, of: Covariance) -> FloatArray:
    """Return covariances (servers, n, m) of departures from a line between two sets of loads."""
    u, v = first[:, :, None], second[:, None, :]
    near, far = np.minimum(u, v), np.maximum(u, v)
    idle = (u < _SAME_LOAD) & (v < _SAME_LOAD)
    return (
        (of.quadratic * u * v) ** 2
        + of.bend**2 * near**2 * (3 * far - near) / 6
        + of.rough**2 * np.exp(-(far - near) / ROUGHNESS_RANGE)
        + of.asleep**2 * idle
    )


def _variance(load: FloatArray, of: Covariance) -> FloatArray:
    """Return the variance of departures from a line at loads: the diagonal of `covariance`."""
    quadratic, bend = (of.quadratic * load**2) ** 2, of.bend**2 * load**3 / 3
    return quadratic + bend + of.rough**2 + of.asleep**2 * (load < _SAME_LOAD)


def _drift(load: FloatArray) -> FloatArray:
    """Return the terms of a straight line, 1 and the load, at (servers, n) loads."""
    return np.stack([np.ones_like(load), load], axis=2)


def _departure(load: FloatArray, power: FloatArray, between: FloatArray) -> FloatArray:
    """Return the squared distance of levels from their line over its expected spread, by server."""
    # The line by generalised least squares; what is left is measured in the spread's own units.
    drift = _drift(load)
    solved = np.linalg.solve(between, np.concatenate([drift, power[:, :, None]], axis=2))
    normal = drift.swapaxes(1, 2) @ solved
    line = np.linalg.solve(normal[:, :, :_DRIFT], normal[:, :, _DRIFT:])
    rest = power - (drift @ line)[:, :, 0]
    distance = (rest * (solved[:, :, _DRIFT] - (solved[:, :, :_DRIFT] @ line)[:, :, 0])).sum(axis=1)
    return np.maximum(distance, 0)
