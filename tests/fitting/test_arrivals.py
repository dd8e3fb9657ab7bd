"""Arrivals in bursts: number by number those of the reference, and laws that processes keep."""

from dataclasses import astuple, replace
from functools import cache

import arrivals_reference as reference
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from fitting.errors import FittingError
from fitting.storage import placement
from fitting.storage.cascade import (
    Windows,
    _trial_character,
    describe_interarrivals,
    dispersion_band,
    fit_cascade,
    index_of_dispersion,
    loose_levels,
    swap_halves,
)

ANYWHERE, EVEN, GAPS, PACED, CHAINED = range(5)
SEEDS = st.integers(0, 999)
FEWER = settings(max_examples=max(4, settings.default.max_examples // 4))


def same(found, expected, **tolerance):
    np.testing.assert_allclose(found, expected, **{"rtol": 1e-9, "atol": 1e-12} | tolerance)


RATES = sorted([*np.arange(8) / 350, *(0.001 + np.arange(3) / 150)])
# Gaps (s) of known processes.
PROCESSES = {
    "chance": lambda rng, n: rng.exponential(1.0, n),
    "bursts": lambda rng, n: rng.exponential(rng.choice([0.001, 1], n // 16 + 1).repeat(16)[:n]),
    "pace": lambda rng, n: np.diff(np.arange(n + 1) + rng.uniform(-0.1, 0.1, n + 1)),
    "ticks": lambda rng, n: np.diff(np.floor(rng.exponential(0.4, n).cumsum()), prepend=-1.0),
    "threes": lambda rng, n: np.resize([0.0, 0.0, 0.5], n),
    "turns": lambda rng, n: np.resize([0.001, 0.009], n) * rng.uniform(0.8, 1.2, n),
    "long gap": lambda rng, n: rng.exponential(np.repeat([5e-4, 60, 0.01], [n // 3, 1, n])[:n]),
    "lognormal": lambda rng, n: rng.lognormal(0, 1.0, n),
    "steady": lambda rng, n: np.full(n, 0.013),
    "two rates": lambda rng, n: np.resize(np.diff(RATES), n),
    "lasting": lambda rng, n: rng.exponential(np.resize([0.02] * 100 + [0.0005] * 600, n)),
}
KINDS = [*PROCESSES][:7]


def gaps_of(kind, n, seed):
    return PROCESSES[kind](np.random.default_rng(seed), n)


def windowed(gaps, period_s=1800.0):
    """Windows of a trace, and arrivals of the finest, counted in parts."""
    times = np.cumsum([0.0, *gaps])
    windows = Windows.of(max(times[-1] * (1 + 1 / len(gaps)), 1e-3), len(times), period_s)
    counts = np.zeros(windows.finest, dtype=np.int32)
    for part in np.array_split(times, 3):
        windows.counts(part, counts)
    return windows, counts


@cache
def fitted(kind, n, period_s=1800.0):
    gaps = gaps_of(kind, n, 7)
    return gaps, fit_cascade(*windowed(gaps, period_s), gaps)


def made(cascade, seed, **options):
    rng = np.random.default_rng(seed)
    course = cascade.load_profile(rng, **options)
    gaps = cascade.draw_interarrivals(cascade.counts.sum(), rng)
    return cascade.place(course, 0.0, gaps, rng, **options)


def traits(times):
    """Variation and memory of gaps, and dispersion of counts in windows of 20 and 90 arrivals."""
    gaps = np.diff(times)
    counts = [np.bincount((times / gaps.mean() / n).astype(int))[:-1] for n in (20, 90)]
    memory = np.corrcoef(gaps[1:], gaps[:-1])[0, 1]
    return [gaps.std() / gaps.mean(), memory, *(held.var() / held.mean() for held in counts)]


@given(st.floats(1e-3, 1e6), st.integers(0, 40) | st.integers(0, 10**7), st.floats(0.25, 1e5))
def test_windows_are_halved_to_four_arrivals_and_a_quarter_of_one(duration_s, requests, period_s):
    found = Windows.of(duration_s, requests, period_s)
    assert found.periods == max(1, round(duration_s / period_s))
    assert 2**found.kept <= max(1, min(1024, requests / 4) / found.periods) < 2 ** (found.kept + 1)
    finest = max(2, min(2**22, 4 * requests) / found.periods)
    assert 2**found.depth <= finest < 2 ** (found.depth + 1)
    assert found.finest == found.periods * 2**found.depth
    assert Windows.of(duration_s, requests) == Windows.of(duration_s, requests, 1800.0)
    # Two requests that lie a thousand years apart take no memory for the time between.
    assert Windows.of(3e10, 2).finest <= 2**23


@pytest.mark.parametrize("kind", KINDS)
@FEWER
@given(st.data(), st.integers(1, 60), SEEDS)
def test_a_cascade_is_fitted_as_the_reference_fits_it(kind, data, n, seed):
    gaps = gaps_of(kind, n, seed)
    windows, finest = windowed(gaps, data.draw(st.sampled_from([20.0, 1800.0])))
    # Of long traces the first gaps alone are known, and may be none.
    known = gaps[: data.draw(st.sampled_from([n, n, n // 2, 1, 0]))]
    found = fit_cascade(windows, finest, known)
    expected = reference.fit_cascade(windows, finest.tolist(), known)
    assert (found.halves.least, found.halves.first.tolist()) == expected.pop("halves")
    for value, wanted in zip(astuple(found.lateness), expected.pop("lateness"), strict=True):
        same(value, wanted, rtol=1e-6, atol=1e-9)
    for name, wanted in expected.items():
        same(getattr(found, name), wanted, err_msg=name)


def test_halves_change_places_where_the_dispersion_of_many_arrivals_allows_it():
    gaps = gaps_of("lognormal", 1000, 0)
    windows, finest = windowed(gaps)
    expected = reference.fit_cascade(windows, finest.tolist(), gaps)["loose"]
    assert fit_cascade(windows, finest, gaps).loose.tolist() == expected


@pytest.mark.parametrize("kind", KINDS)
def test_no_other_way_to_place_arrivals_is_nearer_to_the_gaps_of_a_trace(kind):
    gaps, found = fitted(kind, 60)
    windows = found.windows
    if found.tick_s:
        gaps = reference.spread_gaps(gaps, found.tick_s, windows.duration_s)
    depths = range(windows.kept, windows.depth + 1)
    ways = [(depth, way) for depth in depths for way in (ANYWHERE, EVEN, GAPS, CHAINED)]
    if reference.keeps_pace(found.counts.tolist()):
        ways.append((windows.kept, PACED))
    trials = [replace(found, stop=stop, placement=way, tick_s=0.0) for stop, way in ways]
    misses = [reference.trial_miss(trial, gaps) for trial in trials]
    assert misses[ways.index((found.stop, found.placement))] <= min(misses) + 1e-9


@pytest.mark.parametrize("kind", KINDS)
@FEWER
@given(st.data(), st.sampled_from([420, 40]), st.booleans(), SEEDS)
def test_arrivals_are_placed_as_the_reference_places_them(kind, data, n, in_order, seed):
    _, cascade = fitted(kind, n, data.draw(st.sampled_from([1800.0, 30.0])))
    stop = data.draw(st.integers(cascade.windows.kept, cascade.windows.depth))
    tick_s = data.draw(st.sampled_from([0.0, 0.7]))
    cascade = replace(cascade, stop=stop, placement=data.draw(st.integers(0, 4)), tick_s=tick_s)
    rngs = [np.random.default_rng(seed) for _ in range(2)]
    course = cascade.load_profile(rngs[0], in_order=in_order).tolist()
    loose = [turns and not in_order for turns in cascade.loose.tolist()]
    counts = cascade.counts.tolist()
    assert course == reference.turned(counts, cascade.windows.periods, loose, rngs[1])
    begin = data.draw(st.integers(0, len(course) - 1))
    windows = course[begin:][: data.draw(st.sampled_from([len(course), 3]))]
    start_s = begin * cascade.windows.duration_s / len(course)
    number = sum(counts[w] for w in windows)
    gaps = cascade.draw_interarrivals(number, rngs[0])
    same(gaps, reference.draw_gaps(cascade, number, rngs[1]))
    if number:
        # Equal gaps are in no order, whatever processor sorts them.
        others = np.round(gaps, 1)
        gaps = cascade.ordered_interarrivals(others, rngs[0])
        same(gaps, reference.ordered_gaps(cascade, others.tolist(), rngs[1]))
        options = {"in_order": True} if in_order else {}
        times = cascade.place(np.array(windows), start_s, gaps, rngs[0], **options)
        same(times, reference.place(cascade, windows, start_s, gaps, rngs[1], **options))
        assert rngs[0].random() == rngs[1].random()


@pytest.mark.parametrize("counts", [[9999, 15_000, 1, 1], [9999, 15_001, 1, 1], [25_001, 5]])
def test_a_trial_is_of_windows_with_fewer_than_25_000_arrivals(counts):
    gaps, cascade = fitted("chance", 40)
    trial = replace(cascade, counts=np.array(counts), placement=EVEN, stop=0)
    found = _trial_character(replace(trial, tick_s=5.0), gaps) - describe_interarrivals(gaps)
    assert np.abs(found).sum() == pytest.approx(reference.trial_miss(trial, gaps))


@given(st.integers(1, 100), st.sampled_from([0.3, 2, 9, 30, 1e4]), st.integers(1, 9), SEEDS)
def test_divisions_are_noted_and_drawn_as_the_reference_does(n, rate, lasting, seed):
    rng = np.random.default_rng(seed)
    halves = rng.poisson(rate * rng.gamma(0.5, 2.0, n).repeat(lasting)[:n].repeat(2))
    found, expected = placement.split_laws(halves), reference.split_laws(halves.tolist())
    for laws, wanted in zip(found, expected, strict=True):
        same(laws, wanted)
    for beside in rng.poisson(rate, (20, 3)).tolist():
        rngs = [np.random.default_rng(seed) for _ in range(2)]
        drawn = placement.draw_split(*beside, *found[1:], rngs[0])
        assert drawn == reference.draw_split(*beside, *expected[1:], rngs[1])


def test_no_more_than_five_thousand_divisions_are_looked_at():
    for number in (5000, 5001, 10_001):
        first = np.random.default_rng(1).integers(1, 10, number)
        halves = np.column_stack([first, 10 - first]).ravel()
        same(placement.split_laws(halves)[2], reference.split_laws(halves.tolist())[2])


def test_a_draw_as_large_as_a_probability_is_beyond_it():
    u, small = np.random.default_rng(1).random(), np.ones(placement.SMALL_SHAPE)
    for probability, first in ((u, 1), (np.nextafter(u, 1), 0)):
        small[:, 7, 0] = probability
        rng = np.random.default_rng(1)
        assert placement.draw_split(7, 7, 7, small, np.ones(placement.LARGE_SHAPE), rng) == first


@pytest.mark.parametrize("number", [0, 7, 2048, 2049, 3000])
@pytest.mark.parametrize("most", [40, 10**6])
def test_halves_of_the_busiest_windows_are_kept(number, most):
    rng = np.random.default_rng(number)
    whole = rng.integers(16, most, number)
    pairs = np.column_stack([whole, rng.integers(0, whole + 1)])
    levels = [part for part in (pairs[:5], pairs[5:]) if number]
    found = placement.keep_halves([(part[:, 0], part[:, 1]) for part in levels])
    expected = reference.busiest([part.tolist() for part in levels])
    assert (found.least, found.first.tolist()) == expected


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30), st.sampled_from([7e-4, 2e-3]), SEEDS)
@example([1, 0, 0], 7e-4, 0)
def test_ticks_are_those_of_the_reference(ticks, jitter, seed):
    off = 1 + jitter * np.random.default_rng(seed).uniform(-1, 1, len(ticks))
    gaps = 0.5 * np.array(ticks) * off
    for finest_s in (0.4, 0.6):
        same(placement.shared_tick(gaps, finest_s), reference.shared_tick(gaps.tolist(), finest_s))
    gaps, duration_s = 0.5 * np.array(ticks), 0.5 * sum(ticks) + 0.25
    trace = gaps, 0.5, duration_s
    same(placement.spread_arrivals(*trace), reference.spread_gaps(*trace))
    counts = np.histogram(np.cumsum([0.0, *gaps]), 256, (0, duration_s))[0]
    expected = reference.spread_counts(counts.tolist(), 0.5, duration_s)
    assert placement.spread_counts(counts, 0.5, duration_s).tolist() == expected


@pytest.mark.parametrize("length", [1, 2, 3, 63, 64, 65])
@FEWER
@given(st.integers(-2, 9), *map(st.sampled_from, ([1e-8, 0.3], [0.0, 1e-8, 1e-3, 0.5])), SEEDS)
def test_lateness_is_that_of_the_reference(length, more, cycle, chance, seed):
    rng, n = np.random.default_rng(seed), 20 * length + more
    n = max(2, n) if length > 1 else more + 2
    late = cycle * np.resize(rng.random(length), n + 1) + chance * rng.random(n + 1).cumsum() ** 0.5
    arrivals = n + 1 + seed % 2
    trace = 0.3 * np.diff(1.02 * np.arange(n + 1) + late), 0.3 * arrivals, arrivals
    found, expected = placement.fit_lateness(*trace), reference.lateness_of(*trace)
    for value, wanted in zip(astuple(found), expected, strict=True):
        same(value, wanted, rtol=1e-6, atol=1e-6)
    found = replace(found, correlation=0.6, quantiles=np.sort(rng.standard_normal(15)))
    rngs = [np.random.default_rng(seed) for _ in range(2)]
    same(found.times(n, seed % 3, rngs[0]), reference.paced_times(found, n, seed % 3, rngs[1]))


def test_a_cycle_is_looked_for_in_twenty_thousand_arrivals():
    late = np.resize([0.0, 0.5], 20_002)
    # One more at the last of them, which moves a mean of ten thousand; and much more beyond.
    late[[19_999, 20_000]] += [1.0, 1e6]
    found = placement.fit_lateness(1 + np.diff(late), 30_000.0, 30_000)
    assert found.cycle == pytest.approx([0.0, 0.5001], abs=1e-9)


@pytest.mark.parametrize("width_s", [0.3, 0.07, 1e-10, 1e9])
@FEWER
@given(st.integers(1, 2), st.sampled_from([8, 64, 64]), st.sampled_from([0.4, 10, 10]), SEEDS)
# With one resample less for the bands, other levels are loose.
@example(2, 64, 10, 15)
def test_loose_levels_are_those_of_the_reference(width_s, periods, windows, rate, seed):
    rng = np.random.default_rng(seed)
    fine = rng.poisson(rate * rng.gamma(0.5, 2.0, windows * periods).repeat(2))
    fine[0] += 1
    counts = fine.reshape(-1, 2).sum(axis=1)
    whole = [values.tolist() for values in (counts, fine)]
    found = loose_levels(counts, fine, periods, width_s).tolist()
    assert found == reference.loose_levels(*whole, periods, width_s)
    loose, rngs = rng.random(len(found)) < 0.7, [np.random.default_rng(seed) for _ in range(2)]
    order = swap_halves(counts, periods, loose, rngs[0]).tolist()
    assert order == reference.turned(whole[0], periods, loose, rngs[1])


@given(st.sampled_from(KINDS), st.sampled_from([2, 11, 12, 64, 65, 66, 400]), SEEDS)
@example("chance", 64, 0)
@example("chance", 65, 0)
def test_the_character_of_gaps_is_that_of_the_reference(kind, n, seed):
    # Gaps that vary by less than a millionth have no memory.
    for apart in (1.0, 1e-5, 1e-7):
        gaps = 1 - apart + apart * (gaps_of(kind, n, seed) + 1e-3)
        same(describe_interarrivals(gaps), reference.character(gaps.tolist()), rtol=1e-6, atol=1e-6)


def test_the_index_of_poisson_counts_is_one_and_most_bands_at_90_percent_hold_it():
    assert index_of_dispersion(np.full(100, 7)) == 0.0
    counts, inside = np.random.default_rng(2).poisson(50, 20_000), 0
    assert index_of_dispersion(counts) == pytest.approx(1, rel=0.03)
    for seed in range(60):
        counts = np.random.default_rng(seed).poisson(30, 400)
        low, high = dispersion_band(counts, draws=300, seed=seed)
        inside += low <= 1.0 <= high
    assert 45 <= inside <= 60
    assert dispersion_band(counts=counts) == dispersion_band(counts, level=0.9, draws=1000, seed=0)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=70).filter(any), st.floats(0.1, 0.95))
def test_index_and_band_are_those_of_the_reference(counts, level):
    assert index_of_dispersion(counts) == pytest.approx(reference.dispersion(counts))
    found = dispersion_band(counts, level=level, draws=40, seed=3)
    assert found == pytest.approx(reference.dispersion_band(counts, level, 40, 3), abs=1e-12)


@pytest.mark.parametrize("kind", PROCESSES)
def test_a_process_keeps_its_counts_and_its_variation_at_every_scale(kind):
    gaps, cascade = fitted(kind, 5000)
    times, end_s = np.cumsum([0.0, *gaps]), cascade.windows.duration_s
    courses = [made(cascade, seed) for seed in range(8)]
    for found in courses:
        assert len(found) == len(times)
        assert (np.diff(found) >= 0).all()
        assert 0 <= found[0] <= found[-1] <= end_s + cascade.tick_s
        if cascade.tick_s:
            same(found, np.rint(found / cascade.tick_s) * cascade.tick_s)
    found, expected = np.mean([traits(course) for course in courses], axis=0), traits(times)
    assert found[0] == pytest.approx(expected[0], rel=0.15, abs=0.05)
    assert found[1] == pytest.approx(expected[1], abs=0.15) or kind == "steady"
    within = 0.1 if kind == "lasting" else 0.4
    assert found[2:] == pytest.approx(expected[2:], rel=within, abs=0.15)
    if not cascade.tick_s:
        windows = np.linspace(0, end_s, len(cascade.counts) + 1)
        found = np.histogram(made(cascade, 2, in_order=True), windows)[0]
        assert np.abs(found - cascade.counts).sum() <= 2
    assert (cascade.placement == PACED) == (kind in ("pace", "steady", "threes", "two rates"))
    if kind == "two rates":
        same(np.diff(courses[0])[20:], gaps[20:], atol=1e-5)


def test_what_cannot_be_is_refused():
    for counts in ([], [3], [0, 0, 0]):
        with pytest.raises(FittingError, match="two windows and one arrival"):
            index_of_dispersion(counts)
    with pytest.raises(FittingError, match="windows"):
        fit_cascade(Windows.of(10.0, 100), np.zeros(3), np.ones(99))
    for duration_s, period_s in ((0.0, 1800.0), (10.0, 0.0), (-1.0, 60.0)):
        with pytest.raises(FittingError, match="give positive lengths"):
            Windows.of(duration_s, 100, period_s)
