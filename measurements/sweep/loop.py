"""The measuring loop: a command at several frequencies and core counts, several times each.

Everything that happens is in the session's folder before the next thing begins; the table is made
from there (`measurements.sweep.session`). Runs are in random order within the sweep, so that a host
that warms up or a neighbour that wakes does not look like an effect of the frequency. `Machine` is
the host as a sweep uses it: what is set before a run and what is read around it.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

from measurements.counters.command import PerfCounters, check_perf
from measurements.counters.memory_traffic import MemoryTraffic
from measurements.errors import MeasurementError, on_error
from measurements.host import activity, conditions, cpu_placement, files
from measurements.host.frequency_control import FrequencyControl, current_frequencies
from measurements.power import energy, sampler
from measurements.processes import cleanup_process, settings_guard
from measurements.sweep.session import Session, check_space, row_of, run_energy
from measurements.table.units import frequency_text

# A run is to last as long as the slowest sensor takes for so many figures.
_READINGS = 3


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What all runs of a sweep share."""

    host: str
    family: str | None = None
    # Core frequencies (Hz); empty for the frequency as it is found.
    frequencies: tuple[float, ...] = ()
    # The frequency where it is measured as found and nothing here can tell (Hz).
    clock_hz: float | None = None
    repeats: int = 5
    # Idling that is measured before the sweep, and time waited for after each change (s).
    idle_s: float = 10.0
    settle_s: float = 2.0
    seed: int = 0  # of the order of runs, and of the choices of a load
    price: float | None = None


@dataclass(frozen=True, kw_only=True)
class SweepOptions(RunOptions):
    """What a sweep of a command measures."""

    command: tuple[str, ...]
    workload: str
    cores: tuple[int, ...] = ()  # physical cores to use; empty for as many as the process may
    warm_ups: int = 1
    # What a run is to last (s); the command is executed several times for it.
    at_least_s: float = 0.0
    counters: bool = True  # whether perf counts instructions and cycles
    data_bytes: float | None = None


class RunSetup(NamedTuple):
    """One set-up: a frequency (None: as found), physical cores (None: all), and which repeat."""

    freq_hz: float | None
    cores: int | None
    repeat: int

    def text(self) -> str:
        """Name the set-up for people."""
        clock = (
            "the core frequency as found" if self.freq_hz is None else frequency_text(self.freq_hz)
        )
        cores = "" if self.cores is None else f" on {self.cores} core{'s' * (self.cores > 1)}"
        return clock + cores


def order_of(options: SweepOptions) -> list[RunSetup]:
    """List all runs in the order in which they are measured: shuffled, by the seed."""
    frequencies: Sequence[float | None] = options.frequencies or (None,)
    cores: Sequence[int | None] = options.cores or (None,)
    steps = [RunSetup(f, c, r) for f, c, r in product(frequencies, cores, range(options.repeats))]
    random.Random(options.seed).shuffle(steps)
    return steps


# Repeats further apart than this, highest to lowest as a share of their median, are not one value.
_MOST_SPREAD = 0.03
# A frequency further than this from the one asked for was not applied.
_MOST_OFF = 0.02
_NOT_APPLIED = "look for turbo, a power cap or heat; freq_achieved_hz has the real frequency"
_SPREADS = {
    "time_s": ("time", "close other programs, fix the frequency, or let a run last longer"),
    "power_w": ("power", "let a run last longer, or wait for the fans and temperatures"),
}
# Columns of counters that add up over executions; the rest are ratios and names.
_ADDED = (
    *("instructions", "cycles", "task_clock_s", "llc_misses"),
    *("instructions_user", "instructions_kernel", "cycles_user", "cycles_kernel"),
)


def instabilities(rows: Sequence[Mapping[str, Any]], at: str) -> dict[str, str]:
    """Find what does not hold still at a set-up, each with the advice; the last row is new."""
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
    if (share := rows[-1].get("other_cpu_share", 0.0)) > activity.MOST_OTHER_WORK:
        found["other work"] = (
            f"other work took {share:.0%} of the CPU time during a run at {at}, so its energy is "
            "not the command's alone: close other programs, and let the command wait for all its "
            "processes"
        )
    if rows[-1].get("throttled"):
        found["throttling"] = (
            "heat, current or a quota held the processor back during a run: cool the host, raise "
            "its limits, or measure at a lower frequency"
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
    topology: cpu_placement.Topology
    sysfs: Path
    procfs: Path
    traffic: MemoryTraffic | None
    _placement: cpu_placement.Placement
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
        """Take what a sweep needs of this host. Raises `MeasurementError` before any run."""
        topology = cpu_placement.read_topology(sysfs)
        for count in cores:
            cpu_placement.place(topology, count)
        perf, reason = None, "counting was not asked for"
        if counters:
            support = check_perf(sysfs=sysfs, procfs=procfs)
            perf = support.counters if support.hardware else None
            reason = "; ".join(support.reasons)
        control = None
        if frequencies or turbo is not None:
            control = FrequencyControl.open(sysfs=sysfs, procfs=procfs, dry_run=dry_run)
            with on_error(control.close):
                if turbo is not None:
                    control.turn_turbo(turbo)
                for freq_hz in frequencies:
                    control.refuse_step(freq_hz)
        traffic = None if dry_run or perf is None else MemoryTraffic.find(sysfs, procfs)
        reasons = reason if perf is None else None
        return cls(
            control, perf, reasons, topology, sysfs, procfs, traffic, cpu_placement.place(topology)
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
        """Set frequency and cores for the next run; True where the frequency was changed."""
        self._placement = cpu_placement.place(self.topology, cores)
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

    def after_run(
        self, before: Before, made: cpu_placement.Execution, executions: int
    ) -> dict[str, Any]:
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
        pairs = files.read_pairs(self.procfs / "cpuinfo")
        known = known or [float(value) * 1e6 for key, value in pairs if key == "cpu MHz"]
        return median(known) if known else None

    def writes(self, freq_hz: float | None) -> list[settings_guard.HostSetting]:
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
            raise MeasurementError(settings_guard.not_restored(unrestored))


@dataclass
class Recorder:
    """Numbered records of a sweep in its folder, and lines of text that the user is told."""

    session: Session
    machine: Machine
    sampling: sampler.Sampling
    tell: Callable[[str], None]
    options: RunOptions
    # These two differ in tests.
    clock: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    wait: Callable[[float], None] = field(default=time.sleep, kw_only=True)
    _number: int = field(default=0, init=False)
    _idle: dict[str, energy.RunEnergy] = field(default_factory=dict, init=False)
    # Rows of equal set-ups so far.
    _alike: dict[Any, list[dict[str, Any]]] = field(default_factory=dict, init=False)
    _told: set[str] = field(default_factory=set, init=False)

    def earlier_records(self) -> list[dict[str, Any]]:
        """Read the records of the sweep so far; new ones are numbered after them."""
        records = self.session.records()
        self._number = max((record["run"] + 1 for record in records), default=0)
        return records

    def begin_record(self, kind: str, **more: Any) -> dict[str, Any]:
        """Begin the record of a run, a warm-up or idling."""
        record = {
            "run": self._number,
            "kind": kind,
            "cores": self.machine.cores,
            "executions": 1,
            "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            **more,
        }
        self._number += 1
        return record

    def end_record(
        self, record: dict[str, Any], made: cpu_placement.Execution, **more: Any
    ) -> None:
        """Complete a record; it is on disk when this returns."""
        times = {"start_s": made.start_s, "end_s": made.end_s, "exit_code": made.exit_code}
        record |= {**times, **more}
        self.session.append(record)

    def idle(self, seconds: float) -> cpu_placement.Execution:
        """Let the host idle; returns when that was."""
        start_s = self.clock()
        self.wait(seconds)
        return cpu_placement.Execution(start_s, self.clock(), 0, 0.0, 0.0)

    def measure_idle(self, seconds: float) -> None:
        """Measure the power of the idle host."""
        record = self.begin_record("idle")
        self.sampling.start(self.session.samples(record["run"]))
        made = self.idle(seconds)
        self.sampling.stop()
        self.end_record(record, made, facts={}, failures=self.sampling.failures)
        self._idle = run_energy(self.session, record)

    def set_up_and_settle(self, freq_hz: float | None, cores: int | None = None) -> None:
        """Set frequency and cores for the next run; wait where the frequency was changed."""
        if self.machine.set_up(freq_hz, cores):
            self.wait(self.options.settle_s)

    def tell_once(self, text: str, key: str | None = None) -> None:
        """Tell the user a line at its first occurrence only, or that of its key."""
        if (key or text) not in self._told:
            self._told.add(key or text)
            self.tell(text)

    def keep_row(self, setup: Any, row: dict[str, Any]) -> list[dict[str, Any]]:
        """Keep the row of a run; returns those of all runs of its set-up so far."""
        rows = self._alike.setdefault(setup, [])
        rows.append(row)
        return rows

    def advise(self, setup: Any, at: str, row: dict[str, Any]) -> None:
        """Tell each instability of a set-up once, and each note of a row once."""
        for what, message in instabilities(self.keep_row(setup, row), at).items():
            self.tell_once(message, f"{at}: {what}")
        if row.get("notes"):
            self.tell_once(str(row["notes"]))


@dataclass
class MeasuredSweep(Recorder):
    """A sweep under way."""

    options: SweepOptions
    _executions: int = field(default=1, init=False)
    _environment: dict[str, str] | None = field(default=None, init=False)

    def run(self) -> Iterator[dict[str, Any]]:
        """Measure all that is not yet measured; yield the row of each run as it ends."""
        done = self._load_measured_setups()
        todo = [step for step in order_of(self.options) if step not in done]
        if not todo:
            return
        cooling = conditions.Cooling(self.machine.temperature_c)
        # Killed in any way, this process leaves no command running that nobody measures.
        with cleanup_process.CleanupProcess() as reaper:
            self._environment = reaper.environment()
            if self.sampling.channels and self.options.idle_s > 0 and not self._idle:
                self._measure_settled_idle()
            self._warm_up(todo)
            for step in todo:
                yield self._measure_run(step, cooling)

    def _load_measured_setups(self) -> set[RunSetup]:
        """Take up earlier records; return the set-ups whose run succeeded."""
        done = set()
        for record in self.earlier_records():
            if record["kind"] == "idle":
                self._idle = run_energy(self.session, record)
            if record["kind"] == "run" and not record["exit_code"]:
                step = RunSetup(record["asked_hz"], record["asked_cores"], record["repeat"])
                done.add(step)
                self.keep_row(step[:2], row_of(self.session, record, self._idle))
        return done

    def _measure_settled_idle(self) -> None:
        self.wait(self.options.settle_s)
        self.measure_idle(self.options.idle_s)
        for label, drawn in self._idle.items():
            if drawn.power_w != drawn.power_w:
                self.tell(f"idle {label}: {drawn.reason}")

    def _warm_up(self, todo: Sequence[RunSetup]) -> None:
        """Execute the command a few times unmeasured, at the set-up that takes it least long."""
        quickest = max(todo, key=lambda s: (s.freq_hz or 0.0, s.cores or 0))
        took = 0.0
        for _ in range(self.options.warm_ups):
            self.set_up_and_settle(quickest.freq_hz, quickest.cores)
            record = self._begin_run_record("warm-up", quickest)
            made = self._execute(record, [list(self.options.command)])
            took = made.end_s - made.start_s
            self._end_run(record, made, {})
        slowest = self.sampling.slowest_s
        needed = max(self.options.at_least_s, _READINGS * slowest)
        if took and needed > took:
            self._executions = int(-(-needed // took))
            self.tell(
                f"the command takes {took:.3g} s and a run must last {needed:.3g} s"
                + (f" (a sensor has a new figure every {slowest:g} s)" if slowest else "")
                + f": it is executed {self._executions} times per run, and its mean is reported"
            )

    def _measure_run(self, step: RunSetup, cooling: conditions.Cooling) -> dict[str, Any]:
        check_space(self.session.folder)
        self.set_up_and_settle(step.freq_hz, step.cores)
        cooling.wait()
        record = self._begin_run_record("run", step, executions=self._executions)
        number = record["run"]
        counts = [self.session.counts(number, n) for n in range(self._executions)]
        commands = self.machine.commands(self.options.command, counts)
        before = self.machine.before_run(self.session.traffic(number))
        self.sampling.start(self.session.samples(number))
        made = self._execute(record, commands)
        self.sampling.stop()
        facts: dict[str, Any] = {}
        if made.exit_code == 0:
            facts = self.machine.after_run(before, made, self._executions)
            elapsed_s = (made.end_s - made.start_s) / self._executions
            own_s = facts["command_user_s"] + facts["command_system_s"]
            facts |= activity.other_work(facts, own_s, elapsed_s)
            facts |= self.machine.counter_columns(counts)
            if step.freq_hz is None:
                facts |= clock_found(self.machine, self.options.clock_hz, facts)
        self._end_run(record, made, facts)
        row = row_of(self.session, record, self._idle)
        self.advise(step[:2], step.text(), row)
        return row

    def _begin_run_record(self, kind: str, step: RunSetup, **more: Any) -> dict[str, Any]:
        asked = {"asked_hz": step.freq_hz, "asked_cores": step.cores, "repeat": step.repeat}
        return self.begin_record(kind, **asked, **more)

    def _execute(
        self, record: dict[str, Any], commands: Sequence[Sequence[str]]
    ) -> cpu_placement.Execution:
        output, cpus = self.session.output(record["run"]), self.machine.cpus()
        return cpu_placement.execute(
            commands, output=output, cpus=cpus, environment=self._environment
        )

    def _end_run(
        self, record: dict[str, Any], made: cpu_placement.Execution, facts: dict[str, Any]
    ) -> None:
        """Keep a record; a command that failed ends the sweep."""
        freq_hz = facts.pop("freq_hz", record["asked_hz"])
        failures = self.sampling.failures if record["kind"] == "run" else {}
        self.end_record(record, made, freq_hz=freq_hz, facts=facts, failures=failures)
        if code := made.exit_code:
            how = f"exit code {code}" if code > 0 else f"signal {-code}"
            raise MeasurementError(
                f"{self.options.command[0]} ended with {how} in run {record['run']}: see "
                f"{self.session.output(record['run'])}; runs so far are kept, go on with --resume"
            )


def clock_found(host: Machine, stated_hz: float | None, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Find the frequency of a run that was measured as found: stated, counted, or the kernel's."""
    for hertz, source in (
        (stated_hz, "stated"),
        (facts.get("freq_achieved_hz"), "counters"),
        (host.clock_hz(), "kernel"),
    ):
        if hertz is not None:
            return {"freq_hz": float(hertz), "freq_source": source}
    raise MeasurementError("the core frequency cannot be read here: give it, as in --clock 1.66GHz")


def drop_missing(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is not known: None and NaN, which a record cannot hold."""
    return {name: value for name, value in facts.items() if value is not None and value == value}


def default_folder(output: Path) -> Path:
    """Name the folder of a sweep beside its table: runs.parquet has runs.samples."""
    name = output.name.removesuffix(".gz")
    return output.with_name(f"{Path(name).stem}.samples")
