"""Small block traces, what is counted of them, and plain references of both passes."""

import itertools
from collections import Counter, defaultdict, namedtuple

import numpy as np
from hypothesis import strategies as st

from fitting.storage.passages import PassageRecorder
from fitting.storage.survey import KINDS, Diagram, Surveyor, piece_blocks, request_kind
from fitting.storage.transitions import TransitionCounter

# Requests of a trace in the order of arrival.
Columns = namedtuple("Columns", "time_s stream device lbn size_bytes op")
# A trace and what is learnt from it.
Counted = namedtuple("Counted", "columns survey classes counts passages")


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
    classes = survey.size_classes()
    diagram = Diagram.over(survey.low_lbn, survey.high_lbn, levels, fan_out)
    counter, recorder = (
        TransitionCounter(diagram, survey, classes),
        PassageRecorder(diagram, survey),
    )
    for batch in batches:
        seen = counter.add(*batch)
        recorder.add(seen, batch.time_s, batch.lbn, batch.size_bytes, batch.op)
    return Counted(trace, survey, classes, counter.counts(), recorder.passages())


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


def alignment_of(places):
    """Largest power of two, to 256, that nine places in ten keep, and their offset."""
    for alignment in (256, 128, 64, 32, 16, 8, 4, 2):
        of = Counter(p % alignment for p in places)
        if max(of.values()) >= 0.9 * len(places):
            return alignment, min(of, key=lambda offset: (-of[offset], offset))
    return 1, 0


class Survey:
    """First pass: extent, streams, sizes and their classes, alignment."""

    def __init__(self, trace):
        self.rows = list(zip(*(column.tolist() for column in trace), strict=True))
        times, stream, device, lbns, sizes, _ = zip(*self.rows, strict=True)
        self.stream_counts = Counter(zip(stream, device, strict=True))
        self.streams = sorted(self.stream_counts)
        devices = sorted(set(device))
        self.devices = [devices.index(of) for _, of in self.streams]
        self.size_counts = Counter(sizes)
        self.sizes = sorted(self.size_counts, key=lambda size: (-self.size_counts[size], size))
        self.low = min(lbns)
        self.high = max(a + max(1, size // 512) for a, size in zip(lbns, sizes, strict=True))
        self.tick = min(b - a for a, b in itertools.pairwise(times) if b > a)
        self.alignment, self.offset = alignment_of(lbns)
        self.piece = piece_blocks(sum(sizes) / len(sizes))

    def classes(self, alone=12):
        """Sizes and how many requests have each: common ones alone, others by power of two."""
        others = defaultdict(list)
        for size in self.sizes[alone:]:
            others[max(1, size).bit_length()].append(size)
        groups = [[size] for size in self.sizes[:alone]] + [others[p] for p in sorted(others)]
        return [(sizes, [self.size_counts[size] for size in sizes]) for sizes in groups]


class Model:
    """Second pass: touched states, and transitions with their gaps."""

    def __init__(self, trace, levels, fan_out):
        self.survey = survey = Survey(trace)
        self.levels, self.k, self.piece = levels, fan_out, survey.piece
        self.width = -(-max(1, survey.high - survey.low) // fan_out**levels)
        self.classes = survey.classes()
        class_of = {size: c for c, (sizes, _) in enumerate(self.classes) for size in sizes}
        touched, gaps, last = defaultdict(list), defaultdict(list), {}
        out, into = Counter(), Counter()
        for time, stream, device, lbn, size, op in survey.rows:
            s = survey.streams.index((stream, device))
            state = self.state(lbn)
            here = (s * KINDS + int(request_kind(op, size, survey.piece)), state)
            touched[here].append(lbn)
            before = last.get(s)
            goes_on = before is not None and lbn == before[1]
            if before is not None:
                level, source, target = self.parting(before[0][1], state)
                key = (before[0][0], level, source, target, min(op, 3), goes_on, class_of[size])
                gaps[key].append(time - before[2])
                out[before[0], level] += 1
                into[here, level] += 1
            last[s] = (here, lbn + size // 512, time)
        self.states, self.transitions = sorted(touched), sorted(gaps)
        self.lbns = [touched[state] for state in self.states]
        self.gaps = [gaps[key] for key in self.transitions]
        levels = range(1, levels + 1)
        self.out = [[out[state, level] for level in levels] for state in self.states]
        self.into = [[into[state, level] for level in levels] for state in self.states]

    def state(self, lbn):
        return min(max((lbn - self.survey.low) // self.width, 0), self.k**self.levels - 1)

    def parting(self, a, b):
        """Coarsest level at which two states part, and the states of that level they are in."""
        for level in range(1, self.levels + 1):
            size = self.k ** (self.levels - level)
            if a // size != b // size:
                break
        return level, a // size, b // size
