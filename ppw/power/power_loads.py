"""`power_loads`: power against load of servers, from published results or rate-limited runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from measurements import check_runs
from ppw.errors import PpwError
from ppw.power.load_curve import EXTRAPOLATED, PowerLoadCurve, setup_columns
from ppw.results.axes import CURVE, MEASURED, new_axes
from ppw.results.result import PrintedTable, Result, Table, frame_digest, rows_of, warn_caveats
from ppw.results.text import as_share, plot_label, shown, shown_interval
from ppw.runs.groups import canonical

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from measurements.table.specpower import SpecPowerResult


_MOST_ROWS, _MOST_CAVEATS = 40, 8
# Servers up to which each has a sentence in the summary, and a name in the plot.
_MOST_SENTENCES, _MOST_NAMED = 5, 6


@dataclass(frozen=True, kw_only=True, eq=False)
class PowerLoads(Result):
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
    caveats : tuple of str
    """

    kind = "power_loads"
    tables = (
        Table(
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
        Table(
            "levels",
            """
            server           | text  | | name of the server
            load             | share | | share of full load
            power_w          | W     | | power
            throughput_ops_s | 1/s   | | operations per second
            ops_per_joule    | 1/J   | | operations per joule
            """,
        ),
        Table(
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
        return [_server_sentence(row) for row in rows_of(self.figures.head(_MOST_ROWS))]

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
        return [
            [
                row["server"],
                *map(_forecast_text, rows_of(forecasts[row["server"]])),
                *(_two_decimals(row[name]) for name in ("idle_to_peak", "energy_proportionality")),
                _percent(row["peak_efficiency_load"]),
            ]
            for row in rows_of(self.figures.head(_MOST_ROWS))
        ]

    @classmethod
    def _read_fields(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        parts = super()._read_fields(document)
        return {**parts, "figures": parts["figures"].astype({"levels": np.int64})}

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw power against load of every server; names where they are few."""
        axes, named = new_axes(ax), len(self.figures) <= _MOST_NAMED
        for place, server in enumerate(self.figures["server"]):
            curve = self.curve(server)
            at = np.linspace(curve.load[0], curve.load[-1], _LOAD_STEPS)
            axes.plot(100 * at, curve.watts(at), color=CURVE, lw=1 if named else 0.3)
            if named:
                label, marker = plot_label(server), _MARKERS[place % len(_MARKERS)]
                axes.plot(100 * curve.load, curve.power, marker, color=MEASURED, ms=4, label=label)
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
            f"{shown(row['idle_w'], 'W')} idle, {shown(row['full_w'], 'W')} at full load: "
            f"energy proportionality {row['energy_proportionality']:.2f}, farthest from its "
            f"line by {row['linear_deviation']:+.0%} at {_percent(row['deviates_at'])} load"
        )
    else:
        said = (
            f"measured from {_percent(row['load_from'])} to {_percent(row['load_to'])} load alone"
        )
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
        Curves of power against load, their figures, and watts at the loads asked for.

    Raises
    ------
    PpwError
        For loads that cannot be, or where nothing has two levels.
    """
    as_share("level", level)
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
    warn_caveats(caveats)
    measured = pd.concat([_level_table(curve) for curve in curves], ignore_index=True)
    return PowerLoads(
        levels=measured,
        figures=pd.DataFrame([_figures_row(c) for c in curves]),
        forecasts=forecasts,
        level=float(level),
        caveats=tuple(caveats),
        input_digest=digest or frame_digest(measured),
    )


def _make_curves(
    source: pd.DataFrame | Iterable[SpecPowerResult] | Iterable[PowerLoadCurve],
) -> tuple[list[PowerLoadCurve], list[str], str | None]:
    """Make curves of runs, results or curves; return them, caveats and the runs' digest or None."""
    if isinstance(source, pd.DataFrame):
        return *_curves_of_setups(source), frame_digest(source)
    given = [
        c if isinstance(c, PowerLoadCurve) else PowerLoadCurve.from_specpower(c) for c in source
    ]
    if not given:
        raise PpwError("no curve of power against load was given")
    return given, [], None


def _curves_of_setups(runs: pd.DataFrame) -> tuple[list[PowerLoadCurve], list[str]]:
    runs = check_runs(canonical(runs), by=[])
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
    row = part.iloc[0]
    names = ["host", *by] if "host" in part and "host" not in by else list(by)
    units = {"freq_hz": "Hz", "data_bytes": "B"}
    texts = [
        shown(float(row[c]), units[c])
        if c in units
        else str(row[c])
        if c in _WORDS
        else f"{c} {row[c]:g}"
        for c in names
        if row[c] == row[c] and row[c] is not None
    ]
    return ", ".join(texts)


_WORDS = {"host", "family", "workload", "source_file"}


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
            "does not show in lower levels; the intervals are of servers of 2012, and newer ones "
            "may bend more"
        )
    return caveats


def _forecast_text(row: dict[str, Any]) -> str:
    watts = shown(row["power_w"], "W")
    if row["label"] != EXTRAPOLATED or row["power_w"] != row["power_w"]:
        return watts
    return f"{watts} ({shown_interval(row['power_w'], row['lower'], row['upper'], 'W')})"


def _two_decimals(value: float) -> str:
    return "–" if value != value else f"{value:.2f}"


def _percent(load: float) -> str:
    return "–" if load != load else f"{100 * load:.3g} %"


_LOAD_STEPS = 101
_MARKERS = "osD^vP"
