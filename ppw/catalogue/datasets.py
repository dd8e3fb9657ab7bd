"""Public data sets: what there is, under which licence, and how to get and read it.

A set is one TOML file of this folder. None of its data come with ppw.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pandas as pd

from measurements import read_runs, tidy_runs
from measurements.table.headers import nearest
from ppw.catalogue.fetching import (
    cache_folder,
    data_folder,
    described,
    fetch_dataset,
    file_digest,
    files_here,
    states_of,
)
from ppw.errors import PpwError
from ppw.results.result import numbers_digest

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

    from measurements.traces.requests import Trace


# The public data sets that ppw knows: one TOML file a set, each with its origin and licence.


RUNS = "runs"


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One file of a set.

    Attributes
    ----------
    path : str
        Where it is in a folder of data sets, with forward slashes.
    url : str or None
        Where its origin has it; None for a file that was made of the origin's.
    size : int or None
        Bytes.
    sha256 : str or None
        Of the origin's bytes; None where they were not at hand, and so cannot be checked.
    mapping : mapping of str to str
        Canonical column of a runs table to the header it has here.
    spaces : bool
        Whether spaces part the columns of a runs table.
    columns : mapping of str to str
        What a table of runs does not say itself, such as its host and workload.
    """

    path: str
    url: str | None
    size: int | None
    sha256: str | None
    mapping: Mapping[str, str]
    spaces: bool
    columns: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A public data set.

    Attributes
    ----------
    name, title, what : str
    kind : str
        "runs", "block trace", "log" or "power levels".
    origin, licence : str
    terms : str or None
        What the licence asks for, or whose it is.
    made_from : str or None
        What the files were made of, and how, where they are not the origin's own.
    read_with : tuple of str
        Commands that read it, in a folder of data sets.
    quality : tuple of str
        What is known to be wrong or peculiar.
    drop : tuple of str
        Columns of the table that is read that are not to be believed.
    files : tuple of DataFile
    """

    name: str
    title: str
    what: str
    kind: str
    origin: str
    licence: str
    terms: str | None
    made_from: str | None
    read_with: tuple[str, ...]
    quality: tuple[str, ...]
    drop: tuple[str, ...]
    files: tuple[DataFile, ...]

    @property
    def size(self) -> int | None:
        """Bytes of all files; None where one's are not known."""
        sizes = [file.size for file in self.files]
        return sum(s for s in sizes if s is not None) if None not in sizes else None

    @property
    def can_be_fetched(self) -> bool:
        """Whether the origin has the files as they are read here."""
        return all(file.url for file in self.files)


@cache
def known_datasets(folder: Traversable | None = None) -> dict[str, Dataset]:
    """Sets by name, in the order of their names.

    Parameters
    ----------
    folder : path, optional
        With one TOML file a set; by default ppw's own.
    """
    entries = (folder or files("ppw.catalogue").joinpath("data", "sets")).iterdir()
    texts = {
        entry.name.removesuffix(".toml"): entry.read_text(encoding="utf-8")
        for entry in entries
        if entry.name.endswith(".toml")
    }
    return {name: _dataset(name, texts[name]) for name in sorted(texts)}


def find_dataset(name: str, sets: Mapping[str, Dataset] | None = None) -> Dataset:
    """Find a set by its name.

    Raises
    ------
    PpwError
        If there is none of that name; the message suggests the nearest.
    """
    known = known_datasets() if sets is None else sets
    if name not in known:
        raise PpwError(
            f"no data set {name!r}{nearest(name, list(known))}; there are {', '.join(known)}"
        )
    return known[name]


def _dataset(name: str, text: str) -> Dataset:
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
        files=tuple(_file(entry, folder, base, mapping) for entry in table["file"]),
    )


def _file(
    entry: Mapping[str, Any], folder: PurePosixPath, base: str, mapping: Mapping[str, str]
) -> DataFile:
    return DataFile(
        path=str(folder / entry["path"]),
        url=base + entry["at"] if "at" in entry else None,
        size=entry.get("size"),
        sha256=entry.get("sha256"),
        mapping={**mapping, **entry.get("map", {})},
        spaces=entry.get("spaces", False),
        columns=entry.get("columns", {}),
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
    return listing(known_datasets(), data_folder(folder))


def listing(sets: Mapping[str, Dataset], folder: Path) -> pd.DataFrame:
    """One row a set, as `list_datasets` has them."""
    rows = [
        {
            **{key: getattr(one, key) for key in ("name", "title", "what", "kind")},
            **{key: getattr(one, key) for key in ("origin", "licence", "terms")},
            "files": len(one.files),
            "size_bytes": one.size,
            "fetchable": one.can_be_fetched,
            "here": described(states_of(one, folder)),
        }
        for one in sets.values()
    ]
    return pd.DataFrame(rows).astype({"size_bytes": float})


def licence_text(dataset: Dataset) -> str:
    """Say the licence with its terms."""
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
    if where == cache_folder() and dataset.can_be_fetched:
        fetch_dataset(dataset, where)
    paths = files_here(dataset, where)
    return _runs(dataset, paths) if dataset.kind == RUNS else paths


def _runs(dataset: Dataset, paths: list[Path]) -> pd.DataFrame:
    tables = [_one(dataset, f, p) for f, p in zip(dataset.files, paths, strict=True)]
    runs = pd.concat(tables, ignore_index=True)
    runs.attrs = {
        "source": dataset.name,
        "digest": numbers_digest(*map(file_digest, paths)),
        "origin": dataset.origin,
        "licence": licence_text(dataset),
        "quality": list(dataset.quality),
    }
    return runs


def _one(dataset: Dataset, file: DataFile, path: Path) -> pd.DataFrame:
    if file.spaces:
        table = tidy_runs(pd.read_csv(path, sep=r"\s+"), columns=file.mapping)
    else:
        table = read_runs(path, columns=file.mapping, check=False)
    return table.drop(columns=list(dataset.drop)).assign(**file.columns)


# Sample data that come with ppw, and where they are from.


SIMULATED_SWEEP = "simulated_sweep.csv"
RECORDED_TRACES = (
    "uniform_fixed",
    "uniform_poisson",
    "zoned_80_20",
    "sequential",
    "mixed_70_30",
    "terasort",
    "terasort_repeat",
)


def simulated_sweep() -> pd.DataFrame:
    """Runs of seven small C programs on two simulated cores at seven clocks: simulated, no watts.

    Six programs in the spirit of server workloads (``word_count``, ``sort``, ``hash_table_get``,
    ``kmeans``, ``inverted_index``, ``pointer_chase``) and a control that is bound by stores to
    memory (``stream``), on a small in-order core (host "simulated-inorder") and a large
    out-of-order one ("simulated-o3"), from 0.8 to 4.0 GHz. Made by ``python -m
    measurements.workloads.simulated`` with rvsim 2.1.0; its authors say that memory-bound programs
    are 10 to 60 % apart from gem5's model of an out-of-order core. Of these figures the way they
    change with the clock is what counts, not their size. Licence: that of ppw.

    Returns
    -------
    pandas.DataFrame
        A runs table, one row a program, core and clock: 98 rows. ``time_s``, ``instructions``,
        ``cycles`` and ``cpi`` are of the program's measured region; `simulate` in
        ``measurements.workloads.simulated`` says what the other columns are.
    """
    from measurements.table.reading import read_runs

    with resources.as_file(resources.files("ppw.catalogue") / "data" / SIMULATED_SWEEP) as path:
        return read_runs(path)


def recorded_trace(name: str) -> Trace:
    """Block trace of a known load, recorded with ``ppw trace record``: measured.

    Five of fio on the first GiB of a loop device, 6000 requests at 500 a second each, and two
    recordings of Hadoop's Terasort of 600 MB. ``data/traces/README.md`` beside this file says what
    each one is and on what it was recorded; ``data/traces/record.sh`` records them anew. Licence:
    that of ppw.

    Parameters
    ----------
    name : str
        One of ``RECORDED_TRACES``: ``"uniform_fixed"`` (random reads at a fixed rate),
        ``"uniform_poisson"`` (the same, Poisson arrivals), ``"zoned_80_20"`` (80 % of the reads
        in the first fifth of the space), ``"sequential"`` (reads of 64 KiB, one after the other),
        ``"mixed_70_30"`` (random, 70 % reads), ``"terasort"`` or ``"terasort_repeat"``.

    Returns
    -------
    measurements.traces.requests.Trace
        As ``ppw.fit_trace`` and the other answers on traces take it.

    Raises
    ------
    PpwError
        For another name.
    """
    from measurements.traces import read_trace
    from ppw.results.arguments import known_choice

    known_choice("recorded trace", name, RECORDED_TRACES)
    # A trace is read anew for every pass: from a file that stays.
    return read_trace(
        Path(str(resources.files("ppw.catalogue"))) / "data" / "traces" / f"{name}.parquet"
    )
