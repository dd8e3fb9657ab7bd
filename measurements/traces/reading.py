"""Opening a block trace of any format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from measurements.errors import MeasurementError
from measurements.traces.blkparse import Blkparse, pattern
from measurements.traces.blktrace import Blktrace, per_cpu_files
from measurements.traces.etw import Etw
from measurements.traces.requests import Trace, head
from measurements.traces.simple_formats import Iolog2, Iolog3, MqSim, Msr, Spc
from measurements.traces.tables import CsvTable, OwnParquet, ParquetTable, is_own
from measurements.traces.vscsi import Vscsi1, Vscsi2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from measurements.traces.requests import Reader


# The formats that are read, and which of them a file is in.


# The most telling first: a CSV with a header is what is left.
READERS: tuple[type[Reader], ...] = (
    Blktrace,
    Iolog2,
    Iolog3,
    OwnParquet,
    ParquetTable,
    Etw,
    Msr,
    Spc,
    Blkparse,
    MqSim,
    Vscsi1,
    Vscsi2,
    CsvTable,
)
FORMATS = {reader.name: reader for reader in READERS}
_LAYOUT = "blkparse:"


def reader_of(path: Path, given: str | None) -> type[Reader]:
    """Reader of the format that was given, or of the one that the file looks like.

    Raises
    ------
    MeasurementError
        When there is no such format, or the file looks like none.
    """
    if given is not None:
        name = "blkparse" if given.startswith(_LAYOUT) else given
        if name not in FORMATS:
            raise MeasurementError(
                f"no trace format {given!r}: choose one of {', '.join(FORMATS)}, or "
                "blkparse:FORMAT with what was given to blkparse -f"
            )
        return FORMATS[name]
    return _guessed(path)


def layout_of(given: str | None) -> str | None:
    """Layout in ``blkparse:LAYOUT``, checked, or None."""
    if given is None or not given.startswith(_LAYOUT):
        return None
    layout = given.removeprefix(_LAYOUT)
    pattern(layout)
    return layout


def _guessed(path: Path) -> type[Reader]:
    looked_at = per_cpu_files(path)[0]
    begin = head(looked_at)
    if not begin:
        # A CPU that saw nothing leaves an empty file.
        others = (file for file in per_cpu_files(path) if head(file, 1))
        looked_at = next(others, looked_at)
        begin = head(looked_at)
    if not begin.strip():
        raise MeasurementError(f"{looked_at}: is empty")
    for reader in READERS:
        if reader.recognises(begin):
            return OwnParquet if reader is ParquetTable and is_own(path) else reader
    raise MeasurementError(
        f"{path}: looks like no block trace; name its format with --trace-format: "
        f"{', '.join(FORMATS)}"
    )


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
    source = Path(path)
    layout = layout_of(format)
    kind = reader_of(source, format if format or not mapping else _mapped_format(source))
    if mapping and not kind.maps:
        raise MeasurementError(
            f"{source}: is read as {kind.described}, where --map means nothing: leave it out, or "
            "give --trace-format csv"
        )

    def new_reader() -> Reader:
        if issubclass(kind, Blkparse):
            return kind(source, None, layout)
        return kind(source, mapping)

    return Trace(new_reader, batch_requests)


def _mapped_format(path: Path) -> str:
    """A mapping is for a table, whatever its first lines look like."""
    return "parquet" if head(path, 4) == b"PAR1" else "csv"
