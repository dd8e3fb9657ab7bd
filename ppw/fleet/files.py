"""Files that hold rows: found, told apart by format and columns, and scanned by an engine."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.cells import WITH_COMMA
from measurements.errors import MeasurementError
from measurements.headers import rename_headers
from measurements.runs import read_header
from ppw.errors import PpwError
from ppw.fleet.canonical import is_number
from ppw.fleet.connection import is_spark
from ppw.fleet.faults import Fault, first_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import IO

    import ibis.expr.types as ir
    from ibis.backends import BaseBackend

PARQUET, CSV = (".parquet", ".pq"), (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt")
JSON_LINES = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")
ENDINGS = (*PARQUET, *CSV, *JSON_LINES)
# Spark names files as URLs, in which a plus is no space.
_LOCAL_NAME = "url_decode(replace(regexp_replace(input_file_name(), '^file:/+', '/'), '+', '%2B'))"
# A header is in the first of a file; wider ones are no runs table's.
_HEADER_BYTES = 1 << 20
# Where decimal commas are looked for.
_ROWS = 1000
_MARK = b"\xef\xbb\xbf"


class Kind(NamedTuple):
    """What files have in common that one scan reads: format and columns, with types or delimiter.

    ``columns`` is None where only the engine can tell, as of a URL.
    """

    format: str
    columns: tuple[tuple[str, str], ...] | None = None
    delimiter: str = ","


def find_files(source: str) -> list[str]:
    """List the files of a source: a file, a folder searched to the bottom, a pattern, or a URL.

    Raises
    ------
    PpwError
        When there is none.
    """
    if "://" in source:
        return [source]
    path = Path(source)
    if path.is_dir():
        found = sorted(str(p) for p in path.rglob("*") if _is_table(p))
    elif has_magic(source) and not path.exists():
        # As the shell has it: a pattern may be absolute, which Path.glob refuses.
        found = sorted(p for p in glob(source, recursive=True) if Path(p).is_file())  # noqa: PTH207
    elif path.exists():
        found = [source]
    else:
        raise PpwError(f"{source}: is not there: name a file, a folder of them or a pattern")
    if not found:
        raise PpwError(
            f"{source}: no file there ends in {', '.join(ENDINGS)}: name a file, a folder of them "
            "or a pattern"
        )
    return found


def _is_table(path: Path) -> bool:
    """Tell whether a file is a runs table; Spark's own begin with _ or a dot."""
    return path.name.lower().endswith(ENDINGS) and path.name[0] not in "._"


def given_names(files: Sequence[str]) -> dict[str, str]:
    """Names of files as they were given, by the paths that engines make of them."""
    absolute = {path: file for file in files for path in _paths(file)}
    return absolute | {file: file for file in files}


def _paths(file: str) -> tuple[str, ...]:
    path = Path(file)
    return () if "://" in file else (str(path.absolute()), str(path.resolve()))


def by_kind(files: Iterable[str]) -> tuple[dict[Kind, list[str]], list[Fault]]:
    """Files that are alike together; and those that cannot be read."""
    kinds: dict[Kind, list[str]] = {}
    faults = []
    for file in files:
        kind = kind_of(file)
        if isinstance(kind, Fault):
            faults.append(kind)
        else:
            kinds.setdefault(kind, []).append(file)
    return kinds, faults


def kind_of(file: str) -> Kind | Fault:
    """Format and columns of a file: from its footer or header, or the keys of all its lines."""
    plain = file.lower().split("?")[0]
    in_lines = plain.endswith((*JSON_LINES, ".json"))
    if "://" in file:
        return Kind("json" if in_lines else "csv" if plain.endswith(CSV) else "parquet")
    if not in_lines and not plain.endswith(CSV):
        return _kind_of_parquet(file)
    try:
        with gzip.open(file) if plain.endswith(".gz") else Path(file).open("rb") as stream:
            return (_kind_of_json_lines if in_lines else _kind_of_csv)(stream, file)
    except MeasurementError as error:
        return Fault(file, str(error).removeprefix(f"{file}: "))
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        return Fault(file, f"cannot be read: {first_line(error)}")


def _kind_of_parquet(file: str) -> Kind | Fault:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        return Fault(file, f"broken Parquet: {first_line(error)}: write it again, or leave it out")
    return Kind("parquet", tuple((field.name, str(field.type)) for field in schema))


def _kind_of_csv(stream: IO[bytes] | gzip.GzipFile, file: str) -> Kind | Fault:
    content = stream.read(_HEADER_BYTES).removeprefix(_MARK)
    if not content.strip():
        return Fault(file, "is empty: write it again, or leave it out")
    headers, delimiter = read_header(content, file)
    if delimiter != "," and (cell := _decimal_comma(content, headers, delimiter)):
        return Fault(
            file,
            f"has decimal commas ({cell}), and a fleet takes numbers with a point: write them so, "
            "or ask ppw project, which reads both",
        )
    names = [header or f"unnamed {i}" for i, header in enumerate(headers)]
    return Kind("csv", tuple((name, "string") for name in names), delimiter)


def _decimal_comma(content: bytes, headers: list[str], delimiter: str) -> str | None:
    """First cell such as 1,8 in a column of numbers, of the first rows."""
    known = rename_headers(headers, {}, "")
    numbers = [at for at, h in enumerate(headers) if h in known and is_number(known[h].canonical)]
    rows = csv.reader(content.decode(errors="replace").splitlines()[:_ROWS], delimiter=delimiter)
    cells = (row[at] for row in rows for at in numbers if at < len(row))
    return next((cell for cell in cells if WITH_COMMA.fullmatch(cell)), None)


def _kind_of_json_lines(stream: IO[bytes] | gzip.GzipFile, file: str) -> Kind | Fault:
    names: dict[str, None] = {}
    for number, line in enumerate(stream, start=1):
        if not (text := line.removeprefix(_MARK).strip()):
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            return Fault(file, f"line {number} is not a JSON object: correct it, or drop it")
        names |= dict.fromkeys(record)
    if not names:
        return Fault(file, "is empty: write it again, or leave it out")
    return Kind("json", tuple((name, "string") for name in names))


def scan(
    connection: BaseBackend, kind: Kind, files: Sequence[str], *, file_column: str | None = None
) -> ir.Table:
    """One scan of files that are alike; all columns of text files are text.

    ``file_column`` names a column to add, of the file that each row is of.
    """
    if kind.columns is not None and file_column in dict(kind.columns):
        file_column = None
    by_engine = _scan_spark if is_spark(connection) else _scan_duckdb
    return by_engine(connection, kind, list(files), file_column)


def _scan_duckdb(
    connection: Any, kind: Kind, files: list[str], file_column: str | None
) -> ir.Table:
    options: dict[str, Any] = {} if file_column is None else {"filename": file_column}
    if kind.format == "parquet":
        return connection.read_parquet(files, **options)
    if kind.columns is not None:
        options["columns"] = {name: "VARCHAR" for name, _ in kind.columns}
    if kind.format == "json":
        return connection.read_json(files, format="newline_delimited", **options)
    if kind.columns is None:
        return connection.read_csv(files, all_varchar=True, **options)
    written = {"header": True, "sep": kind.delimiter, "quote": '"', "escape": '"'}
    return connection.read_csv(files, auto_detect=False, **written, **options)


def _scan_spark(connection: Any, kind: Kind, files: list[str], file_column: str | None) -> ir.Table:
    import ibis
    from pyspark.sql import functions as sql

    reader = connection._session.read
    if kind.format == "parquet":
        frame = reader.parquet(*files)
    else:
        names = ", ".join(f"`{name.replace('`', '``')}` string" for name, _ in kind.columns or ())
        reader = (reader.schema(names) if names else reader).option("mode", "FAILFAST")
        if kind.format == "json":
            frame = reader.option("primitivesAsString", True).json(files)
        else:
            frame = reader.options(header=True, sep=kind.delimiter, escape='"').csv(files)
    if file_column is not None:
        frame = frame.withColumn(file_column, sql.expr(_LOCAL_NAME))
    view = ibis.util.gen_name("ppw_scan")
    frame.createOrReplaceTempView(view)
    return connection.table(view)
