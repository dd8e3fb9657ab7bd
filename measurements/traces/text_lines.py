"""Parsers of text, a block of lines at a time: lines of equal fields, and lines by patterns."""

from __future__ import annotations

import csv as plain
import gzip
import math
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, cast

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from measurements.traces import requests as base
from measurements.traces.requests import Array, BadRequestError, Op

Function = TypeVar("Function", bound=Callable[..., int])
WHOLE, NUMBER, TEXT = pa.int64(), pa.float64(), pa.string()
_KINDS = {"whole": WHOLE, "number": NUMBER, "": TEXT}
_AT_ONCE = 1 << 22
# Bytes from which a file is worth the time to compile or load the compiled parser.
_LONG = 1 << 24
_LARGEST = 2**63
_ANY_CASE = re.IGNORECASE | re.MULTILINE


class Form(NamedTuple):
    """Layout of a file whose lines have the same fields."""

    names: list[str]
    kinds: list[pa.DataType]
    delimiter: str = ","  # a space stands for any run of spaces and tabs
    quoted: bool = False  # fields may be in double quotes
    header_lines: int = 0
    wanted: tuple[str, ...] = ()  # fields to convert, all where none is named


def form(declared: str, delimiter: str = ",") -> Form:
    """Layout whose fields are declared as ``NAME`` of text, ``NAME:whole`` or ``NAME:number``."""
    pairs = [field.strip().partition(":") for field in declared.split(",")]
    return Form([name for name, *_ in pairs], [_KINDS[kind] for *_, kind in pairs], delimiter)


class FieldReader(base.TraceReader):
    """A reader of a file whose lines have the same fields, streamed through Arrow's parser."""

    form: Form

    def where(self, row: int) -> str:
        """Say on which line a row is."""
        found = (number for at, number, _ in _filled_rows(self.path, self.form) if at == row)
        return f"line {next(found, row)}"

    def _make_requests(self, row: Array, table: pa.Table) -> base.Requests:
        """Convert parsed lines; rows count the lines that are not blank."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[base.Requests]:
        done = 0
        try:
            for table in _parse_tables(self.path, self.form):
                yield self._make_requests(np.arange(done + 1, done + 1 + table.num_rows), table)
                done += table.num_rows
        except pa.ArrowInvalid as error:
            _raise_first_fault(self.path, self.form, done, str(error))


class HeadedReader(FieldReader):
    """A reader of fields without a header, of which some copies have one: the fields' names."""

    line: ClassVar[str]  # pattern of a line

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether the first line that is no header looks like one of this format."""
        begin = cls._header().match(head)
        line = rf"\s*{cls.line}\s*$"
        return re.match(line.encode(), head[begin.end() if begin else 0 :], _ANY_CASE) is not None

    @classmethod
    def _header(cls) -> re.Pattern[bytes]:
        """Compile the pattern of a first line with the names of the fields."""
        names = r"\s*,\s*".join(cls.form.names)
        return re.compile(rf"\s*(?:\xef\xbb\xbf)?{names}\s*?\n".encode("latin-1"), re.IGNORECASE)

    def __iter__(self) -> Iterator[base.Requests]:
        if self._header().match(base.head(self.path)):
            self.form = self.form._replace(header_lines=1)
        yield from super().__iter__()


def read_or_write(column: pa.ChunkedArray, row: Array, codes: dict[str, int], name: str) -> Array:
    """Operations of a column of words, by code of each; BadRequestError for any other word."""
    if (quick := _two_words(column, codes)) is not None:
        return quick

    def reason(at: int) -> str:
        index, words = base.encode(column)
        return f"{name} {words[index[at]]!r} is none of {', '.join(codes)}"

    op = base.operations(column, codes)
    base.refuse_first(op == Op.OTHER, row, reason)
    return op


def _two_words(column: pa.ChunkedArray, codes: dict[str, int]) -> Array | None:
    """Operations of a column with two words at most, in the same capitals; None for others."""
    first, *others = codes
    if not column.num_chunks or column.null_count or pa.types.is_dictionary(column.type):
        return None
    style = bytes(column[0].as_buffer()).decode(errors="replace")
    spell = str.upper if style.isupper() else str.title if style.istitle() else str.lower
    is_first = pc.equal(column, spell(first))
    for other in others:
        if pc.all(pc.or_(is_first, pc.equal(column, spell(other)))).as_py():
            return np.where(is_first.to_numpy(), np.uint8(codes[first]), np.uint8(codes[other]))
    return None


def _parse_tables(path: Path, form: Form) -> Iterator[pa.Table]:
    # Arrow takes one character between fields, so runs of spaces become one.
    if form.delimiter == " ":
        for _, _, block in base.line_blocks(path):
            if spaced := _single_spaces(block).strip(b"\n"):
                yield _parse_by_arrow(spaced, form)
        return
    is_plain = set(form.kinds) <= {WHOLE, TEXT} and not (form.quoted or form.header_lines)
    if is_plain and not form.wanted and _is_worth_compiling(path):
        parser = PlainLines(form)
        for _, lines, block in base.line_blocks(path):
            if (table := parser.table(block, lines)) is not None:
                yield table
            elif block.strip():
                yield _parse_by_arrow(block, form)
        return
    with base.open_unpacked(path) as file, ThreadPoolExecutor(1) as pool:
        packed = isinstance(file, gzip.GzipFile)
        stream = pa.PythonFile(file, mode="r") if packed else pa.OSFile(str(path))
        reader = csv.open_csv(stream, *_arrow_options(form, _AT_ONCE))
        # Arrow parses without the interpreter's lock: the next block while the last one is used.
        ahead = pool.submit(next, reader, None)
        while (batch := ahead.result()) is not None:
            ahead = pool.submit(next, reader, None)
            yield pa.Table.from_batches([batch])


def _is_worth_compiling(path: Path) -> bool:
    return path.stat().st_size >= _LONG


def _parse_by_arrow(text: bytes, form: Form) -> pa.Table:
    return csv.read_csv(pa.BufferReader(text), *_arrow_options(form, len(text) + 1))


def _arrow_options(
    form: Form, block_size: int
) -> tuple[csv.ReadOptions, csv.ParseOptions, csv.ConvertOptions]:
    size = {"block_size": block_size, "use_threads": False}
    quoting = {"quote_char": '"' if form.quoted else False, "newlines_in_values": False}
    # Where nothing is quoted only the few different words are decoded, one by one.
    columns = {"include_columns": list(form.wanted), "check_utf8": form.quoted, "null_values": []}
    types = dict(zip(form.names, form.kinds, strict=True))
    return (
        csv.ReadOptions(column_names=form.names, skip_rows=form.header_lines, **size),
        csv.ParseOptions(delimiter=form.delimiter, **quoting),
        csv.ConvertOptions(column_types=types, **columns),
    )


def _single_spaces(block: bytes) -> bytes:
    """Make each run of spaces and tabs one space, and none at the ends of lines."""
    block = block.replace(b"\t", b" ").replace(b"\r\n", b"\n")
    while b"  " in block:
        block = block.replace(b"  ", b" ")
    return block.replace(b"\n ", b"\n").replace(b" \n", b"\n").removeprefix(b" ").rstrip(b" ")


def _filled_rows(path: Path, form: Form) -> Iterator[tuple[int, int, str]]:
    """Yield the lines that are not blank: number among them, number of the line, and text."""
    row = 0
    for first, _, block in base.line_blocks(path):
        for number, line in enumerate(block.decode().split("\n"), start=first):
            filled = " ".join(line.split()) if form.delimiter == " " else line.rstrip("\r")
            if filled and number > form.header_lines:
                row += 1
                yield row, number, filled


def _raise_first_fault(path: Path, form: Form, done: int, otherwise: str) -> None:
    """Raise what is wrong with the first line that the parser refused."""
    for row, _, line in _filled_rows(path, form):
        if row > done and (reason := _fault_of_line(line, form)):
            raise BadRequestError(row, reason)
    if not otherwise.startswith("Empty CSV file"):
        raise BadRequestError(done + 1, f"it, or a line after it, cannot be parsed: {otherwise}")


def _fault_of_line(line: str, form: Form) -> str | None:
    """Say what is wrong with a line; None where nothing is."""
    quoting: Literal[0, 3] = plain.QUOTE_MINIMAL if form.quoted else plain.QUOTE_NONE
    try:
        values = next(plain.reader([line], delimiter=form.delimiter, quoting=quoting))
    except plain.Error as error:
        return str(error)
    if "\N{REPLACEMENT CHARACTER}" in line and form.quoted:
        return f"it is no UTF-8: {_quote_short(line)}"
    if len(values) != len(form.names):
        names = ",".join(form.names)
        return f"{len(values)} fields, not the {len(form.names)} of {names}: {_quote_short(line)}"
    faults = map(_fault_of_value, form.names, form.kinds, values)
    return next((fault for fault in faults if fault), None)


def _fault_of_value(name: str, kind: pa.DataType, value: str) -> str | None:
    if kind == TEXT:
        return None
    try:
        number = float(value) if kind == NUMBER else int(value)
    except ValueError:
        expected = "number" if kind == NUMBER else "whole number"
        return f"{name} is {_quote_short(value)}, no {expected}"
    if kind == WHOLE and not -_LARGEST <= number < _LARGEST:
        return f"{name} {value.strip()} is beyond 2^63"
    if not math.isfinite(number) or not value.strip(" \t").isascii() or "_" in value:
        return f"{name} is {_quote_short(value)}, no number"
    return None


def _quote_short(text: str, most: int = 60) -> str:
    return repr(text if len(text) <= most else f"{text[: most - 3]}…")


_MOST_WORDS, _LONGEST_WORD = 256, 64
# So many digits are below 2^63 whatever they are.
_MOST_DIGITS = 18
_COMMA, _RETURN, _NEWLINE, _ZERO = ord(","), ord("\r"), ord("\n"), ord("0")


class PlainLines:
    """Parses blocks of lines of whole numbers and words between commas by a compiled loop.

    Quicker than a parser of any CSV, for files that are as plain as machines write them: digits
    without sign or space, few different words, no quotes. A block of lines with anything else is
    for Arrow's parser.
    """

    def __init__(self, form: Form) -> None:
        self._names = form.names
        self._whole = np.array([kind == WHOLE for kind in form.kinds], dtype=np.bool_)
        # Of each column of words: how many, their lengths, their bytes.
        columns = len(form.names) - int(self._whole.sum())
        self._number = np.zeros(columns, np.int64)
        self._length = np.zeros((columns, _MOST_WORDS), np.int64)
        self._text = np.zeros((columns, _MOST_WORDS, _LONGEST_WORD), np.uint8)

    def table(self, lines: bytes, number: int) -> pa.Table | None:
        """Parse lines, at most so many; None where they are not plain."""
        numbers = np.empty((int(self._whole.sum()), number), np.int64)
        codes = np.empty((len(self._number), number), np.int32)
        text = np.frombuffer(lines if lines.endswith(b"\n") else lines + b"\n", np.uint8)
        vocabulary = self._number, self._length, self._text
        rows = _parse_compiled(text, self._whole, numbers, codes, vocabulary)
        if rows < 0:
            return None
        whole, words = iter(numbers), enumerate(codes)
        arrays = [
            pa.array(next(whole)[:rows]) if is_whole else self._words_of_codes(*next(words), rows)
            for is_whole in self._whole
        ]
        return pa.Table.from_arrays(arrays, names=self._names)

    def _words_of_codes(self, column: int, codes: Array, rows: int) -> pa.DictionaryArray:
        words = [
            self._text[column, k, : self._length[column, k]].tobytes().decode(errors="replace")
            for k in range(self._number[column])
        ]
        return pa.DictionaryArray.from_arrays(pa.array(codes[:rows]), pa.array(words), safe=False)


def _compile_at_first_call(**options: Any) -> Callable[[Function], Function]:
    """Compile a function when it is first called; kept on disk where there is a place for it."""

    def decorate(function: Function) -> Function:
        try:
            return cast("Function", numba.njit(cache=True, nogil=True, **options)(function))
        except RuntimeError:
            return cast("Function", numba.njit(nogil=True, **options)(function))

    return decorate


@_compile_at_first_call(forceinline=True)
def _find_word(text: Array, at: int, likely: int, number: int, lengths: Array, known: Array) -> int:
    """Code of the word that begins at a byte, the likely one first; −1 for a new one."""
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


@_compile_at_first_call()
def _add_word(text: Array, at: int, column: int, words: Array, lengths: Array, known: Array) -> int:
    """Keep the word that begins at a byte; −1 where there is no room for it."""
    code, size = words[column], 0
    while text[at + size] not in (_COMMA, _NEWLINE, _RETURN):
        size += 1
    if code == _MOST_WORDS or size > _LONGEST_WORD:
        return -1
    lengths[code] = size
    # One by one: to compile an assignment of a slice takes seconds.
    for k in range(size):
        known[code, k] = text[at + k]
    words[column] += 1
    return int(code)


@_compile_at_first_call()
def _parse_compiled(
    text: Array, whole: Array, numbers: Array, codes: Array, vocabulary: tuple[Array, ...]
) -> int:
    """Parse lines that end in a newline; returns their number, −1 where one is not plain."""
    words, lengths, known = vocabulary
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
                code = _find_word(text, at, likely, words[column], lengths[column], known[column])
                if code < 0:
                    code = _add_word(text, at, column, words, lengths[column], known[column])
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


class TextLines(NamedTuple):
    """Lines with their ends, as Arrow strings, and the number of each."""

    row: Array
    text: pa.Array

    def take(self, chosen: Array) -> TextLines:
        """Choose lines by a mask."""
        return TextLines(self.row[chosen], self.text.filter(pa.array(chosen)))

    def matches(self, pattern: str) -> Array:
        """Whether each line fits a pattern, from its start."""
        mask = pc.match_substring_regex(self.text, f"^{pattern}")
        return cast("Array", mask.to_numpy(zero_copy_only=False))

    def extract(self, pattern: str) -> tuple[Array, pa.StructArray]:
        """Take lines apart by the named groups of a pattern: which lines fit, and their texts."""
        parts = pc.extract_regex(self.text, f"^{pattern}\\s*$")
        matched: Array = parts.is_valid().to_numpy(zero_copy_only=False)
        return matched, parts if matched.all() else parts.filter(parts.is_valid())

    def refuse_first(self, bad: Array, reason: str) -> None:
        """Raise BadRequestError for the first line of a mask, with its text."""
        base.refuse_first(
            bad,
            self.row,
            lambda at: f"{reason}: {_quote_short(str(self.text[at].as_py()).strip(), 70)}",
        )


def filled_lines(path: Path) -> Iterator[TextLines]:
    """Yield the lines of a text that are not blank, many at a time."""
    for first, _, block in base.line_blocks(path):
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
        if not block.endswith(b"\n"):
            ends = np.append(ends, len(block))
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block)]
        text = pa.Array.from_buffers(pa.string(), len(ends), buffers)
        found = TextLines(np.arange(first, first + len(ends)), text)
        yield found.take(~found.matches(r"\s*$"))


def whole(column: pa.Array, row: Array, name: str) -> Array:
    """Read a column of digits as int64, 0 where it is empty; BadRequestError beyond 2^63."""
    if pc.any(empty := pc.equal(column, "")).as_py():
        column = pc.if_else(empty, "0", column)
    try:
        return cast("Array", column.cast(pa.int64()).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:
        for at, text in enumerate(column.to_pylist()):
            # Python converts no more than 4300 digits.
            if len(digits := text.lstrip("0")) > 19 or int(digits or "0") >= _LARGEST:
                raise BadRequestError(int(row[at]), f"{name} {text[:40]} is beyond 2^63") from None
    raise BadRequestError(int(row[0]), f"{name} of this line, or one after it, is no whole number")
