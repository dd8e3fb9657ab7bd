"""Data sets from where they are published, into a folder; each file checked before it is kept."""

from __future__ import annotations

import hashlib
import logging
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ppw.catalogue.datasets import DataFile, Dataset


# Data sets in a folder: where it is, which files it has, and whether they are the origin's.


DATA_DIR_VARIABLE = "PPW_DATA_DIR"


class State(StrEnum):
    """What is known of a file in a folder."""

    VERIFIED = "checksum right"
    UNVERIFIED = "not checked"
    WRONG = "checksum wrong"
    MISSING = "not here"


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Folder of data sets: the one given, or ``PPW_DATA_DIR``, or ppw's in the user's cache.

    Raises
    ------
    PpwError
        When a folder was named that is not there.
    """
    given = folder or os.environ.get(DATA_DIR_VARIABLE)
    if not given:
        return cache_folder()
    if not Path(given).is_dir():
        source = "" if folder else f" ({DATA_DIR_VARIABLE})"
        raise PpwError(f"{given}{source}: no such folder of data sets; give one that exists")
    return Path(given)


def cache_folder() -> Path:
    """Where sets are kept that were fetched: ``$XDG_CACHE_HOME/ppw/data``, ``~/.cache/ppw/data``.

    Raises
    ------
    PpwError
        When the user has no home.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(cache):  # noqa: PTH117  # a path to be made of it only where it is one
        return Path(cache, "ppw", "data")
    try:
        return Path.home() / ".cache" / "ppw" / "data"
    except RuntimeError as error:
        raise PpwError(
            f"there is no home folder to keep data in: name one in {DATA_DIR_VARIABLE}"
        ) from error


def state_of(file: DataFile, folder: Path) -> State:
    """Say whether a file is in a folder, and whether its bytes are those of its origin.

    Raises
    ------
    PpwError
        When it is there and cannot be read.
    """
    path = folder / file.path
    try:
        if not path.is_file():
            return State.MISSING
        if file.sha256 is None:
            return State.UNVERIFIED
        found = file_digest(path)
    except OSError as error:
        raise PpwError(f"{path}: cannot be read: {error.strerror or error}") from error
    return State.VERIFIED if found == file.sha256 else State.WRONG


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def states_of(dataset: Dataset, folder: Path) -> dict[State, int]:
    """Count a set's files by what is known of them."""
    counts = dict.fromkeys(State, 0)
    for file in dataset.files:
        counts[state_of(file, folder)] += 1
    return counts


def described(counts: dict[State, int]) -> str:
    """Say in words what a folder has of a set."""
    total = sum(counts.values())
    if counts[State.MISSING] == total:
        return "not here"
    parts = [(State.WRONG, "wrong"), (State.MISSING, "missing"), (State.UNVERIFIED, "not checked")]
    said = [f"{counts[state]} {word}" for state, word in parts if counts[state]]
    files = f"{total} file{'s' if total > 1 else ''}"
    return f"of {files} {', '.join(said)}" if said else f"all of {files}, checksums right"


def files_here(dataset: Dataset, folder: Path) -> list[Path]:
    """Paths of all files of a set, each with the origin's bytes as far as that can be told.

    Raises
    ------
    PpwError
        For a file that is missing or another than the origin's, with what to do.
    """
    for file in dataset.files:
        state = state_of(file, folder)
        if state is State.MISSING:
            raise PpwError(f"{folder / file.path}: not here: {remedy(dataset)}")
        if state is State.WRONG:
            raise PpwError(
                f"{folder / file.path}: not the file of the origin, by its checksum: remove it, "
                f"and {remedy(dataset)}"
            )
    return [folder / file.path for file in dataset.files]


def remedy(dataset: Dataset) -> str:
    """What to do for files that are not here."""
    if dataset.can_be_fetched:
        return f"ppw datasets {dataset.name} --fetch gets it from {dataset.origin}"
    return f"it was made of what {dataset.origin} has, and cannot be fetched"


TIMEOUT_S = 30.0
_PART_BYTES = 65536


def fetch_dataset(
    dataset: Dataset, folder: Path, *, each: Callable[[DataFile], object] | None = None
) -> list[Path]:
    """Get the files of a set that a folder lacks from their origin.

    A file appears whole and with the checksum that is known for it, or not at all. One that is
    there and has another checksum is left alone: it may be the user's.

    Parameters
    ----------
    dataset : Dataset
    folder : path
        Made when it is not there.
    each : callable, optional
        Called with a file before it is asked for.

    Returns
    -------
    list of path
        All files of the set.

    Raises
    ------
    PpwError
        When the origin cannot be reached, does not have a file or has another one, and when the
        folder cannot be written to.
    """
    if not dataset.can_be_fetched:
        raise PpwError(f"{dataset.name}: {remedy(dataset)}")
    for file in dataset.files:
        state = state_of(file, folder)
        if state is State.WRONG:
            raise PpwError(
                f"{folder / file.path}: another file than the origin's, by its checksum: move it "
                "away, or name another folder"
            )
        if state is State.MISSING:
            if each is not None:
                each(file)
            _fetch(file, folder / file.path)
    return [folder / file.path for file in dataset.files]


def _fetch(file: DataFile, target: Path) -> None:
    try:
        import pooch
        from requests.exceptions import RequestException
    except ImportError as error:
        raise PpwError(
            "fetching needs the library pooch: pip install 'perf-per-watt[data]'"
        ) from error
    # It tells the checksum of what is not checked, which nobody asked for.
    pooch.get_logger().setLevel(logging.WARNING)
    try:
        pooch.retrieve(
            file.url,
            known_hash=file.sha256 and f"sha256:{file.sha256}",
            fname=target.name,
            path=target.parent,
            downloader=_download,
        )
    except RequestException as error:
        raise PpwError(f"{file.url}: {_reason(error)}") from error
    except ValueError as error:
        raise PpwError(
            f"{file.url}: not the file that was published, by its checksum: nothing was kept; try "
            "again, and tell its makers if that does not help"
        ) from error
    except OSError as error:
        raise PpwError(f"{target}: cannot be written: {error.strerror or error}") from error


def _download(url: str, into: str, _: object) -> None:
    """Get a file; unlike pooch's own, it closes the connection whatever happens."""
    import requests

    with (
        requests.get(url, stream=True, timeout=TIMEOUT_S) as answer,
        Path(into).open("wb") as file,
    ):
        answer.raise_for_status()
        for part in answer.iter_content(_PART_BYTES):
            file.write(part)


def _reason(error: Exception) -> str:
    from requests import exceptions

    if isinstance(error, exceptions.HTTPError) and error.response is not None:
        said = f"{error.response.status_code} {error.response.reason}".strip()
        return f"the server answers {said}: its makers may have moved it; look at the origin"
    if isinstance(error, exceptions.ProxyError):
        return "the proxy cannot be reached or refuses: see HTTPS_PROXY and NO_PROXY"
    if isinstance(error, exceptions.SSLError):
        return "its certificate is not trusted: see REQUESTS_CA_BUNDLE"
    if isinstance(error, exceptions.Timeout):
        return f"no answer in {TIMEOUT_S:g} s: try again later"
    if isinstance(error, exceptions.ChunkedEncodingError):
        return "the connection broke off: nothing was kept; try again"
    return (
        "no connection: get the files where there is one, into the same folders below one of "
        "yours, and name that with --folder or in PPW_DATA_DIR"
    )
