"""Cycles per I/O of runs and time series: by hand, and where the metric misleads."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from cpio_studies import CLOCK, run, study
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import answered, only

from measurements.errors import MeasurementError
from ppw.cpio.cycles import CyclesPerIO, cycles_per_io
from ppw.cpio.series import runs_of_series
from ppw.errors import PpwError, UnknownColumnError

# 24 s user, 12 s system and 4 s soft interrupts at 2 GHz; 15 s idle, 5 s iowait; 4 million I/Os.
BY_HAND = {
    "time_s": 60.0,
    "cores": 1,
    "freq_hz": CLOCK,
    "user_s": 24.0,
    "system_s": 12.0,
    "softirq_s": 4.0,
    "idle_s": 15.0,
    "iowait_s": 5.0,
    "sectors_read": 3e6,
    "sectors_written": 1e6,
}


def table(*rows, **more):
    return pd.DataFrame([*rows] or [BY_HAND]).assign(**more)


def point(runs, **options):
    """Find the one point of runs of one setting."""
    (row,) = answered(cycles_per_io, runs, **options).points.to_dict(orient="records")
    return row


class TestMetric:
    def test_by_hand(self):
        row = point(table())
        assert row["cpio"] == pytest.approx(40 * CLOCK / 4e6)
        assert row["user_cpio"] == pytest.approx(24 * CLOCK / 4e6)
        assert row["system_cpio"] == pytest.approx(16 * CLOCK / 4e6)
        assert row["cpio_with_idle"] == pytest.approx(60 * CLOCK / 4e6)
        assert row["utilisation"] == pytest.approx(40 / 60)
        assert row["iops"] == pytest.approx(4e6 / 60)
        shares = [row[f"{part}_share"] for part in ("user", "system", "idle", "iowait")]
        assert shares == pytest.approx([0.4, 16 / 60, 0.25, 5 / 60])

    def test_the_identity_of_the_paper_holds(self):
        row = point(table(run(12345.0, cores=8, utilisation=0.37)))
        identity = row["utilisation"] * 8 * row["clock_hz"] / row["cpio"]
        assert row["iops"] == pytest.approx(identity)

    def test_stolen_time_is_no_cycle_of_ours(self):
        runs = table(steal_s=20.0, time_s=80.0)
        row = point(runs)
        assert row["cpio"] == pytest.approx(40 * CLOCK / 4e6)
        assert row["utilisation"] == pytest.approx(40 / 60)
        assert only(answered(cycles_per_io, runs).caveats, "stolen by the hypervisor")

    @settings(max_examples=20)
    @given(st.floats(0.1, 10), st.floats(1e3, 1e6))
    def test_longer_runs_of_the_same_load_are_the_same(self, times, cpio):
        one = point(table(run(cpio)))
        other = point(table(run(cpio, time_s=60.0 * times)))
        for name in ("cpio", "cpio_with_idle", "utilisation", "iops"):
            assert other[name] == pytest.approx(one[name])

    def test_row_order_changes_nothing(self):
        runs = study(noise=0.02)
        one = answered(cycles_per_io, runs)
        two = answered(cycles_per_io, runs.sample(frac=1, random_state=1))
        pd.testing.assert_frame_equal(one.points, two.points)

    def test_interval_is_the_pooled_one(self):
        # As many I/Os by 9 and by 11 thousand cycles each.
        one = [run(cpio, utilisation=cpio / 20e3) for cpio in (9e3, 11e3)]
        runs = table(*one, run(10e3, cores=2), run(10e3, cores=2))
        points = answered(cycles_per_io, runs, level=0.90).points
        # Relative residuals ±0.1 and 0; two degrees of freedom, t = 2.9200.
        half = 2.9199856 * np.sqrt(0.02 / 2) / np.sqrt(2)
        assert points["cpio"].tolist() == pytest.approx([10e3] * 2)
        assert np.log(points["upper"] / points["cpio"]).tolist() == pytest.approx([half] * 2)
        assert np.log(points["cpio"] / points["lower"]).tolist() == pytest.approx([half] * 2)

    def windows(self, cycles=(10e9, 20e9, 30e9), ios=(1e6, 2e6, 1e6)):
        """Windows of 20 s of one core, with so many cycles and I/Os."""
        made = [
            run(y / max(x, 1), time_s=20.0, utilisation=y / CLOCK / 20.0)
            for y, x in zip(cycles, ios, strict=True)
        ]
        return table(*made).assign(sectors_read=ios, sectors_written=0.0)

    def test_cycles_per_io_are_a_ratio_of_sums(self):
        row = point(self.windows(), level=0.90)
        # 60 G cycles over 4 M I/Os; the mean of the ratios would be 16,667.
        assert row["cpio"] == pytest.approx(15e3)
        assert row["utilisation"] == pytest.approx(0.5)
        assert row["iops"] == pytest.approx(4e6 / 60)
        assert row["iops"] == pytest.approx(row["utilisation"] * CLOCK / row["cpio"])
        # By hand, the jackknife: without each window 50 G over 3 M, 40 G over 2 M and 30 G over
        # 3 M: 5/3, 5 and -5 thousand from 15 thousand; two degrees of freedom, t = 2.9200.
        half = 2.9199856 * np.sqrt(2 / 3 * ((5 / 3) ** 2 + 5**2 + 5**2)) / 15
        assert row["lower"] == pytest.approx(15e3 * np.exp(-half))
        assert row["upper"] == pytest.approx(15e3 * np.exp(half))

    def test_a_run_without_io_is_in_no_sum(self):
        one = point(self.windows(), level=0.90)
        more = self.windows((10e9, 20e9, 30e9, 40e9), (1e6, 2e6, 1e6, 0.0))
        result = answered(cycles_per_io, more)
        for name in ("cpio", "utilisation", "iops", "lower", "upper", "time_s"):
            assert result.points[name].iloc[0] == pytest.approx(one[name])
        assert only(result.caveats, "1 of 4 runs did no I/O")

    def test_a_run_at_a_clock_that_is_not_known_is_in_no_sum(self):
        runs = self.windows()
        row = point(pd.concat([runs, runs.assign(freq_hz=np.nan)]))
        assert row["cpio"] == pytest.approx(15e3)

    @settings(max_examples=30)
    @given(st.lists(st.floats(1.0, 1e6), min_size=2, max_size=6), st.integers(0, 9))
    def test_an_interval_has_no_end_below_zero(self, ios, seed):
        busy = np.random.default_rng(seed).uniform(0.1, 39.9, len(ios))
        row = point(self.windows(busy * 1e9, ios), level=0.99)
        assert 0 <= row["lower"] <= row["cpio"] <= row["upper"]

    def test_intervals_of_windows_of_unlike_load_cover(self):
        rng = np.random.default_rng(11)
        ios = rng.gamma(5.0, 1e5, 20 * 1000)
        cycles = 8e3 * ios * rng.lognormal(-0.02, 0.2, len(ios))
        runs = self.windows(cycles, ios).assign(load=np.repeat(np.arange(1000) / 1000, 20))
        points = answered(cycles_per_io, runs, by=["load"], level=0.90).points
        inside = (points["lower"] <= 8e3) & (points["upper"] >= 8e3)
        assert inside.mean() == pytest.approx(0.90, abs=0.04)

    def test_intervals_cover_as_often_as_they_say(self):
        runs = pd.concat(
            [study(noise=0.05, seed=s, repeats=3).assign(load=s / 250) for s in range(250)]
        )
        points = answered(cycles_per_io, runs, level=0.90).points
        cost = points["workload"].map({"store": 20e3, "oltp": 10e3})
        rise = points["workload"].map({"store": 2e3, "oltp": 0.2e3})
        truth = cost + rise * (points["cores"] - 1)
        inside = (points["lower"] <= truth) & (truth <= points["upper"])
        assert inside.mean() == pytest.approx(0.90, abs=0.02)


class TestClock:
    def test_nominal_is_said(self):
        result = answered(cycles_per_io, table())
        assert result.points["clock"].tolist() == ["nominal"]
        assert only(result.caveats, "clock of 1 of 1 runs is nominal")

    def test_achieved_before_nominal(self):
        row = point(table(freq_achieved_hz=2.5e9))
        assert (row["clock"], row["clock_hz"]) == ("achieved", 2.5e9)

    def test_counted_cycles_before_both(self):
        result = answered(cycles_per_io, table(freq_achieved_hz=2.5e9, cycles=40 * 3e9))
        row = result.points.iloc[0]
        assert (row["clock"], row["clock_hz"]) == ("counted cycles", 3e9)
        assert row["cpio"] == pytest.approx(40 * 3e9 / 4e6)
        assert result.caveats == ()

    def test_cycles_of_one_process_are_not_those_of_the_system(self):
        result = answered(cycles_per_io, table(cycles=8 * CLOCK))
        assert result.points["clock"].tolist() == ["nominal"]
        assert only(result.caveats, "counted of something else than the whole system")

    def test_given_for_runs_that_tell_none(self):
        runs = table().drop(columns="freq_hz")
        assert point(runs, freq=1e9)["cpio"] == pytest.approx(40 * 1e9 / 4e6)
        with pytest.raises(PpwError, match="name the clock with --clock"):
            cycles_per_io(runs)


class TestWhatCannotBe:
    @pytest.mark.parametrize("column", ["user_s", "sectors_read", "idle_s"])
    def test_counters_that_go_backwards_are_named(self, column):
        with pytest.raises(MeasurementError, match=rf"{column}.*-3"):
            cycles_per_io(table(**{column: -3.0}))

    def test_no_io_at_all(self):
        with pytest.raises(PpwError, match="no run read or wrote a sector"):
            cycles_per_io(table(sectors_read=0.0, sectors_written=0.0))

    def test_a_missing_column_is_named(self):
        with pytest.raises(MeasurementError, match="no column sectors_written"):
            cycles_per_io(table().drop(columns="sectors_written"))

    def test_cores_are_not_what_applications_are(self):
        with pytest.raises(UnknownColumnError, match="'cores'"):
            cycles_per_io(study(), by=["cores"])


class TestWhereItMisleads:
    def caveat(self, runs, text):
        return only(answered(cycles_per_io, runs).caveats, text)

    def test_a_run_without_io_is_flagged_and_in_no_mean(self):
        quiet = run(cores=2, sectors_read=0.0, sectors_written=0.0)
        result = answered(cycles_per_io, table(run(), quiet))
        assert only(result.caveats, "1 of 2 runs did no I/O")
        assert result.points["why_not"].tolist() == ["", "no I/O"]
        assert np.isnan(result.points["cpio"].iloc[1])

    def test_data_that_fit_in_memory(self):
        runs = table(data_bytes=1e9, memory_bytes=4e9)
        assert self.caveat(runs, "data of 1 of 1 runs fit in memory")
        assert point(runs)["why_not"] == "the data fit in memory"

    def test_caching_hides_io(self):
        # 4 million sectors are 2.048 GB of 8.192.
        assert "only 25% at least" in self.caveat(table(data_bytes=8.192e9), "caching hides I/O")

    def test_clients_that_spin(self):
        runs = table(run(user=0.89), run(user=0.1, workload="other"))
        spinning = runs.assign(user_s=runs["user_s"] + 9 * runs["softirq_s"] * [1, 0])
        assert "oltp" in self.caveat(spinning, "clients that spin")
        assert not [c for c in answered(cycles_per_io, table(run())).caveats if "spin" in c]

    def test_cores_that_bring_nothing(self):
        rows = [run(10e3 * n, cores=n, utilisation=0.99) for n in (1, 2, 4)]
        assert self.caveat(table(*rows), "more of them bring no more I/O")

    def test_stacks_that_do_different_io(self):
        rows = [run(device="a", throughput_ops_s=100), run(5e3, device="b", throughput_ops_s=100)]
        assert "2 times as much I/O" in self.caveat(table(*rows), "not comparable by cpio alone")

    def test_ticks_and_what_they_miss(self):
        assert self.caveat(table(cpu_accounting="tick"), "loses up to a third")
        runs = table(cpu_accounting="scheduler", tick_busy_s=27.0)
        # 36 s of user and system; interrupts are no task's.
        assert "25%" in self.caveat(runs, "the clock tick missed")
        close = table(cpu_accounting="scheduler", tick_busy_s=35.0)
        assert not [c for c in answered(cycles_per_io, close).caveats if "tick" in c]

    def test_a_container_that_sees_its_hosts_counters(self):
        runs = table(idle_s=15.0 + 7 * 60)
        assert "of 8 CPUs where 1" in self.caveat(runs, "sees its host's counters")

    def test_intervals_without_io(self):
        runs = table(intervals=60.0, intervals_without_io=45.0)
        assert "45 intervals (75%)" in self.caveat(runs, "had no I/O")
        assert point(runs)["why_not"] == "I/O in under half of its intervals"


class TestStudy:
    def test_ratios_to_one_core(self):
        points = answered(cycles_per_io, study()).points
        eight = points[(points["cores"] == 8) & (points["workload"] == "store")].iloc[0]
        assert eight["cpio_to_one"] == pytest.approx(34 / 20)
        assert eight["utilisation_to_one"] == pytest.approx(0.83 / 0.90)
        assert eight["iops_to_one"] == pytest.approx(8 * (0.83 / 0.90) / 1.7)

    def test_what_a_hardware_thread_is_worth(self):
        """4 cores do 100, their 8 threads 160, 8 cores 200 (in some unit)."""
        rows = [
            run(10e3, cores=4, hardware_threads=4, utilisation=0.5),
            run(12.5e3, cores=4, hardware_threads=8, utilisation=0.5),
            run(10e3, cores=8, hardware_threads=8, utilisation=0.5),
        ]
        # Eight threads have the CPU time of eight logical CPUs.
        rows[1] = {**run(12.5e3, cores=8, utilisation=0.5), "cores": 4, "hardware_threads": 8}
        result = answered(cycles_per_io, table(*rows))
        (row,) = result.threads.to_dict(orient="records")
        assert row["iops_to_cores"] == pytest.approx(0.8)
        assert row["cpio_to_cores"] == pytest.approx(1.25)
        assert row["worth"] == pytest.approx(0.6)
        assert "a thread is worth 0.6 of a core" in " ".join(result.verdict())

    def bandwidth_runs(self, noise=0.0, repeats=3, seed=8):
        rng = np.random.default_rng(seed)
        rows = [
            run(1000 * c * (1 + noise * rng.standard_normal()), bandwidth_per_core_bytes_s=b)
            for b, c in ((8e9, 1.0), (4e9, 1.05), (2e9, 1.25), (1e9, 1.6))
            for _ in range(repeats)
        ]
        return table(*rows)

    def test_memory_bandwidth_at_which_cpio_has_risen(self):
        found = answered(cycles_per_io, self.bandwidth_runs()).bandwidth
        assert found["rise"].tolist() == [0.10, 0.25]
        assert found["value"].tolist() == pytest.approx([3.5e9, 2e9])

    def test_its_intervals_cover_as_often_as_they_say(self):
        runs = pd.concat(
            [self.bandwidth_runs(noise=0.005, seed=s).assign(load=s / 250) for s in range(250)]
        )
        found = answered(cycles_per_io, runs).bandwidth
        truth = found["rise"].map({0.10: 3.5e9, 0.25: 2e9})
        inside = (found["lower"] <= truth) & (truth <= found["upper"])
        assert inside.mean() == pytest.approx(0.90, abs=0.04)

    def test_without_repeats_it_has_none(self):
        found = answered(cycles_per_io, self.bandwidth_runs(repeats=1)).bandwidth
        assert found["lower"].isna().all()

    def test_stolen_bandwidth_is_not_in_the_ratios_to_one_core(self):
        runs = pd.concat([self.bandwidth_runs(), table(run(3000.0, cores=2))])
        points = answered(cycles_per_io, runs).points
        assert points.loc[points["cores"] == 2, "cpio_to_one"].tolist() == pytest.approx([3.0])

    def test_taking_the_device_away(self):
        rows = [
            run(10e3, utilisation=0.4, device="sda", device_kind="disk"),
            run(8e3, utilisation=0.9, device="loop0", device_kind="memory"),
        ]
        (row,) = answered(cycles_per_io, table(*rows)).devices.to_dict(orient="records")
        assert (row["device"], row["device_from"]) == ("loop0", "sda")
        assert row["cpio_ratio"] == pytest.approx(0.8)
        assert row["utilisation_ratio"] == pytest.approx(2.25)
        assert row["iops_ratio"] == pytest.approx(2.25 / 0.8)


class TestResult:
    def test_comes_back_from_json(self):
        result = answered(cycles_per_io, study(noise=0.02))
        again = CyclesPerIO.from_json(result.to_json())
        assert again.to_json() == result.to_json()
        assert again.summary() == result.summary()
        assert (again.points.dtypes == result.points.dtypes).all()


def series(count=10, **more):
    """Intervals of 1 s of a host with 2 CPUs: busy for 0.8 s of 2, and a thousand sectors."""
    return pd.DataFrame(
        {
            "time_s": 1e9 + 1.0 + np.arange(count),
            "interval_s": 1.0,
            "host": "node",
            "cpus": 2,
            "user_s": 0.5,
            "system_s": 0.3,
            "idle_s": 1.2,
            "sectors_read": 1000.0,
            "sectors_written": 0.0,
            "cpu_accounting": "scheduler",
        }
    ).assign(**more)


class TestTimeSeries:
    def test_by_hand(self):
        runs = runs_of_series(series(), freq=CLOCK)
        assert runs[["time_s", "user_s", "sectors_read"]].iloc[0].tolist() == [10.0, 5.0, 1e4]
        row = point(runs)
        assert row["cpio"] == pytest.approx(8 * CLOCK / 1e4)
        assert row["utilisation"] == pytest.approx(0.4)
        assert (row["cores"], row["host"]) == (2, "node")

    def test_windows_start_with_the_first_interval(self):
        runs = runs_of_series(series(10), freq=CLOCK, window_s=4.0)
        assert runs["time_s"].tolist() == [4.0, 4.0, 2.0]
        assert runs["started_s"].tolist() == [1e9, 1e9 + 4, 1e9 + 8]

    def test_windows_do_not_change_what_an_io_costs(self):
        frame = series(10, sectors_read=1.0 + 1e4 * (np.arange(10) % 2))
        one = point(runs_of_series(frame, freq=CLOCK))
        other = point(runs_of_series(frame, freq=CLOCK, window_s=1.0))
        for name in ("cpio", "user_cpio", "cpio_with_idle", "utilisation", "iops", "clock_hz"):
            assert other[name] == pytest.approx(one[name])
        assert 0 < other["lower"] < other["cpio"] < other["upper"]

    def test_an_interval_whose_counter_went_backwards_is_named_and_left_out(self):
        frame = series()
        frame.loc[4, "sectors_read"] = -5e6
        runs = runs_of_series(frame, freq=CLOCK)
        assert runs["intervals"].tolist() == [9.0]
        said = only(answered(cycles_per_io, runs).caveats, "sectors_read went backwards")
        assert "in 1 intervals, first in that which ends at 1,000,000,005 s" in said

    def test_an_interval_that_lacks_a_value_is_left_out_and_said(self):
        frame = series()
        frame.loc[2, "idle_s"] = np.nan
        runs = runs_of_series(frame, freq=CLOCK)
        assert runs["intervals"].tolist() == [9.0]
        assert only(answered(cycles_per_io, runs).caveats, "1 intervals lack CPU times or sectors")

    def test_intervals_without_io_are_counted_and_flagged(self):
        frame = series()
        frame.loc[:5, "sectors_read"] = 0.0
        runs = runs_of_series(frame, freq=CLOCK)
        assert runs["intervals_without_io"].tolist() == [6.0]
        assert point(runs)["why_not"] == "I/O in under half of its intervals"

    def test_memory_and_what_was_read_are_kept(self):
        frame = series(memory_total_bytes=64e9)
        frame.attrs["digest"] = "sha256:1"
        runs = runs_of_series(frame, freq=CLOCK)
        assert runs["memory_bytes"].tolist() == [64e9]
        assert runs.attrs["digest"] == "sha256:1"
        bare = runs_of_series(series().drop(columns="cpu_accounting"), freq=CLOCK)
        assert not {"memory_bytes", "cpu_accounting"} & set(bare)

    def test_a_series_without_disks_says_what_to_record(self):
        with pytest.raises(PpwError, match="no sectors_read: record CPU times and disks"):
            runs_of_series(series().drop(columns="sectors_read"), freq=CLOCK)

    def test_nothing_that_can_be_used(self):
        with pytest.raises(PpwError, match="no interval has both"):
            runs_of_series(series(user_s=np.nan), freq=CLOCK)
