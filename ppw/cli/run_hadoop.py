"""`ppw run hadoop`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from measurements.workloads.hadoop.jobs import (
    COMPRESSIONS,
    SELF_CONTAINED_COMPRESSIONS,
    WORKLOADS,
)
from ppw.cli.choices import Names, OneOf
from ppw.cli.numbers import Counts, Whole
from ppw.cli.options import pairs
from ppw.cli.output import say
from ppw.cli.quantities import Sizes
from ppw.cli.run_options import job_options, sensor_options, service_options, show_progress
from ppw.errors import PpwError
from ppw.hadoop_runs import HadoopOptions, measure_hadoop, summary

_EPILOG = (
    "Example: ppw run hadoop --setup; "
    "ppw run hadoop --workload wordcount,terasort --data 64MB,128MB,256MB,512MB -o runs.csv; "
    "ppw run hadoop --mode cluster --workload crawl --nodes nodes.csv -o runs.csv -- "
    "jar nutch.job org.example.Index {options} crawl/segments {output}"
)
_SCRATCH = "/var/tmp"


@click.command(
    name="hadoop", short_help="MapReduce jobs, on a cluster or on one machine.", epilog=_EPILOG
)
@click.argument("command", nargs=-1, metavar="[-- HADOOP ARGUMENTS…]")
@click.option(
    "--setup",
    is_flag=True,
    help="Bring Hadoop's jars into the cache first (about 104 MB, by Maven, once).",
)
@click.option(
    "--mode",
    type=OneOf(["local", "yarn", "cluster"]),
    default="local",
    show_default=True,
    help="All tasks in one process; a cluster of this machine alone; or the cluster that hadoop on "
    "the path is set up for.",
)
@click.option(
    "--workload",
    "workloads",
    type=Names(),
    default="wordcount",
    show_default=True,
    metavar="NAME[,…]",
    help=f"Of {', '.join(WORKLOADS)}; any one name for a job of your own.",
)
@click.option("--data", type=Sizes(), help="Input sizes, 64MB,1GiB. Default: 64MB.")
@click.option("--map-slots", type=Counts(), help="Maps at once. Default here: one a CPU.")
@click.option("--reduce-slots", type=Counts(), help="Reduces at once. Default here: one a CPU.")
@click.option("--reduces", type=Whole(1), help="Reduce tasks. Default: one a reduce slot.")
@click.option("--memory", type=Sizes(), help="Of one task. Default here: 1GiB.")
@click.option(
    "--compression",
    type=Names(COMPRESSIONS),
    metavar="NAME[,…]",
    help=f"Of the maps' output: {', '.join(COMPRESSIONS)}. Default: as Hadoop is set up.",
)
@click.option(
    "-D",
    "properties",
    multiple=True,
    callback=pairs("NAME=VALUE"),
    metavar="NAME=VALUE",
    help="A property of Hadoop's for every job.",
)
@click.option(
    "--warm-ups",
    type=Whole(0),
    default=1,
    show_default=True,
    help="Runs of the smallest job before the first, which are not kept.",
)
@click.option(
    "--scratch",
    type=click.Path(file_okay=False, exists=True),
    metavar="FOLDER",
    default=_SCRATCH,
    show_default=True,
    help="Folder on the disk that is to be used; what is made in it is removed.",
)
@click.option(
    "--open-ports",
    is_flag=True,
    help="With --mode yarn: go on where this system gives no network of one's own, in which case "
    "parts of Hadoop listen on all addresses.",
)
@click.option(
    "--cluster", metavar="NAME", default="hadoop", show_default=True, help="Name of the cluster."
)
@click.option(
    "--nodes",
    type=click.Path(dir_okay=False, exists=True),
    metavar="FILE",
    help="CSV of the cluster's nodes: host, and power (as in --power), family, price, cores, role.",
)
@click.option("--jar", "examples", metavar="FILE", help="Hadoop's examples on the cluster.")
@click.option("--history", metavar="FOLDER", help="Of job histories in the cluster's file system.")
@job_options
def command(**given: Any) -> int:
    """Run MapReduce jobs over data sizes, slots, memory and compression, and measure each.

    Hadoop's own Wordcount, Sort, Teragen and Terasort run without any cluster. On a cluster of
    yours any job runs: give the arguments of hadoop after --, where {options} is replaced by
    Hadoop's options, {input} by a text of the size of --data, {data} by that size, and {output} by
    a folder that is not there. Each run is in the table's file before the next begins.
    """
    if given["setup"]:
        from measurements.workloads.hadoop.jars import set_up

        say(f"Hadoop is in {set_up(tell=say)}")
        if not given["output"]:
            return 0
    if not given["output"]:
        raise click.UsageError("no -o FILE: where is the table to go?")
    options = _options(given)
    _refuse_mismatches(options, given)
    click.echo(_measure(options, given))
    return 0


def _options(given: dict[str, Any]) -> HadoopOptions:
    own = given["mode"] != "cluster"
    cpus = [len(os.sched_getaffinity(0))] if own else []
    sized = given["data"] or ([] if given["command"] else [64_000_000])
    return HadoopOptions(
        mode=given["mode"],
        workloads=tuple(given["workloads"]),
        data_bytes=tuple(sized),
        map_slots=tuple(given["map_slots"] or cpus),
        reduce_slots=tuple(given["reduce_slots"] or cpus),
        task_memory_bytes=tuple(given["memory"] or ([2**30] if own else [])),
        compressions=tuple(given["compression"] or ()),
        reduces=given["reduces"],
        properties=given["properties"],
        warm_ups=given["warm_ups"],
        cluster=given["cluster"],
        nodes=given["nodes"],
        examples=given["examples"],
        history=given["history"],
        command=given["command"],
    )


def _refuse_mismatches(options: HadoopOptions, given: dict[str, Any]) -> None:
    on_cluster = options.mode == "cluster"
    for name, value in (
        ("arguments after --", options.command),
        ("--nodes", options.nodes),
        ("--jar", options.examples),
        ("--history", options.history),
    ):
        if value and not on_cluster:
            raise click.UsageError(f"{name}: for --mode cluster, and the mode is {options.mode}")
    if on_cluster and (given["freqs"] or given["turbo"]):
        raise click.UsageError("the clocks of a cluster's nodes cannot be set from here")
    if on_cluster and given["power"]:
        raise click.UsageError("watts of a cluster are those of its nodes: name them by --nodes")
    if options.command:
        _refuse_command(options)
        return
    unknown = [name for name in options.workloads if name not in WORKLOADS]
    if unknown:
        Names(WORKLOADS).convert(",".join(unknown), None, None)
    for name in options.compressions:
        if not on_cluster and name not in SELF_CONTAINED_COMPRESSIONS:
            raise PpwError(
                f"--compression {name} needs a library that Hadoop's jars have not: take one of "
                f"{', '.join(SELF_CONTAINED_COMPRESSIONS)}, or --mode cluster"
            )


def _refuse_command(options: HadoopOptions) -> None:
    if len(options.workloads) != 1:
        raise click.UsageError("one job of your own has one name: give one --workload")
    swept = (options.map_slots, options.reduce_slots, options.task_memory_bytes)
    asks = any(swept) or options.compressions or options.reduces or options.properties
    if asks and "{options}" not in options.command:
        raise click.UsageError(
            "say by {options} where Hadoop's options go among the job's arguments, most often "
            "after the class, as in jar my.jar MyJob {options} in {output}"
        )


def _measure(options: HadoopOptions, given: dict[str, Any]) -> str:
    from ppw.measuring import this_host

    on_cluster = options.mode == "cluster"
    host = f"cluster:{options.cluster}" if on_cluster else this_host()
    table = measure_hadoop(
        options,
        service_options({**given, "window": 1.0}, host=host),
        # This host's watts are not those of a cluster.
        sensor_options({**given, "power": "none"} if on_cluster else given),
        Path(given["output"]),
        scratch=Path(given["scratch"]),
        open_ports=given["open_ports"],
        resume=given["resume"],
        tell=say,
        show=show_progress,
    )
    return summary(table)
