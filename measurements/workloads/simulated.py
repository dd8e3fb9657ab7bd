"""Runs of small programs on simulated cores at any frequency: rows of the runs table.

The simulator is rvsim, which models every cycle of a RISC-V core, its caches and DDR5 memory whose
timings are in nanoseconds, so that the core frequency changes what a wait for memory costs. The
same run gives the same figures to the last cycle. They are simulated: not of hardware, and
without power.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from importlib import resources
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.errors import MeasurementError, install_command
from measurements.processes import cleanup_process, programs
from measurements.table import headers, units

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from types import ModuleType

    from rvsim import Config, Simulator
    from rvsim._core import Stats


class Core(NamedTuple):
    """A simulated core."""

    name: str
    family: str  # as in the runs table
    last_level: str  # last-level cache, by rvsim's path of its counters
    config: Callable[[int], Config]  # rvsim's configuration at a core frequency in MHz

    @property
    def host(self) -> str:
        """Name in the runs table."""
        return f"simulated-{self.name}"


def _refuse_unknown(what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise MeasurementError(
            f"{what} {name!r}: not one of {', '.join(known)}{headers.nearest(name, list(known))}"
        )


def rvsim() -> ModuleType:
    """Import the simulator. Raises `MeasurementError` when it is not installed."""
    try:
        import rvsim
    except ImportError as error:
        raise MeasurementError(
            f"simulated cores need rvsim ({error}): {install_command('rvsim')}, on Linux on x86-64"
        ) from error
    return rvsim


def _core_config(clock_mhz: int, *, l1i_ways: int, **rest: Any) -> Config:
    rv = rvsim()
    following = rv.Prefetcher.NextLine(degree=1)
    return rv.Config(
        l1i=rv.Cache("32KB", ways=l1i_ways, latency=1, prefetcher=following),
        # Its timings are in nanoseconds; those of rvsim's other controllers are in core cycles.
        memory_controller=rv.MemoryController.DDR5(),
        cpu_clock_mhz=clock_mhz,
        uart_quiet=True,
        **rest,
    )


# Widths, queues and caches are of the size that Intel's Optimization Reference Manual gives for its
# cores Bonnell (Atom, 2008) and Nehalem (Xeon, 2009, with one core's share of the third-level
# cache). They are models of such cores and not those products: the instruction set is RISC-V, and
# programs run on the bare machine, without operating system or address translation.


def _in_order_config(clock_mhz: int) -> Config:
    rv = rvsim()
    return _core_config(
        clock_mhz,
        width=2,
        backend=rv.Backend.InOrder(),
        branch_predictor=rv.BranchPredictor.GShare(),
        btb_size=128,
        ras_size=8,
        l1i_ways=8,
        l1d=rv.Cache("24KB", ways=6, latency=2, mshr_count=4),
        l2=rv.Cache("512KB", ways=8, latency=14, mshr_count=8),
    )


def _out_of_order_config(clock_mhz: int) -> Config:
    rv = rvsim()
    stride = rv.Prefetcher.Stride(degree=2, table_size=64)
    stream = rv.Prefetcher.Stream(degree=2)
    return _core_config(
        clock_mhz,
        width=4,
        backend=rv.Backend.OutOfOrder(
            rob_size=128,
            issue_queue_size=36,
            load_queue_size=48,
            store_buffer_size=32,
            load_ports=1,
            store_ports=1,
        ),
        branch_predictor=rv.BranchPredictor.TAGE(),
        btb_size=4096,
        ras_size=16,
        l1i_ways=4,
        l1d=rv.Cache("32KB", ways=8, latency=3, mshr_count=10, prefetcher=stride),
        l2=rv.Cache("256KB", ways=8, latency=9, mshr_count=16, prefetcher=stream),
        l3=rv.Cache("2MB", ways=16, latency=28, mshr_count=32),
    )


_MODELS = (
    Core("inorder", "rvsim in-order", "core0.cache.l2", _in_order_config),
    Core("o3", "rvsim out-of-order", "llc", _out_of_order_config),
)
CORES = {core.name: core for core in _MODELS}

_KIB = 1024

# Small C programs in the spirit of the workloads that servers run: the name of the source file and
# of the workload, and the data that it works on (B).
KERNELS = {
    "word_count": 128 * _KIB,
    "sort": 192 * _KIB,
    "hash_table_get": 34816 * _KIB,
    "kmeans": 96_000,
    "inverted_index": 1808 * _KIB,
    "pointer_chase": 8192 * _KIB,
    "stream": 3072 * _KIB,
}

COMPILER = "riscv64-unknown-elf-gcc"
OPTIMISATION = "-O2"

_FLAGS = (
    *("-std=gnu11", OPTIMISATION, "-march=rv64gc", "-mabi=lp64d", "-mcmodel=medany"),
    *("-ffreestanding", "-fno-builtin", "-nostdlib", "-static"),
)
_TIMEOUT_S = 60.0
# The longest preparation takes some ten million.
_MOST_PROGRAM_CYCLES = 60_000_000
# First bytes of an ELF file of 64 bits, little-endian, and its e_machine for RISC-V.
_ELF_64, _RISC_V = b"\x7fELF\x02\x01", (243).to_bytes(2, "little")
_MACHINE_AT = 18


class Program(NamedTuple):
    """A program ready to be run."""

    name: str  # as in the runs table
    elf: Path
    # Registers and memory where a kernel's preparation ends; they do not depend on the core.
    # Without a checkpoint the program runs from its entry on.
    checkpoint: Path | None = None
    compiler: str | None = None  # name and version, where known
    data_bytes: int | None = None  # data that it works on, where known


def check_program(asked: str) -> str:
    """Name of a kernel, or of an ELF file for RISC-V. Raises `MeasurementError` otherwise."""
    if asked in KERNELS:
        return asked
    path = Path(asked)
    try:
        with path.open("rb") as file:
            header = file.read(_MACHINE_AT + 2)
    except FileNotFoundError:
        raise MeasurementError(
            f"program {asked!r}: neither a kernel ({', '.join(KERNELS)}) nor a file"
            f"{headers.nearest(asked, list(KERNELS))}"
        ) from None
    except OSError as error:
        raise MeasurementError(f"{asked}: cannot be read: {error.strerror}") from error
    if not header.startswith(_ELF_64) or header[_MACHINE_AT:] != _RISC_V:
        raise MeasurementError(
            f"{asked}: not an ELF file for RISC-V of 64 bits: build it for the bare machine by "
            f"{COMPILER}, as docs/simulated.md says"
        )
    return path.stem


def program_of(asked: str, folder: Path, data_bytes: int | None = None) -> Program:
    """Prepare a kernel, or take a file as it is."""
    name = check_program(asked)
    if asked in KERNELS:
        return prepare(asked, folder)
    return Program(name, Path(asked), data_bytes=data_bytes)


def prepare(kernel: str, folder: Path) -> Program:
    """Compile a kernel into a folder and simulate its preparation, once for all its runs."""
    rv = rvsim()
    elf, compiler = compile_kernel(kernel, folder)
    # The speed of the core that prepares does not matter.
    core = rv.Config(
        width=4,
        backend=rv.Backend.OutOfOrder(),
        l1i=rv.Cache("32KB", ways=8, latency=1),
        l1d=rv.Cache("32KB", ways=8, latency=1),
        l2=None,
        memory_controller=rv.MemoryController.Simple(latency=0, bandwidth_gib_s=10000),
        uart_quiet=True,
    )
    simulator = rv.Simulator(core, binary=str(elf))
    stopped, _ = simulator.run_to(cycles=_MOST_PROGRAM_CYCLES)
    if stopped != "break":
        raise MeasurementError(
            f"{kernel}: its preparation does not end within {_MOST_PROGRAM_CYCLES:,} cycles: "
            "reinstall perf-per-watt and rvsim"
        )
    checkpoint = folder / f"{kernel}.checkpoint"
    simulator.save(str(checkpoint))
    return Program(kernel, elf, checkpoint, compiler, KERNELS[kernel])


def compile_kernel(kernel: str, folder: Path) -> tuple[Path, str]:
    """Compile a kernel into a folder: the program, and the compiler with its version."""
    _refuse_unknown("kernel", kernel, KERNELS)
    compiler = shutil.which(COMPILER)
    if compiler is None:
        raise MeasurementError(
            f"no {COMPILER} on this host, which simulated kernels are compiled by: apt install "
            "gcc-riscv64-unknown-elf, or its like"
        )
    elf = folder / f"{kernel}.elf"
    with resources.as_file(resources.files("measurements.workloads") / "kernels") as sources:
        layout, files = sources / "layout.ld", [sources / f"{kernel}.c", sources / "start.c"]
        _ask_compiler(compiler, *_FLAGS, "-T", str(layout), "-o", str(elf), *map(str, files))
    version = _ask_compiler(compiler, "-dumpfullversion").strip()
    return elf, f"{COMPILER} {version} {OPTIMISATION}"


def _ask_compiler(*command: str) -> str:
    """Output of a command of the compiler."""
    wrong = f"{command[0]} cannot compile the kernels"
    remedy = ": apt install --reinstall gcc-riscv64-unknown-elf"
    return programs.run_or_refuse(command, wrong, remedy=remedy, timeout_s=_TIMEOUT_S)


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

    ``core`` is one of `CORES`, "inorder" or "o3"; ``freq_hz`` is the core frequency (Hz), a whole
    number of MHz from 100 MHz to 10 GHz. In the row ``time_s`` is cycles over frequency; prefetched
    lines are among ``llc_misses``. ``region`` says whether the counts are of the region between the
    program's marks alone, as those of all kernels, or of a program without marks from its entry to
    its exit. There is no power.

    Raises `MeasurementError` for an unknown core, an impossible frequency, a program that fails or
    does not end, or when rvsim is missing.
    """
    _refuse_unknown("core", core, CORES)
    model, clock_mhz = CORES[core], _whole_mhz(freq_hz)
    what = f"{program.name} on {core} at {units.frequency_text(freq_hz)}"
    try:
        simulator = rvsim().Simulator(model.config(clock_mhz), binary=str(program.elf))
        if program.checkpoint is not None:
            simulator.restore(str(program.checkpoint))
    except (OSError, RuntimeError) as error:
        raise MeasurementError(f"{what}: {program.elf} cannot be loaded: {error}") from error
    region, counted = _run_region(simulator, what)
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


class SimulatedRun(NamedTuple):
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
) -> Iterator[tuple[SimulatedRun, dict[str, Any]]]:
    """Simulate each program on each core at each frequency, several at a time.

    Programs are kernels by name, or paths of ELF files for the bare machine, which work on
    ``data_bytes``. Each of the processes takes some 300 MB. Yields each cell and its row, as
    `simulate` gives it, in the order of the arguments.

    Raises `MeasurementError` as `simulate`, or when there is no such program, two have one name, or
    the compiler is missing; before anything is simulated where that can be.
    """
    cells = [SimulatedRun(p, c, f) for p in programs for c in cores for f in frequencies_hz]
    for cell in cells:
        _refuse_unknown("core", cell.core, CORES)
        _whole_mhz(cell.freq_hz)
    _refuse_namesakes(programs)
    rvsim()
    with cleanup_process.CleanupProcess() as reaper:
        folder = reaper.folder()
        ready = {asked: program_of(asked, folder, data_bytes) for asked in programs}
        yield from _simulate_in_processes(cells, ready, processes)


def _refuse_namesakes(programs: Sequence[str]) -> None:
    asked_by_name: dict[str, str] = {}
    for asked in programs:
        name = check_program(asked)
        if name in asked_by_name:
            raise MeasurementError(
                f"{asked_by_name[name]} and {asked} would both be workload {name!r}: give one "
                "of them, or rename one file"
            )
        asked_by_name[name] = asked


def _simulate_in_processes(
    cells: Sequence[SimulatedRun], programs: Mapping[str, Program], processes: int
) -> Iterator[tuple[SimulatedRun, dict[str, Any]]]:
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
            "a simulation process was killed: check that there is memory for "
            f"{processes} processes of 300 MB each"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with(parent: int) -> None:
    """Let a simulating process end with its parent, even if that is killed."""
    # The kernel must do it: no thread runs here while rvsim has the interpreter's lock.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _run_region(simulator: Simulator, what: str) -> tuple[str, Stats]:
    """Counters of the region between the program's marks, or of all of it where it has none."""
    code = simulator.run(limit=_MOST_CYCLES)
    if code is None:
        raise MeasurementError(
            f"{what}: the program does not exit within {_MOST_CYCLES:,} cycles: give it less "
            "work, and end it as docs/simulated.md says"
        )
    if code != 0:
        raise MeasurementError(
            f"{what}: the program fails with exit code {code}: its result is "
            "wrong, or the core trapped (see the message above)"
        )
    marks = {mark for mark, _ in simulator.stats_dumps}
    if {_BEGIN, _END} <= marks:
        return MARKED, simulator.stats_between(_BEGIN, _END)
    if marks & {_BEGIN, _END}:
        raise MeasurementError(f"{what}: the program marks only one end of the measured region")
    return WHOLE, simulator.stats


def _whole_mhz(freq_hz: float) -> int:
    mhz = round(freq_hz / 1e6)
    if not _LOWEST_HZ <= freq_hz <= _HIGHEST_HZ or abs(freq_hz / 1e6 - mhz) > 1e-6 * mhz:
        raise MeasurementError(
            f"a simulated core cannot run at {units.frequency_text(freq_hz)}: give a "
            "whole number of MHz from 100 MHz to 10 GHz"
        )
    return mhz
