"""Opening a block trace of any format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from measurements.errors import MeasurementError
from measurements.traces import blktrace, formats, tables
from measurements.traces.requests import Reader, Trace, head

if TYPE_CHECKING:
    from collections.abc import Mapping

# The most telling first: a CSV with a header is what is left.
READERS: tuple[type[Reader], ...] = (
    blktrace.Blktrace,
    formats.Iolog2,
    formats.Iolog3,
    tables.OwnParquet,
    tables.ParquetTable,
    formats.Etw,
    formats.Msr,
    formats.Spc,
    blktrace.Blkparse,
    formats.MqSim,
    formats.Vscsi1,
    formats.Vscsi2,
    tables.CsvTable,
)
FORMATS = {reader.name: reader for reader in READERS}
_LAYOUT = "blkparse:"


def read_trace(
    path: str | Path,
    *,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    batch_requests: int = 1_000_000,
) -> Trace:
    """Open a block trace; nothing but its beginning is read before its batches are asked for.

    Parameters
    ----------
    path : path
        File, .gz or not; of blktrace's files one a CPU: their base name, folder, or any of them.
    format : str, optional
        msr, spc, blkparse, blkparse:FORMAT (as given to ``blkparse -f``), blktrace, iolog-2,
        iolog-3, vscsi-1, vscsi-2, mqsim, etw, csv, parquet or ppw; by default what the file looks
        like, which `Trace.format` says.
    mapping : mapping of str to str, optional
        For csv and parquet: ``time_s``, ``lbn`` or ``offset_bytes``, ``size_bytes`` or ``blocks``,
        ``op``, ``latency_s``, ``stream``, ``device``, ``file`` to the column's header, whose unit
        suffix counts. Where operations are numbers, ``op`` is ``COLUMN:READ/WRITE`` with the codes.
    batch_requests : int
        Requests a batch at most.

    Raises
    ------
    MeasurementError
        When the file cannot be read, or looks like no trace.
    """
    if batch_requests < 1:
        raise MeasurementError(f"batch_requests is {batch_requests}: at least 1 is needed")
    source, options = Path(path), {}
    if format and format.startswith(_LAYOUT):
        options["layout"] = format.removeprefix(_LAYOUT)
        # Refuses a layout that is none.
        blktrace.pattern(options["layout"])
    kind = _reader_of(source, format, mapping)
    if mapping and not kind.maps:
        raise MeasurementError(
            f"{source}: is read as {kind.described}, where --map means nothing: leave it out, or "
            "give --trace-format csv"
        )
    return Trace(lambda: kind(source, mapping, **options), batch_requests)


def _reader_of(path: Path, format: str | None, mapping: Mapping[str, str] | None) -> type[Reader]:
    if format is not None:
        name = "blkparse" if format.startswith(_LAYOUT) else format
        if name not in FORMATS:
            raise MeasurementError(
                f"no trace format {format!r}: choose one of {', '.join(FORMATS)}, or "
                "blkparse:FORMAT with what was given to blkparse -f"
            )
        return FORMATS[name]
    if mapping:
        # A mapping is for a table, whatever its first lines look like.
        is_parquet = tables.ParquetTable.recognises(head(path, 4))
        return tables.ParquetTable if is_parquet else tables.CsvTable
    return _recognised(path)


def _recognised(path: Path) -> type[Reader]:
    files = blktrace.per_cpu_files(path)
    # A CPU that saw nothing leaves an empty file.
    first = next((file for file in files if head(file, 1)), files[0])
    begin = head(first)
    if not begin.strip():
        raise MeasurementError(f"{first}: is empty")
    for reader in READERS:
        if reader.recognises(begin):
            is_own = reader is tables.ParquetTable and tables.is_own(path)
            return tables.OwnParquet if is_own else reader
    raise MeasurementError(
        f"{path}: looks like no block trace; name its format with --trace-format: "
        f"{', '.join(FORMATS)}"
    )
