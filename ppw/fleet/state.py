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

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from measurements.errors import DAMAGE
from measurements.host.files import hold_lock
from measurements.table.schema import FILE_COLUMN, IDENTITY, NUMERIC
from ppw.errors import PpwError
from ppw.fleet import engine as eng, moments as mo, run_files as rf
from ppw.fleet.engine import BaseBackend, Fault, UnusableFilesError, ibis
from ppw.fleet.moments import Layout
from ppw.runs import groups, metrics

SCHEMA_VERSION = 1
_MANIFEST, _LOCK, _CELLS, _FILES = "manifest.json", "lock", "cells.parquet", "files.parquet"


@dataclass(frozen=True)
class FleetState:
    """A state as it was when it was opened; an empty one has neither generation nor layout."""

    folder: Path
    # Names of the generation that counts, and of the one before it.
    generation: str = ""
    previous: str = ""
    layout: Layout | None = None
    # Columns given to tell groups apart by; None for all that identify a run.
    by: tuple[str, ...] | None = None
    # How many were taken in.
    runs: int = 0
    files: int = 0

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> FleetState:
        """Open a state; an empty one where the folder has none yet.

        Raises `PpwError` for a folder that holds something else, or a state of another version.
        """
        path = Path(folder)
        manifest = path / _MANIFEST
        try:
            document = json.loads(manifest.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return cls._empty_or_refuse(path)
        except (OSError, ValueError, RecursionError) as error:
            raise PpwError(f"{manifest}: cannot be read: {error}") from error
        if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
            raise PpwError(
                f"{manifest}: is of no state of schema_version {SCHEMA_VERSION}: make the state "
                "again from its runs, in another folder"
            )
        try:
            return cls._from_manifest(path, document)
        except DAMAGE as error:
            raise PpwError(
                f"{manifest}: is damaged ({type(error).__name__}: {error}): make the state again "
                "from its runs, in another folder"
            ) from error

    @classmethod
    def _from_manifest(cls, path: Path, document: Mapping[str, Any]) -> FleetState:
        """Make a state of its manifest; a damaged one raises one of `DAMAGE`."""
        by, generation, previous = (document[k] for k in ("by", "generation", "previous"))
        # They name folders that are read, and removed.
        if not _is_generation(generation) or not (previous == "" or _is_generation(previous)):
            raise ValueError(f"no generations are called {generation!r} and {previous!r}")
        layout = mo.Layout.from_dict(document["layout"])
        by = None if by is None else mo.names_of(by)
        counts = (int(document[k]) for k in ("runs", "files"))
        return cls(path, generation, previous, layout, by, *counts)

    @classmethod
    def is_at(cls, source: object) -> bool:
        """Tell whether a source is the path of a folder that holds a state."""
        return isinstance(source, (str, os.PathLike)) and (Path(source) / _MANIFEST).is_file()

    @classmethod
    def _empty_or_refuse(cls, folder: Path) -> FleetState:
        """Make an empty state in a folder. Raises `PpwError` where other files are there."""
        there = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        own = (_LOCK, f".{_MANIFEST}")
        strange = [name for name in there if name not in own and not _is_generation(name)]
        if folder.is_file():
            raise PpwError(f"{folder}: is a file: name a folder for the state")
        if strange:
            raise PpwError(
                f"{folder}: does not hold a fleet state, but "
                f"{', '.join(sorted(strange)[:3])}: name a folder of its own"
            )
        return cls(folder)

    def cells(self, connection: BaseBackend) -> ibis.Table:
        """Open the moment table of the state in an engine.

        Raises `PpwError` for a state that nothing was added to, or whose file is damaged.
        """
        self._require_layout()
        path = self.folder.absolute() / self.generation / _CELLS
        try:
            pq.read_metadata(path)
        except (OSError, pa.ArrowException) as error:
            raise PpwError(f"{path}: the state is damaged: {error}: make it again") from error
        return connection.read_parquet(str(path))

    def layout_by(self, by: Sequence[str] | None = None) -> Layout:
        """Return the layout with the columns of ``by``, or the state's own, as group keys.

        Raises `PpwError` for a column that the state does not keep.
        """
        layout = self._require_layout()
        keys = (*layout.by, *layout.shades)
        chosen = self.by if by is None else tuple(by)
        if chosen is None:
            chosen = tuple(name for name in IDENTITY if name in keys)
        missing = [name for name in chosen if name not in keys]
        if missing:
            raise PpwError(
                f"{self.folder}: its moments are not grouped by {', '.join(missing)}, only by "
                f"{', '.join(keys)}: make a state with --by {','.join(chosen)} from the runs"
            )
        shades = tuple(name for name in keys if name not in chosen)
        return replace(layout, by=chosen, shades=shades)

    def _require_layout(self) -> Layout:
        if self.layout is None:
            raise PpwError(f"{self.folder}: holds no runs yet: add some with `ppw fleet update`")
        return self.layout

    def unusable_runs(self) -> int:
        """Number of the state's runs with impossible values, which take no part."""
        if not self.generation:
            return 0
        columns = [groups.FLAGS, groups.RUNS]
        cells = pq.read_table(self.folder / self.generation / _CELLS, columns=columns)
        flags, runs = (cells[name].to_numpy() for name in columns)
        return int(runs[(flags & groups.UNUSABLE) > 0].sum())

    def digests(self) -> set[str]:
        """Digests of the contents of all files taken in."""
        if not self.generation:
            return set()
        table = pq.read_table(self.folder / self.generation / _FILES, columns=["digest"])
        return set(table["digest"].to_pylist())

    def file_table(self) -> pa.Table:
        """Files taken in, one a row: ``digest``, ``name``, ``bytes``."""
        return pq.read_table(self.folder / self.generation / _FILES)

    def beside(
        self,
        layout: Layout,
        by: tuple[str, ...] | None,
        files: pa.Table,
        write_cells: Callable[[Path], object],
    ) -> FleetState:
        """Write a new generation beside this one, which counts only once it is published.

        ``layout`` and ``by`` are of all that it holds, ``files`` are all files taken in, and
        ``write_cells`` writes the moments to a path.
        """
        number = int(self.generation.partition("-")[0] or 0) + 1
        name = f"{number:08}-{os.urandom(4).hex()}"
        target = self.folder / name
        target.mkdir()
        write_cells(target / _CELLS)
        pq.write_table(files, target / _FILES, compression="zstd")
        for path in (target / _CELLS, target / _FILES, target, self.folder):
            _sync_to_disk(path)
        runs = pq.read_table(target / _CELLS, columns=[groups.RUNS])[groups.RUNS].to_numpy().sum()
        return FleetState(self.folder, name, self.generation, layout, by, int(runs), files.num_rows)

    def publish(self) -> None:
        """Make this generation the current one, and remove all older than the one before."""
        names = ("generation", "previous", "by", "runs", "files")
        parts: dict[str, Any] = {name: getattr(self, name) for name in names}
        layout = asdict(self._require_layout())
        manifest = {"schema_version": SCHEMA_VERSION, **parts, "layout": layout}
        beside = self.folder / f".{_MANIFEST}"
        beside.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        _sync_to_disk(beside)
        beside.replace(self.folder / _MANIFEST)
        _sync_to_disk(self.folder)
        self.tidy()

    def tidy(self) -> None:
        """Remove all generations except this one and the one before it."""
        for path in self.folder.iterdir():
            if _is_generation(path.name) and path.name not in (self.generation, self.previous):
                shutil.rmtree(path, ignore_errors=True)
        (self.folder / f".{_MANIFEST}").unlink(missing_ok=True)


@contextmanager
def hold_state(folder: Path) -> Iterator[None]:
    """Lock a state's folder until the block or process ends. Raises `PpwError` if it is locked."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = hold_lock(folder / _LOCK)
    except BlockingIOError as error:
        raise PpwError(
            f"{folder}: is being updated by {error.strerror}: wait for it to end"
        ) from None
    except OSError as error:
        raise PpwError(f"{folder}: cannot be written: {error.strerror}") from error
    with lock:
        yield


def _is_generation(name: str) -> bool:
    number, dash, rest = name.partition("-")
    return bool(dash) and number.isdigit() and len(number) == 8 and rest.isalnum()


def _sync_to_disk(path: Path) -> None:
    """Write a file or folder through to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# The moments of a saved state, as the answers over a fleet take what they read of its runs.
def state_cells(
    state: FleetState,
    connection: BaseBackend,
    *,
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
) -> mo.FleetCells:
    """Read the moments of a state, by its own columns and metrics where none are asked for."""
    layout = state.layout_by(by)
    asked = layout.metrics if metric is None else [m.name for m in metrics.parse_metrics(metric)]
    if missing := [name for name in asked if name not in layout.metrics]:
        raise PpwError(
            f"{state.folder}: its runs do not have {', '.join(missing)}, only "
            f"{', '.join(layout.metrics)}"
        )
    layout = replace(layout, metrics=tuple(asked))
    table = state.cells(connection).select(*layout.columns)
    name = str(state.folder)
    frame = mo.cells_frame(connection.to_pyarrow(table).to_pandas(), layout, name)
    known = pd.DataFrame([{column: 1.0 for column in layout.keys if frame[column].notna().any()}])
    known.attrs["source"] = name
    files = tuple(state.file_table()["name"].to_pylist())
    return mo.FleetCells(frame, layout, rf.FleetRuns(connection, table, name, files, (), {}), known)


# Layouts of moments that grow: yesterday's runs had fewer columns than today's, or others.
def with_factors(layout: Layout, known: pd.DataFrame) -> Layout:
    """Add performance (work per second) to a layout, if it lacks it and the runs have it."""
    name = metrics.PERFORMANCE.name
    if name in layout.quantities or not metrics.columns_for(metrics.PERFORMANCE, known):
        return layout
    quantities = {**layout.quantities, name: (groups.VALUE, groups.LOG, groups.INVERSE)}
    return replace(layout, quantities=dict(sorted(quantities.items())))


def join_layouts(before: Layout, new: Layout) -> Layout:
    """Layout that holds the moments of both. Raises `PpwError` for unlike co-ordinates."""
    shared = before.quantities.keys() & new.quantities.keys()
    kept = {name: set(before.quantities[name]) for name in shared}
    if differ := [name for name in shared if kept[name] != set(new.quantities[name])]:
        raise PpwError(
            f"the state keeps {', '.join(differ)} in other units than the new runs need: make the "
            "state again from its runs"
        )
    keys = dict.fromkeys((*before.by, *before.shades, *new.by, *new.shades))
    apart = {*before.by, mo.FREQUENCY, groups.FLAGS}
    shades = [name for name in keys if name not in apart]
    known = {*before.metrics, *new.metrics}
    return replace(
        before,
        shades=(*shades, groups.FLAGS),
        metrics=tuple(name for name in metrics.METRICS if name in known),
        quantities=dict(sorted({**before.quantities, **new.quantities}.items())),
        tallies=tuple(sorted({*before.tallies, *new.tallies})),
        finest=tuple(dict.fromkeys((*before.finest, *new.finest))),
        settings=tuple(dict.fromkeys((*before.settings, *new.settings))),
    )


def widen_table(table: ibis.Table, own: Layout, wanted: Layout) -> ibis.Table:
    """Add the columns that a moment table lacks: 0 for counts, else missing."""

    def fill_value(name: str) -> Any:
        if name in wanted.counts:
            return ibis.literal(0, "int64")
        return ibis.null("string" if name in wanted.keys and name not in NUMERIC else "float64")

    columns = {n: table[n] if n in own.columns else fill_value(n) for n in wanted.columns}
    # Sums of counts are of wider types in some engines, which Parquet has not.
    return table.select(**columns | {n: columns[n].cast("int64") for n in wanted.counts})


# `update_state`: new files of runs into the saved state of a fleet, each once.

# A host whose clock is so far ahead, or before computers kept such runs, has no clock.
_AHEAD_S = 86_400.0
_NO_SPACE = os.strerror(errno.ENOSPC)
_EARLIEST_S = datetime(2000, 1, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True)
class StateUpdate:
    """What became of the files of an update."""

    state: FleetState  # as it is now
    added: tuple[str, ...]  # files whose runs are in it now and were not before
    known: tuple[str, ...]  # files whose content was in it already, or in another of the files
    faults: tuple[Fault, ...]  # files that could not be used; they are not taken in
    runs: int  # runs added that can be used
    # Files that were taken in, but for runs with values that cannot be.
    partly: tuple[Fault, ...] = ()

    def summary(self) -> str:
        """What happened, as text."""
        lines = [
            f"{len(self.added)} files with {self.runs} runs added, {len(self.known)} files "
            "already in the state",
            f"{self.state.folder}: {self.state.runs - self.state.unusable_runs()} runs of "
            f"{self.state.files} files",
        ]
        for faults, what in (
            (self.faults, "could not be used and are left out"),
            (self.partly, "have runs that could not be used"),
        ):
            if faults:
                lines += [f"{len(faults)} files {what}:", *map(str, faults)]
        return "\n".join(lines)


def update_state(
    folder: str | Path,
    sources: str | Path | Sequence[str | Path],
    *,
    by: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    engine: str | BaseBackend = "duckdb",
    memory_limit: str | None = None,
    temporary: str | Path | None = None,
    threads: int | None = None,
) -> StateUpdate:
    """Take files of runs into the state of a fleet, without reading what it holds already again.

    A file is known by its content: taken in once, whatever its name and however often it is
    offered. All files of an update are taken in at once, or none: a process that is killed leaves
    the state as it was.

    Parameters
    ----------
    folder : path
        Of the state; made where it is not there.
    sources : path or sequence of paths
        Files, folders and patterns of this machine, as `open_runs` takes them.
    by : sequence of str, optional
        When the state is made: columns to tell groups apart by. Default: all that identify a run.
    columns, engine, memory_limit, temporary, threads
        As for `open_runs`.

    Raises
    ------
    PpwError
        When there is no file, another update is going on, or ``by`` is not the state's.
    """
    target = Path(folder)
    connection = eng.connect(
        engine, memory_limit=memory_limit, temporary=temporary, threads=threads
    )
    named = [sources] if isinstance(sources, (str, Path)) else list(sources)
    files = [file for one in named for file in rf.find_files(str(one))]
    if remote := [file for file in files if "://" in file]:
        raise PpwError(
            f"{remote[0]}: a state takes only files of this machine, because it "
            "compares their content: copy the file to this machine first"
        )
    FleetState.open(target)
    with hold_state(target):
        state = FleetState.open(target)
        state.tidy()
        return _Update(state, connection, columns or {}, _agreed_columns(state, by)).take(files)


class _Content(NamedTuple):
    """What a file holds: the digest of its bytes, and its `_stamp` before they were read."""

    digest: str
    stamp: tuple[int, int]


@dataclass
class _Update:
    """One update, while the state is held."""

    state: FleetState
    connection: BaseBackend
    columns: Mapping[str, str]
    by: tuple[str, ...] | None
    faults: list[Fault] = field(default_factory=list)
    known: list[str] = field(default_factory=list)

    def take(self, files: Sequence[str]) -> StateUpdate:
        """Take all usable new files into the state; none where one changes while it is read."""
        digests = self._unseen_contents(files)
        if not digests:
            return self._make_update(self.state, (), 0)
        try:
            runs = rf.open_runs(list(digests), engine=self.connection, columns=self.columns)
            runs = _without_faulty_files(runs, mo.lacking_faults(runs, None))
            runs = _without_faulty_files(runs, _lacking_column_faults(runs, self.by or ()))
            made, read = mo.without_broken(runs, lambda part: self._write_moments(part, digests))
        except UnusableFilesError as error:
            if self.state.layout is None:
                raise
            # Yesterday's files are there, and a bad one that is offered daily is no other failure.
            self.faults += error.faults
            return self._make_update(self.state, (), 0)
        self.faults += read.faults
        if changed := [file for file in read.files if _stamp(file) != digests[file].stamp]:
            raise PpwError(
                f"{changed[0]}: was written to while it was read: the state is unchanged; update "
                "it again when the file is complete"
            )
        made.publish()
        unusable = made.unusable_runs() - self.state.unusable_runs()
        done = self._make_update(made, read.files, made.runs - self.state.runs - unusable)
        if not unusable:
            return done
        # A second pass, which names the files with runs that cannot be.
        known, layout = self._observed_columns_and_layout(read)
        return replace(done, partly=(*mo.unusable_faults(read, mo.columns_read(layout, known)),))

    def _unseen_contents(self, files: Sequence[str]) -> dict[str, _Content]:
        """Digest and stamp of each file whose content is new; note seen and unreadable ones."""
        seen = self.state.digests()
        new: dict[str, _Content] = {}
        for file in dict.fromkeys(files):
            try:
                # Its stamp before it is read: what is written meanwhile shows in the next one.
                stamp = _stamp(file)
                with Path(file).open("rb") as stream:
                    digest = f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
            except OSError as error:
                self.faults.append(Fault(file, f"cannot be read: {error.strerror}"))
                continue
            if digest in seen:
                self.known.append(file)
            else:
                seen.add(digest)
                new[file] = _Content(digest, stamp)
        return new

    def _write_moments(
        self, runs: rf.FleetRuns, digests: Mapping[str, _Content]
    ) -> tuple[FleetState, rf.FleetRuns]:
        """Merge new runs with the state's moments and write both; return state and runs."""
        runs = _without_faulty_files(runs, _clock_faults(runs))
        known, layout = self._observed_columns_and_layout(runs)
        table = mo.moments(mo.runs_for(runs.table, layout, known), layout)
        before = self.state.layout
        if before is not None:
            layout, new = join_layouts(before, layout), layout
            known_cells = widen_table(self.state.cells(self.connection), before, layout)
            table = mo.merge_moments([known_cells, widen_table(table, new, layout)], layout)
        contents = [digests[file] for file in runs.files]
        columns = [[c.digest for c in contents], [*runs.files], [c.stamp[0] for c in contents]]
        names = pa.table(dict(zip(("digest", "name", "bytes"), columns, strict=True)))
        if before is not None:
            names = pa.concat_tables([self.state.file_table(), names])
        cells = widen_table(table, layout, layout).order_by(list(layout.keys))
        try:
            made = self.state.beside(layout, self.by, names, lambda path: _write(cells, path))
        except Exception as error:
            # The engine reads as it writes: only the message tells which of them failed.
            if _NO_SPACE in str(error) or str(self.state.folder) in str(error):
                reason = eng.first_line(error)
                raise PpwError(f"{self.state.folder}: cannot be written: {reason}") from error
            raise
        return made, runs

    def _observed_columns_and_layout(self, runs: rf.FleetRuns) -> tuple[pd.DataFrame, Layout]:
        known = rf.filled_columns(runs).drop(columns=FILE_COLUMN, errors="ignore")
        known.attrs["source"] = runs.name
        by = [name for name in self.by or IDENTITY if name in known and known[name].notna().all()]
        return known, with_factors(mo.layout_of(known, by=by), known)

    def _make_update(self, state: FleetState, added: tuple[str, ...], runs: int) -> StateUpdate:
        return StateUpdate(state, added, tuple(self.known), tuple(self.faults), runs)


def _write(cells: ibis.Table, path: Path) -> None:
    """Write moments to one Parquet file, also from Spark, which would write a folder."""
    if eng.is_spark(cells.get_backend()):
        pq.write_table(cells.to_pyarrow(), path, compression="zstd")
    else:
        cells.to_parquet(path, compression="zstd")


def _agreed_columns(state: FleetState, by: Sequence[str] | None) -> tuple[str, ...] | None:
    """Group columns of the state; raise where ``by`` differs from those it already has."""
    if state.layout is None:
        return None if by is None else tuple(by)
    if by is not None and tuple(by) != state.by:
        kept = "all that identify a run" if state.by is None else ",".join(state.by)
        raise PpwError(
            f"{state.folder}: the groups of this state are by {kept}, not by "
            f"{','.join(by)}: leave that out, or make another state"
        )
    return state.by


def _stamp(file: str) -> tuple[int, int]:
    """Size (bytes) and modification time (ns) of a file, which show whether it was written to."""
    status = Path(file).stat()
    return status.st_size, status.st_mtime_ns


def _without_faulty_files(runs: rf.FleetRuns, faults: Sequence[Fault]) -> rf.FleetRuns:
    if not faults:
        return runs
    if len({fault.file for fault in faults}) == len(runs.files):
        raise UnusableFilesError(runs.name, (*runs.faults, *faults))
    return runs.without(faults)


def _lacking_column_faults(runs: rf.FleetRuns, by: Sequence[str]) -> list[Fault]:
    """Report each file that lacks a column by which the state tells groups apart."""
    return [
        Fault(file, f"has no column {', '.join(missing)}, by which groups are told apart: add it")
        for part in runs.parts
        if (missing := [name for name in by if name not in part.columns])
        for file in part.files
    ]


def _clock_faults(runs: rf.FleetRuns) -> list[Fault]:
    """Report each file with runs that started in the future or before the year 2000."""
    table = runs.table
    if "started_at" not in table.columns:
        return []
    one = FILE_COLUMN not in table.columns
    file = ibis.literal(runs.files[0]) if one else table[FILE_COLUMN]
    started = rf.seconds(table.started_at)
    by_file = table.group_by(file=file).agg(earliest=started.min(), latest=started.max())
    now, given, faults = time.time(), rf.given_names(runs.files), []
    for row in by_file.order_by("file").to_pyarrow().to_pylist():
        file, earliest, latest = row["file"], row["earliest"], row["latest"]
        if earliest is not None and (at := _strange_time(earliest, latest, now)):
            what = (
                f"runs started at {at}: the clock of their host was wrong: correct started_at, or "
                "leave the column out"
            )
            faults.append(Fault(given.get(file, file), what))
    return faults


def _strange_time(earliest: float, latest: float, now: float) -> str:
    """Say which start (s since 1970) is in the future or before the year 2000; "" if neither."""
    if latest > now + _AHEAD_S:
        at, when = latest, "in the future of this machine's clock"
    elif earliest < _EARLIEST_S:
        at, when = earliest, "before the year 2000"
    else:
        return ""
    return f"{datetime.fromtimestamp(at, UTC).isoformat(timespec='seconds')}, {when}"
