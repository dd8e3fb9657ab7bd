"""Memory of a host: its probe against mbw, perf bench and numpy, its limits, its traffic."""

import ctypes
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from peers.hadoop import program
from peers.sysfs_host import FakeHost
from peers.waiting import FakeClock, is_running, wait_for

from measurements import MeasurementError
from measurements.counters import memory_traffic
from measurements.counters.memory_traffic import MemoryTraffic, llc_misses_per_byte, memory_events
from measurements.host.activity import available_memory, cpu_quota, last_level_cache
from measurements.host.cpu_placement import run_on
from measurements.host.memory_probe import WORDS, probe_memory
from measurements.sweep.loop import Machine
from measurements.sweep.session import row_of

ROOT = Path(__file__).resolve().parents[2]
MIB, GIB = 2**20, 2**30
QUICK = {"budget_s": 0.01, "array_bytes": MIB, "chase_bytes": MIB}
# Counts the lines of a chase, and those that lead to their neighbour.
CYCLE = f"""
#define main probe_main
#include "{ROOT / "measurements" / "host" / "memory_probe.c"}"
#undef main
int main(void) {{
    static char buffer[1000 * 64];
    int seen = 0, ahead = 0;
    link_lines(buffer, 1000, 64);
    void *at = buffer;
    do {{
        void *next = *(void **)at;
        ahead += (char *)next - (char *)at == 64;
        at = next;
        seen++;
    }} while (at != buffer);
    printf("%d %d\\n", seen, ahead);
}}
"""


def tree(root, files):
    FakeHost(root).put_all(".", files)


def cache(cpu, index, level, size, sharers, kind="Unified"):
    folder = f"devices/system/cpu/cpu{cpu}/cache/index{index}"
    values = {"level": level, "type": kind, "size": size, "shared_cpu_list": sharers}
    return {f"{folder}/{k}": v for k, v in {**values, "coherency_line_size": 64}.items()}


@pytest.fixture
def host(tmp_path):
    """Trees of a host with 32 MiB of last-level cache and so much memory."""

    def make(megabytes, groups=(), group="0::/"):
        meminfo = f"MemTotal: 1 kB\nMemAvailable: {megabytes << 10} kB"
        tree(tmp_path / "proc", {"meminfo": meminfo, "self/cgroup": group})
        tree(tmp_path / "sys", {**cache(0, 3, 3, "32768K", "0-255"), **dict(groups)})
        return {"procfs": tmp_path / "proc", "sysfs": tmp_path / "sys"}

    return make


@pytest.fixture(scope="module")
def probe():
    return probe_memory()


@pytest.mark.peer("memory")
class TestCompiledProbe:
    def test_figures_are_those_of_some_memory_past_the_caches_on_every_allowed_cpu(self, probe):
        assert list(probe.bandwidth) == list(WORDS)
        for rate in probe.bandwidth.values():
            assert 0.3e9 < rate.median_bytes_s <= rate.best_bytes_s < 5e12
            assert rate.repeats >= 2
        best = [rate.best_bytes_s for rate in probe.bandwidth.values()]
        assert max(best) < 5 * min(best)
        assert 20e-9 < probe.latency.best_s <= probe.latency.median_s < 2e-6
        assert probe.latency.repeats == 5
        assert probe.latency.huge_page_share < 0.01
        cache = last_level_cache(Path("/sys"), probe.cpus)
        assert 3 * probe.array_bytes >= 4 * cache.total_bytes
        assert probe.chase_bytes >= 2 * cache.largest_bytes
        assert probe.cpus == tuple(sorted(os.sched_getaffinity(0)))
        assert probe.method.startswith("C, ")
        columns = probe.to_columns()
        assert columns["memory_bandwidth_bytes_s"] == probe.bandwidth["triad"].best_bytes_s
        assert columns["memory_latency_s"] == probe.latency.best_s
        assert list(columns)[2:] == ["memory_latency_huge_pages_s"]

    def test_latency_grows_with_the_buffer_from_cache_to_memory(self, probe, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        first, second = (
            probe_memory(budget_s=0.2, array_bytes=MIB, chase_bytes=size).latency.best_s
            for size in (2**14, 2**18)
        )
        assert 0.2e-9 < first < 10e-9
        assert first < second < 40e-9
        assert probe.latency.best_s > 3 * second
        assert list(tmp_path.iterdir()) == []

    def test_the_chase_goes_through_every_line_once(self, tmp_path):
        source, program = tmp_path / "cycle.c", tmp_path / "cycle"
        source.write_text(CYCLE)
        flags = "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"
        subprocess.run(["cc", *flags, source, "-o", program], check=True)
        seen, ahead = map(int, subprocess.check_output([program]).split())
        assert seen == 1000
        # Of a random cycle one line in a thousand leads to its neighbour.
        assert ahead < 10

    def test_huge_pages_are_told_apart_and_missing_where_there_are_none(self):
        # The kernel's switch for one process and its children (PR_SET_THP_DISABLE).
        assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0
        try:
            bare = probe_memory(budget_s=0.2, array_bytes=16 * MIB, chase_bytes=16 * MIB)
        finally:
            assert ctypes.CDLL(None).prctl(41, 0, 0, 0, 0) == 0
        assert bare.latency_huge_pages is None
        assert math.isnan(bare.to_columns()["memory_latency_huge_pages_s"])
        assert bare.huge_page_share == 0
        (note,) = [n for n in bare.notes if "huge pages" in n]
        assert "they backed 0% of the buffer" in note
        assert "transparent_hugepage is" in note

    def test_a_compiler_without_the_native_flag_does_and_too_large_arrays_do_not(self, tmp_path):
        old = compiler(tmp_path, 'case "$*" in *march=native*) exit 1;; esac; exec cc "$@"')
        probe = probe_memory(**QUICK, compilers=old)
        assert probe.method == "C, mycc -O3"
        assert probe.latency.best_s > 0
        with pytest.raises(MeasurementError, match="memory ran out"):
            probe_memory(array_bytes=2**60, chase_bytes=MIB)

    def test_a_folder_that_takes_no_programs(self, tmp_path):
        script = "from measurements.host.memory_probe import probe_memory\n"
        script += f"p = probe_memory(**{QUICK})\nprint(p.method, *p.notes)"
        mount = 'mount -t tmpfs -o noexec none "$1" && exec "$2" -c "$3"'
        command = ["unshare", "-m", "sh", "-c", mount, "sh", tmp_path, sys.executable, script]
        env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
        said = subprocess.check_output(command, env=env, text=True)
        assert said.startswith("numpy memory latency is not measured")
        assert "(mounted noexec?): set TMPDIR" in said

    def test_caches_are_those_of_lscpu_and_numpys_kernels_the_compiled_ones(self, probe):
        command = ["lscpu", "-B", "-C=NAME,ALL-SIZE,ONE-SIZE"]
        listed = subprocess.check_output(command, text=True)
        found = last_level_cache(Path("/sys"), sorted(os.sched_getaffinity(0)))
        if found.total_bytes:
            assert found.largest_bytes == int(listed.split("\n")[-2].split()[2])
        for name, rate in probe_memory(budget_s=0.3, compilers=()).bandwidth.items():
            assert 0.2 < rate.best_bytes_s / probe.bandwidth[name].best_bytes_s < 5


@pytest.fixture(scope="module")
def copied():
    """Bytes that one CPU reads and writes a second when it copies, by the probe."""
    first = min(os.sched_getaffinity(0))
    return probe_memory(cpus=[first], budget_s=0.3).bandwidth["copy"].best_bytes_s


# Other instructions, page sizes and buffers, on a machine that may be busy.
@pytest.mark.peer("memory")
def test_copy_on_one_cpu_is_that_of_mbw_within_a_factor(copied):
    cpu = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", cpu, "mbw", "-q", "-n", "5", "-t1", "128"]
    said = subprocess.check_output(command, text=True)
    rates = re.findall(r"^\d+\s+Method: DUMB.*Copy: ([\d.]+) MiB/s", said, re.MULTILINE)
    assert len(rates) == 5
    assert 0.2 < copied / (2 * MIB * max(map(float, rates))) < 5


@pytest.mark.peer("perf")
def test_copy_on_one_cpu_is_that_of_perf_within_a_factor(copied):
    command = ["perf", "bench", "mem", "memcpy", "-s", "128MB", "-l", "10", "-f", "default"]
    said = subprocess.check_output(command, text=True)
    assert 0.2 < copied / (2 * GIB * float(re.search(r"([\d.]+) GB/sec", said)[1])) < 5


class TestCpus:
    def test_those_allowed_are_used_and_others_refused(self):
        allowed = os.sched_getaffinity(0)
        with run_on([max(allowed)]):
            assert probe_memory(**QUICK, compilers=()).cpus == (max(allowed),)
        assert probe_memory(**QUICK, compilers=()).cpus == tuple(sorted(allowed))
        assert os.sched_getaffinity(0) == allowed
        never = max(allowed) + 1
        for cpus, said in (([never], f"{never} asked for, but this process"), ([], "none asked")):
            with pytest.raises(MeasurementError, match=f"CPUs {said}"):
                probe_memory(cpus=cpus)

    def test_a_quota_of_the_control_group_is_kept(self, host, monkeypatch):
        trees = host(1024, {"fs/cgroup/box/cpu.max": "150000 100000"}, "0::/box")
        assert cpu_quota(**trees) == 1.5
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
        monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: None)
        probe = probe_memory(**QUICK, **trees, compilers=())
        assert probe.cpus == (0,)
        assert "quota is 1.5 CPUs: measured with 1 of them" in "\n".join(probe.notes)


def compiler(folder, script):
    """Make a compiler of a shell script: it sees its arguments, and ``$out`` is the program."""
    out = 'for word in "$@"; do [ "$last" = -o ] && out=$word; last=$word; done'
    return (str(program(folder, "mycc", f"{out}\n{script}")),)


def making(text):
    """Script of a compiler whose programs are this script."""
    return f"cat >$out <<'END'\n#!/bin/sh\n{text}\nEND\nchmod +x $out"


def test_without_a_compiler_numpy_measures_bandwidth_and_latency_is_missing(monkeypatch, tmp_path):
    said = "x.c:13:10: fatal error: pthread.h: No such file"
    probe = probe_memory(**QUICK, compilers=compiler(tmp_path, f"echo '{said}' >&2; exit 1"))
    assert probe.method == "numpy"
    assert "fatal error: pthread.h: No such file: apt install" in "\n".join(probe.notes)
    monkeypatch.setenv("PATH", "/nowhere")
    probe = probe_memory(**QUICK)
    assert (probe.method, probe.latency) == ("numpy", None)
    assert probe.bandwidth["triad"].best_bytes_s > 0
    assert math.isnan(probe.to_columns()["memory_latency_s"])
    (note,) = [n for n in probe.notes if "latency is not measured" in n]
    assert "no C compiler on this host: apt install gcc libc6-dev" in note
    assert probe.latency_huge_pages is None
    with pytest.raises(MeasurementError, match="memory ran out"):
        probe_memory(array_bytes=2**60, chase_bytes=MIB)


class TestPrograms:
    SAYS = "if [ $1 = bandwidth ]; then printf '{}'; else printf '{}'; fi"
    RATES = r"copy 0.5 0.25 1\nscale 1 1 1\nadd 1 1 1\ntriad 0.5 0.6 0.5\nhuge_pages 0.25\n"
    CHASE = r"chase 1e-7 3e-7 1e-7\nhuge_pages -1\n"

    def test_figures_are_bytes_over_the_best_and_median_seconds(self, tmp_path):
        fake = compiler(tmp_path, making(self.SAYS.format(self.RATES, self.CHASE)))
        probe = probe_memory(array_bytes=8 * MIB, chase_bytes=4 * MIB, compilers=fake)
        assert probe.bandwidth["copy"] == (2 * 8 * MIB / 0.25, 2 * 8 * MIB / 0.5, 3)
        assert probe.bandwidth["triad"] == (3 * 8 * MIB / 0.5, 3 * 8 * MIB / 0.5, 3)
        assert probe.latency[:3] == (1e-7, 1e-7, 3)
        assert (probe.huge_page_share, probe.latency_huge_pages) == (0.25, None)
        assert "the median repeat is up to 50% worse than the best" in "\n".join(probe.notes)
        assert "it does not say how many" in "\n".join(probe.notes)

    def test_one_that_ends_early_or_never_is_an_error(self, tmp_path, monkeypatch):
        for end, said in {
            "kill -9 $$": "memory ran out during the measurement",
            "exit 3": "memory ran out during the measurement",
            "echo 'memory_probe: the results are wrong' >&2; exit 4": "ended with 4 (memory_pr",
            "kill -4 $$": "ended with -4 (it says nothing): measure without --probe-memory",
            "exec sleep 60": "took more than 0.5 s",
        }.items():
            if "sleep" in end:
                monkeypatch.setattr("measurements.host.memory_probe._TIMEOUT_S", 0.5)
            with pytest.raises(MeasurementError, match=re.escape(said)):
                probe_memory(**QUICK, compilers=compiler(tmp_path, making(end)))


class TestSizes:
    def test_shared_caches_count_once_and_those_of_instructions_never(self, tmp_path):
        for cpu in range(4):
            tree(tmp_path, cache(cpu, 0, 1, "32K", cpu, "Data"))
            tree(tmp_path, cache(cpu, 1, 1, "64K", cpu, "Instruction"))
            tree(tmp_path, cache(cpu, 2, 2, "1024K", cpu))
            pair = ("16384K", "0-1") if cpu < 2 else ("8M", "2-3")
            tree(tmp_path, cache(cpu, 3, 3, *pair))
        assert last_level_cache(tmp_path, range(4)) == (24 * MIB, 16 * MIB, 64)
        assert last_level_cache(tmp_path, [3]) == (8 * MIB, 8 * MIB, 64)
        # An Atom has two levels, and no files of the other CPUs.
        tree(tmp_path / "atom", cache(0, 0, 1, "24K", 0, "Data") | cache(0, 2, 2, "512K", 0))
        assert last_level_cache(tmp_path / "atom", [0, 1]).total_bytes == 512 * 1024

    def test_arrays_are_four_caches_or_shrink_with_free_memory(self, host, tmp_path, monkeypatch):
        sizes = []
        by_numpy = "measurements.host.memory_probe.bandwidth_by_numpy"
        monkeypatch.setattr(by_numpy, lambda size, *_: sizes.append(size))
        # Where the kernel says nothing a size is assumed.
        assert last_level_cache(tmp_path, [0]) == (0, 0, 64)
        for megabytes, more in ((10_000, {"sysfs": tmp_path}), (10_000, {}), (300, {})):
            trees = {**host(megabytes), **more}
            with pytest.raises(AttributeError):
                probe_memory(**trees, cpus=[min(os.sched_getaffinity(0))], compilers=())
        assert sizes == [4 * 32 * MIB, 4 * 32 * MIB, 300 * MIB // 2 // 3]
        monkeypatch.undo()
        probe = probe_memory(**QUICK, sysfs=tmp_path, compilers=())
        assert "does not say how large the caches are: 32 MiB assumed" in "\n".join(probe.notes)

    def test_too_little_is_refused(self, host):
        said = "100 MiB of memory are free, half of which .* caches take 128 MiB.*--probe-memory"
        with pytest.raises(MeasurementError, match=said):
            probe_memory(**host(100), cpus=[min(os.sched_getaffinity(0))])

    def test_free_memory_is_the_kernels_or_what_the_control_groups_leave(self, host, tmp_path):
        assert available_memory(**host(512)) == 512 * MIB
        groups = {
            "fs/cgroup/a/memory.max": 400 * MIB,
            "fs/cgroup/a/memory.current": 300 * MIB,
            "fs/cgroup/a/memory.stat": f"anon 5\ninactive_file {50 * MIB}",
            "fs/cgroup/a/b/memory.max": "max",
            "fs/cgroup/a/b/memory.current": 10 * MIB,
        }
        assert available_memory(**host(512, groups, "0::/a/b")) == 150 * MIB
        with pytest.raises(MeasurementError, match=r"meminfo: no line MemAvailable: is procfs"):
            probe_memory(procfs=tmp_path)

    def test_control_groups_of_version_1(self, host):
        groups = {
            "fs/cgroup/memory/d/memory.limit_in_bytes": 200 * MIB,
            "fs/cgroup/memory/d/memory.usage_in_bytes": 80 * MIB,
            "fs/cgroup/cpu/d/cpu.cfs_quota_us": 50000,
            "fs/cgroup/cpu/d/cpu.cfs_period_us": 100000,
        }
        trees = host(512, groups, "5:memory:/d\n4:cpu,cpuacct:/d\n0::/")
        assert (available_memory(**trees), cpu_quota(**trees)) == (120 * MIB, 0.5)
        no_limit = {"fs/cgroup/cpu.max": "max 100000", "fs/cgroup/cpu/cpu.cfs_quota_us": -1}
        assert cpu_quota(**host(512, no_limit, "0::/\n4:cpu:/")) == math.inf


def controller(name, events, scale="6.103515625e-5", unit="MiB"):
    folder = f"bus/event_source/devices/{name}/events"
    files = {}
    for event in events:
        files[f"{folder}/{event}"] = "event=0x04,umask=0x03"
        if scale:
            files |= {f"{folder}/{event}.scale": scale, f"{folder}/{event}.unit": unit}
    return files


class TestEvents:
    def test_a_server_has_strobes_of_every_channel_and_a_virtual_machine_none(self, tmp_path):
        assert memory_events(tmp_path) is None
        tree(tmp_path, {"bus/event_source/devices/msr/type": "9"})
        assert memory_events(tmp_path) is None
        assert MemoryTraffic.find(tmp_path, Path("/proc")) is None
        for channel in (0, 1, 10, 2):
            events = "cas_count_read", "cas_count_write", "clockticks"
            tree(tmp_path, controller(f"uncore_imc_{channel}", events))
        tree(tmp_path, controller("uncore_imc_free_running_0", ("read", "write", "dclk")))
        events = memory_events(tmp_path)
        names = [f"uncore_imc_{n}/cas_count_read/" for n in (0, 1, 2, 10)]
        assert [e.name for e in events[::2]] == names
        assert {e.direction for e in events[1::2]} == {"write"}
        # A strobe moves a line of 64 bytes: 6.103515625e-5 MiB.
        assert {e.bytes_per_count for e in events} == {64.0}

    def test_others_have_sub_channels_or_free_running_counters(self, tmp_path):
        strobes = [f"cas_count_{way}_sch{n}" for way in ("read", "write") for n in (0, 1)]
        for device, names, wanted in (
            ("0", strobes, 2),
            ("free_running_0", ["data_read", "data_write", "data_total"], 1),
            ("free_running_0", ["read", "write", "ddrt_read", "ddrt_write"], 1),
            ("0", ["data_reads", "data_writes", "gt_requests", "ia_requests"], 1),
            ("0", ["clockticks"], 0),
        ):
            host = tmp_path / names[0]
            tree(host, controller(f"uncore_imc_{device}", names))
            found = [event.direction for event in memory_events(host) or ()]
            assert found == ["read"] * wanted + ["write"] * wanted

    def test_what_perf_prints_becomes_bytes(self, tmp_path):
        tree(tmp_path, controller("uncore_imc_0", ["cas_count_read"]))
        (event,) = memory_events(tmp_path)
        assert event.bytes_of(2.5, "MiB") == 2.5 * MIB
        assert event.bytes_of(1000, "") == 64_000
        with pytest.raises(MeasurementError, match="its unit 'Joules' is not a unit of bytes"):
            event.bytes_of(1, "Joules")
        # An old kernel gives no scale.
        tree(tmp_path, controller("uncore_imc_0", ["cas_count_read"], scale=None))
        tree(tmp_path, controller("uncore_imc_1", ["data_read"], scale=None))
        (event,) = memory_events(tmp_path)
        assert (event.name, event.bytes_per_count) == ("uncore_imc_0/cas_count_read/", 64)
        tree(tmp_path, controller("uncore_imc_0", ["cas_count_read"], scale="many"))
        with pytest.raises(MeasurementError, match=r"read\.scale: 'many' is not a number"):
            memory_events(tmp_path)


def test_misses_per_byte():
    assert llc_misses_per_byte(3e6, 1.2e8) == 0.025
    assert llc_misses_per_byte(0, 1e6) == 0
    for unknown in ((math.nan, 1e6), (1e6, math.nan), (1e6, 0)):
        assert math.isnan(llc_misses_per_byte(*unknown))
    with pytest.raises(MeasurementError, match="neither can be negative"):
        llc_misses_per_byte(-1, 1e6)


# Counts 300 MiB read and 100 MiB written by each controller, but not what it is to lose.
PERF = """#!/bin/sh
[ "$2" = -h ] && { echo "Usage: perf stat -j, --json-output"; exit 129; }
while [ "$1" != -o ]; do shift; done
into=$2 events=$4
cat >/dev/null
IFS=,
for event in $events; do
    case $event in (*LOST*) mib="<not counted>";; (*read*) mib=300;; (*) mib=100;; esac
    printf '{"counter-value": "%s", "unit": "MiB", "event": "%s", ' "$mib" "$event"
    echo '"event-runtime": 1000000000, "pcnt-running": 100.0}'
done >"$into"
"""


class TestTraffic:
    @pytest.fixture
    def traffic(self, tmp_path, monkeypatch):
        """Counters of two made-up controllers, by a program that stands in for perf."""

        def make(lost="none"):
            program(tmp_path, "perf", PERF.replace("LOST", lost))
            monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
            for number in range(2):
                events = ["cas_count_read", "cas_count_write"]
                tree(tmp_path, controller(f"uncore_imc_{number}", events))
            return MemoryTraffic.find(tmp_path, Path("/proc"))

        return make

    def test_bytes_a_second_of_all_controllers(self, traffic, tmp_path, monkeypatch):
        traffic, clock = traffic(), FakeClock()
        monkeypatch.setattr(memory_traffic, "time", SimpleNamespace(monotonic=clock))
        assert len(traffic.events) == 4
        for run in range(2):
            traffic.start(tmp_path / f"{run}.txt")
            clock.wait(2.0)
            moved = {"read": 2 * 300 * MIB, "write": 2 * 100 * MIB}
            rates = {f"memory_{way}_bytes_s": size / 2.0 for way, size in moved.items()}
            assert traffic.stop() == rates
        assert traffic.stop() == {}

    def test_a_direction_that_one_controller_did_not_count_is_missing(self, traffic, tmp_path):
        traffic = traffic(lost="imc_1/cas_count_write")
        traffic.start(tmp_path / "counts.txt")
        assert set(traffic.stop()) == {"memory_read_bytes_s"}

    def test_it_ends_with_whoever_started_it(self, traffic, tmp_path):
        traffic()
        code = (
            "import sys, time; from pathlib import Path\n"
            "from measurements.counters import memory_traffic\n"
            "sysfs = Path(sys.argv[1])\n"
            "traffic = memory_traffic.MemoryTraffic.find(sysfs, Path('/proc'))\n"
            "traffic.start(sysfs / 'counts.txt')\n"
            "print(traffic._process.pid, flush=True); time.sleep(600)"
        )
        command = [sys.executable, "-c", code, tmp_path]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as parent:
            pid = int(parent.stdout.readline())
            assert is_running(pid)
            parent.kill()
        wait_for(lambda: not is_running(pid))


def test_memory_traffic_is_counted_around_a_run_and_is_a_rate(tmp_path):
    begun = []
    machine = object.__new__(Machine)
    machine.control, machine.procfs, machine.sysfs = None, Path("/proc"), tmp_path
    machine._placement = SimpleNamespace(sockets=(0,))
    counted = {"memory_read_bytes_s": 5e9}
    machine.traffic = SimpleNamespace(start=begun.append, stop=lambda: counted)
    before = machine.before_run(tmp_path / "counts.txt")
    assert begun == [tmp_path / "counts.txt"]
    row = machine.after_run(before, SimpleNamespace(user_s=1.0, system_s=1.0), 2)
    assert row["memory_read_bytes_s"] == 5e9


@pytest.mark.parametrize(("data_bytes", "found"), [(1.2e8, 0.025), (None, None)])
def test_misses_a_byte_are_in_the_row(data_bytes, found):
    plan = {"host": "x", "family": "x", "workload": "x", "data_bytes": data_bytes, "price": None}
    plan["channels"] = []
    times = {"start_s": 1.0, "end_s": 3.0, "executions": 1, "facts": {"llc_misses": 3e6}}
    run = {"freq_hz": 2e9, "cores": 1, "repeat": 0, "failures": {}, "started_at": "now"}
    assert row_of(SimpleNamespace(plan=plan), times | run, {}).get("llc_misses_per_byte") == found
