"""Pooled posteriors: simulation-based calibration, what neighbours are worth, invariances.

Talts et al. (2018), https://arxiv.org/abs/1804.06788: where cell, curve and noise are drawn from
the prior and the runs from them, the posterior's cdf at the truth is uniform. Here the truth is the
mean of new runs at the target. The path of the model error is simulated step by step from the
differential equation, not from the covariance under test.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import ndtr
from scipy.stats import binomtest, chisquare, kstest
from strategies import GHZ, POWER_PRIOR, TIME_PRIOR, cdf, prior_of

from fitting.bayes import pooling
from fitting.bayes.pooling import (
    NO_POOLING,
    TIME_POOLING,
    CmosPowerCurve,
    Neighbours,
    Pooling,
    TimeCurve,
    posterior_cells,
)
from fitting.bayes.posterior import SHARED_NOISE, FrequencyTarget, MeasuredSteps
from fitting.bayes.prediction import project_curve
from fitting.bayes.priors import DynamicShare, StalledShare, StalledSharePrior
from fitting.errors import FittingError

ENDS = (0.05, 0.5, 0.95)
STEPS = np.array([1.5, 2.2, 3.0]) * GHZ
FEW = settings(max_examples=max(4, settings.default.max_examples // 2))

# Weights are given here, so that tuning what is shipped moves no test.
STRONG = Pooling(reach=1.5, shipped=0.3, other=0.1, others=3.0, cluster_evidence=6.0, rounds=2)
TIME = TimeCurve(prior=TIME_PRIOR, pooling=STRONG)
POWER = CmosPowerCurve(prior=POWER_PRIOR, pooling=STRONG)
CURVES = {"time": TIME, "power": POWER}
curves = pytest.mark.parametrize("kind", CURVES)


def alone(kind):
    return replace(CURVES[kind], pooling=NO_POOLING)


class Table(NamedTuple):
    """Rows of runs, and a target and neighbours for each group."""

    group: np.ndarray
    frequency: np.ndarray
    log_value: np.ndarray
    target: FrequencyTarget
    neighbours: Neighbours

    def asked(self):
        groups = len(self.target.frequency)
        return MeasuredSteps.of(*self[:3], groups), self.target, self.neighbours

    def rows(self, order):
        return Table(*(column[order] for column in self[:3]), *self[3:])

    def only(self, groups):
        groups = np.asarray(groups)
        rank = np.full(len(self.target.frequency), -1)
        rank[groups] = np.arange(len(groups))
        mine = self.rows(rank[self.group] >= 0)
        neighbours = Neighbours(*(part[groups] for part in self.neighbours))
        target = FrequencyTarget._make(part[groups] for part in self.target)
        return Table(rank[mine.group], *mine[1:3], target, neighbours)

    def plus(self, log_value):
        return self._replace(log_value=self.log_value + log_value)


def projected(curve, table):
    return project_curve(curve, *table.asked(), ENDS)


def cells_of(curve, table):
    """Likelihood and weight of each group's cells, in the order of the groups."""
    every, found = np.arange(len(table.target.frequency)), {}
    for cells in posterior_cells(curve, *table.asked(), every):
        for row, group in enumerate(cells.groups):
            found[int(group)] = (cells.evidence.likelihood[row], cells.weight[row])
    assert sorted(found) == every.tolist()
    return [found[group] for group in every]


def check_same(found, expected, rtol=1e-7):
    """Two answers, to the precision of sums in another order; quantiles to what is sought."""
    spread = np.sqrt(expected.mixture.moments()[1])
    for mine, theirs in zip(found.mixture.moments(), expected.mixture.moments(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=1e-9)
    assert (np.abs(found.quantiles - expected.quantiles) <= 1e-2 * spread).all()
    for part in ("fit", "form", "noise", "pulled"):
        mine, theirs = getattr(found, part), getattr(expected, part)
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=1e-9)


def taken(made, groups):
    mixture, quantiles, *rest = made
    return type(made)(mixture.take(groups), quantiles[:, groups], *(p[groups] for p in rest))


def log_time(share, frequency):
    """Amdahl's law, 0 at 3 GHz."""
    return np.log(share + (1 - share) * 3e9 / frequency)


def log_power(share, frequency, exponent=2.5):
    return np.log(share + (1 - share) * (frequency / 3e9) ** exponent)


def mixed_table(kind, groups, seed, size=1):
    """Random curves through two to four steps with some repeats, in clusters of ``size``."""
    rng = np.random.default_rng(seed)
    rows = []
    # A few designs, as tables of sweeps have them.
    designs = [np.sort(rng.choice(np.arange(10, 30), n, replace=False)) * 1e8 for n in (2, 3, 2, 4)]
    for group in range(groups):
        f = np.repeat(designs[rng.integers(4)], 1 + (group % 3 == 0))
        clean = (log_time if kind == "time" else log_power)(rng.uniform(0, 1), f)
        rows.append((np.full(len(f), group), f, clean + 0.01 * rng.standard_normal(len(f))))
    columns = [np.concatenate(c) for c in zip(*rows, strict=True)]
    target = FrequencyTarget(
        rng.choice([0.9e9, 2.05e9, 3.5e9], groups), rng.choice([1.0, 3.0], groups)
    )
    position = np.log1p(np.arange(groups) % size)
    return Table(
        *columns, target, Neighbours(cluster := np.arange(groups) // size, position, cluster)
    )


def swept(value, target, size=1, frequency=STEPS):
    """One run at each step of each group, in clusters of ``size``; ``value`` is (groups, steps)."""
    groups, steps = value.shape
    group = np.arange(groups)
    neighbours = Neighbours(group // size, np.log1p(group % size), group // size)
    rows = (np.repeat(group, steps), np.tile(frequency, groups), value.ravel())
    return Table(*rows, FrequencyTarget(np.full(groups, target), np.ones(groups)), neighbours)


# Simulation-based calibration.

DRAWS = 8000
# By chance a right model falls short of it once in a thousand seeds.
LEAST = 0.001
# MeasuredSteps (GHz) with their runs, target and its runs: above, below and between the steps.
DESIGNS = (
    ((1.5, 2.5), (1, 1), 3.5, 1),
    ((2.0, 2.4), (3, 2), 1.1, 3),
    ((1.2, 1.8, 2.6), (1, 1, 1), 3.6, 1),
    ((1.0, 1.9, 3.4), (2, 1, 4), 2.4, 2),
)


def log_shapes(law, cell, clock, rng):
    """ln y of drawn cells at shares of the highest frequency, by the formula of their law.

    Inside its cell a stalled share is normal, and the curve is straight in it.
    """
    if isinstance(law, StalledShare):
        stalled, q = law.share[cell][:, None], law.overlap[cell][:, None]
        time = stalled + (1 - stalled) * clock**-q
        moved = law.spread[cell] * rng.standard_normal(len(cell))
        return (np.log(time) + moved[:, None] * (1 - clock**-q) / time) / q
    dynamic, slope = law.share[0, cell][:, None], law.slope[cell][:, None]
    voltage = np.maximum(law.prior.lowest_voltage, 1 + slope * (clock - 1))
    return np.log((1 - dynamic) + dynamic * clock * voltage**2)


def wandered(rng, scale, u):
    """Paths at distances u of a curve that sets out flat from 0 with a slope that does a walk."""
    path = np.zeros((len(scale), len(u)))
    for side in (1, -1):
        level, slope, at = np.zeros(len(scale)), np.zeros(len(scale)), 0.0
        for i in np.argsort(side * u):
            if side * u[i] <= 0:
                continue
            h, at = side * u[i] - at, side * u[i]
            first, second = rng.standard_normal((2, len(scale)))
            # Increments of (∫W, W) over h: variances h³/3 and h, covariance h²/2.
            level = level + h * slope + scale * np.sqrt(h) * h * (first / 2 + second / np.sqrt(12))
            slope = slope + scale * np.sqrt(h) * first
            path[:, i] = level
    return path


def simulated(kind):
    """Runs of groups drawn from the prior, and the mean of new runs of each at its target."""
    rng, size = np.random.default_rng(20180418), DRAWS // len(DESIGNS)
    rows, truth, target = [], [], []
    for number, (steps, runs, asked, asked_runs) in enumerate(DESIGNS):
        frequency = np.array([*steps, asked]) * GHZ
        reference = frequency[:-1].max(keepdims=True)
        law = StalledShare(reference, TIME_PRIOR)
        if kind == "power":
            law = DynamicShare(reference, np.ones(1), POWER_PRIOR)
        grid, prior = law.grid, prior_of(law.grid)[0]
        drawn = rng.choice(prior.size, size, p=prior.ravel())
        shape, scale = np.unravel_index(drawn, prior.shape)
        drift = wandered(rng, grid.drift[shape, scale], np.log(frequency / reference))
        lowest = frequency[:-1].min()
        for width, ratio in (
            (grid.beyond, frequency / reference),
            (grid.below, lowest / frequency),
        ):
            out = width * grid.drift[shape, scale] * rng.standard_normal(size)
            drift += out[:, None] * np.sqrt(np.log(np.maximum(ratio, 1.0)))
        sigma = grid.noise[scale][:, None]
        shared = sigma * np.sqrt(SHARED_NOISE) * rng.standard_normal(drift.shape)
        own = sigma * np.sqrt(1 - SHARED_NOISE)
        # The level is anything.
        level = rng.uniform(-9, 9, (size, 1))
        at_step = level + log_shapes(law, shape, frequency / reference, rng) + drift + shared
        for i, count in enumerate(runs):
            value = at_step[:, [i]] + own * rng.standard_normal((size, count))
            group = np.repeat(number * size + np.arange(size), count)
            rows.append((group, np.full(len(group), frequency[i]), value.ravel()))
        truth.append(at_step[:, -1] + (own * rng.standard_normal((size, asked_runs))).mean(axis=1))
        target.append(np.tile([frequency[-1], asked_runs], (size, 1)))
    columns = (np.concatenate(column) for column in zip(*rows, strict=True))
    apart = Neighbours(np.arange(DRAWS), np.zeros(DRAWS), np.arange(DRAWS))
    return Table(*columns, FrequencyTarget(*np.concatenate(target).T), apart), np.concatenate(truth)


@curves
def test_ranks_of_the_truth_are_uniform_and_kept_by_a_projection(kind):
    (table, truth), rank = simulated(kind), np.empty(DRAWS)
    for cells in posterior_cells(alone(kind), *table.asked(), np.arange(DRAWS)):
        found = cells.evidence
        miss = truth[cells.groups][:, None, None] - found.mean
        below = ndtr(miss / np.sqrt(found.variance)[found.design])
        rank[cells.groups] = np.einsum("gts,gts->g", cells.weight, below)
    # All together, and for each design by itself.
    for part in (rank, *np.split(rank, len(DESIGNS))):
        counts, _ = np.histogram(part, 20, (0, 1))
        assert chisquare(counts).pvalue > LEAST
        assert kstest(part, "uniform").pvalue > LEAST
    # A projection gathers the cells into few components: what is left of the uniformity.
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    made = project_curve(alone(kind), *table.asked(), levels)
    for level, quantile in zip(levels, made.quantiles, strict=True):
        assert binomtest(int((truth <= quantile).sum()), DRAWS, level).pvalue > LEAST
    assert np.sqrt(((cdf(made.mixture, truth) - rank) ** 2).mean()) < 0.01
    middle, variance = made.mixture.moments()
    np.testing.assert_allclose(made.fit + made.form + made.noise, variance, rtol=1e-9)
    squares = (truth - middle) ** 2 / variance
    # The mean of squares that are 1 on average, within four of its own standard errors.
    assert abs(squares.mean() - 1) < 4 * squares.std() / np.sqrt(DRAWS)


@curves
class TestEitherCurve:
    @FEW
    @given(seed=st.integers(0, 2**32), size=st.integers(1, 4))
    def test_without_pooling_a_group_is_alone(self, kind, seed, size):
        table = mixed_table(kind, 8, seed, size)
        together = projected(alone(kind), table)
        np.testing.assert_allclose(together.pulled, 0, atol=1e-12)
        for group in range(8):
            one = table.only([group])
            check_same(taken(together, [group]), projected(alone(kind), one))
        # A table of one group has nothing to pool.
        check_same(projected(CURVES[kind], one), projected(alone(kind), one))

    @pytest.mark.parametrize("size", [1, 6])
    def test_prior_of_a_group_does_not_know_its_own_runs(self, kind, size):
        # Posteriors are made priors once; what they were made from holds no likelihood of others.
        once = replace(STRONG, cluster_evidence=0.0, rounds=1)
        curve = replace(CURVES[kind], pooling=once)
        table = mixed_table(kind, 12, 21, size)
        # The top step stays: it is what the cluster's least power is taken from.
        own = (table.group == 7) & (table.frequency < table.frequency[table.group == 7].max())
        moved = table.plus(own * np.random.default_rng(22).normal(0, 0.05, len(own)))
        before, after = cells_of(curve, table), cells_of(curve, moved)
        assert np.abs(after[7][1] - before[7][1]).max() > 1e-3

        def priors(group):
            """Priors of some cells, of which the posterior is the product with the likelihood."""
            sure = (before[group][0] > 1e-60) & (after[group][0] > 1e-60)
            assert sure.mean() > 0.3
            made = [w[sure] / likelihood[sure] for likelihood, w in (before[group], after[group])]
            return [prior / prior.sum() for prior in made]

        np.testing.assert_allclose(*priors(7), rtol=1e-9, atol=1e-15)
        # A neighbour's prior, and with it its posterior, does know them.
        one, other = priors(6 if size > 1 else 2)
        assert np.abs(one - other).max() > 1e-9

    def test_what_pooling_moved_is_the_pooled_mean_less_the_mean_alone(self, kind):
        # Clusters of one: in a cluster the power law's static watts are others.
        table = mixed_table(kind, 30, 51)
        pooled, apart = projected(CURVES[kind], table), projected(alone(kind), table)
        moved = pooled.mixture.moments()[0] - apart.mixture.moments()[0]
        np.testing.assert_allclose(pooled.pulled, moved, rtol=1e-9, atol=1e-12)
        assert np.abs(moved).max() > 1e-4

    def test_without_weight_other_clusters_are_of_no_account(self, kind):
        curve = replace(CURVES[kind], pooling=replace(STRONG, other=0.0, others=0.0))
        table = mixed_table(kind, 20, 71, size=5)
        together = projected(curve, table)
        for groups in np.arange(20).reshape(4, 5):
            check_same(taken(together, groups), projected(curve, table.only(groups)))

    def test_order_of_rows_and_units_are_of_no_account(self, kind):
        table = mixed_table(kind, 25, 81, size=5)
        made = projected(CURVES[kind], table)
        shuffled = table.rows(np.random.default_rng(82).permutation(len(table.group)))
        np.testing.assert_array_equal(projected(CURVES[kind], shuffled).quantiles, made.quantiles)
        unit = np.log(1000)
        other = projected(CURVES[kind], table.plus(unit))
        shifted = other.mixture._replace(mean=other.mixture.mean - unit)
        other = other._replace(mixture=shifted, quantiles=other.quantiles - unit)
        check_same(made, other, rtol=1e-5)
        target = table.target._replace(frequency=table.target.frequency / GHZ)
        other = table._replace(frequency=table.frequency / GHZ, target=target)
        check_same(made, projected(CURVES[kind], other), rtol=1e-5)

    # More groups than the sample and the chunks hold: alone, in clusters, and in one cluster.
    @pytest.mark.parametrize(("groups", "size"), [(720, 1), (720, 9), (620, 620)])
    def test_order_of_groups_is_of_no_account(self, kind, groups, size):
        table = mixed_table(kind, groups, 91, size)
        order = np.random.default_rng(92).permutation(groups)
        one, other = projected(CURVES[kind], table), projected(CURVES[kind], table.only(order))
        assert not np.isnan(one.quantiles).any()
        check_same(taken(one, order), other, rtol=1e-6)

    def test_groups_without_two_steps_or_a_target_are_nan_and_pull_nobody(self, kind):
        table = mixed_table(kind, 12, 99, size=3)
        lone = (table.group == 4) & (table.frequency > table.frequency[table.group == 4].min())
        table.target.frequency[[0, 8]] = np.nan
        # Group 11 has no rows at all.
        table = table.rows(~lone & (table.group != 11))
        made = projected(CURVES[kind], table)
        unknown = [0, 4, 8, 11]
        for part in (
            made.quantiles[1],
            made.mixture.moments()[0],
            made.fit,
            made.form,
            made.pulled,
        ):
            assert np.flatnonzero(np.isnan(part)).tolist() == unknown
        known = np.setdiff1d(np.arange(12), unknown)
        check_same(taken(made, known), projected(CURVES[kind], table.only(known)))
        nothing = swept(np.zeros((3, 1)), 2e9, 1, STEPS[:1])
        assert np.isnan(projected(CURVES[kind], nothing).quantiles).all()


# What neighbours are worth.


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_pooled_times_of_equal_programs_are_nearer_to_the_truth(share, size):
    # 80 programs of one stalled share that two noisy steps hardly show.
    rng, frequency = np.random.default_rng(41), np.array([1.5, 2.4]) * GHZ
    value = log_time(share, frequency) + 0.01 * rng.standard_normal((80, 2))
    table = swept(value, 3.6e9, size, frequency)
    truth = log_time(share, 3.6e9)
    # Without what hides the share: little model error, and no overlap of the core with memory.
    plain = {"overlap": (1.0,), "overlap_weight": (1.0,), "beyond": 0.0, "shares": 60}
    small = {"drift_floor": 0.01, "drift_of_stalls": 0.1, "wander": (1.0,), "wander_weight": (1.0,)}
    prior = replace(TIME_PRIOR, **plain, **small)
    kinds = [TimeCurve(prior=prior, pooling=weights) for weights in (STRONG, NO_POOLING)]
    made = [projected(curve, table).quantiles for curve in kinds]
    error = [np.sqrt(np.mean((quantiles[1] - truth) ** 2)) for quantiles in made]
    width = [np.mean(quantiles[2] - quantiles[0]) for quantiles in made]
    assert error[0] < 0.8 * error[1]
    # And narrower, without losing the truth.
    assert width[0] < 0.9 * width[1]
    assert np.mean((made[0][0] < truth) & (truth < made[0][2])) > 0.85


@pytest.mark.parametrize("size", [1, 10])
def test_a_group_is_pulled_to_where_its_neighbours_are(size):
    # The steps of group 0 are too near each other to say much; the others show what they are.
    close = np.array([2.9, 2.95, 3.0]) * GHZ
    pulled = []
    for share in (0.02, 0.9):
        table = swept(np.tile(log_time(share, STEPS), (10, 1)), 4e9, size)
        table.frequency[:3], table.log_value[:3] = close, log_time(0.4, close)
        pulled.append(projected(TIME, table).pulled[0])
    # Core-bound neighbours say that the time goes on falling, memory-bound ones that it ends.
    assert pulled[0] < -1e-3
    assert pulled[1] > 1e-3


def test_core_counts_that_share_static_watts_show_the_voltage_slope():
    # P = S + n·D·g(f): one core count cannot tell static watts from a low exponent, eight can.
    rng, cores = np.random.default_rng(61), 2.0 ** np.arange(8)
    measured = np.array([1.6, 2.0, 2.4, 3.4]) * GHZ
    errors = []
    for _ in range(12):
        static, slope = rng.uniform(20, 60), rng.uniform(0.2, 1.6)
        clock = measured / 2.4e9
        voltage = np.maximum(POWER_PRIOR.lowest_voltage, 1 + slope * (clock - 1))
        log_watts = np.log(static + 2.0 * cores[:, None] * clock * voltage**2)
        noisy = log_watts[:, :3] + 0.02 * rng.standard_normal((8, 3))
        table = swept(noisy, 3.4e9, 8, measured[:3])
        made = [projected(curve, table).quantiles[1] for curve in (POWER, alone("power"))]
        errors.append(np.array(made) - log_watts[:, 3])
    pooled, apart = np.sqrt(np.mean(np.square(errors), axis=(0, 2)))
    assert pooled < 0.6 * apart


@pytest.mark.parametrize("alone_in_cluster", [False, True])
def test_the_rest_of_a_cluster_counts_for_two_groups(alone_in_cluster):
    likelihood = np.array([[1.0, 0.5], [0.1, 0.2], [0.9, 0.3], [0.4, 0.8], [0.6, 0.3]])
    cluster = np.array([0, 0, 0, 0, int(alone_in_cluster)])
    found = pooling._evidence_of_cluster(likelihood, cluster, TIME_POOLING)
    ratio = likelihood[:, 1] / likelihood[:, 0]
    for group in range(5):
        rest = ratio[(cluster == cluster[group]) & (np.arange(5) != group)]
        expected = rest.prod() ** (2 / len(rest)) if len(rest) else 1.0
        assert found[group, 1] / found[group, 0] == pytest.approx(expected)


def test_neighbours_weigh_by_their_distance_in_core_counts():
    # Nobody else in the table; the group's own start has the weight of 0.3 groups.
    shared, start = np.eye(4)[:3, None, :], np.eye(4)[3][None, None, :]
    cores = np.log([1.0, 2.0, 8.0])
    of_group = (cores, np.zeros(3, dtype=int), np.full(3, 3), np.zeros(3, dtype=int), np.zeros(3))
    cells = (start, np.ones((3, 1, 4)), shared, np.zeros((1, 1, 4)), np.zeros((1, 1, 4)))
    found = pooling._mix_posteriors(0.8, (*of_group, np.full(3, 0.3)), cells)
    for group in range(3):
        weight = np.exp(-(((cores - cores[group]) / 0.8) ** 2) / 2)
        weight[group] = 0.0
        expected = np.append(weight, 0.3)
        assert found[group, 0] == pytest.approx(expected / expected.sum())


def test_a_round_of_two_groups_worked_by_hand():
    # What the other group says of the noise is for the start; its posterior then joins that.
    once = replace(STRONG, cluster_evidence=1.0, rounds=1)
    found = cells_of(replace(TIME, pooling=once), mixed_table("time", 2, 5, size=2))
    likelihood, weight = (np.array(part) for part in zip(*found, strict=True))

    def normal(cells):
        return cells / cells.sum(axis=(1, 2), keepdims=True)

    prior = prior_of(StalledShare(np.full(2, 3e9), TIME_PRIOR).grid)
    of_noise = (likelihood * prior.sum(axis=2, keepdims=True)).sum(axis=1)
    start = normal(prior * of_noise[::-1, None, :])
    nearness = np.exp(-((np.log(2) / 1.5) ** 2) / 2)
    mixed = 0.3 * start + nearness * normal(likelihood * start)[::-1]
    assert weight == pytest.approx(normal(likelihood * mixed), abs=1e-9)


def test_static_watts_of_a_cluster_are_at_most_the_least_power_of_any_of_it():
    watts = np.array([[30.0, 60.0], [20.0, 45.0], [50.0, 90.0]])
    steps, *_ = swept(np.log(watts), 3e9, frequency=np.array([1.0, 2.0]) * GHZ).asked()
    neighbours = Neighbours(np.array([7, 7, 9]), np.zeros(3), np.zeros(3, dtype=np.int64))
    for curve, most in ((CmosPowerCurve(), [45 / 60, 1, 1]), (alone("power"), [1, 1, 1])):
        law = curve.law(steps, neighbours, np.arange(3))
        assert law.most_static == pytest.approx(most)


# Power of known voltage.


@FEW
@given(st.floats(1.0, 3.0), st.floats(0.1, 0.9))
def test_a_known_exponent_is_followed(exponent, share):
    table = swept(np.tile(log_power(share, STEPS, exponent), (4, 1)), 4e9)
    prior = replace(POWER_PRIOR, noise=0.005)
    made = projected(CmosPowerCurve(prior=prior, pooling=NO_POOLING, exponent=exponent), table)
    np.testing.assert_allclose(made.quantiles[1], log_power(share, 4e9, exponent), atol=0.05)


def test_a_voltage_that_rises_with_the_clock_is_the_cube():
    table = mixed_table("power", 20, 97, size=4)
    asked = set()

    def voltage(frequency, groups):
        asked.update(np.unique(groups).tolist())
        return 0.3e-9 * frequency * (1 + groups[:, None])

    cube = projected(replace(POWER, exponent=3.0), table)
    check_same(projected(replace(POWER, voltage=voltage), table), cube)
    assert asked == set(range(20))


# What cannot be answered.


def test_a_small_grid_has_few_components_that_sum_to_one():
    small = TimeCurve(prior=StalledSharePrior(shares=3, scales=2))
    weight = projected(small, mixed_table("time", 4, 5)).mixture.weight
    assert (weight[:, -6:] == 0).all()
    np.testing.assert_allclose(weight.sum(axis=1), 1)


def test_impossible_projections_are_refused():
    steps, target, neighbours = mixed_table("time", 2, 1).asked()
    for bad in (0.0, 1.0, -0.1, np.nan):
        with pytest.raises(FittingError, match="are not all between 0 and 1"):
            project_curve(TIME, steps, target, neighbours, [0.5, bad])
    more, message = mixed_table("time", 3, 1), r"^2 groups, but \[2, 3\] targets or neighbours"
    for others in ((more.target, neighbours), (target, more.neighbours)):
        with pytest.raises(FittingError, match=message):
            project_curve(TIME, steps, *others, ENDS)
