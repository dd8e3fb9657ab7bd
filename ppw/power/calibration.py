"""`calibrate`: what a meter would have read, by a sensor that is always there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.regression.errors_in_both import CalibrationLine, SensorCalibration, calibrate_sensor
from fitting.regression.lines import FloatArray
from measurements import check_runs, identity_columns
from measurements.errors import MeasurementError
from measurements.power.energy import POWER_SUFFIX, column_stem, power_column
from measurements.table import checks, headers, schema
from ppw.errors import PpwError, UnknownColumnError
from ppw.results.axes import BAND, CURVE, MEASURED, PROJECTED, Axes, new_axes
from ppw.results.result import PrintedTable, Result, Table, frame_digest, rows_of, warn_caveats
from ppw.results.text import as_names, key_texts, plot_label, shown
from ppw.runs import groups

# P-value below which a bend is said; one good calibration in a hundred is called bent.
_BENT = 0.01
# Student's t (90 %) is 2.9 with 2 degrees of freedom and 2.4 with 3, against 1.6 with many.
_FEW_DEGREES = 3
# Sources whose watts are part of what a meter or a BMC sees.
_PARTS = ("rapl", "nvml")
_WHOLES = ("meter", "ipmi", "redfish")


def refuse_unrelated(line: CalibrationLine, sensor: str, reference: str, level: float) -> None:
    """Raise `PpwError` where the interval of the slope includes zero or less."""
    # Where zero is inside the interval, the line tells nothing of the reference.
    lower, upper = line.slope_interval(level)
    if lower <= 0:
        raise PpwError(
            f"{reference} does not clearly increase with {sensor}: slope {shown(line.slope)} "
            f"({level:.0%} interval {shown(lower)} … {shown(upper)}): check that both are of this "
            "host and that their clocks agree, and measure more levels from idle to full load"
        )


def find_caveats(fit: SensorCalibration, sensor: str, reference: str, level: float) -> list[str]:
    """Caveats of the line: few levels, no repeats, curvature, and what cannot be physically."""
    found = []
    if fit.line.degrees_of_freedom < _FEW_DEGREES:
        found.append(
            f"{len(fit.levels.runs)} load levels only, so intervals are wide: measure more loads "
            "between idle and full; more repeats hardly help"
        )
    if (fit.levels.runs == 1).all():
        found.append(
            f"no load level was repeated, so the noise of {sensor} is not known, and ppw assumes "
            "none. The slope may then be too small; measure with --repeats"
        )
    if fit.curvature_p < _BENT:
        way = "steeper" if fit.curvature > 0 else "flatter"
        found.append(
            f"the levels do not lie on a straight line but on one that gets {way} (P = "
            f"{fit.curvature_p:.1g}): a power supply's losses bend it; calibrate over the loads "
            "that matter only"
        )
    return found + _physical(fit.line, sensor, reference, level)


def outlier_caveats(table: pd.DataFrame, by: Sequence[str]) -> list[str]:
    """Caveat that names the levels far off the line of the others; none without outliers."""
    rows = rows_of(_with_frequency_texts(table[table["outlier"]], by))
    if not rows:
        return []
    named = [
        f"{', '.join(key_texts(by, row)) or shown(row['sensor_w'], 'W')} "
        f"({row['residual_w']:+.3g} W)"
        for row in rows
    ]
    return [
        "these levels are far off the line of the others, but are in the fit: "
        f"{headers.list_names(named)}: check that both sensors measured these whole runs"
    ]


def _with_frequency_texts(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Replace the frequencies of levels by texts with a unit, if levels have one."""
    texts = [shown(freq, "Hz") for freq in table["freq_hz"]] if "freq_hz" in by else None
    return table if texts is None else table.assign(freq_hz=texts)


def _physical(line: CalibrationLine, sensor: str, reference: str, level: float) -> list[str]:
    """Caveats on a slope below 1 or an offset below 0, where the reference includes the sensor."""
    # A meter at the plug sees the processor's power and more, so it rises by at least as much.
    inside = sensor.startswith(_PARTS) and reference.startswith(_WHOLES)
    found = []
    if inside and line.slope_interval(level)[1] < 1:
        found.append(
            f"{reference} rises by less than {sensor}, which it contains: check that runs are "
            "longer than the reference's window, and that the clocks agree"
        )
    if inside and line.offset_interval(level)[1] < 0:
        found.append(
            f"{reference} would be below zero where {sensor} is zero: the true line bends below "
            "the lowest level; do not use it there"
        )
    return found


# The power of a source in a runs table, found by the source's label.

# What a processor draws: its packages and, where it counts them, the memory modules. Cores are
# inside the packages and the platform domain is around them: neither is added.
_PROCESSOR = {"rapl": ("rapl:package", "rapl:dram")}


class SourcePower(NamedTuple):
    """Power of one source, or of several added."""

    label: str  # labels of the parts, joined by "+"
    columns: tuple[str, ...]  # columns that were added
    watts: FloatArray  # W a run; NaN where a part is missing or the sum is not above 0


def source_power(runs: pd.DataFrame, asked: str) -> SourcePower:
    """Find the mean power of every run as a source saw it.

    ``asked`` is a label ("rapl:package", "meter:wt310e"), its beginning where only one source
    begins so ("meter"), or several joined by "+"; "rapl" is the packages and, where counted, the
    memory modules. Channels that are numbered ("rapl:package-0") are added. Raises
    `UnknownColumnError` when no column holds it, or several may, and `MeasurementError` for text
    where watts should be.
    """
    parts = [part.strip() for part in asked.split("+")]
    found = [source for part in parts for source in _power_parts(runs, part)]
    columns = tuple(dict.fromkeys(column for source in found for column in source.columns))
    if len(columns) < sum(len(source.columns) for source in found):
        raise UnknownColumnError(f"{asked!r} adds one sensor twice: name each sensor once")
    total = np.sum([source.watts for source in found], axis=0)
    total[~(np.isfinite(total) & (total > 0))] = np.nan
    return SourcePower("+".join(source.label for source in found), columns, total)


def _power_parts(runs: pd.DataFrame, label: str) -> list[SourcePower]:
    """Power of runs by a label: of a processor's domains, of its column, or of one it begins."""
    if label in _PROCESSOR:
        first, *others = (_power_of(runs, part) for part in _PROCESSOR[label])
        if first is not None:
            # A domain that this processor does not count may still have its column.
            counted = [o for o in others if o is not None and np.isfinite(o.watts).any()]
            return [first, *counted]
    exact = _power_of(runs, label)
    if exact is not None:
        return [exact]
    begins = [name for name in _labels(runs) if column_stem(name).startswith(column_stem(label))]
    if len(begins) == 1 and label and (only := _power_of(runs, begins[0])) is not None:
        return [only]
    source = runs.attrs.get("source", "runs")
    if begins and label:
        raise UnknownColumnError(
            f"{source}: {label!r} may be {headers.list_names(begins)}: name one, or several "
            "joined by +"
        )
    there = headers.list_names(_labels(runs)) or "none"
    raise UnknownColumnError(
        f"{source}: no power of {label!r}, which would be in column {power_column(label)}; the "
        f"sources are {there}: measure with both (ppw measure --power …), or rename a column"
    )


def _power_of(runs: pd.DataFrame, label: str) -> SourcePower | None:
    """Power of each run by the label's column, numbered channels or ``power_w``; None if absent."""
    own = power_column(label)
    numbered = re.compile(rf"{re.escape(column_stem(label))}(_(die_)?\d+)+{POWER_SUFFIX}")
    columns = [own] if own in runs else [str(c) for c in runs if numbered.fullmatch(str(c))]
    if columns:
        total = np.sum([_power_numbers(runs, column) for column in columns], axis=0)
        return SourcePower(label, tuple(columns), total)
    if {"power_w", "power_source"} <= set(runs.columns):
        of_label = (runs["power_source"].astype(object) == label).to_numpy(dtype=bool)
        if of_label.any():
            watts = np.where(of_label, _power_numbers(runs, "power_w"), np.nan)
            return SourcePower(label, ("power_w",), watts)
    return None


def _labels(runs: pd.DataFrame) -> list[str]:
    """Labels of the power sources of a table: those named, and those of its columns."""
    stems = [str(c).removesuffix(POWER_SUFFIX) for c in runs if str(c).endswith(POWER_SUFFIX)]
    # The first underscore of a column stands for the colon after the kind of source.
    columns = [stem.replace("_", ":", 1) for stem in stems if stem != "idle"]
    if "power_source" not in runs:
        return columns
    named = [str(s) for s in runs["power_source"].dropna().unique()]
    stands = {column_stem(name) for name in named}
    return [*named, *(c for c in columns if column_stem(c) not in stands)]


def _power_numbers(runs: pd.DataFrame, column: str) -> FloatArray:
    numbers = checks.as_numbers(runs[column])
    wrong = (numbers.isna() & runs[column].notna()).to_numpy()
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        cell: Any = runs[column].iloc[row]
        raise MeasurementError(
            f"{runs.attrs.get('source', 'runs')}: row {row + 1}, column {column}: {cell!r} is not "
            "a power in W: correct it or leave the cell empty"
        )
    return np.asarray(numbers, dtype=np.float64)


# Columns of a calibration's table beside the keys of its levels.
LEVEL_COLUMNS = ("runs", "sensor_w", "reference_w", "fitted_w", "residual_w", "outlier")
# What else than a group's identity changes the load.
_SETTINGS = ("freq_hz", "load")


def pair_runs(
    runs: pd.DataFrame, sensor: str, reference: str, host: str | None
) -> tuple[pd.DataFrame, SourcePower, SourcePower, str | None, int]:
    """Select the runs of a host with power of both sources. Raises `PpwError` for none.

    Returns them, their power by each source, the host, and the number of its other runs.
    """
    x, y = (source_power(runs, asked) for asked in (sensor, reference))
    if set(x.columns) & set(y.columns) - {"power_w"} or x.label == y.label:
        raise PpwError(f"{sensor!r} and {reference!r} are the same power: name two sources")
    name, rows = _rows_of_host(runs, host)
    both = rows & np.isfinite(x.watts) & np.isfinite(y.watts)
    if not both.any():
        raise PpwError(
            f"{runs.attrs.get('source', 'runs')}: no run has power of both {x.label} and "
            f"{y.label}: measure some with both (ppw measure --power …)"
        )
    x, y = (one._replace(watts=one.watts[both]) for one in (x, y))
    return runs[both], x, y, name, int((rows & ~both).sum())


def _rows_of_host(runs: pd.DataFrame, host: str | None) -> tuple[str | None, pd.Series[bool]]:
    """Name of the host, and the mask of its rows; raise for several hosts or an unknown one."""
    if "host" not in runs or runs["host"].isna().all():
        return host, pd.Series(True, index=runs.index)
    names, source = runs["host"].astype(object), runs.attrs.get("source", "runs")
    known = sorted(map(str, names.dropna().unique()))
    if host is None and len(known) > 1:
        raise PpwError(
            f"{source}: runs of {headers.list_names(known)}: a calibration is for one "
            "host: choose it with --host"
        )
    if host is not None and host not in known:
        there = headers.list_names(known)
        raise PpwError(f"{source}: no run of host {host!r}; the hosts are {there}")
    chosen = host or known[0]
    return chosen, names.map(str) == chosen


def _group_levels(runs: pd.DataFrame, by: Sequence[str] | None) -> groups.Groups:
    """Group runs into levels by columns; without columns each run is its own level."""
    if by is None:
        identity = [c for c in identity_columns(runs) if c not in ("host", schema.FILE_COLUMN)]
        by = [*identity, *(c for c in _SETTINGS if groups.has(runs, c))]
    for column in by:
        if column in LEVEL_COLUMNS:
            raise PpwError(f"cannot tell levels apart by {column!r}: results have such a column")
    if not by:
        each: Any = np.arange(len(runs))
        return groups.Groups([], each, pd.DataFrame(index=range(len(runs))))
    return groups.group_runs(runs, by)


# No figure of a line, in watts or a ratio of them, is beyond.
_MOST = 1e12


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration(Result):
    """One power sensor of a host against another: reference = offset + slope·sensor.

    Attributes
    ----------
    host : str or None
        Machine that both sensors are of; None where the runs name none.
    sensor, reference : str
        Labels; of a sum all its parts, joined by "+".
    level : float
        Level of the intervals.
    runs : int
        Runs that both sensors saw.
    measured_until : str or None
        When the latest of them started, where recorded.
    sensor_resolution_w, reference_resolution_w : float
        Steps in which the sensors count (W); 0 where not known.
    curvature_per_w, curvature_p : float
        Coefficient of the sensor's square beside the line (1/W) and the P-value of its absence;
        NaN with fewer than four levels.
    by : tuple of str
        Columns that tell levels apart; empty where every run is one.
    sensor_columns, reference_columns : tuple of str
        Columns of the runs that the watts are from.
    line : CalibrationLine
        The fit, in watts.
    table : pandas.DataFrame
        One row a level, which is a set of repeats, with its key columns.
    """

    kind = "calibration"
    tables = (
        Table(
            "table",
            """
            runs        | count | runs        | number of repeats
            sensor_w    | W     | {sensor}    | mean power by the sensor
            reference_w | W     | {reference} | mean power by the reference
            fitted_w    | W     | fitted      | power by the line
            residual_w  | W     | off by      | power by the reference less that by the line
            outlier     | flag  |             | whether the level is far off the line of the others
            """,
            title="Levels",
            key="levels",
            # An outlier has a star.
            show={"residual_w": lambda r: f"{r['residual_w']:+.3g} W" + " *" * bool(r["outlier"])},
        ),
    )

    host: str | None
    sensor: str
    reference: str
    level: float
    runs: int
    measured_until: str | None
    sensor_resolution_w: float
    reference_resolution_w: float
    curvature_per_w: float
    curvature_p: float
    by: tuple[str, ...]
    sensor_columns: tuple[str, ...]
    reference_columns: tuple[str, ...]
    line: CalibrationLine
    table: pd.DataFrame

    @property
    def offset_w(self) -> float:
        """Watts of the reference that the sensor does not see (W)."""
        return self.line.offset

    @property
    def slope(self) -> float:
        """Watts of the reference for each watt of the sensor."""
        return self.line.slope

    @property
    def offset_interval_w(self) -> tuple[float, float]:
        """Confidence interval of the offset (W)."""
        return self.line.offset_interval(self.level)

    @property
    def slope_interval(self) -> tuple[float, float]:
        """Confidence interval of the slope."""
        return self.line.slope_interval(self.level)

    @property
    def source(self) -> str:
        """Text of ``power_source`` for calibrated watts: "rapl:package→meter:wt310e"."""
        return f"{self.sensor}→{self.reference}"

    def half_width_w(self) -> float:
        """Compute the half width (W) of the prediction interval in the middle of the range."""
        made = self.line.predict((self.line.lowest + self.line.highest) / 2, level=self.level)
        return float(made.upper - made.value)

    def equation(self) -> str:
        """Write the line with its figures."""
        return f"{self.reference} = {shown(self.offset_w)} W + {shown(self.slope)} · {self.sensor}"

    def verdict(self) -> str:
        """Say the line, of which host, and how sure a run's watts are by it."""
        host = f"Host {self.host}: " if self.host else ""
        return (
            f"{host}{self.equation()}, from {self.runs} runs at {len(self.table)} levels; a run's "
            f"power is known within ±{shown(self.half_width_w(), 'W')} ({self.level:.0%}) in the "
            "middle of the range."
        )

    def range_sentence(self) -> str:
        """Say where the calibration holds."""
        lowest, highest = shown(self.line.lowest, "W"), shown(self.line.highest, "W")
        return (
            f"It holds from {lowest} to {highest} of {self.sensor}; power beyond is estimated, "
            "not calibrated."
        )

    def text_parts(self) -> list[str]:
        """Say the line with its intervals, where it holds, and its levels."""
        line, levels = (table.lines() for table in self.printed_tables())
        return [self.verdict(), *line, self.range_sentence(), *levels]

    def printed_tables(self, most: int | None = None) -> list[PrintedTable]:
        """Return the parameters of the line and the levels as they print."""
        rows, levels = _with_frequency_texts(self.table, self.by), self.tables[0]
        line = PrintedTable("Line", self.parameter_header(), self.parameter_cells(), 1)
        return [line, levels.print_rows(self, levels.most if most is None else most, rows)]

    def parameter_header(self) -> list[str]:
        """Name the columns of `parameter_cells`."""
        return ["parameter", "value", f"{self.level:.0%} interval"]

    def parameter_cells(self) -> list[list[str]]:
        """Return rows of texts: each parameter of the line with its interval."""
        return [
            ["offset", shown(self.offset_w, "W"), _interval_text(self.offset_interval_w, "W")],
            ["slope", shown(self.slope), _interval_text(self.slope_interval, "")],
            ["scatter of levels", shown(self.line.scatter, "W"), "–"],
            ["scatter of repeats", shown(self.line.run_error, "W"), "–"],
        ]

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return [*self.printed_tables()[1].header]

    def cells(self, most: int) -> list[list[str]]:
        """Return the first ``most`` levels as rows of texts; an outlier has a star."""
        return [*map(list, self.printed_tables(most)[1].rows)]

    def _document_fields(self) -> dict[str, Any]:
        """Add the line's figures and intervals to the fields of the JSON document."""
        line = {_WITH_UNIT.get(name, name): value for name, value in asdict(self.line).items()}
        intervals = {"offset_w": self.offset_interval_w, "slope": self.slope_interval}
        return {**super()._document_fields(), "line": line, "intervals": intervals}

    @classmethod
    def _read_fields(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        parts = super()._read_fields(document)
        # Documents of version 0.1.0 name no types.
        table = parts["table"].astype({"runs": np.int64, "outlier": np.bool_})
        if type(level := parts["level"]) is not float or not 0 < level < 1:
            raise PpwError(
                f"this calibration document has interval level {level!r}, not a number between 0 "
                "and 1: calibrate again"
            )
        curvature = {n: np.nan for n in ("curvature_per_w", "curvature_p") if parts[n] is None}
        return {**parts, **curvature, "table": table, "line": _read_calibration_line(parts["line"])}

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the levels, the line and its prediction band over the range."""
        axes, line, table = new_axes(ax), self.line, self.table
        at = np.linspace(line.lowest, line.highest, _CURVE_STEPS)
        made = line.predict(at, level=self.level)
        axes.fill_between(at, made.lower, made.upper, color=BAND, label=f"{self.level:.0%} of runs")
        axes.plot(at, made.value, color=CURVE, label="calibration")
        for far_off, color, label in ((False, MEASURED, "levels"), (True, PROJECTED, "far off")):
            rows = table[table["outlier"] == far_off]
            if len(rows):
                points = rows["sensor_w"], rows["reference_w"]
                axes.plot(*points, "o", color=color, ms=4, label=label)
        axes.set_xlabel(f"{plot_label(self.sensor)} (W)")
        axes.set_ylabel(f"{plot_label(self.reference)} (W)")
        axes.legend(frameon=False)
        return axes


_CURVE_STEPS = 100
# Figures of the line in watts: their names in a document carry the unit.
_IN_WATTS = ("offset", "mean_sensor", "mean_error", "scatter", "run_error", "lowest", "highest")
_WITH_UNIT = {name: f"{name}_w" for name in _IN_WATTS}


def _read_calibration_line(written: Mapping[str, Any]) -> CalibrationLine:
    names = CalibrationLine.__dataclass_fields__
    try:
        figures = {name: written[_WITH_UNIT.get(name, name)] for name in names}
    except (KeyError, TypeError) as error:
        raise PpwError("this calibration document has no whole line: calibrate again") from error
    for name, figure in figures.items():
        if type(figure) not in (int, float) or not abs(figure) < _MOST:
            raise PpwError(f"this calibration document has {name} {figure!r}: calibrate again")
    if type(figures["degrees_of_freedom"]) is not int:
        raise PpwError("this calibration document has no whole degrees_of_freedom: calibrate again")
    return CalibrationLine(**figures)


def _interval_text(ends: tuple[float, float], unit: str) -> str:
    return " … ".join(shown(end, unit) for end in ends)


def calibrate(
    runs: pd.DataFrame,
    *,
    sensor: str,
    reference: str,
    host: str | None = None,
    by: Sequence[str] | None = None,
    level: float = 0.90,
    sensor_resolution: float = 0.0,
    reference_resolution: float = 0.0,
) -> Calibration:
    """Calibrate one power sensor of a host against another that saw the same runs.

    Parameters
    ----------
    runs : pandas.DataFrame
        A runs table of ``ppw measure`` with both: columns named by the sources' labels, such as
        ``rapl_package_power_w`` and ``meter_wt310e_power_w``, or ``power_w`` with its
        ``power_source``.
    sensor : str
        What is to be calibrated: "rapl:package", "rapl" (packages and memory), "ipmi:dcmi", a sum
        such as "rapl:package+rapl:dram".
    reference : str
        Sensor it is compared with: "meter:wt310e", "ipmi".
    host : str, optional
        Which host's runs; needed where there are several, or for runs without a host that are to
        be saved.
    by : sequence of str, optional
        Columns that tell levels apart. By default all identity columns and the frequency; where
        there are none every run is a level.
    level : float
        Of the intervals, inside (0, 1).
    sensor_resolution, reference_resolution : float
        Steps in which the two count (W), where they are coarse: 1 for a BMC that says whole watts.

    Returns
    -------
    Calibration

    Raises
    ------
    MeasurementError
        For values that cannot be.
    PpwError
        When a source is not there, the runs are of several hosts, or the reference does not rise
        with the sensor.
    FittingError
        With fewer than three levels that the sensor tells apart.
    """
    tidy = check_runs(groups.canonical(runs))
    seen, x, y, machine, left_out = pair_runs(tidy, sensor, reference, host)
    levels = _group_levels(seen, None if by is None else as_names(by))
    fit = calibrate_sensor(
        levels.codes,
        x.watts,
        y.watts,
        sensor_resolution=sensor_resolution,
        reference_resolution=reference_resolution,
    )
    refuse_unrelated(fit.line, x.label, y.label, level)
    table = _level_table(fit, levels.keys)
    caveats = find_caveats(fit, x.label, y.label, level) + outlier_caveats(table, levels.by)
    if left_out:
        several = f"{left_out} of {len(seen) + left_out} runs left out"
        caveats.insert(0, f"{several}: no power of {x.label} or of {y.label}")
    warn_caveats(caveats)
    started = seen.get("started_at", pd.Series(dtype=object)).dropna()
    return Calibration(
        table=table,
        by=tuple(levels.by),
        host=machine,
        sensor=x.label,
        reference=y.label,
        sensor_columns=x.columns,
        reference_columns=y.columns,
        line=fit.line,
        level=float(level),
        runs=len(seen),
        measured_until=max(started.astype(str), default=None),
        sensor_resolution_w=float(sensor_resolution),
        reference_resolution_w=float(reference_resolution),
        curvature_per_w=fit.curvature,
        curvature_p=fit.curvature_p,
        caveats=tuple(caveats),
        input_digest=frame_digest(runs),
    )


def _level_table(fit: SensorCalibration, keys: pd.DataFrame) -> pd.DataFrame:
    levels = fit.levels
    return keys.assign(
        runs=levels.runs,
        sensor_w=levels.sensor,
        reference_w=levels.reference,
        fitted_w=levels.reference - fit.residual,
        residual_w=fit.residual,
        outlier=fit.outlier,
    ).sort_values("sensor_w", kind="stable", ignore_index=True)
