"""Stamps of logs to seconds since 1970 UTC."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from measurements.errors import MeasurementError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

_OFFSET = re.compile(r"(?P<sign>[-+])(?P<hours>\d{2}):?(?P<minutes>\d{2})")


def check_zone(zone: str | None) -> None:
    """Refuse a time zone that is neither an offset nor a name.

    Raises
    ------
    MeasurementError
    """
    if zone is not None:
        to_utc(np.zeros(1), zone)


def stamps(texts: pa.ChunkedArray | pa.Array, form: str) -> Numbers:
    """Clock times of text as seconds since 1970 of that clock; NaN for what is no time.

    Parameters
    ----------
    texts : pyarrow array of strings
    form : str
        As of strptime.
    """
    import pyarrow.compute as pc

    found = pc.strptime(texts, format=form, unit="s", error_is_null=True)
    return np.array(found.cast("int64").cast("float64").fill_null(np.nan), dtype=float)


def to_utc(local_s: Numbers, zone: str) -> Numbers:
    """Seconds since 1970 of a clock of some zone, in UTC.

    The hour that comes twice in autumn is read as the first one; the second then shows as a clock
    that went back.

    Parameters
    ----------
    local_s : array
    zone : str
        An offset such as ``+0200``, or a name such as ``Europe/Berlin``.

    Raises
    ------
    MeasurementError
        When there is no such zone.
    """
    if match := _OFFSET.fullmatch(zone):
        seconds = int(match["hours"]) * 3600 + int(match["minutes"]) * 60
        return local_s - (seconds if match["sign"] == "+" else -seconds)
    return _by_name(local_s, zone)


def _by_name(local_s: Numbers, zone: str) -> Numbers:
    import pandas as pd

    whole = np.floor(np.nan_to_num(local_s))
    try:
        clock = pd.DatetimeIndex(whole.astype("int64").astype("datetime64[s]"))
        utc = clock.tz_localize(
            zone, ambiguous=np.ones(len(whole), bool), nonexistent="shift_forward"
        )
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise MeasurementError(
            f"{zone!r} is no time zone: write one such as +0200 or Europe/Berlin"
        ) from error
    seconds = np.asarray(utc.tz_convert(None).to_numpy().astype("datetime64[s]").astype("int64"))
    shifted: Numbers = seconds + (local_s - whole)
    return shifted
