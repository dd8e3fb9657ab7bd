"""What every reader makes of its log, and how that becomes a time series."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from measurements.errors import MeasurementError
from measurements.headers import nearest
from measurements.timeseries.gathering import leave_out_absurd
from measurements.timeseries.intervals import find_intervals
from measurements.timeseries.marking import Marks, mark_values
from measurements.timeseries.schema import COLUMNS, CPU_COLUMNS, KEYS, split_device
from measurements.timeseries.series import Finding, TimeSeries
from measurements.timeseries.totals import add_totals

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

# What a total is made of, where the log has it by device only.
_MADE_OF = {
    "sectors_read": "disk_read_bytes",
    "sectors_written": "disk_written_bytes",
    "ios": "disk_ios",
    "ios_read": "disk_ios_read",
    "ios_written": "disk_ios_written",
}


class Selection:
    """The columns asked for; all of them where none were named.

    Raises
    ------
    MeasurementError
        For a name that is no column.
    """

    def __init__(self, columns: Collection[str] | None = None) -> None:
        self._asked = None if columns is None else set(columns)
        for name in self._asked or ():
            if split_device(name)[0] not in COLUMNS:
                raise MeasurementError(
                    f"no column of a time series is called {name!r}{nearest(name, list(COLUMNS))}"
                )
        bases = {split_device(name)[0] for name in self._asked or ()}
        bases |= {_MADE_OF[name] for name in bases & _MADE_OF.keys()}
        if "disk_queue" in bases:
            bases.add("disk_busy_share")
        if bases & {"ios", "disk_ios"}:
            bases |= {"ios_read", "ios_written", "disk_ios_read", "disk_ios_written"}
        self._needed = bases

    def needs(self, base: str) -> bool:
        """Whether a column, or a total of it, was asked for."""
        return self._asked is None or base in self._needed or base in KEYS

    def keeps(self, column: str) -> bool:
        """Whether a column was asked for, by its own name or for all devices."""
        asked = self._asked
        return asked is None or column in asked or split_device(column)[0] in (*asked, *KEYS)


@dataclass(slots=True)
class Log:
    """A log as it was read: rows in the order of the file, amounts still per second.

    Attributes
    ----------
    source, format : str
    times_s : array
        Ends of the intervals, seconds since 1970 UTC.
    columns : mapping of name to array
        Amounts per second (CPU time over all CPUs), or per interval where ``per_interval``;
        levels and shares as they are.
    host : str
    cpus, hz : float or None
        As the log says them.
    intervals_s : array or None
        Where the log gives them; NaN where it does not.
    usual_s : float or None
        The interval that the log says it was recorded with.
    restarts : array of bool or None
        Rows that are the first after the recording or the host started anew.
    marks : mapping of mark to array of bool
    findings : list of Finding
    """

    source: str
    format: str
    times_s: Numbers
    columns: dict[str, Numbers]
    host: str = ""
    cpus: float | None = None
    hz: float | None = None
    intervals_s: Numbers | None = None
    usual_s: float | None = None
    restarts: NDArray[np.bool_] | None = None
    per_interval: bool = False
    marks: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def refuse_another_host(source: str, hosts: Iterable[str | None]) -> None:
    """Raise `MeasurementError` for a log that names two hosts, one behind the other."""
    named = list(dict.fromkeys(host for host in hosts if host))
    if len(named) > 1:
        raise MeasurementError(
            f"{source}: is of host {named[0]!r} and then of {named[1]!r}: split it, and read one "
            "host at a time"
        )


def tidy(log: Log, selection: Selection, disks: Sequence[str] | None = None) -> TimeSeries:
    """Make the time series of a log.

    Parameters
    ----------
    log : Log
        Its columns are changed in place.
    selection : Selection
    disks : sequence of str, optional
        The disks whose transfers are the host's; by default the physical ones, by their names.

    Raises
    ------
    MeasurementError
        When it has no row, or a disk that was named is not there.
    """
    if not len(log.times_s):
        raise MeasurementError(f"{log.source}: holds no interval ({log.format})")
    marks = Marks(len(log.times_s))
    for mark, rows in log.marks.items():
        marks.add(mark, rows)
    intervals = find_intervals(log.times_s, log.intervals_s, log.usual_s, log.restarts, marks)
    marks.add("not a number", leave_out_absurd(intervals))
    findings = [*log.findings, *add_totals(log.columns, disks, log.source)]
    for column, values in log.columns.items():
        if COLUMNS[split_device(column)[0]].kind == "amount" and not log.per_interval:
            # What overflows is left out, as what no counter can show.
            with np.errstate(over="ignore"):
                values *= intervals
        marks.add("not a number", leave_out_absurd(values), column)
    mark_values(log.columns, intervals, log.cpus, marks)
    frame = _frame(log, intervals, marks, selection)
    return TimeSeries(frame, log.format, log.source, (*findings, *marks.findings()))


def _frame(log: Log, intervals: Numbers, marks: Marks, selection: Selection) -> pd.DataFrame:
    rows = len(log.times_s)
    text = pd.Series(marks.text(), dtype="str")
    columns: dict[str, object] = {"time_s": log.times_s, "interval_s": intervals}
    if log.host:
        columns["host"] = _repeated(log.host, rows)
    if log.cpus is not None:
        columns["cpus"] = np.full(rows, float(log.cpus))
    if log.hz is not None and selection.needs("hz"):
        columns["hz"] = np.full(rows, float(log.hz))
    if any(name in log.columns for name in CPU_COLUMNS) and selection.needs("cpu_accounting"):
        columns["cpu_accounting"] = _repeated("tick", rows)
    for column in sorted(log.columns, key=_place):
        if selection.keeps(column):
            columns[column] = log.columns[column]
    columns["marks"] = text
    # Without a copy, the columns are not laid side by side anew.
    frame = pd.DataFrame(columns, copy=False)
    if bool((np.diff(log.times_s) < 0).any()):
        frame = frame.iloc[np.argsort(log.times_s, kind="stable")].reset_index(drop=True)
    return frame


def _repeated(text: str, rows: int) -> pd.Categorical[Any]:
    return pd.Categorical.from_codes([0] * rows, pd.Index([text]))


_ORDER = {name: place for place, name in enumerate(COLUMNS)}


def _place(column: str) -> tuple[bool, int, str]:
    base, device = split_device(column)
    return bool(device), _ORDER[base], device
