"""Find, compile and run small programs."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from measurements.errors import MeasurementError

COMPILERS = ("cc", "gcc", "clang")
# Debian's package of a program, where its name is another.
_PACKAGES = {
    "memcaslap": "libmemcached-tools",
    "memaslap": "libmemcached-tools",
    "memtier_benchmark": "memtier-benchmark",
}
_TIMEOUT_S = 60.0
_INSTALL = "apt install gcc libc6-dev, or its like"


def environment_without_secrets() -> dict[str, str]:
    """Return the environment for a measured command: without the logins of devices."""
    return {
        name: value
        for name, value in os.environ.items()
        if not (name.startswith(("PPW_", "IPMI")) and name.endswith(("_PASSWORD", "_USER")))
    }


def ask(
    command: Sequence[str],
    *,
    timeout_s: float | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program without input to its end; its output and messages as text, its exit code.

    Environment and folder are this process's by default. Raises OSError when it cannot be started,
    and subprocess.TimeoutExpired when it takes longer; it is killed then.
    """
    return subprocess.run(  # nosec B603  # for callers, whose words are a list
        list(command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        env=None if environment is None else dict(environment),
        cwd=folder,
        check=False,
    )


def run_or_refuse(
    command: Sequence[str],
    wrong: str,
    *,
    remedy: str = "",
    timeout_s: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a program as `ask` does; return its output.

    Raises `MeasurementError` where it cannot be started, takes longer, or fails: ``wrong``, what
    the program says, and the ``remedy``.
    """
    try:
        done = ask(command, timeout_s=timeout_s, environment=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeasurementError(f"{wrong}: {error}{remedy}") from error
    if done.returncode:
        raise MeasurementError(f"{wrong}: {complaint(done.stderr or done.stdout)}{remedy}")
    return done.stdout


def find_program(name: str) -> str:
    """Find a program. Raises `MeasurementError` with what to install where it is missing."""
    path = shutil.which(name)
    if path is None:
        raise MeasurementError(
            f"the program {name} is not there: apt install "
            f"{_PACKAGES.get(name, name)}, or the equivalent of your distribution"
        )
    return path


def find_first(names: Sequence[str]) -> str | None:
    """Find the first of several programs; None where none is there."""
    return next((path for name in names if (path := shutil.which(name))), None)


def find_compiler(compilers: Sequence[str] = COMPILERS) -> str:
    """Find the first compiler that is there. Raises `MeasurementError` where none is."""
    compiler = find_first(compilers)
    if compiler is None:
        raise MeasurementError(f"no C compiler on this host: {_INSTALL}")
    return compiler


def compile_c(
    package: str,
    source: str,
    into: Path,
    *,
    flags: Sequence[str] = (),
    libraries: Sequence[str] = (),
    compilers: Sequence[str] = COMPILERS,
) -> Path:
    """Compile a C file of a package into a program or shared object, and return its path."""
    compiler = find_compiler(compilers)
    with resources.as_file(resources.files(package) / source) as path:
        command = [compiler, "-std=gnu11", "-O2", *flags, "-o", str(into), str(path), *libraries]
        limits: dict[str, Any] = {"timeout_s": _TIMEOUT_S, "remedy": f": {_INSTALL}"}
        limits["environment"] = {**os.environ, "LC_ALL": "C"}
        run_or_refuse(command, f"{compiler} cannot make {source}", **limits)
    return into


def last_line(printed: str) -> str:
    """Return the last line with text, cut to 160 characters, or "it printed nothing"."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "it printed nothing"


def complaint(messages: str) -> str:
    """Return the first of a program's messages that is of an error, else the first."""
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line]
    return [*errors, *lines, "it says nothing"][0][:160]
