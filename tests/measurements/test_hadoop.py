"""Hadoop jobs for real, in one process and on a one-machine cluster, and what they are made of."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st
from peers import hadoop as peer

from measurements.errors import MeasurementError
from measurements.execution import execute
from measurements.workloads.hadoop import jars, loopback
from measurements.workloads.hadoop.configuration import (
    cluster_properties,
    free_ports,
    local_properties,
    write_configuration,
)
from measurements.workloads.hadoop.engine import OwnHadoop, check_room, in_memory
from measurements.workloads.hadoop.figures import job_columns, node_columns
from measurements.workloads.hadoop.inputs import make_texts, room_needed
from measurements.workloads.hadoop.java import find_java, find_maven
from measurements.workloads.hadoop.jobs import Setting, job_properties, settings
from measurements.workloads.hadoop.local import Local
from measurements.workloads.hadoop.nodes import cluster_row, read_nodes
from measurements.workloads.hadoop.one_machine import OneMachine
from measurements.workloads.hadoop.text import write_text
from measurements.workloads.reaper import MARK, Reaper

MB = 1_000_000
ROOT = Path(__file__).resolve().parents[2]


def processes(mark: str) -> list[str]:
    """Command lines of all processes that were started with a mark of a reaper."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and mark.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.fixture
def own(tmp_path):
    with Reaper() as reaper:
        yield OwnHadoop(
            java=find_java(), jars=peer.jars(), reaper=reaper, scratch=reaper.folder(tmp_path)
        )


def run_job(engine, setting, folder):
    output = folder / "job.txt"
    command = engine.command(setting)
    engine.starts(output)
    made = execute([command], output=output, environment=engine.environment())
    assert made.exit_code == 0, output.read_text()[-3000:]
    return made, engine.job(setting, output)


def parts(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.glob("part-*")))


class TestLocalJobs:
    def test_wordcount_counts_as_a_counter_does(self, own, tmp_path):
        setting = Setting("wordcount", 8 * MB, 2, 2, None, None)
        engine = Local(own)
        engine.prepare([setting])
        made, job = run_job(engine, setting, tmp_path)
        words = Counter((own.scratch / f"text-{8 * MB}").read_bytes().split())
        counted = dict(line.split(b"\t") for line in parts(own.scratch / "output").splitlines())
        assert {word: int(n) for word, n in counted.items()} == words
        columns = job_columns(job)
        assert job.status == "SUCCEEDED"
        assert (columns["map_tasks"], columns["reduce_tasks"]) == (1, 2)
        assert 0 < columns["map_phase_s"] < columns["job_s"] < made.end_s - made.start_s
        assert made.user_s > 0

    def test_terasort_sorts_what_teragen_made(self, own, tmp_path):
        setting = Setting("terasort", 8 * MB, 2, 2, None, "snappy")
        engine = Local(own)
        engine.prepare([setting])
        _, job = run_job(engine, setting, tmp_path)
        made, found = (
            np.frombuffer(parts(folder), dtype="S100")
            for folder in (own.scratch / f"rows-{8 * MB}", own.scratch / "output")
        )
        assert len(made) == 8 * MB // 100
        assert (found == np.sort(made)).all()
        # A row, and the two lengths before it in the maps' output.
        assert job_columns(job)["map_output_bytes"] == pytest.approx(102 * len(made))
        assert not list(own.scratch.glob("work/*.lst")), "a link is left behind"

    def test_sort_keeps_every_line(self, own, tmp_path):
        setting = Setting("sort", 2 * MB, 1, 1, None, None)
        engine = Local(own)
        engine.prepare([setting])
        _, job = run_job(engine, setting, tmp_path)
        given = (own.scratch / f"text-{2 * MB}").read_bytes().splitlines()
        found = [line.rstrip(b"\t") for line in parts(own.scratch / "output").splitlines()]
        assert found == sorted(given)
        assert job_columns(job)["gc_s"] >= 0

    def test_a_job_that_cannot_run_says_why(self, own, tmp_path):
        setting = Setting("wordcount", 1 * MB, 1, 1, None, "lz4")
        engine = Local(own)
        engine.prepare([setting])
        output = tmp_path / "job.txt"
        made = execute([engine.command(setting)], output=output, environment=engine.environment())
        assert made.exit_code == 1
        assert "lz4" in output.read_text().lower()


@pytest.mark.slow
class TestOneMachineCluster:
    def test_wordcount_with_its_history_and_nobody_else_can_connect(self, own, tmp_path):
        ours = {port for _, port in listening()}
        setting = Setting("wordcount", 16 * MB, 1, 1, 2**29, "snappy")
        engine = OneMachine(own)
        engine.prepare([setting])
        _, job = run_job(engine, setting, tmp_path)
        columns = job_columns(job)
        assert (job.status, columns["map_tasks"], columns["reduce_tasks"]) == ("SUCCEEDED", 1, 1)
        assert columns["data_local_share"] == 1.0
        assert columns["task_cpu_s"] == pytest.approx(
            columns["map_cpu_s"] + columns["reduce_cpu_s"]
        )
        assert columns["dfs_read_bytes"] == pytest.approx(16 * MB, rel=0.001)
        assert columns["map_phase_s"] + columns["reduce_phase_s"] < columns["job_s"]
        assert list(node_columns(job)) == ["localhost"]
        # Only what listens on this host's own addresses could be reached from elsewhere.
        assert {port for _, port in listening()} <= ours
        mark = own.environment()[MARK]
        assert any("MiniHadoopClusterManager" in line for line in processes(mark))
        engine.close()
        own.reaper.close()
        assert processes(mark) == []
        assert not own.scratch.exists()

    def test_more_memory_than_there_is_is_refused(self, own):
        engine = OneMachine(own)
        with pytest.raises(MeasurementError, match="--map-slots"):
            engine.prepare([Setting("wordcount", MB, 4096, 4096, 2**30, None)])


def listening() -> set[tuple[str, int]]:
    """Addresses and ports on which somebody listens, as this process sees them."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path("/proc/self/net", name).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                address, _, port = fields[1].rpartition(":")
                found.add((address, int(port, 16)))
    return found


class TestOwnNetwork:
    def test_what_listens_inside_is_reached_inside_only(self):
        server = (
            "import socket, time; s = socket.socket(); s.bind(('0.0.0.0', 0)); s.listen(); "
            "print(s.getsockname()[1], flush=True); time.sleep(60)"
        )
        inside = [*loopback.inside_new(), sys.executable, "-c", server]
        with subprocess.Popen(inside, stdout=subprocess.PIPE, text=True) as process:
            try:
                port = int(process.stdout.readline())
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port), timeout=5)
                client = f"import socket; socket.create_connection(('127.0.0.1', {port})); print(1)"
                joined = [*loopback.inside_of(process.pid), sys.executable, "-c", client]
                said = subprocess.run(joined, capture_output=True, text=True, check=True)
                assert said.stdout == "1\n"
            finally:
                process.kill()

    def test_a_plain_user_may_have_one_too(self):
        assert os.geteuid() == 0, "as root, so that another user can be become"
        inside = [*loopback.inside_new(), "cat", "/proc/net/dev"]
        as_other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *inside]
        done = subprocess.run(as_other, capture_output=True, text=True, check=True)
        names = [line.split(":")[0].strip() for line in done.stdout.splitlines()[2:]]
        assert names == ["lo"]

    def test_where_the_kernel_gives_none_it_is_said(self, own, monkeypatch):
        monkeypatch.setattr(loopback, "refusal", lambda: "the kernel allows no network: no")
        with pytest.raises(MeasurementError, match="--open-ports"):
            OneMachine(own)
        OneMachine(own, open_ports=True)


class TestText:
    @tried(max_examples=20)
    @given(size=st.integers(0, 40_000), seed=st.integers(0, 3))
    def test_any_size_is_exact_and_a_line_ends_it(self, tmp_path_factory, size, seed):
        path = tmp_path_factory.mktemp("text") / "text"
        write_text(path, size, seed=seed)
        content = path.read_bytes()
        assert len(content) == size
        assert content[-1:] == b"\n"[:size]

    def test_the_same_seed_gives_the_same_text_everywhere(self, tmp_path):
        for seed, digest in ((0, DIGEST), (1, None)):
            path = tmp_path / str(seed)
            write_text(path, MB, seed=seed)
            found = hashlib.sha256(path.read_bytes()).hexdigest()
            assert (found == DIGEST) == (digest is not None)

    def test_smaller_texts_are_the_beginning_of_the_largest(self, tmp_path):
        paths = make_texts(tmp_path, [700_000, 30_000], seed=5)
        alone = tmp_path / "alone"
        write_text(alone, 30_000, seed=5)
        assert paths[30_000].read_bytes() == alone.read_bytes()
        assert paths[700_000].read_bytes()[:29_999] == alone.read_bytes()[:-1]

    def test_words_are_as_uneven_as_zipfs_law_says(self, tmp_path):
        path = tmp_path / "text"
        write_text(path, 8 * MB)
        words = path.read_bytes().split()
        ranked = [n for _, n in Counter(words).most_common()]
        assert len(ranked) <= 50_000
        chance = 1 / (np.arange(50_000) + 3.7)
        expected = len(words) * chance / chance.sum()
        for rank in (1, 2, 10, 100, 1000):
            margin = 5 * expected[rank - 1] ** 0.5
            assert ranked[rank - 1] == pytest.approx(expected[rank - 1], abs=margin)
        assert 4 < len(b"".join(words)) / len(words) < 6


DIGEST = "00aa927c8830d30996a9e5c89fa57495a86b97a722fcead61c66838afdb6c666"


class TestJobs:
    def test_all_combinations_once_with_whole_rows(self):
        found = settings(["wordcount", "terasort"], [1050, 1099], [1], [1, 2], [None], ["none"])
        assert len(found) == 6
        assert {s.data_bytes for s in found if s.workload == "terasort"} == {1000}
        assert {s.data_bytes for s in found if s.workload == "wordcount"} == {1050, 1099}

    def test_local_slots_are_threads_and_cluster_slots_are_limits(self):
        setting = Setting("wordcount", MB, 2, 3, 2**30, "snappy")
        local = job_properties(setting, local=True, reduces=None, more={})
        cluster = job_properties(setting, local=False, reduces=5, more={})
        assert "-Dmapreduce.local.map.tasks.maximum=2" in local
        assert "-Dmapreduce.job.reduces=3" in local
        assert not any("memory" in option for option in local)
        assert "-Dmapreduce.job.running.reduce.limit=3" in cluster
        assert "-Dmapreduce.job.reduces=5" in cluster
        assert "-Dmapreduce.map.memory.mb=1024" in cluster
        assert "-Dmapreduce.jobhistory.jhist.format=json" in cluster
        assert "-Dmapreduce.map.output.compress=true" in cluster

    def test_what_is_left_to_hadoop_is_not_set(self):
        setting = Setting("wordcount", None, None, None, None, None)
        options = job_properties(setting, local=False, reduces=None, more={})
        assert options == ["-Dmapreduce.jobhistory.jhist.format=json"]

    def test_the_users_own_properties_prevail(self):
        setting = Setting("wordcount", MB, 1, 1, None, "none")
        more = {"mapreduce.job.reduces": "9", "my.own": "a b"}
        options = job_properties(setting, local=True, reduces=2, more=more)
        assert "-Dmapreduce.job.reduces=9" in options
        assert "-Dmapreduce.map.output.compress=false" in options
        assert options[-1] == "-Dmy.own=a b"


class TestConfiguration:
    def test_every_address_is_of_the_loopback(self, tmp_path):
        files = cluster_properties(
            tmp_path,
            tmp_path / "conf",
            tmp_path / "jars",
            free_ports(),
            memory_mb=4096,
            cpus=3,
            variables={"A": "1"},
        )
        every = {name: value for part in files.values() for name, value in part.items()}
        addresses = [
            v for n, v in every.items() if n.endswith(("address", "bind-host", "hostname"))
        ]
        assert len(addresses) > 12
        assert {value.partition(":")[0] for value in addresses} == {"127.0.0.1"}

    def test_all_folders_are_inside_the_scratch_folder(self, tmp_path):
        every = {n: v for part in local_properties(tmp_path).values() for n, v in part.items()}
        folders = [value for value in every.values() if value.startswith("/")]
        assert len(folders) == 3
        assert all(Path(folder).is_relative_to(tmp_path) for folder in folders)

    def test_any_text_survives_the_xml(self, tmp_path):
        value = "a <b> & 'c' \"d\" é"
        write_configuration(tmp_path / "conf", {"core-site.xml": {"x.y": value}})
        root = ElementTree.parse(tmp_path / "conf" / "core-site.xml").getroot()
        assert [(p.findtext("name"), p.findtext("value")) for p in root] == [("x.y", value)]
        hosts = (tmp_path / "conf" / "hosts").read_text().splitlines()
        assert f"127.0.0.1 {socket.gethostname()}" in hosts

    def test_ports_are_free_and_different(self):
        ports = free_ports()
        assert len(set(ports)) == len(ports)


class TestRoom:
    def test_inputs_and_the_largest_job_are_counted(self):
        asked = [
            Setting("wordcount", 10, 1, 1, None, None),
            Setting("sort", 10, 1, 1, None, None),
            Setting("terasort", 100, 1, 1, None, None),
            Setting("teragen", 50, 1, 1, None, None),
        ]
        assert room_needed(asked) == 10 + 100 + 400

    def test_a_disk_that_is_too_small_is_refused(self, tmp_path):
        check_room(tmp_path, 1.0)
        with pytest.raises(MeasurementError, match="--scratch"):
            check_room(tmp_path, 1e18)

    def test_a_file_system_in_memory_is_known(self, tmp_path):
        mounts = f"/dev/sda / ext4 rw 0 0\ntmpfs {tmp_path}/a\\040b tmpfs rw 0 0\n"
        assert in_memory(tmp_path / "a b" / "c", mounts)
        assert not in_memory(tmp_path / "other", mounts)


def program(folder, name, text):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


class TestJava:
    @pytest.mark.parametrize(
        ("said", "version"),
        [
            ('openjdk version "17.0.15" 2025-04-15', "17.0.15"),
            ('java version "21" 2023-09-19', "21"),
            ('openjdk version "11.0.22" 2024-01-16', "11.0.22"),
        ],
    )
    def test_versions_that_run_hadoop(self, tmp_path, said, version):
        program(tmp_path / "bin", "java", f"echo '{said}' >&2")
        java = find_java({"JAVA_HOME": str(tmp_path)})
        assert (java.home, java.version) == (tmp_path, version)

    @pytest.mark.parametrize(
        ("said", "version"),
        [('java version "1.8.0_292"', "1.8.0_292"), ('openjdk version "25" 2025', "25")],
    )
    def test_versions_that_do_not(self, tmp_path, said, version):
        program(tmp_path / "bin", "java", f"echo '{said}' >&2")
        with pytest.raises(MeasurementError, match="JAVA_HOME") as e:
            find_java({"PATH": str(tmp_path / "bin")})
        assert f"is Java {version}" in str(e.value)

    @pytest.mark.parametrize("where", [{"PATH": "/none"}, {"JAVA_HOME": "/none", "PATH": "/bin"}])
    def test_none_at_all(self, where):
        with pytest.raises(MeasurementError, match="apt install default-jdk-headless maven"):
            find_java(where)

    def test_a_program_that_is_no_java(self, tmp_path):
        program(tmp_path / "bin", "java", "echo hello")
        with pytest.raises(MeasurementError, match="does not say its version"):
            find_java({"PATH": str(tmp_path / "bin")})

    def test_no_maven(self):
        with pytest.raises(MeasurementError, match="mvn is not on the path: apt install"):
            find_maven({"PATH": "/none"})


MAVEN = """
for argument; do case $argument in -DoutputDirectory=*) folder=${{argument#*=}} ;; esac; done
cp pom.xml "{told}"
mkdir -p "$folder"
for name in {names}; do echo jar > "$folder/$name-1.jar"; done
echo "[ERROR] {error}"
exit {code}
"""
WANTED = "hadoop-minicluster hadoop-mapreduce-examples junit mockito-core"


class TestJars:
    @pytest.fixture
    def maven(self, tmp_path):
        """A Maven that brings what it is told, and an environment in which it is found."""

        def make(names=WANTED, code=0, error=""):
            text = MAVEN.format(told=tmp_path / "told.xml", names=names, code=code, error=error)
            program(tmp_path / "bin", "mvn", text)
            path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
            return {**os.environ, "PATH": path, "PPW_CACHE_DIR": str(tmp_path / "cache")}

        return make

    def test_brought_once_whole_or_not_at_all(self, maven, tmp_path):
        environment = maven()
        folder = jars.set_up(environment)
        assert folder == tmp_path / "cache" / "hadoop-3.4.2" == jars.find_jars(environment)
        assert len(list(folder.glob("*.jar"))) == 4
        assert [path.name for path in (tmp_path / "cache").iterdir()] == ["hadoop-3.4.2"]
        program(tmp_path / "bin", "mvn", "exit 1")
        assert jars.set_up(environment) == folder

    def test_the_project_asks_for_what_the_cluster_needs(self, maven, tmp_path):
        jars.set_up(maven())
        project = ElementTree.parse(tmp_path / "told.xml").getroot()
        asked = [
            (one.findtext("artifactId"), one.findtext("version"))
            for one in project.iter("dependency")
        ]
        assert asked == [
            ("hadoop-minicluster", "3.4.2"),
            ("hadoop-mapreduce-examples", "3.4.2"),
            ("junit", "4.13.2"),
            ("mockito-core", "4.11.0"),
        ]

    def test_a_jar_that_is_gone_is_noticed_and_brought_again(self, maven):
        environment = maven()
        folder = jars.set_up(environment)
        next(folder.glob("junit*")).unlink()
        with pytest.raises(MeasurementError, match="ppw run hadoop --setup"):
            jars.find_jars(environment)
        assert len(list(jars.set_up(environment).glob("*.jar"))) == 4

    @pytest.mark.parametrize(
        ("names", "code", "error", "said"),
        [
            (WANTED, 1, "Could not resolve host: repo", "Could not resolve host: repo: is the net"),
            ("junit mockito-core", 0, "", "it brought no hadoop-minicluster"),
            (WANTED, 3, "", "it ended with exit code 3"),
        ],
    )
    def test_what_maven_did_not_bring_is_said(self, maven, tmp_path, names, code, error, said):
        with pytest.raises(MeasurementError, match="mvn could not bring Hadoop") as caught:
            jars.set_up(maven(names, code, error))
        assert said in str(caught.value)
        assert list((tmp_path / "cache").iterdir()) == []

    def test_the_cache_folder(self):
        home = {"XDG_CACHE_HOME": "/x", "HOME": "/root"}
        assert jars.cache_folder(home) == Path("/x/ppw/hadoop-3.4.2")
        assert jars.cache_folder({**home, "PPW_CACHE_DIR": "/y"}) == Path("/y/hadoop-3.4.2")

    def test_the_real_ones_are_all_there(self):
        folder = peer.jars()
        assert len(list(folder.glob("*.jar"))) > 150
        assert 90e6 < sum(path.stat().st_size for path in folder.glob("*.jar")) < 120e6


class TestNodes:
    def test_a_table_of_nodes(self, tmp_path):
        path = tmp_path / "nodes.csv"
        path.write_text("host,power,family,price,cores,role\nn1,rapl,Atom,300,2,master\nn2,,,,,\n")
        first, second = read_nodes(path)
        assert (first.power, first.family, first.price, first.cores) == ("rapl", "Atom", 300.0, 2)
        assert first.role == "master"
        assert (second.host, second.power, second.cores) == ("n2", None, None)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("host,powr\nn1,rapl\n", "no column 'powr' is known"),
            ("power\nrapl\n", "has no column host"),
            ("host\n", "names no node"),
            ("host\nn1\nn1\n", "names n1 twice"),
            ("host,role\nn1,master\nn2,master\n", "several masters, n1, n2"),
            ("host,price\nn1,free\n", "line 2: price is 'free'"),
            ("host,cores\nn1,1.5\n", "line 2: cores is '1.5'"),
            ("host,cores\nn1,-1\n", "line 2: cores is '-1'"),
            ("host,cores\nn1\n", "line 2: has not as many cells"),
            ("host,cores\n,4\n", "line 2: has no host"),
            ("host\n../n1\n", "is no name of a host"),
        ],
    )
    def test_a_table_that_cannot_be_is_refused(self, tmp_path, text, said):
        path = tmp_path / "nodes.csv"
        path.write_text(text)
        with pytest.raises(MeasurementError, match=str(path)) as caught:
            read_nodes(path)
        assert said in str(caught.value)

    def node(self, host, **more):
        return {"host": host, "time_s": 50.0, **more}

    def watts(self, host, power_w, source="ipmi:dcmi", **more):
        energy_j = 50 * power_w
        measured = {"power_w": power_w, "energy_j": energy_j, "power_source": source}
        return self.node(host, **measured, **more)

    def cluster(self, nodes, *, master=None, domains=None, **more):
        whole = {"host": "cluster:c", "time_s": 50.0, **more}
        return cluster_row(
            whole,
            nodes,
            master=master,
            domains=domains or {node["host"]: "host" for node in nodes},
        )

    def test_watts_cores_and_prices_add_up(self):
        nodes = [
            self.watts(f"n{n}", 100.0 + n, idle_power_w=60.0, family="Atom", price=300, cores=2)
            for n in range(3)
        ]
        row = self.cluster(nodes, master="n0")
        expected = {
            "host": "cluster:c",
            "time_s": 50.0,
            "nodes": 3,
            "master": "n0",
            "power_w": 303.0,
            "energy_j": 303.0 * 50,
            "power_source": "ipmi:dcmi",
            "power_label": "measured",
            "idle_power_w": 180.0,
            "family": "Atom",
            "price": 900,
            "cores": 6,
        }
        assert row == expected

    @given(st.lists(st.floats(0.1, 1e4), min_size=2, max_size=9))
    def test_the_cluster_draws_what_its_nodes_draw(self, watts):
        nodes = [self.watts(f"n{n}", w) for n, w in enumerate(watts)]
        row = self.cluster(nodes)
        assert row["power_w"] == pytest.approx(sum(watts))
        assert row["energy_j"] == pytest.approx(sum(node["energy_j"] for node in nodes))
        assert row == self.cluster(nodes[::-1])

    def test_different_families_are_a_caveat_and_no_family(self):
        nodes = [self.node("n1", family="Atom"), self.node("n2", family="Westmere")]
        row = self.cluster(nodes, family="x")
        assert "family" not in row
        assert "nodes of different families (Atom, Westmere)" in row["notes"]

    def test_watts_that_one_node_lacks_are_not_those_of_the_cluster(self):
        nodes = [self.watts("n1", 100.0), self.node("n2")]
        row = self.cluster(nodes)
        assert "power_w" not in row
        assert "none are known of n2" in row["notes"]

    def test_a_processors_watts_are_not_added_to_a_hosts(self):
        nodes = [self.watts("n1", 100.0), self.watts("n2", 40.0, "rapl:package")]
        row = self.cluster(nodes, domains={"n1": "host", "n2": "package"})
        assert "power_w" not in row
        assert "different scope (host and package)" in row["notes"]

    def test_sources_of_one_scope_are_named_by_their_kinds(self):
        nodes = [self.watts("n1", 100.0, "meter:a"), self.watts("n2", 40.0, "log:b")]
        row = self.cluster(nodes, domains=dict.fromkeys(("n1", "n2"), "wall"))
        assert (row["power_w"], row["power_source"]) == (140.0, "log+meter:wall")

    def test_no_watts_at_all_are_no_note(self):
        nodes = [self.node("n1"), self.node("n2")]
        row = self.cluster(nodes)
        assert "notes" not in row
