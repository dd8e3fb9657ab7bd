"""Memcached: real servers and load generators, what they print, and what limits them."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measurements.errors import MeasurementError
from measurements.placement import Core, Topology
from measurements.workloads.client_processes import Client
from measurements.workloads.memcached import memcaslap, memtier, paced
from measurements.workloads.memcached.link import line_rate, link_to
from measurements.workloads.memcached.load import Demand, works
from measurements.workloads.memcached.loaders import Work, find_loader
from measurements.workloads.memcached.options import (
    MemcachedOptions,
    mean_operations,
    setups,
    sides,
    workload_name,
)
from measurements.workloads.memcached.protocol import Address, Control
from measurements.workloads.memcached.servers import Servers, free_ports, needed_memory
from measurements.workloads.memcached.verdicts import judged
from measurements.workloads.reaper import Reaper

WORK = Work(
    get_share=1.0,
    keys_per_request=1,
    keys=2000,
    key_bytes=30,
    value_bytes=64,
    connections=8,
    threads=1,
    rate_s=None,
    seconds=1.0,
    seed=1,
)
CPUS = tuple(sorted(os.sched_getaffinity(0)))


@pytest.fixture
def reaper():
    with Reaper() as reaper:
        yield reaper


@pytest.fixture
def start(reaper, tmp_path):
    """Start private servers that are stopped after the test."""
    running = []

    def start_(**options):
        asked = {"partitions": 1, "threads": 1, "memory_bytes": 128 << 20, "connections": 64}
        options = {**asked, "cpus": CPUS[:1], "reaper": reaper, **options}
        running.append(Servers.start(**options, log=tmp_path / "memcached.txt"))
        return running[-1]

    yield start_
    for servers in running:
        servers.stop()


def drive(servers, loader, work, reaper, scratch):
    """Run one client process against one server to its end."""
    command = loader.command(servers.addresses[0], work, scratch, 0)
    client = Client([command], CPUS[-1:], reaper)
    client.start(scratch / "client.txt")
    client.wait(30)
    return client.outputs, loader.report(client.outputs, scratch, [work])


class TestServers:
    def test_they_answer_count_and_end(self, start):
        servers = start(partitions=2, threads=3)
        assert servers.threads == 6
        assert servers.version[0].isdecimal()
        assert len({address.port for address in servers.addresses}) == 2
        before = servers.counts()
        for control in servers.controls:
            control.fill(lambda n: f"key-{n:026d}", 1000, 64)
        after = servers.counts()
        assert after.sets - before.sets == 2000
        assert after.operations - before.operations == 2000
        pids = servers.pids
        servers.stop()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)

    def test_they_run_where_they_are_told_to(self, start):
        servers = start(cpus=CPUS[-1:], threads=2)
        for task in Path(f"/proc/{servers.pids[0]}/task").iterdir():
            assert f"Cpus_allowed_list:\t{CPUS[-1]}\n" in (task / "status").read_text()

    def test_objects_that_do_not_fit_are_refused(self, start):
        servers = start(memory_bytes=64 << 20)
        with pytest.raises(
            MeasurementError, match=r"2000 objects of 65536 B do not fit: .*evicted"
        ):
            servers.controls[0].fill(lambda n: f"key-{n:026d}", 2000, 65536)

    @pytest.mark.parametrize("value_bytes", [64, 1024, 65536])
    def test_in_the_memory_that_is_computed_for_them_objects_fit(self, start, value_bytes):
        keys = (40 << 20) // value_bytes
        servers = start(memory_bytes=needed_memory(keys, 30, value_bytes))
        servers.controls[0].fill(lambda n: f"{n:030d}", keys, value_bytes)
        assert servers.counts().evictions == 0

    def test_one_that_is_not_there_is_an_error_of_one_line(self):
        address = Address("127.0.0.1", free_ports(1)[0])
        with pytest.raises(MeasurementError, match=rf"memcached at {address}: no connection: "):
            Servers.named([address])

    def test_what_is_no_memcached_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def answer():
                connection, _ = listener.accept()
                with connection:
                    connection.recv(100)
                    connection.sendall(b"ERROR what is that\r\n")

            thread = threading.Thread(target=answer)
            thread.start()
            control = Control(Address(*listener.getsockname()))
            with pytest.raises(MeasurementError, match="said ERROR what is that"):
                control.stats()
            control.close()
            thread.join()

    def test_without_the_program_it_says_what_to_install(self, reaper, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(MeasurementError, match="memcached is not there: apt install memcached"):
            Servers.start(
                partitions=1,
                threads=1,
                memory_bytes=1 << 26,
                connections=1,
                cpus=CPUS,
                reaper=reaper,
                log=tmp_path / "log",
            )

    @pytest.mark.parametrize(
        ("text", "address"),
        [
            ("10.0.0.7:11299", ("10.0.0.7", 11299)),
            ("cache7", ("cache7", 11211)),
            ("[::1]:11299", ("::1", 11299)),
            ("[::1]", ("::1", 11211)),
        ],
    )
    def test_addresses(self, text, address):
        assert Address.parse(text) == address

    @pytest.mark.parametrize("text", ["", ":11211", "a:b", "a:0", "a:70000"])
    def test_what_is_no_address(self, text):
        with pytest.raises(MeasurementError, match="is no address of a server: write HOST:PORT"):
            Address.parse(text)


# Printed by memcaslap 1.1.4 for two seconds of nine gets to one set on this kind of machine.
PRINTED = """servers: 127.0.0.1:11299
threads count: 1
\x1b[1;1H\x1b[2J
Get Statistics (58254 events)
   Min:        23
   Max:     15197
   Avg:       492
   Geo:    292.90
   Std:    932.71
   Log2 Dist:
       4:        0        3       42     3031
       8:    32795    13487     3528     2612
      12:     1755      918       83

Total Statistics (64736 events)
   Min:        23
   Max:     15199
   Avg:       493
   Geo:    293.55
   Std:    929.84
   Log2 Dist:
       4:        0        3       48     3361
       8:    36385    15009     3919     2927
      12:     1991      999       94

cmd_get: 58269
cmd_set: 6483

Run time: 2.0s Ops: 64752 TPS: 32373 Net_rate: 3.7M/s
"""


class TestMemcaslap:
    def test_what_it_printed_by_hand(self, tmp_path):
        file = tmp_path / "printed.txt"
        file.write_text(PRINTED)
        found = memcaslap.read_totals(file)
        assert found.histogram.requests == 64736
        assert found.mean_s == pytest.approx(493e-6)
        # 3 + 48 + 3361 are below half of 64736, with the 36385 of cell 8 they are above:
        # 128 to 256 µs. The 64089th request is the 446th of the 999 in cell 13.
        median, p99 = found.histogram.percentile(0.5), found.histogram.percentile(0.99)
        assert (median.least_s, median.most_s) == pytest.approx((128e-6, 256e-6))
        share = (64736 / 2 - 3412) / 36385
        assert median.estimate_s == pytest.approx(128e-6 * 2**share, rel=1e-9)
        assert (p99.least_s, p99.most_s) == pytest.approx((4096e-6, 8192e-6))
        assert p99.estimate_s == pytest.approx(4096e-6 * 2 ** (446 / 999), rel=1e-9)
        # The last cell ends at the longest latency and not at 16384 µs.
        assert found.histogram.percentile(1.0).estimate_s == pytest.approx(15199e-6)

    @pytest.mark.parametrize(
        ("cut", "said"),
        [
            (("      12:     1991", None), "its output is cut off"),
            (("Total Statistics", None), "no latencies of memcaslap"),
            (("servers", None), "it printed nothing"),
        ],
    )
    def test_what_is_not_whole(self, tmp_path, cut, said):
        file = tmp_path / "printed.txt"
        file.write_text(PRINTED.partition(cut[0])[0])
        with pytest.raises(MeasurementError, match=said):
            memcaslap.read_totals(file)

    def test_it_counts_what_the_server_does_but_for_the_requests_in_flight(
        self, start, reaper, tmp_path
    ):
        servers, loader = start(), find_loader("memcaslap").open(tmp_path)
        outputs, report = drive(servers, loader, WORK, reaper, tmp_path)
        counts = servers.counts()
        counted = memcaslap.read_totals(outputs[0]).histogram.requests
        assert 0 <= counts.gets - counted <= 2 * WORK.connections
        # The objects that it stores first are in the throughput that it prints, and not here.
        assert counts.sets == loader.held(WORK) == 8 * 1024
        assert counts.hits == counts.gets
        assert report.median.least_s <= report.median.estimate_s <= report.median.most_s
        assert "powers of two" in report.resolution

    @pytest.mark.parametrize(
        ("asked", "connections", "threads", "windows"),
        [((8, 1, 2000), 8, 1, 1), ((5, 2, 30_000), 6, 2, 5), ((1, 4, 10), 4, 4, 1)],
    )
    def test_its_numbers_are_multiples(self, tmp_path, asked, connections, threads, windows):
        loader = find_loader("memcaslap").open(tmp_path)
        work = WORK._replace(connections=asked[0], threads=asked[1], keys=asked[2])
        command = loader.command(Address("127.0.0.1", 1), work, tmp_path, 0)
        said = dict(itertools.pairwise(command))
        assert said["-c"] == str(connections)
        assert said["-T"] == str(threads)
        assert said["-w"] == f"{windows}k"
        assert loader.held(work) == connections * windows * 1024

    def test_work_that_it_cannot_do(self, tmp_path):
        loader, address = find_loader("memcaslap").open(tmp_path), Address("127.0.0.1", 1)
        with pytest.raises(MeasurementError, match="memcaslap makes keys of 16 to 250 B"):
            loader.command(address, WORK._replace(key_bytes=12), tmp_path, 0)
        with pytest.raises(MeasurementError, match="cannot keep to a rate: take --client paced"):
            loader.command(address, WORK._replace(rate_s=100.0), tmp_path, 0)


def memtier_json(count=1000, p50=0.3, p99=1.2, mean=0.4):
    """As its result_print_to_json writes it, of gets alone."""
    part = {"Count": count, "Ops/sec": 1.0, "Average Latency": mean, "Max Latency": 9.0}
    none = {"Count": 0, "Ops/sec": 0.0, "Average Latency": 0.0, "Max Latency": 0.0}
    percentiles = {"Percentile Latencies": {"p50.00": p50, "p99.00": p99}}
    wrong_mean = {"Average Latency": 77.0}
    return {
        "ALL STATS": {"Sets": none, "Gets": part, "Totals": {**part, **percentiles, **wrong_mean}}
    }


class TestMemtier:
    def test_its_report_by_hand(self, tmp_path):
        (tmp_path / "memtier-0.json").write_text(json.dumps(memtier_json()))
        (tmp_path / "memtier-1.json").write_text(json.dumps(memtier_json(3000, 0.5, 2.0, 0.8)))
        loader = memtier.Memtier("memtier_benchmark")
        report = loader.report([], tmp_path, [WORK, WORK])
        # (1000·0.4 + 3000·0.8)/4000 ms; a quarter and three quarters of the percentiles.
        assert report.mean_s == pytest.approx(0.7e-3)
        assert report.median == pytest.approx((0.45e-3, 0.3e-3, 0.5e-3))
        assert report.p99 == pytest.approx((1.8e-3, 1.2e-3, 2.0e-3))
        assert report.max_s == pytest.approx(9e-3)

    @pytest.mark.parametrize("text", ["", "{}", '{"ALL STATS": {}}', "[]"])
    def test_what_is_no_report(self, tmp_path, text):
        (tmp_path / "memtier-0.json").write_text(text)
        with pytest.raises(MeasurementError, match="no report of memtier_benchmark"):
            memtier.Memtier("m").report([], tmp_path, [WORK])

    def test_its_command(self, tmp_path):
        work = WORK._replace(
            get_share=0.9, threads=2, rate_s=4000.0, keys_per_request=8, seconds=2.25
        )
        loader = memtier.Memtier("memtier_benchmark")
        command = loader.command(Address("cache7", 11211), work, tmp_path, 3)
        # 4000 a second over 2 threads of 4 connections are 500 each.
        for said in (
            *("--protocol=memcache_text", "--ratio=1:9", "--test-time=3", "--rate-limiting=500"),
            *("--multi-key-get=8", "--key-minimum=1000000000", "--key-maximum=1000001999"),
            f"--json-out-file={tmp_path}/memtier-3.json",
        ):
            assert said in command
        assert command[command.index("-c") + 1] == "4"
        keys = [loader.key(n, work) for n in (0, 1999)]
        assert keys == ["k" * 20 + "1000000000", "k" * 20 + "1000001999"]


class TestPaced:
    def test_every_request_is_the_servers_too(self, start, reaper, tmp_path):
        servers, loader = start(), find_loader("paced").open(tmp_path)
        work = WORK._replace(rate_s=2000.0, get_share=0.75, keys_per_request=3)
        servers.controls[0].fill(lambda n: loader.key(n, work), work.keys, work.value_bytes)
        before = servers.counts()
        outputs, report = drive(servers, loader, work, reaper, tmp_path)
        after = servers.counts()
        figures = paced.read_totals(outputs[0]).figures
        gets, sets = after.gets - before.gets, after.sets - before.sets
        assert figures["requests"] == gets / 3 + sets
        assert figures["stored"] == sets
        assert figures["hits"] == gets == after.hits - before.hits
        assert figures["misses"] == figures["failed"] == figures["unanswered"] == 0
        # A Poisson process of 2000 a second: five standard deviations are 224.
        assert abs(figures["requests"] - 2000) < 224
        assert abs(gets / 3 / figures["requests"] - 0.75) < 0.06
        assert report.failed == 0

    def test_objects_that_are_not_there_are_misses(self, start, reaper, tmp_path):
        servers, loader = start(), find_loader("paced").open(tmp_path)
        work = WORK._replace(rate_s=500.0, seconds=0.5)
        outputs, _ = drive(servers, loader, work, reaper, tmp_path)
        figures = paced.read_totals(outputs[0]).figures
        assert figures["misses"] == figures["requests"] > 100
        assert figures["hits"] == 0

    def test_a_server_that_stalls_is_charged_for_all_that_had_to_wait(
        self, start, reaper, tmp_path
    ):
        """A closed loop would count a stall once for each connection."""
        servers, loader = start(), find_loader("paced").open(tmp_path)
        work = WORK._replace(rate_s=2000.0, seconds=1.5)
        stall_s = 0.5

        def stall():
            time.sleep(0.4)
            os.kill(servers.pids[0], signal.SIGSTOP)
            time.sleep(stall_s)
            os.kill(servers.pids[0], signal.SIGCONT)

        thread = threading.Thread(target=stall)
        thread.start()
        _, report = drive(servers, loader, work, reaper, tmp_path)
        thread.join()
        # A third of the requests was due while the server stood still: the last percent of them
        # all waited nearly as long as the stall.
        assert report.p99.estimate_s > 0.8 * stall_s
        assert report.max_s >= 0.9 * stall_s
        assert report.mean_s > 0.1 * stall_s / 2

    def test_as_fast_as_it_is_answered_it_loads_the_server(self, start, reaper, tmp_path):
        servers, loader = start(), find_loader("paced").open(tmp_path)
        outputs, report = drive(servers, loader, WORK, reaper, tmp_path)
        totals = paced.read_totals(outputs[0])
        assert totals.figures["requests"] == servers.counts().gets > 1000
        assert report.late_p99_s is None
        # Little's law: requests in flight are throughput times latency.
        in_flight = totals.figures["requests"] / totals.figures["elapsed_s"] * report.mean_s
        assert in_flight == pytest.approx(WORK.connections, rel=0.25)

    @pytest.mark.parametrize("value_bytes", [1, 65536])
    def test_sizes_come_through_whole(self, start, reaper, tmp_path, value_bytes):
        servers, loader = start(memory_bytes=256 << 20), find_loader("paced").open(tmp_path)
        work = WORK._replace(value_bytes=value_bytes, keys=100, get_share=0.5, seconds=0.5)
        servers.controls[0].fill(lambda n: loader.key(n, work), work.keys, work.value_bytes)
        before = servers.counts()
        outputs, _ = drive(servers, loader, work, reaper, tmp_path)
        after = servers.counts()
        figures = paced.read_totals(outputs[0]).figures
        assert figures["hits"] == after.hits - before.hits > 0
        sent = after.written_bytes - before.written_bytes
        assert sent >= figures["hits"] * value_bytes

    def test_a_server_that_goes_away_is_an_error(self, start, reaper, tmp_path):
        servers, loader = start(), find_loader("paced").open(tmp_path)
        work = WORK._replace(rate_s=1000.0, seconds=20.0)
        client = Client(
            [loader.command(servers.addresses[0], work, tmp_path, 0)], CPUS[-1:], reaper
        )
        client.start(tmp_path / "client.txt")
        time.sleep(0.3)
        servers.processes[0].kill()
        with pytest.raises(MeasurementError, match="ended with exit code 1: the server closed"):
            client.wait(10)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "had no answer to any request"),
            ("127.0.0.1:1: no connection: refused\n", "the client failed: 127.0.0.1:1"),
        ],
    )
    def test_what_is_no_report(self, tmp_path, text, said):
        file = tmp_path / "client.txt"
        file.write_text(text)
        with pytest.raises(MeasurementError, match=said):
            paced.read_totals(file)


class TestLoaders:
    def test_the_first_that_is_there_is_taken(self, tmp_path, monkeypatch):
        assert find_loader(None).open(tmp_path).name == "memcaslap"
        (tmp_path / "memtier_benchmark").write_text("#!/bin/sh\n")
        (tmp_path / "memtier_benchmark").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert find_loader(None).open(tmp_path).name == "memtier"

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            (None, r"no load generator is there: apt install libmemcached-tools .*--client paced"),
            ("memcaslap", "memcaslap is not there: apt install libmemcached-tools"),
            ("memtier", "memtier_benchmark is not there: apt install memtier-benchmark"),
            ("paced", "no C compiler on this host: apt install gcc"),
            ("oracle", "no load generator 'oracle': there are memcaslap, memtier, paced"),
        ],
    )
    def test_without_them_it_says_what_to_install(self, tmp_path, monkeypatch, name, said):
        monkeypatch.setenv("PATH", str(tmp_path / "none"))
        with pytest.raises(MeasurementError, match=said):
            find_loader(name)

    @given(
        st.integers(1, 200),
        st.integers(1, 16),
        st.integers(1, 4),
        st.booleans(),
        st.one_of(st.none(), st.floats(10, 1e6)),
        st.floats(0, 1),
        st.integers(1, 20),
    )
    def test_a_demand_is_shared_whole(
        self, connections, threads, partitions, one_thread, asked, gets, keys
    ):
        base = WORK._replace(get_share=gets, keys_per_request=keys)
        demand = Demand(connections, threads, asked, 1.0)
        shared = works(base, demand, partitions, one_thread=one_thread)
        assert len(shared) % partitions == 0
        assert sum(w.connections for w in shared) == max(connections, len(shared))
        assert all(1 <= w.threads <= w.connections for w in shared)
        if asked is None:
            assert {w.rate_s for w in shared} == {None}
        else:
            operations = sum(w.rate_s for w in shared) * mean_operations(gets, keys)
            assert operations == pytest.approx(asked)


def topology(cores, threads=1):
    return Topology(
        tuple(Core(tuple(range(c, cores * threads, cores)), c // 4, 0) for c in range(cores))
    )


class TestSides:
    def test_by_default_each_has_half_of_the_cores(self):
        found = sides(MemcachedOptions(), topology(8))
        assert found.server_cpus == (0, 1, 2, 3)
        assert found.client_cpus == (4, 5, 6, 7)
        assert not found.shared
        assert found.server_placement(2).cpus == (0, 1)
        assert found.server_placement(16).cpus == (0, 1, 2, 3)
        assert found.server_placement(16).cores == 4

    def test_two_cores_are_one_each_and_one_is_shared(self):
        two, one = (sides(MemcachedOptions(), topology(n)) for n in (2, 1))
        assert (two.server_cpus, two.client_cpus, two.shared) == ((0,), (1,), False)
        assert (one.server_cpus, one.client_cpus, one.shared) == ((0,), (0,), True)

    def test_second_threads_of_a_core_are_nobodys(self):
        found = sides(MemcachedOptions(), topology(4, threads=2))
        assert found.client_cpus == (2, 3)
        assert found.server_placement(2).cpus == (0, 1)

    def test_named_cpus(self):
        options = MemcachedOptions(server_cpus=(1, 5), client_cpus=(7,))
        found = sides(options, topology(8))
        assert (found.server_cpus, found.client_cpus) == ((1, 5), (7,))
        assert found.server_placement(2).cores == 2
        assert sides(MemcachedOptions(client_cpus=(0,)), topology(3)).server_cpus == (1, 2)
        with pytest.raises(MeasurementError, match="CPU 9 may not be used here: there are 0, 1"):
            sides(MemcachedOptions(client_cpus=(9,)), topology(2))


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"object_bytes": (0,)}, "object of 0 B: there may be 1 to 1048576 B"),
            ({"key_bytes": 300}, "key of 300 B: there may be 11 to 250 B"),
            ({"threads": (0,)}, "are 1 or more"),
            ({"get_share": 1.5}, "a share of gets of 1.5"),
            ({"loads": (0.0,)}, "a load of 0: give shares"),
            ({"rates": (-5.0,)}, "above 0"),
            ({"servers": ("a:1",), "threads": (2,)}, "of named servers are what they are"),
        ],
    )
    def test_what_cannot_be_asked(self, options, said):
        with pytest.raises(MeasurementError, match=said):
            MemcachedOptions(**options).check()

    def test_set_ups_are_the_product(self):
        options = MemcachedOptions(threads=(1, 2), partitions=(1, 2), object_bytes=(64, 1024))
        assert len({s.text() for s in setups(options, ())}) == 8
        assert len(setups(options, (1e9, 2e9))) == 16

    @pytest.mark.parametrize(
        ("asked", "name"),
        [
            ((1.0, 1, 1), "memcached get"),
            ((0.0, 1, 1), "memcached set"),
            ((0.9, 8, 2), "memcached 90:10 8 keys on 2 servers"),
        ],
    )
    def test_names(self, asked, name):
        assert workload_name(*asked) == name


class TestLink:
    def test_loopback_has_no_line_rate(self):
        link = link_to(Address("127.0.0.1", 11211))
        assert (link.interface, link.bits_s, link.is_loopback) == ("lo", None, True)
        received, sent = link.moved()
        assert received == sent

    def test_the_driver_says_the_line_rate(self, tmp_path):
        folder = tmp_path / "class/net/eth0"
        folder.mkdir(parents=True)
        (folder / "speed").write_text("10000\n")
        assert line_rate("eth0", tmp_path) == 1e10
        (folder / "speed").write_text("-1\n")
        assert line_rate("eth0", tmp_path) is None
        assert line_rate("eth1", tmp_path) is None

    def test_a_name_that_is_none(self, monkeypatch):
        def refuse(*_, **__):
            raise socket.gaierror(-2, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        assert link_to(Address("no-such-host.invalid", 1)) == (None, None, False)


def run(rate, *, connections=16, cpu=0.5, client=0.5, **more):
    row = {
        "freq_hz": 2e9,
        "threads": 4,
        "partitions": 1,
        "data_bytes": 64,
        "get_share": 1.0,
        "keys_per_request": 1,
        "connections": connections,
        "throughput_ops_s": rate,
        "throughput_noise": 0.005,
        "server_cpu_share": cpu,
        "client_cpu_share": client,
    }
    return {**row, **more}


def verdict(rows, steps=()):
    row = judged(rows, steps)[0]
    return row.get("client_limited"), row["limited_by"]


class TestVerdicts:
    def test_more_client_raises_it(self):
        [row] = judged([run(1e5)], [run(1.2e5, connections=32)])
        assert row["client_limited"] is True
        assert row["limited_by"] == "client"
        assert row["limit_evidence"] == "32 connections in place of 16 reached +20%"
        assert row["client_step_ops_s"] == 1.2e5

    def test_a_rise_within_noise_is_none(self):
        noisy = {"throughput_noise": 0.08}
        assert verdict([run(1e5)], [run(1.02e5, connections=32)])[0] is False
        assert verdict([run(1e5, **noisy)], [run(1.2e5, connections=32, **noisy)])[0] is False
        assert verdict([run(1e5)], [run(1.2e5, connections=32)])[0] is True

    def test_repeats_tell_how_much_runs_waver(self):
        apart = [run(rate) for rate in (0.8e5, 1.0e5, 1.2e5)]
        alike = [run(rate) for rate in (0.99e5, 1.0e5, 1.01e5)]
        step = [run(1.15e5, connections=32)]
        assert verdict(apart, step)[0] is False
        assert verdict(alike, step)[0] is True

    def test_a_client_without_cpu_left_limits_even_if_more_connections_do_not_help(self):
        rows, step = [run(1e5, client=0.99, cpu=0.6)], [run(1e5, connections=32)]
        assert verdict(rows, step) == (True, "client")
        assert verdict([run(1e5, client=0.99, cpu=0.97)], step) == (False, "cpu")

    def test_cpu(self):
        assert verdict([run(1e5, cpu=0.96)], [run(1e5, connections=32)]) == (False, "cpu")

    def test_line_rate(self):
        rows = [run(1e5, line_share=0.94)]
        assert verdict(rows, [run(1e5, connections=32)]) == (False, "network")

    def test_a_lock_is_cpu_to_spare_and_a_split_that_helps(self):
        split = run(1.6e5, partitions=4)
        steps = [run(1e5, connections=32), run(1.6e5, connections=32, partitions=4)]
        assert verdict([run(1e5), split], steps) == (False, "lock")
        # Without the step it is not known to be flat; without a rise there is no sign of a lock.
        assert verdict([run(1e5), split]) == (None, "unknown")
        assert verdict([run(1e5), run(1.01e5, partitions=4)], steps[:1]) == (False, "unknown")
        assert verdict([run(1e5, cpu=0.95), split], steps) == (False, "cpu")

    def test_other_threads_are_no_split(self):
        other = run(1.6e5, partitions=4, threads=8)
        assert verdict([run(1e5), other], [run(1e5, connections=32)]) == (False, "unknown")

    def test_other_programs_on_the_host(self):
        host = {"user_s": 2.0, "nice_s": 0.0, "system_s": 2.0, "irq_s": 0.0, "softirq_s": 0.0}
        host |= {"steal_s": 0.0, "idle_s": 0.0, "iowait_s": 0.0, "window_s": 2.0}
        own = {"server_user_s": 0.3, "server_system_s": 0.7}
        own |= {"client_user_s": 0.3, "client_system_s": 0.7}
        [row] = judged([run(1e5, **host, **own)])
        assert row["limited_by"] == "others"
        assert row["limit_evidence"] == "other programs took 1 of the host's 2 CPUs: stop them"
        idle = host | {"system_s": 0.0, "idle_s": 2.0}
        assert judged([run(1e5, **idle, **own)])[0]["limited_by"] == "unknown"

    def test_rates(self):
        full = [run(1e5), run(1.02e5)]
        reached = run(5.0e4, asked_ops_s=5.05e4)
        short = run(6e4, asked_ops_s=9e4, cpu=0.5, client=1.0)
        over = run(1e5, asked_ops_s=1.5e5, cpu=0.99)
        found = judged([*full, reached, short, over])
        said = [(row["client_limited"], row["limited_by"]) for row in found[2:]]
        assert said == [(False, "rate"), (True, "client"), (False, "cpu")]
        assert found[2]["load"] == pytest.approx(5.0e4 / 1.01e5)
        assert [row["load"] for row in found[:2]] == [1.0, 1.0]

    def test_of_several_connections_the_best_is_the_full_load(self):
        found = judged([run(4e4, connections=1), run(1e5), run(1e5, connections=4, cpu=0.9)])
        assert ["load" in row for row in found] == [False, True, False]
        assert found[0]["client_limited"] is True

    @given(st.randoms(use_true_random=False))
    def test_the_order_of_rows_says_nothing(self, source):
        rows = [
            *(run(rate, repeat=n) for n, rate in enumerate((0.98e5, 1e5, 1.01e5))),
            *(run(2 * rate, partitions=2, repeat=0) for rate in (1e5, 1.1e5)),
            run(5e4, asked_ops_s=5e4),
        ]
        steps = [run(1e5, connections=32), run(2.1e5, connections=32, partitions=2)]
        plain = {json.dumps(row, sort_keys=True) for row in judged(rows, steps)}
        source.shuffle(rows)
        assert {json.dumps(row, sort_keys=True) for row in judged(rows, steps)} == plain


def test_free_ports_are_free_and_different():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    with socket.create_server(("127.0.0.1", random.Random(1).choice(ports))):
        pass
