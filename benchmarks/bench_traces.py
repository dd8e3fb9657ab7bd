"""Speed of reading block traces, beside pandas reading the same file in the same process.

``python benchmarks/bench_traces.py [--requests 2000000]`` writes a made-up trace in the form of
MSR Cambridge's CSV, and reads it in turns with `measurements.traces.read_trace` (parsed, checked,
put in order, in SI units) and `pandas.read_csv` (parsed), each several times; medians of
processor seconds count, as pandas may use several cores.
Other formats are then timed with the same requests, for the record. The exit code is 1 when the MSR
reader is slower than pandas.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

import numba  # noqa: E402, F401  (loaded, as in every command that fits a trace)
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from figures import Figure, in_turns, rate  # noqa: E402

from measurements.traces import read_trace, write_trace  # noqa: E402
from measurements.traces.blktrace import LITTLE, MAGIC  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

_START = 128_166_372_003_061_629
_REQUESTS, _REPEATS = 2_000_000, 5
_MSR = "read MSR Cambridge CSV"


def made_up(requests: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "timestamp": _START + np.cumsum(rng.integers(1, 100_000, requests)),
            "host": "hm",
            # Each of the traces' files is of one disk.
            "disk": 0,
            "type": np.where(rng.random(requests) < 0.5, "Read", "Write"),
            "offset": rng.integers(0, 1 << 30, requests) * 512,
            "size": rng.integers(1, 64, requests) * 512,
            "response": rng.integers(100, 100_000, requests),
        }
    )


def write_blktrace(frame: pd.DataFrame, path: Path) -> None:
    """An arrival and a completion a request."""
    records = np.zeros((len(frame), 2), LITTLE)
    records["magic"] = MAGIC
    records["time"] = (frame["timestamp"].to_numpy() - _START)[:, None] * 100
    records["time"][:, 1] += 1
    records["sector"] = frame["offset"].to_numpy()[:, None] // 512
    records["bytes"] = frame["size"].to_numpy()[:, None]
    records["action"] = [(1 << 16) | 1, (1 << 16) | 8]
    records.tofile(path)


def read_all(path: Path) -> None:
    for _ in read_trace(path).batches():
        pass


def figures(scale: float = 1.0) -> Iterator[Figure]:
    """Reading the same requests from several formats."""
    return measured(max(1000, int(_REQUESTS * scale)), _REPEATS)


def measured(requests: int, repeats: int) -> Iterator[Figure]:
    """Read MSR Cambridge's CSV in turns with pandas, then the others."""
    with tempfile.TemporaryDirectory() as folder:
        frame = made_up(requests)
        msr, parquet = Path(folder, "msr.csv"), Path(folder, "trace.parquet")
        blktrace = Path(folder, "made.blktrace.0")
        frame.to_csv(msr, header=False, index=False)
        ours, theirs = in_turns(
            repeats,
            lambda: read_all(msr),
            lambda: pd.read_csv(msr, header=None),
            clock=time.process_time,
        )
        unit, millions = "million requests/s", requests / 1e6
        yield rate(_MSR, unit, millions, ours, peer="pandas.read_csv", peer_seconds=theirs)
        write_trace(read_trace(msr), parquet)
        write_blktrace(frame, blktrace)
        for path, name in (
            (parquet, "read a trace in ppw's Parquet"),
            (blktrace, "read a trace of blktrace"),
        ):
            seconds = in_turns(_REPEATS, lambda p=path: read_all(p), clock=time.process_time)[0]
            yield rate(name, unit, millions, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=_REQUESTS)
    parser.add_argument("--repeats", type=int, default=_REPEATS)
    given = parser.parse_args()
    slow = False
    for found in measured(given.requests, given.repeats):
        beside = f": {found.ratio:.2f} of {found.peer}" if found.peer else ""
        print(
            f"{found.name:32} {found.value:6.2f} ({found.low:.2f} to {found.high:.2f}) "
            f"{found.unit}{beside}"
        )
        slow = slow or (found.name == _MSR and found.ratio < 1)
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
