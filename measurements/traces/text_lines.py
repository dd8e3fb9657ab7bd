"""Formats of one request a line with the same fields in each: streamed through Arrow's parser."""

from __future__ import annotations

import csv as plain
import gzip
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from measurements.traces.requests import (
    Array,
    BadRequestError,
    Reader,
    encoded,
    line_blocks,
    opened,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


WHOLE, NUMBER, TEXT = pa.int64(), pa.float64(), pa.string()
_AT_ONCE = 1 << 22
# Bytes from which files are worth the compiled parser: once numba is loaded, which takes half a
# second; and so large that loading it is soon paid back.
_LONG, _VERY_LONG = 1 << 24, 1 << 29
_LARGEST = 2**63


class Field(NamedTuple):
    """A column of the file: its name in messages and what is in it."""

    name: str
    kind: pa.DataType


class Form(NamedTuple):
    """How a file is laid out.

    Attributes
    ----------
    fields : tuple of Field
        Left to right.
    delimiter : str
        One character; a space stands for any run of spaces and tabs.
    quoted : bool
        Whether fields may be in double quotes.
    header_lines : int
    wanted : tuple of str
        Fields to convert; none for all.
    """

    fields: tuple[Field, ...]
    delimiter: str = ","
    quoted: bool = False
    header_lines: int = 0
    wanted: tuple[str, ...] = ()


class Block(NamedTuple):
    """Parsed lines: the number of each among those that are not blank, and their fields."""

    row: Array
    table: pa.Table


class FieldReader(Reader):
    """A reader of such a format."""

    form: Form

    def where(self, row: int) -> str:
        """Say on which line a row is."""
        found = (number for at, number, _ in _rows(self.path, self.form) if at == row)
        return f"line {next(found, row)}"

    def blocks_of_fields(self) -> Iterator[Block]:
        """Yield the parsed lines.

        Raises
        ------
        BadRequestError
            For the first line that is not as it should be.
        """
        done = 0
        try:
            for table in _tables(self.path, self.form):
                yield Block(np.arange(done + 1, done + 1 + table.num_rows), table)
                done += table.num_rows
        except pa.ArrowInvalid as error:
            _complain(self.path, self.form, done, str(error))


def read_or_write(column: pa.ChunkedArray, row: Array, codes: dict[str, int], name: str) -> Array:
    """Operations of a column of words, by what each word stands for.

    Raises
    ------
    BadRequestError
        For the first other word.
    """
    if (quick := _two_words(column, codes)) is not None:
        return quick
    code, words = encoded(column)
    known = [codes.get(word.strip().lower(), 255) for word in words]
    op: Array = np.asarray(known or [0], np.uint8)[code]
    if 255 in known and (op == 255).any():
        at = int(np.argmax(op == 255))
        word = words[int(code[at])]
        raise BadRequestError(int(row[at]), f"{name} {word!r} is none of {', '.join(codes)}")
    return op


def _two_words(column: pa.ChunkedArray, codes: dict[str, int]) -> Array | None:
    """Operations where all words are the first one's or one other, written alike."""
    first, *others = codes
    if not column.num_chunks or column.null_count or pa.types.is_dictionary(column.type):
        return None
    style = _text(column[0])
    spelt = str.upper if style.isupper() else str.title if style.istitle() else str.lower
    is_first = pc.equal(column, spelt(first))
    for other in others:
        if pc.all(pc.or_(is_first, pc.equal(column, spelt(other)))).as_py():
            return np.where(is_first.to_numpy(), np.uint8(codes[first]), np.uint8(codes[other]))
    return None


def _text(word: pa.StringScalar) -> str:
    return bytes(word.as_buffer()).decode(errors="replace")


def combined(
    first: pa.ChunkedArray, second: pa.ChunkedArray
) -> tuple[Array, list[tuple[str, str]]]:
    """Number the pairs of two columns of words; returns the numbers and what each stands for."""
    (one, words), (other, others) = encoded(first), encoded(second)
    width = len(others)
    if len(words) == width == 1:
        return np.broadcast_to(np.int32(0), len(one)), [(words[0], others[0])]
    pair = one.astype(np.int64) * width + other
    present = np.flatnonzero(np.bincount(pair, minlength=len(words) * width))
    number = np.zeros(len(words) * width, np.int32)
    number[present] = np.arange(len(present))
    return number[pair], [(words[at // width], others[at % width]) for at in present]


def _tables(path: Path, form: Form) -> Iterator[pa.Table]:
    if form.delimiter == " ":
        for _, _, text in line_blocks(path):
            if spaced := _single_spaces(text).strip(b"\n"):
                yield csv.read_csv(pa.BufferReader(spaced), *_options(form, len(spaced) + 1))
        return
    if _is_plain(form) and _is_worth_compiling(path):
        yield from _plain_tables(path, form)
        return
    with opened(path) as file, ThreadPoolExecutor(1) as pool:
        packed = isinstance(file, gzip.GzipFile)
        stream = pa.PythonFile(file, mode="r") if packed else pa.OSFile(str(path))
        reader = csv.open_csv(stream, *_options(form, _AT_ONCE))
        # Parsing holds no lock of the interpreter's: it goes on while the last block is used.
        ahead = pool.submit(_next, reader)
        while (batch := ahead.result()) is not None:
            ahead = pool.submit(_next, reader)
            yield pa.Table.from_batches([batch])


def _is_plain(form: Form) -> bool:
    kinds = {field.kind for field in form.fields}
    return kinds <= {WHOLE, TEXT} and not (form.quoted or form.header_lines or form.wanted)


def _is_worth_compiling(path: Path) -> bool:
    return path.stat().st_size >= (_LONG if "numba" in sys.modules else _VERY_LONG)


def _plain_tables(path: Path, form: Form) -> Iterator[pa.Table]:
    """Parse by the compiled loop what is plain, the rest by Arrow."""
    names = [field.name for field in form.fields]
    parser = PlainLines(names, [field.kind == WHOLE for field in form.fields])
    for _, lines, text in line_blocks(path):
        if (table := parser.table(text, lines)) is not None:
            yield table
        elif text.strip():
            yield csv.read_csv(pa.BufferReader(text), *_options(form, len(text) + 1))


def _next(reader: csv.CSVStreamingReader) -> pa.RecordBatch | None:
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None


def _options(
    form: Form, block_size: int
) -> tuple[csv.ReadOptions, csv.ParseOptions, csv.ConvertOptions]:
    return (
        csv.ReadOptions(
            column_names=[field.name for field in form.fields],
            skip_rows=form.header_lines,
            block_size=block_size,
            use_threads=False,
        ),
        csv.ParseOptions(
            delimiter=form.delimiter,
            quote_char='"' if form.quoted else False,
            newlines_in_values=False,
        ),
        csv.ConvertOptions(
            column_types={field.name: field.kind for field in form.fields},
            include_columns=list(form.wanted),
            null_values=[],
            # Of words only the few different ones are looked at, one by one.
            check_utf8=form.quoted,
        ),
    )


def _single_spaces(block: bytes) -> bytes:
    block = block.replace(b"\t", b" ").replace(b"\r\n", b"\n")
    while b"  " in block:
        block = block.replace(b"  ", b" ")
    return block.replace(b"\n ", b"\n").replace(b" \n", b"\n").removeprefix(b" ").rstrip(b" ")


def _rows(path: Path, form: Form) -> Iterator[tuple[int, int, str]]:
    """Yield the lines that are not blank: number among them, number of the line, and text."""
    row = 0
    for first, _, text in line_blocks(path):
        for number, line in enumerate(text.decode().split("\n"), start=first):
            filled = " ".join(line.split()) if form.delimiter == " " else line.rstrip("\r")
            if filled and number > form.header_lines:
                row += 1
                yield row, number, filled


def _complain(path: Path, form: Form, done: int, otherwise: str) -> None:
    """Raise what is wrong with the first line that the parser refused."""
    rows = (row for row in _rows(path, form) if row[0] > done)
    for at, _, line in rows:
        if reason := _amiss(line, form):
            raise BadRequestError(at, reason)
    if not otherwise.startswith("Empty CSV file"):
        raise BadRequestError(done + 1, f"it, or a line after it, cannot be parsed: {otherwise}")


def _amiss(line: str, form: Form) -> str | None:
    reader = plain.reader(
        [line],
        delimiter=form.delimiter,
        quoting=plain.QUOTE_MINIMAL if form.quoted else plain.QUOTE_NONE,
    )
    try:
        values = next(reader)
    except plain.Error as error:
        return str(error)
    if "\N{REPLACEMENT CHARACTER}" in line and form.quoted:
        return f"it is no UTF-8: {_shown(line)}"
    if len(values) != len(form.fields):
        names = ",".join(field.name for field in form.fields)
        return f"{len(values)} fields, not the {len(form.fields)} of {names}: {_shown(line)}"
    for field, value in zip(form.fields, values, strict=True):
        if reason := _wrong(field, value):
            return reason
    return None


def _wrong(field: Field, value: str) -> str | None:
    if field.kind == TEXT:
        return None
    try:
        number = float(value) if field.kind == NUMBER else int(value)
    except ValueError:
        kind = "number" if field.kind == NUMBER else "whole number"
        return f"{field.name} is {_shown(value)}, no {kind}"
    if field.kind == WHOLE and not -_LARGEST <= number < _LARGEST:
        return f"{field.name} {value.strip()} is beyond 2^63"
    if not math.isfinite(number) or not value.strip(" \t").isascii() or "_" in value:
        return f"{field.name} is {_shown(value)}, no number"
    return None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}…")


# Lines of whole numbers and words between commas, parsed by a compiled loop.
#
# Quicker than a parser of any CSV, for files that are as plain as machines write them: digits
# without sign or space, few different words, no quotes. A block of lines with anything else is for
# Arrow's parser.


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


# Formats whose lines differ from one another: lines as Arrow strings, taken apart by a regex.


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
