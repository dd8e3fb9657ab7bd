"""Writing a runs table: Parquet, JSON lines or CSV, a file whole or not at all."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import shutil
import sys
import tempfile
from contextlib import contextmanager, nullcontext, suppress
from datetime import date, time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

import numpy as np

from measurements.errors import MeasurementError, first_line, require_pyarrow
from measurements.table.reading import FORMULA_SIGNS, is_text_column

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

# Spreadsheets compute a cell that begins with ``=``, ``+``, ``-`` or ``@``, whoever wrote it. Such
# a text is written with an apostrophe before it, which to a spreadsheet means text, and read back
# without; texts that already begin so get one more, so that every name comes back as it was.
# Numbers, and texts that are nothing but a number, stay as they are.
_FORMULA = re.compile(rf"'*{FORMULA_SIGNS}")
_NUMBER = re.compile(r"[+-]?(\d+(?:\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def guard_text(text: str) -> str:
    """Write a text so that no spreadsheet computes it; `read_runs` undoes that."""
    formula = _FORMULA.match(text) and not _NUMBER.fullmatch(text)
    return f"'{text}" if formula else text


def csv_text(frame: pd.DataFrame) -> str:
    """Table as CSV, without its index, texts and headers guarded."""
    text = io.StringIO()
    write_csv(frame, text)
    return text.getvalue()


def write_csv(frame: pd.DataFrame, target: TextIO) -> None:
    """Write `csv_text`."""
    safe = frame.apply(_guard_texts).set_axis([guard_text(str(c)) for c in frame], axis=1)
    # A carriage return of its own ends a row for many readers, and is quoted only if all text is.
    # Searched by hand: a mapped categorical column stays one, and has no any().
    cells = (cell for c in safe if is_text_column(safe[c]) for cell in safe[c])
    returns = any(isinstance(cell, str) and "\r" in cell for cell in cells)
    quoting: Literal[0, 2] = csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL
    safe.to_csv(target, index=False, quoting=quoting, lineterminator="\n")


def _guard_texts(column: pd.Series[Any]) -> pd.Series[Any]:
    if not is_text_column(column):
        return column
    return column.map(lambda cell: guard_text(cell) if isinstance(cell, str) else cell)


# Endings of files with a JSON object a line.
JSON_LINES = (".jsonl", ".ndjson", ".json")


def write_runs(runs: pd.DataFrame, target: str | Path) -> None:
    """Write a runs table: Parquet, JSON lines or CSV by the ending; "-" is CSV on standard output.

    A file appears whole or not at all. CSV and JSON lines are compressed where the name also ends
    in ".gz". In CSV, text that a spreadsheet would take for a formula begins with an apostrophe,
    which `read_runs` takes off again.

    Parameters
    ----------
    runs : pandas.DataFrame
    target : str or Path
        File, or "-".

    Raises
    ------
    MeasurementError
        When the file cannot be written, or not in this format.
    """
    if str(target) == "-":
        try:
            write_csv(runs, sys.stdout)
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise MeasurementError(f"standard output: {error.strerror or error}") from error
        return
    path = Path(target)
    try:
        # A device or a pipe is written to; a file in its place would be something else.
        is_special = path.exists() and not path.is_file()
        with nullcontext(path) if is_special else replace_whole(path) as scratch:
            _write_by_ending(runs, scratch, path.name)
    except OSError as error:
        reason = error.strerror or str(error)
        raise MeasurementError(f"{target}: cannot be written: {reason}") from error
    except MeasurementError:
        raise
    except (TypeError, ValueError) as error:
        raise MeasurementError(f"{target}: cannot be written: {first_line(error)}") from error


@contextmanager
def scratch_folder(beside: Path) -> Iterator[Path]:
    """Make a folder of scratch files; remove those of processes of this host that were killed."""
    own = f".part-{os.uname().nodename}-"
    with suppress(OSError):
        _sweep(beside, own)
    with tempfile.TemporaryDirectory(dir=beside, prefix=f"{own}{os.getpid()}-") as folder:
        yield Path(folder)


def _sweep(folder: Path, own: str) -> None:
    for left in folder.iterdir():
        process = left.name.removeprefix(own).partition("-")[0]
        if left.name.startswith(own) and process.isdigit() and not _is_alive(int(process[:9])):
            shutil.rmtree(left, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@contextmanager
def replace_whole(path: Path, name: str | None = None) -> Iterator[Path]:
    """Yield a scratch file that takes another one's place, whole, unless something fails.

    ``name`` is the file's in the error; its path by default.
    """
    try:
        with scratch_folder(path.parent) as folder:
            # Made in a folder of its own, the file has the permissions of any new file.
            scratch = folder / path.name
            yield scratch
            if path.exists():
                scratch.chmod(path.stat().st_mode & 0o777)
            scratch.replace(path)
    except OSError as error:
        reason = error.strerror or error
        raise MeasurementError(f"{name or path}: cannot be written: {reason}") from error


def _write_by_ending(runs: pd.DataFrame, path: Path, name: str) -> None:
    plain = name.lower().removesuffix(".gz")
    if plain.endswith(".parquet"):
        require_pyarrow()
        runs.to_parquet(path, index=False)
        return
    with gzip.open(path, "wb") if plain != name.lower() else path.open("wb") as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        if plain.endswith(JSON_LINES):
            _write_json_lines(runs, text)
        else:
            write_csv(runs, text)
        text.flush()


def _write_json_lines(runs: pd.DataFrame, file: io.TextIOBase) -> None:
    """Write each number with all its digits, which `pandas.DataFrame.to_json` does not."""
    names = [str(c) for c in runs.columns]
    values = (column.astype(object).where(column.notna(), None) for _, column in runs.items())
    encoder = json.JSONEncoder(ensure_ascii=False, default=_as_json_value)
    for row in zip(*(v.tolist() for v in values), strict=True):
        file.write(encoder.encode(dict(zip(names, row, strict=True))) + "\n")


def _as_json_value(value: object) -> object:
    """Convert NumPy values to Python's, dates and times to ISO text; else TypeError."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, (date, time)):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON lines")
