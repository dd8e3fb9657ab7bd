"""Physical cores as lscpu numbers them, and commands that run where they were placed."""

import contextlib
import os
import subprocess
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from peers.sysfs_host import Cpu, TopologyTree

from measurements.errors import MeasurementError
from measurements.host.cpu_placement import place, read_topology, run_on
from measurements.host.files import cpu_list_text, parse_cpu_list

# Two sockets of four cores, two threads each, the second threads numbered after all first ones.
XEON = [Cpu(n, core=n % 4, socket=n // 4 % 2, node=n // 4 % 2) for n in range(16)]
# The same with threads side by side, and two NUMA nodes a socket.
EPYC = [Cpu(n, core=n // 2 % 4, socket=n // 8, node=n // 4) for n in range(16)]
PLAIN = [Cpu(n, core=n) for n in range(4)]
LSCPU = pytest.mark.peer("frequency")


@pytest.fixture
def host(tmp_path):
    return lambda cpus, online=None: TopologyTree(tmp_path / "host", cpus, online)


def topology(tree, allowed=range(4096)):
    return read_topology(tree.root / "sys", allowed=allowed)


def found_cpus(found):
    return [core.cpus for core in found.cores]


class TestTopology:
    @pytest.mark.parametrize(
        "told", [TopologyTree.described, pytest.param(TopologyTree.lscpu, marks=LSCPU)]
    )
    @pytest.mark.parametrize("cpus", [XEON, EPYC, PLAIN])
    @pytest.mark.parametrize("online", [None, [0, 1, 2, 3, 5, 9, 13]])
    def test_cores_sockets_and_nodes_are_those_described(self, host, cpus, online, told):
        tree = host(cpus, online)
        expected = told(tree)
        threads = defaultdict(list)
        for cpu, identity in expected.items():
            threads[identity].append(cpu)
        found = topology(tree)
        assert sorted(found_cpus(found)) == sorted(map(tuple, threads.values()))
        for core in found.cores:
            assert {expected[cpu][1:] for cpu in core.cpus} == {(core.socket, core.node)}

    @LSCPU
    def test_this_machine_is_as_lscpu_tells(self):
        command = ["lscpu", "--parse=CPU,CORE"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows = [line.split(",") for line in told.splitlines() if not line.startswith("#")]
        usable = {int(c): core for c, core in rows if int(c) in os.sched_getaffinity(0)}
        found = read_topology()
        assert len(found.cores) == len(set(usable.values()))
        assert sorted(cpu for core in found.cores for cpu in core.cpus) == sorted(usable)

    def test_cpus_that_are_not_allowed_are_withheld(self, host):
        tree = host(XEON)
        found = topology(tree, allowed=[0, 1, 9, 14, 99])
        assert found_cpus(found) == [(0,), (1, 9), (14,)]
        assert found.withheld == (2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 15)
        with pytest.raises(MeasurementError, match="no CPU that this process may use"):
            topology(tree, allowed=[99])
        before = os.sched_getaffinity(0)
        with run_on([min(before)]):
            assert found_cpus(read_topology()) == [(min(before),)]
        assert os.sched_getaffinity(0) == before

    def test_a_virtual_machine_that_tells_nothing_has_as_many_cores_as_cpus(self, tmp_path):
        for cpu in range(3):
            (tmp_path / f"devices/system/cpu/cpu{cpu}/topology").mkdir(parents=True)
        (tmp_path / "devices/system/cpu/cpu1/topology/physical_package_id").write_text("-1")
        found = read_topology(tmp_path, allowed=range(3))
        assert found_cpus(found) == [(0,), (1,), (2,)]
        assert {core.socket for core in found.cores} == {0}

    def test_a_hybrid_processor_has_its_fast_cores_first(self, host, tmp_path):
        tree = host([Cpu(0, 0), Cpu(1, 1), Cpu(2, 2), Cpu(3, 2), Cpu(4, 3), Cpu(5, 3)])
        for kind, cpus in (("cpu_core", "2-5"), ("cpu_atom", "0-1")):
            (tree.root / "sys/devices" / kind).mkdir()
            (tree.root / "sys/devices" / kind / "cpus").write_text(f"{cpus}\n")
        assert found_cpus(topology(tree)) == [(2, 3), (4, 5), (0,), (1,)]
        # One of big and little cores has capacities.
        tree = TopologyTree(tmp_path / "arm", PLAIN)
        for cpu, capacity in enumerate((446, 446, 1024, 1024)):
            (tree.root / f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity").write_text(f"{capacity}")
        assert found_cpus(topology(tree)) == [(2,), (3,), (0,), (1,)]


class TestPlacement:
    @pytest.mark.cases(
        "cpus, cores, expected, sockets",
        (XEON, 5, (0, 1, 2, 3, 4), (0, 1)),
        # Threads side by side are not taken for cores.
        (EPYC, 3, (0, 2, 4), (0,)),
    )
    def test_one_thread_a_core(self, host, cpus, cores, expected, sockets):
        found = place(topology(host(cpus)), cores)
        assert (found.cpus, found.cores, found.sockets) == (expected, cores, sockets)

    def test_with_all_threads_and_cores_with_fewer_than_others(self, host, tmp_path):
        cores = topology(host(XEON))
        for threads in (None, 2):
            assert place(cores, 2, threads_per_core=threads).cpus == (0, 1, 8, 9)
        everything = place(cores)
        assert (everything.cpus, everything.cores) == (tuple(range(16)), 8)
        cores = topology(TopologyTree(tmp_path / "fewer", XEON, [*range(9)]))
        assert place(cores, 2, threads_per_core=None).cores == 2

    @pytest.mark.parametrize("cpus", [XEON, EPYC])
    def test_smaller_placements_are_within_larger_ones(self, host, cpus):
        cores = topology(host(cpus))
        sizes = [set(place(cores, n).cpus) for n in range(1, 9)]
        assert [len(size) for size in sizes] == list(range(1, 9))
        assert all(small < large for small, large in pairwise(sizes))

    def test_more_than_there_is(self, host):
        tree = host(XEON)
        for allowed, cores, threads, said in (
            *((range(16), n, 1, rf"{n} physical cores .* 1 to 8$") for n in (0, -1, 9)),
            (range(8), 9, 1, r"1 to 8; CPUs 8-15 are online but not"),
            *((range(16), 2, n, r"threads per core .* 1 to 2") for n in (0, 3)),
        ):
            with pytest.raises(MeasurementError, match=said):
                place(topology(tree, allowed), cores, threads_per_core=threads)


class TestRunning:
    def test_what_is_started_runs_there_as_the_kernel_tells(self):
        before = os.sched_getaffinity(0)
        for cpu in {min(before), max(before)}:
            with run_on([cpu]):
                command = ["grep", "Cpus_allowed_list", "/proc/self/status"]
                told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            assert told.split() == ["Cpus_allowed_list:", str(cpu)]
        assert os.sched_getaffinity(0) == before

    def test_other_threads_keep_theirs_and_it_is_undone_when_the_block_fails(self):
        before = os.sched_getaffinity(0)
        with ThreadPoolExecutor(1) as other:
            number = other.submit(threading.get_native_id).result()
            with contextlib.suppress(ZeroDivisionError), run_on([min(before)]):
                assert os.sched_getaffinity(0) == {min(before)}
                assert os.sched_getaffinity(number) == before
                raise ZeroDivisionError
            assert os.sched_getaffinity(0) == before

    def test_cpus_that_are_not_to_be_had(self):
        before = os.sched_getaffinity(0)
        offline = "4000 is offline or not allowed"
        for cpus, text in (([4000], offline), ([], r"CPUs \(none\)"), ([0, 4000], offline)):
            with pytest.raises(MeasurementError, match=text), run_on(cpus):
                pytest.fail("it was entered")
        assert os.sched_getaffinity(0) == before


class TestLists:
    def test_as_the_kernel_writes_them_and_what_is_none(self):
        cpus = {"0-3,8": (0, 1, 2, 3, 8), "0 1 2 3\n": (0, 1, 2, 3), " 5 , 2-3,2": (2, 3, 5)}
        for text, found in {**cpus, "\n": ()}.items():
            assert parse_cpu_list(text) == found
        for text in ("a", "3-1", "1-", "-1", "0x3", "1.5", "0-99999999", "1;2"):
            with pytest.raises(MeasurementError, match="is not a list of CPUs"):
                parse_cpu_list(text)

    @given(st.sets(st.integers(0, 8191)))
    def test_writing_and_reading_are_inverse(self, cpus):
        assert set(parse_cpu_list(cpu_list_text(cpus))) == cpus
