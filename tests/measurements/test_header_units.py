"""Units of headers that are named by hand."""

from __future__ import annotations

import pytest

from measurements import MeasurementError
from measurements.header_units import mapped_factor, unit_in_words
from measurements.headers import rename_headers


@pytest.mark.parametrize(
    ("header", "si", "factor"),
    [
        ("run ms", "s", 1e-3),
        ("run in ms", "s", 1e-3),
        ("Time (in ms)", "s", 1e-3),
        ("Latency [ms] p99", "s", 1e-3),
        ("ms", "s", 1e-3),
        ("MS", "s", 1e-3),
        ("RunMs", "s", 1e-3),
        ("CPUms", "s", 1e-3),
        ("p99ms", "s", 1e-3),
        ("elapsedms", "s", 1e-3),
        ("runms", "s", 1e-3),
        ("run µs", "s", 1e-6),
        ("run.milliseconds", "s", 1e-3),
        ("Time S", "s", 1.0),
        ("Input GB", "bytes", 1e9),
        ("ReqGB", "bytes", 1e9),
        ("SizeKB", "bytes", 1e3),
        ("size_kbytes", "bytes", 1e3),
        ("Size kB", "bytes", 1e3),
        ("sizekB", "bytes", 1e3),
        ("sizeKiB", "bytes", 1024.0),
        ("diskB", "bytes", 1.0),
        ("clock ghz", "hz", 1e9),
        ("clockMHz", "hz", 1e6),
        ("CPUMHz", "hz", 1e6),
        ("freqkHz", "hz", 1e3),
        ("clockHz", "hz", 1.0),
        ("avgmW", "w", 1e-3),
        ("total MJ", "j", 1e6),
    ],
)
def test_the_last_word_is_the_unit_of_a_quantity_that_is_known(
    header: str, si: str, factor: float
) -> None:
    found = unit_in_words(header, si)
    assert found is not None
    assert (found.si, found.factor) == (si, factor)


@pytest.mark.parametrize(
    ("header", "si"),
    [
        *(("h", "s"), ("items", "s"), ("Columns", "s"), ("time GB", "s"), ("", "s"), ("()", "s")),
        *(("run ms", "bytes"), ("requests", "bytes"), ("size", "bytes"), ("wall", "s")),
    ],
)
def test_a_word_that_only_ends_like_a_unit_is_none(header: str, si: str) -> None:
    assert unit_in_words(header, si) is None


@pytest.mark.parametrize(
    ("target", "header", "factor"),
    [
        ("time_s", "run ms", 1e-3),
        ("time_ms", "run ms", 1e-3),
        ("time_ms", "run", 1e-3),
        ("data_bytes", "Input GB", 1e9),
        ("data_kib", "Input KB", 1024.0),
        ("throughput_ops_s", "jobs per min", 1 / 60),
    ],
)
def test_map_takes_the_unit_of_the_header_or_else_that_of_the_target(
    target: str, header: str, factor: float
) -> None:
    assert rename_headers([header], {target: header}, "r.csv")[header].factor == factor


def test_units_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(MeasurementError, match="carry different units; write time_s=run ms"):
        rename_headers(["run ms"], {"time_us": "run ms"}, "r.csv")
    assert mapped_factor("size_kib", "KB", 1024.0, 1e3, "size_bytes", "t.csv") == 1024.0
