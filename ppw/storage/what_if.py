"""`trace_what_if`: what a cache or another layout of the files would do for a traced load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
import pandas as pd

from fitting.errors import FittingError
from fitting.storage.caches import POLICIES, WRITES, Cache
from fitting.storage.devices import ORDERS, FilePages, SolidState
from fitting.storage.reuse_distance import ReuseSample, touched_blocks
from fitting.storage.survey import BLOCK
from ppw.errors import PpwError
from ppw.results import caveats as cv
from ppw.results.arguments import as_positive, known_choice
from ppw.results.axes import CURVE, PROJECTED, new_axes
from ppw.results.result import TabledResult, numbers_digest, rows_of
from ppw.results.text import shown, summary_text, text_table
from ppw.storage.fitted_devices import (
    ASSUMED,
    Latencies,
    Storage,
    described,
    parse_device,
    reaching,
    time_text,
)
from ppw.storage.trace_source import Columns, columns, opened, survey

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fitting.storage.devices import Layout
    from ppw.storage.fitted_devices import Device
    from ppw.storage.trace_source import Batches

    FloatArray = np.ndarray[Any, np.dtype[np.float64]]
    Mask = np.ndarray[Any, np.dtype[np.bool_]]
    from collections.abc import Iterator, Sequence
    from os import PathLike


# Changes to a storage system, each taking a trace batch by batch to see what it is worth.


_WRITE = 1


class Outcome(NamedTuple):
    """What an option makes of a trace.

    Attributes
    ----------
    device_s : float
        Time (s) of device and cache for a request, one at a time: no queue.
    latency_s : float
        Mean time from arrival to completion, with queues.
    latency_p99_s : float
    utilisation : float
        Of the busiest device, as a share of the time.
    hit_ratio : float
        Blocks found in the cache; NaN without one.
    sequential_share : float
        Of the requests that reach the device, those that begin where its last one ended.
    broken_share : float
        Requests that a layout takes apart.
    """

    device_s: float
    latency_s: float
    latency_p99_s: float
    utilisation: float
    hit_ratio: float
    sequential_share: float
    broken_share: float


class Option(Protocol):
    """Takes the batches of a trace in order, then says what came of it."""

    def take(self, batch: Columns) -> None: ...  # noqa: D102
    def outcome(self) -> Outcome: ...  # noqa: D102


class _Sequence:
    """How many requests of a device begin where its last one ended."""

    def __init__(self) -> None:
        self._ends = np.full(1, -1, dtype=np.int64)
        self.follows = self.requests = 0

    def take(self, device: Any, lbn: Any, end: Any) -> None:
        missing = int(device.max(initial=0)) + 1 - len(self._ends)
        if missing > 0:
            self._ends = np.pad(self._ends, (0, missing), constant_values=-1)
        order = np.argsort(device, kind="stable")
        d, start, stop = device[order], lbn[order], end[order]
        if not len(d):
            return
        first = np.concatenate([[True], d[1:] != d[:-1]])
        before = np.where(first, self._ends[d], np.concatenate([[-1], stop[:-1]]))
        last = np.concatenate([first[1:], [True]])
        self._ends[d[last]] = stop[last]
        self.follows += int((start == before).sum())
        self.requests += len(d)

    def share(self) -> float:
        return self.follows / self.requests if self.requests else float("nan")


class AsItIs:
    """The storage without a change."""

    def __init__(self, device: Device, seed: int) -> None:
        self._storage, self._sequence = Storage(device, seed), _Sequence()

    def take(self, batch: Columns) -> None:
        """Take the next requests."""
        self._sequence.take(batch.device, batch.lbn, batch.lbn + batch.size_bytes // BLOCK)
        self._storage.take(batch)

    def outcome(self) -> Outcome:
        """Say what came of it."""
        return _outcome(self._storage, self._storage.latencies, self._sequence.share())


class Cached:
    """A cache of several drives before the storage.

    Reads that find all of their blocks, and with write-back all writes, take the cache's time.
    Others take the storage's. Filling the cache takes none; blocks that write-back evicts cost the
    storage a write each, beside its other work.
    """

    def __init__(
        self, device: Device, cache: Cache, drive: SolidState, drives: int, block: int, seed: int
    ) -> None:
        self._storage, self._sequence = Storage(device, seed), _Sequence()
        striped = SolidState(drive.read_s, drive.write_s, drive.unit_bytes_s, drives * drive.units)
        self._front = Storage(striped)
        self._cache, self._block, self._device = cache, block, device
        self._latencies = Latencies()
        self._hits = self._accesses = 0

    def take(self, batch: Columns) -> None:
        """Take the next requests."""
        served = self._served(batch)
        behind = Columns(*(column[~served] for column in batch))
        front = Columns(*(column[served] for column in batch))
        self._sequence.take(behind.device, behind.lbn, behind.lbn + behind.size_bytes // BLOCK)
        self._latencies.add(self._storage.take(behind))
        # One cache serves all devices.
        self._latencies.add(self._front.take(front._replace(device=np.zeros_like(front.device))))

    def _served(self, batch: Columns) -> Mask:
        """Which requests the cache answers."""
        kept = np.flatnonzero(batch.op <= _WRITE)
        blocks, request = touched_blocks(batch.lbn[kept], batch.size_bytes[kept], self._block)
        writes = batch.op[kept] == _WRITE
        device = batch.device[kept].astype(np.int64)[request]
        hits = self._cache.access(device << 44 | blocks, writes[request])
        self._hits += int(hits.sum())
        self._accesses += len(hits)
        missed = np.bincount(request, ~hits, minlength=len(kept))
        served = np.zeros(len(batch.op), dtype=np.bool_)
        absorbs = self._cache.writes == "back"
        served[kept] = np.where(writes, absorbs, missed == 0)
        return served

    def outcome(self) -> Outcome:
        """Say what came of it."""
        mean = _outcome(self._storage, self._latencies, self._sequence.share())
        total = self._storage.busy_s + self._front.busy_s + self._cleaning_s()
        return mean._replace(
            device_s=total / self._latencies.requests,
            hit_ratio=self._hits / self._accesses if self._accesses else float("nan"),
        )

    def _cleaning_s(self) -> float:
        """Time of the storage for the dirty blocks: each a write elsewhere."""
        number = self._cache.cleaned + self._cache.dirty
        return number * random_write_s(self._device, self._block)


class Defragmented:
    """The storage with every file in one piece."""

    def __init__(self, device: Device, layout: Layout, seed: int) -> None:
        self._storage, self._sequence = Storage(device, seed), _Sequence()
        self._layout = layout
        self._broken = 0

    def take(self, batch: Columns) -> None:
        """Take the next requests."""
        moved = self._layout.move(batch.device, batch.lbn, batch.size_bytes)
        self._broken += int(moved.broken.sum())
        self._sequence.take(batch.device, moved.lbn, moved.end)
        # A request that is taken apart ends elsewhere; its next one then has to move.
        self._storage.take(batch._replace(lbn=moved.lbn))

    def outcome(self) -> Outcome:
        """Say what came of it."""
        latencies = self._storage.latencies
        found = _outcome(self._storage, latencies, self._sequence.share())
        return found._replace(broken_share=self._broken / latencies.requests)


def random_write_s(device: Device, size_bytes: int) -> float:
    """Time (s) of a write a third of the space away, the mean distance of two places."""
    span = int(getattr(device, "capacity_bytes", BLOCK) / BLOCK)
    one = (np.array([value]) for value in (_WRITE, span // 3, size_bytes, 0))
    return float(device.service_s(*one)[0])


def _outcome(storage: Storage, latencies: Latencies, sequential: float) -> Outcome:
    return Outcome(
        storage.busy_s / max(1, latencies.requests),
        latencies.mean_s,
        latencies.quantile_s(0.99),
        storage.utilisation,
        float("nan"),
        sequential,
        0.0,
    )


# The options that a what-if weighs, and how each fares under a trace.


AS_IT_IS = "as it is"
_LAYOUTS = {"address": "order of address kept", "first_use": "order of first use"}


class Plan(NamedTuple):
    """An option by name, and what it adds."""

    name: str
    kind: str
    drives: int
    policy: str
    order: str


def plans_of(caches: Sequence[int], policies: Sequence[str], defragment: bool) -> list[Plan]:
    """List what is asked for, the storage as it is first."""
    plans = [Plan(AS_IT_IS, "base", 0, "", "")]
    for drives in caches:
        if drives < 0:
            raise PpwError(f"{drives} caches: give 0 or more")
        for policy in policies if drives else ():
            plural = "s" if drives > 1 else ""
            name = f"{drives} cache drive{plural}, {policy.upper()}"
            plans.append(Plan(name, "cache", drives, policy, ""))
    layouts = [Plan(f"defragmented, {_LAYOUTS[order]}", "layout", 0, "", order) for order in ORDERS]
    return plans + (layouts if defragment else [])


def outcomes_of(
    source: Batches,
    plans: Sequence[Plan],
    device: Device,
    drive: SolidState,
    size: float,
    block: int,
    writes: str,
    seed: int,
) -> list[Outcome]:
    """Put a trace through every option at once: one outcome a plan."""
    layouts = _layouts(source) if any(plan.kind == "layout" for plan in plans) else {}

    def option(plan: Plan) -> Option:
        if plan.kind == "cache":
            try:
                cache = Cache(int(plan.drives * size // block), plan.policy, writes)
            except FittingError as error:
                raise PpwError(str(error)) from error
            return Cached(device, cache, drive, plan.drives, block, seed)
        if plan.kind == "layout":
            return Defragmented(device, layouts[plan.order], seed)
        return AsItIs(device, seed)

    options = [option(plan) for plan in plans]
    for batch in columns(source):
        for one in options:
            one.take(batch)
    return [one.outcome() for one in options]


def _layouts(source: Batches) -> dict[str, Layout]:
    pages = FilePages()
    for batch in columns(source):
        pages.add(batch.device, batch.file, batch.lbn, batch.size_bytes)
    return {order: pages.layout(order) for order in ORDERS}


_BUSY = 0.99
_CURVE_POINTS = 40


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceWhatIf(TabledResult):
    """What changes of a storage system are worth for a load.

    Attributes
    ----------
    table : pandas.DataFrame
        One row an option: ``option``; ``kind`` (base, cache, layout); ``drives``,
        ``cache_bytes``, ``policy``; ``hit_ratio`` (blocks found in the cache);
        ``sequential_share`` (of the requests that reach a device); ``broken_share`` (requests
        that a layout takes apart); ``device_s`` (time of device and cache for a request, one at
        a time); ``speed_up`` (of that, against the storage as it is), ``lower``, ``upper``
        (smallest and largest of the runs), ``spread`` (standard deviation over mean);
        ``latency_s``, ``latency_p99_s`` (at the arrivals of the trace); ``utilisation``;
        ``added_cost``, ``added_w`` (NaN where they were not given).
    curve : pandas.DataFrame
        LRU hit ratio by ``cache_bytes``.
    writes : str
        Write policy of the caches: back, through, or around.
    block_bytes : float
        Of the caches.
    runs : float
    device, cache_device : str
        Their models.
    touched_bytes : float
        What the first trace touches, in blocks.
    """

    kind: ClassVar[str] = "trace_what_if"

    table: pd.DataFrame
    curve: pd.DataFrame
    writes: str
    block_bytes: float
    runs: float
    device: str
    cache_device: str
    touched_bytes: float

    def verdict(self) -> list[str]:
        """Say what each option is worth, the best first, and how large a cache drive is."""
        options = self.table[self.table["kind"] != "base"]
        said = []
        for row in rows_of(options.sort_values("speed_up", ascending=False, kind="stable")):
            spread = f" ({row['lower']:.2f} to {row['upper']:.2f} over {self.runs:g} runs)"
            said.append(f"{row['option']}: {row['speed_up']:.2f} times as fast{spread}{_why(row)}.")
        return [*said, *self._drive()]

    def _drive(self) -> Iterator[str]:
        caches = self.table[self.table["kind"] == "cache"]
        for row in rows_of(caches.head(1)):
            size = row["cache_bytes"] / row["drives"]
            share = size / self.touched_bytes
            part = (
                f"{shown(float(f'{share:.3g}'))} times" if share >= 1 else f"{100 * share:.3g}% of"
            )
            yield (
                f"A cache drive has {shown(size, 'B')}, {part} the "
                f"{shown(self.touched_bytes, 'B')} that the trace touches."
            )

    def to_frame(self) -> pd.DataFrame:
        """One row an option."""
        return self.table

    def summary(self) -> str:
        """Text: what each option is worth, the table and the caveats."""
        lines = [*self.verdict(), "", text_table(self.header(), self.cells())]
        return summary_text(lines, self.caveats)

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return [
            *("option", "hits", "sequential", "speed-up", "spread", "time", "latency", "busy"),
            *("added cost", "added W"),
        ]

    def cells(self) -> list[list[str]]:
        """The options as they are printed."""
        return [
            [
                row["option"],
                _percent(row["hit_ratio"]),
                _percent(row["sequential_share"]),
                f"{row['speed_up']:.2f}",
                f"{row['spread']:.2%}",
                _time(row["device_s"]),
                _time(row["latency_s"]),
                f"{row['utilisation']:.0%}",
                shown(row["added_cost"]),
                shown(row["added_w"], "W"),
            ]
            for row in rows_of(self.table)
        ]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the hit ratio curve, with the caches that were asked for."""
        return plot_curve(self, ax)


def trace_what_if(
    traces: Batches | str | PathLike[str] | Sequence[Batches | str | PathLike[str]],
    *,
    cache_bytes: float | None = None,
    caches: Sequence[int] = (1, 2, 4),
    policies: Sequence[str] = ("lru",),
    writes: str = "through",
    block_bytes: int = 4096,
    defragment: bool = False,
    device: str = "disk",
    cache_device: str = "ssd",
    cache_price: float | None = None,
    cache_power_w: float | None = None,
    repeats: int = 5,
    seed: int = 0,
) -> TraceWhatIf:
    """Ask what SSD caches or a defragmentation would do for a load.

    Parameters
    ----------
    traces : Trace, path, or a sequence of them
        One trace, or one a run: the same model generated with several seeds.
    cache_bytes : float, optional
        Size of one cache drive (B). Default: a tenth of what the first trace touches.
    caches : sequence of int
        Numbers of drives; their space is one cache, which serves as many requests more at a time.
    policies : sequence of str
        Of `fitting.storage.caches.POLICIES`.
    writes : str
        ``through``: a write goes to the storage at once, and its blocks into the cache.
        ``around``: they go past the cache. ``back``: the cache takes the write, and the storage
        gets a block when it is evicted.
    block_bytes : int
        Of the caches.
    defragment : bool
        Lay every file out in one piece; the trace needs a file for each request.
    device, cache_device : str
        ``disk`` or ``ssd``, with parameters if need be (`ppw.storage.fitted_devices.parse_device`).
    cache_price, cache_power_w : float, optional
        Of a drive; what an option adds is this times its drives.
    repeats : int
        For a single trace: how often, each with other angles of the disk's platter.
    seed : int

    Returns
    -------
    TraceWhatIf

    Raises
    ------
    MeasurementError
        Where a trace cannot be read.
    PpwError
        For a trace without files or times, or arguments that cannot be.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    known_choice("writes", writes, WRITES)
    for policy in policies:
        known_choice("policy", policy, POLICIES)
    name, behind = parse_device(device)
    drive = parse_device(cache_device)[1]
    if not isinstance(drive, SolidState):
        raise PpwError("a cache is a solid state drive: give --cache-device ssd,…")
    sources = _sources(traces, repeats)
    found = survey(sources[0])
    behind = reaching(behind, found.survey.high_lbn)
    if defragment and not found.has_files:
        raise PpwError(
            "the trace says of no request which file it is of: a defragmentation cannot be judged; "
            "record one with files (ETW), or map a column (--map file=COLUMN)"
        )
    curve = _reuse(sources[0], block_bytes)
    touched = float(curve.footprint * block_bytes)
    size = _drive_bytes(cache_bytes, touched, block_bytes)
    plans = plans_of(caches, policies, defragment)
    outcomes = [
        outcomes_of(source, plans, behind, drive, size, block_bytes, writes, seed + k)
        for k, source in enumerate(sources)
    ]
    table = _table(plans, outcomes, size)
    table["added_cost"] = _times(table["drives"], cache_price)
    table["added_w"] = _times(table["drives"], cache_power_w)
    caveats = tuple(_caveats(table, name, behind, writes, len(sources), found.survey.requests))
    cv.warn(caveats)
    return TraceWhatIf(
        table=table,
        curve=_curve(curve, block_bytes, size * max([1, *caches])),
        writes=writes,
        block_bytes=float(block_bytes),
        runs=float(len(sources)),
        device=f"{name}: {described(behind)}",
        cache_device=f"ssd: {described(drive)}",
        touched_bytes=touched,
        caveats=caveats,
        input_digest=numbers_digest(found.digest, len(sources)),
    )


def _sources(traces: Any, repeats: int) -> list[Batches]:
    single = isinstance(traces, str) or hasattr(traces, "__fspath__") or hasattr(traces, "batches")
    if not single:
        sources = [opened(one) for one in traces]
        if not sources:
            raise PpwError("no trace was given")
        return sources
    if repeats < 1:
        raise PpwError(f"{repeats} repeats: at least 1 is needed")
    return [opened(traces)] * repeats


def _drive_bytes(cache_bytes: float | None, touched: float, block: int) -> float:
    if cache_bytes is None:
        return max(float(block), 0.1 * touched)
    size = as_positive("cache size (bytes)", cache_bytes)
    if size < block:
        raise PpwError(
            f"a cache of {size:g} B is less than a block of {block} B: write it with a unit, 10GiB"
        )
    return size


def _reuse(source: Batches, block: int) -> Any:
    sample = ReuseSample()
    for batch in columns(source):
        blocks, request = touched_blocks(batch.lbn, batch.size_bytes, block)
        sample.add(batch.device.astype(np.int64)[request] << 44 | blocks)
    return sample.curve()


def _table(
    plans: Sequence[Plan], outcomes: Sequence[Sequence[Outcome]], size: float
) -> pd.DataFrame:
    figures = np.array(outcomes)
    mean = figures.mean(axis=0)
    place = Outcome._fields.index("device_s")
    speed_up = figures[:, :1, place] / figures[:, :, place]
    runs = len(outcomes)
    spread = speed_up.std(axis=0, ddof=1) / speed_up.mean(axis=0) if runs > 1 else np.nan
    return pd.DataFrame(
        {
            "option": [plan.name for plan in plans],
            "kind": [plan.kind for plan in plans],
            "drives": [float(plan.drives) for plan in plans],
            "cache_bytes": [plan.drives * size for plan in plans],
            "policy": [plan.policy for plan in plans],
            **{name: mean[:, k] for k, name in enumerate(Outcome._fields)},
            "speed_up": speed_up.mean(axis=0),
            "lower": speed_up.min(axis=0),
            "upper": speed_up.max(axis=0),
            "spread": spread,
        }
    )


def _times(drives: pd.Series[float], each: float | None) -> pd.Series[float]:
    added = drives * (np.nan if each is None else float(each))
    return added.where(drives > 0, 0.0)


def _curve(curve: Any, block: int, most: float) -> pd.DataFrame:
    largest = max(2.0, most / block, float(curve.footprint))
    blocks = np.unique(np.geomspace(1, largest, _CURVE_POINTS).astype(np.int64))
    return pd.DataFrame(
        {"cache_bytes": blocks * float(block), "hit_ratio": curve.hit_ratio(blocks)}
    )


def _caveats(
    table: pd.DataFrame, name: str, device: Device, writes: str, runs: int, requests: int
) -> Iterator[str]:
    yield ASSUMED.format(name=name, said=described(device))
    if table["utilisation"].max() > _BUSY:
        yield (
            "a device is busy all the time: its queue only grows, and latency depends on the "
            "length of the trace; go by the time of a request instead"
        )
    if writes == "back" and (table["kind"] == "cache").any():
        yield "write-back: a cache drive that fails loses what it has not yet written"
    if (table["broken_share"] > 0).any():
        share = table["broken_share"].max()
        yield f"a new layout takes up to {share:.1%} of the requests apart, which is not charged"
    if (table["kind"] == "layout").any():
        yield (
            "a block trace does not say where in its file a block is: of the two layouts, keeping "
            "the order of address says too little for fragmented files, first use too much for "
            "files that are read at random"
        )
    if (table["kind"] == "cache").any():
        yield "caches start empty: over a short trace, hits are fewer than later on"


def _why(row: dict[str, Any]) -> str:
    if row["kind"] == "cache":
        return f", {row['hit_ratio']:.1%} of the blocks are hits"
    return f", {row['sequential_share']:.1%} of the requests are sequential"


def _time(seconds: float) -> str:
    return "–" if np.isnan(seconds) else time_text(seconds)


def _percent(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.1%}"


def plot_curve(result: TraceWhatIf, ax: Axes | None = None) -> Axes:
    """Draw hit ratio over cache size."""
    axes = new_axes(ax)
    axes.plot(
        result.curve["cache_bytes"] / 1e9,
        100 * result.curve["hit_ratio"],
        color=CURVE,
        label="LRU, writes bring blocks in",
    )
    caches = result.table[result.table["kind"] == "cache"]
    for policy, marker in zip(caches["policy"].unique(), "osD^vP", strict=False):
        rows = caches[caches["policy"] == policy]
        axes.plot(
            rows["cache_bytes"] / 1e9,
            100 * rows["hit_ratio"],
            marker,
            color=PROJECTED,
            ms=5,
            mfc="none",
            label=policy.upper(),
        )
    axes.set_xscale("log")
    axes.set_xlabel("cache (GB)")
    axes.set_ylabel("hits (% of blocks)")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return axes
