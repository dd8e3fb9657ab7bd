"""Logins from the environment, a netrc file or a terminal; passwords that no message shows."""

import os
import pty
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from measurements.power.credentials import find_login, terminal_prompt
from measurements.power.source import Login, SensorError

ROOT = Path(__file__).parents[2]
SECRET = "s3cr3t-Zebra"
NOBODY = {"HOME": "/nonexistent"}


@pytest.fixture
def netrc(tmp_path):
    def write(text, mode=0o600):
        file = tmp_path / "netrc"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        file.chmod(mode)
        return file

    return write


def refused(host="bmc", kind="ipmi", environ=NOBODY, **options):
    """Message of the error, which shows no password however it is looked at."""
    with pytest.raises(SensorError) as caught:
        find_login(kind, host, environ=environ, **options)
    error = caught.value
    assert SECRET.lower() not in "".join(traceback.format_exception(error)).lower()
    assert error.__context__ is None
    assert "\n" not in str(error)
    return str(error)


def test_the_environment_comes_first_and_then_the_named_file_or_that_of_the_home(netrc, tmp_path):
    file = netrc("machine bmc login other password else")
    environ = {"PPW_REDFISH_USER": "ppw", "PPW_REDFISH_PASSWORD": SECRET}
    for kind, login in (("redfish", Login("ppw", SECRET)), ("ipmi", Login("other", "else"))):
        assert find_login(kind, "bmc", environ=environ, netrc=file, prompt=pytest.fail) == login
    netrc("machine bmc login usual password x\n").rename(tmp_path / ".netrc")
    environ = {"HOME": str(tmp_path)}
    assert find_login("ipmi", "bmc", environ=environ).user == "usual"
    environ["PPW_NETRC"] = str(netrc("machine bmc login named password x\n"))
    assert find_login("ipmi", "bmc", environ=environ).user == "named"


def test_half_a_login_in_the_environment_is_an_error():
    user, password = {"PPW_IPMI_USER": "ppw"}, {"PPW_IPMI_PASSWORD": SECRET}
    for environ, has, lacks in (
        (user, "USER", "PASSWORD"),
        (password, "PASSWORD", "USER"),
        ({**user, "PPW_IPMI_PASSWORD": ""}, "USER", "PASSWORD"),
    ):
        said = f"PPW_IPMI_{has} is set and PPW_IPMI_{lacks} is not: set both or neither"
        assert refused(environ=environ) == said


ENTRIES = """\
# BMCs of the rack
machine bmc-7 login seven password of-seven
machine BMC-8
    login eight
    password "of eight"
machine 10.0.0.9:6230 login nine password of-nine
machine fe80::7 login v6 password of-v6
"""


def test_the_entry_of_the_host_is_taken_or_the_default_one(netrc):
    for login, hosts in (
        (("seven", "of-seven"), ["bmc-7", "BMC-7", "bmc-7:623", "https://bmc-7:8443"]),
        (("eight", "of eight"), ["bmc-8"]),
        (("nine", "of-nine"), ["10.0.0.9:6230"]),
        (("v6", "of-v6"), ["fe80::7", "[fe80::7]:623"]),
        (None, ["bmc", "bmc-70", "10.0.0.9", "10.0.0.9:623", "seven", "["]),
    ):
        for host in hosts:
            file = netrc(ENTRIES)
            if login is None:
                assert "needs a user and a password" in refused(host, netrc=file)
            else:
                assert find_login("ipmi", host, environ=NOBODY, netrc=file) == login
            file = netrc(f"{ENTRIES}default login any password of-any\n")
            found = find_login("ipmi", host, environ=NOBODY, netrc=file)
            assert found == (login or ("any", "of-any"))


def test_a_file_that_others_may_use_or_of_somebody_else_is_refused(netrc, monkeypatch):
    text = f"machine bmc login ppw password {SECRET}\n"
    for mode in (0o640, 0o620, 0o604, 0o602, 0o644, 0o601):
        file = netrc(text, mode)
        assert refused(netrc=file) == f"netrc file {file}: others may read it: `chmod 600 {file}`"
    file, us = netrc(text), os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    said = f"belongs to user id {us} and not to you: `chown {us + 1} {file}`"
    assert said in refused(netrc=file)


def test_a_file_with_a_mistake_is_named_by_its_line(netrc):
    for text, line in {
        f"machine bmc login ppw password my {SECRET}\n": 2,
        f"{SECRET}\n": 2,
        f"machine bmc\nlogin ppw\npasswort {SECRET}\n": 4,
        f"machine bmc login ppw\n{SECRET} password x": 3,
        f"macdef init\nsend {SECRET}": 3,
    }.items():
        message = refused(netrc=netrc(text))
        found = re.search(r"line (\d+) is not in the format `machine HOST login", message)
        assert found is not None
        assert abs(int(found[1]) - line) <= 1


def test_a_file_that_is_no_text_has_half_an_entry_or_is_not_there_is_refused(netrc, tmp_path):
    half, missing = "the entry of bmc has no login or no password", tmp_path / "missing"
    for text, said in (
        (f"machine bmc login ppw password {SECRET}".encode() + b"\xff\xfe\n", "is not UTF-8 text"),
        ("machine bmc login ppw\n", half),
        (f"machine bmc password {SECRET}\n", half),
    ):
        file = netrc(text)
        assert refused("bmc:623", netrc=file).startswith(f"netrc file {file}: {said}")
    for named, said in (
        (missing, f"netrc file {missing}: is not there: correct PPW_NETRC or unset it"),
        (tmp_path, "is no file: correct PPW_NETRC"),
        (f"{netrc('')}/within", "cannot be read"),
    ):
        assert said in refused(environ={**NOBODY, "PPW_NETRC": str(named)})


def test_all_three_ways_are_named_where_there_is_no_login():
    for environ in (NOBODY, {}, {"HOME": ""}):
        message = refused("bmc-7:6230", environ=environ)
        assert message.startswith("ipmi at bmc-7 needs a user and a password: ")
        assert "set PPW_IPMI_USER and PPW_IPMI_PASSWORD, " in message
        assert "`machine bmc-7 login USER password PASSWORD` to " in message
        assert ".netrc (chmod 600)" in message
        assert message.endswith("or run from a terminal to be asked")
    # A password in the address is not repeated.
    for host in (f"https://ppw:{SECRET}@bmc", f"ppw:{SECRET}@bmc:623", f"ppw:[{SECRET}@bmc"):
        assert "at bmc needs" in refused(host, "redfish")
    login = find_login("ipmi", "bmc:623", environ=NOBODY, prompt=lambda *asked: Login(*asked))
    assert login == ("ipmi", "bmc:623")


ASKING = """
import sys
from measurements.power.credentials import find_login, terminal_prompt
from measurements.power.source import SensorError
for _ in range(int(sys.argv[1])):
    try:
        login = find_login("ipmi", "bmc:623", environ={}, prompt=terminal_prompt())
    except SensorError as error:
        print("refused:", error)
    else:
        print(repr(login), login.password == sys.argv[2])
"""


def at_terminal(times, *typed):
    """What a terminal shows when each text is typed at a question for a user or a password."""
    ours, theirs = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    command = [sys.executable, "-c", ASKING, str(times), SECRET]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, **streams) as asking:
        os.close(theirs)
        shown, answers = "", list(typed)
        while True:
            try:
                shown += os.read(ours, 1024).decode()
            except OSError:  # the other end is closed
                break
            if re.search(r"(User of ipmi at bmc|Password): $", shown) and answers:
                os.write(ours, answers.pop(0).encode())
    os.close(ours)
    assert asking.returncode == 0, shown
    return shown


def test_a_password_is_typed_unseen_and_an_empty_answer_or_no_terminal_gives_none(monkeypatch):
    given_up = ["\n", "ppw\n", "\n", "\x04", "ppw\n", "\x04"]
    shown = at_terminal(5, "ppw\n", f"{SECRET}\n", *given_up)
    assert shown.startswith("User of ipmi at bmc: ppw")
    assert "Password: " in shown
    assert "Login(user='ppw', password=…) True" in shown
    assert SECRET not in shown
    assert shown.count("refused: ipmi at bmc: no user and password were given") == 4
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Path(os.devnull).open() as nowhere:
        monkeypatch.setattr(sys, "stdin", nowhere)
        assert terminal_prompt() is None
