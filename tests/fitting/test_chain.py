"""Tables of a chain against plain ones, and against the transitions that they were made from."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from counted_traces import TRACES, counted, kinds_of, two_streams
from hypothesis import given
from hypothesis import strategies as st
from requests_reference import Chain, Model

from fitting.chain import ENTRIES, _alias, make_chain
from fitting.errors import FittingError

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


@given(TRACES, st.integers(1, 3), st.integers(2, 4), st.sampled_from(ENTRIES))
def test_tables_are_those_of_the_reference(columns, levels, fan_out, entry):
    trace = counted(columns, levels, fan_out)
    counts, kinds = trace.counts, kinds_of(trace)
    found = make_chain(counts, kinds, entry)
    expected = Chain(Model(columns, levels, fan_out), kinds.tolist(), entry)
    nodes = [found.order[a:b].tolist() for a, b in itertools.pairwise(found.first)]
    assert nodes == [expected.nodes[key] for key in sorted(expected.nodes)]
    number = {None: -1} | {key: k for k, key in enumerate(sorted(expected.nodes))}
    assert found.node.tolist() == [[number[key] for key in keys] for keys in expected.node]
    assert found.follows.tolist() == [number[key] for key in expected.follows]
    assert found.departures.tolist() == expected.departures
    assert found.leave == pytest.approx(np.array(expected.leave), rel=1e-12)
    assert found.entered.tolist() == expected.entered
    ranges = [list(range(*of)) for of in zip(found.low, found.high, strict=True)]
    assert ranges == expected.leads_to
    assert np.array_equal(found.level, counts.diagram.pairs(counts.pair).level)
    targets = sorted(set(zip(found.low, found.level, strict=True)))
    assert [targets[k] for k in found.target] == list(zip(found.low, found.level, strict=True))
    if entry == "occupancy":
        return
    # Coarse states are left, and ranges entered, as often as counted.
    left = np.diff(found.leave, prepend=0, axis=1) * found.departures[:, None]
    for (origin, level, source, sequential), transitions in expected.nodes.items():
        size = fan_out ** (levels - level)
        inside = (counts.state_origin == origin) & (counts.state // size == source)
        if not sequential:
            number = counts.count[transitions].sum()
            assert left[inside, level - 1].sum() == pytest.approx(number)
    arrivals = np.diff(found.entered, axis=1)
    for target in np.unique(found.target):
        here = found.target == target
        t = np.flatnonzero(here)[0]
        entered = arrivals[found.level[t] - 1, found.low[t] : found.high[t]].sum()
        assert entered == counts.count[here & (counts.sequential == 0)].sum()


def test_an_unknown_way_of_entry_is_refused():
    trace = counted(two_streams(20))
    with pytest.raises(FittingError, match="'anyhow': give arrivals or occupancy"):
        make_chain(trace.counts, kinds_of(trace), "anyhow")
