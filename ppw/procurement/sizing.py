"""How many servers, and how many racks, a demand takes.

A server does c_w units a second of workload w alone; of a mix it does each for a part of the time,
so that demand d_w takes Σ d_w/c_w servers' time. Bought are, for the busiest part of the last year,

    N = max(⌈Σ (d_w/c_w)·(1 + headroom)/u_max⌉, ⌈M·(1 + headroom)/m⌉, 1) + spare servers

with c_w the rate within the latency limit, u_max the highest planned utilisation, M the memory that
the data take and m that of a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from fitting.regression.lines import FloatArray
    from ppw.procurement.demand import Demand
    from ppw.procurement.inputs import Numbers
    from ppw.procurement.scenario import Scenario
    from ppw.procurement.server import Server

# A whole number that arithmetic puts a little above itself is that number.
_SLACK = 1e-9


class Pool(NamedTuple):
    """Servers that share some workloads.

    Attributes
    ----------
    workloads : list of str
    by_rate, by_memory, spare, servers : (n,) float arrays
        Whole numbers; ``servers`` is the larger of the first two, 1 at least, and the spare ones.
    load : (workloads, n, years, parts) float array
        Part of each server's time that a workload takes; spare servers take theirs.
    """

    workloads: list[str]
    by_rate: FloatArray
    by_memory: FloatArray
    spare: FloatArray
    servers: FloatArray
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


def size_pools(server: Server, scenario: Scenario, demand: Demand, numbers: Numbers) -> list[Pool]:
    """Size the pools of one candidate: one for all workloads, or one for each."""
    everything = range(len(scenario.workloads))
    pools = [[i] for i in everything] if scenario.separate_pools else [list(everything)]
    return [_size(server, scenario, demand, numbers, which) for which in pools]


def _size(
    server: Server, scenario: Scenario, demand: Demand, numbers: Numbers, which: list[int]
) -> Pool:
    names = [scenario.workloads[i].name for i in which]
    rate, memory = demand.rate[which], demand.memory[which].sum(axis=0)
    within = np.stack([server.rate_within_limit(w, numbers) for w in names])
    needed = (rate[:, :, -1] / within[..., None]).sum(axis=0).max(axis=-1)
    extra = 1 + numbers["demand.headroom"]
    by_rate = _whole(needed * extra / numbers["demand.max_utilisation"])
    by_memory = np.zeros(numbers.n)
    if memory.any():
        by_memory = _whole(memory * extra / numbers[server.key("memory")])
    least = np.maximum(np.maximum(by_rate, by_memory), 1.0)
    spare = scenario.spare_servers + _whole(least * numbers["demand.spare_share"])
    servers = least + spare
    full = np.stack([server.rate(w, numbers) for w in names])
    load = rate / (full * servers)[..., None, None]
    return Pool(names, by_rate, by_memory, spare, servers, load)


def fill_racks(
    server: Server, scenario: Scenario, servers: FloatArray, peak: FloatArray, numbers: Numbers
) -> Racks:
    """Put servers into racks.

    Parameters
    ----------
    server : Server
    scenario : Scenario
    servers : (n,) float array
    peak : (n,) float array
        What racks must provide for one server with its ports (W).
    numbers : Numbers
    """
    by_space = np.full(numbers.n, float(scenario.rack_units // server.height))
    by_power = np.full(numbers.n, np.inf)
    if "site.rack_power" in numbers:
        by_power = np.floor(numbers["site.rack_power"] / peak + _SLACK)
    per_rack = np.minimum(by_space, by_power)
    # One a rack where none goes in: there is no answer, and `fits` says so.
    racks = _whole(servers / np.maximum(per_rack, 1.0))
    allowed = np.inf if scenario.max_racks is None else float(scenario.max_racks)
    power = servers * peak
    limit = numbers["site.power"] if "site.power" in numbers else np.full(numbers.n, np.inf)
    short = {
        "a server is higher than a rack": by_space < 1,
        "a server at its peak draws more than a rack may": by_power < 1,
        "it takes more racks than there is space for": racks > allowed,
        "its servers at their peak draw more than the site may": power > limit * (1 + _SLACK),
    }
    fits = ~np.logical_or.reduce(list(short.values()))
    reason = "; ".join(text for text, found in short.items() if found[0])
    return Racks(per_rack, racks, power, fits.astype(float), reason)


def _whole(number: FloatArray) -> FloatArray:
    up: FloatArray = np.ceil(number * (1 - _SLACK))
    return up
