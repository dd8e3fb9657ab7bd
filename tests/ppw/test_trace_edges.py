"""Traces with the least in them: without reuse, of any size, on a plain file."""

import numpy as np
import pytest
from fleet_peers import OTHERS_WARNINGS
from made_traces import busy, trace
from made_up import answered, only
from processes import ppw_inside, refused

import ppw
from measurements.traces import write_trace
from ppw.errors import PpwError
from ppw.storage import report
from ppw.storage.generate import jobs_of
from ppw.storage.trace_model import TraceModel

pytestmark = OTHERS_WARNINGS
IN_DUCKDB = "--engine", "duckdb"


def test_a_model_without_reuse_says_that_caches_hit_less_and_a_coarser_one_has_none_either():
    model = answered(ppw.fit_trace, busy(1500), levels=3, reuse=False)
    made = ppw.generate_trace(model, count=400)
    only(made.caveats, "no law of reuse")
    assert made.to_table().num_rows == 400
    coarser = model.coarser()
    assert (coarser.diagram.levels, coarser.passages.reuse) == (2, False)


def test_sizes_of_jobs_have_the_mean_of_the_trace():
    rng = np.random.default_rng(4)
    n = 3000
    # More sizes than there are classes: one class stands for many.
    sizes = 512 * rng.integers(1, 2000, n)
    made = trace(lbn=8 * rng.integers(10**6, size=n), size_bytes=sizes)
    ((job,), _) = jobs_of(answered(ppw.fit_trace, made, levels=2), by="stream")
    mean = sum(size * share for size, share in job.sizes)
    assert mean == pytest.approx(sizes.mean(), rel=0.02)


def test_a_hundred_requests_in_three_weeks_are_a_load():
    rng = np.random.default_rng(4)
    made = trace(lbn=8 * rng.integers(10**6, size=100), time_s=np.linspace(0.0, 1.8e6, 100))
    again = ppw.generate_trace(answered(ppw.fit_trace, made, levels=2)).to_table()
    assert again.num_rows == 100
    assert 1.7e6 < again["time_s"][99].as_py() < 1.9e6


def test_discards_alone_are_no_load():
    made = trace(lbn=8 * np.arange(1200), op=np.full(1200, 2))
    with pytest.raises(PpwError, match="no reads and writes, so ppw cannot make a load"):
        jobs_of(answered(ppw.fit_trace, made, levels=2))


@pytest.mark.peer("fio")
def test_a_replay_through_the_page_cache_says_so(tmp_path):
    asked = {"direct": False, "ioengine": "psync", "device": "ssd"}
    result = answered(ppw.replay_trace, busy(100, rate=1000.0), str(tmp_path / "scratch"), **asked)
    only(result.caveats, "uses the page cache")
    assert not any("modulo its length" in caveat for caveat in result.caveats)
    assert result.table["stage"].tolist()[-1].startswith("model: ssd")


def test_zones_shorter_than_a_request_are_one():
    # Two blocks apart, in states of a block each, and requests of eight.
    made = trace(lbn=np.tile([0, 2, 40, 42], 300), size_bytes=np.full(1200, 4096))
    ((job,), _) = jobs_of(answered(ppw.fit_trace, made, levels=4), by="stream")
    ends = [end for zone in job.zones for end in (zone.first_byte, zone.end_byte)]
    assert ends == sorted(ends)
    assert all(zone.end_byte - zone.first_byte >= 4096 for zone in job.zones)
    assert sum(zone.share for zone in job.zones) == pytest.approx(1)


def test_a_heat_map_is_of_the_first_requests(monkeypatch):
    monkeypatch.setattr(report, "_MOST_PLOTTED", 500)
    made = busy(1500)
    axes = report.plot_places(answered(ppw.fit_trace, made, levels=2), made)
    first, last, *_ = axes.images[0].get_extent()
    times = made.table["time_s"].to_numpy()
    assert (first, last) == pytest.approx((times[0], times[499]))


def test_a_new_layout_that_takes_requests_apart_says_so(tmp_path):
    # Pages of two files in turn, in requests that span both.
    lbn, file = np.tile(np.arange(0, 320, 8), 30), np.tile(np.arange(40) % 2, 30)
    made = trace(lbn=lbn, file=file, size_bytes=np.full(1200, 8192))
    result = answered(ppw.trace_what_if, made, defragment=True, caches=())
    only(result.caveats, "of the requests, but ppw adds no time for that")
    assert "Hits of an LRU cache" not in result.to_html()


def test_the_command_fits_in_an_engine_as_in_memory(tmp_path):
    write_trace(busy(1500).batches(), tmp_path / "disk.parquet")
    words = "trace", "fit", "disk.parquet", "--levels", "2", "--format", "json"
    here, there = (ppw_inside(*words, *more, cwd=tmp_path) for more in ([], IN_DUCKDB))
    models = [TraceModel.from_json(done.stdout) for done in (here, there)]
    assert np.array_equal(*(model.counts.count for model in models))
    drifting = ppw_inside(*words, *IN_DUCKDB, "--drift", cwd=tmp_path)
    refused(drifting, "--engine fits one model", code=2)
