"""Columns of a run from the intervals that it was sampled in: CPU time, sectors, what was odd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.timeseries.schema import CPU_COLUMNS, TASK_COLUMNS
from measurements.workloads.service_run import CutShortError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Row = Mapping[str, Any]

_SECTORS = ("sectors_read", "sectors_written")
_NEEDED = (*TASK_COLUMNS, "idle_s", *_SECTORS)
_NAMED = {
    "device new": "a disk appeared: what it did since is counted",
    "device gone": "a disk disappeared: what it did last is not counted",
    "gap": "an interval was far longer than the others",
    "clock back": "the host's clock went back: intervals are by one that does not",
}


class Own(NamedTuple):
    """What a workload and the kernel's threads did, without other programs.

    CPU times in seconds; sectors of 512 B, None where those of the devices have to do.
    """

    user_s: float
    system_s: float
    sectors_read: float | None = None
    sectors_written: float | None = None

    def columns(self) -> dict[str, float]:
        """Columns that they take the place of."""
        known = {name: value for name, value in self._asdict().items() if value is not None}
        return {**known, "nice_s": 0.0}


class LostCountError(CutShortError):
    """A count that a run needs went back, or went away, so that the run tells nothing."""

    def __init__(self, lost: Sequence[str]) -> None:
        # Another message than that of a load that was cut short; what is done is the same.
        super(CutShortError, self).__init__(
            f"counters behind {', '.join(lost)} went back or away during the run: a disk or the "
            "kernel's statistics were set anew; nothing is computed from them",
        )


def window_columns(
    rows: Sequence[Row], *, cpus: int, taken_s: float = 0.0, own: Own | None = None
) -> dict[str, Any]:
    """Add up the intervals of a run.

    Parameters
    ----------
    rows : sequence of mapping
        Of `measurements.timeseries.LiveSampler`.
    cpus : int
        Logical CPUs that the workload may use. Idle time is what they have left when all CPU
        time of the host is taken off, wherever it was spent.
    taken_s : float
        CPU time (s), in user mode, of a load beside the workload on CPUs of its own.
    own : Own, optional
        Stands for what the host did, where others than the workload run there too.

    Returns
    -------
    dict of column to value
        ``sampled_s`` (s), CPU times (s), sectors (512 B), ``cpu_accounting``, ``scope`` (of the
        "host", or "own"), ``scheduled_s`` and ``tick_busy_s`` of the host where they are
        known, ``intervals`` and ``intervals_without_io``, and ``io_notes`` where something was odd.

    Raises
    ------
    LostCountError
        When a count went back or away: nothing is guessed.
    """
    lost = [name for name in _NEEDED if any(row.get(name) is None for row in rows)]
    if lost:
        raise LostCountError(lost)
    seconds = sum(row["interval_s"] for row in rows)
    columns: dict[str, Any] = {"sampled_s": seconds}
    columns |= {name: _sum(rows, name) for name in (*CPU_COLUMNS, *_SECTORS)}
    columns["user_s"] = max(columns["user_s"] - taken_s, 0.0)
    if own is not None:
        columns |= own.columns()
    columns |= _unused(columns, cpus * seconds)
    by_scheduler = all(row["cpu_accounting"] == "scheduler" for row in rows)
    quiet = sum(not any(row[name] for name in _SECTORS) for row in rows)
    return columns | {
        "cpu_accounting": "scheduler" if by_scheduler or own is not None else "tick",
        "scope": "host" if own is None else "own",
        "scheduled_s": _sum(rows, "scheduled_s") if by_scheduler else None,
        "tick_busy_s": _sum(rows, "tick_busy_s"),
        "intervals": len(rows),
        "intervals_without_io": quiet,
        "io_notes": "; ".join(_notes(rows, quiet)) or None,
    }


def _sum(rows: Iterable[Row], name: str) -> float | None:
    """Sum of a column; None where the kernel does not count it, or it is not known throughout."""
    values = [row.get(name) for row in rows]
    return None if None in values else float(sum(value for value in values if value is not None))


def _unused(columns: Row, capacity_s: float) -> dict[str, float | None]:
    """Idle time of the CPUs used, and how much of it was spent waiting for I/O."""
    unused = ("idle_s", "iowait_s")
    taken_s = sum(columns[name] or 0.0 for name in CPU_COLUMNS if name not in unused)
    left_s = max(0.0, capacity_s - taken_s)
    if columns["iowait_s"] is None:
        return {"idle_s": left_s}
    host_s = columns["idle_s"] + columns["iowait_s"]
    waiting = columns["iowait_s"] / host_s if host_s else 0.0
    return {"idle_s": left_s * (1 - waiting), "iowait_s": left_s * waiting}


def _notes(rows: Sequence[Row], quiet: int) -> Iterable[str]:
    marks = {mark for row in rows for mark in row["marks"].split("; ")}
    yield from (said for mark, said in _NAMED.items() if mark in marks)
    if quiet == len(rows):
        yield "no sector was read or written: there are no cycles per I/O"
    elif quiet:
        yield f"{quiet} of {len(rows)} intervals had no I/O"
