"""Power against load of one server: interpolated between its levels, extrapolated when asked to.

Between measured levels the curve is Fritsch & Carlson's monotone cubic (PCHIP), which does not
overshoot: it rises where the levels rise, and stays between its two neighbours. Source: Fritsch &
Butland (1984), https://doi.org/10.1137/0905021. Outside the levels it is `fitting.laws.power_load`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.laws import power_load as laws
from measurements import identity_columns
from ppw.errors import PpwError
from ppw.results.text import as_share
from ppw.runs.prepare import FULL_LOAD

if TYPE_CHECKING:
    from fitting.regression.lines import FloatArray
    from measurements.table.specpower import SpecPowerResult


MEASURED, INTERPOLATED, EXTRAPOLATED = "measured", "interpolated", "extrapolated"

# Loads nearer to each other than this are one: rounding, not measurement.
_SAME = 1e-6
# A level counts as the one named, 50 % say, within this.
_NEAR = 0.05


class Proportionality(NamedTuple):
    """How nearly power follows the load; NaN where idle or full load is not measured."""

    # Power (W) at idle, at half load (interpolated) and at full load.
    idle_w: float
    half_w: float
    full_w: float
    # Power at idle as a share of that at full load, and 1 less that share.
    idle_to_peak: float
    dynamic_range: float
    # Of Ryckbosch et al.: 1 for power in proportion to load, 0 for constant power.
    energy_proportionality: float
    # Largest relative distance from the line between idle and full load, with its sign, and the
    # load at which it is.
    linear_deviation: float
    deviates_at: float
    # Level at which most work is done per joule, and how many times that of full load it is.
    peak_efficiency_load: float
    peak_efficiency: float


@dataclass(frozen=True, eq=False)
class PowerLoadCurve:
    """Watts of a server against its load.

    Attributes
    ----------
    load : (levels,) float array
        Shares of full load, rising, 0 for idle.
    power : (levels,) float array
        W at each level.
    rate : (levels,) float array or None
        Work a second at each level; NaN where not known.
    name : str
        Of the server.
    caveats : tuple of str
    """

    load: FloatArray
    power: FloatArray
    rate: FloatArray | None = None
    name: str = ""
    caveats: tuple[str, ...] = ()

    @classmethod
    def of_levels(
        cls,
        load: Sequence[float] | FloatArray,
        watts: Sequence[float] | FloatArray,
        *,
        rate: Sequence[float] | FloatArray | None = None,
        name: str = "",
        caveats: Sequence[str] = (),
    ) -> PowerLoadCurve:
        """Put a curve through levels in any order.

        Parameters
        ----------
        load : (levels,) floats
            Shares of full load, 0 (idle) to 1; two different ones or more.
        watts : (levels,) floats
            Above 0; a level whose watts are NaN is left out.
        rate : (levels,) floats, optional
            Work a second.
        name : str
        caveats : sequence of str

        Raises
        ------
        PpwError
            For less than two levels, two at one load, or values that cannot be.
        """
        at, power = (np.atleast_1d(np.asarray(x, dtype=np.float64)) for x in (load, watts))
        done = np.full(at.shape, np.nan) if rate is None else np.asarray(rate, dtype=np.float64)
        who = f"{name}: " if name else ""
        if at.ndim != 1 or at.shape != power.shape or at.shape != done.shape:
            raise PpwError(
                f"{who}{at.size} loads and {power.size} power values: give one for each level"
            )
        known = ~np.isnan(power) & ~np.isnan(at)
        order = np.argsort(at[known], kind="stable")
        at, power, done = (x[known][order] for x in (at, power, done))
        _refuse_bad_levels(at, power, who)
        return cls(
            load=np.minimum(at, 1.0),
            power=power,
            rate=None if np.isnan(done).all() else done,
            name=name,
            caveats=tuple(caveats),
        )

    @classmethod
    def from_specpower(cls, result: SpecPowerResult) -> PowerLoadCurve:
        """Make the curve of a published result.

        Its load is the actual one as a share of what the 100 % level reached (of throughputs where
        no actual loads are published; of the target loads without either), so that full load is 1.

        Raises
        ------
        PpwError
            For a result with the watts of less than two levels.
        """
        levels = [level for level in result.levels if level.watts is not None]
        caveats = [f"{result.system}: {finding}" for finding in result.findings]
        loads, how = _specpower_loads(result)
        if how:
            caveats.append(f"{result.system}: {how}")
        return cls.of_levels(
            [min(loads[level.target], 1.0) for level in levels],
            [float(level.watts or np.nan) for level in levels],
            rate=[np.nan if level.ops_s is None else level.ops_s for level in levels],
            name=result.system,
            caveats=caveats,
        )

    @classmethod
    def from_runs(cls, runs: pd.DataFrame, *, name: str = "") -> PowerLoadCurve:
        """Put a curve through the runs of one set-up at several loads; repeats are averaged.

        Parameters
        ----------
        runs : pandas.DataFrame
            Rows of one host, workload and frequency with ``power_w`` and ``load``, or with
            ``throughput_ops_s``, whose largest value is then full load. ``idle_power_w`` is the
            level of idle.
        name : str
            By default the host.

        Raises
        ------
        PpwError
            When rows are of several set-ups, or are at less than two loads.
        """
        source = str(runs.attrs.get("source", "runs"))
        if varying := [c for c in setup_columns(runs) if len(runs[c].drop_duplicates()) > 1]:
            raise PpwError(
                f"{source}: these runs differ in {', '.join(varying)}: a curve is for one set-up: "
                "choose one with --where"
            )
        if "power_w" not in runs:
            raise PpwError(f"{source}: no column power_w: measure with a power sensor")
        if not name and "host" in runs and runs["host"].notna().any():
            name = str(runs["host"].dropna().iloc[0])
        load, rate = _load_shares(runs, source), float_column(runs, "throughput_ops_s")
        watts = float_column(runs, "power_w")
        known = ~(np.isnan(load) | np.isnan(watts))
        if not known.any():
            raise PpwError(f"{source}: no run has both its load and power_w")
        caveats = _missed_rate_caveats(load[known], rate[known])
        means = _mean_levels(load[known], watts[known], rate[known])
        caveats += _scale_to_full(means, source)
        means, idle_caveats = _add_idle(means, float_column(runs, "idle_power_w"))
        who = f"{name}: " if name else ""
        said = [f"{who}{caveat}" for caveat in (*caveats, *idle_caveats)]
        return cls.of_levels(means[0], means[1], rate=means[2], name=name, caveats=said)

    @property
    def has_idle(self) -> bool:
        """Whether idle was measured."""
        return bool(self.load[0] < _SAME)

    @property
    def has_full(self) -> bool:
        """Whether full load was measured."""
        return bool(self.load[-1] > 1 - _SAME)

    @cached_property
    def _pchip_interpolator(self) -> Any:
        from scipy.interpolate import PchipInterpolator

        return PchipInterpolator(self.load, self.power, extrapolate=False)

    def watts(self, load: FloatArray | float, *, extrapolate: bool = False) -> FloatArray:
        """Return the power (W) at each load.

        Parameters
        ----------
        load : float array
            Shares of full load, 0 to 1.
        extrapolate : bool
            Answer outside the levels too, by the line and bend of `fitting.laws.power_load`.

        Raises
        ------
        PpwError
            For a load outside the levels where ``extrapolate`` is not set, or outside 0 to 1.
        """
        asked = np.asarray(load, dtype=np.float64)
        outside = self._mask_outside_levels(asked)
        if outside.any() and not extrapolate:
            raise PpwError(
                f"{self._who()}load {asked[outside].flat[0]:.3g} is outside its levels, "
                f"{self.load[0]:.3g} to {self.load[-1]:.3g}: measure there, or extrapolate"
            )
        made = self._inside(asked)
        if outside.any():
            made[outside] = self._forecast_power(asked[outside], 0.90).watts[0]
        return made

    def forecast(self, load: Sequence[float] | FloatArray, *, level: float = 0.90) -> pd.DataFrame:
        """Forecast power with intervals, outside the levels too.

        Parameters
        ----------
        load : (asked,) floats
            Shares of full load, 0 to 1.
        level : float
            Of the intervals, inside (0, 1).

        Returns
        -------
        pandas.DataFrame
            ``load``, ``power_w``, ``lower``, ``upper`` (prediction interval, from how other servers
            left their line) and ``label``: "measured", "interpolated" or "extrapolated".
            ``power_w`` is NaN where the curve would fall to zero.
        """
        asked = np.atleast_1d(np.asarray(load, dtype=np.float64))
        as_share("level", level)
        outside = self._mask_outside_levels(asked)
        found = self._forecast_power(asked, level)
        watts = np.where(outside, found.watts[0], self._inside(asked))
        # At a measured level nothing is uncertain: its interval has no width.
        at_level = np.abs(asked[:, None] - self.load).min(axis=1) < _SAME
        half = np.where(at_level, 0.0, found.half_width[0])
        labels = np.select([outside, at_level], [EXTRAPOLATED, MEASURED], INTERPOLATED)
        return pd.DataFrame(
            {
                "load": asked,
                "power_w": watts,
                "lower": np.maximum(watts - half, 0),
                "upper": watts + half,
                "label": labels,
            }
        )

    def only(self, loads: Sequence[float]) -> PowerLoadCurve:
        """Keep only the levels nearest to some loads, each within 5 points of its load.

        Raises
        ------
        PpwError
            When there is no such level.
        """
        places = []
        for asked in loads:
            at = int(np.argmin(np.abs(self.load - asked)))
            if abs(self.load[at] - asked) > _NEAR:
                raise PpwError(
                    f"{self._who()}no level at load {asked:.3g}; there are "
                    + ", ".join(f"{x:.3g}" for x in self.load)
                )
            places.append(at)
        kept = np.array(places)
        rate = None if self.rate is None else self.rate[kept]
        return PowerLoadCurve.of_levels(
            self.load[kept], self.power[kept], rate=rate, name=self.name, caveats=self.caveats
        )

    def efficiency(self) -> FloatArray:
        """Return operations per joule at each level; NaN where not known."""
        rate = np.nan if self.rate is None else self.rate
        return np.asarray(rate / self.power)

    def proportionality(self) -> Proportionality:
        """Compute the figures of energy proportionality; `fitting.laws.power_load` defines them."""
        nan = float("nan")
        idle = float(self.power[0]) if self.has_idle else nan
        full = float(self.power[-1]) if self.has_full else nan
        ends = idle, float(self._inside(np.array([0.5]))[0]), full
        peak = laws.peak_efficiency(self.load, self.power) if self.has_full else (nan, nan)
        if not (self.has_idle and self.has_full):
            return Proportionality(*ends, *(nan,) * 5, *peak)
        shares = laws.idle_to_peak(self.power), laws.dynamic_range(self.power)
        proportional = laws.energy_proportionality(self.load, self.power)
        deviation = laws.linear_deviation(self.load, self.power)
        return Proportionality(*ends, *shares, proportional, *deviation, *peak)

    def _who(self) -> str:
        """Name of the curve with a colon, to begin a message; "" without a name."""
        return f"{self.name}: " if self.name else ""

    def _mask_outside_levels(self, asked: FloatArray) -> Any:
        wrong = ~((asked >= 0) & (asked <= 1 + _SAME))
        if wrong.any():
            raise PpwError(
                f"{self._who()}load {asked[wrong].flat[0]:g} is no share of full load from 0 to 1"
            )
        return (asked < self.load[0] - _SAME) | (asked > self.load[-1] + _SAME)

    def _inside(self, asked: FloatArray) -> FloatArray:
        """Interpolate power between the levels; NaN outside them."""
        # Loads that rounding puts just outside are taken for the nearest level.
        near = np.clip(asked, self.load[0], self.load[-1])
        return np.where(np.abs(near - asked) <= _SAME, self._pchip_interpolator(near), np.nan)

    def _forecast_power(self, asked: FloatArray, level: float) -> laws.PowerForecast:
        return laws.forecast_power(self.load, self.power[None, :], asked, level=level)


def _refuse_bad_levels(load: FloatArray, power: FloatArray, who: str) -> None:
    if load.size < 2:
        raise PpwError(f"{who}{load.size} levels with power: a curve needs two or more loads")
    if not (np.isfinite(load).all() and load[0] >= 0 and load[-1] <= 1 + _SAME):
        wrong = load[(load < 0) | ~(load <= 1 + _SAME)][0]
        raise PpwError(f"{who}load {wrong:g} is no share of full load from 0 to 1")
    if not (np.isfinite(power).all() and (power > 0).all()):
        wrong = power[~(np.isfinite(power) & (power > 0))][0]
        raise PpwError(
            f"{who}{wrong:g} W is no possible power: leave out levels that were not measured"
        )
    close = np.flatnonzero(np.diff(load) < _SAME)
    if close.size:
        raise PpwError(f"{who}two levels at load {load[close[0]]:.3g}: give their mean")


def _specpower_loads(result: SpecPowerResult) -> tuple[dict[float, float], str]:
    """Load of each level by its target, and a text on how loads were derived, "" if as measured."""
    levels = [level for level in result.levels if level.target > 0]
    # Active idle has load 0, whichever column tells the other loads.
    loads = {0.0: 0.0}
    for column, said in (("actual", ""), ("ops_s", "loads are shares of throughput")):
        values = {level.target: getattr(level, column) for level in levels}
        full = values.get(1.0)
        if full and None not in values.values():
            return loads | {target: value / full for target, value in values.items()}, said
    return loads | {
        level.target: level.target for level in levels
    }, "loads are the target loads, not the measured ones"


# Levels of power against load from the runs of one set-up.


# Loads of runs are put together to the nearest percent: repeats never reach quite the same one.
_DIGITS = 2
# By how much a load that was asked for may differ from the throughput that came of it.
_BEHIND = 0.05
# Full load as it was measured may come out this much above 1 by chance.
_ABOVE = 0.05


def setup_columns(runs: pd.DataFrame) -> list[str]:
    """Columns that tell set-ups apart: identity columns and frequency, without load."""
    columns = [*identity_columns(runs), *(["freq_hz"] if "freq_hz" in runs else [])]
    return [column for column in columns if column != "load"]


def _scale_to_full(means: FloatArray, source: str) -> list[str]:
    """Scale loads in place so that the mean of the full-load runs is 1; return the caveats."""
    top = float(means[0][-1])
    if top < FULL_LOAD:
        return []
    means[0] = np.minimum(means[0] / top, 1.0)
    if top <= 1 + _ABOVE:
        return []
    if np.isnan(means[2][-1]):
        raise PpwError(
            f"{source}: load {top:g} is more than full load, which is 1: give shares of full load, "
            "percent as 50% or in a column load_pct, or the rates as throughput_ops_s"
        )
    return [
        f"a load of {top:.4g} was reached, which is more than full load: ppw takes it as full "
        "load, and the other loads as shares of it"
    ]


def _add_idle(means: FloatArray, idle: FloatArray) -> tuple[FloatArray, list[str]]:
    """Add a level at load 0 from idle power, if runs have none; return the levels and caveats."""
    idle = idle[idle > 0]
    said = []
    if means[0][0] > 0:
        if idle.size:
            # Runs do no work at idle, so the rate there is 0.
            means = np.column_stack([[0.0, idle.mean(), 0.0], means])
        else:
            said = ["idle was not measured: no figure of energy proportionality is given"]
    if idle.size and np.ptp(idle) > 0.1 * idle.mean():
        said.append(f"idle power differs from {idle.min():.4g} to {idle.max():.4g} between runs")
    return means, said


def _load_shares(runs: pd.DataFrame, source: str) -> FloatArray:
    """Load of each run: its column, else throughput over the highest one of the table."""
    load = float_column(runs, "load")
    if not np.isnan(load).all():
        return load
    rate = float_column(runs, "throughput_ops_s")
    if np.isnan(rate).all():
        raise PpwError(f"{source}: no column load, nor throughput_ops_s to take it from")
    # Without loads the fastest run is taken for full load.
    return np.asarray(rate / np.nanmax(rate))


def float_column(runs: pd.DataFrame, name: str) -> FloatArray:
    """Column as floats; NaN in every row where the table lacks it."""
    if name not in runs:
        return np.full(len(runs), np.nan)
    return runs[name].to_numpy(dtype=np.float64)


def _mean_levels(load: FloatArray, watts: FloatArray, rate: FloatArray) -> FloatArray:
    """Mean load, power and rate of the runs at each load, to the nearest percent, rising."""
    _, level = np.unique(load.round(_DIGITS), return_inverse=True)
    count = np.bincount(level)
    return np.array([np.bincount(level, values) / count for values in (load, watts, rate)])


def _missed_rate_caveats(load: FloatArray, rate: FloatArray) -> list[str]:
    full = rate[(load >= FULL_LOAD) & ~np.isnan(rate)]
    # A run without a rate has NaN here, which is not behind.
    short = np.abs(rate / full.mean() - load) > _BEHIND if full.size else np.zeros(0, dtype=bool)
    said = (
        f"{int(short.sum())} of {load.size} runs did not reach the rate that their load asks for: "
        "their power belongs to another load than the column load states"
    )
    return [said] if short.any() else []
