"""SPC traces: CSV without a header, times in seconds.

Source: Storage Performance Council, "SPC Trace File Format Specification", revision 1.0.1; as
the UMass Trace Repository's Financial and WebSearch traces.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from measurements.traces.fields import NUMBER, TEXT, WHOLE, Field, FieldReader, Form, read_or_write
from measurements.traces.requests import READ, WRITE, Requests

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIELDS = (
    Field("ASU", TEXT),
    Field("LBA", WHOLE),
    Field("Size", WHOLE),
    Field("Opcode", TEXT),
    Field("Timestamp", NUMBER),
)
_LINE = re.compile(rb"\d+,\s*\d+,\s*\d+,\s*[rw],\s*[\d.]+(?:[eE][-+]?\d+)?\s*$", re.I | re.M)


class Spc(FieldReader):
    """ASU,LBA,Size,Opcode,Timestamp; blocks of 512 bytes, size in bytes; a device is an ASU."""

    name: ClassVar[str] = "spc"
    described: ClassVar[str] = "SPC (ASU,LBA,Size,Opcode,Timestamp)"
    form = Form(_FIELDS)

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file begins as one of this format does."""
        return _LINE.match(head.lstrip()) is not None

    def chunks(self) -> Iterator[Requests]:
        """Yield the requests, in the order of the file."""
        for row, table in self.blocks_of_fields():
            unit = self.names["device"].codes(table["ASU"])
            yield Requests.of(
                row,
                table["Timestamp"].to_numpy(),
                table["LBA"].to_numpy(),
                table["Size"].to_numpy(),
                read_or_write(table["Opcode"], row, {"r": READ, "w": WRITE}, "Opcode"),
                device=unit,
            )
