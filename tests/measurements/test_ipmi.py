"""IPMI power against ipmi_sim, which ipmitool and FreeIPMI read at the same time."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from peers.ipmi_bmc import IpmiBmc, Sensor, free_port, silent_port

from measurements.power import ipmi_bmc, ipmi_tool
from measurements.power.ipmi_bmc import parse_address
from measurements.power.ipmi_dcmi import BmcClock, PowerReading
from measurements.power.protocol import Login, SensorError, SourceSettings
from measurements.power.registry import KINDS, open_source, parse_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from measurements.power.ipmi_power import IpmiPower

TOOLS = ("ipmi", "ipmi:ipmitool")
# Time that a request may take where something else than time is tested.
AMPLE_S = 30.0
PSU, CPU = Sensor("PSU1 Pwr In"), Sensor("CPU Power", number=2, entity=3, step=1)
ROOT = Path(__file__).parents[2]
PEERS = Path(__file__).with_name("peers")

both_tools = pytest.mark.parametrize("tool", TOOLS)


@pytest.fixture
def bmc(tmp_path: Path) -> Iterator[IpmiBmc]:
    with IpmiBmc(tmp_path) as running:
        yield running


@pytest.fixture
def local_bmc(tmp_path: Path) -> dict[str, str]:
    """Environment of processes that find a /dev/ipmi0 of 177 W."""
    library, figure = tmp_path / "device.so", tmp_path / "watts"
    source = str(PEERS / "ipmi_device.c")
    gcc = ("gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library))
    subprocess.run([*gcc, source, "-ldl"], check=True)
    figure.write_text("177\n")
    return {
        **os.environ,
        "LD_PRELOAD": str(library),
        "IPMI_DEVICE_WATTS": str(figure),
        "IPMI_DEVICE_SILENT": str(tmp_path / "silent"),
    }


@contextlib.contextmanager
def opened(
    tool: str,
    bmc: IpmiBmc,
    *,
    then_s: float = AMPLE_S,
    options: str = "",
) -> Iterator[IpmiPower]:
    """Open a BMC with ample time, and then give its readings another limit."""
    settings = SourceSettings(login=lambda *_: bmc.login, timeout_s=AMPLE_S)
    source = open_source(parse_spec(f"{tool}@{bmc.where}{options}"), settings)
    source._timeout_s = then_s
    try:
        yield source
    finally:
        source.close()


def refused(tool: str, where: str | None, login: Login | None = None, **settings: object) -> str:
    """One line of the error that opening ends with."""
    known = SourceSettings(login=lambda *_: login or Login("ppw", "some-password"), **settings)
    spec = parse_spec(tool if where is None else f"{tool}@{where}")
    with pytest.raises(SensorError) as caught:
        open_source(spec, known)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(tool)
    return message


def watts(source: IpmiPower) -> list[float]:
    return [reading.value for reading in source.read()]


def reads(source: IpmiPower) -> bool:
    """Whether the BMC answers again, with the watts that it begins with."""
    try:
        return watts(source) == [100.0]
    except SensorError:
        return False


def eventually(source: IpmiPower, wanted: Callable[[list[float]], bool]) -> list[float]:
    """Read until the figures are as wanted: the peer polls its files."""
    found: list[float] = []

    def is_wanted() -> bool:
        found[:] = watts(source)
        return wanted(found)

    within(is_wanted)
    return found


def ipmitool(bmc: IpmiBmc, *words: str) -> str:
    """What ipmitool's own decoder says."""
    to = ("-I", "lanplus", "-C", "3", "-H", bmc.host, "-p", str(bmc.port), "-U", bmc.login.user)
    return subprocess.run(
        ["ipmitool", *to, "-E", *words],
        env={**os.environ, "IPMI_PASSWORD": bmc.login.password},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def freeipmi(program: str, bmc: IpmiBmc, *words: str) -> str:
    """What FreeIPMI's own decoder says."""
    to = ("-D", "LAN_2_0", "-W", "opensesspriv", "-h", bmc.where, "-u", bmc.login.user)
    return subprocess.run(
        [program, *to, "-p", bmc.login.password, "-l", "ADMIN", *words],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def numbers(text: str) -> list[int]:
    """Watts of a text, in its order."""
    return [int(found) for found in re.findall(r":\s+(\d+) [Ww]atts", text)]


# What it reads.


@both_tools
def test_the_whole_reply_is_that_of_independent_clients(bmc: IpmiBmc, tool: str) -> None:
    bmc.set(current=137, minimum=91, maximum=305, average=142, period_ms=5000, stamp=1.7e9)
    with opened(tool, bmc) as source:
        (channel,) = source.channels
        start_s = time.monotonic()
        (reading,) = source.read()
        assert start_s < reading.at_s < time.monotonic()
        reply = source.describe()
    assert (channel.label, channel.quantity, channel.domain) == ("ipmi:dcmi", "power", "host")
    assert (channel.resolution, channel.window_s, source.period_s) == (1.0, 5.0, 5.0)
    assert (reading.label, reading.value, reading.source_at_s) == ("ipmi:dcmi", 137.0, 1.7e9)
    assert reply == {
        "current_w": 137,
        "minimum_w": 91,
        "maximum_w": 305,
        "average_w": 142,
        "stamp_s": 1_700_000_000,
        "period_s": 5.0,
        "active": True,
        "problem": "",
    }
    assert numbers(ipmitool(bmc, "dcmi", "power", "reading")) == [137, 91, 305, 142]
    free = freeipmi("ipmi-dcmi", bmc, "--get-system-power-statistics")
    assert numbers(free) == [137, 91, 305, 142]
    assert "11/14/2023 - 22:13:20" in free
    assert re.search(r"time period\s+: 5000 milliseconds", free)


@both_tools
def test_readings_follow_the_watts(bmc: IpmiBmc, tool: str) -> None:
    with opened(tool, bmc) as source:
        for expected in (80.0, 250.0, 65534.0, 1.0):
            bmc.set_watts(expected)
            assert watts(source) == [expected]
            assert numbers(ipmitool(bmc, "dcmi", "power", "reading"))[0] == expected


@both_tools
@pytest.mark.parametrize(
    ("figures", "problem"),
    [
        ({"current": 0}, "it answers 0 W"),
        ({"current": 0xFFFF}, "it answers 0xFFFF W"),
        ({"state": 0}, "its power measurement is not activated"),
        ({"code": 0xC1}, "it does not know the command"),
        ({"code": 0xC0}, "it is busy"),
        ({"code": 0x9B}, "it answers completion code 0x9b"),
        ({"short": 1}, "it gives no power reading"),
    ],
)
def test_what_is_no_figure_is_nan_and_says_why(
    bmc: IpmiBmc, tool: str, figures: dict[str, float], problem: str
) -> None:
    with opened(tool, bmc) as source:
        bmc.set(**figures)
        (reading,) = source.read()
        assert math.isnan(reading.value)
        assert reading.source_at_s is None
        assert source.describe()["problem"] == problem
        bmc.set(state=0x40, code=0, short=0)
        bmc.set_watts(88)
        assert watts(source) == [88.0]
        assert source.describe()["problem"] == ""


@both_tools
def test_a_bmc_that_is_busy_for_a_moment_is_asked_again(bmc: IpmiBmc, tool: str) -> None:
    with opened(tool, bmc) as source:
        bmc.set(code=0xC0, delay_ms=100)
        threading.Timer(0.15, bmc.set, kwargs={"code": 0, "delay_ms": 0}).start()
        assert watts(source) == [100.0]


@both_tools
@pytest.mark.parametrize(
    ("period_ms", "window_s", "period_s", "has_note"),
    [
        (1000, 1.0, 1.0, False),
        (60_000, 60.0, 60.0, False),
        (250, 0.25, 1.0, False),
        (0, 0.0, 1.0, False),
        # Counted since the BMC's start, as many do.
        (1_131_466_000, 0.0, 1.0, True),
    ],
)
def test_only_a_short_period_is_the_window_of_a_reading(
    bmc: IpmiBmc, tool: str, period_ms: int, window_s: float, period_s: float, has_note: bool
) -> None:
    bmc.set(period_ms=period_ms)
    with opened(tool, bmc) as source:
        (channel,) = source.channels
        assert (channel.window_s, source.period_s) == (window_s, period_s)
        assert ("period of 1131466 s" in channel.note) == has_note


# Sensors, where the power reading says nothing.


@both_tools
@pytest.mark.parametrize("fault", [None, {"current": 0}, {"state": 0}, {"code": 0xC1}])
def test_power_sensors_stand_in(tmp_path: Path, tool: str, fault: dict[str, float] | None) -> None:
    others = (
        Sensor("CPU Temp", number=3, base_unit=1),
        # Of another controller, which the BMC does not answer for.
        Sensor("Node Power", number=4, owner=0x2C),
    )
    with IpmiBmc(tmp_path, dcmi=fault is not None, sensors=(PSU, CPU, *others), watts=96) as bmc:
        bmc.set(**(fault or {}))
        with opened(tool, bmc) as source:
            assert [c.label for c in source.channels] == ["ipmi:PSU1 Pwr In", "ipmi:CPU Power"]
            assert [c.domain for c in source.channels] == ["wall", "package"]
            assert [c.resolution for c in source.channels] == [2.0, 1.0]
            assert {c.window_s for c in source.channels} == {0.0}
            assert eventually(source, lambda found: found == [96.0, 96.0])
            assert {r.source_at_s for r in source.read()} == {None}
            assert source.describe() == {"problems": {}}
            said = ipmitool(bmc, "-c", "sensor", "reading", PSU.name, CPU.name)
            assert said.splitlines() == ["PSU1 Pwr In,96", "CPU Power,96"]
            free = freeipmi("ipmi-sensors", bmc, "--sdr-cache-directory", str(tmp_path))
            assert len(re.findall(r"\| 96\.00 +\| W ", free)) == 2


@both_tools
def test_a_sensor_without_a_figure_is_nan(tmp_path: Path, tool: str) -> None:
    with (
        IpmiBmc(tmp_path, dcmi=False, sensors=(PSU, CPU), watts=96) as bmc,
        opened(tool, bmc) as source,
    ):
        bmc.set_present(PSU, present=False)
        found = eventually(source, lambda found: math.isnan(found[0]))
        assert found[1] == 96.0
        assert source.describe() == {"problems": {"ipmi:PSU1 Pwr In": "it is unavailable"}}
        bmc.set_present(PSU)
        eventually(source, lambda found: found == [96.0, 96.0])
        bmc.set_count(0)
        eventually(source, lambda found: all(math.isnan(w) for w in found))
        problems = dict.fromkeys(("ipmi:PSU1 Pwr In", "ipmi:CPU Power"), "it answers 0 W")
        assert source.describe() == {"problems": problems}


@both_tools
def test_a_reading_of_zero_is_waited_out_where_there_is_no_sensor(
    tmp_path: Path, tool: str
) -> None:
    with IpmiBmc(tmp_path, watts=0) as bmc, opened(tool, bmc) as source:
        assert math.isnan(watts(source)[0])
        bmc.set_watts(77)
        assert watts(source) == [77.0]


@both_tools
@pytest.mark.parametrize(
    ("dcmi", "state", "reason"),
    [
        (False, 0x40, "by DCMI it does not know the command"),
        (True, 0, "by DCMI its power measurement is not activated"),
    ],
)
def test_a_bmc_without_watts_is_refused(
    tmp_path: Path, tool: str, dcmi: bool, state: int, reason: str
) -> None:
    with IpmiBmc(tmp_path, dcmi=dcmi, sensors=(Sensor("CPU Temp", base_unit=1),)) as bmc:
        bmc.set(state=state)
        message = refused(tool, bmc.where, bmc.login)
    assert f"{reason}, and it has no power sensor: measure with redfish@HOST" in message


# The sensor's own clock.


@both_tools
def test_a_frozen_bmc_repeats_its_reading(bmc: IpmiBmc, tool: str) -> None:
    bmc.set(stamp=5000)
    with opened(tool, bmc) as source:
        assert {source.read()[0].source_at_s for _ in range(3)} == {5000.0}
        bmc.set(stamp=5001)
        assert source.read()[0].source_at_s == 5001.0


@both_tools
@pytest.mark.parametrize("stamp", [0, 0xFFFFFFFF])
def test_a_bmc_without_a_clock_has_no_stamp(bmc: IpmiBmc, tool: str, stamp: int) -> None:
    bmc.set(stamp=stamp)
    with opened(tool, bmc) as source:
        (reading,) = source.read()
        assert (reading.value, reading.source_at_s) == (100.0, None)


def stamped(current_w: int, stamp_s: int | None) -> PowerReading:
    return PowerReading(current_w, 1, 500, 100, stamp_s, 1.0, active=True)


def test_a_stamp_that_stands_still_while_watts_change_is_left_out() -> None:
    clock = BmcClock()
    # Several changes within a second of the stamp are what a working clock shows.
    assert [clock.stamp(stamped(100 + i, 7), 0.5 * i) for i in range(4)] == [7.0] * 4
    assert clock.stamp(stamped(103, 7), 60.0) == 7.0
    assert clock.stamp(stamped(104, 7), 61.0) is None
    assert clock.stamp(stamped(104, 8), 62.0) is None


def test_a_stamp_that_jumps_back_is_another_reading() -> None:
    clock = BmcClock()
    assert [clock.stamp(stamped(100, s), i) for i, s in enumerate((9, 10, 3))] == [9.0, 10.0, 3.0]


# Logins.


@both_tools
@pytest.mark.parametrize(
    ("login", "reason"),
    [
        (Login("ppw", "wrong"), "rejects the password of user 'ppw': correct PPW_IPMI_PASSWORD"),
        (Login("nobody", "wrong"), "does not let user 'nobody' in: correct PPW_IPMI_USER"),
        (Login("ppw", "x" * 21), "the password has 21 bytes and IPMI takes 1 to 20"),
        (Login("u" * 17, "x"), "the user has 17 bytes and IPMI takes 1 to 16"),
        (Login("ppw", ""), "the password has 0 bytes and IPMI takes 1 to 20"),
    ],
)
def test_a_login_that_is_wrong_is_named(bmc: IpmiBmc, tool: str, login: Login, reason: str) -> None:
    assert reason in refused(tool, bmc.where, login, timeout_s=AMPLE_S)


@both_tools
def test_a_password_that_is_changed_meanwhile_is_tried_once(tmp_path: Path, tool: str) -> None:
    with IpmiBmc(tmp_path) as bmc, opened(tool, bmc, then_s=6.0) as source:
        configuration = tmp_path / "lan.conf"
        text = configuration.read_text()
        configuration.write_text(text.replace(bmc.login.password, "another-one"))
        bmc.restart()
        with pytest.raises(SensorError, match="rejects the password"):
            source.read()
        configuration.write_text(text)
        bmc.restart()
        assert watts(source) == [100.0]


def test_ipmi_1_5_is_spoken_by_ipmitool(bmc: IpmiBmc) -> None:
    with opened("ipmi:ipmitool", bmc, options=",interface=lan") as source:
        assert watts(source) == [100.0]
    wrong = "ipmi:ipmitool", f"{bmc.where},interface=lan", Login("ppw", "wrong")
    assert "does not open a session for user 'ppw'" in refused(*wrong)


@pytest.mark.parametrize("sensors", [(PSU,), ()])
def test_a_user_with_too_little_privilege_gets_what_there_is(
    tmp_path: Path, sensors: Sequence[Sensor]
) -> None:
    # Of both versions ipmi_sim enforces a user's privilege only in IPMI 1.5.
    with IpmiBmc(tmp_path, privilege="user", sensors=sensors) as bmc:
        if sensors:
            with opened("ipmi:ipmitool", bmc, options=",interface=lan") as source:
                assert [c.label for c in source.channels] == ["ipmi:PSU1 Pwr In"]
                assert eventually(source, lambda found: found == [100.0])
        else:
            message = refused("ipmi:ipmitool", f"{bmc.where},interface=lan", bmc.login)
            assert "takes a higher privilege" in message
            assert message.endswith("give the user OPERATOR or ADMINISTRATOR for IPMI over LAN")


def test_another_cipher_suite_is_tried_where_one_is_refused(
    bmc: IpmiBmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = refused("ipmi:ipmitool", f"{bmc.where},cipher=17", bmc.login)
    assert "the BMC refuses cipher suite 17: enable it there, or name another one" in message
    # The peer knows suite 3 alone.
    monkeypatch.setattr(ipmi_tool, "SUITES", ("17", "3"))
    with opened("ipmi:ipmitool", bmc) as source:
        assert watts(source) == [100.0]


@contextlib.contextmanager
def bmc_of_ipmi_1_5() -> Iterator[int]:
    """Port of a BMC that says it speaks IPMI 1.5 only, and says no more."""

    def answer(bmc: socket.socket) -> None:
        while True:
            packet, sender = bmc.recvfrom(1024)
            if not packet:
                return
            sequence, addresses = packet[18], bytes([0x81, 0x1C])
            # MD5 and plain passwords on channel 1; the bit of IPMI 2.0 is not set.
            said = bytes([0x20, sequence, 0x38, 0x00, 0x01, 0x15, 0x18, 0, 0, 0, 0, 0])
            message = addresses + bytes([-sum(addresses) & 0xFF]) + said
            message += bytes([-sum(said) & 0xFF])
            bmc.sendto(packet[:13] + bytes([len(message)]) + message, sender)

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bmc:
        bmc.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=answer, args=(bmc,))
        thread.start()
        try:
            yield bmc.getsockname()[1]
        finally:
            bmc.sendto(b"", bmc.getsockname())
            thread.join()


def test_pyghmi_hands_ipmi_1_5_over_to_ipmitool() -> None:
    with bmc_of_ipmi_1_5() as port:
        message = refused("ipmi", f"127.0.0.1:{port}")
    assert "try ipmi:ipmitool@HOST, and interface=lan with it" in message


# BMCs that are silent.


@both_tools
def test_a_silent_bmc_is_given_up_within_ten_seconds(tool: str) -> None:
    with silent_port() as port:
        start_s = time.monotonic()
        message = refused(tool, f"127.0.0.1:{port}")
        assert time.monotonic() - start_s < 12.0
    assert "check the address, that the BMC is up with IPMI over LAN enabled" in message


@both_tools
def test_a_port_where_nobody_listens_is_a_silent_bmc(tool: str) -> None:
    message = refused(tool, f"127.0.0.1:{free_port()}", timeout_s=1.5)
    assert re.search(r"no answer within [12]\.\d s", message)


@both_tools
def test_a_host_name_without_an_address_is_named(tool: str) -> None:
    assert "this host name has no address" in refused(tool, "bmc.invalid", timeout_s=AMPLE_S)


@both_tools
def test_a_dropped_session_is_opened_again(bmc: IpmiBmc, tool: str) -> None:
    with opened(tool, bmc, then_s=8.0) as source:
        bmc.restart()
        bmc.set_watts(90)
        assert watts(source) == [90.0]
        assert watts(source) == [90.0]


@both_tools
def test_a_bmc_that_goes_is_an_error_until_it_returns(bmc: IpmiBmc, tool: str) -> None:
    with opened(tool, bmc, then_s=2.0) as source:
        bmc.kill()
        for _ in range(2):
            with pytest.raises(SensorError, match=r"no answer within [23]\.\d s: check") as caught:
                source.read()
            assert "\n" not in str(caught.value)
        bmc.start()
        within(lambda: reads(source))


@both_tools
def test_a_late_answer_is_of_the_time_between(bmc: IpmiBmc, tool: str) -> None:
    with opened(tool, bmc) as source:
        bmc.set(delay_ms=1500)
        start_s = time.monotonic()
        (reading,) = source.read()
        took_s = time.monotonic() - start_s
    # Less than it would take to be asked again and be late again.
    assert 1.5 <= took_s < 3.0
    assert reading.value == 100.0
    assert abs(reading.at_s - start_s - took_s / 2) < 0.2 * took_s


@both_tools
def test_a_bmc_that_hangs_for_a_moment_is_waited_for(bmc: IpmiBmc, tool: str) -> None:
    with opened(tool, bmc) as source:
        bmc.pause()
        threading.Timer(1.0, bmc.resume).start()
        assert watts(source) == [100.0]
        assert watts(source) == [100.0]


@both_tools
def test_a_bmc_that_hangs_is_given_up_in_time(bmc: IpmiBmc, tool: str) -> None:
    with opened(tool, bmc, then_s=2.0) as source:
        bmc.pause()
        start_s = time.monotonic()
        with pytest.raises(SensorError, match="no answer within"):
            source.read()
        assert time.monotonic() - start_s < 4.0
        bmc.resume()
        within(lambda: reads(source))


# What it leaves behind.


def children(parent: int) -> set[int]:
    """Processes that it started; the kernel's own list may leave some out."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(") ")[2].split()[1]) == parent:
                found.add(int(stat.parent.name))
    return found


def is_running(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    return False


def left_open() -> tuple[set[int], int, set[str]]:
    """Child processes, threads and files of this process."""
    files = {file.name for file in Path("/proc/self/fd").iterdir()}
    return children(os.getpid()), threading.active_count(), files


@both_tools
def test_closing_leaves_nothing_behind(bmc: IpmiBmc, tool: str) -> None:
    before = left_open()
    with opened(tool, bmc) as source:
        watts(source)
    source.close()
    with pytest.raises(SensorError, match="read after it was closed"):
        source.read()
    refused(tool, bmc.where, Login("ppw", "wrong"), timeout_s=AMPLE_S)
    bmc.set(delay_ms=60_000)
    refused(tool, bmc.where, bmc.login, timeout_s=3.0)
    del source
    gc.collect()  # an unclosed socket or process would warn, which is an error
    assert left_open() == before


@both_tools
def test_sessions_are_given_back(bmc: IpmiBmc, tool: str) -> None:
    # A user of the peer has ten sessions, and opening takes up to three.
    for _ in range(5):
        with opened(tool, bmc) as source:
            assert watts(source) == [100.0]


OPENING = """
import sys, time
from measurements.power.ipmi import open_source
from measurements.power.protocol import Login, SourceSettings
user, password, where = sys.stdin.readline().split()
settings = SourceSettings(login=lambda *_: Login(user, password))
kept = open_source(None if where == "-" else where, settings)
print("open", flush=True)
time.sleep(60)
"""


def test_the_session_ends_with_the_process_that_asks(bmc: IpmiBmc) -> None:
    with opening(bmc.login, bmc.where, dict(os.environ)) as asking:
        assert asking.stdout.readline() == "open\n"
        (session,) = children(asking.pid)
        asking.kill()
    within(lambda: not is_running(session))


def test_a_session_that_waits_ends_with_the_process_that_asks(local_bmc: dict[str, str]) -> None:
    Path(local_bmc["IPMI_DEVICE_WATTS"]).write_text("")
    with opening(Login("-", "-"), "-", local_bmc) as asking:
        within(Path(local_bmc["IPMI_DEVICE_SILENT"]).exists)
        (session,) = children(asking.pid)
        asking.kill()
    within(lambda: not is_running(session))


def opening(login: Login, where: str, environ: dict[str, str]) -> subprocess.Popen[str]:
    """Start a process that opens a BMC and keeps it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", OPENING]
    process = subprocess.Popen(command, cwd=ROOT, env=environ, **pipes)
    process.stdin.write(f"{login.user} {login.password} {where}\n")
    process.stdin.flush()
    return process


def within(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + AMPLE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# Its programs and devices.


def test_a_missing_pyghmi_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyghmi", None)
    assert "pip install 'perf-per-watt[measure]'" in refused("ipmi", "bmc")


def test_a_missing_ipmitool_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused("ipmi:ipmitool", "bmc").endswith("is missing: apt install ipmitool")


def test_opening_imports_no_table_library_and_no_pyghmi() -> None:
    program = """
import sys
import measurements.power.ipmi, measurements.power.ipmi_tool
heavy = {"numpy", "pandas", "scipy", "matplotlib", "pyghmi", "cryptography"} & set(sys.modules)
sys.exit(", ".join(heavy) or None)
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


@both_tools
def test_a_host_without_a_device_is_told_what_to_load(
    tool: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ipmi_bmc, "DEVICE", str(tmp_path / "ipmi0"))
    message = refused(tool, None)
    assert "ipmi0 is not there" in message
    assert "`modprobe -a ipmi_devintf ipmi_si` as root" in message
    assert message.endswith(f"over the network: {tool}@HOST")


@both_tools
def test_a_device_of_others_is_told_how_to_be_read(
    tool: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    device = tmp_path / "ipmi0"
    device.touch(mode=0o000)
    monkeypatch.setattr(ipmi_bmc, "DEVICE", str(device))
    nobody = 65534
    us = os.geteuid()
    os.seteuid(us or nobody)
    try:
        message = refused(tool, None)
    finally:
        os.seteuid(us)
    assert "may not be opened by this user: run as root" in message


@both_tools
def test_a_device_that_is_no_bmc_is_refused(
    tool: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ipmi_bmc, "DEVICE", str(tmp_path))
    assert "no BMC answers behind" in refused(tool, None)


LOCAL = """
import json, sys, time
from measurements.power.protocol import SensorError, SourceSettings
from measurements.power.registry import open_source, parse_spec
try:
    source = open_source(parse_spec(sys.argv[1]), SourceSettings(timeout_s=float(sys.argv[2])))
except SensorError as error:
    sys.exit(str(error))
(reading,) = source.read()
source.close()
print(json.dumps([source.channels[0].label, reading.value, reading.source_at_s]))
"""


@both_tools
def test_the_own_bmc_is_read_through_its_device(local_bmc: dict[str, str], tool: str) -> None:
    ask = {"env": local_bmc, "check": True, "capture_output": True, "text": True}
    said = subprocess.run([sys.executable, "-c", LOCAL, tool, "30"], cwd=ROOT, **ask)
    label, value, stamp = json.loads(said.stdout)
    assert (label, value) == ("ipmi:dcmi", 177.0)
    assert abs(stamp - time.time()) < 60
    own = subprocess.run(["ipmitool", "-I", "open", "dcmi", "power", "reading"], **ask)
    assert numbers(own.stdout) == [177] * 4


@both_tools
def test_an_own_bmc_that_is_silent_is_given_up(local_bmc: dict[str, str], tool: str) -> None:
    Path(local_bmc["IPMI_DEVICE_WATTS"]).write_text("")
    said = subprocess.run(
        [sys.executable, "-c", LOCAL, tool, "1.5"],
        cwd=ROOT,
        env=local_bmc,
        capture_output=True,
        text=True,
        timeout=AMPLE_S,
        check=False,
    )
    assert said.returncode == 1
    assert re.fullmatch(
        rf"{tool}: no answer within [12]\.\d s: the BMC behind /dev/ipmi0 may be restarting: .*\n",
        said.stderr,
    )


# Passwords.

SECRETIVE = """
import logging, sys, traceback
from measurements.power.protocol import Login, SensorError, SourceSettings
from measurements.power.registry import open_source, parse_spec

logging.basicConfig(level=logging.DEBUG)
tool, where, password, timeout_s = sys.argv[1], sys.argv[2], sys.stdin.readline().strip(), 30.0
for said in (password, password[:-1], password * 2):
    login = Login("ppw", said)
    print(repr(login), login, f"{login}")
    settings = SourceSettings(login=lambda *_: login, timeout_s=timeout_s)
    print(repr(settings))
    try:
        source = open_source(parse_spec(f"{tool}@{where}"), settings)
        print(source, vars(source), source.channels, source.read(), source.describe())
        source.close()
    except SensorError as error:
        print(repr(error), vars(error), error.__context__, error.__cause__)
        traceback.print_exc()
"""


@both_tools
def test_a_password_is_seen_nowhere(tmp_path: Path, tool: str) -> None:
    secret = "s3cr3t-Zebra"
    part = secret[:-1]
    home = tmp_path / "home"
    home.mkdir()
    places = {"PYTHONPATH": str(ROOT), "HOME": str(home), "TMPDIR": str(home)}
    seen: set[str] = set()
    with IpmiBmc(tmp_path, password=secret) as bmc:
        # Late answers keep its programs in the list of processes for a while.
        bmc.set(delay_ms=200)
        with subprocess.Popen(
            [sys.executable, "-X", "dev", "-B", "-c", SECRETIVE, tool, bmc.where],
            cwd=home,
            env={**os.environ, **places},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as asking:
            assert asking.stdin is not None
            assert asking.stdout is not None
            asking.stdin.write(f"{secret}\n")
            asking.stdin.flush()
            while asking.poll() is None:
                seen |= command_lines()
                time.sleep(0.01)
            said = asking.stdout.read()
    program = {"ipmi": "ipmi_session.py", "ipmi:ipmitool": "ipmitool -v"}[tool]
    assert any(program in line for line in seen)
    assert not [line for line in seen if part in line]
    assert "rejects the password of user 'ppw'" in said
    assert "the password has 24 bytes" in said
    assert "value=100.0" in said
    assert part not in said
    assert not list(home.rglob("*"))


def command_lines() -> set[str]:
    found = set()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.add(file.read_text(errors="replace").replace("\0", " "))
    return found


def test_another_password_of_the_environment_is_not_taken(
    bmc: IpmiBmc, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("IPMI_PASSWORD", "IPMITOOL_PASSWORD"):
        monkeypatch.setenv(variable, "of-another-bmc")
    with opened("ipmi:ipmitool", bmc) as source:
        assert watts(source) == [100.0]


# What is asked for.


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("bmc-7", ("bmc-7", 623)),
        ("bmc-7:6230", ("bmc-7", 6230)),
        ("10.0.0.7:1", ("10.0.0.7", 1)),
        ("fe80::7", ("fe80::7", 623)),
        ("[fe80::7]", ("fe80::7", 623)),
        ("[fe80::7]:65535", ("fe80::7", 65535)),
    ],
)
def test_addresses(where: str, expected: tuple[str, int]) -> None:
    assert parse_address("ipmi", where) == expected


@pytest.mark.parametrize(
    "where", [":623", "bmc:", "bmc:0", "bmc:65536", "bmc:x", "https://bmc", "[fe80::7", "[]:1"]
)
def test_what_is_no_address_is_refused(where: str) -> None:
    with pytest.raises(SensorError, match=r"is no address: write ipmi@HOST\[:PORT\]"):
        parse_address("ipmi", where)


@both_tools
def test_a_password_in_the_address_is_not_repeated(
    tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyghmi", None)
    for options in ("", ",interface=usb"):
        with pytest.raises(SensorError) as caught:
            open_source(parse_spec(f"{tool}@ppw:s3cr3t@bmc{options}"), SourceSettings())
        assert "no user or password belongs in the address" in str(caught.value)
        assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("ipmi@bmc,cipher=3", "ipmi has no option 'cipher': it takes none"),
        ("ipmi,interface=lan", "ipmi has no option 'interface': it takes none"),
        (
            "ipmi:ipmitool@bmc,cypher=3",
            "ipmi:ipmitool has no option 'cypher': it takes cipher, interface",
        ),
        ("ipmi:ipmitool,cipher=3", "ipmi:ipmitool has no option 'cipher': it takes none"),
        ("ipmi:ipmitool@bmc,interface=usb", "interface is lanplus or lan"),
        ("ipmi:ipmitool@bmc,cipher=x", "cipher the number of a suite"),
    ],
)
def test_options_that_are_not_known_are_refused(spec: str, reason: str) -> None:
    with pytest.raises(SensorError, match=re.escape(reason)):
        open_source(parse_spec(spec), SourceSettings())


def test_both_are_in_the_registry() -> None:
    assert {KINDS[tool].module for tool in TOOLS} == {"ipmi", "ipmi_tool"}
