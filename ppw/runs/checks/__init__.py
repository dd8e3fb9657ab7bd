"""Checks of a runs table: what each looks for, and the rows that cannot be right.

Each module here is one way of being wrong. A function that looks takes runs and their groups and
gives a frame: a row for each row of the table that it names, indexed by position, and the figures
against it as columns, which the function that says so takes as keywords.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from measurements.table.checks import row_numbers
from measurements.table.schema import FILE_COLUMN
from ppw.runs import groups as gr
from ppw.runs import metrics as mt
from ppw.runs.checks import readings, repeats, sweeps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pandas as pd

    from fitting.regression.lines import IntArray

ALL_METRICS = frozenset(mt.METRICS)
OF_WATTS = frozenset({"power", "energy", "perf_per_watt"})


@dataclass(frozen=True)
class Check:
    """One way in which a row cannot be right."""

    # Columns that it looks at: one of each tuple must be there.
    needs: tuple[tuple[str, ...], ...]
    # Metrics that such a row is no good for.
    spoils: frozenset[str]
    find: Callable[[pd.DataFrame, gr.Groups], pd.DataFrame]
    say: Callable[..., str]
    # What is wrong, and what to do about it, in one line each.
    meaning: str
    remedy: str

    def lacks(self, runs: pd.DataFrame) -> str:
        """Columns that the check would need and the table has not, or an empty one; else ""."""
        absent = [n for n in self.needs if not any(gr.has(runs, c) for c in n)]
        return " and ".join("/".join(columns) for columns in absent)


# By name, as tables and JSON write it.
CHECKS = {
    "frequency_not_applied": Check(
        (("time_s", "throughput_ops_s"),),
        ALL_METRICS,
        repeats.find_unapplied,
        repeats.say_unapplied,
        meaning="runs at different frequencies agree in time and power to every digit, so that one "
        "was not made at its frequency, or not at all; nobody knows which",
        remedy="measure these steps again and record what the counters say (freq_achieved_hz)",
    ),
    "slower_when_faster": Check(
        (("time_s", "throughput_ops_s"),),
        ALL_METRICS,
        sweeps.find_inversions,
        sweeps.say_inversion,
        meaning="the work takes longer at a higher frequency than at a lower one, beyond noise, "
        "and this step fits the rest of the sweep least",
        remedy="repeat the step; look for throttling, other load on the host, or a row of another "
        "run",
    ),
    "exact_multiple": Check(
        (("workload",), ("time_s", "throughput_ops_s")),
        ALL_METRICS,
        repeats.find_copies,
        repeats.say_copy,
        meaning="the times of a workload are an exact multiple of another's on the same host: one "
        "measurement under two names",
        remedy="leave one of the two workloads out, or measure it",
    ),
    "energy_is_not_power_times_time": Check(
        (("energy_j",), ("power_w",), ("time_s",)),
        OF_WATTS,
        readings.find_energy_off,
        readings.say_energy_off,
        meaning=f"energy_j and power_w·time_s differ more than {readings.ENERGY_FACTOR:g}-fold, "
        "more than the window of a sensor explains",
        remedy="check the units of energy_j, power_w and time_s and what each meter covers; leave "
        "out the column that is wrong",
    ),
    "slip_of_a_unit": Check(
        (("power_w", "energy_j"),),
        OF_WATTS,
        sweeps.find_slips,
        sweeps.say_slip,
        meaning="power_w or energy_j is near 1000 or 1,000,000 times the other runs' of the "
        "sweep, or such a part of them",
        remedy="look up the unit that the meter of these runs logs in, and convert; where both "
        "sides are named, only their records tell which one is right",
    ),
    "time_of_another_unit": Check(
        (("time_s",),),
        ALL_METRICS,
        sweeps.find_time_slips,
        sweeps.say_time_slip,
        meaning="time_s is near 60, 1000, 3600 or 1,000,000 times the other runs' of the sweep, "
        "or such a part of them",
        remedy="look up the unit that these runs were timed in, and convert; or see what held "
        "them up",
    ),
    "power_at_or_below_idle": Check(
        (("power_w",),),
        OF_WATTS,
        readings.find_below_idle,
        readings.say_below_idle,
        meaning="power_w is not above zero, or is below what the machine draws when idle",
        remedy="look at the sensor and at what was taken off; run longer, or read a meter that "
        "sees the difference",
    ),
    "achieved_off": Check(
        (("freq_achieved_hz",),),
        ALL_METRICS,
        readings.find_achieved_off,
        readings.say_achieved_off,
        meaning=f"freq_achieved_hz is more than {readings.ACHIEVED_SHARE:.0%} off freq_hz",
        remedy="pin the frequency (no boost, no throttling) and measure again; or map the achieved "
        "frequency to freq_hz",
    ),
}


def find_flagged_rows(
    runs: pd.DataFrame, groups: gr.Groups, metrics: Iterable[mt.Metric]
) -> dict[str, pd.DataFrame]:
    """Make every check that the columns allow; by its name what it found, also where no row is.

    ``runs`` are checked by `measurements.check_runs`; only the checks are made whose rows are no
    good for one of the metrics.
    """
    names = {metric.name for metric in metrics}
    made = {n: c for n, c in CHECKS.items() if c.spoils & names and not c.lacks(runs)}
    with np.errstate(all="ignore"):
        return {name: check.find(runs, groups) for name, check in made.items()}


def evidence_table(
    flagged: Mapping[str, pd.DataFrame], runs: pd.DataFrame, groups: gr.Groups
) -> pd.DataFrame:
    """One row a flagged row and check, in the order of the input, with what speaks against it."""
    position = np.concatenate([found.index.to_numpy(np.int64) for found in flagged.values()])
    keys = groups.keys.take(groups.codes[position]).reset_index(drop=True)
    evidence = [
        CHECKS[name].say(**{str(k): v for k, v in figures.items()})
        for name, found in flagged.items()
        for figures in found.to_dict("records")
    ]
    table = keys.assign(
        freq_hz=runs["freq_hz"].to_numpy()[position],
        # Columns of text also where they are empty.
        check=np.repeat(np.array([*flagged], dtype=object), [*map(len, flagged.values())]),
        evidence=np.array(evidence, dtype=object),
        **_places(runs, position),
        position=position,
    )
    return table.sort_values("position", kind="stable", ignore_index=True)


def _places(runs: pd.DataFrame, position: IntArray) -> Mapping[str, Any]:
    """File of each row and its number there, counted below the header as errors count it."""
    if gr.is_cell_table(runs):
        return {"runs": gr.run_counts(runs)[position]}
    numbers = row_numbers(runs)[position]
    if FILE_COLUMN not in runs.columns:
        return {"file": str(runs.attrs.get("source", "runs")), "row": numbers}
    return {"file": runs[FILE_COLUMN].to_numpy()[position], "row": numbers}
