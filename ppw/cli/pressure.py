"""`ppw pressure`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.options import Names, output_options
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.quantities import Bytes

if TYPE_CHECKING:
    from measurements.timeseries.series import TimeSeries

_BITS = re.compile(r"(?P<number>[\d.]+(?:e[+-]?\d+)?)\s*(?P<prefix>[kMGT]?)(?:bit/s|bps)$")
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


class ByteRate(click.ParamType[float]):
    """Bytes a second: 102.4GB/s, 10Gbit/s; a plain number is bytes a second."""

    name = "RATE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Bytes per second."""
        text = str(value).strip()
        if match := _BITS.fullmatch(text):
            return float(match["number"]) * _PREFIXES[match["prefix"]] / 8
        return float(Bytes().convert(text.removesuffix("/s"), param, ctx))


class Positive(click.ParamType[float]):
    """A number above 0."""

    name = "N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Check it."""
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            self.fail(f"{value!r} is no number above 0", param, ctx)
        return number


@click.command(
    name="pressure",
    short_help="Which resources workloads lean on, from logs of collectl, sar, PCP or ppw.",
    epilog="Example: ppw pressure cassandra=db7.tab.gz nutch=node3.json --network 10Gbit/s",
)
@click.argument("logs", nargs=-1, required=True, metavar="[NAME=]LOG[,LOG]...")
@click.option("--cores", type=Positive(), help="Logical CPUs of the host, where logs lack them.")
@click.option(
    "--process-cores",
    type=Positive(),
    help="Most cores that the workload can use: 1 for a single-threaded service.",
)
@click.option("--memory", type=Bytes(), help="Memory of the host: 256GiB.")
@click.option("--memory-bandwidth", type=ByteRate(), help="Peak of the memory: 102.4GB/s.")
@click.option("--disk-bandwidth", type=ByteRate(), help="Of all disks together: 500MB/s.")
@click.option("--disk-iops", type=Positive(), help="I/Os a second of all disks together.")
@click.option("--network", type=ByteRate(), help="Line rate each way: 10Gbit/s, 1.25GB/s.")
@click.option(
    "--thresholds",
    metavar="FILE",
    help="TOML with thresholds to replace: a table a measure, with medium and high.",
)
@click.option("--phases", is_flag=True, help="Divide each recording where its demand changes.")
@click.option(
    "--shortest",
    type=click.IntRange(2),
    default=3,
    show_default=True,
    help="Intervals of the shortest phase.",
)
@click.option(
    "--operations",
    type=Positive(),
    help="Operations a second that the workload did, to find artificial load.",
)
@click.option("--disk", "disks", type=Names(), help="Disks that count. Default: physical ones.")
@click.option("--timezone", help="Of logs in local time: +0200 or Europe/Berlin.")
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

    named, file = _named(logs), given["thresholds"]
    if operations and len(named) > 1:
        raise click.UsageError("--operations is of one workload: give the logs of one")
    recordings = {
        name: [_read(group, given) for group in _by_recorder(paths)]
        for name, paths in named.items()
    }
    with caveats_in_result():
        result = pressure_matrix(
            recordings,
            capacity=_stated(given),
            thresholds=read_thresholds(file) if file else Thresholds(),
            phases=given["phases"],
            shortest=given["shortest"],
            operations_s=dict.fromkeys(recordings, operations) if operations else None,
            disks=given["disks"],
        )
    emit(result, format_, output, pressure_page)


_CAPACITIES = {
    "cores": "cores",
    "process_cores": "process_cores",
    "memory": "memory_bytes",
    "memory_bandwidth": "memory_bandwidth_bytes_s",
    "disk_bandwidth": "disk_bandwidth_bytes_s",
    "disk_iops": "disk_iops",
    "network": "network_bytes_s_each_way",
}


def _stated(given: dict[str, Any]) -> dict[str, float]:
    return {
        figure: given[option] for option, figure in _CAPACITIES.items() if given[option] is not None
    }


def _named(logs: tuple[str, ...]) -> dict[str, list[str]]:
    """Applications and their logs; a file whose name has "=" in it is a file."""
    found: dict[str, list[str]] = {}
    for text in logs:
        name, equals, rest = text.partition("=")
        if not equals or "/" in name or Path(text).exists():
            name, rest = "", text
        paths = (
            [rest] if rest and Path(rest).exists() else [part for part in rest.split(",") if part]
        )
        if not paths:
            raise click.UsageError(f"{text!r} names no log")
        name = name or ("standard input" if paths[0] == "-" else Path(paths[0]).name)
        if name in found:
            raise click.UsageError(f"two logs are called {name!r}: name them, NAME=LOG")
        found[name] = paths
    return found


def _by_recorder(paths: list[str]) -> list[list[str]]:
    """Group logs that are read together, those of the whole host first.

    perf's have times and amounts of their own, and ppw's own are whole.
    """
    if len(paths) == 1:
        return [paths]
    perf = [path for path in paths if _format(path) == "perf"]
    whole = [path for path in paths if _format(path) == "ppw"]
    together = [path for path in paths if path not in (*perf, *whole)]
    return [*([together] if together else []), *([path] for path in (*whole, *perf))]


def _read(paths: list[str], given: dict[str, Any]) -> TimeSeries:
    from measurements.timeseries import read_time_series
    from ppw.pressure.demand import LOG_COLUMNS

    # The totals of a series of ppw's own are of the disks that it was recorded with.
    chosen = None if _format(paths[0]) == "ppw" else given["disks"]
    return read_time_series(
        paths[0] if len(paths) == 1 else paths,
        columns=LOG_COLUMNS,
        cpus=given["cores"],
        timezone=given["timezone"],
        disks=chosen,
    )


def _format(path: str) -> str:
    """Whether a log is perf's or ppw's own; standard input can be looked at only once."""
    from measurements.timeseries import own, perf_intervals
    from measurements.timeseries.source import open_source

    if path == "-":
        return ""
    with open_source(path) as source:
        known = (own, perf_intervals)
        return next((m.FORMAT for m in known if m.recognises(source.head)), "")
