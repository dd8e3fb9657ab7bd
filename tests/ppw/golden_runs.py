"""Runs of a command whose whole text is kept in ``golden/``.

After a change that is meant: ``PPW_WRITE_GOLDEN=1 python -m pytest tests/ppw -k golden``.
"""

import os
import re
from pathlib import Path

import pytest
from processes import ppw_inside

GOLDEN = Path(__file__).with_name("golden")
NUMBER = r"\d[\d,]*\.?\d*(?:e[-+]\d+)?"


def golden(words, cwd, name=None, told=""):
    """Compare standard output with the text that is kept; a command says ``told`` besides."""
    done = ppw_inside(*words.split(), cwd=cwd)
    assert (done.stderr, done.returncode) == (told, 0), done.stdout
    text, kept = f"$ ppw {words}\n{done.stdout}", GOLDEN / f"{name or words.split()[0]}.txt"
    if "PPW_WRITE_GOLDEN" in os.environ:
        kept.write_text(text, encoding="utf-8")
    same_text(text, kept.read_text(encoding="utf-8"))


def same_text(ours, kept):
    """Every letter and the place of every digit; last digits differ between processors."""
    assert re.sub(r"\d", "0", ours) == re.sub(r"\d", "0", kept)
    digits = (re.findall(NUMBER, text) for text in (ours, kept))
    found, wanted = ([float(number.replace(",", "")) for number in both] for both in digits)
    assert found == pytest.approx(wanted, rel=1e-3)
