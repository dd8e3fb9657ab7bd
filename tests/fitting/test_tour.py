"""What comes after what in a walk: deals, shares and single draws, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from counted_traces import counted, kinds_of, two_streams
from hypothesis import given as given_any
from hypothesis import strategies as st
from known_draws import ahead, begun, giving
from laid_space import given, pending, space

from fitting.chain import make_chain
from fitting.decks import new_decks
from fitting.request_kinds import KINDS
from fitting.tour import (
    Course,
    Deals,
    Moves,
    Strata,
    Tour,
    _come_to,
    _dealt,
    _drawn_size,
    _entered,
    _keep_share,
    _leaves,
    _left_ahead,
    _next_left,
    _parting,
    _row_left,
    new_strata,
    new_tour,
)
from fitting.walk_draws import Batches, Features


def ones(number):
    """Batches of single draws."""
    return Batches(*(np.full(number, of) for of in (0, 1, 0, 7)))


def deals(all_, left=None, further=None):
    n = len(all_)
    return Deals(
        np.array(all_),
        np.array(all_ if left is None else left),
        np.arange(1, n + 1) if further is None else np.array(further),
    )


@pytest.fixture(scope="module")
def learnt():
    trace = counted(two_streams(200), 2)
    return trace.counts, make_chain(trace.counts, kinds_of(trace))


@pytest.mark.parametrize(("share", "length"), [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0), (3.0, 1.0)])
def test_batches_are_as_long_as_what_is_to_come(learnt, share, length):
    counts, chain = learnt
    runs = np.array([0, 5, 8, 10 * 2**20])
    strata = new_strata(counts, chain, runs, share, np.random.default_rng(0))
    elsewhere = counts.sequential == 0
    dealt = zip(chain.first[:-1], chain.first[1:], strict=True)
    nodes = [counts.count[chain.order[a:b]].sum() for a, b in dealt]
    entered = [
        counts.count[(chain.target == k) & elsewhere].sum() for k in range(chain.target.max() + 1)
    ]
    for batches, number in zip(strata, (chain.departures, runs, nodes, entered), strict=True):
        most = np.minimum(np.round(length * np.array(number)), 2**20)
        assert batches.length.tolist() == np.maximum(most, 1).tolist()


def test_a_tour_begins_with_all_that_was_counted(learnt):
    counts, chain = learnt
    runs = np.arange(2 * len(counts.state))
    tour = new_tour(counts, chain, runs, 2, closed=True)
    on = counts.departures.sum(axis=1) - chain.departures
    assert (chain.follows < 0).any()
    for found, expected in (
        (tour.random, chain.departures),
        (tour.sequential, np.where(chain.follows < 0, 0, on)),
    ):
        assert np.array_equal(found.all, expected)
        assert np.array_equal(found.left, expected)
        assert found.left is not found.all
        assert np.array_equal(found.ahead, np.arange(len(expected)) + 1)
    by_stream = [chain.departures[counts.stream_of_state == s].sum() for s in (0, 1)]
    assert tour.starts.tolist() == tour.left.tolist() == by_stream
    assert tour.starts.dtype.kind == "i"
    assert np.array_equal(tour.runs, runs)
    assert np.array_equal(tour.runs_left, runs)
    tour.left[0] = tour.runs_left[1] = -1
    assert tour.starts[0] >= 0
    assert tour.runs[1] == 1
    assert tour.closed[()]
    assert not new_tour(counts, chain, runs, 2, closed=False).closed[()]


class TestWhatIsLeft:
    def test_is_found_at_once_the_next_time(self):
        held = deals([1] * 6, [0, 0, 0, 2, 0, 0])
        assert _left_ahead(held, 1, 6) == 3
        assert held.ahead.tolist() == [1, 3, 3, 4, 5, 6]
        assert _left_ahead(held, 0, 6) == 3
        assert held.ahead.tolist() == [3, 3, 3, 4, 5, 6]
        assert _left_ahead(held, 4, 6) == 6
        assert held.ahead.tolist() == [3, 3, 3, 4, 6, 6]
        assert (_left_ahead(held, 3, 6), _left_ahead(held, 6, 6)) == (3, 6)
        assert _left_ahead(deals([1] * 3, [0, 0, 0]), 0, 2) == 2

    @given_any(st.lists(st.integers(0, 2), min_size=1, max_size=9), st.data())
    def test_is_the_next_one_round_the_range(self, all_, data):
        """Every state comes up as often as it has something, then all begin anew."""
        held, n = deals([7, *all_, 7]), len(all_)
        left, v = list(all_), data.draw(st.integers(1, n))
        for _ in range(12):
            if not any(left):
                left = list(all_)
            around = [*range(v - 1, n), *range(v - 1)]
            expected = next((k + 1 for k in around if left[k]), -1)
            assert _next_left(held, v, 1, n + 1) == expected
            if expected < 0:
                break
            held.left[expected] -= 1
            left[expected - 1] -= 1
            v = data.draw(st.integers(1, n))
        assert (held.left[0], held.left[-1]) == (7, 7)

    def test_is_dealt_anew_where_none_is(self):
        held = deals([9, 3, 0, 2, 0, 9], [0, 0, 0, 0, 0, 0], [6, 5, 5, 5, 5, 6])
        assert _next_left(held, 2, 1, 5) == 3
        assert held.left.tolist() == [0, 3, 0, 2, 0, 0]
        assert held.ahead.tolist() == [6, 2, 3, 4, 5, 6]
        held.left[:] = 0
        assert _next_left(held, 4, 1, 5) == 1
        assert held.left.tolist() == [0, 3, 0, 2, 0, 0]
        assert _next_left(deals([9, 0, 0, 9]), 1, 1, 3) == -1


def course(**parts):
    return given(Course, **parts)


class TestLeaving:
    """Touched states 1 to 3 are of stream 1."""

    def left(self, held, state, *, closed):
        c = course(
            d=space(origin_start=np.array([*[0] * KINDS, *[1] * KINDS, 4])),
            p=pending(state=[0, state]),
            tour=given(Tour, closed=np.asarray(closed)),
        )
        return _leaves(c, held, 1)

    @pytest.mark.parametrize(
        ("all_", "state", "expected"),
        [
            ([9, 0, 0, 3, 9], 1, 3),
            ([9, 0, 0, 3, 9], 3, 3),
            ([9, 3, 0, 0, 9], 2, 1),
            ([9, 3, 4, 0, 9], 3, 1),
            ([9, 0, 4, 0, 9], 3, 2),
            ([9, 0, 0, 0, 9], 2, -1),
            ([9, 1, 1, 1, 9], 2, 2),
        ],
    )
    def test_is_of_the_state_or_of_the_next(self, all_, state, expected):
        held = deals(all_, [0] * 5)
        assert self.left(held, state, closed=False) == expected
        assert not held.left.any()
        held = deals(all_)
        assert self.left(held, state, closed=True) == expected
        taken = [k == expected for k in range(5)]
        assert (np.array(all_) - held.left).tolist() == taken

    def test_of_a_tour_is_of_one_that_has_something_left(self):
        held = deals([9, 1, 2, 1, 9], [9, 0, 0, 1, 9])
        assert self.left(held, 1, closed=True) == 3
        assert self.left(held, 2, closed=True) == 2
        assert held.left.tolist() == [9, 1, 1, 1, 9]

    @pytest.mark.parametrize(
        ("v", "u", "expected"),
        [
            *((0, 0.0, 10), (0, 0.24, 10), (0, 0.25, 11), (0, 0.49, 11), (0, 0.5, 12)),
            *((0, 0.99, 12), (1, 0.99, 15), (1, 0.0, 13), (2, 0.0, 17)),
        ],
    )
    def test_is_at_the_level_that_a_share_falls_on(self, v, u, expected):
        c = course(
            d=space(levels=3),
            w=given(
                Moves,
                leave=[[0.25, 0.5, 1.0], [0.5, 0.75, 0.9], [0.0, 1.0, 1.0], [1.0, 1.0, 1.0]],
                node=np.arange(10, 22).reshape(4, 3),
            ),
            strata=given(Strata, leave=ones(4)),
        )
        assert _parting(c, v, giving(u)) == expected
        r = giving(u)
        assert _parting(c, 3, r) == 19
        assert r == giving(u)


class TestEntering:
    w = given(
        Moves,
        low=[0, 2],
        high=[1, 5],
        level=[1, 2],
        target=[0, 1],
        entered=[[9.0] * 7, [0.0, 5.0, 5.0, 6.0, 6.0, 9.0, 99.0]],
    )

    @pytest.mark.parametrize(("u", "expected"), [(0.0, 2), (0.24, 2), (0.25, 4), (0.99, 4)])
    def test_is_where_a_share_of_arrivals_falls(self, u, expected):
        c = course(w=self.w, strata=given(Strata, entry=ones(2)))
        assert _entered(c, 1, giving(u)) == expected

    def test_a_single_state_takes_no_draw(self):
        r, w = begun(), self.w._replace(low=np.array([0, 4]), high=np.array([1, 5]))
        c = course(w=w, strata=given(Strata, entry=ones(2)))
        assert [_entered(c, t, r) for t in (0, 1)] == [0, 4]
        assert r == begun()

    def test_two_states_take_one(self):
        w = self.w._replace(low=np.array([0, 2]), high=np.array([1, 4]))
        r = giving(0.99)
        c = course(w=w, strata=given(Strata, entry=ones(2)))
        assert _entered(c, 1, r) == 2
        assert r != giving(0.99)
        w = w._replace(low=np.array([0, 4]), high=np.array([1, 6]))
        assert _entered(c._replace(w=w), 1, giving(0.5)) == 5


@pytest.mark.parametrize(
    ("class_", "u", "expected", "drawn"),
    [
        *((0, 0.9, 512, 0), (1, 0.0, 1024, 1), (1, 0.25, 2048, 1), (1, 0.5, 4096, 1)),
        *((1, 0.9, 4096, 1), (2, 0.49, 8192, 1), (2, 0.5, 9000, 1)),
    ],
)
def test_a_size_is_drawn_by_its_share(class_, u, expected, drawn):
    f = given(
        Features,
        size_start=[0, 1, 4, 6],
        size=[512, 1024, 2048, 4096, 8192, 9000],
        size_share=[1.0, 0.25, 0.5, 1.0, 0.5, 1.0],
    )
    r = giving(u)
    then = ahead(r, 2)[drawn]
    assert _drawn_size(f, class_, r) == expected
    assert ahead(r, 1) == [then]


@pytest.mark.parametrize(
    ("state", "end", "kind", "expected"),
    [
        # Touched states 3 and 4 of stream 1 are its states 1 and 2, from 1256 and 1512 on.
        *((3, 1256, 0, 3), (3, 1511, 0, 3), (3, 1512, 0, 4), (4, 1511, 0, 3), (4, 1767, 0, 4)),
        *((3, 1255, 0, 3), (4, 1768, 0, 4)),
        # Touched state 5 is state 1 again, of the second kind.
        *((3, 1300, 1, 5), (5, 1300, 0, 3), (5, 1300, 1, 5), (5, 2000, 1, 5)),
    ],
)
def test_a_run_comes_to_the_state_of_its_address(state, end, kind, expected):
    starts = [0, 2, *[3] * (KINDS - 1), 5, *[6] * (KINDS - 1)]
    c = course(
        d=space(origin_start=np.array(starts), state=np.array([0, 2, 3, 1, 2, 1])),
        p=pending(state=[0, state], end=[0, end]),
        w=given(Moves, kind=[9, kind]),
    )
    assert _come_to(c, 1, 1) == expected


@pytest.mark.parametrize("first", [128, 1000])
@pytest.mark.parametrize("inside", [0, 100, 255])
def test_a_run_stays_in_a_state_among_others(inside, first):
    """Looked up or not: in its own state, and out of it at either end."""
    starts = [0, 2, *[3] * (KINDS - 1), *[5] * KINDS]
    d = space(origin_start=np.array(starts), first_lbn=first)
    for state in (0, 1):
        begin = first + 256 * int(d.state[state])
        for end in (begin + inside, begin + 256 + inside, begin - 256 + inside):
            c = course(d=d, p=pending(state=[state, 0], end=[end, 0]), w=given(Moves, kind=[0]))
            touched = [k for k in (0, 1) if d.state[k] <= (end - first) // 256]
            assert _come_to(c, 0, 0) == (touched[-1] if touched else 0)


@pytest.mark.parametrize(
    ("run", "left", "random", "starts", "end", "expected"),
    [
        # Of those to come one is this: random ones that take all the others end a run.
        *((5, 4, 2, 9, 0, 5), (5, 4, 3, 9, 0, 0), (5, 4, 4, 9, 0, 0), (1, 4, 3, 9, 0, 0)),
        # At the end of the space (block 100) a run ends while random ones are left.
        *((5, 9, 1, 9, 99, 5), (5, 9, 1, 9, 100, 0), (5, 9, 1, 9, 101, 0), (5, 9, 0, 9, 100, 5)),
        # Where none is left the rest is one run, unless there never was any.
        *((0, 4, 0, 9, 0, 3), (0, 1, 0, 9, 0, 0), (0, 0, 0, 9, 0, 0), (0, 4, 1, 9, 0, 0)),
        *((0, 4, 0, 0, 0, 0), (0, 4, 0, 1, 0, 3), (-1, 4, 0, 9, 0, -1), (2, 9, 0, 9, 0, 2)),
        *((2, 1, 0, 9, 0, 0), (2, 2, 0, 9, 0, 2)),
    ],
)
def test_a_run_ends_or_goes_on_as_the_share_of_random_ones_asks(
    run, left, random, starts, end, expected
):
    tour = given(Tour, starts=[0, starts], left=[7, random])
    p = pending(run=[-5, run], left=[9, left], end=[0, end])
    _keep_share(tour, p, 1, 100)
    assert p.run.tolist() == [-5, expected]


@pytest.mark.parametrize(
    ("left", "row", "expected", "then"),
    [
        ((3, 2), 2, 2, (2, 2)),
        ((3, 2), 3, 3, (3, 1)),
        ((0, 2), 2, 3, (0, 1)),
        ((1, 0), 3, 2, (0, 0)),
        ((0, 1), 2, 3, (0, 0)),
        ((0, 0), 2, 2, (4, 6)),
        ((0, 0), 3, 3, (5, 5)),
    ],
)
def test_run_lengths_are_of_a_row_that_has_some_left(left, row, expected, then):
    tour = given(Tour, runs=[9, 9, 5, 6, 9, 9], runs_left=[8, 8, *left, 8, 8])
    assert _row_left(tour, row) == expected
    assert tour.runs_left.tolist() == [8, 8, *then, 8, 8]


def test_run_lengths_of_a_state_without_runs_stay_none():
    tour = given(Tour, runs=[0, 0], runs_left=[0, 0])
    assert [_row_left(tour, row) for row in (0, 1)] == [0, 1]
    assert tour.runs_left.tolist() == [0, 0]
    tour = given(Tour, runs=[0, 3], runs_left=[0, 0])
    assert _row_left(tour, 0) == 1
    assert tour.runs_left.tolist() == [0, 2]


class TestDealing:
    """Nodes: 0 has one transition; 1 has a deck; 2 is dealt by its alias table."""

    def made(self):
        order, first = np.array([8, 3, 5, 7, 9, 4]), np.array([0, 1, 3, 6])
        copies = np.array([1, 2, 1, 5000, 1, 1])
        w = given(
            Moves,
            only=[8, -1, -1],
            order=order,
            first=first,
            keep=[1.0, 1.0, 1.0, 0.25, 1.0, 0.5],
            other=[0, 1, 2, 4, 4, 3],
        )
        return course(
            w=w, decks=new_decks(order, copies, first, 1.0), strata=given(Strata, node=ones(3))
        )

    def test_an_only_transition_takes_no_draw(self):
        r = begun()
        assert _dealt(self.made(), 0, r) == 8
        assert r == begun()
        c = self.made()
        assert _dealt(c._replace(w=c.w._replace(only=np.array([0, -1, -1]))), 0, r) == 0

    def test_a_deck_deals_what_it_holds(self):
        c, r = self.made(), begun()
        assert sorted(_dealt(c, 1, r) for _ in range(6)) == [3, 3, 3, 3, 5, 5]

    @pytest.mark.parametrize(
        ("u", "expected"),
        # Thirds: 7 is kept in a quarter of its own, else 9 is; of 4 half is 7.
        [
            *((0.0, 7), (0.08, 7), (0.09, 9), (0.33, 9), (0.34, 9)),
            *((0.66, 9), (0.67, 4), (0.83, 4), (0.84, 7), (0.99, 7)),
        ],
    )
    def test_more_are_drawn_by_their_alias_table(self, u, expected):
        assert _dealt(self.made(), 2, giving(u)) == expected
