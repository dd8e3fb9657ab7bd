"""From a host's time series to rows of a runs table, one a window, for cycles per I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from measurements.timeseries.shortcomings import CPUS_UNKNOWN
from ppw.cpio.runs import NEEDED
from ppw.errors import PpwError
from ppw.estimate import shown

if TYPE_CHECKING:
    from measurements.timeseries import TimeSeries

_COUNTED = NEEDED[1:]
_OPTIONAL = (
    *("nice_s", "irq_s", "softirq_s", "steal_s", "iowait_s", "scheduled_s", "tick_busy_s"),
    *("network_rx_bytes", "network_tx_bytes"),
)


def runs_of_series(
    series: TimeSeries | pd.DataFrame, *, freq: float, window_s: float | None = None
) -> pd.DataFrame:
    """Make one row of a runs table of each window of a time series.

    Parameters
    ----------
    series : TimeSeries or pandas.DataFrame
        As `measurements.timeseries.read_time_series` gives it: ``time_s`` (end of the interval),
        ``interval_s``, ``host``, ``cpus``, and CPU seconds and sectors of the interval.
    freq : float
        Nominal clock (Hz); a time series has none.
    window_s : float, optional
        Length of a window, from the first interval on; by default all is one.

    Returns
    -------
    pandas.DataFrame
        By host and window: ``time_s`` (sum of the intervals), CPU times, sectors, ``cores``
        (logical CPUs), ``freq_hz``, ``started_s``, ``intervals`` and ``intervals_without_io``, and
        ``memory_bytes`` where known. ``attrs["caveats"]`` names what was found wanting.

    Raises
    ------
    PpwError
        Where no interval can be used.
    """
    frame = series if isinstance(series, pd.DataFrame) else series.frame
    source = str(frame.attrs.get("source", getattr(series, "source", "time series")))
    findings = [finding.text for finding in getattr(series, "findings", ())]
    if missing := [name for name in _COUNTED if name not in frame]:
        why = CPUS_UNKNOWN if CPUS_UNKNOWN in findings else "record CPU times and disks"
        raise PpwError(f"{source}: no {', '.join(missing)}: {why}")
    sums = [name for name in (*_COUNTED, *_OPTIONAL) if name in frame]
    back, unknown = (frame[sums] < 0).any(axis=1), frame[[*_COUNTED]].isna().any(axis=1)
    good = frame[~(back | unknown)]
    if good.empty:
        raise PpwError(f"{source}: no interval has both CPU times and sectors: record both")
    made = _windows(good, sums, window_s).assign(freq_hz=float(freq))
    made.attrs.update(
        source=source, caveats=[*findings, *_caveats(frame, sums, back, unknown, source)]
    )
    if "digest" in frame.attrs:
        made.attrs["digest"] = frame.attrs["digest"]
    return made


def _windows(good: pd.DataFrame, sums: list[str], window_s: float | None) -> pd.DataFrame:
    starts = good["time_s"] - good["interval_s"]
    hosts = good["host"] if "host" in good else pd.Series("host", index=good.index)
    first = starts.groupby(hosts, dropna=False).transform("min")
    # A log's stamps are rounded, so a start may lie just before its window.
    at = 0 if window_s is None else np.floor((starts - first) / window_s + 1e-6)
    quiet = (good["sectors_read"] + good["sectors_written"]) == 0
    parts = good.assign(
        host=hosts,
        window=at,
        started_s=starts,
        intervals=1.0,
        intervals_without_io=quiet.astype(np.float64),
    )
    grouped = parts.groupby(["host", "window"], sort=True, dropna=False)
    totals = grouped[[*sums, "interval_s", "intervals", "intervals_without_io"]].sum(min_count=1)
    facts = {"cores": ("cpus", "max"), "started_s": ("started_s", "min")}
    if "memory_total_bytes" in good:
        facts["memory_bytes"] = ("memory_total_bytes", "max")
    if "cpu_accounting" in good:
        facts["cpu_accounting"] = ("cpu_accounting", "first")
    table = totals.join(grouped.agg(**facts)).reset_index()
    return table.rename(columns={"interval_s": "time_s"}).drop(columns="window")


def _caveats(
    frame: pd.DataFrame,
    sums: list[str],
    back: pd.Series[Any],
    unknown: pd.Series[Any],
    source: str,
) -> list[str]:
    caveats = []
    for name in sums:
        below = frame[name] < 0
        if below.any():
            when = shown(float(frame.loc[below, "time_s"].iloc[0]))
            caveats.append(
                f"{source}: {name} went backwards in {int(below.sum())} intervals, first in that "
                f"which ends at {when} s: a counter that was reset, or a device that went; these "
                "intervals are left out"
            )
    if only := int((unknown & ~back).sum()):
        caveats.append(f"{source}: {only} intervals lack CPU times or sectors, and are left out")
    return caveats
