"""Options that the workloads of `ppw run` share."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from measurements.cpu_lists import parse_cpu_list
from measurements.errors import MeasurementError
from ppw.cli.options import Frequencies, Names
from ppw.cli.quantities import Frequency, Seconds
from ppw.names import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from measurements.workloads.service_run import ServiceOptions
    from ppw.measuring import HostOptions


class CpuList(click.ParamType[tuple[int, ...]]):
    """Logical CPUs as the kernel writes them: 0-3,8."""

    name = "CPUS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Numbers of the CPUs."""
        try:
            return parse_cpu_list(str(value))
        except MeasurementError as error:
            self.fail(str(error), param, ctx)


_OPTIONS = (
    click.option(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="Runs table to write, .parquet, .csv or .jsonl; its raw readings go beside it.",
    ),
    click.option("--resume", is_flag=True, help="Go on with a sweep that was interrupted."),
    click.option(
        "--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Runs a set-up."
    ),
    click.option(
        "--seconds",
        type=Seconds(),
        default="2s",
        show_default=True,
        help="Window of steady load that is measured in each run.",
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Of order and choices."),
    click.option("--freqs", type=Frequencies(), help="Core frequencies to fix, as in 1.2GHz,2GHz."),
    click.option(
        "--clock",
        type=Frequency(),
        help="What the clock is, where it is left as found and the host cannot tell.",
    ),
    click.option("--turbo", type=click.Choice(["on", "off"]), help="Switch turbo."),
    click.option(
        "--power",
        metavar="SOURCE[,…]",
        help="Where watts come from, or none; see ppw sensors. Default: what this host has.",
    ),
    click.option(
        "--metric",
        "metrics",
        type=Names(("cpi", "power")),
        help="What must be measured; by default it is where it can be.",
    ),
    click.option("--host", help="Name of the host in the table. Default: this one's."),
    click.option("--family", help="Microarchitecture family, such as Westmere."),
    click.option("--price", type=click.FloatRange(min=0, min_open=True), help="Of the host."),
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
        "--interval",
        type=Seconds(),
        default="0.1s",
        show_default=True,
        help="Between readings of a power source, where it is quick enough.",
    ),
    click.option(
        "--timeout", type=Seconds(), default="10s", show_default=True, help="For a BMC to answer."
    ),
    click.option("--sysfs", default="/sys", hidden=True),
    click.option("--procfs", default="/proc", hidden=True),
)


def run_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what every workload takes."""
    return functools.reduce(lambda f, decorate: decorate(f), reversed(_OPTIONS), function)


def service_options(given: dict[str, Any], *, host: str) -> ServiceOptions:
    """Options of `measurements.workloads.service_run`, from those given."""
    from measurements.workloads.service_run import ServiceOptions

    if given["freqs"] and given["clock"]:
        raise click.UsageError("--clock says what the clock is as found; with --freqs it is set")
    if given["output"] == "-":
        raise click.UsageError("-o takes a file: the table is written anew after every run")
    if not given["seconds"] > 0:
        raise click.UsageError("--seconds must be above 0")
    return ServiceOptions(
        host=given["host"] or host,
        family=given["family"],
        frequencies=tuple(given["freqs"] or ()),
        clock_hz=given["clock"],
        repeats=given["repeats"],
        seconds=given["seconds"],
        idle_s=given["idle"],
        settle_s=given["settle"],
        seed=given["seed"],
        price=given["price"],
    )


def host_options(given: dict[str, Any]) -> HostOptions:
    """Options of `ppw.measuring` for sensors and clocks, from those given."""
    from ppw.measuring import HostOptions

    return HostOptions(
        power=given["power"],
        metrics=("time", *(given["metrics"] or ())),
        as_found=not given["freqs"],
        turbo={"on": True, "off": False, None: None}[given["turbo"]],
        interval_s=given["interval"],
        timeout_s=given["timeout"],
        sysfs=given["sysfs"],
        procfs=given["procfs"],
    )


def show_progress(done: int, steps: int, what: str) -> None:
    """Say how far it is, on a terminal only."""
    import sys

    if sys.stderr.isatty():
        line = f"{done} of {steps} runs: {printable(what)}"
        click.echo(f"\r\x1b[K{line}", err=True, nl=done >= steps)
