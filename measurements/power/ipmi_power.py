"""Power of a BMC by IPMI, whatever tool carries the requests.

``ipmi:dcmi``
    The current power of DCMI's power reading, for the whole host.
``ipmi:<sensor>``
    The BMC's power sensors, if it has no usable power reading.

Answers without a figure (0 W, 0xFFFF, not activated, sensor unavailable) read NaN.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from measurements.power import ipmi_protocol
from measurements.power.source import Channel, Domain, Reading, SensorError, closed_on_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # Logs in with one of `PRIVILEGES`, before a time of `time.monotonic` (s).
    Connect = Callable[[str, float], ipmi_protocol.Bmc]

PRIVILEGES = ipmi_protocol.PRIVILEGES
# A BMC stamps its power reading with whole seconds and updates it about as often. It may answer
# hundreds of requests per second, with the same figure.
PERIOD_S = 1.0
# A repository holds hundreds of records, and a slow BMC takes 0.1 s for each.
RECORDS_S = 60.0

_BUSY = (0xC0, 0xC3)
_BUSY_TRIES, _BUSY_PAUSE_S = 3, 0.2

# Domain by a sensor's name, the first match, or else by its entity (specification, table 43-13).
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


def open_power(name: str, connect: Connect, timeout_s: float) -> IpmiPower:
    """Log in to a BMC and find its power reading or sensors.

    ``timeout_s`` is for login and first power reading together, and for each later reading.
    """
    now = time.monotonic()
    try:
        bmc, level, answer = _log_in(connect, now + timeout_s)
        with closed_on_error([bmc]):
            figures = _find_figures(name, bmc, answer)
    except ipmi_protocol.NoAnswerError:
        raise ipmi_protocol.silent(name, time.monotonic() - now) from None
    return IpmiPower(name, bmc, partial(connect, level), figures, timeout_s)


class IpmiPower:
    """An open BMC. When it drops the session, the next reading logs in again, once."""

    def __init__(
        self,
        name: str,
        bmc: ipmi_protocol.Bmc,
        connect: Callable[[float], ipmi_protocol.Bmc],
        figures: DcmiFigures | SensorFigures,
        timeout_s: float,
    ) -> None:
        self._name = name
        self._bmc: ipmi_protocol.Bmc | None = bmc
        self._connect = connect
        self._figures = figures
        self._timeout_s = timeout_s
        self._is_closed = False
        self.channels = figures.channels
        self.period_s = max(PERIOD_S, *(channel.window_s for channel in self.channels))

    def read(self) -> list[Reading]:
        """Read the power; half the time limit is kept for a second try in a new session."""
        if self._is_closed:
            raise SensorError(f"{self._name}: read after it was closed")
        now = time.monotonic()
        if self._bmc is not None:
            try:
                return self._figures.read(self._bmc, now + self._timeout_s / 2)
            except ipmi_protocol.NoAnswerError:
                self._hang_up()
        try:
            self._bmc = self._connect(now + self._timeout_s)
            return self._figures.read(self._bmc, now + self._timeout_s)
        except ipmi_protocol.NoAnswerError:
            self._hang_up()
            raise ipmi_protocol.silent(self._name, time.monotonic() - now) from None

    def describe(self) -> dict[str, object]:
        """Describe the last reading further, such as DCMI's minimum, maximum and average."""
        return self._figures.describe()

    def close(self) -> None:
        """Log out."""
        self._is_closed = True
        self._hang_up()

    def _hang_up(self) -> None:
        if self._bmc is not None:
            self._bmc.close()
            self._bmc = None


def _log_in(
    connect: Connect, until_s: float
) -> tuple[ipmi_protocol.Bmc, str, ipmi_protocol.IpmiAnswer]:
    """Log in with the least privilege that may read the power, or the most that the user has."""
    level = PRIVILEGES[0]
    bmc, answer = _enter(connect, level, until_s)
    for higher in PRIVILEGES[1:]:
        if answer.code != ipmi_protocol.INSUFFICIENT_PRIVILEGE:
            break
        with closed_on_error([bmc]):
            try:
                raised, answer = _enter(connect, higher, until_s)
            except ipmi_protocol.RefusedError:
                break
        bmc.close()
        bmc, level = raised, higher
    return bmc, level, answer


def _enter(
    connect: Connect, level: str, until_s: float
) -> tuple[ipmi_protocol.Bmc, ipmi_protocol.IpmiAnswer]:
    bmc = connect(level, until_s)
    with closed_on_error([bmc]):
        return bmc, _ask_power(bmc, until_s)


def _find_figures(
    name: str, bmc: ipmi_protocol.Bmc, answer: ipmi_protocol.IpmiAnswer
) -> DcmiFigures | SensorFigures:
    reading, problem = _judge(answer)
    if reading is not None and not problem:
        return DcmiFigures(reading)
    if sensors := ipmi_protocol.power_sensors(bmc.records(time.monotonic() + RECORDS_S)):
        return SensorFigures(sensors)
    if reading is not None and reading.active:
        # 0 W just after the BMC's start may become a figure later.
        return DcmiFigures(reading)
    remedy = "measure with redfish@HOST or a meter"
    if answer.code == ipmi_protocol.INSUFFICIENT_PRIVILEGE:
        remedy = "give the user OPERATOR or ADMINISTRATOR for IPMI over LAN"
    raise SensorError(
        f"{name}: the BMC tells no watts: by DCMI {problem}, and it has no power sensor: {remedy}"
    )


class DcmiFigures:
    """The power reading of a BMC as one channel."""

    def __init__(self, reading: ipmi_protocol.PowerReading) -> None:
        note = ""
        if not reading.window_s and reading.period_s:
            note = (
                f"the BMC's period of {reading.period_s:.0f} s covers its minimum, maximum and "
                "average, not this figure"
            )
        window_s = reading.window_s
        channel = Channel(
            "ipmi:dcmi", "power", "host", resolution=1.0, window_s=window_s, note=note
        )
        self.channels: tuple[Channel, ...] = (channel,)
        self._clock = ipmi_protocol.BmcClock()
        self._last: ipmi_protocol.PowerReading | None = reading
        self._problem = reading.problem

    def read(self, bmc: ipmi_protocol.Bmc, until_s: float) -> list[Reading]:
        """Ask for the power reading."""
        answer = _ask_power(bmc, until_s)
        self._last, self._problem = _judge(answer)
        watts, stamp = float("nan"), None
        if self._last is not None and not self._problem:
            watts = float(self._last.current_w)
            stamp = self._clock.stamp(self._last, answer.at_s)
        return [Reading(self.channels[0].label, answer.at_s, watts, stamp)]

    def describe(self) -> dict[str, object]:
        """Return the whole reply and why it has no figure, if so."""
        reply = self._last._asdict() if self._last is not None else {}
        return {**reply, "problem": self._problem}


class SensorFigures:
    """The power sensors of a BMC, a channel each."""

    def __init__(self, sensors: Sequence[ipmi_protocol.PowerSensor]) -> None:
        self._sensors = sensors
        self.channels = sensor_channels(sensors)
        self._problems: dict[str, str] = {}

    def read(self, bmc: ipmi_protocol.Bmc, until_s: float) -> list[Reading]:
        """Ask every sensor."""
        self._problems = {}
        return [
            self._read(bmc, until_s, sensor, channel.label)
            for sensor, channel in zip(self._sensors, self.channels, strict=True)
        ]

    def describe(self) -> dict[str, object]:
        """Return the sensors without a figure, and why."""
        return {"problems": dict(self._problems)}

    def _read(
        self,
        bmc: ipmi_protocol.Bmc,
        until_s: float,
        sensor: ipmi_protocol.PowerSensor,
        label: str,
    ) -> Reading:
        answer = sensor.ask(bmc, until_s)
        watts = float("nan") if answer.code else sensor.watts(answer.data)
        if not watts > 0:
            unavailable = "it answers 0 W" if watts == 0 else "it is unavailable"
            problem = ipmi_protocol.meaning(answer.code) if answer.code else unavailable
            self._problems[label] = problem
            watts = float("nan")
        return Reading(label, answer.at_s, watts)


def _ask_power(bmc: ipmi_protocol.Bmc, until_s: float) -> ipmi_protocol.IpmiAnswer:
    """Ask for DCMI's power reading, repeatedly while the BMC is busy."""
    for _ in range(_BUSY_TRIES):
        answer = ipmi_protocol.ask_power(bmc, until_s)
        if answer.code not in _BUSY or time.monotonic() + _BUSY_PAUSE_S >= until_s:
            break
        time.sleep(_BUSY_PAUSE_S)
    return answer


def _judge(answer: ipmi_protocol.IpmiAnswer) -> tuple[ipmi_protocol.PowerReading | None, str]:
    """Parse a power reading; the text says why it has no figure, if so."""
    if answer.code:
        return None, ipmi_protocol.meaning(answer.code)
    reading = ipmi_protocol.parse_power_reading(answer.data)
    return reading, "it gives no power reading" if reading is None else reading.problem


def sensor_channels(sensors: Sequence[ipmi_protocol.PowerSensor]) -> tuple[Channel, ...]:
    """Make channels of sensors: labels by their names, which need not be unique, and domains."""
    names = [sensor.name for sensor in sensors]
    channels = []
    for sensor in sensors:
        is_unique = sensor.name and names.count(sensor.name) == 1
        end = "" if is_unique else f"#{sensor.number:02x}"
        label = f"ipmi:{sensor.name}{end}"
        channels.append(Channel(label, "power", _domain(sensor), resolution=sensor.resolution_w))
    hosts = [channel.label for channel in channels if channel.domain == "host"]
    return tuple(_within(channel, hosts[0]) if hosts else channel for channel in channels)


def _domain(sensor: ipmi_protocol.PowerSensor) -> Domain:
    for pattern, domain in _NAMES:
        if re.search(pattern, sensor.name.lower()):
            return domain
    return _ENTITIES.get(sensor.entity, "other")


def _within(channel: Channel, whole: str) -> Channel:
    if channel.label == whole or channel.domain == "wall":
        return channel
    note = f"another figure of what {whole} covers" if channel.domain == "host" else ""
    return replace(channel, inside=whole, note=note)
