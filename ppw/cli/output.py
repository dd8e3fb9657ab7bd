"""Results to standard output or a file, everything else to standard error."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TextIO, TypeVar

import click

from measurements.errors import MeasurementError
from ppw.errors import CaveatWarning, PpwError
from ppw.names import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd

    from ppw.report.page import Page


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


def emit(result: R, format_: str, output: str, page: Callable[[R], Page]) -> None:
    """Write a result in the format asked for."""
    if format_ == "csv":
        from measurements.spreadsheets import csv_text

        # The one format without a place for caveats.
        for caveat in result.caveats:
            say(f"caveat: {caveat}")
        write(csv_text(result.to_frame()), output)
    elif format_ == "html":
        write(page(result).render(), output)
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
