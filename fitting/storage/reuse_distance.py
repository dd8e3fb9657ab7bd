"""Reuse of addresses: laws by state for the generator, and hit ratios of LRU caches.

Uniform addresses inside a state lose reuse, and with it what a cache would do. A law of reuse
tells apart the requests to a state that do not go on where the last one of their stream ended. Some
start in a piece of the space (4 KiB, or more where requests are large) that was accessed before,
by whatever stream; some go on where an earlier request stopped and nothing has been since, as when
several files are read at a time; the others are fresh. How many requests of the device ago that
was is counted in classes of half an octave. What runs from fresh addresses go on to is fresh too,
but for a share, which is counted in pieces. The hit ratio of an LRU cache follows from these times
and the share of first accesses (Denning and Schwartz 1972).

The reuse distance of an access is the number of distinct blocks accessed since the last access to
its block. A cache of c blocks that drops the least recently used one hits exactly the accesses
whose distance is below c, so one pass answers for all sizes (Mattson et al. 1970).

For traces of any length a sample of the blocks is taken, by a hash of the block number, so all
accesses to a block are in it or none. Among one block in 2^k, a reuse distance is 2^k times shorter
than among all. Where the sample has more or fewer accesses than its share, they are of hot blocks,
and count at distance 0 (SHARDS-adj, Waldspurger et al. 2015).

References
----------
P. J. Denning, S. C. Schwartz: Properties of the working-set model. Communications of the ACM
15(3), 1972. doi:10.1145/361268.361281
R. L. Mattson, J. Gecsei, D. R. Slutz, I. L. Traiger: Evaluation techniques for storage
hierarchies. IBM Systems Journal 9(2), 1970. doi:10.1147/sj.92.0078
C. A. Waldspurger, N. Park, A. Garthwaite, I. Ahmad: Efficient MRC construction with SHARDS.
USENIX Conference on File and Storage Technologies (FAST), 2015.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fitting.compiled import hashing, loops
from fitting.compiled.hashing import EMPTY, HashTable, find, scramble
from fitting.compiled.loops import ArrayLike, BoolArray, Columns, FloatArray, IntArray, jit
from fitting.errors import FittingError
from fitting.storage.transitions import Seen

# Classes of ages: two an octave, and the last for requests to where none was before.
AGE_CLASSES = 96
# First age (requests of the device) of each class, and the end of the last. The upper half of
# octave 0 holds no whole number.
_OCTAVE, _ODD = np.divmod(np.minimum(np.arange(AGE_CLASSES + 1), 122), 2)
AGE_BOUNDS = np.where(_ODD == 1, -(-3 * 2**_OCTAVE // 2), 2**_OCTAVE)
# Classes of a law: ages of runs that go on, ages of pieces that are accessed again, fresh ones.
AGAIN, FRESH = AGE_CLASSES, 2 * AGE_CLASSES
CLASSES = 2 * AGE_CLASSES + 1
# Columns of counts beyond the classes: pieces of runs that began fresh, and those accessed before.
PIECES, MET = CLASSES, CLASSES + 1
COLUMNS = CLASSES + 2
_MOST_TRACKED = 2**23
# Of a request, such as the discard of a whole device.
MOST_PIECES = 2**20
# Accesses of a sample.
_MOST_KEPT = 2**22
_SECTOR = 512


def reuse_law(counts: IntArray, requests: ArrayLike) -> FloatArray:
    """Return cumulated chances of the reuse classes by state, corrected for a trace's short past.

    A request can come back over an age only once its device has had so many requests: each
    class is divided by the share of requests that could, to a power of one, or less where the
    classes would come to more than all. What they leave is fresh.

    ``counts`` has a row for each accessed state, as `ReuseCounter` has them, and ``requests``
    the number of requests of its device.
    """
    counts = counts[:, :CLASSES]
    bounds = AGE_BOUNDS.astype(np.float64)
    reached = (bounds[1:] + bounds[:-1] - 1) / 2
    length = np.asarray(requests, dtype=np.float64)[:, None]
    able = np.clip(1 - reached / length, 1 / np.maximum(length, 4), 1)
    share = counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1)
    share[..., FRESH] = 0
    odds = -np.log(np.append(np.tile(able, 2), np.ones((len(able), 1)), axis=1))
    whole = share * np.exp(odds)
    over = np.flatnonzero(whole.sum(axis=-1) > 1)
    share, odds = share[over], odds[over]
    low, high = np.zeros(len(over)), np.ones(len(over))
    for _ in range(19):
        power = (low + high) / 2
        fits = (share * np.exp(odds * power[:, None])).sum(axis=-1) <= 1
        low, high = np.where(fits, power, low), np.where(fits, high, power)
    whole[over] = share * np.exp(odds * low[:, None])
    cumulated = np.cumsum(whole, axis=-1)
    cumulated[:, FRESH] = 1
    return np.asarray(cumulated)


class _Ages(NamedTuple):
    """Hash tables and numbers that ages are counted in, and the counts by row and column."""

    counts: IntArray
    clock: IntArray  # by device, its requests
    pieces: HashTable  # clock of the last access, by key of a piece
    ends: HashTable  # clock of the last end, by key of the block where a run ended
    halvings: IntArray  # one number: how often every other address was forgotten
    began_fresh: BoolArray  # by stream, whether the run that it is in began fresh


class ReuseCounter:
    """Counts the ages of reused addresses, batch by batch, in a row for each accessed state.

    When more addresses are known than memory should hold, every other one is forgotten and not
    followed any more, chosen by a hash of the address, which leaves the law as it is. ``devices``
    has by stream the index of its device, ``piece`` is the length of a piece in blocks.
    """

    def __init__(self, devices: IntArray, piece: int) -> None:
        self.piece, self._devices = piece, devices
        self._ages = _Ages(
            np.zeros((64, COLUMNS), dtype=np.int64),
            np.zeros(int(devices.max()) + 1, dtype=np.int64),
            *(hashing.new_table(2**14), hashing.new_table(2**14), np.zeros(1, dtype=np.int64)),
            np.zeros(len(devices), dtype=np.bool_),
        )

    @property
    def counts(self) -> IntArray:
        """Counts by row (accessed state) and column (class of age); spare rows are 0."""
        return self._ages.counts

    def add(self, seen: Seen, lbn: IntArray, size_bytes: IntArray) -> BoolArray:
        """Count requests by state; mark those that start a run at a used address."""
        again = np.zeros(len(lbn), dtype=np.bool_)
        while len(seen.row) and seen.row.max() >= len(self.counts):
            counts = np.pad(self.counts, ((0, len(self.counts)), (0, 0)))
            self._ages = self._ages._replace(counts=counts)
        start, requests = 0, (self._devices, *loops.read_only(lbn, size_bytes), again)
        while start < len(lbn):
            start = _count_ages(start, requests, seen, self.piece, self._ages)
            if start < len(lbn):
                self._make_room(_count_pieces(lbn[start], size_bytes[start], self.piece))
        return again

    def by_state(self, rows: IntArray) -> IntArray:
        """Return the counts of the accessed states, in the order of ``rows``."""
        missing = max(0, int(rows.max(initial=-1)) + 1 - len(self.counts))
        return np.pad(self.counts, ((0, missing), (0, 0)))[rows]

    def _make_room(self, more: int) -> None:
        """Enlarge tables for ``more`` pieces, or forget half of the addresses at the limit."""
        pieces, ends, halvings = self._ages[2:5]
        if pieces.used[0] + more >= _MOST_TRACKED or ends.used[0] + 1 >= _MOST_TRACKED:
            halvings[0] += 1
            for table in (pieces, ends):
                _thin_out(table.keys, table.values, halvings[0])
                table.used[0] = np.count_nonzero(table.keys != EMPTY)
            return
        pieces, ends = hashing.ensure_room(pieces, more + 1), hashing.ensure_room(ends, 2)
        self._ages = self._ages._replace(pieces=pieces, ends=ends)


@jit
def piece_key(device: int, piece: int) -> int:
    """Return the hash key of a piece of a device."""
    return (piece ^ (scramble(device + 1) << 1)) & 0x7FFFFFFFFFFFFFFF if device else piece


@jit
def age_class(age: int) -> int:
    """Return the class of an age (requests of the device) of 1 or more: two classes an octave."""
    return min(loops.log2_bin(age, 1), AGE_CLASSES - 1)


@jit
def is_followed(key: int, halvings: int) -> bool:
    """Tell whether an address is still in the sample after so many halvings."""
    return (scramble(key) >> 40) & ((1 << halvings) - 1) == 0


@jit
def _thin_out(keys: IntArray, last: IntArray, halvings: int) -> None:
    """Remove from a hash table, in place, the addresses that are not followed any more."""
    for place in range(len(keys)):
        # What is taken out lets another one move here.
        while keys[place] != EMPTY and not is_followed(keys[place], halvings):
            hashing.remove(keys, last, place)


@jit
def _count_pieces(lbn: int, size_bytes: int, piece: int) -> int:
    """Return the number of pieces that a request accesses, at most `MOST_PIECES`."""
    accessed = (lbn + size_bytes // 512 - 1) // piece - lbn // piece + 1
    return min(max(1, accessed), MOST_PIECES)


@jit
def _count_ages(start: int, requests: Columns, seen: Seen, piece: int, ages: _Ages) -> int:
    """Count ages of requests from ``start`` until a table is half full; return where to go on."""
    devices, lbn, size_bytes, again = requests
    stream, row, sequential = seen
    counts, clock, (keys, last, used), (end_keys, ended, ends), halved, began_fresh = ages
    for i in range(start, len(lbn)):
        g = devices[stream[i]]
        first = lbn[i] // piece
        pieces = _count_pieces(lbn[i], size_bytes[i], piece)
        if 2 * (used[0] + pieces) >= len(keys) or 2 * (ends[0] + 1) >= len(end_keys):
            return i
        clock[g] += 1
        key = piece_key(g, lbn[i])
        at_end = find(end_keys, key)
        class_, stopped = -1, np.int64(-1)
        if end_keys[at_end] != EMPTY:
            stopped = ended[at_end]
            class_ = age_class(clock[g] - stopped)
            hashing.remove(end_keys, ended, at_end)
            ends[0] -= 1
        for k in range(pieces):
            key = piece_key(g, first + k)
            if halved[0] and not is_followed(key, halved[0]):
                continue
            place = find(keys, key)
            new = keys[place] == EMPTY
            if k == 0 and not sequential[i]:
                if not new and (class_ < 0 or last[place] != stopped):
                    class_ = AGAIN + age_class(clock[g] - last[place])
                elif class_ < 0:
                    class_ = FRESH
                counts[row[i], class_] += 1
                began_fresh[stream[i]], again[i] = class_ == FRESH, AGAIN <= class_ < FRESH
            elif began_fresh[stream[i]] and (k > 0 or lbn[i] % piece == 0):
                counts[row[i], PIECES] += 1
                counts[row[i], MET] += 0 if new else 1
            if new:
                keys[place] = key
                used[0] += 1
            last[place] = clock[g]
        key = piece_key(g, lbn[i] + size_bytes[i] // 512)
        if not halved[0] or is_followed(key, halved[0]):
            at_end = find(end_keys, key)
            ends[0] += end_keys[at_end] == EMPTY
            end_keys[at_end] = key
            ended[at_end] = clock[g]
    return len(lbn)


@dataclass(frozen=True)
class HitRatioCurve:
    """Hits of LRU caches by size, from one block in 2^``halvings``; all of them for 0."""

    accesses: int  # of a block
    blocks: int  # distinct blocks sampled
    hits: IntArray  # accesses whose reuse distance is the index
    halvings: int = 0

    @property
    def footprint(self) -> int:
        """Number of distinct blocks of the trace, estimated where blocks were sampled."""
        return self.blocks << self.halvings

    def hit_ratio(self, blocks: ArrayLike) -> FloatArray:
        """Return the hit ratio of caches of so many blocks; first accesses are misses."""
        reached = np.concatenate([[0], np.cumsum(self.hits)])
        size = -(-np.asarray(blocks, dtype=np.int64) // (1 << self.halvings))
        return np.asarray(reached[np.clip(size, 0, len(self.hits))] / self.accesses)

    def distances(self) -> FloatArray:
        """Return shares of accesses by log2 bin of reuse distance, then that of first accesses."""
        log2 = np.frexp(np.arange(len(self.hits)) * 2.0**self.halvings)[1]
        shares = np.bincount(log2, np.maximum(self.hits, 0), minlength=64) / self.accesses
        return np.append(shares, self.blocks / self.accesses)


def hit_ratio_curve(blocks: ArrayLike) -> HitRatioCurve:
    """Compute the LRU hit ratio curve of accesses to block numbers of 0 or more."""
    distances = reuse_distances(blocks)
    hits = np.bincount(distances[distances >= 0], minlength=1)
    return HitRatioCurve(len(distances), int((distances < 0).sum()), hits)


def reuse_distances(blocks: ArrayLike) -> IntArray:
    """Count distinct blocks since the last access to the same block; −1 for a first access."""
    accessed = np.ascontiguousarray(blocks, dtype=np.int64)
    if not len(accessed) or accessed.min() < 0:
        raise FittingError(
            "there is no block number, or a negative one: give at least one, each 0 or more"
        )
    return _distances(accessed, *hashing.new_table(2 * len(accessed))[:2])


def accessed_blocks(
    lbn: ArrayLike, size_bytes: ArrayLike, block_bytes: int = 4096
) -> tuple[IntArray, IntArray]:
    """List all blocks that requests access, in order, and the index of each one's request."""
    first = np.asarray(lbn, dtype=np.int64) * _SECTOR // block_bytes
    end = np.asarray(lbn, dtype=np.int64) * _SECTOR + np.asarray(size_bytes, dtype=np.int64)
    number = np.maximum((end - 1) // block_bytes - first + 1, 0)
    request = np.repeat(np.arange(len(first)), number)
    before = np.cumsum(number) - number
    return first[request] + np.arange(len(request)) - before[request], request


@jit
def _distances(accessed: IntArray, keys: IntArray, last: IntArray) -> IntArray:
    """Return reuse distances by a Fenwick tree; ``keys`` and ``last`` are a hash table."""
    tree, live = np.zeros(len(accessed) + 1, dtype=np.int64), 0
    distances = np.empty(len(accessed), dtype=np.int64)
    for i in range(len(accessed)):
        place = find(keys, accessed[i])
        if keys[place] == EMPTY:
            keys[place] = accessed[i]
            distances[i] = -1
            live += 1
        else:
            older, k = 0, last[place] + 1
            while k > 0:
                older += tree[k]
                k -= k & -k
            distances[i] = live - older
            _add_to_tree(tree, last[place] + 1, -1)
        last[place] = i
        _add_to_tree(tree, i + 1, 1)
    return distances


@jit
def _add_to_tree(tree: IntArray, k: int, number: int) -> None:
    """Add a number at place k, from 1, of a Fenwick tree."""
    while k < len(tree):
        tree[k] += number
        k += k & -k


class ReuseSample:
    """Takes block accesses batch by batch, and keeps those of as many blocks as there is room."""

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._most, self._halvings, self._accesses = most, 0, 0
        self._parts: list[IntArray] = []

    def add(self, blocks: IntArray) -> None:
        """Take the next accesses; past the limit, every other block is dropped."""
        self._accesses += len(blocks)
        self._parts.append(_sample(blocks, self._halvings) if self._halvings else blocks.copy())
        while sum(map(len, self._parts)) > self._most:
            self._halvings += 1
            self._parts = [_sample(part, self._halvings) for part in self._parts]

    def curve(self) -> HitRatioCurve:
        """Return the hit ratio curve of the accesses. Raises `FittingError` if there are none."""
        if not sum(map(len, self._parts)):
            raise FittingError("no block was accessed: there is no hit ratio")
        found = hit_ratio_curve(np.concatenate(self._parts))
        due = self._accesses >> self._halvings
        found.hits[0] += due - found.accesses
        return replace(found, accesses=due, halvings=self._halvings)


@jit
def _sample(blocks: IntArray, halvings: int) -> IntArray:
    """Copy the accesses to blocks that are still followed."""
    return blocks[np.array([is_followed(block, halvings) for block in blocks])]
