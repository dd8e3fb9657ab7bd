"""Options of the fleet commands, and how their answers leave."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.choices import OneOf
from ppw.cli.numbers import Whole
from ppw.cli.options import all_of
from ppw.cli.output import emit, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ppw.fleet.result import FleetAnswer
    from ppw.report.page import Page


engine_options = all_of(
    click.option(
        "--engine",
        type=OneOf(["duckdb", "spark"]),
        default="duckdb",
        show_default=True,
        help="What reads the runs. Spark takes the session of spark-submit, or a local one.",
    ),
    click.option("--memory-limit", metavar="SIZE", help="Of the engine, such as 4GiB."),
    click.option(
        "--temporary", metavar="FOLDER", help="For what does not fit in the engine's memory."
    ),
    click.option("--threads", type=Whole(1), help="Of this machine. Default: all."),
    click.option(
        "--keep-going",
        is_flag=True,
        help="Exit with 0 even where files or runs could not be used.",
    ),
)


@contextmanager
def progress_bar() -> Iterator[Callable[[float], None] | None]:
    """Draw how far the engine is, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1000, label="reading runs", file=sys.stderr) as bar:
        yield lambda share: bar.update(int(1000 * share) - bar.pos)


def leave(
    answer: FleetAnswer[Any],
    format_: str,
    output: str,
    page: Callable[[Any], Page],
    *,
    keep_going: bool,
) -> int:
    """Write an answer, name its faults on standard error, and choose the exit code."""
    if output.lower().endswith(".parquet"):
        for caveat in answer.caveats:
            say(f"caveat: {caveat}")
        answer.write(output)
    else:
        emit(answer, format_, output, lambda whole: page(whole.answer))
    for fault in answer.faults:
        say(f"fault: {fault}")
    if answer.faults and not keep_going:
        say(f"{len(answer.faults)} faults: the answer is of the rest; --keep-going accepts that")
        return 1
    return 0
