"""Memcached: real servers and load generators, what they print, latencies, and the limits."""

import itertools
import json
import math
import os
import signal
import socket
import time
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, strategies as st
from peers.waiting import wait_for

from measurements.errors import MeasurementError
from measurements.host.cpu_placement import PhysicalCore, Topology
from measurements.processes.cleanup_process import CleanupProcess
from measurements.workloads.clients import Client, Histogram, merge_histograms, power_of_two_cells
from measurements.workloads.memcached import load_generators, load_sweep
from measurements.workloads.memcached.limits import judge_runs
from measurements.workloads.memcached.load_generators import Work, find_loader
from measurements.workloads.memcached.load_sweep import line_rate, link_to, works
from measurements.workloads.memcached.servers import Address, Control, Servers, needed_memory

with_memcached = pytest.mark.peer("memcached")
SIZES = {"keys_per_request": 1, "keys": 2000, "key_bytes": 30, "value_bytes": 64}
CLIENT = {"connections": 8, "threads": 1, "rate_s": None, "seconds": 0.5, "seed": 1}
WORK = Work(get_share=1.0, **SIZES, **CLIENT)
CPUS = tuple(sorted(os.sched_getaffinity(0)))
HERE = Address("127.0.0.1", 1)


@pytest.fixture(scope="module")
def reaper():
    with CleanupProcess() as reaper:
        yield reaper


@pytest.fixture(scope="module")
def start(reaper, tmp_path_factory):
    """Start private servers that are stopped after the tests."""
    running, folder = [], tmp_path_factory.mktemp("servers")

    def start(**options):
        asked = {"partitions": 1, "threads": 1, "memory_bytes": 128 << 20, "connections": 64}
        options = {**asked, "cpus": CPUS[:1], "reaper": reaper, **options}
        running.append(Servers.start(**options, log=folder / f"{len(running)}.txt"))
        return running[-1]

    yield start
    for servers in running:
        # They take a second to end of themselves.
        for process in servers.processes:
            process.kill()
        servers.stop()


@pytest.fixture(scope="module")
def servers(start):
    return start(memory_bytes=256 << 20)


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    return find_loader("paced").open(tmp_path_factory.mktemp("paced"))


@pytest.fixture
def drive(reaper, servers, tmp_path):
    """Run one client process against the server; what it printed and what the server counted."""

    def drive(loader, work, *, fill=False, meanwhile=lambda: None):
        if fill:
            servers.controls[0].fill(lambda n: loader.key(n, work), work.keys, work.value_bytes)
        before = servers.counts()
        command = loader.command(servers.addresses[0], work, tmp_path, 0)
        client = Client([command], CPUS[-1:], reaper)
        client.start(tmp_path / "client.txt")
        meanwhile()
        client.wait(60)
        report = loader.report(client.outputs, tmp_path, [work])
        counts = [b - a for a, b in zip(before, servers.counts(), strict=True)]
        return client.outputs[0], report, type(before)(*counts)

    return drive


@with_memcached
class TestServers:
    def test_they_answer_count_and_end_where_they_are_told_to_run(self, start):
        servers = start(partitions=2, threads=3, cpus=CPUS[-1:])
        assert servers.threads == 6
        assert servers.version[0].isdecimal()
        assert len({address.port for address in servers.addresses}) == 2
        for task in Path(f"/proc/{servers.pids[0]}/task").iterdir():
            assert f"Cpus_allowed_list:\t{CPUS[-1]}\n" in (task / "status").read_text()
        before = servers.counts()
        for control in servers.controls:
            control.fill(lambda n: f"key-{n:026d}", 1000, 64)
        after = servers.counts()
        assert after.sets - before.sets == after.operations - before.operations == 2000
        pids = servers.pids
        servers.stop()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)

    def test_objects_that_do_not_fit_are_refused(self, start):
        servers = start(memory_bytes=64 << 20)
        said = r"2000 objects of 65536 B do not fit: .*evicted"
        with pytest.raises(MeasurementError, match=said):
            servers.controls[0].fill(lambda n: f"key-{n:026d}", 2000, 65536)

    @pytest.mark.parametrize("value_bytes", [64, 1024, 65536])
    def test_in_the_memory_that_is_computed_for_them_objects_fit(self, start, value_bytes):
        keys = (10 << 20) // value_bytes
        servers = start(memory_bytes=needed_memory(keys, 30, value_bytes))
        servers.controls[0].fill(lambda n: f"{n:030d}", keys, value_bytes)
        assert servers.counts().evictions == 0


class TestAddresses:
    def test_what_they_are_and_what_is_none(self):
        for text, address in (
            *(("10.0.0.7:11299", ("10.0.0.7", 11299)), ("cache7", ("cache7", 11211))),
            *(("[::1]:11299", ("::1", 11299)), ("[::1]", ("::1", 11211))),
        ):
            assert Address.parse(text) == address
        for text in ("", ":11211", "a:b", "a:0", "a:70000"):
            with pytest.raises(MeasurementError, match="is no address of a server: write HOST:P"):
                Address.parse(text)

    def test_what_is_no_memcached_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            control = Control(Address(*listener.getsockname()))
            with listener.accept()[0] as connection:
                connection.sendall(b"ERROR what is that\r\n")
                with pytest.raises(MeasurementError, match="said ERROR what is that"):
                    control.stats()
            control.close()

    def test_only_some_links_have_a_line_rate(self, tmp_path, monkeypatch):
        link = link_to(Address("127.0.0.1", 11211))
        assert (link.interface, link.bits_s, link.is_loopback) == ("lo", None, True)
        received, sent = link.byte_counts()
        assert received == sent
        folder = tmp_path / "class/net/eth0"
        folder.mkdir(parents=True)
        for told, rate in (("10000\n", 1e10), ("-1\n", None)):
            (folder / "speed").write_text(told)
            assert line_rate("eth0", tmp_path) == rate
        assert line_rate("eth1", tmp_path) is None

        # A name that is none has no link.
        unknown = socket.gaierror(-2, "Name or service not known")
        monkeypatch.setattr(socket, "getaddrinfo", mock.Mock(side_effect=unknown))
        assert link_to(Address("no-such-host.invalid", 1)) == (None, None, False)


# Printed by memcaslap 1.1.4 for two seconds of nine gets to one set on this kind of machine.
PRINTED = (Path(__file__).parent / "data/memcached/memcaslap.txt").read_text()


class TestMemcaslap:
    def test_what_it_printed_by_hand(self, tmp_path):
        file = tmp_path / "printed.txt"
        file.write_text(PRINTED)
        found = load_generators.read_memcaslap_totals(file)
        assert found.histogram.requests == 64736
        assert found.mean_s == pytest.approx(493e-6)
        # 3 + 48 + 3361 are below half of 64736, with the 36385 of cell 8 they are above:
        # 128 to 256 µs. The 64089th request is the 446th of the 999 in cell 13.
        median, p99 = found.histogram.percentile(0.5), found.histogram.percentile(0.99)
        share = (64736 / 2 - 3412) / 36385
        assert median == pytest.approx((128e-6 * 2**share, 128e-6, 256e-6), rel=1e-9)
        assert p99 == pytest.approx((4096e-6 * 2 ** (446 / 999), 4096e-6, 8192e-6), rel=1e-9)
        # The last cell ends at the longest latency and not at 16384 µs.
        assert found.histogram.percentile(1.0).estimate_s == pytest.approx(15199e-6)

    @with_memcached
    def test_it_counts_what_the_server_does_but_for_the_requests_in_flight(self, drive, tmp_path):
        loader = find_loader("memcaslap").open(tmp_path)
        output, report, counts = drive(loader, WORK)
        counted = load_generators.read_memcaslap_totals(output).histogram.requests
        assert 0 <= counts.gets - counted <= 2 * WORK.connections
        # The objects that it stores first are in the throughput that it prints, and not here.
        assert counts.sets == loader.object_count(WORK) == 8 * 1024
        assert counts.hits == counts.gets
        assert report.median.least_s <= report.median.estimate_s <= report.median.most_s
        assert "powers of two" in report.resolution

    def test_its_numbers_are_multiples_and_there_is_work_that_it_cannot_do(self, tmp_path):
        loader = load_generators.Memcaslap("m")
        for asked, connections, threads, windows in (
            ((8, 1, 2000), 8, 1, 1),
            ((5, 2, 30_000), 6, 2, 5),
            ((1, 4, 10), 4, 4, 1),
        ):
            work = WORK._replace(connections=asked[0], threads=asked[1], keys=asked[2])
            said = dict(itertools.pairwise(loader.command(HERE, work, tmp_path, 0)))
            assert (said["-c"], said["-T"]) == (str(connections), str(threads))
            assert said["-w"] == f"{windows}k"
            assert loader.object_count(work) == connections * windows * 1024
        with pytest.raises(MeasurementError, match="memcaslap makes keys of 16 to 250 B"):
            loader.command(HERE, WORK._replace(key_bytes=12), tmp_path, 0)
        with pytest.raises(MeasurementError, match="cannot hold a fixed rate: use --client paced"):
            loader.command(HERE, WORK._replace(rate_s=100.0), tmp_path, 0)


def memtier_json(count=1000, p50=0.3, p99=1.2, mean=0.4):
    """As its result_print_to_json writes it, of gets alone."""
    part = {"Count": count, "Ops/sec": 1.0, "Average Latency": mean, "Max Latency": 9.0}
    percentiles = {"Percentile Latencies": {"p50.00": p50, "p99.00": p99}}
    totals = {**part, **percentiles, "Average Latency": 77.0}
    return {"ALL STATS": {"Sets": dict.fromkeys(part, 0), "Gets": part, "Totals": totals}}


NO_STATS = '{"ALL STATS": {}}'


def memtier_report(*files):
    return load_generators.Memtier("m").report([], files[0].parent, [WORK] * len(files))


class TestMemtier:
    def test_its_report_by_hand(self, tmp_path):
        files = [tmp_path / f"memtier-{n}.json" for n in range(2)]
        files[0].write_text(json.dumps(memtier_json()))
        files[1].write_text(json.dumps(memtier_json(3000, 0.5, 2.0, 0.8)))
        report = memtier_report(*files)
        # (1000·0.4 + 3000·0.8)/4000 ms; a quarter and three quarters of the percentiles.
        assert (report.mean_s, report.max_s) == pytest.approx((0.7e-3, 9e-3))
        assert report.median == pytest.approx((0.45e-3, 0.3e-3, 0.5e-3))
        assert report.p99 == pytest.approx((1.8e-3, 1.2e-3, 2.0e-3))

    def test_its_command(self, tmp_path):
        work = WORK._replace(get_share=0.9, threads=2, rate_s=4000.0, keys_per_request=8)
        work = work._replace(seconds=2.25)
        loader = load_generators.Memtier("memtier_benchmark")
        command = loader.command(Address("cache7", 11211), work, tmp_path, 3)
        # 4000 a second over 2 threads of 4 connections are 500 each.
        assert {
            *("--protocol=memcache_text", "--ratio=1:9", "--test-time=3", "--rate-limiting=500"),
            *("--multi-key-get=8", "--key-minimum=1000000000", "--key-maximum=1000001999"),
            f"--json-out-file={tmp_path}/memtier-3.json",
        } <= set(command)
        assert command[command.index("-c") + 1] == "4"
        keys = [loader.key(n, work) for n in (0, 1999)]
        assert keys == ["k" * 20 + "1000000000", "k" * 20 + "1000001999"]


@with_memcached
class TestPaced:
    def test_every_request_is_the_servers_too(self, drive, loader):
        work = WORK._replace(rate_s=2000.0, get_share=0.75, keys_per_request=3, seconds=1.0)
        output, report, counts = drive(loader, work, fill=True)
        figures = load_generators.read_paced_totals(output).figures
        assert figures["requests"] == counts.gets / 3 + figures["stored"]
        assert figures["stored"] == counts.sets
        assert figures["hits"] == counts.gets == counts.hits
        assert figures["misses"] == figures["failed"] == figures["unanswered"] == 0
        # A Poisson process of 2000 a second: five standard deviations are 224.
        assert abs(figures["requests"] - 2000) < 224
        assert abs(counts.gets / 3 / figures["requests"] - 0.75) < 0.06
        assert report.failed == 0

    def test_objects_that_are_not_there_are_misses(self, drive, loader):
        work = WORK._replace(rate_s=500.0, key_bytes=31)
        figures = load_generators.read_paced_totals(drive(loader, work)[0]).figures
        assert figures["misses"] == figures["requests"] > 100
        assert figures["hits"] == 0

    def test_a_server_that_stalls_is_charged_for_all_that_had_to_wait(self, drive, loader, servers):
        """A closed loop would count a stall once for each connection."""

        def stall():
            time.sleep(0.3)
            os.kill(servers.pids[0], signal.SIGSTOP)
            time.sleep(stalled_s)
            os.kill(servers.pids[0], signal.SIGCONT)

        work, stalled_s = WORK._replace(rate_s=2000.0, seconds=0.9), 0.3
        report = drive(loader, work, meanwhile=stall)[1]
        # A third of the requests was due while the server stood still: the last percent of them
        # all waited nearly as long as the stall.
        assert report.p99.estimate_s > 0.8 * stalled_s
        assert report.max_s >= 0.9 * stalled_s
        assert report.mean_s > 0.1 * stalled_s / 2

    def test_as_fast_as_it_is_answered_it_loads_the_server(self, drive, loader):
        output, report, counts = drive(loader, WORK)
        figures = load_generators.read_paced_totals(output).figures
        assert figures["requests"] == counts.gets > 500
        assert report.late_p99_s is None
        # Little's law: requests in flight are throughput times latency.
        in_flight = figures["requests"] / figures["elapsed_s"] * report.mean_s
        assert in_flight == pytest.approx(WORK.connections, rel=0.25)

    @pytest.mark.parametrize("value_bytes", [1, 65536])
    def test_sizes_come_through_whole(self, drive, loader, value_bytes):
        work = WORK._replace(value_bytes=value_bytes, keys=100, get_share=0.5, key_bytes=32)
        output, _, counts = drive(loader, work, fill=True)
        figures = load_generators.read_paced_totals(output).figures
        assert figures["hits"] == counts.hits > 0
        assert counts.written_bytes >= figures["hits"] * value_bytes

    def test_a_server_that_goes_away_is_an_error(self, start, reaper, loader, tmp_path):
        servers, work = start(), WORK._replace(rate_s=1000.0, seconds=60.0)
        command = loader.command(servers.addresses[0], work, tmp_path, 0)
        client = Client([command], CPUS[-1:], reaper)
        client.start(tmp_path / "client.txt")
        wait_for(lambda: servers.counts().gets)
        servers.processes[0].kill()
        with pytest.raises(MeasurementError, match="ended with exit code 1: the server closed"):
            client.wait(30)


def test_what_is_no_report(tmp_path):
    file = tmp_path / "memtier-0.json"
    caslap, paced = load_generators.read_memcaslap_totals, load_generators.read_paced_totals
    for read, text, said in (
        (caslap, PRINTED.partition("      12:     1991")[0], "output is cut off"),
        (caslap, PRINTED.partition("Total Statistics")[0], "no latencies of mem"),
        *((caslap, "", "it printed nothing"), (paced, "", "had no answer to any request")),
        (paced, "127.0.0.1:1: no connection: refused\n", "failed: 127.0.0.1:1"),
        *((memtier_report, text, "no report of memtier_") for text in ("", "{}", NO_STATS, "[]")),
    ):
        file.write_text(text)
        with pytest.raises(MeasurementError, match=said):
            read(file)


class TestLoaders:
    def test_the_first_there_is_taken_or_it_is_said_what_to_install(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(tmp_path))
        for program, name in (("memtier_benchmark", "memtier"), ("memaslap", "memcaslap")):
            (tmp_path / program).write_text("#!/bin/sh\n")
            (tmp_path / program).chmod(0o755)
            assert find_loader(None).open(tmp_path).name == name
        monkeypatch.setenv("PATH", str(tmp_path / "none"))
        for name, said in {
            None: r"no load generator is there: apt install libmemcached-tools .*--client paced",
            "memcaslap": "memcaslap is not there: apt install libmemcached-tools",
            "memtier": "memtier_benchmark is not there: apt install memtier-benchmark",
            "paced": "no C compiler on this host: apt install gcc",
            "oracle": "unknown load generator 'oracle': give one of memcaslap, memtier, paced",
        }.items():
            with pytest.raises(MeasurementError, match=said):
                find_loader(name)

    @given(
        *(st.integers(1, 200), st.integers(1, 16), st.integers(1, 4), st.booleans()),
        *(st.one_of(st.none(), st.floats(10, 1e6)), st.floats(0, 1), st.integers(1, 20)),
    )
    def test_a_demand_is_shared_whole(self, connections, threads, servers, one, asked, gets, keys):
        base = WORK._replace(get_share=gets, keys_per_request=keys, seconds=1.0)
        base = base._replace(connections=connections, threads=threads, asked_s=asked)
        shared = works(base, servers, load_generators.LOADERS["paced" if one else "memtier"](""))
        assert len(shared) % servers == 0
        assert sum(w.connections for w in shared) == max(connections, len(shared))
        assert all(1 <= w.threads <= w.connections for w in shared)
        if asked is None:
            assert {w.rate_s for w in shared} == {None}
        else:
            operations = sum(w.rate_s for w in shared) * base.operations_per_request
            assert operations == pytest.approx(asked)


class TestPercentiles:
    def counted(self, latencies):
        """Cells by memcaslap's own rule: the smallest power of two that is not below."""
        counts = Counter((value - 1).bit_length() for value in latencies)
        cells = power_of_two_cells(counts.items(), 1e-6)
        return Histogram(cells, min(latencies) * 1e-6, max(latencies) * 1e-6)

    @given(
        st.lists(st.integers(1, 2_000_000), min_size=1, max_size=300),
        st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]),
    )
    def test_the_true_one_is_between_the_ends_and_so_is_the_estimate(self, latencies, share):
        found = self.counted(latencies).percentile(share)
        rank = math.ceil(share * len(latencies) - 1e-9)
        truth, tiny = sorted(latencies)[rank - 1] * 1e-6, 1e-12
        assert found.least_s - tiny <= truth <= found.most_s + tiny
        assert found.least_s - tiny <= found.estimate_s <= found.most_s + tiny
        assert found.most_s <= 2 * found.least_s + 1e-6 + tiny

    def test_of_nothing_there_is_none(self):
        with pytest.raises(MeasurementError, match="no latency was counted"):
            Histogram(()).percentile(0.5)

    @given(*[st.lists(st.integers(1, 10_000), min_size=1, max_size=50)] * 2)
    def test_merged_counts_are_the_counts_of_all(self, one, other):
        both = self.counted([*one, *other])
        assert merge_histograms([self.counted(one), self.counted(other)]) == both
        assert merge_histograms([self.counted(other), self.counted(one)]) == both


class TestSides:
    def sides(self, cores, threads=1, **options):
        cpus = (tuple(range(core, cores * threads, cores)) for core in range(cores))
        made = tuple(PhysicalCore(of, of[0] // 4, 0) for of in cpus)
        return load_sweep.sides(load_sweep.MemcachedOptions(**options), Topology(made))

    def test_by_default_each_has_half_of_the_cores(self):
        for cores, threads, server, client in (
            (8, 1, (0, 1, 2, 3), (4, 5, 6, 7)),
            (2, 1, (0,), (1,)),
            (1, 1, (0,), (0,)),
            # Second threads of a core are no client's.
            (4, 2, (0, 1, 4, 5), (2, 3)),
        ):
            found = self.sides(cores, threads)
            assert (found.server_cpus, found.client_cpus) == (server, client)
            assert found.shared == (server == client)
            for count in (1, 2, 16):
                placement = found.server_placement(count)
                assert placement.cpus == server[: min(count, max(1, cores // 2))]
                assert placement.cores == len(placement.cpus)

    def test_named_cpus(self):
        found = self.sides(8, server_cpus=(1, 5), client_cpus=(7,))
        assert (found.server_cpus, found.client_cpus) == ((1, 5), (7,))
        assert found.server_placement(2).cores == 2
        assert self.sides(3, client_cpus=(0,)).server_cpus == (1, 2)


class TestOptions:
    def test_what_cannot_be_asked(self):
        for options, said in (
            ({"object_bytes": (0,)}, "object of 0 B: there may be 1 to 1048576 B"),
            ({"key_bytes": 300}, "key of 300 B: there may be 11 to 250 B"),
            ({"threads": (0,)}, "must be 1 or more"),
            ({"get_share": 1.5}, "a share of gets of 1.5"),
            ({"loads": (0.0,)}, "a load of 0: give shares"),
            ({"rates": (-5.0,)}, "above 0"),
            ({"servers": ("a:1",), "threads": (2,)}, "of named servers"),
        ):
            with pytest.raises(MeasurementError, match=said):
                load_sweep.MemcachedOptions(**options).check()

    def test_set_ups_are_the_product(self):
        known = {"threads": (1, 2), "partitions": (1, 2), "object_bytes": (64, 1024)}
        options = load_sweep.MemcachedOptions(**known)
        assert len({s.text() for s in load_sweep.setups(options, ())}) == 8
        assert len(load_sweep.setups(options, (1e9, 2e9))) == 16
        assert load_sweep.workload_name(0.0, 1, 1) == "memcached set"


def run(rate, connections=16, cpu=0.5, client=0.5, **more):
    """Row of a full load at four threads, half of the CPUs busy."""
    row = {"freq_hz": 2e9, "threads": 4, "partitions": 1, "data_bytes": 64, "get_share": 1.0}
    row |= {"keys_per_request": 1, "connections": connections, "throughput_ops_s": rate}
    row |= {"throughput_noise": 0.005, "server_cpu_share": cpu, "client_cpu_share": client}
    return row | more


def more_client(rate, **more):
    return run(rate, connections=32, **more)


FLAT, NOISY = [more_client(1e5)], {"throughput_noise": 0.08}
SPLIT = run(1.6e5, partitions=4)
STEPS = [*FLAT, more_client(1.6e5, partitions=4)]


class TestVerdicts:
    def test_of_the_first_row(self):
        for rows, steps, client_limited, limited_by in (
            ([run(1e5)], [more_client(1.2e5)], True, "client"),
            # A rise within noise is none, and repeats tell how much runs waver.
            ([run(1e5)], [more_client(1.02e5)], False, "unknown"),
            ([run(1e5, **NOISY)], [more_client(1.2e5, **NOISY)], False, "unknown"),
            ([run(1e5), run(0.8e5), run(1.2e5)], [more_client(1.15e5)], False, "unknown"),
            ([run(1e5), run(0.99e5), run(1.01e5)], [more_client(1.15e5)], True, "client"),
            # Without CPU left, a client limits even if more connections do not help.
            ([run(1e5, client=0.99, cpu=0.6)], FLAT, True, "client"),
            ([run(1e5, client=0.99, cpu=0.97)], FLAT, False, "cpu"),
            ([run(1e5, cpu=0.96)], FLAT, False, "cpu"),
            ([run(1e5, line_share=0.94)], FLAT, False, "network"),
            # A lock is CPU to spare and a split that helps; known only if more client does not.
            ([run(1e5), SPLIT], STEPS, False, "lock"),
            ([run(1e5), SPLIT], [], None, "unknown"),
            ([run(1e5), run(1.01e5, partitions=4)], FLAT, False, "unknown"),
            ([run(1e5, cpu=0.95), SPLIT], STEPS, False, "cpu"),
            # Other threads are no split.
            ([run(1e5), run(1.6e5, partitions=4, threads=8)], FLAT, False, "unknown"),
        ):
            row = judge_runs(rows, steps)[0]
            assert (row.get("client_limited"), row["limited_by"]) == (client_limited, limited_by)
        row = judge_runs([run(1e5)], [more_client(1.2e5)])[0]
        assert row["limit_evidence"] == "32 connections instead of 16 reached +20%"
        assert row["client_step_ops_s"] == 1.2e5

    def test_other_programs_on_the_host(self):
        kinds = ("nice_s", "irq_s", "softirq_s", "steal_s", "iowait_s")
        host = {**dict.fromkeys(kinds, 0.0), "user_s": 2.0, "window_s": 2.0}
        for who in ("server", "client"):
            host |= {f"{who}_user_s": 0.3, f"{who}_system_s": 0.7}
        idle = judge_runs([run(1e5, **host, system_s=0.0, idle_s=2.0)])[0]
        busy = judge_runs([run(1e5, **host, system_s=2.0, idle_s=0.0)])[0]
        assert busy["limited_by"] == "others"
        assert busy["limit_evidence"] == "other programs took 1 of the host's 2 CPUs: stop them"
        assert idle["limited_by"] == "unknown"

    def test_rates(self):
        reached = run(5.0e4, asked_ops_s=5.05e4)
        short = run(6e4, asked_ops_s=9e4, client=1.0)
        over = run(1e5, asked_ops_s=1.5e5, cpu=0.99)
        found = judge_runs([run(1e5), run(1.02e5), reached, short, over])
        said = [(row["client_limited"], row["limited_by"]) for row in found[2:]]
        assert said == [(False, "rate"), (True, "client"), (False, "cpu")]
        assert [row["load"] for row in found[:3]] == pytest.approx([1.0, 1.0, 5.0e4 / 1.01e5])

    def test_of_several_connections_the_best_is_the_full_load(self):
        found = judge_runs([run(4e4, connections=1), run(1e5), run(1e5, connections=4, cpu=0.9)])
        assert ["load" in row for row in found] == [False, True, False]
        assert found[0]["client_limited"] is True

    @given(st.randoms(use_true_random=False))
    def test_the_order_of_rows_says_nothing(self, source):
        rows = [
            *(run(rate, repeat=n) for n, rate in enumerate((0.98e5, 1e5, 1.01e5))),
            *(run(2 * rate, partitions=2, repeat=0) for rate in (1e5, 1.1e5)),
            run(5e4, asked_ops_s=5e4),
        ]
        steps = [more_client(1e5), more_client(2.1e5, partitions=2)]
        plain = {json.dumps(row, sort_keys=True) for row in judge_runs(rows, steps)}
        source.shuffle(rows)
        assert {json.dumps(row, sort_keys=True) for row in judge_runs(rows, steps)} == plain
