"""Runs of a command whose whole text is kept; PPW_WRITE_GOLDEN=1 writes it anew."""

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

GOLDEN = Path(__file__).with_name("golden")
NUMBER = r"\d[\d,]*\.?\d*(?:e[-+]\d+)?"


def golden(name, asked, command, arguments):
    """Hold standard output, standard error and the exit code against the text that is kept."""
    done = CliRunner().invoke(command, arguments)
    assert (done.stderr, done.exit_code) == ("", 0), done.output
    text = asked + done.stdout
    if "PPW_WRITE_GOLDEN" in os.environ:
        (GOLDEN / name).write_text(text, encoding="utf-8")
    same_text(text, (GOLDEN / name).read_text(encoding="utf-8"))


def same_text(ours, kept):
    """Every letter and the place of every digit; last digits differ between processors."""
    assert re.sub(r"\d", "0", ours) == re.sub(r"\d", "0", kept)
    found, wanted = (
        [float(x.replace(",", "")) for x in re.findall(NUMBER, text)] for text in (ours, kept)
    )
    assert found == pytest.approx(wanted, rel=1e-3)
