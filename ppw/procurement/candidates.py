"""From the tables [[candidate]] of a scenario to servers, with all that is known of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ppw.catalogue.hosts import Host, find_host
from ppw.errors import PpwError
from ppw.power.load_curve import PowerLoadCurve
from ppw.procurement import inputs as inp, measured as me, scenario as sc
from ppw.results.text import as_frequency, shown


# Figures of one candidate: typed in, else measured, else of the catalogue.
@dataclass
class CandidateFigures:
    """One candidate as it is put together: typed figures go first, then those of runs."""

    # Its table [[candidate]], and which one it is.
    entry: Mapping[str, Any]
    number: int
    scenario: sc.Scenario
    # What runs say, by workload.
    found: Mapping[str, me.RunFigures]
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
        """Number of copies of the measured machine in a server; 1 by default."""
        return int(self.entry.get("copies", 1))

    @property
    def is_rented(self) -> bool:
        """Whether it is rented by the hour and not bought."""
        return "rent_per_hour" in self.entry

    @property
    def has_power(self) -> bool:
        """Whether its power is known, or has to be: a rent includes the electricity."""
        names = [w.name for w in self.scenario.workloads]
        keys = [self.key("idle_power"), *(self.key("power", name) for name in names)]
        return not self.is_rented or any(key in self.figures for key in keys)

    @property
    def host(self) -> Host | None:
        """Processor of the candidate in the catalogue."""
        return find_host(self.entry["catalogue"]) if "catalogue" in self.entry else None

    def add(
        self, figure: str, value: float, by_whom: tuple[str, str], workload: str = ""
    ) -> inp.Input:
        """Add a figure with the schema's title and unit, or return the one already there."""
        below = ("workload", workload) if workload else ()
        node = inp.node_at(("candidate", self.number, *below, figure))
        words = f"{node['title']} of {f'{workload} on ' if workload else ''}{self.name}"
        unit = node["x-unit"].replace("{currency}", self.scenario.currency)
        key = self.key(figure, workload)
        return self.figures.setdefault(key, inp.Input(key, words, unit, value, *by_whom))

    def source_of_runs(self) -> str:
        """Name the source of the first workload's runs."""
        return next(iter(self.found.values())).source

    def refuse(self, text: str) -> PpwError:
        """Make an error that names the file and the candidate."""
        return PpwError(f"{self.scenario.source}: candidate {self.name!r}: {text}")


def typed_figures(entry: Mapping[str, Any], workload: str) -> Mapping[str, Any]:
    """Return the figures typed in for a workload of a candidate; empty where there are none."""
    return entry.get("workload", {}).get(workload, {})


def gather_figures(
    scenario: sc.Scenario, number: int, measured: Mapping[tuple[str, str], me.RunFigures]
) -> CandidateFigures:
    """Collect all figures of one candidate: typed in, measured, or of the catalogue.

    Raises `PpwError` for a figure that is missing and that no assumption may stand in for, or power
    values that cannot be of one sensor.
    """
    entry = scenario.candidates[number]
    name = str(entry["name"])
    found = {w: f for (candidate, w), f in measured.items() if candidate == name}
    made = CandidateFigures(entry, number, scenario, found)
    path = ("candidate", number)
    options = {"currency": scenario.currency, "source": scenario.source}
    figures = inp.read_figures(entry, path, f"candidate.{name}", of=name, **options)
    made.figures |= {figure.key: figure for figure in figures}
    for workload in (w.name for w in scenario.workloads):
        typed, below = typed_figures(entry, workload), (*path, "workload", workload)
        prefix, of = f"candidate.{name}.workload.{workload}", f"{workload} on {name}"
        figures = inp.read_figures(typed, below, prefix, of=of, **options)
        made.figures |= {figure.key: figure for figure in figures}
        _add_measured(made, workload)
    made.caveats += _run_caveats(made)
    _add_power_of_levels(made)
    _add_price(made)
    _refuse_missing(made)
    return made


def _run_caveats(made: CandidateFigures) -> list[str]:
    """List the doubts about a candidate's runs, and whether copies or projections are used."""
    caveats = []
    if made.found and made.copies > 1:
        caveats.append(
            f"{made.name}: what its runs measured is taken {made.copies} times, as if the copies "
            "did not slow each other down: measure a whole server"
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


def _add_measured(made: CandidateFigures, workload: str) -> None:
    """Add rate and full-load power that runs measured, with their draws."""
    if (found := made.found.get(workload)) is None:
        return
    by_whom = (inp.PROJECTED if found.projected else inp.MEASURED), found.source
    for figure, draws in (("rate", found.rate), ("power", found.power)):
        key = made.key(figure, workload)
        if draws is not None and key not in made.figures:
            added = made.add(figure, made.copies * float(np.median(draws)), by_whom, workload)
            made.figures[key] = replace(added, draws=made.copies * draws)


def _add_power_of_levels(made: CandidateFigures) -> None:
    """Add idle power, from typed levels or the runs' column, and full-load power of levels."""
    levels, typed_in = made.entry.get("power_levels"), (inp.GIVEN, made.scenario.source)
    loads, powers = (len(levels[name]) if levels else 0 for name in ("load", "power"))
    if loads != powers:
        raise made.refuse(
            f"power_levels has {loads} loads and {powers} power values: give one for each"
        )
    if levels and (lowest := min(levels["load"])) == 0:
        made.add("idle_power", float(levels["power"][levels["load"].index(lowest)]), typed_in)
    idle = [f.idle_w for f in made.found.values() if f.idle_w == f.idle_w]
    if idle:
        value = made.copies * float(np.mean(idle))
        made.add("idle_power", value, (inp.MEASURED, made.source_of_runs()))
    if levels and (highest := max(levels["load"])) >= 1:
        watts = float(levels["power"][levels["load"].index(highest)])
        for workload in made.scenario.workloads:
            made.add("power", watts, typed_in, workload.name)


def _add_price(made: CandidateFigures) -> None:
    """Add a price: the mean of the runs' ones, else the launch price of the catalogue."""
    prices = [f.price for f in made.found.values() if f.price == f.price]
    if made.is_rented:
        return
    if prices:
        made.add("price", float(np.mean(prices)), (inp.GIVEN, made.source_of_runs()))
    host, unit = made.host, made.scenario.currency
    if made.key("price") in made.figures or host is None or host.launch_price_usd is None:
        return
    sockets = made.entry.get("sockets", 1)
    source = host.sources[host.figures["launch_price_usd"].source]
    made.add("price", sockets * host.launch_price_usd, (inp.CATALOGUE, source))
    made.caveats.append(
        f"{made.name}: its price is only the launch price of {sockets} × {host.name}, without the "
        "rest of the server: give the price that you would pay"
    )
    if unit != "USD":
        raise made.refuse(f"the catalogue's price is in USD, the scenario in {unit}: give price")


def _refuse_missing(made: CandidateFigures) -> None:
    """Raise `PpwError` for a candidate without a figure that has no default."""
    for workload in made.scenario.workloads:
        _refuse_missing_of_workload(made, workload.name)
    if made.is_rented == (made.key("price") in made.figures):
        raise made.refuse(
            "a price and a rent_per_hour: give one of them"
            if made.is_rented
            else f"no price: give price{_or_column_hint(made, 'price')}, or rent_per_hour"
        )
    if made.is_rented and made.entry.get("owned"):
        raise made.refuse("rented servers are not owned: leave out owned")
    price = made.scenario.inputs["costs.carbon_price"]
    grid = "site.grid_carbon" in made.scenario.inputs
    known = grid and made.key("embodied_carbon") in made.figures
    if (price.value > 0 or price.uncertain) and not known:
        raise made.refuse(
            "costs.carbon_price needs site.grid_carbon and the candidate's embodied_carbon: give "
            "both"
        )


def _refuse_missing_of_workload(made: CandidateFigures, workload: str) -> None:
    """Raise for a missing or contradicting figure; bound idle by full-load power and back."""
    for figure, unit in (("rate", "units a second"), ("power", "W at full load")):
        needed = figure == "rate" or made.has_power
        if needed and made.key(figure, workload) not in made.figures:
            tdp = ", which is not the TDP" if figure == "power" and made.host else ""
            raise made.refuse(
                f"no {figure} of {workload}: give candidate.workload.{workload}.{figure} "
                f"({unit}{tdp})"
            )
    needs_memory = f"workload.{workload}.memory" in made.scenario.inputs
    if needs_memory and made.key("memory") not in made.figures:
        raise made.refuse(f"no memory size, which workload {workload} needs: give memory")
    if not made.has_power:
        return
    full = made.figures[made.key("power", workload)]
    idle = made.figures.get(made.key("idle_power"))
    if idle is None:
        raise made.refuse(
            f"no idle power: give idle_power or power_levels{_or_column_hint(made, 'idle_power_w')}"
        )
    if idle.value >= full.value:
        raise made.refuse(
            f"its idle power {shown(idle.value, 'W')} is not below its full-load power "
            f"{shown(full.value, 'W')} of {workload}: check that both are from one sensor"
        )
    made.figures[full.key] = replace(full, least=idle.value)
    made.figures[idle.key] = replace(idle, most=min(idle.most, full.value))


def _or_column_hint(made: CandidateFigures, column: str) -> str:
    return f" or a column {column} in its runs" if made.found else ""


WALL = "wall"
_SAME = 1e-9


def gather(
    scenario: sc.Scenario, *, draws: int, seed: int
) -> tuple[list[sc.Server], inp.Inputs, list[str], list[str]]:
    """Put all candidates together: what is typed in goes before what is measured or catalogued.

    Returns the servers, all figures, caveats, and the digests of the runs tables.
    """
    requests = _requests_for_runs(scenario)
    measured, doubts, digests = me.measure_requests(requests, draws=draws, seed=seed)
    made = [gather_figures(scenario, i, measured) for i in range(len(scenario.candidates))]
    servers = [_make_server(candidate) for candidate in made]
    caveats = [*doubts, *(c for candidate in made for c in candidate.caveats)]
    caveats += _check_power_scopes(made, scenario)
    known = {candidate.name for candidate in made if candidate.has_power}
    straight = [s.name for s in servers if s.curve is None and s.name in known]
    if straight:
        caveats.append(
            f"the power of {', '.join(straight)} is taken as a straight line between idle and "
            "full load, which is not exact: give power_levels, or runs at several loads"
        )
    caveats += [f"{s.name} is left out: {s.excluded}" for s in servers if s.excluded]
    if all(s.excluded for s in servers):
        raise PpwError(f"{scenario.source}: no candidate can serve the demand: {caveats[-1]}")
    figures = {key: f for candidate in made for key, f in candidate.figures.items()}
    kept = [s for s in servers if not s.excluded]
    return kept, inp.Inputs(scenario.inputs | figures), caveats, digests


def _requests_for_runs(scenario: sc.Scenario) -> list[me.Request]:
    requests = []
    for entry in scenario.candidates:
        if not any(key in entry for key in ("runs", "where", "freq")):
            continue
        if (paths := entry.get("runs", scenario.raw.get("runs"))) is None:
            raise PpwError(
                f"{scenario.source}: candidate {entry['name']!r}: where and freq are of runs, "
                "and none are named: give runs"
            )
        listed = [paths] if isinstance(paths, str) else paths
        files = tuple(str(scenario.folder / path) for path in listed)
        freq = as_frequency(entry["freq"]) if "freq" in entry else None
        mapping = tuple(entry.get("map", {}).items())
        # A workload of typed figures alone takes no runs.
        requests += [
            me.Request(entry["name"], w.name, files, mapping, entry.get("where", {}), freq)
            for w in scenario.workloads
            if not {"rate", "power"} <= set(typed_figures(entry, w.name))
        ]
    return requests


def _make_server(made: CandidateFigures) -> sc.Server:
    entry, scenario = made.entry, made.scenario
    share, excluded = _latency_shares(made)
    return sc.Server(
        name=made.name,
        height=entry.get("height", 1),
        ports=entry.get("ports", 0 if made.is_rented else scenario.ports),
        cores=_count_cores(made),
        owned=entry.get("owned", 0),
        yearly=entry.get("purchases") == "yearly",
        rented=made.is_rented,
        curve=_load_curve(made),
        share_within_limit=share,
        excluded=excluded,
    )


def _count_cores(made: CandidateFigures) -> int | None:
    """Cores of a server, typed in or of the catalogue; refuse none where licences count them."""
    inputs = made.scenario.inputs
    counted = ("costs.licence_per_core", "costs.licence_per_core_per_year")
    host = made.host
    cores = made.entry.get("cores")
    if cores is None and host is not None and host.cores is not None:
        cores = host.cores * made.entry.get("sockets", 1)
    if cores is None and any(inputs[key].value > 0 or inputs[key].uncertain for key in counted):
        raise made.refuse(
            "no number of cores, which licences need: give the cores of a whole server"
        )
    return None if cores is None else int(cores)


def _load_curve(made: CandidateFigures) -> PowerLoadCurve | None:
    """Power against load: typed levels, else measured ones; None where there are neither."""
    if not made.has_power:
        return None
    typed = made.entry.get("power_levels")
    idle = made.figures[made.key("idle_power")].value
    if typed:
        load, watts = (np.asarray(typed[name], dtype=float) for name in ("load", "power"))
        if load.max() < 1 - _SAME:
            raise made.refuse("power_levels ends below load 1: give the power at full load")
        return _curve_with_idle(load, watts, idle)
    for found in made.found.values():
        if found.levels is not None:
            return _curve_with_idle(*found.levels, idle / made.copies)
    return None


def _curve_with_idle(load: inp.FloatArray, watts: inp.FloatArray, idle: float) -> PowerLoadCurve:
    from ppw.power.load_curve import PowerLoadCurve

    if load.min() > 0:
        load, watts = np.append(load, 0.0), np.append(watts, idle)
    order = np.argsort(load)
    return PowerLoadCurve.of_levels(load[order], watts[order])


def _latency_shares(made: CandidateFigures) -> tuple[dict[str, float], str]:
    """Share of the full rate within latency limits, by workload; or why no rate keeps them."""
    shares: dict[str, float] = {}
    for workload in made.scenario.workloads:
        known = _latency_curves(made, workload.name)
        for name, limit in workload.limits.items():
            words = name.replace("latency_", "latency ")
            if name not in known:
                made.caveats.append(
                    f"{made.name}: the limit on {words} of {workload.name} is not checked, "
                    "because no latency by rate is known"
                )
                continue
            share = sc.share_within(*known[name], limit)
            if share == 0:
                return {}, (
                    f"its {words} of {workload.name} is above {shown(limit)} s at every rate that "
                    "was measured or given"
                )
            shares[workload.name] = min(share, shares.get(workload.name, 1.0))
    return shares, ""


def _latency_curves(
    made: CandidateFigures, workload: str
) -> Mapping[str, tuple[inp.FloatArray, inp.FloatArray]]:
    """Share of the full rate and latency (s) at each, by name; typed in or of the runs."""
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
        node = inp.node_at((*path, name, 0))
        seconds = [inp.in_si(s, (*path, name), node, made.scenario.source) for s in typed[name]]
        known[f"latency_{name}"] = share, np.array(seconds)
    return known


def _check_power_scopes(made: Sequence[CandidateFigures], scenario: sc.Scenario) -> list[str]:
    """Refuse power of different scope unless asked for; return caveats on scope."""
    scopes = {c.name: _power_scope(c) for c in made if c.has_power}
    known = {name: scope for name, scope in scopes.items() if scope}
    said = ", ".join(f"{name}: {scope}" for name, scope in known.items())
    caveats = []
    if len(set(known.values())) > 1:
        if not scenario.mixed_scope:
            raise PpwError(
                f"{scenario.source}: the power readings have different scopes ({said}): measure "
                "with one kind of sensor, add beside_power for the rest of a server, or ask for "
                "mixed_scope = true"
            )
        caveats.append(
            f"power of different scope is compared, because of mixed_scope = true: it is of {said}"
        )
    elif known and WALL not in known.values():
        caveats.append(
            f"all power is of the {next(iter(known.values()))} alone, so every figure lacks the "
            "power of the rest of the server: add beside_power"
        )
    unknown = [name for name, scope in scopes.items() if not scope]
    if unknown:
        caveats.append(
            f"the scope of the power of {', '.join(unknown)} is not known: give power_scope"
        )
    return caveats


def _power_scope(made: CandidateFigures) -> str:
    """Scope of a candidate's power, as "wall" or "package"; "" where it is not known."""
    if made.key("beside_power") in made.figures:
        return WALL
    full = {w.name: made.figures[made.key("power", w.name)] for w in made.scenario.workloads}
    idle = made.figures[made.key("idle_power")]
    seen = (found.scopes for w, found in made.found.items() if full[w].label != inp.GIVEN)
    scopes = set[str]().union(*seen)
    typed = inp.GIVEN in {idle.label, *(figure.label for figure in full.values())}
    if "power_scope" in made.entry and (typed or not scopes):
        scopes.add(made.entry["power_scope"])
    return " and ".join(sorted(scopes))
