"""Likelihood of one half of a trace under the other's counts, against a sum request by request."""

from __future__ import annotations

from collections import Counter
from math import log

import numpy as np
import pytest
from counted_traces import columns, counted, two_streams

from fitting.held_out import log_likelihood


def steps(trace):
    """Stream, state before and state after of every transition."""
    diagram, last = trace.counts.diagram, {}
    for stream, state in zip(
        trace.columns.stream.tolist(), diagram.state(trace.columns.lbn).tolist(), strict=True
    ):
        if stream in last:
            yield stream, last[stream], state
        last[stream] = state


def request_by_request(fitted, seen):
    diagram, k = fitted.counts.diagram, fitted.counts.diagram.fan_out
    deepest = diagram.levels
    made, left, touched = Counter(), Counter(), Counter()
    for stream, before, after in steps(fitted):
        made[stream, int(diagram.pair_code(before, after))] += 1
        for level in range(1, deepest + 1):
            left[stream, level, before // k ** (deepest - level)] += 1
    states = diagram.state(fitted.columns.lbn).tolist()
    for stream, state in zip(fitted.columns.stream.tolist(), states, strict=True):
        for level in range(1, deepest + 1):
            touched[stream, level, state // k ** (deepest - level)] += 1
    found = []
    for stream, before, after in steps(seen):
        code = int(diagram.pair_code(before, after))
        level, source, target = (int(part) for part in diagram.pairs(code))
        ways = (k - 1) * deepest + 1
        a_pair = (made[stream, code] + 0.5) / (left[stream, level, source] + 0.5 * ways)
        inside = touched[stream, deepest, after] + 0.5
        whole = touched[stream, level, target] + 0.5 * k ** (deepest - level)
        a_state = inside / whole if level < deepest else 1.0
        found.append(log(a_pair * a_state / diagram.state_blocks))
    return np.mean(found)


def halves(trace, levels, fan_out):
    """Both halves over the diagram of the whole, which has the extremes of either."""
    n, ends = len(trace.lbn), [trace.lbn.argmin(), trace.lbn.argmax()]
    for part in (np.arange(n // 2), np.arange(n // 2, n)):
        # Both streams begin with the ends of the space, so that both halves have one diagram.
        rows = np.concatenate([ends, part])
        lbn, size, op = (getattr(trace, name)[rows] for name in ("lbn", "size_bytes", "op"))
        stream = np.concatenate([[0, 1], trace.stream[part]])
        yield counted(columns(lbn, stream=stream, size_bytes=size, op=op), levels, fan_out)


@pytest.mark.parametrize(("levels", "fan_out"), [(1, 4), (2, 4), (3, 4), (2, 3), (3, 2)])
def test_is_the_mean_over_requests(levels, fan_out):
    fitted, seen = halves(two_streams(300), levels, fan_out)
    assert fitted.counts.diagram == seen.counts.diagram
    found = log_likelihood(fitted.counts, seen.counts)
    assert found == pytest.approx(request_by_request(fitted, seen), rel=1e-12)


def test_what_was_learnt_is_foretold_better_than_another_trace():
    fitted, seen = halves(two_streams(300), 3, 4)
    own = log_likelihood(fitted.counts, fitted.counts)
    assert own > log_likelihood(fitted.counts, seen.counts)
