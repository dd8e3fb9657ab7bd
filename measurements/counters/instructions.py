"""How many instructions a command retires: counted, emulated or estimated, and labelled so.

Hardware counters through perf are taken where there are any. Otherwise the command is executed
once more by an emulator that counts: valgrind's callgrind, or QEMU's user mode with a plugin. That
takes ten to a hundred times as long, so it is for small inputs; the kernel's instructions are not
counted, and a program that asks for the processor's features may take another path than on the
real one. Where neither is there, CPU seconds × clock / CPI stands for the count.
"""

from __future__ import annotations

import platform
import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from measurements.counters.command import check_perf
from measurements.errors import MeasurementError
from measurements.host.execution import Execution, execute
from measurements.processes.programs import compile_c

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

Method = Literal["perf", "callgrind", "qemu", "cpu-time"]
Label = Literal["counted", "emulated", "estimated"]
METHODS: tuple[Method, ...] = ("perf", "callgrind", "qemu", "cpu-time")

_CALLGRIND = re.compile(r"^(?P<name>cmd|totals):\s*(?P<value>.*)$", re.MULTILINE)
_SUPPORTED = re.compile(r"supports only (?:up to|a minimum) version(?: of)? (?P<version>\d+)")
# Of the plugin's interface; the one that QEMU names in its refusal is tried next.
_FIRST_API, _MOST_TRIES = 1, 4
_QEMU_NAMES = {"amd64": "x86_64", "i686": "i386"}


class InstructionCount(NamedTuple):
    """Instructions of one execution of a command.

    Attributes
    ----------
    instructions : float
    method : {"perf", "callgrind", "qemu", "cpu-time"}
    label : {"counted", "emulated", "estimated"}
        How much it is worth: by the processor, by an emulator, or computed from CPU time.
    modes : {"user+kernel", "user", "kernel"}
        Modes of the processor that it covers.
    time_s : float
        Elapsed time of an execution without emulator (s).
    user_s, system_s : float
        CPU time of that execution (s).
    caveats : tuple of str
    """

    instructions: float
    method: Method
    label: Label
    modes: str
    time_s: float
    user_s: float
    system_s: float
    caveats: tuple[str, ...] = ()

    def columns(self) -> dict[str, float | str]:
        """Columns of the runs table."""
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

    Parameters
    ----------
    command : sequence of str
        Executed once, and once more where an emulator counts; it must do the same each time.
    method : {"perf", "callgrind", "qemu", "cpu-time"}, optional
        By default the first of them that works here.
    clock_hz, cpi : float, optional
        Core clock (Hz) and cycles per instruction, for "cpu-time".
    cpus : collection of int, optional
        Logical CPUs that the command may use.

    Raises
    ------
    MeasurementError
        When the command fails, or nothing here can count it; says what to install.
    """
    if method is not None and method not in METHODS:
        raise MeasurementError(f"no method {method!r} of counting: there are {', '.join(METHODS)}")
    if not command:
        raise MeasurementError("no command to count the instructions of")
    by_method: dict[Method, Callable[[Path], InstructionCount]] = {
        "perf": lambda folder: _by_perf(command, folder, cpus),
        "callgrind": lambda folder: _by_callgrind(command, folder, cpus),
        "qemu": lambda folder: _by_qemu(command, folder, cpus),
        "cpu-time": lambda folder: _by_cpu_time(command, folder, cpus, clock_hz, cpi),
    }
    reasons = []
    for name in METHODS if method is None else (method,):
        with tempfile.TemporaryDirectory(prefix="ppw-count-") as folder:
            try:
                return by_method[name](Path(folder))
            except _CannotCountError as error:
                reasons.append(f"{name}: {error}")
    raise MeasurementError(f"instructions cannot be counted here: {'; '.join(reasons)}")


class _CannotCountError(MeasurementError):
    """Raised where a method does not work here and another may."""


def _by_perf(
    command: Sequence[str], folder: Path, cpus: Collection[int] | None
) -> InstructionCount:
    support = check_perf()
    if support.counters is None or not support.hardware:
        raise _CannotCountError("; ".join(support.reasons))
    made = _run(support.counters.wrap(command, folder / "counts"), folder, cpus)
    counters = support.counters.read(folder / "counts")
    if counters.instructions is None:
        raise _CannotCountError("perf counted no instructions")
    return InstructionCount(
        counters.instructions,
        "perf",
        "counted",
        counters.modes or "user+kernel",
        counters.elapsed_s or made.end_s - made.start_s,
        made.user_s,
        made.system_s,
        counters.caveats,
    )


def _by_callgrind(
    command: Sequence[str], folder: Path, cpus: Collection[int] | None
) -> InstructionCount:
    program = shutil.which("valgrind")
    if program is None:
        raise _CannotCountError("the program valgrind is not there: apt install valgrind")
    native = _run(command, folder, cpus)
    out = folder / "callgrind.%p"
    tool = [program, "-q", "--tool=callgrind", "--trace-children=yes"]
    _run([*tool, f"--callgrind-out-file={out}", *command], folder, cpus)
    counts, commands = read_callgrind(sorted(folder.glob("callgrind.*")))
    return _emulated(counts, "callgrind", native, _forked(commands))


def read_callgrind(paths: Sequence[Path]) -> tuple[int, list[str]]:
    """Instructions in files of callgrind, one a process, and each one's command.

    Raises
    ------
    MeasurementError
        When one of them is no such file.
    """
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


def _forked(commands: Sequence[str]) -> tuple[str, ...]:
    """Say where counts may be of what a parent did: a fork takes callgrind's counts along."""
    several = [command for command, times in Counter(commands).items() if times > 1]
    return tuple(
        f"{commands.count(command)} processes ran {command[:60]}: one that was forked, and started "
        "no other program, counts what its parent had executed once more; --method qemu does not"
        for command in several
    )


def _by_qemu(
    command: Sequence[str], folder: Path, cpus: Collection[int] | None
) -> InstructionCount:
    machine = platform.machine()
    name = f"qemu-{_QEMU_NAMES.get(machine, machine)}"
    program = shutil.which(name)
    if program is None:
        raise _CannotCountError(f"the program {name} is not there: apt install qemu-user")
    executable = shutil.which(command[0])
    if executable is None:
        raise MeasurementError(f"{command[0]}: cannot be started: no such program on PATH")
    native = _run(command, folder, cpus)
    counts = folder / "qemu"
    version = _FIRST_API
    for _ in range(_MOST_TRIES):
        plugin = _plugin(folder, version)
        load = ["-plugin", f"{plugin},out={counts}"]
        output = folder / "output"
        made = execute([[program, *load, executable, *command[1:]]], output=output, cpus=cpus)
        said = output.read_text(encoding="utf-8", errors="replace")
        refused = _SUPPORTED.search(said) if made.exit_code and not counts.exists() else None
        if refused is None or int(refused["version"]) == version:
            break
        version = int(refused["version"])
    if not counts.exists():
        raise _CannotCountError(f"{name} did not count: {_last_line(said)}")
    _refuse_failed(made, command, said)
    total, followed = read_qemu(counts)
    if not followed:
        raise _CannotCountError(
            f"{command[0]} starts other programs, into which QEMU's user mode does not follow: "
            "count them one by one, or install valgrind"
        )
    return _emulated(total, "qemu", native, ())


def _plugin(folder: Path, version: int) -> Path:
    flags = ("-shared", "-fPIC", f"-DAPI_VERSION={version}")
    try:
        return compile_c(
            "measurements.counters",
            "instruction_count.c",
            folder / f"count-{version}.so",
            flags=flags,
        )
    except MeasurementError as error:
        raise _CannotCountError(str(error)) from error


def read_qemu(path: Path) -> tuple[int, bool]:
    """Instructions in what the plugin wrote, and whether it saw all that was executed.

    A process that became another program has a last line that says so.

    Raises
    ------
    MeasurementError
        When it is no such file.
    """
    last: dict[str, str] = {}
    total = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            pid, count, event = line.split()
            # An attempt to become a program that is not there goes on, and ends with its exit.
            total += int(count) if event == "exit" else 0
        except ValueError:
            raise MeasurementError(f"{path}: {line[:80]!r} is no count of the plugin") from None
        last[pid] = event
    return total, bool(last) and "exec" not in last.values()


def _by_cpu_time(
    command: Sequence[str],
    folder: Path,
    cpus: Collection[int] | None,
    clock_hz: float | None,
    cpi: float | None,
) -> InstructionCount:
    if clock_hz is None or cpi is None:
        raise _CannotCountError("needs the clock and the CPI: --clock 2.4GHz --cpi 1.1")
    if not (clock_hz > 0 and cpi > 0):
        raise MeasurementError(f"a clock of {clock_hz:g} Hz and a CPI of {cpi:g}: both are above 0")
    made = _run(command, folder, cpus)
    instructions = estimated_instructions(made.user_s + made.system_s, clock_hz, cpi)
    if not instructions > 0:
        raise MeasurementError(f"{command[0]} took no CPU time that could be seen: let it do more")
    return InstructionCount(
        instructions,
        "cpu-time",
        "estimated",
        "user+kernel",
        made.end_s - made.start_s,
        made.user_s,
        made.system_s,
        (f"CPU seconds × {clock_hz / 1e9:.4g} GHz / {cpi:.4g}, as good as that CPI is",),
    )


def estimated_instructions(cpu_s: float, clock_hz: float, cpi: float) -> float:
    """Instructions that so many CPU seconds stand for: cpu_s · f / CPI."""
    return cpu_s * clock_hz / cpi


def _emulated(
    instructions: int, method: Method, native: Execution, caveats: tuple[str, ...]
) -> InstructionCount:
    return InstructionCount(
        float(instructions),
        method,
        "emulated",
        "user",
        native.end_s - native.start_s,
        native.user_s,
        native.system_s,
        caveats,
    )


def _run(command: Sequence[str], folder: Path, cpus: Collection[int] | None) -> Execution:
    output = folder / "output"
    made = execute([list(command)], output=output, cpus=cpus)
    _refuse_failed(made, command, output.read_text(encoding="utf-8", errors="replace"))
    return made


def _refuse_failed(made: Execution, command: Sequence[str], said: str) -> None:
    if made.exit_code:
        code = made.exit_code
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise MeasurementError(f"{command[0]} ended with {how}: {_last_line(said)}")


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "it printed nothing"
