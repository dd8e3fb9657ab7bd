"""CSV of pmrep: by hand, as its source writes it (pcp itself needs a service manager)."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from timeseries_logs import START_S, written

from measurements.errors import MeasurementError
from measurements.timeseries import read_time_series
from measurements.timeseries.pcp import METRICS, recognises
from measurements.timeseries.schema import COLUMNS, split_device

LOG = (
    'Time,"hinv.ncpu","kernel.all.cpu.user","kernel.all.cpu.sys","kernel.all.cpu.wait.total",'
    '"mem.util.free","disk.dev.read_bytes-sda","disk.dev.read_bytes-sdb","disk.dev.avactive-sda",'
    '"network.interface.in.bytes-lo","network.interface.in.bytes-eth0",'
    '"network.interface.baudrate-eth0","kernel.all.load-1 minute"\n'
    "2025-06-15 15:06:40,4,,,,2048,,,,,,125000000,0.5\n"
    "2025-06-15 15:06:41,4,1500.0,250.0,100.0,1024,10.0,20.0,400.0,7.0,1000.0,125000000,0.5\n"
    "2025-06-15 15:06:42,4,3000.0,500.0,0.0,512,0.0,0.0,0.0,7.0,2000.0,125000000,0.5\n"
)


def said(series):
    return " | ".join(finding.text for finding in series.findings)


def read(tmp_path, text, **options):
    return read_time_series(written(tmp_path / "pmrep.csv", text), **options)


def test_native_units_become_those_of_the_columns(tmp_path):
    series = read(tmp_path, LOG, timezone="+0000")
    frame = series.frame
    assert series.format == "pcp"
    # The first row has no rates yet: it is no interval.
    assert list(frame["time_s"]) == [START_S + 1, START_S + 2]
    assert list(frame["cpus"]) == [4, 4]
    assert list(frame["user_s"]) == pytest.approx([1.5, 3.0])
    assert list(frame["system_s"]) == pytest.approx([0.25, 0.5])
    assert list(frame["iowait_s"]) == pytest.approx([0.1, 0.0])
    assert list(frame["memory_free_bytes"]) == [1 << 20, 1 << 19]
    assert list(frame["disk_read_bytes[sdb]"]) == [20 * 1024, 0]
    assert list(frame["sectors_read"]) == [60, 0]
    assert list(frame["disk_busy_share[sda]"]) == [0.4, 0]
    assert list(frame["network_rx_bytes"]) == [1000, 2000]
    assert list(frame["network_rx_bytes[lo]"]) == [7, 7]
    assert list(frame["network_speed_bytes_s[eth0]"]) == [125e6, 125e6]
    assert list(frame["marks"]) == ["", ""]
    assert not said(series)


def test_every_metric_is_a_column():
    assert {split_device(field.column)[0] for field in METRICS.values()} <= set(COLUMNS)


def test_only_what_is_asked_for(tmp_path):
    frame = read(tmp_path, LOG, columns=["sectors_read"]).frame
    assert "sectors_read" in frame
    assert "user_s" not in frame


def test_host_and_interval_where_they_are(tmp_path):
    text = (
        'Host,Interval,Time,"kernel.all.cpu.user"\n'
        "db7,10,2025-06-15 15:06:40,500.0\ndb7,10,2025-06-15 15:06:50,500.0\n"
    )
    frame = read(tmp_path, text).frame
    assert list(frame["host"]) == ["db7", "db7"]
    assert list(frame["interval_s"]) == [10, 10]
    assert list(frame["user_s"]) == [5, 5]
    with pytest.raises(MeasurementError, match="is of host 'db7' and then of 'db8'"):
        read(tmp_path, text + "db8,10,2025-06-15 15:07:00,500.0\n")


def test_its_own_number_of_cpus_wins(tmp_path):
    assert set(read(tmp_path, LOG, cpus=16).frame["cpus"]) == {4}


@pytest.mark.parametrize(
    ("stamp", "zone", "offset"),
    [
        ("2025-06-15T15:06:40Z", None, 0),
        ("2025-06-15T15:06:40+0200", "Asia/Tokyo", -7200),
        ("2025-06-15T15:06:40-04:00", None, 14400),
        ("2025-06-15 15:06:40", "Europe/Berlin", -7200),
        ("2025-06-15 15:06:40.250", "+0000", 0.25),
    ],
)
def test_stamps(tmp_path, stamp, zone, offset):
    series = read(tmp_path, f'Time,"kernel.all.cpu.user"\n{stamp},5\n', timezone=zone)
    assert list(series.frame["time_s"]) == [START_S + offset]
    assert "time zone" not in said(series)


def test_local_times_say_so(tmp_path):
    assert "read as UTC" in said(read(tmp_path, LOG))


def test_columns_that_change(tmp_path):
    """With a dynamic header (-G), pmrep writes another one when instances come and go."""
    text = LOG + (
        'Time,"kernel.all.cpu.user","disk.dev.read_bytes-sdc"\n2025-06-15 15:06:43,100.0,4.0\n'
    )
    frame = read(tmp_path, text).frame
    assert list(frame["user_s"]) == pytest.approx([1.5, 3.0, 0.1])
    assert np.isnan(frame["disk_read_bytes[sda]"][2])
    assert frame["disk_read_bytes[sdc]"][2] == 4096
    assert list(frame["marks"]) == ["", "", "device new; device gone"]


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separators(tmp_path, separator):
    frame = read(tmp_path, LOG.replace(",", separator)).frame
    assert list(frame["user_s"]) == pytest.approx([1.5, 3.0])


def test_lines_that_are_cut(tmp_path):
    row = LOG.splitlines(keepends=True)[-1]
    rows = LOG + row.replace(":42", ":43") + "2025-06-15 15:06:44,4,5.0"
    series = read(tmp_path, rows.replace("41,4,1500.0", "41,1500.0"))
    # One lacks a field, and the last one its end.
    assert list(series.frame["user_s"]) == [3.0, 3.0]
    assert "1 lines are no rows" in said(series)
    assert "breaks off" in said(series)


def test_a_clock_that_steps_back(tmp_path):
    frame = read(tmp_path, LOG.replace("15:06:42", "15:06:30")).frame
    assert list(frame["marks"]) == ["clock back", ""]
    assert np.isnan(frame["user_s"][0])


def test_what_is_no_number(tmp_path):
    frame = read(tmp_path, LOG.replace("3000.0", "N/A")).frame
    assert list(frame["marks"]) == ["", "not a number"]
    assert np.isnan(frame["user_s"][1])


def test_gzip(tmp_path):
    path = tmp_path / "pmrep.csv.gz"
    path.write_bytes(gzip.compress(LOG.encode()))
    assert len(read_time_series(path).frame) == 2


def test_without_a_row(tmp_path):
    with pytest.raises(MeasurementError, match="holds no interval"):
        read(tmp_path, LOG.splitlines()[0] + "\n")


@pytest.mark.parametrize("head", [b"time,user\n", b'Time,"total"\n', b"Time,kernel.all\n", b"Time"])
def test_other_kinds(head):
    assert not recognises(head)
