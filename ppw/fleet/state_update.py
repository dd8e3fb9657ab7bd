"""`update_state`: new files of runs into the saved state of a fleet, each once."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from measurements.schema import FILE_COLUMN, IDENTITY
from ppw.errors import PpwError
from ppw.fleet.connection import connect, is_spark
from ppw.fleet.facts import known_columns
from ppw.fleet.faults import Fault, UnusableFilesError
from ppw.fleet.files import find_files, given_names
from ppw.fleet.layout import Layout, layout_of
from ppw.fleet.moments import columns_read, merge, moments, runs_for
from ppw.fleet.reading import lacking_faults, unusable_faults, without_broken
from ppw.fleet.source import FleetRuns, open_runs
from ppw.fleet.state import FleetState, locked
from ppw.fleet.state_layout import joint, widened, with_factors
from ppw.fleet.telemetry import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import ibis
    import pandas as pd
    from ibis.backends import BaseBackend

# A host whose clock is so far ahead, or before computers kept such runs, has no clock.
_AHEAD_S = 86_400.0
_EARLIEST_S = datetime(2000, 1, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True)
class StateUpdate:
    """What became of the files of an update.

    Attributes
    ----------
    state : FleetState
        As it is now.
    added : tuple of str
        Files whose runs are in it now and were not before.
    known : tuple of str
        Files whose content was in it already, or in another of the files.
    faults : tuple of Fault
        Files that could not be used; they are not taken in.
    runs : int
        Runs added that can be used.
    partly : tuple of Fault
        Files that were taken in, but for runs with values that cannot be.
    """

    state: FleetState
    added: tuple[str, ...]
    known: tuple[str, ...]
    faults: tuple[Fault, ...]
    runs: int
    partly: tuple[Fault, ...] = ()

    def summary(self) -> str:
        """What happened, as text."""
        lines = [
            f"{len(self.added)} files with {self.runs} runs added, {len(self.known)} known already",
            f"{self.state.folder}: {self.state.runs - self.state.unusable_runs()} runs of "
            f"{self.state.files} files",
        ]
        if self.faults:
            lines += [f"{len(self.faults)} files could not be used and are left out:"]
            lines += map(str, self.faults)
        if self.partly:
            lines += [f"{len(self.partly)} files have runs that could not be used:"]
            lines += map(str, self.partly)
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
        Files, folders and patterns of this machine, as `ppw.fleet.source.open_runs` takes them.
    by : sequence of str, optional
        When the state is made: columns to tell groups apart by. Default: all that identify a run.
    columns, engine, memory_limit, temporary, threads
        As for `ppw.fleet.source.open_runs`.

    Raises
    ------
    PpwError
        When there is no file, another update is going on, or ``by`` is not the state's.
    """
    target = Path(folder)
    connection = connect(engine, memory_limit=memory_limit, temporary=temporary, threads=threads)
    named = [sources] if isinstance(sources, (str, Path)) else list(sources)
    files = [file for one in named for file in find_files(str(one))]
    if remote := [file for file in files if "://" in file]:
        raise PpwError(
            f"{remote[0]}: a state takes files of this machine, which it knows by their content: "
            "copy it here first"
        )
    FleetState.open(target)
    with locked(target):
        state = FleetState.open(target)
        state.tidy()
        return _Updating(state, connection, columns or {}, by).take(files)


class _Content(NamedTuple):
    """What a file holds: the digest of its bytes, and its `_stamp` before they were read."""

    digest: str
    stamp: tuple[int, int]


class _Updating:
    """One update, while the state is held."""

    def __init__(
        self,
        state: FleetState,
        connection: BaseBackend,
        columns: Mapping[str, str],
        by: Sequence[str] | None,
    ) -> None:
        self._state, self._connection, self._columns = state, connection, columns
        self._by = _agreed(state, by)
        self._faults: list[Fault] = []
        self._known: list[str] = []

    def take(self, files: Sequence[str]) -> StateUpdate:
        digests = self._new(files)
        if not digests:
            return self._done(self._state, (), 0)
        try:
            made, read = self._written(digests)
        except UnusableFilesError as error:
            if self._state.layout is None:
                raise
            # Yesterday's files are there, and a bad one that is offered daily is no other failure.
            self._faults += error.faults
            return self._done(self._state, (), 0)
        self._faults += read.faults
        if changed := [file for file in read.files if _stamp(file) != digests[file].stamp]:
            raise PpwError(
                f"{changed[0]}: was written to while it was read: the state is as it was; update "
                "it again when the file is whole"
            )
        made.publish()
        added = made.runs - self._state.runs
        unusable = made.unusable_runs() - self._state.unusable_runs()
        done = self._done(made, read.files, added - unusable)
        return replace(done, partly=self._partly(made, read))

    def _partly(self, made: FleetState, read: FleetRuns) -> tuple[Fault, ...]:
        """Name the files with runs that cannot be; a second pass, where there are any."""
        if made.unusable_runs() == self._state.unusable_runs():
            return ()
        known, layout = self._layout(read)
        return tuple(unusable_faults(read, columns_read(layout, known)))

    def _written(self, digests: Mapping[str, _Content]) -> tuple[FleetState, FleetRuns]:
        """Next generation, not published, and the runs that it holds more."""
        runs = open_runs(list(digests), engine=self._connection, columns=self._columns)
        runs = _without(runs, lacking_faults(runs, None))
        runs = _without(runs, _lacking(runs, self._by or ()))
        return without_broken(runs, lambda part: self._beside(part, digests))

    def _new(self, files: Sequence[str]) -> dict[str, _Content]:
        """Digest and size of the files whose content is in neither the state nor another file."""
        seen = self._state.digests()
        new: dict[str, _Content] = {}
        for file in dict.fromkeys(files):
            try:
                content = _content(file)
            except OSError as error:
                self._faults.append(Fault(file, f"cannot be read: {error.strerror}"))
                continue
            if content.digest in seen:
                self._known.append(file)
            else:
                seen.add(content.digest)
                new[file] = content
        return new

    def _beside(
        self, runs: FleetRuns, digests: Mapping[str, _Content]
    ) -> tuple[FleetState, FleetRuns]:
        """Write the moments of the state and of new runs together, and which files they are of."""
        import pyarrow as pa

        runs = _without(runs, _clock_faults(runs))
        layout, table = self._moments(runs)
        before = self._state.layout
        if before is not None:
            layout, new = joint(before, layout), layout
            parts = [
                widened(self._state.cells(self._connection), before, layout),
                widened(table, new, layout),
            ]
            table = merge(parts, layout)
        names = pa.table(
            {
                "digest": [digests[file].digest for file in runs.files],
                "name": list(runs.files),
                "bytes": [digests[file].stamp[0] for file in runs.files],
            }
        )
        if before is not None:
            names = pa.concat_tables([self._state.file_table(), names])
        cells = widened(table, layout, layout).order_by(list(layout.keys))
        return self._state.beside(layout, self._by, names, partial(_write, cells)), runs

    def _moments(self, runs: FleetRuns) -> tuple[Layout, ibis.Table]:
        known, layout = self._layout(runs)
        return layout, moments(runs_for(runs.table, layout, known), layout)

    def _layout(self, runs: FleetRuns) -> tuple[pd.DataFrame, Layout]:
        known = known_columns(runs).drop(columns=FILE_COLUMN, errors="ignore")
        known.attrs["source"] = runs.name
        by = [name for name in self._by or IDENTITY if name in known and known[name].notna().all()]
        return known, with_factors(layout_of(known, by=by), known)

    def _done(self, state: FleetState, added: tuple[str, ...], runs: int) -> StateUpdate:
        return StateUpdate(state, added, tuple(self._known), tuple(self._faults), runs)


def _write(cells: ibis.Table, path: Path) -> None:
    """Write moments to one file; Spark would make a folder of it."""
    import pyarrow.parquet as pq

    if is_spark(cells.get_backend()):
        pq.write_table(cells.to_pyarrow(), path, compression="zstd")
    else:
        cells.to_parquet(path, compression="zstd")


def _agreed(state: FleetState, by: Sequence[str] | None) -> tuple[str, ...] | None:
    """Columns that groups are told apart by: the state's, which stay."""
    if state.layout is None:
        return None if by is None else tuple(by)
    if by is not None and tuple(by) != state.by:
        kept = "all that identify a run" if state.by is None else ",".join(state.by)
        raise PpwError(
            f"{state.folder}: groups are told apart by {kept}, not by {','.join(by)}: leave that "
            "out, or make another state"
        )
    return state.by


def _content(file: str) -> _Content:
    stamp = _stamp(file)
    with Path(file).open("rb") as content:
        return _Content(f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}", stamp)


def _stamp(file: str) -> tuple[int, int]:
    """Size (B) and time of the last change: another one tells that a file was written to."""
    status = Path(file).stat()
    return status.st_size, status.st_mtime_ns


def _without(runs: FleetRuns, faults: Sequence[Fault]) -> FleetRuns:
    if not faults:
        return runs
    if len({fault.file for fault in faults}) == len(runs.files):
        raise UnusableFilesError(runs.name, (*runs.faults, *faults))
    return runs.without(faults)


def _lacking(runs: FleetRuns, by: Sequence[str]) -> list[Fault]:
    """Files without a column that the state's groups are told apart by."""
    return [
        Fault(file, f"has no column {', '.join(missing)}, by which groups are told apart: add it")
        for part in runs.parts
        if (missing := [name for name in by if name not in part.columns])
        for file in part.files
    ]


def _clock_faults(runs: FleetRuns) -> list[Fault]:
    """Files whose runs started when no clock that is right can have been."""
    import ibis

    table = runs.table
    if "started_at" not in table.columns:
        return []
    one = FILE_COLUMN not in table.columns
    file = ibis.literal(runs.files[0]) if one else table[FILE_COLUMN]
    started = seconds(table.started_at)
    by_file = table.group_by(file=file).agg(earliest=started.min(), latest=started.max())
    now, given = time.time(), given_names(runs.files)
    return [
        Fault(given.get(row["file"], row["file"]), _clock(row["earliest"], row["latest"], now))
        for row in by_file.order_by("file").to_pyarrow().to_pylist()
        if _strange(row["earliest"], row["latest"], now)
    ]


def _strange(earliest: float | None, latest: float | None, now: float) -> bool:
    return earliest is not None and (earliest < _EARLIEST_S or (latest or 0.0) > now + _AHEAD_S)


def _clock(earliest: float, latest: float, now: float) -> str:
    ahead = latest > now + _AHEAD_S
    at = datetime.fromtimestamp(latest if ahead else earliest, UTC).isoformat(timespec="seconds")
    what = "in the future of this machine's clock" if ahead else "before the year 2000"
    return f"runs started at {at}, {what}: the clocks disagree: correct started_at, or leave it out"
