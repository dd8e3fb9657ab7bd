"""Data sets as answers take them: a table of runs, or the paths of traces and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from measurements import read_runs, tidy_runs
from ppw.datasets.fetching import fetch_dataset
from ppw.datasets.local import (
    cache_folder,
    data_folder,
    described,
    file_digest,
    files_here,
    states_of,
)
from ppw.datasets.registry import RUNS, find_dataset, known_datasets
from ppw.result import numbers_digest

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    from ppw.datasets.registry import DataFile, Dataset


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
