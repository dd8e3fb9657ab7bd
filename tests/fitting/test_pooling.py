"""Partial pooling: groups alone and together, what neighbours are worth, and what is of no account.

Priors and weights are given here, so that tuning what is shipped moves no test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import GHZ

from fitting.dynamic_share import DynamicSharePrior
from fitting.errors import FittingError
from fitting.pooled_curves import NO_POOLING, Neighbours, Pooling, PowerCurve, TimeCurve
from fitting.pooling import posterior_cells
from fitting.posterior import Target, evidence
from fitting.projected import project_curve
from fitting.stalled_share import StalledSharePrior
from fitting.steps import Steps

ENDS = (0.05, 0.5, 0.95)
STEPS = np.array([1.5, 2.2, 3.0]) * GHZ
STRONG = Pooling(reach=1.5, shipped=0.3, other=0.1, others=3.0, cluster_evidence=6.0, rounds=2)
TIME = TimeCurve(
    prior=StalledSharePrior(
        core_bound=0.2,
        share_alpha=0.8,
        share_beta=1.0,
        uniform=0.3,
        noise=0.02,
        noise_spread=1.0,
        drift_of_noise=0.0,
        drift_floor=0.01,
        drift_of_stalls=0.1,
        beyond=0.0,
    ),
    pooling=STRONG,
)
POWER = PowerCurve(
    prior=DynamicSharePrior(
        share_alpha=1.0,
        share_beta=0.8,
        slope_alpha=1.2,
        slope_beta=1.2,
        noise=0.02,
        noise_spread=1.0,
        drift=0.02,
        drift_floor=0.0,
        wander=(1.0, 4.0),
        wander_weight=(0.8, 0.2),
        beyond=0.0,
    ),
    pooling=STRONG,
)
CURVES = {"time": TIME, "power": POWER}
curves = pytest.mark.parametrize("kind", CURVES)


@dataclass(frozen=True)
class Table:
    """Rows of runs, and a target and neighbours for each group."""

    group: np.ndarray
    frequency: np.ndarray
    log_value: np.ndarray
    target: Target
    neighbours: Neighbours

    @property
    def groups(self) -> int:
        return len(self.target.frequency)

    def steps(self) -> Steps:
        return Steps.of(self.group, self.frequency, self.log_value, self.groups)

    def rows(self, order) -> Table:
        columns = (self.group, self.frequency, self.log_value)
        return Table(*(c[order] for c in columns), self.target, self.neighbours)

    def only(self, groups) -> Table:
        """Groups alone, in the order given."""
        groups = np.asarray(groups)
        rank = np.full(self.groups, -1)
        rank[groups] = np.arange(len(groups))
        mine = rank[self.group] >= 0
        columns = (rank[self.group[mine]], self.frequency[mine], self.log_value[mine])
        neighbours = Neighbours(*(part[groups] for part in self.neighbours))
        return Table(*columns, self.target.take(groups), neighbours)

    def with_values(self, log_value) -> Table:
        return replace(self, log_value=log_value)


def projected(curve, table):
    return project_curve(curve, table.steps(), table.target, table.neighbours, ENDS)


def cells_of(curve, table):
    """Grid, likelihood and weight of each group, in the order of the groups."""
    every = np.arange(table.groups)
    found = {}
    for cells in posterior_cells(curve, table.steps(), table.target, table.neighbours, every):
        for row, group in enumerate(cells.groups):
            found[int(group)] = (cells.evidence.likelihood[row], cells.weight[row])
    assert sorted(found) == every.tolist()
    return [found[group] for group in every]


def check_same(one, other, rtol=1e-7):
    """Two answers, to the precision of sums in another order; quantiles to what is sought."""
    spread = np.sqrt(other.mixture.moments()[1])
    for mine, theirs in zip(one.mixture.moments(), other.mixture.moments(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=1e-9)
    assert (np.abs(one.quantiles - other.quantiles) <= 1e-2 * spread).all()
    for part in ("fit", "form", "noise", "pulled"):
        np.testing.assert_allclose(getattr(one, part), getattr(other, part), rtol=rtol, atol=1e-9)


def taken(made, groups):
    """Answers of some groups."""
    mixture, quantiles, *rest = made
    return type(made)(mixture.take(groups), quantiles[:, groups], *(p[groups] for p in rest))


def mixed_table(kind, groups, seed, size=1, noise=0.01) -> Table:
    """Random curves through two to four steps with some repeats, in clusters of ``size``."""
    rng = np.random.default_rng(seed)
    rows = []
    # A few designs, as tables of sweeps have them.
    designs = [np.sort(rng.choice(np.arange(10, 30), n, replace=False)) * 1e8 for n in (2, 3, 2, 4)]
    for group in range(groups):
        f = np.repeat(designs[rng.integers(4)], 1 + (group % 3 == 0))
        share = rng.uniform(0, 1)
        if kind == "time":
            clean = np.log(share + (1 - share) * 3e9 / f)
        else:
            clean = np.log(share + (1 - share) * (f / 3e9) ** 2.5)
        rows.append((np.full(len(f), group), f, clean + noise * rng.standard_normal(len(f))))
    columns = [np.concatenate(c) for c in zip(*rows, strict=True)]
    target = Target(rng.choice([0.9e9, 2.05e9, 3.5e9], groups), rng.choice([1.0, 3.0], groups))
    position = np.log1p(np.arange(groups) % size)
    return Table(*columns, target, Neighbours(np.arange(groups) // size, position))


def log_time(share, frequency):
    """Amdahl's law, 0 at 3 GHz."""
    return np.log(share + (1 - share) * 3e9 / frequency)


def swept(value, target, size=1, frequency=STEPS) -> Table:
    """One run at each step of each group, in clusters of ``size``; ``value`` is (groups, steps)."""
    groups, steps = value.shape
    group = np.arange(groups)
    asked = Target(np.full(groups, target), np.ones(groups))
    neighbours = Neighbours(group // size, np.log1p(group % size))
    rows = (np.repeat(group, steps), np.tile(frequency, groups), value.ravel())
    return Table(*rows, asked, neighbours)


# Without pooling.


@curves
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 4))
def test_without_pooling_a_group_is_alone(kind, seed, size):
    curve = replace(CURVES[kind], pooling=NO_POOLING)
    table = mixed_table(kind, 8, seed, size)
    together = projected(curve, table)
    np.testing.assert_allclose(together.pulled, 0, atol=1e-12)
    for group in range(table.groups):
        check_same(taken(together, [group]), projected(curve, table.only([group])))


@curves
def test_without_pooling_other_groups_may_say_anything(kind):
    curve = replace(CURVES[kind], pooling=NO_POOLING)
    table = mixed_table(kind, 12, 5, size=4)
    wild = np.where(table.group == 3, 0.0, 1.0) * np.random.default_rng(6).normal(
        0, 1, len(table.group)
    )
    one, other = (
        projected(curve, table),
        projected(curve, table.with_values(table.log_value + wild)),
    )
    check_same(taken(one, [3]), taken(other, [3]))


@curves
def test_a_table_of_one_group_has_nothing_to_pool(kind):
    table = mixed_table(kind, 1, 8)
    alone = projected(replace(CURVES[kind], pooling=NO_POOLING), table)
    check_same(projected(CURVES[kind], table), alone)


# What leaves the group itself out.


def prior_behind(likelihood, weight, cells):
    """Prior of some cells, of which the posterior is the product with the likelihood."""
    prior = weight[cells] / likelihood[cells]
    return prior / prior.sum()


@curves
@pytest.mark.parametrize("size", [1, 6])
def test_prior_of_a_group_does_not_know_its_own_runs(kind, size):
    # Posteriors are made priors once; what they were made from holds no likelihood of others.
    once = Pooling(reach=1.0, shipped=0.3, other=0.2, others=2.0, cluster_evidence=0.0, rounds=1)
    curve = replace(CURVES[kind], pooling=once)
    table = mixed_table(kind, 12, 21, size)
    group, rng = 7, np.random.default_rng(22)
    # The top step stays: it is what the cluster's least power is taken from.
    top = table.frequency == table.frequency[table.group == group].max()
    own = (table.group == group) & ~top
    moved = table.log_value + own * rng.normal(0, 0.05, len(own))
    before = cells_of(curve, table)
    after = cells_of(curve, table.with_values(moved))
    assert np.abs(after[group][1] - before[group][1]).max() > 1e-3
    sure = (before[group][0] > 1e-60) & (after[group][0] > 1e-60)
    assert sure.mean() > 0.3
    one, other = (prior_behind(*made[group], sure) for made in (before, after))
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-15)
    # A neighbour's prior, and with it its posterior, does know them.
    near = 6 if size > 1 else 2
    both = (before[near][0] > 1e-60) & (after[near][0] > 1e-60)
    one, other = (prior_behind(*made[near], both) for made in (before, after))
    assert np.abs(one - other).max() > 1e-9


def test_likelihoods_of_a_cluster_leave_the_group_itself_out():
    rng = np.random.default_rng(31)
    value = np.log(0.4 + 0.6 * (STEPS / 3e9) ** 2.5) + 0.02 * rng.standard_normal((5, 3))
    moved = value.copy()
    moved[0, :-1] += 0.1
    every, starts = np.arange(5), []
    for table in (swept(value, 3.5e9, size=5), swept(moved, 3.5e9, size=5)):
        steps = table.steps()
        law = POWER.law(steps, table.neighbours, every)
        found = evidence(law, steps.sweep(every), table.target, every)
        start = POWER.start(law.grid, found, table.neighbours.cluster)
        starts.append(start / start.sum(axis=(1, 2), keepdims=True))
    np.testing.assert_allclose(starts[0][0], starts[1][0], rtol=1e-9)
    assert np.abs(starts[0][1] - starts[1][1]).max() > 1e-4


# What neighbours are worth.


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_pooled_times_of_equal_programs_are_nearer_to_the_truth(share, size):
    # 80 programs of one stalled share that two noisy steps hardly show.
    rng, frequency = np.random.default_rng(41), np.array([1.5, 2.4]) * GHZ
    value = log_time(share, frequency) + 0.01 * rng.standard_normal((80, 2))
    table = swept(value, 3.6e9, size, frequency)
    truth = log_time(share, 3.6e9)
    pooled = projected(TIME, table)
    alone = projected(replace(TIME, pooling=NO_POOLING), table)
    error = [np.sqrt(np.mean((made.quantiles[1] - truth) ** 2)) for made in (pooled, alone)]
    assert error[0] < 0.8 * error[1]
    # And narrower, without losing the truth.
    width = [np.mean(made.quantiles[2] - made.quantiles[0]) for made in (pooled, alone)]
    assert width[0] < 0.9 * width[1]
    assert np.mean((pooled.quantiles[0] < truth) & (truth < pooled.quantiles[2])) > 0.85


def test_a_small_grid_has_few_components_that_sum_to_one():
    small = TimeCurve(prior=StalledSharePrior(shares=3, scales=2))
    weight = projected(small, mixed_table("time", 4, 5)).mixture.weight
    assert (weight[:, -6:] == 0).all()
    np.testing.assert_allclose(weight.sum(axis=1), 1)


@curves
def test_what_pooling_moved_is_the_pooled_mean_less_the_mean_alone(kind):
    # Clusters of one: in a cluster the power law's static watts are others.
    table = mixed_table(kind, 30, 51)
    pooled = projected(CURVES[kind], table)
    alone = projected(replace(CURVES[kind], pooling=NO_POOLING), table)
    moved = pooled.mixture.moments()[0] - alone.mixture.moments()[0]
    np.testing.assert_allclose(pooled.pulled, moved, rtol=1e-9, atol=1e-12)
    assert np.abs(moved).max() > 1e-4


@pytest.mark.parametrize("size", [1, 10])
def test_a_group_is_pulled_to_where_its_neighbours_are(size):
    # The steps of group 0 are too near each other to say much; the others show what they are.
    close = np.array([2.9, 2.95, 3.0]) * GHZ
    pulled = []
    for share in (0.02, 0.9):
        table = swept(np.tile(log_time(share, STEPS), (10, 1)), 4e9, size)
        own = table.group == 0
        value = np.where(own, np.tile(log_time(0.4, close), 10), table.log_value)
        table = replace(table, frequency=np.where(own, np.tile(close, 10), table.frequency))
        pulled.append(projected(TIME, table.with_values(value)).pulled[0])
    # Core-bound neighbours say that the time goes on falling, memory-bound ones that it ends.
    assert pulled[0] < -1e-3
    assert pulled[1] > 1e-3


def test_a_near_core_count_counts_for_more_than_a_far_one():
    # Two neighbours, core-bound and memory-bound; the group in question says nothing much.
    frequency = np.array([2.0, 2.1]) * GHZ
    means = {}
    for near in (0.02, 0.9):
        far = 0.92 - near
        value = np.array([log_time(s, frequency) for s in (near, 0.3, far)])
        table = swept(value, 4e9, 3, frequency)
        position = np.log([4.0, 8.0, 256.0])
        table = replace(table, neighbours=Neighbours(np.zeros(3, dtype=int), position))
        means[near] = projected(TIME, table).mixture.moments()[0][1]
    assert means[0.02] < means[0.9] - 1e-3


def test_core_counts_that_share_static_watts_show_the_voltage_slope():
    # P = S + n·D·g(f): one core count cannot tell static watts from a low exponent, eight can.
    rng, cores = np.random.default_rng(61), 2.0 ** np.arange(8)
    frequency, target = np.array([1.6, 2.0, 2.4]) * GHZ, 3.4e9
    pooled, alone = [], []
    for _ in range(12):
        static, slope = rng.uniform(20, 60), rng.uniform(0.2, 1.6)

        def watts(f, static=static, slope=slope):
            clock = np.atleast_1d(f) / 2.4e9
            voltage = np.maximum(POWER.prior.lowest_voltage, 1 + slope * (clock - 1))
            return static + 2.0 * cores[:, None] * clock * voltage**2

        value = np.log(watts(frequency)) + 0.02 * rng.standard_normal((8, 3))
        table = swept(value, target, 8, frequency)
        truth = np.log(watts(target))[:, 0]
        for errors, curve in ((pooled, POWER), (alone, replace(POWER, pooling=NO_POOLING))):
            errors.append(projected(curve, table).quantiles[1] - truth)
    rms = [np.sqrt(np.mean(np.square(errors))) for errors in (pooled, alone)]
    assert rms[0] < 0.6 * rms[1]


def test_without_weight_other_clusters_are_of_no_account():
    none = replace(STRONG, other=0.0, others=0.0)
    for kind, curve in CURVES.items():
        table = mixed_table(kind, 20, 71, size=5)
        together = projected(replace(curve, pooling=none), table)
        for first in range(0, 20, 5):
            groups = np.arange(first, first + 5)
            alone = projected(replace(curve, pooling=none), table.only(groups))
            check_same(taken(together, groups), alone)


# What is of no account.


@curves
def test_order_of_rows_is_of_no_account(kind):
    table = mixed_table(kind, 25, 81, size=5)
    shuffled = table.rows(np.random.default_rng(82).permutation(len(table.group)))
    one, other = projected(CURVES[kind], table), projected(CURVES[kind], shuffled)
    np.testing.assert_array_equal(one.quantiles, other.quantiles)
    np.testing.assert_array_equal(one.mixture, other.mixture)


# More groups than the sample and the chunks hold: alone, in clusters, and in one cluster.
@curves
@pytest.mark.parametrize(("groups", "size"), [(720, 1), (720, 9), (620, 620)])
def test_order_of_groups_is_of_no_account(kind, groups, size):
    table = mixed_table(kind, groups, 91, size)
    order = np.random.default_rng(92).permutation(groups)
    one, other = projected(CURVES[kind], table), projected(CURVES[kind], table.only(order))
    assert not np.isnan(one.quantiles).any()
    check_same(taken(one, order), other, rtol=1e-6)


@curves
def test_the_unit_of_the_metric_is_of_no_account(kind):
    table = mixed_table(kind, 20, 95, size=4)
    one, other = (
        projected(CURVES[kind], table),
        projected(CURVES[kind], table.with_values(table.log_value + np.log(1000))),
    )
    shifted = other._replace(
        mixture=other.mixture.shifted(-np.log(1000)), quantiles=other.quantiles - np.log(1000)
    )
    check_same(one, shifted, rtol=1e-5)


# Known clocks of power.


@given(st.floats(1.0, 3.0), st.floats(0.1, 0.9))
@settings(max_examples=10)
def test_a_known_exponent_is_followed(exponent, share):
    value = np.log(1 - share + share * (STEPS / 3e9) ** exponent)
    table = swept(np.tile(value, (4, 1)), 4e9, 1)
    prior = replace(POWER.prior, noise=0.005)
    made = projected(PowerCurve(prior=prior, pooling=NO_POOLING, exponent=exponent), table)
    truth = np.log(1 - share + share * (4 / 3) ** exponent)
    np.testing.assert_allclose(made.quantiles[1], truth, atol=0.05)


def test_a_voltage_that_rises_with_the_clock_is_the_cube():
    table = mixed_table("power", 20, 97, size=4)
    cube = projected(replace(POWER, exponent=3.0), table)
    asked = []

    def voltage(frequency, groups):
        asked.extend(np.unique(groups).tolist())
        return 0.3e-9 * frequency * (1 + groups[:, None])

    check_same(projected(replace(POWER, voltage=voltage), table), cube)
    assert set(asked) == set(range(20))


# What cannot be answered.


@curves
def test_groups_without_two_steps_or_a_target_are_nan_and_pull_nobody(kind):
    table = mixed_table(kind, 12, 99, size=3)
    lone = (table.group == 4) & (table.frequency > table.frequency[table.group == 4].min())
    frequency = table.target.frequency.copy()
    frequency[[0, 8]] = np.nan
    # Group 11 has no rows at all.
    table = replace(
        table.rows(~lone & (table.group != 11)), target=table.target._replace(frequency=frequency)
    )
    made = projected(CURVES[kind], table)
    unknown = [0, 4, 8, 11]
    for part in (made.quantiles[1], made.mixture.moments()[0], made.fit, made.form, made.pulled):
        assert np.flatnonzero(np.isnan(part)).tolist() == unknown
    known = np.setdiff1d(np.arange(12), unknown)
    check_same(taken(made, known), projected(CURVES[kind], table.only(known)))


@curves
def test_a_table_without_any_answer_is_all_nan(kind):
    table = swept(np.zeros((3, 1)), 2e9, 1, STEPS[:1])
    assert np.isnan(projected(CURVES[kind], table).quantiles).all()


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, np.nan])
def test_probabilities_outside_zero_to_one_are_refused(bad):
    table = mixed_table("time", 2, 1)
    with pytest.raises(FittingError, match="are not inside 0 to 1"):
        project_curve(TIME, table.steps(), table.target, table.neighbours, [0.5, bad])


def test_targets_and_neighbours_of_other_groups_are_refused():
    table, more = mixed_table("time", 2, 1), mixed_table("time", 3, 1)
    for target, neighbours in ((more.target, table.neighbours), (table.target, more.neighbours)):
        with pytest.raises(
            FittingError, match=r"^2 groups, but targets or neighbours for \[2, 3\]"
        ):
            project_curve(TIME, table.steps(), target, neighbours, ENDS)
