"""Joules and watts of a run from raw readings: hand-worked examples and properties."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from measurements.power.energy import Stream, channel_energy, streams, total_energy, totals
from measurements.power.source import Channel, Reading

RANGE_J = 100.0
TOO_SHORT = "mean of 5 s and the run took 3 s: let a run last 10 s or more (--at-least)"


def counter(label="rapl:package-0", domain="package", **known):
    return Channel(label, "energy", domain, **{"range_j": RANGE_J, "most_w": 45.0, **known})


def watts(label="ipmi:dcmi", window_s=0.0):
    return Channel(label, "power", "host", window_s=window_s)


def stream(at, value, own=None):
    at, value = np.asarray(at, dtype=float), np.asarray(value, dtype=float)
    own = np.full(len(at), np.nan) if own is None else np.asarray(own, dtype=float)
    return Stream(at, value, own)


def sampled(power_w, start, end, period, *, begin=0.0):
    """Counter readings of a constant power from ``start`` to ``end``."""
    at = np.arange(start, end + period / 2, period)
    return stream(at, (begin + power_w * (at - start)) % RANGE_J)


def test_a_counter_worked_by_hand():
    # 10 J/s from 50 J: 50 at 0 s, 70 at 2 s; from 0.5 s to 1.5 s are 10 J.
    drawn = channel_energy(counter(), stream([0, 1, 2], [50, 60, 70]), 0.5, 1.5)
    assert drawn == (pytest.approx(10), pytest.approx(10), 3, "")


@given(
    power_w=st.floats(0.1, 300),
    begin=st.floats(0, 99.9),
    start=st.floats(0, 3),
    length=st.floats(0.5, 5),
)
def test_a_constant_power_comes_back_whatever_the_counter_shows(power_w, begin, start, length):
    part = sampled(power_w, 0, 9, 0.1, begin=begin)
    drawn = channel_energy(counter(most_w=400.0), part, start, start + length)
    assert drawn.power_w == pytest.approx(power_w, rel=1e-6)
    assert drawn.energy_j == pytest.approx(power_w * length, rel=1e-6)


@pytest.mark.cases(
    "channel, part, end, reason",
    # At up to 500 W the counter goes round in 0.2 s, and it was read every second.
    (counter(most_w=500.0), sampled(20, 0, 4, 1.0), 4.0, "wrapped unseen"),
    (counter(range_j=65536.0), stream([0, 0.1, 0.2, 0.3], [50, 51, 0, 1]), 0.3, "was reset"),
    (counter(range_j=None), stream([0, 1, 2], [1, 2, 1]), 2.0, "counter fell"),
    (counter(), sampled(10, 0.5, 3.0, 0.1), 3.0, "not read at both ends"),
    (counter(), sampled(10, 0.0, 2.0, 0.1), 3.0, "not read at both ends"),
    (counter(), stream([0, 0.001, 0.002], [5, 5, 5]), 0.002, "did not move in 0.002 s"),
    (counter(), None, 1.0, "no reading"),
    (watts(window_s=5.0), stream([0, 5, 10], [90, 95, 99]), 3.0, TOO_SHORT),
    (watts(), stream([-0.5, 0.5, 1.5], [5, 10, 5]), 1.0, "read 1 times during a run of 1 s"),
    # No counter jumps or stands still, and no host draws nothing, less, or a town's power.
    (counter(range_j=None), stream([0, 1, 2, 3], [0, 9, 99_962, 99_971]), 3.0, "rose by"),
    (counter(), stream(range(17), [*range(8), *[8] * 9]), 16.0, "still for 8 of 16 s"),
    (counter(range_j=None, most_w=math.nan), stream([0, 1], [0, 1e9]), 1.0, "1e+09 W is imp"),
    *(
        (watts(window_s=window_s), stream([1, 2, 3], [90, bad, 91]), 3.0, f"{bad:.4g} W is imp")
        for window_s in (0.0, 1.0)
        for bad in (-5.0, 0.0, 1e30, 160e3, math.inf)
    ),
    *((watts(), nothing, 1.0, "no reading") for nothing in (None, stream([], []))),
)
def test_what_tells_nothing_is_no_zero(channel, part, end, reason):
    drawn = channel_energy(channel, part, 0.0, end)
    assert math.isnan(drawn.energy_j)
    assert math.isnan(drawn.power_w)
    assert reason in drawn.reason


def test_a_counter_without_a_range_one_read_a_little_late_and_one_with_a_gap():
    for channel, part, end, joules in (
        (counter(range_j=None), stream([0, 1, 2], [1, 2, 4]), 2, 3),
        # An end that was read a little late is carried to the end.
        (counter(), sampled(10, 0.1, 2.9, 0.1), 3, 30),
        # A gap is bridged where no wrap can hide.
        (counter(most_w=5.0), stream([0, 1, 8, 9], [0, 2, 16, 18]), 9, 18),
    ):
        assert channel_energy(channel, part, 0, end).energy_j == pytest.approx(joules)


def test_a_reading_counts_where_its_window_lies_in_the_run():
    # Means of 2 s: the one at 1 s is mostly of what came before, that at 9 s of what follows.
    part = stream([1, 3, 5, 7, 9], [100, 20, 30, 40, 500])
    drawn = channel_energy(watts(window_s=2.0), part, 1.0, 7.2)
    assert (drawn.power_w, drawn.readings) == (pytest.approx(30), 3)
    assert drawn.energy_j == pytest.approx(30 * 6.2)
    # Few readings of a long run are said.
    drawn = channel_energy(watts(window_s=1.0), stream([2, 3], [50, 52]), 0.0, 60.0)
    assert drawn.power_w == pytest.approx(51)
    assert "cover 3% of the run" in drawn.reason


def test_what_is_read_twice_counts_once():
    # The sensor's clock moved at 2 and 4 s only: three readings, not eight.
    own = [1, 1, 2, 2, 2, 2, 4, 4]
    part = stream(np.arange(1, 5, 0.5), [10, 10, 20, 20, 20, 20, 60, 60], own)
    drawn = channel_energy(watts(window_s=1.0), part, 0.0, 5.0)
    assert (drawn.readings, drawn.power_w) == (3, pytest.approx(30))
    # Without a clock a repeat within the window is no reading.
    part = stream([1.0, 1.2, 1.4, 2.0, 2.2], [10, 10, 10, 40, 40])
    drawn = channel_energy(watts(window_s=1.0), part, 0.0, 3.0)
    assert (drawn.readings, drawn.power_w) == (2, pytest.approx(25))


def test_trapezoids_with_the_outer_readings_held_to_the_ends():
    # 10 W for half a second, from 10 to 30 W along a line in 2 s, 30 W for half a second.
    part = stream([-1, 0.5, 1.5, 2.5, 4], [500, 10, 20, 30, 500])
    drawn = channel_energy(watts(), part, 0.0, 3.0)
    assert drawn.energy_j == pytest.approx(5 + 40 + 15)
    assert drawn.power_w == pytest.approx(20)
    assert drawn.readings == 3


def test_figures_that_are_missing_are_left_out_not_zero():
    last, first = Reading("a", 2.0, 5.0), Reading("a", 0.0, 3.0, 7.0)
    found = streams([last, Reading("a", 1.0, math.nan), first, Reading("b", 0.0, math.nan)])
    np.testing.assert_array_equal(found["a"], [[0, 2], [3, 5], [7, math.nan]])
    assert not len(found["b"].at_s)


CHANNELS = [
    counter("rapl:psys", "psys"),
    counter("rapl:package-0"),
    counter("rapl:package-0/core", "core", inside="rapl:package-0"),
    counter("rapl:package-0/dram", "dram"),
    counter("rapl:package-1"),
    counter("rapl:package-1/core", "core", inside="rapl:package-1"),
    counter("rapl-mmio:package-0", inside="rapl:package-0"),
    watts(),
]


def test_sockets_add_up_and_domains_do_not():
    assert totals(CHANNELS) == {
        "rapl:package": ("rapl:package-0", "rapl:package-1"),
        "rapl:psys": ("rapl:psys",),
        "rapl:core": ("rapl:package-0/core", "rapl:package-1/core"),
        "rapl:dram": ("rapl:package-0/dram",),
        "ipmi:dcmi": ("ipmi:dcmi",),
    }
    # Rails of a board are not added; one socket is named as several are.
    rails = [counter(f"hwmon:rail{n}", "other") for n in (1, 2)]
    assert totals(rails) == {c.label: (c.label,) for c in rails}
    assert totals([counter("rapl:package-0")]) == {"rapl:package": ("rapl:package-0",)}


def test_a_part_that_is_not_known_makes_the_sum_unknown():
    channels = {c.label: c for c in CHANNELS}
    both = ("rapl:package-0", "rapl:package-1")
    found = {"rapl:package-0": sampled(10, 0, 3, 0.1)}
    drawn = total_energy(both, channels, found, 0.0, 3.0)
    assert math.isnan(drawn.power_w)
    assert "rapl:package-1: no reading" in drawn.reason
    found["rapl:package-1"] = sampled(20, 0, 3, 0.1)
    assert total_energy(both, channels, found, 0.0, 3.0).power_w == pytest.approx(30)
