"""Bytes that network interfaces received and sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from measurements.host.files import read_lines

if TYPE_CHECKING:
    from pathlib import Path

_SENT = 8


def interface_bytes(procfs: Path, sysfs: Path) -> dict[str, tuple[int, int]]:
    """Bytes received and sent since the host's start, by interface.

    The physical interfaces where there are any: what bridges, bonds and tunnels carry passes
    them. In a container, which has none, all but the loopback and those on top of others.
    """
    found = {}
    for line in read_lines(procfs / "net/dev")[2:]:
        name, _, figures = line.rpartition(":")
        fields = figures.split()
        if len(fields) > _SENT and fields[0].isdecimal() and fields[_SENT].isdecimal():
            found[name.strip()] = int(fields[0]), int(fields[_SENT])
    folder = sysfs / "class/net"
    physical = {name for name in found if (folder / name / "device").exists()}
    others = {name for name in found if name != "lo" and not any((folder / name).glob("lower_*"))}
    return {name: found[name] for name in sorted(physical or others)}
