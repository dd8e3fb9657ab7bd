"""`pressure_matrix`: applications by resources, from recordings of the host under each."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from fitting.demand.phases import change_points
from fitting.demand.utilisation import grade, summarise
from ppw.errors import PpwError
from ppw.pressure.capacity import ARTIFICIAL, RESOURCE_WORDS, RESOURCES, Thresholds
from ppw.pressure.demand import Run, as_recordings, run_of
from ppw.pressure.levels import NO_CAPACITY, NOT_MEASURED, Evidence, activity, cpu_split, judge
from ppw.results import caveats as cv
from ppw.results.axes import MEASURED, new_axes
from ppw.results.result import TabledResult, frame_digest, rows_of
from ppw.results.text import plot_label, shown, summary_text, text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    from collections.abc import Mapping, Sequence

    from measurements.timeseries.series import TimeSeries


# Phases of one recording: stretches in which it asks the same of its host.


SHORTEST = 3
# Changes count by what the run reached, and by this where it reached less: a little of a large host
# can be a phase, a trickle cannot.
_LEAST_RATE = 20e6
_LEAST_CORES = 1.0
_LEAST_SHARE = 0.1
_REACHED = 0.95


def find_phases(demand: pd.DataFrame, *, shortest: int = SHORTEST) -> list[tuple[int, int]]:
    """Divide demand into phases by changes of CPU time, iowait, memory traffic, disk and network.

    Memory in use is left out: it grows without end in many a phase.

    Parameters
    ----------
    demand : pandas.DataFrame
        As of `ppw.pressure.demand.demand_of`.
    shortest : int
        Intervals of the shortest phase, at least 2.

    Returns
    -------
    list of (int, int)
        First row of each phase, and the row after its last; one phase where nothing changes.

    Raises
    ------
    FittingError
        When ``shortest`` is below 2.
    """
    ends = [0, *change_points(_signals(demand), shortest=shortest), len(demand)]
    return list(itertools.pairwise(ends))


def _signals(demand: pd.DataFrame) -> Numbers:
    """Series in shares of what the run reached."""
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
    # What is reached for a moment alone counts no more than what is reached for long.
    shares = [np.minimum(rate / _scale(rate, most), 1.0) for rate, most in least]
    return np.column_stack(shares)


def _scale(rate: pd.Series[float], least: float) -> float:
    reached = float(rate.quantile(_REACHED)) if rate.notna().any() else 0.0
    return max(reached, least)


# What to know before acting on a pressure matrix.


_FEW_INTERVALS = 5
# A resource that is pressed for a tenth of the time is worth looking at by phase.
_A_PART = 0.1
# CPU time by ticks that misses more than this misses what matters.
_MISSED = 0.05
_WHOLE = "all"


def caveats_of(runs: Sequence[Run], evidence: pd.DataFrame, *, divided: bool) -> list[str]:
    """Say of each recording what could mislead; ``divided`` where phases were looked for."""
    said: dict[str, None] = {}
    for run in runs:
        mine = (evidence["application"] == run.name) & (evidence["phase"] == _WHOLE)
        by_measure = {row["measure"]: row for row in rows_of(evidence[mine])}
        texts = [
            *_about_the_log(run),
            *_about_cpus(by_measure),
            *_about_disks(by_measure),
            *_about_errors(by_measure),
            *_about_load(by_measure),
            *([] if divided else _about_parts(by_measure)),
        ]
        said |= dict.fromkeys(f"{run.name}: {text}" for text in texts)
    return list(said)


def _about_the_log(run: Run) -> list[str]:
    texts = [finding.text for series in run.series for finding in series.findings]
    if len(run.demand) < _FEW_INTERVALS:
        texts.append(
            f"{len(run.demand)} intervals are few: start and end weigh as much as the work; record "
            "longer or oftener"
        )
    shortfall = run.series[0].tick_shortfall()
    if shortfall is not None and shortfall > _MISSED:
        texts.append(
            f"ticks miss {shortfall:.0%} of the scheduler's CPU time here: a log that counts "
            "ticks, as collectl and sar do, shows the CPUs less busy than they are"
        )
    return texts


def _about_cpus(by_measure: dict[str, dict[str, Any]]) -> list[str]:
    row = by_measure["process_utilisation"]
    if not row["value"] > 1:
        return []
    return [
        f"{row['demand']:.3g} CPUs are busy, but the workload can use {row['capacity']:g}: others "
        "ran on the host, such as the load generator, and its own share is not known"
    ]


def _about_disks(by_measure: dict[str, dict[str, Any]]) -> list[str]:
    others = [by_measure[name]["level"] for name in ("disk_bandwidth", "disk_iops", "disk_queue")]
    if by_measure["disk_busy"]["level"] != "high" or "high" in others:
        return []
    return [
        "the disk had an I/O in progress most of the time, which a disk that serves several at "
        "once can have with room left: state its bandwidth and IOPS to be sure"
    ]


def _about_errors(by_measure: dict[str, dict[str, Any]]) -> list[str]:
    row = by_measure["network_errors"]
    if not row["value"] > 0:
        return []
    return [f"{shown(row['value'])} network errors a second: look at the wire before the figures"]


def _about_load(by_measure: dict[str, dict[str, Any]]) -> list[str]:
    row = by_measure.get(ARTIFICIAL)
    if row is None or row["level"] != "high":
        return []
    return [
        f"{shown(row['value'])} context switches an operation, from {row['high']:g} on a load that "
        "measures switching more than the service: use more connections, pipelining or batches"
    ]


def _about_parts(by_measure: dict[str, dict[str, Any]]) -> list[str]:
    """What a mean over the whole run hides."""
    hidden = [
        f"{row['measure'].replace('_', ' ')} in {row['share_high']:.0%}"
        for row in by_measure.values()
        if row["kind"] == "utilisation" and row["level"] != "high" and row["share_high"] > _A_PART
    ]
    if not hidden:
        return []
    return [f"high in a part of the time: {', '.join(hidden)}; divide it by its phases"]


# The pressure matrix as a result: text, tables, JSON, plot.


WHOLE = "all"


@dataclass(frozen=True, kw_only=True, eq=False)
class PressureMatrix(TabledResult):
    """Applications by resources, with the evidence behind each cell.

    Attributes
    ----------
    cells : pandas.DataFrame
        One row an application, phase and resource: ``application``, ``phase`` ("all" or "phase 1"
        and so on), ``resource``, ``level`` ("low", "medium", "high", "no capacity" where demand is
        known and what it is a share of is not, "not measured") and ``because``, the measures that
        say so.
    runs : pandas.DataFrame
        One row an application and phase: ``start_s`` and ``end_s`` from the recording's start,
        ``intervals``, ``activity`` of the CPUs ("working", "waiting" for I/O, "idle"), shares of
        CPU time, ``context_switches_s``, ``cpu_cores`` busy and ``loopback_bytes_s``.
    evidence : pandas.DataFrame
        One row a measure: fields of `ppw.pressure.levels.Evidence`.
    thresholds : pandas.DataFrame
        ``measure``, ``medium``, ``high``, ``unit``, ``meaning``.
    thresholds_source : str
        "default", or the file that replaced some.
    caveats : tuple of str
    """

    kind: ClassVar[str] = "pressure_matrix"

    cells: pd.DataFrame
    runs: pd.DataFrame
    evidence: pd.DataFrame
    thresholds: pd.DataFrame
    thresholds_source: str

    def level(self, application: str, resource: str, phase: str = WHOLE) -> str:
        """Level of one cell; "" where there is no such cell."""
        cells = self.cells
        row = cells[
            (cells["application"] == application)
            & (cells["resource"] == resource)
            & (cells["phase"] == phase)
        ]
        return "" if row.empty else str(row["level"].iloc[0])

    def to_frame(self) -> pd.DataFrame:
        """One row an application and phase, with the level of each resource."""
        wide = self.cells.pivot_table(
            index=["application", "phase"],
            columns="resource",
            values="level",
            aggfunc="first",
            sort=False,
        )
        return self.runs.merge(wide[list(RESOURCES)].reset_index(), on=["application", "phase"])

    def verdict(self) -> list[str]:
        """One sentence an application: what it leans on."""
        return [self._sentence(row) for row in rows_of(self.to_frame()) if row["phase"] == WHOLE]

    def header(self) -> list[str]:
        """Name the columns of `matrix`."""
        phases = ["phase", "from", "to"] if self._has_phases() else []
        return ["application", *phases, *RESOURCE_WORDS.values(), "CPUs are"]

    def matrix(self) -> list[list[str]]:
        """Levels as they are printed."""
        rows = []
        for row in rows_of(self.to_frame()):
            times = [row["phase"], shown(row["start_s"], "s"), shown(row["end_s"], "s")]
            levels = [row[resource] for resource in RESOURCES]
            shown_phase = times if self._has_phases() else []
            rows.append([row["application"], *shown_phase, *levels, row["activity"]])
        return rows

    def evidence_header(self) -> list[str]:
        """Name the columns of `evidence_cells`."""
        return [
            *("application", "resource", "measure", "level", "of"),
            *("value", "p95", "medium from", "high from"),
        ]

    def evidence_cells(self) -> list[list[str]]:
        """Evidence of whole recordings as it is printed; what was not measured says so."""
        return [
            [
                row["application"],
                RESOURCE_WORDS[row["resource"]],
                row["measure"].replace("_", " "),
                row["level"] or row["note"],
                _of_capacity(row).removeprefix(" of ") or "–",
                _text(row["value"], row["unit"]),
                _text(row["p95"], row["unit"]),
                _text(row["medium"], row["unit"]),
                _text(row["high"], row["unit"]),
            ]
            for row in rows_of(self.evidence)
            if row["phase"] == WHOLE
        ]

    def summary(self) -> str:
        """Text: the matrix, the evidence of each cell, then the caveats."""
        lines = [text_table(self.header(), self.matrix()), ""]
        lines += [self._because(row) for row in rows_of(self.cells) if row["phase"] == WHOLE]
        lines += ["", f"thresholds: {self.thresholds_source}"]
        return summary_text(lines, self.caveats)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the matrix."""
        return plot_matrix(self, ax)

    def _has_phases(self) -> bool:
        return bool((self.runs["phase"] != WHOLE).any())

    def _sentence(self, row: dict[str, Any]) -> str:
        leans = [f"{RESOURCE_WORDS[r]} ({row[r]})" for r in RESOURCES if row[r] in _PRESSED]
        unknown = [RESOURCE_WORDS[r] for r in RESOURCES if row[r] in (NOT_MEASURED, NO_CAPACITY)]
        what = f"leans on {', '.join(leans)}" if leans else "leans on no resource that was judged"
        rest = f"; not judged: {', '.join(unknown)}" if unknown else ""
        return f"{row['application']} {what}{rest}. Its CPUs are {row['activity']}."

    def _because(self, cell: dict[str, Any]) -> str:
        rows = self.evidence
        mine = rows[
            (rows["application"] == cell["application"])
            & (rows["phase"] == cell["phase"])
            & (rows["resource"] == cell["resource"])
        ]
        names = cell["because"].split(", ")
        said = [_evidence_text(row) for row in rows_of(mine) if row["measure"] in names]
        if not said and cell["level"] == NO_CAPACITY:
            option = f" ({option_of(cell['resource'])})" * ("not known" in cell["because"])
            said = [f"{cell['because']}{option}", *self._carried(cell, mine)]
        head = f"{cell['application']}: {RESOURCE_WORDS[cell['resource']]} {cell['level']}"
        return f"{head}: {'; '.join(said)}" if said else head

    def _carried(self, cell: dict[str, Any], evidence: pd.DataFrame) -> list[str]:
        """What was asked of a resource without a capacity."""
        if cell["resource"] == "network":
            runs = self.runs
            mine = runs[
                (runs["application"] == cell["application"]) & (runs["phase"] == cell["phase"])
            ]
            within = float(mine["loopback_bytes_s"].iloc[0])
            return [] if within != within else [f"loopback {_text(within, 'B/s')}"]
        used = evidence[evidence["kind"] == "utilisation"]
        return [f"{shown(row['demand'])} in {row['columns']}" for row in rows_of(used)][:1]


def option_of(resource: str) -> str:
    """Option that states the capacity of a resource."""
    return {"cpu": "--cpus", "disk": "--disk-bandwidth"}.get(
        resource, f"--{resource.replace('_', '-')}"
    )


_PRESSED = ("medium", "high")


def _evidence_text(row: dict[str, Any]) -> str:
    name = row["measure"].replace("_", " ")
    value = _text(row["value"], row["unit"])
    limit = _of_capacity(row)
    bound = "high" if row["level"] == "high" else "medium"
    return f"{name} {value}{limit}, {bound} from {_text(row[bound], row['unit'])}"


def _of_capacity(row: dict[str, Any]) -> str:
    if row["capacity"] != row["capacity"]:
        return ""
    unit = {"memory_bytes": "B"}.get(row["columns"], "1")
    unit = "B/s" if "bytes_s" in row["columns"] else unit
    return f" of {_text(row['capacity'], unit)} ({row['capacity_source']})"


def _text(value: float, unit: str) -> str:
    if value != value:
        return "–"
    if unit == "B/s":
        return f"{shown(value, 'B')}/s"
    if unit == "share":
        return f"{100 * value:.3g} %"
    return shown(value, unit)


def pressure_matrix(
    recordings: Mapping[str, TimeSeries | Sequence[TimeSeries]],
    *,
    capacity: Mapping[str, float] | None = None,
    thresholds: Thresholds | None = None,
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
        Operations a second that applications did, to find artificial load by context switches.
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

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.

    References
    ----------
    M. Awasthi, T. Suri, Z. Guz, A. Shayesteh, M. Ghosh, V. Balakrishnan: System-Level
    Characterization of Datacenter Applications. ICPE 2015.
    """
    if not as_recordings(recordings):
        raise PpwError("no recording was given")
    if shortest < 2:
        raise PpwError(f"the shortest phase is {shortest} intervals: give at least 2")
    limits = thresholds or Thresholds()
    runs = [
        run_of(
            name,
            given,
            stated=capacity,
            disks=disks,
            operations_s=(operations_s or {}).get(name),
        )
        for name, given in recordings.items()
    ]
    rows = [row for run in runs for row in _rows(run, limits, shortest if phases else None)]
    evidence = pd.DataFrame([e for row in rows for e in row.evidence])
    said = caveats_of(runs, evidence, divided=phases)
    cv.warn(said)
    return PressureMatrix(
        cells=pd.DataFrame([cell for row in rows for cell in row.cells]),
        runs=pd.DataFrame([row.facts for row in rows]),
        evidence=evidence,
        thresholds=limits.to_frame(),
        thresholds_source=limits.source,
        caveats=tuple(said),
        input_digest=frame_digest(pd.concat([run.demand for run in runs], ignore_index=True)),
    )


@dataclass(frozen=True)
class Row:
    """One row of the matrix, as rows of the result's tables."""

    facts: dict[str, Any]
    cells: list[dict[str, Any]]
    evidence: list[dict[str, Any]]


def _rows(run: Run, thresholds: Thresholds, shortest: int | None) -> list[Row]:
    """The whole recording, then its phases where there are several."""
    rows = [_row(run, WHOLE, run.demand, thresholds)]
    if shortest is None:
        return rows
    found = find_phases(run.demand, shortest=shortest)
    if len(found) > 1:
        rows += [
            _row(run, f"phase {number}", run.demand.iloc[first:end], thresholds)
            for number, (first, end) in enumerate(found, start=1)
        ]
    return rows


def _row(run: Run, phase: str, demand: pd.DataFrame, thresholds: Thresholds) -> Row:
    cells, evidence = judge(demand, run.capacity, thresholds)
    evidence += _switches(run, demand, thresholds)
    key = {"application": run.name, "phase": phase}
    first, last = demand.iloc[0], demand.iloc[-1]
    began = float(first["time_s"] - np.nan_to_num(first["interval_s"]))
    facts = {
        **key,
        # Stamps in seconds since 1970 have errors of some 1e-7 s.
        "start_s": round(began - run.began_s, 6),
        "end_s": round(float(last["time_s"]) - run.began_s, 6),
        "intervals": float(len(demand)),
        "activity": activity(demand, thresholds),
        **cpu_split(demand),
        "cpu_cores": summarise(demand["cpu_cores"], demand["interval_s"]).mean,
        "loopback_bytes_s": summarise(demand["loopback_bytes_s"], demand["interval_s"]).mean,
    }
    return Row(
        facts,
        [{**key, **cell._asdict()} for cell in cells],
        [{**key, **e._asdict()} for e in evidence],
    )


def _switches(run: Run, demand: pd.DataFrame, thresholds: Thresholds) -> list[Evidence]:
    """Context switches for each operation, where the operations are known."""
    if run.operations_s is None:
        return []
    threshold = thresholds[ARTIFICIAL]
    rate = demand["context_switches_s"] / run.operations_s
    use = summarise(rate, demand["interval_s"], threshold.high)
    return [
        Evidence(
            resource="cpu",
            kind="artificial load",
            measure=ARTIFICIAL,
            statistic="mean",
            value=use.mean,
            p95=use.p95,
            share_high=use.share_high,
            unit=threshold.unit,
            medium=threshold.medium,
            high=threshold.high,
            level=grade(use.mean, threshold.medium, threshold.high),
            demand=use.mean * run.operations_s,
            capacity=run.operations_s,
            capacity_source="operations a second as stated",
            columns="context_switches_s",
            note="" if use.measured_s else "not measured",
        )
    ]


_FILL = {"high": "#d1495b", "medium": "#f0c987", "low": "#dcebdd"}
_UNKNOWN = "#f3f4f6"


def plot_matrix(result: PressureMatrix, ax: Axes | None = None) -> Axes:
    """Draw levels as coloured words."""
    from matplotlib.patches import Rectangle

    axes = new_axes(ax)
    rows = rows_of(result.to_frame())[:_MOST_DRAWN]
    for y, row in enumerate(rows):
        for x, resource in enumerate(RESOURCES):
            level = row[resource]
            axes.add_patch(
                Rectangle((x, y), 0.96, 0.92, facecolor=_FILL.get(level, _UNKNOWN), lw=0)
            )
            axes.text(x + 0.48, y + 0.46, level, ha="center", va="center", color=MEASURED)
    axes.set_xlim(0, len(RESOURCES))
    axes.set_ylim(len(rows), 0)
    names = [words.replace(" ", "\n") for words in RESOURCE_WORDS.values()]
    axes.set_xticks([x + 0.48 for x in range(len(RESOURCES))], names)
    axes.set_yticks([y + 0.46 for y in range(len(rows))], [_label(row) for row in rows])
    axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    axes.set_ylabel("application")
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes


def _label(row: dict[str, object]) -> str:
    text = plot_label(row["application"])
    return text if row["phase"] == "all" else f"{text}, {plot_label(row['phase'])}"


_MOST_DRAWN = 40
