"""Public data sets: what there is, under which licence, and how to get and read it.

A set is one TOML file of this folder. None of its data come with ppw.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pandas as pd

from measurements import read_runs, tidy_runs
from measurements.errors import naming_extra
from measurements.table.headers import nearest
from ppw.errors import PpwError
from ppw.results import result as rs, text as tx

if TYPE_CHECKING:
    from measurements.traces.requests import Trace


# Descriptions: one TOML file a set, each with its origin and licence.
RUNS = "runs"


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One file of a set."""

    path: str  # place in a folder of data sets, with forward slashes
    url: str | None  # place at its origin; None for a file that was made of the origin's
    size: int | None  # bytes
    sha256: str | None  # of the origin's bytes; None where they cannot be checked
    mapping: Mapping[str, str]  # canonical column of a runs table to the header it has here
    spaces: bool  # whether spaces part the columns of a runs table
    columns: Mapping[str, str]  # what a table of runs does not say itself: its host, its workload


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A public data set."""

    name: str
    title: str
    what: str
    # "runs", "block trace", "log" or "power levels".
    kind: str
    origin: str
    licence: str
    terms: str | None  # what the licence asks for, or whose it is
    made_from: str | None  # origin of files that ppw's authors made, and how
    read_with: tuple[str, ...]  # commands that read it, in a folder of data sets
    quality: tuple[str, ...]  # known errors and peculiarities
    drop: tuple[str, ...]  # columns of the table that are not to be believed
    files: tuple[DataFile, ...]

    @property
    def size(self) -> int | None:
        """Size of all files together (bytes); None where that of any file is not known."""
        sizes = [file.size for file in self.files if file.size is not None]
        return sum(sizes) if len(sizes) == len(self.files) else None

    @property
    def can_be_fetched(self) -> bool:
        """Whether every file has an address to download it from."""
        return all(file.url for file in self.files)


@cache
def datasets_by_name() -> dict[str, Dataset]:
    """Read the descriptions of all sets, in the order of their names."""
    folder = files("ppw.catalogue").joinpath("data", "sets")
    toml = sorted((e for e in folder.iterdir() if e.name.endswith(".toml")), key=lambda e: e.name)
    named = ((entry.name.removesuffix(".toml"), entry) for entry in toml)
    return {name: _parse_dataset(name, entry.read_text(encoding="utf-8")) for name, entry in named}


def find_dataset(name: str) -> Dataset:
    """Return the data set of a name. Raises `PpwError` with the nearest names for no set."""
    sets = datasets_by_name()
    if name not in sets:
        raise PpwError(
            f"no data set {name!r}{nearest(name, list(sets))}; there are {', '.join(sets)}"
        )
    return sets[name]


def _parse_dataset(name: str, text: str) -> Dataset:
    table = tomllib.loads(text)
    folder = PurePosixPath(table.get("folder", name))
    base, mapping = table.get("files_at", ""), table.get("map", {})
    return Dataset(
        name=name,
        **{key: table[key] for key in ("title", "what", "kind", "origin", "licence")},
        terms=table.get("terms"),
        made_from=table.get("made_from"),
        read_with=tuple(table["read_with"]),
        quality=tuple(table["quality"]),
        drop=tuple(table.get("drop", ())),
        files=tuple(
            DataFile(
                path=str(folder / entry["path"]),
                url=base + entry["at"] if "at" in entry else None,
                size=entry.get("size"),
                sha256=entry.get("sha256"),
                mapping={**mapping, **entry.get("map", {})},
                spaces=entry.get("spaces", False),
                columns=entry.get("columns", {}),
            )
            for entry in table["file"]
        ),
    )


# Data sets as answers take them: a table of runs, or the paths of traces and logs.
def list_datasets(folder: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """List the public data sets that ppw knows, with their licences.

    Parameters
    ----------
    folder : path, optional
        As of `load_dataset`; what it has of each set is said in ``here``.

    Returns
    -------
    pandas.DataFrame
        One row a set: ``name``, ``title``, ``what``, ``kind``, ``origin``, ``licence``, ``terms``
        (what the licence asks for), ``files`` (how many), ``size_bytes`` (NaN where not known),
        ``fetchable`` and ``here``.

    Raises
    ------
    PpwError
        When a folder was named that is not there.
    """
    where = data_folder(folder)
    keys = ("name", "title", "what", "kind", "origin", "licence", "terms")
    rows = [
        {
            **{key: getattr(one, key) for key in keys},
            "files": len(one.files),
            "size_bytes": one.size,
            "fetchable": one.can_be_fetched,
            "here": states_text(states_of(one, where)),
        }
        for one in datasets_by_name().values()
    ]
    return pd.DataFrame(rows).astype({"size_bytes": float})


def licence_text(dataset: Dataset) -> str:
    """Write the licence, with its terms in brackets where there are some."""
    return f"{dataset.licence} ({dataset.terms})" if dataset.terms else dataset.licence


def load_dataset(
    name: str, folder: str | os.PathLike[str] | None = None
) -> pd.DataFrame | list[Path]:
    """Load a public data set: a table of runs, or the paths of traces and logs.

    Each set is under a licence of its makers, which `list_datasets` shows and the ``attrs`` of a
    table keep.

    Parameters
    ----------
    name : str
        As `list_datasets` has it.
    folder : path, optional
        Folder of data sets, with a folder for each; by default ``PPW_DATA_DIR``. Where neither
        is given, the user's cache is looked at, and what it lacks is fetched from the origin.

    Returns
    -------
    pandas.DataFrame or list of path
        Sets of ``kind`` "runs" are tables of runs with canonical columns, SI units and the
        hosts and workloads that the files' names tell; values are not checked. ``attrs`` has
        ``origin``, ``licence`` and ``quality``, what is known to be wrong. Of the others the
        files' paths, which `ppw.fit_trace` and the like take.

    Raises
    ------
    PpwError
        For a name that is not known, a file that is missing or has another checksum than the
        origin's, or an origin that cannot be reached.
    """
    dataset, where = find_dataset(name), data_folder(folder)
    # A folder that the user names is never written to without being asked: only the cache is.
    if where == cache_folder() and dataset.can_be_fetched:
        fetch_dataset(dataset, where)
    paths = files_here(dataset, where)
    return _read_and_concat_tables(dataset, paths) if dataset.kind == RUNS else paths


def _read_and_concat_tables(dataset: Dataset, paths: list[Path]) -> pd.DataFrame:
    tables = [_read_table(dataset, f, p) for f, p in zip(dataset.files, paths, strict=True)]
    runs = pd.concat(tables, ignore_index=True)
    runs.attrs = {
        "source": dataset.name,
        "digest": rs.numbers_digest(*map(file_digest, paths)),
        "origin": dataset.origin,
        "licence": licence_text(dataset),
        "quality": list(dataset.quality),
    }
    return runs


def _read_table(dataset: Dataset, file: DataFile, path: Path) -> pd.DataFrame:
    """Read one file, drop the columns that the set does not want, and add the file's own."""
    if file.spaces:
        table = tidy_runs(pd.read_csv(path, sep=r"\s+"), columns=file.mapping)
    else:
        table = read_runs(path, columns=file.mapping, check=False)
    # The host and workload of a file are often told by its name alone.
    return table.drop(columns=list(dataset.drop)).assign(**file.columns)


# Sample data that come with ppw, and where they are from.
SIMULATED_SWEEP = "simulated_sweep.csv"
RECORDED_TRACES = (
    *("uniform_fixed", "uniform_poisson", "zoned_80_20", "sequential", "mixed_70_30"),
    *("terasort", "terasort_repeat"),
)


def simulated_sweep() -> pd.DataFrame:
    """Runs of seven small C programs, simulated on two cores at seven frequencies; no power.

    Six programs in the spirit of server workloads (``word_count``, ``sort``, ``hash_table_get``,
    ``kmeans``, ``inverted_index``, ``pointer_chase``) and a control that is bound by stores to
    memory (``stream``), on a small in-order core (host "simulated-inorder") and a large
    out-of-order one ("simulated-o3"), from 0.8 to 4.0 GHz. Made by ``ppw measure --simulate`` with
    rvsim 2.1.0; its authors say that memory-bound programs are 10 to 60 % apart from gem5's model
    of an out-of-order core. Of these figures the way they change with the clock is what counts,
    not their size. `measurements.workloads.simulated.simulate` explains the columns.
    """
    with as_file(files("ppw.catalogue") / "data" / SIMULATED_SWEEP) as path:
        return read_runs(path)


def recorded_trace(name: str) -> Trace:
    """Block trace of a known load, recorded with ``ppw trace record``; one of `RECORDED_TRACES`.

    Five of fio on the first GiB of a loop device, 6000 requests at 500 a second each, and two
    recordings of Hadoop's Terasort of 600 MB. ``data/traces/README.md`` beside this file says what
    each one is and on what it was recorded; ``data/traces/record.sh`` records them anew.
    """
    from measurements.traces import read_trace

    tx.check_choice("recorded trace", name, RECORDED_TRACES)
    # A trace is read anew for every pass: from a file that stays.
    return read_trace(Path(str(files("ppw.catalogue"))) / "data" / "traces" / f"{name}.parquet")


DATA_DIR_VARIABLE = "PPW_DATA_DIR"


class State(StrEnum):
    """What is known of a file in a folder."""

    VERIFIED = "checksum right"
    UNVERIFIED = "not checked"
    WRONG = "checksum wrong"
    MISSING = "not here"


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder given, else ``PPW_DATA_DIR``, else ppw's cache; refuse a missing one."""
    given = folder or os.environ.get(DATA_DIR_VARIABLE)
    if not given:
        return cache_folder()
    if not Path(given).is_dir():
        source = "" if folder else f" ({DATA_DIR_VARIABLE})"
        raise PpwError(f"{given}{source}: no such folder of data sets; give one that exists")
    return Path(given)


def cache_folder() -> Path:
    """Folder of fetched sets: ``$XDG_CACHE_HOME/ppw/data`` or ``~/.cache/ppw/data``."""
    # The XDG rules ignore a relative path here.
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
    """Tell whether a file is missing, verified, wrong or, without a known checksum, unverified."""
    path = folder / file.path
    try:
        if not path.is_file():
            return State.MISSING
        # A file that was made of the origin's has no checksum there to compare with.
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


def states_of(dataset: Dataset, folder: Path) -> Counter[State]:
    """Count the files of a set that are missing, verified, wrong or unverified."""
    return Counter(state_of(file, folder) for file in dataset.files)


def states_text(counts: Mapping[State, int]) -> str:
    """Say how many files of a set are wrong, missing or not checked; "not here" for none."""
    total = sum(counts.values())
    if counts[State.MISSING] == total:
        return "not here"
    parts = [(State.WRONG, "wrong"), (State.MISSING, "missing"), (State.UNVERIFIED, "not checked")]
    texts = [f"{counts[state]} {word}" for state, word in parts if counts[state]]
    files = f"{total} file{'s' if total > 1 else ''}"
    return f"of {files} {', '.join(texts)}" if texts else f"all of {files}, checksums right"


def files_here(dataset: Dataset, folder: Path) -> list[Path]:
    """Return the paths of all files of a set. Raises `PpwError` where one is missing or wrong."""
    for file in dataset.files:
        state = state_of(file, folder)
        if state is State.MISSING:
            raise PpwError(f"{folder / file.path}: not here: {remedy(dataset)}")
        if state is State.WRONG:
            raise PpwError(
                f"{folder / file.path}: its checksum is not that of the published "
                f"file: remove it, and {remedy(dataset)}"
            )
    return [folder / file.path for file in dataset.files]


def remedy(dataset: Dataset) -> str:
    """Say how to get the files of a set: by fetching them, or that they cannot be fetched."""
    if dataset.can_be_fetched:
        return f"ppw datasets {dataset.name} --fetch gets it from {dataset.origin}"
    return f"it was derived from data of {dataset.origin}, so ppw cannot download it"


TIMEOUT_S = 30.0
_PART_BYTES = 65536


def fetch_dataset(
    dataset: Dataset, folder: Path, *, each: Callable[[DataFile], object] | None = None
) -> list[Path]:
    """Get the files of a set that a folder lacks from their origin.

    A file appears whole and with the checksum that is known for it, or not at all. One that is
    there and has another checksum is left alone: it may be the user's. ``each`` is called with a
    file before it is asked for. Raises `PpwError` where the origin or the folder refuses.
    """
    if not dataset.can_be_fetched:
        raise PpwError(f"{dataset.name}: {remedy(dataset)}")
    for file in dataset.files:
        state = state_of(file, folder)
        if state is State.WRONG:
            raise PpwError(
                f"{folder / file.path}: its checksum is not that of the published "
                "file: move it away, or name another folder"
            )
        if state is State.MISSING:
            if each is not None:
                each(file)
            _fetch_file(file, folder / file.path)
    return [folder / file.path for file in dataset.files]


def _fetch_file(file: DataFile, target: Path) -> None:
    """Download a file to a target, and check its SHA-256 where that is known."""
    with naming_extra("fetching data"):
        import pooch
        from requests.exceptions import RequestException
    # It tells the checksum of what is not checked, which nobody asked for.
    pooch.get_logger().setLevel(logging.WARNING)
    try:
        # It writes to a temporary file, and renames that when the checksum is right.
        pooch.retrieve(
            file.url,
            known_hash=file.sha256 and f"sha256:{file.sha256}",
            fname=target.name,
            path=target.parent,
            downloader=_download,
        )
    except RequestException as error:
        raise PpwError(f"{file.url}: {_download_failure_text(error)}") from error
    except ValueError as error:
        raise PpwError(
            f"{file.url}: its checksum is not that of the published file, so ppw kept nothing: try "
            "again, and tell its publisher if that does not help"
        ) from error
    except OSError as error:
        raise PpwError(f"{target}: cannot be written: {error.strerror or error}") from error


def _download(url: str, into: str, _: object) -> None:
    """Download a URL into a file, and close the connection whatever happens."""
    import requests

    with requests.get(url, stream=True, timeout=TIMEOUT_S) as answer, Path(into).open("wb") as file:
        answer.raise_for_status()
        for part in answer.iter_content(_PART_BYTES):
            file.write(part)


def _download_failure_text(error: Exception) -> str:
    from requests import exceptions

    if isinstance(error, exceptions.HTTPError) and error.response is not None:
        answer = f"{error.response.status_code} {error.response.reason}".strip()
        return f"the server answers {answer}: its makers may have moved it; look at the origin"
    # The first that fits: a ProxyError and an SSLError are ConnectionErrors, too.
    remedies: dict[type[Exception], str] = {
        exceptions.ProxyError: (
            "the proxy cannot be reached or refuses: see HTTPS_PROXY and NO_PROXY"
        ),
        exceptions.SSLError: "its certificate is not trusted: see REQUESTS_CA_BUNDLE",
        exceptions.Timeout: f"no answer in {TIMEOUT_S:g} s: try again later",
        exceptions.ChunkedEncodingError: ("the connection broke off: nothing was kept; try again"),
        Exception: (
            "no connection: download the files on another machine into the same subfolders of one "
            "folder, and name that folder with --folder or in PPW_DATA_DIR"
        ),
    }
    return next(text for kind, text in remedies.items() if isinstance(error, kind))
