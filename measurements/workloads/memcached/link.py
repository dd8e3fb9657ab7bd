"""The network between this host and a named server: its interface, speed and bytes so far."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from measurements.host.files import read_lines, read_number

if TYPE_CHECKING:
    from measurements.workloads.memcached.protocol import Address

_SIOCGIFADDR = 0x8915
_SENT = 8


class Link(NamedTuple):
    """How a server is reached.

    Attributes
    ----------
    interface : str or None
        None where it cannot be told.
    bits_s : float or None
        Its line rate; None for loopback and where the driver does not say.
    is_loopback : bool
        Whether the server is on this host.
    """

    interface: str | None
    bits_s: float | None
    is_loopback: bool

    def moved(self, procfs: Path = Path("/proc")) -> tuple[int, int] | None:
        """Bytes received and sent so far; None where they cannot be read."""
        for line in read_lines(procfs / "net/dev")[2:]:
            name, _, figures = line.rpartition(":")
            fields = figures.split()
            if name.strip() == self.interface and len(fields) > _SENT:
                return int(fields[0]), int(fields[_SENT])
        return None


def link_to(address: Address, sysfs: Path = Path("/sys")) -> Link:
    """Find the interface by which an address is reached, without sending anything."""
    try:
        family, _, _, _, where = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(where)
            own = probe.getsockname()[0].partition("%")[0]
    except OSError:
        return Link(None, None, is_loopback=False)
    local = ipaddress.ip_address(own)
    if local.is_loopback or str(where[0]) == own:
        return Link("lo", None, is_loopback=True)
    interface = next((name for name in _interfaces() if _address_of(name) == own), None)
    return Link(interface, None if interface is None else line_rate(interface, sysfs), False)


def line_rate(interface: str, sysfs: Path) -> float | None:
    """Line rate (bit/s) of an interface; None where its driver does not say."""
    megabits = read_number(sysfs / "class/net" / interface / "speed")
    return megabits * 1e6 if megabits is not None and megabits > 0 else None


def _interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def _address_of(interface: str) -> str | None:
    """Its first IPv4 address."""
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            return socket.inet_ntoa(fcntl.ioctl(asked, _SIOCGIFADDR, request)[20:24])
        except OSError:
            return None
