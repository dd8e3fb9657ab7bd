"""Small programs that are asked something and answer by text."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

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
