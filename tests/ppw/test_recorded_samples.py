"""The shipped samples: recorded traces against laws told to fio, and the sweep of simulated cores.

fio's jobs are of the first GiB of the device, which the models' 16 finest states divide evenly.
"""

import json
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from made_up import answered, ignore_caveats
from scipy import stats

import ppw
from fitting.storage.reuse_distance import accessed_blocks, hit_ratio_curve
from measurements.workloads.simulated import CORES, FREQUENCIES_HZ, KERNELS
from ppw.catalogue.datasets import RECORDED_TRACES, recorded_trace, simulated_sweep
from ppw.cli.demo import BRAWNY, CAVEATS, CONTROL, TESTED_HZ, WIMPY, demo, demo_page, simulated_demo
from ppw.errors import PpwError
from ppw.storage.generate import generate_trace
from ppw.storage.trace_model import fit_trace

SPACE_BYTES, STATES, REQUESTS, RATE = 2**30, 16, 6000, 500.0


class Law(NamedTuple):
    """What fio was told."""

    shares: np.ndarray
    variation: tuple[float, float]
    reads: float = 1.0
    sequential: float = 0.0
    size_bytes: int = 4096


EDGES = np.linspace(0, 1, STATES + 1)
# 80 % of the requests evenly in the first fifth of the space, the rest evenly after it.
ZONED = np.diff(0.8 * np.minimum(EDGES / 0.2, 1) + 0.2 * np.maximum(EDGES - 0.2, 0) / 0.8)
# 6000 requests of 64 KiB from the start; a state holds 1024 of them.
ONE_AFTER_ANOTHER = np.clip(REQUESTS - 1024 * np.arange(STATES), 0, 1024) / REQUESTS
UNIFORM = np.full(STATES, 1 / STATES)
# Coefficients of variation of the gaps: 1 for Poisson arrivals; 0 for a fixed rate, 0.46 to 0.50
# for the two of 350 and 150 a second together, and what the recording host adds.
POISSON, FIXED, TWO_FIXED = (0.9, 1.1), (0.0, 0.5), (0.46, 0.6)
LAWS = {
    "uniform_fixed": Law(UNIFORM, FIXED),
    "uniform_poisson": Law(UNIFORM, POISSON),
    "zoned_80_20": Law(ZONED, POISSON),
    "sequential": Law(ONE_AFTER_ANOTHER, FIXED, sequential=1.0, size_bytes=65536),
    "mixed_70_30": Law(UNIFORM, TWO_FIXED, reads=0.7),
}


@cache
def fitted(name):
    return fit_trace(recorded_trace(name), levels=2, space_bytes=SPACE_BYTES)


def occupancy(model):
    return np.bincount(model.counts.state, model.counts.occupancy, STATES)


def variation(trace):
    gaps = np.diff(trace.to_table()["time_s"].to_numpy())
    return gaps.std() / gaps.mean()


def model_variation(model):
    """Of the gaps of all transitions together: mean of squares over square of the mean."""
    share = model.counts.count / model.counts.count.sum()
    mean, cv = model.laws.mean_s, model.laws.variation()
    return np.sqrt(share @ (mean**2 * (1 + cv**2)) / (share @ mean) ** 2 - 1)


@ignore_caveats
class TestLawsOfFio:
    @pytest.mark.parametrize("name", LAWS)
    def test_the_model_has_the_known_law(self, name):
        model, law = fitted(name), LAWS[name]
        assert model.rate == pytest.approx(RATE, rel=0.02)
        found = variation(recorded_trace(name))
        assert law.variation[0] <= found <= law.variation[1]
        # Each transition has a law of its own; many are seen a few times only.
        assert model_variation(model) == pytest.approx(found, abs=0.25)
        assert model.read_share() == pytest.approx(law.reads, abs=0.005)
        assert 1 - model.random_share() == pytest.approx(law.sequential, abs=0.002)
        assert (model.survey.requests, model.survey.sizes.tolist()) == (REQUESTS, [law.size_bytes])
        expected, counted = REQUESTS * law.shares, occupancy(model)
        assert counted[expected == 0].sum() == 0
        there = expected > 0
        assert stats.chisquare(counted[there], expected[there]).pvalue > 0.01

    @pytest.mark.parametrize("name", LAWS)
    def test_generated_traces_keep_the_law(self, name):
        law, traces = LAWS[name], [generate_trace(fitted(name), seed=seed) for seed in range(5)]
        models = [fit_trace(one, levels=2, space_bytes=SPACE_BYTES) for one in traces]
        assert np.mean([model.rate for model in models]) == pytest.approx(RATE, rel=0.02)
        made = np.mean([variation(trace) for trace in traces])
        assert made == pytest.approx(variation(recorded_trace(name)), abs=0.1)
        for model in models:
            assert model.read_share() == pytest.approx(law.reads, abs=0.02)
            assert 1 - model.random_share() == pytest.approx(law.sequential, abs=0.005)
            assert model.survey.sizes.tolist() == [law.size_bytes]
        if not law.sequential:
            shares = np.mean([occupancy(model) for model in models], axis=0) / REQUESTS
            assert shares == pytest.approx(law.shares, abs=0.01)
            return
        # A run starts anywhere in the first state, and passes through the next ones whole.
        for model in models:
            found = occupancy(model)
            assert found[1:5].tolist() == [1024] * 4
            assert 0 < found[0] <= 1024
            assert found[7:].sum() == 0


def hits(trace, sizes=None):
    """LRU hit ratios of caches of 1, 5 and 20 % of the footprint, and their sizes in blocks."""
    table = trace.to_table()
    lbn, size_bytes = (table[column].to_numpy() for column in ("lbn", "size_bytes"))
    curve = hit_ratio_curve(accessed_blocks(lbn, size_bytes)[0])
    sizes = sizes or [int(curve.footprint * share) for share in (0.01, 0.05, 0.2)]
    return curve.hit_ratio(sizes), sizes


@ignore_caveats
@pytest.mark.parametrize("name", ["terasort", "terasort_repeat"])
def test_terasort_keeps_its_shares_and_its_lru_hits(name):
    """Terasort uses next to nothing again; long requests at places drawn anew overlap."""
    model = fit_trace(recorded_trace(name))
    assert 0.3 < model.read_share() < 0.4
    made = [generate_trace(model, seed=seed) for seed in range(4)]
    for one in made:
        again = fit_trace(one)
        assert again.read_share() == pytest.approx(model.read_share(), abs=0.005)
        assert again.random_share() == pytest.approx(model.random_share(), abs=0.01)
    original, sizes = hits(recorded_trace(name))
    kept = np.mean([hits(trace, sizes)[0] for trace in made], axis=0)
    assert kept[:2] == pytest.approx(original[:2], abs=0.03)
    assert original[2] < 0.001
    assert kept[2] < 0.09
    uniform = [generate_trace(model, seed=seed, locality=False) for seed in range(4)]
    assert kept[2] < np.mean([hits(trace, sizes)[0][2] for trace in uniform]) - 0.03


def test_traces_are_small_and_have_latencies_and_no_finding():
    files = (resources.files("ppw.catalogue") / "data" / "traces").iterdir()
    sizes = {one.name: len(one.read_bytes()) for one in files if one.name.endswith(".parquet")}
    assert set(sizes) == {f"{name}.parquet" for name in RECORDED_TRACES}
    assert sum(sizes.values()) < 400_000
    for name in RECORDED_TRACES:
        trace = recorded_trace(name)
        assert (trace.findings, trace.names["device"]) == ((), ("loop",))
        assert (trace.to_table()["latency_s"].to_numpy() > 0).all()
    with pytest.raises(PpwError, match="'nothing' is not one of uniform_fixed"):
        recorded_trace("nothing")


KEYS = ["workload", "host"]


@pytest.fixture(scope="module")
def sweep():
    return simulated_sweep()


@pytest.fixture(scope="module")
def result():
    return simulated_demo()


class TestSimulatedSweep:
    def test_has_every_kernel_core_and_clock_once_and_is_labelled(self, sweep):
        cells = sweep.set_index([*KEYS, "freq_hz"]).index
        hosts = [core.host for core in CORES.values()]
        assert set(cells) == {(k, h, f) for k in KERNELS for h in hosts for f in FREQUENCIES_HZ}
        assert cells.is_unique
        assert (min(FREQUENCIES_HZ), max(FREQUENCIES_HZ)) == (0.8e9, 4e9)
        assert (set(sweep["power_source"]), set(sweep["region"])) == ({"simulated"}, {"marked"})
        assert sweep[["simulator", "compiler"]].notna().all(axis=None)
        assert not {"power_w", "energy_j"} & set(sweep)

    @pytest.mark.parametrize(
        "way", [{}, {"pool": False}, {"interval": "t"}], ids=["default", "alone", "least squares"]
    )
    def test_from_1_2_and_2_ghz_to_3_2_and_4_ghz_for_all_12_pairs(self, sweep, way):
        programs = sweep[sweep["workload"] != CONTROL]
        learnt = programs[programs["freq_hz"].isin([1.2e9, 2e9])]
        asked = {"freq": [3.2e9, 4e9], "by": KEYS, "metric": ["cpi", "time"]}
        table = answered(ppw.project, learnt, **asked, **way).table
        tested = table.merge(programs, on=[*KEYS, "freq_hz"])
        for metric, truth in (("cpi", "cpi"), ("time", "time_s")):
            own = tested[tested["metric"] == metric]
            error = (own["projected"] / own[truth] - 1).abs()
            assert len(error) == 24
            assert error.median() <= 0.005
            assert error.max() <= 0.03

    def test_from_three_clocks_the_control_is_flagged_on_both_cores_and_nothing_else(self, sweep):
        learnt = sweep[sweep["freq_hz"].isin([0.8e9, 1.6e9, 2.4e9])]
        table = answered(ppw.project, learnt, freq=4e9, by=KEYS, metric=["cpi", "time"]).table
        for metric in ("cpi", "time"):
            own = table[table["metric"] == metric]
            bent = own["caveats"].astype(str).str.contains("gains_less|gains_more")
            flagged = set(own.loc[bent, KEYS].itertuples(index=False, name=None))
            assert flagged == {(CONTROL, WIMPY), (CONTROL, BRAWNY)}
        # Two clocks cannot show it.
        two = learnt[(learnt["freq_hz"] != 1.6e9) & (learnt["workload"] == CONTROL)]
        table = answered(ppw.project, two, freq=4e9, by=KEYS, metric="time").table
        said = table.get("caveats", pd.Series(dtype=str)).astype(str)
        assert not said.str.contains("gains").any()

    def test_a_simulated_table_says_so_and_a_measured_one_does_not(self, sweep):
        how = {"freq": 3e9, "by": KEYS, "metric": "time"}
        said = answered(ppw.project, sweep, **how).caveats
        assert any(c.startswith("all runs are simulated, not hardware") for c in said)
        said = answered(ppw.project, sweep.drop(columns="simulator"), **how).caveats
        assert not any("are simulated" in c for c in said)
        measured = sweep[sweep["host"] == BRAWNY].assign(host="rack1", simulator=None)
        both = pd.concat([sweep[sweep["host"] == WIMPY], measured.assign(power_source="unknown")])
        said = answered(ppw.compare, both, a={"host": "rack1"}, b={"host": WIMPY}).caveats
        (mixed,) = [c for c in said if "simulated" in c]
        assert mixed.startswith("49 of 98 runs are simulated, not hardware")
        assert "do not take a difference" in mixed


class TestSimulatedDemo:
    def test_every_pair_is_checked_by_clocks_that_it_has_not_seen(self, result, sweep):
        assert len(result.table) == 12 * 2 * 2
        assert result.table["simulated"].notna().all()
        assert set(result.table["freq_hz"]) == set(TESTED_HZ)
        assert not set(result.learnt["freq_hz"]) & set(TESTED_HZ)
        # The verdict says the errors, and where the law fails.
        errors, ratio, flagged = result.verdict()
        error = result.table["error_pct"].abs()
        assert f"{error.median():.2f} % at the median and {error.max():.2f} % at most" in errors
        assert "5 of 12 wait for memory" in errors
        assert "brawny core is projected to do" in ratio
        assert "Fitted at 0.8, 1.6 and 2.4 GHz" in flagged
        assert "stream on wimpy" in flagged
        assert "stream on brawny" in flagged
        # Those whose CPI grows wait for memory.
        waiting = set(result.waiting()[KEYS].itertuples(index=False, name=None))
        memory = {(k, h) for k in ("hash_table_get", "pointer_chase") for h in (WIMPY, BRAWNY)}
        assert waiting == memory | {("inverted_index", WIMPY)}
        times = sweep[sweep["freq_hz"] == 4e9].set_index(KEYS)["time_s"]
        simulated = times["sort", WIMPY] / times["sort", BRAWNY]
        assert result.speed_ratios("simulated")["sort"] == pytest.approx(simulated)

    def test_document_and_page(self, result, monkeypatch):
        monkeypatch.setattr("ppw.results.page.draw", lambda plot: "")
        study = demo()
        part = json.loads(study.to_json())["simulated"]
        assert (part["caveats"], len(part["projections"])) == (list(CAVEATS), len(result.table))
        page = demo_page(study)
        assert len(page.tables[1].rows) == 12
        assert set(CAVEATS) <= set(page.caveats)
