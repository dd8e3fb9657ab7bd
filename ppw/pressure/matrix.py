"""`pressure_matrix`: applications by resources, from recordings of the host under each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fitting.demand.utilisation import change_points, grade, summarise, worst
from measurements.timeseries.series import TimeSeries
from ppw.errors import PpwError
from ppw.pressure import capacity as cap, demand as dem
from ppw.results.axes import MEASURED, Axes, new_axes
from ppw.results.result import Result, Table, frame_digest, rows_of, warn_caveats
from ppw.results.text import plot_label, shown

Row = dict[str, Any]

# Phase of a whole recording.
WHOLE = "all"
# Intervals of the shortest phase.
SHORTEST = 3
NOT_MEASURED, NO_CAPACITY = "not measured", "no capacity"
_PRESSED = ("medium", "high")
_MOST_DRAWN = 40
_FILL = {"high": "#d1495b", "medium": "#f0c987", "low": "#dcebdd"}
_UNKNOWN = "#f3f4f6"


# Texts of the tables: shares with three digits, as thresholds of a few percent need them.
def _value_text(value: float, unit: str) -> str:
    if unit == "share" and value == value:
        return f"{100 * value:.3g} %"
    return shown(value, unit) if unit == "1/s" else dem.amount_text(value, unit)


def _cell_text(column: str, row: Mapping[Any, Any]) -> str:
    return _value_text(row[column], row["unit"])


def _words_of_cell(column: str, row: Mapping[Any, Any]) -> str:
    return str(row[column]).replace("_", " ")


def _capacity_text(row: Mapping[Any, Any]) -> str:
    if row["capacity"] != row["capacity"]:
        return ""
    unit = {"memory_bytes": "B"}.get(row["columns"], "1")
    unit = "B/s" if "bytes_s" in row["columns"] else unit
    return f"{_value_text(row['capacity'], unit)} ({row['capacity_source']})"


@dataclass(frozen=True, kw_only=True, eq=False)
class PressureMatrix(Result):
    """Applications by resources, with the evidence behind each cell.

    Attributes
    ----------
    cells : pandas.DataFrame
        One row an application, phase and resource.
    runs : pandas.DataFrame
        One row an application and phase: when it was, and what its CPUs did.
    evidence : pandas.DataFrame
        One row an application, phase and measure.
    thresholds : pandas.DataFrame
        One row per measure.
    thresholds_source : str
        "default", or the file that replaced some.
    """

    kind = "pressure_matrix"
    tables = (
        Table(
            "matrix",
            """
            application      | text | application      | name of the application
            phase            | text | phase            | "all", or "phase 1" and so on
            start_s          | s    | from             | start since that of the recording
            end_s            | s    | to               | end since the start of the recording
            cpu              | text | CPU              | level of the CPUs
            memory           | text | memory           | level of the memory
            memory_bandwidth | text | memory bandwidth | level of the memory bandwidth
            disk             | text | disk             | level of the disks
            network          | text | network          | level of the network
            activity         | text | CPUs are         | "working", "waiting" for I/O or "idle"
            """,
            title="Matrix",
            most=500,
        ),
        Table(
            "cells",
            """
            application | text | | name of the application
            phase       | text | | "all", or "phase 1" and so on
            resource    | text | | resource that is judged
            level       | text | | "low", "medium", "high", "no capacity" or "not measured"
            because     | text | | measures that say so, separated by commas
            """,
        ),
        Table(
            "runs",
            """
            application        | text  | | name of the application
            phase              | text  | | "all", or "phase 1" and so on
            start_s            | s     | | start since that of the recording
            end_s              | s     | | end since the start of the recording
            intervals          | count | | intervals of the phase
            activity           | text  | | "working", "waiting" for I/O or "idle"
            user_share         | share | | time of all CPUs in programs
            system_share       | share | | time of all CPUs in the kernel and interrupts
            iowait_share       | share | | time of all CPUs idle while an I/O was outstanding
            steal_share        | share | | time of all CPUs taken by the hypervisor
            context_switches_s | 1/s   | | context switches per second
            cpu_cores          | 1     | | CPUs that were busy on average
            loopback_bytes_s   | B/s   | | traffic within the host
            """,
        ),
        Table(
            "evidence",
            """
            application     | text  | application | name of the application
            phase           | text  | phase       | "all", or "phase 1" and so on
            resource        | text  | resource    | resource that is judged
            kind            | text  |             | what is judged: "utilisation" and others
            measure         | text  | measure     | name of the threshold
            statistic       | text  |             | "mean" or "median" over time
            level           | text  | level       | "low", "medium" or "high", if measured
            capacity        | 1     | of          | capacity, NaN where there is none
            value           | unit  | value       | that statistic
            p95             | unit  | p95         | exceeded in 5 % of the time
            share_high      | share |             | share of the time at or above `high`
            unit            | text  |             | unit of `value` and of the thresholds
            medium          | unit  | medium from | threshold of medium
            high            | unit  | high from   | threshold of high
            demand          | 1     |             | mean of the columns, before any capacity
            capacity_source | text  |             | who says the capacity
            columns         | text  |             | columns of the demand
            note            | text  |             | why there is no level
            """,
            title="Evidence",
            most=0,
            show={
                "resource": lambda row: cap.RESOURCE_WORDS[row["resource"]],
                "measure": partial(_words_of_cell, "measure"),
                "level": lambda row: str(row["level"] or row["note"]),
                "capacity": lambda row: _capacity_text(row) or "–",
                **{name: partial(_cell_text, name) for name in ("value", "p95", "medium", "high")},
            },
        ),
        Table(
            "thresholds",
            """
            measure | text | measure     | name of the threshold
            medium  | unit | medium from | from where on it is medium
            high    | unit | high from   | from where on it is high
            unit    | text |             | unit of both
            meaning | text | of          | what is measured
            """,
            title="Thresholds",
            most=0,
            show={
                "measure": partial(_words_of_cell, "measure"),
                **{name: partial(_cell_text, name) for name in ("medium", "high")},
            },
        ),
    )

    cells: pd.DataFrame
    runs: pd.DataFrame
    evidence: pd.DataFrame
    thresholds: pd.DataFrame
    thresholds_source: str

    def level(self, application: str, resource: str, phase: str = WHOLE) -> str:
        """Level of one cell; "" where there is no such cell."""
        row = _rows_of_part(self.cells, application, phase)
        row = row[row["resource"] == resource]
        return "" if row.empty else str(row["level"].iloc[0])

    def to_frame(self) -> pd.DataFrame:
        """One row an application and phase, with the level of each resource."""
        key = ["application", "phase"]
        wide = self.cells.pivot_table(
            index=key, columns="resource", values="level", aggfunc="first", sort=False
        )
        return self.runs.merge(wide[list(cap.RESOURCES)].reset_index(), on=key)

    @property
    def matrix(self) -> pd.DataFrame:
        """`to_frame` as it prints: phases only where a recording was divided."""
        divided = (self.runs["phase"] != WHOLE).any()
        return self.to_frame().drop(columns=[] if divided else ["phase", "start_s", "end_s"])

    def verdict(self) -> list[str]:
        """Say of each application which resources press it, in a sentence."""
        return [_verdict_sentence(row) for row in rows_of(self.to_frame()) if row["phase"] == WHOLE]

    def text_parts(self) -> list[str]:
        """Return the matrix, the evidence of each cell, and where the thresholds are from."""
        lines = [line for table in self.printed_tables() for line in table.lines()]
        because = [self._because_text(row) for row in rows_of(self.cells) if row["phase"] == WHOLE]
        return [*lines, "", *because, "", f"thresholds: {self.thresholds_source}"]

    def _because_text(self, cell: Row) -> str:
        """Say a cell's application, resource and level, with the evidence that decided it."""
        mine = _rows_of_part(self.evidence, cell["application"], cell["phase"])
        mine = mine[mine["resource"] == cell["resource"]]
        names = cell["because"].split(", ")
        parts = [_evidence_text(row) for row in rows_of(mine) if row["measure"] in names]
        # What was asked of the resource is known; the user can state what it is a share of.
        if not parts and cell["level"] == NO_CAPACITY:
            name = cell["resource"].replace("_", "-")
            name = {"cpu": "cpus", "disk": "disk-bandwidth"}.get(name, name)
            option = f" (--{name})" * ("not known" in cell["because"])
            parts = [f"{cell['because']}{option}", *self._plain_demand(cell, mine)]
        head = f"{cell['application']}: {cap.RESOURCE_WORDS[cell['resource']]} {cell['level']}"
        return f"{head}: {'; '.join(parts)}" if parts else head

    def _plain_demand(self, cell: Row, evidence: pd.DataFrame) -> list[str]:
        """Demand on a resource without a capacity, as a text in a list; empty if unknown."""
        if cell["resource"] == "network":
            run = _rows_of_part(self.runs, cell["application"], cell["phase"])
            within = float(run["loopback_bytes_s"].iloc[0])
            return [] if within != within else [f"loopback {_value_text(within, 'B/s')}"]
        used = evidence[evidence["kind"] == "utilisation"]
        return [f"{shown(row['demand'])} in {row['columns']}" for row in rows_of(used)][:1]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the levels of the first forty rows as coloured words."""
        from matplotlib.patches import Rectangle

        axes = new_axes(ax)
        rows = rows_of(self.to_frame())[:_MOST_DRAWN]
        for y, row in enumerate(rows):
            for x, resource in enumerate(cap.RESOURCES):
                colour = _FILL.get(row[resource], _UNKNOWN)
                axes.add_patch(Rectangle((x, y), 0.96, 0.92, facecolor=colour, lw=0))
                at = (x + 0.48, y + 0.46)
                axes.text(*at, row[resource], ha="center", va="center", color=MEASURED)
        axes.set_xlim(0, len(cap.RESOURCES))
        axes.set_ylim(len(rows), 0)
        names = [words.replace(" ", "\n") for words in cap.RESOURCE_WORDS.values()]
        axes.set_xticks([x + 0.48 for x in range(len(names))], names)
        axes.set_yticks([y + 0.46 for y in range(len(rows))], [_row_label(row) for row in rows])
        axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
        axes.set_ylabel("application")
        for spine in axes.spines.values():
            spine.set_visible(False)
        return axes


def _rows_of_part(table: pd.DataFrame, application: str, phase: str) -> pd.DataFrame:
    return table[(table["application"] == application) & (table["phase"] == phase)]


def _verdict_sentence(row: Row) -> str:
    words = cap.RESOURCE_WORDS.items()
    pressed = [f"{word} ({row[name]})" for name, word in words if row[name] in _PRESSED]
    unknown = [word for name, word in words if row[name] in (NOT_MEASURED, NO_CAPACITY)]
    what = f"puts pressure on {', '.join(pressed) or 'no resource that was judged'}"
    rest = f"; not judged: {', '.join(unknown)}" if unknown else ""
    return f"{row['application']} {what}{rest}. Its CPUs are {row['activity']}."


def _evidence_text(row: Row) -> str:
    limit = _capacity_text(row)
    value = f"{_cell_text('value', row)}{f' of {limit}' if limit else ''}"
    bound = "high" if row["level"] == "high" else "medium"
    return f"{_words_of_cell('measure', row)} {value}, {bound} from {_cell_text(bound, row)}"


def _row_label(row: Row) -> str:
    text = plot_label(row["application"])
    return text if row["phase"] == WHOLE else f"{text}, {plot_label(row['phase'])}"


def pressure_matrix(
    recordings: Mapping[str, TimeSeries | Sequence[TimeSeries]],
    *,
    capacity: Mapping[str, float] | None = None,
    thresholds: cap.Thresholds | None = None,
    phases: bool = False,
    shortest: int = SHORTEST,
    operations_s: Mapping[str, float] | None = None,
    disks: Sequence[str] | None = None,
) -> PressureMatrix:
    """Judge what each application asked of each resource of its host.

    Parameters
    ----------
    recordings : mapping of str to TimeSeries, or to several
        By application. Several are of the same run by different programs, such as memory
        bandwidth by perf beside collectl's: of a column that two have, the first one's counts.
    capacity : mapping of str to float, optional
        Figures of `Capacity` that the logs do not have or have wrong; for all recordings.
    thresholds : Thresholds, optional
        By default those of `ppw.pressure.capacity`.
    phases : bool
        Whether each recording is divided where its demand changes.
    shortest : int
        Intervals of the shortest phase, at least 2.
    operations_s : mapping of str to float, optional
        Operations per second of applications, to find artificial load by context switches.
    disks : sequence of str, optional
        Disks that count; by default the physical ones.

    Returns
    -------
    PressureMatrix

    Raises
    ------
    PpwError
        When there is no recording, what is no time series, or one without an interval of known
        length.

    References
    ----------
    M. Awasthi, T. Suri, Z. Guz, A. Shayesteh, M. Ghosh, V. Balakrishnan: System-Level
    Characterization of Datacenter Applications. ICPE 2015.
    """
    if not dem.as_recordings(recordings):
        raise PpwError("no recording was given")
    if shortest < 2:
        raise PpwError(f"the shortest phase is {shortest} intervals: give at least 2")
    limits = thresholds or cap.Thresholds()
    rates = operations_s or {}
    runs = [
        _as_run(name, given, capacity, disks, rates.get(name)) for name, given in recordings.items()
    ]
    parts = [part for run in runs for part in _divide_run(run, shortest if phases else None)]
    judged = [(part, _judge_part(part, limits)) for part in parts]
    texts = _caveats(judged, divided=phases)
    warn_caveats(texts)
    return PressureMatrix(
        cells=pd.DataFrame([cell for part, rows in judged for cell in _cells(part, rows, limits)]),
        runs=pd.DataFrame([_part_facts_row(part, limits) for part in parts]),
        evidence=pd.DataFrame([row for _, rows in judged for row in rows]),
        thresholds=limits.to_frame(),
        thresholds_source=limits.source,
        caveats=tuple(texts),
        input_digest=frame_digest(pd.concat([run.demand for run in runs], ignore_index=True)),
    )


class Run(NamedTuple):
    """One application's demand on its host, as of `demand_of`; operations per second if stated."""

    name: str
    demand: pd.DataFrame
    capacity: cap.Capacity
    series: tuple[TimeSeries, ...]
    operations_s: float | None


def _as_run(
    name: str,
    given: TimeSeries | Sequence[TimeSeries],
    stated: Mapping[str, float] | None,
    disks: Sequence[str] | None,
    operations_s: float | None,
) -> Run:
    """Make a run of its recordings: demand of the first, with columns it lacks of the others."""
    # Texts are sequences too, and are no recordings.
    several = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    series = tuple(dem.as_series(one, name) for one in several)
    if not series:
        raise PpwError(f"{name}: no recording was given")
    if operations_s is not None and not operations_s > 0:
        raise PpwError(f"{name}: {operations_s!r} operations per second: give more than 0")
    demand, *others = [dem.demand_of(one, disks=disks) for one in series]
    for other in others:
        demand = _fill_columns(demand, other)
    if not demand["interval_s"].sum() > 0:
        raise PpwError(f"{name}: holds no interval of known length: give a longer log")
    return Run(name, demand, cap.capacity_of(series[0], stated), series, operations_s)


def _fill_columns(demand: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Fill columns that were not measured from another recording of the same run."""
    # Its intervals are others, and it may not know when it began: each row gets what the other
    # recorded meanwhile, or its mean where the times do not meet.
    missing = [str(c) for c in demand if demand[c].isna().all() and other[c].notna().any()]
    at = demand["time_s"].to_numpy()
    meanwhile = other["time_s"].between(at[0] - demand["interval_s"].iloc[0], at[-1])
    columns: dict[str, Any] = {}
    for column in missing:
        known = other[meanwhile & other[column].notna()]
        if len(known) >= 2:
            columns[column] = np.interp(at, known["time_s"], known[column])
        else:
            columns[column] = summarise(other[column], other["interval_s"]).mean
    return demand.assign(**columns)


class RunPart(NamedTuple):
    """Demand of a run, or of one of its phases."""

    run: Run
    phase: str
    demand: pd.DataFrame

    @property
    def key(self) -> Row:
        """Application and phase, which identify the part."""
        return {"application": self.run.name, "phase": self.phase}

    def mean(self, values: ArrayLike) -> float:
        """Mean weighted by the length of intervals; NaN where nothing was measured."""
        return summarise(values, self.demand["interval_s"]).mean


def _divide_run(run: Run, shortest: int | None) -> list[RunPart]:
    """Whole recording as a part, then its phases if it has several; None for no phases."""
    found = [] if shortest is None else find_phases(run.demand, shortest=shortest)
    phases = [
        RunPart(run, f"phase {number}", run.demand.iloc[first:end])
        for number, (first, end) in enumerate(found, start=1)
    ]
    return [RunPart(run, WHOLE, run.demand), *(phases if len(phases) > 1 else [])]


# Changes count by what the run reached, and by this where it reached less: a little of a large host
# can be a phase, a trickle cannot.
_LEAST_RATE = 20e6
_LEAST_CORES = 1.0
_LEAST_SHARE = 0.1
_REACHED = 0.95


def find_phases(demand: pd.DataFrame, *, shortest: int = SHORTEST) -> list[tuple[int, int]]:
    """Divide demand into phases by changes of CPU time, iowait, memory traffic, disk and network.

    Memory in use is left out: it grows without end in many a phase. Returns the first row of each
    phase and the row after its last, of ``shortest`` rows or more (at least 2).
    """
    ends = [0, *change_points(_phase_signals(demand), shortest=shortest), len(demand)]
    return list(itertools.pairwise(ends))


def _phase_signals(demand: pd.DataFrame) -> dem.FloatArray:
    """Each demand as a share of what the run reached, at most 1: (intervals, demands)."""
    disk = demand["disk_read_bytes_s"] + demand["disk_written_bytes_s"]
    network = demand[["network_rx_bytes_s", "network_tx_bytes_s"]].max(axis=1)
    least = [
        (demand["cpu_cores"], _LEAST_CORES),
        (demand["iowait_share"], _LEAST_SHARE),
        (demand["memory_bandwidth_bytes_s"], _LEAST_RATE),
        (disk, _LEAST_RATE),
        (network, _LEAST_RATE),
        (demand["loopback_bytes_s"], _LEAST_RATE),
    ]
    shares = []
    for rate, lowest in least:
        reached = float(rate.quantile(_REACHED)) if rate.notna().any() else 0.0
        # What is reached for a moment alone counts no more than what is reached for long.
        shares.append(np.minimum(rate / max(reached, lowest), 1.0))
    return np.column_stack(shares)


def _part_facts_row(part: RunPart, thresholds: cap.Thresholds) -> Row:
    demand, whole = part.demand, part.run.demand
    shares = ("user_share", "system_share", "iowait_share", "steal_share", "context_switches_s")
    began = demand["time_s"] - np.nan_to_num(demand["interval_s"])
    zero = float(whole["time_s"].iloc[0] - np.nan_to_num(whole["interval_s"].iloc[0]))
    return {
        **part.key,
        # Stamps in seconds since 1970 have errors of some 1e-7 s.
        "start_s": round(float(began.iloc[0]) - zero, 6),
        "end_s": round(float(demand["time_s"].iloc[-1]) - zero, 6),
        "intervals": float(len(demand)),
        "activity": _activity(part, thresholds),
        **{c: part.mean(demand[c]) for c in (*shares, "cpu_cores", "loopback_bytes_s")},
    }


def _activity(part: RunPart, thresholds: cap.Thresholds) -> str:
    """Say whether the CPUs worked, waited or idled; waiting is more time in iowait than busy."""
    busy = part.mean(part.demand["user_share"] + part.demand["system_share"])
    waiting = part.mean(part.demand["iowait_share"])
    if np.isnan(busy):
        return NOT_MEASURED
    if busy + np.nan_to_num(waiting) < thresholds["cpu_active"].medium:
        return "idle"
    return "waiting" if waiting > busy else "working"


def _judge_part(part: RunPart, thresholds: cap.Thresholds) -> list[Row]:
    """Judge a part by every measure, a row each; the disks' rate only without better measures."""
    figures, source = part.run.capacity.figures(), part.run.capacity.source
    rows = [
        _judge_measure(part, measure, thresholds, figures.get(measure.capacity), source)
        for measure in cap.MEASURES
    ]
    known = [row for row in rows if row["level"] and row["kind"] == "utilisation"]
    # The disks' plain rate says nothing where their use is known.
    if any(row["resource"] == "disk" and row["measure"] != cap.LAST_RESORT for row in known):
        rows = [row for row in rows if row["measure"] != cap.LAST_RESORT]
    if (rate := part.run.operations_s) is not None:
        stated = "operations per second as stated"
        rows.append(_judge_measure(part, cap.SWITCHES, thresholds, rate, lambda _: stated))
    return rows


def _judge_measure(
    part: RunPart,
    measure: cap.Measure,
    thresholds: cap.Thresholds,
    limit: float | None,
    source: Callable[[str], str],
) -> Row:
    """Judge demand as a share of a limit, or by its plain value where the measure has none."""
    demand, threshold = measure.demand(part.demand), thresholds[measure.name]
    values = demand / (1.0 if limit is None else limit)
    use = summarise(values, part.demand["interval_s"], threshold.high)
    value = use.median if measure.statistic == "median" else use.mean
    mean, note = part.mean(demand), ""
    if np.isnan(mean):
        note = NOT_MEASURED
    elif np.isnan(use.p95):
        # The demand was measured: state what it is a share of.
        note = f"{cap.WORDS[measure.capacity][0]} not known"
    return {
        **part.key,
        "resource": measure.resource,
        "kind": measure.kind,
        "measure": measure.name,
        "statistic": measure.statistic,
        "value": value,
        "p95": use.p95,
        "share_high": use.share_high,
        "unit": threshold.unit,
        "medium": threshold.medium,
        "high": threshold.high,
        "level": grade(value, threshold.medium, threshold.high),
        "demand": mean,
        "capacity": np.nan if limit is None else limit,
        "capacity_source": "" if limit is None else source(measure.capacity),
        "columns": ", ".join(measure.columns),
        "note": note,
    }


def _cells(part: RunPart, evidence: list[Row], thresholds: cap.Thresholds) -> Iterator[Row]:
    """Yield a row for each resource of a part: its level, and the measures that decided it."""
    judged = [row for row in evidence if row["kind"] in ("utilisation", "saturation")]
    within = part.mean(part.demand["loopback_bytes_s"])
    wires = part.mean(part.demand[["network_rx_bytes_s", "network_tx_bytes_s"]].max(axis=1))
    # Loopback counts where it is worth saying and carried more than the wires did.
    inside = within >= max(thresholds["loopback_rate"].medium, np.nan_to_num(wires))
    for resource in cap.RESOURCES:
        mine = [row for row in judged if row["resource"] == resource]
        loopback = resource == "network" and bool(inside)
        level, because = _judge_resource(mine, loopback=loopback)
        yield {**part.key, "resource": resource, "level": level, "because": because}


def _judge_resource(evidence: list[Row], *, loopback: bool) -> tuple[str, str]:
    """Level of a resource and the measures behind it; "low" needs a known utilisation."""
    level = worst([row["level"] for row in evidence])
    if level in _PRESSED:
        return level, ", ".join(row["measure"] for row in evidence if row["level"] == level)
    if loopback:
        return NO_CAPACITY, "loopback has no line rate"
    used = [row for row in evidence if row["kind"] == "utilisation"]
    if any(row["level"] for row in used):
        return "low", ", ".join(row["measure"] for row in used if row["level"])
    asked = [row for row in used if not np.isnan(row["demand"])]
    return (NO_CAPACITY, asked[0]["note"]) if asked else (NOT_MEASURED, "")


_FEW_INTERVALS = 5
# A resource that is pressed for a tenth of the time is worth looking at by phase.
_A_PART = 0.1
# CPU time by ticks that misses more than this misses what matters.
_MISSED = 0.05


def _caveats(judged: list[tuple[RunPart, list[Row]]], *, divided: bool) -> list[str]:
    """Say of each recording what could mislead; ``divided`` where phases were looked for."""
    texts: list[str] = []
    for part, rows in judged:
        if part.phase == WHOLE:
            found = [*_log_caveats(part.run), *_measure_caveats(rows)]
            found += [] if divided else [*_phase_caveats(rows)]
            texts += [f"{part.run.name}: {text}" for text in found]
    return list(dict.fromkeys(texts))


def _log_caveats(run: Run) -> Iterator[str]:
    yield from (finding.text for series in run.series for finding in series.findings)
    if len(run.demand) < _FEW_INTERVALS:
        yield (
            f"{len(run.demand)} intervals are few, so start and end weigh as much as the work: "
            "record longer, or at shorter intervals"
        )
    shortfall = run.series[0].tick_shortfall()
    if shortfall is not None and shortfall > _MISSED:
        yield (
            f"ticks miss {shortfall:.0%} of the scheduler's CPU time here: a log that counts "
            "ticks, as collectl and sar do, shows the CPUs less busy than they are"
        )


def _measure_caveats(rows: list[Row]) -> Iterator[str]:
    by_name = {row["measure"]: row for row in rows}
    own = by_name["process_utilisation"]
    if own["value"] > 1:
        yield (
            f"{own['demand']:.3g} CPUs are busy, but the workload can use {own['capacity']:g}: "
            "other programs ran on the host, perhaps the load generator, so the workload's own "
            "CPU use is not known"
        )
    others = [by_name[name]["level"] for name in ("disk_bandwidth", "disk_iops", "disk_queue")]
    if by_name["disk_busy"]["level"] == "high" and "high" not in others:
        yield (
            "the disk had an I/O in progress most of the time. A disk that serves several at "
            "once may still have room: give --disk-bandwidth and --disk-iops"
        )
    errors = by_name["network_errors"]["value"]
    if errors > 0:
        yield (
            f"{shown(errors)} network errors per second: check the network before you use these "
            "figures"
        )
    switches = by_name.get(cap.SWITCHES.name)
    if switches and switches["level"] == "high":
        yield (
            f"{shown(switches['value'])} context switches per operation; from "
            f"{switches['high']:g} on a load mostly measures context switching, not the service: "
            "use more connections, pipelining or batches"
        )


def _phase_caveats(rows: list[Row]) -> Iterator[str]:
    """Name the measures that are high in a part of the time only."""
    used = (row for row in rows if row["kind"] == "utilisation" and row["level"] != "high")
    hidden = [row for row in used if row["share_high"] > _A_PART]
    texts = [f"{_words_of_cell('measure', row)} in {row['share_high']:.0%}" for row in hidden]
    if texts:
        yield f"high in a part of the time: {', '.join(texts)}; split the recording with --phases"
