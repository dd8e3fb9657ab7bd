"""A study of cycles per I/O: fio or any command at several core counts, on a disk and in memory.

Rows have the CPU time and the sectors of the whole host that cycles per I/O are made of. The order
of runs is random, so that a drift of the host does not bend the scaling.
"""

import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Self

import pandas as pd

from measurements.errors import MeasurementError
from measurements.host import activity, files
from measurements.host.cpu_placement import Placement, place
from measurements.processes import cleanup_process, programs
from measurements.sweep.session import Session
from measurements.workloads import fio, service
from measurements.workloads.io_study import bandwidth, cpu_accounting, loads

_COMMAND_INTERVAL_S = 0.5
# Options of mkfs without work in the background afterwards.
_MAKE_OPTIONS = {
    "ext4": ("-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "ext3": ("-q", "-F", "-m", "0"),
    "ext2": ("-q", "-F", "-m", "0"),
    "xfs": ("-q", "-f"),
}
_USUAL_KIND = "ext4"
# Since this kernel ext4 reads block bitmaps some seconds after it is mounted, unless told not to.
_READS_BITMAPS = (5, 13)
# What a file system keeps for itself, and what is left free on it.
_OVERHEAD, _LEAST_FREE_BYTES = 1.05, 256 << 20
_SHARE_OF_MEMORY = 0.8
# Disks that are made of files or memory are not among the physical ones.
VIRTUAL = ("loop", "zram", "ram", "nbd")
PATTERNS = tuple(
    fio.Pattern.parse(text) for text in ("randread", "randwrite", "read:128KiB", "write:128KiB")
)


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """What is run, on how much of the host, and where its I/O goes."""

    folder: str  # existing folder on the disk
    # All combinations are run: physical cores, logical CPUs of each, equal programs at once.
    cores: tuple[int, ...]
    threads_per_core: tuple[int, ...] = (1,)
    instances: tuple[int, ...] = (1,)
    without_device: bool = False  # repeat each run on a file system in memory
    confine_kernel: bool = False  # keep the kernel's unbound workers on the cores of each run
    own: bool = False  # CPU time of programs and kernel threads, I/O of fio, not of all the host
    # Shares of the memory bandwidth that the cores beside can take from the workload.
    taken: tuple[float, ...] = (0.0,)
    size_bytes: int = 1 << 30  # of each file of fio, and with `without_device` room for a command
    patterns: tuple[fio.Pattern, ...] = PATTERNS  # empty where `command` is run
    depth: int = 16  # requests in flight of each job of fio
    # {folder}, {threads} and {instance} stand for a fresh folder of each run, the number of
    # logical CPUs, and the number of the instance from 0.
    command: tuple[str, ...] = ()
    prepare: str | None = None  # shell command that fills the fresh folder before a run
    workload: str | None = None  # name of `command`
    data_bytes: int | None = None  # input size of `command`

    def check(self) -> None:
        """Raise `MeasurementError` for what cannot be measured."""
        if not Path(self.folder).is_dir():
            raise MeasurementError(f"{self.folder}: is no folder: name one on the disk to measure")
        if bool(self.command) == bool(self.patterns):
            raise MeasurementError("a study takes either a command or patterns of fio, not both")
        if any(not 0 <= share <= 1 for share in self.taken):
            raise MeasurementError(
                "memory bandwidth is a share of the maximum that the other cores "
                "can use: give 0 to 100%"
            )
        if not self.patterns:
            return
        most = max(self.cores) * max(self.threads_per_core)
        largest = max(pattern.block_bytes for pattern in self.patterns)
        if self.size_bytes < most * largest:
            raise MeasurementError(
                f"files of {self.size_bytes} B are too small for {most} jobs with requests of "
                f"{largest} B"
            )

    def name(self, pattern: fio.Pattern | None) -> str:
        """Name of the workload."""
        if pattern is None:
            return self.workload or Path(self.command[0]).name
        return pattern.name

    def command_in(self, folder: Path, threads: int, instance: int) -> list[str]:
        """Command of one instance."""
        values = {"{folder}": folder, "{threads}": threads, "{instance}": instance}
        words = list(self.command)
        for name, value in values.items():
            words = [word.replace(name, str(value)) for word in words]
        return words


class Level(NamedTuple):
    """Cores of a workload, and the share of memory bandwidth that the others take from it."""

    cores: int
    threads_per_core: int
    taken: float


class Levels(NamedTuple):
    """Loads on memory bandwidth of a study. Made by `open_levels`."""

    antagonist: bandwidth.BandwidthAntagonist | None
    left: Mapping[Level, float]  # bandwidth left to each core (B/s); empty where none is taken
    # By cores and threads per core: the bandwidth that the cores beside can take (B/s), and one
    # logical CPU of each of these.
    rates: Mapping[tuple[int, int], float]
    beside: Mapping[tuple[int, int], tuple[int, ...]]

    def load(self, level: Level) -> Callable[[], bandwidth.BandwidthLoad] | None:
        """Function that starts the load of a level; None where it takes nothing."""
        if self.antagonist is None or not level.taken:
            return None
        where = level.cores, level.threads_per_core
        rate = level.taken * self.rates[where]
        return partial(
            self.antagonist.start, rate, self.beside[where], self.antagonist.folder / "taken.txt"
        )


def open_levels(
    options: StudyOptions, runs: service.ServiceRuns, known: Mapping[Level, float]
) -> Levels:
    """Compile the load, and measure what it takes and leaves, or take that of ``known`` levels."""
    if not any(options.taken):
        return Levels(None, {}, {}, {})
    antagonist, why = bandwidth.BandwidthAntagonist.open(runs.reaper, sysfs=runs.machine.sysfs)
    if why is not None:
        runs.tell_once(why)
    places = {
        (cores, threads): place(runs.machine.topology, cores, threads_per_core=threads)
        for cores, threads in product(options.cores, options.threads_per_core)
    }
    beside = {where: _unused_cpus(runs, placement) for where, placement in places.items()}
    rates = {where: antagonist.full_rate(cpus) for where, cpus in beside.items()}
    levels = Levels(antagonist, dict(known), rates, beside)
    left = {}
    for (where, placement), taken in product(places.items(), options.taken):
        level = Level(*where, taken)
        start = levels.load(level)
        left[level] = known.get(level) or antagonist.left_to_each(placement, start)
    return levels._replace(left=left)


def _unused_cpus(runs: service.ServiceRuns, placement: Placement) -> tuple[int, ...]:
    """Logical CPUs, one of each core that the workload does not use."""
    cores, used = runs.machine.topology.cores, set(placement.cpus)
    free = [core.cpus[0] for core in cores if not used & set(core.cpus)]
    if not free:
        raise MeasurementError(
            "the memory-bandwidth antagonist needs cores of its own, and "
            f"{placement.cores} of {len(cores)} cores leave none: give --cores up "
            f"to {len(cores) - 1} with --take-bandwidth"
        )
    return tuple(free)


class Device(NamedTuple):
    """Where the I/O of runs goes."""

    name: str  # block device, or the folder where it is not known
    kind: str  # "disk" or "memory"
    file_system: str | None
    disks: tuple[str, ...] | None  # whose sectors count; None for all physical disks
    folders: tuple[Path, ...]  # of a command, one an instance
    targets: tuple[fio.Target, ...]  # fio's files, one an instance


class StudyCell(NamedTuple):
    """Device, cores, instances and pattern of one run."""

    device: Device
    level: Level
    instances: int
    pattern: fio.Pattern | None

    def setup(self) -> dict[str, Any]:
        """Values that tell it from others, the same when a study goes on."""
        return {
            "device": self.device.kind,
            **self.level._asdict(),
            "instances": self.instances,
            **({} if self.pattern is None else self.pattern._asdict()),
        }


@dataclass
class IoStudy(service.ServiceSweep):
    """A study under way. Made by `open_study`, and to be left as a context manager."""

    options: StudyOptions
    runs: service.ServiceRuns
    devices: tuple[Device, ...]
    group: cpu_accounting.ControlGroup | None
    levels: Levels
    workers: cpu_accounting.KernelWorkers | None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.workers is not None:
            self.workers.close()

    def measure_step(self, step: service.ServiceStep, setup: StudyCell) -> dict[str, Any]:
        """Measure one run; returns its row."""
        name = self.options.name(setup.pattern)
        row = self.runs.measure(step, partial(self._make_load, setup), workload=name)
        if row.get("io_notes"):
            self.runs.tell_once(str(row["io_notes"]))
        return row

    def steps(self) -> list[tuple[service.ServiceStep, StudyCell]]:
        """All runs in random order, each with its cell."""
        asked = self.options
        levels = map(Level._make, product(asked.cores, asked.threads_per_core, asked.taken))
        cells = product(self.devices, levels, asked.instances, asked.patterns or (None,))
        with_setup = ((cell.setup(), cell) for cell in map(StudyCell._make, cells))
        return service.shuffle_steps(self.runs.options, with_setup)

    def _make_load(self, cell: StudyCell, margin_s: float) -> loads.IoLoad:
        """Make what is run; fio goes on for ``margin_s`` after its window."""
        level, machine = cell.level, self.runs.machine
        placement = place(machine.topology, level.cores, threads_per_core=level.threads_per_core)
        if self.workers is not None:
            self.workers.confine(placement.cpus)
        shared: dict[str, Any] = {
            "placement": placement,
            "disks": cell.device.disks,
            "setup": self._setup_columns(cell),
            "procfs": machine.procfs,
            "sysfs": machine.sysfs,
            "steal": self.levels.load(level),
            "own": self.options.own,
        }
        if cell.pattern is None:
            asked, reaper, cpus = self.options, self.runs.reaper, shared["placement"].cpus
            tops = cell.device.folders[: cell.instances]
            folders = tuple(fill_folder(top, asked.prepare, reaper) for top in tops)
            commands = [asked.command_in(folder, len(cpus), n) for n, folder in enumerate(folders)]
            client = loads.Instances(commands, cpus, reaper, self.group)
            return loads.CommandLoad(
                client, interval_s=_COMMAND_INTERVAL_S, folders=folders, **shared
            )
        seconds = 2 * loads.RAMP_S + self.runs.options.seconds + margin_s
        return self._make_fio_load(cell, cell.pattern, seconds, shared)

    def _make_fio_load(
        self, cell: StudyCell, pattern: fio.Pattern, seconds: float, shared: dict[str, Any]
    ) -> loads.FioStudyLoad:
        cpus = shared["placement"].cpus
        targets, jobs = cell.device.targets[: cell.instances], len(cpus)
        # Each job has a part of the file to itself.
        part = self.options.size_bytes // jobs // pattern.block_bytes * pattern.block_bytes
        common: dict[str, Any] = {"depth": self.options.depth, "seconds": seconds}
        common |= {"ramp_s": loads.RAMP_S, "seed": self.runs.options.seed}
        more = (f"--numjobs={jobs}", f"--offset_increment={part}")
        commands = [[*fio.job_command(t, part, pattern, **common), *more] for t in targets]
        return loads.FioStudyLoad(
            loads.Instances(commands, cpus, self.runs.reaper, self.group),
            interval_s=self.runs.options.seconds / service.SLICES,
            own_sectors=targets[0].direct,
            pattern=pattern,
            seconds=seconds,
            **shared,
        )

    def _setup_columns(self, cell: StudyCell) -> dict[str, Any]:
        """Columns of what is set up, the same for all runs of a cell."""
        asked, pattern = self.options, cell.pattern
        columns: dict[str, Any] = {
            "device": cell.device.name,
            "device_kind": cell.device.kind,
            "file_system": cell.device.file_system,
            "instances": cell.instances,
            "kernel_confined": self.workers is not None,
            "memory_bytes": files.memory_bytes(self.runs.machine.procfs),
            "data_bytes": asked.data_bytes,
            "bandwidth_taken": cell.level.taken if self.levels.antagonist else None,
            "bandwidth_per_core_bytes_s": self.levels.left.get(cell.level),
        }
        if pattern is None:
            return columns
        target, whole = cell.device.targets[0], asked.size_bytes * cell.instances
        return columns | {
            "threads": cell.instances * cell.level.cores * cell.level.threads_per_core,
            "pattern": pattern.rw,
            "request_bytes": pattern.block_bytes,
            "queue_depth": asked.depth,
            "file_bytes": whole,
            "direct": target.direct,
            "engine": target.engine,
            # Past the page cache it does not matter whether the data would fit into it.
            "data_bytes": None if target.direct else whole,
        }


def open_study(options: StudyOptions, runs: service.ServiceRuns) -> IoStudy:
    """Lay out files, make the device in memory and the control group, find what can be taken."""
    options.check()
    machine = runs.machine
    for cores, threads in product(options.cores, options.threads_per_core):
        place(machine.topology, cores, threads_per_core=threads)
    measured = {
        Level(*(record["setup"][name] for name in Level._fields)): left
        for record in runs.session.records()
        if record["kind"] == "run"
        and (left := record["facts"].get("bandwidth_per_core_bytes_s")) is not None
    }
    levels = open_levels(options, runs, measured)
    group = cpu_accounting.ControlGroup.make(runs.reaper, "study", machine.sysfs, machine.procfs)
    if group is None and options.own:
        raise MeasurementError(
            "ppw may not create a control group here, and needs one to separate the programs' CPU "
            "time from that of others: run as root, or leave --scope own out"
        )
    if group is None:
        runs.tell_once(
            "no control group may be made here: CPU time of the programs is by their own clocks, "
            "without their children"
        )
    devices = open_devices(options, runs)
    workers = cpu_accounting.KernelWorkers(machine.sysfs) if options.confine_kernel else None
    return IoStudy(options, runs, devices, group, levels, workers)


def table(session: Session) -> pd.DataFrame:
    """Runs table of all runs so far; ``time_s`` is the time that CPU time and sectors are of."""
    rows = service.service_rows(session)
    for row in rows:
        del row["window_s"]
        row["time_s"] = row.pop("sampled_s")
    return pd.DataFrame(rows)


def open_devices(options: StudyOptions, runs: service.ServiceRuns) -> tuple[Device, ...]:
    """Lay out what is read and written, on the disk and, where it is asked for, in memory."""
    folder = Path(options.folder)
    disk = _lay_out_device(options, runs, folder, "disk", fio.file_system_of(folder))
    if not options.without_device:
        return (disk,)
    size = options.size_bytes * max(options.instances)
    memory, kind = make_memory_device(runs.reaper, size, disk.file_system)
    if kind != disk.file_system:
        runs.tell_once(f"the file system is {kind} in memory, but {disk.file_system} on the disk")
    return disk, _lay_out_device(options, runs, memory, "memory", kind)


def _lay_out_device(
    options: StudyOptions,
    runs: service.ServiceRuns,
    folder: Path,
    kind: str,
    file_system: str | None,
) -> Device:
    block = block_device(folder)
    virtual = block is not None and block.startswith(VIRTUAL)
    targets: tuple[fio.Target, ...] = ()
    folders: tuple[Path, ...] = ()
    for _ in range(max(options.instances)):
        if options.patterns:
            asked = fio.FioOptions(
                folder=str(folder), size_bytes=options.size_bytes, patterns=options.patterns
            )
            targets += (fio.open_runs(asked, runs).target,)
        else:
            folders += (runs.reaper.folder(folder),)
    return Device(
        # The number of a loop device is another each time.
        "loop on tmpfs" if kind == "memory" else block or str(folder),
        kind,
        file_system,
        (block,) if block is not None and virtual else None,
        folders,
        targets,
    )


def make_memory_device(
    reaper: cleanup_process.CleanupProcess, size_bytes: int, file_system: str | None
) -> tuple[Path, str]:
    """Mount a file system on a loop device over a file in memory; the reaper takes it away.

    /proc/diskstats counts a loop device and not tmpfs itself, so that the same I/Os are counted as
    on a disk. The file system has room for ``size_bytes`` and is of the kind that is asked for,
    where that can be made here; ext4 otherwise. Returns its top folder and its kind.
    """
    is_possible = file_system in _MAKE_OPTIONS and shutil.which(f"mkfs.{file_system}")
    kind = file_system if file_system and is_possible else _USUAL_KIND
    make = shutil.which(f"mkfs.{kind}")
    if make is None:
        raise MeasurementError(f"the program mkfs.{kind} is not there: apt install e2fsprogs")
    whole = int(size_bytes * _OVERHEAD) + _LEAST_FREE_BYTES
    free = activity.available_memory(Path("/proc"), Path("/sys"))
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
    environment = reaper.environment()
    programs.run_or_refuse(
        [make, *_MAKE_OPTIONS[kind], str(image)],
        "the file system in memory cannot be made",
        environment=environment,
    )
    folder = reaper.folder()
    # Mounted so, the loop device goes when the mount does.
    version = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    quiet = ",no_prefetch_block_bitmaps" if kind == "ext4" and version >= _READS_BITMAPS else ""
    _mount(reaper, ["-t", kind, "-o", f"loop{quiet}", str(image)], folder)
    return folder, kind


def _mount(reaper: cleanup_process.CleanupProcess, arguments: list[str], folder: Path) -> None:
    reaper.will_mount(folder)
    command = [programs.find_program("mount"), *arguments, str(folder)]
    wrong = "nothing can be mounted: --without-device needs root and loop devices"
    programs.run_or_refuse(command, wrong, environment=reaper.environment())


def fill_folder(folder: Path, prepare: str | None, reaper: cleanup_process.CleanupProcess) -> Path:
    """Make a fresh folder inside that of an instance, and fill it; nothing of it stays cached."""
    fresh = folder / "run"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    if prepare is None:
        return fresh
    done = programs.ask(["sh", "-c", prepare], environment=reaper.environment(), folder=fresh)
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
    device = fio.device_folder(folder, sysfs)
    if device is None:
        return None
    return device.parent.name if (device / "partition").exists() else device.name
