"""Tables of a chain against the transitions that they were made from."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from counted_traces import columns, counted, kinds_of, two_streams
from hypothesis import given
from hypothesis import strategies as st

from fitting.chain import _alias, _pooled_departures, make_chain
from fitting.request_kinds import KINDS

weights = st.lists(st.integers(1, 1000), min_size=1, max_size=12)


@given(st.lists(weights, min_size=1, max_size=4))
def test_an_alias_table_holds_the_shares_of_its_node(nodes):
    first = np.cumsum([0, *map(len, nodes)])
    weight = np.concatenate(nodes).astype(float)
    keep, other = np.empty(len(weight)), np.empty(len(weight), dtype=np.int64)
    _alias(first, weight, keep, other)
    for a, b in itertools.pairwise(first):
        assert (keep[a:b] >= 0).all()
        assert (keep[a:b] <= 1).all()
        given_away = np.bincount(other[a:b] - a, 1 - keep[a:b], minlength=b - a)
        share = (keep[a:b] + given_away) / (b - a)
        assert share == pytest.approx(weight[a:b] / weight[a:b].sum(), abs=1e-12)


@pytest.fixture(scope="module", params=[1, 2, 3])
def trace(request):
    return counted(two_streams(), levels=request.param)


@pytest.fixture(scope="module")
def chain(trace):
    return make_chain(trace.counts, kinds_of(trace))


def transitions(chain, node):
    return chain.order[chain.first[node] : chain.first[node + 1]].tolist()


def test_each_node_has_the_random_transitions_of_its_state(trace, chain):
    counts, elsewhere = trace.counts, trace.counts.sequential == 0
    pairs, k, levels = counts.diagram.pairs(counts.pair), counts.diagram.fan_out, chain.levels
    for row, (origin, state) in enumerate(zip(counts.state_origin, counts.state, strict=True)):
        for level in range(1, levels + 1):
            coarse = state // k ** (levels - level)
            mine = (counts.origin == origin) & (pairs.level == level) & (pairs.source == coarse)
            expected, node = np.flatnonzero(mine & elsewhere), chain.node[row, level - 1]
            if not len(expected):
                assert node == -1
            else:
                assert transitions(chain, node) == expected.tolist()


def test_a_run_goes_on_as_it_did_in_its_finest_state(trace, chain):
    counts = trace.counts
    pairs, goes_on = counts.diagram.pairs(counts.pair), counts.sequential == 1
    for row, (origin, state) in enumerate(zip(counts.state_origin, counts.state, strict=True)):
        mine = goes_on & (counts.origin == origin)
        finest = mine & (pairs.level == chain.levels) & (pairs.source == state)
        if finest.any():
            assert transitions(chain, chain.follows[row]) == np.flatnonzero(finest).tolist()
        elif not mine.any():
            assert chain.follows[row] == -1


def test_a_trace_of_one_run_goes_on_from_every_state():
    trace = counted(columns(8 * np.arange(64)), levels=1)
    chain = make_chain(trace.counts, kinds_of(trace))
    source = trace.counts.diagram.pairs(trace.counts.pair).source
    assert (chain.node == -1).all()
    for row, state in enumerate(trace.counts.state):
        assert transitions(chain, chain.follows[row]) == np.flatnonzero(source == state).tolist()


def test_a_transition_leads_to_the_touched_states_within_its_target(trace, chain):
    counts, kinds = trace.counts, kinds_of(trace)
    diagram, pairs = counts.diagram, trace.counts.diagram.pairs(counts.pair)
    for t in range(len(counts.pair)):
        size = diagram.fan_out ** (diagram.levels - pairs.level[t])
        inside = (counts.state_origin == counts.stream[t] * KINDS + kinds[t]) & (
            counts.state // size == pairs.target[t]
        )
        assert np.arange(chain.low[t], chain.high[t]).tolist() == np.flatnonzero(inside).tolist()
        same = chain.target == chain.target[t]
        assert (chain.low[same] == chain.low[t]).all()
        assert (pairs.level[same] == pairs.level[t]).all()


def test_coarse_states_are_left_as_often_as_counted(trace, chain):
    counts, k = trace.counts, trace.counts.diagram.fan_out
    pairs = counts.diagram.pairs(counts.pair)
    left = np.diff(chain.leave, prepend=0, axis=1) * chain.departures[:, None]
    for level in range(1, chain.levels + 1):
        state = counts.state // k ** (chain.levels - level)
        for origin, source in set(zip(counts.state_origin, state, strict=True)):
            inside = (counts.state_origin == origin) & (state == source)
            mine = (counts.origin == origin) & (pairs.level == level) & (pairs.source == source)
            expected = counts.count[mine & (counts.sequential == 0)].sum()
            assert left[inside, level - 1].sum() == pytest.approx(expected)
    assert (chain.leave[chain.departures > 0, -1] == 1).all()


def test_ranges_are_entered_as_often_as_counted(trace, chain):
    counts, elsewhere = trace.counts, trace.counts.sequential == 0
    arrivals = np.diff(chain.entered, axis=1)
    for target in np.unique(chain.target):
        here = chain.target == target
        t = np.flatnonzero(here)[0]
        found = arrivals[chain.level[t] - 1, chain.low[t] : chain.high[t]].sum()
        assert found == counts.count[here & elsewhere].sum()


def test_by_occupancy_a_coarse_state_is_left_from_anywhere_in_it_alike(trace):
    counts, k, levels = trace.counts, trace.counts.diagram.fan_out, trace.counts.diagram.levels
    share, stays = _pooled_departures(counts, counts.departures), np.ones(len(counts.state))
    for level in range(levels):
        coarse = counts.state_origin * 4**levels + counts.state // k ** (levels - 1 - level)
        for state in np.unique(coarse):
            here = coarse == state
            left = counts.departures[here, level:]
            expected = left[:, 0].sum() / left.sum() if left.any() else 0.0
            assert share[here, level] == pytest.approx(stays[here] * expected)
        stays = stays - share[:, level]


def test_by_occupancy_states_are_entered_as_often_as_they_were_touched(trace):
    chain = make_chain(trace.counts, kinds_of(trace), "occupancy")
    assert (np.diff(chain.entered, axis=1) == trace.counts.occupancy).all()
