"""Plot logs of collectl: by hand, in every form of time and separator, and a third party's."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from timeseries_logs import COMMENTS, CPU_HEADER, START_S, plain_log, plot_log, written

from measurements.errors import MeasurementError
from measurements.timeseries import read_time_series


def said(series):
    return " | ".join(finding.text for finding in series.findings)


class TestByHand:
    def test_shares_become_seconds_of_all_cpus(self, tmp_path):
        log = plot_log(
            [("15:06:40", "25 0 10 5 0 1 0 59"), ("15:06:42", "50 1 20 0 2 0 3 24")],
        )
        series = read_time_series(written(tmp_path / "a.tab", log))
        frame = series.frame
        assert series.format == "collectl"
        assert list(frame["time_s"]) == [START_S, START_S + 2]
        # The first by the header, the second by the step.
        assert list(frame["interval_s"]) == [1.0, 2.0]
        # 25 % of 4 CPUs for 1 s, 50 % of them for 2 s.
        assert list(frame["user_s"]) == pytest.approx([1.0, 4.0])
        assert list(frame["iowait_s"]) == pytest.approx([0.2, 0.0])
        assert list(frame["softirq_s"]) == pytest.approx([0.04, 0.0])
        assert list(frame["marks"]) == ["", "gap"]
        assert set(frame["host"]) == {"db7"}
        assert set(frame["cpus"]) == {4.0}
        assert set(frame["hz"]) == {100.0}
        assert set(frame["cpu_accounting"]) == {"tick"}

    def test_what_was_not_recorded_is_not_there(self, tmp_path):
        frame = read_time_series(written(tmp_path / "a.tab", plain_log())).frame
        assert not {"sectors_read", "memory_total_bytes", "network_rx_bytes"} & set(frame.columns)

    def test_totals_of_disks_memory_and_network(self, tmp_path):
        header = (
            "[MEM]Tot [MEM]Free [MEM]SwapIn [NET]RxKBTot [DSK]ReadTot [DSK]ReadKBTot "
            "[DSK]WriteKBTot [CPU]Ctx/sec"
        )
        log = plot_log([("15:06:40", "1000 400 8192 3 7 100 50 11")], header)
        row = read_time_series(written(tmp_path / "a.tab", log)).frame.iloc[0]
        assert row["memory_total_bytes"] == 1000 * 1024
        assert row["memory_free_bytes"] == 400 * 1024
        assert row["swap_in_bytes"] == 8192
        assert row["network_rx_bytes"] == 3 * 1024
        assert (row["ios_read"], row["sectors_read"], row["sectors_written"]) == (7, 200, 100)
        assert row["context_switches"] == 11

    def test_physical_disks_count_once(self, tmp_path):
        names = ("Name", "Reads", "RKBytes", "Writes", "WKBytes", "QueLen", "Wait", "Util")
        disks = ("sda", "sda1", "dm-0", "nvme0n1", "loop0")
        header = " ".join(f"[DSK:{d}]{n}" for d in disks for n in names)
        fields = " ".join(f"{d} 10 100 4 50 6 3 50" for d in disks)
        path = written(tmp_path / "a.dsk", plot_log([("15:06:40", fields)], header))
        row = read_time_series(path).frame.iloc[0]
        # sda and nvme0n1, 100 KB each, two sectors a KB.
        assert row["sectors_read"] == 400
        assert row["sectors_written"] == 200
        assert (row["ios"], row["ios_read"], row["ios_written"]) == (28, 20, 8)
        assert row["disk_read_bytes[dm-0]"] == 102_400
        assert row["disk_wait_s[sda]"] == pytest.approx(0.003)
        assert row["disk_busy_share[sda]"] == 0.5
        # Six in progress while busy, half the time.
        assert row["disk_queue[sda]"] == 3.0
        chosen = read_time_series(path, disks=["loop0"]).frame.iloc[0]
        assert chosen["sectors_read"] == 200
        with pytest.raises(MeasurementError, match="no disk sdz; its disks are sda"):
            read_time_series(path, disks=["sdz"])

    def test_stacked_disks_alone_make_no_total(self, tmp_path):
        log = plot_log([("15:06:40", "dm-0 8")], "[DSK:dm-0]Name [DSK:dm-0]RKBytes")
        series = read_time_series(written(tmp_path / "a.dsk", log))
        assert "sectors_read" not in series.frame
        assert "no disk of the log is known to be a physical one (dm-0)" in said(series)

    def test_cpus_one_by_one(self, tmp_path):
        header = " ".join(f"[CPU:{c}]{n}" for c in (0, 1) for n in ("User%", "Idle%", "Guest%"))
        rows = [("15:06:40", "100 0 77 50 50 88"), ("15:06:41", "0 100 77 0 100 88")]
        log = plot_log(rows, header, comments="")
        series = read_time_series(written(tmp_path / "a.cpu", log))
        row = series.frame.iloc[0]
        assert (row["user_s"], row["idle_s"], row["cpus"]) == (1.5, 0.5, 2)
        # collectl heads interrupts with Guest% by CPU.
        assert "guest_s" not in series.frame

    def test_line_rates_and_interfaces(self, tmp_path):
        names = ("Name", "RxKB", "TxKB", "RxErr", "TxErr", "RxDrp")
        header = " ".join(f"[NET:{i}]{n}" for i in ("lo", "eth0") for n in names)
        log = plot_log([("15:06:40", "lo 9 9 0 0 0 eth0 200000 1 2 3 4")], header)
        series = read_time_series(written(tmp_path / "a.net", log))
        row = series.frame.iloc[0]
        assert row["network_speed_bytes_s[eth0]"] == 125e6
        assert "network_speed_bytes_s[lo]" not in series.frame
        assert row["network_rx_bytes"] == row["network_rx_bytes[eth0]"] == 200_000 * 1024
        assert (row["network_errors"], row["network_rx_drops"]) == (5, 4)
        # 204.8 MB in a second over a line of 125 MB/s: kept, and marked.
        assert row["marks"] == "over capacity"
        assert "[network_rx_bytes[eth0]]" in said(series)

    def test_amounts_without_rates(self, tmp_path):
        header = f"{CPU_HEADER} [CPU]Ctx/int"
        log = plot_log(
            [("15:06:40", "100 0 0 0 0 0 0 300 7"), ("15:06:50", "1000 0 0 0 0 0 0 3000 70")],
            header,
            COMMENTS.replace("Interval: 1", "Interval: 10"),
        )
        frame = read_time_series(written(tmp_path / "a.tab", log)).frame
        # Ticks of 1/100 s.
        assert list(frame["user_s"]) == [1.0, 10.0]
        assert list(frame["context_switches"]) == [7.0, 70.0]


class TestForms:
    """One recording in every form of time and separator."""

    def expect(self, path, times=(0, 1, 2)):
        series = read_time_series(path, cpus=4)
        assert list(series.frame["time_s"] - START_S) == pytest.approx(list(times))
        assert list(series.frame["user_s"][1:]) == pytest.approx([2.0] * (len(times) - 1))
        return series

    def test_separator(self, tmp_path):
        lines = plain_log().splitlines()
        table = [ln if ln.startswith("# ") else ln.replace(" ", ";") for ln in lines]
        self.expect(written(tmp_path / "a.tab", "\n".join(table) + "\n"))

    def test_gzip(self, tmp_path):
        path = tmp_path / "a.tab.gz"
        path.write_bytes(gzip.compress(plain_log().encode()))
        self.expect(path)

    def test_on_the_terminal(self, tmp_path):
        log = "waiting for 1 second sample...\n" + plain_log().removeprefix(COMMENTS)
        series = self.expect(written(tmp_path / "a.txt", log))
        assert "does not say its time zone" in said(series)

    def test_on_the_terminal_without_a_number_of_cpus(self, tmp_path):
        log = written(tmp_path / "a.txt", plain_log().removeprefix(COMMENTS))
        series = read_time_series(log)
        assert "user_s" not in series.frame
        assert "give their number" in said(series)

    def test_its_own_number_of_cpus_wins(self, tmp_path):
        series = read_time_series(written(tmp_path / "a.tab", plain_log()), cpus=16)
        # 50 % of the 4 CPUs of the header.
        assert set(series.frame["user_s"]) == {2.0}
        assert set(series.frame["cpus"]) == {4.0}
        assert "given" not in said(series)

    def test_a_number_that_was_given_is_said(self, tmp_path):
        log = written(tmp_path / "a.txt", plain_log().removeprefix(COMMENTS))
        series = read_time_series(log, cpus=16)
        assert set(series.frame["user_s"]) == {8.0}
        assert "they are taken to be of the 16 that were given" in said(series)

    @pytest.mark.parametrize("options", [{}, {"columns": ["user_s"]}])
    def test_a_log_of_two_hosts(self, tmp_path, options):
        later = plain_log().replace("db7", "db8").replace("15:06:4", "15:16:4")
        path = written(tmp_path / "both.tab", plain_log() + later)
        with pytest.raises(
            MeasurementError, match=r"both\.tab: is of host 'db7' and then of 'db8'"
        ):
            read_time_series(path, **options)
        # The caller may know better: a host that was given another name.
        assert len(read_time_series(path, host="db").frame) == 6

    def test_segments_of_one_host(self, tmp_path):
        later = plain_log().replace("15:06:4", "15:16:4")
        path = written(tmp_path / "one.tab", plain_log() + later)
        assert set(read_time_series(path).frame["host"]) == {"db7"}

    def test_epoch(self, tmp_path):
        rows = "".join(f"{START_S + n} 50 0 0 0 0 0 0 50\n" for n in range(3))
        self.expect(written(tmp_path / "a.tab", f"{COMMENTS}#UTC {CPU_HEADER}\n{rows}"))

    def test_milliseconds(self, tmp_path):
        log = plot_log([(f"15:06:4{n}.25{n}", "50 0 0 0 0 0 0 50") for n in range(3)])
        series = read_time_series(written(tmp_path / "a.tab", log))
        assert list(series.frame["interval_s"][1:]) == pytest.approx([1.001, 1.001])

    def test_month_and_day(self, tmp_path):
        log = plain_log().replace("20250615 ", "06/15 ")
        self.expect(written(tmp_path / "a.tab", log))
        alone = log.removeprefix(COMMENTS)
        with pytest.raises(MeasurementError, match="have no year"):
            read_time_series(written(tmp_path / "b.tab", alone), cpus=4)

    @pytest.mark.parametrize("zone", ["-0500", "America/Bogota"])
    def test_time_zones(self, tmp_path, zone):
        log = plain_log()
        if zone.startswith("-"):
            log = log.replace("TZ: +0000", f"TZ: {zone}")
            series = read_time_series(written(tmp_path / "a.tab", log))
        else:
            series = read_time_series(written(tmp_path / "a.tab", log), timezone=zone)
        assert series.frame["time_s"][0] == START_S + 5 * 3600

    def test_below_a_second_without_milliseconds(self, tmp_path):
        rows = [("15:06:40", "50 0 0 0 0 0 0 50")] * 2 + [("15:06:41", "50 0 0 0 0 0 0 50")] * 2
        log = plot_log(rows, comments=COMMENTS.replace("Interval: 1", "Interval: 0.5"))
        frame = read_time_series(written(tmp_path / "a.tab", log)).frame
        assert list(frame["interval_s"]) == [0.5] * 4
        assert frame["user_s"].sum() == pytest.approx(4.0)


class TestChanges:
    def test_columns_that_change_in_the_middle(self, tmp_path):
        first = plot_log([("15:06:40", "sda 8")], "[DSK:sda]Name [DSK:sda]RKBytes")
        second = plot_log(
            [("15:06:41", "sda 8 sdb 4"), ("15:06:42", "sda 8 sdb 4")],
            "[DSK:sda]Name [DSK:sda]RKBytes [DSK:sdb]Name [DSK:sdb]RKBytes",
            comments="",
        )
        series = read_time_series(written(tmp_path / "a.tab", first + second))
        assert list(series.frame["sectors_read"]) == [16, 24, 24]
        assert np.isnan(series.frame["disk_read_bytes[sdb]"][0])
        assert list(series.frame["marks"]) == ["", "device new", ""]
        assert "[sdb]" in said(series)

    def test_a_recording_that_was_started_anew(self, tmp_path):
        later = plain_log().replace("15:06:", "15:16:")
        series = read_time_series(written(tmp_path / "a.tab", plain_log() + later))
        assert list(series.frame["marks"]) == ["", "", "", "restart", "", ""]
        # Ten minutes without a recorder are no interval.
        assert list(series.frame["interval_s"]) == [1.0] * 6

    def test_the_same_header_again_is_no_restart(self, tmp_path):
        header, _, rows = plain_log().partition("#Date")
        names, _, rows = rows.partition("\n")
        lines = rows.splitlines(keepends=True)
        again = f"#Date{names}\n"
        log = header + again + lines[0] + again + lines[1] + again + lines[2]
        assert list(read_time_series(written(tmp_path / "a.tab", log)).frame["marks"]) == [""] * 3

    def test_files_beside_each_other(self, tmp_path):
        disks = plot_log(
            [(f"15:06:{40 + n}", "sda 8") for n in range(1, 4)], "[DSK:sda]Name [DSK:sda]RKBytes"
        )
        series = read_time_series(
            [written(tmp_path / "a.tab", plain_log()), written(tmp_path / "a.dsk", disks)]
        )
        assert len(series.frame) == 4
        assert series.frame["sectors_read"].tolist()[1:] == [16, 16, 16]
        assert np.isnan(series.frame["sectors_read"][0])
        assert np.isnan(series.frame["user_s"][3])

    def test_other_hosts_are_not_joined(self, tmp_path):
        other = plain_log().replace("db7", "db8")
        paths = [written(tmp_path / "a.tab", plain_log()), written(tmp_path / "b.tab", other)]
        with pytest.raises(MeasurementError, match="is of host 'db8'"):
            read_time_series(paths)


class TestColumns:
    def test_only_those_asked_for(self, tmp_path):
        header = f"{CPU_HEADER} [DSK:sda]Name [DSK:sda]RKBytes [DSK:sda]WKBytes"
        log = plot_log([("15:06:40", "50 0 0 0 0 0 0 50 sda 8 x")], header)
        path = written(tmp_path / "a.tab", log)
        frame = read_time_series(path, columns=["user_s", "sectors_read"]).frame
        kept = ["time_s", "interval_s", "host", "cpus", "user_s", "sectors_read", "marks"]
        assert list(frame.columns) == kept
        # What was not needed was not parsed.
        assert frame["marks"][0] == ""
        assert read_time_series(path).frame["marks"][0] == "not a number"

    def test_an_unknown_one(self, tmp_path):
        with pytest.raises(MeasurementError, match="did you mean 'sectors_read'"):
            read_time_series(written(tmp_path / "a.tab", plain_log()), columns=["sector_read"])


@pytest.mark.thirdparty
def test_a_laptop_of_others(data_dir):
    """478 samples of a real laptop: what an independent reading of the columns gives."""
    import pandas as pd

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
