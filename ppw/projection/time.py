"""What projections of a job to more data and to other core counts share.

They are of the time, and over cores also of throughput, power, energy and perf/W. A subclass of
`TimeProjection` names what is projected over; `project_time` is the way from runs to its table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fitting.bayes.posterior import MeasuredSteps, lack_of_fit
from fitting.laws import scaling_average as scaling
from fitting.regression.lines import FloatArray, IntArray
from measurements import check_runs
from measurements.table.units import parse_quantity
from ppw.errors import PpwError
from ppw.projection.caveats import improbable
from ppw.results import axes, result as rs
from ppw.results.axes import Axes
from ppw.results.text import as_names, as_positive, as_share, key_texts, plot_label, shown
from ppw.runs import metrics as mt
from ppw.runs.groups import canonical, group_runs

if TYPE_CHECKING:
    from fitting.laws.scaling_average import LawAverage

# Usual scatter of ln(time) from run to run, until repeats have shown their own.
_USUAL = 0.02
# Values from which on a law can be judged.
JUDGED = 3
# Number of points of a drawn curve.
_POINTS = 60
# Targets this many times as far out as the last value measured are far.
_FAR_CORES, _FAR_DATA = 4.0, 8.0


class JobRuns(NamedTuple):
    """Runs as arrays."""

    codes: IntArray  # group of each
    value: FloatArray  # in the target's column
    time_s: FloatArray  # or another metric that scales
    groups: int
    family: scaling.Family


# Laws over cores of each metric, and the power of it that they are of: throughput and perf/W are
# reciprocals of the time of a unit of work and of its energy.
_OVER_CORES = {
    "time": (scaling.CORES, 1),
    "throughput": (scaling.CORES, -1),
    "power": (scaling.POWER, 1),
    "energy": (scaling.ENERGY, 1),
    "perf_per_watt": (scaling.ENERGY, -1),
}

_ANSWERS = """
    projected | @metric_unit [lower, upper] | projected | projection
    lower     | @metric_unit | | lower end of the interval for the mean of the runs at the target
    upper     | @metric_unit | | upper end of it
    measured  | @metric_unit | measured | mean of the runs at the target, which no fit has read
    error_pct | % | error    | (projected / measured - 1) in percent
"""


def time_table(target: str, found: str) -> tuple[rs.Table, ...]:
    """Declare the table of a time projection: columns of target, answers and parameters."""
    columns = f"{target.strip()}\n{_ANSWERS.strip()}\n{found.strip()}"
    show = {"error_pct": _error_text}
    return (rs.Table("table", columns, title="Projections", key="groups", most=10**9, show=show),)


def _error_text(row: rs.Row) -> str:
    """Write the error of a row with its sign and %; "–" where nothing was measured."""
    error = row["error_pct"]
    return "–" if error != error else f"{error:+.1f} %"


class Doubt(NamedTuple):
    """A caveat on rows of a table; its text may name their number and how far the target is."""

    text: str
    concerns: Callable[[pd.DataFrame], Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class TimeProjection(rs.Result):
    """Times, or another metric, projected to one target, a row a group.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a group: its keys, the target, the answers, what the fit found, and from how many
        runs.
    by : tuple of str
        Columns that tell groups apart.
    level : float
        Probability of the intervals.
    metric : str
        What is projected.
    """

    # Column of the target, its unit, how caveats call its values, and the heading of the report.
    target: ClassVar[str]
    unit: ClassVar[str]
    few: ClassVar[str]
    heading: ClassVar[str]
    # Label of the plot's abscissa, and its unit in the target's.
    abscissa: ClassVar[tuple[str, float]]
    # Columns of how many values were measured, the least and the greatest.
    measured_columns: ClassVar[tuple[str, str, str]]
    # Columns of parameters, which are those of a time.
    time_columns: ClassVar[tuple[str, ...]]
    # Columns that tell groups apart, and those that do unless they follow the target.
    keys: ClassVar[tuple[str, ...]]
    keys_unless_following: ClassVar[tuple[str, ...]] = ()
    # What to measure where no group can be projected, and what could mislead.
    remedy: ClassVar[str]
    doubts: ClassVar[tuple[Doubt, ...]]

    table: pd.DataFrame
    by: tuple[str, ...]
    level: float
    metric: str = "time"

    @property
    def metric_unit(self) -> str:
        """Unit of the metric."""
        return mt.METRICS[self.metric].unit

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
        for row in rs.rows_of(self.table):
            name = " ".join(key_texts(keys, row)) if len(self.table) > 1 else "the job"
            said.append(f"{name}: {self.law(row)}")
        if self.coverage is not None:
            count = int(self.table["covered"].notna().sum())
            what = "times" if self.metric == "time" else "values"
            said.append(f"{self.coverage:.0%} of {count} measured {what} are inside their interval")
        return said

    def title(self) -> str:
        """Heading of the report."""
        return self.heading.format(shown(self.table[self.target].iloc[0], self.unit))

    def law(self, row: dict[str, Any]) -> str:
        """Write the fitted law of a row's group in words. Subclasses define it."""
        raise NotImplementedError

    def curve(self, row: dict[str, Any]) -> tuple[FloatArray, FloatArray]:
        """Return points of a row's curve: target unit and s. Subclasses define it."""
        raise NotImplementedError

    def axis(self) -> tuple[str, float]:
        """Return the label of the plot's abscissa, and its unit as a multiple of the target's."""
        return self.abscissa

    @classmethod
    def usual_keys(cls, runs: pd.DataFrame) -> list[str]:
        """Columns that tell groups apart, with the core frequency where it was set."""
        names = [name for name in cls.keys if name in runs]
        loose = [name for name in cls.keys_unless_following if name in runs]
        names += [name for name in loose if not _follows(runs, name, cls.target)]
        # A frequency as it was found is a reading and no set-up.
        return [*names, "freq_hz"] if "freq_hz" in runs and "freq_source" not in runs else names

    @classmethod
    def learns(cls, values: FloatArray, target: float) -> NDArray[np.bool_]:
        """Mark the values to fit, of those that are not the target: by default all."""
        return np.ones(len(values), dtype=np.bool_)

    @classmethod
    def fit(cls, rows: JobRuns, target: float) -> tuple[MeasuredSteps, LawAverage]:
        """Aggregate runs to steps, and average the laws of each group."""
        steps = MeasuredSteps.of(rows.codes, rows.value, np.log(rows.time_s), rows.groups)
        cells = scaling.ScalingCells.of_steps(steps)
        return steps, scaling.average_laws(cells, target, family=rows.family)

    @classmethod
    def found(cls, fit: LawAverage) -> dict[str, Any]:
        """Name the parameters of each group."""
        return dict(zip(cls.time_columns, fit.line.T, strict=True))

    @classmethod
    def too_few(cls, target: float) -> str:
        """Say what to measure where no group can be projected."""
        return cls.remedy.format(shown(target, cls.unit))

    @classmethod
    def caveats_of(cls, rows: pd.DataFrame) -> Iterable[str]:
        """Yield each doubt about the table's rows, with the number of groups it concerns."""
        times = shown(float((rows[cls.target] / rows[cls.measured_columns[2]]).max()))
        for doubt in cls.doubts:
            if groups := int(doubt.concerns(rows).sum()):
                yield doubt.text.format(groups=groups, times=times)

    def _document_fields(self) -> dict[str, Any]:
        return {**super()._document_fields(), "coverage": self.coverage}

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw each group's curve, its interval at the target and what was measured there."""
        ax = axes.new_axes(ax)
        label, unit = self.axis()
        for row in rs.rows_of(self.table):
            x, y = self.curve(row)
            (line,) = ax.plot(x / unit, y)
            line.set_label(plot_label(" ".join(key_texts(self.printed_keys(), row))))
            at = row[self.target] / unit
            if row["lower"] == row["lower"]:
                ax.vlines(at, row["lower"], row["upper"], colors=line.get_color(), linewidth=4)
                ax.plot([at], [row["projected"]], "_k")
            if row["measured"] == row["measured"]:
                ax.plot([at], [row["measured"]], "o", color=line.get_color())
        ax.set_xlabel(label)
        ax.set_ylabel(f"{self.metric} ({self.metric_unit})")
        if self.printed_keys():
            ax.legend()
        return ax


P = TypeVar("P", bound=TimeProjection)


def project_time(
    kind: type[P],
    runs: pd.DataFrame,
    target: float,
    by: Sequence[str] | None,
    level: float,
    metric: str = "time",
) -> P:
    """Project a metric of every group of runs to a target of one kind, in its column's unit."""
    as_share("level", level)
    tidy = canonical(runs)
    names = kind.usual_keys(tidy) if by is None else as_names(by)
    asked = mt.METRICS[metric]
    columns = [c for c in mt.needed_columns([asked], tidy) if c != "freq_hz"]
    checked = check_runs(tidy, needed=[kind.target, *columns], by=names)
    groups = group_runs(checked, names)
    values, measured = checked[kind.target].to_numpy(dtype=np.float64), mt.values(asked, checked)
    family, power = (scaling.DATA, 1) if kind.target == "data_bytes" else _OVER_CORES[metric]
    rows = JobRuns(groups.codes, values, measured**power, len(groups), family)
    fitted = _fit_table(kind, rows, target, level, power)
    if metric != "time":
        # Parameters and the test of the line are of times.
        fitted[[*kind.time_columns, "lack_of_fit"]] = np.nan
    answered = fitted["projected"].notna()
    if not answered.any():
        raise PpwError(f"{runs.attrs.get('source', 'runs')}: {kind.too_few(target)}")
    found = fitted[answered]
    caveats = list(kind.caveats_of(found))
    if left := int((~answered).sum()):
        caveats.insert(0, f"{left} groups have runs at less than two {kind.few} and are left out")
    rs.warn_caveats(caveats)
    keys = groups.keys[answered.to_numpy()].reset_index(drop=True)
    table = found.drop(columns="lack_of_fit").reset_index(drop=True)
    return kind(
        table=pd.concat([keys, table], axis=1),
        by=tuple(names),
        level=float(level),
        metric=metric,
        caveats=tuple(caveats),
        input_digest=rs.numbers_digest(rs.frame_digest(runs), target, level),
    )


def _fit_table(
    kind: type[TimeProjection], rows: JobRuns, target: float, level: float, power: int
) -> pd.DataFrame:
    """Fit and project each group, to the ``power`` 1 or −1 of what laws are of; NaN for none."""
    known = ~np.isnan(rows.time_s)
    at = known & np.isclose(rows.value, target, rtol=1e-9, atol=0.0)
    # Runs at the target are compared with the projection, and not fitted.
    learns = known & kind.learns(rows.value, target) & ~at
    codes, values, times, groups, family = rows
    few = JobRuns(codes[learns], values[learns], times[learns], groups, family)
    steps, found = kind.fit(few, target)
    runs = pd.DataFrame({"value": values, "answer": times**power})
    tested = runs["answer"][at].groupby(codes[at]).agg(["mean", "size"]).reindex(range(groups))
    learnt = runs["value"][learns].groupby(codes[learns]).agg(["size", "min", "max"])
    learnt = learnt.reindex(range(groups)).astype(float)
    measured = tested["mean"].to_numpy(dtype=np.float64)
    ends = found.interval(level=level, repeats=tested["size"].fillna(1).to_numpy())
    lower, upper = np.sort(np.power(ends, power), axis=0)
    projected = found.target_time**power
    with np.errstate(invalid="ignore", divide="ignore"):
        covered = ((lower <= measured) & (measured <= upper)).astype(object)
        test = lack_of_fit(steps, usual=_USUAL)
        columns = kind.found(found)
    covered[np.isnan(lower) | np.isnan(measured)] = None
    counted, least, most = kind.measured_columns
    return pd.DataFrame(
        {
            kind.target: np.full(groups, target),
            "projected": projected,
            "lower": lower,
            "upper": upper,
            "measured": measured,
            "error_pct": 100 * (projected / measured - 1),
            **columns,
            "law": np.array(list(family.laws))[np.nan_to_num(found.weight).argmax(axis=0)],
            "law_weight": found.weight.max(axis=0),
            counted: steps.count.astype(float),
            "runs": learnt["size"],
            least: learnt["min"],
            most: learnt["max"],
            "covered": covered,
            "lack_of_fit": test.p_value,
        }
    )


def other_law(row: dict[str, Any], line: str) -> str:
    """Name the law of most weight where another than the line decides."""
    # Results of earlier versions had the line alone.
    law = row.get("law", line)
    return "" if law == line else f"; most weight: {law} law"


def _follows(runs: pd.DataFrame, name: str, target: str) -> bool:
    """Tell whether a column is a constant multiple of the target's column in all runs."""
    if target not in runs:
        return False
    ratio = (runs[name] / runs[target]).to_numpy(dtype=np.float64)
    return bool(np.ptp(runs[target]) > 0 and np.isclose(ratio, ratio[0], rtol=1e-6).all())


# `project_core_count`: the time of a job on a number of cores that was not measured.
#
#     T(n) = t_serial + t_parallel/n,    t_serial ≥ 0, t_parallel ≥ 0
#
# Amdahl's law and others, between and beyond the core counts measured, all at one core frequency,
# in an average (see `fitting.laws.scaling_average`). Where cores wait for each other, or share a
# memory or a socket that is full, times stop to fall or rise again, which fewer cores cannot tell.
# Energy has such laws too, and power is a sum of terms that rise.


@dataclass(frozen=True, kw_only=True, eq=False)
class CoreCountProjection(TimeProjection):
    """Times, or another metric, projected to one core count, a row a group."""

    kind = "core-count-projection"
    tables = time_table(
        "cores | 1 | cores | target",
        """
        t_serial_s   | s |  | time that no number of cores shortens, by Amdahl's law
        t_parallel_s | s |  | time on one core that all cores share, by Amdahl's law
        law          | text |  | law with the greatest weight
        law_weight   | 1 |  | its weight, from 0 to 1
        counts       | 1 |  | core counts that were fitted
        runs         | 1 |  | runs that were fitted
        fewest_cores | 1 |  | fewest cores fitted
        most_cores   | 1 |  | most cores fitted
        covered      | flag |  | whether the measured mean is inside the interval
        """,
    )
    target, unit, few, heading = "cores", "", "other core counts", "Projected to {} cores"
    abscissa = ("cores", 1.0)
    measured_columns = ("counts", "fewest_cores", "most_cores")
    time_columns = ("t_serial_s", "t_parallel_s")
    keys = ("host", "family", "workload", "data_bytes", "mode", "task_memory_bytes", "compression")
    # Columns that may say no more than how many cores there are.
    keys_unless_following = ("threads", "map_slots", "reduce_slots")
    remedy = (
        "no group has runs on two core counts other than {}: measure two or more at one frequency, "
        "each several times"
    )
    doubts = (
        Doubt(
            "the times of {groups} groups do not follow Amdahl's law (lack of fit): cores may wait "
            "for each other, or share a full memory or socket; the interval does not cover how "
            "this continues",
            lambda rows: improbable(rows["lack_of_fit"].to_numpy()),
        ),
        Doubt(
            "{groups} groups gain nothing from more cores: only Gunther's and Ernest's laws let "
            "times rise",
            lambda rows: rows["t_parallel_s"] <= 0,
        ),
        Doubt(
            "the target is {times} times the most cores measured: sockets, memory and locks may "
            "end the gain before it",
            lambda rows: rows["cores"] / rows["most_cores"] > _FAR_CORES,
        ),
        Doubt(
            "{groups} groups have two core counts, which cannot show how well a law holds: the "
            "interval comes from the errors of laws for other programs; measure a third",
            lambda rows: rows["counts"] < JUDGED,
        ),
    )

    def law(self, row: dict[str, Any]) -> str:
        """Write the serial and parallel time of a row, and the limit of its speed-up."""
        serial, parallel = row["t_serial_s"], row["t_parallel_s"]
        if self.metric != "time":
            return f"most weight: {row['law']} law"
        if not parallel > 0:
            return f"{shown(serial, 's')} on any number of cores"
        # A limit far beyond what was measured is not known.
        known = (serial + parallel) < _FAR_CORES * row["most_cores"] * serial
        limit = (
            f"at most {shown((serial + parallel) / serial)} times the speed of one core"
            if known
            else "no limit of the speed-up in sight"
        )
        text = f"{shown(serial, 's')} and {shown(parallel, 's')} over the cores; {limit}"
        return text + other_law(row, "amdahl")

    def curve(self, row: dict[str, Any]) -> tuple[FloatArray, FloatArray]:
        """Return cores and time (s) by Amdahl's law, over all that was measured or asked."""
        ends = row["fewest_cores"], max(row["most_cores"], row["cores"])
        # For another metric than the time this is NaN, and nothing is drawn.
        cores = np.geomspace(min(ends[0], row["cores"]), ends[1], _POINTS)
        return cores, row["t_serial_s"] + row["t_parallel_s"] / cores


def project_core_count(
    runs: pd.DataFrame,
    *,
    cores: float,
    metric: str = "time",
    by: Sequence[str] | None = None,
    level: float = 0.90,
) -> CoreCountProjection:
    """Project the time of jobs to a number of cores, from runs on other numbers of them.

    Parameters
    ----------
    runs : pandas.DataFrame
        With ``cores`` and the columns of the metric. Runs on the target's cores are not fitted;
        they tell how good the projection is.
    cores : float
        The target.
    metric : {"time", "throughput", "power", "energy", "perf_per_watt"}
        What to project.
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
    """
    if metric not in _OVER_CORES:
        raise PpwError(f"no projection of {metric!r} over cores: give {', '.join(_OVER_CORES)}")
    target = as_positive("cores", cores)
    return project_time(CoreCountProjection, runs, target, by, level, metric)


# `project_data_size`: the time of a job at a data size that was not measured, from smaller ones.
#
#     T(D) = t_fixed + D/rate,    t_fixed ≥ 0, rate > 0
#
# t_fixed is what a job takes whatever its data (starting Java, scheduling). The time is an average
# of this line and other laws, as over cores. Where data outgrow a cache, memory or a buffer the
# line ends, which no smaller size can tell.


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSizeProjection(TimeProjection):
    """Times projected to one data size, a row a group."""

    kind = "data-size-projection"
    tables = time_table(
        "data_bytes | B | data | target",
        """
        t_fixed_s      | s |  | time that does not grow with the data
        rate_bytes_s   | B/s or inf |  | data per second beyond it, inf where time does not grow
        law            | text |  | law with the greatest weight
        law_weight     | 1 |  | its weight, from 0 to 1
        sizes          | 1 |  | data sizes that were fitted
        runs           | 1 |  | runs that were fitted
        smallest_bytes | B |  | smallest data size fitted
        largest_bytes  | B |  | largest data size fitted
        covered        | flag |  | whether the measured mean is inside the interval
        """,
    )
    target, unit, few, heading = "data_bytes", "B", "smaller sizes", "Projected to {} of data"
    abscissa = ("data (MB)", 1e6)
    measured_columns = ("sizes", "smallest_bytes", "largest_bytes")
    time_columns = ("t_fixed_s", "rate_bytes_s")
    # Jobs that are set up otherwise are other groups.
    keys = (
        *("host", "family", "workload", "cores", "threads", "mode"),
        *("map_slots", "reduce_slots", "task_memory_bytes", "compression"),
    )
    remedy = "no group has runs at two sizes below {}: measure two or more, each several times"
    doubts = (
        Doubt(
            "the smaller sizes of {groups} groups do not lie on one line (lack of fit): tasks may "
            "run in whole waves, or the data outgrow a cache or buffer; the interval does not "
            "cover how this continues",
            lambda rows: improbable(rows["lack_of_fit"].to_numpy()),
        ),
        Doubt(
            "the target is {times} times the largest size measured: caches, memory and disks may "
            "end the line before it",
            lambda rows: rows["data_bytes"] / rows["largest_bytes"] > _FAR_DATA,
        ),
        Doubt(
            "{groups} groups have two sizes, which cannot show how straight their line is: the "
            "interval comes from the errors of laws for other jobs; measure a third",
            lambda rows: rows["sizes"] < JUDGED,
        ),
    )

    def law(self, row: dict[str, Any]) -> str:
        """Write the fixed time of a row, and the data it processes per second."""
        growth = (
            "and no more with more data"
            if np.isinf(row["rate_bytes_s"])
            else f"and 1 s for every {shown(row['rate_bytes_s'], 'B')}"
        )
        text = f"{shown(row['t_fixed_s'], 's')} whatever the data, {growth}"
        return text + other_law(row, "line")

    def curve(self, row: dict[str, Any]) -> tuple[FloatArray, FloatArray]:
        """Return sizes (B) and times (s) of the line from no data to the target."""
        sizes = np.array([0.0, row["data_bytes"]])
        return sizes, row["t_fixed_s"] + sizes / row["rate_bytes_s"]

    @classmethod
    def learns(cls, values: FloatArray, target: float) -> NDArray[np.bool_]:
        """Mark the sizes below the target, which alone are fitted."""
        return values < target

    @classmethod
    def fit(cls, rows: JobRuns, target: float) -> tuple[MeasuredSteps, LawAverage]:
        """Aggregate runs to steps by 1/size (1/B), and average the laws of each group."""
        # The test of lack of fit is of a line over 1/x.
        over = MeasuredSteps.of(rows.codes, 1 / rows.value, np.log(rows.time_s), rows.groups)
        return over, super().fit(rows, target)[1]

    @classmethod
    def found(cls, fit: LawAverage) -> dict[str, Any]:
        """Fixed time (s) and rate (B/s) of each group."""
        fixed, per_byte = fit.line.T
        return {"t_fixed_s": fixed, "rate_bytes_s": 1 / per_byte}


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
    """
    size = parse_quantity(data_bytes, "bytes") if isinstance(data_bytes, str) else data_bytes
    target = as_positive("data size (bytes)", size)
    return project_time(DataSizeProjection, runs, target, by, level)
