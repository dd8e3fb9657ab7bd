"""A BMC that speaks Redfish: an HTTP server of this process, with login and faults.

sushy-static can serve the same resources (`RedfishBmc.served`).
"""

import base64
import contextlib
import datetime
import ipaddress
import json
import secrets
import socket
import ssl
import subprocess
import sys
import threading
from collections import deque, namedtuple
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from peers.loopback import LOCAL, LoopbackPeer
from peers.waiting import wait_for

START_S = 60.0

V1 = "/redfish/v1"
CHASSIS = f"{V1}/Chassis"
SESSIONS = f"{V1}/SessionService/Sessions"
FIGURES = ("environment", "supplies", "power")
A_DAY = datetime.timedelta(days=1)
Asked = namedtuple("Asked", "method path headers")


def linked(path):
    return {"@odata.id": path}


class Certificate(NamedTuple):
    """The file ``pem`` has a certificate and its key."""

    pem: Path
    name: x509.Name
    key: ec.EllipticCurvePrivateKey

    def issue(self, host=LOCAL):
        return certificate(self.pem.parent, host, by=self)


def certificate(folder, host, *, by=None):
    """Make a certificate: for a host ``by`` an authority, or without one an authority's own."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    number, from_to = x509.random_serial_number(), (now - A_DAY, now + A_DAY)
    place = x509.IPAddress(ipaddress.ip_address(host)) if host == LOCAL else x509.DNSName(host)
    signed = (
        x509.CertificateBuilder(by.name if by else name, name, key.public_key(), number, *from_to)
        .add_extension(x509.SubjectAlternativeName([place]), critical=False)
        .add_extension(x509.BasicConstraints(ca=not by, path_length=None), critical=True)
        .sign(by.key if by else key, hashes.SHA256())
    )
    pem, encoding = folder / f"{number}.pem", serialization.Encoding.PEM
    how = (encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    pem.write_bytes(signed.public_bytes(encoding) + key.private_bytes(*how))
    return Certificate(pem, name, key)


class Said(NamedTuple):
    """An answer instead of a resource.

    ``missing`` bytes more are announced than sent, then the BMC hangs up, or stalls. After each
    byte it pauses for ``pause_s``, with ``slow_head`` within the headers, too.
    """

    status: int
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = ()
    missing: int = 0
    stalls: bool = False
    pause_s: float = 0.0
    slow_head: bool = False


class RedfishBmc(LoopbackPeer):
    """A started BMC; a context manager that stops it.

    Every figure of chassis "1" says ``watts``, and it has those named by ``figures``. With a
    ``certificate`` it speaks HTTPS; a ``login`` (user, password) is asked of everybody but for the
    service root, by a session or, without ``sessions``, by basic authentication only.

    It notes what was ``asked``, how many ``connections`` there were and the ``tokens`` of open
    sessions, and answers nobody (``is_silent``), ends the connection instead (``hang_ups``), or
    gives the answers of ``next_said``. An answer to a login has the headers ``tells_session_by``.
    """

    def __init__(
        self, watts=240.0, *, figures=FIGURES, certificate=None, login=None, sessions=True
    ):
        self.login, self.sessions = login, sessions
        self.is_silent, self.hang_ups, self.connections = False, 0, 0
        self.next_said, self.asked, self.tokens = deque(), [], set()
        self.tells_session_by = {"X-Auth-Token", "Location"}
        self.stopping, self._texts, self._folder = threading.Event(), {}, None
        links = {"SessionService": linked(f"{V1}/SessionService"), "Chassis": linked(CHASSIS)}
        sessions_at = {"Links": {"Sessions": linked(SESSIONS)}}
        self.put(V1, {"Id": "RootService", "RedfishVersion": "1.18.0", **links, **sessions_at})
        self.put(f"{V1}/SessionService", {"Id": "SessionService", **sessions_at["Links"]})
        self.put(SESSIONS, {"Name": "Sessions", "Members": []})
        self.put(CHASSIS, {"Name": "Chassis", "Members": []})
        self.add_chassis("1", watts, figures)
        self.serve(_Front(self, certificate))
        scheme = "https" if certificate else "http"
        self.address = f"{scheme}://{LOCAL}:{self.server.server_port}"

    @contextlib.contextmanager
    def served(self, folder):
        """Address where sushy-static, which knows no login and no faults, has the resources."""
        self._folder = folder / "mockup"
        for path, text in self._texts.items():
            self._write(path, text)
        with socket.create_server((LOCAL, 0)) as listener:
            port = listener.getsockname()[1]
        words = ("sushy_tools.static.main", "-i", LOCAL, "-p", str(port), "-m", str(self._folder))
        quiet = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
        with subprocess.Popen([sys.executable, "-m", *words], **quiet) as static:

            def answers():
                assert static.poll() is None, "sushy-static ended"
                with contextlib.suppress(OSError), socket.create_connection((LOCAL, port), START_S):
                    return True

            try:
                wait_for(answers)
                yield f"http://{LOCAL}:{port}"
            finally:
                static.terminate()

    def set_watts(self, watts, chassis="1"):
        """Let every figure of a chassis say so from now on."""
        base = f"{CHASSIS}/{chassis}"
        self.change(f"{base}/EnvironmentMetrics", PowerWatts={"Reading": watts})
        half = watts / 2 if type(watts) in (int, float) and watts < 1e300 else watts
        for number in ("0", "1"):
            path = f"{base}/PowerSubsystem/PowerSupplies/{number}/Metrics"
            self.change(path, InputPowerWatts={"Reading": half})
        control = {"Name": "Server Power Control", "PhysicalContext": "Intake"}
        self.change(f"{base}/Power", PowerControl=[{**control, "PowerConsumedWatts": watts}])

    def put(self, path, document):
        self._texts[path] = json.dumps({**linked(path), **document})
        if self._folder:
            self._write(path, self._texts[path])

    def _write(self, path, text):
        """Write a resource, so that it is read either whole as before or whole as now."""
        file = self._folder / path.removeprefix(V1).strip("/") / "index.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_suffix(".new").write_text(text)
        file.with_suffix(".new").replace(file)

    def document(self, path):
        return json.loads(self._texts[path])

    def change(self, path, **properties):
        if path in self._texts:
            self.put(path, {**self.document(path), **properties})

    def remove(self, path):
        del self._texts[path]

    def add_chassis(self, name, watts, figures=FIGURES, **properties):
        base, links = f"{CHASSIS}/{name}", {}
        if "environment" in figures:
            links["EnvironmentMetrics"] = linked(f"{base}/EnvironmentMetrics")
            self.put(f"{base}/EnvironmentMetrics", {"Id": "EnvironmentMetrics"})
        if "supplies" in figures:
            links["PowerSubsystem"] = linked(f"{base}/PowerSubsystem")
            supplies = f"{base}/PowerSubsystem/PowerSupplies"
            self.put(f"{base}/PowerSubsystem", {"PowerSupplies": linked(supplies)})
            for number in ("0", "1"):
                enabled = {"Id": number, "Status": {"State": "Enabled", "Health": "OK"}}
                metrics = f"{supplies}/{number}/Metrics"
                self.put(f"{supplies}/{number}", {**enabled, "Metrics": linked(metrics)})
                self.put(metrics, enabled)
            self.put(supplies, {"Members": [linked(f"{supplies}/{n}") for n in ("0", "1")]})
        if "power" in figures:
            links["Power"] = linked(f"{base}/Power")
            self.put(f"{base}/Power", {"Id": "Power"})
        self.put(base, {"Id": name, "Name": name, "ChassisType": "RackMount"} | links | properties)
        self.set_watts(watts, name)
        self.change(CHASSIS, Members=[*self.document(CHASSIS)["Members"], linked(base)])

    def renew(self, certificate):
        """Show another certificate from the next connection on, and hang up on the present."""
        self.server.context.load_cert_chain(certificate.pem)
        self.hang_up()

    def stop(self):
        self.stopping.set()
        super().stop()

    def said(self, path):
        text = self._texts.get(path.rstrip("/"))
        return Said(404) if text is None else Said(200, text.encode())


class _Front(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True

    def __init__(self, bmc, certificate):
        self.bmc, self.open, self.context = bmc, set(), None
        if certificate:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(certificate.pem)
        super().__init__((LOCAL, 0), _Handler)

    def finish_request(self, request, client_address):
        self.bmc.connections += 1
        # Whoever does not like the certificate, or hangs up, is no fault of the server.
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            if self.context:
                request.settimeout(START_S)
                request = stack.enter_context(self.context.wrap_socket(request, server_side=True))
            self.open.add(request)
            stack.callback(self.open.discard, request)
            super().finish_request(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        self._answer("GET", self._read_resource)

    def do_POST(self):
        self._answer("POST", self._log_in)

    def do_DELETE(self):
        self._answer("DELETE", self._log_out)

    def log_message(self, *_):
        pass

    def _answer(self, method, respond):
        bmc = self.server.bmc
        self._body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        bmc.asked.append(Asked(method, self.path, dict(self.headers)))
        if bmc.is_silent or bmc.hang_ups:
            bmc.stopping.wait(START_S if bmc.is_silent else 0)
            bmc.hang_ups -= not bmc.is_silent
            self.close_connection = True
            return
        said = respond()
        self.send_response(said.status)
        for name, value in said.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(said.body) + said.missing))
        if said.slow_head:
            head, self._headers_buffer = b"".join(self._headers_buffer), []
            self._write_slowly(head, said.pause_s)
        self.end_headers()
        self._write_slowly(said.body, said.pause_s)
        self.close_connection |= said.missing > 0
        if said.stalls:
            bmc.stopping.wait(START_S)

    def _write_slowly(self, data, pause_s):
        for piece in [bytes([byte]) for byte in data] if pause_s else [data]:
            self.wfile.write(piece)
            self.server.bmc.stopping.wait(pause_s)

    def _read_resource(self):
        bmc = self.server.bmc
        if not self._may_read():
            return Said(401, b'{"error": {"message": "no session"}}')
        return bmc.next_said.popleft() if bmc.next_said else bmc.said(self.path)

    def _may_read(self):
        bmc = self.server.bmc
        if bmc.login is None or self.path.rstrip("/") == V1:
            return True
        basic = base64.b64encode(":".join(bmc.login).encode()).decode()
        has_token = self.headers.get("X-Auth-Token") in bmc.tokens
        return has_token or self.headers.get("Authorization") == f"Basic {basic}"

    def _log_in(self):
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

    def _log_out(self):
        self.server.bmc.tokens.discard(self.headers.get("X-Auth-Token", ""))
        return Said(204, b"")
