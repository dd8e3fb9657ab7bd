"""A study of cycles per I/O: fio or any command at several core counts, on a disk and in memory.

Rows have the CPU time and the sectors of the whole host that cycles per I/O are made of. The order
of runs is random, so that a host that drifts does not bend the scaling.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from measurements.errors import MeasurementError
from measurements.host.cpu_placement import place
from measurements.host.files import read_lines
from measurements.workloads.fio import FioOptions, Pattern, open_runs
from measurements.workloads.io_study.bandwidth import BandwidthThief
from measurements.workloads.io_study.block_devices import (
    _VIRTUAL,
    Device,
    block_device,
    file_system_of,
    fill,
    make_memory_device,
)
from measurements.workloads.io_study.cpu_accounting import ControlGroup, KernelWorkers
from measurements.workloads.io_study.loads import RAMP_S, CommandLoad, FioLoad, Instances
from measurements.workloads.service import SLICES, ServiceRuns, ServiceStep, service_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd

    from measurements.host.cpu_placement import Placement
    from measurements.sweep.session import Session
    from measurements.workloads.fio import Target
    from measurements.workloads.io_study.bandwidth import BandwidthLoad
    from measurements.workloads.io_study.loads import IoLoad
    from measurements.workloads.service import Load


# What is asked of a study of cycles per I/O.


PATTERNS = tuple(
    Pattern.parse(text) for text in ("randread", "randwrite", "read:128KiB", "write:128KiB")
)


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """What is run, on how much of the host, and where its I/O goes.

    Attributes
    ----------
    folder : str
        Existing folder on the disk.
    cores, threads_per_core, instances : tuple of int
        Physical cores, logical CPUs of each, and equal programs at once: all combinations.
    without_device : bool
        Whether each run is repeated with the device taken away: on a file system in memory.
    confine_kernel : bool
        Whether the kernel's unbound workers are kept on the cores of each run.
    own : bool
        Whether CPU time is that of the programs and the kernel's threads, and I/O that of fio,
        and not all of the host.
    taken : tuple of float
        Memory bandwidth that is taken from the workload, as shares of what the cores beside it
        can take; (0,) for none.
    size_bytes : int
        Of each of fio's files; with ``without_device``, also what a command may write.
    patterns : tuple of Pattern
        Of fio; empty where ``command`` is run.
    depth : int
        fio's requests in flight of each job.
    command : tuple of str
        ``{folder}``, ``{threads}`` and ``{instance}`` in it stand for a fresh folder of each run,
        the logical CPUs that it may use, and the number of the instance from 0.
    prepare : str or None
        Shell command that fills the fresh folder, its working directory, before a run.
    workload : str or None
        Name of ``command``.
    data_bytes : int or None
        Input size of ``command``.
    """

    folder: str
    cores: tuple[int, ...]
    threads_per_core: tuple[int, ...] = (1,)
    instances: tuple[int, ...] = (1,)
    without_device: bool = False
    confine_kernel: bool = False
    own: bool = False
    taken: tuple[float, ...] = (0.0,)
    size_bytes: int = 1 << 30
    patterns: tuple[Pattern, ...] = PATTERNS
    depth: int = 16
    command: tuple[str, ...] = ()
    prepare: str | None = None
    workload: str | None = None
    data_bytes: int | None = None

    def check(self) -> None:
        """Raise `MeasurementError` for what cannot be measured."""
        if not Path(self.folder).is_dir():
            raise MeasurementError(f"{self.folder}: is no folder: name one on the disk to measure")
        if bool(self.command) == bool(self.patterns):
            raise MeasurementError("a study is either of a command or of patterns of fio")
        if any(not 0 <= share <= 1 for share in self.taken):
            raise MeasurementError(
                "memory bandwidth is taken in shares of what the cores beside can take: 0 to 100%"
            )
        if not self.patterns:
            return
        most = max(self.cores) * max(self.threads_per_core)
        largest = max(pattern.block_bytes for pattern in self.patterns)
        if self.size_bytes < most * largest:
            raise MeasurementError(
                f"a file of {self.size_bytes} B has no part of {largest} B for each of {most} jobs"
            )

    def name(self, pattern: Pattern | None) -> str:
        """Name of the workload."""
        if pattern is None:
            return self.workload or Path(self.command[0]).name
        return pattern.name

    def command_in(self, folder: Path, threads: int, instance: int) -> list[str]:
        """Write the command of one instance."""
        meant = (
            ("{folder}", str(folder)),
            ("{threads}", str(threads)),
            ("{instance}", str(instance)),
        )
        return [_replaced(word, meant) for word in self.command]


def _replaced(word: str, meant: Sequence[tuple[str, str]]) -> str:
    for name, text in meant:
        word = word.replace(name, text)
    return word


# How much memory bandwidth is taken from a workload, and how much is left to each of its cores.


class Level(NamedTuple):
    """A share of what the cores beside so many cores of the workload can take."""

    cores: int
    threads_per_core: int
    taken: float


class Levels(NamedTuple):
    """Loads on memory bandwidth of a study. Made by `open_levels`.

    Attributes
    ----------
    left : mapping of Level to float
        Bytes a second left to each core; empty where none is taken.
    rates : mapping of (cores, threads per core) to float
        Bytes a second that the cores beside can take at most.
    """

    thief: BandwidthThief | None
    left: Mapping[Level, float]
    rates: Mapping[tuple[int, int], float]
    beside: Mapping[tuple[int, int], tuple[int, ...]]

    def load(self, level: Level) -> Callable[[], BandwidthLoad] | None:
        """What starts the load of a level; None where nothing is taken."""
        if self.thief is None or not level.taken:
            return None
        where = level.cores, level.threads_per_core
        return partial(
            self.thief.start,
            level.taken * self.rates[where],
            self.beside[where],
            self.thief.folder / "taken.txt",
        )


def open_levels(options: StudyOptions, runs: ServiceRuns, known: Mapping[Level, float]) -> Levels:
    """Compile the load, and measure what it can take and what it leaves.

    Parameters
    ----------
    options : StudyOptions
    runs : ServiceRuns
    known : mapping
        What was left at levels that were measured before: runs of one level are told by it.

    Raises
    ------
    MeasurementError
        Where the workload leaves no core for the load.
    """
    if not any(options.taken):
        return Levels(None, {}, {}, {})
    thief, why = BandwidthThief.open(runs.reaper, sysfs=runs.machine.sysfs)
    if why is not None:
        runs.tell_once(why)
    places = {
        (cores, threads): place(runs.machine.topology, cores, threads_per_core=threads)
        for cores in options.cores
        for threads in options.threads_per_core
    }
    beside = {where: _beside(runs, placement) for where, placement in places.items()}
    rates = {where: thief.full_rate(cpus) for where, cpus in beside.items()}
    levels = Levels(thief, dict(known), rates, beside)
    left = {
        level: known.get(level) or _left(levels, level, placement)
        for (cores, threads), placement in places.items()
        for level in (Level(cores, threads, taken) for taken in options.taken)
    }
    return levels._replace(left=left)


def _beside(runs: ServiceRuns, placement: Placement) -> tuple[int, ...]:
    """Logical CPUs, one of each core that the workload does not use."""
    used = set(placement.cpus)
    free = [core.cpus[0] for core in runs.machine.topology.cores if not used & set(core.cpus)]
    if not free:
        there = len(runs.machine.topology.cores)
        raise MeasurementError(
            f"memory bandwidth is taken from cores beside the workload's, and {placement.cores} of "
            f"{there} cores leave none: give --cores up to {there - 1} with --take-bandwidth"
        )
    return tuple(free)


def _left(levels: Levels, level: Level, placement: Placement) -> float:
    assert levels.thief is not None
    start = levels.load(level)
    load = None if start is None else start()
    try:
        return levels.thief.left_to_each(placement.cores, placement.cpus, load)
    finally:
        if load is not None:
            load.stop()


_COMMAND_INTERVAL_S = 0.5


class Cell(NamedTuple):
    """What one run is of."""

    device: Device
    level: Level
    instances: int
    pattern: Pattern | None

    def setup(self) -> dict[str, Any]:
        """Figures that tell it from others, the same when a study goes on."""
        return {
            "device": self.device.kind,
            **self.level._asdict(),
            "instances": self.instances,
            **({} if self.pattern is None else self.pattern._asdict()),
        }


class StudyRuns(ServiceRuns):
    """Runs whose window ends with the command, where it is one that ends."""

    def _watch(self, load: Load, start_s: float) -> Iterator[Any]:
        if not isinstance(load, CommandLoad):
            yield from super()._watch(load, start_s)
            return
        ended = False
        while not ended:
            ended = load.wait(load.interval_s)
            load.observe()
            yield None


@dataclass
class IoStudy:
    """A study under way. Made by `open_study`, and to be left as a context manager."""

    options: StudyOptions
    runs: StudyRuns
    devices: tuple[Device, ...]
    group: ControlGroup | None
    levels: Levels
    workers: KernelWorkers | None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.workers is not None:
            self.workers.close()

    @property
    def runs_in_table(self) -> int:
        """How many rows the table will have."""
        return len(self._steps())

    def run(self) -> Iterator[dict[str, Any]]:
        """Measure all that is not yet measured, in random order; yields each row.

        Raises
        ------
        MeasurementError
            When the workload fails, or counters go back again and again.
        """
        self.runs.begin()
        for step, cell in self._steps():
            if self.runs.done(step) is None:
                yield self._measure(step, cell)

    def _steps(self) -> list[tuple[ServiceStep, Cell]]:
        shared = self.runs.options
        steps = [
            (ServiceStep("run", cell.setup(), clock, repeat), cell)
            for cell in self._cells()
            for clock in shared.frequencies or (None,)
            for repeat in range(shared.repeats)
        ]
        random.Random(shared.seed).shuffle(steps)
        return steps

    def _cells(self) -> Iterator[Cell]:
        asked = self.options
        levels = map(Level._make, product(asked.cores, asked.threads_per_core, asked.taken))
        for cell in product(self.devices, levels, asked.instances, asked.patterns or (None,)):
            yield Cell(*cell)

    def _measure(self, step: ServiceStep, cell: Cell) -> dict[str, Any]:
        name = self.options.name(cell.pattern)
        row = self.runs.measure(step, partial(self._load, cell), workload=name)
        if row.get("io_notes"):
            self.runs.tell_once(str(row["io_notes"]))
        return row

    def _load(self, cell: Cell, margin_s: float) -> IoLoad:
        """Make what is run; fio goes on for ``margin_s`` after its window."""
        level, machine = cell.level, self.runs.machine
        placement = place(machine.topology, level.cores, threads_per_core=level.threads_per_core)
        if self.workers is not None:
            self.workers.confine(placement.cpus)
        shared: dict[str, Any] = {
            "placement": placement,
            "disks": cell.device.disks,
            "setup": self._columns(cell),
            "procfs": machine.procfs,
            "sysfs": machine.sysfs,
            "steal": self.levels.load(level),
            "own": self.options.own,
        }
        if cell.pattern is None:
            return self._command(cell, placement, shared)
        return self._fio(cell, cell.pattern, placement, margin_s, shared)

    def _fio(
        self,
        cell: Cell,
        pattern: Pattern,
        placement: Placement,
        margin_s: float,
        shared: dict[str, Any],
    ) -> FioLoad:
        seconds = 2 * RAMP_S + self.runs.options.seconds + margin_s
        commands = [
            self._fio_command(target, pattern, len(placement.cpus), seconds)
            for target in cell.device.targets[: cell.instances]
        ]
        return FioLoad(
            self._instances(commands, placement),
            interval_s=self.runs.options.seconds / SLICES,
            own_sectors=cell.device.targets[0].direct,
            pattern=pattern,
            seconds=seconds,
            **shared,
        )

    def _command(self, cell: Cell, placement: Placement, shared: dict[str, Any]) -> CommandLoad:
        asked, reaper = self.options, self.runs.reaper
        folders = tuple(
            fill(folder, asked.prepare, reaper) for folder in cell.device.folders[: cell.instances]
        )
        commands = [
            asked.command_in(folder, len(placement.cpus), number)
            for number, folder in enumerate(folders)
        ]
        return CommandLoad(
            self._instances(commands, placement),
            interval_s=_COMMAND_INTERVAL_S,
            folders=folders,
            **shared,
        )

    def _instances(self, commands: list[list[str]], placement: Placement) -> Instances:
        return Instances(commands, placement.cpus, self.runs.reaper, self.group)

    def _fio_command(
        self, target: Target, pattern: Pattern, jobs: int, seconds: float
    ) -> list[str]:
        part = self.options.size_bytes // jobs // pattern.block_bytes * pattern.block_bytes
        return [
            *(target.program, "--name=ppw", f"--filename={target.path}", "--allow_file_create=0"),
            *(f"--ioengine={target.engine}", f"--direct={int(target.direct)}", "--thread"),
            *(f"--rw={pattern.rw}", f"--bs={pattern.block_bytes}"),
            *(f"--iodepth={self.options.depth}", f"--numjobs={jobs}", "--group_reporting"),
            # Each job has a part of the file to itself.
            *(f"--size={part}", f"--offset_increment={part}", "--output-format=json"),
            *("--time_based", f"--runtime={_ms(seconds)}", f"--ramp_time={_ms(RAMP_S)}"),
            *(f"--randseed={self.runs.options.seed + 1}", "--lat_percentiles=1"),
            *("--clat_percentiles=0", "--percentile_list=50:99"),
        ]

    def _columns(self, cell: Cell) -> dict[str, Any]:
        """Columns of what is set up, the same for all runs of a cell."""
        asked, pattern = self.options, cell.pattern
        columns: dict[str, Any] = {
            "device": cell.device.name,
            "device_kind": cell.device.kind,
            "file_system": cell.device.file_system,
            "instances": cell.instances,
            "kernel_confined": self.workers is not None,
            "memory_bytes": _memory_bytes(self.runs.machine.procfs),
            "data_bytes": asked.data_bytes,
            "bandwidth_taken": cell.level.taken if self.levels.thief else None,
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


def open_study(options: StudyOptions, runs: ServiceRuns) -> IoStudy:
    """Lay out files, make the device in memory and the control group, find what can be taken.

    Raises
    ------
    MeasurementError
        When something that was asked for cannot be had here; before any run.
    """
    options.check()
    for cores, threads in product(options.cores, options.threads_per_core):
        place(runs.machine.topology, cores, threads_per_core=threads)
    own = StudyRuns(**{f.name: getattr(runs, f.name) for f in fields(runs) if f.init})
    levels = open_levels(options, own, _levels_before(runs.session))
    machine = runs.machine
    group = ControlGroup.make(runs.reaper, "study", machine.sysfs, machine.procfs)
    if group is None:
        _do_without_group(options, own)
    devices = open_devices(options, own)
    workers = KernelWorkers(machine.sysfs) if options.confine_kernel else None
    return IoStudy(options, own, devices, group, levels, workers)


def _do_without_group(options: StudyOptions, runs: ServiceRuns) -> None:
    if options.own:
        raise MeasurementError(
            "no control group may be made here, and it is what tells the programs' CPU time from "
            "that of others: run as root, or leave --scope own out"
        )
    runs.tell_once(
        "no control group may be made here: CPU time of the programs is by their own clocks, "
        "without their children"
    )


def table(session: Session) -> pd.DataFrame:
    """Runs table of all runs so far; ``time_s`` is the time that CPU time and sectors are of."""
    import pandas as pd

    rows = service_rows(session)
    for row in rows:
        del row["window_s"]
        row["time_s"] = row.pop("sampled_s")
    return pd.DataFrame(rows)


def _levels_before(session: Session) -> dict[Level, float]:
    """Bandwidths that were left in runs that are measured already."""
    return {
        Level(*(record["setup"][name] for name in Level._fields)): left
        for record in session.records()
        if record["kind"] == "run"
        and (left := record["facts"].get("bandwidth_per_core_bytes_s")) is not None
    }


def _memory_bytes(procfs: Path) -> float | None:
    for line in read_lines(procfs / "meminfo"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024.0
    return None


def _ms(seconds: float) -> str:
    """Write a time for fio, which cuts plain numbers down to whole seconds."""
    return f"{round(1000 * seconds)}ms"


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
