"""Energy counters of processors that the kernel's powercap tree shows (RAPL).

Every zone below ``class/powercap`` is a channel: "rapl:package-0", "rapl:package-0/core",
"rapl:dram-0", "rapl:psys", on packages of several dies "rapl:package-0-die-1", and what the
second interface of some processors shows "rapl:mmio/package-0".

What may be added: channels of one domain, but for those that are `inside` another of the same
domain, which show its joules a second time. Packages and DRAM are apart and may be added to each
other; core and uncore are parts of their package; psys covers the packages, the DRAM and more of
the board, so that nothing is ever added to it. Its channel is not named in the packages' `inside`,
because it is not there on most servers and what it covers is up to the board's maker.

Some processors show one counter under the names of several dies. Two packages that move by the same
microjoules are such mirrors: `RaplSource.mirrored` names them, and the channel of the second is
`inside` the first.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from measurements.host.files import NumberFile, number, read_field, read_text
from measurements.power.source import Channel, Reading, SensorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from measurements.power.source import Domain, SourceSettings


# Why a host shows no RAPL counters, and what to do there.


_INSTEAD = "use hwmon, ipmi, redfish or a meter, or measure time alone"
# Intel has RAPL since Sandy Bridge (family 6, model 42). Later numbers without it are Westmere-EP,
# Nehalem-EX and Westmere-EX, and the Atoms of Cedarview.
_INTEL_FIRST_MODEL = 42
_INTEL_WITHOUT = (44, 46, 47, 53, 54)
# AMD has it since Zen.
_AMD_FIRST_FAMILY = 0x17
_LOAD = "load its driver: sudo modprobe intel_rapl_msr (intel_rapl before Linux 5.3)"


def processor(procfs: Path) -> dict[str, str]:
    """Return what ``cpuinfo`` says of the first processor; empty where it cannot be read."""
    first, _, _ = read_field(procfs / "cpuinfo").partition("\n\n")
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def why_absent(settings: SourceSettings) -> str:
    """Explain in a line that there is no powercap zone with an energy counter."""
    root = settings.sysfs / "class" / "powercap"
    return f"{root}: no RAPL counter: {_reason(root, processor(settings.procfs))}"


def _reason(root: Path, cpu: dict[str, str]) -> str:
    name = cpu.get("model name", "this processor")
    if _leads_nowhere(root):
        return (
            "its zones lead nowhere, as container runtimes hide them: measure outside of the "
            f"container, or {_INSTEAD}"
        )
    if "hypervisor" in cpu.get("flags", "").split():
        return (
            "this is a virtual machine, and guests are seldom given one: measure on the physical "
            f"host, or {_INSTEAD}"
        )
    vendor = cpu.get("vendor_id", "")
    if vendor == "GenuineIntel":
        return _of_intel(name, cpu)
    if vendor in ("AuthenticAMD", "HygonGenuine"):
        if _figure(cpu, "cpu family") < _AMD_FIRST_FAMILY:
            return f"{name} has none (AMD has it from family 17h, Zen, on): {_INSTEAD}"
        return f"{name} has it from Linux 5.8 on: {_LOAD}"
    return f"{name} is not of Intel or AMD, which alone have it: {_INSTEAD}"


def _of_intel(name: str, cpu: dict[str, str]) -> str:
    family, model = _figure(cpu, "cpu family"), _figure(cpu, "model")
    if family == 6 and model >= _INTEL_FIRST_MODEL and model not in _INTEL_WITHOUT:
        return f"{name} should have it: {_LOAD}"
    return f"{name} has none (Intel has it from Sandy Bridge on): {_INSTEAD}"


def _figure(cpu: dict[str, str], name: str) -> int:
    text = cpu.get(name, "")
    return int(text) if text.isdigit() else 0


def _leads_nowhere(root: Path) -> bool:
    try:
        return any(entry.is_symlink() and not entry.exists() for entry in root.iterdir())
    except OSError:
        return False


# Zones of the kernel's powercap tree that count energy, and what their figures mean.


_CONTROL_TYPE = "intel-rapl"
_ZONE_ID = re.compile(r"[^:]+(?::\d+)+")
_DOMAINS: dict[str, Domain] = {
    "package": "package",
    "core": "core",
    "uncore": "uncore",
    "dram": "dram",
    "psys": "psys",
}
_MICRO = 1e-6
# The energy registers have 32 bits, so that a counter's range tells its step.
_STEPS = 2**32 - 1
# Limits outside of this are what firmware writes for "none" (W).
_PLAUSIBLE_W = (1.0, 2000.0)
# For moments a package draws more than its limits, which hold on average.
_OVER_LIMIT = 2.0


class Zone(NamedTuple):
    """A powercap zone with an energy counter.

    Attributes
    ----------
    path : Path
        Its folder.
    range_uj : int or None
        Highest figure of its counter (µJ); None where the kernel does not say.
    channel : Channel
        What its figures mean.
    """

    path: Path
    range_uj: int | None
    channel: Channel


def find_zones(settings: SourceSettings) -> list[Zone]:
    """List all powercap zones that have a counter, readable or not, in the kernel's order."""
    found = {_identity(folder.name): folder for folder in _zone_folders(powercap(settings))}
    amd = processor(settings.procfs).get("vendor_id") == "AuthenticAMD"
    zones: dict[_Identity, Zone] = {}
    taken: set[str] = set()
    for identity in sorted(found):
        folder = found[identity]
        label = _label(identity, found)
        if label in taken:
            label = f"{label}#{folder.name}"
        taken.add(label)
        parent = zones.get(identity.parent)
        zones[identity] = _zone(folder, label, parent, taken, amd=amd)
    return list(zones.values())


def powercap(settings: SourceSettings) -> Path:
    """Folder of all powercap zones."""
    return settings.sysfs / "class" / "powercap"


@dataclass(frozen=True, order=True, slots=True)
class _Identity:
    """Where a zone stands: the control type, intel-rapl before all others, and its numbers."""

    other: bool
    control_type: str
    indices: tuple[int, ...]

    @property
    def parent(self) -> _Identity:
        return replace(self, indices=self.indices[:-1])


def _identity(name: str) -> _Identity:
    control_type, *indices = name.split(":")
    return _Identity(
        control_type != _CONTROL_TYPE, control_type, tuple(int(index) for index in indices)
    )


def _zone_folders(root: Path) -> Iterator[Path]:
    """Folders of zones, each name once: the kernel both links all here and nests them."""
    seen: set[str] = set()
    waiting = [root]
    while waiting:
        folder = waiting.pop(0)
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            continue
        for entry in entries:
            if not _belongs(entry.name, folder, root) or not entry.is_dir():
                continue
            waiting.append(entry)
            if ":" in entry.name and entry.name not in seen and _has_counter(entry):
                seen.add(entry.name)
                yield entry


def _belongs(name: str, folder: Path, root: Path) -> bool:
    """Whether a name is a control type's or zone's, not one of the links back up the tree."""
    if folder == root:
        return ":" not in name or _ZONE_ID.fullmatch(name) is not None
    return name.startswith(f"{folder.name}:") and _ZONE_ID.fullmatch(name) is not None


def _has_counter(zone: Path) -> bool:
    return (zone / "energy_uj").exists()


def _label(identity: _Identity, found: dict[_Identity, Path]) -> str:
    parts = [_name(found[i]) for i in _lineage(identity) if i in found]
    if parts[-1] == "dram" and len(parts) > 1:
        parts = [f"dram-{parts[-2].removeprefix('package-')}"]
    interface = identity.control_type.removeprefix(f"{_CONTROL_TYPE}-")
    return ":".join(["rapl", "/".join([interface, *parts] if identity.other else parts)])


def _lineage(identity: _Identity) -> list[_Identity]:
    return [
        replace(identity, indices=identity.indices[:depth])
        for depth in range(1, len(identity.indices) + 1)
    ]


def _name(zone: Path) -> str:
    return read_text(zone / "name") or zone.name


def _zone(folder: Path, label: str, parent: Zone | None, taken: set[str], *, amd: bool) -> Zone:
    kind = re.split(r"[-\d]", _name(folder), maxsplit=1)[0]
    domain = _DOMAINS.get(kind, "other")
    range_uj = number(folder / "max_energy_range_uj")
    if range_uj is not None and range_uj <= 0:
        range_uj = None
    apart = parent is None or domain in ("dram", "psys")
    inside = None if parent is None or apart else parent.channel.label
    notes = []
    twin = "rapl:" + label.partition("/")[2]
    if not folder.name.startswith(f"{_CONTROL_TYPE}:") and twin in taken:
        inside = twin
        notes.append(f"shows {twin} by another interface: never added to it")
    if amd and domain == "core":
        notes.append("of one core of the package alone, as AMD processors count each core apart")
    if range_uj is None:
        notes.append("the kernel does not tell its range: joules are lost when it wraps")
    if number(folder / "enabled") == 0:
        notes.append("its power limits are off")
    most_w = _most_w(folder)
    if math.isnan(most_w) and parent is not None and inside == parent.channel.label:
        most_w = parent.channel.most_w
    channel = Channel(
        label=label,
        quantity="energy",
        domain=domain,
        resolution=max(_MICRO, (range_uj or 0) / _STEPS * _MICRO),
        range_j=None if range_uj is None else range_uj / 1e6,
        inside=inside,
        most_w=most_w,
        note="; ".join(notes),
    )
    return Zone(folder, range_uj, channel)


def _most_w(zone: Path) -> float:
    """Watts that the limits in force allow, with room for the moments above them; NaN for none."""
    if number(zone / "enabled") == 0:
        return math.nan
    limits = [number(path) for path in zone.glob("constraint_*_power*_uw")]
    watts = [limit * _MICRO for limit in limits if limit is not None]
    least, most = _PLAUSIBLE_W
    return max((w * _OVER_LIMIT for w in watts if least <= w <= most), default=math.nan)


# The hardware brings its counters up to date about once in a millisecond.
PERIOD_S = 1e-3


def not_permitted(counter: Path, root: Path) -> str:
    """Explain that a counter may not be read, and how it may."""
    return (
        f"{counter}: only root may read it, since watts that anybody can read give away what "
        f"others compute (CVE-2020-8694): sudo chmod a+r {root}/*/energy_uj, which holds until the "
        "next boot, or run as root"
    )


def open_source(where: str | None, settings: SourceSettings) -> RaplSource:
    """Open all RAPL counters of this host.

    Raises
    ------
    SensorError
        Where there is no counter, or none that may be read.
    """
    if where is not None:
        raise SensorError(f"rapl@{where}: RAPL is read on this host alone: use rapl, no address")
    zones = find_zones(settings)
    if not zones:
        raise SensorError(why_absent(settings))
    return RaplSource(powercap(settings), zones)


class RaplSource:
    """All powercap counters of a host, open.

    A zone that fails is a reading of NaN while the others go on; so is one that may not be read,
    whose channel's note tells the remedy.
    """

    def __init__(self, root: Path, zones: Sequence[Zone]) -> None:
        self._root = root
        self._files = [NumberFile(zone.path / "energy_uj") for zone in zones]
        self._ranges = [math.inf if z.range_uj is None else z.range_uj for z in zones]
        first = self._counters()
        if all(value is None for _, value in first):
            self.close()
            raise SensorError(self._why_unreadable())
        self._channels = [
            replace(zone.channel, note=_joined(zone.channel.note, file.remedy))
            for zone, file in zip(zones, self._files, strict=True)
        ]
        self._mirrors = _Mirrors(
            [c.domain == "package" and c.inside is None for c in self._channels]
        )
        self._watch([value for _, value in first])
        self._look_for_mirrors()

    @property
    def channels(self) -> Sequence[Channel]:
        """One a zone. A mirror that is found only while reading changes `inside` and `note`."""
        return tuple(self._channels)

    @property
    def period_s(self) -> float:
        """The counters' own period."""
        return PERIOD_S

    @property
    def mirrored(self) -> dict[str, str]:
        """Labels of packages that show another one's counter, with that other's label."""
        labels = [channel.label for channel in self._channels]
        return {labels[mirror]: labels[first] for mirror, first in self._mirrors.found.items()}

    def read(self) -> list[Reading]:
        """Read every counter (J, not unwrapped); NaN for one that does not answer.

        Raises
        ------
        SensorError
            When none answers.
        """
        counters = self._counters()
        if all(value is None for _, value in counters):
            raise SensorError(self._why_unreadable())
        if self._mirrors.undecided:
            self._watch([value for _, value in counters])
        return [
            Reading(channel.label, at_s, math.nan if value is None else value / 1e6)
            for channel, (at_s, value) in zip(self._channels, counters, strict=True)
        ]

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def _counters(self) -> list[tuple[float, int | None]]:
        counters = []
        before = time.monotonic()
        for file, most in zip(self._files, self._ranges, strict=True):
            value = file.read()
            after = time.monotonic()
            sound = value is not None and 0 <= value <= most
            counters.append(((before + after) / 2, value if sound else None))
            before = after
        return counters

    def _look_for_mirrors(self) -> None:
        for _ in range(_Mirrors.LOOKS):
            if not self._mirrors.undecided:
                break
            time.sleep(5 * PERIOD_S)
            self._watch([value for _, value in self._counters()])

    def _watch(self, values: list[int | None]) -> None:
        for mirror, first in self._mirrors.see(values).items():
            twin = self._channels[first].label
            note = _joined(self._channels[mirror].note, f"mirrors {twin}: never added to it")
            self._channels[mirror] = replace(self._channels[mirror], inside=twin, note=note)

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
    """Tells counters that always move by the same microjoules.

    The joules of two packages never agree in all digits time after time. Of one counter under two
    names they nearly always do; an update between the two readings is the exception.
    """

    MOVES = 10
    LOOKS = 14
    _ALIKE = 6

    def __init__(self, candidates: Sequence[bool]) -> None:
        numbers = [index for index, candidate in enumerate(candidates) if candidate]
        self.undecided = dict.fromkeys(combinations(numbers, 2), (0, 0))
        self.found: dict[int, int] = {}
        self._last: Sequence[int | None] = [None] * len(candidates)

    def see(self, values: Sequence[int | None]) -> dict[int, int]:
        """Take one more look; return the mirrors that it brought to light, with their first."""
        new = {}
        for pair, (moves, alike) in list(self.undecided.items()):
            steps = [_step(self._last[index], values[index]) for index in pair]
            if None in steps or steps == [0, 0]:
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


def _step(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
