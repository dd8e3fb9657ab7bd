"""Figures of one candidate: typed in, else measured, else of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ppw.errors import PpwError
from ppw.estimate import shown
from ppw.hosts import find_host
from ppw.procurement.inputs import (
    CATALOGUE,
    GIVEN,
    MEASURED,
    PROJECTED,
    Input,
    figure_key,
    read_figures,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ppw.host import Host
    from ppw.procurement.measured import Found, Measured
    from ppw.procurement.scenario import Scenario


@dataclass
class CandidateFigures:
    """One candidate as it is put together.

    Attributes
    ----------
    entry : mapping
        Its table [[candidate]].
    number : int
        Which one.
    scenario : Scenario
    found : mapping of str to Found
        What runs say, by workload.
    figures : dict of str to Input
    caveats : list of str
    """

    entry: Mapping[str, Any]
    number: int
    scenario: Scenario
    found: Mapping[str, Found]
    figures: dict[str, Input] = field(default_factory=dict)
    caveats: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self.entry["name"])

    def key(self, figure: str, workload: str | None = None) -> str:
        """Key of one of its figures."""
        return figure_key(self.name, figure, workload)

    @property
    def copies(self) -> int:
        """How many times a server holds what its runs measured."""
        return int(self.entry.get("copies", 1))

    @property
    def host(self) -> Host | None:
        """Its processor in the catalogue."""
        return find_host(self.entry["catalogue"]) if "catalogue" in self.entry else None

    def typed(self, workload: str) -> Mapping[str, Any]:
        """Figures typed in for a workload."""
        return typed_figures(self.entry, workload)

    def add(self, figures: Sequence[Input]) -> None:
        """Add the figures that are not known yet."""
        for figure in figures:
            self.figures.setdefault(figure.key, figure)

    def refuse(self, text: str) -> PpwError:
        """Error that names the file and the candidate."""
        return PpwError(f"{self.scenario.source}: candidate {self.name!r}: {text}")


def typed_figures(entry: Mapping[str, Any], workload: str) -> Mapping[str, Any]:
    """Figures typed in for a workload in a table [[candidate]]."""
    figures: Mapping[str, Any] = entry.get("workload", {}).get(workload, {})
    return figures


def gather_figures(scenario: Scenario, number: int, measured: Measured) -> CandidateFigures:
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
    options = {"currency": scenario.currency, "source": scenario.source}
    made.add(read_figures(entry, ("candidate", number), f"candidate.{name}", of=name, **options))
    for workload in scenario.workloads:
        path = ("candidate", number, "workload", workload.name)
        prefix, of = f"candidate.{name}.workload.{workload.name}", f"{workload.name} on {name}"
        made.add(read_figures(made.typed(workload.name), path, prefix, of=of, **options))
        if workload.name in found:
            made.add(_measured_figures(made, workload.name, found[workload.name]))
    made.caveats += _of_runs(made)
    _add_idle(made)
    _add_full_power(made)
    _add_price(made)
    _refuse_missing(made)
    return made


def _of_runs(made: CandidateFigures) -> list[str]:
    """What to know of figures that come from runs."""
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


def _measured_figures(made: CandidateFigures, workload: str, found: Found) -> list[Input]:
    label = PROJECTED if found.projected else MEASURED
    of = f"{workload} on {made.name}"
    parts = [("rate", f"rate of {of}", "1/s", found.rate)]
    if found.power is not None:
        parts.append(("power", f"full-load power of {of}", "W", found.power))
    return [
        Input(
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
    """Idle watts: typed in, the lowest level of the curve, or the mean of the runs' column."""
    levels = made.entry.get("power_levels")
    key, words = made.key("idle_power"), f"idle power of {made.name}"
    if levels and min(levels["load"]) == 0:
        watts = float(levels["power"][levels["load"].index(0)])
        made.add([Input(key, words, "W", watts, GIVEN, made.scenario.source)])
    idle = [f.idle_w for f in made.found.values() if f.idle_w == f.idle_w]
    if idle:
        source = next(iter(made.found.values())).source
        watts = made.copies * float(np.mean(idle))
        made.add([Input(key, words, "W", watts, MEASURED, source)])


def _add_full_power(made: CandidateFigures) -> None:
    """Full-load watts of the workloads that have none, from the typed curve's highest level."""
    levels = made.entry.get("power_levels")
    if not levels or max(levels["load"]) < 1:
        return
    watts = float(levels["power"][levels["load"].index(max(levels["load"]))])
    for workload in made.scenario.workloads:
        words = f"full-load power of {workload.name} on {made.name}"
        key = made.key("power", workload.name)
        made.add([Input(key, words, "W", watts, GIVEN, made.scenario.source)])


def _add_price(made: CandidateFigures) -> None:
    key, words, unit = made.key("price"), f"price of {made.name}", made.scenario.currency
    prices = [f.price for f in made.found.values() if f.price == f.price]
    if prices:
        source = next(iter(made.found.values())).source
        made.add([Input(key, words, unit, float(np.mean(prices)), GIVEN, source)])
    host = made.host
    if key in made.figures or host is None or host.launch_price_usd is None:
        return
    sockets = made.entry.get("sockets", 1)
    source = host.sources[host.figures["launch_price_usd"].source]
    made.add([Input(key, words, "USD", sockets * host.launch_price_usd, CATALOGUE, source)])
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
