"""What `ppw measure` shows while it runs: on a terminal the last runs, elsewhere lines alone."""

from __future__ import annotations

import io
import logging
import re

import pytest

from ppw.cli.measure_progress import Progress
from ppw.cli.output import say_why_it_waits

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
