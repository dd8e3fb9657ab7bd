"""Generated requests against a plain reference, exactly, and against the traces learnt from."""

import itertools

import numpy as np
import pytest
from counted_traces import TRACES, both_of, columns, counted, learnt_of, mixed, two_streams, walk_of
from hypothesis import given, settings, strategies as st
from requests_reference import Chain, Model

from fitting.compiled import random
from fitting.errors import FittingError
from fitting.storage import addresses
from fitting.storage.addresses import MOST_CLOCK, new_last_access
from fitting.storage.generator import ENTRIES, Generator, _fill_aliases, _sift_down

HOW = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 99),
        "laws": st.sampled_from(["constant", "likelihood"]),
        "met": st.sampled_from([0.0, 0.5]),
        "pace": st.sampled_from([None, np.array([1.0, 0.5, 3.0, 2.0])]),
    }
)
# Hypothesis takes so many examples of each of the ways below.
FEW = settings(max_examples=max(4, settings.default.max_examples // 2))


def states_of(diagram, lbn):
    return np.clip((lbn - diagram.first_lbn) // diagram.state_blocks, 0, diagram.states - 1)


def assert_same(found, expected):
    for name, values, others in zip(found._fields, found, expected, strict=True):
        if name == "due_s":
            np.testing.assert_allclose(values, others, rtol=1e-9, atol=1e-12)
        else:
            np.testing.assert_array_equal(values, others, name)


@pytest.mark.parametrize(
    ("expected", "stratified", "reuse", "entry"),
    [
        *((share, True, True, "arrivals") for share in (0.4, 1.0, 2.5)),
        *((1.0, True, False, "occupancy"), (2.5, False, True, "occupancy")),
        *((2.5, False, False, "arrivals"), (0.4, True, True, "occupancy")),
    ],
)
@FEW
@given(TRACES, st.integers(1, 3), st.integers(2, 4), HOW)
def test_match_the_reference(expected, stratified, reuse, entry, trace, levels, fan_out, how):
    how |= {"expected": expected, "stratified": stratified, "reuse": reuse, "entry": entry}
    walk, reference = both_of(counted(trace, levels, fan_out), **how)
    for number in (30, 50):
        assert_same(walk.take(number), reference.take(number))
    memory = reference.memory
    assert walk._tables.memory.pieces_met.T.tolist() == [memory.passed, memory.met]


@FEW
@given(st.integers(0, 99), st.integers(9, 14), st.booleans())
def test_of_many_streams_are_those_of_the_reference(seed, streams, stratified):
    """Of so many there is a heap of times; some have one request, and so make none."""
    trace = counted(mixed(60, 2 * seed, streams=streams, devices=2))
    assert_same(*(of.take(100) for of in both_of(trace, stratified=stratified)))


def test_of_large_nodes_are_drawn_by_their_alias_tables(monkeypatch):
    monkeypatch.setattr(random, "LARGEST", 6)
    for seed, share in itertools.product(range(4), (0.5, 2.0)):
        trace = counted(mixed(150, seed, sizes=1), 1)
        both = both_of(trace, expected=share, seed=seed, largest=6)
        assert_same(*(of.take(200) for of in both))


class TestMemory:
    @pytest.mark.parametrize("most", [2**23, 32])
    def test_that_is_full_grows_or_forgets_what_is_oldest(self, monkeypatch, most):
        monkeypatch.setattr(addresses, "_MOST_ROWS", most)
        larger = 0
        for seed in range(6):
            trace = counted(mixed(90, seed, streams=3, devices=2, space=10**5))
            walk, reference = both_of(trace, seed=seed)
            memory = walk._tables.memory
            few = new_last_access(1 << memory.accesses.bits, memory.accesses.devices, 16)
            walk._tables = walk._tables._replace(memory=memory._replace(accesses=few))
            reference.memory.capacity, reference.memory.most = 16, most
            assert_same(walk.take(200), reference.take(200))
            assert len(walk._tables.memory.accesses.key) == reference.memory.capacity
            larger += reference.memory.capacity > 16
        assert larger > 2

    @pytest.mark.parametrize("reuse", [True, False])
    def test_begins_anew_where_its_clocks_end_if_there_is_any(self, reuse):
        # Of these both devices have requests.
        for seed in (0, 3, 4):
            trace = counted(mixed(90, seed, devices=2))
            walk, reference = both_of(trace, expected=2.0, seed=seed, reuse=reuse)
            assert_same(walk.take(50), reference.take(50))
            walk._tables.memory.clock[1] = reference.memory.clock[1] = MOST_CLOCK - 9
            assert_same(walk.take(90), reference.take(90))
            assert walk._tables.memory.clock.tolist() == reference.memory.clock
            assert (max(reference.memory.clock) < 90) == reuse

    def test_knows_what_was_long_ago(self):
        """A run goes on where it stopped if nothing was ahead of it in the last 2048 requests."""
        for seed in range(5):
            trace = counted(mixed(70, seed, space=600), 1)
            walk, reference = both_of(trace, expected=9.0, seed=seed)
            for later in (0, 2040, 9):
                walk._tables.memory.clock[:] += later
                reference.memory.clock = walk._tables.memory.clock.tolist()
                assert_same(walk.take(60), reference.take(60))

    def test_has_room_for_twice_the_requests_to_come(self):
        for expected in (0.5, 3.0):
            walk, reference = both_of(counted(mixed(40, 3)), expected=expected)
            memory = walk._tables.memory
            for lists, plain in ((memory.begins, reference.begins), (memory.ends, reference.ends)):
                assert lists.room.tolist() == [plain[place].room for place in sorted(plain)]


def test_of_two_streams_due_at_once_the_one_on_the_left_moves_up():
    """None does to where another is due at once with it."""
    for before, due, after in (
        ([2, 0, 1, 3], [1.0, 1.0, 5.0, 9.0], [0, 2, 1, 3]),
        ([2, 0, 1], [5.0, 5.0, 5.0], [2, 0, 1]),
    ):
        heap = np.array(before)
        _sift_down(heap, np.array(due))
        assert heap.tolist() == after


@pytest.fixture(scope="module")
def busy():
    return counted(two_streams())


def off(trace, requests):
    """Share of the requests whose transitions would have to be others to be as many as counted."""
    made = np.bincount(requests.transition, minlength=len(trace.counts.pair))
    return np.abs(made - trace.counts.count).sum() / 2 / len(requests.transition)


class TestAsLongAsTheirTrace:
    @FEW
    @given(TRACES, st.integers(1, 3), st.integers(0, 99))
    def test_are_as_many_of_each_stream_and_random_as_counted(self, columns, levels, seed):
        trace = counted(columns, levels)
        counts, survey = trace.counts, trace.survey
        alone = np.bincount(counts.stream, counts.count, len(survey.streams)) == 0
        wanted = np.where(alone, 0, survey.stream_counts)
        walk = walk_of(trace, seed=seed)
        found = walk.take(int(wanted.sum()))
        assert np.bincount(found.stream, minlength=len(wanted)).tolist() == wanted.tolist()
        elsewhere, random = (
            np.bincount(counts.stream[t], (counts.sequential[t] == 0) * n, len(wanted))
            for t, n in ((found.transition, 1), (np.arange(len(counts.pair)), counts.count))
        )
        # The first request goes before the first transition.
        assert (np.abs(elsewhere - random)[~alone] <= 2).all()
        rng = np.random.default_rng(seed)
        again = Generator(learnt_of(trace), expected=1.0, rng=rng).take(len(found.due_s))
        assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))

    @pytest.mark.parametrize("levels", [1, 2, 3])
    def test_make_every_transition_about_as_often(self, levels):
        trace = counted(two_streams(), levels)
        n, rounds = trace.survey.requests, walk_of(trace, expected=2.0)
        first, second = rounds.take(n), rounds.take(n)
        for found in (*(walk_of(trace, seed=s).take(n) for s in range(3)), first, second):
            assert off(trace, found) < 0.07
        assert second.due_s[0] > 0
        assert (first.transition != second.transition).any()

    def test_come_back_as_often_as_it(self, busy):
        found = walk_of(busy).take(busy.survey.requests)
        again = [1 - len(np.unique(lbn)) / len(lbn) for lbn in (busy.columns.lbn, found.lbn)]
        assert again[1] == pytest.approx(again[0], abs=0.08)
        once = counted(columns(8 * np.random.default_rng(4).permutation(400)))
        new, free = (len(np.unique(walk_of(once, reuse=r).take(400).lbn)) for r in (True, False))
        assert new > 1.2 * free

    def test_are_as_fast(self, busy):
        found = walk_of(busy).take(busy.survey.requests)
        assert found.due_s[-1] == pytest.approx(busy.survey.duration_s, rel=0.1)
        slow = walk_of(busy, pace=np.array([3.0, 1.0])).take(busy.survey.requests)
        for s, times in ((0, 3), (1, 1)):
            gaps, slower = (np.diff(of.due_s[of.stream == s]).sum() for of in (found, slow))
            assert slower == pytest.approx(times * gaps, rel=1e-9)
        both = both_of(counted(columns(8 * np.arange(64), time_s=np.arange(64) / 4)))
        regular = both[0].take(64)
        assert_same(regular, both[1].take(64))
        assert np.diff(regular.due_s) == pytest.approx(np.full(63, 0.25), rel=1e-9)
        assert 0 <= regular.due_s[0] < 0.25


@pytest.mark.parametrize("reuse", [False, True])
def test_every_request_is_where_its_transition_says(busy, reuse):
    counts, diagram, survey = busy.counts, busy.counts.diagram, busy.survey
    found = walk_of(busy, reuse=reuse).take(survey.requests)
    t, end = found.transition, found.lbn + found.size_bytes // 512
    assert (np.diff(found.due_s) >= 0).all()
    assert survey.low_lbn <= found.lbn.min() <= found.lbn.max() < survey.high_lbn
    assert not (found.lbn % 8).any()
    pairs, goes_on = diagram.pairs(counts.pair[t]), counts.sequential[t] == 1
    state = states_of(diagram, found.lbn) // diagram.fan_out ** (diagram.levels - pairs.level)
    # Where a state is full of what was touched, what is new lies behind it.
    led_to = (state == pairs.target)[~goes_on].mean()
    assert led_to > 0.8 if reuse else led_to == 1
    for s in (0, 1):
        of = np.flatnonzero(found.stream == s)
        same, on = found.lbn[of[1:]] == end[of[:-1]], goes_on[of[1:]]
        assert same[on & (end[of[:-1]] < survey.high_lbn)].all()
        # Where it goes elsewhere, chance hardly ever brings it to the same block.
        assert same[~on].sum() < 0.05 * len(same)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("stratified", [True, False])
def test_of_longer_walks_are_in_states_by_their_shares(busy, stratified, entry):
    found = walk_of(busy, reuse=False, expected=5.0, stratified=stratified, entry=entry).take(3000)
    state = states_of(busy.counts.diagram, found.lbn)
    share = np.bincount(busy.counts.state, busy.counts.occupancy, 16) / busy.survey.requests
    assert np.bincount(state, minlength=16) / 3000 == pytest.approx(share, abs=0.05)


@given(st.lists(st.lists(st.integers(1, 1000), min_size=1, max_size=12), min_size=1, max_size=4))
def test_an_alias_table_holds_the_shares_of_its_node(nodes):
    first = np.cumsum([0, *map(len, nodes)])
    weight = np.concatenate(nodes).astype(float)
    keep, other = np.empty(len(weight)), np.empty(len(weight), dtype=np.int64)
    _fill_aliases(first, weight, keep, other)
    for a, b in itertools.pairwise(first):
        assert (keep[a:b] >= 0).all()
        assert (keep[a:b] <= 1).all()
        given_away = np.bincount(other[a:b] - a, 1 - keep[a:b], minlength=b - a)
        share = (keep[a:b] + given_away) / (b - a)
        assert share == pytest.approx(weight[a:b] / weight[a:b].sum(), abs=1e-12)


@given(TRACES, st.integers(1, 3), st.integers(2, 4), st.sampled_from(ENTRIES))
def test_tables_are_those_of_the_reference(columns, levels, fan_out, entry):
    trace = counted(columns, levels, fan_out)
    learnt, counts = learnt_of(trace, entry=entry), trace.counts
    model, found = Model(columns, levels, fan_out, trace.again), learnt.chain
    expected = Chain(model, learnt.kinds.tolist(), entry)
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
    for (*state, sequential), transitions in expected.nodes.items():
        number = left[model.within(*state), state[1] - 1].sum()
        assert sequential or number == pytest.approx(counts.count[transitions].sum())
    arrivals, random = np.diff(found.entered, axis=1), counts.count * (counts.sequential == 0)
    for target, t in zip(*np.unique(found.target, return_index=True), strict=True):
        entered = arrivals[found.level[t] - 1, found.low[t] : found.high[t]].sum()
        assert entered == random[found.target == target].sum()


def test_an_unknown_way_of_entry_is_refused(busy):
    with pytest.raises(FittingError, match="'anyhow': give arrivals or occupancy"):
        learnt_of(busy, entry="anyhow")
