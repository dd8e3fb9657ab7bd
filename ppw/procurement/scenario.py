"""A scenario: one TOML file with a demand, a site, costs and candidates, read and checked."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from measurements.table.headers import nearest
from ppw.errors import PpwError
from ppw.procurement import inputs as inp
from ppw.procurement.inputs import CaseValues, FloatArray, Input, Inputs
from ppw.results.result import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ppw.power.load_curve import PowerLoadCurve


@dataclass(frozen=True, eq=False)
class Server:
    """One candidate as the model needs it: its size, its shape of power, and its latency limits."""

    name: str
    height: int  # rack units
    ports: int
    cores: int | None  # None where nothing counts them
    owned: int = 0  # servers that are there already, and are kept
    yearly: bool = False  # whether they are bought as the demand grows, else all at the start
    rented: bool = False  # as many as each year needs; the rent includes site and electricity
    # Its shape is used; idle and full power are figures of their own. None is a straight line.
    curve: PowerLoadCurve | None = None
    # By workload, the share of its rate at which its latency is at the limit.
    share_within_limit: Mapping[str, float] = field(default_factory=dict)
    excluded: str = ""  # why it cannot serve the demand at all; empty where it can

    def key(self, figure: str, workload: str | None = None) -> str:
        """Spell the key of one of its figures."""
        return inp.figure_key(self.name, figure, workload)

    def rate(self, workload: str, numbers: CaseValues) -> FloatArray:
        """Return the rate (1/s) at full load: (n,)."""
        return numbers[self.key("rate", workload)]

    def rate_within_limit(self, workload: str, numbers: CaseValues) -> FloatArray:
        """Return the rate (1/s) that keeps the latency limit: (n,)."""
        return self.share_within_limit.get(workload, 1.0) * self.rate(workload, numbers)

    def watts(self, load: FloatArray, workloads: list[str], numbers: CaseValues) -> FloatArray:
        """Compute the power of one server in n cases: (n, …).

        ``load`` (workloads, n, …) is the part of the server's time that each workload takes,
        together at most 1. Power is idle + s(u)·(full − idle) with u the load of all, s the shape
        of the curve (0 to 1) and full the mean of the workloads' full-load power by their load; and
        what is drawn beside.
        """
        axes = (...,) + (None,) * (load.ndim - 2)
        full = np.stack([self._full_power(w, numbers)[axes] for w in workloads])
        total = load.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(total > 0, (load * full).sum(axis=0) / total, full.mean(axis=0))
        idle = numbers.values_or(self.key("idle_power"), np.nan)[axes]
        made: FloatArray = idle + self._shape_of_power(total) * (mean - idle)
        return made + self.power_beside(numbers)[axes]

    def full_power(self, workloads: list[str], numbers: CaseValues) -> FloatArray:
        """Find the highest power (W) at full load over the workloads: (n,)."""
        full = [self._full_power(w, numbers) for w in workloads]
        return np.asarray(np.max(full, axis=0) + self.power_beside(numbers))

    def _full_power(self, workload: str, numbers: CaseValues) -> FloatArray:
        """Power (W) at full load; NaN for a rented server whose power is not known: (n,)."""
        return numbers.values_or(self.key("power", workload), np.nan)

    def power_beside(self, numbers: CaseValues) -> FloatArray:
        """Constant power (W) of the rest of the server, 0 where none is stated: (n,)."""
        return numbers.values_or(self.key("beside_power"), 0.0)

    def _shape_of_power(self, load: FloatArray) -> FloatArray:
        """Share of the way from idle to full power at each load; without a curve the load."""
        load = np.clip(load, 0.0, 1.0)
        if self.curve is None:
            return load
        idle, full = self.curve.watts(np.array([0.0, 1.0]))
        watts = self.curve.watts(load.ravel()).reshape(load.shape)
        return np.asarray((watts - idle) / (full - idle))


# How much of its rate a server may be given before its latency passes a limit.
def share_within(share: FloatArray, latency: FloatArray, limit: float) -> float:
    """Largest share of the full rate at which latency is within a limit (s); 0 for none.

    ``latency`` (s) was measured at each ``share`` of the full rate, in any order; where it falls as
    the rate rises, the higher one of before counts. Between a point that keeps the limit and the
    next one ln(latency) is taken as straight in the rate. Never more than the highest rate
    measured, nor 1.
    """
    order = np.argsort(share)
    share, worst = share[order], np.maximum.accumulate(latency[order])
    kept = int(np.count_nonzero(worst <= limit))
    if kept == 0:
        return 0.0
    if kept == len(share):
        return float(min(share[-1], 1.0))
    left, right = np.log(worst[kept - 1 : kept + 1])
    # Latencies may differ where their logarithms do not.
    part = (np.log(limit) - left) / (right - left) if right > left else 0.0
    return float(min(share[kept - 1] + part * (share[kept] - share[kept - 1]), 1.0))


LATENCIES = ("latency_p50", "latency_p99")
# Demand as a multiple of the scenario's: a figure to move, not one to type in.
SCALE = Input("demand.scale", "demand", "× the scenario's", 1.0, "given")


@dataclass(frozen=True, eq=False)
class Workload:
    """One workload of the mix."""

    name: str
    unit: str  # what a rate counts
    profile: FloatArray  # load in equal parts of the day (parts,), as a share of the peak
    limits: Mapping[str, float]  # highest accepted latency (s) by "latency_p50" and "latency_p99"


@dataclass(frozen=True, eq=False)
class Scenario:
    """What is asked: a demand, a site, costs and candidates."""

    title: str
    currency: str
    years: int
    workloads: tuple[Workload, ...]
    separate_pools: bool  # whether each workload has servers of its own
    spare_servers: int  # in each pool
    rack_units: int
    max_racks: int | None
    ports: int  # of a server that names none
    mixed_scope: bool
    candidates: tuple[Mapping[str, Any], ...]  # the tables [[candidate]] as they were typed in
    inputs: Inputs  # figures of demand, site and costs
    # File, for messages, and the folder where files that it names are looked for.
    source: str
    folder: Path
    raw: Mapping[str, Any]  # the whole table


def read_scenario(path: str | Path) -> Scenario:
    """Read a scenario file.

    Raises `PpwError` when it cannot be read, is no TOML, or says what the schema does not allow;
    unknown keys are answered with the nearest.
    """
    table = read_toml(path, "scenario", "procurement")
    return scenario_of(table, source=Path(path).name, folder=Path(path).parent)


def scenario_of(table: Mapping[str, Any], *, source: str, folder: Path) -> Scenario:
    """Make a scenario of a table that was read; raises as `read_scenario`."""
    raw = inp.with_shares(table)
    table, published = _with_figures_of_country(raw, source)
    inp.check(table, source)
    _refuse_duplicate_names(table, source)
    _refuse_unknown_workloads(table, source)
    demand, site, costs = table["demand"], table["site"], table.get("costs", {})
    currency = table.get("currency", "USD")
    inputs = [SCALE]
    for name, part in (("demand", demand), ("site", site), ("costs", costs)):
        inputs += inp.read_figures(part, [name], name, currency=currency, source=source)
    inputs = [
        replace(i, label=inp.DEFAULT, source=published[i.key]) if i.key in published else i
        for i in inputs
    ]
    return Scenario(
        title=table.get("title", _schema_default("title")),
        currency=currency,
        years=demand["years"],
        workloads=_read_workloads(table, source),
        separate_pools=demand.get("pools") == "separate",
        spare_servers=demand.get("spare_servers", 0),
        rack_units=site.get("rack_units", _schema_default("site", "rack_units")),
        max_racks=site.get("max_racks"),
        ports=costs.get("ports", _schema_default("costs", "ports")),
        mixed_scope=table.get("mixed_scope", False),
        candidates=tuple(table["candidate"]),
        inputs=Inputs({i.key: i for i in [*inputs, *_read_rates(table, inputs, currency, source)]}),
        source=source,
        folder=folder,
        raw=raw,
    )


def _with_figures_of_country(
    table: Mapping[str, Any], source: str
) -> tuple[Mapping[str, Any], dict[str, str]]:
    """Add to the site what it leaves out and its country has, and return who says so, by key.

    Raises `PpwError` for an unknown country, and for a price in another currency.
    """
    site = table.get("site")
    country = site.get("country") if isinstance(site, dict) else None
    if not isinstance(site, dict) or not isinstance(country, str):
        return table, {}
    sites = tomllib.loads(inp.published_text("sites.toml"))
    if country not in sites["country"]:
        known = [*sites["country"]]
        raise PpwError(
            f"{source}: site.country: no figures of {country!r}{nearest(country, known)}; there "
            f"are {', '.join(known)}. Leave it out and give electricity and pue"
        )
    added, published = {}, {}
    currency = table.get("currency", _schema_default("currency"))
    for place, figures in (("anywhere", sites["anywhere"]), (country, sites["country"][country])):
        for name, figure in figures.items():
            if name in site:
                continue
            paid_in = figure.get("currency", currency)
            if paid_in != currency:
                raise PpwError(
                    f"{source}: site.{name} is missing: that of {country} is in {paid_in}, and the "
                    f'scenario in {currency}: give it, or write currency = "{paid_in}"'
                )
            ends = {end: figure[end] for end in ("value", "low", "high") if end in figure}
            added[name] = ends if len(ends) > 1 else figure["value"]
            cited = figure.get("note"), sites["sources"][figure["source"]]
            said = filter(None, (f"{place}, {figure['year']}", *cited))
            published[f"site.{name}"] = "; ".join(said)
    return {**table, "site": {**added, **site}}, published


def _schema_default(*path: str | int) -> Any:
    return inp.node_at(path)["default"]


def _refuse_duplicate_names(table: Mapping[str, Any], source: str) -> None:
    for kind in ("workload", "candidate"):
        names = [entry["name"] for entry in table[kind]]
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise PpwError(
                f"{source}: two [[{kind}]] are named {twice[0]!r}: give each its own name"
            )


def _refuse_unknown_workloads(table: Mapping[str, Any], source: str) -> None:
    known = [w["name"] for w in table["workload"]]
    for candidate in table["candidate"]:
        for name in candidate.get("workload", {}):
            if name not in known:
                hint = nearest(name, known) or f"; the workloads are {', '.join(known)}"
                raise PpwError(
                    f"{source}: candidate {candidate['name']!r} has figures of {name!r}, which is "
                    f"no [[workload]]{hint}"
                )


def _read_workloads(table: Mapping[str, Any], source: str) -> tuple[Workload, ...]:
    made = []
    for i, entry in enumerate(table["workload"]):
        profile = entry.get("profile", table["demand"].get("profile", [1.0]))
        limits = {}
        for name in LATENCIES:
            path = ("workload", i, name)
            if name in entry:
                limits[name] = inp.in_si(entry[name], path, inp.node_at(path), source)
        load = np.asarray(profile, dtype=float)
        unit = entry.get("unit", _schema_default("workload", 0, "unit"))
        if not load.max() > 0:
            raise PpwError(
                f"{source}: the profile of workload {entry['name']!r} is 0 all day: give its load"
            )
        made.append(Workload(entry["name"], unit, load / load.max(), limits))
    parts = {len(w.profile) for w in made} - {1}
    if len(parts) > 1:
        raise PpwError(
            f"{source}: the profiles have {' and '.join(map(str, sorted(parts)))} parts: give the "
            "profiles of all workloads equally many parts"
        )
    return tuple(made)


def _read_rates(
    table: Mapping[str, Any], inputs: Sequence[Input], currency: str, source: str
) -> list[Input]:
    """Read peak rate and memory of each workload; a weight becomes a share of the demand."""
    made = []
    shared = next((i for i in inputs if i.key == "demand.rate"), None)
    weights = sum(w.get("weight", 0.0) for w in table["workload"])
    for i, entry in enumerate(table["workload"]):
        name = entry["name"]
        if ("rate" in entry) == ("weight" in entry):
            raise PpwError(
                f"{source}: workload {name!r}: give its rate, or its weight in demand.rate; "
                f"{'not both' if 'rate' in entry else 'it has neither'}"
            )
        options = {"of": name, "currency": currency, "source": source}
        made += inp.read_figures(entry, ["workload", i], f"workload.{name}", **options)
        if "weight" in entry:
            if shared is None:
                raise PpwError(
                    f"{source}: workload {name!r} has a weight, but there is no demand.rate to "
                    "share: give demand.rate"
                )
            # The rate itself is drawn once, for all that share it.
            key, words = f"workload.{name}.share", f"share of {name} in the demand"
            made.append(Input(key, words, "1", entry["weight"] / weights, "given", source))
    if shared is not None and not weights:
        raise PpwError(f"{source}: demand.rate is shared by weight, and no workload has one")
    return made
