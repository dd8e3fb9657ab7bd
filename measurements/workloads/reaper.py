"""Nothing that a workload starts or writes outlives it: not after an error, not after a kill -9.

A small process beside ppw (`measurements.workloads.reaper_process`) ends whatever was started with
`Reaper.environment`, and removes the folders of `Reaper.folder`, what `Reaper.will_mount` and
`Reaper.will_group` announced, when it is told to or when ppw is gone.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from typing import Any, Self

from measurements.companion import Companion
from measurements.errors import MeasurementError

MARK = "PPW_WORKLOAD"
_ANSWER_S = 60.0


class Reaper:
    """Ends processes, unmounts and removes folders when left, however this process dies.

    Use it as a context manager, or call `close`.

    Raises
    ------
    MeasurementError
        When its process cannot be started.

    Examples
    --------
    >>> with Reaper() as reaper:  # doctest: +SKIP
    ...     scratch = reaper.folder()
    ...     server = subprocess.Popen(["memcached"], env=reaper.environment())
    """

    def __init__(self) -> None:
        self._mark = secrets.token_hex(8)
        self._owner = os.getpid()
        self._made: list[tuple[str, Path]] = []
        self._closed = False
        self._companion = Companion(
            "measurements.workloads.reaper_process",
            "the process that would clean up",
            f"{MARK}={self._mark}",
        )

    def environment(self) -> dict[str, str]:
        """Environment for what is to be ended: this process's with the mark."""
        return {**os.environ, MARK: self._mark}

    def folder(self, inside: Path | None = None) -> Path:
        """Make a new folder that will be removed with all that is in it.

        Parameters
        ----------
        inside : Path, optional
            Existing folder to make it in; by default that of temporary files.

        Raises
        ------
        MeasurementError
            When it cannot be made there.
        """
        parent = Path(tempfile.gettempdir()) if inside is None else inside.resolve()
        path = parent / f"ppw-{self._mark}-{len(self._made)}"
        self._ask(folder=str(path))
        try:
            path.mkdir(mode=0o700)
        except OSError as error:
            raise MeasurementError(
                f"{parent}: no folder can be made in it: {error.strerror}: name another"
            ) from error
        self._made.append(("folder", path))
        return path

    def will_mount(self, folder: Path) -> None:
        """Announce that something is about to be mounted on a folder: it will be unmounted.

        A loop device that the mount made goes with it.
        """
        self._announce("mount", folder)

    def will_group(self, name: str, parent: Path) -> Path:
        """Announce a control group that is about to be made; returns its folder, named after all.

        Parameters
        ----------
        name : str
            What tells it from others of this reaper.
        parent : Path
            Folder of the control group above.
        """
        path = parent / f"ppw-{self._mark}-{name}"
        self._announce("group", path)
        return path

    def _announce(self, kind: str, path: Path) -> None:
        self._ask(**{kind: str(path)})
        self._made.append((kind, path))

    def close(self) -> None:
        """End all marked processes and remove the folders; a second call does nothing.

        Raises
        ------
        MeasurementError
            When a process would not end.
        """
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        left: list[int] = []
        try:
            left = self._ask(reap=True)["left"]
        except MeasurementError:
            # It was killed: what it would have done is done here.
            from measurements.workloads.reaper_process import reap

            self._companion.end(_ANSWER_S)
            made = [(kind, str(path)) for kind, path in self._made]
            left = reap(f"{MARK}={self._mark}".encode(), made)
        finally:
            self._companion.end(_ANSWER_S)
        if left:
            raise MeasurementError(
                f"processes {', '.join(map(str, left))} would not end: end them with kill -9"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, **message: Any) -> dict[str, Any]:
        try:
            return self._companion.ask(_ANSWER_S, **message)
        except OSError as error:
            raise MeasurementError(
                f"the process that cleans up is lost ({error}): nothing is run without it"
            ) from error
