"""Inputs that once came to something else than a result or an error of one line.

They are kept in ``findings/TARGET``.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import judge
import numpy as np
import pytest
from scipy import stats
from targets import TARGETS

from fitting.line import student_quantile

INPUTS = sorted(Path(__file__).parent.glob("findings/*/*"))


@pytest.mark.parametrize("path", INPUTS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_is_judged_as_it_should_be(path):
    target = TARGETS[path.parent.name]
    with warnings.catch_warnings():
        judge.be_strict()
        judge.judged(target.read, path.read_bytes(), target.where)


def test_a_count_of_runs_costs_no_memory():
    # A saved calibration of half a kilobyte once took gigabytes.
    many = np.array([3, 2**40])
    expected = stats.t.ppf(0.95, many)
    np.testing.assert_allclose(student_quantile(many, 0.9), expected, rtol=1e-12)


def test_there_are_findings():
    assert INPUTS
