"""Whatever the documentation names exists: commands, options, files, anchors, Python names."""

from __future__ import annotations

import ast
import importlib
import re
from urllib.parse import unquote

import click
import pytest
from documentation import (
    DOCS,
    PAGES,
    ROOT,
    SPAN,
    blocks,
    commands,
    every_option,
    name_of,
    options_of,
    prose,
    resolve,
)
from pymdownx.slugs import slugify

import measurements.schema
from measurements.errors import MeasurementError

BLOCKS = [block for page in PAGES for block in blocks(page)]
WITH_COMMANDS = [block for block in BLOCKS if commands(block)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
# Of other programs, where a page names them: sort, collectl, fio, git, pip, make and their like.
FOREIGN = {"--parallel", "--sep"}
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
by_name = {"ids": lambda item: getattr(item, "name", None)}


def check(words):
    """A command line, up to what it runs: every option is one of that command's."""
    command, rest = resolve(words)
    known = options_of(command)
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
        if not any(
            said in str(error) for said in ("cannot be read", "No such file", "does not exist")
        ):
            raise


def test_there_is_something_to_check():
    assert len(PAGES) > 30
    assert sum(len(commands(block)) for block in WITH_COMMANDS) > 80
    assert len(PYTHON) > 5


def test_what_does_not_exist_is_found():
    with pytest.raises(LookupError, match="no such command: ppw projct"):
        check(["projct", "runs.csv"])
    with pytest.raises(AssertionError, match="no option --frequency"):
        check(["project", "runs.csv", "--frequency", "3GHz"])
    check(["measure", "--freq", "1.2GHz", "--", "sort", "--reverse"])


@pytest.mark.parametrize("block", WITH_COMMANDS, **by_name)
def test_commands_of_blocks_exist_with_their_options(block):
    for words in commands(block):
        check(words)


@pytest.mark.parametrize("block", WITH_COMMANDS, **by_name)
def test_values_of_options_in_blocks_are_taken(block):
    for words in commands(block):
        take(words)


def test_a_value_that_is_not_taken_is_found():
    with pytest.raises(click.BadParameter, match="is not one of energy"):
        take(["best", "runs.csv", "--objective", "energy,edp"])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_and_options_in_the_text_exist(page):
    options = every_option() | FOREIGN
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


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for target in LINK.findall(prose(page)):
        path, _, anchor = unquote(target).partition("#")
        if re.match(r"\w+:", target) or "figures/" in path or path == "reference/commands.md":
            continue
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"no {target}"
        assert not anchor or anchor in anchors(found), f"no heading for {target}"


def test_links_from_the_site_stay_in_it():
    # GitHub shows what lies outside docs/, the site does not.
    outside = [
        f"{name_of(page)}: {target}"
        for page in PAGES
        if page.is_relative_to(DOCS)
        for target in LINK.findall(prose(page))
        if not re.match(r"\w+:|#", target)
        and not (page.parent / target).resolve().is_relative_to(DOCS)
    ]
    assert outside == []


@pytest.mark.parametrize("block", PYTHON, **by_name)
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


def test_files_of_the_sources_that_are_named_exist():
    for page in PAGES:
        for span in SPAN.findall(prose(page)):
            if re.fullmatch(
                r"(ppw|fitting|measurements|tests|benchmarks|examples)/[a-z0-9_./-]+", span
            ):
                assert (ROOT / span).exists(), f"{name_of(page)}: no {span}"


def test_every_column_of_a_runs_table_is_described():
    allowed = {
        "text": "text", "positive": "above 0", "net": "any number", "non-negative": "0 or more",
        "share": "0 to 1, or `50%`", "count": "0, 1, 2 …", "any": "any number",
    }  # fmt: skip
    rows = "".join(
        f"| `{name}` | {column.unit} | {allowed[column.kind]} | {column.meaning} |\n"
        for name, column in measurements.schema.COLUMNS.items()
    )
    assert (DOCS / "generated" / "runs_columns.md").read_text(encoding="utf-8") == rows
