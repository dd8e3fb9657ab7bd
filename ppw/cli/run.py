"""`ppw run`: workloads that ppw starts, loads and reads by itself."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import ppw
from measurements import sweep, workloads
from measurements.workloads.hadoop import jobs
from ppw.cli import NamedCommands, measuring as ms, options as opt, output as out
from ppw.results.text import printable, shown

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pandas as pd


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
    """Run a workload and measure its throughput, power, counters and CPU time.

    ppw ends every process that it started and removes its files from the disk, also after an error
    or Ctrl-C.
    """


# What the workloads share.
_SHARED = (
    ms.repeats_option(3),
    ms.FREQUENCY,
    ms.POWER,
    ms.metrics_option(("cpi", "power"), "none"),
    ms.ROW,
    ms.PACE,
    ms.KERNEL,
)
# A job ends by itself, so it has no window.
JOB = opt.all_of(ms.table_option(required=False), *_SHARED)
RUN = opt.all_of(
    ms.table_option(required=True),
    opt.options("--window TIME>0 (2s): Length of the measurement window in each run."),
    *_SHARED,
)


def service_options(given: opt.Given, host: str = "") -> workloads.service.ServiceOptions:
    """Make the service options of command-line options; ``host`` is its name by default."""
    ms.refuse_two_frequencies(given)
    ms.refuse_standard_output(given["output"])
    return opt.pick_fields(
        workloads.service.ServiceOptions,
        given,
        host=given["host"] or host or socket.gethostname(),
        frequencies=tuple(given["freqs"] or ()),
        clock_hz=given["clock"],
        seconds=given["window"],
    )


def sensor_options(given: opt.Given) -> sweep.measure.HostOptions:
    """Options of `measurements.sweep.measure` for sensors and frequencies, from those given."""
    metrics = ("time", *(given["metrics"] or ()))
    return ms.measured_host_options(given, metrics, as_found=not given["freqs"])


def running_on(
    given: opt.Given, workload: dict[str, Any], *, host: str = "", is_local: bool = True
) -> AbstractContextManager[workloads.service.Running]:
    """Open what the runs of a service need; see `measurements.workloads.service.running`."""
    return workloads.service.running(
        service_options(given, host),
        sensor_options(given),
        Path(given["output"]),
        workload=workload,
        is_local=is_local,
        resume=given["resume"],
        tell=out.say,
    )


def show_progress(done: int, steps: int, what: str) -> None:
    """Print how many of the steps are done, on a terminal only."""
    if sys.stderr.isatty():
        line = f"{done} of {steps} runs: {printable(what)}"
        click.echo(f"\r\x1b[K{line}", err=True, nl=done >= steps)


# `ppw run count`.
@opt.command(
    "count",
    "Count, emulate or estimate the instructions of a command.",
    "ppw run count --data 64MiB -o counts.csv -- wc -w words.txt",
    click.argument("command", nargs=-1, required=True),
    opt.options("""
    --method [perf|callgrind|qemu|cpu-time]: Counting method. Default: the first in this list that
        works on this host. callgrind and qemu execute the command once more, 10 to 100 times
        slower.
    --clock FREQUENCY: Core frequency, for the method cpu-time.
    --cpi NUMBER>0: Cycles per instruction, for the method cpu-time.
    --cores N>=1: Number of physical cores to use. Default: all.
    """),
    ms.DATA,
    ms.WORKLOAD,
    ms.HOST,
    ms.FAMILY,
    opt.options(
        "-o, --output FILE: Runs table to which ppw adds the row: .csv, .parquet or .jsonl."
    ),
    group=run_command,
)
def run_count_command(
    command: tuple[str, ...], clock: float | None, output: str, **given: Any
) -> int:
    """Count the retired instructions of COMMAND, and state the method of counting."""
    from measurements.counters.instructions import count_instructions
    from measurements.host.cpu_placement import place, read_topology

    placement = place(read_topology(), given["cores"])
    cpi, data = given["cpi"], given["data_bytes"]
    method, cpus = given["method"], placement.cpus
    found = count_instructions(command, method=method, clock_hz=clock, cpi=cpi, cpus=cpus)
    for caveat in found.caveats:
        out.say(caveat)
    row: dict[str, Any] = {
        "host": given["host"] or socket.gethostname(),
        "family": given["family"],
        "workload": given["workload"] or Path(command[0]).name,
        "freq_hz": clock,
        "cores": placement.cores,
        "data_bytes": data,
        "cpi": cpi if found.method == "cpu-time" else None,
        **found.columns(),
    }
    if output:
        import pandas as pd

        if output == "-":
            raise ppw.PpwError("-o takes a file, to which the row is added")
        path = Path(output)
        new = pd.DataFrame([{name: value for name, value in row.items() if value is not None}])
        ppw.write_runs(pd.concat([ppw.read_runs(path), new]) if path.exists() else new, path)
    per_byte = f", {found.instructions / data:.4g} a byte" if data else ""
    click.echo(
        f"{found.instructions:,.0f} instructions{per_byte}, {found.label} by {found.method} "
        f"({found.modes}); {shown(found.time_s, 's')}"
    )
    return 0


# `ppw run cpio`.
@opt.command(
    "cpio",
    "CPU time and I/Os of fio or a command by cores, with and without the device.",
    "ppw run cpio --folder /data --size 8GiB --cores 1,2,4 --without-device -o study.csv; "
    "ppw cpio study.csv",
    click.argument("command", nargs=-1),
    opt.options("""
    --folder FOLDER (required): Folder on the disk to study. ppw removes the files that it creates
        there.
    --cores N[,…]: Number of physical cores, one or several. Default: 1, 2, 4 … and all.
    --threads-per-core N[,…] (1): Number of hardware threads per core, one or several.
    --instances N[,…] (1): Number of equal programs that run at the same time, one or several.
    --without-device: Repeat each run on a loop device over a file in memory. Needs root.
    --confine-kernel: Bind the kernel's unbound workers to the cores of each run, because they do
        part of the I/O. ppw restores their setting afterwards. Needs root.
    --scope [host|own] (host): Scope of counting: host (CPU time and I/O of the whole host, as
        published), or own (CPU time of the programs and of kernel threads, and I/O of fio alone).
        Use own on a shared host.
    --take-bandwidth SHARE[,…] (0): Memory bandwidth that an antagonist on the other cores uses, as
        shares of its maximum: 0,50%,100%.
    --size SIZE (1GiB): Size of each file that fio reads and writes.
    --pattern PATTERN[,…] as patterns (randread,randwrite,read:128KiB,write:128KiB): Access patterns
        of fio, optionally with a request size: randread:8KiB.
    --depth N>=1 (16): Number of requests in flight per fio job; there is one job per logical CPU.
    --prepare SHELL: Command that fills the new folder before each run of COMMAND.
    """),
    ms.WORKLOAD,
    ms.DATA,
    RUN,
    group=run_command,
)
def run_cpio_command(command: tuple[str, ...], **given: Any) -> int:
    """Run fio, or COMMAND, at several core counts, and count CPU time and sectors of the host.

    In COMMAND, {folder} is a new folder on the device, {threads} the number of logical CPUs and
    {instance} the number of the program, from 0. Read the table with ppw cpio.
    """
    options = _make_cpio_options(command, given)
    options.check()
    with (
        running_on(given, {"cpio": asdict(options)}) as opened,
        workloads.study.open_study(options, opened.runs) as study,
    ):
        found = opened.take(study.run(), study.runs_in_table, workloads.study.table, show_progress)
    for text in workloads.cpu_accounting.findings(found):
        out.say(text)
    with out.caveats_in_result():
        try:
            click.echo(ppw.cycles_per_io(found).summary())
        except ppw.PpwError as error:
            # The table stands, whatever it says.
            click.echo(f"no cycles per I/O: {error}")
    return 0


def _make_cpio_options(command: tuple[str, ...], given: opt.Given) -> workloads.study.StudyOptions:
    from measurements.host.cpu_placement import read_topology

    # Scaling shows in doublings: 1, 2, 4 … and all cores, which may be no power of two.
    cores = len(read_topology().cores)
    doubled = (*(1 << n for n in range(cores.bit_length()) if 1 << n < cores), cores)
    return opt.pick_fields(
        workloads.study.StudyOptions,
        given,
        command=command,
        cores=given["cores"] or doubled,
        own=given["scope"] == "own",
        taken=given["take_bandwidth"],
        size_bytes=round(given["size"]),
        patterns=() if command else tuple(map(workloads.fio.Pattern.parse, given["patterns"])),
        data_bytes=None if given["data_bytes"] is None else round(given["data_bytes"]),
    )


# `ppw run fio`.

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


@opt.command(
    "fio",
    "IOPS, bandwidth and latency of a disk by queue depth, and IOPS per watt.",
    "ppw run fio --folder /data --size 8GiB --power ipmi -o disk.csv",
    opt.options("""
    --folder FOLDER (required): Folder on the disk to measure. ppw removes the file that it creates
        there.
    --size SIZE (1GiB): Size of the file.
    --pattern PATTERN[,…] as patterns (randread,randwrite,read,write): Access patterns, optionally
        with a request size: randread:8KiB. Default sizes: 4 KiB random, 32 KiB sequential.
    --depth N[,…] as depths (1,2,4,8,16,32): Number of requests in flight, one or several.
    """),
    RUN,
    group=run_command,
)
def run_fio_command(**given: Any) -> int:
    """Measure a disk with fio by pattern and queue depth: IOPS, bandwidth, latency, IOPS per watt.

    ppw creates the file for fio in --folder and removes it afterwards.
    """
    from measurements.processes.programs import find_program

    fio = workloads.fio
    patterns = tuple(map(fio.Pattern.parse, given["patterns"]))
    size_bytes = round(given["size"])
    options = opt.pick_fields(fio.FioOptions, given, size_bytes=size_bytes, patterns=patterns)
    options.check()
    # Before the sensors have their say.
    find_program("fio")
    with running_on(given, {"fio": asdict(options)}) as opened:
        runs = fio.open_runs(options, opened.runs)
        found = opened.take(runs.run(), runs.runs_in_table, fio.table, show_progress)

    def setup_cells(key: Any, _: pd.DataFrame) -> list[str]:
        return [str(key[0]), f"{key[1]:.0f}", f"{key[2]:.0f}"]

    keys, header = ["pattern", "data_bytes", "queue_depth"], ["pattern", "block", "depth"]
    click.echo(out.medians_text(found, keys, header, setup_cells, _FIO_COLUMNS))
    return 0


# `ppw run hadoop`.
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
    "time_s": ("time", "s", 1.0),
    "start_up_s": ("start-up", "s", 1.0),
    "map_phase_s": ("maps take", "s", 1.0),
    "reduce_phase_s": ("reduces take", "s", 1.0),
    "task_cpu_s": ("CPU of tasks", "s", 1.0),
    "power_w": ("power", "W", 1.0),
    "energy_j": ("energy", "J/run", 1.0),
}


@opt.command(
    "hadoop",
    "Run MapReduce jobs on your cluster or on one machine.",
    "ppw run hadoop --setup; "
    "ppw run hadoop --workload wordcount,terasort --data 64MB,128MB,256MB,512MB -o runs.csv; "
    "ppw run hadoop --mode cluster --workload crawl --nodes nodes.csv -o runs.csv -- "
    "jar nutch.job org.example.Index {options} crawl/segments {output}",
    click.argument("command", nargs=-1, metavar="[-- HADOOP ARGUMENTS…]"),
    opt.options(f"""
    --setup: Download Hadoop's jars into the cache first (about 104 MB, by Maven, once).
    --mode [local|yarn|cluster] (local): Location of the tasks: local (one process), yarn (a
        cluster on this machine), or cluster (the cluster of the hadoop command).
    --workload NAME[,…] as workloads (wordcount): One or several of {", ".join(jobs.WORKLOADS)}.
        For your own job, any one name.
    --data SIZE[,…]: Input sizes: 64MB,1GiB. Default: 64MB.
    --map-slots N[,…]: Number of map tasks at the same time. Default on this machine: one per CPU.
    --reduce-slots N[,…]: Number of reduce tasks at the same time. Default on this machine: one per
        CPU.
    --reduces N>=1: Number of reduce tasks. Default: one per reduce slot.
    --memory SIZE[,…]: Memory per task. Default on this machine: 1GiB.
    --compression [{"|".join(jobs.COMPRESSIONS)}][,…]: Compression of the map output:
        {", ".join(jobs.COMPRESSIONS)}. Default: Hadoop's configuration.
    """),
    opt.pairs_option(
        "-D", "properties", shape="NAME=VALUE", meaning="Hadoop property to set for every job."
    ),
    opt.options(
        """
    --warm-ups N>=0 (1): Number of runs of the smallest job before the first run that are not
        recorded.
    --scratch FOLDER (/var/tmp): Folder for the data of the jobs. ppw removes the files that it
        creates there.
    --open-ports: Allow --mode yarn without a private network. Parts of Hadoop then listen on all
        addresses.
    --cluster NAME (hadoop): Name of the cluster in the table.
    --nodes FILE: CSV of the cluster's nodes with the column host, and optionally power (as in
        --power), family, price, cores, role.
    """,
        FOLDER=click.Path(file_okay=False, exists=True),
        FILE=click.Path(dir_okay=False, exists=True),
    ),
    opt.options("""
    --jar FILE as examples: Jar of Hadoop's examples on the cluster.
    --history FOLDER: Folder of job histories in the cluster's file system.
    """),
    JOB,
    group=run_command,
)
def run_hadoop_command(**given: Any) -> int:
    """Run MapReduce jobs over data sizes, slots, memory and compression, and measure each job.

    Hadoop's own Wordcount, Sort, Teragen and Terasort run without a cluster. On your own cluster
    you can run any job: give the arguments of hadoop after --. In them, ppw replaces {options} by
    Hadoop's options, {input} by a text of the size --data, {data} by that size, and {output} by a
    new folder. It writes each run to the file before the next run begins.
    """
    if given["setup"]:
        out.say(f"Hadoop is in {workloads.install.set_up(tell=out.say)}")
        if not given["output"]:
            return 0
    if not given["output"]:
        raise click.UsageError("no -o FILE: where is the table to go?")
    options = _make_hadoop_options(given)
    _refuse_options_of_other_mode(options, given)
    click.echo(hadoop_summary(_measure_hadoop(options, given)))
    return 0


def _make_hadoop_options(given: opt.Given) -> jobs.HadoopOptions:
    # A cluster of the user's has its own settings; here a slot for each CPU is the default.
    own = given["mode"] != "cluster"
    cpus = (len(os.sched_getaffinity(0)),) if own else ()
    return opt.pick_fields(
        jobs.HadoopOptions,
        given,
        workloads=tuple(given["workloads"]),
        data_bytes=given["data"] or (() if given["command"] else (64_000_000,)),
        map_slots=given["map_slots"] or cpus,
        reduce_slots=given["reduce_slots"] or cpus,
        task_memory_bytes=given["memory"] or ((2**30,) if own else ()),
        compressions=tuple(given["compression"] or ()),
    )


def _refuse_options_of_other_mode(options: jobs.HadoopOptions, given: dict[str, Any]) -> None:
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
        raise click.UsageError("ppw cannot set the core frequency of a cluster's nodes")
    if on_cluster and given["power"]:
        raise click.UsageError(
            "ppw measures the power of a cluster at its nodes: name them with --nodes"
        )
    if options.command:
        _refuse_command_mismatch(options)
        return
    unknown = [name for name in options.workloads if name not in jobs.WORKLOADS]
    if unknown:
        opt.NameList(jobs.WORKLOADS).convert(",".join(unknown), None, None)
    for name in options.compressions:
        if not on_cluster and name not in jobs.SELF_CONTAINED_COMPRESSIONS:
            raise ppw.PpwError(
                f"--compression {name} needs a library that Hadoop's jars do not contain: take one "
                f"of {', '.join(jobs.SELF_CONTAINED_COMPRESSIONS)}, or --mode cluster"
            )


def _refuse_command_mismatch(options: jobs.HadoopOptions) -> None:
    """Raise where a job of the user's own has several names, or no place for options."""
    if len(options.workloads) != 1:
        raise click.UsageError("your own job can have only one name: give one name with --workload")
    swept = (options.map_slots, options.reduce_slots, options.task_memory_bytes)
    asks = any(swept) or options.compressions or options.reduces or options.properties
    if asks and "{options}" not in options.command:
        raise click.UsageError(
            "say by {options} where Hadoop's options go among the job's arguments, most often "
            "after the class, as in jar my.jar MyJob {options} in {output}"
        )


def _measure_hadoop(options: jobs.HadoopOptions, given: opt.Given) -> pd.DataFrame:
    on_cluster = options.mode == "cluster"
    host = f"cluster:{options.cluster}" if on_cluster else ""
    return workloads.job_sweep.measure_hadoop(
        options,
        service_options({**given, "window": 1.0}, host),
        # This host's watts are not those of a cluster.
        sensor_options({**given, "power": "none"} if on_cluster else given),
        Path(given["output"]),
        scratch=Path(given["scratch"]),
        open_ports=given["open_ports"],
        resume=given["resume"],
        tell=out.say,
        show=show_progress,
    )


def hadoop_summary(table: pd.DataFrame) -> str:
    """Tabulate medians of the Hadoop runs by the settings that vary, as text."""
    always = ("workload", "data_bytes")
    there = [name for name in _HADOOP_KEYS if name in table]
    keys = [name for name in there if name in always or len(table[name].unique()) > 1]

    def setup_cells(key: Any, part: pd.DataFrame) -> list[str]:
        return [*map(_setup_value_text, keys, key), str(len(part))]

    header = [*(_HADOOP_KEYS[name] for name in keys), "runs"]
    return out.medians_text(table, keys, header, setup_cells, _HADOOP_COLUMNS)


def _setup_value_text(name: str, value: Any) -> str:
    if value != value or value is None:
        return "–"
    unit = "B" if name.endswith("_bytes") else "Hz" if name.endswith("_hz") else ""
    return shown(float(value), unit) if isinstance(value, (int, float)) else str(value)


# `ppw run memcached`.

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


@opt.command(
    "memcached",
    "Throughput, latency and limits of memcached by threads, size and load.",
    "ppw run memcached --threads 1,2,4 --object-size 64,1KiB,16KiB --load 25%,50%,75% -o runs.csv",
    opt.options("""
    --server HOST:PORT[,…] as servers: Addresses of running servers to load. Default: ppw starts
        private servers on loopback.
    --threads N[,…] (1): Number of worker threads per server, one or several.
    --partitions N[,…] (1): Numbers of servers that share the load.
    --object-size SIZE[,…] (64): Sizes of a value.
    --connections N[,…] (16): Numbers of connections, of all clients together. A run with twice as
        many checks that they suffice.
    --keys-per-request N[,…] (1): Numbers of objects per get request.
    --gets SHARE[,…] (100%): Share of gets among the requests.
    --key-size SIZE (30): Size of a key.
    --objects N>=1 (10000): Number of objects. memcaslap rounds it to 1024 per connection.
    --memory SIZE as memory_bytes: Memory of private servers. Default: enough for all objects.
    --client [memcaslap|memtier|paced]: Load generator; paced is part of ppw. Default: memcaslap if
        it is installed, else memtier.
    --client-threads N>=1: Number of threads of the load generator. Default: one per CPU.
    --server-cpus CPUS: CPUs of the servers: 0-3,8. Default: the first half of the cores.
    --client-cpus CPUS: CPUs of the load generator. Default: the other cores.
    --load SHARE[,…] as loads: Shares of the full throughput to measure in addition, each at a fixed
        rate: 10%,50%.
    --rate N[,…] as rates: Load in operations per second, in place of --load.
    --line-rate BITS/S>0: Line rate of the network to --server. Default: the line rate of the
        interface.
    """),
    RUN,
    group=run_command,
)
def run_memcached_command(**given: Any) -> int:
    """Load memcached at several set-ups: throughput, latency, hit rate, CPU, power and bottleneck.

    Throughput is the server's count in a window of steady load. Each set-up ends with a run with
    more load generators. If that run has more throughput, the client was the bottleneck: the rows
    of the set-up then have client_limited = true.
    """
    load_sweep = workloads.load_sweep
    options = _make_memcached_options(given)
    options.check()
    # Before the sensors have their say.
    load_sweep.find_programs(options)
    named = [workloads.servers.Address.parse(text) for text in options.servers]
    is_local = all(load_sweep.link_to(address).is_loopback for address in named)
    host, workload = "" if is_local else str(named[0].host), {"memcached": asdict(options)}
    with running_on(given, workload, host=host, is_local=is_local) as opened:
        runs = load_sweep.open_runs(options, opened.runs)
        found = opened.take(runs.run(), runs.runs_in_table, load_sweep.table, show_progress)
    click.echo(memcached_summary(found))
    return 0


def _make_memcached_options(given: opt.Given) -> workloads.load_sweep.MemcachedOptions:
    if len(given["gets"]) != 1:
        raise click.UsageError("--gets takes a single share: 90%")
    return opt.pick_fields(
        workloads.load_sweep.MemcachedOptions,
        given,
        servers=tuple(given["servers"] or ()),
        object_bytes=given["object_size"],
        get_share=given["gets"][0],
        key_bytes=round(given["key_size"]),
        rates=tuple(map(float, given["rates"] or ())),
        line_rate_bits_s=given["line_rate"],
    )


def memcached_summary(table: pd.DataFrame) -> str:
    """Medians by set-up as text, and what limits each."""
    keys = ["workload", "threads", "data_bytes", "connections"]
    columns = [*dict.fromkeys([*table.columns, *keys, "asked_ops_s"])]
    known = table.reindex(columns=columns)

    def setup_cells(key: Any, part: pd.DataFrame) -> list[str]:
        load = part["load"].median() if "load" in part else float("nan")
        counts = ("–" if value != value else f"{value:.0f}" for value in key[1:4])
        return [str(key[0]), *counts, shown(load)]

    return out.medians_text(
        known,
        [*keys, known["asked_ops_s"].round(3)],
        ["workload", "threads", "object", "connections", "load"],
        setup_cells,
        _MEMCACHED_COLUMNS,
        ("limited by", lambda part: "/".join(dict.fromkeys(part["limited_by"].astype(str)))),
    )
