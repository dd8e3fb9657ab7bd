"""What the batteries of a host deliver while nothing else feeds it.

On battery power their sum is what the whole host draws, screen and all. On mains they say nothing
of it, and reading them is refused. Their controllers bring the figure up to date every second at
best, and many only every few seconds: runs should last for minutes.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from measurements.host.files import NumberFile, number, read_text
from measurements.power.source import Channel, Reading, SensorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from measurements.power.source import SourceSettings

# The firmware is not asked more often than this.
PERIOD_S = 1.0
# Firmware counts in milliwatts or milliamperes.
_MILLI = 1e-3


def open_source(where: str | None, settings: SourceSettings) -> BatterySource:
    """Open the batteries that feed this host, or the one that `where` names, such as "BAT0".

    Raises
    ------
    SensorError
        Without a battery that tells its power, or where none delivers any.
    """
    root = settings.sysfs / "class" / "power_supply"
    folders = [folder for folder in _batteries(root) if where in (None, folder.name)]
    if not folders:
        name = "battery" if where is None else f"battery {where}"
        raise SensorError(
            f"{root}: no {name} feeds this host: use rapl, ipmi, redfish or a meter, or measure "
            "time alone"
        )
    batteries = [_Battery(folder) for folder in folders if _has_power(folder)]
    if not batteries:
        raise SensorError(
            f"{folders[0]}: it tells neither power_now nor current_now with voltage_now: use "
            "another source"
        )
    source = BatterySource(root, batteries)
    try:
        source.read()
    except SensorError:
        source.close()
        raise
    return source


class BatterySource:
    """Batteries of a host, each a channel; together they are what the host draws."""

    def __init__(self, root: Path, batteries: Sequence[_Battery]) -> None:
        self._root = root
        self._batteries = batteries
        self._channels = tuple(
            Channel(b.label, "power", "battery", resolution=b.resolution_w) for b in batteries
        )

    @property
    def channels(self) -> Sequence[Channel]:
        """One a battery."""
        return self._channels

    @property
    def period_s(self) -> float:
        """Time between two figures of the firmware."""
        return PERIOD_S

    def read(self) -> list[Reading]:
        """Read what every battery delivers (W); 0 for one that rests while another delivers.

        Raises
        ------
        SensorError
            When none delivers, as on mains.
        """
        states = [battery.status() for battery in self._batteries]
        if "Discharging" not in states:
            said = ", ".join(
                f"{battery.name} is {state}"
                for battery, state in zip(self._batteries, states, strict=True)
            )
            raise SensorError(
                f"{self._root}: no battery feeds the host ({said}), so that they say nothing of "
                "what it draws: unplug it from the mains"
            )
        readings = []
        for battery, state in zip(self._batteries, states, strict=True):
            before = time.monotonic()
            watts = battery.watts(state)
            readings.append(Reading(battery.label, (before + time.monotonic()) / 2, watts))
        return readings

    def close(self) -> None:
        """Close the files."""
        for battery in self._batteries:
            battery.close()


class _Battery:
    """One battery: its state and its watts, measured as such or as amperes times volts."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.label = f"battery:{folder.name}"
        self._status = folder / "status"
        names = ("power_now",) if _is_file(folder, "power_now") else ("current_now", "voltage_now")
        self._factors = [NumberFile(folder / name) for name in names]
        volts = (number(folder / "voltage_now") or math.nan) / 1e6
        self.resolution_w = _MILLI if len(names) == 1 else _MILLI * volts

    def status(self) -> str:
        return read_text(self._status) or "Unknown"

    def watts(self, state: str) -> float:
        figures = [file.read() for file in self._factors]
        if None in figures:
            return math.nan
        # Some drivers count a current out of the battery below zero.
        watts = math.prod(abs(figure or 0) / 1e6 for figure in figures)
        if state == "Discharging":
            return watts or math.nan
        return math.nan if watts else 0.0

    def close(self) -> None:
        for file in self._factors:
            file.close()


def _batteries(root: Path) -> Iterator[Path]:
    if not root.is_dir():
        return
    for folder in sorted(root.iterdir()):
        # The batteries of mice and keyboards have the scope "Device".
        if read_text(folder / "type") == "Battery" and read_text(folder / "scope") != "Device":
            yield folder


def _has_power(folder: Path) -> bool:
    current = _is_file(folder, "current_now") and _is_file(folder, "voltage_now")
    return current or _is_file(folder, "power_now")


def _is_file(folder: Path, name: str) -> bool:
    return (folder / name).exists()
