"""The timed loops of the memory probe: as a C program compiled on the spot, or by numpy.

Both give seconds of single repeats, the first of each left out: it fills caches and wakes clocks.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from measurements.asking import ask
from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

SOURCE = "memory_probe.c"
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


class CannotCompileError(MeasurementError):
    """The C program cannot be made or started on this host; the message has the remedy."""


class Timed(NamedTuple):
    """Seconds of each repeat, by kernel, and the share of the memory backed by huge pages.

    The share is NaN where it is not known.
    """

    seconds: dict[str, list[float]]
    huge_page_share: float


class CompiledKernels(NamedTuple):
    """The program ``memory_probe.c``, compiled."""

    path: Path
    how: str

    @classmethod
    def compile(cls, folder: Path, compilers: Sequence[str]) -> CompiledKernels:
        """Compile into ``folder`` with the first of the compilers that this host has.

        Raises
        ------
        CannotCompileError
            When there is none, or it cannot make programs.
        """
        compiler = next((found for name in compilers if (found := shutil.which(name))), None)
        if compiler is None:
            raise CannotCompileError(
                "no C compiler on this host (apt install gcc libc6-dev, or its like)"
            )
        program = folder / "memory_probe"
        said = ""
        with resources.as_file(resources.files("measurements") / SOURCE) as source:
            for flags in _FLAGS:
                command = [compiler, "-std=gnu11", *flags, "-pthread", "-o", program, source]
                code, _, said = _run([str(word) for word in command])
                if code == 0:
                    return cls(program, f"C, {Path(compiler).name} {' '.join(flags)}")
        raise CannotCompileError(
            f"{compiler} cannot make programs: {_complaint(said)} (apt install gcc libc6-dev, or "
            "its like)"
        )

    def bandwidth(self, array_bytes: int, cpus: Sequence[int], budget_s: float) -> Timed:
        """Run the four kernels over three arrays, a thread a CPU."""
        listed = ",".join(map(str, cpus))
        return self._timed("bandwidth", str(array_bytes), f"{budget_s:g}", listed)

    def latency(
        self,
        buffer_bytes: int,
        line_bytes: int,
        pages: Literal["base", "huge"],
        cpu: int,
        budget_s: float,
    ) -> Timed:
        """Chase pointers through a buffer, a line a load; the kernel's name is "chase"."""
        sizes = str(buffer_bytes), str(line_bytes)
        return self._timed("latency", *sizes, pages, f"{budget_s:g}", str(cpu))

    def _timed(self, *arguments: str) -> Timed:
        try:
            code, printed, said = _run([str(self.path), *arguments])
        except PermissionError as error:
            raise CannotCompileError(
                f"{self.path.parent} takes no programs (mounted noexec?): set TMPDIR to a folder "
                "that does"
            ) from error
        if code in (_NO_MEMORY, -signal.SIGKILL):
            raise MeasurementError(
                "memory probe: memory ran out while it was measured: stop what else takes it, or "
                "measure without --probe-memory"
            )
        if code:
            raise MeasurementError(
                f"memory probe: the program ended with {code} ({_complaint(said)}): measure "
                "without --probe-memory"
            )
        return _parse(printed)


def _run(command: list[str]) -> tuple[int, str, str]:
    try:
        done = ask(command, timeout_s=_TIMEOUT_S, environment={**os.environ, "LC_ALL": "C"})
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(
            f"memory probe: {Path(command[0]).name} took more than {_TIMEOUT_S:g} s: measure "
            "without --probe-memory"
        ) from error
    return done.returncode, done.stdout, done.stderr


def _complaint(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    first = next((line for line in lines if "error" in line), lines[0] if lines else "no reason")
    return first[:200]


def _parse(printed: str) -> Timed:
    figures = {
        words[0]: [float(word) for word in words[1:]]
        for words in map(str.split, printed.splitlines())
        if words
    }
    (share,) = figures.pop("huge_pages")
    return Timed(figures, share if share >= 0 else float("nan"))


def bandwidth_by_numpy(array_bytes: int, cpus: Sequence[int], budget_s: float) -> Timed:
    """Run the four kernels by numpy, which has no lock on while it works, a thread a CPU.

    Raises
    ------
    MeasurementError
        When memory runs out.
    """
    race = _Race(len(cpus), budget_s)
    elements = max(1, array_bytes // 8 // len(cpus))
    with ThreadPoolExecutor(len(cpus)) as pool:
        parts = [pool.submit(race.run, at, cpu, elements) for at, cpu in enumerate(cpus)]
    errors = [error for part in parts if (error := part.exception())]
    if any(isinstance(error, MemoryError) for error in errors):
        raise MeasurementError("memory probe: memory ran out: measure without --probe-memory")
    for error in errors:
        raise error
    seconds = {name: times[1:] for name, times in race.seconds.items()}
    return Timed(seconds, float("nan"))


class _Race:
    """Threads that run each kernel together; the first of them holds the clock."""

    def __init__(self, threads: int, budget_s: float) -> None:
        self.barrier = threading.Barrier(threads)
        self.budget_s = budget_s
        self.seconds: dict[str, list[float]] = {name: [] for name in WORDS}
        self.going = True

    def run(self, thread: int, cpu: int, elements: int) -> None:
        """Take part until the time is up."""
        import numpy as np

        try:
            # Of this thread alone; the pool's threads end with the measurement.
            os.sched_setaffinity(0, {cpu})
            # Whoever works on a page touches it first: it then lies at that CPU's memory node.
            a, b, c = (np.full(elements, value) for value in (1.0, 2.0, 0.0))
            kernels = _kernels(a, b, c)
            self.barrier.wait()
            until = time.perf_counter() + self.budget_s
            while self.going:
                for name, kernel in kernels.items():
                    self._together(thread, name, kernel)
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

    def _together(self, thread: int, name: str, kernel: Callable[[], object]) -> None:
        self.barrier.wait()
        start = time.perf_counter()
        kernel()
        self.barrier.wait()
        if thread == 0:
            self.seconds[name].append(time.perf_counter() - start)


def _kernels(a: FloatArray, b: FloatArray, c: FloatArray) -> dict[str, Callable[[], object]]:
    import numpy as np

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
