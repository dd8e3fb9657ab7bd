"""What a workload needs of each resource, as a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ppw.estimate import shown
from ppw.provisioning.resources import NO_CAPACITY, NOT_MEASURED, RESOURCES
from ppw.tabled_result import TabledResult, rows_of
from ppw.tables import summary_text, text_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

BUY, ENOUGH, IDLE = "buy more", "enough", "idle"
RESOURCE_COLUMNS = (
    *("resource", "finding", "value", "unit", "capacity", "capacity_source", "share"),
    *(
        "threshold",
        "medium",
        "high",
        "needed",
        "spare",
        "at_least",
        "column",
        "confidence",
        "not_measured",
    ),
)
EVIDENCE = ("resource", "column of the log", "capacity from", "not measured")
_MOST_HOSTS = 5
_OF = {resource.name: resource for resource in RESOURCES}
# What states a capacity, by its figure.
_OPTIONS = {
    "cores": "--cpus",
    "memory_bytes": "--memory",
    "memory_bandwidth_bytes_s": "--memory-bandwidth",
    "disk_bandwidth_bytes_s": "--disk-bandwidth",
    "disk_iops": "--disk-iops",
    "network_bytes_s_each_way": "--network",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class RightSizing(TabledResult):
    """What to buy more of, what is idle, and by how much.

    Attributes
    ----------
    resources : pandas.DataFrame
        One row a resource: ``finding`` ("buy more", "enough", "idle", "not measured" or "capacity
        not known"); ``value``, the demand that was not exceeded for ``quantile`` of the time, in
        ``unit``; ``capacity`` and who says so; ``share`` of it; the ``threshold`` of the share
        that decided, with those of ``medium`` and ``high``; ``needed``, the demand with its
        headroom; ``spare``, capacity less that (below 0: what is missing); ``at_least``, where the
        host was full, so that the workload may want more; ``column`` of the log; ``confidence``,
        the share of resampled recordings with the same finding (NaN below ten intervals);
        ``not_measured``, evidence that the log lacks.
    candidates : pandas.DataFrame
        Hosts of the catalogue, those that fit first, as `ppw.provisioning.candidates`.
    source : str
    seconds, intervals : float
        Of the recording.
    quantile : float
    caveats : tuple of str
    """

    kind: ClassVar[str] = "right_sizing"

    resources: pd.DataFrame
    candidates: pd.DataFrame
    source: str
    seconds: float
    intervals: float
    quantile: float

    @property
    def stresses_the_host(self) -> bool:
        """Whether any resource passes the medium threshold."""
        return bool((self.resources["share"] >= self.resources["medium"]).any())

    def to_frame(self) -> pd.DataFrame:
        """One row a resource."""
        return self.resources

    def verdict(self) -> list[str]:
        """Say what to buy, what is idle and what is not known, in sentences."""
        rows = rows_of(self.resources)
        said = [] if self.stresses_the_host else self._unstressed(rows)
        said += [self._sentence(row) for row in rows if row["finding"] in (BUY, ENOUGH, IDLE)]
        for why in (NOT_MEASURED, NO_CAPACITY):
            names = [row["resource"] for row in rows if row["finding"] == why]
            if names:
                given = list(dict.fromkeys(_OPTIONS[_OF[name].capacity] for name in names))
                tell = f": give {', '.join(given)}" * (why == NO_CAPACITY)
                said.append(f"{', '.join(names)}: {why}{tell}")
        return [*said, *self._hosts()]

    def summary(self) -> str:
        """Text: the sentences, the evidence and the caveats."""
        lines = [*self.verdict(), text_table(self.header(), self.cells())]
        return summary_text(lines, self.caveats)

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return [
            *("resource", "finding", "value", "capacity", "share", "threshold", "needed"),
            *("confidence", "column", "not measured"),
        ]

    def evidence(self) -> list[list[str]]:
        """Column of the log, who says the capacity, and what was not measured, by resource."""
        return [
            [row[c] or "–" for c in ("resource", "column", "capacity_source", "not_measured")]
            for row in rows_of(self.resources)
        ]

    def cells(self) -> list[list[str]]:
        """The resources as they are printed."""
        return [
            [
                row["resource"],
                row["finding"],
                amount(row["value"], row["unit"], at_least=row["at_least"]),
                amount(row["capacity"], row["unit"]),
                percent(row["share"]),
                percent(row["threshold"]),
                amount(row["needed"], row["unit"], at_least=row["at_least"]),
                percent(row["confidence"]),
                row["column"],
                row["not_measured"] or "–",
            ]
            for row in rows_of(self.resources)
        ]

    def candidate_header(self) -> list[str]:
        """Name the columns of `candidate_cells`."""
        return ["host", "fits", "cores", "of them needed", "memory bandwidth", "TDP", "not stated"]

    def candidate_cells(self) -> list[list[str]]:
        """The hosts as they are printed."""
        return [
            [
                row["host"],
                "yes" if row["fits"] else "no",
                shown(row["cores"]),
                percent(row["cores_share"]),
                amount(row["memory_bandwidth_bytes_s"], "B/s"),
                shown(row["tdp_w"], "W"),
                row["not_stated"] or "–",
            ]
            for row in rows_of(self.candidates)
        ]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the share of each resource that is used, and the thresholds."""
        from ppw.report.right_sizing_page import plot_right_sizing

        return plot_right_sizing(self, ax)

    def _unstressed(self, rows: list[dict[str, Any]]) -> list[str]:
        known = [row for row in rows if row["share"] == row["share"]]
        if not known:
            return ["no resource has both its demand and its capacity: nothing can be judged"]
        top = max(known, key=lambda row: row["share"] / row["medium"])
        tuned = "; ".join(f"{row['resource']}: {_OF[row['resource']].tune}" for row in known)
        return [
            f"this test does not stress this host: the most used resource is {top['resource']} at "
            f"{top['share']:.0%}, and medium begins at {top['medium']:.0%}; to tune: {tuned}"
        ]

    def _sentence(self, row: dict[str, Any]) -> str:
        used = (
            f"{row['resource']}: {amount(row['value'], row['unit'], at_least=row['at_least'])} of "
            f"{amount(row['capacity'], row['unit'])} for {self.quantile:.0%} of the time "
            f"({row['share']:.0%})"
        )
        gap = amount(abs(row["spare"]), row["unit"])
        kept = f" with {1 - row['high']:.0%} headroom"
        if row["finding"] == BUY:
            least = "at least " if row["at_least"] else ""
            of = _OF[row["resource"]].more
            return f"{used}: buy {least}{gap} more{f' {of}' * (of != row['unit'])}{kept}"
        return f"{used}: {row['finding']}, {gap} to spare{kept}"

    def _hosts(self) -> list[str]:
        fits = self.candidates.loc[self.candidates["fits"], "host"]
        (need,) = self.resources.loc[self.resources["resource"] == "CPU", "needed"]
        if need != need:
            return []
        cores = f"{shown(need)} cores"
        if not len(fits):
            return [f"no host of the catalogue has {cores} in one package"]
        names = ", ".join(fits.head(_MOST_HOSTS))
        more = f" and {len(fits) - _MOST_HOSTS} more" if len(fits) > _MOST_HOSTS else ""
        return [
            f"hosts with {cores}, if theirs are as fast, smallest first: {names}{more}; the "
            "catalogue states no memory size, disks or network"
        ]


def percent(share: float) -> str:
    """Write a share as a percentage; "–" where not known."""
    return "–" if share != share else f"{share:.0%}"


def amount(value: float, unit: str, *, at_least: bool = False) -> str:
    """Write a demand or a capacity; "≥" where it is a lower bound, "–" where not known."""
    mark = "≥ " if at_least and value == value else ""
    if unit == "B/s":
        return f"{mark}{shown(value, 'B')}/s" if value == value else "–"
    if unit == "1/s":
        return f"{mark}{shown(value)}/s" if value == value else "–"
    return f"{mark}{shown(value, unit)}"
