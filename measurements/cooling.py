"""Waiting until a host is as cool as it was before the first run, where it can tell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from measurements.machine import Machine

_LONGEST_S = 120.0
_COOLER_C = 5.0


class Cooling:
    """The temperature at which runs begin.

    Parameters
    ----------
    machine : Machine
        Its temperature now is the one to come back to.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._coolest_c = machine.temperature_c()

    def wait(self) -> None:
        """Wait until the host is as cool as it was, for two minutes at most."""
        now_c = self._machine.temperature_c()
        if now_c is None or self._coolest_c is None:
            return
        until = time.monotonic() + _LONGEST_S
        while now_c > self._coolest_c + _COOLER_C and time.monotonic() < until:
            time.sleep(0.5)
            now_c = self._machine.temperature_c() or now_c
        if now_c > self._coolest_c + _COOLER_C:
            # It will not get cooler than this while the runs last.
            self._coolest_c = now_c - _COOLER_C
