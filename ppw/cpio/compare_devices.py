"""`compare_devices`: one workload over devices, hosts and instances, under each device's roof."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.laws.cycles_per_io import IO_BYTES
from ppw.cpio.cycles import cycles_per_io, rise_sentence
from ppw.cpio.io_runs import column
from ppw.cpio.result import EVERY_ROW, MOST_DRAWN, IoResult, label_rows
from ppw.errors import CaveatWarning, PpwError
from ppw.results.axes import CURVE, MEASURED, new_axes
from ppw.results.result import Table, frame_digest, rows_of, warn_caveats
from ppw.results.text import key_texts, shown
from ppw.runs.groups import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes

# Shares of a roof: from the first on the device limits a row, above the second it is no roof.
_AT_ROOF, _BEYOND = 0.90, 1.05
_MOST_SAID = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceComparison(IoResult):
    """Cycles per I/O and I/O rate over devices, hosts and instances.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a group (columns ``by``) and core count; ``lower`` and ``upper`` are the interval of
        the mean ``cpio``. Ratios are to the first row of the same workload.
    bandwidth : pandas.DataFrame
        As that of `ppw.cycles_per_io`: GB/s a core at which cpio has risen by 10 and by 25 %.
    by : tuple of str
    level : float
        Level of the intervals.
    """

    kind = "device_comparison"
    tables = (
        Table(
            "table",
            """
            cores         | 1     | cores      | cores that the runs used
            cpio          | 1 [lower, upper] | cpio | cycles per I/O of 512 B
            cpio_ratio    | 1     | cpio ratio | ratio of the cycles per I/O
            utilisation   | 1     | µ          | busy share of the CPU time
            iops          | 1     | 512 B IOPS | 512-byte I/Os per second
            iops_ratio    | 1     | IOPS ratio | ratio of the I/O rate
            roof_iops     | 1     | roof IOPS  | most that the device did by itself
            of_roof       | share | of roof    | share of it that the runs reached
            instance_gain | 1     | of one instance | I/O rate over that of one instance
            runs          | 1     |            | number of runs
            """,
            title="Runs",
            most=EVERY_ROW,
        ),
    )

    table: pd.DataFrame
    bandwidth: pd.DataFrame
    by: tuple[str, ...]
    level: float

    def label(self, row: dict[Any, Any]) -> str:
        """Name a row by what tells the rows apart."""
        names = [*self.by, "cores"]
        telling = [n for n in names if len(self.table[n].drop_duplicates()) > 1]
        texts = dict(zip(names, key_texts(names, row), strict=True))
        said = [f"{texts[n]} {_counting_word(n, row)}".strip() for n in telling or self.by]
        return ", ".join(said) or "all runs"

    def verdict(self) -> list[str]:
        """Say each row, the first ten, and what memory bandwidth they need."""
        rows = [self._sentence(row) for row in rows_of(self.table.head(_MOST_SAID))]
        needs = [f"{self.label(row)}: {rise_sentence(row)}" for row in rows_of(self.bandwidth)]
        return [*rows, *needs]

    def _sentence(self, row: dict[str, Any]) -> str:
        cost, rate = shown(row["cpio"]), shown(row["iops"])
        said = f"{self.label(row)}: {cost} cycles per I/O, {rate} I/Os a second"
        if row["of_roof"] == row["of_roof"]:
            said += f", {row['of_roof']:.0%} of what the device can do"
        return said

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw each rate as a share of its device's own maximum, or else the rate itself."""
        axes, table = new_axes(ax), self.table.head(MOST_DRAWN)
        has_roof = bool(table["of_roof"].notna().any())
        lengths = 100 * table["of_roof"] if has_roof else table["iops"]
        axes.barh(np.arange(len(table)), lengths.fillna(0.0), color=CURVE, height=0.65)
        if has_roof:
            axes.axvline(100.0, color=MEASURED, lw=0.8)
        label_rows(axes, [self.label(row) for row in rows_of(table)], "host and device")
        said = "I/O rate, % of the device's own maximum" if has_roof else "I/Os a second (512 B)"
        axes.set_xlabel(said)
        return axes


def compare_devices(
    runs: pd.DataFrame,
    *,
    roof: pd.DataFrame | None = None,
    by: Sequence[str] | None = None,
    freq: float | None = None,
    level: float = 0.90,
) -> DeviceComparison:
    """Compare one or more workloads over devices, hosts and instances.

    Parameters
    ----------
    runs : pandas.DataFrame
        As for `ppw.cycles_per_io`.
    roof : pandas.DataFrame, optional
        Runs of fio on the same devices, as ``ppw run fio`` writes them: ``bandwidth_bytes_s``
        and, where runs have them, ``host`` and ``device``. The most of them is the roof.
    by, freq, level
        As for `ppw.cycles_per_io`.

    Returns
    -------
    DeviceComparison
        Cycles per I/O and I/O rate over devices, hosts and instances.

    Raises
    ------
    MeasurementError, PpwError
        As `ppw.cycles_per_io`; and for a roof without bandwidths.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaveatWarning)
        found = cycles_per_io(runs, by=by, freq=freq, level=level)
    plain = found.points[found.points["cpio_to_one"].notna()].reset_index(drop=True)
    plain = plain[plain["hardware_threads"] == plain["cores"]].reset_index(drop=True)
    keys = [*found.by]
    table = plain.assign(roof_iops=_roofs(plain, roof))
    table = table.assign(
        of_roof=table["iops"] / table["roof_iops"],
        **_ratios(table, keys),
        instance_gain=_instance_gain(table, keys),
    )
    caveats = [*found.caveats, *_caveats(table, keys, roof)]
    warn_caveats(caveats)
    columns = (
        *("runs", "cpio", "lower", "upper", "utilisation", "iops", "roof_iops", "of_roof"),
        *("cpio_ratio", "iops_ratio", "instance_gain"),
    )
    return DeviceComparison(
        table=table[[*keys, "cores", *columns]],
        bandwidth=found.bandwidth,
        by=tuple(keys),
        level=float(level),
        caveats=tuple(caveats),
        input_digest=frame_digest(runs),
    )


def _roofs(points: pd.DataFrame, roof: pd.DataFrame | None) -> pd.Series[Any]:
    """Find the most 512-byte I/Os per second that the device of each row did by itself."""
    if roof is None:
        return pd.Series(np.nan, index=points.index)
    table = canonical(roof)
    rate = column(table, "bandwidth_bytes_s") / IO_BYTES
    if rate.notna().sum() == 0:
        raise PpwError(
            f"{roof.attrs.get('source', 'roof')}: no bandwidth_bytes_s: give runs of fio on the "
            "same device, as ppw run fio writes them"
        )
    on = [c for c in ("host", "device") if c in table and c in points]
    if not on:
        return pd.Series(float(rate.max()), index=points.index)
    most = rate.groupby([table[c] for c in on]).max().rename("roof_iops").reset_index()
    return points[on].merge(most, on=on, how="left")["roof_iops"].set_axis(points.index)


def _ratios(table: pd.DataFrame, keys: list[str]) -> dict[str, pd.Series[Any]]:
    """Compute ratios to the first host, device and instance count of a workload and core count."""
    same = [k for k in keys if k in ("workload", "data_bytes", "load")] + ["cores"]
    first = table.groupby(same, dropna=False)[["cpio", "iops"]].transform("first")
    return {f"{name}_ratio": table[name] / first[name] for name in ("cpio", "iops")}


def _instance_gain(table: pd.DataFrame, keys: list[str]) -> pd.Series[Any]:
    """Compute the I/O rate over that of one instance with all else equal."""
    if "instances" not in keys:
        return pd.Series(np.nan, index=table.index)
    rest = [k for k in keys if k != "instances"] + ["cores"]
    one = table[table["instances"] == 1][[*rest, "iops"]].rename(columns={"iops": "one"})
    merged = table[rest].merge(one, on=rest, how="left")["one"].set_axis(table.index)
    return table["iops"] / merged


def _caveats(table: pd.DataFrame, keys: list[str], roof: pd.DataFrame | None) -> Iterator[str]:
    if roof is None:
        yield (
            "the devices' own maximum is not known: run fio on them (ppw run fio) and give it as "
            "the roof, to see which runs the device limits"
        )
    elif table["roof_iops"].isna().any():
        yield "some hosts or devices have no run of fio, and so no roof"
    if limited := int(table["of_roof"].between(_AT_ROOF, _BEYOND).sum()):
        yield (
            f"{limited} of {len(table)} rows reach {_AT_ROOF:.0%} of what their device can do: "
            "there more cores bring idle time, not I/O"
        )
    if table["of_roof"].gt(_BEYOND).any():
        yield (
            "some rows do more I/O than fio did on their device: other patterns or request sizes, "
            "or a cache below; such a roof is none"
        )


def _counting_word(name: str, row: dict[Any, Any]) -> str:
    """Choose the word after the number of a column that counts; none for others."""
    return name[: -1 if row[name] == 1 else None] if name in ("cores", "instances") else ""
