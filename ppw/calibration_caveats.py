"""What speaks against a calibration, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from measurements.headers import shown as shown_names
from ppw.errors import PpwError
from ppw.estimate import key_texts, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from fitting.regression.errors_in_both import CalibrationLine, SensorCalibration

# P-value below which a bend is said; one good calibration in a hundred is called bent.
_BENT = 0.01
_FEW_DEGREES = 3
# Sources whose watts are part of what a meter or a BMC sees.
_PARTS = ("rapl", "nvml")
_WHOLES = ("meter", "ipmi", "redfish")


def refuse_unrelated(line: CalibrationLine, sensor: str, reference: str, level: float) -> None:
    """Raise `PpwError` where the reference may as well not rise with the sensor."""
    lower, upper = line.slope_interval(level)
    if lower <= 0:
        raise PpwError(
            f"{reference} does not clearly rise with {sensor}: slope {shown(line.slope)} "
            f"({level:.0%} interval {shown(lower)} … {shown(upper)}): check that both are of this "
            "host and that their clocks agree, and measure more levels from idle to full load"
        )


def find_caveats(fit: SensorCalibration, sensor: str, reference: str, level: float) -> list[str]:
    """Find what makes the line less sure, or less of a line, than it looks."""
    found = []
    if fit.line.degrees_of_freedom < _FEW_DEGREES:
        found.append(
            f"{len(fit.levels.runs)} levels only, so intervals are wide: more loads between idle "
            "and full narrow them, more repeats hardly do"
        )
    if (fit.levels.runs == 1).all():
        found.append(
            f"no level was repeated, so the noise of {sensor} is not known and was taken as none: "
            "the slope may be too small; measure with --repeats"
        )
    if fit.curvature_p < _BENT:
        way = "steeper" if fit.curvature > 0 else "flatter"
        found.append(
            f"the levels do not lie on a straight line but on one that gets {way} (P = "
            f"{fit.curvature_p:.1g}): a power supply's losses bend it; calibrate over the loads "
            "that matter only"
        )
    return found + _physical(fit.line, sensor, reference, level)


def level_texts(by: Sequence[str], row: Mapping[Any, Any]) -> list[str]:
    """Write the keys of a level for people, its frequency with a unit."""
    texts = dict(zip(by, key_texts(by, row), strict=True))
    if "freq_hz" in texts:
        texts["freq_hz"] = shown(row["freq_hz"], "Hz")
    return list(texts.values())


def outlier_caveats(table: pd.DataFrame, by: Sequence[str]) -> list[str]:
    """Name the levels that are far off the line of the others."""
    rows = table[table["outlier"]].to_dict(orient="records")
    if not rows:
        return []
    named = [
        f"{', '.join(level_texts(by, row)) or shown(row['sensor_w'], 'W')} "
        f"({row['residual_w']:+.3g} W)"
        for row in rows
    ]
    return [
        f"far off the line of the others, and yet in the fit: {shown_names(named)}: look whether "
        "both sensors saw the whole of these runs"
    ]


def _physical(line: CalibrationLine, sensor: str, reference: str, level: float) -> list[str]:
    """Say what a host that is wired as its labels say cannot do."""
    inside = sensor.startswith(_PARTS) and reference.startswith(_WHOLES)
    found = []
    if inside and line.slope_interval(level)[1] < 1:
        found.append(
            f"{reference} rises by less than {sensor}, which it contains: are runs shorter than "
            "the reference's window, or clocks apart?"
        )
    if inside and line.offset_interval(level)[1] < 0:
        found.append(
            f"{reference} would be below zero where {sensor} is zero: the true line bends below "
            "the lowest level; do not use it there"
        )
    return found
