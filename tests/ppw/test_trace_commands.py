"""`ppw trace …` as users meet it; golden texts as in test_cli.py."""

import functools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from golden_runs import GOLDEN
from made_traces import busy, fragmented, trace
from processes import ppw_inside, refused, worked
from walked_commands import COMMANDS, examples

from measurements.loads.load_files import ReplayReport, write_fio_jobs
from measurements.traces import read_trace, write_trace
from ppw.cli.output import caveats_in_result
from ppw.storage import replay
from ppw.storage.generate import check_jobs, jobs_of
from ppw.storage.trace_model import TraceModel, fit_trace


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folder with some traces and the model of one."""
    folder, disk = tmp_path_factory.mktemp("made"), busy(n=3000, seed=1)
    traces = {"disk.parquet": disk, "made.parquet": busy(n=3000, seed=2), "files.csv": fragmented()}
    for name, one in traces.items():
        write_trace(one.batches(), folder / name)
    with caveats_in_result():
        (folder / "m.json").write_text(fit_trace(disk).to_json() + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def run(tmp_path, monkeypatch, made):
    """Run a command in such a folder."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path, dirs_exist_ok=True))
    return functools.partial(ppw_inside, "trace", cwd=tmp_path)


@pytest.fixture
def ran(run):
    """Run a command to a good end."""
    return lambda *words: worked(run(*words))


def test_the_example_of_the_groups_help_runs(ran):
    write_trace(busy(n=500, seed=1).batches(), "disk.csv")
    (words,) = examples(COMMANDS["ppw", "trace"])
    ran(*words[1:])
    assert "requests" in TraceModel.from_json(Path("disk.model.json").read_text()).summary()


GOLDEN_RUNS = {
    "trace-fit-choose": ("fit", "disk.parquet", "--choose", "--flat", "--levels", "3"),
    "trace-show-scales": ("show", "m.json", "--scales", "--device", "ssd,units=2"),
    "trace-validate": ("validate", "disk.parquet", "disk.parquet", "--no-locality"),
    "trace-whatif": (
        *("whatif", "disk.parquet", "--cache", "1MiB", "--caches", "1,2", "--policy", "lru,clock"),
        *("--cache-price", "90", "--cache-power", "6W", "--repeats", "3"),
    ),
}


@pytest.mark.parametrize("name", GOLDEN_RUNS)
def test_golden(name, ran):
    words = GOLDEN_RUNS[name]
    done = ran(*words)
    text = f"$ ppw trace {' '.join(words)}\n{done.stdout}"
    golden = GOLDEN / f"{name}.txt"
    if "PPW_WRITE_GOLDEN" in os.environ:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
    said = "ppw: disk.parquet: read as ppw's own Parquet\n" if words[0] == "fit" else ""
    assert done.stderr == said


@pytest.mark.cases(
    "words, kind, columns",
    ("fit disk.parquet", "trace_model", "stream,device,level,"),
    ("fit disk.parquet --choose --levels 2", "trace_levels", "level,transitions,"),
    ("fit disk.parquet --drift", "trace_half_drift", "figure,first_half,"),
    ("validate disk.parquet disk.parquet", "trace_fidelity", "group,figure,"),
    ("drift disk.parquet disk.parquet", "trace_drift", "part,requests,"),
    ("whatif disk.parquet", "trace_what_if", "option,kind,"),
    ("whatif disk.parquet --curves", "trace_miss_ratios", "policy,cache_bytes,"),
)
def test_every_format(words, kind, columns, ran):
    forms = "json", "csv", "html"
    document, table, page = (ran(*words.split(), "--format", form) for form in forms)
    found = json.loads(document.stdout)
    assert found["kind"] == kind
    assert table.stdout.startswith(columns)
    said = [line for line in table.stderr.splitlines() if "caveat" in line]
    assert said == [f"ppw: caveat: {caveat}" for caveat in found["caveats"]]
    assert page.stdout.startswith("<!")


def test_shows_the_original_beside_what_is_generated(ran):
    text = ran("show", "m.json", "--original", "disk.parquet", "--format", "html").stdout
    assert text.index("as it was recorded") < text.index("Regenerated")


def test_generates_what_was_asked_for(ran):
    done = ran("generate", "m.json", "-o", "made.parquet", "--count", 500, "--time-scale", 2)
    assert done.stderr.startswith("ppw: caveat: times are scaled in an open loop")
    made = pq.read_table("made.parquet")
    last = made["time_s"][-1].as_py()
    assert done.stderr.endswith(f"ppw: 500 requests in {last:.4g} s written to made.parquet\n")
    assert (len(made), set(made["file"].to_pylist())) == (500, {-1})
    gaps = np.diff(made["time_s"].to_numpy())
    assert (gaps >= 0).all()
    assert gaps.mean() == pytest.approx(2 / 100, rel=0.2)


def test_streams_keep_their_names(ran):
    write_trace(busy(n=3000, seed=1), "named.parquet")
    ran("fit", "named.parquet", "-o", "named.json")
    for name in ("again.parquet", "again.csv"):
        ran("generate", "named.json", "-o", name)
        made = read_trace(name)
        assert (set(made.names["stream"]), made.names["device"]) == ({"web", "log"}, ("sda",))
        writers = made.to_table().filter(pc.field("op") == 1)["stream"].unique().to_pylist()
        assert [made.names["stream"][i] for i in writers] == ["log"]


def test_closed_loop_is_said(ran):
    done = ran("generate", "m.json", "-o", "made.csv", "--count", 50, "--outstanding", 8)
    assert "with 8 in flight" in done.stderr
    assert done.stderr.endswith("ppw: 50 requests written to made.csv\n")


def test_threads_that_take_turns_are_refused_with_what_to_do_instead(run):
    words = "generate", "m.json", "-o", "made.csv", "--mode", "round_robin"
    refused(run(*words), "ppw trace convert MODEL --jobs transition")


def test_options_reach_the_levels_that_are_compared(ran):
    asked = "fit", "disk.parquet", "--choose", "--levels", 2, "--format", "json"
    more = ("--space", "64GiB", "--device", "disk,average_seek=9ms")
    wide, other = (json.loads(ran(*asked, *words).stdout) for words in ((), more))
    first, second = ([row["occurring"] for row in one["levels"]] for one in (wide, other))
    assert first != second
    assert "average_seek 9 ms" in " ".join(other["caveats"])


def test_a_model_goes_to_json_without_a_format(ran):
    ran("fit", "disk.parquet", "-o", "again.model.json")
    asked = ran("fit", "disk.parquet", "--format", "json")
    assert Path("again.model.json").read_text(encoding="utf-8") == asked.stdout


OTHER = "not a document of schema_version 4: fit the trace again"
NO_MODEL = [
    (None, ": No such file or directory"),
    ("", " is no model"),
    ("3000 requests in 30 s", " is no model"),
    ('{"schema_version": 1, "kind": "trace_model"}', f" is no model: {OTHER}"),
    ('{"schema_version": 4}', " is no model: this document is a None, not a 'trace_model'"),
    ('{"a": 1', " is no model: Expecting ',' delimiter: line 1 column 8 (char 7)"),
]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [("generate", "{}", f" is no model: {OTHER}"), ("whatif", "{}", f" is no model: {OTHER}")]
    + [("show", *one) for one in NO_MODEL],
)
def test_what_is_no_model_says_how_to_make_one(name, text, said, run):
    if text is not None:
        Path("bad.json").write_text(text, encoding="utf-8")
    more = ("-o", "x.csv") if name == "generate" else ()
    done = run(name, "bad.json", *more)
    refused(done)
    make = "make one with: ppw trace fit TRACE --format json -o MODEL"
    wanted = f"ppw: error: bad.json{said}: {make}\n"
    assert done.stderr.replace("; make", ": make") == wanted
    assert not Path("x.csv").exists()


def test_one_question_at_a_time(run):
    refused(run("fit", "disk.parquet", "--drift", "--flat"), code=2)


def test_validate_exits_with_3_where_a_figure_is_off(run):
    done = run("validate", "disk.parquet", "files.csv")
    assert done.returncode == 3
    assert done.stderr.startswith("ppw: check failed: The synthetic trace fails:")
    assert done.stderr.count("\n") == 1


def test_tolerances_are_percents(run):
    strict = run("validate", "disk.parquet", "made.parquet", "--hit-ratio-tolerance", "0.0001")
    assert strict.returncode == 3
    assert "LRU hits" in strict.stderr


def test_a_model_is_asked_with_a_seed_a_run(ran):
    asked = "whatif", "m.json", "--caches", "1", "--format", "json"
    cached, uniform = (
        json.loads(ran(*asked, *more).stdout)["table"][1]
        for more in (("--repeats", "2"), ("--runs", "1", "--no-locality"))
    )
    assert cached["spread"] > 0
    assert cached["hit_ratio"] > 0.03
    assert uniform["hit_ratio"] < cached["hit_ratio"] / 2


class TestConvert:
    @pytest.mark.peer("fio")
    @pytest.mark.parametrize("by", ["stream", "transition"])
    @pytest.mark.parametrize("closed", [False, True])
    def test_a_model_becomes_jobs_that_fio_reads(self, ran, by, closed):
        more = ["--outstanding", "4"] if closed else []
        done = ran("convert", "m.json", "-o", "l.fio", "--target", "f", "--jobs", by, *more)
        assert done.stderr.startswith("ppw: caveat: ")
        subprocess.run(["fio", "--parse-only", "l.fio"], check=True, capture_output=True)

    @pytest.mark.peer("fio")
    def test_what_fio_issues_has_the_shares_of_the_model(self, made, tmp_path):
        model = TraceModel.from_json((made / "m.json").read_text(encoding="utf-8"))
        jobs, _ = jobs_of(model)
        assert all(job.read_share in (0.0, 1.0) for job in jobs)
        write_fio_jobs(jobs, tmp_path / "l.fio", target="f", duration_s=10.0)
        found = check_jobs(jobs, tmp_path / "l.fio").set_index("feature")
        off = (found["issued"] - found["model"]).abs()
        assert off.drop("random requests").max() < 0.02
        assert off["random requests"] < 0.02
        assert found["model"]["random requests"] == pytest.approx(model.random_share())

    @pytest.mark.peer("fio")
    def test_a_check_prints_what_is_lost_and_is_of_job_files_alone(self, ran, run):
        done = ran("convert", "m.json", "-o", "l.fio", "--target", "f", "--check")
        assert re.search(r"random requests +\d+\.\d% +\d+\.\d% +[+-]\d\.\d points", done.stdout)
        refused(run("convert", "m.json", "-o", "l.xml", "--target", "f", "--check"), code=2)

    @pytest.mark.parametrize("by", ["stream", "transition"])
    def test_jobs_keep_shares_and_rate(self, made, by):
        model = TraceModel.from_json((made / "m.json").read_text(encoding="utf-8"))
        jobs, _ = jobs_of(model, by=by)
        assert sum(job.share for job in jobs) == pytest.approx(1)
        assert sum(job.rate for job in jobs) == pytest.approx(model.rate)
        reads = sum(job.share * job.read_share for job in jobs)
        random = sum(job.share * job.random_share for job in jobs)
        # Two streams have a first request, which makes no transition.
        near = 2 / model.survey.requests if by == "transition" else 1e-9
        assert reads == pytest.approx(model.read_share(), abs=near)
        assert random == pytest.approx(model.random_share(), abs=near)
        for job in jobs:
            assert sum(zone.share for zone in job.zones) == pytest.approx(1)
            ends = [end for zone in job.zones for end in (zone.first_byte, zone.end_byte)]
            assert ends == sorted(ends)

    def test_a_space_is_shrunk(self, ran):
        done = ran("convert", "m.json", "-o", "p.xml", "--target", "f", "--size", "16MiB")
        assert "times smaller than the trace's" in done.stderr
        assert "<FileSize>16777216</FileSize>" in Path("p.xml").read_text(encoding="utf-8")

    def test_a_trace_becomes_an_iolog_parquet_and_csv(self, ran):
        wanted = read_trace("files.csv").to_table()["lbn"].to_pylist()
        for name in ("t.iolog", "t.parquet", "t.csv"):
            done = ran("convert", "files.csv", "-o", name, "--target", "/x/f")
            assert read_trace(name).to_table()["lbn"].to_pylist() == wanted
        assert done.stderr == "ppw: 600 requests in 599 s written to t.csv\n"

    def test_a_longer_space_is_scaled_down_to_the_target(self, ran):
        more = ("-o", "t.iolog", "--target", "/x/f", "--size", "1MiB")
        done = ran("convert", "files.csv", *more)
        # 256 of the 600 pages fit: 4 of the 10 of each part.
        assert "the space is 2.34 times smaller than the trace's" in done.stderr
        assert "has to be 983040 bytes long" in done.stderr
        lbn, scaled = (read_trace(f).to_table()["lbn"].to_numpy() for f in ("files.csv", "t.iolog"))
        assert np.array_equal(scaled, lbn // 80 * 32 + lbn % 80 % 32)

    @pytest.mark.cases(
        "words, said, code",
        ("disk.parquet -o x.fio --target f", "is written from a model", 1),
        ("nowhere.json -o x.fio --target f", "no such file", 1),
        ("disk.parquet -o x.iolog", "Missing option '--target'", 2),
        ("disk.parquet -o x.iolog --target /dev/null", "is a device", 1),
        ("disk.parquet -o x", "its ending does not name a format", 2),
        ("disk.parquet --to csv -o x.parquet", "end the name in .csv", 2),
    )
    def test_what_cannot_be_is_refused(self, run, words, said, code):
        refused(run("convert", *words.split()), said, code=code)


class TestReplay:
    @pytest.mark.peer("fio")
    def test_a_scratch_file_is_played_on(self, ran, tmp_path):
        more = ("--original", "disk.parquet", "--device", "ssd", "--format", "json")
        size = ("--size", "8MiB", "--count", "60")
        done = ran("replay", "made.parquet", "--target", tmp_path / "f", *size, *more)
        stages = {row["stage"].partition(":")[0]: row for row in json.loads(done.stdout)["table"]}
        assert list(stages) == ["original", "trace", "calibration", "replay", "model"]
        for stage in ("trace", "calibration", "replay", "model"):
            assert stages[stage]["requests"] == 60
        assert stages["trace"]["duration_s"] == pytest.approx(stages["replay"]["duration_s"], 0.9)
        assert (tmp_path / "f").stat().st_size == 8 << 20

    def test_stages_are_held_against_each_other(self, tmp_path, monkeypatch):
        """The calibration takes as long as the trace, and the target twice as long."""
        done = [ReplayReport("", 100, 409600, s, 1e-3, 2e-3, "fio-3") for s in (199.0, 99.5)]
        monkeypatch.setattr(replay.fio, "replay_iolog", lambda *_, **__: done.pop())
        load = trace(lbn=8 * np.arange(100))
        with caveats_in_result():
            result = replay.replay_trace(load, str(tmp_path / "f"), original=load)
        assert result.table["iops"].tolist() == pytest.approx([1, 1, 1, 0.5], rel=0.02)
        sizes = result.table["bytes_s"] / result.table["iops"]
        assert sizes.tolist() == pytest.approx([4096] * 4)
        assert result.table["off"].tolist()[1:] == pytest.approx([0, 0, -0.5], abs=0.02)
        assert len(result.caveats) == 1

    def test_a_device_needs_its_word(self, run):
        refused(run("replay", "made.parquet", "--target", "/dev/null", "--count", "5"), "a device")
