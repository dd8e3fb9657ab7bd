"""Small programs that are asked something and answer by text."""

from __future__ import annotations

import shutil
import subprocess
from importlib import resources
from typing import TYPE_CHECKING

from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def ask(
    command: Sequence[str],
    *,
    timeout_s: float | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program without input to its end; its output and messages as text, its exit code.

    Parameters
    ----------
    command : sequence of str
    timeout_s : float, optional
        It is killed after that.
    environment : mapping, optional
    folder : Path, optional
        To run in; these two are this process's by default.

    Raises
    ------
    OSError
        When it cannot be started.
    subprocess.TimeoutExpired
        When it takes longer.
    """
    return subprocess.run(
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


# Small C programs of this package, compiled on the host that they measure.


COMPILERS = ("cc", "gcc", "clang")
_TIMEOUT_S = 60.0
_INSTALL = "apt install gcc libc6-dev, or its like"


def find_compiler(compilers: Sequence[str] = COMPILERS) -> str:
    """Path of the first compiler that is there. Raises `MeasurementError` where none is."""
    compiler = next((found for name in compilers if (found := shutil.which(name))), None)
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
    """Compile a source file of a package; returns the program or shared object.

    Parameters
    ----------
    package, source : str
        Package and file name of the source.
    into : Path
        File to write.
    flags, libraries : sequence of str
        Of the compiler, before and after the source.
    compilers : sequence of str
        Programs to try; the first that is there is taken.

    Raises
    ------
    MeasurementError
        When there is no compiler, or it cannot make programs.
    """
    compiler = find_compiler(compilers)
    with resources.as_file(resources.files(package) / source) as path:
        command = [compiler, "-std=gnu11", "-O2", *flags, "-o", str(into), str(path), *libraries]
        try:
            done = ask(command, timeout_s=_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MeasurementError(f"{compiler} cannot be run: {error}: {_INSTALL}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line]
        said = (lines or done.stderr.splitlines() or ["it says nothing"])[0]
        raise MeasurementError(f"{compiler} cannot make {source}: {said[:160]}: {_INSTALL}")
    return into


# Programs that a workload needs, and what to install where one is missing.


# Packages by program, where Debian's name and those of others differ both.
PACKAGES = {
    "memcached": "memcached",
    "memcaslap": "libmemcached-tools",
    "memaslap": "libmemcached-tools",
    "memtier_benchmark": "memtier-benchmark",
    "fio": "fio",
    "valgrind": "valgrind",
}


def find_program(name: str) -> str:
    """Path of a program. Raises `MeasurementError` with what to install where it is missing."""
    path = shutil.which(name)
    if path is None:
        raise MeasurementError(
            f"the program {name} is not there: apt install {PACKAGES.get(name, name)}, or its like"
        )
    return path


def find_first(names: Sequence[str]) -> str | None:
    """Path of the first of several names of one program; None where none is there."""
    return next((path for name in names if (path := shutil.which(name))), None)
