"""Block traces for tests: made of arrays, or read from the third-party samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_VSCSI = [("sn", "<u4"), ("len", "<u4"), ("nsg", "<u4"), ("cmd", "<u2"), ("ver", "<u2")]
_VSCSI += [("lbn", "<u8"), ("us", "<u8")]


class Columns(NamedTuple):
    time_s: NDArray[np.float64]
    device: NDArray[np.int32]
    lbn: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    op: NDArray[np.uint8]


class ArrayTrace:
    """What `measurements.traces.read_trace` gives, of arrays; in batches of any length."""

    findings: tuple[str, ...] = ()

    def __init__(self, columns: Columns, at_once: int = 1 << 20) -> None:
        self.columns, self.at_once = columns, at_once
        self.names: dict[str, tuple[str, ...]] = {}

    def batches(self):
        n = len(self.columns.time_s)
        for first in range(0, n, self.at_once):
            part = [c[first : first + self.at_once] for c in self.columns]
            k = len(part[0])
            yield pa.RecordBatch.from_pydict(
                {
                    "time_s": part[0],
                    "stream": np.zeros(k, np.int32),
                    "device": part[1],
                    "lbn": part[2],
                    "size_bytes": part[3],
                    "op": part[4],
                    "latency_s": np.full(k, np.nan),
                    "file": np.full(k, -1, np.int32),
                }
            )


def columns_of(table: pa.Table) -> Columns:
    return Columns(*(table[name].to_numpy() for name in Columns._fields))


def sequential(c: Columns) -> NDArray[np.bool_]:
    """Whether each request goes on where its device's last one ended, by the definition."""
    end: dict[int, int] = {}
    found = np.zeros(len(c.lbn), dtype=bool)
    for i, (device, lbn, size) in enumerate(zip(c.device, c.lbn, c.size_bytes, strict=True)):
        found[i] = end.get(int(device)) == lbn
        end[int(device)] = int(lbn + size // 512)
    return found


def cloudphysics(data_dir: Path) -> Columns:
    raw = data_dir / "block-traces" / "raw" / "cloudPhysicsIO_first_hour.vscsi"
    a = np.fromfile(raw, dtype=_VSCSI)
    time = (a["us"] - a["us"][0]) * 1e-6
    op = (a["cmd"] == 0x2A).astype(np.uint8)
    device = np.zeros(len(a), np.int32)
    return Columns(time, device, a["lbn"].astype(np.int64), a["len"].astype(np.int64), op)


def mqsim(data_dir: Path, name: str) -> Columns:
    a = np.loadtxt(data_dir / "block-traces" / "raw" / f"{name}-small.trace", dtype=np.int64)
    time = (a[:, 0] - a[0, 0]) * 1e-9
    op = (a[:, 4] == 0).astype(np.uint8)
    return Columns(time, a[:, 1].astype(np.int32), a[:, 2], a[:, 3] * 512, op)


def made(requests: int, seed: int = 1, devices: int = 2) -> Columns:
    """Reads at random, writes in runs, Poisson arrivals: some of everything."""
    rng = np.random.default_rng(seed)
    run = np.cumsum(rng.random(requests) < 0.2)
    device = (rng.integers(devices, size=run[-1] + 1)[run]).astype(np.int32)
    start = rng.integers(0, 1 << 17, size=run[-1] + 1)[run] * 8
    within = np.arange(requests) - np.searchsorted(run, run)
    writes = rng.random(run[-1] + 1)[run] < 0.4
    size = np.where(writes, 65536, 8192)
    lbn = start + within * size // 512
    time = np.cumsum(rng.exponential(0.01, requests))
    return Columns(time, device, lbn, size, writes.astype(np.uint8))
