"""Made traces of known habits, generated again: shares, octants and hits within the tolerances."""

from __future__ import annotations

import numpy as np
import pytest
from made_traces import trace

from ppw.traces.fidelity import validate_trace
from ppw.traces.fit import fit_trace
from ppw.traces.generation import generate_trace

pytestmark = pytest.mark.filterwarnings("ignore::ppw.errors.CaveatWarning")

REQUESTS = 40_000
JUDGED = ("reads", "random requests", "requests of 4 KiB", "octant", "LRU hits")


def uniform(rng):
    return rng.integers(0, 200_000, REQUESTS)


def zipf(rng):
    share = np.cumsum(1 / np.arange(1, 50_001))
    return rng.permutation(50_000)[np.searchsorted(share / share[-1], rng.random(REQUESTS))]


def hot_spot(rng):
    hot = rng.random(REQUESTS) < 0.9
    return np.where(hot, rng.integers(0, 10_000, REQUESTS), rng.integers(0, 100_000, REQUESTS))


def loop(rng):
    return np.arange(REQUESTS) % 8000


def runs_of_50(rng):
    return (rng.integers(0, 2_000_000, REQUESTS // 50)[:, None] + np.arange(50)).ravel()


def written_once(rng):
    return np.arange(REQUESTS)


@pytest.mark.parametrize("pages", [uniform, zipf, hot_spot, loop, runs_of_50, written_once])
def test_habits_are_kept(pages):
    rng = np.random.default_rng(4)
    time_s = np.cumsum(rng.exponential(0.001, REQUESTS))
    original = trace(time_s=time_s, lbn=8 * pages(rng), op=np.zeros(REQUESTS))
    model = fit_trace(original)
    table = validate_trace(original, generate_trace(model, seed=2)).table
    judged = table[table["figure"].str.startswith(JUDGED)]
    assert len(judged) == 14
    off = judged.loc[judged["verdict"] == "fail", ["figure", "off"]]
    assert off.empty, off


def test_each_kind_of_requests_keeps_its_alignment():
    """Pages of 8 KiB read by popularity, and records of any number of sectors written in a row."""
    rng = np.random.default_rng(6)
    written = rng.random(REQUESTS) < 0.3
    sectors = np.where(written, rng.integers(1, 9, REQUESTS), 16)
    record = np.cumsum(np.where(written, sectors, 0)) - sectors
    share = np.cumsum(np.arange(1, 30_001) ** -0.9)
    page = rng.permutation(30_000)[np.searchsorted(share / share[-1], rng.random(REQUESTS))]
    original = trace(
        time_s=np.cumsum(rng.exponential(0.001, REQUESTS)),
        lbn=np.where(written, 1_000_000 + record, 16 * page),
        size_bytes=512 * sectors,
        op=written,
    )
    made = generate_trace(fit_trace(original), seed=1)
    table = made.to_table()
    lbn, op = table["lbn"].to_numpy(), table["op"].to_numpy()
    assert (lbn[op == 0] % 8 == 0).mean() > 0.99
    assert (lbn[op == 1] % 8 == 0).mean() < 0.3
    found = validate_trace(original, made).table
    judged = found[found["figure"].str.startswith("LRU hits")]
    assert set(judged["verdict"]) == {"pass"}


@pytest.mark.parametrize("seed", range(3))
def test_two_hundred_requests_in_short_runs(seed):
    rng = np.random.default_rng(7)
    run = np.cumsum(rng.random(200) < 0.2)
    start = rng.integers(0, 20_000, run[-1] + 1)[run]
    lbn = 8 * (start + np.arange(200) - np.searchsorted(run, run))
    original = trace(time_s=np.cumsum(rng.exponential(0.001, 200)), lbn=lbn)
    table = validate_trace(original, generate_trace(fit_trace(original), seed=seed)).table
    judged = table[table["figure"].str.startswith(JUDGED)]
    assert "fail" not in set(judged["verdict"])
