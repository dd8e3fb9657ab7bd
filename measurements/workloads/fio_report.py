"""What fio reports of one job, in JSON."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from measurements.errors import DAMAGE, MeasurementError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_NS = 1e-9
# fio's histogram has 64 cells for each power of two.
_RESOLUTION = "1.6 %"


def read_report(path: Path, direction: str) -> dict[str, Any]:
    """Columns of the runs table in a JSON report of fio.

    Parameters
    ----------
    path : Path
        What ``fio --output-format=json`` printed; lines before it are passed over.
    direction : {"read", "write"}

    Raises
    ------
    MeasurementError
        When it is no such report, fio met an error, or nothing was moved in that direction.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        document = json.loads(text[text.index("{") :])
        job = document["jobs"][0]
        part = job[direction]
        if job["error"] or not part["total_ios"]:
            raise MeasurementError(f"{path}: fio moved nothing: error {job['error']}")
        latency = part["lat_ns"]
        percentiles = latency.get("percentile") or part["clat_ns"].get("percentile", {})
        return _finite(
            {
                "throughput_ops_s": float(part["iops"]),
                "bandwidth_bytes_s": float(part["bw_bytes"]),
                "throughput_noise": _noise(part),
                "latency_mean_s": latency["mean"] * _NS,
                "latency_p50_s": _percentile(percentiles, 50),
                "latency_p99_s": _percentile(percentiles, 99),
                "latency_max_s": latency["max"] * _NS,
                "latency_resolution": _RESOLUTION,
                "fio_seconds": part["runtime"] / 1000.0,
                "fio_version": str(document["fio version"]),
            }
        )
    except MeasurementError:
        raise
    except DAMAGE as error:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        said = lines[0][:160] if lines and not text.lstrip().startswith("{") else repr(error)
        raise MeasurementError(f"{path}: no report of fio: {said}") from error


def _finite(columns: dict[str, Any]) -> dict[str, Any]:
    """Refuse figures that are no finite numbers; raises ValueError or TypeError."""
    for name, value in columns.items():
        if value is not None and not isinstance(value, str) and not math.isfinite(value):
            raise ValueError(f"{name} is {value}")
    return columns


def _percentile(percentiles: Mapping[str, float], share: float) -> float | None:
    value = percentiles.get(f"{share:.6f}")
    return None if value is None else value * _NS


def _noise(part: Mapping[str, Any]) -> float | None:
    """Standard error of the requests a second, as a share, from fio's own samples."""
    samples, mean = float(part.get("iops_samples", 0)), float(part.get("iops_mean", 0.0))
    if samples < 2 or mean <= 0:
        return None
    return float(part["iops_stddev"]) / math.sqrt(samples) / mean
