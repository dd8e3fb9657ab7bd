"""The runs table: one row a run of one workload on one host set-up; read and checked.

CSV, Parquet and JSON lines, by the file's ending or, on standard input, by its first bytes.
Columns and their units are in `measurements.table.schema`. Unknown columns are kept untouched.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import io
import json
import re
import sys
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from measurements.errors import MeasurementError, first_line, require_pyarrow
from measurements.table import memory_budget, schema
from measurements.table.checks import as_numbers, check_runs, row_numbers
from measurements.table.headers import (
    Renaming,
    name_workloads,
    read_sentence,
    rename_headers,
    unit_in_cells,
    wide_columns,
    wide_hint,
)
from measurements.table.units import has_unit, parse_quantity

# Signs that begin a formula of a spreadsheet; see `measurements.table.writing.guard_text`. Those of
# full width count where Japanese is written; white space before a sign is passed over.
FORMULA_SIGNS = r"[=+\-@＝＋－＠\t\r\n]"
_GUARDED = re.compile(rf"'+{FORMULA_SIGNS}")
_GUARDED_BYTES = re.compile(rb"'([=+\-@\t\r\n]|\xef\xbc)")


def unguard_text(text: str) -> str:
    """Take off the apostrophe that `measurements.table.writing.guard_text` put before a text."""
    return text[1:] if _GUARDED.match(text) else text


def is_text_column(column: pd.Series[Any]) -> bool:
    """Tell whether the cells of a column may be texts."""
    return column.dtype.kind not in "iufbmMc"


# Cells of a runs table that hold more than a plain number: units, and decimal commas.
#
# A spreadsheet in a locale with decimal commas writes ``;`` or tabs between its columns and ``1,8``
# for 1.8. Where one cell of a table is written so, all its numbers are: a point in another of them
# may be a decimal one or part thousands, a factor of 1000 apart, and is refused.


WITH_COMMA = re.compile(
    r"\s*[+-]?(?:\d+|\d{1,3}(?:[. \u00a0\u202f]\d{3})+),\d+(?:[eE][+-]?\d+)?\s*+[^\d,;\s]*+\s*"
)
_PARTED = re.compile(r"[1-9]\d{0,2}\.\d{3}")
_WITH_POINT = re.compile(r"\s*[+-]?\d*\.\d.*")
_LEAST_MHZ, _LEAST_KHZ, _LEAST_HZ = 50.0, 3e4, 3e7


def has_decimal_commas(table: pd.DataFrame, columns: Iterable[str]) -> bool:
    """Tell whether one of the columns has a cell such as ``1,8`` or ``1,8GHz``."""
    texts = (table[c] for c in columns if is_text_column(table[c]))
    return any(WITH_COMMA.fullmatch(cell) for text in texts for cell in text if _is_string(cell))


def may_be_thousands(table: pd.DataFrame, columns: Iterable[str]) -> list[str]:
    """Warn of each text column where every point may part thousands: 1.100 beside 770."""
    found = []
    for name in columns:
        cells = [cell.strip() for cell in table[name] if _is_string(cell)]
        pointed = [cell for cell in cells if "." in cell]
        if pointed and len(pointed) < len(cells) and all(map(_PARTED.fullmatch, pointed)):
            cell = pointed[0]
            found.append(
                f"column {name!r}: {cell} is read as {float(cell):g}, but may mean "
                f"{cell.replace('.', '')}: all its numbers with a point have three digits after "
                "it; write thousands without points"
            )
    return found


def with_points(table: pd.DataFrame, columns: Iterable[str], source: str) -> pd.DataFrame:
    """Write decimal points for the decimal commas of columns that are text, in place."""
    for name in columns:
        if mixed := next(
            (
                c
                for c in table[name]
                if _is_string(c) and _WITH_POINT.fullmatch(c) and not WITH_COMMA.fullmatch(c)
            ),
            None,
        ):
            raise MeasurementError(
                f"{source}: column {name!r} has {mixed!r}, and other numbers of the file have a "
                "decimal comma: write all with a comma and without thousands separators, or all "
                "with a point"
            )
        table[name] = table[name].map(
            lambda c: _with_point(c) if _is_string(c) and WITH_COMMA.fullmatch(c) else c,
            na_action="ignore",
        )
    return table


def _with_point(cell: str) -> str:
    """Write 1.234,5 or 1 234,5 as 1234.5, and a unit behind it as it is."""
    whole, _, rest = cell.strip().partition(",")
    return f"{re.sub('[^0-9+-]', '', whole)}.{rest}"


def _is_string(cell: object) -> bool:
    return isinstance(cell, str)


def convert_numbers(column: pd.Series[Any], renaming: Renaming) -> pd.Series[Any]:
    """Convert to the canonical unit, cells such as ``2.10GHz`` by their own; keep other texts."""
    if renaming.factor == 1.0 and column.dtype.kind in "iuf":
        return column
    numbers = as_numbers(column)
    scaled: pd.Series[Any] = renaming.scaled(numbers)
    wrong = numbers.isna() & column.notna()
    if not wrong.any():
        return scaled
    unit = unit_in_cells(renaming.canonical)
    known = {c: _convert_or_keep(c, unit) for c in {c for c in column[wrong] if isinstance(c, str)}}
    cells = column[wrong].map(lambda cell: known.get(cell, cell) if _is_string(cell) else cell)
    return scaled.astype(object).where(~wrong, cells.reindex(column.index))


def _convert_or_keep(cell: str, unit: str) -> float | str:
    """Convert a cell with a unit to the SI unit ``unit``; return other cells as they are."""
    if cell.strip() in schema.MISSING:
        return np.nan
    if not unit or not has_unit(cell):
        return cell
    try:
        return parse_quantity(cell, unit)
    except MeasurementError:
        return cell


def refuse_unitless(table: pd.DataFrame, renamings: Mapping[str, Renaming], source: str) -> None:
    """Raise `MeasurementError` for the columns whose unit neither header nor cells tell."""
    unitless = {h: r.canonical for h, r in renamings.items() if r.unit_in_cells}
    bare = {h: c for h, c in unitless.items() if as_numbers(table[h]).notna().any()}
    if not bare:
        return
    first = next(iter(bare))
    at = int(np.flatnonzero(as_numbers(table[first]).notna())[0])
    row = row_numbers(table)[at] + (header_line := table.attrs.get("header_line", 0))
    where = f"{'line' if header_line else 'row'} {row}"
    named = {header: _guess_column(canonical, table[header]) for header, canonical in bare.items()}
    several = len(bare) > 1
    maps = " ".join(f"--map {name}={_quote_header(header)}" for header, name in named.items())
    raise MeasurementError(
        f"{source}: column{'s' if several else ''} {', '.join(map(repr, bare))} "
        f"{'have' if several else 'has'} no unit ({where}): name {'them' if several else 'it'} "
        f"with one: {', '.join(named.values())}, or {maps}"
    )


def _guess_column(canonical: str, column: pd.Series[Any]) -> str:
    """Name of the column with a unit that its numbers may be in."""
    base, _, unit = canonical.rpartition("_")
    if unit != "hz":
        return canonical
    typical = float(as_numbers(column).median())
    ends = {_LEAST_HZ: "hz", _LEAST_KHZ: "khz", _LEAST_MHZ: "mhz"}
    return f"{base}_{next((u for least, u in ends.items() if typical >= least), 'ghz')}"


def _quote_header(header: str) -> str:
    return f"'{header}'" if not header.isalnum() else header


_POINT_OF_THREE = re.compile(rb"[;\t]\"?[1-9]\d{0,2}\.\d{3}\"?[;\t\r\n]")
_ZIPPED = b"PK\x03\x04"
# Lines above the header, such as the title of a sheet, in which no column is known.
_MOST_TITLES = 8
_JSON_ARRAY = re.compile(rb"\s*\[\s*[{\]]")


def read_runs(
    source: str | Path | Sequence[str | Path],
    *,
    columns: Mapping[str, str] | None = None,
    check: bool = True,
) -> pd.DataFrame:
    """Read a runs table.

    Parameters
    ----------
    source : path, "-" or several of them
        CSV (with commas; or with semicolons or tabs, then decimal commas are taken; also .gz),
        Excel (.xlsx), Parquet or JSON lines; "-" is standard input. Several files become one table
        with the column ``source_file``.
    columns : mapping of str to str, optional
        Canonical column, in any unit (``freq_khz``), to the foreign header it stands for, or to
        the headers of a column per workload: ``{"time_s": "sort+grep"}``.
    check : bool
        Refuse values that cannot be. ``False`` leaves that to `measurements.check_runs`, which
        also knows what a question needs.

    Returns
    -------
    pandas.DataFrame
        Canonical columns in SI units, numbers as float64; the others as they were. Its ``attrs``
        hold ``source`` (the files' names), ``digest`` (SHA-256 of their bytes), ``headers``
        (those that became another column; see `renamed_headers`) and, where there are any,
        ``doubts`` (numbers that may mean something else), ``read`` (what was read and what was
        not), both in sentences, and ``header_lines`` (by file the line of its header).

    Raises
    ------
    MeasurementError
        When the file cannot be read as a table.
    BadRunsError
        Once, with every bad value: its file, row and column.
    """
    sources = [source] if isinstance(source, (str, Path)) else list(source)
    if not sources:
        raise MeasurementError("no runs table was named")
    digest = hashlib.sha256()
    names = ["standard input" if str(s) == "-" else str(s) for s in sources]
    contents = (
        _read_unpacked(str(s), name, digest) for s, name in zip(sources, names, strict=True)
    )
    tables = [_parse_and_tidy(c, n, columns or {}) for c, n in zip(contents, names, strict=True)]
    doubts = [doubt for table in tables for doubt in table.attrs.get(schema.DOUBTS, ())]
    runs = tables[0]
    if len(tables) > 1:
        if any(schema.ROW_COLUMN in t for t in tables):
            tables = [t.assign(**{schema.ROW_COLUMN: row_numbers(t)}) for t in tables]
        named = [t.assign(**{schema.FILE_COLUMN: n}) for n, t in zip(names, tables, strict=True)]
        runs = pd.concat(named, ignore_index=True)
    header_lines = {n: t.attrs.get("header_line") for n, t in zip(names, tables, strict=True)}
    noted = {
        schema.DOUBTS: doubts,
        schema.READ: [*dict.fromkeys(t.attrs[schema.READ] for t in tables)],
        schema.HEADER_LINES: {name: line for name, line in header_lines.items() if line},
    }
    runs.attrs = {
        "source": " ".join(names),
        "digest": f"sha256:{digest.hexdigest()}",
        schema.HEADERS: {
            h: r for table in tables for h, r in table.attrs.get(schema.HEADERS, {}).items()
        },
    }
    runs.attrs |= {name: found for name, found in noted.items() if any(found)}
    return check_runs(runs) if check else runs


def tidy_runs(frame: pd.DataFrame, *, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Bring a frame of the caller's to canonical columns, as `read_runs` does; a new frame."""
    source = str(frame.attrs.get("source", "runs"))
    if frame.empty:
        raise MeasurementError(f"{source}: holds no runs")
    # What `read_runs` decided, --map included, stands against the columns it left alone.
    settled = (
        {c: c for c in frame.columns if c in schema.COLUMNS} if "digest" in frame.attrs else {}
    )
    return _tidy_table(frame, source, {**settled, **(columns or {})})


def renamed_headers(runs: pd.DataFrame) -> dict[str, Renaming]:
    """Map each header that was renamed when a table was read to its column and factor."""
    return {
        header: Renaming(*became) for header, became in runs.attrs.get(schema.HEADERS, {}).items()
    }


def _read_unpacked(path: str, source: str, digest: hashlib._Hash) -> bytes:
    """Read and unpack a file ("-" is standard input), in UTF-8 without a byte order mark."""
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as stream:
            content = memory_budget.read_whole(stream, source)
        digest.update(content)
        if content[:2] == b"\x1f\x8b":
            content = memory_budget.unpack_gzip(content, source)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise MeasurementError(f"{source}: broken gzip: {first_line(error)}") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise MeasurementError(f"{source}: cannot be read: {reason}") from error
    # What a spreadsheet calls Unicode text is UTF-16.
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        with suppress(UnicodeDecodeError):
            return content.decode("utf-16").encode()
    return content.removeprefix(codecs.BOM_UTF8)


def _parse_and_tidy(content: bytes, source: str, mapping: Mapping[str, str]) -> pd.DataFrame:
    """Read a table by the first bytes of its file, and bring it to canonical columns."""
    start = content[:4096]
    in_parquet, in_json = start[:4] == b"PAR1", start.lstrip()[:1] == b"{"
    if not start.strip():
        raise MeasurementError(f"{source}: is empty")
    if _JSON_ARRAY.match(start):
        raise MeasurementError(
            f"{source}: is a JSON array: give JSON lines, one object per line (jq -c '.[]')"
        )
    if start[:4] == _ZIPPED:
        content = _csv_of_workbook(content, source)
        start = content[:4096]
    if b"\0" in start and not (in_parquet or in_json):
        raise MeasurementError(
            f"{source}: is binary (zero byte at offset {start.index(0)}): "
            "give CSV in UTF-8, Parquet or JSON lines"
        )
    try:
        if in_parquet:
            table = _read_parquet(content, source)
        elif in_json:
            table = _read_json_lines(content.decode(), source)
        else:
            table = _read_csv(content, source, mapping)
    except UnicodeDecodeError:
        raise MeasurementError(_not_text_reason(content, source)) from None
    table = _tidy_table(table, source, mapping)
    if table.empty:
        raise MeasurementError(f"{source}: holds no runs, only a header")
    return table


def _not_text_reason(content: bytes, source: str) -> str:
    """Say where a file is no text in UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return (
            f"{source}: line {line} is not text in UTF-8 "
            f"(byte {content[error.start]:#04x}): give CSV in UTF-8, Parquet or JSON lines"
        )
    return f"{source}: is not text in UTF-8"


def _read_parquet(content: bytes, source: str) -> pd.DataFrame:
    require_pyarrow()
    try:
        memory_budget.check_parquet(content, source)
        return pd.read_parquet(io.BytesIO(content))
    except MeasurementError:
        raise
    except Exception as error:  # damaged metadata end in anything, a KeyError in pandas included
        raise MeasurementError(f"{source}: broken Parquet: {first_line(error)}") from error


def _read_json_lines(text: str, source: str) -> pd.DataFrame:
    records: list[dict[str, Any]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", "too large or too deep")
            raise MeasurementError(
                f"{source}: line {number} is not a JSON object: {reason}"
            ) from error
        if not isinstance(record, dict):
            raise MeasurementError(f"{source}: line {number} is not a JSON object")
        records.append(record)
    memory_budget.check_table(len(records), len(set().union(*records)), len(text), source)
    try:
        return pd.DataFrame.from_records(records)
    except UnicodeEncodeError as error:
        raise MeasurementError(
            f"{source}: {error.object[:40]!r} is no text (it holds half of a character): correct it"
        ) from error


def _read_csv(content: bytes, source: str, mapping: Mapping[str, str]) -> pd.DataFrame:
    whole = len(content)
    cut = _without_title(_without_comments(content).lstrip(b"\r\n"), mapping)
    header_line, content = content[: whole - len(cut)].count(b"\n") + 1, cut
    headers, delimiter = read_header(content, source)
    wide = wide_columns(mapping, headers)
    narrow = {target: header for target, header in mapping.items() if target not in wide}
    renamings = rename_headers(headers, narrow, source)
    names = [h or f"unnamed {i}" for i, h in enumerate(headers)]
    known = {
        h: r.canonical not in schema.NUMERIC
        for h, r in renamings.items()
        if r.canonical in schema.COLUMNS
    }
    known |= dict.fromkeys((h for joined in wide.values() for h in joined if h in names), False)
    text, numbers = {h for h in known if known[h]}, [h for h in known if not known[h]]
    try:
        table = _parse_rows(content, delimiter, names, text)
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        where = _find_too_long_row(content, delimiter, len(names))
        if where is None and isinstance(error, pd.errors.ParserWarning):
            # Every row ends in a delimiter, and the header does not.
            beyond = [*names, "beyond the header"]
            table = _parse_rows(content, delimiter, beyond, text)[names]
        else:
            raise MeasurementError(
                f"{source}: not a table of {len(names)} columns: {where or first_line(error)}"
            ) from error
    if delimiter != "," and has_decimal_commas(table, numbers):
        table = _parse_rows(content, delimiter, names, text | set(numbers))
        table = with_points(table, numbers, source)
    elif delimiter != "," and _POINT_OF_THREE.search(content):
        as_text = _parse_rows(content, delimiter, names, text | set(numbers))
        table.attrs[schema.DOUBTS] = may_be_thousands(as_text, numbers)
    # Most files hold no guarded text, and need not be gone through.
    for column in table if _GUARDED_BYTES.search(content) else ():
        if is_text_column(table[column]):
            table[column] = table[column].map(
                lambda cell: unguard_text(cell) if _is_string(cell) else cell, na_action="ignore"
            )
    unnamed = [n for n, h in zip(names, headers, strict=True) if not h and table[n].isna().all()]
    table = _drop_empty_rows(table.drop(columns=unnamed), _number_rows(content, delimiter, table))
    table.attrs["header_line"] = header_line
    return table


def _csv_of_workbook(content: bytes, source: str) -> bytes:
    """Write the first sheet of an Excel workbook that has several columns as CSV, row for line."""
    try:
        import openpyxl
    except ImportError:
        raise MeasurementError(
            f"{source}: is an Excel workbook (or a ZIP file): save it as CSV, or install "
            "openpyxl (pip install 'perf-per-watt[xlsx]')"
        ) from None
    try:
        with warnings.catch_warnings(action="ignore"):
            book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
            sheets = [[*sheet.iter_rows(values_only=True)] for sheet in book.worksheets]
    except Exception as error:  # a damaged archive ends in anything
        raise MeasurementError(f"{source}: broken Excel workbook: {first_line(error)}") from error
    rows = next((s for s in sheets if any(sum(c is not None for c in r) > 1 for r in s)), [])
    comma = any(isinstance(c, str) and WITH_COMMA.fullmatch(c) for row in rows for c in row)
    text = io.StringIO()
    writer = csv.writer(text, delimiter=";" if comma else ",", lineterminator="\n")
    writer.writerows([_cell_text(cell, comma=comma) for cell in row] for row in rows)
    return text.getvalue().encode(errors="replace")


def _cell_text(cell: object, *, comma: bool) -> str:
    """Write a cell of a sheet in one line; a number with the decimal sign of the texts."""
    text = "" if cell is None else " ".join(str(cell).split())
    return text.replace(".", ",") if comma and isinstance(cell, float) else text


def _without_title(content: bytes, mapping: Mapping[str, str]) -> bytes:
    """Cut the lines above the header: no column is known in them, and below at least two."""
    rest = content
    for _ in range(_MOST_TITLES):
        known = 0
        with suppress(MeasurementError, UnicodeDecodeError):
            headers, _ = read_header(rest[:65536], "")
            known = len(rename_headers(headers, {}, "")) + len({*mapping.values()} & {*headers})
        if known > 1 or (known and rest is content):
            return rest
        rest = rest.partition(b"\n")[2].lstrip(b"\r\n")
    return content


def _number_rows(content: bytes, delimiter: str, table: pd.DataFrame) -> NDArray[np.int64]:
    """Number each row of a table by its first line in the file, where 1 is below the header."""
    numbers = np.arange(1, len(table) + 1)
    # Blank lines, and cells of several lines, are all that moves a row.
    if content.rstrip().count(b"\n") == len(table):
        return numbers
    lines = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="")
    rows = csv.reader(lines, delimiter=delimiter)
    starts, before = [], 0
    with suppress(csv.Error):
        for cells in rows:
            if len(cells) > 1 or any(cell.strip() for cell in cells):
                starts.append(before)
            before = rows.line_num
    return np.array(starts[1:], dtype=np.int64) if len(starts) == len(table) + 1 else numbers


def _drop_empty_rows(table: pd.DataFrame, numbers: NDArray[np.int64]) -> pd.DataFrame:
    """Leave out rows without any value; other rows keep their number in the file."""
    empty = table.iloc[:, 0].isna().to_numpy(copy=True)
    empty[empty] = table[empty].isna().all(axis=1)
    kept = table[~empty].reset_index(drop=True)
    kept.attrs["empty_rows"] = int(empty.sum())
    if schema.ROW_COLUMN not in table and numbers.size and numbers[~empty][-1:] != len(kept):
        kept[schema.ROW_COLUMN] = numbers[~empty]
    return kept


def _parse_rows(content: bytes, delimiter: str, names: list[str], text: set[str]) -> pd.DataFrame:
    with warnings.catch_warnings():
        # Longer rows than the header are an error here, not a warning.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return pd.read_csv(
            io.BytesIO(content),
            sep=delimiter,
            names=names,
            header=0,
            index_col=False,
            dtype=dict.fromkeys(text, "str"),
            keep_default_na=False,
            na_values={name: [""] if name in text else list(schema.MISSING) for name in names},
            low_memory=False,
        )


def _without_comments(content: bytes) -> bytes:
    """Cut the lines before a CSV's header that begin with #, but not the header itself."""
    rest = content
    while rest.lstrip().startswith(b"#"):
        line, _, below = rest.lstrip().partition(b"\n")
        # One with as many fields as the line below it may be the header itself.
        following = next((one for one in below[:65536].split(b"\n") if one.strip()), b"")
        delimiter = max((b",", b";", b"\t"), key=following.count)
        if following.count(delimiter) in (0, line.count(delimiter)) and following[:1] != b"#":
            return rest
        rest = below
    return rest


def read_header(content: bytes, source: str) -> tuple[list[str], str]:
    """Read the first line that is not blank, and the delimiter that it uses most."""
    lines = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="")
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise MeasurementError(f"{source}: is empty")
    delimiter = max(",;\t", key=first.count)
    try:
        cells = next(csv.reader(chain([first], lines), delimiter=delimiter))
    except csv.Error as error:
        raise MeasurementError(f"{source}: no header: {first_line(error)}") from error
    return [unguard_text(" ".join(cell.split())) for cell in cells], delimiter


def _find_too_long_row(content: bytes, delimiter: str, width: int) -> str | None:
    """Find the first row that is wider than the header, unless all have one empty field more."""
    lines = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="")
    rows = csv.reader(lines, delimiter=delimiter)
    ends_in_delimiter = True
    try:
        for number, row in enumerate(r for r in rows if r):
            if any(row[width:]) or len(row) > width + 1:
                return f"line {rows.line_num} has {len(row)} fields"
            ends_in_delimiter &= number == 0 or len(row) == width + 1
    except csv.Error as error:
        return f"line {rows.line_num}: {first_line(error)}"
    return None if ends_in_delimiter else ""


def _tidy_table(table: pd.DataFrame, source: str, mapping: Mapping[str, str]) -> pd.DataFrame:
    """Bring a table to canonical columns; a new frame, with the named index levels as columns."""
    named = [n for n in table.index.names if n is not None and n not in table.columns]
    table = (table.reset_index(named) if named else table).reset_index(drop=True)
    table.columns = pd.Index([str(c) for c in table.columns])
    if wide := wide_columns(mapping, table.columns):
        table = _with_run_per_cell(table, wide, source)
        mapping = {target: header for target, header in mapping.items() if target not in wide}
    renamings = rename_headers(list(table.columns), mapping, source)
    said = read_sentence(list(table.columns), renamings, mapping)
    said += wide_hint(
        [h for h in map(str, table) if h and h not in renamings and _is_numeric(table[h])],
        [r.canonical for r in renamings.values()],
    )
    refuse_unitless(table, renamings, source)
    for header, renaming in renamings.items():
        if renaming.canonical in schema.NUMERIC:
            table[header] = convert_numbers(table[header], renaming)
    known = table.attrs.get(schema.HEADERS, {})
    table = table.rename(columns={h: r.canonical for h, r in renamings.items()})
    # As plain tuples: attrs are copied at every step, and written to Parquet as JSON.
    became = {h: tuple(r) for h, r in renamings.items() if h != r.canonical}
    table.attrs[schema.HEADERS] = {**known, **became}
    table.attrs.setdefault(schema.READ, "; ".join([*said, *_what_lacks(table)]))
    return table


def _with_run_per_cell(
    table: pd.DataFrame, wide: Mapping[str, Sequence[str]], source: str
) -> pd.DataFrame:
    """Make a run of each workload of each row, for columns that hold one workload each."""
    workloads = name_workloads(wide, list(table.columns), source)
    rows = table.index.repeat(len(workloads))
    cells = [h for joined in wide.values() for h in joined]
    runs = table.drop(columns=cells).loc[rows].reset_index(drop=True)
    runs[schema.ROW_COLUMN] = row_numbers(table)[rows]
    runs["workload"] = [name for name, _ in workloads] * len(table)
    for canonical in workloads[0][1]:
        parts = [convert_numbers(table[h], r) for h, r in (c[canonical] for _, c in workloads)]
        runs[canonical] = np.ravel(np.column_stack(parts)).tolist()
    return runs


def _is_numeric(column: pd.Series[Any]) -> bool:
    """Tell whether all cells that are not blank are numbers, with points or commas."""
    cells = column[~column.isin(schema.MISSING)].dropna()
    is_number = as_numbers(cells).notna()
    return bool(len(cells)) and all(
        _is_string(c) and WITH_COMMA.fullmatch(c) for c in cells[~is_number]
    )


# A run that lacks one of these, where most runs have it, is incomplete.
_MAIN = ("host", "workload", "freq_hz", "time_s", "throughput_ops_s", "power_w", "energy_j")


def _what_lacks(table: pd.DataFrame) -> Iterator[str]:
    """Say how many rows are empty, and how many runs lack a value that most others have."""
    if empty := table.attrs.get("empty_rows"):
        yield f"left out {empty} empty row{'s' * (empty > 1)}"
    lacking = table[[name for name in _MAIN if name in table.columns]].isna()
    usual = lacking.loc[:, lacking.mean() < _USUAL]
    if count := int(usual.any(axis=1).sum()):
        yield f"{count} of {len(table)} runs incomplete"


_USUAL = 0.5
