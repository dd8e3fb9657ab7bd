"""Loads scaled in space, time and streams: by hand, and alike for original and generated traces."""

import numpy as np
import pyarrow as pa
import pytest
from made_traces import busy, made, trace
from made_up import ignore_caveats

from ppw.errors import PpwError
from ppw.storage.fidelity import validate_trace
from ppw.storage.generate import generate_trace
from ppw.storage.scaling import Scale
from ppw.storage.trace_model import fit_trace
from ppw.storage.trace_source import survey

pytestmark = ignore_caveats


def scaled(original, **options):
    """The requests of a scaled trace, as a data frame."""
    made = Scale(**options).apply(original, survey(original).survey)
    return pa.Table.from_batches(list(made.batches())).to_pandas()


def test_two_copies_of_four_requests_by_hand():
    # Four requests last 8 s with the mean gap after the last: the second copy begins at 4 s.
    original = trace(time_s=[0, 1, 5, 6], lbn=[0, 8, 16, 24], stream=[0, 1, 0, 1])
    both = scaled(original, streams=2)
    assert both["time_s"].tolist() == [0, 1, 1, 2, 4, 5, 5, 6]
    assert both["stream"].tolist() == [0, 1, 2, 3, 2, 0, 3, 1]
    assert both["lbn"].tolist() == [0, 8, 16, 24, 0, 16, 8, 24]
    names = Scale(streams=2).apply(original, survey(original).survey).names["stream"]
    assert names == ("web", "log", "web (2)", "log (2)")


def test_a_smaller_space_keeps_eighths_runs_and_alignment():
    original = trace(**made(6000))
    lbn, table = original.table["lbn"].to_numpy(), scaled(original, size_bytes=2**26)
    addresses = (lbn, np.ptp(lbn) + 128), (table["lbn"].to_numpy(), 2**17)
    parts = [((x - lbn.min()) * 8 // n) for x, n in addresses]
    eighths = [np.bincount(part, minlength=8)[:8] for part in parts]
    assert np.abs(eighths[0] - eighths[1]).max() < 0.01 * len(lbn)
    end = table["lbn"] + table["size_bytes"] // 512
    assert (end - lbn.min()).max() <= 2**17
    assert ((table["lbn"] - lbn.min()) % 8 == 0).all()
    ends = lbn + original.table["size_bytes"].to_numpy() // 512, end.to_numpy()
    starts = lbn, table["lbn"].to_numpy()
    on = [np.mean(x[1:] == y[:-1]) for x, y in zip(starts, ends, strict=True)]
    assert on[0] - on[1] < 0.03


@pytest.mark.parametrize(
    "options", [{"size_bytes": 2**25}, {"time_scale": 0.5}, {"streams": 2}, {"streams": 3}]
)
def test_what_is_generated_passes_against_the_original_scaled_in_the_same_way(options):
    original = busy(6000, seed=3)
    model = fit_trace(original)
    synthetic = generate_trace(model, seed=2, **options)
    assert validate_trace(original, synthetic, **options).passed
    assert not validate_trace(original, synthetic).passed
    requests = 6000 * options.get("streams", 1)
    assert len(synthetic.to_table()) == requests
    assert len(generate_trace(model, count=1001, **options).to_table()) == 1001


@pytest.mark.parametrize(
    "options", [{"size_bytes": 2048}, {"size_bytes": 0}, {"streams": 0}, {"time_scale": 0}]
)
def test_what_cannot_be_is_refused(options):
    with pytest.raises(PpwError):
        scaled(busy(200), **options)
