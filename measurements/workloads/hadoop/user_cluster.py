"""Jobs on a cluster that the user has: whatever ``hadoop`` on the path is set up for."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from measurements.errors import MeasurementError
from measurements.workloads.hadoop.counters import printed_counters
from measurements.workloads.hadoop.engine import check_room, do, fetch_history, submitted_job
from measurements.workloads.hadoop.history import Job
from measurements.workloads.hadoop.inputs import make_texts, row_sizes, text_sizes
from measurements.workloads.hadoop.jobs import (
    WORKLOADS,
    Setting,
    example_arguments,
    job_properties,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from measurements.workloads.reaper import Reaper

# Where Hadoop keeps histories unless its mapreduce.jobhistory.* say otherwise.
DEFAULT_HISTORY = "/tmp/hadoop-yarn/staging/history"
_OPTIONS, _INPUT, _OUTPUT, _DATA = "{options}", "{input}", "{output}", "{data}"
_EXAMPLES = "share/hadoop/mapreduce/hadoop-mapreduce-examples-[0-9]*.jar"
_WATCH = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from measurements.workloads.hadoop.cluster_watch import main; main()"
)
_END_S = 120.0


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """How jobs run on a user's cluster.

    Attributes
    ----------
    command : tuple of str
        Arguments of ``hadoop`` for a job of the user's own; empty for Hadoop's examples.
        ``{options}`` becomes Hadoop's options, ``{input}`` a text of the size asked for,
        ``{output}`` a folder that is not there, ``{data}`` that size in bytes.
    examples : str or None
        Jar of Hadoop's examples; by default the one beside ``hadoop``.
    history : str
        Folder of job histories in the cluster's file system.
    reduces : int or None
    properties : mapping
    seed : int
    """

    command: tuple[str, ...] = ()
    examples: str | None = None
    history: str = DEFAULT_HISTORY
    reduces: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0


class UserCluster:
    """An engine that gives jobs to the user's cluster.

    Parameters
    ----------
    options : ClusterOptions
    reaper : Reaper
    scratch : Path
        Folder of the reaper's on this host, in which texts are made.
    tell : callable

    Raises
    ------
    MeasurementError
        When ``hadoop`` is not on the path.
    """

    mode = "cluster"

    def __init__(
        self, options: ClusterOptions, reaper: Reaper, scratch: Path, tell: Callable[[str], None]
    ) -> None:
        hadoop = shutil.which("hadoop")
        if hadoop is None:
            raise MeasurementError(
                "hadoop is not on the path: put the bin folder of your cluster's client there, or "
                "use --mode local, which needs no cluster"
            )
        self._hadoop, self._options, self._scratch, self._tell = hadoop, options, scratch, tell
        self._reaper = reaper
        self._folder = f"ppw-{secrets.token_hex(8)}"
        self._outputs = 0
        self._told = False
        self._sources: dict[tuple[str, int | None], str] = {}
        # Not the reaper's: it has to outlive ppw for as long as it takes to clean up.
        self._watch = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WATCH, _root(), hadoop, self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def prepare(self, settings: Sequence[Setting]) -> None:
        """Bring the inputs into the cluster's file system."""
        sizes = text_sizes(settings)
        if self._options.command:
            sizes = self._own_sizes(settings)
        check_room(self._scratch, float(sum(sizes)))
        self._do("making a folder", "fs", "-mkdir", "-p", self._folder)
        texts = make_texts(self._scratch, sizes, seed=self._options.seed)
        for size, path in texts.items():
            target = f"{self._folder}/{path.name}"
            self._do("bringing the text", "fs", "-moveFromLocal", str(path), target)
            names = {s.workload for s in settings if s.workload not in WORKLOADS}
            self._sources |= {(name, size): target for name in ("wordcount", "sort", *names)}
        for size in row_sizes(settings):
            target = f"{self._folder}/rows-{size}"
            setting = Setting("teragen", size, None, None, None, None)
            self._say(str(self._log))
            self._do("making rows with teragen", *self._example(setting, "", target))
            self._say(None)
            self._sources["terasort", size] = target

    def command(self, setting: Setting) -> list[str]:
        """What runs one job."""
        if self._outputs:
            self._do("removing output", "fs", "-rm", "-r", "-f", "-skipTrash", self._target())
        self._outputs += 1
        source = self._sources.get((setting.workload, setting.data_bytes), "")
        if self._options.command:
            return [self._hadoop, *self._filled(setting, source)]
        return [self._hadoop, *self._example(setting, source, self._target())]

    def environment(self) -> dict[str, str]:
        """Environment of the commands."""
        return self._reaper.environment()

    def starts(self, output: Path) -> None:
        """Let the watch know where the job's number will be."""
        self._say(str(output))

    def job(self, setting: Setting, output: Path) -> Job | None:
        """What the last job did, from its history or else from what its client printed."""
        self._say(None)
        name = submitted_job(output)
        if name is None:
            self._note(f"{output} names no job: only its time is known")
            return None
        top = self._options.history
        try:
            return fetch_history(
                name,
                (f"{top}/done_intermediate/*", f"{top}/done/*/*/*/*"),
                lambda pattern: [self._hadoop, "fs", "-cat", pattern],
                environment=self.environment(),
            )
        except MeasurementError as error:
            self._note(f"no figures a task or node, for there is no job history: {error}")
        text = output.read_text(encoding="utf-8", errors="replace")
        counters = printed_counters(text.splitlines())
        return Job(name, status="SUCCEEDED", counters=counters)

    def close(self) -> None:
        """Let the watch remove what is on the cluster, and wait for it."""
        if self._watch.stdin is not None and not self._watch.stdin.closed:
            with suppress(BrokenPipeError):
                self._watch.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._watch.wait(_END_S)

    @property
    def _log(self) -> Path:
        """What the client says of that which is not measured."""
        return self._scratch / "client.log"

    def _target(self) -> str:
        return f"{self._folder}/output-{self._outputs}"

    def _say(self, output: str | None) -> None:
        assert self._watch.stdin is not None
        try:
            self._watch.stdin.write(json.dumps({"output": output}) + "\n")
            self._watch.stdin.flush()
        except BrokenPipeError as error:
            raise MeasurementError(
                f"the process that cleans up on the cluster has ended: remove {self._folder} there "
                "with hadoop fs -rm -r"
            ) from error

    def _note(self, text: str) -> None:
        if not self._told:
            self._told = True
            self._tell(text)

    def _own_sizes(self, settings: Sequence[Setting]) -> list[int]:
        if not any(_INPUT in argument for argument in self._options.command):
            return []
        return sorted({s.data_bytes for s in settings if s.data_bytes}, reverse=True)

    def _filled(self, setting: Setting, source: str) -> list[str]:
        words = {
            _INPUT: source,
            _OUTPUT: self._target(),
            _DATA: str(setting.data_bytes or ""),
        }
        properties = self._properties(setting)
        filled: list[str] = []
        for argument in self._options.command:
            if argument == _OPTIONS:
                filled += properties
                continue
            for word, value in words.items():
                argument = argument.replace(word, value)
            filled.append(argument)
        return filled

    def _example(self, setting: Setting, source: str, target: str) -> list[str]:
        properties = self._properties(setting)
        reduces = self._options.reduces
        arguments = example_arguments(setting, properties, source, target, reduces=reduces)
        return ["jar", self._options.examples or _examples(self._hadoop), *arguments]

    def _properties(self, setting: Setting) -> list[str]:
        more, reduces = self._options.properties, self._options.reduces
        return job_properties(setting, local=False, reduces=reduces, more=more)

    def _do(self, what: str, *arguments: str) -> None:
        do(
            [self._hadoop, *arguments],
            log=self._log,
            environment=self.environment(),
            what=f"{what} (hadoop {arguments[0]})",
        )


def _examples(hadoop: str) -> str:
    """Jar of the examples of the Hadoop that a program belongs to."""
    homes = [Path(os.environ[n]) for n in ("HADOOP_HOME", "HADOOP_MAPRED_HOME") if n in os.environ]
    homes.append(Path(hadoop).resolve().parent.parent)
    found = sorted(jar for home in homes for jar in home.glob(_EXAMPLES))
    if not found:
        raise MeasurementError(
            f"{homes[-1]} has no {_EXAMPLES}: name the jar of Hadoop's examples by --jar"
        )
    return str(found[-1])


def _root() -> str:
    return str(Path(__file__).resolve().parents[3])
