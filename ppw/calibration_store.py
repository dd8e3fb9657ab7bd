"""Calibrations kept for each host, in the user's configuration folder."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from urllib.parse import quote

from ppw.calibration import Calibration
from ppw.errors import PpwError
from ppw.result import read_document, write_document

CONFIG_DIR_VARIABLE = "PPW_CONFIG_DIR"
_KIND = "calibrations"


def calibration_file(host: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """File that holds a host's calibrations, whether or not it is there.

    Parameters
    ----------
    host : str
    folder : path, optional
        Configuration folder; by default ``PPW_CONFIG_DIR``, or else the platform's for ppw, such
        as ``$XDG_CONFIG_HOME/ppw`` or ``~/.config/ppw``.

    Raises
    ------
    PpwError
        For a host without a name.
    """
    if not host.strip():
        raise PpwError("a calibration is kept for a host: give its name with --host")
    # Slashes and leading dots would lead elsewhere.
    name = quote(host, safe=" ")
    name = f"%2E{name[1:]}" if name.startswith(".") else name
    return _config_folder(folder) / "calibrations" / f"{name}.json"


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
    pair = calibration.sensor, calibration.reference
    kept = [c for c in _read(path) if (c.sensor, c.reference) != pair] if path.exists() else []
    documents = [json.loads(c.to_json()) for c in (*kept, calibration)]
    text = write_document(_KIND, None, {"host": host or calibration.host, _KIND: documents})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".part-") as scratch:
            # Made in a folder of its own, the file has the permissions of any new file.
            part = Path(scratch, path.name)
            part.write_text(text + "\n", encoding="utf-8")
            part.replace(path)
    except OSError as error:
        raise PpwError(
            f"{path}: cannot be written: {error.strerror or error}: name a folder of yours in "
            f"{CONFIG_DIR_VARIABLE}"
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
        One power sensor of a host against another: reference = offset + slope·sensor.

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
    saved = _read(path)
    fitting = [c for c in saved if _fits(sensor, c.sensor) and _fits(reference, c.reference)]
    if len(fitting) != 1:
        there = ", ".join(c.source for c in saved) or "none"
        wrong = "several of the saved calibrations fit" if fitting else "no saved calibration fits"
        raise PpwError(f"{path}: {wrong}: choose with --sensor and --reference among {there}")
    return fitting[0]


def _config_folder(folder: str | os.PathLike[str] | None) -> Path:
    named = folder or os.environ.get(CONFIG_DIR_VARIABLE)
    if named:
        return Path(named)
    from click import get_app_dir

    return Path(get_app_dir("ppw"))


def _fits(asked: str | None, label: str) -> bool:
    return asked is None or asked in (label, label.partition(":")[0])


def _read(path: Path) -> list[Calibration]:
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
