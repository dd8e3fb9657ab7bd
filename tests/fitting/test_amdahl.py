"""Amdahl's law in frequency: worked examples, and what a core alone can do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from strategies import GHZ, amdahl_times, sweeps

from fitting.amdahl import AmdahlCpi, AmdahlEfficiency, AmdahlRate, AmdahlTime
from fitting.models import fit

FAR = np.array([0.4, 0.8, 1.1, 2.0, 3.3, 4.8, 9.0, 100.0]) * GHZ


def one(model, f, metric):
    f = np.asarray(f, dtype=float)
    return fit(model, np.zeros(len(f), dtype=int), f, np.asarray(metric, dtype=float), 1)


def test_time_worked_by_hand():
    # 10 s fixed and 60e9 cycles: 60 s at 1.2 GHz, 40 s at 2 GHz, 30 s at 3 GHz.
    fitted = one(AmdahlTime(), [1.2e9, 2e9], [60, 40])
    np.testing.assert_allclose(fitted.parameters()["t_fixed_s"], [10], rtol=1e-13)
    np.testing.assert_allclose(fitted.parameters()["work_cycles"], [60e9], rtol=1e-13)
    np.testing.assert_allclose(fitted.predict(3e9), [30], rtol=1e-13)
    np.testing.assert_allclose(fitted.limit(), [10], rtol=1e-13)
    np.testing.assert_allclose(fitted.prediction(3e9).limit_share, [1 / 3], rtol=1e-13)


def test_throughput_is_one_over_time():
    fitted = one(AmdahlRate(), [1.2e9, 2e9], [1 / 60, 1 / 40])
    np.testing.assert_allclose(fitted.predict(3e9), [1 / 30], rtol=1e-13)
    np.testing.assert_allclose(fitted.limit(), [0.1], rtol=1e-13)


def test_cpi_worked_by_hand():
    # One cycle of the core and half a nanosecond of stall an instruction.
    fitted = one(AmdahlCpi(), [1.2e9, 2e9], [1.6, 2.0])
    np.testing.assert_allclose(fitted.parameters()["cpi_core"], [1], rtol=1e-13)
    np.testing.assert_allclose(fitted.parameters()["stall_s_per_instruction"], [5e-10], rtol=1e-13)
    np.testing.assert_allclose(fitted.predict(3e9), [2.5], rtol=1e-13)
    assert fitted.limit()[0] == np.inf


def test_energy_that_rises_with_the_clock_is_kept():
    # 30 J less 12e9 J·Hz over the clock: 20 J at 1.2 GHz, 24 J at 2 GHz.
    fitted = one(AmdahlEfficiency(), [1.2e9, 2e9], [1 / 20, 1 / 24])
    np.testing.assert_allclose(fitted.parameters()["e_fixed_j"], [30], rtol=1e-13)
    np.testing.assert_allclose(fitted.parameters()["e_clock_j_hz"], [-12e9], rtol=1e-13)
    np.testing.assert_allclose(fitted.predict(3e9), [1 / 26], rtol=1e-13)


@given(amdahl_times())
def test_time_and_cpi_are_one_law(truth):
    f, fixed, work = truth
    instructions = 1e9
    time = one(AmdahlTime(), f, fixed + work / f)
    cpi = one(AmdahlCpi(), f, (fixed * f + work) / instructions)
    np.testing.assert_allclose(cpi.predict(FAR) * instructions / FAR, time.predict(FAR), rtol=1e-7)


@given(amdahl_times())
def test_parameters_are_recovered_in_hz_and_in_ghz(truth):
    f, fixed, work = truth
    for unit in (1.0, GHZ):
        fitted = one(AmdahlTime(), f / unit, fixed + work / f)
        np.testing.assert_allclose(fitted.parameters()["t_fixed_s"], [fixed], rtol=1e-9)
        np.testing.assert_allclose(fitted.parameters()["work_cycles"], [work / unit], rtol=1e-9)


@given(sweeps())
def test_bounded_time_never_rises_nor_falls_faster_than_the_clock_rises(sweep):
    time = one(AmdahlTime(), *sweep).predict(FAR)
    ratio = time[1:] / time[:-1]
    assert (ratio <= 1 + 1e-12).all()
    assert (ratio >= FAR[:-1] / FAR[1:] * (1 - 1e-12)).all()


@given(sweeps())
def test_bounded_throughput_never_falls_nor_rises_faster_than_the_clock(sweep):
    rate = one(AmdahlRate(), *sweep).predict(FAR)
    ratio = rate[1:] / rate[:-1]
    assert (ratio >= 1 - 1e-12).all()
    assert (ratio <= FAR[1:] / FAR[:-1] * (1 + 1e-12)).all()


@given(sweeps())
def test_bounded_cpi_never_falls_nor_rises_faster_than_the_clock(sweep):
    cpi = one(AmdahlCpi(), *sweep).predict(FAR)
    ratio = cpi[1:] / cpi[:-1]
    assert (ratio >= 1 - 1e-12).all()
    assert (ratio <= FAR[1:] / FAR[:-1] * (1 + 1e-12)).all()


@pytest.mark.parametrize("model", [AmdahlTime, AmdahlRate, AmdahlCpi])
def test_what_a_core_alone_cannot_do_is_held_at_the_bound_or_told(model):
    f = np.array([1.0, 1.5, 2.0, 3.0]) * GHZ
    impossible = {AmdahlTime: f**-1.5, AmdahlRate: f**1.5, AmdahlCpi: f**-0.5}[model]
    held, free = one(model(), f, impossible), one(model(nonnegative=False), f, impossible)
    assert min(v[0] for v in held.parameters().values()) == 0
    assert min(v[0] for v in free.parameters().values()) < 0
    # Time per unit of work ends at a finite clock, where no rate or time is left to answer.
    assert np.isnan(free.predict(1e12))
    assert np.isnan(free.limit())
    assert held.predict(1e12)[0] > 0


def test_a_bound_moves_nothing_where_it_is_not_reached():
    f = np.array([1.2, 1.6, 2.0, 2.4]) * GHZ
    time = 10 + 6e10 / f + np.array([0.1, -0.2, 0.1, 0.1])
    held, free = one(AmdahlTime(), f, time), one(AmdahlTime(nonnegative=False), f, time)
    np.testing.assert_array_equal(held.interval(3e9), free.interval(3e9))
