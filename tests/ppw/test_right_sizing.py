"""What a recording needs of each resource: worked by hand, from the catalogue, and the command."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from golden_runs import golden
from made_up import answered, only
from recordings import recording
from timeseries_logs import COMMENTS, cpu_row, plain_log, sadf_document, sample, written

from measurements.timeseries import write_time_series
from ppw.cli.rightsize import command
from ppw.errors import PpwError
from ppw.hosts import find_host
from ppw.pressure.thresholds import Thresholds
from ppw.provisioning.right_sizing import right_size
from ppw.provisioning.right_sizing_result import RightSizing
from ppw.report.right_sizing_page import right_sizing_page

DISK = {"disk_bandwidth_bytes_s": 500e6}


def sized(series, **options):
    result = answered(right_size, series, **options)
    return result, result.resources.set_index("resource")


def sadf_log():
    rows = [cpu_row(usr=50.0, idle=50.0)]
    return sadf_document([sample(n, cpu_load=rows) for n in range(3)])


# Worked by hand, with thresholds of 30 % and 70 %.


def test_by_hand():
    busy = np.where(np.arange(60) % 10 == 0, 7.2, 6.4)
    result, rows = sized(recording(cores=busy, memory=18e9, read=100e6), capacity=DISK)
    cpu, memory, disk = rows.loc["CPU"], rows.loc["memory"], rows.loc["disk bandwidth"]
    assert (cpu["finding"], cpu["value"], cpu["capacity"]) == ("buy more", pytest.approx(7.2), 8)
    assert (cpu["threshold"], cpu["column"]) == (pytest.approx(0.7), "user_s + system_s + …")
    assert cpu["needed"] == pytest.approx(7.2 / 0.7)
    assert cpu["spare"] == pytest.approx(8 - 7.2 / 0.7)
    assert (memory["finding"], memory["needed"]) == ("enough", pytest.approx(18e9 / 0.8))
    assert (disk["finding"], disk["spare"]) == ("idle", pytest.approx(500e6 - 100e6 / 0.7))
    assert "buy 2.286 cores more with 30% headroom" in result.summary()


def test_headroom_replaces_the_high_threshold():
    _, rows = sized(recording(cores=5.0), headroom=0.5)
    assert rows.loc["CPU", "finding"] == "buy more"
    assert rows.loc["CPU", "needed"] == pytest.approx(10)


def test_thresholds_are_those_given():
    given = Thresholds().replaced({"cpu_utilisation": {"medium": 0.1, "high": 0.2}}, "mine")
    _, rows = sized(recording(cores=1.2), thresholds=given)
    assert (rows.loc["CPU", "finding"], rows.loc["CPU", "medium"]) == ("enough", 0.1)


def test_a_rare_peak_does_not_count_unless_asked_for():
    busy = np.where(np.arange(100) % 50 == 0, 8.0, 1.0)
    assert sized(recording(cores=busy, seconds=100))[1].loc["CPU", "value"] == 1
    assert sized(recording(cores=busy, seconds=100), quantile=1)[1].loc["CPU", "value"] == 8


def test_a_full_host_may_hide_demand():
    result, rows = sized(recording(cores=7.9))
    assert rows.loc["CPU", "at_least"]
    assert "≥ 7.9 cores" in result.summary()
    assert only(result.caveats, "may want more")


def test_a_host_that_was_full_may_hide_demand_from_a_larger_one():
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
    assert only(few.caveats, "5 intervals say nothing")


# Not measured is an answer.


def test_what_was_not_measured_is_said():
    series = recording(cores=2.0, without=["sectors_read", "memory_available_bytes", "run_queue"])
    result, rows = sized(series)
    assert rows.loc["disk bandwidth", "finding"] == "not measured"
    assert rows.loc["memory", "finding"] == "not measured"
    assert rows.loc["disk I/Os", "finding"] == "capacity not known"
    assert "run_queue" in rows.loc["CPU", "not_measured"]
    assert "memory, memory bandwidth, disk bandwidth: not measured" in result.summary()


def test_network_is_held_against_the_line_rate_each_way():
    _, rows = sized(recording(cores=1.0, received=1e9))
    assert rows.loc["network in", "share"] == pytest.approx(0.8)
    assert rows.loc["network out", "share"] == pytest.approx(0.08)


# A test that does not stress its host.


def test_an_idle_host_says_what_to_tune():
    result, _ = sized(recording(cores=0.9, memory=2e9, read=10e6), capacity=DISK)
    assert not result.stresses_the_host
    said = result.verdict()[0]
    assert "does not stress this host" in said
    assert "CPU at 11%" in said
    assert "medium begins at 30%" in said
    assert "more clients" in said


def test_medium_itself_is_stress():
    result, _ = sized(recording(cores=2.4))
    assert result.stresses_the_host


def test_nothing_known_cannot_be_judged():
    series = recording(
        without=[
            "user_s",
            "memory_available_bytes",
            "network_rx_bytes",
            "network_tx_bytes",
            "sectors_read",
            "ios",
        ]
    )
    assert "nothing can be judged" in sized(series)[0].summary()


def test_one_steady_core_of_many():
    result, _ = sized(recording(cores=1.0))
    assert only(result.caveats, "one thread")


# Hosts of the catalogue.


def test_candidates_have_the_cores_that_are_needed():
    result, rows = sized(recording(cores=np.full(60, 7.0)))
    assert rows.loc["CPU", "needed"] == pytest.approx(10)
    fits = result.candidates[result.candidates["fits"]]
    assert (fits["cores"] >= 10).all()
    assert fits["cores"].is_monotonic_increasing
    assert (result.candidates.loc[~result.candidates["fits"], "cores"] < 10).all()
    assert "if theirs are as fast" in result.summary()


def test_memory_bandwidth_counts_where_both_are_known():
    series = recording(cores=1.5)
    series.frame["memory_read_bytes"] = 50e9
    series.frame["memory_written_bytes"] = 10e9
    result, _ = sized(series, capacity={"memory_bandwidth_bytes_s": 200e9})
    table = result.candidates.set_index("host")
    assert not table.loc["Xeon E5-2690", "fits"]
    assert table.loc["EPYC 9654", "fits"]


def test_no_host_is_large_enough():
    result, _ = sized(recording(cores=600.0, cpus=1024))
    assert not result.candidates["fits"].any()
    assert "no host of the catalogue" in result.summary()


def test_a_host_of_the_catalogue_gives_its_capacity():
    _, rows = sized(recording(cores=4.0), host=find_host("E5-2690"))
    assert rows.loc["CPU", "capacity"] == 16
    assert rows.loc["CPU", "capacity_source"] == "catalogue: Xeon E5-2690"


# What is refused, and the result.


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"headroom": 1.0}, "headroom"),
        ({"quantile": 0.0}, "quantile"),
        ({"capacity": {"cpus": 8}}, "no capacity"),
    ],
)
def test_what_cannot_be_is_refused(options, said):
    with pytest.raises(PpwError, match=said):
        right_size(recording(), **options)


def test_a_recording_of_two_hosts_is_refused():
    series = recording()
    series.frame.loc[30:, "host"] = "other"
    with pytest.raises(PpwError, match="is of host 'lab' and of 'other': read one host at a time"):
        right_size(series)


def test_what_is_no_series_is_told_what_to_give():
    with pytest.raises(
        PpwError, match=r"series is a str, not a TimeSeries: read a log with .*read_time"
    ):
        right_size("db.json")


def test_an_empty_recording_is_refused():
    with pytest.raises(PpwError, match="no interval"):
        right_size(recording(seconds=0))


def test_comes_back_from_json():
    result, _ = sized(recording(cores=7.9), capacity=DISK)
    again = RightSizing.from_json(result.to_json())
    assert again.summary() == result.summary()
    pd.testing.assert_frame_equal(again.resources, result.resources)


def test_page_has_the_answer_first():
    html = right_sizing_page(sized(recording(cores=7.0))[0]).render()
    assert html.index("buy 2 cores more") < html.index("<svg")


class TestCommand:
    def test_golden(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write_time_series(recording(cores=7.0, memory=18e9, read=100e6), "db7.csv")
        asked = ["db7.csv", "--disk-bandwidth", "500MB/s"]
        golden("rightsize.txt", f"$ ppw rightsize {' '.join(asked)}\n", command, asked)

    def test_answers_from_a_recording(self, tmp_path):
        file = tmp_path / "db7.csv"
        write_time_series(recording(cores=7.0), file)
        done = CliRunner().invoke(command, [str(file), "--disk-bandwidth", "500MB/s"])
        assert done.exit_code == 0, done.output
        assert "buy 2 cores more with" in done.output
        told = CliRunner().invoke(command, [str(file), "--format", "json", "--cpus", "16"])
        assert json.loads(told.output)["resources"][0]["capacity"] == 16

    @pytest.mark.parametrize("text", [plain_log(), sadf_log()])
    def test_cpus_are_those_to_fit_on(self, tmp_path, text):
        # Half of the 4 CPUs that the log names, whatever host it is to fit on.
        asked = [str(written(tmp_path / "db7", text)), "--cpus", "8", "--format", "json"]
        cpu = json.loads(CliRunner().invoke(command, asked).output)["resources"][0]
        assert (cpu["value"], cpu["capacity"]) == (2, 8)

    def test_cpus_of_a_log_that_does_not_say_are_a_caveat(self, tmp_path):
        log = written(tmp_path / "db7.txt", plain_log().removeprefix(COMMENTS))
        asked = [str(log), "--cpus", "8", "--format", "json"]
        told = json.loads(CliRunner().invoke(command, asked).output)
        assert told["resources"][0]["value"] == 4
        assert only(told["caveats"], "taken to be of the 8 that were given")
