"""Run the tests that need real peers: ``make system``, or ``make system PEER=memcached`` for some.

Peers and their Debian packages stand in system.toml. On Debian, root installs what is missing.
Elsewhere a line names it, the groups that can run do, and the exit code is 1 unless
ALLOW_MISSING=1 is set.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

TESTS = Path(__file__).resolve().parent
TABLE = tomllib.loads((TESTS / "system.toml").read_text(encoding="utf-8"))
PEERS, PACKAGES = TABLE["peers"], TABLE["packages"]


def main() -> int:
    """Install or name what is missing, and run the groups that can run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peer", action="append", choices=sorted(PEERS))
    parser.add_argument("options", nargs="*", help="options of pytest, behind --")
    asked = parser.parse_args()
    # Debian keeps the programs of administrators there.
    os.environ["PATH"] += os.pathsep + os.pathsep.join(("/usr/sbin", "/sbin"))
    names = asked.peer or list(PEERS)
    absent = missing(names)
    if absent and os.geteuid() == 0 and shutil.which("apt-get"):
        install(absent)
        absent = missing(names)
    if absent:
        wanted = ", ".join(f"{name} ({PACKAGES[name]['use']})" for name in absent)
        print(f"Not installed, by the names of Debian's packages: {wanted}", flush=True)
    able = [name for name in names if not set(PEERS[name]) & set(absent)]
    left_out = [name for name in names if name not in able]
    code = run(able, asked.options) if able else 0
    if left_out:
        print(f"Not run, for want of packages: {', '.join(left_out)}")
    return code or int(bool(left_out) and os.environ.get("ALLOW_MISSING") != "1")


def missing(names: list[str]) -> list[str]:
    """Packages that groups need and that are not here."""
    needed = dict.fromkeys(package for name in names for package in PEERS[name])
    return [package for package in needed if not _is_here(PACKAGES[package])]


def _is_here(package: dict[str, str]) -> bool:
    if "program" in package:
        return shutil.which(package["program"]) is not None
    if "file" in package:
        return Path(package["file"]).exists()
    return os.geteuid() == 0


def install(packages: list[str]) -> None:
    """Install Debian packages; apt's own words are shown where it fails."""
    print(f"Installing {' '.join(packages)}", flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    how = {"env": quiet, "capture_output": True, "text": True, "check": False}
    wanted = ["install", "-y", "-qq", "--no-install-recommends", *packages]
    for words in (["update", "-qq"], wanted):
        done = subprocess.run(["apt-get", *words], **how)
        if done.returncode:
            sys.exit(f"apt-get {' '.join(words)} failed:\n{done.stdout}{done.stderr}")


def run(names: list[str], options: list[str]) -> int:
    """Run the tests of groups, three files at a time: some wait for a peer."""
    chosen = [word for name in names for word in ("--peer", name)]
    at_once = ["-n", "3", "--dist", "loadfile"]
    words = ["-m", "pytest", "-m", "peer and not slow", *at_once, *chosen, *options]
    return subprocess.run([sys.executable, *words], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
