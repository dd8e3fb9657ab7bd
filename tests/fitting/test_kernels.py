"""Compiled loops of the posterior: numpy's answers on the same tables."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from strategies import GHZ, POWER_PRIOR, TIME_PRIOR

from fitting.bayes import kernels, pooling, posterior
from fitting.bayes.pooling import CmosPowerCurve, Neighbours, TimeCurve
from fitting.bayes.posterior import FrequencyTarget, MeasuredSteps
from fitting.bayes.prediction import project_curve

CURVES = {
    "time": TimeCurve(prior=TIME_PRIOR),
    "power": CmosPowerCurve(prior=POWER_PRIOR),
    "voltages": CmosPowerCurve(prior=POWER_PRIOR, voltage=lambda f, _: 0.4 + 0.25 * f / GHZ),
    "alone": TimeCurve(prior=TIME_PRIOR, pooling=pooling.NO_POOLING),
}


@st.composite
def tables(draw):
    """Groups of some clusters, measured at 0 to 9 steps, some of them as often as others."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    groups, most = draw(st.integers(1, 24)), draw(st.integers(2, 9))
    codes = np.repeat(np.arange(groups), rng.integers(0, 2 * most, groups))
    frequency = np.choose(rng.integers(0, most, len(codes)), GHZ * (1 + 0.2 * np.arange(most)))
    values = rng.uniform(0.2, 1) * np.log(frequency / GHZ) + rng.normal(0, 0.03, len(codes))
    level = rng.normal(0, 5, groups)[codes]
    measured = MeasuredSteps.of(codes, frequency, values + level, groups)
    # Fewer than one run: a step whose mean is less sure than a run.
    measured.runs[rng.random(len(measured.runs)) < 0.2] = 0.3
    target = FrequencyTarget(rng.choice([0.8, 2.2, 3.5], groups) * GHZ, rng.integers(1, 4, groups))
    cores = np.log(rng.choice([1, 2, 4, 8], groups))
    cluster = rng.integers(0, draw(st.integers(1, 9)), groups)
    return measured, target, Neighbours(cluster, cores, cluster)


@pytest.mark.parametrize("name", CURVES)
@settings(max_examples=25)
@given(table=tables(), sizes=st.sampled_from([(128, 512), (3, 6)]))
def test_both_paths_agree(name, table, sizes):
    found = []
    for fewest in (np.inf, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(posterior, "COMPILED_GROUPS", fewest)
            patch.setattr(pooling, "_TOGETHER", sizes[0])
            patch.setattr(pooling, "_CHUNK", sizes[1])
            found.append(project_curve(CURVES[name], *table, (0.05, 0.5, 0.9)))
    by_numpy, by_loops = ((*f.mixture.moments(), *f[1:]) for f in found)
    scale = np.sqrt(by_numpy[1])
    for one, other in zip(by_numpy, by_loops, strict=True):
        np.testing.assert_array_equal(np.isnan(other), np.isnan(one))
        assert not (np.abs(other - one) > 1e-10 * scale + 1e-12 * np.abs(one)).any()


def test_loops_are_for_many_groups_and_not_loaded_for_few(monkeypatch):
    assert posterior.loops_for(posterior.COMPILED_GROUPS - 1) is None
    assert posterior.loops_for(posterior.COMPILED_GROUPS) is kernels
    # A module of None is one that cannot be imported.
    monkeypatch.setitem(sys.modules, "fitting.bayes.kernels", None)
    assert posterior.loops_for(posterior.COMPILED_GROUPS) is None
    code = "import sys, fitting.bayes.prediction; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
