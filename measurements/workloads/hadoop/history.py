"""What a finished MapReduce job did, by its history file or its log.

A job with ``mapreduce.jobhistory.jhist.format=json`` leaves it in a form of Hadoop's own
(``Events.avpr``): a line with its name, a line with the schema, and a line of JSON an event, with
empty lines between. Times are milliseconds since 1970.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from measurements.errors import DAMAGE, MeasurementError


class Counter(NamedTuple):
    """A counter's group, without its package, and its name: TaskCounter, CPU_MILLISECONDS."""

    group: str
    name: str


CPU_MS = Counter("TaskCounter", "CPU_MILLISECONDS")
GC_MS = Counter("TaskCounter", "GC_TIME_MILLIS")
MAP_OUTPUT_BYTES = Counter("TaskCounter", "MAP_OUTPUT_BYTES")
SHUFFLE_BYTES = Counter("TaskCounter", "REDUCE_SHUFFLE_BYTES")
SPILLED_RECORDS = Counter("TaskCounter", "SPILLED_RECORDS")
PEAK_MAP_MEMORY = Counter("TaskCounter", "MAP_PHYSICAL_MEMORY_BYTES_MAX")
PEAK_REDUCE_MEMORY = Counter("TaskCounter", "REDUCE_PHYSICAL_MEMORY_BYTES_MAX")
INPUT_BYTES = Counter("FileInputFormatCounter", "BYTES_READ")
OUTPUT_BYTES = Counter("FileOutputFormatCounter", "BYTES_WRITTEN")
DATA_LOCAL_MAPS = Counter("JobCounter", "DATA_LOCAL_MAPS")
RACK_LOCAL_MAPS = Counter("JobCounter", "RACK_LOCAL_MAPS")
OTHER_MAPS = Counter("JobCounter", "OTHER_LOCAL_MAPS")

FILE_SYSTEMS = "FileSystemCounter"

# As a client prints them, of those that a column is made of.
_PRINTED = {
    "CPU time spent (ms)": CPU_MS,
    "GC time elapsed (ms)": GC_MS,
    "Map input records": Counter("TaskCounter", "MAP_INPUT_RECORDS"),
    "Map output bytes": MAP_OUTPUT_BYTES,
    "Reduce output records": Counter("TaskCounter", "REDUCE_OUTPUT_RECORDS"),
    "Reduce shuffle bytes": SHUFFLE_BYTES,
    "Spilled Records": SPILLED_RECORDS,
    "Peak Map Physical memory (bytes)": PEAK_MAP_MEMORY,
    "Peak Reduce Physical memory (bytes)": PEAK_REDUCE_MEMORY,
    "Data-local map tasks": DATA_LOCAL_MAPS,
    "Rack-local map tasks": RACK_LOCAL_MAPS,
    "Other local map tasks": OTHER_MAPS,
}
_PRINTED_IN_GROUP = {
    ("File Input Format Counters", "Bytes Read"): INPUT_BYTES,
    ("File Output Format Counters", "Bytes Written"): OUTPUT_BYTES,
}
_FILE_SYSTEM = re.compile(r"(\w+): Number of bytes (read|written)")
# The job's own counters, not those of one task that a process which runs all tasks prints too.
_HEAD = re.compile(r"\bJob: Counters: \d+\s*$")
_VALUE = re.compile(r"\t\t(.+)=(\d{1,99})\s*$")


def printed_counters(lines: Iterable[str]) -> dict[Counter, int]:
    """Read the last list of counters in the log of a job's client; empty without a list."""
    found: dict[Counter, int] = {}
    group, inside = "", False
    for line in lines:
        if _HEAD.search(line):
            found, inside = {}, True
        elif inside and (match := _VALUE.match(line)):
            found[_counter_of_printed(group, match[1])] = int(match[2])
        elif inside and line.startswith("\t"):
            group = line.strip()
        else:
            inside = False
    return found


def _counter_of_printed(group: str, printed: str) -> Counter:
    if system := _FILE_SYSTEM.fullmatch(printed):
        return Counter(FILE_SYSTEMS, f"{system[1]}_BYTES_{system[2].upper()}")
    known = _PRINTED_IN_GROUP.get((group, printed)) or _PRINTED.get(printed)
    return known or Counter(group, printed)


def file_system_bytes(
    counters: Mapping[Counter, int], direction: str, *, local: bool
) -> float | None:
    """Return the bytes that tasks moved ("READ" or "WRITTEN"), locally or on other systems."""
    ending = f"_BYTES_{direction}"
    moved = [
        value
        for (group, name), value in counters.items()
        if group == FILE_SYSTEMS and name.endswith(ending)
        if (name == f"FILE{ending}") == local
    ]
    return float(sum(moved)) if moved else None


_JSON, _BINARY = "Avro-Json", "Avro-Binary"
_S_PER_MS = 1e-3
_SUCCEEDED = "SUCCEEDED"


def _time_between(start: str, end: str) -> property:
    """Make a property: the time (s) between two moments; None where one is not known."""

    def elapsed_s(one: Any) -> float | None:
        start_s, end_s = getattr(one, start), getattr(one, end)
        # What is known to the millisecond has no more digits.
        return None if start_s is None or end_s is None else round(end_s - start_s, 3)

    return property(elapsed_s)


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One attempt at one task; times are since 1970 (s), None where not known."""

    task: str
    attempt: str
    kind: str  # MAP or REDUCE; JOB_SETUP and the like
    status: str | None = None  # SUCCEEDED, FAILED, KILLED; None for one without an end
    node: str | None = None
    locality: str | None = None  # NODE_LOCAL, RACK_LOCAL or OFF_SWITCH
    start_s: float | None = None
    end_s: float | None = None
    shuffle_end_s: float | None = None  # of a reduce
    sort_end_s: float | None = None  # of a reduce
    counters: Mapping[Counter, int] = field(default_factory=dict)

    # Times (s): the whole, fetching the output of maps and waiting for it, all merges but the last
    # (which the reduce function reads), and the reduce function with writing its output.
    elapsed_s = _time_between("start_s", "end_s")
    shuffle_s = _time_between("start_s", "shuffle_end_s")
    sort_s = _time_between("shuffle_end_s", "sort_end_s")
    reduce_s = _time_between("sort_end_s", "end_s")

    @property
    def cpu_s(self) -> float | None:
        """CPU time of its process (s), by the kernel's ticks."""
        return seconds(self.counters.get(CPU_MS))

    @property
    def gc_s(self) -> float | None:
        """Time of garbage collection in its JVM (s)."""
        return seconds(self.counters.get(GC_MS))


@dataclass(frozen=True, slots=True)
class Job:
    """A job and all that is known of it; times are since 1970 (s)."""

    job_id: str
    name: str = ""
    user: str = ""
    status: str | None = None  # SUCCEEDED, FAILED, KILLED or ERROR; None for one without an end
    submitted_s: float | None = None
    launched_s: float | None = None
    finished_s: float | None = None
    master: str | None = None  # node of the last application master
    attempts: tuple[TaskAttempt, ...] = ()
    succeeded: frozenset[str] = frozenset()  # the attempt of each task that counts
    counters: Mapping[Counter, int] = field(default_factory=dict)
    map_counters: Mapping[Counter, int] = field(default_factory=dict)
    reduce_counters: Mapping[Counter, int] = field(default_factory=dict)
    reason: str = ""  # why it did not succeed

    elapsed_s = _time_between("submitted_s", "finished_s")

    def done(self, kind: str) -> list[TaskAttempt]:
        """Attempts of one kind that count: for each task the one whose output was used."""
        return [a for a in self.attempts if a.kind == kind and a.attempt in self.succeeded]


def parse_history(text: str, source: str) -> Job:
    """Read the text of a job history file; a last line that was never finished is skipped."""
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
    reader = _HistoryReader()
    for number, kind, event in _read_events(rest, source):
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


def _read_events(text: str, source: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    lines = [(n, line) for n, line in enumerate(text.split("\n"), start=2) if line.strip()]
    # The first is the schema.
    for number, line in lines[1:]:
        try:
            event = json.loads(line)
            (body,) = event["event"].values()
            yield number, str(event["type"]), {k: _unwrap_union(v) for k, v in body.items()}
        except DAMAGE as error:
            if number == lines[-1][0]:
                return
            raise MeasurementError(
                f"{source}: line {number} is no event: {str(error)[:80]!r}"
            ) from error


def _unwrap_union(value: Any) -> Any:
    # Avro's union {"string": "x"} is "x".
    if isinstance(value, dict) and len(value) == 1:
        (kind, inner), *_ = value.items()
        if kind in ("string", "int", "long", "boolean") or "." in kind:
            return inner
    return value


class _HistoryReader:
    """Builds a job from its events, in their order."""

    def __init__(self) -> None:
        self.job = Job("")
        self._attempts: dict[str, TaskAttempt] = {}
        self._succeeded: dict[str, str] = {}

    def take(self, kind: str, event: dict[str, Any]) -> None:
        """Learn from one event; many say nothing that is needed here."""
        if "jobid" in event:
            self.job = replace(self.job, job_id=_need_text(event, "jobid"))
        if kind.endswith("_ATTEMPT_STARTED"):
            self._take_attempt_start(event)
        elif "_ATTEMPT_" in kind:
            self._take_attempt_end(event)
        elif kind == "TASK_FINISHED":
            attempt = _text_or_none(event.get("successfulAttemptId"))
            self._succeeded[_need_text(event, "taskid")] = attempt or ""
        elif kind in _JOB_EVENTS:
            self.job = replace(self.job, **_JOB_EVENTS[kind](event))

    def result(self) -> Job:
        """Job of all events so far."""
        attempts = tuple(self._attempts.values())
        named = {attempt for attempt in self._succeeded.values() if attempt}
        # Older files do not name it.
        unnamed = {task for task, attempt in self._succeeded.items() if not attempt}
        found = {a.attempt for a in attempts if a.task in unnamed and a.status == _SUCCEEDED}
        return replace(self.job, attempts=attempts, succeeded=frozenset(named | found))

    def _take_attempt_start(self, event: dict[str, Any]) -> None:
        attempt = _need_text(event, "attemptId")
        self._attempts[attempt] = TaskAttempt(
            task=_need_text(event, "taskid"),
            attempt=attempt,
            kind=_need_text(event, "taskType"),
            node=_text_or_none(event.get("trackerName")),
            locality=_text_or_none(event.get("locality")),
            start_s=_unix_time_s(event.get("startTime")),
        )

    def _take_attempt_end(self, event: dict[str, Any]) -> None:
        attempt = _need_text(event, "attemptId")
        known = self._attempts.get(attempt)
        if known is None:
            known = TaskAttempt(_need_text(event, "taskid"), attempt, _need_text(event, "taskType"))
        self._attempts[attempt] = replace(
            known,
            status=_text_or_none(event.get("taskStatus") or event.get("status")),
            node=_text_or_none(event.get("hostname")) or known.node,
            end_s=_unix_time_s(event.get("finishTime")),
            shuffle_end_s=_unix_time_s(event.get("shuffleFinishTime")),
            sort_end_s=_unix_time_s(event.get("sortFinishTime")),
            counters=_parse_counters(event.get("counters")),
        )


# What each kind of event says of the job.
_JOB_EVENTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "AM_STARTED": lambda event: {"master": _text_or_none(event.get("nodeManagerHost"))},
    "JOB_SUBMITTED": lambda event: {
        "submitted_s": _unix_time_s(event["submitTime"]),
        "name": _text_or_none(event.get("jobName")) or "",
        "user": _text_or_none(event.get("userName")) or "",
    },
    "JOB_INITED": lambda event: {"launched_s": _unix_time_s(event.get("launchTime"))},
    "JOB_FINISHED": lambda event: {
        "status": _SUCCEEDED,
        "finished_s": _unix_time_s(event["finishTime"]),
        "counters": _parse_counters(event.get("totalCounters")),
        "map_counters": _parse_counters(event.get("mapCounters")),
        "reduce_counters": _parse_counters(event.get("reduceCounters")),
    },
    **dict.fromkeys(
        ("JOB_FAILED", "JOB_KILLED", "JOB_ERROR"),
        lambda event: {
            "status": _text_or_none(event.get("jobStatus")),
            "finished_s": _unix_time_s(event.get("finishTime")),
            "reason": _text_or_none(event.get("diagnostics")) or "",
        },
    ),
}


def _parse_counters(value: dict[str, Any] | None) -> dict[Counter, int]:
    if not value:
        return {}
    return {
        Counter(group["name"].rpartition(".")[2], count["name"]): int(count["value"])
        for group in value["groups"]
        for count in group["counts"]
    }


def _unix_time_s(milliseconds: int | None) -> float | None:
    # Hadoop writes 0 or -1 for what it does not know.
    if milliseconds is None or milliseconds <= 0:
        return None
    return int(milliseconds) * _S_PER_MS


def _text_or_none(value: object) -> str | None:
    """Text, or None where it is missing or empty. Raises TypeError for anything else."""
    if value is None or isinstance(value, str):
        return value or None
    raise TypeError(f"{str(value)[:40]} is no text")


def _need_text(event: dict[str, Any], key: str) -> str:
    """Return the text of a key; ValueError where it is empty."""
    name = _text_or_none(event[key])
    if name is None:
        raise ValueError(f"{key} is empty")
    return name


def seconds(milliseconds: int | None) -> float | None:
    """Time (s) of a counter in milliseconds."""
    return None if milliseconds is None else milliseconds * _S_PER_MS


# Hadoop's local runner keeps no job history. Its log is in the layout of
# `measurements.workloads.hadoop.engines`, which names threads, so that concurrent reduces can be
# told apart. Its clock is UTC.
_LINE = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) \w+ \[(?P<thread>.*?)\] "
    r"(?P<by>[\w$.]+): (?P<text>.*)"
)
_SUBMITTING = re.compile(r"Submitting tokens for job: (job_\w+)")
_STARTING = re.compile(r"Starting task: (attempt_\w+)")
_FINISHING = re.compile(r"Finishing task: (attempt_\w+)")
_ALL_DONE = re.compile(r"(map|reduce) task executor complete")
_COMPLETED = re.compile(r"Job job_\w+ completed successfully")
_ATTEMPT = re.compile(r"attempt_(?P<job>\w+_\d+)_(?P<kind>[mr])_(?P<task>\d+)_\d+")
# A task takes for its own what the process has done meanwhile.
_OF_THE_PROCESS = (GC_MS, INPUT_BYTES, OUTPUT_BYTES)
_KINDS = {"m": "MAP", "r": "REDUCE"}


class _Entry(NamedTuple):
    at_s: float
    thread: str
    by: str
    text: str


def read_local_log(path: Path, *, slots: int = 1) -> Job:
    """Read the log of a job that ran in one process, ``slots`` of its tasks at once.

    The local runner does not count CPU time, and adds up for each task what the whole process has
    moved so far, so that these are left out. With several slots so are the bytes of input and
    output and the time of garbage collection, which each task counts for all.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise MeasurementError(f"{path}: cannot be read: {error.strerror}") from error
    reader = _LocalLogReader()
    for entry in _read_entries(text):
        reader.take(entry)
    if not reader.job.job_id:
        raise MeasurementError(f"{path}: no job was submitted: read the messages in this file")
    counters = printed_counters(text.splitlines())
    kept = {
        counter: value
        for counter, value in counters.items()
        if counter.group != FILE_SYSTEMS and not (slots > 1 and counter in _OF_THE_PROCESS)
    }
    return replace(reader.result(), counters=kept)


def _read_entries(text: str) -> Iterator[_Entry]:
    for line in text.splitlines():
        if match := _LINE.match(line):
            try:
                at = datetime.strptime(match["at"], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
            except ValueError:
                # No time: a line of other text.
                continue
            yield _Entry(at.timestamp(), match["thread"], match["by"], match["text"])


class _LocalLogReader:
    """Builds a job from the lines of its log, in their order."""

    def __init__(self) -> None:
        self.job = Job("")
        self._attempts: dict[str, TaskAttempt] = {}
        self._running: dict[str, str] = {}

    def take(self, entry: _Entry) -> None:
        """Learn from one line; most say nothing that is needed here."""
        if entry.by == "JobSubmitter" and (match := _SUBMITTING.match(entry.text)):
            self.job = replace(self.job, job_id=match[1], submitted_s=entry.at_s)
        elif entry.by == "LocalJobRunner":
            self._take_runner_line(entry)
        elif entry.by == "MergeManagerImpl" and entry.text.startswith("finalMerge called"):
            self._mark_phase(entry, shuffle=True)
        elif entry.by == "Merger":
            self._mark_phase(entry, shuffle=False)
        elif entry.by == "Job" and _COMPLETED.match(entry.text):
            # The client asks from time to time: the runner's own last line is the end.
            at_s = self.job.finished_s or entry.at_s
            self.job = replace(self.job, status="SUCCEEDED", finished_s=at_s)

    def result(self) -> Job:
        """Job of all lines so far."""
        done = frozenset(a.attempt for a in self._attempts.values() if a.status == "SUCCEEDED")
        return replace(self.job, attempts=tuple(self._attempts.values()), succeeded=done)

    def _take_runner_line(self, entry: _Entry) -> None:
        if match := _STARTING.match(entry.text):
            parts = _ATTEMPT.fullmatch(match[1])
            if parts:
                task = f"task_{parts['job']}_{parts['kind']}_{parts['task']}"
                kind = _KINDS[parts["kind"]]
                self._attempts[match[1]] = TaskAttempt(task, match[1], kind, start_s=entry.at_s)
                self._running[entry.thread] = match[1]
        elif match := _FINISHING.match(entry.text):
            self._running.pop(entry.thread, None)
            if known := self._attempts.get(match[1]):
                self._attempts[match[1]] = replace(known, status="SUCCEEDED", end_s=entry.at_s)
        elif _ALL_DONE.match(entry.text):
            self.job = replace(self.job, finished_s=entry.at_s)

    def _mark_phase(self, entry: _Entry, *, shuffle: bool) -> None:
        """Note a phase of a reduce: its last merge begins when shuffling and sorting are done."""
        attempt = self._attempts.get(self._running.get(entry.thread, ""))
        if attempt is None or attempt.kind != "REDUCE":
            return
        if shuffle:
            attempt = replace(attempt, shuffle_end_s=entry.at_s, sort_end_s=entry.at_s)
        elif attempt.shuffle_end_s is not None:
            attempt = replace(attempt, sort_end_s=entry.at_s)
        self._attempts[attempt.attempt] = attempt
