"""`ppw pressure`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.log_options import (
    capacity_options,
    log_format,
    named_logs,
    read_logs,
    reading_options,
    stated,
    thresholds_option,
)
from ppw.cli.numbers import Positive, Whole
from ppw.cli.options import output_options
from ppw.cli.output import caveats_in_result, emit


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
def command(
    logs: tuple[str, ...], format_: str, output: str, operations: float | None, **given: Any
) -> None:
    """Judge what each recorded workload asked of CPU, memory, disk and network.

    LOG is of collectl -P, sadf -j or -d, pmrep -o csv, perf stat -j -I, or ppw sample. Logs of one
    run are joined by commas; NAME is the application, by default the file's name.
    """
    from ppw.pressure.matrix import pressure_matrix
    from ppw.pressure.thresholds import Thresholds, read_thresholds
    from ppw.report.pressure_page import pressure_page

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
    emit(result, format_, output, pressure_page)


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
