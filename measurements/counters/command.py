"""The command line of ``perf stat``, the file that it leaves behind, and what it can count here."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from measurements.counters import figures
from measurements.counters.figures import Counters, parse_event
from measurements.errors import MeasurementError
from measurements.host import files, processor
from measurements.processes.programs import ask

EVENTS = (
    *("instructions", "cycles", "LLC-load-misses", "cache-misses"),
    *("task-clock", "duration_time"),
)
# perf exits 0 when its command was killed; a shell in between says 128 and the signal.
_TELL_SIGNALS = ("sh", "-c", '"$@"; exit $?', "sh")


@dataclass(frozen=True, slots=True)
class PerfCounters:
    """What to count, and where; raises `MeasurementError` for nothing to count.

    To end a run before its time, send SIGINT to the process group of the wrapped command: perf
    then writes what it has. On SIGTERM it writes nothing and leaves the command running.
    """

    # For ``perf stat -e``. One that perf does not know keeps it from starting: `check_perf`
    # returns a copy with those that it takes here.
    events: tuple[str, ...] = EVENTS
    system_wide: bool = False  # count all CPUs and whatever runs on them, and not the command alone
    program: str = "perf"  # name or path of perf
    json: bool = True  # ask for JSON, which perf writes since 5.19; otherwise for separated fields

    def __post_init__(self) -> None:
        """Refuse settings without an event."""
        if not self.events:
            raise MeasurementError("perf has nothing to count: name at least one event")

    def wrap(self, command: Sequence[str], into: Path) -> list[str]:
        """Put ``perf stat`` before a command; what it counts goes to the file ``into``.

        The exit status is the command's, or 128 + n if signal n ended it: a shell between perf
        and the command sees to that, whose start adds some 100,000 instructions. With status 129
        or 255 and no counts perf itself failed, and said why on stderr.
        """
        return [*self._perf_stat_prefix(into), "--", *_TELL_SIGNALS, *command]

    def attach(self, pid: int, into: Path) -> list[str]:
        """Make the command of perf that counts a process already running, and all it starts."""
        if self.system_wide:
            raise MeasurementError("perf counts either whole CPUs or a process: choose one")
        return [*self._perf_stat_prefix(into), "-p", str(pid)]

    def read(self, *paths: Path) -> Counters:
        """Read what perf wrote for these settings; see `read_counters`."""
        return read_counters(*paths, whole_machine=self.system_wide)

    def _perf_stat_prefix(self, into: Path) -> list[str]:
        form = "-j" if self.json else "-x;"
        where = ["-a"] if self.system_wide else []
        output = ["-o", str(into), "-e", ",".join(self.events)]
        return [self.program, "stat", form, *where, *output]


def read_counters(*paths: Path, whole_machine: bool = False) -> Counters:
    """Read files that ``perf stat -j`` or ``perf stat -x ";"`` wrote.

    They may be of either form and any version, aggregated or not, with intervals or not; several
    are several executions, which are added up. ``whole_machine`` says that they were counted with
    ``-a`` or ``-C``: the task clock has idle time in it.
    """
    outputs = [_read_perf_file(path) for path in paths]
    counts = [c._replace(run=run) for run, o in enumerate(outputs) for c in o.counts]
    strange = [line for output in outputs for line in output.strange]
    output = figures.PerfOutput(tuple(counts), tuple(strange))
    return figures.summarize(output, whole_machine=whole_machine)


def _read_perf_file(path: Path) -> figures.PerfOutput:
    """Read one output file of perf. Raises `MeasurementError` where it holds no count."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise MeasurementError(
            f"{path}: no counts of perf: {error.strerror}; perf did not start or could not write "
            "there, and its message on stderr says why"
        ) from None
    output = figures.parse_output(text)
    if output.counts:
        return output
    if output.strange:
        raise MeasurementError(
            f"{path}: holds no counts of perf, but {output.strange[0][:80]!r}: record with perf "
            "stat -j -o FILE or perf stat -x ';' -o FILE"
        )
    wrote = "perf started, but it wrote" if text.strip() else "perf wrote"
    raise MeasurementError(
        f"{path}: {wrote} no counts: perf failed (see its message on stderr), the disk is full, or "
        "perf was killed. To end a run early, send SIGINT; perf then writes its counts"
    )


_TIMEOUT_S = 30.0
# perf's exit status when it does not understand its arguments.
_USAGE = 129
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38
# Highest kernel.perf_event_paranoid at which anybody may count so much.
_PARANOID_WHOLE_MACHINE, _PARANOID_KERNEL, _PARANOID_USER = 0, 1, 2
_TIME_ALONE = "to measure without counters: --metric time"


@dataclass(frozen=True, slots=True)
class PerfSupport:
    """What can be counted here."""

    counters: PerfCounters | None  # with the events that perf takes; None where it cannot count
    hardware: bool  # whether instructions or cycles are among them
    reasons: tuple[str, ...]  # why something cannot be counted, and what to do, a line each


def check_perf(
    wanted: PerfCounters | None = None, *, sysfs: Path = Path("/sys"), procfs: Path = Path("/proc")
) -> PerfSupport:
    """Find out what perf can count here by letting it count a program that does nothing."""
    wanted = PerfCounters() if wanted is None else wanted
    program = shutil.which(wanted.program)
    if program is None:
        return _no_support(
            f"the program {wanted.program} is not there: apt install linux-perf (Debian), "
            "linux-tools-$(uname -r) (Ubuntu) or perf (Fedora, Red Hat, SUSE)"
        )
    _, output, message = _ask([program, "stat", "-h"])
    # Versions that can write JSON have the option in their usage, on either stream.
    usage = output + message
    if "perf stat" not in usage:
        line = _telling_line(usage) or "it says nothing"
        return _no_support(
            f"{program} does not work: {line}; on Ubuntu, apt install linux-tools-$(uname -r), "
            "elsewhere reinstall perf"
        )
    counters = replace(wanted, program=program, json="--json-output" in usage)
    trial = _try_perf(counters)
    reasons = []
    # One event that perf does not know keeps it from counting the others.
    if trial.status == _USAGE:
        trials = {event: _try_perf(replace(counters, events=(event,))) for event in wanted.events}
        unknown = [event for event, alone in trials.items() if alone.status == _USAGE]
        known = tuple(event for event in wanted.events if event not in unknown)
        if not known:
            return _no_support(
                f"perf knows none of these events: {', '.join(unknown)}: {trial.complaint()}"
            )
        reasons = [f"perf does not know these events here: {', '.join(unknown)}"] if unknown else []
        counters = replace(counters, events=known)
        trial = _try_perf(counters)
    if trial.counters is None:
        return _no_support(_why_refused(trial, counters, procfs))
    return _support_of_counted_events(counters, trial.counters, reasons, sysfs, procfs)


class _Trial(NamedTuple):
    """Outcome of counting the program true."""

    status: int
    message: str
    counters: Counters | None

    def complaint(self) -> str:
        """Return the first line of perf's message that says something."""
        return _telling_line(self.message) or f"perf ended with status {self.status} and no message"


def _try_perf(counters: PerfCounters) -> _Trial:
    """Let perf count the program true; keep its status, message and counts, if any."""
    with tempfile.TemporaryDirectory(prefix="ppw-perf-") as folder:
        into = Path(folder) / "counts"
        status, _, message = _ask(counters.wrap(["true"], into))
        try:
            return _Trial(status, message, counters.read(into) if status == 0 else None)
        except MeasurementError as error:
            return _Trial(status, message or str(error), None)


def _ask(command: Sequence[str]) -> tuple[int, str, str]:
    """Run a program; return its status, output and messages, or -1 and why it cannot run."""
    try:
        done = ask(command, timeout_s=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, "", str(error)
    return done.returncode, done.stdout, done.stderr


def _telling_line(text: str) -> str:
    """Return the first line but blanks and "Error:", cut to 160 characters; "" for none."""
    lines = (line.strip() for line in text.splitlines())
    return next((line[:160] for line in lines if line not in ("", "Error:")), "")


def _no_support(reason: str) -> PerfSupport:
    return PerfSupport(None, False, (f"{reason}; {_TIME_ALONE}",))


def _support_of_counted_events(
    counters: PerfCounters, counted: Counters, reasons: list[str], sysfs: Path, procfs: Path
) -> PerfSupport:
    """Say what perf can count here, without events that no unit counts, and why (``reasons``)."""
    refused = [event for event in counters.events if _is_refused(event, counted)]
    taken = tuple(event for event in counters.events if event not in refused)
    core_terms = figures.INSTRUCTIONS | figures.CYCLES
    hardware = any(parse_event(event).term in core_terms for event in taken)
    if refused:
        reasons.append(_why_unsupported(refused, hardware, sysfs, procfs))
    # perf goes back to user mode by itself where it may not count the kernel.
    if hardware and _has_user_mode(counted.events) and not _has_user_mode(counters.events):
        reasons.append(
            "only user mode is counted, since kernel.perf_event_paranoid is "
            f"{_paranoid_level(procfs)}: as root, sysctl "
            f"kernel.perf_event_paranoid={_PARANOID_KERNEL}, or give perf CAP_PERFMON"
        )
    found = replace(counters, events=taken) if taken else None
    return PerfSupport(found, hardware, tuple(reasons))


def _is_refused(event: str, counted: Counters) -> bool:
    """Check whether no unit counts it; perf has other names for it on each kind of core."""
    term = parse_event(event).term
    missing = [t.missing for name, t in counted.events.items() if parse_event(name).term == term]
    return bool(missing) and all(why == "not supported" for why in missing)


def _has_user_mode(events: Iterable[str]) -> bool:
    return any(parse_event(event).mode == "user" for event in events)


def _paranoid_level(procfs: Path) -> str | None:
    return files.read_text(procfs / "sys/kernel/perf_event_paranoid")


def _why_refused(trial: _Trial, counters: PerfCounters, procfs: Path) -> str:
    paranoid = _paranoid_level(procfs)
    if paranoid is None:
        return "this kernel was built without perf events (CONFIG_PERF_EVENTS)"
    status = dict(files.read_pairs(procfs / "self/status"))
    mask = status.get("CapEff", "0")
    able = int(mask, 16) if re.fullmatch("[0-9a-fA-F]+", mask) else 0
    capable = bool(able & (1 << _CAP_PERFMON | 1 << _CAP_SYS_ADMIN))
    allowed = _PARANOID_WHOLE_MACHINE if counters.system_wide else _PARANOID_USER
    # Some distributions set it above 2, the kernel's own highest value.
    strict = paranoid.lstrip("-").isdigit() and int(paranoid) > allowed
    # Where the setting and the rights allow it, only a filter (mode 2) can have refused.
    if status.get("Seccomp") == "2" and (capable or not strict):
        return (
            f"a system call filter refuses perf ({trial.complaint()}): start the container with "
            "--cap-add PERFMON or a seccomp profile that allows perf_event_open, or count outside"
        )
    if strict and not capable:
        what = "whole CPUs" if counters.system_wide else "anything"
        return (
            f"perf may not count {what}, since kernel.perf_event_paranoid is {paranoid}: as root, "
            f"sysctl kernel.perf_event_paranoid={allowed}, or setcap cap_perfmon+ep "
            f"{Path(counters.program).resolve()}"
        )
    return f"perf cannot count here: {trial.complaint()}"


def _why_unsupported(refused: list[str], hardware: bool, sysfs: Path, procfs: Path) -> str:
    listed = ", ".join(refused)
    if hardware:
        return f"the processor does not count {listed}: the rest is measured"
    if processor.is_virtual_machine(sysfs, procfs):
        return (
            f"this virtual machine has no hardware counters ({listed}): turn on its virtual PMU, "
            "or count on the machine below it and import the table; to measure without: "
            "--metric time"
        )
    return (
        f"the kernel has no driver for this processor's counters ({listed}): {_TIME_ALONE}, or "
        "import a table of counts"
    )
