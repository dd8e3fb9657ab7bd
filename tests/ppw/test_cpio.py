"""Cycles per I/O of runs and time series: by hand, where the metric misleads, and on the page."""

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cpio_studies import CLOCK, run, study
from golden_runs import golden
from hypothesis import given, settings, strategies as st
from laid_out_pages import laid_out
from made_up import answered, only
from matplotlib.figure import Figure
from processes import ppw_inside, printed, refused
from timeseries_logs import CPU_HEADER, plot_log, written

from measurements.errors import MeasurementError
from ppw.cli.options import kind
from ppw.cpio import report
from ppw.cpio.cycles import compare_devices, cycles_per_io
from ppw.cpio.io_runs import runs_of_series
from ppw.cpio.scenarios import project_cpio
from ppw.cpio.sizing import size_servers
from ppw.errors import PpwError, UnknownColumnError

# 24 s user, 12 s system and 4 s soft interrupts at 2 GHz; 15 s idle, 5 s iowait; 4 million I/Os.
BY_HAND = {"user_s": 24.0, "system_s": 12.0, "softirq_s": 4.0, "idle_s": 15.0, "iowait_s": 5.0}
BY_HAND |= {"time_s": 60.0, "cores": 1, "freq_hz": CLOCK}
BY_HAND |= {"sectors_read": 3e6, "sectors_written": 1e6}


def table(*rows, **more):
    return pd.DataFrame([*rows] or [BY_HAND]).assign(**more)


def point(runs, **options):
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

    def test_stolen_time_is_no_cycle_of_ours(self):
        runs = table(steal_s=20.0, time_s=80.0)
        row = point(runs)
        assert row["cpio"] == pytest.approx(40 * CLOCK / 4e6)
        assert row["utilisation"] == pytest.approx(40 / 60)
        assert only(answered(cycles_per_io, runs).caveats, "stolen by the hypervisor")

    @settings(max_examples=max(5, settings.default.max_examples // 4))
    @given(st.floats(6, 600), st.floats(1e3, 1e6), st.integers(1, 64), st.floats(0.01, 1))
    def test_a_known_cost_comes_back_and_the_papers_identity_holds(
        self, time_s, cpio, cores, utilisation
    ):
        row = point(table(run(cpio, time_s=time_s, cores=cores, utilisation=utilisation)))
        assert row["cpio"] == pytest.approx(cpio)
        assert row["cpio_with_idle"] == pytest.approx(cpio / utilisation)
        assert row["utilisation"] == pytest.approx(utilisation)
        assert row["iops"] == pytest.approx(utilisation * cores * CLOCK / cpio)

    def test_row_order_changes_nothing(self):
        runs = study(noise=0.02)
        one = answered(cycles_per_io, runs)
        two = answered(cycles_per_io, runs.sample(frac=1, random_state=1))
        pd.testing.assert_frame_equal(one.points, two.points)

    def test_interval_is_the_pooled_one(self):
        # As many I/Os by 9 and by 11 thousand cycles each.
        one = [run(cpio, utilisation=cpio / 20e3) for cpio in (9e3, 11e3)]
        runs = table(*one, run(10e3, cores=2), run(10e3, cores=2), run(10e3, cores=4))
        points = answered(cycles_per_io, runs, level=0.90).points
        # Relative residuals ±0.1 and 0; two degrees of freedom, t = 2.9200.
        half = 2.9199856 * np.sqrt(0.02 / 2) / np.sqrt([2, 2, 1])
        assert points["cpio"].tolist() == pytest.approx([10e3] * 3)
        assert np.log(points["upper"] / points["cpio"]).tolist() == pytest.approx(half)
        assert np.log(points["cpio"] / points["lower"]).tolist() == pytest.approx(half)

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

    def test_a_run_without_io_or_at_an_unknown_clock_is_in_no_sum(self):
        one = point(self.windows(), level=0.90)
        more = self.windows((10e9, 20e9, 30e9, 40e9), (1e6, 2e6, 1e6, 0.0))
        result = answered(cycles_per_io, more)
        for name in ("cpio", "utilisation", "iops", "lower", "upper", "time_s"):
            assert result.points[name].iloc[0] == pytest.approx(one[name])
        assert only(result.caveats, "1 of 4 runs did no I/O")
        # A single sector is I/O.
        assert point(self.windows((10e9, 20e9), (1e6, 1.0)))["time_s"] == 40.0
        unknown = self.windows().assign(freq_hz=np.nan)
        assert point(pd.concat([self.windows(), unknown]))["cpio"] == pytest.approx(15e3)

    @settings(max_examples=max(5, settings.default.max_examples // 4))
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
        made = (study(noise=0.05, seed=s, repeats=3).assign(load=s / 250) for s in range(250))
        runs = pd.concat(made)
        points = answered(cycles_per_io, runs, level=0.90).points
        cost = points["workload"].map({"store": 20e3, "oltp": 10e3})
        rise = points["workload"].map({"store": 2e3, "oltp": 0.2e3})
        truth = cost + rise * (points["cores"] - 1)
        inside = (points["lower"] <= truth) & (truth <= points["upper"])
        assert inside.mean() == pytest.approx(0.90, abs=0.02)


class TestClock:
    @pytest.mark.cases(
        "more, clock, clock_hz, said",
        ({}, "nominal", CLOCK, ["core frequency of 1 of 1 runs is nominal"]),
        ({"freq_achieved_hz": 2.5e9}, "achieved", 2.5e9, []),
        # Counted cycles come before both, unless they are of one process.
        ({"freq_achieved_hz": 2.5e9, "cycles": 40 * 3e9}, "counted cycles", 3e9, []),
        ({"cycles": 8 * CLOCK}, "nominal", CLOCK, ["did not cover the whole", "is nominal"]),
    )
    def test_the_best_known_one_counts(self, more, clock, clock_hz, said):
        result = answered(cycles_per_io, table(**more))
        (row,) = result.points.to_dict(orient="records")
        assert (row["clock"], row["clock_hz"]) == (clock, clock_hz)
        assert row["cpio"] == pytest.approx(40 * clock_hz / 4e6)
        assert len(result.caveats) == len(said)
        for text in said:
            assert only(result.caveats, text)

    def test_given_for_runs_that_tell_none(self):
        runs = table().drop(columns="freq_hz")
        assert point(runs, freq=1e9)["cpio"] == pytest.approx(40 * 1e9 / 4e6)
        with pytest.raises(PpwError, match="give the core frequency with --clock"):
            cycles_per_io(runs)


@pytest.mark.cases(
    "runs, options, error, said",
    (table(user_s=-3.0), {}, MeasurementError, "user_s.*-3"),
    (table(sectors_read=-3.0), {}, MeasurementError, "sectors_read.*-3"),
    (table(idle_s=-3.0), {}, MeasurementError, "idle_s.*-3"),
    (table(sectors_read=0.0, sectors_written=0.0), {}, PpwError, "no run read or wrote"),
    (table(freq_hz=np.nan), {}, PpwError, "no run with I/O has a core frequency: give it with --c"),
    (table().drop(columns="sectors_written"), {}, MeasurementError, "no column sectors_w"),
    (study(), {"by": ["cores"]}, UnknownColumnError, "'cores'"),
)
def test_what_cannot_be(runs, options, error, said):
    with pytest.raises(error, match=said):
        cycles_per_io(runs, **options)


class TestWhereItMisleads:
    @pytest.mark.cases(
        "runs, said",
        # 4 million sectors are 2.048 GB of 8.192.
        (table(data_bytes=8.192e9), "caching hides I/O.*only 25% at least"),
        (
            table(*(run(1e4 * n, cores=n, utilisation=0.99) for n in (1, 2, 4))),
            "not bring more I/O",
        ),
        (
            table(run(1e4, device="a"), run(5e3, device="b"), throughput_ops_s=100),
            "2 times as much I/O.*not comparable by cpio alone",
        ),
        (table(run(user=0.89, user_s=86.0), run(workload="other")), "clients that spin.*oltp"),
        (table(cpu_accounting="tick"), "misses up to a third"),
        # 36 s of user and system; interrupts are no task's.
        (table(cpu_accounting="scheduler", tick_busy_s=27.0), "25%.*the clock tick missed"),
        (table(idle_s=15.0 + 7 * 60), "of 8 CPUs where 1.*saw its host's counters"),
    )
    def test_what_is_said(self, runs, said):
        texts = said.split(".*")
        caveat = only(answered(cycles_per_io, runs).caveats, texts[0])
        assert [text for text in texts if text not in caveat] == []

    def test_what_marks_a_point(self):
        result = answered(cycles_per_io, table(data_bytes=1e9, memory_bytes=4e9))
        assert only(result.caveats, "data of 1 of 1 runs fit in memory")
        assert result.points["why_not"].tolist() == ["the data fit in memory"]
        quiet = run(sectors_read=0.0, sectors_written=0.0)
        points = answered(cycles_per_io, table(quiet, run(cores=2))).points
        assert points["why_not"].tolist() == ["no I/O", ""]
        assert points["cpio"].isna().tolist() == [True, False]
        # The others are compared with the fewest cores that did some.
        assert points["cpio_to_one"].iloc[1] == 1.0

    def test_a_run_that_moved_data_is_not_without_io_for_want_of_a_frequency(self):
        blind = pd.DataFrame([run(host="blind"), run()]).assign(cycles=np.nan)
        blind["freq_hz"] = [np.nan, 2e9]
        result = answered(cycles_per_io, blind, by=["host"])
        assert "no core frequency" in result.points["why_not"].tolist()
        assert "blind: no core frequency: give it with --clock" in result.verdict()

    def test_clients_that_rest_and_ticks_that_miss_nothing_are_not_said(self):
        close = table(cpu_accounting="scheduler", tick_busy_s=35.0)
        caveats = " ".join(answered(cycles_per_io, close).caveats)
        assert "tick" not in caveats
        assert "spin" not in caveats


MEMORY = "bandwidth_per_core_bytes_s"


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
            # Eight threads have the CPU time of eight logical CPUs.
            {**run(12.5e3, cores=8, utilisation=0.5), "cores": 4, "hardware_threads": 8},
            run(10e3, cores=8, hardware_threads=8, utilisation=0.5, **{MEMORY: 4e9}),
            # Threads are not compared with cores whose memory bandwidth was taken.
            run(20e3, cores=8, hardware_threads=8, utilisation=0.5, **{MEMORY: 1e9}),
            # Of two points of one setting, with and without a known bandwidth, the first counts.
            run(40e3, cores=8, hardware_threads=8, utilisation=0.5),
        ]
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
        once = answered(cycles_per_io, self.bandwidth_runs(repeats=1)).bandwidth
        assert once["lower"].isna().all()

    def test_a_rise_that_many_draws_do_not_reach_has_no_interval(self):
        costs = (4e9, 0.96e4), (4e9, 1.04e4), (1e9, 1.08e4), (1e9, 1.16e4)
        runs = table(*(run(cost, **{MEMORY: at}) for at, cost in costs))
        rise = answered(cycles_per_io, runs).bandwidth.iloc[0]
        assert 1e9 < rise["value"] < 4e9
        assert np.isnan([rise["lower"], rise["upper"]]).all()

    def test_its_intervals_cover_as_often_as_they_say(self):
        made = (self.bandwidth_runs(noise=0.005, seed=s).assign(load=s / 150) for s in range(150))
        runs = pd.concat(made)
        found = answered(cycles_per_io, runs).bandwidth
        truth = found["rise"].map({0.10: 3.5e9, 0.25: 2e9})
        inside = (found["lower"] <= truth) & (truth <= found["upper"])
        assert inside.mean() == pytest.approx(0.90, abs=0.04)

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


def series(count=10, **more):
    """Intervals of 1 s of a host with 2 CPUs: busy for 0.8 s of 2, and a thousand sectors."""
    host = {"interval_s": 1.0, "host": "node", "cpus": 2, "cpu_accounting": "scheduler"}
    busy = {"user_s": 0.5, "system_s": 0.3, "idle_s": 1.2}
    sectors = {"sectors_read": 1000.0, "sectors_written": 0.0}
    times = pd.DataFrame({"time_s": 1e9 + 1.0 + np.arange(count)})
    return times.assign(**host, **busy, **sectors).assign(**more)


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

    @pytest.mark.cases(
        "column, value, said",
        ("sectors_read", -5e6, "sectors_read went backwards in 1 intervals, first in "),
        ("user_s", -0.5, "user_s went backwards in 1 intervals"),
        ("idle_s", np.nan, "1 intervals lack CPU times or sectors"),
    )
    def test_an_interval_that_cannot_be_used_is_left_out_and_said(self, column, value, said):
        frame = series()
        frame.loc[4, column] = value
        runs = runs_of_series(frame, freq=CLOCK)
        assert runs["intervals"].tolist() == [9.0]
        assert only(answered(cycles_per_io, runs).caveats, said)

    def test_intervals_without_io_are_counted_and_flagged(self):
        frame = series()
        frame.loc[:5, "sectors_read"] = 0.0
        runs = runs_of_series(frame, freq=CLOCK)
        assert runs["intervals_without_io"].tolist() == [6.0]
        result = answered(cycles_per_io, runs)
        assert "6 intervals (60%)" in only(result.caveats, "had no I/O")
        assert result.points["why_not"].tolist() == ["I/O in under half of its intervals"]

    def test_memory_and_what_was_read_are_kept(self):
        frame = series(memory_total_bytes=64e9)
        frame.attrs["digest"] = "sha256:1"
        runs = runs_of_series(frame, freq=CLOCK)
        assert (runs["memory_bytes"].tolist(), runs.attrs["digest"]) == ([64e9], "sha256:1")
        bare = runs_of_series(series().drop(columns="cpu_accounting"), freq=CLOCK)
        assert not {"memory_bytes", "cpu_accounting"} & set(bare)

    def test_what_cannot_be_used_says_what_to_record(self):
        with pytest.raises(PpwError, match="no sectors_read: record CPU times and disks"):
            runs_of_series(series().drop(columns="sectors_read"), freq=CLOCK)
        with pytest.raises(PpwError, match="no interval has both"):
            runs_of_series(series(user_s=np.nan), freq=CLOCK)


SIZE = "--data 20PB --time 30d --cores 16 --server-power 400W"
LEVERS = "--idle-share 60% --pue 1.3 --electricity 0.2 --other-power 200W"
SIZED = f"size {{}} {SIZE}"


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Ask ppw in a folder with runs, and those of fio; rounded, so as not to hang on a last bit."""
    monkeypatch.chdir(tmp_path)
    runs = study(noise=0.02).assign(host="rack1", device="nvme0n1")
    runs.round(3).to_csv("runs.csv", index=False)
    roof = {"host": ["rack1"], "device": ["nvme0n1"], "bandwidth_bytes_s": [800e6]}
    pd.DataFrame(roof).to_csv("fio.csv", index=False)
    return lambda words: ppw_inside(*words.split(), cwd=tmp_path)


# A log of 4 CPUs, half of them busy, that read 2000 sectors a second.
HEADER = f"{CPU_HEADER} [DSK]ReadKBTot [DSK]WriteKBTot"
ROWS = [(f"15:06:4{n}", "50 0 0 0 0 0 0 50 1000 0") for n in range(3)]


class TestCommandLine:
    @pytest.mark.parametrize("words", ["cpio runs.csv", f"size runs.csv {SIZE} {LEVERS}"])
    def test_golden(self, words, asked, tmp_path):
        golden(words, tmp_path)

    @pytest.mark.cases(
        "words, table, column, value",
        ("cpio project runs.csv --cores 16 --growth 70%", "growth", "growth_per_year", 0.7),
        ("cpio compare runs.csv --roof fio.csv", "table", "roof_iops", 800e6 / 512),
        (f"size {SIZE} --cpio 12047 --freq 2GHz", "applications", "cpio", 12047),
    )
    def test_options_reach_the_answer(self, words, table, column, value, asked):
        text = printed(asked(f"{words} --format json"))
        assert json.loads(text)[table][0][column] == pytest.approx(value)

    def test_options_may_stand_before_the_runs(self, asked):
        first = asked("cpio --level 0.5 runs.csv")
        assert first.stdout == asked("cpio runs.csv --level 0.5").stdout
        assert "50% interval" in first.stdout

    @pytest.mark.cases(
        "words, said",
        ("cpio runs.csv --logs", "do not state one core frequency: give --clock"),
        ("cpio project runs.csv", "Missing option '--cores'"),
        ("cpio project runs.csv --cores 8 --growth much", "is not a share"),
        ("size runs.csv --data 3XB", "is not a quantity in B"),
        ("size runs.csv --data 0TB", "must be more than 0"),
        ("size --utilisation 50", "'50' is more than the whole: write 50% or 0.5"),
        ("size --utilisation 0", "Invalid value for '--utilisation'"),
    )
    def test_wrong_usage(self, words, said, asked):
        refused(asked(words), said, code=2)

    @pytest.mark.cases(
        "spelling, amounts",
        ("SIZE", {"35ZB": 35e21, "1.5 TiB": 1.5 * 2**40, "20GB": 20e9}),
        ("TIME", {"1y": 365 * 86400.0, "30d": 30 * 86400.0, "8h": 8 * 3600.0}),
        ("RATE", {"500MB/s": 5e8, "10Gbit/s": 1.25e9, "100Mbit/s": 12.5e6, "1e9": 1e9}),
        ("RATE", {"102.4GB": 102.4e9}),
    )
    def test_large_amounts(self, spelling, amounts):
        for text, value in amounts.items():
            assert kind(spelling).convert(text, None, None) == pytest.approx(value)

    @pytest.mark.parametrize("said", ["--logs", ""], ids=["said", "seen"])
    def test_a_log_is_read_by_windows(self, asked, said):
        """A series of ppw's own: 1.6 s busy of 4 at 2 GHz, and 2000 sectors, in each window."""
        lines = ["time_s,interval_s,host,cpus,user_s,system_s,idle_s,sectors_read,sectors_written"]
        lines += [f"{1_000_000_001 + i},1,node,2,0.5,0.3,1.2,1000,0" for i in range(8)]
        Path("log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        done = asked(f"cpio log.csv {said} --clock 2GHz --window 2s --format json")
        (point,) = json.loads(done.stdout)["points"]
        assert (point["host"], point["cores"], point["runs"]) == ("node", 2, 4)
        assert point["cpio"] == pytest.approx(1.6 * 2e9 / 2000)

    @pytest.mark.parametrize("words", ["cpio project {} --cores 8", "cpio compare {}", SIZED])
    def test_a_log_becomes_a_table_as_it_is_said(self, asked, words):
        written(Path("db7.tab"), plot_log(ROWS, HEADER))
        done = asked(words.format("db7.tab"))
        refused(done, "db7.tab: is a log of a host, no runs table")
        said = re.search(r"make one by ppw (cpio db7\.tab .* (\S+)), with its clock", done.stderr)
        for retyped in (said[1], words.format(said[2])):
            assert asked(retyped).returncode == 0
        told = json.loads(asked(f"cpio {said[2]} --format json").stdout)["points"][0]
        # 2 of 4 CPUs at the clock of the sentence, and 2000 sectors a second.
        assert (told["cpio"], told["iops"]) == pytest.approx((2 * 2.4e9 / 2000, 2000))

    def test_cpus_are_for_a_log_that_does_not_say(self, asked):
        written(Path("says.tab"), plot_log(ROWS, HEADER))
        written(Path("silent.tab"), plot_log(ROWS, HEADER, comments=""))
        done = asked("cpio says.tab --clock 2GHz --cpus 8")
        refused(done, "says.tab: the log states 4 CPUs, but --cpus is 8", code=2)
        for log in ("says.tab", "says.tab --cpus 4", "silent.tab --cpus 4"):
            (point,) = json.loads(asked(f"cpio {log} --clock 2GHz --format json").stdout)["points"]
            # 2 of 4 CPUs at 2 GHz, and 2000 sectors a second.
            assert point["cpio"] == pytest.approx(2 * 2e9 / 2000)

    @pytest.mark.thirdparty
    def test_a_log_of_another_program_is_known_by_itself(self, data_dir, asked):
        log = data_dir / "collectl" / "raw" / "demo_1123.tab.gz"
        named = asked(f"cpio {log} --logs --clock 2.6GHz")
        assert named.returncode == 0
        assert asked(f"cpio {log} --clock 2.6GHz").stdout == named.stdout
        assert "1.746 GHz: Speed(MHz) in the header of collectl" in asked(f"cpio {log}").stderr


@cache
def results():
    runs = study(noise=0.03).assign(host="rack1", device="nvme0n1")
    fio = pd.DataFrame({"bandwidth_bytes_s": [900e6]})
    work = {"data_bytes": 2e16, "time_s": 3e6, "cores": 16, "idle_share": 0.6}
    return {
        report.cpio_page: answered(cycles_per_io, runs),
        report.cpio_projection_page: answered(project_cpio, runs, cores=16, growth=[0.7], years=5),
        report.devices_page: answered(compare_devices, runs, roof=fio),
        report.sizing_page: answered(size_servers, runs, **work, server_power_w=400.0),
    }


def test_the_papers_figures_are_on_the_page():
    cpio, projection, _, sizing = (page(result) for page, result in results().items())
    assert len(cpio.figures) == 4
    titles = [table.title for table in projection.tables]
    assert titles == ["Scenarios", "Laws", "Growth of the market"]
    assert sizing.tables[0].title == "Energy"


def test_bars_of_cpio_stand_on_a_decade():
    axes = report.plot_cpio_by_application(results()[report.cpio_page], Figure().add_subplot())
    assert (axes.get_xscale(), axes.get_xlim()[0]) == ("log", pytest.approx(1e4))
    ends = {}
    breakdown = report.plot_breakdown(results()[report.cpio_page], Figure().add_subplot())
    for bar in breakdown.patches:
        ends[bar.get_y()] = ends.get(bar.get_y(), 0.0) + bar.get_width()
    assert list(ends.values()) == pytest.approx([100.0, 100.0])


@pytest.mark.peer("browser")
def test_pages_read_at_1280_and_400_pixels(tmp_path):
    for make, result in results().items():
        laid_out(make(result), tmp_path, (1280, 400))


def test_the_header_of_collectl_gives_the_core_frequency(tmp_path):
    lines = ["# Collectl: V4.3.20  HiRes: 1  Options: -P", "# Host: vm  Daemon: 0"]
    lines += ["# SubSys: cd Options: Interval: 10 NumCPUs: 2  HZ: 100"]
    lines += ["# Cpu:  GenuineIntel Speed(MHz): 2299.998 Cores: 2", "#" * 20]
    lines += ["#UTC [CPU]User% [CPU]Sys% [CPU]Idle% [DSK]ReadTot [DSK]WriteTot [DSK]ReadKBTot"]
    lines[-1] += " [DSK]WriteKBTot"
    lines += [f"{1.7e9 + 10 * n:.0f} 30 10 60 100 50 4000 2000" for n in range(8)]
    (tmp_path / "day.tab").write_text("\n".join(lines) + "\n")
    done = ppw_inside("cpio", "day.tab", "--logs", "--format", "json", cwd=tmp_path)
    told = "ppw: core frequency 2.3 GHz: Speed(MHz) in the header of collectl"
    assert done.stderr.startswith(told)
    clocked = ppw_inside(
        "cpio", "day.tab", "--logs", "--clock", "2299.998MHz", "--format", "json", cwd=tmp_path
    )
    assert clocked.stdout == done.stdout
    assert done.returncode == 0
