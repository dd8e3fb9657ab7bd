"""The few numbers of a sequence of arrivals against numpy's, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from fitting.arrival_character import _dispersion, character

LAGS, WINDOWS = (1, 2, 4, 8, 16, 32), [2**0.5 * 4**k for k in range(6)]


def bursts(n=20_000):
    """Gaps that stay short or long for some time."""
    rng = np.random.default_rng(8)
    return rng.exponential(np.repeat(rng.choice([0.01, 1.0], n // 20), 20))


def test_all_are_those_of_numpy():
    gaps = bursts()
    time, mean = np.cumsum(gaps), gaps.mean()
    expected = [2 * np.log(0.02 + gaps.std() / mean)]
    for arrivals in WINDOWS:
        whole = int(time[-1] // (arrivals * mean))
        counts = np.histogram(time, np.arange(whole + 1) * arrivals * mean)[0]
        expected.append(np.log(0.02 + counts.var() / counts.mean()) / 2)
    scaled = (gaps - mean) / gaps.std()
    expected += [(scaled[:-k] * scaled[k:]).mean() / 2 for k in LAGS]
    assert character(gaps) == pytest.approx(expected, rel=1e-9)


def test_the_unit_of_time_is_of_no_account():
    assert character(1e-6 * bursts()) == pytest.approx(character(bursts()), rel=1e-6)


def test_a_steady_beat_has_no_variation_and_no_memory():
    found = character(np.full(4096, 0.5))
    assert found[0] == pytest.approx(2 * np.log(0.02))
    assert found[-6:].tolist() == [0.0] * 6


@pytest.mark.parametrize(("arrivals", "remembered"), [(64, False), (65, True)])
def test_few_arrivals_are_as_without_memory(arrivals, remembered):
    found = character(bursts()[:arrivals])
    assert found[-6:].any() == remembered
    # Below eight windows of 16 the counts are taken for those of chance.
    assert found[3:7] == pytest.approx(np.full(4, np.log(1.02) / 2))


@pytest.mark.parametrize(("apart", "remembered"), [(0.1, 0.5), (1e-6, 0.0), (1e-5, 0.5)])
def test_gaps_that_vary_by_more_than_a_millionth_have_a_memory(apart, remembered):
    # Short and long by turns: those of one lag are as unlike as can be, all others as like.
    found = character(1e6 + 1e6 * apart * np.tile([-1, 1], 50))
    assert found[-6:] == pytest.approx([-remembered, *[remembered] * 5])


@pytest.mark.parametrize(
    ("arrivals", "end", "expected"),
    [
        # Three or none by turns: of eight windows, a mean of 1.5 and a variance of 2.25.
        ([0.5, 0.5, 0.5, 2, 2, 2.9, 4, 4, 4, 6, 6, 6], 8.1, 1.5),
        # Of seven, what comes of chance.
        ([0.5, 0.5, 0.5, 2, 2, 2.9, 4, 4, 4, 6, 6, 6], 7.9, 1.0),
        # One in nine windows, or none before the last, which is not whole.
        *(([0.5], 9.5, 8 / 9), ([], 9.5, 1.0), ([8.5], 9.5, 8 / 9)),
    ],
)
def test_dispersion_by_hand(arrivals, end, expected):
    assert _dispersion(0.5 * np.array([*arrivals, end]), 0.5) == pytest.approx(expected)
