"""Pages with sliders, of a projection and of scenarios in which every term counts."""

import copy

import pandas as pd
from made_up import answered, sweep
from procurement_scenarios import documented, ranged

import ppw
from ppw.procurement.report import procurement_page
from ppw.procurement.result import Procurement
from ppw.projection.report import projection_page


def cored(**options):
    """One host with 1, 2 and 4 of its cores at work, and what it draws while idle."""

    def on_cores(cores):
        runs = sweep(noise=0.02, **options)
        return runs.assign(cores=cores, time_s=runs["time_s"] * (0.1 + 0.9 / cores))

    parts = [on_cores(cores) for cores in (1, 2, 4)]
    return pd.concat(parts).assign(idle_power_w=12.0)


RUNS = cored()


def projected(runs=RUNS, freq=(2.8e9, 3.0e9), **options):
    return answered(ppw.project, runs, freq=freq, **options)


def page_of(result):
    return (procurement_page if isinstance(result, Procurement) else projection_page)(result)


# Every term of the model counts in this scenario.
DEMAND = {"years": 3, "rate": 9000, "growth_per_year": ranged(0.15, 0.0, 0.4), "headroom": 0.2}
DEMAND |= {"max_utilisation": 0.7, "spare_share": 0.1, "spare_servers": 1}
DEMAND |= {"profile": [0.2, 0.6, 1.0, 0.5]}
WORKLOADS = [
    {"name": "work", "weight": 2, "memory": "900GiB", "latency_p99": "10ms"},
    {"name": "scan", "weight": 1, "profile": [1.0]},
]
SITE = {"electricity": ranged(0.2, 0.1, 0.4), "electricity_change_per_year": 0.03}
SITE |= {"grid_carbon": 0.35, "grid_carbon_change_per_year": -0.05, "pue": ranged(1.4, 1.2, 1.6)}
SITE |= {"rack_units": 30, "rack_power": "5kW", "rack_price": 900, "rack_rent_per_year": 700}
SITE |= {"max_racks": 12, "power": "40kW"}
COSTS = {"discount_rate": 0.06, "support_share": 0.08, "residual_share": 0.05, "carbon_price": 80}
COSTS |= {"licence_per_core": 20, "licence_per_core_per_year": 12, "port_price": 110}
COSTS |= {"licence_per_server_per_year": 60, "port_power": 5}
LEVELS = {"load": [0.0, 0.2, 0.5, 0.8, 1.0], "power": [90, 130, 155, 190, 240]}
LATENCY = {"rate": [100, 300, 450], "p99": ["1ms", "3ms", "30ms"]}
A = {"name": "a", "price": 2400, "cores": 16, "memory": "64GiB", "embodied_carbon": 900}
A |= {"residual_share": 0.2, "idle_power": 90, "beside_power": 15, "power_levels": LEVELS}
A["workload"] = {
    "work": {"rate": ranged(480, 400, 560), "latency": LATENCY},
    "scan": {"rate": 250, "power": 210},
}
B = {"name": "b", "price": ranged(4100, 3900, 4600), "cores": 32, "memory": "128GiB", "height": 2}
B |= {"ports": 2, "embodied_carbon": 1500, "support_per_year": 150, "idle_power": 110}
B |= {"rated_power": 450, "power_scope": "wall"}
B["workload"] = {"work": {"rate": 900, "power": 320}, "scan": {"rate": 600, "power": 300}}


def rich(**demand):
    parts = {"workload": WORKLOADS, "site": SITE, "costs": COSTS, "candidate": [A, B]}
    return copy.deepcopy({"demand": DEMAND | demand, **parts})


SCENARIOS = {"guide": documented, "rich": rich, "pools": lambda: rich(pools="separate")}
