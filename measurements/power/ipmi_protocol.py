"""IPMI as the sources see it: addresses, requests, DCMI's power reading and the sensor records."""

from __future__ import annotations

import math
import os
import re
import struct
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from measurements.power.source import Login, SensorError, SourceSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

DEVICE = "/dev/ipmi0"
PORT = 623

INSUFFICIENT_PRIVILEGE = 0xD4
# In ascending order: a login uses no more rights than the power reading takes.
PRIVILEGES = ("user", "operator", "administrator")

# Room of IPMI 2.0 for a login (bytes).
_MOST_BYTES = {"user": 16, "password": 20}

_ADDRESS = re.compile(
    r"(?:\[(?P<v6>[^][/]+)\]|(?P<host>[^][:/]+))(?::(?P<port>[0-9]+))?|(?P<bare>[^][/]*:[^][/]*:[^][/]*)"
)

_MEANINGS = {
    0xC0: "it is busy",
    0xC1: "it does not know the command",
    0xC3: "it ran out of time",
    0xCB: "it has nothing of the kind",
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

    # Completion code; 0 for success.
    code: int
    data: bytes
    # Middle of the request and its answer, by `time.monotonic` (s).
    at_s: float


class Bmc(Protocol):
    """A connection to a BMC. Times ``until_s`` are of `time.monotonic` (s)."""

    def raw(
        self, netfn: int, command: int, data: bytes, until_s: float, *, lun: int = 0
    ) -> IpmiAnswer:
        """Send a request; raise `NoAnswerError` if no answer comes in time."""
        ...

    def records(self, until_s: float) -> Iterable[bytes]:
        """Fetch the sensor data records."""
        ...

    def close(self) -> None:
        """End the session; a second call does nothing."""
        ...


class Address(NamedTuple):
    """Host and UDP port of a BMC."""

    host: str
    port: int


class Remote(NamedTuple):
    """A BMC on the network, and the login there."""

    address: Address
    login: Login


def resolve(
    kind: str, where: str | None, settings: SourceSettings, options: Iterable[str] = ()
) -> tuple[str, Remote | None]:
    """Check address, options and login; return the source's name, and its BMC unless local."""
    address = None if where is None else parse_address(kind, where)
    known = sorted(options) if address else []
    if unknown := sorted(set(settings.options) - set(known)):
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        raise SensorError(f"{kind} has no option {unknown[0]!r}: {takes}")
    if where is None or address is None:
        return kind, None
    name = f"{kind}@{where}"
    login = settings.login("ipmi", where)
    # A BMC would count a login that it cannot hold as a failed attempt.
    for what, most in _MOST_BYTES.items():
        count = len(getattr(login, what).encode())
        if not 0 < count <= most:
            raise SensorError(
                f"{name}: the {what} has {count} bytes and IPMI takes 1 to {most}: give the BMC a "
                "user of its own for IPMI"
            )
    return name, Remote(address, login)


def parse_address(kind: str, where: str) -> Address:
    """Parse ``bmc``, ``bmc:6230``, ``10.0.0.7``, ``fe80::7`` or ``[fe80::7]:623``."""
    # The message must not repeat the address, which may contain a password.
    if "@" in where:
        raise SensorError(
            f"{kind}: no user or password belongs in the address: write {kind}@HOST, and the "
            "login is asked for"
        )
    shape = _ADDRESS.fullmatch(where)
    number = int(shape["port"] or PORT) if shape else 0
    if shape is None or not 0 < number < 1 << 16:
        raise SensorError(f"{kind}: {where!r} is no address: write {kind}@HOST[:PORT]")
    return Address(shape["v6"] or shape["bare"] or shape["host"], number)


def check_device(kind: str) -> None:
    """Raise `SensorError` unless this user can open the host's own BMC."""
    over_network = f"over the network with {kind}@HOST"
    try:
        os.close(os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        raise SensorError(
            f"{kind}: {DEVICE} is not there: this host has no BMC, or its driver is not loaded "
            f"(`modprobe -a ipmi_devintf ipmi_si` as root); over the network: {kind}@HOST"
        ) from None
    except PermissionError:
        raise SensorError(
            f"{kind}: {DEVICE} may not be opened by this user: run as root, or ask the BMC "
            f"{over_network}"
        ) from None
    except OSError as error:
        raise SensorError(
            f"{kind}: no BMC answers behind {DEVICE} ({error.strerror}): ask it {over_network}"
        ) from None


def meaning(code: int) -> str:
    """Say what a completion code is about."""
    return _MEANINGS.get(code, f"it answers completion code 0x{code:02x}")


def silent(name: str, waited_s: float) -> NoAnswerError:
    """Describe a BMC that did not answer in time, by the name of its source."""
    remedy = (
        "check the address, that the BMC is up with IPMI over LAN enabled, and that no firewall "
        "drops its UDP port"
        if "@" in name
        else f"the BMC behind {DEVICE} may be restarting: try again in a few minutes, or ask it "
        f"over the network with {name}@HOST"
    )
    return NoAnswerError(f"{name}: no answer within {waited_s:.1f} s: {remedy}")


_SUITE_REFUSED = (
    "cipher suite",
    "authentication algorithm",
    "integrity algorithm",
    "confidentiality algorithm",
    "integrity payload",
)
# What tools say in lower case, and what it means; the first match holds.
_COMPLAINTS: tuple[tuple[tuple[str, ...], type[SensorError], str], ...] = (
    (
        ("incorrect password", "hmac is invalid", "integrity check value", "rakp4 integrity code"),
        RefusedError,
        "the BMC rejects the password of user {user!r}: correct PPW_IPMI_PASSWORD or the netrc "
        "entry",
    ),
    (
        ("unauthorized name", "invalid user name", "name length", "illegal", "unrecognized param"),
        RefusedError,
        "the BMC does not let user {user!r} in: correct PPW_IPMI_USER or the netrc entry, or "
        "enable that user for IPMI over LAN",
    ),
    (
        ("invalid role", "unauthorized role", "requested privilege level exceeds"),
        RefusedError,
        "the BMC gives user {user!r} too little privilege: let it have {privilege} for IPMI over "
        "LAN",
    ),
    # IPMI 1.5 tells no more than that.
    (
        ("activate session command failed",),
        RefusedError,
        "the BMC does not open a session for user {user!r}: correct PPW_IPMI_PASSWORD or the "
        "netrc entry, or let the user have {privilege} for IPMI over LAN",
    ),
    (
        _SUITE_REFUSED,
        SensorError,
        "the BMC refuses cipher suite {suites}: enable it there, or name another one by "
        "ipmi:ipmitool@HOST,cipher=N",
    ),
    (
        ("insufficient resources", "session slot", "login slots", "slot available"),
        SensorError,
        "the BMC has no free session: close others or wait for a minute",
    ),
    (
        (
            "name or service not known",
            "address lookup",
            "name resolution",
            "no address associated",
            "unable to transmit to specified address",
        ),
        SensorError,
        "this host name has no address: correct it, or give the BMC's IP address",
    ),
)


def complaint(
    name: str, said: str, *, user: str, privilege: str, suites: str
) -> SensorError | None:
    """Explain what a tool said of a failed login, without repeating it; None if unknown."""
    for phrases, kind, text in _COMPLAINTS:
        if any(phrase in said.lower() for phrase in phrases):
            filled = text.format(user=user, privilege=privilege.upper(), suites=suites)
            return kind(f"{name}: {filled}")
    return None


def refuses_suite(said: str) -> bool:
    """Whether a tool said that the BMC does not take the cipher suite."""
    return any(phrase in said.lower() for phrase in _SUITE_REFUSED)


# DCMI's Get Power Reading (Data Center Manageability Interface Specification 1.5, section 6.6.1).
_DCMI, _GET_POWER_READING, _GROUP = 0x2C, 0x02, 0xDC
# Mode 1 is the system's power; no attribute, one reserved byte.
_REQUEST = bytes([_GROUP, 0x01, 0x00, 0x00])

_REPLY = struct.Struct("<BHHHHIIB")
_MEASURING = 0x40
_NO_WATTS = {0: "0 W", 0xFFFF: "0xFFFF W"}
_NO_STAMP = (0, 0xFFFFFFFF)

# By the specification the period covers the minimum, maximum and average. A short one covers the
# current figure, too; other BMCs count it since their start, for days.
LONGEST_WINDOW_S = 60.0
# Stamps are whole seconds.
STAMP_STEP_S = 1.0


class PowerReading(NamedTuple):
    """DCMI's power reading (W), as the BMC says it; see `problem`."""

    current_w: int
    minimum_w: int
    maximum_w: int
    average_w: int
    # The BMC's clock; None if it has none.
    stamp_s: int | None
    # Time that minimum, maximum and average cover.
    period_s: float
    # Whether the BMC measures at all.
    active: bool

    @property
    def problem(self) -> str:
        """Why the current power is no figure; empty if it is one."""
        if not self.active:
            return "its power measurement is not activated"
        if self.current_w in _NO_WATTS:
            return f"it answers {_NO_WATTS[self.current_w]}"
        return ""

    @property
    def window_s(self) -> float:
        """Time that the current power is the mean of (s); 0 for a momentary figure."""
        return self.period_s if self.period_s <= LONGEST_WINDOW_S else 0.0


def ask_power(bmc: Bmc, until_s: float) -> IpmiAnswer:
    """Request DCMI's power reading."""
    return bmc.raw(_DCMI, _GET_POWER_READING, _REQUEST, until_s)


def parse_power_reading(data: bytes) -> PowerReading | None:
    """Parse the data after completion code 0; None if it is no power reading."""
    if len(data) < _REPLY.size or data[0] != _GROUP:
        return None
    _, current, minimum, maximum, average, stamp, period_ms, state = _REPLY.unpack_from(data)
    stamp_s = None if stamp in _NO_STAMP else stamp
    active = bool(state & _MEASURING)
    return PowerReading(current, minimum, maximum, average, stamp_s, period_ms / 1e3, active)


class BmcClock:
    """Tell new readings from repeated ones by the BMC's stamp, for as long as that moves.

    A stamp that stands still while the power changes is left out from then on; else all readings
    would count as one.
    """

    def __init__(self) -> None:
        self._last: PowerReading | None = None
        self._moved_at_s = float("-inf")
        self._stuck = False

    def stamp(self, reading: PowerReading, at_s: float) -> float | None:
        """Return the BMC's time of a reading that was read at ``at_s`` (s)."""
        last, self._last = self._last, reading
        if reading.stamp_s is None:
            return None
        if last is None or reading.stamp_s != last.stamp_s:
            self._moved_at_s = at_s
        elif reading != last and at_s - self._moved_at_s > 2 * STAMP_STEP_S:
            self._stuck = True
        return None if self._stuck else float(reading.stamp_s)


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
    lambda x: x,
    math.log,
    math.log10,
    math.log2,
    math.exp,
    lambda x: 10.0**x,
    lambda x: 2.0**x,
    lambda x: 1.0 / x,
    lambda x: x**2,
    lambda x: x**3,
    math.sqrt,
    math.cbrt,
)


class PowerSensor(NamedTuple):
    """A sensor of power: ``watts = linearization(factor · byte + offset)``."""

    # As the BMC calls it; not always unique.
    name: str
    number: int
    lun: int
    # What it is a sensor of (table 43-13), such as 3 for a processor.
    entity: int
    # 0: its byte has no sign; 1: ones' complement; 2: two's complement.
    signed: int
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
    return [
        _power_sensor(record)
        for record in records
        if _is_power_sensor(record) and len(record) >= _UP_TO_NAME
    ]


def split_records(dump: bytes) -> Iterator[bytes]:
    """Split a repository, as ``ipmitool sdr dump`` writes it, into its records."""
    start = 0
    while start + _HEADER <= len(dump):
        end = start + _HEADER + dump[start + 4]
        yield dump[start:end]
        start = end


def read_records(bmc: Bmc, until_s: float) -> Iterator[bytes]:
    """Fetch sensor data records: those of power sensors whole, the others up to their units."""
    return _Repository(bmc, until_s).records()


class _Repository:
    """The repository of a BMC, or the records of its own sensors if it keeps none."""

    def __init__(self, bmc: Bmc, until_s: float) -> None:
        self._bmc, self._until_s = bmc, until_s
        said = self._ask(_APPLICATION, _GET_DEVICE_ID).data
        keeps_one = len(said) <= _DEVICE_SUPPORT or bool(said[_DEVICE_SUPPORT] & _KEEPS_RECORDS)
        self._netfn, self._get = (_STORAGE, 0x23) if keeps_one else (_SENSOR_EVENT, 0x21)
        self._reservation, self._lost = bytes(2), 0
        self._chunk = _CHUNKS[0]
        self._next = 0

    def records(self) -> Iterator[bytes]:
        self._reserve()
        seen = set[int]()
        while self._next != _LAST_RECORD and self._next not in seen:
            number = self._next
            seen.add(number)
            record = self._bytes(number, 0, _HEADER)
            if len(record) < _HEADER:
                return
            length = _HEADER + record[4]
            if record[3] == _FULL_SENSOR and length >= _UP_TO_NAME:
                record += self._bytes(number, _HEADER, _UP_TO_UNITS)
                if _is_power_sensor(record):
                    record += self._bytes(number, _UP_TO_UNITS, length)
            yield record

    def _bytes(self, number: int, start: int, end: int) -> bytes:
        """Fetch bytes of a record; fewer than asked for if the BMC refuses them."""
        record = b""
        while start + len(record) < end:
            offset = start + len(record)
            where = number.to_bytes(2, "little") + bytes([offset, min(self._chunk, end - offset)])
            answer = self._ask(self._netfn, self._get, self._reservation + where)
            if answer.code == _RESERVATION_LOST and self._lost < _MOST_LOST:
                self._lost += 1
                self._reserve()
            elif answer.code in _TOO_MUCH and self._chunk > _CHUNKS[-1]:
                self._chunk = _CHUNKS[_CHUNKS.index(self._chunk) + 1]
            elif answer.code or len(answer.data) <= 2:
                break
            else:
                self._next = int.from_bytes(answer.data[:2], "little")
                record += answer.data[2:]
        return record

    def _reserve(self) -> None:
        answer = self._ask(self._netfn, _RESERVE)
        self._reservation = bytes(2) if answer.code else answer.data[:2]

    def _ask(self, netfn: int, command: int, data: bytes = b"") -> IpmiAnswer:
        until_s = min(time.monotonic() + _REQUEST_S, self._until_s)
        return self._bmc.raw(netfn, command, data, until_s)


def _is_power_sensor(record: bytes) -> bool:
    """Whether a record, at least up to its units, is of an analog power sensor of the BMC."""
    if len(record) < _UP_TO_UNITS or record[3] != _FULL_SENSOR or record[5] != _BMC_ADDRESS:
        return False
    units, base, _, linearization = record[20:24]
    is_analog, is_plain = units >> 6 != 3, units & 0x3F == 0
    known = linearization & 0x7F < len(_LINEARIZATIONS)
    return is_analog and is_plain and base == _WATTS and known and record[13] == _THRESHOLD


def _power_sensor(record: bytes) -> PowerSensor:
    m, tolerance, b, accuracy = record[24:28]
    exponents = record[29]
    scale, offset_scale = (
        10.0 ** _twos_complement(e, 4) for e in (exponents >> 4, exponents & 0xF)
    )
    return PowerSensor(
        name=_text(record[47], record[_UP_TO_NAME:]),
        number=record[7],
        lun=record[6] & 0x03,
        entity=record[8],
        signed=record[20] >> 6,
        factor=_twos_complement(m | (tolerance & 0xC0) << 2, 10) * scale,
        offset=_twos_complement(b | (accuracy & 0xC0) << 2, 10) * offset_scale * scale,
        linearization=record[23] & 0x7F,
    )


def _twos_complement(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _text(kind_and_length: int, data: bytes) -> str:
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
