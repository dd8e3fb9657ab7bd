"""The host as a sweep uses it: what is set before a run and what is read around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

from measurements.counters.command import PerfCounters, check_perf
from measurements.counters.memory_traffic import MemoryTraffic
from measurements.errors import MeasurementError
from measurements.host import activity, conditions
from measurements.host.cpu_placement import Execution, Placement, Topology, place, read_topology
from measurements.host.files import read_pairs
from measurements.host.frequency_control import FrequencyControl, current_frequencies
from measurements.processes.settings_guard import HostSetting, not_restored
from measurements.table.units import frequency_text

# Repeats further apart than this, highest to lowest as a share of their median, are not one value.
_MOST_SPREAD = 0.03
# A frequency further than this from the one asked for was not applied.
_MOST_OFF = 0.02
_NOT_APPLIED = "look for turbo, a power cap or heat; achieved is kept in freq_achieved_hz"
_SPREADS = {
    "time_s": ("time", "close other programs, fix the frequency, or let a run last longer"),
    "power_w": ("power", "let a run last longer, or wait for the fans and temperatures"),
}
# Columns of counters that add up over executions; the rest are ratios and names.
_ADDED = (
    *("instructions", "cycles", "task_clock_s", "llc_misses"),
    *("instructions_user", "instructions_kernel", "cycles_user", "cycles_kernel"),
)


def instabilities(rows: Sequence[Mapping[str, object]], at: str) -> dict[str, str]:
    """Find what does not hold still at a set-up, each with the advice; the last row is the newest.

    Repeats that are too far apart in time or power, a frequency that was not the one asked for,
    and a run in which heat or a limit held the frequency down.
    """
    found = {}
    for column, (name, advice) in _SPREADS.items():
        values = [v for row in rows if isinstance(v := row.get(column), float) and v == v]
        middle = median(values) if len(values) > 1 else 0.0
        spread = (max(values) - min(values)) / middle if middle > 0 else 0.0
        if spread > _MOST_SPREAD:
            apart = f"{name} at {at} spreads by {spread:.1%} over {len(values)} runs"
            found[f"{name} spread"] = f"{apart}: {advice}"
    asked, achieved = rows[-1].get("freq_hz"), rows[-1].get("freq_achieved_hz")
    # NaN, which is not known, is never too far off.
    if (
        isinstance(asked, float)
        and isinstance(achieved, float)
        and abs(achieved / asked - 1) > _MOST_OFF
    ):
        ran = f"was asked for and the core ran at {frequency_text(achieved)}"
        found["clock"] = f"{frequency_text(asked)} {ran}: {_NOT_APPLIED}"
    if rows[-1].get("throttled"):
        found["throttling"] = (
            "heat, current or a quota held the processor back during a run: cool the host, raise "
            "its limits, or measure at a lower clock"
        )
    return found


class Before(NamedTuple):
    """The host just before a run."""

    snapshot: activity.Snapshot
    state: dict[str, Any]


@dataclass
class Machine:
    """A host that is measured. Made by `open`; `close` puts back what was changed.

    ``control`` is None where the frequency is left as it is found; ``no_counters`` says why
    instructions and cycles cannot be counted, and is None where they can; ``traffic`` are the
    counters of the memory controllers, where there are any.
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

        Raises `MeasurementError` when a frequency cannot be set, or there are fewer cores than
        asked for: before any run.
        """
        topology = read_topology(sysfs)
        for count in cores:
            place(topology, count)
        perf, reason = None, "counting was not asked for"
        if counters:
            support = check_perf(sysfs=sysfs, procfs=procfs)
            perf = support.counters if support.hardware else None
            reason = "; ".join(support.reasons)
        control = None
        if frequencies or turbo is not None:
            control = FrequencyControl.open(sysfs=sysfs, procfs=procfs, dry_run=dry_run)
            try:
                if turbo is not None:
                    control.turn_turbo(turbo)
                for freq_hz in frequencies:
                    control.refuse_step(freq_hz)
            except BaseException:
                control.close()
                raise
        traffic = None if dry_run or perf is None else MemoryTraffic.find(sysfs, procfs)
        reasons = reason if perf is None else None
        return cls(control, perf, reasons, topology, sysfs, procfs, traffic, place(topology))

    @property
    def turbo(self) -> bool | None:
        """Whether turbo is on; None where that is not known, or the clock is left as found."""
        return None if self.control is None else self.control.turbo

    @property
    def cores(self) -> int:
        """Physical cores that the next run may use."""
        return self._placement.cores

    def set_up(self, freq_hz: float | None, cores: int | None) -> bool:
        """Set frequency and cores for the next run; True where the frequency was changed."""
        self._placement = place(self.topology, cores)
        if freq_hz is None or self.control is None or freq_hz == self._clock_hz:
            return False
        self.control.fix(freq_hz)
        self._clock_hz = freq_hz
        return True

    def cpus(self) -> tuple[int, ...]:
        """List the logical CPUs that the next run may use."""
        return self._placement.cpus

    def commands(self, command: Sequence[str], counts: Sequence[Path]) -> list[list[str]]:
        """Repeat the command for each file of counts, with perf before it where perf can count."""
        if self.perf is None:
            return [list(command) for _ in counts]
        return [self.perf.wrap(command, path) for path in counts]

    def counter_columns(self, counts: Sequence[Path]) -> dict[str, Any]:
        """Make columns of what perf counted, of one execution on average."""
        if self.perf is None:
            return {}
        counters = self.perf.read(*counts)
        row: dict[str, Any] = counters.columns()
        row |= {c: row[c] / len(counts) for c in _ADDED if c in row}
        if counters.elapsed_s is not None:
            # Without perf's own start, which the time around it includes.
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
        state = conditions.read_state(self.sysfs, self.procfs)
        return Before(activity.Snapshot.take(self.procfs, self.sysfs), state)

    def after_run(self, before: Before, made: Execution, executions: int) -> dict[str, Any]:
        """Make columns of what the host did and of its state during a run."""
        moved = {} if self.traffic is None else self.traffic.stop()
        did = before.snapshot.until(activity.Snapshot.take(self.procfs, self.sysfs))
        state = conditions.read_state(self.sysfs, self.procfs)
        return {
            **{name: value / executions for name, value in did.items()},
            **moved,
            "command_user_s": made.user_s / executions,
            "command_system_s": made.system_s / executions,
            **state,
            **conditions.throttled_between(before.state, state),
            "sockets": len(self._placement.sockets),
        }

    def temperature_c(self) -> float | None:
        """Read the temperature of the hottest package (°C), where it can be read."""
        return conditions.package_temperature_c(self.sysfs)

    def clock_hz(self) -> float | None:
        """Read the frequency (Hz) as the kernel tells it, where it does."""
        frequencies = current_frequencies(self.sysfs)
        known = [frequencies[cpu] for cpu in self.cpus() if cpu in frequencies]
        # In a virtual machine /proc/cpuinfo has the nominal frequency.
        pairs = read_pairs(self.procfs / "cpuinfo")
        known = known or [float(value) * 1e6 for key, value in pairs if key == "cpu MHz"]
        return median(known) if known else None

    def writes(self, freq_hz: float | None) -> list[HostSetting]:
        """List what setting a frequency would write; with a dry run only."""
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
