"""Passages of traces and what is generated of them, against plain counts and definitions."""

import numpy as np
import pytest
from counted_traces import TRACES, columns, counted, mixed, two_streams
from hypothesis import given, settings, strategies as st

from fitting.errors import FittingError
from fitting.storage import passages as pg
from fitting.storage.dispersion import dispersion_band, index_of_dispersion
from fitting.storage.generator import Generator
from fitting.storage.references import FRESH, NEAR, SEQUENTIAL, AddressFinder, near_blocks
from fitting.storage.transitions import TransitionCounter


def generated(trace, seed=0, **how):
    """The first day of requests, and the stream, device and operation of each."""
    rng, parts = np.random.default_rng(seed), (trace.counts, trace.survey, trace.passages)
    return next(Generator(*parts, expected=1.0, rng=rng, **how).batches())


def identities(made, devices):
    """For each block of each request, when its device accessed it first."""
    first, found = {}, []
    rows = zip(
        devices[made.stream].tolist(), made.lbn.tolist(), made.size_bytes.tolist(), strict=True
    )
    for device, lbn, size in rows:
        for block in range(lbn, lbn + size // 512):
            found.append(first.setdefault((device, block), len(found)))
    return found


class TestReferences:
    @given(TRACES)
    def test_an_age_is_that_of_the_last_access_to_a_piece_or_end_at_a_block(self, trace):
        of = counted(trace)
        counter = TransitionCounter(of.counts.diagram, of.survey, of.classes)
        seen = counter.add(*trace)
        age = np.where(seen.sequential, SEQUENTIAL, FRESH)
        place = trace.lbn % of.survey.piece
        AddressFinder(of.survey).find(seen, trace.lbn, trace.size_bytes, age, place)
        accessed, ended, past, piece = {}, {}, {}, of.survey.piece
        rows = zip(*(c.tolist() for c in trace), seen.sequential.tolist(), strict=True)
        for i, (_, _, device, lbn, size, _, sequential) in enumerate(rows):
            done, end = past.setdefault(device, []), lbn + size // 512
            then = max(accessed.get((device, lbn // piece), -1), ended.get((device, lbn), -1))
            if sequential:
                expected = SEQUENTIAL, lbn % piece
            elif then >= 0:
                expected = len(done) - then, lbn - done[then][0]
            elif done and abs(lbn - done[-1][1]) <= near_blocks(of.survey):
                expected = NEAR, lbn - done[-1][0]
            else:
                expected = FRESH, lbn % piece
            assert (age[i], place[i]) == expected
            for k in range(lbn // piece, (max(end, lbn + 1) - 1) // piece + 1):
                accessed[device, k] = len(done)
            ended[device, end] = len(done)
            done.append((lbn, end))

    @pytest.mark.parametrize("seed", range(6))
    def test_generated_blocks_are_accessed_again_when_the_original_accessed_them_again(self, seed):
        trace = mixed(800, seed, space=400_000, sizes=3, streams=3, devices=2)
        of = counted(trace)
        made, devices = generated(of, in_order=True), of.survey.device_of_stream
        original = made._replace(lbn=trace.lbn, size_bytes=trace.size_bytes)
        assert identities(made, devices) == identities(original, devices)
        assert (made.lbn != trace.lbn).mean() > 0.5
        state = (made.lbn - of.counts.diagram.first_lbn) // of.counts.diagram.state_blocks
        assert (state == of.passages.requests.state).mean() > 0.9

    @given(TRACES, st.integers(0, 9))
    def test_addresses_are_in_the_space_and_go_on_when_the_original_does(self, trace, seed):
        of, last = counted(trace), {}
        made = generated(of, seed, in_order=True)
        end = made.lbn + made.size_bytes // 512
        assert made.lbn.min() >= of.survey.low_lbn
        assert end.max() <= of.survey.high_lbn
        for i, s in enumerate(made.stream.tolist()):
            size = made.size_bytes[i] // 512
            if made.sequential[i] and last[s] + size <= of.survey.high_lbn:
                assert made.lbn[i] == last[s]
            last[s] = end[i]


class TestWholeTraces:
    @given(TRACES, st.integers(0, 9))
    def test_every_request_of_the_trace_is_made_once(self, trace, seed):
        of = counted(trace)
        made = generated(of, seed)
        assert len(made.lbn) == len(trace.lbn)
        streams = [*zip(of.survey.streams.tolist(), of.survey.devices.tolist(), strict=True)]
        rows = zip(made.stream.tolist(), made.size_bytes.tolist(), made.op.tolist(), strict=True)
        found = sorted((*streams[s], size, op) for s, size, op in rows)
        assert found == sorted(zip(*(c.tolist() for c in trace[1:3] + trace[4:]), strict=True))
        assert (np.diff(made.time_s) >= 0).all()
        assert made.time_s[0] == 0
        assert made.time_s[-1] <= of.survey.duration_s * (1 + 1e-9)

    def test_in_order_all_times_are_those_of_the_trace(self):
        trace = two_streams(3000)
        made = generated(counted(trace), in_order=True)
        tick = counted(trace).passages.tick_s
        assert made.time_s == pytest.approx(trace.time_s - trace.time_s[0], abs=2 * tick)

    def test_bursts_stay_together_and_change_places(self):
        # Ten bursts of five hundred requests, each ten times as fast as the pause between is long.
        gaps = np.where(np.arange(5000) % 500 == 0, 100.0, 0.01)
        gaps *= np.repeat(np.linspace(0.5, 1.5, 10), 500)
        of = counted(columns(8 * np.arange(5000), time_s=np.cumsum(gaps)))
        orders = [of.passages.arrange_spans(np.random.default_rng(k)) for k in range(6)]
        assert len({tuple(order) for order in orders}) > 1
        for order in orders:
            assert sorted(order) == list(range(len(order)))
        rates = [np.diff(np.sort(generated(of, k).time_s)) for k in range(3)]
        for found in rates:
            assert (found > 10).sum() == pytest.approx(9, abs=1)

    def test_blocks_stay_in_their_activity_window(self):
        rng = np.random.default_rng(3)
        of = counted(columns(8 * rng.integers(1000, size=20_000), time_s=np.arange(20_000.0)))
        window = of.passages.begin_s[:-1] // 1800
        for k in range(5):
            order = of.passages.arrange_spans(np.random.default_rng(k))
            assert (np.abs(window[order] - window) <= 1).all()
            assert (window[order] == window).mean() > 0.9

    def test_drawn_with_replacement_some_are_missing(self):
        of = counted(two_streams(3000))
        order = of.passages.arrange_spans(np.random.default_rng(0), repeat=True)
        assert 0.3 < len(np.unique(order)) / len(of.passages.number) < 1

    def test_with_entry_by_occupancy_states_have_their_share(self):
        of = counted(mixed(4000, 2, space=400_000, streams=1))
        made = generated(of, entry="occupancy")
        diagram, counts = of.counts.diagram, of.counts
        state = (made.lbn - diagram.first_lbn) // diagram.state_blocks
        expected = np.bincount(counts.state, counts.occupancy, diagram.states) / 4000
        assert np.bincount(state, minlength=diagram.states) / 4000 == pytest.approx(
            expected, abs=0.1
        )
        with pytest.raises(FittingError, match="no way of entry"):
            generated(of, entry="by chance")


class TestSampledTraces:
    @pytest.fixture
    def sampled(self, monkeypatch):
        monkeypatch.setattr(pg, "MOST_KEPT", 4000)
        return counted(two_streams(30_000))

    def test_a_part_of_each_span_stands_for_it(self, sampled):
        passages = sampled.passages
        assert not passages.is_whole
        assert len(passages.requests.gap) <= 4000
        assert passages.number.sum() == 30_000
        assert passages.begin_s[-1] == sampled.survey.duration_s

    def test_shares_and_times_are_near_those_of_the_trace(self, sampled):
        made, trace = generated(sampled), sampled.columns
        assert len(made.lbn) == 30_000
        assert (np.diff(made.time_s) >= 0).all()
        assert made.time_s[-1] == pytest.approx(trace.time_s[-1] - trace.time_s[0], rel=0.01)
        assert made.op.mean() == pytest.approx(trace.op.mean(), abs=0.02)
        assert made.size_bytes.mean() == pytest.approx(trace.size_bytes.mean(), rel=0.02)
        gaps, expected = np.diff(made.time_s), np.diff(trace.time_s)
        assert gaps.std() / gaps.mean() == pytest.approx(expected.std() / expected.mean(), abs=0.1)
        shares = (
            np.bincount(of.lbn * 8 // (trace.lbn.max() + 1), minlength=8) for of in (made, trace)
        )
        found, original = (share[:8] / 30_000 for share in shares)
        assert found == pytest.approx(original, abs=0.03)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 5), min_size=1, max_size=30), st.floats(0.01, 50), st.integers(0, 9))
def test_gaps_fill_a_duration_by_one_pause_more_or_shorter_ones(gaps, duration_s, seed):
    gaps = np.array(gaps)
    found = pg._fill_duration(gaps.copy(), duration_s, np.random.default_rng(seed))
    assert found.sum() == pytest.approx(duration_s)
    # Short gaps are twice or half as long at most.
    gaps *= np.clip(duration_s / max(gaps.sum(), 1e-9), 0.5, 2)
    if gaps.sum() <= duration_s:
        assert np.count_nonzero(~np.isclose(found, gaps)) <= 1
    else:
        cut = found < gaps * (1 - 1e-9)
        assert found[cut].min(initial=np.inf) >= gaps[~cut].max(initial=0) - 1e-9


class TestDispersion:
    def test_of_poisson_counts_is_one_and_most_bands_at_90_percent_hold_it(self):
        assert index_of_dispersion(np.full(100, 7)) == 0.0
        counts, inside = np.random.default_rng(2).poisson(50, 20_000), 0
        assert index_of_dispersion(counts) == pytest.approx(1, rel=0.03)
        for seed in range(60):
            counts = np.random.default_rng(seed).poisson(30, 400)
            low, high = dispersion_band(counts, draws=300, seed=seed)
            inside += low <= 1.0 <= high
        assert 45 <= inside <= 60
        assert dispersion_band(counts) == dispersion_band(counts, level=0.9, draws=1000, seed=0)

    @given(st.lists(st.integers(0, 3), min_size=2, max_size=70).filter(any), st.floats(0.1, 0.95))
    def test_of_resamples_is_of_blocks_around_the_ring(self, counts, level):
        n, length, found = len(counts), round(len(counts) ** (1 / 3)), []
        rng = np.random.default_rng(3)
        for _ in range(40):
            begins = rng.integers(n, size=n // length).tolist()
            drawn = [counts[(begin + k) % n] for begin in begins for k in range(length)]
            found += [np.var(drawn) / np.mean(drawn)] if any(drawn) else []
        expected = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
        band = dispersion_band(counts, level=level, draws=40, seed=3)
        assert band == pytest.approx(expected, abs=1e-12)

    def test_of_too_little_is_refused(self):
        for counts in ([], [3], [0, 0, 0]):
            with pytest.raises(FittingError, match="two windows and one arrival"):
                index_of_dispersion(counts)
