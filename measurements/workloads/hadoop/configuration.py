"""Hadoop's configuration: everything inside one scratch folder and on the loopback address."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree

from measurements.workloads.hadoop.java import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LOOPBACK = "127.0.0.1"
# Where the one-machine cluster keeps job histories: first in one folder, then in the other.
NEW_HISTORIES, HISTORIES = "/history/new", "/history/done"
# The client looks whether the job is done once a second by default, which a short run would show.
_POLL_MS = "100"
# `local_log` reads this layout.
_LOG4J = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p [%t] %c{1}: %m%n
"""

Properties = dict[str, str]


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


def free_ports() -> Ports:
    """Ports of the loopback address on which nobody listens now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in Ports._fields]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return Ports._make(one.getsockname()[1] for one in sockets)


def local_properties(scratch: Path) -> dict[str, Properties]:
    """Configuration files for jobs in one process."""
    return {
        "core-site.xml": {"fs.defaultFS": "file:///", "hadoop.tmp.dir": f"{scratch}/tmp"},
        "mapred-site.xml": {
            "mapreduce.framework.name": "local",
            # These two have defaults outside hadoop.tmp.dir or shared by all that run there.
            "mapreduce.jobtracker.staging.root.dir": f"{scratch}/staging",
            "mapreduce.cluster.local.dir": f"{scratch}/local",
            "mapreduce.client.progressmonitor.pollinterval": _POLL_MS,
        },
    }


def cluster_properties(
    scratch: Path,
    conf: Path,
    jars: Path,
    ports: Ports,
    *,
    memory_mb: int,
    cpus: int,
    variables: Mapping[str, str],
) -> dict[str, Properties]:
    """Configuration files of a cluster with one node, of this host alone.

    Parameters
    ----------
    scratch, conf, jars : Path
    ports : Ports
    memory_mb : int
        For all containers together.
    cpus : int
        Containers' virtual cores.
    variables : mapping
        Of the environment of all containers, which have none of the cluster's otherwise.
    """
    classpath = f"{conf},{jars}/*"
    options = " ".join(java_options(conf))
    return {
        "core-site.xml": {
            "fs.defaultFS": f"hdfs://{LOOPBACK}:{ports.namenode}",
            "hadoop.tmp.dir": f"{scratch}/tmp",
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
            "yarn.resourcemanager.hostname": LOOPBACK,
            "yarn.resourcemanager.bind-host": LOOPBACK,
            "yarn.resourcemanager.address": f"{LOOPBACK}:{ports.resource_manager}",
            "yarn.resourcemanager.scheduler.address": f"{LOOPBACK}:{ports.scheduler}",
            "yarn.resourcemanager.resource-tracker.address": f"{LOOPBACK}:{ports.tracker}",
            "yarn.resourcemanager.admin.address": f"{LOOPBACK}:{ports.admin}",
            "yarn.resourcemanager.webapp.address": f"{LOOPBACK}:{ports.web}",
            "yarn.nodemanager.hostname": LOOPBACK,
            "yarn.nodemanager.bind-host": LOOPBACK,
            "yarn.nodemanager.address": f"{LOOPBACK}:0",
            "yarn.nodemanager.localizer.address": f"{LOOPBACK}:0",
            "yarn.nodemanager.webapp.address": f"{LOOPBACK}:0",
            "yarn.nodemanager.resource.memory-mb": str(memory_mb),
            "yarn.nodemanager.resource.cpu-vcores": str(cpus),
            "yarn.nodemanager.admin-env": ",".join(f"{n}={v}" for n, v in variables.items()),
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
    return (*OPTIONS, f"-Djdk.net.hosts.file={conf}/hosts")


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
    names = dict.fromkeys(("localhost", socket.gethostname(), socket.getfqdn()))
    hosts = "".join(f"{LOOPBACK} {name}\n" for name in names)
    (conf / "hosts").write_text(hosts, encoding="utf-8")
