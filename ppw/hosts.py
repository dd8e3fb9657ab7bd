"""The host catalogue: what makers state about the machines that users compare.

A host is one TOML file (docs/catalogue.md). Every figure carries its source; a figure that no
source states is absent, never 0.
"""

from __future__ import annotations

import difflib
import os
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from ppw.errors import PpwError, UnknownHostError
from ppw.host import Figure, Host, host_steps
from ppw.host_files import parse_host

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Figure", "Host", "find_host", "host_steps", "load_hosts"]

HOSTS_DIR_VARIABLE = "PPW_HOSTS_DIR"


def load_hosts(*directories: str | os.PathLike[str]) -> dict[str, Host]:
    """Load the built-in catalogue and the user's own host files.

    Parameters
    ----------
    *directories : path
        Folders with ``*.toml`` host files. A host overrides one of the same name (but for
        case, spaces and hyphens) that came before: built-in, then the folders in the
        environment variable ``PPW_HOSTS_DIR`` (joined as in ``PATH``), then these, in order.

    Returns
    -------
    dict of str to Host
        Hosts by name.

    Raises
    ------
    PpwError
        If a folder is missing or a file is malformed; the message names file and key.
    """
    hosts = {_plain(host.name): host for host in _builtin_hosts()}
    for directory in (*_environment_directories(), *map(Path, directories)):
        hosts |= {_plain(host.name): host for host in _read_directory(directory)}
    return {host.name: host for host in hosts.values()}


def find_host(name: str, *directories: str | os.PathLike[str]) -> Host:
    """Find one host, whatever the case, spaces and hyphens of its name.

    Parameters
    ----------
    name : str
        ``"Xeon X5670"``, ``"Intel Xeon X5670"`` or, where only one host ends so, ``"x5670"``.
    *directories : path
        As in :func:`load_hosts`.

    Returns
    -------
    Host
        A machine of the catalogue. A figure that is not known is None; all are of one package.

    Raises
    ------
    UnknownHostError
        If no host has that name; the message suggests the nearest.
    PpwError
        As in :func:`load_hosts`.
    """
    hosts = load_hosts(*directories)
    wanted = _plain(name)
    for place in range(3):
        found = [host for host in hosts.values() if _spellings(host)[place] == wanted]
        if len(found) == 1:
            return found[0]
    raise UnknownHostError(_unknown_host(name, hosts))


@cache
def _builtin_hosts() -> tuple[Host, ...]:
    folder = files("ppw").joinpath("catalogue")
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    toml = (entry for entry in entries if entry.name.endswith(".toml"))
    return tuple(parse_host(entry.read_bytes(), entry.name) for entry in toml)


def _environment_directories() -> list[Path]:
    listed = os.environ.get(HOSTS_DIR_VARIABLE, "")
    return [Path(part) for part in listed.split(os.pathsep) if part]


def _read_directory(directory: Path) -> Iterator[Host]:
    if not directory.is_dir():
        raise PpwError(f"{directory}: no such folder of host files; give one that exists")
    for path in sorted(directory.glob("*.toml")):
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise PpwError(f"{path}: {error.strerror}; give a file that can be read") from error
        yield parse_host(raw, str(path))


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).casefold()


def _spellings(host: Host) -> tuple[str, str, str]:
    last_word = host.name.split()[-1]
    return _plain(host.name), _plain(host.maker + host.name), _plain(last_word)


def _unknown_host(name: str, hosts: Mapping[str, Host]) -> str:
    spelt = {spelling: host.name for host in hosts.values() for spelling in _spellings(host)}
    near = difflib.get_close_matches(_plain(name), spelt, n=3, cutoff=0.5)
    names = list(dict.fromkeys(spelt[key] for key in near)) or sorted(hosts)
    return (
        f"host {name!r} is not in the catalogue; nearest: {', '.join(names)}; "
        f"or add a TOML file of your own and name its folder in {HOSTS_DIR_VARIABLE}"
    )
