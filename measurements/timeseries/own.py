"""A time series in ppw's own columns: CSV, Parquet or JSON lines, written as it is recorded."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from measurements.errors import MeasurementError
from measurements.table.writing import replace_whole
from measurements.timeseries import series as schema

if TYPE_CHECKING:
    import pandas as pd

    from measurements.timeseries.log import Options, Source

FORMAT = "ppw"
_PARQUET = b"PAR1"
CSV_START = b"time_s,interval_s,"
_LINES = b'{"time_s":'
_ENDINGS = (".csv", ".parquet", ".jsonl")


def recognises(head: bytes) -> bool:
    """Check whether a file that begins so was written by ppw."""
    return head.startswith((_PARQUET, CSV_START, _LINES))


def read(source: Source, options: Options) -> schema.TimeSeries:
    """Read a series that was written by `Writer` or `write_time_series`."""
    data = b"".join(source.pieces())
    try:
        frame, cut = _parse_frame(data)
        names = [name for name in frame.columns if schema.is_column(str(name))]
        unknown = len(frame.columns) - len(names)
        frame = _convert_types(frame[[name for name in names if options.keeps(str(name))]])
    except (ValueError, OSError, TypeError, AttributeError, KeyError, OverflowError) as error:
        text = " ".join(str(error).split())[:200]
        raise MeasurementError(f"{source.name}: is no series of ppw: {text}") from error
    frame = frame.sort_values("time_s", kind="stable", ignore_index=True)
    caveats = schema.reading_caveats(0, cut or source.truncated)
    if unknown:
        caveats.append(f"{unknown} columns are not ppw's and are left out")
    findings = [*_mark_findings(frame), *(schema.Finding("", 0, text) for text in caveats)]
    return schema.TimeSeries(frame, FORMAT, source.name, tuple(findings))


def series_of(
    rows: Sequence[Mapping[str, Any]], source: str, caveats: Iterable[str]
) -> schema.TimeSeries:
    """Make a series of sampled rows; refuse none."""
    if not rows:
        raise MeasurementError(f"{source}: ended before the first interval")
    frame = _convert_types(list(rows))
    findings = [*(schema.Finding("", 0, text) for text in caveats), *_mark_findings(frame)]
    return schema.TimeSeries(frame, "live", source, tuple(findings))


def write_time_series(series: schema.TimeSeries, path: str | Path) -> None:
    """Write a series to .csv, .parquet or .jsonl, whole or not at all.

    Raises
    ------
    MeasurementError
        For another ending, or a file that cannot be written.
    """
    target = _check_ending(path)
    # A reader never sees half a file.
    with replace_whole(target) as scratch:
        if target.suffix == ".parquet":
            series.frame.to_parquet(scratch, index=False)
        elif target.suffix == ".csv":
            series.frame.to_csv(scratch, index=False)
        else:
            series.frame.to_json(scratch, orient="records", lines=True)


class Writer:
    """Writes a series row by row; whatever ends it, the rows so far can be read.

    The file is .csv, .parquet or .jsonl, or ``-`` for CSV on standard output. CSV has the columns
    of its first row: what appears later is in its totals only. Parquet cannot be read before it is
    whole, so its rows are JSON lines beside it, ``FILE.part.jsonl``, until the writer is closed.
    """

    def __init__(self, path: str | Path) -> None:
        self._columns: list[str] = []
        self._target = None if str(path) == "-" else _check_ending(path)
        # Rows of Parquet go to another file first.
        self._part: Path | None = None
        self._file: IO[str] = sys.stdout
        if self._target is None:
            return
        rows = self._target
        if rows.suffix == ".parquet":
            rows = self._part = rows.with_name(f"{rows.name}.part.jsonl")
        try:
            self._file = rows.open("w", encoding="utf-8", newline="")
        except OSError as error:
            raise _not_written_error(rows, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, row: Mapping[str, Any]) -> None:
        """Write one row through to the file; raise `MeasurementError` where it has no room."""
        try:
            if self._target is None or self._target.suffix == ".csv":
                self._write_csv_row(row)
            else:
                self._file.write(json.dumps(dict(row), allow_nan=False) + "\n")
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _not_written_error(self._target or "standard output", error) from error

    def close(self) -> None:
        """Finish the file."""
        if self._target is None or self._file.closed:
            return
        self._file.close()
        if self._part is not None:
            if self._part.stat().st_size:
                frame, _ = _parse_frame(self._part.read_bytes())
                write_time_series(schema.TimeSeries(frame, FORMAT, str(self._part)), self._target)
            self._part.unlink()

    def _write_csv_row(self, row: Mapping[str, Any]) -> None:
        writer = csv.writer(self._file, lineterminator="\n")
        if not self._columns:
            self._columns = list(row)
            writer.writerow(self._columns)
        writer.writerow([row.get(column, "") for column in self._columns])


def _check_ending(path: str | Path) -> Path:
    target = Path(path)
    if target.suffix not in _ENDINGS:
        raise MeasurementError(
            f"{path}: a time series is written to a file that ends in {', '.join(_ENDINGS)}"
        )
    return target


def _not_written_error(path: str | Path, error: OSError) -> MeasurementError:
    return MeasurementError(f"{path}: cannot be written: {error.strerror or error}")


def _parse_frame(data: bytes) -> tuple[pd.DataFrame, bool]:
    """Read bytes as a frame, and whether its last line was cut off."""
    import pandas as pd

    if data.startswith(_PARQUET):
        return pd.read_parquet(io.BytesIO(data)), False
    whole = data[: data.rfind(b"\n") + 1]
    cut = len(whole) < len(data)
    if data.startswith(CSV_START):
        return pd.read_csv(io.BytesIO(whole), keep_default_na=False, na_values=[""]), cut
    rows = [json.loads(line) for line in whole.splitlines() if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("a line is no object")
    return pd.DataFrame(rows), cut


def _convert_types(table: pd.DataFrame | list[Mapping[str, Any]]) -> pd.DataFrame:
    """Make numbers float64, and texts text; "" where there is no mark."""
    import pandas as pd

    frame = pd.DataFrame(table)
    if frame.empty or not {"time_s", "interval_s"} <= set(frame.columns):
        raise ValueError("holds no interval")
    columns: dict[str, Any] = {}
    for column in frame.columns:
        if schema.COLUMNS[schema.split_device(column)[0]].kind == "text":
            texts = frame[column].astype(object)
            columns[column] = texts.where(texts.notna(), "").astype("str")
        else:
            numbers = pd.to_numeric(frame[column], errors="coerce").astype("float64")
            columns[column] = numbers.where(np.isfinite(numbers))
    typed = pd.DataFrame(columns)
    if typed["time_s"].isna().any():
        raise ValueError(f"row {int(typed['time_s'].isna().argmax()) + 1} has no time")
    typed["interval_s"] = typed["interval_s"].where(typed["interval_s"] > 0)
    return typed


def _mark_findings(frame: pd.DataFrame) -> list[schema.Finding]:
    if "marks" not in frame:
        return []
    counts = frame["marks"].str.split("; ").explode().value_counts()
    marks = [(mark, text) for mark, text in schema.MARKS.items() if mark in counts]
    return [schema.Finding(mark, int(counts[mark]), f"{mark}: {text}") for mark, text in marks]
