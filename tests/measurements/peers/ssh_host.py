"""Another host by SSH: OpenSSH's own server on a free port of the loopback, and its client."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

_SERVER = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
SetEnv PATH={path} PYTHONPATH={modules} XDG_CACHE_HOME={folder}/cache
"""
_CLIENT = """
Host elsewhere
    HostName 127.0.0.1
    Port {port}
    IdentityFile {folder}/user_key
    UserKnownHostsFile {folder}/known_hosts
    StrictHostKeyChecking accept-new
    LogLevel ERROR
"""


def _has_ppw(folder: str) -> bool:
    return shutil.which("ppw", path=folder) is not None


class SshHost:
    """Host "elsewhere" for every ssh that finds `path` first; it has the ppw of this checkout."""

    def __init__(self, folder: Path, modules: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        for name in ("host_key", "user_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True
            )
        self.bin = folder / "bin"
        self._script("ssh", f'exec {shutil.which("ssh")} -F {folder}/client "$@"')
        there = folder / "there"
        # The server gives its sessions no more than it is told to.
        coverage = [f"{k}={shlex.quote(v)}" for k, v in os.environ.items() if "COVERAGE" in k]
        self._script("ppw", f'{" ".join(coverage)} exec {sys.executable} -m ppw "$@"', there)
        text = _SERVER.format(
            port=self._port,
            folder=folder,
            # Without a ppw that is installed here.
            path=":".join([str(there), *(f for f in os.get_exec_path() if not _has_ppw(f))]),
            modules=modules,
        )
        (folder / "server").write_text(text)
        (folder / "client").write_text(_CLIENT.format(port=self._port, folder=folder))
        self.there = there

    @property
    def path(self) -> str:
        """PATH with which ssh reaches the host."""
        return f"{self.bin}:{os.environ['PATH']}"

    @property
    def cache(self) -> Path:
        """Where the other side keeps sweeps."""
        return self.folder / "cache" / "ppw"

    def _script(self, name: str, text: str, folder: Path | None = None) -> None:
        file = (folder or self.bin) / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def __enter__(self) -> SshHost:
        # It wants a folder to drop its privileges in, which systemd makes elsewhere.
        Path("/run/sshd").mkdir(exist_ok=True)
        server = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        self._process = subprocess.Popen(
            [str(server), "-D", "-e", "-f", self.folder / "server"], stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                return self
            except ConnectionRefusedError:
                assert time.monotonic() < until, "sshd does not listen"
                time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)
