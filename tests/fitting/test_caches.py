"""Caches, hit ratios and ages of reuse: libCacheSim, plain simulations, and cases by hand."""

import tracemalloc

import libcachesim
import numpy as np
import pytest
from hypothesis import given, strategies as st

from fitting.errors import FittingError
from fitting.storage import reuse_distance as reuse
from fitting.storage.caches import POLICIES, WRITES, Cache

PEERS = {
    "lru": "LRU",
    "fifo": "FIFO",
    "clock": "Clock",
    "lfu": "LFU",
    "arc": "ARC",
    "s3fifo": "S3FIFO",
}


# The peer's S3-FIFO keeps no block in a cache whose small queue has room for one.
SIZES = {"s3fifo": [20, 57, 100, 700, 7_000]}


@pytest.mark.parametrize(
    ("policy", "size"),
    [(policy, size) for policy in POLICIES for size in SIZES.get(policy, [1, 7, 100, 700, 7_000])],
)
def test_every_hit_is_libcachesims(policy, size):
    # A skewed load with runs: some blocks are hot, some are only passed through.
    rng, accesses, hottest = np.random.default_rng(3), 12_000, 1_200
    hot = (hottest * rng.random(accesses) ** 3).astype(np.int64)
    scan = hottest + np.arange(accesses) % (2 * hottest)
    blocks = np.where(rng.random(accesses) < 0.7, hot, scan)
    peer, request = getattr(libcachesim, PEERS[policy])(cache_size=size), libcachesim.Request()
    request.obj_size, expected = 1, []
    for block in blocks.tolist():
        request.obj_id = block
        expected.append(peer.get(request))
    hits = Cache(size, policy).access(blocks, np.zeros(len(blocks), dtype=bool))
    np.testing.assert_array_equal(hits, expected)
    if policy == "lru":
        ratio = reuse.hit_ratio_curve(blocks).hit_ratio(size)
        assert ratio == pytest.approx(np.mean(expected), abs=1e-12)


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
    both = (np.split(column, range(batch, len(blocks), batch)) for column in (blocks, is_write))
    pieces = [parts.access(*of) for of in zip(*both, strict=True)]
    np.testing.assert_array_equal(whole.access(blocks, is_write), np.concatenate(pieces))
    assert (whole.written_back, whole.dirty) == (parts.written_back, parts.dirty)


def simulated(policy, blocks, writes, size):
    """Hits, blocks cleaned when evicted and dirty blocks of a cache that writes back."""
    uses, last, dirty, hits, cleaned = {}, {}, set(), [], 0
    for time, (block, write) in enumerate(zip(blocks.tolist(), writes.tolist(), strict=True)):
        hits.append(block in uses)
        if block not in uses and len(uses) == size:
            victim = min(uses, key=lambda b: ((policy == "lfu") * uses[b], last[b]))
            cleaned += victim in dirty
            dirty.discard(victim)
            del uses[victim], last[victim]
        uses[block], last[block] = uses.get(block, 0) + 1, time
        if write:
            dirty.add(block)
    return hits, cleaned, len(dirty)


@pytest.mark.parametrize("size", [1, 2, 3, 10, 40])
@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_hits_and_cleaned_blocks_are_those_of_a_search_through_all_blocks(policy, size):
    rng = np.random.default_rng(size)
    # Some come several times at once, so that a later one may have been used less.
    blocks = np.repeat((100 * rng.random(750) ** 2).astype(np.int64), rng.integers(1, 4, 750))
    writes = rng.random(len(blocks)) < 0.3
    cache = Cache(size, policy, "back")
    hits = cache.access(blocks, writes).tolist()
    assert (hits, cache.written_back, cache.dirty) == simulated(policy, blocks, writes, size)


@pytest.mark.cases(
    "writes, again, cleaned",
    # A in; b in; A again; c evicts b; d evicts A, which is dirty.
    *(("back", True, 1), ("through", True, 0)),
    # A goes past the cache both times.
    ("around", False, 0),
)
def test_writes_worked_by_hand(writes, again, cleaned):
    # Two blocks of room; writes in capitals: A b A c d.
    cache = Cache(2, "lru", writes)
    found = cache.access([1, 2, 1, 3, 4], [True, False, True, False, False])
    assert found.tolist() == [False, False, again, False, False]
    assert cache.written_back == cleaned


def test_every_dirty_block_is_cleaned_once_or_still_there():
    for policy in POLICIES:
        cache = Cache(30, policy, "back")
        cache.access(np.arange(100), np.arange(100) % 2 == 0)
        assert cache.written_back + cache.dirty == 50


@pytest.mark.cases(
    "policy, size, accessed, hits",
    # 2 comes back as a ghost of those used once, so that 1 goes; 1 comes back, so that 3 goes.
    ("arc", 2, [1, 1, 2, 3, 2, 4, 1, 4], [0, 1, 0, 0, 0, 0, 0, 1]),
    # Of one block, the small queue is all there is.
    ("s3fifo", 1, [1, 1, 2, 2, 1], [0, 1, 0, 1, 0]),
)
def test_caches_with_ghosts_worked_by_hand(policy, size, accessed, hits):
    found = Cache(size, policy).access(accessed, np.zeros(len(accessed), dtype=bool))
    assert found.astype(int).tolist() == hits


def test_a_large_cache_takes_memory_for_the_blocks_that_it_holds():
    cache = Cache(2**27)
    # What is compiled at the first access takes memory, too.
    cache.access([0], [False])
    tracemalloc.start()
    for block in range(1, 14):
        cache.access([block], [False])
    grown = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert grown < 2**20


@pytest.mark.cases(
    "ask, message",
    (lambda: Cache(0), "a cache of 0 blocks"),
    (lambda: Cache(2**40), "or larger blocks"),
    (lambda: Cache(5, "mru"), "no cache 'mru'"),
    (lambda: Cache(5, "lru", "sideways"), "'sideways'"),
    (lambda: Cache(2).access([1, -1], [False, False]), "0 or more"),
    (lambda: reuse.reuse_distances([]), "block"),
    (lambda: reuse.reuse_distances([-1]), "block"),
    (lambda: reuse.ReuseSample().curve(), "no block"),
)
def test_impossible_caches_and_blocks_are_refused(ask, message):
    with pytest.raises(FittingError, match=message):
        ask()


@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), st.integers(1, 13))
def test_hit_ratios_are_those_of_a_search_through_all_blocks(blocks, size):
    hits, *_ = simulated("lru", np.array(blocks), np.zeros(len(blocks), dtype=bool), size)
    found = reuse.hit_ratio_curve(blocks).hit_ratio([0, size])
    assert found == pytest.approx([0, sum(hits) / len(blocks)])


def test_distances_and_accessed_blocks_by_hand():
    assert reuse.reuse_distances([5, 6, 5, 5, 7, 6]).tolist() == [-1, -1, 1, 0, -1, 2]
    never_again = reuse.hit_ratio_curve([3, 1, 2])
    assert never_again.hit_ratio([0, 1, 100]).tolist() == [0, 0, 0]
    assert (never_again.footprint, never_again.hits.tolist()) == (3, [0])
    # A request off the grid touches one block more.
    blocks, request = reuse.accessed_blocks([8, 63], [8192, 8192])
    assert (blocks.tolist(), request.tolist()) == ([1, 2, 7, 8, 9], [0, 0, 1, 1, 1])


def load(n, blocks):
    return (blocks * np.random.default_rng(9).random(n) ** 2).astype(np.int64)


def sampled(accessed, parts=7, **options):
    sample = reuse.ReuseSample(**options)
    for part in np.array_split(accessed, parts):
        sample.add(part)
    return sample.curve()


def test_all_blocks_count_where_there_is_room():
    accessed = load(20_000, 3_000)
    curve, whole = sampled(accessed), reuse.hit_ratio_curve(accessed)
    sizes = [1, 10, 500, 5000, 50_000]
    assert (curve.halvings, curve.footprint) == (0, whole.footprint)
    np.testing.assert_array_equal(curve.hit_ratio(sizes), whole.hit_ratio(sizes))
    shares = curve.distances()
    assert shares.sum() == pytest.approx(1)
    assert shares[-1] == pytest.approx(len(np.unique(accessed)) / len(accessed))


def test_an_eighth_of_the_blocks_by_hand():
    # Of 4 sampled blocks 10 accesses, at distances 0, 1, 1, 2, 2, 2: of all, 0, 8 and 16.
    curve = reuse.HitRatioCurve(10, 4, np.array([1, 2, 3]), 3)
    assert curve.footprint == 32
    assert curve.hit_ratio([0, 1, 8, 9, 16, 17, 200]).tolist() == [0, 0.1, 0.1, 0.3, 0.3, 0.6, 0.6]
    shares = curve.distances()
    assert len(shares) == 65
    assert (shares[0], shares[4], shares[5], shares[64]) == (0.1, 0.2, 0.3, 0.4)
    assert shares.sum() == pytest.approx(1)


def kept(accessed, halvings):
    return accessed[reuse.is_followed(accessed, halvings)]


def test_a_sample_is_halved_as_often_as_it_takes():
    accessed, most = load(3000, 400), 500
    for halvings in (0, 1, 2):
        fits = len(kept(accessed, halvings))
        found = [sampled(accessed, 1, most=most).halvings for most in (fits, fits - 1)]
        assert found == [halvings, halvings + 1]
    curve = sampled(accessed, 4, most=most)
    sample = kept(accessed, curve.halvings)
    assert len(sample) <= most < len(kept(accessed, curve.halvings - 1))
    expected = reuse.hit_ratio_curve(sample)
    assert curve.footprint == expected.footprint << curve.halvings
    assert curve.hits[1:].tolist() == expected.hits[1:].tolist()
    assert curve.accesses == len(accessed) >> curve.halvings
    assert curve.hits.sum() + expected.footprint == curve.accesses
