"""Instructions of runs, and their fits against cores and data size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fitting.regression.lines import fit_points

COUNTED, EMULATED, ESTIMATED = "counted", "emulated", "estimated"
WITHOUT_NAME = "runs"
CORES_COLUMNS = (
    *("workload", "data_bytes", "runs", "a", "b", "a_error", "b_error", "scatter"),
    *("cores_from", "cores_to", "positive_up_to"),
)
DATA_COLUMNS = (
    *("workload", "cores", "runs", "fixed_instructions", "instructions_per_byte"),
    *("fixed_error", "per_byte_error", "scatter", "data_from_bytes", "data_to_bytes"),
)
POINT_COLUMNS = ("workload", "cores", "data_bytes", "runs", "instructions_per_byte", "label")


def with_instructions(runs: pd.DataFrame) -> pd.DataFrame:
    """Rows that tell instructions and data size, with ``per_byte`` and ``instructions_label``.

    The label is "counted" where the table has no column of that name. The instructions of a
    service, which are of a window of its load, become those of one operation.
    """
    missing = pd.Series(np.nan, index=runs.index)

    def column(name: str) -> pd.Series[Any]:
        return runs[name].astype(np.float64) if name in runs else missing

    counted = column("instructions")
    seconds = column("command_user_s") + column("command_system_s")
    of_servers = column("server_user_s") + column("server_system_s")
    for other in (column("task_clock_s"), of_servers):
        seconds = seconds.where(seconds.notna(), other)
    clock = column("freq_achieved_hz").where(column("freq_achieved_hz").notna(), column("freq_hz"))
    estimated = seconds * clock / column("cpi")
    operations = (column("throughput_ops_s") * column("window_s")).fillna(1.0)
    label = runs.get("instructions_label", pd.Series(COUNTED, index=runs.index)).fillna(COUNTED)
    found = runs.assign(
        instructions=counted.where(counted.notna(), estimated) / operations,
        instructions_label=label.where(counted.notna(), ESTIMATED),
        data_bytes=column("data_bytes"),
    )
    found = found[found["instructions"].gt(0) & found["data_bytes"].gt(0)]
    names = found.get("workload", pd.Series(WITHOUT_NAME, index=found.index))
    return found.assign(
        workload=names.fillna(WITHOUT_NAME).astype(str),
        cores=found.get("cores", pd.Series(np.nan, index=found.index)),
        per_byte=found["instructions"] / found["data_bytes"],
    )


def mean_path_lengths(counted: pd.DataFrame) -> pd.DataFrame:
    """Mean instructions per byte by workload, cores and data size."""
    cells = counted.groupby(["workload", "cores", "data_bytes"], dropna=False, sort=True)
    table = cells.agg(
        runs=("per_byte", "size"),
        instructions_per_byte=("per_byte", "mean"),
        label=("instructions_label", lambda labels: "/".join(sorted(set(map(str, labels))))),
    ).reset_index()
    return table[list(POINT_COLUMNS)]


def against_cores(counted: pd.DataFrame) -> pd.DataFrame:
    """Fit a·ln(n) + b to each workload and data size with two core counts or more."""
    from fitting.laws.estimators import LogPathLength

    rows = []
    known = counted[counted["cores"].notna()]
    for (workload, data), part in known.groupby(["workload", "data_bytes"], sort=True):
        if part["cores"].nunique() < 2:
            continue
        fit = LogPathLength(workload=str(workload))
        fit.fit(part[["cores"]].to_numpy(), part["per_byte"].to_numpy())
        errors = fit.standard_errors_
        rows.append(
            {
                "workload": workload,
                "data_bytes": data,
                "runs": len(part),
                **fit.parameters_,
                "a_error": errors["a"],
                "b_error": errors["b"],
                "scatter": _scatter(fit.model_fit_.line.variance[0], part["per_byte"]),
                "cores_from": fit.cores_[0],
                "cores_to": fit.cores_[1],
                "positive_up_to": fit.positive_up_to_,
            }
        )
    return pd.DataFrame(rows, columns=list(CORES_COLUMNS))


def against_data(counted: pd.DataFrame) -> pd.DataFrame:
    """Fit instructions = fixed + per byte·D to each workload and core count with two sizes."""
    rows = []
    for (workload, cores), part in counted.groupby(["workload", "cores"], dropna=False, sort=True):
        if part["data_bytes"].nunique() < 2:
            continue
        size = part["data_bytes"].to_numpy(dtype=np.float64)
        line = fit_points(size, part[["instructions"]].to_numpy(dtype=np.float64).T)
        fixed_error, per_byte_error = line.standard_errors()
        rows.append(
            {
                "workload": workload,
                "cores": cores,
                "runs": len(part),
                "fixed_instructions": float(line.intercept[0]),
                "instructions_per_byte": float(line.slope[0]),
                "fixed_error": float(fixed_error[0]),
                "per_byte_error": float(per_byte_error[0]),
                "scatter": _scatter(line.variance[0], part["instructions"]),
                "data_from_bytes": float(size.min()),
                "data_to_bytes": float(size.max()),
            }
        )
    return pd.DataFrame(rows, columns=list(DATA_COLUMNS))


def _scatter(variance: float, values: pd.Series[Any]) -> float:
    return float(np.sqrt(variance) / values.mean())
