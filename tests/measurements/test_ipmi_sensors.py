"""Sensor data records: decoded as pyghmi decodes them, and fetched from BMCs with their quirks."""

from __future__ import annotations

import math
import queue
import struct
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers.ipmi_bmc import IpmiBmc, Sensor, sensor_record

from measurements.power import ipmi_session
from measurements.power.ipmi_bmc import Answer
from measurements.power.ipmi_power import sensor_channels
from measurements.power.ipmi_sdr import PowerSensor, power_sensors, read_records, split_records
from measurements.power.protocol import SourceSettings
from measurements.power.registry import open_source, parse_spec

if TYPE_CHECKING:
    from pathlib import Path

WATTS = 6
READABLE = 0x40


def pyghmi_entry(record: bytes) -> Any:
    """The same record as pyghmi reads it."""
    from pyghmi.ipmi.private import constants
    from pyghmi.ipmi.sdr import SDREntry

    return SDREntry(bytearray(record), constants)


def with_formula(
    record: bytes, *, m: int, b: int, scale: int, offset_scale: int, form: int, function: int
) -> bytes:
    """Record whose sensor has another formula."""
    changed = bytearray(record)
    changed[20] = form << 6
    changed[23] = function
    low, high = struct.pack("<H", m & 0x3FF)
    changed[24:26] = low, high << 6
    low, high = struct.pack("<H", b & 0x3FF)
    changed[26:28] = low, high << 6
    changed[29] = (scale & 0xF) << 4 | offset_scale & 0xF
    return bytes(changed)


formulas = st.fixed_dictionaries(
    {
        "m": st.integers(-512, 511),
        "b": st.integers(-512, 511),
        "scale": st.integers(-8, 7),
        "offset_scale": st.integers(-8, 7),
        "form": st.integers(0, 2),
        "function": st.integers(0, 11),
    }
)


@given(formulas, st.integers(0, 255))
def test_figures_are_those_of_pyghmi(formula: dict[str, int], byte: int) -> None:
    record = with_formula(sensor_record(1, Sensor("Power")), **formula)
    (sensor,) = power_sensors([record])
    entry = pyghmi_entry(record)
    signed = {
        0: byte,
        1: byte - 255 if byte > 127 else byte,
        2: byte - 256 if byte > 127 else byte,
    }[formula["form"]]
    try:
        expected = entry.decode_value(None, signed)
    except (ValueError, ArithmeticError):
        expected = math.nan
    if isinstance(expected, complex):  # of a negative number's root
        expected = math.nan
    found = sensor.watts(bytes([byte, READABLE, 0]))
    if formula["function"] == 11 and math.isnan(expected):
        assert found <= 0  # which has a real root all the same
    else:
        assert found == pytest.approx(expected, rel=1e-9, nan_ok=True)


def named(kind: int, data: bytes) -> bytes:
    """Record of a sensor whose name is encoded in another way."""
    record = bytearray(sensor_record(1, Sensor("")))
    record[47] = kind << 6 | len(data)
    record += data
    record[4] = len(record) - 5
    return bytes(record)


printable = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=16)


@given(st.tuples(st.just(1), st.binary(max_size=16)) | st.tuples(st.just(3), printable))
def test_names_are_those_of_pyghmi(name: tuple[int, bytes | str]) -> None:
    kind, data = name
    record = named(kind, data.encode() if isinstance(data, str) else data)
    (sensor,) = power_sensors([record])
    assert sensor.name == pyghmi_entry(record).name.strip("\0 ")


@pytest.mark.parametrize(
    ("kind", "data", "name"),
    [
        # The specification's own example of packed letters, which pyghmi reads without end.
        (2, b"\x29\xdc\xa6", "IPMI"),
        (2, b"\x29\xdc\xa6\x29\xdc\xa6", "IPMIIPMI"),
        (3, "Läufer".encode("latin-1"), "Läufer"),
        (3, b"padded \0\0", "padded"),
        (0, "µW".encode(), "µW"),
        (0, b"\xff", "\ufffd"),
        (3, b"", ""),
    ],
)
def test_names_in_other_codes(kind: int, data: bytes, name: str) -> None:
    (sensor,) = power_sensors([named(kind, data)])
    assert sensor.name == name


@pytest.mark.parametrize(
    ("reply", "figure"),
    [
        (bytes([50, READABLE, 0]), 100.0),
        (bytes([50, READABLE | 0x80, 0xC0, 0x80]), 100.0),
        (bytes([50, READABLE]), 100.0),
        (bytes([50, READABLE | 0x20, 0]), math.nan),
        (bytes([50, 0x80, 0]), math.nan),
        (bytes([50]), math.nan),
        (b"", math.nan),
    ],
)
def test_a_reading_that_is_unavailable_is_nan(reply: bytes, figure: float) -> None:
    sensor = PowerSensor("Power", 1, 0, 7, 0, 2.0, 0.0)
    assert sensor.watts(reply) == pytest.approx(figure, nan_ok=True)


def test_a_step_is_known_of_linear_sensors_only() -> None:
    sensor = PowerSensor("Power", 1, 0, 7, 0, -0.5, 3.0)
    assert sensor.resolution_w == 0.5
    assert math.isnan(sensor._replace(linearization=4).resolution_w)


def changed(at: int, value: int) -> bytes:
    record = bytearray(sensor_record(1, Sensor("Power")))
    record[at] = value
    return bytes(record)


@pytest.mark.parametrize(
    "record",
    [
        changed(3, 0x02),  # a compact record
        changed(5, 0x2C),  # another controller's
        changed(13, 0x6F),  # discrete
        changed(20, 0xC0),  # no analog figure
        changed(20, 0x01),  # percent
        changed(20, 0x08),  # a rate
        changed(20, 0x02),  # watts by something
        changed(21, 1),  # degrees
        changed(23, 0x70),  # its factors depend on the figure
        sensor_record(1, Sensor("Power"))[:40],
        b"",
    ],
)
def test_what_does_not_tell_watts_is_left_out(record: bytes) -> None:
    watts = sensor_record(2, Sensor("Watts"))
    assert [s.name for s in power_sensors([record, watts])] == ["Watts"]


def test_a_dump_is_cut_into_its_records() -> None:
    records = [sensor_record(i, Sensor("x" * i)) for i in range(1, 6)]
    assert list(split_records(b"".join(records))) == records
    assert list(split_records(b"")) == []
    assert power_sensors(split_records(b"".join(records)[:-3]))[:4] == power_sensors(records[:4])


@pytest.mark.parametrize(
    ("name", "entity", "domain"),
    [
        ("CPU1 Power", 7, "package"),
        ("VCORE", 3, "package"),
        ("Mem Power", 7, "dram"),
        ("GPU0", 11, "gpu"),
        ("PS1 Input Power", 7, "wall"),
        ("PSU2_PIN", 7, "wall"),
        ("Status", 10, "wall"),
        ("PS1 Output", 10, "other"),
        ("PSU1_POUT", 10, "other"),
        ("FAN PWR", 7, "other"),
        ("Pwr Consumption", 7, "host"),
        ("Power Meter", 0, "host"),
        ("Total_Power", 0, "host"),
        ("Watts", 7, "host"),
        ("Watts", 99, "other"),
    ],
)
def test_a_sensor_covers_what_its_name_or_entity_says(name: str, entity: int, domain: str) -> None:
    (channel,) = sensor_channels([PowerSensor(name, 1, 0, entity, 0, 1.0, 0.0)])
    assert channel.label == f"ipmi:{name}"
    assert channel.domain == domain
    assert channel.inside is None


def test_parts_and_second_figures_are_inside_the_first_of_the_host() -> None:
    names = ("PSU1 In", "CPU Power", "Sys Power", "Total Power", "CPU Power", "")
    sensors = [PowerSensor(name, i, 0, 0, 0, 1.0, 0.0) for i, name in enumerate(names, 0x0A)]
    channels = sensor_channels(sensors)
    assert [(c.label, c.domain, c.inside) for c in channels] == [
        ("ipmi:PSU1 In", "wall", None),
        ("ipmi:CPU Power#0b", "package", "ipmi:Sys Power"),
        ("ipmi:Sys Power", "host", None),
        ("ipmi:Total Power", "host", "ipmi:Sys Power"),
        ("ipmi:CPU Power#0e", "package", "ipmi:Sys Power"),
        ("ipmi:#0f", "other", "ipmi:Sys Power"),
    ]
    assert channels[3].note == "another figure of what ipmi:Sys Power covers"


class Quirky:
    """A BMC's repository in memory, with the limits that BMCs have."""

    def __init__(
        self,
        records: list[bytes],
        *,
        most: int = 255,
        loses_every: int = 0,
        repository: bool = True,
        ends: int = 0xFFFF,
    ) -> None:
        self._records, self._most, self._repository = records, most, repository
        self._loses_every, self._ends = loses_every, ends
        self._reserved, self.asked = 0, 0

    def raw(self, netfn: int, command: int, data: bytes, until_s: float, *, lun: int = 0) -> Answer:
        assert until_s <= time.monotonic() + 5.0
        code, said = self._answer(netfn, command, data)
        return Answer(code, said, time.monotonic())

    def _answer(self, netfn: int, command: int, data: bytes) -> tuple[int, bytes]:
        if (netfn, command) == (0x06, 0x01):
            return 0, bytes([0x23, 9, 8, 0x9F, 2, 0x9F if self._repository else 0x9D])
        get = (0x0A, 0x23) if self._repository else (0x04, 0x21)
        if (netfn, command) == (get[0], 0x22):
            self._reserved += 1
            return 0, struct.pack("<H", self._reserved)
        if (netfn, command) != get:
            return 0xC1, b""
        self.asked += 1
        reserved, number, start, count = struct.unpack("<HHBB", data)
        if self._loses_every and self.asked % self._loses_every == 0:
            self._reserved += 1
        if reserved != self._reserved:
            return 0xC5, b""
        if count > self._most:
            return 0xCA, b""
        following = number + 1 if number + 1 < len(self._records) else self._ends
        return 0, struct.pack("<H", following) + self._records[number][start : start + count]

    def records(self, until_s: float) -> list[bytes]:
        return list(read_records(self, until_s))

    def close(self) -> None:
        pass

    def names(self) -> list[str]:
        return [sensor.name for sensor in power_sensors(self.records(time.monotonic() + 60.0))]


RECORDS = [
    sensor_record(0, Sensor("CPU Temp", base_unit=1)),
    sensor_record(1, Sensor("Sixteen letters.")),
    bytes([2, 0, 0x51, 0x12, 11]) + bytes(11),
    sensor_record(3, Sensor("Power", number=9)),
]
NAMES = ["Sixteen letters.", "Power"]


@pytest.mark.parametrize("repository", [True, False])
@pytest.mark.parametrize("most", [255, 31, 16, 8])
@pytest.mark.parametrize("loses_every", [0, 5])
def test_records_are_fetched_in_pieces_and_again(
    repository: bool, most: int, loses_every: int
) -> None:
    bmc = Quirky(RECORDS, most=most, loses_every=loses_every, repository=repository)
    assert bmc.names() == NAMES


def test_records_without_watts_are_not_fetched_whole() -> None:
    whole = Quirky([RECORDS[1]] * 50)
    units = Quirky([RECORDS[0]] * 50)
    assert (len(whole.names()), units.names()) == (50, [])
    assert units.asked == 2 * 50
    assert whole.asked == 4 * 50


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        ({"ends": 0}, NAMES),  # goes round
        ({"ends": 3}, NAMES),
        ({"most": 4}, []),  # carries nothing
        ({"loses_every": 1}, []),  # keeps no reservation
    ],
)
def test_a_repository_that_has_no_end_is_left(fault: dict[str, int], names: list[str]) -> None:
    bmc = Quirky(RECORDS, **fault)
    assert bmc.names() == names
    assert bmc.asked < 50


@pytest.mark.parametrize("tool", ["ipmi", "ipmi:ipmitool"])
def test_a_full_repository_is_searched(tmp_path: Path, tool: str) -> None:
    sensors = [
        Sensor(f"Sensor {i}", number=i, base_unit=WATTS if i % 40 == 0 else 1)
        for i in range(1, 121)
    ]
    with IpmiBmc(tmp_path, dcmi=False, sensors=sensors, watts=96) as bmc:
        spec = parse_spec(f"{tool}@{bmc.where}")
        source = open_source(spec, SourceSettings(login=lambda *_: bmc.login, timeout_s=30.0))
        try:
            labels = [channel.label for channel in source.channels]
            assert labels == ["ipmi:Sensor 40", "ipmi:Sensor 80", "ipmi:Sensor 120"]
            assert len(source.read()) == 3
        finally:
            source.close()


class _Idle:
    """A session that counts how often it is kept alive."""

    def __init__(self) -> None:
        self.kept, self.requests = 0, queue.Queue[Any]()

    def keep_alive(self) -> None:
        self.kept += 1
        if self.kept == 3:
            self.requests.put(None)

    def log_out(self) -> None:
        self.kept += 100


def test_an_idle_session_is_kept_and_then_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    session = _Idle()
    monkeypatch.setattr(ipmi_session, "Session", lambda: session)
    monkeypatch.setattr(ipmi_session, "_KEEPALIVE_S", 0.001)
    ipmi_session.serve(session.requests, asker=None)
    assert session.kept == 103
