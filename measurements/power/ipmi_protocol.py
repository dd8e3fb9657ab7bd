"""IPMI as the sources see it: addresses, requests, refusals and the sensor data records.

pyghmi's own reader of these records is not used. It misses answers that come early, so that it
takes 14 s for 62 records of ipmi_sim, and this one 1 s; it never returns from a name in packed
letters; and it reads no records of a BMC without a repository.
"""

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from measurements.power import source
from measurements.power.source import Login, SensorError, SourceSettings

DEVICE = "/dev/ipmi0"
PORT = 623

INSUFFICIENT_PRIVILEGE = 0xD4
# In ascending order: a login uses no more rights than the power reading takes.
PRIVILEGES = ("user", "operator", "administrator")

# Room of IPMI 2.0 for a login (bytes).
_MOST_BYTES = {"user": 16, "password": 20}  # nosec B105  # lengths

_ADDRESS = re.compile(
    r"(?:\[(?P<v6>[^][/]+)\]|(?P<host>[^][:/]+))(?::(?P<port>[0-9]+))?|(?P<bare>[^][/]*:[^][/]*:[^][/]*)"
)

_MEANINGS = {
    0xC0: "it is busy",
    0xC1: "it does not know the command",
    0xC3: "it ran out of time",
    0xCB: "it has no such sensor or data",
    0xCC: "it refuses the request as invalid",
    0xCE: "it could not answer",
    INSUFFICIENT_PRIVILEGE: "it takes a higher privilege",
    0xD5: "it does not support that in its present state",
    0xD6: "the command is disabled",
}


class NoAnswerError(SensorError):
    """A BMC is silent, or has forgotten the session: asking anew may help."""


class RefusedError(SensorError):
    """A BMC answers, and does not let the user in."""


class IpmiAnswer(NamedTuple):
    """Answer of a BMC to a request."""

    code: int  # completion code; 0 for success
    data: bytes
    at_s: float  # middle of the request and its answer, by `time.monotonic` (s)


class Bmc(Protocol):
    """A connection to a BMC. Times ``until_s`` are of `time.monotonic` (s)."""

    def raw(
        self, netfn: int, command: int, data: bytes, until_s: float, *, lun: int = 0
    ) -> IpmiAnswer:
        """Send a request and return the answer; raise `NoAnswerError` if none comes in time."""

    def records(self, until_s: float) -> Iterable[bytes]:
        """Fetch the sensor data records."""

    def close(self) -> None:
        """End the session; a second call does nothing."""


class Remote(NamedTuple):
    """A BMC on the network: its host, its UDP port, and the login there."""

    host: str
    port: int
    login: Login


def resolve(
    kind: str, where: str | None, settings: SourceSettings, options: Sequence[str] = ()
) -> tuple[str, Remote | None]:
    """Check address, options and login; return the source's name, and its BMC unless local."""
    address = None if where is None else parse_address(kind, where)
    source.check_options(kind, settings.options, options if address else ())
    if where is None or address is None:
        return kind, None
    name = f"{kind}@{where}"
    login = settings.login("ipmi", where)
    # A BMC would count a login that it cannot hold as a failed attempt.
    for what, most in _MOST_BYTES.items():
        count = len(getattr(login, what).encode())
        if not 0 < count <= most:
            raise SensorError(
                f"{name}: the {what} has {count} bytes and IPMI takes 1 to "
                f"{most}: create a separate user for IPMI on the BMC"
            )
    return name, Remote(*address, login)


def parse_address(kind: str, where: str) -> tuple[str, int]:
    """Parse host and port of ``bmc``, ``bmc:6230``, ``fe80::7`` or ``[fe80::7]:623``."""
    # The message must not repeat the address, which may contain a password.
    if "@" in where:
        raise SensorError(
            f"{kind}: the address must not contain a user or password: write "
            f"{kind}@HOST, and ppw asks for the login"
        )
    shape = _ADDRESS.fullmatch(where)
    port = int(shape["port"] or PORT) if shape else 0
    if shape is None or not 0 < port < 1 << 16:
        raise SensorError(f"{kind}: {where!r} is no address: write {kind}@HOST[:PORT]")
    return shape["v6"] or shape["bare"] or shape["host"], port


def check_device(kind: str) -> None:
    """Raise `SensorError` unless this user can open the host's own BMC."""
    try:
        os.close(os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        reason = (
            f"no BMC answers behind {DEVICE} ({error.strerror}): ask it over the network with "
            f"{kind}@HOST"
        )
        if isinstance(error, FileNotFoundError):
            reason = (
                f"{DEVICE} is not there: this host has no BMC, or its driver is not loaded "
                f"(`modprobe -a ipmi_devintf ipmi_si` as root); over the network: {kind}@HOST"
            )
        if isinstance(error, PermissionError):
            reason = (
                f"{DEVICE} may not be opened by this user: run as root, or ask the BMC over the "
                f"network with {kind}@HOST"
            )
        raise SensorError(f"{kind}: {reason}") from None


def meaning(code: int) -> str:
    """Say what a completion code is about."""
    return _MEANINGS.get(code, f"it answers completion code 0x{code:02x}")


def late(name: str) -> NoAnswerError:
    """Make the error for an answer that did not come before its limit."""
    return NoAnswerError(f"{name}: the BMC does not answer in time")


def silent(name: str, waited_s: float) -> NoAnswerError:
    """Make the error for a BMC that did not answer in time, by the name of its source."""
    remedy = (
        "check the address, that the BMC is up with IPMI over LAN enabled, and that no firewall "
        "drops its UDP port"
        if "@" in name
        else f"the BMC behind {DEVICE} may be restarting: try again in a few minutes, or ask it "
        f"over the network with {name}@HOST"
    )
    return NoAnswerError(f"{name}: no answer within {waited_s:.1f} s: {remedy}")


_SUITE_REFUSED = (
    *("cipher suite", "authentication algorithm", "integrity algorithm"),
    *("confidentiality algorithm", "integrity payload"),
)
# What tools say in lower case, and what it means; the first match holds.
_COMPLAINTS: tuple[tuple[tuple[str, ...], type[SensorError], str], ...] = (
    (
        ("incorrect password", "hmac is invalid", "integrity check value", "rakp4 integrity code"),
        RefusedError,
        "rejects the password of user {user!r}: correct PPW_IPMI_PASSWORD or the netrc entry",
    ),
    (
        ("unauthorized name", "invalid user name", "name length", "illegal", "unrecognized param"),
        RefusedError,
        "does not let user {user!r} in: correct PPW_IPMI_USER or the netrc entry, or enable that "
        "user for IPMI over LAN",
    ),
    (
        ("invalid role", "unauthorized role", "requested privilege level exceeds"),
        RefusedError,
        "gives user {user!r} too little privilege: let it have {privilege} for IPMI over LAN",
    ),
    # IPMI 1.5 tells no more than that.
    (
        ("activate session command failed",),
        RefusedError,
        "does not open a session for user {user!r}: correct PPW_IPMI_PASSWORD or the netrc "
        "entry, or let the user have {privilege} for IPMI over LAN",
    ),
    (
        _SUITE_REFUSED,
        SensorError,
        "refuses cipher suite {suites}: enable it there, or name another one by "
        "ipmi:ipmitool@HOST,cipher=N",
    ),
    (
        ("insufficient resources", "session slot", "login slots", "slot available"),
        SensorError,
        "has no free session: close others or wait for a minute",
    ),
)
# This one is of the host name, not of the BMC.
_NO_ADDRESS = (
    *("name or service not known", "address lookup", "name resolution", "no address associated"),
    "unable to transmit to specified address",
)


def explain(name: str, said: str, *, user: str, privilege: str, suites: str) -> SensorError | None:
    """Make the error for what a tool said of a failed login; None if its words are unknown."""
    for phrases, kind, text in _COMPLAINTS:
        if any(phrase in said.lower() for phrase in phrases):
            reason = text.format(user=user, privilege=privilege.upper(), suites=suites)
            return kind(f"{name}: the BMC {reason}")
    if any(phrase in said.lower() for phrase in _NO_ADDRESS):
        return SensorError(
            f"{name}: this host name has no address: correct it, or give the BMC's IP address"
        )
    return None


def refuses_suite(said: str) -> bool:
    """Check whether a tool said that the BMC does not take the cipher suite."""
    return any(phrase in said.lower() for phrase in _SUITE_REFUSED)


# Power sensors (Intelligent Platform Management Interface Specification 2.0, sections 33:
# repository, 35.14: Get Sensor Reading, 36.3: conversion, 43.1: full sensor record).
_SENSOR_EVENT, _APPLICATION, _STORAGE = 0x04, 0x06, 0x0A
_GET_SENSOR_READING, _GET_DEVICE_ID = 0x2D, 0x01

_FULL_SENSOR, _BMC_ADDRESS, _THRESHOLD, _WATTS = 0x01, 0x20, 0x01, 6
_HEADER, _UP_TO_UNITS, _UP_TO_NAME = 5, 24, 48
_LAST_RECORD, _RESERVE = 0xFFFF, 0x22
# Of the answer to Get Device ID: a byte, and its bit for a repository.
_DEVICE_SUPPORT, _KEEPS_RECORDS = 5, 0x02
# BMCs answer one of these to a request for more bytes than they can carry.
_RESERVATION_LOST, _TOO_MUCH = 0xC5, (0xC7, 0xC8, 0xCA, 0xFF)
_CHUNKS = (32, 16, 8)
_MOST_LOST = 20
# A BMC that is silent for so long between records is gone.
_REQUEST_S = 5.0

_UNAVAILABLE, _SCANNING = 0x20, 0x40

# Applied to the linear figure (table 43-1, byte 24); those over 11 need factors for each reading.
_LINEARIZATIONS: tuple[Callable[[float], float], ...] = (
    *(float, math.log, math.log10, math.log2, math.exp),
    *(lambda x: 10.0**x, lambda x: 2.0**x, lambda x: 1.0 / x, lambda x: x**2, lambda x: x**3),
    *(math.sqrt, math.cbrt),
)


class PowerSensor(NamedTuple):
    """A sensor of power: ``watts = linearization(factor · byte + offset)``."""

    name: str  # as the BMC calls it; not always unique
    number: int
    lun: int
    entity: int  # what it is a sensor of (table 43-13), such as 3 for a processor
    signed: int  # 0: its byte has no sign; 1: ones' complement; 2: two's complement
    factor: float
    offset: float
    linearization: int = 0

    @property
    def resolution_w(self) -> float:
        """Smallest step (W); NaN if it varies."""
        return abs(self.factor) if self.linearization == 0 else float("nan")

    def ask(self, bmc: Bmc, until_s: float) -> IpmiAnswer:
        """Request the sensor's reading."""
        number = bytes([self.number])
        return bmc.raw(_SENSOR_EVENT, _GET_SENSOR_READING, number, until_s, lun=self.lun)

    def watts(self, reply: bytes) -> float:
        """Convert an answer to Get Sensor Reading (W); NaN without a figure."""
        if len(reply) < 2 or reply[1] & _UNAVAILABLE or not reply[1] & _SCANNING:
            return float("nan")
        byte = reply[0]
        if self.signed and byte & 0x80:
            byte -= 0xFF if self.signed == 1 else 0x100
        try:
            return _LINEARIZATIONS[self.linearization](self.factor * byte + self.offset)
        except (ValueError, ArithmeticError):
            return float("nan")


def power_sensors(records: Iterable[bytes]) -> list[PowerSensor]:
    """Find the power sensors of the BMC itself, in the order of their records."""
    whole = (record for record in records if len(record) >= _UP_TO_NAME)
    return [_parse_power_sensor(record) for record in whole if _is_power_sensor(record)]


def split_records(dump: bytes) -> Iterator[bytes]:
    """Split a repository, as ``ipmitool sdr dump`` writes it, into its records."""
    start = 0
    while start + _HEADER <= len(dump):
        end = start + _HEADER + dump[start + 4]
        yield dump[start:end]
        start = end


class SensorRecords:
    """The sensor data records of a BMC: its repository, or those of its own sensors without one.

    Iterating fetches the records of power sensors whole, the others up to their units.
    """

    def __init__(self, bmc: Bmc, until_s: float) -> None:
        self._bmc, self._until_s = bmc, until_s
        said = self._ask_bmc(_APPLICATION, _GET_DEVICE_ID).data
        keeps_one = len(said) <= _DEVICE_SUPPORT or bool(said[_DEVICE_SUPPORT] & _KEEPS_RECORDS)
        self._netfn, self._get = (_STORAGE, 0x23) if keeps_one else (_SENSOR_EVENT, 0x21)
        self._lost, self._next, self._chunk = 0, 0, _CHUNKS[0]
        self._reservation = bytes(2)

    def __iter__(self) -> Iterator[bytes]:
        """Fetch the records one by one."""
        self._reserve_repository()
        seen = set[int]()
        while self._next != _LAST_RECORD and self._next not in seen:
            number = self._next
            seen.add(number)
            record = self._fetch_record_bytes(number, 0, _HEADER)
            if len(record) < _HEADER:
                return
            length = _HEADER + record[4]
            if record[3] == _FULL_SENSOR and length >= _UP_TO_NAME:
                record += self._fetch_record_bytes(number, _HEADER, _UP_TO_UNITS)
                if _is_power_sensor(record):
                    record += self._fetch_record_bytes(number, _UP_TO_UNITS, length)
            yield record

    def _fetch_record_bytes(self, number: int, start: int, end: int) -> bytes:
        """Fetch bytes of a record; fewer than asked for if the BMC refuses them."""
        record = b""
        while start + len(record) < end:
            offset = start + len(record)
            where = number.to_bytes(2, "little") + bytes([offset, min(self._chunk, end - offset)])
            answer = self._ask_bmc(self._netfn, self._get, self._reservation + where)
            if answer.code == _RESERVATION_LOST and self._lost < _MOST_LOST:
                self._lost += 1
                self._reserve_repository()
            elif answer.code in _TOO_MUCH and self._chunk > _CHUNKS[-1]:
                self._chunk = _CHUNKS[_CHUNKS.index(self._chunk) + 1]
            elif answer.code or len(answer.data) <= 2:
                break
            else:
                self._next = int.from_bytes(answer.data[:2], "little")
                record += answer.data[2:]
        return record

    def _reserve_repository(self) -> None:
        answer = self._ask_bmc(self._netfn, _RESERVE)
        self._reservation = bytes(2) if answer.code else answer.data[:2]

    def _ask_bmc(self, netfn: int, command: int, data: bytes = b"") -> IpmiAnswer:
        until_s = min(time.monotonic() + _REQUEST_S, self._until_s)
        return self._bmc.raw(netfn, command, data, until_s)


def _is_power_sensor(record: bytes) -> bool:
    """Check whether a record, at least up to its units, is of an analog power sensor of the BMC."""
    if len(record) < _UP_TO_UNITS or record[3] != _FULL_SENSOR or record[5] != _BMC_ADDRESS:
        return False
    units, base, _, linearization = record[20:24]
    is_analog, is_plain = units >> 6 != 3, units & 0x3F == 0
    known = linearization & 0x7F < len(_LINEARIZATIONS)
    return is_analog and is_plain and base == _WATTS and known and record[13] == _THRESHOLD


def _parse_power_sensor(record: bytes) -> PowerSensor:
    m, tolerance, b, accuracy = record[24:28]
    exponents = record[29]
    scale, b_scale = (10.0 ** _twos_complement(e, 4) for e in (exponents >> 4, exponents & 0xF))
    return PowerSensor(
        name=_decode_id_string(record[47], record[_UP_TO_NAME:]),
        number=record[7],
        lun=record[6] & 0x03,
        entity=record[8],
        signed=record[20] >> 6,
        factor=_twos_complement(m | (tolerance & 0xC0) << 2, 10) * scale,
        offset=_twos_complement(b | (accuracy & 0xC0) << 2, 10) * b_scale * scale,
        linearization=record[23] & 0x7F,
    )


def _twos_complement(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _decode_id_string(kind_and_length: int, data: bytes) -> str:
    """Decode an ID string (section 43.15)."""
    kind, data = kind_and_length >> 6, data[: kind_and_length & 0x1F]
    if kind == 1:
        text = "".join("0123456789 -.:,_"[n] for byte in data for n in (byte >> 4, byte & 0xF))
    elif kind == 2:
        bits = int.from_bytes(data, "little")
        text = "".join(chr(0x20 + (bits >> at & 0x3F)) for at in range(0, 8 * len(data) - 5, 6))
    else:
        text = data.decode("latin-1" if kind == 3 else "utf-8", "replace")
    return text.strip("\0 ")
