"""The BMC's watts by IPMI through the program ipmitool, which logs in anew for every request.

For BMCs that pyghmi does not get along with: those that speak IPMI 1.5 only
(``interface=lan``) or take another cipher suite (``cipher=N``).
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from measurements.power.ipmi_power import open_power
from measurements.power.ipmi_protocol import (
    DEVICE,
    Answer,
    NoAnswerError,
    check_device,
    check_login,
    check_options,
    complaint,
    parse_address,
    refuses_suite,
    split_records,
)
from measurements.power.source import SensorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from measurements.power.ipmi_power import IpmiPower
    from measurements.power.source import Login, SourceSettings

KIND = "ipmi:ipmitool"
OPTIONS = ("cipher", "interface")
INTERFACES = ("lanplus", "lan")
# Tried in turn: old BMCs know only the first, hardened ones only the second.
SUITES = ("3", "17")
# Sent anew after so many seconds. ipmitool takes no late answer to a request that it has repeated.
PATIENCE_S = "2"

_PROGRAM = "ipmitool"
_CODE = re.compile(r"\brsp=0x([0-9a-f]{2})\b")
_BYTES = re.compile(r"^(?: [0-9a-f]{2})+$", re.MULTILINE)


def open_source(where: str | None, settings: SourceSettings) -> IpmiPower:
    """Open the BMC of this host, or one on the network.

    Parameters
    ----------
    where : str or None
        ``HOST[:PORT]``; None for this host's own BMC through ``/dev/ipmi0``.
    settings : SourceSettings
        ``login("ipmi", where)`` is asked for one on the network. Options: ``interface`` is
        ``lanplus`` (IPMI 2.0, the default) or ``lan`` (IPMI 1.5); ``cipher`` is the number of the
        cipher suite, instead of 3 and then 17.

    Raises
    ------
    SensorError
        When ipmitool is missing, the BMC cannot be reached, does not let the user in or tells no
        watts.
    """
    name = KIND if where is None else f"{KIND}@{where}"
    check_options(KIND, settings.options, OPTIONS if where else ())
    if where is None:
        check_device(KIND)
        local = ("-I", "open")
        return open_power(name, lambda _, __: IpmitoolBmc(name, local), settings.timeout_s)
    address = parse_address(KIND, where)
    interface = settings.options.get("interface", INTERFACES[0])
    cipher = settings.options.get("cipher")
    if interface not in INTERFACES or (cipher and not (cipher.isdecimal() and len(cipher) < 4)):
        raise SensorError(
            f"{name}: interface is {' or '.join(INTERFACES)}, and cipher the number of a suite"
        )
    login = settings.login("ipmi", where)
    check_login(name, login)
    suites = (cipher,) if cipher else SUITES
    where_to = ("-H", address.host, "-p", str(address.port), "-N", PATIENCE_S)
    way = ("-I", interface, *where_to, "-U", login.user, "-E")

    def connect(privilege: str, _: float) -> IpmitoolBmc:
        words = (*way, "-L", privilege.upper())
        return IpmitoolBmc(name, words, login, privilege, suites if interface == "lanplus" else ())

    return open_power(name, connect, settings.timeout_s)


class IpmitoolBmc:
    """A BMC that is asked by running ipmitool, whose environment alone holds the password."""

    def __init__(
        self,
        name: str,
        way: Sequence[str],
        login: Login | None = None,
        privilege: str = "",
        suites: Sequence[str] = (),
    ) -> None:
        self._name, self._way = name, way
        self._login, self._privilege, self._suites = login, privilege, suites
        self._environment = {**os.environ, "LC_ALL": "C"}
        # It would be taken for the password, before the other one.
        self._environment.pop("IPMITOOL_PASSWORD", None)
        if login is not None:
            self._environment["IPMI_PASSWORD"] = login.password

    def raw(self, netfn: int, command: int, data: bytes, until_s: float, *, lun: int = 0) -> Answer:
        """Send a request."""
        request = [f"0x{byte:02x}" for byte in (netfn, command, *data)]
        start_s = time.monotonic()
        said = self._run(["-l", str(lun), "raw", *request], until_s)
        at_s = (start_s + time.monotonic()) / 2
        if code := _CODE.search(said.stderr):
            return Answer(int(code[1], 16), b"", at_s)
        if said.returncode:
            raise self._complaint(said.stderr)
        return Answer(0, bytes.fromhex("".join(_BYTES.findall(said.stdout))), at_s)

    def records(self, until_s: float) -> Iterable[bytes]:
        """Fetch the sensor data records, in one run."""
        with tempfile.TemporaryDirectory(prefix="ppw-") as folder:
            dump = Path(folder, "sdr")
            self._run(["sdr", "dump", str(dump)], until_s)
            return list(split_records(dump.read_bytes())) if dump.exists() else []

    def close(self) -> None:
        """Do nothing: no session is open between requests."""

    def _run(self, words: Sequence[str], until_s: float) -> subprocess.CompletedProcess[str]:
        said = self._run_with_suite(words, until_s)
        while said.returncode and len(self._suites) > 1 and refuses_suite(said.stderr):
            self._suites = self._suites[1:]
            said = self._run_with_suite(words, until_s)
        return said

    def _run_with_suite(
        self, words: Sequence[str], until_s: float
    ) -> subprocess.CompletedProcess[str]:
        suite = ("-C", self._suites[0]) if self._suites else ()
        try:
            return subprocess.run(
                # -v: without it a wrong password and a silent BMC read the same.
                [_PROGRAM, "-v", *self._way, *suite, *words],
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
            raise NoAnswerError(f"{self._name}: the BMC does not answer in time") from None

    def _complaint(self, said: str) -> SensorError:
        user = self._login.user if self._login else ""
        suites = " or ".join(self._suites)
        if known := complaint(
            self._name, said, user=user, privilege=self._privilege, suites=suites
        ):
            return known
        if self._login is None:
            return SensorError(f"{self._name}: no BMC answers behind {DEVICE}: try ipmi@HOST")
        return NoAnswerError(f"{self._name}: the BMC does not answer")
