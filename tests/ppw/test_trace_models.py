"""Models of block traces and what they generate: by hand, by their definition, on known habits."""

import functools
import json
from types import SimpleNamespace

import numpy as np
import pytest
from made_traces import MadeTrace, made, trace
from made_up import ignore_caveats
from scipy import stats

from fitting.errors import FittingError
from fitting.storage.reuse_distance import accessed_blocks, hit_ratio_curve
from measurements.traces import read_trace
from ppw.errors import PpwError
from ppw.storage.fidelity import validate_trace
from ppw.storage.fitted_devices import completed_iops
from ppw.storage.generate import generate_trace
from ppw.storage.trace_model import TraceModel, _pack, choose_level, fit_trace

pytestmark = ignore_caveats


# Twenty reads of one block in a space of sixteen: at two levels every block is a finest state.
WALK = [0, 1, 1, 0, 5, 4, 4, 12, 13, 12, 0, 1, 0, 0, 5, 15, 14, 15, 1, 0]


@pytest.fixture(scope="module")
def walked():
    times = np.arange(20) * 0.5
    load = trace(time_s=times, lbn=WALK, size_bytes=np.full(20, 512))
    return fit_trace(load, levels=2, space_bytes=16 * 512)


# (level, from, to): count, and transitions made in the state that is left. Quarters are
# 0-3, 4-7, 8-11, 12-15. The requests make 19 transitions.
PAIRS = {
    (1, 0, 1): (2, 9),  # 0→5 twice; nine requests in the first quarter are followed by one
    (1, 1, 3): (2, 4),  # 4→12, 5→15
    (1, 3, 0): (2, 6),  # 12→0, 15→1
    (2, 0, 0): (1, 5),  # 0→0
    (2, 0, 1): (2, 5),  # 0→1 at requests 0 and 10
    (2, 1, 0): (3, 4),  # 1→0
    (2, 1, 1): (1, 4),  # 1→1
    (2, 4, 4): (1, 2),
    (2, 5, 4): (1, 2),
    (2, 12, 13): (1, 2),
    (2, 13, 12): (1, 1),
    (2, 14, 15): (1, 1),
    (2, 15, 14): (1, 2),
}


def test_every_pair_and_probability_of_twenty_requests_by_hand(walked):
    pairs = walked.state_pairs().set_index(["level", "from_state", "to_state"])
    assert set(pairs.index) == set(PAIRS)
    for pair, (count, made_in) in PAIRS.items():
        found = pairs.loc[pair, ["count", "probability", "joint"]].tolist()
        assert found == pytest.approx([count, count / made_in, count / 19], abs=1e-15)


def test_probabilities_of_the_next_state_are_in_every_format(walked):
    steps = walked.to_frame().groupby(["level", "from_state", "to_state"])
    table = steps["state_probability"].sum()
    document = json.loads(walked.to_json())["state_pairs"]
    rows = zip(document["level"], document["from_state"], document["to_state"], strict=True)
    written = dict(zip(rows, document["probability"], strict=True))
    for pair, (count, made_in) in PAIRS.items():
        assert table[pair] == pytest.approx(count / made_in)
        assert written[pair] == pytest.approx(count / made_in, rel=1e-5)
    rows = np.exp(np.log(10) * np.array(walked.plot(conditional=True).images[0].get_array()))
    assert rows.sum(axis=1)[[0, 1, 5, 12]] == pytest.approx(1, abs=1e-4)


def test_first_requests_of_streams_count():
    """Three processes that each write once, and read on: 3 of 12 requests write and are first."""
    stream, first = np.repeat([0, 1, 2], 4), np.arange(12) % 4 == 0
    lbn = 1000 * stream + np.where(first, 0, 128 + 8 * (np.arange(12) % 4))
    load = trace(lbn=lbn, stream=stream, op=first, size_bytes=np.where(first, 65536, 4096))
    model = fit_trace(load)
    assert model.read_share() == pytest.approx(9 / 12)
    assert model.random_share() == pytest.approx(6 / 12)
    assert model.summary().startswith("12 requests in 11 s")
    columns = generated(model)
    assert np.mean(columns.op == 0) == 9 / 12
    assert np.mean(columns.size_bytes == 65536) == 3 / 12


def test_rate_is_one_over_the_mean_gap_and_requests_that_go_on_are_told(walked):
    assert walked.rate == pytest.approx(2.0)
    assert walked.laws.mean_s == pytest.approx(0.5)
    # 0→1, 4→(none), 12→13, 0→1, 14→15.
    assert walked.counts.count[walked.counts.sequential == 1].sum() == 4


def sequential(columns):
    """Whether each request goes on where its device's last one ended, by the definition."""
    end = columns.lbn + columns.size_bytes // 512
    return end.groupby(columns.device).shift() == columns.lbn


class TestFits:
    def test_counts_do_not_depend_on_how_the_trace_is_cut(self):
        whole = trace(**made(5000))
        one, other = (fit_trace(MadeTrace(whole.table, at_once=n)) for n in (333, 5000))
        for name in ("origin", "pair", "op", "sequential", "size_class", "count", "occupancy"):
            assert np.array_equal(getattr(one.counts, name), getattr(other.counts, name)), name
        both = zip(one.passages.requests, other.passages.requests, strict=True)
        for one_column, other_column in both:
            assert np.array_equal(one_column, other_column)

    def test_shares_are_those_of_the_definition(self):
        columns = made(4000)
        model = fit_trace(trace(**columns))
        assert model.counts.count.sum() == 4000 - columns.device.nunique()
        on = sequential(columns).sum()
        assert model.counts.count[model.counts.sequential == 1].sum() == on
        assert model.rate == pytest.approx(1 / columns.time_s.diff().mean())

    def test_coarser_is_what_a_fit_of_fewer_levels_counts(self):
        load, space = trace(**made(4000)), 4**6 * 4096 * 512
        fine = fit_trace(load, levels=4, space_bytes=space).coarser()
        direct = fit_trace(load, levels=3, space_bytes=space)
        for name in ("origin", "pair", "count", "state", "occupancy", "departures", "arrivals"):
            assert np.array_equal(getattr(fine.counts, name), getattr(direct.counts, name)), name
        assert fine.laws.mean_s == pytest.approx(direct.laws.mean_s)
        for name in ("state", "age"):
            one, other = (getattr(of.passages.requests, name) for of in (fine, direct))
            assert np.array_equal(one, other), name

    @pytest.mark.parametrize("damage", ["transitions", "states", "passages"])
    def test_a_damaged_document_is_refused(self, walked, damage):
        document = json.loads(walked.to_json())
        del document[damage]
        with pytest.raises(PpwError, match=damage):
            TraceModel.from_json(json.dumps(document))

    def test_requests_out_of_order_and_a_space_that_ends_before_them_are_refused(self):
        columns = made(500)
        with pytest.raises(PpwError, match="ends before block"):
            fit_trace(trace(**columns), space_bytes=1e6)
        columns.loc[300, "time_s"] = 0.0
        with pytest.raises(FittingError, match="request 300"):
            fit_trace(trace(**columns))


TRACES = {"cloudphysics": ("cloudPhysicsIO_first_hour.vscsi", (1, 10, 60))}
TRACES |= {"tpcc": ("tpcc-small.trace", (1e-3, 1e-2)), "wsrch": ("wsrch-small.trace", (0.1, 1))}


def generated(model, **options):
    return generate_trace(model, **options).to_table().to_pandas()


@pytest.fixture(scope="module", params=TRACES)
def measured(request, data_dir):
    """A measured trace, its model, what the model generates by a seed, and widths of windows."""
    name, windows = TRACES[request.param]
    load = read_trace(data_dir / "block-traces" / "raw" / name)
    model = fit_trace(load)
    walk = functools.cache(lambda seed: generated(model, seed=seed))
    columns = load.to_table().to_pandas()
    return SimpleNamespace(columns=columns, model=model, walk=walk, windows=windows)


def hit_ratios(columns, footprint=None):
    blocks, request = accessed_blocks(columns.lbn.to_numpy(), columns.size_bytes.to_numpy())
    curve = hit_ratio_curve(blocks * 64 + columns.device.to_numpy()[request])
    sizes = (np.array([0.01, 0.05, 0.2]) * (footprint or curve.footprint)).astype(int)
    return curve.hit_ratio(sizes), curve.footprint


def near(found, expected):
    """Within 5 % or half a percentage point, whichever is larger."""
    return np.abs(found - expected) <= np.maximum(0.05 * np.abs(expected), 0.005)


def bootstrap_band(counts, rng):
    """90 % band of the index of dispersion by blocks of a cube root of the windows."""
    n = len(counts)
    block = max(1, round(n ** (1 / 3)))
    starts = rng.integers(0, n - block + 1, size=(600, -(-n // block)))
    samples = counts[(starts[..., None] + np.arange(block)).reshape(600, -1)[:, :n]]
    return np.quantile(samples.var(axis=1) / samples.mean(axis=1), [0.05, 0.95])


@pytest.mark.thirdparty
class TestMeasuredTraces:
    def test_features_are_kept_by_every_seed(self, measured):
        original, octant = measured.columns, measured.columns.lbn.max() // 8 + 1
        sizes = measured.model.survey.sizes[:5]
        for seed in range(6):
            made_up = measured.walk(seed)
            assert len(made_up) == len(original)
            for feature in (
                lambda c: np.mean(c.op == 0),
                lambda c: 1 - np.mean(sequential(c)),
                lambda c: np.bincount(np.minimum(c.lbn // octant, 7), minlength=8) / len(c),
                lambda c: np.array([np.mean(c.size_bytes == size) for size in sizes]),
            ):
                assert near(feature(made_up), feature(original)).all()
            gaps = original.time_s.diff().mean()
            assert made_up.time_s.diff().mean() == pytest.approx(gaps, rel=0.05)

    def test_streams_keep_their_weights(self, measured):
        wanted = np.bincount(measured.columns.device)
        found = np.bincount(measured.walk(3).device, minlength=len(wanted))
        assert np.abs(found - wanted).max() <= 1

    def test_variation_of_gaps_is_kept(self, measured):
        def variation(columns):
            gaps = np.diff(columns.time_s)
            return gaps.std() / gaps.mean()

        found = np.mean([variation(measured.walk(seed)) for seed in range(5)])
        assert found == pytest.approx(variation(measured.columns), rel=0.15)

    def test_dispersion_is_inside_the_originals_band(self, measured):
        original = measured.columns.time_s.to_numpy()
        for window in measured.windows:
            n = int(original[-1] / window)
            counts = [
                np.bincount((measured.walk(seed).time_s / window).astype(int), minlength=n)[:n]
                for seed in range(20)
            ]
            found = np.mean([c.var() / c.mean() for c in counts])
            own = np.bincount((original / window).astype(int))[:n]
            low, high = bootstrap_band(own, np.random.default_rng(0))
            assert low <= found <= high

    def test_completed_iops_scarcely_move_between_seeds_with_window_counts(self, measured):
        iops = [
            completed_iops(generate_trace(measured.model, seed=s, arrivals="windows").to_table())
            for s in range(6)
        ]
        assert np.std(iops) / np.mean(iops) < 0.01

    @pytest.mark.parametrize("measured", ["cloudphysics"], indirect=True)
    def test_caches_are_hit_as_by_the_original(self, measured):
        wanted, footprint = hit_ratios(measured.columns)
        ratios = [hit_ratios(measured.walk(seed), footprint)[0] for seed in range(5)]
        assert np.abs(np.mean(ratios, axis=0) - wanted).max() < 0.03


@pytest.mark.cases(
    "part, value",
    ("stream", [9]),
    ("state", [10**6]),
    ("size_bytes", [512]),
    ("start", [0, 3]),
    ("number", [0]),
)
def test_passages_that_do_not_fit_are_refused(walked, part, value):
    document = json.loads(walked.to_json())
    held = np.resize(value, 20)
    document["passages"][part] = (
        value if part in ("start", "number") else _pack(held - (part == "size_bytes"))
    )
    with pytest.raises(PpwError, match="passages"):
        TraceModel.from_json(json.dumps(document))


def test_a_model_of_a_generated_trace_counts_what_the_original_does():
    space = 4**11 * 512
    model = fit_trace(trace(**made(20_000, devices=1)), levels=2, space_bytes=space)
    keys = ["level", "from_state", "to_state"]
    again = fit_trace(generate_trace(model), levels=2, space_bytes=space)
    pairs, others = (of.state_pairs().set_index(keys)["joint"] for of in (model, again))
    # Extents move within their states, and blocks of requests change places.
    assert (pairs - others.reindex(pairs.index).fillna(0)).abs().sum() / 2 < 0.02


@pytest.fixture(scope="module")
def model():
    return fit_trace(trace(**made(5000)))


class TestOptions:
    @pytest.mark.parametrize("arrivals", ["cascade", "windows", "laws"])
    def test_a_seed_gives_the_same_requests_in_order(self, model, arrivals):
        trace = generate_trace(model, arrivals=arrivals, seed=4)
        first, second = (trace.to_table().to_pandas() for _ in range(2))
        assert first.equals(second)
        assert not first.equals(generated(model, arrivals=arrivals))
        assert first.time_s.is_monotonic_increasing
        assert (first.time_s[0], len(first)) == (0, 5000)

    def test_time_scale_stretches_times_and_nothing_else(self, model):
        fast, slow = generated(model), generated(model, time_scale=2.0)
        np.testing.assert_allclose(slow.time_s, 2 * fast.time_s)
        assert np.array_equal(slow.lbn, fast.lbn)

    def test_longer_than_the_original(self, model):
        times = generated(model, count=12_000).time_s
        assert len(times) == 12_000
        assert 12_000 / times.max() == pytest.approx(model.rate, rel=0.05)
        assert times.is_monotonic_increasing

    def test_duration_ends_the_trace_and_a_closed_loop_has_no_times(self, model):
        times = generated(model, duration_s=20.0).time_s
        assert 19 < times.max() <= 20
        assert len(times) == pytest.approx(20 * model.rate, rel=0.1)
        table = generate_trace(model, outstanding=8).to_table()
        assert np.isnan(table["time_s"].to_numpy()).all()

    def test_without_locality_addresses_are_uniform(self, model):
        columns = generated(model, locality=False)
        survey = model.survey
        share = (columns.lbn - survey.low_lbn) / (survey.high_lbn - survey.low_lbn)
        assert stats.kstest(share, "uniform").pvalue > 1e-3

    @pytest.mark.cases(
        "options",
        *({"mode": "round_robin"}, {"arrivals": "never"}, {"time_scale": 0}, {"count": 0}),
        *({"outstanding": 0}, {"outstanding": 4, "duration_s": 3.0}),
    )
    def test_what_cannot_be_is_refused(self, model, options):
        with pytest.raises(PpwError):
            generate_trace(model, **options)


class TestLevelChoice:
    def test_first_level_that_changes_iops_little_and_the_smallest_as_good_as_the_best(self):
        original = trace(**made(6000))
        choice = choose_level(original, levels=4, flat=True)
        table = choice.table
        assert list(table["level"]) == [1, 2, 3, 4]
        assert table["behind"].min() == 0
        good = table["behind"] <= table["band"]
        assert choice.by_likelihood == table["level"][good].min()
        steady = table["iops_change"].abs() < 0.02
        assert choice.by_iops == [*table["level"][steady], 4][0]
        assert choice.flat_iops > 0
        # The original itself is served by the same device.
        assert choice.original_iops == completed_iops(original.table)
        size = original.table["size_bytes"].to_numpy().mean()
        assert choice.original_bytes_s == pytest.approx(size * choice.original_iops)

    def test_uniform_addresses_need_one_level_and_the_edge_is_said(self):
        lbn = 8 * np.random.default_rng(3).integers(1 << 20, size=4000)
        assert choose_level(trace(lbn=lbn), levels=3).by_likelihood == 1
        walk = 8 * np.arange(20_000)
        choice = choose_level(trace(lbn=walk % (8 * 5000)), levels=2)
        assert choice.by_likelihood == 2
        assert "highest level tried: more levels may be better" in choice.summary()

    def test_a_device_is_asked_for_every_level(self):
        asked = []

        def device(table):
            asked.append(len(table))
            return 100.0 * len(asked)

        choice = choose_level(trace(**made(3000)), levels=3, device=device)
        assert asked == [3000] * 4  # the original, then each level
        assert any("still change" in caveat for caveat in choice.caveats)


REQUESTS = 40_000
JUDGED = ("reads", "random requests", "requests of 4 KiB", "octant", "LRU hits")


def popular(rng, blocks, power):
    """Blocks by Zipf's law."""
    share = np.cumsum(np.arange(1, blocks + 1) ** -power)
    return rng.permutation(blocks)[np.searchsorted(share / share[-1], rng.random(REQUESTS))]


def in_runs(rng, length):
    starts = rng.integers(0, 2_000_000, REQUESTS // length)
    return np.add.outer(starts, np.arange(length)).ravel()


# Blocks by popularity and without, over and over, in runs, and once.
HABITS = {
    "uniform": lambda rng: rng.integers(0, 200_000, REQUESTS),
    "zipf": lambda rng: popular(rng, 50_000, 1.0),
    "hot spot": lambda rng: rng.integers(0, np.where(rng.random(REQUESTS) < 0.9, 10**4, 10**5)),
    "loop": lambda rng: np.arange(REQUESTS) % 8000,
    "runs of 50": lambda rng: in_runs(rng, 50),
    "written once": lambda rng: np.arange(REQUESTS),
}


class TestHabits:
    @pytest.mark.parametrize("habit", HABITS)
    def test_habits_are_kept(self, habit):
        rng = np.random.default_rng(4)
        time_s = np.cumsum(rng.exponential(0.001, REQUESTS))
        original = trace(time_s=time_s, lbn=8 * HABITS[habit](rng), op=np.zeros(REQUESTS))
        model = fit_trace(original)
        table = validate_trace(original, generate_trace(model, seed=2)).table
        judged = table[table["figure"].str.startswith(JUDGED)]
        assert len(judged) == 14
        off = judged.loc[judged["verdict"] == "fail", ["figure", "off"]]
        assert off.empty, off

    def test_each_kind_of_requests_keeps_its_alignment(self):
        """Pages of 8 KiB read by popularity, and records of some sectors written in a row."""
        rng = np.random.default_rng(6)
        written = rng.random(REQUESTS) < 0.3
        sectors = np.where(written, rng.integers(1, 9, REQUESTS), 16)
        record = np.cumsum(np.where(written, sectors, 0)) - sectors
        original = trace(
            time_s=np.cumsum(rng.exponential(0.001, REQUESTS)),
            lbn=np.where(written, 1_000_000 + record, 16 * popular(rng, 30_000, 0.9)),
            size_bytes=512 * sectors,
            op=written,
        )
        made = generate_trace(fit_trace(original), seed=1)
        columns = made.to_table().to_pandas()
        whole = (columns.lbn % 8 == 0).groupby(columns.op).mean()
        assert whole[0] > 0.99
        assert whole[1] < 0.3
        found = validate_trace(original, made).table
        judged = found[found["figure"].str.startswith("LRU hits")]
        assert set(judged["verdict"]) == {"pass"}

    @pytest.mark.parametrize("seed", range(3))
    def test_two_hundred_requests_in_short_runs(self, seed):
        rng = np.random.default_rng(7)
        run = np.cumsum(rng.random(200) < 0.2)
        start = rng.integers(0, 20_000, run[-1] + 1)[run]
        lbn = 8 * (start + np.arange(200) - np.searchsorted(run, run))
        original = trace(time_s=np.cumsum(rng.exponential(0.001, 200)), lbn=lbn)
        table = validate_trace(original, generate_trace(fit_trace(original), seed=seed)).table
        judged = table[table["figure"].str.startswith(JUDGED)]
        assert "fail" not in set(judged["verdict"])
