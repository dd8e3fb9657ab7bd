"""Small block traces, surveyed and counted, and generators of requests learnt from them."""

from collections import namedtuple

import numpy as np
from hypothesis import strategies as st
from requests_reference import Model, Reference

from fitting.storage.addresses import Addresses
from fitting.storage.generator import ENTRIES, Generator, Learnt, make_chain
from fitting.storage.interarrival import fit_interarrivals
from fitting.storage.reuse_distance import ReuseCounter, reuse_law
from fitting.storage.run_lengths import RunCounter
from fitting.storage.survey import Diagram, Surveyor, request_kind
from fitting.storage.transitions import TransitionCounter

# Requests of a trace in the order of arrival.
Columns = namedtuple("Columns", "time_s stream device lbn size_bytes op")
# A trace and what is learnt from it: ``again`` has by request whether it starts a run where its
# device was touched before.
Counted = namedtuple("Counted", "columns survey classes counts again runs reuse")


def columns(lbn, *, time_s=None, stream=0, device=0, size_bytes=4096, op=0):
    """Columns of a trace, not to be written to as those of Arrow; a number stands for all rows."""
    given = np.arange(len(lbn)) if time_s is None else time_s, stream, device, lbn, size_bytes, op
    types = np.float64, np.int32, np.int32, np.int64, np.int64, np.uint8
    made = [v.astype(t) for v, t in zip(np.broadcast_arrays(lbn, *given)[1:], types, strict=True)]
    for values in made:
        values.flags.writeable = False
    return Columns(*made)


def surveyed(*batches):
    surveyor = Surveyor()
    for batch in batches:
        surveyor.add(*batch[:5])
    return surveyor.survey()


def counted(trace, levels=2, fan_out=4, parts=()):
    """Count the transitions of a trace, in one batch or in parts that end at some requests."""
    batches = [Columns(*of) for of in zip(*(np.split(c, parts) for c in trace), strict=True)]
    survey = surveyed(*batches)
    classes, device = survey.size_classes(), survey.device_of_stream
    diagram = Diagram.over(survey.low_lbn, survey.high_lbn, levels, fan_out)
    counter, again = TransitionCounter(diagram, survey, classes), []
    ages, runs = ReuseCounter(device, survey.piece), RunCounter(len(survey.streams))
    for batch in batches:
        seen = counter.add(*batch)
        again.append(ages.add(seen, batch.lbn, batch.size_bytes))
        runs.add(seen, batch.lbn, again[-1])
    counts, rows = counter.counts(), counter.rows()
    requests = np.bincount(device, survey.stream_counts)
    law = reuse_law(ages.by_state(rows), requests[device[counts.stream_of_state]])
    again = np.concatenate(again)
    return Counted(trace, survey, classes, counts, again, runs.by_state(rows), law)


def learnt_of(trace, *, reuse=True, pace=None, entry=ENTRIES[0], laws="constant", met=0.0):
    survey, counts, device = trace.survey, trace.counts, trace.survey.device_of_stream
    sizes = (int(trace.classes.sizes[class_][0]) for class_ in counts.size_class)
    ways = zip(counts.op.tolist(), sizes, strict=True)
    kinds = np.array([request_kind(*of, survey.piece) for of in ways])
    return Learnt(
        *(counts, kinds, make_chain(counts, kinds, entry), trace.runs),
        fit_interarrivals(counts.sums, counts.histogram, survey.tick_s, laws),
        trace.classes,
        Addresses(
            *(survey.alignment, survey.alignment_offset, survey.high_lbn),
            *(trace.reuse if reuse else None, survey.piece, device),
            np.full(int(device.max()) + 1, met),
        ),
        np.ones(len(survey.streams)) if pace is None else pace[: len(survey.streams)],
    )


def walk_of(trace, *, expected=1.0, stratified=True, seed=0, **how):
    rng = np.random.default_rng(seed)
    return Generator(learnt_of(trace, **how), expected=expected, rng=rng, stratified=stratified)


def both_of(trace, *, expected=1.0, stratified=True, seed=0, largest=4096, **how):
    """Generator and reference, which draw from the same random numbers."""
    learnt, diagram = learnt_of(trace, **how), trace.counts.diagram
    model = Model(trace.columns, diagram.levels, diagram.fan_out, trace.again)
    rules, entry = {"expected": expected, "stratified": stratified}, how.get("entry", ENTRIES[0])
    rng, again = (np.random.default_rng(seed) for _ in range(2))
    reference = Reference(learnt, model, entry, rng=again, largest=largest, **rules)
    return Generator(learnt, rng=rng, **rules), reference


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


def mixed(n, seed, *, streams=2, devices=1, sizes=3, first=0, space=4000, alignment=8, large=0):
    """Requests that go on, go on where an earlier run stopped, come back, or are elsewhere.

    So many of them at once are ``large`` blocks long. Every stream has a device; addresses are
    ``first`` blocks on, and multiples of the alignment beyond, which a few do not keep.
    """
    rng = np.random.default_rng(seed)
    end, earlier, rows = {}, ([first] * 5, [first] * 5), []
    of_size = 512 * rng.choice(np.r_[1:40, 64, 100], size=sizes)
    anywhere = first + alignment * rng.integers(space // alignment, size=n) + (rng.random(n) < 0.05)
    drawn = (
        *(rng.choice(streams, n, p=rng.dirichlet(np.full(streams, 0.7))), anywhere),
        *(rng.choice(4, n, p=rng.dirichlet(np.ones(4))), rng.integers(-5, 0, n)),
        *(rng.choice(of_size, n), rng.choice([0, 0, 1, 2, 7], n)),
    )
    for k, (s, lbn, way, ago, size, op) in enumerate(np.transpose(drawn).tolist()):
        if way == 0:
            lbn = end.get(s, lbn)
        elif way < 3:
            lbn = earlier[way - 1][ago]
        lbn = lbn if lbn < first + space else first
        size = 512 * large if large and k % 40 == 7 else size
        if lbn != end.get(s):
            earlier[0].append(lbn)
            earlier[1].append(end.get(s, lbn))
        end[s] = lbn + size // 512
        rows.append((s, s % devices * 5, lbn, size, op))
    stream, device, lbn, size, op = zip(*rows, strict=True)
    gaps = rng.choice([0.0, 0.5, 1.0, 3.0], size=n) if seed % 2 else rng.exponential(size=n) + 1e-6
    time_s = 100 + np.cumsum(gaps) + np.arange(n) * 0.25 * (seed % 4 != 3)
    return columns(lbn, time_s=time_s, stream=stream, device=device, size_bytes=size, op=op)


TRACES = st.builds(
    mixed,
    st.integers(20, 90),
    st.integers(0, 2**32),
    streams=st.integers(1, 4),
    devices=st.integers(1, 3),
    sizes=st.sampled_from([1, 3, 40]),
    first=st.sampled_from([0, 5, 10**9]),
    space=st.sampled_from([40, 600, 4000, 10**6]),
    alignment=st.sampled_from([1, 8, 24]),
    large=st.sampled_from([0, 0, 3000]),
)
