"""Times as loggers write them, in seconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

# From here on a number of seconds, milliseconds, ... can be told apart by its size.
EARLIEST_S = datetime(2000, 1, 1, tzinfo=UTC).timestamp()
LATEST_S = datetime(2100, 1, 1, tzinfo=UTC).timestamp()
SCALES = (1.0, 1e-3, 1e-6, 1e-9)

_CLOCK_TIME = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d*)?)? ?(Z|[AP]M|[+-]\d{2}:?\d{2})?", re.I)
_DATE_WITH_SLASHES = re.compile(r"^(\d{4})/(\d{2})/(\d{2})")
_UNIVERSAL = re.compile(r" ?(UTC|GMT)$")
_SPACED_ZONE = re.compile(r" (?=[+-]\d{2}:?\d{2}$)")


class BadTimeError(ValueError):
    """A text that is no time; says why, and what to do."""


class TimeReader:
    """Reads the times of one log, whose first one settles the unit of all.

    Parameters
    ----------
    offset_s : float
        What is added to the log's times before they are judged, so that seconds since the start
        of a log can be read with the offset of that start. It is not part of the result.
    universal : bool
        Whether times without a zone are UTC; else they are local time of this host.

    Attributes
    ----------
    local : bool
        Whether a time was taken for local time.
    """

    def __init__(self, offset_s: float = 0.0, universal: bool = False) -> None:
        self.local = False
        self._universal = universal
        self._offset_s = offset_s
        self._scale: float | None = None

    def read(self, text: str) -> float:
        """Read seconds since 1970 by the log's own clock.

        Raises
        ------
        BadTimeError
            With the remedy.
        """
        text = text.strip()
        try:
            number = float(text)
        except ValueError:
            return self._date(text)
        return self._number(number, text)

    def _number(self, number: float, text: str) -> float:
        scales = SCALES if self._scale is None else (self._scale,)
        for scale in scales:
            if EARLIEST_S <= number * scale + self._offset_s < LATEST_S:
                self._scale = scale
                return number * scale
        raise BadTimeError(
            f"{text!r} is no time since 1970 in s, ms, µs or ns: let the logger write that or ISO "
            f"8601, or give offset=SECONDS of the log's start since 1970 if it counts from there"
        )

    def _date(self, text: str) -> float:
        if _CLOCK_TIME.fullmatch(text):
            raise BadTimeError(
                f"{text!r} has no date: name the column of the date too, such as time=Date+Time, "
                f"or let the logger write ISO 8601"
            )
        iso = _DATE_WITH_SLASHES.sub(r"\1-\2-\3", text)
        iso = _SPACED_ZONE.sub("", _UNIVERSAL.sub("+00:00", iso))
        try:
            moment = datetime.fromisoformat(iso)
        except ValueError:
            moment = None
        if moment is None or _is_whole_day(iso):
            raise BadTimeError(
                f"{text!r} is no time: let the logger write ISO 8601, such as "
                f"2026-03-01T12:00:00+01:00, or seconds since 1970"
            )
        if moment.tzinfo is None and self._universal:
            moment = moment.replace(tzinfo=UTC)
        self.local |= moment.tzinfo is None
        return moment.timestamp()


def _is_whole_day(iso: str) -> bool:
    try:
        date.fromisoformat(iso)
    except ValueError:
        return False
    return True
