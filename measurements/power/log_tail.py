"""Follow a text file that another program appends to, replaces or writes anew."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from measurements.power.protocol import SensorError

if TYPE_CHECKING:
    from pathlib import Path

BLOCK_BYTES = 1 << 20
HEAD_BYTES = 1 << 16
MOST_LINE_BYTES = 1 << 16
# Enough of what was read last to notice that other text stands there now.
MARK_BYTES = 64


class Lines(NamedTuple):
    """Whole lines without their ends; ``first`` where they are the beginning of a file."""

    lines: list[str]
    first: bool


class Tail:
    """Whole lines of a file, each given once.

    A last line is held back until its end is written. When another file takes the name, as log
    rotation does, the rest of the old one comes first. When the file is cut off or written anew in
    place, it is read from its beginning. Nothing else is read twice.

    Raises
    ------
    SensorError
        When there is no such file, or no plain one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _opened(path)
        self._begin()

    def head(self) -> list[str]:
        """Look at the whole lines at the beginning; `poll` gives them all the same."""
        text = os.pread(self._file, HEAD_BYTES, 0)
        if text.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise SensorError(
                f"{self._path}: is UTF-16: let the logger write UTF-8, or convert it with iconv"
            )
        return _decoded(text.split(b"\n")[:-1], first=True)

    def skip(self, but_bytes: int) -> None:
        """Leave out all whole lines but those in the last so many bytes."""
        start = os.fstat(self._file).st_size - but_bytes
        if start <= 0:
            return
        # From the byte before, so that a line that begins exactly here is kept.
        end = os.pread(self._file, MOST_LINE_BYTES, start - 1).find(b"\n")
        if end < 0:
            raise self._no_lines()
        self._position = start + end
        self._mark = os.pread(self._file, MARK_BYTES, max(self._position - MARK_BYTES, 0))
        self._mark = self._mark[: self._position]
        self._first = False

    def poll(self) -> list[Lines]:
        """Take what is new since the last time, one item a file."""
        if self._was_rewritten():
            self._begin()
        found = [self._new_lines()]
        if self._was_replaced():
            # What was written between the look at the file and the look at its name.
            found.append(self._new_lines())
            self.close()
            self._file = _opened(self._path)
            self._begin()
            found.append(self._new_lines())
        return [lines for lines in found if lines.lines]

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _begin(self) -> None:
        self._position = 0
        self._mark = self._rest = b""
        self._first = True

    def _was_rewritten(self) -> bool:
        size = os.fstat(self._file).st_size
        at = self._position - len(self._mark)
        return size < self._position or os.pread(self._file, len(self._mark), at) != self._mark

    def _was_replaced(self) -> bool:
        """Whether another file has the name, and says something already.

        Until it does, the logger may still be writing to the old one.
        """
        own = os.fstat(self._file)
        try:
            named = self._path.stat()
        except OSError:
            return False
        return (own.st_dev, own.st_ino) != (named.st_dev, named.st_ino) and named.st_size > 0

    def _new_lines(self) -> Lines:
        lines: list[str] = []
        first = self._first
        while block := os.pread(self._file, BLOCK_BYTES, self._position):
            self._position += len(block)
            self._mark = (self._mark + block)[-MARK_BYTES:]
            *whole, self._rest = (self._rest + block).split(b"\n")
            lines += _decoded(whole, self._first)
            self._first &= not whole
            if len(self._rest) > MOST_LINE_BYTES:
                raise self._no_lines()
        return Lines(lines, first)

    def _no_lines(self) -> SensorError:
        return SensorError(
            f"{self._path}: has a line of more than {MOST_LINE_BYTES >> 10} KiB: is it a CSV file?"
        )


def _opened(path: Path) -> int:
    try:
        # Not to wait for whoever may open the other end of a pipe.
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SensorError(
            f"{path}: cannot be read: {error.strerror}: start the logger first, and check the "
            f"name and its permissions"
        ) from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise SensorError(f"{path}: is no file: name the CSV file that the logger writes")
    return file


def _decoded(lines: list[bytes], first: bool) -> list[str]:
    texts = [line.rstrip(b"\r").decode("utf-8", "replace") for line in lines]
    if first and texts:
        texts[0] = texts[0].removeprefix("\ufeff")
    return texts
