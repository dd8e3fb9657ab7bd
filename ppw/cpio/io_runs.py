"""Runs and windows of time as cycles per I/O see them: cycles, I/Os, shares of the CPU time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fitting.laws.cycles_per_io import IO_BYTES, cycles_per_io
from fitting.regression.lines import BoolArray, FloatArray, IntArray
from measurements import check_runs
from measurements.timeseries import TimeSeries
from measurements.timeseries.series import CPUS_UNKNOWN
from ppw.errors import PpwError
from ppw.results.text import shown
from ppw.runs.groups import canonical

NEEDED = ("time_s", "user_s", "system_s", "idle_s", "sectors_read", "sectors_written")

# What tells applications apart; cores and hardware threads are what they scale with.
GROUP_COLUMNS = (
    *("host", "family", "workload", "data_bytes", "load", "instances", "device", "device_kind"),
)

COUNTED, ACHIEVED, NOMINAL, GIVEN = "counted cycles", "achieved", "nominal", "given"

# Cycles that give a clock outside these shares of the nominal one are of another scope.
_PLAUSIBLE_CLOCK = (0.3, 2.5)


def with_cpio(runs: pd.DataFrame, *, freq: float | None = None) -> tuple[pd.DataFrame, list[str]]:
    """Derive cycles, I/Os and utilisation of each run; return the runs and caveats.

    To the canonical columns it adds ``user_cycles``, ``system_cycles``, ``idle_cycles`` (idle and
    iowait), ``ios`` (512 B), ``cpio``, ``user_cpio``, ``system_cpio``, ``cpio_with_idle``,
    ``utilisation``, ``iops``, ``busy_s``, ``cpus``, ``clock_hz`` and ``clock``, its label.

    Runs have the columns `NEEDED` and a core frequency: ``cycles``, ``freq_achieved_hz``,
    ``freq_hz``, or else ``freq`` (Hz). CPU time is of the whole system. Times that a kernel may
    count apart (nice, irq, softirq, iowait, steal) count where the table has them. Raises
    `MeasurementError` for columns that are missing and values that cannot be, as a counter's
    negative step, and `PpwError` where no run tells its frequency.
    """
    table = check_runs(canonical(runs), needed=NEEDED, by=[])
    source = str(runs.attrs.get("source", "runs"))
    if freq is None and not {"cycles", "freq_achieved_hz", "freq_hz"} & set(table.columns):
        raise PpwError(
            f"{source}: no cycles, freq_achieved_hz or freq_hz: cycles are CPU seconds times core "
            "frequency, so give the core frequency with --clock"
        )
    # Some kernels count these times apart, others do not.
    user = _sum_times(table, "user_s", "nice_s")
    system = _sum_times(table, "system_s", "irq_s", "softirq_s")
    unused, busy = _sum_times(table, "idle_s", "iowait_s"), user + system
    table = table.assign(all_user_s=user, all_system_s=system, busy_s=busy, unused_s=unused)
    table, caveats = _add_cycles(table, freq)
    return _add_rates(table), caveats


def column(table: pd.DataFrame, name: str) -> pd.Series[Any]:
    """Take a column as numbers; NaN throughout where there is none."""
    if name not in table:
        return pd.Series(np.nan, index=table.index, dtype=np.float64)
    return pd.to_numeric(table[name], errors="coerce").astype(np.float64)


def _sum_times(table: pd.DataFrame, *names: str) -> pd.Series[Any]:
    """Add times; one that a kernel does not count apart is in the others."""
    parts = [column(table, name).fillna(0.0) for name in names]
    return sum(parts[1:], start=parts[0])


def _add_cycles(table: pd.DataFrame, freq: float | None) -> tuple[pd.DataFrame, list[str]]:
    """Find the core frequency of each run by its best source, and its CPU times in cycles."""
    nominal = column(table, "freq_hz")
    given = nominal.isna() & (freq is not None)
    nominal = nominal.fillna(np.nan if freq is None else freq)
    achieved = column(table, "freq_achieved_hz")
    counted = column(table, "cycles") / table["busy_s"].where(table["busy_s"] > 0)
    expected = achieved.fillna(nominal)
    # Cycles of one process, or of part of the CPUs, give a core frequency that no core has.
    share = counted / expected
    odd = (share < _PLAUSIBLE_CLOCK[0]) | (share > _PLAUSIBLE_CLOCK[1])
    counted = counted.mask(odd)
    sources = {COUNTED: counted.notna(), ACHIEVED: achieved.notna(), GIVEN: given}
    sources[NOMINAL] = nominal.notna()
    label, clock = np.select([*sources.values()], [*sources], ""), counted.fillna(expected)
    table = table.assign(
        clock_hz=clock,
        clock=label,
        user_cycles=table["all_user_s"] * clock,
        system_cycles=table["all_system_s"] * clock,
        idle_cycles=table["unused_s"] * clock,
    )
    return table, [*_clock_caveats(table, odd.to_numpy(), share)]


def _add_rates(table: pd.DataFrame) -> pd.DataFrame:
    """Add the I/Os of each run, what they cost and how fast they come, and the CPUs used."""
    table = table.assign(ios=table["sectors_read"] + table["sectors_written"])
    # Logical CPUs that the CPU time is of; cores where neither they nor threads are told.
    seconds = table["busy_s"] + table["unused_s"] + _sum_times(table, "steal_s")
    cpus = seconds / table["time_s"]
    cores = column(table, "cores").fillna(column(table, "hardware_threads"))
    return table.assign(
        **_io_rates(table),
        storage_bytes=table["ios"] * IO_BYTES,
        cpus=cpus,
        cores=cores.fillna(cpus.round().clip(lower=1.0)),
    )


def _io_rates(sums: pd.DataFrame) -> dict[str, Any]:
    """Compute cycles per I/O, utilisation and I/O rate of times, cycles and I/Os."""
    busy, ios = sums["user_cycles"] + sums["system_cycles"], sums["ios"]
    seconds = sums["busy_s"] + sums["unused_s"]
    return {
        "cpio": cycles_per_io(busy, ios),
        "user_cpio": cycles_per_io(sums["user_cycles"], ios),
        "system_cpio": cycles_per_io(sums["system_cycles"], ios),
        "cpio_with_idle": cycles_per_io(busy + sums["idle_cycles"], ios),
        "utilisation": sums["busy_s"] / seconds.where(seconds > 0),
        "iops": ios / sums["time_s"],
    }


def _clock_caveats(table: pd.DataFrame, odd: BoolArray, share: pd.Series[Any]) -> Iterator[str]:
    """Say where a core frequency is not the one that the cycles were counted at."""
    if rows := int(table["clock"].astype(str).isin([NOMINAL, GIVEN]).sum()):
        yield (
            f"the core frequency of {rows} of {len(table)} runs is nominal, not counted: if the "
            "real frequency differs (turbo), so do their cycles; measure with perf"
        )
    if odd.any():
        yield (
            f"cycles of {int(odd.sum())} runs are {shown(float(share[odd].iloc[0]))} times their "
            "CPU time at the clock, so the counters did not cover the whole system, and ppw used "
            "CPU time times core frequency"
        )


# From a host's time series to rows of a runs table, one a window, for cycles per I/O.
_COUNTED = NEEDED[1:]
_OPTIONAL = (
    *("nice_s", "irq_s", "softirq_s", "steal_s", "iowait_s", "scheduled_s", "tick_busy_s"),
    *("network_rx_bytes", "network_tx_bytes"),
)


def runs_of_series(
    series: TimeSeries | pd.DataFrame, *, freq: float, window_s: float | None = None
) -> pd.DataFrame:
    """Make a row of a runs table of each window of a time series, at the nominal ``freq`` (Hz).

    A window has ``window_s`` (s) from the first interval on; by default all is one. Beside times
    and sectors a row has ``cores`` (logical CPUs), ``started_s``, ``intervals``,
    ``intervals_without_io``, and ``memory_bytes`` where known; ``attrs["caveats"]`` says what was
    found wanting. Raises `PpwError` where no interval can be used.
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
    made = _sum_windows(good, sums, window_s).assign(freq_hz=float(freq))
    remarks = [*findings, *_caveats(frame, sums, back, unknown, source)]
    made.attrs.update(source=source, caveats=remarks)
    if "digest" in frame.attrs:
        made.attrs["digest"] = frame.attrs["digest"]
    return made


def _sum_windows(good: pd.DataFrame, sums: list[str], window_s: float | None) -> pd.DataFrame:
    # An interval is stamped at its end, and belongs to the window that it starts in.
    starts = good["time_s"] - good["interval_s"]
    hosts = good["host"] if "host" in good else pd.Series("host", index=good.index)
    first = starts.groupby(hosts, dropna=False).transform("min")
    # A log's stamps are rounded, so a start may lie just before its window.
    at = 0 if window_s is None else np.floor((starts - first) / window_s + 1e-6)
    quiet = (good["sectors_read"] + good["sectors_written"]) == 0
    parts = good.assign(host=hosts, window=at, started_s=starts, intervals=1.0)
    parts["intervals_without_io"] = quiet.astype(np.float64)
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
    frame: pd.DataFrame, sums: list[str], back: pd.Series[Any], unknown: pd.Series[Any], source: str
) -> Iterator[str]:
    """Say which intervals cannot be used."""
    for name in sums:
        below = frame[name] < 0
        if below.any():
            when = shown(float(frame.loc[below, "time_s"].iloc[0]))
            yield (
                f"{source}: {name} went backwards in {int(below.sum())} intervals, first in that "
                f"which ends at {when} s: a counter that was reset, or a device that went; these "
                "intervals are left out"
            )
    if only := int((unknown & ~back).sum()):
        yield f"{source}: {only} intervals lack CPU times or sectors, and are left out"


# Rates of several runs together: ratios of their sums, and how sure the cycles per I/O are.
_SUMMED = (
    *("time_s", "busy_s", "unused_s", "all_user_s", "all_system_s", "iowait_s", "ios"),
    *("user_cycles", "system_cycles", "idle_cycles", "sectors_read", "sectors_written"),
)


def group_codes(points: pd.DataFrame, keys: Sequence[str]) -> pd.Series[int]:
    """Number the groups of points, in the order of their keys; 0 for all without keys."""
    # One label for every row stands in for keys where there are none.
    return points.groupby([*keys] or (lambda _: 0), sort=True, dropna=False).ngroup()


def pooled_rates(
    table: pd.DataFrame, cells: pd.api.typing.DataFrameGroupBy[Any, Any]
) -> pd.DataFrame:
    """Compute ratios of the sums over the runs of each cell.

    A mean of ratios would let a run, or a window of a log, that did next to no I/O decide the
    cycles per I/O of all, and would not go with the I/O rate and the utilisation beside it. Runs
    without I/O are in no sum, unless the cell has no other.
    """
    by, good = cells.ngroup(), _has_io(table)
    kept = good | ~good.groupby(by).transform("any")
    sums = table.assign(iowait_s=column(table, "iowait_s").fillna(0.0))[[*_SUMMED]].where(kept)
    total = sums.groupby(by).sum(min_count=1).set_axis(cells.size().index)
    total = total.rename(columns={"all_user_s": "user_s", "all_system_s": "system_s"})
    total["idle_s"] = total["unused_s"] - total["iowait_s"]
    seconds, parts = total["busy_s"] + total["unused_s"], ("user", "system", "idle", "iowait")
    # Where nothing was busy, the mean of the runs' core frequencies.
    clocks = table["clock_hz"].groupby(by).mean().set_axis(total.index)
    busy_hz = (total["user_cycles"] + total["system_cycles"]) / total["busy_s"]
    rates = pd.DataFrame(
        {
            **_io_rates(total),
            "clock_hz": busy_hz.where(total["busy_s"] > 0).fillna(clocks),
            **{f"{p}_share": total[f"{p}_s"] / seconds.where(seconds > 0) for p in parts},
        },
        index=total.index,
    )
    times = ["time_s", *(f"{p}_s" for p in parts)]
    return rates.join(total[[*times, "sectors_read", "sectors_written"]])


def log_half_widths(
    table: pd.DataFrame, points: pd.DataFrame, codes: IntArray, keys: Sequence[str], level: float
) -> FloatArray:
    """Compute half widths of the intervals of ln R, R = sum of cycles/sum of I/Os of each point.

    The variance is the jackknife's, of R with each of the n runs left out, about R; relative to
    R², to first order that of ln R. With y the cycles and x the I/Os of a run, it is s²/n with s²
    the sum of d² over n - 1, d = (y/R - x)/mean(x)·(1 - 1/n)/(1 - x/sum(x)). Runs of unlike size
    need the last factor: R leans to the largest (R. M. Royall, W. G. Cumberland, "An Empirical
    Study of the Ratio Estimator and Estimators of its Variance", JASA 76, 1981). s² is pooled over
    the points of a group (``keys``). On the logarithmic scale an interval of what is positive stays
    so. ``codes`` numbers the point of each run.
    """
    from fitting.regression.lines import student_quantile

    good, size = _has_io(table).to_numpy(), len(points)
    at, ios = codes[good], table["ios"].to_numpy()[good]
    cycles = (table["user_cycles"] + table["system_cycles"]).to_numpy()[good]
    runs = np.bincount(at, minlength=size)
    total, n = np.bincount(at, ios, size)[at], runs[at]
    with np.errstate(divide="ignore", invalid="ignore"):
        away = (cycles / points["cpio"].to_numpy()[at] - ios) * (n - 1) / (total - ios)
    away = np.where(n > 1, away, 0.0)
    group = group_codes(points, keys).to_numpy()
    squares = np.bincount(group[at], away**2, group.max() + 1)
    df = np.bincount(group, runs - (runs > 0)).astype(np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        scatter = student_quantile(df, level) * np.sqrt(np.where(df > 0, squares / df, np.nan))
        return np.asarray(scatter[group] / np.sqrt(runs))


def _has_io(table: pd.DataFrame) -> pd.Series[bool]:
    """Mark the runs that did I/O at a core frequency that is known."""
    return (table["ios"] > 0) & table["clock_hz"].notna()
