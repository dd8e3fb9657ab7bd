"""Runs of a service: a window of steady load, with all that the sensors tell of it.

A service has no end that could be timed. Once the load of its clients is steady, a window of some
seconds is taken from the middle: throughput, power, counters and CPU time are of this window. Its
rows have ``window_s`` in place of ``time_s``, which would be no property of the workload.
"""

from __future__ import annotations

import abc
import json
import random
import shutil
import signal
import subprocess
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from measurements.errors import MeasurementError
from measurements.host import activity, conditions, cpu_placement
from measurements.processes.cleanup_process import CleanupProcess
from measurements.sweep import loop, measure, session as ses
from measurements.workloads.clients import Client, CutShortError, start_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pandas as pd

    from measurements.power import energy

T = TypeVar("T")
# Parts of a window that are looked at one by one: they tell how much the throughput wavers.
SLICES = 8
# Clients go on for so long after the window, since its ends cost some time.
MARGINS_S = (0.75, 2.5, 8.0)
_GIVE_UP_S = 30.0
# Added up over processes, they are of the window only in proportion.
_COUNTED = (
    *("instructions", "cycles", "llc_misses", "task_clock_s"),
    *("instructions_user", "instructions_kernel", "cycles_user", "cycles_kernel"),
)


@dataclass(frozen=True, kw_only=True)
class ServiceOptions(loop.RunOptions):
    """What all runs of a service share."""

    repeats: int = 3
    seconds: float = 2.0  # length of the window


class ServiceStep(NamedTuple):
    """One run: its set-up, its core frequency (None: as found), and the number of its repeat."""

    kind: str  # "run", or "client-step": more client at the end of full load, no row of its own
    setup: Mapping[str, Any]
    freq_hz: float | None
    repeat: int

    @property
    def key(self) -> str:
        """Text that is the same for the same step, whatever the order of its set-up."""
        return json.dumps([self.kind, dict(self.setup), self.freq_hz, self.repeat], sort_keys=True)


def shuffle_steps(
    options: ServiceOptions, cells: Iterable[tuple[Mapping[str, Any], T]]
) -> list[tuple[ServiceStep, T]]:
    """All runs of cells, which have a set-up each: at each frequency, repeated, in random order."""
    steps = [
        (ServiceStep("run", setup, freq_hz, repeat), cell)
        for setup, cell in cells
        for freq_hz in options.frequencies or (None,)
        for repeat in range(options.repeats)
    ]
    # A drift of the host must not look like an effect of the set-up.
    random.Random(options.seed).shuffle(steps)
    return steps


class Load(abc.ABC):
    """Clients and the service that they drive, in one run."""

    client: Client
    cores: int | None  # physical cores that the service may use; None where not known
    is_local: bool = True  # whether the service runs on this host, so that its counts are of it

    @property
    def pids(self) -> Sequence[int]:
        """Processes of the service, for counters; empty where they are out of reach."""
        return self.client.pids

    def start(self, output: Path) -> None:
        """Begin the load; what the clients print goes to files named after ``output``."""
        self.client.start(output)

    @abc.abstractmethod
    def wait_steady(self) -> None:
        """Return when the load is steady. Raises `MeasurementError` when it never is."""

    @abc.abstractmethod
    def observe(self) -> Any:
        """Counts of this moment."""

    def watch(self, runs: ServiceRuns, start_s: float) -> Iterator[Any]:
        """Observe at the end of each slice of the window."""
        for part in range(1, SLICES + 1):
            left = start_s + part * runs.options.seconds / SLICES - runs.clock()
            runs.wait(max(left, 0.0))
            yield self.observe()

    @abc.abstractmethod
    def finish(self) -> None:
        """Wait for the clients. Raises `CutShortError` when they ended before the window did."""

    def stop(self) -> None:
        """End what still runs."""
        self.client.stop()

    @abc.abstractmethod
    def columns(self, seen: Sequence[Any]) -> dict[str, Any]:
        """Columns of the runs table, from what `observe` saw at the ends of the slices."""


@dataclass
class ServiceRuns(loop.Recorder):
    """Runs of a service under way."""

    options: ServiceOptions
    reaper: CleanupProcess  # ends processes and removes files if this process dies
    _done: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    _cooling: conditions.Cooling | None = field(default=None, init=False)

    def begin(self) -> None:
        """Load earlier runs of the session, and measure the idle host."""
        for record in self.earlier_records():
            if record["kind"] == "idle":
                self._idle = ses.run_energy(self.session, record)
            else:
                self._done[record["key"]] = _service_row(self.session, record, self._idle)
        self._cooling = conditions.Cooling(self.machine.temperature_c)
        if self.sampling.channels and self.options.idle_s > 0 and not self._idle:
            self.measure_idle(self.options.idle_s)

    def done(self, step: ServiceStep) -> dict[str, Any] | None:
        """Row of a step that is measured already; None for a step still to do."""
        return self._done.get(step.key)

    def measure(
        self, step: ServiceStep, make: Callable[[float], Load], *, workload: str
    ) -> dict[str, Any]:
        """Measure a step; returns its row when it is on disk.

        ``make`` returns a load whose clients go on for as many seconds after the window as its
        argument says. Where a busy host makes that too few, it is called again with more.
        """
        *margins, longest = MARGINS_S
        for margin_s in margins:
            with suppress(CutShortError):
                return self._measure_window(step, make(margin_s), workload)
        return self._measure_window(step, make(longest), workload)

    def _measure_window(self, step: ServiceStep, load: Load, workload: str) -> dict[str, Any]:
        ses.check_space(self.session.folder)
        self.set_up_and_settle(step.freq_hz)
        if self._cooling is not None:
            self._cooling.wait()
        asked = {"setup": dict(step.setup), "asked_hz": step.freq_hz, "repeat": step.repeat}
        record = self.begin_record(step.kind, key=step.key, **asked)
        record["cores"] = load.cores
        before = self.machine.before_run()
        # A slow sensor's first reading comes before the clients, so that none waits for it.
        self.sampling.start(self.session.samples(record["run"]))
        try:
            load.start(self.session.output(record["run"]))
            load.wait_steady()
            counting = _Counting(self, record["run"], load.pids)
            seen = [load.observe()]
            snapshot = activity.Snapshot.take(self.machine.procfs, self.machine.sysfs)
            before = before._replace(snapshot=snapshot)
            start_s = self.clock()
            seen += load.watch(self, start_s)
            end_s = self.clock()
            window = cpu_placement.Execution(start_s, end_s, 0, 0.0, 0.0)
            host = self.machine.after_run(before, window, 1) if load.is_local else {}
            facts = counting.stop(end_s - start_s)
            load.finish()
        finally:
            load.stop()
            self.sampling.stop()
        # What the host tells of the measured command alone is not of a service.
        host = {k: v for k, v in host.items() if not k.startswith("command_") and k != "sockets"}
        facts = {"workload": workload, **host, **facts, **load.columns(seen)}
        if step.freq_hz is None and load.is_local:
            facts |= loop.clock_found(self.machine, self.options.clock_hz, facts)
        return self._end_run(record, window, facts)

    def _end_run(
        self, record: dict[str, Any], window: cpu_placement.Execution, facts: dict[str, Any]
    ) -> dict[str, Any]:
        """Keep the record of a run with its frequency and facts; return its row of the table."""
        stated = self.options.clock_hz if record["asked_hz"] is None else record["asked_hz"]
        freq_hz = facts.pop("freq_hz", stated)
        facts = loop.drop_missing(facts)
        failures = self.sampling.failures
        self.end_record(record, window, freq_hz=freq_hz, facts=facts, failures=failures)
        row = self._done[record["key"]] = _service_row(self.session, record, self._idle)
        if row.get("notes"):
            self.tell_once(str(row["notes"]))
        return row


def service_rows(session: ses.Session, *, kind: str = "run") -> list[dict[str, Any]]:
    """Rows of all runs of a kind so far, from records and raw readings alone."""
    return ses.session_rows(session, kind=kind, make_row=_service_row)


def _service_row(
    session: ses.Session, record: Mapping[str, Any], idle: Mapping[str, energy.RunEnergy]
) -> dict[str, Any]:
    """Row of one run, with the length of its window in place of a time."""
    row = ses.row_of(session, record, idle)
    window_s = row.pop("time_s")
    row.pop("executions")
    return {**row, "window_s": window_s}


class _Counting:
    """perf on the processes of a service while the window lasts."""

    def __init__(self, runs: ServiceRuns, number: int, pids: Sequence[int]) -> None:
        self._perf = runs.machine.perf
        pids = pids if self._perf is not None else ()
        self._files = [runs.session.counts(number, place) for place in range(len(pids))]
        self._processes: list[subprocess.Popen[bytes]] = []
        for pid, file in zip(pids, self._files, strict=True):
            assert self._perf is not None
            command = self._perf.attach(pid, file)
            environment = runs.reaper.environment()
            self._processes.append(start_process(command, subprocess.DEVNULL, environment))

    def stop(self, window_s: float) -> dict[str, Any]:
        """Columns of what was counted, in proportion to the window."""
        for process in self._processes:
            process.send_signal(signal.SIGINT)
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GIVE_UP_S)
        if self._perf is None or not self._files:
            return {}
        counters = self._perf.read(*self._files)
        row: dict[str, Any] = dict(counters.columns())
        if counters.elapsed_s:
            # Each process was counted for its own time; their times add up to elapsed_s.
            share = window_s / (counters.elapsed_s / len(self._files))
            row |= {name: row[name] * share for name in _COUNTED if name in row}
        return row


_ELSEWHERE = "the service runs on another host"
_REMOTE_POWER = f"power: {_ELSEWHERE}: name a source that reads it, as in --power ipmi@bmc-7"


class ServiceSweep(abc.ABC):
    """A sweep whose runs come one by one."""

    runs: ServiceRuns

    def run(self) -> Iterator[dict[str, Any]]:
        """Measure all that is not yet measured; yields the row of each run as it ends."""
        self.runs.begin()
        for step, setup in self.steps():
            if self.runs.done(step) is None:
                yield self.measure_step(step, setup)

    @property
    def runs_in_table(self) -> int:
        """Number of rows that the table will have."""
        return len(self.steps())

    @abc.abstractmethod
    def steps(self) -> list[tuple[ServiceStep, Any]]:
        """All runs, each with what is set up for it, in the order in which they are measured."""

    @abc.abstractmethod
    def measure_step(self, step: ServiceStep, setup: Any) -> dict[str, Any]:
        """Measure one run; returns its row."""


@dataclass(frozen=True)
class Running:
    """Runs that are set up, and where their table goes."""

    runs: ServiceRuns
    output: Path

    def take(
        self,
        rows: Iterable[Mapping[str, Any]],
        count: int,
        table: Callable[[ses.Session], pd.DataFrame],
        show_progress: Callable[[int, int, str], None],
    ) -> pd.DataFrame:
        """Take the ``count`` rows of a sweep as they come; write its table anew after each."""
        from measurements import write_runs

        for done, row in enumerate(rows, start=1):
            write_runs(table(self.runs.session), self.output)
            show_progress(done, count, str(row["workload"]))
        found = table(self.runs.session)
        write_runs(found, self.output)
        return found


@contextmanager
def running(
    options: ServiceOptions,
    host: measure.HostOptions,
    output: Path,
    *,
    workload: dict[str, Any],
    is_local: bool = True,
    resume: bool = False,
    counters: bool = True,
    tell: Callable[[str], None] = print,
) -> Iterator[Running]:
    """Open session, machine and sensors; all is closed and cleaned up when left.

    Only what the ``metrics`` of ``host`` name must be measurable. The runs table goes to
    ``output``, with raw readings beside it. The options of the ``workload`` are kept in the
    session's plan; a resumed sweep must have the same. If the service is not local, no sensor of
    this host is tried. ``tell`` takes one line of text for the user.

    Raises `MeasurementError` or `SensorError` when something cannot be measured, set or written,
    the table exists already, or a resumed sweep is another one.
    """
    folder, session = measure.folder_and_session(output, resume=resume)
    if session is not None and session.plan.get("asked") != _through_json(workload):
        raise MeasurementError(
            f"{folder}: it holds runs of another workload: give the same "
            "workload, or another file with -o"
        )
    missing: list[str] = []
    with ExitStack() as stack:
        counters = counters and is_local
        machine = measure.open_machine(host, options.frequencies, counters=counters)
        stack.callback(machine.close)
        if machine.no_counters is not None:
            reason = machine.no_counters if is_local else f"{_ELSEWHERE}: count there"
            measure.refuse_or_note("cpi", reason, host, missing)
        if not is_local and host.power is None:
            missing.append(_REMOTE_POWER)
            sampling = measure.open_sampling(replace(host, power="none"), [])
        else:
            sampling = measure.open_sampling(host, missing)
        stack.callback(sampling.close)
        stack.enter_context(ses.lock_session(folder))
        try:
            if session is None:
                plan = measure.session_plan(options, host, sampling)
                session = ses.Session.create(folder, plan | {"asked": _through_json(workload)})
            for text in missing:
                tell(f"not measured here: {text}")
            with CleanupProcess() as reaper:
                runs = ServiceRuns(session, machine, sampling, tell, options, reaper)
                yield Running(runs, output)
        except BaseException:
            # Where nothing was measured, nothing is in the way of another try.
            if session is not None and not session.records():
                shutil.rmtree(session.folder, ignore_errors=True)
            raise


def _through_json(workload: dict[str, Any]) -> dict[str, Any]:
    # As JSON gives it back from the plan.
    return dict(json.loads(json.dumps(workload)))
