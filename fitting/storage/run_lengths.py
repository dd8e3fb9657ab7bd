"""Lengths of runs of sequential requests: a law for each state that they start in.

A chain that draws whether to go on at every request makes runs of geometric lengths. A program
reads files of their own lengths, so runs are counted whole: by the accessed state of their first
request, in classes of a quarter of an octave with the mean of each, which has every length below
eight, and any that is alone in its class, exactly. Where runs started in a state is kept as the
first and last place. What comes back to where the device was accessed before is often shorter than
what is read on, so runs that do are counted apart, where reuse is counted. What a run does on its
way (operations, sizes, gaps) the diagram says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fitting.compiled import hashing, loops, random
from fitting.compiled.loops import BoolArray, IntArray
from fitting.storage import survey, transitions as tr
from fitting.storage.transitions import Seen

# Classes of lengths: four a log2 bin; the last has all that are longer.
CLASSES = 4 * 25
# Shortest length of each class; some classes of short runs hold none.
LOWS = -(-((np.arange(CLASSES) % 4 + 4) << np.arange(CLASSES) // 4) // 4)
# Columns: runs by class, and by class the requests that they have beyond the shortest of it; the
# same for runs that start where the device was accessed before.
COLUMNS = 4 * CLASSES
_NONE = -1
# Columns of a counter ahead of its classes.
_CLASSES_FROM = 2
# Places that tell an alignment.
_LEAST_STARTS = 16


@dataclass(frozen=True)
class Runs:
    """Runs by accessed state."""

    counts: IntArray  # accessed states by `COLUMNS`
    lowest: IntArray  # first and last block at which a run started, −1 where none did
    highest: IntArray

    def group_runs(self, group: IntArray) -> Runs:
        """Add up the runs of the states in each group, numbered from 0 without a gap."""
        groups = group, np.unique(group, return_index=True)[1]
        # Without a sign, the −1 of no run is above all blocks.
        lowest = tr.reduce_groups(np.minimum, self.lowest.astype(np.uint64), *groups)
        highest = tr.reduce_groups(np.maximum, self.highest, *groups)
        counts = tr.reduce_groups(np.add, self.counts, *groups)
        return Runs(counts, lowest.astype(np.int64), highest)

    def numbers(self) -> IntArray:
        """Return the number of runs, (states, 2): others, and those starting at a used address."""
        return np.asarray(self.counts.reshape(-1, 2, 2, CLASSES)[:, :, 0].sum(axis=-1))


class RunCounter:
    """Counts runs, batch by batch, in a row an accessed state."""

    def __init__(self, streams: int) -> None:
        # Of the run that each stream is in: row of its state, first column, requests so far.
        self._current = np.zeros((streams, 3), dtype=np.int64)
        # One more than the first and last block, then runs and requests beyond, class by class:
        # what is used together lies together.
        self._rows = np.zeros((0, _CLASSES_FROM + COLUMNS), dtype=np.int64)
        self._used = 0

    def add(self, seen: Seen, lbn: IntArray, again: BoolArray) -> None:
        """Count the runs of the next requests; ``again`` marks starts at an address used before."""
        if len(seen.row):
            self._reserve_rows(int(seen.row.max()) + 1)
        _count_runs(seen, loops.read_only(lbn)[0], again, self._current, self._rows)

    def by_state(self, rows: IntArray) -> Runs:
        """Return the runs of the accessed states in the order of ``rows``, open ones included."""
        self._reserve_rows(int(rows.max(initial=0)) + 1)
        found, place = self._rows[rows], np.zeros(len(self._rows), dtype=np.int64)
        place[rows] = np.arange(len(rows))
        for row, first, length in self._current.tolist():
            _count_run(found, int(place[row]), first, length)
        counts = found[:, _CLASSES_FROM:].reshape(-1, 2, CLASSES, 2).swapaxes(2, 3)
        lowest, highest = found[:, :_CLASSES_FROM].T - 1
        return Runs(counts.reshape(-1, COLUMNS), lowest, highest)

    def _reserve_rows(self, rows: int) -> None:
        """Have room for so many rows."""
        self._rows = hashing.grow_rows(self._rows, self._used, rows - self._used)
        self._used = max(self._used, rows)


def fit_run_lengths(runs: Runs, origin: IntArray) -> random.DiscreteLaws:
    """Fit laws of run lengths; a state without runs has those of its origin, or of all.

    That of accessed state v is law 2v, and that of runs that start where the device was accessed
    law 2v + 1. Values are the mean lengths of classes.
    """
    # States by sorts by numbers and requests beyond by classes.
    counts = runs.counts.reshape(-1, 2, 2, CLASSES)
    # States are in the order of their origins.
    _, first, of_state = np.unique(origin, return_index=True, return_inverse=True)
    pooled = np.add.reduceat(counts, first)
    some = pooled[:, :, 0].sum(axis=-1) > 0
    pooled = np.where(some[:, :, None, None], pooled, counts.sum(axis=(0, 1)))
    state, sort = np.nonzero(~counts[:, :, 0].any(axis=-1))
    counts = counts.copy()
    counts[state, sort] = pooled[of_state[state], sort]
    number, beyond = counts.reshape(-1, 2, CLASSES).swapaxes(0, 1)
    used = number > 0
    share = np.cumsum(number, axis=1) / np.maximum(number.sum(axis=1, keepdims=True), 1)
    mean = LOWS + beyond / np.maximum(number, 1)
    return random.pack_laws(share, mean, used)


def start_alignments(
    runs: Runs, group: IntArray, others: tuple[int, int], piece: int
) -> tuple[IntArray, IntArray]:
    """Find alignment and offset (blocks) of run starts, by state, from all states of its group.

    They are taken from the first and last of these places; where those are few, others are given.
    Beyond a piece, and what the others have, an alignment makes no difference to what is accessed.
    """
    found = np.tile(np.array(others, dtype=np.int64)[:, None], len(group))
    started, several = runs.lowest != _NONE, runs.highest > runs.lowest
    for one in np.unique(group):
        here = group == one
        starts = np.append(runs.lowest[here & started], runs.highest[here & several])
        if len(starts) >= _LEAST_STARTS:
            residues = np.bincount(starts % survey.RESIDUES, minlength=survey.RESIDUES)
            alignment, offset = survey.alignment_of(residues)
            alignment = min(alignment, max(piece, others[0]))
            found[:, here] = [[alignment], [offset % alignment]]
    return found[0], found[1]


@loops.jit_inline
def draw_length(laws: random.DiscreteLaws, law: int, u: float) -> int:
    """Return the run length at a share u of a law, in [0, 1)."""
    at = random.row_at_share(laws, law, u)
    before = laws.share[at - 1] if at > laws.start[law] else 0.0
    within = (u - before) / (laws.share[at] - before)
    return max(1, int(laws.value[at] + within))


@loops.jit_uncounted
def _count_runs(
    seen: Seen, lbn: IntArray, again: BoolArray, current: IntArray, rows: IntArray
) -> None:
    """Count the runs of requests in ``rows``; each stream's open run stays in ``current``."""
    stream, row, sequential = seen
    for i in range(len(stream)):
        run = current[stream[i]]
        if not sequential[i]:
            _count_run(rows, run[0], run[1], run[2])
            run[0], run[1], run[2] = row[i], 2 * CLASSES if again[i] else 0, 0
            here = rows[row[i]]
            here[0] = min(here[0] if here[0] else lbn[i] + 1, lbn[i] + 1)
            here[1] = max(here[1], lbn[i] + 1)
        run[2] += 1


@loops.jit_uncounted
def _count_run(rows: IntArray, row: int, first: int, length: int) -> None:
    """Count a run of a length in its state's row; one of length 0 is none."""
    if length > 0:
        class_ = min(loops.log2_bin(length, 2), CLASSES - 1)
        at = _CLASSES_FROM + first + 2 * class_
        rows[row, at] += 1
        rows[row, at + 1] += length - LOWS[class_]
