"""Files of jobs for load generators: job files of fio, and XML profiles of DiskSpd.

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
"""

from __future__ import annotations

import math
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from measurements.errors import MeasurementError
from measurements.table.writing import replace_whole

MOST_JOBS = 4096
_MOST_ZONES = 256
_MOST_SIZES = 64
_MOST_WEIGHT = 1000
_MOST_IN_FLIGHT = 32768
_LEAST_POISSON = 100.0
# A smaller loss is not worth a sentence.
_LEAST_LOSS = 5e-4


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
    losses = _FioLosses()
    # The kernel refuses more requests in flight than it has room for, of all jobs together.
    flying = max(1, min(outstanding or depth, _MOST_IN_FLIGHT // len(jobs)))
    weights = _proportional_weights(jobs, losses) if outstanding is not None else [None] * len(jobs)
    pairs = zip(jobs, weights, strict=True)
    sections = [_job_section(job, weight, flying, losses) for job, weight in pairs]
    sentences = losses.sentences(outstanding is not None)
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


class _FioLosses:
    """Shares lost by rounding, summed over jobs by their share of the requests."""

    def __init__(self) -> None:
        self.moved = dict.fromkeys(("reads", "random requests", "sizes", "zones", "jobs"), 0.0)
        self.slow = 0.0

    def add(self, what: str, job: LoadJob, share: float) -> None:
        """Count a share of the requests of a job."""
        self.moved[what] += job.share * share

    def sentences(self, closed: bool) -> tuple[str, ...]:
        """Say what is lost, where it is enough to matter; ``closed`` means a closed loop."""
        sentences = [
            f"whole {'weights' if what == 'jobs' else 'percents'} of {what} misplace {share:.2%} "
            "of the requests"
            for what, share in self.moved.items()
            if share >= _LEAST_LOSS
        ]
        if self.slow >= _LEAST_LOSS and not closed:
            sentences.append(
                f"{self.slow:.1%} of the requests are of jobs below {_LEAST_POISSON:g} a second, "
                "which fio cannot make exponential gaps for: theirs are equal"
            )
        uniform = "places inside a zone are uniform: reuse is lost, and so is what a cache does"
        loop = "closed loop: a request follows a completion, and inter-arrival times go"
        rates = "rates are constant over the run: bursts longer than a gap are lost"
        sentences += [uniform, loop if closed else rates]
        return tuple(sentences)


def _proportional_weights(jobs: Sequence[LoadJob], losses: _FioLosses) -> Sequence[int | None]:
    """Weigh jobs by their shares, at least 1 each; add what rounding misplaces to the losses."""
    # The largest weight is that of the largest share, so that small shares lose least.
    largest = max(job.share for job in jobs)
    weights = [max(1, round(_MOST_WEIGHT * job.share / largest)) for job in jobs]
    total = sum(weights)
    for job, weight in zip(jobs, weights, strict=True):
        losses.moved["jobs"] += abs(weight / total - job.share) / 2
    return weights


def _job_section(job: LoadJob, weight: int | None, depth: int, losses: _FioLosses) -> str:
    """Section of a job in a job file of fio."""
    first, end = job.space
    lines = [
        *(
            f"[{job.name.replace(']', ')')}]",
            *_operation_options(job, losses),
            *_size_options(job, losses),
        ),
        *(f"blockalign={job.alignment_bytes}", f"offset={first}", f"size={end - first}"),
        *(*_zone_options(job, losses), f"iodepth={depth}"),
        *(_rate_options(job, losses) if weight is None else [f"flow={weight}", "flow_id=1"]),
    ]
    return "\n".join(lines) + "\n"


def _operation_options(job: LoadJob, losses: _FioLosses) -> list[str]:
    random = "rand" if job.random_share > 0 else ""
    reads = _read_percent(job)
    losses.add("reads", job, abs(job.read_share - reads / 100))
    if reads in (0, 100):
        lines = [f"rw={random}{'read' if reads else 'write'}"]
    else:
        lines = [f"rw={random}rw", f"rwmixread={reads}"]
    if 0 < job.random_share < 1:
        percent = whole_percents([job.random_share, 1 - job.random_share])[0]
        losses.add("random requests", job, abs(job.random_share - percent / 100))
        lines.append(f"percentage_random={percent}")
    return lines


def _read_percent(job: LoadJob) -> int:
    """Whole percent of reads."""
    return whole_percents([job.read_share, 1 - job.read_share])[0]


def _size_options(job: LoadJob, losses: _FioLosses) -> list[str]:
    kept = _kept_sizes(job)
    shares = dict(job.sizes)
    losses.add("sizes", job, sum(max(0.0, s - kept.get(k, 0) / 100) for k, s in shares.items()))
    if len(kept) == 1:
        return [f"bs={min(kept)}"]
    return [f"bssplit={':'.join(f'{size}/{percent}' for size, percent in kept.items())}"]


def _kept_sizes(job: LoadJob) -> dict[int, int]:
    """Sizes with at least 1 % of the requests, with their whole percents."""
    common = sorted(job.sizes, key=lambda one: (-one[1], one[0]))[:_MOST_SIZES]
    whole = whole_percents([share for _, share in common])
    return {size: percent for (size, _), percent in zip(common, whole, strict=True) if percent}


def _zone_options(job: LoadJob, losses: _FioLosses) -> list[str]:
    """Option of fio for the zones that random requests go to."""
    if len(job.zones) == 1 or job.random_share == 0:
        return []
    joined = _join_zones(job.zones)
    shares = [zone.share for zone in joined]
    whole = whole_percents(shares)
    losses.add("zones", job, percent_loss(shares, whole))
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


def _rate_options(job: LoadJob, losses: _FioLosses) -> list[str]:
    """Options of fio for the rate of a job."""
    # fio holds reads and writes to a rate each, and waits for the one that is behind.
    reads, kept = _read_percent(job) / 100, _kept_sizes(job)
    rates = [job.rate * share for share in (reads, 1 - reads) if share]
    if job.arrivals == "poisson" and min(rates) >= _LEAST_POISSON:
        # fio takes the rate over the smallest size for the requests per second.
        bytes_s = ",".join(str(round(rate) * min(kept)) for rate in rates)
        return [f"rate={bytes_s}", "rate_process=poisson"]
    losses.slow += job.share if job.arrivals == "poisson" else 0.0
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


def percent_loss(shares: list[float], whole: list[int]) -> float:
    """Share of the requests that rounding to whole percents moves elsewhere."""
    total = sum(shares)
    off = [abs(s / total - w / 100) for s, w in zip(shares, whole, strict=True)]
    return sum(off) / 2


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
        raise MeasurementError("no jobs: a profile needs one at least")
    for job in jobs:
        is_pure = job.read_share in (0.0, 1.0) and job.random_share in (0.0, 1.0)
        if len(job.sizes) > 1 or len(job.zones) > 1 or not is_pure:
            raise MeasurementError(
                f"job {job.name!r} mixes sizes, zones or kinds of request, which "
                "DiskSpd does not support in one target: make one job per "
                "transition"
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
        total = sum(map(_diskspd_weight, jobs))
        # A request that is too many here is one too few there.
        misplaced = sum(abs(_diskspd_weight(job) / total - job.share) for job in jobs) / 2
        yield f"whole weights misplace {misplaced:.2%} of the requests"
        yield "closed loop: a request follows a completion, and inter-arrival times are lost"
    else:
        options, misplaced = [_diskspd_rate(job, 1) for job in jobs], 0.0
        for job, option in zip(jobs, options, strict=True):
            thinks_s = option.get("ThinkTime", 0) / 1000
            rate = 1 / thinks_s if thinks_s else 1000 * option["Throughput"] / job.mean_size
            misplaced += abs(rate - job.rate)
        share = misplaced / sum(job.rate for job in jobs)
        yield f"whole bytes and milliseconds misplace {share:.2%} of the requests"
        if any("ThinkTime" in option for option in options):
            yield "a thinking target waits for its request too, and so is a little slower"
        yield "rates are constant over the run: bursts are lost"
    yield "places inside a range are uniform: reuse is lost, and so is what a cache does"
