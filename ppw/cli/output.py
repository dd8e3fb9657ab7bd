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
from collections.abc import Iterable, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO, TypeVar

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from measurements.errors import MeasurementError
from measurements.table.units import frequency_text
from ppw.cli.types import OneOf
from ppw.errors import CaveatWarning, PpwError
from ppw.results.text import printable, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    import pandas as pd
    from rich.live import Live

    from ppw.results.page import Page


# Halves of characters, which names may hold and no encoding has.
_LONE = "backslashreplace"


class Result(Protocol):
    """What every result can do."""

    @property
    def caveats(self) -> tuple[str, ...]: ...  # noqa: D102
    def summary(self) -> str: ...  # noqa: D102
    def to_frame(self) -> pd.DataFrame: ...  # noqa: D102
    def to_json(self) -> str: ...  # noqa: D102


R = TypeVar("R", bound=Result)


@contextmanager
def caveats_in_result() -> Iterator[None]:
    """Keep caveats out of the warnings: the result says them itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaveatWarning)
        yield


def emit(result: R, format_: str, output: str, page: Callable[[R], Page] | None = None) -> None:
    """Write a result in the format asked for; on a page of its own where one is given."""
    if format_ == "csv":
        from measurements.table.writing import csv_text

        # The one format without a place for caveats.
        for caveat in result.caveats:
            say(f"caveat: {caveat}")
        write(csv_text(result.to_frame()), output)
    elif format_ == "html":
        write(page(result).render() if page else result.to_html(), output)  # type: ignore[attr-defined]
    else:
        write((result.to_json() if format_ == "json" else result.summary()) + "\n", output)


def say(text: str) -> None:
    """Tell the user something that is no result: one line, of characters that print."""
    click.echo(f"ppw: {printable(' '.join(text.split()))}", err=True)


class _Says(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


def say_why_it_waits() -> None:
    """Tell on a terminal that loops are compiled first: nothing else is seen of a first start."""
    compiling = logging.getLogger("fitting.compiled.loops")
    if sys.stderr.isatty() and not compiling.handlers:
        compiling.addHandler(_Says())
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
            path.write_text(text, encoding="utf-8", errors=_LONE)
        else:
            # A link stays one: what it points to is written.
            _replace(path.resolve(), text)
    except OSError as error:
        raise PpwError(f"{output}: cannot be written: {error.strerror or error}") from error


def _to_standard_output(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise PpwError(f"standard output: {error.strerror or error}") from error


def _replace(path: Path, text: str) -> None:
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors=_LONE) as stream:
            stream.write(text)
        Path(scratch).chmod(0o666 & ~_umask())
        Path(scratch).replace(path)
    finally:
        Path(scratch).unlink(missing_ok=True)


def open_closed_streams() -> None:
    """Give standard streams that were closed at the start an end: empty, or taking nothing.

    Python has none for them, and the next file that is opened would get their number.
    """
    if sys.stdin is None:
        sys.stdin = _nothing(os.O_RDONLY, "r")
    if sys.stdout is None:
        sys.stdout = _nothing(os.O_RDONLY, "w")
    if sys.stderr is None:
        sys.stderr = _nothing(os.O_WRONLY, "w")


def _nothing(flags: int, mode: Literal["r", "w"]) -> TextIO:
    number = os.open(os.devnull, flags)
    return open(number, mode, encoding="utf-8", closefd=False)  # no path


def report_error(error: Exception) -> bool:
    """Print an error of ours in one line; False for any other, which is a defect."""
    from fitting.errors import FittingError

    if not isinstance(error, (MeasurementError, FittingError, PpwError, OSError)):
        return False
    say(f"error: {_reason(error)}")
    return True


def _reason(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    said = error.strerror or str(error)
    return f"{error.filename}: {said}" if error.filename else said


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# SIGTERM and SIGHUP as ways out on which everything is closed, and only then the process ends.
#
# By default either ends Python at once: a command that is being measured would run on by itself.


_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class _Terminated(BaseException):
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
            raise _Terminated

    taken = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, terminate)
    try:
        yield
    except _Terminated:
        _end_by(came[0])
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _end_by(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


# Tab completion: the scripts that shells load, and file names where ppw knows nothing better.


VARIABLE = "_PPW_COMPLETE"


class _OrFiles(ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """Complete as click does; where that finds nothing, after a command, files."""
        found = super().get_completions(args, incomplete)
        if found or not args or incomplete.startswith("-"):
            return found
        return [CompletionItem(incomplete, type="file")]


class _Bash(_OrFiles, BashComplete):
    pass


class _Zsh(_OrFiles, ZshComplete):
    pass


class _Fish(_OrFiles, FishComplete):
    pass


SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def answer_shells() -> None:
    """Have click answer the scripts' questions by these classes."""
    for name, shell in SHELLS.items():
        add_completion_class(shell, name)


def completion_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --completion, which prints the script of a shell and does nothing else."""
    return click.option(
        "--completion",
        type=OneOf(list(SHELLS)),
        expose_value=False,
        is_eager=True,
        callback=_print_script,
        help='Print tab completion for a shell; in its start-up file: eval "$(ppw --completion '
        'bash)", or zsh; for fish: ppw --completion fish | source.',
    )(function)


def _print_script(ctx: click.Context, param: click.Parameter, shell: str | None) -> None:
    if shell is None or ctx.resilient_parsing:
        return
    click.echo(SHELLS[shell](ctx.command, {}, "ppw", VARIABLE).source())
    ctx.exit()


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
        line = f"ppw: {printable(' '.join(text.split()))}"
        if self._live is not None:
            self._live.console.print(line, markup=False, highlight=False)
        else:
            click.echo(line, err=True)

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
