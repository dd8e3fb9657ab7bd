"""The model of a candidate: from its figures to servers, energy, carbon, money and worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ppw.procurement.carbon import Carbon, carbon_of
from ppw.procurement.demand import SECONDS_PER_YEAR, Demand, demand_of
from ppw.procurement.energy import Energy, energy_of
from ppw.procurement.money import Bought, money_of, paid_at_start
from ppw.procurement.sizing import Pool, Racks, fill_racks, size_pools

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fitting.regression.lines import FloatArray
    from ppw.procurement.inputs import Inputs, Numbers
    from ppw.procurement.scenario import Scenario
    from ppw.procurement.server import Server


class Outcome(NamedTuple):
    """What one candidate comes to, in n cases.

    Attributes
    ----------
    pools : list of Pool
    servers : (n,) float array
    racks : Racks
    energy : Energy
    carbon : Carbon
    money : mapping of str to (n,) float array
        Present value of each part.
    at_start : (n,) float array
    rate : (n,) float array
        Units a second of one server on the mix, within the latency limits; shares of the demand
        where the workloads' units differ.
    watts : (n,) float array
        Of one server at that rate.
    price : (n,) float array
        Of one server.
    work : (n,) float array
        Done over all years, in the unit of ``rate`` times seconds, or years of the demand.
    """

    pools: list[Pool]
    servers: FloatArray
    racks: Racks
    energy: Energy
    carbon: Carbon
    money: Mapping[str, FloatArray]
    at_start: FloatArray
    rate: FloatArray
    watts: FloatArray
    price: FloatArray
    work: FloatArray

    def tco(self) -> FloatArray:
        """Total cost of ownership, the sum of all parts: (n,)."""
        total: FloatArray = np.sum(list(self.money.values()), axis=0)
        return total

    def figures(self) -> dict[str, FloatArray]:
        """Figures that candidates are compared by, as `FIGURES` names them: (n,) each."""
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
        """Load of a server, averaged over the servers, the years and the day: (n,)."""
        busy = sum(p.load.sum(axis=0).mean(axis=(1, 2)) * p.servers for p in self.pools)
        made: FloatArray = busy / self.servers
        return made


# Whether more of a figure is better.
FIGURES = {
    "tco": False,
    "energy": False,
    "carbon": False,
    "perf_per_watt": True,
    "perf_per_dollar": True,
    "work_per_cost": True,
}


@dataclass(frozen=True, eq=False)
class Model:
    """A scenario with its candidates, to be evaluated at any figures."""

    scenario: Scenario
    servers: Sequence[Server]

    def outcomes(self, numbers: Numbers, years: int | None = None) -> list[Outcome]:
        """What every candidate comes to; over another number of ``years`` where given."""
        demand = demand_of(self.scenario.workloads, years or self.scenario.years, numbers)
        return [self._outcome(server, demand, numbers) for server in self.servers]

    def tco(self, numbers: Numbers, years: int | None = None) -> FloatArray:
        """Total cost of every candidate: (candidates, n)."""
        return np.stack([outcome.tco() for outcome in self.outcomes(numbers, years)])

    def _outcome(self, server: Server, demand: Demand, numbers: Numbers) -> Outcome:
        pools = size_pools(server, self.scenario, demand, numbers)
        count = np.sum([pool.servers for pool in pools], axis=0)
        ports = server.ports * numbers["costs.port_power"]
        names = [w.name for w in self.scenario.workloads]
        rated = server.key("rated_power")
        peak = numbers[rated] if rated in numbers else server.full_watts(names, numbers)
        racks = fill_racks(server, self.scenario, count, peak + ports, numbers)
        energy = energy_of(server, pools, ports, numbers)
        carbon = carbon_of(server, count, energy, numbers)
        bought = Bought(count, racks.racks)
        rate, watts = self._alone(server, demand, numbers)
        return Outcome(
            pools=pools,
            servers=count,
            racks=racks,
            energy=energy,
            carbon=carbon,
            money=money_of(server, bought, energy, carbon, numbers),
            at_start=paid_at_start(server, bought, numbers),
            rate=rate,
            watts=watts,
            price=numbers[server.key("price")],
            work=self._work(demand),
        )

    @property
    def one_unit(self) -> str | None:
        """Unit that the rates of all workloads count in, or None where they differ."""
        units = {w.unit for w in self.scenario.workloads}
        return units.pop() if len(units) == 1 else None

    def _alone(
        self, server: Server, demand: Demand, numbers: Numbers
    ) -> tuple[FloatArray, FloatArray]:
        """Rate and watts of one server that does nothing but the day's mix of workloads."""
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
        return share * total, watts

    def _work(self, demand: Demand) -> FloatArray:
        if self.one_unit:
            total: FloatArray = demand.work().sum(axis=0)
            return total
        first = demand.rate[:, :, 0].mean(axis=-1) * SECONDS_PER_YEAR
        # In years of the first year's demand; growth is alike for all workloads.
        made: FloatArray = (demand.work() / first)[0]
        return made


class Basis(NamedTuple):
    """What an answer was made from: the model of all candidates, and the figures put into it."""

    model: Model
    inputs: Inputs
