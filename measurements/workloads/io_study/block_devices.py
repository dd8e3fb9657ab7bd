"""Where the I/O of a study goes: the disk below a folder, or a device in memory.

The sectors that count are those of all physical disks, each transfer once, or those of the loop
device alone.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError
from measurements.host.files import read_lines
from measurements.host.memory import available_memory
from measurements.processes.programs import ask, find_program

if TYPE_CHECKING:
    from measurements.processes.cleanup_process import CleanupProcess
    from measurements.workloads.fio import Target


# Options of mkfs without work in the background afterwards.
_MAKE = {
    "ext4": ("-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "ext3": ("-q", "-F", "-m", "0"),
    "ext2": ("-q", "-F", "-m", "0"),
    "xfs": ("-q", "-f"),
}
_USUAL = "ext4"
# Since this kernel ext4 reads block bitmaps some seconds after it is mounted, unless told not to.
_READS_BITMAPS = (5, 13)
# What a file system keeps for itself, and what is left free on it.
_OVERHEAD, _LEAST_FREE_BYTES = 1.05, 256 << 20
_SHARE_OF_MEMORY = 0.8


def make_memory_device(
    reaper: CleanupProcess, size_bytes: int, file_system: str | None
) -> tuple[Path, str]:
    """Mount a file system on a loop device over a file in memory; the reaper takes it away.

    /proc/diskstats counts a loop device and not tmpfs itself, so that the same I/Os are counted as
    on a disk. The file system has room for ``size_bytes`` and is of the kind that is asked for,
    where that can be made here; ext4 otherwise. Returns its top folder and its kind.

    Raises `MeasurementError` where there is not the memory, the right or the program for it.
    """
    kind = file_system if file_system in _MAKE and shutil.which(f"mkfs.{file_system}") else _USUAL
    make = shutil.which(f"mkfs.{kind}")
    if make is None:
        raise MeasurementError(f"the program mkfs.{kind} is not there: apt install e2fsprogs")
    whole = int(size_bytes * _OVERHEAD) + _LEAST_FREE_BYTES
    free = available_memory(Path("/proc"), Path("/sys"))
    if whole > _SHARE_OF_MEMORY * free:
        raise MeasurementError(
            f"a device of {whole / 1e6:.0f} MB in memory is too much where {free / 1e6:.0f} "
            "MB are free: take a smaller --size, or leave --without-device out"
        )
    memory = reaper.folder()
    _mount(reaper, ["-t", "tmpfs", "-o", f"size={whole + (1 << 20)},mode=700", "tmpfs"], memory)
    image = memory / "device"
    with image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, whole)
    _run([make, *_MAKE[kind], str(image)], "the file system in memory cannot be made", reaper)
    folder = reaper.folder()
    # Mounted so, the loop device goes when the mount does.
    _mount(reaper, ["-t", kind, "-o", _options(kind, os.uname().release), str(image)], folder)
    return folder, kind


def _options(kind: str, kernel: str) -> str:
    """Mount options that leave a device at rest."""
    version = tuple(int(part) for part in re.findall(r"\d+", kernel)[:2])
    quiet = ",no_prefetch_block_bitmaps" if kind == "ext4" and version >= _READS_BITMAPS else ""
    return f"loop{quiet}"


def file_system_of(folder: Path, procfs: Path = Path("/proc")) -> str | None:
    """Kind of the file system that a folder is on; None where it cannot be told."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in read_lines(procfs / "self/mountinfo"):
        fields = line.split()
        if fields[2] == wanted and "-" in fields:
            return fields[fields.index("-") + 1]
    return None


def _mount(reaper: CleanupProcess, arguments: list[str], folder: Path) -> None:
    reaper.will_mount(folder)
    command = [find_program("mount"), *arguments, str(folder)]
    _run(command, "nothing can be mounted: --without-device needs root and loop devices", reaper)


def _run(command: list[str], wrong: str, reaper: CleanupProcess) -> None:
    done = ask(command, environment=reaper.environment())
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no reason is given"]
        raise MeasurementError(f"{wrong}: {said[0][:160]}")


# Disks that are made of files or memory are not among the physical ones.
VIRTUAL = ("loop", "zram", "ram", "nbd")


class Device(NamedTuple):
    """Where the I/O of runs goes."""

    name: str  # block device, or the folder where it is not known
    kind: str  # "disk" or "memory"
    file_system: str | None
    disks: tuple[str, ...] | None  # whose sectors count; None for all physical disks
    folders: tuple[Path, ...]  # of a command, one an instance
    targets: tuple[Target, ...]  # fio's files, one an instance


def fill(folder: Path, prepare: str | None, reaper: CleanupProcess) -> Path:
    """Make a fresh folder inside that of an instance, and fill it; nothing of it stays cached.

    Raises `MeasurementError` when the shell command ``prepare`` fails.
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
            with path.open("rb") as file:
                # Only what is written can be dropped.
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return fresh


def block_device(folder: Path, sysfs: Path = Path("/sys")) -> str | None:
    """Block device of a folder's file system, the whole of it; None where it cannot be told."""
    number = folder.stat().st_dev
    link = sysfs / "dev/block" / f"{os.major(number)}:{os.minor(number)}"
    if not link.exists():
        return None
    there = link.resolve()
    return there.parent.name if (there / "partition").exists() else there.name
