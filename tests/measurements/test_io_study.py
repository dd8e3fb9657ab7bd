"""fio, and studies of cycles per I/O: reports, CPU time by several accounts, devices, loads."""

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from peers.hadoop import program
from peers.waiting import is_running, wait_for
from test_live_sampler import MadeUpKernel

from measurements.errors import MeasurementError
from measurements.processes.cleanup_process import CleanupProcess
from measurements.processes.programs import find_program
from measurements.timeseries import LiveSampler
from measurements.workloads import fio
from measurements.workloads.clients import has_moved
from measurements.workloads.fio import FioOptions, Pattern, read_report
from measurements.workloads.io_study import cpu_accounting as accounts, study
from measurements.workloads.io_study.bandwidth import BandwidthAntagonist
from measurements.workloads.io_study.loads import Instances, LostCountError, window_columns
from measurements.workloads.service import CutShortError

with_fio = pytest.mark.peer("fio")


@pytest.fixture(scope="module")
def reaper():
    with CleanupProcess() as reaper:
        yield reaper


LATENCIES = {"mean": 80_000.0, "max": 5_000_000}
LATENCIES |= {"percentile": {"50.000000": 70_000, "99.000000": 410_000}}
READ = {"total_ios": 25_000, "iops": 12_500.0, "bw_bytes": 51_200_000, "runtime": 2000}
READ |= {"iops_samples": 4, "iops_mean": 12_000.0, "iops_stddev": 480.0, "lat_ns": LATENCIES}
WRITE = {"total_ios": 0, "iops": 0.0, "lat_ns": {"mean": 0.0, "max": 0}}
JOB = {"error": 0, "read": READ, "write": WRITE}
REPORT = json.dumps({"fio version": "fio-3.33", "jobs": [JOB]})


class TestReport:
    def test_by_hand(self, tmp_path):
        file = tmp_path / "fio.json"
        file.write_text("note: both iodepth >= 1 and synchronous\n" + REPORT)
        assert read_report(file, "read") == {
            "throughput_ops_s": 12_500.0,
            "bandwidth_bytes_s": 51_200_000.0,
            # 480/√4 of 12000.
            "throughput_noise": pytest.approx(0.02),
            "latency_mean_s": pytest.approx(80e-6),
            "latency_p50_s": pytest.approx(70e-6),
            "latency_p99_s": pytest.approx(410e-6),
            "latency_max_s": pytest.approx(5e-3),
            "latency_resolution": "1.6 %",
            "fio_seconds": 2.0,
            "fio_version": "fio-3.33",
        }

    def test_what_is_none(self, tmp_path):
        file = tmp_path / "fio.json"
        for text, said in {
            "": "is not a fio report",
            "fio: engine libaio not loadable\n": "is not a fio report: fio: engine libaio not",
            REPORT[:80]: "is not a fio report",
            json.dumps({"jobs": []}): "is not a fio report",
            # Nothing moved is an error, and not zero.
            REPORT: "fio read and wrote nothing: error 0",
        }.items():
            file.write_text(text)
            with pytest.raises(MeasurementError, match=said):
                read_report(file, "write")


class TestFioOptions:
    def test_patterns_of_which_the_published_ones_are_the_default(self):
        for text, pattern in (
            *(("randread", ("randread", 4096)), ("write", ("write", 32768))),
            *(("read:1MiB", ("read", 1 << 20)), ("randwrite:512", ("randwrite", 512))),
        ):
            assert Pattern.parse(text) == pattern
        options = FioOptions(folder=".")
        assert {(p.rw, p.block_bytes) for p in options.patterns} == {
            *(("randread", 4096), ("randwrite", 4096)),
            *(("read", 32768), ("write", 32768)),
        }
        assert options.depths == (1, 2, 4, 8, 16, 32)

    def test_what_is_no_pattern_and_no_size(self):
        for text, said in (
            ("read:100", "a request is a multiple of 512 B"),
            ("read:big", "'big' is not a quantity"),
        ):
            with pytest.raises(MeasurementError, match=said):
                Pattern.parse(text)
        for size, said in (
            (1 << 60, "too little for a file of"),
            (1024, "a file of 1024 B is smaller than a request, 32768 B"),
        ):
            with pytest.raises(MeasurementError, match=said):
                FioOptions(folder="/", size_bytes=size).check()


class TestFioRuns:
    @with_fio
    def test_a_file_is_written_whole_and_read_for_as_long_as_asked(self, reaper, tmp_path):
        """What was never written is read without the disk; fio drops parts of a second."""
        path = reaper.folder(tmp_path) / "data"
        target = fio.Target(path, find_program("fio"), "libaio", False, None)
        fio._lay_out(target, 8 << 20, reaper)
        assert path.stat().st_size == 8 << 20
        assert path.stat().st_blocks * 512 >= 8 << 20
        content = path.read_bytes()
        assert content.count(0) < len(content) / 2
        job = ("--rw=randread", "--bs=4096", "--time_based", f"--runtime={fio._ms_text(0.5)}")
        command = [*fio._common_arguments(target, 8 << 20), *job]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        report = tmp_path / "fio.json"
        report.write_text(done.stdout)
        assert read_report(report, "read")["fio_seconds"] == pytest.approx(0.5, abs=0.05)

    def test_what_this_host_tells(self, tmp_path, monkeypatch):
        numbers = subprocess.run(["stat", "-c", "%Hd:%Ld", "/"], capture_output=True, text=True)
        link = Path("/sys/dev/block") / numbers.stdout.strip()
        assert fio.device_folder(Path("/")) == (link.resolve() if link.exists() else None)
        assert fio.file_system_of(Path("/dev/shm")) == "tmpfs"
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(MeasurementError, match="the program fio is not there: apt install fio"):
            find_program("fio")

    def test_requests_are_seen_when_they_begin(self, tmp_path):
        counts, few = tmp_path / "1/io", (16384, 1 << 20)
        assert not has_moved(tmp_path, 1, *few)
        counts.parent.mkdir()
        for read, written, told in ((0, 0, False), (16384, 0, True), (0, 16384, True)):
            lines = ["rchar: 9000", "wchar: 10", f"read_bytes: {read}", f"write_bytes: {written}"]
            counts.write_text("\n".join(lines) + "\n")
            assert has_moved(tmp_path, 1, *few) is told


def interval(**more):
    """One second of two CPUs, as the sampler tells it."""
    row = {"interval_s": 1.0, "cpu_accounting": "scheduler", "marks": ""}
    row |= {"user_s": 0.3, "nice_s": 0.0, "system_s": 0.4, "irq_s": 0.0, "softirq_s": 0.1}
    row |= {"steal_s": 0.0, "idle_s": 0.9, "iowait_s": 0.3, "scheduled_s": 0.7, "tick_busy_s": 0.5}
    return row | {"sectors_read": 100.0, "sectors_written": 20.0, **more}


QUIET = interval(sectors_read=0.0, sectors_written=0.0)
LEFT_OUT = {"steal_s": None, "iowait_s": None, "idle_s": 1.2}
ALONE = {"user_s": 0.1, "system_s": 0.2}
OWN = ALONE | {"scope": "own", "idle_s": 1.2, "iowait_s": 0.4}
MOVED = {"sectors_read": 90.0, "sectors_written": 0.0}
TICKS = {"cpu_accounting": "tick", "scheduled_s": None}


class TestWindow:
    def test_by_hand(self):
        for rows, how, expected in (
            # 4 CPU seconds less 2 · 0.8, shared three to one as the kernel saw it.
            (
                [interval(), interval(sectors_read=50.0)],
                {},
                {"user_s": 0.6, "idle_s": 1.8, "iowait_s": 0.6, "scope": "host", "intervals": 2}
                | {"scheduled_s": 1.4, "tick_busy_s": 1.0, "cpu_accounting": "scheduler"}
                | {"sampled_s": 2.0, "sectors_read": 150.0, "sectors_written": 40.0}
                | {"intervals_without_io": 0, "io_notes": None},
            ),
            # Idle is what the CPUs used have left: one CPU second less 0.8, or nothing.
            ([interval()], {"cpus": 1}, {"idle_s": 0.15, "iowait_s": 0.05}),
            ([interval(system_s=1.5)], {"cpus": 1}, {"idle_s": 0.0, "iowait_s": 0.0}),
            # A load beside is taken off.
            ([interval(user_s=1.1)], {"cpus": 1, "taken_s": 0.9}, {"user_s": 0.2, "idle_s": 0.225}),
            # Other programs are left out; the I/O of one's own where it can be told.
            ([interval()], {"own": ALONE}, OWN | {"sectors_read": 100.0}),
            ([interval()], {"own": ALONE | MOVED}, OWN | {"sectors_read": 90.0}),
            ([interval(), interval(**TICKS)], {}, TICKS),
            # A kernel that does not count a kind of time.
            ([interval(iowait_s=None, steal_s=None)], {}, LEFT_OUT),
            ([interval(), QUIET], {}, {"io_notes": "1 of 2 intervals had no I/O"}),
            (
                [QUIET, QUIET],
                {},
                {"sectors_read": 0.0, "sectors_written": 0.0, "intervals_without_io": 2}
                | {"io_notes": "no sector was read or written: there are no cycles per I/O"},
            ),
        ):
            found = window_columns(rows, **{"cpus": 2, **how})
            assert {c: found[c] for c in expected} == {
                c: pytest.approx(v) if isinstance(v, float) else v for c, v in expected.items()
            }

    def test_gaps_and_clocks_are_named(self):
        found = window_columns([interval(marks="clock back; gap")], cpus=2)
        assert "an interval was far longer" in found["io_notes"]
        assert "clock went back" in found["io_notes"]


SDA, NVME = (1, 8, 1, 1, 8, 1, 1, 1), (2, 16, 1, 0, 0, 0, 1, 1)


class TestFaults:
    @pytest.fixture
    def window(self, tmp_path):
        """Columns of a second in which the disks change so."""
        kernel = MadeUpKernel(tmp_path)

        def window(before, after, user=100, disks=None):
            kernel.disks(before)
            kernel.stat(user=100)
            sampler = kernel.sampler(disks=disks)
            kernel.disks(after)
            kernel.stat(user=user)
            kernel.clock.wait(1.0)
            return window_columns([sampler.row()], cpus=2)

        return window

    def test_counts_that_go_back_are_named_and_nothing_is_computed(self, window):
        with pytest.raises(LostCountError, match="counters behind user_s, sectors_read decreased"):
            window({"sda": NVME}, {"sda": SDA}, user=10)
        with pytest.raises(LostCountError, match="behind sectors_read, sectors_written decreased"):
            window({"sda": SDA, "loop0": SDA}, {"sda": NVME}, disks=["loop0"])
        # The run is tried again, as one that was cut short is.
        assert issubclass(LostCountError, CutShortError)

    def test_devices_that_appear_and_go(self, window):
        found = window({"sda": SDA}, {"sda": SDA, "nvme0n1": NVME})
        assert found["sectors_read"] == 16
        assert found["io_notes"] == "a disk appeared: its I/O is counted from then on"
        found = window({"sda": SDA, "nvme0n1": NVME}, {"sda": (2, 16, *SDA[2:])})
        assert found["io_notes"] == "a disk disappeared: its last I/O is not counted"


def groups_of(version, folder):
    """Trees that have control groups of one version only, the host's own."""
    which = ["cgroup2"] if version == 2 else ["cgroup", "-O", "cpuacct"]
    there = subprocess.check_output(["findmnt", "-n", "-o", "TARGET", "-t", *which], text=True)
    name = folder / "fs/cgroup" / ("" if version == 2 else "cpuacct")
    name.parent.mkdir(parents=True)
    name.symlink_to(there.split()[0])
    (folder / "self").mkdir()
    (folder / "self/cgroup").write_text("0::/\n" if version == 2 else "3:cpuacct:/\n")
    return folder


class TestCpuTime:
    @with_fio
    @pytest.mark.parametrize("version", [1, 2])
    def test_control_group_rusage_and_clock_agree_within_2_percent(self, tmp_path, version):
        trees = groups_of(version, tmp_path / "trees")
        with CleanupProcess() as reaper:
            group = accounts.ControlGroup.make(reaper, "a", trees, trees)
            assert group is not None
            assert group.version == version
            before_s = group.cpu_s()
            code = "import time\nwhile time.process_time() < 0.4: sum(range(20000))"
            spin = [sys.executable, "-c", code]
            instances = Instances([spin, spin], os.sched_getaffinity(0), reaper, group)
            instances.start(tmp_path / "out.txt")
            instances.release()
            clocks = 0.0
            while not instances.wait(0.05):
                clocks = max(clocks, sum(map(accounts.process_cpu_s, instances.pids)))
            used_s = group.cpu_s() - before_s
            user, system = group.user_and_system()
        assert instances.rusage_s > 0.75
        assert used_s == pytest.approx(instances.rusage_s, rel=0.02)
        # Seen up to a look before the end.
        assert 0.35 < clocks <= 1.02 * instances.rusage_s
        assert user > 5 * system
        assert not group.folder.exists()

    def test_where_none_may_be_made_is_no_group_and_an_end_has_no_clock(self, reaper, tmp_path):
        (tmp_path / "self").mkdir()
        (tmp_path / "self/cgroup").write_text("0::/\n")
        assert accounts.ControlGroup.make(reaper, "a", tmp_path, tmp_path) is None
        process = subprocess.Popen(["true"])
        process.wait()
        assert accounts.process_cpu_s(process.pid) == 0.0

    @with_fio
    def test_threads_of_the_kernel_write_back(self, tmp_path):
        threads = accounts.KernelThreads()
        (tmp_path / "data").write_bytes(os.urandom(32 << 20))
        subprocess.run(["sync", "-f", str(tmp_path)], check=True)
        assert threads.used_s() > 0


def started(reaper, folder, *commands):
    """Instances behind their gate."""
    made = Instances(commands, os.sched_getaffinity(0), reaper)
    made.start(folder / "out.txt")
    return made


class TestInstances:
    def test_nothing_runs_before_the_gate_opens(self, reaper, tmp_path):
        mark = tmp_path / "mark"
        instances = started(reaper, tmp_path, ["touch", str(mark)])
        assert not instances.wait(0.1)
        assert not mark.exists()
        instances.release()
        assert instances.wait(60)
        assert mark.exists()

    def test_one_that_fails(self, reaper, tmp_path):
        for command, said in (
            (["sh", "-c", "echo no luck; exit 3"], "sh ended with exit code 3: no luck; see "),
            (["sh", "-c", "kill -9 $$"], "sh ended with signal 9"),
            (["no-such-program"], "no-such-program ended with exit code 127: .*not found"),
        ):
            instances = started(reaper, tmp_path, ["true"], command)
            instances.release()
            with pytest.raises(MeasurementError, match=said):
                instances.wait(60)
            instances.stop()

    def test_what_it_started_ends_with_it(self, reaper, tmp_path):
        command = ["sh", "-c", "sleep 1000 & echo $!; exec sleep 1000"]
        instances = started(reaper, tmp_path, command)
        instances.release()
        out = tmp_path / "out-0.txt"
        wait_for(lambda: out.read_text().endswith("\n"))
        instances.stop()
        wait_for(lambda: not is_running(out.read_text().strip()))


def attached(image):
    """Whether a loop device is over a file, by the kernel's own account."""
    files = Path("/sys/block").glob("loop*/loop/backing_file")
    return any(file.read_text().strip().startswith(str(image)) for file in files)


class TestMemoryDevice:
    @with_fio
    def test_its_sectors_are_counted_and_nothing_is_left_of_it(self):
        with CleanupProcess() as reaper:
            folder, kind = study.make_memory_device(reaper, 8 << 20, "ext4")
            assert kind == fio.file_system_of(folder) == "ext4"
            sampler = LiveSampler(disks=[study.block_device(folder)])
            (folder / "data").write_bytes(os.urandom(4 << 20))
            subprocess.run(["sync", "-f", str(folder)], check=True)
            # The data, and little beside.
            assert 1 <= sampler.row()["sectors_written"] / ((4 << 20) / 512) < 1.2
            block = study.block_device(folder)
            image = Path(Path(f"/sys/block/{block}/loop/backing_file").read_text().strip())
            assert attached(image)
            # A file system that cannot be made is ext4.
            assert study.make_memory_device(reaper, 1 << 20, "overlay")[1] == "ext4"
        assert not folder.exists()
        assert not image.parent.exists()
        wait_for(lambda: not attached(image))
        assert str(folder) not in Path("/proc/mounts").read_text()

    def test_what_is_missing_is_one_line(self, reaper, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(MeasurementError, match=r"mkfs\.ext4 is not there: apt install e2fsp"):
            study.make_memory_device(reaper, 1 << 20, None)
        for name in ("mount", "mkfs.ext4", "losetup", "umount"):
            program(tmp_path, name, "echo 'mount: only root can do that' >&2; exit 1")
        with pytest.raises(MeasurementError, match="needs root and loop devices: mount: only"):
            study.make_memory_device(reaper, 1 << 20, None)
        with pytest.raises(MeasurementError, match=r"in memory is too much where .* MB are free"):
            study.make_memory_device(reaper, 1 << 50, None)


@pytest.mark.peer("memory")
class TestBandwidth:
    @pytest.mark.parametrize("compilers", [("cc", "gcc"), ()])
    def test_a_load_takes_what_it_is_asked_to(self, compilers, reaper, tmp_path):
        cpu = max(os.sched_getaffinity(0))
        antagonist, why = BandwidthAntagonist.open(reaper, compilers=compilers)
        assert antagonist.how == ("C" if compilers else "numpy")
        assert (why is None) == bool(compilers)
        full = antagonist.full_rate([cpu])
        assert full > 1e8
        load = antagonist.start(0.2 * full, [cpu], tmp_path / "load.txt")
        try:
            before = load.last_reading()
            used_s = load.cpu_s()
            time.sleep(0.5)
            assert load.rate_since(before) == pytest.approx(0.2 * full, rel=0.2)
            assert 0 < load.cpu_s() - used_s < 0.5
        finally:
            load.stop()
        with pytest.raises(MeasurementError, match="memory-bandwidth antagonist ended with -9"):
            load.check()

    def test_one_that_cannot_run_says_why(self, reaper, tmp_path):
        antagonist, _ = BandwidthAntagonist.open(reaper)
        with pytest.raises(MeasurementError, match="a CPU that may not be used"):
            antagonist.start(0.0, [4095], tmp_path / "load.txt")


class TestKernelWorkers:
    def test_they_are_put_back(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        mask = tmp_path / "devices/virtual/workqueue/cpumask"
        mask.parent.mkdir(parents=True)
        mask.write_text("ff\n")
        with closing(accounts.KernelWorkers(tmp_path)) as workers:
            for cpus, written in (([0, 2], "5"), ([1], "2")):
                workers.confine(cpus)
                assert mask.read_text().strip() == written
        assert mask.read_text().strip() == "ff"

    def test_a_kernel_without_it_and_masks(self, tmp_path):
        with pytest.raises(MeasurementError, match="leave --confine-kernel out"):
            accounts.KernelWorkers(tmp_path)
        for cpus, mask in (([0, 1, 33], "2,00000003"), ([31], "80000000"), ([32], "1,00000000")):
            assert accounts.cpu_mask(cpus) == mask


class TestFindings:
    def table(self, **more):
        row = {"scheduled_s": 2.0, "tick_busy_s": 1.5, "group_s": 1.0, "rusage_s": 1.01}
        return pd.DataFrame([{**row, "other_programs_s": 0.0, "scope": "host", **more}])

    def test_by_hand(self):
        table = self.table()
        assert accounts.tick_shortfall(table) == (0.25, 0.25)
        # 3.9 of 4.5 s; half of a second is too short to tell.
        more = pd.concat([table, self.table(tick_busy_s=0.9), self.table(scheduled_s=0.5)])
        assert accounts.tick_shortfall(more) == pytest.approx((1 - 3.9 / 4.5, 0.55))
        assert accounts.accounts_apart(table) == pytest.approx(0.01 / 1.01)
        assert list(accounts.findings(table)) == [
            "warning: the clock tick missed 25.0% of the scheduler's CPU time",
            "control group and rusage of the programs agree within 1.0%",
        ]
        ticks = table.drop(columns=["scheduled_s", "group_s", "other_programs_s"])
        assert accounts.tick_shortfall(ticks) is None
        assert "CPU time is by clock ticks" in next(accounts.findings(ticks))

    def test_each_warns_beyond_its_threshold_only(self):
        fine = list(accounts.findings(self.table(tick_busy_s=1.92)))
        assert fine[0] == "the clock tick missed 4.0% of the scheduler's CPU time"
        bad = list(accounts.findings(self.table(rusage_s=1.1, other_programs_s=0.5)))
        assert bad[1].startswith("warning: control group and rusage")
        assert "other programs took up to 25%" in bad[2]
        assert len(list(accounts.findings(self.table(other_programs_s=0.5, scope="own")))) == 2
        moved = {"sectors_read": 80.0, "sectors_written": 20.0, "direct": True}
        assert len(list(accounts.findings(self.table(process_sectors=96.0, **moved)))) == 2
        said = list(accounts.findings(self.table(process_sectors=60.0, **moved)))
        assert "up to 40% of the sectors were not fio's" in said[2]


class TestOptions:
    def test_what_stands_for_what(self):
        command = ("x", "{folder}/a{instance}", "-j{threads}")
        options = study.StudyOptions(folder=".", cores=(1,), patterns=(), command=command)
        assert options.command_in(Path("/d"), 4, 1) == ["x", "/d/a1", "-j4"]
        assert options.name(None) == "x"
        assert options.name(Pattern.parse("write:128KiB")) == "fio write 128 KiB"

    def test_what_cannot_be(self):
        for options, said in (
            ({"command": ("x",)}, "either a command or patterns"),
            ({"taken": (1.5,)}, "a share of the maximum that the other cores can use"),
            (
                {"size_bytes": 131072, "cores": (2,)},
                "too small for 2 jobs with requests of 131072 B",
            ),
        ):
            with pytest.raises(MeasurementError, match=said):
                study.StudyOptions(folder="/", **{"cores": (1,), **options}).check()

    @with_fio
    def test_what_was_prepared_is_not_cached(self, reaper):
        folder = reaper.folder(Path.cwd())
        fresh = study.fill_folder(folder, "head -c 8M /dev/urandom > in", reaper)
        sampler = LiveSampler()
        assert len((fresh / "in").read_bytes()) == 8 << 20
        assert sampler.row()["sectors_read"] >= (8 << 20) / 512
        (fresh / "more").touch()
        assert list(study.fill_folder(folder, None, reaper).iterdir()) == []
        with pytest.raises(MeasurementError, match="--prepare ended with 2: ls"):
            study.fill_folder(folder, "ls /nowhere", reaper)
