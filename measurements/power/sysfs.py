"""Power sensors in sysfs: the kernel's hwmon class, and batteries.

Labels of hwmon are the driver's name and the sensor's: "hwmon:power_meter/power1", or with the
label that the driver gives it "hwmon:amdgpu/PPT". Two devices of one driver differ by their bus
address. Of unknown drivers the domain is "other". Where a sensor has both a mean and a momentary
figure, the mean is read, which misses nothing between two readings. Where it also has an energy
counter, its power is `inside` the counter.

On battery power the sum of all batteries is what the whole host draws, screen included. On mains
they tell nothing of it, and are refused. Their controllers update the figure every second at best,
and many only every few seconds: runs should last for minutes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from measurements.errors import on_error
from measurements.host import files
from measurements.power import source

_MICRO, _MILLI = 1e-6, 1e-3
_SENSOR = re.compile(r"(?P<quantity>power|energy)(?P<number>\d+)_(?:input|average)")
# Domain of a driver's sensors by the beginning of their label; the first match holds.
_DOMAINS: dict[str, tuple[tuple[str, source.Domain], ...]] = {
    "power_meter": (("", "host"),),
    "corsairpsu": (("power total", "host"), ("", "other")),
    "ibmpowernv": (("System", "host"), ("Proc", "package"), ("Chip", "package"), ("", "other")),
    "fam15h_power": (("", "package"),),
    "amd_energy": (("Esocket", "package"), ("Ecore", "core"), ("", "other")),
    "zenpower": (("SVI2_P_Core", "core"), ("SVI2_P_SoC", "uncore"), ("", "other")),
    "amdgpu": (("", "gpu"),),
    "nouveau": (("", "gpu"),),
    "i915": (("", "gpu"),),
    "xe": (("", "gpu"),),
}
# Beginnings of the labels of a whole and of its parts. With several wholes, nobody can tell which
# one contains a part.
_CONTAINS = {
    "amd_energy": ("Esocket", "Ecore"),
    "corsairpsu": ("power total", "power +"),
    "ibmpowernv": ("System", ""),
    "xe": ("card", "pkg"),
}
# An ACPI meter without a figure answers 0xFFFFFFFF mW; nothing here draws a megawatt (W).
_IMPOSSIBLE_W = 1e6
# The host that runs this draws more than 0 W.
_NEVER_ZERO = ("host", "package")
# An ACPI meter counts in milliwatts (W).
_STEP_W = {"power_meter": 1e-3}
# The firmware of a battery is not asked more often than this.
BATTERY_PERIOD_S = 1.0


class _Device(NamedTuple):
    """A hwmon device: its folder, the folder of its attributes, its driver and its bus address."""

    folder: Path
    attributes: Path
    driver: str
    address: str


class _Sensor(NamedTuple):
    """A figure of a device, such as its ``power1_average``."""

    device: _Device
    quantity: str
    number: str
    path: Path

    @property
    def name(self) -> str:
        return self.quantity + self.number

    @property
    def given_label(self) -> str | None:
        return files.read_text(self.device.attributes / f"{self.name}_label")

    @property
    def label(self) -> str:
        return self.given_label or self.name

    def measures_same(self, other: _Sensor) -> bool:
        """Check whether both have the same label, or the same number if there is no label."""
        label = self.given_label
        return self.number == other.number if label is None else label == other.given_label


def open_hwmon(where: str | None, settings: source.SourceSettings) -> HwmonSource:
    """Open the power sensors of all drivers, or of the driver, folder or address ``where``."""
    root = settings.sysfs / "class" / "hwmon"
    sensors = _find_sensors(root)
    if where is not None:
        names = ", ".join(sorted({sensor.device.driver for sensor in sensors}))
        devices = ((s, s.device) for s in sensors)
        sensors = [s for s, d in devices if where in (d.driver, d.folder.name, d.address)]
        if not sensors:
            known = f"the drivers there are {names}" if names else "there is no driver"
            raise source.SensorError(f"{root}: no driver is called {where!r}: {known}")
    if not sensors:
        raise source.SensorError(
            f"{root}: no power or energy sensor: load the driver of the board's power sensor (sudo "
            "modprobe acpi_power_meter; sudo sensors-detect finds other drivers), or use ipmi, "
            "redfish or a meter"
        )
    return HwmonSource(root, sensors)


class HwmonSource:
    """Power sensors and energy counters. A sensor that fails reads NaN."""

    def __init__(self, root: Path, sensors: Sequence[_Sensor]) -> None:
        self._root = root
        devices = list(dict.fromkeys(sensor.device for sensor in sensors))
        forms = [
            (d.driver, f"{d.driver}-{d.address}", f"{d.driver}-{d.folder.name}") for d in devices
        ]
        names = dict(zip(devices, _unique_names(forms), strict=True))
        ends = [(s, (s.label, f"{s.label}/{s.quantity}", s.name)) for s in sensors]
        labels = _unique_names(
            [tuple(f"hwmon:{names[s.device]}/{e}" for e in own) for s, own in ends]
        )
        self.channels = tuple(
            _make_channel(sensor, label, _container(sensor, sensors, labels))
            for sensor, label in zip(sensors, labels, strict=True)
        )
        self.period_s = min(channel.window_s for channel in self.channels)
        self._files = [files.NumberFile(sensor.path) for sensor in sensors]
        with on_error(self.close):
            self.read()
        self.channels = tuple(
            replace(channel, note=file.remedy) if file.denied else channel
            for channel, file in zip(self.channels, self._files, strict=True)
        )

    def read(self) -> list[source.Reading]:
        """Read every sensor; raise `SensorError` if none answers."""
        answers = [source.time_call(file.read) for file in self._files]
        if all(value is None for value, _ in answers):
            raise source.SensorError(self._why_unreadable())
        return [
            source.Reading(channel.label, at_s, _convert_figure(channel, value))
            for channel, (value, at_s) in zip(self.channels, answers, strict=True)
        ]

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def _why_unreadable(self) -> str:
        for file in self._files:
            if file.denied:
                return f"{file.path}: {file.problem}: sudo chmod a+r {file.path}, or run as root"
        first = self._files[0]
        return (
            f"{self._root}: none of its {len(self._files)} power sensors answers ({first.path}: "
            f"{first.problem}): is its driver still loaded, its device awake?"
        )


def _convert_figure(channel: source.Channel, value: int | None) -> float:
    """Convert to energy (J) or power (W); NaN where the sensor has no credible figure."""
    if value is None:
        return math.nan
    figure = value / 1e6
    if channel.quantity == "energy":
        return figure if figure >= 0 else math.nan
    if abs(figure) >= _IMPOSSIBLE_W or (figure <= 0 and channel.domain in _NEVER_ZERO):
        return math.nan
    return figure


def _find_sensors(root: Path) -> list[_Sensor]:
    found: list[_Sensor] = []
    folders = root.iterdir() if root.is_dir() else ()
    for folder in sorted(folders, key=lambda path: (len(path.name), path.name)):
        link = folder / "device"
        place = link.resolve() if link.exists() else folder
        # A battery shows the power of charging here, too; `open_batteries` knows better.
        if place.parent.name == "power_supply":
            continue
        # Older drivers put their files with the device itself.
        for attributes in (folder, link):
            driver = files.read_text(attributes / "name") or files.read_text(folder / "name")
            device = _Device(folder, attributes, driver or folder.name, place.name)
            if sensors := _sensors_of(device):
                found += sensors
                break
    return found


def _sensors_of(device: _Device) -> list[_Sensor]:
    """List the sensors by kind and number, with their mean rather than their momentary figure."""
    found: dict[tuple[str, int], _Sensor] = {}
    # "average" comes before "input".
    for path in sorted(device.attributes.glob("*_*")):
        if match := _SENSOR.fullmatch(path.name):
            quantity, index = match["quantity"], match["number"]
            found.setdefault((quantity, int(index)), _Sensor(device, quantity, index, path))
    return [found[key] for key in sorted(found)]


def _unique_names(candidates: Sequence[tuple[str, ...]]) -> list[str]:
    """Choose each one's first name that no other has in the same position, else its last."""
    counts = [Counter(column) for column in zip(*candidates, strict=True)]
    return [
        next((name for name, count in zip(own, counts, strict=True) if count[name] == 1), own[-1])
        for own in candidates
    ]


def _container(sensor: _Sensor, sensors: Sequence[_Sensor], labels: Sequence[str]) -> str | None:
    """Find the label of the sensor that contains this one."""
    whole, part = _CONTAINS.get(sensor.device.driver, ("\0", "\0"))
    wholes = []
    for other, label in zip(sensors, labels, strict=True):
        if other.device != sensor.device or other == sensor:
            continue
        if (sensor.quantity, other.quantity) == ("power", "energy") and sensor.measures_same(other):
            return label
        if sensor.quantity == other.quantity and other.label.startswith(whole):
            wholes.append(label)
    is_part = sensor.label.startswith(part) and not sensor.label.startswith(whole)
    return wholes[0] if is_part and len(wholes) == 1 else None


def _make_channel(sensor: _Sensor, label: str, inside: str | None) -> source.Channel:
    device = sensor.device
    domains = _DOMAINS.get(device.driver, (("", "other"),))
    domain = next(domain for start, domain in domains if sensor.label.startswith(start))
    if sensor.quantity == "energy":
        return source.Channel(label, "energy", domain, resolution=_MICRO, inside=inside)
    interval_ms = files.read_number(device.attributes / f"{sensor.name}_average_interval") or 0
    is_mean = sensor.path.name.endswith("_average")
    return source.Channel(
        label,
        "power",
        domain,
        resolution=_STEP_W.get(device.driver, math.nan),
        window_s=interval_ms / 1000 if is_mean else 0.0,
        inside=inside,
        note="a mean over a time that the driver does not state" * (is_mean and not interval_ms),
    )


def open_batteries(where: str | None, settings: source.SourceSettings) -> BatterySource:
    """Open the batteries that feed this host, or the one called ``where``, such as "BAT0"."""
    root = settings.sysfs / "class" / "power_supply"
    # The batteries of mice and keyboards have the scope "Device".
    folders = [
        folder
        for folder in (sorted(root.iterdir()) if root.is_dir() else ())
        if files.read_field(folder / "type") == "Battery"
        and files.read_field(folder / "scope") != "Device"
        and where in (None, folder.name)
    ]
    if not folders:
        name = "battery" if where is None else f"battery {where}"
        raise source.SensorError(
            f"{root}: no {name} feeds this host: use rapl, ipmi, redfish or a meter, or measure "
            "time alone"
        )
    batteries = [_Battery(folder, names) for folder in folders if (names := _power_names(folder))]
    if not batteries:
        raise source.SensorError(
            f"{folders[0]}: it tells neither power_now nor current_now with voltage_now: use "
            "another source"
        )
    opened = BatterySource(root, batteries)
    with on_error(opened.close):
        opened.read()
    return opened


class BatterySource:
    """Batteries of a host, each a channel; together they feed the host."""

    period_s = BATTERY_PERIOD_S

    def __init__(self, root: Path, batteries: Sequence[_Battery]) -> None:
        self._root = root
        self._batteries = batteries
        self.channels = tuple(
            source.Channel(b.label, "power", "battery", resolution=b.resolution_w)
            for b in batteries
        )

    def read(self) -> list[source.Reading]:
        """Read what every battery delivers (W), 0 for an idle one; raise if none delivers."""
        states = [battery.update_state() for battery in self._batteries]
        if "Discharging" not in states:
            said = ", ".join(f"{battery.name} is {battery.state}" for battery in self._batteries)
            raise source.SensorError(
                f"{self._root}: no battery feeds the host ({said}), so they do "
                "not show the power of the host: unplug it from the mains"
            )
        answers = [(b.label, source.time_call(b.read_power)) for b in self._batteries]
        return [source.Reading(label, at_s, watts) for label, (watts, at_s) in answers]

    def close(self) -> None:
        """Close the files."""
        for battery in self._batteries:
            for file in battery.factors:
                file.close()


class _Battery:
    """One battery: its state, and the files whose product is its power."""

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        self.name, self.label = folder.name, f"battery:{folder.name}"
        self.state = "Unknown"
        self._folder = folder
        self.factors = [files.NumberFile(folder / name) for name in names]
        volts = (files.read_number(folder / "voltage_now") or math.nan) / 1e6
        # Firmware counts in milliwatts or milliamperes.
        self.resolution_w = _MILLI if len(names) == 1 else _MILLI * volts

    def update_state(self) -> str:
        self.state = files.read_text(self._folder / "status") or "Unknown"
        return self.state

    def read_power(self) -> float:
        """Read the power delivered (W); 0 where no current flows, NaN while charging."""
        figures = [file.read() for file in self.factors]
        if None in figures:
            return math.nan
        # Some drivers count a current out of the battery below zero.
        watts = math.prod(abs(figure or 0) / 1e6 for figure in figures)
        if self.state == "Discharging":
            return watts or math.nan
        return math.nan if watts else 0.0


def _power_names(folder: Path) -> tuple[str, ...]:
    for names in (("power_now",), ("current_now", "voltage_now")):
        if all((folder / name).exists() for name in names):
            return names
    return ()
