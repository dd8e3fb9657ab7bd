"""Where cycles per I/O mislead: hidden I/O, idle spinning, unlike stacks, lost CPU time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fitting.laws.cycles_per_io import IO_BYTES
from ppw.cpio.io_runs import column
from ppw.results.text import key_texts, shown

# CPU time that does not add up to time × CPUs by more than this is of other CPUs.
_OTHER_CPUS = 0.10
# Shares of the CPU time that a hypervisor stole, and that the clock tick missed.
_STOLEN, _LOST = 0.01, 0.05
# Devices that moved less than this share of the data: a cache served the rest.
_HIDDEN = 0.90
# Cycles in user mode beyond this share are no cost of I/O alone. Cores that are busy for the first
# share and bring less than the second gain in I/O rate spin.
_ALL_USER, _SPINNING_UTILISATION, _SPINNING_GAIN = 0.90, 0.95, 1.05
# I/O for the same work may differ by this share between hosts and devices.
_UNLIKE = 0.10


def why_not(table: pd.DataFrame) -> pd.Series[str]:
    """Say why the cycles per I/O of each run mean little; empty where they mean what they say."""
    fits = column(table, "data_bytes") <= column(table, "memory_bytes")
    quiet = column(table, "intervals_without_io") / column(table, "intervals") > 0.5
    # The first reason that holds is the one that stands in the table.
    reasons = {
        "no I/O": table["ios"] <= 0,
        "no core frequency": table["clock_hz"].isna(),
        "the data fit in memory": fits,
        "I/O in under half of its intervals": quiet,
    }
    return pd.Series(np.select([*reasons.values()], [*reasons], ""), index=table.index)


def run_caveats(table: pd.DataFrame) -> Iterator[str]:
    """Say what is wrong with runs one by one, each kind once."""
    yield from _io_caveats(table)
    yield from _accounting_caveats(table)


def _io_caveats(table: pd.DataFrame) -> Iterator[str]:
    """Say which runs did no I/O at times, or less than their data: a cache hides it."""
    if none := int((table["ios"] <= 0).sum()):
        yield (
            f"{none} of {len(table)} runs did no I/O: they have no cycles per I/O, and ppw leaves "
            "them out of all means"
        )
    quiet, all_ = column(table, "intervals_without_io"), column(table, "intervals")
    if quiet.gt(0).any():
        share = float(quiet.sum() / all_[quiet.notna()].sum())
        yield (
            f"{shown(float(quiet.sum()))} intervals ({share:.0%}) had no I/O: their cycles are "
            "added to the I/Os of the other intervals; record a steady load"
        )
    data, memory = column(table, "data_bytes"), column(table, "memory_bytes")
    if fits := int((data <= memory).sum()):
        yield (
            f"the data of {fits} of {len(table)} runs fit in memory: the page cache serves "
            "requests that would reach the device with more data, so cpio is not meaningful"
        )
    moved = table["ios"] * IO_BYTES / data.where(data > 0)
    hidden = (moved < _HIDDEN) & (table["ios"] > 0)
    if hidden.any():
        yield (
            f"devices moved less than data_bytes in {int(hidden.sum())} of "
            f"{len(table)} runs, only {float(moved[hidden].min()):.0%} at least: "
            "caching hides I/O, and each remaining I/O looks expensive"
        )


def _accounting_caveats(table: pd.DataFrame) -> Iterator[str]:
    if "cpu_accounting" in table and (ticks := int((table["cpu_accounting"] == "tick").sum())):
        yield (
            f"CPU time of {ticks} of {len(table)} runs was counted by the clock tick, which "
            "misses up to a third of it under I/O: count it by the scheduler (cgroup cpu.stat)"
        )
    # What the scheduler counted, where it was read; else the kernel's own sums of task times.
    tasks = column(table, "user_s") + column(table, "nice_s").fillna(0.0) + table["system_s"]
    tasks = column(table, "scheduled_s").fillna(tasks)
    lost = 1.0 - column(table, "tick_busy_s") / tasks.where(tasks > 0)
    if lost.gt(_LOST).any():
        yield (
            f"the clock tick missed up to {float(lost.max()):.0%} of the CPU time that the "
            "scheduler counted: tools that read /proc/stat have the same error on this host"
        )
    stolen = column(table, "steal_s") / (table["cpus"] * table["time_s"])
    if stolen.gt(_STOLEN).any():
        yield (
            f"up to {float(stolen.max()):.0%} of the CPU time was stolen by the hypervisor: ppw "
            "counts it neither as busy nor as idle, and rates are lower than on a dedicated host"
        )
    cores = column(table, "hardware_threads").fillna(table["cores"])
    off = (table["cpus"] / cores - 1.0).abs() > _OTHER_CPUS
    if off.any():
        first = table[off].iloc[0]
        yield (
            f"CPU time of {int(off.sum())} runs is of {shown(first['cpus'])} CPUs where "
            f"{shown(float(cores[off].iloc[0]))} were used: a container saw its host's counters, "
            "or other CPUs were idle. So utilisation is not that of the cores used"
        )


def spinning_caveats(points: pd.DataFrame, keys: Sequence[str]) -> Iterator[str]:
    """Say which groups spend their cycles in user mode, or in spinning."""
    user = points["user_cpio"] / points["cpio"]
    spinning = points.index[user > _ALL_USER]
    names = sorted({_group_name(points, keys, i) for i in spinning})
    if names:
        yield (
            f"over {_ALL_USER:.0%} of the cycles of {'; '.join(names)} are in user mode: cpio "
            "then includes computation, or clients that spin while they wait, and is not the "
            "cost of I/O alone"
        )
    plain = points[(points["hardware_threads"] == points["cores"]) & points["cpio"].notna()]
    for _, part in plain.groupby([*keys] or (lambda _: 0), sort=True, dropna=False):
        rows = part.sort_values("cores", kind="stable")
        full = rows["utilisation"].ge(_SPINNING_UTILISATION).all()
        gain = rows["iops"].iloc[-1] / rows["iops"].iloc[0]
        if len(rows) > 1 and full and gain < _SPINNING_GAIN:
            yield (
                f"{_group_name(rows, keys, rows.index[0])}: the cores are always busy, and more "
                "cores do not bring more I/O. They spin or wait for locks, which cpio counts as "
                "work"
            )


def unlike_caveats(table: pd.DataFrame, keys: Sequence[str]) -> Iterator[str]:
    """Say which workloads do different amounts of I/O for the same work on different stacks."""
    apart = [k for k in ("host", "device") if k in keys]
    if "workload" not in keys or not apart or len(table[apart].drop_duplicates()) < 2:
        return
    # The work of each run: operations, else bytes of input; NaN where neither is known.
    operations = column(table, "throughput_ops_s") * table["time_s"]
    data = column(table, "data_bytes")
    work = operations.where(operations > 0, data.where(data > 0))
    per_work = (table["ios"] / work).groupby(
        [table["workload"], table["data_bytes"] if "data_bytes" in table else table["workload"]],
        dropna=False,
    )
    spread = per_work.max() / per_work.min() - 1.0
    wide = spread[spread > _UNLIKE]
    if len(wide):
        name = str(wide.index[0][0])
        yield (
            f"{name} does up to {1 + float(wide.max()):.3g} times as much I/O for the same work on "
            "one host, device or setting as on another: stacks that do different amounts of I/O "
            "are not comparable by cpio alone; compare cycles for the work"
        )


def _group_name(points: pd.DataFrame, keys: Sequence[str], index: Any) -> str:
    return ", ".join(key_texts(keys, points.loc[index].to_dict())) or "all runs"
