"""Path length: the published figures of Wordcount, and where a logarithm of cores ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import core_counts

from fitting import FittingError, LogPathLength, OutOfRangeError
from fitting.path_length import positive_up_to

PUBLISHED = {1: 70702, 2: 48868, 4: 27034, 8: 5200, 9: 1489}


def wordcount(**options) -> LogPathLength:
    options = {"a": -31500, "b": 70702, "cores": (1, 9), "workload": "wordcount"} | options
    return LogPathLength.from_coefficients(**options)


def test_published_wordcount_gives_the_published_figures():
    model = wordcount()
    np.testing.assert_array_equal(np.round(model.predict([*PUBLISHED])), [*PUBLISHED.values()])
    assert [round(model.at(n, workload="wordcount")) for n in PUBLISHED] == [*PUBLISHED.values()]
    np.testing.assert_allclose(model.positive_up_to_, 9.436, atol=0.0005)
    assert model.cores_ == (1, 9)
    assert np.isnan(model.limit_)


@pytest.mark.parametrize("cores", [9.44, 10, 64])
def test_past_its_root_there_is_no_answer(cores):
    with pytest.raises(OutOfRangeError, match=r"not positive at \S+ cores: .* 9\.436; ask below"):
        wordcount().at(cores)
    assert wordcount().at(9.43) > 0


def test_another_workload_is_refused_by_name():
    with pytest.raises(FittingError, match=r"belongs to workload 'wordcount', not 'terasort'"):
        wordcount().at(4, workload="terasort")
    assert wordcount(workload=None).at(4, workload="terasort") == wordcount().at(4)


def test_fit_gives_the_published_coefficients_back():
    n = np.array([1, 2, 4, 8])
    model = LogPathLength(workload="wordcount").fit(n, 70702 - 31500 * np.log(n))
    np.testing.assert_allclose(model.parameters_["a"], -31500, rtol=1e-12)
    np.testing.assert_allclose(model.parameters_["b"], 70702, rtol=1e-12)
    np.testing.assert_allclose(model.positive_up_to_, np.exp(70702 / 31500), rtol=1e-12)
    assert model.cores_ == (1.0, 8.0)


@given(core_counts(), st.floats(-100, 100), st.floats(500, 1000))
def test_points_without_noise_give_the_curve_back(n, a, b):
    model = LogPathLength().fit(n, b + a * np.log(n)) if (b + a * np.log(n) > 0).all() else None
    if model:
        np.testing.assert_allclose(model.parameters_["a"], a, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(model.parameters_["b"], b, rtol=1e-9)


def test_root_by_hand():
    assert positive_up_to(-2.0, 4.0) == pytest.approx(np.exp(2), rel=1e-14)
    assert positive_up_to(2.0, 4.0) == np.inf
    assert positive_up_to(0.0, 4.0) == np.inf
    assert positive_up_to(-0.5, 4.0) == pytest.approx(np.exp(8), rel=1e-14)


@pytest.mark.parametrize(
    ("a", "b", "limit"), [(0, 700.0, 700.0), (2.0, 700.0, np.inf), (-0.5, 700.0, np.nan)]
)
def test_a_level_path_length_alone_has_a_limit(a, b, limit):
    np.testing.assert_array_equal(wordcount(a=a, b=b).limit_, limit)


def test_a_nearly_level_path_length_reaches_zero_at_no_finite_count():
    model = LogPathLength().fit([1, 2, 4], [70702.0, 70702.0 - 1e-6, 70702.0])
    assert model.parameters_["a"] <= 0
    assert model.positive_up_to_ == np.inf
    assert positive_up_to(-1e-9, 1e5) == np.inf


def test_a_rising_curve_that_starts_below_zero_says_where_to_ask():
    with pytest.raises(OutOfRangeError, match="ask higher up"):
        wordcount(a=100, b=-50).at(1)


def test_one_core_count_is_not_a_curve():
    with pytest.raises(FittingError, match="two different predictor values; all 3 given are 1:"):
        LogPathLength().fit([1, 1, 1], [5, 6, 7])
