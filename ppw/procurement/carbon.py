"""Carbon of use and of making, in kg CO2e."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from fitting.regression.lines import FloatArray
    from ppw.procurement.energy import Energy
    from ppw.procurement.inputs import Numbers
    from ppw.procurement.server import Server


class Carbon(NamedTuple):
    """kg CO2e: ``use`` by year (n, years), ``embodied`` in all servers (n,); NaN if not known."""

    use: FloatArray
    embodied: FloatArray


def carbon_of(server: Server, servers: FloatArray, energy: Energy, numbers: Numbers) -> Carbon:
    """Carbon of a candidate: the grid's intensity, which may change each year, and its making."""
    years = energy.servers.shape[-1]
    use = np.full((numbers.n, years), np.nan)
    if "site.grid_carbon" in numbers:
        change = 1 + numbers["site.grid_carbon_change_per_year"]
        intensity = change[:, None] ** np.arange(years)
        use = numbers["site.grid_carbon"][:, None] * intensity * energy.site()
    embodied = np.full(numbers.n, np.nan)
    if server.key("embodied_carbon") in numbers:
        embodied = servers * numbers[server.key("embodied_carbon")]
    return Carbon(use, embodied)
