"""The host as a sweep uses it: what is set before a run and what is read around it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from measurements.counters.command import check_perf
from measurements.counters.memory_traffic import MemoryTraffic
from measurements.errors import MeasurementError
from measurements.host.clocks import current_frequencies
from measurements.host.conditions import (
    package_temperature_c,
    read_state,
    throttled_between,
)
from measurements.host.cpu_placement import place, read_topology
from measurements.host.disks_network import Snapshot
from measurements.host.files import read_lines
from measurements.host.frequency_control import FrequencyControl
from measurements.processes.settings_guard import not_restored
from measurements.table.units import frequency_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from measurements.counters.command import PerfCounters
    from measurements.host.cpu_placement import Placement, Topology
    from measurements.host.execution import Execution
    from measurements.processes.settings_guard import Setting


# Plain words for measurements that do not hold still, and what to do about it.


# Repeats further apart than this, highest to lowest as a share of their median, are not one value.
MOST_SPREAD = 0.03
# A clock further than this from the one asked for was not applied.
MOST_OFF = 0.02


class Instability(NamedTuple):
    """What does not hold still at a set-up, and the advice."""

    what: str
    message: str


def spreads(rows: Sequence[Mapping[str, object]], at: str) -> list[Instability]:
    """Repeats of one set-up that are too far apart, in time and in watts."""
    found = []
    for column, name, advice in (
        ("time_s", "time", "close other programs, fix the frequency, or let a run last longer"),
        ("power_w", "power", "let a run last longer, or wait for the fans and temperatures"),
    ):
        values = [v for row in rows if isinstance(v := row.get(column), float) and v == v]
        middle = median(values) if len(values) > 1 else 0.0
        spread = (max(values) - min(values)) / middle if middle > 0 else 0.0
        if spread > MOST_SPREAD:
            said = f"{name} at {at} spreads by {spread:.1%} over {len(values)} runs: {advice}"
            found.append(Instability(f"{name} spread", said))
    return found


def clock_off(row: Mapping[str, object]) -> list[Instability]:
    """A clock that was not what was asked for."""
    asked, achieved = row.get("freq_hz"), row.get("freq_achieved_hz")
    if not isinstance(asked, float) or not isinstance(achieved, float):
        return []
    if achieved != achieved or abs(achieved / asked - 1) <= MOST_OFF:
        return []
    return [
        Instability(
            "clock",
            f"{frequency_text(asked)} was asked for and the core ran at "
            f"{frequency_text(achieved)}: look for turbo, a power cap or heat; achieved is kept "
            "in freq_achieved_hz",
        )
    ]


# Columns of counters that add up over executions; the rest are ratios and names.
_ADDED = (
    *("instructions", "cycles", "task_clock_s", "llc_misses"),
    *("instructions_user", "instructions_kernel", "cycles_user", "cycles_kernel"),
)


class Before(NamedTuple):
    """The host just before a run."""

    snapshot: Snapshot
    state: dict[str, Any]


@dataclass
class Machine:
    """A host that is measured. Made by `open`; `close` puts back what was changed.

    Attributes
    ----------
    control : FrequencyControl or None
        None where the clock is left as it is found.
    perf : PerfCounters or None
    traffic : MemoryTraffic or None
        Counters of the memory controllers, where there are any.
    no_counters : str or None
        Why instructions and cycles cannot be counted; None where they can.
    """

    control: FrequencyControl | None
    perf: PerfCounters | None
    no_counters: str | None
    topology: Topology
    sysfs: Path
    procfs: Path
    traffic: MemoryTraffic | None
    _placement: Placement
    _clock_hz: float | None = None

    @classmethod
    def open(
        cls,
        *,
        frequencies: Sequence[float] = (),
        cores: Sequence[int] = (),
        turbo: bool | None = None,
        counters: bool = True,
        sysfs: Path = Path("/sys"),
        procfs: Path = Path("/proc"),
        dry_run: bool = False,
    ) -> Self:
        """Take what a sweep needs of this host.

        Raises
        ------
        MeasurementError
            When a clock cannot be set, or there are fewer cores than asked for: before any run.
        """
        topology = read_topology(sysfs)
        for count in cores:
            place(topology, count)
        support = check_perf(sysfs=sysfs, procfs=procfs) if counters else None
        perf, reason = None, "counting was not asked for"
        if support is not None:
            perf = support.counters if support.hardware else None
            reason = "; ".join(support.reasons)
        control = None
        if frequencies or turbo is not None:
            control = FrequencyControl.open(sysfs=sysfs, procfs=procfs, dry_run=dry_run)
        try:
            if control is not None and turbo is not None:
                control.turn_turbo(turbo)
            for freq_hz in frequencies:
                if control is not None:
                    control.refuse_step(freq_hz)
        except BaseException:
            if control is not None:
                control.close()
            raise
        return cls(
            control,
            perf,
            reason if perf is None else None,
            topology,
            sysfs,
            procfs,
            None if dry_run or perf is None else MemoryTraffic.find(sysfs, procfs),
            place(topology),
        )

    @property
    def turbo(self) -> bool | None:
        """Whether turbo is on; None where that is not known, or the clock is left as found."""
        return None if self.control is None else self.control.turbo

    @property
    def cores(self) -> int:
        """Physical cores that the next run may use."""
        return self._placement.cores

    def set_up(self, freq_hz: float | None, cores: int | None) -> bool:
        """Set clock and cores for the next run; True where the clock was changed."""
        self._placement = place(self.topology, cores)
        if freq_hz is None or self.control is None or freq_hz == self._clock_hz:
            return False
        self.control.fix(freq_hz)
        self._clock_hz = freq_hz
        return True

    def cpus(self) -> tuple[int, ...]:
        """Logical CPUs that the next run may use."""
        return self._placement.cpus

    def commands(self, command: Sequence[str], counts: Sequence[Path]) -> list[list[str]]:
        """The command once for each file of counts, with perf before it where perf can count."""
        if self.perf is None:
            return [list(command) for _ in counts]
        return [self.perf.wrap(command, path) for path in counts]

    def counted(self, counts: Sequence[Path]) -> dict[str, Any]:
        """Columns of what perf counted, of one execution on average."""
        if self.perf is None:
            return {}
        counters = self.perf.read(*counts)
        row: dict[str, Any] = counters.columns()
        row |= {c: row[c] / len(counts) for c in _ADDED if c in row}
        if counters.elapsed_s is not None:
            # Without perf's own start, which the clock around it has in it.
            row["time_s"] = counters.elapsed_s / len(counts)
        if counters.caveats:
            row["counter_notes"] = "; ".join(counters.caveats)
        return row

    def before_run(self, traffic: Path | None = None) -> Before:
        """Read what has to be known before a run; counts of memory traffic go to ``traffic``."""
        if self.control is not None:
            self.control.check()
        if self.traffic is not None and traffic is not None:
            self.traffic.start(traffic)
        return Before(Snapshot.take(self.procfs, self.sysfs), read_state(self.sysfs, self.procfs))

    def after_run(self, before: Before, made: Execution, executions: int) -> dict[str, Any]:
        """Columns of what the host did and how it was during a run."""
        moved = {} if self.traffic is None else self.traffic.stop()
        did = before.snapshot.until(Snapshot.take(self.procfs, self.sysfs))
        state = read_state(self.sysfs, self.procfs)
        return {
            **{name: value / executions for name, value in did.items()},
            **moved,
            "command_user_s": made.user_s / executions,
            "command_system_s": made.system_s / executions,
            **state,
            **throttled_between(before.state, state),
            "sockets": len(self._placement.sockets),
        }

    def temperature_c(self) -> float | None:
        """Temperature of the hottest package, where it can be read."""
        return package_temperature_c(self.sysfs)

    def clock_hz(self) -> float | None:
        """Clock as the kernel tells it, where it does."""
        clocks = current_frequencies(self.sysfs)
        known = [clocks[cpu] for cpu in self.cpus() if cpu in clocks]
        known = known or _cpuinfo_clocks(self.procfs)
        return median(known) if known else None

    def throttled(self, row: dict[str, Any]) -> list[Instability]:
        """Say where heat or a limit held the clock down in a run."""
        if not row.get("throttled"):
            return []
        said = (
            "heat, current or a quota held the processor back during a run: cool the host, raise "
            "its limits, or measure at a lower clock"
        )
        return [Instability("throttling", said)]

    def writes(self, freq_hz: float | None) -> list[Setting]:
        """What setting a clock would write; with a dry run only."""
        if self.control is None or freq_hz is None:
            return []
        before = len(self.control.writes)
        self.control.fix(freq_hz)
        return self.control.writes[before:]

    def close(self) -> None:
        """Put back what was changed. Raises `MeasurementError` where something could not be."""
        if self.traffic is not None:
            self.traffic.close()
        if self.control is not None and (unrestored := self.control.close()):
            raise MeasurementError(not_restored(unrestored))


def _cpuinfo_clocks(procfs: Path) -> list[float]:
    """Clocks of /proc/cpuinfo (Hz); in a virtual machine the nominal one."""
    found = []
    for line in read_lines(procfs / "cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() == "cpu MHz":
            found.append(float(value) * 1e6)
    return found
