"""CloudPhysics' vscsi traces, versions 1 and 2: little-endian records of fixed size.

Source: the record layouts of libCacheSim's and PyMimircache's readers of these traces, published
with Waldspurger and others, "Efficient MRC Construction with SHARDS", FAST 2015.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from measurements.errors import MeasurementError
from measurements.traces.requests import (
    FLUSH,
    READ,
    WRITE,
    Array,
    BadRequestError,
    Reader,
    Requests,
    opened,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# SCSI operation codes (SBC-3): commands of 6, 10, 12 and 16 bytes have codes of their own. Of an
# UNMAP or WRITE SAME the record does not say which blocks it reaches.
OPERATION_CODES = {
    **dict.fromkeys((0x08, 0x28, 0xA8, 0x88), READ),
    **dict.fromkeys((0x0A, 0x2A, 0xAA, 0x8A, 0x2E, 0xAE, 0x8E), WRITE),
    **dict.fromkeys((0x35, 0x91), FLUSH),
}
_OTHER = 255
_OPERATIONS = np.full(1 << 16, _OTHER, np.uint8)
_OPERATIONS[list(OPERATION_CODES)] = list(OPERATION_CODES.values())

_VERSION_1 = np.dtype(
    [
        ("serial", "<u4"),
        ("length", "<u4"),
        ("segments", "<u4"),
        ("command", "<u2"),
        ("version", "<u2"),
        ("lbn", "<u8"),
        ("time_us", "<u8"),
    ]
)
_VERSION_2 = np.dtype(
    [
        ("command", "<u2"),
        ("version", "<u2"),
        ("serial", "<u4"),
        ("length", "<u4"),
        ("segments", "<u4"),
        ("lbn", "<u8"),
        ("time_us", "<u8"),
        ("response_us", "<u8"),
    ]
)
_RECORDS_AT_ONCE = 1 << 19
_MOST_LOOKED_AT = 16


class Vscsi1(Reader):
    """Records of 32 bytes: length in bytes, lbn of 512 bytes, microseconds."""

    name: ClassVar[str] = "vscsi-1"
    described: ClassVar[str] = "vscsi version 1, 32-byte records"
    unit: ClassVar[str] = "record"
    ticks_per_s = 10**6
    record: ClassVar[np.dtype[np.void]] = _VERSION_1
    version: ClassVar[int] = 1

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file begins as one of this format does."""
        count = min(len(head) // cls.record.itemsize, _MOST_LOOKED_AT)
        records = np.frombuffer(head, cls.record, count)
        known = (records["version"] >> 8 == cls.version) & (
            _OPERATIONS[records["command"]] != _OTHER
        )
        return count > 0 and bool(known.all())

    def chunks(self) -> Iterator[Requests]:
        """Yield the requests, in the order of the file."""
        size, done = self.record.itemsize, 0
        with opened(self.path) as file:
            while block := file.read(size * _RECORDS_AT_ONCE):
                if cut := len(block) % size:
                    raise MeasurementError(
                        f"{self.path}: record {done + len(block) // size + 1} is cut short, "
                        f"{cut} of {size} bytes: copy the file again, or cut it to whole records"
                    )
                records = np.frombuffer(block, self.record)
                yield self._requests(records, np.arange(done + 1, done + 1 + len(records)))
                done += len(records)

    def _requests(self, records: Array, row: Array) -> Requests:
        if (wrong := records["version"] >> 8 != self.version).any():
            at = int(wrong.argmax())
            raise BadRequestError(
                int(row[at]),
                f"its version is {records['version'][at] >> 8}, not {self.version}: is the file "
                "whole, and of one format?",
            )
        op = _OPERATIONS[records["command"]]
        if (other := op == _OTHER).any():
            self.notes["{n} SCSI commands that are no read, write or flush are left out"] += int(
                other.sum()
            )
        time = records["time_us"]
        if (far := time >= 2**63).any():
            at = int(far.argmax())
            raise BadRequestError(int(row[at]), f"its time {time[at]} is beyond 2^63")
        requests = Requests.of(
            row,
            time.astype(np.int64),
            records["lbn"],
            records["length"].astype(np.int64),
            op,
            latency_s=self._latency_s(records),
        )
        return requests.take(~other) if other.any() else requests

    def _latency_s(self, records: Array) -> Array | float:
        return np.nan


class Vscsi2(Vscsi1):
    """Records of 40 bytes, which also have the response time."""

    name: ClassVar[str] = "vscsi-2"
    described: ClassVar[str] = "vscsi version 2, 40-byte records"
    record: ClassVar[np.dtype[np.void]] = _VERSION_2
    version: ClassVar[int] = 2

    def _latency_s(self, records: Array) -> Array | float:
        latency: Array = records["response_us"] / 1e6
        return latency
