"""Moments in an engine: exact fractions are the oracle, and merging parts loses nothing."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from fleet_peers import OTHERS_WARNINGS, engine, sockets_closed  # noqa: F401
from hypothesis import given, settings
from hypothesis import strategies as st

from ppw.fleet.facts import known_columns
from ppw.fleet.layout import Layout, layout_of
from ppw.fleet.moments import merge, moments, runs_for
from ppw.fleet.source import open_runs, registered

pytestmark = OTHERS_WARNINGS
ENGINES = ("duckdb", pytest.param("spark", marks=pytest.mark.slow))


def condensed(name, table):
    runs = open_runs(table, engine=engine(name))
    known = known_columns(runs)
    layout = layout_of(known, metric="time")
    return runs, layout, moments(runs_for(runs.table, layout, known), layout)


def fetched(runs, table):
    return runs.connection.to_pyarrow(table).to_pandas()


def table_of(times, host="a"):
    return pd.DataFrame({"host": host, "freq_ghz": 2.0, "time_s": times})


class TestLargeOffset:
    """A mean a million times the scatter: plain sums of squares would have no digit left."""

    @pytest.mark.parametrize("name", ENGINES)
    def test_nine_digits(self, name):
        times = 1e6 + np.random.default_rng(1).normal(0, 1, 5000)
        exact = [Fraction(t) for t in times]
        mean = sum(exact) / len(exact)
        squares = float(sum((t - mean) ** 2 for t in exact))
        runs, _, cells = condensed(name, table_of(times))
        (found,) = fetched(runs, cells).to_dict(orient="records")
        assert found["time__mean"] == pytest.approx(float(mean), rel=1e-14)
        assert found["time__m2"] == pytest.approx(squares, rel=1e-9)
        naive = (times**2).sum() - times.sum() ** 2 / len(times)
        assert abs(naive / squares - 1) > 1e-9

    @pytest.mark.parametrize("name", ENGINES)
    def test_merging_keeps_them(self, name):
        times = 1e6 + np.random.default_rng(2).normal(0, 1, 5000)
        runs, layout, whole = condensed(name, table_of(times))
        parts = [condensed(name, table_of(part))[2] for part in np.array_split(times, 7)]
        known = fetched(runs, whole).iloc[0]
        found = fetched(runs, merge(parts, layout)).iloc[0]
        for column in ("time__m2", "time__log_m2", "time__inverse_m2"):
            assert found[column] == pytest.approx(known[column], rel=1e-9)
        assert found["runs"] == 5000


def check_merging(times, parts):
    """Any division gives the moments of all."""
    runs, layout, whole = condensed("duckdb", table_of(times))
    divided = [
        registered(runs.connection, runs.connection.to_pyarrow(condensed("duckdb", t)[2]))
        for t in (table_of(times[i::parts]) for i in range(parts))
        if len(t)
    ]
    found, known = fetched(runs, merge(divided, layout)), fetched(runs, whole)
    for name in layout.columns:
        if name in layout.keys:
            assert found[name][0] == known[name][0]
            continue
        # Equal times have squares of rounding alone.
        mean = known[name.replace("m2", "mean")][0]
        tolerance = 1e-14 * len(times) * mean**2 if name.endswith("m2") else 0
        assert found[name][0] == pytest.approx(known[name][0], rel=1e-9, abs=tolerance), name


DIVIDED = (st.lists(st.floats(0.5, 2e3), min_size=1, max_size=40), st.integers(1, 5))


class TestMerging:
    @given(*DIVIDED)
    @settings(max_examples=6)
    def test_some_divisions(self, times, parts):
        check_merging(times, parts)

    @pytest.mark.slow
    @given(*DIVIDED)
    @settings(max_examples=60)
    def test_any_division(self, times, parts):
        check_merging(times, parts)

    def test_a_layout_is_kept_as_json_knows_it(self):
        layout = condensed("duckdb", table_of([1.0]))[1]
        assert Layout.from_dict(layout.to_dict()) == layout
