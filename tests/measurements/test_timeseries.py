"""Logs of a host's counters: every format by hand, in all its forms, with faults in it."""

import gzip
import io
import json
import random
import re
import subprocess

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from refusals import refusal
from timeseries_logs import (
    COMMENTS,
    CPU_HEADER,
    START_S,
    cpu_row,
    plain_log,
    plot_log,
    sadf_document,
    sample,
)

from measurements.errors import MeasurementError
from measurements.timeseries import pcp_perf, read_time_series, write_time_series
from measurements.timeseries.log import physical_disks, physical_interfaces
from measurements.timeseries.series import COLUMNS, split_device

HALF = "50 0 0 0 0 0 0 50"
SDA = "[DSK:sda]Name [DSK:sda]RKBytes"
DISK = {"disk-device": "sda", "tps": 3.0, "rkB": 8.0, "wkB": 4.0, "await": 2.0}
HALVES = [cpu_row(usr=50.0), cpu_row("0", usr=50.0)]
ETH0 = {"net-dev": [{"iface": "eth0", "rxkB": 1.0}]}
SADF = sadf_document([sample(n, cpu_load=HALVES, disk=[DISK], network=ETH0) for n in range(4)])
SADF_CPU = (
    "# hostname;interval;timestamp;CPU;%usr;%nice;%sys;%iowait;%steal;%irq;%soft;%guest;"
    "%gnice;%idle\n"
    "db7;1;2025-06-15 15:06:40 UTC;-1;25.00;0.00;10.00;0.00;0.00;0.00;1.00;5.00;0.00;59.00\n"
    "db7;1;2025-06-15 15:06:41 UTC;-1;50.00;0.00;10.00;0.00;0.00;0.00;1.00;0.00;0.00;39.00\n"
)
SADF_CSV = SADF_CPU + (
    "# hostname;interval;timestamp;DEV;tps;rkB/s;wkB/s;dkB/s;areq-sz;aqu-sz;await;%util\n"
    "db7;1;2025-06-15 15:06:40 UTC;sda;3.00;8.00;4.00;0.00;8.00;0.50;2.00;25.00\n"
    "db7;1;2025-06-15 15:06:40 UTC;dm-0;3.00;8.00;4.00;0.00;8.00;0.50;2.00;25.00\n"
    "db7;1;2025-06-15 15:06:41 UTC;sda;3.00;80.00;4.00;0.00;8.00;0.50;2.00;25.00\n"
)
# As the source of pmrep writes it: pcp itself needs a service manager.
PCP = (
    'Time,"hinv.ncpu","kernel.all.cpu.user","kernel.all.cpu.sys","kernel.all.cpu.wait.total",'
    '"mem.util.free","disk.dev.read_bytes-sda","disk.dev.read_bytes-sdb","disk.dev.avactive-sda",'
    '"network.interface.in.bytes-lo","network.interface.in.bytes-eth0",'
    '"network.interface.baudrate-eth0","kernel.all.load-1 minute"\n'
    "2025-06-15 15:06:40,4,,,,2048,,,,,,125000000,0.5\n"
    "2025-06-15 15:06:41,4,1500.0,250.0,100.0,1024,10.0,20.0,400.0,7.0,1000.0,125000000,0.5\n"
    "2025-06-15 15:06:42,4,3000.0,500.0,0.0,512,0.0,0.0,0.0,7.0,2000.0,125000000,0.5\n"
)
PCP_HOST = (
    'Host,Interval,Time,"kernel.all.cpu.user"\n'
    "db7,10,2025-06-15 15:06:40,500.0\ndb7,10,2025-06-15 15:06:50,500.0\n"
)
OWN = (
    "time_s,interval_s,host,cpus,user_s,marks\n"
    "1750000000.0,1.0,db7,4,1.5,\n1750000001.0,1.0,db7,4,1.25,gap\n"
)
OWN_LINES = '{"time_s": 1.0, "interval_s": 1.0, "user_s": 0.5, "marks": "gap; restart"}\n'


def counted(interval, event, value, unit="", **more):
    """A line of ``perf stat -j -I``."""
    record = {"interval": interval, **more, "counter-value": value}
    return json.dumps(record | {"unit": unit, "event": event})


def perf_log(*lines, start="# started on Sun Jun 15 15:06:40 2025\n\n"):
    return start + "".join(f"{line}\n" for line in lines)


PERF = perf_log(counted(1.0, "cs", "3"), counted(2.0, "cs", "4"), counted(3.0, "cs", "5"))
SAR = """Linux 6.1.0 (db7) \t06/14/25 \t_x86_64_\t(4 CPU)

11:59:50 PM     CPU     %user     %nice   %system   %iowait    %steal     %idle
12:00:00 AM     all     25.00      0.00     10.00      5.00      0.00     60.00
12:00:10 AM     all     50.00      0.00     10.00      0.00      0.00     40.00
Average:        all     37.50      0.00     10.00      2.50      0.00     50.00

11:59:50 PM       tps     rkB/s     wkB/s   areq-sz    aqu-sz     await     %util DEV
12:00:00 AM      3.00      8.00      4.00      4.00      0.50      2.00     25.00 sda
12:00:10 AM      5.00      8.00      4.00      4.00      0.50      2.00     25.00 sda

12:00:10 AM  LINUX RESTART\t(4 CPU)

11:59:50 PM  %sio-10   %sio-60  %sio-300      %sio   %fio-10   %fio-60  %fio-300      %fio
12:00:00 AM     3.70      8.37      4.35      5.00      2.93      5.09      2.63      2.50
12:00:10 AM     3.70      8.37      4.35     10.00      2.93      5.09      2.63      5.00
"""
# Live, in a language with decimal commas and 24 hours; each sample has its block.
SAR_OLD = """Linux 5.4.0 (db7) \t15.06.2025 \t_x86_64_\t(4 CPU)

15:06:40        CPU      %usr     %nice      %sys   %iowait      %irq     %soft    %guest     %idle
15:06:50        all     25,00      0,00     10,00      0,00      0,00      1,00      5,00     59,00
15:06:50          0     99,00      0,00      1,00      0,00      0,00      0,00      0,00      0,00

15:06:40        IFACE   rxpck/s   txpck/s    rxkB/s    txkB/s
15:06:50         eth0      2,00      3,00      1,50      0,50

15:06:50        CPU      %usr     %nice      %sys   %iowait      %irq     %soft    %guest     %idle
15:07:10        all     50,00      0,00     10,00      0,00      0,00      0,00      0,00     40,00
"""
IOSTAT = "".join(
    f"""
2025-06-15T17:06:{second}+0200
avg-cpu:  %user   %nice %system %iowait  %steal   %idle
          {user}    0.00   10.00    0.00    0.00   40.00

Device            r/s     rkB/s     w/s     wkB/s  aqu-sz  %util
sda              2.00     {user}    1.00      4.00    0.50  25.00

"""
    for second, user in (("30", "99.00"), ("40", "25.00"), ("50", "50.00"))
)
IOSTAT = f"Linux 6.1.0 (db7) \t2025-06-15 \t_x86_64_\t(4 CPU)\n{IOSTAT}"
IOSTAT_OLD = IOSTAT.replace("2025-06-15T17", "06/15/2025 03").replace("+0200", " PM")
IOSTAT_OLD = IOSTAT_OLD.replace("Device ", "Device:").replace("kB/s", "sec/s")
VMSTAT = """procs -----------memory---------- ---swap-- -----io---- -system-- ---cpu--- -timestamp-
 r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st                 UTC
12  0      0   2048     10     20    0    0  1422  2701  368  610 82  7 10  0  1 2025-06-15 15:06:40
 4  1      0   1024     10     20    2    0    10    20  703  432 75  5 19  1  0 2025-06-15 15:06:50
 2  0      0   1024     10     20    0    0    30    40  458  320 25  5 70  0  0 2025-06-15 15:07:00
"""
VMSTAT_OLD = VMSTAT.replace("procs ", "--procs-- ").replace("UTC", "CEST").replace(" 15:", " 17:")
VMSTAT_OLD = VMSTAT_OLD.replace("   buff  cache", "  inact active")
LOGS = {
    "sar": SAR,
    "iostat": IOSTAT,
    "vmstat": VMSTAT,
    "collectl": plain_log(4),
    "sadf-json": SADF,
    "sadf-csv": SADF_CSV,
    "pcp": PCP,
    "perf": PERF,
    "ppw": OWN,
    "ppw of lines": OWN_LINES + OWN_LINES.replace('"time_s": 1.0', '"time_s": 2.0'),
}


@pytest.fixture
def read(tmp_path):
    def read(*contents, name="log", **options):
        paths = [tmp_path / f"{name}{n or ''}" for n in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_time_series(paths if len(paths) > 1 else paths[0], **options)

    return read


@pytest.fixture
def refused(read):
    def refused(match, *contents, **options):
        assert re.search(match, refusal(lambda: read(*contents, **options)))

    return refused


def said(series):
    return " | ".join(finding.text for finding in series.findings)


def marks(series):
    return list(series.frame["marks"])


class TestEveryFormat:
    @pytest.mark.parametrize("format_", LOGS)
    def test_packed_and_in_pieces_of_any_size_and_from_stdin(self, format_, read, monkeypatch):
        plain = read(LOGS[format_], cpus=4)
        assert plain.format == format_.partition(" ")[0]
        assert len(plain.frame) >= 2
        packed = gzip.compress(LOGS[format_].encode())
        pd.testing.assert_frame_equal(read(packed, cpus=4).frame, plain.frame)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed)))
        pd.testing.assert_frame_equal(read_time_series("-", cpus=4).frame, plain.frame)
        monkeypatch.setattr("measurements.timeseries.log._HEAD_BYTES", 600)
        for size in (64, 997):
            monkeypatch.setattr("measurements.timeseries.log.Source.pieces.__defaults__", (size,))
            pd.testing.assert_frame_equal(read(LOGS[format_], cpus=4).frame, plain.frame)

    @pytest.mark.parametrize("format_", ["collectl", "sadf-json", "pcp"])
    def test_its_own_number_of_cpus_wins(self, format_, read):
        series = read(LOGS[format_], cpus=16)
        assert set(series.frame["cpus"]) == {4.0}
        assert series.frame["user_s"].equals(read(LOGS[format_]).frame["user_s"])
        assert "given" not in said(series)

    def test_shares_of_cpus_whose_number_is_given(self, read):
        for log, user_s in (
            # As on a terminal, without the comments.
            (plain_log().removeprefix(COMMENTS), [8.0] * 3),
            (SADF_CSV, [4.8, 8.0]),
        ):
            series = read(log, cpus=16)
            assert list(series.frame["user_s"]) == pytest.approx(user_s)
            assert set(series.frame["cpus"]) == {16.0}
            assert "ppw takes the 16 CPUs that were given" in said(series)
            series = read(log)
            assert "user_s" not in series.frame
            assert "give their number" in said(series)

    def test_a_log_of_two_hosts(self, read, refused):
        for log in (
            plain_log() + plain_log().replace("db7", "db8").replace("15:06:4", "15:16:4"),
            SADF_CSV + SADF_CSV.replace("db7;", "db8;"),
            SADF_CSV + SADF_CPU.replace("db7;", "db8;"),
            PCP_HOST + PCP_HOST.splitlines()[-1].replace("db7", "db8") + "\n",
        ):
            refused(r"log: is of host 'db7' and then of 'db8'", log, cpus=4)
            refused(r"log: is of host 'db7' and then of 'db8'", log, cpus=4, columns=["user_s"])
            # The caller may know better: a host that was given another name.
            assert set(read(log, host="db", cpus=4).frame["host"]) == {"db"}

    def test_local_times_say_so(self, read):
        for log in (plain_log().removeprefix(COMMENTS), PCP, PERF):
            assert "UTC" in said(read(log, cpus=4))
            berlin = read(log, cpus=4, timezone="Europe/Berlin")
            assert "time zone" not in said(berlin)
            assert berlin.frame["time_s"].iloc[-1] in START_S - 7200 + np.arange(4)

    def test_lines_that_are_cut(self, read):
        collectl = plain_log(4).replace("20250615 15:06:41 50 0 0 0", "20250615 15:06:41 50 0")
        short, last = PCP.replace("41,4,1500.0", "41,1500.0"), PCP.splitlines(keepends=True)[-1]
        perf = PERF + '{"interval" : 4.0, "counter\n' + counted(5.0, "cs", "6") + '\n{"inter'
        for log, column, kept in (
            (f"{collectl}20250615 15:06:44 {HALF[:-3]}", "user_s", [2.0, 4.0, 2.0]),
            (f"{short}{last.replace(':42', ':43')}2025-06-15 15:06:44,4,5.0", "user_s", [3.0, 3.0]),
            (perf, "context_switches", [3, 4, 5, 6]),
        ):
            series = read(log)
            assert list(series.frame[column]) == kept
            assert "1 lines are no rows" in said(series)
            assert "breaks off" in said(series)

    def test_other_kinds(self, refused):
        for what, contents in {
            "is empty": [b""],
            "is not a log that ppw reads": [
                *(bytes(range(256)), b"hello\n", b"time_s,power_w\n1,2\n", b"time,user\n", b"Time"),
                *(b'Time,"total"\n', b"Time,kernel.all\n", b"{}", b"# started on\n\n1.0,5,,cs\n"),
                # One header has one separator.
                *(b'Host;Interval,Time,"a.b"\n', b'Host,Interval,Time;"a.b"\n'),
            ],
            "binary file of sar": [b"\x96\xd5\x75\x21" + bytes(100)],
            "text of sar": [b"Linux 6.1.0 (vm) \t11/21/26\n"],
            "cannot be read": [b"\x1f\x8b\x09 not gzip"],
            "does not begin as sadf -j": [b'{"sysstat": 3}', b'{"sysstat": {"host": 3}}'],
            "holds no interval": [
                *(b'{"sysstat": {"hosts": []}}', b"#Date Time [CPU]User%\n"),
                *(PCP.splitlines()[0].encode() + b"\n", b"time_s,interval_s,user_s\n"),
            ],
            "has no time": [b"time_s,interval_s,user_s\nx,1,1\n"],
            "is no series of ppw": [
                *(b"PAR1 and no more", b'{"time_s": 1%s, "interval_s": 1}' % (b"0" * 400))
            ],
        }.items():
            for data in contents:
                refused(what, data)

    def test_what_is_not_there(self, tmp_path, refused):
        with pytest.raises(MeasurementError, match="No such file"):
            read_time_series(tmp_path / "none")
        with pytest.raises(MeasurementError, match="Is a directory"):
            read_time_series(tmp_path)
        refused("no format is called 'colectl'", OWN, format="colectl")
        refused("no time zone", OWN, timezone="Mars/Base")
        for name in ("sadf-json", "sadf-csv", "ppw"):
            refused("log: ", plain_log(), format=name)

    def test_logs_that_break_off(self, read):
        series = read(SADF[: SADF.rindex("usr")])
        assert len(series.frame) == 3
        assert "breaks off" in said(series)
        rng = random.Random(7)
        times = [f"15:{n // 60:02}:{n % 60:02}" for n in range(3600)]
        rows = [(at, f"{rng.randrange(90)} 0 0 0 0 0 0 {rng.randrange(9)}") for at in times]
        packed = gzip.compress(plot_log(rows).encode())
        series = read(packed[: len(packed) // 2])
        assert 0 < len(series.frame) < 3600
        assert "breaks off" in said(series)

    def test_only_the_columns_asked_for(self, read, refused):
        header = f"{CPU_HEADER} {SDA} [DSK:sda]WKBytes"
        log = plot_log([("15:06:40", f"{HALF} sda 8 x")], header)
        frame = read(log, columns=["user_s", "sectors_read"]).frame
        kept = ["time_s", "interval_s", "host", "cpus", "user_s", "sectors_read", "marks"]
        assert list(frame.columns) == kept
        # What was not needed was not parsed.
        assert frame["marks"][0] == ""
        assert marks(read(log)) == ["not a number"]
        frame = read(PCP, columns=["sectors_read"]).frame
        assert "sectors_read" in frame
        assert "user_s" not in frame
        refused("did you mean 'sectors_read'", plain_log(), columns=["sector_read"])


class TestCollectl:
    def test_an_interval_that_no_clock_has_is_no_number(self, read):
        rows = "".join(f"{at} 50 0 0 0 0 0 0 50\n" for at in ("-1e18", "1e18"))
        series = read(f"{COMMENTS}#UTC {CPU_HEADER}\n{rows}")
        assert list(series.frame["interval_s"]) == pytest.approx([1, np.nan], nan_ok=True)
        assert list(series.frame["marks"]) == ["", "gap; not a number"]

    def test_shares_become_seconds_of_all_cpus(self, read):
        rows = [("15:06:40", "25 0 10 5 0 1 0 59"), ("15:06:42", "50 1 20 0 2 0 3 24")]
        series = read(plot_log(rows))
        frame = series.frame
        assert list(frame["time_s"]) == [START_S, START_S + 2]
        # The first by the header, the second by the step.
        assert list(frame["interval_s"]) == [1.0, 2.0]
        # 25 % of 4 CPUs for 1 s, 50 % of them for 2 s.
        assert list(frame["user_s"]) == pytest.approx([1.0, 4.0])
        assert list(frame["iowait_s"]) == pytest.approx([0.2, 0.0])
        assert list(frame["softirq_s"]) == pytest.approx([0.04, 0.0])
        assert marks(series) == ["", "gap"]
        about = frame[["host", "cpus", "hz", "cpu_accounting"]].drop_duplicates()
        assert about.to_numpy().tolist() == [["db7", 4.0, 100.0, "tick"]]
        # What was not recorded is not there.
        assert not {"sectors_read", "memory_total_bytes", "network_rx_bytes"} & set(frame.columns)

    def test_totals_of_disks_memory_and_network(self, read):
        header = (
            "[MEM]Tot [MEM]Free [MEM]SwapIn [NET]RxKBTot [DSK]ReadTot [DSK]ReadKBTot "
            "[DSK]WriteKBTot [CPU]Ctx/sec"
        )
        row = read(plot_log([("15:06:40", "1000 400 8192 3 7 100 50 11")], header)).frame.iloc[0]
        assert row[["memory_total_bytes", "memory_free_bytes"]].tolist() == [1024_000, 400 * 1024]
        assert row[["swap_in_bytes", "network_rx_bytes"]].tolist() == [8192, 3 * 1024]
        assert row[["ios_read", "sectors_read", "sectors_written"]].tolist() == [7, 200, 100]
        assert row["context_switches"] == 11

    def test_physical_disks_count_once_and_stacked_ones_alone_make_no_total(self, read, refused):
        names = ("Name", "Reads", "RKBytes", "Writes", "WKBytes", "QueLen", "Wait", "Util")
        disks = ("sda", "sda1", "dm-0", "nvme0n1", "loop0")
        header = " ".join(f"[DSK:{d}]{n}" for d in disks for n in names)
        fields = " ".join(f"{d} 10 100 4 50 6 3 50" for d in disks)
        log = plot_log([("15:06:40", fields)], header)
        row = read(log).frame.iloc[0]
        # sda and nvme0n1, 100 KB each, two sectors a KB.
        assert (row["sectors_read"], row["sectors_written"]) == (400, 200)
        assert (row["ios"], row["ios_read"], row["ios_written"]) == (28, 20, 8)
        assert row["disk_read_bytes[dm-0]"] == 102_400
        assert row["disk_wait_s[sda]"] == pytest.approx(0.003)
        assert row["disk_busy_share[sda]"] == 0.5
        # Six in progress while busy, half the time.
        assert row["disk_queue[sda]"] == 3.0
        assert read(log, disks=["loop0"]).frame.iloc[0]["sectors_read"] == 200
        refused("no disk sdz; its disks are sda", log, disks=["sdz"])
        series = read(plot_log([("15:06:40", "dm-0 8")], "[DSK:dm-0]Name [DSK:dm-0]RKBytes"))
        assert "sectors_read" not in series.frame
        assert "no disk of the log is known to be a physical one (dm-0)" in said(series)

    def test_cpus_one_by_one(self, read):
        header = " ".join(f"[CPU:{c}]{n}" for c in (0, 1) for n in ("User%", "Idle%", "Guest%"))
        rows = [("15:06:40", "100 0 77 50 50 88"), ("15:06:41", "0 100 77 0 100 88")]
        frame = read(plot_log(rows, header, comments="")).frame
        assert frame.loc[0, ["user_s", "idle_s", "cpus"]].tolist() == [1.5, 0.5, 2]
        # collectl heads interrupts with Guest% by CPU.
        assert "guest_s" not in frame

    def test_line_rates_and_interfaces(self, read):
        names = ("Name", "RxKB", "TxKB", "RxErr", "TxErr", "RxDrp")
        header = " ".join(f"[NET:{i}]{n}" for i in ("lo", "eth0") for n in names)
        series = read(plot_log([("15:06:40", "lo 9 9 0 0 0 eth0 200000 1 2 3 4")], header))
        row = series.frame.iloc[0]
        assert row["network_speed_bytes_s[eth0]"] == 125e6
        assert "network_speed_bytes_s[lo]" not in series.frame
        assert row["network_rx_bytes"] == row["network_rx_bytes[eth0]"] == 200_000 * 1024
        assert (row["network_errors"], row["network_rx_drops"]) == (5, 4)
        # 204.8 MB in a second over a line of 125 MB/s: kept, and marked.
        assert row["marks"] == "over capacity"
        assert "[network_rx_bytes[eth0]]" in said(series)

    def test_amounts_without_rates(self, read):
        rows = [("15:06:40", "100 0 0 0 0 0 0 300 7"), ("15:06:50", "1000 0 0 0 0 0 0 3000 70")]
        comments = COMMENTS.replace("Interval: 1", "Interval: 10")
        frame = read(plot_log(rows, f"{CPU_HEADER} [CPU]Ctx/int", comments)).frame
        # Ticks of 1/100 s.
        assert list(frame["user_s"]) == [1.0, 10.0]
        assert list(frame["context_switches"]) == [7.0, 70.0]

    def test_every_form_of_time_zone_and_separator(self, read, refused):
        without_year = plain_log().replace("20250615 ", "06/15 ")
        for log in (
            COMMENTS + plain_log().removeprefix(COMMENTS).replace(" ", ";"),
            "waiting for 1 second sample...\n" + plain_log().removeprefix(COMMENTS),
            f"{COMMENTS}#UTC {CPU_HEADER}\n" + "".join(f"{START_S + n} {HALF}\n" for n in range(3)),
            without_year,
        ):
            frame = read(log, cpus=4).frame
            assert list(frame["time_s"] - START_S) == [0, 1, 2]
            assert list(frame["user_s"][1:]) == [2.0, 2.0]
        refused("have a year", without_year.removeprefix(COMMENTS), cpus=4)
        for series in (
            read(plain_log().replace("TZ: +0000", "TZ: -0500")),
            read(plain_log(), timezone="America/Bogota"),
        ):
            assert series.frame["time_s"][0] == START_S + 5 * 3600

    def test_below_a_second_with_and_without_milliseconds(self, read):
        frame = read(plot_log([(f"15:06:4{n}.25{n}", HALF) for n in range(3)])).frame
        assert list(frame["interval_s"][1:]) == pytest.approx([1.001, 1.001])
        rows = [(f"15:06:4{n // 2}", HALF) for n in range(4)]
        twice = COMMENTS.replace("Interval: 1", "Interval: 0.5")
        frame = read(plot_log(rows, comments=twice)).frame
        assert list(frame["interval_s"]) == [0.5] * 4
        assert frame["user_s"].sum() == pytest.approx(4.0)

    def test_columns_that_change_in_the_middle(self, read):
        rows = [(f"15:06:{second}", "sda 8 sdb 4") for second in (41, 42)]
        second = plot_log(rows, f"{SDA} {SDA.replace('sda', 'sdb')}", comments="")
        series = read(plot_log([("15:06:40", "sda 8")], SDA) + second)
        assert list(series.frame["sectors_read"]) == [16, 24, 24]
        assert np.isnan(series.frame["disk_read_bytes[sdb]"][0])
        assert marks(series) == ["", "device new", ""]
        assert "[sdb]" in said(series)

    def test_a_recording_started_anew_and_one_whose_header_repeats(self, read):
        series = read(plain_log() + plain_log().replace("15:06:", "15:16:"))
        assert set(series.frame["host"]) == {"db7"}
        assert marks(series) == ["", "", "", "restart", "", ""]
        # Ten minutes without a recorder are no interval.
        assert list(series.frame["interval_s"]) == [1.0] * 6
        header = f"#Date Time {CPU_HEADER}\n"
        rows = plain_log().removeprefix(COMMENTS + header).splitlines(keepends=True)
        assert marks(read(COMMENTS + header + header.join(rows))) == [""] * 3

    def test_files_beside_each_other(self, read, refused):
        disks = plot_log([(f"15:06:{40 + n}", "sda 8") for n in range(1, 4)], SDA)
        frame = read(plain_log(), disks).frame
        assert len(frame) == 4
        np.testing.assert_array_equal(frame["sectors_read"], [np.nan, 16, 16, 16])
        np.testing.assert_array_equal(frame["user_s"], [2, 2, 2, np.nan])
        refused("is of host 'db8'", plain_log(), plain_log().replace("db7", "db8"))


class TestSadf:
    def test_shares_become_seconds_of_all_cpus_also_one_by_one(self, read):
        rows = [cpu_row(usr=25.0, guest=5.0, sys=10.0, soft=1.0, iowait=2.0, idle=57.0)]
        series = read(sadf_document([sample(0, cpu_load=rows), sample(10, 10, cpu_load=rows)]))
        frame = series.frame
        assert list(frame["time_s"]) == [START_S, START_S + 10]
        assert list(frame["interval_s"]) == [1.0, 10.0]
        # User is with its guests, as in /proc/stat: 30 % of 4 CPUs.
        assert list(frame["user_s"]) == pytest.approx([1.2, 12.0])
        assert list(frame["guest_s"]) == pytest.approx([0.2, 2.0])
        assert list(frame["system_s"]) == pytest.approx([0.4, 4.0])
        assert list(frame["softirq_s"]) == pytest.approx([0.04, 0.4])
        assert marks(series) == ["", ""]
        assert "interrupts" not in said(series)
        each = [cpu_row(str(n), usr=10.0 * n, idle=100 - 10.0 * n) for n in range(4)]
        for rows in (each, [cpu_row("all", usr=15.0, idle=85.0), *each]):
            frame = read(sadf_document([sample(0, cpu_load=rows)])).frame
            assert frame["user_s"][0] == pytest.approx(0.6)
            assert frame["idle_s"][0] == pytest.approx(3.4)

    def test_a_number_of_cpus_that_was_given_and_interrupts_not_told_apart_are_said(self, read):
        log = sadf_document([sample(0, cpu_load=[cpu_row(usr=25.0)])], **{"number-of-cpus": None})
        series = read(log, cpus=16)
        assert series.frame["user_s"][0] == 4.0
        assert "takes the 16 CPUs that were given" in said(series)
        row = {"cpu": "all", "user": 50.0, "nice": 0.0, "system": 10.0, "iowait": 0.0, "idle": 40.0}
        series = read(sadf_document([sample(0, cpu_load=[row])]))
        assert series.frame["system_s"][0] == pytest.approx(0.4)
        assert "irq_s" not in series.frame
        assert "system_s has the interrupts in it" in said(series)

    def test_disks_of_both_versions(self, read):
        for disks, amounts in (
            (("sda", "dm-0"), {"rkB": 8.0, "wkB": 4.0, "aqu-sz": 0.5}),
            (("sda",), {"rd_sec": 16.0, "wr_sec": 8.0, "avgqu-sz": 0.5}),
        ):
            about = {"tps": 3.0, **amounts, "await": 2.0, "util-percent": 25.0}
            rows = [{"disk-device": disk, **about} for disk in disks]
            row = read(sadf_document([sample(0, disk=rows)])).frame.iloc[0]
            assert (row["sectors_read"], row["sectors_written"], row["ios"]) == (16, 8, 3)
            assert row["disk_busy_share[sda]"] == 0.25
            assert row["disk_queue[sda]"] == 0.5
            assert row["disk_wait_s[sda]"] == pytest.approx(0.002)

    def test_disks_in_total(self, read):
        io = {"tps": 5.0, "io-reads": {"rtps": 3.0, "bread": 24.0}}
        io["io-writes"] = {"wtps": 2.0, "bwrtn": 16.0}
        row = read(sadf_document([sample(0, 2, io=io)])).frame.iloc[0]
        assert (row["sectors_read"], row["sectors_written"]) == (48, 32)
        assert (row["ios"], row["ios_read"], row["ios_written"]) == (10, 6, 4)
        row = read(sadf_document([sample(0, 2, io=io, disk=[DISK])])).frame.iloc[0]
        assert row["sectors_read"] == 32

    def test_a_disk_that_appears_and_a_restart_are_marked(self, read):
        two = [DISK, {**DISK, "disk-device": "sdb"}]
        disks = ([DISK], two, [DISK])
        series = read(sadf_document([sample(n, disk=rows) for n, rows in enumerate(disks)]))
        assert list(series.frame["sectors_read"]) == [16, 32, 16]
        assert marks(series) == ["", "device new", "device gone"]
        document = json.loads(sadf_document([sample(n, disk=[DISK]) for n in (0, 60)]))
        boot = {"date": "2025-06-15", "time": "15:07:30", "utc": 1}
        document["sysstat"]["hosts"][0]["restarts"] = [{"boot": boot}]
        assert marks(read(json.dumps(document))) == ["", "restart"]

    def test_the_rest(self, read):
        memory = {"memfree": 500, "avail": 700, "memused": 300, "memused-percent": 30.0}
        memory |= {"buffers": 50, "cached": 100, "inactive": 60, "slab": 50, "swpused": 9}
        rates = {"rxpck": 1.0, "txpck": 2.0, "rxkB": 3.0, "txkB": 4.0}
        faults = {"rxerr": 1.0, "txerr": 2.0, "rxdrop": 3.0, "txdrop": 4.0}
        network = {"net-dev": [{"iface": name, **rates} for name in ("lo", "eth0")]}
        network["net-edev"] = [{"iface": "eth0", **faults}]
        activities = {
            "process_and_context_switch": {"proc": 1.0, "cswch": 100.0},
            "swap_pages": {"pswpin": 2.0, "pswpout": 3.0},
            "paging": {"majflt": 4.0},
            "memory": memory,
            "queue": {"runq-sz": 3, "blocked": 1},
            "network": network,
        }
        row = read(sadf_document([sample(0, 2, **activities)])).frame.iloc[0]
        assert row["context_switches"] == 200
        assert (row["swap_in_bytes"], row["swap_out_bytes"]) == (2 * 2 * 4096, 2 * 3 * 4096)
        assert row["major_faults"] == 8
        # 500 free + 300 used + 50 + 100 + 50 = 1000 KiB, of which 300 are 30 %.
        assert row["memory_total_bytes"] == 1000 * 1024
        assert row["memory_available_bytes"] == 700 * 1024
        assert (row["run_queue"], row["blocked"]) == (3, 1)
        assert row["network_rx_bytes"] == row["network_rx_bytes[eth0]"] == 2 * 3 * 1024
        assert row["network_rx_bytes[lo]"] == 2 * 3 * 1024
        assert row["network_errors"] == 6
        # Where the size of a page is not known, there is no swap in bytes.
        swapped = [sample(0, swap_pages=activities["swap_pages"])]
        assert "swap_in_bytes" not in read(sadf_document(swapped, machine="ppc64le")).frame

    def test_local_times(self, read):
        late = sample(0, queue={"runq-sz": 1, "blocked": 0})
        late["timestamp"]["utc"] = 0
        log = sadf_document([late], timezone="CET")
        assert "times are read as UTC" in said(read(log))
        series = read(log, timezone="+0100")
        assert series.frame["time_s"][0] == START_S - 3600
        assert "UTC" not in said(series)

    @pytest.mark.cases(
        "activities, is_read",
        *(({"cpu_load": rows}, False) for rows in (3, {"cpu": 1}, [cpu_row(usr="many")])),
        *(({"disk": rows}, False) for rows in ([3], [{**DISK, "tps": "x"}], [{"tps": [1]}])),
        *(({"timestamp": 3}, False), ({"network": {"net-dev": 3}}, False)),
        *(({"cpu_load": [None]}, True), ({"cpu_load": [{}]}, True), ({"disk": [{}]}, True)),
        *(({"network": None}, True), ({"memory": None}, True)),
    )
    def test_statistics_of_another_shape(self, activities, is_read, read, refused):
        log = sadf_document([sample(0, disk=[DISK]), sample(1, **activities)])
        if is_read:
            assert list(read(log).frame["sectors_read"]) == pytest.approx([16, np.nan], nan_ok=True)
        else:
            refused("log: its statistics are not those", log)

    def test_what_is_no_sample_is_left_out(self, read):
        for what in ({}, {"timestamp": {}}, 3, None, []):
            assert len(read(sadf_document([sample(0, disk=[DISK]), what])).frame) == 1

    def test_csv_by_hand_also_of_cpus_one_by_one(self, read):
        head = SADF_CSV.partition("\n")[0]
        rows = [f"db7;1;2025-06-15 15:06:40 UTC;{cpu};50;0;0;0;0;0;0;0;0;50\n" for cpu in range(2)]
        row = read(f"{head}\n{''.join(rows)}", cpus=8).frame.iloc[0]
        assert (row["user_s"], row["cpus"]) == (1.0, 2)
        frame = read(SADF_CSV, cpus=4).frame
        assert list(frame["time_s"]) == [START_S, START_S + 1]
        assert list(frame["user_s"]) == pytest.approx([1.2, 2.0])
        assert list(frame["sectors_read"]) == [16, 160]
        assert list(frame["ios"]) == [3, 3]
        assert np.isnan(frame["disk_ios[dm-0]"][1])

    @pytest.mark.parametrize("order", [1, -1])
    def test_another_log_of_the_host_knows_better(self, order, read):
        logs = [SADF_CSV, sadf_document([sample(n, disk=[DISK]) for n in range(2)])]
        frame = read(*logs[::order], cpus=16).frame
        assert set(frame["cpus"]) == {4}
        assert list(frame["user_s"]) == pytest.approx([1.2, 2.0])


class TestText:
    @pytest.mark.parametrize(
        ("log", "options", "start_s", "expected", "remark"),
        [
            (SAR, {}, 1_749_945_600, {
                "interval_s": [10, 10], "user_s": [10, 20], "idle_s": [24, 16],
                "ios": [30, 50], "sectors_read": [160, 160], "disk_queue[sda]": [0.5, 0.5],
                "io_waiting_s": [0.5, 1], "io_stalled_s": [0.25, 0.5],
            }, "interrupts"),
            (SAR_OLD, {}, START_S + 10, {
                # Guests are users too, and each interval begins with its header.
                "interval_s": [10, 20], "user_s": [12, 40], "softirq_s": [0.4, 0],
                "network_rx_bytes": [15360, np.nan], "network_tx_packets": [30, np.nan],
            }, "time zone"),
            (IOSTAT, {}, START_S, {
                "interval_s": [10, 10], "user_s": [10, 20], "ios": [30, 30], "ios_read": [20, 20],
                "sectors_read": [500, 1000], "disk_busy_share[sda]": [0.25, 0.25],
            }, "iostat does not tell"),
            (IOSTAT_OLD, {}, START_S, {"user_s": [10, 20], "sectors_read": [250, 500]}, "zone"),
            (VMSTAT, {"cpus": 4}, START_S + 10, {
                "interval_s": [10, 10], "user_s": [30, 10], "system_s": [2, 2], "run_queue": [4, 2],
                "sectors_read": [200, 600], "context_switches": [4320, 3200], "blocked": [1, 0],
                "swap_in_bytes": [20480, 0], "memory_free_bytes": [2**20, 2**20],
            }, "the time at low priority"),
            (VMSTAT_OLD, {"cpus": 4, "timezone": "Europe/Berlin"}, START_S + 10, {
                "user_s": [30, 10], "memory_inactive_bytes": [10240, 10240],
            }, "in KiB"),
        ],
    )  # fmt: skip
    def test_intervals_by_hand(self, log, options, start_s, expected, remark, read):
        series = read(log, **options)
        assert series.frame["time_s"].iloc[0] == start_s
        assert set(series.frame["cpus"]) == {4.0}
        for column, values in expected.items():
            assert series.frame[column].tolist() == pytest.approx(values, nan_ok=True), column
        assert remark in said(series)

    def test_texts_without_times_and_dates_that_are_none(self, read, refused):
        no_stamp = re.sub(r"2025-\S+", "", VMSTAT)
        refused(r"holds no rows with times: record with vmstat -t", no_stamp)
        refused(r"record with iostat -t", re.sub(r"2025-06-15T.*\n", "", IOSTAT))
        refused(r"has a time that is none \(sar\)", SAR.replace("06/14/25", "06/34/25"))
        assert "06/05/25 is read as month, day" in said(
            read(SAR.replace("06/14", "06/05").replace(" PM", "").replace(" AM", ""))
        )

    @pytest.mark.peer("sar")
    def test_a_binary_file_is_read_through_sadf(self, tmp_path):
        binary = tmp_path / "sa15"
        subprocess.run(["sar", "-o", str(binary), "-u", "1", "2"], capture_output=True, check=True)
        frame = read_time_series(binary).frame
        assert len(frame) == 2
        assert frame["interval_s"].sum() == pytest.approx(2, abs=0.1)
        assert frame["idle_s"].notna().all()


class TestPcp:
    def test_native_units_become_those_of_the_columns(self, read):
        series = read(PCP, timezone="+0000")
        # The first row has no rates yet: it is no interval.
        wanted = {
            "time_s": [START_S + 1, START_S + 2],
            "cpus": [4, 4],
            "user_s": [1.5, 3.0],
            "system_s": [0.25, 0.5],
            "iowait_s": [0.1, 0.0],
            "memory_free_bytes": [1 << 20, 1 << 19],
            "disk_read_bytes[sdb]": [20 * 1024, 0],
            "sectors_read": [60, 0],
            "disk_busy_share[sda]": [0.4, 0],
            "network_rx_bytes": [1000, 2000],
            "network_rx_bytes[lo]": [7, 7],
            "network_speed_bytes_s[eth0]": [125e6, 125e6],
        }
        for column, values in wanted.items():
            assert list(series.frame[column]) == pytest.approx(values), column
        assert marks(series) == ["", ""]
        assert not said(series)
        for separator in ";\t|":
            again = read(PCP.replace(",", separator), timezone="+0000").frame
            pd.testing.assert_frame_equal(again, series.frame)
        series = read(PCP.replace("3000.0", "N/A"))
        assert marks(series) == ["", "not a number"]
        assert np.isnan(series.frame["user_s"][1])

    def test_every_metric_is_a_column(self):
        assert {split_device(f.column)[0] for f in pcp_perf.METRICS.values()} <= set(COLUMNS)

    def test_host_and_interval_where_they_are(self, read):
        frame = read(PCP_HOST).frame
        assert list(frame["host"]) == ["db7", "db7"]
        assert list(frame["interval_s"]) == [10, 10]
        assert list(frame["user_s"]) == [5, 5]

    def test_stamps(self, read):
        for stamp, zone, offset in (
            ("2025-06-15T15:06:40Z", None, 0),
            ("2025-06-15T15:06:40+0200", "Asia/Tokyo", -7200),
            ("2025-06-15T15:06:40-04:00", None, 14400),
            ("2025-06-15 15:06:40", "Europe/Berlin", -7200),
            ("2025-06-15 15:06:40.250", "+0000", 0.25),
        ):
            series = read(f'Time,"kernel.all.cpu.user"\n{stamp},5\n', timezone=zone)
            assert list(series.frame["time_s"]) == [START_S + offset]
            assert "time zone" not in said(series)

    def test_columns_that_change(self, read):
        """With a dynamic header (-G), pmrep writes another one when instances come and go."""
        head = 'Time,"kernel.all.cpu.user","disk.dev.read_bytes-sdc"\n'
        series = read(f"{PCP}{head}2025-06-15 15:06:43,100.0,4.0\n")
        assert list(series.frame["user_s"]) == pytest.approx([1.5, 3.0, 0.1])
        assert np.isnan(series.frame["disk_read_bytes[sda]"][2])
        assert series.frame["disk_read_bytes[sdc]"][2] == 4096
        assert marks(series) == ["", "", "device new; device gone"]


class TestPerf:
    def test_cache_lines_of_all_controllers(self, read):
        lines = [
            counted(at, event, "1000000.000000", socket=socket)
            for at in (1.0, 3.0)
            for event in ("UNC_M_CAS_COUNT.RD", "UNC_M_CAS_COUNT.WR")
            for socket in ("S0", "S1")
        ]
        series = read(perf_log(*lines), timezone="+0000")
        frame = series.frame
        assert list(frame["time_s"]) == [START_S + 1, START_S + 3]
        assert list(frame["interval_s"]) == [1, 2]
        # Counts are of the interval; a transfer is a line of 64 bytes.
        assert list(frame["memory_read_bytes"]) == [128e6, 128e6]
        assert list(frame["memory_written_bytes"]) == [128e6, 128e6]
        assert not said(series)

    @pytest.mark.cases(
        "event, unit, column, bytes_",
        ("uncore_imc/data_reads/", "MiB", "memory_read_bytes", 2**20),
        ("uncore_imc_0/cas_count_write/", "MiB", "memory_written_bytes", 2**20),
        ("unc_m_cas_count.rd", "", "memory_read_bytes", 64),
        ("umc_cas_cmd.wr", "", "memory_written_bytes", 64),
        ("context-switches", "", "context_switches", 1),
        ("cs:u", "", "context_switches", 1),
        ("major-faults", "", "major_faults", 1),
    )
    def test_events(self, event, unit, column, bytes_, read):
        assert list(read(perf_log(counted(1.0, event, "3.0", unit))).frame[column]) == [3 * bytes_]

    def test_the_task_clock_is_not_read(self, read, refused):
        clock = counted(1.0, "task-clock", "2000.0", "msec")
        assert "scheduled_s" not in read(perf_log(clock, counted(1.0, "cs", "3"))).frame
        refused("that ppw can use", perf_log(clock))

    def test_what_was_not_counted_is_not_known(self, read):
        lines = [counted(1.0, "cs", "3.0"), counted(1.0, "unc_m_cas_count.rd", "<not counted>")]
        lines += [counted(2.0, "cs", "<not supported>"), counted(2.0, "unc_m_cas_count.rd", "2.0")]
        frame = read(perf_log(*lines)).frame
        np.testing.assert_array_equal(frame["context_switches"], [3, np.nan])
        np.testing.assert_array_equal(frame["memory_read_bytes"], [np.nan, 128])

    def test_times_without_a_start(self, read):
        series = read(perf_log(counted(1.0, "cs", "3"), start=""))
        assert list(series.frame["time_s"]) == [1.0]
        assert "from the start of perf" in said(series)
        assert "only with -a" in said(series)

    @pytest.mark.peer("perf")
    def test_perf_itself(self, tmp_path):
        path = tmp_path / "perf.json"
        command = ["perf", "stat", "-a", "-j", "-I", "200", "-o", str(path)]
        command += ["-e", "context-switches,major-faults,task-clock", "--", "sleep", "0.7"]
        subprocess.run(command, check=True)
        frame = read_time_series(path).frame
        assert len(frame) >= 4
        assert frame["interval_s"].sum() >= 0.7
        assert (frame["context_switches"] > 0).all()
        assert frame["time_s"][0] > START_S


class TestOwn:
    @pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
    def test_files_come_back(self, ending, read, tmp_path):
        series = read(SADF)
        path = tmp_path / f"s.{ending}"
        write_time_series(series, path)
        again = read_time_series(path)
        assert again.format == "ppw"
        for column in series.frame:
            # Texts are categories where they were recorded.
            wanted = series.frame[column].astype(again.frame[column].dtype)
            pd.testing.assert_series_equal(again.frame[column], wanted)

    def test_totals_stand_and_other_endings_are_refused(self, read, refused, tmp_path):
        refused("choose disks when you record", OWN, disks=["sda"])
        refused("read alone", OWN, OWN)
        with pytest.raises(MeasurementError, match="ends in"):
            write_time_series(read(SADF), tmp_path / "s.xlsx")

    def test_steps(self, read):
        for times, intervals, wanted in (
            # How long that interval was is not known, nor what was used in it.
            (("40", "41", "30", "31"), [np.nan, 1, 1, 1], ["clock back", "", "", ""]),
            (("40", "41", "44", "45"), [1, 1, 3, 1], ["", "", "gap", ""]),
            (("40", "41", "41"), [1, 1, np.nan], ["", "", "time repeats"]),
        ):
            series = read(plot_log([(f"15:06:{time}", HALF) for time in times]))
            assert series.frame["time_s"].is_monotonic_increasing
            assert marks(series) == wanted
            np.testing.assert_array_equal(series.frame["interval_s"], intervals)
            np.testing.assert_array_equal(series.frame["user_s"], 2 * np.array(intervals))
            assert {finding.mark for finding in series.findings} >= {*wanted} - {""}

    def test_intervals_of_sadf_stay_known(self, read):
        load = [cpu_row(usr=50.0, idle=50.0)]
        series = read(sadf_document([sample(n, cpu_load=load) for n in (10, 11, 5, 6, 16)]))
        assert marks(series) == ["clock back", "", "", "", "gap"]
        assert list(series.frame["interval_s"]) == [1.0] * 5
        assert series.frame["user_s"].sum() == pytest.approx(10.0)

    def test_what_cannot_be_is_marked(self, read):
        for cells, user_s, mark in (
            # Above capacity is kept, below 0 is left out.
            ("90 0 20 0 0 0 0 10", 3.6, "over capacity"),
            ("-5 0 20 0 0 0 0 10", np.nan, "negative"),
            *(
                (f"{text} 0 20 0 0 0 0 10", np.nan, "not a number")
                for text in ("x", "nan", "inf", "1e999", "1e300", "0x10", "1,5")
            ),
        ):
            series = read(plot_log([("15:06:40", cells), ("15:06:41", "7 0 20 0 0 0 0 10")]))
            assert marks(series) == [mark, ""]
            assert list(series.frame["user_s"]) == pytest.approx([user_s, 0.28], nan_ok=True)

    def test_a_broken_counter_of_sadf(self, read):
        broken = {"disk-device": "sda", "tps": 18446744073709551615.0, "rkB": 1e308, "wkB": 4.0}
        series = read(sadf_document([sample(0, disk=[broken]), sample(1, disk=[DISK])]))
        assert marks(series) == ["not a number", ""]
        assert np.isnan(series.frame["sectors_read"][0])
        assert list(series.frame["sectors_written"]) == [8, 8]
        # The rates that would be made of it overflow.
        own = read("time_s,interval_s,user_s,network_rx_bytes\n1,1,1,1e308\n2,1,1,2e17\n")
        np.testing.assert_array_equal(own.frame["network_rx_bytes"], [np.nan, 2e17])

    def test_a_window_the_columns_of_devices_and_the_summary(self, read):
        series = read(SADF)
        start = series.frame["time_s"][0]
        kept = series.between(start, start + 2)
        # The first ends as the window begins.
        assert list(kept.frame["time_s"] - start) == [1, 2]
        assert kept.seconds == 2
        assert series.devices("disk_ios") == {"sda": "disk_ios[sda]"}
        with pytest.raises(MeasurementError, match="did you mean 'disk_ios'"):
            series.devices("disk_io")
        lines = series.summary().splitlines()
        assert lines[0].endswith("log: sadf-json, 4 intervals, 4 s")
        # Half of 4 CPUs for 4 s.
        assert lines[1] == "8 CPU seconds of tasks, by tick"

    def test_what_ticks_missed(self, read):
        series = read("time_s,interval_s,scheduled_s,tick_busy_s\n1,1,2.0,1.5\n2,1,2.0,1.5\n")
        assert series.tick_shortfall() == pytest.approx(0.25)
        missed = "ticks show 75.0% of the scheduler's CPU time: ticks miss too much"
        assert missed in series.summary()


@given(st.lists(st.from_regex(r"(sd[a-z]{1,2}|nvme\d{1,2}n\d|vd[a-z]|mmcblk\d)", fullmatch=True)))
def test_a_partition_is_never_counted_beside_its_disk(disks):
    parts = [f"{d}p1" if d[-1].isdigit() else f"{d}1" for d in disks]
    assert set(physical_disks([*disks, *parts])) == set(disks)


def test_interfaces():
    wires = ["eth0", "enp3s0", "wlp0s20f3", "ib0", "em1", "p1p1"]
    others = ["lo", "docker0", "br-9f2", "veth12ab", "bond0", "eth0.7", "ifb0", "virbr0"]
    assert physical_interfaces([*wires, *others]) == tuple(wires)


@pytest.mark.thirdparty
def test_a_laptop_of_others(data_dir):
    """478 samples of a real laptop: what an independent reading of the columns gives."""
    path = data_dir / "collectl" / "raw" / "demo_1123.tab.gz"
    series = read_time_series(path)
    raw = pd.read_csv(path, sep=" ", skiprows=14)
    assert len(series.frame) == len(raw) == 478
    assert series.frame["time_s"][0] == pd.Timestamp("2020-11-23 14:40:56-05:00").timestamp()
    step = np.array(series.frame["interval_s"])
    for column, name, factor in (
        ("user_s", "[CPU]User%", 0.08),
        ("iowait_s", "[CPU]Wait%", 0.08),
        ("sectors_written", "[DSK]WriteKBTot", 2.0),
        ("context_switches", "[CPU]Ctx/sec", 1.0),
    ):
        assert np.array(series.frame[column]) == pytest.approx(raw[name] * factor * step)
    assert (series.frame["memory_cached_bytes"] == raw["[MEM]Cached"] * 1024).all()
