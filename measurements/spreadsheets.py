"""Text cells of CSV that a spreadsheet would take for formulas, written so that it does not.

Spreadsheets compute a cell that begins with ``=``, ``+``, ``-`` or ``@``, whoever wrote it. Such a
text is written with an apostrophe before it, which to a spreadsheet means text, and read back
without; texts that already begin so get one more, so that every name comes back as it was. Numbers,
and texts that are nothing but a number, stay as they are.
"""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    import pandas as pd

# Signs of full width count where Japanese is written; white space before a sign is passed over.
_SIGNS = r"[=+\-@＝＋－＠\t\r\n]"
_FORMULA = re.compile(rf"'*{_SIGNS}")
_GUARDED = re.compile(rf"'+{_SIGNS}")
_GUARDED_BYTES = re.compile(rb"'([=+\-@\t\r\n]|\xef\xbc)")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def guarded(text: str) -> str:
    """Write a text so that no spreadsheet computes it."""
    formula = _FORMULA.match(text) and not _NUMBER.fullmatch(text)
    return f"'{text}" if formula else text


def unguarded(text: str) -> str:
    """Undo `guarded`."""
    return text[1:] if _GUARDED.match(text) else text


def csv_text(frame: pd.DataFrame) -> str:
    """Table as CSV, without its index, texts and headers guarded."""
    text = io.StringIO()
    write_csv(frame, text)
    return text.getvalue()


def write_csv(frame: pd.DataFrame, target: TextIO) -> None:
    """Write `csv_text`."""
    safe = frame.apply(_guarded_column).set_axis([guarded(str(c)) for c in frame.columns], axis=1)
    # A carriage return of its own ends a row for many readers, and is quoted only if all text is.
    returns = any(_holds_return(safe[c]) for c in safe if _is_text(safe[c]))
    quoting: Literal[0, 2] = csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL
    safe.to_csv(target, index=False, quoting=quoting, lineterminator="\n")


def may_be_guarded(content: bytes) -> bool:
    """Whether a file may hold guarded texts: most do not, and need not be gone through."""
    return _GUARDED_BYTES.search(content) is not None


def unguarded_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Undo `guarded` in the text cells of a table that was read, in place."""
    for name in frame.columns:
        if _is_text(frame[name]):
            frame[name] = frame[name].map(unguarded, na_action="ignore")
    return frame


def _guarded_column(column: pd.Series[Any]) -> pd.Series[Any]:
    if not _is_text(column):
        return column
    return column.map(lambda cell: guarded(cell) if isinstance(cell, str) else cell)


def _holds_return(column: pd.Series[Any]) -> bool:
    # By hand: a mapped categorical column stays one, and has no any().
    return any(isinstance(cell, str) and "\r" in cell for cell in column)


def _is_text(column: pd.Series[Any]) -> bool:
    return column.dtype.kind not in "iufbmMc"
