"""Which pieces of telemetry meet which runs: an interval join that every engine can hash.

Engines join by equality. Time is cut in buckets about as long as a run is on average, and a run is
paired with what shares a host and a bucket with it: runs fill at most two buckets each on average,
so the pairs to look at grow with the rows and not with their product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ibis

# Shorter buckets save nothing: sensors seldom say more than once a second.
_LEAST_BUCKET_S = 1.0


def bucket_width(intervals: ibis.Table) -> float:
    """Length of the buckets (s): the mean of the intervals, one second at least."""
    mean = (intervals.end_s - intervals.start_s).mean().to_pyarrow().as_py()
    return max(_LEAST_BUCKET_S, mean or 0.0)


def points_in(
    intervals: ibis.Table, points: ibis.Table, low: Any, high: Any, width: float
) -> ibis.Table:
    """Pair points at ``at_s`` with the intervals of their host that they lie in.

    Parameters
    ----------
    intervals : ibis.Table
        ``host``, ``start_s``, ``end_s``.
    points : ibis.Table
        ``host``, ``at_s`` and whatever else belongs to them.
    low, high : expression
        Ends of what counts of an interval, in its columns; both belong to it.
    width : float
        Of the buckets (s).
    """
    spread = _spread(intervals.mutate(low_s=low, high_s=high), "low_s", "high_s", width)
    placed = points.mutate(bucket=_bucket(points.at_s, width))
    pairs = spread.join(placed, ["host", "bucket"])
    return pairs.filter(pairs.at_s >= pairs.low_s, pairs.at_s <= pairs.high_s)


def segments_in(
    intervals: ibis.Table, segments: ibis.Table, reach_s: float, width: float
) -> ibis.Table:
    """Pair segments from ``at_s`` to ``next_s`` with the intervals that they come near.

    Both may fill several buckets; a pair counts in the first that they share.
    """
    near = intervals.mutate(low_s=intervals.start_s - reach_s, high_s=intervals.end_s + reach_s)
    a = _spread(near.mutate(first_a=_bucket(near.low_s, width)), "low_s", "high_s", width)
    b = segments.mutate(first_b=_bucket(segments.at_s, width))
    pairs = a.join(_spread(b, "at_s", "next_s", width), ["host", "bucket"])
    first = (pairs.first_a > pairs.first_b).ifelse(pairs.first_a, pairs.first_b)
    return pairs.filter(
        pairs.bucket == first, pairs.at_s <= pairs.high_s, pairs.next_s >= pairs.low_s
    )


def _spread(table: ibis.Table, low: str, high: str, width: float) -> ibis.Table:
    """Repeat each row for every bucket from one of its columns to another."""
    import ibis

    first, last = _bucket(table[low], width), _bucket(table[high], width)
    return table.mutate(bucket=ibis.range(first, last + 1).unnest())


def _bucket(seconds: Any, width: float) -> Any:
    return (seconds / width).floor().cast("int64")
