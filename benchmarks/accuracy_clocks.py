"""Tasks of the table of accuracy in which a clock is projected: `ppw.validate` on four sweeps.

The shipped priors were set with the splits in view, which flatters them; the simulated hosts of
``accuracy_zoo.py`` took no part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from outcomes import IN_VIEW, LEVEL, Outcome

import ppw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

DIRTY = ("blackscholes", "videoprocessing")
WITH_WATTS = ("power", "energy", "perf_per_watt")


class Split(NamedTuple):
    """What is learnt from and what is tested; ``pick`` chooses the steps group by group."""

    title: str
    data: str
    metric: str
    train: tuple[str, ...] = ()
    test: str = ""
    pick: Callable[[FloatArray], list[int]] | None = None
    dirty: bool = False
    voltages: bool = False


def _ends_and_middle(steps: FloatArray) -> list[int]:
    return [0, (len(steps) - 1) // 2, len(steps) - 1]


def _two_lowest_middle(steps: FloatArray) -> list[int]:
    return [0, 1, len(steps) // 2, len(steps) - 1]


def _last_four(steps: FloatArray) -> list[int]:
    return [*range(len(steps) - 4, len(steps))]


def _second_and_third(steps: FloatArray) -> list[int]:
    return [len(steps) - 3, len(steps) - 2, len(steps) - 1]


def _nornir(metric: str, learnt: str, tested: str, *, dirty: bool = False) -> Split:
    split = _between(learnt, tested, ", all 178" if dirty else "", data="nornir", metric=metric)
    return split._replace(dirty=dirty)


def _parsec(metric: str, learnt: str, tested: str) -> Split:
    return _between(learnt, tested, "", data="parsec", metric=metric)


def _xu3(metric: str, learnt: str, tested: str, *, voltages: bool = False) -> Split:
    split = _between(learnt, tested, ", V known" if voltages else "", data="xu3", metric=metric)
    return split._replace(voltages=voltages)


def _between(learnt: str, tested: str, note: str, *, data: str, metric: str) -> Split:
    """Split by clocks (GHz): those learnt from, with commas, and the tested one."""
    train = tuple(f"{ghz}GHz" for ghz in learnt.split(", "))
    return Split(f"{learnt} → {tested}{note}", data, metric, train, f"{tested}GHz")


def _freqbench(metric: str, title: str, pick: Callable[[FloatArray], list[int]]) -> Split:
    return Split(f"{title} → highest", "freqbench", metric, pick=pick)


SPLITS = [
    _nornir("time", "1.2, 1.8", "2.4"),
    _nornir("time", "1.2, 1.5, 1.8", "2.4"),
    _nornir("time", "1.6, 2.0", "2.4"),
    _nornir("time", "1.2, 1.8", "2.1"),
    _nornir("time", "1.8, 2.4", "1.2"),
    _nornir("time", "1.2, 1.3", "2.4"),
    _nornir("time", "1.2, 1.3", "2.4", dirty=True),
    _nornir("time", "1.3, 1.9", "2.3"),
    _nornir("time", "1.4, 1.6, 2.0", "2.2"),
    _nornir("power", "1.2, 1.8", "2.4"),
    _nornir("power", "1.2, 1.5, 1.8", "2.4"),
    _nornir("power", "1.2, 1.7, 2.3", "2.4"),
    _nornir("power", "1.6, 2.0", "2.4"),
    _nornir("power", "1.8, 2.4", "1.2"),
    _nornir("power", "1.2, 1.8", "2.4", dirty=True),
    _nornir("power", "1.3, 1.9", "2.3"),
    _nornir("power", "1.4, 1.6, 2.0", "2.2"),
    _nornir("energy", "1.2, 1.8", "2.4"),
    _nornir("perf_per_watt", "1.2, 1.8", "2.4"),
    _nornir("time", "1.2, 2.4", "1.8"),
    _nornir("time", "1.6, 2.0, 2.4", "1.2"),
    _nornir("power", "1.6, 2.0, 2.4", "1.2"),
    _parsec("time", "1.2, 1.8", "2.4"),
    _parsec("time", "1.2, 1.5, 1.8", "2.4"),
    _parsec("time", "1.6, 2.0", "2.4"),
    _parsec("time", "1.2, 1.8", "2.1"),
    _parsec("time", "1.2, 2.4", "1.8"),
    _parsec("time", "1.8, 2.4", "1.2"),
    _parsec("time", "1.6, 2.0, 2.4", "1.2"),
    _parsec("power", "1.2, 1.8", "2.4"),
    _parsec("power", "1.2, 1.5, 1.8", "2.4"),
    _parsec("power", "1.6, 2.0", "2.4"),
    _parsec("power", "1.2, 2.4", "1.8"),
    _parsec("power", "1.8, 2.4", "1.2"),
    _parsec("perf_per_watt", "1.2, 1.8", "2.4"),
    _parsec("perf_per_watt", "1.8, 2.4", "1.2"),
    _xu3("time", "1.0, 1.5", "2.0"),
    _xu3("time", "1.5, 2.0", "1.0"),
    _xu3("time", "1.0, 2.0", "1.5"),
    _xu3("cpi", "1.0, 1.5", "2.0"),
    _xu3("cpi", "1.5, 2.0", "1.0"),
    _xu3("power", "1.0, 1.5", "2.0"),
    _xu3("power", "1.0, 1.5", "2.0", voltages=True),
    _xu3("power", "1.5, 2.0", "1.0"),
    _xu3("power", "1.0, 2.0", "1.5"),
    _xu3("energy", "1.0, 1.5", "2.0", voltages=True),
    _freqbench("time", "lowest, middle", _ends_and_middle),
    _freqbench("time", "two lowest, middle", _two_lowest_middle),
    _freqbench("time", "three steps below", _last_four),
    _freqbench("time", "third, second highest", _second_and_third),
    _freqbench("power", "lowest, middle", _ends_and_middle),
    _freqbench("power", "two lowest, middle", _two_lowest_middle),
    _freqbench("power", "three steps below", _last_four),
    _freqbench("power", "third, second highest", _second_and_third),
    _freqbench("perf_per_watt", "lowest, middle", _ends_and_middle),
]


def read_sets(folder: Path) -> dict[str, pd.DataFrame]:
    """Runs tables by name."""
    return {
        "nornir": ppw.read_runs(folder / "nornir-repara" / "tidy.csv"),
        "parsec": ppw.read_runs(folder / "nornir-parsec" / "tidy.csv"),
        "xu3": ppw.read_runs(folder / "xu3-cbench" / "tidy_runs.csv"),
        "freqbench": ppw.read_runs(folder / "freqbench" / "tidy.csv", check=False),
    }


def chosen_steps(
    runs: pd.DataFrame, pick: Callable[[FloatArray], list[int]], fewest: int = 4
) -> pd.DataFrame:
    """Keep the picked steps of every curve that has a few of them."""
    parts = []
    for _, curve in runs.groupby(["host", "workload"], sort=True):
        steps = np.sort(curve["freq_hz"].unique())
        if len(steps) >= fewest and (curve["power_w"] > 0).all():
            parts.append(curve[curve["freq_hz"].isin(steps[pick(steps)])])
    return pd.concat(parts, ignore_index=True)


def runs_of(split: Split, sets: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Rows that the split is about."""
    runs = sets[split.data]
    if split.pick is not None:
        return chosen_steps(runs, split.pick)
    if split.data == "nornir" and not split.dirty:
        return runs[~runs["workload"].isin(DIRTY)]
    return runs


def validated(split: Split, runs: pd.DataFrame, **options: object) -> pd.DataFrame:
    """Projected, measured and interval of every group."""
    voltages = None if split.voltages else {}
    given = {"scheme": "highest"} if split.pick else {"train": split.train, "test": split.test}
    options = {"voltages": voltages, "keep_all": True, "level": LEVEL, **options}
    return ppw.validate(runs, metric=split.metric, **given, **options).to_frame()


def task_of(split: Split) -> str:
    """What the table calls it."""
    return f"{split.metric.replace('perf_per_watt', 'perf/W')}: {split.title}"


def outcome_of(split: Split, sets: dict[str, pd.DataFrame]) -> Outcome:
    """Validate a split by default, by the bounded line and by Student's t about the free one."""
    runs = runs_of(split, sets)
    answer = validated(split, runs)
    form = {"power_form": "linear"} if split.metric in WITH_WATTS else {}
    line = validated(split, runs, interval="t", **form)
    free = validated(split, runs, interval="t", **(form or {"form": "unbounded"}))
    cluster = "workload" if answer["workload"].nunique() > 2 else "host"
    return Outcome(
        split.data,
        task_of(split),
        IN_VIEW,
        answer.assign(name=_names(answer), cluster=answer[cluster]),
        line["projected"].to_numpy(),
        answer["inverse_frequency"].to_numpy(),
        (free["lower"].to_numpy(), free["upper"].to_numpy()),
    )


def _names(answer: pd.DataFrame) -> pd.Series[str]:
    """Cases by what differs among them."""
    texts = {
        "host": answer["host"],
        "workload": answer["workload"],
        "threads": answer["threads"].map("threads {:.0f}".format),
    }
    telling = [text for column, text in texts.items() if len(set(answer[column])) > 1]
    return pd.concat(telling, axis=1).agg(", ".join, axis=1)


def outcomes(folder: Path) -> Iterator[Outcome]:
    """All splits."""
    sets = read_sets(folder)
    for split in SPLITS:
        yield outcome_of(split, sets)
