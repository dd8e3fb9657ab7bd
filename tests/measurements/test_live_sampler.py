"""The live sampler: counts of made-up kernels by hand, real loads, and beside collectl and sar."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from peers.loop_device import loop_device

from measurements.errors import MeasurementError
from measurements.timeseries import LiveSampler, read_time_series, sample
from measurements.timeseries.own import Writer
from measurements.timeseries.schema import COLUMNS, MARKS, split_device

ROOT = Path(__file__).resolve().parents[2]
HZ = os.sysconf("SC_CLK_TCK")
HOST_NAMESPACES = {"cgroup": "cgroup:[4026531835]", "pid": "pid:[4026531836]"}


class MadeUpKernel:
    """Trees of /proc and /sys with two CPUs, disks on disks, and interfaces."""

    def __init__(self, folder):
        self.proc, self.sys, self.root = folder / "proc", folder / "sys", folder
        (self.proc / "net").mkdir(parents=True)
        (self.proc / "self/ns").mkdir(parents=True)
        for name, target in HOST_NAMESPACES.items():
            (self.proc / "self/ns" / name).symlink_to(target)
        self.sys.mkdir()
        for disk in ("sda", "nvme0n1"):
            self.add_disk(disk)
        for disk in ("dm-0", "loop0", "md0", "zram0"):
            self.add_disk(disk, "virtual")
        eth0 = self.sys / "class/net/eth0"
        (eth0 / "device").mkdir(parents=True)
        (eth0 / "speed").write_text("1000\n")
        self.stat(user=100, system=50, idle=1000, iowait=20)
        (self.proc / "vmstat").write_text("pswpin 1\npswpout 2\npgmajfault 3\n")
        (self.proc / "meminfo").write_text("MemTotal: 1000 kB\nSwapTotal: 9 kB\nSwapFree: 4 kB\n")
        self.disks({"sda": (1, 8, 1, 1, 8, 1, 1, 1)})
        self.network({"lo": (0,) * 8, "eth0": (0,) * 8})

    def add_disk(self, name, kind="pci0000:00"):
        folder = self.sys / "devices" / kind / "block" / name
        folder.mkdir(parents=True)
        (self.sys / "block").mkdir(exist_ok=True)
        (self.sys / "block" / name).symlink_to(folder)

    def stat(self, user=0, nice=0, system=0, idle=0, iowait=0, irq=0, soft=0, steal=0, ctxt=0):
        ticks = (user, nice, system, idle, iowait, irq, soft, steal, 0, 0)
        (self.proc / "stat").write_text(
            f"cpu  {' '.join(map(str, ticks))}\ncpu0 1\ncpu1 1\nintr 5 6\nctxt {ctxt}\n"
            "procs_running 3\nprocs_blocked 1\n"
        )

    def scheduled(self, seconds):
        folder = self.sys / "fs/cgroup/cpuacct"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "release_agent").touch()
        (folder / "cpuacct.usage").write_text(f"{int(seconds * 1e9)}\n")

    def disks(self, counts):
        rows = []
        for name, (reads, sr, rms, writes, sw, wms, busy, queue) in counts.items():
            rows.append(f"8 0 {name} {reads} 0 {sr} {rms} {writes} 0 {sw} {wms} 0 {busy} {queue}")
        (self.proc / "diskstats").write_text("\n".join(rows) + "\n")

    def network(self, counts):
        rows = []
        for name, (rb, rp, re_, rd, tb, tp, te, td) in counts.items():
            rows.append(f"{name}: {rb} {rp} {re_} {rd} 0 0 0 0 {tb} {tp} {te} {td} 0 0 0 0")
        (self.proc / "net/dev").write_text("Inter-|\n face |\n" + "\n".join(rows) + "\n")

    def sampler(self, **options):
        trees = {"procfs": self.proc, "sysfs": self.sys, "root": self.root}
        return LiveSampler(host="made-up", **trees, **options)


@pytest.fixture
def kernel(tmp_path):
    return MadeUpKernel(tmp_path)


class TestByHand:
    def test_ticks(self, kernel):
        sampler = kernel.sampler()
        kernel.stat(user=100 + HZ, system=50 + HZ // 2, idle=1000 + HZ // 4, iowait=20, ctxt=77)
        row = sampler.row()
        assert (row["user_s"], row["system_s"], row["idle_s"]) == (1.0, 0.5, 0.25)
        assert (row["cpu_accounting"], row["tick_busy_s"], row["scheduled_s"]) == (
            "tick",
            1.5,
            None,
        )
        assert (row["cpus"], row["hz"], row["context_switches"]) == (2, HZ, 77)
        # One of the three that run is the sampler.
        assert (row["run_queue"], row["blocked"]) == (2, 1)
        assert row["memory_total_bytes"] == 1000 * 1024
        assert row["swap_used_bytes"] == 5 * 1024
        assert "CPU time is by ticks only" in " ".join(sampler.caveats)

    def test_the_scheduler_knows_better(self, kernel):
        kernel.scheduled(10.0)
        sampler = kernel.sampler()
        time.sleep(0.1)
        kernel.stat(user=100 + 3, system=50 + 1, idle=1000 + 12, iowait=20 + 4)
        kernel.scheduled(10.08)
        row = sampler.row()
        assert row["cpu_accounting"] == "scheduler"
        assert row["scheduled_s"] == pytest.approx(0.08)
        assert row["tick_busy_s"] == pytest.approx(4 / HZ)
        # Three to one, as the ticks fell.
        assert row["user_s"] == pytest.approx(0.06)
        assert row["system_s"] == pytest.approx(0.02)
        # What is left of two CPUs, again three to one.
        left_s = 2 * row["interval_s"] - 0.08
        assert row["idle_s"] == pytest.approx(left_s * 0.75)
        assert row["iowait_s"] == pytest.approx(left_s * 0.25)

    def test_disks_once(self, kernel):
        sampler = kernel.sampler()
        one = (1 + 10, 8 + 160, 1 + 30, 1 + 5, 8 + 80, 1 + 15, 1 + 40, 1 + 60)
        kernel.disks({"sda": one, "sda1": one, "dm-0": one, "md0": one, "loop0": one, "zram0": one})
        time.sleep(0.05)
        row = sampler.row()
        assert (row["sectors_read"], row["sectors_written"]) == (160, 80)
        assert (row["ios"], row["ios_read"], row["ios_written"]) == (15, 10, 5)
        # A sector is 512 bytes, whatever the disk's own.
        assert row["disk_read_bytes[sda]"] == 160 * 512
        assert row["disk_wait_s[sda]"] == pytest.approx(0.003)
        assert row["disk_busy_share[sda]"] == pytest.approx(0.040 / row["interval_s"])
        assert row["disk_queue[sda]"] == pytest.approx(0.060 / row["interval_s"])
        assert {split_device(c)[1] for c in row if c.startswith("disk_")} == {"sda"}

    def test_disks_that_were_named(self, kernel):
        kernel.disks({"sda": (0,) * 8, "loop0": (0,) * 8})
        sampler = kernel.sampler(disks=["loop0"])
        kernel.disks({"sda": (9,) * 8, "loop0": (1, 8, 1, 0, 0, 0, 1, 1)})
        assert sampler.row()["sectors_read"] == 8
        with pytest.raises(MeasurementError, match="no disk sdz; its disks are sda, loop0"):
            kernel.sampler(disks=["sdz"])

    def test_no_io_is_no_wait(self, kernel):
        row = kernel.sampler().row()
        assert row["ios"] == 0
        assert row["disk_wait_s[sda]"] is None

    def test_network(self, kernel):
        sampler = kernel.sampler()
        kernel.network({"lo": (7,) * 8, "eth0": (100, 2, 3, 4, 50, 6, 7, 8), "br0": (9,) * 8})
        row = sampler.row()
        assert (row["network_rx_bytes"], row["network_tx_bytes"]) == (100, 50)
        assert (row["network_errors"], row["network_rx_drops"]) == (10, 4)
        assert row["network_rx_bytes[lo]"] == 7
        assert row["network_speed_bytes_s[eth0]"] == 125e6
        assert "network_speed_bytes_s[lo]" not in row

    def test_every_column_and_mark_is_in_the_schema(self, kernel):
        row = kernel.sampler().row()
        assert {split_device(column)[0] for column in row} <= COLUMNS.keys()
        assert set(filter(None, row["marks"].split("; "))) <= MARKS.keys()


class TestFaults:
    def test_counters_that_go_back(self, kernel):
        kernel.disks({"sda": (9, 80, 9, 9, 80, 9, 9, 9)})
        sampler = kernel.sampler()
        kernel.stat(user=10, system=51, idle=1001, iowait=19)
        kernel.disks({"sda": (10, 8, 10, 10, 88, 10, 10, 10)})
        row = sampler.row()
        assert row["marks"] == "counter back"
        assert (row["user_s"], row["iowait_s"], row["sectors_read"]) == (None, None, None)
        assert (row["system_s"], row["sectors_written"]) == (1 / HZ, 8)

    def test_a_disk_that_appears_and_goes(self, kernel):
        sampler = kernel.sampler()
        kernel.disks({"sda": (1, 8, 1, 1, 8, 1, 1, 1), "nvme0n1": (2, 16, 1, 0, 0, 0, 1, 1)})
        row = sampler.row()
        assert (row["marks"], row["sectors_read"]) == ("device new", 16)
        kernel.disks({"nvme0n1": (2, 16, 1, 0, 0, 0, 1, 1)})
        row = sampler.row()
        assert (row["marks"], row["sectors_read"]) == ("device gone", 0)

    def test_no_linux(self, tmp_path):
        with pytest.raises(MeasurementError, match="has no CPU times"):
            LiveSampler(procfs=tmp_path)

    def test_a_container_by_its_marks_and_namespaces(self, kernel):
        (kernel.root / ".dockerenv").touch()
        # A machine that was made of an image has the marks only.
        assert not any("container" in caveat for caveat in kernel.sampler().caveats)
        (kernel.proc / "self/ns/pid").unlink()
        (kernel.proc / "self/ns/pid").symlink_to("pid:[4026532200]")
        sampler = kernel.sampler()
        assert "this is a container (docker)" in sampler.caveats[0]
        assert sampler.row()["marks"] == "container"
        # With counters of its own there is nothing to say.
        mount = "36 35 0:33 / /proc/stat rw - fuse.lxcfs lxcfs rw\n"
        (kernel.proc / "self/mountinfo").write_text(mount)
        assert not any("container" in caveat for caveat in kernel.sampler().caveats)

    def test_a_real_container(self):
        """In namespaces of its own, a process still sees the counters of the whole host."""
        code = "from measurements.timeseries import LiveSampler; print(LiveSampler().caveats[0])"
        made = ["unshare", "--pid", "--cgroup", "--mount-proc", "--fork"]
        done = subprocess.run(
            [*made, sys.executable, "-c", code],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=True,
        )
        assert "this is a container" in done.stdout


class TestSampling:
    def test_a_command(self, tmp_path):
        """Of a device of its own, since the folder of temporary files may be in memory."""
        with loop_device(tmp_path, 64 << 20) as device:
            copy = ("dd", "if=/dev/zero", f"of={device}", "bs=1M", "count=64", "oflag=direct")
            series = sample(command=[*copy, "status=none"], interval_s=0.1, disks=[device.name])
        assert (series.frame["interval_s"] > 0).all()
        assert series.frame["time_s"].is_monotonic_increasing
        assert series.frame["sectors_written"].sum() == (64 << 20) / 512

    def test_one_of_the_two(self):
        with pytest.raises(MeasurementError, match="either seconds or a command"):
            sample()
        with pytest.raises(MeasurementError, match="cannot be started"):
            sample(command=["no-such-program-anywhere"])

    def test_cpu_time_of_all_cpus_is_the_interval(self):
        series = sample(seconds=2.0, interval_s=0.5)
        row = series.frame[[*filter(lambda c: c in series.frame, _CPU)]].sum()
        capacity_s = float((series.frame["cpus"] * series.frame["interval_s"]).sum())
        assert row.sum() == pytest.approx(capacity_s, rel=0.15)

    @pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
    def test_what_a_killed_one_leaves_can_be_read(self, tmp_path, ending):
        path = tmp_path / f"live.{ending}"
        code = (
            "import sys; from measurements.timeseries.live import LiveSampler, for_seconds\n"
            "from measurements.timeseries.own import Writer\n"
            "writer = Writer(sys.argv[1])\n"
            "for row in LiveSampler(interval_s=0.05).rows(for_seconds(60)):\n"
            "    writer.write(row); print(flush=True)\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, cwd=ROOT
        )
        try:
            for _ in range(4):
                process.stdout.readline()
        finally:
            process.kill()
            process.communicate()
        left = path if ending != "parquet" else path.with_name(f"{path.name}.part.jsonl")
        assert len(read_time_series(left).frame) >= 4

    def test_a_writer_that_was_closed(self, tmp_path, kernel):
        sampler = kernel.sampler()
        for ending in ("csv", "jsonl", "parquet"):
            path = tmp_path / f"a.{ending}"
            with Writer(path) as writer:
                writer.write(sampler.row())
                writer.write(sampler.row())
            frame = read_time_series(path).frame
            assert list(frame["host"]) == ["made-up"] * 2
            assert list(frame["ios"]) == [0.0, 0.0]
            assert frame["disk_wait_s[sda]"].isna().all()
        assert not list(tmp_path.glob("*.part*"))


_CPU = (*("user_s", "nice_s", "system_s", "irq_s", "softirq_s", "steal_s", "idle_s", "iowait_s"),)


class TestCommandLine:
    def run(self, *arguments):
        from click.testing import CliRunner

        from ppw.cli.sample import command

        return CliRunner().invoke(command, list(arguments), standalone_mode=False)

    def test_a_command(self, tmp_path):
        path = tmp_path / "s.csv"
        done = self.run("-o", str(path), "--interval", "100ms", "--", "sleep", "0.35")
        assert done.exit_code == 0, done.output
        assert done.return_value == 0
        said = re.sub(r"[\d.]+(e-\d+)?", "N", done.stderr)
        assert "CPU seconds of tasks, by" in said
        assert "ppw: sleep: N s user and N s system CPU time of its own" in said
        assert len(read_time_series(path).frame) == 4

    def test_one_that_fails(self, tmp_path):
        done = self.run("-o", str(tmp_path / "s.csv"), "--", "sh", "-c", "sleep 0.1; exit 3")
        assert done.return_value == 1
        assert "ppw: error: sh: ended with exit code 3" in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "what"),
        [
            (("-o", "a.csv", "--duration", "1s", "--", "true"), "leave out --duration"),
            (("-o", "-", "--", "true"), "standard output is the COMMAND's"),
            ((), "Missing parameter: output"),
        ],
    )
    def test_wrong_usage(self, arguments, what):
        done = self.run(*arguments)
        assert what in str(done.exception)

    def test_standard_output(self):
        done = self.run("-o", "-", "--duration", "0.3", "--interval", "0.1")
        lines = done.stdout.splitlines()
        assert lines[0].startswith("time_s,interval_s,host")
        assert len(lines) == 4

    def test_an_interrupt_ends_it_well(self, tmp_path):
        path = tmp_path / "s.parquet"
        code = "from ppw.cli.sample import command; command()"
        process = subprocess.Popen(
            [sys.executable, "-c", code, "-o", str(path), "--interval", "0.1", "--", "sleep", "60"],
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        try:
            part = path.with_name("s.parquet.part.jsonl")
            deadline = time.monotonic() + 20
            while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
        assert "sleep: ended with signal 15" in said
        assert len(read_time_series(path).frame) >= 1


SECONDS = 8


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """One load, recorded by collectl, sar and the live sampler at once."""
    folder = tmp_path_factory.mktemp("peers")
    for program in ("collectl", "sar", "sadf", "fio"):
        assert shutil.which(program), f"{program} is missing: see .ci/run"
    binary, plot, count = folder / "sa.bin", folder / "plot.txt", str(SECONDS + 2)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    collectl = ["collectl", "-i1", "-c", count, "-scdnmCD", "-P", "-oUm2"]
    # The stamps of sar are whole seconds: its seconds are to begin where the clock's do.
    time.sleep(1.02 - time.time() % 1)
    with plot.open("wb") as out:
        running = [
            subprocess.Popen(collectl, stdout=out, stderr=subprocess.DEVNULL),
            subprocess.Popen(["sar", "-o", str(binary), "-A", "1", count], **quiet),
        ]
        try:
            time.sleep(0.7)
            live = sample(command=fio_load(folder), interval_s=1.0)
            for process in running:
                process.wait(30)
        finally:
            for process in running:
                process.kill()
                process.wait()
    shown = ["--", "-u", "ALL", "-d", "-r", "ALL", "-n", "DEV", "-w", "-q"]
    found = {"live": live, "collectl": read_time_series(plot, cpus=os.cpu_count())}
    for form, name in (("-j", "sa.json"), ("-d", "sa.csv")):
        with (folder / name).open("wb") as out:
            subprocess.run(["sadf", form, str(binary), *shown], stdout=out, check=True)
        found[name] = read_time_series(folder / name, cpus=os.cpu_count())
    return found


def fio_load(folder):
    return [
        "fio", "--name=load", f"--filename={folder / 'fio.dat'}", "--size=64M", "--rw=randrw",
        "--bs=64k", "--ioengine=psync", "--fsync=16", "--rate_iops=300", "--time_based",
        f"--runtime={SECONDS - 1}", "--output=/dev/null",
    ]  # fmt: skip


class TestPeers:
    """collectl, sar and the live sampler at once, while fio loads CPU and disk."""

    def window(self, recorded):
        """The seconds that all have whole, by the stamps of the logs."""
        start = max(float(s.frame["time_s"].iloc[0] - 1) for s in recorded.values())
        end = min(float(s.frame["time_s"].iloc[-1]) for s in recorded.values())
        return np.ceil(start), np.floor(end)

    def sums(self, series, window, column):
        """Amount in the window: a row at its edge counts for the part that is inside."""
        start, end = window
        frame = series.frame
        ends = frame["time_s"]
        begins = ends - frame["interval_s"]
        inside = np.clip(np.minimum(ends, end) - np.maximum(begins, start), 0, None)
        return float((frame[column] * inside / frame["interval_s"]).sum())

    def test_tick_readers_agree_on_cpu_time(self, recorded):
        window = self.window(recorded)
        assert window[1] - window[0] >= SECONDS - 3
        busy = {}
        for name, series in recorded.items():
            if name == "live":
                busy[name] = self.sums(series, window, "tick_busy_s")
            else:
                parts = ("user_s", "nice_s", "system_s")
                busy[name] = sum(self.sums(series, window, part) for part in parts)
        reference = busy["sa.json"]
        # The clock shows no more than a tick of each CPU at either end of the window.
        ticks_s = 2 * (os.cpu_count() or 1) / os.sysconf("SC_CLK_TCK")
        for name, seconds in busy.items():
            assert seconds == pytest.approx(reference, rel=0.05, abs=ticks_s), (name, busy)

    def test_readers_agree_on_sectors(self, recorded):
        window = self.window(recorded)
        written = {n: self.sums(s, window, "sectors_written") for n, s in recorded.items()}
        assert written["sa.json"] > 10_000
        for name, sectors in written.items():
            assert sectors == pytest.approx(written["sa.json"], rel=0.25), (name, written)
        assert written["sa.csv"] == pytest.approx(written["sa.json"], rel=0.001)

    def test_both_forms_of_sadf_are_one_recording(self, recorded):
        one, other = recorded["sa.json"].frame, recorded["sa.csv"].frame
        shared = [
            c for c in one if c in other and c not in ("host", "marks", "cpu_accounting", "cpus")
        ]
        assert {"user_s", "sectors_read", "run_queue"} <= set(shared)
        for column in shared:
            assert np.array(one[column], dtype=float) == pytest.approx(
                np.array(other[column], dtype=float), nan_ok=True
            ), column

    def test_memory_is_the_same(self, recorded):
        total = recorded["live"].frame["memory_total_bytes"].iloc[0]
        assert (recorded["collectl"].frame["memory_total_bytes"] == total).all()
        assert (recorded["sa.json"].frame["memory_total_bytes"] == total).all()

    def test_the_shortfall_of_ticks_is_known(self, recorded):
        live = recorded["live"]
        shortfall = live.tick_shortfall()
        assert shortfall is not None
        assert -0.2 < shortfall < 1
        assert "of the scheduler's CPU time" in live.summary()


class TestSchema:
    def test_the_docs_table_is_the_schema(self):
        text = (ROOT / "docs/time-series.md").read_text(encoding="utf-8").partition("## Columns")[2]
        rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
        documented = {name: (unit, meaning, capacity) for name, unit, meaning, capacity in rows}
        expected = {
            name: (c.unit, c.meaning, f"`{c.capacity}`" if c.capacity else "")
            for name, c in COLUMNS.items()
        }
        assert documented == expected

    def test_the_docs_list_of_marks_is_the_schema(self):
        text = (ROOT / "docs/time-series.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| `([a-z ]+)` \| ([^|]*?) \|$", text, re.MULTILINE)
        assert dict(rows) == MARKS
