"""`ppw trace …` as users meet it; golden texts as in test_cli.py."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from pathlib import Path

import click
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from made_traces import busy, fragmented

from measurements.traces import read_trace, write_trace
from ppw.cli.output import caveats_in_result, report_error
from ppw.errors import PpwError
from ppw.traces.fit import fit_trace

GOLDEN = Path(__file__).with_name("golden")


@pytest.fixture(scope="module")
def fitted():
    """Document of the model of disk.parquet."""
    with caveats_in_result():
        return fit_trace(busy(n=3000, seed=1)).to_json() + "\n"


@pytest.fixture
def run(tmp_path, monkeypatch, fitted):
    """Run a command in an empty folder with some traces and the model of one in it."""
    monkeypatch.chdir(tmp_path)
    write_trace(busy(n=3000, seed=1).batches(), "disk.parquet")
    write_trace(busy(n=3000, seed=2).batches(), "made.parquet")
    write_trace(fragmented().batches(), "files.csv")

    def run(name, *arguments):
        command = importlib.import_module(f"ppw.cli.trace_{name}").command
        return CliRunner().invoke(command, list(map(str, arguments)), standalone_mode=False)

    Path("m.json").write_text(fitted, encoding="utf-8")
    return run


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
def test_golden(name, run):
    arguments = GOLDEN_RUNS[name]
    done = run(*arguments)
    text = f"$ ppw trace {' '.join(arguments)}\n{done.stdout}"
    golden = GOLDEN / f"{name}.txt"
    if "PPW_WRITE_GOLDEN" in os.environ:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
    said = "ppw: disk.parquet: read as ppw's own Parquet\n" if arguments[0] == "fit" else ""
    assert done.stderr == said
    assert not done.return_value


@pytest.mark.parametrize("options", [(), ("--choose", "--levels", "2"), ("--drift",)])
@pytest.mark.parametrize("form", ["json", "csv", "html"])
def test_every_format_of_fit(options, form, run):
    done = run("fit", "disk.parquet", *options, "--format", form, "-o", f"out.{form}")
    assert done.exception is None
    text = Path(f"out.{form}").read_text(encoding="utf-8")
    if form == "json":
        assert json.loads(text)["schema_version"] == (1 if options else 3)
    elif form == "html":
        assert text.startswith("<!")
        assert "://" not in text.replace("http://www.w3.org", "")


def test_shows_the_original_beside_what_is_generated(run):
    done = run("show", "m.json", "--original", "disk.parquet", "--format", "html", "-o", "m.html")
    assert done.exception is None
    text = Path("m.html").read_text(encoding="utf-8")
    assert text.index("as it was recorded") < text.index("Regenerated")


def test_generates_what_was_asked_for(run):
    done = run("generate", "m.json", "-o", "made.parquet", "--count", 500, "--time-scale", 2)
    assert done.exception is None
    assert done.stderr.startswith("ppw: caveat: times are scaled open loop")
    made = pq.read_table("made.parquet")
    last = made["time_s"][-1].as_py()
    assert done.stderr.endswith(f"ppw: 500 requests in {last:.4g} s written to made.parquet\n")
    assert len(made) == 500
    gaps = np.diff(made["time_s"].to_numpy())
    assert (gaps >= 0).all()
    assert gaps.mean() == pytest.approx(2 / 100, rel=0.2)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_streams_keep_their_names(run, ending):
    write_trace(busy(n=3000, seed=1), "named.parquet")
    assert run("fit", "named.parquet", "-o", "named.json").exception is None
    assert run("generate", "named.json", "-o", f"made.{ending}").exception is None
    made = read_trace(f"made.{ending}")
    assert set(made.names["stream"]) == {"web", "log"}
    assert made.names["device"] == ("sda",)
    writes = made.to_table()
    streams = {
        made.names["stream"][i] for i in writes.filter(pc.field("op") == 1)["stream"].to_pylist()
    }
    assert streams == {"log"}


def test_closed_loop_is_said(run):
    done = run("generate", "m.json", "-o", "made.csv", "--count", 50, "--outstanding", 8)
    assert "with 8 in flight" in done.stderr
    assert done.stderr.endswith("ppw: 50 requests written to made.csv\n")


def test_options_reach_the_levels_that_are_compared(run):
    wide = run("fit", "disk.parquet", "--choose", "--levels", 2, "--format", "json")
    more = ("--space", "64GiB", "--device", "disk,average_seek=9ms")
    other = run("fit", "disk.parquet", "--choose", "--levels", 2, *more, "--format", "json")
    first, second = (json.loads(done.stdout)["levels"] for done in (wide, other))
    assert [row["occurring"] for row in first] != [row["occurring"] for row in second]
    assert "average_seek 9 ms" in " ".join(json.loads(other.stdout)["caveats"])


def test_a_model_goes_to_json_without_a_format(run):
    assert run("fit", "disk.parquet", "-o", "again.model.json").exception is None
    asked = run("fit", "disk.parquet", "--format", "json")
    assert Path("again.model.json").read_text(encoding="utf-8") == asked.stdout


NO_MODEL = [
    (None, "bad.json: No such file or directory"),
    ("", "bad.json is no model"),
    ("3000 requests in 30 s", "bad.json is no model"),
    ("{}", "bad.json is no model: not a document of schema_version 3: fit the trace again"),
    (
        '{"schema_version": 1, "kind": "trace_model"}',
        "bad.json is no model: not a document of schema_version 3: fit the trace again",
    ),
    ('{"schema_version": 3}', "bad.json is no model: this document is a None, not a 'trace_model'"),
    ('{"a": 1', "bad.json is no model: Expecting ',' delimiter: line 1 column 8 (char 7)"),
]


@pytest.mark.parametrize(("text", "said"), NO_MODEL)
@pytest.mark.parametrize("name", ["generate", "show", "whatif"])
def test_what_is_no_model_says_how_to_make_one(name, text, said, run):
    if text is not None:
        Path("bad.json").write_text(text, encoding="utf-8")
    more = ("-o", "x.csv") if name == "generate" else ()
    done = run(name, "bad.json", *more)
    assert isinstance(done.exception, PpwError)
    make = "make one with: ppw trace fit TRACE --format json -o MODEL"
    assert str(done.exception).replace("; make", ": make") == f"{said}: {make}"
    assert not Path("x.csv").exists()


def test_one_question_at_a_time(run):
    assert isinstance(run("fit", "disk.parquet", "--drift", "--flat").exception, click.UsageError)


def test_validate_exits_with_3_where_a_figure_is_off(run):
    done = run("validate", "disk.parquet", "files.csv")
    assert done.return_value == 3
    assert done.stderr.startswith("ppw: check failed: The synthetic trace fails:")
    assert done.stderr.count("\n") == 1


def test_tolerances_are_percents(run):
    strict = run("validate", "disk.parquet", "made.parquet", "--hit-ratio-tolerance", "0.0001")
    assert strict.return_value == 3
    assert "LRU hits" in strict.stderr


@pytest.mark.parametrize("name", ["validate", "whatif"])
@pytest.mark.parametrize("form", ["json", "csv", "html"])
def test_every_format(name, form, run):
    more = ["disk.parquet"] if name == "validate" else []
    done = run(name, "disk.parquet", *more, "-o", f"out.{form}")
    assert done.exception is None
    text = Path(f"out.{form}").read_text(encoding="utf-8")
    if form == "json":
        assert json.loads(text)["schema_version"] == 1
    elif form == "csv":
        assert done.stderr.startswith("ppw: caveat: ")
    else:
        assert text.startswith("<!")
        assert "://" not in text.replace("http://www.w3.org", "")


def test_a_model_is_asked_with_a_seed_a_run(run):
    done = run("whatif", "m.json", "--caches", "1", "--repeats", "2", "--format", "json")
    assert done.exception is None
    (_, cached) = json.loads(done.stdout)["table"]
    assert cached["spread"] > 0
    assert cached["hit_ratio"] > 0.03
    uniform = run(
        "whatif", "m.json", "--caches", "1", "--runs", "1", "--format", "json", "--no-locality"
    )
    assert json.loads(uniform.stdout)["table"][1]["hit_ratio"] < cached["hit_ratio"] / 2


class TestConvert:
    @pytest.mark.peer("fio")
    @pytest.mark.parametrize("by", ["stream", "transition"])
    @pytest.mark.parametrize("closed", [False, True])
    def test_a_model_becomes_jobs_that_fio_reads(self, run, by, closed):
        more = ["--outstanding", "4"] if closed else []
        done = run("convert", "m.json", "-o", "l.fio", "--target", "f", "--jobs", by, *more)
        assert done.exception is None
        assert done.stderr.startswith("ppw: caveat: ")
        subprocess.run(["fio", "--parse-only", "l.fio"], check=True, capture_output=True)

    def test_jobs_keep_shares_and_rate(self, run):
        from ppw.traces.jobs import jobs_of
        from ppw.traces.model import TraceModel

        model = TraceModel.from_json(Path("m.json").read_text(encoding="utf-8"))
        for by in ("stream", "transition"):
            jobs, _ = jobs_of(model, by=by)
            assert sum(job.share for job in jobs) == pytest.approx(1)
            assert sum(job.rate for job in jobs) == pytest.approx(model.rate)
            reads = sum(job.share * job.read_share for job in jobs)
            assert reads == pytest.approx(model.read_share())
            random = sum(job.share * job.random_share for job in jobs)
            assert random == pytest.approx(model.random_share())
            for job in jobs:
                assert sum(zone.share for zone in job.zones) == pytest.approx(1)
                ends = [end for zone in job.zones for end in (zone.first_byte, zone.end_byte)]
                assert ends == sorted(ends)

    def test_a_space_is_shrunk(self, run):
        done = run("convert", "m.json", "-o", "p.xml", "--target", "f", "--size", "16MiB")
        assert "times smaller than the trace's" in done.stderr
        assert "<FileSize>16777216</FileSize>" in Path("p.xml").read_text(encoding="utf-8")

    def test_a_trace_becomes_an_iolog_parquet_and_csv(self, run):
        from measurements.traces import read_trace

        wanted = read_trace("files.csv").to_table()["lbn"].to_pylist()
        for name in ("t.iolog", "t.parquet", "t.csv"):
            done = run("convert", "files.csv", "-o", name, "--target", "/x/f")
            assert done.exception is None
            assert read_trace(name).to_table()["lbn"].to_pylist() == wanted
        assert (
            done.stderr == f"ppw: {len(wanted)} requests in {len(wanted) - 1} s written to t.csv\n"
        )

    def test_places_beyond_the_target_are_told(self, run):
        more = ("-o", "t.iolog", "--target", "/x/f", "--size", "1MiB")
        done = run("convert", "files.csv", *more)
        assert done.exception is None
        # 256 of the 600 pages fit.
        assert "57.3% of the requests lay beyond the target" in done.stderr
        assert "has to be 1048576 bytes long" in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("disk.parquet", "-o", "x.fio", "--target", "f"), "is written from a model"),
            (("nowhere.json", "-o", "x.fio", "--target", "f"), "no such file"),
            (("disk.parquet", "-o", "x.iolog"), "Missing option '--target'"),
            (("disk.parquet", "-o", "x.iolog", "--target", "/dev/null"), "is a device"),
            (("disk.parquet", "-o", "x"), "its ending says no format"),
            (("disk.parquet", "--to", "csv", "-o", "x.parquet"), "end the name in .csv"),
        ],
    )
    def test_what_cannot_be_is_refused(self, run, arguments, said):
        done = run("convert", *arguments)
        assert said in str(
            done.exception.format_message()
            if hasattr(done.exception, "format_message")
            else done.exception
        )


class TestReplay:
    @pytest.mark.peer("fio")
    def test_a_scratch_file_is_played_on(self, run, tmp_path):
        more = ("--original", "disk.parquet", "--device", "ssd", "--format", "json")
        size = ("--size", "8MiB", "--count", "60")
        done = run("replay", "made.parquet", "--target", tmp_path / "f", *size, *more)
        assert done.exception is None, done.exception
        stages = {row["stage"].partition(":")[0]: row for row in json.loads(done.stdout)["table"]}
        assert list(stages) == ["original", "trace", "calibration", "replay", "model"]
        for stage in ("trace", "calibration", "replay", "model"):
            assert stages[stage]["requests"] == 60
        assert stages["trace"]["duration_s"] == pytest.approx(stages["replay"]["duration_s"], 0.9)
        assert (tmp_path / "f").stat().st_size == 8 << 20

    def test_a_device_needs_its_word(self, run):
        done = run("replay", "made.parquet", "--target", "/dev/null", "--count", "5")
        assert "is a device" in str(done.exception)
        assert report_error(done.exception)
