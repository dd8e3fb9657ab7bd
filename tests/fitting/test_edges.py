"""Traces of one instant, and windows of no length."""

import numpy as np
import pytest

from fitting.burstiness import Windows
from fitting.errors import FittingError
from fitting.trace_survey import Surveyor


@pytest.mark.parametrize(("duration_s", "period_s"), [(0.0, 1800.0), (60.0, 0.0), (-1.0, 60.0)])
def test_windows_of_no_length_are_refused(duration_s, period_s):
    with pytest.raises(FittingError, match="give positive lengths"):
        Windows.of(duration_s, 100, period_s)


@pytest.mark.parametrize(
    ("times", "message"), [([], "0 requests"), ([1.0], "1 request"), ([2.0, 2.0], "2 requests")]
)
def test_a_trace_of_one_instant_makes_no_model(times, message):
    survey, n = Surveyor(), len(times)
    zeros = np.zeros(n, np.int32)
    survey.add(np.array(times), zeros, zeros, np.arange(n) * 8, np.full(n, 4096))
    with pytest.raises(FittingError, match=f"{message} within 0 s make no model"):
        survey.survey()
