"""How much memory bandwidth is taken from a workload, and how much is left to each of its cores."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError
from measurements.placement import place
from measurements.workloads.io_study.bandwidth import BandwidthThief

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from measurements.placement import Placement
    from measurements.workloads.io_study.bandwidth import BandwidthLoad
    from measurements.workloads.io_study.options import StudyOptions
    from measurements.workloads.service_run import ServiceRuns


class Level(NamedTuple):
    """A share of what the cores beside so many cores of the workload can take."""

    cores: int
    threads_per_core: int
    taken: float


class Levels(NamedTuple):
    """Loads on memory bandwidth of a study. Made by `open_levels`.

    Attributes
    ----------
    left : mapping of Level to float
        Bytes a second left to each core; empty where none is taken.
    rates : mapping of (cores, threads per core) to float
        Bytes a second that the cores beside can take at most.
    """

    thief: BandwidthThief | None
    left: Mapping[Level, float]
    rates: Mapping[tuple[int, int], float]
    beside: Mapping[tuple[int, int], tuple[int, ...]]

    def load(self, level: Level) -> Callable[[], BandwidthLoad] | None:
        """What starts the load of a level; None where nothing is taken."""
        if self.thief is None or not level.taken:
            return None
        where = level.cores, level.threads_per_core
        return partial(
            self.thief.start,
            level.taken * self.rates[where],
            self.beside[where],
            self.thief.folder / "taken.txt",
        )


def open_levels(options: StudyOptions, runs: ServiceRuns, known: Mapping[Level, float]) -> Levels:
    """Compile the load, and measure what it can take and what it leaves.

    Parameters
    ----------
    options : StudyOptions
    runs : ServiceRuns
    known : mapping
        What was left at levels that were measured before: runs of one level are told by it.

    Raises
    ------
    MeasurementError
        Where the workload leaves no core for the load.
    """
    if not any(options.taken):
        return Levels(None, {}, {}, {})
    thief, why = BandwidthThief.open(runs.reaper, sysfs=runs.machine.sysfs)
    if why is not None:
        runs.tell_once(why)
    places = {
        (cores, threads): place(runs.machine.topology, cores, threads_per_core=threads)
        for cores in options.cores
        for threads in options.threads_per_core
    }
    beside = {where: _beside(runs, placement) for where, placement in places.items()}
    rates = {where: thief.full_rate(cpus) for where, cpus in beside.items()}
    levels = Levels(thief, dict(known), rates, beside)
    left = {
        level: known.get(level) or _left(levels, level, placement)
        for (cores, threads), placement in places.items()
        for level in (Level(cores, threads, taken) for taken in options.taken)
    }
    return levels._replace(left=left)


def _beside(runs: ServiceRuns, placement: Placement) -> tuple[int, ...]:
    """Logical CPUs, one of each core that the workload does not use."""
    used = set(placement.cpus)
    free = [core.cpus[0] for core in runs.machine.topology.cores if not used & set(core.cpus)]
    if not free:
        there = len(runs.machine.topology.cores)
        raise MeasurementError(
            f"memory bandwidth is taken from cores beside the workload's, and {placement.cores} of "
            f"{there} cores leave none: give --cores up to {there - 1} with --take-bandwidth"
        )
    return tuple(free)


def _left(levels: Levels, level: Level, placement: Placement) -> float:
    assert levels.thief is not None
    start = levels.load(level)
    load = None if start is None else start()
    try:
        return levels.thief.left_to_each(placement.cores, placement.cpus, load)
    finally:
        if load is not None:
            load.stop()
