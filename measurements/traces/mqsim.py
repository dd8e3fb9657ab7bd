"""MQSim's ASCII traces: nanoseconds, and 1 is a read.

Source: Tavakkol and others, "MQSim: A Framework for Enabling Realistic Studies of Modern
Multi-Queue SSD Devices", FAST 2018; the columns are those of DiskSim's ASCII format.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from measurements.traces.fields import TEXT, WHOLE, Field, FieldReader, Form, read_or_write
from measurements.traces.requests import BLOCK_BYTES, READ, WRITE, BadRequestError, Requests

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIELDS = (
    Field("arrival (ns)", WHOLE),
    Field("device", TEXT),
    Field("start LBA", WHOLE),
    Field("sectors", WHOLE),
    Field("type", TEXT),
)
_LINE = re.compile(rb"\d+[ \t]+\d+[ \t]+\d+[ \t]+\d+[ \t]+[01][ \t]*\r?$", re.M)
_MOST_SECTORS = 2**54


class MqSim(FieldReader):
    """Arrival (ns), device, start LBA, sectors of 512 bytes, type (1 read, 0 write)."""

    name: ClassVar[str] = "mqsim"
    described: ClassVar[str] = "MQSim ASCII (type 1 is a read)"
    form = Form(_FIELDS, delimiter=" ")
    ticks_per_s = 10**9

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file begins as one of this format does."""
        return _LINE.match(head.lstrip()) is not None

    def chunks(self) -> Iterator[Requests]:
        """Yield the requests, in the order of the file."""
        for row, table in self.blocks_of_fields():
            device = self.names["device"].codes(table["device"])
            sectors = table["sectors"].to_numpy()
            if (huge := sectors >= _MOST_SECTORS).any():
                at = int(huge.argmax())
                raise BadRequestError(int(row[at]), f"{sectors[at]} sectors are beyond 2^63 bytes")
            yield Requests.of(
                row,
                table["arrival (ns)"].to_numpy(),
                table["start LBA"].to_numpy(),
                sectors * BLOCK_BYTES,
                read_or_write(table["type"], row, {"1": READ, "0": WRITE}, "type"),
                device=device,
            )
