"""The measuring loop of jobs: every setting several times, in random order, each run timed whole.

A run is timed from the start of its client to its end, which is what a user waits for. Starting
Java, reading the configuration and submitting take the same few seconds at every data size:
``start_up_s`` says how many, so that what grows with the data can be told from them.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.cooling import Cooling
from measurements.errors import MeasurementError
from measurements.execution import Execution, execute
from measurements.quantities import frequency_text
from measurements.run_rows import drawn_in
from measurements.session import check_space
from measurements.stability import clock_off, spreads
from measurements.sweep import clock_found
from measurements.workloads.hadoop.engine import first_complaint
from measurements.workloads.hadoop.figures import job_columns, node_columns, write_tasks
from measurements.workloads.hadoop.jars import VERSION
from measurements.workloads.hadoop.jobs import Setting
from measurements.workloads.hadoop.nodes import NODES
from measurements.workloads.hadoop.rows import node_sessions, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from measurements.machine import Machine
    from measurements.power.energy import Drawn
    from measurements.sampling import Sampling
    from measurements.session import Session
    from measurements.workloads.hadoop.engine import Engine
    from measurements.workloads.hadoop.history import Job
    from measurements.workloads.hadoop.nodes import NodeMeter

# Of the client alone where its tasks are processes of others.
_OF_THE_CLIENT = ("command_user_s", "command_system_s")


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """What is measured.

    Attributes
    ----------
    settings : tuple of Setting
    frequencies : tuple of float
        Hz; empty for the clock as it is found.
    clock_hz : float or None
        What the clock is where nothing here can tell.
    repeats, warm_ups : int
    idle_s, settle_s : float
    seed : int
        Of the order.
    java : str or None
        Version, where it is known which runs the tasks.
    """

    settings: tuple[Setting, ...]
    frequencies: tuple[float, ...] = ()
    clock_hz: float | None = None
    repeats: int = 3
    warm_ups: int = 1
    idle_s: float = 10.0
    settle_s: float = 2.0
    seed: int = 0
    java: str | None = None


class Step(NamedTuple):
    """One run: of which setting, at which clock (None: as found), and which of several."""

    setting: Setting
    freq_hz: float | None
    repeat: int

    def text(self) -> str:
        """Name its set-up for people."""
        clock = "" if self.freq_hz is None else f" at {frequency_text(self.freq_hz)}"
        return self.setting.text() + clock


@dataclass
class HadoopSweep:
    """A sweep under way.

    Attributes
    ----------
    plan : SweepPlan
    engine : Engine
    session : Session
    machine : Machine
    sampling : Sampling
        Sensors of this host.
    tell : callable
        Takes one line of text for the user.
    nodes : sequence of NodeMeter
        Of a user's cluster, where they are named.
    """

    plan: SweepPlan
    engine: Engine
    session: Session
    machine: Machine
    sampling: Sampling
    tell: Callable[[str], None]
    nodes: Sequence[NodeMeter] = ()
    _number: int = 0
    _idle: dict[str, dict[str, Drawn]] = field(default_factory=dict)
    _times: dict[tuple[Setting, float | None], list[dict[str, Any]]] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    @property
    def steps(self) -> list[Step]:
        """All runs in the order in which they are measured: shuffled, by the seed."""
        frequencies: Sequence[float | None] = self.plan.frequencies or (None,)
        repeats = range(self.plan.repeats)
        found = [Step(*part) for part in product(self.plan.settings, frequencies, repeats)]
        random.Random(self.plan.seed).shuffle(found)
        return found

    def run(self) -> Iterator[tuple[Step, list[dict[str, Any]]]]:
        """Measure all that is not yet measured; yields each run's rows as it ends.

        Raises
        ------
        MeasurementError
            When a job fails, a setting is refused or a disk is full.
        """
        done = self._resume()
        todo = [step for step in self.steps if step not in done]
        if not todo:
            return
        cooling = Cooling(self.machine)
        if self.plan.idle_s > 0 and not self._idle and self._samplings():
            self._measure_idle()
        self.engine.prepare(self.plan.settings)
        self._warm_up(todo)
        for step in todo:
            cooling.wait()
            yield step, self._measure(step)

    def _resume(self) -> set[Step]:
        done = set()
        parts = node_sessions(self.session)
        for record in self.session.records():
            self._number = max(self._number, record["run"] + 1)
            if record["kind"] == "idle":
                self._idle = self._drawn(record)
            if record["kind"] != "run" or record["exit_code"]:
                continue
            setting = Setting(*record["setting"])
            done.add(Step(setting, record["asked_hz"], record["repeat"]))
            rows = rows_of(self.session, parts, record, self._idle)
            self._times.setdefault((setting, record["asked_hz"]), []).append(rows[-1])
        return done

    def _samplings(self) -> dict[str, Sampling]:
        """Sensors by node; this host's under ""."""
        every = {"": self.sampling, **{meter.node.host: meter.sampling for meter in self.nodes}}
        return {name: sampling for name, sampling in every.items() if sampling.channels}

    def _files(self, number: int) -> dict[str, Any]:
        sessions = {"": self.session, **{m.node.host: m.session for m in self.nodes}}
        return {name: session.samples(number) for name, session in sessions.items()}

    def _drawn(self, record: dict[str, Any]) -> dict[str, dict[str, Drawn]]:
        parts = {"": self.session, **node_sessions(self.session)}
        return {name: drawn_in(part, record) for name, part in parts.items()}

    def _measure_idle(self) -> None:
        record = self._begin("idle", None)
        with self._reading(record):
            start_s = time.monotonic()
            time.sleep(self.plan.idle_s)
            end_s = time.monotonic()
        self._end(record, Execution(start_s, end_s, 0, 0.0, 0.0))
        self._idle = self._drawn(record)

    def _reading(self, record: dict[str, Any]) -> _Reading:
        return _Reading(self._samplings(), self._files(record["run"]), record)

    def _warm_up(self, todo: Sequence[Step]) -> None:
        """Run the smallest job unmeasured, so that the first measured one finds files cached."""
        smallest = min(todo, key=lambda step: step.setting.data_bytes or 0)
        for _ in range(self.plan.warm_ups):
            self._set(smallest)
            record = self._begin("warm-up", smallest)
            made = self._execute(record, smallest, [])
            self.engine.job(smallest.setting, self.session.output(record["run"]))
            self._end(record, made)

    def _measure(self, step: Step) -> list[dict[str, Any]]:
        check_space(self.session.folder)
        self._set(step)
        record = self._begin("run", step)
        counts = [self.session.counts(record["run"], 0)]
        command = self.engine.command(step.setting)
        before = self.machine.before_run()
        with self._reading(record):
            made = self._execute(record, step, counts, command)
        # Before the job's history is fetched, which takes a while.
        host = self.machine.after_run(before, made, 1)
        if made.exit_code == 0:
            self._take(record, step, made, host)
        self._end(record, made)
        rows = rows_of(self.session, node_sessions(self.session), record, self._idle)
        self._advise(step, rows[-1])
        return rows

    def _set(self, step: Step) -> None:
        if self.machine.set_up(step.freq_hz, None):
            time.sleep(self.plan.settle_s)

    def _begin(self, kind: str, step: Step | None) -> dict[str, Any]:
        record = {
            "run": self._number,
            "kind": kind,
            "setting": None if step is None else list(step.setting),
            "asked": [] if step is None else list(step.setting.columns()),
            "asked_hz": None if step is None else step.freq_hz,
            "freq_hz": None if step is None else step.freq_hz,
            "repeat": 0 if step is None else step.repeat,
            "cores": self.machine.cores if self.engine.mode != "cluster" else None,
            "executions": 1,
            "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "facts": {},
            "failures": {},
            "node_failures": {},
            NODES: {},
            "master": None,
        }
        self._number += 1
        return record

    def _execute(
        self,
        record: dict[str, Any],
        step: Step,
        counts: list[Any],
        command: list[str] | None = None,
    ) -> Execution:
        output = self.session.output(record["run"])
        command = command or self.engine.command(step.setting)
        counted = self.machine.commands(command, counts) if counts else [command]
        self.engine.starts(output)
        # Only one process is this host's to place: a cluster's daemons are there already.
        cpus = self.machine.cpus() if self.engine.mode == "local" else None
        made = execute(counted, output=output, cpus=cpus, environment=self.engine.environment())
        if made.exit_code:
            self._end(record, made)
            raise MeasurementError(
                f"{step.text()} ended with exit code {made.exit_code} in run {record['run']}: "
                f"{first_complaint(output) or 'it gave no reason'}; all it said is in {output}"
            )
        return made

    def _take(
        self, record: dict[str, Any], step: Step, made: Execution, host: dict[str, Any]
    ) -> None:
        """Put into a record what the job, this host and its counters tell of a run."""
        job = self.engine.job(step.setting, self.session.output(record["run"]))
        facts: dict[str, Any] = {"mode": self.engine.mode, **step.setting.columns()}
        if self.engine.mode != "cluster":
            facts |= {"hadoop": VERSION, "java": self.plan.java}
            facts |= self._of_this_host(record, step, host)
        if job is not None:
            self._refuse_failed(job, record)
            facts |= job_columns(job)
            facts |= self._start_up(step, job, made)
            folder = self.session.folder / "tasks"
            folder.mkdir(exist_ok=True)
            write_tasks(job, folder / f"{record['run']:04}.csv")
        record["freq_hz"] = facts.pop("freq_hz", record["asked_hz"])
        record["facts"] = {k: v for k, v in facts.items() if v is not None and v == v}
        record[NODES] = {} if job is None else node_columns(job)
        record["master"] = None if job is None else job.master

    def _of_this_host(
        self, record: dict[str, Any], step: Step, host: dict[str, Any]
    ) -> dict[str, Any]:
        facts = dict(host)
        if self.engine.mode != "local":
            for name in _OF_THE_CLIENT:
                facts.pop(name, None)
        else:
            facts |= self.machine.counted([self.session.counts(record["run"], 0)])
        if step.freq_hz is None:
            facts |= clock_found(self.machine, self.plan.clock_hz, facts)
        return facts

    def _start_up(self, step: Step, job: Job, made: Execution) -> dict[str, float]:
        """Seconds from the start of the client to the job's submission, by this host's clock."""
        if job.submitted_s is None or self.engine.mode == "cluster":
            return {}
        started_s = made.start_s + time.time() - time.monotonic()
        start_up_s = job.submitted_s - started_s
        if start_up_s > 0:
            self._say_once(
                f"a run of {step.setting.workload} has {start_up_s:.1f} s before its job is "
                "submitted (start_up_s), most of it to start Java, whatever the data: the smaller "
                "they are, the more it weighs",
                key=f"start-up of {step.setting.workload}",
            )
        return {"start_up_s": start_up_s} if start_up_s > 0 else {}

    def _refuse_failed(self, job: Job, record: dict[str, Any]) -> None:
        if job.status not in ("SUCCEEDED", None):
            reason = f": {job.reason}" if job.reason else ""
            raise MeasurementError(f"run {record['run']}: {job.job_id} is {job.status}{reason}")

    def _end(self, record: dict[str, Any], made: Execution) -> None:
        record |= {"start_s": made.start_s, "end_s": made.end_s, "exit_code": made.exit_code}
        self.session.append(record)

    def _advise(self, step: Step, row: dict[str, Any]) -> None:
        alike = self._times.setdefault((step.setting, step.freq_hz), [])
        alike.append(row)
        for found in (*spreads(alike, step.text()), *clock_off(row), *self.machine.throttled(row)):
            self._say_once(found.message, key=f"{step.text()}: {found.what}")
        if row.get("notes"):
            self._say_once(str(row["notes"]), key=str(row["notes"]))

    def _say_once(self, text: str, *, key: str) -> None:
        if key not in self._told:
            self._told.add(key)
            self.tell(text)


class _Reading:
    """All sensors at work: from just before a run to just after it."""

    def __init__(
        self, samplings: dict[str, Sampling], files: dict[str, Any], record: dict[str, Any]
    ) -> None:
        self._samplings, self._files, self._record = samplings, files, record

    def __enter__(self) -> None:
        for name, sampling in self._samplings.items():
            sampling.start(self._files[name])

    def __exit__(self, *_: object) -> None:
        for sampling in self._samplings.values():
            sampling.stop()
        failures = {name: s.failures for name, s in self._samplings.items() if s.failures}
        self._record["failures"] = failures.pop("", {})
        self._record["node_failures"] = failures
