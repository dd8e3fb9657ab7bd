"""`cycles_per_io`: what an I/O costs in cycles, against cores, threads and memory bandwidth.

`compare_devices`: one workload over devices, hosts and instances, under each device's roof.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fitting.laws.cycles_per_io import IO_BYTES, bandwidth_at_rise, thread_worth
from fitting.regression.lines import FloatArray
from ppw.cpio import caveats as found_in, io_runs as io, result as io_result
from ppw.errors import CaveatWarning, PpwError, UnknownColumnError
from ppw.results import axes
from ppw.results.axes import Axes
from ppw.results.result import PrintedTable, Table, frame_digest, rows_of, warn_caveats
from ppw.results.text import as_share, key_texts, plot_label, shown
from ppw.runs.groups import canonical

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
    code = io.group_codes(points, keys)
    # Groups need not have been measured on one core: their fewest cores stand for it.
    first = points[plain].assign(code=code[plain]).sort_values("cores", kind="stable")
    base = first.drop_duplicates("code").set_index("code")
    ratios = {f"{m}_to_one": points[m] / code.map(base[m]) for m in _MEASURES}
    return points.assign(**ratios)


def full_bandwidth(points: pd.DataFrame, keys: Sequence[str]) -> pd.Series[bool]:
    """Mark the points of each group and setting that nothing took memory bandwidth from."""
    columns = [*keys, "cores", "hardware_threads"]
    bandwidth = points[_BANDWIDTH]
    most = points.groupby(columns, dropna=False)[_BANDWIDTH].transform("max")
    return bandwidth.isna() | (bandwidth == most)


def thread_worths(points: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Compare hardware threads to full cores wherever both were measured: `CyclesPerIO.threads`."""
    plain = points[full_bandwidth(points, keys) & points["cpio"].notna()]
    plain = plain.assign(group=io.group_codes(points, keys)[plain.index])
    # Runs with and without a known bandwidth are two points of one setting: the first counts.
    alone = plain[plain["hardware_threads"] == plain["cores"]]
    alone = alone.drop_duplicates(["group", "cores"]).set_index(["group", "cores"])
    threaded = plain[plain["hardware_threads"] > plain["cores"]]
    as_cores = _measures_at(alone, threaded, "hardware_threads")
    without = _measures_at(alone, threaded, "cores")
    table = threaded[[*keys, "cores", "hardware_threads"]].assign(
        iops_to_cores=threaded["iops"].to_numpy() / as_cores["iops"],
        cpio_to_cores=threaded["cpio"].to_numpy() / as_cores["cpio"],
        worth=thread_worth(without["iops"], threaded["iops"].to_numpy(), as_cores["iops"]),
    )
    return table[table["iops_to_cores"].notna()].reset_index(drop=True)


def bandwidth_rises(
    table: pd.DataFrame, keys: Sequence[str], *, level: float, seed: int
) -> pd.DataFrame:
    """Find the bandwidths per core at which cycles per I/O have risen by 10 and by 25 %.

    The interval is that of draws of the levels' means, by their scatter pooled over the levels;
    NaN without repeated runs, or where a draw in twenty does not rise so far.
    """
    rows = []
    for key, levels in _costs_by_bandwidth(table, keys):
        at, mean, error, df = levels
        rng = np.random.default_rng(seed)
        drawn = mean * (1.0 + error * rng.standard_t(max(df, 1), (_DRAWS, len(mean))))
        for rise in RISES:
            value = float(bandwidth_at_rise(at, mean[None, :], rise)[0])
            lower = upper = np.nan
            if df and not np.isnan(value):
                lower, upper = _interval_of_draws(bandwidth_at_rise(at, drawn, rise), level)
            rows.append((*key, rise, value, lower, upper, at.min(), at.max()))
    names = [*keys, "cores", "rise", "value", "lower", "upper", "lowest", "highest"]
    return pd.DataFrame(rows, columns=names)


def device_ratios(points: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Compute ratios of each run on memory to the same run on disk."""
    if "device" not in keys or "device_kind" not in points:
        columns = [*keys, "cores", "device_from", *(f"{m}_ratio" for m in _MEASURES)]
        return pd.DataFrame(columns=columns)
    rest = [k for k in keys if k not in ("device", "device_kind")]
    on = [*rest, "cores", "hardware_threads"]
    plain = points[full_bandwidth(points, keys) & points["cpio"].notna()]
    # On memory the same requests wait for no device: the ratio is the cost that is the software's.
    memory = plain["device_kind"] == MEMORY_KIND
    pairs = plain[memory].merge(plain[~memory], on=on, suffixes=("", "_from"))
    ratios = {f"{m}_ratio": pairs[m] / pairs[f"{m}_from"] for m in _MEASURES}
    return pairs[[*keys, "cores", "device_from"]].assign(**ratios)


def _measures_at(alone: pd.DataFrame, threaded: pd.DataFrame, count: str) -> dict[str, FloatArray]:
    """Look up the measures of as many cores without threads; NaN where not measured."""
    wanted = pd.MultiIndex.from_arrays([threaded["group"], threaded[count]])
    found = alone[[*_MEASURES]].reindex(wanted)
    return {m: found[m].to_numpy() for m in _MEASURES}


def _costs_by_bandwidth(
    table: pd.DataFrame, keys: Sequence[str]
) -> Iterator[tuple[tuple[object, ...], tuple[FloatArray, FloatArray, FloatArray, int]]]:
    table = table.assign(**{_BANDWIDTH: io.column(table, _BANDWIDTH)})
    known = table[table[_BANDWIDTH].gt(0) & table["cpio"].notna()]
    for key, part in known.groupby([*keys, "cores"], sort=True, dropna=False):
        cells = part.groupby(_BANDWIDTH, sort=True)["cpio"]
        mean, runs = cells.mean(), cells.size()
        if len(mean) < 2:
            continue
        # Scatter is pooled over the levels, relative to their means: few runs repeat each level.
        df = int(len(part) - len(mean))
        squares = float(((part["cpio"] / cells.transform("mean") - 1.0) ** 2).sum())
        error = np.sqrt(squares / max(df, 1) / runs.to_numpy())
        yield key, (mean.index.to_numpy(np.float64), mean.to_numpy(), error, df)


def _interval_of_draws(draws: FloatArray, level: float) -> tuple[float, float]:
    if np.isnan(draws).mean() > (1.0 - level) / 2:
        return np.nan, np.nan
    lower, upper = np.nanquantile(draws, [0.5 - level / 2, 0.5 + level / 2])
    return float(lower), float(upper)


SETTING = ("cores", "hardware_threads", "bandwidth_per_core_bytes_s")
# Groups of which a sentence speaks, and groups whose names go above a plot.
_MOST_SAID, _FEW = 10, 6


@dataclass(frozen=True, kw_only=True, eq=False)
class CyclesPerIO(io_result.IoResult):
    """Cycles per 512-byte I/O of every application and setting.

    Attributes
    ----------
    points : pandas.DataFrame
        One row a group (columns ``by``) and setting. Each figure is a ratio of the sums over the
        runs that did I/O; ``lower`` and ``upper`` are the confidence interval of the mean ``cpio``,
        that of a ratio estimator on a logarithmic scale. The sums are there too, as a runs table
        has them: ``time_s``, ``user_s`` (with nice), ``system_s`` (with interrupts), ``idle_s``,
        ``iowait_s``, ``sectors_read`` and ``sectors_written``; and ``user_share``,
        ``system_share``, ``idle_share`` and ``iowait_share`` of the CPU time.
    threads : pandas.DataFrame
        One row a group and setting with more hardware threads than cores.
    bandwidth : pandas.DataFrame
        One row a group, core count and rise of the cycles per I/O.
    devices : pandas.DataFrame
        One row a group on memory: ratios to the same runs on disk.
    by : tuple of str
    level : float
        Level of the intervals.
    """

    kind = "cycles_per_io"
    tables = (
        Table(
            "points",
            """
            cores              | 1 | cores            | cores that the runs used
            hardware_threads   | 1 | hardware_threads | hardware threads of these cores
            bandwidth_per_core_bytes_s | B if any | bandwidth_per_core_bytes_s | B/s left per core
            runs               | 1    | runs           | number of runs
            cpio               | 1 [lower, upper] | cpio | cycles per I/O of 512 B
            user_cpio          | 1    | user           | cycles per I/O in user mode
            system_cpio        | 1    | system         | cycles per I/O in the kernel
            cpio_with_idle     | 1    | with idle      | variant that counts idle and iowait
            utilisation        | 1    | µ              | busy share of the CPU time
            iops               | 1    | 512 B IOPS     | 512-byte I/Os per second
            cpio_to_one        | 1    | cpio to 1 core | ratio to the fewest cores
            clock              | text | clock          | source of the core frequency
            clock_hz           | Hz   |                | core frequency
            utilisation_to_one | 1    |                | ratio to the fewest cores
            iops_to_one        | 1    |                | ratio to the fewest cores
            why_not            | text |                | why cycles per I/O mean little, or empty
            """,
            title="Runs",
            most=io_result.EVERY_ROW,
        ),
        Table(
            "threads",
            """
            iops_to_cores | 1 | | I/O rate of the threads over that of as many full cores
            cpio_to_cores | 1 | | the same ratio of the cycles per I/O
            worth         | 1 | | worth of a thread in full cores
            """,
        ),
        Table(
            "bandwidth",
            """
            rise    | share | | rise of the cycles per I/O
            value   | B/s   | | memory bandwidth per core at that rise
            lower   | B/s   | | lower end of its interval
            upper   | B/s   | | upper end of its interval
            lowest  | B/s   | | lowest bandwidth measured
            highest | B/s   | | highest bandwidth measured
            """,
        ),
        Table(
            "devices",
            """
            device_from       | text | | the disk that is compared with
            cpio_ratio        | 1    | | cycles per I/O on memory over those on disk
            utilisation_ratio | 1    | | the same ratio of the utilisation
            iops_ratio        | 1    | | the same ratio of the I/O rate
            """,
        ),
    )

    points: pd.DataFrame
    threads: pd.DataFrame
    bandwidth: pd.DataFrame
    devices: pd.DataFrame
    by: tuple[str, ...]
    level: float

    groups = io_result.IoResult._groups

    def verdict(self) -> list[str]:
        """Say what was found, in sentences: the first ten groups."""
        said = [_group_sentence(name, part) for name, part in self.groups()][:_MOST_SAID]
        said += [f"{self.label(row)}: {_thread_sentence(row)}" for row in rows_of(self.threads)]
        rises = [f"{self.label(row)}: {rise_sentence(row)}" for row in rows_of(self.bandwidth)]
        return said + rises

    def printed_tables(self, most: int | None = None) -> list[PrintedTable]:
        """Return the points as they print; threads have a column where some core ran two."""
        points, table = self.points, self.tables[0]
        if (points["hardware_threads"] == points["cores"]).all():
            points = points.drop(columns="hardware_threads")
        return [table.print_rows(self, table.most if most is None else most, points)]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw cycles per I/O of each application against cores."""
        ax = plot_against_cores(self, "cpio", ax)
        ax.set_ylabel("cycles per I/O")
        io_result.logarithmic(ax, "y")
        return ax


def cycles_per_io(
    runs: pd.DataFrame,
    *,
    by: Sequence[str] | None = None,
    freq: float | None = None,
    level: float = 0.90,
    seed: int = 0,
) -> CyclesPerIO:
    """Compute cycles per I/O, utilisation and I/O rate of runs, by application and setting.

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

    Raises
    ------
    MeasurementError
        For columns that are missing and values that cannot be.
    PpwError
        When no run tells its clock, or none did any I/O.
    """
    as_share("level", level)
    table, clocks = io.with_cpio(runs, freq=freq)
    keys = group_columns(table, by)
    points = _pool_points(table, keys, level)
    if points["cpio"].isna().all():
        why = "no run read or wrote a sector: use data that do not fit into memory, or direct I/O"
        if (table["ios"] > 0).any():
            why = "no run with I/O has a core frequency: give it with --clock"
        raise PpwError(f"{runs.attrs.get('source', 'runs')}: {why}")
    remarks = [
        *(str(c) for c in runs.attrs.get("caveats", ())),
        *(*clocks, *found_in.run_caveats(table)),
        *(*found_in.spinning_caveats(points, keys), *found_in.unlike_caveats(table, keys)),
    ]
    warn_caveats(remarks)
    return CyclesPerIO(
        points=points,
        threads=thread_worths(points, keys),
        bandwidth=bandwidth_rises(table, keys, level=level, seed=seed),
        devices=device_ratios(points, keys),
        by=tuple(keys),
        level=float(level),
        caveats=tuple(remarks),
        input_digest=frame_digest(runs),
    )


def group_columns(table: pd.DataFrame, by: Sequence[str] | None) -> list[str]:
    """Choose the columns that tell applications apart; `UnknownColumnError` for one not there."""
    if by is None:
        return [c for c in io.GROUP_COLUMNS if c in table and table[c].notna().any()]
    for name in by:
        if name not in table or name in SETTING:
            raise UnknownColumnError(
                f"cannot group by {name!r}: it is no column of the runs, or is a measured quantity"
            )
    return [*by]


def _pool_points(table: pd.DataFrame, keys: list[str], level: float) -> pd.DataFrame:
    table = table.assign(
        hardware_threads=io.column(table, "hardware_threads").fillna(table["cores"]),
        bandwidth_per_core_bytes_s=io.column(table, "bandwidth_per_core_bytes_s"),
        why_not=found_in.why_not(table),
    )
    cells = table.groupby([*keys, *SETTING], sort=True, dropna=False)
    points = io.pooled_rates(table, cells)
    points.insert(0, "runs", cells.size().astype(np.float64))
    points["why_not"] = cells["why_not"].agg(_join_distinct)
    points["clock"] = cells["clock"].agg(_join_distinct)
    points, codes = points.reset_index(), np.asarray(cells.ngroup(), dtype=np.int64)
    # Costs are positive and their errors relative: the interval is symmetric in the logarithm.
    spread = io.log_half_widths(table, points, codes, keys, level)
    # Runs that agree in nothing bound the mean by nothing.
    with np.errstate(over="ignore"):
        ends = points["cpio"] * np.exp(-spread), points["cpio"] * np.exp(spread)
    return to_one_core(points.assign(lower=ends[0], upper=ends[1]), keys)


def _join_distinct(found: pd.Series[Any]) -> str:
    return ", ".join(sorted({str(f) for f in found} - {""}))


def _group_sentence(name: str, part: pd.DataFrame) -> str:
    plain = part[part["cpio"].notna()].sort_values("cores", kind="stable")
    if plain.empty:
        blind = part["why_not"].str.contains("no core frequency").any()
        return f"{name}: {'no core frequency: give it with --clock' if blind else 'no I/O'}"
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


def _thread_sentence(row: Mapping[str, Any]) -> str:
    threads, cores = shown(row["hardware_threads"]), shown(row["cores"])
    worth = f"; a thread is worth {shown(row['worth'])} of a core"
    return (
        f"{threads} hardware threads on {cores} cores reach {row['iops_to_cores']:.0%} of as many "
        f"full cores{worth if row['worth'] == row['worth'] else ''}"
    )


def rise_sentence(row: Mapping[str, Any]) -> str:
    """Say at which memory bandwidth cycles per I/O have risen by a share, or that they have not."""
    names = ("value", "lower", "upper", "lowest")
    rise, (value, lower, upper, lowest) = f"{row['rise']:.0%}", (shown(row[n] / 1e9) for n in names)
    if row["value"] != row["value"]:
        return f"cpio has not risen by {rise} down to {lowest} GB/s per core"
    interval = f" ({lower} to {upper})" if row["lower"] == row["lower"] else ""
    return f"cpio has risen by {rise} at {value} GB/s per core{interval}"


def plot_against_cores(result: CyclesPerIO, column: str, ax: Axes | None = None) -> Axes:
    """Draw a column of the points of each application against cores."""
    from matplotlib.ticker import MaxNLocator

    ax, groups = axes.new_axes(ax), result.groups()[: io_result.MOST_DRAWN]
    for place, (name, part) in enumerate(groups):
        plain = part[(part["hardware_threads"] == part["cores"]) & part["cpio"].notna()]
        rows = plain.sort_values("cores", kind="stable").drop_duplicates("cores", keep="last")
        mark = io_result.MARKS[place % len(io_result.MARKS)]
        ax.plot(rows["cores"], rows[column], f"{mark}-", ms=5, label=plot_label(name))
    ax.set_xlabel("cores")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    # A few names go above the lines, and more would leave them no room.
    corner: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
    ax.legend(frameon=False, fontsize="small", **corner if len(groups) <= _FEW else {})
    return ax


# Shares of a roof: from the first on the device limits a row, above the second it is no roof.
_AT_ROOF, _BEYOND = 0.90, 1.05


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceComparison(io_result.IoResult):
    """Cycles per I/O and I/O rate over devices, hosts and instances.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a group (columns ``by``) and core count; ``lower`` and ``upper`` are the interval of
        the mean ``cpio``. Ratios are to the first row of the same workload.
    bandwidth : pandas.DataFrame
        As that of `ppw.cycles_per_io`: GB/s per core at which cpio has risen by 10 and by 25 %.
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
            of_roof       | share | of roof    | share of `roof_iops` that the runs reached
            instance_gain | 1     | of one instance | I/O rate over that of one instance
            runs          | 1     |            | number of runs
            """,
            title="Runs",
            most=io_result.EVERY_ROW,
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
        rows = [self._row_sentence(row) for row in rows_of(self.table.head(_MOST_SAID))]
        needs = [f"{self.label(row)}: {rise_sentence(row)}" for row in rows_of(self.bandwidth)]
        return [*rows, *needs]

    def _row_sentence(self, row: dict[str, Any]) -> str:
        cost, rate = shown(row["cpio"]), shown(row["iops"])
        said = f"{self.label(row)}: {cost} cycles per I/O, {rate} I/Os per second"
        if row["of_roof"] == row["of_roof"]:
            said += f", {row['of_roof']:.0%} of what the device can do"
        return said

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw each rate as a share of its device's own maximum, or else the rate itself."""
        ax, table = axes.new_axes(ax), self.table.head(io_result.MOST_DRAWN)
        has_roof = bool(table["of_roof"].notna().any())
        lengths = 100 * table["of_roof"] if has_roof else table["iops"]
        ax.barh(np.arange(len(table)), lengths.fillna(0.0), color=axes.CURVE, height=0.65)
        if has_roof:
            ax.axvline(100.0, color=axes.MEASURED, lw=0.8)
        io_result.label_rows(ax, [self.label(row) for row in rows_of(table)], "host and device")
        what = "I/O rate, % of the device's own maximum" if has_roof else "I/Os per second (512 B)"
        ax.set_xlabel(what)
        return ax


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

    Raises
    ------
    MeasurementError, PpwError
        As `ppw.cycles_per_io`; and for a roof without bandwidths.
    """
    with warnings.catch_warnings(action="ignore", category=CaveatWarning):
        found = cycles_per_io(runs, by=by, freq=freq, level=level)
    points, keys = found.points, [*found.by]
    # Threads share their core's execution units, so only full cores can be compared.
    full_cores = points["hardware_threads"] == points["cores"]
    table = points[points["cpio_to_one"].notna() & full_cores].reset_index(drop=True)
    table["roof_iops"] = _roofs(table, roof)
    table["of_roof"] = table["iops"] / table["roof_iops"]
    # What tells the work apart; all other keys are what is compared.
    same = [k for k in keys if k in ("workload", "data_bytes", "load")] + ["cores"]
    first = table.groupby(same, dropna=False)[["cpio", "iops"]].transform("first")
    for name in ("cpio", "iops"):
        table[f"{name}_ratio"] = table[name] / first[name]
    table["instance_gain"] = _instance_gain(table, keys)
    remarks = [*found.caveats, *_roof_caveats(table, roof)]
    warn_caveats(remarks)
    columns = (
        *("runs", "cpio", "lower", "upper", "utilisation", "iops", "roof_iops", "of_roof"),
        *("cpio_ratio", "iops_ratio", "instance_gain"),
    )
    return DeviceComparison(
        table=table[[*keys, "cores", *columns]],
        bandwidth=found.bandwidth,
        by=found.by,
        level=found.level,
        caveats=tuple(remarks),
        input_digest=found.input_digest,
    )


def _roofs(points: pd.DataFrame, roof: pd.DataFrame | None) -> pd.Series[Any]:
    """Find the most 512-byte I/Os per second that the device of each row did by itself."""
    if roof is None:
        return pd.Series(np.nan, index=points.index)
    table = canonical(roof)
    rate = io.column(table, "bandwidth_bytes_s") / IO_BYTES
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


def _instance_gain(table: pd.DataFrame, keys: list[str]) -> pd.Series[Any]:
    """Compute the I/O rate over that of one instance with all else equal."""
    if "instances" not in keys:
        return pd.Series(np.nan, index=table.index)
    rest = [k for k in keys if k != "instances"] + ["cores"]
    one = table[table["instances"] == 1][[*rest, "iops"]].rename(columns={"iops": "one"})
    merged = table[rest].merge(one, on=rest, how="left")["one"].set_axis(table.index)
    return table["iops"] / merged


def _roof_caveats(table: pd.DataFrame, roof: pd.DataFrame | None) -> Iterator[str]:
    if roof is None:
        yield (
            "the devices' own maximum is not known: run fio on them (ppw run fio) and give it as "
            "the roof, to see which runs the device limits"
        )
    elif table["roof_iops"].isna().any():
        yield (
            "some hosts or devices have no fio run in the roof table, so their maximum is not known"
        )
    if limited := int(table["of_roof"].between(_AT_ROOF, _BEYOND).sum()):
        yield (
            f"{limited} of {len(table)} rows reach {_AT_ROOF:.0%} of what their "
            "device can do: with more cores, these rows get idle time, not I/O"
        )
    if table["of_roof"].gt(_BEYOND).any():
        yield (
            "some rows do more I/O than fio did on their device, because of other patterns, "
            "request sizes or a cache: that fio run is not the device's maximum"
        )


def _counting_word(name: str, row: dict[Any, Any]) -> str:
    """Choose the word after the number of a column that counts; none for others."""
    return name[: -1 if row[name] == 1 else None] if name in ("cores", "instances") else ""
