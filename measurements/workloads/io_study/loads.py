"""What a study runs: fio in a window of steady load, or a command from its start to its end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from measurements.host import cpu_placement, files
from measurements.timeseries.live import LiveSampler, split_idle
from measurements.timeseries.series import CPU_COLUMNS, SECTOR_BYTES, TASK_COLUMNS
from measurements.workloads import clients, fio, service
from measurements.workloads.io_study import cpu_accounting
from measurements.workloads.io_study.bandwidth import BandwidthLoad

Row = Mapping[str, Any]

RAMP_S = 0.5
_LONGEST_START_S = 60.0
# What a program reads as it starts, and a few requests.
_FLOWING = 2 << 20


@dataclass
class IoLoad(service.Load):
    """Equal programs on some cores."""

    client: Instances
    placement: cpu_placement.Placement
    disks: tuple[str, ...] | None  # whose sectors count; None for all physical disks
    interval_s: float  # time between samples
    setup: dict[str, Any]  # columns of what was set up
    procfs: Path
    sysfs: Path
    steal: Callable[[], BandwidthLoad] | None = None  # starts what takes memory bandwidth
    own: bool = False  # whether the CPU time of other programs is left out
    # Whether their I/O is left out, too. The programs must then move their data past the page
    # cache, so that it reaches the device at once, and have no children.
    own_sectors: bool = False
    _taking: BandwidthLoad | None = field(default=None, init=False)
    _sampler: LiveSampler | None = field(default=None, init=False)
    _accounts: Accounts = field(init=False)
    _rows: list[dict[str, Any]] = field(default_factory=list, init=False)
    _window: dict[str, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.cores = self.placement.cores

    def start(self, output: Path) -> None:
        """Start what takes memory bandwidth, then the programs."""
        if self.steal is not None:
            self._taking = self.steal()
        self._accounts = Accounts(self.client, self._taking, self.procfs)
        super().start(output)

    def observe(self) -> None:
        """Take a sample; the first call opens the window."""
        if self._sampler is None:
            self._accounts.open()
            self._sampler = LiveSampler(
                interval_s=self.interval_s, disks=self.disks, procfs=self.procfs, sysfs=self.sysfs
            )
        else:
            self._rows.append(self._sampler.row())
            self._accounts.look()

    def finish(self) -> None:
        """Compute the columns of an ended run; `CutShortError` where a count went back."""
        accounts, own = self._accounts, None
        if self.own:
            own = accounts.own() | (accounts.moved_sectors() if self.own_sectors else {})
        cpus, taken_s = len(self.placement.cpus), accounts.used.taken_s
        found = window_columns(self._rows, cpus=cpus, taken_s=taken_s, own=own)
        self._window = found | accounts.columns(found["scheduled_s"])

    def stop(self) -> None:
        """End what still runs."""
        super().stop()
        if self._taking is not None:
            self._taking.stop()

    def columns(self, seen: Sequence[Any]) -> dict[str, Any]:
        """Columns of the run."""
        del seen
        assert self._sampler is not None
        notes = [*self._sampler.caveats, self._window["io_notes"]]
        return {
            **self._window,
            "io_notes": "; ".join(filter(None, notes)) or None,
            "hardware_threads": len(self.placement.cpus),
            "sockets": len(self.placement.sockets),
            "cpus_used": files.cpu_list_text(self.placement.cpus),
            **self.setup,
        }


@dataclass
class FioStudyLoad(IoLoad):
    """fio with a job per logical CPU in each instance, in a window of steady load."""

    pattern: fio.Pattern = field(kw_only=True)
    seconds: float = field(kw_only=True)

    def wait_steady(self) -> None:
        """Return when requests have flowed for the time of the ramp."""
        self.client.release()
        self.client.wait_until(
            lambda: all(clients.has_moved(self.procfs, pid, 1, _FLOWING) for pid in self.pids),
            _LONGEST_START_S,
            "fio made no request",
        )
        time.sleep(RAMP_S)

    def observe(self) -> None:
        """Take a sample."""
        super().observe()
        self.client.cut_short |= self.client.has_ended()

    def finish(self) -> None:
        """Wait for fio, and compute the columns of the run."""
        hang = "fio does not end: the device may hang"
        self.client.finish("fio", self.seconds + _LONGEST_START_S, hang=hang)
        super().finish()
        self._window["process_sectors"] = sum(self._accounts.moved_sectors().values())

    def columns(self, seen: Sequence[Any]) -> dict[str, Any]:
        """Columns of the run, with those of fio's reports."""
        reports = [fio.read_report(p, self.pattern.direction) for p in self.client.outputs]
        # Percentiles of several instances cannot be merged.
        row = dict(reports[0]) if len(reports) == 1 else {"fio_version": reports[0]["fio_version"]}
        for name in ("throughput_ops_s", "bandwidth_bytes_s"):
            row[name] = sum(float(report[name] or 0.0) for report in reports)
        columns = super().columns(seen)
        if self.own_sectors:
            # fio reports of its whole time; CPU time and sectors are of the window.
            sectors = columns["process_sectors"] / columns["sampled_s"]
            # A rate of 0, of a window in which fio stood still, is none.
            row["throughput_ops_s"] = sectors * SECTOR_BYTES / self.pattern.block_bytes or None
        return {**columns, **row}


@dataclass
class CommandLoad(IoLoad):
    """A command from its start until it has ended and what it wrote is on the device."""

    folders: tuple[Path, ...] = ()

    def wait_steady(self) -> None:
        """Write dirty pages to disk; a command needs no time to become steady."""
        self._sync_folders()

    def observe(self) -> None:
        """Take a sample; the first call releases the command."""
        opens = self._sampler is None
        super().observe()
        if opens:
            self.client.release()

    def watch(self, runs: service.ServiceRuns, start_s: float) -> Iterator[None]:
        """Observe at intervals until the command has ended and its data are written."""
        while not self.client.wait(self.interval_s):
            self.observe()
            yield None
        self._sync_folders()
        self.observe()
        yield None

    def _sync_folders(self) -> None:
        for folder in self.folders:
            with suppress(OSError):
                subprocess.run(["sync", "-f", str(folder)], capture_output=True, check=False)  # nosec B603, B607  # constant words


# Enters the control group, waits at the gate for a line, and becomes the program.
_GATE = (
    'if [ -n "$1" ]; then echo $$ > "$1" || exit 126; fi; shift; read -r _ && exec "$@" < /dev/null'
)
_END_POLL_S = 0.005
_END_S = 10.0


@dataclass
class Instances(clients.Client):
    """Equal programs at once, started behind a gate, in a control group of their own."""

    group: cpu_accounting.ControlGroup | None = None
    # CPU time of those that ended and of what they waited for.
    rusage_s: float = field(default=0.0, init=False)

    def release(self) -> None:
        """Let all waiting programs start, by a line on the pipe that each reads."""
        for process in self.processes:
            assert process.stdin is not None
            # One that has failed already is reported by `check`.
            with suppress(BrokenPipeError):
                process.stdin.write(b"\n")
                process.stdin.close()

    def stop(self) -> None:
        """Kill those that still run, with all that they started."""
        for process in self.processes:
            cpu_placement.end_group(process.pid)
            until = time.monotonic() + _END_S
            while self._exit_code(process) is None and time.monotonic() < until:
                time.sleep(_END_POLL_S)
            if process.stdin is not None:
                process.stdin.close()

    def _start_client(self, command: Sequence[str], file: IO[bytes]) -> subprocess.Popen[bytes]:
        tasks = "" if self.group is None else str(self.group.folder / "cgroup.procs")
        gated = ["sh", "-c", _GATE, "sh", tasks, *command]
        # Unbuffered, so that closing the pipe has nothing left to write.
        pipe: dict[str, Any] = {"stdin": subprocess.PIPE, "bufsize": 0}
        return clients.start_process(gated, file, self.reaper.environment(), **pipe)

    def _exit_code(self, process: subprocess.Popen[bytes]) -> int | None:
        """Exit code, with the CPU time added up at the end of a process."""
        if process.returncode is None:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                self.rusage_s += usage.ru_utime + usage.ru_stime
                # What it left running must not run into the next measurement.
                cpu_placement.end_group(pid)
        return process.returncode


_SECTORS = ("sectors_read", "sectors_written")
_NEEDED = (*TASK_COLUMNS, "idle_s", *_SECTORS)
_NOTES = {
    "device new": "a disk appeared: its I/O is counted from then on",
    "device gone": "a disk disappeared: its last I/O is not counted",
    "gap": "an interval was far longer than the others",
    "clock back": "the host's clock went back: intervals are measured by a clock that does not",
}


class LostCountError(clients.CutShortError):
    """A count that a run needs went back, or went away, so that the run tells nothing."""


def window_columns(
    rows: Sequence[Row], *, cpus: int, taken_s: float = 0.0, own: Row | None = None
) -> dict[str, Any]:
    """Add up the intervals of a run, which are rows of `measurements.timeseries.LiveSampler`.

    ``cpus`` is the number of logical CPUs that the workload may use: idle time is what they have
    left after all CPU time of the host, wherever it was spent. ``taken_s`` is the CPU time (s), in
    user mode, of a load beside the workload on CPUs of its own. ``own`` has columns of what the
    workload and the kernel's threads did, without other programs; they replace those of the host.

    Returns CPU times (s), sectors (512 B), ``scope`` ("host" or "own"), ``scheduled_s`` and
    ``tick_busy_s`` of the host where known, and ``io_notes`` where something was odd. Raises
    `LostCountError` when a count went back or away: nothing is guessed.
    """
    lost = [name for name in _NEEDED if any(row.get(name) is None for row in rows)]
    if lost:
        raise LostCountError(
            f"counters behind {', '.join(lost)} decreased or disappeared during the run: a disk or "
            "the kernel's statistics were reset. ppw computes nothing from them"
        )
    seconds = sum(row["interval_s"] for row in rows)
    columns: dict[str, Any] = {"sampled_s": seconds}
    columns |= {name: _sum_or_none(rows, name) for name in (*CPU_COLUMNS, *_SECTORS)}
    columns["user_s"] = max(columns["user_s"] - taken_s, 0.0)
    if own is not None:
        columns |= {**own, "nice_s": 0.0}
    columns |= _idle_times(columns, cpus * seconds)
    by_scheduler = all(row["cpu_accounting"] == "scheduler" for row in rows)
    quiet = sum(not any(row[name] for name in _SECTORS) for row in rows)
    return columns | {
        "cpu_accounting": "scheduler" if by_scheduler or own is not None else "tick",
        "scope": "host" if own is None else "own",
        "scheduled_s": _sum_or_none(rows, "scheduled_s") if by_scheduler else None,
        "tick_busy_s": _sum_or_none(rows, "tick_busy_s"),
        "intervals": len(rows),
        "intervals_without_io": quiet,
        "io_notes": "; ".join(_notes(rows, quiet)) or None,
    }


def _sum_or_none(rows: Iterable[Row], name: str) -> float | None:
    """Sum of a column; None where it is not known throughout."""
    values = [row.get(name) for row in rows]
    return None if None in values else float(sum(value for value in values if value is not None))


def _idle_times(columns: Row, capacity_s: float) -> dict[str, float | None]:
    """Idle time of the CPUs used, and how much of it was spent waiting for I/O."""
    unused = ("idle_s", "iowait_s")
    taken_s = sum(columns[name] or 0.0 for name in CPU_COLUMNS if name not in unused)
    left_s = max(0.0, capacity_s - taken_s)
    return {"idle_s": left_s} if columns["iowait_s"] is None else split_idle(columns, left_s)


def _notes(rows: Sequence[Row], quiet: int) -> Iterable[str]:
    marks = {mark for row in rows for mark in row["marks"].split("; ")}
    yield from (note for mark, note in _NOTES.items() if mark in marks)
    if quiet == len(rows):
        yield "no sector was read or written: there are no cycles per I/O"
    elif quiet:
        yield f"{quiet} of {len(rows)} intervals had no I/O"


class Usage(NamedTuple):
    """What the programs of a run, and a load beside them, have used."""

    processes_s: float  # CPU time of the programs
    taken_s: float  # CPU time of the load beside them
    # CPU time of the programs by mode, in a unit of the kernel's.
    user: float
    system: float
    # What the programs without their children read and wrote.
    read_bytes: float
    written_bytes: float


@dataclass
class Accounts:
    """CPU time of a run's programs, the kernel's threads and a load beside them, in its window."""

    instances: Instances
    taking: BandwidthLoad | None
    procfs: Path
    # In the window so far.
    used: Usage = field(init=False)
    kernel_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._group_before_s = self._group_cpu_s()

    def open(self) -> None:
        """Begin the window."""
        self._first_reading = None if self.taking is None else self.taking.last_reading()
        # Finding the kernel's threads takes some ms: before the window, and after it.
        self._kernel = cpu_accounting.KernelThreads(self.procfs)
        self._before = self._usage_so_far()

    def look(self) -> None:
        """Read the CPU time and bytes used since the window began."""
        self.used = Usage(*(b - a for a, b in zip(self._before, self._usage_so_far(), strict=True)))
        self.kernel_s = self._kernel.used_s()

    def moved_sectors(self) -> dict[str, float]:
        """Sectors (512 B) that the programs without their children read and wrote."""
        read, written = self.used.read_bytes, self.used.written_bytes
        return {"sectors_read": read / SECTOR_BYTES, "sectors_written": written / SECTOR_BYTES}

    def own(self) -> dict[str, float]:
        """CPU time (s) that the programs and the kernel's threads used alone, by mode."""
        user, system = self.used.user, self.used.system
        share = user / (user + system) if user + system > 0 else 1.0
        user_s = share * self.used.processes_s
        return {"user_s": user_s, "system_s": self.used.processes_s - user_s + self.kernel_s}

    def columns(self, scheduled_s: float | None) -> dict[str, Any]:
        """Columns of an ended run; ``scheduled_s`` is the scheduler's for all of the host."""
        group, used = self.instances.group, self.used
        columns: dict[str, Any] = {
            "processes_s": used.processes_s,
            "processes_by": "clocks" if group is None else f"control group v{group.version}",
            "kernel_threads_s": self.kernel_s,
            "rusage_s": self.instances.rusage_s,
        }
        if scheduled_s is not None:
            known_s = used.processes_s + self.kernel_s + used.taken_s
            columns["other_programs_s"] = max(scheduled_s - known_s, 0.0)
        if self._group_before_s is not None:
            columns["group_s"] = (self._group_cpu_s() or 0.0) - self._group_before_s
        if self.taking is not None and self._first_reading is not None:
            columns["bandwidth_taken_bytes_s"] = self.taking.rate_since(self._first_reading)
        return columns

    def _usage_so_far(self) -> Usage:
        group, pids = self.instances.group, self.instances.pids
        # By the control group, which knows their children too, or by each one's clock.
        used_s = self._group_cpu_s()
        if used_s is None:
            used_s = sum(map(cpu_accounting.process_cpu_s, pids))
        taken_s = 0.0 if self.taking is None else self.taking.cpu_s()
        modes = (0.0, 0.0) if group is None else group.user_and_system()
        return Usage(used_s, taken_s, *modes, *cpu_accounting.moved_bytes(pids, self.procfs))

    def _group_cpu_s(self) -> float | None:
        return None if self.instances.group is None else self.instances.group.cpu_s()
