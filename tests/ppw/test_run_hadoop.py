"""`ppw run hadoop` as a user runs it: jobs in one process for real, and on a made-up cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from peers import hadoop as peer
from processes import environment, ppw_process

import ppw
from ppw.data_size import project_data_size

QUICK = ("--warm-ups", 0, "--repeats", 1, "--power", "none")
MB = 1_000_000
# Of a busy host; what is waited for is there at once on an idle one.
PATIENCE_S = 240.0


def jars(**more):
    """Where jars are kept already, with what else the environment has."""
    return {"PPW_CACHE_DIR": str(peer.jars().parent), **more}


def command(*arguments):
    return [sys.executable, "-W", "error", "-m", "ppw", "run", "hadoop", *map(str, arguments)]


@pytest.fixture
def scratch(tmp_path):
    """Folder for what jobs leave, which must be empty again when a test is done."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []
    assert processes(str(folder)) == []


@pytest.fixture
def run(tmp_path, scratch):
    def run(*arguments, timeout=1800, **more):
        asked = ("run", "hadoop", "--scratch", scratch, *arguments)
        return ppw_process(*asked, cwd=tmp_path, timeout=timeout, **jars(**more))

    return run


def processes(word: str) -> list[str]:
    """Command lines of other processes that have a word in them."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found += [line] if word in line else []
        except (OSError, UnicodeDecodeError):
            continue
    return found


def until(true):
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.05)


def refused(done, *said, code=1):
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ppw: error: " if code == 1 else "Error: ")
    assert "Traceback" not in done.stderr
    for text in said:
        assert text in last


class TestLocal:
    def test_a_sweep_makes_a_runs_table(self, run, tmp_path):
        done = run(
            *("--workload", "wordcount,terasort", "--data", "2MB,8MB", *QUICK),
            *("--map-slots", 1, "--reduce-slots", 1, "--host", "h", "-o", "runs.csv"),
        )
        assert done.returncode == 0, done.stderr
        runs = ppw.read_runs(tmp_path / "runs.csv")
        assert len(runs) == 4
        assert set(runs["workload"]) == {"wordcount", "terasort"}
        assert set(runs["data_bytes"]) == {2 * MB, 8 * MB}
        assert set(runs["host"]) == {"h"}
        assert set(runs["mode"]) == {"local"}
        assert set(runs["map_slots"]) == {1}
        assert set(runs["map_tasks"]) == {1}
        for column in ("start_up_s", "job_s", "map_phase_s", "reduce_phase_s", "shuffle_task_s"):
            assert (runs[column] >= 0).all(), column
        assert (runs["start_up_s"] + runs["job_s"] < runs["time_s"]).all()
        # The local runner counts no CPU time: it is the process's.
        assert "task_cpu_s" not in runs
        assert (runs["command_user_s"] > 0.5).all()
        assert (runs["map_output_bytes"] > runs["data_bytes"]).all()
        assert "whatever the data" in done.stderr
        assert "not measured here: power: none was asked for" in done.stderr
        header, _, *lines = done.stdout.splitlines()
        assert header.split()[:4] == ["workload", "data", "runs", "time"]
        assert [line.split()[:4] for line in lines] == [
            [workload, size, "MB", "1"] for workload in ("terasort", "wordcount") for size in "28"
        ]
        tasks = sorted((tmp_path / "runs.samples" / "tasks").iterdir())
        assert [path.name for path in tasks] == [f"{n:04}.csv" for n in range(4)]
        assert list(pd.read_csv(tasks[0])["kind"]) == ["MAP", "REDUCE"]

    def test_killed_it_leaves_nothing_and_goes_on_later(self, run, scratch, tmp_path):
        asked = (
            *("--workload", "wordcount", "--data", "4MB,16MB", "--warm-ups", 0, "--repeats", 1),
            *("--power", "none", "-o", tmp_path / "runs.csv"),
        )
        process = subprocess.Popen(
            command("--scratch", scratch, *asked),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(**jars()),
        )
        output = tmp_path / "runs.samples" / "output"
        try:
            # In the middle of the second job, when the first is in the table.
            second = output / "0001.txt"
            until(lambda: second.exists() and "Starting task" in second.read_text())
            assert processes(str(scratch)) != []
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        until(lambda: list(scratch.iterdir()) == [])
        assert processes(str(scratch)) == []
        before = (tmp_path / "runs.csv").read_text().splitlines()
        assert len(before) == 2
        done = run(*asked, "--resume")
        assert done.returncode == 0, done.stderr
        after = (tmp_path / "runs.csv").read_text().splitlines()
        assert after[1].split(",")[:9] == before[1].split(",")[:9]
        assert len(after) == 3

    def test_a_job_that_fails_ends_the_sweep_in_one_line(self, run):
        bad = ("-D", "mapreduce.task.io.sort.mb=99999")
        done = run("--data", "1MB", *QUICK, *bad, "-o", "runs.csv")
        refused(done, "wordcount, 1 MB", "exit code 1", "99999", "0000.txt")

    def test_a_sweep_of_settings_has_their_columns(self, run, tmp_path):
        done = run(
            *("--data", "1MB", "--map-slots", "1,2", "--compression", "none,zlib", *QUICK),
            *("--memory", "768MiB", "--reduces", 2, "-o", "runs.jsonl"),
        )
        assert done.returncode == 0, done.stderr
        runs = ppw.read_runs(tmp_path / "runs.jsonl")
        pairs = sorted(zip(runs["map_slots"], runs["compression"], strict=True))
        assert pairs == [(1, "none"), (1, "zlib"), (2, "none"), (2, "zlib")]
        assert set(runs["task_memory_bytes"]) == {768 * 2**20}
        assert set(runs["reduce_tasks"]) == {2}
        by = runs.groupby("compression")["shuffle_bytes"].max()
        assert by["zlib"] < 0.7 * by["none"]


class TestRefusals:
    @pytest.mark.parametrize("missing", ["java", "mvn"])
    def test_what_to_install(self, run, tmp_path, missing):
        programs = tmp_path / "bin"
        programs.mkdir()
        if missing == "mvn":
            java = programs / "java"
            java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
            java.chmod(0o755)
        alone = {"PATH": str(programs), "JAVA_HOME": "", "PPW_CACHE_DIR": str(tmp_path / "cache")}
        install = "apt install default-jdk-headless maven"
        refused(run("--setup", **alone), missing, install)

    def test_no_java_to_run_jobs_with(self, run, tmp_path):
        done = run(*QUICK, "-o", "runs.csv", PATH=str(tmp_path), JAVA_HOME="")
        refused(done, "java is not on the path: apt install default-jdk-headless maven")

    def test_jars_that_were_not_brought(self, run, tmp_path):
        done = run(*QUICK, "-o", "runs.csv", PPW_CACHE_DIR=str(tmp_path / "cache"))
        refused(done, "ppw run hadoop --setup", "104 MB")

    def test_jars_that_are_there_are_not_brought_again(self, run):
        done = run("--setup")
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == f"ppw: Hadoop is in {peer.jars()}\n"

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--workload", "wordcont", "-o", "x.csv"], "did you mean 'wordcount'"),
            ([], "no -o FILE"),
            (["-o", "x.csv", "--", "jar", "x.jar"], "arguments after --: for --mode cluster"),
            (["-o", "x.csv", "--nodes", "/dev/null"], "--nodes: for --mode cluster"),
            (["-o", "x.csv", "--mode", "cluster", "--freq", "1GHz"], "cannot be set from here"),
            (["-o", "x.csv", "--mode", "cluster", "--power", "rapl"], "name them by --nodes"),
            (["-o", "x.csv", "-D", "nonsense"], "'nonsense' is not NAME=VALUE"),
            (["-o", "x.csv", "--data", "0"], "a size of nothing"),
            (["-o", "x.csv", "--window", "3"], "--window"),
            (
                [*("-o", "x.csv", "--mode", "cluster", "--workload", "a,b"), "--", "jar", "x.jar"],
                "one job of your own has one name",
            ),
            (
                ["-o", "x.csv", "--mode", "cluster", "--memory", "1GiB", "--", "jar", "x.jar"],
                "{options}",
            ),
        ],
    )
    def test_wrong_usage(self, run, arguments, said):
        done = run(*arguments)
        refused(done, code=2)
        assert said in " ".join(done.stderr.split())

    def test_a_codec_that_hadoops_jars_have_not(self, run):
        refused(run("-o", "x.csv", "--compression", "zstd"), "zstd", "none, zlib, snappy")

    def test_no_cluster(self, run, tmp_path):
        done = run("--mode", "cluster", *QUICK[:-2], "-o", "x.csv", PATH=str(tmp_path))
        refused(done, "hadoop is not on the path")

    def test_a_disk_that_is_too_small(self, run):
        refused(run("--data", "900000GB", *QUICK, "-o", "x.csv"), "--scratch")


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
        return peer.Client(tmp_path / "hadoop")

    def test_a_row_a_node_and_one_of_the_cluster(self, run, client, tmp_path):
        client.keeps(spread_history())
        done = run(
            *(
                "--mode",
                "cluster",
                "--cluster",
                "rack7",
                "--workload",
                "wordcount",
                "--data",
                "1MB",
            ),
            *(*QUICK[:-2], "-o", "runs.csv"),
            PATH=client.path,
        )
        assert done.returncode == 0, done.stderr
        runs = ppw.read_runs(tmp_path / "runs.csv").set_index("host")
        assert list(runs.index) == ["n1", "n2", "n3", "cluster:rack7"]
        assert list(runs["map_tasks"]) == [2, 1, 1, 4]
        assert list(runs["reduce_tasks"]) == [0, 1, 0, 1]
        assert list(runs["task_cpu_s"]) == [16, 13, 8, 37]
        assert list(runs["wasted_attempts"]) == [0, 1, 0, 1]
        assert list(runs["map_task_max_s"]) == [11, 10, 25, 25]
        assert set(runs["job_s"]) == {52.0}
        assert len(set(runs["time_s"])) == 1
        whole = runs.loc["cluster:rack7"]
        assert (whole["nodes"], whole["master"], whole["data_local_share"]) == (3, "node0", 1.0)
        assert whole["dfs_read_bytes"] == 1e9
        # Nothing of the host on which the client ran is taken for a node's.
        assert not {"user_s", "cpu_model", "cores", "freq_hz"} & set(runs.columns)

    def test_the_client_is_told_what_to_do_and_tidies_up(self, run, client, tmp_path):
        client.keeps(spread_history())
        done = run(
            *("--mode", "cluster", "--workload", "terasort,wordcount", "--data", "1MB"),
            *("--map-slots", 4, "--memory", "2GiB", *QUICK[:-2], "-o", "runs.csv"),
            PATH=client.path,
        )
        assert done.returncode == 0, done.stderr
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

    def test_any_job_with_its_own_arguments(self, run, client, tmp_path):
        client.keeps(spread_history())
        job = ["jar", "nutch.job", "Index", "{options}", "{input}", "{data}", "{output}"]
        done = run(
            *("--mode", "cluster", "--workload", "crawl", "--data", "3MB", "-D", "my.own=1"),
            *("--reduces", 7, *QUICK[:-2], "-o", "runs.csv", "--", *job),
            PATH=client.path,
        )
        assert done.returncode == 0, done.stderr
        (call,) = [call for call in client.calls() if call[:1] == ["jar"]]
        assert call[:3] == ["jar", "nutch.job", "Index"]
        assert {"-Dmapreduce.job.reduces=7", "-Dmy.own=1"} <= set(call)
        source, size, target = call[-3:]
        assert (source.endswith("text-3000000"), size) == (True, "3000000")
        assert target.endswith("/output-1")
        assert set(ppw.read_runs(tmp_path / "runs.csv")["workload"]) == {"crawl"}

    def test_without_a_history_the_counters_remain_and_it_is_said(self, run, client, tmp_path):
        done = run(
            *("--mode", "cluster", "--data", "1MB", *QUICK[:-2], "-o", "runs.csv"),
            PATH=client.path,
        )
        assert done.returncode == 0, done.stderr
        assert "no job history" in done.stderr
        assert "not measured here: power: this host's watts are not those" in done.stderr
        assert "No such file or directory" in done.stderr
        (row,) = ppw.read_runs(tmp_path / "runs.csv").to_dict(orient="records")
        assert (row["host"], row["task_cpu_s"]) == ("cluster:hadoop", 4.2)

    def test_a_history_that_was_moved_is_found(self, run, client, tmp_path):
        client.keeps(spread_history(), place="/done/")
        done = run(
            *("--mode", "cluster", "--data", "1MB", *QUICK[:-2], "-o", "runs.csv"),
            PATH=client.path,
        )
        assert done.returncode == 0, done.stderr
        assert len(ppw.read_runs(tmp_path / "runs.csv")) == 4

    def test_nodes_with_sensors_and_families(self, run, tmp_path):
        # Long enough for several figures of each log.
        client = peer.Client(tmp_path / "slow", seconds=2)
        client.keeps(spread_history())
        watts = {"n1": 50.0, "n2": 60.5, "n3": 70.0}
        family = {"n1": "Atom", "n2": "Atom", "n3": "Westmere"}
        lines = [f"{n},log@{tmp_path}/{n}.csv,{family[n]},100,2" for n in watts]
        nodes = tmp_path / "nodes.csv"
        nodes.write_text("\n".join(["host,power,family,price,cores", *lines, ""]))
        with power_logs({tmp_path / f"{name}.csv": value for name, value in watts.items()}):
            done = run(
                *("--mode", "cluster", "--data", "1MB", "--nodes", nodes, "--idle", "1s"),
                *(*QUICK[:-2], "-o", "runs.csv"),
                PATH=client.path,
            )
        assert done.returncode == 0, done.stderr
        runs = ppw.read_runs(tmp_path / "runs.csv").set_index("host")
        assert dict(runs["power_w"]) == pytest.approx({**watts, "cluster:hadoop": 180.5})
        whole = runs.loc["cluster:hadoop"]
        assert whole["energy_j"] == pytest.approx(180.5 * whole["time_s"])
        assert whole["idle_power_w"] == pytest.approx(180.5)
        assert (whole["price"], whole["cores"]) == (300, 6)
        assert "different families (Atom, Westmere)" in whole["notes"]
        assert "different families" in done.stderr
        assert "not measured here: power" not in done.stderr

    @pytest.mark.parametrize(
        ("workload", "log"),
        [("wordcount", "runs.samples/output/0000.txt"), ("terasort", "scratch/ppw-*/client.log")],
        ids=["in a run", "in making the input"],
    )
    def test_killed_it_ends_the_job_and_tidies_up(self, scratch, tmp_path, workload, log):
        client = peer.Client(tmp_path / "hadoop", seconds=60)
        process = subprocess.Popen(
            command(
                *("--scratch", scratch, "--mode", "cluster", "--data", "1MB", *QUICK[:-2]),
                *("--workload", workload, "-o", tmp_path / "runs.csv"),
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(**jars(PATH=client.path)),
        )
        try:
            until(lambda: any("Running job" in path.read_text() for path in tmp_path.glob(log)))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        until(lambda: len(client.calls()) > 1 and client.calls()[-1][:2] == ["fs", "-rm"])
        assert client.calls()[-2] == ["job", "-kill", peer.JOB]
        until(lambda: list(client.store.iterdir()) == [])
        until(lambda: list(scratch.iterdir()) == [])
        until(lambda: processes(str(client.bin)) == [])


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


@pytest.mark.slow
class TestSlow:
    # Where other programs disturb one of the runs, the times lie on no line, which is said.
    @pytest.mark.filterwarnings("ignore::ppw.CaveatWarning")
    def test_four_sizes_and_the_largest_projected_from_the_others(self, run, tmp_path):
        done = run(
            *("--workload", "wordcount,terasort", "--data", "64MB,128MB,256MB,512MB"),
            *("--map-slots", 1, "--reduce-slots", 1, *QUICK, "-o", "runs.csv"),
        )
        assert done.returncode == 0, done.stderr
        runs = ppw.read_runs(tmp_path / "runs.csv")
        assert len(runs) == 8
        found = project_data_size(runs, data_bytes=512 * MB)
        assert list(found.table["workload"]) == ["terasort", "wordcount"]
        assert (found.table["projected"] > 0).all()
        assert found.coverage is not None
        # Of CPU time, which other programs on this host change less than the time that passes.
        cpu_s = runs["command_user_s"] + runs["command_system_s"]
        found = project_data_size(runs.assign(time_s=cpu_s), data_bytes=512 * MB)
        wordcount = found.table.set_index("workload").loc["wordcount"]
        assert abs(wordcount["error_pct"]) < 10
        assert wordcount["rate_bytes_s"] < 100 * MB

    def test_a_cluster_of_this_machine(self, run, tmp_path):
        log = tmp_path / "watts.csv"
        with power_logs({log: 42.0}):
            done = run(
                *("--mode", "yarn", "--workload", "terasort", "--data", "16MB"),
                *("--map-slots", 2, "--reduce-slots", 1, "--cluster", "desk", "--host", "h"),
                *(*QUICK[:-2], "--power", f"log@{log}", "--idle", "1s"),
                *("--family", "Atom", "--price", 300, "-o", "runs.csv"),
            )
        assert done.returncode == 0, done.stderr
        runs = ppw.read_runs(tmp_path / "runs.csv")
        assert list(runs["host"]) == ["h", "cluster:desk"]
        node, whole = (runs[runs["host"] == name] for name in ("h", "cluster:desk"))
        for column in ("workload", "time_s", "task_cpu_s", "family", "price", "power_w"):
            assert list(node[column]) == list(whole[column]), column
        assert list(whole["power_w"]) == pytest.approx([42.0])
        assert set(whole["master"]) == {"h"}
        assert set(whole["nodes"]) == {1}
        assert set(runs["mode"]) == {"yarn"}
        assert (runs["data_local_share"] == 1.0).all()
        assert (runs["task_cpu_s"] > 1).all()
        assert (runs["job_s"] < runs["time_s"]).all()
        assert "command_user_s" not in runs

    def test_killed_the_cluster_ends_too(self, scratch, tmp_path):
        process = subprocess.Popen(
            command(
                *("--scratch", scratch, "--mode", "yarn", "--data", "16MB", *QUICK),
                *("-o", tmp_path / "runs.csv"),
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(**jars()),
        )
        try:
            output = tmp_path / "runs.samples" / "output" / "0000.txt"
            until(lambda: output.exists() and "map 0%" in output.read_text())
            assert len(processes(str(scratch))) > 2
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        until(lambda: list(scratch.iterdir()) == [])
        assert processes(str(scratch)) == []
