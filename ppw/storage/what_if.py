"""`trace_what_if`: what a cache or another layout of the files would do for a traced load.

`time_scales`: what a modelled device completes of a load that is made faster and slower. The model
is open loop, so the rate at which requests arrive follows the scale alone; what is completed levels
off where the device is always busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from fitting.compiled.loops import BoolArray, FloatArray
from fitting.errors import FittingError
from fitting.storage.caches import POLICIES, WRITES, Cache
from fitting.storage.devices import ORDERS, FilePages, PageLayout, SolidState
from fitting.storage.reuse_distance import HitRatioCurve, ReuseSample, accessed_blocks
from fitting.storage.survey import BLOCK
from ppw.errors import PpwError
from ppw.results import axes, result as rs, text as tx
from ppw.results.axes import Axes
from ppw.storage import fitted_devices as fd, generate, trace_model, trace_source as ts
from ppw.storage.trace_model import TraceModel
from ppw.storage.trace_source import Batches

_Maker = Callable[["_Plan", int], "StorageOption"]

_WRITE = 1
# Blocks of all devices are numbered together: the device stands above so many bits of the block.
_DEVICE_SHIFT = 44
_LAYOUTS = {"address": "order of address kept", "first_use": "order of first use"}
# A device that is busy for more of the time than this has a queue that only grows.
_BUSY = 0.99
_CURVE_POINTS = 40
SCALES = (4.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
# A device that completes less than this share of what is offered has fallen behind.
_KEEPS_UP = 0.95


class StorageOption(fd.Storage):
    """The storage without a change, which takes a trace batch by batch."""

    def outcome(self) -> dict[str, float]:
        """Return the columns of `TraceWhatIf.table` that the requests decide."""
        return {
            "device_s": self.busy_s / max(1, self.latencies.requests),
            "latency_s": self.latencies.mean_s,
            "latency_p99_s": self.latencies.quantile_s(0.99),
            "utilisation": self.utilisation,
            "hit_ratio": np.nan,
            "sequential_share": self.ends.sequential_share,
            "broken_share": 0.0,
        }


class CachedStorage(StorageOption):
    """A cache of several drives before the storage.

    Reads that find all of their blocks, and with write-back all writes, take the cache's time.
    Others take the storage's. Filling the cache takes none; blocks that write-back evicts cost the
    storage a write each, beside its other work.
    """

    def __init__(
        self, device: fd.Device, seed: int, cache: Cache, front: SolidState, block_bytes: int
    ) -> None:
        super().__init__(device, seed)
        self._cache, self._block = cache, block_bytes
        self._front, self._overall = fd.Storage(front), fd.Latencies()
        self._hits = self._accesses = 0

    def take(self, batch: ts.RequestColumns) -> FloatArray:
        """Serve the next requests; return their latencies (s), those of the misses first."""
        # The storage sees the misses alone, in their order, and its queue with them.
        served = self._serve(batch)
        front = batch.pick(served)
        # One cache serves all devices.
        front = front._replace(device=np.zeros_like(front.device))
        latencies = super().take(batch.pick(~served)), self._front.take(front)
        for latency_s in latencies:
            self._overall.add(latency_s)
        return np.concatenate(latencies)

    def _serve(self, batch: ts.RequestColumns) -> BoolArray:
        """Access the cache; return the mask of the requests that it answers."""
        kept = np.flatnonzero(batch.op <= _WRITE)
        blocks, request = accessed_blocks(batch.lbn[kept], batch.size_bytes[kept], self._block)
        writes = batch.op[kept] == _WRITE
        device = batch.device[kept].astype(np.int64)[request]
        hits = self._cache.access(device << _DEVICE_SHIFT | blocks, writes[request])
        self._hits += int(hits.sum())
        self._accesses += len(hits)
        # A read that misses one of its blocks goes to the storage as a whole.
        missed = np.bincount(request, ~hits, minlength=len(kept))
        served = np.zeros(len(batch.op), dtype=np.bool_)
        served[kept] = np.where(writes, self._cache.writes == "back", missed == 0)
        return served

    def outcome(self) -> dict[str, float]:
        """Return the outcome behind the cache, with the time that dirty blocks cost in the end."""
        # Each dirty block is a write to the storage, at the mean distance of two places: a third.
        dirty = self._cache.written_back + self._cache.dirty
        third = int(getattr(self.device, "capacity_bytes", BLOCK) / BLOCK) // 3
        one = np.array([[_WRITE], [third], [self._block], [0]])
        cleaning_s = dirty * float(self.device.service_s(*one)[0])
        total_s = self.busy_s + self._front.busy_s + cleaning_s
        return super().outcome() | {
            "device_s": total_s / self._overall.requests,
            "latency_s": self._overall.mean_s,
            "latency_p99_s": self._overall.quantile_s(0.99),
            "hit_ratio": self._hits / self._accesses if self._accesses else np.nan,
        }


class DefragmentedStorage(StorageOption):
    """The storage with every file in one piece."""

    def __init__(self, device: fd.Device, layout: PageLayout, seed: int) -> None:
        super().__init__(device, seed)
        self._layout, self._ends, self._broken = layout, fd.LastEnds(), 0

    def take(self, batch: ts.RequestColumns) -> FloatArray:
        """Serve the next requests at their new places; return their latencies (s)."""
        moved = self._layout.move(batch.device, batch.lbn, batch.size_bytes)
        self._broken += int(moved.broken.sum())
        self._ends.before(batch.device, moved.lbn, (moved.end - moved.lbn) * BLOCK)
        # A request that is taken apart ends elsewhere; its next one then has to move.
        return super().take(batch._replace(lbn=moved.lbn))

    def outcome(self) -> dict[str, float]:
        """Return the outcome, with the share of the requests that the layout takes apart."""
        return super().outcome() | {
            "sequential_share": self._ends.sequential_share,
            "broken_share": self._broken / self.latencies.requests,
        }


class _Plan(NamedTuple):
    """An option by name, and what it adds."""

    option: str
    kind: str
    drives: int = 0
    policy: str = ""
    order: str = ""


def _plans(caches: Sequence[int], policies: Sequence[str], defragment: bool) -> list[_Plan]:
    """List the options, the storage as it is first."""
    plans = [_Plan("as it is", "base")]
    for drives in caches:
        if drives < 0:
            raise PpwError(f"{drives} caches: give 0 or more")
        for policy in policies if drives else ():
            name = f"{drives} cache drive{'s' * (drives > 1)}, {policy.upper()}"
            plans.append(_Plan(name, "cache", drives, policy))
    layouts = (_Plan(f"defragmented, {_LAYOUTS[k]}", "layout", order=k) for k in ORDERS)
    return [*plans, *layouts] if defragment else plans


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceWhatIf(ts.TraceResult):
    """What changes of a storage system are worth for a load.

    Attributes
    ----------
    table : pandas.DataFrame
        One row an option.
    curve : pandas.DataFrame
        LRU hit ratio by ``cache_bytes``.
    writes : str
        Write policy of the caches: back, through, or around.
    block_bytes : float
        Block of the caches (B).
    runs : float
        Number of runs.
    device, cache_device : str
        Models of the storage and of a cache drive.
    touched_bytes : float
        What the first trace touches, in blocks.
    """

    kind: ClassVar[str] = "trace_what_if"
    tables: ClassVar[tuple[rs.Table, ...]] = (
        rs.Table(
            "table",
            """
            option           | text      | option     | change of the storage
            kind             | text      |            | base, cache, layout
            drives           | count     |            | number of cache drives
            cache_bytes      | B         |            | size of the cache
            policy           | text      |            | what a full cache evicts
            hit_ratio        | share .1% | hits       | blocks found in the cache
            sequential_share | share .1% | sequential | sequential requests of those to a device
            broken_share     | share     |            | requests that a layout splits
            speed_up         | 1 .2f     | speed-up   | `device_s` of storage as it is over this one
            lower            | 1         |            | smallest of the runs
            upper            | 1         |            | largest of the runs
            spread           | share .2% | spread     | standard deviation over mean
            device_s         | s         | time       | time per request without a queue
            latency_s        | s         | latency    | mean latency at the arrivals of the trace
            latency_p99_s    | s         |            | 99th percentile of it
            utilisation      | share     | busy       | busy share of the busiest device
            added_cost       | 1         | added cost | price of the drives; missing if not given
            added_w          | W         | added W    | power of the drives; missing if not given
            """,
            "Options",
            note=(
                "Speed-up: time per request of device and cache, one request at a time, compared "
                "with the present storage. Latency: with the arrivals of the trace, and queues."
            ),
            most=1000,
            show=fd.time_cells("device_s", "latency_s"),
        ),
    )

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
        for row in rs.rows_of(options.sort_values("speed_up", ascending=False, kind="stable")):
            spread = f" ({row['lower']:.2f} to {row['upper']:.2f} over {self.runs:g} runs)"
            why = f"{row['sequential_share']:.1%} of the requests are sequential"
            if row["kind"] == "cache":
                why = f"{row['hit_ratio']:.1%} of the blocks are hits"
            said.append(f"{row['option']}: {row['speed_up']:.2f} times as fast{spread}, {why}.")
        for row in rs.rows_of(options[options["kind"] == "cache"].head(1)):
            size, touched = row["cache_bytes"] / row["drives"], tx.shown(self.touched_bytes, "B")
            share = size / self.touched_bytes
            part = (
                f"{100 * share:.3g}% of"
                if share < 1
                else f"{tx.shown(float(f'{share:.3g}'))} times"
            )
            lead = f"A cache drive has {tx.shown(size, 'B')}"
            said.append(f"{lead}, {part} the {touched} that the trace touches.")
        return said

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw hit ratio over cache size, with the caches that were asked for."""
        ax, label = axes.new_axes(ax), "LRU, writes bring blocks in"
        ax.plot(*_hit_points(self.curve), color=axes.CURVE, label=label)
        caches = self.table[self.table["kind"] == "cache"]
        for policy, marker in zip(caches["policy"].unique(), "osD^vP", strict=False):
            style = {"color": axes.PROJECTED, "ms": 5, "mfc": "none", "label": policy.upper()}
            ax.plot(*_hit_points(caches[caches["policy"] == policy]), marker, **style)
        ax.set(xscale="log", xlabel="cache (GB)", ylabel="hits (% of blocks)")
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False)
        return ax


def _hit_points(table: pd.DataFrame) -> tuple[Any, Any]:
    """Cache sizes (GB) and hit ratios (%) of a table."""
    return table["cache_bytes"] / 1e9, 100 * table["hit_ratio"]


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
        Block of the caches (B).
    defragment : bool
        Lay every file out in one piece; the trace needs a file for each request.
    device, cache_device : str
        ``disk`` or ``ssd``, with parameters if need be (`ppw.storage.fitted_devices.parse_device`).
    cache_price, cache_power_w : float, optional
        Of a drive; what an option adds is this times its drives.
    repeats : int
        For a single trace: how often, each with other angles of the disk's platter.
    seed : int
        Random seed of the angles.

    Returns
    -------
    TraceWhatIf

    Raises
    ------
    MeasurementError
        Where a trace cannot be read.
    PpwError
        For a trace without files or times, or arguments that cannot be.
    """
    tx.check_choice("writes", writes, WRITES)
    for policy in policies:
        tx.check_choice("policy", policy, POLICIES)
    behind, cache_drive = fd.parse_device(device), fd.parse_device(cache_device)
    if not isinstance(cache_drive.model, SolidState):
        raise PpwError("a cache is a solid state drive: give --cache-device ssd,…")
    # Space, footprint and files are those of the first trace; others are runs of the same load.
    alone = ts.is_one_trace(traces)
    if alone and repeats < 1:
        raise PpwError(f"{repeats} repeats: at least 1 is needed")
    sources = ts.open_traces(traces) * (repeats if alone else 1)
    if not sources:
        raise PpwError("no trace was given")
    found = ts.survey(sources[0])
    behind = behind.reaching(found.survey.high_lbn)
    if defragment and not found.has_files:
        raise PpwError(
            "the trace has no file names, which --defragment needs: record a trace with files "
            "(ETW), or use --map file=COLUMN"
        )
    curve = _hit_ratios(sources[0], block_bytes)
    touched = float(curve.footprint * block_bytes)
    size = _drive_bytes(cache_bytes, touched, block_bytes)
    front = cache_drive.model

    def make_cached(plan: _Plan, seed: int) -> CachedStorage:
        """Put a cache of so many drives before the storage."""
        try:
            cache = Cache(int(plan.drives * size // block_bytes), plan.policy, writes)
        except FittingError as error:
            raise PpwError(str(error)) from error
        # Drives are striped: the cache serves as many more requests at a time.
        striped = replace(front, units=plan.drives * front.units)
        return CachedStorage(behind.model, seed, cache, striped, block_bytes)

    plans = _plans(caches, policies, defragment)
    outcomes = [
        _outcomes(source, plans, behind.model, make_cached, seed + k)
        for k, source in enumerate(sources)
    ]
    table = _table(plans, outcomes, size)
    for column, each in (("added_cost", cache_price), ("added_w", cache_power_w)):
        added = table["drives"] * (np.nan if each is None else float(each))
        table[column] = added.where(table["drives"] > 0, 0.0)
    remarks = tuple(_caveats(table, behind, writes))
    rs.warn_caveats(remarks)
    # The curve reaches to the largest cache and to all that the trace touches.
    largest = max(2.0, size * max([1, *caches]) / block_bytes, float(curve.footprint))
    blocks = np.unique(np.geomspace(1, largest, _CURVE_POINTS).astype(np.int64))
    sizes = {"cache_bytes": blocks * float(block_bytes), "hit_ratio": curve.hit_ratio(blocks)}
    return TraceWhatIf(
        table=table,
        curve=pd.DataFrame(sizes),
        writes=writes,
        block_bytes=float(block_bytes),
        runs=float(len(sources)),
        device=behind.text,
        cache_device=cache_drive.text,
        touched_bytes=touched,
        caveats=remarks,
        input_digest=rs.numbers_digest(found.digest, len(sources)),
    )


def _drive_bytes(cache_bytes: float | None, touched: float, block: int) -> float:
    """Check the size of a cache drive (B); by default it is a tenth of what the trace touches."""
    if cache_bytes is None:
        return max(float(block), 0.1 * touched)
    size = tx.as_positive("cache size (bytes)", cache_bytes)
    if size < block:
        raise PpwError(
            f"a cache of {size:g} B is less than a block of {block} B: write it with a unit, 10GiB"
        )
    return size


def _hit_ratios(source: Batches, block: int) -> HitRatioCurve:
    """Measure the hit ratio curve of an LRU cache of all devices together."""
    sample = ReuseSample()
    for batch in ts.columns(source):
        blocks, request = accessed_blocks(batch.lbn, batch.size_bytes, block)
        sample.add(batch.device.astype(np.int64)[request] << _DEVICE_SHIFT | blocks)
    return sample.curve()


def _outcomes(
    source: Batches, plans: Sequence[_Plan], device: fd.Device, make_cached: _Maker, seed: int
) -> list[dict[str, float]]:
    """Put a trace through every option at once."""
    layouts: dict[str, PageLayout] = {}
    if any(plan.order for plan in plans):
        pages = FilePages()
        for batch in ts.columns(source):
            pages.add(batch.device, batch.file, batch.lbn, batch.size_bytes)
        layouts = {order: pages.layout(order) for order in ORDERS}
    makers: dict[str, _Maker] = {
        "base": lambda plan, seed: StorageOption(device, seed),
        "cache": make_cached,
        "layout": lambda plan, seed: DefragmentedStorage(device, layouts[plan.order], seed),
    }
    options = [makers[plan.kind](plan, seed) for plan in plans]
    for batch in ts.columns(source):
        for one in options:
            one.take(batch)
    return [one.outcome() for one in options]


def _table(
    plans: Sequence[_Plan], outcomes: Sequence[Sequence[dict[str, float]]], size: float
) -> pd.DataFrame:
    """Mean outcome of each option over the runs, and its speed-up against the first one."""
    # Runs by options by figures. Ratios are taken run by run, so what runs share cancels out.
    figures = np.array([[[*one.values()] for one in run] for run in outcomes])
    mean = pd.DataFrame(figures.mean(axis=0), columns=[*outcomes[0][0]])
    device_s = figures[:, :, mean.columns.get_loc("device_s")]
    speed_up, runs = device_s[:, :1] / device_s, len(outcomes)
    table = pd.DataFrame(plans).drop(columns="order").astype({"drives": float})
    table.insert(3, "cache_bytes", table["drives"] * size)
    return table.join(mean).assign(
        speed_up=speed_up.mean(axis=0),
        lower=speed_up.min(axis=0),
        upper=speed_up.max(axis=0),
        spread=speed_up.std(axis=0, ddof=1) / speed_up.mean(axis=0) if runs > 1 else np.nan,
    )


def _caveats(table: pd.DataFrame, device: fd.NamedDevice, writes: str) -> Iterator[str]:
    """Say what could mislead in the options."""
    yield device.caveat
    has_caches, has_layouts = ((table["kind"] == kind).any() for kind in ("cache", "layout"))
    if table["utilisation"].max() > _BUSY:
        yield (
            "a device is always busy, so its queue only grows and latency depends on the length "
            "of the trace: use the time per request instead"
        )
    if writes == "back" and has_caches:
        yield (
            "with --writes back, a cache drive that fails loses data that it has not yet written "
            "to storage"
        )
    if (table["broken_share"] > 0).any():
        share = table["broken_share"].max()
        yield (
            f"a new layout splits up to {share:.1%} of the requests, but ppw adds no time for that"
        )
    if has_layouts:
        yield (
            "a block trace does not show where in its file a block is: the layout by address gains "
            "too little for fragmented files, that by first use too much for files read at random"
        )
    if has_caches:
        yield "caches start empty, so a short trace has fewer hits than a longer one"


@dataclass(frozen=True, kw_only=True, eq=False)
class TimeScales(rs.Result):
    """Throughput and latency of a device against the time scale of a load.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a scale, slowest first.
    device : str
        Model that all of it is computed by.
    """

    kind: ClassVar[str] = "trace_time_scales"
    tables: ClassVar[tuple[rs.Table, ...]] = (
        rs.Table(
            "table",
            """
            time_scale    | 1 .6g     | time scale   | factor of all times: 2 is twice as slow
            offered       | 1         | offered/s    | requests that arrive per second
            completed     | 1         | completed/s  | requests completed per second
            utilisation   | share .1% | busy         | busy share of the busiest device
            latency_s     | s         | mean latency | mean latency
            latency_p99_s | s         | 99th         | 99th percentile of the latency
            """,
            "Figures",
        ),
    )

    table: pd.DataFrame
    device: str

    def verdict(self) -> str:
        """Say where throughput levels off."""
        behind = self.table[self.table["completed"] < _KEEPS_UP * self.table["offered"]]
        most = tx.shown(float(self.table["completed"].max()))
        if behind.empty:
            return f"The device keeps up at every scale, with up to {most} requests a second."
        return (
            f"At time scales up to {behind['time_scale'].max():g} the device falls behind; it "
            f"completes {most} requests a second at most."
        )

    def text_parts(self) -> list[str]:
        """Sentences and tables of the summary, in their order."""
        verdict, *lines = super().text_parts()
        return [verdict, "", *lines, "", f"device: {self.device}"]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw requests completed against requests offered."""
        ax, offered = axes.new_axes(ax), self.table["offered"]
        ax.plot(offered, offered, ":", color=axes.MEASURED, label="offered")
        ax.plot(offered, self.table["completed"], "o-", color=axes.CURVE, label="completed")
        ax.set(xscale="log", xlabel="requests offered per second")
        ax.set(yscale="log", ylabel="requests a second")
        ax.legend()
        return ax


def time_scales(
    model: TraceModel, *, scales: Sequence[float] = SCALES, device: str = "disk", seed: int = 0
) -> TimeScales:
    """Serve the load of a model at several time scales by a device model.

    Parameters
    ----------
    model : TraceModel
    scales : sequence of float
        Factors of all times: 2 is twice as slow.
    device : str
        ``disk`` or ``ssd``, with parameters if need be (`ppw.storage.fitted_devices.parse_device`).
    seed : int
        Random seed of the requests generated, the same at every scale; two hundred thousand at
        most.

    Returns
    -------
    TimeScales

    Raises
    ------
    PpwError
        For no scale, one that is not positive, or an unknown device.
    """
    if not len(scales):
        raise PpwError("no time scale was given")
    drive = fd.parse_device(device).reaching(model.survey.high_lbn)
    count = min(trace_model.MOST_SIMULATED, model.survey.requests)
    rows = []
    # The same requests at every scale, so that the scale alone makes the difference.
    for scale in sorted((tx.as_positive("time scale", s) for s in scales), reverse=True):
        storage = fd.Storage(drive.model)
        for batch in ts.columns(
            generate.generate_trace(model, count=count, seed=seed, time_scale=scale)
        ):
            storage.take(batch)
        latencies = storage.latencies.mean_s, storage.latencies.quantile_s(0.99)
        rows.append((scale, model.rate / scale, storage.iops, storage.utilisation, *latencies))
    growing = "open loop: if the device is always busy, its queue and latency only grow"
    remarks = (drive.caveat, growing)
    rs.warn_caveats(remarks)
    table = pd.DataFrame(rows, columns=TimeScales.tables[0].names)
    return TimeScales(
        table=table, device=drive.text, caveats=remarks, input_digest=model.input_digest
    )
