"""`compare_devices`: one workload over devices, hosts and instances, under each device's roof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from fitting.laws.cycles_per_io import IO_BYTES
from ppw.cpio.cycles import cycles_per_io, rise_sentence
from ppw.cpio.io_runs import column
from ppw.cpio.plots import MOST_DRAWN, _rows
from ppw.errors import CaveatWarning, PpwError
from ppw.results import caveats as cv
from ppw.results.axes import CURVE, MEASURED, new_axes
from ppw.results.result import TabledResult, frame_digest, rows_of
from ppw.results.text import key_texts, shown, shown_interval, summary_text, text_table
from ppw.runs.groups import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes


_AT_ROOF = 0.90
_BEYOND = 1.05
_MOST_SAID = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceComparison(TabledResult):
    """Cycles per I/O and I/O rate over devices, hosts and instances.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a group (columns ``by``) and core count: ``cpio`` with the interval ``lower``,
        ``upper`` of its mean; ``utilisation``, ``iops`` (512-byte I/Os a second);
        ``roof_iops``, the most that the device did by itself, and ``of_roof``, the share of it;
        ``cpio_ratio`` and ``iops_ratio`` to the first row of the same workload; and
        ``instance_gain``, rate over that of one instance.
    bandwidth : pandas.DataFrame
        As that of `ppw.cycles_per_io`: GB/s a core at which cpio has risen by 10 and by 25 %.
    by : tuple of str
    level : float
    """

    kind: ClassVar[str] = "device_comparison"

    table: pd.DataFrame
    bandwidth: pd.DataFrame
    by: tuple[str, ...]
    level: float

    def to_frame(self) -> pd.DataFrame:
        """The table."""
        return self.table

    def label(self, row: dict[Any, Any]) -> str:
        """Name a row by what tells the rows apart."""
        names = [*self.by, "cores"]
        telling = [n for n in names if len(self.table[n].drop_duplicates()) > 1]
        texts = dict(zip(names, key_texts(names, row), strict=True))
        said = [f"{texts[n]} {_counted(n, row)}".strip() for n in telling or self.by]
        return ", ".join(said) or "all runs"

    def verdict(self) -> list[str]:
        """Say each row, the first ten, and what memory bandwidth they need."""
        rows = [self._sentence(row) for row in rows_of(self.table.head(_MOST_SAID))]
        needs = [f"{self.label(row)}: {rise_sentence(row)}" for row in rows_of(self.bandwidth)]
        return [*rows, *needs]

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        interval = f"{self.level:.0%} interval"
        rates = ["µ", "512 B IOPS", "IOPS ratio", "roof IOPS", "of roof", "of one instance"]
        return [*self.by, "cores", "cpio", interval, "cpio ratio", *rates]

    def cells(self) -> list[list[str]]:
        """The table as it is printed."""
        names = ("utilisation", "iops", "iops_ratio", "roof_iops")
        return [
            [
                *key_texts(self.by, row),
                shown(row["cores"]),
                shown(row["cpio"]),
                shown_interval(row["cpio"], row["lower"], row["upper"], "1"),
                shown(row["cpio_ratio"]),
                *(shown(row[n]) for n in names),
                _percent(row["of_roof"]),
                shown(row["instance_gain"]),
            ]
            for row in rows_of(self.table)
        ]

    def summary(self) -> str:
        """Text: sentences, table and caveats."""
        table = text_table(self.header(), self.cells())
        return summary_text([*self.verdict(), table], self.caveats)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw rates as shares of the devices' own maxima."""
        return plot_devices(self, ax)

    def _sentence(self, row: dict[str, Any]) -> str:
        cost, rate = shown(row["cpio"]), shown(row["iops"])
        said = f"{self.label(row)}: {cost} cycles per I/O, {rate} I/Os a second"
        if row["of_roof"] == row["of_roof"]:
            said += f", {_percent(row['of_roof'])} of what the device can do"
        return said


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
    import warnings

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
    cv.warn(caveats)
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
    """Most 512-byte I/Os a second that the device of each row did by itself."""
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
    """Ratios to the first host, device and instance count of the same workload and cores."""
    same = [k for k in keys if k in ("workload", "data_bytes", "load")] + ["cores"]
    first = table.groupby(same, dropna=False)[["cpio", "iops"]].transform("first")
    return {f"{name}_ratio": table[name] / first[name] for name in ("cpio", "iops")}


def _instance_gain(table: pd.DataFrame, keys: list[str]) -> pd.Series[Any]:
    """Rate over that of one instance with all else equal."""
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


def _counted(name: str, row: dict[Any, Any]) -> str:
    """Word after the number of a column that counts; nothing for others."""
    return name[: -1 if row[name] == 1 else None] if name in ("cores", "instances") else ""


def _percent(share: float) -> str:
    return "–" if share != share else f"{share:.0%}"


def plot_devices(result: DeviceComparison, ax: Axes | None = None) -> Axes:
    """Draw the I/O rate of each run as a share of its device's own maximum, or the rate itself."""
    axes = new_axes(ax)
    table = result.table.head(MOST_DRAWN)
    known = bool(table["of_roof"].notna().any())
    share = 100 * table["of_roof"] if known else table["iops"]
    place = np.arange(len(table))
    axes.barh(place, share.fillna(0.0), color=CURVE, height=0.65)
    if known:
        axes.axvline(100.0, color=MEASURED, lw=0.8)
    _rows(axes, [result.label(row) for row in table.to_dict(orient="records")])
    axes.set_ylabel("host and device")
    said = "I/O rate, % of the device's own maximum" if known else "I/Os a second (512 B)"
    axes.set_xlabel(said)
    return axes
