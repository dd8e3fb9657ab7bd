"""What recordings need of a host, alone and together: by hand, from the catalogue, the commands."""

import json
import random

import numpy as np
import pytest
from golden_runs import golden
from hypothesis import example, given, settings, strategies as st
from made_up import answered, only
from processes import ppw_inside, refused, worked
from recordings import START_S, recording
from timeseries_logs import COMMENTS, cpu_row, plain_log, sadf_document, sample, written

from measurements.timeseries import write_time_series
from ppw.catalogue.hosts import find_host
from ppw.errors import PpwError
from ppw.pressure.capacity import Thresholds
from ppw.pressure.co_locate import co_locate, pair_workloads
from ppw.pressure.right_size import right_size

DISK = {"disk_bandwidth_bytes_s": 500e6}
SADF = sadf_document([sample(n, cpu_load=[cpu_row(usr=50.0, idle=50.0)]) for n in range(3)])


def sized(series, **options):
    result = answered(right_size, series, **options)
    return result, result.resources.set_index("resource")


def test_by_hand():
    busy = np.where(np.arange(60) % 10 == 0, 7.2, 6.4)
    series = recording(cores=busy, memory=18e9, read=100e6, received=1e9)
    result, rows = sized(series, capacity=DISK)
    cpu, memory, disk = rows.loc["CPU"], rows.loc["memory"], rows.loc["disk bandwidth"]
    assert (cpu["finding"], cpu["value"], cpu["capacity"]) == ("buy more", pytest.approx(7.2), 8)
    assert (cpu["threshold"], cpu["column"]) == (pytest.approx(0.7), "user_s + system_s + …")
    assert cpu["needed"] == pytest.approx(7.2 / 0.7)
    assert cpu["spare"] == pytest.approx(8 - 7.2 / 0.7)
    assert (memory["finding"], memory["needed"]) == ("enough", pytest.approx(18e9 / 0.8))
    assert (disk["finding"], disk["spare"]) == ("idle", pytest.approx(500e6 - 100e6 / 0.7))
    # Each way is compared with the line rate.
    assert rows.loc[["network in", "network out"], "share"].tolist() == pytest.approx([0.8, 0.08])
    assert "buy 2.286 cores more with 30% headroom" in result.summary()


def test_headroom_replaces_the_high_threshold_and_thresholds_are_those_given():
    rows = sized(recording(cores=5.0), headroom=0.5)[1]
    assert rows.loc["CPU", ["finding", "needed"]].tolist() == ["buy more", 10]
    given = Thresholds().with_others({"cpu_utilisation": {"medium": 0.1, "high": 0.2}}, "mine")
    rows = sized(recording(cores=1.2), thresholds=given)[1]
    assert rows.loc["CPU", ["finding", "medium"]].tolist() == ["enough", 0.1]


def test_a_rare_peak_does_not_count_unless_asked_for():
    busy = np.where(np.arange(100) % 50 == 0, 8.0, 1.0)
    assert sized(recording(cores=busy, seconds=100))[1].loc["CPU", "value"] == 1
    assert sized(recording(cores=busy, seconds=100), quantile=1)[1].loc["CPU", "value"] == 8


def test_a_full_host_may_hide_demand_also_from_a_larger_one():
    result, rows = sized(recording(cores=7.9))
    assert rows.loc["CPU", "at_least"]
    assert "≥ 7.9 cores" in result.summary()
    assert only(result.caveats, "may need more")
    result, rows = sized(recording(cores=7.9), capacity={"cores": 32})
    assert rows.loc["CPU", "finding"] == "idle"
    assert only(result.caveats, "CPU was at 99% of what the host of the recording had")
    assert not sized(recording(cores=7.0), capacity={"cores": 32})[0].caveats


def test_confidence_falls_near_a_threshold():
    rng = np.random.default_rng(1)
    near = recording(cores=rng.normal(5.3, 0.2, 60))
    assert sized(recording(cores=2.0))[1].loc["CPU", "confidence"] == 1
    assert sized(near)[1].loc["CPU", "confidence"] < 0.98
    few, rows = sized(recording(cores=2.0, seconds=5))
    assert np.isnan(rows.loc["CPU", "confidence"])
    assert only(few.caveats, "5 intervals are too few")


def test_what_was_not_measured_is_said():
    series = recording(cores=2.0, without=["sectors_read", "memory_available_bytes", "run_queue"])
    result, rows = sized(series)
    assert rows.loc["disk bandwidth", "finding"] == "not measured"
    assert rows.loc["memory", "finding"] == "not measured"
    assert rows.loc["disk I/Os", "finding"] == "capacity not known"
    assert "run_queue" in rows.loc["CPU", "not_measured"]
    assert "memory, memory bandwidth, disk bandwidth: not measured" in result.summary()
    unknown = ["user_s", "memory_available_bytes", "sectors_read", "ios"]
    unknown += ["network_rx_bytes", "network_tx_bytes"]
    assert "ppw can judge none" in sized(recording(without=unknown))[0].summary()


def test_an_idle_host_says_what_to_tune():
    result, _ = sized(recording(cores=0.9, memory=2e9, read=10e6), capacity=DISK)
    assert not result.stresses_the_host
    said = result.verdict()[0]
    assert "does not stress this host" in said
    assert "CPU at 11%" in said
    assert "medium begins at 30%" in said
    assert "more clients" in said
    # Medium itself is stress.
    assert sized(recording(cores=2.4))[0].stresses_the_host
    assert only(sized(recording(cores=1.0))[0].caveats, "one thread")


def test_candidates_have_the_cores_and_the_memory_bandwidth_that_are_needed():
    result, rows = sized(recording(cores=np.full(60, 7.0)))
    assert rows.loc["CPU", "needed"] == pytest.approx(10)
    fits = result.candidates[result.candidates["fits"]]
    assert (fits["cores"] >= 10).all()
    assert fits["cores"].is_monotonic_increasing
    assert not (result.candidates.loc[~result.candidates["fits"], "cores"] >= 10).any()
    assert "if theirs are as fast" in result.summary()
    result, _ = sized(recording(cores=600.0, cpus=1024))
    assert not result.candidates["fits"].any()
    assert "no host of the catalogue" in result.summary()
    _, rows = sized(recording(cores=4.0), host=find_host("E5-2690"))
    found = rows.loc["CPU", ["capacity", "capacity_source"]].tolist()
    assert found == [16, "catalogue: Xeon E5-2690"]
    # Memory bandwidth counts where both are known.
    series = recording(cores=1.5)
    series.frame["memory_read_bytes"] = 50e9
    series.frame["memory_written_bytes"] = 10e9
    result, _ = sized(series, capacity={"memory_bandwidth_bytes_s": 200e9})
    table = result.candidates.set_index("host")
    assert not table.loc["Xeon E5-2690", "fits"]
    assert table.loc["EPYC 9654", "fits"]


TWO_HOSTS = recording()
TWO_HOSTS.frame.loc[30:, "host"] = "other"


@pytest.mark.cases(
    "series, options, said",
    (recording(), {"headroom": 1.0}, "headroom"),
    (recording(), {"quantile": 0.0}, "quantile"),
    (recording(), {"capacity": {"cpus": 8}}, "no capacity"),
    (TWO_HOSTS, {}, "is of host 'lab' and of 'other': read one host at a time"),
    ("db.json", {}, "series is a str, not a TimeSeries: read a log with .*read_time"),
    (recording(seconds=0), {}, "no interval"),
)
def test_what_cannot_be_right_sized_is_refused(series, options, said):
    with pytest.raises(PpwError, match=said):
        right_size(series, **options)


def test_right_sizing_is_answered_from_a_recording(tmp_path):
    write_time_series(recording(cores=7.0), tmp_path / "db7.csv")
    done = worked(ppw_inside("rightsize", "db7.csv", "--disk-bandwidth", "500MB/s", cwd=tmp_path))
    assert "buy 2 cores more with" in done.stdout
    assert " 500 MB/s " in done.stdout


@pytest.mark.parametrize(("name", "logs"), [("rightsize", 1), ("colocate", 2)])
@pytest.mark.parametrize(
    ("text", "cpus"),
    [(plain_log(), 4), (SADF, 4), (plain_log().removeprefix(COMMENTS), 8)],
    ids=["plain", "sadf", "silent"],
)
def test_cpus_given_are_those_to_fit_on(tmp_path, name, logs, text, cpus):
    names = [written(tmp_path / f"{n}.log", text) for n in range(logs)]
    done = ppw_inside(name, *names, "--cpus", "8", "--format", "json", cwd=tmp_path)
    told = json.loads(done.stdout)
    # Half of the CPUs that a log names are busy, or else of those given.
    cpu = told["resources"][0]
    assert (cpu["value"], cpu["capacity"]) == (logs * cpus / 2, 8)
    said = [c for c in told["caveats"] if "does not say how many CPUs" in c]
    assert bool(said) == (cpus == 8)


def shared(recordings, **options):
    result = answered(co_locate, recordings, **options)
    return result, result.resources.set_index("resource")


def three():
    wave = 2 + np.sin(np.arange(60) / 5)
    return {
        "scan": recording(cores=1, memory=2e9, read=300e6),
        "cache": recording(cores=wave, memory=12e9, received=100e6),
        "batch": recording(cores=6, memory=8e9, read=50e6),
    }


def test_cores_break_and_the_rest_does_not():
    result, rows = shared(three(), capacity=DISK)
    cpu = rows.loc["CPU"]
    assert result.first == "CPU"
    assert not result.fits
    assert (cpu["finding"], cpu["over"], cpu["threshold"]) == ("breaks", 1.0, 1.0)
    peak = 7 + float((2 + np.sin(np.arange(60) / 5)).max())
    assert cpu["peak"] == pytest.approx(peak)
    assert cpu["excess"] == pytest.approx(peak - 8)
    assert cpu["breaks_at"] == pytest.approx(8 / cpu["value"])
    assert rows.loc["memory", "value"] == pytest.approx(22e9)
    assert rows.loc["disk bandwidth", "value"] == pytest.approx(350e6)
    assert rows.loc["disk bandwidth", "finding"] == "fits"
    assert "67% of it is of batch" in result.summary()
    _, rows = shared(three(), host=find_host("EPYC 9654"))
    assert rows.loc["CPU", ["capacity", "finding"]].tolist() == [192, "fits"]


def test_how_often_and_how_long():
    bursts = np.where((np.arange(60) % 20) < 5, 6.0, 1.0)
    _, rows = shared({"a": recording(cores=bursts), "b": recording(cores=3.0)})
    cpu = rows.loc["CPU"]
    assert (cpu["over"], cpu["longest_s"]) == (pytest.approx(15 / 60), 5)
    assert cpu["excess"] == pytest.approx(1)
    # Tight from four fifths on.
    _, rows = shared({"a": recording(cores=3.4), "b": recording(cores=3.4)})
    assert rows.loc["CPU", "finding"] == "tight"


def test_bursts_that_do_not_meet_do_not_break():
    even = np.where(np.arange(60) % 20 < 10, 6.0, 1.0)
    meet, _ = shared({"a": recording(cores=even), "b": recording(cores=even)})
    apart, _ = shared({"a": recording(cores=even), "b": recording(cores=7.0 - even)})
    assert not meet.fits
    assert apart.fits
    # They share the host as long as both were recorded.
    assert shared({"a": recording(), "b": recording(seconds=40)})[0].seconds == 40


def test_the_idle_host_counts_once():
    idle = recording(cores=0.5, memory=1e9)
    loads = {"a": recording(cores=2.5, memory=3e9), "b": recording(cores=1.5, memory=2e9)}
    twice, with_twice = shared(loads)
    _, once = shared(loads, idle=idle)
    assert only(twice.caveats, "counted 2 times")
    assert with_twice.loc["CPU", "value"] == pytest.approx(4.0)
    assert once.loc["CPU", "value"] == pytest.approx(3.5)
    assert once.loc["memory", "value"] == pytest.approx(4e9)


def test_what_a_latency_critical_workload_queues_for_is_kept_lower():
    two = {"cache": recording(cores=2.0, memory=26e9), "batch": recording(cores=4.0)}
    plain, _ = shared(two)
    guarded, rows = shared(two, latency_critical=["cache"])
    assert plain.fits
    assert not guarded.fits
    assert (rows.loc["CPU", "threshold"], rows.loc["CPU", "protected"]) == (0.7, True)
    assert (rows.loc["memory", "threshold"], rows.loc["memory", "protected"]) == (1.0, False)
    # What it does not use is not kept.
    _, rows = shared(three(), capacity=DISK, latency_critical=["cache"])
    assert rows.loc["disk bandwidth", "threshold"] == 1.0
    assert rows.loc["network in", "threshold"] == 0.7
    assert "cache must not wait: CPU may be used to 70%" in guarded.summary()


def test_the_clock_keeps_the_time_of_recording():
    step = np.where(np.arange(60) < 30, 7.0, 1.0)
    later = recording(cores=7.0, start_s=START_S + 30)
    both = {"a": recording(cores=step), "b": later}
    clock, rows = shared(both, align="clock")
    assert clock.seconds == 30
    assert rows.loc["CPU", "value"] == pytest.approx(8)
    assert shared(both)[1].loc["CPU", "value"] == pytest.approx(14)
    with pytest.raises(PpwError, match="not recorded at the same time"):
        co_locate({"a": recording(), "b": recording(start_s=START_S + 600)}, align="clock")


def test_the_day_brings_the_same_hours_together():
    hour = 3600
    busy = np.where(np.arange(hour) < hour / 2, 6.0, 1.0)
    today = recording(cores=busy, seconds=hour)
    another = recording(cores=7.0 - busy, seconds=hour, start_s=START_S + 3 * 86_400)
    result, rows = shared({"a": today, "b": another}, align="day")
    assert rows.loc["CPU", "peak"] == pytest.approx(7)
    assert result.seconds == 86_400


def test_any_moment_may_meet_any_other():
    busy = np.where(np.arange(200) % 10 < 3, 5.0, 1.0)
    result, rows = shared(
        {"a": recording(cores=busy, seconds=200), "b": recording(cores=busy[:100], seconds=100)},
        align="any",
    )
    assert (rows.loc["CPU", "over"], rows.loc["CPU", "peak"]) == (pytest.approx(0.09, abs=0.01), 10)
    assert (result.seconds, len(result.timeline)) == (0, 0)
    assert result.plot().has_data()


def test_intervals_of_unlike_length_meet():
    slow = recording(cores=2.0, seconds=12)
    slow.frame["interval_s"] = 5.0
    slow.frame["time_s"] = START_S + 5 * (1 + np.arange(12))
    for column in ("user_s", "system_s", "idle_s"):
        slow.frame[column] *= 5
    _, rows = shared({"a": slow, "b": recording(cores=np.tile([1.0, 3.0, 1.0, 3.0, 2.0], 12))})
    assert rows.loc["CPU", "value"] == pytest.approx(4.0)
    assert rows.loc["CPU", "peak"] == pytest.approx(4.0)
    # One that is shorter than an interval of the other.
    assert shared({"a": slow, "b": recording(seconds=3)})[0].seconds == 5


@settings(max_examples=settings.default.max_examples // 5)
@example([0.0, 2.2250738585072014e-308], random.Random(0))
@given(st.lists(st.floats(0.0, 8.0), min_size=2, max_size=5), st.randoms())
def test_sums_do_not_depend_on_the_order(cores, shuffler):
    loads = {str(k): recording(cores=c, seconds=12) for k, c in enumerate(cores)}
    order = list(loads)
    shuffler.shuffle(order)
    there, _ = shared(loads)
    here, _ = shared({name: loads[name] for name in order})
    there, here = there.resources, here.resources
    assert there["value"].to_numpy() == pytest.approx(here["value"].to_numpy(), nan_ok=True)
    assert there["value"].iloc[0] == pytest.approx(sum(cores), abs=1e-9)


@pytest.mark.cases(
    "one, cpus, options, said",
    *((7.9, 8, {}, "a filled CPU"), (7.9, 8, {"capacity": {"cores": 32}}, "a filled CPU")),
    *((0.5, 8, {}, "a does not load its host"), (1.0, 16, {}, "from different hosts")),
)
def test_demands_that_mislead_are_said(one, cpus, options, said):
    loads = {"a": recording(cores=one), "b": recording(cores=4.0, cpus=cpus)}
    assert only(shared(loads, **options)[0].caveats, said)


def test_what_is_not_judged_is_said():
    loads = {"a": recording(cores=4.0, without=["sectors_read"]), "b": recording(cores=4.0)}
    result, rows = shared(loads, capacity=DISK)
    assert rows.loc["disk bandwidth", "finding"] == "not measured"
    assert rows.loc["disk bandwidth", "not_measured"] == "demand of a"
    assert "disk bandwidth: not measured" in result.summary()


@pytest.mark.cases(
    "options, said",
    ({"latency_critical": ["x"]}, "no workload is called 'x'"),
    ({"ceiling": 0}, "ceiling"),
    ({"latency_ceiling": 2}, "latency_ceiling"),
    ({"quantile": 1.5}, "quantile"),
    ({"align": "never"}, "align"),
)
def test_what_cannot_share_is_refused(options, said):
    with pytest.raises(PpwError, match=said):
        co_locate({"a": recording(), "b": recording()}, **options)


@pytest.mark.parametrize("ask", [co_locate, pair_workloads])
def test_what_is_no_series_is_told_what_to_give(ask):
    for wrong in ({"a": "a.json", "b": recording()}, {"b": recording(), "a": "a.json"}):
        with pytest.raises(PpwError, match="a is a str, not a TimeSeries: read a log with"):
            ask(wrong)
    with pytest.raises(PpwError, match="idle is a str, not a TimeSeries"):
        ask({"a": recording(), "b": recording()}, idle="a.json")
    with pytest.raises(PpwError, match="recordings is a list, not a mapping"):
        ask([recording(), recording()])
    with pytest.raises(PpwError, match="two or more"):
        ask({"a": recording()})


def test_pairs_are_those_of_two_alone_and_the_best_is_first():
    pairs = answered(pair_workloads, three(), capacity=DISK)
    rows = pairs.pairs.set_index(["workload", "with"])
    assert len(rows) == 3
    for pair in rows.index:
        alone, resources = shared({name: three()[name] for name in pair}, capacity=DISK)
        assert rows.loc[pair, "first"] == alone.first
        assert rows.loc[pair, "share"] == pytest.approx(resources.loc[alone.first, "share"])
    assert {*rows.index[0]} == {"scan", "cache"}
    assert {*rows.index[-1]} == {"cache", "batch"}
    assert rows["finding"].iloc[-1] == "breaks"
    assert "not together: cache + batch (CPU)" in pairs.summary()
    assert pairs.matrix()[1][3] == "CPU 112%!"


def test_protection_holds_in_the_pairs_that_it_is_in():
    result = answered(pair_workloads, three(), capacity=DISK, latency_critical=["cache"])
    rows = result.pairs.set_index(["workload", "with"])
    assert rows.loc[("scan", "cache"), "threshold"] == 0.7
    assert rows.loc[("scan", "batch"), "threshold"] == 1.0
    with pytest.raises(PpwError, match="no workload"):
        pair_workloads(three(), latency_critical=["x"])


def test_golden_and_pairs_under_names(tmp_path):
    logs = [f"{name}.csv" for name in three()]
    for series, log in zip(three().values(), logs, strict=True):
        write_time_series(series, tmp_path / log)
    options = "--disk-bandwidth 500MB/s --latency-critical cache"
    golden(f"colocate {' '.join(logs)} {options}", tmp_path)
    named = [f"w{place}={log}" for place, log in enumerate(logs)]
    done = ppw_inside("colocate", *named, "--pairs", "--format", "json", cwd=tmp_path)
    assert json.loads(done.stdout)["workloads"] == ["w0", "w1", "w2"]
    done = ppw_inside("colocate", logs[0], logs[0], cwd=tmp_path)
    refused(done, "name them, NAME=LOG", code=2)
