"""Zones of the kernel's powercap tree that count energy, and what their figures mean."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from measurements.host.files import read_text
from measurements.power.protocol import Channel
from measurements.power.rapl_absence import processor
from measurements.power.sysfs import number

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from measurements.power.protocol import Domain, SourceSettings

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
