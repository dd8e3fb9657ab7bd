"""Arrivals in bursts: totals kept, dispersion and autocorrelation of known processes."""

from __future__ import annotations

import numpy as np
import pytest

from fitting.burstiness import PLACEMENTS, Windows, fit_cascade
from fitting.errors import FittingError

RNG = np.random.default_rng(3)
BUSY = np.repeat(RNG.random(300) < 0.2, 100)
PROCESSES = {
    "constant": np.full(8000, 0.013),
    "poisson": RNG.exponential(1.0, 30_000),
    "lognormal": RNG.lognormal(0, 1.0, 30_000),
    "on and off": RNG.exponential(np.where(BUSY, 0.01, 1.0)),
}


def fitted(gaps):
    times = np.cumsum(gaps) - gaps[0]
    n = len(times)
    windows = Windows.of(times[-1] * n / (n - 1), n)
    counts = np.zeros(windows.finest, dtype=np.int64)
    for part in np.array_split(times, 7):
        windows.counts(part, counts)
    return times, counts, fit_cascade(windows, counts, np.diff(times))


def placed(cascade, gaps, seed, **options):
    rng = np.random.default_rng(seed)
    course = cascade.course(rng, **options)
    return cascade.place(course, 0.0, rng.permutation(gaps), rng, **options)


def variation(times):
    gaps = np.diff(times)
    return gaps.std() / gaps.mean()


def dispersion(times, window):
    counts = np.bincount((times / window).astype(int))[:-1]
    return counts.var() / counts.mean()


@pytest.mark.parametrize("name", PROCESSES)
class TestEveryProcess:
    def test_no_arrival_is_lost_and_all_are_in_order(self, name):
        times, counts, cascade = fitted(PROCESSES[name])
        made = placed(cascade, PROCESSES[name], 1)
        assert counts.sum() == len(times) == len(made)
        assert (np.diff(made) >= 0).all()
        assert 0 <= made[0] <= made[-1] <= cascade.windows.duration_s

    def test_variation_of_gaps_is_kept(self, name):
        times, _, cascade = fitted(PROCESSES[name])
        found = np.mean([variation(placed(cascade, PROCESSES[name], s)) for s in range(8)])
        assert found == pytest.approx(variation(times), rel=0.15, abs=0.05)

    def test_dispersion_of_counts_is_kept(self, name):
        times, _, cascade = fitted(PROCESSES[name])
        for arrivals in (20, 200):
            window = arrivals * PROCESSES[name].mean()
            found = [dispersion(placed(cascade, PROCESSES[name], s), window) for s in range(8)]
            assert np.mean(found) == pytest.approx(dispersion(times, window), rel=0.4, abs=0.1)

    def test_counts_of_windows_come_in_their_own_order_when_asked_for(self, name):
        _, counts, cascade = fitted(PROCESSES[name])
        made = placed(cascade, PROCESSES[name], 2, in_order=True)
        kept = len(cascade.counts)
        width = cascade.windows.duration_s / kept
        found = np.bincount(np.minimum((made / width).astype(int), kept - 1), minlength=kept)
        assert np.abs(found - counts.reshape(kept, -1).sum(axis=1)).sum() <= 2


@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_one_pace_is_kept_in_windows_that_halving_does_not_meet(jitter):
    """A thousand requests a second, each up to a tenth of a gap early or late."""
    rng = np.random.default_rng(5)
    gaps = np.diff((np.arange(20_001) + rng.uniform(-jitter, jitter, 20_001)) / 1000)
    times, _, cascade = fitted(gaps)
    made = placed(cascade, gaps, 2)
    assert cascade.placement == PLACEMENTS.index("paced")
    assert variation(made) == pytest.approx(variation(times), rel=0.15, abs=1e-6)
    # An arrival at the edge of a window may be on either side of it.
    assert dispersion(made, 0.0377) < 0.02


def test_bursts_have_no_pace():
    assert fitted(PROCESSES["on and off"])[2].placement != PLACEMENTS.index("paced")


def test_periods_keep_their_place():
    gaps = np.concatenate([np.full(4000, 1.0), np.full(400, 10.0)])
    _, _, cascade = fitted(gaps)
    assert cascade.windows.periods == 4
    for seed in range(5):
        course = cascade.course(np.random.default_rng(seed))
        by_period = course.reshape(4, -1).sum(axis=1)
        assert by_period.tolist() == cascade.counts.reshape(4, -1).sum(axis=1).tolist()


def test_counts_of_other_windows_are_refused():
    with pytest.raises(FittingError, match="windows"):
        fit_cascade(Windows.of(10.0, 100), np.zeros(3), np.ones(99))
