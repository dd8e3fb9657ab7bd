"""HTTP client of one Redfish service: its certificate, its login, and its passing faults.

The certificate is verified once, when the service is opened; every later connection must show the
same one. Proxies and netrc files of the environment are not used.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import ipaddress
import json
import socket
import ssl
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

from measurements.power.source import Login, SensorError, SourceSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from requests import Response, Session

PORTS = {"https": 443, "http": 80}
ROOT = "/redfish/v1/"
SESSIONS = "/redfish/v1/SessionService/Sessions"

OK = 200
REDIRECTS = {301, 302, 307, 308}
UNAUTHORIZED, FORBIDDEN = 401, 403
BUSY = {500, 502, 503, 504}
BUSY_WAIT_S = 0.5

# A resource has a few kilobytes; a BMC does not send more than this.
MOST_BYTES = 4 << 20
MOST_REDIRECTS = 3


class ServiceOrigin(NamedTuple):
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
        """Name in messages, with the port unless it is the usual one."""
        usual = self.port == PORTS[self.scheme]
        return f"redfish at {self.host}" if usual else f"redfish at {self.host} port {self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine, so that nobody can listen on the way there."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_origin(where: str) -> ServiceOrigin:
    """Parse ``bmc``, ``bmc:8443``, ``https://bmc`` or ``http://127.0.0.1:8000``."""
    text = where.strip()
    # The message must not repeat the address, which may contain a password.
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
    return ServiceOrigin(parts.scheme, host, port or PORTS[parts.scheme])


class RedfishAnswer(NamedTuple):
    """A resource, and the middle of the request and its answer by `time.monotonic` (s)."""

    document: dict[str, Any]
    at_s: float


class StatusError(SensorError):
    """The service answered with a status other than 200."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class _BrokenError(SensorError):
    """A connection ended without an answer."""


class _Raw(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes
    at_s: float


class RedfishClient:
    """Read resources of one service, logging in only when it asks for that."""

    def __init__(self, origin: ServiceOrigin, settings: SourceSettings) -> None:
        try:
            import requests
        except ImportError:
            raise SensorError(
                "redfish needs the library requests: pip install 'perf-per-watt[measure]'"
            ) from None
        self.origin = origin
        self._errors = requests.exceptions
        self._timeout_s = settings.timeout_s
        self._ask_login = settings.login
        self._login: Login | None = None
        self._rejected = False
        self._sessions = SESSIONS
        self._own_session = ""
        self._pin = _fingerprint(origin, _trust(origin, settings.options), self._timeout_s)
        self._http = _http_session(requests, self._pin)

    def root(self) -> dict[str, Any]:
        """Read the service root, which also says where to log in."""
        document = self.get(ROOT).document
        sessions = dig(document, "Links", "Sessions", "@odata.id")
        if isinstance(sessions, str):
            self._sessions = sessions
        return document

    def get(self, path: str) -> RedfishAnswer:
        """Read one resource; raise `StatusError` for a status other than 200."""
        raw = self._get_patiently(path)
        if raw.status == UNAUTHORIZED:
            self._log_in()
            raw = self._get_patiently(path)
            if raw.status == UNAUTHORIZED:
                self._reject()
        if raw.status == FORBIDDEN:
            raise StatusError(
                f"{self.origin.name}: {self._who()} may not read {path}: give the account a role "
                f"that may, such as ReadOnly",
                raw.status,
            )
        if raw.status != OK:
            raise StatusError(
                f"{self.origin.name}: {path} answers {raw.status}: restart the BMC's Redfish "
                f"service if it goes on",
                raw.status,
            )
        return RedfishAnswer(self._parse_json(path, raw.body), raw.at_s)

    def close(self) -> None:
        """Log out and hang up; a second call does nothing."""
        path, self._own_session = self._own_session, ""
        if path:
            # A session that cannot be ended expires by itself.
            with contextlib.suppress(SensorError):
                self._exchange("DELETE", path)
        self._forget_login()
        self._http.close()

    def _get_patiently(self, path: str) -> _Raw:
        """Ask a busy or failing service once again."""
        raw = self._follow_redirects(path)
        if raw.status not in BUSY:
            return raw
        wait_s = _retry_after(raw.headers.get("Retry-After"))
        if wait_s > self._timeout_s:
            raise StatusError(
                f"{self.origin.name}: {path} answers {raw.status} and asks to wait {wait_s:.0f} s: "
                f"try again then",
                raw.status,
            )
        time.sleep(wait_s)
        return self._follow_redirects(path)

    def _follow_redirects(self, path: str) -> _Raw:
        for _ in range(MOST_REDIRECTS):
            try:
                raw = self._exchange("GET", path)
            except _BrokenError:
                # Once more, over a new connection.
                raw = self._exchange("GET", path)
            if raw.status not in REDIRECTS:
                return raw
            path = self._own_path(raw.headers.get("Location", ""))
        raise SensorError(f"{self.origin.name}: {path} is redirected in a circle")

    def _exchange(self, method: str, path: str, payload: Mapping[str, str] | None = None) -> _Raw:
        asked_s = time.monotonic()
        until_s = asked_s + self._timeout_s
        errors = self._errors
        try:
            with self._http.request(
                method,
                self.origin.url + self._own_path(path),
                json=payload,
                timeout=self._timeout_s,
                allow_redirects=False,
                stream=True,
            ) as response:
                body = self._body(response, until_s)
        except errors.Timeout:
            raise SensorError(_late(self.origin, self._timeout_s)) from None
        except errors.RequestException as error:
            self._http.close()
            # requests does not call a stalled body a timeout.
            if time.monotonic() >= until_s:
                raise SensorError(_late(self.origin, self._timeout_s)) from None
            self._explain(isinstance(error, errors.SSLError))
            raise _BrokenError(
                f"{self.origin.name}: breaks the connection off instead of answering {path}: "
                f"restart the BMC's Redfish service if it goes on"
            ) from None
        at_s = (asked_s + time.monotonic()) / 2
        return _Raw(response.status_code, response.headers, body, at_s)

    def _body(self, response: Response, until_s: float) -> bytes:
        body = bytearray()
        for chunk in response.iter_content(1 << 16):
            body += chunk
            if time.monotonic() > until_s:
                raise SensorError(_late(self.origin, self._timeout_s))
            if len(body) > MOST_BYTES:
                raise SensorError(
                    f"{self.origin.name}: sends more than {MOST_BYTES >> 20} MiB: is it a BMC?"
                )
        return bytes(body)

    def _explain(self, by_tls: bool) -> None:
        """Raise if nobody answers any more, or somebody else does."""
        shown = _fingerprint(self.origin, _trust_any(), self._timeout_s)
        if by_tls and shown != self._pin:
            raise SensorError(
                f"{self.origin.name}: shows another certificate than when it was opened (SHA-256 "
                f"{shown[:16]}… instead of {self._pin[:16]}…), so nothing was sent to it: find "
                f"out who answers there, and start again if the certificate was renewed"
            )

    def _own_path(self, link: str) -> str:
        """Reduce a link to its path, since credentials go to this service and to no other."""
        parts = urlsplit(link)
        elsewhere = bool(parts.scheme or parts.netloc)
        if parts.scheme and parts.netloc:
            elsewhere = parse_origin(f"{parts.scheme}://{parts.netloc}") != self.origin
        if elsewhere or not parts.path.startswith("/"):
            raise SensorError(
                f"{self.origin.name}: points to {link!r}, which is not the same service: name "
                f"that service itself"
            )
        return f"{parts.path}?{parts.query}" if parts.query else parts.path

    def _parse_json(self, path: str, body: bytes) -> dict[str, Any]:
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            start = body[:40].decode("ascii", "replace")
            raise SensorError(
                f"{self.origin.name}: {path} is no JSON object but begins {start!r}: is this the "
                f"Redfish port of a BMC?"
            )
        return document

    def _log_in(self) -> None:
        """Open a session, or use basic authentication where there are none."""
        if self._rejected:
            self._reject()
        if self.origin.scheme == "http" and not self.origin.is_loopback:
            raise SensorError(
                f"{self.origin.name}: wants a login, which http:// would send in the clear: use "
                f"https://"
            )
        self._forget_login()
        self._login = self._login or self._ask_login("redfish", self.origin.host)
        user, password = self._login
        raw = self._exchange("POST", self._sessions, {"UserName": user, "Password": password})
        if raw.status in (UNAUTHORIZED, FORBIDDEN):
            self._reject()
        if token := raw.headers.get("X-Auth-Token"):
            self._http.headers["X-Auth-Token"] = token
            self._own_session = self._session_path(raw)
        else:
            both = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._http.headers["Authorization"] = f"Basic {both}"

    def _session_path(self, raw: _Raw) -> str:
        with contextlib.suppress(SensorError):
            link = raw.headers.get("Location")
            link = link or dig(self._parse_json(self._sessions, raw.body), "@odata.id")
            return self._own_path(str(link))
        return ""

    def _forget_login(self) -> None:
        self._own_session = ""
        for header in ("X-Auth-Token", "Authorization"):
            self._http.headers.pop(header, None)

    def _reject(self) -> NoReturn:
        # Repeated attempts would lock the account.
        self._rejected = True
        raise SensorError(
            f"{self.origin.name}: rejects {self._who()} or the password: check both, and that the "
            f"account is not locked"
        )

    def _who(self) -> str:
        return f"user {self._login.user!r}" if self._login else "one who has not logged in"


def dig(document: Any, *keys: str | int) -> Any:
    """Follow keys and indices into a document; None if one is missing."""
    for key in keys:
        try:
            document = document[key]
        except (KeyError, IndexError, TypeError):
            return None
    return document


def member_paths(collection: Any) -> list[str]:
    """Return the paths of the members of a collection, or of a page of it."""
    members = dig(collection, "Members")
    paths = [dig(m, "@odata.id") for m in members] if isinstance(members, list) else []
    return [path.rstrip("/") for path in paths if isinstance(path, str)]


def _http_session(library: ModuleType, pin: str) -> Session:
    session: Session = library.Session()
    session.trust_env = False
    session.headers.update({"Accept": "application/json", "OData-Version": "4.0"})
    if pin:
        # The pinned certificate was verified when its fingerprint was taken; requiring that very
        # one is stricter than asking the authorities again.
        session.verify = False
        adapter = library.adapters.HTTPAdapter()
        adapter.init_poolmanager(1, 1, assert_fingerprint=pin)
        session.mount("https://", adapter)
    return session


def _retry_after(header: str | None) -> float:
    """Seconds to wait, from a number of them or a date."""
    if header is not None:
        with contextlib.suppress(ValueError):
            return max(float(int(header)), 0.0)
        with contextlib.suppress(ValueError):
            until = parsedate_to_datetime(header).astimezone(UTC)
            return max((until - datetime.now(UTC)).total_seconds(), 0.0)
    return BUSY_WAIT_S


def _trust(origin: ServiceOrigin, options: Mapping[str, str]) -> ssl.SSLContext:
    """Make the rules for trusting a certificate at first sight, by the options ca and verify."""
    ca = options.get("ca")
    # Without TLS there is nothing to trust, and the system's authorities load slowly.
    if options.get("verify") == "no" or (origin.scheme == "http" and ca is None):
        return _trust_any()
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        reason = "holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise SensorError(
            f"{origin.name}: ca={ca}: {reason}: give a PEM file of the certificate or its authority"
        ) from None
    if ca:
        # BMCs and small authorities omit extensions that Python 3.13 requires; a certificate that
        # the user names is trusted as it is.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _trust_any() -> ssl.SSLContext:
    """Make rules that accept any certificate, to look at it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _fingerprint(origin: ServiceOrigin, context: ssl.SSLContext, timeout_s: float) -> str:
    """Connect once: SHA-256 of a certificate that the context trusts; empty without TLS."""
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
        raise SensorError(_late(origin, timeout_s)) from None
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SensorError(
            f"{origin.name}: cannot be reached: {reason}: check the address, and that the BMC's "
            f"Redfish service is on"
        ) from None


def _late(origin: ServiceOrigin, timeout_s: float) -> str:
    """Describe an answer that did not come in time."""
    return (
        f"{origin.name}: no answer within {timeout_s:g} s: check the address and the network, or "
        f"restart the BMC"
    )
