"""The Java that runs Hadoop: where it is, which version, and with which options."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Mapping

INSTALL = "apt install default-jdk-headless maven, or their like"
# Below, options that this module gives are unknown; above, Hadoop 3.4 calls what was taken away
# (Subject.getSubject).
OLDEST, NEWEST = 11, 22

# Every JVM leaves a folder in /tmp else.
NO_PERF_DATA = "-XX:-UsePerfData"
# Hadoop looks into classes that newer Javas close; the rest keeps it from listening on addresses
# that it was not told, and its clock that of `local_log`.
OPTIONS = (
    *("--add-opens", "java.base/java.lang=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.util=ALL-UNNAMED"),
    *(NO_PERF_DATA, "-Djava.net.preferIPv4Stack=true", "-Duser.timezone=UTC"),
)
_VERSION = re.compile(r'version "(?P<all>(?:1\.)?(?P<major>\d+)[^"]*)"')


class Java(NamedTuple):
    """A Java that can run Hadoop: its home, its program, and its version, such as 17.0.15."""

    home: Path
    program: str
    version: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Find the Java of ``JAVA_HOME``, else that of the path.

    Raises
    ------
    MeasurementError
        When there is none, or one that does not run Hadoop 3.4.
    """
    home = environment.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    if program is None or not os.access(program, os.X_OK):
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "java is not on the path"
        raise MeasurementError(f"{where}: {INSTALL}")
    done = subprocess.run(
        [program, NO_PERF_DATA, "-version"], capture_output=True, text=True, check=False
    )
    match = _VERSION.search(done.stderr + done.stdout)
    if match is None:
        raise MeasurementError(f"{program} -version does not say its version: {INSTALL}")
    if not OLDEST <= int(match["major"]) <= NEWEST:
        raise MeasurementError(
            f"{program} is Java {match['all']}, and Hadoop 3.4 runs here on {OLDEST} to {NEWEST}: "
            "install one of these, as in apt install openjdk-17-jdk-headless, and set JAVA_HOME "
            "to its home"
        )
    return Java(Path(program).resolve().parent.parent, program, match["all"])


def find_maven(environment: Mapping[str, str] = os.environ) -> str:
    """Path of Maven. Raises `MeasurementError` where it is missing."""
    program = shutil.which("mvn", path=environment.get("PATH"))
    if program is None:
        raise MeasurementError(f"mvn is not on the path: {INSTALL}")
    return program
