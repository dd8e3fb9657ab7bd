"""Logs with faults: each is named or marked, and nothing but MeasurementError comes out."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from timeseries_logs import cpu_row, plain_log, plot_log, sadf_document, sample, written

from measurements.errors import MeasurementError
from measurements.timeseries import read_time_series, write_time_series
from measurements.timeseries.devices import physical_disks, physical_interfaces

ROOT = Path(__file__).resolve().parents[2]
SADF_CSV = (
    "# hostname;interval;timestamp;CPU;%user;%nice;%system;%iowait;%steal;%idle\n"
    "vm;1;2026-11-21 08:48:42 UTC;-1;89.77;0.00;0.93;0.00;0.00;9.30\n"
    "vm;1;2026-11-21 08:48:43 UTC;-1;89.81;0.00;0.46;0.00;0.00;9.72\n"
)
DISKS = [{"disk-device": "sda", "tps": 3.0, "rkB": 8.0, "wkB": 4.0, "await": 2.0}]
SADF = sadf_document(
    [
        sample(
            n,
            cpu_load=[cpu_row(usr=50.0), cpu_row("0", usr=50.0)],
            disk=DISKS,
            network={"net-dev": [{"iface": "eth0", "rxkB": 1.0}]},
        )
        for n in range(4)
    ]
)
OWN = (
    "time_s,interval_s,host,cpus,user_s,marks\n"
    "1750000000.0,1.0,db7,4,1.5,\n1750000001.0,1.0,db7,4,1.25,gap\n"
)
PCP = (
    'Time,"hinv.ncpu","kernel.all.cpu.user","disk.dev.read_bytes-sda"\n'
    "2025-06-15 15:06:39,4,,\n2025-06-15 15:06:40,4,1500.0,8.0\n2025-06-15 15:06:41,4,2.5,9\n"
    'Time,"hinv.ncpu","network.interface.in.bytes-eth0"\n2025-06-15 15:06:42,4,100.5\n'
)
PERF = "".join(
    f'{{"interval" : {n}.001, "counter-value" : "{n * 67}.000000", "unit" : "", "event" : '
    f'"{event}", "event-runtime" : 601864543, "pcnt-running" : 100.00}}\n'
    for n in (1, 2, 3)
    for event in ("context-switches", "UNC_M_CAS_COUNT.RD")
)
OWN_LINES = '{"time_s": 1.0, "interval_s": 1.0, "user_s": 0.5, "marks": "gap; restart"}\n'
LOGS = {
    "collectl": plain_log(4)
    + plot_log([("15:06:50", "1 sda 8")], "[CPU]User% [DSK:sda]Name [DSK:sda]RKBytes", comments=""),
    "sadf-json": SADF,
    "sadf-csv": SADF_CSV,
    "pcp": PCP,
    "perf": PERF,
    "ppw-csv": OWN,
    "ppw-lines": OWN_LINES * 3,
}


def said(series):
    return " | ".join(finding.text for finding in series.findings)


class TestClocks:
    def read(self, tmp_path, *times):
        log = plot_log([(time, "50 0 0 0 0 0 0 50") for time in times])
        return read_time_series(written(tmp_path / "a.tab", log))

    def test_a_step_back(self, tmp_path):
        series = self.read(tmp_path, "15:06:40", "15:06:41", "15:06:30", "15:06:31")
        frame = series.frame
        assert frame["time_s"].is_monotonic_increasing
        assert list(frame["marks"]) == ["clock back", "", "", ""]
        # How long that interval was is not known, nor what was used in it.
        assert np.isnan(frame["interval_s"][0])
        assert np.isnan(frame["user_s"][0])
        assert "clock back" in {finding.mark for finding in series.findings}

    def test_a_gap(self, tmp_path):
        frame = self.read(tmp_path, "15:06:40", "15:06:41", "15:06:44", "15:06:45").frame
        assert list(frame["marks"]) == ["", "", "gap", ""]
        assert list(frame["interval_s"]) == [1, 1, 3, 1]

    def test_the_same_time_again(self, tmp_path):
        frame = self.read(tmp_path, "15:06:40", "15:06:41", "15:06:41").frame
        assert list(frame["marks"]) == ["", "", "time repeats"]
        assert np.isnan(frame["user_s"][2])

    def test_intervals_of_sadf_stay_known(self, tmp_path):
        load = [cpu_row(usr=50.0, idle=50.0)]
        rows = [sample(n, cpu_load=load) for n in (10, 11, 5, 6, 16)]
        frame = read_time_series(written(tmp_path / "s.json", sadf_document(rows))).frame
        assert list(frame["marks"]) == ["clock back", "", "", "", "gap"]
        assert list(frame["interval_s"]) == [1.0] * 5
        assert frame["user_s"].sum() == pytest.approx(10.0)


class TestValues:
    def test_above_capacity_is_kept_and_marked(self, tmp_path):
        log = plot_log([("15:06:40", "90 0 20 0 0 0 0 10"), ("15:06:41", "50 0 1 0 0 0 0 49")])
        series = read_time_series(written(tmp_path / "a.tab", log))
        assert list(series.frame["marks"]) == ["over capacity", ""]
        assert series.frame["user_s"][0] == pytest.approx(3.6)

    def test_below_0_is_left_out(self, tmp_path):
        log = plot_log([("15:06:40", "-5 0 20 0 0 0 0 10")])
        series = read_time_series(written(tmp_path / "a.tab", log))
        assert np.isnan(series.frame["user_s"][0])
        assert series.frame["marks"][0] == "negative"

    @pytest.mark.parametrize("text", ["x", "nan", "inf", "1e999", "1e300", "0x10", "1,5"])
    def test_no_number(self, tmp_path, text):
        log = plot_log([("15:06:40", f"{text} 0 20 0 0 0 0 10"), ("15:06:41", "7 0 20 0 0 0 0 10")])
        frame = read_time_series(written(tmp_path / "a.tab", log)).frame
        assert np.isnan(frame["user_s"][0])
        assert list(frame["marks"]) == ["not a number", ""]
        assert frame["user_s"][1] == pytest.approx(0.28)

    def test_a_broken_counter_of_sadf(self, tmp_path):
        broken = [{"disk-device": "sda", "tps": 18446744073709551615.0, "rkB": 1e308, "wkB": 4.0}]
        rows = [sample(0, disk=broken), sample(1, disk=DISKS)]
        frame = read_time_series(written(tmp_path / "s.json", sadf_document(rows))).frame
        assert list(frame["marks"]) == ["not a number", ""]
        assert np.isnan(frame["sectors_read"][0])
        assert list(frame["sectors_written"]) == [8, 8]


class TestFiles:
    @pytest.mark.parametrize(
        ("data", "what"),
        [
            (b"", "is empty"),
            (b"hello\n", "is no log that is known"),
            (b"time_s,power_w\n1,2\n", "is no log that is known"),
            (b"\x96\xd5\x75\x21" + bytes(100), "a binary file of sar: convert it with sadf -j"),
            (b"Linux 6.1.0 (vm) \t11/21/26\n", "text of sar"),
            (bytes(range(256)), "is no log that is known"),
            (b"\x1f\x8b\x09 not gzip", "cannot be read"),
            (b'{"sysstat": 3}', "does not begin as sadf -j"),
            (b'{"sysstat": {"hosts": []}}', "holds no interval"),
            (b"#Date Time [CPU]User%\n", "holds no interval"),
            (b"time_s,interval_s,user_s\n", "holds no interval"),
            (b"time_s,interval_s,user_s\nx,1,1\n", "has no time"),
            (b"PAR1 and no more", "is no series of ppw"),
        ],
    )
    def test_other_kinds(self, tmp_path, data, what):
        path = tmp_path / "log"
        path.write_bytes(data)
        with pytest.raises(MeasurementError, match=what) as error:
            read_time_series(path)
        assert "\n" not in str(error.value)

    def test_what_is_not_there(self, tmp_path):
        with pytest.raises(MeasurementError, match="No such file"):
            read_time_series(tmp_path / "none")
        with pytest.raises(MeasurementError, match="Is a directory"):
            read_time_series(tmp_path)
        with pytest.raises(MeasurementError, match="no format is called 'colectl'"):
            read_time_series(tmp_path, format="colectl")
        with pytest.raises(MeasurementError, match="no time zone"):
            read_time_series(tmp_path, timezone="Mars/Base")

    def test_the_wrong_format_asked_for(self, tmp_path):
        path = written(tmp_path / "a.tab", plain_log())
        for name in ("sadf-json", "sadf-csv", "ppw"):
            with pytest.raises(MeasurementError):
                read_time_series(path, format=name)

    def test_gzip_that_breaks_off(self, tmp_path):
        rng = random.Random(7)
        rows = [
            (f"15:{m:02}:{s:02}", f"{rng.randrange(90)} 0 0 0 0 0 0 {rng.randrange(9)}")
            for m in range(60)
            for s in range(60)
        ]
        zipped = gzip.compress(plot_log(rows).encode())
        path = tmp_path / "a.tab.gz"
        path.write_bytes(zipped[: len(zipped) // 2])
        series = read_time_series(path)
        assert 0 < len(series.frame) < 3600
        assert "breaks off" in said(series)

    def test_lines_that_are_cut(self, tmp_path):
        whole = plain_log(4)
        middle = whole.replace("20250615 15:06:41 50 0 0 0", "20250615 15:06:41 50 0")
        series = read_time_series(written(tmp_path / "a.tab", middle))
        assert len(series.frame) == 3
        assert "1 lines are no rows" in said(series)
        series = read_time_series(written(tmp_path / "b.tab", whole[:-3]))
        assert len(series.frame) == 3
        assert "breaks off" in said(series)

    @pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
    def test_own_files_come_back(self, tmp_path, ending):
        series = read_time_series(written(tmp_path / "s.json", SADF))
        path = tmp_path / f"s.{ending}"
        write_time_series(series, path)
        again = read_time_series(path)
        assert again.format == "ppw"
        for column in series.frame:
            if column in ("host", "cpu_accounting", "marks"):
                assert list(again.frame[column]) == list(series.frame[column])
            else:
                assert np.array(again.frame[column]) == pytest.approx(
                    np.array(series.frame[column]), nan_ok=True
                )

    def test_own_totals_stand(self, tmp_path):
        path = written(tmp_path / "a.csv", OWN)
        with pytest.raises(MeasurementError, match="recorded with"):
            read_time_series(path, disks=["sda"])
        with pytest.raises(MeasurementError, match="read alone"):
            read_time_series([path, path])

    def test_other_endings(self, tmp_path):
        series = read_time_series(written(tmp_path / "s.json", SADF))
        with pytest.raises(MeasurementError, match="ends in"):
            write_time_series(series, tmp_path / "s.xlsx")


class TestSeries:
    def series(self, tmp_path):
        return read_time_series(written(tmp_path / "s.json", SADF))

    def test_a_window(self, tmp_path):
        series = self.series(tmp_path)
        start = series.frame["time_s"][0]
        kept = series.between(start, start + 2)
        # The first ends as the window begins.
        assert list(kept.frame["time_s"] - start) == [1, 2]
        assert kept.seconds == 2

    def test_columns_of_devices(self, tmp_path):
        series = self.series(tmp_path)
        assert series.devices("disk_ios") == {"sda": "disk_ios[sda]"}
        with pytest.raises(MeasurementError, match="did you mean 'disk_ios'"):
            series.devices("disk_io")

    def test_the_summary(self, tmp_path):
        lines = self.series(tmp_path).summary().splitlines()
        assert lines[0].endswith("s.json: sadf-json, 4 intervals, 4 s")
        # Half of 4 CPUs for 4 s.
        assert lines[1] == "8 CPU seconds of tasks, by tick"

    def test_what_ticks_missed(self, tmp_path):
        log = "time_s,interval_s,scheduled_s,tick_busy_s\n1,1,2.0,1.5\n2,1,2.0,1.5\n"
        series = read_time_series(written(tmp_path / "a.csv", log))
        assert series.tick_shortfall() == pytest.approx(0.25)
        assert "ticks show 75.0% of the scheduler's CPU time: ticks miss too much" in (
            series.summary()
        )

    def test_standard_input(self, tmp_path):
        code = "from measurements.timeseries import read_time_series as r; print(len(r('-').frame))"
        for data in (plain_log(4).encode(), gzip.compress(SADF.encode())):
            done = subprocess.run(
                [sys.executable, "-c", code], input=data, capture_output=True, check=True, cwd=ROOT
            )
            assert done.stdout == b"4\n"


class TestNames:
    @given(
        st.lists(st.from_regex(r"(sd[a-z]{1,2}|nvme\d{1,2}n\d|vd[a-z]|mmcblk\d)", fullmatch=True))
    )
    def test_a_partition_is_never_counted_beside_its_disk(self, disks):
        parts = [f"{d}p1" if d[-1].isdigit() else f"{d}1" for d in disks]
        assert set(physical_disks([*disks, *parts])) == set(disks)

    def test_interfaces(self):
        wires = ["eth0", "enp3s0", "wlp0s20f3", "ib0", "em1", "p1p1"]
        others = ["lo", "docker0", "br-9f2", "veth12ab", "bond0", "eth0.7", "ifb0", "virbr0"]
        assert physical_interfaces([*wires, *others]) == tuple(wires)


def survives(path, data):
    """Read whatever it is: a series that holds together, or the documented error."""
    path.write_bytes(data)
    try:
        series = read_time_series(path, cpus=2)
    except MeasurementError:
        return
    frame = series.frame
    assert len(frame)
    assert frame["time_s"].is_monotonic_increasing
    assert not (frame["interval_s"] <= 0).any()
    for column in frame.columns:
        if column not in ("host", "marks", "cpu_accounting"):
            assert not np.isinf(np.array(frame[column], dtype=float)).any()


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["cpu-load", "timestamp", "disk", "cpu", "usr"]), inner
            )
        ),
        max_leaves=8,
    )
)
def test_json_of_another_shape(tmp_path, content):
    document = {"sysstat": {"hosts": [{"statistics": content}]}}
    survives(tmp_path / "log", json.dumps(document).encode())
