"""Scenarios to ask about."""

import copy
import tomllib

import numpy as np
from made_up import answered
from processes import ROOT

from ppw.procurement.procure import procure

GUIDE = (ROOT / "docs" / "procurement.md").read_text(encoding="utf-8")
DOCUMENTED = GUIDE.split('```toml title="scenario.toml"\n')[1].split("```")[0]


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


# Figures that random scenarios may have, with the ends that they are drawn between.
SOME = {
    "demand": {
        "growth_per_year": (-0.2, 0.6),
        "headroom": (0.0, 0.5),
        "max_utilisation": (0.4, 1.0),
    }
    | {"spare_share": (0.0, 0.5)},
    "site": {"grid_carbon": (0.0, 0.6), "electricity_change_per_year": (0.0, 0.5)}
    | {"rack_power": (600.0, 2e4), "rack_price": (1.0, 2e4), "rack_rent_per_year": (1.0, 2e4)}
    | {"grid_carbon_change_per_year": (-0.3, 0.0), "power": (1e4, 1e6)},
    "costs": {
        "discount_rate": (0.0, 0.5),
        "support_share": (0.0, 0.5),
        "residual_share": (0.0, 0.5),
    }
    | {"licence_per_core": (1.0, 500.0), "licence_per_core_per_year": (1.0, 500.0)}
    | {"licence_per_server_per_year": (1.0, 500.0), "port_price": (1.0, 500.0)}
    | {"port_power": (1.0, 20.0)},
    "candidate": {"beside_power": (1.0, 100.0), "rated_power": (300.0, 900.0)}
    | {"support_per_year": (1.0, 500.0), "residual_share": (0.0, 0.5), "one_off_cost": (1.0, 2e4)},
}


def random_scenario(seed):
    """Any scenario of typed figures: some are ranges, some keys are left out."""
    rng = np.random.default_rng((20120101, seed))

    def between(low, high):
        value = round(float(rng.uniform(low, high)), 4)
        if value <= 0 or rng.random() < 0.7:
            return value
        return ranged(value, round(0.8 * value, 4), round(min(1.3 * value, high), 4))

    def some(part, **more):
        figures = {key: between(*ends) for key, ends in SOME.get(part, {}).items()} | more
        return {key: value for key, value in figures.items() if rng.random() < 0.6}

    def profile():
        return [1.0, *np.round(rng.uniform(0.0, 1.0, 3), 2).tolist()]

    def candidate(number):
        known = {"name": f"number {number}", "power_scope": "wall", "cores": 16}
        known |= {"idle_power": between(1.0, 150.0), "memory": between(1e10, 1e12)}
        known["embodied_carbon"] = between(100.0, 3000.0)
        known["workload"] = {
            name: {"rate": between(20.0, 5000.0), "power": between(210.0, 500.0)} for name in names
        }
        whole = {"height": int(rng.integers(1, 5)), "ports": int(rng.integers(0, 4))}
        if rng.random() < 0.2:
            return known | some("candidate", **whole) | {"rent_per_hour": between(0.05, 2.0)}
        whole |= {"owned": int(rng.integers(0, 20)), "purchases": "yearly"}
        return known | some("candidate", **whole) | {"price": between(500.0, 2e4)}

    names = ["work", "more"][: rng.integers(1, 3)]
    shared = rng.random() < 0.3
    rate = {"rate": between(1.0, 2e4)}
    demand = {"years": int(rng.integers(1, 8)), "profile": profile()} | (rate if shared else {})
    site = {"electricity": between(0.01, 0.5), "pue": between(1.3, 2.0), "grid_carbon": 0.3}
    whole = {"rack_units": int(rng.integers(4, 43)), "max_racks": int(rng.integers(1, 200))}
    return {
        "demand": demand | some("demand", spare_servers=int(rng.integers(0, 4)), pools="separate"),
        "site": site | some("site", **whole),
        "costs": some("costs", carbon_price=between(1.0, 300.0), ports=2),
        "workload": [
            {"name": name, **({"weight": 3.0} if shared else {"rate": between(1.0, 2e4)})}
            | some("", memory=between(1e9, 1e12), profile=profile())
            for name in names
        ],
        "candidate": [candidate(number) for number in range(int(rng.integers(2, 4)))],
    }
