"""What runs jobs: in one process, on a one-machine cluster, or on the user's cluster."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from measurements.errors import MeasurementError
from measurements.execution import execute
from measurements.workloads.hadoop.history import parse_history

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from measurements.workloads.hadoop.history import Job
    from measurements.workloads.hadoop.java import Java
    from measurements.workloads.hadoop.jobs import Setting
    from measurements.workloads.reaper import Reaper

_RUNNING = re.compile(r"Running job: (job_\d+_\d+)")
# Variables of the user's own Hadoop, which would make this one listen to their configuration.
_FOREIGN = ("HADOOP_", "YARN_", "MAPRED_", "HDFS_")


class Engine(Protocol):
    """Runs jobs of one sweep. Whoever makes it closes it."""

    @property
    def mode(self) -> str:
        """Name, as in the column ``mode``."""
        ...

    def prepare(self, settings: Sequence[Setting]) -> None:
        """Start what is needed and make the inputs of all settings; nothing of it is measured."""
        ...

    def command(self, setting: Setting) -> list[str]:
        """What runs one job; the output of the job before it is removed first."""
        ...

    def environment(self) -> dict[str, str]:
        """Environment of the commands."""
        ...

    def starts(self, output: Path) -> None:
        """Hear that a job begins whose client writes to ``output``."""
        ...

    def job(self, setting: Setting, output: Path) -> Job | None:
        """What the last job did, or None where that cannot be known; ends after `starts`."""
        ...

    def close(self) -> None:
        """Remove what it has made; a second call does nothing."""
        ...


@dataclass(frozen=True, kw_only=True)
class OwnHadoop:
    """What an engine needs that runs the Hadoop that ppw has brought.

    Attributes
    ----------
    java : Java
    jars : Path
    reaper : Reaper
    scratch : Path
        Folder of the reaper's.
    seed : int
        Of the text.
    reduces : int or None
    properties : mapping
        The user's own, of every job.
    """

    java: Java
    jars: Path
    reaper: Reaper
    scratch: Path
    seed: int = 0
    reduces: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Environment of all of its processes: none of the user's own Hadoop, and marked."""
        kept = {
            name: value
            for name, value in self.reaper.environment().items()
            if not name.startswith(_FOREIGN)
        }
        # Hadoop's scripts, which are not here, would be in its home.
        return {**kept, "JAVA_HOME": str(self.java.home), "HADOOP_HOME": str(self.scratch)}


def within(folder: Path, command: Sequence[str]) -> list[str]:
    """Run a command in a folder, where it leaves links and files of its own."""
    return ["sh", "-c", 'cd "$0" && exec "$@"', str(folder), *command]


def do(command: Sequence[str], *, log: Path, environment: Mapping[str, str], what: str) -> None:
    """Run something that is not measured. Raises `MeasurementError` when it fails."""
    made = execute([list(command)], output=log, environment=environment)
    if made.exit_code:
        said = first_complaint(log) or "it gave no reason"
        raise MeasurementError(f"{what} failed with exit code {made.exit_code}: {said}")


def read(command: Sequence[str], *, environment: Mapping[str, str], what: str) -> str:
    """Standard output of a command. Raises `MeasurementError` when it fails."""
    done = subprocess.run(
        list(command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=dict(environment),
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        reason = said[-1][:300] if said else "it gave no reason"
        raise MeasurementError(f"{what} failed with exit code {done.returncode}: {reason}")
    return done.stdout.decode(errors="replace")


def submitted_job(output: Path) -> str | None:
    """Name of the last job that a client says is running; None where it says so of none."""
    found = _RUNNING.findall(output.read_text(encoding="utf-8", errors="replace"))
    return str(found[-1]) if found else None


def fetch_history(
    job: str,
    places: Sequence[str],
    show: Callable[[str], list[str]],
    *,
    environment: Mapping[str, str],
) -> Job:
    """Read a job's history from a cluster's file system.

    Parameters
    ----------
    job : str
    places : sequence of str
        Patterns of folders: where histories are when jobs end, and where they are moved to, which
        may be at once or minutes later.
    show : callable
        Command that prints the file of a pattern.
    environment : mapping

    Raises
    ------
    MeasurementError
        When it is in neither place, or is no history in JSON.
    """
    failures = []
    for place in places:
        pattern = f"{place}/{job}-*.jhist"
        try:
            text = read(show(pattern), environment=environment, what=f"reading {pattern}")
        except MeasurementError as error:
            failures.append(error)
        else:
            return parse_history(text, pattern)
    raise failures[0]


def first_complaint(path: Path) -> str:
    """First line of a program's log that names an exception or an error; empty where none does."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in text.splitlines():
        if re.search(r"(Exception|Error)(:|$)", line) or " ERROR " in line or " FATAL " in line:
            return line.strip()[:300]
    return ""


def check_room(folder: Path, needed: float) -> None:
    """Raise `MeasurementError` where a disk has not so many bytes free."""
    told = os.statvfs(folder)
    free = told.f_bavail * told.f_frsize
    if free < needed:
        raise MeasurementError(
            f"{folder}: {free / 1e9:.1f} GB free, and inputs, spills and outputs take "
            f"{needed / 1e9:.1f} GB: name a folder on a larger disk by --scratch"
        )


def in_memory(folder: Path, mounts: str) -> bool:
    """Whether a folder is on a file system that is kept in memory.

    Parameters
    ----------
    folder : Path
    mounts : str
        Text of ``/proc/self/mounts``.
    """
    kinds = {}
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        kinds[point.replace("\\040", " ")] = kind
    where = folder.resolve()
    nearest = next((p for p in (where, *where.parents) if str(p) in kinds), None)
    return nearest is not None and kinds[str(nearest)] in ("tmpfs", "ramfs")
