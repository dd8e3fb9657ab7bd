"""Replaying an iolog with fio, and what fio says of it.

fio 3.33 looks for completions only when as many requests are in flight as it may have: latencies
are then mostly the time until it looks, and the last requests are not counted. With
``iodepth_batch_complete_min=0`` it looks after each request. Its null engine does not keep the
times of a log, so that it cannot tell fio's own error; a file in memory can.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from measurements.errors import MeasurementError
from measurements.loads.job_files import check_target
from measurements.processes.programs import ask, find_program
from measurements.traces.requests import BLOCK_BYTES, Op

_NS = 1e-9
_PATIENCE_S = 60.0
_LEFT_FREE_BYTES = 64 << 20
_HEAD = "fio version 3 iolog\n"
_WORDS = ("read", "write", "trim", "sync")


@dataclass(frozen=True)
class ReplayReport:
    """Figures of a replay, as fio reports them.

    Requests are completed reads, writes and trims; a latency is from submission to completion, NaN
    where nothing completed.
    """

    engine: str
    requests: int
    bytes_: int
    duration_s: float
    latency_mean_s: float
    latency_p99_s: float
    fio_version: str

    @property
    def iops(self) -> float:
        """Requests completed per second."""
        return self.requests / self.duration_s


def replay_iolog(
    iolog: str | Path,
    *,
    engine: str = "libaio",
    depth: int = 256,
    direct: bool = True,
    as_fast_as_possible: bool = False,
    expected_s: float = 3600.0,
    allow_device: bool = False,
) -> ReplayReport:
    """Replay an iolog of one file with fio.

    The log, as `write_iolog` makes it, names the file. ``engine`` is fio's ``ioengine``. A request
    beyond ``depth`` requests in flight waits, and comes late. ``direct`` passes by the page cache;
    ``as_fast_as_possible`` leaves out the times of the trace. The replay should take
    ``expected_s`` (s); a minute more than twice that ends it. ``allow_device`` lets fio write to a
    device, mounted or not.

    Raises MeasurementError when fio is missing, fails, or takes too long.
    """
    command = [
        *(find_program("fio"), "--name=replay", f"--read_iolog={iolog}", f"--ioengine={engine}"),
        *(f"--iodepth={depth}", "--iodepth_batch_complete_min=0", "--lat_percentiles=1"),
        *(f"--direct={int(direct)}", "--thread=1", "--output-format=json"),
        *(["--replay_no_stall=1"] if as_fast_as_possible else []),
        *([] if allow_device else ["--allow_mounted_write=0"]),
    ]
    with tempfile.TemporaryDirectory(prefix="ppw-replay-") as folder:
        report = _run_fio([*command, f"--output={folder}/report.json"], folder, expected_s)
    return _parse_report(report, engine)


def make_scratch(path: str | Path, size_bytes: int) -> None:
    """Make a scratch file of a size, all of it allocated and written, or make one longer.

    Raises MeasurementError where there is no room or no permission.
    """
    target = Path(path)
    try:
        there = target.stat().st_size if target.exists() else 0
        missing = size_bytes - there
        if missing <= 0:
            return
        free = shutil.disk_usage(target.parent or ".").free
        if free < missing + _LEFT_FREE_BYTES:
            raise MeasurementError(
                f"{target}: {missing / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB free: take a "
                "shorter target (--size), or another folder"
            )
        # Blocks that were never written are answered by the file system, not by the disk.
        piece = os.urandom(1 << 20)
        with target.open("ab") as file:
            while missing > 0:
                missing -= file.write(piece[: min(missing, len(piece))])
    except OSError as error:
        raise MeasurementError(f"{target}: cannot be made: {error.strerror or error}") from error


def _run_fio(command: list[str], folder: str, expected_s: float) -> Mapping[str, Any]:
    """Run fio and return its report."""
    try:
        done = ask(command, timeout_s=2 * expected_s + _PATIENCE_S, folder=Path(folder))
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(
            f"fio was ended after {error.timeout:.0f} s, more than twice the "
            "length of the trace: the device is too slow for the trace. Replay "
            "fewer requests, or slower (--time-scale)"
        ) from None
    messages = done.stderr.strip().splitlines()
    text = Path(folder, "report.json")
    if done.returncode or not text.is_file():
        reason = messages[-1] if messages else f"exit code {done.returncode}"
        raise MeasurementError(f"fio failed: {reason}")
    try:
        # Warnings may stand before the document.
        content = text.read_text(encoding="utf-8", errors="replace")
        document = json.loads(content[content.index("{") :])
    except ValueError as error:
        raise MeasurementError(f"fio wrote no report: {error}") from error
    return dict(document)


def _parse_report(document: Mapping[str, Any], engine: str) -> ReplayReport:
    """Take the figures of a replay from the report of fio."""
    try:
        job = document["jobs"][0]
        if code := job["error"]:
            raise MeasurementError(f"fio had error {code}: {os.strerror(code)}")
        parts = [job[way] for way in ("read", "write", "trim")]
        # fio has percentiles by operation: those of most requests stand for all.
        busiest = max(parts, key=lambda part: part["total_ios"])
        p99 = busiest["lat_ns"].get("percentile", {}).get("99.000000")
        requests = sum(part["total_ios"] for part in parts)
        mean = sum(part["lat_ns"]["mean"] * part["total_ios"] for part in parts)
        read_written = sum(part["io_bytes"] for part in parts)
        duration_s = max(part["runtime"] for part in parts) / 1000.0
        mean_s = mean / requests * _NS if requests else float("nan")
        p99_s = float("nan") if p99 is None else p99 * _NS
        version = str(document["fio version"])
        return ReplayReport(engine, requests, read_written, duration_s, mean_s, p99_s, version)
    except (KeyError, IndexError, TypeError) as error:
        raise MeasurementError(f"fio's report lacks {error}") from error


class IologContent(NamedTuple):
    """Content of an iolog."""

    requests: int
    bytes_: int  # read and written
    duration_s: float  # from the first request to the last
    extent_bytes: int  # length that the replayed file needs
    folded: int  # requests beyond the end of the file, whose address was taken modulo its length


def write_iolog(
    batches: Iterable[pa.RecordBatch],
    path: str,
    *,
    target: str,
    size_bytes: int | None = None,
    first_byte: int = 0,
    time_scale: float = 1.0,
    most: int | None = None,
    allow_device: bool = False,
) -> IologContent:
    """Write a trace as fio's iolog, version 3, which replays every request at its own time.

    ``batches`` have the columns of `measurements.traces.Trace`; devices of the trace share the
    file ``target``, whose first byte is the trace's ``first_byte``. Places beyond ``size_bytes``
    are taken modulo it; by default the target is as long as needed. All times are multiplied by
    ``time_scale``; ``most`` limits the requests. ``allow_device`` lets the target be a device,
    whose content is lost.

    Raises MeasurementError for a device that is not allowed, requests without times, or a file
    that cannot be written.
    """
    named = check_target(target, allow_device)
    if any(c.isspace() for c in named):
        raise MeasurementError(
            f"{named}: an iolog separates words by spaces: choose a path without spaces"
        )
    total = _Totals(size_bytes, first_byte)
    try:
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(f"{_HEAD}1 {named} add\n1 {named} open\n".encode())
            last = 1
            for batch in batches:
                here = batch if most is None else batch.slice(0, most - total.requests)
                last = _write_batch(file, here, named, total, time_scale)
                if total.requests == most:
                    break
            file.write(f"{last} {named} close\n".encode())
    except OSError as error:
        raise MeasurementError(f"{path}: cannot be written: {error.strerror or error}") from error
    if not total.requests:
        raise MeasurementError(f"{path}: the trace holds no request")
    duration_s = (total.last_s - total.first_s) * time_scale
    return IologContent(total.requests, total.bytes_, duration_s, total.extent, total.folded)


class _Totals:
    def __init__(self, size: int | None, first_byte: int) -> None:
        self.size, self.first_byte = size, first_byte
        self.requests = self.bytes_ = self.extent = self.folded = 0
        self.first_s = self.last_s = float("nan")

    def _offsets_in_target(self, lbn: Any, size: Any) -> Any:
        """Convert blocks to offsets in the target (bytes); those beyond it are folded into it."""
        offset = lbn * BLOCK_BYTES - self.first_byte
        end = offset + size
        if self.size is not None:
            largest = int(size.max(initial=0))
            if largest > self.size:
                raise MeasurementError(
                    f"a target of {self.size} bytes is shorter than the largest "
                    f"request, {largest}: give a longer target"
                )
            # Requests beyond the target are folded into it; they stay aligned to blocks.
            out = (offset < 0) | (end > self.size)
            self.folded += int(out.sum())
            room = np.maximum((self.size - size) // BLOCK_BYTES + 1, 1)
            offset = np.where(out, (offset // BLOCK_BYTES) % room * BLOCK_BYTES, offset)
        elif int(offset.min(initial=0)) < 0:
            raise MeasurementError("some requests have an address below the first byte given")
        self.extent = max(self.extent, int((offset + size).max(initial=0)))
        return offset


def _write_batch(
    file: IO[bytes], batch: pa.RecordBatch, target: str, total: _Totals, scale: float
) -> int:
    """Write a batch as lines of an iolog; return the last time (µs)."""
    time, lbn, size, op = (
        batch.column(name).to_numpy(zero_copy_only=False)
        for name in ("time_s", "lbn", "size_bytes", "op")
    )
    if not len(time):
        return 1
    if np.isnan(time).any():
        raise MeasurementError("requests have no times: an iolog needs them; generate open loop")
    if not total.requests:
        total.first_s = float(time[0])
    total.last_s = float(time[-1])
    moves = op != Op.FLUSH
    total.requests += len(time)
    total.bytes_ += int(size[moves & (op != Op.DISCARD)].sum())
    # fio drops the gap after a time of 0, so times begin at 1 µs.
    at = 1 + np.rint((time - total.first_s) * scale * 1e6).astype(np.int64)
    offset = np.zeros_like(lbn)
    offset[moves] = total._offsets_in_target(lbn[moves], size[moves])
    words = pa.array(_WORDS).take(pa.array(op.astype(np.int32)))
    at_text, offset, size = (pa.array(column).cast(pa.string()) for column in (at, offset, size))
    extent = pc.binary_join_element_wise(words, offset, size, " ")
    actions = pc.if_else(pa.array(moves), extent, words)
    lines = pc.binary_join_element_wise(at_text, target, actions, " ")
    file.write(("\n".join(lines.to_pylist()) + "\n").encode())
    return int(at[-1])
