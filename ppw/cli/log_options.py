"""Options of the commands that read logs of hosts: which logs, and what the host can do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.choices import Names, complete_host
from ppw.cli.numbers import Positive, Share
from ppw.cli.options import all_of
from ppw.cli.quantities import ByteRate, Memory

if TYPE_CHECKING:
    from measurements.timeseries.series import TimeSeries
    from ppw.host import Host

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
_CAPACITY_OPTIONS = (
    click.option(
        "--cpus",
        "cores",
        type=Positive(),
        help="Logical CPUs of the host to judge by. A log's shares are of its own CPUs, and of "
        "these only where it does not say.",
    ),
    click.option("--memory", type=Memory(), help="Memory of the host: 256GiB."),
    click.option("--memory-bandwidth", type=ByteRate(), help="Peak of the memory: 102.4GB/s."),
    click.option("--disk-bandwidth", type=ByteRate(), help="Of all disks together: 500MB/s."),
    click.option("--disk-iops", type=Positive(), help="I/Os a second of all disks together."),
    click.option("--network", type=ByteRate(), help="Line rate each way: 10Gbit/s, 1.25GB/s."),
)
_READING_OPTIONS = (
    click.option("--disk", "disks", type=Names(), help="Disks that count. Default: physical ones."),
    click.option(
        "--timezone", metavar="ZONE", help="Of logs in local time: +0200 or Europe/Berlin."
    ),
)
_HOST_OPTIONS = (
    *_CAPACITY_OPTIONS,
    click.option(
        "--catalogue-host",
        metavar="HOST",
        shell_complete=complete_host,
        help="Take cores and memory bandwidth from this host of the catalogue; see ppw hosts.",
    ),
    click.option(
        "--quantile",
        type=Share(0, 1, min_open=True),
        default="95%",
        show_default=True,
        help="Share of the time for which a resource must suffice.",
    ),
    *_READING_OPTIONS,
)


capacity_options = all_of(*_CAPACITY_OPTIONS)
reading_options = all_of(*_READING_OPTIONS)
host_options = all_of(*_HOST_OPTIONS)
thresholds_option = click.option(
    "--thresholds",
    metavar="FILE",
    help="TOML with thresholds to replace: a table a measure, with medium and high.",
)


def stated(given: dict[str, Any]) -> dict[str, float]:
    """Take the capacities that were stated out of the options."""
    taken = {figure: given.pop(option, None) for option, figure in _CAPACITIES.items()}
    return {figure: value for figure, value in taken.items() if value is not None}


def host_of(given: dict[str, Any]) -> tuple[dict[str, float] | None, Host | None]:
    """Take the capacities that were stated, and the host of the catalogue, out of the options."""
    from ppw.hosts import find_host

    named = given.pop("catalogue_host")
    return stated(given) or None, find_host(named) if named else None


def named_logs(logs: tuple[str, ...]) -> dict[str, list[str]]:
    """Recordings and their logs; a file whose name has "=" or "," in it is a file."""
    found: dict[str, list[str]] = {}
    for text in logs:
        name, equals, rest = text.partition("=")
        if rest and Path(name).is_file() and not Path(rest).exists():
            raise click.UsageError(f"{text!r}: the name comes first, {rest}={name}")
        if not equals or "/" in name or Path(text).exists():
            name, rest = "", text
        paths = (
            [rest] if rest and Path(rest).exists() else [part for part in rest.split(",") if part]
        )
        if not paths:
            raise click.UsageError(f"{text!r} names no log")
        name = name or _stem(paths[0])
        if name in found:
            raise click.UsageError(f"two logs are called {name!r}: name them, NAME=LOG")
        found[name] = paths
    return found


def _stem(path: str) -> str:
    return "standard input" if path == "-" else Path(path).name.partition(".")[0]


def read_logs(paths: list[str], given: dict[str, Any]) -> TimeSeries:
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


def read_named(logs: tuple[str, ...], given: dict[str, Any]) -> dict[str, TimeSeries]:
    """Read recordings by the name before "=", or that of the file."""
    return {name: read_logs(paths, given) for name, paths in named_logs(logs).items()}


def read_log(text: str, given: dict[str, Any]) -> TimeSeries:
    """Read one recording, whose logs have commas between them."""
    [paths] = named_logs((f"log={text}",)).values()
    return read_logs(paths, given)


def log_format(path: str) -> str:
    """Whether a log is perf's or ppw's own; standard input can be looked at only once."""
    from measurements.timeseries import own, perf_intervals
    from measurements.timeseries.source import open_source

    if path == "-":
        return ""
    with open_source(path) as source:
        known = (own, perf_intervals)
        return next((m.FORMAT for m in known if m.recognises(source.head)), "")
