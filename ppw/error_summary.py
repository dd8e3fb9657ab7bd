"""Errors and coverage of projections that were held against measurements, by metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ppw.result import plain

if TYPE_CHECKING:
    import pandas as pd

# Naive forecasts that a projection is held against: all of the time scales with the clock, or none.
BASELINES = ("inverse_frequency", "unscaled")


def summarise(groups: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Errors and coverage by metric; see `Validation.summary_by_metric`."""
    summaries = {}
    for name in dict.fromkeys(groups["metric"]):
        rows = groups[groups["metric"] == name]
        measured = rows["measured"]
        covered = rows["covered"].dropna()
        answered = rows["projected"].dropna()
        summaries[name] = {
            **_errors(100 * (rows["projected"] / measured - 1)),
            "coverage": float(covered.astype(float).mean()) if len(covered) else None,
            "with_interval": len(covered),
            "without_answer": len(rows) - len(answered),
            "baselines": {b: _errors(100 * (rows[b] / measured - 1)) for b in BASELINES},
        }
    return {name: plain(summary) for name, summary in summaries.items()}


def _errors(error_pct: pd.Series[float]) -> dict[str, float | int]:
    error = error_pct.dropna().to_numpy()
    if not error.size:
        return {"n": 0}
    size = np.abs(error)
    return {
        "n": len(error),
        "median_ape": float(np.median(size)),
        "p90_ape": float(np.percentile(size, 90)),
        "mean_ape": float(size.mean()),
        "max_ape": float(size.max()),
        "bias_pct": float(error.mean()),
        "within_10pct": float((size <= 10).mean()),
    }
