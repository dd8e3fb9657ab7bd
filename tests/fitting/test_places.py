"""Where states lie, and addresses in them, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from counted_traces import columns, counted
from known_draws import begun, giving
from laid_space import STATE, space

from fitting.places import Addresses, _extents, anywhere, places_of, state_at, stretches_of
from fitting.request_kinds import KINDS
from fitting.runs import COLUMNS, Runs


@pytest.mark.parametrize(
    ("origin", "state", "expected"),
    # The state itself, the one ahead where it was not touched, and the first where none is ahead.
    [
        *((0, 0, 0), (0, 1, 0), (0, 2, 1), (0, 3, 1), (1, 0, 2), (1, 3, 2)),
        *((6, 0, 3), (6, 1, 3), (6, 2, 4), (6, 3, 4)),
    ],
)
def test_the_state_of_an_address(origin, state, expected):
    first = 1000 + STATE * state
    assert [state_at(space(), origin, lbn) for lbn in (first, first + STATE - 1)] == [expected] * 2


def test_one_of_many_states_of_an_address():
    d = space(origin_start=np.array([0, 1, 9]), state=np.array([0, *range(1, 16, 2)]))
    found = [int(state_at(d, 1, 1000 + STATE * state)) for state in range(16)]
    assert found == [1, 1, 1, *np.repeat(range(2, 9), 2)[:13]]


class TestAnywhere:
    """State 1 of stream 1 lies from block 1256 on: runs start from 1260 to 1508 in steps of 8."""

    @pytest.mark.parametrize(
        ("u", "expected"), [(0.0, 1260), (1 / 32 - 1e-9, 1260), (1 / 32, 1268)]
    )
    def test_is_at_one_of_the_places_alike(self, u, expected):
        assert anywhere(space(), 3, 8, giving(u)) == expected
        assert anywhere(space(), 3, 8, giving(1 - 1e-9)) == 1508

    @pytest.mark.parametrize(
        ("low", "offset", "expected"), [(1256, 4, 1260), (1261, 4, 1268), (1260, 3, 1267)]
    )
    def test_is_at_the_offset_of_the_state(self, low, offset, expected):
        d = space(low=np.full(5, low), offset=np.full(5, offset))
        assert anywhere(d, 3, 8, giving(0.0)) == expected
        assert anywhere(d._replace(alignment=np.full(5, 1)), 3, 8, giving(0.0)) == low

    def test_leaves_room_for_the_run_at_the_end(self):
        # The last state ends with the space, at block 2024, 8 blocks after the last start.
        last = [
            int(anywhere(space(), 2, blocks, giving(1 - 1e-9))) for blocks in (4, 8, 12, 13, 99)
        ]
        assert last == [2020, 2012, 2012, 2004, 1924]

    def test_is_at_the_begin_where_there_is_no_room(self):
        r = begun()
        assert anywhere(space(), 2, 256, r) == 1772
        assert anywhere(space(), 2, 252, r) == 1772
        assert anywhere(space(low=np.full(5, 1775)), 2, 249, r) == 1775
        assert r == begun()
        assert anywhere(space(), 2, 251, giving(1 - 1e-9)) == 1772

    def test_is_at_the_first_place_where_that_is_the_last_too(self):
        d = space(low=np.full(5, 1261), high=np.full(5, 1263))
        assert anywhere(d, 3, 8, giving(1 - 1e-9)) == 1268


@pytest.fixture(scope="module")
def trace():
    """Two streams on a device each, both of which read and write."""
    lbn = [0, 8, 64, 0, 120, 72, 40, 64]
    stream, op = [0, 0, 0, 1, 1, 0, 1, 0], [0, 1, 0, 1, 0, 0, 1, 1]
    return counted(columns(lbn, stream=stream, device=np.array([5, 9])[stream], op=op))


def runs_at(trace, lowest, highest):
    states = len(trace.counts.state)
    return Runs(
        np.zeros((states, COLUMNS), dtype=np.int64),
        *(np.array([of, *[-1] * (states - 1)]) for of in (lowest, highest)),
    )


def test_extents_are_where_runs_started_or_what_was_touched(trace):
    """Sixteen states of eight blocks, of which the trace begins at 0 and last starts at 120."""
    assert (trace.counts.diagram.first_lbn, trace.counts.diagram.state_blocks) == (0, 8)
    low, high = _extents(trace.counts, runs_at(trace, 3, 5))
    assert low.tolist() == [3, *(8 * trace.counts.state[1:])]
    assert high.tolist() == [5, *np.minimum(8 * trace.counts.state[1:] + 7, 120)]
    # None is below the first start or above the last one.
    few = trace.counts.__class__(**{**vars(trace.counts), "lowest": trace.counts.lowest + 2})
    assert _extents(few, runs_at(trace, -1, -1))[0].min() == 2
    assert _extents(trace.counts, runs_at(trace, 0, 0))[0][0] == 0


def test_places_are_numbered_by_device_and_by_kind(trace):
    counts, states = trace.counts, trace.counts.diagram.states
    # Of devices in the other order.
    device = np.array([1, 0])
    stream, kind = counts.state_origin // KINDS, counts.state_origin % KINDS
    assert set(kind) == {0, 3}
    for kinds in (1, KINDS):
        keys = [
            (device[s], k if kinds > 1 else 0, state)
            for s, k, state in zip(stream, kind, counts.state, strict=True)
        ]
        expected = [sorted(set(keys)).index(key) for key in keys]
        assert places_of(counts, device, kinds).tolist() == expected
    shared = places_of(counts, np.zeros(2, dtype=int), 1)
    assert shared.max() + 1 == len(set(counts.state)) < len(counts.state)
    assert states == 16


def test_stretches_hold_what_was_counted(trace):
    counts, device = trace.counts, np.array([0, 1])
    addresses = Addresses(8, 3, 128, None, 8, device, np.zeros(2))
    found = stretches_of(counts, runs_at(trace, 3, 5), addresses, 2)
    assert found[:4] == (0, 128, 8, 2)
    assert (set(found.alignment), set(found.offset)) == ({8}, {3})
    origin = [np.searchsorted(counts.state_origin, k) for k in range(2 * KINDS + 1)]
    assert found.origin_start.tolist() == origin
    assert np.array_equal(found.state, counts.state)
    assert found.device.tolist() == [0, 1]
    assert np.array_equal(found.place, places_of(counts, device, 1))
    assert np.array_equal(found.stop, places_of(counts, device, KINDS))
    assert (found.low[0], found.high[0]) == (3, 5)


def test_alignments_are_of_devices_and_kinds_apart():
    """Reads of the first device start at multiples of 8, writes at 5 beyond them; of the second 2.

    In each of sixteen states of 64 blocks a run starts, of each of the three groups.
    """
    state = np.tile(np.arange(16), 3)
    group = np.repeat([0, 1, 2], 16)
    stream, op = np.array([0, 0, 1])[group], np.array([0, 1, 0])[group]
    lbn = 64 * state + 8 * (state // 3) + np.array([0, 5, 2])[group]
    trace = counted(columns(lbn, stream=stream, device=stream, op=op))
    counts = trace.counts
    starts = counts.lowest
    runs = Runs(np.zeros((len(starts), COLUMNS), dtype=np.int64), starts, starts)
    # Of the number 18, so that no kind of another device could be taken for one of it.
    addresses = Addresses(1, 0, 1024, None, 8, np.array([0, 18]), np.zeros(19))
    found = stretches_of(counts, runs, addresses, 2)
    for origin, expected in ((0, 0), (3, 5), (KINDS, 2)):
        here = counts.state_origin == origin
        assert np.count_nonzero(here) == 16
        assert set(found.alignment[here]) == {8}
        assert set(found.offset[here]) == {expected}


def test_addresses_are_of_one_device_unless_more_are_given():
    found = Addresses(8, 0, 100, None)
    assert (found.piece, found.devices.tolist(), found.met.tolist()) == (8, [0], [0.0])
