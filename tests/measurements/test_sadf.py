"""``sadf -j`` and ``sadf -d``: by hand, and both against each other on one recording."""

from __future__ import annotations

import json

import numpy as np
import pytest
from timeseries_logs import START_S, cpu_row, sadf_document, sample, written

from measurements.errors import MeasurementError
from measurements.timeseries import read_time_series
from measurements.timeseries import source as source_module


def said(series):
    return " | ".join(finding.text for finding in series.findings)


class TestJson:
    def read(self, tmp_path, statistics, **options):
        host = options.pop("about", {})
        path = written(tmp_path / "s.json", sadf_document(statistics, **host))
        return read_time_series(path, **options)

    def test_shares_become_seconds_of_all_cpus(self, tmp_path):
        rows = [cpu_row(usr=25.0, guest=5.0, sys=10.0, soft=1.0, iowait=2.0, idle=57.0)]
        series = self.read(tmp_path, [sample(0, cpu_load=rows), sample(10, 10, cpu_load=rows)])
        frame = series.frame
        assert series.format == "sadf-json"
        assert list(frame["time_s"]) == [START_S, START_S + 10]
        assert list(frame["interval_s"]) == [1.0, 10.0]
        # User is with its guests, as in /proc/stat: 30 % of 4 CPUs.
        assert list(frame["user_s"]) == pytest.approx([1.2, 12.0])
        assert list(frame["guest_s"]) == pytest.approx([0.2, 2.0])
        assert list(frame["system_s"]) == pytest.approx([0.4, 4.0])
        assert list(frame["softirq_s"]) == pytest.approx([0.04, 0.4])
        assert list(frame["marks"]) == ["", ""]
        assert "interrupts" not in said(series)

    def test_cpus_one_by_one(self, tmp_path):
        each = [cpu_row(str(n), usr=10.0 * n, idle=100 - 10.0 * n) for n in range(4)]
        together = [cpu_row("all", usr=15.0, idle=85.0), *each]
        for rows in (each, together):
            frame = self.read(tmp_path, [sample(0, cpu_load=rows)]).frame
            assert frame["user_s"][0] == pytest.approx(0.6)
            assert frame["idle_s"][0] == pytest.approx(3.4)

    def test_its_own_number_of_cpus_wins(self, tmp_path):
        series = self.read(tmp_path, [sample(0, cpu_load=[cpu_row(usr=25.0, idle=75.0)])], cpus=16)
        assert (series.frame["user_s"][0], series.frame["cpus"][0]) == (1.0, 4.0)
        assert "given" not in said(series)

    def test_a_number_that_was_given_is_said(self, tmp_path):
        rows = [sample(0, cpu_load=[cpu_row(usr=25.0, idle=75.0)])]
        series = self.read(tmp_path, rows, cpus=16, about={"number-of-cpus": None})
        assert series.frame["user_s"][0] == 4.0
        assert "of the 16 that were given" in said(series)

    def test_without_all(self, tmp_path):
        row = {"cpu": "all", "user": 50.0, "nice": 0.0, "system": 10.0, "iowait": 0.0, "idle": 40.0}
        series = self.read(tmp_path, [sample(0, cpu_load=[row])])
        assert series.frame["system_s"][0] == pytest.approx(0.4)
        assert "irq_s" not in series.frame
        assert "system_s has the interrupts in it" in said(series)

    def test_disks_of_both_versions(self, tmp_path):
        new = [
            {
                "disk-device": d,
                "tps": 3.0,
                "rkB": 8.0,
                "wkB": 4.0,
                "aqu-sz": 0.5,
                "await": 2.0,
                "util-percent": 25.0,
            }
            for d in ("sda", "dm-0")
        ]
        old = [
            {
                "disk-device": "sda",
                "tps": 3.0,
                "rd_sec": 16.0,
                "wr_sec": 8.0,
                "avgqu-sz": 0.5,
                "await": 2.0,
                "util-percent": 25.0,
            }
        ]
        for disks in (new, old):
            row = self.read(tmp_path, [sample(0, disk=disks)]).frame.iloc[0]
            assert (row["sectors_read"], row["sectors_written"], row["ios"]) == (16, 8, 3)
            assert row["disk_busy_share[sda]"] == 0.25
            assert row["disk_queue[sda]"] == 0.5
            assert row["disk_wait_s[sda]"] == pytest.approx(0.002)

    def test_disks_in_total(self, tmp_path):
        io = {
            "tps": 5.0,
            "io-reads": {"rtps": 3.0, "bread": 24.0},
            "io-writes": {"wtps": 2.0, "bwrtn": 16.0},
        }
        row = self.read(tmp_path, [sample(0, 2, io=io)]).frame.iloc[0]
        assert (row["sectors_read"], row["sectors_written"]) == (48, 32)
        assert (row["ios"], row["ios_read"], row["ios_written"]) == (10, 6, 4)
        disks = [{"disk-device": "sda", "tps": 3.0, "rkB": 8.0, "wkB": 4.0}]
        row = self.read(tmp_path, [sample(0, 2, io=io, disk=disks)]).frame.iloc[0]
        assert row["sectors_read"] == 32

    def test_a_disk_that_appears(self, tmp_path):
        one = {"disk-device": "sda", "tps": 1.0, "rkB": 8.0, "wkB": 0.0}
        two = {**one, "disk-device": "sdb"}
        series = self.read(
            tmp_path, [sample(0, disk=[one]), sample(1, disk=[one, two]), sample(2, disk=[one])]
        )
        assert list(series.frame["sectors_read"]) == [16, 32, 16]
        assert list(series.frame["marks"]) == ["", "device new", "device gone"]

    def test_the_rest(self, tmp_path):
        series = self.read(
            tmp_path,
            [
                sample(
                    0,
                    2,
                    process_and_context_switch={"proc": 1.0, "cswch": 100.0},
                    swap_pages={"pswpin": 2.0, "pswpout": 3.0},
                    paging={"majflt": 4.0},
                    memory={
                        "memfree": 500,
                        "avail": 700,
                        "memused": 300,
                        "memused-percent": 30.0,
                        "buffers": 50,
                        "cached": 100,
                        "inactive": 60,
                        "slab": 50,
                        "swpused": 9,
                    },
                    queue={"runq-sz": 3, "blocked": 1},
                    network={
                        "net-dev": [
                            {"iface": i, "rxpck": 1.0, "txpck": 2.0, "rxkB": 3.0, "txkB": 4.0}
                            for i in ("lo", "eth0")
                        ],
                        "net-edev": [
                            {
                                "iface": "eth0",
                                "rxerr": 1.0,
                                "txerr": 2.0,
                                "rxdrop": 3.0,
                                "txdrop": 4.0,
                            }
                        ],
                    },
                )
            ],
        )
        row = series.frame.iloc[0]
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

    def test_no_page_size_no_swap_in_bytes(self, tmp_path):
        series = self.read(
            tmp_path,
            [sample(0, swap_pages={"pswpin": 2.0, "pswpout": 3.0})],
            about={"machine": "ppc64le"},
        )
        assert "swap_in_bytes" not in series.frame

    def test_local_times(self, tmp_path):
        late = sample(0, queue={"runq-sz": 1, "blocked": 0})
        late["timestamp"]["utc"] = 0
        series = self.read(tmp_path, [late], about={"timezone": "CET"})
        assert "times are read as UTC" in said(series)
        series = self.read(tmp_path, [late], about={"timezone": "CET"}, timezone="+0100")
        assert series.frame["time_s"][0] == START_S - 3600
        assert "UTC" not in said(series)

    def test_restarts(self, tmp_path):
        idle = [cpu_row(idle=100.0)]
        document = json.loads(sadf_document([sample(0, cpu_load=idle), sample(60, cpu_load=idle)]))
        boot = {"date": "2025-06-15", "time": "15:07:30", "utc": 1}
        document["sysstat"]["hosts"][0]["restarts"] = [{"boot": boot}]
        series = read_time_series(written(tmp_path / "s.json", json.dumps(document)))
        assert list(series.frame["marks"]) == ["", "restart"]

    @pytest.mark.parametrize("size", [64, 997, 1 << 20])
    def test_pieces_of_any_size(self, tmp_path, monkeypatch, size):
        rows = [sample(n, cpu_load=[cpu_row(usr=float(n))]) for n in range(20)]
        path = written(tmp_path / "s.json", sadf_document(rows))
        monkeypatch.setattr(source_module, "_HEAD_BYTES", 32)
        monkeypatch.setattr(source_module.Source.pieces, "__defaults__", (size,))
        frame = read_time_series(path).frame
        assert np.array(frame["user_s"]) == pytest.approx(np.arange(20) * 0.04)

    def test_a_document_that_breaks_off(self, tmp_path):
        rows = [sample(n, cpu_load=[cpu_row(usr=10.0)]) for n in range(5)]
        text = sadf_document(rows)
        path = written(tmp_path / "s.json", text[: text.rindex("usr")])
        series = read_time_series(path)
        assert len(series.frame) == 4
        assert "breaks off" in said(series)

    def test_a_share_that_is_no_number(self, tmp_path):
        with pytest.raises(MeasurementError, match=r"s\.json: its statistics are not those"):
            self.read(tmp_path, [sample(0, cpu_load=[cpu_row(usr="many")])])


class TestCsv:
    LOG = (
        "# hostname;interval;timestamp;CPU;%usr;%nice;%sys;%iowait;%steal;%irq;%soft;%guest;"
        "%gnice;%idle\n"
        "db7;1;2025-06-15 15:06:40 UTC;-1;25.00;0.00;10.00;0.00;0.00;0.00;1.00;5.00;0.00;59.00\n"
        "db7;1;2025-06-15 15:06:41 UTC;-1;50.00;0.00;10.00;0.00;0.00;0.00;1.00;0.00;0.00;39.00\n"
        "# hostname;interval;timestamp;DEV;tps;rkB/s;wkB/s;dkB/s;areq-sz;aqu-sz;await;%util\n"
        "db7;1;2025-06-15 15:06:40 UTC;sda;3.00;8.00;4.00;0.00;8.00;0.50;2.00;25.00\n"
        "db7;1;2025-06-15 15:06:40 UTC;dm-0;3.00;8.00;4.00;0.00;8.00;0.50;2.00;25.00\n"
        "db7;1;2025-06-15 15:06:41 UTC;sda;3.00;80.00;4.00;0.00;8.00;0.50;2.00;25.00\n"
    )

    def test_by_hand(self, tmp_path):
        series = read_time_series(written(tmp_path / "s.csv", self.LOG), cpus=4)
        assert series.format == "sadf-csv"
        frame = series.frame
        assert list(frame["time_s"]) == [START_S, START_S + 1]
        assert list(frame["user_s"]) == pytest.approx([1.2, 2.0])
        assert list(frame["sectors_read"]) == [16, 160]
        assert list(frame["ios"]) == [3, 3]
        assert np.isnan(frame["disk_ios[dm-0]"][1])

    def test_shares_of_how_many(self, tmp_path):
        series = read_time_series(written(tmp_path / "s.csv", self.LOG))
        assert "user_s" not in series.frame
        assert "give their number" in said(series)

    def test_a_number_that_was_given_is_said(self, tmp_path):
        series = read_time_series(written(tmp_path / "s.csv", self.LOG), cpus=4)
        assert set(series.frame["cpus"]) == {4}
        assert "they are taken to be of the 4 that were given" in said(series)

    @pytest.mark.parametrize("order", [1, -1])
    def test_another_log_of_the_host_knows_better(self, tmp_path, order):
        disk = [{"disk-device": "sda", "tps": 1.0, "rkB": 4.0}]
        samples = [sample(n, disk=disk) for n in range(2)]
        logs = [
            written(tmp_path / "s.csv", self.LOG),
            written(tmp_path / "d.json", sadf_document(samples)),
        ]
        series = read_time_series(logs[::order], cpus=16)
        assert set(series.frame["cpus"]) == {4}
        assert list(series.frame["user_s"]) == pytest.approx([1.2, 2.0])

    @pytest.mark.parametrize("second", [LOG, LOG.partition("# hostname;interval;timestamp;DEV")[0]])
    def test_a_log_of_two_hosts(self, tmp_path, second):
        path = written(tmp_path / "s.csv", self.LOG + second.replace("db7;", "db8;"))
        with pytest.raises(MeasurementError, match=r"s\.csv: is of host 'db7' and then of 'db8'"):
            read_time_series(path, cpus=4)

    def test_cpus_one_by_one_are_counted(self, tmp_path):
        head = self.LOG.partition("\n")[0]
        rows = [f"db7;1;2025-06-15 15:06:40 UTC;{cpu};50;0;0;0;0;0;0;0;0;50\n" for cpu in range(2)]
        text = f"{head}\n{''.join(rows)}"
        row = read_time_series(written(tmp_path / "s.csv", text), cpus=8).frame.iloc[0]
        assert (row["user_s"], row["cpus"]) == (1.0, 2)
