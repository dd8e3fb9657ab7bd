"""A BMC that speaks IPMI: OpenIPMI's ipmi_sim, with DCMI by a module of our own.

Its watts are those of a file, so that a test, a thread or the measured program itself sets them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from measurements.power.protocol import Login

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LOCAL = "127.0.0.1"
START_S = 20.0
PASSWORD = "correct-horse-9!"
# Get Channel Authentication Capabilities, outside of a session.
HELLO = bytes.fromhex("0600ff07 0000000000 00000000 09 2018c881 00388e04b5")
MODULE = Path(__file__).with_name("ipmi_dcmi.c")
NAMES = ("current", "minimum", "maximum", "average")


class Sensor(NamedTuple):
    """A power sensor, whose byte times ``step`` are watts."""

    name: str
    number: int = 1
    entity: int = 10
    step: int = 2
    base_unit: int = 6
    owner: int = 0x20


class IpmiBmc:
    """A BMC on a free UDP port of the loopback, whose faults can be set.

    Parameters
    ----------
    folder : Path
        Scratch, of this BMC alone.
    watts : float
        To begin with; see `set_watts`.
    dcmi : bool
        Whether it knows DCMI's power reading.
    sensors : sequence of Sensor
        In its repository, all with the watts of the whole host.
    user, password, privilege : str
        Of the one login it knows; the privilege is "user", "operator" or "admin".
    """

    def __init__(
        self,
        folder: Path,
        *,
        watts: float = 100.0,
        dcmi: bool = True,
        sensors: Sequence[Sensor] = (),
        user: str = "ppw",
        password: str = PASSWORD,
        privilege: str = "admin",
    ) -> None:
        self.folder = folder
        self.host, self.port = LOCAL, free_port()
        self.login = Login(user, password)
        self._sensors, self._starts = sensors, 0
        self._process: subprocess.Popen[bytes] | None = None
        # What DCMI answers: a program that is measured may write it too.
        self.figures = folder / "figures"
        self._values = {"period_ms": 1000.0, "stamp": -1.0, "state": 0x40}
        self._counts = folder / "counts"
        self.set_watts(watts)
        for sensor in sensors:
            self.set_present(sensor)
        (folder / "bmc.emu").write_text(self._emulation())
        (folder / "lan.conf").write_text(self._configuration(privilege, dcmi=dcmi))
        if dcmi:
            library = ("-shared", "-fPIC", "-o", str(folder / "dcmi.so"))
            subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", *library, MODULE], check=True)

    @property
    def where(self) -> str:
        """Address as it stands behind ``ipmi@``."""
        return f"{self.host}:{self.port}"

    def set_watts(self, watts: float) -> None:
        """Draw so many watts: by DCMI at once, by the sensors within 0.1 s."""
        self.set(**dict.fromkeys(NAMES, watts))
        self.set_count(round(watts))

    def set(self, **values: float) -> None:
        """Set what DCMI answers (see ``ipmi_dcmi.c``), and leave the sensors alone."""
        self._values.update(values)
        replace(self.figures, "".join(f"{k} {v}\n" for k, v in self._values.items()))

    def set_count(self, watts: int) -> None:
        """Set what the sensors show (W), and leave DCMI alone."""
        replace(self._counts, f"{watts}\n")

    def set_present(self, sensor: Sensor, *, present: bool = True) -> None:
        """Plug in or out what a sensor measures."""
        replace(self.folder / f"present-{sensor.number}", f"{int(present)}\n")

    def start(self) -> Self:
        """Start it, with no memory of an earlier run, and wait until it answers."""
        self._starts += 1
        state = self.folder / f"state-{self._starts}"
        state.mkdir()
        with (self.folder / "ipmi_sim.log").open("ab") as log:
            self._process = subprocess.Popen(
                # -n: without it the end of input stops it.
                ["ipmi_sim", "-n", "-c", "lan.conf", "-f", "bmc.emu", "-s", state],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError((self.folder / "ipmi_sim.log").read_text(errors="replace"))
        return self

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Cut its power for a moment: it forgets all sessions."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Let it stop answering, with its port open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on, and answer what came meanwhile."""
        self._signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
            asker.settimeout(0.1)
            asker.connect((self.host, self.port))
            try:
                asker.send(HELLO)
                return bool(asker.recv(1024))
            except OSError:
                time.sleep(0.02)
                return False

    def _configuration(self, privilege: str, *, dcmi: bool) -> str:
        module = f'loadlib "{self.folder}/dcmi.so" "{self.figures}"' if dcmi else ""
        ways = "none md2 md5 straight"
        return f"""
name "peer"
{module}
startlan 1
  addr {self.host} {self.port}
  priv_limit admin
  allowed_auths_callback {ways}
  allowed_auths_user {ways}
  allowed_auths_operator {ways}
  allowed_auths_admin {ways}
  guid a123456789abcdefa123456789abcdef
endlan
user 1 true "" "" user 10 {ways}
user 2 true "{self.login.user}" "{self.login.password}" {privilege} 10 {ways}
"""

    def _emulation(self) -> str:
        lines = [
            "mc_setbmc 0x20",
            "mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x001291 0x0f02",
            "sel_enable 0x20 1000 0x0a",
        ]
        for record, sensor in enumerate(self._sensors, 1):
            lines += self._sensor(record, sensor)
        return "\n".join([*lines, "mc_enable 0x20", ""])

    def _sensor(self, record: int, sensor: Sensor) -> list[str]:
        presence = sensor.number + 0x80
        off = " ".join(["0" * 15] * 4)
        data = " ".join(f"0x{byte:02x}" for byte in sensor_record(record, sensor))
        return [
            f"sensor_add 0x20 0 {presence} 0x25 0x6f poll 50 file "
            f'"{self.folder}/present-{sensor.number}"',
            f"sensor_set_event_support 0x20 0 {presence} disable scanning none {off}",
            f"sensor_add 0x20 0 {sensor.number} 0x0b 0x01 poll 50 file "
            f'"{self._counts}" div={sensor.step} depends=0x20,0,{presence},0',
            f"sensor_set_event_support 0x20 0 {sensor.number} disable scanning none {off}",
            f"main_sdr_add 0x20 {data}",
        ]


def sensor_record(record: int, sensor: Sensor) -> bytes:
    """Full sensor record (IPMI 2.0, table 43-1) of an analog, unsigned, linear sensor."""
    name = sensor.name.encode("latin-1")
    body = bytearray(43)
    body[0], body[2], body[3], body[4] = sensor.owner, sensor.number, sensor.entity, 1
    body[5:9] = 0x7F, 0x68, 0x0B, 0x01
    body[16], body[19], body[42] = sensor.base_unit, sensor.step, 0xC0 | len(name)
    body += name
    return record.to_bytes(2, "little") + bytes([0x51, 0x01, len(body)]) + bytes(body)


def replace(file: Path, text: str) -> None:
    """Write a file in one step: it is never read half."""
    part = file.with_name(f"{file.name}.part")
    part.write_text(text)
    part.replace(file)


def free_port() -> int:
    """UDP port on which nobody listens."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((LOCAL, 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """UDP port that takes packets and never answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind((LOCAL, 0))
        yield sink.getsockname()[1]
