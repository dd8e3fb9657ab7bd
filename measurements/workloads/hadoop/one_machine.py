"""A cluster of one machine in one JVM: HDFS, YARN and the job history server, on loopback alone."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

from measurements.errors import MeasurementError
from measurements.workloads.hadoop import loopback
from measurements.workloads.hadoop.configuration import (
    HISTORIES,
    NEW_HISTORIES,
    cluster_properties,
    free_ports,
    java_options,
    write_configuration,
)
from measurements.workloads.hadoop.engine import (
    check_room,
    do,
    fetch_history,
    first_complaint,
    submitted_job,
    within,
)
from measurements.workloads.hadoop.inputs import make_texts, room_needed, row_sizes, text_sizes
from measurements.workloads.hadoop.jobs import Setting, example_arguments, job_properties
from measurements.workloads.hadoop.local import EXAMPLES
from measurements.workloads.reaper import MARK

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from measurements.workloads.hadoop.engine import OwnHadoop
    from measurements.workloads.hadoop.history import Job

_MANAGER = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
_SHELL = "org.apache.hadoop.fs.FsShell"
_MIB = 2**20
_DEFAULT_TASK_MB = 1024
_MASTER_MB = 1024
_START_S = 180.0


class OneMachine:
    """An engine that starts a cluster and runs jobs on it.

    Parameters
    ----------
    own : OwnHadoop
    open_ports : bool
        Go on where this system gives no network of one's own, in which case a part of Hadoop
        listens on all addresses.

    Raises
    ------
    MeasurementError
        Where that is so and not allowed.
    """

    mode = "yarn"

    def __init__(self, own: OwnHadoop, *, open_ports: bool = False) -> None:
        refused = loopback.refusal()
        if refused and not open_ports:
            raise MeasurementError(
                f"{refused}: without one, parts of Hadoop listen on all addresses and take orders "
                "from anybody: allow it with --open-ports where nobody else can reach this host, "
                "or use --mode local"
            )
        self._own = own
        self._private = not refused
        self._conf = own.scratch / "conf"
        self._cluster: subprocess.Popen[bytes] | None = None
        self._outputs = 0
        self._ports = free_ports()
        self._sources: dict[tuple[str, int | None], str] = {}

    def prepare(self, settings: Sequence[Setting]) -> None:
        """Start the cluster and bring the inputs into its file system."""
        own = self._own
        check_room(own.scratch, room_needed(settings, copies=2))
        self._configure(settings)
        self._start()
        self._do("making a folder", _SHELL, "-mkdir", "-p", "/ppw")
        texts = make_texts(own.scratch, text_sizes(settings), seed=own.seed)
        for size, path in texts.items():
            self._do("bringing the text", _SHELL, "-moveFromLocal", f"file://{path}", "/ppw/")
            target = f"/ppw/{path.name}"
            self._sources |= {("wordcount", size): target, ("sort", size): target}
        for size in row_sizes(settings):
            target = f"/ppw/rows-{size}"
            setting = Setting("teragen", size, 2, None, None, None)
            self._do("making rows with teragen", EXAMPLES, *self._arguments(setting, "", target))
            self._sources["terasort", size] = target

    def command(self, setting: Setting) -> list[str]:
        """What runs one job."""
        if self._cluster is None or self._cluster.poll() is not None:
            raise MeasurementError(f"the cluster has ended: {first_complaint(self._log)}")
        if self._outputs:
            self._do("removing output", _SHELL, "-rm", "-r", "-f", "-skipTrash", self._target())
        self._outputs += 1
        source = self._sources.get((setting.workload, setting.data_bytes), "")
        return self._client(EXAMPLES, *self._arguments(setting, source, self._target()))

    def environment(self) -> dict[str, str]:
        """Environment of the commands."""
        return self._own.environment()

    def starts(self, output: Path) -> None:
        """Nothing needs to be known of it."""

    def job(self, setting: Setting, output: Path) -> Job:
        """What the last job did, from its history file."""
        name = submitted_job(output)
        if name is None:
            raise MeasurementError(f"{output}: no job was submitted: see what it says instead")
        return fetch_history(
            name,
            (f"{NEW_HISTORIES}/*", f"{HISTORIES}/*/*/*/*"),
            lambda pattern: self._client(_SHELL, "-cat", pattern),
            environment=self.environment(),
        )

    def close(self) -> None:
        """End the cluster; what is left of it, and its files, are the reaper's."""
        if self._cluster is not None:
            self._cluster.kill()
            self._cluster.wait()
            self._cluster = None

    @property
    def _log(self) -> Path:
        return self._own.scratch / "cluster.log"

    def _target(self) -> str:
        return f"/ppw/output-{self._outputs}"

    def _configure(self, settings: Sequence[Setting]) -> None:
        task_mb = max(_mb(s.task_memory_bytes) for s in settings)
        slots = max((s.map_slots or 1) + (s.reduce_slots or 1) for s in settings)
        memory_mb = _MASTER_MB + slots * task_mb
        there_mb = _memory_mb()
        if memory_mb > there_mb:
            raise MeasurementError(
                f"{slots} task slots of {task_mb} MiB and the application master take "
                f"{memory_mb} MiB, and this host has {there_mb} MiB: take fewer --map-slots and "
                "--reduce-slots, or less --memory"
            )
        files = cluster_properties(
            self._own.scratch,
            self._conf,
            self._own.jars,
            self._ports,
            memory_mb=memory_mb,
            cpus=slots + 1,
            # By which the reaper knows what is to be ended.
            variables={MARK: self.environment()[MARK]},
        )
        write_configuration(self._conf, files)

    def _start(self) -> None:
        own, ports = self._own, self._ports
        work, details = own.scratch / "work", own.scratch / "details.json"
        for folder in (work, own.scratch / "tmp"):
            folder.mkdir()
        arguments = [
            *("-format", "-datanodes", "1", "-nodemanagers", "1", "-writeDetails", str(details)),
            *("-nnport", str(ports.namenode), "-rmport", str(ports.resource_manager)),
            *("-jhsport", str(ports.history)),
        ]
        command = self._java(_MANAGER, *arguments, heap_mb=1024)
        with self._log.open("wb") as log:
            self._cluster = subprocess.Popen(
                [*(loopback.inside_new() if self._private else []), *within(work, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=own.environment(),
                start_new_session=True,
            )
        until = time.monotonic() + _START_S
        while not (details.exists() and details.stat().st_size):
            if self._cluster.poll() is not None or time.monotonic() > until:
                said = first_complaint(self._log) or f"it said nothing within {_START_S:g} s"
                raise MeasurementError(f"the one-machine cluster did not start: {said}")
            time.sleep(0.1)

    def _do(self, what: str, *command: str) -> None:
        do(
            self._client(*command),
            log=self._own.scratch / "client.log",
            environment=self.environment(),
            what=what,
        )

    def _client(self, *command: str) -> list[str]:
        inside: list[str] = []
        if self._private and self._cluster is not None:
            inside = loopback.inside_of(self._cluster.pid)
        return [*inside, *within(self._own.scratch / "work", self._java(*command, heap_mb=512))]

    def _java(self, *command: str, heap_mb: int) -> list[str]:
        own = self._own
        return [
            *(own.java.program, *java_options(self._conf), f"-Xmx{heap_mb}m"),
            *(f"-Djava.io.tmpdir={own.scratch}/tmp", f"-Dtest.build.data={own.scratch}/data"),
            *("-cp", f"{self._conf}:{own.jars}/*", *command),
        ]

    def _arguments(self, setting: Setting, source: str, target: str) -> list[str]:
        own = self._own
        properties = job_properties(setting, local=False, reduces=own.reduces, more=own.properties)
        return example_arguments(setting, properties, source, target, reduces=own.reduces)


def _mb(memory_bytes: int | None) -> int:
    return _DEFAULT_TASK_MB if memory_bytes is None else -(-memory_bytes // _MIB)


def _memory_mb() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB
