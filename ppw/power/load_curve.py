"""Power against load of one server: interpolated between its levels, extrapolated when asked to.

Between measured levels the curve is Fritsch & Carlson's monotone cubic (PCHIP), which does not
overshoot: it rises where the levels rise, and stays between its two neighbours. Source: Fritsch &
Butland (1984), https://doi.org/10.1137/0905021. Outside the levels it is `fitting.laws.power_load`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.laws import power_load as laws
from fitting.regression.lines import FloatArray
from measurements import check_runs, identity_columns
from measurements.table.specpower import SpecPowerResult
from ppw.errors import PpwError
from ppw.results import axes as drawing, result as rs, text as tx
from ppw.results.axes import Axes
from ppw.results.result import PrintedTable
from ppw.runs import groups, prepare

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
    year : int or None
        In which it was tested; the intervals of one that is newer than the servers they were learnt
        from, or of unknown year, are wider.
    """

    load: FloatArray
    power: FloatArray
    rate: FloatArray | None = None
    name: str = ""
    caveats: tuple[str, ...] = ()
    year: int | None = None

    @classmethod
    def of_levels(
        cls,
        load: Sequence[float] | FloatArray,
        watts: Sequence[float] | FloatArray,
        *,
        rate: Sequence[float] | FloatArray | None = None,
        name: str = "",
        caveats: Sequence[str] = (),
        year: int | None = None,
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
        year : int, optional
            In which the server was tested.

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
            year=year,
        )

    @classmethod
    def from_specpower(cls, result: SpecPowerResult) -> PowerLoadCurve:
        """Make the curve of a published result.

        Its load is the actual one as a share of what the 100 % level reached (of throughputs where
        no actual loads are published; of the target loads without either), so that full load is 1.
        Raises `PpwError` for a result with the watts of less than two levels.
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
            year=result.year,
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
        load, rate = _load_shares(runs, source), groups.numbers(runs, "throughput_ops_s")
        watts = groups.numbers(runs, "power_w")
        known = ~(np.isnan(load) | np.isnan(watts))
        if not known.any():
            raise PpwError(f"{source}: no run has both its load and power_w")
        caveats = _missed_rate_caveats(load[known], rate[known])
        # The mean load, power and rate of the runs at each load, to the nearest percent, rising.
        _, level = np.unique(load[known].round(_DIGITS), return_inverse=True)
        count = np.bincount(level)
        means = np.array([np.bincount(level, each[known]) / count for each in (load, watts, rate)])
        caveats += _scale_to_full(means, source)
        means, idle_caveats = _add_idle(means, groups.numbers(runs, "idle_power_w"))
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
        tx.as_share("level", level)
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

        Raises `PpwError` when there is no such level.
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
        levels = (self.load[kept], self.power[kept])
        made = PowerLoadCurve.of_levels(*levels, rate=rate, name=self.name)
        return replace(made, caveats=self.caveats, year=self.year)

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
        newer = np.inf if self.year is None else self.year - laws.LEARNT_TO_YEAR
        power = self.power[None, :]
        return laws.forecast_power(self.load, power, asked, level=level, years_newer=newer)


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
    targets = {level.target: level.target for level in levels}
    return loads | targets, "loads are the target loads, not the measured ones"


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
    if top < prepare.FULL_LOAD:
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
    load = groups.numbers(runs, "load")
    if not np.isnan(load).all():
        return load
    rate = groups.numbers(runs, "throughput_ops_s")
    if np.isnan(rate).all():
        raise PpwError(f"{source}: no column load, nor throughput_ops_s to take it from")
    # Without loads the fastest run is taken for full load.
    return np.asarray(rate / np.nanmax(rate))


def _missed_rate_caveats(load: FloatArray, rate: FloatArray) -> list[str]:
    full = rate[(load >= prepare.FULL_LOAD) & ~np.isnan(rate)]
    # A run without a rate has NaN here, which is not behind.
    short = np.abs(rate / full.mean() - load) > _BEHIND if full.size else np.zeros(0, dtype=bool)
    said = (
        f"{int(short.sum())} of {load.size} runs did not reach the rate that their load asks for: "
        "their power belongs to another load than the column load states"
    )
    return [said] if short.any() else []


# `power_loads`: power against load of servers, from published results or rate-limited runs.
_MOST_ROWS, _MOST_CAVEATS = 40, 8
# Servers up to which each has a sentence in the summary, and a name in the plot.
_MOST_SENTENCES, _MOST_NAMED = 5, 6


@dataclass(frozen=True, kw_only=True, eq=False)
class PowerLoads(rs.Result):
    """Curves of power against load, their figures, and power at the loads asked for.

    Attributes
    ----------
    level : float
        Level of the intervals.
    levels : pandas.DataFrame
        One row a server and measured level.
    figures : pandas.DataFrame
        One row a server; figures of `ppw.power.load_curve.Proportionality` are among them.
    forecasts : pandas.DataFrame
        One row a server and load asked for.
    """

    kind = "power_loads"
    tables = (
        rs.Table(
            "figures",
            """
            server                | text  | | name of the server
            levels                | count | | number of measured levels
            load_from             | share | | lowest load measured
            load_to               | share | | highest load measured
            idle_w                | W     | | power at idle
            half_w                | W     | | power at half load, interpolated
            full_w                | W     | | power at full load
            idle_to_peak          | share | | idle power as a share of that at full load
            dynamic_range         | share | | 1 less `idle_to_peak`
            energy_proportionality | 1    | | 1 for power in proportion to load, 0 for constant one
            linear_deviation      | share | | largest distance from the line of idle to full load
            deviates_at           | share | | load at which it is
            peak_efficiency_load  | share | | load at which most work is done per joule
            peak_efficiency       | 1     | | how many times that of full load it is
            overall_ops_per_joule | 1/J   | | sum of throughput over sum of power of all levels
            """,
        ),
        rs.Table(
            "levels",
            """
            server           | text  | | name of the server
            load             | share | | share of full load
            power_w          | W     | | power
            throughput_ops_s | 1/s   | | operations per second
            ops_per_joule    | 1/J   | | operations per joule
            """,
        ),
        rs.Table(
            "forecasts",
            """
            server  | text  | | name of the server
            load    | share | | share of full load
            power_w | W     | | power; missing where the curve would fall to zero
            lower   | W     | | lower end of the prediction interval
            upper   | W     | | upper end of the prediction interval
            label   | text  | | "measured", "interpolated" or "extrapolated"
            """,
        ),
    )

    level: float
    levels: pd.DataFrame
    figures: pd.DataFrame
    forecasts: pd.DataFrame

    def curve(self, server: str) -> PowerLoadCurve:
        """Return the curve of one server. Raises `PpwError` when there is none, or several."""
        rows = self.levels[self.levels["server"] == server]
        if rows.empty:
            names = ", ".join(map(str, self.figures["server"][:10]))
            raise PpwError(f"no server {server!r}; there are {names}")
        load, watts, rate = rows[["load", "power_w", "throughput_ops_s"]].to_numpy().T
        return PowerLoadCurve.of_levels(load, watts, rate=rate, name=server)

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the figures of each server beside its watts at the loads asked for."""
        wide = self.forecasts.pivot_table(
            index="server", columns="load", values="power_w", sort=False, dropna=False
        )
        wide.columns = pd.Index([f"power_at_{100 * float(load):g}_w" for load in wide.columns])
        return self.figures.merge(wide.reset_index(), on="server", how="left")

    def verdict(self) -> list[str]:
        """Say the figures of each server in a sentence."""
        return [_server_sentence(row) for row in rs.rows_of(self.figures.head(_MOST_ROWS))]

    def text_parts(self) -> list[str]:
        """Return sentences where the servers are few, and the table."""
        said = self.verdict() if len(self.figures) <= _MOST_SENTENCES else []
        return [*said, *(line for table in self.printed_tables() for line in table.lines())]

    def printed_tables(self, most: int | None = None) -> list[PrintedTable]:
        """Return the watts and figures of the first 40 servers as they print."""
        cells = self.cells()
        left_out, whole = len(self.figures) - len(cells), "--format json or .figures"
        title = "Watts and energy proportionality"
        return [PrintedTable(title, self.header(), cells, 1, "", left_out, whole)]

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        loads = map(_percent, dict.fromkeys(self.forecasts["load"]))
        return ["server", *loads, "idle/full", "EP", "best load"]

    def cells(self) -> list[list[str]]:
        """Return rows of texts: power and figures by server; an extrapolation has an interval."""
        forecasts = dict(list(self.forecasts.groupby("server", sort=False)))
        two_decimals = ("idle_to_peak", "energy_proportionality")
        return [
            [
                row["server"],
                *map(_forecast_text, rs.rows_of(forecasts[row["server"]])),
                *("–" if row[n] != row[n] else f"{row[n]:.2f}" for n in two_decimals),
                _percent(row["peak_efficiency_load"]),
            ]
            for row in rs.rows_of(self.figures.head(_MOST_ROWS))
        ]

    @classmethod
    def _read_fields(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        parts = super()._read_fields(document)
        return {**parts, "figures": parts["figures"].astype({"levels": np.int64})}

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw power against load of every server; names where they are few."""
        axes, named = drawing.new_axes(ax), len(self.figures) <= _MOST_NAMED
        for place, server in enumerate(self.figures["server"]):
            curve = self.curve(server)
            at = np.linspace(curve.load[0], curve.load[-1], _LOAD_STEPS)
            axes.plot(100 * at, curve.watts(at), color=drawing.CURVE, lw=1 if named else 0.3)
            if named:
                label, marker = tx.plot_label(server), _MARKERS[place % len(_MARKERS)]
                style: dict[str, Any] = {"color": drawing.MEASURED, "ms": 4, "label": label}
                axes.plot(100 * curve.load, curve.power, marker, **style)
        axes.set_xlabel("load (% of full)")
        axes.set_ylabel("power (W)")
        axes.set_xlim(0, 100)
        axes.set_ylim(bottom=0)
        if named:
            axes.legend(frameon=False)
        return axes


def _server_sentence(row: dict[str, Any]) -> str:
    # NaN is not equal to itself: a curve without idle or full load has no proportionality.
    if row["full_w"] == row["full_w"] and row["idle_w"] == row["idle_w"]:
        said = (
            f"{tx.shown(row['idle_w'], 'W')} idle, {tx.shown(row['full_w'], 'W')} at full load: "
            f"energy proportionality {row['energy_proportionality']:.2f}, farthest from its "
            f"line by {row['linear_deviation']:+.0%} at {_percent(row['deviates_at'])} load"
        )
    else:
        ends = (_percent(row[end]) for end in ("load_from", "load_to"))
        said = f"measured from {' to '.join(ends)} load alone"
    if row["peak_efficiency_load"] == row["peak_efficiency_load"]:
        said += f"; most work per joule at {_percent(row['peak_efficiency_load'])} load"
    return f"{row['server']}: {said}"


def power_loads(
    runs: pd.DataFrame | Iterable[SpecPowerResult] | Iterable[PowerLoadCurve],
    *,
    at: Sequence[float] = (0.0, 0.5, 1.0),
    levels: Sequence[float] | None = None,
    level: float = 0.90,
) -> PowerLoads:
    """Put power against load together for one server or thousands.

    Parameters
    ----------
    runs : runs table, published results or curves
        Runs of each set-up (host, workload, cores and so on, frequency) make a curve.
    at : sequence of float
        Loads to give the watts at, shares of full load from 0 to 1.
    levels : sequence of float, optional
        Use the levels at these loads alone: the others then show how far the forecast is off.
    level : float
        Of the intervals, inside (0, 1).

    Returns
    -------
    PowerLoads

    Raises
    ------
    PpwError
        For loads that cannot be, or where nothing has two levels.
    """
    tx.as_share("level", level)
    asked = sorted({float(x) for x in at})
    if not asked:
        raise PpwError("no load was given: give shares of full load, as 0.5")
    curves, caveats, digest = _make_curves(runs)
    if levels is not None:
        curves = [curve.only(levels) for curve in curves]
    curves = _number_names(curves)
    forecasts = pd.concat([c.forecast(asked, level=level) for c in curves], ignore_index=True)
    forecasts.insert(0, "server", np.repeat([c.name for c in curves], len(asked)))
    caveats += _curve_caveats(curves, forecasts)
    rs.warn_caveats(caveats)
    measured = pd.concat([_level_table(curve) for curve in curves], ignore_index=True)
    return PowerLoads(
        levels=measured,
        figures=pd.DataFrame([_figures_row(c) for c in curves]),
        forecasts=forecasts,
        level=float(level),
        caveats=tuple(caveats),
        input_digest=digest or rs.frame_digest(measured),
    )


def _make_curves(
    source: pd.DataFrame | Iterable[SpecPowerResult] | Iterable[PowerLoadCurve],
) -> tuple[list[PowerLoadCurve], list[str], str | None]:
    """Make curves of runs, results or curves; return them, caveats and the runs' digest or None."""
    if isinstance(source, pd.DataFrame):
        return *_curves_of_setups(source), rs.frame_digest(source)
    make = PowerLoadCurve.from_specpower
    given = [one if isinstance(one, PowerLoadCurve) else make(one) for one in source]
    if not given:
        raise PpwError("no curve of power against load was given")
    return given, [], None


def _curves_of_setups(runs: pd.DataFrame) -> tuple[list[PowerLoadCurve], list[str]]:
    runs = groups.canonical(runs)
    # An idle host does no work per second: nothing is wrong with its 0.
    load, rate = (groups.numbers(runs, column) for column in ("load", "throughput_ops_s"))
    runs = check_runs(runs, by=[], ignore={"throughput_ops_s": (load == 0) & (rate == 0)})
    by = [c for c in setup_columns(runs) if len(runs[c].drop_duplicates()) > 1]
    parts = [runs] if not by else [p for _, p in runs.groupby(by, sort=True, dropna=False)]
    made, left = [], []
    for part in parts:
        # groupby drops the attributes, and errors name the source in them.
        part.attrs = dict(runs.attrs)
        # A set-up without two loads has no curve; the others still have one.
        try:
            made.append(PowerLoadCurve.from_runs(part, name=_setup_name(part, by)))
        except PpwError as error:
            left.append(str(error))
    if not made:
        raise PpwError(left[0])
    caveats = [f"{len(left)} of {len(parts)} set-ups left out: {left[0]}"] if left else []
    return made, caveats


def _setup_name(part: pd.DataFrame, by: Sequence[str]) -> str:
    names = ["host", *by] if "host" in part and "host" not in by else list(by)
    row = part.iloc[0][names].dropna()
    return ", ".join(_setting_text(str(column), value) for column, value in row.items())


def _setting_text(column: str, value: Any) -> str:
    if column in ("host", "family", "workload", "source_file"):
        return str(value)
    unit = {"freq_hz": "Hz", "data_bytes": "B"}.get(column)
    return tx.shown(float(value), unit) if unit else f"{column} {value:g}"


def _number_names(curves: list[PowerLoadCurve]) -> list[PowerLoadCurve]:
    """Add a number to names that repeat; a server without a name becomes "server N"."""
    seen = Counter[str]()
    made = []
    for number, curve in enumerate(curves, start=1):
        name = curve.name or f"server {number}"
        seen[name] += 1
        again = f" ({seen[name]})" if seen[name] > 1 else ""
        made.append(replace(curve, name=f"{name}{again}"))
    return made


def _level_table(curve: PowerLoadCurve) -> pd.DataFrame:
    rate = np.full(curve.load.shape, np.nan) if curve.rate is None else curve.rate
    columns = {"server": curve.name, "load": curve.load, "power_w": curve.power}
    return pd.DataFrame({**columns, "throughput_ops_s": rate, "ops_per_joule": curve.efficiency()})


def _figures_row(curve: PowerLoadCurve) -> dict[str, Any]:
    # The overall score of SPECpower, which idle counts in: sums over all levels, not a mean.
    overall = np.nan if curve.rate is None else curve.rate.sum() / curve.power.sum()
    return {
        "server": curve.name,
        "levels": len(curve.load),
        "load_from": curve.load[0],
        "load_to": curve.load[-1],
        **curve.proportionality()._asdict(),
        "overall_ops_per_joule": overall,
    }


def _curve_caveats(curves: list[PowerLoadCurve], forecasts: pd.DataFrame) -> list[str]:
    own = list(dict.fromkeys(caveat for curve in curves for caveat in curve.caveats))
    # Thousands of published results have thousands of findings: the first few stand for all.
    more = len(own) - _MOST_CAVEATS
    caveats = own[:_MOST_CAVEATS] + ([f"{more} more caveats of single servers"] if more > 0 else [])
    beyond = forecasts[forecasts["label"] == EXTRAPOLATED]
    if len(beyond):
        loads = ", ".join(_percent(x) for x in sorted(beyond["load"].unique()))
        caveats.append(
            f"power at {loads} load is extrapolated for {beyond['server'].nunique()} of "
            f"{len(curves)} servers: a core frequency that rises near full load, or a power limit, "
            "does not show in lower levels; the intervals are learnt from servers of up to 2012, "
            "and are wider for a newer server, or one without a year"
        )
    return caveats


def _forecast_text(row: dict[str, Any]) -> str:
    watts = tx.shown(row["power_w"], "W")
    if row["label"] != EXTRAPOLATED or row["power_w"] != row["power_w"]:
        return watts
    return f"{watts} ({tx.shown_interval(row['power_w'], row['lower'], row['upper'], 'W')})"


def _percent(load: float) -> str:
    return "–" if load != load else f"{100 * load:.3g} %"


_LOAD_STEPS = 101
_MARKERS = "osD^vP"
