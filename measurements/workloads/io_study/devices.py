"""Where the I/O of a study goes: the disk below a folder, and the same with the device taken away.

Which sectors count is decided here: those of all physical disks, each transfer once, or those of
the loop device alone.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from measurements.asking import ask
from measurements.errors import MeasurementError
from measurements.workloads.fio import FioOptions, open_runs
from measurements.workloads.io_study.memory_device import file_system_of, make_memory_device

if TYPE_CHECKING:
    from measurements.workloads.fio import Target
    from measurements.workloads.io_study.options import StudyOptions
    from measurements.workloads.reaper import Reaper
    from measurements.workloads.service_run import ServiceRuns

# Disks that are made of files or memory: the kernel's physical ones do not have them.
_VIRTUAL = ("loop", "zram", "ram", "nbd")


class Device(NamedTuple):
    """Where the I/O of runs goes.

    Attributes
    ----------
    name : str
        The block device, or the folder where none can be told.
    kind : str
        "disk", or "memory".
    file_system : str or None
    disks : tuple of str or None
        Whose sectors count; None for all physical disks.
    folders : tuple of Path
        One an instance, for a command.
    targets : tuple of Target
        fio's files, one an instance.
    """

    name: str
    kind: str
    file_system: str | None
    disks: tuple[str, ...] | None
    folders: tuple[Path, ...]
    targets: tuple[Target, ...]


def open_devices(options: StudyOptions, runs: ServiceRuns) -> tuple[Device, ...]:
    """Lay out what is read and written, on the disk and, where it is asked for, in memory.

    Raises
    ------
    MeasurementError
        Where there is no room, right or program for it.
    """
    folder = Path(options.folder)
    disk = _device(options, runs, folder, "disk", file_system_of(folder))
    if not options.without_device:
        return (disk,)
    size = options.size_bytes * max(options.instances)
    memory, kind = make_memory_device(runs.reaper, size, disk.file_system)
    if kind != disk.file_system:
        runs.tell_once(f"the device in memory has {kind}, the disk {disk.file_system}")
    return disk, _device(options, runs, memory, "memory", kind)


def fill(folder: Path, prepare: str | None, reaper: Reaper) -> Path:
    """Make a fresh folder inside that of an instance, and fill it; nothing of it stays cached.

    Raises
    ------
    MeasurementError
        When ``prepare`` fails.
    """
    fresh = folder / "run"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    if prepare is None:
        return fresh
    done = ask(["sh", "-c", prepare], environment=reaper.environment(), folder=fresh)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it says nothing"]
        raise MeasurementError(f"--prepare ended with {done.returncode}: {said[-1][:160]}")
    for path in fresh.rglob("*"):
        if path.is_file():
            _uncache(path)
    return fresh


def _device(
    options: StudyOptions, runs: ServiceRuns, folder: Path, kind: str, file_system: str | None
) -> Device:
    block = block_device(folder)
    virtual = block is not None and block.startswith(_VIRTUAL)
    many = range(max(options.instances))
    targets: tuple[Target, ...] = ()
    folders: tuple[Path, ...] = ()
    if options.patterns:
        asked = FioOptions(
            folder=str(folder), size_bytes=options.size_bytes, patterns=options.patterns
        )
        targets = tuple(open_runs(asked, runs).target for _ in many)
    else:
        folders = tuple(runs.reaper.folder(folder) for _ in many)
    return Device(
        # The number of a loop device is another each time.
        "loop on tmpfs" if kind == "memory" else block or str(folder),
        kind,
        file_system,
        (block,) if block is not None and virtual else None,
        folders,
        targets,
    )


def block_device(folder: Path, sysfs: Path = Path("/sys")) -> str | None:
    """Block device of a folder's file system, the whole of it; None where it cannot be told."""
    number = folder.stat().st_dev
    link = sysfs / "dev/block" / f"{os.major(number)}:{os.minor(number)}"
    if not link.exists():
        return None
    there = link.resolve()
    return there.parent.name if (there / "partition").exists() else there.name


def _uncache(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # Only what is written can be dropped.
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
