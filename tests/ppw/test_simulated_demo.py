"""The shipped sweep of simulated cores: made anew, projected, and held against itself."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from made_up import answered

import ppw
from measurements.simulated.cores import CORES
from measurements.simulated.kernels import CONTROL, KERNELS
from measurements.workloads.simulated import FREQUENCIES_HZ
from ppw.demo import demo_page
from ppw.samples import simulated_sweep
from ppw.simulated_demo import BRAWNY, CAVEATS, TESTED_HZ, THREE_HZ, WIMPY, simulated_demo

KEYS = ["workload", "host"]


@pytest.fixture(scope="module")
def sweep():
    return simulated_sweep()


@pytest.fixture(scope="module")
def result():
    return simulated_demo()


class TestSweep:
    def test_has_every_kernel_core_and_clock_once(self, sweep):
        cells = sweep.set_index([*KEYS, "freq_hz"]).index
        hosts = [core.host for core in CORES.values()]
        assert set(cells) == {(k, h, f) for k in KERNELS for h in hosts for f in FREQUENCIES_HZ}
        assert cells.is_unique
        assert min(FREQUENCIES_HZ) == 0.8e9
        assert max(FREQUENCIES_HZ) == 4e9

    def test_is_labelled_simulated(self, sweep):
        assert set(sweep["power_source"]) == {"simulated"}
        assert set(sweep["region"]) == {"marked"}
        assert sweep[["simulator", "compiler"]].notna().all(axis=None)
        assert sweep["host"].str.startswith("simulated-").all()
        assert not {"power_w", "energy_j"} & set(sweep)


class TestProjection:
    @pytest.mark.parametrize(
        "way", [{}, {"pool": False}, {"interval": "t"}], ids=["default", "alone", "least squares"]
    )
    @pytest.mark.parametrize("metric", ["cpi", "time"])
    def test_from_1_2_and_2_ghz_to_3_2_and_4_ghz_for_all_12_pairs(self, sweep, way, metric):
        programs = sweep[sweep["workload"] != CONTROL]
        learnt = programs[programs["freq_hz"].isin([1.2e9, 2e9])]
        table = answered(
            ppw.project_runs, learnt, freq=[3.2e9, 4e9], by=KEYS, metric=metric, **way
        ).table
        tested = table.merge(programs, on=[*KEYS, "freq_hz"])
        error = (tested["projected"] / tested["cpi" if metric == "cpi" else "time_s"] - 1).abs()
        assert len(error) == 24
        assert error.median() <= 0.005
        assert error.max() <= 0.03

    def test_from_three_clocks_the_control_is_flagged_on_both_cores_and_nothing_else(self, sweep):
        learnt = sweep[sweep["freq_hz"].isin([0.8e9, 1.6e9, 2.4e9])]
        table = answered(ppw.project_runs, learnt, freq=4e9, by=KEYS, metric=["cpi", "time"]).table
        for metric in ("cpi", "time"):
            own = table[table["metric"] == metric]
            bent = own["caveats"].astype(str).str.contains("gains_less|gains_more")
            flagged = set(own.loc[bent, KEYS].itertuples(index=False, name=None))
            assert flagged == {(CONTROL, WIMPY), (CONTROL, BRAWNY)}

    def test_two_clocks_cannot_show_it(self, sweep):
        learnt = sweep[sweep["freq_hz"].isin([0.8e9, 2.4e9]) & (sweep["workload"] == CONTROL)]
        table = answered(ppw.project_runs, learnt, freq=4e9, by=KEYS, metric="time").table
        said = table.get("caveats", pd.Series(dtype=str)).astype(str)
        assert not said.str.contains("gains").any()


class TestCaveats:
    def test_a_simulated_table_says_so(self, sweep):
        said = answered(ppw.project_runs, sweep, freq=3e9, by=KEYS, metric="time").caveats
        assert any(c.startswith("all runs are simulated, not hardware") for c in said)

    def test_a_comparison_with_a_measured_host_says_so(self, sweep):
        measured = sweep[sweep["host"] == BRAWNY].assign(host="rack1", simulator=None)
        both = pd.concat([sweep[sweep["host"] == WIMPY], measured.assign(power_source="unknown")])
        said = answered(ppw.compare, both, a={"host": "rack1"}, b={"host": WIMPY}).caveats
        (mixed,) = [c for c in said if "simulated" in c]
        assert mixed.startswith("49 of 98 runs are simulated, not hardware")
        assert "no difference between machines" in mixed

    def test_a_measured_table_says_nothing(self, sweep):
        measured = sweep.drop(columns="simulator")
        said = answered(ppw.project_runs, measured, freq=3e9, by=KEYS, metric="time").caveats
        assert not any("simulated" in c for c in said)


class TestDemo:
    def test_every_pair_is_projected_and_checked(self, result):
        table = result.table
        assert len(table) == 12 * 2 * 2
        assert table["simulated"].notna().all()
        assert set(table["freq_hz"]) == set(TESTED_HZ)

    def test_knows_no_run_at_a_tested_clock(self, result):
        assert not set(result.learnt["freq_hz"]) & set(TESTED_HZ)

    def test_verdict_says_the_errors_and_where_the_law_fails(self, result):
        errors, ratio, flagged = result.verdict()
        error = result.table["error_pct"].abs()
        assert f"{error.median():.2f} % at the median and {error.max():.2f} % at worst" in errors
        assert "5 of 12 wait for memory" in errors
        assert "brawny core is projected to do" in ratio
        assert f"From {', '.join(f'{f / 1e9:.1f}' for f in THREE_HZ[:-1])} and 2.4 GHz" in flagged
        assert "stream on wimpy" in flagged
        assert "stream on brawny" in flagged

    def test_waiting_are_those_whose_cpi_grows(self, result):
        waiting = set(result.waiting()[KEYS].itertuples(index=False, name=None))
        memory = {(k, h) for k in ("hash_table_get", "pointer_chase") for h in (WIMPY, BRAWNY)}
        assert waiting == memory | {("inverted_index", WIMPY)}

    def test_ratio_is_of_the_times_simulated(self, result, sweep):
        at = sweep[sweep["freq_hz"] == 4e9].set_index(KEYS)["time_s"]
        ratio = result.speed_ratios("simulated")
        assert ratio["sort"] == pytest.approx(at["sort", WIMPY] / at["sort", BRAWNY])

    def test_document_and_page(self, result):
        study = ppw.demo.demo()
        part = json.loads(study.to_json())["simulated"]
        assert part["caveats"] == list(CAVEATS)
        assert len(part["projections"]) == len(result.table)
        page = demo_page(study)
        assert len(page.tables[1].rows) == 12
        assert set(CAVEATS) <= set(page.caveats)
