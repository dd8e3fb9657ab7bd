"""fio on a file: IOPS, bandwidth and latency by pattern and queue depth, with power and CPU time.

The patterns of the published study are the default: random 4 KiB and sequential 32 KiB, read and
write, at queue depths 1 to 32. The file lies in a folder of its own inside the one that is named,
and goes with it on every way out.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from measurements.errors import DAMAGE, MeasurementError
from measurements.host.files import read_lines
from measurements.processes import cleanup_process, programs
from measurements.sweep.session import Session
from measurements.table.units import parse_quantity, size_text
from measurements.workloads import clients, service

_NS = 1e-9


def read_report(path: Path, direction: str) -> dict[str, Any]:
    """Read the columns of the runs table from what ``fio --output-format=json`` printed.

    ``direction`` is "read" or "write". Raises `MeasurementError` where nothing moved in it.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        # fio prints notes and warnings before the report.
        document = json.loads(text[text.index("{") :])
        job = document["jobs"][0]
        part = job[direction]
        if job["error"] or not part["total_ios"]:
            raise MeasurementError(f"{path}: fio read and wrote nothing: error {job['error']}")
        latency = part["lat_ns"]
        percentiles = latency.get("percentile") or part["clat_ns"].get("percentile", {})
        columns = {
            "throughput_ops_s": float(part["iops"]),
            "bandwidth_bytes_s": float(part["bw_bytes"]),
            "throughput_noise": _throughput_noise(part),
            "latency_mean_s": latency["mean"] * _NS,
            "latency_p50_s": _percentile_s(percentiles, 50),
            "latency_p99_s": _percentile_s(percentiles, 99),
            "latency_max_s": latency["max"] * _NS,
            # fio's histogram has 64 cells for each power of two.
            "latency_resolution": "1.6 %",
            "fio_seconds": part["runtime"] / 1000.0,
            "fio_version": str(document["fio version"]),
        }
        for name, value in columns.items():
            if value is not None and not isinstance(value, str) and not math.isfinite(value):
                raise ValueError(f"{name} is {value}")
        return columns
    except MeasurementError:
        raise
    except DAMAGE as error:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        said = lines[0][:160] if lines and not text.lstrip().startswith("{") else repr(error)
        raise MeasurementError(f"{path}: is not a fio report: {said}") from error


def _percentile_s(percentiles: Mapping[str, float], share: float) -> float | None:
    value = percentiles.get(f"{share:.6f}")
    return None if value is None else value * _NS


def _throughput_noise(part: Mapping[str, Any]) -> float | None:
    """Standard error of the throughput, as a share of it, from fio's own samples."""
    samples, mean = float(part.get("iops_samples", 0)), float(part.get("iops_mean", 0.0))
    if samples < 2 or mean <= 0:
        return None
    return float(part["iops_stddev"]) / math.sqrt(samples) / mean


PATTERNS = ("randread", "randwrite", "read", "write")
# Engines that keep several requests in flight, the best first.
_ENGINES = ("libaio", "io_uring", "posixaio")
_RAMP_S = 0.25
_LONGEST_START_S = 30.0
_LAYOUT_S = 3600.0
_LEAST_LEFT_BYTES = 64 << 20


class Pattern(NamedTuple):
    """Access pattern by fio's name, and the size of a request (B)."""

    rw: str
    block_bytes: int

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Read ``randread:4KiB``; without a size, 4 KiB at random and 32 KiB in sequence."""
        rw, _, size = text.partition(":")
        if rw not in PATTERNS:
            raise MeasurementError(
                f"pattern {text!r}: there are {', '.join(PATTERNS)}, each "
                "optionally with a size: randread:4KiB"
            )
        default = "4KiB" if rw.startswith("rand") else "32KiB"
        block = parse_quantity(size or default, "bytes")
        if block < 512 or block % 512:
            raise MeasurementError(f"pattern {text!r}: a request is a multiple of 512 B")
        return cls(rw, int(block))

    @property
    def name(self) -> str:
        """Name of the workload: fio randread 4 KiB."""
        return f"fio {self.rw} {size_text(self.block_bytes)}"

    @property
    def direction(self) -> str:
        """Part of fio's report that has its figures."""
        return "write" if "write" in self.rw else "read"


STUDY = tuple(Pattern.parse(rw) for rw in PATTERNS)
DEPTHS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, kw_only=True)
class FioOptions:
    """Options of the runs on a disk."""

    folder: str  # existing folder on the disk
    size_bytes: int = 1 << 30  # size of the file; larger than the cache of the disk
    patterns: tuple[Pattern, ...] = STUDY
    depths: tuple[int, ...] = DEPTHS  # requests in flight

    def check(self) -> None:
        """Raise `MeasurementError` for what cannot be measured."""
        if not Path(self.folder).is_dir():
            raise MeasurementError(f"{self.folder}: is no folder: name one on the disk to measure")
        largest = max(pattern.block_bytes for pattern in self.patterns)
        if self.size_bytes < largest:
            raise MeasurementError(
                f"a file of {self.size_bytes} B is smaller than a request, {largest} B"
            )
        free = shutil.disk_usage(self.folder).free
        if free < self.size_bytes + _LEAST_LEFT_BYTES:
            raise MeasurementError(
                f"{self.folder}: {free / 1e6:.0f} MB free, too little for a file of "
                f"{self.size_bytes / 1e6:.0f} MB: take a smaller one, or another folder"
            )


class Target(NamedTuple):
    """The file that fio reads and writes, and how it is reached."""

    path: Path
    program: str
    engine: str
    direct: bool  # whether requests go past the page cache
    disk: str | None  # block device, where known


@dataclass
class FioRuns(service.ServiceSweep):
    """Runs of fio under way. Made by `open_runs`."""

    options: FioOptions
    runs: service.ServiceRuns
    target: Target

    def steps(self) -> list[tuple[service.ServiceStep, tuple[Pattern, int]]]:
        """All runs in random order, each with its pattern and queue depth."""
        cells = product(self.options.patterns, self.options.depths)
        with_setup = (({**c[0]._asdict(), "depth": c[1]}, c) for c in cells)
        return service.shuffle_steps(self.runs.options, with_setup)

    def measure_step(self, step: service.ServiceStep, setup: tuple[Pattern, int]) -> dict[str, Any]:
        """Measure one run; returns its row."""
        (pattern, depth), machine, size = setup, self.runs.machine, self.options.size_bytes

        def make_load(margin_s: float) -> FioLoad:
            seconds = _RAMP_S + self.runs.options.seconds + margin_s
            times: dict[str, Any] = {"seconds": seconds, "ramp_s": _RAMP_S}
            seed = self.runs.options.seed
            command = job_command(self.target, size, pattern, depth=depth, seed=seed, **times)
            client = clients.Client([command], machine.cpus(), self.runs.reaper)
            return FioLoad(
                client, pattern, depth, self.target, size, machine.cores, seconds, machine.procfs
            )

        return self.runs.measure(step, make_load, workload=f"{pattern.name} depth {depth}")


@dataclass
class FioLoad(service.Load):
    """One fio on a file; its CPU time is what the disk's requests cost."""

    client: clients.Client
    pattern: Pattern
    depth: int
    target: Target
    size_bytes: int
    cores: int | None
    seconds: float
    procfs: Path

    def wait_steady(self) -> None:
        """Return when requests have flowed for the time of the ramp."""
        few = 4 * self.pattern.block_bytes
        self.client.wait_until(
            lambda: clients.has_moved(self.procfs, self.pids[0], few, (1 << 20) + few),
            _LONGEST_START_S,
            f"fio made no request to {self.target.path}",
        )
        time.sleep(_RAMP_S)

    def observe(self) -> tuple[float, float]:
        """CPU time of fio so far (s)."""
        return self.client.observe(self.procfs)

    def finish(self) -> None:
        """Wait for fio."""
        self.client.finish("fio", self.seconds + _LONGEST_START_S)

    def columns(self, seen: Sequence[tuple[float, float]]) -> dict[str, Any]:
        """Columns of the run, from fio's report."""
        return {
            "data_bytes": self.pattern.block_bytes,
            "file_bytes": self.size_bytes,
            "pattern": self.pattern.rw,
            "queue_depth": self.depth,
            "direct": self.target.direct,
            "engine": self.target.engine,
            "disk": self.target.disk,
            **read_report(self.client.outputs[0], self.pattern.direction),
            "client_user_s": seen[-1][0] - seen[0][0],
            "client_system_s": seen[-1][1] - seen[0][1],
        }


def open_runs(options: FioOptions, runs: service.ServiceRuns) -> FioRuns:
    """Find fio and lay the file out. Raises `MeasurementError` when one of them fails."""
    options.check()
    program = programs.find_program("fio")
    path = runs.reaper.folder(Path(options.folder)) / "data"
    there = {line.strip() for line in programs.ask([program, "--enghelp"]).stdout.splitlines()}
    engine = next((engine for engine in _ENGINES if engine in there), "psync")
    if engine not in _ENGINES:
        runs.tell_once(f"fio has none of {', '.join(_ENGINES)} here: a depth above 1 has no effect")
    device = device_folder(Path(options.folder))
    target = Target(path, program, engine, False, device.name if device else None)
    _lay_out(target, options.size_bytes, runs.reaper)
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_DIRECT))
        target = target._replace(direct=True)
    if not target.direct:
        runs.tell_once(
            f"{options.folder}: its file system takes no direct I/O: the page cache is measured too"
        )
    return FioRuns(options, runs, target)


def table(session: Session) -> pd.DataFrame:
    """Runs table of all runs so far, with requests and bytes per second and watt."""
    return pd.DataFrame([_add_per_watt(row) for row in service.service_rows(session)])


def _add_per_watt(row: dict[str, Any]) -> dict[str, Any]:
    power_w = row.get("power_w")
    if not power_w or power_w <= 0 or "throughput_ops_s" not in row:
        return row
    return {
        **row,
        "iops_per_w": row["throughput_ops_s"] / power_w,
        "bandwidth_bytes_s_per_w": row["bandwidth_bytes_s"] / power_w,
    }


def job_command(
    target: Target,
    size_bytes: int,
    pattern: Pattern,
    *,
    depth: int,
    seconds: float,
    ramp_s: float,
    seed: int,
) -> list[str]:
    """Command of one fio job that reads or writes a file for so many seconds after the ramp."""
    return [
        *_common_arguments(target, size_bytes),
        *(f"--rw={pattern.rw}", f"--bs={pattern.block_bytes}", f"--iodepth={depth}"),
        *("--time_based", f"--runtime={_ms_text(seconds)}", f"--ramp_time={_ms_text(ramp_s)}"),
        *("--allow_file_create=0", f"--randseed={seed + 1}"),
        *("--lat_percentiles=1", "--clat_percentiles=0", "--percentile_list=50:99"),
    ]


def _common_arguments(target: Target, size_bytes: int) -> list[str]:
    return [
        *(target.program, "--name=ppw", f"--filename={target.path}", f"--size={size_bytes}"),
        *(f"--ioengine={target.engine}", f"--direct={int(target.direct)}", "--thread"),
        *("--output-format=json", "--group_reporting"),
    ]


def _ms_text(seconds: float) -> str:
    # fio cuts plain numbers down to whole seconds.
    return f"{round(1000 * seconds)}ms"


def _lay_out(target: Target, size_bytes: int, reaper: cleanup_process.CleanupProcess) -> None:
    """Write the file once, since blocks that were never written are read without the disk."""
    # A read job makes fio fill the file, and not only reserve it.
    command = [*_common_arguments(target, size_bytes), "--rw=read", "--bs=1M", "--create_only=1"]
    wrong, environment = f"{target.path}: fio cannot lay it out", reaper.environment()
    said = programs.run_or_refuse(command, wrong, timeout_s=_LAYOUT_S, environment=environment)
    if not target.path.exists():
        raise MeasurementError(f"{wrong}: {programs.complaint(said)}")
    with target.path.open("rb") as file:
        os.fsync(file.fileno())


def device_folder(folder: Path, sysfs: Path = Path("/sys")) -> Path | None:
    """Folder in sysfs of the block device below a folder; None where it cannot be told."""
    number = folder.stat().st_dev
    link = sysfs / "dev/block" / f"{os.major(number)}:{os.minor(number)}"
    return link.resolve() if link.exists() else None


def file_system_of(folder: Path, procfs: Path = Path("/proc")) -> str | None:
    """Kind of the file system that a folder is on; None where it cannot be told."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in read_lines(procfs / "self/mountinfo"):
        fields = line.split()
        if fields[2] == wanted and "-" in fields:
            return fields[fields.index("-") + 1]
    return None
