"""Results to standard output or a file, everything else to standard error."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click
from click import shell_completion as shells

from measurements.errors import MeasurementError
from measurements.table.units import frequency_text
from ppw.cli.types import OneOf
from ppw.errors import CaveatWarning, PpwError
from ppw.results.text import printable, shown, text_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    import pandas as pd
    from rich.live import Live

    from ppw.results.page import Page


class Printable(Protocol):
    """What every result can do."""

    @property
    def caveats(self) -> tuple[str, ...]: ...  # noqa: D102
    def summary(self) -> str: ...  # noqa: D102
    def to_frame(self) -> pd.DataFrame: ...  # noqa: D102
    def to_json(self) -> str: ...  # noqa: D102


@contextmanager
def caveats_in_result() -> Iterator[None]:
    """Keep caveats out of the warnings: the result says them itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaveatWarning)
        yield


def emit(
    result: Printable, format_: str, output: str, page: Callable[[Any], Page] | None = None
) -> None:
    """Write a result in the format asked for; as HTML on the page given, or its own."""
    if format_ == "csv":
        from measurements.table.writing import csv_text

        # The one format without a place for caveats.
        say_caveats(result.caveats)
        write(csv_text(result.to_frame()), output)
    elif format_ == "html":
        write(page(result).render() if page else _html(result), output)
    else:
        write((result.to_json() if format_ == "json" else result.summary()) + "\n", output)


def _html(result: Any) -> str:
    # A model of a trace is a document of its own, not a declared result.
    if hasattr(result, "to_html"):
        return str(result.to_html())
    from ppw.storage.report import trace_page

    return trace_page(result).render()


def say(text: str) -> None:
    """Tell the user something that is no result: one line, of characters that print."""
    click.echo(_line(text), err=True)


def _line(text: str) -> str:
    return f"ppw: {printable(' '.join(text.split()))}"


def say_caveats(caveats: Iterable[object]) -> None:
    """Tell the user caveats that the output has no place for."""
    for caveat in caveats:
        say(f"caveat: {caveat}")


def exit_code(failure: str | None) -> int:
    """Tell why a check failed, and choose the exit code: 3, or 0 where none failed."""
    if failure:
        say(f"check failed: {failure}")
    return 3 if failure else 0


class _SayHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


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
    columns = {name: column for name, column in columns.items() if name in table}
    titles, rows = [title for title, _, _ in columns.values()], []
    for key, part in table.groupby(by, dropna=False, sort=True):
        medians = [shown(part[c].median() * k, unit) for c, (_, unit, k) in columns.items()]
        rows.append([*head(key, part), *medians, *([tail[1](part)] if tail else [])])
    return text_table([*header, *titles, *([tail[0]] if tail else [])], rows)


def say_why_it_waits() -> None:
    """Tell on a terminal that loops are compiled first: nothing else is seen of a first start."""
    compiling = logging.getLogger("fitting.compiled.loops")
    if sys.stderr.isatty() and not compiling.handlers:
        compiling.addHandler(_SayHandler())
        compiling.setLevel(logging.INFO)


def refuse_an_input(output: str) -> None:
    """Raise `click.UsageError` where the running command would replace one of its inputs."""
    context = click.get_current_context(silent=True)
    if context is None or output == "-" or not Path(output).is_file():
        return
    given = [value for name, value in context.params.items() if name != "output"]
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
        _to_standard_output(text)
        return
    refuse_an_input(output)
    path = Path(output)
    try:
        if path.exists() and not path.is_file():
            # A device or a pipe takes the text; a file in its place would be its end.
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
        else:
            # A link stays one: what it points to is written.
            _replace(path.resolve(), text)
    except OSError as error:
        raise PpwError(f"{output}: cannot be written: {error.strerror or error}") from error


def _to_standard_output(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise PpwError(f"standard output: {error.strerror or error}") from error


def _replace(path: Path, text: str) -> None:
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        mask = os.umask(0)
        os.umask(mask)
        Path(scratch).chmod(0o666 & ~mask)
        Path(scratch).replace(path)
    finally:
        Path(scratch).unlink(missing_ok=True)


def open_closed_streams() -> None:
    """Give standard streams that were closed at the start an end: empty, or taking nothing.

    Python has none for them, and the next file that is opened would get their number.
    """
    for name, flags, mode in (
        ("stdin", os.O_RDONLY, "r"),
        # What is written to a stream without an end is an error, as with `>&-` in a shell.
        ("stdout", os.O_RDONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, flags)
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def report_error(error: Exception) -> bool:
    """Print an error of ours in one line; False for any other, which is a defect."""
    from fitting.errors import FittingError

    if not isinstance(error, (MeasurementError, FittingError, PpwError, OSError)):
        return False
    reason = str(error)
    if isinstance(error, OSError):
        named = f"{error.filename}: " if error.filename else ""
        reason = f"{named}{error.strerror or error}"
    say(f"error: {reason}")
    return True


# SIGTERM and SIGHUP as ways out on which everything is closed, and only then the process ends.
#
# By default either ends Python at once: a command that is being measured would run on by itself.


_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class TerminationSignal(BaseException):
    """A signal to end has come; no `Exception`, so that nothing but closing stands in its way."""


@contextmanager
def closing_first() -> Iterator[None]:
    """Let a signal to end unwind what runs inside, then end by that signal as if nothing were.

    A signal that is ignored, as under nohup, stays so. A second one changes nothing: what is being
    put back is put back. A copy of this process ends at once, as ever.
    """
    # Elsewhere Python takes no handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner, came = os.getpid(), list[int]()

    def terminate(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            _end_by(number)
        came.append(number)
        if len(came) == 1:
            raise TerminationSignal

    taken = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, terminate)
    try:
        yield
    except TerminationSignal:
        _end_by(came[0])
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _end_by(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


# Tab completion: the scripts that shells load, and file names where ppw knows nothing better.
VARIABLE = "_PPW_COMPLETE"


class _OrFiles(shells.ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[shells.CompletionItem[str]]:
        """Complete as click does; where that finds nothing, after a command, files."""
        found = super().get_completions(args, incomplete)
        if found or not args or incomplete.startswith("-"):
            return found
        return [shells.CompletionItem(incomplete, type="file")]


SHELLS: dict[str, type[shells.ShellComplete]] = {
    shell.name: type(shell.__name__, (_OrFiles, shell), {})
    for shell in (shells.BashComplete, shells.ZshComplete, shells.FishComplete)
}


def answer_shells() -> None:
    """Have click answer the scripts' questions by these classes."""
    for name, shell in SHELLS.items():
        shells.add_completion_class(shell, name)


def _print_script(ctx: click.Context, param: click.Parameter, shell: str | None) -> None:
    if shell is None or ctx.resilient_parsing:
        return
    click.echo(SHELLS[shell](ctx.command, {}, "ppw", VARIABLE).source())
    ctx.exit()


# Option that prints the script of a shell and does nothing else.
completion_option = click.option(
    "--completion",
    type=OneOf(list(SHELLS)),
    expose_value=False,
    is_eager=True,
    callback=_print_script,
    help='Print tab completion for a shell; in its start-up file: eval "$(ppw --completion '
    'bash)", or zsh; for fish: ppw --completion fish | source.',
)


# Progress of a sweep: a bar with the last runs on a terminal; elsewhere only what it says.
_ROWS = 8
_SHOWN = {"time_s": "s", "power_w": "W", "cpi": "1", "temperature_c": "°C"}


class Progress:
    """Live table of the last runs and the time that is left, on standard error."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._rows: list[dict[str, Any]] = []
        self._started = 0.0
        self._done = self._all = 0

    def __enter__(self) -> Progress:
        """Begin; without a terminal nothing is drawn."""
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()

    def tell(self, text: str) -> None:
        """Say a line that stays."""
        if self._live is not None:
            self._live.console.print(_line(text), markup=False, highlight=False)
        else:
            say(text)

    def expect(self, runs: int) -> None:
        """Learn how much there is to do."""
        self._started, self._all = time.monotonic(), runs

    def show(self, row: dict[str, Any]) -> None:
        """Add a run that has ended."""
        self._done += 1
        self._rows = [*self._rows[-_ROWS + 1 :], row]
        if self._live is not None:
            self._live.update(self._picture())

    def _picture(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        columns = [c for c in _SHOWN if any(c in row for row in self._rows)]
        for name in ("clock", "cores", "repeat", *(c.rpartition("_")[0] or c for c in columns)):
            table.add_column(name, justify="right")
        for row in self._rows:
            cells = [frequency_text(row["freq_hz"]), str(row.get("cores", "–")), str(row["repeat"])]
            table.add_row(*cells, *(shown(row.get(c), _SHOWN[c]) for c in columns))
        each = (time.monotonic() - self._started) / max(self._done, 1)
        left = timedelta(seconds=round(each * (self._all - self._done)))
        said = f" {self._done} of {self._all} runs, {left} left"
        return Group(table, ProgressBar(total=self._all, completed=self._done, width=40), said)
