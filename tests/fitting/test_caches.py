"""Caches against libcachesim, an independent simulator, and against cases worked by hand."""

from __future__ import annotations

import libcachesim
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitting.caches import POLICIES, WRITES, Cache
from fitting.errors import FittingError
from fitting.lru import hit_ratio_curve

PEERS = {
    "lru": libcachesim.LRU,
    "fifo": libcachesim.FIFO,
    "clock": libcachesim.Clock,
    "lfu": libcachesim.LFU,
}


def popular(accesses=30_000, blocks=3_000, seed=3):
    """A skewed load with runs: some blocks are hot, some are only passed through."""
    rng = np.random.default_rng(seed)
    hot = (blocks * rng.random(accesses) ** 3).astype(np.int64)
    scan = blocks + np.arange(accesses) % (2 * blocks)
    return np.where(rng.random(accesses) < 0.7, hot, scan)


def peer_hits(policy, size, blocks):
    cache, request = PEERS[policy](cache_size=size), libcachesim.Request()
    request.obj_size = 1
    found = np.empty(len(blocks), dtype=bool)
    for i, block in enumerate(blocks.tolist()):
        request.obj_id = block
        found[i] = cache.get(request)
    return found


@pytest.mark.parametrize("size", [1, 7, 100, 1500, 20_000])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_hit_is_libcachesims(policy, size):
    blocks = popular()
    hits = Cache(size, policy).access(blocks, np.zeros(len(blocks), dtype=bool))
    np.testing.assert_array_equal(hits, peer_hits(policy, size, blocks))


@pytest.mark.thirdparty
@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
def test_lru_of_a_real_trace_is_libcachesims(share, data_dir):
    from fitting.lru import touched_blocks
    from measurements.traces import read_trace

    trace = read_trace(data_dir / "block-traces" / "raw" / "wsrch-small.trace").to_table()
    columns = (trace[name].to_numpy() for name in ("lbn", "size_bytes"))
    blocks = touched_blocks(*columns)[0]
    size = int(share * len(np.unique(blocks)))
    peer = peer_hits("lru", size, blocks)
    hits = Cache(size).access(blocks, np.zeros(len(blocks), dtype=bool))
    np.testing.assert_array_equal(hits, peer)
    assert hit_ratio_curve(blocks).hit_ratio(size) == pytest.approx(peer.mean(), abs=1e-12)


@given(
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=200),
    st.integers(1, 8),
    st.sampled_from(POLICIES),
    st.sampled_from(WRITES),
    st.integers(1, 50),
)
def test_batches_make_no_difference(accesses, size, policy, writes, batch):
    blocks, is_write = (np.array(column) for column in zip(*accesses, strict=True))
    whole, parts = Cache(size, policy, writes), Cache(size, policy, writes)
    at_once = whole.access(blocks, is_write)
    pieces = [
        parts.access(blocks[i : i + batch], is_write[i : i + batch])
        for i in range(0, len(blocks), batch)
    ]
    np.testing.assert_array_equal(at_once, np.concatenate(pieces))
    assert (whole.cleaned, whole.dirty) == (parts.cleaned, parts.dirty)


class TestWrites:
    # Two blocks of room; writes in capitals: A b A c d.
    BLOCKS = (1, 2, 1, 3, 4)
    IS_WRITE = (True, False, True, False, False)

    @pytest.mark.parametrize(
        ("writes", "hits", "cleaned"),
        [
            # A in; b in; A again; c evicts b; d evicts A, which is dirty.
            ("back", [0, 0, 1, 0, 0], 1),
            ("through", [0, 0, 1, 0, 0], 0),
            # A goes past the cache both times.
            ("around", [0, 0, 0, 0, 0], 0),
        ],
    )
    def test_worked_by_hand(self, writes, hits, cleaned):
        cache = Cache(2, "lru", writes)
        found = cache.access(self.BLOCKS, self.IS_WRITE)
        assert found.tolist() == [bool(hit) for hit in hits]
        assert cache.cleaned == cleaned

    @pytest.mark.parametrize("policy", POLICIES)
    def test_every_dirty_block_is_cleaned_once_or_still_there(self, policy):
        blocks = np.arange(100)
        cache = Cache(30, policy, "back")
        cache.access(blocks, blocks % 2 == 0)
        assert cache.cleaned + cache.dirty == 50


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0,), "a cache of 0 blocks"),
        ((2**40,), "or larger blocks"),
        ((5, "mru"), "no cache 'mru'"),
        ((5, "lru", "sideways"), "'sideways'"),
    ],
)
def test_what_is_no_cache_is_refused(arguments, said):
    with pytest.raises(FittingError, match=said):
        Cache(*arguments)


def test_a_negative_block_is_refused():
    with pytest.raises(FittingError, match="0 or more"):
        Cache(2).access([1, -1], [False, False])
