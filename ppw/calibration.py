"""`calibrate`: what a meter would have read, by a sensor that is always there."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.regression.errors_in_both import CalibrationLine, SensorCalibration, calibrate_sensor
from measurements import check_runs
from ppw import caveats as cv
from ppw.calibration_caveats import find_caveats, level_texts, outlier_caveats, refuse_unrelated
from ppw.errors import PpwError
from ppw.estimate import shown
from ppw.paired_runs import LEVEL_COLUMNS, PairedRuns
from ppw.prepare import canonical
from ppw.result import (
    as_floats,
    frame_digest,
    read_document,
    reads_document,
    records,
    write_document,
)
from ppw.tables import summary_text, text_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes


_MOST_ROWS = 40
# No figure of a line, in watts or a ratio of them, is beyond.
_MOST = 1e12
_ASKED = (
    *("host", "sensor", "reference", "level", "runs", "measured_until"),
    *("sensor_resolution_w", "reference_resolution_w", "curvature_per_w", "curvature_p"),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """One power sensor of a host against another: reference = offset + slope·sensor.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a level, which is a set of repeats: key columns, ``runs``, ``sensor_w`` and
        ``reference_w`` (means), ``fitted_w``, ``residual_w`` (reference less fitted) and
        ``outlier``.
    by : tuple of str
        Columns that tell levels apart; empty where every run is one.
    host : str or None
        Machine that both sensors are of; None where the runs name none.
    sensor, reference : str
        Labels; of a sum all its parts, joined by "+".
    sensor_columns, reference_columns : tuple of str
        Columns of the runs that the watts are from.
    line : CalibrationLine
        The fit, in watts.
    level : float
        Of the intervals.
    runs : int
        Runs that both sensors saw.
    measured_until : str or None
        When the latest of them started, where recorded.
    sensor_resolution_w, reference_resolution_w : float
        Steps in which the sensors count (W); 0 where not known.
    curvature_per_w, curvature_p : float
        Coefficient of the sensor's square beside the line (1/W) and the P-value of its absence;
        NaN with fewer than four levels.
    caveats : tuple of str
    """

    table: pd.DataFrame
    by: tuple[str, ...]
    host: str | None
    sensor: str
    reference: str
    sensor_columns: tuple[str, ...]
    reference_columns: tuple[str, ...]
    line: CalibrationLine
    level: float
    runs: int
    measured_until: str | None
    sensor_resolution_w: float
    reference_resolution_w: float
    curvature_per_w: float
    curvature_p: float
    caveats: tuple[str, ...]
    input_digest: str = field(repr=False, compare=False)

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
        """What ``power_source`` says of calibrated watts: "rapl:package→meter:wt310e"."""
        return f"{self.sensor}→{self.reference}"

    def half_width_w(self) -> float:
        """Half width (W) of the prediction interval of a run in the middle of the range."""
        made = self.line.predict((self.line.lowest + self.line.highest) / 2, level=self.level)
        return float(made.upper - made.value)

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of ``table``."""
        return self.table.copy()

    def equation(self) -> str:
        """Write the line with its figures."""
        return f"{self.reference} = {shown(self.offset_w)} W + {shown(self.slope)} · {self.sensor}"

    def verdict(self) -> str:
        """Say the line, of which host, and how sure a run's watts are by it."""
        host = f"Host {self.host}: " if self.host else ""
        return (
            f"{host}{self.equation()}, from {self.runs} runs at {len(self.table)} levels; a run's "
            f"watts are known within ±{shown(self.half_width_w(), 'W')} ({self.level:.0%}) in the "
            "middle of the range."
        )

    def range_sentence(self) -> str:
        """Say where the calibration holds."""
        lowest, highest = shown(self.line.lowest, "W"), shown(self.line.highest, "W")
        return (
            f"It holds from {lowest} to {highest} of {self.sensor}; watts beyond are estimated, "
            "not calibrated."
        )

    def summary(self) -> str:
        """Say the line with its intervals, where it holds, at most 40 levels, the caveats."""
        lines = [
            self.verdict(),
            text_table(self.parameter_header(), self.parameter_cells()),
            self.range_sentence(),
            text_table(self.header(), self.cells(_MOST_ROWS)),
        ]
        if len(self.table) > _MOST_ROWS:
            more = len(self.table) - _MOST_ROWS
            lines.append(f"… {more} more levels: use --format csv or to_frame()")
        return summary_text(lines, self.caveats)

    def parameter_header(self) -> list[str]:
        """Name the columns of `parameter_cells`."""
        return ["parameter", "value", f"{self.level:.0%} interval"]

    def parameter_cells(self) -> list[list[str]]:
        """Parameters as they are printed."""
        return [
            ["offset", shown(self.offset_w, "W"), _interval(self.offset_interval_w, "W")],
            ["slope", shown(self.slope), _interval(self.slope_interval, "")],
            ["scatter of levels", shown(self.line.scatter, "W"), "–"],
            ["scatter of repeats", shown(self.line.run_error, "W"), "–"],
        ]

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return [*self.by, "runs", self.sensor, self.reference, "fitted", "off by"]

    def cells(self, most: int) -> list[list[str]]:
        """First levels as they are printed; an outlier has a star."""
        return [
            [
                *level_texts(self.by, row),
                str(row["runs"]),
                *(shown(row[name], "W") for name in ("sensor_w", "reference_w", "fitted_w")),
                f"{row['residual_w']:+.3g} W" + " *" * bool(row["outlier"]),
            ]
            for row in self.table.head(most).to_dict(orient="records")
        ]

    def to_json(self) -> str:
        """JSON document with ``schema_version``; ``line`` holds all that predictions take."""
        offset, slope = self.offset_interval_w, self.slope_interval
        body = {
            **{name: getattr(self, name) for name in _ASKED},
            "by": self.by,
            "sensor_columns": self.sensor_columns,
            "reference_columns": self.reference_columns,
            "line": {_WITH_UNIT.get(k, k): v for k, v in asdict(self.line).items()},
            "intervals": {"offset_w": offset, "slope": slope},
            "levels": records(self.table),
            "caveats": self.caveats,
        }
        return write_document("calibration", self.input_digest, body)

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> Calibration:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        d = read_document(text, "calibration")
        asked = {name: d[name] for name in _ASKED}
        if type(asked["level"]) is not float or not 0 < asked["level"] < 1:
            raise PpwError(
                f"this calibration document has level {asked['level']!r}: calibrate again"
            )
        for name in ("curvature_per_w", "curvature_p"):
            asked[name] = np.nan if asked[name] is None else asked[name]
        table = pd.DataFrame(d["levels"], columns=[*d["by"], *LEVEL_COLUMNS])
        return cls(
            **asked,
            table=as_floats(table, but={*d["by"], "runs", "outlier"}),
            by=tuple(d["by"]),
            sensor_columns=tuple(d["sensor_columns"]),
            reference_columns=tuple(d["reference_columns"]),
            line=_line(d["line"]),
            caveats=tuple(d["caveats"]),
            input_digest=d["input_digest"],
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the levels, the line and its prediction band over the range."""
        from ppw.report.calibration_page import plot_calibration

        return plot_calibration(self, ax)


_WITH_UNIT = {
    name: f"{name}_w"
    for name in (
        *("offset", "mean_sensor", "mean_error", "scatter", "run_error"),
        *("lowest", "highest"),
    )
}


def _line(written: Mapping[str, Any]) -> CalibrationLine:
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


def _interval(ends: tuple[float, float], unit: str) -> str:
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
        What it is held against: "meter:wt310e", "ipmi".
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
        One power sensor of a host against another: reference = offset + slope·sensor.

    Raises
    ------
    MeasurementError
        For values that cannot be.
    PpwError
        When a source is not there, the runs are of several hosts, or the reference does not rise
        with the sensor.
    FittingError
        With fewer than three levels that the sensor tells apart.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    paired = PairedRuns.of(check_runs(canonical(runs)), sensor, reference, host=host, by=by)
    x, y = paired.sensor, paired.reference
    fit = calibrate_sensor(
        paired.levels.codes,
        x.watts,
        y.watts,
        sensor_resolution=sensor_resolution,
        reference_resolution=reference_resolution,
    )
    refuse_unrelated(fit.line, x.label, y.label, level)
    table = _level_table(fit, paired.levels.keys)
    caveats = paired.caveats() + find_caveats(fit, x.label, y.label, level)
    caveats += outlier_caveats(table, paired.levels.by)
    cv.warn(caveats)
    return Calibration(
        table=table,
        by=tuple(paired.levels.by),
        host=paired.host,
        sensor=x.label,
        reference=y.label,
        sensor_columns=x.columns,
        reference_columns=y.columns,
        line=fit.line,
        level=float(level),
        runs=len(paired.runs),
        measured_until=paired.latest(),
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
