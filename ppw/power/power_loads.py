"""`power_loads`: power against load of servers, from published results or rate-limited runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from measurements import check_runs
from ppw.errors import PpwError
from ppw.power.load_curve import EXTRAPOLATED, PowerLoadCurve, setup_columns
from ppw.results import caveats as cv
from ppw.results.arguments import as_share
from ppw.results.axes import CURVE, MEASURED, new_axes
from ppw.results.result import (
    as_floats,
    frame_digest,
    read_document,
    reads_document,
    records,
    write_document,
)
from ppw.results.text import plot_label, shown, shown_interval, summary_text, text_table
from ppw.runs.groups import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes

    from measurements.table.specpower import SpecPowerResult


_MOST_ROWS, _MOST_CAVEATS = 40, 8
_ASKED = (0.0, 0.5, 1.0)
_LEVEL_COLUMNS = ("server", "load", "power_w", "throughput_ops_s", "ops_per_joule")
_FIGURE_COLUMNS = (
    *("server", "levels", "load_from", "load_to", "idle_w", "half_w", "full_w", "idle_to_peak"),
    *("dynamic_range", "energy_proportionality", "linear_deviation", "deviates_at"),
    *("peak_efficiency_load", "peak_efficiency", "overall_ops_per_joule"),
)
_FORECAST_COLUMNS = ("server", "load", "power_w", "lower", "upper", "label")
_TEXTS = {"server", "label", "levels"}
_TABLES = ("levels", "figures", "forecasts")


@dataclass(frozen=True, kw_only=True, eq=False)
class PowerLoads:
    """Curves of power against load, their figures, and watts at the loads asked for.

    Attributes
    ----------
    levels : pandas.DataFrame
        One row a server and measured level: ``server``, ``load`` (share of full), ``power_w``,
        ``throughput_ops_s``, ``ops_per_joule``.
    figures : pandas.DataFrame
        One row a server: how many levels and from where to where, the figures of
        `ppw.power.load_curve.Proportionality`, and ``overall_ops_per_joule``, Σ throughput / Σ W
        over the levels.
    forecasts : pandas.DataFrame
        One row a server and load asked for: ``power_w``, ``lower``, ``upper`` and ``label``
        ("measured", "interpolated" or "extrapolated").
    level : float
        Of the intervals.
    caveats : tuple of str
    """

    levels: pd.DataFrame
    figures: pd.DataFrame
    forecasts: pd.DataFrame
    level: float
    caveats: tuple[str, ...]
    input_digest: str | None = field(repr=False, compare=False)

    def curve(self, server: str) -> PowerLoadCurve:
        """Curve of one server. Raises `PpwError` when there is none, or several."""
        rows = self.levels[self.levels["server"] == server]
        if rows.empty:
            raise PpwError(f"no server {server!r}; there are {', '.join(self._names()[:10])}")
        columns = (rows[c].to_numpy() for c in ("load", "power_w", "throughput_ops_s"))
        load, watts, rate = columns
        return PowerLoadCurve.of_levels(load, watts, rate=rate, name=server)

    def to_frame(self) -> pd.DataFrame:
        """Figures of each server beside its watts at the loads asked for."""
        wide = self.forecasts.pivot_table(
            index="server", columns="load", values="power_w", sort=False, dropna=False
        )
        wide.columns = pd.Index([f"power_at_{100 * float(load):g}_w" for load in wide.columns])
        return self.figures.merge(wide.reset_index(), on="server", how="left")

    def verdict(self) -> list[str]:
        """Say the figures of each server in a sentence."""
        return [self._sentence(row) for row in _rows(self.figures.head(_MOST_ROWS))]

    def summary(self) -> str:
        """Text: figures and watts of each server, then the caveats."""
        lines = [*self.verdict()] if len(self.figures) <= 5 else []
        lines.append(text_table(self.header(), self.cells()))
        if len(self.figures) > _MOST_ROWS:
            more = len(self.figures) - _MOST_ROWS
            lines.append(f"… {more} more servers: use --format json or .figures")
        return summary_text(lines, self.caveats)

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return ["server", *(_percent(x) for x in self._asked()), "idle/full", "EP", "best load"]

    def cells(self) -> list[list[str]]:
        """Watts and figures as they are printed; an extrapolation carries its interval."""
        made = []
        forecasts = dict(list(self.forecasts.groupby("server", sort=False)))
        for row in _rows(self.figures.head(_MOST_ROWS)):
            watts = [_watts(f) for f in _rows(forecasts[row["server"]])]
            ratios = [_plain(row[c]) for c in ("idle_to_peak", "energy_proportionality")]
            made.append([row["server"], *watts, *ratios, _load(row["peak_efficiency_load"])])
        return made

    def to_json(self) -> str:
        """JSON document with ``schema_version``."""
        tables = {name: records(getattr(self, name)) for name in _TABLES}
        rest = {"level": self.level, "caveats": self.caveats}
        return write_document("power_loads", self.input_digest, {**rest, **tables})

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> PowerLoads:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        d = read_document(text, "power_loads")
        columns = (_LEVEL_COLUMNS, _FIGURE_COLUMNS, _FORECAST_COLUMNS)
        tables = {
            name: as_floats(pd.DataFrame(d[name], columns=list(names)), but=_TEXTS)
            for name, names in zip(_TABLES, columns, strict=True)
        }
        return cls(
            **tables,
            level=d["level"],
            caveats=tuple(d["caveats"]),
            input_digest=d["input_digest"],
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw watts against load, levels and curves."""
        return plot_power_loads(self, ax)

    def _names(self) -> list[str]:
        return [str(name) for name in self.figures["server"]]

    def _asked(self) -> list[float]:
        return [float(x) for x in dict.fromkeys(self.forecasts["load"])]

    def _sentence(self, row: dict[str, Any]) -> str:
        parts = []
        if row["full_w"] == row["full_w"] and row["idle_w"] == row["idle_w"]:
            parts.append(
                f"{shown(row['idle_w'], 'W')} idle, {shown(row['full_w'], 'W')} at full load: "
                f"energy proportionality {row['energy_proportionality']:.2f}, farthest from its "
                f"line by {row['linear_deviation']:+.0%} at {_percent(row['deviates_at'])} load"
            )
        else:
            ends = f"{_percent(row['load_from'])} to {_percent(row['load_to'])}"
            parts.append(f"measured from {ends} load alone")
        if row["peak_efficiency_load"] == row["peak_efficiency_load"]:
            parts.append(f"most work per joule at {_percent(row['peak_efficiency_load'])} load")
        return f"{row['server']}: {'; '.join(parts)}"


def power_loads(
    runs: pd.DataFrame | Iterable[SpecPowerResult] | Iterable[PowerLoadCurve],
    *,
    at: Sequence[float] = _ASKED,
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

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    as_share("level", level)
    asked = sorted({float(x) for x in at})
    if not asked:
        raise PpwError("no load was asked for: give shares of full load, such as 0.5")
    curves, caveats, digest = _curves(runs)
    if levels is not None:
        curves = [curve.only(levels) for curve in curves]
    curves = _named_apart(curves)
    forecasts = pd.concat([c.forecast(asked, level=level) for c in curves], ignore_index=True)
    forecasts.insert(0, "server", np.repeat([c.name for c in curves], len(asked)))
    caveats += _said(curves, forecasts)
    cv.warn(caveats)
    tables = [pd.DataFrame(_level_rows(curve), columns=list(_LEVEL_COLUMNS)) for curve in curves]
    return PowerLoads(
        levels=pd.concat(tables, ignore_index=True),
        figures=pd.DataFrame([_figures(c) for c in curves], columns=list(_FIGURE_COLUMNS)),
        forecasts=forecasts[list(_FORECAST_COLUMNS)],
        level=float(level),
        caveats=tuple(caveats),
        input_digest=digest or frame_digest(pd.concat(tables, ignore_index=True)),
    )


def _curves(
    source: pd.DataFrame | Iterable[SpecPowerResult] | Iterable[PowerLoadCurve],
) -> tuple[list[PowerLoadCurve], list[str], str | None]:
    """Curves, what was left out, and the digest of the input where it is known."""
    if isinstance(source, pd.DataFrame):
        return *_run_curves(source), frame_digest(source)
    given = [
        c if isinstance(c, PowerLoadCurve) else PowerLoadCurve.from_specpower(c) for c in source
    ]
    if not given:
        raise PpwError("no curve of power against load was given")
    return given, [], None


def _run_curves(runs: pd.DataFrame) -> tuple[list[PowerLoadCurve], list[str]]:
    runs = check_runs(canonical(runs), by=[])
    by = [c for c in setup_columns(runs) if len(runs[c].drop_duplicates()) > 1]
    parts = [runs] if not by else [p for _, p in runs.groupby(by, sort=True, dropna=False)]
    made, left = [], []
    for part in parts:
        part.attrs = dict(runs.attrs)
        try:
            made.append(PowerLoadCurve.from_runs(part, name=_run_name(part, by)))
        except PpwError as error:
            left.append(str(error))
    if not made:
        raise PpwError(left[0])
    caveats = [f"{len(left)} of {len(parts)} set-ups left out: {left[0]}"] if left else []
    return made, caveats


def _run_name(part: pd.DataFrame, by: Sequence[str]) -> str:
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


def _named_apart(curves: list[PowerLoadCurve]) -> list[PowerLoadCurve]:
    """Number the servers of one name: published results repeat a system."""
    from dataclasses import replace

    seen: dict[str, int] = {}
    made = []
    for number, curve in enumerate(curves, start=1):
        name = curve.name or f"server {number}"
        seen[name] = seen.get(name, 0) + 1
        again = f" ({seen[name]})" if seen[name] > 1 else ""
        made.append(replace(curve, name=f"{name}{again}"))
    return made


def _level_rows(curve: PowerLoadCurve) -> list[dict[str, Any]]:
    rate = np.full(curve.load.shape, np.nan) if curve.rate is None else curve.rate
    values = zip(curve.load, curve.power, rate, curve.efficiency(), strict=True)
    return [dict(zip(_LEVEL_COLUMNS, (curve.name, *row), strict=True)) for row in values]


def _figures(curve: PowerLoadCurve) -> dict[str, Any]:
    known = curve.rate is not None and not np.isnan(curve.rate).any()
    overall = curve.rate.sum() / curve.power.sum() if known and curve.rate is not None else np.nan
    return {
        "server": curve.name,
        "levels": len(curve.load),
        "load_from": curve.load[0],
        "load_to": curve.load[-1],
        **curve.proportionality()._asdict(),
        "overall_ops_per_joule": overall,
    }


def _said(curves: list[PowerLoadCurve], forecasts: pd.DataFrame) -> list[str]:
    own = list(dict.fromkeys(caveat for curve in curves for caveat in curve.caveats))
    more = len(own) - _MOST_CAVEATS
    caveats = own[:_MOST_CAVEATS] + ([f"{more} more caveats of single servers"] if more > 0 else [])
    beyond = forecasts[forecasts["label"] == EXTRAPOLATED]
    if len(beyond):
        loads = ", ".join(_percent(x) for x in sorted(beyond["load"].unique()))
        caveats.append(
            f"watts at {loads} load are extrapolated for {beyond['server'].nunique()} of "
            f"{len(curves)} servers: a clock that rises near full load, or a power limit, does not "
            "show in lower levels; the intervals are of servers of 2012, and newer ones may bend "
            "more"
        )
    return caveats


def _watts(row: dict[str, Any]) -> str:
    if row["power_w"] != row["power_w"]:
        return "–"
    if row["label"] == EXTRAPOLATED:
        interval = shown_interval(row["power_w"], row["lower"], row["upper"], "W")
        return f"{shown(row['power_w'], 'W')} ({interval})"
    return shown(row["power_w"], "W")


def _plain(value: float) -> str:
    return "–" if value != value else f"{value:.2f}"


def _load(value: float) -> str:
    return "–" if value != value else _percent(value)


def _percent(load: float) -> str:
    return f"{100 * load:.3g} %"


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in table.to_dict(orient="records")]


_LOAD_STEPS = 101
# More curves than this are a cloud without names.
_MOST_NAMED = 6
_MARKERS = "osD^vP"


def plot_power_loads(result: PowerLoads, ax: Axes | None = None) -> Axes:
    """Draw watts against load of every server; names where they are few."""
    axes = new_axes(ax)
    named = len(result.figures) <= _MOST_NAMED
    for place, server in enumerate(result.figures["server"]):
        curve = result.curve(server)
        at = np.linspace(curve.load[0], curve.load[-1], _LOAD_STEPS)
        axes.plot(100 * at, curve.watts(at), color=CURVE, lw=1 if named else 0.3)
        if named:
            label = plot_label(server)
            marker = _MARKERS[place % len(_MARKERS)]
            axes.plot(100 * curve.load, curve.power, marker, color=MEASURED, ms=4, label=label)
    axes.set_xlabel("load (% of full)")
    axes.set_ylabel("power (W)")
    axes.set_xlim(0, 100)
    axes.set_ylim(bottom=0)
    if named:
        axes.legend(frameon=False)
    return axes
