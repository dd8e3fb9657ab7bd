"""What a candidate costs over the years, part by part, as present value.

What is bought at the start counts in full; what is paid in year y, at its end, counts
(1 + r)^(−y) with r the discount rate. The parts add up to the total cost of ownership; the residual
value is negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from fitting.regression.lines import FloatArray
    from ppw.procurement.carbon import Carbon
    from ppw.procurement.energy import Energy
    from ppw.procurement.inputs import Numbers
    from ppw.procurement.server import Server

PARTS = (
    *("servers", "racks", "network", "licences", "support", "energy", "carbon", "residual_value"),
)
KG_PER_TONNE = 1000.0


class Bought(NamedTuple):
    """Numbers of what is bought: (n,) each."""

    servers: FloatArray
    racks: FloatArray


def money_of(
    server: Server, bought: Bought, energy: Energy, carbon: Carbon, numbers: Numbers
) -> dict[str, FloatArray]:
    """Present value of every part, by `PARTS`: (n,) each, in the scenario's currency."""
    years = energy.servers.shape[1]
    worth = (1 + numbers["costs.discount_rate"])[:, None] ** -np.arange(1.0, years + 1)
    each_year = worth.sum(axis=1)
    count, price = bought.servers, numbers[server.key("price")]
    cores = float(server.cores or 0)
    once = cores * numbers["costs.licence_per_core"]
    yearly = cores * numbers["costs.licence_per_core_per_year"]
    yearly = yearly + numbers["costs.licence_per_server_per_year"]
    rack = numbers["site.rack_price"] + each_year * numbers["site.rack_rent_per_year"]
    residual = numbers.first(server.key("residual_share"), "costs.residual_share")
    return {
        "servers": count * price,
        "racks": bought.racks * rack,
        "network": count * server.ports * numbers["costs.port_price"],
        "licences": count * (once + each_year * yearly),
        "support": count * each_year * _support(server, price, numbers),
        "energy": (worth * energy.site() * _electricity(years, numbers)).sum(axis=1),
        "carbon": _carbon(carbon, worth, numbers),
        "residual_value": -count * price * residual * worth[:, -1],
    }


def paid_at_start(server: Server, bought: Bought, numbers: Numbers) -> FloatArray:
    """Money that is paid before the first year: (n,)."""
    cores = float(server.cores or 0)
    each = numbers[server.key("price")] + server.ports * numbers["costs.port_price"]
    each = each + cores * numbers["costs.licence_per_core"]
    made: FloatArray = bought.servers * each + bought.racks * numbers["site.rack_price"]
    return made


def _support(server: Server, price: FloatArray, numbers: Numbers) -> FloatArray:
    """Support of one server in a year."""
    own = server.key("support_per_year")
    return numbers[own] if own in numbers else price * numbers["costs.support_share"]


def _electricity(years: int, numbers: Numbers) -> FloatArray:
    """Price of a kWh by year: (n, years)."""
    change = 1 + numbers["site.electricity_change_per_year"]
    price: FloatArray = numbers["site.electricity"][:, None] * change[:, None] ** np.arange(years)
    return price


def _carbon(carbon: Carbon, worth: FloatArray, numbers: Numbers) -> FloatArray:
    """What carbon costs: that of making at the start, that of use year by year."""
    price = numbers["costs.carbon_price"] / KG_PER_TONNE
    # Without a price nothing is paid, also for what is not known.
    kilograms = carbon.embodied + (worth * carbon.use).sum(axis=1)
    made: FloatArray = np.where(price > 0, price * kilograms, 0.0)
    return made
