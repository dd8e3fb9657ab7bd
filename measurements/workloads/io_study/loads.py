"""What a study runs: fio in a window of steady load, or a command from its start to its end."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from measurements.cpu_lists import cpu_list_text
from measurements.errors import MeasurementError
from measurements.timeseries import LiveSampler
from measurements.timeseries.schema import SECTOR_BYTES
from measurements.workloads.fio_report import read_report
from measurements.workloads.io_study.accounts import Accounts, moved_bytes
from measurements.workloads.io_study.window import window_columns
from measurements.workloads.service_run import CutShortError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from measurements.placement import Placement
    from measurements.workloads.fio import Pattern
    from measurements.workloads.io_study.bandwidth import BandwidthLoad
    from measurements.workloads.io_study.instances import Instances

RAMP_S = 0.5
_LONGEST_START_S = 60.0
_LOOK_S = 0.02
# What a program reads as it starts, and a few requests.
_FLOWING_BYTES = 2 << 20


@dataclass
class IoLoad:
    """Equal programs on some cores, as `measurements.workloads.service_run.ServiceRuns` measures.

    Attributes
    ----------
    instances : Instances
    placement : Placement
    disks : tuple of str or None
        Whose sectors count; None for all physical disks.
    interval_s : float
        Between samples.
    setup : dict
        Columns of what was set up.
    procfs, sysfs : Path
    steal : callable or None
        Starts what takes memory bandwidth meanwhile.
    own : bool
        Whether other programs are left out.
    own_sectors : bool
        Whether that can be done with their I/O too.
    """

    instances: Instances
    placement: Placement
    disks: tuple[str, ...] | None
    interval_s: float
    setup: dict[str, Any]
    procfs: Path
    sysfs: Path
    steal: Callable[[], BandwidthLoad] | None = None
    own: bool = False
    own_sectors: bool = False
    is_local: bool = True
    _taking: BandwidthLoad | None = None
    _sampler: LiveSampler | None = None
    _accounts: Accounts | None = None
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _window: dict[str, Any] = field(default_factory=dict)

    @property
    def cores(self) -> int | None:
        """Physical cores that the programs may use."""
        return self.placement.cores

    @property
    def pids(self) -> Sequence[int]:
        """Processes of the workload."""
        return self.instances.pids

    def start(self, output: Path) -> None:
        """Start the programs, and before them what takes memory bandwidth."""
        if self.steal is not None:
            self._taking = self.steal()
        self._accounts = Accounts(self.instances, self._taking, self.procfs)
        self.instances.start(output)

    def wait_steady(self) -> None:
        """Return when the window may be opened."""
        raise NotImplementedError

    def observe(self) -> None:
        """Take a sample; the first call opens the window."""
        assert self._accounts is not None
        if self._sampler is None:
            self._accounts.open()
            self._sampler = LiveSampler(
                interval_s=self.interval_s, disks=self.disks, procfs=self.procfs, sysfs=self.sysfs
            )
        else:
            self._rows.append(self._sampler.row())
            self._accounts.look()

    def finish(self) -> None:
        """Wait for the end, and judge the samples.

        Raises
        ------
        CutShortError
            When the programs ended before the window did, or counters went back.
        MeasurementError
            When a program failed.
        """
        assert self._accounts is not None
        found = window_columns(
            self._rows,
            cpus=len(self.placement.cpus),
            taken_s=self._accounts.taken_s,
            own=self._accounts.own(sectors=self.own_sectors) if self.own else None,
        )
        self._window = found | self._accounts.columns(found["scheduled_s"])

    def stop(self) -> None:
        """End what is still running."""
        self.instances.stop()
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
            "cpus_used": cpu_list_text(self.placement.cpus),
            **self.setup,
        }


@dataclass
class FioLoad(IoLoad):
    """fio, one process an instance with a job a logical CPU, in a window of steady load."""

    pattern: Pattern | None = None
    seconds: float = 0.0
    _cut_short: bool = False

    def wait_steady(self) -> None:
        """Return when requests have flowed for the time of the ramp."""
        self.instances.release()
        until = time.monotonic() + _LONGEST_START_S
        while not all(_flows(self.procfs, pid) for pid in self.pids):
            self.instances.check()
            if self.instances.ended() or time.monotonic() > until:
                raise MeasurementError(f"fio made no request: see {self.instances.outputs[0]}")
            time.sleep(_LOOK_S)
        time.sleep(RAMP_S)

    def observe(self) -> None:
        """Take a sample."""
        super().observe()
        self._cut_short |= self.instances.ended()

    def finish(self) -> None:
        """Wait for fio, and judge the samples."""
        self.instances.check()
        if self._cut_short:
            raise CutShortError("fio")
        if not self.instances.wait(self.seconds + _LONGEST_START_S):
            raise MeasurementError("fio was to end and did not: the device may hang")
        super().finish()
        assert self._accounts is not None
        self._window["process_sectors"] = sum(self._accounts.moved_sectors)

    def columns(self, seen: Sequence[Any]) -> dict[str, Any]:
        """Columns of the run, with those of fio's reports."""
        assert self.pattern is not None
        reports = [read_report(p, self.pattern.direction) for p in self.instances.outputs]
        # Tails of several instances cannot be put together.
        row = dict(reports[0]) if len(reports) == 1 else {"fio_version": reports[0]["fio_version"]}
        for name in ("throughput_ops_s", "bandwidth_bytes_s"):
            row[name] = sum(float(report[name] or 0.0) for report in reports)
        columns = super().columns(seen)
        if self.own_sectors:
            # Of the window, as CPU time and sectors are; fio reports of its whole time.
            sectors = columns["process_sectors"] / columns["sampled_s"]
            # None of a window in which fio stood still: a rate of 0 is none.
            row["throughput_ops_s"] = sectors * SECTOR_BYTES / self.pattern.block_bytes or None
        return {**columns, **row}


@dataclass
class CommandLoad(IoLoad):
    """A command from its start until it has ended and what it wrote is on the device."""

    folders: tuple[Path, ...] = ()

    def wait_steady(self) -> None:
        """Leave nothing to be written that is of before."""
        self._write_back()

    def observe(self) -> None:
        """Take a sample; the first call lets the command go."""
        opens = self._sampler is None
        super().observe()
        if opens:
            self.instances.release()

    def wait(self, seconds: float) -> bool:
        """Wait so long at most; whether the command has ended and its data are written."""
        if not self.instances.wait(seconds):
            return False
        self._write_back()
        return True

    def _write_back(self) -> None:
        for folder in self.folders:
            with suppress(OSError):
                subprocess.run(["sync", "-f", str(folder)], capture_output=True, check=False)


def _flows(procfs: Path, pid: int) -> bool:
    """Whether requests of a process flow to a disk or the page cache."""
    if any(moved_bytes([pid], procfs)):
        return True
    with suppress(OSError, ValueError, KeyError):
        lines = (procfs / str(pid) / "io").read_text().splitlines()
        figures = dict(line.split(": ") for line in lines)
        return int(figures["rchar"]) + int(figures["wchar"]) > _FLOWING_BYTES
    return False
