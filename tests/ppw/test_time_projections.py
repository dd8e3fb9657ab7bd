"""Times at a data size or on a number of cores that was not measured.

The oracles are known laws, sums by hand, least squares of statsmodels, and coverage.
"""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from made_up import quiet
from processes import ppw_inside, printed

from measurements.errors import MeasurementError
from ppw.errors import CaveatWarning, PpwError
from ppw.projection.report import time_projection_page
from ppw.projection.time import DataSizeProjection, project_core_count, project_data_size

MB = 1e6
OTHERS = ("power", "energy", "perf_per_watt")


def jobs(sizes_mb, times, **columns):
    return pd.DataFrame({"data_bytes": np.array(sizes_mb) * MB, "time_s": times, **columns})


def parallel(cores, times, **columns):
    return pd.DataFrame({"cores": cores, "time_s": times, **columns})


def noisy_jobs(seed=3):
    """Jobs of 4 s and a second for every 8 MB."""
    sizes = np.repeat((64, 128, 256, 512), 3)
    scatter = np.random.default_rng(seed).lognormal(0, 0.02, len(sizes))
    return jobs(sizes, (4 + sizes / 8) * scatter, workload="wordcount")


def noisy_parallel(counts=(1, 2, 4, 8)):
    """Runs of 10 s whatever the cores, and of 90 s over them."""
    cores = np.repeat(counts, 3).astype(float)
    scatter = np.random.default_rng(3).lognormal(0, 0.02, len(cores))
    return parallel(cores, (10 + 90 / cores) * scatter, workload="blackscholes")


def project(runs, **asked):
    """Project to the size or count asked for, whatever the caveats."""
    return quiet(project_core_count if "cores" in asked else project_data_size, runs, **asked)


def first(runs, **asked):
    return project(runs, **asked).table.iloc[0]


class TestDataSize:
    @given(fixed_s=st.floats(0.01, 100), rate=st.floats(1e3, 1e9))
    @settings(max_examples=10, deadline=None)
    def test_a_line_comes_back(self, fixed_s, rate):
        sizes = np.array([64, 128, 256])
        found = first(jobs(sizes, fixed_s + sizes * MB / rate), data_bytes=512 * MB)
        line = fixed_s + 512 * MB / rate
        assert found["t_fixed_s"] + 512 * MB / found["rate_bytes_s"] == pytest.approx(line)
        assert found["lower"] < line < found["upper"]
        assert (found["sizes"], found["runs"]) == (3, 3)
        assert (found["smallest_bytes"], found["largest_bytes"]) == (64 * MB, 256 * MB)

    def test_worked_by_hand(self):
        # 10 s at 100 MB and 15 s at 200 MB: 5 s, and 1 s every 20 MB; 30 s at 500 MB.
        with pytest.warns(CaveatWarning, match="1 groups have two sizes"):
            found = project_data_size(jobs([100, 200], [10.0, 15.0]), data_bytes="500MB")
        row = found.table.iloc[0]
        assert (row["t_fixed_s"], row["rate_bytes_s"]) == pytest.approx((5.0, 20 * MB))
        assert row["projected"] == pytest.approx(30.0, rel=0.05)
        assert (row["law"], row["law_weight"] > 0.9) == ("line", True)
        assert np.isnan(row["measured"])
        assert found.coverage is None

    def test_a_job_never_takes_less_than_nothing_without_data(self):
        # Through these two points the free line starts at -5 s.
        row = first(jobs([100, 200], [5.0, 15.0]), data_bytes=400 * MB)
        assert row["t_fixed_s"] == 0.0
        # The mean of the logarithm of the time per byte, each size weighing as its bytes.
        rate = np.exp((np.log(0.05) + 2 * np.log(0.075)) / 3)
        assert 1e6 / row["rate_bytes_s"] == pytest.approx(rate)

    def test_a_time_that_does_not_grow(self):
        found = project(jobs([100, 200], [10.0, 9.0]), data_bytes=400 * MB)
        assert "and no more with more data" in found.summary()
        for result in (found, DataSizeProjection.from_json(found.to_json())):
            assert np.isinf(result.table["rate_bytes_s"].iloc[0])

    def test_a_job_that_outgrows_its_buffer_names_its_law(self):
        sizes = np.array([64, 128, 256, 512])
        found = project(jobs(sizes, 10 + (sizes / 40) ** 1.5), data_bytes=1024 * MB)
        assert found.table["law"].iloc[0] == "super-linear 1.5"
        assert "most weight: super-linear 1.5 law" in found.summary()

    def test_one_run_scatters_more_than_the_mean_of_three(self):
        runs = noisy_jobs(7)
        one = pd.concat([runs[runs["data_bytes"] < 512 * MB], runs.tail(1)])
        few, single = (first(table, data_bytes=512 * MB) for table in (runs, one))
        assert single["projected"] == few["projected"]
        assert single["upper"] / single["lower"] > few["upper"] / few["lower"]

    def test_larger_sizes_are_not_fitted_either(self):
        runs = noisy_jobs()
        smaller = first(runs[runs["data_bytes"] < 256 * MB], data_bytes=256 * MB)
        assert first(runs, data_bytes=256 * MB)["projected"] == smaller["projected"]

    def test_jobs_that_are_set_up_otherwise_are_other_groups_in_words_too(self):
        runs = pd.concat([noisy_jobs(n).assign(map_slots=n, host="h") for n in (1, 2)])
        found = project(runs, data_bytes=512 * MB)
        assert found.by == ("host", "workload", "map_slots")
        assert list(found.table["map_slots"]) == [1, 2]
        pooled = project(runs, data_bytes=512 * MB, by=["workload"])
        assert list(pooled.table["runs"]) == [18]

        # A clock that was found tells none apart.
        clocks = {"freq_hz": 2e9 + 1e6 * np.arange(12), "freq_source": "kernel"}
        found = project(noisy_jobs().assign(**clocks), data_bytes=512 * MB)
        assert len(found.table) == 1
        for word in ("wordcount", "512 MB", "90% interval", "whatever the data", "1 s for every"):
            assert word in found.summary()


class TestCoreCount:
    @given(serial_s=st.floats(0.01, 100), parallel_s=st.floats(0.01, 1e4))
    @settings(max_examples=10, deadline=None)
    def test_amdahls_law_comes_back(self, serial_s, parallel_s):
        cores = np.array([1, 2, 6])
        found = first(parallel(cores, serial_s + parallel_s / cores), cores=16)
        assert found["t_serial_s"] + found["t_parallel_s"] / 16 == pytest.approx(
            serial_s + parallel_s / 16, rel=1e-6
        )
        assert found["lower"] < serial_s + parallel_s / 16 < found["upper"]
        assert (found["counts"], found["runs"]) == (3, 3)
        assert (found["fewest_cores"], found["most_cores"]) == (1, 6)

    def test_worked_by_hand(self):
        # 50 s on 2 cores and 30 s on 4: 10 s and 80 s over the cores; 15 s on 16.
        row = first(parallel([2, 4], [50.0, 30.0]), cores=16)
        assert (row["t_serial_s"], row["t_parallel_s"]) == pytest.approx((10.0, 80.0))
        assert row["projected"] == pytest.approx(15.0, rel=0.1)
        assert (row["law"], row["law_weight"] > 0.5) == ("amdahl", True)

    def test_a_super_linear_job_names_its_law(self):
        cores = np.array([2, 4, 6, 8])
        found = project(parallel(cores, 40 + 480 / cores**2), cores=12)
        assert found.table["law"].iloc[0] == "super-linear 2"
        assert found.table["projected"].iloc[0] == pytest.approx(40 + 480 / 144, rel=0.05)
        assert "most weight: super-linear 2 law" in found.summary()

    def test_between_counts_that_were_measured_it_is_narrower(self):
        cores = np.array([1, 2, 8, 16])
        found, beyond = (first(parallel(cores, 5 + 40 / cores), cores=n) for n in (4, 32))
        assert found["projected"] == pytest.approx(15.0, rel=1e-3)
        widths = [(r["upper"] - r["lower"]) / r["projected"] for r in (found, beyond)]
        assert widths[0] < widths[1]

    def test_the_law_never_takes_longer_on_more_cores(self):
        found = project(parallel([2, 4], [10.0, 12.0]), cores=8)
        assert found.table["t_parallel_s"].iloc[0] == 0.0
        assert "on any number of cores" in found.summary()
        assert any("1 groups gain nothing from more cores" in c for c in found.caveats)

    def test_speed_up_beyond_the_cores_is_taken_for_no_serial_part(self):
        found = project(parallel([1, 2], [10.0, 4.0]), cores=4)
        assert found.table["t_serial_s"].iloc[0] == 0.0
        assert "no limit of the speed-up in sight" in found.summary()

    def test_threads_that_follow_the_cores_tell_no_groups_apart(self):
        runs = noisy_parallel()
        assert project(runs.assign(threads=2 * runs["cores"]), cores=8).by == ("workload",)
        fixed = pd.concat([runs.assign(threads=n) for n in (8, 16)])
        assert list(project(fixed, cores=8).table["threads"]) == [8, 16]

    def test_power_energy_and_perf_per_watt(self):
        """20 W and 5 W a core, of a job of 10 s and 90 s over the cores."""
        cores = np.array([1.0, 2, 4, 8])
        runs = parallel(cores, 10 + 90 / cores, power_w=20 + 5 * cores)
        found = {m: project(runs, cores=16, metric=m) for m in ("time", *OTHERS)}
        for metric, value in dict(zip(OTHERS, (100.0, 1562.5, 1 / 1562.5), strict=True)).items():
            row = found[metric].table.iloc[0]
            assert row["projected"] == pytest.approx(value, rel=0.05)
            assert row["lower"] < value < row["upper"]
            assert np.isnan(row["t_serial_s"])
            assert f"most weight: {row['law']} law" in found[metric].summary()
        assert found["power"].plot().get_ylabel() == "power (W)"
        assert type(found["power"]).from_json(found["power"].to_json()).metric_unit == "W"
        measured = first(runs, cores=8, metric="perf_per_watt")
        assert measured["covered"]
        assert measured["measured"] == pytest.approx(1 / (60 * 21.25))
        with pytest.raises(PpwError, match="no projection of 'cpi' over cores: give time, "):
            project(runs, cores=16, metric="cpi")
        with pytest.raises(MeasurementError, match="power_w"):
            project(noisy_parallel(), cores=16, metric="power")

    def test_metrics_of_the_command_line(self, tmp_path):
        noisy_parallel().assign(power_w=50.0).to_csv(tmp_path / "r.csv", index=False)
        asked = ("project", "r.csv", "--cores", 16, "--metric=power")
        said = printed(ppw_inside(*asked, cwd=tmp_path))
        assert "50 W" in said
        for words in ("--cores 16 --metric time,power", "--data 1GB --metric power"):
            done = ppw_inside("project", "r.csv", *words.split(), cwd=tmp_path)
            assert (done.returncode, "give one with --cores" in done.stderr) == (2, True)

    def test_text_plot_and_page(self):
        found = project(noisy_parallel(), cores=8)
        row = found.table.iloc[0]
        limit = (row["t_serial_s"] + row["t_parallel_s"]) / row["t_serial_s"]
        assert f"at most {limit:.4g} times the speed of one core" in found.summary()
        x, y = found.plot().get_lines()[0].get_data()
        # The curve is Amdahl's; the projected time is an average of laws.
        line = row["t_serial_s"] + row["t_parallel_s"] / 8
        assert (x[0], x[-1], y[-1]) == pytest.approx((1, 8, line))
        page = time_projection_page(found)
        assert page.title == "Projected to 8 cores"
        assert page.tables[0].rows[0][:2] == ["blackscholes", "8"]


# Runs at the target and below it, and the target.
TARGETS = [(noisy_jobs(), {"data_bytes": 512 * MB}), (noisy_parallel(), {"cores": 8})]
BOTH = pytest.mark.parametrize(("runs", "asked"), TARGETS, ids=["data size", "core count"])


@BOTH
class TestBoth:
    def test_runs_at_the_target_are_compared_and_not_fitted(self, runs, asked):
        ((column, target),) = asked.items()
        row, without = first(runs, **asked), first(runs[runs[column] < target], **asked)
        assert row["projected"] == without["projected"]
        assert (row["runs"], without["runs"]) == (9, 9)
        mean = runs[runs[column] == target]["time_s"].mean()
        assert row["measured"] == pytest.approx(mean)
        assert row["error_pct"] == pytest.approx(100 * (row["projected"] / mean - 1))
        assert without["covered"] is None

    def test_clocks_that_were_set_are_groups_and_order_of_rows_says_nothing(self, runs, asked):
        both = pd.concat([runs.assign(freq_hz=f) for f in (1e9, 2e9)])
        one, other = (project(table, **asked).table for table in (both, both.iloc[::-1]))
        assert list(one["freq_hz"]) == [1e9, 2e9]
        pd.testing.assert_frame_equal(one, other)

    def test_levels_and_targets_that_cannot_be(self, runs, asked):
        (column,) = asked
        for level in (0, 1, 90):
            with pytest.raises(PpwError, match="level"):
                project(runs, level=level, **asked)
        for target in (0, -1, np.nan):
            with pytest.raises(PpwError, match=f"{column[:4]}.* must be|is not a"):
                project(runs, **{column: target})
        with pytest.raises(MeasurementError, match=column):
            project(pd.DataFrame({"time_s": [1.0]}), **asked)

    def test_command_line(self, runs, asked, tmp_path):
        ((column, target),) = asked.items()
        runs.to_csv(tmp_path / "runs.csv", index=False)
        words = ("project", "runs.csv", "--data" if column == "data_bytes" else "--cores")
        value = "512MB" if column == "data_bytes" else target
        text = printed(ppw_inside(*words, value, "--format", "json", cwd=tmp_path))
        [row] = json.loads(text)["groups"]
        assert row["projected"] == pytest.approx(first(runs, **asked)["projected"])
        done = ppw_inside(*words, value, "--freq", "3GHz", cwd=tmp_path)
        assert done.returncode == 2
        assert "give one of --freq, --cores or --data" in done.stderr


# Of six runs at three sizes or counts.
BENT_S = [10.0, 40.0, 45.0, 10.1, 40.1, 45.1]
MORE_JOBS = pd.concat([noisy_jobs(), jobs([64, 64, 512], [5.0, 5.1, 30.0], workload="x")])
MORE = pd.concat([noisy_parallel(), parallel([1.0], [9.0], workload="x")])


@pytest.mark.cases(
    "runs, asked, said",
    (jobs([64, 128, 256] * 2, BENT_S), {"data_bytes": 512 * MB}, "do not lie on one line"),
    (noisy_jobs(), {"data_bytes": 4608 * MB}, "9 times the largest size"),
    (MORE_JOBS, {"data_bytes": 512 * MB}, "1 groups have runs at less than two"),
    (parallel([1, 2], [9.0, 5.0]), {"cores": 4}, "two core counts, which cannot show"),
    (noisy_parallel(), {"cores": 64}, "the target is 8 times the most cores measured"),
    (parallel([1, 2, 4] * 2, BENT_S[::-1]), {"cores": 16}, "do not follow Amdahl's law"),
    (MORE, {"cores": 16}, "runs at less than two other core counts and are left out"),
)
def test_caveats(runs, asked, said):
    found = project(runs, **asked)
    assert any(said in c for c in found.caveats)
    assert len(found.table) == 1
    # Nothing is said of runs that follow the law.
    assert project(noisy_parallel(), cores=16).caveats == ()
    assert project(noisy_jobs(), data_bytes=512 * MB).caveats == ()


def test_no_group_at_all():
    with pytest.raises(PpwError, match="two sizes below 512 MB"):
        project(jobs([512, 64], [30.0, 5.0]), data_bytes=512 * MB)
    with pytest.raises(PpwError, match="no group has runs on two core counts other than 8"):
        project(noisy_parallel(counts=(4, 8)), cores=8)
    with pytest.raises(MeasurementError, match="'512GHz' is not a quantity in B"):
        project(noisy_jobs(), data_bytes="512GHz")


@pytest.mark.parametrize("sizes_mb", [(64, 128, 512), (200, 250, 300, 350, 512), None])
def test_ninety_percent_of_intervals_hold_where_laws_miss_as_usual(sizes_mb):
    """Groups that scatter about their laws by variances drawn from a prior."""
    rng, groups = np.random.default_rng(11), 1000
    error = 0.03 if sizes_mb else 0.05
    miss = error * np.sqrt(3 / rng.chisquare(3, (groups, 1)))
    # 20 s whatever the data or the cores, and 80 s at the target or on one core; a miss is relative
    # to the data's time, or to the work of all cores.
    x = np.array(sizes_mb) / 512 if sizes_mb else 1 / np.array([1.0, 2.0, 4.0, 8.0])
    scale = 100 if sizes_mb else 8 * 30
    times = 20 + 80 * x + scale * miss * x * rng.standard_normal((groups, len(x)))
    times = np.maximum(times, 0.1).ravel()
    hosts = np.repeat([f"h{n}" for n in range(groups)], len(x))
    if sizes_mb:
        found = project(jobs(np.tile(sizes_mb, groups), times, host=hosts), data_bytes=512 * MB)
    else:
        found = project(parallel(np.tile(1 / x, groups), times, host=hosts), cores=8)
    # The laws may all be wrong, and the allowance for it is wider than these misses.
    assert 0.88 < found.coverage < 0.99
