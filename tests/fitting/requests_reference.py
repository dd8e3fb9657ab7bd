"""Requests of a fitted state diagram in plain Python, which the compiled generator must match.

Dicts and lists, one request at a time, by what the docstrings of `fitting` say. Random numbers come
from the same sequence; `fitting.compiled.random` and the inter-arrival laws have tests of their
own.
"""

import itertools
from bisect import bisect_right
from collections import Counter, defaultdict
from functools import partial
from math import exp, inf
from operator import mul
from statistics import median

import numpy as np

from fitting.compiled import random as numbers
from fitting.compiled.random import draw_poisson, new_randomness, uniform
from fitting.storage import interarrival as laws
from fitting.storage.reuse_distance import AGAIN, AGE_BOUNDS, CLASSES, FRESH
from fitting.storage.survey import KINDS, piece_blocks, request_kind

WHOLE, FIBONACCI = 2**64, 0x9E3779B97F4A7C15


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
    """Second pass: touched states, transitions with their gaps, runs."""

    def __init__(self, trace, levels, fan_out, again):
        self.survey = survey = Survey(trace)
        self.levels, self.k, self.piece = levels, fan_out, survey.piece
        self.width = -(-max(1, survey.high - survey.low) // fan_out**levels)
        self.classes = survey.classes()
        class_of = {size: c for c, (sizes, _) in enumerate(self.classes) for size in sizes}
        touched, gaps, runs, last = defaultdict(list), defaultdict(list), defaultdict(list), {}
        out, into, self.first_state = Counter(), Counter(), {}
        for row, (time, stream, device, lbn, size, op) in enumerate(survey.rows):
            s = survey.streams.index((stream, device))
            state = self.state(lbn)
            here = (s * KINDS + int(request_kind(op, size, survey.piece)), state)
            touched[here].append(lbn)
            self.first_state.setdefault(s, here)
            before = last.get(s)
            goes_on = before is not None and lbn == before[1]
            if before is not None:
                level, source, target = self.parting(before[0][1], state)
                key = (before[0][0], level, source, target, min(op, 3), goes_on, class_of[size])
                gaps[key].append(time - before[2])
                out[before[0], level] += 1
                into[here, level] += 1
            run = before[3] if goes_on else [0, bool(again[row]), lbn]
            if not goes_on:
                runs[here].append(run)
            run[0] += 1
            last[s] = (here, lbn + size // 512, time, run)
        self.last_state = {s: here for s, (here, *_) in last.items()}
        self.states, self.transitions = sorted(touched), sorted(gaps)
        self.lbns = [touched[state] for state in self.states]
        self.gaps = [gaps[key] for key in self.transitions]
        self.runs = [runs[state] for state in self.states]
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

    def within(self, origin, level, state):
        """Indices of the touched states of an origin in a state of some level."""
        size, there = self.k ** (self.levels - level), enumerate(self.states)
        return [v for v, (of, fine) in there if of == origin and fine // size == state]


class Chain:
    """What may come after what."""

    def __init__(self, model, kinds, entry="arrivals"):
        self.count = [len(gaps) for gaps in model.gaps]
        self.nodes, self.leads_to = defaultdict(list), []
        out, into = ([list(row) for row in of] for of in (model.out, model.into))
        for t, (origin, level, source, target, _, goes_on, _) in enumerate(model.transitions):
            self.nodes[origin, level, source, goes_on].append(t)
            to = model.within(origin // KINDS * KINDS + kinds[t], level, target)
            self.leads_to.append(to)
            if goes_on:
                # A run parts from the last part of a state and comes into the first of the next.
                _take(out, level, self.count[t], model.within(origin, level, source)[::-1])
                _take(into, level, self.count[t], to)
        self.departures, levels = [sum(row) for row in out], range(1, model.levels + 1)
        coarse = [
            [(origin, i, state // model.k ** (model.levels - i)) for i in levels]
            for origin, state in model.states
        ]
        random = [[(*key, False) for key in keys] for keys in coarse]
        self.node = [[key if key in self.nodes else None for key in keys] for keys in random]
        on = [[(*k, True) for k in keys[::-1] if (*k, True) in self.nodes] for keys in coarse]
        self.follows = [next(iter(keys), None) for keys in on]
        if entry == "occupancy":
            out = _left_alike(out, coarse)
            into = [[len(of)] * model.levels for of in model.lbns]
        shares = [[part / (sum(row) or 1) for part in itertools.accumulate(row)] for row in out]
        self.leave = [[*of[:-1], 1.0] if of[-1] else of for of in shares]
        self.entered = [[0, *itertools.accumulate(of)] for of in zip(*into, strict=True)]


def _take(partings, level, number, states):
    for v in states:
        taken = min(number, partings[v][level - 1])
        partings[v][level - 1] -= taken
        number -= taken


def _left_alike(out, coarse):
    """Shares that part at each level where a coarse state is left from anywhere in it alike."""
    here, deeper = Counter(), Counter()
    for row, keys in zip(out, coarse, strict=True):
        for i, key in enumerate(keys):
            here[key] += row[i]
            deeper[key] += sum(row[i:])
    found = [[here[key] / (deeper[key] or 1) for key in keys] for keys in coarse]
    stays = [[1.0, *itertools.accumulate((1 - s for s in of), mul)] for of in found]
    return [[a * b for a, b in zip(*of, strict=False)] for of in zip(stays, found, strict=True)]


def hashed(key):
    spread = key * FIBONACCI % WHOLE
    spread ^= spread >> 29
    return (spread * FIBONACCI % WHOLE) >> 1


def permuted(k, bits, key):
    """Add, multiply by odd numbers and fold the upper half down, three times, modulo 2^bits."""
    size, half = 2**bits, 2 ** -(-bits // 2)
    x = (k + key) % size
    x = x * (key // 2**20 | 1) % size
    x ^= x // half
    x = x * 0x5851F42D4C957F2D % size
    x ^= x // half
    x = (x * 0x14057B7EF767814F + key // 2**40) % size
    return x ^ x // half


# Gaps by law, over their mean: of random numbers, shape, mean and rows of quantiles.
GAPS = {
    laws.CONSTANT: lambda r, k, m, rows: 1,
    laws.EXPONENTIAL: lambda r, k, m, rows: numbers.standard_exponential(r),
    laws.NORMAL: lambda r, k, m, rows: max(0, 1 + k * numbers.standard_normal(r)),
    laws.GAMMA: lambda r, k, m, rows: numbers.standard_gamma(r, k) / k,
    laws.LOGNORMAL: lambda r, k, m, rows: exp(k * numbers.standard_normal(r) - k**2 / 2),
    laws.EMPIRICAL: lambda r, k, m, rows: np.interp(uniform(r), laws.KNOTS, rows[int(k)]),
    laws.POISSON: lambda r, k, m, rows: k / m * draw_poisson(m / k, r),
}


def drawn_gap(of, t, r):
    mean = float(of.mean_s[t])
    return mean * GAPS[int(of.law[t])](r, float(of.shape[t]), mean, of.quantiles)


class Batch:
    """Draws from [0, 1): one of each of n equal parts, in an order that a key chooses."""

    def __init__(self, length, key):
        self.length, self.key, self.made = max(1, round(length)), int(key), 0

    def draw(self, r):
        n, bits = self.length, (self.length - 1).bit_length()
        if n == 1:
            return uniform(r)
        if self.made == n:
            self.made, self.key = 0, hashed(self.key + 1)
        place = permuted(self.made, bits, self.key)
        while place >= n:
            place = permuted(place, bits, self.key)
        self.made += 1
        return (place + uniform(r)) / n


class Deck:
    """Cards dealt from rounds: a card of each of n equal parts of the deck, shuffled."""

    def __init__(self, cards, share):
        self.cards, self.round = cards, []
        self.number = min(max(round(len(cards) * share), 1), len(cards))

    def deal(self, r):
        if not self.round:
            n, size = self.number, len(self.cards)
            self.round = self.cards[:]
            if n < size:
                # One draw more than there are parts.
                drawn = [uniform(r) for _ in range(n + 1)]
                self.round = [self.cards[int((k + drawn[k]) * size / n)] for k in range(n)]
            for k in range(n - 1, 0, -1):
                other = int(uniform(r) * (k + 1))
                self.round[k], self.round[other] = self.round[other], self.round[k]
        return self.round.pop(0)


def length_class(length):
    """Quarter of an octave that a run length is in."""
    octave = length.bit_length() - 1
    return min(4 * octave + (length - 2**octave) * 4 // 2**octave, 99)


def length_law(lengths):
    """Cumulated share and mean of every class of lengths."""
    reached, law = 0, []
    for _, of_class in itertools.groupby(sorted(lengths), length_class):
        members = list(of_class)
        reached += len(members)
        law.append((reached / len(lengths), sum(members) / len(members)))
    return law


def drawn_length(law, u):
    at = next((i for i, (share, _) in enumerate(law) if share > u), len(law) - 1)
    before = law[at - 1][0] if at else 0.0
    return max(1, int(law[at][1] + (u - before) / (law[at][0] - before)))


class Places:
    """Places in the order of their last use; those that do not hold any more leave now and then."""

    def __init__(self, room, holds):
        self.entries, self.room, self.limit, self.holds = [], room, min(room, 64), holds

    def put(self, clock, lbn):
        if len(self.entries) == self.limit:
            kept = [entry for entry in self.entries if self.holds(*entry)]
            self.entries = kept[max(0, len(kept) - self.room // 2) :]
            self.limit = min(self.room, 2 * len(self.entries) + 64)
        self.entries.append((clock, lbn))

    def nearest(self, clock):
        """Index of the place whose use was nearest to a clock: of two as near the earlier one."""
        entries = self.entries
        after = bisect_right([when for when, _ in entries], clock)
        before = after - 1
        while before >= 0 or after < len(entries):
            ahead = entries[after][0] - clock if after < len(entries) else inf
            later = ahead < (clock - entries[before][0] if before >= 0 else inf)
            at = after if later else before
            if self.holds(*entries[at]):
                first = at
                while not later and at > 0 and entries[at - 1][0] == entries[first][0]:
                    at -= 1
                    first = at if self.holds(*entries[at]) else first
                return first
            self.drop(at)
            after, before = after + later, before - (not later)
        return None

    def drop(self, at):
        self.entries[at] = (self.entries[at][0], None)


class Memory:
    """Last touch of every piece and where in it a request began, in rows of eight pieces."""

    def __init__(self, piece, devices, rows=4096, most=2**23):
        self.piece, self.devices, self.capacity, self.most = piece, devices, rows, most
        self.forget()

    def forget(self):
        self.rows, self.clock = {}, [0] * self.devices
        self.passed, self.met = [0] * self.devices, [0] * self.devices

    def seen(self, g, lbn):
        """Clock of the last touch of a piece, 0 for none, and where in it a request began."""
        piece = lbn // self.piece
        return self.rows.get((g, piece // 8), {}).get(piece, (0, None))

    def touched(self, g, lbn):
        return self.seen(g, lbn)[0]

    def has_room(self, g, size):
        blocks = min(size // 512, 2**20 * self.piece)
        rows = len(self.rows) + blocks // (8 * self.piece) + 2
        return self.clock[g] < 2**32 - 1 and rows <= self.capacity // 2

    def make_room(self):
        """Have more rows, or forget the half of them that were touched longest ago."""
        if self.capacity < self.most:
            self.capacity *= 2
            return
        last = {key: max(c for c, _ in row.values()) for key, row in self.rows.items()}
        ages = {key: self.clock[key[0]] - clock for key, clock in last.items()}
        self.rows = {k: of for k, of in self.rows.items() if ages[k] < median(ages.values())}

    def began_there(self, g, when, lbn):
        return lbn is not None and self.seen(g, lbn) == (when, lbn)

    def stopped_there(self, g, when, lbn):
        if lbn is None or lbn % self.piece:
            return lbn is not None and self.touched(g, lbn) == when
        return self.touched(g, max(lbn, 1) - 1) == when and self.touched(g, lbn) == 0


class Stream:
    """What the next request of a stream is to be, and what the last one was."""

    def __init__(self, number):
        self.number, self.due, self.resumes, self.gap, self.transition = number, 0.0, inf, 0.0, None
        self.state, self.size, self.sequential, self.blocks, self.reuse = -1, -1, -1, -1, -1
        self.run, self.end, self.made, self.fresh, self.kind = 0, -1, -1, -1, 0


class Reference:
    """The generator: `take` gives due time, stream, transition, address, size and operation."""

    def __init__(self, learnt, model, entry, *, expected, rng, stratified=True, largest=4096):
        self.model, self.learnt = model, learnt
        self.chain = chain = Chain(model, learnt.kinds.tolist(), entry)
        self.addresses = addresses = learnt.addresses
        self.streams = [Stream(s) for s in range(len(learnt.pace))]
        share = expected if stratified else 0.0
        self.r, self.closed = new_randomness(rng), share >= 1
        self.of_stream, self.origin = defaultdict(list), defaultdict(list)
        for v, (origin, _) in enumerate(model.states):
            self.of_stream[origin // KINDS].append(v)
            self.origin[origin].append(v)
        self._lay_out_runs()
        self._lay_out_draws(share, rng, largest)
        remembers = self.remembers = addresses.reuse is not None
        self.law = addresses.reuse.tolist() if remembers else []
        self.memory = Memory(addresses.piece, int(addresses.devices.max()) + 1)
        self.begins = self._new_places(False, expected, self.memory.began_there)
        self.ends = self._new_places(True, expected, self.memory.stopped_there)
        random, all_ = chain.departures, [sum(row) for row in model.out]
        both = zip(all_, random, chain.follows, strict=True)
        sequential = [a - b if follows else 0 for a, b, follows in both]
        self.all, self.left = (random, sequential), (random[:], sequential[:])
        self._start(share, rng)

    def _lay_out_runs(self):
        """Run lengths, places and alignments, by touched state and sort of run."""
        model = self.model
        lengths = [
            [[n for n, again, _ in runs if again == sort] for sort in (0, 1)] for runs in model.runs
        ]
        self.started = [[len(of) for of in both] for both in lengths]
        whole = [n for both in lengths for of in both for n in of]
        self.length_law = []
        for v, (origin, _) in enumerate(model.states):
            for sort in (0, 1):
                pooled = [n for w in self.origin[origin] for n in lengths[w][sort]]
                self.length_law.append(length_law(lengths[v][sort] or pooled or whole))
        self.runs, self.runs_left = ([n for both in self.started for n in both] for _ in (0, 1))
        groups, at = defaultdict(list), self.addresses
        for v, (origin, _) in enumerate(model.states):
            groups[at.devices[origin // KINDS], origin % KINDS].append(v)
        self.aligned = {}
        for members in groups.values():
            places = [[lbn for *_, lbn in model.runs[v]] for v in members if model.runs[v]]
            starts = [lbn for of in places for lbn in {min(of), max(of)}]
            found = at.alignment, at.offset
            if len(starts) >= 16:
                alignment, offset = alignment_of(starts)
                alignment = min(alignment, max(at.piece, at.alignment))
                found = alignment, offset % alignment
            self.aligned |= dict.fromkeys(members, found)

    def _lay_out_draws(self, share, rng, largest):
        """Batches of draws, as long as what was counted or a share of it, and decks."""
        model, chain = self.model, self.chain
        keys, target = sorted(chain.nodes), Counter()
        for t, key in enumerate(model.transitions):
            target[self._range(t)] += 0 if key[5] else chain.count[t]
        nodes = [sum(chain.count[t] for t in chain.nodes[key]) for key in keys]
        wanted = (chain.departures, self.runs, nodes, [target[k] for k in sorted(target)])
        self.leave, self.lengths, by_node, by_target = (
            self._batches([min(n * min(1.0, share), 2**20) for n in of], rng) for of in wanted
        )
        self.by_node = dict(zip(keys, by_node, strict=True))
        self.by_target = dict(zip(sorted(target), by_target, strict=True))
        self.decks = {
            key: Deck([t for t in chain.nodes[key] for _ in range(chain.count[t])], share)
            for key, number in zip(keys, nodes, strict=True)
            if number <= largest
        }
        self.classes = self._batches([min(share, 1.0) * sum(both) for both in self.started], rng)

    def _batches(self, lengths, rng):
        keys = rng.integers(2**62, size=len(lengths))
        return [Batch(length, key) for length, key in zip(lengths, keys, strict=True)]

    def _range(self, t):
        return (*self.chain.leads_to[t][:1], self.model.transitions[t][1])

    def _place(self, v, by_kind):
        origin, state = self.model.states[v]
        return self.addresses.devices[origin // KINDS], by_kind and origin % KINDS, state

    def _new_places(self, by_kind, expected, holds):
        """Room for twice the requests to come, and a few."""
        wanted = Counter()
        for v, lbns in enumerate(self.model.lbns):
            wanted[self._place(v, by_kind)] += 2 * len(lbns) * max(1.0, expected)
        return {at: Places(int(272 + n), partial(holds, at[0])) for at, n in wanted.items()}

    def _start(self, share, rng):
        """Streams begin where they began, or by occupancy; one of a single request makes none."""
        model, follows = self.model, self.chain.follows
        for p in self.streams:
            mine = self.of_stream[p.number]
            made = sum(len(model.lbns[v]) for v in mine)
            p.share = p.left = max(round(made * min(1.0, share)), 1) if share else 2**63 - 1
            p.starts = p.randoms = sum(self.chain.departures[v] for v in mine)
            on = [v for v in mine if follows[v]]
            if not on and not p.starts:
                p.due = inf
                continue
            first, last = model.first_state[p.number], model.last_state[p.number]
            p.state = model.states.index(first) if first != last else None
            p.first = p.state if p.state is not None and follows[p.state] else next(iter(on), None)
            p.begins = p.state is not None and (follows[p.state] or self.chain.departures[p.state])
            if not p.begins:
                weights = np.array([len(model.lbns[v]) for v in mine])
                p.state = mine[rng.choice(len(mine), p=weights / weights.sum())]
        for p in self.streams:
            if p.due < inf:
                self._draw_next(p, p.begins)
                p.due = uniform(self.r) * p.gap

    def take(self, number):
        found = []
        while len(found) < number:
            p = min(self.streams, key=lambda p: p.due)
            if p.due == inf:
                for each in self.streams:
                    each.left, each.due = each.share, each.resumes
                continue
            g = self.addresses.devices[p.number]
            while self.remembers and not self.memory.has_room(g, p.size):
                self._make_room()
            t = p.transition
            lbn = self._choose_address(p, g, int(self.learnt.kinds[t]))
            found.append((p.due, p.number, t, lbn, p.size, self.model.transitions[t][4]))
            self._draw_next(p)
            p.due += p.gap
            p.left -= 1
            if p.left == 0:
                p.resumes, p.due = p.due, inf
        return list(zip(*found, strict=True))

    def _make_room(self):
        if max(self.memory.clock) < 2**32 - 1:
            self.memory.make_room()
            return
        self.memory.forget()
        self.memory.capacity = 4096
        for places in (*self.begins.values(), *self.ends.values()):
            places.entries = []
        for p in self.streams:
            p.made = -1

    def _draw_next(self, p, first=False):
        if self.closed and not first:
            self._keep_share(p)
        goes_on, follows = p.run > 0, self.chain.follows
        left = p.state if first else self._leaves(p, goes_on)
        if not first and not goes_on:
            p.randoms = (p.randoms if p.randoms > 0 else p.starts) - 1
        if left is None:
            node = None if goes_on else follows[p.first]
        elif goes_on or (first and follows[left]):
            node = follows[left]
        else:
            node = self._parting(left)
        t = p.transition if node is None else self._dealt(node)
        if goes_on:
            to = self._state_at(p.number * KINDS + int(self.learnt.kinds[t]), p.end)
        elif first:
            to = left
        else:
            to = p.first if left is None else self._enters(t)
        if not goes_on:
            self._begin_run(p, to)
        p.sequential, p.transition, p.state = goes_on, t, to
        p.run -= 1
        p.size = self._drawn_size(self.model.transitions[t][6])
        p.gap = self.learnt.pace[p.number] * drawn_gap(self.learnt.laws, t, self.r)
        if not goes_on:
            p.blocks = p.size // 512 + int(p.run * self._further(to))

    def _keep_share(self, p):
        """End a run, or let it go on, where the random share leaves no other way."""
        at_end = p.randoms > 0 and p.end >= self.addresses.end_lbn
        if p.run > 0 and (at_end or p.randoms >= p.left - 1):
            p.run = 0
        elif p.run == 0 and p.randoms == 0 and p.starts > 0:
            p.run = max(0, p.left - 1)

    def _leaves(self, p, sequential):
        """State that something is left to leave by: the stream's own or the next, all round."""
        mine, all_, left = self.of_stream[p.number], self.all[sequential], self.left[sequential]
        at = mine.index(p.state)
        ring = mine[at:] + mine[:at]
        if not self.closed:
            return next((v for v in ring if all_[v]), None)
        if not any(left[v] for v in ring):
            for v in ring:
                left[v] = all_[v]
        found = next((v for v in ring if left[v]), None)
        if found is not None:
            left[found] -= 1
        return found

    def _parting(self, v):
        level, leave = 0, self.chain.leave[v]
        if leave[0] < 1:
            u = self.leave[v].draw(self.r)
            while level < self.model.levels - 1 and u >= leave[level]:
                level += 1
        return self.chain.node[v][level]

    def _dealt(self, node):
        transitions = self.chain.nodes[node]
        if len(transitions) == 1:
            return transitions[0]
        if node in self.decks:
            return self.decks[node].deal(self.r)
        # The alias table of the node, which has a test of its own.
        table = self.learnt.chain
        first = int(np.flatnonzero(table.order == transitions[0])[0])
        u = self.by_node[node].draw(self.r) * len(transitions)
        at = first + int(u)
        return int(table.order[at if u - int(u) < table.keep[at] else table.other[at]])

    def _enters(self, t):
        to = self.chain.leads_to[t]
        if len(to) == 1:
            return to[0]
        cumulated = self.chain.entered[self.model.transitions[t][1] - 1]
        low, high = cumulated[to[0]], cumulated[to[-1] + 1]
        wanted = low + self.by_target[self._range(t)].draw(self.r) * (high - low)
        return max(v for v in to if cumulated[v] <= wanted)

    def _state_at(self, origin, lbn):
        """Touched state of an address, or the one ahead of it, or the first."""
        wanted = (lbn - self.model.survey.low) // self.model.width
        mine = self.origin[origin]
        return max((v for v in mine if self.model.states[v][1] <= wanted), default=mine[0])

    def _drawn_size(self, class_):
        sizes, counts = self.model.classes[class_]
        u = uniform(self.r) if len(sizes) > 1 else 0.0
        reached = itertools.accumulate(counts)
        return next(size for size, n in zip(sizes, reached, strict=True) if n / sum(counts) > u)

    def _further(self, v):
        """Mean blocks of the requests that go on from a state."""
        total = number = 0
        for t in self.chain.nodes.get(self.chain.follows[v], []):
            sizes, counts = self.model.classes[self.model.transitions[t][6]]
            total += np.dot(sizes, counts) / sum(counts) / 512 * self.chain.count[t]
            number += self.chain.count[t]
        return total / (number or 1)

    def _begin_run(self, p, v):
        p.reuse = FRESH
        if self.remembers:
            u, law = self.classes[v].draw(self.r), self.law[v]
            p.reuse = next(k for k in range(CLASSES) if law[k] > u)
        row = 2 * v + (AGAIN <= p.reuse < FRESH)
        if self.closed:
            left, other = self.runs_left, row ^ 1
            if not left[row] and not left[other]:
                left[row], left[other] = self.runs[row], self.runs[other]
            row = row if left[row] or not left[other] else other
            left[row] = max(0, left[row] - 1)
        p.run = drawn_length(self.length_law[row], self.lengths[row].draw(self.r))

    def _choose_address(self, p, g, kind_):
        memory, end = self.memory, self.addresses.end_lbn
        memory.clock[g] += 1
        lbn = None
        if p.sequential and p.end < end:
            lbn = p.end
        elif p.sequential:
            p.state = self.origin[p.number * KINDS + kind_][0]
        elif self.remembers:
            lbn = self._known_address(p, g)
        if lbn is None or (lbn == p.end and not p.sequential):
            lbn = self._fresh(p, g) if self.remembers else self._anywhere(p.state, p.blocks)
            p.fresh = 1
        elif not p.sequential:
            p.fresh = 0
        if self.remembers:
            self._remember(p, g, kind_, lbn)
        p.end = lbn + p.size // 512
        return lbn

    def _anywhere(self, v, blocks):
        """Aligned address where runs start in a state, with room up to the end if there is any."""
        starts = [lbn for *_, lbn in self.model.runs[v]]
        first = self.model.survey.low + self.model.states[v][1] * self.model.width
        low = min(starts, default=max(first, self.model.survey.low))
        last = min(first + self.model.width - 1, max(map(max, self.model.lbns)))
        high = min(max(starts, default=last), self.addresses.end_lbn - blocks)
        if high <= low:
            return low
        alignment, offset = self.aligned[v]
        low += (offset - low) % alignment
        return low + alignment * int(uniform(self.r) * ((high - low) // alignment + 1))

    def _known_address(self, p, g):
        if p.reuse == FRESH:
            return None
        bounds, age = AGE_BOUNDS.tolist(), p.reuse - AGAIN if p.reuse >= AGAIN else p.reuse
        ago = bounds[age] + int(uniform(self.r) * (bounds[age + 1] - bounds[age]))
        wanted = self.memory.clock[g] - ago
        if wanted < 1:
            return None
        again = p.reuse >= AGAIN
        places = (self.begins if again else self.ends)[self._place(p.state, not again)]
        for _ in range(4):
            at = places.nearest(wanted)
            if at is None:
                return None
            lbn = places.entries[at][1]
            if again or self._can_go_on(g, lbn, p.blocks):
                return lbn
            places.drop(at)
        return None

    def _can_go_on(self, g, lbn, blocks):
        """Whether no other run has been ahead of where one stopped in the last 2048 requests."""
        memory, piece = self.memory, self.memory.piece
        ahead = (lbn + piece, lbn + max(blocks - 1, piece))
        return all(memory.touched(g, at) <= max(0, memory.clock[g] - 2048) for at in ahead)

    def _ahead(self, g, lbn, blocks):
        """Blocks ahead of the first touched one, of 64 places at most that are looked at."""
        step = max(self.memory.piece, -(-blocks // 64))
        for ahead in range(0, blocks, step):
            if self.memory.touched(g, lbn + ahead):
                return ahead
        return blocks - 1 if self.memory.touched(g, lbn + blocks - 1) else blocks

    def _fresh(self, p, g):
        """Place with room for a run: of sixteen, or else behind what was touched."""
        memory, v, end = self.memory, p.state, self.addresses.end_lbn
        # Runs meet what was touched before, too, by the share that was counted.
        behind = memory.met[g] < self.addresses.met[g] * memory.passed[g]
        wanted = 1 if behind else p.blocks
        best, most, room = 0, -1, 0
        alignment, offset = self.aligned[v]
        step = -(-memory.piece // alignment) * alignment
        behind = self.model.survey.low + self.model.states[v][1] * self.model.width
        behind += (offset - behind) % alignment
        for k in range(16 + 512):
            if k >= 16 and behind + wanted > end:
                break
            lbn = self._anywhere(v, p.blocks) if k < 16 else behind
            room = self._ahead(g, lbn, wanted)
            if room > most:
                best, most = lbn, room
            if most == wanted:
                break
            behind += max(step, room // step * step) if k >= 16 else 0
        return best

    def _remember(self, p, g, kind_, lbn):
        """Note the pieces that a request touches, and where the one before it stopped."""
        memory, piece, begins = self.memory, self.memory.piece, lbn != p.end
        if begins and p.end < self.addresses.end_lbn:
            origin = p.number * KINDS + p.kind
            if (there := (origin, self.model.state(p.end))) in self.model.states and p.end >= 0:
                place = self._place(self.model.states.index(there), by_kind=True)
                self.ends[place].put(p.made, p.end)
        p.kind, p.made = kind_, memory.clock[g]
        first = lbn // piece
        last = max(first, (lbn + p.size // 512 - 1) // piece)
        for each in range(first, last + 1):
            row = memory.rows.setdefault((g, each // 8), {})
            before, begun = row.get(each, (0, None))
            if p.fresh == 1 and (each > first or (not begins and lbn % piece == 0)):
                memory.passed[g] += 1
                memory.met[g] += before != 0
            if each == first and begins:
                begun = lbn
            row[each] = (memory.clock[g], begun)
            if begun is not None:
                self.begins[self._place(p.state, False)].put(memory.clock[g], begun)
