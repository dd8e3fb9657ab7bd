"""Rows of the runs table from a sweep's folder; nothing is measured here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from measurements.power.energy import totals
from measurements.run_rows import drawn_in, row_of
from measurements.sampler import channel_from_json
from measurements.session import Session
from measurements.workloads.hadoop.nodes import MASTER, NODES, cluster_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from measurements.power.energy import Drawn

_SOURCE = "power_source"


def hadoop_table(session: Session) -> pd.DataFrame:
    """Runs table of all runs of a sweep so far."""
    import pandas as pd

    return pd.DataFrame(hadoop_rows(session))


def hadoop_rows(session: Session) -> list[dict[str, Any]]:
    """Rows of all runs that went well: one a node, and one of the cluster where there is one."""
    parts = node_sessions(session)
    rows: list[dict[str, Any]] = []
    idle: dict[str, dict[str, Drawn]] = {}
    for record in session.records():
        if record["kind"] == "idle":
            idle = {name: drawn_in(part, record) for name, part in parts.items()}
            idle[""] = drawn_in(session, record)
        elif record["kind"] == "run" and record["exit_code"] == 0:
            rows += rows_of(session, parts, record, idle)
    return rows


def node_sessions(session: Session) -> dict[str, Session]:
    """Parts of a sweep's folder by node, of the nodes that the user has named."""
    folder = session.folder / NODES
    if not folder.is_dir():
        return {}
    parts = [Session.open(inner) for inner in sorted(folder.iterdir())]
    return {part.plan["host"]: part for part in parts}


def rows_of(
    session: Session,
    parts: Mapping[str, Session],
    record: Mapping[str, Any],
    idle: Mapping[str, Mapping[str, Drawn]],
) -> list[dict[str, Any]]:
    """Rows of one run.

    Parameters
    ----------
    session : Session
    parts : mapping of node to Session
        Of `node_sessions`.
    record : mapping
        Of the run.
    idle : mapping of node to what its channels drew
        The sweep's own under "".
    """
    own = row_of(session, record, drawn_in(session, record), idle.get("", {}))
    asked = session.plan["asked"]["hadoop"]
    if asked["mode"] == "local":
        return [own]
    whole = {**own, "host": f"cluster:{asked['cluster']}"}
    if asked["mode"] == "yarn":
        # This host is the only node.
        rows, parts, master = [own], {own["host"]: session}, own["host"]
    else:
        names = list(dict.fromkeys([*parts, *record[NODES]]))
        rows = [_node_row(session, parts.get(name), name, record, idle) for name in names]
        masters = (name for name, part in parts.items() if part.plan["role"] == MASTER)
        master = next(masters, record["master"])
    if not rows:
        return [whole]
    domains = {row["host"]: _domain(parts[row["host"]], row) for row in rows if _SOURCE in row}
    return [*rows, cluster_row(whole, rows, domains=domains, master=master)]


def _domain(part: Session, row: Mapping[str, Any]) -> str:
    """What the watts of a node's row cover."""
    channels = [channel_from_json(c) for c in part.plan["channels"]]
    first = totals(channels)[row[_SOURCE]][0]
    return next(c.domain for c in channels if c.label == first)


def _node_row(
    session: Session,
    part: Session | None,
    name: str,
    record: Mapping[str, Any],
    idle: Mapping[str, Mapping[str, Drawn]],
) -> dict[str, Any]:
    unknown: dict[str, Any] = {
        "host": name,
        "family": None,
        "price": None,
        "channels": [],
        "cores": None,
    }
    plan = {**session.plan, **unknown} if part is None else part.plan
    told = replace(session, plan=plan) if part is None else part
    asked = {name: record["facts"][name] for name in record["asked"]}
    of_node = {
        **record,
        "cores": plan["cores"],
        "facts": {**asked, **record[NODES].get(name, {})},
        "failures": record["node_failures"].get(name, {}),
    }
    return row_of(told, of_node, drawn_in(told, of_node), idle.get(name, {}))
