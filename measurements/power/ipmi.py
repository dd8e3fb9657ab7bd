"""The BMC's watts by IPMI through pyghmi: of this host, or over the network (IPMI 2.0, LAN+)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measurements.power.ipmi_power import open_power
from measurements.power.ipmi_protocol import (
    PRIVILEGES,
    Answer,
    NoAnswerError,
    check_device,
    check_login,
    check_options,
    complaint,
    parse_address,
    read_records,
)
from measurements.power.source import SensorError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from measurements.power.ipmi_power import IpmiPower
    from measurements.power.source import Login, SourceSettings

_PROGRAM = Path(__file__).with_name("ipmi_session.py")
# pyghmi's numbers of privilege levels begin with 2 for a user.
_FIRST_LEVEL = 2
# What pyghmi offers.
_SUITES = "17 and 3"
# Its texts for a BMC that does not answer, or does no longer, while it logs in.
_SILENCES = tuple(
    f"IpmiException: {text}" for text in ("None", "timeout", "Session no longer connected")
)
_END_S = 2.0


def open_source(where: str | None, settings: SourceSettings) -> IpmiPower:
    """Open the BMC of this host, or one on the network.

    Parameters
    ----------
    where : str or None
        ``HOST[:PORT]``; None for this host's own BMC through ``/dev/ipmi0``.
    settings : SourceSettings
        ``login("ipmi", where)`` is asked for one on the network. There are no options.

    Raises
    ------
    SensorError
        When pyghmi is missing, the BMC cannot be reached, does not let the user in or tells no
        watts.
    """
    address = parse_address("ipmi", where) if where is not None else None
    name = "ipmi" if where is None else f"ipmi@{where}"
    check_options("ipmi", settings.options, ())
    if find_spec("pyghmi") is None:
        raise SensorError(f"{name}: pyghmi is missing: pip install 'perf-per-watt[measure]'")
    if where is None or address is None:
        check_device("ipmi")
        return open_power(name, lambda _, until_s: PyghmiBmc(name, until_s), settings.timeout_s)
    login = settings.login("ipmi", where)
    check_login(name, login)

    def connect(privilege: str, until_s: float) -> PyghmiBmc:
        arguments = {
            "bmc": address.host,
            "port": address.port,
            "userid": login.user,
            "password": login.password,
            "privlevel": _FIRST_LEVEL + PRIVILEGES.index(privilege),
        }
        return PyghmiBmc(name, until_s, arguments, login, privilege)

    return open_power(name, connect, settings.timeout_s)


class PyghmiBmc:
    """A session of pyghmi, in its own process (see `ipmi_session`)."""

    def __init__(
        self,
        name: str,
        until_s: float,
        arguments: dict[str, Any] | None = None,
        login: Login | None = None,
        privilege: str = "",
    ) -> None:
        self._name, self._login = name, login
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = _start(theirs)
        try:
            said = self._ask({"connect": arguments or {}}, until_s)
            if "error" in said:
                raise self._complaint(said["error"], privilege)
        except BaseException:
            self.close()
            raise

    def raw(self, netfn: int, command: int, data: bytes, until_s: float, *, lun: int = 0) -> Answer:
        """Send a request."""
        start_s = time.monotonic()
        said = self._ask({"raw": [netfn, command, lun, data.hex()]}, until_s)
        if "error" in said:
            # There is nobody left to log out from.
            self._process.kill()
            raise NoAnswerError(f"{self._name}: the BMC does not answer any more")
        at_s = (start_s + time.monotonic()) / 2
        return Answer(said["code"], bytes.fromhex(said["data"]), at_s)

    def records(self, until_s: float) -> Iterable[bytes]:
        """Fetch the sensor data records, one after the other."""
        return read_records(self, until_s)

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
            self._allow(until_s)
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            while not line.endswith(b"\n"):
                self._allow(until_s)
                part = self._socket.recv(1 << 16)
                if not part:
                    return {"error": "its process ended"}
                line += part
        except TimeoutError:
            # pyghmi may be waiting for what never comes.
            self._process.kill()
            raise NoAnswerError(f"{self._name}: the BMC does not answer in time") from None
        except OSError:
            return {"error": "its process ended"}
        said: dict[str, Any] = json.loads(line)
        return said

    def _allow(self, until_s: float) -> None:
        # Never 0, which would mean not to wait at all.
        self._socket.settimeout(max(until_s - time.monotonic(), 1e-3))

    def _complaint(self, said: str, privilege: str) -> SensorError:
        if self._login is None:
            return SensorError(f"{self._name}: no BMC answers ({said}): try ipmi:ipmitool")
        if said in _SILENCES:
            return NoAnswerError(f"{self._name}: the BMC does not answer")
        if known := complaint(
            self._name, said, user=self._login.user, privilege=privilege, suites=_SUITES
        ):
            return known
        shown = said.replace(self._login.password, "…")
        return SensorError(
            f"{self._name}: pyghmi cannot log in ({shown}): try ipmi:ipmitool@HOST, and "
            "interface=lan with it where the BMC speaks IPMI 1.5 only"
        )


def _start(their_end: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # -P: modules beside the program do not hide others of the same name.
        [sys.executable, "-P", "-W", "ignore", str(_PROGRAM)],
        stdin=their_end.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Ctrl-C at the terminal is the asker's to handle.
        start_new_session=True,
    )
