"""The measuring loop of jobs: every setting several times, in random order, each run timed whole.

A run is timed from the start of its client to its end, which is what a user waits for. Starting
Java, reading the configuration and submitting take the same few seconds at every data size:
``start_up_s`` says how many, so that what grows with the data can be told from them.
"""

from __future__ import annotations

import json
import random
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.errors import MeasurementError
from measurements.host.conditions import Cooling
from measurements.host.execution import Execution, execute
from measurements.sweep.loop import clock_found
from measurements.sweep.machine import clock_off, spreads
from measurements.sweep.rows import drawn_in
from measurements.sweep.session import check_space
from measurements.table.units import frequency_text
from measurements.workloads.hadoop.cluster import NODES
from measurements.workloads.hadoop.engines import first_complaint
from measurements.workloads.hadoop.install import VERSION
from measurements.workloads.hadoop.job_rows import (
    job_columns,
    node_columns,
    node_sessions,
    rows_of,
    write_tasks,
)
from measurements.workloads.hadoop.jobs import Setting, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd

    from measurements.power.energy import Drawn
    from measurements.power.sampler import Sampling
    from measurements.sweep.machine import Machine
    from measurements.sweep.measure import HostOptions
    from measurements.sweep.session import Session
    from measurements.workloads.hadoop.cluster import NodeMeter
    from measurements.workloads.hadoop.engines import Engine
    from measurements.workloads.hadoop.history import Job
    from measurements.workloads.service import ServiceOptions, ServiceRuns


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
        cooling = Cooling(self.machine.temperature_c)
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


# Hadoop jobs measured: from what is asked to a runs table, whatever runs them.


# Beside one value of an option there is none: Hadoop's own choice.
_NOT_SET = (None,)
_MISSING = "not measured here: "
# Why, in words that hold for tasks that are no children of the command here.
_REASONS = {
    "cpi": "the tasks of a cluster are processes of its own, which perf does not follow",
    "power": "this host's watts are not those of the cluster: name its nodes' sensors by --nodes",
}


@dataclass(frozen=True, kw_only=True)
class HadoopOptions:
    """What is asked of Hadoop, as it is kept with the runs.

    Attributes
    ----------
    mode : str
        "local" (one process a job), "yarn" (a cluster of this host) or "cluster" (the user's).
    workloads : tuple of str
    data_bytes, map_slots, reduce_slots, task_memory_bytes : tuple of int
    compressions : tuple of str
        What is swept; empty leaves it to Hadoop.
    reduces : int or None
        Reduce tasks; None for one a reduce slot.
    properties : dict
        Of Hadoop's, for every job.
    warm_ups : int
    cluster : str
        Name of the user's cluster.
    nodes, examples, history : str or None
        File of its nodes, jar of Hadoop's examples and folder of job histories there.
    command : tuple of str
        Arguments of ``hadoop`` for a job of the user's own.
    """

    mode: str
    workloads: tuple[str, ...]
    data_bytes: tuple[int, ...]
    map_slots: tuple[int, ...]
    reduce_slots: tuple[int, ...]
    task_memory_bytes: tuple[int, ...]
    compressions: tuple[str, ...]
    reduces: int | None
    properties: dict[str, str]
    warm_ups: int
    cluster: str
    nodes: str | None
    examples: str | None
    history: str | None
    command: tuple[str, ...]

    def settings(self) -> list[Setting]:
        """All combinations of what is swept."""
        return settings(
            self.workloads,
            self.data_bytes or _NOT_SET,
            self.map_slots or _NOT_SET,
            self.reduce_slots or _NOT_SET,
            self.task_memory_bytes or _NOT_SET,
            self.compressions or _NOT_SET,
        )


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

    Parameters
    ----------
    options : HadoopOptions
    service : ServiceOptions
        Clocks, repeats, idling; its window of load means nothing here.
    host : HostOptions
    output : Path
        Of the runs table; raw readings, logs and tasks go beside it.
    scratch : Path
        Folder on the disk that is to be used; what is made in it is removed.
    open_ports : bool
        Whether a cluster of this host may listen on all addresses, where it cannot do without.
    resume : bool
    tell, show : callable
        Take a line for the user; and how many runs of how many are done, and which was the last.

    Returns
    -------
    pandas.DataFrame
        The runs table.

    Raises
    ------
    MeasurementError, SensorError
        When something is missing, a job fails, or a sensor asked for cannot be read.
    PpwError
        When the table is there already, or a sweep that goes on is another one.
    """
    from measurements.workloads.hadoop.cluster import close_nodes, open_nodes, read_nodes
    from measurements.workloads.hadoop.install import find_jars, find_java
    from measurements.workloads.hadoop.job_rows import hadoop_table
    from measurements.workloads.service import running

    nodes = read_nodes(Path(options.nodes)) if options.nodes else []
    if options.mode != "cluster":
        # Before the sensors have their say.
        find_java()
        find_jars()
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
        meters = open_nodes(
            nodes, runs.session, interval_s=host.interval_s, timeout_s=host.timeout_s
        )
        stack.callback(close_nodes, meters)
        engine = _engine(options, runs, scratch, open_ports=open_ports)
        stack.callback(engine.close)
        sweep = _sweep(options, runs, engine, meters)
        for done, (step, _) in enumerate(sweep.run(), start=1):
            opened.write(hadoop_table(runs.session))
            if show is not None:
                show(done, len(sweep.steps), step.text())
        table = hadoop_table(runs.session)
        opened.write(table)
    return table


def _with_reasons(tell: Callable[[str], None], options: HadoopOptions) -> Callable[[str], None]:
    """Say why a quantity of a cluster is not measured."""
    if options.mode == "local":
        return tell
    metrics = ("cpi",) if options.mode == "yarn" else ("cpi", "power")

    def said(text: str) -> None:
        metric = text.removeprefix(_MISSING).partition(":")[0]
        if not text.startswith(_MISSING) or metric not in metrics:
            tell(text)
        elif metric == "cpi" or not options.nodes:
            tell(f"{_MISSING}{metric}: {_REASONS[metric]}")

    return said


def _engine(
    options: HadoopOptions, runs: ServiceRuns, scratch: Path, *, open_ports: bool
) -> Engine:
    from measurements.workloads.hadoop.engines import OwnHadoop, in_memory

    if options.mode != "cluster":
        from measurements.workloads.hadoop.install import find_jars, find_java

        java, jars = find_java(), find_jars()
    folder = runs.reaper.folder(scratch)
    if in_memory(folder, Path("/proc/self/mounts").read_text(encoding="utf-8")):
        runs.tell(f"{scratch} is kept in memory: no byte of these jobs reaches a disk")
    if options.mode == "cluster":
        return _user_cluster(options, runs, folder)
    from measurements.workloads.hadoop.engines import Local, OneMachine

    own = OwnHadoop(
        java=java,
        jars=jars,
        reaper=runs.reaper,
        scratch=folder,
        seed=runs.options.seed,
        reduces=options.reduces,
        properties=options.properties,
    )
    return Local(own) if options.mode == "local" else OneMachine(own, open_ports=open_ports)


def _user_cluster(options: HadoopOptions, runs: ServiceRuns, folder: Path) -> Engine:
    from measurements.workloads.hadoop.cluster import DEFAULT_HISTORY, ClusterOptions, UserCluster

    cluster = ClusterOptions(
        command=options.command,
        examples=options.examples,
        history=options.history or DEFAULT_HISTORY,
        reduces=options.reduces,
        properties=options.properties,
        seed=runs.options.seed,
    )
    return UserCluster(cluster, runs.reaper, folder, runs.tell)


def _sweep(
    options: HadoopOptions, runs: ServiceRuns, engine: Engine, meters: Sequence[NodeMeter]
) -> HadoopSweep:
    from measurements.workloads.hadoop.install import find_java

    plan = SweepPlan(
        settings=tuple(options.settings()),
        frequencies=runs.options.frequencies,
        clock_hz=runs.options.clock_hz,
        repeats=runs.options.repeats,
        warm_ups=options.warm_ups,
        idle_s=runs.options.idle_s,
        settle_s=runs.options.settle_s,
        seed=runs.options.seed,
        java=None if options.mode == "cluster" else find_java().version,
    )
    return HadoopSweep(
        plan, engine, runs.session, runs.machine, runs.sampling, runs.tell, tuple(meters)
    )
