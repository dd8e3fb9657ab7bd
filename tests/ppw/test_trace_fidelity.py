"""Synthetic traces against their originals: what passes, what does not, and why."""

from __future__ import annotations

import numpy as np
import pytest
from made_traces import MadeTrace, busy, trace

from ppw.errors import CaveatWarning, PpwError
from ppw.traces.fidelity import TraceFidelity, validate_trace
from ppw.traces.source import WithoutLocality, survey

pytestmark = pytest.mark.filterwarnings("ignore::ppw.errors.CaveatWarning")


def figure(result, name):
    rows = result.table[result.table["figure"].str.startswith(name)]
    return rows.iloc[0]


def changed(original, **columns):
    """The same trace with other columns."""
    table = original.table
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), [values])
    return MadeTrace(table, original.names)


class TestFigures:
    def test_of_a_trace_by_hand(self):
        # Stream 0 reads 0, then goes on; stream 1 writes elsewhere between, twice at random.
        made = trace(
            time_s=[0, 1, 2, 5],
            stream=[0, 1, 0, 1],
            lbn=[0, 800, 8, 80],
            size_bytes=[4096, 512, 8192, 512],
            op=[0, 1, 0, 1],
        )
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

    def test_batches_make_no_difference(self):
        made = busy(n=2500)
        whole = MadeTrace(made.table.combine_chunks(), made.names)
        one, other = validate_trace(made, made), validate_trace(whole, whole)
        assert one.table.equals(other.table)


def test_a_trace_passes_against_itself():
    made = busy()
    result = validate_trace(made, made)
    assert result.passed
    offset = result.table.loc[result.table["group"] != "spatial", "off"]
    assert np.nanmax(np.abs(offset)) < 1e-12


def test_even_arrivals_pass_against_themselves_and_have_no_variation():
    made = trace(time_s=np.arange(4000) / 128, lbn=8 * np.arange(4000))
    result = validate_trace(made, made)
    assert result.passed
    assert figure(result, "dispersion over 1 s")["original"] == 0
    late = changed(made, time_s=np.arange(4000) / 128 + np.arange(4000) % 2 / 500)
    off = figure(validate_trace(made, late), "variation of inter-arrival")
    assert (off["off"], off["verdict"]) == (np.inf, "fail")


def test_halves_are_as_far_apart_as_their_places():
    """The second half goes elsewhere, but for a quarter of its requests."""
    lbn = np.where((np.arange(4000) < 2000) | (np.arange(4000) % 4 == 0), 0, 8_000_000)
    lbn[0] = 8_000_000
    made = trace(lbn=lbn + 8 * (np.arange(4000) % 16))
    found = figure(validate_trace(made, made), "the same of the original's halves")["off"]
    assert found == pytest.approx(0.75 - 1 / 2000)


def test_another_seed_of_the_same_law_passes_the_shares():
    result = validate_trace(busy(n=30_000, seed=1), busy(n=30_000, seed=2))
    rows = result.table[result.table["group"] == "features"]
    assert set(rows["verdict"]) == {"pass", "–"}


@pytest.mark.parametrize(
    ("column", "change", "failing"),
    [
        ("op", lambda v: np.zeros_like(v), "reads"),
        ("size_bytes", lambda v: v * 2, "requests of 4 KiB"),
        ("time_s", lambda v: v * 1.1, "requests a second"),
        ("lbn", lambda v: v[::-1], "random requests"),
    ],
)
def test_a_figure_that_is_off_fails(column, change, failing):
    made = busy()
    values = change(made.table[column].to_numpy())
    result = validate_trace(made, changed(made, **{column: values}))
    assert not result.passed
    assert figure(result, failing)["verdict"] == "fail"
    assert failing in result.verdict()[0]


def test_what_is_shown_and_not_judged_is_named_with_how_far_it_is_off():
    made = busy()
    late = changed(made, latency_s=np.full(4000, 0.002))
    slower = changed(made, latency_s=np.where(np.arange(4000) % 50, 0.002, 0.003))
    result = validate_trace(late, slower)
    (_, said) = result.verdict()
    assert said.startswith(
        "Not judged: requests of another size (0.00%); 99th percentile of latency (+"
    )
    percentile = figure(result, "99th percentile")["off"]
    assert percentile == pytest.approx(0.5, abs=0.05)
    assert f"latency ({percentile:+.2%})" in said
    unjudged = result.table[result.table["verdict"] == "–"]
    assert said.count(";") + 1 == len(unjudged) - 1
    assert "halves" not in said


def test_bursts_that_are_lost_fail():
    """The same requests, in even distances and in bursts of two seconds."""
    made = busy(n=8000)
    even = np.arange(8000) / 100.0
    bursts = even // 4 * 4 + even % 4 / 2
    result = validate_trace(changed(made, time_s=bursts), changed(made, time_s=even))
    assert figure(result, "dispersion over 1 s")["verdict"] == "fail"
    assert figure(result, "requests a second")["verdict"] == "pass"


def test_locality_that_is_lost_fails_and_is_shown():
    made = busy()
    without = WithoutLocality(made, survey(made).survey, seed=3)
    result = validate_trace(made, without, no_locality=True)
    row = figure(result, "LRU hits, cache of 5%")
    assert row["verdict"] == "fail"
    assert row["off"] < -0.1
    ablation = result.table[result.table["group"] == "ablation"]
    assert (ablation["off"] < -0.15).any()
    assert figure(result, "reads")["off"] == 0
    assert figure(result, "requests of 4 KiB")["off"] == 0
    assert "With uniform places" in result.verdict()[-1]


class TestRepeats:
    def test_the_mean_is_judged(self):
        made = busy()
        times = made.table["time_s"].to_numpy()
        slow, fast = (changed(made, time_s=times * k) for k in (1.2, 1 / 1.2))
        assert not validate_trace(made, slow).passed
        both = validate_trace(made, [slow, fast])
        assert figure(both, "requests a second")["verdict"] == "pass"
        assert figure(both, "spread of requests a second")["verdict"] == "fail"

    def test_the_spread_of_equal_repeats_is_none(self):
        made = busy()
        row = figure(validate_trace(made, [made, made, made]), "spread of requests")
        assert (row["off"], row["verdict"]) == (0.0, "pass")


def test_latency_is_the_traces_own_where_both_record_it():
    made = busy(n=500)
    recorded = changed(made, latency_s=np.full(500, 2e-3))
    result = validate_trace(recorded, recorded)
    row = figure(result, "mean latency, recorded")
    assert row["original"] == pytest.approx(2e-3)
    assert not any("assumed parameters" in c for c in result.caveats)
    assert figure(result, "99th percentile")["original"] == pytest.approx(2e-3, rel=0.02)


def test_a_device_is_named_with_its_parameters():
    made = busy(n=300)
    fast = validate_trace(made, made, device="ssd,read=10us,write=10us")
    slow = validate_trace(made, made, device="disk,average_seek=20ms,full_seek=30ms")
    times = [figure(r, "device time")["original"] for r in (fast, slow)]
    assert times[1] > 20 * times[0]
    assert "average_seek 20 ms" in slow.device


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"device": "tape"}, "no device 'tape'"),
        ({"device": "ssd,rpm=7200"}, "says nothing of the ssd"),
        ({"device": "ssd,units=0"}, "units"),
        ({"device": "ssd,read=5W"}, "read"),
        ({"features_tolerance": 0}, "greater than 0"),
    ],
)
def test_arguments_that_cannot_be_are_refused(given, said):
    made = busy(n=50)
    with pytest.raises(PpwError, match=said):
        validate_trace(made, made, **given)


def test_a_closed_loop_has_no_times():
    made = busy(n=50)
    closed = changed(made, time_s=np.full(50, np.nan))
    with pytest.raises(PpwError, match="no arrival times"):
        validate_trace(made, closed)
    with pytest.raises(PpwError, match="no synthetic trace"):
        validate_trace(made, [])


def test_a_device_that_never_rests_says_little_of_latency():
    made = busy(n=2000, rate=1e6)
    (said,) = [c for c in validate_trace(made, made).caveats if "busy all the time" in c]
    assert "latency is that of a queue that only grows" in said


def test_traces_of_other_lengths_are_said():
    caveats = validate_trace(busy(n=2000), busy(n=1500)).caveats
    (said,) = [c for c in caveats if "differ in length by more than 5 %" in c]
    assert "without --count and --duration" in said


def test_of_one_that_fails_more_seeds_are_asked_for():
    original, off = busy(n=2000), busy(n=2000, rate=300.0)
    alone, several = validate_trace(original, off), validate_trace(original, [off, off])
    assert not alone.passed
    assert not several.passed
    assert "make some with other seeds" in alone.verdict()[1]
    assert "other seeds" not in " ".join(several.verdict())
    assert "other seeds" not in " ".join(validate_trace(original, original).verdict())


def test_caveats_are_warned_of():
    made = busy(n=100)
    with pytest.warns(CaveatWarning, match="assumed parameters"):
        validate_trace(made, made)


def test_the_result_goes_through_json():
    result = validate_trace(busy(n=900), busy(n=900, seed=4), no_locality=True)
    again = TraceFidelity.from_json(result.to_json())
    assert again.to_json() == result.to_json()
    assert again.summary() == result.summary()
    assert again.plot().get_ylabel() == "hits (%)"


@pytest.mark.thirdparty
def test_uniform_placement_of_a_real_trace_loses_its_cache(data_dir):
    path = data_dir / "block-traces" / "raw" / "cloudPhysicsIO_first_hour.vscsi"
    result = validate_trace(path, path, no_locality=True)
    assert result.passed
    row = result.table[result.table["group"] == "ablation"].iloc[-1]
    assert row["off"] < -0.15


def test_streams_without_names_go_by_their_numbers():
    made = busy(n=600)
    nameless = MadeTrace(made.table, {"stream": ("all",), "device": ("all",), "file": ()})
    result = validate_trace(made, nameless)
    assert figure(result, "requests of threads that keep their type")["synthetic"] == 1.0
    assert figure(result, "weight of web on sda")["verdict"] == "pass"
