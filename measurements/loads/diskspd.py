"""XML profiles of DiskSpd (``diskspd -X FILE``).

A target of a profile has one request size and is either sequential or random; each is uniform
over its range. Two ways to pace them:

- open loop: ``Throughput`` of each target, in whole bytes a millisecond; below a hundred of
  those, one request and a ``ThinkTime`` in whole milliseconds;
- closed loop: ``ThreadCount`` and ``RequestCount`` of the time span, and a ``Weight`` for each
  target, which holds the shares of the requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from measurements.errors import MeasurementError
from measurements.loads.fio_jobs import LoadJob, check_target
from measurements.table.writing import replace_whole

_WEIGHTS = 1_000_000
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
    """Write a profile; return what it cannot say of the jobs, also in its comment.

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
                f"job {job.name!r} mixes sizes, zones or kinds of request, which a target of "
                "DiskSpd cannot: make one a transition"
            )
    losses = tuple(_losses(jobs, closed=outstanding is not None))
    profile = ElementTree.Element("Profile")
    # A comment of XML must not have two hyphens together.
    profile.append(ElementTree.Comment(f" {'; '.join(losses)} ".replace("--", "- -")))
    span = ElementTree.SubElement(ElementTree.SubElement(profile, "TimeSpans"), "TimeSpan")
    _add(span, Duration=max(1, math.ceil(duration_s)), Warmup=0, Cooldown=0, RandSeed=seed)
    _add(span, MeasureLatency="true")
    if outstanding is not None:
        _add(span, ThreadCount=1, RequestCount=outstanding)
    # All targets share one file, as long as the furthest of them reaches.
    targets = ElementTree.SubElement(span, "Targets")
    size = max(job.space[1] for job in jobs)
    for job in jobs:
        one = ElementTree.SubElement(targets, "Target")
        _add(one, Path=named, FileSize=size, **_elements(job))
        if outstanding is None:
            _add(one, ThreadsPerFile=1, **_rate_options(job, depth))
        else:
            _add(one, Weight=_weight(job))
    ElementTree.indent(profile)
    with replace_whole(Path(path)) as scratch:
        text = ElementTree.tostring(profile, encoding="unicode")
        scratch.write_text(text + "\n", encoding="utf-8")
    return losses


def _elements(job: LoadJob) -> dict[str, object]:
    first, end = job.space
    size = job.sizes[0][0]
    place = {"BlockSize": size, "BaseFileOffset": first, "MaxFileSize": max(end, first + size)}
    # Caches of the system would answer in place of the device.
    caches = {"DisableOSCache": "true", "WriteThrough": "true"}
    order = {"Random": job.alignment_bytes} if job.random_share else {"StrideSize": size}
    return {**place, "WriteRatio": 0 if job.read_share else 100, **caches, **order}


def _weight(job: LoadJob) -> int:
    return max(1, round(_WEIGHTS * job.share))


def _rate_options(job: LoadJob, depth: int) -> dict[str, int]:
    # Throughput is in whole bytes per millisecond: too coarse for a slow target.
    bytes_ms = job.rate * job.mean_size / 1000
    if bytes_ms >= _LEAST_BYTES_MS:
        return {"RequestCount": depth, "Throughput": round(bytes_ms)}
    think = min(_LONGEST_MS, max(1, round(1000 / job.rate)))
    return {"RequestCount": 1, "BurstSize": 1, "ThinkTime": think}


def _add(parent: ElementTree.Element, **children: object) -> None:
    for name, value in children.items():
        ElementTree.SubElement(parent, name).text = str(value)


def _losses(jobs: Sequence[LoadJob], *, closed: bool) -> Iterator[str]:
    if closed:
        total = sum(map(_weight, jobs))
        # A request that is too many here is one too few there.
        misplaced = sum(abs(_weight(job) / total - job.share) for job in jobs) / 2
        yield f"whole weights misplace {misplaced:.2%} of the requests"
        yield "closed loop: a request follows a completion, and inter-arrival times are lost"
    else:
        options, misplaced = [_rate_options(job, 1) for job in jobs], 0.0
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
