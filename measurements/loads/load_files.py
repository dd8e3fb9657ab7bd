"""Files for load generators: job files and iologs of fio, XML profiles of DiskSpd; fio replaying.

What fio cannot say, and what is done instead:

- Shares are whole percents: of reads, of random requests, of sizes, of accesses to a zone.
- A job has at most 256 zones (``random_distribution``) and 64 sizes (``bssplit``).
- ``rate_iops`` is a whole number. A rate in bytes a second is a whole number too, of far smaller
  steps, so that is what is written.
- ``rate_process=poisson`` divides by the whole number of requests of the smallest size in a
  second, reads and writes apart, which fails below one and is coarse below some hundred: slower
  jobs have equal gaps.
- Weights (``flow``) are whole numbers up to 1000.
- More than 4096 jobs are refused, and the kernel keeps 65536 requests in flight by default.

A target of a profile (``diskspd -X FILE``) has one request size and is either sequential or
random; each is uniform over its range. Two ways to pace them:

- open loop: ``Throughput`` of each target, in whole bytes a millisecond; below a hundred of
  those, one request and a ``ThinkTime`` in whole milliseconds;
- closed loop: ``ThreadCount`` and ``RequestCount`` of the time span, and a ``Weight`` for each
  target, which holds the shares of the requests.

fio 3.33 looks for completions of an iolog only when as many requests are in flight as it may
have: latencies are then mostly the time until it looks, and the last requests are not counted.
With ``iodepth_batch_complete_min=0`` it looks after each request. Its null engine does not keep
the times of a log, so that it cannot tell fio's own error; a file in memory can.
"""

import json
import math
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple
from xml.etree import ElementTree  # nosec B405  # XML is only written

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from measurements.errors import MeasurementError
from measurements.processes.programs import ask, find_program
from measurements.table.writing import replace_whole
from measurements.traces.requests import BLOCK_BYTES, Op

MOST_JOBS = 4096
_MOST_ZONES, _MOST_SIZES, _MOST_WEIGHT, _MOST_IN_FLIGHT = 256, 64, 1000, 32768
_LEAST_POISSON = 100.0
# What is rounded to whole percents or weights; a smaller loss is not worth a sentence.
_ROUNDED = ("reads", "random requests", "sizes", "zones", "jobs")
_LEAST_LOSS = 5e-4

Losses = dict[str, float]


@dataclass(frozen=True)
class AddressZone:
    """Part of the space: bytes from a start to an end, and the share of requests that go there."""

    first_byte: int
    end_byte: int
    share: float


@dataclass(frozen=True)
class LoadJob:
    """A generator thread, which makes one kind of request over and over."""

    name: str
    rate: float  # requests per second
    share: float  # of the requests of all jobs
    read_share: float  # of the requests of this job, 0 to 1
    random_share: float
    sizes: tuple[tuple[int, float], ...]  # request sizes (bytes) and their shares
    zones: tuple[AddressZone, ...]  # where random requests go, in ascending order, with no overlap
    alignment_bytes: int = 512  # requests start at multiples of it
    arrivals: str = "constant"  # equal inter-arrival times; "poisson": exponential ones

    @property
    def mean_size(self) -> float:
        """Mean size of a request (bytes)."""
        return sum(size * share for size, share in self.sizes)

    @property
    def space(self) -> tuple[int, int]:
        """First byte, and the one after the last."""
        return self.zones[0].first_byte, self.zones[-1].end_byte


def write_fio_jobs(
    jobs: Sequence[LoadJob],
    path: str | Path,
    *,
    target: str,
    duration_s: float,
    outstanding: int | None = None,
    depth: int = 32,
    engine: str = "libaio",
    allow_device: bool = False,
) -> tuple[str, ...]:
    """Write a job file of fio; return what it cannot say of the jobs, in sentences.

    The jobs share ``target``, a scratch file that fio makes, and run ``duration_s`` (s), rounded
    up to whole seconds. A job with a rate has at most ``depth`` requests in flight. With
    ``outstanding`` the loop is closed: no rates; each job keeps so many requests in flight, and
    jobs of a share take turns by it (``flow``). ``engine`` is fio's ``ioengine``.
    ``allow_device`` lets the target be a device, whose content is lost.

    Raises MeasurementError for no jobs or too many, a device that is not allowed, or a file that
    cannot be written.
    """
    if not 0 < len(jobs) <= MOST_JOBS:
        raise MeasurementError(
            f"{len(jobs)} jobs: fio takes 1 to {MOST_JOBS}; make one per stream, "
            "not one per transition"
        )
    named = check_target(target, allow_device)
    losses = dict.fromkeys(_ROUNDED, 0.0) | {"poisson": 0.0}
    # The kernel refuses more requests in flight than it has room for, of all jobs together.
    flying = max(1, min(outstanding or depth, _MOST_IN_FLIGHT // len(jobs)))
    if outstanding is None:
        sections = [_job_section(job, None, flying, losses) for job in jobs]
    else:
        pairs = zip(jobs, _proportional_weights(jobs, losses), strict=True)
        sections = [_job_section(job, weight, flying, losses) for job, weight in pairs]
    sentences = _fio_losses(losses, closed=outstanding is not None)
    lines = [
        *(*(f"# {text}" for text in sentences), "[global]"),
        # fio separates files by colons.
        *("filename=" + named.replace(":", "\\:"), f"filesize={max(j.space[1] for j in jobs)}"),
        *(f"ioengine={engine}", "direct=1", "thread=1", "norandommap=1", "randrepeat=1"),
        *("time_based=1", f"runtime={max(1, math.ceil(duration_s))}s", "group_reporting=1", ""),
    ]
    with replace_whole(Path(path)) as scratch:
        scratch.write_text("\n".join([*lines, *sections]), encoding="utf-8")
    return sentences


def _fio_losses(losses: Losses, *, closed: bool) -> tuple[str, ...]:
    """Say what a job file cannot say of its jobs, where it is enough to matter."""
    sentences = [
        f"rounding to whole {'weights' if what == 'jobs' else 'percents'} of {what} misplaces "
        f"{losses[what]:.2%} of the requests"
        for what in _ROUNDED
        if losses[what] >= _LEAST_LOSS
    ]
    if losses["poisson"] >= _LEAST_LOSS and not closed:
        sentences.append(
            f"{losses['poisson']:.1%} of the requests come from jobs below {_LEAST_POISSON:g} per "
            "second: fio gives these equal instead of exponential inter-arrival times"
        )
    uniform = "addresses inside a zone are uniform: reuse and the effect of caches are lost"
    loop = "closed loop: a request follows a completion, and inter-arrival times are lost"
    rates = "rates are constant over the run: bursts longer than an inter-arrival time are lost"
    return (*sentences, uniform, loop if closed else rates)


def _proportional_weights(jobs: Sequence[LoadJob], losses: Losses) -> list[int]:
    """Weigh jobs by their shares, at least 1 each; add what rounding misplaces to the losses."""
    # The largest weight is that of the largest share, so that small shares lose least.
    shares = [job.share for job in jobs]
    weights = [max(1, round(_MOST_WEIGHT * share / max(shares))) for share in shares]
    losses["jobs"] = misplaced_share(shares, weights)
    return weights


def _job_section(job: LoadJob, weight: int | None, depth: int, losses: Losses) -> str:
    """Section of a job in a job file of fio; adds what it cannot say to the losses."""
    first, end = job.space
    reads, kept = whole_percents([job.read_share, 1 - job.read_share])[0], _kept_sizes(job)
    lines = [
        f"[{job.name.replace(']', ')')}]",
        *_operation_options(job, reads, losses),
        *_size_options(job, kept, losses),
        *(f"blockalign={job.alignment_bytes}", f"offset={first}", f"size={end - first}"),
        *(*_zone_options(job, losses), f"iodepth={depth}"),
    ]
    if weight is None:
        lines += _rate_options(job, reads / 100, kept, losses)
    else:
        lines += [f"flow={weight}", "flow_id=1"]
    return "\n".join(lines) + "\n"


def _operation_options(job: LoadJob, reads: int, losses: Losses) -> list[str]:
    losses["reads"] += job.share * abs(job.read_share - reads / 100)
    way = "rw" if 0 < reads < 100 else "read" if reads else "write"
    lines = [f"rw={'rand' if job.random_share > 0 else ''}{way}"]
    if way == "rw":
        lines.append(f"rwmixread={reads}")
    if 0 < job.random_share < 1:
        percent = whole_percents([job.random_share, 1 - job.random_share])[0]
        losses["random requests"] += job.share * abs(job.random_share - percent / 100)
        lines.append(f"percentage_random={percent}")
    return lines


def _size_options(job: LoadJob, kept: dict[int, int], losses: Losses) -> list[str]:
    rest = (share - kept.get(size, 0) / 100 for size, share in dict(job.sizes).items())
    losses["sizes"] += job.share * sum(max(0.0, share) for share in rest)
    if len(kept) == 1:
        return [f"bs={min(kept)}"]
    return [f"bssplit={':'.join(f'{size}/{percent}' for size, percent in kept.items())}"]


def _kept_sizes(job: LoadJob) -> dict[int, int]:
    """Sizes with at least 1 % of the requests, with their whole percents."""
    common = sorted(job.sizes, key=lambda one: (-one[1], one[0]))[:_MOST_SIZES]
    whole = whole_percents([share for _, share in common])
    return {size: percent for (size, _), percent in zip(common, whole, strict=True) if percent}


def _zone_options(job: LoadJob, losses: Losses) -> list[str]:
    """Option of fio for the zones that random requests go to."""
    if len(job.zones) == 1 or job.random_share == 0:
        return []
    joined = _join_zones(job.zones)
    shares = [zone.share for zone in joined]
    whole, total = whole_percents(shares), sum(shares)
    losses["zones"] += job.share * misplaced_share([share / total for share in shares], whole)
    zones = [f"{w}/{z.end_byte - z.first_byte}" for z, w in zip(joined, whole, strict=True)]
    return [f"random_distribution=zoned_abs:{':'.join(zones)}"]


def _join_zones(zones: Sequence[AddressZone]) -> list[AddressZone]:
    """Join neighbours until each zone has 1 % of the requests; zones of 0 % fill the gaps."""
    total = sum(zone.share for zone in zones)
    joined: list[AddressZone] = []
    for zone in zones:
        last = joined[-1] if joined else None
        if last and last.end_byte < zone.first_byte and last.share >= 0.01 * total:
            joined += [AddressZone(last.end_byte, zone.first_byte, 0.0), zone]
        elif last and (last.share < 0.01 * total or zone.share < 0.01 * total):
            joined[-1] = AddressZone(last.first_byte, zone.end_byte, last.share + zone.share)
        else:
            joined.append(zone)
    # fio takes so many zones at most: those at the end become one.
    kept, rest = joined[: _MOST_ZONES - 1], joined[_MOST_ZONES - 1 :]
    if rest:
        share = sum(zone.share for zone in rest)
        kept.append(AddressZone(rest[0].first_byte, rest[-1].end_byte, share))
    return kept


def _rate_options(job: LoadJob, reads: float, kept: dict[int, int], losses: Losses) -> list[str]:
    """Options of fio for the rate of a job, with a share of reads and the percents of sizes."""
    # fio holds reads and writes to a rate each, and waits for the one that is behind.
    rates = [job.rate * share for share in (reads, 1 - reads) if share]
    if job.arrivals == "poisson" and min(rates) >= _LEAST_POISSON:
        # fio takes the rate over the smallest size for the requests per second.
        bytes_s = ",".join(str(round(rate) * min(kept)) for rate in rates)
        return [f"rate={bytes_s}", "rate_process=poisson"]
    losses["poisson"] += job.share if job.arrivals == "poisson" else 0.0
    mean = sum(size * percent for size, percent in kept.items()) / 100
    return [f"rate={','.join(str(max(1, round(rate * mean))) for rate in rates)}"]


def check_target(target: str, allow_device: bool) -> str:
    """Return a path that a load may write to; MeasurementError for a device unless allowed."""
    named_device = target.startswith(("/dev/", "\\\\.\\", "#")) or target.isdigit()
    path = Path(target)
    if named_device or (path.exists() and stat.S_ISBLK(path.stat().st_mode)):
        if not allow_device:
            raise MeasurementError(
                f"{target}: is a device, and a load overwrites its data: name a "
                "scratch file, or allow the device (--allow-device)"
            )
    elif not target or any(c in target for c in "\n\r"):
        raise MeasurementError(f"target {target!r}: give the path of a scratch file")
    return target


def whole_percents(shares: list[float]) -> list[int]:
    """Shares as whole percents that sum to 100, the largest remainders rounded up."""
    total = sum(shares)
    # Largest remainder method: no percent is lost or made up.
    exact = [100 * share / total for share in shares]
    whole = [int(x) for x in exact]
    by_rest = sorted(range(len(exact)), key=lambda k: (whole[k] - exact[k], k))
    for k in by_rest[: 100 - sum(whole)]:
        whole[k] += 1
    return whole


def misplaced_share(shares: Sequence[float], weights: Sequence[int]) -> float:
    """Share of the requests that whole weights in place of their shares move elsewhere."""
    total = sum(weights)
    # A request that is too many here is one too few there.
    return sum(abs(w / total - s) for s, w in zip(shares, weights, strict=True)) / 2


# Weights of all targets of a profile together.
_DISKSPD_WEIGHTS = 1_000_000
# A slower target cannot be paced by whole bytes per millisecond.
_LEAST_BYTES_MS = 100.0
_LONGEST_MS = 2**32 - 1


def write_diskspd(
    jobs: Sequence[LoadJob],
    path: str | Path,
    *,
    target: str,
    duration_s: float,
    outstanding: int | None = None,
    depth: int = 32,
    seed: int = 0,
    allow_device: bool = False,
) -> tuple[str, ...]:
    """Write a profile of DiskSpd; return what it cannot say of the jobs, also in its comment.

    Each job has one size, one zone and one kind of request: one a transition. The targets share
    the scratch file ``target``; the run lasts ``duration_s`` (s), rounded up. A target with a rate
    has ``depth`` requests in flight. With ``outstanding`` the loop is closed: so many requests in
    flight in all, shared out by weight. ``allow_device`` lets the target be a device, whose
    content is lost.

    Raises MeasurementError for no jobs, mixed ones, a device that is not allowed, or a file that
    cannot be written.
    """
    named = check_target(target, allow_device)
    if not jobs:
        raise MeasurementError("no jobs are given: a profile needs at least one")
    for job in jobs:
        is_pure = job.read_share in (0.0, 1.0) and job.random_share in (0.0, 1.0)
        if len(job.sizes) > 1 or len(job.zones) > 1 or not is_pure:
            raise MeasurementError(
                f"job {job.name!r} mixes sizes, zones or kinds of request, which DiskSpd does not "
                "support in one target: make one job per transition"
            )
    losses = tuple(_diskspd_losses(jobs, closed=outstanding is not None))
    profile = ElementTree.Element("Profile")
    # A comment of XML must not have two hyphens together.
    profile.append(ElementTree.Comment(f" {'; '.join(losses)} ".replace("--", "- -")))
    span = ElementTree.SubElement(ElementTree.SubElement(profile, "TimeSpans"), "TimeSpan")
    _add_children(span, Duration=max(1, math.ceil(duration_s)), Warmup=0, Cooldown=0, RandSeed=seed)
    _add_children(span, MeasureLatency="true")
    if outstanding is not None:
        _add_children(span, ThreadCount=1, RequestCount=outstanding)
    # All targets share one file, as long as the furthest of them reaches.
    targets = ElementTree.SubElement(span, "Targets")
    size = max(job.space[1] for job in jobs)
    for job in jobs:
        one = ElementTree.SubElement(targets, "Target")
        _add_children(one, Path=named, FileSize=size, **_diskspd_target_elements(job))
        if outstanding is None:
            _add_children(one, ThreadsPerFile=1, **_diskspd_rate(job, depth))
        else:
            _add_children(one, Weight=_diskspd_weight(job))
    ElementTree.indent(profile)
    with replace_whole(Path(path)) as scratch:
        text = ElementTree.tostring(profile, encoding="unicode")
        scratch.write_text(text + "\n", encoding="utf-8")
    return losses


def _diskspd_target_elements(job: LoadJob) -> dict[str, object]:
    first, end = job.space
    size = job.sizes[0][0]
    place = {"BlockSize": size, "BaseFileOffset": first, "MaxFileSize": max(end, first + size)}
    # Caches of the system would answer in place of the device.
    caches = {"DisableOSCache": "true", "WriteThrough": "true"}
    order = {"Random": job.alignment_bytes} if job.random_share else {"StrideSize": size}
    return {**place, "WriteRatio": 0 if job.read_share else 100, **caches, **order}


def _diskspd_weight(job: LoadJob) -> int:
    return max(1, round(_DISKSPD_WEIGHTS * job.share))


def _diskspd_rate(job: LoadJob, depth: int) -> dict[str, int]:
    """Elements that pace a target: a throughput, or a time to think."""
    # Throughput is in whole bytes per millisecond: too coarse for a slow target.
    bytes_ms = job.rate * job.mean_size / 1000
    if bytes_ms >= _LEAST_BYTES_MS:
        return {"RequestCount": depth, "Throughput": round(bytes_ms)}
    think = min(_LONGEST_MS, max(1, round(1000 / job.rate)))
    return {"RequestCount": 1, "BurstSize": 1, "ThinkTime": think}


def _add_children(parent: ElementTree.Element, **children: object) -> None:
    for name, value in children.items():
        ElementTree.SubElement(parent, name).text = str(value)


def _diskspd_losses(jobs: Sequence[LoadJob], *, closed: bool) -> Iterator[str]:
    """Yield what a profile cannot say of its jobs."""
    if closed:
        weights = [_diskspd_weight(job) for job in jobs]
        misplaced = misplaced_share([job.share for job in jobs], weights)
        yield f"rounding to whole weights misplaces {misplaced:.2%} of the requests"
        yield "closed loop: a request follows a completion, and inter-arrival times are lost"
    else:
        options, misplaced = [_diskspd_rate(job, 1) for job in jobs], 0.0
        for job, option in zip(jobs, options, strict=True):
            thinks_s = option.get("ThinkTime", 0) / 1000
            rate = 1 / thinks_s if thinks_s else 1000 * option["Throughput"] / job.mean_size
            misplaced += abs(rate - job.rate)
        share = misplaced / sum(job.rate for job in jobs)
        yield f"rounding to whole bytes and milliseconds misplaces {share:.2%} of the requests"
        if any("ThinkTime" in option for option in options):
            yield "a target with think time also waits for its request, so it is a little slower"
        yield "rates are constant over the run: bursts are lost"
    yield "addresses inside a range are uniform: reuse and the effect of caches are lost"


_PATIENCE_S = 60.0
_LEFT_FREE_BYTES = 64 << 20
_WORDS = ("read", "write", "trim", "sync")


@dataclass(frozen=True)
class ReplayReport:
    """Figures of a replay, as fio reports them."""

    engine: str
    requests: int  # completed reads, writes and trims
    bytes_: int
    duration_s: float
    latency_mean_s: float  # from submission to completion; NaN where nothing completed
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
    expected_s: float = 3600.0,
    allow_device: bool = False,
) -> ReplayReport:
    """Replay an iolog of one file with fio.

    The log, as `write_iolog` makes it, names the file. ``engine`` is fio's ``ioengine``. A request
    beyond ``depth`` requests in flight waits, and comes late. ``direct`` passes by the page cache.
    The replay should take ``expected_s`` (s); a minute more than twice that ends it.
    ``allow_device`` lets fio write to a device, mounted or not.

    Raises MeasurementError when fio is missing, fails, or takes too long.
    """
    command = [
        *(find_program("fio"), "--name=replay", f"--read_iolog={iolog}", f"--ioengine={engine}"),
        *(f"--iodepth={depth}", "--iodepth_batch_complete_min=0", "--lat_percentiles=1"),
        *(f"--direct={int(direct)}", "--thread=1", "--output-format=json"),
        *([] if allow_device else ["--allow_mounted_write=0"]),
    ]
    with tempfile.TemporaryDirectory(prefix="ppw-replay-") as folder:
        report = _run_fio([*command, f"--output={folder}/report.json"], folder, expected_s)
    return _parse_report(report, engine)


def issued_requests(path: str | Path, requests: Sequence[int]) -> list[pa.Table]:
    """Let fio issue the first requests of each job of a file, without a device; return them by job.

    The jobs run on an empty file with fio's null engine, each as fast as it can, so the requests
    are those of the job file but their times are not. ``requests`` has a number for each job.
    """
    from measurements.traces.trace_files import read_trace

    left_out, numbers = ("rate", "time_based", "runtime", "direct", "flow", "#"), iter(requests)
    program = find_program("fio")
    with tempfile.TemporaryDirectory(prefix="ppw-jobs-") as folder:
        changed = {"filename=": f"filename={folder}/target", "ioengine=": "ioengine=null"}
        logs, lines = [Path(folder, f"{k}.log") for k in range(len(requests))], []
        paths = iter(logs)
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            key = line.partition("=")[0] + "="
            if line.startswith("filesize="):
                with Path(folder, "target").open("wb") as file:
                    file.truncate(int(line.partition("=")[2]))
            if not line.startswith(left_out):
                lines.append(changed.get(key, line))
            if line.startswith("[") and line != "[global]":
                lines += [f"write_iolog={next(paths)}", f"number_ios={next(numbers)}"]
        Path(folder, "jobs.fio").write_text("\n".join(lines), encoding="utf-8")
        command = [program, "jobs.fio", "--output-format=json", f"--output={folder}/report.json"]
        _run_fio(command, folder, float(sum(requests)) / 1000)
        return [_drop_repeats(read_trace(log).to_table()) for log in logs]


def _drop_repeats(table: pa.Table) -> pa.Table:
    """Drop requests that are the same as the one before: the null engine logs them twice."""
    same = np.ones(max(0, table.num_rows - 1), dtype=np.bool_)
    for name in ("lbn", "size_bytes", "op"):
        column = table[name].to_numpy()
        same &= column[1:] == column[:-1]
    return table.filter(pa.array(np.append(True, ~same)[: table.num_rows]))


def make_scratch(path: str | Path, size_bytes: int) -> None:
    """Make a scratch file of a size, all of it allocated and written, or make one longer."""
    target = Path(path)
    try:
        there = target.stat().st_size if target.exists() else 0
        missing = size_bytes - there
        if missing <= 0:
            return
        free = shutil.disk_usage(target.parent or ".").free
        if free < missing + _LEFT_FREE_BYTES:
            raise MeasurementError(
                f"{target}: {missing / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB free: give "
                "a smaller target (--size), or another folder"
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
            f"fio was ended after {error.timeout:.0f} s, more than twice the length of the trace: "
            "the device is too slow for the trace. Replay fewer requests, or slower (--time-scale)"
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
        mean_s = mean / requests * 1e-9 if requests else float("nan")
        p99_s = float("nan") if p99 is None else p99 * 1e-9
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
            file.write(f"fio version 3 iolog\n1 {named} add\n1 {named} open\n".encode())
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
        raise MeasurementError(
            "requests have no times, which an iolog needs: generate the trace without --outstanding"
        )
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
