"""Jobs on a cluster that the user has, and its nodes: their power, and their sum as one row."""

import csv
import math
import os
import secrets
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from measurements.errors import MeasurementError
from measurements.power import credentials, sampler, source
from measurements.processes.helper_process import HelperProcess
from measurements.sweep.session import Session
from measurements.table.headers import nearest
from measurements.workloads.hadoop import engines, history, jobs
from measurements.workloads.service import ServiceRuns

# Where Hadoop keeps histories unless its mapreduce.jobhistory.* say otherwise.
DEFAULT_HISTORY = "/tmp/hadoop-yarn/staging/history"  # nosec B108  # Hadoop's own default, in HDFS
_OPTIONS, _INPUT, _OUTPUT, _DATA = "{options}", "{input}", "{output}", "{data}"
_EXAMPLES = "share/hadoop/mapreduce/hadoop-mapreduce-examples-[0-9]*.jar"
# Longer than the watch may take for a job and a folder.
_END_S = 130.0
_ANSWER_S = 60.0


class UserCluster(engines.ClusterEngine):
    """Gives jobs to the cluster that ``hadoop`` on the path is set up for."""

    mode = "cluster"
    shell = "fs"

    def __init__(self, options: jobs.HadoopOptions, runs: ServiceRuns, scratch: Path) -> None:
        hadoop = shutil.which("hadoop")
        if hadoop is None:
            raise MeasurementError(
                "hadoop is not on the path: put the bin folder of your cluster's client there, or "
                "use --mode local, which needs no cluster"
            )
        super().__init__(f"ppw-{secrets.token_hex(8)}", scratch, runs.reaper)
        self._hadoop, self._options, self._runs = hadoop, options, runs
        # Not the reaper's: it has to outlive ppw for as long as it takes to clean up.
        watch = "measurements.workloads.hadoop.cluster_watch"
        self._watch = HelperProcess(watch, "the watch over the cluster", hadoop, self._folder)

    def prepare(self, settings: Sequence[jobs.Setting]) -> None:
        """Bring the inputs into the cluster's file system."""
        readers: Collection[str] = jobs.TEXT_READERS
        if self._options.command:
            takes_text = any(_INPUT in argument for argument in self._options.command)
            readers = {s.workload for s in settings} if takes_text else ()
        sizes = jobs.input_sizes(settings, readers)
        engines.check_room(self._scratch, float(sum(sizes)))
        own = {s.workload for s in settings if s.workload not in jobs.WORKLOADS}
        self._put_texts(sizes, self._runs.options.seed, (*jobs.TEXT_READERS, *own))
        for size in jobs.input_sizes(settings, jobs.ROW_READERS):
            # The watch ends this job, too, where ppw is killed meanwhile.
            self._announce_output(str(self._scratch / "client.log"))
            self._make_rows(size, maps=None)
            self._announce_output(None)

    def command(self, setting: jobs.Setting) -> list[str]:
        """Command of one job."""
        target, source = self._next_output_folder(), self._input_path(setting)
        if self._options.command:
            return self._client_command(*self._fill_command(setting, source, target))
        return self._example_command(setting, source, target)

    def starts(self, output: Path) -> None:
        """Tell the cleaning process which output will name the job."""
        self._announce_output(str(output))

    def job(self, setting: jobs.Setting, output: Path) -> history.Job | None:
        """What the last job did, from its history or else from what its client printed."""
        self._announce_output(None)
        name = engines.submitted_job(output)
        if name is None:
            self._runs.tell_once(f"{output} names no job: only its time is known", "history")
            return None
        top = self._options.history or DEFAULT_HISTORY
        try:
            return self._fetch_history(name, (f"{top}/done_intermediate/*", f"{top}/done/*/*/*/*"))
        except MeasurementError as error:
            text = f"no figures per task or node, as there is no job history: {error}"
            self._runs.tell_once(text, "history")
        text = output.read_text(encoding="utf-8", errors="replace")
        counters = history.printed_counters(text.splitlines())
        return history.Job(name, status="SUCCEEDED", counters=counters)

    def close(self) -> None:
        """Let the watch remove what is on the cluster, and wait for it."""
        self._watch.end(_END_S)

    def _announce_output(self, output: str | None) -> None:
        try:
            self._watch.ask(_ANSWER_S, output=output)
        except OSError as error:
            raise MeasurementError(
                f"the process that cleans up on the cluster has ended: remove {self._folder} there "
                "with hadoop fs -rm -r"
            ) from error

    def _fill_command(self, setting: jobs.Setting, source: str, target: str) -> list[str]:
        """The user's own command, with values in place of the words in braces."""
        words = {_INPUT: source, _OUTPUT: target, _DATA: str(setting.data_bytes or "")}
        filled: list[str] = []
        for argument in self._options.command:
            if argument == _OPTIONS:
                filled += jobs.job_properties(setting, self._options, local=False)
                continue
            for word, value in words.items():
                argument = argument.replace(word, value)
            filled.append(argument)
        return filled

    def _client_command(self, *arguments: str) -> list[str]:
        return [self._hadoop, *arguments]

    def _example_command(self, setting: jobs.Setting, source: str, target: str) -> list[str]:
        jar = self._options.examples or _find_examples_jar(self._hadoop)
        arguments = jobs.example_arguments(setting, self._options, source, target, local=False)
        return self._client_command("jar", jar, *arguments)


def _find_examples_jar(hadoop: str) -> str:
    """Jar of the examples of the Hadoop that a program belongs to."""
    homes = [Path(os.environ[n]) for n in ("HADOOP_HOME", "HADOOP_MAPRED_HOME") if n in os.environ]
    homes.append(Path(hadoop).resolve().parent.parent)
    found = sorted(jar for home in homes for jar in home.glob(_EXAMPLES))
    if not found:
        raise MeasurementError(
            f"{homes[-1]} has no {_EXAMPLES}: name the jar of Hadoop's examples by --jar"
        )
    return str(found[-1])


# Folder of the nodes' parts inside a sweep's.
NODES = "nodes"
_COLUMNS = ("host", "power", "family", "price", "cores", "role")
MASTER = "master"


@dataclass(frozen=True)
class Node:
    """One machine of a cluster."""

    host: str  # name, as the job history has it
    power: str | None = None  # power sources, as ``ppw measure --power`` takes them
    family: str | None = None
    price: float | None = None
    cores: int | None = None  # physical cores
    role: str | None = None  # "master", or whatever the user calls it


class NodeMeter(NamedTuple):
    """A node that is measured: its part of the sweep's folder, and its sensors."""

    node: Node
    session: Session
    sampling: sampler.Sampling


def read_nodes(path: Path) -> list[Node]:
    """Read a table of nodes: CSV with a header; ``host`` is needed, the rest where known."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
            header = reader.fieldnames or []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MeasurementError(f"{path}: cannot be read: {error}") from error
    for name in header:
        if name not in _COLUMNS:
            hint = nearest(name, _COLUMNS)
            raise MeasurementError(
                f"{path}: no column {name!r} is known{hint}: the columns are {', '.join(_COLUMNS)}"
            )
    if "host" not in header:
        raise MeasurementError(f"{path}: has no column host, which names each node")
    nodes = [_parse_node(row, f"{path}: line {n}") for n, row in enumerate(rows, start=2)]
    names = [node.host for node in nodes]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice or not nodes:
        what = f"names {', '.join(twice)} twice" if twice else "names no node"
        raise MeasurementError(f"{path}: {what}: give each node one line")
    masters = [node.host for node in nodes if node.role == MASTER]
    if len(masters) > 1:
        raise MeasurementError(f"{path}: has several masters, {', '.join(masters)}: name one")
    return nodes


def open_nodes(
    nodes: Sequence[Node], session: Session, *, interval_s: float, timeout_s: float
) -> list[NodeMeter]:
    """Open each node's sensors and its part of the sweep's folder, all or none."""
    meters = []
    with ExitStack() as closing:
        for node in nodes:
            specs = [] if node.power is None else source.parse_specs(node.power)
            logins = credentials.logins_for(specs)
            sampling = sampler.Sampling.open(
                specs, interval_s=interval_s, timeout_s=timeout_s, logins=logins
            )
            closing.callback(sampling.close)
            meters.append(NodeMeter(node, _node_part(session, node, sampling), sampling))
        closing.pop_all()
    return meters


def _node_part(session: Session, node: Node, sampling: sampler.Sampling) -> Session:
    """Part of a sweep's folder that is this node's; made where it is not there."""
    folder = session.folder / NODES / node.host
    channels = [sampler.channel_as_json(channel) for channel in sampling.channels]
    plan = {**asdict(node), "workload": None, "data_bytes": None, "channels": channels}
    if not (folder / "plan.json").exists():
        return Session.create(folder, plan)
    # A resumed sweep must go on with the same node and the same sensors.
    part = Session.open(folder)
    if {name: part.plan[name] for name in plan} != plan:
        raise MeasurementError(
            f"{folder}: the node or its sensors have changed: give another file with -o"
        )
    return part


def _parse_node(row: Mapping[str | None, Any], where: str) -> Node:
    if None in row or None in row.values():
        raise MeasurementError(f"{where}: does not have as many values as the header")
    cells = {name: value.strip() for name, value in row.items() if name and value.strip()}
    if "host" not in cells:
        raise MeasurementError(f"{where}: has no host")
    if "/" in cells["host"]:
        raise MeasurementError(f"{where}: {cells['host']!r} is no name of a host")
    price, cores = (_parse_positive(cells.get(name), name, where) for name in ("price", "cores"))
    if cores is not None and cores % 1:
        raise MeasurementError(f"{where}: cores is {cells['cores']!r}, which is no whole number")
    numbers = {"price": price, "cores": None if cores is None else int(cores)}
    # The header has known columns only.
    return Node(**{**cells, **numbers})


def _parse_positive(text: str | None, name: str, where: str) -> float | None:
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise MeasurementError(f"{where}: {name} is {text!r}, which is no number above 0")
    return number


def cluster_row(
    base: Mapping[str, Any],
    nodes: Sequence[Mapping[str, Any]],
    *,
    domains: Mapping[str, str],
    master: str | None,
) -> dict[str, Any]:
    """Row of a cluster: power, cores and prices of its nodes added where all are known.

    ``base`` is the row of the job, with the cluster as its host. ``domains`` has by node what its
    power covers ("package", "host", "wall"); power of different scope is not added. What had to be
    left out, and nodes of different families, are in ``notes``.
    """
    row = dict(base)
    notes = [row.pop("notes", "")]
    row["nodes"] = len(nodes)
    if master is not None:
        row["master"] = master
    for name in ("cores", "price"):
        values = [node[name] for node in nodes if name in node]
        row.pop(name, None)
        if len(values) == len(nodes):
            row[name] = sum(values)
    notes.append(_add_power(row, nodes, domains))
    families = sorted({str(node["family"]) for node in nodes if "family" in node})
    if len(families) == 1 and all("family" in node for node in nodes):
        row["family"] = families[0]
    elif len(families) > 1:
        row.pop("family", None)
        notes.append(
            f"nodes of different families ({', '.join(families)}): what is learnt from this "
            "cluster holds for this mixture alone"
        )
    if said := "; ".join(filter(None, notes)):
        row["notes"] = said
    return row


def _add_power(
    row: dict[str, Any], nodes: Sequence[Mapping[str, Any]], domains: Mapping[str, str]
) -> str:
    """Put the sum of the nodes' power into a row; returns why not, where it cannot."""
    known = [node for node in nodes if "power_w" in node]
    if not known:
        return ""
    if len(known) < len(nodes):
        without = ", ".join(str(node["host"]) for node in nodes if "power_w" not in node)
        return f"no power of the cluster, because none is known of {without}"
    scopes = sorted({domains[node["host"]] for node in known})
    if len(scopes) > 1:
        said = " and ".join(scopes)
        return f"no power of the cluster, because that of its nodes differs in scope ({said})"
    row["power_w"] = math.fsum(node["power_w"] for node in known)
    row["energy_j"] = row["power_w"] * row["time_s"]
    # The label that all nodes share, or else the kinds of their sources and what these cover.
    first, *more = sorted({str(node["power_source"]) for node in known})
    kinds = dict.fromkeys(label.partition(":")[0] for label in (first, *more))
    row["power_source"] = f"{'+'.join(kinds)}:{scopes[0]}" if more else first
    row["power_label"] = "measured"
    idle = [node["idle_power_w"] for node in known if "idle_power_w" in node]
    if len(idle) == len(known):
        row["idle_power_w"] = math.fsum(idle)
    return ""
