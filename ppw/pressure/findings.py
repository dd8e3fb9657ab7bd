"""What to know before acting on a pressure matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppw.estimate import shown
from ppw.pressure.measures import ARTIFICIAL
from ppw.tabled_result import rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from ppw.pressure.run import Run

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
