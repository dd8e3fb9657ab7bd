"""The runs table: one row a run of one workload on one host set-up; read, checked, written.

CSV, Parquet and JSON lines, by the file's ending or, on standard input, by its first bytes.
Columns and their units are in `measurements.schema`. Unknown columns are kept untouched.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pandas as pd

from measurements.checks import check_runs
from measurements.errors import MeasurementError
from measurements.headers import Renaming, rename_headers
from measurements.quantities import parse_quantity
from measurements.schema import COLUMNS, FILE_COLUMN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What the world writes for "not measured", perf's included. Text columns know only the empty cell.
_MISSING = [
    *("", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "null", "NULL", "None", "<NA>"),
    *("<not counted>", "<not supported>"),
]

_JSON_LINES = (".jsonl", ".ndjson", ".json")
_LONGEST_HEADER = 1 << 24


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
        CSV (comma, semicolon or tab; also .gz), Parquet or JSON lines; "-" is standard input.
        Several files become one table with the column ``source_file``.
    columns : mapping of str to str, optional
        Canonical column, in any unit (``freq_khz``), to the foreign header it stands for.
    check : bool
        Refuse values that cannot be. ``False`` leaves that to `measurements.check_runs`, which
        also knows what a question needs.

    Returns
    -------
    pandas.DataFrame
        Canonical columns in SI units, numbers as float64; the others as they were. Its ``attrs``
        hold ``source`` (the files' names) and ``digest`` (SHA-256 of their bytes).

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
    tables = [_read_one(str(s), columns or {}, digest) for s in sources]
    runs = tables[0]
    if len(tables) > 1:
        named = [t.assign(**{FILE_COLUMN: str(s)}) for s, t in zip(sources, tables, strict=True)]
        runs = pd.concat(named, ignore_index=True)
    runs.attrs = {
        "source": " ".join(_name(str(s)) for s in sources),
        "digest": f"sha256:{digest.hexdigest()}",
    }
    return check_runs(runs) if check else runs


def tidy_runs(frame: pd.DataFrame, *, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Bring a frame of the caller's to canonical columns, as `read_runs` does; a new frame."""
    source = str(frame.attrs.get("source", "runs"))
    if frame.empty:
        raise MeasurementError(f"{source}: holds no runs")
    frame = frame.reset_index(drop=True)
    return _convert(frame, source, columns or {})


def write_runs(runs: pd.DataFrame, target: str | Path) -> None:
    """Write a runs table: Parquet, JSON lines or CSV by the ending; "-" is CSV on standard output.

    A file appears whole or not at all.
    """
    if str(target) == "-":
        runs.to_csv(sys.stdout, index=False)
        return
    path = Path(target)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    os.close(handle)
    try:
        _write(runs, Path(scratch), path.suffix)
        Path(scratch).replace(path)
    finally:
        Path(scratch).unlink(missing_ok=True)


def _write(runs: pd.DataFrame, path: Path, suffix: str) -> None:
    if suffix == ".parquet":
        runs.to_parquet(path, index=False)
    elif suffix in _JSON_LINES:
        runs.to_json(path, orient="records", lines=True, double_precision=15)
    else:
        runs.to_csv(path, index=False)


def _name(source: str) -> str:
    return "standard input" if source == "-" else source


def _read_one(source: str, mapping: Mapping[str, str], digest: hashlib._Hash) -> pd.DataFrame:
    try:
        with _open(source, digest) as stream:
            table = _parse(stream, source, mapping)
    except OSError as error:
        reason = error.strerror or str(error)
        raise MeasurementError(f"{_name(source)}: cannot be read: {reason}") from error
    except UnicodeDecodeError as error:
        raise MeasurementError(
            f"{_name(source)}: not text in UTF-8 (byte {error.object[error.start]:#04x} at offset "
            f"{error.start}): give CSV, Parquet or JSON lines"
        ) from None
    if table.empty:
        raise MeasurementError(f"{_name(source)}: holds no runs, only a header")
    return table


def _open(source: str, digest: hashlib._Hash) -> BinaryIO:
    content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    digest.update(content)
    return io.BytesIO(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)


def _parse(stream: BinaryIO, source: str, mapping: Mapping[str, str]) -> pd.DataFrame:
    start = stream.read(4096)
    stream.seek(0)
    if not start.strip():
        raise MeasurementError(f"{_name(source)}: is empty")
    if start[:4] == b"PAR1":
        return _convert(_read_parquet(stream, source), source, mapping)
    if start.lstrip()[:1] == b"{":
        return _convert(_read_json_lines(stream, source), source, mapping)
    if b"\0" in start:
        raise MeasurementError(
            f"{_name(source)}: is binary (zero byte at offset {start.index(0)}): "
            "give CSV in UTF-8, Parquet or JSON lines"
        )
    return _read_csv(stream, source, mapping)


def _read_parquet(stream: BinaryIO, source: str) -> pd.DataFrame:
    try:
        return pd.read_parquet(stream)
    except (ValueError, OSError) as error:  # pyarrow's errors are either
        raise MeasurementError(f"{_name(source)}: broken Parquet: {_first(error)}") from error


def _read_json_lines(stream: BinaryIO, source: str) -> pd.DataFrame:
    text = stream.read().decode("utf-8-sig")
    records: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise MeasurementError(f"{_name(source)}: line {number}: {_first(error)}") from error
        if not isinstance(record, dict):
            raise MeasurementError(f"{_name(source)}: line {number} is not a JSON object")
        records.append(record)
    return pd.DataFrame.from_records(records)


def _read_csv(stream: BinaryIO, source: str, mapping: Mapping[str, str]) -> pd.DataFrame:
    first = stream.readline(_LONGEST_HEADER).decode("utf-8-sig")
    stream.seek(0)
    delimiter = max(",;\t", key=first.count)
    headers = [h.strip() for h in next(csv.reader([first], delimiter=delimiter))]
    renamings = rename_headers(headers, mapping, _name(source))
    names = [h or f"unnamed {i}" for i, h in enumerate(headers)]
    text = {h for h, r in renamings.items() if r.canonical in COLUMNS and _is_text(r.canonical)}
    try:
        with warnings.catch_warnings():
            # Longer rows than the header are an error here, not a warning.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(
                stream,
                sep=delimiter,
                names=names,
                skiprows=1,
                index_col=False,
                encoding="utf-8-sig",
                dtype=dict.fromkeys(text, "str"),
                keep_default_na=False,
                na_values={name: [""] if name in text else _MISSING for name in names},
                low_memory=False,
            )
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise MeasurementError(
            f"{_name(source)}: not a table of {len(names)} columns: {_first(error)}"
        ) from error
    unnamed = [n for n, h in zip(names, headers, strict=True) if not h and table[n].isna().all()]
    return _rename(table.drop(columns=unnamed), renamings, source)


def _convert(table: pd.DataFrame, source: str, mapping: Mapping[str, str]) -> pd.DataFrame:
    table.columns = pd.Index([str(c) for c in table.columns])
    return _rename(table, rename_headers(list(table.columns), mapping, _name(source)), source)


def _rename(table: pd.DataFrame, renamings: Mapping[str, Renaming], source: str) -> pd.DataFrame:
    for header, renaming in renamings.items():
        if renaming.unit_in_cells:
            table[header] = _cells_with_units(table[header], renaming.canonical, source)
        elif renaming.factor != 1.0 and not _is_text(renaming.canonical):
            table[header] = _scaled(table[header], renaming.factor)
    return table.rename(columns={h: r.canonical for h, r in renamings.items()})


def _scaled(column: pd.Series[Any], factor: float) -> pd.Series[Any]:
    """Convert the numbers, and leave text in a number for the check that names its row."""
    numbers = pd.to_numeric(column, errors="coerce")
    # Multiplying by 1e-3 and dividing by 1e3 differ in the last digit; the division is exact.
    scaled = numbers * factor if factor >= 1 else numbers / round(1 / factor)
    wrong = numbers.isna() & column.notna()
    return scaled.astype(object).where(~wrong, column) if wrong.any() else scaled


def _cells_with_units(column: pd.Series[Any], canonical: str, source: str) -> pd.Series[Any]:
    unit = canonical.rpartition("_")[2]
    known: dict[object, float] = {}
    for cell in column.dropna().unique():
        has_unit = isinstance(cell, str) and cell.strip()[-1:].isalpha()
        if not has_unit:
            base = canonical.rpartition("_")[0]
            raise MeasurementError(
                f"{_name(source)}: column {column.name!r} has no unit: name it with one, such as "
                f"{base}_{'mhz' if unit == 'hz' else unit}, or --map {canonical}={column.name}"
            )
        known[cell] = parse_quantity(cell, unit)
    return column.map(known).astype(np.float64)


def _is_text(canonical: str) -> bool:
    return canonical in COLUMNS and COLUMNS[canonical].kind == "text"


def _first(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else "unreadable"
