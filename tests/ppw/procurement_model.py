"""The cost model of docs/procurement.md once more, from that page alone, and scenarios for it.

A figure that may be a range becomes one column of draws (n, 1); years are along the rows.
"""

from functools import reduce

import numpy as np

HOURS = 8760


def take(node, draw):
    """The scenario with ``draw(value, low, high)`` in the place of every range."""
    if isinstance(node, dict) and node.keys() == {"value", "low", "high"}:
        return draw(**node)
    if isinstance(node, dict):
        return {key: take(below, draw) for key, below in node.items()}
    return [take(below, draw) for below in node] if isinstance(node, list) else node


def triangular(n, seed):
    rng = np.random.default_rng(seed)
    return lambda value, low, high: rng.triangular(low, value, high, (n, 1))


def peak_rate(table, workload):
    if "rate" in workload:
        return workload["rate"]
    total = sum(one["weight"] for one in table["workload"])
    return table["demand"]["rate"] * workload["weight"] / total


def pool_of(table, one, pool):
    """Servers of a pool by year, and the mean power (W) of one of them over the day."""
    demand = table["demand"]
    year = np.arange(demand["years"])
    grown = (1 + demand.get("growth_per_year", 0)) ** year
    headroom = 1 + demand.get("headroom", 0)
    profiles = [np.array(w.get("profile", demand.get("profile", [1.0]))) for w in pool]
    days = [profile / profile.max() for profile in profiles]
    figures = [one["workload"][w["name"]] for w in pool]
    rates = [peak_rate(table, w) for w in pool]
    parts = range(max(map(len, days)))
    needed = 0
    for part in parts:
        each = zip(rates, days, figures, strict=True)
        busy = sum(rate * day[part % len(day)] / one["rate"] for rate, day, one in each)
        needed = np.maximum(needed, busy)
    count = np.ceil(needed * grown * headroom / demand.get("max_utilisation", 1) - 1e-9)
    memory = sum(w.get("memory", 0) for w in pool)
    if np.any(memory):
        count = np.maximum(count, np.ceil(memory * grown * headroom / one["memory"] - 1e-9))
    count = np.maximum(count, 1)
    count = count + demand.get("spare_servers", 0)
    count = count + np.ceil((count - demand.get("spare_servers", 0)) * demand.get("spare_share", 0))
    if "rent_per_hour" not in one:
        yearly = one.get("purchases") == "yearly"
        most = np.maximum.accumulate(count, -1) if yearly else count.max(-1, keepdims=True)
        count = most + 0 * count
    # On a straight line the mean over the day is the power at the mean load.
    idle = one["idle_power"]
    watts = idle + one.get("beside_power", 0)
    for rate, day, figure in zip(rates, days, figures, strict=True):
        load = rate * day.mean() * grown / (figure["rate"] * count)
        watts = watts + load * (figure["power"] - idle)
    return count, watts


def costs_of(table, one):
    """Cost of a candidate by part, its kWh, carbon, most servers and racks, and whether it fits."""
    demand, site, costs = table["demand"], table["site"], table["costs"]
    year, rented = np.arange(demand["years"]), "rent_per_hour" in one
    start = (1 + costs.get("discount_rate", 0)) ** -(year + 0.0)
    end = start / (1 + costs.get("discount_rate", 0))
    ports = one.get("ports", 0 if rented else costs.get("ports", 1))
    port_power = ports * costs.get("port_power", 0)
    separate = demand.get("pools") == "separate"
    pools = [[w] for w in table["workload"]] if separate else [table["workload"]]
    sized = [pool_of(table, one, pool) for pool in pools]
    used = sum(count for count, _ in sized)
    kwh = site["pue"] * HOURS / 1000 * sum(n * (watts + port_power) for n, watts in sized)
    owned = one.get("owned", 0)
    kept = np.maximum(used, owned)
    bought = np.diff(kept, prepend=owned + 0 * kept[..., :1])
    most = used.max(axis=-1, keepdims=True)
    full = reduce(np.maximum, [f["power"] for f in one["workload"].values()])
    peak = one.get("rated_power", full + one.get("beside_power", 0)) + port_power
    per_rack = np.minimum(
        site.get("rack_units", 42) // one.get("height", 1),
        np.floor(site.get("rack_power", np.inf) / peak + 1e-9),
    )
    racks = 0 * most if rented else np.ceil(most / np.maximum(per_rack, 1) - 1e-9)
    fits = (per_rack >= 1) & (racks <= site.get("max_racks", np.inf))
    fits = rented | (fits & (most * peak <= site.get("power", np.inf) * (1 + 1e-9)))
    price, cores = one.get("price", 0), one.get("cores", 0)
    support = one.get("support_per_year", price * costs.get("support_share", 0))
    residual = one.get("residual_share", costs.get("residual_share", 0))
    yearly = cores * costs.get("licence_per_core_per_year", 0)
    yearly = yearly + costs.get("licence_per_server_per_year", 0)
    electricity = site["electricity"] * (1 + site.get("electricity_change_per_year", 0)) ** year
    grid = (1 + site.get("grid_carbon_change_per_year", 0)) ** year * site.get("grid_carbon", 0)
    made = most if rented else bought.sum(-1, keepdims=True)
    made = made * one.get("embodied_carbon", 0)

    def over_years(amount):
        return np.sum(amount + 0 * used, axis=-1, keepdims=True)

    rack = site.get("rack_price", 0) + site.get("rack_rent_per_year", 0) * over_years(end)
    carbon = made + over_years(kwh * grid * end)
    parts = {
        "servers": over_years(bought * start) * price
        + over_years(used * end) * HOURS * one.get("rent_per_hour", 0),
        "one_off": one.get("one_off_cost", 0),
        "racks": racks * rack,
        "network": over_years(bought * start) * ports * costs.get("port_price", 0),
        "licences": over_years(bought * start) * cores * costs.get("licence_per_core", 0)
        + over_years(used * end) * yearly,
        "support": over_years(used * end) * support,
        "energy": 0 if rented else over_years(kwh * electricity * end),
        "carbon": costs.get("carbon_price", 0) / 1000 * carbon,
        "residual_value": -over_years(bought) * price * residual * end[..., -1:],
    }
    energy, use = over_years(kwh), over_years(kwh * grid)
    return parts, {"kwh": energy, "use": use, "made": made}, (most, racks, fits)
