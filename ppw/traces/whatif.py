"""`trace_what_if`: what a cache or another layout of the files would do for a traced load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from fitting.storage.caches import POLICIES, WRITES
from fitting.storage.devices import SolidState
from fitting.storage.reuse_distance import ReuseSample, touched_blocks
from ppw import caveats as cv
from ppw.arguments import as_positive, known_choice
from ppw.errors import PpwError
from ppw.estimate import shown
from ppw.result import numbers_digest
from ppw.tabled_result import TabledResult, rows_of
from ppw.tables import summary_text, text_table
from ppw.traces.devices import ASSUMED, described, parse_device, reaching, time_text
from ppw.traces.options import Outcome
from ppw.traces.source import columns, opened, survey
from ppw.traces.whatif_plans import outcomes_of, plans_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from matplotlib.axes import Axes

    from ppw.traces.devices import Device
    from ppw.traces.source import Batches
    from ppw.traces.whatif_plans import Plan

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
        from ppw.report.trace_whatif_page import plot_curve

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
        ``disk`` or ``ssd``, with parameters if need be (`ppw.traces.devices.parse_device`).
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
