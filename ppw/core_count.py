"""`project_core_count`: the time of a job on a number of cores that was not measured.

    T(n) = t_serial + t_parallel/n,    t_serial ≥ 0, t_parallel ≥ 0

Amdahl's law, between and beyond the core counts measured, all at one clock. Intervals allow for
counts that lie off the law, as far as those of other programs did (see `fitting.laws.cores`).
Where cores wait for each other, or share a memory or a socket that is full, times stop to fall or
rise again, which fewer cores cannot tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fitting.bayes.steps import Steps
from fitting.laws.cores import USUAL_MISS, fit_cores
from ppw.arguments import as_positive
from ppw.estimate import shown
from ppw.time_projection import JUDGED, LACK_OF_FIT, TimeProjection, project_time, with_clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from fitting.laws.data_size import ExtentLine
    from fitting.regression.lines import FloatArray
    from ppw.time_projection import Rows

_BY = ("host", "family", "workload", "data_bytes", "mode", "task_memory_bytes", "compression")
# Columns that may say no more than how many cores there are.
_PER_CORE = ("threads", "map_slots", "reduce_slots")
_FAR = 4.0
_POINTS = 60


@dataclass(frozen=True, kw_only=True, eq=False)
class CoreCountProjection(TimeProjection):
    """Times projected to one core count, a row a group.

    Attributes
    ----------
    table : pandas.DataFrame
        The group's keys; ``cores`` (the target); ``projected``, ``lower`` and ``upper`` (s;
        prediction interval for the mean of the runs at the target, or of one run); ``measured``
        (s, mean of the runs at the target, which no fit has read; NaN without any),
        ``error_pct`` and ``covered``; ``t_serial_s`` and ``t_parallel_s``; how many ``counts`` of
        cores and ``runs`` were fitted, from ``fewest_cores`` to ``most_cores``.
    by : tuple of str
        Columns of the keys.
    level : float
        Of the intervals.
    caveats : tuple of str
    """

    kind: ClassVar[str] = "core-count-projection"
    target: ClassVar[str] = "cores"
    unit: ClassVar[str] = "1"
    word: ClassVar[str] = "cores"
    few: ClassVar[str] = "other core counts"
    found_columns: ClassVar[tuple[str, ...]] = ("t_serial_s", "t_parallel_s")
    measured_columns: ClassVar[tuple[str, str, str]] = ("counts", "fewest_cores", "most_cores")

    def title(self) -> str:
        """Heading of the report."""
        return f"Projected to {shown(self.table['cores'].iloc[0])} cores"

    def law(self, row: dict[str, Any]) -> str:
        """What was fitted to the group of a row, in words."""
        serial, parallel = row["t_serial_s"], row["t_parallel_s"]
        if not parallel > 0:
            return f"{shown(serial, 's')} on any number of cores"
        # A limit far beyond what was measured is not known.
        known = (serial + parallel) < _FAR * row["most_cores"] * serial
        limit = (
            f"at most {shown((serial + parallel) / serial)} times the speed of one core"
            if known
            else "no limit of the speed-up in sight"
        )
        return f"{shown(serial, 's')} and {shown(parallel, 's')} over the cores; {limit}"

    def curve(self, row: dict[str, Any]) -> tuple[FloatArray, FloatArray]:
        """Amdahl's law from the fewest cores to the most that were measured or asked for."""
        ends = row["fewest_cores"], max(row["most_cores"], row["cores"])
        cores = np.geomspace(min(ends[0], row["cores"]), ends[1], _POINTS)
        return cores, row["t_serial_s"] + row["t_parallel_s"] / cores

    def axis(self) -> tuple[str, float]:
        """Label of the plot's abscissa, and its unit in cores."""
        return "cores", 1.0

    @classmethod
    def usual_keys(cls, runs: pd.DataFrame) -> list[str]:
        """Host, workload, data and how a job is set up, with the clock where it was set."""
        names = [name for name in _BY if name in runs]
        names += [name for name in _PER_CORE if name in runs and not _follows(runs, name)]
        return with_clock(runs, names)

    @classmethod
    def fit(cls, rows: Rows, target: float) -> tuple[Steps, ExtentLine]:
        """Steps over cores."""
        steps = Steps.of(rows.codes, rows.value, np.log(rows.time_s), rows.groups)
        return steps, fit_cores(steps, target)

    @classmethod
    def found(cls, line: ExtentLine) -> dict[str, FloatArray]:
        """Parameters of each group (s)."""
        # The extent is a core's part of the work, 1/n.
        parallel = line.line.intercept / line.target
        return {"t_serial_s": line.line.slope, "t_parallel_s": parallel}

    @classmethod
    def too_few(cls, target: float) -> str:
        """What to measure where no group can be projected."""
        return (
            f"no group has runs on two core counts other than {shown(target)}: measure two or "
            "more at one clock, each several times"
        )

    @classmethod
    def caveats_of(cls, rows: pd.DataFrame) -> Iterable[str]:
        """What could mislead in the rows of a table."""
        bent = rows["lack_of_fit"] < LACK_OF_FIT
        if bent.any():
            yield (
                f"the times of {int(bent.sum())} groups do not follow Amdahl's law (lack of fit): "
                "cores wait for each other, or share a full memory or socket; the interval does "
                "not say how that goes on"
            )
        if slower := int((rows["t_parallel_s"] <= 0).sum()):
            yield (
                f"{slower} groups gain nothing from more cores: where their times rise, Amdahl's "
                "law does not go along"
            )
        reach = float((rows["cores"] / rows["most_cores"]).max())
        if reach > _FAR:
            yield (
                f"the target is {shown(reach)} times the most cores measured: sockets, memory and "
                "locks may end the gain before it"
            )
        if few := int((rows["counts"] < JUDGED).sum()):
            yield (
                f"{few} groups have two core counts, which show nothing of how well Amdahl's law "
                f"holds: the interval takes counts to lie {USUAL_MISS.share:.0%} off it or so, as "
                "other programs' did; measure a third"
            )


def project_core_count(
    runs: pd.DataFrame,
    *,
    cores: float,
    by: Sequence[str] | None = None,
    level: float = 0.90,
) -> CoreCountProjection:
    """Project the time of jobs to a number of cores, from runs on other numbers of them.

    Parameters
    ----------
    runs : pandas.DataFrame
        With ``cores`` and ``time_s``. Runs on the target's cores are not fitted; they tell how
        good the projection is.
    cores : float
        The target.
    by : sequence of str, optional
        Columns that tell groups apart; by default host, family, workload, data, how a job is set
        up, threads where they are not so many a core, and the clock where it was set.
    level : float
        Of the intervals, inside (0, 1).

    Returns
    -------
    CoreCountProjection

    Raises
    ------
    MeasurementError
        For values that cannot be.
    PpwError
        When no group has runs on two other core counts.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    return project_time(CoreCountProjection, runs, as_positive("cores", cores), by, level)


def _follows(runs: pd.DataFrame, name: str) -> bool:
    """Whether a column is the same multiple of the cores in all runs."""
    if "cores" not in runs:
        return False
    ratio = (runs[name] / runs["cores"]).to_numpy(dtype=np.float64)
    return bool(np.ptp(runs["cores"]) > 0 and np.isclose(ratio, ratio[0], rtol=1e-6).all())
