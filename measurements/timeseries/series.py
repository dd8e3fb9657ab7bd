"""What a reader or the sampler hands back: the frame, and all that was found wanting in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.errors import MeasurementError
from measurements.headers import nearest
from measurements.timeseries.schema import COLUMNS, TASK_COLUMNS, split_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

# Ticks that show less of the scheduler's time than this miss a part that matters.
_LEAST_SEEN = 0.95


class Finding(NamedTuple):
    """Something about a series that its reader should know.

    Attributes
    ----------
    mark : str
        The mark of the rows concerned, of `schema.MARKS`; "" where it is about the whole log.
    rows : int
        How many rows.
    text : str
    """

    mark: str
    rows: int
    text: str


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """A host over time, one row an interval.

    Attributes
    ----------
    frame : pandas.DataFrame
        Sorted by ``time_s``; columns of `measurements.timeseries.schema`.
    format : str
        What the source was read as.
    source : str
    findings : tuple of Finding
        What was marked, left out or not known.
    """

    frame: pd.DataFrame
    format: str
    source: str
    findings: tuple[Finding, ...] = field(default=())

    @property
    def seconds(self) -> float:
        """Time that the intervals cover (s)."""
        return float(self.frame["interval_s"].sum())

    def between(self, start_s: float, end_s: float) -> TimeSeries:
        """Keep the intervals that lie wholly within a window, in seconds since 1970 UTC."""
        ends = self.frame["time_s"]
        # A log's stamps are rounded to its seconds.
        kept = (ends - self.frame["interval_s"] >= start_s - 1e-3) & (ends <= end_s + 1e-3)
        return TimeSeries(
            self.frame[kept].reset_index(drop=True), self.format, self.source, self.findings
        )

    def devices(self, column: str) -> dict[str, str]:
        """Map each device to its column, for a column that is kept by device."""
        if column not in COLUMNS:
            raise MeasurementError(
                f"no column of a time series is called {column!r}{nearest(column, list(COLUMNS))}"
            )
        parts = ((name, *split_device(name)) for name in self.frame.columns)
        return {device: name for name, base, device in parts if base == column and device}

    def tick_shortfall(self) -> float | None:
        """Share of the scheduler's CPU time that ticks missed; None where either was not kept."""
        if not {"scheduled_s", "tick_busy_s"} <= set(self.frame.columns):
            return None
        both = self.frame[["scheduled_s", "tick_busy_s"]].dropna()
        ran = float(both["scheduled_s"].sum())
        return 1.0 - float(both["tick_busy_s"].sum()) / ran if ran > 0 else None

    def summary(self) -> str:
        """Say in a few lines what it holds."""
        frame = self.frame
        lines = [
            f"{self.source}: {self.format}, {len(frame)} intervals, {self.seconds:.6g} s",
            *_cpu_line(frame),
        ]
        shortfall = self.tick_shortfall()
        if shortfall is not None:
            note = ": ticks miss too much, use the scheduler's" if _missed(shortfall) else ""
            lines.append(f"ticks show {1 - shortfall:.1%} of the scheduler's CPU time{note}")
        lines += [f"{finding.text}{_rows(finding)}" for finding in self.findings]
        return "\n".join(lines)


def _missed(shortfall: float) -> bool:
    return 1 - shortfall < _LEAST_SEEN


def _rows(finding: Finding) -> str:
    return f" ({finding.rows} rows)" if finding.rows > 1 else ""


def _cpu_line(frame: pd.DataFrame) -> list[str]:
    known: Sequence[Any] = [name for name in TASK_COLUMNS if name in frame]
    if not known or not frame["interval_s"].sum() > 0:
        return []
    busy = float(frame[known].sum().sum())
    how = ", ".join(sorted(set(frame["cpu_accounting"]))) if "cpu_accounting" in frame else "tick"
    return [f"{busy:.6g} CPU seconds of tasks, by {how}"]
