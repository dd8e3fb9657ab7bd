"""HTTP client of one Redfish service: its certificate, its login, and its passing faults.

The certificate is verified once, when the service is opened; every later connection must show the
same one. requests carries the rest, with that fingerprint in its adapter; only the first look is by
a plain socket, since requests neither shows a certificate nor says why it is not trusted. Proxies
and netrc files of the environment are not used.
"""

import contextlib
import hashlib
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

from measurements.power.source import Login, SensorError, SourceSettings, import_library

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
        port = "" if self.port == PORTS[self.scheme] else f" port {self.port}"
        return f"redfish at {self.host}{port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine, so that nobody can listen on the way there."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def error(self, reason: str) -> SensorError:
        """Make the error of this service."""
        return SensorError(f"{self.name}: {reason}")

    def no_answer(self, timeout_s: float) -> SensorError:
        """Make the error of an answer that did not come in time."""
        return self.error(
            f"no answer within {timeout_s:g} s: check the address and the network, or restart the "
            "BMC"
        )


def parse_origin(where: str) -> ServiceOrigin:
    """Parse ``bmc``, ``bmc:8443``, ``https://bmc`` or ``http://127.0.0.1:8000``."""
    text = where.strip()
    # The message must not repeat the address, which may contain a password.
    if "@" in text:
        raise SensorError(
            "redfish: the address must not contain a user or password: write "
            "redfish@HOST, and ppw asks for the login"
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
    """An answer, and the middle of the request and it by `time.monotonic` (s)."""

    origin: ServiceOrigin
    path: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    at_s: float

    @property
    def document(self) -> dict[str, Any]:
        """The resource."""
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            start = self.body[:40].decode("ascii", "replace")
            raise self.origin.error(
                f"{self.path} is no JSON object but begins {start!r}: is this the Redfish port of "
                "a BMC?"
            )
        return document


class StatusError(SensorError):
    """The service answered with a status other than 200."""

    def __init__(self, answer: RedfishAnswer, reason: str) -> None:
        super().__init__(f"{answer.origin.name}: {reason}")
        self.status = answer.status


class _BrokenError(SensorError):
    """A connection ended without an answer."""


class RedfishClient:
    """Read resources of one service, logging in only when it asks for that."""

    def __init__(self, origin: ServiceOrigin, settings: SourceSettings) -> None:
        requests = import_library("redfish", "requests", "requests")
        self.origin = origin
        self._requests = requests
        self._timeout_s = settings.timeout_s
        self._ask_login = settings.login
        self._login: Login | None = None
        self._is_rejected = False
        self._sessions, self._own_session = SESSIONS, ""
        self._pin = _fingerprint(origin, _make_tls_rules(origin, settings.options), self._timeout_s)
        # The connection that was opened last, so that another thread can end it.
        self._connections: list[Any] = []
        self._http = _make_http_session(requests, self._pin, self._connections)

    def root(self) -> dict[str, Any]:
        """Read the service root, which also says where to log in."""
        document = self.get(ROOT).document
        sessions = dig(document, "Links", "Sessions", "@odata.id")
        if isinstance(sessions, str):
            self._sessions = sessions
        return document

    def get(self, path: str) -> RedfishAnswer:
        """Read one resource; raise `StatusError` for a status other than 200."""
        answer = self._get_patiently(path)
        if answer.status == UNAUTHORIZED:
            self._log_in()
            answer = self._get_patiently(path)
            if answer.status == UNAUTHORIZED:
                self._raise_rejected()
        if answer.status == FORBIDDEN:
            raise StatusError(
                answer,
                f"{self._user()} may not read {path}: give the account a role that may: ReadOnly",
            )
        if answer.status != OK:
            again = "restart the BMC's Redfish service if this continues"
            raise StatusError(answer, f"{path} answers {answer.status}: {again}")
        return answer

    def close(self) -> None:
        """Log out and hang up; a second call does nothing."""
        path, self._own_session = self._own_session, ""
        if path:
            # A session that cannot be ended expires by itself.
            with contextlib.suppress(SensorError):
                self._request("DELETE", path)
        self._forget_login()
        self._http.close()

    def _get_patiently(self, path: str) -> RedfishAnswer:
        """Ask a busy or failing service once again."""
        answer = self._get_following_redirects(path)
        if answer.status not in BUSY:
            return answer
        wait_s = _retry_after(answer.headers.get("Retry-After"))
        if wait_s > self._timeout_s:
            asks = f"asks to wait {wait_s:.0f} s: try again then"
            raise StatusError(answer, f"{path} answers {answer.status} and {asks}")
        time.sleep(wait_s)
        return self._get_following_redirects(path)

    def _get_following_redirects(self, path: str) -> RedfishAnswer:
        for _ in range(MOST_REDIRECTS):
            try:
                answer = self._request("GET", path)
            except _BrokenError:
                # Once more, over a new connection.
                answer = self._request("GET", path)
            if answer.status not in REDIRECTS:
                return answer
            path = self._own_path(answer.headers.get("Location", ""))
        raise self.origin.error(f"{path} is redirected in a circle")

    def _request(self, method: str, path: str, payload: Any = None) -> RedfishAnswer:
        asked_s = time.monotonic()
        until_s = asked_s + self._timeout_s
        errors = self._requests.exceptions
        try:
            with (
                self._ended_after(self._timeout_s),
                self._http.request(
                    method,
                    self.origin.url + self._own_path(path),
                    json=payload,
                    timeout=self._timeout_s,
                    allow_redirects=False,
                    stream=True,
                ) as response,
            ):
                body = self._read_body(response)
        except (errors.RequestException, errors.BaseHTTPError) as error:
            if not isinstance(error, errors.Timeout):
                self._http.close()
            # requests does not call a stalled body a timeout.
            if isinstance(error, errors.Timeout) or time.monotonic() >= until_s:
                raise self.origin.no_answer(self._timeout_s) from None
            self._raise_if_certificate_changed(isinstance(error, errors.SSLError))
            raise _BrokenError(
                f"{self.origin.name}: closes the connection instead of answering "
                f"{path}: if this happens again, restart the BMC's Redfish service"
            ) from None
        if time.monotonic() >= until_s:
            # A connection that is ended within the headers looks like an answer without a body.
            raise self.origin.no_answer(self._timeout_s)
        at_s = (asked_s + time.monotonic()) / 2
        status, headers = response.status_code, response.headers
        return RedfishAnswer(self.origin, path, status, headers, body, at_s)

    @contextlib.contextmanager
    def _ended_after(self, seconds: float) -> Iterator[None]:
        """Limit a whole exchange: a server that sends byte by byte never meets a socket's limit."""
        timer = threading.Timer(seconds, self._end_connection)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end_connection(self) -> None:
        for connection in self._connections:
            # It may have ended by itself.
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _read_body(self, response: Any) -> bytes:
        body = bytearray()
        while part := response.raw.read1(1 << 16, decode_content=True):
            body += part
            if len(body) > MOST_BYTES:
                raise self.origin.error(f"sends more than {MOST_BYTES >> 20} MiB: is it a BMC?")
        return bytes(body)

    def _raise_if_certificate_changed(self, by_tls: bool) -> None:
        """Raise if nobody answers any more, or with another certificate after a TLS error."""
        shown = _fingerprint(self.origin, _trust_any_certificate(), self._timeout_s)
        if by_tls and shown != self._pin:
            raise self.origin.error(
                f"shows another certificate than when it was opened (SHA-256 {shown[:16]}… instead "
                f"of {self._pin[:16]}…), so ppw sent nothing to it: check which host answers "
                "there, and start again if the certificate was renewed"
            )

    def _own_path(self, link: str) -> str:
        """Return the path of a link; refuse one to another service, which would get credentials."""
        parts = urlsplit(link)
        elsewhere = bool(parts.scheme or parts.netloc)
        if parts.scheme and parts.netloc:
            elsewhere = parse_origin(f"{parts.scheme}://{parts.netloc}") != self.origin
        if elsewhere or not parts.path.startswith("/"):
            raise self.origin.error(
                f"points to {link!r}, which is another service: give the address of that service"
            )
        return f"{parts.path}?{parts.query}" if parts.query else parts.path

    def _log_in(self) -> None:
        """Open a session, or use basic authentication where there are none."""
        if self._is_rejected:
            self._raise_rejected()
        if self.origin.scheme == "http" and not self.origin.is_loopback:
            raise self.origin.error(
                "requires a login, and http:// would send it unencrypted: use https://"
            )
        self._forget_login()
        self._login = self._login or self._ask_login("redfish", self.origin.host)
        user, password = self._login
        answer = self._request("POST", self._sessions, {"UserName": user, "Password": password})
        if answer.status in (UNAUTHORIZED, FORBIDDEN):
            self._raise_rejected()
        if token := answer.headers.get("X-Auth-Token"):
            self._http.headers["X-Auth-Token"] = token
            with contextlib.suppress(SensorError):
                link = answer.headers.get("Location") or dig(answer.document, "@odata.id")
                self._own_session = self._own_path(str(link))
        else:
            # As bytes: requests would refuse texts beyond Latin-1.
            both = user.encode(), password.encode()
            self._http.auth = self._requests.auth.HTTPBasicAuth(*both)

    def _forget_login(self) -> None:
        self._own_session, self._http.auth = "", None
        self._http.headers.pop("X-Auth-Token", None)

    def _raise_rejected(self) -> NoReturn:
        # Repeated attempts would lock the account.
        self._is_rejected = True
        raise self.origin.error(
            f"rejects {self._user()} or the password: check both, and that the account is not "
            "locked"
        )

    def _user(self) -> str:
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


def _make_http_session(library: Any, pin: str, connections: list[Any]) -> Any:
    """Make a session that keeps in ``connections`` the one that it opened last."""
    session = library.Session()
    session.trust_env = False
    session.headers.update({"Accept": "application/json", "OData-Version": "4.0"})
    if pin:
        # The pinned certificate was verified when its fingerprint was taken; requiring that very
        # one is stricter than asking the authorities again.
        session.verify = False
    adapter = library.adapters.HTTPAdapter()
    adapter.init_poolmanager(1, 1, **({"assert_fingerprint": pin} if pin else {}))
    manager = adapter.poolmanager
    manager.pool_classes_by_scheme = {
        scheme: _note_connections(pool, connections)
        for scheme, pool in manager.pool_classes_by_scheme.items()
    }
    for scheme in PORTS:
        session.mount(f"{scheme}://", adapter)
    return session


def _note_connections(pool: Any, connections: list[Any]) -> Any:
    """Make a class of connection pools that keeps the connection that was opened last."""

    class NotedConnection(pool.ConnectionCls):  # type: ignore[misc]
        def connect(self) -> None:
            super().connect()
            connections[:] = [self]

    return type(pool.__name__, (pool,), {"ConnectionCls": NotedConnection})


def _retry_after(header: str | None) -> float:
    """Read the time to wait (s), from a number of them or a date."""
    from urllib3 import Retry, exceptions

    with contextlib.suppress(exceptions.InvalidHeader):
        return BUSY_WAIT_S if header is None else float(Retry().parse_retry_after(header))
    return BUSY_WAIT_S


def _make_tls_rules(origin: ServiceOrigin, options: Mapping[str, str]) -> ssl.SSLContext:
    """Make the rules for trusting a certificate at first sight, by the options ca and verify."""
    ca = options.get("ca")
    # Without TLS there is nothing to trust, and the system's authorities load slowly.
    if options.get("verify") == "no" or (origin.scheme == "http" and ca is None):
        return _trust_any_certificate()
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        reason = "holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise origin.error(
            f"ca={ca}: {reason}: give a PEM file of the certificate or its authority"
        ) from None
    if ca:
        # BMCs and small authorities omit extensions that Python 3.13 requires; a certificate that
        # the user names is trusted as it is.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _trust_any_certificate() -> ssl.SSLContext:
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
        raise origin.error(
            f"its certificate is not trusted: {error.verify_message}: give ca=FILE with the "
            "certificate or its authority, use the name it is made out to, or write verify=no"
        ) from None
    except ssl.SSLError as error:
        raise origin.error(
            f"no TLS connection: {error.reason or error}: is this the HTTPS port, "
            f"and does the BMC speak TLS 1.2?"
        ) from None
    except TimeoutError:
        raise origin.no_answer(timeout_s) from None
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise origin.error(
            f"cannot be reached: {reason}: check the address, and that the BMC's "
            f"Redfish service is on"
        ) from None
