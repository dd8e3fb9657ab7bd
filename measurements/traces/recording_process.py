"""The process that records: in a mount namespace of its own, under a guard.

blktrace records where the kernel lets it. Under lockdown it does not, and the kernel's own blk
tracer, read through tracefs, gives the same records. Whatever is set is put back when the
connection to ppw ends, however it ends; see `measurements.processes.settings_guard`.

It answers when it records and when it has ended. Nothing but the standard library here, so that
it starts at once.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from measurements.errors import MeasurementError
from measurements.processes.helper_process import send
from measurements.processes.settings_guard import Guard, read_setting

TRACEFS, DEBUGFS = Path("/sys/kernel/tracing"), Path("/sys/kernel/debug")
_OPTIONS = ("options/bin", "options/context-info")
_SETTINGS = ("current_tracer", *_OPTIONS, "saved_cmdlines_size", "tracing_on")
# As many processes as a kernel with the default limit has.
_COMMANDS = 32768
_POLL_S, _STARTED_S, _PRIORITY, _PIPE_BYTES = 0.02, 10.0, -10, 1 << 16
_LOST = re.compile(r"^(overrun|dropped events): (\d+)", re.MULTILINE)
_NOW = re.compile(r"^now ts: +(\d+)\.(\d{6})", re.MULTILINE)


def main() -> None:
    """Record: arguments are those of `HelperProcess`, the device in sysfs, a folder, the method."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    device, folder, method = Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5]
    try:
        _mount_tracefs_and_debugfs()
        with ExitStack() as stack:
            guard = stack.enter_context(Guard(lock=TRACEFS))
            recorder, refused = _start_recorder(device, folder, method, guard)
            # Buffers that are emptied late overflow.
            os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
            restored = [str(setting.path) for setting in guard.restored]
            send(connection, method=recorder.method, refused=refused, restored=restored)
            # Until ppw sends a message, or is gone.
            while not select.select([connection], [], [], _POLL_S)[0]:
                recorder.poll()
            result = recorder.stop()
        send(connection, ended=True, **result)
    except MeasurementError as error:
        send(connection, error=str(error))
    except OSError as error:
        send(connection, error=f"{error.filename or 'tracing'}: {error.strerror}")


def _mount_tracefs_and_debugfs() -> None:
    for kind, where, there in (
        ("tracefs", TRACEFS, TRACEFS / "current_tracer"),
        ("debugfs", DEBUGFS, DEBUGFS / "block"),
    ):
        if where.is_dir() and not there.exists():
            command = ["mount", "-t", kind, kind, str(where)]
            subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True)  # nosec B603  # mount, with constant words
    if not (TRACEFS / "current_tracer").exists():
        raise MeasurementError(
            f"{TRACEFS}: tracefs cannot be mounted: record as root, on a kernel with CONFIG_FTRACE"
        )


def _start_recorder(
    device: Path, folder: Path, method: str, guard: Guard
) -> tuple[BlkTracer | BlktraceProgram, str | None]:
    """Start a recorder; returns it, and why blktrace was not taken."""
    if read_setting(device / "trace" / "enable") != "0":
        raise MeasurementError(
            f"{device.name} is already being traced: end that trace first, for "
            f"example with blktrace -k /dev/{device.name}"
        )
    if method == BlkTracer.method:
        return BlkTracer(device, folder, guard), None
    try:
        return BlktraceProgram(device, folder, guard), None
    except (MeasurementError, OSError) as error:
        if method != "auto":
            raise
        for file in folder.iterdir():
            file.unlink()
        return BlkTracer(device, folder, guard), str(error)


class BlkTracer:
    """The kernel's blk tracer: one trace_pipe a CPU, of the records that blktrace would save."""

    method = "blk tracer"

    def __init__(self, device: Path, folder: Path, guard: Guard) -> None:
        self._guard = guard
        self._enable = device / "trace" / "enable"
        self._pipes: list[tuple[int, Any]] = []
        _refuse_if_tracing()
        # They are put back in this order.
        before = [(TRACEFS / name, read_setting(TRACEFS / name)) for name in _SETTINGS]
        guard.learn([(self._enable, "0"), *before])
        guard.change(TRACEFS / "options/context-info", "0")
        guard.change(TRACEFS / "options/bin", "1")
        guard.change(TRACEFS / "saved_cmdlines_size", str(_COMMANDS))
        guard.change(TRACEFS / "current_tracer", "blk")
        # Without what was in the buffers before.
        (TRACEFS / "trace").write_text("\n")
        guard.change(TRACEFS / "tracing_on", "1")
        for cpu in sorted(TRACEFS.glob("per_cpu/cpu[0-9]*"), key=_cpu_number):
            pipe = os.open(cpu / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            file = (folder / f"trace.blktrace.{_cpu_number(cpu)}").open("wb")
            self._pipes.append((pipe, file))
        guard.change(self._enable, "1")

    def poll(self) -> None:
        """Empty the pipes."""
        for pipe, file in self._pipes:
            try:
                while data := os.read(pipe, _PIPE_BYTES):
                    file.write(data)
            except BlockingIOError:
                continue

    def stop(self) -> dict[str, Any]:
        """Stop tracing, save the rest, and count what was lost."""
        self._guard.change(self._enable, "0")
        self.poll()
        lost, clock = 0, None
        for cpu in TRACEFS.glob("per_cpu/cpu[0-9]*"):
            stats = (cpu / "stats").read_text()
            lost += sum(int(count) for _, count in _LOST.findall(stats))
            if clock is None and (now := _NOW.search(stats)):
                clock = time.time_ns() - int(now[1]) * 10**9 - int(now[2]) * 1000
        commands = (TRACEFS / "saved_cmdlines").read_text(errors="replace")
        names = dict(re.findall(r"^(\d+) (.*)$", commands, re.MULTILINE))
        for pipe, file in self._pipes:
            os.close(pipe)
            file.close()
        return {"lost": lost, "clock_unix_ns": clock, "commands": names}


def _refuse_if_tracing() -> None:
    """Refuse where somebody else is tracing: their settings are not ours to change."""
    if "blk" not in read_setting(TRACEFS / "available_tracers").split():
        raise MeasurementError("this kernel has no blk tracer: it needs CONFIG_BLK_DEV_IO_TRACE")
    tracer = read_setting(TRACEFS / "current_tracer")
    if tracer != "nop":
        raise MeasurementError(
            f"the kernel's tracer {tracer} is in use: stop the program that uses it first"
        )
    if read_setting(TRACEFS / "set_event"):
        raise MeasurementError("perf or trace-cmd is tracing kernel events: stop it first")


def _cpu_number(cpu: Path) -> int:
    return int(cpu.name.removeprefix("cpu"))


class BlktraceProgram:
    """The program blktrace."""

    method = "blktrace"

    def __init__(self, device: Path, folder: Path, guard: Guard) -> None:
        enable = device / "trace" / "enable"
        guard.learn([(enable, "0")])
        node = Path("/dev", (device / "uevent").read_text().partition("DEVNAME=")[2].split()[0])
        self._output = folder / "blktrace.txt"
        # It ends, and stops the kernel, when its parent does.
        command = ["setpriv", "--pdeathsig", "INT", "blktrace", "-d", str(node)]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(  # nosec B603  # blktrace, of a device that is there
                [*command, "-D", str(folder), "-o", "trace"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + _STARTED_S
        while read_setting(enable) != "1":
            if self._process.poll() is not None or time.monotonic() > until:
                self._end_or_kill()
                raise MeasurementError(f"blktrace: {self._first_output_line()}")
            time.sleep(_POLL_S)
        time.sleep(5 * _POLL_S)
        if self._process.poll() is not None:
            raise MeasurementError(f"blktrace: {self._first_output_line()}")

    def poll(self) -> None:
        """Do nothing: blktrace saves by itself."""

    def stop(self) -> dict[str, Any]:
        """End blktrace; it prints what it lost."""
        self._end_or_kill()
        found = re.search(r"\((\d+)\s*dropped|dropped events[: ]+(\d+)", self._first_output_line())
        return {"lost": int(found[1] or found[2]) if found else 0}

    def _end_or_kill(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_STARTED_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _first_output_line(self) -> str:
        lines = self._output.read_text(errors="replace").split("\n")
        return lines[0] or "it ended without a message"
