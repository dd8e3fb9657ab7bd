"""Small block traces, surveyed and counted, for tests of what is learnt from them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fitting.request_kinds import kind
from fitting.state_diagram import Diagram
from fitting.trace_survey import Surveyor
from fitting.transition_counter import TransitionCounter


class Columns(NamedTuple):
    """Requests of a trace in the order of arrival."""

    time_s: np.ndarray
    stream: np.ndarray
    device: np.ndarray
    lbn: np.ndarray
    size_bytes: np.ndarray
    op: np.ndarray


class Counted(NamedTuple):
    """A trace, what was found when it was surveyed, and its transitions.

    ``rows`` are those of the touched states in ``seen``, in the order of the counts.
    """

    columns: Columns
    survey: object
    classes: object
    counts: object
    seen: object
    rows: object


def columns(lbn, *, time_s=None, stream=0, device=0, size_bytes=4096, op=0):
    """Columns of a trace; a number stands for all requests."""
    n = len(lbn)

    def of(values, dtype):
        return np.broadcast_to(np.asarray(values), n).astype(dtype)

    return Columns(
        of(np.arange(n) if time_s is None else time_s, np.float64),
        of(stream, np.int32),
        of(device, np.int32),
        of(lbn, np.int64),
        of(size_bytes, np.int64),
        of(op, np.uint8),
    )


def counted(trace, levels=2, fan_out=4):
    """Count the transitions of a trace."""
    surveyor = Surveyor()
    surveyor.add(*trace[:5])
    survey = surveyor.survey()
    classes = survey.size_classes()
    diagram = Diagram.over(survey.low_lbn, survey.high_lbn, levels, fan_out)
    counter = TransitionCounter(diagram, survey, classes)
    seen = counter.add(*trace)
    return Counted(trace, survey, classes, counter.counts(), seen, counter.rows())


def two_streams(n=600, seed=1):
    """Random reads of two sizes, most of them of a few places, and a log that is written beside."""
    rng = np.random.default_rng(seed)
    log = rng.random(n) < 0.3
    place = np.where(rng.random(n) < 0.8, rng.integers(40, size=n), rng.integers(2000, size=n))
    return columns(
        np.where(log, 8 * (2000 + np.cumsum(log)), 8 * place),
        time_s=np.cumsum(rng.exponential(0.01, n)),
        stream=log,
        size_bytes=np.where(log | (rng.random(n) < 0.7), 4096, 8192),
        op=log,
    )


def kinds_of(trace):
    """Kind of the request of every transition, as chains and walks take them."""
    found = [
        kind(int(op), int(trace.classes.sizes[size][0]), trace.survey.piece)
        for op, size in zip(trace.counts.op, trace.counts.size_class, strict=True)
    ]
    return np.array(found)
