"""The command line of ``perf stat``, and the file that it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from measurements.errors import MeasurementError
from measurements.perf.figures import Counters, summarize
from measurements.perf.output import PerfOutput, join_outputs, parse_output

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

EVENTS = (
    *("instructions", "cycles", "LLC-load-misses", "cache-misses"),
    *("task-clock", "duration_time"),
)
# The same with user and kernel mode apart.
EVENTS_BY_MODE = (
    *("instructions:u", "instructions:k", "cycles:u", "cycles:k"),
    *("LLC-load-misses", "cache-misses", "task-clock", "duration_time"),
)
# What tells the clock of CPUs that idle at times; not every machine has them.
CLOCK_EVENTS = ("msr/tsc/", "msr/aperf/", "msr/mperf/")

# perf exits 0 when its command was killed; a shell in between says 128 and the signal.
_TELL_SIGNALS = ("sh", "-c", '"$@"; exit $?', "sh")


@dataclass(frozen=True, slots=True)
class PerfCounters:
    """What to count, and where.

    To end a run before its time, send SIGINT to the process group of the wrapped command: perf
    then writes what it has. On SIGTERM it writes nothing and leaves the command running.

    Attributes
    ----------
    events : tuple of str
        For ``perf stat -e``. One that perf does not know keeps it from starting:
        `measurements.perf.check.check_perf` returns a copy with those that it takes here.
    system_wide : bool
        Count all CPUs and whatever runs on them, and not the command alone.
    cpus : str or None
        The same for these CPUs only, as a list such as "0-3,8".
    per_cpu : bool
        Keep CPUs apart; with ``system_wide`` or ``cpus``.
    program : str
        Name or path of perf.
    json : bool
        Ask for JSON, which perf writes since 5.19; otherwise for separated fields.

    Raises
    ------
    MeasurementError
        For settings that contradict each other.
    """

    events: tuple[str, ...] = EVENTS
    system_wide: bool = False
    cpus: str | None = None
    per_cpu: bool = False
    program: str = "perf"
    json: bool = True

    def __post_init__(self) -> None:
        if not self.events:
            raise MeasurementError("perf has nothing to count: name at least one event")
        if self.system_wide and self.cpus is not None:
            raise MeasurementError("perf counts either all CPUs or some: leave one of them out")
        if self.per_cpu and not self.whole_machine:
            raise MeasurementError(
                "perf keeps CPUs apart only where it counts whole CPUs: say all of them or which"
            )

    @property
    def whole_machine(self) -> bool:
        """Whether CPUs are counted with all that runs on them, and not a program."""
        return self.system_wide or self.cpus is not None

    def wrap(self, command: Sequence[str], into: Path) -> list[str]:
        """Put ``perf stat`` before a command; what it counts goes to the file ``into``.

        The exit status is the command's, or 128 + n if signal n ended it: a shell between perf
        and the command sees to that, whose start adds some 100,000 instructions. With status 129
        or 255 and no counts perf itself failed, and said why on stderr.
        """
        return [*self._stat(into), "--", *_TELL_SIGNALS, *command]

    def attach(self, pid: int, into: Path) -> list[str]:
        """Count a process that is already there, and all that it starts, until it ends."""
        if self.whole_machine:
            raise MeasurementError("perf counts either whole CPUs or a process: choose one")
        return [*self._stat(into), "-p", str(pid)]

    def read(self, *paths: Path) -> Counters:
        """Read what perf wrote for these settings; see `read_counters`."""
        return read_counters(*paths, whole_machine=self.whole_machine)

    def _stat(self, into: Path) -> list[str]:
        form = "-j" if self.json else "-x;"
        where = ["-a"] if self.system_wide else [] if self.cpus is None else ["-C", self.cpus]
        apart = ["-A"] if self.per_cpu else []
        output = ["-o", str(into), "-e", ",".join(self.events)]
        return [self.program, "stat", form, *where, *apart, *output]


def read_counters(*paths: Path, whole_machine: bool = False) -> Counters:
    """Read files that ``perf stat -j`` or ``perf stat -x ";"`` wrote.

    Parameters
    ----------
    *paths : Path
        Of either form and any version, aggregated or not, with intervals or not. Several are
        several executions, which are added up.
    whole_machine : bool
        They were counted with ``-a`` or ``-C``: the task clock has idle time in it.

    Raises
    ------
    MeasurementError
        When a file cannot be read or has no counts.
    """
    return summarize(join_outputs(map(_read, paths)), whole_machine=whole_machine)


def _read(path: Path) -> PerfOutput:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise MeasurementError(
            f"{path}: no counts of perf: {error.strerror}; perf did not start or could not write "
            "there, and its message on stderr says why"
        ) from None
    output = parse_output(text)
    if not output.counts:
        raise MeasurementError(f"{path}: {_why_nothing(text, output)}")
    return output


def _why_nothing(text: str, output: PerfOutput) -> str:
    if output.strange:
        return (
            f"no counts, but {output.strange[0][:80]!r}: record with perf stat -j -o FILE or "
            "perf stat -x ';' -o FILE"
        )
    wrote = "perf started, but wrote" if text.strip() else "perf wrote"
    return (
        f"{wrote} no counts: it failed (its message is on stderr), the disk is full, or it was "
        "killed; end a run early with SIGINT, on which perf writes what it has"
    )
