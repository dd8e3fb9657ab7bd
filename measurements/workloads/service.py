"""Runs of a service under load: a window of steady load, with all that the sensors say of it.

A service has no end that could be timed. Its clients are started, and once their load is steady a
window of so many seconds is taken from the middle: throughput, watts, counters and CPU time are
all of this window. Its rows have ``window_s`` in place of ``time_s``, which would be no property
of the workload.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from measurements.errors import MeasurementError
from measurements.host.conditions import Cooling
from measurements.host.disks_network import Snapshot
from measurements.host.execution import Execution
from measurements.processes.cleanup_process import Reaper
from measurements.sweep.loop import clock_found
from measurements.sweep.machine import Machine
from measurements.sweep.measure import (
    HostOptions,
    folder_and_session,
    open_sampling,
    refuse_or_note,
    sampled_channels,
)
from measurements.sweep.rows import drawn_in, row_of
from measurements.sweep.session import Session, check_space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd

    from measurements.power.energy import Drawn
    from measurements.power.sampler import Sampling


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


class CutShortError(MeasurementError):
    """Clients that ended while the window was open."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} ended before its window did: this host is too busy to load anything steadily"
        )


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """What all runs of a service share.

    Attributes
    ----------
    host : str
    family : str or None
    frequencies : tuple of float
        Hz; empty for the clock as it is found.
    clock_hz : float or None
        What the clock is where it is measured as found and nothing here can tell.
    repeats : int
    seconds : float
        Of the window.
    idle_s, settle_s : float
        Seconds of idling measured before the first run, and waited for after a change of clock.
    seed : int
        Of the order, and of the clients' choices.
    price : float or None
    """

    host: str
    family: str | None = None
    frequencies: tuple[float, ...] = ()
    clock_hz: float | None = None
    repeats: int = 3
    seconds: float = 2.0
    idle_s: float = 10.0
    settle_s: float = 2.0
    seed: int = 0
    price: float | None = None


class ServiceStep(NamedTuple):
    """One run: what of, at which clock (None: as found), and which of several equal ones.

    ``kind`` is "run", or "client-step" for the run with more client that ends a load run and is no
    row of its own.
    """

    kind: str
    setup: Mapping[str, Any]
    freq_hz: float | None
    repeat: int

    @property
    def key(self) -> str:
        """The same for the same step, whatever the order of its set-up."""
        return json.dumps([self.kind, dict(self.setup), self.freq_hz, self.repeat], sort_keys=True)


class Load(Protocol):
    """Clients and the service that they drive, in one run."""

    @property
    def cores(self) -> int | None:
        """Physical cores that the service may use; None where not known."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether the service runs on this host, so that its counts are of the service."""
        ...

    @property
    def pids(self) -> Sequence[int]:
        """Processes of the service, for counters; empty where they are out of reach."""
        ...

    def start(self, output: Path) -> None:
        """Begin the load; what the clients print goes to files named after ``output``."""
        ...

    def wait_steady(self) -> None:
        """Return when the load is steady. Raises `MeasurementError` when it never is."""
        ...

    def observe(self) -> Any:
        """Counts of this moment."""
        ...

    def finish(self) -> None:
        """Wait for the end of the clients.

        Raises
        ------
        CutShortError
            When they ended before the window did.
        MeasurementError
            When they failed.
        """
        ...

    def stop(self) -> None:
        """End what is still running."""
        ...

    def columns(self, seen: Sequence[Any]) -> dict[str, Any]:
        """Columns of the runs table, from what `observe` saw at the ends of the slices."""
        ...


@dataclass
class ServiceRuns:
    """Runs of a service under way.

    Attributes
    ----------
    options : ServiceOptions
    session : Session
    machine : Machine
    sampling : Sampling
    reaper : Reaper
        Ends what runs and removes what lies about if this process dies.
    tell : callable
        Takes one line of text for the user.
    clock, wait : callable
        Seconds of a clock that never goes back, and a wait of so many; others for tests.
    """

    options: ServiceOptions
    session: Session
    machine: Machine
    sampling: Sampling
    reaper: Reaper
    tell: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep
    _number: int = 0
    _idle: dict[str, Drawn] = field(default_factory=dict)
    _done: dict[str, dict[str, Any]] = field(default_factory=dict)
    _cooling: Cooling | None = None
    _told: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """Take up what was measured before, and measure the idle host."""
        for record in self.session.records():
            self._number = max(self._number, record["run"] + 1)
            if record["kind"] == "idle":
                self._idle = drawn_in(self.session, record)
            else:
                self._done[record["key"]] = self._row(record)
        self._cooling = Cooling(self.machine.temperature_c)
        if self.sampling.channels and self.options.idle_s > 0 and not self._idle:
            self._measure_idle()

    def done(self, step: ServiceStep) -> dict[str, Any] | None:
        """Row of a step that is measured already."""
        return self._done.get(step.key)

    def tell_once(self, text: str) -> None:
        """Say something that holds for many runs."""
        if text not in self._told:
            self._told.add(text)
            self.tell(text)

    def measure(
        self, step: ServiceStep, make: Callable[[float], Load], *, workload: str
    ) -> dict[str, Any]:
        """Measure a step; returns its row when it is on disk.

        Parameters
        ----------
        step : ServiceStep
        make : callable
            Makes the load, whose clients are to go on for so many seconds after the window as its
            argument says. Where a busy host makes that too few, a load with more is tried.
        workload : str
            Name of the row's workload.

        Raises
        ------
        MeasurementError
            When the load fails, a setting is refused or the disk is full.
        """
        *margins, longest = MARGINS_S
        for margin_s in margins:
            with suppress(CutShortError):
                return self._measure(step, make(margin_s), workload)
        return self._measure(step, make(longest), workload)

    def _measure(self, step: ServiceStep, load: Load, workload: str) -> dict[str, Any]:
        check_space(self.session.folder)
        if self.machine.set_up(step.freq_hz, None):
            self.wait(self.options.settle_s)
        if self._cooling is not None:
            self._cooling.wait()
        record = self._record(step, load)
        before = self.machine.before_run()
        # A slow sensor's first reading comes before the clients, so that none waits for it.
        self.sampling.start(self.session.samples(record["run"]))
        try:
            load.start(self.session.output(record["run"]))
            load.wait_steady()
            counting = _Counting.start(self, record["run"], load.pids)
            seen = [load.observe()]
            before = before._replace(
                snapshot=Snapshot.take(self.machine.procfs, self.machine.sysfs)
            )
            start_s = self.clock()
            seen += self._watch(load, start_s)
            end_s = self.clock()
            window = Execution(start_s, end_s, 0, 0.0, 0.0)
            host = self.machine.after_run(before, window, 1) if load.is_local else {}
            facts = counting.stop(end_s - start_s)
            load.finish()
        finally:
            load.stop()
            self.sampling.stop()
        facts = {"workload": workload, **self._host_facts(host), **facts, **load.columns(seen)}
        if step.freq_hz is None and load.is_local:
            facts |= clock_found(self.machine, self.options.clock_hz, facts)
        return self._end(record, window, facts)

    def _watch(self, load: Load, start_s: float) -> Iterator[Any]:
        for part in range(1, SLICES + 1):
            left = start_s + part * self.options.seconds / SLICES - self.clock()
            self.wait(max(left, 0.0))
            yield load.observe()

    def _host_facts(self, host: dict[str, Any]) -> dict[str, Any]:
        """What the host did; what is of the measured command alone is not of a service."""
        return {k: v for k, v in host.items() if not k.startswith("command_") and k != "sockets"}

    def _measure_idle(self) -> None:
        record = self._record(ServiceStep("idle", {}, None, 0), None)
        self.sampling.start(self.session.samples(record["run"]))
        start_s = self.clock()
        self.wait(self.options.idle_s)
        end_s = self.clock()
        self.sampling.stop()
        record |= {"start_s": start_s, "end_s": end_s, "exit_code": 0, "facts": {}}
        self.session.append(record | {"failures": self.sampling.failures})
        self._idle = drawn_in(self.session, record)

    def _record(self, step: ServiceStep, load: Load | None) -> dict[str, Any]:
        record = {
            "run": self._number,
            "kind": step.kind,
            "key": step.key,
            "setup": dict(step.setup),
            "asked_hz": step.freq_hz,
            "repeat": step.repeat,
            "cores": None if load is None else load.cores,
            "executions": 1,
            "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        self._number += 1
        return record

    def _end(
        self, record: dict[str, Any], window: Execution, facts: dict[str, Any]
    ) -> dict[str, Any]:
        stated = self.options.clock_hz if record["asked_hz"] is None else record["asked_hz"]
        record |= {
            "start_s": window.start_s,
            "end_s": window.end_s,
            "exit_code": 0,
            "freq_hz": facts.pop("freq_hz", stated),
            "facts": {k: v for k, v in facts.items() if v is not None and v == v},
            "failures": self.sampling.failures,
        }
        self.session.append(record)
        row = self._row(record)
        self._done[record["key"]] = row
        if row.get("notes"):
            self.tell_once(str(row["notes"]))
        return row

    def _row(self, record: Mapping[str, Any]) -> dict[str, Any]:
        return service_row(self.session, record, drawn_in(self.session, record), self._idle)


def service_rows(session: Session, *, kind: str = "run") -> list[dict[str, Any]]:
    """Rows of all runs of a kind so far, from records and raw readings alone."""
    rows: list[dict[str, Any]] = []
    idle: dict[str, Drawn] = {}
    for record in session.records():
        if record["kind"] == "idle":
            idle = drawn_in(session, record)
        elif record["kind"] == kind:
            rows.append(service_row(session, record, drawn_in(session, record), idle))
    return rows


def service_row(
    session: Session,
    record: Mapping[str, Any],
    drawn: Mapping[str, Drawn],
    idle: Mapping[str, Drawn],
) -> dict[str, Any]:
    """Row of one run: `measurements.sweep.rows.row_of` with the length of its window."""
    row = row_of(session, record, drawn, idle)
    window_s = row.pop("time_s")
    row.pop("executions")
    return {**row, "window_s": window_s}


@dataclass
class _Counting:
    """perf on the processes of a service while the window lasts."""

    runs: ServiceRuns
    files: list[Path] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    def start(cls, runs: ServiceRuns, number: int, pids: Sequence[int]) -> _Counting:
        counting = cls(runs)
        perf = runs.machine.perf
        for place, pid in enumerate(pids if perf is not None else ()):
            file = runs.session.counts(number, place)
            counting.files.append(file)
            assert perf is not None
            counting.processes.append(
                subprocess.Popen(
                    perf.attach(pid, file),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=runs.reaper.environment(),
                    start_new_session=True,
                )
            )
        return counting

    def stop(self, window_s: float) -> dict[str, Any]:
        """Columns of what was counted, in proportion to the window."""
        for process in self.processes:
            process.send_signal(signal.SIGINT)
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GIVE_UP_S)
        perf = self.runs.machine.perf
        if perf is None or not self.files:
            return {}
        counters = perf.read(*self.files)
        row: dict[str, Any] = dict(counters.columns())
        if counters.elapsed_s:
            # Each process was counted for its own time; their times add up to elapsed_s.
            share = window_s / (counters.elapsed_s / len(self.files))
            row |= {name: row[name] * share for name in _COUNTED if name in row}
        return row


# Opening what the runs of a service need: session, sensors, counters, and who cleans up.


_ELSEWHERE = "the service runs on another host"
_REMOTE_POWER = f"power: {_ELSEWHERE}: name a source that reads it, as in --power ipmi@bmc-7"


class Rows(Protocol):
    """A sweep whose runs come one by one."""

    def run(self) -> Iterator[dict[str, Any]]:
        """Measure; one row a run."""

    @property
    def runs_in_table(self) -> int:
        """Rows that there will be."""


@dataclass(frozen=True)
class Running:
    """Runs that are set up, and where their table goes."""

    runs: ServiceRuns
    output: Path

    def write(self, table: pd.DataFrame) -> None:
        """Write the table, whole or not at all."""
        from measurements import write_runs

        write_runs(table, self.output)

    def take(
        self,
        sweep: Rows,
        table: Callable[[Session], pd.DataFrame],
        show_progress: Callable[[int, int, str], None],
    ) -> pd.DataFrame:
        """Run a sweep to its end, with the table written anew after every run.

        Parameters
        ----------
        sweep : Rows
        table : callable
            Makes the table of the session's records.
        show_progress : callable
            Takes the number of runs done, that of all, and the workload.

        Returns
        -------
        pandas.DataFrame
            The table that was written.
        """
        for done, row in enumerate(sweep.run(), start=1):
            self.write(table(self.runs.session))
            show_progress(done, sweep.runs_in_table, str(row["workload"]))
        found = table(self.runs.session)
        self.write(found)
        return found


@contextmanager
def running(
    options: ServiceOptions,
    host: HostOptions,
    output: Path,
    *,
    workload: dict[str, Any],
    is_local: bool = True,
    resume: bool = False,
    counters: bool = True,
    tell: Callable[[str], None] = print,
) -> Iterator[Running]:
    """Open session, machine and sensors; all is closed and cleaned up when left.

    Parameters
    ----------
    options : ServiceOptions
    host : HostOptions
        Only what its ``metrics`` name must be measurable.
    output : Path
        Of the runs table; its raw readings go beside it.
    workload : dict
        What is asked of the workload, kept in the session's plan; a sweep that goes on must ask
        the same.
    is_local : bool
        Whether the service is on this host; if not, no sensor of this one is tried.
    resume, counters : bool
    tell : callable
        Takes one line of text for the user.

    Raises
    ------
    MeasurementError, SensorError
        When what was asked for cannot be measured, set or written.
    MeasurementError
        When the table is there already, or a sweep that goes on is another one.
    """
    folder, session = folder_and_session(output, resume=resume)
    if session is not None and session.plan.get("asked") != _plain(workload):
        raise MeasurementError(
            f"{folder}: another workload was asked for: give the same, or another -o"
        )
    missing: list[str] = []
    machine = Machine.open(
        frequencies=options.frequencies,
        turbo=host.turbo,
        counters=counters and is_local,
        sysfs=Path(host.sysfs),
        procfs=Path(host.procfs),
    )
    try:
        if machine.no_counters is not None:
            reason = machine.no_counters if is_local else f"{_ELSEWHERE}: count there"
            refuse_or_note("cpi", reason, host, missing)
        sampling = _sampling(host, is_local, missing)
        try:
            session = session or Session.create(folder, _plan(options, host, sampling, workload))
            for text in missing:
                tell(f"not measured here: {text}")
            with Reaper() as reaper:
                runs = ServiceRuns(options, session, machine, sampling, reaper, tell)
                yield Running(runs, output)
        except BaseException:
            # Where nothing was measured, nothing is in the way of another try.
            if session is not None and not session.records():
                shutil.rmtree(session.folder, ignore_errors=True)
            raise
        finally:
            sampling.close()
    finally:
        machine.close()


def _sampling(host: HostOptions, is_local: bool, missing: list[str]) -> Sampling:
    if not is_local and host.power is None:
        missing.append(_REMOTE_POWER)
        return open_sampling(replace(host, power="none"), [])
    return open_sampling(host, missing)


def _plan(
    options: ServiceOptions, host: HostOptions, sampling: Sampling, workload: dict[str, Any]
) -> dict[str, Any]:
    return {
        "host": options.host,
        "family": options.family,
        "workload": None,
        "data_bytes": None,
        "price": options.price,
        "options": asdict(options),
        "host_options": asdict(host),
        "asked": _plain(workload),
        "channels": sampled_channels(sampling),
    }


def _plain(workload: dict[str, Any]) -> dict[str, Any]:
    """As JSON gives it back."""
    plain: dict[str, Any] = json.loads(json.dumps(workload))
    return plain
