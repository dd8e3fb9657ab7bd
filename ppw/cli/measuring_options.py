"""Options of the commands that measure this host: what its rows say, clocks, sensors, order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ppw.cli.choices import Names, OneOf
from ppw.cli.numbers import Price, Whole
from ppw.cli.options import Decorator, Respelt, all_of, seed_option
from ppw.cli.quantities import Bytes, Frequencies, Frequency, Seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppw.measuring import HostOptions

workload_option = click.option(
    "--workload", metavar="NAME", help="Name of the workload. Default: that of the command."
)
data_option = click.option("--data", type=Bytes(), help="Input size, such as 10GB.")
host_option = click.option(
    "--host", metavar="NAME", help="Name of this host in the table. Default: its own."
)
family_option = click.option(
    "--family", metavar="NAME", help="Microarchitecture family, such as Westmere."
)
row_options = all_of(
    host_option,
    family_option,
    click.option("--price", type=Price(positive=True), help="Of this host."),
)
clock_option = click.option(
    "--clock",
    type=Frequency(),
    help="What the clock is, where it is left as found and the host cannot tell.",
)
clock_options = all_of(
    click.option(
        "--freq",
        "freqs",
        cls=Respelt,
        former="--freqs",
        type=Frequencies(),
        help="Core frequencies to fix, such as 1.2GHz,1.8GHz.",
    ),
    clock_option,
    click.option("--turbo", type=OneOf(["on", "off"]), help="Switch turbo. Default: as it is."),
)
power_option = click.option(
    "--power",
    metavar="SOURCE[,…]",
    help="Where watts come from: rapl, ipmi@HOST, redfish@URL, meter@RESOURCE, log@FILE, …, or "
    "none; see ppw sensors. Default: what this host has.",
)
pace_options = all_of(
    click.option(
        "--idle",
        type=Seconds(),
        default="10s",
        show_default=True,
        help="Idling that is measured first, where there are watts to read.",
    ),
    click.option(
        "--settle",
        type=Seconds(),
        default="2s",
        show_default=True,
        help="Waited for after each change of the clock.",
    ),
    click.option(
        "--every",
        cls=Respelt,
        former="--interval",
        type=Seconds(),
        default="0.1s",
        show_default=True,
        help="Between readings of a power source, where it is quick enough.",
    ),
    click.option(
        "--timeout",
        type=Seconds(),
        default="10s",
        show_default=True,
        help="For a BMC or meter to answer.",
    ),
    seed_option,
    click.option("--resume", is_flag=True, help="Go on with a sweep that was interrupted."),
)
kernel_options = all_of(
    click.option("--sysfs", default="/sys", hidden=True),
    click.option("--procfs", default="/proc", hidden=True),
)


def repeats_option(default: int) -> Decorator:
    """Make --repeats."""
    return click.option(
        "--repeats", type=Whole(1), default=default, show_default=True, help="Runs a set-up."
    )


def metrics_option(choices: Sequence[str], default: str) -> Decorator:
    """Make --metric: what has to be measured, of ``choices``."""
    return click.option(
        "--metric",
        "metrics",
        type=Names(tuple(choices)),
        help=f"What must be measured, of {', '.join(choices)}; the rest is where it can be. "
        f"Default: {default}.",
    )


def table_option(*, required: bool) -> Decorator:
    """Make --output of the commands that write a runs table run by run."""
    return click.option(
        "-o",
        "--output",
        metavar="FILE",
        required=required,
        help="Runs table to write, .parquet, .csv or .jsonl; its raw readings go beside it.",
    )


def refuse_two_clocks(given: dict[str, Any]) -> None:
    """Refuse --clock beside --freq."""
    if given["freqs"] and given["clock"]:
        raise click.UsageError("--clock says what the clock is as found; with --freq it is set")


def refuse_standard_output(output: str) -> None:
    """Refuse -o -, for a table that grows."""
    if output == "-":
        raise click.UsageError("-o takes a file: the table is written anew after every run")


def host_options(given: dict[str, Any], metrics: Sequence[str], *, as_found: bool) -> HostOptions:
    """Options of `ppw.measuring` for sensors and clocks, from those given."""
    from ppw.measuring import HostOptions

    return HostOptions(
        power=given["power"],
        metrics=tuple(metrics),
        as_found=as_found,
        turbo={"on": True, "off": False, None: None}[given["turbo"]],
        interval_s=given["every"],
        timeout_s=given["timeout"],
        sysfs=given["sysfs"],
        procfs=given["procfs"],
    )
