"""Traces made up for tests: some of everything, a skewed load of two streams, files in pieces."""

import numpy as np
import pandas as pd
import pyarrow as pa

from measurements.traces.requests import SCHEMA


class MadeTrace:
    """Requests that are at hand, with the attributes of a trace that was read."""

    def __init__(self, table, names=None, at_once=700):
        self.table, self.at_once = table, at_once
        self.names = names or {"stream": ("web", "log"), "device": ("sda",), "file": ()}
        self.findings = ()

    def batches(self):
        yield from self.table.to_batches(max_chunksize=self.at_once)


def trace(**columns):
    n = len(columns["lbn"])
    default = {
        "time_s": np.arange(n, dtype=float),
        "stream": np.zeros(n),
        "device": np.zeros(n),
        "size_bytes": np.full(n, 4096),
        "op": np.zeros(n),
        "latency_s": np.full(n, np.nan),
        "file": np.full(n, -1),
    }
    known = {**default, **columns}
    arrays = [pa.array(np.asarray(known[f.name]).astype(f.type.to_pandas_dtype())) for f in SCHEMA]
    return MadeTrace(pa.table(arrays, schema=SCHEMA))


def made(requests, seed=1, devices=2):
    """Columns of reads at random and writes in runs, Poisson arrivals: some of everything."""
    rng = np.random.default_rng(seed)
    run = np.cumsum(rng.random(requests) < 0.2)
    device = rng.integers(devices, size=run[-1] + 1)[run]
    start = rng.integers(0, 1 << 17, size=run[-1] + 1)[run] * 8
    within = np.arange(requests) - np.searchsorted(run, run)
    writes = rng.random(run[-1] + 1)[run] < 0.4
    size = np.where(writes, 65536, 8192)
    time = np.cumsum(rng.exponential(0.01, requests))
    columns = {"time_s": time, "device": device, "lbn": start + within * size // 512}
    return pd.DataFrame({**columns, "size_bytes": size, "op": writes})


def busy(n=4000, seed=1, rate=100.0, hot=300):
    """Random reads of a web server, most of them to some hot blocks, and a log written beside."""
    rng = np.random.default_rng(seed)
    is_log = rng.random(n) < 0.3
    place = np.where(rng.random(n) < 0.8, rng.integers(hot, size=n), rng.integers(20_000, size=n))
    log = 8 * (20_000 + np.cumsum(is_log))
    return trace(
        time_s=np.cumsum(rng.exponential(1 / rate, n)),
        stream=is_log,
        lbn=np.where(is_log, log, 8 * place),
        size_bytes=np.where(is_log, 4096, np.where(rng.random(n) < 0.7, 4096, 8192)),
        op=is_log,
    )


def fragmented(files=20, pages=30, seed=2):
    """Files read from begin to end, one after the other, whose pages are strewn over the disk."""
    rng = np.random.default_rng(seed)
    lbn = 8 * rng.permutation(files * pages)
    return trace(lbn=lbn, file=np.repeat(np.arange(files), pages))
