"""Small C programs of this package, compiled on the host that they measure."""

from __future__ import annotations

import shutil
import subprocess
from importlib import resources
from typing import TYPE_CHECKING

from measurements.asking import ask
from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
