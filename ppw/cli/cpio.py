"""`ppw cpio`: cycles per I/O of runs; `ppw cpio project` and `ppw cpio compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from measurements.headers import nearest
from ppw.cli.cpio_options import io_options, projection_options
from ppw.cli.numbers import Number, Positive, Shares
from ppw.cli.options import level_option, output_options, seed_option
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.quantities import Frequency, Seconds
from ppw.cli.runs_table import read, read_io_runs, refuse_table_options

if TYPE_CHECKING:
    import pandas as pd

_STUDY = "study"


class RunsOrCommand(click.Group):
    """Group whose first argument may be a runs table: then it is the study of that table."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leave all options but --help to the subcommand."""
        if args and args[0] not in ("-h", "--help") and args[0] not in self.commands:
            _refuse_misspelt(args[0], self.list_commands(ctx), ctx)
            args = [_STUDY, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the subcommands that are typed."""
        return [name for name in super().list_commands(ctx) if name != _STUDY]


def _refuse_misspelt(name: str, commands: list[str], ctx: click.Context) -> None:
    """Refuse what is no file and nearly a command."""
    if (hint := nearest(name, commands)) and not Path(name).exists():
        raise click.UsageError(f"no file and no command {name!r}{hint}", ctx)


@click.group(
    name="cpio",
    cls=RunsOrCommand,
    short_help="Cycles per I/O of runs, projected to more cores, beside the device.",
    options_metavar="",
    subcommand_metavar="[project|compare] RUNS... [OPTIONS]",
    epilog="Example: ppw cpio study.csv; ppw cpio db7.tab.gz --clock 2.4GHz; "
    "ppw cpio project study.csv --cores 64",
)
def command() -> None:
    """Cycles per 512-byte I/O, utilisation and I/O rate of RUNS by application and cores.

    RUNS have CPU times of the whole system (user_s, system_s, idle_s ...), sectors_read and
    sectors_written, time_s and a clock; or are logs of collectl or sadf, which tell no clock: give
    it with --clock. ppw cpio study --help lists the options.
    """


clock_option = click.option(
    "--clock",
    "freq",
    type=Frequency(),
    help="Clock of runs that tell none, such as those of logs.",
)


@command.command(name=_STUDY, epilog="Example: ppw cpio db7.tab.gz --logs --clock 2.4GHz")
@io_options
@clock_option
@click.option(
    "--logs",
    is_flag=True,
    help="RUNS are logs of sadf -j, sadf -d or collectl -P; these are known by themselves, too.",
)
@click.option("--window", type=Seconds(), help="With --logs: one row for so much time.")
@click.option(
    "--cpus", type=Positive(), help="Logical CPUs of the host, where its log does not say."
)
@level_option
@seed_option
@output_options
def study(
    runs: tuple[str, ...],
    format_: str,
    output: str,
    logs: bool,
    window: float | None,
    cpus: float | None,
    **options: Any,
) -> None:
    """Cycles per I/O of RUNS, against cores, hardware threads and memory bandwidth."""
    from ppw.cpio.cycles import cycles_per_io
    from ppw.report.cpio_page import cpio_page

    logs = logs or all(map(_is_log, runs))
    if not logs and (window or cpus):
        raise click.UsageError("--window and --cpus are for --logs")
    with caveats_in_result():
        table = _read_logs(runs, window, cpus, options) if logs else read(runs, options)
        emit(cycles_per_io(table, **options), format_, output, cpio_page)


@command.command(
    name="project", epilog="Example: ppw cpio project study.csv --cores 64 --growth 70% --years 3"
)
@io_options
@projection_options
@click.option("--growth", type=Shares(lowest=-1.0), help="Of the market, a year: 70%,90%.")
@click.option("--years", type=Number(0), default=0.0, help="How long it grows.")
@click.option("--base-iops", type=Positive(), help="I/Os a second it asks now.")
@level_option
@output_options
def project(
    runs: tuple[str, ...],
    format_: str,
    output: str,
    growth: tuple[float, ...] | None,
    **options: Any,
) -> None:
    """I/O rate of a server with more cores, scenario by scenario, and what it asks for."""
    from ppw.cpio.projection import project_cpio
    from ppw.report.cpio_page import cpio_projection_page

    with caveats_in_result():
        table = read_io_runs(runs, options)
        result = project_cpio(table, growth=growth or (), **options)
    emit(result, format_, output, cpio_projection_page)


@command.command(
    name="compare", epilog="Example: ppw cpio compare devices.csv --roof fio.csv --clock 2.4GHz"
)
@io_options
@clock_option
@click.option(
    "--roof", metavar="FILE", help="Runs of fio on the same devices, as ppw run fio writes them."
)
@level_option
@output_options
def compare(
    runs: tuple[str, ...],
    format_: str,
    output: str,
    roof: str | None,
    **options: Any,
) -> None:
    """One workload over devices, hosts and instances, beside the most each device can do."""
    from measurements import read_runs
    from ppw.cpio.comparison import compare_devices
    from ppw.report.cpio_page import devices_page

    with caveats_in_result():
        ceiling = None if roof is None else read_runs(roof, check=False)
        table = read_io_runs(runs, options)
        result = compare_devices(table, roof=ceiling, **options)
    emit(result, format_, output, devices_page)


def _is_log(path: str) -> bool:
    from measurements.timeseries.reading import is_log

    return path != "-" and is_log(path)


def _read_logs(
    paths: tuple[str, ...], window: float | None, cpus: float | None, given: dict[str, Any]
) -> pd.DataFrame:
    from measurements.timeseries import read_time_series
    from ppw.cpio.series import runs_of_series

    refuse_table_options(given, "these are logs")
    if given["freq"] is None:
        raise click.UsageError("logs tell no clock: give --clock, such as --clock 2.4GHz")
    series = read_time_series(list(paths), cpus=cpus)
    said = series.frame["cpus"].max() if "cpus" in series.frame else cpus
    if cpus and said != cpus:
        raise click.UsageError(
            f"{series.source}: says {said:g} CPUs, and --cpus {cpus:g}: --cpus is for a log that "
            "does not say"
        )
    return runs_of_series(series, freq=given["freq"], window_s=window)
