"""Use of resources over time, its phases and its sums: by hand, numpy, and divisions one by one."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import binom

from fitting.demand import utilisation as ut
from fitting.errors import FittingError

INTERVALS = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 5)), min_size=1, max_size=30)


def test_use_and_its_levels_by_hand():
    use = ut.summarise([0.1, 0.9, np.nan, 0.5], [2.0, 1.0, 4.0, 1.0], high=0.5)
    assert use.mean == pytest.approx((0.2 + 0.9 + 0.5) / 4)
    assert (use.median, use.p95, use.share_high, use.measured_s) == (0.1, 0.9, 0.5, 4.0)
    # A share that is just reached is not exceeded.
    use = ut.summarise(np.arange(1.0, 21.0), np.full(20, 0.1))
    assert (use.median, use.p95) == (10.0, 19.0)
    # Levels begin at their thresholds.
    found = [ut.grade(value, 0.3, 0.7) for value in (0.29, 0.3, 0.69, 0.7, np.nan)]
    assert found == ["low", "medium", "medium", "high", ""]
    assert ut.worst([]) == ""
    assert ut.worst(["", "low"]) == "low"
    assert ut.worst(["high", "medium", "low"]) == "high"


@given(INTERVALS, st.randoms(use_true_random=False))
def test_an_interval_of_n_seconds_is_n_intervals_of_one_in_any_order(intervals, rng):
    values, seconds = map(np.array, zip(*intervals, strict=True))
    each = np.repeat(values, seconds)
    use = ut.summarise(values, seconds, high=0.7)
    assert use.mean == pytest.approx(each.mean())
    assert use.median == np.quantile(each, 0.5, method="inverted_cdf")
    assert use.p95 == np.quantile(each, 0.95, method="inverted_cdf")
    assert use.share_high == pytest.approx((each >= 0.7).mean())
    rng.shuffle(intervals)
    assert ut.summarise(*zip(*intervals, strict=True), high=0.7) == pytest.approx(use)


def test_nothing_measured_is_no_use():
    for values, seconds in (([], []), ([np.nan], [1.0]), ([1.0], [np.nan]), ([1.0], [0.0])):
        use = ut.summarise(values, seconds)
        assert use.measured_s == 0
        assert np.isnan(use[:4]).all()


def stages(lengths, series=4, noise=0.03, seed=5):
    """A series for each stage, 1 in its own stage; after the last series, none."""
    table = np.zeros((sum(lengths), series))
    ends = np.cumsum(lengths)
    for stage, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        if stage % (series + 1) < series:
            table[end - length : end, stage % (series + 1)] = 1.0
    return table + np.random.default_rng(seed).normal(0, noise, table.shape), list(ends[:-1])


@pytest.mark.cases(
    "lengths, series, noise",
    ((10, 10, 10, 10), 4, 0.03),
    ((5, 5, 5, 5), 4, 0.03),
    ((3, 30, 4), 4, 0.03),
    ((100, 7, 300), 4, 0.03),
    # Longer than is searched point by point: found among averages, then moved to its place.
    ((12_345, 7_666), 1, 1e-3),
    ((20_000, 30_001, 300, 36_099), 4, 0.1),
)
def test_stages_are_found_exactly(lengths, series, noise):
    table, ends = stages(lengths, series, noise)
    assert ut.change_points(table, shortest=3) == ends


@given(st.lists(st.integers(4, 25), min_size=1, max_size=7), st.integers(1, 5), st.integers(0, 999))
def test_any_stages_are_found_within_one_sample(lengths, series, seed):
    table, ends = stages(lengths, series, noise=0.05, seed=seed)
    found = ut.change_points(table)
    assert len(found) == len(ends)
    assert np.abs(np.subtract(found, ends)).max(initial=0) <= 1


@pytest.mark.parametrize(("count", "tables"), [(20, 20), (60, 20), (600, 10), (7000, 3)])
@pytest.mark.parametrize("series", [1, 5])
def test_noise_alone_is_one_phase(count, tables, series):
    rng = np.random.default_rng(11)
    found = [bool(ut.change_points(rng.normal(0.5, 0.2, (count, series)))) for _ in range(tables)]
    assert sum(found) <= tables // 20


def test_no_other_division_is_cheaper():
    """All divisions of a short series into phases of at least two points, one by one."""
    table, _ = stages((5, 4, 6), series=2, noise=0.0)
    wave = 0.04 * np.sin(7 * np.arange(15))[:, None]
    # Noise is below its floor, so that it is known.
    scaled = (table + wave) / ut.NOISE_FLOOR

    def cost(points):
        parts = np.split(scaled, points)
        within = sum(((part - part.mean(axis=0)) ** 2).sum() for part in parts)
        return within + ut.penalty(15, 2) * len(points)

    divisions = [
        points
        for count in range(5)
        for points in itertools.combinations(range(2, 14), count)
        if min(np.diff([0, *points, 15])) >= 2
    ]
    assert ut.change_points(table + wave) == list(min(divisions, key=cost))


def test_missing_values_and_flat_runs_are_no_change():
    assert ut.change_points(np.full((50, 3), 0.7)) == []
    assert ut.change_points(0.7 + 0.5 * ut.NOISE_FLOOR * np.sin(np.arange(50))[:, None]) == []
    table, ends = stages((10, 10))
    table[3:5, 0] = np.nan
    assert ut.change_points(table) == ends
    assert ut.change_points(np.column_stack([table, np.full(20, np.nan)])) == ends
    assert ut.change_points(np.full((20, 2), np.nan)) == []


def test_the_shortest_phase():
    table, _ = stages((10, 2, 10), series=1, noise=0.0)
    assert ut.change_points(table, shortest=2) == [10, 12]
    assert ut.change_points(table, shortest=12) == []
    assert ut.change_points(table[:3]) == []


def test_a_steady_drift_is_no_noise():
    rng = np.random.default_rng(1)
    table = 5.0 * np.arange(2000)[:, None] + rng.normal(0, 1, (2000, 3))
    assert ut._noise_level(table) == pytest.approx(np.full(3, 1 + 2 / np.sqrt(2000)), rel=0.1)


ENDS = np.array([1.0, 2.0, 3.0, 5.0, 6.0])
RATES = np.array([1.0, 2.0, 3.0, 5.0, np.nan])


@pytest.mark.cases(
    "ends, lengths, rates, clock, expected",
    # Intervals of one second, none between 3 and 4, and one not measured.
    (ENDS, np.ones(5), RATES, (0.0, 1.0, 7), [1, 2, 3, np.nan, 5, np.nan, np.nan]),
    # A shifted clock has means, a coarse one means of what is known.
    (ENDS, np.ones(5), RATES, (0.5, 1.0, 3), [1.5, 2.5, 3.0]),
    (ENDS, np.ones(5), RATES, (0.0, 2.0, 3), [1.5, 3.0, 5.0]),
    # Intervals that overlap count once; one within the one before it adds nothing.
    ([1.0, 2.0], [1.0, 1.8], [4.0, 8.0], (0.0, 1.0, 2), [4.0, 8.0]),
    ([2.0, 1.5], [2.0, 1.0], [4.0, 8.0], (0.0, 1.0, 2), [4.0, 4.0]),
    ids=["own clock", "shifted", "coarse", "overlapping", "within"],
)
def test_rates_on_a_clock_by_hand(ends, lengths, rates, clock, expected):
    found = ut.mean_on_clock(ends, lengths, np.transpose([rates]), *clock)
    np.testing.assert_allclose(found.ravel(), expected)


@given(st.lists(st.tuples(st.floats(0.1, 3.0), st.floats(0.0, 1e6)), min_size=1, max_size=30))
def test_a_clock_keeps_the_sum_of_use(intervals):
    lengths, rates = np.array(intervals).T
    ends = np.cumsum(lengths)
    step = ends[-1] / 7
    found = ut.mean_on_clock(ends, lengths, rates[:, None], 0.0, step, 7)
    assert (found * step).sum() == pytest.approx((rates * lengths).sum(), rel=1e-9, abs=1e-9)


def test_load_by_hand():
    shares = np.array([[0.5, 0.1], [1.2, np.nan], [1.3, 0.2], [0.2, 0.3], [1.1, np.nan]])
    load = ut.summarise_shares(shares, 0.6)
    expected = [[1.1, 0.2], [0.86, 0.2], [1.3, 0.3], [0.6, 0.0], [2, 0]]
    np.testing.assert_allclose(load, expected)
    assert load.first == 0
    # What was never measured is not nought.
    load = ut.summarise_shares(np.full((3, 2), np.nan))
    assert load.first is None
    assert np.isnan(load).all()


@given(st.lists(st.floats(0, 2), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.95, 1.0]))
def test_high_is_above_one_just_when_the_rest_of_time_is(shares, quantile):
    load = ut.summarise_shares(np.array(shares)[:, None], quantile)
    below = sum(share <= 1 for share in shares)
    assert (load.high[0] > 1) == (below < quantile * len(shares) - 1e-9)


@pytest.mark.cases(
    "ask, message",
    (lambda: ut.summarise([1.0], [1.0, 2.0]), "lengths of time: give one"),
    (lambda: ut.summarise([[1.0]], [[1.0]]), "lengths of time: give one"),
    (lambda: ut.summarise([1.0], [-1.0]), "negative length"),
    (lambda: ut.grade(0.5, 0.7, 0.3), "is above"),
    (lambda: ut.change_points([1.0, 2.0]), "one row per point"),
    (lambda: ut.change_points([[1.0]], shortest=1), "at least 2"),
    (lambda: ut.summarise_shares(np.ones((3, 1)), 0.0), "quantile"),
    (lambda: ut.summarise_shares(np.ones((3, 1)), 1.1), "quantile"),
    (lambda: ut.summarise_shares(np.ones(3)), "one row per interval"),
    (lambda: ut.mean_on_clock([1.0, 2.0], [1.0], [[1.0]], 0.0, 1.0, 1), "lengths"),
)
def test_what_cannot_be_is_refused(ask, message):
    with pytest.raises(FittingError, match=message):
        ask()


def test_agreement_of_constant_and_few_intervals_and_at_the_threshold():
    assert ut.agreement(np.full(100, 0.2), 0.7) == ut.agreement(np.full(100, 0.9), 0.7) == 1.0
    assert np.isnan(ut.agreement(np.ones(9), 0.5))
    assert ut.agreement(np.concatenate([np.ones(10), [np.nan]]), 0.5) == 1.0
    often = np.arange(200) % 19 == 0
    found = ut.agreement(np.where(often, 1.0, 0.2), 0.7)
    # The order of draws is fixed.
    assert 0.3 < found == ut.agreement(np.where(often, 1.0, 0.2), 0.7) < 0.8
    # A share of just the threshold is not above it.
    assert ut.agreement(np.where(often, 0.7, 0.2), 0.7) == 1.0


def test_agreement_is_how_often_another_recording_agrees():
    # Independent intervals, 6 % above: the chance that over 5 % are, from the binomial law.
    rng = np.random.default_rng(1)
    found, above = [], []
    for _ in range(200):
        shares = (rng.random(1000) < 0.06).astype(float)
        above.append(shares.mean() > 0.05)
        agreed = ut.agreement(shares, 0.5)
        found.append(agreed if above[-1] else 1 - agreed)
    assert np.mean(above) == pytest.approx(1 - binom.cdf(50, 1000, 0.06), abs=0.05)
    assert np.mean(found) == pytest.approx(np.mean(above), abs=0.12)
