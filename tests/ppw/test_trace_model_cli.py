"""`ppw trace fit`, `generate` and `show` as users meet them.

The golden texts are in ``golden/``. After a change of the output that is meant:

    PPW_WRITE_GOLDEN=1 python -m pytest tests/ppw/test_trace_model_cli.py -k golden
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import click
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from made_traces import busy

from measurements.traces import read_trace, write_trace
from ppw.errors import PpwError

GOLDEN = Path(__file__).with_name("golden")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in an empty folder with a trace and its model in it."""
    monkeypatch.chdir(tmp_path)
    write_trace(busy(n=3000, seed=1).batches(), "disk.parquet")

    def run(name, *arguments):
        command = importlib.import_module(f"ppw.cli.trace_{name}").command
        return CliRunner().invoke(command, list(map(str, arguments)), standalone_mode=False)

    assert run("fit", "disk.parquet", "--format", "json", "-o", "m.json").exception is None
    return run


GOLDEN_RUNS = {
    "trace-fit": ("fit", "disk.parquet"),
    "trace-fit-choose": ("fit", "disk.parquet", "--choose", "--flat", "--levels", "3"),
    "trace-fit-drift": ("fit", "disk.parquet", "--drift", "--levels", "3"),
    "trace-show-scales": ("show", "m.json", "--scales", "--device", "ssd,units=2"),
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
    assert Path("again.model.json").read_bytes() == Path("m.json").read_bytes()


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
