"""`pressure_matrix`: applications by resources, from recordings of the host under each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.demand.utilisation import grade, summarise
from ppw import caveats as cv
from ppw.errors import PpwError
from ppw.pressure.demand import as_recordings
from ppw.pressure.findings import caveats_of
from ppw.pressure.levels import Evidence, activity, cpu_split, judge
from ppw.pressure.measures import ARTIFICIAL
from ppw.pressure.phases import SHORTEST, find_phases
from ppw.pressure.result import WHOLE, PressureMatrix
from ppw.pressure.run import Run, run_of
from ppw.pressure.thresholds import Thresholds
from ppw.result import frame_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from measurements.timeseries.series import TimeSeries


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
        By default those of `ppw.pressure.thresholds`.
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
