"""`path_lengths`: instructions per byte against cores and data size, from counted runs.

A path length is a property of a workload, shared by machines and families: its instructions are
those of the program, whoever executes them. Against cores it is PL(n) = a·ln(n) + b
(`fitting.laws.execution_time`); against the data size the instructions are a line, fixed + per
byte, so that the path length falls to the slope as the fixed part is spread over more data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
from ppw.results.result import (
    as_floats,
    frame_digest,
    read_document,
    reads_document,
    records,
    write_document,
)
from ppw.results.text import plot_label, shown, summary_text, text_table
from ppw.runs.groups import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matplotlib.axes import Axes

    from fitting.laws.estimators import LogPathLength


# Instructions of runs, and their fits against cores and data size.


COUNTED, EMULATED, ESTIMATED = "counted", "emulated", "estimated"
WITHOUT_NAME = "runs"
CORES_COLUMNS = (
    *("workload", "data_bytes", "runs", "a", "b", "a_error", "b_error", "scatter"),
    *("cores_from", "cores_to", "positive_up_to"),
)
DATA_COLUMNS = (
    *("workload", "cores", "runs", "fixed_instructions", "instructions_per_byte"),
    *("fixed_error", "per_byte_error", "scatter", "data_from_bytes", "data_to_bytes"),
)
POINT_COLUMNS = ("workload", "cores", "data_bytes", "runs", "instructions_per_byte", "label")


def with_instructions(runs: pd.DataFrame) -> pd.DataFrame:
    """Rows that tell instructions and data size, with ``per_byte`` and ``instructions_label``.

    The label is "counted" where the table has no column of that name. The instructions of a
    service, which are of a window of its load, become those of one operation.
    """
    missing = pd.Series(np.nan, index=runs.index)

    def column(name: str) -> pd.Series[Any]:
        return runs[name].astype(np.float64) if name in runs else missing

    counted = column("instructions")
    seconds = column("command_user_s") + column("command_system_s")
    of_servers = column("server_user_s") + column("server_system_s")
    for other in (column("task_clock_s"), of_servers):
        seconds = seconds.where(seconds.notna(), other)
    clock = column("freq_achieved_hz").where(column("freq_achieved_hz").notna(), column("freq_hz"))
    estimated = seconds * clock / column("cpi")
    operations = (column("throughput_ops_s") * column("window_s")).fillna(1.0)
    label = runs.get("instructions_label", pd.Series(COUNTED, index=runs.index)).fillna(COUNTED)
    found = runs.assign(
        instructions=counted.where(counted.notna(), estimated) / operations,
        instructions_label=label.where(counted.notna(), ESTIMATED),
        data_bytes=column("data_bytes"),
    )
    found = found[found["instructions"].gt(0) & found["data_bytes"].gt(0)]
    names = found.get("workload", pd.Series(WITHOUT_NAME, index=found.index))
    return found.assign(
        workload=names.fillna(WITHOUT_NAME).astype(str),
        cores=found.get("cores", pd.Series(np.nan, index=found.index)),
        per_byte=found["instructions"] / found["data_bytes"],
    )


def mean_path_lengths(counted: pd.DataFrame) -> pd.DataFrame:
    """Mean instructions per byte by workload, cores and data size."""
    cells = counted.groupby(["workload", "cores", "data_bytes"], dropna=False, sort=True)
    table = cells.agg(
        runs=("per_byte", "size"),
        instructions_per_byte=("per_byte", "mean"),
        label=("instructions_label", lambda labels: "/".join(sorted(set(map(str, labels))))),
    ).reset_index()
    return table[list(POINT_COLUMNS)]


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
    return pd.DataFrame(rows, columns=list(CORES_COLUMNS))


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
    return pd.DataFrame(rows, columns=list(DATA_COLUMNS))


def _scatter(variance: float, values: pd.Series[Any]) -> float:
    return float(np.sqrt(variance) / values.mean())


_TEXTS = {"workload", "label", "throughput_unit", "host", "family"}


@dataclass(frozen=True, kw_only=True, eq=False)
class PathLengths:
    """Path lengths of the workloads of a runs table.

    Attributes
    ----------
    points : pandas.DataFrame
        Mean instructions per byte of each workload, core count and data size: ``workload``,
        ``cores``, ``data_bytes``, ``runs``, ``instructions_per_byte``, ``label`` ("counted",
        "emulated" or "estimated").
    cores : pandas.DataFrame
        The curve a·ln(n) + b of each workload and data size that was run on two core counts or
        more: coefficients and their standard errors (instructions per byte), ``scatter`` (residual
        standard deviation, as a share of the mean), the range of cores and ``positive_up_to``, the
        core count at which it reaches zero (inf where it never does).
    data : pandas.DataFrame
        The line fixed + per byte of each workload and core count that was run with two data sizes
        or more: ``fixed_instructions`` and ``instructions_per_byte`` with standard errors,
        ``scatter`` and the range of sizes (B).
    flat : pandas.DataFrame
        Ranges of data sizes with nearly one throughput, as `ppw.projection.time.flat_ranges`.
    level : float
        Of the intervals in words.
    tolerance : float
        By how much throughput may vary in a flat range.
    caveats : tuple of str
    """

    points: pd.DataFrame
    cores: pd.DataFrame
    data: pd.DataFrame
    flat: pd.DataFrame
    level: float
    tolerance: float
    caveats: tuple[str, ...]
    input_digest: str = field(repr=False, compare=False)

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
        names = ["workload", "against", *dict.fromkeys([*CORES_COLUMNS[1:], *DATA_COLUMNS[1:]])]
        rows = [row for part in parts for row in part.to_dict(orient="records")]
        return pd.DataFrame(rows, columns=names)

    def verdict(self) -> list[str]:
        """Say the fits in sentences."""
        return [*map(self._cores_sentence, _rows(self.cores)), *self._data_sentences()]

    def flat_sentences(self) -> list[str]:
        """Say the flat ranges in sentences."""
        by = list(self.flat.columns[: list(self.flat.columns).index("sizes")])
        return [flat_sentence(row, by) for row in _rows(self.flat)]

    def summary(self) -> str:
        """Text: the fits, the points they rest on, the flat ranges and the caveats."""
        lines = [*self.verdict(), text_table(self.header(), self.cells())]
        return summary_text([*lines, *self.flat_sentences()], self.caveats)

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return ["workload", "cores", "data", "runs", "instructions a byte", "how"]

    def cells(self) -> list[list[str]]:
        """The points as they are printed."""
        return [
            [
                str(row["workload"]),
                shown(row["cores"]),
                shown(row["data_bytes"], "B"),
                str(row["runs"]),
                shown(row["instructions_per_byte"]),
                str(row["label"]),
            ]
            for row in _rows(self.points)
        ]

    def to_json(self) -> str:
        """JSON document with ``schema_version``."""
        tables = {name: records(getattr(self, name)) for name in _TABLES}
        columns = {name: list(getattr(self, name).columns) for name in _TABLES}
        rest = {"level": self.level, "tolerance": self.tolerance, "caveats": self.caveats}
        return write_document(
            "path_lengths", self.input_digest, {**rest, **tables, "columns": columns}
        )

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> PathLengths:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        d = read_document(text, "path_lengths")
        tables = {
            name: as_floats(
                pd.DataFrame(d[name], columns=d["columns"][name]), but={*_TEXTS, "runs", "sizes"}
            )
            for name in _TABLES
        }
        ends = tables["cores"]["positive_up_to"]
        tables["cores"]["positive_up_to"] = ends.fillna(np.inf)
        return cls(
            **tables,
            level=d["level"],
            tolerance=d["tolerance"],
            caveats=tuple(d["caveats"]),
            input_digest=d["input_digest"],
        )

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
        for row in _rows(self.data):
            half = _half_width(row["per_byte_error"], row["runs"], self.level)
            within = f" ± {shown(half)}" if half == half else ""
            said.append(
                f"{row['workload']}{_on(row['cores'])}: {row['fixed_instructions']:.4g} "
                f"instructions and {shown(row['instructions_per_byte'])}{within} a byte, from "
                f"{shown(row['data_from_bytes'], 'B')} to {shown(row['data_to_bytes'], 'B')}"
            )
        return said


_TABLES = ("points", "cores", "data", "flat")


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
    for row in _rows(found.cores):
        if np.isfinite(row["positive_up_to"]):
            yield (
                f"the path length of {row['workload']} falls to zero at "
                f"{shown(row['positive_up_to'])} cores, which no program's does: it holds on "
                f"{shown(row['cores_from'])} to {shown(row['cores_to'])} cores"
            )
    for row in _rows(found.data):
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


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in table.to_dict(orient="records")]


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
