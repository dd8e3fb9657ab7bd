"""What runs jobs: in one process, on a one-machine cluster, or on the user's cluster."""

from __future__ import annotations

import abc
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple
from xml.etree import ElementTree  # nosec B405  # XML is only written

from measurements.errors import MeasurementError
from measurements.host.cpu_placement import execute
from measurements.processes import cleanup_process, private_network, programs
from measurements.workloads import clients
from measurements.workloads.hadoop import history, install, jobs

_RUNNING = re.compile(r"Running job: (job_\d+_\d+)")
# Variables of the user's own Hadoop, whose configuration must not be read.
_FOREIGN = ("HADOOP_", "YARN_", "MAPRED_", "HDFS_")


class Engine(abc.ABC):
    """Runs the jobs of one sweep, with inputs and outputs in one folder. The caller closes it."""

    mode: ClassVar[str]  # as in the column ``mode``

    def __init__(
        self, folder: str, scratch: Path, owner: OwnHadoop | cleanup_process.CleanupProcess
    ) -> None:
        self._folder, self._scratch, self._owner = folder, scratch, owner
        self._sources: dict[tuple[str, int | None], str] = {}

    @abc.abstractmethod
    def prepare(self, settings: Sequence[jobs.Setting]) -> None:
        """Start what is needed and make the inputs of all settings; nothing of it is measured."""

    @abc.abstractmethod
    def command(self, setting: jobs.Setting) -> list[str]:
        """Command of one job; the output of the job before it is removed first."""

    def environment(self) -> dict[str, str]:
        """Environment of the commands, by which the reaper knows them."""
        return self._owner.environment()

    def starts(self, output: Path) -> None:  # noqa: B027  # most have nothing to do
        """Note the start of a job whose client writes to ``output``."""

    @abc.abstractmethod
    def job(self, setting: jobs.Setting, output: Path) -> history.Job | None:
        """What the last job did, or None where that cannot be known; ends after `starts`."""

    def close(self) -> None:  # noqa: B027  # most leave their files to the reaper
        """Remove what it has made; a second call does nothing."""

    @abc.abstractmethod
    def _example_command(self, setting: jobs.Setting, source: str, target: str) -> list[str]:
        """Command of a job of Hadoop's examples."""

    def _input_path(self, setting: jobs.Setting) -> str:
        return self._sources.get((setting.workload, setting.data_bytes), "")

    def _make_rows(self, size: int, maps: int | None) -> None:
        """Let teragen make the input of Terasort."""
        target = f"{self._folder}/rows-{size}"
        setting = jobs.Setting("teragen", size, maps, None, None, None)
        self._run_or_raise(
            "generating rows with teragen", self._example_command(setting, "", target)
        )
        self._sources["terasort", size] = target

    def _run_or_raise(self, what: str, command: Sequence[str]) -> None:
        """Run something that is not measured. Raises `MeasurementError` when it fails."""
        log = self._scratch / "client.log"
        made = execute([command], output=log, environment=self.environment())
        if made.exit_code:
            said = first_complaint(log) or "it gave no reason"
            raise MeasurementError(f"{what} failed with exit code {made.exit_code}: {said}")


class ClusterEngine(Engine):
    """Runs jobs on a cluster, with inputs and outputs in its file system."""

    shell: ClassVar[str]  # the program of file systems
    scheme: ClassVar[str] = ""  # prefix of local paths
    _outputs = 0

    def _put_texts(self, sizes: Sequence[int], seed: int, workloads: Iterable[str]) -> None:
        """Make texts and bring them into the cluster's file system, as inputs of workloads."""
        self._ask_shell("making a folder", "-mkdir", "-p", self._folder)
        for size, path in jobs.make_texts(self._scratch, sizes, seed=seed).items():
            target = f"{self._folder}/{path.name}"
            local = f"{self.scheme}{path}"
            self._ask_shell("copying the text", "-moveFromLocal", local, target)
            self._sources |= {(name, size): target for name in workloads}

    def _next_output_folder(self) -> str:
        """Folder of the next output; that of the job before is removed."""
        if self._outputs:
            last = f"{self._folder}/output-{self._outputs}"
            self._ask_shell("removing output", "-rm", "-r", "-f", "-skipTrash", last)
        self._outputs += 1
        return f"{self._folder}/output-{self._outputs}"

    def _fetch_history(self, job: str, folders: Sequence[str]) -> history.Job:
        """Read a job's history from the first of the cluster's folders that has it."""
        # The error of the first folder is raised: a new history comes there first.
        failures = []
        for folder in folders:
            pattern = f"{folder}/{job}-*.jhist"
            command = self._client_command(self.shell, "-cat", pattern)
            done = programs.ask(command, environment=self.environment())
            if not done.returncode:
                return history.parse_history(done.stdout, pattern)
            said = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1][:300]
            failures.append(f"reading {pattern} failed with exit code {done.returncode}: {said}")
        raise MeasurementError(failures[0])

    def _ask_shell(self, what: str, *arguments: str) -> None:
        """Let the cluster's client change something in its file system."""
        self._run_or_raise(what, self._client_command(self.shell, *arguments))

    @abc.abstractmethod
    def _client_command(self, *arguments: str) -> list[str]:
        """Command of the cluster's client."""


@dataclass(frozen=True, kw_only=True)
class OwnHadoop:
    """What an engine needs to run the Hadoop that ppw has installed."""

    options: jobs.HadoopOptions
    java: install.Java
    jars: Path
    reaper: cleanup_process.CleanupProcess
    scratch: Path  # folder of the reaper's
    seed: int = 0  # of the text

    @property
    def conf(self) -> Path:
        """Folder of Hadoop's configuration."""
        return self.scratch / "conf"

    @property
    def work(self) -> Path:
        """Folder in which processes run, where they leave links and files of their own."""
        return self.scratch / "work"

    def environment(self) -> dict[str, str]:
        """Environment of its processes: the reaper's, without the user's own Hadoop."""
        kept = {
            name: value
            for name, value in self.reaper.environment().items()
            if not name.startswith(_FOREIGN)
        }
        # Hadoop's scripts, which are not here, would be in its home.
        return {**kept, "JAVA_HOME": str(self.java.home), "HADOOP_HOME": str(self.scratch)}

    def java_command(self, heap_mb: int, *arguments: str) -> list[str]:
        """Command of a JVM with Hadoop's jars: options of the JVM, a class and its arguments."""
        jvm = (self.java.program, *java_options(self.conf), f"-Xmx{heap_mb}m")
        classes = ("-cp", f"{self.conf}:{self.jars}/*")
        return ["sh", "-c", 'cd "$0" && exec "$@"', str(self.work), *jvm, *classes, *arguments]


def submitted_job(output: Path) -> str | None:
    """Name of the last job in the output of a client; None where it has none."""
    found = _RUNNING.findall(output.read_text(encoding="utf-8", errors="replace"))
    return str(found[-1]) if found else None


def first_complaint(path: Path) -> str:
    """First line of a program's log that names an exception or an error; empty where none does."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in text.splitlines():
        if re.search(r"(Exception|Error)(:|$)", line) or " ERROR " in line or " FATAL " in line:
            return line.strip()[:300]
    return ""


def check_room(folder: Path, needed: float) -> None:
    """Raise `MeasurementError` when less than ``needed`` (B) is free on the disk of a folder."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise MeasurementError(
            f"{folder}: {free / 1e9:.1f} GB free, and inputs, spills and outputs take "
            f"{needed / 1e9:.1f} GB: name a folder on a larger disk with --scratch"
        )


# Hadoop's configuration keeps everything inside one scratch folder and on the loopback address.
LOOPBACK = clients.LOOPBACK
# Where the one-machine cluster keeps job histories: first in one folder, then in the other.
NEW_HISTORIES, HISTORIES = "/history/new", "/history/done"
# The default of a second between looks whether the job is done would show in a short run.
_POLL_MS = "100"
# `read_local_log` reads this layout.
_LOG4J = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p [%t] %c{1}: %m%n
"""

_DAEMONS = ("yarn.resourcemanager", "yarn.nodemanager")
_LOOPBACK_HOSTS = [f"{daemon}.{part}" for daemon in _DAEMONS for part in ("hostname", "bind-host")]
_ANY_PORT = [f"yarn.nodemanager.{part}address" for part in ("", "localizer.", "webapp.")]


class Ports(NamedTuple):
    """Ports of the one-machine cluster."""

    namenode: int
    resource_manager: int
    scheduler: int
    tracker: int
    admin: int
    web: int
    history: int
    history_admin: int
    history_web: int


def local_properties(scratch: Path) -> dict[str, dict[str, str]]:
    """Configuration files for jobs in one process."""
    return {
        "core-site.xml": {"fs.defaultFS": "file:///", "hadoop.tmp.dir": f"{scratch}/tmp"},  # nosec B108  # in a folder of ppw's
        "mapred-site.xml": {
            "mapreduce.framework.name": "local",
            # These two have defaults outside hadoop.tmp.dir or shared by all that run there.
            "mapreduce.jobtracker.staging.root.dir": f"{scratch}/staging",
            "mapreduce.cluster.local.dir": f"{scratch}/local",
            "mapreduce.client.progressmonitor.pollinterval": _POLL_MS,
        },
    }


def cluster_properties(
    own: OwnHadoop, ports: Ports, *, memory_mb: int, cpus: int
) -> dict[str, dict[str, str]]:
    """Make the configuration files of a cluster of this host, with limits for all containers."""
    classpath = f"{own.conf},{own.jars}/*"
    options = " ".join(java_options(own.conf))
    # Containers have nothing else of this environment. By the mark the reaper knows what to end.
    mark = cleanup_process.MARK
    return {
        "core-site.xml": {
            "fs.defaultFS": f"hdfs://{LOOPBACK}:{ports.namenode}",
            "hadoop.tmp.dir": f"{own.scratch}/tmp",  # nosec B108  # in a folder of ppw's
        },
        "hdfs-site.xml": {
            "dfs.replication": "1",
            "dfs.namenode.http-address": f"{LOOPBACK}:0",
            "dfs.namenode.rpc-bind-host": LOOPBACK,
            "dfs.datanode.hostname": LOOPBACK,
        },
        "mapred-site.xml": {
            "mapreduce.framework.name": "yarn",
            "mapreduce.application.classpath": classpath,
            "mapreduce.jobhistory.jhist.format": "json",
            "mapreduce.jobhistory.address": f"{LOOPBACK}:{ports.history}",
            "mapreduce.jobhistory.admin.address": f"{LOOPBACK}:{ports.history_admin}",
            "mapreduce.jobhistory.webapp.address": f"{LOOPBACK}:{ports.history_web}",
            "mapreduce.jobhistory.bind-host": LOOPBACK,
            "mapreduce.jobhistory.intermediate-done-dir": NEW_HISTORIES,
            "mapreduce.jobhistory.done-dir": HISTORIES,
            "mapreduce.shuffle.port": "0",
            "mapreduce.map.java.opts": options,
            "mapreduce.reduce.java.opts": options,
            "mapreduce.client.progressmonitor.pollinterval": _POLL_MS,
            "mapreduce.client.completion.pollinterval": _POLL_MS,
            "yarn.app.mapreduce.am.staging-dir": "/staging",
            "yarn.app.mapreduce.am.resource.mb": "1024",
            "yarn.app.mapreduce.am.command-opts": f"-Xmx768m {options}",
        },
        "yarn-site.xml": {
            "yarn.application.classpath": classpath,
            **dict.fromkeys(_LOOPBACK_HOSTS, LOOPBACK),
            "yarn.resourcemanager.address": f"{LOOPBACK}:{ports.resource_manager}",
            "yarn.resourcemanager.scheduler.address": f"{LOOPBACK}:{ports.scheduler}",
            "yarn.resourcemanager.resource-tracker.address": f"{LOOPBACK}:{ports.tracker}",
            "yarn.resourcemanager.admin.address": f"{LOOPBACK}:{ports.admin}",
            "yarn.resourcemanager.webapp.address": f"{LOOPBACK}:{ports.web}",
            **dict.fromkeys(_ANY_PORT, f"{LOOPBACK}:0"),
            "yarn.nodemanager.resource.memory-mb": str(memory_mb),
            "yarn.nodemanager.resource.cpu-vcores": str(cpus),
            "yarn.nodemanager.admin-env": f"{mark}={own.environment()[mark]}",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.vmem-check-enabled": "false",
            # A disk that is nearly full would take the only node away without a word.
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.nodemanager.delete.debug-delay-sec": "0",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.scheduler.maximum-allocation-mb": str(memory_mb),
        },
    }


def java_options(conf: Path) -> tuple[str, ...]:
    """Options of every JVM of a cluster; host names are looked up in ``conf`` alone."""
    return (*install.OPTIONS, f"-Djdk.net.hosts.file={conf}/hosts")


def write_configuration(conf: Path, files: Mapping[str, Mapping[str, str]]) -> None:
    """Write Hadoop's XML files, its logging and its list of hosts into a new folder."""
    conf.mkdir(parents=True)
    for name, properties in files.items():
        root = ElementTree.Element("configuration")
        for key, value in properties.items():
            one = ElementTree.SubElement(root, "property")
            ElementTree.SubElement(one, "name").text = key
            ElementTree.SubElement(one, "value").text = value
        ElementTree.indent(root)
        ElementTree.ElementTree(root).write(conf / name, encoding="utf-8", xml_declaration=True)
    (conf / "log4j.properties").write_text(_LOG4J, encoding="utf-8")
    # Java looks names up in this list alone, so that no name leads off the loopback address.
    names = dict.fromkeys(("localhost", socket.gethostname(), socket.getfqdn()))
    hosts = "".join(f"{LOOPBACK} {name}\n" for name in names)
    (conf / "hosts").write_text(hosts, encoding="utf-8")


EXAMPLES = "org.apache.hadoop.examples.ExampleDriver"
_MIB = 2**20
_DEFAULT_TASK_BYTES = 1024 * _MIB
# Share of a task's memory that is its heap, as Hadoop takes it on a cluster.
_HEAP_SHARE = 0.8
# For what the process has beside its tasks.
_OWN_BYTES = 256 * _MIB


class Local(Engine):
    """Jobs by Hadoop's local runner: one JVM a job, and a thread of it for each task slot."""

    mode = "local"

    def __init__(self, own: OwnHadoop) -> None:
        super().__init__(str(own.scratch), own.scratch, own)
        self._own = own
        own.work.mkdir()
        write_configuration(own.conf, local_properties(own.scratch))

    def prepare(self, settings: Sequence[jobs.Setting]) -> None:
        """Make the inputs of all settings."""
        own = self._own
        check_room(own.scratch, jobs.room_needed(settings))
        sizes = jobs.input_sizes(settings, jobs.TEXT_READERS)
        for size, path in jobs.make_texts(own.scratch, sizes, seed=own.seed).items():
            self._sources |= {(name, size): str(path) for name in jobs.TEXT_READERS}
        for size in jobs.input_sizes(settings, jobs.ROW_READERS):
            self._make_rows(size, maps=1)

    def command(self, setting: jobs.Setting) -> list[str]:
        """Command of one job, in fresh folders."""
        for folder in ("output", "local", "staging", "tmp"):
            shutil.rmtree(self._own.scratch / folder, ignore_errors=True)
        return self._example_command(
            setting, self._input_path(setting), str(self._own.scratch / "output")
        )

    def job(self, setting: jobs.Setting, output: Path) -> history.Job:
        """What the last job did, from its log."""
        return history.read_local_log(output, slots=_task_slots(setting))

    def _example_command(self, setting: jobs.Setting, source: str, target: str) -> list[str]:
        own = self._own
        arguments = jobs.example_arguments(setting, own.options, source, target, local=True)
        # The native part of snappy is unpacked in the folder of temporary files.
        temporary = f"-Djava.io.tmpdir={own.work}"
        task = setting.task_memory_bytes or _DEFAULT_TASK_BYTES
        return own.java_command(
            int(_HEAP_SHARE * task * _task_slots(setting) + _OWN_BYTES) // _MIB,
            temporary,
            EXAMPLES,
            *arguments,
        )


def _task_slots(setting: jobs.Setting) -> int:
    return max(setting.map_slots or 1, setting.reduce_slots or 1)


_MANAGER = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
_MASTER_MB = 1024
_START_S = 180.0


class OneMachine(ClusterEngine):
    """A cluster in one JVM: HDFS, YARN and the job history server, on loopback alone.

    With ``open_ports`` it goes on where this system gives no private network, in which case a part
    of Hadoop listens on all addresses. Otherwise it raises `MeasurementError` there.
    """

    mode = "yarn"
    shell = "org.apache.hadoop.fs.FsShell"
    scheme = "file://"

    def __init__(self, own: OwnHadoop, *, open_ports: bool = False) -> None:
        super().__init__("/ppw", own.scratch, own)
        refused = private_network.refusal()
        if refused and not open_ports:
            raise MeasurementError(
                f"{refused}: without one, parts of Hadoop listen on all addresses "
                "and accept commands from anybody. If nobody else can reach this "
                "host, allow it with --open-ports; otherwise use --mode local"
            )
        self._own = own
        self._private = not refused
        self._log = own.scratch / "cluster.log"
        self._cluster: subprocess.Popen[bytes] | None = None
        self._ports = Ports._make(clients.free_ports(len(Ports._fields)))

    def prepare(self, settings: Sequence[jobs.Setting]) -> None:
        """Start the cluster and bring the inputs into its file system."""
        own = self._own
        check_room(own.scratch, jobs.room_needed(settings, copies=2))
        self._write_cluster_configuration(settings)
        self._start_cluster()
        self._put_texts(jobs.input_sizes(settings, jobs.TEXT_READERS), own.seed, jobs.TEXT_READERS)
        for size in jobs.input_sizes(settings, jobs.ROW_READERS):
            self._make_rows(size, maps=2)

    def command(self, setting: jobs.Setting) -> list[str]:
        """Command of one job."""
        if self._cluster is None or self._cluster.poll() is not None:
            raise MeasurementError(f"the cluster has ended: {first_complaint(self._log)}")
        return self._example_command(setting, self._input_path(setting), self._next_output_folder())

    def job(self, setting: jobs.Setting, output: Path) -> history.Job:
        """What the last job did, from its history file."""
        name = submitted_job(output)
        if name is None:
            raise MeasurementError(
                f"{output}: no job was submitted: read the messages in this file"
            )
        return self._fetch_history(name, (f"{NEW_HISTORIES}/*", f"{HISTORIES}/*/*/*/*"))

    def close(self) -> None:
        """End the cluster; what is left of it, and its files, are the reaper's."""
        if self._cluster is not None:
            self._cluster.kill()
            self._cluster.wait()
            self._cluster = None

    def _write_cluster_configuration(self, settings: Sequence[jobs.Setting]) -> None:
        task_mb = max(-(-(s.task_memory_bytes or _DEFAULT_TASK_BYTES) // _MIB) for s in settings)
        slots = max((s.map_slots or 1) + (s.reduce_slots or 1) for s in settings)
        memory_mb = _MASTER_MB + slots * task_mb
        there_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB
        if memory_mb > there_mb:
            raise MeasurementError(
                f"{slots} task slots of {task_mb} MiB and the application master take "
                f"{memory_mb} MiB, and this host has {there_mb} MiB: take fewer --map-slots and "
                "--reduce-slots, or less --memory"
            )
        files = cluster_properties(self._own, self._ports, memory_mb=memory_mb, cpus=slots + 1)
        write_configuration(self._own.conf, files)

    def _start_cluster(self) -> None:
        own, ports = self._own, self._ports
        details = own.scratch / "details.json"
        for folder in (own.work, own.scratch / "tmp"):
            folder.mkdir()
        arguments = [
            *("-format", "-datanodes", "1", "-nodemanagers", "1", "-writeDetails", str(details)),
            *("-nnport", str(ports.namenode), "-rmport", str(ports.resource_manager)),
            *("-jhsport", str(ports.history)),
        ]
        network = private_network.inside_new() if self._private else []
        with self._log.open("wb") as log:
            inside = [*network, *self._java_command(1024, _MANAGER, *arguments)]
            self._cluster = clients.start_process(inside, log, own.environment())
        until = time.monotonic() + _START_S
        while not (details.exists() and details.stat().st_size):
            if self._cluster.poll() is not None or time.monotonic() > until:
                said = first_complaint(self._log) or f"it said nothing within {_START_S:g} s"
                raise MeasurementError(f"the one-machine cluster did not start: {said}")
            time.sleep(0.1)

    def _client_command(self, *arguments: str) -> list[str]:
        network: list[str] = []
        if self._private and self._cluster is not None:
            network = private_network.inside_of(self._cluster.pid)
        return [*network, *self._java_command(512, *arguments)]

    def _java_command(self, heap_mb: int, *arguments: str) -> list[str]:
        scratch = self._own.scratch
        folders = (f"-Djava.io.tmpdir={scratch}/tmp", f"-Dtest.build.data={scratch}/data")  # nosec B108  # in a folder of ppw's
        return self._own.java_command(heap_mb, *folders, *arguments)

    def _example_command(self, setting: jobs.Setting, source: str, target: str) -> list[str]:
        options = self._own.options
        arguments = jobs.example_arguments(setting, options, source, target, local=False)
        return self._client_command(EXAMPLES, *arguments)
