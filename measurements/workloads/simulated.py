"""Runs of small programs on simulated cores at any clock: rows of the runs table.

The simulator is rvsim, which models every cycle of a RISC-V core, its caches and DDR5 memory whose
timings are in nanoseconds, so that the core's clock changes what it costs to wait for memory. The
same run gives the same figures to the last cycle. They are simulated: not of hardware, and
without watts.

::

    python -m measurements.simulated -o runs.csv     # all kernels, cores and clocks
"""

from __future__ import annotations

import ctypes
import os
import signal
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.errors import MeasurementError
from measurements.quantities import frequency_text
from measurements.simulated.cores import CORES, core_named, rvsim
from measurements.simulated.kernels import KERNELS
from measurements.simulated.programs import Program, check_program, program_of
from measurements.workloads.reaper import Reaper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rvsim import Simulator
    from rvsim._core import Stats

FREQUENCIES_HZ = (0.8e9, 1.2e9, 1.6e9, 2.0e9, 2.4e9, 3.2e9, 4.0e9)
SOURCE = "simulated"
# What the counts of a row are of.
MARKED, WHOLE = "marked", "whole program"

_LOWEST_HZ, _HIGHEST_HZ = 100e6, 10e9
_LINE_BYTES = 64
# An hour or two of simulation; the longest kernel takes 20 million cycles.
_MOST_CYCLES = 2_000_000_000
_BEGIN, _END = 1, 2
# PR_SET_PDEATHSIG of linux/prctl.h.
_DEATH_SIGNAL = 1


def simulate(program: Program, core: str, freq_hz: float) -> dict[str, Any]:
    """Simulate one run of a program: one row of the runs table.

    Parameters
    ----------
    program : Program
        As `measurements.simulated.programs.program_of` makes it.
    core : str
        One of `CORES`: "inorder" or "o3".
    freq_hz : float
        Clock of the core (Hz), a whole number of MHz from 100 MHz to 10 GHz.

    Returns
    -------
    dict
        ``host``, ``family``, ``workload``, ``freq_hz``, ``cores``, ``data_bytes``, ``time_s``
        (cycles over clock), ``instructions``, ``cycles``, ``cpi``, ``llc_misses`` (prefetched
        lines among them), ``branch_mispredictions``, ``memory_read_bytes``,
        ``memory_written_bytes``; ``region``: whether they are of the region between the program's
        marks alone, as those of all kernels, or of a program without marks from its entry to its
        exit; ``power_source`` ("simulated", and there are no watts), ``simulator``, ``compiler``.

    Raises
    ------
    MeasurementError
        For an unknown core, a clock that cannot be, a program that fails or does not end, or when
        rvsim is missing.
    """
    model, clock_mhz = core_named(core), _whole_mhz(freq_hz)
    what = f"{program.name} on {core} at {frequency_text(freq_hz)}"
    try:
        simulator = rvsim().Simulator(model.config(clock_mhz), binary=str(program.elf))
        if program.checkpoint is not None:
            simulator.restore(str(program.checkpoint))
    except (OSError, RuntimeError) as error:
        raise MeasurementError(f"{what}: {program.elf} cannot be loaded: {error}") from error
    region, counted = _counted(simulator, what)
    cycles, instructions = counted.cycles, counted.instructions_retired
    if not instructions:
        raise MeasurementError(f"{what}: no instruction was retired in the region that is measured")
    return {
        "host": model.host,
        "family": model.family,
        "workload": program.name,
        "freq_hz": clock_mhz * 1e6,
        "cores": 1,
        "data_bytes": program.data_bytes,
        "time_s": cycles / (clock_mhz * 1e6),
        "instructions": instructions,
        "cycles": cycles,
        "cpi": cycles / instructions,
        "llc_misses": int(counted[f"{model.last_level}.misses"]),
        "branch_mispredictions": int(counted["core0.bp.committed.mispredicts"]),
        "memory_read_bytes": _LINE_BYTES * int(counted.query("memctrl0.*.*.reads").sum()),
        "memory_written_bytes": _LINE_BYTES * int(counted.query("memctrl0.*.*.writes").sum()),
        "region": region,
        "power_source": SOURCE,
        "simulator": f"rvsim {rvsim().version()}",
        "compiler": program.compiler,
    }


class Cell(NamedTuple):
    """One run of a sweep."""

    program: str
    core: str
    freq_hz: float


def simulate_sweep(
    programs: Sequence[str] = tuple(KERNELS),
    cores: Sequence[str] = tuple(CORES),
    frequencies_hz: Sequence[float] = FREQUENCIES_HZ,
    *,
    processes: int = 2,
    data_bytes: int | None = None,
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Simulate each program on each core at each clock, several at a time.

    Parameters
    ----------
    programs : sequence of str
        Kernels by name, or paths of ELF files for the bare machine.
    cores : sequence of str
    frequencies_hz : sequence of float
    processes : int
        How many are simulated at once; each takes some 300 MB.
    data_bytes : int, optional
        Data that the ELF files work on.

    Yields
    ------
    Cell, dict
        What was asked and its row, as `simulate` gives it, in the order of the arguments.

    Raises
    ------
    MeasurementError
        As for `simulate`, or when there is no such program, two have one name, or the compiler is
        missing; before anything is simulated where that can be.
    """
    cells = [Cell(p, c, f) for p in programs for c in cores for f in frequencies_hz]
    for cell in cells:
        core_named(cell.core), _whole_mhz(cell.freq_hz)
    _refuse_namesakes(programs)
    rvsim()
    with Reaper() as reaper:
        folder = reaper.folder()
        ready = {asked: program_of(asked, folder, data_bytes) for asked in programs}
        yield from _in_processes(cells, ready, processes)


def _refuse_namesakes(programs: Sequence[str]) -> None:
    asked_by_name: dict[str, str] = {}
    for asked in programs:
        name = check_program(asked)
        if name in asked_by_name:
            raise MeasurementError(
                f"{asked_by_name[name]} and {asked} would both be workload {name!r}: give each "
                "once, and files by different names"
            )
        asked_by_name[name] = asked


def _in_processes(
    cells: Sequence[Cell], programs: Mapping[str, Program], processes: int
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    # Spawned, so that they hold nothing of this process; rvsim keeps the interpreter's lock.
    pool = ProcessPoolExecutor(
        min(processes, len(cells)), get_context("spawn"), _end_with, (os.getpid(),)
    )
    try:
        asked = [(c, pool.submit(simulate, programs[c.program], c.core, c.freq_hz)) for c in cells]
        for cell, made in asked:
            yield cell, made.result()
    except BrokenExecutor as error:
        raise MeasurementError(
            f"a simulating process was killed: is there memory for {processes} of 300 MB each?"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with(parent: int) -> None:
    """Let a simulating process end with its parent, even one that is killed.

    The kernel must do it: no thread of this process runs while rvsim has the interpreter's lock.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _counted(simulator: Simulator, what: str) -> tuple[str, Stats]:
    """Counters of the region between the program's marks, or of all of it where it has none."""
    code = simulator.run(limit=_MOST_CYCLES)
    if code is None:
        raise MeasurementError(
            f"{what}: the program does not exit within {_MOST_CYCLES:,} cycles: give it less to "
            "do, and let it end as docs/simulated.md says"
        )
    if code != 0:
        raise MeasurementError(
            f"{what}: the program fails with exit code {code}: its result is wrong, or the core "
            "trapped and has said why above"
        )
    marks = {mark for mark, _ in simulator.stats_dumps}
    if {_BEGIN, _END} <= marks:
        return MARKED, simulator.stats_between(_BEGIN, _END)
    if marks & {_BEGIN, _END}:
        raise MeasurementError(f"{what}: the program marks one end of a region and not the other")
    return WHOLE, simulator.stats


def _whole_mhz(freq_hz: float) -> int:
    mhz = round(freq_hz / 1e6)
    if not _LOWEST_HZ <= freq_hz <= _HIGHEST_HZ or abs(freq_hz / 1e6 - mhz) > 1e-6 * mhz:
        raise MeasurementError(
            f"a simulated core cannot have a clock of {frequency_text(freq_hz)}: give a whole "
            "number of MHz from 100 MHz to 10 GHz"
        )
    return mhz
