"""Tasks of the table of accuracy in which cores or machines are added, by `fitting.laws.cores`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from outcomes import IN_VIEW, LEVEL, NO_PRIORS, Outcome

from fitting import AmdahlScaling, ErnestScaling, UniversalScalability

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

# Physical cores of each machine: above them are hardware threads.
MACHINES = {"amd": 48, "i7": 4, "pi3": 4, "tx2/static/little_cores": 4}


def shared_memory_runs(folder: Path) -> pd.DataFrame:
    """Times by physical cores of every machine and program."""
    parts = []
    for machine, cores in MACHINES.items():
        for file in sorted((folder / "loghin-multicores" / "raw" / machine).glob("data-*.csv")):
            runs = pd.read_csv(file, sep=";")
            named = {"Cores": "cores", "Time[s]": "time_s"}
            kept = runs.rename(columns=named)[["cores", "time_s"]]
            name = f"{machine.split('/')[0]} {file.stem.removeprefix('data-')}"
            parts.append(kept[kept["cores"] <= cores].assign(name=name, most=cores, size=1.0))
    return pd.concat(parts, ignore_index=True)


def spark_runs(folder: Path) -> pd.DataFrame:
    """Times of Spark jobs by machines and data."""
    parts = []
    for job in ("grep", "sort"):
        runs = pd.read_csv(folder / "c3o" / "raw" / f"{job}.tsv", sep="\t")
        keys = [c for c in ("machine_type", "line_length", "p_occurrence") if c in runs]
        name = job + " " + runs[keys].astype(str).agg(" ".join, axis=1)
        parts.append(
            pd.DataFrame(
                {
                    "cores": runs["instance_count"].astype(float),
                    "size": runs["data_size_MB"].astype(float),
                    "time_s": runs["gross_runtime"].astype(float),
                    "name": name,
                    "most": 12,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def ernest_runs(folder: Path) -> pd.DataFrame:
    """Seven runs that Ernest's authors give as their example."""
    file = folder / "ernest-example" / "raw" / "rcv1-parsed.csv"
    cores, size, time = np.loadtxt(file, delimiter=",").T
    return pd.DataFrame({"cores": cores, "size": size, "time_s": time, "name": "rcv1", "most": 32})


def projected(law: Any, runs: pd.DataFrame, learnt: float) -> pd.DataFrame:
    """Time at the most cores, for each program and size, from at most a share of them."""
    cases = []
    for name, of_name in runs.groupby("name", sort=True):
        few = of_name[of_name["cores"] <= learnt * of_name["most"]]
        tested = of_name[of_name["cores"] == of_name["most"]]
        means = tested.groupby("size")["time_s"].agg(["mean", "size"])
        asked = pd.DataFrame({"cores": tested["most"].iloc[0], "size": means.index})
        values, lower, upper = answer(law, few, asked, int(means["size"].iloc[0]))
        naive = _nearest(few, asked)
        cases.append(
            pd.DataFrame(
                {
                    "name": name,
                    "cluster": name,
                    "size": means.index,
                    "projected": values,
                    "lower": lower,
                    "upper": upper,
                    "measured": means["mean"].to_numpy(),
                    "naive": naive,
                }
            )
        )
    return pd.concat(cases, ignore_index=True)


def answer(
    law: Any, few: pd.DataFrame, asked: pd.DataFrame, repeats: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Time and its interval; Gunther's law is of the rate, 1/time."""
    columns = ["cores", "size"] if isinstance(law, ErnestScaling) else ["cores"]
    at = asked[columns].to_numpy()
    time = few["time_s"].to_numpy()
    if isinstance(law, UniversalScalability):
        fitted = law.fit(few[columns].to_numpy(), 1 / time)
        lower, upper = fitted.predict_interval(at, level=LEVEL, repeats=repeats)
        with np.errstate(divide="ignore", invalid="ignore"):
            slowest = np.where(lower > 0, 1 / lower, np.where(np.isnan(lower), np.nan, np.inf))
            return 1 / fitted.predict(at), 1 / upper, slowest
    fitted = law.fit(few[columns].to_numpy(), time)
    lower, upper = fitted.predict_interval(at, level=LEVEL, repeats=repeats)
    return fitted.predict(at), np.maximum(lower, 0.0), upper


def _nearest(few: pd.DataFrame, asked: pd.DataFrame) -> FloatArray:
    """Time in proportion to that on the most cores learnt from."""
    last = few[few["cores"] == few["cores"].max()].groupby("size")["time_s"].mean()
    # Where that size was not measured, in proportion to it as well.
    size = last.index.to_numpy()
    near = np.abs(size[:, None] - asked["size"].to_numpy()).argmin(axis=0)
    time = last.to_numpy()[near] * asked["size"].to_numpy() / size[near]
    scaled: FloatArray = time * few["cores"].max() / asked["cores"].to_numpy()
    return scaled


class Task(NamedTuple):
    """A law, the runs, and up to which share of the most cores it learns."""

    data: str
    title: str
    law: Any
    runs: pd.DataFrame
    learnt: float


def tasks(folder: Path) -> list[Task]:
    """All tasks."""
    shared, spark = shared_memory_runs(folder), spark_runs(folder)
    amd = shared[shared["name"].str.startswith("amd")]
    gunther, ernest = UniversalScalability(), ErnestScaling()
    return [
        Task("loghin", "time: to 12 → 48 cores, Amdahl", AmdahlScaling(), amd, 0.25),
        Task("loghin", "time: to 12 → 48 cores, Gunther", gunther, amd, 0.25),
        Task("loghin", "time: 3/4 → all cores, Amdahl", AmdahlScaling(), shared, 0.75),
        Task("loghin", "time: 3/4 → all cores, Gunther", gunther, shared, 0.75),
        Task("c3o", "time: 2, 4, 6 → 12 machines, Ernest", ernest, spark, 0.5),
        Task("c3o", "time: 2, 4, 6, 8 → 12 machines, Ernest", ernest, spark, 0.67),
        Task("ernest", "time: 4, 12, 16 → 32 cores, Ernest", ernest, ernest_runs(folder), 0.5),
    ]


def averaged(runs: pd.DataFrame, learnt: float) -> pd.DataFrame:
    """Time at the most cores by the average of laws; all groups of ``runs`` are one table."""
    from fitting.bayes.posterior import MeasuredSteps
    from fitting.laws.scaling_average import ScalingCells, average_laws

    most = float(runs["most"].iloc[0])
    few = runs[runs["cores"] <= learnt * most]
    codes, names = pd.factorize(few["name"], sort=True)
    steps = MeasuredSteps.of(
        codes, few["cores"].to_numpy(), np.log(few["time_s"].to_numpy()), len(names)
    )
    average = average_laws(ScalingCells.of_steps(steps), most)
    tested = runs[runs["cores"] == most].groupby("name")["time_s"].agg(["mean", "size"])
    tested = tested.loc[names]
    lower, upper = average.interval(level=LEVEL, repeats=tested["size"].to_numpy())
    last = few[few["cores"] == few["cores"].max()].groupby("name")["time_s"].mean().loc[names]
    return pd.DataFrame(
        {
            "name": names,
            "cluster": [name.rsplit(" ", 1)[0] for name in names],
            "projected": average.target_time,
            "lower": lower,
            "upper": upper,
            "measured": tested["mean"].to_numpy(),
            "naive": last.to_numpy() * few["cores"].max() / most,
        }
    )


def averages(folder: Path) -> Iterator[Outcome]:
    """Machines are added to Spark jobs, each of which is a table."""
    spark = spark_runs(folder)
    job = spark["name"].str.split(" ").str[0]
    each = spark.assign(name=spark["name"] + spark["size"].map(" {:.0f}".format), size=1.0)
    for counts, learnt in (("2, 4, 6", 0.5), ("2, 4, 6, 8", 0.67)):
        parts = [averaged(runs, learnt) for _, runs in each.groupby(job)]
        cases = pd.concat(parts, ignore_index=True)
        line = projected(AmdahlScaling(), each, learnt).set_index("name")["projected"]
        title = f"time: {counts} → 12 machines, average of laws"
        at = line.loc[cases["name"]].to_numpy()
        yield Outcome("c3o", title, IN_VIEW, cases, at, cases["naive"].to_numpy())


def outcomes(folder: Path) -> Iterator[Outcome]:
    """What each task comes to."""
    yield from averages(folder)
    for task in tasks(folder):
        cases = projected(task.law, task.runs, task.learnt)
        naive = cases["naive"].to_numpy()
        yield Outcome(task.data, task.title, NO_PRIORS, cases, _line(task, cases), naive)


def _line(task: Task, cases: pd.DataFrame) -> FloatArray:
    """Amdahl's law by itself, size by size, where another law is asked for."""
    if isinstance(task.law, AmdahlScaling) or task.data == "ernest":
        return np.full(len(cases), np.nan)
    each = task.runs.assign(name=task.runs["name"] + task.runs["size"].map(" {:.0f}".format))
    return projected(AmdahlScaling(), each, task.learnt)["projected"].to_numpy()
