"""What a scaling study tells: ratios to one core, hardware threads, memory bandwidth, devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fitting.laws.cycles_per_io import bandwidth_at_rise, thread_worth
from ppw.cpio.runs import column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fitting.regression.lines import FloatArray

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
