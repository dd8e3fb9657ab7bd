"""Bytes of a file, unpacked where it is a gzip, block by block."""

from __future__ import annotations

import gzip
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, NamedTuple, cast

import numpy as np

from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Small enough for a cache, large enough that what is done once a block costs nothing.
BLOCK = 1 << 22
_GZIP = b"\x1f\x8b"
_LONGEST_LINE = 1 << 16


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, unpacked; what the world does wrong is a MeasurementError."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            if packed:
                with gzip.open(file) as unpacked:
                    yield cast("IO[bytes]", unpacked)
            else:
                yield file
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise MeasurementError(f"{path}: broken gzip: {error}: copy it again") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise MeasurementError(f"{path}: cannot be read: {reason}") from error


def head(path: Path, size: int = 1 << 16) -> bytes:
    """Read the first bytes of a file, unpacked."""
    with opened(path) as file:
        return file.read(size)


class LineBlock(NamedTuple):
    """Whole lines: the number of the first (1 is the file's first), how many, and their bytes."""

    first: int
    lines: int
    text: bytes


def line_blocks(path: Path) -> Iterator[LineBlock]:
    """Yield whole lines, many at a time; bytes that are no UTF-8 are replaced."""
    with opened(path) as file:
        first, rest = 1, b""
        while block := file.read(BLOCK):
            end = block.rfind(b"\n") + 1
            if not end:
                rest += block
            else:
                text = _text(b"".join((rest, memoryview(block)[:end])))
                lines = _line_ends(text)
                yield LineBlock(first, lines, text)
                first, rest = first + lines, block[end:]
            if len(rest) > _LONGEST_LINE:
                raise MeasurementError(
                    f"{path}: line {first} is longer than {_LONGEST_LINE} bytes: is this a trace?"
                )
        if rest:
            yield LineBlock(first, 1, _text(rest))


def _line_ends(block: bytes) -> int:
    # bytes.count stops at every one of them.
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n")))


def _text(block: bytes) -> bytes:
    if block.isascii():
        return block
    try:
        block.decode()
    except UnicodeDecodeError:
        return block.decode(errors="replace").encode()
    return block
