"""`ppw pressure`, `ppw rightsize`, `ppw colocate` and `ppw knee`: bottlenecks of workloads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import ppw
from ppw.cli import options as opt
from ppw.cli.types import complete_column, complete_host

if TYPE_CHECKING:
    from measurements.timeseries.series import TimeSeries
    from ppw.pressure.capacity import Thresholds


# Options of the commands that read logs of hosts: which logs, and what the host can do.

# Figure of `ppw.pressure.capacity.Capacity` by option.
_CAPACITIES = {
    "cores": "cores",
    "process_cores": "process_cores",
    "memory": "memory_bytes",
    "memory_bandwidth": "memory_bandwidth_bytes_s",
    "disk_bandwidth": "disk_bandwidth_bytes_s",
    "disk_iops": "disk_iops",
    "network": "network_bytes_s_each_way",
}
CAPACITY = opt.options("""
    --cpus NUMBER>0 as cores: Number of logical CPUs of the host. Shares in a log refer to its own
        CPUs, and to these only if the log does not name them.
    --memory MEMORY: Memory of the host: 256GiB.
    --memory-bandwidth RATE: Peak bandwidth of the memory: 102.4GB/s.
    --disk-bandwidth RATE: Bandwidth of all disks together: 500MB/s.
    --disk-iops NUMBER>0: I/Os per second of all disks together.
    --network RATE: Line rate of the network in each direction: 10Gbit/s, 1.25GB/s.
""")
READING = opt.options("""
    --disk NAME[,…] as disks: Disks to count. Default: the physical ones.
    --timezone ZONE: Time zone of logs in local time: +0200 or Europe/Berlin.
""")
HOST_CAPACITY = opt.all_of(
    CAPACITY,
    click.option(
        "--catalogue-host",
        metavar="HOST",
        shell_complete=complete_host,
        help="Host of the catalogue whose cores and memory bandwidth hold; see ppw hosts.",
    ),
    opt.options(
        "--quantile 0<SHARE<=1 (95%): Share of the time for which a resource must suffice."
    ),
    READING,
)
THRESHOLDS = opt.options(
    "--thresholds FILE: TOML with thresholds to replace: a table for each measure, with medium and "
    "high."
)


def stated_capacities(given: opt.Given) -> dict[str, float]:
    """Take the capacities that were stated out of the options."""
    taken = {figure: given.pop(option, None) for option, figure in _CAPACITIES.items()}
    return {figure: value for figure, value in taken.items() if value is not None}


def with_host(given: opt.Given) -> opt.Given:
    """Read the capacities that were stated and the host of the catalogue among the options."""
    # The time zone was for reading; questions take what describes the host.
    named, _ = given.pop("catalogue_host"), given.pop("timezone")
    capacity = stated_capacities(given) or None
    return {**given, "capacity": capacity, "host": ppw.find_host(named) if named else None}


def named_logs(logs: tuple[str, ...]) -> dict[str, list[str]]:
    """Recordings and their logs; a file whose name has "=" or "," in it is a file."""
    found: dict[str, list[str]] = {}
    for text in logs:
        # What exists under the whole text is a file; only then "=" and "," part names and logs.
        name, equals, rest = text.partition("=")
        if rest and Path(name).is_file() and not Path(rest).exists():
            raise click.UsageError(f"{text!r}: the name comes first, {rest}={name}")
        if not equals or "/" in name or Path(text).exists():
            name, rest = "", text
        whole = rest and Path(rest).exists()
        paths = [rest] if whole else [part for part in rest.split(",") if part]
        if not paths:
            raise click.UsageError(f"{text!r} names no log")
        name = name or _stem(paths[0])
        if name in found:
            raise click.UsageError(f"two logs are called {name!r}: name them, NAME=LOG")
        found[name] = paths
    return found


def _stem(path: str) -> str:
    return "standard input" if path == "-" else Path(path).name.partition(".")[0]


def read_logs(paths: list[str], given: opt.Given) -> TimeSeries:
    """Read the logs of one recording, which have the same intervals."""
    from measurements.timeseries import read_time_series
    from ppw.pressure.demand import LOG_COLUMNS

    # The totals of a series of ppw's own are of the disks that it was recorded with.
    chosen = None if log_format(paths[0]) == "ppw" else given["disks"]
    return read_time_series(
        paths[0] if len(paths) == 1 else paths,
        columns=LOG_COLUMNS,
        cpus=given["cores"],
        timezone=given["timezone"],
        disks=chosen,
    )


def read_log(text: str, given: opt.Given) -> TimeSeries:
    """Read one recording, whose logs have commas between them."""
    [paths] = named_logs((f"log={text}",)).values()
    return read_logs(paths, given)


def log_format(path: str) -> str:
    """Whether a log is perf's or ppw's own; standard input can be looked at only once."""
    from measurements.timeseries import own, perf
    from measurements.timeseries.log import open_source

    if path == "-":
        return ""
    with open_source(path) as source:
        return next((m.FORMAT for m in (own, perf) if m.recognises(source.head)), "")


LOGS = click.argument("logs", nargs=-1, required=True, metavar="[NAME=]LOG[,LOG]...")


@opt.question(
    "pressure",
    "Which resources limit workloads, from logs of collectl, sar, PCP or ppw.",
    "ppw pressure cassandra=db7.tab.gz nutch=node3.json --network 10Gbit/s",
    LOGS,
    CAPACITY,
    opt.options("""
    --process-cores NUMBER>0: Largest number of cores that the workload can use: 1 for a
        single-threaded service.
    """),
    THRESHOLDS,
    opt.options("""
    --phases: Split each recording into phases where its demand changes.
    --shortest N>=2 (3): Number of intervals of the shortest phase.
    --operations NUMBER>0: Operations per second that the workload did, to find artificial load.
    """),
    READING,
)
def pressure_command(
    logs: tuple[str, ...], operations: float | None, **given: Any
) -> ppw.PressureMatrix:
    """Judge what each recorded workload asked of CPU, memory, disk and network.

    LOG is of collectl -P, sadf -j or -d, pmrep -o csv, perf stat -j -I, or ppw sample. Logs of one
    run are joined by commas; NAME is the application, by default the file's name.
    """
    from ppw.pressure.capacity import Thresholds

    named = named_logs(logs)
    if operations and len(named) > 1:
        raise click.UsageError("--operations is of one workload: give the logs of one")
    recordings = {
        name: [read_logs(group, given) for group in _by_recorder(paths)]
        for name, paths in named.items()
    }
    return ppw.pressure_matrix(
        recordings,
        capacity=stated_capacities(given),
        thresholds=_thresholds(given) or Thresholds(),
        phases=given["phases"],
        shortest=given["shortest"],
        operations_s=dict.fromkeys(recordings, operations) if operations else None,
        disks=given["disks"],
    )


def _thresholds(given: opt.Given) -> Thresholds | None:
    """Take the file of thresholds out of the options, and read it."""
    from ppw.pressure.capacity import read_thresholds

    file = given.pop("thresholds")
    return read_thresholds(file) if file else None


def _by_recorder(paths: list[str]) -> list[list[str]]:
    """Group logs that are read together, those of the whole host first.

    perf's have times and amounts of their own, and ppw's own are whole.
    """
    if len(paths) == 1:
        return [paths]
    # perf counts from its own start: its rows match those of no other recorder.
    formats = {path: log_format(path) for path in paths}
    together = [path for path in paths if not formats[path]]
    apart = [[path] for own in ("ppw", "perf") for path in paths if formats[path] == own]
    return [*([together] if together else []), *apart]


@opt.question(
    "rightsize",
    "What a recorded workload needs more of, what is idle, and which hosts fit.",
    "ppw rightsize db7.tab.gz --disk-bandwidth 500MB/s --network 10Gbit/s",
    click.argument("log", metavar="LOG[,LOG]"),
    HOST_CAPACITY,
    opt.options("""
    --headroom 0<SHARE<1: Share of each resource to keep free. Default: the part above its high
        threshold.
    """),
    THRESHOLDS,
)
def rightsize_command(log: str, **given: Any) -> ppw.RightSizing:
    """Say for each resource of the host in LOG what to buy more of, what is idle, and by how much.

    LOG is of collectl -P, sadf -j or -d, or ppw sample.
    """
    series, thresholds = read_log(log, given), _thresholds(given)
    return ppw.right_size(series, thresholds=thresholds, **with_host(given))


@opt.question(
    "colocate",
    "What breaks first when recorded workloads share a host, and who can share.",
    "ppw colocate cache=c1.csv batch=b3.tab.gz --latency-critical cache",
    LOGS,
    HOST_CAPACITY,
    opt.options("""
    --pairs: Compare every two workloads with the host, as a matrix.
    --latency-critical NAME[,…]: Latency-critical workloads.
    --align [start|clock|day|any] (start): Alignment of recordings: all start together, by time of
        recording, by time of day (UTC), or any moment of one beside any of the others.
    --idle-log LOG as idle: Log of the idle host: its own demand is counted once.
    --ceiling 0<SHARE<=1 (100%): Share of each capacity that may be used.
    --latency-ceiling 0<SHARE<=1 (70%): Share that may be used of what a latency-critical workload
        queues for.
    """),
    opt.SEED,
)
def colocate_command(
    logs: tuple[str, ...], *, pairs: bool, **given: Any
) -> ppw.CoLocation | ppw.Pairing:
    """Add up what the workloads in LOGs ask for, and compare it with one host.

    The host is that of the first LOG, but for what options say. LOG is of collectl -P, sadf -j or
    -d, or ppw sample; NAME is the workload, by default the file's name.
    """
    recordings = {name: read_logs(paths, given) for name, paths in named_logs(logs).items()}
    given["idle"] = read_log(given["idle"], given) if given["idle"] else None
    given["latency_critical"] = given["latency_critical"] or ()
    return (ppw.pair_workloads if pairs else ppw.co_locate)(recordings, **with_host(given))


@opt.question(
    "knee",
    "Where a sweep of threads, connections or sizes stops paying.",
    "ppw knee runs.csv --over threads --of throughput",
    opt.TABLE,
    click.option(
        "--over",
        required=True,
        metavar="COLUMN",
        shell_complete=complete_column,
        help="Varied column: threads, partitions, connections, instances, object-size, "
        "data-size, or any other.",
    ),
    click.option(
        "--of",
        default="throughput",
        show_default=True,
        metavar="COLUMN",
        shell_complete=complete_column,
        help="Measured column: throughput, latency (99th percentile), time, power, or any other.",
    ),
    opt.options("""
    --scale [log|linear] (log): Scale in which the two lines are straight: log or linear.
    --goal [higher|lower]: Better direction. Default: by the name of the column (lower for latency,
        time, power, energy, cost, CPI and misses). The answer says if the name does not tell.
    """),
    opt.LEVEL,
)
def knee_command(runs: opt.Runs, **options: Any) -> ppw.SweepKnees:
    """Find the knee of each sweep in RUNS, the level to run at, and what the next one costs.

    Runs that failed (a reason in the column failure, or no result) are kept: they end the range.
    """
    return ppw.find_knees(opt.read_table(runs, options), **options)
