"""What runs of one candidate and workload say beside their curves: idle, loads, latency, doubts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppw.full_load import FULL_LOAD, at_full_load
from ppw.sides import scope_of

if TYPE_CHECKING:
    import pandas as pd

    from fitting.regression.lines import FloatArray

# Loads are put together to the nearest percent: repeats never reach quite the same one.
_DIGITS = 2
# At one clock, runs of one set-up are nearer to each other than this.
_SPREAD = 1.25
LATENCY_COLUMNS = {"latency_p50": "latency_p50_s", "latency_p99": "latency_p99_s"}


def mean_of(rows: pd.DataFrame, column: str) -> float:
    """Mean of a column over the rows that have it above 0; NaN where none has."""
    if column not in rows:
        return float("nan")
    values = rows[column].to_numpy(dtype=np.float64)
    values = values[values > 0]
    return float(values.mean()) if values.size else float("nan")


def levels_of(rows: pd.DataFrame) -> tuple[FloatArray, FloatArray] | None:
    """Mean watts at each load below and at the full one, where any was below."""
    if not {"load", "power_w"} <= set(rows.columns):
        return None
    means = _by_load(rows, ["load", "power_w"])
    if len(means) < 2 or means["load"].iloc[-1] < FULL_LOAD:
        return None
    load, watts = (means[name].to_numpy(dtype=np.float64) for name in ("load", "power_w"))
    # Full load is the mean of the runs that are.
    return np.minimum(load / load[-1], 1.0), watts


def _by_load(rows: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Means of the rows of each load, rising."""
    known = rows[columns].dropna()
    load = known["load"].round(_DIGITS) if "load" in known else known[columns[0]]
    return known.groupby(load.rename("level"), sort=True).mean()


def latencies_of(rows: pd.DataFrame) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Latency against the share of the full rate, where both were measured."""
    made: dict[str, tuple[FloatArray, FloatArray]] = {}
    if "throughput_ops_s" not in rows:
        return made
    full = float(rows["throughput_ops_s"][at_full_load(rows)].mean())
    loads = ["load"] if "load" in rows and rows["load"].notna().any() else []
    for name, column in LATENCY_COLUMNS.items():
        if column in rows:
            means = _by_load(rows, ["throughput_ops_s", column, *loads])
            if len(means):
                share = means["throughput_ops_s"].to_numpy(dtype=np.float64) / full
                made[name] = share, means[column].to_numpy(dtype=np.float64)
    return made


def doubts_of(rows: pd.DataFrame, time: str) -> list[str]:
    """What speaks against taking full-load runs of one clock for one set-up's best."""
    full, doubts = rows[at_full_load(rows)], []
    column = "time_s" if time == "time" or "throughput_ops_s" not in full else "throughput_ops_s"
    rates = full[column].dropna()
    if len(rates) and rates.max() > _SPREAD * rates.min():
        doubts.append(
            f"runs at one clock are up to {rates.max() / rates.min():.3g} times apart, as of "
            "several set-ups: name one of them in where"
        )
    limited = full["client_limited"] if "client_limited" in full else full["freq_hz"].isna()
    if limited.astype(str).str.lower().isin(["true", "1", "1.0"]).any():
        doubts.append("the client limited the rate, so the server can do more: add clients")
    return doubts


def scopes_of(rows: pd.DataFrame) -> frozenset[str]:
    """What the watts are of, such as "wall"; empty where not known."""
    if "power_source" not in rows:
        return frozenset()
    found = {scope_of(source) for source in rows["power_source"].dropna().unique()}
    return frozenset(str(scope) for scope in found if scope is not None)
