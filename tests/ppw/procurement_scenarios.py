"""Scenarios to ask about, and a second way to the same answer: plain loops over years and hours."""

from __future__ import annotations

import copy
import math
import tomllib
from pathlib import Path

from made_up import answered

from ppw.procurement.procure import procure

ROOT = Path(__file__).resolve().parents[2]


def documented():
    """Scenario of docs/procurement.md."""
    text = (ROOT / "docs" / "procurement.md").read_text(encoding="utf-8")
    return tomllib.loads(text.split("```toml\n")[1].split("```")[0])


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
    return {
        "name": name,
        "price": price,
        "idle_power": idle,
        "power_scope": "wall",
        "workload": {"work": figures},
        **more,
    }


def asked(table, **options):
    """Answer a scenario; its caveats must be the warnings of the call."""
    return answered(procure, table, **{"draws": 200, **options})


def ranged(value, low, high):
    return {"value": value, "low": low, "high": high}


def by_loops(table, name):
    """Servers, kWh, kg and money of one candidate of one-workload figures, without arrays."""
    demand, site, costs = table["demand"], table["site"], table.get("costs", {})
    work = table["workload"][0]
    one = next(c for c in table["candidate"] if c["name"] == name)
    rate, full = (one["workload"]["work"][key] for key in ("rate", "power"))
    years, profile = demand["years"], demand.get("profile", [1.0])
    grown = [work["rate"] * (1 + demand.get("growth_per_year", 0)) ** y for y in range(years)]
    needed = grown[-1] * (1 + demand.get("headroom", 0)) / demand.get("max_utilisation", 1)
    count = max(1, math.ceil(needed / rate - 1e-6)) + demand.get("spare_servers", 0)
    ports = one.get("ports", costs.get("ports", 1))
    per_rack = site.get("rack_units", 42) // one.get("height", 1)
    if "rack_power" in site:
        peak = full + ports * costs.get("port_power", 0)
        per_rack = min(per_rack, int(site["rack_power"] / peak + 1e-9))
    racks = math.ceil(count / per_rack - 1e-9)
    money = {
        "servers": count * one["price"],
        "racks": racks * site.get("rack_price", 0),
        "network": count * ports * costs.get("port_price", 0),
        "licences": count * one.get("cores", 0) * costs.get("licence_per_core", 0),
        "support": 0.0,
        "energy": 0.0,
        "carbon": 0.0,
    }
    meter, kilograms = 0.0, 0.0
    for year, peak_rate in enumerate(grown):
        worth = 1 / (1 + costs.get("discount_rate", 0)) ** (year + 1)
        hours = 8760 / len(profile)
        watt_hours = 0.0
        for part in profile:
            load = peak_rate * part / max(profile) / (count * rate)
            watts = one["idle_power"] + load * (full - one["idle_power"])
            watt_hours += count * hours * (watts + ports * costs.get("port_power", 0))
        kwh = site["pue"] * watt_hours / 1000
        price = site["electricity"] * (1 + site.get("electricity_change_per_year", 0)) ** year
        grid = site.get("grid_carbon", 0) * (1 + site.get("grid_carbon_change_per_year", 0)) ** year
        meter, kilograms = meter + kwh, kilograms + grid * kwh
        money["energy"] += worth * price * kwh
        money["support"] += worth * count * one["price"] * costs.get("support_share", 0)
        money["racks"] += worth * racks * site.get("rack_rent_per_year", 0)
        cores = one.get("cores", 0) * costs.get("licence_per_core_per_year", 0)
        money["licences"] += worth * count * (cores + costs.get("licence_per_server_per_year", 0))
        money["carbon"] += worth * grid * kwh * costs.get("carbon_price", 0) / 1000
    made = count * one.get("embodied_carbon", 0)
    money["carbon"] += made * costs.get("carbon_price", 0) / 1000
    money["residual_value"] = -count * one["price"] * costs.get("residual_share", 0) * worth
    return count, racks, meter, kilograms, made, money
