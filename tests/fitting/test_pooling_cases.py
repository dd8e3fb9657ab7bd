"""How a table is cut for pooling, and how its parts are put together again, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fitting import pooling
from fitting.pooled_curves import (
    NO_POOLING,
    TIME_POOLING,
    Neighbours,
    PowerCurve,
    TimeCurve,
    _said_by_the_rest,
)
from fitting.pooling import _chunk_evidence, _chunks, _mixed, _Others
from fitting.posterior import Target
from fitting.steps import Steps

GHZ = 1e9


def test_clusters_stay_whole_but_for_one_that_is_larger_than_a_chunk(monkeypatch):
    monkeypatch.setattr(pooling, "_CHUNK", 3)
    groups = np.arange(10, 17)
    cluster = np.zeros(17, dtype=np.int64)
    cluster[groups] = [0, 0, 1, 1, 1, 1, 2]
    found = [chunk.tolist() for chunk in _chunks(groups, cluster)]
    assert found == [[10, 11, 12, 13, 14], [15], [16]]


def table():
    """Groups at two, three, two and four steps, and one neighbourhood."""
    rng = np.random.default_rng(2)
    counts = [2, 3, 2, 4]
    ghz = np.concatenate([np.linspace(1.2, 2.4 + 0.1 * k, k) for k in counts])
    codes = np.repeat(np.arange(4), counts)
    steps = Steps.of(codes, ghz * GHZ, -np.log(ghz) + rng.normal(0, 0.05, len(ghz)), 4)
    return steps, Neighbours(np.zeros(4, dtype=np.int64), np.zeros(4))


def test_groups_at_different_numbers_of_steps_have_their_own_evidence():
    steps, neighbours = table()
    target = Target(np.array([3.0, 2.6, 3.2, 2.8]) * GHZ, np.ones(4))
    curve = TimeCurve(pooling=NO_POOLING)
    _, together = _chunk_evidence(curve, steps, target, neighbours, np.arange(4))
    for group in range(4):
        _, alone = _chunk_evidence(curve, steps, target, neighbours, np.array([group]))
        assert together.mean[group] == pytest.approx(alone.mean[0])
        assert together.likelihood[group] == pytest.approx(alone.likelihood[0])
        for part in ("variance", "form", "noise"):
            found, expected = getattr(together, part), getattr(alone, part)
            assert found[together.design[group]] == pytest.approx(expected[alone.design[0]])


def said(clusters, pooling=TIME_POOLING):
    """Likelihoods of two cells a group, and what the rest of each group's cluster says."""
    likelihood = np.array([[1.0, 0.5], [0.1, 0.2], [0.9, 0.3], [0.4, 0.8], [0.6, 0.3]])
    return likelihood, _said_by_the_rest(likelihood, np.array(clusters), pooling)


def test_the_rest_of_a_cluster_counts_for_two_groups():
    likelihood, found = said([0, 0, 0, 0, 0])
    ratio = likelihood[:, 1] / likelihood[:, 0]
    for group in range(5):
        rest = np.delete(ratio, group).prod() ** (2 / 4)
        assert found[group, 1] / found[group, 0] == pytest.approx(rest)


def test_a_group_alone_in_its_cluster_is_told_nothing():
    _, found = said([0, 0, 0, 1, 0])
    assert found[3].tolist() == [1.0, 1.0]
    assert found[0, 1] != found[0, 0]


def test_neighbours_weigh_by_their_distance_in_core_counts():
    # Nobody else in the table; the group's own start has the weight of 0.3 groups.
    shared = np.eye(4)[:3, None, :]
    start = np.eye(4)[3][None, None, :]
    cores = np.log([1.0, 2.0, 8.0])
    neighbours = Neighbours(np.zeros(3, dtype=np.int64), cores)
    nobody = _Others(np.zeros((1, 4)), 0, {})
    found = _mixed(TimeCurve(), start, shared, neighbours, np.arange(3), nobody, 3)
    for group in range(3):
        weight = np.exp(-(((cores - cores[group]) / 0.8) ** 2) / 2)
        weight[group] = 0.0
        expected = np.append(weight, 0.3)
        assert found[group, 0] == pytest.approx(expected / expected.sum())


def test_static_watts_of_a_cluster_are_at_most_the_least_power_of_any_of_it():
    watts = np.array([[30.0, 60.0], [20.0, 45.0], [50.0, 90.0]])
    frequency = np.tile([1.0 * GHZ, 2.0 * GHZ], 3)
    steps = Steps.of(np.repeat(np.arange(3), 2), frequency, np.log(watts).ravel(), 3)
    neighbours = Neighbours(np.array([7, 7, 9]), np.zeros(3))
    law = PowerCurve().law(steps, neighbours, np.arange(3))
    assert law.most_static == pytest.approx([45 / 60, 1.0, 1.0])
    alone = PowerCurve(pooling=NO_POOLING).law(steps, neighbours, np.arange(3))
    assert alone.most_static.tolist() == [1.0, 1.0, 1.0]
