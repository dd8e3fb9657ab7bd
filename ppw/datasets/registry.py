"""The public data sets that ppw knows: one TOML file a set, each with its origin and licence."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from measurements.headers import nearest
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

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
    entries = (folder or files("ppw.datasets")).iterdir()
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
