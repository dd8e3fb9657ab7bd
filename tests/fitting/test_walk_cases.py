"""Walks against the traces that they were learnt from, request by request."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from counted_traces import columns, counted, kinds_of, two_streams

from fitting.chain import ENTRIES, make_chain
from fitting.errors import FittingError
from fitting.interarrival import fit_gaps
from fitting.marks import MOST_CLOCK, new_marks
from fitting.places import Addresses
from fitting.reuse import ReuseCounter, reuse_law
from fitting.runs import RunCounter
from fitting.walk import Learnt, Walk

STEP = 0.25


class Behaviour(NamedTuple):
    """What a trace does besides its transitions: its runs, and the law of its reuse."""

    runs: object
    reuse: object


def behaviour(trace):
    counts, device = trace.counts, trace.survey.device_of_stream
    ages, runs = ReuseCounter(device, trace.survey.piece), RunCounter(len(trace.survey.streams))
    again = ages.add(trace.seen, trace.columns.lbn, trace.columns.size_bytes)
    runs.add(trace.seen, trace.columns.lbn, again)
    requests = np.bincount(device, trace.survey.stream_counts)
    law = reuse_law(ages.by_state(trace.rows), requests[device[counts.stream_of_state]])
    return Behaviour(runs.by_state(trace.rows), law)


def walk_of(trace, *, reuse=False, expected=1.0, stratified=True, pace=None, seed=0, entry=None):
    survey, counts, kinds = trace.survey, trace.counts, kinds_of(trace)
    found = behaviour(trace)
    learnt = Learnt(
        counts,
        kinds,
        make_chain(counts, kinds, entry or ENTRIES[0]),
        found.runs,
        fit_gaps(counts.sums, counts.histogram, survey.tick_s, "constant"),
        trace.classes,
        Addresses(
            survey.alignment,
            survey.alignment_offset,
            survey.high_lbn,
            found.reuse if reuse else None,
            survey.piece,
            devices=survey.device_of_stream,
            met=np.zeros(int(survey.device_of_stream.max()) + 1),
        ),
        np.ones(len(survey.streams)) if pace is None else pace,
    )
    rng = np.random.default_rng(seed)
    return Walk(learnt, expected=expected, rng=rng, stratified=stratified)


@pytest.fixture(scope="module")
def busy():
    return counted(two_streams())


def off(trace, requests):
    """Share of the requests whose transitions would have to be others to be as many as counted."""
    made = np.bincount(requests.transition, minlength=len(trace.counts.pair))
    return np.abs(made - trace.counts.count).sum() / 2 / len(requests.transition)


def led_to(trace, requests):
    """Whether each request that goes elsewhere is in the state that its transition leads to."""
    counts, diagram = trace.counts, trace.counts.diagram
    pairs = diagram.pairs(counts.pair[requests.transition])
    state = diagram.state(requests.lbn) // diagram.fan_out ** (diagram.levels - pairs.level)
    return (state == pairs.target)[counts.sequential[requests.transition] == 0]


class TestAsLongAsItsTrace:
    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("levels", [1, 2, 3])
    def test_makes_every_transition_about_as_often_as_the_trace(self, levels, seed):
        trace = counted(two_streams(), levels)
        found = walk_of(trace, seed=seed).take(trace.survey.requests)
        assert off(trace, found) < 0.07

    def test_is_nearer_to_it_than_chance(self, busy):
        n = busy.survey.requests
        dealt, drawn = (
            np.mean([off(busy, walk_of(busy, stratified=s, seed=k).take(n)) for k in range(4)])
            for s in (True, False)
        )
        assert dealt < 0.6 * drawn

    def test_makes_as_many_requests_of_each_stream(self, busy):
        found = walk_of(busy).take(busy.survey.requests)
        assert np.array_equal(np.bincount(found.stream), busy.survey.stream_counts)

    def test_begins_again_with_each_round(self, busy):
        walk, n = walk_of(busy, expected=2.0), busy.survey.requests
        first, second = walk.take(n), walk.take(n)
        for found in (first, second):
            assert off(busy, found) < 0.07
        assert second.due_s[0] > 0
        assert (first.transition != second.transition).any()

    def test_goes_on_where_it_stopped(self, busy):
        whole, parts = walk_of(busy).take(300), walk_of(busy)
        found = [parts.take(100) for _ in range(3)]
        for name, expected in whole._asdict().items():
            assert np.array_equal(np.concatenate([getattr(f, name) for f in found]), expected)


class TestEveryRequest:
    @pytest.fixture(params=["uniform", "reused"])
    def found(self, busy, request):
        return walk_of(busy, reuse=request.param == "reused").take(busy.survey.requests)

    def test_is_within_what_was_touched(self, busy, found):
        assert found.lbn.min() >= busy.survey.low_lbn
        assert found.lbn.max() < busy.counts.diagram.first_lbn + busy.counts.diagram.blocks
        assert not (found.lbn % 8).any()

    def test_has_the_operation_and_the_sizes_of_its_transition(self, busy, found):
        assert np.array_equal(found.op, busy.counts.op[found.transition])
        for size, class_ in zip(
            found.size_bytes, busy.counts.size_class[found.transition], strict=True
        ):
            assert size in busy.classes.sizes[class_]

    def test_belongs_to_the_stream_of_its_transition(self, busy, found):
        assert np.array_equal(found.stream, busy.counts.stream[found.transition])

    def test_goes_on_where_its_stream_stopped_if_its_transition_does(self, busy, found):
        for stream in (0, 1):
            of = found.stream == stream
            lbn, end = found.lbn[of], found.lbn[of] + found.size_bytes[of] // 512
            goes_on = busy.counts.sequential[found.transition[of]] == 1
            within = end[:-1] < busy.counts.diagram.first_lbn + busy.counts.diagram.blocks
            same = lbn[1:] == end[:-1]
            assert same[goes_on[1:] & within].all()
            # Where it goes elsewhere, chance hardly ever brings it to the same block.
            assert same[~goes_on[1:]].sum() < 0.05 * len(same)

    def test_is_in_the_state_that_its_transition_leads_to(self, busy):
        found = walk_of(busy).take(busy.survey.requests)
        assert led_to(busy, found).all()

    def test_is_mostly_there_where_places_are_remembered(self, busy):
        # Where a state is full of what was touched, what is new lies behind it.
        found = walk_of(busy, reuse=True).take(busy.survey.requests)
        assert 0.8 < led_to(busy, found).mean() <= 1

    def test_requests_are_in_the_order_of_their_times(self, found):
        assert (np.diff(found.due_s) >= 0).all()


class TestTimes:
    def test_constant_gaps_are_the_traces_own(self):
        trace = counted(columns(8 * np.arange(64), time_s=STEP * np.arange(64)))
        found = walk_of(trace).take(64)
        assert np.diff(found.due_s) == pytest.approx(np.full(63, STEP), rel=1e-9)
        assert 0 <= found.due_s[0] < STEP

    def test_a_pace_stretches_the_gaps_of_its_stream_only(self, busy):
        ends = []
        for pace in ([1.0, 1.0], [3.0, 1.0]):
            found = walk_of(busy, pace=np.array(pace)).take(busy.survey.requests)
            ends.append([np.diff(found.due_s[found.stream == s]).sum() for s in (0, 1)])
        assert ends[1][0] == pytest.approx(3 * ends[0][0], rel=1e-9)
        assert ends[1][1] == pytest.approx(ends[0][1], rel=1e-9)

    def test_the_mean_rate_is_the_traces(self, busy):
        found = walk_of(busy).take(busy.survey.requests)
        assert found.due_s[-1] == pytest.approx(busy.survey.duration_s, rel=0.1)


class TestLongerOrShorter:
    @pytest.mark.parametrize("entry", ENTRIES)
    @pytest.mark.parametrize("stratified", [True, False])
    def test_shares_of_states_are_the_traces(self, busy, stratified, entry):
        counts = busy.counts
        found = walk_of(busy, expected=5.0, stratified=stratified, entry=entry).take(3000)
        state = counts.diagram.state(found.lbn)
        share = np.bincount(state, minlength=16) / 3000
        expected = np.bincount(counts.state, counts.occupancy, 16) / busy.survey.requests
        assert share == pytest.approx(expected, abs=0.05)

    def test_half_a_trace_has_half_of_each_stream(self, busy):
        found = walk_of(busy, expected=0.5).take(busy.survey.requests // 2)
        expected = busy.survey.stream_counts / 2
        assert np.abs(np.bincount(found.stream) - expected).max() <= 1


class TestReuse:
    def test_comes_back_as_often_as_the_trace(self, busy):
        found = walk_of(busy, reuse=True).take(busy.survey.requests)
        again = [
            np.mean([lbn in seen or bool(seen.add(lbn)) for lbn in lbns.tolist()])
            for lbns, seen in ((busy.columns.lbn, set()), (found.lbn, set()))
        ]
        assert again[1] == pytest.approx(again[0], abs=0.08)

    def test_pages_read_once_are_not_read_again(self):
        order = np.random.default_rng(4).permutation(400)
        trace = counted(columns(8 * order))
        found = walk_of(trace, reuse=True).take(400)
        free = walk_of(trace).take(400)
        assert len(np.unique(found.lbn)) > 1.2 * len(np.unique(free.lbn))


class TestMemory:
    def test_has_room_for_more_when_it_is_full(self, busy):
        whole, tight = (walk_of(busy, reuse=True) for _ in range(2))
        memory = tight._course.m
        few = new_marks(1 << memory.marks.bits, memory.marks.devices, 16)
        tight._course = tight._course._replace(m=memory._replace(marks=few))
        n = busy.survey.requests
        for found, expected in zip(tight.take(n), whole.take(n), strict=True):
            assert np.array_equal(found, expected)
        assert len(tight._course.m.marks.key) > 16

    def test_begins_anew_where_its_clocks_end(self, busy):
        walk = walk_of(busy, reuse=True)
        walk.take(200)
        walk._course.m.clock[:] = MOST_CLOCK
        found = walk.take(400)
        assert walk._course.m.clock.tolist() == [400]
        assert np.array_equal(np.bincount(found.stream).nonzero()[0], [0, 1])
        assert not (walk._course.p.made < 0).any()


class TestOneRequestOfAStream:
    def test_makes_none(self):
        stream = np.zeros(50, dtype=int)
        stream[20] = 1
        rng = np.random.default_rng(2)
        trace = counted(columns(8 * rng.integers(100, size=50), stream=stream))
        assert not walk_of(trace, expected=3.0).take(140).stream.any()


def test_an_unknown_way_of_entry_is_refused(busy):
    with pytest.raises(FittingError, match="arrivals or occupancy"):
        make_chain(busy.counts, kinds_of(busy), "anyhow")
