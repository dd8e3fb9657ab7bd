"""Options of the fleet commands, how a fleet is asked, and how its answer leaves."""

from __future__ import annotations

import functools
import inspect
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.choices import OneOf
from ppw.cli.numbers import Whole
from ppw.cli.options import all_of, output_options_of
from ppw.cli.output import caveats_in_result, emit, say
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ppw.fleet.result import FleetAnswer
    from ppw.report.page import Page

_RUNS = (
    "RUNS are Parquet, CSV or JSON-lines files, folders of them, patterns or URLs. FILE may end in "
    ".parquet."
)
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


@dataclass(frozen=True)
class Fleet:
    """Runs that a command asks about, and where its answer goes."""

    runs: tuple[str, ...]
    mapping: dict[str, str]
    keep_going: bool
    format_: str
    output: str

    def ask(self, question: Callable[..., FleetAnswer[Any]], **options: Any) -> FleetAnswer[Any]:
        """Put a question of `ppw.fleet`, drawing on a terminal how far the engine is."""
        with caveats_in_result(), progress_bar() as progress:
            try:
                return question(self.runs, columns=self.mapping, progress=progress, **options)
            except PpwError as error:
                for note in getattr(error, "__notes__", ()):
                    say(note)
                raise

    def leave(self, answer: FleetAnswer[Any], page: Callable[[Any], Page]) -> int:
        """Write an answer, name its faults on standard error, and choose the exit code."""
        with caveats_in_result():
            self._write(answer, page)
        for fault in answer.faults:
            say(f"fault: {fault}")
        if not answer.faults or self.keep_going:
            return 0
        say(f"{len(answer.faults)} faults: the answer is of the rest; --keep-going accepts that")
        return 1

    def _write(self, answer: FleetAnswer[Any], page: Callable[[Any], Page]) -> None:
        if self.format_ == "text" and self.output == "-":
            # They follow on standard error.
            answer = replace(answer, faults=())
        if self.output.lower().endswith(".parquet"):
            for caveat in answer.caveats:
                say(f"caveat: {caveat}")
            answer.write(self.output)
        else:
            emit(answer, self.format_, self.output, lambda whole: page(whole.answer))


def asks_fleet(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of all questions to a fleet, which ``function`` takes as one `Fleet`.

    What RUNS and FILE are is added to the help.
    """

    @engine_options
    @output_options_of("text", "json", "csv", "html", elsewhere=("parquet",))
    @functools.wraps(function)
    def command(
        runs: tuple[str, ...],
        mapping: dict[str, str],
        keep_going: bool,
        format_: str,
        output: str,
        **options: Any,
    ) -> int:
        return function(Fleet(runs, mapping, keep_going, format_, output), **options)

    command.__doc__ = f"{inspect.getdoc(function)}\n\n{_RUNS}"
    return command


@contextmanager
def progress_bar() -> Iterator[Callable[[float], None] | None]:
    """Draw how far the engine is, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1000, label="reading runs", file=sys.stderr) as bar:
        yield lambda share: bar.update(int(1000 * share) - bar.pos)
