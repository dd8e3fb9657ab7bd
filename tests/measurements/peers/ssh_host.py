"""Another host by SSH: OpenSSH's own server on a free port of the loopback, and its client."""

import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from peers.hadoop import program
from peers.waiting import wait_for

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


class SshHost:
    """Host "elsewhere" for every ssh that finds `path` first; it has the ppw of this checkout."""

    def __init__(self, folder, modules):
        self.folder, self.there = folder, folder / "there"
        # Where the other side keeps sweeps.
        self.cache = folder / "cache" / "ppw"
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        program(folder / "bin", "ssh", f'exec {shutil.which("ssh")} -F {folder}/client "$@"')
        self.path = f"{folder / 'bin'}:{os.environ['PATH']}"
        for name in ("host_key", "user_key"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name]
            subprocess.run(key, check=True)
        # The server gives its sessions no more than it is told to.
        coverage = [f"{k}={shlex.quote(v)}" for k, v in os.environ.items() if "COVERAGE" in k]
        ppw = f'{" ".join(coverage)} exec {sys.executable} -m ppw "$@"'
        self.ppw = program(self.there, "ppw", ppw)
        # Without a ppw that is installed here.
        paths = [f for f in os.get_exec_path() if shutil.which("ppw", path=f) is None]
        names = {"port": self._port, "folder": folder, "modules": modules}
        path = ":".join([str(self.there), *paths])
        (folder / "server").write_text(_SERVER.format(**names, path=path))
        (folder / "client").write_text(_CLIENT.format(**names))

    def _listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def __enter__(self):
        # It wants a folder to drop its privileges in, which systemd makes elsewhere.
        Path("/run/sshd").mkdir(exist_ok=True)
        server = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        command = [server, "-D", "-e", "-f", self.folder / "server"]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_for(self._listens)
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(60)
