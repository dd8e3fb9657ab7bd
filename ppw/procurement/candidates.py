"""From the tables [[candidate]] of a scenario to servers, with all that is known of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppw.catalogue.hosts import find_host
from ppw.errors import PpwError
from ppw.procurement import inputs as inp
from ppw.procurement.measured import Request, measure
from ppw.procurement.scenario import LoadCurve, Server, StraightLine, share_within
from ppw.procurement.scenario_schema import node_at
from ppw.results.arguments import as_frequency
from ppw.results.text import shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fitting.regression.lines import FloatArray
    from ppw.catalogue.hosts import Host
    from ppw.procurement.measured import MeasuredFigures, RunFigures
    from ppw.procurement.scenario import Scenario


# Figures of one candidate: typed in, else measured, else of the catalogue.


@dataclass
class CandidateFigures:
    """One candidate as it is put together: typed figures go first, then those of runs."""

    # Its table [[candidate]], and which one it is.
    entry: Mapping[str, Any]
    number: int
    scenario: Scenario
    # What runs say, by workload.
    found: Mapping[str, RunFigures]
    figures: dict[str, inp.Input] = field(default_factory=dict)
    caveats: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the candidate."""
        return str(self.entry["name"])

    def key(self, figure: str, workload: str | None = None) -> str:
        """Spell the key of one of its figures."""
        return inp.figure_key(self.name, figure, workload)

    @property
    def copies(self) -> int:
        """Number of times that a server holds what its runs measured."""
        return int(self.entry.get("copies", 1))

    @property
    def host(self) -> Host | None:
        """Processor of the candidate in the catalogue."""
        return find_host(self.entry["catalogue"]) if "catalogue" in self.entry else None

    def add(self, figures: Sequence[inp.Input]) -> None:
        """Add the figures that are not known yet."""
        for figure in figures:
            self.figures.setdefault(figure.key, figure)

    def refuse(self, text: str) -> PpwError:
        """Make an error that names the file and the candidate."""
        return PpwError(f"{self.scenario.source}: candidate {self.name!r}: {text}")


def typed_figures(entry: Mapping[str, Any], workload: str) -> Mapping[str, Any]:
    """Return the figures typed in for a workload in a table [[candidate]]."""
    figures: Mapping[str, Any] = entry.get("workload", {}).get(workload, {})
    return figures


def gather_figures(scenario: Scenario, number: int, measured: MeasuredFigures) -> CandidateFigures:
    """Put one candidate together.

    Raises
    ------
    PpwError
        For a figure that is missing and that no assumption may stand in for, or watts that cannot
        be of one sensor.
    """
    entry = scenario.candidates[number]
    name = str(entry["name"])
    found = {w: f for (candidate, w), f in measured.found.items() if candidate == name}
    made = CandidateFigures(entry, number, scenario, found)
    path = ("candidate", number)
    options = {"currency": scenario.currency, "source": scenario.source}
    made.add(inp.read_figures(entry, path, f"candidate.{name}", of=name, **options))
    for workload in scenario.workloads:
        typed, below = typed_figures(entry, workload.name), (*path, "workload", workload.name)
        prefix, of = f"candidate.{name}.workload.{workload.name}", f"{workload.name} on {name}"
        made.add(inp.read_figures(typed, below, prefix, of=of, **options))
        if workload.name in found:
            made.add(_measured_figures(made, workload.name, found[workload.name]))
    made.caveats += _of_runs(made)
    _add_idle(made)
    _add_full_power(made)
    _add_price(made)
    _refuse_missing(made)
    return made


def _of_runs(made: CandidateFigures) -> list[str]:
    """List the caveats of figures that come from runs."""
    caveats = []
    if made.found and made.copies > 1:
        caveats.append(
            f"{made.name}: what its runs measured is taken {made.copies} times, as if the copies "
            "did not slow each other: measure a whole server"
        )
    for workload, found in made.found.items():
        caveats += [f"{made.name}, {workload}: {doubt}" for doubt in found.doubts]
    projected = [f.source for f in made.found.values() if f.projected]
    if projected:
        caveats.append(
            f"{made.name}: what its runs say is projected, not measured there "
            f"({'; '.join(projected)})"
        )
    return caveats


def _measured_figures(made: CandidateFigures, workload: str, found: RunFigures) -> list[inp.Input]:
    label = inp.PROJECTED if found.projected else inp.MEASURED
    of = f"{workload} on {made.name}"
    parts = [("rate", f"rate of {of}", "1/s", found.rate)]
    if found.power is not None:
        parts.append(("power", f"full-load power of {of}", "W", found.power))
    return [
        inp.Input(
            made.key(figure, workload),
            words,
            unit,
            made.copies * float(np.median(draws)),
            label,
            found.source,
            draws=made.copies * draws,
        )
        for figure, words, unit, draws in parts
    ]


def _add_idle(made: CandidateFigures) -> None:
    """Add idle power: typed in, the lowest level of the curve, or the mean of the runs' column."""
    levels = made.entry.get("power_levels")
    key, words = made.key("idle_power"), f"idle power of {made.name}"
    if levels and min(levels["load"]) == 0:
        watts = float(levels["power"][levels["load"].index(0)])
        made.add([inp.Input(key, words, "W", watts, inp.GIVEN, made.scenario.source)])
    idle = [f.idle_w for f in made.found.values() if f.idle_w == f.idle_w]
    if idle:
        source = next(iter(made.found.values())).source
        watts = made.copies * float(np.mean(idle))
        made.add([inp.Input(key, words, "W", watts, inp.MEASURED, source)])


def _add_full_power(made: CandidateFigures) -> None:
    """Add full-load power of workloads that have none, from the typed curve's highest level."""
    levels = made.entry.get("power_levels")
    if not levels or max(levels["load"]) < 1:
        return
    watts = float(levels["power"][levels["load"].index(max(levels["load"]))])
    for workload in made.scenario.workloads:
        words = f"full-load power of {workload.name} on {made.name}"
        key = made.key("power", workload.name)
        made.add([inp.Input(key, words, "W", watts, inp.GIVEN, made.scenario.source)])


def _add_price(made: CandidateFigures) -> None:
    key, words, unit = made.key("price"), f"price of {made.name}", made.scenario.currency
    prices = [f.price for f in made.found.values() if f.price == f.price]
    if prices:
        source = next(iter(made.found.values())).source
        made.add([inp.Input(key, words, unit, float(np.mean(prices)), inp.GIVEN, source)])
    host = made.host
    if key in made.figures or host is None or host.launch_price_usd is None:
        return
    sockets = made.entry.get("sockets", 1)
    source = host.sources[host.figures["launch_price_usd"].source]
    made.add([inp.Input(key, words, "USD", sockets * host.launch_price_usd, inp.CATALOGUE, source)])
    made.caveats.append(
        f"{made.name}: its price is the launch price of {sockets} × {host.name} alone, without "
        "the rest of the server: type in what you would pay"
    )
    if unit != "USD":
        raise made.refuse(f"the catalogue's price is in USD, the scenario in {unit}: give price")


def _refuse_missing(made: CandidateFigures) -> None:
    """Refuse a candidate that lacks what no assumption may stand in for."""
    for workload in made.scenario.workloads:
        _refuse_missing_of(made, workload.name)
    if made.key("price") not in made.figures:
        raise made.refuse(f"no price: give price{_or_column(made, 'price')}")
    price = made.scenario.inputs["costs.carbon_price"]
    grid = "site.grid_carbon" in made.scenario.inputs
    known = grid and made.key("embodied_carbon") in made.figures
    if (price.value > 0 or price.uncertain) and not known:
        raise made.refuse(
            "costs.carbon_price needs site.grid_carbon and the candidate's embodied_carbon: give "
            "both"
        )


def _refuse_missing_of(made: CandidateFigures, workload: str) -> None:
    """Refuse one that lacks a figure of a workload, and bound its watts by each other."""
    for figure, unit in (("rate", "units a second"), ("power", "W at full load")):
        if made.key(figure, workload) not in made.figures:
            tdp = ", which is not the TDP" if figure == "power" and made.host else ""
            raise made.refuse(
                f"no {figure} of {workload}: give candidate.workload.{workload}.{figure} "
                f"({unit}{tdp})"
            )
    needs_memory = f"workload.{workload}.memory" in made.scenario.inputs
    if needs_memory and made.key("memory") not in made.figures:
        raise made.refuse(f"no memory, which {workload} asks for: give memory")
    full = made.figures[made.key("power", workload)]
    idle = made.figures.get(made.key("idle_power"))
    if idle is None:
        raise made.refuse(
            f"no idle power: give idle_power or power_levels{_or_column(made, 'idle_power_w')}"
        )
    if idle.value >= full.value:
        raise made.refuse(
            f"its idle power {shown(idle.value, 'W')} is not below its full-load power "
            f"{shown(full.value, 'W')} of {workload}: are they of one sensor?"
        )
    made.figures[full.key] = replace(full, least=idle.value)
    made.figures[idle.key] = replace(idle, most=min(idle.most, full.value))


def _or_column(made: CandidateFigures, column: str) -> str:
    return f" or a column {column} in its runs" if made.found else ""


WALL = "wall"
_SAME = 1e-9


@dataclass(frozen=True, eq=False)
class Candidates:
    """All candidates of a scenario, with every figure that the model needs."""

    servers: list[Server]
    # Those of the scenario and of all candidates.
    inputs: inp.Inputs
    caveats: list[str]
    # Of the runs tables.
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
            f"the power of {', '.join(straight)} is taken as straight between idle and full load, "
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


def _curve(made: CandidateFigures) -> LoadCurve:
    """Choose power against load: typed levels, measured ones, or a line from idle to full."""
    typed = made.entry.get("power_levels")
    idle = made.figures[made.key("idle_power")].value
    if typed:
        load, watts = (np.asarray(typed[name], dtype=float) for name in ("load", "power"))
        if len(load) != len(watts):
            raise made.refuse(
                f"power_levels has {len(load)} loads and {len(watts)} power values: give one "
                "for each"
            )
        if load.max() < 1 - _SAME:
            raise made.refuse("power_levels ends below load 1: give the power at full load")
        return _through(load, watts, idle)
    for found in made.found.values():
        if found.levels is not None:
            return _through(*found.levels, idle / made.copies)
    return StraightLine()


def _through(load: FloatArray, watts: FloatArray, idle: float) -> LoadCurve:
    from ppw.power.load_curve import PowerLoadCurve

    if load.min() > 0:
        load, watts = np.append(load, 0.0), np.append(watts, idle)
    order = np.argsort(load)
    curve: LoadCurve = PowerLoadCurve.of_levels(load[order], watts[order])
    return curve


def _shares(made: CandidateFigures) -> tuple[dict[str, float], str]:
    """Find the share of the rate within the latency limits by workload, or why there is none."""
    shares: dict[str, float] = {}
    for workload in made.scenario.workloads:
        known = _latencies(made, workload.name)
        for name, limit in workload.limits.items():
            words = name.replace("latency_", "latency ")
            if name not in known:
                made.caveats.append(
                    f"{made.name}: the limit on {words} of {workload.name} is not compared "
                    "with anything: no latency is known against the rate"
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
    typed = typed_figures(made.entry, workload).get("latency")
    if typed is None:
        found = made.found.get(workload)
        return found.latency if found else {}
    path = ("candidate", made.number, "workload", workload, "latency")
    per = inp.SECONDS_PER[typed_figures(made.entry, workload).get("per", "s")]
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
        seconds = [inp.in_si(s, (*path, name), node, made.scenario.source) for s in typed[name]]
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
                f"{scenario.source}: the power is not of one scope ({said}): measure alike, add "
                "beside_power for the rest of a server, or ask for mixed_scope = true"
            )
        caveats.append(f"mixed scope, as asked for: the power is of {said}")
    elif known and WALL not in known.values():
        caveats.append(
            f"all power is of the {next(iter(known.values()))} alone: what the rest of a server "
            "draws is in no figure; add beside_power"
        )
    unknown = [name for name, scope in scopes.items() if not scope]
    if unknown:
        caveats.append(
            f"the scope of the power of {', '.join(unknown)} is not known: give power_scope"
        )
    return caveats


def _scope(made: CandidateFigures) -> str:
    """Say what the watts of a candidate are of; with the rest of the server, the wall."""
    if made.key("beside_power") in made.figures:
        return WALL
    full = {w.name: made.figures[made.key("power", w.name)] for w in made.scenario.workloads}
    idle = made.figures[made.key("idle_power")]
    scopes = {
        scope
        for workload, found in made.found.items()
        if full[workload].label != inp.GIVEN
        for scope in found.scopes
    }
    typed = inp.GIVEN in {idle.label, *(figure.label for figure in full.values())}
    if "power_scope" in made.entry and (typed or not scopes):
        scopes.add(made.entry["power_scope"])
    return " and ".join(sorted(scopes))
