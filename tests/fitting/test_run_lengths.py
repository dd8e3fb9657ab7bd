"""Run lengths against a count by hand and the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitting.compiled import uncounted
from fitting.runs import (
    CLASSES,
    COLUMNS,
    RunCounter,
    Runs,
    class_lows,
    drawn_length,
    length_class,
    run_lengths,
    start_alignments,
)
from fitting.transition_counter import Seen


def seen(sequential, stream=None, row=None):
    n = len(sequential)
    nothing = np.zeros(n)
    return Seen(
        np.asarray(nothing if stream is None else stream).astype(np.int32),
        np.asarray(nothing if row is None else row).astype(np.int64),
        np.array(sequential, dtype=bool),
    )


def counted(lengths):
    """Runs of a stream in a state, one after another."""
    counter = RunCounter(1)
    sequential = np.concatenate([np.arange(n) > 0 for n in lengths])
    counter.add(seen(sequential), np.arange(len(sequential)), np.zeros(len(sequential), bool))
    return counter.by_state(np.array([0]))


@uncounted
def draw_all(law, shares, out):
    for i in range(len(shares)):
        out[i] = drawn_length(law, 0, shares[i])


def test_states_without_runs_have_those_of_their_origin():
    runs = [counted([3, 3]), counted([50])]
    none = np.zeros(COLUMNS, dtype=np.int64)
    counts = np.stack([runs[0].counts[0], none, runs[1].counts[0]])
    law = run_lengths(Runs(counts, *np.full((2, 3), -1)), np.array([0, 0, 1]))
    assert law.mean[law.start[2] : law.start[3]].tolist() == [3.0]


def test_a_class_deals_out_lengths_about_its_mean():
    # 8 and 9 are of one class, whose mean is 8.75.
    found = drawn(counted([8, 9, 9, 9, 32]), 1000)
    lengths, numbers = np.unique(found, return_counts=True)
    assert lengths.tolist() == [8, 9, 32]
    assert numbers == pytest.approx([200, 600, 200], abs=2)


def drawn(runs, number):
    out = np.empty(number, dtype=np.int64)
    draw_all(
        run_lengths(runs, np.zeros(len(runs.counts), np.int64)), np.arange(number) / number, out
    )
    return out


def test_two_streams_by_hand():
    # Stream 0: 3 requests from block 5 in state 1, then 1 from 9 in state 0, which comes back to
    # where its device was; stream 1: 2 from 7 in state 1.
    counter = RunCounter(2)
    stream, row = [0, 1, 0, 1, 0, 0], [1, 1, 1, 1, 1, 0]
    sequential = [False, False, True, True, True, False]
    again = np.array([False] * 5 + [True])
    counter.add(seen(sequential, stream, row), np.array([5, 7, 6, 8, 7, 9]), again)
    runs = counter.by_state(np.array([0, 1]))
    assert runs.started().tolist() == [[0, 1], [2, 0]]
    assert runs.counts[0, 2 * CLASSES + length_class(1)] == 1
    assert runs.counts[1, [length_class(2), length_class(3)]].tolist() == [1, 1]
    assert (runs.lowest.tolist(), runs.highest.tolist()) == ([9, 5], [9, 7])


@given(st.integers(1, 2**30))
def test_classes_hold_their_lengths(length):
    class_, lows = length_class(length), class_lows()
    assert lows[class_] <= length
    assert class_ == CLASSES - 1 or length < lows[class_ + 1]


@given(st.lists(st.integers(1, 7), min_size=1, max_size=60))
def test_short_lengths_are_dealt_out_as_counted(lengths):
    assert sorted(drawn(counted(lengths), len(lengths))) == sorted(lengths)


@pytest.mark.parametrize("length", [1, 8, 50, 64, 777])
def test_a_fixed_length_stays_fixed(length):
    assert set(drawn(counted([length] * 5), 100)) == {length}


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=30))
def test_the_mean_is_kept(lengths):
    assert drawn(counted(lengths), 20_000).mean() == pytest.approx(np.mean(lengths), rel=1e-2)


def test_batches_make_no_difference():
    rng = np.random.default_rng(3)
    n = 500
    one = seen(rng.random(n) < 0.7, rng.integers(2, size=n), rng.integers(90, size=n))
    lbn, again = rng.integers(1000, size=n), rng.random(n) < 0.5
    whole, parts = RunCounter(2), RunCounter(2)
    whole.add(one, lbn, again)
    for part in np.split(np.arange(n), [1, 130, 131, 400]):
        parts.add(Seen(*(column[part] for column in one)), lbn[part], again[part])
    rows = np.arange(90)
    for mine, theirs in zip(
        vars(whole.by_state(rows)).values(), vars(parts.by_state(rows)).values(), strict=True
    ):
        assert np.array_equal(mine, theirs)


def test_merged_states_add_their_runs():
    runs = counted([2, 3, 9])
    both = type(runs)(
        np.repeat(runs.counts, 3, axis=0), np.array([4, -1, 1]), np.array([6, -1, 2])
    ).merged(np.array([0, 1, 0]))
    assert np.array_equal(both.counts, [2 * runs.counts[0], runs.counts[0]])
    assert (both.lowest.tolist(), both.highest.tolist()) == ([1, -1], [6, -1])


def test_runs_of_as_many_states_as_there_is_room_for():
    counter, rows = RunCounter(1), np.arange(64)
    counter.add(seen(np.zeros(64), row=rows), 8 * rows, np.zeros(64, dtype=bool))
    runs = counter.by_state(rows)
    assert (runs.started() == [1, 0]).all()
    assert runs.lowest.tolist() == runs.highest.tolist() == (8 * rows).tolist()


class TestAlignments:
    """Runs that start at multiples of 16, at 7 modulo 8, and at four places that tell nothing."""

    GROUP = np.repeat([0, 1, 2], [40, 40, 4])
    STARTS = np.concatenate(
        [1000 * np.arange(40) // 16 * 16, 8 * np.arange(40) ** 2 + 7, [1, 2, 3, 5]]
    )
    RUNS = Runs(np.zeros((84, COLUMNS), dtype=np.int64), STARTS, STARTS)

    def found(self, piece, others=(1, 0)):
        alignment, offset = start_alignments(self.RUNS, self.GROUP, others, piece)
        return [(int(alignment[k]), int(offset[k])) for k in (0, 40, 80)]

    def test_are_those_of_the_group_up_to_a_piece(self):
        assert self.found(8) == [(8, 0), (8, 7), (1, 0)]
        assert self.found(16) == [(16, 0), (8, 7), (1, 0)]

    def test_are_given_where_places_are_few(self):
        assert self.found(8, (4, 3))[2] == (4, 3)

    def test_states_where_no_run_started_tell_nothing(self):
        nowhere = np.full(84, -1)
        runs = Runs(self.RUNS.counts, nowhere, nowhere)
        alignment, offset = start_alignments(runs, self.GROUP, (2, 1), 8)
        assert set(alignment) == {2}
        assert set(offset) == {1}
