"""A command does not replace what it reads: every way in which an input may be named."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from made_traces import busy
from made_up import sweep

from measurements.traces import write_trace
from ppw.cli import main
from ppw.cli.output import refuse_an_input


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sweep().to_csv("runs.csv", index=False)
    (tmp_path / "link.csv").symlink_to("runs.csv")
    write_trace(busy(200), "trace.csv")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("project", "runs.csv", "--freq", "3GHz", "-o", "runs.csv"),
        ("project", "runs.csv", "--freq", "3GHz", "-o", "./runs.csv", "--format", "json"),
        ("project", "link.csv", "--freq", "3GHz", "-o", "runs.csv"),
        ("project", "runs.csv", "--freq", "3GHz", "-o", "link.csv"),
        ("check", "runs.csv", "-o", "runs.csv"),
        ("trace", "fit", "trace.csv", "-o", "trace.csv"),
        ("trace", "convert", "trace.csv", "-o", "trace.csv"),
        ("trace", "validate", "trace.csv", "trace.csv", "-o", "trace.csv"),
    ],
    ids=" ".join,
)
def test_it_is_refused_and_left_as_it_is(folder, words):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2, done.output
    assert "is an input, and would be replaced: write to another file" in done.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_logs_behind_a_label_are_inputs(folder):
    with click.Context(main) as context:
        context.params = {"output": "runs.csv", "logs": (("db=other.csv,runs.csv",),)}
        with pytest.raises(click.UsageError, match=r"runs\.csv is an input"):
            refuse_an_input("runs.csv")
        context.params = {"output": "runs.csv", "logs": ("db=other.csv",), "level": 0.9}
        refuse_an_input("runs.csv")


def test_another_file_that_is_there_is_replaced(folder):
    (folder / "old.json").write_text("old")
    done = CliRunner().invoke(main, ["project", "runs.csv", "--freq", "3GHz", "-o", "old.json"])
    assert done.exit_code == 0, done.output
    assert (folder / "old.json").read_text().startswith("{")
