"""Batteries in sysfs trees, which psutil reads too."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from peers.powercap import private_sys

from measurements.power import battery
from measurements.power.protocol import SensorError, SourceSettings
from measurements.power.registry import open_source, parse_spec

if TYPE_CHECKING:
    from pathlib import Path

NAN = pytest.approx(math.nan, nan_ok=True)


def values(source: battery.BatterySource) -> dict[str, float]:
    return {reading.label: reading.value for reading in source.read()}


def write(folder: Path, **texts: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(f"{text}\n")


class Laptop:
    """A tree of power supplies."""

    def __init__(self, root: Path) -> None:
        self.settings = SourceSettings(sysfs=root)
        self.supplies = root / "class" / "power_supply"
        self.supplies.mkdir(parents=True)

    def add(self, name: str, status: str = "Discharging", **figures: object) -> Path:
        folder = self.supplies / name
        write(folder, type="Battery", status=status, **figures)
        return folder

    def open(self, where: str | None = None) -> battery.BatterySource:
        return battery.open_source(where, self.settings)


@pytest.fixture
def laptop(tmp_path: Path) -> Laptop:
    return Laptop(tmp_path / "sys")


def test_battery_counts_watts(laptop: Laptop) -> None:
    write(laptop.supplies / "AC", type="Mains", online=0)
    laptop.add("BAT0", power_now=12_345_000)
    laptop.add("hidpp_battery_0", scope="Device", voltage_now=4_000_000, current_now=1_000)
    source = laptop.open()
    (channel,) = source.channels
    assert (channel.label, channel.quantity, channel.domain, channel.resolution) == (
        "battery:BAT0",
        "power",
        "battery",
        1e-3,
    )
    assert source.period_s == 1.0
    assert values(source) == {"battery:BAT0": 12.345}
    source.close()
    source.close()


@pytest.mark.parametrize("current_now", [1_500_000, -1_500_000])
def test_battery_counts_amperes(laptop: Laptop, current_now: int) -> None:
    laptop.add("BAT0", current_now=current_now, voltage_now=12_000_000)
    source = laptop.open()
    assert values(source) == {"battery:BAT0": pytest.approx(18.0)}
    assert source.channels[0].resolution == pytest.approx(0.012)
    source.close()


def test_two_batteries_of_which_one_rests(laptop: Laptop) -> None:
    first = laptop.add("BAT0", power_now=9_000_000)
    second = laptop.add("BAT1", "Not charging", power_now=0)
    source = laptop.open()
    assert values(source) == {"battery:BAT0": 9.0, "battery:BAT1": 0.0}
    write(first, status="Not charging", power_now=0)
    write(second, status="Discharging", power_now=8_000_000)
    assert values(source) == {"battery:BAT0": 0.0, "battery:BAT1": 8.0}
    write(first, status="Charging", power_now=5_000_000)
    assert values(source) == {"battery:BAT0": NAN, "battery:BAT1": 8.0}
    source.close()


def test_battery_without_a_figure_yet_is_missing(laptop: Laptop) -> None:
    folder = laptop.add("BAT0", power_now=0)
    source = laptop.open()
    assert values(source) == {"battery:BAT0": NAN}
    write(folder, power_now=11_000_000)
    assert values(source) == {"battery:BAT0": 11.0}
    write(folder, power_now="")
    assert values(source) == {"battery:BAT0": NAN}
    source.close()


@pytest.mark.parametrize("status", ["Charging", "Full", "Not charging", "Unknown"])
def test_on_mains_a_battery_says_nothing(laptop: Laptop, status: str) -> None:
    folder = laptop.add("BAT0", status, power_now=20_000_000)
    with pytest.raises(SensorError, match=f"BAT0 is {status}.*unplug it from the mains"):
        laptop.open()
    write(folder, status="Discharging")
    source = laptop.open()
    write(folder, status=status)
    with pytest.raises(SensorError, match=f"BAT0 is {status}.*unplug it from the mains"):
        source.read()
    source.close()


def test_host_without_a_battery_says_so(laptop: Laptop, tmp_path: Path) -> None:
    write(laptop.supplies / "AC", type="Mains", online=1)
    with pytest.raises(SensorError, match="power_supply: no battery feeds this host"):
        laptop.open()
    with pytest.raises(SensorError, match="no battery feeds this host"):
        battery.open_source(None, SourceSettings(sysfs=tmp_path / "nothing"))
    laptop.add("BAT0", capacity=80)
    with pytest.raises(SensorError, match="BAT0: it tells neither power_now nor current_now"):
        laptop.open()


def test_one_battery_of_several(laptop: Laptop) -> None:
    laptop.add("BAT0", power_now=9_000_000)
    laptop.add("BAT1", power_now=4_000_000)
    source = open_source(parse_spec("battery@BAT1"), laptop.settings)
    assert values(source) == {"battery:BAT1": 4.0}
    source.close()
    with pytest.raises(SensorError, match="no battery BAT2 feeds this host"):
        laptop.open("BAT2")


PSUTIL = "import psutil; b = psutil.sensors_battery(); print(b.secsleft, b.power_plugged)"


def test_psutil_sees_the_same_watts(laptop: Laptop) -> None:
    laptop.add("BAT0", energy_now=40_000_000, energy_full=50_000_000, power_now=12_345_000)
    mounts = {"/sys/class/power_supply": laptop.supplies}
    command = private_sys(mounts, [sys.executable, "-c", PSUTIL])
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    seconds, plugged = done.stdout.split()
    source = laptop.open()
    assert plugged == "False"
    assert int(seconds) == int(40.0 * 3600 / values(source)["battery:BAT0"])
    source.close()
