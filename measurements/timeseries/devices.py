"""Which disks and interfaces of a log are devices of their own, told by their names.

A log does not say what lies on what. Stacked block devices (dm, md, loop, zram, partitions) move
the same bytes as the disks below them, and bridges, bonds and tunnels those of the interfaces.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_STACKED_DISK = re.compile(r"(loop|z?ram|dm-|md|sr|fd|nbd|drbd|bcache|psv)\d")
_STACKED_INTERFACE = re.compile(
    r"lo$|.*\.|(ifb|dummy|bond|team|tun|tap|vxlan|vlan|wg|br|virbr|docker|gre|sit|ip6tnl)\d*$"
    r"|(veth|br-|cali|cni|flannel|lxc|vnet|vmnet|macvlan|tailscale|docker_)"
)
_PARTITION = re.compile(r"(?P<disk>.+?)(?:(?<=\d)p)?\d+")


def physical_disks(names: Iterable[str]) -> tuple[str, ...]:
    """Choose the whole disks among the names of a log, each transfer once.

    >>> physical_disks(["sda", "sda1", "dm-0", "nvme0n1", "nvme0n1p2", "loop3"])
    ('sda', 'nvme0n1')
    """
    known = dict.fromkeys(names)
    return tuple(n for n in known if not _STACKED_DISK.match(n) and not _is_partition(n, known))


def physical_interfaces(names: Iterable[str]) -> tuple[str, ...]:
    """Choose the interfaces with a wire or an antenna among the names of a log.

    >>> physical_interfaces(["lo", "eth0", "eth0.5", "br0", "docker0", "wlp0s20f3"])
    ('eth0', 'wlp0s20f3')
    """
    return tuple(name for name in dict.fromkeys(names) if not _STACKED_INTERFACE.match(name))


def _is_partition(name: str, known: Iterable[str]) -> bool:
    match = _PARTITION.fullmatch(name)
    return match is not None and match["disk"] in known
