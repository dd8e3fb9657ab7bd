"""Tasks of the table of accuracy in which data grow, by `ppw.project`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from outcomes import IN_VIEW, LEVEL, Outcome

import ppw

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def spark_runs(folder: Path, job: str) -> pd.DataFrame:
    """Runs table of a Spark job with lines of 100 characters."""
    raw = pd.read_csv(folder / "c3o" / "raw" / f"{job}.tsv", sep="\t")
    raw = raw[raw["line_length"] == 100]
    several = raw.groupby(["machine_type", "instance_count"])["data_size_MB"].transform("nunique")
    raw = raw[several > 2]
    found = raw["p_occurrence"].map(" {:g}".format) if "p_occurrence" in raw else ""
    return pd.DataFrame(
        {
            "host": raw["machine_type"],
            "workload": job + found,
            "cores": raw["instance_count"].astype(float),
            "data_bytes": raw["data_size_MB"] * 1e6,
            "time_s": raw["gross_runtime"].astype(float),
        }
    )


def outcome_of(runs: pd.DataFrame, job: str, smallest: int) -> Outcome:
    """Project to the largest size from some of the smallest ones."""
    sizes = np.sort(runs["data_bytes"].unique())
    few = runs[runs["data_bytes"].isin([*sizes[:smallest], sizes[-1]])]
    found = ppw.project(few, data_bytes=float(sizes[-1]), level=LEVEL).to_frame()
    keys = ["host", "workload", "cores"]
    last = runs[runs["data_bytes"] == sizes[smallest - 1]].groupby(keys)["time_s"].mean()
    near = last.loc[pd.MultiIndex.from_frame(found[keys])].to_numpy()
    learnt = runs[runs["data_bytes"].isin(sizes[:smallest])].groupby(keys)
    line = [_line(learnt.get_group(key), sizes[-1]) for key in found[keys].itertuples(index=False)]
    machines = found["cores"].map("{:.0f} machines".format)
    cases = found.assign(
        name=found["host"] + ", " + found["workload"] + ", " + machines,
        cluster=found["host"] + found["workload"],
    )
    task = f"time: {smallest} smallest of {len(sizes)} sizes → largest, {job}"
    naive = near * sizes[-1] / sizes[smallest - 1]
    return Outcome("c3o", task, IN_VIEW, cases, np.array(line), naive)


def _line(runs: pd.DataFrame, at: float) -> float:
    """Least-squares straight line, not weighed and not bounded."""
    slope, start = np.polyfit(runs["data_bytes"], runs["time_s"], 1)
    return float(start + slope * at)


def outcomes(folder: Path) -> Iterator[Outcome]:
    """All tasks."""
    for job in ("grep", "sort"):
        for smallest in (2, 3):
            yield outcome_of(spark_runs(folder, job), job, smallest)
