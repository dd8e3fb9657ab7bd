"""The saved state of a fleet: moments of all runs so far, and which files they came from.

::

    manifest.json        which generation counts, and what its moments are
    00000012-5f3a…/      a generation: cells.parquet (moments), files.parquet (digests of inputs)
    lock                 held while the state is updated

A generation is written beside the one that counts and is on disk before the manifest names it, by a
rename, which happens or does not. So whoever reads, and whoever is killed, finds the old state or
the new one. Of older generations the last one stays, for those who were reading it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measurements.errors import DAMAGE
from measurements.schema import IDENTITY
from ppw.checks.check import FLAGS, UNUSABLE
from ppw.condensed import RUNS
from ppw.errors import PpwError
from ppw.fleet.layout import Layout, names_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import ibis
    import pyarrow as pa
    from ibis.backends import BaseBackend

SCHEMA_VERSION = 1
_MANIFEST, _LOCK, _CELLS, _FILES = "manifest.json", "lock", "cells.parquet", "files.parquet"


@dataclass(frozen=True)
class FleetState:
    """A state as it was when it was opened.

    Attributes
    ----------
    folder : Path
    generation : str
        Name of the generation; empty before the first.
    previous : str
        The one before it.
    layout : Layout or None
        Of the moments; None before the first generation.
    by : tuple of str or None
        Columns that groups are told apart by, where they were given; None for all that identify a
        run.
    runs, files : int
        How many were taken in.
    """

    folder: Path
    generation: str = ""
    previous: str = ""
    layout: Layout | None = None
    by: tuple[str, ...] | None = None
    runs: int = 0
    files: int = 0

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> FleetState:
        """Open a state; an empty one where the folder has none yet.

        Raises
        ------
        PpwError
            For a folder that holds something else, or a state of another version.
        """
        path = Path(folder)
        manifest = path / _MANIFEST
        try:
            said = json.loads(manifest.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return cls._empty(path)
        except (OSError, ValueError, RecursionError) as error:
            raise PpwError(f"{manifest}: cannot be read: {error}") from error
        if not isinstance(said, dict) or said.get("schema_version") != SCHEMA_VERSION:
            raise PpwError(
                f"{manifest}: is of no state of schema_version {SCHEMA_VERSION}: make the state "
                "again from its runs, in another folder"
            )
        try:
            return cls._of(path, said)
        except DAMAGE as error:
            raise PpwError(
                f"{manifest}: is damaged ({type(error).__name__}: {error}): make the state again "
                "from its runs, in another folder"
            ) from error

    @classmethod
    def _of(cls, path: Path, said: Mapping[str, Any]) -> FleetState:
        """State that a manifest describes; what is damaged in it raises one of `DAMAGE`."""
        by, generation, previous = said["by"], said["generation"], said["previous"]
        # They name folders that are read, and removed.
        if not _is_generation(generation) or not (previous == "" or _is_generation(previous)):
            raise ValueError(f"no generations are called {generation!r} and {previous!r}")
        return cls(
            path,
            generation,
            previous,
            Layout.from_dict(said["layout"]),
            None if by is None else names_of(by),
            int(said["runs"]),
            int(said["files"]),
        )

    @classmethod
    def is_at(cls, source: object) -> bool:
        """Whether a source names the folder of a state."""
        return isinstance(source, (str, os.PathLike)) and (Path(source) / _MANIFEST).is_file()

    @classmethod
    def _empty(cls, folder: Path) -> FleetState:
        there = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        own = (_LOCK, f".{_MANIFEST}")
        strange = [name for name in there if name not in own and not _is_generation(name)]
        if folder.is_file():
            raise PpwError(f"{folder}: is a file: name a folder for the state")
        if strange:
            raise PpwError(
                f"{folder}: holds no state of a fleet, but {', '.join(sorted(strange)[:3])}: name "
                "a folder of its own"
            )
        return cls(folder)

    def cells(self, connection: BaseBackend) -> ibis.Table:
        """Moment table, as `ppw.fleet.moments.moments` makes it of all runs.

        Raises
        ------
        PpwError
            For a state that nothing was added to, or whose file is damaged.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self.layout is None:
            raise PpwError(f"{self.folder}: holds no runs yet: add some with `ppw fleet update`")
        path = self.folder.absolute() / self.generation / _CELLS
        try:
            pq.read_metadata(path)
        except (OSError, pa.ArrowException) as error:
            raise PpwError(f"{path}: the state is damaged: {error}: make it again") from error
        return connection.read_parquet(str(path))

    def layout_by(self, by: Sequence[str] | None = None) -> Layout:
        """Layout with the columns that groups are told apart by.

        Raises
        ------
        PpwError
            For a column that the state does not keep.
        """
        if self.layout is None:
            raise PpwError(f"{self.folder}: holds no runs yet: add some with `ppw fleet update`")
        keys = (*self.layout.by, *self.layout.shades)
        chosen = self.by if by is None else tuple(by)
        if chosen is None:
            chosen = tuple(name for name in IDENTITY if name in keys)
        missing = [name for name in chosen if name not in keys]
        if missing:
            raise PpwError(
                f"{self.folder}: its moments are not told apart by {', '.join(missing)}, only by "
                f"{', '.join(keys)}: make a state with --by {','.join(chosen)} from the runs"
            )
        shades = tuple(name for name in keys if name not in chosen)
        return replace(self.layout, by=chosen, shades=shades)

    def unusable_runs(self) -> int:
        """How many of its runs have values that cannot be, and take no part."""
        import pyarrow.parquet as pq

        if not self.generation:
            return 0
        cells = pq.read_table(self.folder / self.generation / _CELLS, columns=[FLAGS, RUNS])
        flags, runs = (cells[name].to_numpy() for name in (FLAGS, RUNS))
        return int(runs[(flags & UNUSABLE) > 0].sum())

    def digests(self) -> set[str]:
        """Digests of the contents of all files taken in."""
        import pyarrow.parquet as pq

        if not self.generation:
            return set()
        table = pq.read_table(self.folder / self.generation / _FILES, columns=["digest"])
        return set(table["digest"].to_pylist())

    def file_table(self) -> pa.Table:
        """Files taken in, one a row: ``digest``, ``name``, ``bytes``."""
        import pyarrow.parquet as pq

        return pq.read_table(self.folder / self.generation / _FILES)

    def beside(
        self,
        layout: Layout,
        by: tuple[str, ...] | None,
        files: pa.Table,
        write_cells: Callable[[Path], object],
    ) -> FleetState:
        """Write a generation that does not count until it is published; `locked` must be held.

        Parameters
        ----------
        layout, by
            Of all that the new generation holds.
        files : pyarrow.Table
            All files taken in.
        write_cells : callable
            Writes the moments to a path.
        """
        import pyarrow.parquet as pq

        number = int(self.generation.partition("-")[0] or 0) + 1
        name = f"{number:08}-{uuid.uuid4().hex[:8]}"
        target = self.folder / name
        target.mkdir()
        write_cells(target / _CELLS)
        pq.write_table(files, target / _FILES, compression="zstd")
        for path in (target / _CELLS, target / _FILES, target, self.folder):
            _synced(path)
        runs = pq.read_table(target / _CELLS, columns=[RUNS])[RUNS].to_numpy().sum()
        return FleetState(self.folder, name, self.generation, layout, by, int(runs), files.num_rows)

    def publish(self) -> None:
        """Make this generation the one that counts, and remove those that nobody reads."""
        self._point()
        self.tidy()

    def _point(self) -> None:
        assert self.layout is not None
        said = {
            "schema_version": SCHEMA_VERSION,
            "generation": self.generation,
            "previous": self.previous,
            "by": self.by,
            "runs": self.runs,
            "files": self.files,
            "layout": self.layout.to_dict(),
        }
        beside = self.folder / f".{_MANIFEST}"
        beside.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
        _synced(beside)
        beside.replace(self.folder / _MANIFEST)
        _synced(self.folder)

    def tidy(self) -> None:
        """Remove all generations but this and the one before it; `locked` must be held."""
        for path in self.folder.iterdir():
            if _is_generation(path.name) and path.name not in (self.generation, self.previous):
                shutil.rmtree(path, ignore_errors=True)
        (self.folder / f".{_MANIFEST}").unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a state for an update; a process that ends, however it does, lets go of it.

    Raises
    ------
    PpwError
        While another process holds it, or where the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise PpwError(f"{folder}: cannot be written: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            raise PpwError(
                f"{folder}: is being updated by process {holder or 'unknown'}: wait for it to end"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _is_generation(name: str) -> bool:
    number, dash, rest = name.partition("-")
    return bool(dash) and number.isdigit() and len(number) == 8 and rest.isalnum()


def _synced(path: Path) -> None:
    """Have a file or folder on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
