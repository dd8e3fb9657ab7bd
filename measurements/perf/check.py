"""What perf can count on this host, found out by trying, and what to do about the rest."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from measurements.asking import ask
from measurements.errors import MeasurementError
from measurements.host.files import read_text
from measurements.host.virtual import is_virtual_machine
from measurements.perf import events as names
from measurements.perf.command import PerfCounters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from measurements.perf.figures import Counters

_TIMEOUT_S = 30.0
# perf's exit status when it does not understand its arguments.
_USAGE = 129
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38
# Highest kernel.perf_event_paranoid at which anybody may count so much.
_PARANOID_WHOLE_MACHINE, _PARANOID_KERNEL, _PARANOID_USER = 0, 1, 2
_FILTERED = "2"
_TIME_ALONE = "to measure without counters: --metric time"


@dataclass(frozen=True, slots=True)
class PerfSupport:
    """What can be counted here.

    Attributes
    ----------
    counters : PerfCounters or None
        As asked for, with those events that perf takes here; None where perf cannot count at all.
    hardware : bool
        Whether instructions or cycles are among what can be counted.
    reasons : tuple of str
        One line for each thing that cannot be counted: why, and what to do.
    """

    counters: PerfCounters | None
    hardware: bool
    reasons: tuple[str, ...]


class _Trial(NamedTuple):
    """What came of counting the program true."""

    status: int
    message: str
    counters: Counters | None


def check_perf(
    wanted: PerfCounters | None = None,
    *,
    sysfs: Path = Path("/sys"),
    procfs: Path = Path("/proc"),
) -> PerfSupport:
    """Find out what perf can count here, by letting it count a program that does nothing.

    Parameters
    ----------
    wanted : PerfCounters, optional
        What is to be counted, and where; by default the usual events of a command.
    sysfs, procfs : Path
        Where the reasons are looked for.
    """
    wanted = PerfCounters() if wanted is None else wanted
    program = shutil.which(wanted.program)
    if program is None:
        return _nothing(
            f"the program {wanted.program} is not there: apt install linux-perf (Debian), "
            "linux-tools-$(uname -r) (Ubuntu) or perf (Fedora, Red Hat, SUSE)"
        )
    usage = _usage(program)
    if "perf stat" not in usage:
        return _nothing(_broken(program, usage))
    counters = replace(wanted, program=program, json="--json-output" in usage)
    trial = _try(counters)
    unknown: tuple[str, ...] = ()
    if trial.status == _USAGE:
        unknown = tuple(e for e in wanted.events if _is_unknown(counters, e))
        known = tuple(e for e in wanted.events if e not in unknown)
        if not known:
            return _nothing(f"perf knows none of {', '.join(unknown)}: {_first_line(trial)}")
        counters = replace(counters, events=known)
        trial = _try(counters)
    if trial.counters is None:
        return _nothing(_refused(trial, counters, procfs))
    reasons = [f"perf does not know here: {', '.join(unknown)}"] if unknown else []
    return _support(counters, trial.counters, reasons, sysfs, procfs)


def _nothing(reason: str) -> PerfSupport:
    return PerfSupport(None, False, (f"{reason}; {_TIME_ALONE}",))


def _support(
    counters: PerfCounters, counted: Counters, reasons: list[str], sysfs: Path, procfs: Path
) -> PerfSupport:
    refused = [event for event in counters.events if _is_refused(event, counted)]
    taken = tuple(event for event in counters.events if event not in refused)
    core_terms = names.INSTRUCTIONS | names.CYCLES
    hardware = any(names.parse_event(event).term in core_terms for event in taken)
    if refused:
        reasons.append(_unsupported(refused, hardware, sysfs, procfs))
    if hardware and _lost_kernel_mode(counters, counted):
        paranoid = read_text(procfs / "sys/kernel/perf_event_paranoid")
        reasons.append(
            f"only user mode is counted, since kernel.perf_event_paranoid is {paranoid}: as root, "
            f"sysctl kernel.perf_event_paranoid={_PARANOID_KERNEL}, or give perf CAP_PERFMON"
        )
    found = replace(counters, events=taken) if taken else None
    return PerfSupport(found, hardware, tuple(reasons))


def _is_refused(event: str, counted: Counters) -> bool:
    """Whether no unit counts it; perf writes it under other names for each kind of core."""
    wanted = names.parse_event(event)
    missing = [
        total.missing
        for name, total in counted.events.items()
        if names.parse_event(name).term == wanted.term
    ]
    return bool(missing) and all(why == "not supported" for why in missing)


def _lost_kernel_mode(counters: PerfCounters, counted: Counters) -> bool:
    """Whether perf went back to user mode without being asked for it."""

    def user_only(events: Iterable[str]) -> bool:
        return any(names.parse_event(event).mode == "user" for event in events)

    return user_only(counted.events) and not user_only(counters.events)


def _usage(program: str) -> str:
    try:
        done = ask([program, "stat", "-h"], timeout_s=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout + done.stderr


def _broken(program: str, said: str) -> str:
    line = next((line.strip() for line in said.splitlines() if line.strip()), "it says nothing")
    return (
        f"{program} does not work: {line[:160]}; on Ubuntu, apt install linux-tools-$(uname -r), "
        "elsewhere install perf anew"
    )


def _try(counters: PerfCounters) -> _Trial:
    with tempfile.TemporaryDirectory(prefix="ppw-perf-") as folder:
        into = Path(folder) / "counts"
        try:
            done = ask(counters.wrap(["true"], into), timeout_s=_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            return _Trial(-1, str(error), None)
        try:
            counted = counters.read(into) if done.returncode == 0 else None
        except MeasurementError as error:
            return _Trial(done.returncode, done.stderr or str(error), None)
        return _Trial(done.returncode, done.stderr, counted)


def _is_unknown(counters: PerfCounters, event: str) -> bool:
    return _try(replace(counters, events=(event,))).status == _USAGE


def _first_line(trial: _Trial) -> str:
    lines = (line.strip() for line in trial.message.splitlines())
    said = [line for line in lines if line and line != "Error:"]
    return said[0][:160] if said else f"perf ended with status {trial.status} and no message"


def _refused(trial: _Trial, counters: PerfCounters, procfs: Path) -> str:
    status = _status(procfs)
    allowed = _PARANOID_WHOLE_MACHINE if counters.whole_machine else _PARANOID_USER
    paranoid = read_text(procfs / "sys/kernel/perf_event_paranoid")
    if paranoid is None:
        return "this kernel was built without perf events (CONFIG_PERF_EVENTS)"
    strict = paranoid.lstrip("-").isdigit() and int(paranoid) > allowed
    if status.get("Seccomp") == _FILTERED and (_is_capable(status) or not strict):
        return (
            f"a system call filter refuses perf ({_first_line(trial)}): start the container with "
            "--cap-add PERFMON or a seccomp profile that allows perf_event_open, or count outside"
        )
    if strict and not _is_capable(status):
        what = "whole CPUs" if counters.whole_machine else "anything"
        return (
            f"perf may not count {what}, since kernel.perf_event_paranoid is {paranoid}: as root, "
            f"sysctl kernel.perf_event_paranoid={allowed}, or setcap cap_perfmon+ep "
            f"{Path(counters.program).resolve()}"
        )
    return f"perf cannot count here: {_first_line(trial)}"


def _status(procfs: Path) -> dict[str, str]:
    lines = (read_text(procfs / "self/status") or "").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _is_capable(status: Mapping[str, str]) -> bool:
    try:
        effective = int(status.get("CapEff", "0"), 16)
    except ValueError:
        return False
    return bool(effective & (1 << _CAP_PERFMON | 1 << _CAP_SYS_ADMIN))


def _unsupported(refused: list[str], hardware: bool, sysfs: Path, procfs: Path) -> str:
    listed = ", ".join(refused)
    if hardware:
        return f"the processor does not count {listed}: the rest is measured"
    if is_virtual_machine(sysfs, procfs):
        return (
            f"this virtual machine has no hardware counters ({listed}): turn on its virtual PMU, "
            "or count on the machine below it and import the table; to measure without: "
            "--metric time"
        )
    return (
        f"the kernel has no driver for this processor's counters ({listed}): {_TIME_ALONE}, or "
        "import a table of counts"
    )
