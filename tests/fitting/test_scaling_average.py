"""The average of scaling laws against exact curves, scipy's fits and weights worked by hand."""

import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.stats import t as student

from fitting.bayes.posterior import MeasuredSteps
from fitting.laws.scaling_average import (
    LAWS,
    LawAverage,
    ScalingCells,
    average_laws,
    fit_law,
    predict_law,
)

COUNTS = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0])
NONE = np.full((1, 2), np.nan)
SIZES = np.array([1.0, 1.0, 2.0, 1.5, 1.0, 3.0])
NOISE = 1 + 0.03 * np.array([1.0, -1.0, 0.5, -0.3, 0.8, -0.7])
# The equations again, written apart from the module.
CURVES = {
    "constant": lambda n, d: 7.0 + 0 * n,
    "reciprocal": lambda n, d: 90 * d / n,
    "amdahl": lambda n, d: 5 + 90 * d / n,
    "gunther": lambda n, d: 5 + 90 * d / n + 0.3 * (n - 1),
    "ernest": lambda n, d: 5 + 90 * d / n + 2 * np.log(n) + 0.3 * n,
    "square root": lambda n, d: 5 + 90 * d / np.sqrt(n),
    "super-linear 1.5": lambda n, d: 5 + 90 * d / n**1.5,
    "super-linear 2": lambda n, d: 5 + 90 * d / n**2,
    "super-linear 3": lambda n, d: 5 + 90 * d / n**3,
}
laws = pytest.mark.parametrize("name", LAWS)


def predicted(name, cells, count, data):
    """Times of one law at one point."""
    theta = fit_law(LAWS[name], cells)
    at = np.full((len(cells.counts), 1), float(count)), np.full((len(cells.counts), 1), data)
    return np.exp(predict_law(LAWS[name], theta, *at))[:, 0]


def table(*groups, counts=(1.0, 2.0, 4.0, 8.0, 12.0)):
    """Cells of groups that have one run at each count."""
    number = len(counts)
    codes = np.repeat(np.arange(len(groups)), number)
    values = np.log(np.concatenate(groups))
    steps = MeasuredSteps.of(codes, np.tile(counts, len(groups)), values, len(groups))
    return ScalingCells.of_steps(steps)


def test_every_law_has_a_curve_and_the_priors_are_shares():
    assert list(CURVES) == list(LAWS)
    assert sum(law.prior for law in LAWS.values()) == pytest.approx(1.0)


@laws
def test_exact_times_give_their_own_curve_back(name):
    cells = ScalingCells.of_runs(COUNTS, CURVES[name](COUNTS, SIZES), SIZES)
    assert predicted(name, cells, 20, 4.0) == pytest.approx(CURVES[name](20.0, 4.0), rel=1e-9)


@laws
def test_scipy_finds_the_same_fit_of_log_time(name):
    time = CURVES[name](COUNTS, SIZES) * NOISE
    cells = ScalingCells.of_runs(COUNTS, time, SIZES)
    theta = fit_law(LAWS[name], cells)[0]
    terms = np.stack([term(COUNTS, SIZES) for term in LAWS[name].terms], axis=-1)
    root = np.sqrt(COUNTS)

    def residual(p):
        return root * np.log(terms @ p / time)

    start = np.full(terms.shape[1], 1.0)
    found = least_squares(residual, start, bounds=(0, np.inf), xtol=1e-14, ftol=1e-14, gtol=1e-14)
    ours, theirs = (np.sum(residual(p) ** 2) for p in (theta, found.x))
    assert ours <= theirs * (1 + 1e-6)
    assert np.all(theta >= 0)


def test_weights_of_two_counts_by_hand():
    """Times in proportion to 1/n: the laws with a 1/n term fit exactly, the others do not."""
    average = average_laws(ScalingCells.of_runs(np.array([1.0, 2.0]), np.array([8.0, 4.0])), 4)
    weight = dict(zip(LAWS, average.weight[:, 0], strict=True))
    # No forecast is held out: prior · exp(−parameters) for an exact fit.
    assert weight["reciprocal"] / weight["amdahl"] == pytest.approx(0.05 * np.e / 0.725)
    assert weight["gunther"] / weight["amdahl"] == pytest.approx(0.05 / 0.725 / np.e)
    # A constant misses ln 8 and ln 4, weighed 1 and 2, by 2/3 and 1/3 of ln 2; two counts one
    # octave apart are two independent ones; the likelihood is Student's t of 4 degrees.
    rms = np.log(2) * np.sqrt((1 * (2 / 3) ** 2 + 2 * (1 / 3) ** 2) / 3)
    density = student.pdf(rms / 0.035, 4) / student.pdf(0.0, 4)
    expected = 0.015 * density**2 * np.e / 0.725
    assert weight["constant"] / weight["amdahl"] == pytest.approx(expected)


def test_forecasts_of_the_greatest_count_decide_by_hand():
    """A law that forecasts the third count exactly outweighs one that misses it by a quarter."""
    counts = np.array([2.0, 4.0, 8.0])
    average = average_laws(ScalingCells.of_runs(counts, 10 + 100 / counts**2), 16)
    weight = dict(zip(LAWS, average.weight[:, 0], strict=True))
    assert weight["super-linear 2"] > 10 * weight["amdahl"]
    # Amdahl's line through 35 and 16.25 is below 0 at n → ∞: bounded, it is proportional to 1/n.
    assert weight["super-linear 2"] > weight["super-linear 3"]


def test_one_law_gives_the_interval_of_student_and_the_noise_of_the_mean_of_runs_adds():
    scales = np.full(2, 0.03), np.full(2, 5.0), 0.04**2
    one = LawAverage(np.ones((1, 2)), np.log([[10.0, 20.0]]), *scales, NONE)
    half = student.ppf(0.95, 5) * 0.05
    assert one.target_time == pytest.approx([10, 20])
    for end, sign in zip(one.interval(level=0.9), (-1, 1), strict=True):
        assert end == pytest.approx(np.array([10, 20]) * np.exp(sign * half))
    assert np.all(one.interval(repeats=4)[1] < one.interval(repeats=1)[1])


def test_repeating_every_run_changes_no_law_and_no_miss():
    counts, values = np.array([1.0, 2, 4, 6, 8]), np.array([60.0, 33, 18, 14, 11])
    some = average_laws(ScalingCells.of_runs(counts, values), 16)
    other = average_laws(ScalingCells.of_runs(np.tile(counts, 3), np.tile(values, 3)), 16)
    for ours, theirs in zip(some[:4], other[:4], strict=True):
        assert theirs == pytest.approx(ours, rel=1e-6, abs=1e-9)


def test_groups_with_fewer_counts_are_as_if_alone_in_their_fits():
    long, short = np.array([60.0, 33, 18, 11, 9]), np.array([50.0, 26])
    steps = MeasuredSteps.of(
        np.array([0] * 5 + [1] * 2),
        np.array([1.0, 2, 4, 8, 12, 2, 4]),
        np.log(np.concatenate([long, short])),
        3,
    )
    cells = ScalingCells.of_steps(steps)
    assert predicted("amdahl", cells, 16, 1.0)[:2] == pytest.approx(
        [predicted("amdahl", table(long), 16, 1.0)[0], 8.0], rel=1e-9
    )
    average = average_laws(cells, 16)
    assert np.isnan(average.target_time).tolist() == [False, False, True]
    assert np.isnan(average.interval()[0]).tolist() == [False, False, True]


def test_intervals_widen_with_the_distance_of_the_target():
    cells = table(np.array([60.0, 33, 18, 11, 9]))
    ratio = [np.divide(*average_laws(cells, n).interval()[::-1])[0] for n in (6, 12, 24, 48, 96)]
    assert ratio[0] == pytest.approx(ratio[1], rel=0.2)
    assert np.all(np.diff(ratio[1:]) > 0)


def test_groups_of_a_table_inform_each_other():
    counts = np.array([2.0, 4, 6, 8])
    alike = [k * (10 + 100 / counts**2) for k in (1.0, 2.0, 3.0)]
    alone = average_laws(table(alike[0], counts=counts), 12)
    among = average_laws(table(*alike, counts=counts), 12)
    assert among.weight[7, 0] > alone.weight[7, 0]


def test_shares_of_a_core_and_times_over_many_digits_have_an_answer():
    counts = np.array([0.5, 1.0, 2.0, 8.0, 1000.0])
    times_s = np.array([2.7e-9, 17.0, 7e-8, 2.4e8, 5e3])
    steps = MeasuredSteps.of(np.zeros(5, dtype=int), counts, np.log(times_s), 1)
    for target in (0.1, 1.0, 1e6):
        average = average_laws(ScalingCells.of_steps(steps), target)
        lower, upper = average.interval()
        assert 0 < lower[0] < average.target_time[0] < upper[0] < np.inf
