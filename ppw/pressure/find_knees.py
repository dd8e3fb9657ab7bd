"""`find_knees`: where a sweep stops paying, and where to run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.regression.knee import FEWEST_LEVELS, fit_knees
from measurements import check_runs, identity_columns
from measurements.table import checks, headers, reading, schema, units
from ppw.errors import PpwError, UnknownColumnError
from ppw.pressure.demand import FloatArray, amount_text
from ppw.results import axes as drawing, result as rs, text as tx
from ppw.results.axes import Axes
from ppw.runs import groups as gr, prepare

Row = dict[str, Any]

KNEE, STRAIGHT, FEW, FAILS = "knee", "no knee", "too few levels", "failed"
_MOST_SENTENCES = 10
# Points of a drawn line.
_STEPS = 100
_MARKERS = "osD^vP"
# More sweeps than this are a cloud without names.
_MOST_NAMED = 6
_MOST_TICKS = 9


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepKnees(rs.Result):
    """The knee and the operating point of each sweep of a runs table.

    Attributes
    ----------
    knees : pandas.DataFrame
        One row per sweep: the columns that tell sweeps apart, and those below.
    levels : pandas.DataFrame
        One row per sweep and level.
    over, of, of_unit, over_unit : str
        What was set and what came of it, with units.
    higher_is_better : bool
    scale : str
        Of the lines: "log" or "linear".
    level : float
        Probability of the interval.
    """

    kind = "sweep_knees"
    tables = (
        rs.Table(
            "knees",
            """
            sweep        | text  | sweep   | name of the sweep
            finding      | text  | finding | "knee", "no knee", "too few levels" or "failed"
            levels       | count | levels  | levels that worked, up to the first that failed
            knee         | @over_unit [lower, upper] | knee | where the two lines meet
            lower        | @over_unit | | lower end of its interval; 0 where not told
            upper        | @over_unit | | upper end; inf where not told, or the level that failed
            slope_before | 1     |         | slope of the first line
            slope_after  | 1     |         | slope of the second line
            knee_value   | @of_unit |      | value of the lines at the knee
            linear_from  | @over_unit |    | start of the first line
            linear_to    | @over_unit |    | end of the first line
            measured_to  | @over_unit |    | highest level that worked
            p_value      | 1     |         | p value of no knee
            lack_of_fit  | 1     |         | p value of two lines
            failed_below | @over_unit |    | level that failed below those that worked
            failed_above | @over_unit |    | level that failed above those that worked
            recommended  | @over_unit | run at | level nearest to the knee, or good enough
            recommended_value | @of_unit | | value at that level
            per_watt          | 1/J | work/J there | work per joule at that level
            most_per_watt_at  | @over_unit | most work/J at | level of the most work per joule
            next_step         | @over_unit |  | next level that was measured
            next_value_change | share |         | change of the value by the next level
            next_performance_change | share | | change of the performance by the next level
            next_power_change       | share | | change of the power by the next level
            next_per_watt_change    | share | | change of work per joule by the next level
            next_failure            | text  | | why the next level fails
            """,
            title="Knees",
            most=0,
        ),
        rs.Table(
            "levels",
            """
            sweep       | text  | | name of the sweep
            x           | @over_unit | | what was set
            runs        | count | | runs at the level
            failed      | count | | runs that failed
            value       | @of_unit | | mean of the measured column
            performance | 1/s   | | work per second
            power_w     | W     | | mean power
            per_watt    | 1/J   | | work per joule
            failure     | text  | | why a run failed
            """,
        ),
        rs.Table(
            "noted_levels",
            """
            sweep    | text       | sweep  | name of the sweep
            x        | @over_unit | {over} | what was set
            runs     | count      | runs   | runs at the level
            value    | text       | {of}   | mean of the measured column, with its unit
            power_w  | 1          | W      | mean power (W)
            per_watt | 1          | work/J | work per joule
            note     | text       | note   | where to run, and what failed
            """,
            title="Levels",
            most=500,
            show={"note": lambda row: str(row["note"])},
        ),
    )

    knees: pd.DataFrame
    levels: pd.DataFrame
    over: str
    over_unit: str
    of: str
    of_unit: str
    higher_is_better: bool
    scale: str
    level: float

    @property
    def noted_levels(self) -> pd.DataFrame:
        """Levels with values as texts and a note: failures, or that this is the level to run at."""
        best = dict(zip(self.knees["sweep"], self.knees["recommended"], strict=True))
        notes = [_level_note(row, best) for row in rs.rows_of(self.levels)]
        return self.levels.assign(value=self.levels["value"].map(self.value), note=notes)

    def value(self, number: float) -> str:
        """Write a measured value with its unit."""
        return (amount_text if self.of_unit == "B/s" else tx.shown)(number, self.of_unit)

    def verdict(self) -> list[str]:
        """Say what was found, and where to run, in sentences."""
        return [
            f"{row['sweep']}: {part}"
            for row in rs.rows_of(self.knees.head(_MOST_SENTENCES))
            for part in (self._finding_text(row), self._recommendation_text(row))
        ]

    def text_parts(self) -> list[str]:
        """Return the sentences, the levels, and how many sweeps have no sentence."""
        more = len(self.knees) - _MOST_SENTENCES
        rest = [f"… {more} more sweeps: --format json or csv"] if more > 0 else []
        return [*super().text_parts(), *rest]

    def _finding_text(self, row: Row) -> str:
        if row["finding"] == FAILS:
            return f"no level of {self.over} worked: {row['next_failure'] or 'all failed'}"
        failing = [
            f"fails {words} {self._in_unit(row[column])}"
            for words, column in (("from", "failed_above"), ("up to", "failed_below"))
            if np.isfinite(row[column])
        ]
        ends = f"; it {' and '.join(failing)}" if failing else ""
        if row["finding"] == FEW:
            return f"{row['levels']:g} levels of {self.over}, and a knee needs 4{ends}"
        if row["finding"] == STRAIGHT:
            what = f"{self.of} has no knee from {self._in_unit(row['linear_from'])} to "
            return f"{what}{self._in_unit(row['linear_to'])} of {self.over}{ends}"
        interval = tx.shown_interval(row["knee"], row["lower"], row["upper"], self.over_unit)
        between = f" ({interval})" if interval != "–" else ""
        before, after = row["slope_before"], row["slope_after"]
        if self.scale == "log":
            bend = f"in proportion to {self.over}^{before:.2f} before it and ^{after:.2f} after"
        else:
            bend = f"{tx.shown(before)} a step before it and {tx.shown(after)} after"
        at = self._in_unit(row["knee"])
        return f"{self.of} has its knee at {at}{between} {self.over}, {bend}{ends}"

    def _recommendation_text(self, row: Row) -> str:
        if row["recommended"] != row["recommended"]:
            return "nothing can be recommended"
        value = self.value(row["recommended_value"])
        return f"run at {self._in_unit(row['recommended'])}, {value}; {self._next_level_text(row)}"

    def _next_level_text(self, row: Row) -> str:
        if row["next_step"] != row["next_step"]:
            return "no higher level was measured"
        step = f"the next step, {self._in_unit(row['next_step'])}, "
        if row["next_failure"]:
            return f"{step}fails: {row['next_failure']}"
        changes = [f"{row['next_value_change']:+.1%} {self.of}"]
        if np.isfinite(row["next_per_watt_change"]):
            changes.append(f"{row['next_power_change']:+.1%} power")
            changes.append(f"{row['next_per_watt_change']:+.1%} performance per watt")
        else:
            changes.append("performance per watt not measured")
        return f"{step}brings {', '.join(changes)}"

    def _in_unit(self, number: float) -> str:
        return tx.shown(number, self.over_unit)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the levels of every sweep, its two lines, and where to run."""
        axes = drawing.new_axes(ax)
        named = len(self.knees) <= _MOST_NAMED
        for place, row in enumerate(rs.rows_of(self.knees)):
            levels = self.levels[self.levels["sweep"] == row["sweep"]]
            good = levels[levels["value"].notna()]
            marker = _MARKERS[place % len(_MARKERS)]
            label = tx.plot_label(row["sweep"]) if named else None
            axes.plot(good["x"], good["value"], marker, color=drawing.MEASURED, ms=4, label=label)
            if row["finding"] == KNEE:
                _draw_knee_lines(axes, row, self.scale)
            if np.isfinite(row["recommended"]):
                best = row["recommended"], row["recommended_value"]
                axes.plot(*best, "o", ms=11, mfc="none", mec=drawing.BEST, mew=1.5)
            bottom = axes.get_xaxis_transform()
            for x in levels.loc[levels["failed"] > 0, "x"]:
                axes.plot(x, 0.02, "x", color=drawing.PROJECTED, ms=7, transform=bottom)
        if self.scale == "log":
            _set_log_axes(axes, self)
        axes.set_xlabel(_axis_title(self.over, self.over_unit))
        axes.set_ylabel(_axis_title(self.of, self.of_unit))
        if named:
            axes.legend(frameon=False)
        return axes


def _level_note(row: Row, best: Mapping[Any, float]) -> str:
    if row["failed"]:
        return f"{row['failed']:g} failed: {row['failure']}"
    return "run here" if best.get(row["sweep"]) == row["x"] else ""


def _draw_knee_lines(axes: Axes, row: Row, scale: str) -> None:
    low, high, knee = row["lower"], row["upper"], row["knee"]
    if np.isfinite(high) and low > 0:
        axes.axvspan(low, high, color=drawing.BAND, alpha=0.5, lw=0)
    # Outside the measured levels the lines say nothing.
    spaced = np.geomspace if scale == "log" else np.linspace
    at = spaced(row["linear_from"], row["measured_to"], _STEPS)
    slope = np.where(at < knee, row["slope_before"], row["slope_after"])
    if scale == "log":
        line = row["knee_value"] * (at / knee) ** slope
    else:
        line = row["knee_value"] + slope * (at - knee)
    axes.plot(at, line, color=drawing.CURVE, lw=1)


def _set_log_axes(axes: Axes, result: SweepKnees) -> None:
    """Set logarithmic axes, with the levels as ticks of the abscissa."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.set_yscale("log")
    levels = np.unique(result.levels["x"])
    every = -(-len(levels) // _MOST_TICKS)
    axes.xaxis.set_major_locator(FixedLocator(levels[::every].tolist()))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    for axis, unit in ((axes.xaxis, result.over_unit), (axes.yaxis, "")):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda number, _, u=unit: tx.shown(number, u)))


def _axis_title(name: str, unit: str) -> str:
    label = tx.plot_label(name)
    return f"{label} ({unit})" if unit else label


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
        Rows that failed are kept: they end the range. A run failed whose column ``failure`` says
        why, or that has neither time nor throughput nor ``of``.
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

    Raises
    ------
    MeasurementError
        For values that cannot be.
    PpwError
        Where a column is not there, or nothing was measured.
    """
    tx.as_share("level", level)
    tx.check_choice("scale", scale, ("log", "linear"))
    tx.check_choice("goal", goal or "higher", ("higher", "lower"))
    sweeps = _read_sweeps(runs, over=over, of=of, by=by)
    known = higher_is_better(sweeps.of) if goal is None else goal == "higher"
    higher = known is not False
    tables = [_Sweep.of(points) for _, points in sweeps.points.groupby("sweep")]
    fits = _fit_sweeps(sweeps, tables, scale, level)
    knees = _knee_table(sweeps, tables, fits, higher)
    caveats = _caveats(runs, sweeps, knees, higher)
    if known is None:
        caveats.append(
            f"the name {sweeps.of} does not tell whether higher or lower is better: ppw takes "
            "higher; change it with --goal lower (goal='lower')"
        )
    rs.warn_caveats(caveats)
    named = [table.levels.assign(sweep=sweeps.names[i]) for i, table in enumerate(tables)]
    return SweepKnees(
        knees=knees,
        levels=pd.concat(named, ignore_index=True)[SweepKnees.tables[1].names],
        over=sweeps.over,
        over_unit=_column_unit(sweeps.over),
        of=sweeps.of,
        of_unit=sweeps.of_unit,
        higher_is_better=higher,
        scale=scale,
        level=float(level),
        caveats=tuple(caveats),
        input_digest=rs.frame_digest(runs),
    )


# Names that people use, and the columns that hold them.
_SETTINGS = dict.fromkeys(("object_size", "data_size", "data"), "data_bytes")
_MEASURES = {"throughput": "throughput_ops_s", "latency": "latency_p99_s", "time": "time_s"}
_FAILURE = "failure"
# What else tells set-ups apart, beside identity: the settings of the workloads that ppw runs.
_SETUP = (
    *("freq_hz", "instances", "partitions", "connections", "keys_per_request", "get_share"),
    *("client", "pattern", "queue_depth"),
)
_PERFORMANCE = "throughput_ops_s"


class _Sweeps(NamedTuple):
    """Points of sweeps, and what they are called."""

    # A row per run: its sweep's number, x, y (NaN where it failed), failed, failure, performance
    # and power_w.
    points: pd.DataFrame
    names: list[str]
    keys: pd.DataFrame
    over: str
    of: str
    of_unit: str
    held_back: int  # runs at less than full load, which take no part


def _read_sweeps(runs: pd.DataFrame, *, over: str, of: str, by: Sequence[str] | None) -> _Sweeps:
    """Take the points of sweeps from a runs table; missing values alone are no failure."""
    table = check_runs(gr.canonical(runs), by=[])
    source = str(runs.attrs.get("source", "runs"))
    setting = _find_column(table, over, _SETTINGS, source)
    # Throughput of runs that have only a time is data by time.
    lacks_rate = _MEASURES.get(of.lower(), of) == _PERFORMANCE and _PERFORMANCE not in table
    by_time = lacks_rate and {"data_bytes", "time_s"} <= set(table.columns)
    if by_time:
        table = table.assign(**{_PERFORMANCE: table["data_bytes"] / table["time_s"]})
    measure = _find_column(table, of, _MEASURES, source)
    # Runs that were held at a rate say what was set, not what the level can do.
    held_back = gr.numbers(table, "load") < prepare.FULL_LOAD
    table = table[~held_back]
    table = table[checks.as_numbers(table[setting]).gt(0)]
    keys = _setup_columns(table, setting) if by is None else list(by)
    y = checks.as_numbers(table[measure]).where(lambda v: v > 0)
    if not y.notna().any():
        raise PpwError(f"{source}: no run has both {setting} above 0 and {measure}")
    # A run of which nothing is known, and that did not fail, is no point.
    failure = _failures(table, y)
    told = y.notna() | failure.ne("")
    table, failure = table[told], failure[told]
    values = y[told].mask(failure.ne("")).to_numpy()
    groups = gr.group_runs(table, keys)
    points = pd.DataFrame(
        {
            "sweep": groups.codes,
            "x": checks.as_numbers(table[setting]).to_numpy(),
            "y": values,
            "failed": failure.ne("").to_numpy(),
            _FAILURE: failure.to_numpy(),
            "performance": values if measure == _PERFORMANCE else _performance(table, setting),
            "power_w": gr.numbers(table, "power_w"),
        }
    )
    names = [
        ", ".join(_key_text(c, row[c]) for c in keys if row[c] == row[c]) or "runs"
        for row in rs.rows_of(groups.keys)
    ]
    # One order, so that sums do not depend on that of the rows.
    points = points.sort_values(["sweep", "x", "y"], ignore_index=True)
    unit = "B/s" if by_time and measure == _PERFORMANCE else _column_unit(measure)
    return _Sweeps(points, names, groups.keys, setting, measure, unit, int(held_back.sum()))


def _find_column(table: pd.DataFrame, name: str, known: dict[str, str], source: str) -> str:
    columns, plain = [str(c) for c in table.columns], name.replace("-", "_")
    column = _same_but_for_case((name, plain), columns) or known.get(plain.lower(), plain)
    if column in columns:
        return column
    # It may be a header of the file's own, or one that would have become a column.
    renamed = reading.renamed_headers(table)
    for one in (name, plain):
        own = _same_but_for_case((one,), list(renamed)) or one
        if meant := headers.column_meant(own, columns, renamed):
            return meant.canonical
    raise UnknownColumnError(
        f"{source}: no column {column}{headers.nearest(column, columns)}; the columns are "
        f"{headers.list_names(columns)}"
    )


def _same_but_for_case(names: Sequence[str], columns: Sequence[str]) -> str | None:
    """First name that is a column, exactly or but for case where that is unique; else None."""
    exact = [name for name in names if name in columns]
    alike = [[c for c in columns if c.lower() == name.lower()] for name in names]
    return next(iter([*exact, *(same[0] for same in alike if len(same) == 1)]), None)


def _setup_columns(table: pd.DataFrame, setting: str) -> list[str]:
    """Columns that differ between set-ups which each have several values of the setting."""
    x = checks.as_numbers(table[setting])
    candidates = dict.fromkeys([*identity_columns(table), *(c for c in _SETUP if c in table)])
    candidates.pop(setting, None)
    differing = [column for column in candidates if len(table[column].drop_duplicates()) > 1]
    counts = {column: x.groupby(table[column], dropna=False).nunique() for column in differing}
    return [column for column, count in counts.items() if count.gt(1).any()]


def _failures(table: pd.DataFrame, y: pd.Series[float]) -> pd.Series[str]:
    """Why each run failed; "" where it did not."""
    said = table.get(_FAILURE, pd.Series("", index=table.index)).astype(object)
    said = said.where(said.notna(), "").map(str).str.strip()
    done = y.notna() | table.reindex(columns=["time_s", _PERFORMANCE]).notna().any(axis=1)
    return said.mask(~done & said.eq(""), "failed")


def _performance(table: pd.DataFrame, setting: str) -> FloatArray:
    """Work per second of each run: throughput, else data size, or one job, over time."""
    rate, time = gr.numbers(table, _PERFORMANCE), gr.numbers(table, "time_s")
    work = table[setting].to_numpy(dtype=np.float64) if setting == "data_bytes" else 1.0
    return np.where(np.isnan(rate), work / time, rate)


def _column_unit(column: str) -> str:
    """Unit of a column: that of the schema, else what its name ends in; "" where it has none."""
    if column in schema.COLUMNS:
        unit = schema.COLUMNS[column].unit
        return "" if unit == "1" else unit
    ends = {"_bytes": "B", "_bytes_s": "B/s", "_ops_s": "1/s", "_s": "s", "_hz": "Hz", "_w": "W"}
    return next((unit for end, unit in ends.items() if column.endswith(end)), "")


def _key_text(column: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    unit = _column_unit(column)
    return tx.shown(float(value), unit) if unit in ("Hz", "B") else f"{column} {value:g}"


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
    # Words before "per" or "/", split at case and punctuation.
    apart = re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()
    plain = re.sub(r"[_\-.\s]+", " ", apart)
    words = re.findall(r"[a-z]+\d*", _DIVIDED.split(plain)[0])
    if _any_word_begins(words, _HIGHER_ALWAYS):
        return True
    if _any_word_begins(words, _LOWER) or any(_PERCENTILE.fullmatch(word) for word in words):
        return False
    if _any_word_begins(words, _HIGHER):
        return True
    unit = units.split_unit(name)[1]
    # A bare "_s" after bytes is a rate.
    if unit and unit.si == "s":
        return _any_word_begins(words, ("byte",))
    return False if unit and unit.si in ("w", "j") else None


def _any_word_begins(words: list[str], beginnings: tuple[str, ...]) -> bool:
    return any(word.startswith(beginnings) for word in words)


class _Sweep(NamedTuple):
    """Levels of one sweep, in order."""

    levels: pd.DataFrame
    # Levels that worked, up to the first above them that failed: what works again is not relied on.
    good: pd.DataFrame
    # Levels that failed next to those that worked, below and above; NaN where none did.
    below: float
    above: float

    @classmethod
    def of(cls, points: pd.DataFrame) -> _Sweep:
        """Average the runs of each level; usable levels end below the first failure above them."""
        levels = points.groupby("x", sort=True).agg(
            runs=("x", "size"),
            failed=("failed", "sum"),
            value=("y", "mean"),
            performance=("performance", "mean"),
            power_w=("power_w", "mean"),
            failure=("failure", "max"),
        )
        levels["per_watt"] = levels["performance"] / levels["power_w"]
        levels = levels.reset_index()
        x, failed = levels["x"].to_numpy(), levels["failed"].to_numpy() > 0
        first = x[~failed].min(initial=np.inf)
        below = x[failed & (x < first)].max(initial=-np.inf)
        above = x[failed & (x > first)].min(initial=np.inf)
        good = levels[~failed & (x < above)]
        if good.empty:
            return cls(levels, good, np.nan, np.nan)
        return cls(levels, good, *(end if np.isfinite(end) else np.nan for end in (below, above)))


def _fit_sweeps(
    sweeps: _Sweeps, tables: list[_Sweep], scale: str, level: float
) -> dict[Any, dict[Any, float]]:
    """Fit the knee of every sweep through its usable levels: figures by sweep number."""
    good = pd.concat([table.good[["x"]].assign(sweep=i) for i, table in enumerate(tables)])
    # A level of which some runs failed cannot be relied on.
    used = sweeps.points[sweeps.points["y"].notna()].merge(good, on=["sweep", "x"])
    if used.empty:
        return {}
    codes, kept = pd.factorize(used["sweep"], sort=True)
    fit = fit_knees(codes, used["x"], used["y"], scale=scale, level=level)  # type: ignore[arg-type]
    figures = {name: getattr(fit, name) for name in _FIGURES}
    return pd.DataFrame(figures, index=kept).T.to_dict()


# Figures of `fit_knees` that a row is made of.
_FIGURES = (
    *("knee", "lower", "upper", "value"),
    *("slope_before", "slope_after", "p_value", "lack_of_fit"),
)
# A bend that chance makes as often as this is none; two lines that fit as badly as this are not
# the form of the curve.
_BY_CHANCE = 0.05
# Without a knee, the smallest level that comes as near to the best as this is good enough.
_NEAR_BEST = 0.05


def _knee_table(
    sweeps: _Sweeps, tables: list[_Sweep], fits: Mapping[Any, Row], higher: bool
) -> pd.DataFrame:
    rows = [_knee_row(table, fits.get(place), higher) for place, table in enumerate(tables)]
    declared = SweepKnees.tables[0].columns
    found = pd.DataFrame(rows).assign(sweep=sweeps.names)
    found = found.reindex(columns=[column.name for column in declared])
    # Numbers as such, also where a column has nothing but missing values.
    numbers = [column.name for column in declared if column.unit != rs.TEXT]
    return pd.concat([sweeps.keys, found.astype(dict.fromkeys(numbers, np.float64))], axis=1)


def _knee_row(sweep: _Sweep, fit: Row | None, higher: bool) -> Row:
    """Row of the knees table: finding, knee with interval, and the level to run at."""
    row: Row = {"levels": len(sweep.good), "next_failure": ""}
    row |= {"failed_below": sweep.below, "failed_above": sweep.above}
    if fit is None:
        return row | {"finding": FAILS, "next_failure": str(sweep.levels["failure"].max())}
    first, last = float(sweep.good["x"].iloc[0]), float(sweep.good["x"].iloc[-1])
    row |= {name: fit[name] for name in _FIGURES[4:]}
    row |= {"measured_to": last, "linear_from": first, "linear_to": last, "knee": np.nan}
    change = fit["slope_after"] - fit["slope_before"]
    # A knee is where a step begins to bring less.
    costs = change < 0 if higher else change > 0
    if len(sweep.good) < FEWEST_LEVELS:
        row["finding"] = FEW
    elif not (fit["p_value"] < _BY_CHANCE and costs):
        row["finding"] = STRAIGHT
    else:
        row |= {"finding": KNEE, "linear_to": fit["knee"], "knee": fit["knee"]}
        row["lower"] = np.fmax(max(fit["lower"], 0.0), sweep.below)
        row["upper"] = np.fmin(fit["upper"], sweep.above)
        row["knee_value"] = fit["value"]
    if row["finding"] != KNEE and np.isfinite(sweep.above):
        # What works and what does not enclose where it stops.
        row |= {"lower": last, "upper": sweep.above}
    return row | _operating_point(sweep, row, higher)


def _operating_point(sweep: _Sweep, row: Row, higher: bool) -> Row:
    """Choose the level to run at, and say as shares what the next one would change."""
    # The level nearest to the knee inside its interval, else the last below it; without a knee the
    # smallest that comes near enough to the best.
    good, knee = sweep.good, row["knee"]
    x, value = good["x"].to_numpy(), good["value"].to_numpy()
    if np.isnan(knee):
        benefit = value if higher else 1 / value
        at = int(np.argmax(benefit >= (1 - _NEAR_BEST) * benefit.max()))
    else:
        at = int(np.argmin(np.abs(np.log(x / knee))))
        if not row["lower"] <= x[at] <= row["upper"]:
            at = max(int(np.searchsorted(x, knee, side="right")) - 1, 0)
    here, per_watt = good.iloc[at], good["per_watt"].to_numpy(dtype=np.float64)
    measured = not np.isnan(per_watt).all()
    point: Row = {
        "recommended": here["x"],
        "recommended_value": here["value"],
        "per_watt": here["per_watt"],
        "most_per_watt_at": x[np.nanargmax(per_watt)] if measured else np.nan,
    }
    later = sweep.levels[sweep.levels["x"] > here["x"]]
    if len(later):
        then = later.iloc[0]
        point |= {"next_step": then["x"], "next_failure": then["failure"]}
        for column in ("value", "performance", "power_w", "per_watt"):
            name = f"next_{column.removesuffix('_w')}_change"
            point[name] = then[column] / here[column] - 1
    return point


def _caveats(runs: pd.DataFrame, sweeps: _Sweeps, knees: pd.DataFrame, higher: bool) -> list[str]:
    limited = runs.get("client_limited", pd.Series(dtype=object)).eq(True).sum()
    others = runs.get("limited_by", pd.Series(dtype=object)).eq("others").sum()
    bent = knees[knees["finding"] == KNEE]
    gradual = (bent["lack_of_fit"] < _BY_CHANCE).sum()
    alone, unbounded = bent["upper"].isna().sum(), np.isinf(bent["upper"]).sum()
    improve = ((knees["finding"] == STRAIGHT) & (knees["p_value"] < _BY_CHANCE)).sum()
    counts = {
        f"{sweeps.held_back} runs at less than full load (column load) are left out, because their "
        "request rate was set": sweeps.held_back,
        f"{limited} of {len(runs)} runs were limited by their clients: the knee may be that of the "
        "clients": limited,
        f"in {others} of {len(runs)} runs other programs used CPU time that the workload lacked "
        "(limited_by): their levels do not show the workload's own limit": others,
        f"{gradual} of {len(knees)} sweeps bend gradually: two lines miss the measured levels by "
        "more than repeats scatter. The interval of the knee then covers noise only": gradual,
        f"{alone} knees have no interval: measure five levels, or repeat runs": alone,
        f"{unbounded} knees have no upper end: measure higher levels": unbounded,
        f"{improve} sweeps improve {'faster' if higher else 'further'} after their bend, so the "
        "bend is no limit": improve,
    }
    return [text for text, count in counts.items() if count]
