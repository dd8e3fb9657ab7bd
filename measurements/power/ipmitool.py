"""Power of a BMC by IPMI through the program ipmitool, which logs in anew for every request.

For BMCs that pyghmi cannot talk to: those that speak IPMI 1.5 only (``interface=lan``) or take
another cipher suite (``cipher=N``).
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from measurements.power import ipmi_protocol
from measurements.power.ipmi_power import IpmiPower, open_power
from measurements.power.source import SensorError, SourceSettings, time_call

KIND = "ipmi:ipmitool"
INTERFACES = ("lanplus", "lan")
# Tried in turn: old BMCs know only the first, hardened ones only the second.
SUITES = ("3", "17")
# Time after which a request is repeated (s). ipmitool takes no late answer to one it repeated.
PATIENCE_S = "2"

_PROGRAM = "ipmitool"
_CODE = re.compile(r"\brsp=0x([0-9a-f]{2})\b")
_BYTES = re.compile(r"^(?: [0-9a-f]{2})+$", re.MULTILINE)


def open_source(where: str | None, settings: SourceSettings) -> IpmiPower:
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
    suites: tuple[str, ...] = (cipher,) if cipher else SUITES
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
        self._command = [_PROGRAM, "-v", "-I", "open"]
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
