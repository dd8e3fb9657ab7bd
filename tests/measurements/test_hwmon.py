"""hwmon devices in sysfs trees, which lm-sensors reads too."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from peers.powercap import private_sys

from measurements.power import hwmon
from measurements.power.protocol import SensorError, SourceSettings
from measurements.power.registry import open_source, parse_spec

ROOT = Path(__file__).resolve().parents[2]
NAN = pytest.approx(math.nan, nan_ok=True)


def values(source: hwmon.HwmonSource) -> dict[str, float]:
    return {reading.label: reading.value for reading in source.read()}


def write(folder: Path, **texts: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(f"{text}\n")


class Boards:
    """A tree of hwmon devices, as links from ``class/hwmon`` to where the drivers put them."""

    def __init__(self, root: Path) -> None:
        self.settings = SourceSettings(sysfs=root, procfs=root / "proc")
        self.classes = root / "class" / "hwmon"
        self.devices = root / "devices" / "boards"
        self.classes.mkdir(parents=True)
        self.devices.mkdir(parents=True)

    def add(self, name: str, address: str, bus: str = "pci", **figures: object) -> Path:
        """Add a device whose driver keeps its files in the hwmon folder."""
        folder = self._folder(address, bus)
        write(folder, name=name, **figures)
        return folder

    def add_older(self, name: str, address: str, bus: str = "acpi", **figures: object) -> Path:
        """Add a device whose driver keeps its files with the device."""
        device = self._folder(address, bus).parent.parent
        write(device, name=name, **figures)
        return device

    def mounts(self) -> dict[str, Path]:
        return {"/sys/devices/boards": self.devices, "/sys/class/hwmon": self.classes}

    def open(self, where: str | None = None) -> hwmon.HwmonSource:
        return hwmon.open_source(where, self.settings)

    def _folder(self, address: str, bus: str) -> Path:
        number = len(list(self.classes.iterdir()))
        folder = self.devices / address / "hwmon" / f"hwmon{number}"
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(Path("..", ".."))
        (folder.parent.parent / "subsystem").symlink_to(Path("..", "..", "..", "bus", bus))
        (self.classes / folder.name).symlink_to(os.path.relpath(folder, self.classes))
        return folder


@pytest.fixture
def boards(tmp_path: Path) -> Boards:
    return Boards(tmp_path / "sys")


def meter(boards: Boards, **figures: object) -> Path:
    texts = {"power1_average": 228_000_000, "power1_average_interval": 300_000, **figures}
    return boards.add_older("power_meter", "ACPI000D:00", **texts)


def test_acpi_meter_is_the_host_over_a_window(boards: Boards) -> None:
    meter(boards, power1_is_battery=0, power1_accuracy="90.0%")
    source = boards.open()
    (channel,) = source.channels
    assert (channel.label, channel.quantity, channel.domain) == (
        "hwmon:power_meter/power1",
        "power",
        "host",
    )
    assert (channel.window_s, channel.resolution) == (300.0, 1e-3)
    assert source.period_s == 300.0
    assert values(source) == {"hwmon:power_meter/power1": 228.0}
    source.close()
    source.close()


@pytest.mark.parametrize("figure", [0, 0xFFFFFFFF * 1000, -1000, "", "unknown"])
def test_meter_without_a_figure_is_missing(boards: Boards, figure: object) -> None:
    device = meter(boards)
    boards.add("amdgpu", "0000:03:00.0", power1_average=0)
    source = boards.open()
    (device / "power1_average").write_text(f"{figure}\n")
    # A graphics processor that sleeps draws nothing.
    assert values(source) == {"hwmon:power_meter/power1": NAN, "hwmon:amdgpu/power1": 0.0}
    (device / "power1_average").write_text("300000000\n")
    assert values(source)["hwmon:power_meter/power1"] == 300.0
    source.close()


def test_drivers_say_what_their_sensors_cover(boards: Boards) -> None:
    boards.add("coretemp", "coretemp.0", temp1_input=45_000)
    boards.add(
        "zenpower",
        "0000:00:18.3",
        power1_input=40_000_000,
        power1_label="SVI2_P_Core",
        power2_input=9_000_000,
        power2_label="SVI2_P_SoC",
    )
    boards.add("fam15h_power", "0000:00:18.4", power1_input=60_000_000, power1_crit=115_000_000)
    boards.add("ina226", "1-0040", power1_input=-1_500_000)
    boards.add("i915", "0000:00:02.0", energy1_input=5_250_000)
    source = boards.open()
    assert {c.label: (c.quantity, c.domain) for c in source.channels} == {
        "hwmon:zenpower/SVI2_P_Core": ("power", "core"),
        "hwmon:zenpower/SVI2_P_SoC": ("power", "uncore"),
        "hwmon:fam15h_power/power1": ("power", "package"),
        "hwmon:ina226/power1": ("power", "other"),
        "hwmon:i915/energy1": ("energy", "gpu"),
    }
    assert source.period_s == 0.0
    assert list(values(source).values()) == [40.0, 9.0, 60.0, -1.5, 5.25]
    source.close()


def test_mean_is_preferred_to_a_moment(boards: Boards) -> None:
    boards.add("amdgpu", "0000:03:00.0", power1_average=30_000_000, power1_input=90_000_000)
    source = boards.open()
    assert values(source) == {"hwmon:amdgpu/power1": 30.0}
    assert source.channels[0].window_s == 0.0
    assert source.channels[0].note == "a mean over a time that the driver does not tell"
    source.close()


def test_moment_has_no_window(boards: Boards) -> None:
    boards.add("fam15h_power", "0000:00:18.4", power1_input=1, power1_average_interval=1000)
    source = boards.open()
    assert source.channels[0].window_s == 0.0
    source.close()


def test_parts_and_second_figures_are_inside_their_whole(boards: Boards) -> None:
    boards.add(
        "xe",
        "0000:04:00.0",
        energy1_input=1,
        energy1_label="card",
        energy2_input=1,
        energy2_label="pkg",
        power1_input=1_000_000,
        power1_label="card",
    )
    boards.add("ina238", "1-0041", power1_input=1_000_000, energy1_input=1)
    socket = {"energy1_input": 1, "energy1_label": "Ecore000"}
    boards.add("amd_energy", "amd_energy.0", energy2_input=1, energy2_label="Esocket0", **socket)
    rails = {"power1_label": "power total", "power2_label": "power +12v", "power2_input": 2_000_000}
    boards.add("corsairpsu", "0003:1B1C", power1_input=3_000_000, **rails)
    source = boards.open()
    assert {c.label: c.inside for c in source.channels if c.inside} == {
        "hwmon:xe/pkg": "hwmon:xe/card/energy",
        "hwmon:xe/card/power": "hwmon:xe/card/energy",
        "hwmon:ina238/power1": "hwmon:ina238/energy1",
        "hwmon:amd_energy/Ecore000": "hwmon:amd_energy/Esocket0",
        "hwmon:corsairpsu/power +12v": "hwmon:corsairpsu/power total",
    }
    source.close()


def test_cores_of_two_sockets_are_inside_neither(boards: Boards) -> None:
    sockets = {
        "energy1_label": "Ecore000",
        "energy2_label": "Esocket0",
        "energy3_label": "Esocket1",
    }
    figures = {f"energy{number}_input": 1 for number in (1, 2, 3)}
    boards.add("amd_energy", "amd_energy.0", **figures, **sockets)
    source = boards.open()
    assert {c.label: (c.domain, c.inside) for c in source.channels} == {
        "hwmon:amd_energy/Ecore000": ("core", None),
        "hwmon:amd_energy/Esocket0": ("package", None),
        "hwmon:amd_energy/Esocket1": ("package", None),
    }
    source.close()


def test_devices_and_sensors_of_one_name_are_told_apart(boards: Boards) -> None:
    boards.add("amdgpu", "0000:03:00.0", power1_input=1_000_000, power1_label="PPT")
    boards.add("amdgpu", "0000:83:00.0", power1_input=2_000_000, power1_label="PPT")
    same = {"power1_label": "rail", "power2_label": "rail"}
    boards.add("pmbus", "3-0058", power1_input=3_000_000, power2_input=4_000_000, **same)
    source = boards.open()
    assert values(source) == {
        "hwmon:amdgpu-0000:03:00.0/PPT": 1.0,
        "hwmon:amdgpu-0000:83:00.0/PPT": 2.0,
        "hwmon:pmbus/power1": 3.0,
        "hwmon:pmbus/power2": 4.0,
    }
    source.close()


@pytest.mark.parametrize("where", ["amdgpu", "0000:03:00.0", "hwmon1"])
def test_address_is_a_driver_or_a_device(boards: Boards, where: str) -> None:
    meter(boards)
    boards.add("amdgpu", "0000:03:00.0", power1_input=1_000_000)
    source = open_source(parse_spec(f"hwmon@{where}"), boards.settings)
    assert values(source) == {"hwmon:amdgpu/power1": 1.0}
    source.close()


def test_unknown_driver_names_those_there_are(boards: Boards) -> None:
    meter(boards)
    with pytest.raises(SensorError, match=r"no driver is called 'ina226': .* are power_meter$"):
        boards.open("ina226")


def test_board_without_power_sensors_says_so(boards: Boards, tmp_path: Path) -> None:
    boards.add("coretemp", "coretemp.0", temp1_input=45_000)
    with pytest.raises(SensorError, match="sudo modprobe acpi_power_meter"):
        boards.open()
    nothing = SourceSettings(sysfs=tmp_path / "nothing")
    with pytest.raises(SensorError, match="class/hwmon: no power or energy sensor"):
        hwmon.open_source(None, nothing)


def test_batteries_are_left_to_their_own_source(boards: Boards) -> None:
    meter(boards)
    hidden = boards.devices / "power_supply" / "BAT0" / "hwmon7"
    write(hidden, name="BAT0", power1_input=30_000_000)
    (hidden / "device").symlink_to("..")
    (boards.classes / "hwmon7").symlink_to(os.path.relpath(hidden, boards.classes))
    source = boards.open()
    assert [c.label for c in source.channels] == ["hwmon:power_meter/power1"]
    source.close()


def test_sensor_that_fails_is_missing_and_all_failing_is_an_error(boards: Boards) -> None:
    meter(boards)
    folder = boards.add("amdgpu", "0000:03:00.0", power1_input=1_000_000)
    source = boards.open()
    (folder / "power1_input").unlink()
    # Reading gives EIO, as of a device that does not answer.
    (folder / "power1_input").symlink_to("/proc/self/mem")
    source.close()
    assert values(source) == {"hwmon:power_meter/power1": 228.0, "hwmon:amdgpu/power1": NAN}
    (boards.devices / "ACPI000D:00" / "power1_average").write_text("\n")
    with pytest.raises(SensorError, match=r"none of its 2 power sensors answers .*no number"):
        source.read()
    source.close()


AS_NOBODY = """
import os, sys
from measurements.power.protocol import SensorError, SourceSettings
from measurements.power.registry import open_source, parse_spec
from measurements.power import hwmon
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    source = open_source(parse_spec("hwmon"), SourceSettings())
except SensorError as error:
    print(error)
else:
    print([(c.label, c.note) for c in source.channels], [r.value for r in source.read()])
"""


def in_private_sys(mounts: dict[str, Path], *command: str) -> str:
    done = subprocess.run(
        private_sys(mounts, command),
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sensor_that_may_not_be_read_names_the_remedy(boards: Boards) -> None:
    folder = boards.add("amd_energy", "amd_energy.0", energy1_input=7_000_000)
    (folder / "energy1_input").chmod(0o400)
    said = in_private_sys(boards.mounts(), sys.executable, "-c", AS_NOBODY)
    path = "/sys/class/hwmon/hwmon0/energy1_input"
    assert said == f"{path}: Permission denied: sudo chmod a+r {path}, or run as root\n"
    meter(boards)
    said = in_private_sys(boards.mounts(), sys.executable, "-c", AS_NOBODY)
    assert f"('hwmon:amd_energy/energy1', 'not readable: sudo chmod a+r {path}')" in said
    assert said.endswith("[nan, 228.0]\n")


def test_lm_sensors_reads_the_same_watts(boards: Boards) -> None:
    meter(boards)
    boards.add("amdgpu", "0000:03:00.0", power1_average=31_500_000, power1_label="PPT")
    boards.add("i915", "0000:00:02.0", energy1_input=5_250_000)
    seen = json.loads(in_private_sys(boards.mounts(), "sensors", "-j"))
    source = boards.open()
    ours = values(source)
    acpi = seen["power_meter-acpi-0"]["power1"]
    assert ours["hwmon:power_meter/power1"] == acpi["power1_average"]
    assert source.channels[0].window_s == acpi["power1_average_interval"]
    assert ours["hwmon:amdgpu/PPT"] == seen["amdgpu-pci-0300"]["PPT"]["power1_average"]
    assert ours["hwmon:i915/energy1"] == seen["i915-pci-0010"]["energy1"]["energy1_input"]
    source.close()
