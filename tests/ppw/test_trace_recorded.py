"""The shipped recorded traces against the laws that fio was told, and Terasort against its model.

fio's jobs are of the first GiB of the device, which the models' 16 finest states divide evenly.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from fitting.lru import hit_ratio_curve, touched_blocks
from ppw.errors import PpwError
from ppw.samples import RECORDED_TRACES, recorded_trace
from ppw.traces.fit import fit_trace
from ppw.traces.generation import generate_trace

pytestmark = pytest.mark.filterwarnings("ignore::ppw.errors.CaveatWarning")

SPACE_BYTES = 2**30
STATES = 16
REQUESTS = 6000
RATE = 500.0
SEEDS = range(5)
TERASORTS = ("terasort", "terasort_repeat")


class Law(NamedTuple):
    """What fio was told."""

    shares: np.ndarray
    variation: tuple[float, float]
    reads: float = 1.0
    sequential: float = 0.0
    size_bytes: int = 4096


def zoned():
    """80 % of the requests evenly in the first fifth of the space, the rest evenly after it."""
    edges = np.linspace(0, 1, STATES + 1)
    return np.diff(0.8 * np.minimum(edges / 0.2, 1) + 0.2 * np.maximum(edges - 0.2, 0) / 0.8)


def one_after_another():
    """6000 requests of 64 KiB from the start; a state holds 1024 of them."""
    return np.clip(REQUESTS - 1024 * np.arange(STATES), 0, 1024) / REQUESTS


UNIFORM = np.full(STATES, 1 / STATES)
# Coefficients of variation of the gaps: 1 for Poisson arrivals; 0 for a fixed rate, 0.46 to 0.50
# for the two of 350 and 150 a second together, and what the recording host adds.
POISSON, FIXED, TWO_FIXED = (0.9, 1.1), (0.0, 0.5), (0.46, 0.6)
LAWS = {
    "uniform_fixed": Law(UNIFORM, FIXED),
    "uniform_poisson": Law(UNIFORM, POISSON),
    "zoned_80_20": Law(zoned(), POISSON),
    "sequential": Law(one_after_another(), FIXED, sequential=1.0, size_bytes=65536),
    "mixed_70_30": Law(UNIFORM, TWO_FIXED, reads=0.7),
}
of_fio = pytest.mark.parametrize("name", LAWS)


@cache
def fitted(name):
    return fit_trace(recorded_trace(name), levels=2, space_bytes=SPACE_BYTES)


@cache
def refitted(name):
    """Models of five traces generated from the model."""
    made = [generate_trace(fitted(name), seed=seed) for seed in SEEDS]
    return [fit_trace(one, levels=2, space_bytes=SPACE_BYTES) for one in made]


def occupancy(model):
    return np.bincount(model.counts.state, model.counts.occupancy, STATES)


def variation(trace):
    gaps = np.diff(trace.to_table()["time_s"].to_numpy())
    return gaps.std() / gaps.mean()


def model_variation(model):
    """Of the gaps of all transitions together: mean of squares over square of the mean."""
    share = model.counts.count / model.counts.count.sum()
    mean, cv = model.laws.mean_s, model.laws.variation()
    return np.sqrt(share @ (mean**2 * (1 + cv**2)) / (share @ mean) ** 2 - 1)


@of_fio
class TestModelHasTheKnownLaw:
    def test_rate(self, name):
        assert fitted(name).rate == pytest.approx(RATE, rel=0.02)

    def test_variation_of_gaps(self, name):
        low, high = LAWS[name].variation
        assert low <= variation(recorded_trace(name)) <= high
        # Each transition has a law of its own; many are seen a few times only.
        model = model_variation(fitted(name))
        assert model == pytest.approx(variation(recorded_trace(name)), abs=0.25)

    def test_read_and_sequential_shares(self, name):
        model = fitted(name)
        assert model.read_share() == pytest.approx(LAWS[name].reads, abs=0.005)
        assert 1 - model.random_share() == pytest.approx(LAWS[name].sequential, abs=0.002)

    def test_one_size(self, name):
        survey = fitted(name).survey
        assert survey.requests == REQUESTS
        assert survey.sizes.tolist() == [LAWS[name].size_bytes]

    def test_occupancy_of_states(self, name):
        expected = REQUESTS * LAWS[name].shares
        found = occupancy(fitted(name))
        there = expected > 0
        assert found[~there].sum() == 0
        assert stats.chisquare(found[there], expected[there]).pvalue > 0.01


def test_80_percent_are_in_the_first_fifth():
    """The states below the fifth's edge, and the one that it cuts, hold 80 % and their part."""
    first = occupancy(fitted("zoned_80_20"))[:4].sum() / REQUESTS
    assert first == pytest.approx(0.8 + 0.2 * 0.8 / 12.8, abs=0.015)


def test_a_uniform_load_is_not_taken_for_a_zoned_one():
    found = occupancy(fitted("uniform_poisson"))
    assert stats.chisquare(found, REQUESTS * zoned()).pvalue < 1e-9


def test_a_fixed_rate_is_told_from_poisson_arrivals():
    fixed = model_variation(fitted("uniform_fixed"))
    assert fixed < 0.6 * model_variation(fitted("uniform_poisson"))


@of_fio
class TestGeneratedTraceKeepsTheLaw:
    def test_rate(self, name):
        mean = np.mean([model.rate for model in refitted(name)])
        assert mean == pytest.approx(RATE, rel=0.02)

    def test_variation_of_gaps(self, name):
        made = np.mean([variation(generate_trace(fitted(name), seed=seed)) for seed in SEEDS])
        assert made == pytest.approx(variation(recorded_trace(name)), abs=0.1)

    def test_shares(self, name):
        for model in refitted(name):
            assert model.read_share() == pytest.approx(LAWS[name].reads, abs=0.02)
            assert 1 - model.random_share() == pytest.approx(LAWS[name].sequential, abs=0.005)
            assert model.survey.sizes.tolist() == [LAWS[name].size_bytes]


@pytest.mark.parametrize("name", [name for name, law in LAWS.items() if not law.sequential])
def test_a_generated_trace_keeps_the_occupancy_of_states(name):
    shares = np.mean([occupancy(model) for model in refitted(name)], axis=0) / REQUESTS
    assert shares == pytest.approx(LAWS[name].shares, abs=0.01)


def test_a_generated_run_is_one_run():
    """It starts anywhere in the first state, and passes through the next ones whole."""
    for model in refitted("sequential"):
        found = occupancy(model)
        assert found[1:5].tolist() == [1024] * 4
        assert 0 < found[0] <= 1024
        assert found[7:].sum() == 0


@cache
def terasort_model(name):
    return fit_trace(recorded_trace(name))


def made_of_terasort(name, **how):
    return [generate_trace(terasort_model(name), seed=seed, **how) for seed in range(10)]


def hits(table, sizes=None):
    """LRU hit ratios of caches of 1, 5 and 20 % of the footprint, and their sizes in blocks."""
    lbn, size_bytes = (table[column].to_numpy() for column in ("lbn", "size_bytes"))
    curve = hit_ratio_curve(touched_blocks(lbn, size_bytes)[0])
    sizes = sizes or [int(curve.footprint * share) for share in (0.01, 0.05, 0.2)]
    return curve.hit_ratio(sizes), sizes


def mean_hits(traces, sizes):
    return np.mean([hits(trace.to_table(), sizes)[0] for trace in traces], axis=0)


@pytest.mark.parametrize("name", TERASORTS)
class TestTerasort:
    def test_shares_are_kept(self, name):
        model = terasort_model(name)
        assert 0.3 < model.read_share() < 0.4
        for one in made_of_terasort(name):
            again = fit_trace(one)
            assert again.read_share() == pytest.approx(model.read_share(), abs=0.005)
            assert again.random_share() == pytest.approx(model.random_share(), abs=0.01)

    def test_lru_hits_at_1_and_5_percent_are_kept_to_3_points(self, name):
        original, sizes = hits(recorded_trace(name).to_table())
        assert mean_hits(made_of_terasort(name), sizes)[:2] == pytest.approx(original[:2], abs=0.03)

    def test_lru_hits_at_20_percent_are_nearer_than_with_uniform_places(self, name):
        """Terasort uses next to nothing again; long requests at places drawn anew overlap."""
        original, sizes = hits(recorded_trace(name).to_table())
        assert original[2] < 0.001
        made = mean_hits(made_of_terasort(name), sizes)[2]
        assert made < 0.09
        assert made < mean_hits(made_of_terasort(name, locality=False), sizes)[2] - 0.03


class TestSamples:
    def test_are_small(self):
        folder = resources.files("ppw.samples") / "traces"
        sizes = {
            one.name: len(one.read_bytes())
            for one in folder.iterdir()
            if one.name.endswith(".parquet")
        }
        assert set(sizes) == {f"{name}.parquet" for name in RECORDED_TRACES}
        assert sum(sizes.values()) < 400_000

    @pytest.mark.parametrize("name", RECORDED_TRACES)
    def test_have_latencies_and_no_finding(self, name):
        trace = recorded_trace(name)
        assert trace.findings == ()
        assert trace.names["device"] == ("loop",)
        assert (trace.to_table()["latency_s"].to_numpy() > 0).all()

    def test_another_name_is_refused(self):
        with pytest.raises(PpwError, match="'nothing' is not one of uniform_fixed"):
            recorded_trace("nothing")
