"""Studies of cycles per I/O: CPU time against rusage and control groups, devices, loads, faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_live_sampler import MadeUpKernel

from measurements.cpu_lists import parse_cpu_list
from measurements.errors import MeasurementError
from measurements.timeseries import LiveSampler, read_time_series
from measurements.timeseries.live import for_seconds
from measurements.workloads.fio import Pattern
from measurements.workloads.io_study import memory_device
from measurements.workloads.io_study.bandwidth import BandwidthThief
from measurements.workloads.io_study.cpu_clocks import (
    ControlGroup,
    KernelThreads,
    process_cpu_s,
)
from measurements.workloads.io_study.devices import block_device, fill
from measurements.workloads.io_study.findings import accounts_apart, findings, tick_shortfall
from measurements.workloads.io_study.instances import Instances
from measurements.workloads.io_study.kernel_workers import KernelWorkers, cpu_mask
from measurements.workloads.io_study.memory_device import file_system_of, make_memory_device
from measurements.workloads.io_study.options import StudyOptions
from measurements.workloads.io_study.window import LostCountError, Own, window_columns
from measurements.workloads.programs import find_program
from measurements.workloads.reaper import Reaper
from measurements.workloads.service_run import CutShortError

ROOT = Path(__file__).resolve().parents[2]
HZ = os.sysconf("SC_CLK_TCK")
SPIN = [
    sys.executable,
    "-c",
    "import time\nwhile time.process_time() < 0.6: sum(range(20000))",
]


def wait_for(condition, seconds=15.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.02)


def interval(**more):
    """One second of two CPUs, as the sampler tells it."""
    return {
        "interval_s": 1.0,
        "user_s": 0.3,
        "nice_s": 0.0,
        "system_s": 0.4,
        "irq_s": 0.0,
        "softirq_s": 0.1,
        "steal_s": 0.0,
        "idle_s": 0.9,
        "iowait_s": 0.3,
        "scheduled_s": 0.7,
        "tick_busy_s": 0.5,
        "sectors_read": 100.0,
        "sectors_written": 20.0,
        "cpu_accounting": "scheduler",
        "marks": "",
        **more,
    }


class TestWindow:
    def test_by_hand(self):
        found = window_columns([interval(), interval(sectors_read=50.0)], cpus=2)
        assert found["sampled_s"] == 2.0
        assert (found["sectors_read"], found["sectors_written"]) == (150.0, 40.0)
        assert found["user_s"] == pytest.approx(0.6)
        # 4 CPU seconds less 2 · 0.8, shared three to one as the kernel saw it.
        assert (found["idle_s"], found["iowait_s"]) == pytest.approx((1.8, 0.6))
        assert (found["scheduled_s"], found["tick_busy_s"]) == pytest.approx((1.4, 1.0))
        assert (found["cpu_accounting"], found["scope"]) == ("scheduler", "host")
        assert (found["intervals"], found["intervals_without_io"], found["io_notes"]) == (
            2,
            0,
            None,
        )

    def test_idle_is_what_the_cpus_used_have_left(self):
        one = window_columns([interval()], cpus=1)
        # One CPU second less 0.8.
        assert one["idle_s"] + one["iowait_s"] == pytest.approx(0.2)
        full = window_columns([interval(system_s=1.5)], cpus=1)
        assert (full["idle_s"], full["iowait_s"]) == (0.0, 0.0)

    def test_a_load_beside_is_taken_off(self):
        found = window_columns([interval(user_s=1.1)], cpus=1, taken_s=0.9)
        assert found["user_s"] == pytest.approx(0.2)
        assert found["idle_s"] + found["iowait_s"] == pytest.approx(0.3)

    def test_other_programs_are_left_out_where_that_is_asked(self):
        found = window_columns([interval()], cpus=2, own=Own(0.1, 0.2))
        assert (found["user_s"], found["system_s"], found["scope"]) == (0.1, 0.2, "own")
        assert found["idle_s"] + found["iowait_s"] == pytest.approx(2 - 0.3 - 0.1)
        # Their I/O where it can be told, else that of the devices.
        assert (found["sectors_read"], found["sectors_written"]) == (100.0, 20.0)
        told = window_columns([interval()], cpus=2, own=Own(0.1, 0.2, 90.0, 0.0))
        assert (told["sectors_read"], told["sectors_written"]) == (90.0, 0.0)

    def test_ticks_are_labelled(self):
        rows = [interval(), interval(cpu_accounting="tick", scheduled_s=None)]
        found = window_columns(rows, cpus=2)
        assert found["cpu_accounting"] == "tick"
        assert found["scheduled_s"] is None

    def test_a_kernel_that_does_not_count_a_kind_of_time(self):
        found = window_columns([interval(iowait_s=None, steal_s=None)], cpus=2)
        assert found["steal_s"] is None
        assert found["iowait_s"] is None
        assert found["idle_s"] == pytest.approx(1.2)


class TestFaults:
    @pytest.fixture
    def kernel(self, tmp_path):
        return MadeUpKernel(tmp_path)

    def test_cpu_time_and_sectors_that_go_back_are_named_and_nothing_is_computed(self, kernel):
        kernel.disks({"sda": (9, 80, 9, 9, 80, 9, 9, 9)})
        sampler = kernel.sampler()
        kernel.stat(user=10, system=51, idle=1001, iowait=20)
        kernel.disks({"sda": (10, 8, 10, 10, 88, 10, 10, 10)})
        row = sampler.row()
        with pytest.raises(LostCountError) as caught:
            window_columns([row], cpus=2)
        said = str(caught.value)
        assert said.startswith("counters behind user_s, sectors_read went back or away")
        # The run is tried again, as one that was cut short is.
        assert isinstance(caught.value, CutShortError)

    def test_a_device_that_appears_mid_run(self, kernel):
        sampler = kernel.sampler()
        kernel.disks({"sda": (1, 8, 1, 1, 8, 1, 1, 1), "nvme0n1": (2, 16, 1, 0, 0, 0, 1, 1)})
        found = window_columns([sampler.row()], cpus=2)
        assert found["sectors_read"] == 16
        assert found["io_notes"] == "a disk appeared: what it did since is counted"

    def test_a_device_that_goes_mid_run(self, kernel):
        kernel.disks({"sda": (1, 8, 1, 1, 8, 1, 1, 1), "nvme0n1": (2, 16, 1, 0, 0, 0, 1, 1)})
        sampler = kernel.sampler()
        kernel.disks({"sda": (2, 16, 1, 1, 8, 1, 1, 1)})
        found = window_columns([sampler.row()], cpus=2)
        assert found["io_notes"] == "a disk disappeared: what it did last is not counted"

    def test_the_device_under_study_goes(self, kernel):
        kernel.disks({"sda": (0,) * 8, "loop0": (0,) * 8})
        sampler = kernel.sampler(disks=["loop0"])
        kernel.disks({"sda": (9,) * 8})
        with pytest.raises(LostCountError, match="behind sectors_read, sectors_written went back"):
            window_columns([sampler.row()], cpus=2)

    def test_an_interval_without_io(self):
        quiet = interval(sectors_read=0.0, sectors_written=0.0)
        found = window_columns([interval(), quiet], cpus=2)
        assert found["intervals_without_io"] == 1
        assert found["io_notes"] == "1 of 2 intervals had no I/O"
        none = window_columns([quiet, quiet], cpus=2)
        assert (none["sectors_read"], none["sectors_written"]) == (0.0, 0.0)
        assert none["io_notes"] == "no sector was read or written: there are no cycles per I/O"

    def test_gaps_and_clocks_are_named(self):
        found = window_columns([interval(marks="clock back; gap")], cpus=2)
        assert "an interval was far longer" in found["io_notes"]
        assert "clock went back" in found["io_notes"]


def groups_of(version, folder):
    """Trees that have control groups of one version only, the host's own."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split()
        at = Path(before.split()[4])
        if version == 2 and kind == "cgroup2":
            names = [folder / "fs/cgroup"]
        elif version == 1 and kind == "cgroup" and "cpuacct" in options.split(","):
            names = [folder / "fs/cgroup/cpuacct"]
        else:
            continue
        names[0].parent.mkdir(parents=True, exist_ok=True)
        names[0].symlink_to(at)
    (folder / "self").mkdir()
    said = "0::/" if version == 2 else "3:cpuacct:/"
    (folder / "self/cgroup").write_text(f"{said}\n")
    return folder


class TestCpuTime:
    @pytest.mark.parametrize("version", [1, 2])
    def test_control_group_rusage_and_clock_agree_within_2_percent(self, tmp_path, version):
        trees = groups_of(version, tmp_path / "trees")
        with Reaper() as reaper:
            group = ControlGroup.make(reaper, "a", trees, trees)
            assert group is not None
            assert group.version == version
            before_s = group.cpu_s()
            instances = Instances([SPIN, SPIN], os.sched_getaffinity(0), reaper, group)
            instances.start(tmp_path / "out.txt")
            instances.release()
            clocks = 0.0
            while not instances.wait(0.05):
                clocks = max(clocks, sum(map(process_cpu_s, instances.pids)))
            used_s = group.cpu_s() - before_s
            user, system = group.user_and_system()
            folder = group.folder
        assert instances.rusage_s > 1.1
        assert used_s == pytest.approx(instances.rusage_s, rel=0.02)
        # Seen up to a look before the end.
        assert 0.5 < clocks <= 1.02 * instances.rusage_s
        assert user > 5 * system
        assert not folder.exists()

    def test_where_no_group_may_be_made_there_is_none(self, tmp_path):
        (tmp_path / "self").mkdir()
        (tmp_path / "self/cgroup").write_text("0::/\n")
        with Reaper() as reaper:
            assert ControlGroup.make(reaper, "a", tmp_path, tmp_path) is None

    def test_a_process_that_has_ended_has_no_clock(self):
        process = subprocess.Popen(["true"])
        process.wait()
        assert process_cpu_s(process.pid) == 0.0

    def test_threads_of_the_kernel_write_back(self, tmp_path):
        threads = KernelThreads()
        with (tmp_path / "data").open("wb") as file:
            for _ in range(32):
                file.write(os.urandom(1 << 20))
        subprocess.run(["sync", "-f", str(tmp_path)], check=True)
        assert threads.used_s() > 0


class TestInstances:
    def test_nothing_runs_before_the_gate_opens(self, tmp_path):
        mark = tmp_path / "mark"
        with Reaper() as reaper:
            instances = Instances([["touch", str(mark)]], os.sched_getaffinity(0), reaper)
            instances.start(tmp_path / "out.txt")
            assert not instances.wait(0.3)
            assert not mark.exists()
            instances.release()
            assert instances.wait(10)
            assert mark.exists()

    @pytest.mark.parametrize(
        ("command", "said"),
        [
            (["sh", "-c", "echo no luck; exit 3"], "sh ended with exit code 3: no luck; see "),
            (["sh", "-c", "kill -9 $$"], "sh ended with signal 9"),
            (["no-such-program"], "no-such-program ended with exit code 127: .*not found"),
        ],
    )
    def test_one_that_fails(self, tmp_path, command, said):
        with Reaper() as reaper:
            instances = Instances([["true"], command], os.sched_getaffinity(0), reaper)
            instances.start(tmp_path / "out.txt")
            instances.release()
            with pytest.raises(MeasurementError, match=said):
                instances.wait(10)
            instances.stop()

    def test_what_it_started_ends_with_it(self, tmp_path):
        with Reaper() as reaper:
            command = ["sh", "-c", "sleep 1000 & echo $!; exec sleep 1000"]
            instances = Instances([command], os.sched_getaffinity(0), reaper)
            instances.start(tmp_path / "out.txt")
            instances.release()
            out = tmp_path / "out-0.txt"
            wait_for(lambda: out.read_text().endswith("\n"))
            instances.stop()
            child = Path(f"/proc/{out.read_text().strip()}/stat")
            wait_for(lambda: not child.exists() or ") Z " in child.read_text())


def attached(image):
    """Loop devices over a file, by the kernel's own account."""
    files = Path("/sys/block").glob("loop*/loop/backing_file")
    return [file for file in files if file.read_text().strip().startswith(str(image))]


class TestMemoryDevice:
    def test_its_sectors_are_counted_and_nothing_is_left_of_it(self):
        with Reaper() as reaper:
            folder, kind = make_memory_device(reaper, 8 << 20, "ext4")
            assert kind == file_system_of(folder) == "ext4"
            block = block_device(folder)
            assert block.startswith("loop")
            sampler = LiveSampler(disks=[block])
            data = os.urandom(4 << 20)
            (folder / "data").write_bytes(data)
            subprocess.run(["sync", "-f", str(folder)], check=True)
            row = sampler.row()
            # The data, and little beside.
            assert len(data) / 512 <= row["sectors_written"] < 1.2 * len(data) / 512
            image = Path(f"/sys/block/{block}/loop/backing_file").read_text().strip()
            assert attached(image)
        assert not folder.exists()
        assert not Path(image).parent.exists()
        wait_for(lambda: not attached(image))
        assert str(folder) not in Path("/proc/mounts").read_text()

    def test_killed_nothing_is_left_mounted_or_attached(self):
        owner = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import sys, time\n"
                "from measurements.workloads.reaper import Reaper\n"
                "from measurements.workloads.io_study.memory_device import make_memory_device\n"
                "from measurements.workloads.io_study.cpu_clocks import ControlGroup\n"
                "from pathlib import Path\n"
                "reaper = Reaper()\n"
                "group = ControlGroup.make(reaper, 'a', Path('/sys'), Path('/proc'))\n"
                "folder, _ = make_memory_device(reaper, 1 << 20, None)\n"
                "(folder / 'data').write_text('x')\n"
                "held = (folder / 'data').open()\n"
                "print(folder, group.folder, flush=True)\n"
                "time.sleep(1000)\n",
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        with owner:
            folder, group = owner.stdout.readline().split()
            block = block_device(Path(folder))
            assert folder in Path("/proc/mounts").read_text()
            image = Path(f"/sys/block/{block}/loop/backing_file").read_text().strip()
            owner.send_signal(signal.SIGKILL)
            owner.wait(10)
        wait_for(lambda: not (Path(folder).exists() or Path(group).exists()))
        wait_for(lambda: not attached(image))
        assert not Path(image).parent.exists()
        assert folder not in Path("/proc/mounts").read_text()

    def test_a_file_system_that_cannot_be_made_is_ext4(self):
        with Reaper() as reaper:
            assert make_memory_device(reaper, 1 << 20, "overlay")[1] == "ext4"

    def test_what_is_missing_is_one_line(self, tmp_path, monkeypatch):
        with Reaper() as reaper:
            with pytest.raises(
                MeasurementError, match=r"in memory is too much where .* MB are free"
            ):
                make_memory_device(reaper, 1 << 50, None)
            mount = tmp_path / "mount"
            mount.write_text("#!/bin/sh\necho 'mount: only root can do that' >&2; exit 1\n")
            mount.chmod(0o755)
            monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
            with pytest.raises(MeasurementError, match="needs root and loop devices: mount: only"):
                make_memory_device(reaper, 1 << 20, None)
            monkeypatch.setenv("PATH", str(tmp_path))
            with pytest.raises(
                MeasurementError, match=r"mkfs\.ext4 is not there: apt install e2fsp"
            ):
                make_memory_device(reaper, 1 << 20, None)

    def test_every_kind_has_a_program_of_its_own_name(self):
        assert set(memory_device._MAKE) >= {"ext4", "xfs"}


class TestBandwidth:
    @pytest.mark.parametrize("compilers", [("cc", "gcc"), ()])
    def test_a_load_takes_what_it_is_asked_to(self, compilers, tmp_path):
        cpu = max(os.sched_getaffinity(0))
        with Reaper() as reaper:
            thief, why = BandwidthThief.open(reaper, compilers=compilers)
            assert thief.how == ("C" if compilers else "numpy")
            assert (why is None) == bool(compilers)
            full = thief.full_rate([cpu])
            assert full > 1e8
            load = thief.start(0.2 * full, [cpu], tmp_path / "load.txt")
            try:
                before = load.told()
                used_s = load.cpu_s()
                time.sleep(0.8)
                assert load.rate_since(before) == pytest.approx(0.2 * full, rel=0.2)
                assert 0 < load.cpu_s() - used_s < 0.8
            finally:
                load.stop()
            with pytest.raises(MeasurementError, match="memory bandwidth ended with -9"):
                load.check()

    def test_one_that_cannot_run_says_why(self, tmp_path):
        with Reaper() as reaper:
            thief, _ = BandwidthThief.open(reaper)
            with pytest.raises(MeasurementError, match="a CPU that may not be used"):
                thief.start(0.0, [4095], tmp_path / "load.txt")


class TestKernelWorkers:
    @pytest.fixture
    def mask(self, tmp_path):
        path = tmp_path / "devices/virtual/workqueue/cpumask"
        path.parent.mkdir(parents=True)
        path.write_text("ff\n")
        return path

    @pytest.fixture(autouse=True)
    def state(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def test_they_are_put_back(self, tmp_path, mask):
        with KernelWorkers(tmp_path) as workers:
            workers.confine([0, 2])
            assert mask.read_text().strip() == "5"
            workers.confine([1])
            assert mask.read_text().strip() == "2"
        assert mask.read_text().strip() == "ff"

    def test_killed_they_are_put_back(self, tmp_path, mask):
        code = (
            "import sys, time\nfrom pathlib import Path\n"
            "from measurements.workloads.io_study.kernel_workers import KernelWorkers\n"
            "workers = KernelWorkers(Path(sys.argv[1]))\nworkers.confine([0])\n"
            "print(flush=True)\ntime.sleep(1000)\n"
        )
        owner = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        )
        with owner:
            owner.stdout.readline()
            confined = mask.read_text().strip()
            owner.kill()
            owner.wait(10)
        assert confined == "1"
        wait_for(lambda: mask.read_text().strip() == "ff")

    def test_a_kernel_without_it(self, tmp_path):
        with pytest.raises(MeasurementError, match="leave --confine-kernel out"):
            KernelWorkers(tmp_path)

    def test_masks_are_the_kernels(self):
        folder = Path("/sys/devices/system/cpu/cpu0/cache/index0")
        cpus = parse_cpu_list((folder / "shared_cpu_list").read_text())
        ours, its = (
            int(text.replace(",", ""), 16)
            for text in (cpu_mask(cpus), (folder / "shared_cpu_map").read_text())
        )
        assert ours == its
        assert cpu_mask([0, 1, 33]) == "2,00000003"
        assert cpu_mask([31]) == "80000000"
        assert cpu_mask([32]) == "1,00000000"


class TestFindings:
    def table(self, **more):
        row = {"scheduled_s": 2.0, "tick_busy_s": 1.5, "group_s": 1.0, "rusage_s": 1.01}
        return pd.DataFrame([{**row, "other_programs_s": 0.0, "scope": "host", **more}])

    def test_by_hand(self):
        table = self.table()
        assert tick_shortfall(table) == (0.25, 0.25)
        # 3.9 of 4.5 s; half of a second is too short to tell.
        more = pd.concat([table, self.table(tick_busy_s=0.9), self.table(scheduled_s=0.5)])
        assert tick_shortfall(more) == pytest.approx((1 - 3.9 / 4.5, 0.55))
        assert accounts_apart(table) == pytest.approx(0.01 / 1.01)
        said = list(findings(table))
        assert said == [
            "warning: the clock tick missed 25.0% of the scheduler's CPU time",
            "control group and rusage of the programs agree within 1.0%",
        ]

    def test_each_warns_beyond_its_threshold_only(self):
        fine = list(findings(self.table(tick_busy_s=1.92)))
        assert fine[0] == "the clock tick missed 4.0% of the scheduler's CPU time"
        bad = list(findings(self.table(rusage_s=1.1, other_programs_s=0.5)))
        assert bad[1].startswith("warning: control group and rusage")
        assert "other programs took up to 25%" in bad[2]
        own = list(findings(self.table(other_programs_s=0.5, scope="own")))
        assert len(own) == 2
        moved = {"sectors_read": 80.0, "sectors_written": 20.0, "direct": True}
        assert len(list(findings(self.table(process_sectors=96.0, **moved)))) == 2
        said = list(findings(self.table(process_sectors=60.0, **moved)))
        assert "up to 40% of the sectors were not fio's" in said[2]

    def test_without_the_scheduler(self):
        table = self.table().drop(columns=["scheduled_s", "group_s", "other_programs_s"])
        assert tick_shortfall(table) is None
        assert "CPU time is by clock ticks" in next(findings(table))


class TestOptions:
    def test_what_stands_for_what(self, tmp_path):
        options = StudyOptions(
            folder=".",
            cores=(1,),
            patterns=(),
            command=("x", "{folder}/a{instance}", "-j{threads}"),
        )
        assert options.command_in(Path("/d"), 4, 1) == ["x", "/d/a1", "-j4"]
        assert options.name(None) == "x"
        assert options.name(Pattern.parse("write:128KiB")) == "fio write 128 KiB"

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"folder": "/nowhere"}, "/nowhere: is no folder"),
            ({"command": ("x",)}, "either of a command or of patterns"),
            ({"taken": (1.5,)}, "in shares of what the cores beside can take"),
            ({"size_bytes": 131072, "cores": (2,)}, "no part of 131072 B for each of 2 jobs"),
        ],
    )
    def test_what_cannot_be(self, options, said):
        with pytest.raises(MeasurementError, match=said):
            StudyOptions(**{"folder": "/", "cores": (1,), **options}).check()

    def test_what_was_prepared_is_not_cached(self, tmp_path):
        with Reaper() as reaper:
            folder = reaper.folder(Path.cwd())
            fresh = fill(folder, "head -c 8M /dev/urandom > in", reaper)
            sampler = LiveSampler()
            assert len((fresh / "in").read_bytes()) == 8 << 20
            assert sampler.row()["sectors_read"] >= (8 << 20) / 512
            (fresh / "more").touch()
            assert list(fill(folder, None, reaper).iterdir()) == []
            with pytest.raises(MeasurementError, match="--prepare ended with 2: ls"):
                fill(folder, "ls /nowhere", reaper)


def test_collectl_and_sadf_agree_within_5_percent_on_what_ticks_show(tmp_path):
    """Over one window of fio; what they miss of the scheduler's time is the run's shortfall."""
    scratch = Path.cwd() / f".ppw-test-{os.getpid()}"
    scratch.mkdir()
    fio = [
        *(find_program("fio"), "--name=a", f"--directory={scratch}", "--size=32M", "--direct=1"),
        *("--rw=randread", "--bs=4k", "--ioengine=libaio", "--iodepth=8", "--time_based"),
        *("--runtime=9", "--thread"),
    ]
    binary, logs = tmp_path / "sa", tmp_path / "log"
    logs.mkdir()
    started = []
    try:
        for command in (
            fio,
            ["sar", "-o", str(binary), "1", "9"],
            ["collectl", "-i1", "-c9", "-scd", "-P", "-o2", "-f", str(logs)],
        ):
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            started.append(subprocess.Popen(command, **quiet))
        time.sleep(1.0)
        rows = list(LiveSampler(interval_s=0.5).rows(for_seconds(7.0)))
        for process in started:
            assert process.wait(30) == 0
    finally:
        for process in started:
            process.kill()
            process.wait()
        for path in [*scratch.iterdir(), scratch]:
            path.rmdir() if path.is_dir() else path.unlink()
    told = subprocess.run(
        ["sadf", "-j", str(binary), "--", "-u", "ALL", "-d"], capture_output=True, check=True
    )
    (tmp_path / "sa.json").write_bytes(told.stdout)
    window = rows[0]["time_s"] - rows[0]["interval_s"] - 0.6, rows[-1]["time_s"] + 0.6
    busy = []
    sources = ([tmp_path / "sa.json"], sorted(logs.iterdir()))
    for series in (read_time_series(source).between(*window) for source in sources):
        parts = series.frame[["user_s", "nice_s", "system_s"]]
        assert series.seconds >= 6
        busy.append(float(parts.sum().sum()) / series.seconds)
    table = pd.DataFrame(rows)
    seconds = table["interval_s"].sum()
    ours = table["tick_busy_s"].sum() / seconds
    missed = 1 - np.array(busy) / (table["scheduled_s"].sum() / seconds)
    print(f"ticks: sadf, collectl {busy} and ppw {ours:.3f} CPUs; missed {missed} of the scheduler")
    assert busy[0] == pytest.approx(busy[1], rel=0.05)
    assert ours == pytest.approx(np.mean(busy), rel=0.1)
    assert tick_shortfall(table).all_runs == pytest.approx(missed.mean(), abs=0.08)
