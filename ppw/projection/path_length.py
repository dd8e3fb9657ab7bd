"""`path_lengths`: instructions per byte against cores and data size, from counted runs.

A path length is a property of a workload, shared by machines and families: its instructions are
those of the program, whoever executes them. Against cores it is PL(n) = a·ln(n) + b
(`fitting.laws.execution_time`); against the data size the instructions are a line, fixed + per
byte, so that the path length falls to the slope as the fixed part is spread over more data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.laws.execution_time import positive_up_to
from fitting.regression import lines
from measurements import check_runs, identity_columns
from ppw.errors import PpwError
from ppw.results import axes
from ppw.results.axes import Axes
from ppw.results.result import Result, Table, frame_digest, rows_of, warn_caveats
from ppw.results.text import as_share, key_texts, plot_label, shown
from ppw.runs import groups as gr

if TYPE_CHECKING:
    from fitting.laws.estimators import LogPathLength

COUNTED, EMULATED, ESTIMATED = "counted", "emulated", "estimated"
WITHOUT_NAME = "runs"
NOTHING_COUNTED = (
    "no run has both instructions and data_bytes: measure with perf, or count with ppw run count "
    "--data SIZE"
)
# Points of a drawn curve, and the markers of the workloads.
_STEPS, _MARKERS = 100, "osD^vP"


def with_instructions(runs: pd.DataFrame) -> pd.DataFrame:
    """Keep rows with instructions and data size; add ``per_byte`` and the label of counting.

    The label is "counted" where the table has no column of that name. The instructions of a
    service, which are of a window of its load, become those of one operation.
    """
    missing = np.full(len(runs), np.nan)

    def column_or_nan(name: str) -> lines.FloatArray:
        return runs[name].to_numpy(dtype=np.float64) if name in runs else missing

    counted = ~np.isnan(column_or_nan("instructions"))
    label = runs.get("instructions_label", pd.Series(COUNTED, index=runs.index)).fillna(COUNTED)
    with np.errstate(divide="ignore", invalid="ignore"):
        instructions = executed_instructions(column_or_nan)
    found = runs.assign(
        instructions=instructions,
        instructions_label=label.where(counted, ESTIMATED),
        data_bytes=column_or_nan("data_bytes"),
    )
    found = found[found["instructions"].gt(0) & found["data_bytes"].gt(0)]
    names = found.get("workload", pd.Series(WITHOUT_NAME, index=found.index))
    return found.assign(
        workload=names.fillna(WITHOUT_NAME).astype(str),
        cores=found.get("cores", pd.Series(np.nan, index=found.index)),
        per_byte=found["instructions"] / found["data_bytes"],
    )


def executed_instructions(column: Callable[[str], gr.Values]) -> gr.Values:
    """Instructions of a run, or operation of a service: counted, else CPU time × f / CPI."""
    seconds = gr.first_given(
        column("command_user_s") + column("command_system_s"),
        column("task_clock_s"),
        column("server_user_s") + column("server_system_s"),
    )
    frequency = gr.first_given(column("freq_achieved_hz"), column("freq_hz"))
    operations = gr.first_given(column("throughput_ops_s") * column("window_s"), 1.0)
    return gr.first_given(column("instructions"), seconds * frequency / column("cpi")) / operations


def fit_cells(cells: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Make the tables ``points``, ``cores`` and ``data`` of `PathLengths` from cells of runs.

    A cell has ``workload``, ``cores``, ``data_bytes``, ``instructions_label``, its number of
    ``runs``, and of ``per_byte`` and ``instructions`` the mean and the sum of squared deviations
    (``per_byte__mean``, ``per_byte__m2`` …). A single run is a cell too.
    """
    weighted = cells.assign(sum=cells["runs"] * cells["per_byte__mean"])
    points = weighted.groupby(["workload", "cores", "data_bytes"], dropna=False, sort=True).agg(
        runs=("runs", "sum"),
        sum=("sum", "sum"),
        label=("instructions_label", lambda labels: "/".join(sorted(set(map(str, labels))))),
    )
    points["instructions_per_byte"] = points["sum"] / points["runs"]
    made = (points.reset_index(), _against_cores(cells), _against_data(cells))
    return {t.name: table[t.names] for t, table in zip(PathLengths.tables, made, strict=False)}


def _against_cores(cells: pd.DataFrame) -> pd.DataFrame:
    """Fit a·ln(n) + b to each workload and data size with two core counts or more."""
    known = cells[cells["cores"].notna()]
    logarithm = np.log(known["cores"].to_numpy(dtype=np.float64))
    found, line = _fit_lines(known, ["workload", "data_bytes"], "cores", logarithm, "per_byte")
    b_error, a_error = line.standard_errors()
    zero = [positive_up_to(a, b) for a, b in zip(line.slope, line.intercept, strict=True)]
    parameters = {"a": line.slope, "b": line.intercept, "a_error": a_error, "b_error": b_error}
    found = found.assign(**parameters, positive_up_to=zero)[found["several"]]
    return found.rename(columns={"least": "cores_from", "most": "cores_to"})


def _against_data(cells: pd.DataFrame) -> pd.DataFrame:
    """Fit instructions = fixed + per byte·D to each workload and core count with two sizes."""
    size = cells["data_bytes"].to_numpy(dtype=np.float64)
    found, line = _fit_lines(cells, ["workload", "cores"], "data_bytes", size, "instructions")
    fixed_error, per_byte_error = line.standard_errors()
    found = found.assign(
        fixed_instructions=line.intercept,
        instructions_per_byte=line.slope,
        fixed_error=fixed_error,
        per_byte_error=per_byte_error,
    )[found["several"]]
    return found.rename(columns={"least": "data_from_bytes", "most": "data_to_bytes"})


def _fit_lines(
    cells: pd.DataFrame, keys: list[str], against: str, x: lines.FloatArray, name: str
) -> tuple[pd.DataFrame, lines.LineFit]:
    """Fit a line to each group of cells; return keys, runs, range and scatter, and the lines."""
    groups = cells.groupby(keys, dropna=False, sort=True)
    codes = np.asarray(groups.ngroup(), dtype=np.int64)
    mean, squares = (cells[f"{name}__{of}"].to_numpy(dtype=np.float64) for of in ("mean", "m2"))
    each = lines.Repeats(cells["runs"].to_numpy(dtype=np.int64), mean, squares)
    line = lines.fit_repeats(codes, x, each, int(codes.max(initial=-1)) + 1)
    table = groups.agg(
        runs=("runs", "sum"),
        different=(against, "nunique"),
        least=(against, "min"),
        most=(against, "max"),
    ).reset_index()
    with np.errstate(invalid="ignore"):
        scatter = np.sqrt(line.variance) / line.moments.mean_y
    return table.assign(scatter=scatter, several=table["different"] > 1), line


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
        Ranges of data sizes with nearly one throughput, as `flat_ranges`.
    level : float
        Probability of the intervals in sentences.
    tolerance : float
        By how much throughput may vary in a flat range.
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
            instructions_per_byte | 1 | instructions per byte | mean
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
            flat_sizes      | 1     | | data sizes in the flat range
            flat_from_bytes | B     | | smallest of them
            flat_to_bytes   | B     | | largest of them
            throughput      | 1     | | mean throughput in the flat range
            throughput_unit | text  | | unit of `throughput`
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
        said = []
        for row in rows_of(self.cores):
            size = row["data_bytes"]
            at = f" at {shown(size, 'B')}" if size == size else ""
            zero = row["positive_up_to"]
            falls = f"; it reaches zero at {shown(zero)} cores" if np.isfinite(zero) else ""
            said.append(
                f"{row['workload']}{at}: {shown(row['a'])}·ln(n) + {shown(row['b'])} instructions "
                f"a byte on {shown(row['cores_from'])} to {shown(row['cores_to'])} cores{falls}"
            )
        # Two points determine the line of a group and leave nothing to judge it by.
        freedom = np.maximum(self.data["runs"].to_numpy(dtype=np.int64) - 2, 0)
        half_widths = lines.student_quantile(freedom, self.level) * self.data["per_byte_error"]
        for row, half in zip(rows_of(self.data), half_widths, strict=True):
            cores = row["cores"]
            on = "" if cores != cores else f" on {shown(cores)} core{'s' * (cores != 1)}"
            within = f" ± {shown(half)}" if half == half else ""
            said.append(
                f"{row['workload']}{on}: {row['fixed_instructions']:.4g} "
                f"instructions and {shown(row['instructions_per_byte'])}{within} a byte, from "
                f"{shown(row['data_from_bytes'], 'B')} to {shown(row['data_to_bytes'], 'B')}"
            )
        return said

    def flat_sentences(self) -> list[str]:
        """Say for each group where throughput is flat over data size, or that it is not."""
        by = list(self.flat.columns[: list(self.flat.columns).index("sizes")])
        said = []
        for row in rows_of(self.flat):
            name, sizes = " ".join(key_texts(by, row)) or "runs", row["sizes"]
            flat = f"throughput changes from each of {sizes} data sizes to the next"
            if row["flat_sizes"] == row["flat_sizes"]:
                # A rate of bytes prints without a prefix of its unit.
                bare = row["throughput_unit"] == "B/s"
                rate = shown(row["throughput"], "" if bare else row["throughput_unit"])
                flat = (
                    f"throughput is flat from {shown(row['flat_from_bytes'], 'B')} to "
                    f"{shown(row['flat_to_bytes'], 'B')}, {rate}{' B/s' * bare} within "
                    f"{row['spread']:.1%} ({row['flat_sizes']:.0f} of {sizes} sizes)"
                )
            said.append(f"{name}: {flat}")
        return said

    def text_parts(self) -> list[str]:
        """Return the fits, the points they rest on, and the flat ranges."""
        (points,) = self.printed_tables()
        return [*self.verdict(), *points.lines(), *self.flat_sentences()]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw instructions per byte against cores, or against data size where cores are one."""
        ax, by_cores = axes.new_axes(ax), len(self.cores) > 0
        column = "cores" if by_cores else "data_bytes"
        for place, (workload, part) in enumerate(self.points.groupby("workload", sort=True)):
            (runs,) = ax.plot(part[column], part["instructions_per_byte"], color=axes.MEASURED)
            runs.set(marker=_MARKERS[place % len(_MARKERS)], ls="", ms=4)
            runs.set_label(f"{plot_label(workload)}, runs")
        for row in rows_of(self.cores if by_cores else self.data):
            ends = ("cores_from", "cores_to") if by_cores else ("data_from_bytes", "data_to_bytes")
            at = np.geomspace(row[ends[0]], row[ends[1]], _STEPS)
            if by_cores:
                curve = row["a"] * np.log(at) + row["b"]
            else:
                curve = row["fixed_instructions"] / at + row["instructions_per_byte"]
            ax.plot(at, curve, color=axes.CURVE)
        ax.set_xscale("linear" if by_cores else "log")
        ax.set(xlabel="cores" if by_cores else "data size (B)", ylabel="instructions per byte")
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False)
        return ax


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

    Raises
    ------
    MeasurementError
        For values that cannot be.
    PpwError
        When no run tells its instructions and its data size.
    """
    check_options(level, tolerance)
    table = check_runs(gr.canonical(runs), by=[])
    counted = with_instructions(table)
    if counted.empty:
        raise PpwError(f"{runs.attrs.get('source', 'runs')}: {NOTHING_COUNTED}")
    # Each run is a cell of its own.
    cells = counted.assign(runs=1, per_byte__m2=0.0, instructions__m2=0.0)
    for name in ("per_byte", "instructions"):
        cells[f"{name}__mean"] = counted[name]
    result = answer_cells(cells, table, len(table), level, tolerance, frame_digest(runs))
    warn_caveats(result.caveats)
    return result


def check_options(level: float, tolerance: float) -> None:
    """Raise `PpwError` for a level or a tolerance that cannot be."""
    as_share("level", level)
    if not tolerance > 0:
        raise PpwError(f"tolerance {tolerance!r} must be above 0; try 0.05")


def answer_cells(
    cells: pd.DataFrame, rates: pd.DataFrame, rows: int, level: float, tolerance: float, digest: str
) -> PathLengths:
    """Fit path lengths to the cells of ``rows`` runs, and find flat ranges over data size."""
    tables = fit_cells(cells)
    labels = {str(k): int(n) for k, n in cells.groupby("instructions_label")["runs"].sum().items()}
    modes = set(cells["counted_modes"].dropna().astype(str)) if "counted_modes" in cells else ()
    caveats = (*_run_caveats(labels, sorted(modes), rows), *_fit_caveats(**tables))
    return PathLengths(
        **tables,
        flat=flat_ranges(rates, tolerance=tolerance),
        level=float(level),
        tolerance=float(tolerance),
        caveats=caveats,
        input_digest=digest,
    )


def _run_caveats(labels: Mapping[str, int], modes: Sequence[str], rows: int) -> Iterator[str]:
    """Caveats on instructions that were emulated, estimated, of other modes or missing."""
    used = sum(labels.values())
    for label, said in (
        (EMULATED, "counted under an emulator, in user mode only, on its own processor features"),
        (
            ESTIMATED,
            "estimated as CPU seconds × frequency / CPI, not counted, so only as accurate as "
            "that CPI",
        ),
    ):
        if some := labels.get(label, 0):
            yield f"instructions of {some} of {used} runs are {said}"
    if len(modes) > 1:
        yield (
            f"instructions were counted in {' and in '.join(modes)} mode: their path lengths "
            "are not comparable"
        )
    if left := rows - used:
        yield f"{left} of {rows} runs lack instructions or the data size and are left out"


def _fit_caveats(points: pd.DataFrame, cores: pd.DataFrame, data: pd.DataFrame) -> Iterator[str]:
    """Caveats on path lengths that fall to zero, and on lines that begin below zero."""
    for row in rows_of(cores):
        if np.isfinite(row["positive_up_to"]):
            yield (
                f"the path length of {row['workload']} falls to zero at "
                f"{shown(row['positive_up_to'])} cores, which is impossible: use it only from "
                f"{shown(row['cores_from'])} to {shown(row['cores_to'])} cores"
            )
    for row in rows_of(data):
        if row["fixed_instructions"] < 0:
            yield (
                f"the line of {row['workload']} is below zero for small data, because its "
                "instructions grow faster than its data"
            )


# The range of data sizes in which throughput does not depend on them. Inside it the work per byte
# is constant, and one run tells of all others; below it start-up shows, above it caches, memory or
# disks do. Published as Figures 3 and 4 of Issa & Figueira (2012),
# https://doi.org/10.1186/2192-113X-1-10.


def widest_flat_range(
    sizes: lines.FloatArray, throughput: lines.FloatArray, *, tolerance: float
) -> tuple[int, int, float] | None:
    """Find the range of sizes, ascending, with the greatest ratio, whose throughputs differ little.

    The highest is at most 1 + ``tolerance`` times the lowest. Returns the places of its first and
    last size, and the difference as a share of the lowest; None where no two neighbours agree.
    """
    best, reach = None, 0.0
    for first, last in combinations(range(len(sizes)), 2):
        part = throughput[first : last + 1]
        spread = float(part.max() / part.min() - 1)
        # Of two that reach as far the larger data: there start-up shows least.
        if spread <= tolerance and sizes[last] / sizes[first] >= reach:
            best, reach = (first, last, spread), float(sizes[last] / sizes[first])
    return best


def flat_ranges(runs: pd.DataFrame, *, tolerance: float) -> pd.DataFrame:
    """Find the flat range of each group of a runs table that differs in its data size alone.

    Throughput is ``throughput_ops_s`` where measured, else bytes per second. Runs of a service at
    less than full load take no part. Returns key columns and those of ``PathLengths.flat``, a row
    for each group with two data sizes or more; flat columns are missing where no two neighbouring
    sizes agree.
    """
    keys = [c for c in (*identity_columns(runs), "freq_hz") if c in runs and c != "data_bytes"]
    columns = [*keys, *PathLengths.tables[3].names]
    if "data_bytes" not in runs:
        return pd.DataFrame(columns=columns)
    points = _points_at_full_load(runs)
    rows: list[dict[str, Any]] = []
    for key, part in points.groupby(keys, dropna=False, sort=True) if keys else [((), points)]:
        service = part["service"].any()
        means = part[part["service"] == service].groupby("data_bytes")["rate"].mean()
        if len(means) < 2:
            continue
        row: dict[str, Any] = {"sizes": len(means), "throughput_unit": "1/s" if service else "B/s"}
        at, rate = (np.asarray(a, dtype=np.float64) for a in (means.index, means))
        if found := widest_flat_range(at, rate, tolerance=tolerance):
            first, last, spread = found
            row |= {"flat_sizes": last + 1 - first, "spread": spread}
            row |= {"flat_from_bytes": float(at[first]), "flat_to_bytes": float(at[last])}
            row["throughput"] = float(means.iloc[first : last + 1].mean())
        rows.append(dict(zip(keys, key, strict=True)) | row)
    return pd.DataFrame(rows, columns=columns)


def _points_at_full_load(runs: pd.DataFrame) -> pd.DataFrame:
    """Full-load rows with data size and rate: throughput, else bytes per second."""
    missing = pd.Series(np.nan, index=runs.index)
    rate = runs.get("throughput_ops_s", missing)
    by_time = runs["data_bytes"] / runs.get("time_s", missing)
    load = runs.get("load", missing)
    table = runs.assign(service=rate.notna(), rate=rate.where(rate.notna(), by_time))
    # Where the full load is marked, rows without a mark are of a client that was too small.
    unmarked = load.isna() & ~(table["service"] & bool(load.notna().any()))
    full = unmarked | (load - 1.0).abs().le(1e-9)
    return table.loc[full & table["rate"].gt(0) & table["data_bytes"].gt(0)]
