"""Numbers in files of sysfs, read once or many times; `measurements.host.files` has texts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from measurements.host.files import read_text

if TYPE_CHECKING:
    from pathlib import Path

_LONGEST = 64


class NumberFile:
    """One integer in a file that stays open between readings.

    The kernel makes the figure anew for every read at offset 0. A file that fails is opened once
    more, since a driver that was loaded again has new files under the same names.

    Attributes
    ----------
    path : Path
        Where the file is.
    problem : str
        Why the last reading gave no number; empty where it did.
    denied : bool
        Whether it was for lack of permission.
    """

    __slots__ = ("_descriptor", "denied", "path", "problem")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self.denied = False
        self._descriptor = -1

    def read(self) -> int | None:
        """Return the number, or None where there is none to be had now."""
        if self._descriptor >= 0:
            try:
                return int(os.pread(self._descriptor, _LONGEST, 0))
            except (OSError, ValueError):
                self.close()
        return self._read_anew()

    def _read_anew(self) -> int | None:
        self.problem, self.denied = "", False
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY)
            return int(os.pread(self._descriptor, _LONGEST, 0))
        except PermissionError as error:
            self.problem, self.denied = f"{error.strerror}", True
        except OSError as error:
            self.problem = f"{error.strerror}"
        except ValueError:
            self.problem = "it holds no number"
        self.close()
        return None

    @property
    def remedy(self) -> str:
        """What to do where the file may not be read; empty where it may."""
        return f"not readable: sudo chmod a+r {self.path}" if self.denied else ""

    def close(self) -> None:
        """Close the file; the next reading opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def number(path: Path) -> int | None:
    """Integer in a small file; None where there is none or the driver has no figure for it."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
