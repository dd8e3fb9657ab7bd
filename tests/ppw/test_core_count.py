"""Times on a number of cores that was not measured: Amdahl's law by hand, an oracle, coverage."""

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

from ppw.cli.project import command
from ppw.core_count import CoreCountProjection, project_core_count
from ppw.errors import CaveatWarning, PpwError
from ppw.report.time_projection_page import time_projection_page

TWO_COUNTS = pytest.mark.filterwarnings("ignore:.* groups have two core counts")


def table(cores, times, **columns):
    return pd.DataFrame({"cores": cores, "time_s": times, **columns})


def noisy(seed, serial_s=10.0, parallel_s=90.0, counts=(1, 2, 4, 8), repeats=3, noise=0.02):
    cores = np.repeat(counts, repeats).astype(float)
    scatter = np.random.default_rng(seed).lognormal(0, noise, len(cores))
    return table(cores, (serial_s + parallel_s / cores) * scatter, workload="blackscholes")


def quietly(runs, **asked):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaveatWarning)
        return project_core_count(runs, **asked)


class TestKnownLaws:
    @given(serial_s=st.floats(0.01, 100), parallel_s=st.floats(0.01, 1e4))
    def test_amdahls_law_comes_back(self, serial_s, parallel_s):
        cores = np.array([1, 2, 6])
        found = quietly(table(cores, serial_s + parallel_s / cores), cores=16).table.iloc[0]
        assert found["projected"] == pytest.approx(serial_s + parallel_s / 16, rel=1e-6)
        assert (found["counts"], found["runs"]) == (3, 3)
        assert (found["fewest_cores"], found["most_cores"]) == (1, 6)

    @TWO_COUNTS
    def test_worked_by_hand(self):
        # 50 s on 2 cores and 30 s on 4: 10 s and 80 s over the cores; 15 s on 16.
        row = project_core_count(table([2, 4], [50.0, 30.0]), cores=16).table.iloc[0]
        found = row["projected"], row["t_serial_s"], row["t_parallel_s"]
        assert found == pytest.approx((15.0, 10.0, 80.0))
        # x = 2/16 and 4/16, mean 3/16, sum of squares 1/128; at x = 1 the line's variance is
        # 1/2 + 128·(13/16)² = 85 of a count's, and the new count's own comes to it. That is 5 % of
        # 15 s, squared, with 3 degrees of freedom, of which 90 % lie within 2.35336.
        half = 2.35336 * 0.05 * 15 * np.sqrt(85 + 1)
        assert row["lower"] == pytest.approx(max(0.0, 15 - half))
        assert row["upper"] == pytest.approx(15 + half, rel=1e-5)

    def test_between_counts_that_were_measured(self):
        cores = np.array([1, 2, 8, 16])
        found = project_core_count(table(cores, 5 + 40 / cores), cores=4).table.iloc[0]
        assert found["projected"] == pytest.approx(15.0)
        beyond = project_core_count(table(cores, 5 + 40 / cores), cores=32).table.iloc[0]
        widths = [(r["upper"] - r["lower"]) / r["projected"] for r in (found, beyond)]
        assert widths[0] < widths[1]

    def test_an_octave_of_counts_is_one_witness(self):
        """Least squares of T·n, weights alike; of ten counts 1 to 10 four miss for themselves."""
        cores = np.arange(1.0, 11)
        runs = table(cores, (4 + 60 / cores) * (1 + 0.03 * np.sin(cores)))
        row = quietly(runs, cores=20).table.iloc[0]
        design = np.column_stack([cores, np.ones(10)])
        fit = sm.OLS(runs["time_s"] * cores, design).fit()
        at = np.array([20.0, 1.0])
        middle = float(at @ fit.params) / 20
        # 1 + log2(10) is 4.3: 4 of 10, whose law left two degrees of freedom.
        missed = fit.ssr / 8 / 20**2
        spread = (2 * missed + 3 * (0.05 * middle) ** 2) / 5
        leverage = float(at @ fit.normalized_cov_params @ at)
        half = t.ppf(0.95, 5) * np.sqrt(spread * (leverage * 10 / 4 + 1))
        assert row["projected"] == pytest.approx(middle)
        assert (row["lower"], row["upper"]) == pytest.approx((middle - half, middle + half))

    def test_counts_within_an_octave_are_two_witnesses(self):
        """Least squares of T·n; 8 to 12 cores are 0.6 octaves, and learnt from no miss is."""
        cores = np.array([8.0, 9.0, 10.0, 12.0])
        runs = table(cores, (4 + 60 / cores) * (1 + 0.02 * np.cos(3 * cores)))
        row = quietly(runs, cores=16).table.iloc[0]
        fit = sm.OLS(runs["time_s"] * cores, np.column_stack([cores, np.ones(4)])).fit()
        at = np.array([16.0, 1.0])
        middle = float(at @ fit.params) / 16
        leverage = float(at @ fit.normalized_cov_params @ at)
        half = t.ppf(0.95, 3) * 0.05 * middle * np.sqrt(leverage * 4 / 2 + 1)
        assert row["projected"] == pytest.approx(middle)
        assert row["upper"] == pytest.approx(middle + half)

    def test_the_law_never_takes_longer_on_more_cores(self):
        found = quietly(table([2, 4], [10.0, 12.0]), cores=8)
        row = found.table.iloc[0]
        assert row["t_parallel_s"] == 0.0
        assert "on any number of cores" in found.summary()
        assert any("1 groups gain nothing from more cores" in c for c in found.caveats)

    @TWO_COUNTS
    def test_speed_up_beyond_the_cores_is_taken_for_no_serial_part(self):
        found = project_core_count(table([1, 2], [10.0, 4.0]), cores=4)
        assert found.table["t_serial_s"].iloc[0] == 0.0
        assert "no limit of the speed-up in sight" in found.summary()

    def test_ninety_percent_of_intervals_hold_where_counts_miss_as_usual(self):
        """Groups whose counts scatter about their laws by variances drawn from the prior."""
        rng = np.random.default_rng(11)
        groups, counts = 4000, np.array([1.0, 2.0, 4.0, 8.0])
        miss = 0.05 * np.sqrt(3 / rng.chisquare(3, (groups, 1)))
        # 20 s whatever the cores and 30 s on 8; a miss is relative to the work of all cores then.
        missed = 8 * 30 * miss / counts * rng.standard_normal((groups, 4))
        times = np.maximum(20 + 80 / counts + missed, 0.1)
        hosts = np.repeat([f"h{n}" for n in range(groups)], 4)
        found = quietly(table(np.tile(counts, groups), times.ravel(), host=hosts), cores=8)
        assert 0.88 < found.coverage < 0.92


class TestTable:
    @pytest.fixture
    def found(self):
        return project_core_count(noisy(3), cores=8)

    def test_runs_at_the_target_are_compared_and_not_fitted(self, found):
        runs = noisy(3)
        without = project_core_count(runs[runs["cores"] < 8], cores=8).table.iloc[0]
        row = found.table.iloc[0]
        assert row["projected"] == without["projected"]
        assert (row["runs"], without["runs"]) == (9, 9)
        mean = runs[runs["cores"] == 8]["time_s"].mean()
        assert row["measured"] == pytest.approx(mean)
        assert row["error_pct"] == pytest.approx(100 * (row["projected"] / mean - 1))
        assert without["covered"] is None

    def test_order_of_rows_says_nothing(self, found):
        other = project_core_count(noisy(3).iloc[::-1], cores=8).table
        pd.testing.assert_frame_equal(found.table, other)

    def test_threads_that_follow_the_cores_tell_no_groups_apart(self):
        runs = noisy(3)
        each = project_core_count(runs.assign(threads=2 * runs["cores"]), cores=8)
        assert each.by == ("workload",)
        fixed = pd.concat([runs.assign(threads=n) for n in (8, 16)])
        assert list(project_core_count(fixed, cores=8).table["threads"]) == [8, 16]

    def test_one_count_is_too_few(self):
        with pytest.raises(PpwError, match="no group has runs on two core counts other than 8"):
            project_core_count(noisy(3, counts=(4, 8)), cores=8)

    def test_clocks_that_were_set_are_groups(self):
        both = pd.concat([noisy(3).assign(freq_hz=f) for f in (1e9, 2e9)])
        assert list(project_core_count(both, cores=8).table["freq_hz"]) == [1e9, 2e9]

    def test_json_comes_back(self, found):
        again = CoreCountProjection.from_json(found.to_json())
        pd.testing.assert_frame_equal(again.table, found.table)
        assert again.summary() == found.summary()
        document = json.loads(found.to_json())
        assert document["kind"] == "core-count-projection"
        assert document["coverage"] == found.coverage

    def test_what_the_law_says(self, found):
        row = found.table.iloc[0]
        limit = (row["t_serial_s"] + row["t_parallel_s"]) / row["t_serial_s"]
        assert f"at most {limit:.4g} times the speed of one core" in found.summary()

    def test_plot_and_page(self, found):
        axes = found.plot()
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("cores", "time (s)")
        x, y = axes.get_lines()[0].get_data()
        assert (x[0], x[-1]) == pytest.approx((1, 8))
        assert y[-1] == pytest.approx(found.table["projected"].iloc[0])
        page = time_projection_page(found).render()
        assert "Projected to 8 cores" in page


class TestCaveats:
    @pytest.mark.parametrize(
        ("runs", "cores", "said"),
        [
            (table([1, 2], [9.0, 5.0]), 4, "two core counts, which show nothing"),
            (noisy(3), 64, "the target is 8 times the most cores measured"),
            (
                table([1, 2, 4, 8] * 2, [80.0, 40.0, 39.0, 60.0, 80.1, 40.1, 39.1, 60.1]),
                16,
                "1 groups do not follow Amdahl's law",
            ),
            (
                pd.concat([noisy(3), table([1.0], [9.0], workload="x")]),
                16,
                "1 groups have runs at less than two other core counts and are left out",
            ),
        ],
    )
    def test_said(self, runs, cores, said):
        assert any(said in c for c in quietly(runs, cores=cores).caveats)

    def test_nothing_is_said_of_runs_that_follow_the_law(self):
        assert project_core_count(noisy(3), cores=16).caveats == ()

    @pytest.mark.parametrize("cores", [0, -1, float("nan")])
    def test_targets_that_cannot_be(self, cores):
        with pytest.raises(PpwError, match="cores"):
            project_core_count(noisy(3), cores=cores)


def test_command_line(tmp_path):
    path = tmp_path / "runs.csv"
    noisy(0, noise=0.0).to_csv(path, index=False)
    done = CliRunner().invoke(command, [str(path), "--cores", "16", "--format", "json"])
    assert (done.stderr, done.exit_code) == ("", 0)
    [row] = json.loads(done.stdout)["groups"]
    assert row["projected"] == pytest.approx(10 + 90 / 16)
    done = CliRunner().invoke(command, [str(path), "--cores", "0"])
    assert done.exit_code == 2
