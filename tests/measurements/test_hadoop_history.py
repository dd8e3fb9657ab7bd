"""Job histories and counters: recorded by Hadoop 3.4.2, and written by hand for what was not."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers.hadoop import JOB, attempt, counters, event, history

from measurements.errors import MeasurementError
from measurements.workloads.hadoop.counters import CPU_MS, GC_MS, Counter, printed_counters
from measurements.workloads.hadoop.engine import first_complaint
from measurements.workloads.hadoop.figures import job_columns, node_columns, write_tasks
from measurements.workloads.hadoop.history import parse_history, read_history
from measurements.workloads.hadoop.local_log import read_local_log

DATA = Path(__file__).parent / "data" / "hadoop"


@pytest.fixture(scope="module")
def pi():
    """Hadoop's own estimator of π, two maps and one reduce, on a one-machine cluster."""
    return read_history(DATA / "pi.jhist")


class TestRecordedHistory:
    def test_job(self, pi):
        assert (pi.name, pi.user, pi.status) == ("QuasiMonteCarlo", "root", "SUCCEEDED")
        assert pi.job_id == "job_1795250053716_0001"
        assert pi.master == "localhost"
        # Typed from the file: submitted 1795250059541, finished 1795250079353.
        assert pi.elapsed_s == pytest.approx(19.812, abs=1e-6)
        assert pi.launched_s - pi.submitted_s == pytest.approx(6.239, abs=1e-6)

    def test_phases_of_the_reduce(self, pi):
        (reduce,) = pi.done("REDUCE")
        # Typed from the file: 1795250075983, 8880, 8915, 9279 in milliseconds.
        assert reduce.shuffle_s == pytest.approx(2.897)
        assert reduce.sort_s == pytest.approx(0.035)
        assert reduce.reduce_s == pytest.approx(0.363)
        assert reduce.elapsed_s == pytest.approx(3.295)
        assert reduce.locality == "OFF_SWITCH"

    def test_tasks_add_up_to_what_hadoop_says_of_the_job(self, pi):
        done = [*pi.done("MAP"), *pi.done("REDUCE")]
        assert sum(a.cpu_s for a in done) == pytest.approx(1e-3 * pi.counters[CPU_MS])
        assert sum(a.gc_s for a in done) == pytest.approx(1e-3 * pi.counters[GC_MS])
        for kind, name in (("MAP", "MILLIS_MAPS"), ("REDUCE", "MILLIS_REDUCES")):
            took = sum(a.elapsed_s for a in pi.done(kind))
            assert took == pytest.approx(1e-3 * pi.counters[Counter("JobCounter", name)])

    def test_columns(self, pi):
        columns = job_columns(pi)
        expected = {
            "job_s": 19.812,
            "map_task_s": 5.096,
            "shuffle_task_s": 2.897,
            "reduce_task_s": 0.363,
            "task_cpu_s": 1.77,
            "map_cpu_s": 1.05,
            "reduce_cpu_s": 0.72,
            "gc_s": 0.114,
            "input_bytes": 236,
            "output_bytes": 97,
            "shuffle_bytes": 56,
            "file_read_bytes": 50,
            "dfs_read_bytes": 528,
            "dfs_written_bytes": 215,
            "data_local_share": 1.0,
            "map_tasks": 2,
            "reduce_tasks": 1,
            "wasted_attempts": 0,
        }
        assert {name: columns[name] for name in expected} == pytest.approx(expected)

    def test_one_node_did_it_all(self, pi):
        whole, (name, node) = job_columns(pi), *node_columns(pi).items()
        assert name == "localhost"
        for column in ("job_s", "map_phase_s", "reduce_task_s", "task_cpu_s", "dfs_read_bytes"):
            assert node[column] == pytest.approx(whole[column]), column

    def test_a_table_of_tasks(self, pi, tmp_path):
        write_tasks(pi, tmp_path / "tasks.csv")
        with (tmp_path / "tasks.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["kind"] for row in rows] == ["MAP", "MAP", "REDUCE"]
        assert {row["status"] for row in rows} == {"SUCCEEDED"}
        assert rows[2]["start_s"] == "16.442"
        assert rows[2]["shuffle_s"] == "2.897"
        assert rows[0]["shuffle_s"] == ""


class TestHandWritten:
    def test_an_attempt_that_failed_and_one_that_was_killed_do_not_count(self):
        lines = [
            *attempt("MAP", 0, 0, node="a", start_s=3, end_s=5, status="FAILED", cpu_ms=900),
            *attempt("MAP", 0, 1, node="b", start_s=5, end_s=9, cpu_ms=3000),
            *attempt("MAP", 1, 0, node="a", start_s=3, end_s=7, cpu_ms=2000),
            *attempt("MAP", 1, 1, node="b", start_s=6, end_s=7, status="KILLED", cpu_ms=500),
        ]
        job = parse_history(history(lines), "here")
        columns = job_columns(job)
        assert columns["map_tasks"] == 2
        assert columns["wasted_attempts"] == 2
        assert columns["map_task_s"] == pytest.approx(4.0)
        assert columns["map_phase_s"] == pytest.approx(6.0)
        nodes = node_columns(job)
        assert nodes["a"]["task_cpu_s"] == pytest.approx(2.0)
        assert nodes["b"]["task_cpu_s"] == pytest.approx(3.0)
        assert nodes["b"]["wasted_attempts"] == 1

    def test_a_task_that_ran_again_counts_by_its_last_end(self):
        # Its first attempt succeeded, and its output was lost with its node.
        lines = [
            *attempt("MAP", 0, 0, node="a", start_s=3, end_s=5),
            *attempt("MAP", 0, 1, node="b", start_s=8, end_s=11),
        ]
        (done,) = parse_history(history(lines), "here").done("MAP")
        assert done.node == "b"
        assert done.elapsed_s == pytest.approx(3.0)

    def test_local_maps_by_counter_and_by_node(self):
        lines = [
            *attempt("MAP", 0, node="a", start_s=1, end_s=2),
            *attempt("MAP", 1, node="b", start_s=1, end_s=2, locality="RACK_LOCAL"),
            *attempt("MAP", 2, node="b", start_s=1, end_s=2),
            *attempt("MAP", 3, node="b", start_s=1, end_s=2, locality="OFF_SWITCH"),
        ]
        totals = counters(DATA_LOCAL_MAPS=2, RACK_LOCAL_MAPS=1, OTHER_LOCAL_MAPS=1)
        job = parse_history(history(lines, totals=totals), "here")
        assert job_columns(job)["data_local_share"] == pytest.approx(0.5)
        nodes = node_columns(job)
        assert nodes["a"]["data_local_share"] == 1.0
        assert nodes["b"]["data_local_share"] == pytest.approx(1 / 3)

    def test_no_map_was_counted_so_no_share_is_told(self):
        assert "data_local_share" not in job_columns(parse_history(history([]), "here"))

    def test_a_job_that_failed_says_why(self):
        end = event(
            "JOB_FAILED",
            "JobUnsuccessfulCompletion",
            jobid=JOB,
            finishTime=1_700_000_009_000,
            jobStatus="FAILED",
            diagnostics={"string": "Task failed task_1_m_0"},
        )
        lines = history([]).splitlines()
        job = parse_history("\n".join([*lines[:-1], end]), "here")
        assert (job.status, job.reason) == ("FAILED", "Task failed task_1_m_0")
        assert job.elapsed_s == pytest.approx(9.0)

    def test_the_last_master_is_the_master(self):
        again = event("AM_STARTED", "AMStarted", nodeManagerHost="node3")
        assert parse_history(history([again]), "here").master == "node3"

    def test_a_history_that_breaks_off_has_no_end(self):
        whole = history(attempt("MAP", 0, node="a", start_s=1, end_s=2))
        job = parse_history(whole[: whole.index('"JOB_FINISHED"') + 40], "here")
        assert job.status is None
        assert job.elapsed_s is None
        assert len(job.done("MAP")) == 1
        assert "job_s" not in job_columns(job)

    def test_what_is_not_known_is_not_zero(self):
        lines = history(attempt("MAP", 0, node="a", start_s=1, end_s=2)).replace(
            '"finishTime": 1700000002000', '"finishTime": -1'
        )
        columns = job_columns(parse_history(lines, "here"))
        assert "map_task_s" not in columns
        assert columns["map_tasks"] == 1

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("Avro-Binary\n\x00\x01", "-Dmapreduce.jobhistory.jhist.format=json"),
            ("Hello\nthere", "its first line is 'Hello'"),
            ("", "its first line is ''"),
            ("Avro-Json\n{}\n", "no event in it names a job"),
            ("Avro-Json\n{}\nnonsense\n" + "\n".join(history([]).splitlines()[2:]), "line 3"),
        ],
    )
    def test_what_is_no_history_is_refused(self, text, said, tmp_path):
        path = tmp_path / "job.jhist"
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(MeasurementError, match=str(path)) as caught:
            read_history(path)
        assert said in str(caught.value)

    def test_a_history_that_is_not_there(self, tmp_path):
        with pytest.raises(MeasurementError, match="cannot be read: No such file"):
            read_history(tmp_path / "none.jhist")

    @given(
        tasks=st.lists(
            st.tuples(
                st.sampled_from(["MAP", "REDUCE"]),
                st.sampled_from(["a", "b", "c"]),
                st.floats(0, 50),
                st.floats(0.003, 9),
                st.integers(0, 10_000),
            ),
            min_size=1,
            max_size=12,
        )
    )
    def test_nodes_add_up_to_the_job(self, tasks):
        lines = []
        for number, (kind, node, start_s, took_s, cpu_ms) in enumerate(tasks):
            end_s = start_s + took_s
            lines += attempt(kind, number, node=node, start_s=start_s, end_s=end_s, cpu_ms=cpu_ms)
        total_ms = sum(cpu_ms for *_, cpu_ms in tasks)
        job = parse_history(history(lines, totals=counters(CPU_MILLISECONDS=total_ms)), "here")
        whole, nodes = job_columns(job), node_columns(job)
        for column in ("task_cpu_s", "map_tasks", "reduce_tasks"):
            assert sum(n[column] for n in nodes.values()) == pytest.approx(whole[column])
        for phase in ("map_phase_s", "reduce_phase_s"):
            assert max(n.get(phase, 0.0) for n in nodes.values()) <= whole.get(phase, 0.0) + 1e-9
        for reduce in job.done("REDUCE"):
            parts = (reduce.shuffle_s, reduce.sort_s, reduce.reduce_s)
            assert sum(parts) == pytest.approx(reduce.elapsed_s, abs=2e-3)


class TestPrintedCounters:
    @pytest.mark.parametrize("name", ["wordcount", "terasort"])
    def test_as_many_as_the_client_says_are_read(self, name):
        lines = (DATA / f"{name}.log").read_text().splitlines()
        (said,) = [int(line.rpartition(" ")[2]) for line in lines if "Job: Counters: " in line]
        assert len(printed_counters(lines)) == said == 55

    def test_known_ones_have_the_names_of_a_history(self):
        found = printed_counters((DATA / "terasort.log").read_text().splitlines())
        assert found[Counter("JobCounter", "DATA_LOCAL_MAPS")] == 2
        assert found[Counter("FileSystemCounter", "HDFS_BYTES_READ")] == 268435606
        assert found[Counter("FileSystemCounter", "FILE_BYTES_WRITTEN")] == 838406039
        assert found[Counter("FileInputFormatCounter", "BYTES_READ")] == 268435400
        assert found[Counter("TaskCounter", "MAP_INPUT_RECORDS")] == 2684354

    def test_counters_of_one_task_are_not_those_of_the_job(self):
        lines = [
            "INFO Task: Final Counters for attempt_1: Counters: 1",
            "\tMap-Reduce Framework",
            "\t\tSpilled Records=7",
            "INFO Job: Counters: 1",
            "\tMap-Reduce Framework",
            "\t\tSpilled Records=12",
            "done",
            "\t\tSpilled Records=99",
        ]
        assert printed_counters(lines) == {Counter("TaskCounter", "SPILLED_RECORDS"): 12}

    def test_a_log_without_any(self):
        assert printed_counters(["INFO Job: Running job: job_1"]) == {}


LOCAL_LOG = """\
2024-03-01 10:00:01,000 INFO [main] JobSubmitter: Submitting tokens for job: job_local12_0001
2024-03-01 10:00:01,500 INFO [Thread-3] LocalJobRunner: Waiting for map tasks
2024-03-01 10:00:02,000 INFO [Map #0] LocalJobRunner: Starting task: attempt_local12_0001_m_0_0
2024-03-01 10:00:02,500 INFO [Map #1] LocalJobRunner: Starting task: attempt_local12_0001_m_1_0
2024-03-01 10:00:05,000 INFO [Map #0] Merger: Merging 2 sorted segments
2024-03-01 10:00:06,000 INFO [Map #0] LocalJobRunner: Finishing task: attempt_local12_0001_m_0_0
2024-03-01 10:00:07,500 INFO [Map #1] LocalJobRunner: Finishing task: attempt_local12_0001_m_1_0
2024-03-01 10:00:07,600 INFO [Thread-3] LocalJobRunner: map task executor complete.
2024-03-01 10:00:08,000 INFO [pool-5] LocalJobRunner: Starting task: attempt_local12_0001_r_0_0
2024-03-01 10:00:08,100 INFO [pool-6] LocalJobRunner: Starting task: attempt_local12_0001_r_1_0
2024-03-01 10:00:08,700 INFO [pool-6] MergeManagerImpl: finalMerge called with 2 in-memory
2024-03-01 10:00:09,000 INFO [pool-5] MergeManagerImpl: finalMerge called with 2 in-memory
2024-03-01 10:00:09,200 INFO [pool-6] Merger: Down to the last merge-pass, with 1 segments left
2024-03-01 10:00:10,000 INFO [pool-5] LocalJobRunner: Finishing task: attempt_local12_0001_r_0_0
2024-03-01 10:00:11,000 INFO [pool-6] LocalJobRunner: Finishing task: attempt_local12_0001_r_1_0
2024-03-01 10:00:11,100 INFO [Thread-3] LocalJobRunner: reduce task executor complete.
2024-03-01 10:00:11,900 INFO [main] Job: Job job_local12_0001 completed successfully
2024-03-01 10:00:11,950 INFO [main] Job: Counters: 4
\tFile System Counters
\t\tFILE: Number of bytes read=190377544
\tMap-Reduce Framework
\t\tSpilled Records=5
\t\tGC time elapsed (ms)=70
\tFile Input Format Counters
\t\tBytes Read=70341070
"""


class TestLocalLog:
    @pytest.fixture
    def log(self, tmp_path):
        path = tmp_path / "0000.txt"
        path.write_text(LOCAL_LOG)
        return path

    def test_reduces_side_by_side_are_told_apart_by_their_threads(self, log):
        first, second = read_local_log(log, slots=2).done("REDUCE")
        assert (first.shuffle_s, first.sort_s) == pytest.approx((1.0, 0.0))
        assert (second.shuffle_s, second.sort_s) == pytest.approx((0.6, 0.5))
        assert first.reduce_s == pytest.approx(1.0)
        assert second.reduce_s == pytest.approx(1.8)

    def test_times_of_the_job(self, log):
        columns = job_columns(read_local_log(log, slots=2))
        # Its end is the runner's, not when the client happened to look.
        assert columns["job_s"] == pytest.approx(10.1)
        assert columns["map_phase_s"] == pytest.approx(5.5)
        assert columns["map_task_s"] == pytest.approx(4.5)
        assert columns["map_task_max_s"] == pytest.approx(5.0)
        assert columns["reduce_phase_s"] == pytest.approx(3.0)

    def test_what_one_process_counts_twice_is_left_out(self, log):
        columns = job_columns(read_local_log(log, slots=2))
        assert columns["spilled_records"] == 5
        assert not {"gc_s", "input_bytes", "file_read_bytes", "task_cpu_s"} & set(columns)

    def test_with_one_slot_nothing_is_counted_twice_but_the_moved_bytes(self, log):
        columns = job_columns(read_local_log(log, slots=1))
        assert columns["gc_s"] == pytest.approx(0.07)
        assert columns["input_bytes"] == 70341070
        assert "file_read_bytes" not in columns

    def test_a_log_without_a_job_is_refused(self, tmp_path):
        path = tmp_path / "0000.txt"
        path.write_text("Usage: wordcount <in> [<in>...] <out>\n")
        with pytest.raises(MeasurementError, match="no job was submitted"):
            read_local_log(path)
        with pytest.raises(MeasurementError, match="cannot be read"):
            read_local_log(tmp_path / "none.txt")

    def test_the_first_complaint(self, tmp_path):
        path = tmp_path / "0000.txt"
        path.write_text("WARN x\njava.io.IOException: no room\n\tat a.b\nCaused by: X\n")
        assert first_complaint(path) == "java.io.IOException: no room"
        path.write_text("all is well\n")
        assert first_complaint(path) == ""
        assert first_complaint(tmp_path / "none") == ""
