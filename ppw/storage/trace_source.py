"""Traces as columns, batch by batch; and the same trace with its locality taken away."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from fitting.storage.survey import BLOCK, Surveyor
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fitting.storage.survey import Survey


class Batches(Protocol):
    """A trace as `measurements.traces.read_trace` gives it."""

    @property
    def names(self) -> dict[str, tuple[str, ...]]: ...  # noqa: D102
    @property
    def findings(self) -> tuple[str, ...]: ...  # noqa: D102
    def batches(self) -> Iterator[pa.RecordBatch]: ...  # noqa: D102


class Columns(NamedTuple):
    """Requests of a batch, one array a column."""

    time_s: Any
    stream: Any
    device: Any
    lbn: Any
    size_bytes: Any
    op: Any
    latency_s: Any
    file: Any


class Surveyed(NamedTuple):
    """What a first pass over a trace says.

    ``flushes`` are left out of ``survey``; ``recorded`` is the share of the others whose latency
    is in the trace; ``digest`` is that of one request in 64 and of their number, however
    the trace is cut into batches; ``kept`` has all of a trace that is short enough, but latencies
    and files.
    """

    survey: Survey
    flushes: int
    recorded: float
    has_files: bool
    digest: str
    kept: tuple[Columns, ...] | None


FLUSH = 3
_HASHED = 64


def opened(trace: Batches | str | PathLike[str]) -> Batches:
    """Open a trace that is named by its path; another is returned as it is."""
    if not isinstance(trace, (str, PathLike)):
        return trace
    from measurements.traces import read_trace

    return read_trace(fspath(trace))


def columns(trace: Batches) -> Iterator[Columns]:
    """Columns of each batch without the flushes, which have no address."""
    return map(_without_flushes, whole_columns(trace))


def whole_columns(trace: Batches) -> Iterator[Columns]:
    """Columns of each batch, flushes too."""
    for batch in trace.batches():
        yield Columns(*(batch.column(name).to_numpy(False) for name in Columns._fields))


def _without_flushes(whole: Columns) -> Columns:
    if whole.op.max(initial=0) < FLUSH:
        return whole
    keep = whole.op != FLUSH
    return Columns(*(column[keep] for column in whole))


def survey(trace: Batches, *, most_kept: int = 0) -> Surveyed:
    """Pass over a trace once, and keep it where it has so many requests at most.

    Raises
    ------
    PpwError
        For a trace without times: its requests were generated closed loop.
    FittingError
        For one of fewer than two requests, or all at one time.
    """
    surveyor, digest = Surveyor(), _Digest()
    requests = recorded = 0
    files = False
    kept: list[Columns] = []
    for whole in whole_columns(trace):
        if np.isnan(whole.time_s.min(initial=np.inf)):
            raise PpwError(
                "requests have no arrival times, as of a closed loop: generate the trace without "
                "outstanding requests"
            )
        digest.add(whole)
        batch = _without_flushes(whole)
        surveyor.add(*batch[:5])
        requests += len(batch.op)
        recorded += len(batch.op) - int(np.count_nonzero(np.isnan(batch.latency_s)))
        files = files or bool(whole.file.max(initial=-1) >= 0)
        if digest.seen <= most_kept:
            kept.append(batch._replace(latency_s=None, file=None))
        elif kept:
            kept.clear()
            # Arrow would hold on to the memory for batches to come, which take a tenth of it.
            pa.default_memory_pool().release_unused()
    return Surveyed(
        surveyor.survey(),
        digest.seen - requests,
        recorded / max(requests, 1),
        files,
        digest.text(),
        tuple(kept) if digest.seen <= most_kept else None,
    )


class _Digest:
    def __init__(self) -> None:
        self._columns = [hashlib.sha256() for _ in Columns._fields]
        self.seen = 0

    def add(self, whole: Columns) -> None:
        first = -self.seen % _HASHED
        for column, digest in zip(whole, self._columns, strict=True):
            digest.update(column[first::_HASHED].tobytes())
        self.seen += len(whole.op)

    def text(self) -> str:
        found = hashlib.sha256(str(self.seen).encode())
        for digest in self._columns:
            found.update(digest.digest())
        return f"sha256:{found.hexdigest()}"


def name_of(names: dict[str, tuple[str, ...]], what: str, code: int) -> str:
    """Name of a stream or device, or its number where it has none."""
    known = names.get(what, ())
    return known[code] if 0 <= code < len(known) else str(code)


@dataclass(frozen=True)
class WithoutLocality:
    """A trace whose requests are anywhere in the space that it touched: an ablation.

    Times, streams, operations and sizes stay; places are uniform and keep their alignment.
    """

    trace: Batches
    survey: Survey
    seed: int = 0

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """Names of the original."""
        return self.trace.names

    @property
    def findings(self) -> tuple[str, ...]:
        """Findings of the original."""
        return self.trace.findings

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the requests in order of arrival; every call gives the same ones."""
        rng, known = np.random.default_rng(self.seed), self.survey
        step = known.alignment
        for batch in self.trace.batches():
            blocks = batch.column("size_bytes").to_numpy() // BLOCK
            slots = np.maximum((known.high_lbn - known.low_lbn - blocks) // step + 1, 1)
            place = known.low_lbn + (rng.random(batch.num_rows) * slots).astype(np.int64) * step
            at = batch.schema.get_field_index("lbn")
            yield batch.set_column(at, batch.schema.field(at), pa.array(place))
