"""Opening a block trace of any format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from measurements.errors import MeasurementError
from measurements.traces.blkparse import Blkparse
from measurements.traces.formats import layout_of, reader_of
from measurements.traces.source import head
from measurements.traces.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from measurements.traces.reader import Reader


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
