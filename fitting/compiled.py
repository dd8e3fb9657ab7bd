"""Compiled loops: recurrences that arrays cannot express, such as a walk or an LRU stack.

Machine code is kept on disk: in the folder that ``NUMBA_CACHE_DIR`` names, or beside this package,
or in the user's cache; where none of them can be written to, functions are compiled anew by each
process. A compiled function may hold another one inside, which numba does not look at when it
decides whether the code on disk is still that of the source: all sources with such functions count.
"""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
from numba.core import caching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOG = logging.getLogger(__name__)
F = TypeVar("F", bound="Callable[..., object]")

# Numba is not typed.
_settings: Any = numba.config
_FunctionCache: Any = caching.FunctionCache
_NullCache: Any = caching.NullCache


def compiled(function: F) -> F:
    """Compile a function of arrays and numbers when it is first called; kept on disk after that."""
    return _kept(function, nogil=True)


def inlined(function: F) -> F:
    """Compile a short function into each compiled function that calls it."""
    return _kept(function, nogil=True, inline="always")


def uncounted(function: F) -> F:
    """Compile a function that makes no array, without counting references to those it is given.

    Numba counts them at every use of a tuple of arrays, which costs more than a walk's arithmetic.
    """
    return _kept(function, nogil=True, _nrt=False)


class _Forgiving(_FunctionCache):  # type: ignore[misc]
    """Machine code on disk; a full disk, or a folder that is taken away, only costs time."""

    def load_overload(self, *arguments: Any) -> Any:
        found = None
        with suppress(OSError):
            found = super().load_overload(*arguments)
        if found is None:
            _tell("compiling loops, for up to a minute; the next start finds them on disk")
        return found

    def save_overload(self, *arguments: Any) -> None:
        with suppress(OSError):
            super().save_overload(*arguments)


class _Told(_NullCache):  # type: ignore[misc]
    """No machine code on disk, which costs every process its time: it is said why."""

    def load_overload(self, *arguments: Any) -> None:
        _tell(
            "compiling loops, for up to a minute; no folder can keep them for the next start: name "
            "one by NUMBA_CACHE_DIR"
        )


@cache
def _tell(what: str) -> None:
    """Log why nothing seems to happen, once a process."""
    _LOG.info(what)


def _kept(function: F, **options: Any) -> F:
    made: Any = numba.njit(**options)(function)
    made._cache = _Told()
    folder = _folder()
    if folder is not None:
        # Numba takes the folder when a function is declared; other packages' are not to go there.
        before, _settings.CACHE_DIR = _settings.CACHE_DIR, folder
        try:
            # RuntimeError: the folder has been taken away since.
            with suppress(RuntimeError):
                made._cache = _Forgiving(function)
        finally:
            _settings.CACHE_DIR = before
    return cast("F", made)


@cache
def _folder() -> str | None:
    """Folder for the machine code of these sources: the first that can be written to."""
    name = f"ppw-{_sources_digest()}"
    for parent in _parents():
        with suppress(OSError):
            (parent / name).mkdir(parents=True, exist_ok=True)
            if os.access(parent / name, os.W_OK):
                return str(parent / name)
    return None


def _parents() -> Iterator[Path]:
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


def _sources_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        source = path.read_bytes()
        if b"fitting.compiled" in source:
            digest.update(source)
    return digest.hexdigest()[:16]
