"""`ppw run fio`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.choices import Names
from ppw.cli.numbers import Counts
from ppw.cli.quantities import Bytes
from ppw.cli.run_options import run_options, running_on, service_options, show_progress

if TYPE_CHECKING:
    import pandas as pd

    from measurements.workloads.fio import FioOptions

_EPILOG = "Example: ppw run fio --folder /data --size 8GiB --power ipmi -o disk.csv"


@click.command(name="fio", short_help="IOPS, bandwidth and latency by queue depth.", epilog=_EPILOG)
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
def command(**given: Any) -> int:
    """Measure a disk with fio by pattern and queue depth: IOPS, bandwidth, latency, IOPS per watt.

    The file that is read and written is made in --folder and removed afterwards.
    """
    from measurements.workloads.fio import open_runs, table
    from measurements.workloads.programs import find_program
    from ppw.measuring import this_host

    options = _options(given)
    options.check()
    # Before the sensors have their say.
    find_program("fio")
    service = service_options(given, host=this_host())
    with running_on(given, service, {"fio": asdict(options)}) as opened:
        found = opened.take(open_runs(options, opened.runs), table, show_progress)
    click.echo(summary(found))
    return 0


def _options(given: dict[str, Any]) -> FioOptions:
    from measurements.workloads.fio import FioOptions, Pattern

    return FioOptions(
        folder=str(given["folder"]),
        size_bytes=round(given["size"]),
        patterns=tuple(map(Pattern.parse, given["patterns"])),
        depths=tuple(given["depths"]),
    )


def summary(table: pd.DataFrame) -> str:
    """Medians by pattern and depth, as text."""
    from ppw.estimate import shown
    from ppw.tables import text_table

    columns = {name: part for name, part in _COLUMNS.items() if name in table}
    rows = []
    keys = ["pattern", "data_bytes", "queue_depth"]
    for (pattern, block, depth), part in table.groupby(keys, sort=True):
        medians = [shown(part[name].median() * k, u) for name, (_, u, k) in columns.items()]
        rows.append([str(pattern), f"{block:.0f}", f"{depth:.0f}", *medians])
    header = ["pattern", "block", "depth", *(title for title, _, _ in columns.values())]
    return text_table(header, rows)


# Title, unit, and the factor to it.
_COLUMNS = {
    "throughput_ops_s": ("IOPS", "1", 1.0),
    "bandwidth_bytes_s": ("MB/s", "1", 1e-6),
    "latency_mean_s": ("mean (µs)", "1", 1e6),
    "latency_p50_s": ("p50 (µs)", "1", 1e6),
    "latency_p99_s": ("p99 (µs)", "1", 1e6),
    "power_w": ("power", "W", 1.0),
    "iops_per_w": ("IOPS/W", "1", 1.0),
}
