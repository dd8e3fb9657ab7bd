"""The measuring loop of jobs: every setting several times, in random order, each run timed whole.

A run is timed from the start of its client to its end, which is what a user waits for. Starting
Java, reading the configuration and submitting take the same few seconds at every data size:
``start_up_s`` says how many, so that what grows with the data can be told from them.
"""

from __future__ import annotations

import json
import random
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.errors import MeasurementError
from measurements.host.conditions import Cooling
from measurements.host.cpu_placement import Execution, execute
from measurements.sweep import loop, machine
from measurements.sweep.session import check_space
from measurements.table.units import frequency_text
from measurements.workloads.hadoop import cluster, engines, install, job_rows
from measurements.workloads.hadoop.jobs import Setting, settings
from measurements.workloads.service import ServiceOptions, ServiceRuns, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd

    from measurements.power.energy import RunEnergy
    from measurements.power.sampler import Sampling
    from measurements.sweep.measure import HostOptions
    from measurements.sweep.session import Session
    from measurements.workloads.hadoop.history import Job

# Of the client alone where its tasks are processes of others.
_OF_THE_CLIENT = ("command_user_s", "command_system_s")
_MISSING = "not measured here: "
# Reasons that hold for tasks that are no children of the command here.
_REASONS = {
    "cpi": "the tasks of a cluster are processes of its own, which perf does not follow",
    "power": "this host's power is not that of the cluster: name its nodes' sensors by --nodes",
}


@dataclass(frozen=True, kw_only=True)
class HadoopOptions:
    """Options of a Hadoop sweep, as they are kept with the runs."""

    mode: str  # "local" (one process a job), "yarn" (a cluster of this host) or "cluster"
    workloads: tuple[str, ...]
    # What is swept; empty leaves it to Hadoop.
    data_bytes: tuple[int, ...]
    map_slots: tuple[int, ...]
    reduce_slots: tuple[int, ...]
    task_memory_bytes: tuple[int, ...]
    compressions: tuple[str, ...]
    reduces: int | None  # reduce tasks; None for one per reduce slot
    properties: dict[str, str]  # properties of Hadoop for every job
    warm_ups: int
    # Of the user's cluster: its name, file of its nodes, jar of Hadoop's examples, folder of job
    # histories, and arguments of ``hadoop`` for a job of the user's own.
    cluster: str
    nodes: str | None
    examples: str | None
    history: str | None
    command: tuple[str, ...]

    def settings(self) -> list[Setting]:
        """All combinations of what is swept."""
        slots_and_memory = self.map_slots, self.reduce_slots, self.task_memory_bytes
        # An option without values leaves the choice to Hadoop.
        choices = (self.data_bytes, *slots_and_memory, self.compressions)
        return settings(self.workloads, *(values or (None,) for values in choices))


def measure_hadoop(
    options: HadoopOptions,
    service: ServiceOptions,
    host: HostOptions,
    output: Path,
    *,
    scratch: Path,
    open_ports: bool = False,
    resume: bool = False,
    tell: Callable[[str], None] = print,
    show: Callable[[int, int, str], None] | None = None,
) -> pd.DataFrame:
    """Run all jobs that are asked for; each is in the table's file before the next begins.

    The runs table goes to ``output``, with raw readings, logs and tasks beside it. Inputs and
    outputs of jobs are made in the folder ``scratch`` and removed. ``open_ports`` lets a cluster of
    this host listen on all addresses, where it cannot do without. The window of ``service`` means
    nothing here. ``tell`` takes a line for the user; ``show`` the numbers of runs done and of all,
    and the last run.

    Raises `MeasurementError` or `SensorError` when something is missing, a job fails, a sensor
    asked for cannot be read, the table exists already, or a resumed sweep is another one.
    """
    nodes = cluster.read_nodes(Path(options.nodes)) if options.nodes else []
    if options.mode != "cluster":
        # Before the sensors are opened.
        install.find_java()
        install.find_jars()
    with ExitStack() as stack:
        opened = stack.enter_context(
            running(
                service,
                host,
                output,
                # As it comes back from the plan's file.
                workload={"hadoop": json.loads(json.dumps(asdict(options)))},
                is_local=options.mode != "cluster",
                resume=resume,
                counters=options.mode == "local",
                tell=_with_reasons(tell, options),
            )
        )
        runs = opened.runs
        meters = cluster.open_nodes(
            nodes, runs.session, interval_s=host.interval_s, timeout_s=host.timeout_s
        )
        stack.callback(cluster.close_nodes, meters)
        engine = _engine(options, runs, scratch, open_ports=open_ports)
        stack.callback(engine.close)
        java = None if options.mode == "cluster" else install.find_java().version
        sweep = HadoopSweep(options, runs, engine, java, tuple(meters))
        for done, (step, _) in enumerate(sweep.run(), start=1):
            opened.write(job_rows.hadoop_table(runs.session))
            if show is not None:
                show(done, len(sweep.steps), step.text())
        table = job_rows.hadoop_table(runs.session)
        opened.write(table)
    return table


def _with_reasons(tell: Callable[[str], None], options: HadoopOptions) -> Callable[[str], None]:
    """Say why a quantity of a cluster is not measured."""
    if options.mode == "local":
        return tell
    metrics = ("cpi",) if options.mode == "yarn" else ("cpi", "power")

    def tell_reason(text: str) -> None:
        metric = text.removeprefix(_MISSING).partition(":")[0]
        if not text.startswith(_MISSING) or metric not in metrics:
            tell(text)
        elif metric == "cpi" or not options.nodes:
            tell(f"{_MISSING}{metric}: {_REASONS[metric]}")

    return tell_reason


def _engine(
    options: HadoopOptions, runs: ServiceRuns, scratch: Path, *, open_ports: bool
) -> engines.Engine:
    folder = runs.reaper.folder(scratch)
    if engines.in_memory(folder, Path("/proc/self/mounts").read_text(encoding="utf-8")):
        runs.tell(f"{scratch} is kept in memory: no byte of these jobs reaches a disk")
    common: dict[str, Any] = {"reduces": options.reduces, "properties": options.properties}
    common["seed"] = runs.options.seed
    if options.mode == "cluster":
        asked = cluster.ClusterOptions(
            command=options.command,
            examples=options.examples,
            history=options.history or cluster.DEFAULT_HISTORY,
            **common,
        )
        return cluster.UserCluster(asked, runs.reaper, folder, runs.tell)
    own = engines.OwnHadoop(
        java=install.find_java(),
        jars=install.find_jars(),
        reaper=runs.reaper,
        scratch=folder,
        **common,
    )
    if options.mode == "local":
        return engines.Local(own)
    return engines.OneMachine(own, open_ports=open_ports)


class Step(NamedTuple):
    """One run: its setting, its core frequency (None: as found), and the number of its repeat."""

    setting: Setting
    freq_hz: float | None
    repeat: int

    def text(self) -> str:
        """Text of the set-up for messages."""
        frequency = "" if self.freq_hz is None else f" at {frequency_text(self.freq_hz)}"
        return self.setting.text() + frequency


@dataclass
class HadoopSweep:
    """A sweep under way."""

    options: HadoopOptions
    runs: ServiceRuns
    engine: engines.Engine
    java: str | None  # version, where it is known which runs the tasks
    nodes: Sequence[cluster.NodeMeter] = ()  # of a user's cluster, where they are named
    _number: int = 0
    _idle: dict[str, dict[str, RunEnergy]] = field(default_factory=dict)
    _times: dict[tuple[Setting, float | None], list[dict[str, Any]]] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.session, self.machine = self.runs.session, self.runs.machine
        self.settings = self.options.settings()

    @property
    def steps(self) -> list[Step]:
        """All runs in the order in which they are measured: shuffled, by the seed."""
        frequencies: Sequence[float | None] = self.runs.options.frequencies or (None,)
        repeats = range(self.runs.options.repeats)
        found = [Step(*part) for part in product(self.settings, frequencies, repeats)]
        random.Random(self.runs.options.seed).shuffle(found)
        return found

    def run(self) -> Iterator[tuple[Step, list[dict[str, Any]]]]:
        """Measure all that is not yet measured; yields each run's rows as it ends.

        Raises `MeasurementError` when a job fails, a setting is refused or a disk is full.
        """
        done = self._resume()
        todo = [step for step in self.steps if step not in done]
        if not todo:
            return
        cooling = Cooling(self.machine.temperature_c)
        if self.runs.options.idle_s > 0 and not self._idle and self._samplings():
            self._measure_idle()
        self.engine.prepare(self.settings)
        self._warm_up(todo)
        for step in todo:
            cooling.wait()
            yield step, self._measure(step)

    def _resume(self) -> set[Step]:
        done = set()
        parts = job_rows.node_sessions(self.session)
        for record in self.session.records():
            self._number = max(self._number, record["run"] + 1)
            if record["kind"] == "idle":
                self._idle = job_rows.node_energies(self.session, parts, record)
            if record["kind"] != "run" or record["exit_code"]:
                continue
            setting = Setting(*record["setting"])
            done.add(Step(setting, record["asked_hz"], record["repeat"]))
            rows = job_rows.rows_of(self.session, parts, record, self._idle)
            self._times.setdefault((setting, record["asked_hz"]), []).append(rows[-1])
        return done

    def _samplings(self) -> dict[str, Sampling]:
        """Sensors by node; this host's under ""."""
        every = {"": self.runs.sampling, **{m.node.host: m.sampling for m in self.nodes}}
        return {name: sampling for name, sampling in every.items() if sampling.channels}

    def _measure_idle(self) -> None:
        record = self._begin("idle", None)
        with self._reading(record):
            start_s = time.monotonic()
            time.sleep(self.runs.options.idle_s)
            end_s = time.monotonic()
        self._end(record, Execution(start_s, end_s, 0, 0.0, 0.0))
        parts = job_rows.node_sessions(self.session)
        self._idle = job_rows.node_energies(self.session, parts, record)

    @contextmanager
    def _reading(self, record: dict[str, Any]) -> Iterator[None]:
        """Read all sensors, from just before a run to just after it."""
        samplings = self._samplings()
        sessions: dict[str, Session] = {m.node.host: m.session for m in self.nodes}
        for name, sampling in samplings.items():
            sampling.start(sessions.get(name, self.session).samples(record["run"]))
        try:
            yield
        finally:
            for sampling in samplings.values():
                sampling.stop()
            failures = {name: s.failures for name, s in samplings.items() if s.failures}
            record["failures"] = failures.pop("", {})
            record["node_failures"] = failures

    def _warm_up(self, todo: Sequence[Step]) -> None:
        """Run the smallest job unmeasured, so that the first measured one finds files cached."""
        smallest = min(todo, key=lambda step: step.setting.data_bytes or 0)
        for _ in range(self.options.warm_ups):
            self._set(smallest)
            record = self._begin("warm-up", smallest)
            made = self._execute(record, smallest, self.engine.command(smallest.setting), [])
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
            made = self._execute(record, step, command, counts)
        # Before the job's history is fetched, which takes a while.
        host = self.machine.after_run(before, made, 1)
        self._take(record, step, made, host)
        self._end(record, made)
        parts = job_rows.node_sessions(self.session)
        rows = job_rows.rows_of(self.session, parts, record, self._idle)
        self._advise(step, rows[-1])
        return rows

    def _set(self, step: Step) -> None:
        if self.machine.set_up(step.freq_hz, None):
            time.sleep(self.runs.options.settle_s)

    def _begin(self, kind: str, step: Step | None) -> dict[str, Any]:
        """Begin the record of a run, or of idling."""
        freq_hz = None if step is None else step.freq_hz
        record: dict[str, Any] = {
            "run": self._number,
            "kind": kind,
            "setting": None if step is None else list(step.setting),
            "asked": [] if step is None else list(step.setting.columns()),
            "asked_hz": freq_hz,
            "freq_hz": freq_hz,
            "repeat": 0 if step is None else step.repeat,
            "cores": self.machine.cores if self.engine.mode != "cluster" else None,
            "executions": 1,
            "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            **{name: {} for name in ("facts", "failures", "node_failures", cluster.NODES)},
            "master": None,
        }
        self._number += 1
        return record

    def _execute(
        self, record: dict[str, Any], step: Step, command: list[str], counts: list[Path]
    ) -> Execution:
        output = self.session.output(record["run"])
        counted = self.machine.commands(command, counts) if counts else [command]
        self.engine.starts(output)
        # Only one process is this host's to place: a cluster's daemons are there already.
        cpus = self.machine.cpus() if self.engine.mode == "local" else None
        made = execute(counted, output=output, cpus=cpus, environment=self.engine.environment())
        if made.exit_code:
            self._end(record, made)
            reason = engines.first_complaint(output) or "it gave no reason"
            raise MeasurementError(
                f"{step.text()} ended with exit code {made.exit_code} in run {record['run']}: "
                f"{reason}; all it said is in {output}"
            )
        return made

    def _take(
        self, record: dict[str, Any], step: Step, made: Execution, host: dict[str, Any]
    ) -> None:
        """Add to a record what the job, this host and its counters tell of a run."""
        job = self.engine.job(step.setting, self.session.output(record["run"]))
        facts: dict[str, Any] = {"mode": self.engine.mode, **step.setting.columns()}
        if self.engine.mode != "cluster":
            facts |= {"hadoop": install.VERSION, "java": self.java}
            facts |= self._of_this_host(record, step, host)
        if job is not None:
            if job.status not in ("SUCCEEDED", None):
                reason = f": {job.reason}" if job.reason else ""
                raise MeasurementError(f"run {record['run']}: {job.job_id} is {job.status}{reason}")
            facts |= job_rows.job_columns(job)
            facts |= self._start_up(step, job, made)
            folder = self.session.folder / "tasks"
            folder.mkdir(exist_ok=True)
            job_rows.write_tasks(job, folder / f"{record['run']:04}.csv")
        record["freq_hz"] = facts.pop("freq_hz", record["asked_hz"])
        record["facts"] = {k: v for k, v in facts.items() if v is not None and v == v}
        record[cluster.NODES] = {} if job is None else job_rows.node_columns(job)
        record["master"] = None if job is None else job.master

    def _of_this_host(
        self, record: dict[str, Any], step: Step, host: dict[str, Any]
    ) -> dict[str, Any]:
        facts = dict(host)
        if self.engine.mode != "local":
            for name in _OF_THE_CLIENT:
                facts.pop(name, None)
        else:
            facts |= self.machine.counter_columns([self.session.counts(record["run"], 0)])
        if step.freq_hz is None:
            facts |= loop.clock_found(self.machine, self.runs.options.clock_hz, facts)
        return facts

    def _start_up(self, step: Step, job: Job, made: Execution) -> dict[str, float]:
        """Seconds from the start of the client to the job's submission, by this host's clock."""
        if job.submitted_s is None or self.engine.mode == "cluster":
            return {}
        # Hadoop has times of the wall clock, an execution those of the monotonic one.
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

    def _end(self, record: dict[str, Any], made: Execution) -> None:
        record |= {"start_s": made.start_s, "end_s": made.end_s, "exit_code": made.exit_code}
        self.session.append(record)

    def _advise(self, step: Step, row: dict[str, Any]) -> None:
        alike = self._times.setdefault((step.setting, step.freq_hz), [])
        alike.append(row)
        for what, message in machine.instabilities(alike, step.text()).items():
            self._say_once(message, key=f"{step.text()}: {what}")
        if row.get("notes"):
            self._say_once(str(row["notes"]), key=str(row["notes"]))

    def _say_once(self, text: str, *, key: str) -> None:
        if key not in self._told:
            self._told.add(key)
            self.runs.tell(text)
