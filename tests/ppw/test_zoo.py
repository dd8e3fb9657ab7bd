"""Simulated hosts with known truth: that they are what they say, and what projections make of them.

`benchmarks/accuracy_zoo.py` prints all figures; the goals that do not hold today are not here.
"""

import importlib
from pathlib import Path

import numpy as np
import pytest
import zoo


def test_runs_deviate_from_the_laws_as_stated():
    hosts = zoo.hosts(60)
    assert hosts[3].runs.equals(zoo.hosts(4)[3].runs)
    correlations = []
    for host in hosts:
        parts = host.split("between", np.random.default_rng(1))
        learnt, asked = (part["freq_hz"] for part in parts)
        assert learnt.min() < asked.iloc[0] < learnt.max()
        law = np.stack([host.time, host.power], axis=-1).reshape(-1, 2)
        error = np.log(host.runs[["time_s", "power_w"]] / law.repeat(len(host.runs) // len(law), 0))
        assert error.abs().to_numpy().max() < 0.4
        correlations.append(error.corr().iloc[0, 1])
        if not host.features & {"turbo", "half"}:
            # More frequency is never slower, and never more than in proportion faster.
            faster = -np.diff(np.log(host.time), axis=1)
            assert ((faster > -1e-12) & (faster < np.diff(np.log(host.steps)) + 1e-12)).all()
    assert -0.7 < np.mean(correlations) < -0.35


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ppw.CaveatWarning")
def test_intervals_over_hosts_exact_curves_and_cores(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "benchmarks")
    table = importlib.import_module("accuracy_zoo")
    assert table.exact_ratio() <= 1.3
    # A quarter of these programs gain by caches that 1, 2 and 4 cores hardly show.
    assert table.core_coverage()[0] > 75
    found = table.cases(200)
    made, usual = table.summary(found), table.summary(table.as_labelled(found))
    assert (made["ppw median"] < made["line median"]).all()
    assert (made["covered"] > 80).all()
    assert usual.loc["time", "covered"].between(87, 96).all()
    assert usual.loc["time", "sd z"].between(0.8, 1.1).all()
    # Power below the measured steps is the least certain: its intervals are too narrow there.
    assert ((usual["covered"] > 80) & (usual["sd z"] < 1.5)).all()
