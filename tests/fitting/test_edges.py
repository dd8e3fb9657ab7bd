"""Where the data end: one instant, places beyond any device, lines on a plain scale."""

from __future__ import annotations

import numpy as np
import pytest

from fitting.burstiness import Windows
from fitting.defragmentation import FilePages
from fitting.errors import FittingError
from fitting.knee import fit_knees
from fitting.phases import change_points
from fitting.trace_survey import Surveyor


@pytest.mark.parametrize(("duration_s", "period_s"), [(0.0, 1800.0), (60.0, 0.0), (-1.0, 60.0)])
def test_windows_of_no_length_are_refused(duration_s, period_s):
    with pytest.raises(FittingError, match="give positive lengths"):
        Windows.of(duration_s, 100, period_s)


@pytest.mark.parametrize(
    ("times", "said"), [([], "0 requests"), ([1.0], "1 request"), ([2.0, 2.0], "2 requests")]
)
def test_a_trace_of_one_instant_makes_no_model(times, said):
    survey = Surveyor()
    n = len(times)
    zeros = np.zeros(n, np.int32)
    survey.add(np.array(times), zeros, zeros, np.arange(n) * 8, np.full(n, 4096))
    with pytest.raises(FittingError, match=f"{said} within 0 s make no model"):
        survey.survey()


def test_a_page_beyond_sixty_four_pebibytes_has_no_layout():
    one = np.zeros(1, np.int64)
    pages = FilePages()
    pages.add(one, one, np.array([2**56 // 512 - 8]), np.array([4096]))
    with pytest.raises(FittingError, match="beyond 64 PiB"):
        pages.add(one, one, np.array([2**56 // 512 * 16]), np.array([4096]))


def test_two_straight_lines_on_a_plain_scale_come_back():
    x = np.array([1.0, 2, 3, 4, 6, 8, 10, 12])
    y = np.where(x < 5, 2 * x, 10 + 0.5 * (x - 5))
    found = fit_knees(np.zeros(len(x), int), x, y, scale="linear")
    assert found.knee[0] == pytest.approx(5.0)
    assert found.at([3.0, 9.0]) == pytest.approx([6.0, 12.0])


def test_a_long_series_has_its_change_to_the_point():
    # Longer than is searched point by point: found among averages, and then moved to its place.
    signal = np.zeros((20_011, 1))
    signal[12_345:] = 1.0
    signal += 1e-3 * np.random.default_rng(3).standard_normal(signal.shape)
    assert change_points(signal) == [12_345]
