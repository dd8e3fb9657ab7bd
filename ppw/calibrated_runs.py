"""`apply_calibration`: runs whose watts a meter did not see, in the watts that it would have read.

Each row then says in ``power_label`` what its watts are: "measured" by the source that
``power_source`` names, "calibrated" inside the range of a calibration, "estimated" beyond it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from measurements import check_runs
from measurements.headers import shown as shown_names
from ppw import caveats as cv
from ppw.errors import PpwError
from ppw.power_columns import source_watts
from ppw.prepare import canonical
from ppw.table_caveats import MEASURED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fitting.regression.errors_in_both import Calibrated
    from fitting.regression.lines import FloatArray
    from ppw.calibration import Calibration

    Mask = NDArray[np.bool_]

CALIBRATED, ESTIMATED = "calibrated", "estimated"
POWER_LABELS = (MEASURED, CALIBRATED, ESTIMATED)


def apply_calibration(
    runs: pd.DataFrame, calibration: Calibration, *, extrapolate: bool = True
) -> pd.DataFrame:
    """Replace the watts of runs by what the calibration's reference would have read.

    Parameters
    ----------
    runs : pandas.DataFrame
        A runs table that has the calibration's sensor. Rows of other hosts, without its watts, or
        already of the reference stay as they are.
    calibration : Calibration
    extrapolate : bool
        Whether watts outside the calibration's range are answered, as "estimated".

    Returns
    -------
    pandas.DataFrame
        With ``power_w``, its prediction interval ``power_lower_w`` and ``power_upper_w``,
        ``power_source`` such as "rapl:package→meter:wt310e" and ``power_label``. ``energy_j``
        changes in the ratio of the watts. ``idle_power_w`` is brought along where it is the
        calibrated sensor's, and missing where it is of another.

    Raises
    ------
    MeasurementError
        For values that cannot be.
    PpwError
        When no row is of the host, or the sensor is not there.
    OutOfRangeError
        For watts outside the range, unless ``extrapolate``.

    Warns
    -----
    CaveatWarning
        Where watts were estimated, could not be calibrated, or the rows name no host.
    """
    checked = check_runs(canonical(runs))
    table = checked.copy()
    table.attrs = dict(runs.attrs)
    asked, caveats = _rows(table, calibration)
    watts = np.where(asked, source_watts(table, calibration.sensor).watts, np.nan)
    made = calibration.line.predict(watts, level=calibration.level, extrapolate=extrapolate)
    with np.errstate(invalid="ignore"):
        done = made.value > 0
    idle_lost = _write_watts(table, calibration, watts, made, done)
    cv.warn(caveats + _caveats(calibration, asked, watts, made, done, idle_lost))
    if "digest" in table.attrs:
        # The content is no longer the files'.
        both = f"{table.attrs['digest']} {calibration.to_json()}"
        table.attrs["digest"] = f"sha256:{hashlib.sha256(both.encode()).hexdigest()}"
    return table


def power_labels(runs: pd.DataFrame) -> pd.Series[Any]:
    """What the watts of every row are; a row with watts that says nothing has measured ones."""
    labels = pd.Series(None, index=runs.index, name="power_label", dtype=object)
    if "power_w" in runs:
        labels[runs["power_w"].notna()] = MEASURED
    if "power_label" in runs:
        labels = runs["power_label"].astype(object).where(runs["power_label"].notna(), labels)
    return labels


def _rows(table: pd.DataFrame, calibration: Calibration) -> tuple[Mask, list[str]]:
    """Rows to be calibrated, and what is to be said of the choice."""
    rows, caveats = np.ones(len(table), dtype=bool), []
    if "host" in table and table["host"].notna().any():
        names = table["host"].astype(object)
        if calibration.host is None:
            caveats.append(
                "the calibration names no host, and was taken for one of all the runs' hosts: a "
                "calibration holds for its own host only"
            )
        else:
            rows = (names == calibration.host).to_numpy(dtype=bool)
            if not rows.any():
                raise PpwError(
                    f"{table.attrs.get('source', 'runs')}: the calibration is of host "
                    f"{calibration.host!r}, and the runs are of "
                    f"{shown_names(sorted(map(str, names.dropna().unique())))}: calibrate each "
                    "host by itself"
                )
    elif calibration.host is not None:
        caveats.append(
            f"the runs name no host, and were taken for runs of {calibration.host}: a calibration "
            "holds for its own host only"
        )
    if "power_source" in table:
        sources = table["power_source"].astype(object)
        done = (sources == calibration.reference) | (sources == calibration.source)
        rows = rows & ~done.to_numpy(dtype=bool)
    return rows, caveats


def _write_watts(
    table: pd.DataFrame, calibration: Calibration, watts: FloatArray, made: Calibrated, done: Mask
) -> int:
    """Write the watts and what goes with them; returns how many idle figures were dropped."""
    idle_lost = 0
    before = _column(table, "power_w")
    after = np.where(done, made.value, before)
    if "energy_j" in table:
        energy = _column(table, "energy_j")
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = energy * np.where(before > 0, made.value / before, np.nan)
        table["energy_j"] = np.where(done, scaled, energy)
    if "idle_power_w" in table:
        idle = _column(table, "idle_power_w")
        line = calibration.line
        own = np.isclose(before, watts, rtol=1e-9, atol=0.0)
        brought = np.where(own, line.offset + line.slope * idle, np.nan)
        brought = np.where(done, np.where(brought > 0, brought, np.nan), idle)
        idle_lost = int((np.isnan(brought) & ~np.isnan(idle)).sum())
        table["idle_power_w"] = brought
    labels = power_labels(table)
    labels[done] = np.where(made.extrapolated[done], ESTIMATED, CALIBRATED)
    table["power_w"] = after
    for name, ends in (("power_lower_w", made.lower), ("power_upper_w", made.upper)):
        table[name] = np.where(done, ends, _column(table, name))
    sources = table["power_source"] if "power_source" in table else pd.Series(None, table.index)
    table["power_source"] = sources.astype(object).mask(done, calibration.source)
    table["power_label"] = labels
    return idle_lost


def _column(table: pd.DataFrame, name: str) -> FloatArray:
    if name not in table:
        return np.full(len(table), np.nan)
    return table[name].to_numpy(dtype=np.float64)


def _caveats(
    calibration: Calibration,
    asked: Mask,
    watts: FloatArray,
    made: Calibrated,
    done: Mask,
    idle_lost: int,
) -> list[str]:
    lowest, highest = calibration.line.lowest, calibration.line.highest
    beyond, missing = int((made.extrapolated & done).sum()), int((asked & np.isnan(watts)).sum())
    negative = int((~done & ~np.isnan(watts)).sum())
    found = []
    if beyond:
        found.append(
            f"{beyond} of {int(done.sum())} rows are estimated, not calibrated: "
            f"{calibration.sensor} is outside {lowest:.4g} to {highest:.4g} W there; calibrate at "
            "such loads too"
        )
    if missing:
        found.append(f"{missing} rows have no watts of {calibration.sensor} and stay as they were")
    if negative:
        found.append(
            f"{negative} rows stay as they were: {calibration.equation()} is not above zero there"
        )
    if idle_lost:
        found.append(
            f"idle_power_w of {idle_lost} rows is dropped: it is of another sensor than "
            f"{calibration.sensor}, and would stand beside watts of another scope"
        )
    return found
