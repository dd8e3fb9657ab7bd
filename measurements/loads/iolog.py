"""Traces as fio's iolog, version 3, which replays every request at its own time.

fio drops the gap after a time of 0, so times begin at 1 µs. Requests at the same microsecond
follow each other at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from measurements.errors import MeasurementError
from measurements.loads.job import checked_target
from measurements.traces.requests import BLOCK_BYTES, FLUSH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import BufferedWriter
    from typing import Any

_HEAD = "fio version 3 iolog\n"
_WORDS = ("read", "write", "trim", "sync")


class Written(NamedTuple):
    """What an iolog holds.

    Attributes
    ----------
    requests : int
    bytes_ : int
        Read and written.
    duration_s : float
        From the first request to the last.
    extent_bytes : int
        Length that the replayed file needs.
    folded : int
        Requests whose place lay beyond the file and was taken modulo its length.
    """

    requests: int
    bytes_: int
    duration_s: float
    extent_bytes: int
    folded: int


def write_iolog(
    batches: Iterable[pa.RecordBatch],
    path: str,
    *,
    target: str,
    size_bytes: int | None = None,
    first_byte: int = 0,
    time_scale: float = 1.0,
    most: int | None = None,
    allow_device: bool = False,
) -> Written:
    """Write a trace as an iolog.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        With the columns of `measurements.traces.Trace`. Devices of the trace share the target.
    path : str
    target : str
        File that fio replays on.
    size_bytes : int, optional
        Length of the target; places beyond it are taken modulo the length. Default: as needed.
    first_byte : int
        Place that becomes the target's first byte.
    time_scale : float
        Factor of all times: 2 is twice as slow.
    most : int, optional
        Requests at most.
    allow_device : bool
        Whether the target may be a device, whose content is lost.

    Raises
    ------
    MeasurementError
        For a device that is not allowed, requests without times, or a file that cannot be written.
    """
    named = checked_target(target, allow_device)
    if any(c.isspace() for c in named):
        raise MeasurementError(f"{named}: an iolog separates words by spaces: take a path without")
    total = _Totals(size_bytes, first_byte)
    try:
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(f"{_HEAD}1 {named} add\n1 {named} open\n".encode())
            last = 1
            for batch in _at_most(batches, most):
                last = _write(file, batch, named, total, time_scale)
            file.write(f"{last} {named} close\n".encode())
    except OSError as error:
        raise MeasurementError(f"{path}: cannot be written: {error.strerror or error}") from error
    if not total.requests:
        raise MeasurementError(f"{path}: the trace holds no request")
    return Written(
        total.requests,
        total.bytes_,
        (total.last_s - total.first_s) * time_scale,
        total.extent,
        total.folded,
    )


class _Totals:
    def __init__(self, size: int | None, first_byte: int) -> None:
        self.size, self.first_byte = size, first_byte
        self.requests = self.bytes_ = self.extent = self.folded = 0
        self.first_s = self.last_s = float("nan")

    def place(self, lbn: Any, size: Any) -> Any:
        """Offsets inside the target."""
        offset = lbn * BLOCK_BYTES - self.first_byte
        end = offset + size
        if self.size is not None:
            largest = int(size.max(initial=0))
            if largest > self.size:
                raise MeasurementError(
                    f"a target of {self.size} bytes has no request of {largest}: give a longer one"
                )
            out = (offset < 0) | (end > self.size)
            self.folded += int(out.sum())
            room = np.maximum((self.size - size) // BLOCK_BYTES + 1, 1)
            offset = np.where(out, (offset // BLOCK_BYTES) % room * BLOCK_BYTES, offset)
        elif int(offset.min(initial=0)) < 0:
            raise MeasurementError("requests lie before the first byte that was named")
        self.extent = max(self.extent, int((offset + size).max(initial=0)))
        return offset


def _at_most(batches: Iterable[pa.RecordBatch], most: int | None) -> Iterator[pa.RecordBatch]:
    left = most
    for batch in batches:
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        yield batch
        if left == 0:
            return


def _write(
    file: BufferedWriter, batch: pa.RecordBatch, target: str, total: _Totals, scale: float
) -> int:
    """Write a batch; return the last time (µs)."""
    time, lbn, size, op = (
        batch.column(name).to_numpy(zero_copy_only=False)
        for name in ("time_s", "lbn", "size_bytes", "op")
    )
    if not len(time):
        return 1
    if np.isnan(time).any():
        raise MeasurementError("requests have no times: an iolog needs them; generate open loop")
    if not total.requests:
        total.first_s = float(time[0])
    total.last_s = float(time[-1])
    moves = op != FLUSH
    total.requests += len(time)
    total.bytes_ += int(size[moves & (op != 2)].sum())
    at = 1 + np.rint((time - total.first_s) * scale * 1e6).astype(np.int64)
    offset = np.zeros_like(lbn)
    offset[moves] = total.place(lbn[moves], size[moves])
    words = pa.array(_WORDS).take(pa.array(op.astype(np.int32)))
    reach = pc.binary_join_element_wise(
        words, pa.array(offset).cast(pa.string()), pa.array(size).cast(pa.string()), " "
    )
    said = pc.if_else(pa.array(moves), reach, words)
    lines = pc.binary_join_element_wise(pa.array(at).cast(pa.string()), target, said, " ")
    file.write(("\n".join(lines.to_pylist()) + "\n").encode())
    return int(at[-1])
