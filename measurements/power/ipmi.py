"""Power of a BMC by IPMI: this host's, or over the network, through pyghmi or ipmitool.

``ipmi:dcmi``
    The current power of DCMI's power reading, for the whole host.
``ipmi:<sensor>``
    The BMC's power sensors, if it has no usable power reading.

Answers without a figure (0 W, 0xFFFF, not activated, sensor unavailable) read NaN.

pyghmi speaks IPMI 2.0 (LAN+). The program ipmitool, which logs in anew for every request, is for
BMCs that pyghmi cannot talk to: those that speak IPMI 1.5 only (``interface=lan``) or take another
cipher suite (``cipher=N``).
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from measurements.errors import install_command, on_error
from measurements.power import ipmi_protocol, source
from measurements.power.ipmi_protocol import Bmc, IpmiAnswer, PowerSensor, Remote
from measurements.power.source import Channel, Domain, Reading, SensorError, SourceSettings
from measurements.processes.helper_process import end_or_kill

# Logs in with one of `PRIVILEGES`, before a time of `time.monotonic` (s).
Connect = Callable[[str, float], Bmc]

PRIVILEGES = ipmi_protocol.PRIVILEGES
# A BMC stamps its power reading with whole seconds and updates it about as often. It may answer
# hundreds of requests per second, with the same figure.
PERIOD_S = 1.0
# A repository holds hundreds of records, and a slow BMC takes 0.1 s for each.
RECORDS_S = 60.0

_BUSY = (0xC0, 0xC3)
_BUSY_TRIES, _BUSY_PAUSE_S = 3, 0.2

# DCMI's Get Power Reading (Data Center Manageability Interface Specification 1.5, section 6.6.1).
_DCMI, _GET_POWER_READING, _GROUP = 0x2C, 0x02, 0xDC
# Mode 1 is the system's power; no attribute, one reserved byte.
_REQUEST = bytes([_GROUP, 0x01, 0x00, 0x00])
_REPLY = struct.Struct("<BHHHHIIB")
_NO_POWER = {0: "0 W", 0xFFFF: "0xFFFF W"}
_MEASURING, _NO_STAMP = 0x40, (0, 0xFFFFFFFF)
# By the specification the period covers the minimum, maximum and average. A short one covers the
# current figure, too; other BMCs count it since their start, for days.
LONGEST_WINDOW_S = 60.0
# Stamps are whole seconds.
STAMP_STEP_S = 1.0

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
        with on_error(bmc.close):
            figures = _choose_dcmi_or_sensors(name, bmc, answer)
    except ipmi_protocol.NoAnswerError:
        raise ipmi_protocol.silent(name, time.monotonic() - now) from None
    return IpmiPower(name, bmc, partial(connect, level), figures, timeout_s)


class IpmiPower:
    """An open BMC. When it drops the session, the next reading logs in again, once."""

    def __init__(
        self,
        name: str,
        bmc: Bmc,
        connect: Callable[[float], Bmc],
        figures: DcmiFigures | SensorFigures,
        timeout_s: float,
    ) -> None:
        self._name, self._connect, self._timeout_s = name, connect, timeout_s
        self._bmc: Bmc | None = bmc
        self._is_closed = False
        self.figures = figures
        self.channels = figures.channels
        self.period_s = max(PERIOD_S, *(channel.window_s for channel in self.channels))

    def read(self) -> list[Reading]:
        """Read the power; half the time limit is kept for a second try in a new session."""
        if self._is_closed:
            raise SensorError(f"{self._name}: read after it was closed")
        now = time.monotonic()
        for share in (0.5, 1.0) if self._bmc else (1.0,):
            until_s = now + share * self._timeout_s
            try:
                self._bmc = self._bmc or self._connect(until_s)
                return self.figures.read(self._bmc, until_s)
            except ipmi_protocol.NoAnswerError:
                self._end_session()
        raise ipmi_protocol.silent(self._name, time.monotonic() - now)

    def close(self) -> None:
        """Log out."""
        self._is_closed = True
        self._end_session()

    def _end_session(self) -> None:
        if self._bmc is not None:
            self._bmc.close()
            self._bmc = None


def _log_in(connect: Connect, until_s: float) -> tuple[Bmc, str, IpmiAnswer]:
    """Log in with the least privilege that may read the power, or the most that the user has."""
    level = PRIVILEGES[0]
    bmc, answer = _log_in_once(connect, level, until_s)
    for higher in PRIVILEGES[1:]:
        if answer.code != ipmi_protocol.INSUFFICIENT_PRIVILEGE:
            break
        with on_error(bmc.close):
            try:
                raised, answer = _log_in_once(connect, higher, until_s)
            except ipmi_protocol.RefusedError:
                break
        bmc.close()
        bmc, level = raised, higher
    return bmc, level, answer


def _log_in_once(connect: Connect, level: str, until_s: float) -> tuple[Bmc, IpmiAnswer]:
    """Log in with one privilege and ask for the power reading."""
    bmc = connect(level, until_s)
    with on_error(bmc.close):
        return bmc, _ask_power(bmc, until_s)


def _choose_dcmi_or_sensors(name: str, bmc: Bmc, answer: IpmiAnswer) -> DcmiFigures | SensorFigures:
    """Take DCMI where it gives power, else the power sensors; raise where there is neither."""
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
        f"{name}: the BMC reports no power: over DCMI, {problem}, and it has no "
        f"power sensor: {remedy}"
    )


class DcmiFigures:
    """The power reading of a BMC as one channel; ``problem`` says why the last has no figure."""

    def __init__(self, reading: PowerReading) -> None:
        note = ""
        if not reading.window_s and reading.period_s:
            note = (
                f"the BMC's period of {reading.period_s:.0f} s is of its minimum, maximum and "
                "average alone"
            )
        self.channels: tuple[Channel, ...] = (
            Channel("ipmi:dcmi", "power", "host", 1.0, reading.window_s, note=note),
        )
        self._clock = BmcClock()
        self.last: PowerReading | None = reading
        self.problem = reading.problem

    def read(self, bmc: Bmc, until_s: float) -> list[Reading]:
        """Ask for the power reading."""
        answer = _ask_power(bmc, until_s)
        self.last, self.problem = _judge(answer)
        power_w, stamp = float("nan"), None
        if self.last is not None and not self.problem:
            power_w = float(self.last.current_w)
            stamp = self._clock.stamp(self.last, answer.at_s)
        return [Reading(self.channels[0].label, answer.at_s, power_w, stamp)]


class SensorFigures:
    """The power sensors of a BMC, a channel each; NaN for one that is silent or answers 0 W."""

    def __init__(self, sensors: Sequence[PowerSensor]) -> None:
        self._sensors = sensors
        self.channels = sensor_channels(sensors)

    def read(self, bmc: Bmc, until_s: float) -> list[Reading]:
        """Ask every sensor."""
        readings = []
        for sensor, channel in zip(self._sensors, self.channels, strict=True):
            answer = sensor.ask(bmc, until_s)
            power_w = 0.0 if answer.code else sensor.watts(answer.data)
            value = power_w if power_w > 0 else float("nan")
            readings.append(Reading(channel.label, answer.at_s, value))
        return readings


class PowerReading(NamedTuple):
    """DCMI's power reading (W), as the BMC says it; see `problem`."""

    current_w: int
    minimum_w: int
    maximum_w: int
    average_w: int
    stamp_s: int | None  # the BMC's clock; None if it has none
    period_s: float  # time that minimum, maximum and average cover
    active: bool  # whether the BMC measures at all

    @property
    def problem(self) -> str:
        """Why the current power is no figure; empty if it is one."""
        if not self.active:
            return "its power measurement is not activated"
        text = _NO_POWER.get(self.current_w)
        return f"it answers {text}" if text else ""

    @property
    def window_s(self) -> float:
        """Time that the current power is the mean of (s); 0 for a momentary figure."""
        return self.period_s if self.period_s <= LONGEST_WINDOW_S else 0.0


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
        """Return the BMC's time of a reading read at ``at_s`` (s); None if its clock stops."""
        last, self._last = self._last, reading
        if reading.stamp_s is None:
            return None
        if last is None or reading.stamp_s != last.stamp_s:
            self._moved_at_s = at_s
        elif reading != last and at_s - self._moved_at_s > 2 * STAMP_STEP_S:
            self._stuck = True
        return None if self._stuck else float(reading.stamp_s)


def _ask_power(bmc: Bmc, until_s: float) -> IpmiAnswer:
    """Ask for DCMI's power reading, repeatedly while the BMC is busy."""
    for _ in range(_BUSY_TRIES):
        answer = bmc.raw(_DCMI, _GET_POWER_READING, _REQUEST, until_s)
        if answer.code not in _BUSY or time.monotonic() + _BUSY_PAUSE_S >= until_s:
            break
        time.sleep(_BUSY_PAUSE_S)
    return answer


def _judge(answer: IpmiAnswer) -> tuple[PowerReading | None, str]:
    """Parse a power reading; the text says why its power is no figure, "" if it is one."""
    if answer.code:
        return None, ipmi_protocol.meaning(answer.code)
    reading = parse_power_reading(answer.data)
    return reading, "it gives no power reading" if reading is None else reading.problem


def sensor_channels(sensors: Sequence[PowerSensor]) -> tuple[Channel, ...]:
    """Make channels of sensors: labels by their names, which need not be unique, and domains."""
    names = [sensor.name for sensor in sensors]
    channels = []
    for sensor in sensors:
        is_unique = sensor.name and names.count(sensor.name) == 1
        label = f"ipmi:{sensor.name}" + ("" if is_unique else f"#{sensor.number:02x}")
        channels.append(Channel(label, "power", _domain(sensor), resolution=sensor.resolution_w))
    hosts = [channel.label for channel in channels if channel.domain == "host"]
    return tuple(_mark_inside(channel, hosts[0]) if hosts else channel for channel in channels)


def _domain(sensor: PowerSensor) -> Domain:
    """Choose what a sensor covers, by its name or else its entity."""
    by_name = (domain for pattern, domain in _NAMES if re.search(pattern, sensor.name.lower()))
    return next(by_name, _ENTITIES.get(sensor.entity, "other"))


def _mark_inside(channel: Channel, whole: str) -> Channel:
    """Mark a channel as part of the one of the whole host."""
    if channel.label == whole or channel.domain == "wall":
        return channel
    note = f"another reading of the power that {whole} covers" if channel.domain == "host" else ""
    return replace(channel, inside=whole, note=note)


_SESSION_PROGRAM = Path(__file__).with_name("ipmi_session.py")
# pyghmi's privilege levels begin with 2 for a user.
_FIRST_LEVEL = 2
# Cipher suites of pyghmi.
_PYGHMI_SUITES = "17 and 3"
# Its texts for a BMC that does not answer, or stops to, while it logs in.
_SILENCES = tuple(f"IpmiException: {t}" for t in ("None", "timeout", "Session no longer connected"))
_END_S = 2.0


def open_source(where: str | None, settings: SourceSettings) -> IpmiPower:
    """Open the BMC at ``HOST[:PORT]``, or this host's own through ``/dev/ipmi0``."""
    name, remote = ipmi_protocol.resolve("ipmi", where, settings)
    if find_spec("pyghmi") is None:
        raise SensorError(f"{name}: pyghmi is missing: {install_command('pyghmi')}")
    if remote is None:
        ipmi_protocol.check_device("ipmi")
    return open_power(
        name, lambda level, until_s: PyghmiBmc(name, until_s, remote, level), settings.timeout_s
    )


class PyghmiBmc:
    """A session of pyghmi in its own process (see `ipmi_session`)."""

    def __init__(self, name: str, until_s: float, remote: Remote | None, privilege: str) -> None:
        self._name = name
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = _start_session(theirs)
        with on_error(self.close):
            answer = self._ask_session_process({"connect": _arguments(remote, privilege)}, until_s)
            if "error" in answer:
                raise _login_error(name, answer["error"], remote, privilege)

    def raw(
        self, netfn: int, command: int, data: bytes, until_s: float, *, lun: int = 0
    ) -> ipmi_protocol.IpmiAnswer:
        """Send a request; return the BMC's answer."""
        request = {"raw": [netfn, command, lun, data.hex()]}
        answer, at_s = source.time_call(lambda: self._ask_session_process(request, until_s))
        if "error" in answer:
            # The session is lost, so there is nothing to log out from.
            self._process.kill()
            raise ipmi_protocol.NoAnswerError(f"{self._name}: the BMC does not answer any more")
        return ipmi_protocol.IpmiAnswer(answer["code"], bytes.fromhex(answer["data"]), at_s)

    def records(self, until_s: float) -> Iterable[bytes]:
        """Fetch the sensor data records one by one."""
        return ipmi_protocol.SensorRecords(self, until_s)

    def close(self) -> None:
        """Log out and end the process."""
        self._socket.close()
        end_or_kill(self._process, _END_S)

    def _ask_session_process(self, request: dict[str, Any], until_s: float) -> dict[str, Any]:
        """Send a request to the session's process; return its answer, {"error": …} if it ended."""
        line = b""
        try:
            # So few bytes never wait.
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            while not line.endswith(b"\n"):
                # Never 0, which would mean not to wait at all.
                self._socket.settimeout(max(until_s - time.monotonic(), 1e-3))
                part = self._socket.recv(1 << 16)
                if not part:
                    return {"error": "its process ended"}
                line += part
        except TimeoutError:
            # pyghmi may wait for ever.
            self._process.kill()
            raise ipmi_protocol.late(self._name) from None
        except OSError:
            return {"error": "its process ended"}
        return json.loads(line)


def _arguments(remote: Remote | None, privilege: str) -> dict[str, Any]:
    """Make the arguments of pyghmi's ``Command``; none for this host's own BMC."""
    if remote is None:
        return {}
    return {
        "bmc": remote.host,
        "port": remote.port,
        "userid": remote.login.user,
        "password": remote.login.password,
        "privlevel": _FIRST_LEVEL + ipmi_protocol.PRIVILEGES.index(privilege),
    }


def _login_error(name: str, said: str, remote: Remote | None, privilege: str) -> SensorError:
    if remote is None:
        return SensorError(f"{name}: no BMC answers ({said}): try ipmi:ipmitool")
    if said in _SILENCES:
        return ipmi_protocol.NoAnswerError(f"{name}: the BMC does not answer")
    user, password = remote.login
    shown = said.replace(password, "…")
    return ipmi_protocol.explain(
        name, said, user=user, privilege=privilege, suites=_PYGHMI_SUITES
    ) or SensorError(
        f"{name}: pyghmi cannot log in ({shown}): try ipmi:ipmitool@HOST, and interface=lan with "
        "it where the BMC speaks IPMI 1.5 only"
    )


def _start_session(their_end: socket.socket) -> subprocess.Popen[bytes]:
    """Start the process that holds a session of pyghmi."""
    return subprocess.Popen(  # nosec B603  # this Python and a file of this package
        # -P: modules beside the program do not hide others of the same name.
        [sys.executable, "-P", "-W", "ignore", str(_SESSION_PROGRAM)],
        stdin=their_end.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Ctrl-C at the terminal is for the parent to handle.
        start_new_session=True,
    )


KIND = "ipmi:ipmitool"
INTERFACES = ("lanplus", "lan")
# Tried in turn: old BMCs know only the first, hardened ones only the second.
IPMITOOL_SUITES = ("3", "17")
# Time after which a request is repeated (s). ipmitool takes no late answer to one it repeated.
PATIENCE_S = "2"

_CODE = re.compile(r"\brsp=0x([0-9a-f]{2})\b")
_BYTES = re.compile(r"^(?: [0-9a-f]{2})+$", re.MULTILINE)


def open_ipmitool(where: str | None, settings: SourceSettings) -> IpmiPower:
    """Open the BMC at ``HOST[:PORT]``, or this host's own through ``/dev/ipmi0``.

    Options: ``interface`` is ``lanplus`` (IPMI 2.0, the default) or ``lan`` (IPMI 1.5); ``cipher``
    is the number of the cipher suite, instead of 3 and then 17.
    """
    name, remote = ipmi_protocol.resolve(KIND, where, settings, ("cipher", "interface"))
    if remote is None:
        ipmi_protocol.check_device(KIND)
    interface = settings.options.get("interface", INTERFACES[0])
    cipher = settings.options.get("cipher")
    if interface not in INTERFACES or (cipher and not (cipher.isdecimal() and len(cipher) < 4)):
        raise SensorError(
            f"{name}: interface is {' or '.join(INTERFACES)}, and cipher the number of a suite"
        )
    suites: tuple[str, ...] = (cipher,) if cipher else IPMITOOL_SUITES
    if remote is None or interface != "lanplus":
        suites = ()
    return open_power(
        name,
        lambda level, _: IpmitoolBmc(name, interface, remote, level, suites),
        settings.timeout_s,
    )


class IpmitoolBmc:
    """A BMC asked by running ipmitool, which gets the password through its environment only."""

    def __init__(
        self, name: str, interface: str, remote: Remote | None, level: str, suites: Sequence[str]
    ) -> None:
        self._name, self._level, self._suites = name, level, suites
        self._login = remote.login if remote else None
        # -v: without it a wrong password and a silent BMC read the same.
        self._command = ["ipmitool", "-v", "-I", "open"]
        self._environment = {**os.environ, "LC_ALL": "C"}
        # ipmitool would prefer this one to IPMI_PASSWORD.
        self._environment.pop("IPMITOOL_PASSWORD", None)
        if remote is not None:
            self._command[-1] = interface
            self._command += ["-H", remote.host, "-p", str(remote.port), "-N", PATIENCE_S]
            self._command += ["-U", remote.login.user, "-E", "-L", level.upper()]
            self._environment["IPMI_PASSWORD"] = remote.login.password

    def raw(
        self, netfn: int, command: int, data: bytes, until_s: float, *, lun: int = 0
    ) -> ipmi_protocol.IpmiAnswer:
        """Send a request; return the BMC's answer."""
        request = [f"0x{byte:02x}" for byte in (netfn, command, *data)]
        said, at_s = source.time_call(lambda: self._run(["-l", str(lun), "raw", *request], until_s))
        if code := _CODE.search(said.stderr):
            return ipmi_protocol.IpmiAnswer(int(code[1], 16), b"", at_s)
        if said.returncode:
            raise self._explain_failure(said.stderr)
        data = bytes.fromhex("".join(_BYTES.findall(said.stdout)))
        return ipmi_protocol.IpmiAnswer(0, data, at_s)

    def records(self, until_s: float) -> Iterable[bytes]:
        """Fetch the sensor data records in one run."""
        with tempfile.TemporaryDirectory(prefix="ppw-") as folder:
            dump = Path(folder, "sdr")
            self._run(["sdr", "dump", str(dump)], until_s)
            return list(ipmi_protocol.split_records(dump.read_bytes())) if dump.exists() else []

    def close(self) -> None:
        """Do nothing: no session is open between requests."""

    def _run(self, words: Sequence[str], until_s: float) -> subprocess.CompletedProcess[str]:
        """Run ipmitool with the first cipher suite that the BMC takes."""
        suite = ("-C", self._suites[0]) if self._suites else ()
        try:
            said = subprocess.run(  # nosec B603  # ipmitool; no word is read by a shell
                [*self._command, *suite, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env=self._environment,
                timeout=max(until_s - time.monotonic(), 1e-3),
                # Without a terminal it cannot ask for a password.
                start_new_session=True,
                check=False,
            )
        except FileNotFoundError:
            raise SensorError(
                f"{self._name}: the program ipmitool is missing: apt install ipmitool"
            ) from None
        except subprocess.TimeoutExpired:
            raise ipmi_protocol.late(self._name) from None
        is_refused = said.returncode and ipmi_protocol.refuses_suite(said.stderr)
        if not is_refused or len(self._suites) < 2:
            return said
        self._suites = self._suites[1:]
        return self._run(words, until_s)

    def _explain_failure(self, said: str) -> SensorError:
        user = self._login.user if self._login else ""
        suites = " or ".join(self._suites)
        known = ipmi_protocol.explain(
            self._name, said, user=user, privilege=self._level, suites=suites
        )
        if known or self._login:
            return known or ipmi_protocol.NoAnswerError(f"{self._name}: the BMC does not answer")
        return SensorError(
            f"{self._name}: no BMC answers behind {ipmi_protocol.DEVICE}: try ipmi@HOST"
        )
