"""What a first pass finds in a trace: a trace by hand, and counts of Python's own."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from counted_traces import columns

from fitting.errors import FittingError
from fitting.trace_survey import Surveyor, alignment_of


def surveyed(*batches):
    surveyor = Surveyor()
    for batch in batches:
        surveyor.add(*batch[:5])
    return surveyor.survey()


def test_five_requests_by_hand():
    found = surveyed(
        columns(
            [107, 115, 8003, 43, 51],
            time_s=[2.0, 2.5, 2.5, 4.0, 4.25],
            stream=[1, 1, 0, 1, 1],
            device=[7, 7, 5, 7, 5],
            size_bytes=[4096, 512, 4096, 0, 1024],
        )
    )
    assert (found.requests, found.first_s, found.last_s, found.tick_s) == (5, 2.0, 4.25, 0.25)
    assert (found.low_lbn, found.high_lbn) == (43, 8011)
    assert (found.streams.tolist(), found.devices.tolist()) == ([0, 1, 1], [5, 5, 7])
    assert found.stream_counts.tolist() == [1, 1, 3]
    assert found.device_of_stream.tolist() == [0, 0, 1]
    assert found.sizes.tolist() == [4096, 0, 512, 1024]
    assert found.size_counts.tolist() == [2, 1, 1, 1]
    # All of them are 3 modulo 8.
    assert (found.alignment, found.alignment_offset) == (8, 3)
    # Four gaps of five requests.
    assert found.duration_s == 2.25 * 5 / 4


def test_sizes_beyond_the_commonest_are_together_by_power_of_two():
    sizes = [4096] * 5 + [512] * 4 + [1024, 1536, 2048, 2048]
    found = surveyed(columns(np.arange(13), size_bytes=sizes)).size_classes(alone=2)
    assert [part.tolist() for part in found.sizes] == [[4096], [512], [1024, 1536], [2048]]
    assert [part.tolist() for part in found.counts] == [[5], [4], [1, 1], [2]]


def many(n=6000):
    """More streams and sizes than there is room for at first."""
    rng = np.random.default_rng(4)
    return columns(
        8 * rng.integers(10**6, size=n),
        time_s=np.cumsum(rng.exponential(1.0, n)),
        stream=rng.integers(300, size=n),
        device=rng.integers(3, size=n),
        size_bytes=512 * rng.integers(1, 2000, size=n),
    )


def test_streams_and_sizes_are_counted_however_many_there_are():
    trace = many()
    found = surveyed(trace)
    streams = Counter(zip(trace.stream.tolist(), trace.device.tolist(), strict=True))
    made = zip(found.streams.tolist(), found.devices.tolist(), strict=True)
    assert dict(zip(made, found.stream_counts.tolist(), strict=True)) == streams
    sizes = dict(zip(found.sizes.tolist(), found.size_counts.tolist(), strict=True))
    assert sizes == Counter(trace.size_bytes.tolist())
    assert found.size_counts.tolist() == sorted(sizes.values(), reverse=True)
    assert found.tick_s == np.diff(trace.time_s).min()


def test_batches_make_no_difference():
    trace = many()
    parts = (
        type(trace)(*(column[part] for column in trace))
        for part in np.split(np.arange(6000), [0, 1, 2000])
    )
    whole, pieces = surveyed(trace), surveyed(*parts)
    for name, value in vars(whole).items():
        np.testing.assert_array_equal(getattr(pieces, name), value)


def test_a_flush_at_the_first_block_of_the_first_stream_is_a_request():
    found = surveyed(columns([0, 8], size_bytes=[0, 512]))
    assert (found.requests, found.low_lbn, found.high_lbn) == (2, 0, 9)


@pytest.mark.parametrize("row", [0, 1, 3])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("time_s", 9.0),
        ("time_s", np.nan),
        ("time_s", np.inf),
        ("stream", -1),
        ("device", -1),
        ("lbn", -1),
        ("size_bytes", -1),
    ],
)
def test_requests_that_cannot_be_are_named(row, column, value):
    surveyor, trace = Surveyor(), columns([8, 16, 24, 32], time_s=[10.0, 11.0, 12.0, 13.0])
    surveyor.add(*trace[:5])
    later = trace._replace(time_s=trace.time_s + 10)
    getattr(later, column)[row] = value
    said = f"request {4 + row}: it cannot be (time_s {later.time_s[row]!r} before"
    with pytest.raises(FittingError, match=re.escape(said)):
        surveyor.add(*later[:5])


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([0, 0, 64, 128], (64, 0)),
        ([5, 13, 21], (8, 5)),
        ([0] * 9 + [1], (256, 0)),
        ([0, 0, 0, 1], (1, 0)),
    ],
)
def test_alignments_by_hand(places, expected):
    # One in ten may lie elsewhere; one in four may not.
    assert alignment_of(np.bincount(places, minlength=256)) == expected
