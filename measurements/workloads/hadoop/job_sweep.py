"""The measuring loop of jobs: every setting several times, in random order, each run timed whole.

A run is timed from the start of its client to its end, which is what a user waits for. Starting
Java, reading the configuration and submitting take the same few seconds at every data size:
``start_up_s`` says how many, so that what grows with the data can be told from them. The rows of
the runs table are made from the sweep's folder alone.
"""

import csv
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pandas as pd

from measurements.errors import MeasurementError
from measurements.host import files
from measurements.host.conditions import Cooling
from measurements.host.cpu_placement import Execution, execute
from measurements.power import energy, sampler
from measurements.sweep import loop
from measurements.sweep.measure import HostOptions
from measurements.sweep.session import Session, check_space, row_of, run_energy, session_rows
from measurements.table.units import frequency_text
from measurements.workloads import fio
from measurements.workloads.hadoop import cluster, engines, history, install
from measurements.workloads.hadoop.jobs import HadoopOptions, Setting
from measurements.workloads.service import ServiceOptions, ServiceRuns, running

# Of the client alone where its tasks are processes of others.
_OF_THE_CLIENT = ("command_user_s", "command_system_s")
_MISSING = "not measured here: "
# Reasons that hold for tasks that are no children of the command here.
_REASONS = {
    "cpi": "the tasks of a cluster are processes of its own, which perf does not follow",
    "power": "this host's power is not that of the cluster: name its nodes' sensors by --nodes",
}


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
                workload={"hadoop": asdict(options)},
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
        for meter in meters:
            stack.callback(meter.sampling.close)
        engine = _make_engine(options, runs, scratch, open_ports=open_ports)
        stack.callback(engine.close)
        java = None if options.mode == "cluster" else install.find_java().version
        sweep = HadoopSweep(options, runs, engine, java, tuple(meters))
        rows = ({"workload": step.text()} for step, _ in sweep.run())
        return opened.take(rows, len(sweep.steps), hadoop_table, show or (lambda *_: None))


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


def _make_engine(
    options: HadoopOptions, runs: ServiceRuns, scratch: Path, *, open_ports: bool
) -> engines.Engine:
    folder = runs.reaper.folder(scratch)
    if fio.file_system_of(folder) in ("tmpfs", "ramfs"):
        runs.tell(f"{scratch} is kept in memory: no byte of these jobs reaches a disk")
    if options.mode == "cluster":
        return cluster.UserCluster(options, runs, folder)
    own = engines.OwnHadoop(
        options=options,
        java=install.find_java(),
        jars=install.find_jars(),
        reaper=runs.reaper,
        scratch=folder,
        seed=runs.options.seed,
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
    _idle: dict[str, dict[str, energy.RunEnergy]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.session, self.machine = self.runs.session, self.runs.machine
        self.settings = self.options.settings()
        self._parts = node_sessions(self.session)

    @property
    def steps(self) -> list[Step]:
        """All runs in the order in which they are measured: shuffled, by the seed."""
        frequencies: Sequence[float | None] = self.runs.options.frequencies or (None,)
        repeats = range(self.runs.options.repeats)
        found = [Step(*part) for part in product(self.settings, frequencies, repeats)]
        random.Random(self.runs.options.seed).shuffle(found)
        return found

    def run(self) -> Iterator[tuple[Step, list[dict[str, Any]]]]:
        """Measure all that is not yet measured; yields each run's rows as it ends."""
        done = self._load_measured_steps()
        todo = [step for step in self.steps if step not in done]
        if not todo:
            return
        cooling = Cooling(self.machine.temperature_c)
        if self.runs.options.idle_s > 0 and not self._idle and self._samplings():
            record = self._begin_record("idle", None)
            with self._reading(record):
                made = self.runs.idle(self.runs.options.idle_s)
            self.runs.end_record(record, made)
            self._idle = node_energies(self.session, self._parts, record)
        self.engine.prepare(self.settings)
        self._warm_up(todo)
        for step in todo:
            cooling.wait()
            yield step, self._measure_run(step)

    def _load_measured_steps(self) -> set[Step]:
        """Take up earlier records; return the steps whose run succeeded."""
        done = set()
        for record in self.runs.earlier_records():
            if record["kind"] == "idle":
                self._idle = node_energies(self.session, self._parts, record)
            if record["kind"] == "run" and not record["exit_code"]:
                step = Step(Setting(*record["setting"]), record["asked_hz"], record["repeat"])
                done.add(step)
                self.runs.keep_row(step[:2], self._rows_of_record(record)[-1])
        return done

    def _rows_of_record(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        return rows_of(self.session, self._parts, record, self._idle)

    def _samplings(self) -> dict[str, sampler.Sampling]:
        """Sensors by node; this host's under ""."""
        every = {"": self.runs.sampling, **{m.node.host: m.sampling for m in self.nodes}}
        return {name: sampling for name, sampling in every.items() if sampling.channels}

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
            self.runs.set_up_and_settle(smallest.freq_hz)
            record = self._begin_record("warm-up", smallest)
            made = self._execute_job(record, smallest, self.engine.command(smallest.setting), [])
            self.engine.job(smallest.setting, self.session.output(record["run"]))
            self.runs.end_record(record, made)

    def _measure_run(self, step: Step) -> list[dict[str, Any]]:
        check_space(self.session.folder)
        self.runs.set_up_and_settle(step.freq_hz)
        record = self._begin_record("run", step)
        counts = [self.session.counts(record["run"], 0)]
        command = self.engine.command(step.setting)
        before = self.machine.before_run()
        with self._reading(record):
            made = self._execute_job(record, step, command, counts)
        # Before the job's history is fetched, which takes a while.
        host = self.machine.after_run(before, made, 1)
        self._take_facts(record, step, made, host)
        self.runs.end_record(record, made)
        rows = self._rows_of_record(record)
        self.runs.advise(step[:2], step.text(), rows[-1])
        return rows

    def _begin_record(self, kind: str, step: Step | None) -> dict[str, Any]:
        """Begin the record of a run, or of idling."""
        setting, freq_hz, repeat = step or (None, None, 0)
        record = self.runs.begin_record(
            kind,
            setting=None if setting is None else list(setting),
            asked=[] if setting is None else list(setting.columns()),
            asked_hz=freq_hz,
            freq_hz=freq_hz,
            repeat=repeat,
            master=None,
            **{name: {} for name in ("facts", "failures", "node_failures", cluster.NODES)},
        )
        if self.engine.mode == "cluster":
            record["cores"] = None
        return record

    def _execute_job(
        self, record: dict[str, Any], step: Step, command: list[str], counts: list[Path]
    ) -> Execution:
        output = self.session.output(record["run"])
        counted = self.machine.commands(command, counts) if counts else [command]
        self.engine.starts(output)
        # Only one process is this host's to place: a cluster's daemons are there already.
        cpus = self.machine.cpus() if self.engine.mode == "local" else None
        made = execute(counted, output=output, cpus=cpus, environment=self.engine.environment())
        if made.exit_code:
            self.runs.end_record(record, made)
            reason = engines.first_complaint(output) or "it gave no reason"
            raise MeasurementError(
                f"{step.text()} ended with exit code {made.exit_code} in run {record['run']}: "
                f"{reason}; all it said is in {output}"
            )
        return made

    def _take_facts(
        self, record: dict[str, Any], step: Step, made: Execution, host: dict[str, Any]
    ) -> None:
        """Add to a record what the job, this host and its counters tell of a run."""
        job = self.engine.job(step.setting, self.session.output(record["run"]))
        facts: dict[str, Any] = {"mode": self.engine.mode, **step.setting.columns()}
        if self.engine.mode != "cluster":
            facts |= {"hadoop": install.VERSION, "java": self.java}
            facts |= self._this_host_facts(record, step, host)
        if job is not None:
            if job.status not in ("SUCCEEDED", None):
                reason = f": {job.reason}" if job.reason else ""
                raise MeasurementError(f"run {record['run']}: {job.job_id} is {job.status}{reason}")
            facts |= job_columns(job)
            facts |= self._start_up_time(step, job, made)
            folder = self.session.folder / "tasks"
            files.make_folder(folder)
            write_tasks(job, folder / f"{record['run']:04}.csv")
        record["freq_hz"] = facts.pop("freq_hz", record["asked_hz"])
        record["facts"] = loop.drop_missing(facts)
        record[cluster.NODES] = {} if job is None else node_columns(job)
        record["master"] = None if job is None else job.master

    def _this_host_facts(
        self, record: dict[str, Any], step: Step, host: dict[str, Any]
    ) -> dict[str, Any]:
        """Add counters to a run's facts where jobs run here, else drop the client's own."""
        facts = dict(host)
        if self.engine.mode != "local":
            for name in _OF_THE_CLIENT:
                facts.pop(name, None)
        else:
            facts |= self.machine.counter_columns([self.session.counts(record["run"], 0)])
        if step.freq_hz is None:
            facts |= loop.clock_found(self.machine, self.runs.options.clock_hz, facts)
        return facts

    def _start_up_time(self, step: Step, job: history.Job, made: Execution) -> dict[str, float]:
        """Seconds from the start of the client to the job's submission, by this host's clock."""
        if job.submitted_s is None or self.engine.mode == "cluster":
            return {}
        # Hadoop has times of the wall clock, an execution those of the monotonic one.
        started_s = made.start_s + time.time() - time.monotonic()
        start_up_s = job.submitted_s - started_s
        if start_up_s > 0:
            self.runs.tell_once(
                f"a run of {step.setting.workload} spends {start_up_s:.1f} s before its job is "
                "submitted (start_up_s), mostly to start Java; with small data this is a large "
                "part of the run",
                key=f"start-up of {step.setting.workload}",
            )
        return {"start_up_s": start_up_s} if start_up_s > 0 else {}


_SOURCE = "power_source"


def hadoop_table(session: Session) -> pd.DataFrame:
    """Runs table of all runs that went well: a row per node, and one of a cluster."""
    parts = node_sessions(session)
    found = session_rows(
        session,
        energy_of=lambda session, record: node_energies(session, parts, record),
        make_row=lambda session, record, idle: rows_of(session, parts, record, idle),
    )
    return pd.DataFrame(list(chain.from_iterable(found)))


def node_sessions(session: Session) -> dict[str, Session]:
    """Parts of a sweep's folder by node, for the nodes that the user has named."""
    folder = session.folder / cluster.NODES
    if not folder.is_dir():
        return {}
    parts = [Session.open(inner) for inner in sorted(folder.iterdir())]
    return {part.plan["host"]: part for part in parts}


def node_energies(
    session: Session, parts: Mapping[str, Session], record: Mapping[str, Any]
) -> dict[str, dict[str, energy.RunEnergy]]:
    """Energy by node and channel while a record lasted; the sweep's own under ""."""
    return {name: run_energy(part, record) for name, part in {"": session, **parts}.items()}


def rows_of(
    session: Session,
    parts: Mapping[str, Session],
    record: Mapping[str, Any],
    idle: Mapping[str, Mapping[str, energy.RunEnergy]],
) -> list[dict[str, Any]]:
    """Rows of one run; ``idle`` has what the channels drew by node, the sweep's own under ""."""
    own = row_of(session, record, idle.get("", {}))
    asked = session.plan["asked"]["hadoop"]
    if asked["mode"] == "local":
        return [own]
    whole = {**own, "host": f"cluster:{asked['cluster']}"}
    if asked["mode"] == "yarn":
        # This host is the only node.
        rows, parts, master = [own], {own["host"]: session}, own["host"]
    else:
        names = list(dict.fromkeys([*parts, *record[cluster.NODES]]))
        rows = [_make_node_row(session, parts.get(name), name, record, idle) for name in names]
        masters = (name for name, part in parts.items() if part.plan["role"] == cluster.MASTER)
        master = next(masters, record["master"])
    if not rows:
        return [whole]
    domains = {row["host"]: _domain(parts[row["host"]], row) for row in rows if _SOURCE in row}
    return [*rows, cluster.cluster_row(whole, rows, domains=domains, master=master)]


def _domain(part: Session, row: Mapping[str, Any]) -> str:
    """Domain that the power of a node's row covers."""
    channels = [sampler.channel_from_json(c) for c in part.plan["channels"]]
    first = energy.totals(channels)[row[_SOURCE]][0]
    return next(c.domain for c in channels if c.label == first)


def _make_node_row(
    session: Session,
    part: Session | None,
    name: str,
    record: Mapping[str, Any],
    idle: Mapping[str, Mapping[str, energy.RunEnergy]],
) -> dict[str, Any]:
    plan = session.plan if part is None else part.plan
    if part is None:
        # A node of which nothing is known but what its tasks did.
        plan = {**plan, "host": name, "channels": []}
        plan |= dict.fromkeys(("family", "price", "cores"))
    told = replace(part or session, plan=plan)
    asked = {name: record["facts"][name] for name in record["asked"]}
    of_node = {
        **record,
        "cores": plan["cores"],
        "facts": {**asked, **record[cluster.NODES].get(name, {})},
        "failures": record["node_failures"].get(name, {}),
    }
    return row_of(told, of_node, idle.get(name, {}))


_BYTES = {
    "input_bytes": history.INPUT_BYTES,
    "map_output_bytes": history.MAP_OUTPUT_BYTES,
    "shuffle_bytes": history.SHUFFLE_BYTES,
    "output_bytes": history.OUTPUT_BYTES,
    "spilled_records": history.SPILLED_RECORDS,
    "peak_map_memory_bytes": history.PEAK_MAP_MEMORY,
    "peak_reduce_memory_bytes": history.PEAK_REDUCE_MEMORY,
}
_FILES = {
    "file_read_bytes": ("READ", True),
    "file_written_bytes": ("WRITTEN", True),
    "dfs_read_bytes": ("READ", False),
    "dfs_written_bytes": ("WRITTEN", False),
}
_TASK_COLUMNS = (
    *("task", "attempt", "kind", "status", "counts", "node", "locality"),
    *("start_s", "elapsed_s", "shuffle_s", "sort_s", "reduce_s", "cpu_s", "gc_s"),
)


def job_columns(job: history.Job) -> dict[str, float]:
    """Columns of a whole job; what is not known is left out.

    ``job_s`` is from submission to end; ``map_phase_s`` and ``reduce_phase_s`` are from the first
    task's start to the last one's end, and overlap where reduces begin early. Then come means over
    tasks and the slowest, CPU time and garbage collection summed over tasks, bytes, the share of
    maps with their data on their own node, and numbers of tasks and of wasted attempts.
    """
    maps, reduces = job.done("MAP"), job.done("REDUCE")
    attempts = [a for a in job.attempts if a.kind in ("MAP", "REDUCE")]
    found: dict[str, float | None] = {
        "job_s": job.elapsed_s,
        **_task_time_columns(maps, reduces),
        **_counter_columns(job.counters),
        "map_cpu_s": history.seconds(job.map_counters.get(history.CPU_MS)),
        "reduce_cpu_s": history.seconds(job.reduce_counters.get(history.CPU_MS)),
        "data_local_share": data_local_share(job.counters),
        "map_tasks": float(len(maps)) if attempts else None,
        "reduce_tasks": float(len(reduces)) if attempts else None,
        "wasted_attempts": float(len(attempts) - len(maps) - len(reduces)) if attempts else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def node_columns(job: history.Job) -> dict[str, dict[str, float]]:
    """Columns by node that tasks ran on; data-local maps are a share of the node's own maps."""
    by_node: dict[str, list[history.TaskAttempt]] = defaultdict(list)
    for attempt in job.attempts:
        if attempt.node and attempt.kind in ("MAP", "REDUCE"):
            by_node[attempt.node].append(attempt)
    return {node: _of_one_node(job, attempts) for node, attempts in sorted(by_node.items())}


def data_local_share(counters: Mapping[history.Counter, int]) -> float | None:
    """Share of a job's maps that had their data on their own node; None where none was counted."""
    local = counters.get(history.DATA_LOCAL_MAPS, 0)
    others = counters.get(history.RACK_LOCAL_MAPS, 0) + counters.get(history.OTHER_MAPS, 0)
    return local / (local + others) if local + others else None


def write_tasks(job: history.Job, path: Path) -> None:
    """Write a CSV row per attempt: its start since the job's submission, and its times (s)."""
    origin_s = job.submitted_s or 0.0
    with files.open_for_writing(path, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(_TASK_COLUMNS)
        for a in job.attempts:
            begun = None if a.start_s is None else a.start_s - origin_s
            times = (begun, a.elapsed_s, a.shuffle_s, a.sort_s, a.reduce_s, a.cpu_s, a.gc_s)
            what = (a.task, a.attempt, a.kind, a.status, a.attempt in job.succeeded)
            texts = ("" if time_s is None else f"{time_s:.3f}" for time_s in times)
            rows.writerow((*what, a.node, a.locality, *texts))


def _task_time_columns(
    maps: Sequence[history.TaskAttempt], reduces: Sequence[history.TaskAttempt]
) -> dict[str, float | None]:
    elapsed = _drop_none(a.elapsed_s for a in maps)
    return {
        "map_phase_s": _span_s(maps),
        "reduce_phase_s": _span_s(reduces),
        "map_task_s": _rounded_mean(elapsed),
        "map_task_max_s": max(elapsed, default=None),
        "shuffle_task_s": _rounded_mean(_drop_none(a.shuffle_s for a in reduces)),
        "sort_task_s": _rounded_mean(_drop_none(a.sort_s for a in reduces)),
        "reduce_task_s": _rounded_mean(_drop_none(a.reduce_s for a in reduces)),
    }


def _counter_columns(counters: Mapping[history.Counter, int]) -> dict[str, float | None]:
    found: dict[str, float | None] = {
        "task_cpu_s": history.seconds(counters.get(history.CPU_MS)),
        "gc_s": history.seconds(counters.get(history.GC_MS)),
    }
    found |= {c: float(counters[name]) for c, name in _BYTES.items() if name in counters}
    for column, (direction, local) in _FILES.items():
        found[column] = history.file_system_bytes(counters, direction, local=local)
    return found


def _of_one_node(job: history.Job, attempts: Sequence[history.TaskAttempt]) -> dict[str, float]:
    """Columns of what the attempts on one node did; what is not known is left out."""
    done = [a for a in attempts if a.attempt in job.succeeded]
    maps, reduces = ([a for a in done if a.kind == kind] for kind in ("MAP", "REDUCE"))
    total: dict[history.Counter, int] = defaultdict(int)
    for attempt in done:
        for counter, value in attempt.counters.items():
            if counter not in (history.PEAK_MAP_MEMORY, history.PEAK_REDUCE_MEMORY):
                total[counter] += value
    placed = [a.locality for a in maps if a.locality]
    found: dict[str, float | None] = {
        "job_s": job.elapsed_s,
        **_task_time_columns(maps, reduces),
        **_counter_columns(total),
        "data_local_share": placed.count("NODE_LOCAL") / len(placed) if placed else None,
        "map_tasks": float(len(maps)),
        "reduce_tasks": float(len(reduces)),
        "wasted_attempts": float(len(attempts) - len(done)),
    }
    return {name: value for name, value in found.items() if value is not None}


def _span_s(attempts: Sequence[history.TaskAttempt]) -> float | None:
    """Time from the first start to the last end (s); None where either is unknown."""
    starts = _drop_none(a.start_s for a in attempts)
    ends = _drop_none(a.end_s for a in attempts)
    return round(max(ends) - min(starts), 3) if starts and ends else None


def _drop_none(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _rounded_mean(values: Sequence[float]) -> float | None:
    return round(fmean(values), 6) if values else None
