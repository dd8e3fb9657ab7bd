"""Every console of the documentation whose files are here is run, and prints what is shown.

A line … stands for lines that are left out. After a change of the output that is meant, write the
consoles anew and read the difference:

    PPW_WRITE_DOCS=1 python -m pytest tests/ppw/test_docs_consoles.py
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import sys
import warnings
from pathlib import Path

import pytest
from documentation import PAGES, ROOT, blocks, name_of

import ppw
import ppw.cli

WRITE = "PPW_WRITE_DOCS" in os.environ
# They would measure this machine, or write over a file of the reader's.
NOT_RUN = {"measure", "run", "sample", "sensors", "trace record", "trace replay"}
FILE = re.compile(r"(?:\w+=)?([\w./-]+\.(?:csv|toml|parquet|json|jsonl|gz|py|html|iolog|fio|xml))$")
LEFT_OUT = "…\n"
BLOCKS = [block for page in PAGES for block in blocks(page)]
CONSOLES = [block for block in BLOCKS if re.search(r"^\$ ", block.text, re.M)]
SHOWN = [block for block in CONSOLES if block.language == "console"]


def turns(text):
    """Commands of a console, each with the text below it."""
    parts = re.split(r"^\$ ((?:.*\\\n)*.*)\n", text, flags=re.M)
    return [(parts[i], parts[i + 1]) for i in range(1, len(parts), 2)]


def words_of(command):
    words = shlex.split(re.sub(r"\\\n", " ", command), comments=True)
    return [words[0].removeprefix(".venv/bin/"), *words[1:]]


def inputs(words):
    """Files that a command reads: all that are named but its outputs."""
    outputs = {"-o", "--output", "--runs"}
    pairs = zip(["", *words], words, strict=False)
    found = (FILE.match(word) for before, word in pairs if before not in outputs)
    return [match[1] for match in found if match]


def may_run(words):
    return not (
        words[0] not in ("ppw", "python")
        or words[1] in NOT_RUN
        or " ".join(words[1:3]) in NOT_RUN
        or (not inputs(words) and words[1] not in ("demo", "size"))
    )


@pytest.fixture
def execute(tmp_path, monkeypatch):
    """Run a command in a folder that has the examples in it; its output and messages together."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    data = Path(os.environ.get("PPW_DATA_DIR", ROOT.parent / "shared" / "data"))
    for name in ("xu3-cbench", "nornir-repara"):
        (tmp_path / name).symlink_to(data / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PPW_HOSTS_DIR", raising=False)

    def execute(words):
        monkeypatch.setattr(sys, "argv", words if words[0] == "ppw" else words[1:])
        shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            if words[0] == "ppw":
                with pytest.raises(SystemExit) as end:
                    ppw.cli.console()
                code = end.value.code
            else:
                with warnings.catch_warnings():
                    runpy.run_path(words[1], run_name="__main__")
                code = 0
        shown.flush()
        return shown.buffer.getvalue().decode(), code

    return execute


def matches(expected, printed):
    pattern = ".*?".join(map(re.escape, expected.split(LEFT_OUT)))
    return re.fullmatch(pattern, printed, re.S) is not None


def rewritten(block, answers):
    """Write a console with what was printed."""
    new = "".join(f"$ {command}\n{printed}" for command, printed in answers)
    text = block.page.read_text(encoding="utf-8")
    assert text.count(f"```console\n{block.text}```") == 1
    block.page.write_text(
        text.replace(f"```console\n{block.text}```", f"```console\n{new}```"), encoding="utf-8"
    )


@pytest.mark.thirdparty
@pytest.mark.parametrize("page", sorted({block.page for block in SHOWN}), ids=name_of)
def test_consoles_print_what_is_shown(page, execute, data_dir):
    for block in (b for b in SHOWN if b.page == page):
        answers = []
        for command, shown in turns(block.text):
            words = words_of(command)
            assert may_run(words), f"{command}: not for a console; use a plain block"
            printed, code = execute(words)
            assert code == 0, printed
            answers.append((command, shown if matches(shown, printed) else printed))
            assert WRITE or matches(shown, printed), f"$ {command}\n{printed}"
        if WRITE:
            rewritten(block, answers)


OTHERS = [block for block in CONSOLES if block.language != "console"]


@pytest.mark.parametrize("block", OTHERS, ids=lambda b: b.name)
def test_commands_of_other_blocks_run_where_their_files_are_here(block, execute, tmp_path):
    for command, shown in turns(block.text):
        words = words_of(command)
        if not may_run(words) or not all((tmp_path / name).exists() for name in inputs(words)):
            continue
        printed, code = execute(words)
        assert code == 0, printed
        text = shown.strip("\n")
        assert not text or "# " in command or text in printed


def test_enough_is_run():
    assert len(SHOWN) > 20
    commands = [command for block in SHOWN for command, _ in turns(block.text)]
    asked = {" ".join(words_of(command)[1:2]) for command in commands}
    assert len(asked) >= 14
