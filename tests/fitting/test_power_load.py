"""Power against load: kriging against other programs, and figures worked by hand."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fitting import FittingError
from fitting.laws import power_load as law

TENTHS = np.arange(11) / 10


def of_one(load, watts, asked, **options):
    watts = np.array([watts], dtype=float)
    return law.forecast_power(np.array(load), watts, np.array(asked), **options)


loads = st.lists(st.integers(0, 20), min_size=2, max_size=11, unique=True).map(
    lambda steps: np.array(steps) / 20
)


@st.composite
def servers(draw):
    load = draw(loads)
    watts = draw(st.lists(st.floats(20, 500), min_size=len(load), max_size=len(load)))
    return load, np.array(watts)


class TestForecast:
    @pytest.mark.parametrize(
        ("load", "watts"), [([0.5, 0.9], [100, 140]), ([0.1, 0.4, 0.5, 0.9], [60, 90, 100, 140])]
    )
    def test_a_straight_line_stays_one_through_any_levels(self, load, watts):
        found = of_one(load, watts, [0.05, 0.7, 1.0])
        np.testing.assert_allclose(found.watts[0], [55, 120, 150])
        assert list(found.extrapolated[0]) == [True, False, True]

    @given(servers())
    def test_it_goes_through_its_levels(self, server):
        load, watts = server
        found = of_one(load, watts, load)
        np.testing.assert_allclose(found.watts[0], watts, rtol=1e-6)
        assert not found.half_width.any()
        assert not found.extrapolated.any()

    def test_weights_are_those_of_universal_kriging(self):
        """Oracle: the mean of a Gaussian process with a vague prior on its line (R & W, 2.41)."""
        load, watts = np.array([0.0, 0.2, 0.5, 0.9]), np.array([40.0, 75.0, 100.0, 170.0])
        asked = np.array([0.35, 0.7, 1.0])
        vague = 1e7
        both = np.concatenate([load, asked])
        line = vague * (1 + both[:, None] * both)
        near, far = np.minimum(both[:, None], both), np.maximum(both[:, None], both)
        whole = line + (law.SHAPE.quadratic * near * far) ** 2 + law.SHAPE.asleep**2 * (far == 0)
        whole += law.SHAPE.bend**2 * near**2 * (3 * far - near) / 6
        whole += law.SHAPE.rough**2 * np.exp(-(far - near) / 0.4)
        of, towards = whole[:4, :4], whole[4:, :4]
        oracle = towards @ np.linalg.solve(of, watts)
        np.testing.assert_allclose(of_one(load, watts, asked).watts[0], oracle, rtol=1e-5)

    def test_the_bend_is_that_of_an_integrated_wiener_process(self):
        """Oracle: sums of a random walk, drawn."""
        rng = np.random.default_rng(0)
        steps = 200
        slope = np.cumsum(rng.normal(0, steps**-0.5, (20_000, steps)), axis=1)
        value = np.cumsum(slope, axis=1) / steps
        drawn = np.cov(value[:, [99, 199]].T)
        at = np.array([[0.5, 1.0]])
        bend = law.covariance(at, at, law.SHAPE._replace(quadratic=0, bend=1, rough=0, asleep=0))[0]
        np.testing.assert_allclose(bend, drawn, rtol=0.05)

    def test_servers_together_are_as_servers_alone(self):
        rng = np.random.default_rng(3)
        load = rng.permuted(np.tile(TENTHS, (20, 1)), axis=1)[:, :5]
        watts = 100 + 100 * load + rng.normal(0, 3, load.shape)
        watts[rng.random(watts.shape) < 0.3] = np.nan
        together = law.forecast_power(load, watts, TENTHS)
        for n in range(20):
            known = ~np.isnan(watts[n])
            if known.sum() < 2:
                assert np.isnan(together.watts[n]).all()
                continue
            alone = of_one(load[n][known], watts[n][known], TENTHS)
            for one, all_ in zip(alone, together, strict=True):
                np.testing.assert_allclose(one[0], all_[n])

        # Thousands at once, too.
        load, watts = np.array([0.4, 0.5, 0.9]), rng.uniform(100, 200, (5000, 3))
        found = law.forecast_power(load, watts, np.array([1.0])).watts
        assert found.shape == (5000, 1)
        assert found[-1] == pytest.approx(of_one(load, watts[-1], [1.0]).watts[0])

    def test_intervals_widen_with_distance_level_scatter_and_the_share_that_follows_the_load(self):
        found = of_one([0.5, 0.9], [100, 140], [0.95, 1.0])
        half = found.upper - found.watts
        assert half[0, 0] < half[0, 1]
        wider = of_one([0.5, 0.9], [100, 140], [0.95, 1.0], level=0.99)
        assert (wider.upper > found.upper).all()
        smooth = of_one([0.3, 0.5, 0.7, 0.9], [80, 100, 120, 140], [1.0])
        rough = of_one([0.3, 0.5, 0.7, 0.9], [80, 90, 130, 140], [1.0])
        assert (rough.upper - rough.lower)[0, 0] > (smooth.upper - smooth.lower)[0, 0]
        # By a power of that: of 200 W at full load all follow it in one, half in the other.
        all_of_it = of_one([0.5, 0.9], [100, 180], [1.0])
        half_of_it = of_one([0.5, 0.9], [150, 190], [1.0])
        assert all_of_it.half_width / half_of_it.half_width == pytest.approx(2**1.45)

    def test_intervals_of_newer_servers_widen_for_three_years(self):
        """By hand: t of 15 and 5 degrees of freedom, and the factor above the levels."""
        load, watts = np.array([0.5, 0.9]), np.full((5, 2), [100.0, 140.0])
        ages = np.array([-4, 0, 1, 3, np.inf])
        found = law.forecast_power(load, watts, np.array([0.7, 1.0]), years_newer=ages)
        half = found.half_width / found.half_width[0]
        # After a year 1/freedom is 1/15 + 2/45 = 1/9; t of 15, 9 and 5 of tables.
        tails = np.array([1.7531, 1.7531, 1.8331, 2.0150, 2.0150]) / 1.7531
        np.testing.assert_allclose(half[:, 0], tails, rtol=1e-4)
        np.testing.assert_allclose(half[:, 1], tails * [1, 1, 23 / 21, 9 / 7, 9 / 7], rtol=1e-4)
        np.testing.assert_array_equal(found.watts, found.watts[:1].repeat(5, axis=0))

    @given(servers())
    def test_no_watts_below_zero(self, server):
        found = of_one(*server, TENTHS)
        known = ~np.isnan(found.watts)
        assert (found.lower[known] >= 0).all()
        assert (found.lower <= found.upper)[known].all()
        # Where the curve falls to zero there is no answer.
        found = of_one([0.5, 0.9], [10, 140], [0.0, 0.6])
        assert np.isnan(found.watts[0, 0])
        assert found.watts[0, 1] > 0

    @pytest.mark.cases(
        "load, watts, asked, message",
        ([0.5, 0.9, 1.0], [1, 2], [1.0], "are not arrays of"),
        ([0.5, 0.9], [1, 0], [1.0], "power must be above 0"),
        ([0.5, 0.5], [1, 2], [1.0], "two power values at the same load"),
        ([-0.1, 0.9], [1, 2], [1.0], "negative or infinite"),
        ([0.1, 0.9], [1, 2], [-1.0], "negative or infinite"),
        ([0.1, np.inf], [1, 2], [1.0], "negative or infinite"),
        ([0.1, 0.9], [1, 2], [np.inf], "negative or infinite"),
    )
    def test_impossible_servers_are_refused(self, load, watts, asked, message):
        with pytest.raises(FittingError, match=message):
            of_one(load, watts, asked)


def test_energy_proportionality_by_hand():
    assert law.energy_proportionality(TENTHS, 200 * TENTHS) == pytest.approx(1)
    assert law.energy_proportionality(TENTHS, np.full(11, 200.0)) == pytest.approx(0)
    assert law.idle_to_peak(np.full(11, 200.0)) == 1
    # Idle 60, 80 at half, 120 at full load: normalised 1/2, 2/3, 1. Area of the trapezoids
    # 0.5·(1/2 + 2/3)/2 + 0.5·(2/3 + 1)/2 = 7/24 + 10/24 = 17/24; EP = 2 − 34/24 = 7/12.
    load, watts = np.array([0, 0.5, 1]), np.array([60.0, 80, 120])
    assert law.energy_proportionality(load, watts) == pytest.approx(7 / 12)
    assert law.dynamic_range(watts) == pytest.approx(0.5)
    # The line is at 90 at half load: 80/90 − 1.
    assert law.linear_deviation(load, watts) == (pytest.approx(-1 / 9), 0.5)
    # Work per joule as a share of full load's: 0.5·120/80 = 0.75 at half load.
    assert law.peak_efficiency(load, watts) == (1.0, 1.0)
    assert law.peak_efficiency(load, np.array([60.0, 50, 120])) == (0.5, pytest.approx(1.2))


@pytest.mark.thirdparty
def test_published_servers_and_intervals_in_years_that_took_no_part(data_dir, monkeypatch):
    """Full load of SPECpower results; the widths were fitted to 2012 alone."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "benchmarks")
    table = importlib.import_module("accuracy_power_load")
    data, levels = table.read(data_dir), [(50, 90), (40, 50, 90), (40, 60, 90)]
    two, *three = (table.errors(table.full_load(data, at).watts[:, 0], data) for at in levels)
    assert two[0] <= 1.1
    assert two[1] <= 3.8
    for errors in three:
        assert errors[0] < 0.8 * two[0]
        assert errors[1] <= two[1]
    for at in ((50, 90), (40, 50, 90), (10, 50, 90), (0, 50, 90)):
        inside = table.covered(table.full_load(data, at), data)
        for year in range(2007, 2013):
            assert inside[data.year == year].mean() >= 0.9
    # Widths of 2007 and 2008 for servers of 2010 to 2012, from eleven sets of levels.
    inside = importlib.import_module("outcomes").inside
    share = [inside(table.newer_outcome(data, widened=w).cases).mean() for w in (False, True)]
    assert share == pytest.approx([0.79, 0.90], abs=0.005)
