"""A small file that unpacks to more than the machine should take is refused, by name and budget."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from measurements import MeasurementError, read_runs
from measurements.table import memory_budget
from measurements.timeseries import read_time_series
from ppw.cli import main

HEADER = b"host,freq_ghz,time_s,note\n"


def bomb(kind):
    """A file of under a megabyte that holds over 300 MB."""
    if kind == "gzip":
        # A stream of many members is one file, and compressing one of them takes no time.
        rows = gzip.compress(b"h,1.2,10,same as above\n" * 300_000, 9, mtime=0)
        return gzip.compress(HEADER, mtime=0) + 50 * rows
    texts = pd.Categorical(["x" * 100_000]).repeat(4000)
    # Numbers take eight bytes each when they are read.
    columns = {"numbers": {"freq_ghz": np.ones(40_000_000, bool)}, "texts": {"host": texts}}
    return pd.DataFrame(columns[kind]).to_parquet(index=False)


@pytest.mark.parametrize("kind", ["gzip", "numbers", "texts"])
def test_a_small_file_does_not_take_the_memory(kind, tmp_path):
    path = tmp_path / "runs"
    path.write_bytes(bomb(kind))
    assert path.stat().st_size < 2_000_000
    with pytest.raises(MeasurementError, match=rf"{path}: holds more than [\d.]+ MB, the budget"):
        read_runs(path)
    if kind == "gzip":
        with pytest.raises(MeasurementError, match=rf"{path}: holds more than"):
            read_time_series(path, format="perf")


def test_many_equal_texts_are_no_bomb(tmp_path):
    path = tmp_path / "runs.parquet"
    hosts = pd.Categorical(["a host with a long name" * 9]).repeat(50_000)
    columns = {"host": hosts, "freq_ghz": 1.2, "time_s": np.arange(1.0, 50_001)}
    pd.DataFrame(columns).to_parquet(path, index=False)
    assert len(read_runs(path)) == 50_000


# Every row brings a device, a column or a header of its own: the table would grow with the square.
_STAMP = '"timestamp":{{"date":"2026-11-21","time":"00:{:02}:{:02}","utc":1}}'
_SAMPLE = f'{{{{{_STAMP},"disk":[{{{{"disk-device":"d{{}}","tps":1}}}}]}}}}'
BROAD = {
    "runs": ("", lambda n: f'{{"time_s":1,"u{n}":1}}\n'),
    "lines": ("", lambda n: f'{{"time_s":{n},"interval_s":1,"disk_ios[d{n}]":1}}\n'),
    "csv": ("time_s,interval_s", lambda n: ",user_s"),
    "collectl": (
        "# Collectl: V4\n",
        lambda n: f"#Date Time [CPU]User% [DSK:s{n}]RKBytes\n20250615 15:06:40 1 8\n",
    ),
    "pcp": ("", lambda n: f'Time,"disk.dev.read_bytes-s{n}"\n2026-11-21 00:00:01,8\n'),
    "sadf-csv": (
        "# hostname;interval;timestamp;DEV;tps\n",
        lambda n: f"vm;1;2026-11-21 00:{n // 60:02}:{n % 60:02} UTC;d{n};8\n",
    ),
    "sadf-json": (
        '{"sysstat":{"hosts":[{"nodename":"h","statistics":[',
        lambda n: _SAMPLE.format(*divmod(n, 60), n) + ("," if n < 3299 else "]}]}}"),
    ),
}


@pytest.mark.parametrize("kind", BROAD)
def test_rows_that_bring_their_own_columns_are_refused(kind, tmp_path):
    path = tmp_path / "log"
    start, row = BROAD[kind]
    path.write_text(start + "".join(map(row, range(3300))) + "\n")
    assert path.stat().st_size < 400_000
    said = "(holds more than 67 MB|names its columns (10|33).. times|more than once)"
    with pytest.raises(MeasurementError, match=rf"^{path}: .*{said}"):
        (read_runs if kind == "runs" else read_time_series)(path)


def test_the_budget_is_an_option(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_bytes(HEADER + b"h,1.2,10,n\nh,2.4,5,n\n" * 1000)
    asked = ["check", str(path)]
    refused = CliRunner().invoke(main, ["--max-memory", "40kB", *asked])
    assert "holds more than 0 MB, the budget" in str(refused.exception)
    assert CliRunner().invoke(main, asked).exit_code == 0
    assert not memory_budget._given


def test_an_endless_file_is_refused():
    memory_budget.set_budget(100e6)
    try:
        with (
            Path("/dev/zero").open("rb") as endless,
            pytest.raises(MeasurementError, match="zeros: holds more than 25 MB"),
        ):
            memory_budget.read_whole(endless, "zeros")
    finally:
        memory_budget.set_budget(None)
