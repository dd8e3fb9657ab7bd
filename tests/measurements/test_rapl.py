"""RAPL through powercap trees with running counters, beside other readers of the same tree."""

import json
import math
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path
from unittest import mock

import pytest
from peers import powercap
from peers.waiting import FakeTime
from refusals import refusal

from measurements.power import rapl
from measurements.power.source import SensorError, SourceSettings

READERS = Path(__file__).parent / "peers" / "rapl_readers.py"
NAN = pytest.approx(math.nan, nan_ok=True)


class Host(types.SimpleNamespace):
    """A host with an Intel processor, an empty powercap tree and a clock of its own."""

    def open(self):
        self.opened.append(rapl.open_source(None, self.settings))
        return self.opened[-1]

    def channels(self):
        return {channel.label: channel for channel in self.open().channels}

    def run(self, watts, mirrors=None):
        counters = powercap.Counters(watts, mirrors, self.time.monotonic)
        self.time.followers.append(counters.update)
        return counters

    def refusal(self):
        return refusal(self.open, error=SensorError)


@pytest.fixture
def host(tmp_path, monkeypatch):
    powercap.write(tmp_path / "proc", cpuinfo=cpuinfo("GenuineIntel", 6, 143, "Xeon 8480"))
    tree = powercap.PowercapTree(tmp_path / "sys")
    settings = SourceSettings(sysfs=tree.root, procfs=tmp_path / "proc")
    host = Host(tree=tree, settings=settings, time=FakeTime(), opened=[])
    monkeypatch.setattr(rapl, "time", host.time)
    yield host
    for source in host.opened:
        source.close()
        source.close()


def cpuinfo(vendor, family, model, name, flags="fpu msr"):
    said = f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
    return f"{said}model name\t: {name}\nflags\t\t: {flags}\n\nprocessor\t: 1\n"


def values(source):
    return {reading.label: reading.value for reading in source.read()}


def test_client_with_psys_and_mmio(host):
    package = host.tree.package(0, limits_w=(28.0, 64.0))
    host.tree.core(package)
    host.tree.zone("uncore", package, enabled=False)
    host.tree.zone("psys", limits_w=(0.0, 0.0))
    mmio = host.tree.package(0, control_type="intel-rapl-mmio", limits_w=(28.0, 64.0))
    host.tree.zone("dram", mmio)
    channels = host.channels()
    assert {label: (c.domain, c.inside) for label, c in channels.items()} == {
        "rapl:package-0": ("package", None),
        "rapl:package-0/core": ("core", "rapl:package-0"),
        "rapl:package-0/uncore": ("uncore", "rapl:package-0"),
        "rapl:psys": ("psys", None),
        "rapl:mmio/package-0": ("package", "rapl:package-0"),
        "rapl:mmio/dram-0": ("dram", None),
    }
    assert "never added" in channels["rapl:mmio/package-0"].note
    assert channels["rapl:package-0"].most_w == channels["rapl:package-0/core"].most_w == 128.0
    assert math.isnan(channels["rapl:psys"].most_w)
    assert all(c.quantity == "energy" and c.window_s == 0 for c in channels.values())


def test_dies_are_told_apart_in_order_of_numbers_and_names_that_come_twice_too(host):
    places = [(number, die) for number in (0, 1) for die in (0, 1)]
    for place in places:
        host.tree.dram(host.tree.package(*place))
    for number in [*range(2, 12), 3]:
        host.tree.package(number)
    channels = host.channels()
    assert {channel.inside for channel in channels.values()} == {None}
    names = [f"{kind}-{n}-die-{die}" for n, die in places for kind in ("package", "dram")]
    names += [*(f"package-{number}" for number in range(2, 12)), "package-3#intel-rapl:14"]
    assert list(channels) == [f"rapl:{name}" for name in names]


def test_zones_of_a_second_interface_are_the_first_one_s_where_there_is_one(host):
    for control_type in ("intel-rapl-mmio", "intel-rapl"):
        package = host.tree.package(0, control_type=control_type)
        host.tree.core(package)
        inside = {label: c.inside for label, c in host.channels().items() if "mmio" in label}
        alone = control_type == "intel-rapl-mmio"
        assert inside["rapl:mmio/package-0"] == (None if alone else "rapl:package-0")
        core = "rapl:mmio/package-0" if alone else "rapl:package-0/core"
        assert inside["rapl:mmio/package-0/core"] == core
        host.tree.dram(package)
    assert {"rapl:dram-0", "rapl:mmio/dram-0"} < set(channels := host.channels())
    assert channels["rapl:mmio/dram-0"].inside == "rapl:dram-0"


def test_range_and_step_are_the_kernel_s(host):
    host.tree.dram(host.tree.package(0))
    # Psys of Sapphire Rapids counts whole joules.
    host.tree.zone("psys", range_uj=4_294_967_295_000_000, start_uj=60_293_987_000_000)
    channels = host.channels()
    assert channels["rapl:package-0"].range_j == 262143.32885
    assert channels["rapl:package-0"].resolution == pytest.approx(2**-14, rel=1e-4)
    assert channels["rapl:dram-0"].resolution == pytest.approx(2**-16, rel=3e-3)
    assert channels["rapl:psys"].resolution == pytest.approx(1.0)
    assert values(host.opened[0])["rapl:psys"] == 60_293_987.0


def test_limits_that_hold_bound_the_watts(host):
    for number, (limits_w, enabled, most_w) in enumerate(
        [
            ((125.0, 250.0), True, 500.0),
            ((125.0, 4095.875), True, 250.0),
            ((0.0, 3408.25), True, math.nan),
            ((125.0, 250.0), False, math.nan),
            ((), True, math.nan),
        ]
    ):
        zone = host.tree.zone(f"package-{number}", limits_w=limits_w, enabled=enabled)
        # Reading gives EIO, as of a register that the processor lacks.
        (zone.folder / "constraint_1_max_power_uw").symlink_to("/proc/self/mem")
        channel = host.open().channels[number]
        assert channel.most_w == pytest.approx(most_w, nan_ok=True)
        assert ("limits are off" in channel.note) is not enabled


def test_core_counter_of_amd_is_said_to_be_one_core_s(host):
    host.tree.core(host.tree.package(0))
    for vendor, said in (("GenuineIntel", False), ("AuthenticAMD", True)):
        powercap.write(host.settings.procfs, cpuinfo=f"vendor_id\t: {vendor}")
        assert ("one core" in host.channels()["rapl:package-0/core"].note) is said


def test_counter_without_a_range_says_so(host):
    zone = host.tree.package(0, start_uj=5_000_000)
    for text in ("0", None):
        powercap.write(zone.folder, max_energy_range_uj=text)
        source = host.open()
        assert source.channels[0].range_j is None
        assert "energy is lost when it wraps" in source.channels[0].note
        assert values(source) == {"rapl:package-0": 5.0}


def test_tree_that_only_nests_its_zones_of_which_one_counts_no_energy(host):
    host.tree.core(host.tree.package(0))
    host.tree.zone("soc", control_type="dtpm").energy.unlink()
    assert list(host.channels()) == ["rapl:package-0", "rapl:package-0/core"]
    for link in host.tree.classes.glob("*:*"):
        link.unlink()
    assert list(host.channels()) == ["rapl:package-0", "rapl:package-0/core"]


def test_counters_agree_with_what_was_drawn_and_are_timed_one_after_the_other(host):
    package = host.tree.package(0, start_uj=123_456_789)
    dram = host.tree.dram(package)
    source = host.open()
    before = values(source)
    counters = host.run({package: 40.0, dram: lambda s: 3.0 if s < 0.1 else 6.0})
    for _ in range(30):
        host.time.sleep(0.01)
    first, second = source.read()
    for reading, zone in ((first, package), (second, dram)):
        moved = reading.value - before[reading.label]
        assert moved == pytest.approx(counters.joules[zone], abs=1e-6)
        assert reading.at_s == host.time.now
        assert reading.source_at_s is None
    assert counters.joules[package] == pytest.approx(12.0, rel=0.01)
    assert counters.joules[dram] == pytest.approx(1.5, rel=0.01)
    assert source.period_s == 1e-3
    ticks = iter(range(9))
    host.time.monotonic = lambda: next(ticks)
    assert [reading.at_s for reading in source.read()] == [0.5, 1.5]


def test_zones_that_go_and_come_back(host):
    package, other = host.tree.package(0), host.tree.package(1)
    dram = host.tree.dram(package)
    source = host.open()
    counters = host.run({package: 40.0, dram: 4.0, other: 30.0})
    host.tree.remove(dram)
    host.time.sleep(0.05)
    gone = values(source)
    assert math.isnan(gone["rapl:dram-0"])
    assert gone["rapl:package-0"] == pytest.approx(2.0, rel=0.02)
    assert gone["rapl:package-1"] == pytest.approx(1.5, rel=0.02)
    host.tree.restore(dram)
    assert values(source)["rapl:dram-0"] > 0
    host.time.sleep(0.05)
    assert values(source)["rapl:dram-0"] == pytest.approx(counters.joules[dram], abs=1e-6)
    zones = (dram, package, other)
    for zone in zones:
        host.tree.remove(zone)
    with pytest.raises(SensorError) as error:
        source.read()
    for said in ("none of its 3 energy counters can be read", "No such file or directory"):
        assert said in str(error.value)
    assert "sudo modprobe intel_rapl_msr" in str(error.value)
    for zone in reversed(zones):
        host.tree.restore(zone)
    assert values(source)["rapl:package-0"] == pytest.approx(counters.joules[package], abs=1e-6)
    for zone in zones:
        zone.energy.write_text("-1\n")
    with pytest.raises(SensorError, match="intel-rapl:0: its figure is out of range"):
        source.read()


def test_figure_that_cannot_be_is_missing(host):
    package = host.tree.package(0, start_uj=7_000_000)
    host.tree.package(1, start_uj=9_000_000)
    failing = host.tree.package(2)
    failing.energy.unlink()
    failing.energy.symlink_to("/proc/self/mem")
    source = host.open()
    rest = {"rapl:package-1": 9.0, "rapl:package-2": NAN}
    for text in ("", "garbage\n", "-5\n", f"{powercap.PACKAGE_RANGE_UJ + 1}\n"):
        package.energy.write_text(text)
        assert values(source) == {"rapl:package-0": NAN, **rest}
        for sound_uj in (8_000_000, powercap.PACKAGE_RANGE_UJ):
            package.energy.write_text(f"{sound_uj}\n")
            assert values(source) == {"rapl:package-0": sound_uj / 1e6, **rest}


def test_a_reading_is_one_system_call_a_counter(host, monkeypatch):
    for number in range(2):
        package = host.tree.package(number)
        host.tree.core(package)
        host.tree.dram(package)
    source = host.open()
    calls = []
    for name in ("open", "pread"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, r=real, n=name: calls.append(n) or r(*a))
    for _ in range(10):
        source.read()
    monkeypatch.undo()
    assert calls == ["pread"] * 60


def test_dies_with_one_counter_are_found_when_opened_and_equal_watts_are_none(host):
    dies = [host.tree.package(0, die) for die in range(3)]
    other = host.tree.package(1, 0)
    host.run({dies[0]: 68.0, other: 68.0}, {dies[1]: dies[0], dies[2]: dies[0]})
    source = host.open()
    first = "rapl:package-0-die-0"
    assert [channel.inside for channel in source.channels] == [None, first, first, None]
    assert f"mirrors {first}" in source.channels[1].note


def moved(source, *steps):
    """Mirrors that a source has found after counters went on by so many microjoules."""
    shown = {zone: zone.start_uj for zone in steps[0]}
    for step in steps:
        for zone, microjoules in step.items():
            shown[zone] += microjoules
            zone.show(shown[zone])
        source.read()
    return {c.label: c.inside for c in source.channels if c.inside}


def test_mirrors_are_found_while_reading_where_counters_stood_still_or_were_apart(host):
    dies = [host.tree.package(0, die, start_uj=1_000_000 * die) for die in range(3)]
    source = host.open()
    assert {channel.inside for channel in source.channels} == {None}
    # The second moves as the first six times of ten, the third as the second, and twice all do.
    turns = [(7, 7, 5)] * 4 + [(7, 3, 3)] * 4 + [(7, 7, 7)] * 2
    first = "rapl:package-0-die-0"
    found = {"rapl:package-0-die-1": first, "rapl:package-0-die-2": first}
    assert moved(source, *[dict(zip(dies, turn, strict=True)) for turn in turns]) == found
    assert [channel.inside for channel in source.channels] == [None, first, first]


def test_memory_that_idles_alike_is_no_mirror(host):
    # Where the energy of DRAM is computed, idle memories of one make are the same to the step.
    memories = [host.tree.dram(host.tree.package(number)) for number in range(2)]
    assert moved(host.open(), *[dict.fromkeys(memories, 10_000)] * 20) == {}


@pytest.mark.cases(
    "text, reason",
    (cpuinfo("GenuineIntel", 6, 143, "Xeon", "fpu hypervisor"), "this is a virtual machine"),
    (cpuinfo("AuthenticAMD", 25, 1, "EPYC", "fpu hypervisor"), "this is a virtual machine"),
    (cpuinfo("GenuineIntel", 6, 143, "Xeon"), "Xeon should have it: load its driver: sudo mod"),
    (cpuinfo("GenuineIntel", 6, 45, "Xeon E5"), "sudo modprobe intel_rapl_msr"),
    (cpuinfo("GenuineIntel", 6, 26, "Xeon X5550"), "Xeon X5550 has none (Intel has it from"),
    (cpuinfo("GenuineIntel", 6, 44, "Xeon X5680"), "Xeon X5680 has none (Intel has it from"),
    (cpuinfo("GenuineIntel", 6, 28, "Atom D525"), "Atom D525 has none (Intel has it from"),
    (cpuinfo("GenuineIntel", 15, 4, "Pentium 4"), "Pentium 4 has none (Intel has it from"),
    (cpuinfo("AuthenticAMD", 21, 2, "Opteron"), "Opteron has none (AMD has it from family 17h"),
    (cpuinfo("AuthenticAMD", 23, 49, "EPYC"), "EPYC has it from Linux 5.8 on: load its driver"),
    ("processor\t: 0\nBogoMIPS\t: 50\n", "this processor is not of Intel or AMD"),
    ("", "this processor is not of Intel or AMD"),
)
def test_no_counter_says_why(host, text, reason):
    (host.settings.procfs / "cpuinfo").write_text(text)
    assert host.refusal().startswith(f"{host.tree.classes}: no RAPL counter: ")
    assert reason in host.refusal()
    shutil.rmtree(host.tree.root)
    assert reason in host.refusal()


def test_container_that_hides_the_zones_is_recognised(host):
    host.tree.package(0)
    shutil.rmtree(host.tree.devices)
    assert "its zones cannot be read, because container runtimes hide" in host.refusal()


@pytest.mark.parametrize("open_source", [rapl.open_source, rapl.open_pyrapl])
def test_an_address_is_refused(open_source, host):
    with pytest.raises(SensorError, match=r"only (on )?this host"):
        open_source("elsewhere", host.settings)


def test_counters_that_only_root_may_read_and_the_remedy_that_is_told(host, monkeypatch):
    powercap.only_root(monkeypatch)
    package = host.tree.package(0, start_uj=4_000_000)
    dram = host.tree.dram(package)
    message = host.refusal()
    counter = host.tree.classes / package.folder.name / "energy_uj"
    assert message.startswith(f"{counter}: only root may read it")
    package.energy.chmod(0o444)
    source = host.open()
    place = host.tree.classes / dram.folder.name / "energy_uj"
    assert f"not readable: sudo chmod a+r {place}" in source.channels[1].note
    assert values(source) == {"rapl:package-0": 4.0, "rapl:dram-0": NAN}
    remedy = f"chmod a+r {host.tree.classes}/*/energy_uj"
    assert f": sudo {remedy}, which holds until the next boot, or run as root" in message
    subprocess.run(["sh", "-c", remedy], check=True)
    assert values(source) == {"rapl:package-0": 4.0, "rapl:dram-0": 0.0}


@pytest.fixture
def pyrapl(host, monkeypatch):
    """What reads counters in the real pyRAPL, with the tree of the host for /sys."""
    with rapl._quietly():
        from pyRAPL import device_api

    def below(path):
        return Path(path.replace("/sys", str(host.tree.root), 1))

    found = types.SimpleNamespace(exists=lambda path: below(path).exists())
    monkeypatch.setattr(device_api, "os", types.SimpleNamespace(path=found))
    monkeypatch.setattr(device_api, "open", lambda path, _="r": below(path).open(), raising=False)
    monkeypatch.setattr(rapl, "_SYSFS", host.tree.root)
    host.tree.topology()
    return device_api


def test_pyrapl_has_the_labels_of_rapl(host, pyrapl):
    for number in (0, 1):
        package = host.tree.package(number, start_uj=1_000_000 * (number + 1))
        host.tree.core(package)
        host.tree.dram(package, start_uj=500_000 * (number + 1))
    host.tree.zone("psys")
    host.tree.topology(2)
    source = rapl.open_pyrapl(None, host.settings)
    named = values(host.open()).items()
    ours = {label: value for label, value in named if "psys" not in label and "/" not in label}
    assert values(source) == ours
    assert len(ours) == len(source.channels) == 4
    assert source.channels[0] == host.channels()["rapl:package-0"]
    assert source.period_s == rapl.PERIOD_S
    files = [file for device in source._sensor._device_api.values() for file in device._sys_files]
    source.close()
    source.close()
    assert [file.closed for file in files] == [True] * 4


def test_pyrapl_that_loses_its_counter_and_gets_it_back(host, pyrapl):
    package = host.tree.package(0, start_uj=5_000_000)
    source = rapl.open_pyrapl(None, host.settings)
    assert values(source) == {"rapl:package-0": 5.0}
    os.truncate(package.energy, 0)
    with pytest.raises(SensorError, match=r"powercap: pyRAPL cannot read it .could not convert"):
        source.read()
    host.tree.remove(package)
    for _ in range(2):
        with pytest.raises(SensorError, match="finds no package"):
            source.read()
    host.tree.restore(package)
    package.energy.write_text("6000000\n")
    assert values(source) == {"rapl:package-0": 6.0}
    source.close()


def test_pyrapl_that_cannot_read_or_is_not_there_says_why(host, pyrapl, monkeypatch):
    def refused(said):
        with pytest.raises(SensorError, match=said):
            rapl.open_pyrapl(None, host.settings)

    refused("no RAPL counter: Xeon 8480 should have it")
    for die in range(2):
        host.tree.package(0, die)
    refused("finds no package for each socket.*: use rapl")
    host.tree.zone("package")
    refused("pyRAPL cannot read it .list index.*: use rapl")
    denied = PermissionError(13, "Permission denied", "/sys/energy_uj")
    monkeypatch.setattr(pyrapl, "open", mock.Mock(side_effect=denied))
    refused("sys/energy_uj: only root may")
    monkeypatch.setitem(sys.modules, "pyRAPL", None)
    refused(r"pip install 'perf-per-watt\[measure\]'")
    monkeypatch.setattr(rapl, "_SYSFS", Path("/sys"))
    refused(r"reads /sys alone, not .*: use rapl")


PYRAPL = """
import logging, sys
from measurements.power import rapl
with rapl._quietly():
    import pyRAPL
assert not {"pandas", "numpy"} & set(sys.modules) and not logging.root.handlers
"""


def test_pyrapl_is_loaded_quietly_and_without_pandas():
    subprocess.run([sys.executable, "-W", "error", "-c", PYRAPL], check=True)


@pytest.mark.peer("rapl")
def test_all_readers_see_the_same_joules(tmp_path):
    tree = powercap.PowercapTree(tmp_path / "sys")
    tree.topology()
    package = tree.package(0, start_uj=1_000_000)
    with powercap.CounterWriter({package: 40.0, tree.core(package): 20.0, tree.dram(package): 4.0}):
        command = sys.executable, "-P", str(READERS), "0.5"
        seen = json.loads(powercap.in_private_sys(tree.root, *command))
    inner, outer = seen.pop("inner"), seen.pop("outer")
    assert set(seen) == {"pyRAPL", "pyJoules", "codecarbon", "powercap-info", "rapl:pyrapl"}
    assert 10.0 < inner <= seen["rapl:pyrapl"] <= outer
    for reader, joules in seen.items():
        # A millionth: codecarbon turns joules to kWh by a rounded factor.
        assert inner * (1 - 1e-6) <= joules <= outer * (1 + 1e-6), reader
