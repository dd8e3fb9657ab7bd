"""Models of traces counted by an engine; the oracle is the fit in memory."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fleet_peers import OTHERS_WARNINGS, sockets_closed  # noqa: F401
from hypothesis import given, settings, strategies as st
from made_traces import busy, made, trace
from made_up import ignore_caveats

from fitting.errors import FittingError
from measurements.errors import MeasurementError
from measurements.traces import write_trace
from measurements.traces.requests import METADATA
from ppw.errors import PpwError
from ppw.fleet.engine import connect
from ppw.fleet.trace_fit import fit_trace_in
from ppw.storage.trace_model import fit_trace

pytestmark = [*OTHERS_WARNINGS, ignore_caveats]

EXACT = ("origin", "pair", "op", "sequential", "size_class", "count", "histogram")
EXACT += ("state_origin", "state", "occupancy", "lowest", "highest", "departures", "arrivals")


@pytest.fixture(scope="module")
def duckdb():
    return connect("duckdb")


def check_same(found, wanted):
    """Counts to the last one, sums of floats and what is fitted to them to 1e-9."""
    for name, value in vars(wanted.survey).items():
        assert np.array_equal(getattr(found.survey, name), value), name
    for name in EXACT:
        assert np.array_equal(getattr(found.counts, name), getattr(wanted.counts, name)), name
    np.testing.assert_allclose(found.counts.sums, wanted.counts.sums, rtol=1e-9, atol=1e-12)
    assert np.array_equal(found.laws.law, wanted.laws.law)
    for name in ("mean_s", "shape", "quantiles"):
        mine, theirs = getattr(found.laws, name), getattr(wanted.laws, name)
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, err_msg=name)
    for name, value in vars(wanted.passages).items():
        mine = getattr(found.passages, name)
        if name != "requests":
            assert np.array_equal(mine, value), name
            continue
        for column, ours, theirs in zip(value._fields, mine, value, strict=True):
            assert np.array_equal(ours, theirs), column
    assert found.names == wanted.names


def written(trace, path):
    write_trace(trace.batches(), path)
    return path


def random_trace(seed):
    """Few blocks and sizes, so that all kinds of transitions and reuse occur; ties in time."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 400))
    gap = rng.choice([0.0, 0.001, 0.25, 0.5, 1.0, 3.3], n, p=[0.2, 0.3, 0.2, 0.1, 0.1, 0.1])
    space = int(rng.choice([64, 5000, 10**9]))
    op = rng.choice([0, 1, 1, 2, 3], n)
    size = rng.choice([512, 4096, 4096, 8192, 65536, 12288 * rng.integers(1, 9)], n)
    size[op == 3] = 0
    stream, device = rng.integers(0, 3, n), rng.integers(0, 2, n)
    lbn = rng.integers(0, space, n)
    ends = {}
    for i in range(n):
        if rng.random() < 0.5:
            # Where the stream, or another one of the device, ended.
            lbn[i] = ends.get((device[i], rng.choice([stream[i], 1])), lbn[i])
        ends[device[i], stream[i]] = lbn[i] + size[i] // 512
    where = {"stream": stream, "device": device, "lbn": lbn}
    return trace(time_s=1 + np.cumsum(gap), **where, size_bytes=size, op=op)


@settings(max_examples=settings.default.max_examples // 4)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.sampled_from([2, 3, 4]))
def test_a_trace_gives_the_model_that_it_gives_in_memory(
    duckdb, tmp_path_factory, seed, levels, fan_out
):
    path = written(random_trace(seed), tmp_path_factory.mktemp("trace") / "t.parquet")
    options = {"levels": levels, "fan_out": fan_out}
    try:
        wanted = fit_trace(path, **options)
    except (PpwError, FittingError, MeasurementError):
        with pytest.raises(PpwError):
            fit_trace_in(path, engine=duckdb, **options)
        return
    check_same(fit_trace_in(path, engine=duckdb, **options), wanted)


@pytest.mark.peer("spark")
def test_spark_gives_the_model_that_memory_gives(tmp_path):
    spark = connect("spark", threads=2)
    for name, one in {"busy": busy(n=6000), "made": trace(**made(5000, devices=3))}.items():
        path = written(one, tmp_path / f"{name}.parquet")
        check_same(fit_trace_in(path, engine=spark), fit_trace(path))
    for seed in range(3):
        path = written(random_trace(seed), tmp_path / f"{seed}.parquet")
        check_same(fit_trace_in(path, engine=spark, levels=3), fit_trace(path, levels=3))


OPTIONS = {"space_bytes": 2.0**40, "laws": "published", "reuse": False}
PAIRED_S = np.repeat(np.linspace(0, 2698, 750), 2)
# Twice at a time, in almost one and a half windows of half an hour: they are taken as one.
ALONE = {"time_s": PAIRED_S, "lbn": 8 * np.random.default_rng(6).integers(1000, size=1500)}


@pytest.mark.parametrize(
    ("load", "options"),
    [(busy(n=2000), {}), (busy(n=2000), OPTIONS), (trace(**ALONE), {"levels": 2})],
    ids=["a server with a log", "with options", "one stream"],
)
def test_loads_are_fitted_as_in_memory(duckdb, tmp_path, load, options):
    path = written(load, tmp_path / "t.parquet")
    check_same(fit_trace_in(path, engine=duckdb, **options), fit_trace(path, **options))


def test_rows_in_any_order_give_a_model_to_be_made_coarser_and_read_back(duckdb, tmp_path):
    columns = made(3000)
    shuffled = written(trace(**columns.sample(frac=1, random_state=0)), tmp_path / "s.parquet")
    straight = written(trace(**columns), tmp_path / "t.parquet")
    model, wanted = fit_trace_in(shuffled, engine=duckdb), fit_trace(straight)
    check_same(model, wanted)
    check_same(model.coarser(), wanted.coarser())
    same_input = replace(model, input_digest=wanted.input_digest)
    assert same_input.to_json() == wanted.to_json()


def part(columns, names, start_ns, path):
    said = {"names": {"stream": names, "device": ["sda"]}, "start_unix_ns": start_ns}
    table = trace(**columns).table.replace_schema_metadata({METADATA: json.dumps(said)})
    pq.write_table(table, path)


def test_files_with_other_codes_and_starts_are_one_trace(duckdb, tmp_path):
    """The second half begins a minute later, and numbers its streams the other way round."""
    whole = busy(n=2000).table.to_pandas().round({"time_s": 3})
    late = whole["time_s"] > 10
    second = whole[late].assign(stream=1 - whole["stream"])
    whole.loc[late, "time_s"] += 60
    folder = tmp_path / "parts"
    folder.mkdir()
    part(whole[~late], ["web", "log"], 10**18, folder / "0.parquet")
    part(second, ["log", "web"], 10**18 + 60 * 10**9, folder / "1.parquet")
    part(whole, ["web", "log"], 10**18, tmp_path / "whole.parquet")
    found = fit_trace_in(folder, engine=duckdb)
    wanted = fit_trace(tmp_path / "whole.parquet")
    assert found.survey.last_s == pytest.approx(wanted.survey.last_s)
    assert found.names == wanted.names == {"stream": ("web", "log"), "device": ("sda",)}
    for name in EXACT[:6]:
        assert np.array_equal(getattr(found.counts, name), getattr(wanted.counts, name)), name


@pytest.mark.cases(
    "columns, said",
    ({"lbn": [0, -8, 16]}, "1 requests are impossible"),
    ({"lbn": [0, 8], "time_s": [3.0, 3.0]}, "2 requests within 0 s are too few for a model"),
    ({"lbn": [0, 8], "stream": [0, 1]}, "no stream of the trace has two requests"),
)
def test_what_makes_no_model_is_refused(duckdb, tmp_path, columns, said):
    path = written(trace(**columns), tmp_path / "t.parquet")
    with pytest.raises(PpwError, match=said):
        fit_trace_in(path, engine=duckdb)


def test_what_cannot_be_read_is_named(duckdb, tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(MeasurementError, match=r"other\.parquet: is no trace that ppw wrote"):
        fit_trace_in(tmp_path / "other.parquet", engine=duckdb)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(MeasurementError, match=r"broken\.parquet: cannot be read as Parquet"):
        fit_trace_in(tmp_path / "broken.parquet", engine=duckdb)
    with pytest.raises(PpwError, match="no Parquet file is there"):
        fit_trace_in([], engine=duckdb)
