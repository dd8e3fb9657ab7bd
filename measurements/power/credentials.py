"""Users and passwords of devices: from the environment, a netrc file or a terminal.

They never come from a command line, and no message repeats what was read.
"""

import getpass
import netrc as netrc_format
import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from measurements.power.redfish_client import parse_origin
from measurements.power.source import Login, SensorError, Spec

Prompt = Callable[[str, str], Login]

NETRC_VARIABLE = "PPW_NETRC"
# By kind of source: how its credentials are called, and whether it may work without.
_NEEDS = {"ipmi": ("ipmi", False), "ipmi:ipmitool": ("ipmi", False), "redfish": ("redfish", True)}


def logins_for(specs: Iterable[Spec]) -> list[tuple[str, str, Login]]:
    """Find kind, address and login of each source that needs a login, before any measurement."""
    found = []
    for spec in specs:
        if spec.where is None or spec.kind not in _NEEDS:
            continue
        kind, is_optional = _NEEDS[spec.kind]
        # The source asks by the same name.
        host = parse_origin(spec.where).host if kind == "redfish" else spec.where
        try:
            found.append((kind, host, find_login(kind, host, prompt=terminal_prompt())))
        except SensorError:
            if not is_optional:
                raise
    return found


def find_login(
    kind: str,
    host: str,
    *,
    environ: Mapping[str, str] = os.environ,
    netrc: Path | None = None,
    prompt: Prompt | None = None,
) -> Login:
    """Find the login of a device; the first of these wins.

    1. ``PPW_<KIND>_USER`` and ``PPW_<KIND>_PASSWORD`` of the environment;
    2. the entry ``machine HOST login USER password PASSWORD`` of a netrc file, for the whole
       address, else for its host, else ``default``; the file must be the user's own and private;
    3. the prompt.

    ``kind`` is what is logged in to ("ipmi" or "redfish"), ``host`` its address as the user wrote
    it, perhaps with a port and a scheme. ``netrc`` is by default the file that ``PPW_NETRC`` names,
    or ``~/.netrc``; ``prompt`` is as `terminal_prompt` gives it, None if nobody can be asked.
    Raises `SensorError` when there is no login, with the three ways to give one, or an unusable
    one.
    """
    user_variable, password_variable = f"PPW_{kind.upper()}_USER", f"PPW_{kind.upper()}_PASSWORD"
    user, password = environ.get(user_variable, ""), environ.get(password_variable, "")
    if user and password:
        return Login(user, password)
    if user or password:
        both = (user_variable, password_variable)
        there, missing = both if user else reversed(both)
        raise SensorError(f"{there} is set and {missing} is not: set both or neither")
    named = environ.get(NETRC_VARIABLE)
    file = netrc or Path(named or Path(environ.get("HOME") or "/", ".netrc"))
    if login := _find_login_in_netrc(file, host, must_exist=bool(netrc or named)):
        return login
    if prompt is not None:
        return prompt(kind, host)
    raise SensorError(
        f"{kind} at {_host_of(host)} needs a user and a password: set {user_variable} and "
        f"{password_variable}, or add `machine {_host_of(host)} login USER password PASSWORD` to "
        f"{file} (chmod 600), or run from a terminal to be asked"
    )


def terminal_prompt() -> Prompt | None:
    """Return a prompt that hides the password; None without a terminal."""
    return _ask_at_terminal if sys.stdin.isatty() and sys.stderr.isatty() else None


def _ask_at_terminal(kind: str, host: str) -> Login:
    try:
        print(f"User of {kind} at {_host_of(host)}: ", end="", file=sys.stderr, flush=True)
        user = sys.stdin.readline().strip()
        with warnings.catch_warnings():
            # A terminal whose echo cannot be switched off would show the password.
            warnings.simplefilter("error", getpass.GetPassWarning)
            password = getpass.getpass("Password: ", sys.stderr) if user else ""
    except (EOFError, OSError, getpass.GetPassWarning):
        password = ""  # nosec B105  # none was given
    if not password:
        raise SensorError(f"{kind} at {_host_of(host)}: no user and password were given")
    return Login(user, password)


def _find_login_in_netrc(file: Path, address: str, *, must_exist: bool) -> Login | None:
    # Raised outside of any `except`: the parser's errors repeat what they read.
    entries, problem = _read_netrc(file, must_exist=must_exist)
    if problem:
        raise SensorError(f"netrc file {file}: {problem}")
    host = _host_of(address)
    machine = next((m for m in (address.lower(), host, "default") if m in entries), None)
    if machine is None:
        return None
    user, _, password = entries[machine]
    if not user or not password:
        raise SensorError(
            f"netrc file {file}: the entry of {machine} has no login or no password: write "
            f"`machine {host} login USER password PASSWORD`"
        )
    return Login(user, password)


def _read_netrc(file: Path, *, must_exist: bool) -> tuple[dict[str, tuple[str, str, str]], str]:
    """Read the entries by machine in lower case, or why the file cannot be used."""
    try:
        if problem := _why_unsafe(file):
            return {}, problem
        # Bytes that are no text stay out of the parser, whose errors would show them.
        file.read_text(encoding="utf-8")
        hosts = netrc_format.netrc(file).hosts
        return {name.lower(): entry for name, entry in hosts.items()}, ""
    except FileNotFoundError:
        return {}, f"is not there: correct {NETRC_VARIABLE} or unset it" if must_exist else ""
    except OSError as error:
        return {}, f"cannot be read ({error.strerror}): make it yours and `chmod 600 {file}`"
    except UnicodeDecodeError:
        return {}, "is not UTF-8 text"
    except netrc_format.NetrcParseError as error:
        return {}, f"line {error.lineno} is not in the format `machine HOST login … password …`"


def _why_unsafe(file: Path) -> str:
    """Say why a file of passwords must not be trusted; empty if it may be."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        return f"is no file: correct {NETRC_VARIABLE} or unset it"
    if status.st_uid != os.geteuid():
        return (
            f"belongs to user id {status.st_uid} and not to you: "
            f"`chown {os.geteuid()} {file}` or name another by {NETRC_VARIABLE}"
        )
    return f"others may read it: `chmod 600 {file}`" if status.st_mode & 0o077 else ""


def _host_of(address: str) -> str:
    """Return the host in lower case, of ``bmc:623``, ``[fe80::1]:623`` or ``https://bmc:8443``."""
    # The part before an @ may be a password, and is no part of the host.
    host = address.lower().rpartition("@")[2]
    if host.count(":") > 1 and "[" not in host and "//" not in host:
        return host  # an IPv6 address alone
    try:
        return urlsplit(host if "//" in host else f"//{host}").hostname or host
    except ValueError:
        return host
