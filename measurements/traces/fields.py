"""Formats of one request a line with the same fields in each: streamed through Arrow's parser."""

from __future__ import annotations

import csv as plain
import gzip
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from measurements.traces.reader import Reader
from measurements.traces.requests import Array, BadRequestError, encoded
from measurements.traces.source import line_blocks, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
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
    from measurements.traces.plain_lines import PlainLines

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
