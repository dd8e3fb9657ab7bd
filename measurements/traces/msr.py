"""MSR Cambridge traces: CSV, as published without a header, times in Windows filetime.

Source: Narayanan, Donnelly, Rowstron, "Write off-loading: practical power management for
enterprise storage", FAST 2008; the traces' own README.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from measurements.traces.fields import (
    TEXT,
    WHOLE,
    Field,
    FieldReader,
    Form,
    combined,
    read_or_write,
)
from measurements.traces.requests import READ, WRITE, Array, Requests
from measurements.traces.source import head

if TYPE_CHECKING:
    from collections.abc import Iterator

# 1601-01-01 to 1970-01-01, in seconds.
_FILETIME_TO_UNIX_S = 11_644_473_600

_FIELDS = (
    Field("Timestamp", WHOLE),
    Field("Hostname", TEXT),
    Field("DiskNumber", TEXT),
    Field("Type", TEXT),
    Field("Offset", WHOLE),
    Field("Size", WHOLE),
    Field("ResponseTime", WHOLE),
)
_LINE = re.compile(rb"\d{15,19},[^,]*,\d+,(?:read|write),\d+,\d+,\d+", re.IGNORECASE)
# Copies on data sites often have the README's names as their first line.
_HEADER = re.compile(
    rb"\s*(?:\xef\xbb\xbf)?" + rb"\s*,\s*".join(f.name.encode() for f in _FIELDS) + rb"\s*?\n",
    re.IGNORECASE,
)


class Msr(FieldReader):
    """Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime; ticks of 100 ns; bytes."""

    name: ClassVar[str] = "msr"
    described: ClassVar[str] = "MSR Cambridge CSV"
    form = Form(_FIELDS)
    ticks_per_s = 10**7
    epoch_ns = -_FILETIME_TO_UNIX_S * 10**9

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file begins as one of this format does."""
        header = _HEADER.match(head)
        return _LINE.match(head[header.end() if header else 0 :].lstrip()) is not None

    def chunks(self) -> Iterator[Requests]:
        """Yield the requests, in the order of the file."""
        codes = {"read": READ, "write": WRITE}
        if _HEADER.match(head(self.path)):
            self.form = self.form._replace(header_lines=1)
        for row, table in self.blocks_of_fields():
            number, pairs = combined(table["Hostname"], table["DiskNumber"])
            yield Requests.of(
                row,
                table["Timestamp"].to_numpy(),
                self.blocks(table["Offset"].to_numpy()),
                table["Size"].to_numpy(),
                read_or_write(table["Type"], row, codes, "Type"),
                stream=self._codes("stream", [host for host, _ in pairs])[number],
                # As the traces' files are called: hm_0.
                device=self._codes("device", [f"{host}_{disk}" for host, disk in pairs])[number],
                latency_s=table["ResponseTime"].to_numpy() / self.ticks_per_s,
            )

    def _codes(self, name: str, words: list[str]) -> Array:
        return np.asarray([self.names[name].code(word) for word in words], np.int32)
