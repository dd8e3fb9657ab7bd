"""Power of a BMC by IPMI: this host's, or over the network, through pyghmi or ipmitool.

pyghmi speaks IPMI 2.0 (LAN+). The program ipmitool, which logs in anew for every request, is for
BMCs that pyghmi cannot talk to: those that speak IPMI 1.5 only (``interface=lan``) or take another
cipher suite (``cipher=N``).
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measurements.power import ipmi_protocol
from measurements.power.ipmi_power import IpmiPower, open_power
from measurements.power.source import SensorError, SourceSettings, closed_on_error, time_call

_SESSION_PROGRAM = Path(__file__).with_name("ipmi_session.py")
# pyghmi's privilege levels begin with 2 for a user.
_FIRST_LEVEL = 2
# Cipher suites of pyghmi.
_PYGHMI_SUITES = "17 and 3"
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
        name, said, user=user, privilege=privilege, suites=_PYGHMI_SUITES
    ) or SensorError(
        f"{name}: pyghmi cannot log in ({shown}): try ipmi:ipmitool@HOST, and interface=lan with "
        "it where the BMC speaks IPMI 1.5 only"
    )


def _start(their_end: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
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
        lambda privilege, _: IpmitoolBmc(name, interface, remote, privilege, suites),
        settings.timeout_s,
    )


class IpmitoolBmc:
    """A BMC asked by running ipmitool, which gets the password through its environment only."""

    def __init__(
        self,
        name: str,
        interface: str,
        remote: ipmi_protocol.Remote | None,
        privilege: str,
        suites: Sequence[str],
    ) -> None:
        self._name, self._privilege, self._suites = name, privilege, suites
        self._login = remote.login if remote else None
        # -v: without it a wrong password and a silent BMC read the same.
        self._command = ["ipmitool", "-v", "-I", "open"]
        self._environment = {**os.environ, "LC_ALL": "C"}
        # ipmitool would prefer this one to IPMI_PASSWORD.
        self._environment.pop("IPMITOOL_PASSWORD", None)
        if remote is not None:
            self._command[-1] = interface
            self._command += ["-H", remote.host, "-p", str(remote.port), "-N", PATIENCE_S]
            self._command += ["-U", remote.login.user, "-E", "-L", privilege.upper()]
            self._environment["IPMI_PASSWORD"] = remote.login.password

    def raw(
        self, netfn: int, command: int, data: bytes, until_s: float, *, lun: int = 0
    ) -> ipmi_protocol.IpmiAnswer:
        """Send a request."""
        request = [f"0x{byte:02x}" for byte in (netfn, command, *data)]
        said, at_s = time_call(lambda: self._run(["-l", str(lun), "raw", *request], until_s))
        if code := _CODE.search(said.stderr):
            return ipmi_protocol.IpmiAnswer(int(code[1], 16), b"", at_s)
        if said.returncode:
            raise self._explain(said.stderr)
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
            said = subprocess.run(
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

    def _explain(self, said: str) -> SensorError:
        user = self._login.user if self._login else ""
        suites = " or ".join(self._suites)
        known = ipmi_protocol.complaint(
            self._name, said, user=user, privilege=self._privilege, suites=suites
        )
        if known or self._login:
            return known or ipmi_protocol.NoAnswerError(f"{self._name}: the BMC does not answer")
        return SensorError(
            f"{self._name}: no BMC answers behind {ipmi_protocol.DEVICE}: try ipmi@HOST"
        )
