"""Tasks of the table of accuracy in which cores are added, by `ppw.project`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from accuracy_clocks import DIRTY, read_sets
from accuracy_cores import shared_memory_runs
from outcomes import IN_VIEW, LEVEL, Outcome

import ppw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pandas as pd

_KEYS = ["host", "workload", "freq_hz"]


class Task(NamedTuple):
    """Runs, the core counts that are learnt from, and the one that is asked for."""

    data: str
    title: str
    runs: pd.DataFrame
    learnt: Sequence[int]
    asked: int
    priors: str


def machines(folder: Path) -> pd.DataFrame:
    """Runs table of the programs on machines of 4 to 48 cores, all at one clock."""
    runs = shared_memory_runs(folder)
    name = runs["name"].str.split(" ", n=1, expand=True)
    return runs.assign(host=name[0], workload=name[1], freq_hz=1e9)


def server(folder: Path) -> pd.DataFrame:
    """Runs table of the 24-core Xeon, where a thread has a core."""
    runs = read_sets(folder)["nornir"]
    return runs[~runs["workload"].isin(DIRTY)].rename(columns={"threads": "cores"})


def tasks(folder: Path) -> list[Task]:
    """All tasks."""
    all_of_them, xeon = machines(folder), server(folder)
    large = all_of_them["host"] == "amd"
    amd, small = all_of_them[large], all_of_them[~large]
    return [
        Task("loghin", "time: 1 to 12 → 48 cores", amd, range(1, 13), 48, IN_VIEW),
        Task("loghin", "time: 1 to 24 → 48 cores", amd, range(1, 25), 48, IN_VIEW),
        Task("loghin", "time: 1, 2, 4 → 16 cores", amd, (1, 2, 4), 16, IN_VIEW),
        Task("loghin", "time: 1, 2 → 4 cores", small, (1, 2), 4, IN_VIEW),
        Task("loghin", "time: 1, 2, 3 → 4 cores", small, (1, 2, 3), 4, IN_VIEW),
        Task("nornir", "time: 2, 4, 8 → 16 cores", xeon, (2, 4, 8), 16, IN_VIEW),
        Task("nornir", "time: 1 to 6 → 12 cores", xeon, range(1, 7), 12, IN_VIEW),
        Task("nornir", "time: 6, 12 → 18 cores", xeon, (6, 12), 18, IN_VIEW),
    ]


def outcome_of(task: Task) -> Outcome:
    """Project every curve of a task."""
    runs = task.runs[task.runs["cores"].isin([*task.learnt, task.asked])]
    table = ppw.project(runs, cores=task.asked, by=_KEYS, level=LEVEL).to_frame()
    cases = table[table["measured"].notna()].reset_index(drop=True)
    clock = (cases["freq_hz"] / 1e9).map(" {:g} GHz".format) if task.data == "nornir" else ""
    cases = cases.assign(
        name=cases["host"] + " " + cases["workload"] + clock,
        cluster=cases["host"] + cases["workload"],
    )
    groups = runs[runs["cores"] != task.asked].groupby(_KEYS)
    answers = [
        _plain(groups.get_group(key), task.asked)
        for key in cases[_KEYS].itertuples(index=False, name=None)
    ]
    line, naive = np.array(answers).T
    return Outcome(task.data, task.title, task.priors, cases, line, naive)


def _plain(runs: pd.DataFrame, cores: int) -> tuple[float, float]:
    """Least-squares line over 1/cores, not weighed and not bounded; and time in proportion."""
    slope, start = np.polyfit(1 / runs["cores"], runs["time_s"], 1)
    most = runs["cores"].max()
    last = runs.loc[runs["cores"] == most, "time_s"].mean()
    return float(start + slope / cores), float(last * most / cores)


def outcomes(folder: Path) -> Iterator[Outcome]:
    """What each task comes to."""
    return (outcome_of(task) for task in tasks(folder))
