"""Workloads that share a host, as a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ppw.estimate import shown
from ppw.provisioning.resources import NO_CAPACITY, NOT_MEASURED
from ppw.provisioning.right_sizing_result import amount, percent
from ppw.tabled_result import TabledResult, rows_of
from ppw.tables import summary_text, text_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

BREAKS, TIGHT, FITS = "breaks", "tight", "fits"
SHARED_COLUMNS = (
    *("resource", "finding", "value", "unit", "mean", "peak", "capacity", "capacity_source"),
    *("share", "threshold", "protected", "excess", "over", "longest_s", "breaks_at", "column"),
    *("confidence", "not_measured"),
)
PART_COLUMNS = ("resource", "workload", "value", "mean", "of_sum", "latency_critical")
TIMELINE_COLUMNS = ("resource", "time_s", "share")


@dataclass(frozen=True, kw_only=True, eq=False)
class CoLocation(TabledResult):
    """What breaks first when workloads share a host.

    Attributes
    ----------
    resources : pandas.DataFrame
        One row a resource, of all workloads together: ``finding`` ("breaks", "tight", "fits",
        "not measured" or "capacity not known"); ``value``, the sum that is not exceeded for
        ``quantile`` of the time, with ``mean`` and ``peak``, in ``unit``; ``capacity`` and who
        says so; ``share`` of it; ``threshold``, the share that may be used, lower where
        ``protected``; ``excess``, by how much the peak is above that; ``over``, the share of the
        time above; ``longest_s``, the longest stretch of that; ``breaks_at``, how many times this
        load it takes (NaN where unused); ``column`` of the log; ``confidence``, the share of
        resampled recordings with the same finding; ``not_measured``.
    parts : pandas.DataFrame
        One row a resource and workload: ``value``, ``mean``, ``of_sum`` (share of the mean) and
        ``latency_critical``.
    timeline : pandas.DataFrame
        ``resource``, ``time_s`` (since the start) and the highest ``share`` of the capacity in
        each stretch of time; empty where workloads meet at any moment.
    align : str
    seconds : float
        Judged together; 0 where workloads meet at any moment.
    quantile : float
    caveats : tuple of str
    """

    kind: ClassVar[str] = "co_location"

    resources: pd.DataFrame
    parts: pd.DataFrame
    timeline: pd.DataFrame
    align: str
    seconds: float
    quantile: float

    @property
    def first(self) -> str:
        """Resource that breaks first as the load grows; "" where none can be judged."""
        at = self.resources["breaks_at"].to_numpy(dtype=np.float64)
        return "" if np.isnan(at).all() else str(self.resources["resource"].iloc[np.nanargmin(at)])

    @property
    def fits(self) -> bool:
        """Whether no resource breaks."""
        return not (self.resources["finding"] == BREAKS).any()

    def to_frame(self) -> pd.DataFrame:
        """One row a resource."""
        return self.resources

    def verdict(self) -> list[str]:
        """Say what breaks first, by how much and how often, in sentences."""
        rows = sorted(rows_of(self.resources), key=lambda row: _last_if_unknown(row["breaks_at"]))
        judged = [row for row in rows if row["finding"] in (BREAKS, TIGHT, FITS)]
        said = [self._sentence(row, first=not place) for place, row in enumerate(judged)]
        if not judged:
            said.append("no resource has both its demand and its capacity: nothing can be judged")
        guarded = [row for row in rows if row["protected"]]
        if guarded:
            names = ", ".join(row["resource"] for row in guarded)
            critical = self.parts.loc[self.parts["latency_critical"], "workload"].unique()
            said.append(
                f"{', '.join(critical)} must not wait: {names} may be used to "
                f"{percent(guarded[0]['threshold'])}"
            )
        for why in (NOT_MEASURED, NO_CAPACITY):
            names = ", ".join(row["resource"] for row in rows if row["finding"] == why)
            said += [f"{names}: {why}"] if names else []
        return said

    def summary(self) -> str:
        """Text: the sentences, the evidence and the caveats."""
        lines = [*self.verdict(), text_table(self.header(), self.cells())]
        return summary_text(lines, self.caveats)

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return [
            *("resource", "finding", "value", "capacity", "share", "threshold", "time over"),
            *("most over by", "confidence", "column", "not measured"),
        ]

    def cells(self) -> list[list[str]]:
        """The resources as they are printed."""
        return [
            [
                row["resource"],
                row["finding"],
                amount(row["value"], row["unit"]),
                amount(row["capacity"], row["unit"]),
                percent(row["share"]),
                percent(row["threshold"]),
                percent(row["over"]),
                amount(row["excess"], row["unit"]),
                percent(row["confidence"]),
                row["column"],
                row["not_measured"] or "–",
            ]
            for row in rows_of(self.resources)
        ]

    def evidence(self) -> list[list[str]]:
        """Column of the log, who says the capacity, and what was not measured, by resource."""
        return [
            [row[c] or "–" for c in ("resource", "column", "capacity_source", "not_measured")]
            for row in rows_of(self.resources)
        ]

    def part_header(self) -> list[str]:
        """Name the columns of `part_cells`."""
        return ["resource", "workload", "value", "mean", "of the sum"]

    def part_cells(self) -> list[list[str]]:
        """Who asks for what, as it is printed."""
        units = dict(zip(self.resources["resource"], self.resources["unit"], strict=True))
        return [
            [
                row["resource"],
                row["workload"],
                amount(row["value"], units[row["resource"]]),
                amount(row["mean"], units[row["resource"]]),
                percent(row["of_sum"]),
            ]
            for row in rows_of(self.parts)
        ]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the share of each capacity over time, or as bars where no time is common."""
        from ppw.report.co_location_page import plot_co_location

        return plot_co_location(self, ax)

    def _sentence(self, row: dict[str, Any], *, first: bool) -> str:
        used = (
            f"{amount(row['value'], row['unit'])} of {amount(row['capacity'], row['unit'])} for "
            f"{self.quantile:.0%} of the time ({row['share']:.0%})"
        )
        most = self._most(row["resource"])
        if row["finding"] == BREAKS:
            how = "breaks first" if first else "breaks too"
            excess = amount(row["excess"], row["unit"])
            return (
                f"{row['resource']} {how}: {used}, above {row['threshold']:.0%} for "
                f"{row['over']:.0%} of the time, by up to {excess}{most}"
            )
        known = row["breaks_at"] == row["breaks_at"]
        room = f"room for {shown(row['breaks_at'])} times this load" if known else "not used"
        if first:
            return f"nothing breaks; {row['resource']} is the nearest: {used}, {room}{most}"
        return f"{row['resource']}: {row['finding']}, {used}, {room}"

    def _most(self, resource: str) -> str:
        parts = self.parts[self.parts["resource"] == resource]
        known = [row for row in rows_of(parts) if row["of_sum"] == row["of_sum"]]
        if not known:
            return ""
        top = max(known, key=lambda row: float(row["of_sum"]))
        return f"; {top['of_sum']:.0%} of it is of {top['workload']}"


def _last_if_unknown(number: float) -> float:
    return np.inf if np.isnan(number) else number
