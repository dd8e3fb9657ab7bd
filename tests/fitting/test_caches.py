"""Caches, hit ratios and ages of reuse: libCacheSim, plain simulations, and cases by hand."""

import tracemalloc
from collections import Counter

import libcachesim
import numpy as np
import pytest
from hypothesis import given, strategies as st

from fitting.errors import FittingError
from fitting.storage import reuse_distance as reuse
from fitting.storage.caches import POLICIES, WRITES, Cache
from fitting.storage.transitions import Seen

PEERS = {"lru": "LRU", "fifo": "FIFO", "clock": "Clock", "lfu": "LFU"}


@pytest.mark.parametrize("size", [1, 7, 100, 700, 7_000])
@pytest.mark.parametrize("policy", POLICIES)
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
    return np.array([b for b in accessed if halvings == 0 or reuse.is_followed(b, halvings)])


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


def seen(stream, sequential):
    stream = np.array(stream)
    return Seen(stream.astype(np.int32), stream.astype(np.int64), np.array(sequential, dtype=bool))


def counted(lbn, blocks, sequential, stream=None, devices=(0,)):
    """Counts of each stream, each a state of its own, and which requests come back."""
    stream = [0] * len(lbn) if stream is None else stream
    counter = reuse.ReuseCounter(np.array(devices), 8)
    size_bytes = np.array(blocks, dtype=np.int64) * 512
    again = counter.add(seen(stream, sequential), np.array(lbn, dtype=np.int64), size_bytes)
    return counter.by_state(np.arange(len(devices))), again


def age_column(age):
    return int(np.searchsorted(reuse.AGE_BOUNDS, age, side="right")) - 1


@given(
    st.lists(
        st.tuples(
            *(st.sampled_from(range(0, 52, 4)), st.sampled_from([1, 4, 8, 9, 12, 40])),
            *(st.booleans(), st.integers(0, 2)),
        ),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from([(0, 0, 0), (0, 1, 0), (1, 0, 2)]),
)
def test_ages_are_those_of_dictionaries_of_pieces_and_ends(requests, devices):
    """Last touch of each piece of 8 blocks, last end of a request, in requests of the device."""
    touched, ended, clock, fresh = {}, {}, Counter(), Counter()
    counts, again = np.zeros((3, reuse.COLUMNS), dtype=int), []
    for lbn, blocks, sequential, stream in requests:
        device, first = devices[stream], lbn // 8
        clock[device] += 1
        now, stopped = clock[device], ended.pop((device, lbn), None)
        again.append(False)
        for piece in range(first, (lbn + blocks - 1) // 8 + 1):
            before = touched.get((device, piece))
            if piece == first and not sequential:
                again[-1] = before not in (None, stopped)
                fresh[stream] = before is None and stopped is None
                if again[-1]:
                    column = reuse.AGAIN + age_column(now - before)
                else:
                    column = reuse.FRESH if stopped is None else age_column(now - stopped)
                counts[stream, column] += 1
            elif fresh[stream] and (piece > first or lbn % 8 == 0):
                counts[stream, reuse.PIECES] += 1
                counts[stream, reuse.MET] += before is not None
            touched[device, piece] = now
        ended[device, lbn + blocks] = now
    lbn, blocks, sequential, stream = zip(*requests, strict=True)
    found, came_back = counted(lbn, blocks, sequential, stream, devices)
    np.testing.assert_array_equal(found, counts)
    assert came_back.tolist() == again


def test_classes_are_half_octaves():
    bounds = reuse.AGE_BOUNDS
    assert bounds[[0, 2, 3, 4, 5, 6, 7, 8]].tolist() == [1, 2, 3, 4, 6, 8, 12, 16]
    for age in [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 100, 1000, 10**6]:
        class_ = reuse.age_class(age)
        assert bounds[class_] <= age < bounds[class_ + 1]
    assert reuse.age_class(2**52) == reuse.AGAIN - 1


def law_of(age, again, fresh, requests):
    counts = np.zeros((2, reuse.COLUMNS), dtype=np.int64)
    counts[0, reuse.AGAIN + age_column(age)], counts[0, reuse.FRESH] = again, fresh
    return reuse.reuse_law(counts, [requests, 1000])[0]


def test_a_law_leaves_the_rest_to_fresh_places():
    law = law_of(4, 30, 70, 10**9)
    assert (law[reuse.FRESH], law[reuse.FRESH - 1]) == pytest.approx((1, 0.3), abs=1e-6)
    # An age that few requests could have is likelier for those, up to all of them.
    assert law_of(500, 300, 700, 1000)[reuse.FRESH - 1] > 0.45
    assert law_of(500, 900, 100, 1000)[reuse.FRESH - 1] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("before", [0, 30])
def test_a_request_longer_than_all_before_it(before):
    # 64 MiB in pieces of 4 KiB, then one of its last pieces.
    lbn = [*range(0, 8 * before, 8), 10**6, 10**6 + 8 * 16_000]
    (counts,), _ = counted(lbn, [8] * before + [8 * 2**14, 8], [False] * (before + 2))
    # All requests but the first go on where the one before them ended.
    assert counts[age_column(1)] == max(0, before - 1)
    assert counts[reuse.FRESH] == min(1, before) + 1
    assert counts[reuse.AGAIN + age_column(1)] == 1
    assert counts[reuse.PIECES] == 2**14 - 1


def test_where_few_addresses_can_be_followed_the_law_stays(monkeypatch):
    # Once both know the space; ahead of that, more of what is new is followed than later.
    lbn = 8 * np.random.default_rng(6).integers(30_000, size=120_000)
    shares = []
    for most in (reuse._MOST_TRACKED, 2**13):
        monkeypatch.setattr(reuse, "_MOST_TRACKED", most)
        counter = reuse.ReuseCounter(np.zeros(1, dtype=np.int64), 8)
        for part in np.split(lbn, 2):
            before = counter.counts[0].copy()
            counter.add(seen([0] * 60_000, [False] * 60_000), part, np.full(60_000, 4096))
        found = (counter.counts[0] - before)[reuse.AGAIN : reuse.FRESH]
        shares.append([found.sum(), *(np.cumsum(found)[[18, 22, 26, 28, 30]] / found.sum())])
    assert shares[1][0] < 0.3 * shares[0][0]
    assert shares[1][1:] == pytest.approx(shares[0][1:], abs=0.03)
