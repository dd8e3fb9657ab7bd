"""Run lengths and places where runs start, against plain counts."""

from __future__ import annotations

import numpy as np
import pytest
from counted_traces import TRACES, counted
from hypothesis import given
from hypothesis import strategies as st
from requests_reference import Model, alignment_of, drawn_length, length_class, length_law

from fitting import runs as module
from fitting.runs import (
    CLASSES,
    COLUMNS,
    RunCounter,
    Runs,
    class_lows,
    run_lengths,
    start_alignments,
)
from fitting.transition_counter import Seen


@given(TRACES, st.integers(1, 3), st.lists(st.integers(0, 20), max_size=3).map(sorted))
def test_runs_are_those_of_the_reference(columns, levels, parts):
    trace = counted(columns, levels, parts=parts)
    model, runs, group = Model(columns, levels, 4, trace.again), trace.runs, trace.counts.state % 5
    group = np.unique(group, return_inverse=True)[1]
    assert [sum(row) for row in runs.started().tolist()] == [len(of) for of in model.runs]
    merged = runs.merged(group)
    for found, members in (
        (runs, [[v] for v in range(len(group))]),
        (merged, [np.flatnonzero(group == k) for k in range(group.max() + 1)]),
    ):
        law = run_lengths(found, np.arange(len(members)))
        for v, of in enumerate(members):
            places = [lbn for w in of for *_, lbn in model.runs[w]]
            assert found.lowest[v] == min(places, default=-1)
            assert found.highest[v] == max(places, default=-1)
            for sort in (0, 1):
                lengths = [n for w in of for n, again, _ in model.runs[w] if again == sort]
                assert found.started()[v, sort] == len(lengths)
                a, b = law.start[2 * v + sort : 2 * v + sort + 2]
                if lengths:
                    drawn = np.column_stack([law.share[a:b], law.mean[a:b]])
                    assert drawn == pytest.approx(np.array(length_law(lengths)))


def counted_lengths(lengths):
    """Runs of a stream in a state, one after another, and their law."""
    counter, on = RunCounter(1), np.concatenate([np.arange(n) > 0 for n in lengths])
    nothing = np.zeros(len(on), dtype=np.int64)
    counter.add(Seen(nothing.astype(np.int32), nothing, on), nothing, on & False)
    law = run_lengths(counter.by_state(np.array([0])), np.array([0]))
    assert law.start.tolist()[0] == 0
    return law


@given(st.lists(st.one_of(st.integers(1, 40), st.integers(1, 5000)), min_size=1, max_size=12))
def test_lengths_are_drawn_by_their_classes(lengths):
    law, plain = counted_lengths(lengths), length_law(lengths)
    found = [module.drawn_length(law, 0, k / 997) for k in range(997)]
    assert found == [drawn_length(plain, k / 997) for k in range(997)]
    assert np.mean(found) == pytest.approx(np.mean(lengths), rel=0.03)
    # Those below eight, and any that is alone in its class, are dealt out as counted.
    if max(lengths) < 8 or len(set(lengths)) == 1:
        assert {*found} == {*lengths}


@given(st.integers(1, 2**30))
def test_classes_hold_their_lengths(length):
    class_, lows = module.length_class(length), class_lows()
    assert class_ == length_class(length)
    assert lows[class_] <= length
    assert class_ == CLASSES - 1 or length < lows[class_ + 1]


def test_states_without_runs_have_those_of_their_origin_or_of_all():
    counts = np.zeros((4, COLUMNS), dtype=np.int64)
    counts[0, length_class(3)], counts[2, 2 * CLASSES + length_class(5)] = 2, 1
    law = run_lengths(Runs(counts, *np.full((2, 4), -1)), np.array([0, 0, 1, 2]))
    means = [law.mean[a:b].tolist() for a, b in zip(law.start[:-1], law.start[1:], strict=True)]
    # One comes back, in the second origin; where none of its sort is, there are all.
    assert means == [[3], [3, 5], [3], [3, 5], [3, 5], [5], [3, 5], [3, 5]]


class TestAlignments:
    """Runs that start at multiples of 16, at 7 modulo 8, and at fifteen places, too few."""

    STARTS = (1000 * np.arange(40) // 16 * 16, 8 * np.arange(40) ** 2 + 7, np.arange(15))
    GROUP = np.repeat([0, 1, 2], [40, 40, 15])

    def found(self, piece, others=(1, 0), starts=None):
        starts = np.concatenate(self.STARTS) if starts is None else starts
        runs = Runs(np.zeros((len(starts), COLUMNS), dtype=np.int64), starts, starts)
        found = start_alignments(runs, self.GROUP, others, piece)
        return [tuple(int(of[k]) for of in found) for k in (0, 40, 80)]

    def test_are_those_of_the_group_up_to_a_piece(self):
        assert self.found(8) == [(8, 0), (8, 7), (1, 0)]
        assert self.found(16) == [(16, 0), (8, 7), (1, 0)]
        assert self.found(8, (16, 3)) == [(16, 0), (8, 7), (16, 3)]
        assert [alignment_of(of.tolist()) for of in self.STARTS[:2]] == [(16, 0), (8, 7)]

    def test_are_given_where_no_run_started(self):
        assert self.found(8, (2, 1), np.full(95, -1)) == [(2, 1)] * 3
