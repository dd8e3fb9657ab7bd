"""The live sampler: counts of made-up kernels by hand, real loads, and beside collectl and sar."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from peers.loop_device import loop_device
from peers.waiting import FakeClock, wait_for
from processes import ppw_inside, refused

from measurements.errors import MeasurementError
from measurements.timeseries import LiveSampler, read_time_series, sample
from measurements.timeseries.live import for_seconds
from measurements.timeseries.series import COLUMNS, CPU_COLUMNS, MARKS, Writer, split_device
from measurements.workloads.io_study.cpu_accounting import tick_shortfall

ROOT = Path(__file__).resolve().parents[2]
HZ = os.sysconf("SC_CLK_TCK")


class MadeUpKernel:
    """Trees of /proc and /sys with two CPUs, disks on disks, and interfaces."""

    def __init__(self, folder):
        self.proc, self.sys, self.root = folder / "proc", folder / "sys", folder
        self.clock = FakeClock()
        (self.proc / "net").mkdir(parents=True)
        (self.proc / "self/ns").mkdir(parents=True)
        for name, target in (("cgroup", "cgroup:[4026531835]"), ("pid", "pid:[4026531836]")):
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
        with (self.proc / "diskstats").open("w") as file:
            for name, (reads, sr, rms, writes, sw, wms, busy, queue) in counts.items():
                print(8, 0, name, reads, 0, sr, rms, writes, 0, sw, wms, 0, busy, queue, file=file)

    def network(self, counts):
        with (self.proc / "net/dev").open("w") as file:
            print("Inter-|\n face |", file=file)
            for name, (*received, tb, tp, te, td) in counts.items():
                print(f"{name}:", *received, 0, 0, 0, 0, tb, tp, te, td, 0, 0, 0, 0, file=file)

    def sampler(self, **options):
        trees = {"procfs": self.proc, "sysfs": self.sys, "root": self.root}
        clock = {"clock": self.clock, "wait": self.clock.wait}
        return LiveSampler(host="made-up", **trees, **clock, **options)


@pytest.fixture
def kernel(tmp_path):
    return MadeUpKernel(tmp_path)


class TestByHand:
    def test_ticks(self, kernel):
        sampler = kernel.sampler()
        kernel.stat(user=100 + HZ, system=50 + HZ // 2, idle=1000 + HZ // 4, iowait=20, ctxt=77)
        kernel.clock.wait(1.0)
        row = sampler.row()
        expected = {"user_s": 1.0, "system_s": 0.5, "idle_s": 0.25, "cpu_accounting": "tick"}
        expected |= {"tick_busy_s": 1.5, "scheduled_s": None, "cpus": 2, "hz": HZ}
        expected |= {"interval_s": 1.0, "context_switches": 77, "blocked": 1, "ios": 0}
        expected |= {"memory_total_bytes": 1000 * 1024, "swap_used_bytes": 5 * 1024}
        # One of the three that run is the sampler; no I/O is no wait.
        expected |= {"run_queue": 2, "disk_wait_s[sda]": None}
        assert {column: row[column] for column in expected} == expected
        assert "CPU time is counted by clock ticks" in " ".join(sampler.caveats)
        assert {split_device(column)[0] for column in row} <= COLUMNS.keys()
        assert set(filter(None, row["marks"].split("; "))) <= MARKS.keys()

    def test_pressure_stall(self, kernel):
        stall = "some avg10=1.00 avg60=0.10 avg300=0.00 total={}\nfull avg10=0.00 total={}\n"
        (kernel.proc / "pressure").mkdir()
        (kernel.proc / "pressure/io").write_text(stall.format(2_000_000, 500_000))
        sampler = kernel.sampler()
        (kernel.proc / "pressure/io").write_text(stall.format(2_250_000, 600_000))
        kernel.clock.wait(1.0)
        row = sampler.row()
        assert (row["io_waiting_s"], row["io_stalled_s"]) == (0.25, 0.1)
        assert row["cpu_waiting_s"] is None

    def test_the_scheduler_knows_better(self, kernel):
        kernel.scheduled(10.0)
        sampler = kernel.sampler()
        kernel.clock.wait(0.1)
        kernel.stat(user=100 + 3, system=50 + 1, idle=1000 + 12, iowait=20 + 4)
        kernel.scheduled(10.08)
        row = sampler.row()
        assert row["cpu_accounting"] == "scheduler"
        assert row["tick_busy_s"] == pytest.approx(4 / HZ)
        # Three to one as the ticks fell; of what is left of two CPUs, again three to one.
        columns = ("scheduled_s", "user_s", "system_s", "idle_s", "iowait_s")
        assert [row[c] for c in columns] == pytest.approx([0.08, 0.06, 0.02, 0.09, 0.03])

    def test_disks_once_and_those_that_were_named(self, kernel):
        sampler = kernel.sampler()
        one = (1 + 10, 8 + 160, 1 + 30, 1 + 5, 8 + 80, 1 + 15, 1 + 40, 1 + 60)
        kernel.disks({"sda": one, "sda1": one, "dm-0": one, "md0": one, "loop0": one, "zram0": one})
        kernel.clock.wait(0.05)
        row = sampler.row()
        assert (row["sectors_read"], row["sectors_written"]) == (160, 80)
        assert (row["ios"], row["ios_read"], row["ios_written"]) == (15, 10, 5)
        # A sector is 512 bytes, whatever the disk's own.
        assert row["disk_read_bytes[sda]"] == 160 * 512
        assert row["disk_wait_s[sda]"] == pytest.approx(0.003)
        assert row["disk_busy_share[sda]"] == pytest.approx(0.040 / 0.05)
        assert row["disk_queue[sda]"] == pytest.approx(0.060 / 0.05)
        assert {split_device(c)[1] for c in row if c.startswith("disk_")} == {"sda"}
        # Disks that were named.
        kernel.disks({"sda": (0,) * 8, "loop0": (0,) * 8})
        sampler = kernel.sampler(disks=["loop0"])
        kernel.disks({"sda": (9,) * 8, "loop0": (1, 8, 1, 0, 0, 0, 1, 1)})
        kernel.clock.wait(1.0)
        assert sampler.row()["sectors_read"] == 8
        with pytest.raises(MeasurementError, match="no disk sdz; its disks are sda, loop0"):
            kernel.sampler(disks=["sdz"])

    def test_network(self, kernel):
        sampler = kernel.sampler()
        kernel.network({"lo": (7,) * 8, "eth0": (100, 2, 3, 4, 50, 6, 7, 8), "br0": (9,) * 8})
        kernel.clock.wait(1.0)
        row = sampler.row()
        assert (row["network_rx_bytes"], row["network_tx_bytes"]) == (100, 50)
        assert (row["network_errors"], row["network_rx_drops"]) == (10, 4)
        assert row["network_rx_bytes[lo]"] == 7
        assert row["network_speed_bytes_s[eth0]"] == 125e6
        assert "network_speed_bytes_s[lo]" not in row


class TestFaults:
    def test_counters_that_go_back_and_a_disk_that_appears_and_goes(self, kernel):
        kernel.disks({"sda": (9, 80, 9, 9, 80, 9, 9, 9)})
        sampler = kernel.sampler()
        kernel.stat(user=10, system=51, idle=1001, iowait=19)
        kernel.disks({"sda": (10, 8, 10, 10, 88, 10, 10, 10)})
        kernel.clock.wait(1.0)
        row = sampler.row()
        assert row["marks"] == "counter back"
        assert (row["user_s"], row["iowait_s"], row["sectors_read"]) == (None, None, None)
        assert (row["system_s"], row["sectors_written"]) == (1 / HZ, 8)
        kernel.disks({"sda": (1, 8, 1, 1, 8, 1, 1, 1)})
        sampler = kernel.sampler()
        for disks, told in (
            ({"sda": (1, 8, 1, 1, 8, 1, 1, 1), "nvme0n1": (2, 16, 1, 0, 0, 0, 1, 1)}, "new"),
            ({"nvme0n1": (2, 16, 1, 0, 0, 0, 1, 1)}, "gone"),
        ):
            kernel.disks(disks)
            kernel.clock.wait(1.0)
            row = sampler.row()
            assert row["marks"] == f"device {told}"
            assert row["sectors_read"] == {"new": 16, "gone": 0}[told]

    def test_a_container_by_its_marks_and_namespaces(self, kernel):
        (kernel.root / ".dockerenv").touch()
        # A machine that was made of an image has the marks only.
        assert not any("container" in caveat for caveat in kernel.sampler().caveats)
        (kernel.proc / "self/ns/pid").unlink()
        (kernel.proc / "self/ns/pid").symlink_to("pid:[4026532200]")
        sampler = kernel.sampler()
        assert "this is a container (docker)" in sampler.caveats[0]
        kernel.clock.wait(1.0)
        assert sampler.row()["marks"] == "container"
        # With counters of its own there is nothing to say.
        mount = "36 35 0:33 / /proc/stat rw - fuse.lxcfs lxcfs rw\n"
        (kernel.proc / "self/mountinfo").write_text(mount)
        assert not any("container" in caveat for caveat in kernel.sampler().caveats)

    @pytest.mark.peer("measure")
    def test_a_real_container(self):
        """In namespaces of its own, a process still sees the counters of the whole host."""
        code = "from measurements.timeseries import LiveSampler; print(LiveSampler().caveats[0])"
        made = ["unshare", "--pid", "--cgroup", "--mount-proc", "--fork", sys.executable, "-c"]
        said = subprocess.run([*made, code], capture_output=True, text=True, cwd=ROOT, check=True)
        assert "this is a container" in said.stdout


class TestRows:
    def test_one_each_interval_and_one_for_the_rest_and_none_made_up_for(self, kernel):
        def rows(seconds, late_s=0.0):
            """Rows of so many seconds, in which the first wait takes longer than it should."""
            late = [late_s]

            def wait(wanted_s):
                kernel.clock.wait(wanted_s + (late.pop() if late else 0.0))

            sampler = kernel.sampler(interval_s=0.25)
            return list(sampler.rows(for_seconds(seconds, clock=kernel.clock, wait=wait)))

        assert [row["interval_s"] for row in rows(1.1)] == pytest.approx([0.25] * 4 + [0.1])
        # A rest is never too short for a rate, and its row may be due just before the end.
        assert [row["interval_s"] for row in rows(0.0)] == pytest.approx([0.02])
        assert [row["interval_s"] for row in rows(0.51)] == pytest.approx([0.25] * 2)
        late = rows(1.0, late_s=0.3)
        assert [row["interval_s"] for row in late] == pytest.approx([0.55, 0.2, 0.25])
        assert [row["marks"] for row in late] == ["gap", "", ""]

    def test_an_interrupt_ends_them_with_a_row(self, kernel):
        def ended(seconds):
            kernel.clock.wait(0.07)
            raise KeyboardInterrupt

        (row,) = kernel.sampler().rows(ended)
        assert row["interval_s"] == pytest.approx(0.07)

    @pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
    def test_what_is_written_can_be_read_at_any_time(self, tmp_path, kernel, ending):
        sampler, path = kernel.sampler(), tmp_path / f"a.{ending}"
        part = path if ending != "parquet" else path.with_name(f"{path.name}.part.jsonl")
        with Writer(path) as writer:
            for count in (1, 2):
                kernel.clock.wait(1.0)
                writer.write(sampler.row())
                # What a writer leaves that is killed now.
                assert len(read_time_series(part).frame) == count
        frame = read_time_series(path).frame
        assert list(frame["host"]) == ["made-up"] * 2
        assert list(frame["ios"]) == [0.0, 0.0]
        assert frame["disk_wait_s[sda]"].isna().all()
        assert not list(tmp_path.glob("*.part*"))

    def test_of_this_host_and_what_cannot_be_sampled(self, tmp_path):
        frame = sample(seconds=0.1, interval_s=0.05).frame
        assert (frame["interval_s"] > 0).all()
        assert frame["time_s"].is_monotonic_increasing
        with pytest.raises(MeasurementError, match="has no CPU times"):
            LiveSampler(procfs=tmp_path)
        with pytest.raises(MeasurementError, match="either seconds or a command"):
            sample()
        with pytest.raises(MeasurementError, match="cannot be started"):
            sample(command=["no-such-program-anywhere"])
        with pytest.raises(MeasurementError, match="give 10 ms or more"):
            sample(seconds=1, interval_s=0.001)

    @pytest.mark.peer("fio")
    def test_of_a_command_that_writes_a_device(self, tmp_path):
        """Of a device of its own, since the folder of temporary files may be in memory."""
        with loop_device(tmp_path, 64 << 20) as device:
            copy = ("dd", "if=/dev/zero", f"of={device}", "bs=1M", "count=64", "oflag=direct")
            series = sample(command=[*copy, "status=none"], interval_s=0.1, disks=[device.name])
        assert series.frame["sectors_written"].sum() == (64 << 20) / 512


class TestCommandLine:
    @pytest.fixture
    def run(self, tmp_path, kernel):
        before = signal.getsignal(signal.SIGTERM)
        trees = ("--procfs", kernel.proc, "--sysfs", kernel.sys, "--root", kernel.root)
        yield lambda *given: ppw_inside("sample", *trees, *given, cwd=tmp_path)
        signal.signal(signal.SIGTERM, before)

    @pytest.mark.parametrize("code", [0, 3])
    def test_a_command(self, run, tmp_path, code):
        done = run("-o", "s.csv", "--interval", "10ms", "--", "sh", "-c", f"exit {code}")
        assert done.returncode == (1 if code else 0)
        said = re.sub(r"[\d.]+(e-\d+)?", "N", done.stderr)
        assert "CPU seconds of tasks, by" in said
        assert "ppw: sh: N s user and N s system CPU time of its own" in said
        assert ("ppw: error: sh: ended with exit code N" in said) == bool(code)
        assert len(read_time_series(tmp_path / "s.csv").frame) >= 1

    def test_standard_output(self, run):
        done = run("-o", "-", "--duration", "30ms", "--interval", "10ms")
        header, *rows = done.stdout.splitlines()
        assert header.startswith("time_s,interval_s,host")
        assert len(rows) >= 1

    def test_wrong_usage(self, run):
        both = ("-o", "a.csv", "--duration", "1s", "--", "true")
        refused(run(*both), "leave out --duration", code=2)
        refused(run("-o", "-", "--", "true"), "standard output is the COMMAND's", code=2)
        refused(run(), "Missing option '-o'", code=2)

    def test_an_interrupt_ends_it_well(self, run, tmp_path):
        """The command ends ppw once the first row is written, and is ended by it."""
        written = "until [ -s s.parquet.part.jsonl ]; do sleep 0.02; done"
        command = ("sh", "-c", f"{written}; kill -TERM $PPID; exec sleep 600")
        done = run("-o", "s.parquet", "--interval", "0.3", "--", *command)
        assert "sh: ended with signal 15" in done.stderr
        assert len(read_time_series(tmp_path / "s.parquet").frame) >= 1


SECONDS = 7
# Takes CPU time and writes to its disk.
LOAD = """
import os, sys, time
file, end = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    os.pwrite(file, os.urandom(1 << 20), 0)
    os.fsync(file)
    sum(range(200_000))
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """One load, recorded by collectl, sar and the live sampler at once."""
    folder = tmp_path_factory.mktemp("peers")
    binary, plot, count = folder / "sa.bin", folder / "plot.txt", str(SECONDS + 4)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    collectl = ["collectl", "-i1", "-c", count, "-scdnmCD", "-P", "-oUm2"]
    with plot.open("wb") as out:
        # The stamps of sar are whole seconds: its seconds are to begin where the clock's do.
        time.sleep(1.02 - time.time() % 1)
        running = [
            subprocess.Popen(collectl, stdout=out, stderr=subprocess.DEVNULL),
            subprocess.Popen(["sar", "-o", str(binary), "-A", "1", count], **quiet),
        ]
        try:
            wait_for(lambda: plot.stat().st_size and binary.exists() and binary.stat().st_size)
            load = [sys.executable, "-c", LOAD, str(folder / "load"), str(SECONDS - 1)]
            # The seconds of the live sampler begin there, too: no row is cut at the window's ends.
            time.sleep(1.0 - time.time() % 1)
            live = sample(command=load, interval_s=1.0)
            for process in running:
                process.wait(60)
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


@pytest.mark.peer("collectl")
class TestPeers:
    """collectl, sar and the live sampler at once, while CPU and disk are loaded."""

    @pytest.fixture
    def window(self, recorded):
        """The seconds that all have whole, by the stamps of the logs."""
        start = np.ceil(max(float(s.frame["time_s"].iloc[0] - 1) for s in recorded.values()))
        end = np.floor(min(float(s.frame["time_s"].iloc[-1]) for s in recorded.values()))
        assert end - start >= SECONDS - 3
        return start, end

    def sums(self, series, window, *columns):
        """Amount in the window: a row at its edge counts for the part that is inside."""
        frame, (start, end) = series.frame, window
        ends = frame["time_s"]
        begins = ends - frame["interval_s"]
        inside = np.clip(np.minimum(ends, end) - np.maximum(begins, start), 0, None)
        return sum(float((frame[c] * inside / frame["interval_s"]).sum()) for c in columns)

    def test_tick_readers_agree_on_cpu_time(self, recorded, window):
        parts = ("user_s", "nice_s", "system_s")
        busy = {
            name: self.sums(series, window, *(("tick_busy_s",) if name == "live" else parts))
            for name, series in recorded.items()
        }
        # The clock shows no more than a tick of each CPU at either end of the window.
        ticks_s = 2 * (os.cpu_count() or 1) / HZ
        for name, seconds in busy.items():
            assert seconds == pytest.approx(busy["sa.json"], rel=0.05, abs=ticks_s), (name, busy)
        live = recorded["live"]
        capacity_s = float((live.frame["cpus"] * live.frame["interval_s"]).sum())
        spent_s = float(live.frame[list(CPU_COLUMNS)].sum().sum())
        assert spent_s == pytest.approx(capacity_s, rel=0.15)
        if live.tick_shortfall() is not None:
            # What ticks miss of the scheduler's time, by whoever reads them.
            assert "of the scheduler's CPU time" in live.summary()
            missed = 1 - busy["sa.json"] / self.sums(live, window, "scheduled_s")
            assert tick_shortfall(live.frame)[0] == pytest.approx(missed, abs=0.08)
            assert -0.2 < live.tick_shortfall() < 1

    def test_readers_agree_on_sectors_and_memory(self, recorded, window):
        written = {n: self.sums(s, window, "sectors_written") for n, s in recorded.items()}
        assert written["sa.json"] > 10_000
        for name, sectors in written.items():
            assert sectors == pytest.approx(written["sa.json"], rel=0.25), (name, written)
        assert written["sa.csv"] == pytest.approx(written["sa.json"], rel=0.001)
        total = recorded["live"].frame["memory_total_bytes"].iloc[0]
        assert (recorded["collectl"].frame["memory_total_bytes"] == total).all()
        assert (recorded["sa.json"].frame["memory_total_bytes"] == total).all()

    def test_both_forms_of_sadf_are_one_recording(self, recorded):
        one, other = recorded["sa.json"].frame, recorded["sa.csv"].frame
        shared = one.columns.intersection(other.columns).drop(["host", "marks", "cpu_accounting"])
        assert {"user_s", "sectors_read", "run_queue"} <= set(shared)
        for column in shared.drop("cpus", errors="ignore"):
            wanted = pytest.approx(np.array(other[column], dtype=float), nan_ok=True)
            assert np.array(one[column], dtype=float) == wanted, column


def test_the_docs_tables_are_the_schema():
    columns, marks = (
        (ROOT / f"docs/generated/time_series_{name}.md").read_text(encoding="utf-8")
        for name in ("columns", "marks")
    )
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", columns, re.MULTILINE)
    assert {name: tuple(rest) for name, *rest in rows} == {
        name: (c.unit, c.meaning, f"`{c.capacity}`" if c.capacity else "")
        for name, c in COLUMNS.items()
    }
    assert dict(re.findall(r"^\| `([a-z ]+)` \| ([^|]*?) \|$", marks, re.MULTILINE)) == MARKS
