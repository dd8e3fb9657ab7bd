"""`project_data_size`: the time of a job at a data size that was not measured, from smaller ones.

    T(D) = t_fixed + D/rate,    t_fixed ≥ 0, rate > 0

t_fixed is what a job takes whatever its data (starting Java, scheduling), and rate the data that it
gets through in a second once it runs. Intervals allow for sizes that lie off the line, as far as
those of other jobs did (see `fitting.laws.data_size`). Where data outgrow a cache, memory or a
buffer the line ends, which no smaller size can tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fitting.bayes.steps import Steps
from fitting.laws.data_size import USUAL_MISS, fit_sizes
from measurements.quantities import parse_quantity
from ppw.arguments import as_positive
from ppw.estimate import shown
from ppw.time_projection import JUDGED, LACK_OF_FIT, TimeProjection, project_time, with_clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from fitting.laws.data_size import ExtentLine
    from fitting.regression.lines import FloatArray
    from ppw.time_projection import Rows

# What tells groups apart beside the data size: jobs that are set up otherwise are others.
_BY = (
    *("host", "family", "workload", "cores", "threads", "mode"),
    *("map_slots", "reduce_slots", "task_memory_bytes", "compression"),
)
_FAR = 8.0


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSizeProjection(TimeProjection):
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

    kind: ClassVar[str] = "data-size-projection"
    target: ClassVar[str] = "data_bytes"
    unit: ClassVar[str] = "B"
    word: ClassVar[str] = "data"
    few: ClassVar[str] = "smaller sizes"
    found_columns: ClassVar[tuple[str, ...]] = ("t_fixed_s", "rate_bytes_s")
    unbounded: ClassVar[tuple[str, ...]] = ("rate_bytes_s",)
    measured_columns: ClassVar[tuple[str, str, str]] = ("sizes", "smallest_bytes", "largest_bytes")

    def title(self) -> str:
        """Heading of the report."""
        return f"Projected to {shown(self.table['data_bytes'].iloc[0], 'B')} of data"

    def law(self, row: dict[str, Any]) -> str:
        """What was fitted to the group of a row, in words."""
        growth = (
            "and no more with more data"
            if np.isinf(row["rate_bytes_s"])
            else f"and 1 s for every {shown(row['rate_bytes_s'], 'B')}"
        )
        return f"{shown(row['t_fixed_s'], 's')} whatever the data, {growth}"

    def curve(self, row: dict[str, Any]) -> tuple[FloatArray, FloatArray]:
        """Line from no data to the target (B, s)."""
        sizes = np.array([0.0, row["data_bytes"]])
        return sizes, row["t_fixed_s"] + sizes / row["rate_bytes_s"]

    def axis(self) -> tuple[str, float]:
        """Label of the plot's abscissa, and its unit in bytes."""
        return "data (MB)", 1e6

    @classmethod
    def usual_keys(cls, runs: pd.DataFrame) -> list[str]:
        """Host, workload and how a job is set up, with the clock where it was set."""
        return with_clock(runs, [name for name in _BY if name in runs])

    @classmethod
    def learns(cls, values: FloatArray, target: float) -> NDArray[np.bool_]:
        """Smaller sizes alone."""
        return values < target

    @classmethod
    def fit(cls, rows: Rows, target: float) -> tuple[Steps, ExtentLine]:
        """Steps over 1/size (1/B)."""
        steps = Steps.of(rows.codes, 1 / rows.value, np.log(rows.time_s), rows.groups)
        return steps, fit_sizes(steps, target)

    @classmethod
    def found(cls, line: ExtentLine) -> dict[str, FloatArray]:
        """Parameters of each group."""
        rate = line.target / line.line.intercept
        return {"t_fixed_s": line.line.slope, "rate_bytes_s": rate}

    @classmethod
    def too_few(cls, target: float) -> str:
        """What to measure where no group can be projected."""
        return (
            f"no group has runs at two sizes below {shown(target, 'B')}: measure two or more, each "
            "several times"
        )

    @classmethod
    def caveats_of(cls, rows: pd.DataFrame) -> Iterable[str]:
        """What could mislead in the rows of a table."""
        bent = rows["lack_of_fit"] < LACK_OF_FIT
        if bent.any():
            yield (
                f"the smaller sizes of {int(bent.sum())} groups do not lie on one line (lack of "
                "fit): tasks come in whole waves, or a cache or buffer is outgrown; the interval "
                "does not say how that goes on"
            )
        reach = float((rows["data_bytes"] / rows["largest_bytes"]).max())
        if reach > _FAR:
            yield (
                f"the target is {shown(reach)} times the largest size measured: caches, memory and "
                "disks may end the line before it"
            )
        if few := int((rows["sizes"] < JUDGED).sum()):
            yield (
                f"{few} groups have two sizes, which show nothing of how straight their line is: "
                f"the interval takes sizes to lie {USUAL_MISS.share:.0%} off it or so, as other "
                "jobs' did; measure a third"
            )


def project_data_size(
    runs: pd.DataFrame,
    *,
    data_bytes: float | str,
    by: Sequence[str] | None = None,
    level: float = 0.90,
) -> DataSizeProjection:
    """Project the time of jobs to a data size, from runs with less data.

    Parameters
    ----------
    runs : pandas.DataFrame
        With ``data_bytes`` and ``time_s``. Runs with as much data as the target, or more, are not
        fitted; those at the target tell how good the projection is.
    data_bytes : float or str
        The target (B), or as "512MB".
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
    size = parse_quantity(data_bytes, "bytes") if isinstance(data_bytes, str) else data_bytes
    target = as_positive("data size (bytes)", size)
    return project_time(DataSizeProjection, runs, target, by, level)
