"""The least frequently used block, against a simulation that looks through all it holds."""

from __future__ import annotations

import numpy as np
import pytest

from fitting.caches import Cache


def simulated(blocks, writes, size):
    """Hits, and blocks cleaned when evicted, of a cache that writes back."""
    uses, last, dirty, hits, cleaned = {}, {}, set(), [], 0
    for time, (block, write) in enumerate(zip(blocks.tolist(), writes.tolist(), strict=True)):
        hits.append(block in uses)
        if block not in uses and len(uses) == size:
            victim = min(uses, key=lambda b: (uses[b], last[b]))
            cleaned += victim in dirty
            dirty.discard(victim)
            del uses[victim], last[victim]
        uses[block], last[block] = uses.get(block, 0) + 1, time
        if write:
            dirty.add(block)
    return hits, cleaned


@pytest.mark.parametrize("size", [1, 2, 3, 10, 40])
def test_hits_and_cleaned_blocks(size):
    rng = np.random.default_rng(size)
    blocks = (100 * rng.random(1500) ** 2).astype(np.int64)
    writes = rng.random(1500) < 0.3
    cache = Cache(size, "lfu", "back")
    found = cache.access(blocks, writes)
    hits, cleaned = simulated(blocks, writes, size)
    assert found.tolist() == hits
    assert cache.cleaned == cleaned
