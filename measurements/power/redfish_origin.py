"""Where a Redfish service answers, and which certificate it shows there."""

from __future__ import annotations

import hashlib
import ipaddress
import socket
import ssl
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from measurements.power.protocol import SensorError

if TYPE_CHECKING:
    from collections.abc import Mapping

PORTS = {"https": 443, "http": 80}


class Origin(NamedTuple):
    """Scheme, host and port of a service."""

    scheme: str
    host: str
    port: int

    @property
    def url(self) -> str:
        """Address without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def name(self) -> str:
        """How messages name it: with the port only where it is not the usual one."""
        usual = self.port == PORTS[self.scheme]
        return f"redfish at {self.host}" if usual else f"redfish at {self.host} port {self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether nobody can listen on the way there."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_origin(where: str) -> Origin:
    """Read ``bmc``, ``bmc:8443``, ``https://bmc`` or ``http://127.0.0.1:8000`` apart.

    Raises
    ------
    SensorError
        For another scheme, a path, a bad port, or a login in the address.
    """
    text = where.strip()
    # The address is not repeated: there may be a password in it.
    if "@" in text:
        raise SensorError(
            "redfish: no user or password belongs in the address: write redfish@HOST, and the "
            "login is asked for"
        )
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in PORTS:
        raise SensorError(f"redfish: {where!r} is no address: write redfish@HOST[:PORT]")
    if parts.path.rstrip("/") not in ("", "/redfish/v1") or parts.query or parts.fragment:
        raise SensorError(
            f"redfish: {where!r} has a path: write redfish@HOST[:PORT],chassis=ID to choose one"
        )
    return Origin(parts.scheme, host, port or PORTS[parts.scheme])


def trust(origin: Origin, options: Mapping[str, str]) -> ssl.SSLContext:
    """Make the rules by which a certificate is trusted at first sight.

    Parameters
    ----------
    origin : Origin
        For messages.
    options : mapping
        ``ca``: a PEM file of the certificate or its authority, instead of the system's
        authorities. ``verify``: ``no`` takes any certificate.
    """
    ca = options.get("ca")
    # Without TLS there is nothing to trust, and the system's authorities take long to load.
    if options.get("verify") == "no" or (origin.scheme == "http" and ca is None):
        return trust_any()
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        reason = "holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise SensorError(
            f"{origin.name}: ca={ca}: {reason}: give a PEM file of the certificate or its authority"
        ) from None
    if ca:
        # BMCs and small authorities leave out extensions that Python 3.13 asks for: who names the
        # certificate trusts it as it is.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def trust_any() -> ssl.SSLContext:
    """Make rules that take any certificate, to look at it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def fingerprint(origin: Origin, context: ssl.SSLContext, timeout_s: float) -> str:
    """Connect and hang up: the SHA-256 of the certificate shown, or "" without TLS.

    Raises
    ------
    SensorError
        When nobody answers there, or shows a certificate that the context does not trust.
    """
    try:
        with socket.create_connection((origin.host, origin.port), timeout_s) as plain:
            if origin.scheme == "http":
                return ""
            with context.wrap_socket(plain, server_hostname=origin.host) as wrapped:
                return hashlib.sha256(wrapped.getpeercert(binary_form=True) or b"").hexdigest()
    except ssl.SSLCertVerificationError as error:
        raise SensorError(
            f"{origin.name}: its certificate is not trusted: {error.verify_message}: give ca=FILE "
            f"with the certificate or its authority, use the name it is made out to, or write "
            f"verify=no"
        ) from None
    except ssl.SSLError as error:
        raise SensorError(
            f"{origin.name}: no TLS connection: {error.reason or error}: is this the HTTPS port, "
            f"and does the BMC speak TLS 1.2?"
        ) from None
    except TimeoutError:
        raise SensorError(late(origin, timeout_s)) from None
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SensorError(
            f"{origin.name}: cannot be reached: {reason}: check the address, and that the BMC's "
            f"Redfish service is on"
        ) from None


def late(origin: Origin, timeout_s: float) -> str:
    """Say that no answer came in time."""
    return (
        f"{origin.name}: no answer within {timeout_s:g} s: check the address and the network, or "
        f"restart the BMC"
    )
