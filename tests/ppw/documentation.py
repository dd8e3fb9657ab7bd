"""The documentation as tests read it: pages, their blocks, and the commands that they name."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple, NoReturn

import click

from ppw.cli import main

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("*.md"), ROOT / "examples" / "README.md", *DOCS.rglob("*.md")],
    key=lambda page: str(page.relative_to(ROOT)),
)
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.M | re.S)
SPAN = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
_INDENTED = re.compile(r"(?:^    (?:\$ )?ppw .*\n(?:^    .*\n)*)", re.M)


class Block(NamedTuple):
    """A block of code: where it is, its language, and its text without indentation."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """How a test names it."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def name_of(page: Path) -> str:
    """Path from the root."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """Fenced blocks, and indented ones of commands."""
    text = page.read_text(encoding="utf-8")
    found = [
        Block(page, _line(text, m.start()), m[2], re.sub(f"^{m[1]}", "", m[3], flags=re.M))
        for m in FENCE.finditer(text)
    ]
    bare = FENCE.sub(lambda m: "\n" * m[0].count("\n"), text)
    found += [
        Block(page, _line(bare, m.start()), "", re.sub("^    ", "", m[0], flags=re.M))
        for m in _INDENTED.finditer(bare)
    ]
    return found


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def prose(page: Path) -> str:
    """A page without its blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def commands(block: Block) -> list[list[str]]:
    """Words of every `ppw` command in a block; a `$` before it or not."""
    joined = re.sub(r"\\\n *", " ", block.text)
    lines = (line.strip().removeprefix("$ ") for line in joined.splitlines())
    return [
        shlex.split(line, comments=True)[1:]
        for line in lines
        if re.match(r"(\.venv/bin/)?ppw( |$)", line)
    ]


def resolve(words: list[str]) -> tuple[click.Command, list[str]]:
    """Command that the first words name, and the words after them. Raises for an unknown one."""
    command, rest = main, words
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        below = command.get_command(click.Context(command), rest[0])
        if below is None:
            # `ppw cpio RUNS` is a command by what it reads.
            return command.commands.get("study") or unknown(words), rest
        command, rest = below, rest[1:]
    return command, rest


def unknown(words: list[str]) -> NoReturn:
    """Say which command does not exist."""
    raise LookupError(f"no such command: ppw {' '.join(words)}")


def options_of(command: click.Command) -> set[str]:
    """All spellings of a command's options."""
    spelt = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    return {name for name in spelt if name.startswith("-")} | {"--help", "-h"}


def every_option() -> set[str]:
    """Options of all commands."""
    found: set[str] = set()
    todo: list[click.Command] = [main]
    while todo:
        command = todo.pop()
        found |= options_of(command)
        if isinstance(command, click.Group):
            names = [*command.commands] or command.list_commands(click.Context(command))
            todo += [command.get_command(click.Context(command), name) for name in names]
    return found
