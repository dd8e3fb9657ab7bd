"""Speed and memory of storage workload models, beside pandas on the same Parquet file.

``python benchmarks/bench_trace_model.py [--requests 8000000]`` writes a made-up trace to a scratch
folder and measures, in processor seconds of one thread, reading and fitting four levels with and
without the law of reuse, generating with and without bursts and reuse, and pandas reading the file
and counting requests by device, operation and size. Each is repeated in turns, and shown beside
what was asked and its ratio to pandas. Exit code 0 whatever is found.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
from figures import Figure, in_turns, rate

from measurements.traces import write_trace
from measurements.traces.requests import SCHEMA
from ppw.errors import CaveatWarning
from ppw.storage.generate import generate_trace
from ppw.storage.trace_model import fit_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ppw.storage.generate import GeneratedTrace

_FIT, _FIT_ALL = "fit 4 levels of a block trace", "fit 4 levels with reuse"
_MAKE, _MAKE_ALL = "generate requests by gap laws", "generate requests with bursts and reuse"
TARGETS = {_FIT: 8e6, _FIT_ALL: 1e6, _MAKE: 5e6, _MAKE_ALL: 1e6}
_REQUESTS, _REPEATS = 8_000_000, 3
_PEER = "pandas.read_parquet and groupby"


def write(path: Path, requests: int) -> None:
    rng = np.random.default_rng(1)
    run = np.cumsum(rng.random(requests) < 0.3)
    start = (rng.zipf(1.3, run[-1] + 1) * 8191 % (1 << 22))[run] * 8
    size = rng.choice([4096, 8192, 65536], run[-1] + 1, p=[0.5, 0.3, 0.2])[run]
    lbn = start + (np.arange(requests) - np.searchsorted(run, run)) * (size // 512)
    table = pa.table(
        {
            "time_s": np.cumsum(rng.exponential(1e-4, requests)),
            "stream": np.zeros(requests, np.int32),
            "device": (run % 4).astype(np.int32),
            "lbn": lbn,
            "size_bytes": size,
            "op": (rng.random(run[-1] + 1)[run] < 0.4).astype(np.uint8),
            "latency_s": np.full(requests, np.nan),
            "file": np.full(requests, -1, np.int32),
        }
    )
    write_trace(table.cast(SCHEMA).to_batches(1 << 20), path)


def drain(trace: GeneratedTrace) -> int:
    return sum(batch.num_rows for batch in trace.batches())


def count_by_pandas(path: Path) -> object:
    return pd.read_parquet(path).groupby(["device", "op", "size_bytes"]).size()


def measured(path: Path, requests: int) -> Iterator[Figure]:
    """Measure each step in turns with pandas."""
    model, plain = fit_trace(path), fit_trace(path, reuse=False)
    made = requests // 4
    works: dict[str, tuple[int, Callable[[], object]]] = {
        _FIT: (requests, lambda: fit_trace(path, reuse=False)),
        _FIT_ALL: (requests, lambda: fit_trace(path)),
        _MAKE: (made, lambda: drain(generate_trace(plain, count=made, arrivals="laws"))),
        _MAKE_ALL: (made, lambda: drain(generate_trace(model, count=made))),
    }
    for name, (number, work) in works.items():
        ours, theirs = in_turns(
            _REPEATS, work, lambda: count_by_pandas(path), clock=time.process_time
        )
        yield rate(
            name,
            "million requests/s",
            number / 1e6,
            ours,
            peer=_PEER,
            peer_seconds=theirs,
            peer_amount=requests / 1e6,
        )
    size = len(model.to_json()) / path.stat().st_size
    yield Figure("size of the model over that of the Parquet file", size, size, size, "")


def figures(scale: float = 1.0) -> Iterator[Figure]:
    """Fitting and generating in processor seconds of one thread."""
    warnings.simplefilter("ignore", CaveatWarning)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    requests = max(2000, int(_REQUESTS * scale))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.parquet")
        write(path, requests)
        yield from measured(path, requests)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=_REQUESTS)
    for found in figures(parser.parse_args().requests / _REQUESTS):
        asked = f", asked {TARGETS[found.name] / 1e6:g}" if found.name in TARGETS else ""
        beside = f": {found.ratio:.3f} of {found.peer}" if found.peer else ""
        print(
            f"{found.name:48} {found.value:7.3f} ({found.low:.3f} to {found.high:.3f}) "
            f"{found.unit}{asked}{beside}"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"peak memory {peak:.2f} GB")


if __name__ == "__main__":
    main()
