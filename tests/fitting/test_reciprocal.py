"""The published curve 1/CPI = c − k/f: the figures of Issa & Figueira (2012), fig. 13."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import GHZ, frequencies

from fitting import FittingError, OutOfRangeError, ReciprocalRegression
from fitting.models import fit
from fitting.reciprocal import ReciprocalCpi, ReciprocalRate, ReciprocalTime

# c, k (MHz), {f (GHz): CPI}, bound of CPI, pole (MHz).
PUBLISHED = {
    "Atom": (0.304, 250, {1.66: 6.519, 1.80: 6.057, 3.0: 4.532}, 3.289, 822.4),
    "Westmere": (0.505, 402, {2.27: 3.050, 3.0: 2.695}, 1.980, 796.0),
}
hosts = pytest.mark.parametrize("host", PUBLISHED)


def published(host) -> ReciprocalRegression:
    c, k_mhz, *_ = PUBLISHED[host]
    return ReciprocalRegression.from_coefficients(c=c, k_hz=k_mhz * 1e6)


def one(model, f, metric):
    return fit(model, np.zeros(len(f), dtype=int), np.asarray(f), np.asarray(metric), 1)


@hosts
def test_published_curve_gives_the_published_figures(host):
    _, _, figures, bound, pole_mhz = PUBLISHED[host]
    curve = published(host)
    cpi = curve.predict(np.array([*figures]) * GHZ)
    np.testing.assert_allclose(cpi, [*figures.values()], atol=0.0005)
    np.testing.assert_allclose(curve.limit_, bound, atol=0.001)
    np.testing.assert_allclose(curve.pole_hz_ / 1e6, pole_mhz, atol=0.05)
    assert "faster than 1/f" in curve.caveats_[0]


def test_published_atom_speeds_up_by_more_than_its_clock():
    slow, fast = published("Atom").predict([1.8e9, 3e9])
    np.testing.assert_allclose((3e9 / fast) / (1.8e9 / slow), 2.23, atol=0.005)


@hosts
@pytest.mark.parametrize("pair", [(1.66, 1.80), (1.2, 3.6), (0.9, 0.91)])
def test_two_points_of_the_curve_give_c_and_k_back(host, pair):
    c, k_mhz, *_ = PUBLISHED[host]
    f = np.array(pair) * GHZ
    again = ReciprocalRegression().fit(f, published(host).predict(f))
    assert list(again.parameters_) == ["c", "k_hz"]
    np.testing.assert_allclose([*again.parameters_.values()], [c, k_mhz * 1e6], rtol=1e-10)
    assert again.caveats_ == published(host).caveats_


@hosts
@pytest.mark.parametrize("share", [1.0, 0.999, 0.5])
def test_at_or_below_the_pole_there_is_no_answer(host, share):
    curve = published(host)
    with pytest.raises(OutOfRangeError, match=r"^1/CPI.* no answer at .* pole .*; ask above it"):
        curve.predict([3e9, share * curve.pole_hz_])
    assert curve.predict([1.001 * curve.pole_hz_])[0] > 100


def test_a_curve_that_ends_going_up_says_so():
    # 1/CPI = −0.2 + 1.2 GHz/f: nothing from 6 GHz on.
    curve = ReciprocalRegression().fit([1e9, 2e9], [1, 2.5])
    np.testing.assert_allclose(curve.pole_hz_, 6e9, rtol=1e-12)
    assert np.isnan(curve.limit_)
    assert curve.caveats_ == ()
    assert curve.predict([5.9e9])[0] > 100
    with pytest.raises(OutOfRangeError, match="ask below it"):
        curve.predict([6.1e9])


def test_a_curve_that_slows_with_the_clock_has_no_pole_and_no_caveat():
    curve = ReciprocalRegression().fit([1e9, 2e9], [1.0, 1.25])
    assert curve.pole_hz_ == 0
    assert curve.caveats_ == ()
    np.testing.assert_allclose(curve.limit_, 1 / 0.6, rtol=1e-12)


@given(frequencies(), st.floats(0.1, 4), st.floats(-2e8, 6e8))
def test_time_rate_and_cpi_are_one_curve(f, c, k):
    cpi = 1 / (c - k / f)
    if (cpi <= 0).any() or not np.isfinite(cpi).all():
        return
    instructions = 3e11
    at = 1.5 * f.max()
    expected = one(ReciprocalCpi(), f, cpi).predict(at)
    time = one(ReciprocalTime(), f, instructions * cpi / f).predict(at)
    rate = one(ReciprocalRate(), f, f / cpi / instructions).predict(at)
    np.testing.assert_allclose(time * at / instructions, expected, rtol=1e-6)
    np.testing.assert_allclose(1 / rate * at / instructions, expected, rtol=1e-6)


@pytest.mark.parametrize("metric", ["time", "throughput"])
def test_refusal_prints_the_equation_of_its_metric(metric):
    f = np.array([1e9, 2e9])
    rate = 0.5e-9 * f - 0.3
    curve = ReciprocalRegression(metric=metric).fit(f, rate if metric == "throughput" else 1 / rate)
    np.testing.assert_allclose(curve.pole_hz_, 0.6e9, rtol=1e-12)
    with pytest.raises(OutOfRangeError, match=r"= c·f − k has no answer at 0\.5 GHz.* 0\.6 GHz"):
        curve.predict([0.5e9])


@pytest.mark.parametrize("c", [np.nan, np.inf])
def test_coefficients_that_are_not_numbers_are_refused(c):
    with pytest.raises(FittingError, match=r"1/CPI\(f\) = c − k/f needs finite coefficients"):
        ReciprocalRegression.from_coefficients(c=c, k_hz=1e8)
