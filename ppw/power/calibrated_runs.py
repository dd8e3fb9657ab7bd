"""`apply_calibration`: runs whose watts a meter did not see, in the watts that it would have read.

Each row then says in ``power_label`` what its watts are: "measured" by the source that
``power_source`` names, "calibrated" inside the range of a calibration, "estimated" beyond it.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from fitting.regression.errors_in_both import CalibratedReadings
from fitting.regression.lines import BoolArray, FloatArray
from measurements import check_runs
from measurements.errors import MeasurementError
from measurements.table.headers import list_names
from measurements.table.writing import replace_whole
from ppw.errors import PpwError
from ppw.power.calibration import Calibration, source_power
from ppw.results.result import read_document, warn_caveats, write_document
from ppw.runs import groups, prepare

CALIBRATED, ESTIMATED = "calibrated", "estimated"


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
    checked = check_runs(groups.canonical(runs))
    table = checked.copy()
    table.attrs = dict(runs.attrs)
    asked, caveats = _choose_rows(table, calibration)
    watts = np.where(asked, source_power(table, calibration.sensor).watts, np.nan)
    made = calibration.line.predict(watts, level=calibration.level, extrapolate=extrapolate)
    # A line that falls below zero has no power to give; such rows keep what they had.
    with np.errstate(invalid="ignore"):
        done = made.value > 0
    idle_lost = _write_power(table, calibration, watts, made, done)
    warn_caveats(caveats + _calibration_caveats(calibration, asked, watts, made, done, idle_lost))
    if "digest" in table.attrs:
        # The content is no longer the files'.
        both = f"{table.attrs['digest']} {calibration.to_json()}"
        table.attrs["digest"] = f"sha256:{hashlib.sha256(both.encode()).hexdigest()}"
    return table


def power_labels(runs: pd.DataFrame) -> pd.Series[Any]:
    """Label of each row's power; "measured" where power has none, None without power."""
    labels = pd.Series(None, index=runs.index, name="power_label", dtype=object)
    if "power_w" in runs:
        labels[runs["power_w"].notna()] = prepare.MEASURED
    if "power_label" in runs:
        labels = runs["power_label"].astype(object).where(runs["power_label"].notna(), labels)
    return labels


def _choose_rows(table: pd.DataFrame, calibration: Calibration) -> tuple[BoolArray, list[str]]:
    """Mark the rows to calibrate: of the calibration's host, not calibrated yet; with caveats."""
    rows, caveats = np.ones(len(table), dtype=bool), []
    if "host" in table and table["host"].notna().any():
        names = table["host"].astype(object)
        if calibration.host is None:
            caveats.append(
                "the calibration names no host, and ppw used it for all hosts of the runs: it is "
                "right only for the host that it was made on"
            )
        else:
            rows = (names == calibration.host).to_numpy(dtype=bool)
            if not rows.any():
                raise PpwError(
                    f"{table.attrs.get('source', 'runs')}: the calibration is of host "
                    f"{calibration.host!r}, and the runs are of "
                    f"{list_names(sorted(map(str, names.dropna().unique())))}: calibrate each "
                    "host with its own runs"
                )
    elif calibration.host is not None:
        caveats.append(
            f"the runs name no host, and ppw took them as runs of {calibration.host}: a "
            "calibration is right only for its own host"
        )
    if "power_source" in table:
        sources = table["power_source"].astype(object)
        # What the reference saw, or an earlier calibration made, is not calibrated again.
        done = (sources == calibration.reference) | (sources == calibration.source)
        rows = rows & ~done.to_numpy(dtype=bool)
    return rows, caveats


def _write_power(
    table: pd.DataFrame,
    calibration: Calibration,
    watts: FloatArray,
    made: CalibratedReadings,
    done: BoolArray,
) -> int:
    """Write calibrated power, energy, labels and sources; return the number of idle values lost."""
    idle_lost = 0
    before = groups.numbers(table, "power_w")
    after = np.where(done, made.value, before)
    if "energy_j" in table:
        energy = groups.numbers(table, "energy_j")
        # Time stays, so energy changes in the ratio of the power.
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = energy * np.where(before > 0, made.value / before, np.nan)
        table["energy_j"] = np.where(done, scaled, energy)
    if "idle_power_w" in table:
        idle = groups.numbers(table, "idle_power_w")
        line = calibration.line
        # Idle power is of the sensor that power_w is of: another's cannot be put on this line.
        own = np.isclose(before, watts, rtol=1e-9, atol=0.0)
        brought = np.where(own, line.offset + line.slope * idle, np.nan)
        brought = np.where(done, np.where(brought > 0, brought, np.nan), idle)
        idle_lost = int((np.isnan(brought) & ~np.isnan(idle)).sum())
        table["idle_power_w"] = brought
    labels = power_labels(table)
    labels[done] = np.where(made.extrapolated[done], ESTIMATED, CALIBRATED)
    table["power_w"] = after
    for name, ends in (("power_lower_w", made.lower), ("power_upper_w", made.upper)):
        table[name] = np.where(done, ends, groups.numbers(table, name))
    sources = table["power_source"] if "power_source" in table else pd.Series(None, table.index)
    table["power_source"] = sources.astype(object).mask(done, calibration.source)
    table["power_label"] = labels
    return idle_lost


def _calibration_caveats(
    calibration: Calibration,
    asked: BoolArray,
    watts: FloatArray,
    made: CalibratedReadings,
    done: BoolArray,
    idle_lost: int,
) -> list[str]:
    lowest, highest = calibration.line.lowest, calibration.line.highest
    beyond, missing = int((made.extrapolated & done).sum()), int((asked & np.isnan(watts)).sum())
    negative = int((~done & ~np.isnan(watts)).sum())
    texts = {
        f"{beyond} of {int(done.sum())} rows are estimated, not calibrated: "
        f"{calibration.sensor} is outside {lowest:.4g} to {highest:.4g} W there; calibrate at "
        "such loads too": beyond,
        f"{missing} rows have no power of {calibration.sensor} and stay as they were": missing,
        f"{negative} rows stay as they were: {calibration.equation()} is not above zero "
        "there": negative,
        f"idle_power_w of {idle_lost} rows is left out: it comes from another sensor than "
        f"{calibration.sensor}, so it has another scope than the calibrated power": idle_lost,
    }
    return [text for text, count in texts.items() if count]


# Calibrations kept for each host, in the user's configuration folder.
CONFIG_DIR_VARIABLE = "PPW_CONFIG_DIR"
_KIND = "calibrations"


def calibration_file(host: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """Path of the file for a host's calibrations, whether or not it exists.

    The ``folder`` is by default ``PPW_CONFIG_DIR``, or else the platform's for ppw: on Linux
    ``$XDG_CONFIG_HOME/ppw`` or ``~/.config/ppw``. Raises `PpwError` for a host without a name.
    """
    if not host.strip():
        raise PpwError("a calibration is kept for a host: give the name of the host with --host")
    # Slashes and leading dots would lead elsewhere.
    name = quote(host, safe=" ")
    name = f"%2E{name[1:]}" if name.startswith(".") else name
    root = folder or os.environ.get(CONFIG_DIR_VARIABLE)
    if not root:
        from click import get_app_dir

        root = get_app_dir("ppw")
    return Path(root, "calibrations", f"{name}.json")


def save_calibration(
    calibration: Calibration,
    *,
    host: str | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Path:
    """Keep a calibration for its host; one of the same two sensors is replaced.

    The file appears whole or not at all.

    Parameters
    ----------
    calibration : Calibration
    host : str, optional
        For one whose runs named no host.
    folder : path, optional
        As of `calibration_file`.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    PpwError
        When no host is known, or the file cannot be read or written.
    """
    path = calibration_file(host or calibration.host or "", folder)
    # A file holds one calibration for each pair of sensors; the newest one counts.
    pair = calibration.sensor, calibration.reference
    kept = [c for c in _read_file(path) if (c.sensor, c.reference) != pair] if path.exists() else []
    documents = [json.loads(c.to_json()) for c in (*kept, calibration)]
    text = write_document(_KIND, None, {"host": host or calibration.host, _KIND: documents})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_whole(path) as part:
            part.write_text(text + "\n", encoding="utf-8")
    except (OSError, MeasurementError) as error:
        reason = getattr(error.__cause__ or error, "strerror", None) or error
        raise PpwError(
            f"{path}: cannot be written: {reason}: name a folder of yours in {CONFIG_DIR_VARIABLE}"
        ) from error
    return path


def load_calibration(
    host: str,
    *,
    sensor: str | None = None,
    reference: str | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Calibration:
    """Read the calibration that was saved for a host.

    Parameters
    ----------
    host : str
    sensor, reference : str, optional
        Labels, or their kinds ("rapl", "meter"); needed where several are saved.
    folder : path, optional
        As of `calibration_file`.

    Returns
    -------
    Calibration

    Raises
    ------
    PpwError
        When there is none, several fit, or the file cannot be read.
    """
    path = calibration_file(host, folder)
    if not path.exists():
        raise PpwError(
            f"{path}: no calibration of host {host!r} was saved: make one with ppw calibrate RUNS "
            "--sensor … --reference … --save"
        )
    saved = _read_file(path)
    fitting = [
        c for c in saved if _label_fits(sensor, c.sensor) and _label_fits(reference, c.reference)
    ]
    if len(fitting) != 1:
        there = ", ".join(c.source for c in saved) or "none"
        wrong = "several of the saved calibrations fit" if fitting else "no saved calibration fits"
        raise PpwError(f"{path}: {wrong}: choose with --sensor and --reference among {there}")
    return fitting[0]


def _label_fits(asked: str | None, label: str) -> bool:
    """Tell whether a label, or its part before the colon, is the one asked for; None is any."""
    return asked is None or asked in (label, label.partition(":")[0])


def _read_file(path: Path) -> list[Calibration]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text in UTF-8"
        raise PpwError(f"{path}: cannot be read: {reason}: correct or delete it") from error
    try:
        documents = read_document(text, _KIND)[_KIND]
        return [Calibration.from_json(json.dumps(document)) for document in documents]
    except (PpwError, TypeError) as error:
        raise PpwError(
            f"{path}: no calibrations in it ({error}): delete it, and calibrate"
        ) from error
