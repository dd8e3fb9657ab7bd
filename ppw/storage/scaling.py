"""Scale a load: a smaller space, other times, more streams; alike for all that reads a trace.

=======  ===========================================================================================
space    it has 64 parts, each of which becomes shorter; addresses within a part are taken modulo
         its new length. So parts keep their shares of the requests, and runs stay sequential
times    all are multiplied by a factor
streams  copies of the load come on top of each other, each begins at another time of it: copy j of
         n at j/n of its duration, and goes on from its end to its beginning
=======  ===========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fitting.compiled.loops import Array
from fitting.storage.survey import BLOCK, Survey
from ppw.errors import PpwError
from ppw.results import text as tx
from ppw.storage.trace_source import Batches, DerivedTrace

# Parts of a space, and how many times the largest request a part has at least.
_PARTS, _LEAST_PART = 64, 2


class Scale(NamedTuple):
    """How a load is scaled."""

    size_bytes: float | None = None  # length of the space; a shorter space stays as it is
    time_scale: float = 1.0  # factor of all times
    streams: int = 1  # copies of the load

    def check(self) -> Scale:
        """Return it. Raises `PpwError` for what cannot be."""
        tx.as_positive("time scale", self.time_scale)
        if self.size_bytes is not None:
            tx.as_positive("size", self.size_bytes)
        if self.streams < 1:
            raise PpwError(f"{self.streams} times the streams: give 1 or more")
        return self

    def space_share(self, space: Survey) -> float:
        """Length of the scaled space as a share of the trace's."""
        size = np.inf if self.size_bytes is None else self.size_bytes
        return float(min(1.0, size / (BLOCK * (space.high_lbn - space.low_lbn))))

    def notes(self, space: Survey) -> list[str]:
        """Say in sentences what scaling the space changes."""
        share = self.space_share(space)
        return [space_note(share)] if share < 1 else []

    def apply(self, trace: Batches, space: Survey) -> Batches:
        """Return the scaled trace; ``space`` is its survey."""
        if self.check() == AS_IT_IS:
            return trace
        names, findings = dict(trace.names), trace.findings
        if self.streams > 1:
            names["stream"] = _copy_names(names.get("stream", ()), self.streams, space)

        def batches() -> Iterator[pa.RecordBatch]:
            copies = [_rotate(trace, space, k, self.streams) for k in range(self.streams)]
            for batch in _merge(copies) if self.streams > 1 else trace.batches():
                yield self._scale_batch(batch, space)

        return DerivedTrace(batches, names, findings)

    def _scale_batch(self, batch: pa.RecordBatch, space: Survey) -> pa.RecordBatch:
        """Scale the times and addresses of requests."""
        if self.time_scale != 1:
            batch = _replace_column(batch, "time_s", batch["time_s"].to_numpy() * self.time_scale)
        if self.space_share(space) < 1:
            size = batch["size_bytes"].to_numpy()
            batch = _replace_column(
                batch, "lbn", self._places(space, batch["lbn"].to_numpy(), size)
            )
        return batch

    def _places(self, space: Survey, lbn: Array, size_bytes: Array) -> Array:
        """Return the blocks in the scaled space, which begins where the trace's does."""
        step, total = space.alignment, int(self.size_bytes or 0) // BLOCK
        largest = -(-int(space.sizes.max()) // BLOCK)
        if total < largest:
            raise PpwError(
                f"a space of {self.size_bytes:g} B is shorter than the largest request, "
                f"{int(space.sizes.max())} B: give a larger size"
            )
        parts = max(1, min(_PARTS, total // (_LEAST_PART * largest)))
        # Both lengths keep the alignment of addresses.
        before = -(-(space.high_lbn - space.low_lbn) // (parts * step)) * step
        after = max(total // (parts * step) * step, 1)
        part, within = np.divmod(lbn - space.low_lbn, before)
        found = np.clip(part, 0, parts - 1) * after + within % after
        last = np.maximum(total - -(-size_bytes // BLOCK), 0) // step * step
        return np.asarray(space.low_lbn + np.minimum(found, last))


AS_IT_IS = Scale()


def space_note(share: float) -> str:
    """Say what it means that a space has this share of the trace's."""
    return (
        f"the space is {1 / share:.3g} times smaller than the trace's, so requests are closer to "
        "each other than in the trace"
    )


def _replace_column(batch: pa.RecordBatch, name: str, values: Array) -> pa.RecordBatch:
    at = batch.schema.get_field_index(name)
    field = batch.schema.field(at)
    return batch.set_column(at, field, pa.array(values, field.type))


def _copy_names(names: tuple[str, ...], copies: int, space: Survey) -> tuple[str, ...]:
    """Name the streams of all copies, numbered from the second on."""
    numbers = range(len(names), int(space.streams.max()) + 1)
    own = (*names, *map(str, numbers))[: int(space.streams.max()) + 1]
    return tuple(f"{name} ({k + 1})" if k else name for k in range(copies) for name in own)


def _rotate(trace: Batches, space: Survey, copy: int, copies: int) -> Iterator[pa.RecordBatch]:
    """Yield the requests of a copy: those from its share of the duration on, then those before."""
    shift_s = space.duration_s * copy / copies
    begin_s, more = space.first_s + shift_s, copy * (int(space.streams.max()) + 1)

    def turn(later: bool) -> Iterator[pa.RecordBatch]:
        for batch in trace.batches():
            time_s = batch["time_s"].to_numpy()
            low = int(np.searchsorted(time_s, begin_s))
            kept = batch.slice(low) if later else batch.slice(0, low)
            if kept.num_rows:
                moved = kept["time_s"].to_numpy() + (0.0 if later else space.duration_s) - shift_s
                kept = _replace_column(kept, "time_s", moved)
                yield _replace_column(kept, "stream", kept["stream"].to_numpy() + more)
            if not later and low < batch.num_rows:
                return

    return chain(turn(True), turn(False))


def _merge(sources: list[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Merge requests that are in order of time in each source."""
    waiting = {k: next(source, None) for k, source in enumerate(sources)}
    while live := {k: batch for k, batch in waiting.items() if batch is not None}:
        # Up to here each source has delivered all it has.
        until = min(batch["time_s"][-1].as_py() for batch in live.values())
        ready = []
        for k, batch in live.items():
            number = int(np.searchsorted(batch["time_s"].to_numpy(), until, side="right"))
            ready.append(batch.slice(0, number))
            rest = batch.slice(number)
            waiting[k] = rest if rest.num_rows else next(sources[k], None)
        merged = pa.Table.from_batches(ready).combine_chunks()
        order = np.argsort(merged["time_s"].to_numpy(), kind="stable")
        yield from pc.take(merged, pa.array(order)).to_batches()
