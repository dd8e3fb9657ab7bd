"""Counts of transitions against a plain count, request by request; and one level less."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import log

import numpy as np
import pytest
from counted_traces import columns, counted, kinds_of, two_streams

from fitting.request_kinds import KINDS, kind
from fitting.state_diagram import Diagram
from fitting.transition_counter import TransitionCounter
from fitting.transition_counts import (
    G_LOGS,
    GAPS,
    LARGEST,
    LOG_SQUARES,
    LOGS,
    SMALLEST,
    SQUARES,
    SUM,
    TransitionCounts,
    gap_classes,
)


@pytest.fixture(scope="module", params=[1, 2, 3])
def trace(request):
    return counted(two_streams(400), levels=request.param)


def requests(trace):
    """Origin, state, block, end, operation, size and time of every request."""
    columns, diagram = trace.columns, trace.counts.diagram
    states = diagram.state(columns.lbn)
    for i, size in enumerate(columns.size_bytes.tolist()):
        stream, op = int(columns.stream[i]), int(columns.op[i])
        origin = stream * KINDS + kind(op, size, trace.survey.piece)
        lbn = int(columns.lbn[i])
        end = lbn + size // 512
        yield origin, int(states[i]), lbn, end, op, size, float(columns.time_s[i])


def test_every_transition_and_its_gaps(trace):
    counts, last, gaps = trace.counts, {}, defaultdict(list)
    class_of = {int(s): c for c, sizes in enumerate(trace.classes.sizes) for s in sizes}
    for request in requests(trace):
        origin, state, lbn, _, op, size, time = request
        before = last.get(origin // KINDS)
        if before is not None:
            pair = int(counts.diagram.pair_code(before[1], state))
            key = (before[0], pair, op, int(lbn == before[3]), class_of[size])
            gaps[key].append(time - before[6])
        last[origin // KINDS] = request
    keys = zip(
        *(counts.origin, counts.pair, counts.op, counts.sequential, counts.size_class), strict=True
    )
    rows = {tuple(map(int, key)): row for row, key in enumerate(keys)}
    assert set(rows) == set(gaps)
    for key, of in gaps.items():
        gap, sums = np.array(of), counts.sums[rows[key]]
        logs = np.log(gap)
        assert (sums[GAPS], counts.count[rows[key]]) == (len(gap), len(gap))
        expected = {
            SUM: gap.sum(),
            SQUARES: gap @ gap,
            LOGS: logs.sum(),
            LOG_SQUARES: logs @ logs,
            G_LOGS: gap @ logs,
            SMALLEST: gap.min(),
            LARGEST: gap.max(),
        }
        for column, value in expected.items():
            assert sums[column] == pytest.approx(value, rel=1e-9, abs=1e-12)


def test_touched_states(trace):
    counts, touched = trace.counts, defaultdict(list)
    for origin, state, lbn, *_ in requests(trace):
        touched[origin, state].append(lbn)
    found = list(zip(counts.state_origin.tolist(), counts.state.tolist(), strict=True))
    assert found == sorted(touched)
    for row, key in enumerate(found):
        assert counts.occupancy[row] == len(touched[key])
        assert (counts.lowest[row], counts.highest[row]) == (min(touched[key]), max(touched[key]))
    assert np.array_equal(counts.stream_of_state, [origin // KINDS for origin, _ in found])
    assert np.array_equal(counts.stream, counts.origin // KINDS)


def test_partings_of_touched_states(trace):
    counts, last, out, into = trace.counts, {}, Counter(), Counter()
    for origin, state, *_ in requests(trace):
        if (before := last.get(origin // KINDS)) is not None:
            level = int(counts.diagram.pairs(counts.diagram.pair_code(before[1], state)).level)
            out[(*before, level)] += 1
            into[origin, state, level] += 1
        last[origin // KINDS] = (origin, state)
    for row, key in enumerate(zip(counts.state_origin, counts.state, strict=True)):
        levels = range(1, counts.diagram.levels + 1)
        assert counts.departures[row].tolist() == [out[(*key, level)] for level in levels]
        assert counts.arrivals[row].tolist() == [into[(*key, level)] for level in levels]


@pytest.mark.parametrize("fan_out", [2, 3, 4])
def test_one_level_less_is_what_the_coarser_diagram_counts(fan_out):
    trace = counted(two_streams(400), 3, fan_out)
    fine = trace.counts.diagram
    coarse = Diagram(2, fan_out, fine.first_lbn, fine.blocks)
    counter = TransitionCounter(coarse, trace.survey, trace.classes)
    counter.add(*trace.columns)
    found, expected = trace.counts.coarser(), counter.counts()
    for name in TransitionCounts.__dataclass_fields__:
        if name == "diagram":
            assert found.diagram == expected.diagram
        elif name == "sums":
            assert found.sums == pytest.approx(expected.sums, rel=1e-9, abs=1e-12)
        elif name != "histogram":
            assert np.array_equal(getattr(found, name), getattr(expected, name)), name


def test_where_on_its_device_a_trace_begins_makes_no_difference():
    columns = two_streams(400)
    here, there = counted(columns), counted(columns._replace(lbn=columns.lbn + 10**6))
    for name in ("origin", "pair", "count", "state_origin", "state"):
        np.testing.assert_array_equal(getattr(here.counts, name), getattr(there.counts, name))
    np.testing.assert_array_equal(here.counts.lowest + 10**6, there.counts.lowest)


@pytest.mark.parametrize(("gap_s", "class_"), [(2.0**-32, 0), (1.0, 120), (2.0**21, -1)])
def test_gaps_outside_the_histogram_are_in_its_outermost_classes(gap_s, class_):
    # Of a class are gaps from its bound on; 1 s is 30 octaves above the first.
    trace = columns(np.zeros(100), time_s=gap_s * np.arange(100))
    histogram = counted(trace).counts.histogram.sum(axis=0)
    assert np.flatnonzero(histogram).tolist() == [range(len(histogram))[class_]]


def test_operations_beyond_a_flush_count_as_one():
    found = counted(columns(8 * np.arange(5), op=[0, 3, 2, 4, 200])).counts
    assert sorted(np.repeat(found.op, found.count)) == [2, 3, 3, 3]


def test_classes_of_gaps_are_a_quarter_of_an_octave():
    classes = gap_classes()
    assert np.diff(np.log2(classes)) == pytest.approx(np.full(len(classes) - 1, 0.25))
    assert log(classes[0], 2) == pytest.approx(-30)


def test_kinds_of_transitions_are_those_of_their_requests(trace):
    kinds = kinds_of(trace)
    assert ((kinds >= 3) == (trace.counts.op > 0)).all()
