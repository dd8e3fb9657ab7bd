"""Options that the workloads of `ppw run` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from measurements.cpu_lists import parse_cpu_list
from measurements.errors import MeasurementError
from ppw.cli.measuring_options import (
    clock_options,
    host_options,
    kernel_options,
    metrics_option,
    pace_options,
    power_option,
    refuse_standard_output,
    refuse_two_clocks,
    repeats_option,
    row_options,
    table_option,
)
from ppw.cli.options import all_of
from ppw.cli.output import say
from ppw.cli.quantities import Seconds
from ppw.names import printable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from measurements.workloads.service_run import ServiceOptions
    from ppw.measuring import HostOptions
    from ppw.running import Running


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


_shared = (
    repeats_option(3),
    clock_options,
    power_option,
    metrics_option(("cpi", "power"), "none of them"),
    row_options,
    pace_options,
    kernel_options,
)
# A job ends by itself, which leaves no window to choose.
job_options = all_of(table_option(required=False), *_shared)
run_options = all_of(
    table_option(required=True),
    click.option(
        "--window",
        type=Seconds(positive=True),
        default="2s",
        show_default=True,
        help="Steady load that is measured in each run.",
    ),
    *_shared,
)


def service_options(given: dict[str, Any], *, host: str) -> ServiceOptions:
    """Options of `measurements.workloads.service_run`, from those given."""
    from measurements.workloads.service_run import ServiceOptions

    refuse_two_clocks(given)
    refuse_standard_output(given["output"])
    return ServiceOptions(
        host=given["host"] or host,
        family=given["family"],
        frequencies=tuple(given["freqs"] or ()),
        clock_hz=given["clock"],
        repeats=given["repeats"],
        seconds=given["window"],
        idle_s=given["idle"],
        settle_s=given["settle"],
        seed=given["seed"],
        price=given["price"],
    )


def sensor_options(given: dict[str, Any]) -> HostOptions:
    """Options of `ppw.measuring` for sensors and clocks, from those given."""
    metrics = ("time", *(given["metrics"] or ()))
    return host_options(given, metrics, as_found=not given["freqs"])


def running_on(
    given: dict[str, Any],
    service: ServiceOptions,
    workload: dict[str, Any],
    *,
    is_local: bool = True,
) -> AbstractContextManager[Running]:
    """Open what the runs of a service need, as the options say; see `ppw.running.running`."""
    from ppw.running import running

    return running(
        service,
        sensor_options(given),
        Path(given["output"]),
        workload=workload,
        is_local=is_local,
        resume=given["resume"],
        tell=say,
    )


def show_progress(done: int, steps: int, what: str) -> None:
    """Say how far it is, on a terminal only."""
    import sys

    if sys.stderr.isatty():
        line = f"{done} of {steps} runs: {printable(what)}"
        click.echo(f"\r\x1b[K{line}", err=True, nl=done >= steps)
