"""Answers of more rows than a screen holds are cut, and say how much is missing and where it is."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from made_up import answered, sweep

import ppw
from ppw.fleet.faults import Fault
from ppw.fleet.result import FleetAnswer, Origin

RUNS = sweep(workloads=("grep",), noise=0.02)
SIDES = {"host": "rack1"}, {"host": "rack2"}
RATES = [1e5, 2e5, 4e5, 4.1e5, 4.2e5]
BY_THREADS = pd.DataFrame({"threads": [1, 2, 4, 8, 16], "throughput_ops_s": RATES})


def repeated(result, table, rows):
    """Make a result longer: the first row of one of its tables, so many times."""
    first = getattr(result, table).head(1)
    return replace(result, **{table: pd.concat([first] * rows, ignore_index=True)})


def best():
    return repeated(answered(ppw.best_frequency, RUNS, draws=200), "table", 45)


def calibration():
    paired = RUNS.assign(meter_power_w=30 + 1.1 * RUNS["power_w"])
    sensors = {"sensor": "rapl:package", "reference": "meter"}
    return repeated(answered(ppw.calibrate, paired, **sensors), "table", 45)


def comparison():
    both = pd.concat([RUNS, sweep(workloads=("grep",), noise=0.02, seed=8, host="rack2")])
    return repeated(answered(ppw.compare, both, *SIDES, draws=200), "table", 45)


def knees():
    found = answered(ppw.find_knees, BY_THREADS, over="threads", of="throughput")
    return repeated(found, "knees", 45)


def plan():
    return repeated(answered(ppw.plan, RUNS, metric="time", steps="1.2GHz,1.8GHz"), "groups", 45)


def power_loads():
    curve = ppw.PowerLoadCurve.of_levels([0, 0.5, 1], [60, 80, 120], name="one")
    return repeated(answered(ppw.power_loads, [curve]), "figures", 45)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (best, "… 5 more groups: use --format csv or to_frame()"),
        (calibration, "… 5 more levels: use --format csv or to_frame()"),
        (comparison, "… 5 more rows: use --format csv or to_frame()"),
        (knees, "… 35 more sweeps: --format json or csv"),
        (plan, "… 5 more groups: use --format json or .groups"),
        (power_loads, "… 5 more servers: use --format json or .figures"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_text_says_how_much_more_there_is(make, said):
    lines = make().summary().splitlines()
    assert said in lines
    assert len(lines) < 130


def test_a_fleet_names_twenty_of_its_faults():
    origin = Origin(engine="duckdb", files=25, runs=8, cells=4, unusable=0)
    faults = tuple(Fault(f"{k}.csv", "cannot be read") for k in range(25))
    answer = FleetAnswer(answer=answered(ppw.fit_runs, RUNS), origin=origin, faults=faults)
    lines = answer.summary().splitlines()
    assert sum(line.startswith("fault: ") for line in lines) == 20
    assert lines[-1] == "… 5 more faults: use --format json"
    with pytest.raises(ppw.PpwError, match="read from JSON and has no engine: use to_frame"):
        answer.to_table()
