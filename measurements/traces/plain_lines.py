"""Lines of whole numbers and words between commas, parsed by a compiled loop.

Quicker than a parser of any CSV, for files that are as plain as machines write them: digits without
sign or space, few different words, no quotes. A block of lines with anything else is for Arrow's
parser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from measurements.traces.requests import Array

_MOST_WORDS, _LONGEST_WORD = 256, 64
# So many digits are below 2^63 whatever they are.
_MOST_DIGITS = 18
_COMMA, _RETURN, _NEWLINE, _ZERO = ord(","), ord("\r"), ord("\n"), ord("0")


class _Words(NamedTuple):
    """Words of each column of words: how many, their lengths, their bytes."""

    number: Array
    length: Array
    text: Array


class PlainLines:
    """Parses blocks of lines, one after the other.

    Parameters
    ----------
    names : sequence of str
        Columns, left to right.
    whole : sequence of bool
        Whether each holds whole numbers; the others hold words.
    """

    def __init__(self, names: Sequence[str], whole: Sequence[bool]) -> None:
        self._names, self._whole = list(names), np.asarray(whole, dtype=np.bool_)
        columns = len(names) - int(self._whole.sum())
        self._words = _Words(
            np.zeros(columns, np.int64),
            np.zeros((columns, _MOST_WORDS), np.int64),
            np.zeros((columns, _MOST_WORDS, _LONGEST_WORD), np.uint8),
        )

    def table(self, lines: bytes, number: int) -> pa.Table | None:
        """Parse lines, at most so many; None where they are not plain."""
        numbers = np.empty((int(self._whole.sum()), number), np.int64)
        codes = np.empty((len(self._words.number), number), np.int32)
        text = np.frombuffer(lines if lines.endswith(b"\n") else lines + b"\n", np.uint8)
        rows = _parse(text, self._whole, numbers, codes, *self._words)
        if rows < 0:
            return None
        whole, words = iter(numbers), enumerate(codes)
        arrays = [
            pa.array(next(whole)[:rows]) if is_whole else self._worded(*next(words), rows)
            for is_whole in self._whole
        ]
        return pa.Table.from_arrays(arrays, names=self._names)

    def _worded(self, column: int, codes: Array, rows: int) -> pa.DictionaryArray:
        known = self._words
        words = [
            known.text[column, k, : known.length[column, k]].tobytes().decode(errors="replace")
            for k in range(known.number[column])
        ]
        return pa.DictionaryArray.from_arrays(pa.array(codes[:rows]), pa.array(words), safe=False)


def _compiled(function: Callable[..., int], **options: Any) -> Any:
    """Compile a function when it is first called; kept on disk where there is a place for it."""
    try:
        return numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:
        return numba.njit(nogil=True, **options)(function)


def _known_word(
    text: Array, at: int, likely: int, number: int, lengths: Array, known: Array
) -> int:
    """Place of the word that begins at a byte, the likely one first; −1 for a new one."""
    for k in range(-1 if number else 0, number):
        code = likely if k < 0 else k
        size, same = lengths[code], 0
        # No word has a newline, and the last byte is one: nothing behind it is read.
        while same < size and known[code, same] == text[at + same]:
            same += 1
        end = text[at + size] if same == size else 0
        if end in (_COMMA, _NEWLINE, _RETURN):
            return code
    return -1


def _new_word(text: Array, at: int, column: int, words: Array, lengths: Array, known: Array) -> int:
    """Keep the word that begins at a byte; −1 where there is no room for it."""
    code, size = words[column], 0
    while text[at + size] != _COMMA and text[at + size] != _NEWLINE and text[at + size] != _RETURN:
        size += 1
    if code == _MOST_WORDS or size > _LONGEST_WORD:
        return -1
    lengths[code] = size
    known[code, :size] = text[at : at + size]
    words[column] += 1
    return int(code)


_likely_word = _compiled(_known_word, inline="always")
_another_word = _compiled(_new_word)


def _parse_lines(
    text: Array,
    whole: Array,
    numbers: Array,
    codes: Array,
    words: Array,
    lengths: Array,
    known: Array,
) -> int:
    """Parse lines that end in a newline; returns their number, −1 where one is not plain."""
    at, row, last = 0, 0, len(whole) - 1
    while at < len(text):
        number, column = 0, 0
        for field in range(len(whole)):
            if whole[field]:
                begin, value = at, 0
                digit = np.int64(text[at]) - _ZERO
                while 0 <= digit <= 9:
                    value = int(10 * value + digit)
                    at += 1
                    digit = np.int64(text[at]) - _ZERO
                if at == begin or at - begin > _MOST_DIGITS:
                    return -1
                numbers[number, row] = value
                number += 1
            else:
                likely = codes[column, row - 1] if row else 0
                code = _likely_word(text, at, likely, words[column], lengths[column], known[column])
                if code < 0:
                    code = _another_word(text, at, column, words, lengths[column], known[column])
                if code < 0:
                    return -1
                at += lengths[column, code]
                codes[column, row] = code
                column += 1
            if field == last and text[at] == _RETURN:
                at += 1
            if text[at] != (_NEWLINE if field == last else _COMMA):
                return -1
            at += 1
        row += 1
    return row


_parse = _compiled(_parse_lines)
