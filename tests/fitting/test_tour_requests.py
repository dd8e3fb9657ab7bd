"""Requests that a stream makes one after another, in a diagram laid out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from known_draws import ahead, begun, giving
from laid_space import given, memory, pending, space

from fitting.decks import Decks
from fitting.interarrival import CONSTANT
from fitting.request_kinds import KINDS
from fitting.reuse import AGAIN, FRESH
from fitting.runs import RunLengths
from fitting.tour import (
    Course,
    Deals,
    Moves,
    Strata,
    Tour,
    _begin_run,
    _make_due,
    draw_next,
)
from fitting.walk_draws import Batches, Features

LENGTHS = [3, 4, 5, 6, 7, 8]


def ones(number):
    return Batches(*(np.full(number, of) for of in (0, 1, 0, 7)))


def deals(left):
    return Deals(np.array(left), np.array(left), np.arange(1, len(left) + 1))


def course(p, *, closed=True, random=(5, 6, 7), sequential=(5, 6, 7), class_=FRESH, share=3):
    """Stream 1 has the three touched states; stream 0 none.

    Random transition 10 leads from state 0 to 1, 11 from 1 to 2, 12 from 2 to 0; transition 13
    goes on from state 0 and 14 from 2. Size and gap of transition t are of 512·t bytes and of t
    seconds, twice that at the pace of the stream. Run lengths are 3 to 8, by state and sort.
    """
    by_transition = np.arange(15)
    low = np.where(by_transition < 12, by_transition - 9, 0)
    return Course(
        space(
            origin_start=np.array([0] * KINDS + [0] + [3] * KINDS),
            state=np.arange(3),
            levels=1,
        ),
        given(
            Moves,
            leave=np.ones((3, 1)),
            node=[[0], [1], [2]],
            follows=[3, -1, 4],
            only=[10, 11, 12, 13, 14],
            low=low,
            high=low + 1,
            level=np.ones(15, dtype=np.int64),
            entered=np.zeros((1, 4)),
            target=np.zeros(15, dtype=np.int64),
            size_class=by_transition,
            kind=np.zeros(15, dtype=np.int64),
            further=[0.5, 10.0, 100.0],
        ),
        given(
            Features,
            size_start=np.arange(16),
            size=512 * by_transition,
            law=np.full(15, CONSTANT),
            mean=by_transition.astype(float),
            shape=np.zeros(15),
            pace=[9.0, 2.0],
            quantiles=np.zeros((1, 2)),
            knots=np.zeros(2),
        ),
        RunLengths(np.arange(7), np.ones(6), np.array(LENGTHS, dtype=float)),
        Strata(ones(3), ones(6), ones(5), ones(1)),
        given(Decks, number=np.zeros(5, dtype=np.int64)),
        memory(3, start=[0, 1, 2, 3], chance=(1.0,) * 3, class_=(class_,) * 3),
        p,
        Tour(
            deals(random),
            deals(sequential),
            np.array([90, 18]),
            np.array([80, share]),
            np.full(6, 9),
            np.full(6, 9),
            np.asarray(closed),
        ),
    )


def stream(**changes):
    """Stream 1 in state 0, from the end of whose run it goes on elsewhere."""
    fields = {"run": 0, "state": 0, "left": 50, "end": 1010, "transition": 12, "first": 2}
    return pending(**{name: [77, value] for name, value in (fields | changes).items()})


def made(p):
    """Transition and state of the request that is due, whether it goes on, and its run to come."""
    found = (p.transition, p.state, p.sequential, p.run)
    assert {int(of[0]) for of in found} <= {77, -1}
    t = int(p.transition[1])
    assert (p.size[1], p.gap[1]) == (512 * t, 2.0 * t)
    return tuple(int(of[1]) for of in found)


def drawn(c, *, first=False):
    draw_next(c, 1, first, begun())
    return made(c.p)


class TestOneRequest:
    def test_elsewhere_begins_a_run(self):
        c = course(stream())
        # A run of state 1, whose length is 5, of which this is the first.
        assert drawn(c) == (10, 1, 0, 4)
        assert (c.p.reuse[1], c.p.blocks[1]) == (FRESH, 10 + 4 * 10)
        assert c.tour.random.left.tolist() == [4, 6, 7]
        assert c.tour.sequential.left.tolist() == [5, 6, 7]
        assert c.tour.left.tolist() == [80, 2]
        assert c.tour.runs_left.tolist() == [9, 9, 8, 9, 9, 9]

    def test_that_goes_on_is_one_of_the_run(self):
        c = course(stream(run=2, blocks=9, reuse=5))
        assert drawn(c) == (13, 0, 1, 1)
        assert (c.p.reuse[1], c.p.blocks[1]) == (5, 9)
        assert c.tour.sequential.left.tolist() == [4, 6, 7]
        assert c.tour.random.left.tolist() == [5, 6, 7]
        assert c.tour.left.tolist() == [80, 3]
        assert c.tour.runs_left.tolist() == [9] * 6

    def test_that_goes_on_comes_to_the_state_of_its_address(self):
        assert drawn(course(stream(run=2, end=1256))) == (13, 1, 1, 1)

    @pytest.mark.parametrize("closed", [True, False])
    def test_goes_on_as_one_does_elsewhere_if_none_does_here(self, closed):
        c = course(stream(run=2, state=1, end=1256), sequential=(5, 0, 7), closed=closed)
        # Of state 2, though it is in state 1.
        assert drawn(c) == (14, 1, 1, 1)

    @pytest.mark.parametrize("closed", [True, False])
    def test_goes_on_as_before_where_none_ever_does(self, closed):
        c = course(stream(run=2), sequential=(0, 0, 0), closed=closed)
        assert drawn(c) == (12, 0, 1, 1)

    @pytest.mark.parametrize("closed", [True, False])
    def test_begins_where_its_stream_began_if_none_is_random(self, closed):
        c = course(stream(), random=(0, 0, 0), closed=closed)
        # What goes on in state 2, there; its run is 7 long.
        assert drawn(c) == (14, 2, 0, 6)
        assert c.p.blocks[1] == 14 + 600

    def test_begins_the_random_ones_again_after_the_last(self):
        c = course(stream(left=1), share=0)
        assert drawn(c) == (10, 1, 0, 4)
        assert c.tour.left.tolist() == [80, 17]
        c = course(stream(), share=1)
        assert drawn(c)[0] == 10
        assert c.tour.left.tolist() == [80, 0]

    def test_keeps_the_share_of_random_ones_in_a_tour_only(self):
        assert drawn(course(stream(run=2, left=4)))[:3] == (10, 1, 0)
        assert drawn(course(stream(run=2, left=5)))[:3] == (13, 0, 1)
        assert drawn(course(stream(run=2, left=4), closed=False))[:3] == (13, 0, 1)
        assert drawn(course(stream(left=4), share=0))[2:] == (1, 2)


class TestTheFirst:
    def test_does_what_goes_on_where_the_stream_began(self):
        c = course(stream(run=2))
        draw_next(c, 1, True, begun())
        # It is counted in the run that goes on, of which it is the first.
        assert made(c.p) == (13, 0, 1, 1)

    def test_begins_a_run_in_its_state(self):
        c = course(stream(left=1))
        assert drawn(c, first=True) == (13, 0, 0, 2)
        assert c.tour.random.left.tolist() == c.tour.sequential.left.tolist() == [5, 6, 7]
        assert c.tour.left.tolist() == [80, 3]
        # It is not made to go on for the share's sake.
        assert drawn(course(stream(left=9), share=0), first=True) == (13, 0, 0, 2)

    def test_is_random_where_none_goes_on(self):
        assert drawn(course(stream(state=1)), first=True) == (11, 1, 0, 4)


class TestARun:
    @pytest.mark.parametrize(
        ("class_", "closed", "length"),
        [
            *((FRESH, True, 5), (FRESH, False, 5), (AGAIN - 1, True, 5), (0, False, 5)),
            *((AGAIN, True, 6), (AGAIN, False, 6), (FRESH - 1, True, 6), (AGAIN + 9, False, 6)),
        ],
    )
    def test_is_as_long_as_those_of_its_sort(self, class_, closed, length):
        c = course(stream(), class_=class_, closed=closed)
        _begin_run(c, 1, 1, begun())
        assert (c.p.reuse.tolist(), c.p.run.tolist()) == ([-1, class_], [77, length])
        assert (c.tour.runs_left < 9).tolist() == [closed and k == length - 3 for k in range(6)]

    def test_is_of_the_other_sort_where_none_is_left(self):
        c = course(stream(), class_=AGAIN)
        c.tour.runs_left[3] = 0
        _begin_run(c, 1, 1, begun())
        assert c.p.run[1] == 5

    def test_has_the_class_and_the_length_of_two_draws(self):
        c, r = course(stream()), begun(4)
        (_, _, then) = ahead(r, 3)
        _begin_run(c, 1, 0, r)
        assert ahead(r, 1) == [then]


@pytest.mark.parametrize(("sequential", "blocks"), [(0, 13 + 450), (1, 8)])
def test_a_request_is_due_with_its_size_and_gap(sequential, blocks):
    """The first of a run of ten in state 1 would have 9 more, of 50 blocks each."""
    c = course(stream(run=10, sequential=sequential, blocks=8))
    c.w.further[1] = 50.06
    _make_due(c, 1, 13, 1, giving(0.5))
    assert made(c.p) == (13, 1, sequential, 9)
    assert c.p.blocks[1] == blocks
