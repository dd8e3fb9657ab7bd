"""Times at a data size that was not measured: known lines, statsmodels as oracle, and coverage."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from measurements.errors import MeasurementError
from ppw.cli.project import command
from ppw.data_size import DataSizeProjection, project_data_size
from ppw.errors import CaveatWarning, PpwError
from ppw.report.time_projection_page import time_projection_page

MB = 1e6
TWO_SIZES = pytest.mark.filterwarnings("ignore:.* groups have two sizes")


def table(sizes_mb, times, **columns):
    return pd.DataFrame({"data_bytes": np.array(sizes_mb) * MB, "time_s": times, **columns})


def noisy(rng, fixed_s=4.0, rate=8 * MB, sizes_mb=(64, 128, 256, 512), repeats=3, noise=0.02):
    sizes = np.repeat(sizes_mb, repeats)
    times = (fixed_s + sizes * MB / rate) * rng.lognormal(0, noise, len(sizes))
    return table(sizes, times, workload="wordcount")


class TestKnownLines:
    @given(fixed_s=st.floats(0.01, 100), rate=st.floats(1e3, 1e9))
    def test_a_line_comes_back(self, fixed_s, rate):
        sizes = np.array([64, 128, 256])
        times = fixed_s + sizes * MB / rate
        found = project_data_size(table(sizes, times), data_bytes=512 * MB).table.iloc[0]
        assert found["projected"] == pytest.approx(fixed_s + 512 * MB / rate, rel=1e-6)
        assert found["rate_bytes_s"] == pytest.approx(rate, rel=1e-5)
        assert (found["sizes"], found["runs"]) == (3, 3)
        assert (found["smallest_bytes"], found["largest_bytes"]) == (64 * MB, 256 * MB)

    def test_worked_by_hand(self):
        # 10 s at 100 MB and 15 s at 200 MB: 5 s, and 1 s every 20 MB; 30 s at 500 MB.
        with pytest.warns(CaveatWarning, match="1 groups have two sizes"):
            found = project_data_size(table([100, 200], [10.0, 15.0]), data_bytes=500 * MB)
        row = found.table.iloc[0]
        assert (row["projected"], row["t_fixed_s"]) == pytest.approx((30.0, 5.0))
        assert row["rate_bytes_s"] == pytest.approx(20 * MB)
        # x = 500/100 and 500/200, mean 3.75, sum of squares 3.125; at x = 1 the line's variance is
        # 1/2 + 2.75²/3.125 = 2.92 of a size's, and the new size's own comes to it. That is 3 % of
        # 30 s, squared, with 3 degrees of freedom, of which 90 % lie within 2.35336.
        half = 2.35336 * 0.03 * 30 * np.sqrt(2.92 + 1)
        assert (row["lower"], row["upper"]) == pytest.approx((30 - half, 30 + half), rel=1e-5)
        assert np.isnan(row["measured"])
        assert found.coverage is None

    @TWO_SIZES
    def test_a_job_never_takes_less_than_nothing_without_data(self):
        # Through these two points the free line starts at -5 s.
        found = project_data_size(table([100, 200], [5.0, 15.0]), data_bytes=400 * MB)
        row = found.table.iloc[0]
        assert row["t_fixed_s"] == 0.0
        # The mean time per byte, each size weighing alike.
        assert row["projected"] == pytest.approx(400 * (0.05 + 0.075) / 2)

    @TWO_SIZES
    def test_a_time_that_does_not_grow(self):
        found = project_data_size(table([100, 200], [10.0, 9.0]), data_bytes=400 * MB)
        assert np.isinf(found.table["rate_bytes_s"].iloc[0])
        assert "and no more with more data" in found.summary()
        again = DataSizeProjection.from_json(found.to_json())
        assert np.isinf(again.table["rate_bytes_s"].iloc[0])

    def test_interval_of_weighted_least_squares_of_the_means(self):
        runs = noisy(np.random.default_rng(7))
        row = project_data_size(runs, data_bytes=512 * MB, level=0.9).table.iloc[0]
        below = runs[runs["data_bytes"] < 512 * MB]
        mean = np.log(below["time_s"]).groupby(below["data_bytes"]).mean()
        size = mean.index.to_numpy() / MB
        design = np.column_stack([np.ones_like(size), size])
        fit = sm.WLS(np.exp(mean.to_numpy()), design, weights=1 / size**2).fit()
        at = np.array([1.0, 512.0])
        middle = float(at @ fit.params)
        # Misses as usual, in 3 sizes, beside those of these 3, whose line left one degree.
        squares = fit.ssr + 3 * (0.03 * middle / 512) ** 2
        spread = squares / 4 * (at @ fit.normalized_cov_params @ at + 512**2)
        half = t.ppf(0.95, 4) * np.sqrt(spread)
        assert row["projected"] == pytest.approx(middle)
        assert (row["lower"], row["upper"]) == pytest.approx((middle - half, middle + half))

    def test_one_run_scatters_more_than_the_means_that_were_learnt_from(self):
        runs = noisy(np.random.default_rng(7))
        one = pd.concat([runs[runs["data_bytes"] < 512 * MB], runs.tail(1)])
        few, single = (
            project_data_size(table, data_bytes=512 * MB).table.iloc[0] for table in (runs, one)
        )
        below = runs[runs["data_bytes"] < 512 * MB]
        logs = np.log(below["time_s"]).groupby(below["data_bytes"])
        scatter = float(((logs.std() ** 2) * 2).sum() / 6)
        more = (single["upper"] - single["lower"]) ** 2 - (few["upper"] - few["lower"]) ** 2
        expected = (2 * t.ppf(0.95, 4) * few["projected"]) ** 2 * scatter * (1 - 1 / 3)
        assert more == pytest.approx(expected)

    @pytest.mark.parametrize("sizes_mb", [(64, 128, 512), (200, 250, 300, 350, 512)])
    def test_ninety_percent_of_intervals_hold_where_sizes_miss_as_usual(self, sizes_mb):
        """Groups whose sizes scatter about their lines by variances drawn from the prior."""
        rng = np.random.default_rng(11)
        groups, shares = 4000, np.array(sizes_mb) / 512
        miss = 0.03 * np.sqrt(3 / rng.chisquare(3, (groups, 1)))
        # Of 20 s whatever the data and 80 s at the target; a miss is relative to the data's time.
        times = 20 + 80 * shares + 100 * miss * shares * rng.standard_normal((groups, len(shares)))
        hosts = np.repeat([f"h{n}" for n in range(groups)], len(shares))
        runs = table(np.tile(sizes_mb, groups), times.ravel(), host=hosts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CaveatWarning)
            found = project_data_size(runs, data_bytes=512 * MB)
        assert 0.88 < found.coverage < 0.92


class TestTable:
    @pytest.fixture
    def found(self):
        runs = noisy(np.random.default_rng(3))
        return project_data_size(runs, data_bytes=512 * MB)

    def test_runs_at_the_target_are_compared_and_not_fitted(self):
        runs = noisy(np.random.default_rng(3))
        without = runs[runs["data_bytes"] < 512 * MB]
        one = project_data_size(runs, data_bytes=512 * MB).table.iloc[0]
        other = project_data_size(without, data_bytes=512 * MB).table.iloc[0]
        assert one["projected"] == other["projected"]
        assert (one["runs"], other["runs"]) == (9, 9)
        mean = runs[runs["data_bytes"] == 512 * MB]["time_s"].mean()
        assert one["measured"] == pytest.approx(mean)
        assert one["error_pct"] == pytest.approx(100 * (one["projected"] / mean - 1))
        assert other["covered"] is None

    @TWO_SIZES
    def test_larger_sizes_are_not_fitted_either(self):
        runs = noisy(np.random.default_rng(3))
        smaller = project_data_size(runs[runs["data_bytes"] < 256 * MB], data_bytes=256 * MB)
        every = project_data_size(runs, data_bytes=256 * MB)
        assert every.table["projected"].iloc[0] == smaller.table["projected"].iloc[0]

    def test_order_of_rows_says_nothing(self):
        runs = noisy(np.random.default_rng(3))
        one = project_data_size(runs, data_bytes=512 * MB).table
        other = project_data_size(runs.iloc[::-1], data_bytes=512 * MB).table
        pd.testing.assert_frame_equal(one, other)

    def test_jobs_that_are_set_up_otherwise_are_other_groups(self):
        rng = np.random.default_rng(3)
        runs = pd.concat([noisy(rng).assign(map_slots=n, host="h") for n in (1, 2)])
        found = project_data_size(runs, data_bytes=512 * MB)
        assert found.by == ("host", "workload", "map_slots")
        assert list(found.table["map_slots"]) == [1, 2]
        pooled = project_data_size(runs, data_bytes=512 * MB, by=["workload"])
        assert list(pooled.table["runs"]) == [18]

    def test_a_clock_that_was_set_tells_groups_apart_and_one_that_was_found_does_not(self):
        runs = noisy(np.random.default_rng(3))
        clocks = 2e9 + 1e6 * np.arange(len(runs))
        found = project_data_size(
            runs.assign(freq_hz=clocks, freq_source="kernel"), data_bytes=512 * MB
        )
        assert len(found.table) == 1
        set_to = runs.assign(freq_hz=np.where(np.arange(len(runs)) % 2, 2e9, 1e9))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CaveatWarning)
            assert len(project_data_size(set_to, data_bytes=512 * MB).table) == 2

    def test_json_comes_back(self, found):
        again = DataSizeProjection.from_json(found.to_json())
        pd.testing.assert_frame_equal(again.table, found.table)
        assert again.summary() == found.summary()
        document = json.loads(found.to_json())
        assert document["kind"] == "data-size-projection"
        assert document["coverage"] == found.coverage
        with pytest.raises(PpwError):
            DataSizeProjection.from_json("{}")

    def test_summary_says_it_all(self, found):
        text = found.summary()
        for word in ("wordcount", "512 MB", "90% interval", "whatever the data", "1 s for every"):
            assert word in text

    def test_plot(self, found):
        axes = found.plot()
        assert axes.get_xlabel() == "data (MB)"
        assert axes.get_ylabel() == "time (s)"
        assert len(axes.get_lines()) == 2

    def test_page(self, found):
        page = time_projection_page(found).render()
        assert "Projected to 512 MB of data" in page
        assert "1 s for every" in page
        assert "<svg" in page
        (row,) = time_projection_page(found).tables[0].rows
        assert row[:2] == ["wordcount", "512 MB"]


class TestCaveatsAndRefusals:
    def test_sizes_that_do_not_lie_on_a_line(self):
        sizes = np.repeat([64, 128, 256], 3)
        times = np.repeat([10.0, 40.0, 45.0], 3) * (1 + 1e-3 * np.tile([0, 1, 2], 3))
        with pytest.warns(CaveatWarning, match="do not lie on one line"):
            project_data_size(table(sizes, times), data_bytes=512 * MB)

    def test_a_target_far_away(self):
        sizes, times = [64, 128, 256], [5.0, 9.0, 17.0]
        with pytest.warns(CaveatWarning, match="39.06 times the largest size"):
            project_data_size(table(sizes, times), data_bytes=1e10)

    def test_groups_with_one_size_are_left_out(self):
        runs = pd.concat(
            [
                table([64, 128, 256], [5.0, 9.0, 17.0], host="a"),
                table([64, 64, 512], [5.0, 5.1, 30.0], host="b"),
            ]
        )
        with pytest.warns(CaveatWarning, match="1 groups have runs at less than two"):
            found = project_data_size(runs, data_bytes=512 * MB)
        assert list(found.table["host"]) == ["a"]

    def test_no_group_at_all(self):
        with pytest.raises(PpwError, match="two sizes below 512 MB"):
            project_data_size(table([512, 64], [30.0, 5.0]), data_bytes=512 * MB)

    @pytest.mark.parametrize("bad", [{"data_bytes": 0}, {"data_bytes": np.nan}])
    def test_a_target_that_cannot_be(self, bad):
        with pytest.raises(PpwError):
            project_data_size(table([64, 128], [5.0, 9.0]), **bad)

    @pytest.mark.parametrize("level", [0, 1, 90])
    def test_a_level_that_cannot_be(self, level):
        with pytest.raises(PpwError, match="level"):
            project_data_size(table([64, 128], [5.0, 9.0]), data_bytes=5e8, level=level)

    def test_a_table_without_sizes(self):
        with pytest.raises(MeasurementError, match="data_bytes"):
            project_data_size(pd.DataFrame({"time_s": [1.0]}), data_bytes=5e8)


class TestCommandLine:
    @pytest.fixture
    def run(self, tmp_path):
        path = tmp_path / "runs.csv"
        table([64, 128, 256], [12.0, 20.0, 36.0], workload="wordcount").to_csv(path, index=False)

        def run(*options):
            return CliRunner().invoke(command, [str(path), *options])

        return run

    def test_a_data_size_in_place_of_a_frequency(self, run):
        # 4 s and 8 MB a second, exactly.
        done = run("--data", "512MB", "--format", "json")
        assert (done.stderr, done.exit_code) == ("", 0)
        [row] = json.loads(done.stdout)["groups"]
        assert row["projected"] == pytest.approx(68.0)

    @pytest.mark.parametrize(
        "options", [(), ("--data", "1GB", "--freq", "3GHz"), ("--data", "1GB", "--cores", "2")]
    )
    def test_one_of_them_is_needed(self, run, options):
        done = run(*options)
        assert done.exit_code == 2
        assert "Give --freq, --cores or --data, one of them" in done.stderr


def test_a_size_with_its_unit():
    runs = noisy(np.random.default_rng(3))
    one, other = (project_data_size(runs, data_bytes=size) for size in ("512MB", 512 * MB))
    pd.testing.assert_frame_equal(one.table, other.table)
    with pytest.raises(MeasurementError, match="'512GHz' is not a quantity in B"):
        project_data_size(runs, data_bytes="512GHz")
