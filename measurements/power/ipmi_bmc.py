"""A BMC as the IPMI sources see it: requests and answers, and what hinders them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

from measurements.power.protocol import SensorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from measurements.power.protocol import Login

DEVICE = "/dev/ipmi0"
PORT = 623

INSUFFICIENT_PRIVILEGE = 0xD4
# From the least upwards: a login is used with no more rights than the watts take.
PRIVILEGES = ("user", "operator", "administrator")

_LONGEST_USER, _LONGEST_PASSWORD = 16, 20

_ADDRESS = re.compile(
    r"(?:\[(?P<v6>[^][/]+)\]|(?P<host>[^][:/]+))(?::(?P<port>[0-9]+))?|(?P<bare>[^][/]*:[^][/]*:[^][/]*)"
)

_MEANINGS = {
    0xC0: "it is busy",
    0xC1: "it does not know the command",
    0xC3: "it ran out of time",
    0xCB: "it has nothing of the kind",
    0xCC: "it refuses the request as invalid",
    0xCE: "it could not answer",
    INSUFFICIENT_PRIVILEGE: "it takes a higher privilege",
    0xD5: "it does not support that in its present state",
    0xD6: "the command is disabled",
}


class NoAnswerError(SensorError):
    """A BMC that is silent, or has forgotten the session: asking anew may help."""


class RefusedError(SensorError):
    """A BMC that answers, and does not let the user in."""


class Answer(NamedTuple):
    """What a BMC said.

    Attributes
    ----------
    code : int
        Completion code; 0 where it did what it was asked for.
    data : bytes
        What followed the code.
    at_s : float
        Middle of the request and its answer, by `time.monotonic`.
    """

    code: int
    data: bytes
    at_s: float


class Bmc(Protocol):
    """A way to a BMC."""

    def raw(self, netfn: int, command: int, data: bytes, until_s: float, *, lun: int = 0) -> Answer:
        """Send a request.

        Raises
        ------
        NoAnswerError
            When no answer has come at ``until_s`` (of `time.monotonic`), or none will.
        """
        ...

    def records(self, until_s: float) -> Iterable[bytes]:
        """Fetch the sensor data records."""
        ...

    def close(self) -> None:
        """End the session; a second call does nothing."""
        ...


class Address(NamedTuple):
    """Where a BMC listens."""

    host: str
    port: int


def parse_address(kind: str, where: str) -> Address:
    """Read ``bmc``, ``bmc:6230``, ``10.0.0.7``, ``fe80::7`` or ``[fe80::7]:623`` apart.

    Raises
    ------
    SensorError
        When it is no address.
    """
    # The address is not repeated: there may be a password in it.
    if "@" in where:
        raise SensorError(
            f"{kind}: no user or password belongs in the address: write {kind}@HOST, and the "
            "login is asked for"
        )
    shape = _ADDRESS.fullmatch(where)
    number = int(shape["port"] or PORT) if shape else 0
    if shape is None or not 0 < number < 1 << 16:
        raise SensorError(f"{kind}: {where!r} is no address: write {kind}@HOST[:PORT]")
    return Address(shape["v6"] or shape["bare"] or shape["host"], number)


def check_login(name: str, login: Login) -> None:
    """Refuse what IPMI 2.0 has no room for, before a BMC counts it as a failed attempt."""
    for what, text, most in (
        ("user", login.user, _LONGEST_USER),
        ("password", login.password, _LONGEST_PASSWORD),
    ):
        if not 0 < len(text.encode()) <= most:
            raise SensorError(
                f"{name}: the {what} has {len(text.encode())} bytes and IPMI takes 1 to {most}: "
                "give the BMC a user of its own for IPMI"
            )


def check_options(kind: str, options: Mapping[str, str], known: Iterable[str]) -> None:
    """Refuse options that would be left unheard."""
    known = sorted(known)
    if unknown := sorted(set(options) - set(known)):
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        raise SensorError(f"{kind} has no option {unknown[0]!r}: {takes}")


def check_device(kind: str) -> None:
    """Open this host's way to its BMC and close it again.

    Raises
    ------
    SensorError
        When there is none, or none for this user.
    """
    try:
        os.close(os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        raise SensorError(
            f"{kind}: {DEVICE} is not there: this host has no BMC, or its driver is not loaded "
            f"(`modprobe -a ipmi_devintf ipmi_si` as root); over the network: {kind}@HOST"
        ) from None
    except PermissionError:
        raise SensorError(
            f"{kind}: {DEVICE} may not be opened by this user: run as root, or ask the BMC over "
            f"the network with {kind}@HOST"
        ) from None
    except OSError as error:
        raise SensorError(
            f"{kind}: no BMC answers behind {DEVICE} ({error.strerror}): ask it over the network "
            f"with {kind}@HOST"
        ) from None


def meaning(code: int) -> str:
    """Say what a completion code is about."""
    return _MEANINGS.get(code, f"it answers completion code 0x{code:02x}")


def silent(name: str, waited_s: float) -> NoAnswerError:
    """Complain about a BMC, named as its source, that did not answer in time."""
    remedy = (
        "check the address, that the BMC is up with IPMI over LAN enabled, and that no firewall "
        "drops its UDP port"
        if "@" in name
        else f"the BMC behind {DEVICE} may be restarting: try again in a few minutes, or ask it "
        f"over the network with {name}@HOST"
    )
    return NoAnswerError(f"{name}: no answer within {waited_s:.1f} s: {remedy}")


class _Complaint(NamedTuple):
    """What a tool says, in lower case, and what it means."""

    phrases: tuple[str, ...]
    kind: type[SensorError]
    text: str


_SUITE_REFUSED = (
    "cipher suite",
    "authentication algorithm",
    "integrity algorithm",
    "confidentiality algorithm",
    "integrity payload",
)
# The first that fits.
_COMPLAINTS = (
    _Complaint(
        (
            "incorrect password",
            "hmac is invalid",
            "integrity check value",
            "rakp4 integrity code",
        ),
        RefusedError,
        "the BMC rejects the password of user {user!r}: correct PPW_IPMI_PASSWORD or the netrc "
        "entry",
    ),
    _Complaint(
        ("unauthorized name", "invalid user name", "name length", "illegal", "unrecognized param"),
        RefusedError,
        "the BMC does not let user {user!r} in: correct PPW_IPMI_USER or the netrc entry, or "
        "enable that user for IPMI over LAN",
    ),
    _Complaint(
        ("invalid role", "unauthorized role", "requested privilege level exceeds"),
        RefusedError,
        "the BMC gives user {user!r} too little privilege: let it have {privilege} for IPMI over "
        "LAN",
    ),
    # IPMI 1.5 tells no more than that.
    _Complaint(
        ("activate session command failed",),
        RefusedError,
        "the BMC does not open a session for user {user!r}: correct PPW_IPMI_PASSWORD or the "
        "netrc entry, or let the user have {privilege} for IPMI over LAN",
    ),
    _Complaint(
        _SUITE_REFUSED,
        SensorError,
        "the BMC refuses cipher suite {suites}: enable it there, or name another one by "
        "ipmi:ipmitool@HOST,cipher=N",
    ),
    _Complaint(
        ("insufficient resources", "session slot", "login slots", "slot available"),
        SensorError,
        "the BMC has no free session: close others or wait for a minute",
    ),
    _Complaint(
        (
            "name or service not known",
            "address lookup",
            "name resolution",
            "no address associated",
            "unable to transmit to specified address",
        ),
        SensorError,
        "this host name has no address: correct it, or give the BMC's IP address",
    ),
)


def complaint(
    name: str, said: str, *, user: str, privilege: str, suites: str
) -> SensorError | None:
    """Explain what a tool said of a login that failed; None where that is not known.

    Parameters
    ----------
    name : str
        Of the source.
    said : str
        By the tool; not repeated.
    user, privilege, suites : str
        Who asked for what, and by which cipher suites.
    """
    said = said.lower()
    for phrases, kind, text in _COMPLAINTS:
        if any(phrase in said for phrase in phrases):
            filled = text.format(user=user, privilege=privilege.upper(), suites=suites)
            return kind(f"{name}: {filled}")
    return None


def refuses_suite(said: str) -> bool:
    """Whether a tool said that the BMC does not take the cipher suite."""
    return any(phrase in said.lower() for phrase in _SUITE_REFUSED)
