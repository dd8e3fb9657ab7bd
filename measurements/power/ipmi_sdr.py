"""Power sensors of a BMC: found in its sensor data records, read as watts.

Intelligent Platform Management Interface Specification 2.0, sections 33 (repository), 35.14 (Get
Sensor Reading), 36.3 (conversion) and 43.1 (full sensor record).
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from measurements.power.ipmi_bmc import Answer, Bmc

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
