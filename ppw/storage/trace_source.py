"""Traces as columns, batch by batch, with a first pass over them, and what their results share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from os import PathLike, fspath
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fitting.storage.survey import BLOCK, Survey, Surveyor
from ppw.errors import PpwError
from ppw.results.result import Result

# Code of the operation that has no address (`measurements.traces.requests.Op.FLUSH`).
FLUSH = 3
# The digest is of one request in so many.
_HASHED = 64


class Batches(Protocol):
    """A trace as `measurements.traces.read_trace` gives it."""

    @property
    def names(self) -> dict[str, tuple[str, ...]]: ...  # noqa: D102
    @property
    def findings(self) -> tuple[str, ...]: ...  # noqa: D102
    def batches(self) -> Iterator[pa.RecordBatch]: ...  # noqa: D102


class RequestColumns(NamedTuple):
    """Requests of a batch, one array a column."""

    time_s: Any
    stream: Any
    device: Any
    lbn: Any
    size_bytes: Any
    op: Any
    latency_s: Any
    file: Any

    def pick(self, rows: Any) -> RequestColumns:
        """Return the requests of a mask or slice."""
        return RequestColumns(*(column[rows] for column in self))


class TraceSurvey(NamedTuple):
    """Result of a first pass over a trace."""

    survey: Survey  # of all requests but flushes
    flushes: int
    has_files: bool  # whether some request names its file
    digest: str  # does not depend on how the trace is cut into batches
    kept: tuple[RequestColumns, ...] | None  # a short trace, without latencies and files


def open_trace(trace: Batches | str | PathLike[str]) -> Batches:
    """Open a trace by its path; a trace that is open already is returned as it is."""
    if not isinstance(trace, (str, PathLike)):
        return trace
    from measurements.traces import read_trace

    return read_trace(fspath(trace))


def is_one_trace(traces: Any) -> bool:
    """Whether this is a trace or its path, not several of them."""
    return isinstance(traces, (str, PathLike)) or hasattr(traces, "batches")


def open_traces(traces: Any) -> list[Batches]:
    """Open one trace or several."""
    return [open_trace(one) for one in ([traces] if is_one_trace(traces) else traces)]


def columns(trace: Batches) -> Iterator[RequestColumns]:
    """Yield the columns of each batch without the flushes, which have no address."""
    return map(_drop_flushes, _all_columns(trace))


def _all_columns(trace: Batches) -> Iterator[RequestColumns]:
    for batch in trace.batches():
        yield RequestColumns(
            *(batch.column(name).to_numpy(False) for name in RequestColumns._fields)
        )


def _drop_flushes(batch: RequestColumns) -> RequestColumns:
    return batch if batch.op.max(initial=0) < FLUSH else batch.pick(batch.op != FLUSH)


def survey(trace: Batches, *, most_kept: int = 0) -> TraceSurvey:
    """Pass over a trace once, and keep it where it has ``most_kept`` requests or fewer."""
    surveyor, total, files = Surveyor(), 0, False
    digests = [hashlib.sha256() for _ in RequestColumns._fields]
    kept: list[RequestColumns] = []
    for whole in _all_columns(trace):
        # The least of times is missing where any of them is.
        if np.isnan(whole.time_s.min(initial=np.inf)):
            raise PpwError(
                "requests have no arrival times, as in a closed loop: generate the trace without "
                "--outstanding"
            )
        # Every so many requests of the whole trace, wherever its batches begin.
        for column, digest in zip(whole, digests, strict=True):
            digest.update(column[-total % _HASHED :: _HASHED].tobytes())
        total += len(whole.op)
        batch = _drop_flushes(whole)
        surveyor.add(*batch[:5])
        files = files or bool(whole.file.max(initial=-1) >= 0)
        if total <= most_kept:
            kept.append(batch._replace(latency_s=None, file=None))
        elif kept:
            kept.clear()
            # Arrow would hold on to the memory for batches to come, which take a tenth of it.
            pa.default_memory_pool().release_unused()
    found, in_memory = surveyor.survey(), tuple(kept) if total <= most_kept else None
    parts = b"".join([str(total).encode(), *(digest.digest() for digest in digests)])
    text = f"sha256:{hashlib.sha256(parts).hexdigest()}"
    return TraceSurvey(found, total - found.requests, files, text, in_memory)


class DerivedTrace(NamedTuple):
    """A trace made of another one; every call of ``batches`` begins anew."""

    batches: Callable[[], Iterator[pa.RecordBatch]]
    names: dict[str, tuple[str, ...]]
    findings: tuple[str, ...] = ()


def part_of(trace: Batches, first: int, end: int) -> DerivedTrace:
    """Return the rows of a trace from a first one to an end; findings are of the whole."""

    def batches() -> Iterator[pa.RecordBatch]:
        at = 0
        for batch in trace.batches():
            low, high = max(first - at, 0), min(end - at, batch.num_rows)
            if low < high:
                yield batch.slice(low, high - low)
            at += batch.num_rows
            if at >= end:
                break

    return DerivedTrace(batches, trace.names)


def to_table(trace: Batches, most: int) -> pa.Table:
    """Return the first requests of a trace, at most so many, as a table without flushes."""
    found, left = [], most
    for batch in trace.batches():
        moves = batch.filter(pc.less(batch.column("op"), FLUSH)).slice(0, left)
        found.append(moves)
        left -= moves.num_rows
        if left <= 0:
            break
    return pa.Table.from_batches(found)


def without_locality(trace: Batches, space: Survey, seed: int = 0) -> DerivedTrace:
    """Return a trace whose requests are anywhere in its space, aligned as before: an ablation."""

    def batches() -> Iterator[pa.RecordBatch]:
        rng, step = np.random.default_rng(seed), space.alignment
        for batch in trace.batches():
            blocks = batch.column("size_bytes").to_numpy() // BLOCK
            # A request of any size ends within the space.
            slots = np.maximum((space.high_lbn - space.low_lbn - blocks) // step + 1, 1)
            place = space.low_lbn + (rng.random(batch.num_rows) * slots).astype(np.int64) * step
            at = batch.schema.get_field_index("lbn")
            yield batch.set_column(at, batch.schema.field(at), pa.array(place))

    return DerivedTrace(batches, trace.names, trace.findings)


class TraceResult(Result):
    """Result about a trace: a blank line before each table of its summary."""

    def text_parts(self) -> list[str]:
        """Sentences and tables of the summary, in their order."""
        tables = [line for table in self.printed_tables() for line in ("", *table.lines())]
        return [*self.sentences(), *tables]

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return [*self.printed_tables()[0].header]

    def cells(self) -> list[list[str]]:
        """Rows of the first table as they are printed."""
        return [[*row] for row in self.printed_tables()[0].rows]
