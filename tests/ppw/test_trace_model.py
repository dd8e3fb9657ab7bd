"""Models of block traces: a worked example by hand, statistics, JSON."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from block_traces import ArrayTrace, Columns, made, sequential

from fitting.errors import FittingError
from ppw.errors import PpwError
from ppw.traces.fit import fit_trace
from ppw.traces.model import TraceModel

pytestmark = pytest.mark.filterwarnings("ignore::ppw.errors.CaveatWarning")

# Twenty reads of one block in a space of sixteen: at two levels every block is a finest state.
WALK = [0, 1, 1, 0, 5, 4, 4, 12, 13, 12, 0, 1, 0, 0, 5, 15, 14, 15, 1, 0]


def by_hand():
    columns = Columns(
        np.arange(20) * 0.5,
        np.zeros(20, np.int32),
        np.array(WALK, dtype=np.int64),
        np.full(20, 512, dtype=np.int64),
        np.zeros(20, np.uint8),
    )
    return fit_trace(ArrayTrace(columns), levels=2, space_bytes=16 * 512)


class TestTwentyRequestsByHand:
    # (level, from, to): count, and transitions made in the state that is left. Quarters are
    # 0-3, 4-7, 8-11, 12-15. The requests make 19 transitions.
    PAIRS: ClassVar = {
        (1, 0, 1): (2, 9),  # 0→5 twice; nine requests in the first quarter are followed by one
        (1, 1, 3): (2, 4),  # 4→12, 5→15
        (1, 3, 0): (2, 6),  # 12→0, 15→1
        (2, 0, 0): (1, 5),  # 0→0
        (2, 0, 1): (2, 5),  # 0→1 at requests 0 and 10
        (2, 1, 0): (3, 4),  # 1→0
        (2, 1, 1): (1, 4),  # 1→1
        (2, 4, 4): (1, 2),
        (2, 5, 4): (1, 2),
        (2, 12, 13): (1, 2),
        (2, 13, 12): (1, 1),
        (2, 14, 15): (1, 1),
        (2, 15, 14): (1, 2),
    }

    def test_every_pair_and_probability(self):
        pairs = by_hand().state_pairs()
        found = {
            (int(r.level), int(r.from_state), int(r.to_state)): (r.count_, r.probability, r.joint)
            for r in pairs.rename(columns={"count": "count_"}).itertuples()
        }
        assert set(found) == set(self.PAIRS)
        for key, (count, made_in) in self.PAIRS.items():
            assert found[key][0] == count
            assert found[key][1] == pytest.approx(float(Fraction(count, made_in)), abs=1e-15)
            assert found[key][2] == pytest.approx(float(Fraction(count, 19)), abs=1e-15)

    def test_rate_is_one_over_the_mean_gap(self):
        model = by_hand()
        assert model.rate == pytest.approx(2.0)
        assert model.laws.mean_s == pytest.approx(0.5)

    def test_requests_that_go_on_are_told(self):
        # 0→1, 4→(none), 12→13, 0→1, 14→15.
        assert by_hand().counts.count[by_hand().counts.sequential == 1].sum() == 4


def test_counts_do_not_depend_on_how_the_trace_is_cut():
    columns = made(5000)
    whole = fit_trace(ArrayTrace(columns))
    cut = fit_trace(ArrayTrace(columns, at_once=333))
    for name in ("origin", "pair", "op", "sequential", "size_class", "count", "occupancy"):
        assert np.array_equal(getattr(whole.counts, name), getattr(cut.counts, name)), name
    assert np.array_equal(whole.reuse, cut.reuse)


def test_shares_are_those_of_the_definition():
    columns = made(4000)
    model = fit_trace(ArrayTrace(columns))
    streams = len(np.unique(columns.device))
    assert model.counts.count.sum() == 4000 - streams
    on = sequential(columns).sum()
    assert model.counts.count[model.counts.sequential == 1].sum() == on
    rate = 1 / np.diff(columns.time_s).mean()
    assert model.rate == pytest.approx(rate)


def test_coarser_is_what_a_fit_of_fewer_levels_counts():
    columns = made(4000)
    space = 4**6 * 4096
    fine = fit_trace(ArrayTrace(columns), levels=4, space_bytes=space * 512).coarser()
    direct = fit_trace(ArrayTrace(columns), levels=3, space_bytes=space * 512)
    for name in ("origin", "pair", "count", "state", "occupancy", "departures", "arrivals"):
        assert np.array_equal(getattr(fine.counts, name), getattr(direct.counts, name)), name
    assert fine.laws.mean_s == pytest.approx(direct.laws.mean_s)
    assert np.array_equal(fine.reuse, direct.reuse)


def test_comes_back_from_json():
    model = fit_trace(ArrayTrace(made(3000)))
    again = TraceModel.from_json(model.to_json())
    assert again.to_json() == model.to_json()
    assert again.summary() == model.summary()
    assert again.to_frame().equals(again.to_frame())


@pytest.mark.parametrize("damage", ["transitions", "states", "windows"])
def test_a_damaged_document_is_refused(damage):
    import json

    document = json.loads(fit_trace(ArrayTrace(made(500))).to_json())
    del document[damage]
    with pytest.raises(PpwError, match=damage):
        TraceModel.from_json(json.dumps(document))


def test_a_space_that_ends_before_the_trace_is_refused():
    with pytest.raises(PpwError, match="ends before block"):
        fit_trace(ArrayTrace(made(500)), space_bytes=1e6)


def test_requests_out_of_order_are_named():
    columns = made(500)
    time = columns.time_s.copy()
    time[300] = 0.0
    with pytest.raises(FittingError, match="request 300"):
        fit_trace(ArrayTrace(columns._replace(time_s=time)))


def test_draws_itself():
    ax = fit_trace(ArrayTrace(made(3000))).plot()
    assert ax.has_data()
    assert ax.get_ylabel() == "from state"
