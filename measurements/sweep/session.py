"""The folder that a sweep leaves beside its table: all that the table is made of.

::

    plan.json          what was asked, on which host, with which channels, in which order
    runs.jsonl         a line a run: when, how often, how it ended, what the host said
    samples/0007.csv   the raw readings of run 7
    counts/0007-0.txt  what perf counted in its first execution
    output/0007.txt    what its command printed

A line of ``runs.jsonl`` is on disk before the next run begins, so that a crash costs the run in
hand at most, and the table can be made again from the folder at any time.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION = 1
# Below so much free space no run is begun (bytes).
_LEAST_FREE = 16 * 1024 * 1024


@dataclass(frozen=True)
class Session:
    """A sweep's folder."""

    folder: Path
    # What ``plan.json`` says.
    plan: dict[str, Any]

    @classmethod
    def create(cls, folder: Path, plan: dict[str, Any]) -> Self:
        """Make a new folder.

        Raises `MeasurementError` when it holds a sweep already, cannot be written, or the disk is
        as good as full.
        """
        if (folder / "plan.json").exists():
            raise MeasurementError(
                f"{folder}: a sweep is in there already: go on with --resume, or give another -o"
            )
        plan = {"schema_version": SCHEMA_VERSION, **plan}
        try:
            for name in ("samples", "counts", "output"):
                (folder / name).mkdir(parents=True, exist_ok=True)
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
                f"{self.folder}/runs.jsonl: cannot be written: {error.strerror}: free some space "
                "and go on with --resume"
            ) from error

    def records(self) -> list[dict[str, Any]]:
        """Read all runs so far; a last line that was never finished is cut off.

        Raises `MeasurementError` for a line within that is no JSON.
        """
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
            raise MeasurementError(f"{path}: not what ppw wrote: {error}") from error


def check_space(folder: Path) -> None:
    """Raise `MeasurementError` where there is hardly room for a run."""
    free = shutil.disk_usage(folder).free
    if free < _LEAST_FREE:
        raise MeasurementError(
            f"{folder}: {free / 1e6:.0f} MB free, which a run may fill: make room, or give -o on "
            "another disk"
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
        raise MeasurementError(f"{target}: is there and read-only")


def _write_synced(path: Path, text: str, mode: str = "w") -> None:
    with path.open(mode, encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
