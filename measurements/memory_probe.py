"""A short probe of main memory: bandwidth by the STREAM kernels, latency by a chase of pointers.

Bandwidth counts the bytes that a kernel reads and writes, as STREAM does (McCalpin 1995); lines
that a cache fetches only to overwrite them come on top of it on the bus. Latency is the time of
one load that waits for the load before it, along a random cycle through all lines of a buffer
larger than the last-level cache. Both are of memory near the CPUs used, with nothing else running.
"""

from __future__ import annotations

import math
import mmap
import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from measurements.cpu_lists import cpu_list_text
from measurements.errors import MeasurementError
from measurements.host.files import read_field
from measurements.memory_kernels import (
    WORDS,
    CannotCompileError,
    CompiledKernels,
    Timed,
    bandwidth_by_numpy,
)
from measurements.memory_sizes import (
    LastLevelCache,
    available_memory,
    cpu_quota,
    last_level_cache,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

COMPILERS = ("cc", "gcc", "clang")

_MIB, _GIB = 2**20, 2**30
# STREAM's rule: no array smaller than four times the caches.
_TIMES_CACHE = 4
_LEAST_BYTES = 64 * _MIB
_MOST_ARRAY_BYTES, _MOST_CHASE_BYTES = 4 * _GIB, 1 * _GIB
_UNKNOWN_CACHE_BYTES = 32 * _MIB
# The buffer's index, 4 bytes a line, and what else the program takes.
_CHASE_ROOM = 1.2
_SHARE_OF_MEMORY = 0.5
# Of the measuring time; there are two chases.
_BANDWIDTH_SHARE, _CHASE_SHARE = 0.5, 0.25
# Repeats whose median is this far from the best one were disturbed.
_UNSTEADY = 0.15
_HUGE = 0.9


class Bandwidth(NamedTuple):
    """Bytes a second of one kernel: of its best repeat and of the median one."""

    best_bytes_s: float
    median_bytes_s: float
    repeats: int


class Latency(NamedTuple):
    """Seconds of one dependent load: of the best repeat and of the median one.

    ``huge_page_share`` is the share of the buffer that huge pages backed, NaN if not known.
    """

    best_s: float
    median_s: float
    repeats: int
    huge_page_share: float


@dataclass(frozen=True, kw_only=True)
class MemoryProbe:
    """Bandwidth and latency of a host's memory, and how they were measured.

    Attributes
    ----------
    bandwidth : mapping of str to Bandwidth
        By kernel: "copy" c = a, "scale" b = s·c, "add" c = a + b, "triad" a = b + s·c.
    latency : Latency or None
        With pages of the base size: page-table walks are part of it, as in most programs. None
        where it cannot be measured.
    latency_huge_pages : Latency or None
        With transparent huge pages, so nearly the memory's own. None where the kernel gives none.
    array_bytes, chase_bytes : int
        Size of each of the three arrays, and of the buffer of the chase (0 without one).
    last_level_cache : LastLevelCache
    page_bytes : int
        Base page size.
    huge_page_share : float
        Share of the arrays that huge pages backed; NaN if not known.
    cpus : tuple of int
        A thread ran on each; the chase on the first.
    method : str
        "C" with compiler and flags, or "numpy".
    notes : tuple of str
        What is missing and how to get it, and what disturbed.
    """

    bandwidth: Mapping[str, Bandwidth]
    latency: Latency | None
    latency_huge_pages: Latency | None
    array_bytes: int
    chase_bytes: int
    last_level_cache: LastLevelCache
    page_bytes: int
    huge_page_share: float
    cpus: tuple[int, ...]
    method: str
    notes: tuple[str, ...]

    @property
    def threads(self) -> int:
        """Threads of the bandwidth kernels."""
        return len(self.cpus)

    @property
    def bandwidth_bytes_s(self) -> float:
        """The headline figure: triad, best repeat (B/s)."""
        return self.bandwidth["triad"].best_bytes_s

    @property
    def latency_s(self) -> float:
        """Load latency with base pages, best repeat (s); NaN where not measured."""
        return self.latency.best_s if self.latency else math.nan

    @property
    def latency_huge_pages_s(self) -> float:
        """Load latency with huge pages, best repeat (s); NaN where not measured."""
        return self.latency_huge_pages.best_s if self.latency_huge_pages else math.nan

    def to_columns(self) -> dict[str, float]:
        """Columns of the runs table; NaN for what was not measured."""
        return {
            "memory_bandwidth_bytes_s": self.bandwidth_bytes_s,
            "memory_latency_s": self.latency_s,
            "memory_latency_huge_pages_s": self.latency_huge_pages_s,
        }

    def summary(self) -> str:
        """Say the figures, how they were measured, and the notes; several lines."""
        rates = ", ".join(
            f"{name} {rate.best_bytes_s / 1e9:.4g} (median {rate.median_bytes_s / 1e9:.4g})"
            for name, rate in self.bandwidth.items()
        )
        lines = [
            f"memory bandwidth (GB/s): {rates}; {self.threads} "
            f"thread{'s' * (self.threads > 1)}, arrays of {self.array_bytes / _MIB:.4g} MiB, "
            f"{self.method}"
        ]
        for latency, pages in (
            (self.latency, f"{self.page_bytes // 1024} KiB pages, page-table walks included"),
            (self.latency_huge_pages, "huge pages"),
        ):
            if latency:
                lines.append(
                    f"memory latency: {1e9 * latency.best_s:.4g} ns (median "
                    f"{1e9 * latency.median_s:.4g}); {pages}, buffer of "
                    f"{self.chase_bytes / _MIB:.4g} MiB"
                )
        return "\n".join([*lines, *self.notes])


def probe_memory(
    *,
    cpus: Collection[int] | None = None,
    array_bytes: int | None = None,
    chase_bytes: int | None = None,
    budget_s: float = 1.0,
    compilers: Sequence[str] = COMPILERS,
    sysfs: Path = Path("/sys"),
    procfs: Path = Path("/proc"),
) -> MemoryProbe:
    """Measure bandwidth and latency of this host's memory, in about two seconds.

    Nothing else should run meanwhile. A C program is compiled into a temporary folder; where that
    cannot be, numpy measures the bandwidth and the latency is missing, and ``notes`` says why.

    Parameters
    ----------
    cpus : collection of int, optional
        CPUs to use; by default those allowed to this process, as many as its CPU quota gives.
    array_bytes : int, optional
        Size of each of three arrays. By default four times the last-level caches of ``cpus``, at
        least 64 MiB, at most 4 GiB, and less where less than twice as much memory is free.
    chase_bytes : int, optional
        Size of the buffer that is chased through. By default four times the largest single
        last-level cache, at least 64 MiB, at most 1 GiB. A smaller one tells a cache's latency.
    budget_s : float
        Seconds of measuring; setting up comes on top.
    compilers : sequence of str
        Programs to try; none for numpy.
    sysfs, procfs : Path
        The kernel's trees, of caches and limits.

    Raises
    ------
    MeasurementError
        When too little memory is free to get past the caches, or it runs out meanwhile; for CPUs
        that are not allowed.
    """
    chosen, notes = _cpus(cpus, procfs, sysfs)
    cache = last_level_cache(sysfs, chosen)
    if not cache.total_bytes:
        notes.append(
            f"the kernel does not say how large the caches are: {_UNKNOWN_CACHE_BYTES // _MIB} MiB "
            "assumed"
        )
    room = int(_SHARE_OF_MEMORY * available_memory(procfs, sysfs))
    array = array_bytes or _array_bytes(cache, room)
    chase = chase_bytes or _chase_bytes(cache, room)
    with tempfile.TemporaryDirectory(prefix="ppw-probe-") as folder:
        try:
            program = CompiledKernels.compile(Path(folder), compilers)
            streams = program.bandwidth(array, chosen, _BANDWIDTH_SHARE * budget_s)
            latencies = _latencies(program, chase, cache.line_bytes, chosen[0], budget_s)
            how = program.how
        except CannotCompileError as error:
            streams = bandwidth_by_numpy(array, chosen, _BANDWIDTH_SHARE * budget_s)
            latencies, chase, how = {}, 0, "numpy"
            notes.append(f"memory latency is missing, bandwidth is numpy's: {error}")
    bandwidth = _bandwidth(streams, 8 * (array // 8))
    base, huge = latencies.get("base"), latencies.get("huge")
    if huge and not huge.huge_page_share >= _HUGE:
        notes.append(_no_huge_pages(huge.huge_page_share, sysfs))
        huge = None
    notes += _unsteady(bandwidth, {"base": base, "huge": huge})
    return MemoryProbe(
        bandwidth=bandwidth,
        latency=base,
        latency_huge_pages=huge,
        array_bytes=array,
        chase_bytes=chase,
        last_level_cache=cache,
        page_bytes=mmap.PAGESIZE,
        huge_page_share=streams.huge_page_share,
        cpus=tuple(chosen),
        method=how,
        notes=tuple(notes),
    )


def _cpus(asked: Collection[int] | None, procfs: Path, sysfs: Path) -> tuple[list[int], list[str]]:
    allowed = os.sched_getaffinity(0)
    if asked is not None:
        if not asked or not set(asked) <= allowed:
            raise MeasurementError(
                f"memory probe: CPUs {_listed(asked)} asked for, and this process may use "
                f"{_listed(allowed)}: choose among them, or widen its cpuset"
            )
        return sorted(set(asked)), []
    quota = cpu_quota(procfs, sysfs)
    if quota >= len(allowed):
        return sorted(allowed), []
    threads = max(1, math.floor(quota))
    note = f"the control group's quota is {quota:.3g} CPUs: measured with {threads} of them"
    return sorted(allowed)[:threads], [note]


def _listed(cpus: Collection[int]) -> str:
    return cpu_list_text(cpus) or "none"


def _array_bytes(cache: LastLevelCache, room: int) -> int:
    total = cache.total_bytes or _UNKNOWN_CACHE_BYTES
    wanted = min(max(_TIMES_CACHE * total, _LEAST_BYTES), _MOST_ARRAY_BYTES)
    size = min(wanted, room // 3 // 8 * 8)
    # All three together must leave little of themselves in the caches.
    if 3 * size < _TIMES_CACHE * total:
        raise _too_little(room, _TIMES_CACHE * total, "three arrays")
    return size


def _chase_bytes(cache: LastLevelCache, room: int) -> int:
    largest = cache.largest_bytes or _UNKNOWN_CACHE_BYTES
    wanted = min(max(_TIMES_CACHE * largest, _LEAST_BYTES), _MOST_CHASE_BYTES)
    size = min(wanted, int(room / _CHASE_ROOM))
    if size < 2 * largest:
        raise _too_little(room, int(2 * largest * _CHASE_ROOM), "a buffer")
    return size


def _too_little(room: int, needed: int, what: str) -> MeasurementError:
    free = room / _SHARE_OF_MEMORY
    return MeasurementError(
        f"memory probe: {free / _MIB:.4g} MiB of memory are free, half of which may be used, and "
        f"{what} past the caches take {needed / _MIB:.4g} MiB: stop what else takes memory, raise "
        "the control group's limit, or measure without --probe-memory"
    )


def _latencies(
    program: CompiledKernels, chase: int, line: int, cpu: int, budget_s: float
) -> dict[str, Latency]:
    base = program.latency(chase, line, "base", cpu, _CHASE_SHARE * budget_s)
    huge = program.latency(chase, line, "huge", cpu, _CHASE_SHARE * budget_s)
    return {pages: _latency(timed) for pages, timed in (("base", base), ("huge", huge))}


def _latency(timed: Timed) -> Latency:
    loads = timed.seconds["chase"]
    return Latency(min(loads), statistics.median(loads), len(loads), timed.huge_page_share)


def _bandwidth(timed: Timed, array_bytes: int) -> dict[str, Bandwidth]:
    return {
        name: Bandwidth(
            words * array_bytes / min(timed.seconds[name]),
            words * array_bytes / statistics.median(timed.seconds[name]),
            len(timed.seconds[name]),
        )
        for name, words in WORDS.items()
    }


def _no_huge_pages(share: float, sysfs: Path) -> str:
    setting = read_field(sysfs / "kernel/mm/transparent_hugepage/enabled")
    backed = f"they backed {share:.0%} of the buffer" if share >= 0 else "it does not say how many"
    return (
        f"no latency with huge pages: the kernel gave too few ({backed}; transparent_hugepage is "
        f"{setting or 'absent'}): set it to madvise, or free memory"
    )


def _unsteady(
    bandwidth: Mapping[str, Bandwidth], latencies: Mapping[str, Latency | None]
) -> list[str]:
    off = [1 - rate.median_bytes_s / rate.best_bytes_s for rate in bandwidth.values()]
    off += [lat.median_s / lat.best_s - 1 for lat in latencies.values() if lat]
    if max(off) <= _UNSTEADY:
        return []
    return [
        f"the median repeat is up to {max(off):.0%} worse than the best: something else uses this "
        "memory; stop it and probe again"
    ]
