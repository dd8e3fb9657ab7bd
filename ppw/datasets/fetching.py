"""Data sets from where they are published, into a folder; each file checked before it is kept."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from ppw.datasets.local import State, remedy, state_of
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ppw.datasets.registry import DataFile, Dataset

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
