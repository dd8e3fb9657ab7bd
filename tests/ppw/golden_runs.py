"""Runs of a command whose whole text is kept; PPW_WRITE_GOLDEN=1 writes it anew."""

from __future__ import annotations

import os
from pathlib import Path

from click.testing import CliRunner

GOLDEN = Path(__file__).with_name("golden")


def golden(name, asked, command, arguments):
    """Hold standard output, standard error and the exit code against the text that is kept."""
    done = CliRunner().invoke(command, arguments)
    assert (done.stderr, done.exit_code) == ("", 0), done.output
    text = asked + done.stdout
    if "PPW_WRITE_GOLDEN" in os.environ:
        (GOLDEN / name).write_text(text, encoding="utf-8")
    assert text == (GOLDEN / name).read_text(encoding="utf-8")
