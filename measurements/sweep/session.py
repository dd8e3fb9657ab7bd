"""The folder that a sweep leaves beside its table, and the rows that are made of it.

::

    plan.json          what was asked, on which host, with which channels, in which order
    runs.jsonl         a line a run: when, how often, how it ended, what the host said
    samples/0007.csv   the raw readings of run 7
    counts/0007-0.txt  what perf counted in its first execution
    output/0007.txt    what its command printed
    lock               held by the process that measures

A line of ``runs.jsonl`` is on disk before the next run begins, so that a crash costs the run in
hand at most, and the table can be made again from the folder at any time.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from measurements.counters.memory_traffic import llc_misses_per_byte
from measurements.errors import DAMAGE, MeasurementError
from measurements.host import files
from measurements.power import energy, sampler, source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd

SCHEMA_VERSION = 1
# Below so much free space no run is begun (bytes).
_LEAST_FREE = 16 * 1024 * 1024


@dataclass(frozen=True)
class Session:
    """A sweep's folder."""

    folder: Path
    plan: dict[str, Any]  # what ``plan.json`` says

    @classmethod
    def create(cls, folder: Path, plan: dict[str, Any]) -> Self:
        """Make a new folder, which must hold no sweep yet, on a disk that has room."""
        if (folder / "plan.json").exists():
            raise MeasurementError(
                f"{folder}: this folder already holds a sweep: continue with "
                "--resume, or give another file with -o"
            )
        plan = {"schema_version": SCHEMA_VERSION, **plan}
        try:
            for name in ("", "samples", "counts", "output"):
                files.make_folder(folder / name)
            check_space(folder)
            _write_synced(folder / "plan.json", json.dumps(plan, indent=1, ensure_ascii=False))
        except OSError as error:
            raise MeasurementError(f"{folder}: cannot be written: {error.strerror}") from error
        return cls(folder, plan)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Read the plan of a folder. Raises `MeasurementError` where there is none."""
        try:
            plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        except (OSError, RecursionError, ValueError) as error:
            raise MeasurementError(
                f"{folder}: no folder of `ppw measure`: its plan.json cannot be read: {error}"
            ) from error
        if not isinstance(plan, dict) or plan.get("schema_version") != SCHEMA_VERSION:
            raise MeasurementError(f"{folder}/plan.json is not of schema_version {SCHEMA_VERSION}")
        return cls(folder, plan)

    def samples(self, number: int) -> Path:
        """Name the file of a run's raw readings."""
        return self.folder / "samples" / f"{number:04}.csv"

    def counts(self, number: int, execution: int) -> Path:
        """Name the file of the counts of an execution of a run."""
        return self.folder / "counts" / f"{number:04}-{execution}.txt"

    def traffic(self, number: int) -> Path:
        """Name the file of the counts of memory traffic of a run."""
        return self.folder / "counts" / f"{number:04}-memory.txt"

    def output(self, number: int) -> Path:
        """Name the file of a run's output."""
        return self.folder / "output" / f"{number:04}.txt"

    def append(self, record: dict[str, Any]) -> None:
        """Add a run, on disk when this returns."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=False)
        try:
            _write_synced(self.folder / "runs.jsonl", line + "\n", "a")
        except OSError as error:
            raise MeasurementError(
                f"{self.folder}/runs.jsonl: cannot be written: {error.strerror}: "
                "free some space and continue with --resume"
            ) from error

    def records(self) -> list[dict[str, Any]]:
        """Read all runs so far; a last line that was never finished is cut off."""
        path = self.folder / "runs.jsonl"
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return []
        *lines, rest = content.split(b"\n")
        if rest:
            # So that the next run does not begin on the same line.
            os.truncate(path, len(content) - len(rest))
        try:
            return [json.loads(line) for line in lines]
        except (RecursionError, ValueError) as error:
            raise MeasurementError(f"{path}: not a file as ppw wrote it: {error}") from error


def lock_session(folder: Path) -> IO[bytes]:
    """Take a session's folder for one sweep and process, until the file is closed."""
    try:
        if not folder.exists():
            files.make_folder(folder)
        return files.hold_lock(folder / "lock")
    except BlockingIOError as error:
        holder = f"{error.strerror} measures into it: wait for its end, or end it"
        raise MeasurementError(f"{folder}: {holder}") from None
    except OSError as error:
        raise MeasurementError(f"{folder}: cannot be written: {error.strerror}") from error


def check_space(folder: Path) -> None:
    """Raise `MeasurementError` where there is hardly room for a run."""
    free = shutil.disk_usage(folder).free
    if free < _LEAST_FREE:
        raise MeasurementError(
            f"{folder}: {free / 1e6:.0f} MB free, and a run may fill them: free "
            "some space, or give -o on another disk"
        )


def check_writable(target: Path) -> None:
    """Raise `MeasurementError` where a file at ``target`` could not be written."""
    folder = target.parent
    probe = folder / f".{target.name}.{os.getpid()}"
    try:
        _write_synced(probe, "x" * 4096)
    except OSError as error:
        raise MeasurementError(f"{target}: cannot be written: {error.strerror}") from error
    finally:
        probe.unlink(missing_ok=True)
    if target.exists() and not os.access(target, os.W_OK):
        raise MeasurementError(f"{target}: exists and is read-only")


def ended_before_plan(folder: Path) -> bool:
    """Tell whether a sweep was killed before its plan was whole: then nothing was measured."""
    if not (folder / "samples").is_dir() or (folder / "runs.jsonl").exists():
        return False
    try:
        json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return True
    return False


def _write_synced(path: Path, text: str, mode: str = "w") -> None:
    with files.open_for_writing(path, mode, encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


# Domains of which a total is taken first where a source has several: the widest that is comparable
# between hosts comes first.
_PREFERRED = ("wall", "host", "package", "gpu", "battery", "psys", "dram", "other")


def run_energy(session: Session, record: Mapping[str, Any]) -> dict[str, energy.RunEnergy]:
    """Compute what every total of the sweep's channels drew in a run, the first source's first."""
    channels = [sampler.channel_from_json(c) for c in session.plan["channels"]]
    if not channels:
        return {}
    found = energy.streams(sampler.read_samples(session.samples(record["run"])))
    by_label = {c.label: c for c in channels}
    start_s, end_s = record["start_s"], record["end_s"]
    parts = energy.totals(channels)
    found, offsets = _on_our_clock(session, channels, found)
    totals = {}
    for label in _order_labels(parts, by_label):
        drawn = energy.total_energy(parts[label], by_label, found, start_s, end_s)
        said = [offsets[part] for part in parts[label] if part in offsets]
        totals[label] = drawn._replace(reason=source.join_notes(*said, drawn.reason))
    return totals


def _on_our_clock(
    session: Session, channels: Iterable[source.Channel], found: Mapping[str, energy.Stream]
) -> tuple[dict[str, energy.Stream], dict[str, str]]:
    """Shift readings by another host's clock to this host's; also what is to be said of each.

    Where the offset of a log is to be estimated (``log@FILE,offset=auto``), all its readings of
    the sweep are compared with all runs so far. Readings of unknown offset are left out.
    """
    ours, said = dict(found), {}
    for channel in channels:
        if not channel.other_clock or channel.label not in found:
            continue
        known = (session.folder / "runs.jsonl").stat().st_size
        stream = ours.pop(channel.label)
        which = (session.folder, known, channel.label, channel.quantity)
        try:
            offset_s, text = _estimated_offset(*which)
            ours[channel.label] = stream._replace(at_s=stream.at_s + offset_s)
        except MeasurementError as error:
            text = str(error)
        said[channel.label] = f"{channel.label}: {text}"
    return ours, said


@lru_cache(maxsize=8)
def _estimated_offset(folder: Path, known: int, label: str, quantity: str) -> tuple[float, str]:
    """Estimate an offset (s) by the first ``known`` bytes of records; also as text."""
    session = Session.open(folder)
    records = session.records()
    readings = [
        reading
        for number in dict.fromkeys(record["run"] for record in records)
        if session.samples(number).exists()
        for reading in sampler.read_samples(session.samples(number))
        if reading.label == label
    ]
    whole = energy.streams(readings)[label]
    runs = [(r["start_s"], r["end_s"]) for r in records if r["kind"] != "idle"]
    power_w, times = whole.value, whole.at_s
    if quantity == "energy":
        # A counter shows the energy (J) since the row before.
        steps = np.diff(times)
        apart = steps > 0
        power_w, times = np.diff(power_w)[apart] / steps[apart], times[1:][apart]
    found = energy.estimate_clock_offset(times, power_w, runs)
    said = f"clock offset {found.offset_s:+.3g} s (± {found.uncertainty_s:.2g} s) by its runs"
    return found.offset_s, said


def _order_labels(
    parts: Mapping[str, Sequence[str]], channels: Mapping[str, source.Channel]
) -> list[str]:
    """Order totals: sources as they were asked for, the most telling domain of each first."""
    kinds = list(dict.fromkeys(label.partition(":")[0] for label in channels))

    def rank(label: str) -> tuple[int, int]:
        domain = channels[parts[label][0]].domain
        known = _PREFERRED.index(domain) if domain in _PREFERRED else len(_PREFERRED)
        return kinds.index(label.partition(":")[0]), known

    return sorted(parts, key=rank)


def row_of(
    session: Session, record: Mapping[str, Any], idle: Mapping[str, energy.RunEnergy]
) -> dict[str, Any]:
    """Make one row: of several executions back to back, the mean of one."""
    plan, count, drawn = session.plan, record["executions"], run_energy(session, record)
    row: dict[str, Any] = {
        **{name: plan[name] for name in ("host", "family", "workload")},
        "freq_hz": record["freq_hz"],
        "cores": record["cores"],
        "data_bytes": plan["data_bytes"],
        "repeat": record["repeat"],
        "time_s": (record["end_s"] - record["start_s"]) / count,
        **record["facts"],
        **plan.get("memory", {}),
    }
    if "llc_misses" in row and row["data_bytes"]:
        row["llc_misses_per_byte"] = llc_misses_per_byte(row["llc_misses"], row["data_bytes"])
    for number, (label, total) in enumerate(drawn.items()):
        power_w, energy_j = _none_if_nan(total.power_w), _none_if_nan(total.power_w * row["time_s"])
        if number == 0:
            row |= {
                "power_w": power_w,
                "energy_j": energy_j,
                "power_source": None if power_w is None else label,
                "power_label": None if power_w is None else "measured",
                "idle_power_w": _none_if_nan(idle[label].power_w) if label in idle else None,
            }
            row["own_energy_estimate_j"] = _own_energy_j(row)
        if len(drawn) > 1:
            row[energy.power_column(label)] = power_w
            row[energy.energy_column(label)] = energy_j
    notes = [total.reason for total in drawn.values() if total.reason]
    notes += [f"{name}: {failure}" for name, failure in record["failures"].items()]
    row |= {
        "price": plan["price"],
        "executions": count,
        "started_at": record["started_at"],
        "notes": "; ".join(notes) or None,
    }
    return {name: value for name, value in row.items() if value is not None}


def _own_energy_j(row: Mapping[str, Any]) -> float | None:
    """Estimate the energy of the command alone (J): idle power, and its share of the rest."""
    power_w, idle_w, other_s = (row.get(c) for c in ("power_w", "idle_power_w", "other_cpu_s"))
    if power_w is None or idle_w is None or other_s is None or power_w <= idle_w:
        return None
    own_s = row["command_user_s"] + row["command_system_s"]
    share = own_s / (own_s + other_s) if own_s else 0.0
    return float((idle_w + share * (power_w - idle_w)) * row["time_s"])


def _none_if_nan(value: float) -> float | None:
    return value if value == value else None


def session_table(session: Session) -> pd.DataFrame:
    """Make the runs table of all runs of a sweep so far, from its records and raw readings."""
    import pandas as pd

    try:
        return pd.DataFrame(session_rows(session))
    except UnicodeEncodeError as error:
        raise MeasurementError(
            f"{session.folder}: runs.jsonl or plan.json holds {error.object[:40]!r}, which is no "
            "text: correct it there"
        ) from error


def session_rows(
    session: Session,
    *,
    kind: str = "run",
    energy_of: Callable[..., Any] = run_energy,
    make_row: Callable[..., Any] = row_of,
) -> list[Any]:
    """Make the rows of all runs of a kind that went well, in the order of measurement."""
    rows: list[Any] = []
    idle: Any = {}
    for number, record in enumerate(session.records(), start=1):
        try:
            if record["kind"] == "idle":
                idle = energy_of(session, record)
            elif record["kind"] == kind and record["exit_code"] == 0:
                rows.append(make_row(session, record, idle))
        except MeasurementError:
            raise
        except DAMAGE as error:
            reason = f"{type(error).__name__}: {str(error)[:80]!r}"
            raise MeasurementError(
                f"{session.folder}: line {number} of runs.jsonl, or plan.json, is not as ppw wrote "
                f"it ({reason}): measure again into another folder"
            ) from error
    return rows
