"""Scenarios to ask about."""

import copy
import tomllib

from made_up import answered
from processes import ROOT

from ppw.procurement.procure import procure

GUIDE = (ROOT / "docs" / "procurement.md").read_text(encoding="utf-8")
DOCUMENTED = GUIDE.split("```toml\n")[1].split("```")[0]


def documented():
    """Scenario of docs/procurement.md."""
    return tomllib.loads(DOCUMENTED)


def scenario(*candidates, demand=(), workload=(), site=(), costs=()):
    """A small scenario of one workload; parts given as mappings are added to it."""
    return {
        "demand": {"years": 1, **dict(demand)},
        "workload": [{"name": "work", "unit": "ops", "rate": 1000.0, **dict(workload)}],
        "site": {"electricity": 0.1, "pue": 1.0, **dict(site)},
        "costs": dict(costs),
        "candidate": [copy.deepcopy(c) for c in candidates] or [server("one")],
    }


def server(name, *, rate=100.0, power=200.0, idle=100.0, price=1000.0, latency=None, **more):
    """A candidate of typed figures."""
    figures = {"rate": rate, "power": power}
    if latency is not None:
        figures["latency"] = latency
    known = {"name": name, "price": price, "idle_power": idle, "power_scope": "wall"}
    return {**known, "workload": {"work": figures}, **more}


def asked(table, **options):
    """Answer a scenario; its caveats must be the warnings of the call."""
    return answered(procure, table, **{"draws": 200, **options})


def ranged(value, low, high):
    return {"value": value, "low": low, "high": high}


def row_of(result, table, name):
    rows = getattr(result, table)
    (row,) = rows[rows["candidate"] == name].to_dict(orient="records")
    return row


def inputs_of(result):
    return result.inputs.set_index("key")
