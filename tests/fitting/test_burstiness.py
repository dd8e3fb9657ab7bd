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
        course = cascade.counts[cascade.course(np.random.default_rng(seed))]
        by_period = course.reshape(4, -1).sum(axis=1)
        assert by_period.tolist() == cascade.counts.reshape(4, -1).sum(axis=1).tolist()


def test_counts_of_other_windows_are_refused():
    with pytest.raises(FittingError, match="windows"):
        fit_cascade(Windows.of(10.0, 100), np.zeros(3), np.ones(99))


def test_load_that_goes_on_is_met_by_windows_that_halves_are_not():
    """Two rates that last for seconds each, in windows that no halving ends at."""
    rng = np.random.default_rng(8)
    rate = np.repeat(np.tile([50.0, 2000.0], 50), rng.integers(1, 20, 100) * np.tile([10, 60], 50))
    times, _, cascade = fitted(rng.exponential(1 / rate))
    gaps = np.diff(times)
    for window in (0.13, 0.31):
        found = [dispersion(placed(cascade, gaps, seed), window) for seed in range(8)]
        assert np.mean(found) == pytest.approx(dispersion(times, window), rel=0.1)


def test_arrivals_that_share_ticks_are_put_back_on_them():
    rng = np.random.default_rng(9)
    gaps = np.diff(np.floor(np.cumsum(rng.exponential(0.05, 20_000))))
    times, _, cascade = fitted(gaps)
    made = placed(cascade, gaps, 1)
    assert cascade.tick_s == 1.0
    assert (made == np.floor(made)).all()
    assert variation(made) == pytest.approx(variation(times), rel=0.05)
    assert dispersion(made, 1.0) == pytest.approx(1.0, abs=0.15)


def test_two_fixed_rates_together_are_a_cycle():
    times = np.sort(np.concatenate([np.arange(7000) / 350, 0.001 + np.arange(3000) / 150]))
    gaps = np.diff(times)
    _, _, cascade = fitted(gaps)
    made = placed(cascade, gaps, 1)
    assert len(cascade.lateness.cycle) == 10
    assert np.diff(made)[20:] == pytest.approx(gaps[21:], abs=1e-5)


def test_a_long_gap_is_left_whole():
    rng = np.random.default_rng(10)
    gaps = rng.exponential(0.01, 8000)
    gaps[5000] = 60.0
    _, _, cascade = fitted(gaps)
    assert [np.diff(placed(cascade, gaps, s)).max() for s in range(5)] == pytest.approx(
        [60.0] * 5, rel=0.02
    )


def test_small_gaps_follow_large_ones_where_they_did():
    gaps = np.where(np.arange(20_000) % 2, 0.001, 0.009) * RNG.uniform(0.8, 1.2, 20_000)
    cascade, rng = fitted(gaps)[2], np.random.default_rng(3)
    drawn = cascade.draw_gaps(20_000, rng)
    made = np.diff(cascade.place(cascade.course(rng), 0.0, drawn, rng))
    assert np.corrcoef(made[1:], made[:-1])[0, 1] < -0.8
