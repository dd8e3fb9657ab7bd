"""What validation rejects: nine wrong models of several traces; and what it accepts."""

from importlib import resources

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pytest
from made_traces import MadeTrace, busy, trace
from made_up import ignore_caveats

from measurements.traces import read_trace
from ppw.storage.fidelity import validate_trace
from ppw.storage.generate import generate_trace
from ppw.storage.trace_model import fit_trace

pytestmark = ignore_caveats


def shuffled_gaps(original, rng):
    gaps = np.diff(original.time_s, prepend=0.0)
    return original.assign(time_s=np.cumsum(np.append(0.0, rng.permutation(gaps[1:]))))


def poisson(original, rng):
    gaps = rng.exponential(np.diff(original.time_s).mean(), len(original))
    return original.assign(time_s=np.cumsum(gaps))


def laws_only(original, rng):
    return generate_trace(fit_trace(trace(**original)), arrivals="laws")


def no_bursts(original, rng):
    """As many requests in each two hundredth of the time as in any other."""
    return original.assign(time_s=np.linspace(0, original.time_s.iloc[-1], len(original)))


def wrong_mix(original, rng):
    other, rare = rng.random(len(original)) < 0.2, int(np.mean(original.op == 0) > 0.5)
    return original.assign(op=np.where(other, rare, original.op))


def wrong_sizes(original, rng):
    larger = rng.random(len(original)) < 0.2
    return original.assign(size_bytes=np.where(larger, 2, 1) * original.size_bytes)


def uniform_addresses(original, rng):
    places = original.lbn.max() // 8 + 1
    return original.assign(lbn=8 * rng.integers(places, size=len(original)))


def no_reuse(original, rng):
    """Every piece of 64 KiB that is accessed is another one than all before it."""
    piece = original.lbn // 128
    ago = piece.groupby(piece).cumcount().to_numpy()
    return original.assign(lbn=original.lbn + ago * (original.lbn.max() // 128 + 1) % 997 * 128)


def one_stream(original, rng):
    return original.assign(stream=0, device=0)


WRONG = (shuffled_gaps, poisson, laws_only, no_bursts, wrong_mix, wrong_sizes)
WRONG += (uniform_addresses, no_reuse, one_stream)
RAW = {"cloudphysics": "cloudPhysicsIO_first_hour.vscsi"}
RAW |= {"tpcc": "tpcc-small.trace", "wsrch": "wsrch-small.trace"}


def bursts(n=12_000, seed=2):
    """A server whose load comes in bursts of writes, beside reads of some hot files."""
    table = busy(n, seed).table.to_pandas()
    rng = np.random.default_rng(seed)
    quick = np.repeat(rng.random(n // 300) < 0.3, 300)
    gaps = np.where(quick, 0.002, 0.02) * rng.exponential(size=n)
    return table.assign(time_s=np.cumsum(gaps), op=np.where(quick, 1, table.op))


def terasort(name):
    path = resources.files("ppw.catalogue") / "data" / "traces" / f"{name}.parquet"
    return read_trace(str(path)).to_table().to_pandas()


def rejected(original, wrong):
    """Names of the wrong models that validation rejects; what cannot be wrong is left out."""
    rng, found = np.random.default_rng(5), {}
    for make in wrong:
        made = make(original, rng)
        made = trace(**made) if isinstance(made, pd.DataFrame) else made
        found[make.__name__] = not validate_trace(trace(**original), made).passed
    return found


def test_nine_wrong_models_of_a_made_load_are_rejected():
    assert all(rejected(bursts(), WRONG).values())


def test_a_model_of_a_made_load_is_accepted():
    original = trace(**bursts())
    made = [generate_trace(fit_trace(original), seed=seed) for seed in range(4)]
    result = validate_trace(original, made)
    assert result.passed, result.verdict()


@pytest.mark.parametrize("seed", range(3))
def test_one_half_of_a_steady_load_is_accepted_as_the_other(seed):
    # Its log would be elsewhere in the second half.
    table = busy(60_000, seed).table.filter(pc.field("op") == 0)
    first, second = (MadeTrace(table.slice(start, 20_000)) for start in (0, 20_000))
    table = validate_trace(first, second).table
    failed = table["figure"][table["verdict"] == "fail"]
    # Of some sixty figures, chance may put one out of its band.
    assert len(failed) <= 1, failed


@pytest.mark.thirdparty
@pytest.mark.parametrize("name", RAW)
def test_wrong_models_of_measured_traces_are_rejected(name, data_dir):
    original = read_trace(data_dir / "block-traces" / "raw" / RAW[name]).to_table().to_pandas()
    found = rejected(original, WRONG)
    missed = {wrong for wrong, was in found.items() if not was}
    # A trace of one stream has no other; requests at a steady pace are as if at random.
    assert len(missed) <= 1, missed
