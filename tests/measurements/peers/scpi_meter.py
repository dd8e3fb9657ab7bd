"""Power meters that speak SCPI as a Yokogawa WT does: on a TCP socket, and by pyvisa-sim."""

import contextlib
import re
import socketserver
import struct
from collections import deque

from peers.loopback import LOCAL, LoopbackPeer

IDENTITY = "YOKOGAWA,WT310E,C2RD01234V,F1.04"
ITEMS = ("U,1", "I,1", "P,1")
VALUES = ":NUMERIC:NORMAL:VALUE?"
ITEM = re.compile(r":NUMERIC:NORMAL:ITEM(\d+)\?")
NO_DATA, OVERRANGE = 9.91e37, 9.9e37


class ScpiMeter(LoopbackPeer):
    """A meter on a socket of this machine; a context manager that stops it.

    Function P says ``watts``, a text as it stands, and ``others`` what they say, or 1; ``items``
    has functions and elements in the order of the values. With ``headers`` answers to settings
    repeat their header, as after ``:COMMUNICATE:HEADER ON``; with ``binary`` values come as a
    block of floats, as after ``:NUMERIC:FORMAT FLOAT``.

    It has a list of the lines that it was ``asked`` and the number of ``connections``. The next
    queries end the connection instead (``drops``), or get the answers of ``next_said`` as they
    stand; one of ``deaf`` gets none.
    """

    def __init__(self, watts=298.77, **known):
        self.watts, self.identity, self.items, self.rate = watts, IDENTITY, ITEMS, "500.0E-03"
        self.others, self.integrating, self.headers, self.binary = {}, "STAR", False, False
        assert vars(self).keys() >= known.keys()
        vars(self).update(known)
        self.asked, self.connections, self.drops = [], 0, 0
        self.next_said, self.deaf = deque(), set()
        self.serve(_Server(self))
        # VISA name of the meter.
        self.resource = f"TCPIP0::{LOCAL}::{self.server.server_address[1]}::SOCKET"

    def answer(self, line):
        """Answer a line; None where a meter stays silent."""
        if line in self.deaf:
            return None
        if self.next_said:
            return self.next_said.popleft()
        figures = [self._figure(item) for item in self.items]
        if line == VALUES and self.binary:
            block = struct.pack(f">{len(figures)}f", *figures)
            return b"#4%04d%b\n" % (len(block), block)
        said = self._said(line, figures)
        return None if said is None else said.encode() + b"\n"

    def _said(self, line, figures):
        settings = {
            ":NUMERIC:FORMAT?": "FLO" if self.binary else "ASC",
            ":NUMERIC:NORMAL:NUMBER?": str(len(self.items)),
            ":RATE?": self.rate,
            ":INTEGRATE:STATE?": self.integrating,
        }
        if line == "*IDN?":
            return self.identity
        if line == VALUES:
            return ",".join(said if isinstance(said, str) else f"{said:.4E}" for said in figures)
        if match := ITEM.fullmatch(line):
            settings[line] = self.items[int(match[1]) - 1]
        if line not in settings:
            return None
        return f"{line[:-1]} {settings[line]}" if self.headers else settings[line]

    def _figure(self, item):
        function = item.partition(",")[0].upper()
        return self.watts if function == "P" else self.others.get(function, 1.0)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    block_on_close = True

    def __init__(self, meter):
        self.meter, self.open = meter, set()
        super().__init__((LOCAL, 0), _Handler)


class _Handler(socketserver.StreamRequestHandler):
    def handle(self):
        meter = self.server.meter
        meter.connections += 1
        self.server.open.add(self.connection)
        # Whoever hangs up in the middle is no fault of the meter.
        with contextlib.suppress(OSError):
            for line in self.rfile:
                meter.asked.append(line.decode("ascii", "replace").strip())
                if meter.drops:
                    meter.drops -= 1
                    break
                self.wfile.write(meter.answer(meter.asked[-1]) or b"")
        self.server.open.discard(self.connection)


def write_sim(folder, resources, **dialogue):
    """Write a pyvisa-sim file of one meter; returns its name as a back-end of PyVISA.

    ``dialogue`` replaces answers: ``values``, ``rate``, ``items``; None takes one out, so that the
    meter answers "ERROR".
    """
    said = {"values": "230.12E+00,1.3021E+00,298.77E+00", "rate": "500.0E-03", "items": ITEMS}
    said |= dialogue
    items = said["items"]
    answers = {
        "*IDN?": IDENTITY,
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
