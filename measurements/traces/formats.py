"""The formats that are read, and which of them a file is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from measurements.errors import MeasurementError
from measurements.traces.blkparse import Blkparse, pattern
from measurements.traces.blktrace import Blktrace, per_cpu_files
from measurements.traces.etw import Etw
from measurements.traces.iolog import Iolog2, Iolog3
from measurements.traces.mqsim import MqSim
from measurements.traces.msr import Msr
from measurements.traces.source import head
from measurements.traces.spc import Spc
from measurements.traces.tables import CsvTable, OwnParquet, ParquetTable, is_own
from measurements.traces.vscsi import Vscsi1, Vscsi2

if TYPE_CHECKING:
    from pathlib import Path

    from measurements.traces.reader import Reader

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
