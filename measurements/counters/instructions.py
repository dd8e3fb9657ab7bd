"""How many instructions a command retires: counted, emulated or estimated, and labelled so.

Hardware counters through perf are taken where there are any. Otherwise the command is executed
once more by an emulator that counts: valgrind's callgrind, or QEMU's user mode with a plugin. That
takes ten to a hundred times as long, so it is for small inputs; the kernel's instructions are not
counted, and a program that asks for the processor's features may take another path than on the
real one. Where neither is there, CPU seconds × core frequency / CPI stands for the count.
"""

import platform
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from measurements.counters.command import check_perf
from measurements.errors import MeasurementError
from measurements.host.cpu_placement import Execution, execute
from measurements.processes import programs

Method = Literal["perf", "callgrind", "qemu", "cpu-time"]
Label = Literal["counted", "emulated", "estimated"]

_LABELS: dict[Method, Label] = {
    "perf": "counted",
    "callgrind": "emulated",
    "qemu": "emulated",
    "cpu-time": "estimated",
}
METHODS: tuple[Method, ...] = tuple(_LABELS)

_CALLGRIND = re.compile(r"^(?P<name>cmd|totals):\s*(?P<value>.*)$", re.MULTILINE)
_SUPPORTED = re.compile(r"supports only (?:up to|a minimum) version(?: of)? (?P<version>\d+)")
# Of the plugin's interface; the one that QEMU names in its refusal is tried next.
_FIRST_API, _MOST_TRIES = 1, 4
_QEMU_NAMES = {"amd64": "x86_64", "i686": "i386"}


class InstructionCount(NamedTuple):
    """Instructions of one execution of a command."""

    instructions: float
    method: Method
    label: Label  # by the processor, by an emulator, or computed from CPU time
    modes: str  # of the processor
    time_s: float  # times are those of an execution without emulator
    user_s: float
    system_s: float
    caveats: tuple[str, ...] = ()

    def columns(self) -> dict[str, float | str]:
        """Make columns of the runs table."""
        row: dict[str, float | str] = {
            "time_s": self.time_s,
            "instructions": self.instructions,
            "instructions_method": self.method,
            "instructions_label": self.label,
            "counted_modes": self.modes,
            "command_user_s": self.user_s,
            "command_system_s": self.system_s,
        }
        return row | ({"notes": "; ".join(self.caveats)} if self.caveats else {})


def count_instructions(
    command: Sequence[str],
    *,
    method: Method | None = None,
    clock_hz: float | None = None,
    cpi: float | None = None,
    cpus: Collection[int] | None = None,
) -> InstructionCount:
    """Count the instructions that a command retires, with all processes that it starts.

    The command is executed once, and once more where an emulator counts; it must do the same each
    time. ``method`` is by default the first of `METHODS` that works here; "cpu-time" takes
    ``clock_hz`` and ``cpi``. ``cpus`` are the logical CPUs that the command may use. Raises
    `MeasurementError` when the command fails, or nothing here can count it; says what to install.
    """
    if method is not None and method not in METHODS:
        raise MeasurementError(f"unknown method {method!r}: give one of {', '.join(METHODS)}")
    if not command:
        raise MeasurementError("no command is given whose instructions to count")
    by_method: dict[Method, Callable[[_Trial], InstructionCount]] = {
        "perf": _count_by_perf,
        "callgrind": _count_by_callgrind,
        "qemu": _count_by_qemu,
        "cpu-time": lambda trial: _estimate_count(trial, clock_hz, cpi),
    }
    reasons = []
    for name in METHODS if method is None else (method,):
        with tempfile.TemporaryDirectory(prefix="ppw-count-") as folder:
            try:
                return by_method[name](_Trial(command, Path(folder), cpus))
            except _CannotCountError as error:
                reasons.append(f"{name}: {error}")
    raise MeasurementError(f"instructions cannot be counted here: {'; '.join(reasons)}")


class _CannotCountError(MeasurementError):
    """Raised where a method does not work here and another may."""


class _Trial(NamedTuple):
    """A command, a folder for what one method writes, and the CPUs that it may use."""

    command: Sequence[str]
    folder: Path
    cpus: Collection[int] | None

    def execute(self, command: Sequence[str]) -> tuple[Execution, str]:
        """Run a command; return what it took, and what it printed."""
        output = self.folder / "output"
        made = execute([list(command)], output=output, cpus=self.cpus)
        return made, output.read_text(encoding="utf-8", errors="replace")

    def run(self, command: Sequence[str]) -> Execution:
        """Run a command that must not fail."""
        made, printed = self.execute(command)
        _raise_if_failed(made, command, printed)
        return made


def _raise_if_failed(made: Execution, command: Sequence[str], printed: str) -> None:
    if code := made.exit_code:
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise MeasurementError(f"{command[0]} ended with {how}: {programs.last_line(printed)}")


def _make_instruction_count(
    instructions: float,
    method: Method,
    made: Execution,
    *,
    modes: str = "user+kernel",
    elapsed_s: float | None = None,
    caveats: tuple[str, ...] = (),
) -> InstructionCount:
    usage = (elapsed_s or made.end_s - made.start_s, made.user_s, made.system_s)
    return InstructionCount(instructions, method, _LABELS[method], modes, *usage, caveats)


def _count_by_perf(trial: _Trial) -> InstructionCount:
    support = check_perf()
    if support.counters is None or not support.hardware:
        raise _CannotCountError("; ".join(support.reasons))
    counts = trial.folder / "counts"
    made = trial.run(support.counters.wrap(trial.command, counts))
    counters = support.counters.read(counts)
    if counters.instructions is None:
        raise _CannotCountError("perf counted no instructions")
    return _make_instruction_count(
        counters.instructions,
        "perf",
        made,
        modes=counters.modes or "user+kernel",
        elapsed_s=counters.elapsed_s,
        caveats=counters.caveats,
    )


def _count_by_callgrind(trial: _Trial) -> InstructionCount:
    program = shutil.which("valgrind")
    if program is None:
        raise _CannotCountError("the program valgrind is not there: apt install valgrind")
    # Times are those without the emulator.
    native = trial.run(trial.command)
    out = f"--callgrind-out-file={trial.folder / 'callgrind.%p'}"
    tool = [program, "-q", "--tool=callgrind", "--trace-children=yes", out]
    trial.run([*tool, *trial.command])
    total, commands = read_callgrind(sorted(trial.folder.glob("callgrind.*")))
    # A fork takes callgrind's counts along, so they may be of what a parent did.
    caveats = tuple(
        f"{times} processes ran {command[:60]}: callgrind counts the instructions of a parent "
        "again in a fork that starts no other program; --method qemu does not"
        for command, times in Counter(commands).items()
        if times > 1
    )
    return _make_instruction_count(float(total), "callgrind", native, modes="user", caveats=caveats)


def read_callgrind(paths: Sequence[Path]) -> tuple[int, list[str]]:
    """Read the instructions in files of callgrind, one a process, and each one's command."""
    total, commands = 0, []
    for path in paths:
        text = path.read_text(encoding="utf-8", errors="replace")
        found = {match["name"]: match["value"].strip() for match in _CALLGRIND.finditer(text)}
        try:
            total += int(found["totals"].split()[0])
            commands.append(found["cmd"])
        except (KeyError, ValueError, IndexError):
            raise MeasurementError(f"{path}: no totals of callgrind: it was killed") from None
    if not commands:
        raise MeasurementError("callgrind wrote nothing: the command was killed")
    return total, commands


def _count_by_qemu(trial: _Trial) -> InstructionCount:
    command = trial.command
    machine = platform.machine()
    name = f"qemu-{_QEMU_NAMES.get(machine, machine)}"
    program = shutil.which(name)
    if program is None:
        raise _CannotCountError(f"the program {name} is not there: apt install qemu-user")
    executable = shutil.which(command[0])
    if executable is None:
        raise MeasurementError(f"{command[0]}: cannot be started: no such program on PATH")
    native = trial.run(command)
    # Each QEMU takes plugins of some versions of its interface, and names one when it refuses.
    counts = trial.folder / "qemu"
    version = _FIRST_API
    for _ in range(_MOST_TRIES):
        load = ["-plugin", f"{_compile_qemu_plugin(trial.folder, version)},out={counts}"]
        made, printed = trial.execute([program, *load, executable, *command[1:]])
        refused = _SUPPORTED.search(printed) if made.exit_code and not counts.exists() else None
        if refused is None or int(refused["version"]) == version:
            break
        version = int(refused["version"])
    if not counts.exists():
        raise _CannotCountError(f"{name} did not count: {programs.last_line(printed)}")
    _raise_if_failed(made, command, printed)
    total, followed = read_qemu(counts)
    if not followed:
        raise _CannotCountError(
            f"{command[0]} starts other programs, and QEMU's user mode does not "
            "count them: count them one by one, or install valgrind"
        )
    return _make_instruction_count(float(total), "qemu", native, modes="user")


def _compile_qemu_plugin(folder: Path, version: int) -> Path:
    source, made = "instruction_count.c", folder / f"count-{version}.so"
    flags = ("-shared", "-fPIC", f"-DAPI_VERSION={version}")
    try:
        return programs.compile_c("measurements.counters", source, made, flags=flags)
    except MeasurementError as error:
        raise _CannotCountError(str(error)) from error


def read_qemu(path: Path) -> tuple[int, bool]:
    """Read the instructions that the plugin wrote, and whether it saw all that was executed."""
    last: dict[str, str] = {}
    total = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            pid, count, event = line.split()
            # An attempt to become a program that is not there goes on, and ends with its exit.
            total += int(count) if event == "exit" else 0
        except ValueError:
            raise MeasurementError(f"{path}: {line[:80]!r} is not a count of the plugin") from None
        last[pid] = event
    # A process that became another program has a last line that says so.
    return total, bool(last) and "exec" not in last.values()


def _estimate_count(trial: _Trial, clock_hz: float | None, cpi: float | None) -> InstructionCount:
    if clock_hz is None or cpi is None:
        raise _CannotCountError("needs core frequency and CPI: --clock 2.4GHz --cpi 1.1")
    if not (clock_hz > 0 and cpi > 0):
        raise MeasurementError(
            f"a clock of {clock_hz:g} Hz, a CPI of {cpi:g}: both must be above 0"
        )
    made = trial.run(trial.command)
    instructions = (made.user_s + made.system_s) * clock_hz / cpi
    if not instructions > 0:
        name = trial.command[0]
        raise MeasurementError(f"{name} took no measurable CPU time: give it more work")
    caveat = f"CPU seconds × {clock_hz / 1e9:.4g} GHz / {cpi:.4g}, as good as that CPI is"
    return _make_instruction_count(instructions, "cpu-time", made, caveats=(caveat,))
