"""BMCs that speak IPMI: OpenIPMI's ipmi_sim with DCMI by a module of our own, and one in memory.

The watts of the first are those of a file, so that a test, a thread or the measured program itself
sets them.
"""

import atexit
import functools
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from measurements.power.ipmi_protocol import IpmiAnswer, SensorRecords
from measurements.power.source import Login

LOCAL = "127.0.0.1"
START_S = 60.0
PASSWORD = "correct-horse-9!"
# Get Channel Authentication Capabilities, outside of a session.
HELLO = bytes.fromhex("0600ff07 0000000000 00000000 09 2018c881 00388e04b5")
NAMES = ("current", "minimum", "maximum", "average")


class Sensor(NamedTuple):
    """A power sensor, whose byte times ``step`` are watts."""

    name: str
    number: int = 1
    entity: int = 10
    step: int = 2
    base_unit: int = 6
    owner: int = 0x20


class Bmc:
    def set_watts(self, watts):
        """Draw so many watts: by DCMI at once, by the sensors of ipmi_sim within 0.1 s."""
        self.set(**dict.fromkeys(NAMES, watts))
        self.set_count(watts)

    def restart(self):
        """Cut its power for a moment: it forgets all sessions."""
        self.kill()
        self.start()


class PlayedBmc(Bmc):
    """A BMC in memory, with the limits that BMCs have.

    Its repository of `Sensor` (or, of its own, ``records``) gives ``most`` bytes at a time, loses
    its reservation at every request of so many, and names as its last record's successor ``ends``.
    """

    where = "played"

    def __init__(self, *, watts=100.0, dcmi=True, sensors=(), records=(), privilege="admin"):
        self.login, self.privilege = Login("ppw", PASSWORD), privilege
        self.values = {"period_ms": 1000, "stamp": -1, "state": 0x40, "code": 0, "short": 0}
        self.values["code"] = 0 if dcmi else 0xC1
        self.records_held = [*records, *(sensor_record(n, s) for n, s in enumerate(sensors))]
        self.steps, self.absent = {sensor.number: sensor.step for sensor in sensors}, set()
        self.most, self.loses_every, self.ends, self.keeps_repository = 255, 0, 0xFFFF, True
        self.asked, self.busy, self.sessions, self._reserved = 0, 0, 0, 0
        self.is_silent, self.says, self.waits, self.logouts = False, "", [], 0
        self.set_watts(watts)

    def set(self, **values):
        self.values.update(values)

    def set_count(self, watts):
        self.count = watts

    def set_present(self, sensor, *, present=True):
        (self.absent.discard if present else self.absent.add)(sensor.number)

    def kill(self):
        self.is_silent, self.sessions = True, self.sessions + 1

    def start(self):
        self.is_silent = False

    def raw(self, netfn, command, data, until_s, *, lun=0):
        assert until_s <= time.monotonic() + 60.0
        return IpmiAnswer(*self.answer(netfn, command, data), time.monotonic())

    def records(self, until_s):
        return list(SensorRecords(self, until_s))

    def answer(self, netfn, command, data, level="administrator"):
        """Completion code and data of an answer to one of such a privilege."""
        self.asked += 1
        storage = (0x0A, 0x23) if self.keeps_repository else (0x04, 0x21)
        match netfn, command:
            case 0x2C, 0x02:
                return self._power(level)
            case 0x04, 0x2D:
                raw = round(self.count) // self.steps[data[0]]
                return 0, bytes([raw, 0x60 if data[0] in self.absent else 0x40, 0])
            case 0x06, 0x01:
                return 0, bytes([0x23, 9, 8, 0x9F, 2, 0x9F if self.keeps_repository else 0x9D])
            case netfn, 0x22 if netfn == storage[0]:
                self._reserved += 1
                return 0, struct.pack("<H", self._reserved)
            case got if got == storage:
                return self._record(*struct.unpack("<HHBB", data))
        return 0xC1, b""

    def _power(self, level):
        values = self.values
        if self.busy or values["code"]:
            self.busy = max(self.busy - 1, 0)
            return values["code"] or 0xC0, b""
        if level == "user":
            return 0xD4, b""
        stamp = int(time.time() if values["stamp"] < 0 else values["stamp"])
        figures = (int(values[name]) for name in NAMES)
        rest = (stamp, values["period_ms"], values["state"])
        said = struct.pack("<BHHHHIIB", 0xDC, *figures, *rest)
        return 0, said[:-1] if values["short"] else said

    def _record(self, reserved, number, start, count):
        if self.loses_every and self.asked % self.loses_every == 0:
            self._reserved += 1
        if reserved != self._reserved:
            return 0xC5, b""
        if count > self.most:
            return 0xCA, b""
        if number >= len(self.records_held):
            return 0xCB, b""
        following = number + 1 if number + 1 < len(self.records_held) else self.ends
        held = self.records_held[number][start : start + count]
        return 0, struct.pack("<H", following) + held


class IpmiBmc(Bmc):
    """A BMC on a free UDP port of the loopback, whose faults can be set.

    In a ``folder`` of its own; whether it knows DCMI's power reading, which ``sensors`` are in its
    repository, all with the watts of the whole host, and the one login that it knows, whose
    ``privilege`` is "user", "operator" or "admin".
    """

    def __init__(
        self, folder, *, watts=100.0, dcmi=True, sensors=(), password=PASSWORD, privilege="admin"
    ):
        self.folder = folder
        self.host, self.port = LOCAL, free_port()
        # Address as it stands behind ``ipmi@``.
        self.where = f"{self.host}:{self.port}"
        self.login = Login("ppw", password)
        self._sensors, self._process = sensors, None
        # What DCMI answers: a program that is measured may write it too.
        self.figures = folder / "figures"
        self._values = {"period_ms": 1000.0, "stamp": -1.0, "state": 0x40}
        self._counts = folder / "counts"
        self.set_watts(watts)
        for sensor in sensors:
            self.set_present(sensor)
        (folder / "bmc.emu").write_text(self._emulation())
        (folder / "lan.conf").write_text(self._configuration(privilege, dcmi=dcmi))

    def set(self, **values):
        """Set what DCMI answers (see ``ipmi_dcmi.c``), and leave the sensors alone."""
        self._values.update(values)
        replace(self.figures, "".join(f"{k} {v}\n" for k, v in self._values.items()))

    def set_count(self, watts):
        """Set what the sensors show (W), and leave DCMI alone."""
        replace(self._counts, f"{round(watts)}\n")

    def set_present(self, sensor, *, present=True):
        """Plug in or out what a sensor measures."""
        replace(self.folder / f"present-{sensor.number}", f"{int(present)}\n")

    def start(self):
        """Start it, with no memory of an earlier run, and wait until it answers."""
        state = tempfile.mkdtemp(dir=self.folder)
        with (self.folder / "ipmi_sim.log").open("ab") as log:
            # -n: without it the end of input stops it.
            command = ["ipmi_sim", "-n", "-c", "lan.conf", "-f", "bmc.emu", "-s", state]
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            streams |= {"cwd": self.folder, "start_new_session": True}
            self._process = subprocess.Popen(command, **streams)
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError((self.folder / "ipmi_sim.log").read_text(errors="replace"))
        return self

    def kill(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self):
        """Let it stop answering, with its port open."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self):
        """Let it go on, and answer what came meanwhile."""
        os.kill(self._process.pid, signal.SIGCONT)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.kill()

    def _answers(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
            asker.settimeout(0.1)
            asker.connect((self.host, self.port))
            try:
                asker.send(HELLO)
                return bool(asker.recv(1024))
            except OSError:
                time.sleep(0.02)
                return False

    def _configuration(self, privilege, *, dcmi):
        module = f'loadlib "{compiled("ipmi_dcmi.c")}" "{self.figures}"' if dcmi else ""
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

    def _emulation(self):
        lines = [
            "mc_setbmc 0x20",
            "mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x001291 0x0f02",
            "sel_enable 0x20 1000 0x0a",
        ]
        off = "disable scanning none " + " ".join(["0" * 15] * 4)
        for record, sensor in enumerate(self._sensors, 1):
            number, presence = f"0x20 0 {sensor.number}", f"0x20 0 {sensor.number + 0x80}"
            file = f'poll 50 file "{self.folder}/present-{sensor.number}"'
            depends = f"div={sensor.step} depends={presence.replace(' ', ',')},0"
            data = " ".join(f"0x{byte:02x}" for byte in sensor_record(record, sensor))
            lines += [
                f"sensor_add {presence} 0x25 0x6f {file}",
                f"sensor_set_event_support {presence} {off}",
                f'sensor_add {number} 0x0b 0x01 poll 50 file "{self._counts}" {depends}',
                f"sensor_set_event_support {number} {off}",
                f"main_sdr_add 0x20 {data}",
            ]
        return "\n".join([*lines, "mc_enable 0x20", ""])


@functools.cache
def compiled(name, *libraries):
    """Compile a C file of this folder to a library, once a process."""
    folder = tempfile.mkdtemp(prefix="ppw-peer-")
    atexit.register(shutil.rmtree, folder)
    library = Path(folder, name).with_suffix(".so")
    words = ["gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library]
    subprocess.run([*words, Path(__file__).with_name(name), *libraries], check=True)
    return library


def sensor_record(record, sensor):
    """Full sensor record (IPMI 2.0, table 43-1) of an analog, unsigned, linear sensor."""
    name = sensor.name.encode("latin-1")
    body = bytearray(43)
    body[0], body[2], body[3], body[4] = sensor.owner, sensor.number, sensor.entity, 1
    body[5:9] = 0x7F, 0x68, 0x0B, 0x01
    body[16], body[19], body[42] = sensor.base_unit, sensor.step, 0xC0 | len(name)
    body += name
    return record.to_bytes(2, "little") + bytes([0x51, 0x01, len(body)]) + bytes(body)


def replace(file, text):
    """Write a file in one step: it is never read half."""
    part = file.with_name(f"{file.name}.part")
    part.write_text(text)
    part.replace(file)


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((LOCAL, 0))
        return probe.getsockname()[1]
