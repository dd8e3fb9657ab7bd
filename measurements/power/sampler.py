"""The sampling process: reads power sources in the background into a file.

``python -m measurements.power.sampler`` takes orders as JSON lines on standard input and answers
each with one line on standard output:

* ``{"do": "open", "sources": [...], "settings": {...}}``: open them; answers with their channels.
* ``{"do": "start", "file": path}``: read every source, then keep reading into the file.
* ``{"do": "stop"}``: read every source once more and close the file.

It ends with its input. It is a separate process, so that readings come on time whatever the
measuring process does, and loads no table library. Each source has its own thread, so that a BMC
that takes seconds delays no counter.
"""

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from measurements.errors import MeasurementError, on_error
from measurements.host import files
from measurements.power import source as sources
from measurements.power.source import Channel, Login, PowerSource, Reading, SensorError, Spec
from measurements.processes.helper_process import end_or_kill

# Readings of a counter in the shortest time in which it can wrap.
_READINGS_PER_WRAP = 3
_SHORTEST_S = 0.001
# A source that fails is asked less often, so that its complaints do not fill the disk.
_RETRY_S = 1.0
HEADER = ("label", "at_s", "value", "source_at_s")


@dataclass
class Sampling:
    """A running sampling process, as its parent sees it."""

    process: subprocess.Popen[str]
    channels: tuple[Channel, ...] = ()
    slowest_s: float = 0.0  # longest time between two different readings of a channel
    # Last complaint of each source since the last `start`.
    failures: dict[str, str] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        specs: Sequence[Spec],
        *,
        interval_s: float = 0.1,
        sysfs: Path = Path("/sys"),
        procfs: Path = Path("/proc"),
        timeout_s: float = sources.TIMEOUT_S,
        logins: Sequence[tuple[str, str, Login]] = (),
    ) -> Self:
        """Start the process and open the sources in it; raise `SensorError` if one fails."""
        try:
            process = subprocess.Popen(  # nosec B603  # this Python and a module of this package
                [sys.executable, "-m", "measurements.power.sampler"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            raise MeasurementError(
                f"the sampling process cannot be started: {error.strerror}"
            ) from error
        sampling = cls(process)
        with on_error(sampling.close):
            answer = sampling._send_order(
                "open",
                sources=[list(spec) for spec in specs],
                interval_s=interval_s,
                sysfs=str(sysfs),
                procfs=str(procfs),
                timeout_s=timeout_s,
                # Through the pipe, so that no list of processes shows them.
                logins=[(kind, host, *login) for kind, host, login in logins],
            )
        sampling.channels = tuple(map(channel_from_json, answer["channels"]))
        windows_s = (channel.window_s for channel in sampling.channels)
        sampling.slowest_s = max(answer["slowest_s"], *windows_s, 0.0)
        return sampling

    def start(self, file: Path) -> None:
        """Read every source now, and keep reading into the file until `stop`."""
        self.failures = self._send_order("start", file=str(file))["failures"]

    def stop(self) -> None:
        """Read every source once more and finish the file."""
        self.failures = self._send_order("stop")["failures"]

    def close(self) -> None:
        """End the process; a second call does nothing."""
        for pipe in (self.process.stdin, self.process.stdout):
            # The process may have ended before it took the last order.
            with suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
        end_or_kill(self.process, 5)

    def _send_order(self, order: str, **rest: object) -> dict[str, Any]:
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
                f"the sampling process has ended (exit code {code}): the "
                "measurements so far are kept; continue with --resume"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise (SensorError if answer["sensor"] else MeasurementError)(answer["error"])
        return answer


def read_samples(path: Path) -> list[Reading]:
    """Read a file of the sampling process; an unfinished last line is ignored."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MeasurementError(f"{path}: cannot be read: {error}") from error
    if not rows or tuple(rows[0]) != HEADER:
        raise MeasurementError(f"{path}: no file of raw readings: its header is not {HEADER}")
    readings = []
    for number, row in enumerate(rows[1:], start=2):
        try:
            label, at_s, value, own = row
            readings.append(Reading(label, float(at_s), float(value), float(own) if own else None))
        except ValueError:
            if number < len(rows):
                raise MeasurementError(f"{path}: line {number} is no reading") from None
    return readings


def channel_as_json(channel: Channel) -> dict[str, Any]:
    """Describe a channel as JSON, with null for NaN."""
    return {name: None if value != value else value for name, value in asdict(channel).items()}


def channel_from_json(values: dict[str, Any]) -> Channel:
    """Rebuild a channel from `channel_as_json`."""
    numbers = {k: float("nan") for k in ("resolution", "most_w") if values.get(k) is None}
    return Channel(**{**values, **numbers})


class SampleWriter:
    """Write the readings of all threads, into one file at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: IO[str] | None = None
        self._rows: Any = None
        self.failures: dict[str, str] = {}

    def open(self, path: Path) -> None:
        """Begin a file and reset the counts."""
        with self._lock:
            self._file = files.open_for_writing(path, "w", encoding="utf-8", newline="")
            self._rows = csv.writer(self._file)
            self._rows.writerow(HEADER)
            self.failures = {}

    def write(self, readings: list[Reading]) -> None:
        """Append readings; without a file they are dropped."""
        with self._lock:
            if self._file is None:
                return
            for label, at_s, value, source_at_s in readings:
                own = "" if source_at_s is None else f"{source_at_s!r}"
                self._rows.writerow((label, f"{at_s:.6f}", f"{value!r}", own))

    def fail(self, source: str, message: str) -> None:
        """Keep the last complaint of a source in this run."""
        with self._lock:
            self.failures[source] = message

    def close(self) -> None:
        """Finish the file on disk."""
        with self._lock:
            if self._file is not None:
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                self._file = None


class SourceReader(threading.Thread):
    """Read one source: periodically during a run, and at once on request."""

    def __init__(
        self, name: str, source: PowerSource, interval_s: float, writer: SampleWriter
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._source, self._writer = source, writer
        self._interval_s = reading_interval(source, interval_s)
        self._wake = threading.Condition()
        self._running = self._asked = self._ending = False
        self._answered = threading.Event()

    def read_now(self, *, running: bool) -> threading.Event:
        """Request a reading, and periodic ones if ``running``; the event is set when it is done."""
        with self._wake:
            self._asked, self._running = True, running
            self._answered = threading.Event()
            self._wake.notify()
            return self._answered

    def end(self) -> None:
        """Stop reading and close the source."""
        with self._wake:
            self._ending = True
            self._wake.notify()
        self.join(timeout=2)

    def run(self) -> None:
        """Read until `end`."""
        due = time.monotonic()
        while True:
            with self._wake:
                while not (self._asked or self._ending):
                    left = due - time.monotonic()
                    if self._running and left <= 0:
                        break
                    _wait(self._wake, left if self._running else None)
                if self._ending:
                    break
                answered = self._answered if self._asked else None
                self._asked = False
            pause = self._interval_s if self._try_reading() else max(self._interval_s, _RETRY_S)
            now = time.monotonic()
            # After a late reading the schedule begins anew, so that readings do not bunch up.
            due = due + pause if answered is None and due + pause > now else now + pause
            if answered is not None:
                answered.set()
        self._source.close()

    def _try_reading(self) -> bool:
        """Read the source into the file; False where it failed, which is noted there."""
        try:
            self._writer.write(self._source.read())
        except (MeasurementError, OSError) as error:
            self._writer.fail(self.name, str(error))
            return False
        return True


def _wait(wake: threading.Condition, seconds: float | None) -> None:
    """Release a condition until it is notified or the time has passed."""
    wake.wait(seconds)


def reading_interval(source: PowerSource, interval_s: float) -> float:
    """Choose the time between two readings (s): as asked, at least the period, before any wrap."""
    pause = max(interval_s, source.period_s)
    for channel in source.channels:
        if channel.range_j is not None:
            pause = min(pause, channel.range_j / channel.bound_w / _READINGS_PER_WRAP)
    return max(pause, _SHORTEST_S)


class Sampler:
    """Carry out the orders."""

    def __init__(self) -> None:
        self._writer = SampleWriter()
        self._readers: list[SourceReader] = []
        self._limit_s = sources.TIMEOUT_S

    def open(self, order: dict[str, Any]) -> dict[str, Any]:
        """Open the sources; all or none."""
        specs = [Spec(*parts) for parts in order["sources"]]
        logins = {(k, h): Login(u, p) for k, h, u, p in order.get("logins", ())}
        settings = sources.SourceSettings(
            sysfs=Path(order["sysfs"]),
            procfs=Path(order["procfs"]),
            login=lambda kind, host: logins.get((kind, host)) or _find_login(kind, host),
            timeout_s=float(order["timeout_s"]),
        )
        self._limit_s = 2 * settings.timeout_s
        opened = sources.open_sources(specs, settings)
        for spec, source in zip(specs, opened, strict=True):
            reader = SourceReader(spec.name, source, float(order["interval_s"]), self._writer)
            self._readers.append(reader)
            reader.start()
        channels = [channel_as_json(channel) for source in opened for channel in source.channels]
        slowest_s = max((source.period_s for source in opened), default=0.0)
        return {"channels": channels, "slowest_s": slowest_s}

    def start(self, order: dict[str, Any]) -> dict[str, Any]:
        """Begin a file with a reading of every source."""
        self._writer.open(Path(order["file"]))
        self._read_all_sources(running=True)
        return {"failures": self._writer.failures}

    def stop(self, order: dict[str, Any]) -> dict[str, Any]:
        """End the file with a reading of every source."""
        self._read_all_sources(running=False)
        self._writer.close()
        return {"failures": self._writer.failures}

    def end(self) -> None:
        """Close everything."""
        for reader in self._readers:
            reader.end()
        self._writer.close()

    def _read_all_sources(self, *, running: bool) -> None:
        answers = [(r, r.read_now(running=running)) for r in self._readers]
        until = time.monotonic() + self._limit_s
        for reader, answered in answers:
            if not answered.wait(max(until - time.monotonic(), 0)):
                late = f"{reader.name} did not answer within {self._limit_s:g} s"
                self._writer.fail(reader.name, late)


def _find_login(kind: str, host: str) -> Login:
    # Most sources need no login and are spared this import.
    from measurements.power.credentials import find_login

    return find_login(kind, host)


def main() -> int:
    """Take orders until the input ends."""
    # Ctrl-C is for the measuring process to handle; this one ends with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sampler = Sampler()
    orders = {"open": sampler.open, "start": sampler.start, "stop": sampler.stop}
    try:
        for line in sys.stdin:
            order = json.loads(line)
            try:
                answer = orders[order["do"]](order)
            except (MeasurementError, OSError) as error:
                answer = {"error": str(error), "sensor": isinstance(error, SensorError)}
            print(json.dumps(answer), flush=True)
    except BrokenPipeError:
        # Nobody reads the answers any more; Python would flush them at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        sampler.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
