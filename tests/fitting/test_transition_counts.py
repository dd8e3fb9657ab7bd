"""Both passes over a trace against plain ones, and how well the counts of one foretell another."""

import itertools
import re
from collections import Counter
from dataclasses import fields
from math import log, log2

import numpy as np
import pytest
from counted_traces import (
    TRACES,
    Columns,
    Model,
    Survey,
    columns,
    counted,
    mixed,
    surveyed,
    two_streams,
)
from hypothesis import given, strategies as st

from fitting.errors import FittingError
from fitting.storage import survey as sv
from fitting.storage.survey import KINDS, Diagram, Surveyor, alignment_of
from fitting.storage.transitions import (
    INTERARRIVAL_BOUNDS,
    TransitionCounter,
    TransitionCounts,
    log_likelihood,
)

LEVELS, FAN_OUT = st.integers(1, 3), st.integers(2, 5)
MANY = mixed(3000, 4, streams=300, devices=3, sizes=40)


class TestSurvey:
    @given(TRACES, st.integers(0, 20))
    def test_is_that_of_the_reference(self, trace, part):
        parts = zip(*(np.split(column, [part]) for column in trace), strict=True)
        self.same(trace, surveyed(*parts))

    def test_has_room_for_as_many_streams_and_sizes_as_there_are(self):
        sizes = 512 * np.random.default_rng(1).permutation(3000)
        for trace in (MANY, columns(**{**MANY._asdict(), "size_bytes": sizes})):
            self.same(trace, surveyed(trace))

    def same(self, trace, found):
        expected = Survey(trace)
        assert (found.requests, found.tick_s) == (len(trace.lbn), expected.tick)
        assert (found.first_s, found.last_s) == (trace.time_s[0], trace.time_s[-1])
        assert (found.low_lbn, found.high_lbn) == (expected.low, expected.high)
        streams = [*zip(found.streams.tolist(), found.devices.tolist(), strict=True)]
        assert streams == expected.streams
        assert found.stream_counts.tolist() == [expected.stream_counts[s] for s in streams]
        assert found.device_of_stream.tolist() == expected.devices
        assert found.sizes.tolist() == expected.sizes
        assert found.size_counts.tolist() == [expected.size_counts[s] for s in expected.sizes]
        assert (found.alignment, found.alignment_offset) == (expected.alignment, expected.offset)
        assert found.piece == expected.piece
        # One gap more than there are.
        mean = (trace.time_s[-1] - trace.time_s[0]) / (len(trace.lbn) - 1)
        assert found.duration_s == pytest.approx(mean * len(trace.lbn))
        for alone in (2, 12):
            classes = found.size_classes(alone)
            both = zip(classes.sizes, classes.counts, strict=True)
            assert [tuple(of.tolist() for of in each) for each in both] == expected.classes(alone)
        assert len(classes) == len(expected.classes())

    def test_of_a_flush_at_the_first_block_is_of_one_block_and_of_one_instant_refused(self):
        found = surveyed(columns([0, 8], size_bytes=0))
        assert (found.requests, found.low_lbn, found.high_lbn) == (2, 0, 9)
        for times, said in {(): "0 requests", (3,): "1 request", (3, 3): "2 requests"}.items():
            message = f"^{said} within 0 s are too few for a model: give"
            with pytest.raises(FittingError, match=message):
                surveyed(columns(np.arange(len(times)), time_s=np.array(times)))

    @pytest.mark.parametrize("row", [0, 1, 3])
    @pytest.mark.parametrize("column", ["time_s", "stream", "device", "lbn", "size_bytes"])
    def test_of_requests_that_cannot_be_names_them(self, row, column):
        for value in (9.0, np.nan, np.inf) if column == "time_s" else (-1,):
            surveyor, trace = Surveyor(), columns([8, 16, 24, 32], time_s=np.arange(10.0, 14.0))
            surveyor.add(*trace[:5])
            later = Columns(trace.time_s + 10, *(values.copy() for values in trace[1:]))
            getattr(later, column)[row] = value
            said = f"request {4 + row}: it cannot be (time_s {later.time_s[row]!r} before"
            with pytest.raises(FittingError, match=re.escape(said)):
                surveyor.add(*later[:5])


def test_alignments_kinds_and_pieces_by_hand():
    # One in ten may lie elsewhere; one in four may not.
    by_hand = [([5, 13, 21], (8, 5)), ([0] * 9 + [1], (256, 0)), ([0, 0, 0, 1], (1, 0))]
    for places, expected in by_hand:
        assert alignment_of(np.bincount(places, minlength=256)) == expected
    # Three sizes of reads and of all others.
    sizes = {0.5: 0, 1: 0, 1.9: 0, 2: 1, 7.9: 1, 8: 2, 100: 2}
    for (pieces, size), op in itertools.product(sizes.items(), range(4)):
        assert sv.request_kind(op, int(pieces * 4096), 8) == size + (3 if op else 0) < KINDS
    # A mean request has sixteen pieces at most.
    blocks = {4: 8, 64: 8, 64.1: 16, 128: 16, 129: 32, 1024: 128}
    assert {mean_kib: sv.piece_blocks(mean_kib * 1024) for mean_kib in blocks} == blocks


def code_of(diagram, before, after):
    return sv.pair_code(before, after, diagram.levels, diagram.fan_out)[0]


class TestDiagram:
    def test_has_the_published_number_of_transitions(self):
        published = {1: 16, 2: 76, 3: 316, 4: 1276, 5: 5116, 10: 5_242_876}
        assert {levels: Diagram(levels).transitions for levels in published} == published

    @pytest.mark.parametrize(("levels", "fan_out"), [(1, 4), (2, 4), (3, 4), (3, 2), (2, 3)])
    def test_gives_every_pair_one_code_in_order(self, levels, fan_out):
        diagram = Diagram(levels, fan_out)
        pairs = np.array(list(itertools.product(range(diagram.states), repeat=2)))
        codes = np.array([code_of(diagram, *pair) for pair in pairs.tolist()])
        assert len(np.unique(codes)) == diagram.transitions
        assert codes.max() == diagram.pair_codes - 1
        order = np.argsort(codes)
        found = list(zip(*(part[order].tolist() for part in diagram.pairs(codes)), strict=True))
        assert found == sorted(found)

    @given(st.integers(1, 6), FAN_OUT, st.data())
    def test_parts_a_pair_at_the_coarsest_level_at_which_it_differs(self, levels, fan_out, data):
        diagram = Diagram(levels, fan_out)
        a, b = (data.draw(st.integers(0, diagram.states - 1)) for _ in range(2))
        apart = (i for i in range(levels) if a // fan_out**i == b // fan_out**i)
        within = min(apart, default=levels)
        size = fan_out ** max(within - 1, 0)
        found = diagram.pairs(code_of(diagram, a, b))
        assert found == (levels - max(within - 1, 0), a // size, b // size)
        if levels > 1:
            code = diagram.coarser_codes(np.array([code_of(diagram, a, b)]))[0]
            assert code == code_of(diagram.coarser(), a // fan_out, b // fan_out)

    def test_divides_the_space_evenly(self):
        diagram = Diagram.over(100, 100 + 1000, levels=2)
        assert (diagram.state_blocks, diagram.first_lbn, diagram.blocks) == (63, 100, 1008)
        assert Diagram.over(7, 7, 1).blocks == 4
        assert Diagram(2, 4, 0, 17).state_blocks == 2

    def test_is_refused_where_it_is_none(self):
        for levels, fan_out, blocks in ((0, 4, 1), (2, 1, 1), (1, 4, 0), (13, 4, 1)):
            with pytest.raises(FittingError, match="give"):
                Diagram(levels, fan_out, 0, blocks)
        assert (Diagram(12).states, Diagram(1, 2).states) == (4**12, 2)


def assert_counts(counts, trace, levels, fan_out, tick_s):
    """Every transition and touched state is that of a plain count."""
    model = Model(trace, levels, fan_out)
    pairs = counts.diagram.pairs(counts.pair)
    keys = (counts.origin, *pairs, counts.op, counts.sequential, counts.size_class)
    assert list(zip(*(k.tolist() for k in keys), strict=True)) == model.transitions
    assert counts.count.tolist() == [len(gaps) for gaps in model.gaps]
    for gaps, sums, histogram in zip(model.gaps, counts.sums, counts.histogram, strict=True):
        gap = np.array(gaps)
        # A gap of nought counts as half a tick where its logarithm is wanted.
        logs = np.log(np.maximum(gap, tick_s / 2))
        by_gap = len(gap), gap.sum(), gap @ gap
        by_log = logs.sum(), logs @ logs, gap @ logs
        expected = *by_gap, *by_log, gap.min(), gap.max()
        assert sums.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)
        # Classes begin with the 32nd gap of a transition.
        classes = Counter(int((log2(g) + 30) * 4) for g in np.exp(logs[31:]).tolist())
        assert {k: histogram[k] for k in np.flatnonzero(histogram)} == classes
    assert list(zip(counts.state_origin, counts.state, strict=True)) == model.states
    assert counts.occupancy.tolist() == [len(lbns) for lbns in model.lbns]
    assert counts.lowest.tolist() == [min(lbns) for lbns in model.lbns]
    assert counts.highest.tolist() == [max(lbns) for lbns in model.lbns]
    assert (counts.departures.tolist(), counts.arrivals.tolist()) == (model.out, model.into)
    assert np.array_equal(counts.stream, counts.origin // KINDS)
    assert np.array_equal(counts.stream_of_state, counts.state_origin // KINDS)


class TestCounts:
    @given(TRACES, LEVELS, FAN_OUT, st.lists(st.integers(0, 20), max_size=3).map(sorted))
    def test_are_those_of_the_reference(self, trace, levels, fan_out, parts):
        found = counted(trace, levels, fan_out, parts)
        assert_counts(found.counts, trace, levels, fan_out, found.survey.tick_s)

    @pytest.mark.parametrize(("levels", "sector"), [(1, 512), (10, 512), (1, 500)])
    def test_of_many_transitions_have_histograms(self, levels, sector):
        """Of ten levels the codes of states and transitions are too many for an array."""
        trace = two_streams(2000)
        trace = columns(**{**trace._asdict(), "size_bytes": trace.size_bytes // 512 * sector})
        found = counted(trace, levels)
        assert_counts(found.counts, trace, levels, 4, found.survey.tick_s)
        total = found.counts.histogram.sum(axis=0)
        assert total.any()
        if levels > 1:
            assert np.array_equal(found.counts.coarser().histogram.sum(axis=0), total)

    @given(TRACES, st.integers(2, 3), FAN_OUT)
    def test_of_one_level_less_are_those_of_the_coarser_diagram(self, columns, levels, fan_out):
        trace = counted(columns, levels, fan_out)
        fine = trace.counts.diagram
        coarse = Diagram(levels - 1, fan_out, fine.first_lbn, fine.blocks)
        counter = TransitionCounter(coarse, trace.survey, trace.classes)
        counter.add(*trace.columns)
        found, expected = trace.counts.coarser(), counter.counts()
        assert found.diagram == coarse
        assert found.sums == pytest.approx(expected.sums, rel=1e-9, abs=1e-9)
        for name in {f.name for f in fields(TransitionCounts)} - {"diagram", "sums", "histogram"}:
            assert np.array_equal(getattr(found, name), getattr(expected, name)), name


@pytest.mark.parametrize(("gap_s", "class_"), [(2.0**-32, 0), (1.0, 120), (2.0**21, -1)])
def test_gaps_outside_the_histogram_are_in_its_outermost_classes(gap_s, class_):
    # Of a class are gaps from its bound on; 1 s is 30 octaves above the first.
    trace = columns(np.zeros(100), time_s=gap_s * np.arange(100))
    histogram = counted(trace).counts.histogram.sum(axis=0)
    assert np.flatnonzero(histogram).tolist() == [range(len(histogram))[class_]]
    classes = np.log2(INTERARRIVAL_BOUNDS)
    assert np.diff(classes) == pytest.approx(np.full(len(histogram), 0.25))
    assert classes[0] == pytest.approx(-30)


def foretold(fitted, seen):
    """Mean log-likelihood of the transitions of a trace by another's, request by request."""
    k, deepest = fitted.k, fitted.levels
    made, left, touched = Counter(), Counter(), Counter()
    for (origin, *pair, _, _, _), gaps in zip(fitted.transitions, fitted.gaps, strict=True):
        made[origin // KINDS, *pair] += len(gaps)
    for (origin, state), out, lbns in zip(fitted.states, fitted.out, fitted.lbns, strict=True):
        for level in range(1, deepest + 1):
            coarse = origin // KINDS, level, state // k ** (deepest - level)
            left[coarse] += sum(out)
            touched[coarse] += len(lbns)
    found, number = 0.0, 0
    for (origin, *pair, _, _, _), gaps in zip(seen.transitions, seen.gaps, strict=True):
        stream, (level, source, _) = origin // KINDS, pair
        ways = (k - 1) * deepest + 1
        share = (made[stream, *pair] + 0.5) / (left[stream, level, source] + 0.5 * ways)
        found += len(gaps) * log(share / fitted.width)
        number += len(gaps)
    for (origin, state), into in zip(seen.states, seen.into, strict=True):
        for level in range(1, deepest):
            whole = touched[origin // KINDS, level, state // k ** (deepest - level)]
            inside = touched[origin // KINDS, deepest, state] + 0.5
            found += into[level - 1] * log(inside / (whole + 0.5 * k ** (deepest - level)))
    return found / number


@pytest.mark.parametrize(("levels", "fan_out"), [(1, 4), (2, 4), (3, 4), (2, 3), (3, 2)])
def test_the_likelihood_of_one_half_by_the_other_is_a_mean_over_requests(levels, fan_out):
    trace, halves = two_streams(300), []
    ends = [trace.lbn.argmin(), trace.lbn.argmax()]
    for part in (np.arange(150), np.arange(150, 300)):
        # Both streams begin with the ends of the space, so that both halves have one diagram.
        rows = np.concatenate([ends, part])
        lbn, size, op = (getattr(trace, name)[rows] for name in ("lbn", "size_bytes", "op"))
        stream = np.concatenate([[0, 1], trace.stream[part]])
        halves.append(columns(lbn, stream=stream, size_bytes=size, op=op))
    counts = [counted(half, levels, fan_out).counts for half in halves]
    models = [Model(half, levels, fan_out) for half in halves]
    found = log_likelihood(*counts)
    assert found == pytest.approx(foretold(*models), rel=1e-12)
    assert log_likelihood(counts[0], counts[0]) > found
