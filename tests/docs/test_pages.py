"""The pages of the documentation: what they name exists, and every console prints what is shown.

A line … of a console stands for lines that are left out. After a change of the output that is
meant, write the consoles anew and read the difference:

    PPW_WRITE_DOCS=1 python -m pytest tests/docs/test_pages.py
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import os
import re
import runpy
import shlex
import sys
import warnings
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import click
import matplotlib as mpl
import pytest
from pymdownx.slugs import slugify
from walked_commands import COMMANDS, spellings

import ppw.cli
from measurements.errors import MeasurementError
from measurements.table import schema
from ppw.cli import choose_answer, main

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("*.md"), ROOT / "examples" / "README.md", *DOCS.rglob("*.md")],
    key=lambda page: str(page.relative_to(ROOT)),
)
FENCE = re.compile(r"^( *)```(\w*)(?: title=\"([\w.-]+)\")?\n(.*?)^\1```", re.M | re.S)
SPAN = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
INDENTED = re.compile(r"(?:^    (?:\$ )?ppw .*\n(?:^    .*\n)*)", re.M)
FILE = re.compile(r"(?:\w+=)?([\w./-]+\.(?:csv|toml|parquet|json|jsonl|gz|py|html|iolog|fio|xml))$")
WRITE = "PPW_WRITE_DOCS" in os.environ
# They would measure this machine, or write over a file of the reader's.
NOT_RUN = {"measure", "run", "sample", "sensors", "trace record", "trace replay"}
# Measured by others, and not a part of this repository.
DATA_SETS = ("xu3-cbench", "nornir-repara")
# Options of other programs, where a page names them.
FOREIGN = {"--parallel", "--sep", "--export-json", "--query-gpu", "--Joules", "--Summary"}
FOREIGN |= {"--showpower", "--csv", "--pretty"}


class Block(NamedTuple):
    """A block of code: where it is, its language, and its text without indentation.

    A block with a title is a file of that name, which the page's consoles can read.
    """

    page: Path
    line: int
    language: str
    text: str
    title: str | None = None

    def __str__(self):
        return f"{name_of(self.page)}:{self.line}"


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(page):
    """Fenced blocks, and indented ones of commands."""

    def line(at):
        return text.count("\n", 0, at) + 1

    text = page.read_text(encoding="utf-8")
    for m in FENCE.finditer(text):
        yield Block(page, line(m.start()), m[2], re.sub(f"^{m[1]}", "", m[4], flags=re.M), m[3])
    text = FENCE.sub(lambda m: "\n" * m[0].count("\n"), text)
    for m in INDENTED.finditer(text):
        yield Block(page, line(m.start()), "", re.sub("^    ", "", m[0], flags=re.M))


def prose(page):
    """A page without its blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def commands(block):
    """Words of every `ppw` command in a block; a `$` before it or not."""
    joined = re.sub(r"\\\n *", " ", block.text)
    lines = (line.strip().removeprefix("$ ") for line in joined.splitlines())
    starts = re.compile(r"(\.venv/bin/)?ppw( |$)")
    return [shlex.split(line, comments=True)[1:] for line in lines if starts.match(line)]


def resolve(words):
    """Command that the first words name, and the words after them. Raises for an unknown one."""
    _, answers, others = choose_answer(words)
    command, rest = main, [answers, *others] if answers else words
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        below = command.get_command(click.Context(command), rest[0])
        if below is None:
            # `ppw cpio RUNS` is a command by what it reads.
            if "study" in command.commands:
                return command.commands["study"], rest
            raise LookupError(f"no such command: ppw {' '.join(words)}")
        command, rest = below, rest[1:]
    return command, rest


def check(words):
    """A command line, up to what it runs: every option is one of that command's."""
    command, rest = resolve(words)
    known = spellings(command)
    for word in rest:
        if word == "--":
            break
        if re.match(r"--?[a-zA-Z]", word):
            assert word.partition("=")[0] in known, f"ppw {' '.join(words)}: no option {word}"


def take(words):
    """Parse a command line whose files stand for the reader's."""
    command, rest = resolve(words)
    stands_for = {"…", "..."} & set(rest) or any(word.endswith("…") for word in rest)
    if isinstance(command, click.Group) or stands_for:
        return
    try:
        command.make_context(command.name, list(rest), resilient_parsing=False)
    except (MeasurementError, OSError, click.exceptions.Exit):
        # A file that the options read, or --help.
        return
    except click.UsageError as error:
        if not re.search("cannot be read|No such file|does not exist", str(error)):
            raise


BLOCKS = [block for page in PAGES for block in blocks(page)]
WITH_COMMANDS = [block for block in BLOCKS if commands(block)]
CONSOLES = [block for block in BLOCKS if re.search(r"^\$ ", block.text, re.M)]
SHOWN = [block for block in CONSOLES if block.language == "console"]
PYTHON = [block for block in BLOCKS if block.language == "python"]
every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def test_there_is_something_to_check():
    assert len(PAGES) > 30
    assert sum(len(commands(block)) for block in WITH_COMMANDS) > 80
    assert len(PYTHON) > 5
    assert len(SHOWN) > 20
    assert len({resolve(words)[0].name for block in SHOWN for words in commands(block)}) >= 14


def test_what_does_not_exist_is_found():
    with pytest.raises(LookupError, match="no such command: ppw projct"):
        check(["projct", "runs.csv"])
    with pytest.raises(AssertionError, match="no option --frequency"):
        check(["project", "runs.csv", "--frequency", "3GHz"])
    check(["measure", "--freq", "1.2GHz", "--", "sort", "--reverse"])
    with pytest.raises(click.BadParameter, match="is not one of energy"):
        take(["best", "runs.csv", "--objective", "energy,edp"])


@pytest.mark.parametrize("block", WITH_COMMANDS, ids=str)
def test_commands_of_blocks_exist_and_take_their_options_and_values(block):
    for words in commands(block):
        check(words)
        take(words)


@every_page
def test_commands_and_options_in_the_text_exist(page):
    options = FOREIGN.union(*map(spellings, COMMANDS.values()))
    for span in SPAN.findall(prose(page)):
        text = " ".join(span.split())
        if re.match(r"ppw [a-z]", text):
            check(re.sub(r"[|…]\S*", "", text).replace("'", "").split()[1:])
        elif re.match(r"--[a-z]", text) and name_of(page) != "CONTRIBUTING.md":
            for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", text):
                assert option in options, f"no command has {option}"


def anchors(page):
    """Anchors of the headings of a page, as the site makes them."""
    slug = slugify(case="lower")
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#+ +(.+?) *$", text, flags=re.M)
    return {slug(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title), "-") for title in titles}


@every_page
def test_links_lead_somewhere_and_from_the_site_into_it(page):
    for target in LINK.findall(prose(page)):
        path, _, anchor = unquote(target).partition("#")
        if re.match(r"\w+:", target):
            continue
        found = (page.parent / path).resolve() if path else page
        # GitHub shows what lies outside docs/, the site does not.
        assert found.is_relative_to(DOCS) or not page.is_relative_to(DOCS), target
        if "figures/" not in path and path != "reference/commands.md":
            assert found.exists(), f"no {target}"
            assert not anchor or anchor in anchors(found), f"no heading for {target}"


@every_page
def test_files_of_the_sources_that_are_named_exist(page):
    folders = r"(ppw|fitting|measurements|tests|benchmarks|examples)/[a-z0-9_./-]+"
    named = [span for span in SPAN.findall(prose(page)) if re.fullmatch(folders, span)]
    assert [span for span in named if not (ROOT / span).exists()] == []


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_blocks_use_names_that_exist(block):
    tree = ast.parse(block.text)
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                modules[name.asname or name.name] = importlib.import_module(name.name)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name), f"{node.module} has no {name.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            assert module is None or hasattr(module, node.attr), f"{node.value.id}.{node.attr}"


def test_every_column_of_a_runs_table_is_described():
    allowed = {
        "text": "text", "positive": "above 0", "net": "any number", "non-negative": "0 or more",
        "share": "0 to 1, or `50%`", "count": "0, 1, 2 …", "any": "any number",
    }  # fmt: skip
    rows = "".join(
        f"| `{name}` | {column.unit} | {allowed[column.kind]} | {column.meaning} |\n"
        for name, column in schema.COLUMNS.items()
    )
    assert (DOCS / "generated" / "runs_columns.md").read_text(encoding="utf-8") == rows


def test_every_synonym_of_a_column_is_listed():
    both = (schema.SYNONYMS_OF, schema.WITH_UNIT)
    names = [[", ".join(f"`{n}`" for n in of.get(c, ())) for of in both] for c in schema.COLUMNS]
    listed = zip(schema.COLUMNS, names, strict=True)
    rows = "".join(f"| `{c}` | {' | '.join(found)} |\n" for c, found in listed if any(found))
    assert (DOCS / "generated" / "runs_synonyms.md").read_text(encoding="utf-8") == rows


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
        "--list-sensors" in words
        or words[0] not in ("ppw", "python")
        or words[1] in NOT_RUN
        or " ".join(words[1:3]) in NOT_RUN
        or (
            not inputs(words)
            and words[1] not in ("demo", "hosts")
            and words[1:3] != ["cpio", "size"]
        )
    )


@pytest.fixture
def execute(tmp_path, data_dir, monkeypatch):
    """Run a command in a folder that has the examples in it; its output and messages together."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name in DATA_SETS:
        (tmp_path / name).symlink_to(data_dir / name)
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
        printed = shown.buffer.getvalue().decode()
        assert code == 0, printed
        return printed

    return execute


def matches(expected, printed):
    pattern = ".*?".join(map(re.escape, expected.split("…\n")))
    return re.fullmatch(pattern, printed, re.S) is not None


def rewrite(block, answers):
    """Write a console with what was printed."""
    new = "".join(f"$ {command}\n{printed}" for command, printed in answers)
    text = block.page.read_text(encoding="utf-8")
    old = f"```console\n{block.text}```"
    assert text.count(old) == 1
    block.page.write_text(text.replace(old, f"```console\n{new}```"), encoding="utf-8")


def of_page(page):
    """Consoles of a page, which share their files."""
    data = any(name in block.text for block in SHOWN for name in DATA_SETS if block.page == page)
    return pytest.param(page, marks=[pytest.mark.thirdparty] * data, id=name_of(page))


@pytest.mark.parametrize("page", [of_page(page) for page in sorted({b.page for b in SHOWN})])
def test_consoles_print_what_is_shown(page, execute, tmp_path):
    for block in BLOCKS:
        if block.page == page and block.title:
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
    for block in (block for block in SHOWN if block.page == page):
        answers = []
        for command, shown in turns(block.text):
            words = words_of(command)
            assert may_run(words), f"{command}: not for a console; use a plain block"
            printed = execute(words)
            answers.append((command, shown if matches(shown, printed) else printed))
            assert WRITE or matches(shown, printed), f"$ {command}\n{printed}"
        if WRITE:
            rewrite(block, answers)


def test_python_of_the_first_page_runs_and_draws_its_picture(tmp_path, monkeypatch):
    (page,) = [[b for b in BLOCKS if b.page == ROOT / "README.md"]]
    for block in page:
        if block.title:
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    # So that the same picture is the same file.
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    monkeypatch.setitem(mpl.rcParams, "svg.hashsalt", "ppw")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec("\n".join(b.text for b in page if b.language == "python"), {})
    picture, kept = tmp_path / "power.svg", DOCS / "generated" / "readme.svg"
    assert "sort" in picture.read_text(encoding="utf-8")
    if WRITE:
        kept.write_bytes(picture.read_bytes())
    assert kept.exists()


@pytest.mark.parametrize("block", [b for b in CONSOLES if b.language != "console"], ids=str)
def test_commands_of_other_blocks_run_where_their_files_are_here(block, execute, tmp_path):
    for command, shown in turns(block.text):
        words = words_of(command)
        if not may_run(words) or not all((tmp_path / name).exists() for name in inputs(words)):
            continue
        printed = execute(words)
        text = shown.strip("\n")
        assert not text or "# " in command or text in printed
