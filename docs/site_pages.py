"""What the site has beside the pages in this folder: figures, all commands, and all public names.

Hooks of MkDocs, called by the names below at each build.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import click
from mkdocs.structure.files import File

from ppw.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

# Names and options that fit into a line of a phone, outside blocks.
SHORT_CODE = re.compile(r"(?<!<pre>)<code>(?=[^<\n]{1,24}</code>)")
# Names whose docstrings a page of the reference shows.
NAME = re.compile(r"^::: (\S+)", re.M)

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is generated."""
    figures = runpy.run_path(str(ROOT / "examples" / "gallery.py"))["figures"]
    for name, _, svg in figures():
        files.append(File.generated(config, f"figures/{name}.svg", content=svg))
    # Drawn by `make accuracy`, from data that do not come with the sources.
    for plot in sorted((DOCS / "generated").glob("worst_*.svg")):
        at = f"figures/worst/{plot.stem.removeprefix('worst_')}.svg"
        files.append(File.generated(config, at, abs_src_path=str(plot)))
    files.append(File.generated(config, "reference/commands.md", content=commands_page()))
    files.append(File.generated(config, "reference/names.md", content=names_page()))
    return files


def on_page_content(html: str, **_: object) -> str:
    """Keep short code on one line: a browser breaks an option behind its hyphens."""
    return SHORT_CODE.sub('<code class="whole">', html)


def commands_page() -> str:
    """Every command, a section each, with what its ``--help`` prints."""
    context = click.Context(main, info_name="ppw", max_content_width=88)
    parts = ["# Commands\n\nWhat `--help` prints, command by command.\n"]
    for name, text in helps(main, context):
        parts.append(f"## {name}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def names_page() -> str:
    """Every public name that the pages of the reference have, with the first line of its text."""
    pages = sorted((DOCS / "reference").glob("*.md"))
    named = [name for page in pages for name in NAME.findall(page.read_text(encoding="utf-8"))]
    named.sort(key=lambda name: name.rpartition(".")[2].lower())
    head = "# Index of names\n\nEvery public function and class.\n\n"
    head += "| name | what it does |\n| --- | --- |\n"
    return head + "".join(f"| [`{name}`][{name}] | {summary(name)} |\n" for name in named)


def summary(name: str) -> str:
    """First sentence of the docstring of a public function or class."""
    text = inspect.getdoc(pkgutil.resolve_name(name)) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|").replace("``", "`")


def helps(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Names and help texts of a command and of all below it."""
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        # Some are typed by what they read alone, and so not listed.
        for name in [*command.commands] or command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            width = context.max_content_width
            inner = click.Context(below, context, info_name=name, max_content_width=width)
            yield from helps(below, inner)
