"""Hadoop jobs measured: from what is asked to a runs table, whatever runs them."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measurements.workloads.hadoop.jobs import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from measurements.workloads.hadoop.engine import Engine
    from measurements.workloads.hadoop.jobs import Setting
    from measurements.workloads.hadoop.nodes import NodeMeter
    from measurements.workloads.hadoop.sweep import HadoopSweep
    from measurements.workloads.service_run import ServiceOptions, ServiceRuns
    from ppw.measuring import HostOptions

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
    from measurements.workloads.hadoop.jars import find_jars
    from measurements.workloads.hadoop.java import find_java
    from measurements.workloads.hadoop.nodes import close_nodes, open_nodes, read_nodes
    from measurements.workloads.hadoop.rows import hadoop_table
    from ppw.running import running

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
    """Say of a cluster why something is not measured, which `ppw.running` does not know."""
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
    from measurements.workloads.hadoop.engine import OwnHadoop, in_memory

    if options.mode != "cluster":
        from measurements.workloads.hadoop.jars import find_jars
        from measurements.workloads.hadoop.java import find_java

        java, jars = find_java(), find_jars()
    folder = runs.reaper.folder(scratch)
    if in_memory(folder, Path("/proc/self/mounts").read_text(encoding="utf-8")):
        runs.tell(f"{scratch} is kept in memory: no byte of these jobs reaches a disk")
    if options.mode == "cluster":
        return _user_cluster(options, runs, folder)
    from measurements.workloads.hadoop.local import Local
    from measurements.workloads.hadoop.one_machine import OneMachine

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
    from measurements.workloads.hadoop.user_cluster import (
        DEFAULT_HISTORY,
        ClusterOptions,
        UserCluster,
    )

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
    from measurements.workloads.hadoop.java import find_java
    from measurements.workloads.hadoop.sweep import HadoopSweep, SweepPlan

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


def summary(table: pd.DataFrame) -> str:
    """Medians by set-up, as text."""
    from ppw.estimate import shown
    from ppw.tables import text_table

    keys = [
        name
        for name in _KEYS
        if name in table and (name in _ALWAYS or len(table[name].unique()) > 1)
    ]
    columns = {name: part for name, part in _COLUMNS.items() if name in table}
    rows = []
    for key, part in table.groupby(keys, sort=True, dropna=False):
        values = [_key(name, value) for name, value in zip(keys, key, strict=True)]
        medians = [shown(part[name].median(), unit) for name, (_, unit) in columns.items()]
        rows.append([*values, str(len(part)), *medians])
    header = [_KEYS[name] for name in keys]
    return text_table([*header, "runs", *(title for title, _ in columns.values())], rows)


def _key(name: str, value: Any) -> str:
    from ppw.estimate import shown

    if value != value or value is None:
        return "–"
    unit = "B" if name.endswith("_bytes") else "Hz" if name.endswith("_hz") else ""
    return shown(float(value), unit) if isinstance(value, (int, float)) else str(value)


_ALWAYS = ("workload", "data_bytes")
_KEYS = {
    "host": "host",
    "workload": "workload",
    "data_bytes": "data",
    "freq_hz": "freq",
    "map_slots": "maps",
    "reduce_slots": "reduces",
    "task_memory_bytes": "memory",
    "compression": "compression",
}
_COLUMNS = {
    "time_s": ("time", "s"),
    "start_up_s": ("start-up", "s"),
    "map_phase_s": ("maps take", "s"),
    "reduce_phase_s": ("reduces take", "s"),
    "task_cpu_s": ("CPU of tasks", "s"),
    "power_w": ("power", "W"),
    "energy_j": ("energy", "J/run"),
}
