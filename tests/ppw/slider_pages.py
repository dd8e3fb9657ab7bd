"""Pages with sliders, of a projection and of scenarios in which every term counts."""

import tomllib

import pandas as pd
from made_up import answered, sweep
from procurement_scenarios import documented

import ppw
from ppw.procurement.report import procurement_page
from ppw.procurement.result import Procurement
from ppw.projection.report import projection_page


def cored(**options):
    """One host with 1, 2 and 4 of its cores at work, and what it draws while idle."""
    parts = [
        sweep(noise=0.02, **options).assign(
            cores=cores, time_s=lambda d, n=cores: d["time_s"] * (0.1 + 0.9 / n)
        )
        for cores in (1, 2, 4)
    ]
    return pd.concat(parts).assign(idle_power_w=12.0)


RUNS = cored()


def projected(runs=RUNS, freq=(2.8e9, 3.0e9), **options):
    return answered(ppw.project_runs, runs, freq=freq, **options)


def page_of(result):
    return (procurement_page if isinstance(result, Procurement) else projection_page)(result)


# Every term of the model counts in it.
RICH = """
[demand]
years = 3
rate = 9000
growth_per_year = { value = 0.15, low = 0.0, high = 0.4 }
headroom = 0.2
max_utilisation = 0.7
spare_share = 0.1
spare_servers = 1
profile = [0.2, 0.6, 1.0, 0.5]

[[workload]]
name = "work"
weight = 2
memory = "900GiB"
latency_p99 = "10ms"

[[workload]]
name = "scan"
weight = 1
profile = [1.0]

[site]
electricity = { value = 0.2, low = 0.1, high = 0.4 }
electricity_change_per_year = 0.03
pue = { value = 1.4, low = 1.2, high = 1.6 }
grid_carbon = 0.35
grid_carbon_change_per_year = -0.05
rack_units = 30
rack_power = "5kW"
rack_price = 900
rack_rent_per_year = 700
max_racks = 12
power = "40kW"

[costs]
discount_rate = 0.06
support_share = 0.08
licence_per_core = 20
licence_per_core_per_year = 12
licence_per_server_per_year = 60
port_price = 110
port_power = 5
carbon_price = 80
residual_share = 0.05

[[candidate]]
name = "a"
price = 2400
cores = 16
memory = "64GiB"
embodied_carbon = 900
residual_share = 0.2
idle_power = 90
beside_power = 15
power_levels = { load = [0.0, 0.2, 0.5, 0.8, 1.0], power = [90, 130, 155, 190, 240] }
[candidate.workload.work]
rate = { value = 480, low = 400, high = 560 }
latency = { rate = [100, 300, 450], p99 = ["1ms", "3ms", "30ms"] }
[candidate.workload.scan]
rate = 250
power = 210

[[candidate]]
name = "b"
price = { value = 4100, low = 3900, high = 4600 }
cores = 32
height = 2
ports = 2
memory = "128GiB"
embodied_carbon = 1500
support_per_year = 150
idle_power = 110
rated_power = 450
power_scope = "wall"
[candidate.workload.work]
rate = 900
power = 320
[candidate.workload.scan]
rate = 600
power = 300
"""


def rich(**demand):
    table = tomllib.loads(RICH)
    table["demand"] |= demand
    return table


SCENARIOS = {"guide": documented, "rich": rich, "pools": lambda: rich(pools="separate")}
