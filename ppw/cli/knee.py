"""`ppw knee`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.choices import OneOf, complete_column
from ppw.cli.options import level_option, output_options, table_options
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.runs_table import read


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
def command(
    runs: tuple[str, ...],
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Find the knee of each sweep in RUNS, the level to run at, and what the next one costs.

    Runs that failed (a reason in the column failure, or no result) are kept: they end the range.
    """
    from ppw.report.sweep_page import sweep_page
    from ppw.sweeps.knee import find_knees

    with caveats_in_result():
        table = read(runs, options)
        result = find_knees(table, **options)
    emit(result, format_, output, sweep_page)
