"""A BMC that speaks Redfish: sushy-static serves the resources, a front adds login and faults."""

from __future__ import annotations

import base64
import contextlib
import datetime
import ipaddress
import json
import os
import secrets
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

LOCAL = "127.0.0.1"
START_S = 30.0

V1 = "/redfish/v1"
CHASSIS = f"{V1}/Chassis"
SESSIONS = f"{V1}/SessionService/Sessions"
FIGURES = ("environment", "supplies", "power")


def linked(path: str) -> dict[str, str]:
    return {"@odata.id": path}


class Certificate(NamedTuple):
    """PEM files of a certificate and its key."""

    pem: Path
    key: Path


class Authority:
    """A private authority, whose certificate is the file ``pem``."""

    def __init__(self, folder: Path, name: str = "Test authority") -> None:
        self._folder = folder
        self._slug = name.replace(" ", "-")
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._count = 0
        signed = self._signed(
            self._name,
            self._key.public_key(),
            x509.BasicConstraints(ca=True, path_length=None),
            x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()),
        )
        self.pem = folder / f"{self._slug}.pem"
        self.pem.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def certificate(self, host: str = LOCAL) -> Certificate:
        """Make a new certificate for a host, by its name or address."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            made_out = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        except ValueError:
            made_out = x509.SubjectAlternativeName([x509.DNSName(host)])
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        signed = self._signed(
            name,
            key.public_key(),
            made_out,
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
        )
        self._count += 1
        files = Certificate(
            self._folder / f"{self._slug}-{self._count}.pem",
            self._folder / f"{self._slug}-{self._count}.key",
        )
        files.pem.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files

    def _signed(
        self, subject: x509.Name, key: Any, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
        )
        for extension in extensions:
            critical = isinstance(extension, x509.BasicConstraints)
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())


class Said(NamedTuple):
    """An answer that the front gives instead of the service's.

    ``missing`` bytes more are announced than sent, then the front hangs up, or stalls. After each
    byte it pauses for ``pause_s``.
    """

    status: int
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = ()
    missing: int = 0
    stalls: bool = False
    pause_s: float = 0.0


class Asked(NamedTuple):
    """A request that reached the front."""

    method: str
    path: str
    headers: dict[str, str]


class RedfishBmc:
    """A started BMC; a context manager that stops it.

    Parameters
    ----------
    folder : Path
        For the resources.
    watts : float or None
        What every figure says.
    figures : iterable of {"environment", "supplies", "power"}
        Which of them chassis "1" has.
    certificate : Certificate, optional
        Speak HTTPS.
    login : (user, password), optional
        Ask everybody for it but for the service root.
    sessions : bool
        Whether one can log in by a session, or by basic authentication only.

    Attributes
    ----------
    address, direct : str
        Of the front, and of sushy-static behind it, which knows no login and no faults.
    late_s : float
        The front answers so much later.
    hang_ups : int
        So many of the next requests get no answer but the end of the connection.
    next_said : deque of Said
        The next answers to GET.
    asked : list of Asked
        All requests so far.
    tokens : set of str
        Of the sessions that are open.
    tells_session_by : set of str
        Headers that an answer to a login has.
    connections : int
        How many there have been.
    """

    def __init__(
        self,
        folder: Path,
        watts: Any = 240.0,
        *,
        figures: Iterable[str] = FIGURES,
        certificate: Certificate | None = None,
        login: tuple[str, str] | None = None,
        sessions: bool = True,
    ) -> None:
        self._folder = folder / "mockup"
        self.login, self.sessions = login, sessions
        self.late_s = 0.0
        self.hang_ups = 0
        self.next_said: deque[Said] = deque()
        self.asked: list[Asked] = []
        self.tokens: set[str] = set()
        self.tells_session_by = {"X-Auth-Token", "Location"}
        self.stopping = threading.Event()
        self._write_service()
        self.add_chassis("1", watts, figures)
        scheme = "https" if certificate else "http"
        port = _free_port()
        self.direct = f"{scheme}://{LOCAL}:{port}"
        self._log = (folder / "sushy-static.log").open("wb")
        self._static = subprocess.Popen(
            [
                *(sys.executable, "-m", "sushy_tools.static.main"),
                *("-i", LOCAL, "-p", str(port), "-m", str(self._folder)),
                *(("-c", str(certificate.pem), "-k", str(certificate.key)) if certificate else ()),
            ],
            stdout=subprocess.DEVNULL,
            stderr=self._log,
        )
        self._front = _Front(self, certificate)
        self.address = f"{scheme}://{LOCAL}:{self._front.server_port}"
        self._thread = threading.Thread(target=self._front.serve_forever, args=(0.02,))
        self._thread.start()
        try:
            _wait_for(port, self._static)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> RedfishBmc:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def connections(self) -> int:
        return self._front.connections

    def set_watts(self, watts: Any, chassis: str = "1") -> None:
        """Let every figure of a chassis say so from now on."""
        base = f"{CHASSIS}/{chassis}"
        self.change(f"{base}/EnvironmentMetrics", PowerWatts={"Reading": watts})
        half = watts / 2 if type(watts) in (int, float) and watts < 1e300 else watts
        for number in ("0", "1"):
            path = f"{base}/PowerSubsystem/PowerSupplies/{number}/Metrics"
            self.change(path, InputPowerWatts={"Reading": half})
        self.change(f"{base}/Power", PowerControl=[_control(base, watts)])

    def put(self, path: str, document: Mapping[str, Any]) -> None:
        """Write a resource, so that it is read either whole as before or whole as now."""
        file = self._file(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(".new")
        unfinished.write_text(json.dumps({**linked(path), **document}))
        os.replace(unfinished, file)  # noqa: PTH105

    def document(self, path: str) -> dict[str, Any]:
        """Read a resource as it is now."""
        read: dict[str, Any] = json.loads(self._file(path).read_text())
        return read

    def change(self, path: str, **properties: Any) -> None:
        """Change properties of a resource, if there is one."""
        if self._file(path).exists():
            self.put(path, {**self.document(path), **properties})

    def remove(self, path: str) -> None:
        self._file(path).unlink()

    def add_chassis(
        self, name: str, watts: Any, figures: Iterable[str] = FIGURES, **properties: Any
    ) -> str:
        """Add a chassis; returns its path."""
        base = f"{CHASSIS}/{name}"
        links: dict[str, Any] = {}
        if "environment" in figures:
            links["EnvironmentMetrics"] = linked(f"{base}/EnvironmentMetrics")
            self.put(f"{base}/EnvironmentMetrics", {"Id": "EnvironmentMetrics", "Name": "Metrics"})
        if "supplies" in figures:
            links["PowerSubsystem"] = linked(f"{base}/PowerSubsystem")
            self._write_supplies(base)
        if "power" in figures:
            links["Power"] = linked(f"{base}/Power")
            self.put(f"{base}/Power", {"Id": "Power", "Name": "Power"})
        self.put(base, {"Id": name, "Name": name, "ChassisType": "RackMount"} | links | properties)
        self.set_watts(watts, name)
        collection = self.document(CHASSIS)
        self.put(CHASSIS, collection | {"Members": [*collection["Members"], linked(base)]})
        return base

    def drop_sessions(self) -> None:
        """Forget who has logged in."""
        self.tokens.clear()

    def drop_connections(self) -> None:
        """Hang up on everybody who keeps a connection open."""
        self._front.drop_connections()

    def renew(self, certificate: Certificate) -> None:
        """Show another certificate from the next connection on, and hang up on the present."""
        assert self._front.context is not None
        self._front.context.load_cert_chain(certificate.pem, certificate.key)
        self.drop_connections()

    def stop(self) -> None:
        """Stop front and service; a second call does nothing."""
        self.stopping.set()
        self._front.shutdown()
        self._front.drop_connections()
        self._front.server_close()
        self._thread.join()
        self._static.terminate()
        self._static.wait(START_S)
        self._log.close()

    def _file(self, path: str) -> Path:
        return self._folder / path.removeprefix(V1).strip("/") / "index.json"

    def _write_service(self) -> None:
        links = {"Sessions": linked(SESSIONS)}
        self.put(
            V1,
            {
                "@odata.type": "#ServiceRoot.v1_16_0.ServiceRoot",
                "Id": "RootService",
                "Name": "Root Service",
                "RedfishVersion": "1.18.0",
                "Chassis": linked(CHASSIS),
                "SessionService": linked(f"{V1}/SessionService"),
                "Links": links,
            },
        )
        self.put(f"{V1}/SessionService", {"Id": "SessionService", "Name": "Sessions", **links})
        self.put(SESSIONS, {"Name": "Sessions", "Members": []})
        self.put(CHASSIS, {"Name": "Chassis", "Members": []})

    def _write_supplies(self, base: str) -> None:
        subsystem = f"{base}/PowerSubsystem"
        supplies = f"{subsystem}/PowerSupplies"
        self.put(subsystem, {"Id": "PowerSubsystem", "PowerSupplies": linked(supplies)})
        for number in ("0", "1"):
            supply = f"{supplies}/{number}"
            enabled = {"Id": number, "Status": {"State": "Enabled", "Health": "OK"}}
            self.put(supply, enabled | {"Metrics": linked(f"{supply}/Metrics")})
            self.put(f"{supply}/Metrics", enabled)
        self.put(supplies, {"Members": [linked(f"{supplies}/{n}") for n in ("0", "1")]})


def _control(base: str, watts: Any) -> dict[str, Any]:
    return {
        **linked(f"{base}/Power#/PowerControl/0"),
        "MemberId": "0",
        "Name": "Server Power Control",
        "PhysicalContext": "Intake",
        "PowerConsumedWatts": watts,
    }


class _Front(ThreadingHTTPServer):
    """What clients talk to: forwards to sushy-static, unless a fault is due."""

    daemon_threads = False
    block_on_close = True

    def __init__(self, bmc: RedfishBmc, certificate: Certificate | None) -> None:
        self.bmc = bmc
        self.connections = 0
        self._open: set[socket.socket] = set()
        self.context: ssl.SSLContext | None = None
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(certificate.pem, certificate.key)
        self.onward = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_any_certificate())
        )
        super().__init__((LOCAL, 0), _Handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        # Whoever does not like the certificate, or hangs up, is no fault of the server.
        with contextlib.suppress(OSError):
            if self.context:
                request.settimeout(START_S)
                with self.context.wrap_socket(request, server_side=True) as wrapped:
                    self._serve(wrapped, client_address)
            else:
                self._serve(request, client_address)

    def drop_connections(self) -> None:
        for connection in tuple(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _serve(self, connection: socket.socket, client_address: Any) -> None:
        self._open.add(connection)
        try:
            super().finish_request(connection, client_address)
        finally:
            self._open.discard(connection)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Front

    def do_GET(self) -> None:
        self._answer("GET", self._read_resource)

    def do_POST(self) -> None:
        self._answer("POST", self._log_in)

    def do_DELETE(self) -> None:
        self._answer("DELETE", self._log_out)

    def log_message(self, *_arguments: object) -> None:
        pass

    def _answer(self, method: str, respond: Any) -> None:
        bmc = self.server.bmc
        self._body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        bmc.asked.append(Asked(method, self.path, dict(self.headers)))
        if bmc.late_s and bmc.stopping.wait(bmc.late_s):
            self.close_connection = True
            return
        if bmc.hang_ups:
            bmc.hang_ups -= 1
            self.close_connection = True
            return
        said: Said = respond()
        self.send_response(said.status)
        for name, value in said.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(said.body) + said.missing))
        self.end_headers()
        for piece in _pieces(said):
            self.wfile.write(piece)
            bmc.stopping.wait(said.pause_s)
        self.close_connection |= said.missing > 0
        if said.stalls:
            bmc.stopping.wait(START_S)

    def _read_resource(self) -> Said:
        bmc = self.server.bmc
        if not self._may_read():
            return Said(401, b'{"error": {"message": "no session"}}')
        if bmc.next_said:
            return bmc.next_said.popleft()
        try:
            with self.server.onward.open(bmc.direct + self.path, timeout=START_S) as onward:
                return Said(onward.status, onward.read(), (("Content-Type", "application/json"),))
        except urllib.error.HTTPError as error:
            with error:
                return Said(error.code, error.read())

    def _may_read(self) -> bool:
        bmc = self.server.bmc
        if bmc.login is None or self.path.rstrip("/") == V1:
            return True
        basic = base64.b64encode(":".join(bmc.login).encode()).decode()
        has_token = self.headers.get("X-Auth-Token") in bmc.tokens
        return has_token or self.headers.get("Authorization") == f"Basic {basic}"

    def _log_in(self) -> Said:
        bmc = self.server.bmc
        if not bmc.sessions or self.path != SESSIONS:
            return Said(405)
        given = json.loads(self._body)
        if (given["UserName"], given["Password"]) != bmc.login:
            return Said(401)
        token = secrets.token_hex(8)
        bmc.tokens.add(token)
        place = f"{SESSIONS}/{len(bmc.tokens)}"
        body = json.dumps(linked(place)).encode()
        headers = {"X-Auth-Token": token, "Location": place}
        return Said(201, body, tuple((k, headers[k]) for k in headers if k in bmc.tells_session_by))

    def _log_out(self) -> Said:
        self.server.bmc.tokens.discard(self.headers.get("X-Auth-Token", ""))
        return Said(204, b"")


def _pieces(said: Said) -> list[bytes]:
    return [bytes([byte]) for byte in said.body] if said.pause_s else [said.body]


def _any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((LOCAL, 0))
        port: int = listener.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((LOCAL, port), 1.0):
            return
        time.sleep(0.02)
    raise RuntimeError("sushy-static did not start; see its log")
