"""Energy counters of processors in the kernel's powercap tree (RAPL).

Every zone below ``class/powercap`` is a channel: "rapl:package-0", "rapl:package-0/core",
"rapl:dram-0", "rapl:psys", on packages of several dies "rapl:package-0-die-1", and through the
second interface of some processors "rapl:mmio/package-0".

Channels of one domain add up, except those `inside` another of that domain, which show its energy a
second time. Packages and DRAM are separate and may be added; core and uncore are parts of their
package. psys covers packages, DRAM and more of the board, so it is never added to anything; the
packages do not name it in `inside`, because most servers lack it and its scope is up to the board's
maker.

Some processors show one counter under the names of several dies. Two packages that move by the same
microjoules are such mirrors: the channel of the second is `inside` the first.
"""

from __future__ import annotations

import math
import re
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from measurements.errors import on_error
from measurements.host import files
from measurements.power import source
from measurements.power.source import Channel, Domain, Reading, SensorError, SourceSettings

# The hardware updates its counters about once per millisecond.
PERIOD_S = 1e-3

_CONTROL_TYPE = "intel-rapl"
_ZONE_ID = re.compile(r"[^:]+(?::\d+)+")
_DOMAINS: tuple[Domain, ...] = ("package", "core", "uncore", "dram", "psys")
# The energy registers have 32 bits, so the range of a counter tells its step.
_STEPS = 2**32 - 1
# Firmware writes limits outside of this for "none" (W).
_PLAUSIBLE_W = (1.0, 2000.0)
# A package briefly exceeds its limits, which hold on average.
_OVER_LIMIT = 2.0

_INSTEAD = "use hwmon, ipmi, redfish or a meter, or measure time alone"
# Intel has RAPL since Sandy Bridge (family 6, model 42). Later numbers without it are Westmere-EP,
# Nehalem-EX and Westmere-EX, and the Atoms of Cedarview.
_INTEL_FIRST_MODEL = 42
_INTEL_WITHOUT = (44, 46, 47, 53, 54)
# AMD has it since Zen.
_AMD_FIRST_FAMILY = 0x17
_LOAD = "load its driver: sudo modprobe intel_rapl_msr (intel_rapl before Linux 5.3)"


def open_source(where: str | None, settings: SourceSettings) -> RaplSource:
    """Open all RAPL counters of this host."""
    if where is not None:
        raise SensorError(
            f"rapl@{where}: ppw reads RAPL only on this host: write rapl without an address"
        )
    return RaplSource(powercap(settings), find_zones(settings))


class RaplSource:
    """All powercap counters of a host. A zone that fails, or may not be read, reads NaN."""

    period_s = PERIOD_S

    def __init__(self, root: Path, zones: Sequence[RaplZone]) -> None:
        self._root = root
        self._files = [files.NumberFile(zone.path / "energy_uj") for zone in zones]
        self._ranges = [math.inf if z.range_uj is None else z.range_uj for z in zones]
        with on_error(self.close):
            first = self._read_counters_or_raise()
        self._channels = [
            replace(zone.channel, note=source.join_notes(zone.channel.note, file.remedy))
            for zone, file in zip(zones, self._files, strict=True)
        ]
        self._mirrors = _Mirrors([c.domain == "package" and not c.inside for c in self._channels])
        self._mark_mirrors(first)
        for _ in range(_Mirrors.LOOKS):
            if not self._mirrors.undecided:
                break
            time.sleep(5 * PERIOD_S)
            self._mark_mirrors(self._query_counters())

    @property
    def channels(self) -> Sequence[Channel]:
        """One per zone. A mirror found while reading changes `inside` and `note`."""
        return tuple(self._channels)

    def read(self) -> list[Reading]:
        """Read every counter (J, not unwrapped); raise `SensorError` if none answers."""
        counters = self._read_counters_or_raise()
        if self._mirrors.undecided:
            self._mark_mirrors(counters)
        return [
            Reading(channel.label, at_s, math.nan if value is None else value / 1e6)
            for channel, (at_s, value) in zip(self._channels, counters, strict=True)
        ]

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def _read_counters_or_raise(self) -> list[tuple[float, int | None]]:
        counters = self._query_counters()
        if all(value is None for _, value in counters):
            raise SensorError(self._why_unreadable())
        return counters

    def _query_counters(self) -> list[tuple[float, int | None]]:
        """Read each counter: time (s) and value (µJ), None if unreadable or out of range."""
        counters = []
        before = time.monotonic()
        for file, most in zip(self._files, self._ranges, strict=True):
            value = file.read()
            after = time.monotonic()
            is_valid = value is not None and 0 <= value <= most
            counters.append(((before + after) / 2, value if is_valid else None))
            before = after
        return counters

    def _mark_mirrors(self, counters: list[tuple[float, int | None]]) -> None:
        for mirror, first in self._mirrors.compare([value for _, value in counters]).items():
            twin, channel = self._channels[first].label, self._channels[mirror]
            note = source.join_notes(channel.note, f"mirrors {twin}: never added to it")
            self._channels[mirror] = replace(channel, inside=twin, note=note)

    def _why_unreadable(self) -> str:
        for file in self._files:
            if file.denied:
                return not_permitted(file.path, self._root)
        first = self._files[0]
        return (
            f"{self._root}: none of its {len(self._files)} energy counters can be read "
            f"({first.path.parent.name}: {first.problem or 'its figure is out of range'}): is the "
            "driver still loaded? sudo modprobe intel_rapl_msr"
        )


class _Mirrors:
    """Find counters that always move by the same microjoules.

    The energy of two packages never agrees in all digits time after time. That of one counter
    under two names nearly always does, unless it is updated between the two readings.
    """

    MOVES = 10
    LOOKS = 14
    _ALIKE = 6

    def __init__(self, candidates: Sequence[bool]) -> None:
        numbers = [index for index, candidate in enumerate(candidates) if candidate]
        # Moves so far of each pair, and how many were alike.
        self.undecided = dict.fromkeys(combinations(numbers, 2), (0, 0))
        self.found: dict[int, int] = {}
        self._last: Sequence[int | None] = [None] * len(candidates)

    def compare(self, values: Sequence[int | None]) -> dict[int, int]:
        """Compare counters (µJ) with the last ones; return new mirrors, each with its original."""
        new = {}
        for pair, (moves, alike) in list(self.undecided.items()):
            both = [(self._last[index], values[index]) for index in pair]
            steps = [now - last for last, now in both if last is not None and now is not None]
            if len(steps) < 2 or steps == [0, 0]:
                continue
            moves, alike = moves + 1, alike + (steps[0] == steps[1])
            self.undecided[pair] = (moves, alike)
            if moves == self.MOVES:
                del self.undecided[pair]
                first, mirror = pair
                if alike >= self._ALIKE and mirror not in self.found:
                    new[mirror] = self.found[mirror] = self.found.get(first, first)
        self._last = values
        return new


class RaplZone(NamedTuple):
    """Folder of a powercap zone with an energy counter, its range, and its channel."""

    path: Path
    range_uj: int | None  # highest figure of the counter (µJ); None if the kernel does not tell
    channel: Channel


class _Identity(NamedTuple):
    """Place of a zone: its control type, intel-rapl before all others, and its numbers."""

    is_other: bool
    control_type: str
    indices: tuple[int, ...]


def powercap(settings: SourceSettings) -> Path:
    """Return the folder of all powercap zones."""
    return settings.sysfs / "class" / "powercap"


def find_zones(settings: SourceSettings) -> list[RaplZone]:
    """List all zones with a counter, readable or not, in the kernel's order.

    Raises `SensorError` with the remedy where there is none.
    """
    root, cpu = powercap(settings), files.first_pairs(settings.procfs / "cpuinfo")
    found = _zone_folders(root)
    if not found:
        raise SensorError(f"{root}: no RAPL counter: {_why_no_zones(root, cpu)}")
    is_amd = cpu.get("vendor_id") == "AuthenticAMD"
    zones: dict[_Identity, RaplZone] = {}
    labels: set[str] = set()
    for identity, folder in sorted(found.items()):
        label = _zone_label(identity, found)
        if label in labels:
            label = f"{label}#{folder.name}"
        labels.add(label)
        parent = zones.get(identity._replace(indices=identity.indices[:-1]))
        zones[identity] = _read_zone(folder, label, parent, labels, is_amd)
    return list(zones.values())


def _zone_folders(root: Path) -> dict[_Identity, Path]:
    """Find the folders of zones with a counter, each once: the kernel both links and nests them."""
    found: dict[_Identity, Path] = {}
    # Names of zones have colons; those without are control types, or links back up the tree.
    for pattern in ("*:*", "*/*:*", "*/*:*/*:*", "*/*:*/*:*/*:*"):
        for folder in sorted(root.glob(pattern)):
            if _ZONE_ID.fullmatch(folder.name) and (folder / "energy_uj").exists():
                control_type, *indices = folder.name.split(":")
                numbers = tuple(map(int, indices))
                identity = _Identity(control_type != _CONTROL_TYPE, control_type, numbers)
                found.setdefault(identity, folder)
    return found


def _zone_label(identity: _Identity, found: dict[_Identity, Path]) -> str:
    """Name a zone by its own name and those of the zones around it."""
    numbers = identity.indices
    lineage = [identity._replace(indices=numbers[: n + 1]) for n in range(len(numbers))]
    parts = [_zone_name(found[zone]) for zone in lineage if zone in found]
    if parts[-1] == "dram" and len(parts) > 1:
        parts = [f"dram-{parts[-2].removeprefix('package-')}"]
    if identity.is_other:
        parts.insert(0, identity.control_type.removeprefix(f"{_CONTROL_TYPE}-"))
    return f"rapl:{'/'.join(parts)}"


def _zone_name(zone: Path) -> str:
    return files.read_text(zone / "name") or zone.name


def _read_zone(
    folder: Path, label: str, parent: RaplZone | None, labels: set[str], is_amd: bool
) -> RaplZone:
    """Read a zone's range, limits and domain into its channel."""
    kind = re.split(r"[-\d]", _zone_name(folder), maxsplit=1)[0]
    domain: Domain = next((domain for domain in _DOMAINS if domain == kind), "other")
    range_uj = int(max(files.read_number(folder / "max_energy_range_uj") or 0, 0))
    whole = parent.channel if parent is not None and domain not in ("dram", "psys") else None
    inside = whole.label if whole else None
    notes = []
    twin = "rapl:" + label.partition("/")[2]
    if not folder.name.startswith(f"{_CONTROL_TYPE}:") and twin in labels:
        inside, whole = twin, None
        notes.append(f"shows {twin} by another interface: never added to it")
    if is_amd and domain == "core":
        notes.append(
            "covers one core of the package, because AMD processors count each core by itself"
        )
    if not range_uj:
        notes.append("the kernel does not report its range: energy is lost when it wraps")
    if files.read_number(folder / "enabled") == 0:
        notes.append("its power limits are off")
    most_w = _read_power_limit_w(folder)
    if math.isnan(most_w) and whole:
        most_w = whole.most_w
    channel = Channel(
        label,
        "energy",
        domain,
        resolution=max(1e-6, range_uj / _STEPS * 1e-6),
        range_j=range_uj / 1e6 if range_uj else None,
        inside=inside,
        most_w=most_w,
        note=source.join_notes(*notes),
    )
    return RaplZone(folder, range_uj or None, channel)


def _read_power_limit_w(zone: Path) -> float:
    """Read the power that the limits in force allow, with room for peaks (W); NaN without any."""
    if files.read_number(zone / "enabled") == 0:
        return math.nan
    limits = files.read_numbers(zone.glob("constraint_*_power*_uw"), 1e-6)
    least, most = _PLAUSIBLE_W
    return max((w * _OVER_LIMIT for w in limits if least <= w <= most), default=math.nan)


def not_permitted(counter: Path, root: Path) -> str:
    """Explain that a counter may not be read, and the remedy."""
    return (
        f"{counter}: only root may read it, since power that anybody can read gives away what "
        f"others compute (CVE-2020-8694): sudo chmod a+r {root}/*/energy_uj, which holds until the "
        "next boot, or run as root"
    )


def _why_no_zones(root: Path, cpu: dict[str, str]) -> str:
    name, vendor = cpu.get("model name", "this processor"), cpu.get("vendor_id", "")
    family, model = (
        int(text) if (text := cpu.get(key, "")).isdigit() else 0 for key in ("cpu family", "model")
    )
    links = [entry for entry in root.glob("*") if entry.is_symlink()]
    if not all(link.exists() for link in links):
        return (
            "its zones cannot be read, because container runtimes hide them: measure outside of "
            f"the container, or {_INSTEAD}"
        )
    if "hypervisor" in cpu.get("flags", "").split():
        return (
            "this is a virtual machine, and guests are seldom given one: measure on the physical "
            f"host, or {_INSTEAD}"
        )
    if vendor == "GenuineIntel":
        if family == 6 and model >= _INTEL_FIRST_MODEL and model not in _INTEL_WITHOUT:
            return f"{name} should have it: {_LOAD}"
        return f"{name} has none (Intel has it from Sandy Bridge on): {_INSTEAD}"
    if vendor in ("AuthenticAMD", "HygonGenuine"):
        if family < _AMD_FIRST_FAMILY:
            return f"{name} has none (AMD has it from family 17h, Zen, on): {_INSTEAD}"
        return f"{name} has it from Linux 5.8 on: {_LOAD}"
    return f"{name} is not of Intel or AMD, which alone have it: {_INSTEAD}"


_SYSFS = Path("/sys")


def open_pyrapl(where: str | None, settings: SourceSettings) -> PyRaplSource:
    """Open the counters that pyRAPL finds."""
    if where is not None:
        raise SensorError(f"rapl:pyrapl@{where}: pyRAPL reads only this host: leave out @{where}")
    if settings.sysfs != _SYSFS:
        raise SensorError(f"rapl:pyrapl reads {_SYSFS} alone, not {settings.sysfs}: use rapl")
    with _quietly():
        library = source.import_library("rapl:pyrapl", "pyRAPL", "pyRAPL", ", or use rapl")
    channels = {zone.channel.label: zone.channel for zone in find_zones(settings)}
    return PyRaplSource(library, channels, powercap(settings))


class PyRaplSource:
    """pyRAPL's sensor, by the labels of "rapl": to compare one reader with the other.

    pyRAPL 0.2.3.1 (2019) reads /sys only, knows "package" and "dram" only, and fails on packages of
    several dies. Its own measurements are None when a counter wraps; here its raw counters are
    read, so that wraps can be counted.
    """

    period_s = PERIOD_S

    def __init__(self, library: Any, known: dict[str, Channel], root: Path) -> None:
        self._library = library
        self._root = root
        self._sensor: Any = None
        # Two figures per socket: its package, then its DRAM; -1 if there is none.
        self._positions: dict[str, int] = {}
        for position, energy in enumerate(self._reconnect_and_read()):
            label = f"rapl:{('package', 'dram')[position % 2]}-{position // 2}"
            if energy >= 0 and label in known:
                self._positions[label] = position
        self.channels = tuple(known[label] for label in self._positions)

    def read(self) -> list[Reading]:
        """Read every counter (J, not unwrapped), reconnecting once."""
        energies, at_s = source.time_call(self._read_energies)
        return [
            Reading(label, at_s, energies[at] / 1e6 if energies[at] >= 0 else math.nan)
            for label, at in self._positions.items()
        ]

    def close(self) -> None:
        """Close the files, which pyRAPL itself leaves open."""
        sensor, self._sensor = self._sensor, None
        if sensor is not None:
            for device in sensor._device_api.values():
                for file in device._sys_files:
                    file.close()

    def _read_energies(self) -> list[float]:
        # There is no sensor if connecting failed the last time.
        if self._sensor:
            with suppress(OSError, ValueError):
                return list(self._sensor.energy())
        return self._reconnect_and_read()

    def _reconnect_and_read(self) -> list[float]:
        self.close()
        # pyRAPL's open files end with its exceptions, which must not outlive this block.
        with _quietly():
            try:
                self._sensor = self._library.Sensor()
                return list(self._sensor.energy())
            except PermissionError as error:
                why = not_permitted(Path(str(error.filename)), self._root)
            except self._library.PyRAPLException:
                why = (
                    f"{self._root}: pyRAPL finds no package for each socket of this host, as on "
                    "processors of several dies: use rapl"
                )
            except (OSError, ValueError, IndexError) as error:
                why = f"{self._root}: pyRAPL cannot read it ({error}): use rapl"
        raise SensorError(why)


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep pyRAPL from warning, from logging to the root and from loading pandas for its tables."""
    # Other sources are read without it.
    import logging

    handlers = list(logging.root.handlers)
    logging.root.handlers[:] = [logging.NullHandler()]
    pandas_was_there = "pandas" in sys.modules
    if not pandas_was_there:
        sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.root.handlers[:] = handlers
        if not pandas_was_there:
            del sys.modules["pandas"]
