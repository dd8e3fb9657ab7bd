"""Made-up runs, and how the tests call what warns: each caveat must come as a warning too."""

import warnings
from random import Random

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings

from ppw.errors import CaveatWarning
from ppw.results.text import printable

GHZ = 1e9
# Memcached on the Atom D525, read off its published curve 1/CPI = 0.304 − 250/f_MHz.
ATOM = [(1.66e9, 6.519), (1.80e9, 6.057)]
STEPS = (1.2, 1.6, 2.0, 2.4)
# All that take no other groups measured at the target.
POINT_INTERVALS = ("bayes", "t", "none")
any_interval = pytest.mark.parametrize("interval", POINT_INTERVALS)
few_examples = settings(max_examples=max(4, settings.default.max_examples // 5))
ignore_caveats = pytest.mark.filterwarnings("ignore::ppw.errors.CaveatWarning")
WORK = {"grep": (4.0, 20e9), "sort": (9.0, 60e9), "wc": (6.0, 90e9)}


def quiet(function, *arguments, **options):
    """Call without the warnings that repeat the caveats."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaveatWarning)
        return function(*arguments, **options)


def answered(function, *arguments, **options):
    """Call and return the result, whose caveats are exactly the warnings, in letters that print."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CaveatWarning)
        result = function(*arguments, **options)
    assert [str(w.message) for w in caught] == list(map(printable, result.caveats))
    assert {w.category for w in caught} <= {CaveatWarning}
    return result


def sweep(*, steps=STEPS, repeats=2, workloads=tuple(WORK), noise=0.01, seed=7, host="rack1"):
    """Runs of one host: T = t_fixed + w/f and P = 20 W + 15 W/GHz·f, with noise."""
    random = Random(seed)
    rows = []
    for workload in workloads:
        fixed, work = WORK[workload]
        for ghz in steps:
            for _ in range(repeats):
                time, watts = (np.exp(random.gauss(0, noise)) for _ in range(2))
                time *= fixed + work / (ghz * GHZ)
                cycles = time * ghz * GHZ
                rows.append((host, workload, ghz, time, 5e10, cycles, watts * (20 + 15 * ghz)))
    columns = ["host", "workload", "freq_ghz", "time_s", "instructions", "cycles", "power_w"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(family="Zen 4", cores=4, price=2500.0, power_source="rapl:package")


def only(caveats, text):
    """Find the one caveat that holds a text."""
    (found,) = [c for c in caveats if text in c]
    return found


def ols_interval(x, y, at, *, level=0.90, repeats=1):
    """Prediction interval for the mean of new points, from statsmodels' least squares."""
    from scipy.stats import t
    from statsmodels.api import OLS

    design = np.column_stack([np.ones_like(x), x])
    fitted = OLS(y, design).fit()
    mean = fitted.get_prediction([[1.0, at]])
    spread = np.sqrt(mean.se_mean[0] ** 2 + fitted.mse_resid / repeats)
    half = t.ppf((1 + level) / 2, fitted.df_resid) * spread
    return mean.predicted_mean[0], mean.predicted_mean[0] - half, mean.predicted_mean[0] + half
