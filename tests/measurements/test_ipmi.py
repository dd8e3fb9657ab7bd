"""IPMI: a BMC in memory behind played tools, ipmi_sim behind real ones; records as by pyghmi."""

import contextlib
import functools
import gc
import json
import logging
import math
import os
import queue
import re
import socket
import socketserver
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from itertools import product
from pathlib import Path
from unittest import mock

import psutil
import pytest
from hypothesis import given, strategies as st
from peers.ipmi_bmc import IpmiBmc, PlayedBmc, Sensor, compiled, free_port, sensor_record
from peers.waiting import is_running, processes, wait_for
from refusals import refusal

from measurements.power import ipmi, ipmi_protocol, ipmi_session
from measurements.power.ipmi import BmcClock, PowerReading, sensor_channels
from measurements.power.ipmi_protocol import (
    PowerSensor,
    parse_address,
    power_sensors,
    split_records,
)
from measurements.power.source import Login, SensorError, SourceSettings, open_source, parse_spec

# Time that a request may take where something else than time is tested.
AMPLE_S = 60.0
PSU, CPU = Sensor("PSU1 Pwr In"), Sensor("CPU Power", number=2, entity=3, step=1)
ROOT = Path(__file__).parents[2]
READABLE = 0x40
IpmiException = type("IpmiException", (Exception,), {})

both_tools = pytest.mark.parametrize("tool", ["ipmi", "ipmi:ipmitool"])
simulated = pytest.mark.peer("ipmi")


class PlayedCommand:
    """What pyghmi offers of a session."""

    def __init__(self, bmc, userid=None, password=None, privlevel=4, **_):
        self.bmc, self.level = bmc, ("user", "operator", "administrator")[privlevel - 2]
        if bmc.is_silent:
            raise IpmiException("timeout")
        if userid and (said := bmc.says or _complaint(bmc, userid, password, self.level)):
            raise IpmiException(said)
        self.opened, self.broken = bmc.sessions, False
        self.incommand, self.ipmi_session = True, self

    def raw_command(self, netfn, command, data, rslun, callback=None):
        self.broken = self.opened != self.bmc.sessions
        code, data = self.bmc.answer(netfn, command, data, self.level)
        said = {"code": code, "data": data}
        self.late = lambda: callback(said)
        return said

    def wait_for_rsp(self, timeout):
        self.late()

    def logout(self):
        self.bmc.logouts += 1


def _complaint(bmc, user, password, level):
    if user != bmc.login.user:
        return "Unauthorized name"
    if password != bmc.login.password:
        return "Incorrect password provided"
    if bmc.privilege == "user" and level != "user":
        return "Requested privilege level exceeds limit"
    return ""


class SessionThread(threading.Thread):
    """pyghmi's process as a thread; what is killed hears nothing more."""

    def __init__(self, theirs):
        super().__init__(daemon=True, target=ipmi_session.main)
        self.asker = theirs.dup()
        self.start()

    def kill(self):
        with contextlib.suppress(OSError):
            self.asker.shutdown(socket.SHUT_RDWR)

    def wait(self, timeout=AMPLE_S):
        self.join(timeout)
        self.asker.close()


def played_ipmitool(bmc, words, env, timeout, **_):
    words = list(words)
    assert "IPMITOOL_PASSWORD" not in env
    said = {name: words[words.index(name) + 1] for name in ("-U", "-L", "-C") if name in words}
    error, text, level = bmc.says, "", said.get("-L", "ADMINISTRATOR").lower()
    if bmc.is_silent == "hangs":
        raise subprocess.TimeoutExpired(words, timeout)
    if bmc.is_silent:
        error = "Error: Unable to establish IPMI v2 / RMCP+ session"
    elif "-U" in said and not error:
        error = _complaint(bmc, said["-U"], env["IPMI_PASSWORD"], level)
        if error == "Incorrect password provided":
            error = "> RAKP 2 HMAC is invalid"
        if said.get("-C", "3") == "17":
            error = "RAKP 1 message indicates an error : invalid cipher suite"
    if not error and "dump" in words:
        Path(words[-1]).write_bytes(b"".join(bmc.records_held))
    elif not error:
        netfn, command, *data = (int(word, 16) for word in words[words.index("raw") + 1 :])
        code, data = bmc.answer(netfn, command, bytes(data), level)
        text = re.sub("((?: ..){16})", r"\1\n", "".join(f" {byte:02x}" for byte in data)) + "\n"
        error = f"Unable to send RAW command (rsp=0x{code:02x}): Invalid" if code else ""
    return subprocess.CompletedProcess(words, bool(error), text, error)


@pytest.fixture
def play(monkeypatch):
    """Start a BMC in memory, which both tools then talk to."""
    made = types.SimpleNamespace

    def start(**known):
        played = PlayedBmc(**known)
        command = made(Command=lambda bmc=None, **who: PlayedCommand(played, **who))
        monkeypatch.setitem(sys.modules, "pyghmi.ipmi.command", command)
        program = {**vars(subprocess), "run": functools.partial(played_ipmitool, played)}
        for module, name, stand_in in (
            (ipmi, "_start_session", SessionThread),
            (ipmi_session, "socket", made(socket=lambda **_: threading.current_thread().asker)),
            (ipmi_session, "os", made(_exit=lambda _: None)),
            (ipmi, "time", made(monotonic=time.monotonic, sleep=played.waits.append)),
            (ipmi, "subprocess", made(**program)),
        ):
            monkeypatch.setattr(module, name, stand_in)
        return played

    return start


@pytest.fixture(params=["played", pytest.param("simulated", marks=simulated)])
def start(request, tmp_path, play, monkeypatch):
    """Start a BMC: in memory, or ipmi_sim."""
    if request.param == "played":
        yield play
        return
    # It tells its watts to administrators alone; to try the others first takes three times as long.
    monkeypatch.setattr(ipmi, "PRIVILEGES", ("administrator",))
    with contextlib.ExitStack() as stack:
        yield lambda **known: stack.enter_context(IpmiBmc(tmp_path, **known))


@pytest.fixture
def bmc(start):
    return start()


@contextlib.contextmanager
def opened(tool, bmc, *, then_s=AMPLE_S, options=""):
    """Open a BMC with ample time, and then give its readings another limit."""
    settings = SourceSettings(login=lambda *_: bmc.login, timeout_s=AMPLE_S)
    source = open_source(parse_spec(f"{tool}@{bmc.where}{options}"), settings)
    source._timeout_s = then_s
    with contextlib.closing(source):
        yield source


def refused(tool, where=None, login=None, timeout_s=AMPLE_S):
    login = login or Login("ppw", "some-password")
    spec = parse_spec(tool if where is None else f"{tool}@{where}")
    settings = SourceSettings(login=lambda *_: login, timeout_s=timeout_s)
    return refusal(lambda: open_source(spec, settings), tool, SensorError)


def watts(source):
    return [reading.value for reading in source.read()]


def eventually(source, wanted):
    """Read until the figures are as wanted: ipmi_sim polls its files, and takes time to start."""

    def is_wanted():
        with contextlib.suppress(SensorError):
            return wanted(watts(source))

    wait_for(is_wanted)


def ipmitool(bmc, *words):
    to = ("-I", "lanplus", "-C", "3", "-H", bmc.host, "-p", str(bmc.port), "-U", bmc.login.user)
    return subprocess.run(
        ["ipmitool", *to, "-E", *words],
        env={**os.environ, "IPMI_PASSWORD": bmc.login.password},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def freeipmi(program, bmc, *words):
    to = ("-D", "LAN_2_0", "-W", "opensesspriv", "-h", bmc.where, "-u", bmc.login.user)
    command = [program, *to, "-p", bmc.login.password, "-l", "ADMIN", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def numbers(text):
    """Watts of a text, in its order."""
    return [int(found) for found in re.findall(r":\s+(\d+) [Ww]atts", text)]


@both_tools
def test_the_whole_reply_is_that_of_independent_clients_and_follows_the_watts(bmc, tool):
    bmc.set(current=137, minimum=91, maximum=305, average=142, period_ms=5000, stamp=1.7e9)
    with opened(tool, bmc) as source:
        (channel,) = source.channels
        start_s = time.monotonic()
        (reading,) = source.read()
        assert start_s < reading.at_s < time.monotonic()
        reply = source.figures.last._asdict()
        assert (channel.label, channel.quantity, channel.domain) == ("ipmi:dcmi", "power", "host")
        assert (channel.resolution, channel.window_s, source.period_s) == (1.0, 5.0, 5.0)
        assert reading == ("ipmi:dcmi", reading.at_s, 137.0, 1.7e9)
        figures = {"current_w": 137, "minimum_w": 91, "maximum_w": 305, "average_w": 142}
        assert reply == figures | {"stamp_s": 1_700_000_000, "period_s": 5.0, "active": True}
        if isinstance(bmc, IpmiBmc):
            assert numbers(ipmitool(bmc, "dcmi", "power", "reading")) == [137, 91, 305, 142]
            free = freeipmi("ipmi-dcmi", bmc, "--get-system-power-statistics")
            assert numbers(free) == [137, 91, 305, 142]
            assert "11/14/2023 - 22:13:20" in free
            assert re.search(r"time period\s+: 5000 milliseconds", free)
        # A stamp that stands still for long is not believed.
        for moved, expected in enumerate((80.0, 250.0, 65534.0, 1.0)):
            bmc.set(stamp=1.7e9 + moved)
            bmc.set_watts(expected)
            assert watts(source) == [expected]
            if isinstance(bmc, IpmiBmc):
                assert numbers(ipmitool(bmc, "dcmi", "power", "reading"))[0] == expected
        # A frozen BMC repeats its reading; one without a clock has no stamp.
        for stamp, own in ((5000, 5000.0), (5000, 5000.0), (5001, 5001.0)):
            bmc.set(stamp=stamp)
            assert source.read()[0].source_at_s == own
        for stamp in (0, 0xFFFFFFFF):
            bmc.set(stamp=stamp)
            assert source.read()[0].source_at_s is None


@both_tools
def test_what_is_no_figure_is_nan_and_says_why(bmc, tool):
    with opened(tool, bmc) as source:
        for figures, problem in (
            ({"current": 0}, "it answers 0 W"),
            ({"current": 0xFFFF}, "it answers 0xFFFF W"),
            ({"state": 0}, "its power measurement is not activated"),
            ({"code": 0xC1}, "it does not know the command"),
            ({"code": 0xC0}, "it is busy"),
            ({"code": 0x9B}, "it answers completion code 0x9b"),
            ({"short": 1}, "it gives no power reading"),
        ):
            bmc.set(**figures)
            (reading,) = source.read()
            assert math.isnan(reading.value)
            assert reading.source_at_s is None
            assert source.figures.problem == problem
            bmc.set(state=0x40, code=0, short=0)
            bmc.set_watts(88)
            assert watts(source) == [88.0]
            assert source.figures.problem == ""


@both_tools
def test_only_a_short_period_is_a_window(play, tool):
    bmc = play()
    seconds = {1000: (1.0, 1.0), 60_000: (60.0, 60.0), 250: (0.25, 1.0), 0: (0.0, 1.0)}
    # Counted since the BMC's start, as many do.
    for period_ms, expected in {**seconds, 1_131_466_000: (0.0, 1.0)}.items():
        bmc.set(period_ms=period_ms)
        with opened(tool, bmc) as source:
            (channel,) = source.channels
            assert (channel.window_s, source.period_s) == expected
            assert ("period of 1131466 s" in channel.note) == (period_ms > 60_000)


@both_tools
def test_a_bmc_that_is_busy_for_a_moment_is_asked_again(play, tool):
    bmc = play()
    with opened(tool, bmc) as source:
        for busy, found in ((2, [100.0]), (3, [math.nan])):
            bmc.busy = busy
            assert watts(source) == pytest.approx(found, nan_ok=True)
        assert bmc.waits == [0.2] * 5
        bmc.busy, source._timeout_s = 1, 0.3
        assert math.isnan(watts(source)[0])


def test_a_stamp_that_stands_still_while_watts_change_is_left_out():
    def stamp(current_w, stamp_s, at_s):
        return clock.stamp(PowerReading(current_w, 1, 500, 100, stamp_s, 1.0, active=True), at_s)

    clock = BmcClock()
    # Several changes within a second of the stamp are what a working clock shows.
    assert [stamp(100 + i, 7, 0.5 * i) for i in range(4)] == [7.0] * 4
    assert [stamp(103, 7, 60.0), stamp(104, 7, 61.0), stamp(104, 8, 62.0)] == [7.0, None, None]
    clock = BmcClock()
    # One that jumps back is another reading.
    assert [stamp(100, s, i) for i, s in enumerate((9, 10, 3))] == [9.0, 10.0, 3.0]


@both_tools
def test_power_sensors_stand_in(start, tmp_path, tool):
    # A temperature, and a sensor of another controller, which the BMC does not answer for.
    others = (Sensor("Temp", number=3, base_unit=1), Sensor("Node Power", number=4, owner=0x2C))
    bmc = start(dcmi=False, sensors=(PSU, CPU, *others), watts=96)
    with opened(tool, bmc) as source:
        assert [(c.label, c.domain, c.resolution, c.window_s) for c in source.channels] == [
            ("ipmi:PSU1 Pwr In", "wall", 2.0, 0.0),
            ("ipmi:CPU Power", "package", 1.0, 0.0),
        ]
        eventually(source, lambda found: found == [96.0, 96.0])
        assert {r.source_at_s for r in source.read()} == {None}
        if isinstance(bmc, IpmiBmc):
            said = ipmitool(bmc, "-c", "sensor", "reading", PSU.name, CPU.name)
            assert said.splitlines() == ["PSU1 Pwr In,96", "CPU Power,96"]
            free = freeipmi("ipmi-sensors", bmc, "--sdr-cache-directory", str(tmp_path))
            assert len(re.findall(r"\| 96\.00 +\| W ", free)) == 2
        bmc.set_present(PSU, present=False)
        eventually(source, lambda found: math.isnan(found[0]) and found[1] == 96.0)
        bmc.set_present(PSU)
        eventually(source, lambda found: found == [96.0, 96.0])
        bmc.set_count(0)
        eventually(source, lambda found: all(math.isnan(w) for w in found))


@both_tools
def test_without_watts_its_sensors_are_read_or_it_is_refused_but_where_they_may_come(play, tool):
    for fault in ({"current": 0}, {"state": 0}, {"code": 0xC1}):
        bmc = play(sensors=(PSU,), watts=96)
        bmc.set(**fault)
        with opened(tool, bmc) as source:
            assert watts(source) == [96.0]
            assert source.channels[0].label == "ipmi:PSU1 Pwr In"
    bmc = play(sensors=(Sensor("CPU Temp", base_unit=1),), watts=0)
    with opened(tool, bmc) as source:
        assert math.isnan(watts(source)[0])
        bmc.set_watts(77)
        assert watts(source) == [77.0]
    reasons = ("state", 0, "its power measurement is not activated"), ("code", 0xC1, "it does not")
    for name, value, reason in reasons:
        bmc.set(**{name: value})
        said = refused(tool, bmc.where, bmc.login)
        assert f"over DCMI, {reason}" in said
        assert "and it has no power sensor: measure with redfish@HOST" in said


@both_tools
def test_a_login_that_is_wrong_is_named(bmc, tool):
    for user, password, reason in (
        ("ppw", "wrong", "rejects the password of user 'ppw': correct PPW_IPMI_PASSWORD"),
        ("nobody", "wrong", "does not let user 'nobody' in: correct PPW_IPMI_USER"),
        ("ppw", "x" * 21, "the password has 21 bytes and IPMI takes 1 to 20"),
        ("u" * 17, "x", "the user has 17 bytes and IPMI takes 1 to 16"),
        ("ppw", "", "the password has 0 bytes and IPMI takes 1 to 20"),
    ):
        assert reason in refused(tool, bmc.where, Login(user, password))


@both_tools
def test_a_password_that_is_changed_meanwhile_is_tried_once(play, tool):
    bmc = play()
    with opened(tool, bmc) as source:
        login, bmc.login = bmc.login, Login("ppw", "another-one")
        bmc.restart()
        with pytest.raises(SensorError, match="rejects the password"):
            source.read()
        bmc.login = login
        bmc.restart()
        assert watts(source) == [100.0]


@both_tools
def test_what_a_tool_complains_of_is_explained(play, tool):
    bmc = play()
    for bmc.says, reason in (
        ("Invalid role", "gives user 'ppw' too little privilege: let it have USER for IPMI over L"),
        ("Activate Session command failed", "does not open a session for user 'ppw': correct PPW"),
        ("no matching cipher suite", "refuses cipher suite"),
        ("Insufficient resources for session", "the BMC has no free session: close others or wait"),
        ("Address lookup for bmc failed", "this host name has no address: correct it, or give"),
    ):
        assert reason in refused(tool, bmc.where, bmc.login)
    if tool == "ipmi":
        # What nobody knows is repeated without the password.
        bmc.says = f"not with {bmc.login.password}"
        said = "pyghmi cannot log in (IpmiException: not with …): try ipmi:ipmitool@HOST, and"
        assert said in refused(tool, bmc.where, bmc.login)


@both_tools
@pytest.mark.parametrize("sensors", [(PSU,), ()])
def test_a_user_with_too_little_privilege_gets_what_there_is(start, monkeypatch, tool, sensors):
    bmc = start(privilege="user", sensors=sensors)
    monkeypatch.setattr(ipmi, "PRIVILEGES", ipmi_protocol.PRIVILEGES)
    # Of both versions ipmi_sim enforces a user's privilege only in IPMI 1.5.
    if isinstance(bmc, IpmiBmc):
        tool = "ipmi:ipmitool"
    options = ",interface=lan" if tool == "ipmi:ipmitool" else ""
    if sensors:
        with opened(tool, bmc, options=options) as source:
            assert [c.label for c in source.channels] == ["ipmi:PSU1 Pwr In"]
            eventually(source, lambda found: found == [100.0])
    else:
        message = refused(tool, f"{bmc.where}{options}", bmc.login)
        assert "takes a higher privilege" in message
        assert message.endswith("give the user OPERATOR or ADMINISTRATOR for IPMI over LAN")


def test_versions_and_cipher_suites_of_ipmitool(bmc, monkeypatch):
    for variable in ("IPMI_PASSWORD", "IPMITOOL_PASSWORD"):
        monkeypatch.setenv(variable, "of-another-bmc")
    with opened("ipmi:ipmitool", bmc, options=",interface=lan") as source:
        assert watts(source) == [100.0]
    if isinstance(bmc, IpmiBmc):
        wrong = "ipmi:ipmitool", f"{bmc.where},interface=lan", Login("ppw", "wrong")
        monkeypatch.setattr(ipmi, "PATIENCE_S", "1")
        assert "does not open a session for user 'ppw'" in refused(*wrong)
    message = refused("ipmi:ipmitool", f"{bmc.where},cipher=17", bmc.login)
    assert "the BMC refuses cipher suite 17: enable it there, or name another one" in message
    # The peer knows suite 3 alone.
    monkeypatch.setattr(ipmi, "IPMITOOL_SUITES", ("17", "3"))
    with opened("ipmi:ipmitool", bmc) as source:
        assert watts(source) == [100.0]


class Ipmi15(socketserver.BaseRequestHandler):
    """A BMC that says it speaks IPMI 1.5 only, and says no more."""

    def handle(self):
        packet, bmc = self.request
        # MD5 and plain passwords on channel 1; the bit of IPMI 2.0 is not set.
        said = bytes([0x20, packet[18], 0x38, 0x00, 0x01, 0x15, 0x18, 0, 0, 0, 0, 0])
        message = bytes([0x81, 0x1C, 0x63]) + said + bytes([-sum(said) & 0xFF])
        bmc.sendto(packet[:13] + bytes([len(message)]) + message, self.client_address)


def test_the_real_pyghmi_hands_ipmi_1_5_over_to_ipmitool():
    with socketserver.UDPServer(("127.0.0.1", 0), Ipmi15) as bmc:
        threading.Thread(target=bmc.serve_forever, args=(0.01,), daemon=True).start()
        message = refused("ipmi", f"127.0.0.1:{bmc.server_address[1]}")
        bmc.shutdown()
    assert "try ipmi:ipmitool@HOST, and interface=lan with it" in message


@both_tools
@simulated
def test_an_address_where_no_bmc_is(tool):
    said = refused(tool, f"127.0.0.1:{free_port()}", timeout_s=1.5)
    assert re.search(r"no answer within [1-9]\.\d s", said)
    assert "this host name has no address" in refused(tool, "bmc.invalid")


@both_tools
def test_a_dropped_session_is_opened_again_and_a_bmc_that_goes_is_an_error(bmc, tool):
    with opened(tool, bmc, then_s=8.0) as source:
        bmc.restart()
        bmc.set_watts(90)
        assert watts(source) == watts(source) == [90.0]
        source._timeout_s = 1.0
        bmc.kill()
        for _ in range(2):
            message = refusal(source.read, error=SensorError)
            assert re.search(r"no answer within \d\.\d s: check", message)
        bmc.start()
        source._timeout_s = 8.0
        eventually(source, lambda found: found == [90.0])
        bmc.kill()
    assert "no answer within" in refused(tool, bmc.where, bmc.login, timeout_s=1.0)


@both_tools
@simulated
def test_a_bmc_that_is_late_or_pauses(tmp_path, monkeypatch, tool):
    monkeypatch.setattr(ipmi, "PRIVILEGES", ("administrator",))
    with IpmiBmc(tmp_path) as bmc, opened(tool, bmc) as source:
        bmc.set(delay_ms=1500)
        start_s = time.monotonic()
        (reading,) = source.read()
        took_s = time.monotonic() - start_s
        # Less than it would take to be asked again and be late again.
        assert 1.5 <= took_s < 3.0
        assert reading.value == 100.0
        assert abs(reading.at_s - start_s - took_s / 2) < 0.2 * took_s
        bmc.set(delay_ms=0)
        bmc.pause()
        threading.Timer(0.5, bmc.resume).start()
        assert watts(source) == watts(source) == [100.0]


def test_a_tool_that_hangs_is_given_up_in_time(play, monkeypatch):
    bmc = play()
    let_go = threading.Event()
    with opened("ipmi", bmc) as source:
        monkeypatch.setattr(PlayedCommand, "wait_for_rsp", lambda *_, **__: let_go.wait())
        monkeypatch.setattr(ipmi_session, "_LOGOUT_S", 0.0)
        source._timeout_s = 0.1
        with pytest.raises(SensorError, match=r"no answer within \d+\.\d s: check"):
            source.read()
        let_go.set()
    bmc.is_silent = "hangs"
    assert "no answer within" in refused("ipmi:ipmitool", bmc.where, bmc.login)


def test_a_session_that_ends_by_itself_is_told_and_one_that_stays_is_killed(monkeypatch):
    stays = subprocess.TimeoutExpired("ipmi_session.py", 2.0)
    process = mock.Mock(**{"wait.side_effect": [stays, 0]})
    monkeypatch.setattr(ipmi, "_start_session", lambda _: process)
    assert "pyghmi cannot log in (its process ended)" in refused("ipmi", "bmc")
    process.kill.assert_called_once_with()


def left_open():
    """Child processes, threads and files of this process."""
    files = {file.name for file in Path("/proc/self/fd").iterdir()}
    return set(psutil.Process().children()), threading.active_count(), files


@both_tools
def test_closing_leaves_nothing_behind_and_gives_the_session_back(bmc, tool):
    before = left_open()
    for _ in range(2):
        with opened(tool, bmc) as source:
            assert watts(source) == [100.0]
    source.close()
    with pytest.raises(SensorError, match="read after it was closed"):
        source.read()
    refused(tool, bmc.where, Login("ppw", "wrong"))
    if isinstance(bmc, IpmiBmc):
        bmc.set(delay_ms=60_000)
        refused(tool, bmc.where, bmc.login, timeout_s=2.0)
    elif tool == "ipmi":
        assert bmc.logouts >= 4
    del source
    gc.collect()  # an unclosed socket or process would warn, which is an error
    wait_for(lambda: left_open() == before)


def test_an_idle_session_is_kept_and_then_given_back(monkeypatch, play):
    def keep_alive():
        done.append("kept")
        if len(done) == 3:
            requests.put(None)

    done, requests, session = [], queue.Queue(), ipmi_session.BmcSession()
    idle = mock.Mock(keep_alive=keep_alive, log_out=lambda: done.append("given back"))
    monkeypatch.setattr(ipmi_session, "BmcSession", lambda: idle)
    monkeypatch.setattr(ipmi_session, "_KEEPALIVE_S", 0.001)
    ipmi_session.serve(requests, asker=None)
    assert done == ["kept"] * 3 + ["given back"]
    bmc = play()
    session.keep_alive()
    assert bmc.asked == 0
    assert session.answer({"raw": [6, 1, 0, ""]})["error"].startswith("AttributeError: ")
    session.answer({"connect": {"userid": "ppw", "password": bmc.login.password}})
    session.keep_alive()
    assert bmc.asked > 0


@both_tools
def test_the_own_bmc_is_read_through_its_device(tool, play, monkeypatch, tmp_path):
    bmc = play(watts=177)
    device = tmp_path / "ipmi0"
    monkeypatch.setattr(ipmi_protocol, "DEVICE", str(device))
    message = refused(tool)
    assert "ipmi0 is not there" in message
    assert "`modprobe -a ipmi_devintf ipmi_si` as root" in message
    assert message.endswith(f"over the network: {tool}@HOST")
    device.mkdir()
    assert "no BMC answers behind" in refused(tool)
    device.rmdir()
    device.touch(mode=0o600)
    with contextlib.closing(open_source(parse_spec(tool), SourceSettings())) as source:
        assert watts(source) == [177.0]
    bmc.is_silent, bmc.says = tool == "ipmi", "Could not open device"
    assert "no BMC answers" in refused(tool)
    device.chmod(0o000)
    us = os.geteuid()
    os.seteuid(us or 65534)
    try:
        assert "may not be opened by this user: run as root" in refused(tool)
    finally:
        os.seteuid(us)


@pytest.fixture
def local_bmc(tmp_path):
    """Environment of processes that find a /dev/ipmi0 of 177 W."""
    figure, library = tmp_path / "watts", compiled("ipmi_device.c", "-ldl")
    figure.write_text("177\n")
    device = {"IPMI_DEVICE_WATTS": str(figure), "IPMI_DEVICE_SILENT": str(tmp_path / "silent")}
    return {**os.environ, "LD_PRELOAD": str(library), **device}


LOCAL = """
import json, sys, time
from measurements.power.source import SensorError, SourceSettings
from measurements.power.source import open_source, parse_spec
try:
    source = open_source(parse_spec(sys.argv[1]), SourceSettings(timeout_s=float(sys.argv[2])))
except SensorError as error:
    sys.exit(str(error))
(reading,) = source.read()
source.close()
print(json.dumps([source.channels[0].label, reading.value, reading.source_at_s]))
"""


@simulated
@both_tools
def test_a_device_of_the_kernel_is_read_and_a_silent_one_given_up(local_bmc, tool):
    ask = {"env": local_bmc, "capture_output": True, "text": True, "check": False, "cwd": ROOT}
    said = subprocess.run([sys.executable, "-c", LOCAL, tool, "60"], **ask)
    label, value, stamp = json.loads(said.stdout)
    assert (label, value) == ("ipmi:dcmi", 177.0)
    assert abs(stamp - time.time()) < 600
    own = subprocess.run(["ipmitool", "-I", "open", "dcmi", "power", "reading"], **ask)
    assert numbers(own.stdout) == [177] * 4
    Path(local_bmc["IPMI_DEVICE_WATTS"]).write_text("")
    said = subprocess.run([sys.executable, "-c", LOCAL, tool, "1.5"], **ask)
    assert said.returncode == 1
    reason = r"no answer within \d\.\d s: the BMC behind /dev/ipmi0 may be restarting: .*\n"
    assert re.fullmatch(f"{tool}: {reason}", said.stderr)


@simulated
def test_the_session_ends_with_the_process_that_asks(local_bmc):
    Path(local_bmc["IPMI_DEVICE_WATTS"]).write_text("")
    command = [sys.executable, "-c", LOCAL, "ipmi", "600"]
    with subprocess.Popen(command, cwd=ROOT, env=local_bmc) as asking:
        wait_for(Path(local_bmc["IPMI_DEVICE_SILENT"]).exists)
        (session,) = psutil.Process(asking.pid).children()
        asking.kill()
        wait_for(lambda: not is_running(session.pid))


@simulated
@both_tools
def test_a_password_is_seen_nowhere(tmp_path, monkeypatch, caplog, capfd, tool):
    secret, home, seen, over = "s3cr3t-Zebra", tmp_path / "home", set(), threading.Event()
    program = {"ipmi": "ipmi_session.py", "ipmi:ipmitool": "ipmitool"}[tool]
    said = []

    def look():
        while not over.wait(0.01):
            seen.update(processes(program), processes(secret[:-1]))

    def ask(login):
        settings = SourceSettings(login=lambda *_: login, timeout_s=AMPLE_S)
        said.extend([repr(login), str(login), f"{login}", repr(settings)])
        try:
            source = open_source(parse_spec(f"{tool}@{bmc.where}"), settings)
            said.append(repr((source, vars(source), source.read(), vars(source.figures))))
            source.close()
        except SensorError as error:
            said.extend([repr(error), repr(vars(error)), *traceback.format_exception(error)])

    with IpmiBmc(tmp_path, password=secret) as bmc:
        # Late answers keep its programs in the list of processes for a while.
        bmc.set(delay_ms=200)
        home.mkdir()
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setattr(tempfile, "tempdir", str(home))
        caplog.set_level(logging.DEBUG)
        watch = threading.Thread(target=look, daemon=True)
        watch.start()
        for password in (secret, secret[:-1], secret * 2):
            ask(Login("ppw", password))
        over.set()
        watch.join()
    said = "\n".join([*said, caplog.text, *capfd.readouterr()])
    assert any(program in line for line in seen)
    assert not [line for line in seen if secret[:-1] in line]
    assert "rejects the password of user 'ppw'" in said
    assert "the password has 24 bytes" in said
    assert "value=100.0" in said
    assert secret[:-1] not in said
    assert not list(home.rglob("*"))


def test_addresses():
    for where, expected in {
        "bmc-7": ("bmc-7", 623),
        "bmc-7:6230": ("bmc-7", 6230),
        "10.0.0.7:1": ("10.0.0.7", 1),
        **dict.fromkeys(("fe80::7", "[fe80::7]"), ("fe80::7", 623)),
        "[fe80::7]:65535": ("fe80::7", 65535),
    }.items():
        assert parse_address("ipmi", where) == expected
    for where in (":623", "bmc:", "bmc:0", "bmc:65536", "bmc:x", "https://bmc", "[fe80::7", "[]:1"):
        with pytest.raises(SensorError, match=r"is no address: write ipmi@HOST\[:PORT\]"):
            parse_address("ipmi", where)


@pytest.mark.cases(
    "spec, reason",
    ("ipmi@bmc,cipher=3", "ipmi has no option cipher: it has none"),
    ("ipmi,interface=lan", "ipmi has no option interface: it has none"),
    ("ipmi:ipmitool@bmc,cypher=3", "has no option cypher: it has cipher, interface"),
    ("ipmi:ipmitool,cipher=3", "ipmi:ipmitool has no option cipher: it has none"),
    ("ipmi:ipmitool@bmc,interface=usb", "interface is lanplus or lan"),
    ("ipmi:ipmitool@bmc,cipher=x", "cipher the number of a suite"),
    ("ipmi@ppw:s3cr3t@bmc", "the address must not contain a user or password"),
    ("ipmi:ipmitool@ppw:s3cr3t@bmc,interface=usb", "the address must not contain a user"),
    ("ipmi@bmc", "pip install 'perf-per-watt[measure]'"),
    ("ipmi:ipmitool@bmc", "ipmitool is missing: apt install ipmitool"),
)
def test_what_cannot_be_asked_for_is_refused(spec, reason, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyghmi", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SensorError, match=re.escape(reason)) as caught:
        open_source(parse_spec(spec), SourceSettings(login=lambda *_: Login("ppw", "x")))
    assert "s3cr3t" not in str(caught.value)


def pyghmi_entry(record):
    from pyghmi.ipmi.private import constants
    from pyghmi.ipmi.sdr import SDREntry

    return SDREntry(bytearray(record), constants)


def changed(*places, record=None):
    """Record of a sensor of watts with other bytes at some places."""
    record = bytearray(record or sensor_record(1, Sensor("Power")))
    for at, value in places:
        record[at] = value
    return bytes(record)


def ten_bits(at, value):
    low, high = struct.pack("<H", value & 0x3FF)
    return (at, low), (at + 1, high << 6)


tens, exponents = st.integers(-512, 511), st.integers(-8, 7)


@given(tens, tens, exponents, exponents, st.integers(0, 2), st.integers(0, 11), st.integers(0, 255))
def test_figures_are_those_of_pyghmi(m, b, scale, offset_scale, form, function, byte):
    powers = (29, (scale & 0xF) << 4 | offset_scale & 0xF)
    record = changed((20, form << 6), (23, function), *ten_bits(24, m), *ten_bits(26, b), powers)
    (sensor,) = power_sensors([record])
    negative = {0: byte, 1: byte - 255, 2: byte - 256}[form]
    try:
        expected = pyghmi_entry(record).decode_value(None, negative if byte > 127 else byte)
    except (ValueError, ArithmeticError):
        expected = math.nan
    if isinstance(expected, complex):  # of a negative number's root
        expected = math.nan
    found = sensor.watts(bytes([byte, READABLE, 0]))
    if function == 11 and math.isnan(expected):
        assert found <= 0  # which has a real root all the same
    else:
        assert found == pytest.approx(expected, rel=1e-9, nan_ok=True)


def named(kind, data):
    """Record of a sensor whose name is encoded in another way."""
    record = sensor_record(1, Sensor("")) + data
    return changed((47, kind << 6 | len(data)), (4, len(record) - 5), record=record)


printable = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=16)
packed = st.tuples(st.just(1), st.binary(max_size=16))


@given(packed | st.tuples(st.just(3), printable.map(str.encode)))
def test_names_are_those_of_pyghmi(name):
    (sensor,) = power_sensors([named(*name)])
    assert sensor.name == pyghmi_entry(named(*name)).name.strip("\0 ")


def test_names_in_other_codes():
    for kind, data, name in (
        # The specification's own example of packed letters, which pyghmi reads without end.
        *((2, b"\x29\xdc\xa6" * n, "IPMI" * n) for n in (1, 2)),
        *((2, b"\x29\xdc", "IP"), (3, "Läufer".encode("latin-1"), "Läufer")),
        *((3, b"padded \0\0", "padded"), (3, b"", ""), (0, "µW".encode(), "µW")),
        (0, b"\xff", "\ufffd"),
    ):
        (sensor,) = power_sensors([named(kind, data)])
        assert sensor.name == name


def test_a_reading_that_is_unavailable_is_nan_and_a_step_is_of_linear_sensors_only():
    sensor = PowerSensor("Power", 1, 0, 7, 0, 2.0, 0.0)
    for reply in ([50, READABLE, 0], [50, READABLE | 0x80, 0xC0, 0x80], [50, READABLE]):
        assert sensor.watts(bytes(reply)) == 100.0
    for reply in ([50, READABLE | 0x20, 0], [50, 0x80, 0], [50], []):
        assert math.isnan(sensor.watts(bytes(reply)))
    assert sensor._replace(factor=-0.5).resolution_w == 0.5
    assert math.isnan(sensor._replace(linearization=4).resolution_w)


@pytest.mark.cases(
    "record",
    changed((3, 0x02)),  # a compact record
    changed((5, 0x2C)),  # another controller's
    changed((13, 0x6F)),  # discrete
    changed((20, 0xC0)),  # no analog figure
    changed((20, 0x01)),  # percent
    changed((20, 0x08)),  # a rate
    changed((20, 0x02)),  # watts by something
    changed((21, 1)),  # degrees
    changed((23, 0x70)),  # its factors depend on the figure
    sensor_record(1, Sensor("Power"))[:40],
    b"",
)
def test_what_does_not_tell_watts_is_left_out(record):
    found = power_sensors([record, sensor_record(2, Sensor("Watts"))])
    assert [s.name for s in found] == ["Watts"]


def test_a_dump_is_cut_into_its_records():
    records = [sensor_record(i, Sensor("x" * i)) for i in range(1, 6)]
    assert list(split_records(b"".join(records))) == records
    assert list(split_records(b"")) == []
    assert power_sensors(split_records(b"".join(records)[:-3]))[:4] == power_sensors(records[:4])


@pytest.mark.cases(
    "domain, sensors",
    ("package", [("CPU1 Power", 7), ("VCORE", 3)]),
    ("dram", [("Mem Power", 7)]),
    ("gpu", [("GPU0", 11)]),
    ("wall", [("PS1 Input Power", 7), ("PSU2_PIN", 7), ("Status", 10)]),
    ("other", [("PS1 Output", 10), ("PSU1_POUT", 10), ("FAN PWR", 7), ("Watts", 99)]),
    ("host", [("Pwr Consumption", 7), ("Power Meter", 0), ("Total_Power", 0), ("Watts", 7)]),
)
def test_a_sensor_covers_what_its_name_or_entity_says(domain, sensors):
    for name, entity in sensors:
        (channel,) = sensor_channels([PowerSensor(name, 1, 0, entity, 0, 1.0, 0.0)])
        assert (channel.label, channel.domain) == (f"ipmi:{name}", domain)
        assert channel.inside is None


def test_parts_and_second_figures_are_inside_the_first_of_the_host():
    names = ("PSU1 In", "CPU Power", "Sys Power", "Total Power", "CPU Power", "")
    sensors = [PowerSensor(name, i, 0, 0, 0, 1.0, 0.0) for i, name in enumerate(names, 0x0A)]
    channels = sensor_channels(sensors)
    assert [(c.label, c.domain, c.inside) for c in channels] == [
        ("ipmi:PSU1 In", "wall", None),
        ("ipmi:CPU Power#0b", "package", "ipmi:Sys Power"),
        ("ipmi:Sys Power", "host", None),
        ("ipmi:Total Power", "host", "ipmi:Sys Power"),
        ("ipmi:CPU Power#0e", "package", "ipmi:Sys Power"),
        ("ipmi:#0f", "other", "ipmi:Sys Power"),
    ]
    assert channels[3].note == "another reading of the power that ipmi:Sys Power covers"


RECORDS = [
    sensor_record(0, Sensor("CPU Temp", base_unit=1)),
    sensor_record(1, Sensor("Sixteen letters.")),
    bytes([2, 0, 0x51, 0x12, 11]) + bytes(11),
    sensor_record(3, Sensor("Power", number=9)),
]
NAMES = ["Sixteen letters.", "Power"]


def names_of(records, **limits):
    """Names of the power sensors that a BMC with such limits gives, and how often it was asked."""
    bmc = PlayedBmc(records=records)
    vars(bmc).update(limits)
    return [s.name for s in power_sensors(bmc.records(time.monotonic() + 60.0))], bmc.asked


def test_records_are_fetched_in_pieces_and_again_but_not_for_ever():
    for most, keeps_repository, loses_every in product((255, 31, 16, 8), (True, False), (0, 7)):
        limits = {"keeps_repository": keeps_repository, "loses_every": loses_every}
        assert names_of(RECORDS, most=most, **limits)[0] == NAMES
    # Those without watts are not fetched whole; two requests are for the device and a reservation.
    assert names_of([RECORDS[1]] * 50) == (["Sixteen letters."] * 50, 2 + 4 * 50)
    assert names_of([RECORDS[0]] * 50) == ([], 2 + 2 * 50)
    for fault, names in (
        ({"ends": 0}, NAMES),  # goes round
        ({"ends": 3}, NAMES),
        ({"most": 4}, []),  # carries nothing
        ({"loses_every": 1}, []),  # keeps no reservation
    ):
        found, asked = names_of(RECORDS, **fault)
        assert found == names
        assert asked < 50


@simulated
@both_tools
def test_a_full_repository_is_searched(tmp_path, tool):
    sensors = [Sensor(f"Sensor {i}", i, base_unit=1 if i % 20 else 6) for i in range(1, 61)]
    known = {"dcmi": False, "sensors": sensors, "watts": 96}
    with IpmiBmc(tmp_path, **known) as bmc, opened(tool, bmc) as source:
        labels = [channel.label for channel in source.channels]
        assert labels == ["ipmi:Sensor 20", "ipmi:Sensor 40", "ipmi:Sensor 60"]
        assert len(source.read()) == 3
