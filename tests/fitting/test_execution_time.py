"""Execution time, eq. 2 of Issa & Figueira (2012), by hand and for every kind of input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fitting import FittingError, execution_time

# 1000 units of data at 70702 instructions each and 6.519 cycles an instruction, 1.66 GHz.
ONE = {"data": 1000, "cpi": 6.519, "path_length": 70702, "frequency_hz": 1.66e9}


def test_worked_by_hand():
    np.testing.assert_allclose(execution_time(**ONE), 0.2776544205, rtol=1e-9)
    # Two cores halve it, an overhead of a quarter lengthens it.
    assert execution_time(**ONE, cores=2) == pytest.approx(execution_time(**ONE) / 2)
    assert execution_time(**ONE, efficiency=1.25) == pytest.approx(execution_time(**ONE) * 1.25)


@pytest.mark.parametrize("name", ["data", "cpi", "path_length", "frequency_hz", "cores"])
def test_each_argument_may_be_an_array_a_series_or_whole_numbers(name):
    values = [1, 2, 5]
    others = {"data": 3, "cpi": 2, "path_length": 7, "frequency_hz": 11, "cores": 13}
    expected = [execution_time(**others | {name: float(value)}) for value in values]
    for kind in (np.array, pd.Series):
        time = execution_time(**others | {name: kind(values)})
        assert isinstance(time, pd.Series if kind is pd.Series else np.ndarray)
        np.testing.assert_allclose(time, expected, rtol=1e-14)
    assert execution_time(**others | {name: np.array([])}).shape == (0,)
    missing = execution_time(**others | {name: np.array([np.nan, 2.0])})
    assert np.isnan(missing).tolist() == [True, False]


def test_integers_do_not_overflow():
    big = np.array([10**13])
    whole = {"data": big, "cpi": np.array([2]), "path_length": big, "frequency_hz": 10**9}
    np.testing.assert_allclose(execution_time(**whole), [2e17], rtol=1e-14)


@pytest.mark.parametrize(
    "name", ["data", "cpi", "path_length", "frequency_hz", "cores", "efficiency"]
)
@pytest.mark.parametrize("bad", [0, -2098.0, np.array([1.0, np.nan, -3.0]), pd.Series([4, 0])])
def test_what_is_not_positive_is_named(name, bad):
    least = float(np.nanmin(bad))
    with pytest.raises(FittingError, match=rf"^{name} must be positive, but {least:g} was given"):
        execution_time(**ONE | {name: bad})
