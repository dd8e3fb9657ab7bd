"""Hadoop: real jobs, what they are made of, and what their histories and logs say of them."""

import csv
import hashlib
import socket
import subprocess
import sys
from collections import Counter as Tally
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import numpy as np
import psutil
import pytest
from hypothesis import given, settings as tried, strategies as st
from peers.hadoop import JARS, JOB, attempt, counters, event, history, maven, program
from peers.waiting import processes

from measurements.errors import MeasurementError
from measurements.host.cpu_placement import execute
from measurements.processes import private_network
from measurements.processes.cleanup_process import MARK, CleanupProcess
from measurements.workloads.hadoop import engines, history as histories, install, jobs
from measurements.workloads.hadoop.cluster import cluster_row, read_nodes
from measurements.workloads.hadoop.engines import Local, OneMachine, OwnHadoop
from measurements.workloads.hadoop.history import Counter
from measurements.workloads.hadoop.job_sweep import job_columns, node_columns, write_tasks
from measurements.workloads.hadoop.jobs import HadoopOptions, Setting, job_properties

MB = 1_000_000
DATA = Path(__file__).parent / "data" / "hadoop"
with_hadoop = pytest.mark.peer("hadoop")


@pytest.fixture
def own(tmp_path, monkeypatch):
    # Jobs as short as these end before better machine code is worth its making.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    with CleanupProcess() as reaper:
        known = {"java": install.find_java(), "jars": install.set_up(), "reaper": reaper}
        yield OwnHadoop(options=HadoopOptions(), scratch=reaper.folder(tmp_path), **known)


def run_job(engine, setting, folder):
    engine.prepare([setting])
    output = folder / "job.txt"
    command = engine.command(setting)
    engine.starts(output)
    made = execute([command], output=output, environment=engine.environment())
    assert made.exit_code == 0, output.read_text()[-3000:]
    return engine.job(setting, output)


def parts(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.glob("part-*")))


@with_hadoop
class TestLocalJobs:
    def test_terasort_sorts_what_teragen_made(self, own, tmp_path):
        job = run_job(Local(own), Setting("terasort", 4 * MB, 2, 2, None, "snappy"), tmp_path)
        made, found = (
            np.frombuffer(parts(folder), dtype="S100")
            for folder in (own.scratch / f"rows-{4 * MB}", own.scratch / "output")
        )
        assert len(made) == 4 * MB // 100
        assert (found == np.sort(made)).all()
        # A row, and the two lengths before it in the maps' output.
        assert job_columns(job)["map_output_bytes"] == pytest.approx(102 * len(made))
        assert not list(own.scratch.glob("work/*.lst")), "a link is left behind"

    def test_sort_keeps_every_line(self, own, tmp_path):
        job = run_job(Local(own), Setting("sort", 2 * MB, 1, 1, None, None), tmp_path)
        given = (own.scratch / f"text-{2 * MB}").read_bytes().splitlines()
        found = [line.rstrip(b"\t") for line in parts(own.scratch / "output").splitlines()]
        assert found == sorted(given)
        assert (job.status, job_columns(job)["map_tasks"]) == ("SUCCEEDED", 1)
        assert job_columns(job)["gc_s"] >= 0


@with_hadoop
@pytest.mark.slow
class TestOneMachineCluster:
    def test_wordcount_with_its_history_and_nobody_else_can_connect(self, own, tmp_path):
        ours = listening()
        setting, engine = (Setting("wordcount", 16 * MB, 1, 1, 2**29, "snappy"), OneMachine(own))
        job = run_job(engine, setting, tmp_path)
        columns = job_columns(job)
        assert (job.status, columns["map_tasks"], columns["reduce_tasks"]) == ("SUCCEEDED", 1, 1)
        assert columns["data_local_share"] == 1.0
        parts_s = columns["map_cpu_s"] + columns["reduce_cpu_s"]
        assert columns["task_cpu_s"] == pytest.approx(parts_s)
        assert columns["dfs_read_bytes"] == pytest.approx(16 * MB, rel=0.001)
        assert columns["map_phase_s"] + columns["reduce_phase_s"] < columns["job_s"]
        assert list(node_columns(job)) == ["localhost"]
        # Only what listens on this host's own addresses could be reached from elsewhere.
        assert listening() <= ours
        mark = own.environment()[MARK]
        assert any("MiniHadoopClusterManager" in line for line in processes(mark, "environ"))
        engine.close()
        own.reaper.close()
        assert processes(mark, "environ") == []
        assert not own.scratch.exists()

    def test_more_memory_than_there_is_is_refused(self, own):
        with pytest.raises(MeasurementError, match="--map-slots"):
            OneMachine(own).prepare([Setting("wordcount", MB, 4096, 4096, 2**30, None)])


def listening():
    """Ports on which somebody listens, as this process sees them."""
    return {c.laddr.port for c in psutil.net_connections("tcp") if c.status == "LISTEN"}


@pytest.mark.peer("measure")
class TestOwnNetwork:
    def test_what_listens_inside_is_reached_inside_only(self):
        server = "import socket, time; s = socket.create_server(('0.0.0.0', 0))\n"
        server += "print(s.getsockname()[1], flush=True); time.sleep(600)"
        inside = [*private_network.inside_new(), sys.executable, "-c", server]
        with subprocess.Popen(inside, stdout=subprocess.PIPE, text=True) as process:
            try:
                port = int(process.stdout.readline())
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port), timeout=5)
                client = f"import socket; socket.create_connection(('127.0.0.1', {port})); print(1)"
                joined = [*private_network.inside_of(process.pid), sys.executable, "-c", client]
                assert subprocess.check_output(joined) == b"1\n"
            finally:
                process.kill()

    def test_a_plain_user_may_have_one_too(self):
        as_other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        devices = [*as_other, *private_network.inside_new(), "cat", "/proc/net/dev"]
        said = subprocess.check_output(devices, text=True).splitlines()[2:]
        assert [line.split(":")[0].strip() for line in said] == ["lo"]


def test_where_the_kernel_gives_no_network_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(private_network, "refusal", lambda: "the kernel allows no network: no")
    options = HadoopOptions()
    own = OwnHadoop(options=options, java=None, jars=tmp_path, reaper=None, scratch=tmp_path)
    with pytest.raises(MeasurementError, match="--open-ports"):
        OneMachine(own)
    OneMachine(own, open_ports=True)


class TestText:
    @tried(max_examples=max(4, tried.default.max_examples // 5))
    @given(size=st.integers(0, 40_000), seed=st.integers(0, 3))
    def test_any_size_is_exact_and_a_line_ends_it(self, tmp_path_factory, size, seed):
        path = tmp_path_factory.getbasetemp() / "text"
        # Blocks of a few kilobytes, so that some texts have several.
        with mock.patch.object(jobs, "_BLOCK_WORDS", 1 << 10):
            jobs.write_text(path, size, seed=seed)
        content = path.read_bytes()
        assert len(content) == size
        assert content[-1:] == b"\n"[:size]

    def test_the_same_seed_gives_the_same_text_everywhere(self, tmp_path):
        digest = "00aa927c8830d30996a9e5c89fa57495a86b97a722fcead61c66838afdb6c666"
        for seed in (0, 1):
            jobs.write_text(tmp_path / "text", MB, seed=seed)
            found = hashlib.sha256((tmp_path / "text").read_bytes()).hexdigest()
            assert (found == digest) == (seed == 0)

    def test_smaller_texts_are_the_beginning_of_the_largest(self, tmp_path):
        paths = jobs.make_texts(tmp_path, [700_000, 30_000], seed=5)
        alone = tmp_path / "alone"
        jobs.write_text(alone, 30_000, seed=5)
        assert paths[30_000].read_bytes() == alone.read_bytes()
        assert paths[700_000].read_bytes()[:29_999] == alone.read_bytes()[:-1]

    def test_words_are_as_uneven_as_zipfs_law_says(self, tmp_path):
        jobs.write_text(tmp_path / "text", 2 * MB)
        words = (tmp_path / "text").read_bytes().split()
        ranked = [n for _, n in Tally(words).most_common()]
        assert len(ranked) <= 50_000
        chance = 1 / (np.arange(50_000) + 3.7)
        expected = len(words) * chance / chance.sum()
        for rank in (1, 2, 10, 100, 1000):
            margin = 5 * expected[rank - 1] ** 0.5
            assert ranked[rank - 1] == pytest.approx(expected[rank - 1], abs=margin)
        assert 4 < len(b"".join(words)) / len(words) < 6


class TestJobs:
    def test_all_combinations_once_with_whole_rows(self):
        swept = {"data_bytes": (1050, 1099), "map_slots": (1,), "reduce_slots": (1, 2)}
        workloads = ("wordcount", "terasort")
        found = HadoopOptions(workloads=workloads, compressions=("none",), **swept).settings()
        assert len(found) == 6
        assert {s.data_bytes for s in found if s.workload == "terasort"} == {1000}
        assert {s.data_bytes for s in found if s.workload == "wordcount"} == {1050, 1099}

    def test_local_slots_are_threads_and_cluster_slots_are_limits(self):
        setting = Setting("wordcount", MB, 2, 3, 2**30, "snappy")
        local = job_properties(setting, HadoopOptions(), local=True)
        cluster = job_properties(setting, HadoopOptions(reduces=5), local=False)
        assert {"-Dmapreduce.local.map.tasks.maximum=2", "-Dmapreduce.job.reduces=3"} <= set(local)
        assert not any("memory" in option for option in local)
        assert {
            "-Dmapreduce.job.running.reduce.limit=3",
            "-Dmapreduce.job.reduces=5",
            "-Dmapreduce.map.memory.mb=1024",
            "-Dmapreduce.jobhistory.jhist.format=json",
            "-Dmapreduce.map.output.compress=true",
        } <= set(cluster)

    def test_what_is_left_to_hadoop_is_not_set_and_the_users_own_prevail(self):
        setting = Setting("wordcount", None, None, None, None, None)
        options = job_properties(setting, HadoopOptions(), local=False)
        assert options == ["-Dmapreduce.jobhistory.jhist.format=json"]
        own = {"mapreduce.job.reduces": "9", "my.own": "a b"}
        setting = Setting("wordcount", MB, 1, 1, None, "none")
        options = job_properties(setting, HadoopOptions(reduces=2, properties=own), local=True)
        assert "-Dmapreduce.job.reduces=9" in options
        assert "-Dmapreduce.map.output.compress=false" in options
        assert options[-1] == "-Dmy.own=a b"

    def test_inputs_and_the_largest_job_need_room(self):
        sizes = {"wordcount": 10, "sort": 10, "terasort": 100, "teragen": 50}
        asked = [Setting(name, size, 1, 1, None, None) for name, size in sizes.items()]
        assert jobs.room_needed(asked) == 10 + 100 + 400


class TestConfiguration:
    def test_every_address_is_of_the_loopback(self, tmp_path):
        own = OwnHadoop(
            options=HadoopOptions(),
            java=install.Java(tmp_path, "java", "17"),
            jars=tmp_path / "jars",
            reaper=mock.Mock(environment=lambda: {MARK: "1"}),
            scratch=tmp_path,
        )
        ports = engines.Ports(*engines.clients.free_ports(9))
        files = engines.cluster_properties(own, ports, memory_mb=4096, cpus=3)
        every = {name: value for part in files.values() for name, value in part.items()}
        ends = ("address", "bind-host", "hostname")
        addresses = [value for name, value in every.items() if name.endswith(ends)]
        assert len(addresses) > 12
        assert {value.partition(":")[0] for value in addresses} == {"127.0.0.1"}
        assert len(set(ports)) == len(ports)

    def test_all_folders_are_inside_the_scratch_folder(self, tmp_path):
        every = [v for part in engines.local_properties(tmp_path).values() for v in part.values()]
        folders = [value for value in every if value.startswith("/")]
        assert len(folders) == 3
        assert all(Path(folder).is_relative_to(tmp_path) for folder in folders)

    def test_any_text_survives_the_xml(self, tmp_path):
        value = "a <b> & 'c' \"d\" é"
        engines.write_configuration(tmp_path / "conf", {"core-site.xml": {"x.y": value}})
        root = ElementTree.parse(tmp_path / "conf" / "core-site.xml").getroot()
        assert [(p.findtext("name"), p.findtext("value")) for p in root] == [("x.y", value)]
        hosts = (tmp_path / "conf" / "hosts").read_text().splitlines()
        assert f"127.0.0.1 {socket.gethostname()}" in hosts


class TestJava:
    def test_versions_that_run_hadoop(self, tmp_path):
        for vendor, version in (("openjdk", "17.0.15"), ("java", "21"), ("openjdk", "11.0.22")):
            program(tmp_path / "bin", "java", f"echo '{vendor} version \"{version}\" 2025' >&2")
            java = install.find_java({"JAVA_HOME": str(tmp_path)})
            assert (java.home, java.version) == (tmp_path, version)

    def test_versions_that_do_not_and_none_at_all(self, tmp_path):
        for said, refusal in {
            'java version "1.8.0_292"': r"is Java 1\.8\.0_292.*JAVA_HOME",
            'openjdk version "25" 2025': "is Java 25.*JAVA_HOME",
            "hello": "does not say its version",
        }.items():
            program(tmp_path / "bin", "java", f"echo '{said}' >&2")
            with pytest.raises(MeasurementError, match=refusal):
                install.find_java({"PATH": str(tmp_path / "bin")})
        for where in ({"PATH": "/none"}, {"JAVA_HOME": "/none", "PATH": "/bin"}):
            with pytest.raises(MeasurementError, match="apt install default-jdk-headless maven"):
                install.find_java(where)
        with pytest.raises(MeasurementError, match="mvn is not on the path: apt install"):
            install.find_maven({"PATH": "/none"})


class TestJars:
    def test_brought_once_whole_or_not_at_all(self, tmp_path):
        home = {"XDG_CACHE_HOME": "/x", "HOME": "/root"}
        assert install.cache_folder(home) == Path("/x/ppw/hadoop-3.4.2")
        assert install.cache_folder({**home, "PPW_CACHE_DIR": "/y"}) == Path("/y/hadoop-3.4.2")
        environment = maven(tmp_path)
        folder = install.set_up(environment)
        assert folder == tmp_path / "cache" / "hadoop-3.4.2" == install.find_jars(environment)
        assert len(list(folder.glob("*.jar"))) == 4
        assert [path.name for path in (tmp_path / "cache").iterdir()] == ["hadoop-3.4.2"]
        project = ElementTree.parse(tmp_path / "told.xml").getroot()
        asked = {d[1].text: d[2].text for d in project.iter("dependency")}
        assert asked == dict(zip(JARS, ("3.4.2", "3.4.2", "4.13.2", "4.11.0"), strict=True))
        # A jar that is gone is noticed and brought again.
        next(folder.glob("junit*")).unlink()
        with pytest.raises(MeasurementError, match="ppw run hadoop --setup"):
            install.find_jars(environment)
        assert len(list(install.set_up(environment).glob("*.jar"))) == 4

    def test_what_maven_did_not_bring_is_said(self, tmp_path):
        for how, said in (
            ({"code": 1, "error": "Could not resolve x"}, "Could not resolve x: is the net"),
            ({"names": JARS[2:]}, "it brought no hadoop-minicluster"),
            ({"code": 3}, "it ended with exit code 3"),
        ):
            with pytest.raises(MeasurementError, match=f"mvn could not download Hadoop.*{said}"):
                install.set_up(maven(tmp_path, **how))
            assert list((tmp_path / "cache").iterdir()) == []


def node(host, power_w=None, source="ipmi:dcmi", **more):
    """Row of a node of a job of 50 s."""
    watts = {"power_w": power_w, "power_source": source}
    measured = {} if power_w is None else {**watts, "energy_j": 50 * power_w}
    return {"host": host, "time_s": 50.0, **measured, **more}


def cluster(nodes, *, master=None, scopes=(), **more):
    domains = {n["host"]: "host" for n in nodes} | dict(scopes)
    return cluster_row(node("cluster:c", **more), nodes, master=master, domains=domains)


class TestNodes:
    def test_a_table_of_nodes(self, tmp_path):
        path = tmp_path / "nodes.csv"
        path.write_text("host,power,family,price,cores,role\nn1,rapl,Atom,300,2,master\nn2,,,,,\n")
        first, second = read_nodes(path)
        assert (first.power, first.family, first.price, first.cores) == ("rapl", "Atom", 300.0, 2)
        assert first.role == "master"
        assert (second.host, second.power, second.cores) == ("n2", None, None)

    def test_a_table_that_cannot_be_is_refused(self, tmp_path):
        path = tmp_path / "nodes.csv"
        for text, said in {
            "host,powr\nn1,rapl\n": "no column 'powr' is known",
            "power\nrapl\n": "has no column host",
            "host\n": "names no node",
            "host\nn1\nn1\n": "names n1 twice",
            "host,role\nn1,master\nn2,master\n": "several masters, n1, n2",
            "host,price\nn1,free\n": "line 2: price is 'free'",
            "host,cores\nn1,1.5\n": "line 2: cores is '1.5'",
            "host,cores\nn1,-1\n": "line 2: cores is '-1'",
            "host,cores\nn1\n": "line 2: does not have as many values",
            "host,cores\n,4\n": "line 2: has no host",
            "host\n../n1\n": "is no name of a host",
        }.items():
            path.write_text(text)
            with pytest.raises(MeasurementError, match=f"{path}.*{said}"):
                read_nodes(path)

    def test_watts_cores_and_prices_add_up(self):
        more = {"idle_power_w": 60.0, "family": "Atom", "price": 300, "cores": 2}
        nodes = [node(f"n{n}", 100.0 + n, **more) for n in range(3)]
        row = cluster(nodes, master="n0")
        assert row == cluster(nodes[::-1], master="n0")
        expected = {"host": "cluster:c", "time_s": 50.0, "nodes": 3, "master": "n0"}
        expected |= {"power_w": 303.0, "energy_j": 303.0 * 50, "power_source": "ipmi:dcmi"}
        expected |= {"power_label": "measured", "idle_power_w": 180.0, "family": "Atom"}
        assert row == expected | {"price": 900, "cores": 6}

    def test_what_differs_is_not_added(self):
        families = [node("n1", family="Atom"), node("n2", family="Westmere")]
        sensors = [node("n1", 100.0), node("n2", 40.0, "rapl:package")]
        for nodes, scopes, gone, said in (
            (families, {}, "family", "nodes of different families (Atom, Westmere)"),
            ([node("n1", 100.0), node("n2")], {}, "power_w", "none is known of n2"),
            (sensors, {"n2": "package"}, "power_w", "differs in scope (host and package)"),
        ):
            row = cluster(nodes, family="x", scopes=scopes)
            assert gone not in row
            assert said in row["notes"]

    def test_sources_of_one_scope_are_named_by_their_kinds(self):
        nodes = [node("n1", 100.0, "meter:a"), node("n2", 40.0, "log:b")]
        row = cluster(nodes, scopes=dict.fromkeys(("n1", "n2"), "wall"))
        assert (row["power_w"], row["power_source"]) == (140.0, "log+meter:wall")
        assert "notes" not in cluster([node("n1"), node("n2")])


@pytest.fixture(scope="module")
def pi():
    """Hadoop's own estimator of π, two maps and one reduce, on a one-machine cluster."""
    return histories.parse_history((DATA / "pi.jhist").read_text(), "pi.jhist")


class TestRecordedHistory:
    def test_job_and_phases(self, pi):
        assert (pi.name, pi.user, pi.status) == ("QuasiMonteCarlo", "root", "SUCCEEDED")
        assert (pi.job_id, pi.master) == ("job_1795250053716_0001", "localhost")
        # Typed from the file: submitted 1795250059541, finished 1795250079353.
        assert pi.elapsed_s == pytest.approx(19.812, abs=1e-6)
        assert pi.launched_s - pi.submitted_s == pytest.approx(6.239, abs=1e-6)
        (reduce,) = pi.done("REDUCE")
        # Typed from the file: 1795250075983, 8880, 8915, 9279 in milliseconds.
        phases = (reduce.shuffle_s, reduce.sort_s, reduce.reduce_s, reduce.elapsed_s)
        assert phases == pytest.approx((2.897, 0.035, 0.363, 3.295))
        assert reduce.locality == "OFF_SWITCH"

    def test_tasks_add_up_to_what_hadoop_says_of_the_job(self, pi):
        done = [*pi.done("MAP"), *pi.done("REDUCE")]
        assert sum(a.cpu_s for a in done) == pytest.approx(1e-3 * pi.counters[histories.CPU_MS])
        assert sum(a.gc_s for a in done) == pytest.approx(1e-3 * pi.counters[histories.GC_MS])
        for kind, name in (("MAP", "MILLIS_MAPS"), ("REDUCE", "MILLIS_REDUCES")):
            took = sum(a.elapsed_s for a in pi.done(kind))
            assert took == pytest.approx(1e-3 * pi.counters[Counter("JobCounter", name)])

    def test_columns_and_one_node_did_it_all(self, pi):
        columns = job_columns(pi)
        expected = {"job_s": 19.812, "map_task_s": 5.096, "shuffle_task_s": 2.897}
        expected |= {"reduce_task_s": 0.363, "task_cpu_s": 1.77, "map_cpu_s": 1.05}
        expected |= {"reduce_cpu_s": 0.72, "gc_s": 0.114, "input_bytes": 236, "output_bytes": 97}
        expected |= {"shuffle_bytes": 56, "file_read_bytes": 50, "dfs_read_bytes": 528}
        expected |= {"dfs_written_bytes": 215, "data_local_share": 1.0, "map_tasks": 2}
        expected |= {"reduce_tasks": 1, "wasted_attempts": 0}
        assert {name: columns[name] for name in expected} == pytest.approx(expected)
        nodes = node_columns(pi)
        assert list(nodes) == ["localhost"]
        for column in ("job_s", "map_phase_s", "reduce_task_s", "task_cpu_s", "dfs_read_bytes"):
            assert nodes["localhost"][column] == pytest.approx(columns[column]), column

    def test_a_table_of_tasks(self, pi, tmp_path):
        write_tasks(pi, tmp_path / "tasks.csv")
        with (tmp_path / "tasks.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["kind"] for row in rows] == ["MAP", "MAP", "REDUCE"]
        assert {row["status"] for row in rows} == {"SUCCEEDED"}
        assert rows[2]["start_s"] == "16.442"
        assert [row["shuffle_s"] for row in rows] == ["", "", "2.897"]


def made_up(*attempts, more=(), **how):
    """Job of a history with such attempts: each is a kind, a task, a number, and more."""
    lines = [line for *words, rest in attempts for line in attempt(*words, **rest)]
    return histories.parse_history(history([*lines, *more], **how), "here")


def at(node, start_s, end_s, **more):
    return {"node": node, "start_s": start_s, "end_s": end_s, **more}


class TestMadeUpHistory:
    def test_an_attempt_that_failed_and_one_that_was_killed_do_not_count(self):
        job = made_up(
            ("MAP", 0, 0, at("a", 3, 5, status="FAILED", cpu_ms=900)),
            ("MAP", 0, 1, at("b", 5, 9, cpu_ms=3000)),
            ("MAP", 1, 0, at("a", 3, 7, cpu_ms=2000)),
            ("MAP", 1, 1, at("b", 6, 7, status="KILLED", cpu_ms=500)),
        )
        columns, nodes = job_columns(job), node_columns(job)
        assert (columns["map_tasks"], columns["wasted_attempts"]) == (2, 2)
        assert columns["map_task_s"] == pytest.approx(4.0)
        assert columns["map_phase_s"] == pytest.approx(6.0)
        assert nodes["a"]["task_cpu_s"] == pytest.approx(2.0)
        assert nodes["b"]["task_cpu_s"] == pytest.approx(3.0)
        assert nodes["b"]["wasted_attempts"] == 1

        # So does a task whose output was lost with its node: it counts by its last end.
        job = made_up(("MAP", 0, 0, at("a", 3, 5)), ("MAP", 0, 1, at("b", 8, 11)))
        (done,) = job.done("MAP")
        assert done.node == "b"
        assert done.elapsed_s == pytest.approx(3.0)

    def test_local_maps_by_counter_and_by_node(self):
        job = made_up(
            ("MAP", 0, at("a", 1, 2)),
            ("MAP", 1, at("b", 1, 2, locality="RACK_LOCAL")),
            ("MAP", 2, at("b", 1, 2)),
            ("MAP", 3, at("b", 1, 2, locality="OFF_SWITCH")),
            totals=counters(DATA_LOCAL_MAPS=2, RACK_LOCAL_MAPS=1, OTHER_LOCAL_MAPS=1),
        )
        assert job_columns(job)["data_local_share"] == pytest.approx(0.5)
        shares = {name: part["data_local_share"] for name, part in node_columns(job).items()}
        assert shares == pytest.approx({"a": 1.0, "b": 1 / 3})
        assert "data_local_share" not in job_columns(made_up())

    def test_a_job_that_failed_says_why_and_the_last_master_is_the_master(self):
        ended = {"finishTime": 1_700_000_009_000, "jobStatus": "FAILED"}
        ended |= {"diagnostics": {"string": "Task failed task_1_m_0"}}
        end = event("JOB_FAILED", "JobUnsuccessfulCompletion", jobid=JOB, **ended)
        again = event("AM_STARTED", "AMStarted", nodeManagerHost="node3")
        lines = history([again]).splitlines()
        job = histories.parse_history("\n".join([*lines[:-1], end]), "here")
        assert (job.status, job.reason) == ("FAILED", "Task failed task_1_m_0")
        assert job.elapsed_s == pytest.approx(9.0)
        assert job.master == "node3"

    def test_what_is_not_known_is_not_zero(self):
        whole = history(attempt("MAP", 0, **at("a", 1, 2)))
        # One that breaks off has no end.
        job = histories.parse_history(whole[: whole.index('"JOB_FINISHED"') + 40], "here")
        assert (job.status, job.elapsed_s, len(job.done("MAP"))) == (None, None, 1)
        assert "job_s" not in job_columns(job)
        lines = whole.replace('"finishTime": 1700000002000', '"finishTime": -1')
        columns = job_columns(histories.parse_history(lines, "here"))
        assert "map_task_s" not in columns
        assert columns["map_tasks"] == 1

    def test_what_is_no_history_is_refused(self):
        for text, said in {
            "Avro-Binary\n\x00\x01": "-Dmapreduce.jobhistory.jhist.format=json",
            "Hello\nthere": "its first line is 'Hello'",
            "": "its first line is ''",
            "Avro-Json\n{}\n": "no event in it names a job",
            "Avro-Json\n{}\nnonsense\n" + "\n".join(history([]).splitlines()[2:]): "line 3",
        }.items():
            with pytest.raises(MeasurementError, match=f"job.jhist.*{said}"):
                histories.parse_history(text, "job.jhist")

    @given(
        st.lists(
            st.tuples(
                *(st.sampled_from(["MAP", "REDUCE"]), st.sampled_from(["a", "b", "c"])),
                *(st.floats(0, 50), st.floats(0.003, 9), st.integers(0, 10_000)),
            ),
            min_size=1,
            max_size=12,
        )
    )
    def test_nodes_add_up_to_the_job(self, tasks):
        attempts = [
            (kind, number, at(node, start_s, start_s + took_s, cpu_ms=cpu_ms))
            for number, (kind, node, start_s, took_s, cpu_ms) in enumerate(tasks)
        ]
        total_ms = sum(cpu_ms for *_, cpu_ms in tasks)
        job = made_up(*attempts, totals=counters(CPU_MILLISECONDS=total_ms))
        whole, nodes = job_columns(job), node_columns(job)
        for column in ("task_cpu_s", "map_tasks", "reduce_tasks"):
            assert sum(n[column] for n in nodes.values()) == pytest.approx(whole[column])
        for phase in ("map_phase_s", "reduce_phase_s"):
            assert max(n.get(phase, 0.0) for n in nodes.values()) <= whole.get(phase, 0.0) + 1e-9
        for reduce in job.done("REDUCE"):
            parts = (reduce.shuffle_s, reduce.sort_s, reduce.reduce_s)
            assert sum(parts) == pytest.approx(reduce.elapsed_s, abs=2e-3)


class TestPrintedCounters:
    def test_as_many_as_the_client_says_are_read(self):
        for name in ("wordcount", "terasort"):
            lines = (DATA / f"{name}.log").read_text().splitlines()
            (said,) = [int(line.rpartition(" ")[2]) for line in lines if "Job: Counters: " in line]
            found = histories.printed_counters(lines)
            assert len(found) == said == 55
        # Known ones have the names of a history.
        assert found[Counter("JobCounter", "DATA_LOCAL_MAPS")] == 2
        assert found[Counter("FileSystemCounter", "HDFS_BYTES_READ")] == 268435606
        assert found[Counter("FileSystemCounter", "FILE_BYTES_WRITTEN")] == 838406039
        assert found[Counter("FileInputFormatCounter", "BYTES_READ")] == 268435400
        assert found[Counter("TaskCounter", "MAP_INPUT_RECORDS")] == 2684354

    def test_counters_of_one_task_are_not_those_of_the_job(self):
        of_task = ["INFO Task: Final Counters for attempt_1: Counters: 1", "\tMap-Reduce Framework"]
        of_job = ["INFO Job: Counters: 1", "\tMap-Reduce Framework", "\t\tSpilled Records=12"]
        rest = ["done", "\t\tSpilled Records=99"]
        found = histories.printed_counters([*of_task, "\t\tSpilled Records=7", *of_job, *rest])
        assert found == {Counter("TaskCounter", "SPILLED_RECORDS"): 12}
        assert histories.printed_counters(["INFO Job: Running job: job_1"]) == {}


class TestLocalLog:
    def test_reduces_side_by_side_are_told_apart_by_their_threads(self):
        log = DATA / "local.log"
        job = histories.read_local_log(log, slots=2)
        phases = [(r.shuffle_s, r.sort_s, r.reduce_s) for r in job.done("REDUCE")]
        assert phases == [pytest.approx((1.0, 0.0, 1.0)), pytest.approx((0.6, 0.5, 1.8))]
        columns = job_columns(job)
        # Its end is the runner's, not when the client happened to look.
        expected = {"job_s": 10.1, "map_phase_s": 5.5, "map_task_s": 4.5, "map_task_max_s": 5.0}
        expected |= {"reduce_phase_s": 3.0, "spilled_records": 5}
        assert {name: columns[name] for name in expected} == pytest.approx(expected)
        # What one process counts twice is left out.
        assert not {"gc_s", "input_bytes", "file_read_bytes", "task_cpu_s"} & set(columns)
        # With one slot that is the moved bytes alone.
        columns = job_columns(histories.read_local_log(log, slots=1))
        assert columns["gc_s"] == pytest.approx(0.07)
        assert columns["input_bytes"] == 70341070
        assert "file_read_bytes" not in columns

    def test_a_log_without_a_job_is_refused_and_the_first_complaint_is_found(self, tmp_path):
        path = tmp_path / "0000.txt"
        with pytest.raises(MeasurementError, match="cannot be read"):
            histories.read_local_log(path)
        assert engines.first_complaint(path) == ""
        path.write_text("Usage: wordcount <in> [<in>...] <out>\n")
        with pytest.raises(MeasurementError, match="no job was submitted"):
            histories.read_local_log(path)
        for text, complaint in (
            ("all is well\n", ""),
            ("WARN x\njava.io.IOException: no\n\tat a.b\nCaused: X\n", "java.io.IOException: no"),
        ):
            path.write_text(text)
            assert engines.first_complaint(path) == complaint
