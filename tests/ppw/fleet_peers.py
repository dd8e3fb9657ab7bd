"""Comparisons of tables in memory with a fleet, and one Spark session for all tests."""

import gc
import sys
import warnings
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from ppw.cli.fleet import fleet_command
from ppw.fleet import connect

# Differences of shares from one, in percent: they are equal where one plus them is.
DIFFERENCES = ("pulled_pct", "error_pct")
every_engine = pytest.mark.parametrize(
    "name", ["duckdb", pytest.param("spark", marks=pytest.mark.peer("spark"))]
)


@cache
def engine(name):
    """Connection that all tests share."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return connect(name, threads=2)


# ibis calls DuckDB and pandas by names that they will drop, and pyspark leaves its sockets open.
OTHERS_WARNINGS = [
    pytest.mark.filterwarnings(f"ignore::{name}Warning")
    for name in ("Deprecation", "Future", "Resource", "pytest.PytestUnraisableException")
]


@pytest.fixture(autouse=True)
def sockets_closed():
    """Let go of pyspark's sockets before another test's warnings are errors."""
    yield
    if "pyspark" in sys.modules:
        gc.collect()


def ask(*words):
    """Ask `ppw fleet`; errors of ours are those of the answer."""
    return CliRunner().invoke(fleet_command, list(map(str, words)), standalone_mode=False)


def saved(frame, path):
    """Write a table without its index; the file."""
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    return path


def assert_same(found, expected, *, rtol=1e-9):
    """Same rows, text and numbers to a relative error; NaN in the same places."""
    assert list(found.columns) == list(expected.columns)
    assert len(found) == len(expected)
    for name in found:
        if name == "posterior" and found[name].isna().all():
            continue  # Least squares alone are fitted to a fleet.
        if name == "covered":
            # An interval as wide as rounding covers by chance.
            wide = (expected["upper"] - expected["lower"] > 1e-9 * expected["projected"]).to_numpy()
            assert found[name][wide].tolist() == expected[name][wide].tolist(), name
        elif found[name].dtype.kind != "f" and expected[name].dtype.kind != "f":
            assert found[name].astype(str).tolist() == expected[name].astype(str).tolist(), name
        else:
            values, known = (t[name].to_numpy(dtype=float) for t in (found, expected))
            _assert_close(name, values, known, expected, rtol)


def _assert_close(name, values, known, expected, rtol):
    if name in DIFFERENCES:
        values, known = 1 + values / 100, 1 + known / 100
    if name.startswith("width_from_"):
        # Parts of one: differences of variances, and equal as such.
        values, known = 1 + values, 1 + known
    # The residual of exact points is rounding alone: nothing beside the value that it is of.
    size = expected["value"].to_numpy() if name == "standard_error" else known
    tolerance = rtol * np.abs(known) + 1e-12 * np.abs(size)
    with np.errstate(invalid="ignore"):
        near = np.abs(values - known) <= tolerance
    same = near | (values == known) | (np.isnan(values) & np.isnan(known))
    assert same.all(), (name, values[~same][:5], known[~same][:5])
