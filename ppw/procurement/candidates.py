"""From the tables [[candidate]] of a scenario to servers, with all that is known of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ppw.arguments import as_frequency
from ppw.errors import PpwError
from ppw.estimate import shown
from ppw.procurement.candidate import CandidateFigures, gather_figures, typed_figures
from ppw.procurement.inputs import GIVEN, SECONDS_PER, Inputs, in_si
from ppw.procurement.latency import share_within
from ppw.procurement.measured import Request, measure
from ppw.procurement.schema import node_at
from ppw.procurement.server import PowerCurve, Server, StraightLine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fitting.regression.lines import FloatArray
    from ppw.procurement.scenario import Scenario

WALL = "wall"
_SAME = 1e-9


@dataclass(frozen=True, eq=False)
class Candidates:
    """All candidates of a scenario, with every figure that the model needs.

    Attributes
    ----------
    servers : list of Server
    inputs : Inputs
        Those of the scenario and of all candidates.
    caveats : list of str
    digests : list of str
        Of the runs tables.
    """

    servers: list[Server]
    inputs: Inputs
    caveats: list[str]
    digests: list[str]


def gather(scenario: Scenario, *, draws: int, seed: int) -> Candidates:
    """Put all candidates together: what is typed in goes before what is measured or catalogued."""
    measured = measure(_requests(scenario), draws=draws, seed=seed)
    made = [gather_figures(scenario, i, measured) for i in range(len(scenario.candidates))]
    servers = [_server(candidate) for candidate in made]
    caveats = [*measured.caveats, *(c for candidate in made for c in candidate.caveats)]
    caveats += _scopes(made, scenario)
    straight = [s.name for s in servers if isinstance(s.curve, StraightLine)]
    if straight:
        caveats.append(
            f"the watts of {', '.join(straight)} are taken as straight between idle and full load, "
            "which no server keeps exactly: give power_levels, or runs at several loads"
        )
    caveats += [f"{s.name} is left out: {s.excluded}" for s in servers if s.excluded]
    if all(s.excluded for s in servers):
        raise PpwError(f"{scenario.source}: no candidate can serve the demand: {caveats[-1]}")
    figures = [f for candidate in made for f in candidate.figures.values()]
    kept = [s for s in servers if not s.excluded]
    return Candidates(kept, scenario.inputs.with_(figures), caveats, measured.digests)


def _requests(scenario: Scenario) -> list[Request]:
    requests = []
    for entry in scenario.candidates:
        paths = entry.get("runs", scenario.raw.get("runs") if _from_runs(entry) else None)
        if paths is None:
            if _from_runs(entry):
                raise PpwError(
                    f"{scenario.source}: candidate {entry['name']!r}: where and freq are of runs, "
                    "and none are named: give runs"
                )
            continue
        listed = [paths] if isinstance(paths, str) else paths
        files = tuple(str(scenario.folder / path) for path in listed)
        freq = as_frequency(entry["freq"]) if "freq" in entry else None
        mapping = tuple(entry.get("map", {}).items())
        # A workload of typed figures alone takes no runs.
        requests += [
            Request(entry["name"], w.name, files, mapping, entry.get("where", {}), freq)
            for w in scenario.workloads
            if not {"rate", "power"} <= set(typed_figures(entry, w.name))
        ]
    return requests


def _from_runs(entry: Mapping[str, Any]) -> bool:
    return any(key in entry for key in ("runs", "where", "freq"))


def _server(made: CandidateFigures) -> Server:
    entry, scenario = made.entry, made.scenario
    share, excluded = _shares(made)
    return Server(
        name=made.name,
        height=entry.get("height", 1),
        ports=entry.get("ports", scenario.ports),
        cores=_cores(made),
        curve=_curve(made),
        share_within_limit=share,
        excluded=excluded,
    )


def _cores(made: CandidateFigures) -> int | None:
    inputs = made.scenario.inputs
    counted = ("costs.licence_per_core", "costs.licence_per_core_per_year")
    host = made.host
    cores = made.entry.get("cores")
    if cores is None and host is not None and host.cores is not None:
        cores = host.cores * made.entry.get("sockets", 1)
    if cores is None and any(inputs[key].value > 0 or inputs[key].uncertain for key in counted):
        raise made.refuse("no cores, which licences count: give cores of a whole server")
    return None if cores is None else int(cores)


def _curve(made: CandidateFigures) -> PowerCurve:
    """Power against load: typed levels, measured ones, or a straight line from idle to full."""
    typed = made.entry.get("power_levels")
    idle = made.figures[made.key("idle_power")].value
    if typed:
        load, watts = (np.asarray(typed[name], dtype=float) for name in ("load", "power"))
        if len(load) != len(watts):
            raise made.refuse(
                f"power_levels has {len(load)} loads and {len(watts)} watts: give one for each"
            )
        if load.max() < 1 - _SAME:
            raise made.refuse("power_levels ends below load 1: give the watts at full load")
        return _through(load, watts, idle)
    for found in made.found.values():
        if found.levels is not None:
            return _through(*found.levels, idle / made.copies)
    return StraightLine()


def _through(load: FloatArray, watts: FloatArray, idle: float) -> PowerCurve:
    from ppw.power_load import PowerLoadCurve

    if load.min() > 0:
        load, watts = np.append(load, 0.0), np.append(watts, idle)
    order = np.argsort(load)
    curve: PowerCurve = PowerLoadCurve.of_levels(load[order], watts[order])
    return curve


def _shares(made: CandidateFigures) -> tuple[dict[str, float], str]:
    """Share of the rate within the latency limits by workload, and why there may be none."""
    shares: dict[str, float] = {}
    for workload in made.scenario.workloads:
        known = _latencies(made, workload.name)
        for name, limit in workload.limits.items():
            words = name.replace("latency_", "latency ")
            if name not in known:
                made.caveats.append(
                    f"{made.name}: the limit on {words} of {workload.name} is not held against "
                    "anything: no latency is known against the rate"
                )
                continue
            share = share_within(*known[name], limit)
            if share == 0:
                return {}, (
                    f"its {words} of {workload.name} is above {shown(limit)} s at every rate that "
                    "was measured or given"
                )
            shares[workload.name] = min(share, shares.get(workload.name, 1.0))
    return shares, ""


def _latencies(
    made: CandidateFigures, workload: str
) -> Mapping[str, tuple[FloatArray, FloatArray]]:
    typed = made.typed(workload).get("latency")
    if typed is None:
        found = made.found.get(workload)
        return found.latency if found else {}
    path = ("candidate", made.number, "workload", workload, "latency")
    per = SECONDS_PER[made.typed(workload).get("per", "s")]
    full = made.figures[made.key("rate", workload)].value
    share = np.asarray(typed["rate"], dtype=float) / per / full
    known = {}
    for name in ("p50", "p99"):
        if name not in typed:
            continue
        if len(typed[name]) != len(share):
            raise made.refuse(
                f"latency of {workload} has {len(share)} rates and {len(typed[name])} values of "
                f"{name}: give one for each"
            )
        node = node_at((*path, name, 0))
        seconds = [in_si(s, (*path, name), node, made.scenario.source) for s in typed[name]]
        known[f"latency_{name}"] = share, np.array(seconds)
    return known


def _scopes(made: Sequence[CandidateFigures], scenario: Scenario) -> list[str]:
    """Refuse watts of different scope, or say so in a caveat where it was asked for."""
    scopes = {candidate.name: _scope(candidate) for candidate in made}
    known = {name: scope for name, scope in scopes.items() if scope}
    said = ", ".join(f"{name}: {scope}" for name, scope in known.items())
    caveats = []
    if len(set(known.values())) > 1:
        if not scenario.mixed_scope:
            raise PpwError(
                f"{scenario.source}: the watts are not of one scope ({said}): measure alike, add "
                "beside_power for the rest of a server, or ask for mixed_scope = true"
            )
        caveats.append(f"mixed scope, as asked for: the watts are of {said}")
    elif known and WALL not in known.values():
        caveats.append(
            f"all watts are of the {next(iter(known.values()))} alone: what the rest of a server "
            "draws is in no figure; add beside_power"
        )
    unknown = [name for name, scope in scopes.items() if not scope]
    if unknown:
        caveats.append(
            f"it is not said what the watts of {', '.join(unknown)} are of: power_scope says it"
        )
    return caveats


def _scope(made: CandidateFigures) -> str:
    """What the watts of a candidate are of; with the rest of the server beside them, the wall."""
    if made.key("beside_power") in made.figures:
        return WALL
    full = {w.name: made.figures[made.key("power", w.name)] for w in made.scenario.workloads}
    idle = made.figures[made.key("idle_power")]
    scopes = {
        scope
        for workload, found in made.found.items()
        if full[workload].label != GIVEN
        for scope in found.scopes
    }
    typed = GIVEN in {idle.label, *(figure.label for figure in full.values())}
    if "power_scope" in made.entry and (typed or not scopes):
        scopes.add(made.entry["power_scope"])
    return " and ".join(sorted(scopes))
