"""Java, and Hadoop's jars, which Maven brings once into the user's cache."""

import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from measurements.errors import MeasurementError
from measurements.processes import cleanup_process, programs

INSTALL = "apt install default-jdk-headless maven, or their like"
# Older ones do not know options of this module; newer ones lack Subject.getSubject of Hadoop 3.4.
OLDEST, NEWEST = 11, 22
# Otherwise every JVM leaves a folder in /tmp.
NO_PERF_DATA = "-XX:-UsePerfData"
# Hadoop looks into classes that newer Javas close. The rest keeps it from listening on other
# addresses, and its clock at UTC, which `read_local_log` takes it for.
OPTIONS = (
    *("--add-opens", "java.base/java.lang=ALL-UNNAMED"),
    *("--add-opens", "java.base/java.util=ALL-UNNAMED"),
    *(NO_PERF_DATA, "-Djava.net.preferIPv4Stack=true", "-Duser.timezone=UTC"),
)
_VERSION = re.compile(r'version "(?P<all>(?:1\.)?(?P<major>\d+)[^"]*)"')


class Java(NamedTuple):
    """A Java that can run Hadoop: its home, its program, and its version (17.0.15)."""

    home: Path
    program: str
    version: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Find the Java of ``JAVA_HOME``, else of the path; refuse one that Hadoop does not run on."""
    home = environment.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    if program is None or not os.access(program, os.X_OK):
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "java is not on the path"
        raise MeasurementError(f"{where}: {INSTALL}")
    done = programs.ask([program, NO_PERF_DATA, "-version"])
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


VERSION = "3.4.2"
# The cluster in one process is a class of Hadoop's own tests, which needs their libraries.
_DEPENDENCIES = (
    ("org.apache.hadoop", "hadoop-minicluster", VERSION),
    ("org.apache.hadoop", "hadoop-mapreduce-examples", VERSION),
    ("junit", "junit", "4.13.2"),
    ("org.mockito", "mockito-core", "4.11.0"),
)
_PLUGIN = "3.6.1"
# Written last: a folder without it is not whole.
_LIST = "jars.txt"
_DOWNLOAD = "about 104 MB, by Maven"


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Folder of the jars, under ``PPW_CACHE_DIR`` or else the user's cache folder."""
    named = environment.get("PPW_CACHE_DIR")
    if named:
        return Path(named) / f"hadoop-{VERSION}"
    home = environment.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(home) / "ppw" / f"hadoop-{VERSION}"


def find_jars(environment: Mapping[str, str] = os.environ) -> Path:
    """Folder with all of Hadoop's jars. Raises `MeasurementError` when some are missing."""
    folder = cache_folder(environment)
    if not _is_complete(folder):
        raise MeasurementError(
            f"Hadoop {VERSION} is not in {folder}: install it with ppw run hadoop "
            f"--setup ({_DOWNLOAD})"
        )
    return folder


def set_up(
    environment: Mapping[str, str] = os.environ, *, tell: Callable[[str], None] | None = None
) -> Path:
    """Download missing jars by the user's Maven settings alone; returns their folder."""
    find_java(environment)
    folder = cache_folder(environment)
    if _is_complete(folder):
        return folder
    maven = find_maven(environment)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MeasurementError(
            f"{folder.parent}: cannot be made: {error.strerror}: name another folder by "
            "PPW_CACHE_DIR"
        ) from error
    if tell is not None:
        tell(f"bringing Hadoop {VERSION} ({_DOWNLOAD}): one or more minutes, by the network")
    with cleanup_process.CleanupProcess() as reaper:
        scratch = reaper.folder(folder.parent)
        brought = _copy_jars(maven, scratch, {**reaper.environment(), **environment})
        # What is there is not whole.
        shutil.rmtree(folder, ignore_errors=True)
        try:
            brought.rename(folder)
        except OSError:
            # Somebody else has just brought them.
            if not _is_complete(folder):
                raise
    return folder


def _copy_jars(maven: str, scratch: Path, environment: Mapping[str, str]) -> Path:
    """Let Maven copy all jars to a folder inside ``scratch``; returns it."""
    target = scratch / "jars"
    (scratch / "pom.xml").write_text(_maven_project_text(), encoding="utf-8")
    goal = f"org.apache.maven.plugins:maven-dependency-plugin:{_PLUGIN}:copy-dependencies"
    command = [
        *(maven, "--batch-mode", "--quiet", "--strict-checksums", "--no-transfer-progress"),
        f"-Dmaven.repo.local={scratch / 'repository'}",
        *(goal, f"-DoutputDirectory={target}"),
    ]
    options = f"{environment.get('MAVEN_OPTS', '')} {NO_PERF_DATA}"
    done = programs.ask(command, environment={**environment, "MAVEN_OPTS": options}, folder=scratch)
    jars = sorted(target.glob("*.jar"))
    wanted = [name for _, name, _ in _DEPENDENCIES]
    missing = [n for n in wanted if not any(jar.name.startswith(f"{n}-") for jar in jars)]
    if done.returncode or missing:
        said = _failure_reason(done.stdout + done.stderr, done.returncode, missing)
        raise MeasurementError(f"mvn could not download Hadoop {VERSION}: {said}")
    listed = "".join(f"{jar.stat().st_size} {jar.name}\n" for jar in jars)
    (target / _LIST).write_text(listed, encoding="utf-8")
    return target


def _failure_reason(log: str, code: int, missing: list[str]) -> str:
    for line in log.splitlines():
        if line.startswith("[ERROR]") and len(line) > len("[ERROR] "):
            return f"{line.removeprefix('[ERROR]').strip()[:400]}: is the network there?"
    if missing:
        return f"it brought no {', '.join(missing)}"
    return f"it ended with exit code {code} and gave no reason"


def _maven_project_text() -> str:
    """A Maven project with nothing but the dependencies."""
    dependencies = "\n".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in _DEPENDENCIES
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>ppw</groupId>"
        "<artifactId>hadoop</artifactId><version>1</version>\n"
        f"<dependencies>\n{dependencies}\n</dependencies></project>\n"
    )


def _is_complete(folder: Path) -> bool:
    try:
        lines = (folder / _LIST).read_text(encoding="utf-8").splitlines()
        listed = [line.split(" ", 1) for line in lines]
        return bool(listed) and all(
            (folder / name).stat().st_size == int(size) for size, name in listed
        )
    except (OSError, ValueError):
        return False
