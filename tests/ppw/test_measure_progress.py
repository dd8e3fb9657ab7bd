"""What `ppw measure` shows while it runs: on a terminal the last runs, elsewhere lines alone."""

from __future__ import annotations

import io
import logging
import re

import pytest

from ppw.cli.fleet_options import progress_bar
from ppw.cli.measure_progress import Progress
from ppw.cli.output import say_why_it_waits
from ppw.cli.run_options import show_progress

RUN = {"freq_hz": 1.5e9, "cores": 2, "repeat": 1, "time_s": 12.5, "power_w": 40.0}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, stream, rows):
    monkeypatch.setattr("sys.stderr", stream)
    with Progress() as progress:
        progress.expect(len(rows) + 1)
        progress.tell("the clock\nis  set")
        for row in rows:
            progress.show(row)
    return stream.getvalue()


def test_on_a_terminal_the_last_runs_and_what_is_left(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    drawn = shown(monkeypatch, Terminal(), [RUN, RUN | {"repeat": 2, "time_s": 13.5}])
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
    assert "ppw: the clock is set" in text
    assert "2 of 3 runs" in text
    for part in ("1.5 GHz", "12.5", "13.5", "40"):
        assert part in text


def test_elsewhere_lines_alone(monkeypatch):
    assert shown(monkeypatch, io.StringIO(), [RUN]) == "ppw: the clock is set\n"


def plain(stream):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


def test_a_fleet_shows_how_far_it_is_on_a_terminal_alone(monkeypatch):
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with progress_bar() as report:
        report(0.25)
        report(1.0)
    assert "reading runs" in plain(terminal)
    assert "100%" in plain(terminal)
    monkeypatch.setattr("sys.stderr", elsewhere := io.StringIO())
    with progress_bar() as report:
        assert report is None
    assert elsewhere.getvalue() == ""


def test_a_service_counts_its_runs_on_a_terminal_alone(monkeypatch):
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr("sys.stderr", stream)
        show_progress(1, 2, "evil\x1b[2Jname")
        show_progress(2, 2, "law")
        lines = plain(stream).split("\r")
        assert lines[1:] == (
            ["1 of 2 runs: evil\\x1b[2Jname", "2 of 2 runs: law\n"] if stream.isatty() else []
        )


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_compiling_is_told_on_a_terminal_alone(stream, monkeypatch):
    monkeypatch.setattr("sys.stderr", stream)
    compiling = logging.Logger("fitting.compiled")
    with monkeypatch.context() as patched:
        patched.setattr(logging, "getLogger", lambda name: compiling)
        say_why_it_waits()
        say_why_it_waits()
    compiling.info("compiling loops")
    assert stream.getvalue() == "ppw: compiling loops\n" * stream.isatty()
