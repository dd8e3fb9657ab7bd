"""Rows of the runs table from a sweep's folder; nothing is measured here."""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from measurements.power import energy
from measurements.power.sampler import channel_from_json
from measurements.sweep.rows import row_of, run_energy
from measurements.sweep.session import Session
from measurements.workloads.hadoop import history
from measurements.workloads.hadoop.cluster import MASTER, NODES, cluster_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd


_SOURCE = "power_source"


def hadoop_table(session: Session) -> pd.DataFrame:
    """Runs table of all runs that went well: a row per node, and one of a cluster."""
    import pandas as pd

    parts = node_sessions(session)
    rows: list[dict[str, Any]] = []
    idle: dict[str, dict[str, energy.RunEnergy]] = {}
    for record in session.records():
        if record["kind"] == "idle":
            idle = node_energies(session, parts, record)
        elif record["kind"] == "run" and record["exit_code"] == 0:
            rows += rows_of(session, parts, record, idle)
    return pd.DataFrame(rows)


def node_sessions(session: Session) -> dict[str, Session]:
    """Parts of a sweep's folder by node, for the nodes that the user has named."""
    folder = session.folder / NODES
    if not folder.is_dir():
        return {}
    parts = [Session.open(inner) for inner in sorted(folder.iterdir())]
    return {part.plan["host"]: part for part in parts}


def node_energies(
    session: Session, parts: Mapping[str, Session], record: Mapping[str, Any]
) -> dict[str, dict[str, energy.RunEnergy]]:
    """Energy by node and channel while a record lasted; the sweep's own under ""."""
    return {name: run_energy(part, record) for name, part in {"": session, **parts}.items()}


def rows_of(
    session: Session,
    parts: Mapping[str, Session],
    record: Mapping[str, Any],
    idle: Mapping[str, Mapping[str, energy.RunEnergy]],
) -> list[dict[str, Any]]:
    """Rows of one run; ``idle`` has what the channels drew by node, the sweep's own under ""."""
    own = row_of(session, record, run_energy(session, record), idle.get("", {}))
    asked = session.plan["asked"]["hadoop"]
    if asked["mode"] == "local":
        return [own]
    whole = {**own, "host": f"cluster:{asked['cluster']}"}
    if asked["mode"] == "yarn":
        # This host is the only node.
        rows, parts, master = [own], {own["host"]: session}, own["host"]
    else:
        names = list(dict.fromkeys([*parts, *record[NODES]]))
        rows = [_node_row(session, parts.get(name), name, record, idle) for name in names]
        masters = (name for name, part in parts.items() if part.plan["role"] == MASTER)
        master = next(masters, record["master"])
    if not rows:
        return [whole]
    domains = {row["host"]: _domain(parts[row["host"]], row) for row in rows if _SOURCE in row}
    return [*rows, cluster_row(whole, rows, domains=domains, master=master)]


def _domain(part: Session, row: Mapping[str, Any]) -> str:
    """Domain that the power of a node's row covers."""
    channels = [channel_from_json(c) for c in part.plan["channels"]]
    first = energy.totals(channels)[row[_SOURCE]][0]
    return next(c.domain for c in channels if c.label == first)


def _node_row(
    session: Session,
    part: Session | None,
    name: str,
    record: Mapping[str, Any],
    idle: Mapping[str, Mapping[str, energy.RunEnergy]],
) -> dict[str, Any]:
    plan = session.plan if part is None else part.plan
    if part is None:
        # A node of which nothing is known but what its tasks did.
        plan = {**plan, "host": name, "channels": []}
        plan |= dict.fromkeys(("family", "price", "cores"))
    told = replace(part or session, plan=plan)
    asked = {name: record["facts"][name] for name in record["asked"]}
    of_node = {
        **record,
        "cores": plan["cores"],
        "facts": {**asked, **record[NODES].get(name, {})},
        "failures": record["node_failures"].get(name, {}),
    }
    return row_of(told, of_node, run_energy(told, of_node), idle.get(name, {}))


_BYTES = {
    "input_bytes": history.INPUT_BYTES,
    "map_output_bytes": history.MAP_OUTPUT_BYTES,
    "shuffle_bytes": history.SHUFFLE_BYTES,
    "output_bytes": history.OUTPUT_BYTES,
    "spilled_records": history.SPILLED_RECORDS,
    "peak_map_memory_bytes": history.PEAK_MAP_MEMORY,
    "peak_reduce_memory_bytes": history.PEAK_REDUCE_MEMORY,
}
_FILES = {
    "file_read_bytes": ("READ", True),
    "file_written_bytes": ("WRITTEN", True),
    "dfs_read_bytes": ("READ", False),
    "dfs_written_bytes": ("WRITTEN", False),
}
_TASK_COLUMNS = (
    *("task", "attempt", "kind", "status", "counts", "node", "locality"),
    *("start_s", "elapsed_s", "shuffle_s", "sort_s", "reduce_s", "cpu_s", "gc_s"),
)


def job_columns(job: history.Job) -> dict[str, float]:
    """Columns of a whole job; what is not known is left out.

    ``job_s`` is from submission to end; ``map_phase_s`` and ``reduce_phase_s`` are from the first
    task's start to the last one's end, and overlap where reduces begin early. Then come means over
    tasks and the slowest, CPU time and garbage collection summed over tasks, bytes, the share of
    maps with their data on their own node, and numbers of tasks and of wasted attempts.
    """
    maps, reduces = job.done("MAP"), job.done("REDUCE")
    attempts = [a for a in job.attempts if a.kind in ("MAP", "REDUCE")]
    found: dict[str, float | None] = {
        "job_s": job.elapsed_s,
        **_task_times(maps, reduces),
        **_counter_columns(job.counters),
        "map_cpu_s": history.seconds(job.map_counters.get(history.CPU_MS)),
        "reduce_cpu_s": history.seconds(job.reduce_counters.get(history.CPU_MS)),
        "data_local_share": data_local_share(job.counters),
        "map_tasks": float(len(maps)) if attempts else None,
        "reduce_tasks": float(len(reduces)) if attempts else None,
        "wasted_attempts": float(len(attempts) - len(maps) - len(reduces)) if attempts else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def node_columns(job: history.Job) -> dict[str, dict[str, float]]:
    """Columns of each node that tasks ran on, by its name; what is not known is left out.

    The share of local maps is of the node's own maps, by what the scheduler told.
    """
    by_node: dict[str, list[history.TaskAttempt]] = defaultdict(list)
    for attempt in job.attempts:
        if attempt.node and attempt.kind in ("MAP", "REDUCE"):
            by_node[attempt.node].append(attempt)
    return {node: _of_node(job, attempts) for node, attempts in sorted(by_node.items())}


def data_local_share(counters: Mapping[history.Counter, int]) -> float | None:
    """Share of a job's maps that had their data on their own node; None where none was counted."""
    local = counters.get(history.DATA_LOCAL_MAPS, 0)
    others = counters.get(history.RACK_LOCAL_MAPS, 0) + counters.get(history.OTHER_MAPS, 0)
    return local / (local + others) if local + others else None


def write_tasks(job: history.Job, path: Path) -> None:
    """Write a CSV row per attempt: its start since the job's submission, and its times (s)."""
    origin_s = job.submitted_s or 0.0
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(_TASK_COLUMNS)
        for a in job.attempts:
            begun = None if a.start_s is None else a.start_s - origin_s
            times = (begun, a.elapsed_s, a.shuffle_s, a.sort_s, a.reduce_s, a.cpu_s, a.gc_s)
            what = (a.task, a.attempt, a.kind, a.status, a.attempt in job.succeeded)
            rows.writerow((*what, a.node, a.locality, *map(_time_text, times)))


def _task_times(
    maps: Sequence[history.TaskAttempt], reduces: Sequence[history.TaskAttempt]
) -> dict[str, float | None]:
    elapsed = _drop_none(a.elapsed_s for a in maps)
    return {
        "map_phase_s": _span(maps),
        "reduce_phase_s": _span(reduces),
        "map_task_s": _mean(elapsed),
        "map_task_max_s": max(elapsed, default=None),
        "shuffle_task_s": _mean(_drop_none(a.shuffle_s for a in reduces)),
        "sort_task_s": _mean(_drop_none(a.sort_s for a in reduces)),
        "reduce_task_s": _mean(_drop_none(a.reduce_s for a in reduces)),
    }


def _counter_columns(counters: Mapping[history.Counter, int]) -> dict[str, float | None]:
    found: dict[str, float | None] = {
        "task_cpu_s": history.seconds(counters.get(history.CPU_MS)),
        "gc_s": history.seconds(counters.get(history.GC_MS)),
    }
    found |= {c: float(counters[name]) for c, name in _BYTES.items() if name in counters}
    for column, (direction, local) in _FILES.items():
        found[column] = history.file_system_bytes(counters, direction, local=local)
    return found


def _of_node(job: history.Job, attempts: Sequence[history.TaskAttempt]) -> dict[str, float]:
    done = [a for a in attempts if a.attempt in job.succeeded]
    maps, reduces = ([a for a in done if a.kind == kind] for kind in ("MAP", "REDUCE"))
    total: dict[history.Counter, int] = defaultdict(int)
    for attempt in done:
        for counter, value in attempt.counters.items():
            if counter not in (history.PEAK_MAP_MEMORY, history.PEAK_REDUCE_MEMORY):
                total[counter] += value
    placed = [a.locality for a in maps if a.locality]
    found: dict[str, float | None] = {
        "job_s": job.elapsed_s,
        **_task_times(maps, reduces),
        **_counter_columns(total),
        "data_local_share": placed.count("NODE_LOCAL") / len(placed) if placed else None,
        "map_tasks": float(len(maps)),
        "reduce_tasks": float(len(reduces)),
        "wasted_attempts": float(len(attempts) - len(done)),
    }
    return {name: value for name, value in found.items() if value is not None}


def _span(attempts: Sequence[history.TaskAttempt]) -> float | None:
    starts = _drop_none(a.start_s for a in attempts)
    ends = _drop_none(a.end_s for a in attempts)
    return round(max(ends) - min(starts), 3) if starts and ends else None


def _drop_none(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return round(fmean(values), 6) if values else None


def _time_text(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
