"""DCMI's Get Power Reading: what a BMC answers, and which answers are no figure.

Data Center Manageability Interface Specification 1.5, section 6.6.1.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

NETFN, GET_POWER_READING = 0x2C, 0x02
GROUP = 0xDC
# Mode 1 is the system's power; no attribute, one reserved byte.
REQUEST = bytes([GROUP, 0x01, 0x00, 0x00])

_REPLY = struct.Struct("<BHHHHIIB")
_MEASURING = 0x40
_NO_WATTS = {0: "0 W", 0xFFFF: "0xFFFF W"}
_NO_STAMP = (0, 0xFFFFFFFF)

# By the specification the period belongs to the minimum, maximum and mean. BMCs that give a short
# one mean the current figure too; others count it since their start, for days.
LONGEST_WINDOW_S = 60.0
# Stamps are whole seconds.
STAMP_STEP_S = 1.0


class PowerReading(NamedTuple):
    """A whole reply.

    Attributes
    ----------
    current_w, minimum_w, maximum_w, average_w : int
        Watts as the BMC says them; not all BMCs mean what they say (see `problem`).
    stamp_s : int or None
        The BMC's clock; None where it has none.
    period_s : float
        What minimum, maximum and average cover.
    active : bool
        Whether the BMC measures at all.
    """

    current_w: int
    minimum_w: int
    maximum_w: int
    average_w: int
    stamp_s: int | None
    period_s: float
    active: bool

    @property
    def problem(self) -> str:
        """Why the current watts are no figure; empty where they are."""
        if not self.active:
            return "its power measurement is not activated"
        if self.current_w in _NO_WATTS:
            return f"it answers {_NO_WATTS[self.current_w]}"
        return ""

    @property
    def window_s(self) -> float:
        """Seconds that the current watts are the mean of; 0 where only the moment is meant."""
        return self.period_s if self.period_s <= LONGEST_WINDOW_S else 0.0


def parse_power_reading(data: bytes) -> PowerReading | None:
    """Read a reply that follows completion code 0; None where it is no power reading."""
    if len(data) < _REPLY.size or data[0] != GROUP:
        return None
    _, current, minimum, maximum, average, stamp, period_ms, state = _REPLY.unpack_from(data)
    return PowerReading(
        current,
        minimum,
        maximum,
        average,
        None if stamp in _NO_STAMP else stamp,
        period_ms / 1e3,
        bool(state & _MEASURING),
    )


class BmcClock:
    """Tells a reading from the one before by the BMC's stamp, for as long as that stamp moves.

    Where the watts change while the stamp does not, the stamp says nothing, and is left out from
    then on: else all readings would pass for one.
    """

    def __init__(self) -> None:
        self._last: PowerReading | None = None
        self._moved_at_s = float("-inf")
        self._stuck = False

    def stamp(self, reading: PowerReading, at_s: float) -> float | None:
        """Give the sensor's own time of a reading that was read at ``at_s`` (s)."""
        last, self._last = self._last, reading
        if reading.stamp_s is None:
            return None
        if last is None or reading.stamp_s != last.stamp_s:
            self._moved_at_s = at_s
        elif reading != last and at_s - self._moved_at_s > 2 * STAMP_STEP_S:
            self._stuck = True
        return None if self._stuck else float(reading.stamp_s)
