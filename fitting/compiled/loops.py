"""Compiled loops: recurrences that arrays cannot express, such as a generator or an LRU stack.

Machine code is kept on disk: in the folder that ``NUMBA_CACHE_DIR`` names, or beside this package,
or in the user's cache; where none of them can be written to, functions are compiled anew by each
process. A function is compiled again when its file changes, or a file of this package that its file
imports from: numba copies the functions and constants of those into it, and looks at its file only.
"""

import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

_LOG = logging.getLogger(__name__)
# Not those for type checkers alone, which are indented.
_IMPORTED = re.compile(rb"^from fitting\.([\w.]+) import (.*)", re.M)
F = TypeVar("F", bound=Callable[..., object])
Array = npt.NDArray[Any]
ArrayLike = npt.ArrayLike
BoolArray = npt.NDArray[np.bool_]
ByteArray = npt.NDArray[np.uint8]
CountArray = npt.NDArray[np.uint32]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
ShortArray = npt.NDArray[np.int32]
# Arrays of several types, or tuples of them, which a compiled function takes apart.
Columns = tuple[Any, ...]

# Layout of a float64.
_FRACTION_BITS, _BIAS = 52, 1023

_REORDERED: dict[str, Any] = {
    "nogil": True,
    "_nrt": False,
    "fastmath": {"reassoc", "contract", "nsz"},
    "error_model": "numpy",
}

# Numba is not typed.
_settings: Any = numba.config
_FunctionCache: Any = numba.core.caching.FunctionCache
_NullCache: Any = numba.core.caching.NullCache


def jit(function: F) -> F:
    """Compile a function of arrays and numbers at its first call; keep its machine code on disk."""
    return _compile(function, nogil=True)


def jit_inline(function: F) -> F:
    """Compile a short function that is copied into each compiled function that calls it."""
    return _compile(function, nogil=True, inline="always")


def jit_inner(function: F) -> F:
    """Compile a function for compiled functions alone: a call from Python ends the process.

    Without the code that takes tuples of arrays apart it compiles in half the time. Divisions are
    as in `jit_uncounted`.
    """
    return _compile(function, nogil=True, _nrt=False, no_cpython_wrapper=True, error_model="numpy")


def jit_uncounted(function: F) -> F:
    """Compile a function that makes no array, without counting references to its arguments.

    Numba counts them at every use of a tuple of arrays, which costs more than a loop's arithmetic.
    A division by zero gives 0 or what IEEE 754 says, which compiles faster than an error.
    """
    return _compile(function, nogil=True, _nrt=False, error_model="numpy")


def jit_reordered(function: F) -> F:
    """Compile a function that makes no array and whose sums may be taken in any order.

    So they run on vector units. A division by zero gives what IEEE 754 says, and no error.
    """
    return _compile(function, **_REORDERED)


def jit_reordered_inner(function: F) -> F:
    """Compile a function as `jit_reordered`, for compiled functions alone; see `jit_inner`."""
    return _compile(function, **_REORDERED, no_cpython_wrapper=True)


def jit_ordered_inner(function: F) -> F:
    """Compile a function that `jit_reordered` ones call, whose sums keep their order."""
    # Named, because numba else takes the rules of whoever happens to call it first.
    return _compile(function, **{**_REORDERED, "fastmath": {"contract"}}, no_cpython_wrapper=True)


class Notice:
    """Log once that loops are being compiled, when that has taken this process a second."""

    AFTER_S = 1.0
    timer: Any = threading.Timer
    clock: Any = time.monotonic

    def __init__(self, text: str) -> None:
        self._text, self._timer = text, cast("Any", None)
        self._depth, self._spent_s, self._begun_s, self._is_told = 0, 0.0, 0.0, False

    def begin(self) -> None:
        """Note that a compilation begins; the outermost one starts the timer of the message."""
        self._depth += 1
        if self._depth == 1 and not self._is_told:
            self._begun_s = self.clock()
            self._timer = self.timer(max(0.0, self.AFTER_S - self._spent_s), self._log_text)
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        """Note that a compilation has ended; the end of the outermost one stops the timer."""
        self._depth -= 1
        if self._depth == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._spent_s += self.clock() - self._begun_s

    def _log_text(self) -> None:
        self._is_told = True
        _LOG.info(self._text)


_KEPT = Notice("compiling, first use only")
_NOT_KEPT = Notice(
    "compiling at each start, because no folder can store the machine code: name "
    "one with NUMBA_CACHE_DIR"
)


class _ForgivingCache(_FunctionCache):  # type: ignore[misc]
    """Machine code on disk; a full disk, or a folder that disappears, only costs time."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        self._cache_file._source_stamp = _sources_digest(Path(function.__code__.co_filename))

    def load_overload(self, *arguments: Any) -> Any:
        """Load machine code; None where there is none, or it cannot be read."""
        found = None
        with suppress(OSError):
            try:
                found = super().load_overload(*arguments)
            except (AttributeError, ImportError):
                # The code is of another release, and names classes that are gone.
                self.flush()
        if found is None:
            _KEPT.begin()
        return found

    def save_overload(self, *arguments: Any) -> None:
        """Save machine code; an error of the disk is ignored."""
        _KEPT.end()
        with suppress(OSError):
            super().save_overload(*arguments)


class _NoCacheFolder(_NullCache):  # type: ignore[misc]
    """No machine code on disk, which costs every process its time."""

    def load_overload(self, *arguments: Any) -> None:
        """Load nothing, and note that a compilation begins."""
        _NOT_KEPT.begin()

    def save_overload(self, *arguments: Any) -> None:
        """Save nothing, and note that a compilation has ended."""
        _NOT_KEPT.end()


def _compile(function: F, **options: Any) -> F:
    """Compile by numba, with its machine code in `_cache_folder` where there is one."""
    # Nothing calls a loop through C.
    made: Any = numba.njit(**{"no_cfunc_wrapper": True, **options})(function)
    made._cache = _NoCacheFolder()
    folder = _cache_folder()
    if folder is not None:
        # Numba takes the folder when a function is declared; those of other packages go elsewhere.
        before, _settings.CACHE_DIR = _settings.CACHE_DIR, folder
        try:
            # The folder has disappeared since, or the source is in an archive.
            with suppress(RuntimeError, OSError):
                made._cache = _ForgivingCache(function)
        finally:
            _settings.CACHE_DIR = before
    return cast("F", made)


@cache
def _cache_folder() -> str | None:
    """Return the first folder for machine code that can be written to; None for none."""
    for parent in _folder_candidates():
        with suppress(OSError):
            (parent / "ppw-loops").mkdir(parents=True, exist_ok=True)
            if os.access(parent / "ppw-loops", os.W_OK):
                return str(parent / "ppw-loops")
    return None


def _folder_candidates() -> Iterator[Path]:
    """Yield the folders that may keep machine code, best first."""
    if _settings.CACHE_DIR:
        yield Path(_settings.CACHE_DIR)
        return
    yield Path(__file__).parent / "__pycache__"
    given = os.environ.get("XDG_CACHE_HOME", "")
    if Path(given).is_absolute():
        yield Path(given) / "ppw"
    # RuntimeError: a user without a home.
    with suppress(RuntimeError):
        yield Path.home() / ".cache" / "ppw"


@cache
def _sources_digest(path: Path) -> str:
    """Hash the source of a file and of the files of this package that it imports from."""
    package = Path(__file__).parents[1]
    found, todo = {path: path.read_bytes()}, [path]
    while todo:
        for name, imported in _IMPORTED.findall(found[todo.pop()]):
            module = package.joinpath(*name.decode().split("."))
            # What is imported may itself be a module.
            inside = (module / word for word in re.findall(r"\w+", imported.decode()))
            for source in (part.with_suffix(".py") for part in (module, *inside)):
                if source not in found and source.is_file():
                    found[source] = source.read_bytes()
                    todo.append(source)
    return hashlib.sha256(b"".join(found[source] for source in sorted(found))).hexdigest()[:16]


@jit_inline
def log2_bin(number: int, bits: int) -> int:
    """Return the log2 bin of a number from 1, 2^bits even bins an octave; exact below 2^53."""
    # The exponent of a float and the first bits of its fraction give it without a search.
    return (np.float64(number).view(np.int64) >> (_FRACTION_BITS - bits)) - (_BIAS << bits)


def read_only(*columns: Array) -> Columns:
    """Return views that cannot be written to: a loop is compiled once for all sorts of columns."""
    views = tuple(column[:] for column in columns)
    for view in views:
        view.flags.writeable = False
    return views
