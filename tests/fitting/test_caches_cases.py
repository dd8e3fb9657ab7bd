"""Who is evicted, against a simulation that looks through all it holds."""

from __future__ import annotations

import numpy as np
import pytest

from fitting.caches import Cache


def simulated(policy, blocks, writes, size):
    """Hits, and blocks cleaned when evicted, of a cache that writes back."""
    weighed = policy == "lfu"
    uses, last, dirty, hits, cleaned = {}, {}, set(), [], 0
    for time, (block, write) in enumerate(zip(blocks.tolist(), writes.tolist(), strict=True)):
        hits.append(block in uses)
        if block not in uses and len(uses) == size:
            victim = min(uses, key=lambda b: (weighed * uses[b], last[b]))
            cleaned += victim in dirty
            dirty.discard(victim)
            del uses[victim], last[victim]
        uses[block], last[block] = uses.get(block, 0) + 1, time
        if write:
            dirty.add(block)
    return hits, cleaned


@pytest.mark.parametrize("size", [1, 2, 3, 10, 40])
@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_hits_and_cleaned_blocks(policy, size):
    rng = np.random.default_rng(size)
    # Some come several times at once, so that a later one may have been used less.
    blocks = np.repeat((100 * rng.random(750) ** 2).astype(np.int64), rng.integers(1, 4, 750))
    writes = rng.random(len(blocks)) < 0.3
    cache = Cache(size, policy, "back")
    found = cache.access(blocks, writes)
    hits, cleaned = simulated(policy, blocks, writes, size)
    assert found.tolist() == hits
    assert cache.cleaned == cleaned
