"""Jobs of a load generator from a fitted state diagram: one a transition, or one a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from fitting.storage.interarrival import CONSTANT
from fitting.storage.survey import BLOCK
from measurements.loads.job_files import AddressZone, LoadJob
from ppw.errors import PpwError
from ppw.results.arguments import check_choice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppw.storage.trace_model import TraceModel

BY = ("transition", "stream")
_OPS = {0: "read", 1: "write"}
_LAYOUT = ["stream", "op", "sequential", "size_class", "level", "target"]


def jobs_of(
    model: TraceModel, *, by: str = "stream", space_bytes: float | None = None
) -> tuple[tuple[LoadJob, ...], tuple[str, ...]]:
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
    (tuple of LoadJob, tuple of str)
        The jobs, the busiest first, and what they leave out, in sentences.

    Raises
    ------
    PpwError
        For a model without reads and writes, or a space that is too short.
    """
    check_choice("by", by, BY)
    counts, pairs = model.counts, model.diagram.pairs(model.counts.pair)
    columns = {name: getattr(counts, name) for name in ("stream", "op", "sequential", "size_class")}
    numbers = {"level": pairs.level, "target": pairs.target, "count": counts.count}
    rows = pd.DataFrame({**columns, **numbers, "law": model.laws.law})
    moves = rows["op"].isin(list(_OPS))
    left = float(rows.loc[~moves, "count"].sum() / rows["count"].sum())
    if not moves.any():
        raise PpwError("the model has no reads and writes: there is no load to make")
    largest = int(model.survey.sizes.max())
    if space_bytes is not None and space_bytes < 2 * largest:
        raise PpwError(f"a space of {space_bytes:g} B is too short for requests of {largest} B")
    # A target that is longer than the modelled space is used from its start on.
    reach = model.diagram.blocks * BLOCK
    scale = 1.0 if space_bytes is None else min(1.0, space_bytes / reach)
    notes = [f"discards, {left:.2%} of the requests, are left out"] if left else []
    if scale < 1:
        notes.append(
            f"the space is {1 / scale:.3g} times smaller than the trace's: requests are nearer to "
            "each other than they were"
        )
    maker = _JobMaker(model, rows[moves], scale)
    jobs = maker.by_transition() if by == "transition" else maker.by_stream()
    return tuple(sorted(jobs, key=lambda job: (-job.share, job.name))), tuple(notes)


@dataclass(frozen=True)
class _JobMaker:
    """Transitions of reads and writes, and the factor by which the space is shrunk."""

    model: TraceModel
    rows: pd.DataFrame
    scale: float

    def by_transition(self) -> Iterator[LoadJob]:
        """Yield a job for each range, operation, size class and order of a stream."""
        for key, members in self.rows.groupby(_LAYOUT, sort=True):
            stream, op, sequential, size_class, level, target = map(int, key)  # type: ignore[arg-type]
            size = self._size(size_class)
            constant = members.loc[members["law"] == CONSTANT, "count"].sum()
            yield self._job(
                f"s{stream} {_OPS[op]} {'seq' if sequential else 'rand'} {size} L{level} S{target}",
                members,
                sizes=((size, 1.0),),
                zones=(self._zone(level, target, size),),
                arrivals="constant" if constant > members["count"].sum() / 2 else "poisson",
            )

    def by_stream(self) -> Iterator[LoadJob]:
        """Yield a job for each stream, with mixed sizes and zones."""
        for stream, members in self.rows.groupby("stream", sort=True):
            yield self._job(
                f"stream {stream}",
                members,
                sizes=self._sizes(members),
                zones=self._zones(int(str(stream))),
                arrivals="poisson",
            )

    def _job(self, name: str, members: pd.DataFrame, **given: Any) -> LoadJob:
        weight = members["count"].to_numpy(dtype=float)
        count = float(weight.sum())
        return LoadJob(
            name=name,
            rate=self.model.rate * count / float(self.model.counts.count.sum()),
            share=count / float(self.rows["count"].sum()),
            read_share=float(weight[members["op"] == 0].sum() / count),
            random_share=float(weight[members["sequential"] == 0].sum() / count),
            alignment_bytes=self._alignment_bytes,
            **given,
        )

    def _sizes(self, members: pd.DataFrame) -> tuple[tuple[int, float], ...]:
        """Sizes with their shares; classes of one size are joined."""
        shares = members.groupby("size_class")["count"].sum()
        shares = shares / shares.sum()
        joined: dict[int, float] = {}
        for class_, share in shares.items():
            size = self._size(int(str(class_)))
            joined[size] = joined.get(size, 0.0) + float(share)
        return tuple(sorted(joined.items()))

    def _size(self, class_: int) -> int:
        """Size that stands for a class: its mean, in whole blocks."""
        sizes, counts = self.model.classes.sizes[class_], self.model.classes.counts[class_]
        if len(sizes) == 1:
            return max(BLOCK, int(sizes[0]))
        return max(1, round(float(sizes @ counts) / float(counts.sum()) / BLOCK)) * BLOCK

    def _zones(self, stream: int) -> tuple[AddressZone, ...]:
        """Finest states that a stream accesses, by their share of its requests."""
        counts, levels = self.model.counts, self.model.diagram.levels
        mine = counts.stream_of_state == stream
        arrivals = pd.Series(counts.occupancy[mine].astype(float))
        table = arrivals.groupby(counts.state[mine]).sum()
        zones = [
            self._zone(levels, int(str(state)), 0, float(number / table.sum()))
            for state, number in table.items()
        ]
        return _join_short(zones, int(self.model.survey.sizes.max()))

    def _zone(self, level: int, state: int, least: int, share: float = 1.0) -> AddressZone:
        """Bytes of a state, in the space of the target."""
        diagram, step = self.model.diagram, self._alignment_bytes
        width = diagram.state_blocks * diagram.fan_out ** (diagram.levels - level)
        first = state * width
        end = max(min(first + width, diagram.blocks), first + 1)
        start, stop = (int(at * BLOCK * self.scale) // step * step for at in (first, end))
        return AddressZone(start, max(stop, start + max(step, least)), share)

    @property
    def _alignment_bytes(self) -> int:
        """Requests begin at multiples of this (B); an offset of their grid is left out."""
        return int(self.model.survey.alignment) * BLOCK


def _join_short(zones: list[AddressZone], largest: int) -> tuple[AddressZone, ...]:
    """Zones in order, joined where they would be shorter than a request."""
    joined: list[AddressZone] = []
    for zone in zones:
        last = joined[-1] if joined else None
        # A generator cannot place a request in a zone that is shorter.
        if last and (last.end_byte - last.first_byte < largest or zone.first_byte < last.end_byte):
            end = max(last.end_byte, zone.end_byte)
            joined[-1] = AddressZone(last.first_byte, end, last.share + zone.share)
        else:
            joined.append(zone)
    tail = joined[-1]
    end = max(tail.end_byte, tail.first_byte + largest)
    return (*joined[:-1], AddressZone(tail.first_byte, end, tail.share))
