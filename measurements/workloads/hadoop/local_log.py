"""What a job in one process did, by its log: Hadoop's local runner keeps no job history.

The log is in the layout of `measurements.workloads.hadoop.configuration`, which names threads, so
that reduces that run side by side can be told apart. Its clock is UTC.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError
from measurements.workloads.hadoop.counters import (
    FILE_SYSTEMS,
    GC_MS,
    INPUT_BYTES,
    OUTPUT_BYTES,
    printed_counters,
)
from measurements.workloads.hadoop.history import Job, TaskAttempt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
# What a task takes for its own is what the process has done meanwhile.
_OF_THE_PROCESS = (GC_MS, INPUT_BYTES, OUTPUT_BYTES)
_KINDS = {"m": "MAP", "r": "REDUCE"}


class _Entry(NamedTuple):
    at_s: float
    thread: str
    by: str
    text: str


def read_local_log(path: Path, *, slots: int = 1) -> Job:
    """Read the log of a job that ran in one process.

    Parameters
    ----------
    path : Path
    slots : int
        How many tasks ran at once.

    Returns
    -------
    Job
        Without CPU time, which the local runner does not count, and without the bytes that file
        systems moved, because it adds up what each task found the whole process to have moved so
        far. Where tasks ran side by side, also without bytes of input and output and the time of
        garbage collection, which each of them counts for all.

    Raises
    ------
    MeasurementError
        When it cannot be read, or no job was submitted.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise MeasurementError(f"{path}: cannot be read: {error.strerror}") from error
    reader = _Reader()
    for entry in _entries(text):
        reader.take(entry)
    if not reader.job.job_id:
        raise MeasurementError(f"{path}: no job was submitted: see what it says instead")
    counters = printed_counters(text.splitlines())
    kept = {
        counter: value
        for counter, value in counters.items()
        if counter.group != FILE_SYSTEMS and not (slots > 1 and counter in _OF_THE_PROCESS)
    }
    return replace(reader.result(), counters=kept)


def _entries(text: str) -> Iterator[_Entry]:
    for line in text.splitlines():
        if match := _LINE.match(line):
            try:
                at = datetime.strptime(match["at"], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
            except ValueError:
                # No time: a line of other text.
                continue
            yield _Entry(at.timestamp(), match["thread"], match["by"], match["text"])


class _Reader:
    """Makes a job of the lines of its log, in their order."""

    def __init__(self) -> None:
        self.job = Job("")
        self._attempts: dict[str, TaskAttempt] = {}
        self._running: dict[str, str] = {}

    def take(self, entry: _Entry) -> None:
        """Learn from one line; of most, nothing."""
        if entry.by == "JobSubmitter" and (match := _SUBMITTING.match(entry.text)):
            self.job = replace(self.job, job_id=match[1], submitted_s=entry.at_s)
        elif entry.by == "LocalJobRunner":
            self._of_runner(entry)
        elif entry.by == "MergeManagerImpl" and entry.text.startswith("finalMerge called"):
            self._mark(entry, shuffle=True)
        elif entry.by == "Merger":
            self._mark(entry, shuffle=False)
        elif entry.by == "Job" and _COMPLETED.match(entry.text):
            # The client asks from time to time: the runner's own last line is the end.
            at_s = self.job.finished_s or entry.at_s
            self.job = replace(self.job, status="SUCCEEDED", finished_s=at_s)

    def result(self) -> Job:
        """The job that all lines make."""
        done = frozenset(a.attempt for a in self._attempts.values() if a.status == "SUCCEEDED")
        return replace(self.job, attempts=tuple(self._attempts.values()), succeeded=done)

    def _of_runner(self, entry: _Entry) -> None:
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

    def _mark(self, entry: _Entry, *, shuffle: bool) -> None:
        """Note where a reduce is: its last merge begins when shuffling and sorting are done."""
        attempt = self._attempts.get(self._running.get(entry.thread, ""))
        if attempt is None or attempt.kind != "REDUCE":
            return
        if shuffle:
            attempt = replace(attempt, shuffle_end_s=entry.at_s, sort_end_s=entry.at_s)
        elif attempt.shuffle_end_s is not None:
            attempt = replace(attempt, sort_end_s=entry.at_s)
        self._attempts[attempt.attempt] = attempt
