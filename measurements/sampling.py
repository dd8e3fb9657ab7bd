"""Handle on the sampling process, and the files of raw readings that it leaves."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from measurements.errors import MeasurementError
from measurements.power.protocol import Reading, SensorError
from measurements.sampler import HEADER, channel_from_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from measurements.power.protocol import Channel, Login
    from measurements.power.registry import Spec


@dataclass
class Sampling:
    """A running sampling process.

    Attributes
    ----------
    channels : tuple of Channel
        Of all its sources, in their order.
    slowest_s : float
        Longest time between two different readings of a channel.
    failures : dict
        By source, the last complaint since the last `start`.
    """

    process: subprocess.Popen[str]
    channels: tuple[Channel, ...] = ()
    slowest_s: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        specs: Sequence[Spec],
        *,
        interval_s: float = 0.1,
        sysfs: Path = Path("/sys"),
        procfs: Path = Path("/proc"),
        timeout_s: float = 10.0,
        logins: Sequence[tuple[str, str, Login]] = (),
    ) -> Self:
        """Start the process and open the sources in it.

        Raises
        ------
        SensorError
            When one of them cannot be opened.
        """
        process = subprocess.Popen(
            [sys.executable, "-m", "measurements.sampler"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        sampling = cls(process)
        order = {
            "sources": [list(spec) for spec in specs],
            "interval_s": interval_s,
            "sysfs": str(sysfs),
            "procfs": str(procfs),
            "timeout_s": timeout_s,
            # Through the pipe, so that no list of processes shows them.
            "logins": [(kind, host, *login) for kind, host, login in logins],
        }
        try:
            answer = sampling._ask("open", **order)
        except BaseException:
            sampling.close()
            raise
        sampling.channels = tuple(map(channel_from_json, answer["channels"]))
        windows_s = (channel.window_s for channel in sampling.channels)
        sampling.slowest_s = max(answer["slowest_s"], *windows_s, 0.0)
        return sampling

    def start(self, file: Path) -> None:
        """Read every source now, and go on until `stop`."""
        self.failures = self._ask("start", file=str(file))["failures"]

    def stop(self) -> None:
        """Read every source once more and finish the file."""
        self.failures = self._ask("stop")["failures"]

    def close(self) -> None:
        """End the process; a second call does nothing."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                # What could not be said to a process that has ended is of no use.
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _ask(self, order: str, **rest: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"do": order, **rest}) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self.process.poll()
            raise MeasurementError(
                f"the sampling process has ended (exit code {code}): what was measured so far is "
                "kept; start again with --resume"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise (SensorError if answer["sensor"] else MeasurementError)(answer["error"])
        return answer


def read_samples(path: Path) -> list[Reading]:
    """Readings of a file of the sampling process.

    A last line that a killed process left unfinished is passed over.

    Raises
    ------
    MeasurementError
        When it is no such file.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(_readings(file, path))
    except (OSError, UnicodeDecodeError) as error:
        raise MeasurementError(f"{path}: cannot be read: {error}") from error


def _readings(file: IO[str], path: Path) -> Iterator[Reading]:
    rows = csv.reader(file)
    if tuple(next(rows, ())) != HEADER:
        raise MeasurementError(f"{path}: no file of raw readings: its header is not {HEADER}")
    bad: int | None = None
    for number, row in enumerate(rows, start=2):
        if bad is not None:
            raise MeasurementError(f"{path}: line {bad} is no reading")
        try:
            label, at_s, value, own = row
            yield Reading(label, float(at_s), float(value), float(own) if own else None)
        except ValueError:
            bad = number
