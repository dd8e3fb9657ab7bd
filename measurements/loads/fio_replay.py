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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measurements.errors import MeasurementError
from measurements.workloads.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Mapping

_NS = 1e-9
_PATIENCE_S = 60.0
_LEFT_FREE_BYTES = 64 << 20


@dataclass(frozen=True)
class Replayed:
    """A replay.

    Parameters
    ----------
    engine : str
        fio's engine.
    requests : int
        Completed reads, writes and trims.
    bytes_ : int
    duration_s : float
    latency_mean_s, latency_p99_s : float
        From submission to completion; NaN where nothing completed.
    fio_version : str
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
        """Requests completed a second."""
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
) -> Replayed:
    """Replay an iolog of one file with fio.

    Parameters
    ----------
    iolog : path
        As `measurements.loads.iolog.write_iolog` makes it; it names the file.
    engine : str
        fio's ``ioengine``.
    depth : int
        Requests in flight at most: a request beyond it waits, and comes late.
    direct : bool
        Whether to pass by the page cache.
    as_fast_as_possible : bool
        Leave out the times of the trace.
    expected_s : float
        How long it should take; a minute more than twice that ends it.
    allow_device : bool
        Whether fio may write to a device that is mounted or not.

    Raises
    ------
    MeasurementError
        When fio is missing, fails, or takes too long.
    """
    command = [
        find_program("fio"),
        "--name=replay",
        f"--read_iolog={iolog}",
        f"--ioengine={engine}",
        f"--iodepth={depth}",
        "--iodepth_batch_complete_min=0",
        "--lat_percentiles=1",
        f"--direct={int(direct)}",
        "--thread=1",
        "--output-format=json",
        *(["--replay_no_stall=1"] if as_fast_as_possible else []),
        *([] if allow_device else ["--allow_mounted_write=0"]),
    ]
    with tempfile.TemporaryDirectory(prefix="ppw-replay-") as folder:
        report = _run([*command, f"--output={folder}/report.json"], folder, expected_s)
    return _read(report, engine)


def make_scratch(path: str | Path, size_bytes: int) -> None:
    """Make a scratch file of a size, all of it allocated and written, or make one longer.

    Raises
    ------
    MeasurementError
        When it cannot be made: no room, no permission.
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


def _run(command: list[str], folder: str, expected_s: float) -> Mapping[str, Any]:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=2 * expected_s + _PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(
            f"fio was ended after {error.timeout:.0f} s, more than twice what the trace takes: the "
            "device is too slow for it; replay fewer requests, or slower (--time-scale)"
        ) from None
    said = done.stderr.decode(errors="replace").strip().splitlines()
    text = Path(folder, "report.json")
    if done.returncode or not text.is_file():
        reason = said[-1] if said else f"exit code {done.returncode}"
        raise MeasurementError(f"fio failed: {reason}")
    try:
        content = text.read_text(encoding="utf-8", errors="replace")
        document = json.loads(content[content.index("{") :])
    except ValueError as error:
        raise MeasurementError(f"fio wrote no report: {error}") from error
    return dict(document)


def _read(document: Mapping[str, Any], engine: str) -> Replayed:
    try:
        job = document["jobs"][0]
        if job["error"]:
            raise MeasurementError(f"fio met error {job['error']}: {os.strerror(job['error'])}")
        parts = [job[way] for way in ("read", "write", "trim")]
        requests = sum(part["total_ios"] for part in parts)
        mean = sum(part["lat_ns"]["mean"] * part["total_ios"] for part in parts)
        return Replayed(
            engine=engine,
            requests=requests,
            bytes_=sum(part["io_bytes"] for part in parts),
            duration_s=max(part["runtime"] for part in parts) / 1000.0,
            latency_mean_s=mean / requests * _NS if requests else float("nan"),
            latency_p99_s=_p99(parts),
            fio_version=str(document["fio version"]),
        )
    except (KeyError, IndexError, TypeError) as error:
        raise MeasurementError(f"fio's report lacks {error}") from error


def _p99(parts: list[Mapping[str, Any]]) -> float:
    """Of the direction with the most requests."""
    most = max(parts, key=lambda part: part["total_ios"])
    found = most["lat_ns"].get("percentile", {}).get("99.000000")
    return float("nan") if found is None else found * _NS
