"""`ppw measure --ssh HOST`: the same sweep by a ppw on another host, its runs kept here."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measurements.errors import MeasurementError
from measurements.sweep.loop import default_folder
from measurements.sweep.session import check_writable

if TYPE_CHECKING:
    from collections.abc import Sequence

# A sweep of that host is kept there until it is whole and has been fetched.
_FOLDER = '"${XDG_CACHE_HOME:-$HOME/.cache}/ppw/%s"'


def measure_on(host: str, arguments: Sequence[str], output: str | None) -> int:
    """Measure on ``host`` as ``arguments`` (of this `ppw measure`) say.

    The table is written here after each run, and the raw readings are fetched at the end. What
    the other ppw says on standard error goes to ours. Raises `MeasurementError` when the host
    cannot be reached, has no ppw, or its sweep failed.
    """
    if not output or output == "-":
        raise MeasurementError("--ssh needs -o FILE: where is the table to go here?")
    target = Path(output)
    check_writable(target)
    text = f"{socket.gethostname()}:{target.resolve()}"
    name = f"{target.stem}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
    folder = _FOLDER % name
    asked = shlex.join(["ppw", "measure", "-o", "runs.jsonl", "--stream", *_passed_on(arguments)])
    script = f"mkdir -p {folder} && cd {folder} && exec {asked}"
    with subprocess.Popen(
        ["ssh", "-T", host, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as remote:
        code = _keep_rows(remote, target)
    if code == 255:
        raise MeasurementError(f"ssh {host}: no connection, or it was lost: go on with --resume")
    if code == 127:
        raise MeasurementError(f"{host} has no ppw: install it there (pip install perf-per-watt)")
    _fetch(host, folder, target)
    if code == 0:
        subprocess.run(["ssh", "-T", host, f"rm -r {folder}"], check=False)
    return code


def _keep_rows(remote: subprocess.Popen[bytes], target: Path) -> int:
    """Write the table anew after each row that arrives; the exit code of the other ppw."""
    import pandas as pd

    from measurements import write_runs

    assert remote.stdin is not None
    assert remote.stdout is not None
    rows: list[dict[str, Any]] = []
    try:
        for line in remote.stdout:
            try:
                rows.append(json.loads(line))
            except ValueError:
                # A greeting of the other host's shell is no row.
                sys.stderr.write(line.decode(errors="replace"))
            else:
                write_runs(pd.DataFrame(rows), target)
    except BaseException:
        # The other ppw ends when its input does, and puts back what it changed.
        remote.stdin.close()
        remote.wait(timeout=30)
        raise
    return remote.wait()


def _fetch(host: str, folder: str, target: Path) -> None:
    """Bring the raw readings here."""
    here = default_folder(target)
    command = ["ssh", "-T", host, f"tar -C {folder} -cf - runs.samples"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as remote:
        assert remote.stdout is not None
        try:
            with tarfile.open(fileobj=remote.stdout, mode="r|") as archive:
                for member in archive:
                    _extract(archive, member, here)
        except tarfile.TarError as error:
            raise MeasurementError(
                f"{host}: the raw readings could not be fetched: {error}"
            ) from error


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write a plain file of the archive below ``folder``; nothing else, and nowhere else."""
    parts = Path(member.name).parts[1:]
    content = archive.extractfile(member) if member.isfile() else None
    if content is None or not parts or ".." in parts:
        return
    target = folder.joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(content, file)


def _passed_on(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of this `ppw measure` without those for this side."""
    kept: list[str] = []
    rest = iter(list(arguments)[list(arguments).index("measure") + 1 :])
    for argument in rest:
        if argument == "--":
            return [*kept, "--", *rest]
        if argument in ("--ssh", "-o", "--output"):
            next(rest, None)
        elif not argument.startswith(("--ssh=", "--output=", "-o")):
            kept.append(argument)
    return kept


def end_with_input() -> None:
    """Interrupt this process when its standard input ends: whoever asked for it is gone."""

    def watch() -> None:
        # Not through sys.stdin, whose lock the end of the interpreter would wait for.
        while os.read(0, 4096):
            continue
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()
