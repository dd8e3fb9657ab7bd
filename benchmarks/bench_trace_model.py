"""Speed and memory of storage workload models, beside pandas on the same Parquet file.

``python benchmarks/bench_trace_model.py [--requests 8000000]`` writes a made-up trace to a scratch
folder and measures, in CPU seconds of one thread, reading and fitting four levels with and without
the law of reuse, generating with and without bursts and reuse, and pandas reading the file and
counting requests by device, operation and size. Each figure is the best of three, beside what was
asked and its ratio to pandas. Exit code 0 whatever is found.
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

from measurements.traces import write_trace
from measurements.traces.requests import SCHEMA
from ppw.errors import CaveatWarning
from ppw.traces.fit import fit_trace
from ppw.traces.generation import generate_trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from ppw.traces.generation import GeneratedTrace

TARGETS = {"fit": 8e6, "fit with reuse": 1e6, "generate": 5e6, "generate all": 1e6}
_REPEATS = 3


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


def rate(requests: int, work: Callable[[], object]) -> float:
    """Requests a CPU second, the best of a few repeats."""
    seconds = []
    for _ in range(_REPEATS):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return requests / min(seconds)


def drain(trace: GeneratedTrace) -> int:
    return sum(batch.num_rows for batch in trace.batches())


def count_by_pandas(path: Path) -> object:
    return pd.read_parquet(path).groupby(["device", "op", "size_bytes"]).size()


def measure(path: Path, requests: int) -> None:
    """Print what each step reaches."""
    model, plain = fit_trace(path), fit_trace(path, reuse=False)
    made = requests // 4
    pandas = rate(requests, lambda: count_by_pandas(path))
    print(f"{'pandas':16} {pandas / 1e6:8.2f} million requests a CPU second")
    for name, number, work in (
        ("fit", requests, lambda: fit_trace(path, reuse=False)),
        ("fit with reuse", requests, lambda: fit_trace(path)),
        ("generate", made, lambda: drain(generate_trace(plain, count=made, arrivals="laws"))),
        ("generate all", made, lambda: drain(generate_trace(model, count=made))),
    ):
        found = rate(number, work)
        print(
            f"{name:16} {found / 1e6:8.2f} million requests a CPU second, asked "
            f"{TARGETS[name] / 1e6:g}: {found / pandas:.3f} of pandas"
        )
    print(f"model {len(model.to_json()) / path.stat().st_size:.1%} of the Parquet file")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=8_000_000)
    requests = parser.parse_args().requests
    warnings.simplefilter("ignore", CaveatWarning)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.parquet")
        write(path, requests)
        measure(path, requests)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"peak memory {peak:.2f} GB")


if __name__ == "__main__":
    main()
