"""Power meters that speak SCPI as a Yokogawa WT does: on a TCP socket, and by pyvisa-sim."""

from __future__ import annotations

import contextlib
import re
import socket
import socketserver
import struct
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

LOCAL = "127.0.0.1"
IDENTITY = "YOKOGAWA,WT310E,C2RD01234V,F1.04"
ITEMS = ("U,1", "I,1", "P,1")
VALUES = ":NUMERIC:NORMAL:VALUE?"
ITEM = re.compile(r":NUMERIC:NORMAL:ITEM(\d+)\?")
NO_DATA, OVERRANGE = 9.91e37, 9.9e37


class ScpiMeter:
    """A meter on a socket of this machine; a context manager that stops it.

    Parameters
    ----------
    watts : float, str or callable
        What function P says, or who says it; a text is sent as it stands.
    items : sequence of str
        Functions and elements in the order of the values, such as "P,1".
    others : mapping
        What other functions say; 1 where it says nothing.
    rate : str
        What ``:RATE?`` answers.
    headers : bool
        Whether answers to settings repeat their header, as after ``:COMMUNICATE:HEADER ON``.
    binary : bool
        Whether values come as a block of floats, as after ``:NUMERIC:FORMAT FLOAT``.

    Attributes
    ----------
    asked : list of str
        All lines that were received.
    connections : int
        How many there have been.
    late_s : float
        Answers come so much later.
    drops : int
        So many of the next queries end the connection instead.
    next_said : deque of bytes
        The next answers, as they stand.
    deaf : set of str
        Queries that get no answer.
    """

    def __init__(
        self,
        watts: float | str | Callable[[], float] = 298.77,
        *,
        identity: str = IDENTITY,
        items: Sequence[str] = ITEMS,
        others: Mapping[str, float | str] | None = None,
        rate: str = "500.0E-03",
        headers: bool = False,
        binary: bool = False,
    ) -> None:
        self.watts = watts
        self.identity, self.items, self.rate = identity, tuple(items), rate
        self.others: dict[str, float | str] = dict(others or {})
        self.integrating = "STAR"
        self.headers, self.binary = headers, binary
        self.asked: list[str] = []
        self.connections = 0
        self.late_s = 0.0
        self.drops = 0
        self.next_said: deque[bytes] = deque()
        self.deaf: set[str] = set()
        self.stopping = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def __enter__(self) -> ScpiMeter:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def resource(self) -> str:
        """VISA name of the meter."""
        return f"TCPIP0::{LOCAL}::{self._server.server_address[1]}::SOCKET"

    def hang_up(self) -> None:
        """End all connections."""
        self._server.hang_up()

    def stop(self) -> None:
        """Stop listening and hang up; a second call does nothing."""
        self.stopping.set()
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        self._thread.join()

    def answer(self, line: str) -> bytes | None:
        """Answer a line; None where a meter stays silent."""
        if line in self.deaf:
            return None
        if self.next_said:
            return self.next_said.popleft()
        if line == VALUES and self.binary:
            return _block([float(self._figure(item)) for item in self.items]) + b"\n"
        said = self._said(line)
        return None if said is None else said.encode() + b"\n"

    def _said(self, line: str) -> str | None:
        settings = {
            ":NUMERIC:FORMAT?": "FLO" if self.binary else "ASC",
            ":NUMERIC:NORMAL:NUMBER?": str(len(self.items)),
            ":RATE?": self.rate,
            ":INTEGRATE:STATE?": self.integrating,
        }
        if line == "*IDN?":
            return self.identity
        if line == VALUES:
            return ",".join(self._value(item) for item in self.items)
        if match := ITEM.fullmatch(line):
            index = int(match[1])
            settings[line] = self.items[index - 1] if index <= len(self.items) else "NONE"
        if line not in settings:
            return None
        return f"{line[:-1]} {settings[line]}" if self.headers else settings[line]

    def _value(self, item: str) -> str:
        said = self._figure(item)
        return said if isinstance(said, str) else f"{said:.4E}"

    def _figure(self, item: str) -> float | str:
        function = item.partition(",")[0].upper()
        if function == "P":
            return self.watts() if callable(self.watts) else self.watts
        return self.others.get(function, 1.0)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    block_on_close = True

    def __init__(self, meter: ScpiMeter) -> None:
        self.meter = meter
        self.open: set[socket.socket] = set()
        super().__init__((LOCAL, 0), _Handler)

    def hang_up(self) -> None:
        for connection in tuple(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        meter = self.server.meter
        meter.connections += 1
        self.server.open.add(self.connection)
        # Whoever hangs up in the middle is no fault of the meter.
        with contextlib.suppress(OSError):
            for line in self.rfile:
                if not self._serve(line.decode("ascii", "replace").strip()):
                    break
        self.server.open.discard(self.connection)

    def _serve(self, line: str) -> bool:
        meter = self.server.meter
        meter.asked.append(line)
        if meter.drops:
            meter.drops -= 1
            return False
        if meter.late_s and meter.stopping.wait(meter.late_s):
            return False
        said = meter.answer(line)
        if said is not None:
            self.wfile.write(said)
        return True


def _block(values: Sequence[float]) -> bytes:
    body = struct.pack(f">{len(values)}f", *values)
    return b"#4%04d" % len(body) + body


def write_sim(folder: Path, resources: Sequence[str], **dialogue: Any) -> str:
    """Write a pyvisa-sim file of one meter; returns its name as a back-end of PyVISA.

    ``dialogue`` adds or replaces answers: ``identity``, ``values``, ``rate``, ``items``; None
    takes one out, so that the meter answers "ERROR".
    """
    said = {
        "identity": IDENTITY,
        "values": "230.12E+00,1.3021E+00,298.77E+00",
        "rate": "500.0E-03",
        "items": ITEMS,
    } | dialogue
    items = said["items"]
    answers = {
        "*IDN?": said["identity"],
        VALUES: said["values"],
        ":RATE?": said["rate"],
        ":NUMERIC:FORMAT?": "ASC",
        ":NUMERIC:NORMAL:NUMBER?": None if items is None else str(len(items)),
        **{f":NUMERIC:NORMAL:ITEM{n}?": item for n, item in enumerate(items or (), 1)},
    }
    kinds = ("TCPIP INSTR", "TCPIP SOCKET", "USB INSTR", "GPIB INSTR", "ASRL INSTR")
    lines = ['spec: "1.1"', "devices:", "  wt:", "    eom:"]
    lines += [f'      {kind}: {{q: "\\n", r: "\\n"}}' for kind in kinds]
    lines += ["    error: ERROR", "    dialogues:"]
    lines += [f'      - {{q: "{q}", r: "{r}"}}' for q, r in answers.items() if r is not None]
    lines += ["resources:", *(f"  {resource}: {{device: wt}}" for resource in resources)]
    file = folder / "meter.yaml"
    file.write_text("\n".join(lines) + "\n")
    return f"{file}@sim"
