"""The memory probe against mbw, perf bench and numpy, and on hosts that lack what it needs."""

from __future__ import annotations

import ctypes
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from measurements import MeasurementError
from measurements.memory_counters import llc_misses_per_byte, memory_events
from measurements.memory_kernels import WORDS
from measurements.memory_probe import MemoryProbe, probe_memory
from measurements.memory_sizes import available_memory, cpu_quota, last_level_cache

ROOT = Path(__file__).resolve().parents[2]
MIB, GIB = 2**20, 2**30
QUICK = {"budget_s": 0.2, "array_bytes": 64 * MIB, "chase_bytes": 64 * MIB}


def tree(root, files):
    """Write the files of a kernel's tree."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def cache(cpu, index, level, size, sharers, kind="Unified"):
    folder = f"devices/system/cpu/cpu{cpu}/cache/index{index}"
    values = {"level": level, "type": kind, "size": size, "shared_cpu_list": sharers}
    return {f"{folder}/{k}": v for k, v in {**values, "coherency_line_size": 64}.items()}


@pytest.fixture(scope="module")
def probe() -> MemoryProbe:
    return probe_memory()


class TestFigures:
    def test_bandwidth_is_that_of_some_memory(self, probe):
        assert list(probe.bandwidth) == list(WORDS)
        for rate in probe.bandwidth.values():
            assert 0.3e9 < rate.median_bytes_s <= rate.best_bytes_s < 5e12
            assert rate.repeats >= 2
        best = [rate.best_bytes_s for rate in probe.bandwidth.values()]
        assert max(best) < 5 * min(best)

    def test_latency_is_that_of_some_memory(self, probe):
        assert 20e-9 < probe.latency.best_s <= probe.latency.median_s < 2e-6
        assert probe.latency.repeats == 5
        assert probe.latency.huge_page_share < 0.01

    def test_buffers_are_larger_than_the_caches(self, probe):
        cache = probe.last_level_cache
        assert 3 * probe.array_bytes >= 4 * cache.total_bytes
        assert probe.chase_bytes >= 2 * cache.largest_bytes

    def test_every_allowed_cpu_has_a_thread(self, probe):
        assert probe.cpus == tuple(sorted(os.sched_getaffinity(0)))
        assert probe.threads == len(probe.cpus)
        assert probe.method.startswith("C, ")

    def test_columns(self, probe):
        columns = probe.to_columns()
        assert columns["memory_bandwidth_bytes_s"] == probe.bandwidth["triad"].best_bytes_s
        assert columns["memory_latency_s"] == probe.latency.best_s
        assert list(columns)[2:] == ["memory_latency_huge_pages_s"]

    def test_the_summary_says_how(self, probe):
        text = probe.summary()
        assert re.search(r"copy [\d.]+ \(median [\d.]+\), scale", text)
        assert re.search(r"memory latency: [\d.]+ ns .* 4 KiB pages, page-table walks", text)

    def test_it_takes_a_few_seconds_at_most_and_leaves_nothing(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        start = time.monotonic()
        probe_memory()
        # About two where nothing else runs; a loaded machine takes longer.
        assert time.monotonic() - start < 20
        assert list(tmp_path.iterdir()) == []


def chased(size):
    return probe_memory(**{**QUICK, "chase_bytes": size}).latency.best_s


class TestLatency:
    def test_it_grows_with_the_buffer_from_cache_to_memory(self, probe):
        first, second = chased(16 * 1024), chased(256 * 1024)
        assert 0.2e-9 < first < 10e-9
        assert first < second < 40e-9
        assert probe.latency.best_s > 3 * second

    def test_the_chase_goes_through_every_line_once(self, tmp_path):
        source = tmp_path / "cycle.c"
        source.write_text(
            "#define main probe_main\n"
            f'#include "{ROOT / "measurements" / "memory_probe.c"}"\n'
            "#undef main\n"
            "int main(void) {\n"
            "    static char buffer[1000 * 64];\n"
            "    int seen = 0, ahead = 0;\n"
            "    link_lines(buffer, 1000, 64);\n"
            "    void *at = buffer;\n"
            "    do {\n"
            "        void *next = *(void **)at;\n"
            "        ahead += (char *)next - (char *)at == 64;\n"
            "        at = next;\n"
            "        seen++;\n"
            "    } while (at != buffer);\n"
            '    printf("%d %d\\n", seen, ahead);\n'
            "}\n"
        )
        program = tmp_path / "cycle"
        flags = "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"
        subprocess.run(["cc", *flags, source, "-o", program], check=True)
        done = subprocess.run([program], check=True, capture_output=True, text=True)
        seen, ahead = map(int, done.stdout.split())
        assert seen == 1000
        # Of a random cycle one line in a thousand leads to its neighbour.
        assert ahead < 10

    def test_huge_pages_are_told_apart_and_missing_where_there_are_none(self):
        # The kernel's switch for one process and its children (PR_SET_THP_DISABLE).
        assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0
        try:
            bare = probe_memory(**QUICK)
        finally:
            assert ctypes.CDLL(None).prctl(41, 0, 0, 0, 0) == 0
        assert bare.latency_huge_pages is None
        assert math.isnan(bare.to_columns()["memory_latency_huge_pages_s"])
        assert bare.huge_page_share == 0
        (note,) = [n for n in bare.notes if "huge pages" in n]
        assert "they backed 0% of the buffer" in note
        assert "transparent_hugepage is" in note


def mbw_copy():
    """Bytes read and written a second by mbw's loop over an array, on one CPU."""
    cpu = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", cpu, "mbw", "-q", "-n", "5", "-t1", "128"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rates = re.findall(r"^\d+\s+Method: DUMB.*Copy: ([\d.]+) MiB/s", done.stdout, re.MULTILINE)
    assert len(rates) == 5
    return 2 * MIB * max(map(float, rates))


def perf_copy():
    """Bytes read and written a second by `perf bench mem memcpy`."""
    command = ["perf", "bench", "mem", "memcpy", "-s", "128MB", "-l", "10", "-f", "default"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return 2 * GIB * float(re.search(r"([\d.]+) GB/sec", done.stdout)[1])


def numpy_copy():
    a, b = np.ones(16 * MIB), np.zeros(16 * MIB)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        np.copyto(b, a)
        seconds.append(time.perf_counter() - start)
    return 2 * a.nbytes / min(seconds)


class TestOtherPrograms:
    @pytest.mark.parametrize("other", [mbw_copy, perf_copy, numpy_copy])
    def test_copy_on_one_cpu_is_theirs_within_a_factor(self, other):
        first = min(os.sched_getaffinity(0))
        ours = probe_memory(cpus=[first], budget_s=0.5).bandwidth["copy"].best_bytes_s
        # Other instructions, page sizes and buffers, on a machine that may be busy.
        assert 0.2 < ours / other() < 5

    def test_numpys_kernels_are_the_compiled_ones_within_a_factor(self, probe):
        by_numpy = probe_memory(compilers=())
        for name, rate in by_numpy.bandwidth.items():
            assert 0.2 < rate.best_bytes_s / probe.bandwidth[name].best_bytes_s < 5


class TestCpus:
    def test_those_allowed_are_used(self):
        allowed = os.sched_getaffinity(0)
        last = max(allowed)
        os.sched_setaffinity(0, {last})
        try:
            assert probe_memory(**QUICK).cpus == (last,)
            assert probe_memory(**QUICK, compilers=()).cpus == (last,)
        finally:
            os.sched_setaffinity(0, allowed)
        assert os.sched_getaffinity(0) == allowed

    def test_others_are_refused(self):
        never = max(os.sched_getaffinity(0)) + 1
        with pytest.raises(MeasurementError, match=rf"CPUs {never} asked for, and this process"):
            probe_memory(cpus=[never])
        with pytest.raises(MeasurementError, match="CPUs none asked for"):
            probe_memory(cpus=[])

    def test_a_quota_of_the_control_group_is_kept(self, tmp_path):
        tree(tmp_path / "proc", {"meminfo": f"MemAvailable: {GIB // 1024} kB"})
        tree(tmp_path / "proc", {"self/cgroup": "0::/box"})
        tree(tmp_path / "sys", {"fs/cgroup/box/cpu.max": "150000 100000"})
        trees = {"procfs": tmp_path / "proc", "sysfs": tmp_path / "sys"}
        assert cpu_quota(**trees) == 1.5
        probe = probe_memory(**QUICK, **trees)
        if len(os.sched_getaffinity(0)) > 1:
            assert probe.threads == 1
            assert "quota is 1.5 CPUs: measured with 1 of them" in "\n".join(probe.notes)


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Make a compiler of a shell script: it sees its arguments, and ``$out`` is the program."""

    def make(script):
        path = tmp_path / "bin" / "mycc"
        path.parent.mkdir()
        out = 'for word in "$@"; do [ "$last" = -o ] && out=$word; last=$word; done'
        path.write_text(f"#!/bin/sh\n{out}\n{script}\n")
        path.chmod(0o755)
        return (str(path),)

    return make


def program(text):
    """Script of a compiler whose programs are this script."""
    return f"cat >$out <<'END'\n#!/bin/sh\n{text}\nEND\nchmod +x $out"


class TestWithoutCompiler:
    def test_numpy_measures_bandwidth_and_latency_is_missing(self, monkeypatch):
        monkeypatch.setenv("PATH", "/nowhere")
        probe = probe_memory(**QUICK)
        assert probe.method == "numpy"
        assert probe.latency is None
        assert probe.bandwidth_bytes_s > 0.3e9
        columns = probe.to_columns()
        assert math.isnan(columns["memory_latency_s"])
        (note,) = [n for n in probe.notes if "latency is missing" in n]
        assert "no C compiler on this host (apt install gcc libc6-dev" in note
        assert "memory latency:" not in probe.summary()

    def test_a_compiler_without_headers_says_why(self, compiler):
        broken = compiler("echo 'x.c:13:10: fatal error: pthread.h: No such file' >&2; exit 1")
        probe = probe_memory(**QUICK, compilers=broken)
        assert probe.method == "numpy"
        assert "fatal error: pthread.h: No such file (apt install" in "\n".join(probe.notes)

    def test_one_without_the_native_flag_does(self, compiler):
        old = compiler('case "$*" in *march=native*) exit 1;; esac; exec cc "$@"')
        probe = probe_memory(**QUICK, compilers=old)
        assert probe.method == "C, mycc -O3"
        assert probe.latency_s > 0

    def test_a_folder_that_takes_no_programs(self, tmp_path):
        folder = tmp_path / "noexec"
        folder.mkdir()
        script = (
            "from measurements.memory_probe import probe_memory\n"
            f"p = probe_memory(budget_s=0.1, array_bytes={64 * MIB}, chase_bytes={MIB})\n"
            "print(p.method, *p.notes)"
        )
        mount = 'mount -t tmpfs -o noexec none "$1" && exec "$2" -c "$3"'
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", mount, "sh", str(folder), sys.executable, script],
            env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
            text=True,
        )
        assert done.stdout.startswith("numpy memory latency is missing")
        assert "takes no programs (mounted noexec?): set TMPDIR" in done.stdout


class TestPrograms:
    SAYS = "if [ $1 = bandwidth ]; then printf '{}'; else printf '{}'; fi"
    RATES = r"copy 0.5 0.25 1\nscale 1 1 1\nadd 1 1 1\ntriad 0.5 0.6 0.5\nhuge_pages 0.25\n"
    CHASE = r"chase 1e-7 3e-7 1e-7\nhuge_pages -1\n"

    def test_figures_are_bytes_over_the_best_and_median_seconds(self, compiler):
        fake = compiler(program(self.SAYS.format(self.RATES, self.CHASE)))
        probe = probe_memory(array_bytes=8 * MIB, chase_bytes=4 * MIB, compilers=fake)
        assert probe.bandwidth["copy"] == (2 * 8 * MIB / 0.25, 2 * 8 * MIB / 0.5, 3)
        assert probe.bandwidth["triad"] == (3 * 8 * MIB / 0.5, 3 * 8 * MIB / 0.5, 3)
        assert probe.latency[:3] == (1e-7, 1e-7, 3)
        assert probe.huge_page_share == 0.25
        assert probe.latency_huge_pages is None
        assert "the median repeat is up to 50% worse than the best" in probe.summary()
        assert "it does not say how many" in probe.summary()

    @pytest.mark.parametrize(
        ("end", "said"),
        [
            ("kill -9 $$", "memory ran out while it was measured"),
            ("exit 3", "memory ran out while it was measured"),
            ("echo 'memory_probe: the results are wrong' >&2; exit 4", "ended with 4 (memory_pr"),
            ("kill -4 $$", "ended with -4 (no reason): measure without --probe-memory"),
        ],
    )
    def test_one_that_ends_early_is_an_error(self, compiler, end, said):
        with pytest.raises(MeasurementError, match=re.escape(said)):
            probe_memory(**QUICK, compilers=compiler(program(end)))

    def test_one_that_hangs_is_ended(self, compiler, monkeypatch):
        monkeypatch.setattr("measurements.memory_kernels._TIMEOUT_S", 0.5)
        with pytest.raises(MeasurementError, match=r"took more than 0\.5 s"):
            probe_memory(**QUICK, compilers=compiler(program("exec sleep 60")))

    @pytest.mark.parametrize("compilers", [("cc",), ()], ids=["C", "numpy"])
    def test_arrays_that_no_address_space_holds(self, compilers):
        with pytest.raises(MeasurementError, match="memory ran out"):
            probe_memory(array_bytes=2**47, chase_bytes=MIB, compilers=compilers)


class TestCaches:
    def test_shared_ones_count_once_and_instructions_never(self, tmp_path):
        files = {}
        for cpu in range(4):
            pair = "0-1" if cpu < 2 else "2-3"
            files |= cache(cpu, 0, 1, "32K", cpu, "Data")
            files |= cache(cpu, 1, 1, "64K", cpu, "Instruction")
            files |= cache(cpu, 2, 2, "1024K", cpu)
            files |= cache(cpu, 3, 3, "16384K" if cpu < 2 else "8M", pair)
        tree(tmp_path, files)
        assert last_level_cache(tmp_path, range(4)) == (24 * MIB, 16 * MIB, 64)
        assert last_level_cache(tmp_path, [3]) == (8 * MIB, 8 * MIB, 64)

    def test_an_atom_has_two_levels(self, tmp_path):
        tree(tmp_path, cache(0, 0, 1, "24K", 0, "Data") | cache(0, 2, 2, "512K", 0))
        assert last_level_cache(tmp_path, [0, 1]).total_bytes == 512 * 1024

    def test_where_the_kernel_says_nothing_a_size_is_assumed(self, tmp_path):
        assert last_level_cache(tmp_path, [0]) == (0, 0, 64)
        probe = probe_memory(budget_s=0.1, sysfs=tmp_path, compilers=())
        assert probe.array_bytes == 4 * 32 * MIB
        assert "does not say how large the caches are: 32 MiB assumed" in probe.summary()

    def test_the_kernels_own_figures(self):
        listed = subprocess.run(
            ["lscpu", "-B", "-C=NAME,ALL-SIZE,ONE-SIZE"], check=True, capture_output=True, text=True
        )
        last = listed.stdout.split("\n")[-2].split()
        found = last_level_cache(Path("/sys"), sorted(os.sched_getaffinity(0)))
        if found.total_bytes:
            assert found.largest_bytes == int(last[2])


class TestMemory:
    @pytest.fixture
    def host(self, tmp_path):
        """Trees of a host with 32 MiB of last-level cache and so much memory."""

        def make(megabytes, groups=(), group="0::/"):
            tree(
                tmp_path / "proc",
                {"meminfo": f"MemTotal: 1 kB\nMemAvailable: {megabytes << 10} kB"},
            )
            tree(tmp_path / "proc", {"self/cgroup": group})
            tree(tmp_path / "sys", {**cache(0, 3, 3, "32768K", "0-255"), **dict(groups)})
            return {"procfs": tmp_path / "proc", "sysfs": tmp_path / "sys"}

        return make

    def test_what_the_kernel_has(self, host):
        assert available_memory(**host(512)) == 512 * MIB

    def test_or_what_the_control_groups_leave(self, host):
        groups = {
            "fs/cgroup/a/memory.max": 400 * MIB,
            "fs/cgroup/a/memory.current": 300 * MIB,
            "fs/cgroup/a/memory.stat": f"anon 5\ninactive_file {50 * MIB}",
            "fs/cgroup/a/b/memory.max": "max",
            "fs/cgroup/a/b/memory.current": 10 * MIB,
        }
        assert available_memory(**host(512, groups, "0::/a/b")) == 150 * MIB

    def test_or_those_of_version_1(self, host):
        groups = {
            "fs/cgroup/memory/d/memory.limit_in_bytes": 200 * MIB,
            "fs/cgroup/memory/d/memory.usage_in_bytes": 80 * MIB,
            "fs/cgroup/cpu/d/cpu.cfs_quota_us": 50000,
            "fs/cgroup/cpu/d/cpu.cfs_period_us": 100000,
        }
        trees = host(512, groups, "5:memory:/d\n4:cpu,cpuacct:/d\n0::/")
        assert available_memory(**trees) == 120 * MIB
        assert cpu_quota(**trees) == 0.5

    def test_no_limit_is_no_limit(self, host):
        groups = {"fs/cgroup/cpu.max": "max 100000", "fs/cgroup/cpu/cpu.cfs_quota_us": -1}
        assert cpu_quota(**host(512, groups, "0::/\n4:cpu:/")) == math.inf

    def test_arrays_shrink_with_it(self, host):
        probe = probe_memory(**host(300), budget_s=0.1, compilers=())
        assert probe.array_bytes == 300 * MIB // 2 // 3

    def test_too_little_is_refused(self, host):
        with pytest.raises(MeasurementError) as caught:
            probe_memory(**host(100))
        said = str(caught.value)
        assert "100 MiB of memory are free, half of which may be used" in said
        assert "three arrays past the caches take 128 MiB" in said
        assert "--probe-memory" in said

    def test_without_procfs(self, tmp_path):
        with pytest.raises(MeasurementError, match=r"meminfo: no line MemAvailable: is procfs"):
            probe_memory(procfs=tmp_path)


def controller(name, events, scale="6.103515625e-5", unit="MiB"):
    folder = f"bus/event_source/devices/{name}/events"
    files = {}
    for event in events:
        files[f"{folder}/{event}"] = "event=0x04,umask=0x03"
        if scale:
            files |= {f"{folder}/{event}.scale": scale, f"{folder}/{event}.unit": unit}
    return files


class TestMemoryEvents:
    def test_a_virtual_machine_has_none(self, tmp_path):
        assert memory_events(tmp_path) is None
        tree(tmp_path, {"bus/event_source/devices/msr/type": "9"})
        assert memory_events(tmp_path) is None

    def test_a_server_has_strobes_of_every_channel(self, tmp_path):
        for channel in (0, 1, 10, 2):
            events = "cas_count_read", "cas_count_write", "clockticks"
            tree(tmp_path, controller(f"uncore_imc_{channel}", events))
        tree(tmp_path, controller("uncore_imc_free_running_0", ("read", "write", "dclk")))
        events = memory_events(tmp_path)
        assert [e.name for e in events[::2]] == [
            f"uncore_imc_{n}/cas_count_read/" for n in (0, 1, 2, 10)
        ]
        assert {e.direction for e in events[1::2]} == {"write"}
        # A strobe moves a line of 64 bytes: 6.103515625e-5 MiB.
        assert {e.bytes_per_count for e in events} == {64.0}

    def test_two_sub_channels(self, tmp_path):
        names = [f"cas_count_{way}_sch{n}" for way in ("read", "write") for n in (0, 1)]
        tree(tmp_path, controller("uncore_imc_0", names))
        assert [e.direction for e in memory_events(tmp_path)] == ["read", "read", "write", "write"]

    @pytest.mark.parametrize(
        ("device", "names", "wanted"),
        [
            ("uncore_imc", ["data_reads", "data_writes", "gt_requests", "ia_requests"], 2),
            ("uncore_imc_free_running_0", ["data_read", "data_write", "data_total"], 2),
            ("uncore_imc_free_running_0", ["read", "write", "ddrt_read", "ddrt_write"], 2),
            ("uncore_imc_0", ["clockticks"], 0),
        ],
    )
    def test_others_have_free_running_counters(self, tmp_path, device, names, wanted):
        tree(tmp_path, controller(device, names))
        events = memory_events(tmp_path) or ()
        assert len(events) == wanted
        assert sorted(e.direction for e in events) == ["read", "write"][:wanted]

    def test_what_perf_prints_becomes_bytes(self, tmp_path):
        tree(tmp_path, controller("uncore_imc_0", ["cas_count_read"]))
        (event,) = memory_events(tmp_path)
        assert event.bytes_of(2.5, "MiB") == 2.5 * MIB
        assert event.bytes_of(1000, "") == 64_000
        with pytest.raises(MeasurementError, match="its unit 'Joules' is not one of bytes"):
            event.bytes_of(1, "Joules")

    def test_an_old_kernel_gives_no_scale(self, tmp_path):
        tree(tmp_path, controller("uncore_imc_0", ["cas_count_read"], scale=None))
        tree(tmp_path, controller("uncore_imc_1", ["data_read"], scale=None))
        (event,) = memory_events(tmp_path)
        assert (event.name, event.bytes_per_count) == ("uncore_imc_0/cas_count_read/", 64)

    def test_a_scale_that_is_none(self, tmp_path):
        tree(tmp_path, controller("uncore_imc_0", ["cas_count_read"], scale="many"))
        with pytest.raises(
            MeasurementError, match=r"cas_count_read\.scale: 'many' is not a number"
        ):
            memory_events(tmp_path)


def test_misses_per_byte():
    assert llc_misses_per_byte(3e6, 1.2e8) == 0.025
    assert math.isnan(llc_misses_per_byte(math.nan, 1e6))
    assert math.isnan(llc_misses_per_byte(1e6, math.nan))
    assert math.isnan(llc_misses_per_byte(1e6, 0))
    assert llc_misses_per_byte(0, 1e6) == 0
    with pytest.raises(MeasurementError, match="neither can be negative"):
        llc_misses_per_byte(-1, 1e6)
