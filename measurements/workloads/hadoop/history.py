"""What a finished MapReduce job did, by its history file.

A job with ``mapreduce.jobhistory.jhist.format=json`` leaves it in a form of Hadoop's own
(``Events.avpr``): a line with its name, a line with the schema, and a line of JSON an event, with
empty lines between. Times are milliseconds since 1970.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from measurements.errors import DAMAGE, MeasurementError
from measurements.workloads.hadoop.counters import CPU_MS, GC_MS, Counter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_JSON, _BINARY = "Avro-Json", "Avro-Binary"
_S_PER_MS = 1e-3
_SUCCEEDED = "SUCCEEDED"


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One attempt at one task.

    Attributes
    ----------
    task, attempt : str
    kind : str
        MAP or REDUCE; JOB_SETUP and the like.
    status : str or None
        SUCCEEDED, FAILED, KILLED; None for one that was never seen to end.
    node, rack : str or None
    locality : str or None
        NODE_LOCAL, RACK_LOCAL, OFF_SWITCH, where the scheduler told.
    start_s, end_s : float or None
        Since 1970.
    map_end_s : float or None
        Of a map whose output is sorted after it.
    shuffle_end_s, sort_end_s : float or None
        Of a reduce.
    counters : mapping
    """

    task: str
    attempt: str
    kind: str
    status: str | None = None
    node: str | None = None
    rack: str | None = None
    locality: str | None = None
    start_s: float | None = None
    end_s: float | None = None
    map_end_s: float | None = None
    shuffle_end_s: float | None = None
    sort_end_s: float | None = None
    counters: Mapping[Counter, int] = field(default_factory=dict)

    @property
    def elapsed_s(self) -> float | None:
        """From its start to its end."""
        return _between(self.start_s, self.end_s)

    @property
    def shuffle_s(self) -> float | None:
        """Fetching the maps' output, waiting for maps included."""
        return _between(self.start_s, self.shuffle_end_s)

    @property
    def sort_s(self) -> float | None:
        """Merging what was fetched, but for the last pass, which the reduce function reads."""
        return _between(self.shuffle_end_s, self.sort_end_s)

    @property
    def reduce_s(self) -> float | None:
        """The reduce function and writing its output."""
        return _between(self.sort_end_s, self.end_s)

    @property
    def cpu_s(self) -> float | None:
        """CPU time of its process, counted by the kernel's ticks."""
        return _seconds(self.counters.get(CPU_MS))

    @property
    def gc_s(self) -> float | None:
        """Time in which its JVM collected garbage."""
        return _seconds(self.counters.get(GC_MS))


@dataclass(frozen=True, slots=True)
class Job:
    """A job and all that is known of it.

    Attributes
    ----------
    job_id, name, user : str
    status : str or None
        SUCCEEDED, FAILED, KILLED or ERROR; None where the file ends before the job does.
    submitted_s, launched_s, finished_s : float or None
        Since 1970.
    master : str or None
        Node of the last application master.
    attempts : tuple of TaskAttempt
    succeeded : frozenset of str
        The attempt of each task that counts.
    counters, map_counters, reduce_counters : mapping
    reason : str
        Why it did not succeed.
    """

    job_id: str
    name: str = ""
    user: str = ""
    status: str | None = None
    submitted_s: float | None = None
    launched_s: float | None = None
    finished_s: float | None = None
    master: str | None = None
    attempts: tuple[TaskAttempt, ...] = ()
    succeeded: frozenset[str] = frozenset()
    counters: Mapping[Counter, int] = field(default_factory=dict)
    map_counters: Mapping[Counter, int] = field(default_factory=dict)
    reduce_counters: Mapping[Counter, int] = field(default_factory=dict)
    reason: str = ""

    @property
    def elapsed_s(self) -> float | None:
        """From its submission to its end."""
        return _between(self.submitted_s, self.finished_s)

    def done(self, kind: str) -> list[TaskAttempt]:
        """The attempts of one kind that count: one a task, the one whose output was used."""
        return [a for a in self.attempts if a.kind == kind and a.attempt in self.succeeded]


def read_history(path: Path) -> Job:
    """Read a job history file.

    Raises
    ------
    MeasurementError
        When it cannot be read, or is no job history in JSON.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        # The binary form begins with a line of text, too.
        text = path.read_bytes().decode("latin-1")
    except OSError as error:
        raise MeasurementError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_history(text, str(path))


def parse_history(text: str, source: str) -> Job:
    """Read the text of a job history file.

    A last line that was never finished, as a killed application master leaves it, is passed over.

    Parameters
    ----------
    text : str
    source : str
        Name for messages.

    Raises
    ------
    MeasurementError
        When it is no job history in JSON, or tells of no job.
    """
    head, _, rest = text.partition("\n")
    if head.strip() == _BINARY:
        raise MeasurementError(
            f"{source}: is in Hadoop's binary form: run the job with "
            "-Dmapreduce.jobhistory.jhist.format=json"
        )
    if head.strip() != _JSON:
        raise MeasurementError(
            f"{source}: no job history: its first line is {head[:40]!r}, not {_JSON!r}"
        )
    reader = _Reader()
    for number, kind, event in _events(rest, source):
        try:
            reader.take(kind, event)
        except DAMAGE as error:
            raise MeasurementError(
                f"{source}: line {number}, {kind[:40]!r}, is not as Hadoop writes it "
                f"({type(error).__name__}: {str(error)[:80]!r}): copy the file again"
            ) from error
    if not reader.job.job_id:
        raise MeasurementError(f"{source}: no event in it names a job: is the file complete?")
    return reader.result()


def _events(text: str, source: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    lines = [(n, line) for n, line in enumerate(text.split("\n"), start=2) if line.strip()]
    # The first is the schema.
    for number, line in lines[1:]:
        try:
            event = json.loads(line)
            (body,) = event["event"].values()
            yield number, str(event["type"]), {k: _plain(v) for k, v in body.items()}
        except DAMAGE as error:
            if number == lines[-1][0]:
                return
            raise MeasurementError(
                f"{source}: line {number} is no event: {str(error)[:80]!r}"
            ) from error


def _plain(value: Any) -> Any:
    """Take a value out of Avro's union: {"string": "x"} is "x"."""
    if isinstance(value, dict) and len(value) == 1:
        (kind, inner), *_ = value.items()
        if kind in ("string", "int", "long", "boolean") or "." in kind:
            return inner
    return value


class _Reader:
    """Makes a job of its events, in their order."""

    def __init__(self) -> None:
        self.job = Job("")
        self._attempts: dict[str, TaskAttempt] = {}
        self._succeeded: dict[str, str] = {}

    def take(self, kind: str, event: dict[str, Any]) -> None:
        """Learn from one event; of those that say nothing needed here, nothing."""
        if "jobid" in event:
            self.job = replace(self.job, job_id=_name(event, "jobid"))
        if kind.endswith("_ATTEMPT_STARTED"):
            self._started(event)
        elif "_ATTEMPT_" in kind:
            self._ended(event)
        elif kind == "TASK_FINISHED":
            attempt = _text(event.get("successfulAttemptId"))
            self._succeeded[_name(event, "taskid")] = attempt or ""
        elif kind == "AM_STARTED":
            self.job = replace(self.job, master=_text(event.get("nodeManagerHost")))
        elif kind.startswith("JOB_"):
            self._of_job(kind, event)

    def result(self) -> Job:
        """The job that all events make."""
        attempts = tuple(self._attempts.values())
        named = {attempt for attempt in self._succeeded.values() if attempt}
        # Older files do not name it.
        unnamed = {task for task, attempt in self._succeeded.items() if not attempt}
        found = {a.attempt for a in attempts if a.task in unnamed and a.status == _SUCCEEDED}
        return replace(self.job, attempts=attempts, succeeded=frozenset(named | found))

    def _started(self, event: dict[str, Any]) -> None:
        attempt = _name(event, "attemptId")
        self._attempts[attempt] = TaskAttempt(
            task=_name(event, "taskid"),
            attempt=attempt,
            kind=_name(event, "taskType"),
            node=_text(event.get("trackerName")),
            locality=_text(event.get("locality")),
            start_s=_time(event.get("startTime")),
        )

    def _ended(self, event: dict[str, Any]) -> None:
        attempt = _name(event, "attemptId")
        known = self._attempts.get(attempt)
        if known is None:
            known = TaskAttempt(_name(event, "taskid"), attempt, _name(event, "taskType"))
        self._attempts[attempt] = replace(
            known,
            status=_text(event.get("taskStatus") or event.get("status")),
            node=_text(event.get("hostname")) or known.node,
            rack=_text(event.get("rackname")),
            end_s=_time(event.get("finishTime")),
            map_end_s=_time(event.get("mapFinishTime")),
            shuffle_end_s=_time(event.get("shuffleFinishTime")),
            sort_end_s=_time(event.get("sortFinishTime")),
            counters=_counters(event.get("counters")),
        )

    def _of_job(self, kind: str, event: dict[str, Any]) -> None:
        if kind == "JOB_SUBMITTED":
            self.job = replace(
                self.job,
                submitted_s=_time(event["submitTime"]),
                name=_text(event.get("jobName")) or "",
                user=_text(event.get("userName")) or "",
            )
        elif kind == "JOB_INITED":
            self.job = replace(self.job, launched_s=_time(event.get("launchTime")))
        elif kind == "JOB_FINISHED":
            self.job = replace(
                self.job,
                status=_SUCCEEDED,
                finished_s=_time(event["finishTime"]),
                counters=_counters(event.get("totalCounters")),
                map_counters=_counters(event.get("mapCounters")),
                reduce_counters=_counters(event.get("reduceCounters")),
            )
        elif kind in ("JOB_FAILED", "JOB_KILLED", "JOB_ERROR"):
            self.job = replace(
                self.job,
                status=_text(event.get("jobStatus")),
                finished_s=_time(event.get("finishTime")),
                reason=_text(event.get("diagnostics")) or "",
            )


def _counters(value: dict[str, Any] | None) -> dict[Counter, int]:
    if not value:
        return {}
    return {
        Counter(group["name"].rpartition(".")[2], count["name"]): int(count["value"])
        for group in value["groups"]
        for count in group["counts"]
    }


def _time(milliseconds: int | None) -> float | None:
    # Hadoop writes 0 or -1 for what it does not know.
    if milliseconds is None or milliseconds <= 0:
        return None
    return int(milliseconds) * _S_PER_MS


def _text(value: object) -> str | None:
    """A text, or None where there is none; raises TypeError for anything else."""
    if value is None or isinstance(value, str):
        return value or None
    raise TypeError(f"{str(value)[:40]} is no text")


def _name(event: dict[str, Any], key: str) -> str:
    name = _text(event[key])
    if name is None:
        raise ValueError(f"{key} is empty")
    return name


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds * _S_PER_MS


def _between(start_s: float | None, end_s: float | None) -> float | None:
    # What is known to the millisecond has no more digits.
    return None if start_s is None or end_s is None else round(end_s - start_s, 3)
