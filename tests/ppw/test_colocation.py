"""Workloads on one host: sums worked by hand, alignments, protection, pairs, and the command."""

from __future__ import annotations

import json
import random

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from golden_runs import golden
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_up import answered, only
from recordings import START_S, recording
from timeseries_logs import COMMENTS, plain_log, written

from measurements.timeseries import write_time_series
from ppw.cli.colocate import command
from ppw.errors import PpwError
from ppw.hosts import find_host
from ppw.provisioning.co_location import co_locate
from ppw.provisioning.co_location_result import CoLocation
from ppw.provisioning.pairing import Pairing, pair_workloads
from ppw.report.co_location_page import co_location_page
from ppw.report.pairing_page import pairing_page

DISK = {"disk_bandwidth_bytes_s": 500e6}


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


# Sums by hand.


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


def test_how_often_and_how_long():
    bursts = np.where((np.arange(60) % 20) < 5, 6.0, 1.0)
    _, rows = shared({"a": recording(cores=bursts), "b": recording(cores=3.0)})
    cpu = rows.loc["CPU"]
    assert cpu["over"] == pytest.approx(15 / 60)
    assert cpu["longest_s"] == 5
    assert cpu["excess"] == pytest.approx(1)


def test_bursts_that_do_not_meet_do_not_break():
    even = np.where(np.arange(60) % 20 < 10, 6.0, 1.0)
    meet, _ = shared({"a": recording(cores=even), "b": recording(cores=even)})
    apart, _ = shared({"a": recording(cores=even), "b": recording(cores=7.0 - even)})
    assert not meet.fits
    assert apart.fits


def test_tight_from_four_fifths_on():
    _, rows = shared({"a": recording(cores=3.4), "b": recording(cores=3.4)})
    assert rows.loc["CPU", "finding"] == "tight"


def test_the_idle_host_counts_once():
    idle = recording(cores=0.5, memory=1e9)
    loads = {"a": recording(cores=2.5, memory=3e9), "b": recording(cores=1.5, memory=2e9)}
    twice, with_twice = shared(loads)
    _, once = shared(loads, idle=idle)
    assert only(twice.caveats, "counted 2 times")
    assert with_twice.loc["CPU", "value"] == pytest.approx(4.0)
    assert once.loc["CPU", "value"] == pytest.approx(3.5)
    assert once.loc["memory", "value"] == pytest.approx(4e9)


def test_another_host():
    _, rows = shared(three(), host=find_host("EPYC 9654"))
    assert rows.loc["CPU", "capacity"] == 192
    assert rows.loc["CPU", "finding"] == "fits"


# Latency-critical workloads.


def test_what_a_latency_critical_workload_queues_for_is_kept_lower():
    two = {"cache": recording(cores=2.0, memory=26e9), "batch": recording(cores=4.0)}
    plain, _ = shared(two)
    guarded, rows = shared(two, latency_critical=["cache"])
    assert plain.fits
    assert not guarded.fits
    assert (rows.loc["CPU", "threshold"], rows.loc["CPU", "protected"]) == (0.7, True)
    assert (rows.loc["memory", "threshold"], rows.loc["memory", "protected"]) == (1.0, False)
    assert "cache must not wait: CPU may be used to 70%" in guarded.summary()


def test_what_it_does_not_use_is_not_kept():
    _, rows = shared(three(), capacity=DISK, latency_critical=["cache"])
    assert rows.loc["disk bandwidth", "threshold"] == 1.0
    assert rows.loc["network in", "threshold"] == 0.7


# Times.


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
    assert rows.loc["CPU", "over"] == pytest.approx(0.09, abs=0.01)
    assert rows.loc["CPU", "peak"] == 10
    assert result.seconds == 0
    assert len(result.timeline) == 0
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


# Properties.


@settings(max_examples=25)
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


# Caveats.


def test_a_workload_that_filled_its_host_may_want_more():
    result, _ = shared({"a": recording(cores=7.9), "b": recording(cores=3.0)})
    assert only(result.caveats, "a filled CPU")


def test_a_workload_that_filled_a_smaller_host_may_want_more():
    loads = {"a": recording(cores=7.9), "b": recording(cores=3.0)}
    assert only(shared(loads, capacity={"cores": 32})[0].caveats, "a filled CPU")


def test_a_recording_that_stresses_nothing_is_named():
    result, _ = shared({"a": recording(cores=0.5), "b": recording(cores=4.0)})
    assert only(result.caveats, "a does not stress its host")


def test_unlike_hosts_are_said():
    loads = {"a": recording(cores=1.0), "b": recording(cores=4.0, cpus=16)}
    assert only(shared(loads)[0].caveats, "unlike hosts")


def test_what_is_not_judged_is_said():
    loads = {"a": recording(cores=4.0, without=["sectors_read"]), "b": recording(cores=4.0)}
    result, rows = shared(loads, capacity=DISK)
    assert rows.loc["disk bandwidth", "finding"] == "not measured"
    assert rows.loc["disk bandwidth", "not_measured"] == "demand of a"
    assert "disk bandwidth: not measured" in result.summary()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"latency_critical": ["x"]}, "no workload is called 'x'"),
        ({"ceiling": 0}, "ceiling"),
        ({"latency_ceiling": 2}, "latency_ceiling"),
        ({"quantile": 1.5}, "quantile"),
        ({"align": "never"}, "align"),
    ],
)
def test_what_cannot_be_is_refused(options, said):
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


def test_one_workload_shares_nothing():
    for ask in (co_locate, pair_workloads):
        with pytest.raises(PpwError, match="two or more"):
            ask({"a": recording()})


# Pairs.


def paired(recordings=None, **options):
    return answered(pair_workloads, recordings or three(), capacity=dict(DISK), **options)


def test_pairs_are_those_of_two_alone():
    result = paired()
    rows = result.pairs.set_index(["workload", "with"])
    assert len(rows) == 3
    for pair in rows.index:
        alone = answered(co_locate, {name: three()[name] for name in pair}, capacity=dict(DISK))
        assert rows.loc[pair, "first"] == alone.first
        share = alone.resources.set_index("resource").loc[alone.first, "share"]
        assert rows.loc[pair, "share"] == pytest.approx(share)


def test_the_best_pair_is_first():
    result = paired()
    best, worst = result.pairs.iloc[0], result.pairs.iloc[-1]
    assert {best["workload"], best["with"]} == {"scan", "cache"}
    assert {worst["workload"], worst["with"]} == {"cache", "batch"}
    assert worst["finding"] == "breaks"
    assert "not together: cache + batch (CPU)" in result.summary()
    assert result.matrix()[1][3] == "CPU 112%!"


def test_protection_holds_in_the_pairs_that_it_is_in():
    rows = paired(latency_critical=["cache"]).pairs.set_index(["workload", "with"])
    assert rows.loc[("scan", "cache"), "threshold"] == 0.7
    assert rows.loc[("scan", "batch"), "threshold"] == 1.0
    with pytest.raises(PpwError, match="no workload"):
        pair_workloads(three(), latency_critical=["x"])


# Results.


@pytest.mark.parametrize("align", ["start", "any"])
def test_comes_back_from_json(align):
    result, _ = shared(three(), capacity=DISK, align=align)
    again = CoLocation.from_json(result.to_json())
    assert again.summary() == result.summary()
    pd.testing.assert_frame_equal(again.resources, result.resources)


def test_pairs_come_back_from_json():
    result = paired()
    again = Pairing.from_json(result.to_json())
    assert again.summary() == result.summary()
    pd.testing.assert_frame_equal(again.pairs, result.pairs)


def test_pages_have_the_answer_first():
    html = co_location_page(shared(three(), capacity=DISK)[0]).render()
    assert html.index("CPU breaks first") < html.index("<svg")
    html = pairing_page(paired()).render()
    assert html.index("go together best") < html.index("<svg")


class TestCommand:
    @pytest.fixture
    def logs(self, tmp_path):
        made = []
        for name, series in three().items():
            write_time_series(series, tmp_path / f"{name}.csv")
            made.append(str(tmp_path / f"{name}.csv"))
        return made

    @pytest.mark.parametrize(
        ("name", "more"),
        [("colocate.txt", ["--latency-critical", "cache"]), ("colocate-pairs.txt", ["--pairs"])],
    )
    def test_golden(self, logs, tmp_path, monkeypatch, name, more):
        monkeypatch.chdir(tmp_path)
        asked = ["scan.csv", "cache.csv", "batch.csv", "--disk-bandwidth", "500MB/s", *more]
        golden(name, f"$ ppw colocate {' '.join(asked)}\n", command, asked)

    def test_together(self, logs):
        done = CliRunner().invoke(command, [*logs, "--disk-bandwidth", "500MB/s"])
        assert done.exit_code == 0, done.output
        assert "CPU breaks first" in done.output
        assert "of batch" in done.output

    def test_cpus_are_those_to_share(self, tmp_path):
        logs = [str(written(tmp_path / name, plain_log())) for name in ("a.tab", "b.tab")]
        asked = [*logs, "--cpus", "8", "--format", "json"]
        cpu = json.loads(CliRunner().invoke(command, asked).output)["resources"][0]
        # Half of 4 CPUs twice.
        assert (cpu["value"], cpu["capacity"]) == (4, 8)

    def test_cpus_of_logs_that_do_not_say_are_a_caveat(self, tmp_path):
        text = plain_log().removeprefix(COMMENTS)
        logs = [str(written(tmp_path / name, text)) for name in ("a.txt", "b.txt")]
        told = json.loads(
            CliRunner().invoke(command, [*logs, "--cpus", "8", "--format", "json"]).output
        )
        assert only(told["caveats"], "a.txt: the log does not say how many CPUs")

    def test_pairs_under_names(self, logs):
        named = [f"w{place}={log}" for place, log in enumerate(logs)]
        done = CliRunner().invoke(command, [*named, "--pairs", "--format", "json"])
        assert json.loads(done.output)["workloads"] == ["w0", "w1", "w2"]

    def test_names_that_are_taken(self, logs):
        done = CliRunner().invoke(command, [logs[0], logs[0]])
        assert done.exit_code == 2
        assert "name them, NAME=LOG" in done.output
