"""Results to standard output or a file, everything else to standard error."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ppw.errors import CaveatWarning, PpwError
from ppw.results.text import printable, shown, text_table, write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd

    from ppw.results.page import Page


# Keeps caveats out of the warnings, because the result says them itself.
caveats_in_result = partial(warnings.catch_warnings, action="ignore", category=CaveatWarning)


def emit(result: Any, format_: str, output: str, page: Callable[[Any], Page] | None = None) -> None:
    """Write a result as text, JSON, CSV or HTML; as HTML on the page given, or its own."""
    if format_ == "csv":
        from measurements.table.writing import csv_text

        # The one format without a place for caveats.
        say_caveats(result.caveats)
        write(csv_text(result.to_frame()), output)
    elif format_ == "html":
        write(page(result).render() if page else _render_html(result), output)
    else:
        texts = {"json": "to_json", "markdown": "to_markdown", "text": "summary"}
        write(getattr(result, texts[format_])() + "\n", output)


def _render_html(result: Any) -> str:
    # A model of a trace is a document of its own, not a declared result.
    if hasattr(result, "to_html"):
        return str(result.to_html())
    from ppw.storage.report import trace_page

    return trace_page(result).render()


def say(text: str) -> None:
    """Print a message to standard error in one line, after "ppw: "."""
    click.echo(message_line(text), err=True)


def message_line(text: str) -> str:
    """Make one line of a message: "ppw: " and the text, of characters that print."""
    return f"ppw: {printable(' '.join(text.split()))}"


def say_caveats(caveats: Iterable[object]) -> None:
    """Print each caveat to standard error, for outputs that have no place for them."""
    for caveat in caveats:
        say(f"caveat: {caveat}")


def report_failed_check(failure: str) -> int:
    """Print why a check failed and return the exit code 3."""
    say(f"check failed: {failure}")
    return 3


def medians_text(
    table: pd.DataFrame,
    by: list[Any],
    header: Sequence[str],
    head: Callable[[Any, pd.DataFrame], list[str]],
    columns: Mapping[str, tuple[str, str, float]],
    tail: tuple[str, Callable[[pd.DataFrame], str]] | None = None,
) -> str:
    """Tabulate the medians of each group of runs as text.

    A row begins with ``head`` of the group's key and runs, below ``header``; then come the medians
    of ``columns`` (title, unit, and the factor to it), and what ``tail`` makes of the runs.
    """
    # Medians, since one run that was held up should not move a row.
    columns = {name: column for name, column in columns.items() if name in table}
    titles, rows = [title for title, _, _ in columns.values()], []
    for key, part in table.groupby(by, dropna=False, sort=True):
        medians = [shown(part[c].median() * k, unit) for c, (_, unit, k) in columns.items()]
        rows.append([*head(key, part), *medians, *([tail[1](part)] if tail else [])])
    return text_table([*header, *titles, *([tail[0]] if tail else [])], rows)


def refuse_input_as_output(output: str) -> None:
    """Raise `click.UsageError` where the output is one of the running command's input files."""
    context = click.get_current_context(silent=True)
    if context is None or output == "-" or not Path(output).is_file():
        return
    given = [v for name, v in context.params.items() if name not in ("output", "report")]
    for path in _paths(given):
        with suppress(OSError, ValueError):
            if Path(path).samefile(output):
                raise click.UsageError(
                    f"-o {output} is an input, and would be replaced: write to another file"
                )


def _paths(given: object) -> Iterator[str]:
    """Texts among values that could be paths; also behind a label, as in ``db=one.csv,two.csv``."""
    if isinstance(given, (str, os.PathLike)):
        text = os.fspath(given)
        if isinstance(text, str):
            yield text
            yield from text.partition("=")[2].split(",")
    elif isinstance(given, Mapping):
        yield from _paths([*given.values()])
    elif isinstance(given, Iterable) and not isinstance(given, bytes):
        for one in given:
            yield from _paths(one)


def write(text: str, output: str) -> None:
    """Write text to standard output ("-") or, whole or not at all, to a file."""
    if output == "-":
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            # A reader that has gone is no fault of the output: the entry point ends quietly.
            if isinstance(error, BrokenPipeError):
                raise
            raise PpwError(f"standard output: {error.strerror or error}") from error
        return
    refuse_input_as_output(output)
    write_text(text, output)
