"""Power sensors and energy counters of the kernel's hwmon class.

Labels are made of the driver's name and the sensor's: "hwmon:power_meter/power1", or with the name
that the driver gives it "hwmon:amdgpu/PPT". Two devices of one driver are told apart by their bus
address. What a sensor covers is known of some drivers only; of all others it is "other", which is
for the user to know.

Where a driver has both a mean and a momentary figure of a sensor, the mean is read, since nothing
between two readings escapes it. Where it has an energy counter as well, the watts of the same
sensor are `inside` the counter.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from measurements.host.files import NumberFile, number, read_text
from measurements.power.source import Channel, Reading, SensorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from measurements.power.source import Domain, SourceSettings

_MICRO = 1e-6
_SENSOR = re.compile(r"(?P<quantity>power|energy)(?P<number>\d+)_(?:input|average)")
# What a driver's sensors cover, by the beginning of their label: the first that fits holds.
_COVERS: dict[str, tuple[tuple[str, Domain], ...]] = {
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
# Beginnings of the labels of a whole and of its parts; where there are several wholes, whose a part
# is cannot be told.
_CONTAINS = {
    "amd_energy": ("Esocket", "Ecore"),
    "corsairpsu": ("power total", "power +"),
    "ibmpowernv": ("System", ""),
    "xe": ("card", "pkg"),
}
# An ACPI meter that has no figure says 0xFFFFFFFF mW; nothing here draws a megawatt (W).
_IMPOSSIBLE_W = 1e6
# Whatever runs this draws more than 0 W.
_NEVER_ZERO = ("host", "package")
# An ACPI meter counts in milliwatts (W).
_STEP_W = {"power_meter": 1e-3}


class _Device(NamedTuple):
    """A hwmon device: its folder, the folder of its attributes, its driver and its bus address."""

    folder: Path
    attributes: Path
    driver: str
    address: str


@dataclass(frozen=True, slots=True)
class _Sensor:
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
        return read_text(self.device.attributes / f"{self.name}_label") or None

    @property
    def label(self) -> str:
        return self.given_label or self.name

    @property
    def is_mean(self) -> bool:
        return self.path.name.endswith("_average")

    def is_figure_of(self, other: _Sensor) -> bool:
        """Whether both are of one sensor: of the same label, or number where there is none."""
        if self.given_label is None:
            return self.number == other.number
        return self.given_label == other.given_label


def open_source(where: str | None, settings: SourceSettings) -> HwmonSource:
    """Open the power sensors of all drivers, or of the one that `where` names.

    Raises
    ------
    SensorError
        Where there is none, or none that can be read.
    """
    root = settings.sysfs / "class" / "hwmon"
    devices = list(_devices(root))
    if where is not None:
        names = sorted({device.driver for device in devices})
        devices = [d for d in devices if where in (d.driver, d.folder.name, d.address)]
        if not devices:
            known = f"the drivers there are {', '.join(names)}" if names else "there is no driver"
            raise SensorError(f"{root}: no driver is called {where!r}: {known}")
    sensors = [sensor for device in devices for sensor in _sensors(device)]
    if not sensors:
        raise SensorError(
            f"{root}: no power or energy sensor: load the driver of the board's "
            "(sudo modprobe acpi_power_meter; sudo sensors-detect finds others), or use ipmi, "
            "redfish or a meter"
        )
    return HwmonSource(root, sensors)


class HwmonSource:
    """Power sensors and energy counters, open. A sensor that fails is a reading of NaN."""

    def __init__(self, root: Path, sensors: Sequence[_Sensor]) -> None:
        self._root = root
        self._channels = _channels(sensors)
        self._files = [NumberFile(sensor.path) for sensor in sensors]
        try:
            self.read()
        except SensorError:
            self.close()
            raise
        self._channels = tuple(
            replace(channel, note=file.remedy) if file.denied else channel
            for channel, file in zip(self._channels, self._files, strict=True)
        )

    @property
    def channels(self) -> Sequence[Channel]:
        """One a sensor."""
        return self._channels

    @property
    def period_s(self) -> float:
        """Shortest window of the means; 0 where a figure is momentary or a counter."""
        return min(channel.window_s for channel in self._channels)

    def read(self) -> list[Reading]:
        """Read every sensor; NaN for one that does not answer.

        Raises
        ------
        SensorError
            When none answers.
        """
        readings = []
        answers = 0
        for channel, file in zip(self._channels, self._files, strict=True):
            before = time.monotonic()
            value = file.read()
            at_s = (before + time.monotonic()) / 2
            answers += value is not None
            readings.append(Reading(channel.label, at_s, _figure(channel, value)))
        if not answers:
            raise SensorError(self._why_unreadable())
        return readings

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


def _devices(root: Path) -> Iterator[_Device]:
    if not root.is_dir():
        return
    for folder in sorted(root.iterdir(), key=lambda path: (len(path.name), path.name)):
        link = folder / "device"
        place = link.resolve() if link.exists() else folder
        # A battery says as many watts when it is charged: that is for the source "battery".
        if place.parent.name == "power_supply":
            continue
        # Older drivers put their files with the device itself.
        for attributes in (folder, link):
            driver = read_text(attributes / "name") or read_text(folder / "name")
            device = _Device(folder, attributes, driver or folder.name, place.name)
            if _sensors(device):
                yield device
                break


def _sensors(device: _Device) -> list[_Sensor]:
    """Sensors by kind and number, each with its mean rather than its momentary figure."""
    found: dict[tuple[str, int], _Sensor] = {}
    try:
        entries = sorted(device.attributes.iterdir())
    except OSError:
        return []
    # "average" comes before "input".
    for path in entries:
        match = _SENSOR.fullmatch(path.name)
        if match:
            quantity, index = match["quantity"], match["number"]
            found.setdefault((quantity, int(index)), _Sensor(device, quantity, index, path))
    return [found[key] for key in sorted(found)]


def _channels(sensors: Sequence[_Sensor]) -> tuple[Channel, ...]:
    labels = _labels(sensors)
    return tuple(
        _channel(sensor, labels[index], _container(sensor, sensors, labels))
        for index, sensor in enumerate(sensors)
    )


def _labels(sensors: Sequence[_Sensor]) -> list[str]:
    devices = list(dict.fromkeys(sensor.device for sensor in sensors))
    names = _told_apart([_names_of(device) for device in devices])
    device_names = dict(zip(devices, names, strict=True))
    return _told_apart(
        [
            (
                f"hwmon:{device_names[s.device]}/{s.label}",
                f"hwmon:{device_names[s.device]}/{s.label}/{s.quantity}",
                f"hwmon:{device_names[s.device]}/{s.name}",
            )
            for s in sensors
        ]
    )


def _names_of(device: _Device) -> tuple[str, ...]:
    driver = device.driver
    return driver, f"{driver}-{device.address}", f"{driver}-{device.folder.name}"


def _told_apart(names: Sequence[tuple[str, ...]]) -> list[str]:
    """Choose the first of each one's names that no other has at the same place."""
    counts = [Counter(column) for column in zip(*names, strict=True)]
    return [
        next((n for n, count in zip(own, counts, strict=True) if count[n] == 1), own[-1])
        for own in names
    ]


def _container(sensor: _Sensor, sensors: Sequence[_Sensor], labels: Sequence[str]) -> str | None:
    """Label of the sensor whose figure contains this one's."""
    whole, part = _CONTAINS.get(sensor.device.driver, ("\0", "\0"))
    wholes = []
    for other, label in zip(sensors, labels, strict=True):
        if other.device != sensor.device or other == sensor:
            continue
        if (sensor.quantity, other.quantity) == ("power", "energy") and sensor.is_figure_of(other):
            return label
        if sensor.quantity == other.quantity and other.label.startswith(whole):
            wholes.append(label)
    is_part = sensor.label.startswith(part) and not sensor.label.startswith(whole)
    return wholes[0] if is_part and len(wholes) == 1 else None


def _channel(sensor: _Sensor, label: str, inside: str | None) -> Channel:
    device = sensor.device
    covers = _COVERS.get(device.driver, (("", "other"),))
    domain = next(domain for start, domain in covers if sensor.label.startswith(start))
    if sensor.quantity == "energy":
        return Channel(label, "energy", domain, resolution=_MICRO, inside=inside)
    interval_ms = number(device.attributes / f"{sensor.name}_average_interval")
    untold = sensor.is_mean and not interval_ms
    return Channel(
        label,
        "power",
        domain,
        resolution=_STEP_W.get(device.driver, math.nan),
        window_s=(interval_ms or 0) / 1000 if sensor.is_mean else 0.0,
        inside=inside,
        note="a mean over a time that the driver does not tell" if untold else "",
    )


def _figure(channel: Channel, value: int | None) -> float:
    if value is None:
        return math.nan
    if channel.quantity == "energy":
        return value / 1e6 if value >= 0 else math.nan
    watts = value / 1e6
    if abs(watts) >= _IMPOSSIBLE_W or (watts <= 0 and channel.domain in _NEVER_ZERO):
        return math.nan
    return watts
