"""Power sensors of this host: hwmon devices, batteries and NVIDIA's graphics processors.

Trees of sysfs that lm-sensors and psutil read too; a module plays nvidia-ml-py and its driver.
"""

import contextlib
import functools
import json
import math
import os
import sys
import types
from pathlib import Path
from unittest import mock

import pytest
from peers.powercap import in_private_sys, only_root, write

from measurements.power.source import SensorError, SourceSettings, open_source, parse_spec

NAN = pytest.approx(math.nan, nan_ok=True)


class Host:
    """Trees of sysfs, and their sources; hwmon devices are links to where the drivers put them."""

    def __init__(self, root):
        self.settings = SourceSettings(sysfs=root, procfs=root / "proc")
        self.classes, self.devices = root / "class" / "hwmon", root / "devices" / "boards"
        self.supplies = root / "class" / "power_supply"
        for folder in (self.classes, self.devices, self.supplies):
            folder.mkdir(parents=True)

    @contextlib.contextmanager
    def open(self, spec):
        source = open_source(parse_spec(spec), self.settings)
        yield source
        source.close()
        source.close()

    def refusal(self, spec, said):
        with pytest.raises(SensorError, match=said):
            open_source(parse_spec(spec), self.settings)

    def add(self, driver, address="0000:03:00.0", bus="pci", **figures):
        """Add a device whose driver keeps its files in the hwmon folder."""
        folder = self.devices / address / "hwmon" / f"hwmon{len(list(self.classes.iterdir()))}"
        write(folder, name=driver, **figures)
        (folder / "device").symlink_to(Path("..", ".."))
        (folder.parent.parent / "subsystem").symlink_to(Path("..", "..", "..", "bus", bus))
        (self.classes / folder.name).symlink_to(os.path.relpath(folder, self.classes))
        return folder

    def add_meter(self, **figures):
        """Add a meter of ACPI, an older driver that keeps its files with the device."""
        folder = self.add("", "ACPI000D:00", "acpi")
        (folder / "name").unlink()
        texts = {"power1_average": 228_000_000, "power1_average_interval": 300_000, **figures}
        write(folder.parent.parent, name="power_meter", **texts)
        return folder.parent.parent

    def add_battery(self, name="BAT0", status="Discharging", **figures):
        write(self.supplies / name, type="Battery", status=status, **figures)
        return self.supplies / name


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path / "sys")


def values(source):
    return {reading.label: reading.value for reading in source.read()}


def test_acpi_meter_is_the_host_over_a_window_and_without_a_figure_missing(host):
    device = host.add_meter(power1_is_battery=0, power1_accuracy="90.0%")
    host.add("amdgpu", power1_average=0)
    with host.open("hwmon@power_meter") as source:
        (channel,) = source.channels
        assert channel.label == "hwmon:power_meter/power1"
        assert (channel.quantity, channel.domain) == ("power", "host")
        assert (channel.window_s, channel.resolution) == (300.0, 1e-3)
        assert source.period_s == 300.0
    with host.open("hwmon") as source:
        for figure in (0, 0xFFFFFFFF * 1000, -1000, "", "unknown"):
            # A graphics processor that sleeps draws nothing.
            sleeping = {"hwmon:amdgpu/power1": 0.0}
            for said, watts in ((figure, NAN), (228_000_000, 228.0)):
                write(device, power1_average=said)
                assert values(source) == {"hwmon:power_meter/power1": watts, **sleeping}


def test_drivers_say_what_their_sensors_cover(host):
    host.add("coretemp", "coretemp.0", temp1_input=45_000)
    cores = {"power1_input": 40_000_000, "power1_label": "SVI2_P_Core"}
    rest = {"power2_input": 9_000_000, "power2_label": "SVI2_P_SoC"}
    host.add("zenpower", "0000:00:18.3", **cores, **rest)
    host.add("fam15h_power", "0000:00:18.4", power1_input=60_000_000, power1_average_interval=1000)
    host.add("ina226", "1-0040", power1_input=-1_500_000)
    host.add("i915", "0000:00:02.0", energy1_input=5_250_000)
    with host.open("hwmon") as source:
        assert {c.label: (c.quantity, c.domain) for c in source.channels} == {
            "hwmon:zenpower/SVI2_P_Core": ("power", "core"),
            "hwmon:zenpower/SVI2_P_SoC": ("power", "uncore"),
            "hwmon:fam15h_power/power1": ("power", "package"),
            "hwmon:ina226/power1": ("power", "other"),
            "hwmon:i915/energy1": ("energy", "gpu"),
        }
        assert source.period_s == 0.0
        # A moment has no window, whatever interval its driver names.
        assert {channel.window_s for channel in source.channels} == {0.0}
        assert list(values(source).values()) == [40.0, 9.0, 60.0, -1.5, 5.25]
        (host.devices / "0000:00:02.0/hwmon/hwmon4/energy1_input").write_text("-1\n")
        assert values(source)["hwmon:i915/energy1"] == NAN
    host.add("amdgpu", power1_average=30_000_000, power1_input=90_000_000)
    with host.open("hwmon@amdgpu") as source:
        # A mean is preferred to a moment.
        assert values(source) == {"hwmon:amdgpu/power1": 30.0}
        assert source.channels[0].window_s == 0.0
        assert source.channels[0].note == "a mean over a time that the driver does not state"


def test_parts_and_second_figures_are_inside_their_whole(host):
    card = {"energy1_input": 1, "energy1_label": "card"}
    power = {"power1_input": 1_000_000, "power1_label": "card"}
    host.add("xe", "0000:04:00.0", energy2_input=1, energy2_label="pkg", **card, **power)
    host.add("ina238", "1-0041", power1_input=1_000_000, energy1_input=1)
    socket = {"energy1_input": 1, "energy1_label": "Ecore000"}
    host.add("amd_energy", "amd_energy.0", energy2_input=1, energy2_label="Esocket0", **socket)
    rails = {"power1_label": "power total", "power2_label": "power +12v", "power2_input": 2_000_000}
    host.add("corsairpsu", "0003:1B1C", power1_input=3_000_000, **rails)
    with host.open("hwmon") as source:
        assert {c.label: c.inside for c in source.channels if c.inside} == {
            "hwmon:xe/pkg": "hwmon:xe/card/energy",
            "hwmon:xe/card/power": "hwmon:xe/card/energy",
            "hwmon:ina238/power1": "hwmon:ina238/energy1",
            "hwmon:amd_energy/Ecore000": "hwmon:amd_energy/Esocket0",
            "hwmon:corsairpsu/power +12v": "hwmon:corsairpsu/power total",
        }


def test_cores_of_two_sockets_are_inside_neither(host):
    labels = ("Ecore000", "Esocket0", "Esocket1")
    figures = {f"energy{number}_label": label for number, label in enumerate(labels, 1)}
    host.add("amd_energy", **figures, **{f"energy{number}_input": 1 for number in (1, 2, 3)})
    with host.open("hwmon") as source:
        found = [(c.label, c.domain, c.inside) for c in source.channels]
        domains = zip(labels, ("core", "package", "package"), strict=True)
        assert found == [(f"hwmon:amd_energy/{label}", of, None) for label, of in domains]


def test_devices_and_sensors_of_one_name_are_told_apart(host):
    host.refusal("hwmon@amdgpu", "no driver is called 'amdgpu': there is no driver$")
    host.add("amdgpu", "0000:03:00.0", power1_input=1_000_000, power1_label="PPT")
    for where in ("amdgpu", "0000:03:00.0", "hwmon0"):
        with host.open(f"hwmon@{where}") as source:
            assert values(source) == {"hwmon:amdgpu/PPT": 1.0}
    host.add("amdgpu", "0000:83:00.0", power1_input=2_000_000, power1_label="PPT")
    same = {"power1_label": "rail", "power2_label": "rail"}
    host.add("pmbus", "3-0058", power1_input=3_000_000, power2_input=4_000_000, **same)
    with host.open("hwmon") as source:
        cards = {f"hwmon:amdgpu-0000:{n}3:00.0/PPT": w for n, w in ((0, 1.0), (8, 2.0))}
        assert values(source) == {**cards, "hwmon:pmbus/power1": 3.0, "hwmon:pmbus/power2": 4.0}
    host.refusal("hwmon@ina226", r"no driver is called 'ina226': .* are amdgpu, pmbus$")


def test_board_without_power_sensors_says_so(host):
    host.add("coretemp", temp1_input=45_000)
    host.refusal("hwmon", "sudo modprobe acpi_power_meter")
    host.settings = SourceSettings(sysfs=host.devices)
    host.refusal("hwmon", "class/hwmon: no power or energy sensor")
    host.refusal("battery", "no battery feeds this host")


def test_sensor_that_fails_is_missing_and_all_failing_is_an_error(host):
    device = host.add_meter()
    folder = host.add("amdgpu", power1_input=1_000_000)
    # A battery is left to its own source.
    hidden = host.devices / "power_supply" / "BAT0" / "hwmon7"
    write(hidden, name="BAT0", power1_input=30_000_000)
    (hidden / "device").symlink_to("..")
    (host.classes / "hwmon7").symlink_to(os.path.relpath(hidden, host.classes))
    with host.open("hwmon") as source:
        (folder / "power1_input").unlink()
        # Reading gives EIO, as of a device that does not answer.
        (folder / "power1_input").symlink_to("/proc/self/mem")
        source.close()
        assert values(source) == {"hwmon:power_meter/power1": 228.0, "hwmon:amdgpu/power1": NAN}
        write(device, power1_average="")
        with pytest.raises(SensorError, match=r"none of its 2 power sensors answers .*no number"):
            source.read()


def test_sensor_that_may_not_be_read_names_the_remedy(host, monkeypatch):
    only_root(monkeypatch)
    counter = host.add("amd_energy", energy1_input=7_000_000) / "energy1_input"
    counter.chmod(0o400)
    path = host.classes / "hwmon0" / "energy1_input"
    host.refusal("hwmon", f"^{path}: Permission denied: sudo chmod a.r {path}, or run as root$")
    host.add_meter()
    with host.open("hwmon") as source:
        assert source.channels[0].note == f"not readable: sudo chmod a+r {path}"
        assert list(values(source).values()) == [NAN, 228.0]


@pytest.mark.peer("hwmon")
def test_lm_sensors_reads_the_same_watts(host):
    host.add_meter()
    host.add("amdgpu", power1_average=31_500_000, power1_label="PPT")
    host.add("i915", "0000:00:02.0", energy1_input=5_250_000)
    seen = json.loads(in_private_sys(host.settings.sysfs, "sensors", "-j"))
    acpi = seen["power_meter-acpi-0"]["power1"]
    with host.open("hwmon") as source:
        assert values(source) == {
            "hwmon:power_meter/power1": acpi["power1_average"],
            "hwmon:amdgpu/PPT": seen["amdgpu-pci-0300"]["PPT"]["power1_average"],
            "hwmon:i915/energy1": seen["i915-pci-0010"]["energy1"]["energy1_input"],
        }
        assert source.channels[0].window_s == acpi["power1_average_interval"]


def test_battery_counts_watts_or_amperes(host):
    write(host.supplies / "AC", type="Mains", online=0)
    folder = host.add_battery(power_now=12_345_000)
    host.add_battery("mouse", scope="Device", voltage_now=4_000_000, current_now=1_000)
    with host.open("battery") as source:
        (channel,) = source.channels
        found = (channel.label, channel.quantity, channel.domain)
        assert found == ("battery:BAT0", "power", "battery")
        assert (channel.resolution, source.period_s) == (1e-3, 1.0)
        for figure, value in ((12_345_000, 12.345), (0, NAN), ("", NAN), (11_000_000, 11.0)):
            write(folder, power_now=figure)
            assert values(source) == {"battery:BAT0": value}
    for current_now in (1_500_000, -1_500_000):
        host.add_battery("BAT1", current_now=current_now, voltage_now=12_000_000)
        with host.open("battery@BAT1") as source:
            assert values(source) == {"battery:BAT1": pytest.approx(18.0)}
            assert source.channels[0].resolution == pytest.approx(0.012)


def test_two_batteries_of_which_one_rests(host):
    first = host.add_battery(power_now=9_000_000)
    second = host.add_battery("BAT1", "Not charging", power_now=0)
    with host.open("battery") as source:
        assert values(source) == {"battery:BAT0": 9.0, "battery:BAT1": 0.0}
        write(first, status="Not charging", power_now=0)
        write(second, status="Discharging", power_now=8_000_000)
        assert values(source) == {"battery:BAT0": 0.0, "battery:BAT1": 8.0}
        write(first, status="Charging", power_now=5_000_000)
        assert values(source) == {"battery:BAT0": NAN, "battery:BAT1": 8.0}
    with host.open("battery@BAT1") as source:
        assert values(source) == {"battery:BAT1": 8.0}
    host.refusal("battery@BAT2", "no battery BAT2 feeds this host")


def test_on_mains_or_without_a_battery_it_says_nothing(host):
    write(host.supplies / "AC", type="Mains", online=1)
    host.refusal("battery", "power_supply: no battery feeds this host")
    folder = host.add_battery(capacity=80)
    host.refusal("battery", "BAT0: it tells neither power_now nor current_now")
    for status in ("Charging", "Full", "Not charging", "Unknown"):
        write(folder, status=status, power_now=20_000_000)
        told = f"BAT0 is {status}.*unplug it from the mains"
        host.refusal("battery", told)
        write(folder, status="Discharging")
        with host.open("battery") as source:
            write(folder, status="" if status == "Unknown" else status)
            with pytest.raises(SensorError, match=told):
                source.read()


@pytest.mark.peer("hwmon")
def test_psutil_sees_the_same_watts(host):
    host.add_battery(energy_now=40_000_000, energy_full=50_000_000, power_now=12_345_000)
    code = "import psutil; b = psutil.sensors_battery(); print(b.secsleft, b.power_plugged)"
    seconds, plugged = in_private_sys(host.settings.sysfs, sys.executable, "-c", code).split()
    assert plugged == "False"
    with host.open("battery") as source:
        assert int(seconds) == int(40.0 * 3600 / values(source)["battery:BAT0"])


class Driver(types.ModuleType):
    """What nvidia-ml-py offers, of processors that a test describes by their figures.

    A handle holds as long as the driver stays loaded: it is how often that was loaded, and where
    the processor stands.
    """

    NVMLError = type("NVMLError", (Exception,), {})

    def __init__(self):
        super().__init__("pynvml")
        self.processors, self.initialised, self.loaded, self.init_error = [], 0, 0, None
        self.nvmlDeviceGetCount = lambda: len(self.processors)
        self.nvmlDeviceGetName = lambda handle: b"Tesla"
        self.nvmlDeviceGetUUID = lambda handle: f"GPU-{handle[1]}"
        figures = {"TotalEnergyConsumption": "energy_mj", "PowerUsage": "power_mw"}
        for name, figure in {**figures, "Architecture": "generation"}.items():
            setattr(self, f"nvmlDeviceGet{name}", functools.partial(self._figure, figure))

    def nvmlInit(self):  # noqa: N802
        if self.init_error is not None:
            raise self.NVMLError(self.init_error)
        self.initialised += 1

    def nvmlShutdown(self):  # noqa: N802
        if not self.initialised:
            raise self.NVMLError("Uninitialized")
        self.initialised -= 1

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        self._figure("present", (self.loaded, index))
        return self.loaded, index

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        return self.nvmlDeviceGetHandleByIndex(int(uuid.removeprefix("GPU-")))

    def _figure(self, name, handle):
        if not self.initialised:
            raise self.NVMLError("Uninitialized")
        if handle[0] != self.loaded:
            raise self.NVMLError("Invalid Argument")
        figures = {"present": 1, **self.processors[handle[1]]}
        if "lost" in figures or name not in figures:
            raise self.NVMLError("GPU is lost" if "lost" in figures else "Not Supported")
        return figures[name]


@pytest.fixture
def driver(monkeypatch):
    driver = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    yield driver
    assert driver.initialised == 0


def test_the_real_library_without_a_driver_names_the_remedy(host, monkeypatch):
    import pynvml

    monkeypatch.setattr(pynvml, "CDLL", mock.Mock(side_effect=OSError("not there")))
    said = "install the driver, whose part libnvidia-ml.so.1 is, or leave out nvml"
    host.refusal("nvml", f"^nvml: NVML Shared Library Not Found: {said}$")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    host.refusal("nvml", r"pip install 'perf-per-watt\[measure\]'")


def test_counter_where_there_is_one_else_watts(host, driver):
    driver.processors += [
        {"energy_mj": 5_250_123, "power_mw": 70_000, "generation": 7},
        {"power_mw": 65_432, "generation": 4},
        {"power_mw": 50_000, "generation": 8},
        {"power_mw": 40_000},
    ]
    with host.open("nvml") as source:
        found = [(c.label, c.quantity, c.domain, c.window_s) for c in source.channels]
        expected = ("energy", 0.0), ("power", 0.0), ("power", 1.0), ("power", 0.0)
        assert found == [(f"nvml:{n}", of, "gpu", s) for n, (of, s) in enumerate(expected)]
        assert all(c.resolution == 1e-3 and c.note == "Tesla" for c in source.channels)
        assert source.period_s == 0.0
        assert list(values(source).values()) == pytest.approx([5250.123, 65.432, 50.0, 40.0])


def test_one_processor_by_index_or_uuid_and_closing_lets_go_once(host, driver):
    driver.processors += [{"energy_mj": 1000}, {"energy_mj": 2000}]
    driver.nvmlInit()
    for where in ("1", "GPU-1"):
        with host.open(f"nvml@{where}") as source:
            assert values(source) == {"nvml:1": 2.0}
    host.refusal("nvml@4", r"the driver has no graphics processor 4 \(of 2\)")
    driver.processors.clear()
    host.refusal("nvml", r"the driver has no graphics processor \(of 0\)")
    driver.nvmlShutdown()


def test_lost_processor_is_missing_while_others_go_on(host, driver):
    driver.processors += [{"energy_mj": 1000}, {"energy_mj": 2000}]
    with host.open("nvml") as source:
        driver.processors[0]["lost"] = 1
        assert values(source) == {"nvml:0": NAN, "nvml:1": 2.0}
        driver.processors[1]["lost"] = 1
        with pytest.raises(SensorError, match=r"no graphics processor answers .nvml:0: GPU is los"):
            source.read()
        for processor in driver.processors:
            del processor["lost"]
        assert values(source) == {"nvml:0": 1.0, "nvml:1": 2.0}
        # The driver is loaded again: it forgets all users and their handles.
        driver.initialised, driver.loaded = 0, 1
        assert values(source) == {"nvml:0": 1.0, "nvml:1": 2.0}


def test_processor_without_a_figure_and_a_driver_that_refuses_say_so(host, driver):
    driver.processors.append({})
    host.refusal("nvml", "nvml: nvml:0, Tesla: Not Supported: leave out nvml")
    driver.processors.append({"energy_mj": 2000})
    with host.open("nvml") as source:
        assert [c.note for c in source.channels] == ["Tesla: Not Supported", "Tesla"]
        assert values(source) == {"nvml:0": NAN, "nvml:1": 2.0}
    driver.processors[0]["lost"] = 1
    host.refusal("nvml", "nvml: GPU is lost: see nvidia-smi")
    driver.init_error = "Driver Not Loaded"
    host.refusal("nvml", r"nvml: Driver Not Loaded: .*sudo modprobe nvidia")
