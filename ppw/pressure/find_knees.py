"""`find_knees`: where a sweep stops paying, and where to run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from fitting.regression.knee import FEWEST_LEVELS, fit_knees
from measurements import check_runs, identity_columns
from measurements.table.checks import as_numbers
from measurements.table.headers import column_meant, nearest
from measurements.table.headers import shown as shown_headers
from measurements.table.reading import renamed_headers
from measurements.table.schema import COLUMNS
from measurements.table.units import split_unit
from ppw.errors import PpwError, UnknownColumnError
from ppw.results import caveats as cv
from ppw.results.arguments import as_share, known_choice
from ppw.results.axes import BAND, BEST, CURVE, MEASURED, PROJECTED, new_axes
from ppw.results.result import TabledResult, frame_digest, rows_of
from ppw.results.text import plot_label, shown, shown_interval, summary_text, text_table
from ppw.runs.groups import canonical, group_runs
from ppw.runs.prepare import FULL_LOAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

    from fitting.regression.knee import Knees


# The points of sweeps: what was set, what came of it, and what failed, from a runs table.


# Names that people use, and the columns that hold them.
SETTINGS = {
    "object_size": "data_bytes",
    "data_size": "data_bytes",
    "data": "data_bytes",
}
MEASURES = {
    "throughput": "throughput_ops_s",
    "latency": "latency_p99_s",
    "time": "time_s",
}
FAILURE = "failure"
# What else tells set-ups apart, beside identity: the settings of the workloads that ppw runs.
_SETUP = (
    *("freq_hz", "instances", "partitions", "connections", "keys_per_request", "get_share"),
    *("client", "pattern", "queue_depth"),
)
_PERFORMANCE = "throughput_ops_s"


class Sweeps(NamedTuple):
    """Points of sweeps, and what they are called.

    ``points`` has a row a run: ``sweep`` (its number), ``x``, ``y`` (NaN where it failed),
    ``failed``, ``failure``, ``performance`` and ``power_w``. ``names`` and ``keys`` have an
    element a sweep; ``held_back`` counts the runs at less than full load, which take no part.
    """

    points: pd.DataFrame
    names: list[str]
    keys: pd.DataFrame
    over: str
    of: str
    of_unit: str
    held_back: int


def sweep_points(
    runs: pd.DataFrame, *, over: str, of: str, by: Sequence[str] | None = None
) -> Sweeps:
    """Take the points of sweeps from a runs table.

    A run failed whose column ``failure`` says why, or that has neither time nor throughput nor
    ``of``: missing values alone are no failure.

    Parameters
    ----------
    runs : pandas.DataFrame
    over : str
        Column that was set, or one of `SETTINGS`; a hyphen is as good as an underscore.
    of : str
        Column that came of it, or one of `MEASURES`. Throughput of runs that have only a time is
        data by time.
    by : sequence of str, optional
        Columns that tell sweeps apart; by default those that identify set-ups, but for those that
        go with ``over``.

    Raises
    ------
    MeasurementError
        For values that cannot be.
    PpwError
        Where a column is not there, or nothing was measured.
    """
    table = check_runs(canonical(runs), by=[])
    source = str(runs.attrs.get("source", "runs"))
    setting = _column(table, over, SETTINGS, source)
    table = _with_throughput(table, of)
    measure = _column(table, of, MEASURES, source)
    load = as_numbers(table["load"]) if "load" in table else pd.Series(np.nan, table.index)
    held_back = load.lt(FULL_LOAD)
    table = table[~held_back]
    x = as_numbers(table[setting])
    known = x.notna() & x.gt(0)
    table, x = table[known], x[known]
    keys = _keys(table, setting, x) if by is None else list(by)
    y = as_numbers(table[measure]).where(lambda v: v > 0)
    if not y.notna().any():
        raise PpwError(f"{source}: no run has both {setting} above 0 and {measure}")
    failure = _failed_points(table, y)
    told = y.notna() | failure.ne("")
    table, x, y, failure = table[told], x[told], y[told].mask(failure.ne("")), failure[told]
    groups = group_runs(table, keys)
    points = pd.DataFrame(
        {
            "sweep": groups.codes,
            "x": x.to_numpy(),
            "y": y.to_numpy(),
            "failed": failure.ne("").to_numpy(),
            FAILURE: failure.to_numpy(),
            "performance": _performance(table, setting, y if measure == _PERFORMANCE else None),
            "power_w": _numbers(table, "power_w"),
        }
    )
    names = [_name(row, keys) for row in rows_of(groups.keys)]
    by_time = measure == _PERFORMANCE and _PERFORMANCE not in canonical(runs)
    unit = "B/s" if by_time else column_unit(measure)
    # One order, so that sums do not depend on that of the rows.
    points = points.sort_values(["sweep", "x", "y"], ignore_index=True)
    return Sweeps(points, names, groups.keys, setting, measure, unit, int(held_back.sum()))


def _column(table: pd.DataFrame, name: str, known: dict[str, str], source: str) -> str:
    columns = [str(c) for c in table.columns]
    plain = name.replace("-", "_")
    column = _same_but_for_case((name, plain), columns) or known.get(plain.lower(), plain)
    if column not in columns and (meant := _by_header(table, (name, plain), columns)):
        column = meant
    if column not in columns:
        raise UnknownColumnError(
            f"{source}: no column {column}{nearest(column, list(table.columns))}; the columns are "
            f"{shown_headers(list(table.columns))}"
        )
    return column


def _same_but_for_case(names: Sequence[str], columns: Sequence[str]) -> str | None:
    """Column of one of the names, in the case as it is typed where there are several."""
    for name in names:
        if name in columns:
            return name
    for name in names:
        if len(same := [c for c in columns if c.lower() == name.lower()]) == 1:
            return same[0]
    return None


def _by_header(table: pd.DataFrame, names: Sequence[str], columns: Sequence[str]) -> str | None:
    """Column that a header of the file's own became, or would have become."""
    headers = renamed_headers(table)
    for name in names:
        own = _same_but_for_case((name,), list(headers))
        if meant := column_meant(own or name, columns, headers):
            return meant.canonical
    return None


def _with_throughput(table: pd.DataFrame, of: str) -> pd.DataFrame:
    wanted = MEASURES.get(of.lower(), of) == _PERFORMANCE
    if not wanted or _PERFORMANCE in table or not {"data_bytes", "time_s"} <= set(table.columns):
        return table
    return table.assign(**{_PERFORMANCE: table["data_bytes"] / table["time_s"]})


def _keys(table: pd.DataFrame, setting: str, x: pd.Series[float]) -> list[str]:
    """Columns of set-ups, but for one that is another name for the setting."""
    candidates = [*identity_columns(table), *(c for c in _SETUP if c in table)]
    kept = []
    for column in dict.fromkeys(candidates):
        values = table[column]
        if column == setting or not len(values.drop_duplicates()) > 1:
            continue
        if x.groupby(values, dropna=False).nunique().gt(1).any():
            kept.append(column)
    return kept


def _failed_points(table: pd.DataFrame, y: pd.Series[float]) -> pd.Series[str]:
    """Why each run failed; "" where it did not."""
    said = pd.Series("", index=table.index, dtype=object)
    if FAILURE in table:
        said = table[FAILURE].astype(object).where(table[FAILURE].notna(), "").map(str).str.strip()
    done = y.notna()
    for column in ("time_s", _PERFORMANCE):
        if column in table:
            done |= table[column].notna()
    return said.mask(~done & said.eq(""), "failed")


def _performance(table: pd.DataFrame, setting: str, own: pd.Series[float] | None) -> np.ndarray:
    """Work per second: throughput, or data or one job by time."""
    if own is not None:
        return own.to_numpy()
    rate, time = _numbers(table, _PERFORMANCE), _numbers(table, "time_s")
    work = table[setting].to_numpy(dtype=np.float64) if setting == "data_bytes" else 1.0
    return np.where(np.isnan(rate), work / time, rate)


def _numbers(table: pd.DataFrame, column: str) -> np.ndarray:
    if column not in table:
        return np.full(len(table), np.nan)
    return as_numbers(table[column]).to_numpy()


def _name(row: dict[str, Any], keys: Sequence[str]) -> str:
    return ", ".join(_said(c, row[c]) for c in keys if row[c] == row[c]) or "runs"


def column_unit(column: str) -> str:
    """Unit of a column: that of the schema, else what its name ends in; "" where it has none."""
    if column in COLUMNS:
        unit = COLUMNS[column].unit
        return "" if unit == "1" else unit
    ends = {"_bytes": "B", "_bytes_s": "B/s", "_ops_s": "1/s", "_s": "s", "_hz": "Hz", "_w": "W"}
    return next((unit for end, unit in ends.items() if column.endswith(end)), "")


def _said(column: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    unit = column_unit(column)
    return shown(float(value), unit) if unit in ("Hz", "B") else f"{column} {value:g}"


# Which way a measure is better, by the words of its name.


# How words begin; what is divided by ("per watt") says nothing.
_LOWER = (
    *("latenc", "time", "runtime", "walltime", "wait", "respon", "delay", "duration", "elapsed"),
    *("makespan", "seconds", "stall", "power", "watt", "energ", "joule", "cost", "price", "cpi"),
    *("cycles", "miss", "error", "fail", "fault", "retr", "drop", "percentile"),
)
_HIGHER = (
    *("rate", "ops", "operation", "request", "quer", "transaction", "job", "qps", "tps", "rps"),
    *("ipc", "perf", "speed", "flop", "mflop", "gflop", "tflop", "hit", "instructions", "work"),
)
# These win over what stands beside them: power efficiency, 99th percentile of throughput.
_HIGHER_ALWAYS = (
    *("throughput", "bandwidth", "efficien", "saving", "score", "iops", "goodput", "responses"),
)
_PERCENTILE = re.compile(r"p\d{2,}")
_DIVIDED = re.compile(r"/| per ")


def higher_is_better(name: str) -> bool | None:
    """Tell whether more of a measure is better; None where its name does not say.

    >>> higher_is_better("P99 latency (ms)"), higher_is_better("perf_per_watt")
    (False, True)
    """
    words = _words(name)
    if _begins(words, _HIGHER_ALWAYS):
        return True
    if _begins(words, _LOWER) or any(_PERCENTILE.fullmatch(word) for word in words):
        return False
    if _begins(words, _HIGHER):
        return True
    unit = split_unit(name)[1]
    # A bare "_s" after bytes is a rate.
    if unit and unit.si == "s":
        return _begins(words, ("byte",))
    return False if unit and unit.si in ("w", "j") else None


def _begins(words: list[str], beginnings: tuple[str, ...]) -> bool:
    return any(word.startswith(beginnings) for word in words)


def _words(name: str) -> list[str]:
    """Words of what is counted, without what it is divided by."""
    apart = re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()
    plain = re.sub(r"[_\-.\s]+", " ", apart)
    return re.findall(r"[a-z]+\d*", _DIVIDED.split(plain)[0])


# The operating point of a sweep: the level to run at, and what the next one would cost.


# Without a knee, the smallest level that comes as near to the best as this is good enough.
NEAR_BEST = 0.05
POINT_COLUMNS = (
    *("recommended", "recommended_value", "per_watt", "most_per_watt_at"),
    *("next_step", "next_value_change", "next_performance_change", "next_power_change"),
    *("next_per_watt_change", "next_failure"),
)


class Bounds(NamedTuple):
    """Levels that failed next to those that worked: below and above them; NaN where none did."""

    below: float
    above: float


def bounds(levels: pd.DataFrame) -> Bounds:
    """Find the failures that enclose the levels that worked.

    Parameters
    ----------
    levels : pandas.DataFrame
        Of one sweep in order: ``x``, ``value``, ``failed`` (how many of its runs).
    """
    x, failed = levels["x"].to_numpy(), levels["failed"].to_numpy() > 0
    worked = x[~failed]
    if not len(worked):
        return Bounds(np.nan, np.nan)
    # What works again above a failure is not relied on.
    below, above = x[failed & (x < worked[0])], x[failed & (x > worked[0])]
    return Bounds(
        float(below[-1]) if len(below) else np.nan, float(above[0]) if len(above) else np.nan
    )


def usable(levels: pd.DataFrame) -> pd.DataFrame:
    """Levels that worked, up to the first above them that failed."""
    worked = levels[levels["failed"] == 0]
    above = bounds(levels).above
    return worked if np.isnan(above) else worked[worked["x"] < above]


def operating_point(levels: pd.DataFrame, knee: dict[str, Any], *, higher: bool) -> dict[str, Any]:
    """Choose the level to run at.

    Parameters
    ----------
    levels : pandas.DataFrame
        Of one sweep in order: ``x``, ``value``, ``performance``, ``power_w``, ``per_watt``,
        ``failed``, ``failure``.
    knee : dict
        ``knee``, ``lower``, ``upper``; the knee NaN where there is none that costs.
    higher : bool
        Whether a higher value is better.

    Returns
    -------
    dict
        `POINT_COLUMNS`: the level nearest to the knee inside its interval, else the last below
        it; without a knee the smallest that comes within 5 % of the best. Changes are shares.
    """
    good = usable(levels)
    if good.empty:
        return dict.fromkeys(POINT_COLUMNS)
    x, value = good["x"].to_numpy(), good["value"].to_numpy()
    at = _near_best(value, higher) if np.isnan(knee["knee"]) else _at_knee(x, knee)
    here = good.iloc[at]
    later = levels[levels["x"] > here["x"]]
    return {
        "recommended": here["x"],
        "recommended_value": here["value"],
        "per_watt": here["per_watt"],
        "most_per_watt_at": _most_per_watt(good),
        **(_next_step(here, later.iloc[0]) if len(later) else {}),
    }


def _near_best(value: FloatArray, higher: bool) -> int:
    benefit = value if higher else 1 / value
    return int(np.argmax(benefit >= (1 - NEAR_BEST) * benefit.max()))


def _at_knee(x: FloatArray, knee: dict[str, Any]) -> int:
    nearest = int(np.argmin(np.abs(np.log(x / knee["knee"]))))
    if knee["lower"] <= x[nearest] <= knee["upper"]:
        return nearest
    return max(int(np.searchsorted(x, knee["knee"], side="right")) - 1, 0)


def _most_per_watt(good: pd.DataFrame) -> float:
    known = good["per_watt"].notna().to_numpy()
    if not known.any():
        return np.nan
    best = np.argmax(good["per_watt"].to_numpy(dtype=np.float64)[known])
    return float(good["x"].to_numpy()[known][best])


def _next_step(here: pd.Series[Any], then: pd.Series[Any]) -> dict[str, Any]:
    changes = {
        f"next_{name}_change": then[column] / here[column] - 1
        for name, column in (
            ("value", "value"),
            ("performance", "performance"),
            ("power", "power_w"),
            ("per_watt", "per_watt"),
        )
    }
    return {"next_step": then["x"], **changes, "next_failure": then["failure"]}


# What is found in sweeps, as a result.


KNEE, STRAIGHT, FEW, FAILS = "knee", "no knee", "too few levels", "failed"
_MOST_SENTENCES = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepKnees(TabledResult):
    """The knee and the operating point of each sweep of a runs table.

    Attributes
    ----------
    knees : pandas.DataFrame
        One row a sweep: the columns that tell sweeps apart; ``sweep`` (its name); ``finding``
        ("knee", "no knee", "too few levels" or "failed"); ``knee``, ``lower``, ``upper`` (where
        two lines meet, with its interval, which ends where runs failed; upper inf and lower 0
        where the levels do not tell), ``knee_value``; ``slope_before``, ``slope_after``;
        ``linear_from``, ``linear_to`` (the range of the first line), ``measured_to``; ``p_value``
        (of no knee), ``lack_of_fit`` (p value of two lines); ``failed_below``, ``failed_above``
        (levels that failed next to those that worked); and the columns of
        `ppw.pressure.find_knees.operating_point`.
    levels : pandas.DataFrame
        One row a level: ``sweep``, ``x``, ``runs``, ``failed`` (how many), ``value`` (mean),
        ``performance`` (work per second), ``power_w``, ``per_watt``, ``failure``.
    over, of, of_unit, over_unit : str
        What was set and what came of it, with units.
    higher_is_better : bool
    scale : str
        Of the lines: "log" or "linear".
    level : float
        Of the interval.
    caveats : tuple of str
    """

    kind: ClassVar[str] = "sweep_knees"

    knees: pd.DataFrame
    levels: pd.DataFrame
    over: str
    over_unit: str
    of: str
    of_unit: str
    higher_is_better: bool
    scale: str
    level: float

    def to_frame(self) -> pd.DataFrame:
        """One row a sweep."""
        return self.knees

    def verdict(self) -> list[str]:
        """Say what was found, and where to run, in sentences."""
        said = []
        for row in rows_of(self.knees.head(_MOST_SENTENCES)):
            said += [f"{row['sweep']}: {part}" for part in (self._finding(row), self._advice(row))]
        return said

    def summary(self) -> str:
        """Text: the sentences, the levels and the caveats."""
        lines = [*self.verdict(), text_table(self.header(), self.cells())]
        if len(self.knees) > _MOST_SENTENCES:
            lines.append(f"… {len(self.knees) - _MOST_SENTENCES} more sweeps: --format json or csv")
        return summary_text(lines, self.caveats)

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return ["sweep", self.over, "runs", self.of, "W", "work/J", "note"]

    def cells(self) -> list[list[str]]:
        """The levels as they are printed."""
        best = dict(zip(self.knees["sweep"], self.knees["recommended"], strict=True))
        return [
            [
                str(row["sweep"]),
                shown(row["x"], self.over_unit),
                f"{row['runs']:g}",
                self.value(row["value"]),
                shown(row["power_w"]),
                shown(row["per_watt"]),
                _note(row, best),
            ]
            for row in rows_of(self.levels)
        ]

    def value(self, number: float) -> str:
        """Write a value of what was measured."""
        if self.of_unit == "B/s":
            return f"{shown(number, 'B')}/s" if number == number else "–"
        return shown(number, self.of_unit)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what was measured, the two lines, the knee and its interval."""
        return plot_sweeps(self, ax)

    def _finding(self, row: dict[str, Any]) -> str:
        if row["finding"] == FAILS:
            return f"no level of {self.over} worked: {row['next_failure'] or 'all failed'}"
        ends = _failure_text(row, self.over_unit)
        if row["finding"] == FEW:
            return f"{row['levels']:g} levels of {self.over}, and a knee needs 4{ends}"
        if row["finding"] == STRAIGHT:
            what = f"{self.of} has no knee from {self._x(row['linear_from'])} to "
            return f"{what}{self._x(row['linear_to'])} of {self.over}{ends}"
        interval = shown_interval(row["knee"], row["lower"], row["upper"], self.over_unit)
        between = f" ({interval})" if interval != "–" else ""
        bend = (
            f"in proportion to {self.over}^{row['slope_before']:.2f} before it and "
            f"^{row['slope_after']:.2f} after"
            if self.scale == "log"
            else f"{shown(row['slope_before'])} a step before it and "
            f"{shown(row['slope_after'])} after"
        )
        return (
            f"{self.of} has its knee at {self._x(row['knee'])}{between} {self.over}, {bend}{ends}"
        )

    def _advice(self, row: dict[str, Any]) -> str:
        if row["recommended"] != row["recommended"]:
            return "nothing can be recommended"
        said = f"run at {self._x(row['recommended'])}, {self.value(row['recommended_value'])}"
        return f"{said}; {self._next(row)}"

    def _next(self, row: dict[str, Any]) -> str:
        if row["next_step"] != row["next_step"]:
            return "no higher level was measured"
        step = f"the next step, {self._x(row['next_step'])}, "
        if row["next_failure"]:
            return f"{step}fails: {row['next_failure']}"
        changes = [f"{row['next_value_change']:+.1%} {self.of}"]
        if np.isfinite(row["next_per_watt_change"]):
            changes.append(f"{row['next_power_change']:+.1%} watts")
            changes.append(f"{row['next_per_watt_change']:+.1%} performance per watt")
        else:
            changes.append("performance per watt not measured")
        return f"{step}brings {', '.join(changes)}"

    def _x(self, number: float) -> str:
        return shown(number, self.over_unit)


def _failure_text(row: dict[str, Any], unit: str) -> str:
    ends = [
        f"fails from {shown(row['failed_above'], unit)}"
        if np.isfinite(row["failed_above"])
        else "",
        f"fails up to {shown(row['failed_below'], unit)}"
        if np.isfinite(row["failed_below"])
        else "",
    ]
    said = [end for end in ends if end]
    return f"; it {' and '.join(said)}" if said else ""


def _note(row: dict[str, Any], best: dict[Any, float]) -> str:
    if row["failed"]:
        return f"{row['failed']:g} failed: {row['failure']}"
    return "run here" if best.get(row["sweep"]) == row["x"] else ""


# A bend that chance makes as often as this is none; two lines that fit as badly as this are not
# the form of the curve.
_BY_CHANCE = 0.05
_FOUND_COLUMNS = (
    *("sweep", "finding", "levels", "knee", "lower", "upper", "slope_before", "slope_after"),
    *("knee_value", "linear_from", "linear_to", "measured_to", "p_value"),
    *("lack_of_fit", "failed_below", "failed_above"),
)
_TEXTS = ("next_failure",)


def find_knees(
    runs: pd.DataFrame,
    *,
    over: str,
    of: str,
    by: Sequence[str] | None = None,
    scale: str = "log",
    level: float = 0.90,
    goal: str | None = None,
) -> SweepKnees:
    """Find the knee and the operating point of each sweep in a runs table.

    Parameters
    ----------
    runs : pandas.DataFrame
        Rows that failed are kept: they end the range. See `ppw.pressure.find_knees.sweep_points`.
    over : str
        What was set: ``"threads"``, ``"connections"``, ``"object_size"``, or any column.
    of : str
        What came of it: ``"throughput"``, ``"latency"`` (99th percentile), ``"time"``,
        ``"power"``, or any column.
    by : sequence of str, optional
        Columns that tell sweeps apart; by default all that set-ups differ in.
    scale : {"log", "linear"}
        In which co-ordinates the two lines are straight; in the logarithm, errors are relative.
    level : float
        Of the knee's interval, inside (0, 1).
    goal : {"higher", "lower"}, optional
        What is better; by default lower where the name speaks of latency, time, waiting, watts,
        energy, cost, CPI or misses; a name that does not say is taken as higher, with a caveat.

    Returns
    -------
    SweepKnees
        The knee and the operating point of each sweep of a runs table.

    Raises
    ------
    MeasurementError
        For values that cannot be.
    PpwError
        Where a column is not there, or nothing was measured.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    as_share("level", level)
    known_choice("scale", scale, ("log", "linear"))
    known_choice("goal", goal or "higher", ("higher", "lower"))
    sweeps = sweep_points(runs, over=over, of=of, by=by)
    known = higher_is_better(sweeps.of) if goal is None else goal == "higher"
    higher = known is not False
    tables = [_levels(part) for _, part in sweeps.points.groupby("sweep")]
    fits = _fits(sweeps, tables, scale, level)
    rows = [_row(i, table, fits, sweeps, higher) for i, table in enumerate(tables)]
    columns = [*sweeps.keys.columns, *_FOUND_COLUMNS, *POINT_COLUMNS]
    knees = pd.DataFrame(rows, columns=columns)
    caveats = _caveats(runs, sweeps, knees, higher)
    if known is None:
        caveats.append(
            f"the name {sweeps.of} does not say which way is better: higher is taken as better; "
            "--goal lower (goal='lower') turns it"
        )
    cv.warn(caveats)
    return SweepKnees(
        knees=_typed(knees, [*sweeps.keys.columns, "sweep", "finding", *_TEXTS]),
        levels=pd.concat(
            [t.assign(sweep=sweeps.names[i]) for i, t in enumerate(tables)], ignore_index=True
        )[["sweep", *_LEVEL_COLUMNS]],
        over=sweeps.over,
        over_unit=column_unit(sweeps.over),
        of=sweeps.of,
        of_unit=sweeps.of_unit,
        higher_is_better=higher,
        scale=scale,
        level=float(level),
        caveats=tuple(caveats),
        input_digest=frame_digest(runs),
    )


_LEVEL_COLUMNS = ("x", "runs", "failed", "value", "performance", "power_w", "per_watt", "failure")


def _levels(points: pd.DataFrame) -> pd.DataFrame:
    levels = points.groupby("x", sort=True).agg(
        runs=("x", "size"),
        failed=("failed", "sum"),
        value=("y", "mean"),
        performance=("performance", "mean"),
        power_w=("power_w", "mean"),
        failure=("failure", "max"),
    )
    return levels.assign(per_watt=levels["performance"] / levels["power_w"]).reset_index()


def _fits(sweeps: Sweeps, tables: list[pd.DataFrame], scale: str, level: float) -> Knees | None:
    """Fit all sweeps at once, each through the levels that can be used."""
    points = sweeps.points
    last = np.array([_last(table) for table in tables])
    used = points[points["y"].notna() & (points["x"] <= last[points["sweep"]])]
    mixed = {(i, x) for i, t in enumerate(tables) for x in t.loc[t["failed"] > 0, "x"]}
    used = used[[key not in mixed for key in zip(used["sweep"], used["x"], strict=True)]]
    if used.empty:
        return None
    # A sweep without a point still has its number.
    codes, kept = pd.factorize(used["sweep"], sort=True)
    fit = fit_knees(codes, used["x"], used["y"], scale=scale, level=level)  # type: ignore[arg-type]
    return _numbered(fit, kept.to_numpy(), len(tables))


def _numbered(fit: Knees, kept: np.ndarray, sweeps: int) -> Knees:
    from dataclasses import fields, replace

    wide: dict[str, Any] = {}
    for one in fields(fit):
        part = getattr(fit, one.name)
        if isinstance(part, np.ndarray):
            whole = np.full(sweeps, np.nan if part.dtype.kind == "f" else 0, dtype=part.dtype)
            whole[kept] = part
            wide[one.name] = whole
    return replace(fit, **wide)


def _last(table: pd.DataFrame) -> float:
    good = usable(table)
    return float(good["x"].iloc[-1]) if len(good) else -np.inf


def _row(
    place: int, table: pd.DataFrame, fits: Knees | None, sweeps: Sweeps, higher: bool
) -> dict[str, Any]:
    good, ends = usable(table), bounds(table)
    keys = rows_of(sweeps.keys)[place] if len(sweeps.keys.columns) else {}
    row: dict[str, Any] = {
        **keys,
        "sweep": sweeps.names[place],
        "levels": float(len(good)),
        "failed_below": ends.below,
        "failed_above": ends.above,
        "next_failure": "",
    }
    if good.empty or fits is None:
        return row | {"finding": FAILS, "next_failure": str(table["failure"].max())}
    found = _found(place, fits, good, higher)
    if found["finding"] != KNEE and np.isfinite(ends.above):
        # What works and what does not enclose where it stops.
        found |= {"lower": float(good["x"].iloc[-1]), "upper": ends.above}
    elif found["finding"] == KNEE:
        found |= {
            "lower": np.fmax(found["lower"], ends.below),
            "upper": np.fmin(found["upper"], ends.above),
        }
    at = {name: found.get(name, np.nan) for name in ("knee", "lower", "upper")}
    return row | found | operating_point(table, at, higher=higher)


def _found(place: int, fits: Knees, good: pd.DataFrame, higher: bool) -> dict[str, Any]:
    """What two lines say of one sweep."""
    first, last = float(good["x"].iloc[0]), float(good["x"].iloc[-1])
    row = {
        name: float(getattr(fits, name)[place])
        for name in ("slope_before", "slope_after", "p_value", "lack_of_fit")
    }
    row["measured_to"] = last
    if len(good) < FEWEST_LEVELS:
        return row | {"finding": FEW, "linear_from": first, "linear_to": last}
    if not (row["p_value"] < _BY_CHANCE and _costs(row, higher)):
        return row | {"finding": STRAIGHT, "linear_from": first, "linear_to": last}
    knee = {name: float(getattr(fits, name)[place]) for name in ("knee", "lower", "upper")}
    knee["knee_value"] = float(fits.value[place])
    knee["lower"] = max(knee["lower"], 0.0)
    return row | knee | {"finding": KNEE, "linear_from": first, "linear_to": knee["knee"]}


def _costs(row: dict[str, float], higher: bool) -> bool:
    """Whether a step brings less after the knee than before it."""
    change = row["slope_after"] - row["slope_before"]
    return change < 0 if higher else change > 0


def _typed(table: pd.DataFrame, texts: list[str]) -> pd.DataFrame:
    """Numbers as such, where a column has nothing but missing values too."""
    numbers = [c for c in table.columns if c not in texts]
    return table.astype(dict.fromkeys(numbers, np.float64)).fillna({"next_failure": ""})


def _caveats(runs: pd.DataFrame, sweeps: Sweeps, knees: pd.DataFrame, higher: bool) -> list[str]:
    said = []
    if sweeps.held_back:
        said.append(
            f"{sweeps.held_back} runs at less than full load (column load) take no part: their "
            "rate was set"
        )
    limited = runs.get("client_limited", pd.Series(dtype=object)).eq(True).sum()
    if limited:
        said.append(
            f"{limited} of {len(runs)} runs were limited by their clients: a knee may be theirs"
        )
    others = runs.get("limited_by", pd.Series(dtype=object)).eq("others").sum()
    if others:
        said.append(
            f"in {others} of {len(runs)} runs other programs took the CPU time that was missing "
            "(limited_by): their levels say little of this workload"
        )
    poor = knees[(knees["finding"] == KNEE) & (knees["lack_of_fit"] < _BY_CHANCE)]
    if len(poor):
        said.append(
            f"{len(poor)} of {len(knees)} sweeps bend gradually: two lines miss their levels by "
            "more than runs scatter, so the knee is where the lines meet and its interval is of "
            "noise alone"
        )
    alone = knees[(knees["finding"] == KNEE) & knees["upper"].isna()]
    if len(alone):
        said.append(f"{len(alone)} knees have no interval: measure five levels, or repeat runs")
    open_ = knees[(knees["finding"] == KNEE) & np.isinf(knees["upper"])]
    if len(open_):
        said.append(f"{len(open_)} knees have no upper end: measure higher levels")
    good_bend = knees[(knees["finding"] == STRAIGHT) & (knees["p_value"] < _BY_CHANCE)]
    if len(good_bend):
        word = "faster" if higher else "further"
        said.append(
            f"{len(good_bend)} sweeps improve {word} after their bend, so that it is no limit"
        )
    return said


_STEPS = 100
_MARKERS = "osD^vP"
# More sweeps than this are a cloud without names.
_MOST_NAMED = 6
_MOST_TICKS = 9


def plot_sweeps(result: SweepKnees, ax: Axes | None = None) -> Axes:
    """Draw the levels of every sweep, its two lines, and where to run."""
    axes = new_axes(ax)
    named = len(result.knees) <= _MOST_NAMED
    for place, row in enumerate(rows_of(result.knees)):
        levels = result.levels[result.levels["sweep"] == row["sweep"]]
        good = levels[levels["value"].notna()]
        marker = _MARKERS[place % len(_MARKERS)]
        label = plot_label(row["sweep"]) if named else None
        axes.plot(good["x"], good["value"], marker, color=MEASURED, ms=4, label=label)
        _draw_lines(axes, row, result.scale)
        _draw_choice(axes, row)
        for x in levels.loc[levels["failed"] > 0, "x"]:
            axes.plot(x, 0.02, "x", color=PROJECTED, ms=7, transform=axes.get_xaxis_transform())
    if result.scale == "log":
        _logarithmic(axes, result)
    axes.set_xlabel(_titled(result.over, result.over_unit))
    axes.set_ylabel(_titled(result.of, result.of_unit))
    if named:
        axes.legend(frameon=False)
    return axes


def _logarithmic(axes: Axes, result: SweepKnees) -> None:
    """Logarithmic axes with the levels, and plain numbers, as their ticks."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.set_yscale("log")
    levels = np.unique(result.levels["x"])
    every = -(-len(levels) // _MOST_TICKS)
    axes.xaxis.set_major_locator(FixedLocator(levels[::every].tolist()))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    for axis, unit in ((axes.xaxis, result.over_unit), (axes.yaxis, "")):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda number, _, u=unit: shown(number, u)))


def _draw_lines(axes: Axes, row: dict[str, Any], scale: str) -> None:
    if row["finding"] != KNEE:
        return
    low, high = row["lower"], row["upper"]
    if np.isfinite(high) and low > 0:
        axes.axvspan(low, high, color=BAND, alpha=0.5, lw=0)
    # Outside the measured levels the lines say nothing.
    at = np.linspace(row["linear_from"], row["measured_to"], _STEPS)
    if scale == "log":
        at = np.geomspace(row["linear_from"], row["measured_to"], _STEPS)
    slope = np.where(at < row["knee"], row["slope_before"], row["slope_after"])
    if scale == "log":
        line = row["knee_value"] * (at / row["knee"]) ** slope
    else:
        line = row["knee_value"] + slope * (at - row["knee"])
    axes.plot(at, line, color=CURVE, lw=1)


def _draw_choice(axes: Axes, row: dict[str, Any]) -> None:
    if np.isfinite(row["recommended"]):
        axes.plot(
            row["recommended"], row["recommended_value"], "o", ms=11, mfc="none", mec=BEST, mew=1.5
        )


def _titled(name: str, unit: str) -> str:
    label = plot_label(name)
    return f"{label} ({unit})" if unit else label
