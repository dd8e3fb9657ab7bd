"""The simulated cores: an in-order and an out-of-order one, before the same memory.

Widths, queues and caches are of the size that Intel's Optimization Reference Manual gives for its
cores Bonnell (Atom, 2008) and Nehalem (Xeon, 2009, with one core's share of the third-level cache).
They are models of such cores and not those products: the instruction set is RISC-V, and programs
run on the bare machine, without operating system or address translation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError
from measurements.headers import nearest

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from rvsim import Config


class Core(NamedTuple):
    """A simulated core.

    Attributes
    ----------
    name : str
        As it is asked for.
    family : str
        What the runs table calls its kind.
    last_level : str
        The last-level cache, by rvsim's path of its counters.
    config : callable
        rvsim's configuration of the core at a clock in MHz.
    """

    name: str
    family: str
    last_level: str
    config: Callable[[int], Config]

    @property
    def host(self) -> str:
        """What the runs table calls it."""
        return f"simulated-{self.name}"


def core_named(name: str) -> Core:
    """Core of that name.

    Raises
    ------
    MeasurementError
        When there is none.
    """
    if name not in CORES:
        raise MeasurementError(
            f"core {name!r}: not one of {', '.join(CORES)}{nearest(name, list(CORES))}"
        )
    return CORES[name]


def rvsim() -> ModuleType:
    """Import the simulator.

    Raises
    ------
    MeasurementError
        When it is not installed.
    """
    try:
        import rvsim
    except ImportError as error:
        raise MeasurementError(
            f"simulated cores need rvsim ({error}): pip install 'perf-per-watt[simulate]', on "
            "Linux on x86-64"
        ) from error
    return rvsim


def _in_order(clock_mhz: int) -> Config:
    from rvsim import Backend, BranchPredictor, Cache, Config, MemoryController, Prefetcher

    return Config(
        width=2,
        backend=Backend.InOrder(),
        branch_predictor=BranchPredictor.GShare(),
        btb_size=128,
        ras_size=8,
        l1i=Cache("32KB", ways=8, latency=1, prefetcher=Prefetcher.NextLine(degree=1)),
        l1d=Cache("24KB", ways=6, latency=2, mshr_count=4),
        l2=Cache("512KB", ways=8, latency=14, mshr_count=8),
        memory_controller=MemoryController.DDR5(),
        cpu_clock_mhz=clock_mhz,
        uart_quiet=True,
    )


def _out_of_order(clock_mhz: int) -> Config:
    from rvsim import Backend, BranchPredictor, Cache, Config, MemoryController, Prefetcher

    return Config(
        width=4,
        backend=Backend.OutOfOrder(
            rob_size=128,
            issue_queue_size=36,
            load_queue_size=48,
            store_buffer_size=32,
            load_ports=1,
            store_ports=1,
        ),
        branch_predictor=BranchPredictor.TAGE(),
        btb_size=4096,
        ras_size=16,
        l1i=Cache("32KB", ways=4, latency=1, prefetcher=Prefetcher.NextLine(degree=1)),
        l1d=Cache(
            "32KB",
            ways=8,
            latency=3,
            mshr_count=10,
            prefetcher=Prefetcher.Stride(degree=2, table_size=64),
        ),
        l2=Cache("256KB", ways=8, latency=9, mshr_count=16, prefetcher=Prefetcher.Stream(degree=2)),
        l3=Cache("2MB", ways=16, latency=28, mshr_count=32),
        # Its timings are in nanoseconds; those of rvsim's other controllers are in core cycles.
        memory_controller=MemoryController.DDR5(),
        cpu_clock_mhz=clock_mhz,
        uart_quiet=True,
    )


CORES = {
    core.name: core
    for core in (
        Core("inorder", "rvsim in-order", "core0.cache.l2", _in_order),
        Core("o3", "rvsim out-of-order", "llc", _out_of_order),
    )
}


def preparing() -> Config:
    """Core that a kernel's preparation is simulated on: what it does counts, not its speed."""
    from rvsim import Backend, Cache, Config, MemoryController

    return Config(
        width=4,
        backend=Backend.OutOfOrder(),
        l1i=Cache("32KB", ways=8, latency=1),
        l1d=Cache("32KB", ways=8, latency=1),
        l2=None,
        memory_controller=MemoryController.Simple(latency=0, bandwidth_gib_s=10000),
        uart_quiet=True,
    )
