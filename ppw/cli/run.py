"""`ppw run`: workloads that ppw starts, loads and reads by itself."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from measurements.workloads.hadoop.jobs import COMPRESSIONS, SELF_CONTAINED_COMPRESSIONS, WORKLOADS
from ppw.cli import NamedCommands
from ppw.cli.options import (
    CpuList,
    data_option,
    family_option,
    host_option,
    job_options,
    pairs,
    run_options,
    running_on,
    sensor_options,
    service_options,
    show_progress,
    workload_option,
)
from ppw.cli.output import say
from ppw.cli.types import Bytes, Counts, Frequency, Names, OneOf, Positive, Shares, Sizes, Whole
from ppw.errors import PpwError

if TYPE_CHECKING:
    import pandas as pd

    from measurements.workloads.fio import FioOptions
    from measurements.workloads.hadoop.job_sweep import HadoopOptions
    from measurements.workloads.io_study.study import StudyOptions
    from measurements.workloads.memcached.options import MemcachedOptions


class Workloads(NamedCommands):
    """The workloads of `ppw run`."""

    kind = "workload"
    otherwise = "; any command can be measured with ppw measure"


@click.group(
    name="run",
    cls=Workloads,
    short_help="Run memcached, Hadoop or fio and measure it.",
    epilog="Example: ppw run memcached --threads 1,2 --object-size 64,1KiB -o memcached.csv",
)
def run_command() -> None:
    """Run a workload and measure its throughput, watts, counters and CPU time.

    What is started is ended on every way out, and nothing of it is left on disk.
    """


# `ppw run count`.


_COUNT_EPILOG = "Example: ppw run count --data 64MiB -o counts.csv -- wc -w words.txt"


@run_command.command(
    name="count",
    short_help="Instructions of a command: counted, emulated or estimated, and labelled so.",
    epilog=_COUNT_EPILOG,
)
@click.argument("command", nargs=-1, required=True)
@click.option(
    "--method",
    type=OneOf(["perf", "callgrind", "qemu", "cpu-time"]),
    help="What counts. Default: the first that works here. callgrind and qemu execute the command "
    "once more, ten to a hundred times slower.",
)
@click.option("--clock", type=Frequency(), help="Core clock, for cpu-time.")
@click.option(
    "--cpi",
    type=Positive(),
    help="Cycles per instruction, for cpu-time.",
)
@click.option("--cores", type=Whole(1), help="Physical cores to use. Default: all there are.")
@data_option
@workload_option
@host_option
@family_option
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Runs table that the row is added to, .csv, .parquet or .jsonl.",
)
def run_count_command(command: tuple[str, ...], **given: Any) -> int:
    """Count the instructions that COMMAND retires, and say how: counted, emulated or estimated."""
    from measurements.counters.instructions import count_instructions
    from measurements.host.cpu_placement import place, read_topology
    from measurements.sweep.measure import this_host
    from ppw.results.text import shown

    placement = place(read_topology(), given["cores"])
    found = count_instructions(
        command,
        method=given["method"],
        clock_hz=given["clock"],
        cpi=given["cpi"],
        cpus=placement.cpus,
    )
    for caveat in found.caveats:
        say(caveat)
    row: dict[str, Any] = {
        "host": given["host"] or this_host(),
        "family": given["family"],
        "workload": given["workload"] or Path(command[0]).name,
        "freq_hz": given["clock"],
        "cores": placement.cores,
        "data_bytes": given["data"],
        "cpi": given["cpi"] if found.method == "cpu-time" else None,
        **found.columns(),
    }
    if given["output"]:
        _add({name: value for name, value in row.items() if value is not None}, given["output"])
    data = given["data"]
    per_byte = f", {found.instructions / data:.4g} a byte" if data else ""
    click.echo(
        f"{found.instructions:,.0f} instructions{per_byte}, {found.label} by {found.method} "
        f"({found.modes}); {shown(found.time_s, 's')}"
    )
    return 0


def _add(row: dict[str, Any], output: str) -> None:
    import pandas as pd

    from measurements import read_runs, write_runs

    if output == "-":
        raise PpwError("-o takes a file, to which the row is added")
    new = pd.DataFrame([row])
    path = Path(output)
    write_runs(pd.concat([read_runs(path), new]) if path.exists() else new, path)


# `ppw run cpio`.


_PATTERNS = "randread,randwrite,read:128KiB,write:128KiB"


@run_command.command(
    name="cpio",
    short_help="CPU time and I/Os of fio or a command by cores, with and without the device.",
    epilog="Example: ppw run cpio --folder /data --size 8GiB --cores 1,2,4 --without-device -o "
    "study.csv; ppw cpio study.csv",
)
@click.argument("command", nargs=-1)
@click.option(
    "--folder",
    metavar="FOLDER",
    required=True,
    help="On the disk to study; what is made in it is removed afterwards.",
)
@click.option("--cores", type=Counts(), help="Physical cores. Default: 1, 2, 4 … and all.")
@click.option(
    "--threads-per-core", type=Counts(), default="1", show_default=True, help="Hardware threads."
)
@click.option(
    "--instances", type=Counts(), default="1", show_default=True, help="Equal programs at once."
)
@click.option(
    "--without-device",
    is_flag=True,
    help="The same again on a loop device over a file in memory. Needs root.",
)
@click.option(
    "--confine-kernel",
    is_flag=True,
    help="Keep the kernel's unbound workers on the cores of each run: they do part of the I/O. "
    "Put back afterwards. Needs root.",
)
@click.option(
    "--scope",
    type=OneOf(["host", "own"]),
    default="host",
    show_default=True,
    help="CPU time and I/O of the whole host, as published, or, where others use it too, CPU time "
    "of the programs and the kernel's threads alone and I/O of fio alone.",
)
@click.option(
    "--take-bandwidth",
    type=Shares(),
    default="0",
    help="Memory bandwidth to take from the workload, in shares of what the cores beside it can: "
    "0,50%,100%.",
)
@click.option(
    "--size", type=Bytes(), default="1GiB", show_default=True, help="Of each file of fio."
)
@click.option(
    "--pattern",
    "patterns",
    type=Names(),
    metavar="PATTERN[,…]",
    default=_PATTERNS,
    show_default=True,
    help="Of fio, each with the size of a request if need be.",
)
@click.option(
    "--depth",
    type=Whole(1),
    default=16,
    show_default=True,
    help="Requests in flight of each job of fio; there is one a logical CPU.",
)
@click.option(
    "--prepare", metavar="SHELL", help="Fills the fresh folder of each run of COMMAND beforehand."
)
@workload_option
@data_option
@run_options
def run_cpio_command(command: tuple[str, ...], **given: Any) -> int:
    """Run fio, or COMMAND, at several core counts, and count CPU time and sectors of the host.

    In COMMAND, {folder} is a fresh folder on the device, {threads} the number of logical CPUs
    and {instance} that of the program, from 0. The table is for ppw cpio.
    """
    from measurements.sweep.measure import this_host
    from measurements.workloads.io_study.cpu_accounting import findings
    from measurements.workloads.io_study.study import open_study, table

    options = _cpio_options(command, given)
    options.check()
    service = service_options(given, host=this_host())
    with (
        running_on(given, service, {"cpio": asdict(options)}) as opened,
        open_study(options, opened.runs) as study,
    ):
        found = opened.take(study, table, show_progress)
    for text in findings(found):
        say(text)
    click.echo(cpio_summary(found))
    return 0


def _cpio_options(command: tuple[str, ...], given: dict[str, Any]) -> StudyOptions:
    from measurements.workloads.fio import Pattern
    from measurements.workloads.io_study.study import StudyOptions

    return StudyOptions(
        folder=str(given["folder"]),
        cores=tuple(given["cores"] or _doubled()),
        threads_per_core=tuple(given["threads_per_core"]),
        instances=tuple(given["instances"]),
        without_device=given["without_device"],
        confine_kernel=given["confine_kernel"],
        own=given["scope"] == "own",
        taken=given["take_bandwidth"],
        size_bytes=round(given["size"]),
        patterns=() if command else tuple(map(Pattern.parse, given["patterns"])),
        depth=given["depth"],
        command=command,
        prepare=given["prepare"],
        workload=given["workload"],
        data_bytes=None if given["data"] is None else round(given["data"]),
    )


def _doubled() -> list[int]:
    """Counts of cores, each twice the one before, and all that there are."""
    from measurements.host.cpu_placement import read_topology

    there = len(read_topology().cores)
    return [*(1 << n for n in range(there.bit_length()) if 1 << n < there), there]


def cpio_summary(table: pd.DataFrame) -> str:
    """What `ppw cpio` says of the table."""
    import warnings

    from ppw.cpio.cycles import cycles_per_io
    from ppw.errors import CaveatWarning, PpwError

    with warnings.catch_warnings():
        # They are in the summary.
        warnings.simplefilter("ignore", CaveatWarning)
        try:
            return cycles_per_io(table).summary()
        except PpwError as error:
            # The table stands, whatever it says.
            return f"no cycles per I/O: {error}"


# `ppw run fio`.


_FIO_EPILOG = "Example: ppw run fio --folder /data --size 8GiB --power ipmi -o disk.csv"


@run_command.command(
    name="fio",
    short_help="IOPS, bandwidth and latency of a disk by queue depth, and IOPS per watt.",
    epilog=_FIO_EPILOG,
)
@click.option(
    "--folder",
    metavar="FOLDER",
    required=True,
    help="On the disk to measure; the file in it is removed afterwards.",
)
@click.option("--size", type=Bytes(), default="1GiB", show_default=True, help="Of the file.")
@click.option(
    "--pattern",
    "patterns",
    type=Names(),
    metavar="PATTERN[,…]",
    default="randread,randwrite,read,write",
    show_default=True,
    help="Each with the size of a request if need be, randread:8KiB. Default: 4 KiB at random, "
    "32 KiB in sequence.",
)
@click.option(
    "--depth",
    "depths",
    type=Counts(),
    default="1,2,4,8,16,32",
    show_default=True,
    help="Requests in flight.",
)
@run_options
def run_fio_command(**given: Any) -> int:
    """Measure a disk with fio by pattern and queue depth: IOPS, bandwidth, latency, IOPS per watt.

    The file that is read and written is made in --folder and removed afterwards.
    """
    from measurements.processes.programs import find_program
    from measurements.sweep.measure import this_host
    from measurements.workloads.fio import open_runs, table

    options = _fio_options(given)
    options.check()
    # Before the sensors have their say.
    find_program("fio")
    service = service_options(given, host=this_host())
    with running_on(given, service, {"fio": asdict(options)}) as opened:
        found = opened.take(open_runs(options, opened.runs), table, show_progress)
    click.echo(fio_summary(found))
    return 0


def _fio_options(given: dict[str, Any]) -> FioOptions:
    from measurements.workloads.fio import FioOptions, Pattern

    return FioOptions(
        folder=str(given["folder"]),
        size_bytes=round(given["size"]),
        patterns=tuple(map(Pattern.parse, given["patterns"])),
        depths=tuple(given["depths"]),
    )


def fio_summary(table: pd.DataFrame) -> str:
    """Medians by pattern and depth, as text."""
    from ppw.results.text import shown, text_table

    columns = {name: part for name, part in _FIO_COLUMNS.items() if name in table}
    rows = []
    keys = ["pattern", "data_bytes", "queue_depth"]
    for (pattern, block, depth), part in table.groupby(keys, sort=True):
        medians = [shown(part[name].median() * k, u) for name, (_, u, k) in columns.items()]
        rows.append([str(pattern), f"{block:.0f}", f"{depth:.0f}", *medians])
    header = ["pattern", "block", "depth", *(title for title, _, _ in columns.values())]
    return text_table(header, rows)


# Title, unit, and the factor to it.
_FIO_COLUMNS = {
    "throughput_ops_s": ("IOPS", "1", 1.0),
    "bandwidth_bytes_s": ("MB/s", "1", 1e-6),
    "latency_mean_s": ("mean (µs)", "1", 1e6),
    "latency_p50_s": ("p50 (µs)", "1", 1e6),
    "latency_p99_s": ("p99 (µs)", "1", 1e6),
    "power_w": ("power", "W", 1.0),
    "iops_per_w": ("IOPS/W", "1", 1.0),
}


# `ppw run hadoop`.


_HADOOP_EPILOG = (
    "Example: ppw run hadoop --setup; "
    "ppw run hadoop --workload wordcount,terasort --data 64MB,128MB,256MB,512MB -o runs.csv; "
    "ppw run hadoop --mode cluster --workload crawl --nodes nodes.csv -o runs.csv -- "
    "jar nutch.job org.example.Index {options} crawl/segments {output}"
)
_SCRATCH = "/var/tmp"
_HADOOP_ALWAYS = ("workload", "data_bytes")
_HADOOP_KEYS = {
    "host": "host",
    "workload": "workload",
    "data_bytes": "data",
    "freq_hz": "freq",
    "map_slots": "maps",
    "reduce_slots": "reduces",
    "task_memory_bytes": "memory",
    "compression": "compression",
}
_HADOOP_COLUMNS = {
    "time_s": ("time", "s"),
    "start_up_s": ("start-up", "s"),
    "map_phase_s": ("maps take", "s"),
    "reduce_phase_s": ("reduces take", "s"),
    "task_cpu_s": ("CPU of tasks", "s"),
    "power_w": ("power", "W"),
    "energy_j": ("energy", "J/run"),
}


@run_command.command(
    name="hadoop",
    short_help="MapReduce jobs, on a cluster of yours or on one machine.",
    epilog=_HADOOP_EPILOG,
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
def run_hadoop_command(**given: Any) -> int:
    """Run MapReduce jobs over data sizes, slots, memory and compression, and measure each.

    Hadoop's own Wordcount, Sort, Teragen and Terasort run without any cluster. On a cluster of
    yours any job runs: give the arguments of hadoop after --, where {options} is replaced by
    Hadoop's options, {input} by a text of the size of --data, {data} by that size, and {output} by
    a folder that is not there. Each run is in the table's file before the next begins.
    """
    if given["setup"]:
        from measurements.workloads.hadoop.install import set_up

        say(f"Hadoop is in {set_up(tell=say)}")
        if not given["output"]:
            return 0
    if not given["output"]:
        raise click.UsageError("no -o FILE: where is the table to go?")
    options = _hadoop_options(given)
    _refuse_mismatches(options, given)
    click.echo(_measure_hadoop(options, given))
    return 0


def _hadoop_options(given: dict[str, Any]) -> HadoopOptions:
    from measurements.workloads.hadoop.job_sweep import HadoopOptions

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


def _measure_hadoop(options: HadoopOptions, given: dict[str, Any]) -> str:
    from measurements.sweep.measure import this_host
    from measurements.workloads.hadoop.job_sweep import measure_hadoop

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
    return hadoop_summary(table)


def hadoop_summary(table: pd.DataFrame) -> str:
    """Medians by set-up, as text."""
    from ppw.results.text import shown, text_table

    keys = [
        name
        for name in _HADOOP_KEYS
        if name in table and (name in _HADOOP_ALWAYS or len(table[name].unique()) > 1)
    ]
    columns = {name: part for name, part in _HADOOP_COLUMNS.items() if name in table}
    rows = []
    for key, part in table.groupby(keys, sort=True, dropna=False):
        values = [_hadoop_key(name, value) for name, value in zip(keys, key, strict=True)]
        medians = [shown(part[name].median(), unit) for name, (_, unit) in columns.items()]
        rows.append([*values, str(len(part)), *medians])
    header = [_HADOOP_KEYS[name] for name in keys]
    return text_table([*header, "runs", *(title for title, _ in columns.values())], rows)


def _hadoop_key(name: str, value: Any) -> str:
    from ppw.results.text import shown

    if value != value or value is None:
        return "–"
    unit = "B" if name.endswith("_bytes") else "Hz" if name.endswith("_hz") else ""
    return shown(float(value), unit) if isinstance(value, (int, float)) else str(value)


# `ppw run memcached`.


_MEMCACHED_EPILOG = (
    "Example: ppw run memcached --threads 1,2,4 --object-size 64,1KiB,16KiB --load 25%,50%,75% "
    "-o runs.csv"
)


@run_command.command(
    name="memcached",
    short_help="Throughput, latency and limits of memcached by threads, size and load.",
    epilog=_MEMCACHED_EPILOG,
)
@click.option(
    "--server",
    "servers",
    type=Names(),
    metavar="HOST:PORT[,…]",
    help="Drive these servers as they are. Default: private ones on loopback.",
)
@click.option(
    "--threads", type=Counts(), default="1", show_default=True, help="Worker threads of a server."
)
@click.option(
    "--partitions",
    type=Counts(),
    default="1",
    show_default=True,
    help="Servers that share the load.",
)
@click.option(
    "--object-size", type=Sizes(), default="64", show_default=True, help="Sizes of a value."
)
@click.option(
    "--connections",
    type=Counts(),
    default="16",
    show_default=True,
    help="Of all clients together; a run with twice as many checks them.",
)
@click.option(
    "--keys-per-request",
    type=Counts(),
    default="1",
    show_default=True,
    help="Objects that one get asks for.",
)
@click.option(
    "--gets", type=Shares(), default="100%", show_default=True, help="Share of the requests."
)
@click.option("--key-size", type=Bytes(), default="30", show_default=True, help="Of a key.")
@click.option(
    "--objects",
    type=Whole(1),
    default=10_000,
    show_default=True,
    help="That are asked for; memcaslap rounds it to 1024 a connection.",
)
@click.option("--memory", type=Bytes(), help="Of private servers. Default: what objects need.")
@click.option(
    "--client",
    type=OneOf(["memcaslap", "memtier", "paced"]),
    help="Load generator; paced is ppw's own. Default: memcaslap, else memtier.",
)
@click.option(
    "--client-threads", type=Whole(1), help="Threads of the load generator. Default: one a CPU."
)
@click.option(
    "--server-cpus",
    type=CpuList(),
    help="CPUs of servers, 0-3,8. Default: the first half of the cores.",
)
@click.option(
    "--client-cpus", type=CpuList(), help="CPUs of the load generator. Default: the other cores."
)
@click.option(
    "--load",
    "loads",
    type=Shares(),
    help="Measure at these shares of the full throughput too, at a fixed rate: 10%,50%.",
)
@click.option("--rate", "rates", type=Counts(), help="The same as operations a second.")
@click.option(
    "--line-rate",
    type=Positive(),
    metavar="BITS/S",
    help="Of the network to --server. Default: what the interface says.",
)
@run_options
def run_memcached_command(**given: Any) -> int:
    """Load memcached at several set-ups: throughput, latency, hit rate, CPU, watts, and the limit.

    Throughput is what the server counts in a window of steady load. Each set-up ends with a run
    with more client: where that raises the throughput, its rows say client_limited.
    """
    from measurements.sweep.measure import this_host
    from measurements.workloads.memcached.load_run import link_to
    from measurements.workloads.memcached.load_sweep import find_programs, open_runs, table
    from measurements.workloads.memcached.servers import Address

    options = _memcached_options(given)
    options.check()
    # Before the sensors have their say.
    find_programs(options)
    named = [Address.parse(text) for text in options.servers]
    is_local = all(link_to(address).is_loopback for address in named)
    service = service_options(given, host=this_host() if is_local else str(named[0].host))
    workload = {"memcached": asdict(options)}
    with running_on(given, service, workload, is_local=is_local) as opened:
        found = opened.take(open_runs(options, opened.runs), table, show_progress)
    click.echo(memcached_summary(found))
    return 0


def _memcached_options(given: dict[str, Any]) -> MemcachedOptions:
    from measurements.workloads.memcached.options import MemcachedOptions

    if len(given["gets"]) != 1:
        raise click.UsageError("--gets takes one share, such as 90%")
    return MemcachedOptions(
        servers=tuple(given["servers"] or ()),
        threads=tuple(given["threads"]),
        partitions=tuple(given["partitions"]),
        object_bytes=tuple(given["object_size"]),
        connections=tuple(given["connections"]),
        keys_per_request=tuple(given["keys_per_request"]),
        get_share=given["gets"][0],
        key_bytes=round(given["key_size"]),
        objects=given["objects"],
        memory_bytes=given["memory"],
        client=given["client"],
        client_threads=given["client_threads"],
        server_cpus=given["server_cpus"] or (),
        client_cpus=given["client_cpus"] or (),
        loads=given["loads"] or (),
        rates=tuple(float(rate) for rate in given["rates"] or ()),
        line_rate_bits_s=given["line_rate"],
    )


def memcached_summary(table: pd.DataFrame) -> str:
    """Medians by set-up as text, and what limits each."""
    from ppw.results.text import shown, text_table

    keys = ["workload", "threads", "data_bytes", "connections", "asked_ops_s"]
    known = table.reindex(columns=[*dict.fromkeys([*table.columns, *keys])])
    asked = known["asked_ops_s"].round(3)
    columns = {name: part for name, part in _MEMCACHED_COLUMNS.items() if name in table}
    rows = []
    for _, part in known.groupby([*keys[:4], asked], dropna=False, sort=True):
        first = part.iloc[0]
        cells = [str(first["workload"]), *(_whole(first[name]) for name in keys[1:4])]
        cells.append(shown(part["load"].median() if "load" in part else float("nan")))
        cells += [shown(part[name].median() * k, unit) for name, (_, unit, k) in columns.items()]
        rows.append([*cells, "/".join(dict.fromkeys(part["limited_by"].astype(str)))])
    header = ["workload", "threads", "object", "connections", "load"]
    header += [title for title, _, _ in columns.values()]
    return text_table([*header, "limited by"], rows)


# Title, unit, and the factor to it.
_MEMCACHED_COLUMNS = {
    "throughput_ops_s": ("ops/s", "1", 1.0),
    "latency_p50_s": ("p50 (µs)", "1", 1e6),
    "latency_p99_s": ("p99 (µs)", "1", 1e6),
    "hit_rate": ("hits", "1", 1.0),
    "server_cpu_share": ("server CPU", "1", 1.0),
    "client_cpu_share": ("client CPU", "1", 1.0),
    "power_w": ("power", "W", 1.0),
}


def _whole(value: float) -> str:
    return "–" if value != value else f"{value:.0f}"
