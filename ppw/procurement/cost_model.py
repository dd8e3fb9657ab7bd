"""The model of a candidate: from its figures to servers, energy, carbon, money and worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppw.procurement.inputs import CaseValues, FloatArray, Inputs
from ppw.procurement.scenario import Scenario, Server, Workload

HOURS_PER_YEAR = 8760.0
SECONDS_PER_YEAR = 3600 * HOURS_PER_YEAR


class RateDemand(NamedTuple):
    """Demand of n cases: the rate of every workload over the years and the day, and the memory."""

    rate: FloatArray  # 1/s in equal parts of the day: (workloads, n, years, parts)
    memory: FloatArray  # B, 0 where none is asked for: (workloads, n, years)


def demand_of(workloads: Sequence[Workload], years: int, numbers: CaseValues) -> RateDemand:
    """Rate of each workload by year and time of day, and memory by year."""
    growth = 1 + numbers["demand.growth_per_year"]
    grown = growth[:, None] ** np.arange(years)
    parts = max(len(w.profile) for w in workloads)
    peaks = [peak_rate(w.name, numbers)[:, None] * grown for w in workloads]
    profiles = [np.broadcast_to(w.profile, parts) for w in workloads]
    rate = np.stack([a[..., None] * b for a, b in zip(peaks, profiles, strict=True)])
    memory = np.stack([numbers.values_or(f"workload.{w.name}.memory", 0.0) for w in workloads])
    return RateDemand(rate, (numbers["demand.scale"] * memory)[..., None] * grown)


def peak_rate(name: str, numbers: CaseValues) -> FloatArray:
    """Return the peak rate (1/s) of a workload in the first year: (n,)."""
    if (rate := numbers.get(f"workload.{name}.rate")) is None:
        rate = numbers["demand.rate"] * numbers[f"workload.{name}.share"]
    return numbers["demand.scale"] * rate


# How many servers, and how many racks, a demand takes.
#
# A server does c_w units a second of workload w alone; of a mix it does each for a part of the
# time, so that demand d_w takes Σ d_w/c_w servers' time. Bought are, for the busiest part of the
# busiest year,
#
#     N = max(⌈Σ (d_w/c_w)·(1 + headroom)/u_max⌉, ⌈M·(1 + headroom)/m⌉, 1) + spare servers
#
# with c_w the rate within the latency limit, u_max the highest planned utilisation, M the memory
# that the data take and m that of a server. Servers that are bought year by year, or rented, are
# those of each year; bought ones stay.


# A whole number that arithmetic puts a little above itself is that number.
_SLACK = 1e-9


class Pool(NamedTuple):
    """Servers that share some workloads; their numbers are whole."""

    workloads: list[str]
    # Of the busiest year: (n,) each.
    by_rate: FloatArray
    by_memory: FloatArray
    spare: FloatArray
    # The larger of the first two, 1 at least, and the spare ones: (n, years).
    servers: FloatArray
    # Part of each server's time that a workload takes: (workloads, n, years, parts).
    load: FloatArray


class Racks(NamedTuple):
    """Racks of a candidate: how many servers go into one, how many there are, and what fits.

    ``fits`` is 1 where the site has room and power, ``reason`` says what is short in case 0.
    """

    per_rack: FloatArray
    racks: FloatArray
    peak_power: FloatArray
    fits: FloatArray
    reason: str


def size_pools(
    server: Server, scenario: Scenario, demand: RateDemand, numbers: CaseValues
) -> list[Pool]:
    """Size the server pools of a candidate: one for all workloads, or one for each."""
    everything = range(len(scenario.workloads))
    pools = [[i] for i in everything] if scenario.separate_pools else [list(everything)]
    return [_size_pool(server, scenario, demand, numbers, which) for which in pools]


def _size_pool(
    server: Server, scenario: Scenario, demand: RateDemand, numbers: CaseValues, which: list[int]
) -> Pool:
    names = [scenario.workloads[i].name for i in which]
    rate, memory = demand.rate[which], demand.memory[which].sum(axis=0)
    within = np.stack([server.rate_within_limit(w, numbers) for w in names])
    needed = (rate / within[..., None, None]).sum(axis=0).max(axis=-1)
    extra = 1 + numbers["demand.headroom"][:, None]
    by_rate = _round_up_with_slack(needed * extra / numbers["demand.max_utilisation"][:, None])
    by_memory = np.zeros_like(by_rate)
    if memory.any():
        by_memory = _round_up_with_slack(memory * extra / numbers[server.key("memory")][:, None])
    least = np.maximum(np.maximum(by_rate, by_memory), 1.0)
    spare_share = numbers["demand.spare_share"][:, None]
    spare = scenario.spare_servers + _round_up_with_slack(least * spare_share)
    servers = least + spare
    if server.yearly and not server.rented:
        servers = np.maximum.accumulate(servers, axis=1)
    elif not server.rented:
        # The busiest year is the first where the demand falls.
        servers = np.broadcast_to(servers.max(axis=1, keepdims=True), servers.shape)
    full = np.stack([server.rate(w, numbers) for w in names])
    load = rate / (full[..., None] * servers)[..., None]
    by_rate, by_memory, spare = (part.max(axis=1) for part in (by_rate, by_memory, spare))
    return Pool(names, by_rate, by_memory, spare, servers, load)


def fill_racks(
    server: Server, scenario: Scenario, servers: FloatArray, peak: FloatArray, numbers: CaseValues
) -> Racks:
    """Number of racks for the servers, and whether space and power allow them."""
    if server.rented:
        none = np.zeros(numbers.n)
        return Racks(none, none, none, none + 1, "")
    by_space = np.full(numbers.n, float(scenario.rack_units // server.height))
    by_power = np.floor(numbers.values_or("site.rack_power", np.inf) / peak + _SLACK)
    per_rack = np.minimum(by_space, by_power)
    # One a rack where none goes in: there is no answer, and `fits` says so.
    racks = _round_up_with_slack(servers / np.maximum(per_rack, 1.0))
    allowed = np.inf if scenario.max_racks is None else float(scenario.max_racks)
    power = servers * peak
    limit = numbers.values_or("site.power", np.inf)
    short = {
        "a server is higher than a rack": by_space < 1,
        "a server at its peak draws more than a rack may": by_power < 1,
        "it takes more racks than there is space for": racks > allowed,
        "its servers at their peak draw more than the site may": power > limit * (1 + _SLACK),
    }
    fits = ~np.logical_or.reduce(list(short.values()))
    reason = "; ".join(text for text, found in short.items() if found[0])
    return Racks(per_rack, racks, power, fits.astype(float), reason)


def _round_up_with_slack(number: FloatArray) -> FloatArray:
    return np.ceil(number * (1 - _SLACK))


# Energy of the servers, the network and the site over the years, in kWh.
class Energy(NamedTuple):
    """kWh a year: (n, years) each. ``facility`` is what the site takes beside the other two."""

    servers: FloatArray
    network: FloatArray
    facility: FloatArray

    def site(self) -> FloatArray:
        """Energy that the site's meter counts (kWh): servers, network and facility: (n, years)."""
        return self.servers + self.network + self.facility


def energy_of(
    server: Server, pools: Sequence[Pool], port_watts: FloatArray, numbers: CaseValues
) -> Energy:
    """Energy of a candidate (kWh) by year; ``port_watts`` is for the ports of one server.

    The power of the servers is averaged over the day, and the site takes (PUE − 1) on top.
    """
    kilowatt_hours = HOURS_PER_YEAR / 1000
    each = [server.watts(pool.load, pool.workloads, numbers).mean(axis=-1) for pool in pools]
    watts = sum(power * pool.servers for power, pool in zip(each, pools, strict=True))
    count = sum(pool.servers for pool in pools)
    servers = kilowatt_hours * watts
    network = kilowatt_hours * (count * port_watts[:, None])
    facility = (numbers["site.pue"] - 1)[:, None] * (servers + network)
    return Energy(servers, network, facility)


# What a candidate costs over the years, part by part, as present value.
#
# What is bought at the start of year y counts (1 + r)^(1 − y) with r the discount rate, so that at
# the start of all it counts in full; what is paid in year y, at its end, counts (1 + r)^(−y). The
# parts add up to the total cost of ownership; the residual value is negative.
class ServerCounts(NamedTuple):
    """Servers in use by year, and those bought at the start of each year: (n, years) each."""

    used: FloatArray
    bought: FloatArray

    @classmethod
    def of(cls, server: Server, pools: Sequence[Pool]) -> ServerCounts:
        """Count the servers of all pools; what is owned at the start need not be bought."""
        used = np.sum([pool.servers for pool in pools], axis=0)
        return cls(used, np.diff(np.maximum(used, server.owned), prepend=server.owned))


def money_of(
    server: Server,
    count: ServerCounts,
    racks: FloatArray,
    energy: Energy,
    carbon: Carbon,
    numbers: CaseValues,
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Present value of each part of the cost, and what is paid at the start: (n,) each."""
    years = energy.servers.shape[1]
    discount = (1 + numbers["costs.discount_rate"])[:, None] ** -np.arange(0.0, years + 1)
    worth = discount[:, 1:]
    paid = (count.used * worth).sum(axis=1)
    bought = (count.bought * discount[:, :-1]).sum(axis=1)
    cores, price = float(server.cores or 0), numbers.values_or(server.key("price"), 0.0)
    rent = HOURS_PER_YEAR * numbers.values_or(server.key("rent_per_hour"), 0.0)
    once = cores * numbers["costs.licence_per_core"]
    yearly = cores * numbers["costs.licence_per_core_per_year"]
    yearly = yearly + numbers["costs.licence_per_server_per_year"]
    share = price * numbers["costs.support_share"]
    support = numbers.get(server.key("support_per_year"), share)
    change = 1 + numbers["site.electricity_change_per_year"]
    electricity = numbers["site.electricity"][:, None] * change[:, None] ** np.arange(years)
    each_year = worth.sum(axis=1)
    rack = numbers["site.rack_price"] + each_year * numbers["site.rack_rent_per_year"]
    residual = numbers.get(server.key("residual_share"), numbers["costs.residual_share"])
    one_off = numbers.values_or(server.key("one_off_cost"), 0.0)
    each = price + server.ports * numbers["costs.port_price"] + once
    at_start = count.bought[:, 0] * each + racks * numbers["site.rack_price"] + one_off
    # The carbon price is per tonne; without one nothing is paid, also for what is not known.
    kilograms = carbon.embodied + (worth * carbon.use).sum(axis=1)
    per_kilogram = numbers["costs.carbon_price"] / 1000.0
    # A rent includes the electricity.
    power = (worth * energy.site() * electricity).sum(axis=1)
    parts = {
        "servers": bought * price + paid * rent,
        "one_off": one_off,
        "racks": racks * rack,
        "network": bought * server.ports * numbers["costs.port_price"],
        "licences": bought * once + paid * yearly,
        "support": paid * support,
        "energy": np.zeros(numbers.n) if server.rented else power,
        "carbon": np.where(per_kilogram > 0, per_kilogram * kilograms, 0.0),
        "residual_value": -count.bought.sum(axis=1) * price * residual * worth[:, -1],
    }
    return parts, at_start


# Carbon of use and of making, in kg CO2e.
class Carbon(NamedTuple):
    """kg CO2e: ``use`` by year (n, years), ``embodied`` in all servers (n,); NaN if not known."""

    use: FloatArray
    embodied: FloatArray


def carbon_of(server: Server, made: FloatArray, energy: Energy, numbers: CaseValues) -> Carbon:
    """Carbon of use by year, at the grid's changing intensity, and embodied in those made (kg)."""
    change = 1 + numbers["site.grid_carbon_change_per_year"]
    intensity = change[:, None] ** np.arange(energy.servers.shape[-1])
    use = numbers.values_or("site.grid_carbon", np.nan)[:, None] * intensity * energy.site()
    return Carbon(use, made * numbers.values_or(server.key("embodied_carbon"), np.nan))


class CandidateOutcome(NamedTuple):
    """What one candidate comes to in n cases; arrays are (n,) where nothing else is said."""

    pools: list[Pool]
    servers: FloatArray
    racks: Racks
    energy: Energy
    carbon: Carbon
    money: Mapping[str, FloatArray]  # present value of each part
    at_start: FloatArray
    # Units per second of one server on the mix, within the latency limits; shares of the demand
    # where the workloads' units differ. Its power (W) at that rate, and its price.
    rate: FloatArray
    watts: FloatArray
    price: FloatArray
    # Done over all years, in the unit of ``rate`` times seconds, or years of the demand.
    work: FloatArray

    def tco(self) -> FloatArray:
        """Add all parts to the total cost of ownership: (n,)."""
        return np.asarray(np.sum(list(self.money.values()), axis=0))

    def figures(self) -> dict[str, FloatArray]:
        """Compute the figures that `FIGURES` names, by which candidates are compared: (n,) each."""
        carbon = self.carbon.use.sum(axis=1) + self.carbon.embodied
        return {
            "tco": self.tco(),
            "energy": self.energy.site().sum(axis=1),
            "carbon": carbon,
            "perf_per_watt": self.rate / self.watts,
            "perf_per_dollar": self.rate / self.price,
            "work_per_cost": self.work / self.tco(),
        }

    def mean_load(self) -> FloatArray:
        """Mean load of a server over servers, years and the day (share): (n,)."""
        busy = sum((p.load.sum(axis=0).mean(axis=2) * p.servers).mean(axis=1) for p in self.pools)
        return np.asarray(busy / sum(p.servers.mean(axis=1) for p in self.pools))


class ComparedFigure(NamedTuple):
    """A figure by which candidates are compared: what it is called, and which way is better."""

    words: str
    more_is_better: bool
    decimals: int | None = None  # decimals of a sum of parts; None where four digits tell enough


FIGURES = {
    "tco": ComparedFigure("total cost", False, 2),
    "energy": ComparedFigure("energy", False, 1),
    "carbon": ComparedFigure("carbon", False, 1),
    "perf_per_watt": ComparedFigure("performance per watt", True),
    "perf_per_dollar": ComparedFigure("performance per price", True),
    "work_per_cost": ComparedFigure("work per total cost", True),
}
# What two candidates may be alike in, and the keys of the years and of the day's profile, which no
# scenario has as a figure.
COST, PER_DOLLAR = "total cost", "performance per price"
YEARS, PROFILE = "demand.years", "demand.profile"
_PARTS_OF_DAY = 10


@dataclass(frozen=True, eq=False)
class Model:
    """A scenario with its candidates, to be evaluated at any figures."""

    scenario: Scenario
    servers: Sequence[Server]

    def outcomes(self, numbers: CaseValues, years: int | None = None) -> list[CandidateOutcome]:
        """Evaluate every candidate; over another number of ``years`` where given."""
        demand = demand_of(self.scenario.workloads, years or self.scenario.years, numbers)
        return [self._outcome(server, demand, numbers) for server in self.servers]

    def tco(self, numbers: CaseValues, years: int | None = None) -> FloatArray:
        """Compute the total cost of every candidate: (candidates, n)."""
        return self.tco_and_fits(numbers, years)[0]

    def tco_and_fits(
        self, numbers: CaseValues, years: int | None = None
    ) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Compute total costs, and whether the site has room: (candidates, n) each."""
        made = self.outcomes(numbers, years)
        return np.stack([o.tco() for o in made]), np.stack([o.racks.fits > 0 for o in made])

    def with_mean_load(self, mean: float) -> Model:
        """Give all workloads a day with one part at the peak and this mean load (share)."""
        rest = (mean * _PARTS_OF_DAY - 1) / (_PARTS_OF_DAY - 1)
        profile = np.array([1.0] + [rest] * (_PARTS_OF_DAY - 1))
        workloads = tuple(replace(w, profile=profile) for w in self.scenario.workloads)
        return replace(self, scenario=replace(self.scenario, workloads=workloads))

    def _outcome(self, server: Server, demand: RateDemand, numbers: CaseValues) -> CandidateOutcome:
        """Size pools and racks of a candidate, and compute its energy, carbon and money."""
        pools = size_pools(server, self.scenario, demand, numbers)
        count = ServerCounts.of(server, pools)
        most = count.used.max(axis=1)
        ports = server.ports * numbers["costs.port_power"]
        names = [w.name for w in self.scenario.workloads]
        rated = server.key("rated_power")
        peak = numbers[rated] if rated in numbers else server.full_power(names, numbers)
        racks = fill_racks(server, self.scenario, most, peak + ports, numbers)
        energy = energy_of(server, pools, ports, numbers)
        made = most if server.rented else count.bought.sum(axis=1)
        carbon = carbon_of(server, made, energy, numbers)
        money, at_start = money_of(server, count, racks.racks, energy, carbon, numbers)
        rate, watts, work = self._one_server_figures(server, demand, numbers)
        return CandidateOutcome(
            pools=pools,
            servers=most,
            racks=racks,
            energy=energy,
            carbon=carbon,
            money=money,
            at_start=at_start,
            rate=rate,
            watts=watts,
            price=numbers.values_or(server.key("price"), np.nan),
            work=work,
        )

    @property
    def one_unit(self) -> str | None:
        """Unit that the rates of all workloads count in, or None where they differ."""
        units = {w.unit for w in self.scenario.workloads}
        return units.pop() if len(units) == 1 else None

    def _one_server_figures(
        self, server: Server, demand: RateDemand, numbers: CaseValues
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rate and power of one server on the day's mix, and the work of all years."""
        names = [w.name for w in self.scenario.workloads]
        mix = demand.rate[:, :, 0].mean(axis=-1)
        within = np.stack([server.rate_within_limit(w, numbers) for w in names])
        full = np.stack([server.rate(w, numbers) for w in names])
        times = mix / within
        # Share of the day's demand that one server does.
        share = 1 / times.sum(axis=0)
        load = (mix * share / full)[..., None]
        watts = server.watts(load, names, numbers)[:, 0]
        total = mix.sum(axis=0) if self.one_unit else 1.0
        work = demand.rate.mean(axis=3).sum(axis=2) * SECONDS_PER_YEAR
        # Where units differ the work is in years of the first year's demand; growth is alike for
        # all workloads, so that any one of them tells the years.
        done = work.sum(axis=0) if self.one_unit else (work / (mix * SECONDS_PER_YEAR))[0]
        return share * total, watts, np.asarray(done)


class Basis(NamedTuple):
    """What an answer was made from: the model of all candidates, and the figures put into it."""

    model: Model
    inputs: Inputs
