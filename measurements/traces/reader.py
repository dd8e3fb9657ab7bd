"""What a reader of a format is."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from measurements.traces.requests import BLOCK_BYTES, NAMED, Array, Names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from measurements.traces.requests import Requests


class Reader:
    """One pass over a trace of one format.

    Attributes
    ----------
    ticks_per_s : int
        Of the format's clock.
    epoch_ns : int, optional
        Unix time (ns) of its tick 0, where the format says it.
    rebased : bool
        Whether times are to count from the first request.
    names : dict of str to Names
        Of streams, devices and files; grows as it reads.
    notes : Counter of str
        What was found and how often: sentences with a ``{n}``.
    """

    name: ClassVar[str]
    described: ClassVar[str]
    unit: ClassVar[str] = "line"
    ticks_per_s: int = 1
    epoch_ns: int | None = None
    rebased: ClassVar[bool] = True
    # Whether --map means anything to it.
    maps: ClassVar[bool] = False
    # Whether streams and devices may be numbers without names.
    numbered: ClassVar[bool] = False

    def __init__(self, path: Path, mapping: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.mapping = dict(mapping or {})
        self.names = {column: Names() for column in NAMED}
        self.notes: Counter[str] = Counter()

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether the first bytes of a file, unpacked, look like this format."""
        raise NotImplementedError

    def chunks(self) -> Iterator[Requests]:
        """Yield the requests, in the order of the file.

        Raises
        ------
        BadRequestError
        MeasurementError
        """
        raise NotImplementedError

    def doubts(self) -> Iterator[str]:
        """Yield, after the last chunk, sentences about what makes the reading doubtful."""
        yield from ()

    def where(self, row: int) -> str:
        """Say where a row is."""
        return f"{self.unit} {row}"

    def blocks(self, offset: Array) -> Array:
        """Number of the block that each byte offset is in; notes offsets inside a block."""
        if inside := int(np.count_nonzero(offset & (BLOCK_BYTES - 1))):
            self.notes["{n} requests begin inside a block of 512 bytes; lbn is that block"] += (
                inside
            )
        return offset >> 9
