"""Bytes of a log: from a file or standard input, gzip or plain, by pieces."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE_BYTES = 8 << 20
_GZIP = b"\x1f\x8b"
_HEAD_BYTES = 1 << 16


class Source:
    """One log as a stream of bytes.

    Attributes
    ----------
    name : str
        For messages.
    head : bytes
        The first 64 KiB, which tell the format.
    truncated : bool
        Whether a gzip file broke off; so far as it was read.
    """

    def __init__(self, name: str, stream: io.BufferedIOBase) -> None:
        self.name = name
        self.truncated = False
        self._stream = stream
        self.head = self._read(_HEAD_BYTES)
        self._given = False

    def pieces(self, size: int = PIECE_BYTES) -> Iterator[bytes]:
        """All bytes, once, by pieces of about ``size``."""
        if self._given:
            raise MeasurementError(f"{self.name}: can be read only once")
        self._given = True
        piece = self.head + self._read(max(0, size - len(self.head)))
        while piece:
            yield piece
            piece = self._read(size)

    def lines(self, size: int = PIECE_BYTES) -> Iterator[bytes]:
        """All bytes, by pieces that end at a line's end; the last may not."""
        rest = b""
        for piece in self.pieces(size):
            end = piece.rfind(b"\n") + 1
            if not end:
                rest += piece
                self._refuse_long(rest)
                continue
            yield rest + piece[:end]
            rest = piece[end:]
        if rest:
            yield rest

    def _refuse_long(self, line: bytes) -> None:
        if len(line) > 8 * PIECE_BYTES:
            raise MeasurementError(f"{self.name}: has a line of over {len(line) >> 20} MiB: no log")

    def _read(self, size: int) -> bytes:
        parts, missing = [], size
        while missing > 0 and not self.truncated:
            try:
                # A plain read would lose what came before a gzip file breaks off.
                part = self._stream.read1(missing)
            except EOFError:
                self.truncated = True
                break
            except (OSError, zlib.error) as error:
                raise MeasurementError(f"{self.name}: cannot be read: {error}") from error
            if not part:
                break
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)


@contextmanager
def open_source(path: str | Path) -> Iterator[Source]:
    """Open a log; ``-`` is standard input, and gzip is known by its first bytes.

    Raises
    ------
    MeasurementError
        When it cannot be opened, or is empty.
    """
    if str(path) == "-":
        yield _source("standard input", sys.stdin.buffer)
        return
    try:
        with Path(path).open("rb") as file:
            yield _source(str(path), file)
    except OSError as error:
        raise MeasurementError(f"{path}: cannot be read: {error.strerror or error}") from error


def _source(name: str, stream: IO[bytes]) -> Source:
    # Standard input may be of a kind that cannot be looked at ahead.
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)  # type: ignore[type-var]
    zipped = buffered.peek(2)[:2] == _GZIP
    source = Source(name, gzip.GzipFile(fileobj=buffered) if zipped else buffered)
    if not source.head:
        how = "is a gzip file that breaks off at once" if source.truncated else "is empty"
        raise MeasurementError(f"{name}: {how}: no log")
    return source
