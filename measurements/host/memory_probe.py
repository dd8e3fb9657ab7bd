"""A short probe of main memory: bandwidth by the STREAM kernels, latency by a chase of pointers.

Bandwidth counts the bytes that a kernel reads and writes, as STREAM does (McCalpin 1995); lines
that a cache fetches only to overwrite them come on top of it on the bus. Latency is the time of
one load that waits for the load before it, along a random cycle through all lines of a buffer
larger than the last-level cache. Both are of memory near the CPUs used, with nothing else running.

The kernels are a C program compiled on the spot (``memory_probe.c``), or numpy's. Both give seconds
of single repeats, the first of each left out: it fills caches and raises the core frequency.
"""

import math
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from measurements.errors import MeasurementError
from measurements.host.activity import LastLevelCache, available_memory, cpu_quota, last_level_cache
from measurements.host.files import cpu_list_text, read_field
from measurements.processes import programs

FloatArray = NDArray[np.float64]

# Words of 8 bytes that a kernel reads and writes for each element, as STREAM counts them.
WORDS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}

# The compiler's own copy loop would become a call of memcpy, which is another measurement.
_PLAIN_LOOPS = ("-fno-builtin", "-fno-tree-loop-distribute-patterns")
_FLAGS = (("-O3", "-march=native", *_PLAIN_LOOPS), ("-O3",))
_TIMEOUT_S = 60.0
_NO_MEMORY = 3
_LEAST_ROUNDS, _MOST_ROUNDS = 3, 100
_SCALAR = 3.0
# Half of a small second-level cache, so that what triad keeps between two calls stays there.
_BLOCK = 16384

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
    """Bytes per second of one kernel: of its best repeat and of the median one."""

    best_bytes_s: float
    median_bytes_s: float
    repeats: int


class Latency(NamedTuple):
    """Seconds of one dependent load: of the best repeat and of the median one."""

    best_s: float
    median_s: float
    repeats: int
    huge_page_share: float  # of the buffer that huge pages backed, NaN if not known


@dataclass(frozen=True, kw_only=True)
class MemoryProbe:
    """Bandwidth and latency of a host's memory, and how they were measured."""

    # By kernel: "copy" c = a, "scale" b = s·c, "add" c = a + b, "triad" a = b + s·c.
    bandwidth: Mapping[str, Bandwidth]
    # With pages of the base size: page-table walks are part of it, as in most programs. None where
    # it cannot be measured.
    latency: Latency | None
    # With transparent huge pages, so nearly the memory's own. None where the kernel gives none.
    latency_huge_pages: Latency | None
    # Size of each of the three arrays, and of the buffer of the chase (0 without one).
    array_bytes: int
    chase_bytes: int
    huge_page_share: float  # share of the arrays that huge pages backed; NaN if not known
    cpus: tuple[int, ...]  # a thread ran on each; the chase on the first
    method: str  # "C" with compiler and flags, or "numpy"
    notes: tuple[str, ...]  # what is missing and how to get it, and what disturbed

    def to_columns(self) -> dict[str, float]:
        """Make columns of the runs table (B/s and s, best repeats); NaN for what is missing."""
        huge = self.latency_huge_pages
        return {
            "memory_bandwidth_bytes_s": self.bandwidth["triad"].best_bytes_s,
            "memory_latency_s": self.latency.best_s if self.latency else math.nan,
            "memory_latency_huge_pages_s": huge.best_s if huge else math.nan,
        }


def probe_memory(
    *,
    cpus: Collection[int] | None = None,
    array_bytes: int | None = None,
    chase_bytes: int | None = None,
    budget_s: float = 1.0,
    compilers: Sequence[str] = programs.COMPILERS,
    sysfs: Path = Path("/sys"),
    procfs: Path = Path("/proc"),
) -> MemoryProbe:
    """Measure bandwidth and latency of this host's memory, in about two seconds.

    Nothing else should run meanwhile. A C program is compiled into a temporary folder; where that
    cannot be, numpy measures the bandwidth and the latency is missing, and ``notes`` says why.

    ``cpus`` are by default those allowed to this process, as many as its CPU quota gives. Each of
    three arrays has ``array_bytes``: by default four times the last-level caches of ``cpus``, at
    least 64 MiB, at most 4 GiB, and less where less than twice as much memory is free. The buffer
    that is chased through has ``chase_bytes``: by default four times the largest single last-level
    cache, at least 64 MiB, at most 1 GiB; a smaller one tells a cache's latency. Measuring takes
    ``budget_s`` (s), setting up comes on top. Of ``compilers`` the first that is there is used;
    without any, numpy. Raises `MeasurementError` when too little memory is free to get past the
    caches, or it runs out meanwhile, and for CPUs that are not allowed.
    """
    chosen, notes = _choose_cpus(cpus, procfs, sysfs)
    cache = last_level_cache(sysfs, chosen)
    if not cache.total_bytes:
        notes.append(
            f"the kernel does not say how large the caches are: {_UNKNOWN_CACHE_BYTES // _MIB} MiB "
            "assumed"
        )
    room = int(_SHARE_OF_MEMORY * available_memory(procfs, sysfs))
    array = array_bytes or _array_bytes(cache, room)
    chase = chase_bytes or _chase_bytes(cache, room)
    base = huge = None
    with tempfile.TemporaryDirectory(prefix="ppw-probe-") as folder:
        try:
            program, how = _compile(Path(folder), compilers)
            listed = ",".join(map(str, chosen))
            arrays = _run_probe(
                program, "bandwidth", array, f"{_BANDWIDTH_SHARE * budget_s:g}", listed
            )
            base, huge = (
                _chase(program, chase, cache.line_bytes, pages, chosen[0], budget_s)
                for pages in ("base", "huge")
            )
        except _CannotCompileError as error:
            arrays = bandwidth_by_numpy(array, chosen, _BANDWIDTH_SHARE * budget_s)
            chase, how = 0, "numpy"
            notes.append(
                f"memory latency is not measured, and bandwidth is measured with numpy: {error}"
            )
    bandwidth = {}
    for name, words in WORDS.items():
        seconds, moved = arrays.seconds[name], words * 8 * (array // 8)
        median = moved / statistics.median(seconds)
        bandwidth[name] = Bandwidth(moved / min(seconds), median, len(seconds))
    if huge and not huge.huge_page_share >= _HUGE:
        notes.append(_no_huge_pages_note(huge.huge_page_share, sysfs))
        huge = None
    notes += _unsteady_notes(bandwidth.values(), [latency for latency in (base, huge) if latency])
    return MemoryProbe(
        bandwidth=bandwidth,
        latency=base,
        latency_huge_pages=huge,
        array_bytes=array,
        chase_bytes=chase,
        huge_page_share=arrays.huge_page_share,
        cpus=tuple(chosen),
        method=how,
        notes=tuple(notes),
    )


def _choose_cpus(
    wanted: Collection[int] | None, procfs: Path, sysfs: Path
) -> tuple[list[int], list[str]]:
    """Choose CPUs within affinity and quota; also the notes on them."""
    allowed = os.sched_getaffinity(0)
    if wanted is not None:
        if not wanted or not set(wanted) <= allowed:
            asked, listed = cpu_list_text(wanted) or "none", cpu_list_text(allowed) or "none"
            raise MeasurementError(
                f"memory probe: CPUs {asked} asked for, but this process may use "
                f"only {listed}: choose among them, or widen its cpuset"
            )
        return sorted(set(wanted)), []
    quota = cpu_quota(procfs, sysfs)
    if quota >= len(allowed):
        return sorted(allowed), []
    threads = max(1, math.floor(quota))
    note = f"the control group's quota is {quota:.3g} CPUs: measured with {threads} of them"
    return sorted(allowed)[:threads], [note]


def _array_bytes(cache: LastLevelCache, room: int) -> int:
    """Choose the bytes of each array, past the caches; raise where free memory is too small."""
    total = cache.total_bytes or _UNKNOWN_CACHE_BYTES
    wanted = min(max(_TIMES_CACHE * total, _LEAST_BYTES), _MOST_ARRAY_BYTES)
    size = min(wanted, room // 3 // 8 * 8)
    # All three together must leave little of themselves in the caches.
    if 3 * size < _TIMES_CACHE * total:
        raise _too_little_memory_error(room, _TIMES_CACHE * total, "three arrays")
    return size


def _chase_bytes(cache: LastLevelCache, room: int) -> int:
    """Choose the bytes of the chase's buffer, past the caches; raise where memory is too small."""
    largest = cache.largest_bytes or _UNKNOWN_CACHE_BYTES
    wanted = min(max(_TIMES_CACHE * largest, _LEAST_BYTES), _MOST_CHASE_BYTES)
    size = min(wanted, int(room / _CHASE_ROOM))
    if size < 2 * largest:
        raise _too_little_memory_error(room, int(2 * largest * _CHASE_ROOM), "a buffer")
    return size


def _too_little_memory_error(room: int, needed: int, what: str) -> MeasurementError:
    free = room / _SHARE_OF_MEMORY
    return MeasurementError(
        f"memory probe: {free / _MIB:.4g} MiB of memory are free, half of which may be used, and "
        f"{what} past the caches take {needed / _MIB:.4g} MiB: stop what else takes memory, raise "
        "the control group's limit, or measure without --probe-memory"
    )


class _CannotCompileError(MeasurementError):
    """The C program cannot be made or started on this host; the message has the remedy."""


class _Repeats(NamedTuple):
    """Seconds of each repeat, by kernel, and the share of huge pages (NaN if not known)."""

    seconds: dict[str, list[float]]
    huge_page_share: float


def _compile(folder: Path, compilers: Sequence[str]) -> tuple[Path, str]:
    """Compile the program with the first compiler of this host; also how it was compiled."""
    reason: MeasurementError | None = None
    for flags in _FLAGS:
        program = folder / "memory_probe"
        try:
            programs.compile_c(
                "measurements.host",
                "memory_probe.c",
                program,
                flags=(*flags, "-pthread"),
                compilers=compilers,
            )
        except MeasurementError as error:
            reason = error
        else:
            compiler = Path(programs.find_compiler(compilers)).name
            return program, f"C, {compiler} {' '.join(flags)}"
    raise _CannotCompileError(str(reason)) from reason


def _chase(program: Path, size: int, stride: int, pages: str, cpu: int, budget_s: float) -> Latency:
    """Time loads that follow pointers through a buffer, one load for each cache line (s)."""
    repeats = _run_probe(
        program, "latency", size, stride, pages, f"{_CHASE_SHARE * budget_s:g}", cpu
    )
    loads = repeats.seconds["chase"]
    return Latency(min(loads), statistics.median(loads), len(loads), repeats.huge_page_share)


def _run_probe(program: Path, *arguments: object) -> _Repeats:
    try:
        done = programs.ask([str(program), *map(str, arguments)], timeout_s=_TIMEOUT_S)
    except PermissionError as error:
        raise _CannotCompileError(
            f"programs cannot run from {program.parent} (mounted noexec?): set TMPDIR to a folder "
            "from which they can"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(
            f"memory probe: {program.name} took more than {_TIMEOUT_S:g} s: measure without "
            "--probe-memory"
        ) from error
    if done.returncode in (_NO_MEMORY, -signal.SIGKILL):
        raise MeasurementError(
            "memory probe: memory ran out during the measurement: stop other "
            "programs that use memory, or measure without --probe-memory"
        )
    if done.returncode:
        raise MeasurementError(
            f"memory probe: the program ended with {done.returncode} "
            f"({programs.complaint(done.stderr)}): measure without --probe-memory"
        )
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()]
    figures = {name: [float(word) for word in words] for name, *words in lines}
    (share,) = figures.pop("huge_pages")
    return _Repeats(figures, share if share >= 0 else math.nan)


def bandwidth_by_numpy(array_bytes: int, cpus: Sequence[int], budget_s: float) -> _Repeats:
    """Run the four kernels by numpy, which releases the lock while it works; a thread per CPU."""
    team = _Team(len(cpus), budget_s)
    elements = max(1, array_bytes // 8 // len(cpus))
    with ThreadPoolExecutor(len(cpus)) as pool:
        parts = [pool.submit(team.run, at, cpu, elements) for at, cpu in enumerate(cpus)]
    errors = [error for part in parts if (error := part.exception())]
    if any(isinstance(error, MemoryError) for error in errors):
        raise MeasurementError("memory probe: memory ran out: measure without --probe-memory")
    for error in errors:
        raise error
    return _Repeats({name: times[1:] for name, times in team.seconds.items()}, math.nan)


class _Team:
    """Threads that run each kernel together; the first of them measures the time."""

    def __init__(self, threads: int, budget_s: float) -> None:
        self.barrier = threading.Barrier(threads)
        self.budget_s = budget_s
        self.seconds: dict[str, list[float]] = {name: [] for name in WORDS}
        self.going = True

    def run(self, thread: int, cpu: int, elements: int) -> None:
        """Run the kernels on one CPU in step with the other threads, until the time is up."""
        try:
            # Of this thread alone; the pool's threads end with the measurement.
            os.sched_setaffinity(0, {cpu})
            # Whoever works on a page touches it first: it then lies at that CPU's memory node.
            kernels = _numpy_kernels(*(np.full(elements, value) for value in (1.0, 2.0, 0.0)))
            self.barrier.wait()
            until = time.perf_counter() + self.budget_s
            while self.going:
                for name, kernel in kernels.items():
                    self._time_kernel(thread, name, kernel)
                if thread == 0:
                    rounds = len(self.seconds["triad"])
                    late = time.perf_counter() > until and rounds >= _LEAST_ROUNDS
                    self.going = not late and rounds < _MOST_ROUNDS
                self.barrier.wait()
        except threading.BrokenBarrierError:
            return
        except BaseException:
            self.barrier.abort()
            raise

    def _time_kernel(self, thread: int, name: str, kernel: Callable[[], object]) -> None:
        """Run a kernel together with the other threads; thread 0 keeps the time (s)."""
        self.barrier.wait()
        start = time.perf_counter()
        kernel()
        self.barrier.wait()
        if thread == 0:
            self.seconds[name].append(time.perf_counter() - start)


def _numpy_kernels(a: FloatArray, b: FloatArray, c: FloatArray) -> dict[str, Callable[[], object]]:
    scratch = np.empty(_BLOCK)

    def triad() -> None:
        # In blocks: a whole array between the two steps would be written and read again.
        for first in range(0, len(a), _BLOCK):
            part = slice(first, first + _BLOCK)
            product = np.multiply(c[part], _SCALAR, out=scratch[: len(c[part])])
            np.add(b[part], product, out=a[part])

    return {
        "copy": lambda: np.copyto(c, a),
        "scale": lambda: np.multiply(c, _SCALAR, out=b),
        "add": lambda: np.add(a, b, out=c),
        "triad": triad,
    }


def _no_huge_pages_note(share: float, sysfs: Path) -> str:
    setting = read_field(sysfs / "kernel/mm/transparent_hugepage/enabled")
    backed = f"they backed {share:.0%} of the buffer" if share >= 0 else "it does not say how many"
    return (
        f"no latency with huge pages, because the kernel gave too few of them ({backed}; "
        f"transparent_hugepage is {setting or 'absent'}): set it to madvise, or free memory"
    )


def _unsteady_notes(rates: Collection[Bandwidth], latencies: Collection[Latency]) -> list[str]:
    off = [1 - rate.median_bytes_s / rate.best_bytes_s for rate in rates]
    off += [latency.median_s / latency.best_s - 1 for latency in latencies]
    if max(off) <= _UNSTEADY:
        return []
    return [
        f"the median repeat is up to {max(off):.0%} worse than the best: something else uses this "
        "memory; stop it and probe again"
    ]
