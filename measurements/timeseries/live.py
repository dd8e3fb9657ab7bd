"""A host sampled as it runs: one row an interval, until a command, a time or the user ends it."""

from __future__ import annotations

import os
import select
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.errors import MeasurementError
from measurements.host.control_groups import group_state
from measurements.host.virtual import container
from measurements.timeseries.counts import Counters
from measurements.timeseries.live_rows import make_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from measurements.timeseries.series import TimeSeries

# A reading that much later than due leaves a gap.
_GAP = 1.5
# Rates over a shorter interval are noise.
_SHORTEST_S = 0.02
_END_S = 5.0


class LiveSampler:
    """Samples this host from the kernel's counts.

    Parameters
    ----------
    interval_s : float
    disks : sequence of str, optional
        Disks whose transfers are the host's; by default the physical ones, each transfer once.
    host : str, optional
        By default this host's name.
    procfs, sysfs, root : Path
        Where the kernel's trees and the root folder are; other folders for tests.
    clock, wait : callable
        Seconds of a clock that never goes back, and a wait of so many; others for tests.

    Attributes
    ----------
    caveats : tuple of str
        What could mislead: a container that sees its host's counters, CPU time by ticks only.

    Raises
    ------
    MeasurementError
        Without /proc/stat, or for a disk that is not there.
    """

    def __init__(
        self,
        *,
        interval_s: float = 1.0,
        disks: Sequence[str] | None = None,
        host: str | None = None,
        procfs: Path = Path("/proc"),
        sysfs: Path = Path("/sys"),
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        if not 0.01 <= interval_s < float("inf"):
            raise MeasurementError(f"an interval of {interval_s:g} s: give 10 ms or more")
        self.interval_s = interval_s
        self._host = host or os.uname().nodename
        self._clock, self._wait = clock, wait
        self._counters = Counters(procfs, sysfs, disks, clock)
        self._last = self._counters.read()
        foreign = _foreign_counters(procfs, sysfs, root)
        self._marks = ["container"] if foreign else []
        by_ticks = "" if self._last.scheduled_s is not None else _ONLY_TICKS
        self.caveats = tuple(text for text in (foreign, by_ticks) if text)

    def row(self) -> dict[str, Any]:
        """Columns of the time since the row before, or since the start; None is not known."""
        now = self._counters.read()
        row, marks = make_row(self._last, now, self._counters, self._host)
        if row["interval_s"] > _GAP * self.interval_s:
            marks.append("gap")
        self._last = now
        return row | {"marks": "; ".join([*marks, *self._marks])}

    def rows(self, ended: Callable[[float], bool]) -> Iterator[dict[str, Any]]:
        """Rows at every interval, and one for what is left when it ends.

        Parameters
        ----------
        ended : callable
            Waits so many seconds at most and says whether it is time to end. An interrupt
            (KeyboardInterrupt) ends it as well.
        """
        start_s, due = self._last.at_s, 1
        over = False
        while not over:
            wait_s = start_s + due * self.interval_s - self._clock()
            try:
                over = ended(max(0.0, wait_s))
            except KeyboardInterrupt:
                over = True
            if over:
                # What is left counts, however short; but rates over too short a time are noise.
                self._wait(max(0.0, self._last.at_s + _SHORTEST_S - self._clock()))
            now_s = self._clock()
            yield self.row()
            # Those that were missed are not made up for.
            due = int((now_s - start_s) / self.interval_s + 1e-3) + 1


class Ended(NamedTuple):
    """How a sampled command ended.

    Attributes
    ----------
    exit_code : int
        Negative for the signal that ended it.
    user_s, system_s : float
        CPU time of the command and of all that it waited for.
    """

    exit_code: int
    user_s: float
    system_s: float


class Command:
    """A command that runs while its host is sampled.

    Raises
    ------
    MeasurementError
        When it cannot be started.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(arguments)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise MeasurementError(
                f"{arguments[0] if arguments else ''}: cannot be started: {reason}: give the "
                "command after --, with its path where it is not on PATH"
            ) from error
        self.ended: Ended | None = None

    def wait(self, timeout_s: float) -> bool:
        """Wait so long at most; whether it has ended."""
        if self.ended is None:
            with _descriptor(self._process.pid) as descriptor:
                select.select([descriptor], [], [], timeout_s)
            self._reap(os.WNOHANG)
        return self.ended is not None

    def end(self) -> Ended:
        """End it, kindly at first, where it still runs."""
        for stop in (self._process.terminate, self._process.kill):
            if self.ended is None:
                stop()
                self.wait(_END_S)
        return self.ended or self._reap(0)

    def _reap(self, options: int) -> Ended:
        pid, status, usage = os.wait4(self._process.pid, options)
        found = Ended(os.waitstatus_to_exitcode(status), usage.ru_utime, usage.ru_stime)
        if pid:
            self._process.returncode = found.exit_code
            self.ended = found
        return found


def sample(
    *,
    seconds: float | None = None,
    command: Sequence[str] | None = None,
    interval_s: float = 1.0,
    disks: Sequence[str] | None = None,
    host: str | None = None,
) -> TimeSeries:
    """Sample this host while a command runs, or for some seconds.

    Parameters
    ----------
    seconds : float, optional
    command : sequence of str, optional
        Its arguments; one of the two is needed. The command's output goes where ours does.
    interval_s, disks, host
        As of `LiveSampler`.

    Returns
    -------
    TimeSeries

    Raises
    ------
    MeasurementError
        When the host cannot be sampled, or the command not be started.
    """
    from measurements.timeseries.own import series_of

    if (seconds is None) == (command is None):
        raise MeasurementError("give sample() either seconds or a command")
    sampler = LiveSampler(interval_s=interval_s, disks=disks, host=host)
    if command is None:
        rows = list(sampler.rows(for_seconds(seconds or 0.0)))
    else:
        running = Command(command)
        try:
            rows = list(sampler.rows(running.wait))
        finally:
            running.end()
    return series_of(rows, f"{os.uname().nodename} (live)", sampler.caveats)


def for_seconds(
    seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> Callable[[float], bool]:
    """Ending of a recording after so many seconds, for `LiveSampler.rows`."""
    end_s = clock() + seconds

    def ended(timeout_s: float) -> bool:
        wait(max(0.0, min(timeout_s, end_s - clock())))
        # Its last row may be due just before it ends.
        return clock() >= end_s - _SHORTEST_S

    return ended


@contextmanager
def _descriptor(pid: int) -> Iterator[int]:
    """Descriptor of a process, that is readable once it has ended."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        with suppress(OSError):
            os.close(descriptor)


# Fixed numbers of the kernel for those that it starts with.
_HOST_NAMESPACES = {"cgroup": "cgroup:[4026531835]", "pid": "pid:[4026531836]"}
_ONLY_TICKS = (
    "CPU time is by ticks only: this kernel keeps no scheduler time of the whole host, so that "
    "what wakes and sleeps between ticks may be missed"
)


def _foreign_counters(procfs: Path, sysfs: Path, root: Path) -> str:
    """Say that this is a container that sees its host's counters; "" where it is not."""
    kind = container(root, procfs)
    contained = _has_own_namespace(procfs)
    if contained is None:
        contained = kind not in (None, "none")
    if not contained or _has_own_stat(procfs):
        return ""
    quota = group_state(sysfs, procfs).get("cpu_quota_cpus")
    limit = f", of which {quota:g} CPUs are allowed to it" if quota is not None else ""
    return (
        f"this is a container ({_kind(kind)}): CPU time, memory and disks are those of its whole "
        f"host{limit}, with whatever else runs there"
    )


def _kind(kind: str | None) -> str:
    return kind if kind and kind != "none" else "of an unknown kind"


def _has_own_namespace(procfs: Path) -> bool | None:
    """Whether processes or control groups are others than the host's; None where nothing tells.

    An image of a container that was started as a machine has its marks, though not its namespaces.
    """
    try:
        names = [str((procfs / "self/ns" / name).readlink()) for name in _HOST_NAMESPACES]
    except OSError:
        return None
    return any(n != own for n, own in zip(names, _HOST_NAMESPACES.values(), strict=True))


def _has_own_stat(procfs: Path) -> bool:
    """Whether something shows the container its own counters (lxcfs)."""
    try:
        mounts = (procfs / "self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(line.split()[4:5] == ["/proc/stat"] for line in mounts.splitlines())
