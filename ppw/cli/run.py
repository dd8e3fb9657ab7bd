"""`ppw run`: workloads that ppw starts, loads and reads by itself."""

from __future__ import annotations

import click

from ppw.cli.lazy import LazyGroup

# By name, with the line that `ppw run --help` shows, so that listing them imports none.
WORKLOADS = {
    "count": "Instructions of a command: counted, emulated or estimated, and labelled so.",
    "cpio": "CPU time and I/Os of fio or a command by cores, with and without the device.",
    "fio": "IOPS, bandwidth and latency of a disk by queue depth, and IOPS per watt.",
    "hadoop": "MapReduce jobs, on a cluster of yours or on one machine.",
    "memcached": "Throughput, latency and limits of memcached by threads, size and load.",
}


class Workloads(LazyGroup):
    """The workloads, each in ``ppw.cli.run_<name>``."""

    prefix = "ppw.cli.run_"
    members = WORKLOADS
    kind = "workload"
    otherwise = "; any command can be measured with ppw measure"


@click.group(
    name="run",
    cls=Workloads,
    short_help="Run memcached, Hadoop or fio and measure it.",
    epilog="Example: ppw run memcached --threads 1,2 --object-size 64,1KiB -o memcached.csv",
)
def command() -> None:
    """Run a workload and measure its throughput, watts, counters and CPU time.

    What is started is ended on every way out, and nothing of it is left on disk.
    """
