"""Logins from the environment, a netrc file or a terminal; passwords that no message shows."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest

from measurements.power.credentials import find_login, terminal_prompt
from measurements.power.protocol import Login, SensorError

ROOT = Path(__file__).parents[2]
SECRET = "s3cr3t-Zebra"
NOBODY: dict[str, str] = {"HOME": "/nonexistent"}


def netrc(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    file = tmp_path / "netrc"
    file.write_text(text)
    file.chmod(mode)
    return file


def refused(*arguments: object, **options: object) -> str:
    """Message of the error, which shows no password however it is looked at."""
    with pytest.raises(SensorError) as caught:
        find_login(*arguments, **options)
    error = caught.value
    assert SECRET.lower() not in "".join(traceback.format_exception(error)).lower()
    assert error.__context__ is None
    assert "\n" not in str(error)
    return str(error)


# The environment.


@pytest.mark.parametrize("kind", ["ipmi", "redfish"])
def test_the_environment_comes_first(tmp_path: Path, kind: str) -> None:
    file = netrc(tmp_path, "machine bmc login other password else")
    environ = {f"PPW_{kind.upper()}_USER": "ppw", f"PPW_{kind.upper()}_PASSWORD": SECRET}
    asked = []
    login = find_login(kind, "bmc", environ=environ, netrc=file, prompt=lambda *a: asked.append(a))
    assert login == Login("ppw", SECRET)
    assert not asked


def test_the_environment_of_another_kind_is_not_taken(tmp_path: Path) -> None:
    file = netrc(tmp_path, "machine bmc login other password else")
    environ = {"PPW_REDFISH_USER": "ppw", "PPW_REDFISH_PASSWORD": SECRET}
    assert find_login("ipmi", "bmc", environ=environ, netrc=file) == Login("other", "else")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"PPW_IPMI_USER": "ppw"}, "PPW_IPMI_USER is set and PPW_IPMI_PASSWORD is not"),
        ({"PPW_IPMI_PASSWORD": SECRET}, "PPW_IPMI_PASSWORD is set and PPW_IPMI_USER is not"),
        (
            {"PPW_IPMI_USER": "ppw", "PPW_IPMI_PASSWORD": ""},
            "PPW_IPMI_USER is set and PPW_IPMI_PASSWORD is not",
        ),
    ],
)
def test_half_a_login_in_the_environment_is_an_error(environ: dict[str, str], message: str) -> None:
    assert refused("ipmi", "bmc", environ=environ) == f"{message}: set both or neither"


# The netrc file.

ENTRIES = """\
# BMCs of the rack
machine bmc-7 login seven password of-seven
machine BMC-8
    login eight
    password "of eight"
machine 10.0.0.9:6230 login nine password of-nine
machine fe80::7 login v6 password of-v6
"""


@pytest.mark.parametrize(
    ("host", "login"),
    [
        ("bmc-7", ("seven", "of-seven")),
        ("BMC-7", ("seven", "of-seven")),
        ("bmc-7:623", ("seven", "of-seven")),
        ("https://bmc-7:8443", ("seven", "of-seven")),
        ("bmc-8", ("eight", "of eight")),
        ("10.0.0.9:6230", ("nine", "of-nine")),
        ("fe80::7", ("v6", "of-v6")),
        ("[fe80::7]:623", ("v6", "of-v6")),
    ],
)
def test_the_entry_of_the_host_is_taken(tmp_path: Path, host: str, login: tuple[str, str]) -> None:
    file = netrc(tmp_path, ENTRIES)
    assert find_login("ipmi", host, environ=NOBODY, netrc=file) == login


@pytest.mark.parametrize("host", ["bmc", "bmc-70", "10.0.0.9", "10.0.0.9:623", "seven", "["])
def test_entries_of_other_hosts_are_not_taken(tmp_path: Path, host: str) -> None:
    file = netrc(tmp_path, ENTRIES)
    assert "needs a user and a password" in refused("ipmi", host, environ=NOBODY, netrc=file)


def test_the_default_entry_is_for_all_other_hosts(tmp_path: Path) -> None:
    file = netrc(tmp_path, ENTRIES + "default login any password of-any\n")
    found = [find_login("ipmi", h, environ=NOBODY, netrc=file) for h in ("bmc-7", "bmc-1")]
    assert found == [("seven", "of-seven"), ("any", "of-any")]


def test_the_file_is_the_named_one_or_that_of_the_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".netrc").write_text("machine bmc login usual password x\n")
    (home / ".netrc").chmod(0o600)
    named = netrc(tmp_path, "machine bmc login named password x\n")
    environ = {"HOME": str(home)}
    assert find_login("ipmi", "bmc", environ=environ).user == "usual"
    environ["PPW_NETRC"] = str(named)
    assert find_login("ipmi", "bmc", environ=environ).user == "named"


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o604, 0o602, 0o644, 0o601])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    file = netrc(tmp_path, f"machine bmc login ppw password {SECRET}\n", mode)
    message = refused("ipmi", "bmc", environ=NOBODY, netrc=file)
    assert message == f"netrc file {file}: others may read it: `chmod 600 {file}`"


def test_a_file_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = netrc(tmp_path, f"machine bmc login ppw password {SECRET}\n")
    us = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    message = refused("ipmi", "bmc", environ=NOBODY, netrc=file)
    assert f"belongs to user id {us} and not to you: `chown {us + 1} {file}`" in message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"machine bmc login ppw password my {SECRET}\n", 2),
        (f"{SECRET}\n", 2),
        (f"machine bmc\nlogin ppw\npasswort {SECRET}\n", 4),
        (f"machine bmc login ppw\n{SECRET} password x", 3),
        (f"macdef init\nsend {SECRET}", 3),
    ],
)
def test_a_file_with_a_mistake_is_named_by_its_line(tmp_path: Path, text: str, line: int) -> None:
    message = refused("ipmi", "bmc", environ=NOBODY, netrc=netrc(tmp_path, text))
    found = re.search(r"line (\d+) is not in the format `machine HOST login", message)
    assert found is not None
    assert abs(int(found[1]) - line) <= 1


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = netrc(tmp_path, "")
    file.write_bytes(f"machine bmc login ppw password {SECRET}".encode() + b"\xff\xfe\n")
    message = refused("ipmi", "bmc", environ=NOBODY, netrc=file)
    assert message == f"netrc file {file}: is not UTF-8 text"


@pytest.mark.parametrize("entry", ["machine bmc login ppw", f"machine bmc password {SECRET}"])
def test_half_an_entry_is_an_error(tmp_path: Path, entry: str) -> None:
    message = refused("ipmi", "bmc:623", environ=NOBODY, netrc=netrc(tmp_path, f"{entry}\n"))
    assert "the entry of bmc has no login or no password" in message


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    environ = {**NOBODY, "PPW_NETRC": str(missing)}
    message = refused("ipmi", "bmc", environ=environ)
    assert message == f"netrc file {missing}: is not there: correct PPW_NETRC or unset it"
    environ["PPW_NETRC"] = str(tmp_path)
    assert "is no file: correct PPW_NETRC" in refused("ipmi", "bmc", environ=environ)
    environ["PPW_NETRC"] = f"{netrc(tmp_path, '')}/within"
    assert "cannot be read" in refused("ipmi", "bmc", environ=environ)


# Nobody knows.


@pytest.mark.parametrize("environ", [NOBODY, {}, {"HOME": ""}])
def test_all_three_ways_are_named_where_there_is_no_login(environ: dict[str, str]) -> None:
    message = refused("ipmi", "bmc-7:6230", environ=environ)
    assert message.startswith("ipmi at bmc-7 needs a user and a password: ")
    assert "set PPW_IPMI_USER and PPW_IPMI_PASSWORD, " in message
    assert "`machine bmc-7 login USER password PASSWORD` to " in message
    assert ".netrc (chmod 600)" in message
    assert message.endswith("or run from a terminal to be asked")


def test_a_password_in_the_address_is_not_repeated() -> None:
    for host in (f"https://ppw:{SECRET}@bmc", f"ppw:{SECRET}@bmc:623", f"ppw:[{SECRET}@bmc"):
        assert "at bmc needs" in refused("redfish", host, environ=NOBODY)


def test_the_prompt_is_asked_last() -> None:
    login = find_login("ipmi", "bmc:623", environ=NOBODY, prompt=lambda *asked: Login(*asked))
    assert login == ("ipmi", "bmc:623")


# The terminal.


def test_there_is_nobody_to_ask_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open() as nowhere:
        monkeypatch.setattr(sys, "stdin", nowhere)
        assert terminal_prompt() is None


ASKING = """
from measurements.power.credentials import find_login, terminal_prompt
from measurements.power.protocol import SensorError
try:
    login = find_login("ipmi", "bmc:623", environ={}, prompt=terminal_prompt())
except SensorError as error:
    print("refused:", error)
else:
    print(repr(login), len(login.password))
"""


def at_terminal(*typed: str) -> str:
    """What a terminal shows when each text is typed at the question that ends with a colon."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", ASKING],
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as asking:
        os.close(theirs)
        shown, answers = "", list(typed)
        deadline = time.monotonic() + 30.0
        while time.monotonic() < deadline:
            try:
                shown += os.read(ours, 1024).decode()
            except OSError:  # the other end is closed
                break
            if shown.endswith(": ") and answers:
                os.write(ours, answers.pop(0).encode())
        else:
            asking.kill()
    os.close(ours)
    assert asking.returncode == 0, shown
    return shown


def test_a_password_is_typed_unseen() -> None:
    shown = at_terminal("ppw\n", f"{SECRET}\n")
    assert shown.startswith("User of ipmi at bmc: ppw")
    assert "Password: " in shown
    assert f"Login(user='ppw', password=…) {len(SECRET)}" in shown
    assert SECRET not in shown


@pytest.mark.parametrize("typed", [("\n",), ("ppw\n", "\n"), ("\x04",), ("ppw\n", "\x04")])
def test_an_empty_answer_gives_up(typed: tuple[str, ...]) -> None:
    shown = at_terminal(*typed)
    assert "refused: ipmi at bmc: no user and password were given" in shown
