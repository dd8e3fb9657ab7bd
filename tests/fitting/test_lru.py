"""LRU hit ratios: against libCacheSim and against the definition."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitting.errors import FittingError
from fitting.lru import hit_ratio_curve, reuse_distances, touched_blocks


def test_libcachesim_hits_the_same_requests():
    import libcachesim

    rng = np.random.default_rng(7)
    blocks = np.minimum(rng.zipf(1.2, 20_000), 3000).astype(np.int64)
    curve = hit_ratio_curve(blocks)
    for size in (1, 10, 100, 500, 2000):
        cache = libcachesim.LRU(cache_size=size)
        hits = 0
        for at, block in enumerate(blocks):
            request = libcachesim.Request()
            request.clock_time, request.obj_id, request.obj_size = at, int(block), 1
            hits += bool(cache.get(request))
        assert curve.hit_ratio(size) * curve.accesses == pytest.approx(hits, abs=1e-6)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), st.integers(0, 13))
def test_an_ordered_dictionary_hits_the_same(blocks, size):
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for block in blocks:
        if block in cache:
            hits += 1
            cache.move_to_end(block)
        elif size:
            cache[block] = None
            if len(cache) > size:
                cache.popitem(last=False)
    assert hit_ratio_curve(blocks).hit_ratio(size) == pytest.approx(hits / len(blocks))


def test_distances_by_hand():
    assert reuse_distances([5, 6, 5, 5, 7, 6]).tolist() == [-1, -1, 1, 0, -1, 2]


def test_blocks_that_never_come_back_hit_at_no_size():
    curve = hit_ratio_curve([3, 1, 2])
    assert curve.hit_ratio([0, 1, 100]).tolist() == [0, 0, 0]
    assert (curve.footprint, curve.hits.tolist()) == (3, [0])


def test_a_request_off_the_grid_touches_one_block_more():
    blocks, request = touched_blocks([8, 63], [8192, 8192])
    assert blocks.tolist() == [1, 2, 7, 8, 9]
    assert request.tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("blocks", [[], [-1]])
def test_what_is_no_block_is_refused(blocks):
    with pytest.raises(FittingError, match="block"):
        reuse_distances(blocks)
