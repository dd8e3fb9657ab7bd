"""`ppw pressure`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.options import (
    capacity_options,
    host_of,
    host_options,
    level_option,
    log_format,
    named_logs,
    output_options,
    read_log,
    read_logs,
    read_named,
    read_table,
    reading_options,
    seed_option,
    stated,
    table_options,
    thresholds_option,
)
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.types import Names, OneOf, Positive, Share, Whole, complete_column


@click.command(
    name="pressure",
    short_help="Which resources workloads lean on, from logs of collectl, sar, PCP or ppw.",
    epilog="Example: ppw pressure cassandra=db7.tab.gz nutch=node3.json --network 10Gbit/s",
)
@click.argument("logs", nargs=-1, required=True, metavar="[NAME=]LOG[,LOG]...")
@capacity_options
@click.option(
    "--process-cores",
    type=Positive(),
    help="Most cores that the workload can use: 1 for a single-threaded service.",
)
@thresholds_option
@click.option("--phases", is_flag=True, help="Divide each recording where its demand changes.")
@click.option(
    "--shortest",
    type=Whole(2),
    default=3,
    show_default=True,
    help="Intervals of the shortest phase.",
)
@click.option(
    "--operations",
    type=Positive(),
    help="Operations a second that the workload did, to find artificial load.",
)
@reading_options
@output_options
def pressure_command(
    logs: tuple[str, ...], format_: str, output: str, operations: float | None, **given: Any
) -> None:
    """Judge what each recorded workload asked of CPU, memory, disk and network.

    LOG is of collectl -P, sadf -j or -d, pmrep -o csv, perf stat -j -I, or ppw sample. Logs of one
    run are joined by commas; NAME is the application, by default the file's name.
    """
    from ppw.pressure.capacity import Thresholds, read_thresholds
    from ppw.pressure.matrix import pressure_matrix

    named, file = named_logs(logs), given["thresholds"]
    if operations and len(named) > 1:
        raise click.UsageError("--operations is of one workload: give the logs of one")
    recordings = {
        name: [read_logs(group, given) for group in _by_recorder(paths)]
        for name, paths in named.items()
    }
    capacity = stated(given)
    with caveats_in_result():
        result = pressure_matrix(
            recordings,
            capacity=capacity,
            thresholds=read_thresholds(file) if file else Thresholds(),
            phases=given["phases"],
            shortest=given["shortest"],
            operations_s=dict.fromkeys(recordings, operations) if operations else None,
            disks=given["disks"],
        )
    emit(result, format_, output)


def _by_recorder(paths: list[str]) -> list[list[str]]:
    """Group logs that are read together, those of the whole host first.

    perf's have times and amounts of their own, and ppw's own are whole.
    """
    if len(paths) == 1:
        return [paths]
    perf = [path for path in paths if log_format(path) == "perf"]
    whole = [path for path in paths if log_format(path) == "ppw"]
    together = [path for path in paths if path not in (*perf, *whole)]
    return [*([together] if together else []), *([path] for path in (*whole, *perf))]


# `ppw rightsize`.


@click.command(
    name="rightsize",
    short_help="What a recorded workload needs more of, what is idle, and which hosts fit.",
    epilog="Example: ppw rightsize db7.tab.gz --disk-bandwidth 500MB/s --network 10Gbit/s",
)
@click.argument("log", metavar="LOG[,LOG]")
@host_options
@click.option(
    "--headroom",
    type=Share(0, 1, min_open=True, max_open=True),
    help="Share of each resource to keep free. Default: what is above its high threshold.",
)
@thresholds_option
@output_options
def rightsize_command(log: str, format_: str, output: str, **given: Any) -> None:
    """Say for each resource of the host in LOG what to buy more of, what is idle, and by how much.

    LOG is of collectl -P, sadf -j or -d, or ppw sample.
    """
    from ppw.pressure.capacity import read_thresholds
    from ppw.pressure.right_size import right_size

    series = read_log(log, given)
    given.pop("timezone")
    capacity, host = host_of(given)
    file = given.pop("thresholds")
    with caveats_in_result():
        result = right_size(
            series,
            capacity=capacity,
            host=host,
            thresholds=read_thresholds(file) if file else None,
            **given,
        )
    emit(result, format_, output)


# `ppw colocate`.


@click.command(
    name="colocate",
    short_help="What breaks first when recorded workloads share a host, and who can share.",
    epilog="Example: ppw colocate cache=c1.csv batch=b3.tab.gz --latency-critical cache",
)
@click.argument("logs", nargs=-1, required=True, metavar="[NAME=]LOG[,LOG]...")
@host_options
@click.option("--pairs", is_flag=True, help="Hold every two against the host, as a matrix.")
@click.option(
    "--latency-critical",
    type=Names(),
    default=None,
    help="Workloads whose answers must not wait.",
)
@click.option(
    "--align",
    type=OneOf(["start", "clock", "day", "any"]),
    default="start",
    show_default=True,
    help="Let all start together, keep the time of recording or of the day (UTC), or let any "
    "moment of one meet any of the others.",
)
@click.option(
    "--idle-log", "idle", metavar="LOG", help="The idle host: its own demand is counted once."
)
@click.option(
    "--ceiling",
    type=Share(0, 1, min_open=True),
    default="100%",
    show_default=True,
    help="Share of each capacity that may be used.",
)
@click.option(
    "--latency-ceiling",
    type=Share(0, 1, min_open=True),
    default="70%",
    show_default=True,
    help="The same for what a latency-critical workload queues for.",
)
@seed_option
@output_options
def colocate_command(
    logs: tuple[str, ...], format_: str, output: str, *, pairs: bool, **given: Any
) -> None:
    """Add up what the workloads in LOGs ask for, and hold it against one host.

    The host is that of the first LOG, but for what options say. LOG is of collectl -P, sadf -j or
    -d, or ppw sample; NAME is the workload, by default the file's name.
    """
    from ppw.pressure.co_locate import co_locate
    from ppw.pressure.pair_workloads import pair_workloads

    recordings = read_named(logs, given)
    given["idle"] = read_log(given["idle"], given) if given["idle"] else None
    given["latency_critical"] = given["latency_critical"] or ()
    given.pop("timezone")
    capacity, host = host_of(given)
    with caveats_in_result():
        if pairs:
            paired = pair_workloads(recordings, capacity=capacity, host=host, **given)
        else:
            shared = co_locate(recordings, capacity=capacity, host=host, **given)
    if pairs:
        emit(paired, format_, output)
    else:
        emit(shared, format_, output)


# `ppw knee`.


@click.command(
    name="knee",
    short_help="Where a sweep of threads, connections or sizes stops paying.",
    epilog="Example: ppw knee runs.csv --over threads --of throughput",
)
@table_options
@click.option(
    "--over",
    required=True,
    metavar="COLUMN",
    shell_complete=complete_column,
    help="What was set: threads, partitions, connections, instances, object-size, data-size, or "
    "any column.",
)
@click.option(
    "--of",
    default="throughput",
    show_default=True,
    metavar="COLUMN",
    shell_complete=complete_column,
    help="What came of it: throughput, latency (99th percentile), time, power, or any column.",
)
@click.option(
    "--scale",
    type=OneOf(["log", "linear"]),
    default="log",
    show_default=True,
    help="Whether the two lines are straight in the logarithms or as measured.",
)
@click.option(
    "--goal",
    type=OneOf(["higher", "lower"]),
    help="What is better. Default: by the name of the column, lower for latency, time, waiting, "
    "watts, energy, cost, CPI and misses; the answer says where the name does not tell.",
)
@level_option
@output_options
def knee_command(
    runs: tuple[str, ...],
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Find the knee of each sweep in RUNS, the level to run at, and what the next one costs.

    Runs that failed (a reason in the column failure, or no result) are kept: they end the range.
    """
    from ppw.pressure.find_knees import find_knees

    with caveats_in_result():
        table = read_table(runs, options)
        result = find_knees(table, **options)
    emit(result, format_, output)
