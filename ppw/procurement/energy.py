"""Energy of the servers, the network and the site over the years, in kWh."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ppw.procurement.demand import HOURS_PER_YEAR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fitting.regression.lines import FloatArray
    from ppw.procurement.inputs import Numbers
    from ppw.procurement.server import Server
    from ppw.procurement.sizing import Pool


class Energy(NamedTuple):
    """kWh a year: (n, years) each. ``facility`` is what the site takes beside the other two."""

    servers: FloatArray
    network: FloatArray
    facility: FloatArray

    def site(self) -> FloatArray:
        """All that the site's meter counts: (n, years)."""
        return self.servers + self.network + self.facility


def energy_of(
    server: Server, pools: Sequence[Pool], port_watts: FloatArray, numbers: Numbers
) -> Energy:
    """Energy of a candidate.

    Parameters
    ----------
    server : Server
    pools : sequence of Pool
    port_watts : (n,) float array
        Of the network ports of one server.
    numbers : Numbers

    Returns
    -------
    Energy
        The servers' watts are averaged over the day, and the site takes (PUE − 1) on top.
    """
    kilowatt_hours = HOURS_PER_YEAR / 1000
    watts = sum(
        server.watts(pool.load, pool.workloads, numbers).mean(axis=-1) * pool.servers[:, None]
        for pool in pools
    )
    count = sum(pool.servers for pool in pools)
    servers = kilowatt_hours * watts
    network = kilowatt_hours * (count * port_watts)[:, None] + 0 * servers
    facility = (numbers["site.pue"] - 1)[:, None] * (servers + network)
    return Energy(servers, network, facility)
