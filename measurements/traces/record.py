"""Recording what a command asks of a block device."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from measurements.errors import MeasurementError
from measurements.host.cpu_placement import end_group
from measurements.processes import programs
from measurements.processes.helper_process import HelperProcess
from measurements.traces import blktrace, read_trace, recording_process, write_trace

METHODS = ("auto", "blktrace", "blk tracer")
# The process may have much to write before it answers, and little to put back.
_ANSWER_S, _END_S = 600.0, 60.0
_COMMAND_BYTES = 16
# Records in this machine's byte order, as the kernel writes them.
_RECORD = blktrace.LITTLE.newbyteorder("=")


@dataclass(frozen=True)
class Recording:
    """A recorded trace, and how it was recorded."""

    path: Path  # the trace, as Parquet or CSV
    method: str  # "blktrace" or "blk tracer"
    requests: int
    elapsed_s: float  # wall-clock time of the command (s)
    exit_code: int  # of the command; negative for the signal that ended it
    lost: int  # events that the kernel had no room for
    raw: tuple[Path, ...]  # files of blktrace's records, one a CPU, where they were asked for
    caveats: tuple[str, ...]


def record(
    device: str,
    command: Sequence[str],
    output: str | Path,
    *,
    raw: str | Path | None = None,
    method: str = "auto",
) -> Recording:
    """Run a command and record all requests that reach a block device meanwhile.

    All requests are recorded, not the command's only; ``stream`` tells the threads apart.
    ``device`` is such as /dev/sda, sda, or a partition. The trace goes to ``output``, .parquet or
    .csv, best on another device. ``raw`` is a base name under which blktrace's own records are
    kept too, NAME.blktrace.CPU, as blkparse, btt and fio read them. The ``method`` "auto" takes
    blktrace where the kernel lets it.

    Raises MeasurementError when the device cannot be traced, the command cannot be started, or
    nothing arrived. What was set in the kernel is put back in any case.
    """
    sysfs = device_folder(device)
    if method not in METHODS:
        raise MeasurementError(f"no method {method!r}: choose one of {', '.join(METHODS)}")
    with tempfile.TemporaryDirectory(prefix="ppw-trace-") as scratch:
        folder = Path(scratch)
        with _recording(sysfs, folder, method) as (process, started):
            elapsed_s, code = _run_command(command)
            ended = _ask_recorder(process, end=True)
        files = sorted(folder.glob("trace.blktrace.*"))
        _add_notes(files, ended)
        kept = _copy_records(files, Path(raw)) if raw is not None else ()
        if not any(file.stat().st_size for file in files):
            raise MeasurementError(
                "no request reached the device: check that COMMAND uses this "
                "device, and that its data are not all in the page cache"
            )
        trace = read_trace(folder / "trace", format="blktrace")
        requests = write_trace(trace, output).requests
        caveats = (*_caveats(started, ended, code), *trace.findings)
        how = Path(output), started["method"]
        return Recording(*how, requests, elapsed_s, code, ended["lost"], kept, caveats)


def device_folder(device: str) -> Path:
    """Folder of a block device in sysfs; MeasurementError when there is no such device."""
    node = Path(device if "/" in device else f"/dev/{device}")
    folder = Path("/sys/class/block", node.resolve().name)
    if not folder.exists():
        known = ", ".join(sorted(path.name for path in Path("/sys/block").iterdir()))
        raise MeasurementError(f"{device}: no block device: choose one of {known}")
    if not (folder / "trace" / "enable").exists():
        raise MeasurementError(
            f"{device}: this kernel cannot trace it: it needs CONFIG_BLK_DEV_IO_TRACE"
        )
    return folder.resolve()


@contextlib.contextmanager
def _recording(
    device: Path, folder: Path, method: str
) -> Iterator[tuple[HelperProcess, dict[str, Any]]]:
    """Record by a process of its own, which has put everything back when the block is left."""
    if os.geteuid() != 0:
        raise MeasurementError("only root may record a block trace: run ppw with sudo")
    module, called = recording_process.__name__, "unshare (install util-linux)"
    arguments, through = (str(device), str(folder), method), ("unshare", "--mount")
    process = HelperProcess(module, called, *arguments, through=through)
    try:
        yield process, _ask_recorder(process)
    finally:
        # Its guard puts everything back where it hangs.
        process.end(_END_S)


def _ask_recorder(process: HelperProcess, **message: Any) -> dict[str, Any]:
    try:
        answer = process.ask(_ANSWER_S, **message) if message else process.answer(_ANSWER_S)
    except OSError as error:
        raise MeasurementError(
            "the recording process ended early, and its settings are restored: try again"
        ) from error
    if "error" in answer:
        raise MeasurementError(f"cannot record: {answer['error']}")
    return answer


def _run_command(command: Sequence[str]) -> tuple[float, int]:
    """Run the command; returns its wall-clock time (s) and its exit code."""
    start = time.monotonic()
    try:
        env = programs.environment_without_secrets()
        process = subprocess.Popen(command, env=env, start_new_session=True)  # nosec B603  # the user's own command
    except OSError as error:
        raise MeasurementError(
            f"{command[0]}: cannot be started: {error.strerror}: give the command after --"
        ) from error
    try:
        code = process.wait()
    except BaseException:
        end_group(process.pid)
        process.wait()
        raise
    return time.monotonic() - start, code


def _add_notes(files: Sequence[Path], ended: dict[str, Any]) -> None:
    """Put notes before the first record, as blktrace does: process names and the wall clock."""
    filled = [file for file in files if file.stat().st_size >= blktrace.HEADER_BYTES]
    if not filled or "commands" not in ended:
        return
    first = min(filled, key=_first_time_ns)
    notes = _note_records(_first_time_ns(first), int(first.suffix.removeprefix(".")), ended)
    joined = first.with_name("joined")
    with joined.open("wb") as target, first.open("rb") as source:
        target.write(notes)
        shutil.copyfileobj(source, target)
    joined.replace(first)


def _first_time_ns(file: Path) -> int:
    return int(np.fromfile(file, _RECORD, 1)["time"][0])


def _note_records(time_ns: int, cpu: int, ended: dict[str, Any]) -> bytes:
    """Records of notes: the wall clock, and names of processes."""
    header = np.zeros(1, _RECORD)
    header["magic"], header["time"], header["cpu"] = blktrace.MAGIC, time_ns, cpu
    notes = []
    if ended["clock_unix_ns"] is not None:
        clock = np.array(divmod(ended["clock_unix_ns"] + time_ns, 10**9), np.uint32)
        notes.append((blktrace.TIME_NOTE, 0, clock.tobytes()))
    for pid, name in ended["commands"].items():
        command = name.encode()[: _COMMAND_BYTES - 1].ljust(_COMMAND_BYTES, b"\0")
        notes.append((blktrace.PROCESS_NOTE, int(pid), command))
    parts = []
    for kind, pid, payload in notes:
        header["action"], header["pid"] = blktrace.NOTIFY | kind, pid
        header["payload"] = len(payload)
        parts.append(header.tobytes() + payload)
    return b"".join(parts)


def _copy_records(files: Sequence[Path], base: Path) -> tuple[Path, ...]:
    """Copy the records out of the scratch folder, under the user's base name."""
    kept = [base.parent / file.name.replace("trace", base.name, 1) for file in files]
    try:
        for file, target in zip(files, kept, strict=True):
            shutil.copyfile(file, target)
    except OSError as error:
        raise MeasurementError(f"{base}: cannot be written: {error.strerror}") from error
    return tuple(kept)


def _caveats(started: dict[str, Any], ended: dict[str, Any], code: int) -> Iterator[str]:
    if restored := started["restored"]:
        yield f"a killed ppw had left kernel tracing on; restored now: {', '.join(restored)}"
    if refused := started["refused"]:
        yield f"blktrace may not record here ({refused}), so the blk tracer recorded"
    if lost := ended["lost"]:
        yield (
            f"{lost} events were lost: the trace has gaps: record on a less busy host, or fewer "
            "requests"
        )
    if code:
        yield f"the command ended with {code}"
