"""`path_lengths`: instructions per byte against cores and data size, from counted runs.

A path length is a property of a workload, shared by machines and families: its instructions are
those of the program, whoever executes them. Against cores it is PL(n) = a·ln(n) + b
(`fitting.laws.execution_time`); against the data size the instructions are a line, fixed + per
byte, so that the path length falls to the slope as the fixed part is spread over more data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.regression.lines import fit_points, student_quantile
from measurements import check_runs
from ppw.errors import PpwError
from ppw.projection.time import flat_ranges, flat_sentence
from ppw.results import caveats as cv
from ppw.results.arguments import as_share
from ppw.results.axes import CURVE, MEASURED, new_axes
from ppw.results.result import Result, Table, frame_digest, rows_of
from ppw.results.text import plot_label, shown
from ppw.runs.expressions import first_given
from ppw.runs.groups import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from matplotlib.axes import Axes

    from fitting.laws.estimators import LogPathLength
    from fitting.regression.lines import FloatArray
    from ppw.runs.expressions import Values


# Instructions of runs, and their fits against cores and data size.


COUNTED, EMULATED, ESTIMATED = "counted", "emulated", "estimated"
WITHOUT_NAME = "runs"


def with_instructions(runs: pd.DataFrame) -> pd.DataFrame:
    """Rows that tell instructions and data size, with ``per_byte`` and ``instructions_label``.

    The label is "counted" where the table has no column of that name. The instructions of a
    service, which are of a window of its load, become those of one operation.
    """
    missing = np.full(len(runs), np.nan)

    def column(name: str) -> FloatArray:
        return runs[name].to_numpy(dtype=np.float64) if name in runs else missing

    counted = ~np.isnan(column("instructions"))
    label = runs.get("instructions_label", pd.Series(COUNTED, index=runs.index)).fillna(COUNTED)
    with np.errstate(divide="ignore", invalid="ignore"):
        instructions = executed_instructions(column)
    found = runs.assign(
        instructions=instructions,
        instructions_label=label.where(counted, ESTIMATED),
        data_bytes=column("data_bytes"),
    )
    found = found[found["instructions"].gt(0) & found["data_bytes"].gt(0)]
    names = found.get("workload", pd.Series(WITHOUT_NAME, index=found.index))
    return found.assign(
        workload=names.fillna(WITHOUT_NAME).astype(str),
        cores=found.get("cores", pd.Series(np.nan, index=found.index)),
        per_byte=found["instructions"] / found["data_bytes"],
    )


def executed_instructions(column: Callable[[str], Values]) -> Values:
    """Compute instructions of each run, or of each operation of a service, where none are counted.

    ``column`` gives an array or an engine's column by name, of missing values where there is none.
    """
    seconds = first_given(
        column("command_user_s") + column("command_system_s"),
        column("task_clock_s"),
        column("server_user_s") + column("server_system_s"),
    )
    frequency = first_given(column("freq_achieved_hz"), column("freq_hz"))
    operations = first_given(column("throughput_ops_s") * column("window_s"), 1.0)
    return first_given(column("instructions"), seconds * frequency / column("cpi")) / operations


def mean_path_lengths(counted: pd.DataFrame) -> pd.DataFrame:
    """Mean instructions per byte by workload, cores and data size."""
    cells = counted.groupby(["workload", "cores", "data_bytes"], dropna=False, sort=True)
    table = cells.agg(
        runs=("per_byte", "size"),
        instructions_per_byte=("per_byte", "mean"),
        label=("instructions_label", lambda labels: "/".join(sorted(set(map(str, labels))))),
    ).reset_index()
    return table[PathLengths.tables[0].names]


def against_cores(counted: pd.DataFrame) -> pd.DataFrame:
    """Fit a·ln(n) + b to each workload and data size with two core counts or more."""
    from fitting.laws.estimators import LogPathLength

    rows = []
    known = counted[counted["cores"].notna()]
    for (workload, data), part in known.groupby(["workload", "data_bytes"], sort=True):
        if part["cores"].nunique() < 2:
            continue
        fit = LogPathLength(workload=str(workload))
        fit.fit(part[["cores"]].to_numpy(), part["per_byte"].to_numpy())
        errors = fit.standard_errors_
        rows.append(
            {
                "workload": workload,
                "data_bytes": data,
                "runs": len(part),
                **fit.parameters_,
                "a_error": errors["a"],
                "b_error": errors["b"],
                "scatter": _scatter(fit.model_fit_.line.variance[0], part["per_byte"]),
                "cores_from": fit.cores_[0],
                "cores_to": fit.cores_[1],
                "positive_up_to": fit.positive_up_to_,
            }
        )
    return pd.DataFrame(rows, columns=PathLengths.tables[1].names)


def against_data(counted: pd.DataFrame) -> pd.DataFrame:
    """Fit instructions = fixed + per byte·D to each workload and core count with two sizes."""
    rows = []
    for (workload, cores), part in counted.groupby(["workload", "cores"], dropna=False, sort=True):
        if part["data_bytes"].nunique() < 2:
            continue
        size = part["data_bytes"].to_numpy(dtype=np.float64)
        line = fit_points(size, part[["instructions"]].to_numpy(dtype=np.float64).T)
        fixed_error, per_byte_error = line.standard_errors()
        rows.append(
            {
                "workload": workload,
                "cores": cores,
                "runs": len(part),
                "fixed_instructions": float(line.intercept[0]),
                "instructions_per_byte": float(line.slope[0]),
                "fixed_error": float(fixed_error[0]),
                "per_byte_error": float(per_byte_error[0]),
                "scatter": _scatter(line.variance[0], part["instructions"]),
                "data_from_bytes": float(size.min()),
                "data_to_bytes": float(size.max()),
            }
        )
    return pd.DataFrame(rows, columns=PathLengths.tables[2].names)


def _scatter(variance: float, values: pd.Series[Any]) -> float:
    return float(np.sqrt(variance) / values.mean())


@dataclass(frozen=True, kw_only=True, eq=False)
class PathLengths(Result):
    """Path lengths of the workloads of a runs table.

    Attributes
    ----------
    points : pandas.DataFrame
        One row a workload, core count and data size.
    cores : pandas.DataFrame
        The curve a·ln(n) + b of each workload and data size that was run on two core counts or
        more.
    data : pandas.DataFrame
        The line fixed + per byte of each workload and core count that was run with two data sizes
        or more.
    flat : pandas.DataFrame
        Ranges of data sizes with nearly one throughput, as `ppw.projection.time.flat_ranges`.
    level : float
        Probability of the intervals in sentences.
    tolerance : float
        By how much throughput may vary in a flat range.
    caveats : tuple of str
    """

    kind = "path_lengths"
    tables = (
        Table(
            "points",
            """
            workload   | text  | workload | name of the workload
            cores      | 1     | cores    | cores
            data_bytes | B     | data     | data size
            runs       | count | runs     | number of runs
            instructions_per_byte | 1 | instructions a byte | mean
            label      | text  | how      | "counted", "emulated" or "estimated"
            """,
            title="Counts",
            most=10**9,
        ),
        Table(
            "cores",
            """
            workload   | text  | | name of the workload
            data_bytes | B     | | data size
            runs       | count | | number of runs
            a          | 1     | | instructions per byte and ln(cores)
            b          | 1     | | instructions per byte on one core
            a_error    | 1     | | standard error of `a`
            b_error    | 1     | | standard error of `b`
            scatter    | share | | residual standard deviation over the mean
            cores_from | 1     | | fewest cores
            cores_to   | 1     | | most cores
            positive_up_to | 1 or inf | | core count at which the curve reaches zero, or inf
            """,
        ),
        Table(
            "data",
            """
            workload   | text  | | name of the workload
            cores      | 1     | | cores
            runs       | count | | number of runs
            fixed_instructions    | 1 | | instructions whatever the data
            instructions_per_byte | 1 | | instructions per byte beyond them
            fixed_error    | 1 | | standard error of `fixed_instructions`
            per_byte_error | 1 | | standard error of `instructions_per_byte`
            scatter    | share | | residual standard deviation over the mean
            data_from_bytes | B | | smallest data size
            data_to_bytes   | B | | largest data size
            """,
        ),
        Table(
            "flat",
            """
            sizes           | count | | data sizes measured
            throughput_unit | text  | | unit of `throughput`
            flat_sizes      | 1     | | data sizes in the flat range
            flat_from_bytes | B     | | smallest of them
            flat_to_bytes   | B     | | largest of them
            throughput      | 1     | | mean throughput in the flat range
            spread          | share | | largest difference of two of them, over the mean
            """,
        ),
    )

    points: pd.DataFrame
    cores: pd.DataFrame
    data: pd.DataFrame
    flat: pd.DataFrame
    level: float
    tolerance: float

    def curve(self, workload: str, *, data_bytes: float | None = None) -> LogPathLength:
        """Curve of a workload against cores, for `ppw.project`.

        Parameters
        ----------
        workload : str
        data_bytes : float, optional
            At which data size, where it was fitted at several.

        Raises
        ------
        PpwError
            When there is none, or several.
        """
        from fitting.laws.estimators import LogPathLength

        fits = self.cores[self.cores["workload"] == workload]
        if data_bytes is not None:
            fits = fits[np.isclose(fits["data_bytes"], data_bytes)]
        if len(fits) != 1:
            sizes = ", ".join(shown(size, "B") for size in fits["data_bytes"])
            said = f"several ({sizes}): choose a data size" if len(fits) else "none"
            raise PpwError(f"curves of path length of {workload!r} against cores: {said}")
        row = fits.iloc[0]
        return LogPathLength.from_coefficients(
            a=float(row["a"]),
            b=float(row["b"]),
            cores=(float(row["cores_from"]), float(row["cores_to"])),
            workload=workload,
        )

    def to_frame(self) -> pd.DataFrame:
        """One row a fit: ``against`` "cores" or "data size", and the columns of both."""
        parts = [self.cores.assign(against="cores"), self.data.assign(against="data size")]
        columns = (name for table in self.tables[1:3] for name in table.names[1:])
        names = ["workload", "against", *dict.fromkeys(columns)]
        rows = [row for part in parts for row in part.to_dict(orient="records")]
        return pd.DataFrame(rows, columns=names)

    def verdict(self) -> list[str]:
        """Say the fits in sentences."""
        return [*map(self._cores_sentence, rows_of(self.cores)), *self._data_sentences()]

    def flat_sentences(self) -> list[str]:
        """Say the flat ranges in sentences."""
        by = list(self.flat.columns[: list(self.flat.columns).index("sizes")])
        return [flat_sentence(row, by) for row in rows_of(self.flat)]

    def text_parts(self) -> list[str]:
        """Return the fits, the points they rest on, and the flat ranges."""
        (points,) = self.printed_tables()
        return [*self.verdict(), *points.lines(), *self.flat_sentences()]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw instructions per byte against cores, or against data size where cores are one."""
        return plot_path_lengths(self, ax)

    def _cores_sentence(self, row: dict[str, Any]) -> str:
        size = (
            f" at {shown(row['data_bytes'], 'B')}" if row["data_bytes"] == row["data_bytes"] else ""
        )
        ends = f"{shown(row['cores_from'])} to {shown(row['cores_to'])}"
        zero = row["positive_up_to"]
        falls = f"; it reaches zero at {shown(zero)} cores" if np.isfinite(zero) else ""
        return (
            f"{row['workload']}{size}: {shown(row['a'])}·ln(n) + {shown(row['b'])} instructions a "
            f"byte on {ends} cores{falls}"
        )

    def _data_sentences(self) -> list[str]:
        said = []
        for row in rows_of(self.data):
            half = _half_width(row["per_byte_error"], row["runs"], self.level)
            within = f" ± {shown(half)}" if half == half else ""
            said.append(
                f"{row['workload']}{_on(row['cores'])}: {row['fixed_instructions']:.4g} "
                f"instructions and {shown(row['instructions_per_byte'])}{within} a byte, from "
                f"{shown(row['data_from_bytes'], 'B')} to {shown(row['data_to_bytes'], 'B')}"
            )
        return said


def path_lengths(
    runs: pd.DataFrame, *, level: float = 0.90, tolerance: float = 0.05
) -> PathLengths:
    """Fit path lengths to the runs of a table.

    Parameters
    ----------
    runs : pandas.DataFrame
        With ``data_bytes`` and ``instructions``; where a row has none, CPU seconds × frequency /
        CPI stands for them, labelled "estimated". CPU seconds are ``command_user_s`` and
        ``command_system_s``, or ``task_clock_s``, or those of a service's processes. Of a service
        the instructions of one operation are taken.
    level : float
        Of the intervals, inside (0, 1).
    tolerance : float
        By how much throughput may vary in a flat range, as a share.

    Returns
    -------
    PathLengths
        Path lengths of the workloads of a runs table.

    Raises
    ------
    MeasurementError
        For values that cannot be.
    PpwError
        When no run tells its instructions and its data size.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    as_share("level", level)
    if not tolerance > 0:
        raise PpwError(f"tolerance {tolerance!r} must be above 0; try 0.05")
    table = check_runs(canonical(runs), by=[])
    counted = with_instructions(table)
    source = str(runs.attrs.get("source", "runs"))
    if counted.empty:
        raise PpwError(
            f"{source}: no run has both instructions and data_bytes: measure with perf, or count "
            "with ppw run count --data SIZE"
        )
    result = PathLengths(
        points=mean_path_lengths(counted),
        cores=against_cores(counted),
        data=against_data(counted),
        flat=flat_ranges(table, tolerance=tolerance),
        level=float(level),
        tolerance=float(tolerance),
        caveats=tuple(_caveats(table, counted)),
        input_digest=frame_digest(runs),
    )
    caveats = [*result.caveats, *caveats_of_fits(result)]
    cv.warn(caveats)
    return PathLengths(**{**vars(result), "caveats": tuple(caveats)})


def _caveats(table: pd.DataFrame, counted: pd.DataFrame) -> Iterable[str]:
    labels = counted["instructions_label"].astype(str).value_counts()
    modes = set(counted["counted_modes"].dropna().astype(str)) if "counted_modes" in counted else ()
    return caveats_of_runs({str(k): int(v) for k, v in labels.items()}, sorted(modes), len(table))


def caveats_of_runs(labels: Mapping[str, int], modes: Sequence[str], rows: int) -> Iterator[str]:
    """Say what the instructions of runs are worth.

    Parameters
    ----------
    labels : mapping of str to int
        Runs that tell their instructions, by how these are known.
    modes : sequence of str
        Modes that they were counted in.
    rows : int
        How many runs there are in all.
    """
    used = sum(labels.values())
    for label, said in (
        (EMULATED, "counted under an emulator, in user mode only, on its own processor features"),
        (ESTIMATED, "CPU seconds × frequency / CPI and not counted, as good as that CPI is"),
    ):
        if some := labels.get(label, 0):
            yield f"instructions of {some} of {used} runs are {said}"
    if len(modes) > 1:
        yield (
            f"instructions were counted in {' and in '.join(modes)} mode: their path lengths "
            "are not comparable"
        )
    if left := rows - used:
        yield f"{left} of {rows} runs tell no instructions or no data size and take no part"


def caveats_of_fits(found: PathLengths) -> Iterator[str]:
    """Say which fits cannot hold everywhere."""
    for row in rows_of(found.cores):
        if np.isfinite(row["positive_up_to"]):
            yield (
                f"the path length of {row['workload']} falls to zero at "
                f"{shown(row['positive_up_to'])} cores, which no program's does: it holds on "
                f"{shown(row['cores_from'])} to {shown(row['cores_to'])} cores"
            )
    for row in rows_of(found.data):
        if row["fixed_instructions"] < 0:
            yield (
                f"the line of {row['workload']} begins below zero: its instructions grow faster "
                "than its data"
            )


def _on(cores: float) -> str:
    return "" if cores != cores else f" on {shown(cores)} core{'s' * (cores != 1)}"


def _half_width(error: float, runs: int, level: float) -> float:
    """Half width of the confidence interval of a line's coefficient; NaN without freedom."""
    quantile = student_quantile(np.array([max(runs - 2, 0)]), level)
    return float(quantile[0] * error)


_STEPS = 100
_MARKERS = "osD^vP"


def plot_path_lengths(result: PathLengths, ax: Axes | None = None) -> Axes:
    """Draw points and curves against cores, or against data size where no curve is of cores."""
    axes = new_axes(ax)
    against_cores = len(result.cores) > 0
    points = result.points
    column = "cores" if against_cores else "data_bytes"
    for place, (workload, part) in enumerate(points.groupby("workload", sort=True)):
        marker = _MARKERS[place % len(_MARKERS)]
        per_byte = part["instructions_per_byte"]
        axes.plot(
            part[column],
            per_byte,
            marker,
            color=MEASURED,
            ms=4,
            label=f"{plot_label(workload)}, runs",
        )
    if against_cores:
        for row in result.cores.to_dict(orient="records"):
            at = np.geomspace(row["cores_from"], row["cores_to"], _STEPS)
            axes.plot(at, row["a"] * np.log(at) + row["b"], color=CURVE)
        axes.set_xlabel("cores")
    else:
        for row in result.data.to_dict(orient="records"):
            at = np.geomspace(row["data_from_bytes"], row["data_to_bytes"], _STEPS)
            axes.plot(
                at, row["fixed_instructions"] / at + row["instructions_per_byte"], color=CURVE
            )
        axes.set_xscale("log")
        axes.set_xlabel("data size (B)")
    axes.set_ylabel("instructions per byte")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return axes
