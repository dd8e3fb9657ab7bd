"""The watts of a BMC by IPMI, whatever tool carries the requests.

``ipmi:dcmi``
    The current figure of DCMI's power reading: the whole host.
``ipmi:<sensor>``
    Sensors of the BMC that tell watts, where it has no power reading, or one without a figure.

What is no figure (0 W, 0xFFFF, not activated, an unavailable sensor) is read as NaN.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from measurements.power import ipmi_protocol
from measurements.power.ipmi_protocol import (
    GET_SENSOR_READING,
    INSUFFICIENT_PRIVILEGE,
    PRIVILEGES,
    SENSOR_EVENT,
    NoAnswerError,
    RefusedError,
    meaning,
    power_sensors,
    silent,
)
from measurements.power.source import Channel, Reading, SensorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from measurements.power.ipmi_protocol import Answer, Bmc, PowerReading, PowerSensor
    from measurements.power.source import Domain

    # Logs in with one of `PRIVILEGES`, before a time of `time.monotonic`.
    Connect = Callable[[str, float], Bmc]

# A BMC stamps its power reading with whole seconds and looks at its sensors about as often. It may
# answer hundreds of requests a second, with the same figure.
PERIOD_S = 1.0
# A repository holds hundreds of records, and a slow BMC takes 0.1 s for each.
RECORDS_S = 60.0

_BUSY = (0xC0, 0xC3)
_BUSY_TRIES, _BUSY_PAUSE_S = 3, 0.2

# The first that fits a sensor's name, or else its entity (specification, table 43-13).
_NAMES: tuple[tuple[str, Domain], ...] = (
    (r"cpu|proc", "package"),
    (r"dimm|mem|dram", "dram"),
    (r"gpu", "gpu"),
    (r"fan|disk|hdd|drive|pci|\bnic|\bout|p_?out", "other"),
    (r"psu|\bps[ _]?\d|(power|pwr) ?supply", "wall"),
    (r"total|sys|consum|meter|node|chassis|server|platform", "host"),
)
_ENTITIES: dict[int, Domain] = {
    **dict.fromkeys((3, 65), "package"),
    **dict.fromkeys((8, 32), "dram"),
    10: "wall",
    **dict.fromkeys((7, 19, 21, 23), "host"),
}


class Figures(Protocol):
    """What is read of a BMC: its power reading or its sensors."""

    channels: Sequence[Channel]

    def read(self, bmc: Bmc, until_s: float) -> list[Reading]:
        """Read every channel once."""
        ...

    def describe(self) -> dict[str, object]:
        """Tell what else was said."""
        ...


class DcmiFigures:
    """The power reading of a BMC as one channel."""

    def __init__(self, reading: PowerReading) -> None:
        note = ""
        if not reading.window_s and reading.period_s:
            note = (
                f"the BMC's period of {reading.period_s:.0f} s covers its minimum, maximum and "
                "average, not this figure"
            )
        self.channels: Sequence[Channel] = (
            Channel(
                "ipmi:dcmi", "power", "host", resolution=1.0, window_s=reading.window_s, note=note
            ),
        )
        self._clock = ipmi_protocol.BmcClock()
        self._last: PowerReading | None = reading
        self._problem = reading.problem

    def read(self, bmc: Bmc, until_s: float) -> list[Reading]:
        """Ask for the power reading."""
        answer = ask_for_power(bmc, until_s)
        self._last, self._problem = judge(answer)
        watts, stamp = float("nan"), None
        if self._last is not None and not self._problem:
            watts = float(self._last.current_w)
            stamp = self._clock.stamp(self._last, answer.at_s)
        return [Reading(self.channels[0].label, answer.at_s, watts, stamp)]

    def describe(self) -> dict[str, object]:
        """Tell the whole reply and why it is no figure, if it is none."""
        reply = self._last._asdict() if self._last is not None else {}
        return {**reply, "problem": self._problem}


class SensorFigures:
    """The power sensors of a BMC, a channel each."""

    def __init__(self, sensors: Sequence[PowerSensor]) -> None:
        self._sensors = sensors
        self.channels: Sequence[Channel] = sensor_channels(sensors)
        self._problems: dict[str, str] = {}

    def read(self, bmc: Bmc, until_s: float) -> list[Reading]:
        """Ask every sensor."""
        self._problems = {}
        return [
            self._read(bmc, until_s, sensor, channel.label)
            for sensor, channel in zip(self._sensors, self.channels, strict=True)
        ]

    def describe(self) -> dict[str, object]:
        """Tell which sensors gave no figure, and why."""
        return {"problems": dict(self._problems)}

    def _read(self, bmc: Bmc, until_s: float, sensor: PowerSensor, label: str) -> Reading:
        request = bytes([sensor.number])
        answer = bmc.raw(SENSOR_EVENT, GET_SENSOR_READING, request, until_s, lun=sensor.lun)
        watts = float("nan") if answer.code else sensor.watts(answer.data)
        if not watts > 0:
            unavailable = "it answers 0 W" if watts == 0 else "it is unavailable"
            self._problems[label] = meaning(answer.code) if answer.code else unavailable
            watts = float("nan")
        return Reading(label, answer.at_s, watts)


class IpmiPower:
    """An open BMC; where it drops the session, the next reading logs in again, once."""

    def __init__(
        self,
        name: str,
        bmc: Bmc,
        connect: Callable[[float], Bmc],
        figures: Figures,
        timeout_s: float,
    ) -> None:
        self._name = name
        self._bmc: Bmc | None = bmc
        self._connect = connect
        self._figures = figures
        self._timeout_s = timeout_s
        self._is_closed = False

    @property
    def channels(self) -> Sequence[Channel]:
        """The power reading's channel, or one for each power sensor."""
        return self._figures.channels

    @property
    def period_s(self) -> float:
        """How often there is something new (s)."""
        return max(PERIOD_S, *(channel.window_s for channel in self.channels))

    def read(self) -> list[Reading]:
        """Ask for the watts; half the time limit is kept for a second try in a new session.

        Raises
        ------
        SensorError
            When the BMC is silent, or no longer lets the user in.
        """
        if self._is_closed:
            raise SensorError(f"{self._name}: read after it was closed")
        now = time.monotonic()
        if self._bmc is not None:
            try:
                return self._figures.read(self._bmc, now + self._timeout_s / 2)
            except NoAnswerError:
                self._hang_up()
        try:
            self._bmc = self._connect(now + self._timeout_s)
            return self._figures.read(self._bmc, now + self._timeout_s)
        except NoAnswerError:
            self._hang_up()
            raise silent(self._name, time.monotonic() - now) from None

    def describe(self) -> dict[str, object]:
        """Tell what else the last reading said, such as DCMI's minimum, maximum and average."""
        return self._figures.describe()

    def close(self) -> None:
        """Log out."""
        self._is_closed = True
        self._hang_up()

    def _hang_up(self) -> None:
        if self._bmc is not None:
            self._bmc.close()
            self._bmc = None


def open_power(name: str, connect: Connect, timeout_s: float) -> IpmiPower:
    """Log in to a BMC and find out what it tells.

    Parameters
    ----------
    name : str
        How messages name the source.
    connect : callable
        ``(privilege, until_s) -> Bmc``.
    timeout_s : float
        For the login and the first power reading together, and for each later one.

    Raises
    ------
    SensorError
        When it does not answer, does not let the user in or tells no watts.
    """
    now = time.monotonic()
    try:
        bmc, level, answer = _log_in(connect, now + timeout_s)
        try:
            figures = _figures(name, bmc, answer)
        except BaseException:
            bmc.close()
            raise
    except NoAnswerError:
        raise silent(name, time.monotonic() - now) from None
    return IpmiPower(name, bmc, partial(connect, level), figures, timeout_s)


def _log_in(connect: Connect, until_s: float) -> tuple[Bmc, str, Answer]:
    """Log in with the least privilege that is told the watts, or the most that the user has."""
    level = PRIVILEGES[0]
    bmc, answer = _enter(connect, level, until_s)
    for higher in PRIVILEGES[1:]:
        if answer.code != INSUFFICIENT_PRIVILEGE:
            break
        try:
            raised, answer = _enter(connect, higher, until_s)
        except RefusedError:
            break
        except BaseException:
            bmc.close()
            raise
        bmc.close()
        bmc, level = raised, higher
    return bmc, level, answer


def _enter(connect: Connect, level: str, until_s: float) -> tuple[Bmc, Answer]:
    bmc = connect(level, until_s)
    try:
        return bmc, ask_for_power(bmc, until_s)
    except BaseException:
        bmc.close()
        raise


def _figures(name: str, bmc: Bmc, answer: Answer) -> Figures:
    reading, problem = judge(answer)
    if reading is not None and not problem:
        return DcmiFigures(reading)
    if sensors := power_sensors(bmc.records(time.monotonic() + RECORDS_S)):
        return SensorFigures(sensors)
    if reading is not None and reading.active:
        # What is 0 W just after the BMC's start may be a figure later.
        return DcmiFigures(reading)
    remedy = "measure with redfish@HOST or a meter"
    if answer.code == INSUFFICIENT_PRIVILEGE:
        remedy = "give the user OPERATOR or ADMINISTRATOR for IPMI over LAN"
    raise SensorError(
        f"{name}: the BMC tells no watts: by DCMI {problem}, and it has no power sensor: {remedy}"
    )


def ask_for_power(bmc: Bmc, until_s: float) -> Answer:
    """Ask for DCMI's power reading, patiently where the BMC is busy."""
    for _ in range(_BUSY_TRIES):
        answer = bmc.raw(
            ipmi_protocol.NETFN, ipmi_protocol.GET_POWER_READING, ipmi_protocol.REQUEST, until_s
        )
        if answer.code not in _BUSY or time.monotonic() + _BUSY_PAUSE_S >= until_s:
            break
        time.sleep(_BUSY_PAUSE_S)
    return answer


def judge(answer: Answer) -> tuple[PowerReading | None, str]:
    """Power reading of an answer, if there is one, and why it is no figure."""
    if answer.code:
        return None, meaning(answer.code)
    reading = ipmi_protocol.parse_power_reading(answer.data)
    return reading, "it gives no power reading" if reading is None else reading.problem


def sensor_channels(sensors: Sequence[PowerSensor]) -> tuple[Channel, ...]:
    """Label sensors by their names, which need not be unique, and say what they cover."""
    channels = [
        Channel(label, "power", _domain(sensor), resolution=sensor.resolution_w)
        for label, sensor in zip(_labels(sensors), sensors, strict=True)
    ]
    hosts = [channel.label for channel in channels if channel.domain == "host"]
    if not hosts:
        return tuple(channels)
    return tuple(_within(channel, hosts[0]) for channel in channels)


def _labels(sensors: Sequence[PowerSensor]) -> list[str]:
    names = [sensor.name for sensor in sensors]
    return [
        f"ipmi:{s.name}" if s.name and names.count(s.name) == 1 else f"ipmi:{s.name}#{s.number:02x}"
        for s in sensors
    ]


def _domain(sensor: PowerSensor) -> Domain:
    for pattern, domain in _NAMES:
        if re.search(pattern, sensor.name.lower()):
            return domain
    return _ENTITIES.get(sensor.entity, "other")


def _within(channel: Channel, whole: str) -> Channel:
    if channel.label == whole or channel.domain == "wall":
        return channel
    if channel.domain == "host":
        return replace(channel, inside=whole, note=f"another figure of what {whole} covers")
    return replace(channel, inside=whole)
