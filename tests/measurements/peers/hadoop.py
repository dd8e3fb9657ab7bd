"""Hadoop for tests: its jars, a made-up Maven and cluster, and job histories written by hand."""

import json
import os
import shlex
import sys

from measurements.workloads.hadoop.history import CPU_MS, GC_MS

RECORD = "org.apache.hadoop.mapreduce.jobhistory."
GROUP = "org.apache.hadoop.mapreduce."
JOB = "job_1700000000000_0007"
# A job's submission in the histories made here (ms since 1970).
SUBMITTED_MS = 1_700_000_000_000
DONE, NEAR = "SUCCEEDED", "NODE_LOCAL"


def event(kind, record, **body):
    return json.dumps({"type": kind, "event": {RECORD + record: body}})


def counters(**values):
    groups = {}
    for name, value in values.items():
        group = "FileSystemCounter" if name.startswith(("FILE_", "HDFS_")) else "TaskCounter"
        group = "JobCounter" if name.endswith("_MAPS") else group
        groups.setdefault(group, []).append({"name": name, "displayName": name, "value": value})
    made = [{"name": GROUP + g, "displayName": g, "counts": c} for g, c in groups.items()]
    return {"name": "COUNTERS", "groups": made}


def attempt(
    kind, task, number=0, *, node, start_s, end_s, status=DONE, cpu_ms=0, gc_ms=0, locality=NEAR
):
    """Lines of one attempt: its start, its end, and the task's if this attempt counts."""
    name = f"{JOB.removeprefix('job_')}_{kind[0].lower()}_{task:06}"
    known = {"taskid": f"task_{name}", "attemptId": f"attempt_{name}_{number}", "taskType": kind}
    start_ms, end_ms = (SUBMITTED_MS + round(1000 * s) for s in (start_s, end_s))
    third = (end_ms - start_ms) // 3
    began = {"startTime": start_ms, "trackerName": node, "locality": {"string": locality}}
    started = event(f"{kind}_ATTEMPT_STARTED", "TaskAttemptStarted", **known, **began)
    ended = known | {"finishTime": end_ms, "hostname": node, "rackname": "/default-rack"}
    ended["counters"] = counters(**{CPU_MS.name: cpu_ms, GC_MS.name: gc_ms})
    if status != DONE:
        ended |= {"status": status, "error": "lost"}
        record = "TaskAttemptUnsuccessfulCompletion"
        return [started, event(f"{kind}_ATTEMPT_{status}", record, **ended)]
    times = {"shuffleFinishTime": start_ms + third, "sortFinishTime": start_ms + 2 * third}
    ended |= {"taskStatus": status} | ({"mapFinishTime": end_ms} if kind == "MAP" else times)
    task = {"taskid": known["taskid"], "taskType": kind, "finishTime": end_ms, "status": status}
    succeeded = {"successfulAttemptId": {"string": known["attemptId"]}}
    task_end = event("TASK_FINISHED", "TaskFinished", **task, **succeeded)
    record = f"{kind.capitalize()}AttemptFinished"
    return [started, event(f"{kind}_ATTEMPT_FINISHED", record, **ended), task_end]


def history(lines, *, end_s=60.0, totals=None):
    """Text of a history with these attempts, submitted at `SUBMITTED_MS`."""
    body = {"jobid": JOB, "jobName": "made up", "userName": "user"}
    begin = [
        event("AM_STARTED", "AMStarted", applicationAttemptId="a", nodeManagerHost="node0"),
        event("JOB_SUBMITTED", "JobSubmitted", **body, submitTime=SUBMITTED_MS),
        event("JOB_INITED", "JobInited", jobid=JOB, launchTime=SUBMITTED_MS + 2000),
    ]
    ended = {"jobid": JOB, "finishTime": SUBMITTED_MS + round(1000 * end_s)}
    parts = dict.fromkeys(("mapCounters", "reduceCounters"), counters())
    totals = totals or counters()
    finish = event("JOB_FINISHED", "JobFinished", **ended, **parts, totalCounters=totals)
    return "\n".join(["Avro-Json", '{"type":"record"}', "", *begin, *lines, finish, ""])


def program(folder, name, text):
    """Make a program of the shell, or of what its first line says."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


JARS = ("hadoop-minicluster", "hadoop-mapreduce-examples", "junit", "mockito-core")
_MAVEN = """
for argument; do case $argument in -DoutputDirectory=*) folder=${{argument#*=}} ;; esac; done
cp pom.xml "{folder}/told.xml"
mkdir -p "$folder"
for name in {names}; do echo jar > "$folder/$name-1.jar"; done
echo "[ERROR] {error}"
exit {code}
"""


def maven(folder, names=JARS, code=0, error=""):
    """Make up a Java and a Maven that brings some jars; an environment with them and a cache."""
    text = _MAVEN.format(folder=folder, names=" ".join(names), code=code, error=error)
    program(folder / "bin", "mvn", text)
    program(folder / "bin", "java", "echo 'openjdk version \"17.0.1\"' >&2")
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "JAVA_HOME": "", "PPW_CACHE_DIR": str(folder / "cache")}


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

    A job sleeps. `keeps` is what the cluster keeps of every job; `calls` what was asked of it.
    """

    def __init__(self, folder, *, seconds=0.0):
        self.folder, self.store, self.bin = folder, folder / "store", folder / "bin"
        names = {"python": sys.executable, "store": str(self.store), "job": JOB}
        program(self.bin, "hadoop", _CLIENT.format(**names, seconds=seconds))
        examples = folder / "share/hadoop/mapreduce"
        examples.mkdir(parents=True)
        (examples / "hadoop-mapreduce-examples-3.4.2.jar").touch()

    @property
    def path(self):
        """A path on which this ``hadoop`` is found first."""
        return f"{self.bin}{os.pathsep}{os.environ['PATH']}"

    def keeps(self, text, *, place="/done_intermediate/"):
        """Keep this history of every job, in a folder of such a name."""
        (self.folder / "job.jhist").write_text(text)
        (self.folder / "place.txt").write_text(place)

    def calls(self):
        file = self.folder / "calls.txt"
        lines = file.read_text().splitlines() if file.exists() else []
        return [shlex.split(line) for line in lines]
