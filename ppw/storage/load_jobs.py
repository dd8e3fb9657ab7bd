"""Jobs of a load generator from a fitted state diagram: one a transition, or one a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fitting.storage.interarrival import CONSTANT
from fitting.storage.survey import BLOCK
from measurements.loads.fio_jobs import Job, Zone
from ppw.errors import PpwError
from ppw.results.arguments import known_choice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppw.storage.trace_model import TraceModel

BY = ("transition", "stream")
_OPS = {0: "read", 1: "write"}
_LAYOUT = ("stream", "op", "sequential", "size_class", "level", "target")


def jobs_of(
    model: TraceModel, *, by: str = "stream", space_bytes: float | None = None
) -> tuple[tuple[Job, ...], tuple[str, ...]]:
    """Turn a model into jobs.

    Parameters
    ----------
    model : TraceModel
    by : {"stream", "transition"}
        One job a stream, with mixed sizes and zones; or one for each range, operation, size class
        and order of a stream. Transitions from several states to the same end are one job: a
        generator thread knows no state before.
    space_bytes : float, optional
        Length of the target (B): the modelled space is shrunk to it in proportion. Default: as
        long as the modelled space, whose first block is the target's.

    Returns
    -------
    (tuple of Job, tuple of str)
        The jobs, the busiest first, and what they leave out, in sentences.

    Raises
    ------
    PpwError
        For a model without reads and writes, or a space that is too short.
    """
    known_choice("by", by, BY)
    rows = _rows(model)
    moves = rows["op"].isin(list(_OPS))
    left = float(rows.loc[~moves, "count"].sum() / rows["count"].sum())
    rows = rows[moves]
    if rows.empty:
        raise PpwError("the model has no reads and writes: there is no load to make")
    scale = _scale(model, space_bytes)
    notes = [f"discards, {left:.2%} of the requests, are left out"] if left else []
    if scale < 1:
        notes.append(
            f"the space is {1 / scale:.3g} times smaller than the trace's: requests are nearer to "
            "each other than they were"
        )
    maker = _by_transition if by == "transition" else _by_stream
    total = float(rows["count"].sum())
    jobs = sorted(maker(model, rows, total, scale), key=lambda job: (-job.share, job.name))
    return tuple(jobs), tuple(notes)


def _rows(model: TraceModel) -> pd.DataFrame:
    counts = model.counts
    pairs = model.diagram.pairs(counts.pair)
    return pd.DataFrame(
        {
            "stream": counts.stream,
            "op": counts.op,
            "sequential": counts.sequential,
            "size_class": counts.size_class,
            "level": pairs.level,
            "target": pairs.target,
            "count": counts.count,
            "law": model.laws.law,
        }
    )


def _scale(model: TraceModel, space_bytes: float | None) -> float:
    reach = model.diagram.blocks * BLOCK
    if space_bytes is None:
        return 1.0
    largest = int(model.survey.sizes.max())
    if space_bytes < 2 * largest:
        raise PpwError(f"a space of {space_bytes:g} B is too short for requests of {largest} B")
    return min(1.0, space_bytes / reach)


def _by_transition(
    model: TraceModel, rows: pd.DataFrame, total: float, scale: float
) -> Iterator[Job]:
    for key, members in rows.groupby(list(_LAYOUT), sort=True):
        stream, op, sequential, size_class, level, target = (int(str(k)) for k in key)
        count = float(members["count"].sum())
        zone = _zone(model, level, target, scale, _size(model, size_class))
        constant = float(members.loc[members["law"] == CONSTANT, "count"].sum())
        yield Job(
            name=f"s{stream} {_OPS[op]} {'seq' if sequential else 'rand'} "
            f"{_size(model, size_class)} L{level} S{target}",
            rate=model.rate * count / float(model.counts.count.sum()),
            share=count / total,
            read_share=1.0 - op,
            random_share=float(1 - sequential),
            sizes=((_size(model, size_class), 1.0),),
            zones=(zone,),
            alignment_bytes=_alignment(model, scale),
            arrivals="constant" if constant > count / 2 else "poisson",
        )


def _by_stream(model: TraceModel, rows: pd.DataFrame, total: float, scale: float) -> Iterator[Job]:
    counts = model.counts
    for stream, members in rows.groupby("stream", sort=True):
        weight = members["count"].to_numpy(dtype=float)
        count = float(weight.sum())
        yield Job(
            name=f"stream {stream}",
            rate=model.rate * count / float(counts.count.sum()),
            share=count / total,
            read_share=float(weight[members["op"] == 0].sum() / count),
            random_share=float(weight[members["sequential"] == 0].sum() / count),
            sizes=_sizes(model, members),
            zones=_zones(model, int(str(stream)), scale),
            alignment_bytes=_alignment(model, scale),
            arrivals="poisson",
        )


def _sizes(model: TraceModel, members: pd.DataFrame) -> tuple[tuple[int, float], ...]:
    shares = members.groupby("size_class")["count"].sum()
    shares = shares / shares.sum()
    joined: dict[int, float] = {}
    for class_, share in shares.items():
        size = _size(model, int(str(class_)))
        joined[size] = joined.get(size, 0.0) + float(share)
    return tuple(sorted(joined.items()))


def _size(model: TraceModel, class_: int) -> int:
    """Size that stands for a class: its mean, in whole blocks."""
    sizes, counts = model.classes.sizes[class_], model.classes.counts[class_]
    if len(sizes) == 1:
        return max(BLOCK, int(sizes[0]))
    return max(1, round(float(sizes @ counts) / float(counts.sum()) / BLOCK)) * BLOCK


def _zones(model: TraceModel, stream: int, scale: float) -> tuple[Zone, ...]:
    """Finest states that a stream touches, by their share of its requests."""
    counts = model.counts
    mine = counts.stream_of_state == stream
    arrivals = np.asarray(counts.occupancy)[mine].astype(float)
    if arrivals.ndim > 1:
        arrivals = arrivals.sum(axis=1)
    state = np.asarray(counts.state)[mine]
    table = pd.Series(arrivals).groupby(state).sum()
    largest = int(model.survey.sizes.max())
    zones = [
        _zone(model, model.diagram.levels, int(str(s)), scale, 0, float(n / table.sum()))
        for s, n in table.items()
    ]
    return _apart(zones, largest)


def _apart(zones: list[Zone], largest: int) -> tuple[Zone, ...]:
    """Zones in order, joined where they would be shorter than a request."""
    joined: list[Zone] = []
    for zone in zones:
        last = joined[-1] if joined else None
        if last and (last.end_byte - last.first_byte < largest or zone.first_byte < last.end_byte):
            end = max(last.end_byte, zone.end_byte)
            joined[-1] = Zone(last.first_byte, end, last.share + zone.share)
        else:
            joined.append(zone)
    tail = joined[-1]
    end = max(tail.end_byte, tail.first_byte + largest)
    return (*joined[:-1], Zone(tail.first_byte, end, tail.share))


def _zone(
    model: TraceModel, level: int, state: int, scale: float, least: int, share: float = 1.0
) -> Zone:
    """Bytes of a state, in the space of the target."""
    diagram = model.diagram
    width = diagram.state_blocks * diagram.fan_out ** (diagram.levels - level)
    first = state * width
    end = min(first + width, diagram.blocks)
    step = _alignment(model, scale)
    start = int(first * BLOCK * scale) // step * step
    stop = max(int(max(end, first + 1) * BLOCK * scale) // step * step, start + max(step, least))
    return Zone(start, stop, share)


def _alignment(model: TraceModel, scale: float) -> int:
    """Requests begin at multiples of this (B); an offset of their grid is left out."""
    return int(model.survey.alignment) * BLOCK
