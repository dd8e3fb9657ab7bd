"""Power of a BMC by IPMI through pyghmi: this host's, or over the network (IPMI 2.0, LAN+)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measurements.power import ipmi_protocol
from measurements.power.ipmi_power import IpmiPower, open_power
from measurements.power.source import SensorError, SourceSettings, closed_on_error, time_call

_PROGRAM = Path(__file__).with_name("ipmi_session.py")
# pyghmi's privilege levels begin with 2 for a user.
_FIRST_LEVEL = 2
# Cipher suites of pyghmi.
_SUITES = "17 and 3"
# Its texts for a BMC that does not answer, or stops to, while it logs in.
_SILENCES = tuple(
    f"IpmiException: {text}" for text in ("None", "timeout", "Session no longer connected")
)
_END_S = 2.0


def open_source(where: str | None, settings: SourceSettings) -> IpmiPower:
    """Open the BMC at ``HOST[:PORT]``, or this host's own through ``/dev/ipmi0``."""
    name, remote = ipmi_protocol.resolve("ipmi", where, settings)
    if find_spec("pyghmi") is None:
        raise SensorError(f"{name}: pyghmi is missing: pip install 'perf-per-watt[measure]'")
    if remote is None:
        ipmi_protocol.check_device("ipmi")
    return open_power(
        name,
        lambda privilege, until_s: PyghmiBmc(name, until_s, remote, privilege),
        settings.timeout_s,
    )


class PyghmiBmc:
    """A session of pyghmi in its own process (see `ipmi_session`)."""

    def __init__(
        self, name: str, until_s: float, remote: ipmi_protocol.Remote | None, privilege: str
    ) -> None:
        self._name = name
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = _start(theirs)
        with closed_on_error([self]):
            answer = self._ask({"connect": _arguments(remote, privilege)}, until_s)
            if "error" in answer:
                raise _login_error(name, answer["error"], remote, privilege)

    def raw(
        self, netfn: int, command: int, data: bytes, until_s: float, *, lun: int = 0
    ) -> ipmi_protocol.IpmiAnswer:
        """Send a request."""
        request = {"raw": [netfn, command, lun, data.hex()]}
        answer, at_s = time_call(lambda: self._ask(request, until_s))
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
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, request: dict[str, Any], until_s: float) -> dict[str, Any]:
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
        answer: dict[str, Any] = json.loads(line)
        return answer


def _arguments(remote: ipmi_protocol.Remote | None, privilege: str) -> dict[str, Any]:
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


def _login_error(
    name: str, said: str, remote: ipmi_protocol.Remote | None, privilege: str
) -> SensorError:
    if remote is None:
        return SensorError(f"{name}: no BMC answers ({said}): try ipmi:ipmitool")
    if said in _SILENCES:
        return ipmi_protocol.NoAnswerError(f"{name}: the BMC does not answer")
    user, password = remote.login
    shown = said.replace(password, "…")
    return ipmi_protocol.complaint(
        name, said, user=user, privilege=privilege, suites=_SUITES
    ) or SensorError(
        f"{name}: pyghmi cannot log in ({shown}): try ipmi:ipmitool@HOST, and interface=lan with "
        "it where the BMC speaks IPMI 1.5 only"
    )


def _start(their_end: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # -P: modules beside the program do not hide others of the same name.
        [sys.executable, "-P", "-W", "ignore", str(_PROGRAM)],
        stdin=their_end.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Ctrl-C at the terminal is for the parent to handle.
        start_new_session=True,
    )
