"""`ppw pressure`, `rightsize`, `colocate`, `knee`, `cpio` and `size`: bottlenecks, and I/O."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import measurements
import ppw
from measurements import timeseries
from measurements.table.headers import nearest
from ppw.cli import options as opt, output as out
from ppw.results.text import shown

if TYPE_CHECKING:
    import pandas as pd


# Options of the commands that read logs of hosts: which logs, and what the host can do.

# Figures of `ppw.pressure.capacity.Capacity`, as the options are called in Python.
_CAPACITIES = (
    *("cores", "process_cores", "memory_bytes", "memory_bandwidth_bytes_s"),
    *("disk_bandwidth_bytes_s", "disk_iops", "network_bytes_s_each_way"),
)
CAPACITY = opt.options("""
    --cpus NUMBER>0 as cores: Number of logical CPUs of the host. A log gives CPU use as shares of
        its own CPUs. ppw takes this number only if the log does not state its own.
    --memory MEMORY as memory_bytes: Memory of the host: 256GiB.
    --memory-bandwidth RATE as memory_bandwidth_bytes_s: Peak memory bandwidth: 102.4GB/s.
    --disk-bandwidth RATE as disk_bandwidth_bytes_s: Bandwidth of all disks together: 500MB/s.
    --disk-iops NUMBER>0: I/Os per second that all disks together can do.
    --network RATE as network_bytes_s_each_way: Line rate of the network in each direction:
        10Gbit/s, 1.25GB/s.
""")
READING = opt.options("""
    --disk NAME[,…] as disks: Disks to count. Default: the physical disks.
    --timezone ZONE: Time zone of logs in local time: +0200 or Europe/Berlin.
""")
HOST_CAPACITY = opt.all_of(
    CAPACITY,
    click.option(
        "--catalogue-host",
        metavar="HOST",
        shell_complete=opt.complete_host,
        help="Take cores and memory bandwidth from this host of the catalogue; see ppw hosts.",
    ),
    opt.options(
        "--quantile 0<SHARE<=1 (95%): Share of the time for which a resource must suffice."
    ),
    READING,
)
THRESHOLDS = opt.options(
    "--thresholds FILE: TOML file with your own thresholds: one table per "
    "measure, with medium and high."
)


def pop_capacities(given: opt.Given) -> dict[str, float]:
    """Take the capacities out of the options; return those that were given, by figure."""
    taken = {figure: given.pop(figure, None) for figure in _CAPACITIES}
    return {figure: value for figure, value in taken.items() if value is not None}


def with_host(given: opt.Given) -> opt.Given:
    """Options with the stated capacities as ``capacity`` and the catalogue's host as ``host``."""
    # The time zone was for reading; questions take what describes the host.
    named, _ = given.pop("catalogue_host"), given.pop("timezone")
    capacity = pop_capacities(given) or None
    return {**given, "capacity": capacity, "host": ppw.find_host(named) if named else None}


def logs_by_name(logs: tuple[str, ...]) -> dict[str, list[str]]:
    """Files of each recording, by name, of texts LOG, NAME=LOG or NAME=LOG,LOG."""
    found: dict[str, list[str]] = {}
    for text in logs:
        # What exists under the whole text is a file; only then "=" and "," part names and logs.
        name, equals, rest = text.partition("=")
        if rest and Path(name).is_file() and not Path(rest).exists():
            raise click.UsageError(f"{text!r}: write the name first, {rest}={name}")
        if not equals or "/" in name or Path(text).exists():
            name, rest = "", text
        whole = rest and Path(rest).exists()
        paths = [rest] if whole else [part for part in rest.split(",") if part]
        if not paths:
            raise click.UsageError(f"{text!r} names no log")
        name = name or _name_of_log(paths[0])
        if name in found:
            raise click.UsageError(f"two logs are called {name!r}: name them, NAME=LOG")
        found[name] = paths
    return found


def _name_of_log(path: str) -> str:
    return "standard input" if path == "-" else Path(path).name.partition(".")[0]


def read_logs(paths: list[str], given: opt.Given) -> timeseries.TimeSeries:
    """Read the logs of one recording, which have the same intervals."""
    from ppw.pressure.demand import LOG_COLUMNS

    # The totals of a series of ppw's own are of the disks that it was recorded with.
    chosen = None if log_format(paths[0]) == "ppw" else given["disks"]
    return timeseries.read_time_series(
        paths[0] if len(paths) == 1 else paths,
        columns=LOG_COLUMNS,
        cpus=given["cores"],
        timezone=given["timezone"],
        disks=chosen,
    )


def read_log(text: str, given: opt.Given) -> timeseries.TimeSeries:
    """Read one recording, whose logs have commas between them."""
    [paths] = logs_by_name((f"log={text}",)).values()
    return read_logs(paths, given)


def log_format(path: str) -> str:
    """Return "perf" or "ppw" for a log of that format, and "" for any other or standard input."""
    if path == "-":
        return ""
    with timeseries.log.open_source(path) as source:
        if timeseries.series.is_own(source.head):
            return timeseries.series.OWN_FORMAT
        is_perf = timeseries.pcp_perf.Perf.recognises(source.head)
        return timeseries.pcp_perf.Perf.format if is_perf else ""


LOGS = click.argument("logs", nargs=-1, required=True, metavar="[NAME=]LOG[,LOG]...")


@opt.question(
    "pressure",
    "Which resources limit workloads, from logs of collectl, sar, PCP or ppw.",
    "ppw pressure cassandra=db7.tab.gz nutch=node3.json --network 10Gbit/s; ppw pressure --for "
    "sizing db7.tab.gz",
    LOGS,
    opt.other_question(
        "--for",
        "Question in place of the pressure: which workloads can share a host (sharing), or which "
        "resources to add or remove (sizing). Each has its own options: ppw pressure --for sizing "
        "--help.",
        "[sharing|sizing]",
    ),
    CAPACITY,
    opt.options("""
    --process-cores NUMBER>0: Largest number of cores that the workload can use: 1 for a
        single-threaded service.
    """),
    THRESHOLDS,
    opt.options("""
    --phases: Split each recording into phases, at the points where its demand changes.
    --shortest N>=2 (3): Smallest number of intervals per phase.
    --operations NUMBER>0: Operations per second of the workload. ppw then also judges context
        switches per operation.
    """),
    READING,
)
def pressure_command(
    logs: tuple[str, ...], operations: float | None, **given: Any
) -> ppw.PressureMatrix:
    """Rate the pressure of each recorded workload on CPU, memory, disk and network.

    LOG is written by collectl -P, sadf -j or -d, pmrep -o csv, perf stat -j -I, or ppw sample.
    Separate several logs of one run by commas. NAME is the application, by default the file's name.
    """
    named = logs_by_name(logs)
    if operations and len(named) > 1:
        raise click.UsageError(
            "--operations applies to one workload: give the logs of one workload"
        )
    groups = {name: _by_recorder(paths) for name, paths in named.items()}
    recordings = {name: [read_logs(one, given) for one in of] for name, of in groups.items()}
    return ppw.pressure_matrix(
        recordings,
        capacity=pop_capacities(given),
        **_pop_thresholds(given),
        phases=given["phases"],
        shortest=given["shortest"],
        operations_s=dict.fromkeys(recordings, operations) if operations else None,
        disks=given["disks"],
    )


def _pop_thresholds(given: opt.Given) -> dict[str, Any]:
    """Take the thresholds file out of the options and read it: a keyword, or none."""
    from ppw.pressure.capacity import read_thresholds

    file = given.pop("thresholds")
    return {"thresholds": read_thresholds(file)} if file else {}


def _by_recorder(paths: list[str]) -> list[list[str]]:
    """Group logs that are read together: the host's first, then ppw's and perf's alone."""
    if len(paths) == 1:
        return [paths]
    # perf counts from its own start: its rows match those of no other recorder.
    formats = {path: log_format(path) for path in paths}
    together = [path for path in paths if not formats[path]]
    apart = [[path] for own in ("ppw", "perf") for path in paths if formats[path] == own]
    return [*([together] if together else []), *apart]


@opt.question(
    "rightsize",
    "Which resources a workload needs more of, which are idle, and which hosts fit.",
    "ppw pressure --for sizing db7.tab.gz --disk-bandwidth 500MB/s --network 10Gbit/s",
    click.argument("log", metavar="LOG[,LOG]"),
    HOST_CAPACITY,
    opt.options("""
    --headroom 0<SHARE<1: Share of each resource to keep free. Default: 1 minus its high threshold.
    """),
    THRESHOLDS,
)
def rightsize_command(log: str, **given: Any) -> ppw.RightSizing:
    """Recommend for each resource of the host in LOG more, less or the same capacity.

    LOG is written by collectl -P, sadf -j or -d, or ppw sample.
    """
    series, thresholds = read_log(log, given), _pop_thresholds(given)
    return ppw.right_size(series, **thresholds, **with_host(given))


@opt.question(
    "colocate",
    "Which resource runs out first when workloads share a host, and which can share.",
    "ppw pressure --for sharing cache=c1.csv batch=b3.tab.gz --latency-critical cache",
    LOGS,
    HOST_CAPACITY,
    opt.options("""
    --pairs: Compare every pair of workloads with the host, as a matrix.
    --latency-critical NAME[,…]: Latency-critical workloads.
    --align [start|clock|day|any] (start): Alignment of the recordings: all start together (start),
        by time of recording, by time of day (UTC), or every combination of moments (any).
    --idle-log LOG as idle: Log of the idle host. Its demand is then counted once, not once per
        workload.
    --ceiling 0<SHARE<=1 (100%): Share of each capacity that may be used.
    --latency-ceiling 0<SHARE<=1 (70%): Share that may be used of resources for which a
        latency-critical workload queues.
    """),
    opt.SEED,
)
def colocate_command(
    logs: tuple[str, ...], *, pairs: bool, **given: Any
) -> ppw.CoLocation | ppw.Pairing:
    """Add up the resource demand of the workloads in LOGs, and compare the sum with one host.

    The host is the one of the first LOG; options change its capacities. LOG is written by collectl
    -P, sadf -j or -d, or ppw sample. NAME is the workload, by default the file's name.
    """
    recordings = {name: read_logs(paths, given) for name, paths in logs_by_name(logs).items()}
    given["idle"] = read_log(given["idle"], given) if given["idle"] else None
    given["latency_critical"] = given["latency_critical"] or ()
    return (ppw.pair_workloads if pairs else ppw.co_locate)(recordings, **with_host(given))


@opt.question(
    "knee",
    "Where more threads, more connections or larger sizes stop to help.",
    "ppw fit runs.csv --over threads --of throughput",
    opt.TABLE,
    opt.options("""
    --over COLUMN (required): Varied column: threads, partitions, connections, instances,
        object-size, data-size, or any other.
    --of COLUMN (throughput): Measured column: throughput, latency (99th percentile), time, power,
        or any other.
    --scale [log|linear] (log): Scale of the axes on which the two lines of the fit are straight:
        log or linear.
    --goal [higher|lower]: Better direction. Default: by the name of the column (lower for latency,
        time, power, energy, cost, CPI and misses). If the name does not tell the direction, the
        result says so.
    """),
    opt.LEVEL,
)
def knee_command(runs: opt.Runs, **options: Any) -> ppw.SweepKnees:
    """Find the knee of each sweep in RUNS, the best level, and the cost of the next level.

    A failed run (a reason in the column failure, or no result) ends the usable range of its sweep.
    """
    return ppw.find_knees(opt.read_table(runs, options), **options)


# Cycles per I/O, and the servers that sweep a data set.
_STUDY = "study"


class RunsOrCommand(click.Group):
    """Group whose first argument may be a runs table: then it is the study of that table."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command before a first argument that is a file, not a command."""
        # The first word is a file, unless it is nearly a command and no such file is there.
        if args and args[0] not in ("-h", "--help") and args[0] not in self.commands:
            hint = nearest(args[0], self.list_commands(ctx))
            if hint and not Path(args[0]).exists():
                raise click.UsageError(f"no file and no command {args[0]!r}{hint}", ctx)
            args = [_STUDY, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the subcommands that are typed."""
        return [name for name in super().list_commands(ctx) if name != _STUDY]


@click.group(
    name="cpio",
    cls=RunsOrCommand,
    short_help="Cycles per I/O of runs, projection to more cores, comparison with the device.",
    options_metavar="",
    subcommand_metavar="[project|compare|size] RUNS... [OPTIONS]",
    epilog="Example: ppw cpio study.csv; ppw cpio db7.tab.gz --clock 2.4GHz; "
    "ppw cpio project study.csv --cores 64",
)
def cpio_command() -> None:
    """Compute cycles per 512-byte I/O, utilisation and I/O rate by application and cores.

    RUNS have CPU times of the whole system (user_s, system_s, idle_s ...), sectors_read,
    sectors_written, time_s and the core frequency. RUNS may also be logs of collectl or sadf. A log
    has no core frequency, so give it with --clock. ppw cpio study --help lists the options.
    """


_BY = (
    "applications apart. Default: those of host, family, workload, data_bytes, "
    "load, instances, device and device_kind that the table has."
)
IO_TABLE = opt.table_options(_BY)
IO_TABLE_OPTIONAL = opt.table_options(_BY, required=False)
IO_PROJECTION = opt.all_of(
    opt.options("""
    --cores NUMBER>=1 (required): Number of cores of the projected server.
    --freq FREQUENCY: Core frequency of the server. Default: the frequency of the runs.
    --floor 0<SHARE<=1 (1%): Lowest utilisation that a projection may reach.
    --network-share SHARE: Bytes that cross the network per byte read from or written to
        storage. Default: as measured, or 1.
    """),
    opt.draws_option(4000, "Number of posterior draws per application."),
    opt.SEED,
)


def read_io_runs(runs: opt.Runs, given: opt.Given) -> pd.DataFrame:
    """Read a runs table for cycles per I/O; raise for a log, saying how to make a table of it."""
    for path in filter(_is_log, runs):
        raise ppw.PpwError(
            f"{path}: is a log of a host, no runs table: make one by ppw cpio {path} "
            f"--clock 2.4GHz -o {_name_of_log(path)}-cpio.csv, with its clock"
        )
    return opt.read_table(runs, given)


CLOCK = opt.options(
    "--clock FREQUENCY as freq: Core frequency of runs that do not state it: 2.4GHz."
)


@opt.question(
    _STUDY,
    "",
    "ppw cpio db7.tab.gz --logs --clock 2.4GHz",
    IO_TABLE,
    CLOCK,
    opt.options("""
    --logs: RUNS are logs of sadf -j, sadf -d or collectl -P. ppw also recognises logs without it.
    --window TIME: Length of log per row, with --logs.
    --cpus NUMBER>0: Number of logical CPUs of the host, if its log does not state it.
    """),
    opt.LEVEL,
    opt.SEED,
    group=cpio_command,
)
def study(
    runs: opt.Runs, logs: bool, window: float | None, cpus: float | None, **options: Any
) -> ppw.CyclesPerIO:
    """Compute cycles per I/O of RUNS by cores, hardware threads and memory bandwidth."""
    logs = logs or all(map(_is_log, runs))
    if not logs and (window or cpus):
        raise click.UsageError("--window and --cpus are for --logs")
    table = _io_runs_of_logs(runs, window, cpus, options) if logs else opt.read_table(runs, options)
    return ppw.cycles_per_io(table, **options)


@opt.question(
    "project",
    "",
    "ppw cpio project study.csv --cores 64 --growth 70% --years 3",
    IO_TABLE,
    IO_PROJECTION,
    opt.options("""
    --growth SHARE[,…]>=-1: Growth of the market per year: 70%,90%.
    --years NUMBER>=0 (0): Years of growth.
    --base-iops NUMBER>0: Demand of the market now, in I/Os per second.
    """),
    opt.LEVEL,
    group=cpio_command,
)
def project(runs: opt.Runs, growth: tuple[float, ...] | None, **options: Any) -> ppw.CpioProjection:
    """Project the I/O rate of a server with more cores, and the resources that it needs."""
    return ppw.project_cpio(read_io_runs(runs, options), growth=growth or (), **options)


@opt.question(
    "compare",
    "",
    "ppw cpio compare devices.csv --roof fio.csv --clock 2.4GHz",
    IO_TABLE,
    CLOCK,
    opt.options("--roof FILE: Table of fio runs on the same devices, written by ppw run fio."),
    opt.LEVEL,
    group=cpio_command,
)
def compare(runs: opt.Runs, roof: str | None, **options: Any) -> ppw.DeviceComparison:
    """Compare one workload between devices, hosts and instances; show the limit of each device."""
    ceiling = None if roof is None else measurements.read_runs(roof, check=False)
    return ppw.compare_devices(read_io_runs(runs, options), roof=ceiling, **options)


def _is_log(path: str) -> bool:
    """Tell whether a file is a log of a host; False for standard input, which is read only once."""
    return path != "-" and timeseries.reading.is_log(path)


def _io_runs_of_logs(
    paths: opt.Runs, window: float | None, cpus: float | None, given: opt.Given
) -> pd.DataFrame:
    from ppw.cpio.io_runs import runs_of_series

    opt.refuse_table_options(given, "these are logs")
    if given["freq"] is None:
        speeds = {timeseries.reading.header_frequency(path) for path in paths if path != "-"}
        if None in speeds or len(speeds) != 1:
            raise click.UsageError("the logs do not state one core frequency: give --clock 2.4GHz")
        given["freq"] = speeds.pop()
        out.say(
            f"core frequency {shown(given['freq'], 'Hz')}: Speed(MHz) in the header of "
            "collectl, that of one moment; give --clock if it changed"
        )
    series = timeseries.read_time_series(list(paths), cpus=cpus)
    # A log that names its CPUs is right about them: another number is a slip.
    stated = series.frame["cpus"].max() if "cpus" in series.frame else cpus
    if cpus and stated != cpus:
        raise click.UsageError(
            f"{series.source}: the log states {stated:g} CPUs, but --cpus is {cpus:g}: leave out "
            "--cpus; it is for logs that do not state the number"
        )
    return runs_of_series(series, freq=given["freq"], window_s=window)


@opt.question(
    "size",
    "Servers, energy and cost to sweep a data set, from cycles per I/O.",
    "ppw cpio size study.csv --data 20PB --time 30d --cores 64 --server-power 400W --idle-share "
    "60% --pue 1.3",
    IO_TABLE_OPTIONAL,
    opt.options("""
    --data SIZE>0 as data_bytes (required): Size of the data set: 35ZB.
    --time TIME>0 as time_s (required): Time to read the data set once: 1y.
    """),
    IO_PROJECTION,
    opt.options("""
    --power-per-core POWER as power_per_core_w: Power per core of a busy server, in place of
        --server-power.
    --server-power POWER as server_power_w: Power of a busy server.
    --idle-share 0<=SHARE<=1 (0): Idle power as a share of the power of a busy server.
    --pue NUMBER>=1 (1.0): Power usage effectiveness: power of the site divided by the power of its
        servers.
    --electricity PRICE>0: Price per kWh.
    --currency NAME (currency): Currency of the prices.
    --carbon NUMBER>0 as carbon_kg_per_kwh: kg CO2e per kWh.
    --other-power POWER as other_power_w: Power of a more efficient server, for the scenario with
        less power.
    --device-bandwidth RATE>0 as device_bandwidth_bytes_s: Bandwidth of one storage device.
    --port-bandwidth RATE>0 as port_bandwidth_bytes_s: Bandwidth of one network port.
    --base-utilisation [measured|projected|full] (projected): CPU utilisation before any
        improvement.
    --base-cpio [desired|today|projected] (projected): Cycles per I/O before any improvement.
    --cpio NUMBER>0: Cycles per I/O, in place of RUNS.
    --utilisation 0<SHARE<=1: Utilisation of the CPU, without RUNS.
    """),
    opt.LEVEL,
)
def size_command(
    runs: opt.Runs, base_utilisation: str, base_cpio: str, **options: Any
) -> ppw.ServerSizing:
    """Compute the servers, energy and cost to read a data set once in a given time.

    Cycles per I/O and utilisation come from RUNS, as for ppw cpio project, or from --cpio and
    --utilisation. The result has one row per application and scenario.
    """
    if not runs:
        opt.refuse_table_options(options, "no RUNS are named")
    table = read_io_runs(runs, options) if runs else None
    return ppw.size_servers(table, base=(base_utilisation, base_cpio), **options)


cpio_command.add_command(size_command)
