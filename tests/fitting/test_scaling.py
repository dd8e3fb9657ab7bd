"""Core-count scaling against independent solutions and published predictions."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import least_squares
from scipy.stats import t as student

from fitting.errors import FittingError, OutOfRangeError
from fitting.laws.cores import AmdahlScaling, ErnestScaling, UniversalScalability

CORES = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0])
SIZES = np.array([1.0, 3.0, 0.5, 2.0, 1.0, 4.0, 2.0, 8.0])
TABLE = np.column_stack([CORES, SIZES])
TERMS = np.column_stack([np.ones(8), SIZES / CORES, np.log(CORES), CORES])
NOISE = 1 + 0.02 * np.array([1.0, -1.0, 0.5, -0.3, 0.8, -0.7, 0.4, -0.2])


def usl(n, one, sigma, kappa):
    return one * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))


# Noisy runs whose best fit has no parameter on a bound.
RUNS = {
    AmdahlScaling: (CORES[:, None], (8 + 100 / CORES) * NOISE),
    UniversalScalability: (CORES[:, None], usl(CORES, 250.0, 0.05, 0.004) * NOISE),
    ErnestScaling: (TABLE, (TERMS @ [5, 40, 2, 0.5]) * (0.9 + 0.1 * NOISE)),
}
kinds = pytest.mark.parametrize("kind", RUNS)
# The equations again, and parameters to start from.
CURVES = {
    AmdahlScaling: (lambda X, a, b: a + b / X[:, 0], (1.0, 10.0)),
    UniversalScalability: (lambda X, *p: usl(X[:, 0], *p), (200.0, 0.02, 0.002)),
    ErnestScaling: (
        lambda X, *p: p[0] + p[1] * X[:, 1] / X[:, 0] + p[2] * np.log(X[:, 0]) + p[3] * X[:, 0],
        (1.0, 10.0, 1.0, 1.0),
    ),
}


def oracle(kind, X, y):
    """Parameters, covariance and variance of scipy's least squares of ln y, weighed by cores."""
    curve, start = CURVES[kind]
    root = np.sqrt(X[:, 0] / X[:, 0].mean())
    found = least_squares(
        lambda p: root * (np.log(curve(X, *p)) - np.log(y)),
        *(start, "cs", (0, np.inf)),
        **dict.fromkeys(("xtol", "ftol", "gtol"), 1e-15),
        x_scale=start,
    )
    variance = 2 * found.cost / max(len(y) - len(start), 1)
    change = np.linalg.pinv(found.jac) * root
    return found.x, variance * change @ change.T, variance


# Noise-free recovery: the oracle is the parameters themselves.


@given(
    st.floats(1e-3, 1e6),
    st.one_of(st.just(0.0), st.floats(1e-6, 1.0)),
    st.one_of(st.just(0.0), st.floats(1e-7, 0.2)),
)
def test_usl_recovers_its_parameters(one, sigma, kappa):
    model = UniversalScalability().fit(CORES, usl(CORES, one, sigma, kappa))
    assert model.throughput_one_ == pytest.approx(one, rel=1e-10)
    assert model.contention_ == pytest.approx(sigma, abs=1e-9)
    assert model.coherency_ == pytest.approx(kappa, abs=1e-10)


@kinds
def test_fits_are_those_of_scipy_with_their_covariance(kind):
    X, y = RUNS[kind]
    model, (theta, covariance, variance) = kind().fit(X, y), oracle(kind, X, y)
    assert (model.bound_, model.rank_) == (None, len(theta))
    np.testing.assert_allclose(model.theta_, theta, rtol=1e-6)
    np.testing.assert_allclose(model.covariance_, covariance, rtol=1e-4)
    assert model.residual_variance_ == pytest.approx(variance, rel=1e-6)
    errors = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(list(model.standard_errors_.values()), errors, rtol=1e-4)
    assert model.degrees_of_freedom_ == 8 - len(theta)


@kinds
def test_repeats_are_no_independent_evidence(kind):
    X, y = RUNS[kind]
    one, many = kind().fit(X, y), kind().fit(np.tile(X, (5, 1)), np.tile(y, 5))
    np.testing.assert_allclose(many.theta_, one.theta_, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(many.covariance_, one.covariance_, rtol=1e-7)
    assert many.degrees_of_freedom_ == one.degrees_of_freedom_


def test_amdahl_names_what_it_learnt():
    model = AmdahlScaling().fit(*RUNS[AmdahlScaling])
    assert model.limit_ == model.t_serial_ == model.theta_[0]
    assert model.serial_fraction_ == pytest.approx(model.t_serial_ / sum(model.theta_))


def test_interval_of_two_counts_by_hand():
    """Two counts judge no law: 10 % is usual, twice as much without a forecast, 4 degrees."""
    model = AmdahlScaling().fit([1, 2], [100.0, 60.0])
    out = 2 * 0.10 * np.hypot(0.35, np.log(8 / 2))
    half = student.ppf(0.9, 4) * np.sqrt(out**2 + 0.02**2)
    expected = (20 + 80 / 8) * np.exp([-half, half])
    assert np.ravel(model.predict_interval([8], level=0.8)) == pytest.approx(expected)
    throughput = UniversalScalability().fit([1, 2, 4], [0.01, 1 / 60, 1 / 40])
    lower, upper = throughput.predict_interval([8], repeats=2)
    assert lower < throughput.predict([8]) < upper


def held(model):
    """Parameters without a standard error."""
    return ", ".join(name for name, se in model.standard_errors_.items() if np.isnan(se)) or None


@pytest.mark.parametrize(
    ("times", "bound"),
    [(100 / CORES**1.2, "t_serial"), (10 + 0.1 * CORES, "t_parallel"), (9 + 5 / CORES, None)],
)
def test_amdahl_bounds_match_nnls_and_are_flagged(times, bound):
    model = AmdahlScaling().fit(CORES, times)
    theta = oracle(AmdahlScaling, CORES[:, None], times)[0]
    np.testing.assert_allclose(model.theta_, theta, rtol=1e-6, atol=1e-4)
    assert model.bound_ == held(model) == bound
    assert model.degrees_of_freedom_ == (6 if bound is None else 7)


def test_amdahl_on_its_bound_infers_as_a_mean_of_ln_work():
    times = 100 / CORES**1.2
    model = AmdahlScaling().fit(CORES, times)
    work, weight = np.log(times * CORES), CORES / CORES.sum()
    mean = weight @ work
    variance = 8 * weight @ (work - mean) ** 2 / 7
    error = np.exp(mean) * np.sqrt(variance * weight @ weight)
    assert model.t_parallel_ == pytest.approx(np.exp(mean))
    assert model.standard_errors_["t_parallel"] == pytest.approx(error)
    assert np.isnan(model.standard_errors_["t_serial"])


def test_unbounded_amdahl_refuses_where_time_is_not_positive():
    model = AmdahlScaling(bounded=False).fit(CORES, -2 + 100 / CORES)
    assert model.limit_ == pytest.approx(-2)
    assert model.bound_ is None
    assert model.predict([49]) == pytest.approx(-2 + 100 / 49)
    for ask in (model.predict, model.predict_interval):
        with pytest.raises(OutOfRangeError, match=r"impossible time .* row 1 .*core count 64"):
            ask([8, 64])
    # No time at one core has no serial fraction.
    assert np.isnan(AmdahlScaling(bounded=False).fit([2, 4], [1.0, 1.5]).serial_fraction_)


@pytest.mark.cases(
    "sigma, kappa, limit, peak, best, bound",
    (0.1, 0.01, 0.0, np.sqrt(90), usl(np.sqrt(90), 50, 0.1, 0.01), None),
    (0.1, 0.0, 500.0, np.inf, 500.0, "coherency"),
    (0.0, 0.0, np.inf, np.inf, np.inf, "contention, coherency"),
    (0.0, 0.01, 0.0, 10.0, usl(10, 50, 0, 0.01), "contention"),
    (1.0, 0.02, 0.0, 0.0, 50.0, "contention"),
    (1.0, 0.0, 50.0, np.inf, 50.0, "contention, coherency"),
)
def test_usl_peak_and_limit(sigma, kappa, limit, peak, best, bound):
    model = UniversalScalability().fit(CORES, usl(CORES, 50.0, sigma, kappa))
    assert model.limit_ == pytest.approx(limit, rel=1e-9)
    assert model.peak_cores_ == pytest.approx(peak, rel=1e-9, abs=1e-4)
    assert model.peak_throughput_ == pytest.approx(best, rel=1e-9)
    assert model.bound_ == bound


@pytest.mark.parametrize(
    ("power", "bound", "free"),
    [(1.3, "contention, coherency", 1), (0.7, "coherency", 2), (-0.2, "contention", 2)],
)
def test_usl_on_a_bound_has_no_standard_error_there(power, bound, free):
    model = UniversalScalability().fit(CORES, 10 * CORES**power)
    assert model.bound_ == held(model) == bound
    assert model.degrees_of_freedom_ == 8 - free
    assert np.all(np.isfinite(model.predict_interval(CORES)))


def test_usl_bound_is_the_best_feasible_point():
    throughput = 10 * CORES**0.7
    model = UniversalScalability().fit(CORES, throughput)
    theta = oracle(UniversalScalability, CORES[:, None], throughput)[0]
    np.testing.assert_allclose(model.theta_, theta, rtol=1e-4, atol=1e-7)


@given(st.lists(st.floats(1e-3, 1e3), min_size=8, max_size=8))
def test_usl_answers_any_positive_throughput_within_its_ranges(throughput):
    model = UniversalScalability()
    try:
        model.fit(CORES, throughput)
    except FittingError as error:
        assert "measure at one core" in str(error)  # noqa: PT017 - either outcome is right
        return
    assert model.throughput_one_ > 0
    assert 0 <= model.contention_ <= 1
    assert model.coherency_ >= 0
    assert np.all(model.predict(np.arange(1, 200)) <= model.peak_throughput_ * (1 + 1e-9))


def test_usl_fits_without_a_start_for_one_core_and_refuses_a_fall_too_steep_for_any():
    # The start leaves one core no time at all, so its throughput there is infinite.
    model = UniversalScalability().fit([1, 2, 4, 8], [1e-9, 1, 1 / 3, 1 / 7])
    assert model.bound_ == "contention"
    assert 0 < model.throughput_one_ < np.inf
    with pytest.raises(FittingError, match=r"falls too fast .* measure at one core too"):
        UniversalScalability().fit([2, 3, 4, 8], [10, 2, 0.5, 0.1])


@pytest.mark.thirdparty
def test_ernest_is_near_the_predictions_its_authors_print(data_dir):
    """Theirs are by least squares of the time; these of its logarithm."""
    raw = data_dir / "ernest-example" / "raw"
    cores, size, times = np.loadtxt(raw / "rcv1-parsed.csv", delimiter=",").T
    model = ErnestScaling().fit(np.column_stack([cores, size]), times)
    assert model.bound_ == "theta3"
    text = (raw / "mllib_rcv1.md").read_text().split("Machines, Predicted Time\n")[1]
    rows = [line.split() for line in text.split("...")[0].splitlines()]
    machines, printed = np.array(rows, dtype=float).T
    asked = np.column_stack([machines, np.ones_like(machines)])
    np.testing.assert_allclose(model.predict(asked), printed, rtol=0.11)


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_ernest_with_two_core_counts_answers_but_claims_no_precision(unit):
    X = np.array([[2, 1.0], [2, 2.0], [4, 1.0], [4, 3.0], [4, 2.0]]) * [1, unit]
    model = ErnestScaling().fit(X, [10.0, 18.1, 6.1, 14.0, 10.1])
    assert model.rank_ == 3
    assert np.all(np.isnan(list(model.standard_errors_.values())))
    assert np.all(np.isnan(model.predict_interval(X)))
    np.testing.assert_allclose(model.predict(X), [10.0, 18.1, 6.1, 14.0, 10.1], rtol=0.02)


def test_ernest_on_one_core_is_a_line_in_the_data():
    X = np.column_stack([np.ones(4), [1.0, 2.0, 3.0, 5.0]])
    times = np.array([3.1, 4.9, 7.2, 10.8])
    model = ErnestScaling().fit(X, times)
    found = least_squares(
        lambda p: np.log(p[0] + p[1] * X[:, 1]) - np.log(times), (1.0, 2.0), xtol=1e-15
    )
    expected = found.x @ [[1, 1], [4.0, 8.0]]
    np.testing.assert_allclose(model.predict([[1, 4.0], [1, 8.0]]), expected, rtol=1e-6)
    # The term of the cores is the constant's, and their logarithm is 0.
    assert model.rank_ == 2


@cache
def plain_fit(kind):
    """Fit, prediction and interval in the unit of the runs."""
    X, y = RUNS[kind]
    plain = kind().fit(X, y)
    return plain, plain.predict(X), np.array(plain.predict_interval(X))


@kinds
@settings(max_examples=max(4, settings.default.max_examples // 4))
@given(st.floats(1e-12, 1e12))
def test_units_only_scale(kind, unit):
    X, y = RUNS[kind]
    (plain, predicted, bounds), scaled = plain_fit(kind), kind().fit(X, y * unit)
    np.testing.assert_allclose(scaled.predict(X), predicted * unit, rtol=1e-9)
    wider = np.array(scaled.predict_interval(X))
    np.testing.assert_allclose(wider, bounds * unit, rtol=1e-8)
    assert plain.bound_ == scaled.bound_
    if kind is ErnestScaling:
        of_data = ErnestScaling().fit(X * [1, unit], y)
        np.testing.assert_allclose(of_data.theta_, plain.theta_ / [1, unit, 1, 1], rtol=1e-9)


def test_without_degrees_of_freedom_errors_are_unknown_and_intervals_as_usual():
    for kind, few, runs in (
        (AmdahlScaling, 2, 8 + 100 / CORES),
        (UniversalScalability, 3, usl(CORES, 250, 0.05, 0.02)),
        (ErnestScaling, 4, TERMS @ [5, 40, 2, 0.5]),
    ):
        X = RUNS[kind][0]
        model = kind().fit(X[:few], runs[:few])
        assert model.degrees_of_freedom_ == 0
        assert np.isnan([model.residual_variance_, *model.standard_errors_.values()]).all()
        lower, upper = model.predict_interval(X)
        assert np.all((lower < model.predict(X)) & (model.predict(X) < upper))
