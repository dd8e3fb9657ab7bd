"""Survey of a trace by an engine: what `fitting.storage.survey` finds, from grouped sums."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from fitting.storage.survey import BLOCK, Survey, alignment_of
from ppw.errors import PpwError
from ppw.traces.source import FLUSH, Surveyed

if TYPE_CHECKING:
    import ibis

    from ppw.traces.engine_requests import EngineTrace

_RESIDUES = 256
_LAST = 2**63 // BLOCK
# Requests that are sorted together to find the resolution of the clock.
_TOGETHER = 100_000


def survey_of(source: EngineTrace) -> Surveyed:
    """Survey a trace without its flushes; latencies and files are not looked at.

    Raises
    ------
    PpwError
        For requests that cannot be, or too few of them.
    """
    kept = requests_of(source)
    extent = _extent(source.requests)
    _check(extent)
    streams = kept.group_by("stream", "device").agg(n=kept.count())
    by_stream = streams.order_by("stream", "device").to_pyarrow()
    sizes = kept.group_by("size_bytes").agg(n=kept.count()).to_pyarrow()
    size, number = sizes["size_bytes"].to_numpy(), sizes["n"].to_numpy()
    order = np.lexsort((size, -number))
    residues = kept.group_by(residue=kept.lbn % _RESIDUES).agg(n=kept.count()).to_pyarrow()
    counted = np.zeros(_RESIDUES, dtype=np.int64)
    counted[residues["residue"].to_numpy()] = residues["n"].to_numpy()
    alignment, offset = alignment_of(counted)
    survey = Survey(
        requests=extent["requests"],
        first_s=extent["first_s"],
        last_s=extent["last_s"],
        low_lbn=extent["low_lbn"],
        high_lbn=extent["high_lbn"],
        streams=by_stream["stream"].to_numpy().astype(np.int64),
        devices=by_stream["device"].to_numpy().astype(np.int64),
        stream_counts=by_stream["n"].to_numpy(),
        sizes=size[order],
        size_counts=number[order],
        alignment=alignment,
        alignment_offset=offset,
        tick_s=_tick(kept, extent),
    )
    return Surveyed(survey, extent["flushes"], np.nan, False, _digest(survey), None)


def requests_of(source: EngineTrace) -> ibis.Table:
    """Requests without the flushes, which have no address."""
    return source.requests.filter(source.requests["op"] != FLUSH)


def _extent(table: ibis.Table) -> dict[str, Any]:
    """Extent of all but the flushes, and the number of requests that cannot be."""
    import ibis

    kept = table["op"] != FLUSH
    end = table.lbn + ibis.greatest(table.size_bytes // BLOCK, 1)
    found = table.agg(
        requests=kept.cast("int64").sum(),
        flushes=(~kept).cast("int64").sum(),
        first_s=table.time_s.min(where=kept),
        last_s=table.time_s.max(where=kept),
        low_lbn=table.lbn.min(where=kept),
        high_lbn=end.max(where=kept),
        bad=_cannot_be(table).cast("int64").sum(),
    )
    row: dict[str, Any] = found.to_pyarrow().to_pylist()[0]
    return row


def _cannot_be(table: ibis.Table) -> Any:
    """Requests that `measurements.traces.checks` refuses, and those with a number missing."""
    time, lbn, size = table.time_s, table.lbn, table.size_bytes
    bad = time.isnull() | time.isnan() | time.isinf() | (time < 0) | (lbn < 0)
    bad = bad | (size < 0) | ((size == 0) & (table["op"] != FLUSH)) | (lbn > _LAST - size // BLOCK)
    for name in ("stream", "device"):
        bad = bad | (table[name] < 0) | table[name].isnull()
    for name in ("lbn", "size_bytes", "op"):
        bad = bad | table[name].isnull()
    return bad.fill_null(True)


def _check(extent: dict[str, Any]) -> None:
    n = extent["requests"] or 0
    if extent["bad"]:
        raise PpwError(
            f"{extent['bad']} requests cannot be (a number is missing or negative, no size, or "
            "an end beyond 2^63 bytes): leave them out"
        )
    if n < 2 or extent["last_s"] <= extent["first_s"]:
        span = extent["last_s"] - extent["first_s"] if n else 0.0
        raise PpwError(
            f"{n} request{'s' * (n != 1)} within {span:g} s make no model: give a trace of "
            "at least two requests at different times"
        )


def _tick(kept: ibis.Table, extent: dict[str, Any]) -> float:
    """Smallest time between two arrivals that are apart: in stretches of time, and between them."""
    import ibis

    parts = max(1, extent["requests"] // _TOGETHER)
    rate = parts / (extent["last_s"] - extent["first_s"])
    stretch = ((kept.time_s - extent["first_s"]) * rate).floor().cast("int64")
    times = kept.select("time_s", stretch=stretch)
    order = ibis.window(group_by="stretch", order_by="time_s")
    times = times.mutate(apart=times.time_s - times.time_s.lag().over(order))
    found = (
        times.group_by("stretch")
        .agg(
            least=times.apart.min(where=times.apart > 0),
            low=times.time_s.min(),
            high=times.time_s.max(),
        )
        .order_by("stretch")
        .to_pyarrow()
    )
    between = found["low"].to_numpy()[1:] - found["high"].to_numpy()[:-1]
    within = found["least"].drop_null().to_numpy()
    return float(np.concatenate([within, between[between > 0]]).min())


def _digest(survey: Survey) -> str:
    """Digest of what a survey found, which no order of rows changes."""
    digest = hashlib.sha256()
    for value in vars(survey).values():
        digest.update(np.ascontiguousarray(value).tobytes())
    return f"sha256:{digest.hexdigest()}"
