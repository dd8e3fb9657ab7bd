"""RAPL through powercap trees with running counters, beside other readers of the same tree."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from peers.powercap import (
    PACKAGE_RANGE_UJ,
    CounterProcess,
    CounterWriter,
    PowercapTree,
    Zone,
    private_sys,
    topology,
)

from measurements.power import rapl, rapl_pyrapl
from measurements.power.protocol import Channel, SensorError, SourceSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from measurements.power.rapl import RaplSource

ROOT = Path(__file__).resolve().parents[2]
READERS = Path(__file__).parent / "peers" / "rapl_readers.py"
INTEL = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Xeon 8480\n"
NOBODY = 65534


class Fixture(NamedTuple):
    tree: PowercapTree
    settings: SourceSettings
    open: Callable[[], RaplSource]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Fixture]:
    """A host with an Intel processor and an empty powercap tree."""
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cpuinfo").write_text(f"processor\t: 0\n{INTEL}\nprocessor\t: 1\n{INTEL}")
    tree = PowercapTree(tmp_path / "sys")
    settings = SourceSettings(sysfs=tree.root, procfs=proc)
    opened = []

    def open_source() -> RaplSource:
        opened.append(rapl.open_source(None, settings))
        return opened[-1]

    yield Fixture(tree, settings, open_source)
    for source in opened:
        source.close()
        source.close()


def by_label(source: RaplSource) -> dict[str, Channel]:
    return {channel.label: channel for channel in source.channels}


def values(source: RaplSource) -> dict[str, float]:
    return {reading.label: reading.value for reading in source.read()}


def in_private_sys(tree: PowercapTree, command: Sequence[str], sockets: int = 1) -> str:
    """Output of a command that sees the tree below /sys, on a host of so many sockets."""
    folder = tree.root.with_name("topology")
    done = subprocess.run(
        private_sys({**tree.mounts(), **topology(folder, sockets)}, command),
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    assert "ResourceWarning" not in done.stderr
    return done.stdout.strip()


def script(tree: PowercapTree, code: str, sockets: int = 1) -> str:
    return in_private_sys(tree, [sys.executable, "-W", "error", "-c", code], sockets)


class Unwrapped:
    """Joules of a counter since it was first seen, by the range of its channel."""

    def __init__(self, channel: Channel) -> None:
        assert channel.range_j is not None
        self._range_j, self._last, self.joules, self.wraps = channel.range_j, math.nan, 0.0, 0

    def see(self, value: float) -> None:
        if value < self._last:
            self.wraps += 1
            self.joules += self._range_j
        self.joules += 0.0 if math.isnan(self._last) else value - self._last
        self._last = value


# What the zones mean


def test_client_with_psys_and_mmio(host: Fixture) -> None:
    tree = host.tree
    package = tree.package(0, limits_w=(28.0, 64.0))
    tree.core(package)
    tree.zone("uncore", package, enabled=False)
    tree.zone("psys", limits_w=(0.0, 0.0))
    mmio = tree.package(0, control_type="intel-rapl-mmio", limits_w=(28.0, 64.0))
    tree.zone("dram", mmio)
    channels = by_label(host.open())
    assert {label: (c.domain, c.inside) for label, c in channels.items()} == {
        "rapl:package-0": ("package", None),
        "rapl:package-0/core": ("core", "rapl:package-0"),
        "rapl:package-0/uncore": ("uncore", "rapl:package-0"),
        "rapl:psys": ("psys", None),
        "rapl:mmio/package-0": ("package", "rapl:package-0"),
        "rapl:mmio/dram-0": ("dram", None),
    }
    assert "never added" in channels["rapl:mmio/package-0"].note
    assert channels["rapl:package-0"].most_w == 128.0
    assert channels["rapl:package-0/core"].most_w == 128.0
    assert math.isnan(channels["rapl:psys"].most_w)
    assert all(c.quantity == "energy" and c.window_s == 0 for c in channels.values())


def test_two_sockets_of_two_dies(host: Fixture) -> None:
    for number in (0, 1):
        for die in (0, 1):
            host.tree.dram(host.tree.package(number, die))
    assert {label: c.inside for label, c in by_label(host.open()).items()} == {
        f"rapl:{kind}-{number}-die-{die}": None
        for kind in ("package", "dram")
        for number in (0, 1)
        for die in (0, 1)
    }


def test_order_is_by_number_and_names_that_come_twice_are_told_apart(host: Fixture) -> None:
    for number in range(12):
        host.tree.package(number)
    host.tree.package(3)
    labels = [channel.label for channel in host.open().channels]
    expected = [f"rapl:package-{number}" for number in range(12)]
    assert labels == [*expected, "rapl:package-3#intel-rapl:12"]


def test_dram_and_core_of_a_second_interface_are_the_first_one_s(host: Fixture) -> None:
    for control_type in ("intel-rapl", "intel-rapl-mmio"):
        package = host.tree.package(0, control_type=control_type)
        host.tree.core(package)
        host.tree.dram(package)
    inside = {label: c.inside for label, c in by_label(host.open()).items() if "mmio" in label}
    assert inside == {
        "rapl:mmio/package-0": "rapl:package-0",
        "rapl:mmio/package-0/core": "rapl:package-0/core",
        "rapl:mmio/dram-0": "rapl:dram-0",
    }


def test_second_interface_alone_is_read_as_the_first_would_be(host: Fixture) -> None:
    host.tree.core(host.tree.package(0, control_type="intel-rapl-mmio"))
    inside = {label: c.inside for label, c in by_label(host.open()).items()}
    assert inside == {
        "rapl:mmio/package-0": None,
        "rapl:mmio/package-0/core": "rapl:mmio/package-0",
    }


def test_range_and_step_are_the_kernel_s(host: Fixture) -> None:
    package = host.tree.package(0)
    host.tree.dram(package)
    # Psys of Sapphire Rapids counts whole joules.
    host.tree.zone("psys", range_uj=4_294_967_295_000_000, start_uj=60_293_987_000_000)
    source = host.open()
    channels = by_label(source)
    assert channels["rapl:package-0"].range_j == 262143.32885
    assert channels["rapl:package-0"].resolution == pytest.approx(2**-14, rel=1e-4)
    assert channels["rapl:dram-0"].resolution == pytest.approx(2**-16, rel=3e-3)
    assert channels["rapl:psys"].resolution == pytest.approx(1.0)
    assert values(source)["rapl:psys"] == 60_293_987.0


@pytest.mark.parametrize(
    ("limits_w", "enabled", "most_w"),
    [
        ((125.0, 250.0), True, 500.0),
        ((125.0, 4095.875), True, 250.0),
        ((0.0, 3408.25), True, math.nan),
        ((125.0, 250.0), False, math.nan),
        ((), True, math.nan),
    ],
)
def test_limits_that_hold_bound_the_watts(
    host: Fixture, limits_w: tuple[float, ...], enabled: bool, most_w: float
) -> None:
    host.tree.zone("package-0", limits_w=limits_w, enabled=enabled)
    channel = host.open().channels[0]
    assert channel.most_w == pytest.approx(most_w, nan_ok=True)
    assert ("limits are off" in channel.note) is not enabled


def test_limit_without_a_figure_is_no_limit(host: Fixture) -> None:
    zone = host.tree.package(0, limits_w=(100.0,))
    # Reading gives EIO, as of a register that the processor lacks.
    (zone.folder / "constraint_1_max_power_uw").symlink_to("/proc/self/mem")
    assert host.open().channels[0].most_w == 200.0


def test_core_counter_of_amd_is_said_to_be_one_core_s(host: Fixture) -> None:
    host.tree.core(host.tree.package(0))
    assert "one core" not in by_label(host.open())["rapl:package-0/core"].note
    (host.settings.procfs / "cpuinfo").write_text("vendor_id\t: AuthenticAMD\n")
    assert "one core" in by_label(host.open())["rapl:package-0/core"].note


def test_counter_without_a_range_says_so(host: Fixture) -> None:
    zone = host.tree.package(0, start_uj=5_000_000)
    (zone.folder / "max_energy_range_uj").unlink()
    source = host.open()
    assert source.channels[0].range_j is None
    assert "joules are lost when it wraps" in source.channels[0].note
    assert values(source) == {"rapl:package-0": 5.0}


def test_tree_that_only_nests_its_zones(host: Fixture) -> None:
    host.tree.core(host.tree.package(0))
    for link in host.tree.classes.glob("*:*"):
        link.unlink()
    assert list(by_label(host.open())) == ["rapl:package-0", "rapl:package-0/core"]


def test_zone_that_counts_no_energy_is_no_channel(host: Fixture) -> None:
    host.tree.package(0)
    dtpm = host.tree.zone("soc", control_type="dtpm")
    dtpm.energy.unlink()
    assert list(by_label(host.open())) == ["rapl:package-0"]


# Counters that run


def test_counters_agree_with_what_was_drawn(host: Fixture) -> None:
    package = host.tree.package(0, start_uj=123_456_789)
    dram = host.tree.dram(package)
    source = host.open()
    before = values(source)
    with CounterWriter({package: 40.0, dram: lambda s: 3.0 if s < 0.1 else 6.0}) as writer:
        time.sleep(0.3)
    after = values(source)
    for label, zone in (("rapl:package-0", package), ("rapl:dram-0", dram)):
        assert after[label] - before[label] == pytest.approx(writer.joules(zone), abs=1e-6)
    assert writer.joules(package) > 11.0


def test_readings_are_timed_one_after_the_other(host: Fixture) -> None:
    host.tree.dram(host.tree.package(0))
    source = host.open()
    before = time.monotonic()
    first, second = source.read()
    assert before <= first.at_s <= second.at_s <= time.monotonic()
    assert first.source_at_s is None
    assert source.period_s == 1e-3


@pytest.mark.parametrize("wraps", [1, 5])
def test_wraps_are_seen_in_the_counter(host: Fixture, wraps: int) -> None:
    range_uj = 8_000_000
    package = host.tree.package(0, range_uj=range_uj, start_uj=range_uj - 1_000_000)
    source = host.open()
    counter = Unwrapped(source.channels[0])
    counter.see(values(source)["rapl:package-0"])
    deadline = time.monotonic() + 30
    with CounterWriter({package: 24.0}) as writer:
        while counter.wraps < wraps and time.monotonic() < deadline:
            time.sleep(0.02)
            counter.see(values(source)["rapl:package-0"])
    counter.see(values(source)["rapl:package-0"])
    assert counter.wraps >= wraps
    # At a wrap the counter takes one step more than its range.
    assert counter.joules == pytest.approx(writer.joules(package), abs=1e-6 * (1 + counter.wraps))
    assert writer.joules(package) > 8 * (wraps - 1)


def test_zone_that_goes_and_comes_back(host: Fixture) -> None:
    package = host.tree.package(0)
    dram = host.tree.dram(package)
    other = host.tree.package(1)
    source = host.open()
    with CounterWriter({package: 40.0, dram: 4.0, other: 30.0}) as writer:
        host.tree.remove(dram)
        gone = values(source)
        time.sleep(0.05)
        host.tree.restore(dram)
        back = values(source)
        time.sleep(0.05)
    assert math.isnan(gone["rapl:dram-0"])
    assert gone["rapl:package-0"] >= 0
    assert gone["rapl:package-1"] >= 0
    assert back["rapl:dram-0"] > 0
    assert values(source)["rapl:dram-0"] == pytest.approx(writer.joules(dram), abs=1e-6)


@pytest.mark.parametrize("text", ["", "garbage\n", "-5\n", f"{PACKAGE_RANGE_UJ + 1}\n"])
def test_figure_that_cannot_be_is_missing(host: Fixture, text: str) -> None:
    package = host.tree.package(0, start_uj=7_000_000)
    host.tree.package(1, start_uj=9_000_000)
    source = host.open()
    package.energy.write_text(text)
    assert values(source) == {
        "rapl:package-0": pytest.approx(math.nan, nan_ok=True),
        "rapl:package-1": 9.0,
    }
    package.energy.write_text("8000000\n")
    assert values(source)["rapl:package-0"] == 8.0


def test_zone_that_answers_with_an_error_is_missing(host: Fixture) -> None:
    host.tree.package(0, start_uj=7_000_000)
    failing = host.tree.package(1)
    failing.energy.unlink()
    failing.energy.symlink_to("/proc/self/mem")
    source = host.open()
    assert values(source) == {
        "rapl:package-0": 7.0,
        "rapl:package-1": pytest.approx(math.nan, nan_ok=True),
    }


def test_all_zones_gone_is_an_error_until_they_are_back(host: Fixture) -> None:
    zones = [host.tree.package(0, start_uj=7_000_000), host.tree.package(1)]
    source = host.open()
    for zone in zones:
        host.tree.remove(zone)
    with pytest.raises(SensorError) as error:
        source.read()
    assert "none of its 2 energy counters can be read" in str(error.value)
    assert "No such file or directory" in str(error.value)
    assert "sudo modprobe intel_rapl_msr" in str(error.value)
    for zone in zones:
        host.tree.restore(zone)
    assert values(source)["rapl:package-0"] == 7.0


def test_reading_costs_little_of_a_core(host: Fixture) -> None:
    zones = []
    for number in range(2):
        package = host.tree.package(number)
        zones += [package, host.tree.core(package), host.tree.dram(package)]
    watts = {zone: 30.0 + index for index, zone in enumerate(zones)}
    shares = []
    with CounterProcess(watts):
        source = host.open()
        for _ in range(9):
            before = time.process_time()
            for _ in range(10):
                source.read()
                # Caches grow cold between readings, as they do in use.
                time.sleep(0.01)
            shares.append(time.process_time() - before)
    # Ten readings, which are a second's, for less than half a percent of a core.
    assert sorted(shares)[4] < 0.005


# Mirrors


def test_dies_with_one_counter_are_found_when_opened(host: Fixture) -> None:
    dies = [host.tree.package(0, die) for die in range(3)]
    host.tree.package(1, 0)
    other = host.tree.zones[-1]
    mirrors = {dies[1]: dies[0], dies[2]: dies[0]}
    with CounterWriter({dies[0]: 68.0, other: 68.0}, mirrors=mirrors):
        source = host.open()
        deadline = time.monotonic() + 10
        while len(source.mirrored) < 2 and time.monotonic() < deadline:
            source.read()
            time.sleep(0.01)
        for _ in range(30):
            source.read()
            time.sleep(0.005)
    assert source.mirrored == {
        "rapl:package-0-die-1": "rapl:package-0-die-0",
        "rapl:package-0-die-2": "rapl:package-0-die-0",
    }
    channels = by_label(source)
    assert [c.inside for c in channels.values()] == [
        None,
        "rapl:package-0-die-0",
        "rapl:package-0-die-0",
        None,
    ]
    assert "mirrors rapl:package-0-die-0" in channels["rapl:package-0-die-1"].note


def moved(source: RaplSource, *steps: dict[Zone, int]) -> dict[str, str]:
    """Mirrors that a source has found after counters went on by so many microjoules."""
    shown = {zone: zone.start_uj for zone in steps[0]}
    for step in steps:
        for zone, microjoules in step.items():
            shown[zone] += microjoules
            zone.show(shown[zone])
        source.read()
    for zone in shown:
        zone.close()
    return source.mirrored


def test_mirror_is_found_while_reading_where_counters_stood_still(host: Fixture) -> None:
    dies = [host.tree.package(0, die, start_uj=1_000_000 * die) for die in range(2)]
    source = host.open()
    assert source.mirrored == {}
    found = moved(source, *[dict.fromkeys(dies, 777_777 + turn) for turn in range(10)])
    assert found == {"rapl:package-0-die-1": "rapl:package-0-die-0"}
    assert source.channels[1].inside == "rapl:package-0-die-0"


def test_mirrors_are_named_by_the_first_though_updates_fall_between(host: Fixture) -> None:
    dies = [host.tree.package(0, die) for die in range(3)]
    # The second moves as the first six times of ten, the third as the second, and twice all do.
    turns = [(7, 7, 5)] * 4 + [(7, 3, 3)] * 4 + [(7, 7, 7)] * 2
    apart = [dict(zip(dies, turn, strict=True)) for turn in turns]
    assert moved(host.open(), *apart) == {
        "rapl:package-0-die-1": "rapl:package-0-die-0",
        "rapl:package-0-die-2": "rapl:package-0-die-0",
    }


def test_memory_that_idles_alike_is_no_mirror(host: Fixture) -> None:
    # Where the energy of DRAM is computed, idle memories of one make are the same to the step.
    memories = [host.tree.dram(host.tree.package(number)) for number in range(2)]
    assert moved(host.open(), *[dict.fromkeys(memories, 10_000)] * 20) == {}


def test_sockets_that_draw_the_same_are_no_mirrors(host: Fixture) -> None:
    zones = [host.tree.package(number) for number in range(2)]
    with CounterWriter(dict.fromkeys(zones, 50.0)):
        source = host.open()
        for _ in range(30):
            source.read()
            time.sleep(0.005)
    assert source.mirrored == {}
    assert [channel.inside for channel in source.channels] == [None, None]


# Counters that cannot be read

AS_NOBODY = f"""
import os
from measurements.power import rapl, rapl_pyrapl
from measurements.power.protocol import SensorError, SourceSettings
from measurements.power.registry import open_source, parse_spec
import importlib, warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pyRAPL
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
for kind in KINDS:
    try:
        source = open_source(parse_spec(kind), SourceSettings())
    except SensorError as error:
        print(error)
    else:
        print([(c.label, c.note) for c in source.channels], [r.value for r in source.read()])
        source.close()
"""


@pytest.mark.parametrize("kind", ["rapl", "rapl:pyrapl"])
def test_counters_that_only_root_may_read(tmp_path: Path, kind: str) -> None:
    tree = PowercapTree(tmp_path / "sys")
    tree.core(tree.package(0))
    said = script(tree, AS_NOBODY.replace("KINDS", repr([kind])))
    assert said.count("\n") == 0
    assert said.startswith("/sys/class/powercap/")
    assert "energy_uj: only root may read it" in said
    assert "sudo chmod a+r /sys/class/powercap/*/energy_uj" in said


def test_the_remedy_that_is_told_helps(tmp_path: Path) -> None:
    tree = PowercapTree(tmp_path / "sys")
    tree.core(tree.package(0, start_uj=4_000_000))
    remedy = "import subprocess\nsubprocess.run('chmod a+r /sys/class/powercap/*/energy_uj', "
    said = script(
        tree, f"{remedy}shell=True, check=True)\n{AS_NOBODY}".replace("KINDS", "['rapl']")
    )
    assert "('rapl:package-0', '')" in said
    assert said.endswith("[4.0, 0.0]")


def test_one_counter_that_may_not_be_read_is_missing_with_its_remedy(tmp_path: Path) -> None:
    tree = PowercapTree(tmp_path / "sys")
    package = tree.package(0, start_uj=4_000_000)
    tree.dram(package)
    package.energy.chmod(0o444)
    said = script(tree, AS_NOBODY.replace("KINDS", "['rapl']"))
    assert "not readable: sudo chmod a+r /sys/class/powercap/intel-rapl:0:0/energy_uj" in said
    assert said.endswith("[4.0, nan]")


def test_this_machine_without_powercap_says_why(tmp_path: Path) -> None:
    nothing = tmp_path / "class"
    nothing.mkdir()
    for kind in ("rapl", "rapl:pyrapl"):
        done = subprocess.run(
            private_sys(
                {"/sys/class": nothing},
                [sys.executable, "-c", AS_NOBODY.replace("KINDS", repr([kind]))],
            ),
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 0, done.stderr
        flags = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        virtual = " hypervisor " in flags
        assert done.stdout.startswith("/sys/class/powercap: no RAPL counter: ")
        assert ("virtual machine" in done.stdout) is virtual
        assert done.stdout.count("\n") == 1


def cpuinfo(vendor: str, family: int, model: int, name: str, flags: str = "fpu msr") -> str:
    return (
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: {name}\nflags\t\t: {flags}\n\nprocessor\t: 1\n"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
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
    ],
)
def test_no_counter_says_why(host: Fixture, text: str, reason: str) -> None:
    (host.settings.procfs / "cpuinfo").write_text(text)
    with pytest.raises(SensorError) as error:
        host.open()
    assert str(error.value).startswith(f"{host.tree.classes}: no RAPL counter: ")
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_container_that_hides_the_zones_is_recognised(host: Fixture) -> None:
    host.tree.package(0)
    shutil.rmtree(host.tree.devices)
    host.tree.devices.mkdir()
    with pytest.raises(SensorError, match="its zones lead nowhere, as container runtimes hide"):
        host.open()


@pytest.mark.parametrize("module", [rapl, rapl_pyrapl])
def test_an_address_is_refused(module: object, host: Fixture) -> None:
    with pytest.raises(SensorError, match="this host alone"):
        module.open_source("elsewhere", host.settings)


# Beside other readers of the same tree


def test_all_readers_see_the_same_joules(tmp_path: Path) -> None:
    tree = PowercapTree(tmp_path / "sys")
    package = tree.package(0, start_uj=1_000_000)
    dram = tree.dram(package)
    with CounterWriter({package: 40.0, tree.core(package): 20.0, dram: 4.0}):
        said = in_private_sys(tree, [sys.executable, "-P", str(READERS), "1"])
    seen = json.loads(said)
    inner, outer = seen.pop("inner"), seen.pop("outer")
    assert inner > 39.0
    assert set(seen) == {"pyRAPL", "pyJoules", "codecarbon", "powercap-info", "rapl:pyrapl"}
    for reader, joules in seen.items():
        # A millionth: codecarbon turns joules to kWh by a rounded factor.
        assert inner * (1 - 1e-6) <= joules <= outer * (1 + 1e-6), reader


def test_no_joule_is_lost_where_others_lose_wraps(tmp_path: Path) -> None:
    tree = PowercapTree(tmp_path / "sys")
    package = tree.package(0, range_uj=16_000_000)
    with CounterWriter({package: 40.0}):
        said = in_private_sys(tree, [sys.executable, "-P", str(READERS), "1"])
    seen = json.loads(said)
    assert seen["inner"] > 39.0
    assert seen["inner"] <= seen["rapl:pyrapl"] <= seen["outer"]
    assert seen["pyRAPL"] is None or seen["pyRAPL"] < 16.1
    assert seen["pyJoules"] < 16.1


SHOW = """
import json
from measurements.power.protocol import SourceSettings
from measurements.power.registry import open_source, parse_spec
import sys, logging
seen = {}
for kind in ("rapl", "rapl:pyrapl"):
    source = open_source(parse_spec(kind), SourceSettings())
    pairs = zip(source.channels, source.read())
    seen[kind] = [[c.label, c.range_j, c.domain, r.value] for c, r in pairs]
    source.close()
    source.close()
assert "pandas" not in sys.modules and "numpy" not in sys.modules, "too much is loaded"
assert not logging.root.handlers
print(json.dumps(seen))
"""


def test_pyrapl_has_the_labels_of_rapl(tmp_path: Path) -> None:
    tree = PowercapTree(tmp_path / "sys")
    for number in (0, 1):
        package = tree.package(number, start_uj=1_000_000 * (number + 1))
        tree.core(package)
        tree.dram(package, start_uj=500_000 * (number + 1))
    tree.zone("psys")
    seen = json.loads(script(tree, SHOW, sockets=2))
    kept = [row for row in seen["rapl"] if row[2] in ("package", "dram")]
    assert seen["rapl:pyrapl"] == kept
    assert len(kept) == 4


def test_pyrapl_on_several_dies_points_to_rapl(tmp_path: Path) -> None:
    tree = PowercapTree(tmp_path / "sys")
    for die in range(2):
        tree.package(0, die)
    said = script(tree, AS_NOBODY.replace("KINDS", "['rapl:pyrapl']").replace("os.set", "#"))
    assert "pyRAPL finds no package for each socket" in said
    assert said.endswith("use rapl")


def test_pyrapl_reads_the_real_sysfs_alone(host: Fixture) -> None:
    with pytest.raises(SensorError, match=r"reads /sys alone, not .*: use rapl"):
        rapl_pyrapl.open_source(None, host.settings)


def test_pyrapl_that_is_not_installed_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyRAPL", None)
    with pytest.raises(SensorError, match=r"pip install 'perf-per-watt\[measure\]'"):
        rapl_pyrapl.open_source(None, SourceSettings())


LOST = """
import os, subprocess
from measurements.power.protocol import SensorError, SourceSettings
from measurements.power.registry import open_source, parse_spec
source = open_source(parse_spec("rapl:pyrapl"), SourceSettings())
energy = "/sys/class/powercap/intel-rapl:0/energy_uj"
print(source.read()[0].value)
os.truncate(energy, 0)
try:
    source.read()
except SensorError as error:
    print(error)
with open(energy, "w") as file:
    file.write("6000000\\n")
print(source.read()[0].value)
source.close()
"""


def test_pyrapl_that_loses_its_counter_and_gets_it_back(tmp_path: Path) -> None:
    tree = PowercapTree(tmp_path / "sys")
    tree.package(0, start_uj=5_000_000)
    before, error, after = script(tree, LOST).splitlines()
    assert (before, after) == ("5.0", "6.0")
    assert error.startswith("/sys/class/powercap: pyRAPL cannot read it (could not convert")
