"""The published scheduler: a thread a transition, each with its share of the requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fitting.storage.chain import make_chain
from fitting.storage.generator import Requests
from fitting.storage.survey import BLOCK

if TYPE_CHECKING:
    from ppw.traces.model import TraceModel

    IntArray = np.ndarray[Any, np.dtype[np.int64]]
    FloatArray = np.ndarray[Any, np.dtype[np.float64]]


class RoundRobin:
    """Requests of all threads, each thread's at even distances over the whole.

    The j-th request of a thread with share w is number (j + φ)/w of all, with φ drawn once a
    thread; so after any number of requests each thread is within one of its share. A sequential
    thread goes on where it stopped itself; others start in the state that they lead to.
    """

    def __init__(
        self,
        model: TraceModel,
        kinds: IntArray,
        rng: np.random.Generator,
    ) -> None:
        self._model, self._rng = model, rng
        counts = model.counts
        self._share = counts.count / counts.count.sum()
        self._phase = rng.random(len(counts.pair))
        self._chain = make_chain(counts, kinds)
        self._done, self._due = 0, 0.0
        self._end = np.full(len(counts.pair), -1, dtype=np.int64)

    def take(self, number: int) -> Requests:
        """Return the next requests."""
        transition = self._order(number)
        size = self._sizes(transition)
        lbn = self._addresses(transition, size)
        due = self._due + np.cumsum(self._gaps(transition))
        self._due = float(due[-1])
        stream = self._model.counts.stream[transition].astype(np.int32)
        op = self._model.counts.op[transition].astype(np.uint8)
        return Requests(due, stream, transition, lbn, size, op)

    def _order(self, number: int) -> IntArray:
        """Threads of the next requests: those whose turns come first."""
        first = np.ceil(self._done * self._share - self._phase).astype(np.int64)
        first = np.maximum(first, 0)
        last = np.ceil((self._done + number) * self._share - self._phase).astype(np.int64)
        turns = np.maximum(last - first, 0)
        transition = np.repeat(np.arange(len(turns)), turns)
        within = np.arange(len(transition)) - np.repeat(np.cumsum(turns) - turns, turns)
        turn = (first[transition] + within + self._phase[transition]) / self._share[transition]
        order = transition[np.argsort(turn, kind="stable")]
        self._done += number
        # Turns that fall into these requests are one more or less at times.
        spare = max(0, number - len(order))
        more = self._rng.choice(len(turns), spare, p=self._share)
        return np.concatenate([order[:number], more])

    def _gaps(self, transition: IntArray) -> FloatArray:
        """Gaps of the merged requests: a stream's own, over how many streams there are."""
        model = self._model
        gaps = model.laws.draw(transition, self._rng)
        stream = model.counts.stream[transition]
        return np.asarray(gaps * model.paces()[stream] * model.weights[stream])

    def _sizes(self, transition: IntArray) -> IntArray:
        classes = self._model.classes
        class_ = self._model.counts.size_class[transition]
        sizes = np.empty(len(transition), dtype=np.int64)
        for c in np.unique(class_):
            here = np.flatnonzero(class_ == c)
            share = classes.counts[c] / classes.counts[c].sum()
            sizes[here] = self._rng.choice(classes.sizes[c], len(here), p=share)
        return sizes

    def _addresses(self, transition: IntArray, size: IntArray) -> IntArray:
        counts, survey = self._model.counts, self._model.survey
        lbn = self._anywhere(transition)
        order = np.argsort(transition, kind="stable")
        thread, blocks = transition[order], size[order] // BLOCK
        new = np.r_[True, thread[1:] != thread[:-1]]
        starts = np.flatnonzero(new)
        before = np.cumsum(blocks) - blocks
        before -= np.repeat(before[starts], np.diff(np.append(starts, len(thread))))
        at = np.where(self._end[thread[starts]] >= 0, self._end[thread[starts]], lbn[order][starts])
        run = np.repeat(at, np.diff(np.append(starts, len(thread)))) + before
        span = survey.high_lbn - survey.low_lbn
        run = survey.low_lbn + (run - survey.low_lbn) % span
        on = counts.sequential[thread] == 1
        placed = np.where(on, run, lbn[order])
        ends = np.append(starts[1:], len(thread)) - 1
        self._end[thread[ends]] = placed[ends] + blocks[ends]
        found = np.empty_like(lbn)
        found[order] = placed
        return found

    def _anywhere(self, transition: IntArray) -> IntArray:
        counts, survey, chain = self._model.counts, self._model.survey, self._chain
        state = np.empty(len(transition), dtype=np.int64)
        for level in np.unique(chain.level):
            here = np.flatnonzero(chain.level[transition] == level)
            t, entered = transition[here], chain.entered[level - 1]
            low, high = entered[chain.low[t]], entered[chain.high[t]]
            wanted = low + self._rng.random(len(t)) * (high - low)
            found = np.searchsorted(entered, wanted, side="right") - 1
            # Where only runs pass, none enters at random.
            state[here] = np.where(high > low, found, chain.low[t])
        first = counts.lowest[state]
        first = first + (survey.alignment_offset - first) % survey.alignment
        places = np.maximum((counts.highest[state] - first) // survey.alignment + 1, 1)
        slot = (self._rng.random(len(state)) * places).astype(np.int64)
        return np.asarray(np.minimum(first + slot * survey.alignment, counts.highest[state]))
