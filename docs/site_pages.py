"""What the site has beside the pages in this folder: figures, all commands, all public names.

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

from ppw.cli import SECTIONS, choose_answer, main

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


HEADING = re.compile("^# (.+)", re.M)
# Overview of the commands; the page of each stands below it.
OVERVIEW = "reference/commands.md"
# Options that another command answers, with help of its own.
ANSWERED = {
    "fit": ("--over load", "--over data", "--over cores"),
    "compare": ("--details",),
    "measure": ("--list-sensors",),
    "pressure": ("--for sharing", "--for sizing"),
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the page of each command."""
    assert config.nav is not None
    (reference,) = (entry["Reference"] for entry in config.nav if "Reference" in entry)
    at = reference.index({"Commands": OVERVIEW})
    listed = [f"reference/ppw-{name}.md" for names in SECTIONS.values() for name in names]
    reference[at] = {"Commands": [OVERVIEW, *listed]}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is generated."""
    figures = runpy.run_path(str(ROOT / "examples" / "gallery.py"))["figures"]
    for name, _, svg in figures():
        files.append(File.generated(config, f"figures/{name}.svg", content=svg))
    # Drawn by `make accuracy`, from data that do not come with the sources.
    for plot in sorted((DOCS / "generated").glob("worst_*.svg")):
        at = f"figures/worst/{plot.stem.removeprefix('worst_')}.svg"
        files.append(File.generated(config, at, abs_src_path=str(plot)))
    for name, text in {**commands_pages(), "names": names_page()}.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_content(html: str, **_: object) -> str:
    """Keep short code on one line: a browser breaks an option behind its hyphens."""
    return SHORT_CODE.sub('<code class="whole">', html)


def commands_pages() -> dict[str, str]:
    """Overview of the commands as ``ppw --help`` lists them, and a page of each, by file name."""
    context = click.Context(main, info_name="ppw", max_content_width=88)
    overview, pages = ["# Commands\n"], {}
    for section, names in SECTIONS.items():
        overview.append(f"\n## {section}\n\n| command | what it does |\n| --- | --- |\n")
        for name in names:
            command = main.get_command(context, name)
            assert command is not None
            overview.append(
                f"| [ppw {name}](ppw-{name}.md) | {command.get_short_help_str(200)} |\n"
            )
            pages[f"ppw-{name}"] = command_page(name, command, context)
    return {"commands": "".join(overview), **pages}


def command_page(name: str, command: click.Command, context: click.Context) -> str:
    """Help of a command and of all below it, and the pages that show its output."""
    shown = [*helps(f"ppw {name}", command, context)]
    for option in ANSWERED.get(name, ()):
        answers = main.get_command(context, choose_answer([name, *option.split()])[1])
        assert answers is not None
        shown += helps(f"ppw {name} {option}", answers, context)
    (_, text), *below = shown
    parts = [f"# ppw {name}\n\n```text\n{text}\n```\n"]
    pages = {page: page.read_text(encoding="utf-8") for page in sorted(DOCS.rglob("*.md"))}
    links = [
        f"[{HEADING.findall(written)[0]}](../{page.relative_to(DOCS)})"
        for page, written in pages.items()
        if f"\n$ ppw {name} " in written
    ]
    parts += [f"\nPages with its output: {', '.join(links)}.\n"] if links else []
    parts += [f"\n## {title}\n\n```text\n{text}\n```\n" for title, text in below]
    return "".join(parts)


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


def helps(title: str, command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Names and help texts of a command and of all below it."""
    name = title.removeprefix(f"{context.command_path} ")
    inner = click.Context(
        command, context, info_name=name, max_content_width=context.max_content_width
    )
    # With all options, where --help leaves those of statistics out.
    inner.meta["ppw.help_all"] = any("--help-all" in p.opts for p in command.get_params(inner))
    yield title, command.get_help(inner)
    if isinstance(command, click.Group):
        # Some are typed by what they read alone, and so not listed.
        for below in [*command.commands] or command.list_commands(inner):
            found = command.get_command(inner, below)
            assert found is not None
            yield from helps(f"{title} {below}", found, inner)
