"""`ppw run hadoop` as a user runs it: jobs in one process for real, and on a made-up cluster."""

import os
import threading
import time
from contextlib import contextmanager

import pandas as pd
import pytest
from peers import hadoop as peer
from peers.waiting import processes, wait_for
from processes import ppw_inside, ppw_process, refused, started, worked

import ppw
from measurements.workloads.hadoop.install import set_up

ONCE = ("--warm-ups", 0, "--repeats", 1)
QUICK = (*ONCE, "--power", "none")
CLUSTER = ("--mode", "cluster", "--data", "1MB", *ONCE, "-o", "runs.csv")
MB = 1_000_000
with_hadoop = pytest.mark.peer("hadoop")


@pytest.fixture
def scratch(tmp_path):
    """Folder for what jobs leave, which must be empty again when a test is done."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []
    assert processes(str(folder)) == []


@pytest.fixture
def inside(tmp_path, scratch):
    """Run it in this process, with made-up programs for Java, Maven and the cluster's client."""
    made = peer.maven(tmp_path)

    def inside(*given, **more):
        known = {name: made[name] for name in ("PATH", "JAVA_HOME", "PPW_CACHE_DIR")} | more
        return ppw_inside("run", "hadoop", "--scratch", scratch, *given, cwd=tmp_path, **known)

    return inside


@pytest.fixture
def run(tmp_path, scratch):
    """Run it as a process with real jars; its answer and its table."""

    def run(*given, table="runs.csv"):
        asked = ("run", "hadoop", "--scratch", scratch, *given, "-o", table)
        cache = {"PPW_CACHE_DIR": str(set_up().parent)}
        done = worked(ppw_process(*asked, cwd=tmp_path, timeout=1800, **cache))
        return done, ppw.read_runs(tmp_path / table)

    return run


@with_hadoop
class TestLocal:
    def test_a_sweep_makes_a_runs_table(self, run, tmp_path):
        what = ("--workload", "wordcount,terasort", "--data", "2MB,8MB", *QUICK)
        done, runs = run(*what, "--map-slots", 1, "--reduce-slots", 1, "--host", "h")
        assert len(runs) == 4
        expected = {"workload": {"wordcount", "terasort"}, "data_bytes": {2 * MB, 8 * MB}}
        expected |= {"host": {"h"}, "mode": {"local"}, "map_slots": {1}, "map_tasks": {1}}
        for column, values in expected.items():
            assert set(runs[column]) == values
        for column in ("start_up_s", "job_s", "map_phase_s", "reduce_phase_s", "shuffle_task_s"):
            assert (runs[column] >= 0).all(), column
        assert (runs["start_up_s"] + runs["job_s"] < runs["time_s"]).all()
        # The local runner counts no CPU time: it is the process's.
        assert "task_cpu_s" not in runs
        assert (runs["command_user_s"] > 0.5).all()
        assert (runs["map_output_bytes"] > runs["data_bytes"]).all()
        assert "mostly to start Java" in done.stderr
        assert "not measured here: power: no power source was given" in done.stderr
        header, _, *lines = done.stdout.splitlines()
        assert header.split()[:4] == ["workload", "data", "runs", "time"]
        told = [line.split()[:4] for line in lines]
        assert told == [[w, size, "MB", "1"] for w in ("terasort", "wordcount") for size in "28"]
        tasks = sorted((tmp_path / "runs.samples" / "tasks").iterdir())
        assert [path.name for path in tasks] == [f"{n:04}.csv" for n in range(4)]
        assert list(pd.read_csv(tasks[0])["kind"]) == ["MAP", "REDUCE"]

    def test_killed_it_leaves_nothing_and_goes_on_later(self, run, scratch, tmp_path):
        asked = ("--workload", "wordcount", "--data", "4MB,16MB", *QUICK)
        cache = {"PPW_CACHE_DIR": str(set_up().parent)}
        where = ("--scratch", scratch, "-o", "runs.csv")
        with started("run", "hadoop", *where, *asked, cwd=tmp_path, **cache):
            # In the middle of the second job, when the first is in the table.
            second = tmp_path / "runs.samples" / "output" / "0001.txt"
            wait_for(lambda: second.exists() and "Starting task" in second.read_text(), 240)
            assert processes(str(scratch)) != []
        wait_for(lambda: list(scratch.iterdir()) == [])
        assert processes(str(scratch)) == []
        before = (tmp_path / "runs.csv").read_text().splitlines()
        assert len(before) == 2
        run(*asked, "--resume")
        after = (tmp_path / "runs.csv").read_text().splitlines()
        assert (after[1].split(",")[:9], len(after)) == (before[1].split(",")[:9], 3)

    def test_a_sweep_of_settings_has_their_columns(self, run):
        what = ("--data", "1MB", "--map-slots", "1,2", "--compression", "none,zlib", *QUICK)
        _, runs = run(*what, "--memory", "768MiB", "--reduces", 2, table="runs.jsonl")
        pairs = sorted(zip(runs["map_slots"], runs["compression"], strict=True))
        assert pairs == [(1, "none"), (1, "zlib"), (2, "none"), (2, "zlib")]
        assert (set(runs["task_memory_bytes"]), set(runs["reduce_tasks"])) == ({768 * 2**20}, {2})
        by = runs.groupby("compression")["shuffle_bytes"].max()
        assert by["zlib"] < 0.7 * by["none"]

    def test_a_job_that_fails_ends_the_sweep_in_one_line(self, inside):
        bad = ("-D", "mapreduce.task.io.sort.mb=99999", "-o", "runs.csv")
        real = {"PPW_CACHE_DIR": str(set_up().parent), "PATH": os.environ["PATH"]}
        done = inside("--data", "1MB", *QUICK, *bad, **real)
        refused(done, "wordcount, 1 MB", "exit code 1", "99999", "0000.txt")


class TestRefusals:
    def test_setting_up(self, inside, tmp_path):
        for _ in range(2):
            done = inside("--setup")
            assert (done.returncode, done.stdout) == (0, "")
            assert done.stderr.endswith(f"ppw: Hadoop is in {tmp_path}/cache/hadoop-3.4.2\n")
            # Jars that are there are not brought again.
            (tmp_path / "bin" / "mvn").unlink(missing_ok=True)

    def test_what_to_install_and_what_is_not_there_yet(self, inside, tmp_path):
        refused(inside(*QUICK, "-o", "runs.csv"), "ppw run hadoop --setup", "104 MB")
        install = "java is not on the path: apt install default-jdk-headless maven"
        refused(inside(*QUICK, "-o", "runs.csv", PATH=str(tmp_path)), install)
        refused(inside(*CLUSTER, PATH=str(tmp_path)), "hadoop is not on the path")
        inside("--setup")
        refused(inside("--data", "900000GB", *QUICK, "-o", "x.csv"), "--scratch")

    @pytest.mark.cases(
        "given, said",
        ("--workload wordcont", "did you mean 'wordcount'"),
        ("-- jar x.jar", "arguments after --: for --mode cluster"),
        ("--nodes /dev/null", "--nodes: for --mode cluster"),
        ("--mode cluster --freq 1GHz", "cannot set the core frequency"),
        ("--mode cluster --power rapl", "name them with --nodes"),
        ("-D nonsense", "'nonsense' is not NAME=VALUE"),
        ("--mode cluster --workload a,b -- jar x.jar", "your own job can have only one name"),
        ("--mode cluster --memory 1GiB -- jar x.jar", "{options}"),
    )
    def test_wrong_usage(self, inside, given, said):
        done = inside("-o", "x.csv", *given.split())
        refused(done, code=2)
        assert said in " ".join(done.stderr.split())

    def test_nowhere_to_write_and_a_codec_that_hadoops_jars_have_not(self, inside):
        refused(inside(), "no -o FILE", code=2)
        refused(inside("-o", "x.csv", "--compression", "zstd"), "zstd", "none, zlib, snappy")


def spread_history():
    """Tasks on three nodes, one of which was slow and lost an attempt."""
    lines = []
    for task, (node, took_s) in enumerate([("n1", 10), ("n2", 10), ("n3", 25), ("n1", 11)]):
        lines += peer.attempt("MAP", task, node=node, start_s=3, end_s=3 + took_s, cpu_ms=8000)
    lines += peer.attempt("MAP", 2, 1, node="n2", start_s=15, end_s=28, status="KILLED")
    lines += peer.attempt("REDUCE", 0, node="n2", start_s=29, end_s=50, cpu_ms=5000, gc_ms=300)
    totals = peer.counters(DATA_LOCAL_MAPS=4, CPU_MILLISECONDS=37_000, HDFS_BYTES_READ=10**9)
    return peer.history(lines, end_s=52.0, totals=totals)


class TestCluster:
    @pytest.fixture
    def client(self, tmp_path):
        client = peer.Client(tmp_path / "hadoop")
        client.keeps(spread_history())
        return client

    @pytest.fixture
    def asked(self, inside, client, tmp_path):
        """Ask the made-up cluster; the answer and its table."""

        def asked(*given, by=client):
            done = worked(inside(*CLUSTER, *given, PATH=by.path))
            return done, ppw.read_runs(tmp_path / "runs.csv")

        return asked

    # Where histories are, and where they are moved to.
    @pytest.mark.parametrize("place", ["/done_intermediate/", "/done/"])
    def test_a_row_a_node_and_one_of_the_cluster(self, asked, client, place):
        client.keeps(spread_history(), place=place)
        runs = asked("--cluster", "rack7")[1].set_index("host")
        assert list(runs.index) == ["n1", "n2", "n3", "cluster:rack7"]
        for column, values in {
            "map_tasks": [2, 1, 1, 4],
            "reduce_tasks": [0, 1, 0, 1],
            "task_cpu_s": [16, 13, 8, 37],
            "wasted_attempts": [0, 1, 0, 1],
            "map_task_max_s": [11, 10, 25, 25],
            "job_s": [52.0] * 4,
        }.items():
            assert list(runs[column]) == values, column
        assert len(set(runs["time_s"])) == 1
        whole = runs.loc["cluster:rack7"]
        assert (whole["nodes"], whole["master"], whole["data_local_share"]) == (3, "node0", 1.0)
        assert whole["dfs_read_bytes"] == 1e9
        # Nothing of the host on which the client ran is taken for a node's.
        assert not {"user_s", "cpu_model", "cores", "freq_hz"} & set(runs.columns)

    def test_the_client_is_told_what_to_do_and_tidies_up(self, asked, client):
        asked("--workload", "terasort,wordcount", "--map-slots", 4, "--memory", "2GiB")
        calls = client.calls()
        made = [call for call in calls if call[:1] == ["jar"]]
        assert all(call[1].endswith("hadoop-mapreduce-examples-3.4.2.jar") for call in made)
        assert made[0][2] == "teragen"
        assert {call[2] for call in made} == {"teragen", "terasort", "wordcount"}
        assert all("-Dmapreduce.job.running.map.limit=4" in call for call in made[1:])
        assert all("-Dmapreduce.map.memory.mb=2048" in call for call in made[1:])
        (folder,) = {call[-1].partition("/")[0] for call in made}
        assert calls[-1] == ["fs", "-rm", "-r", "-f", "-skipTrash", folder]
        assert list(client.store.iterdir()) == []

    def test_any_job_with_its_own_arguments(self, asked, client):
        job = ["jar", "nutch.job", "Index", "{options}", "{input}", "{data}", "{output}"]
        what = ("--workload", "crawl", "-D", "my.own=1", "--reduces", 7)
        _, runs = asked(*what, "--", *job)
        (call,) = [call for call in client.calls() if call[:1] == ["jar"]]
        assert call[:3] == ["jar", "nutch.job", "Index"]
        assert {"-Dmapreduce.job.reduces=7", "-Dmy.own=1"} <= set(call)
        source, size, target = call[-3:]
        assert (source.endswith("text-1000000"), size) == (True, "1000000")
        assert target.endswith("/output-1")
        assert set(runs["workload"]) == {"crawl"}

    def test_without_a_history_the_counters_remain_and_it_is_said(self, asked, tmp_path):
        done, runs = asked(by=peer.Client(tmp_path / "forgetful"))
        assert "no job history" in done.stderr
        assert "not measured here: power: this host's power is not that" in done.stderr
        assert "No such file or directory" in done.stderr
        (row,) = runs.to_dict(orient="records")
        assert (row["host"], row["task_cpu_s"]) == ("cluster:hadoop", 4.2)

    @pytest.mark.peer("measure")
    def test_nodes_with_sensors_and_families(self, asked, tmp_path):
        # Long enough for several figures of each log.
        client = peer.Client(tmp_path / "slow", seconds=2)
        client.keeps(spread_history())
        watts = {"n1": 50.0, "n2": 60.5, "n3": 70.0}
        family = {"n1": "Atom", "n2": "Atom", "n3": "Westmere"}
        lines = [f"{n},log@{tmp_path}/{n}.csv,{family[n]},100,2" for n in watts]
        nodes = tmp_path / "nodes.csv"
        nodes.write_text("\n".join(["host,power,family,price,cores", *lines, ""]))
        with power_logs({tmp_path / f"{name}.csv": value for name, value in watts.items()}):
            done, runs = asked("--nodes", nodes, "--idle", "1s", by=client)
        runs = runs.set_index("host")
        assert dict(runs["power_w"]) == pytest.approx({**watts, "cluster:hadoop": 180.5})
        whole = runs.loc["cluster:hadoop"]
        assert whole["energy_j"] == pytest.approx(180.5 * whole["time_s"])
        assert whole["idle_power_w"] == pytest.approx(180.5)
        assert (whole["price"], whole["cores"]) == (300, 6)
        assert "different families (Atom, Westmere)" in whole["notes"]
        assert "different families" in done.stderr
        assert "not measured here: power" not in done.stderr

    @pytest.mark.peer("kill")
    @pytest.mark.parametrize(
        ("workload", "log"),
        [("wordcount", "runs.samples/output/0000.txt"), ("terasort", "scratch/ppw-*/client.log")],
        ids=["in a run", "in making the input"],
    )
    def test_killed_it_ends_the_job_and_tidies_up(self, scratch, tmp_path, workload, log):
        client = peer.Client(tmp_path / "hadoop", seconds=600)
        asked = ("run", "hadoop", "--scratch", scratch, *CLUSTER, "--workload", workload)
        with started(*asked, cwd=tmp_path, PATH=client.path):
            wait_for(lambda: any("Running job" in path.read_text() for path in tmp_path.glob(log)))
        wait_for(lambda: len(client.calls()) > 1 and client.calls()[-1][:2] == ["fs", "-rm"])
        assert client.calls()[-2] == ["job", "-kill", peer.JOB]
        for folder in (client.store, scratch):
            wait_for(lambda folder=folder: list(folder.iterdir()) == [])
        wait_for(lambda: processes(str(client.bin)) == [])


@contextmanager
def power_logs(watts):
    """Logs that another program writes ten times a second, each of constant watts."""
    for path in watts:
        path.write_text("time,power_w\n")
    ended = threading.Event()

    def write():
        while not ended.wait(0.1):
            for path, value in watts.items():
                with path.open("a") as file:
                    file.write(f"{time.time():.3f},{value}\n")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        # The reader wants to see how often a figure comes.
        time.sleep(1)
        yield
    finally:
        ended.set()
        thread.join()


@with_hadoop
@pytest.mark.slow
class TestYarn:
    def test_a_cluster_of_this_machine(self, run, tmp_path):
        what = ("--mode", "yarn", "--workload", "terasort", "--data", "16MB", *ONCE)
        slots = ("--map-slots", 2, "--reduce-slots", 1, "--cluster", "desk", "--host", "h")
        log = tmp_path / "watts.csv"
        watts = ("--power", f"log@{log}", "--idle", "1s", "--family", "Atom", "--price", 300)
        with power_logs({log: 42.0}):
            _, runs = run(*what, *slots, *watts)
        assert list(runs["host"]) == ["h", "cluster:desk"]
        node, whole = (runs[runs["host"] == name] for name in ("h", "cluster:desk"))
        for column in ("workload", "time_s", "task_cpu_s", "family", "price", "power_w"):
            assert list(node[column]) == list(whole[column]), column
        assert list(whole["power_w"]) == pytest.approx([42.0])
        assert list(whole[["master", "nodes"]].iloc[0]) == ["h", 1]
        assert set(runs["mode"]) == {"yarn"}
        assert (runs["data_local_share"] == 1.0).all()
        assert (runs["task_cpu_s"] > 1).all()
        assert (runs["job_s"] < runs["time_s"]).all()
        assert "command_user_s" not in runs

    def test_killed_the_cluster_ends_too(self, scratch, tmp_path):
        asked = ("--scratch", scratch, "--mode", "yarn", "--data", "16MB", *QUICK)
        cache = {"PPW_CACHE_DIR": str(set_up().parent)}
        with started("run", "hadoop", *asked, "-o", "runs.csv", cwd=tmp_path, **cache):
            output = tmp_path / "runs.samples" / "output" / "0000.txt"
            wait_for(lambda: output.exists() and "map 0%" in output.read_text(), 240)
            assert len(processes(str(scratch))) > 2
        wait_for(lambda: list(scratch.iterdir()) == [])
        assert processes(str(scratch)) == []
