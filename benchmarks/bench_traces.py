"""Speed of reading block traces, beside pandas reading the same file in the same process.

``python benchmarks/bench_traces.py [--requests 2000000]`` writes a made-up trace in the form of
MSR Cambridge's CSV, and reads it in turns with `measurements.traces.read_trace` (parsed, checked,
put in order, in SI units) and `pandas.read_csv` (parsed), each several times; the quickest of each
counts. The other formats are then timed with the same requests, for the record. The exit code is
1 when the MSR reader is slower than pandas.
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

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

from measurements.traces import read_trace, write_trace  # noqa: E402
from measurements.traces.blktrace import LITTLE, MAGIC  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

_START = 128_166_372_003_061_629


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


def quickest(read: Callable[[], None], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        read()
        times.append(time.perf_counter() - start)
    return min(times)


def read_all(path: Path) -> None:
    for _ in read_trace(path).batches():
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        frame = made_up(given.requests)
        msr, parquet = Path(folder, "msr.csv"), Path(folder, "trace.parquet")
        frame.to_csv(msr, header=False, index=False)
        ours, theirs = [], []
        # In turns, so that both meet the same neighbours on the machine.
        for _ in range(given.repeats):
            theirs.append(quickest(lambda: pd.read_csv(msr, header=None), 1))
            ours.append(quickest(lambda: read_all(msr), 1))
        ratio = min(theirs) / min(ours)
        millions = given.requests / 1e6
        print(f"pandas.read_csv   {millions / min(theirs):6.2f} million lines/s")
        print(f"msr               {millions / min(ours):6.2f} million lines/s")
        print(f"ratio             {ratio:6.2f} (at least 1 is wanted)")
        write_trace(read_trace(msr), parquet)
        blktrace = Path(folder, "made.blktrace.0")
        write_blktrace(frame, blktrace)
        for path, name in ((parquet, "ppw's Parquet"), (blktrace, "blktrace")):
            rate = millions / quickest(lambda path=path: read_all(path), 3)
            print(f"{name:17} {rate:6.2f} million requests/s")
    return 0 if ratio >= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
