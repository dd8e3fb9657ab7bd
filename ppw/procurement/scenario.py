"""A scenario: one TOML file with a demand, a site, costs and candidates, read and checked."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from measurements.headers import nearest
from ppw.errors import PpwError
from ppw.procurement.inputs import Input, Inputs, in_si, read_figures
from ppw.procurement.schema import check, node_at, with_shares

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fitting.regression.lines import FloatArray

LATENCIES = ("latency_p50", "latency_p99")
# Demand as a multiple of the scenario's: a figure to move, not one to type in.
SCALE = Input("demand.scale", "demand", "× the scenario's", 1.0, "given")


@dataclass(frozen=True, eq=False)
class Workload:
    """One workload of the mix.

    Attributes
    ----------
    name, unit : str
        ``unit`` is what a rate counts.
    profile : (parts,) float array
        Load in equal parts of the day, as a share of the peak.
    limits : mapping of str to float
        Highest accepted latency (s) by "latency_p50" and "latency_p99".
    """

    name: str
    unit: str
    profile: FloatArray
    limits: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Scenario:
    """What is asked.

    Attributes
    ----------
    title, currency : str
    years : int
    workloads : tuple of Workload
    separate_pools : bool
        Whether each workload has servers of its own.
    spare_servers : int
        In each pool.
    rack_units : int
    max_racks : int or None
    ports : int
        Of a server that names none.
    mixed_scope : bool
    candidates : tuple of mapping
        The tables [[candidate]] as they were typed in.
    inputs : Inputs
        Figures of demand, site and costs.
    source : str
        File, for messages.
    folder : pathlib.Path
        Where files that it names are looked for.
    raw : mapping
        The whole table.
    """

    title: str
    currency: str
    years: int
    workloads: tuple[Workload, ...]
    separate_pools: bool
    spare_servers: int
    rack_units: int
    max_racks: int | None
    ports: int
    mixed_scope: bool
    candidates: tuple[Mapping[str, Any], ...]
    inputs: Inputs
    source: str
    folder: Path
    raw: Mapping[str, Any]


def read_scenario(path: str | Path) -> Scenario:
    """Read a scenario file.

    Raises
    ------
    PpwError
        When it cannot be read, is no TOML, or says what the schema does not allow; unknown keys
        are answered with the nearest.
    """
    try:
        table = tomllib.loads(Path(path).read_bytes().decode("utf-8"))
    except OSError as error:
        raise PpwError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise PpwError(f"{path}: not UTF-8 text: write the scenario as a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        reason = str(error).replace("\n", " ")
        raise PpwError(f"{path}: not TOML: {reason}; see docs/procurement.md") from error
    return scenario_of(table, source=Path(path).name, folder=Path(path).parent)


def scenario_of(table: Mapping[str, Any], *, source: str, folder: Path) -> Scenario:
    """Make a scenario of a table that was read elsewhere; raises as `read_scenario`."""
    table = with_shares(table)
    check(table, source)
    _refuse_names_twice(table, source)
    _refuse_unknown_workloads(table, source)
    demand, site, costs = table["demand"], table["site"], table.get("costs", {})
    currency = table.get("currency", "USD")
    inputs = [SCALE]
    for name, part in (("demand", demand), ("site", site), ("costs", costs)):
        inputs += read_figures(part, [name], name, currency=currency, source=source)
    return Scenario(
        title=table.get("title", _default("title")),
        currency=currency,
        years=demand["years"],
        workloads=_workloads(table, source),
        separate_pools=demand.get("pools") == "separate",
        spare_servers=demand.get("spare_servers", 0),
        rack_units=site.get("rack_units", _default("site", "rack_units")),
        max_racks=site.get("max_racks"),
        ports=costs.get("ports", _default("costs", "ports")),
        mixed_scope=table.get("mixed_scope", False),
        candidates=tuple(table["candidate"]),
        inputs=Inputs([*inputs, *_rates(table, inputs, currency, source)]),
        source=source,
        folder=folder,
        raw=table,
    )


def _default(*path: str) -> Any:
    return node_at(path)["default"]


def _refuse_names_twice(table: Mapping[str, Any], source: str) -> None:
    for kind in ("workload", "candidate"):
        names = [entry["name"] for entry in table[kind]]
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise PpwError(f"{source}: two [[{kind}]] are named {twice[0]!r}: name each by itself")


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


def _workloads(table: Mapping[str, Any], source: str) -> tuple[Workload, ...]:
    made = []
    for i, entry in enumerate(table["workload"]):
        profile = entry.get("profile", table["demand"].get("profile", [1.0]))
        limits = {
            name: in_si(entry[name], ["workload", i, name], node_at(["workload", i, name]), source)
            for name in LATENCIES
            if name in entry
        }
        unit = entry.get("unit", _default("workload", 0, "unit"))  # type: ignore[arg-type]
        made.append(Workload(entry["name"], unit, _shares(profile, entry["name"], source), limits))
    parts = {len(w.profile) for w in made} - {1}
    if len(parts) > 1:
        raise PpwError(
            f"{source}: the profiles have {' and '.join(map(str, sorted(parts)))} parts: cut the "
            "day alike for all workloads"
        )
    return tuple(made)


def _shares(profile: Sequence[float], name: str, source: str) -> FloatArray:
    load = np.asarray(profile, dtype=float)
    if not load.max() > 0:
        raise PpwError(f"{source}: the profile of workload {name!r} is 0 all day: give its load")
    shares: FloatArray = load / load.max()
    return shares


def _rates(
    table: Mapping[str, Any], inputs: Sequence[Input], currency: str, source: str
) -> list[Input]:
    """Peak rate and memory of every workload, by its own figures or its weight in the demand's."""
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
        made += read_figures(entry, ["workload", i], f"workload.{name}", **options)
        if "weight" in entry:
            if shared is None:
                raise PpwError(
                    f"{source}: workload {name!r} has a weight, and there is no demand.rate to "
                    "share: give it"
                )
            # The rate itself is drawn once, for all that share it.
            made.append(
                Input(
                    f"workload.{name}.share",
                    f"share of {name} in the demand",
                    "1",
                    entry["weight"] / weights,
                    "given",
                    source,
                )
            )
    if shared is not None and not weights:
        raise PpwError(f"{source}: demand.rate is shared by weight, and no workload has one")
    return made
