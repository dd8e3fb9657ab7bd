"""Levels of a stretch of demand: one cell a resource, with all the evidence behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.demand.utilisation import Use, grade, summarise, worst
from ppw.pressure.capacity import LAST_RESORT, MEASURES, RESOURCES, WORDS, Measure

if TYPE_CHECKING:
    import pandas as pd

    from ppw.pressure.capacity import Capacity, Thresholds

NOT_MEASURED = "not measured"
NO_CAPACITY = "no capacity"


class Evidence(NamedTuple):
    """One figure behind a cell.

    Attributes
    ----------
    resource, kind, measure : str
        The measure is the name of its threshold.
    statistic : str
        "mean" or "median" over time.
    value, p95, share_high : float
        That statistic, what 5 % of the time exceeds, and share of the time at or above ``high``.
    unit : str
    medium, high : float
        The thresholds.
    level : str
        "" where it was not measured.
    demand : float
        Mean of the columns before it is divided by a capacity.
    capacity : float
        NaN where there is none or it is not known.
    capacity_source, columns : str
    note : str
        Why there is no level.
    """

    resource: str
    kind: str
    measure: str
    statistic: str
    value: float
    p95: float
    share_high: float
    unit: str
    medium: float
    high: float
    level: str
    demand: float
    capacity: float
    capacity_source: str
    columns: str
    note: str


class Cell(NamedTuple):
    """The level of one resource.

    Attributes
    ----------
    resource : str
    level : str
        "low", "medium" or "high"; "no capacity" where demand is known and what it is a share of is
        not; "not measured".
    because : str
        Measures that say so, separated by `, `.
    """

    resource: str
    level: str
    because: str


def judge(
    demand: pd.DataFrame, capacity: Capacity, thresholds: Thresholds
) -> tuple[list[Cell], list[Evidence]]:
    """Judge each resource by all its measures.

    Parameters
    ----------
    demand : pandas.DataFrame
        As of `ppw.pressure.demand.demand_of`.
    capacity : Capacity
    thresholds : Thresholds
    """
    evidence = [_evidence(m, demand, capacity, thresholds) for m in MEASURES]
    evidence = _without_last_resort(evidence)
    loopback = _over_loopback(demand, thresholds)
    cells = [
        _cell(resource, [e for e in evidence if e.resource == resource], loopback=loopback)
        for resource in RESOURCES
    ]
    return cells, evidence


def activity(demand: pd.DataFrame, thresholds: Thresholds) -> str:
    """Say whether the CPUs were "working", "waiting" for I/O or "idle", by the split of their time.

    Waiting is when more time passed idle with I/O outstanding than busy.
    """
    seconds = demand["interval_s"]
    busy = summarise(demand["user_share"] + demand["system_share"], seconds).mean
    waiting = summarise(demand["iowait_share"], seconds).mean
    if np.isnan(busy):
        return NOT_MEASURED
    if busy + np.nan_to_num(waiting) < thresholds["cpu_active"].medium:
        return "idle"
    return "waiting" if waiting > busy else "working"


def cpu_split(demand: pd.DataFrame) -> dict[str, float]:
    """Mean shares of the time of all CPUs, and context switches (1/s)."""
    columns = ("user_share", "system_share", "iowait_share", "steal_share", "context_switches_s")
    return {c: summarise(demand[c], demand["interval_s"]).mean for c in columns}


def _evidence(
    measure: Measure, demand: pd.DataFrame, capacity: Capacity, thresholds: Thresholds
) -> Evidence:
    threshold = thresholds[measure.name]
    seconds = demand["interval_s"]
    asked = summarise(measure.demand(demand), seconds).mean
    use = summarise(measure.of(demand, capacity), seconds, threshold.high)
    limit = capacity.figures()[measure.capacity] if measure.capacity else np.nan
    value = use.median if measure.statistic == "median" else use.mean
    return Evidence(
        resource=measure.resource,
        kind=measure.kind,
        measure=measure.name,
        statistic=measure.statistic,
        value=value,
        p95=use.p95,
        share_high=use.share_high,
        unit=threshold.unit,
        medium=threshold.medium,
        high=threshold.high,
        level=grade(value, threshold.medium, threshold.high),
        demand=asked,
        capacity=limit,
        capacity_source=capacity.source(measure.capacity) if measure.capacity else "",
        columns=", ".join(measure.columns),
        note=_why_not(asked, use, measure),
    )


def _why_not(asked: float, use: Use, measure: Measure) -> str:
    if np.isnan(asked):
        return NOT_MEASURED
    return f"{WORDS[measure.capacity]} not known" if np.isnan(use.mean) else ""


def _without_last_resort(evidence: list[Evidence]) -> list[Evidence]:
    """Drop the level of the disks' plain rate where their use is known."""
    known = any(
        e.level and e.resource == "disk" and e.kind == "utilisation" and e.measure != LAST_RESORT
        for e in evidence
    )
    if not known:
        return evidence
    return [e for e in evidence if e.measure != LAST_RESORT]


def _over_loopback(demand: pd.DataFrame, thresholds: Thresholds) -> bool:
    """Whether what went through loopback is worth saying and more than went through wires."""
    within = summarise(demand["loopback_bytes_s"], demand["interval_s"]).mean
    wires = demand[["network_rx_bytes_s", "network_tx_bytes_s"]].max(axis=1)
    outside = np.nan_to_num(summarise(wires, demand["interval_s"]).mean)
    return bool(within >= max(thresholds["loopback_rate"].medium, outside))


def _cell(resource: str, evidence: list[Evidence], *, loopback: bool) -> Cell:
    """Take the worst level of utilisation and saturation; low needs a known utilisation."""
    judged = [e for e in evidence if e.kind != "errors"]
    level = worst([e.level for e in judged])
    if level in ("medium", "high"):
        return Cell(resource, level, ", ".join(e.measure for e in judged if e.level == level))
    if resource == "network" and loopback:
        return Cell(resource, NO_CAPACITY, "loopback has no line rate")
    used = [e for e in judged if e.kind == "utilisation"]
    if any(e.level for e in used):
        return Cell(resource, "low", ", ".join(e.measure for e in used if e.level))
    asked = [e for e in used if not np.isnan(e.demand)]
    if asked:
        return Cell(resource, NO_CAPACITY, asked[0].note)
    return Cell(resource, NOT_MEASURED, "")
