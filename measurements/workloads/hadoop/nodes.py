"""The nodes of a cluster: who they are, where their watts come from, and their sum as one row."""

from __future__ import annotations

import csv
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.errors import MeasurementError
from measurements.headers import nearest
from measurements.power.logins import logins_for
from measurements.power.registry import parse_specs
from measurements.sampler import channel_as_json
from measurements.sampling import Sampling
from measurements.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

# Folder of the nodes' parts inside a sweep's.
NODES = "nodes"
_COLUMNS = ("host", "power", "family", "price", "cores", "role")
MASTER = "master"


@dataclass(frozen=True)
class Node:
    """One machine of a cluster.

    Attributes
    ----------
    host : str
        Name, as the job history has it.
    power : str or None
        Sources of its watts, as ``ppw measure --power`` takes them.
    family : str or None
    price : float or None
    cores : int or None
        Physical cores.
    role : str or None
        "master", or whatever the user calls it.
    """

    host: str
    power: str | None = None
    family: str | None = None
    price: float | None = None
    cores: int | None = None
    role: str | None = None


class NodeMeter(NamedTuple):
    """A node that is measured: its part of the sweep's folder, and its sensors."""

    node: Node
    session: Session
    sampling: Sampling


def read_nodes(path: Path) -> list[Node]:
    """Read a table of nodes: CSV with a header; ``host`` is needed, the rest where known.

    Raises
    ------
    MeasurementError
        When it cannot be read, has a column that is not known, or a value that cannot be.
    """
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
    nodes = [_node(row, f"{path}: line {n}") for n, row in enumerate(rows, start=2)]
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
    """Open each node's sensors and its part of the sweep's folder, all or none.

    Raises
    ------
    SensorError
        When a sensor cannot be read.
    MeasurementError
        When the folder was begun with other sensors.
    """
    opened: list[NodeMeter] = []
    try:
        for node in nodes:
            specs = [] if node.power is None else parse_specs(node.power)
            logins = logins_for(specs)
            sampling = Sampling.open(
                specs, interval_s=interval_s, timeout_s=timeout_s, logins=logins
            )
            # Told of at once, so that it is closed whatever comes next.
            opened.append(NodeMeter(node, session, sampling))
            opened[-1] = NodeMeter(node, _part(session, node, sampling), sampling)
    except BaseException:
        close_nodes(opened)
        raise
    return opened


def close_nodes(meters: Iterable[NodeMeter]) -> None:
    """Let go of all sensors."""
    for meter in meters:
        meter.sampling.close()


def _part(session: Session, node: Node, sampling: Sampling) -> Session:
    """Part of a sweep's folder that is this node's; made where it is not there."""
    folder = session.folder / NODES / node.host
    channels = [channel_as_json(channel) for channel in sampling.channels]
    plan = {**asdict(node), "workload": None, "data_bytes": None, "channels": channels}
    if not (folder / "plan.json").exists():
        return Session.create(folder, plan)
    part = Session.open(folder)
    if {name: part.plan[name] for name in plan} != plan:
        raise MeasurementError(
            f"{folder}: this node was another one, or had other sensors: give -o"
        )
    return part


def _node(row: Mapping[str | None, Any], where: str) -> Node:
    if None in row or None in row.values():
        raise MeasurementError(f"{where}: has not as many cells as the header")
    cells = {name: value.strip() for name, value in row.items() if name and value.strip()}
    if "host" not in cells:
        raise MeasurementError(f"{where}: has no host")
    if "/" in cells["host"]:
        raise MeasurementError(f"{where}: {cells['host']!r} is no name of a host")
    price, cores = (_number(cells.get(name), name, where) for name in ("price", "cores"))
    if cores is not None and cores % 1:
        raise MeasurementError(f"{where}: cores is {cells['cores']!r}, which is no whole number")
    return Node(
        host=cells["host"],
        power=cells.get("power"),
        family=cells.get("family"),
        price=price,
        cores=None if cores is None else int(cores),
        role=cells.get("role"),
    )


def _number(text: str | None, name: str, where: str) -> float | None:
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
    """One row for a cluster: its nodes' watts, cores and prices added where all are known.

    Parameters
    ----------
    base : mapping
        Row of the job, its host being the cluster.
    nodes : sequence of mapping
        Rows of its nodes.
    domains : mapping of node to domain
        What each node's watts cover ("package", "host", "wall").
    master : str or None
        Which node is the master, where that is known.

    Notes
    -----
    Watts of different scope (a processor's, a whole host's) are not added. What had to be left out,
    and nodes of different families, are said in ``notes``.
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
    notes.append(_add_watts(row, nodes, domains))
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


def _add_watts(
    row: dict[str, Any], nodes: Sequence[Mapping[str, Any]], domains: Mapping[str, str]
) -> str:
    """Put the sum of the nodes' watts into a row; returns why not, where not."""
    known = [node for node in nodes if "power_w" in node]
    if not known:
        return ""
    if len(known) < len(nodes):
        without = ", ".join(str(node["host"]) for node in nodes if "power_w" not in node)
        return f"no watts of the cluster, for none are known of {without}"
    scopes = sorted({domains[node["host"]] for node in known})
    if len(scopes) > 1:
        said = " and ".join(scopes)
        return f"no watts of the cluster, for its nodes' are of different scope ({said})"
    row["power_w"] = math.fsum(node["power_w"] for node in known)
    row["energy_j"] = row["power_w"] * row["time_s"]
    row["power_source"] = _source({str(node["power_source"]) for node in known}, scopes[0])
    row["power_label"] = "measured"
    idle = [node["idle_power_w"] for node in known if "idle_power_w" in node]
    if len(idle) == len(known):
        row["idle_power_w"] = math.fsum(idle)
    return ""


def _source(labels: set[str], domain: str) -> str:
    """Label that all nodes share, or else the kinds of their sources and what these cover."""
    if len(labels) == 1:
        return labels.pop()
    kinds = sorted({label.partition(":")[0] for label in labels})
    return f"{'+'.join(kinds)}:{domain}"
