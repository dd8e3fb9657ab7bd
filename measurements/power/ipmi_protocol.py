"""A BMC as the IPMI sources see it: requests and answers, and what hinders them."""

from __future__ import annotations

import math
import os
import re
import struct
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from measurements.power.source import SensorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from measurements.power.source import Login


DEVICE = "/dev/ipmi0"
PORT = 623

INSUFFICIENT_PRIVILEGE = 0xD4
# From the least upwards: a login is used with no more rights than the watts take.
PRIVILEGES = ("user", "operator", "administrator")

_LONGEST_USER, _LONGEST_PASSWORD = 16, 20

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
    """A BMC that is silent, or has forgotten the session: asking anew may help."""


class RefusedError(SensorError):
    """A BMC that answers, and does not let the user in."""


class Answer(NamedTuple):
    """What a BMC said.

    Attributes
    ----------
    code : int
        Completion code; 0 where it did what it was asked for.
    data : bytes
        What followed the code.
    at_s : float
        Middle of the request and its answer, by `time.monotonic`.
    """

    code: int
    data: bytes
    at_s: float


class Bmc(Protocol):
    """A way to a BMC."""

    def raw(self, netfn: int, command: int, data: bytes, until_s: float, *, lun: int = 0) -> Answer:
        """Send a request.

        Raises
        ------
        NoAnswerError
            When no answer has come at ``until_s`` (of `time.monotonic`), or none will.
        """
        ...

    def records(self, until_s: float) -> Iterable[bytes]:
        """Fetch the sensor data records."""
        ...

    def close(self) -> None:
        """End the session; a second call does nothing."""
        ...


class Address(NamedTuple):
    """Where a BMC listens."""

    host: str
    port: int


def parse_address(kind: str, where: str) -> Address:
    """Read ``bmc``, ``bmc:6230``, ``10.0.0.7``, ``fe80::7`` or ``[fe80::7]:623`` apart.

    Raises
    ------
    SensorError
        When it is no address.
    """
    # The address is not repeated: there may be a password in it.
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


def check_login(name: str, login: Login) -> None:
    """Refuse what IPMI 2.0 has no room for, before a BMC counts it as a failed attempt."""
    for what, text, most in (
        ("user", login.user, _LONGEST_USER),
        ("password", login.password, _LONGEST_PASSWORD),
    ):
        if not 0 < len(text.encode()) <= most:
            raise SensorError(
                f"{name}: the {what} has {len(text.encode())} bytes and IPMI takes 1 to {most}: "
                "give the BMC a user of its own for IPMI"
            )


def check_options(kind: str, options: Mapping[str, str], known: Iterable[str]) -> None:
    """Refuse options that would be left unheard."""
    known = sorted(known)
    if unknown := sorted(set(options) - set(known)):
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        raise SensorError(f"{kind} has no option {unknown[0]!r}: {takes}")


def check_device(kind: str) -> None:
    """Open this host's way to its BMC and close it again.

    Raises
    ------
    SensorError
        When there is none, or none for this user.
    """
    try:
        os.close(os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        raise SensorError(
            f"{kind}: {DEVICE} is not there: this host has no BMC, or its driver is not loaded "
            f"(`modprobe -a ipmi_devintf ipmi_si` as root); over the network: {kind}@HOST"
        ) from None
    except PermissionError:
        raise SensorError(
            f"{kind}: {DEVICE} may not be opened by this user: run as root, or ask the BMC over "
            f"the network with {kind}@HOST"
        ) from None
    except OSError as error:
        raise SensorError(
            f"{kind}: no BMC answers behind {DEVICE} ({error.strerror}): ask it over the network "
            f"with {kind}@HOST"
        ) from None


def meaning(code: int) -> str:
    """Say what a completion code is about."""
    return _MEANINGS.get(code, f"it answers completion code 0x{code:02x}")


def silent(name: str, waited_s: float) -> NoAnswerError:
    """Complain about a BMC, named as its source, that did not answer in time."""
    remedy = (
        "check the address, that the BMC is up with IPMI over LAN enabled, and that no firewall "
        "drops its UDP port"
        if "@" in name
        else f"the BMC behind {DEVICE} may be restarting: try again in a few minutes, or ask it "
        f"over the network with {name}@HOST"
    )
    return NoAnswerError(f"{name}: no answer within {waited_s:.1f} s: {remedy}")


class _Complaint(NamedTuple):
    """What a tool says, in lower case, and what it means."""

    phrases: tuple[str, ...]
    kind: type[SensorError]
    text: str


_SUITE_REFUSED = (
    "cipher suite",
    "authentication algorithm",
    "integrity algorithm",
    "confidentiality algorithm",
    "integrity payload",
)
# The first that fits.
_COMPLAINTS = (
    _Complaint(
        (
            "incorrect password",
            "hmac is invalid",
            "integrity check value",
            "rakp4 integrity code",
        ),
        RefusedError,
        "the BMC rejects the password of user {user!r}: correct PPW_IPMI_PASSWORD or the netrc "
        "entry",
    ),
    _Complaint(
        ("unauthorized name", "invalid user name", "name length", "illegal", "unrecognized param"),
        RefusedError,
        "the BMC does not let user {user!r} in: correct PPW_IPMI_USER or the netrc entry, or "
        "enable that user for IPMI over LAN",
    ),
    _Complaint(
        ("invalid role", "unauthorized role", "requested privilege level exceeds"),
        RefusedError,
        "the BMC gives user {user!r} too little privilege: let it have {privilege} for IPMI over "
        "LAN",
    ),
    # IPMI 1.5 tells no more than that.
    _Complaint(
        ("activate session command failed",),
        RefusedError,
        "the BMC does not open a session for user {user!r}: correct PPW_IPMI_PASSWORD or the "
        "netrc entry, or let the user have {privilege} for IPMI over LAN",
    ),
    _Complaint(
        _SUITE_REFUSED,
        SensorError,
        "the BMC refuses cipher suite {suites}: enable it there, or name another one by "
        "ipmi:ipmitool@HOST,cipher=N",
    ),
    _Complaint(
        ("insufficient resources", "session slot", "login slots", "slot available"),
        SensorError,
        "the BMC has no free session: close others or wait for a minute",
    ),
    _Complaint(
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
    """Explain what a tool said of a login that failed; None where that is not known.

    Parameters
    ----------
    name : str
        Of the source.
    said : str
        By the tool; not repeated.
    user, privilege, suites : str
        Who asked for what, and by which cipher suites.
    """
    said = said.lower()
    for phrases, kind, text in _COMPLAINTS:
        if any(phrase in said for phrase in phrases):
            filled = text.format(user=user, privilege=privilege.upper(), suites=suites)
            return kind(f"{name}: {filled}")
    return None


def refuses_suite(said: str) -> bool:
    """Whether a tool said that the BMC does not take the cipher suite."""
    return any(phrase in said.lower() for phrase in _SUITE_REFUSED)


# DCMI's Get Power Reading: what a BMC answers, and which answers are no figure.
#
# Data Center Manageability Interface Specification 1.5, section 6.6.1.


NETFN, GET_POWER_READING = 0x2C, 0x02
GROUP = 0xDC
# Mode 1 is the system's power; no attribute, one reserved byte.
REQUEST = bytes([GROUP, 0x01, 0x00, 0x00])

_REPLY = struct.Struct("<BHHHHIIB")
_MEASURING = 0x40
_NO_WATTS = {0: "0 W", 0xFFFF: "0xFFFF W"}
_NO_STAMP = (0, 0xFFFFFFFF)

# By the specification the period belongs to the minimum, maximum and mean. BMCs that give a short
# one mean the current figure too; others count it since their start, for days.
LONGEST_WINDOW_S = 60.0
# Stamps are whole seconds.
STAMP_STEP_S = 1.0


class PowerReading(NamedTuple):
    """A whole reply.

    Attributes
    ----------
    current_w, minimum_w, maximum_w, average_w : int
        Watts as the BMC says them; not all BMCs mean what they say (see `problem`).
    stamp_s : int or None
        The BMC's clock; None where it has none.
    period_s : float
        What minimum, maximum and average cover.
    active : bool
        Whether the BMC measures at all.
    """

    current_w: int
    minimum_w: int
    maximum_w: int
    average_w: int
    stamp_s: int | None
    period_s: float
    active: bool

    @property
    def problem(self) -> str:
        """Why the current watts are no figure; empty where they are."""
        if not self.active:
            return "its power measurement is not activated"
        if self.current_w in _NO_WATTS:
            return f"it answers {_NO_WATTS[self.current_w]}"
        return ""

    @property
    def window_s(self) -> float:
        """Seconds that the current watts are the mean of; 0 where only the moment is meant."""
        return self.period_s if self.period_s <= LONGEST_WINDOW_S else 0.0


def parse_power_reading(data: bytes) -> PowerReading | None:
    """Read a reply that follows completion code 0; None where it is no power reading."""
    if len(data) < _REPLY.size or data[0] != GROUP:
        return None
    _, current, minimum, maximum, average, stamp, period_ms, state = _REPLY.unpack_from(data)
    return PowerReading(
        current,
        minimum,
        maximum,
        average,
        None if stamp in _NO_STAMP else stamp,
        period_ms / 1e3,
        bool(state & _MEASURING),
    )


class BmcClock:
    """Tells a reading from the one before by the BMC's stamp, for as long as that stamp moves.

    Where the watts change while the stamp does not, the stamp says nothing, and is left out from
    then on: else all readings would pass for one.
    """

    def __init__(self) -> None:
        self._last: PowerReading | None = None
        self._moved_at_s = float("-inf")
        self._stuck = False

    def stamp(self, reading: PowerReading, at_s: float) -> float | None:
        """Give the sensor's own time of a reading that was read at ``at_s`` (s)."""
        last, self._last = self._last, reading
        if reading.stamp_s is None:
            return None
        if last is None or reading.stamp_s != last.stamp_s:
            self._moved_at_s = at_s
        elif reading != last and at_s - self._moved_at_s > 2 * STAMP_STEP_S:
            self._stuck = True
        return None if self._stuck else float(reading.stamp_s)


# Power sensors of a BMC: found in its sensor data records, read as watts.
#
# Intelligent Platform Management Interface Specification 2.0, sections 33 (repository), 35.14 (Get
# Sensor Reading), 36.3 (conversion) and 43.1 (full sensor record).


SENSOR_EVENT, APPLICATION, STORAGE = 0x04, 0x06, 0x0A
GET_SENSOR_READING, GET_DEVICE_ID = 0x2D, 0x01

_FULL_SENSOR, _BMC_ADDRESS, _THRESHOLD, _WATTS = 0x01, 0x20, 0x01, 6
_HEADER, _UP_TO_UNITS, _UP_TO_NAME = 5, 24, 48
_LAST_RECORD, _RESERVE = 0xFFFF, 0x22
# Of the answer to Get Device ID: a byte, and its bit for a repository.
_DEVICE_SUPPORT, _KEEPS_RECORDS = 5, 0x02
# BMCs answer one of these to a request for more bytes than they can carry.
_RESERVATION_LOST, _TOO_MUCH = 0xC5, (0xC7, 0xC8, 0xCA, 0xFF)
_CHUNKS = (32, 16, 8)
_MOST_LOST = 20
# A BMC that is silent for so long amid its records has gone.
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
    """A sensor whose figure is watts.

    Attributes
    ----------
    name : str
        As the BMC calls it; not always unique.
    number, lun : int
        How it is asked for.
    entity : int
        What it is a sensor of (table 43-13), such as 3 for a processor.
    signed : int
        0: its byte has no sign; 1: ones' complement; 2: two's complement.
    factor, offset : float
        Watts are ``linearization(factor · byte + offset)``.
    linearization : int
        Index of the function.
    """

    name: str
    number: int
    lun: int
    entity: int
    signed: int
    factor: float
    offset: float
    linearization: int = 0

    @property
    def resolution_w(self) -> float:
        """Smallest step (W); NaN where it is not the same everywhere."""
        return abs(self.factor) if self.linearization == 0 else float("nan")

    def watts(self, reply: bytes) -> float:
        """Read the answer to Get Sensor Reading; NaN where the sensor has no figure."""
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
    """Find the sensors of the BMC itself that tell watts, in the order of their records."""
    return [
        _power_sensor(record)
        for record in records
        if _tells_watts(record) and len(record) >= _UP_TO_NAME
    ]


def split_records(dump: bytes) -> Iterator[bytes]:
    """Cut a dump of a repository, as ``ipmitool sdr dump`` writes it, into its records."""
    start = 0
    while start + _HEADER <= len(dump):
        end = start + _HEADER + dump[start + 4]
        yield dump[start:end]
        start = end


def read_records(bmc: Bmc, until_s: float) -> Iterator[bytes]:
    """Fetch sensor data records: those that tell watts whole, the others up to their units.

    Parameters
    ----------
    bmc : Bmc
        Asked for one record after the other, in pieces that it can carry.
    until_s : float
        Of `time.monotonic`, for all of them.

    Raises
    ------
    SensorError
        When the BMC stops answering.
    """
    return _Repository(bmc, until_s).records()


class _Repository:
    """The repository of a BMC, or the records of its own sensors where it keeps none."""

    def __init__(self, bmc: Bmc, until_s: float) -> None:
        self._bmc, self._until_s = bmc, until_s
        said = self._ask(APPLICATION, GET_DEVICE_ID).data
        keeps_one = len(said) <= _DEVICE_SUPPORT or bool(said[_DEVICE_SUPPORT] & _KEEPS_RECORDS)
        self._netfn, self._get = (STORAGE, 0x23) if keeps_one else (SENSOR_EVENT, 0x21)
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
                if _tells_watts(record):
                    record += self._bytes(number, _UP_TO_UNITS, length)
            yield record

    def _bytes(self, number: int, start: int, end: int) -> bytes:
        """Fetch bytes of a record; fewer than asked for where the BMC will not give them."""
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

    def _ask(self, netfn: int, command: int, data: bytes = b"") -> Answer:
        until_s = min(time.monotonic() + _REQUEST_S, self._until_s)
        return self._bmc.raw(netfn, command, data, until_s)


def _tells_watts(record: bytes) -> bool:
    """Whether a record, at least up to its units, is of an analog sensor of the BMC in watts."""
    if len(record) < _UP_TO_UNITS or record[3] != _FULL_SENSOR or record[5] != _BMC_ADDRESS:
        return False
    units, base, _, linearization = record[20:24]
    is_analog, is_plain = units >> 6 != 3, units & 0x3F == 0
    known = linearization & 0x7F < len(_LINEARIZATIONS)
    return is_analog and is_plain and base == _WATTS and known and record[13] == _THRESHOLD


def _power_sensor(record: bytes) -> PowerSensor:
    m, tolerance, b, accuracy = record[24:28]
    exponents = record[29]
    scale = 10.0 ** _signed(exponents >> 4, 4)
    return PowerSensor(
        name=_text(record[47], record[_UP_TO_NAME:]),
        number=record[7],
        lun=record[6] & 0x03,
        entity=record[8],
        signed=record[20] >> 6,
        factor=_signed(m | (tolerance & 0xC0) << 2, 10) * scale,
        offset=_signed(b | (accuracy & 0xC0) << 2, 10)
        * 10.0 ** _signed(exponents & 0xF, 4)
        * scale,
        linearization=record[23] & 0x7F,
    )


def _signed(value: int, bits: int) -> int:
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
