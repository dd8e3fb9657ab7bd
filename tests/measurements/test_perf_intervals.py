"""``perf stat -j -I``: by hand for memory controllers, and perf itself for what counts here."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest
from timeseries_logs import START_S, written

from measurements.errors import MeasurementError
from measurements.timeseries import read_time_series
from measurements.timeseries.perf_intervals import recognises


def line(interval, event, value, unit="", **more):
    return json.dumps(
        {"interval": interval, **more, "counter-value": value, "unit": unit, "event": event}
    )


def log(*lines, start="# started on Sun Jun 15 15:06:40 2025\n\n"):
    return start + "".join(f"{text}\n" for text in lines)


def read(tmp_path, text, **options):
    return read_time_series(written(tmp_path / "perf.json", text), **options)


def said(series):
    return " | ".join(finding.text for finding in series.findings)


def test_cache_lines_of_all_controllers(tmp_path):
    lines = [
        line(at, event, "1000000.000000", socket=socket)
        for at in (1.0, 3.0)
        for event in ("UNC_M_CAS_COUNT.RD", "UNC_M_CAS_COUNT.WR")
        for socket in ("S0", "S1")
    ]
    series = read(tmp_path, log(*lines), timezone="+0000")
    frame = series.frame
    assert series.format == "perf"
    assert list(frame["time_s"]) == [START_S + 1, START_S + 3]
    assert list(frame["interval_s"]) == [1, 2]
    # Counts are of the interval; a transfer is a line of 64 bytes.
    assert list(frame["memory_read_bytes"]) == [128e6, 128e6]
    assert list(frame["memory_written_bytes"]) == [128e6, 128e6]
    assert not said(series)


@pytest.mark.parametrize(
    ("event", "unit", "column", "bytes_"),
    [
        ("uncore_imc/data_reads/", "MiB", "memory_read_bytes", 2**20),
        ("uncore_imc_0/cas_count_write/", "MiB", "memory_written_bytes", 2**20),
        ("unc_m_cas_count.rd", "", "memory_read_bytes", 64),
        ("umc_cas_cmd.wr", "", "memory_written_bytes", 64),
        ("context-switches", "", "context_switches", 1),
        ("cs:u", "", "context_switches", 1),
        ("major-faults", "", "major_faults", 1),
    ],
)
def test_events(tmp_path, event, unit, column, bytes_):
    frame = read(tmp_path, log(line(1.0, event, "3.0", unit))).frame
    assert list(frame[column]) == [3 * bytes_]


def test_the_task_clock_is_not_read(tmp_path):
    text = log(line(1.0, "task-clock", "2000.0", "msec"), line(1.0, "cs", "3"))
    assert "scheduled_s" not in read(tmp_path, text).frame
    with pytest.raises(MeasurementError, match="of use"):
        read(tmp_path, log(line(1.0, "task-clock", "2000.0", "msec")))


def test_what_was_not_counted_is_not_known(tmp_path):
    text = log(
        line(1.0, "cs", "3.0"),
        line(1.0, "unc_m_cas_count.rd", "<not counted>"),
        line(2.0, "cs", "<not supported>"),
        line(2.0, "unc_m_cas_count.rd", "2.0"),
    )
    frame = read(tmp_path, text).frame
    assert np.isnan(frame["context_switches"][1])
    assert np.isnan(frame["memory_read_bytes"][0])
    assert frame["memory_read_bytes"][1] == 128


def test_times_without_a_start(tmp_path):
    series = read(tmp_path, log(line(1.0, "cs", "3"), start=""))
    assert list(series.frame["time_s"]) == [1.0]
    assert "from the start of perf" in said(series)
    assert "only with -a" in said(series)


def test_local_start(tmp_path):
    text = log(line(1.0, "cs", "3"))
    assert "read as UTC" in said(read(tmp_path, text))
    berlin = read(tmp_path, text, timezone="Europe/Berlin")
    assert list(berlin.frame["time_s"]) == [START_S + 1 - 7200]


def test_lines_that_are_cut(tmp_path):
    text = log(line(1.0, "cs", "3"), '{"interval" : 2.0, "counter', line(3.0, "cs", "4"))
    series = read(tmp_path, text + '{"interval" : 4')
    assert list(series.frame["context_switches"]) == [3, 4]
    assert "1 lines are no rows" in said(series)
    assert "breaks off" in said(series)


@pytest.mark.parametrize("head", [b"{}", b'{"sysstat"', b"# started on\n\n1.0,5,,cs\n", b""])
def test_other_kinds(head):
    assert not recognises(head)


def test_perf_itself(tmp_path):
    assert shutil.which("perf"), "perf is missing: see .ci/run"
    path = tmp_path / "perf.json"
    events = "context-switches,major-faults,task-clock"
    command = ["perf", "stat", "-a", "-j", "-I", "200", "-e", events, "-o", str(path)]
    subprocess.run([*command, "--", "sleep", "0.7"], check=True)
    frame = read_time_series(path).frame
    assert len(frame) == 4
    assert frame["interval_s"].sum() == pytest.approx(0.7, abs=0.3)
    assert (frame["context_switches"] > 0).all()
    assert frame["time_s"][0] > START_S
