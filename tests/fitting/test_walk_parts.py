"""What a walk is laid out from, and the order of its streams: part by part."""

from __future__ import annotations

import numpy as np
import pytest
from counted_traces import columns, counted, two_streams
from laid_space import given, laid, pending, space
from test_walk_cases import walk_of

from fitting.chain import Chain
from fitting.compiled import uncounted
from fitting.interarrival import KNOTS, GapLaws
from fitting.marks import MOST_CLOCK
from fitting.request_kinds import KINDS
from fitting.tour import Course, Deals, Moves, Tour
from fitting.trace_survey import SizeClasses
from fitting.walk import (
    _by_state,
    _by_transition,
    _features,
    _first_states,
    _further,
    _nothing,
    _only,
    _pending,
    _shares,
    _sift,
    _soonest,
    _start,
)
from fitting.walk_draws import Batches


class Counts:
    """Transitions or touched states with what is asked of them only."""

    def __init__(self, **fields):
        for name, value in fields.items():
            setattr(self, name, laid(value))


def chain(**fields):
    nothing = dict.fromkeys(Chain.__dataclass_fields__)
    return Chain(**nothing | {name: laid(value) for name, value in fields.items()})


def test_a_node_of_one_transition_has_it_at_once():
    found = _only(chain(order=[7, 3, 5, 9], first=[0, 1, 3, 4]))
    assert found.tolist() == [7, -1, 9]


def test_requests_that_go_on_are_as_long_as_those_of_their_node():
    """Sizes 1 and 3 KiB in equal parts, or 8 KiB: of 4 and 16 blocks."""
    classes = SizeClasses(
        (np.array([1024, 3072]), np.array([8192])), (np.array([5, 5]), np.array([9]))
    )
    counts = Counts(count=[9, 1, 3, 2], size_class=[0, 1, 0, 1])
    found = _further(
        counts, chain(order=[3, 1, 2, 0], first=[0, 1, 3, 4], follows=[1, -1, 0, 2]), classes
    )
    assert found.tolist() == [(16 + 3 * 4) / 4, 0, 16, 4]


def test_streams_begin_with_nothing_to_do():
    found = _pending(3)
    assert all(len(of) == 3 for of in found)
    for name, of in found._asdict().items():
        if name not in ("due", "resumes", "gap"):
            assert (of == -1).all()
    assert np.isnan(found.due).all()
    assert (found.resumes == np.inf).all()
    assert not found.gap.any()
    assert len({id(of) for of in found}) == len(found)


def test_a_stream_began_where_it_left_once_more_than_it_came():
    """Touched states 0 and 1 of stream 0, 2 and 3 of stream 1, 4 of stream 2."""
    counts = Counts(
        departures=[[1, 1], [0, 2], [3, 0], [1, 0], [4, 0]],
        arrivals=[[2, 0], [0, 1], [0, 4], [0, 0], [0, 4]],
        stream_of_state=[0, 0, 1, 1, 2],
    )
    assert _first_states(counts, 4).tolist() == [1, 3, -1, -1]


@pytest.mark.parametrize(
    ("expected", "made"),
    [(0.5, [5, 1, 2]), (1.0, [10, 1, 3]), (7.0, [10, 1, 3]), (0.01, [1, 1, 1])],
)
def test_streams_make_their_shares(expected, made):
    counts = Counts(stream_of_state=[0, 0, 2], occupancy=[4, 6, 3])
    shares = _shares(counts, 3, expected)
    assert shares.tolist() == made
    assert shares.dtype == np.int64
    assert _shares(counts, 3, 0).tolist() == [2**63 - 1] * 3


def test_sizes_are_cumulated_by_class():
    classes = SizeClasses(
        (np.array([512]), np.array([1024, 4096])), (np.array([7]), np.array([1, 3]))
    )
    laws = GapLaws(
        **{name: np.full((2, 3), k) for k, name in enumerate(GapLaws.__dataclass_fields__)}
    )
    pace = np.ones(2)
    found = _features(laws, classes, pace)
    assert found.size_start.tolist() == [0, 1, 3]
    assert found.size.tolist() == [512, 1024, 4096]
    assert found.size_share.tolist() == [1.0, 0.25, 1.0]
    assert found.law is laws.law
    assert found.mean is laws.mean_s
    assert found.shape is laws.shape
    assert found.quantiles is laws.quantiles
    assert found.knots is KNOTS
    assert found.pace is pace
    none = GapLaws(**vars(laws) | {"quantiles": np.zeros((0, 9))})
    assert _features(none, classes, pace).quantiles.shape == (1, len(KNOTS))


def test_room_for_requests():
    found = _nothing(5)
    assert [len(of) for of in found] == [5] * 5
    assert [of.dtype.char for of in found] == ["d", "i", "l", "l", "l"]
    assert len({of.ctypes.data for of in found}) == 5


@pytest.fixture(scope="module")
def whole():
    return walk_of(counted(two_streams(300)), reuse=True)._course


def leaves(of):
    """Arrays of nested tuples, by their names."""
    for name, value in of._asdict().items():
        if isinstance(value, np.ndarray):
            yield name, value
        elif hasattr(value, "_asdict"):
            yield from ((f"{name}.{inner}", array) for inner, array in leaves(value))


def copied(of):
    if isinstance(of, np.ndarray):
        return of.copy()
    return type(of)(*map(copied, of)) if hasattr(of, "_asdict") else of


def test_laid_side_by_side_all_is_what_it_was(whole):
    whole = copied(whole)
    numbered = dict(leaves(whole))
    rng = np.random.default_rng(0)
    for name, array in numbered.items():
        # So that none could stand for another.
        if array.dtype.kind in "if" and array.ndim and not name.startswith(("m.marks", "decks")):
            array[...] = rng.integers(100, size=array.shape)
    before = {name: array.copy() for name, array in numbered.items()}
    found = dict(leaves(_by_transition(_by_state(whole))))
    assert found.keys() == before.keys()
    for name, array in found.items():
        assert np.array_equal(array, before[name]), name
    together = [
        ["w.leave", "w.node", "w.follows", "w.further", "m.draws.made", "m.draws.key"]
        + [
            f"{of}.{n}"
            for of in ("tour.random", "tour.sequential")
            for n in ("all", "left", "ahead")
        ]
        + [f"strata.leave.{n}" for n in Batches._fields],
        [*(f"strata.run.{n}" for n in Batches._fields), "tour.runs", "tour.runs_left"],
        [f"w.{n}" for n in ("low", "high", "target", "level", "kind", "size_class")]
        + ["f.mean", "f.shape", "f.law"],
        *([f"strata.{of}.{n}" for n in Batches._fields] for of in ("node", "entry")),
    ]
    for names in together:
        strides = {found[name].strides[0] for name in names}
        assert len(strides) == 1
        at = [found[name].ctypes.data for name in names]
        assert max(at) - min(at) < strides.pop()


@uncounted
def soonest(heap, due):
    return _soonest(heap, due)


@uncounted
def sift(heap, due):
    _sift(heap, due)


class TestTheFirstThatIsDue:
    def test_of_few_is_found_by_a_look_at_all(self):
        heap = np.array([7, 7, 7, 7])
        for due, expected in [
            ([3.0, 1.0, 2.0, 1.0], 1),
            ([1.0, 1.0, 2.0, 1.0], 0),
            ([4.0, 3.0, 2.0, 1.0], 3),
            ([4.0, 3.0, 2.0, 2.5], 2),
        ]:
            assert soonest(heap, np.array(due)) == expected
        assert soonest(heap, np.array([8.0, 7, 6, 5, 4, 3, 2, 1])) == 7
        assert soonest(heap, np.array([np.inf])) == 0

    def test_of_many_is_the_first_of_a_heap(self):
        assert soonest(np.array([4, 0, 1, 2, 3, 5, 6, 7, 8]), np.arange(9.0)) == 4

    @pytest.mark.parametrize("streams", [1, 2, 3, 9, 16])
    def test_of_a_heap_comes_in_the_order_of_times(self, streams):
        rng = np.random.default_rng(streams)
        due = np.sort(rng.random(streams))
        heap = np.arange(streams)
        for _ in range(40):
            s = heap[0]
            assert due[s] == due.min()
            due[s] += rng.random()
            sift(heap, due)
            assert sorted(heap) == list(range(streams))
            for child in range(1, streams):
                assert due[heap[(child - 1) // 2]] <= due[heap[child]]

    def test_of_two_as_early_the_one_on_the_left_moves_up(self):
        heap = np.array([2, 0, 1, 3])
        sift(heap, np.array([1.0, 1.0, 5.0, 9.0]))
        assert heap.tolist() == [0, 2, 1, 3]
        # It stays where its children are due as early.
        heap = np.array([2, 0, 1])
        sift(heap, np.array([5.0, 5.0, 5.0]))
        assert heap.tolist() == [2, 0, 1]


class TestStarting:
    """Of streams 0 to 4: states 0 and 1, 2 and 3, 4, 5, and 6 and 7."""

    def started(self, first, follows, random, occupancy=(0, 9, 9, 0, 1, 1, 0, 9)):
        origin = np.repeat([0, 2, 4, 5, 6], KINDS)
        c = given(
            Course,
            d=space(origin_start=np.array([*origin, 8])),
            w=given(Moves, follows=list(follows)),
            p=pending(5, first=list(first)),
        )
        left = np.array(random)
        c = c._replace(tour=given(Tour, random=Deals(left, left, left)))
        begins = _start(c, np.array(occupancy), np.random.default_rng(0))
        return begins.tolist(), c.p

    def test_is_where_each_began_or_by_occupancy(self):
        begins, p = self.started(
            first=[0, 3, -1, 5, 6],
            follows=[2, -1, 5, -1, -1, -1, -1, 3],
            random=[0, 1, 0, 0, 0, 0, 1, 1],
        )
        # Stream 1 began in a state that nothing leaves; 2 and 3 make no transition.
        assert begins == [True, False, False, False, True]
        assert p.state.tolist() == [0, 2, -1, -1, 6]
        # Where the rest begins again: the one it began in, or the first that something goes on in.
        assert p.first.tolist() == [0, 2, -1, 5, 7]
        assert p.due.tolist() == [0, 0, np.inf, np.inf, 0]
        assert p.kind.tolist() == p.run.tolist() == [0] * 5
        assert p.end.tolist() == [-1] * 5

    def test_is_drawn_by_occupancy_where_none_is_known(self):
        begins, p = self.started(
            first=[-1] * 5, follows=[-1] * 7 + [0], random=[1, 0, 1, 0, 1, 1, 0, 0]
        )
        assert begins == [False] * 5
        assert p.state.tolist() == [1, 2, 4, 5, 7]
        assert p.first.tolist() == [-1, -1, -1, -1, 7]
        assert not p.due.any()


class TestRounds:
    """Two streams on a device each, of ten and five requests."""

    @pytest.fixture
    def trace(self):
        rng = np.random.default_rng(8)
        stream = np.arange(15) % 3 == 0
        return counted(columns(8 * rng.integers(40, size=15), stream=stream, device=stream))

    def test_give_each_stream_its_share_over_and_over(self, trace):
        walk = walk_of(trace, expected=3.0)
        found = [walk.take(15) for _ in range(3)]
        for one in found:
            assert np.bincount(one.stream).tolist() == [10, 5]
            assert (np.diff(one.due_s) >= 0).all()
        assert walk._course.p.left.max() <= 10

    def test_go_on_at_the_time_they_had_come_to(self, trace):
        """A request is due a gap of its own after the one before, of whichever round that is."""
        walk = walk_of(trace, expected=3.0)
        found = walk.take(45)
        for s in (0, 1):
            gaps = np.diff(found.due_s[found.stream == s])
            mean = [walk._course.f.mean[t] for t in found.transition[found.stream == s]]
            assert gaps == pytest.approx(mean[1:], rel=1e-9)

    def test_independent_draws_have_no_rounds(self, trace):
        walk = walk_of(trace, expected=3.0, stratified=False)
        found = walk.take(40)
        assert (
            walk._course.p.left.tolist()
            == (2**63 - 1 - np.bincount(found.stream, minlength=2)).tolist()
        )
        assert not walk._course.tour.closed[()]

    @pytest.mark.parametrize(("expected", "closed"), [(0.99, False), (1.0, True), (2.0, True)])
    def test_are_tours_where_all_is_to_be_made(self, trace, expected, closed):
        assert walk_of(trace, expected=expected)._course.tour.closed[()] == closed

    def test_first_requests_are_due_within_their_gaps(self, trace):
        due = [walk_of(trace, seed=seed)._course.p for seed in range(6)]
        share = np.array([p.due / p.gap for p in due])
        assert (share >= 0).all()
        assert (share < 1).all()
        assert len(np.unique(share)) == share.size
        assert {tuple(p.left) for p in due} == {(10, 5)}

    def test_begin_anew_when_the_clocks_end(self, trace):
        walk = walk_of(trace, reuse=True, expected=3.0)
        walk.take(20)
        walk._course.m.clock[:] = 7, MOST_CLOCK
        walk.take(25)
        assert walk._course.m.clock.max() <= 25

    def test_take_no_more_room_than_they_need(self, trace):
        walk = walk_of(trace, reuse=True, expected=3.0)
        rows = len(walk._course.m.marks.key)
        walk.take(10)
        walk.take(10)
        assert len(walk._course.m.marks.key) == rows

    def test_forget_what_came_last_with_all_the_rest(self, trace):
        walk = walk_of(trace, reuse=True, expected=3.0)
        walk.take(20)
        walk._course.m.clock[1] = MOST_CLOCK - 1
        walk._have_room()
        assert walk._course.p.made.min() > 0
        assert walk._course.m.marks.key.any()
        walk._course.m.clock[1] = MOST_CLOCK
        walk._have_room()
        assert walk._course.p.made.tolist() == [-1, -1]
        assert not walk._course.m.marks.key.any()


def test_many_streams_give_their_requests_in_the_order_of_their_times():
    """Ten streams, of which the first has one request, and so makes none."""
    stream = np.append(0, np.arange(90) % 9 + 1)
    lbn = 8 * np.random.default_rng(5).integers(40, size=91)
    found = walk_of(counted(columns(lbn, stream=stream)), expected=2.0).take(180)
    assert np.bincount(found.stream).tolist() == [0] + [20] * 9
    assert (np.diff(found.due_s) >= 0).all()
