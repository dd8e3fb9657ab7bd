"""Percentiles from counted latencies: what cells can tell, against the latencies themselves."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measurements.errors import MeasurementError
from measurements.workloads.latency import Cell, Histogram, merged, power_of_two_cells

US = 1e-6


def memcaslap_cell(microseconds):
    """Memcaslap's own rule: the smallest power of two that is not below."""
    index = 0
    while 1 << index < microseconds:
        index += 1
    return index


def counted(latencies):
    counts = {}
    for value in latencies:
        index = memcaslap_cell(value)
        counts[index] = counts.get(index, 0) + 1
    cells = power_of_two_cells(counts.items(), US)
    return Histogram(cells, min(latencies) * US, max(latencies) * US)


@given(
    st.lists(st.integers(1, 2_000_000), min_size=1, max_size=300),
    st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]),
)
def test_the_true_percentile_is_between_the_ends_and_so_is_the_estimate(latencies, share):
    found = counted(latencies).percentile(share)
    rank = math.ceil(share * len(latencies) - 1e-9)
    truth = sorted(latencies)[rank - 1] * US
    tiny = 1e-12
    assert found.least_s - tiny <= truth <= found.most_s + tiny
    assert found.least_s - tiny <= found.estimate_s <= found.most_s + tiny
    assert found.most_s <= 2 * found.least_s + US + tiny


@given(
    st.lists(st.integers(1, 10_000), min_size=1, max_size=50),
    st.lists(st.integers(1, 10_000), min_size=1, max_size=50),
)
def test_merged_counts_are_the_counts_of_all(one, other):
    assert merged([counted(one), counted(other)]) == counted([*one, *other])
    assert merged([counted(other), counted(one)]) == counted([*one, *other])


def test_by_hand():
    # 10 requests: 6 of 1 to 2 ms, 3 of 2 to 4 ms, 1 of 4 to 8 ms.
    cells = (Cell(1e-3, 2e-3, 6), Cell(2e-3, 4e-3, 3), Cell(4e-3, 8e-3, 1))
    whole = Histogram(cells)
    assert whole.requests == 10
    assert whole.percentile(0.6) == (pytest.approx(2e-3), 1e-3, 2e-3)
    # The eighth request is the second of three in its cell: 2 ms · 2^(2/3).
    assert whole.percentile(0.8) == (pytest.approx(2e-3 * 2 ** (2 / 3)), 2e-3, 4e-3)
    assert whole.percentile(0.99) == (pytest.approx(8e-3), 4e-3, 8e-3)
    assert Histogram(cells, 1e-3, 5e-3).percentile(0.99).most_s == 5e-3


def test_nothing_counted_has_no_percentile():
    with pytest.raises(MeasurementError, match="no latency was counted"):
        Histogram(()).percentile(0.5)
