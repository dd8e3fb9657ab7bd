"""`cycles_per_io`: what an I/O costs in cycles, against cores, threads and memory bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from fitting.laws.cycles_per_io import bandwidth_at_rise, thread_worth
from ppw.cpio.caveats import run_caveats, study_caveats, why_not
from ppw.cpio.io_runs import (
    GROUP_COLUMNS,
    PreparedIo,
    column,
    log_half_widths,
    pooled_rates,
    with_cpio,
)
from ppw.cpio.plots import _FEW, _MARKS, MOST_DRAWN, _logarithmic
from ppw.errors import PpwError, UnknownColumnError
from ppw.results import caveats as cv
from ppw.results.arguments import as_share
from ppw.results.axes import new_axes
from ppw.results.result import TabledResult, frame_digest, rows_of
from ppw.results.text import key_texts, plot_label, shown, shown_interval, summary_text, text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes

    from fitting.regression.lines import FloatArray


# What a scaling study tells: ratios to one core, hardware threads, memory bandwidth, devices.


RISES = (0.10, 0.25)
_MEASURES = ("cpio", "utilisation", "iops")
_BANDWIDTH = "bandwidth_per_core_bytes_s"
_DRAWS = 2000
MEMORY_KIND = "memory"


def to_one_core(points: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Add the ratios of each point to the fewest cores of its group, with all their bandwidth."""
    full = full_bandwidth(points, keys)
    plain = full & (points["hardware_threads"] == points["cores"]) & points["cpio"].notna()
    code = _codes(points, keys)
    first = points[plain].assign(code=code[plain]).sort_values("cores", kind="stable")
    base = first.drop_duplicates("code").set_index("code")
    ratios = {f"{m}_to_one": points[m] / code.map(base[m]) for m in _MEASURES}
    return points.assign(**ratios)


def full_bandwidth(points: pd.DataFrame, keys: Sequence[str]) -> pd.Series[bool]:
    """True for the points of each group and setting that nothing took memory bandwidth from."""
    columns = [*keys, "cores", "hardware_threads"]
    bandwidth = points[_BANDWIDTH]
    most = points.groupby(columns, dropna=False)[_BANDWIDTH].transform("max")
    return bandwidth.isna() | (bandwidth == most)


def thread_worths(points: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Compare hardware threads to full cores wherever both were measured.

    Returns
    -------
    pandas.DataFrame
        ``by``, ``cores``, ``hardware_threads``, ``iops_to_cores``, ``cpio_to_cores`` (ratios to as
        many full cores) and ``worth`` (of a thread, in full cores).
    """
    plain = points[full_bandwidth(points, keys) & points["cpio"].notna()]
    plain = plain.assign(group=_codes(points, keys)[plain.index])
    alone = plain[plain["hardware_threads"] == plain["cores"]].set_index(["group", "cores"])
    threaded = plain[plain["hardware_threads"] > plain["cores"]]
    as_cores = _at(alone, threaded, "hardware_threads")
    without = _at(alone, threaded, "cores")
    table = threaded[[*keys, "cores", "hardware_threads"]].assign(
        iops_to_cores=threaded["iops"].to_numpy() / as_cores["iops"],
        cpio_to_cores=threaded["cpio"].to_numpy() / as_cores["cpio"],
        worth=thread_worth(without["iops"], threaded["iops"].to_numpy(), as_cores["iops"]),
    )
    return table[table["iops_to_cores"].notna()].reset_index(drop=True)


def bandwidth_rises(
    table: pd.DataFrame, keys: Sequence[str], *, level: float, seed: int
) -> pd.DataFrame:
    """Bandwidths a core at which cpio has risen by 10 and by 25 %.

    The interval is that of draws of the levels' means, by their scatter pooled over the levels;
    NaN without repeated runs, or where a draw in twenty does not rise so far.
    """
    rows = []
    for key, levels in _bandwidth_groups(table, keys):
        at, mean, error, df = levels
        rng = np.random.default_rng(seed)
        drawn = mean * (1.0 + error * rng.standard_t(max(df, 1), (_DRAWS, len(mean))))
        for rise in RISES:
            value = float(bandwidth_at_rise(at, mean[None, :], rise)[0])
            lower, upper = _ends(bandwidth_at_rise(at, drawn, rise), level) if df else (np.nan,) * 2
            if np.isnan(value):
                lower = upper = np.nan
            rows.append((*key, rise, value, lower, upper, at.min(), at.max()))
    names = [*keys, "cores", "rise", "value", "lower", "upper", "lowest", "highest"]
    return pd.DataFrame(rows, columns=names)


def device_ratios(points: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Ratios of each run on memory to the same on disk: what taking the device away does."""
    if "device" not in keys or "device_kind" not in points:
        columns = [*keys, "cores", "device_from", *(f"{m}_ratio" for m in _MEASURES)]
        return pd.DataFrame(columns=columns)
    rest = [k for k in keys if k not in ("device", "device_kind")]
    on = [*rest, "cores", "hardware_threads"]
    plain = points[full_bandwidth(points, keys) & points["cpio"].notna()]
    memory = plain["device_kind"] == MEMORY_KIND
    pairs = plain[memory].merge(plain[~memory], on=on, suffixes=("", "_from"))
    ratios = {f"{m}_ratio": pairs[m] / pairs[f"{m}_from"] for m in _MEASURES}
    return pairs[[*keys, "cores", "device_from"]].assign(**ratios)


def _codes(points: pd.DataFrame, keys: Sequence[str]) -> pd.Series[int]:
    if not keys:
        return pd.Series(0, index=points.index)
    return points.groupby([*keys], sort=True, dropna=False).ngroup()


def _at(alone: pd.DataFrame, threaded: pd.DataFrame, count: str) -> dict[str, FloatArray]:
    """Measures of as many cores without threads; NaN where not measured."""
    wanted = pd.MultiIndex.from_arrays([threaded["group"], threaded[count]])
    found = alone[[*_MEASURES]].reindex(wanted)
    return {m: found[m].to_numpy() for m in _MEASURES}


def _bandwidth_groups(
    table: pd.DataFrame, keys: Sequence[str]
) -> Iterator[tuple[tuple[object, ...], tuple[FloatArray, FloatArray, FloatArray, int]]]:
    table = table.assign(**{_BANDWIDTH: column(table, _BANDWIDTH)})
    known = table[table[_BANDWIDTH].gt(0) & table["cpio"].notna()]
    for key, part in known.groupby([*keys, "cores"], sort=True, dropna=False):
        cells = part.groupby(_BANDWIDTH, sort=True)["cpio"]
        mean, runs = cells.mean(), cells.size()
        if len(mean) < 2:
            continue
        df = int(len(part) - len(mean))
        squares = float(((part["cpio"] / cells.transform("mean") - 1.0) ** 2).sum())
        error = np.sqrt(squares / max(df, 1) / runs.to_numpy())
        yield key, (mean.index.to_numpy(np.float64), mean.to_numpy(), error, df)


def _ends(draws: FloatArray, level: float) -> tuple[float, float]:
    if np.isnan(draws).mean() > (1.0 - level) / 2:
        return float("nan"), float("nan")
    ends = np.nanquantile(draws, [0.5 - level / 2, 0.5 + level / 2])
    return float(ends[0]), float(ends[1])


SETTING = ("cores", "hardware_threads", "bandwidth_per_core_bytes_s")
_MOST_SAID = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class CyclesPerIO(TabledResult):
    """Cycles per 512-byte I/O of every application and setting.

    Attributes
    ----------
    points : pandas.DataFrame
        One row a group (columns ``by``) and setting (``cores``, ``hardware_threads``,
        ``bandwidth_per_core_bytes_s``, B/s): ``runs``; ``cpio`` with the confidence interval
        ``lower``, ``upper`` of its mean; ``user_cpio`` and ``system_cpio``, which add up to it;
        ``cpio_with_idle``, the variant with idle and iowait; ``utilisation`` (0 to 1); ``iops``
        (512-byte I/Os a second); shares of the CPU time; ``clock_hz`` and ``clock``; ``why_not``,
        empty where the point means what it says; and ``cpio_to_one``, ``utilisation_to_one`` and
        ``iops_to_one``, ratios to the fewest cores. Each is a ratio of the sums over the runs that
        did I/O, which are there too, as a runs table has them: ``time_s``, ``user_s`` (with nice),
        ``system_s`` (with interrupts), ``idle_s``, ``iowait_s``, ``sectors_read`` and
        ``sectors_written``. The interval is that of a ratio estimator, on a logarithmic scale.
    threads : pandas.DataFrame
        What hardware threads are worth: ``iops_to_cores``, rate of threads over that of as many
        full cores, and ``worth`` of a thread in full cores.
    bandwidth : pandas.DataFrame
        Memory bandwidth (B/s a core) at which cpio has risen by ``rise``, with its interval.
    devices : pandas.DataFrame
        Ratios of each device that is memory to the disk of the same runs.
    by : tuple of str
    level : float
        Of the intervals.
    """

    kind: ClassVar[str] = "cycles_per_io"

    points: pd.DataFrame
    threads: pd.DataFrame
    bandwidth: pd.DataFrame
    devices: pd.DataFrame
    by: tuple[str, ...]
    level: float

    def to_frame(self) -> pd.DataFrame:
        """The points."""
        return self.points

    def verdict(self) -> list[str]:
        """Say what was found, in sentences: the first ten groups."""
        said = [_group_sentence(name, part) for name, part in self.groups()][:_MOST_SAID]
        return [*said, *self._thread_sentences(), *self._memory_sentences()]

    def groups(self) -> list[tuple[str, pd.DataFrame]]:
        """Points of each group, with its name."""
        if not self.by:
            return [("all runs", self.points)]
        grouped = self.points.groupby([*self.by], sort=False, dropna=False)
        return [(self.label(part.iloc[0].to_dict()), part) for _, part in grouped]

    def label(self, row: dict[Any, Any]) -> str:
        """Name a group by what tells the groups apart."""
        telling = [n for n in self.by if len(self.points[n].drop_duplicates()) > 1]
        return ", ".join(key_texts(telling or self.by, row)) or "all runs"

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        interval = f"{self.level:.0%} interval"
        numbers = [
            "cpio",
            interval,
            "user",
            "system",
            "with idle",
            "µ",
            "512 B IOPS",
            "cpio to 1 core",
        ]
        return [*self.by, *_settings(self.points), "runs", *numbers, "clock"]

    def cells(self, most: int | None = None) -> list[list[str]]:
        """The points as they are printed, the first ``most`` of them."""
        table = self.points if most is None else self.points.head(most)
        names = _settings(self.points)
        return [
            [
                *key_texts(self.by, row),
                *(shown(row[n], _UNITS.get(n, "")) for n in names),
                shown(row["runs"]),
                shown(row["cpio"]),
                shown_interval(row["cpio"], row["lower"], row["upper"], "1"),
                *(shown(row[n]) for n in ("user_cpio", "system_cpio", "cpio_with_idle")),
                shown(row["utilisation"]),
                shown(row["iops"]),
                shown(row["cpio_to_one"]),
                str(row["clock"]),
            ]
            for row in rows_of(table)
        ]

    def summary(self) -> str:
        """Text: sentences, the points, and the caveats."""
        table = text_table(self.header(), self.cells())
        return summary_text([*self.verdict(), table], self.caveats)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw cycles per I/O against cores."""
        return plot_cpio_against_cores(self, ax)

    def _thread_sentences(self) -> list[str]:
        said = []
        for row in rows_of(self.threads):
            worth = f"; a thread is worth {shown(row['worth'])} of a core"
            said.append(
                f"{self.label(row)}: {shown(row['hardware_threads'])} hardware threads on "
                f"{shown(row['cores'])} cores reach {row['iops_to_cores']:.0%} of as many full "
                f"cores{worth if row['worth'] == row['worth'] else ''}"
            )
        return said

    def _memory_sentences(self) -> list[str]:
        return [f"{self.label(row)}: {rise_sentence(row)}" for row in rows_of(self.bandwidth)]


def cycles_per_io(
    runs: pd.DataFrame,
    *,
    by: Sequence[str] | None = None,
    freq: float | None = None,
    level: float = 0.90,
    seed: int = 0,
) -> CyclesPerIO:
    """Cycles per I/O, utilisation and I/O rate of runs, by application and setting.

    Parameters
    ----------
    runs : pandas.DataFrame
        With ``time_s``, CPU times of the whole system, and sectors; see `ppw.cpio.io_runs`.
    by : sequence of str, optional
        Columns that tell applications apart; by default those of host, family, workload,
        data_bytes, load, instances and device that are there.
    freq : float, optional
        Clock (Hz) of runs that tell none.
    level : float
        Of the intervals, inside (0, 1).
    seed : int
        Where the draws behind the bandwidths' intervals start.

    Returns
    -------
    CyclesPerIO
        Cycles per 512-byte I/O of every application and setting.

    Raises
    ------
    MeasurementError
        For columns that are missing and values that cannot be.
    PpwError
        When no run tells its clock, or none did any I/O.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    as_share("level", level)
    prepared = with_cpio(runs, freq=freq)
    keys = group_columns(prepared.table, by)
    points = _points(prepared, keys, level)
    if points["cpio"].isna().all():
        raise PpwError(
            f"{runs.attrs.get('source', 'runs')}: no run read or wrote a sector: measure one whose "
            "data do not fit into memory, or with direct I/O"
        )
    caveats = [
        *(str(c) for c in runs.attrs.get("caveats", ())),
        *prepared.caveats,
        *run_caveats(prepared.table),
        *study_caveats(points, prepared.table, keys),
    ]
    cv.warn(caveats)
    return CyclesPerIO(
        points=points,
        threads=thread_worths(points, keys),
        bandwidth=bandwidth_rises(prepared.table, keys, level=level, seed=seed),
        devices=device_ratios(points, keys),
        by=tuple(keys),
        level=float(level),
        caveats=tuple(caveats),
        input_digest=frame_digest(runs),
    )


def group_columns(table: pd.DataFrame, by: Sequence[str] | None) -> list[str]:
    """Columns that tell applications apart.

    Raises
    ------
    UnknownColumnError
        For one that is not there.
    """
    if by is None:
        return [c for c in GROUP_COLUMNS if c in table and table[c].notna().any()]
    for name in by:
        if name not in table or name in SETTING:
            raise UnknownColumnError(
                f"cannot group by {name!r}: it is no column of the runs, or is what is studied"
            )
    return [*by]


def _points(prepared: PreparedIo, keys: list[str], level: float) -> pd.DataFrame:
    table = prepared.table
    table = table.assign(
        hardware_threads=column(table, "hardware_threads").fillna(table["cores"]),
        bandwidth_per_core_bytes_s=column(table, "bandwidth_per_core_bytes_s"),
        why_not=why_not(table),
    )
    cells = table.groupby([*keys, *SETTING], sort=True, dropna=False)
    points = pooled_rates(table, cells)
    points.insert(0, "runs", cells.size().astype(np.float64))
    points["why_not"] = cells["why_not"].agg(_reasons)
    points["clock"] = cells["clock"].agg(_reasons)
    points = points.reset_index()
    spread = log_half_widths(table, points, cells.ngroup().to_numpy(), keys, level)
    # Runs that agree in nothing bound the mean by nothing.
    with np.errstate(over="ignore"):
        ends = points["cpio"] * np.exp(-spread), points["cpio"] * np.exp(spread)
    return to_one_core(points.assign(lower=ends[0], upper=ends[1]), keys)


def _reasons(found: pd.Series[Any]) -> str:
    return ", ".join(sorted({str(f) for f in found} - {""}))


_UNITS = {"bandwidth_per_core_bytes_s": "B"}


def _settings(points: pd.DataFrame) -> list[str]:
    """Settings worth a column: cores, and what differs from the plain case."""
    names = ["cores"]
    if (points["hardware_threads"] != points["cores"]).any():
        names.append("hardware_threads")
    if points["bandwidth_per_core_bytes_s"].notna().any():
        names.append("bandwidth_per_core_bytes_s")
    return names


def _group_sentence(name: str, part: pd.DataFrame) -> str:
    plain = part[part["cpio"].notna()].sort_values("cores", kind="stable")
    if plain.empty:
        return f"{name}: no I/O"
    first, last = plain.iloc[0], plain.iloc[-1]
    cores = "core" if last["cores"] == 1 else "cores"
    said = (
        f"{name}: {shown(last['cpio'])} cycles per I/O of 512 B on {shown(last['cores'])} {cores}, "
        f"{last['user_cpio'] / last['cpio']:.0%} of them in user mode, at a utilisation of "
        f"{last['utilisation']:.0%}"
    )
    if last["cores"] != first["cores"]:
        said += f"; {last['cpio_to_one']:.2f} times that of {shown(first['cores'])}"
    return said


def rise_sentence(row: Mapping[str, Any]) -> str:
    """Say at which memory bandwidth cycles per I/O have risen by a share, or that they have not."""
    rise = f"{row['rise']:.0%}"
    if row["value"] != row["value"]:
        return f"cpio has not risen by {rise} down to {_gigabytes(row['lowest'])} GB/s a core"
    said = f"cpio has risen by {rise} at {_gigabytes(row['value'])} GB/s a core"
    if row["lower"] == row["lower"]:
        said += f" ({_gigabytes(row['lower'])} to {_gigabytes(row['upper'])})"
    return said


def _gigabytes(rate: float) -> str:
    return shown(rate / 1e9)


def plot_cpio_against_cores(result: CyclesPerIO, ax: Axes | None = None) -> Axes:
    """Draw cycles per I/O of each application against cores."""
    axes = _against_cores(result, new_axes(ax), "cpio")
    axes.set_ylabel("cycles per I/O")
    _logarithmic(axes, "y")
    return axes


def _against_cores(result: CyclesPerIO, axes: Axes, column: str) -> Axes:
    from matplotlib.ticker import MaxNLocator

    groups = result.groups()[:MOST_DRAWN]
    for place, (name, part) in enumerate(groups):
        plain = part[part["hardware_threads"] == part["cores"]]
        rows = plain[plain["cpio"].notna()].sort_values("cores", kind="stable")
        rows = rows.drop_duplicates("cores", keep="last")
        mark = _MARKS[place % len(_MARKS)]
        axes.plot(rows["cores"], rows[column], f"{mark}-", ms=5, label=plot_label(name))
    axes.set_xlabel("cores")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    # A few names go above the lines, and more would leave them no room.
    corner: dict[str, Any] = (
        {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)} if len(groups) <= _FEW else {}
    )
    axes.legend(frameon=False, fontsize="small", **corner)
    return axes
