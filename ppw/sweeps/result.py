"""What is found in sweeps, as a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ppw.estimate import shown, shown_interval
from ppw.tabled_result import TabledResult, rows_of
from ppw.tables import summary_text, text_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

KNEE, STRAIGHT, FEW, FAILS = "knee", "no knee", "too few levels", "failed"
_MOST_SENTENCES = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepKnees(TabledResult):
    """The knee and the operating point of each sweep of a runs table.

    Attributes
    ----------
    knees : pandas.DataFrame
        One row a sweep: the columns that tell sweeps apart; ``sweep`` (its name); ``finding``
        ("knee", "no knee", "too few levels" or "failed"); ``knee``, ``lower``, ``upper`` (where
        two lines meet, with its interval, which ends where runs failed; upper inf and lower 0
        where the levels do not tell), ``knee_value``; ``slope_before``, ``slope_after``;
        ``linear_from``, ``linear_to`` (the range of the first line), ``measured_to``; ``p_value``
        (of no knee), ``lack_of_fit`` (p value of two lines); ``failed_below``, ``failed_above``
        (levels that failed next to those that worked); and the columns of
        `ppw.sweeps.operating_point.operating_point`.
    levels : pandas.DataFrame
        One row a level: ``sweep``, ``x``, ``runs``, ``failed`` (how many), ``value`` (mean),
        ``performance`` (work per second), ``power_w``, ``per_watt``, ``failure``.
    over, of, of_unit, over_unit : str
        What was set and what came of it, with units.
    higher_is_better : bool
    scale : str
        Of the lines: "log" or "linear".
    level : float
        Of the interval.
    caveats : tuple of str
    """

    kind: ClassVar[str] = "sweep_knees"

    knees: pd.DataFrame
    levels: pd.DataFrame
    over: str
    over_unit: str
    of: str
    of_unit: str
    higher_is_better: bool
    scale: str
    level: float

    def to_frame(self) -> pd.DataFrame:
        """One row a sweep."""
        return self.knees

    def verdict(self) -> list[str]:
        """Say what was found, and where to run, in sentences."""
        said = []
        for row in rows_of(self.knees.head(_MOST_SENTENCES)):
            said += [f"{row['sweep']}: {part}" for part in (self._finding(row), self._advice(row))]
        return said

    def summary(self) -> str:
        """Text: the sentences, the levels and the caveats."""
        lines = [*self.verdict(), text_table(self.header(), self.cells())]
        if len(self.knees) > _MOST_SENTENCES:
            lines.append(f"… {len(self.knees) - _MOST_SENTENCES} more sweeps: --format json or csv")
        return summary_text(lines, self.caveats)

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return ["sweep", self.over, "runs", self.of, "W", "work/J", "note"]

    def cells(self) -> list[list[str]]:
        """The levels as they are printed."""
        best = dict(zip(self.knees["sweep"], self.knees["recommended"], strict=True))
        return [
            [
                str(row["sweep"]),
                shown(row["x"], self.over_unit),
                f"{row['runs']:g}",
                self.value(row["value"]),
                shown(row["power_w"]),
                shown(row["per_watt"]),
                _note(row, best),
            ]
            for row in rows_of(self.levels)
        ]

    def value(self, number: float) -> str:
        """Write a value of what was measured."""
        if self.of_unit == "B/s":
            return f"{shown(number, 'B')}/s" if number == number else "–"
        return shown(number, self.of_unit)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what was measured, the two lines, the knee and its interval."""
        from ppw.report.sweep_page import plot_sweeps

        return plot_sweeps(self, ax)

    def _finding(self, row: dict[str, Any]) -> str:
        if row["finding"] == FAILS:
            return f"no level of {self.over} worked: {row['next_failure'] or 'all failed'}"
        ends = _failures(row, self.over_unit)
        if row["finding"] == FEW:
            return f"{row['levels']:g} levels of {self.over}, and a knee needs 4{ends}"
        if row["finding"] == STRAIGHT:
            what = f"{self.of} has no knee from {self._x(row['linear_from'])} to "
            return f"{what}{self._x(row['linear_to'])} of {self.over}{ends}"
        interval = shown_interval(row["knee"], row["lower"], row["upper"], self.over_unit)
        between = f" ({interval})" if interval != "–" else ""
        bend = (
            f"in proportion to {self.over}^{row['slope_before']:.2f} before it and "
            f"^{row['slope_after']:.2f} after"
            if self.scale == "log"
            else f"{shown(row['slope_before'])} a step before it and "
            f"{shown(row['slope_after'])} after"
        )
        return (
            f"{self.of} has its knee at {self._x(row['knee'])}{between} {self.over}, {bend}{ends}"
        )

    def _advice(self, row: dict[str, Any]) -> str:
        if row["recommended"] != row["recommended"]:
            return "nothing can be recommended"
        said = f"run at {self._x(row['recommended'])}, {self.value(row['recommended_value'])}"
        return f"{said}; {self._next(row)}"

    def _next(self, row: dict[str, Any]) -> str:
        if row["next_step"] != row["next_step"]:
            return "no higher level was measured"
        step = f"the next step, {self._x(row['next_step'])}, "
        if row["next_failure"]:
            return f"{step}fails: {row['next_failure']}"
        changes = [f"{row['next_value_change']:+.1%} {self.of}"]
        if np.isfinite(row["next_per_watt_change"]):
            changes.append(f"{row['next_power_change']:+.1%} watts")
            changes.append(f"{row['next_per_watt_change']:+.1%} performance per watt")
        else:
            changes.append("performance per watt not measured")
        return f"{step}brings {', '.join(changes)}"

    def _x(self, number: float) -> str:
        return shown(number, self.over_unit)


def _failures(row: dict[str, Any], unit: str) -> str:
    ends = [
        f"fails from {shown(row['failed_above'], unit)}"
        if np.isfinite(row["failed_above"])
        else "",
        f"fails up to {shown(row['failed_below'], unit)}"
        if np.isfinite(row["failed_below"])
        else "",
    ]
    said = [end for end in ends if end]
    return f"; it {' and '.join(said)}" if said else ""


def _note(row: dict[str, Any], best: dict[Any, float]) -> str:
    if row["failed"]:
        return f"{row['failed']:g} failed: {row['failure']}"
    return "run here" if best.get(row["sweep"]) == row["x"] else ""
