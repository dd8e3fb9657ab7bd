"""Formats whose lines differ from one another: lines as Arrow strings, taken apart by a regex."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from measurements.traces.requests import Array, BadRequestError
from measurements.traces.source import line_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Lines(NamedTuple):
    """Lines with their ends, and the number of each."""

    row: Array
    text: pa.Array

    def take(self, chosen: Array) -> Lines:
        """Choose lines by a mask."""
        return Lines(self.row[chosen], self.text.filter(pa.array(chosen)))


def lines(path: Path) -> Iterator[Lines]:
    """Yield the lines of a text, many at a time; blank ones too."""
    for first, _, block in line_blocks(path):
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
        if not block.endswith(b"\n"):
            ends = np.append(ends, len(block))
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block)]
        text = pa.Array.from_buffers(pa.string(), len(ends), buffers)
        yield Lines(np.arange(first, first + len(ends)), text)


def matches(found: Lines, pattern: str) -> Array:
    """Whether each line fits a pattern, from its start."""
    mask: Array = pc.match_substring_regex(found.text, f"^{pattern}").to_numpy(zero_copy_only=False)
    return mask


def extracted(found: Lines, pattern: str) -> tuple[Array, pa.StructArray]:
    """Take lines apart by the named groups of a pattern.

    Returns
    -------
    (matched, parts)
        Whether each line fits, and a struct of strings for those that do; a group that took no
        part is "".
    """
    parts = pc.extract_regex(found.text, f"^{pattern}\\s*$")
    matched: Array = parts.is_valid().to_numpy(zero_copy_only=False)
    return matched, parts if matched.all() else parts.filter(parts.is_valid())


def whole(column: pa.Array, row: Array, name: str) -> Array:
    """Read a column of digits as int64.

    Raises
    ------
    BadRequestError
        For the first that is beyond 2^63.
    """
    try:
        numbers: Array = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return numbers
    except pa.ArrowInvalid:
        pass
    for at, text in enumerate(column.to_pylist()):
        try:
            inside = -(2**63) <= int(text) < 2**63
        except ValueError:
            raise BadRequestError(int(row[at]), f"{name} {text!r} is no whole number") from None
        if not inside:
            raise BadRequestError(int(row[at]), f"{name} {text[:40]} is beyond 2^63")
    raise BadRequestError(int(row[0]), f"{name} of this line, or one after it, is no whole number")


def first_line(found: Lines, bad: Array) -> tuple[int, str]:
    """Number and text of the first line of a mask, the text short enough for a message."""
    at = int(np.argmax(bad))
    text = str(found.text[at].as_py()).strip()
    return int(found.row[at]), repr(text if len(text) <= 70 else f"{text[:67]}…")
