"""The worst cases of the table of accuracy: what was measured, what was answered, what was said."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import accuracy_clocks
import accuracy_cores
import accuracy_data_size
import accuracy_power_load
import numpy as np
import pandas as pd
from outcomes import error_pct

import ppw
from fitting.laws.power_load import forecast_power
from ppw.results.axes import CURVE, MEASURED, PROJECTED
from ppw.results.page import draw
from ppw.results.text import as_frequency

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray
    from outcomes import Outcome

    FloatArray = NDArray[np.float64]

# One for each kind of task, the hardest for its law.
DRAWN = {
    "nornir_time": ("nornir", "time: 1.3, 1.9 → 2.3"),
    "nornir_power": ("nornir", "power: 1.3, 1.9 → 2.3"),
    "xu3_power": ("xu3", "power: 1.0, 1.5 → 2.0"),
    "freqbench_time": ("freqbench", "time: lowest, middle → highest"),
    "freqbench_power": ("freqbench", "power: lowest, middle → highest"),
    "loghin_cores": ("loghin", "time: to 12 → 48 cores, Gunther"),
    "c3o_machines": ("c3o", "time: 2, 4, 6 → 12 machines, Ernest"),
    "c3o_data": ("c3o", "time: 3 smallest of 6 sizes → largest, sort"),
    "specpower_load": ("SPECpower", "power: 50, 90 → 100 % load"),
}
_STEPS = 25


class Sweep(NamedTuple):
    """A sweep in which one point was projected.

    Attributes
    ----------
    learnt, other : (float array, float array)
        Where was measured, and what: learnt from, and not.
    curve : (float array, float array)
        What is answered along the sweep.
    said : str
        What ppw says of that answer and of those runs.
    labels : (str, str)
        Of the axes.
    """

    learnt: tuple[FloatArray, FloatArray]
    other: tuple[FloatArray, FloatArray]
    curve: tuple[FloatArray, FloatArray]
    said: str
    labels: tuple[str, str]


class WorstCase(NamedTuple):
    """The case with the largest error of a task.

    Attributes
    ----------
    stem : str
        Of the file of its plot.
    outcome : Outcome
        Of the task.
    case : pandas.Series
        Its row.
    error_pct : float
    sweep : Sweep
        Around it.
    """

    stem: str
    outcome: Outcome
    case: pd.Series[Any]
    error_pct: float
    sweep: Sweep

    @property
    def title(self) -> str:
        """Over its plot."""
        return f"{self.case['name']}: {self.error_pct:+.0f} %"


def worst_cases(outcomes: Sequence[Outcome], folder: Path) -> list[WorstCase]:
    """The worst case of each task that is drawn."""
    found = {(o.data, o.task): o for o in outcomes}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ppw.CaveatWarning)
        return [_worst_case(stem, found[key], folder) for stem, key in DRAWN.items()]


def _worst_case(stem: str, outcome: Outcome, folder: Path) -> WorstCase:
    projected, measured = (outcome.cases[c].to_numpy() for c in ("projected", "measured"))
    case = outcome.cases.iloc[int(np.nanargmax(error_pct(projected, measured)))]
    error = 100 * float(case["projected"] / case["measured"] - 1)
    return WorstCase(stem, outcome, case, error, _sweep(outcome, case, folder))


def draw_one(worst: WorstCase) -> str:
    """SVG: filled points were learnt from, open ones not; the bar is the interval."""

    def plot(ax: Axes) -> None:
        case, sweep = worst.case, worst.sweep
        ax.plot(*sweep.curve, color=CURVE)
        ax.plot(*sweep.other, "o", ms=4, mfc="none", color=MEASURED)
        ax.plot(*sweep.learnt, "o", ms=4, color=MEASURED)
        at = float(sweep.curve[0][-1])
        highest = max(*sweep.learnt[1], *sweep.other[1], case["projected"])
        if case["lower"] == case["lower"]:
            upper = min(case["upper"], 2 * highest)
            ax.vlines(at, case["lower"], upper, colors=PROJECTED, linewidth=3, alpha=0.5)
        ax.plot([at], [case["projected"]], "D", ms=5, color=PROJECTED)
        ax.set_ylim(0, 1.15 * highest)
        ax.set(xlabel=sweep.labels[0], ylabel=sweep.labels[1], title=worst.title)

    return draw(plot, width=3.6, height=2.7)


def _sweep(outcome: Outcome, case: pd.Series[Any], folder: Path) -> Sweep:
    if outcome.data == "SPECpower":
        return _of_load(case, folder)
    if outcome.data in ("loghin", "ernest") or "machines" in outcome.task:
        return _of_cores(outcome.task, case, folder)
    if outcome.data == "c3o":
        return _of_data_size(case, folder)
    return _of_clock(outcome, case, folder)


def _of_clock(outcome: Outcome, case: pd.Series[Any], folder: Path) -> Sweep:
    sets = accuracy_clocks.read_sets(folder)
    split = next(
        s
        for s in accuracy_clocks.SPLITS
        if s.data == outcome.data and accuracy_clocks.task_of(s) == outcome.task
    )
    keys = ["host", "workload", "threads"]
    column = {"time": "time_s", "power": "power_w"}[split.metric]
    runs = accuracy_clocks.runs_of(split, sets)
    train = _learnt(runs, split, keys)
    whole = sets[split.data]
    sweep = whole[(whole[keys] == case[keys]).all(axis=1)]
    steps = np.linspace(sweep["freq_hz"].min(), case["freq_hz"], _STEPS)
    options = {"metric": split.metric, "voltages": {}, "keep_all": True}
    table = ppw.project(train, freq=steps.tolist(), **options).table
    curve = table[(table[keys] == case[keys]).all(axis=1)]
    few = train[(train[keys] == case[keys]).all(axis=1)]
    rest = sweep[~sweep["freq_hz"].isin(few["freq_hz"])]
    said = [] if "caveats" not in curve else [curve["caveats"].iloc[-1]]
    checked = ppw.check(whole, by=keys).table
    said += sorted(set(checked[(checked[keys] == case[keys]).all(axis=1)]["check"]))
    return Sweep(
        *((part["freq_hz"].to_numpy() / 1e9, part[column].to_numpy()) for part in (few, rest)),
        (curve["freq_hz"].to_numpy() / 1e9, curve["projected"].to_numpy()),
        ", ".join(s.replace("_", " ") for s in said if isinstance(s, str) and s),
        ("core frequency (GHz)", {"time": "time (s)", "power": "power (W)"}[split.metric]),
    )


def _learnt(runs: pd.DataFrame, split: accuracy_clocks.Split, keys: list[str]) -> pd.DataFrame:
    """Rows that a split learns from."""
    if split.pick is not None:
        return runs[runs["freq_hz"] < runs.groupby(keys)["freq_hz"].transform("max")]
    train = [as_frequency(f) for f in split.train]
    return runs[np.isclose(runs["freq_hz"].to_numpy()[:, None], train).any(axis=1)]


def _of_cores(title: str, case: pd.Series[Any], folder: Path) -> Sweep:
    task = next(t for t in accuracy_cores.tasks(folder) if t.title == title)
    runs = task.runs[task.runs["name"] == case["name"]]
    most = float(runs["most"].iloc[0])
    few = runs[runs["cores"] <= task.learnt * most]
    steps = np.linspace(few["cores"].min(), most, 2 * _STEPS)
    one_size = runs[runs["size"] == case["size"]]
    kept = one_size["cores"] <= task.learnt * most
    learnt, rest = one_size[kept], one_size[~kept]
    asked = pd.DataFrame({"cores": steps, "size": case["size"]})
    values, _, _ = accuracy_cores.answer(task.law, few, asked, 1)
    bound = getattr(task.law, "bound_", None)
    return Sweep(
        *((p["cores"].to_numpy(), p["time_s"].to_numpy()) for p in (learnt, rest)),
        (steps, values),
        f"on its bound: {bound}" if bound else "",
        ("machines" if task.data == "c3o" else "cores", "time (s)"),
    )


def _of_data_size(case: pd.Series[Any], folder: Path) -> Sweep:
    job = str(case["workload"]).split()[0]
    runs = accuracy_data_size.spark_runs(folder, job)
    keys = ["host", "workload", "cores"]
    of_case = runs[(runs[keys] == case[keys]).all(axis=1)]
    few = of_case["data_bytes"] <= case["largest_bytes"]
    steps = np.linspace(case["smallest_bytes"], case["data_bytes"], 2)
    asked = of_case[few | (of_case["data_bytes"] == case["data_bytes"])]
    found = ppw.project(asked, data_bytes=float(case["data_bytes"]))
    return Sweep(
        *(
            (p["data_bytes"].to_numpy() / 1e9, p["time_s"].to_numpy())
            for p in (of_case[few], of_case[~few])
        ),
        (steps / 1e9, case["t_fixed_s"] + steps / case["rate_bytes_s"]),
        "; ".join(c.split(":")[0] for c in found.caveats),
        ("data (GB)", "time (s)"),
    )


def _of_load(case: pd.Series[Any], folder: Path) -> Sweep:
    data = accuracy_power_load.read(folder)
    at = int(case.name)
    load, watts = data.load[at], data.watts[at]
    steps = np.linspace(0.0, 1.0, _STEPS)
    learnt = [5, 9]
    found = forecast_power(load[None, learnt], watts[None, learnt], steps)
    rest = np.setdiff1d(np.arange(11), learnt)
    return Sweep(
        (100 * load[learnt], watts[learnt]),
        (100 * load[rest], watts[rest]),
        (100 * steps, found.watts[0]),
        "forecast above the levels measured",
        ("load (%)", "power (W)"),
    )
