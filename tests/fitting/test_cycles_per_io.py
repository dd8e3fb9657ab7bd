"""Cycles per I/O: arithmetic by hand, lines against statsmodels, coverage by simulation, laws."""

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, strategies as st

from fitting.errors import FittingError
from fitting.laws import cycles_per_io as laws
from fitting.laws.cores import AmdahlScaling
from fitting.laws.cycles_per_io_scaling import fit_scaling, student_draws

CORES = np.repeat([1.0, 2.0, 4.0, 8.0], 2)
shares = st.floats(0.01, 1.0)


class TestArithmetic:
    def test_by_hand(self):
        # 3 s of 2 GHz over a million I/Os.
        assert laws.cycles_per_io(3 * 2e9, 1e6) == 6000
        # 8 cores of 2 GHz, half busy, at 6000 cycles: 8e9/6000.
        assert laws.io_rate(0.5, 8, 2e9, 6000) == pytest.approx(8e9 / 6000)
        # 1 MB is 1953.125 I/Os; at 100 a second for 10 s each.
        assert laws.servers_to_sweep(1e6, 10, 100) == pytest.approx(1.953125)
        assert laws.mean_power(400, 0.5, 0.6) == pytest.approx(320)
        assert laws.grow(100, 0.1, 2) == pytest.approx(121)
        # From 100 on 4 cores to 160 with 8 threads, where 8 cores do 200: 60 of 100.
        assert laws.thread_worth(100, 160, 200) == pytest.approx(0.6)
        assert laws.thread_worth(100, 90, 200) == pytest.approx(-0.1)

    def test_nothing_is_no_number_and_never_divides(self):
        made = laws.cycles_per_io([1e9, 1e9, 0.0], [0.0, 1e3, 0.0])
        np.testing.assert_array_equal(made, [np.nan, 1e6, np.nan])
        # Work that costs nothing has no bound; cores that add nothing say nothing of threads.
        assert laws.io_rate(1, 1, 1e9, 0.5) == 2e9
        assert laws.io_rate(1, 1, 1e9, 0.0) == laws.io_rate(1, 1, 1e9, -5.0) == np.inf
        assert np.isnan(laws.thread_worth(100, 110, [100, 90])).all()

    @given(shares, shares)
    def test_more_servers_that_idle_take_more_energy(self, busy, idle):
        """Sized for the same I/O, 1/µ times the servers each draw P·(µ + i·(1 − µ))."""
        factor = 1 + idle * (1 - busy) / busy
        assert laws.mean_power(1.0, busy, idle) / busy == pytest.approx(factor)

    @given(st.floats(1e3, 1e8), st.floats(1, 1e4), st.floats(1e9, 1e22))
    def test_energy_implies_the_cycles_it_was_made_of(self, cpio, watts, data):
        servers = laws.servers_to_sweep(data, 3600.0, laws.io_rate(1.0, 16, 2e9, cpio))
        energy = servers * watts * 3600.0
        implied = energy / watts * 16 * 2e9 / (data / 512)
        assert implied == pytest.approx(cpio)


class TestBandwidth:
    AT = np.array([8e9, 4e9, 2e9, 1e9])

    def test_by_hand_of_levels_in_any_order_with_draws_as_rows(self):
        # Rises by 0, 5, 25 and 60 %: 10 % is a quarter of the way from 4 to 2 GB/s.
        cpio = 1000 * np.array([[1.0, 1.05, 1.25, 1.6], [1.0, 1.0, 1.0, 1.2]])
        for order in (np.arange(4), np.array([2, 0, 3, 1])):
            found = laws.bandwidth_at_rise(self.AT[order], cpio[:, order], 0.10)
            np.testing.assert_allclose(found, [3.5e9, 1.5e9])
        assert laws.bandwidth_at_rise(self.AT, cpio[0], 0.25) == pytest.approx(2e9)
        assert np.isnan(laws.bandwidth_at_rise(self.AT, cpio[0], 0.70))

    @given(st.floats(1e3, 1e5), st.floats(1e10, 1e13), st.floats(0.05, 0.5))
    def test_of_a_stall_that_goes_with_one_over_bandwidth(self, core, stall, rise):
        """c = core + stall/bandwidth, solved by hand, on levels fine enough for straight lines."""
        at = np.geomspace(1e9, 1e10, 4000)
        found = laws.bandwidth_at_rise(at, core + stall / at, rise)
        wanted = stall / ((1 + rise) * (core + stall / at[-1]) - core)
        if wanted < at[0]:
            assert np.isnan(found)
        else:
            assert found == pytest.approx(wanted, rel=1e-3)


def made(rng, groups, *, noise=0.03, cores=CORES, cost=(9000.0, 400.0), busy=(0.9, -0.005)):
    """Runs of equal groups: cpio and utilisation on their lines, with errors that go together."""
    codes, n = np.repeat(np.arange(groups), len(cores)), np.tile(cores, groups)
    a, b = rng.standard_normal((2, len(n)))
    cpio = (cost[0] + cost[1] * n) * (1 + noise * a)
    utilisation = (busy[0] + busy[1] * n) * (1 + noise / 3 * (0.6 * a + 0.8 * b))
    return codes, n, cpio, utilisation


class TestLines:
    def test_are_those_of_statsmodels_of_cpio_weighed(self):
        codes, n, cpio, busy = made(np.random.default_rng(1), 1)
        fit, design = fit_scaling(codes, n, cpio, busy, 1), sm.add_constant(n)
        oracle = sm.OLS(busy, design).fit()
        line, centre = fit.utilisation, fit.utilisation_centres(64.0)["projected"]
        assert [line.intercept[0], line.slope[0]] == pytest.approx(list(oracle.params))
        at = oracle.get_prediction([[1.0, 64.0]])
        error = np.sqrt(at.se_mean[0] ** 2 + oracle.mse_resid)
        assert (centre.value[0], centre.error[0]) == pytest.approx((at.predicted_mean[0], error))
        first = sm.OLS(cpio, design).fit()
        oracle = sm.WLS(cpio, design, weights=first.fittedvalues**-2).fit()
        assert [fit.cpio.intercept[0], fit.cpio.slope[0]] == pytest.approx(list(oracle.params))
        assert fit.scatter[0] == pytest.approx(np.sqrt(oracle.mse_resid))
        today, projected = (fit.cpio_centres(64.0)[name] for name in ("today", "projected"))
        at = oracle.get_prediction([[1.0, 64.0]])
        error = np.hypot(at.se_mean[0], fit.scatter[0] * at.predicted_mean[0])
        found = projected.value[0], projected.error[0]
        assert found == pytest.approx((at.predicted_mean[0], error))
        # Two runs on one core, and a new one.
        assert today.error[0] == pytest.approx(fit.scatter[0] * today.value[0] * np.sqrt(1.5))

    def test_residuals_of_the_two_lines_go_together(self):
        codes, n, cpio, busy = made(np.random.default_rng(6), 1, noise=0.05)
        fit = fit_scaling(codes, n, cpio, busy, 1)
        a = cpio / (fit.cpio.intercept[0] + fit.cpio.slope[0] * n) - 1
        b = busy - fit.utilisation.intercept[0] - fit.utilisation.slope[0] * n
        assert fit.correlation[0] == pytest.approx(a @ b / np.sqrt(a @ a * (b @ b)))
        # Those of a level law do not.
        cpio = 1000 * (1 + 0.01 * np.array([1.0, -1.0, -1.0, 1.0]))
        level = fit_scaling(np.zeros(4, int), n[::2], cpio, np.full(4, 0.5), 1)
        assert level.correlation[0] == 0.0

    def test_groups_stand_alone_in_any_order_and_ends_are_the_means_of_their_runs(self):
        codes, n, cpio, busy = made(np.random.default_rng(3), 5)
        whole = fit_scaling(codes, n, cpio, busy, 5)
        order = np.random.default_rng(4).permutation(len(n))
        again = fit_scaling(*(column[order] for column in (codes, n, cpio, busy)), 5)
        np.testing.assert_allclose(again.cpio.slope, whole.cpio.slope)
        rows = codes == 3
        alone = fit_scaling(np.zeros(rows.sum(), int), n[rows], cpio[rows], busy[rows], 1)
        assert alone.cpio.slope[0] == pytest.approx(whole.cpio.slope[3])
        assert whole.cpio_fewest[3] == pytest.approx(cpio[rows & (n == 1)].mean())
        assert whole.cpio_most[3] == pytest.approx(cpio[rows & (n == 8)].mean())
        assert whole.utilisation_most[3] == pytest.approx(busy[rows & (n == 8)].mean())
        assert ((whole.fewest == 1) & (whole.most == 8)).all()

    def test_a_line_that_falls_is_held_level(self):
        n = np.array([1.0, 2.0, 4.0])
        fit = fit_scaling(np.zeros(3, int), n, np.array([900.0, 800.0, 400.0]), n / 5, 1)
        assert fit.falls[0]
        assert fit.cpio_centres(4096.0)["projected"].value[0] == pytest.approx(700.0)

    @pytest.mark.cases(
        "cpio, busy, message",
        ([1.0, 0.0], [0.5, 0.5], "cycles per I/O of run 1 is 0"),
        ([1.0, np.nan], [0.5, 0.5], "cycles per I/O of run 1 is nan"),
        ([1.0, 2.0], [0.5, 1.2], "utilisation of run 1 is 1.2"),
        ([0.0, -3.0], [0.5, 0.5], r"cycles per I/O of run 0 is 0 \(2 of 2 are bad\)"),
    )
    def test_impossible_runs_are_refused(self, cpio, busy, message):
        with pytest.raises(FittingError, match=message):
            fit_scaling(np.zeros(2, int), np.ones(2), np.array(cpio), np.array(busy), 1)


class TestIntervals:
    def test_intervals_of_a_projected_rate_cover_as_often_as_they_say(self):
        """Runs with errors in proportion; a new run at four times the cores measured."""
        rng, groups, cores = np.random.default_rng(11), 1000, 32.0
        fit = fit_scaling(*made(rng, groups), groups)
        first, second = fit.normals(500, 7)
        cost = student_draws(fit.cpio_centres(cores)["projected"], first)
        busy = student_draws(fit.utilisation_centres(cores)["projected"], second)
        draws = laws.io_rate(np.clip(busy, 0.01, 1.0), cores, 2e9, cost)
        _, _, cost, busy = made(rng, groups, cores=np.array([cores]))
        truth = laws.io_rate(busy, cores, 2e9, cost)
        for level in (0.5, 0.9):
            lower, upper = np.quantile(draws, [0.5 - level / 2, 0.5 + level / 2], axis=1)
            # Three standard errors of 1000 groups, and what errors in proportion cost.
            assert np.mean((lower <= truth) & (truth <= upper)) == pytest.approx(level, abs=0.05)

    def test_draws_go_together_as_the_residuals_do_and_two_runs_give_no_interval(self):
        fit = fit_scaling(*made(np.random.default_rng(5), 1, noise=0.1), 1)
        first, second = fit.normals(40_000, 3)
        assert np.corrcoef(first[0], second[0])[0, 1] == pytest.approx(fit.correlation[0], abs=0.02)
        n = np.array([1.0, 8.0])
        fit = fit_scaling(np.zeros(2, int), n, np.array([900.0, 990.0]), np.array([0.9, 0.8]), 1)
        draws = student_draws(fit.cpio_centres(64.0)["projected"], fit.normals(10, 0)[0])
        assert np.isnan(draws).all()


def runs(rate, cores=CORES):
    """Runs of a rate at 2 GHz, all cores busy."""
    busy, clock = np.ones_like(cores), np.full_like(cores, 2e9)
    return laws.IoRuns(cores, rate, busy * cores * clock / rate, busy, clock)


def laws_of(given, frequency=2e9):
    return laws.fit_laws(given, floor=0.01, frequency=frequency)


def scored(given):
    return laws.score_laws(given, laws_of(given), floor=0.01)


class TestLaws:
    NOISE = 1 + 0.01 * np.array([1.0, -1.0, 0.5, -0.3, 0.8, -0.7, 0.4, -0.2])
    AMDAHLS = 1e5 * CORES / (1 + 0.08 * (CORES - 1)) * NOISE
    GUNTHERS = 1e5 * CORES / (1 + 0.05 * (CORES - 1) + 0.02 * CORES * (CORES - 1))

    def test_constant_utilisation_and_a_line_of_cpio_are_amdahls_law(self):
        given = runs(2e9 * CORES / (5000 + 500 * CORES))
        at = np.array([16.0, 64.0, 4096.0])
        slow, fast = laws_of(given), laws_of(given, 3e9)
        expected = 2e9 * at / (5000 + 500 * at)
        np.testing.assert_allclose(slow[laws.LINEAR_CPIO].rate(at), expected, rtol=1e-9)
        np.testing.assert_allclose(slow[laws.AMDAHL].rate(at), expected, rtol=1e-9)
        # Rates go with the clock.
        for name in (laws.LINEAR_CPIO, laws.AMDAHL, laws.GUNTHER):
            assert fast[name].rate(at) == pytest.approx(1.5 * slow[name].rate(at))

    @pytest.mark.parametrize(
        ("rate", "law", "parameters", "least"),
        # Without a term of the square, Gunther's law is Amdahl's.
        [(AMDAHLS, laws.AMDAHL, 2, 0.4), (GUNTHERS * NOISE, laws.GUNTHER, 3, 0.9)],
    )
    def test_the_law_that_made_the_runs_has_the_most_weight(self, rate, law, parameters, least):
        scores = scored(runs(rate))
        assert scores[laws.GUNTHER].parameters == parameters
        assert scores[law].weight > least
        assert sum(s.weight for s in scores.values()) == pytest.approx(1.0)

    def test_the_criterion_is_akaikes_and_an_interval_of_rates_that_of_times_upside_down(self):
        given = runs(self.AMDAHLS)
        law, n, k = laws_of(given)[laws.AMDAHL], len(CORES), 3
        residual = np.log(given.rate / law.rate(CORES))
        # With the correction for few runs: two parameters and the variance of a law of ln rate.
        expected = n * np.log(np.mean(residual**2)) + 2 * k * n / (n - k - 1)
        assert scored(given)[laws.AMDAHL].aicc == pytest.approx(expected, rel=1e-12)
        time = AmdahlScaling().fit(CORES, 1 / self.AMDAHLS).predict_interval([16.0], level=0.9)
        found = law.interval(16.0, 0.9)
        assert found == pytest.approx((1 / time[1][0], 1 / time[0][0]), rel=1e-9)
        assert found[0] < law.rate(np.array([16.0]))[0] < found[1]

    def test_the_held_out_error_is_that_at_the_most_cores(self):
        scores = scored(runs(self.GUNTHERS))
        assert scores[laws.GUNTHER].held_out == pytest.approx(0, abs=1e-6)
        fewer = CORES < 8
        model = AmdahlScaling().fit(CORES[fewer], 1 / self.GUNTHERS[fewer])
        wanted = 1 / model.predict([8.0])[0] / self.GUNTHERS[-1] - 1
        assert scores[laws.AMDAHL].held_out == pytest.approx(abs(wanted))

    def test_few_core_counts_and_runs(self):
        two, one = np.array([1.0, 1.0, 2.0]), np.ones(3)
        assert set(laws_of(runs(1e5 * two, cores=two))) == {laws.LINEAR_CPIO, laws.AMDAHL}
        assert laws_of(runs(1e5 * one, cores=one)) == {}
        few = np.array([1.0, 2.0, 4.0, 8.0])
        scores = scored(runs(1e5 * few / (1 + 0.1 * few), cores=few))
        assert all(np.isnan(s.aicc) for s in scores.values())
        assert np.isfinite(scores[laws.AMDAHL].held_out)
        # However far out, a rate has two ends.
        rate = 1e5 * few * np.array([1.0, 1.3, 0.7, 1.25])
        lower, upper = laws_of(runs(rate, cores=few))[laws.AMDAHL].interval(4096.0, 0.90)
        assert 0 < lower < upper < np.inf
