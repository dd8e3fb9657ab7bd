"""Load by memtier_benchmark: closed loop or at a rate, latencies from its JSON file."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from measurements.errors import DAMAGE, MeasurementError
from measurements.workloads.latency import Percentile
from measurements.workloads.memcached.loaders import LoadReport

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from measurements.workloads.memcached.loaders import Work
    from measurements.workloads.memcached.protocol import Address

_FIRST_KEY = 10**9
_MS = 1e-3
# Its histogram keeps three digits; the JSON has microseconds.
_RESOLUTION = "0.1 %, not below 1 µs"


class Memtier:
    """The program, found at ``program``."""

    name = "memtier"
    own_objects = False
    paces = True

    def __init__(self, program: str) -> None:
        self._program = program

    def key(self, number: int, work: Work) -> str:
        """Key of an object, by its number from 0."""
        return f"{_prefix(work)}{_FIRST_KEY + number}"

    def held(self, work: Work) -> int:
        """Objects that a server will hold."""
        return work.keys

    def command(self, address: Address, work: Work, scratch: Path, number: int) -> list[str]:
        """Command line; its report goes to a file in ``scratch``."""
        gets = Fraction(work.get_share).limit_denominator(1000)
        clients = max(1, -(-work.connections // work.threads))
        command = [
            *(self._program, "-s", address.host, "-p", str(address.port)),
            *("--protocol=memcache_text", "-t", str(work.threads), "-c", str(clients)),
            *(f"--test-time={math.ceil(work.seconds)}", "--key-pattern=R:R"),
            f"--ratio={gets.denominator - gets.numerator}:{gets.numerator}",
            *(f"--data-size={work.value_bytes}", f"--key-prefix={_prefix(work)}"),
            f"--key-minimum={_FIRST_KEY}",
            f"--key-maximum={_FIRST_KEY + work.keys - 1}",
            *("--print-percentiles=50,99", "--hide-histogram", "--distinct-client-seed"),
            f"--json-out-file={_json(scratch, number)}",
        ]
        if work.keys_per_request > 1:
            command.append(f"--multi-key-get={work.keys_per_request}")
        if work.rate_s is not None:
            each = max(1, round(work.rate_s / (clients * work.threads)))
            command.append(f"--rate-limiting={each}")
        return command

    def report(self, outputs: Sequence[Path], scratch: Path, works: Sequence[Work]) -> LoadReport:
        """Read its JSON files."""
        totals = [read_totals(_json(scratch, number)) for number in range(len(works))]
        counts = [total["requests"] for total in totals]
        means = [t["mean_s"] * n for t, n in zip(totals, counts, strict=True)]
        return LoadReport(
            _together([t["p50_s"] for t in totals], counts),
            _together([t["p99_s"] for t in totals], counts),
            sum(means) / sum(counts),
            max(t["max_s"] for t in totals),
            _RESOLUTION,
        )


def open_loader(program: str, scratch: Path) -> Memtier:
    """Take the program."""
    return Memtier(program)


def read_totals(path: Path) -> dict[str, float]:
    """Requests and their latencies (s) in a JSON file of memtier_benchmark.

    Raises
    ------
    MeasurementError
        When it is no such file.
    """
    try:
        stats = json.loads(path.read_text(encoding="utf-8"))["ALL STATS"]
        total, parts = stats["Totals"], [stats["Sets"], stats["Gets"]]
        counted = [float(part["Count"]) for part in parts]
        # The mean of its totals is wrong in some versions; those of its parts are not.
        means = [_mean(part) for part in parts]
        percentiles = total["Percentile Latencies"]
        figures = {
            "requests": sum(counted),
            "mean_s": sum(n * m for n, m in zip(counted, means, strict=True)) / sum(counted),
            "max_s": max(float(part.get("Max Latency", "nan")) for part in [total]) * _MS,
            "p50_s": float(percentiles["p50.00"]) * _MS,
            "p99_s": float(percentiles["p99.00"]) * _MS,
        }
        # Old versions do not tell the longest.
        if not all(math.isfinite(v) for n, v in figures.items() if n != "max_s" or v == v):
            raise ValueError("a figure in it is no finite number")
        return figures
    except (*DAMAGE, OSError) as error:
        raise MeasurementError(
            f"{path}: no report of memtier_benchmark ({type(error).__name__}: {str(error)[:160]}): "
            "it needs version 1.4 or newer"
        ) from error


def _mean(part: dict[str, Any]) -> float:
    """Mean latency (s) of gets or sets, under its name of new or old versions."""
    return float(part["Average Latency"] if "Average Latency" in part else part["Latency"]) * _MS


def _together(values: Sequence[float], weights: Sequence[float]) -> Percentile:
    """A percentile of several processes: between the least and the greatest of theirs."""
    mean = sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)
    return Percentile(mean, min(values), max(values))


def _prefix(work: Work) -> str:
    return "k" * max(1, work.key_bytes - len(str(_FIRST_KEY)))


def _json(scratch: Path, number: int) -> Path:
    return scratch / f"memtier-{number}.json"
