"""What projections of the time of a job to more data and to other core counts share.

A subclass of `TimeProjection` names what is projected over and has its law; `project_time` is the
way from runs to its table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from fitting.bayes.posterior import MeasuredSteps, lack_of_fit
from fitting.laws.cores import USUAL_MISS as USUAL_CORES_MISS
from fitting.laws.cores import fit_cores
from fitting.laws.data_size import USUAL_MISS as USUAL_SIZE_MISS
from fitting.laws.data_size import fit_sizes
from measurements import check_runs
from measurements.table.checks import identity_columns
from measurements.table.units import parse_quantity
from ppw.errors import PpwError
from ppw.results import caveats as cv
from ppw.results.arguments import as_names, as_positive, as_share
from ppw.results.result import Result, Row, Table, frame_digest, numbers_digest, rows_of
from ppw.results.text import key_texts, plot_label, shown
from ppw.runs.groups import canonical, group_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fitting.laws.data_size import ExtentLine
    from fitting.regression.lines import FloatArray, IntArray


# Usual scatter of ln(time) from run to run, until repeats have shown their own.
_USUAL = 0.02
LACK_OF_FIT = 0.01
# Values from which on a law can be judged.
JUDGED = 3


class JobRuns(NamedTuple):
    """Runs as arrays: the group of each, its value of the target's column, its time (s)."""

    codes: IntArray
    value: FloatArray
    time_s: FloatArray
    groups: int

    def take(self, mask: NDArray[np.bool_]) -> JobRuns:
        """The runs of a mask."""
        return JobRuns(self.codes[mask], self.value[mask], self.time_s[mask], self.groups)

    def means(self) -> tuple[FloatArray, FloatArray]:
        """Mean time of each group, NaN without runs, and how many there are."""
        count = np.bincount(self.codes, minlength=self.groups).astype(float)
        with np.errstate(invalid="ignore"):
            return np.bincount(self.codes, self.time_s, self.groups) / count, count

    def extreme(self, choose: np.ufunc, start: float) -> FloatArray:
        """Least or greatest value of each group, NaN without runs."""
        found = np.full(self.groups, start)
        choose.at(found, self.codes, self.value)
        return np.where(np.isinf(found), np.nan, found)


_ANSWERS = """
    projected | s [lower, upper] | projected | projected time
    lower     | s |          | lower end of the interval for the mean of the runs at the target
    upper     | s |          | upper end of it
    measured  | s | measured | mean of the runs at the target, which no fit has read
    error_pct | % | error    | (projected / measured - 1) in percent
"""


def time_table(target: str, found: str) -> tuple[Table, ...]:
    """Declare the table of a projection of times: the target, the answers, and what was found."""
    columns = f"{target.strip()}\n{_ANSWERS.strip()}\n{found.strip()}"
    return (
        Table(
            "table",
            columns,
            title="Projected times",
            key="groups",
            most=10**9,
            show={"error_pct": _error_text},
        ),
    )


def _error_text(row: Row) -> str:
    error = row["error_pct"]
    return "–" if error != error else f"{error:+.1f} %"


@dataclass(frozen=True, kw_only=True, eq=False)
class TimeProjection(Result):
    """Times projected to one target, a row a group.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a group: its keys, the target, the answers, what the fit found, and from how many
        runs.
    by : tuple of str
        Columns that tell groups apart.
    level : float
        Probability of the intervals.
    caveats : tuple of str
    """

    # Column of the target, and how caveats call its values.
    target: ClassVar[str]
    few: ClassVar[str]
    # Columns of how many values were measured, the least and the greatest.
    measured_columns: ClassVar[tuple[str, str, str]]

    table: pd.DataFrame
    by: tuple[str, ...]
    level: float

    @property
    def coverage(self) -> float | None:
        """Share of the groups measured at the target whose mean is inside its interval."""
        covered = self.table["covered"].dropna()
        return float(covered.astype(float).mean()) if len(covered) else None

    def text_parts(self) -> list[str]:
        """Return the table, then the verdict."""
        return [*self.printed_tables()[0].lines(), *self.verdict()]

    def printed_keys(self) -> list[str]:
        """Columns that tell the groups of this table apart."""
        return [name for name in self.by if len(self.table[name].unique()) > 1] or list(self.by[:1])

    def verdict(self) -> list[str]:
        """Say the fits in sentences."""
        keys, said = self.printed_keys(), []
        for row in rows_of(self.table):
            name = " ".join(key_texts(keys, row)) if len(self.table) > 1 else "the job"
            said.append(f"{name}: {self.law(row)}")
        if self.coverage is not None:
            count = int(self.table["covered"].notna().sum())
            said.append(f"{self.coverage:.0%} of {count} measured times are inside their interval")
        return said

    def title(self) -> str:
        """Heading of the report."""
        raise NotImplementedError

    def law(self, row: dict[str, Any]) -> str:
        """What was fitted to the group of a row, in words."""
        raise NotImplementedError

    def curve(self, row: dict[str, Any]) -> tuple[FloatArray, FloatArray]:
        """Points of the curve of a row, in the target's unit and s."""
        raise NotImplementedError

    def axis(self) -> tuple[str, float]:
        """Label of the plot's abscissa, and its unit in the target's."""
        raise NotImplementedError

    @classmethod
    def usual_keys(cls, runs: pd.DataFrame) -> list[str]:
        """Columns that tell groups apart."""
        raise NotImplementedError

    @classmethod
    def learns(cls, values: FloatArray, target: float) -> NDArray[np.bool_]:
        """Which values are fitted, of those that are not the target: all."""
        return np.ones(len(values), dtype=np.bool_)

    @classmethod
    def fit(cls, rows: JobRuns, target: float) -> tuple[MeasuredSteps, ExtentLine]:
        """Steps of the runs and the line of each group."""
        raise NotImplementedError

    @classmethod
    def found(cls, line: ExtentLine) -> dict[str, FloatArray]:
        """Parameters of each group."""
        raise NotImplementedError

    @classmethod
    def too_few(cls, target: float) -> str:
        """What to measure where no group can be projected."""
        raise NotImplementedError

    @classmethod
    def caveats_of(cls, rows: pd.DataFrame) -> Iterable[str]:
        """What could mislead in the rows of a table, with their P-value of ``lack_of_fit``."""
        raise NotImplementedError

    def _body(self) -> dict[str, Any]:
        return {**super()._body(), "coverage": self.coverage}

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw each group's curve, its interval at the target and what was measured there."""
        from ppw.results.axes import new_axes

        ax = new_axes(ax)
        label, unit = self.axis()
        for row in rows_of(self.table):
            x, y = self.curve(row)
            (line,) = ax.plot(x / unit, y)
            line.set_label(plot_label(" ".join(key_texts(self.printed_keys(), row))))
            at = row[self.target] / unit
            if row["lower"] == row["lower"]:
                ax.vlines(at, row["lower"], row["upper"], colors=line.get_color(), linewidth=4)
            if row["measured"] == row["measured"]:
                ax.plot([at], [row["measured"]], "o", color=line.get_color())
        ax.set_xlabel(label)
        ax.set_ylabel("time (s)")
        if self.printed_keys():
            ax.legend()
        return ax


P = TypeVar("P", bound=TimeProjection)


def project_time(
    kind: type[P], runs: pd.DataFrame, target: float, by: Sequence[str] | None, level: float
) -> P:
    """Project the time of every group of runs to a target of one kind.

    Parameters
    ----------
    kind : subclass of TimeProjection
    runs : pandas.DataFrame
        With the column of the target and ``time_s``.
    target : float
        Above 0, in the column's unit.
    by : sequence of str or None
        Columns that tell groups apart; None for the usual ones of this kind.
    level : float
        Of the intervals, inside (0, 1).

    Raises
    ------
    MeasurementError
        For values that cannot be.
    PpwError
        When no group can be projected.
    """
    as_share("level", level)
    tidy = canonical(runs)
    names = kind.usual_keys(tidy) if by is None else as_names(by)
    checked = check_runs(tidy, needed=[kind.target, "time_s"], by=names)
    groups = group_runs(checked, names)
    values, times = (checked[c].to_numpy(dtype=np.float64) for c in (kind.target, "time_s"))
    fitted = _fit_table(kind, JobRuns(groups.codes, values, times, len(groups)), target, level)
    answered = fitted["projected"].notna()
    if not answered.any():
        raise PpwError(f"{runs.attrs.get('source', 'runs')}: {kind.too_few(target)}")
    rows = fitted[answered]
    caveats = list(kind.caveats_of(rows))
    if left := int((~answered).sum()):
        caveats.insert(0, f"{left} groups have runs at less than two {kind.few} and are left out")
    cv.warn(caveats)
    keys = groups.keys[answered.to_numpy()].reset_index(drop=True)
    table = rows.drop(columns="lack_of_fit").reset_index(drop=True)
    return kind(
        table=pd.concat([keys, table], axis=1),
        by=tuple(names),
        level=float(level),
        caveats=tuple(caveats),
        input_digest=numbers_digest(frame_digest(runs), target, level),
    )


def _fit_table(
    kind: type[TimeProjection], rows: JobRuns, target: float, level: float
) -> pd.DataFrame:
    """Columns of the table, one row a group; NaN where it cannot be projected."""
    at = np.isclose(rows.value, target, rtol=1e-9, atol=0.0)
    learnt = rows.take(kind.learns(rows.value, target) & ~at)
    steps, found = kind.fit(learnt, target)
    measured, measured_runs = rows.take(at).means()
    lower, upper = found.interval(level=level, repeats=np.maximum(measured_runs, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        covered = ((lower <= measured) & (measured <= upper)).astype(object)
        test = lack_of_fit(steps, usual=_USUAL)
        columns = kind.found(found)
    covered[np.isnan(lower) | np.isnan(measured)] = None
    counted, least, most = kind.measured_columns
    return pd.DataFrame(
        {
            kind.target: np.full(rows.groups, target),
            "projected": found.target_time,
            "lower": lower,
            "upper": upper,
            "measured": measured,
            "error_pct": 100 * (found.target_time / measured - 1),
            **columns,
            counted: steps.count.astype(float),
            "runs": np.bincount(learnt.codes, minlength=rows.groups).astype(float),
            least: learnt.extreme(np.minimum, np.inf),
            most: learnt.extreme(np.maximum, -np.inf),
            "covered": covered,
            "lack_of_fit": test.p_value,
        }
    )


def with_clock(runs: pd.DataFrame, names: list[str]) -> list[str]:
    """Add the clock where it was set; as it was found, it is a reading and no set-up."""
    return [*names, "freq_hz"] if "freq_hz" in runs and "freq_source" not in runs else names


# `project_core_count`: the time of a job on a number of cores that was not measured.
#
#     T(n) = t_serial + t_parallel/n,    t_serial ≥ 0, t_parallel ≥ 0
#
# Amdahl's law, between and beyond the core counts measured, all at one clock. Intervals allow for
# counts that lie off the law, as far as those of other programs did (see `fitting.laws.cores`).
# Where cores wait for each other, or share a memory or a socket that is full, times stop to fall or
# rise again, which fewer cores cannot tell.


_CORES_BY = ("host", "family", "workload", "data_bytes", "mode", "task_memory_bytes", "compression")
# Columns that may say no more than how many cores there are.
_PER_CORE = ("threads", "map_slots", "reduce_slots")
_FAR_CORES = 4.0
_POINTS = 60


@dataclass(frozen=True, kw_only=True, eq=False)
class CoreCountProjection(TimeProjection):
    """Times projected to one core count, a row a group."""

    kind = "core-count-projection"
    tables = time_table(
        "cores | 1 | cores | target",
        """
        t_serial_s   | s |  | time that no number of cores shortens
        t_parallel_s | s |  | time on one core that all cores share
        counts       | 1 |  | core counts that were fitted
        runs         | 1 |  | runs that were fitted
        fewest_cores | 1 |  | fewest cores fitted
        most_cores   | 1 |  | most cores fitted
        covered      | flag |  | whether the measured mean is inside the interval
        """,
    )
    target: ClassVar[str] = "cores"
    few: ClassVar[str] = "other core counts"
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
        known = (serial + parallel) < _FAR_CORES * row["most_cores"] * serial
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
        names = [name for name in _CORES_BY if name in runs]
        names += [name for name in _PER_CORE if name in runs and not _follows(runs, name)]
        return with_clock(runs, names)

    @classmethod
    def fit(cls, rows: JobRuns, target: float) -> tuple[MeasuredSteps, ExtentLine]:
        """Steps over cores."""
        steps = MeasuredSteps.of(rows.codes, rows.value, np.log(rows.time_s), rows.groups)
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
        if reach > _FAR_CORES:
            yield (
                f"the target is {shown(reach)} times the most cores measured: sockets, memory and "
                "locks may end the gain before it"
            )
        if few := int((rows["counts"] < JUDGED).sum()):
            yield (
                f"{few} groups have two core counts, which show nothing of how well Amdahl's law "
                f"holds: the interval takes counts to lie {USUAL_CORES_MISS.share:.0%} off it or "
                "so, as other programs' did; measure a third"
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


# `project_data_size`: the time of a job at a data size that was not measured, from smaller ones.
#
#     T(D) = t_fixed + D/rate,    t_fixed ≥ 0, rate > 0
#
# t_fixed is what a job takes whatever its data (starting Java, scheduling), and rate the data that
# it gets through in a second once it runs. Intervals allow for sizes that lie off the line, as far
# as those of other jobs did (see `fitting.laws.data_size`). Where data outgrow a cache, memory or a
# buffer the line ends, which no smaller size can tell.


# What tells groups apart beside the data size: jobs that are set up otherwise are others.
_DATA_BY = (
    *("host", "family", "workload", "cores", "threads", "mode"),
    *("map_slots", "reduce_slots", "task_memory_bytes", "compression"),
)
_FAR_DATA = 8.0


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSizeProjection(TimeProjection):
    """Times projected to one data size, a row a group."""

    kind = "data-size-projection"
    tables = time_table(
        "data_bytes | B | data | target",
        """
        t_fixed_s      | s |  | time that does not grow with the data
        rate_bytes_s   | B/s or inf |  | data per second beyond it, inf where time does not grow
        sizes          | 1 |  | data sizes that were fitted
        runs           | 1 |  | runs that were fitted
        smallest_bytes | B |  | smallest data size fitted
        largest_bytes  | B |  | largest data size fitted
        covered        | flag |  | whether the measured mean is inside the interval
        """,
    )
    target: ClassVar[str] = "data_bytes"
    few: ClassVar[str] = "smaller sizes"
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
        return with_clock(runs, [name for name in _DATA_BY if name in runs])

    @classmethod
    def learns(cls, values: FloatArray, target: float) -> NDArray[np.bool_]:
        """Smaller sizes alone."""
        return values < target

    @classmethod
    def fit(cls, rows: JobRuns, target: float) -> tuple[MeasuredSteps, ExtentLine]:
        """Steps over 1/size (1/B)."""
        steps = MeasuredSteps.of(rows.codes, 1 / rows.value, np.log(rows.time_s), rows.groups)
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
        if reach > _FAR_DATA:
            yield (
                f"the target is {shown(reach)} times the largest size measured: caches, memory and "
                "disks may end the line before it"
            )
        if few := int((rows["sizes"] < JUDGED).sum()):
            yield (
                f"{few} groups have two sizes, which show nothing of how straight their line is: "
                f"the interval takes sizes to lie {USUAL_SIZE_MISS.share:.0%} off it or so, as "
                "other jobs' did; measure a third"
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


# The range of data sizes in which throughput does not depend on them.
#
# Inside it the work per byte is constant, and one run tells of all others; below it start-up shows,
# above it caches, memory or disks do. Published as Figures 3 and 4 of Issa & Figueira (2012),
# https://doi.org/10.1186/2192-113X-1-10.


FLAT_COLUMNS = (
    *("sizes", "flat_sizes", "flat_from_bytes", "flat_to_bytes"),
    *("throughput", "throughput_unit", "spread"),
)


class FlatRange(NamedTuple):
    """Neighbouring data sizes with nearly one throughput.

    Attributes
    ----------
    first, last : int
        Places of the smallest and the largest of them among all sizes.
    spread : float
        Highest less lowest throughput, as a share of the lowest.
    """

    first: int
    last: int
    spread: float


def widest_flat_range(
    sizes: FloatArray, throughput: FloatArray, *, tolerance: float
) -> FlatRange | None:
    """Find the neighbouring sizes that reach furthest with throughputs within a tolerance.

    Parameters
    ----------
    sizes : (points,) float array
        Ascending, above 0.
    throughput : (points,) float array
        At each size, above 0.
    tolerance : float
        Highest over lowest throughput less 1, at most.

    Returns
    -------
    FlatRange or None
        That with the greatest ratio of its sizes; None where no two neighbours agree.
    """
    best: FlatRange | None = None
    reach = 0.0
    for first in range(len(sizes)):
        for last in range(first + 1, len(sizes)):
            part = throughput[first : last + 1]
            spread = float(part.max() / part.min() - 1)
            # Of two that reach as far the larger data: there start-up shows least.
            if spread <= tolerance and sizes[last] / sizes[first] >= reach:
                best, reach = FlatRange(first, last, spread), float(sizes[last] / sizes[first])
    return best


def flat_ranges(runs: pd.DataFrame, *, tolerance: float) -> pd.DataFrame:
    """Find the flat range of each group of a runs table that differs in its data size alone.

    Parameters
    ----------
    runs : pandas.DataFrame
        Canonical columns. Throughput is ``throughput_ops_s`` where measured, else bytes a second.
        Runs of a service at less than full load take no part.
    tolerance : float

    Returns
    -------
    pandas.DataFrame
        Key columns and `FLAT_COLUMNS`; a row for each group with two data sizes or more. The flat
        columns are missing where no two neighbouring sizes agree.
    """
    keys = [c for c in (*identity_columns(runs), "freq_hz") if c in runs and c != "data_bytes"]
    if "data_bytes" not in runs:
        return pd.DataFrame(columns=[*keys, *FLAT_COLUMNS])
    points = _points(runs)
    rows: list[dict[str, Any]] = []
    groups = points.groupby(keys, dropna=False, sort=True) if keys else [((), points)]
    for key, part in groups:
        unit = "1/s" if part["service"].any() else "B/s"
        alike = part[part["service"] == part["service"].any()]
        means = alike.groupby("data_bytes")["rate"].mean().sort_index()
        if len(means) < 2:
            continue
        found = widest_flat_range(
            means.index.to_numpy(dtype=np.float64),
            means.to_numpy(dtype=np.float64),
            tolerance=tolerance,
        )
        names = dict(zip(keys, key, strict=True))
        rows.append(
            {**names, "sizes": len(means), "throughput_unit": unit, **_flat_columns(means, found)}
        )
    return pd.DataFrame(rows, columns=[*keys, *FLAT_COLUMNS])


def _points(runs: pd.DataFrame) -> pd.DataFrame:
    """Rows with a data size and a throughput, at full load."""
    missing = pd.Series(np.nan, index=runs.index)
    rate = runs.get("throughput_ops_s", missing)
    by_time = runs["data_bytes"] / runs.get("time_s", missing)
    load = runs.get("load", missing)
    table = runs.assign(service=rate.notna(), rate=rate.where(rate.notna(), by_time))
    # Where the full load is marked, rows without a mark are of a client that was too small.
    unmarked = load.isna() & ~(table["service"] & bool(load.notna().any()))
    full = unmarked | (load - 1.0).abs().le(1e-9)
    return table.loc[full & table["rate"].gt(0) & table["data_bytes"].gt(0)]


def _flat_columns(means: pd.Series[Any], found: FlatRange | None) -> dict[str, Any]:
    if found is None:
        return {}
    inside = means.iloc[found.first : found.last + 1]
    return {
        "flat_sizes": len(inside),
        "flat_from_bytes": float(inside.index[0]),
        "flat_to_bytes": float(inside.index[-1]),
        "throughput": float(inside.mean()),
        "spread": found.spread,
    }


def flat_sentence(row: dict[str, Any], by: Sequence[str]) -> str:
    """Say a row of `flat_ranges` in words."""
    from ppw.results.text import key_texts, shown

    name = " ".join(key_texts(by, row)) or "runs"
    if row["flat_sizes"] != row["flat_sizes"]:
        return f"{name}: throughput changes from each of {row['sizes']} data sizes to the next"
    unit = row["throughput_unit"]
    rate = shown(row["throughput"], unit if unit != "B/s" else "") + " B/s" * (unit == "B/s")
    return (
        f"{name}: throughput is flat from {shown(row['flat_from_bytes'], 'B')} to "
        f"{shown(row['flat_to_bytes'], 'B')}, {rate} within {row['spread']:.1%} "
        f"({row['flat_sizes']:.0f} of {row['sizes']} sizes)"
    )
