"""Joules and watts of a run from raw readings: hand-worked examples and properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measurements.power.energy import Stream, drawn_between, streams, summed, totals
from measurements.power.protocol import Channel, Reading

RANGE_J = 100.0


def counter(label="rapl:package-0", **known):
    return Channel(
        label,
        "energy",
        known.pop("domain", "package"),
        **{"range_j": RANGE_J, "most_w": 45.0, **known},
    )


def watts(label="ipmi:dcmi", window_s=0.0, **known):
    return Channel(label, "power", "host", window_s=window_s, **known)


def stream(at, value, own=None):
    at, value = np.asarray(at, dtype=float), np.asarray(value, dtype=float)
    own = np.full(len(at), np.nan) if own is None else np.asarray(own, dtype=float)
    return Stream(at, value, own)


def sampled(power_w, start, end, period, *, begin=0.0):
    """Counter readings of a constant power from ``start`` to ``end``."""
    at = np.arange(start, end + period / 2, period)
    return stream(at, (begin + power_w * (at - start)) % RANGE_J)


class TestCounter:
    def test_worked_by_hand(self):
        # 10 J/s from 50 J: 50 at 0 s, 70 at 2 s; from 0.5 s to 1.5 s are 10 J.
        drawn = drawn_between(counter(), stream([0, 1, 2], [50, 60, 70]), 0.5, 1.5)
        assert drawn.energy_j == pytest.approx(10)
        assert drawn.power_w == pytest.approx(10)
        assert drawn.readings == 3
        assert drawn.reason == ""

    @pytest.mark.parametrize("wraps", [0, 1, 5])
    def test_wraps_are_counted(self, wraps):
        energy = wraps * RANGE_J + 30
        part = sampled(energy / 10, 0, 10, 0.1, begin=80.0)
        drawn = drawn_between(counter(most_w=500.0), part, 0.0, 10.0)
        assert drawn.energy_j == pytest.approx(energy)

    @given(
        power_w=st.floats(0.1, 300),
        begin=st.floats(0, 99.9),
        start=st.floats(0, 3),
        length=st.floats(0.5, 5),
    )
    def test_a_constant_power_comes_back_whatever_the_counter_shows(
        self, power_w, begin, start, length
    ):
        part = sampled(power_w, 0, 9, 0.1, begin=begin)
        drawn = drawn_between(counter(most_w=400.0), part, start, start + length)
        assert drawn.power_w == pytest.approx(power_w, rel=1e-6)
        assert drawn.energy_j == pytest.approx(power_w * length, rel=1e-6)

    def test_a_wrap_that_may_be_lost_is_no_figure(self):
        # At up to 500 W the counter goes round in 0.2 s, and it was read every second.
        drawn = drawn_between(counter(most_w=500.0), sampled(20, 0, 4, 1.0), 0.0, 4.0)
        assert math.isnan(drawn.energy_j)
        assert "wrapped unseen" in drawn.reason

    def test_a_counter_set_back_is_no_wrap(self):
        part = stream([0, 0.1, 0.2, 0.3], [50, 51, 0, 1])
        drawn = drawn_between(counter(range_j=65536.0, most_w=200.0), part, 0.0, 0.3)
        assert math.isnan(drawn.power_w)
        assert "set back" in drawn.reason

    def test_without_a_range_it_may_not_go_back(self):
        up, down = (stream([0, 1, 2], v) for v in ([1, 2, 4], [1, 2, 1]))
        assert drawn_between(counter(range_j=None), up, 0, 2).energy_j == pytest.approx(3)
        assert "went back" in drawn_between(counter(range_j=None), down, 0, 2).reason

    @pytest.mark.parametrize(("first", "last"), [(0.5, 3.0), (0.0, 2.0)])
    def test_ends_that_were_not_read(self, first, last):
        part = sampled(10, first, last, 0.1)
        drawn = drawn_between(counter(), part, 0.0, 3.0)
        assert math.isnan(drawn.energy_j)
        assert "not read at both ends" in drawn.reason

    def test_an_end_read_a_little_late_is_carried_to_the_end(self):
        drawn = drawn_between(counter(), sampled(10, 0.1, 2.9, 0.1), 0.0, 3.0)
        assert drawn.energy_j == pytest.approx(30)

    def test_a_counter_that_stands_still_is_no_zero(self):
        drawn = drawn_between(counter(), stream([0, 0.001, 0.002], [5, 5, 5]), 0.0, 0.002)
        assert math.isnan(drawn.power_w)
        assert "did not move in 0.002 s" in drawn.reason

    def test_a_gap_in_the_readings_is_bridged_where_no_wrap_can_hide(self):
        part = stream([0, 1, 8, 9], [0, 2, 16, 18])
        assert drawn_between(counter(most_w=5.0), part, 0, 9).energy_j == pytest.approx(18)


class TestWindows:
    def test_a_reading_counts_where_its_window_lies_in_the_run(self):
        # Means of 2 s: the one at 1 s is mostly of what came before, that at 9 s of what follows.
        part = stream([1, 3, 5, 7, 9], [100, 20, 30, 40, 500])
        drawn = drawn_between(watts(window_s=2.0), part, 1.0, 7.2)
        assert drawn.power_w == pytest.approx(30)
        assert drawn.readings == 3
        assert drawn.energy_j == pytest.approx(30 * 6.2)

    def test_a_run_shorter_than_the_window_is_refused(self):
        drawn = drawn_between(watts(window_s=5.0), stream([0, 5, 10], [90, 95, 99]), 4.0, 7.0)
        assert math.isnan(drawn.power_w)
        assert "mean of 5 s and the run took 3 s" in drawn.reason
        assert "--at-least" in drawn.reason

    def test_what_is_read_twice_counts_once(self):
        # The sensor's clock moved at 2 and 4 s only: two readings, not eight.
        at = np.arange(1, 5, 0.5)
        own = [1, 1, 2, 2, 2, 2, 4, 4]
        part = stream(at, [10, 10, 20, 20, 20, 20, 60, 60], own)
        drawn = drawn_between(watts(window_s=1.0), part, 0.0, 5.0)
        assert drawn.readings == 3
        assert drawn.power_w == pytest.approx(30)

    def test_without_a_clock_a_repeat_within_the_window_is_no_reading(self):
        part = stream([1.0, 1.2, 1.4, 2.0, 2.2], [10, 10, 10, 40, 40])
        drawn = drawn_between(watts(window_s=1.0), part, 0.0, 3.0)
        assert drawn.readings == 2
        assert drawn.power_w == pytest.approx(25)

    def test_few_readings_of_a_long_run_are_said(self):
        drawn = drawn_between(watts(window_s=1.0), stream([2, 3], [50, 52]), 0.0, 60.0)
        assert drawn.power_w == pytest.approx(51)
        assert "cover 3% of the run" in drawn.reason


class TestMoments:
    def test_trapezoids_with_the_outer_readings_held_to_the_ends(self):
        # 10 W for half a second, from 10 to 30 W along a line in 2 s, 30 W for half a second.
        part = stream([-1, 0.5, 1.5, 2.5, 4], [500, 10, 20, 30, 500])
        drawn = drawn_between(watts(), part, 0.0, 3.0)
        assert drawn.energy_j == pytest.approx(5 + 40 + 15)
        assert drawn.power_w == pytest.approx(20)
        assert drawn.readings == 3

    def test_one_reading_is_not_enough(self):
        drawn = drawn_between(watts(), stream([-0.5, 0.5, 1.5], [5, 10, 5]), 0.0, 1.0)
        assert math.isnan(drawn.power_w)
        assert "read 1 times during a run of 1 s" in drawn.reason

    @pytest.mark.parametrize("part", [None, stream([], [])], ids=["never read", "no figure"])
    def test_nothing(self, part):
        assert "no reading" in drawn_between(watts(), part, 0.0, 1.0).reason


class TestStreams:
    def test_figures_that_are_missing_are_left_out_not_zero(self):
        found = streams(
            [
                Reading("a", 2.0, 5.0),
                Reading("a", 1.0, math.nan),
                Reading("a", 0.0, 3.0, 7.0),
                Reading("b", 0.0, math.nan),
            ]
        )
        np.testing.assert_array_equal(found["a"].at_s, [0, 2])
        np.testing.assert_array_equal(found["a"].value, [3, 5])
        np.testing.assert_array_equal(found["a"].source_at_s, [7, math.nan])
        assert not len(found["b"].at_s)


class TestTotals:
    def channels(self):
        return [
            counter("rapl:psys", domain="psys"),
            counter("rapl:package-0"),
            counter("rapl:package-0/core", domain="core", inside="rapl:package-0"),
            counter("rapl:package-0/dram", domain="dram"),
            counter("rapl:package-1"),
            counter("rapl:package-1/core", domain="core", inside="rapl:package-1"),
            counter("rapl-mmio:package-0", inside="rapl:package-0"),
            watts("ipmi:dcmi"),
        ]

    def test_sockets_add_up_and_domains_do_not(self):
        found = totals(self.channels())
        assert found["rapl:package"] == ("rapl:package-0", "rapl:package-1")
        assert found["rapl:psys"] == ("rapl:psys",)
        assert found["rapl:core"] == ("rapl:package-0/core", "rapl:package-1/core")
        assert found["rapl:dram"] == ("rapl:package-0/dram",)
        assert found["ipmi:dcmi"] == ("ipmi:dcmi",)
        assert not any("mmio" in label for label in found)

    def test_rails_of_a_board_are_not_added(self):
        rails = [counter(f"hwmon:rail{n}", domain="other") for n in (1, 2)]
        assert totals(rails) == {c.label: (c.label,) for c in rails}

    def test_one_socket_is_named_as_several_are(self):
        assert totals([counter("rapl:package-0")]) == {"rapl:package": ("rapl:package-0",)}

    def test_a_part_that_is_not_known_makes_the_sum_unknown(self):
        channels = {c.label: c for c in self.channels()}
        found = {"rapl:package-0": sampled(10, 0, 3, 0.1)}
        drawn = summed(("rapl:package-0", "rapl:package-1"), channels, found, 0.0, 3.0)
        assert math.isnan(drawn.power_w)
        assert "rapl:package-1: no reading" in drawn.reason
