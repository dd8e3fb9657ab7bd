"""`miss_ratio_curves`: misses of caches of several sizes and policies, by request and by byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import ClassVar

import numpy as np
import pandas as pd

from fitting.compiled.loops import BoolArray, IntArray
from fitting.storage.caches import POLICIES, WRITES, Cache
from fitting.storage.reuse_distance import accessed_blocks
from fitting.storage.survey import BLOCK
from ppw.errors import PpwError
from ppw.results import axes, result as rs, text as tx
from ppw.results.axes import Axes
from ppw.storage import trace_source as ts
from ppw.storage.trace_source import Batches

_WRITE = 1
# Blocks of all devices are numbered together: the device stands above so many bits of the block.
_DEVICE_SHIFT = 44
# Sizes of the caches, as shares of what is accessed.
_SHARES = np.geomspace(0.001, 1.0, 10)
_RATIOS = ["miss_ratio", "byte_miss_ratio", "block_miss_ratio"]


@dataclass(frozen=True, kw_only=True, eq=False)
class MissRatioCurves(ts.TraceResult):
    """Miss ratios of simulated caches.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a policy and size.
    writes : str
        Write policy: through, around or back.
    block_bytes : float
        Block of the caches (B).
    accessed_bytes : float
        Size (B) of all accessed blocks.
    """

    kind: ClassVar[str] = "trace_miss_ratios"
    tables: ClassVar[tuple[rs.Table, ...]] = (
        rs.Table(
            "table",
            """
            policy           | text      | policy | replacement policy
            cache_bytes      | B         | cache  | size of the cache
            cache_share      | share .1% | share  | its size as a share of the accessed blocks
            miss_ratio       | share .2% | requests missed | requests with a block that is missed
            byte_miss_ratio  | share .2% | bytes missed | bytes that are in missed blocks
            block_miss_ratio | share .2% | blocks missed | accesses to blocks that are missed
            """,
            "Miss ratios",
            most=100,
        ),
    )

    table: pd.DataFrame
    writes: str
    block_bytes: float
    accessed_bytes: float

    def verdict(self) -> list[str]:
        """Say which policy misses the fewest requests, on average over the sizes."""
        means = self.table.groupby("policy", sort=False)["miss_ratio"].mean()
        size = tx.shown(self.accessed_bytes, "B")
        best = str(means.idxmin()).upper()
        return [
            f"{best} misses the fewest requests: {means.min():.1%} on average over caches of up to "
            f"{size}, which the trace accesses."
        ]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw miss ratios by request (lines) and by byte (dashed) over the size of the cache."""
        ax = axes.new_axes(ax)
        for policy in self.table["policy"].unique():
            rows, name = self.table[self.table["policy"] == policy], str(policy).upper()
            (line,) = ax.plot(rows["cache_bytes"] / 1e9, 100 * rows["miss_ratio"], label=name)
            by_byte = 100 * rows["byte_miss_ratio"]
            ax.plot(rows["cache_bytes"] / 1e9, by_byte, "--", color=line.get_color())
        ax.set(xscale="log", xlabel="cache (GB)", ylabel="misses (%), dashed by byte")
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False)
        return ax


def miss_ratio_curves(
    trace: Batches | str | PathLike[str],
    *,
    policies: Sequence[str] = ("lru",),
    cache_bytes: Sequence[float] | None = None,
    writes: str = "through",
    block_bytes: int = 4096,
) -> MissRatioCurves:
    """Simulate caches of several sizes and policies on a trace.

    Parameters
    ----------
    trace : Trace or path
    policies : sequence of str
        Of `fitting.storage.caches.POLICIES`.
    cache_bytes : sequence of float, optional
        Sizes (B) of the caches. Default: ten, from a thousandth to all of the accessed blocks.
    writes : str
        ``through`` and ``back`` bring written blocks into the cache, ``around`` does not.
    block_bytes : int
        Block of the caches (B).

    Returns
    -------
    MissRatioCurves

    Raises
    ------
    PpwError
        For arguments that cannot be, or a trace without reads and writes.
    """
    tx.check_choice("writes", writes, WRITES)
    for policy in policies:
        tx.check_choice("policy", policy, POLICIES)
    if block_bytes < BLOCK or block_bytes % BLOCK:
        raise PpwError(f"a block of {block_bytes} B: give a multiple of {BLOCK}")
    source = ts.open_trace(trace)
    accessed = np.zeros(0, dtype=np.int64)
    for blocks, *_ in _accesses(source, block_bytes):
        accessed = np.union1d(accessed, blocks)
    if not len(accessed):
        raise PpwError("the trace has no reads and writes for a cache")
    shares = _SHARES if cache_bytes is None else np.array(cache_bytes) / block_bytes / len(accessed)
    sizes = np.unique(np.maximum((shares * len(accessed)).astype(np.int64), 1))
    caches = [Cache(int(size), policy, writes) for policy in policies for size in sizes]
    missed, totals = np.zeros((len(caches), 3)), np.zeros(3)
    for blocks, request, bytes_, is_write in _accesses(source, block_bytes):
        totals += [int(request[-1]) + 1, bytes_.sum(), len(blocks)]
        for k, cache in enumerate(caches):
            miss = ~cache.access(blocks, is_write)
            requests = np.count_nonzero(np.bincount(request, miss))
            missed[k] += [requests, bytes_[miss].sum(), miss.sum()]
    table = pd.DataFrame(missed / totals, columns=_RATIOS)
    table.insert(0, "policy", [cache.policy for cache in caches])
    table.insert(1, "cache_bytes", [float(cache.blocks * block_bytes) for cache in caches])
    table.insert(2, "cache_share", [cache.blocks / len(accessed) for cache in caches])
    return MissRatioCurves(
        table=table,
        writes=writes,
        block_bytes=float(block_bytes),
        accessed_bytes=float(len(accessed) * block_bytes),
        caveats=(),
        input_digest=rs.numbers_digest(ts.survey(source).digest, block_bytes),
    )


def _accesses(
    source: Batches, block_bytes: int
) -> Iterator[tuple[IntArray, IntArray, IntArray, BoolArray]]:
    """Yield by batch the accesses to blocks: block, request, bytes, and whether it writes."""
    for batch in ts.columns(source):
        moves = batch.pick(batch.op <= _WRITE)
        if not len(moves.op):
            continue
        blocks, request = accessed_blocks(moves.lbn, moves.size_bytes, block_bytes)
        begin = moves.lbn[request] * BLOCK
        end = begin + moves.size_bytes[request]
        inside = np.minimum(end, (blocks + 1) * block_bytes) - np.maximum(
            begin, blocks * block_bytes
        )
        device = moves.device[request].astype(np.int64)
        yield device << _DEVICE_SHIFT | blocks, request, inside, moves.op[request] == _WRITE
