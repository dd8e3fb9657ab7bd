"""What-ifs of made-up loads whose answers are known, and of a real one."""

from __future__ import annotations

import numpy as np
import pytest
from made_traces import busy, fragmented, trace

from fitting.caches import Cache
from ppw.errors import PpwError
from ppw.traces.source import WithoutLocality, survey
from ppw.traces.whatif import TraceWhatIf, trace_what_if

pytestmark = pytest.mark.filterwarnings("ignore::ppw.errors.CaveatWarning")
# Every request off the path takes 10 ms: 1 ms of overhead, 4 of seek, 5 of half a turn.
FLAT = (
    "disk,overhead=1ms,track_seek=4ms,average_seek=4ms,full_seek=4ms,revolutions=100,"
    "outer=1000GB,inner=1000GB"
)
QUICK = "ssd,read=1ms,write=1ms,unit=1000GB,units=1"


def option(result, name):
    return result.table[result.table["option"].str.startswith(name)].iloc[0]


class TestCacheByHand:
    # Blocks a b a c a, ten seconds apart, never two in sequence; writes to b and the second a.
    LOAD = trace(time_s=np.arange(5) * 10.0, lbn=[800, 1600, 800, 2400, 800], op=[0, 1, 1, 0, 0])

    @pytest.mark.parametrize(
        ("writes", "hits", "mean_ms"),
        [
            # Reads a (disk), c (disk), a (cache); writes b, a to the disk.
            ("through", 2 / 5, (10 + 10 + 10 + 10 + 1) / 5),
            # The same hits; the writes take the cache's time, and two dirty blocks are left.
            ("back", 2 / 5, (10 + 1 + 1 + 10 + 1 + 2 * 10) / 5),
            ("around", 2 / 5, (10 + 10 + 10 + 10 + 1) / 5),
        ],
    )
    def test_time_of_a_request(self, writes, hits, mean_ms):
        result = trace_what_if(
            self.LOAD,
            cache_bytes=10 * 4096,
            caches=[1],
            writes=writes,
            device=FLAT,
            cache_device=QUICK,
            repeats=200,
        )
        row = option(result, "1 cache drive")
        assert row["hit_ratio"] == pytest.approx(hits)
        # Turns are drawn: their mean is half of one.
        assert row["device_s"] == pytest.approx(mean_ms * 1e-3, rel=0.03)
        base = option(result, "as it is")
        assert base["device_s"] == pytest.approx(10e-3, rel=0.03)
        assert base["speed_up"] == 1.0

    def test_a_write_of_part_of_a_request_is_a_miss(self):
        load = trace(time_s=[0, 1, 2], lbn=[0, 0, 8], size_bytes=[4096, 8192, 4096])
        result = trace_what_if(load, cache_bytes=2**20, caches=[1], device=FLAT, repeats=1)
        row = option(result, "1 cache")
        # Four accesses: miss; hit and miss; hit. Only the last request is the cache's.
        assert row["hit_ratio"] == pytest.approx(2 / 4)


def test_a_caches_hits_are_those_of_the_simulator():
    made = busy(n=3000)
    size = 64 * 4096
    result = trace_what_if(
        made, cache_bytes=size, caches=[1, 2], policies=["lru", "lfu"], repeats=1
    )
    table = made.table
    from fitting.lru import touched_blocks

    blocks, request = touched_blocks(table["lbn"].to_numpy(), table["size_bytes"].to_numpy())
    writes = table["op"].to_numpy()[request] == 1
    for drives, policy in ((1, "lru"), (2, "lru"), (1, "lfu")):
        hits = Cache(64 * drives, policy).access(blocks, writes).mean()
        plural = "s" if drives > 1 else ""
        row = option(result, f"{drives} cache drive{plural}, {policy.upper()}")
        assert row["hit_ratio"] == pytest.approx(hits)


def test_without_locality_a_cache_is_worth_next_to_nothing():
    made = busy(n=6000)
    without = WithoutLocality(made, survey(made).survey, seed=1)
    given = {"cache_bytes": 400 * 4096, "caches": [1], "repeats": 2}
    local, uniform = (trace_what_if(one, **given) for one in (made, without))
    gains = [option(r, "1 cache")["speed_up"] - 1 for r in (local, uniform)]
    assert gains[0] > 0.25
    assert gains[1] < gains[0] / 5


def test_a_run_is_a_trace_and_the_spread_is_theirs():
    seeds = [busy(n=1500, seed=s) for s in range(4)]
    result = trace_what_if(seeds, cache_bytes=100 * 4096, caches=[1])
    single = [
        trace_what_if(s, cache_bytes=100 * 4096, caches=[1], repeats=1, seed=k)
        for k, s in enumerate(seeds)
    ]
    speed_ups = [option(one, "1 cache")["speed_up"] for one in single]
    row = option(result, "1 cache")
    assert result.runs == 4
    assert row["speed_up"] == pytest.approx(np.mean(speed_ups))
    assert (row["lower"], row["upper"]) == pytest.approx((min(speed_ups), max(speed_ups)))
    assert row["spread"] == pytest.approx(np.std(speed_ups, ddof=1) / np.mean(speed_ups))


class TestDefragmentation:
    def test_files_read_from_begin_to_end_become_sequential(self):
        made = fragmented()
        result = trace_what_if(made, caches=[], defragment=True, repeats=2)
        before = option(result, "as it is")["sequential_share"]
        after = option(result, "defragmented, order of first use")
        assert before < 0.02
        # Files were read in no order of theirs: each begins elsewhere.
        assert after["sequential_share"] >= 1 - 20 / 600
        assert after["speed_up"] > 5
        kept = option(result, "defragmented, order of address")
        assert before < kept["sequential_share"] < 0.2

    def test_files_in_one_piece_stay_as_they_are(self):
        load = trace(lbn=np.arange(60) * 8, file=np.repeat([0, 1], 30))
        result = trace_what_if(load, caches=[], defragment=True, repeats=1)
        assert result.table["sequential_share"].tolist() == pytest.approx([59 / 60] * 3)
        assert result.table["speed_up"].tolist() == pytest.approx([1.0] * 3)

    def test_a_trace_without_files_is_refused(self):
        with pytest.raises(PpwError, match="which file"):
            trace_what_if(busy(n=50), defragment=True)


@pytest.mark.parametrize(
    ("cache_bytes", "said"),
    [
        (None, "A cache drive has 409.6 kB, 10% of the 4.096 MB that the trace touches."),
        (2**23, "A cache drive has 8.389 MB, 2.05 times the 4.096 MB that the trace touches."),
    ],
)
def test_the_size_of_a_cache_drive_is_said(cache_bytes, said):
    blocks = np.arange(1000) * 8
    result = trace_what_if(trace(lbn=blocks), cache_bytes=cache_bytes, caches=[2], repeats=1)
    assert result.verdict()[-1] == said
    assert trace_what_if(trace(lbn=blocks), caches=[], repeats=1).verdict() == []


def test_added_cost_and_watts_are_by_drive_and_missing_where_unknown():
    made = busy(n=200)
    known = trace_what_if(made, caches=[1, 4], cache_price=150, cache_power_w=6.5, repeats=1)
    assert known.table["added_cost"].tolist() == [0, 150, 600]
    assert known.table["added_w"].tolist() == [0, 6.5, 26]
    unknown = trace_what_if(made, caches=[1], repeats=1)
    assert unknown.table["added_cost"].isna().tolist() == [False, True]
    assert "–" in unknown.cells()[1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"policies": ["mru"]}, "policy 'mru'"),
        ({"writes": "never"}, "writes 'never'"),
        ({"cache_device": "disk"}, "solid state"),
        ({"caches": [-1]}, "-1 caches"),
        ({"cache_bytes": 1.0}, "1 B is less than a block of 4096 B: write it with a unit"),
        ({"repeats": 0}, "0 repeats"),
    ],
)
def test_arguments_that_cannot_be_are_refused(given, said):
    with pytest.raises(PpwError, match=said):
        trace_what_if(busy(n=50), **given)


def test_the_result_goes_through_json():
    result = trace_what_if(fragmented(5, 10), defragment=True, repeats=2)
    again = TraceWhatIf.from_json(result.to_json())
    assert again.to_json() == result.to_json()
    assert again.summary() == result.summary()
    assert again.plot().get_xlabel() == "cache (GB)"
    assert again.to_frame().equals(result.to_frame())


def test_a_disk_reaches_as_far_as_the_trace():
    far = trace(lbn=[0, 2**36, 8])
    result = trace_what_if(far, caches=[], repeats=1)
    assert "capacity 3.518e+04 GB" in result.device
