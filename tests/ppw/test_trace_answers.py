"""Questions to a trace: is a synthetic one like it, what would a cache do, does it drift?"""

import numpy as np
import pandas as pd
import pytest
from made_traces import MadeTrace, busy, fragmented, made, trace
from made_up import ignore_caveats

from fitting.storage.caches import POLICIES, Cache
from fitting.storage.devices import Disk, SolidState
from fitting.storage.reuse_distance import accessed_blocks
from ppw.errors import CaveatWarning, PpwError
from ppw.storage import fitted_devices as fd
from ppw.storage.drift import half_drift, trace_drift
from ppw.storage.fidelity import validate_trace
from ppw.storage.miss_ratios import miss_ratio_curves
from ppw.storage.trace_model import fit_trace
from ppw.storage.trace_source import columns, survey, without_locality
from ppw.storage.what_if import time_scales, trace_what_if

pytestmark = ignore_caveats


def figure(result, name):
    rows = result.table[result.table["figure"].str.startswith(name)]
    return rows.iloc[0]


def changed(original, **columns):
    """The same trace with other columns."""
    return trace(**{**original.table.to_pandas(), **columns})


class TestFigures:
    def test_of_a_trace_by_hand(self):
        # Stream 0 reads 0, then goes on; stream 1 writes elsewhere between, twice at random.
        places = {"lbn": [0, 800, 8, 80], "size_bytes": [4096, 512, 8192, 512]}
        made = trace(time_s=[0, 1, 2, 5], stream=[0, 1, 0, 1], op=[0, 1, 0, 1], **places)
        result = validate_trace(made, made)
        # Requests over rate: three gaps of 5 s in all, and one more of their mean.
        assert figure(result, "mean inter-arrival")["original"] == pytest.approx(5 / 3)
        assert figure(result, "reads")["original"] == 0.5
        assert figure(result, "random requests")["original"] == 0.75
        assert figure(result, "requests of 512 B")["original"] == 0.5
        assert figure(result, "throughput")["original"] == pytest.approx(13312 / (20 / 3))
        # Gaps 1, 1, 3: standard deviation √(8/9) over 5/3.
        variation = figure(result, "variation of inter-arrival")["original"]
        assert variation == pytest.approx(np.sqrt(8 / 9) / (5 / 3))
        octants = result.table[result.table["figure"].str.startswith("octant")]["original"]
        assert octants.tolist() == [0.75, 0, 0, 0, 0, 0, 0, 0.25]
        types = dict(zip(result.streams["stream"], result.streams["original_type"], strict=True))
        assert types == {"web on sda": "scan", "log on sda": "random writes"}
        single = trace(lbn=[0, 8, 800], stream=[0, 0, 1])
        types = validate_trace(single, single).streams["original_type"]
        assert types.tolist() == ["scan", "random reads"]
        moved = validate_trace(single, changed(single, lbn=[0, 8, 8]))
        assert figure(moved, "requests in another 64th")["off"] == pytest.approx(1 / 3)

    def test_batches_make_no_difference_and_a_trace_passes_against_itself(self):
        made = busy(n=2500)
        whole = MadeTrace(made.table, at_once=2500)
        one, other = validate_trace(made, made), validate_trace(whole, whole)
        assert one.table.equals(other.table)
        assert one.passed
        offset = one.table.loc[one.table["group"] != "spatial", "off"]
        assert np.nanmax(np.abs(offset)) < 1e-12


class TestVerdicts:
    def test_even_arrivals_pass_against_themselves_and_have_no_variation(self):
        made = trace(time_s=np.arange(4000) / 128, lbn=8 * np.arange(4000))
        result = validate_trace(made, made)
        assert result.passed
        assert figure(result, "dispersion over 1 s")["original"] == 0
        late = changed(made, time_s=np.arange(4000) / 128 + np.arange(4000) % 2 / 500)
        off = figure(validate_trace(made, late), "variation of inter-arrival")
        assert (off["off"], off["verdict"]) == (np.inf, "fail")

    @pytest.mark.parametrize(
        ("rate", "number", "judged"), [(195, 585, 0), (205, 615, 1), (50, 975, 0), (50, 1025, 1)]
    )
    def test_dispersion_is_of_twenty_windows_with_twenty_arrivals_each(self, rate, number, judged):
        made = trace(time_s=np.arange(number) / rate, lbn=8 * np.arange(number))
        figures = validate_trace(made, made).table["figure"]
        assert figures.str.startswith("dispersion over ").sum() == judged

    def test_halves_are_as_far_apart_as_their_places(self):
        """The second half goes elsewhere, but for a quarter of its requests."""
        lbn = np.where((np.arange(4000) < 2000) | (np.arange(4000) % 4 == 0), 0, 8_000_000)
        lbn[0] = 8_000_000
        made = trace(lbn=lbn + 8 * (np.arange(4000) % 16))
        found = figure(
            validate_trace(made, made), "requests in another 64th, between halves of the original"
        )["off"]
        assert found == pytest.approx(0.75 - 1 / 2000)

    def test_another_seed_of_the_same_law_passes_the_shares(self):
        result = validate_trace(busy(n=30_000, seed=1), busy(n=30_000, seed=2))
        rows = result.table[result.table["group"] == "features"]
        assert set(rows["verdict"]) == {"pass", "–"}

    @pytest.mark.cases(
        "column, change, failing",
        ("op", lambda v: np.zeros_like(v), "reads"),
        ("size_bytes", lambda v: v * 2, "requests of 4 KiB"),
        ("time_s", lambda v: v * 1.1, "requests a second"),
        ("lbn", lambda v: v[::-1], "random requests"),
    )
    def test_a_figure_that_is_off_fails(self, column, change, failing):
        made = busy()
        values = change(made.table[column].to_numpy())
        result = validate_trace(made, changed(made, **{column: values}))
        assert not result.passed
        assert figure(result, failing)["verdict"] == "fail"
        assert failing in result.verdict()[0]

    def test_what_is_shown_and_not_judged_is_named_with_how_far_it_is_off(self):
        made = busy()
        late = changed(made, latency_s=np.full(4000, 0.002))
        slower = changed(made, latency_s=np.where(np.arange(4000) % 50, 0.002, 0.003))
        result = validate_trace(late, slower)
        (_, said) = result.verdict()
        lead = "Not judged: requests of another size (0.00%); 99th percentile of latency (+"
        assert said.startswith(lead)
        percentile = figure(result, "99th percentile")["off"]
        assert percentile == pytest.approx(0.5, abs=0.05)
        assert f"latency ({percentile:+.2%})" in said
        unjudged = result.table[result.table["verdict"] == "–"]
        assert said.count(";") + 1 == len(unjudged) - 1
        assert "halves" not in said

    def test_bursts_that_are_lost_fail(self):
        """The same requests, in even distances and in bursts of two seconds."""
        made = busy(n=8000)
        even = np.arange(8000) / 100.0
        bursts = even // 4 * 4 + even % 4 / 2
        result = validate_trace(changed(made, time_s=bursts), changed(made, time_s=even))
        assert figure(result, "dispersion over 1 s")["verdict"] == "fail"
        assert figure(result, "requests a second")["verdict"] == "pass"

    def test_locality_that_is_lost_fails_and_is_shown(self):
        made = busy()
        without = without_locality(made, survey(made).survey, seed=3)
        result = validate_trace(made, without, no_locality=True)
        row = figure(result, "LRU hits, cache of 5%")
        assert row["verdict"] == "fail"
        assert row["off"] < -0.1
        ablation = result.table[result.table["group"] == "ablation"]
        assert (ablation["off"] < -0.15).any()
        assert figure(result, "reads")["off"] == 0
        assert figure(result, "requests of 4 KiB")["off"] == 0
        assert "With uniform addresses" in result.verdict()[-1]

    def test_the_mean_of_repeats_is_judged_and_equal_ones_have_no_spread(self):
        made = busy()
        times = made.table["time_s"].to_numpy()
        slow, fast = (changed(made, time_s=times * k) for k in (1.2, 1 / 1.2))
        assert not validate_trace(made, slow).passed
        both = validate_trace(made, [slow, fast])
        assert figure(both, "requests a second")["verdict"] == "pass"
        assert figure(both, "spread of requests per second")["verdict"] == "fail"
        row = figure(validate_trace(made, [made, made, made]), "spread of requests")
        assert (row["off"], row["verdict"]) == (0.0, "pass")

    def test_latency_is_the_traces_own_where_both_record_it(self):
        made = busy(n=500)
        recorded = changed(made, latency_s=np.full(500, 2e-3))
        result = validate_trace(recorded, recorded)
        row = figure(result, "mean latency, recorded")
        assert row["original"] == pytest.approx(2e-3)
        assert not any("assumed parameters" in c for c in result.caveats)
        assert figure(result, "99th percentile")["original"] == pytest.approx(2e-3, rel=0.02)
        half = changed(made, latency_s=np.where(np.arange(500) % 2, 2e-3, np.nan))
        assert "mean latency, modelled" in set(validate_trace(half, half).table["figure"])

    def test_a_device_is_named_with_its_parameters_or_warned_of(self):
        made = busy(n=300)
        fast = validate_trace(made, made, device="ssd,read=10us,write=10us")
        slow = validate_trace(made, made, device="disk,average_seek=20ms,full_seek=30ms")
        times = [figure(r, "device time")["original"] for r in (fast, slow)]
        assert times[1] > 20 * times[0]
        assert "average_seek 20 ms" in slow.device
        with pytest.warns(CaveatWarning, match="assumed parameters"):
            validate_trace(made, made)


QUESTIONS = {
    "validate": lambda made, **given: validate_trace(made, made, **given),
    "what if": trace_what_if,
    "time scales": lambda made, **given: time_scales(fit_trace(made), **given),
}


@pytest.mark.cases(
    "question, given, said",
    ("validate", {"device": "ssd,rpm=7200"}, "is not a parameter of the ssd"),
    ("validate", {"device": "ssd,units=0"}, "units"),
    ("validate", {"features_tolerance": 0}, "greater than 0"),
    ("validate", {"device": "ssd,read=5W"}, "read"),
    ("time scales", {"device": "tape"}, "no device 'tape'"),
    ("time scales", {"scales": []}, "no time scale was given"),
    ("time scales", {"scales": [0]}, "greater than 0"),
    ("what if", {"policies": ["mru"]}, "policy 'mru'"),
    ("what if", {"writes": "never"}, "writes 'never'"),
    ("what if", {"cache_device": "disk"}, "solid state"),
    ("what if", {"caches": [-1]}, "-1 caches"),
    ("what if", {"cache_bytes": 1.0}, "1 B is less than a block of 4096 B: write it with a"),
    ("what if", {"repeats": 0}, "0 repeats"),
)
def test_arguments_that_cannot_be_are_refused(question, given, said):
    made = busy(n=50)
    with pytest.raises(PpwError, match=said):
        QUESTIONS[question](made, **given)


class TestCaveats:
    def test_a_closed_loop_has_no_times(self):
        made = busy(n=50)
        closed = changed(made, time_s=np.full(50, np.nan))
        with pytest.raises(PpwError, match="no arrival times"):
            validate_trace(made, closed)
        with pytest.raises(PpwError, match="no synthetic trace"):
            validate_trace(made, [])

    def test_devices_that_never_rest_and_traces_of_other_lengths_are_said(self):
        made = busy(n=2000, rate=1e6)
        (said,) = [c for c in validate_trace(made, made).caveats if "always busy" in c]
        assert "its queue only grows" in said
        caveats = validate_trace(busy(n=2000), busy(n=1500)).caveats
        (said,) = [c for c in caveats if "differ in length by more than 5 %" in c]
        assert "without --count and --duration" in said

    def test_of_one_that_fails_more_seeds_are_asked_for(self):
        original, off = busy(n=2000), busy(n=2000, rate=300.0)
        alone, several = validate_trace(original, off), validate_trace(original, [off, off])
        assert not alone.passed
        assert not several.passed
        assert "generate several with other seeds" in alone.verdict()[1]
        assert "other seeds" not in " ".join(several.verdict())
        assert "other seeds" not in " ".join(validate_trace(original, original).verdict())

    def test_streams_without_names_go_by_their_numbers(self):
        made = busy(n=600)
        nameless = MadeTrace(made.table, {"stream": ("all",), "device": ("all",), "file": ()})
        result = validate_trace(made, nameless)
        assert figure(result, "requests of threads that keep their type")["synthetic"] == 1.0
        assert figure(result, "weight of web on sda")["verdict"] == "pass"


# Every request off the path takes 10 ms: 1 ms of overhead, 4 of seek, 5 of half a turn.
FLAT = "disk,overhead=1ms,track_seek=4ms,average_seek=4ms,full_seek=4ms,revolutions=100,"
FLAT += "outer=1000GB,inner=1000GB"
QUICK = "ssd,read=1ms,write=1ms,unit=1000GB,units=1"


def option(result, name):
    return result.table[result.table["option"].str.startswith(name)].iloc[0]


class TestCacheByHand:
    # Blocks a b a c a, ten seconds apart, never two in sequence; writes to b and the second a.
    LOAD = trace(time_s=np.arange(5) * 10.0, lbn=[800, 1600, 800, 2400, 800], op=[0, 1, 1, 0, 0])

    @pytest.mark.cases(
        "writes, hits, mean_ms",
        # Reads a (disk), c (disk), a (cache); writes b, a to the disk.
        ("through", 2 / 5, (10 + 10 + 10 + 10 + 1) / 5),
        # The same hits; the writes take the cache's time, and two dirty blocks are left.
        ("back", 2 / 5, (10 + 1 + 1 + 10 + 1 + 2 * 10) / 5),
        ("around", 2 / 5, (10 + 10 + 10 + 10 + 1) / 5),
    )
    def test_time_of_a_request(self, writes, hits, mean_ms):
        how = {"cache_bytes": 10 * 4096, "caches": [1], "writes": writes, "device": FLAT}
        result = trace_what_if(self.LOAD, **how, cache_device=QUICK, repeats=200)
        row = option(result, "1 cache drive")
        assert row["hit_ratio"] == pytest.approx(hits)
        # Turns are drawn: their mean is half of one.
        assert row["device_s"] == pytest.approx(mean_ms * 1e-3, rel=0.03)
        base = option(result, "as it is")
        assert (base["device_s"], base["speed_up"]) == (pytest.approx(10e-3, rel=0.03), 1.0)

    def test_a_write_of_part_of_a_request_is_a_miss(self):
        load = trace(time_s=[0, 1, 2], lbn=[0, 0, 8], size_bytes=[4096, 8192, 4096])
        result = trace_what_if(load, cache_bytes=2**20, caches=[1], device=FLAT, repeats=1)
        row = option(result, "1 cache")
        # Four accesses: miss; hit and miss; hit. Only the last request is the cache's.
        assert row["hit_ratio"] == pytest.approx(2 / 4)


class TestCaches:
    def test_a_caches_hits_are_those_of_the_simulator(self):
        made = busy(n=3000)
        size = 64 * 4096
        asked = {"cache_bytes": size, "caches": [1, 2], "policies": ["lru", "lfu"]}
        result = trace_what_if(made, **asked, repeats=1)
        table = made.table
        blocks, request = accessed_blocks(table["lbn"].to_numpy(), table["size_bytes"].to_numpy())
        writes = table["op"].to_numpy()[request] == 1
        for drives, policy in ((1, "lru"), (2, "lru"), (1, "lfu")):
            hits = Cache(64 * drives, policy).access(blocks, writes).mean()
            row = option(result, f"{drives} cache drive{'s' * (drives > 1)}, {policy.upper()}")
            assert row["hit_ratio"] == pytest.approx(hits)

    def test_a_run_is_a_trace_and_the_spread_is_theirs(self):
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


class TestMissRatios:
    def test_by_request_byte_and_block_by_hand(self):
        # Blocks 0; 0 and half of 1; 1: of a cache of two blocks the first and the second half miss.
        one = trace(lbn=[0, 0, 8], size_bytes=[4096, 6144, 4096])
        table = miss_ratio_curves(one, cache_bytes=[8192, 4096]).table
        assert table["cache_bytes"].tolist() == [4096, 8192]
        both = table.iloc[1]
        assert both["miss_ratio"] == pytest.approx(2 / 3)
        assert both["byte_miss_ratio"] == pytest.approx((4096 + 2048) / (4096 + 6144 + 4096))
        assert both["block_miss_ratio"] == pytest.approx(2 / 4)

    @pytest.mark.parametrize("policy", POLICIES)
    def test_blocks_are_missed_as_by_the_simulator_and_a_whole_cache_misses_each_once(self, policy):
        load = busy(2000)
        table = miss_ratio_curves(load, policies=[policy]).table
        blocks = accessed_blocks(*(load.table[c].to_numpy() for c in ("lbn", "size_bytes")))[0]
        for size, ratio in zip(table["cache_bytes"], table["block_miss_ratio"], strict=True):
            hits = Cache(int(size) // 4096, policy).access(blocks, np.zeros(len(blocks), bool))
            assert ratio == pytest.approx(1 - hits.mean())
        assert table["block_miss_ratio"].iloc[-1] == len(np.unique(blocks)) / len(blocks)

    @pytest.mark.parametrize("given", [{"block_bytes": 1000}, {"policies": ["mru"]}])
    def test_what_cannot_be_is_refused(self, given):
        with pytest.raises(PpwError):
            miss_ratio_curves(busy(200), **given)


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

    def test_files_in_one_piece_stay_as_they_are_and_without_files_it_is_refused(self):
        load = trace(lbn=np.arange(60) * 8, file=np.repeat([0, 1], 30))
        result = trace_what_if(load, caches=[], defragment=True, repeats=1)
        assert result.table["sequential_share"].tolist() == pytest.approx([59 / 60] * 3)
        assert result.table["speed_up"].tolist() == pytest.approx([1.0] * 3)
        with pytest.raises(PpwError, match="no file names"):
            trace_what_if(busy(n=50), defragment=True)


@pytest.mark.cases(
    "cache_bytes, said",
    (None, "A cache drive has 409.6 kB, 10% of the 4.096 MB that the trace touches."),
    (2**23, "A cache drive has 8.389 MB, 2.05 times the 4.096 MB that the trace touches."),
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

    # A disk reaches as far as the trace.
    result = trace_what_if(trace(lbn=[0, 2**36, 8]), caches=[], repeats=1)
    assert "capacity 35,184 GB" in result.device


class TestHalves:
    def test_a_steady_load_drifts_little_and_too_few_are_refused(self):
        drift = half_drift(trace(**made(8000)))
        assert abs(figure(drift, "reads")["drift"]) < 0.03
        assert figure(drift, "requests a second")["model_off"] == pytest.approx(0, abs=0.06)
        with pytest.raises(PpwError, match="too few to compare their halves"):
            half_drift(trace(**made(60)))

    def test_a_load_that_turns_is_as_far_from_its_model_as_from_itself(self):
        columns = made(8000).assign(op=np.arange(8000) >= 4000)
        columns["lbn"] += columns["op"] * 2**24
        time = columns["time_s"]
        columns["time_s"] = (time + time.clip(upper=time[3999])) / 2
        drift = half_drift(trace(**columns))
        assert (figure(drift, "reads")["drift"], figure(drift, "reads")["model_off"]) == (-1, 1)
        assert figure(drift, "requests a second")["drift"] == pytest.approx(0.5, abs=0.05)
        assert figure(drift, "requests a second")["model_off"] == pytest.approx(-0.5, abs=0.05)
        places = figure(drift, "distance in 64ths")
        assert (places["drift"], places["model_off"]) == pytest.approx((1, 1))
        assert all(": fail, " in text for text in drift.verdict())
        # Shares differ by points, rates by a ratio.
        assert "-100.00 points  +100.00 points" in drift.summary()


class TestPeriods:
    @pytest.fixture
    def three_periods(self):
        """Columns of three periods of 30 s, of which the last has other operations and sizes."""
        columns = pd.concat([busy(3000, seed=7).table.to_pandas()] * 3, ignore_index=True)
        columns["time_s"] = np.arange(9000) / 100
        last = np.arange(9000) >= 6000
        return columns.assign(op=columns["op"].where(~last, 1), size_bytes=4096 * (1 + last))

    def test_a_period_that_is_another_load_is_told_with_its_figures(self, three_periods):
        drift = trace_drift(trace(**three_periods), period_s=30.0)
        assert list(drift.table["part"]) == ["0 s on", "30 s on", "60 s on"]
        assert list(drift.table["verdict"]) == ["–", "pass", "fail"]
        reads = drift.figures[drift.figures["figure"] == "reads"].set_index("part")
        table = three_periods.groupby(np.arange(9000) // 3000)["op"].mean()
        assert reads.loc["60 s on", "off"] == pytest.approx(table[1] - table[2])
        assert "1 of 2 parts are out of the bands of the part before: 60 s on" in drift.summary()

    def test_files_and_halves_are_parts_and_short_ones_are_left_out(self, three_periods):
        whole = trace(**three_periods[:6000])
        assert trace_drift(whole, whole).passed
        assert list(trace_drift(whole).table["part"]) == ["first half", "second half"]
        assert "cut short" in trace_drift(whole, period_s=29.0).caveats[0]
        with pytest.raises(PpwError, match="0 parts of 100 requests"):
            trace_drift(whole, period_s=0.5)
        with pytest.raises(PpwError, match="no period"):
            trace_drift(whole, whole, period_s=30.0)


def test_a_cache_of_a_share_has_a_block_at_least():
    at = np.arange(400)
    twice = trace(lbn=at // 2 % 20 * 8, time_s=at + at % 3 / 4)
    assert figure(half_drift(twice, levels=2), "LRU hits, cache of 1%")["second_half"] == 0.5


def test_what_is_completed_levels_off_with_the_time_scale():
    model = fit_trace(trace(**made(1000)))
    usual = time_scales(model, device="ssd").table["time_scale"]
    assert usual.tolist() == [4, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01]
    scales = time_scales(model, scales=[1, 0.01, 10, 0.001])
    table = scales.table
    assert list(table["time_scale"]) == [10, 1, 0.01, 0.001]
    scaled = table["offered"].to_numpy() * table["time_scale"].to_numpy()
    assert scaled == pytest.approx(model.rate)
    assert table["completed"][0] == pytest.approx(table["offered"][0], rel=0.05)
    assert table["completed"][3] == pytest.approx(table["completed"][2], rel=0.1)
    assert table["completed"][3] < table["offered"][3] / 2
    assert "falls behind" in scales.verdict()


class TestParsing:
    def test_parameters_with_units_and_with_or_without_their_endings(self):
        given = "disk,average_seek=9ms,full_seek_s=0.02,capacity=4000GB,revolutions=90,cylinders=5"
        disk = Disk(4e12, 90.0, average_seek_s=9 * 1e-3, full_seek_s=0.02, cylinders=5)
        assert fd.parse_device(given) == ("disk", disk)
        drive = SolidState(read_s=70e-6, unit_bytes_s=500e6, units=16)
        assert fd.parse_device("ssd,units=16,read=70us,unit=500MB") == ("ssd", drive)

    @pytest.mark.parametrize("name", fd.DEVICES)
    def test_every_parameter_is_said(self, name):
        said = fd.parse_device(name).parameters
        for pair in said.split(", "):
            key, value, *unit = pair.removesuffix("/s").split()
            again = fd.parse_device(f"{name},{key}={value}{''.join(unit)}")
            assert again.parameters == said
        assert said.count(",") + 1 == len(fd.DEVICES[name].__dataclass_fields__)

    @pytest.mark.parametrize(
        "text", ["", "ssd,", "ssd,read", "ssd,read=fast", "disk,track_seek=1s", "ssd,units=x"]
    )
    def test_what_is_no_device_is_refused(self, text):
        with pytest.raises(PpwError):
            fd.parse_device(text)


def test_a_disk_grows_to_the_trace_and_a_drive_has_no_places():
    disk, drive = map(fd.parse_device, ("disk", "ssd"))
    assert disk.reaching(2**40).model.capacity_bytes == 2**49
    assert (disk.reaching(8), drive.reaching(2**40)) == (disk, drive)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (3e-9, "3 ns"), (8.5e-5, "85 µs"), (0.0015, "1.5 ms"), (61.5, "61.5 s")],
)
def test_times_have_the_unit_that_suits(seconds, text):
    assert fd.time_text(seconds) == text


def test_quantiles_of_latencies_are_those_of_all_to_two_percent():
    found = np.random.default_rng(8).lognormal(-7, 1, 20_000)
    latencies = fd.Latencies()
    for part in np.array_split(np.append(found, np.nan), 3):
        latencies.add(part)
    assert latencies.requests == 20_000
    assert latencies.mean_s == pytest.approx(found.mean())
    for share in (0.1, 0.5, 0.99):
        assert latencies.quantile_s(share) == pytest.approx(np.quantile(found, share), rel=0.022)

    none = fd.Latencies()
    none.add(np.array([np.nan, np.nan]))
    assert none.requests == 0
    assert np.isnan([none.mean_s, none.quantile_s(0.99)]).all()


class TestStorage:
    # Each request takes 2 ms, of two units a device.
    DRIVE = SolidState(read_s=2e-3, write_s=2e-3, unit_bytes_s=1e18, units=2)

    def test_latency_and_throughput_by_hand(self):
        # Five at once on one device: two, two, one; another device has one.
        made = trace(time_s=np.full(6, 7), device=[0, 0, 0, 0, 0, 1], lbn=np.arange(6) * 80)
        storage = fd.Storage(self.DRIVE)
        (batch,) = columns(made)
        assert storage.take(batch) == pytest.approx([2e-3, 2e-3, 4e-3, 4e-3, 6e-3, 2e-3])
        assert storage.iops == pytest.approx(6 / 6e-3)
        # The first device's units are busy for 10 of 12 ms.
        assert storage.utilisation == pytest.approx(10 / 12)
        assert storage.possible_iops == pytest.approx(6 / 5e-3)

    def test_angles_are_the_seeds(self):
        (batch,) = columns(trace(lbn=np.arange(50) * 800))
        first, again, other = (fd.Storage(fd.DEVICES["disk"], s).take(batch) for s in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()

    def test_completed_requests_do_not_depend_on_when_they_came(self):
        made = busy(n=500)
        table, later = made.table, changed(made, time_s=np.arange(500.0) * 9).table
        assert fd.completed_iops(table) == fd.completed_iops(later)
        assert fd.completed_iops(table) < fd.completed_iops(table, fd.DEVICES["ssd"])
