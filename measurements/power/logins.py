"""Users and passwords of the sources that need them, asked for before anything is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from measurements.power.credentials import find_login, terminal_prompt
from measurements.power.protocol import Login, SensorError
from measurements.power.redfish_origin import parse_origin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from measurements.power.registry import Spec

# By kind of source: what its credentials are called, and whether it may do without.
_NEED = {"ipmi": ("ipmi", False), "ipmi:ipmitool": ("ipmi", False), "redfish": ("redfish", True)}


def logins_for(specs: Iterable[Spec]) -> list[tuple[str, str, Login]]:
    """Kind, address and login of each source that needs one.

    Raises
    ------
    SensorError
        When nothing says what the login is, and nobody is there to be asked.
    """
    found = []
    for spec in specs:
        if spec.where is None or spec.kind not in _NEED:
            continue
        kind, may_do_without = _NEED[spec.kind]
        # As the source will ask for it.
        host = parse_origin(spec.where).host if kind == "redfish" else spec.where
        try:
            found.append((kind, host, find_login(kind, host, prompt=terminal_prompt())))
        except SensorError:
            if not may_do_without:
                raise
    return found
