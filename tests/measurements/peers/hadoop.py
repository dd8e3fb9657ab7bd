"""Hadoop for tests: its jars, a client of a made-up cluster, and job histories written by hand."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from typing import TYPE_CHECKING

from measurements.workloads.hadoop.counters import CPU_MS, GC_MS
from measurements.workloads.hadoop.jars import set_up

if TYPE_CHECKING:
    from pathlib import Path

HISTORY = "org.apache.hadoop.mapreduce.jobhistory."
GROUP = "org.apache.hadoop.mapreduce."
JOB = "job_1700000000000_0007"
# A job's submission in the histories made here (ms since 1970).
SUBMITTED_MS = 1_700_000_000_000


def jars() -> Path:
    """Folder of Hadoop's jars in the user's cache; they are brought where they are not there."""
    return set_up()


def event(kind: str, record: str, **body: object) -> str:
    return json.dumps({"type": kind, "event": {HISTORY + record: body}})


def counters(**values: int) -> dict[str, object]:
    """Counters of a task, as a history has them."""
    groups: dict[str, list[dict[str, object]]] = {}
    for name, value in values.items():
        group = "FileSystemCounter" if name.startswith(("FILE_", "HDFS_")) else "TaskCounter"
        group = "JobCounter" if name.endswith("_MAPS") else group
        groups.setdefault(group, []).append({"name": name, "displayName": name, "value": value})
    return {
        "name": "COUNTERS",
        "groups": [{"name": GROUP + g, "displayName": g, "counts": c} for g, c in groups.items()],
    }


def attempt(
    kind: str,
    task: int,
    number: int = 0,
    *,
    node: str,
    start_s: float,
    end_s: float,
    status: str = "SUCCEEDED",
    cpu_ms: int = 0,
    gc_ms: int = 0,
    locality: str = "NODE_LOCAL",
) -> list[str]:
    """Lines of one attempt: its start, its end, and the task's if this attempt counts."""
    letter = kind[0].lower()
    name = f"{JOB.removeprefix('job_')}_{letter}_{task:06}"
    known = {"taskid": f"task_{name}", "attemptId": f"attempt_{name}_{number}", "taskType": kind}
    start_ms, end_ms = (SUBMITTED_MS + round(1000 * s) for s in (start_s, end_s))
    third = (end_ms - start_ms) // 3
    started = event(
        f"{kind}_ATTEMPT_STARTED",
        "TaskAttemptStarted",
        **known,
        startTime=start_ms,
        trackerName=node,
        locality={"string": locality},
    )
    ended: dict[str, object] = {
        **known,
        "finishTime": end_ms,
        "hostname": node,
        "rackname": "/default-rack",
        "counters": counters(**{CPU_MS.name: cpu_ms, GC_MS.name: gc_ms}),
    }
    if status != "SUCCEEDED":
        outcome = "TaskAttemptUnsuccessfulCompletion"
        return [
            started,
            event(f"{kind}_ATTEMPT_{status}", outcome, **ended, status=status, error="lost"),
        ]
    if kind == "MAP":
        record, times = "MapAttemptFinished", {"mapFinishTime": end_ms}
    else:
        record = "ReduceAttemptFinished"
        times = {"shuffleFinishTime": start_ms + third, "sortFinishTime": start_ms + 2 * third}
    ended |= {"taskStatus": status, **times}
    task_end = event(
        "TASK_FINISHED",
        "TaskFinished",
        taskid=known["taskid"],
        taskType=kind,
        finishTime=end_ms,
        status=status,
        successfulAttemptId={"string": known["attemptId"]},
    )
    return [started, event(f"{kind}_ATTEMPT_FINISHED", record, **ended), task_end]


def history(
    lines: list[str], *, end_s: float = 60.0, totals: dict[str, object] | None = None
) -> str:
    """Text of a history with these attempts, submitted at `SUBMITTED_MS`."""
    body = {"jobid": JOB, "jobName": "made up", "userName": "user"}
    begin = [
        event("AM_STARTED", "AMStarted", applicationAttemptId="a", nodeManagerHost="node0"),
        event("JOB_SUBMITTED", "JobSubmitted", **body, submitTime=SUBMITTED_MS),
        event("JOB_INITED", "JobInited", jobid=JOB, launchTime=SUBMITTED_MS + 2000),
    ]
    finish = event(
        "JOB_FINISHED",
        "JobFinished",
        jobid=JOB,
        finishTime=SUBMITTED_MS + round(1000 * end_s),
        totalCounters=totals or counters(),
        mapCounters=counters(),
        reduceCounters=counters(),
    )
    return "\n".join(["Avro-Json", '{"type":"record"}', "", *begin, *lines, finish, ""])


_CLIENT = """\
#!{python} -IS
import shutil, sys, time
from pathlib import Path

store = Path({store!r})
store.mkdir(exist_ok=True)
arguments = sys.argv[1:]
with (store.parent / "calls.txt").open("a") as calls:
    calls.write(" ".join(arguments) + "\\n")
if arguments[0] == "fs":
    action, *names = arguments[1:]
    if action == "-mkdir":
        (store / names[-1]).mkdir(parents=True, exist_ok=True)
    elif action == "-moveFromLocal":
        shutil.move(names[0], store / names[1])
    elif action == "-rm":
        shutil.rmtree(store / names[-1], ignore_errors=True)
    elif action == "-cat":
        history = store.parent / "job.jhist"
        place = store.parent / "place.txt"
        if not history.exists() or place.read_text() not in names[0]:
            sys.exit(f"cat: `{{names[0]}}': No such file or directory")
        print(history.read_text())
elif arguments[0] == "jar":
    print("INFO mapreduce.Job: Running job: {job}", file=sys.stderr, flush=True)
    (store / arguments[-1]).mkdir(parents=True)
    time.sleep({seconds})
    print("INFO mapreduce.Job: Counters: 1", file=sys.stderr)
    print("\\tMap-Reduce Framework\\n\\t\\tCPU time spent (ms)=4200", file=sys.stderr)
"""


class Client:
    """The program ``hadoop`` of a made-up cluster, whose file system is a folder.

    A job sleeps. `history` is what the cluster keeps of every job; `calls` what was asked of it.
    """

    def __init__(self, folder: Path, *, seconds: float = 0.2) -> None:
        self.folder, self.store = folder, folder / "store"
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        program = self.bin / "hadoop"
        text = _CLIENT.format(
            python=sys.executable, store=str(self.store), job=JOB, seconds=seconds
        )
        program.write_text(text)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        examples = folder / "share/hadoop/mapreduce"
        examples.mkdir(parents=True)
        (examples / "hadoop-mapreduce-examples-3.4.2.jar").touch()

    @property
    def path(self) -> str:
        """A path on which this ``hadoop`` is found first."""
        return f"{self.bin}{os.pathsep}{os.environ['PATH']}"

    def keeps(self, text: str, *, place: str = "/done_intermediate/") -> None:
        """Keep this history of every job, in a folder of such a name."""
        (self.folder / "job.jhist").write_text(text)
        (self.folder / "place.txt").write_text(place)

    def calls(self) -> list[list[str]]:
        file = self.folder / "calls.txt"
        lines = file.read_text().splitlines() if file.exists() else []
        return [shlex.split(line) for line in lines]
