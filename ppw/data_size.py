"""`project_data_size`: the time of a job at a data size that was not measured, from smaller ones.

    T(D) = t_fixed + D/rate,    t_fixed ≥ 0, rate > 0

t_fixed is what a job takes whatever its data (starting Java, scheduling), and rate the data that it
gets through in a second once it runs. Intervals allow for sizes that lie off the line, as far as
those of other jobs did (see `fitting.data_scaling`). Where data outgrow a cache, memory or a buffer
the line ends, which no smaller size can tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.data_scaling import USUAL_MISS, fit_sizes
from fitting.lack_of_fit import lack_of_fit
from fitting.steps import Steps
from measurements import check_runs
from ppw import caveats as cv
from ppw.arguments import as_names, as_positive, as_share
from ppw.errors import PpwError
from ppw.estimate import key_texts, shown, shown_interval
from ppw.grouping import Groups, group_runs
from ppw.names import plot_label
from ppw.prepare import canonical
from ppw.result import (
    as_floats,
    frame_digest,
    numbers_digest,
    read_document,
    reads_document,
    records,
    write_document,
)
from ppw.tables import summary_text, text_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes

    from fitting.line import FloatArray, IntArray

KIND = "data-size-projection"
# What tells groups apart beside the data size: jobs that are set up otherwise are others.
_BY = (
    *("host", "family", "workload", "cores", "threads", "mode"),
    *("map_slots", "reduce_slots", "task_memory_bytes", "compression"),
)
_NUMBERS = (
    *("data_bytes", "projected", "lower", "upper", "measured", "error_pct"),
    *("t_fixed_s", "rate_bytes_s", "sizes", "runs", "smallest_bytes", "largest_bytes"),
)
# Usual scatter of ln(time) from run to run, until repeats have shown their own.
_USUAL = 0.02
_LACK_OF_FIT = 0.01
_FAR = 8.0
# Sizes from which on a line can be judged.
_JUDGED = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSizeProjection:
    """Times projected to one data size, a row a group.

    Attributes
    ----------
    table : pandas.DataFrame
        The group's keys; ``data_bytes`` (the target, B); ``projected``, ``lower`` and ``upper``
        (s; prediction interval for the mean of the runs at the target, or of one run);
        ``measured`` (s, mean of the runs at the target, which no fit has read; NaN without any),
        ``error_pct`` and ``covered``; ``t_fixed_s`` and ``rate_bytes_s`` (B/s, inf where the time
        does not grow); how many ``sizes`` and ``runs`` were fitted, from ``smallest_bytes`` to
        ``largest_bytes``.
    by : tuple of str
        Columns of the keys.
    level : float
        Of the intervals.
    caveats : tuple of str
    """

    table: pd.DataFrame
    by: tuple[str, ...]
    level: float
    caveats: tuple[str, ...]
    input_digest: str = field(repr=False, compare=False)

    @property
    def coverage(self) -> float | None:
        """Share of the groups measured at the target whose mean is inside its interval."""
        covered = self.table["covered"].dropna()
        return float(covered.astype(float).mean()) if len(covered) else None

    def summary(self) -> str:
        """Table and verdict as text."""
        header, rows = self.cells()
        lines = [text_table(header, rows), *self.verdict()]
        return summary_text(lines, self.caveats)

    def telling_keys(self) -> list[str]:
        """Columns that tell the groups of this table apart."""
        return [name for name in self.by if len(self.table[name].unique()) > 1] or list(self.by[:1])

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows of the table as they are printed, the telling keys first."""
        keys = self.telling_keys()
        header = [*keys, "data", "projected", f"{self.level:.0%} interval", "measured", "error"]
        rows = []
        for row in _rows(self.table):
            error = row["error_pct"]
            rows.append(
                [
                    *key_texts(keys, row),
                    shown(row["data_bytes"], "B"),
                    shown(row["projected"], "s"),
                    shown_interval(row["projected"], row["lower"], row["upper"], "s"),
                    shown(row["measured"], "s"),
                    "–" if error != error else f"{error:+.1f} %",
                ]
            )
        return header, rows

    def verdict(self) -> list[str]:
        """Say the fits in sentences."""
        keys, said = self.telling_keys(), []
        for row in _rows(self.table):
            name = " ".join(key_texts(keys, row)) if len(self.table) > 1 else "the job"
            growth = (
                "and no more with more data"
                if np.isinf(row["rate_bytes_s"])
                else f"and 1 s for every {shown(row['rate_bytes_s'], 'B')}"
            )
            said.append(f"{name}: {shown(row['t_fixed_s'], 's')} whatever the data, {growth}")
        if self.coverage is not None:
            count = int(self.table["covered"].notna().sum())
            said.append(f"{self.coverage:.0%} of {count} measured times are inside their interval")
        return said

    def to_frame(self) -> pd.DataFrame:
        """The table."""
        return self.table.copy()

    def to_json(self) -> str:
        """JSON document; missing values are null."""
        body = {
            "level": self.level,
            "by": list(self.by),
            "groups": records(self.table),
            "coverage": self.coverage,
            "caveats": list(self.caveats),
        }
        return write_document(KIND, self.input_digest, body)

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> DataSizeProjection:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        document = read_document(text, KIND)
        by = tuple(document["by"])
        table = pd.DataFrame(document["groups"], columns=[*by, *_NUMBERS, "covered"])
        table = as_floats(table, but=[*by, "covered"]).astype({"covered": object})
        table["rate_bytes_s"] = table["rate_bytes_s"].fillna(np.inf)
        return cls(
            table=table,
            by=by,
            level=document["level"],
            caveats=tuple(document["caveats"]),
            input_digest=document["input_digest"],
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw each group's line from nothing to the target, its interval and what was measured."""
        from ppw.plots import new_axes

        ax = new_axes(ax)
        for row in _rows(self.table):
            sizes = np.array([0.0, row["data_bytes"]])
            label = plot_label(" ".join(key_texts(self.telling_keys(), row)))
            (line,) = ax.plot(sizes / 1e6, row["t_fixed_s"] + sizes / row["rate_bytes_s"])
            line.set_label(label)
            at = row["data_bytes"] / 1e6
            if row["lower"] == row["lower"]:
                ax.vlines(at, row["lower"], row["upper"], colors=line.get_color(), linewidth=4)
            if row["measured"] == row["measured"]:
                ax.plot([at], [row["measured"]], "o", color=line.get_color())
        ax.set_xlabel("data (MB)")
        ax.set_ylabel("time (s)")
        if self.telling_keys():
            ax.legend()
        return ax


def project_data_size(
    runs: pd.DataFrame,
    *,
    data_bytes: float,
    by: Sequence[str] | None = None,
    level: float = 0.90,
) -> DataSizeProjection:
    """Project the time of jobs to a data size, from runs with less data.

    Parameters
    ----------
    runs : pandas.DataFrame
        With ``data_bytes`` and ``time_s``. Runs with as much data as the target, or more, are not
        fitted; those at the target tell how good the projection is.
    data_bytes : float
        The target (B).
    by : sequence of str, optional
        Columns that tell groups apart; by default host, family, workload, cores, threads, and how
        a job is set up, with the clock where it was set.
    level : float
        Of the intervals, inside (0, 1).

    Returns
    -------
    DataSizeProjection

    Raises
    ------
    MeasurementError
        For values that cannot be.
    PpwError
        When no group has runs at two smaller sizes.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    target = as_positive("data size (bytes)", data_bytes)
    as_share("level", level)
    tidy = canonical(runs)
    source = str(runs.attrs.get("source", "runs"))
    names = _by(tidy) if by is None else as_names(by)
    checked = check_runs(tidy, needed=["data_bytes", "time_s"], by=names)
    groups = group_runs(checked, names)
    sizes = checked["data_bytes"].to_numpy(dtype=np.float64)
    fitted = _fit(groups, sizes, checked["time_s"].to_numpy(dtype=np.float64), target, level)
    answered = fitted["projected"].notna()
    if not answered.any():
        raise PpwError(
            f"{source}: no group has runs at two sizes below {shown(target, 'B')}: measure two or "
            "more, each several times"
        )
    caveats = list(_caveats(fitted, answered))
    cv.warn(caveats)
    keys = groups.keys[answered.to_numpy()].reset_index(drop=True)
    table = fitted[answered].drop(columns="lack_of_fit").reset_index(drop=True)
    return DataSizeProjection(
        table=pd.concat([keys, table], axis=1),
        by=tuple(names),
        level=float(level),
        caveats=tuple(caveats),
        input_digest=numbers_digest(frame_digest(runs), target, level),
    )


def _by(runs: pd.DataFrame) -> list[str]:
    names = [name for name in _BY if name in runs]
    # As it was found, the clock is a reading and no set-up.
    if "freq_hz" in runs and "freq_source" not in runs:
        names.append("freq_hz")
    return names


def _fit(
    groups: Groups, sizes: FloatArray, times: FloatArray, target: float, level: float
) -> pd.DataFrame:
    """Columns of the table, one row a group; NaN where it cannot be projected."""
    count = len(groups)
    below = sizes < target * (1 - 1e-9)
    at = np.isclose(sizes, target, rtol=1e-9, atol=0.0)
    codes, size, time = groups.codes[below], sizes[below], times[below]
    steps = Steps.of(codes, 1 / size, np.log(time), count)
    found = fit_sizes(steps, target)
    measured, measured_runs = _means(groups.codes[at], times[at], count)
    lower, upper = found.interval(level=level, repeats=np.maximum(measured_runs, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = target / found.line.intercept
        covered = ((lower <= measured) & (measured <= upper)).astype(object)
        test = lack_of_fit(steps, usual=_USUAL)
    covered[np.isnan(lower) | np.isnan(measured)] = None
    return pd.DataFrame(
        {
            "data_bytes": np.full(count, target),
            "projected": found.projected,
            "lower": lower,
            "upper": upper,
            "measured": measured,
            "error_pct": 100 * (found.projected / measured - 1),
            "t_fixed_s": found.line.slope,
            "rate_bytes_s": rate,
            "sizes": steps.count.astype(float),
            "runs": np.bincount(codes, minlength=count).astype(float),
            "smallest_bytes": _extreme(np.minimum, codes, size, count, np.inf),
            "largest_bytes": _extreme(np.maximum, codes, size, count, -np.inf),
            "covered": covered,
            "lack_of_fit": test.p_value,
        }
    )


def _means(codes: IntArray, values: FloatArray, groups: int) -> tuple[FloatArray, FloatArray]:
    count = np.bincount(codes, minlength=groups).astype(float)
    with np.errstate(invalid="ignore"):
        return np.bincount(codes, values, groups) / count, count


def _extreme(
    choose: np.ufunc, codes: IntArray, sizes: FloatArray, groups: int, start: float
) -> FloatArray:
    found = np.full(groups, start)
    choose.at(found, codes, sizes)
    return np.where(np.isinf(found), np.nan, found)


def _caveats(fitted: pd.DataFrame, answered: pd.Series[bool]) -> Iterable[str]:
    if left := int((~answered).sum()):
        yield f"{left} groups have runs at less than two smaller sizes and are left out"
    rows = fitted[answered]
    bent = rows["lack_of_fit"] < _LACK_OF_FIT
    if bent.any():
        yield (
            f"the smaller sizes of {int(bent.sum())} groups do not lie on one line (lack of fit): "
            "tasks come in whole waves, or a cache or buffer is outgrown; the interval does not "
            "say how that goes on"
        )
    reach = float((rows["data_bytes"] / rows["largest_bytes"]).max())
    if reach > _FAR:
        yield (
            f"the target is {shown(reach)} times the largest size measured: caches, memory and "
            "disks may end the line before it"
        )
    if few := int((rows["sizes"] < _JUDGED).sum()):
        yield (
            f"{few} groups have two sizes, which show nothing of how straight their line is: the "
            f"interval takes sizes to lie {USUAL_MISS:.0%} off it or so, as other jobs' did; "
            "measure a third"
        )


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in table.to_dict(orient="records")]
