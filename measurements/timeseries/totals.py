"""The host's transfers from those of its disks and interfaces, each counted once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from measurements.errors import MeasurementError
from measurements.headers import shown
from measurements.timeseries.devices import physical_disks, physical_interfaces
from measurements.timeseries.schema import (
    COLUMNS,
    NETWORK_COLUMNS,
    SECTOR_BYTES,
    of_device,
    split_device,
)
from measurements.timeseries.series import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Values = dict[str, NDArray[np.float64]]

_OF_DISKS = {
    "sectors_read": ("disk_read_bytes", 1 / SECTOR_BYTES),
    "sectors_written": ("disk_written_bytes", 1 / SECTOR_BYTES),
    "ios": ("disk_ios", 1.0),
    "ios_read": ("disk_ios_read", 1.0),
    "ios_written": ("disk_ios_written", 1.0),
}


def add_totals(values: Values, disks: Sequence[str] | None, source: str) -> list[Finding]:
    """Add the columns of the host that can be made of its devices'.

    A total that the log has itself stays where it has no devices.

    Raises
    ------
    MeasurementError
        When a disk that was named is not there.
    """
    _add_ios(values)
    known = _devices(values, "disk")
    if disks is not None and (missing := [disk for disk in disks if disk not in known]):
        raise MeasurementError(
            f"{source}: has no disk {shown(missing)}; its disks are {shown(known) or 'not named'}"
        )
    chosen = physical_disks(known) if disks is None else tuple(disks)
    for total, (detail, factor) in _OF_DISKS.items():
        _add_sum(values, total, detail, chosen, factor)
    interfaces = physical_interfaces(_devices(values, "interface"))
    for column in NETWORK_COLUMNS:
        _add_sum(values, column, column, interfaces, 1.0)
    if "ios" not in values and {"ios_read", "ios_written"} <= values.keys():
        values["ios"] = values["ios_read"] + values["ios_written"]
    if known and not chosen and "sectors_read" not in values:
        return [Finding("", 0, _none_physical(known))]
    return []


def _none_physical(known: Sequence[str]) -> str:
    return (
        f"no disk of the log is known to be a physical one ({shown(known)}), so that the host's "
        "transfers are not known: name the disks to count"
    )


def _devices(values: Values, sort: str) -> list[str]:
    found: dict[str, None] = {}
    for column in values:
        base, device = split_device(column)
        own = COLUMNS[base].per_device or ("interface" if base in NETWORK_COLUMNS else "")
        if device and own == sort:
            found[device] = None
    return list(found)


def _add_ios(values: Values) -> None:
    for device in _devices(values, "disk"):
        both = [of_device(name, device) for name in ("disk_ios_read", "disk_ios_written")]
        total = of_device("disk_ios", device)
        if total not in values and all(name in values for name in both):
            values[total] = values[both[0]] + values[both[1]]


def _add_sum(
    values: Values, total: str, detail: str, devices: Sequence[str], factor: float
) -> None:
    names = [of_device(detail, device) for device in devices]
    parts = [values[name] for name in names if name in values]
    if not parts:
        return
    summed = np.zeros(len(parts[0]))
    unknown = np.ones(len(parts[0]), bool)
    for part in parts:
        there = ~np.isnan(part)
        summed[there] += part[there] * factor
        unknown &= ~there
    summed[unknown] = np.nan
    values[total] = summed
