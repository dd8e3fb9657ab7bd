"""Runs and windows of time as cycles per I/O see them: cycles, I/Os, shares of the CPU time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.laws.cycles_per_io import IO_BYTES, cycles_per_io
from measurements import check_runs
from ppw.errors import PpwError
from ppw.estimate import shown
from ppw.prepare import canonical

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

NEEDED = ("time_s", "user_s", "system_s", "idle_s", "sectors_read", "sectors_written")

# What tells applications apart; cores and hardware threads are what they scale with.
GROUP_COLUMNS = (
    "host",
    "family",
    "workload",
    "data_bytes",
    "load",
    "instances",
    "device",
    "device_kind",
)

COUNTED, ACHIEVED, NOMINAL, GIVEN = "counted cycles", "achieved", "nominal", "given"

_PARTS_USER = ("user_s", "nice_s")
_PARTS_SYSTEM = ("system_s", "irq_s", "softirq_s")
_PARTS_UNUSED = ("idle_s", "iowait_s")
# Cycles that give a clock outside these shares of the nominal one are of another scope.
_PLAUSIBLE_CLOCK = (0.3, 2.5)


class PreparedIo(NamedTuple):
    """Runs with their derived columns, and what is to be said of them.

    ``table`` has the canonical columns and ``user_cycles``, ``system_cycles``, ``idle_cycles``
    (idle and iowait), ``ios`` (512 B), ``cpio``, ``user_cpio``, ``system_cpio``,
    ``cpio_with_idle``, ``utilisation``, ``iops``, ``busy_s``, ``cpus``, ``clock_hz`` and
    ``clock``, its label.
    """

    table: pd.DataFrame
    caveats: list[str]


def with_cpio(runs: pd.DataFrame, *, freq: float | None = None) -> PreparedIo:
    """Derive cycles, I/Os and utilisation of each run.

    Parameters
    ----------
    runs : pandas.DataFrame
        With the columns `NEEDED` and a clock: ``cycles``, ``freq_achieved_hz``, ``freq_hz``, or
        ``freq``. CPU time is of the whole system. Times that a kernel may count apart (nice, irq,
        softirq, iowait, steal) count where the table has them.
    freq : float, optional
        Hz, for runs that tell no frequency.

    Raises
    ------
    MeasurementError
        For columns that are missing and values that cannot be, such as a counter's negative step.
    PpwError
        Where no run tells its frequency.
    """
    table = check_runs(canonical(runs), needed=NEEDED, by=[])
    source = str(runs.attrs.get("source", "runs"))
    if freq is None and not {"cycles", "freq_achieved_hz", "freq_hz"} & set(table.columns):
        raise PpwError(
            f"{source}: no cycles, freq_achieved_hz or freq_hz: cycles are CPU seconds times a "
            "clock, so name the clock with --clock"
        )
    table = table.assign(**_cpu_times(table))
    return _with_rates(*_with_cycles(table, freq), source)


def column(table: pd.DataFrame, name: str) -> pd.Series[Any]:
    """A column as numbers; NaN throughout where there is none."""
    if name not in table:
        return pd.Series(np.nan, index=table.index, dtype=np.float64)
    return pd.to_numeric(table[name], errors="coerce").astype(np.float64)


def _cpu_times(table: pd.DataFrame) -> dict[str, pd.Series[Any]]:
    user, system = _sum(table, _PARTS_USER), _sum(table, _PARTS_SYSTEM)
    return {
        "all_user_s": user,
        "all_system_s": system,
        "busy_s": user + system,
        "unused_s": _sum(table, _PARTS_UNUSED),
    }


def _sum(table: pd.DataFrame, names: Sequence[str]) -> pd.Series[Any]:
    """Sum of times; one that a kernel does not count apart is in the others."""
    parts = [column(table, name).fillna(0.0) for name in names]
    return sum(parts[1:], start=parts[0])


def _with_cycles(table: pd.DataFrame, freq: float | None) -> tuple[pd.DataFrame, list[str]]:
    """Clock of each run by the best that it tells, and what its CPU times are in cycles."""
    nominal = column(table, "freq_hz")
    given = nominal.isna() & (freq is not None)
    nominal = nominal.fillna(np.nan if freq is None else freq)
    achieved = column(table, "freq_achieved_hz")
    with np.errstate(divide="ignore", invalid="ignore"):
        counted = column(table, "cycles") / table["busy_s"].where(table["busy_s"] > 0)
    expected = achieved.where(achieved.notna(), nominal)
    share = counted / expected
    odd = (share < _PLAUSIBLE_CLOCK[0]) | (share > _PLAUSIBLE_CLOCK[1])
    counted = counted.mask(odd)
    label = np.select(
        [counted.notna(), achieved.notna(), given, nominal.notna()],
        [COUNTED, ACHIEVED, GIVEN, NOMINAL],
        "",
    )
    clock = counted.where(counted.notna(), expected)
    table = table.assign(
        clock_hz=clock,
        clock=label,
        user_cycles=table["all_user_s"] * clock,
        system_cycles=table["all_system_s"] * clock,
        idle_cycles=table["unused_s"] * clock,
    )
    return table, _clock_caveats(table, odd.to_numpy(), share)


def _with_rates(table: pd.DataFrame, caveats: list[str], source: str) -> PreparedIo:
    ios = table["sectors_read"] + table["sectors_written"]
    busy = table["user_cycles"] + table["system_cycles"]
    seconds = table["busy_s"] + table["unused_s"]
    table = table.assign(
        ios=ios,
        cpio=cycles_per_io(busy, ios),
        user_cpio=cycles_per_io(table["user_cycles"], ios),
        system_cpio=cycles_per_io(table["system_cycles"], ios),
        cpio_with_idle=cycles_per_io(busy + table["idle_cycles"], ios),
        utilisation=(table["busy_s"] / seconds.where(seconds > 0)).to_numpy(),
        iops=ios / table["time_s"],
        storage_bytes=ios * IO_BYTES,
        cpus=_cpus(table),
    )
    return PreparedIo(table.assign(cores=_cores(table)), caveats)


def _cpus(table: pd.DataFrame) -> pd.Series[Any]:
    """Logical CPUs that the CPU time is of."""
    stolen = _sum(table, ("steal_s",))
    return (table["busy_s"] + table["unused_s"] + stolen) / table["time_s"]


def _cores(table: pd.DataFrame) -> pd.Series[Any]:
    cores = column(table, "cores")
    threads = column(table, "hardware_threads")
    known = cores.where(cores.notna(), threads)
    return known.where(known.notna(), np.maximum(table["cpus"].round(), 1.0))


def _clock_caveats(table: pd.DataFrame, odd: NDArray[np.bool_], share: pd.Series[Any]) -> list[str]:
    caveats = []
    label = table["clock"].astype(str)
    if rows := int(label.isin([NOMINAL, GIVEN]).sum()):
        caveats.append(
            f"the clock of {rows} of {len(table)} runs is nominal, not counted: turbo or a lower "
            "clock changes their cycles as much; measure with perf"
        )
    if odd.any():
        caveats.append(
            f"cycles of {int(odd.sum())} runs are {shown(float(share[odd].iloc[0]))} times their "
            "CPU time at the clock, so they were counted of something else than the whole system, "
            "and the clock was used"
        )
    return caveats
