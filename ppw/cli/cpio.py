"""`ppw cpio`: cycles per I/O of runs; `ppw cpio project` and `ppw cpio compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from measurements.table.headers import nearest
from ppw.cli.options import (
    io_options,
    level_option,
    optional_io_options,
    output_options,
    projection_options,
    read_io_runs,
    read_table,
    refuse_table_options,
    seed_option,
)
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.types import (
    ByteRate,
    Bytes,
    Frequency,
    Number,
    OneOf,
    Positive,
    Price,
    Seconds,
    Share,
    Shares,
    Watts,
)

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
def cpio_command() -> None:
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


@cpio_command.command(name=_STUDY, epilog="Example: ppw cpio db7.tab.gz --logs --clock 2.4GHz")
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
    from ppw.cpio.report import cpio_page

    logs = logs or all(map(_is_log, runs))
    if not logs and (window or cpus):
        raise click.UsageError("--window and --cpus are for --logs")
    with caveats_in_result():
        table = _read_logs(runs, window, cpus, options) if logs else read_table(runs, options)
        emit(cycles_per_io(table, **options), format_, output, cpio_page)


@cpio_command.command(
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
    from ppw.cpio.report import cpio_projection_page
    from ppw.cpio.scenarios import project_cpio

    with caveats_in_result():
        table = read_io_runs(runs, options)
        result = project_cpio(table, growth=growth or (), **options)
    emit(result, format_, output, cpio_projection_page)


@cpio_command.command(
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
    from ppw.cpio.compare_devices import compare_devices
    from ppw.cpio.report import devices_page

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
    from ppw.cpio.io_runs import runs_of_series

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


# `ppw size`.


_BYTES, _SECONDS = Bytes(positive=True), Seconds(positive=True)
_RATE = ByteRate(positive=True)


@click.command(
    name="size",
    short_help="Servers, energy and cost to sweep a data set, from cycles per I/O.",
    epilog="Example: ppw size study.csv --data 20PB --time 30d --cores 64 --server-power 400W "
    "--idle-share 60% --pue 1.3",
)
@optional_io_options
@click.option("--data", "data_bytes", type=_BYTES, required=True, help="Data set: 35ZB.")
@click.option("--time", "time_s", type=_SECONDS, required=True, help="To sweep it once in: 1y.")
@projection_options
@click.option(
    "--power-per-core",
    "power_per_core_w",
    type=Watts(),
    help="Of a busy server; or --server-power.",
)
@click.option("--server-power", "server_power_w", type=Watts(), help="Of a busy server.")
@click.option(
    "--idle-share", type=Share(0, 1), default="0", help="Idle power, of that of a busy server."
)
@click.option(
    "--pue",
    type=Number(1),
    default=1.0,
    show_default=True,
    help="Power usage effectiveness: all power of the site over that of its servers.",
)
@click.option("--electricity", type=Price(positive=True), help="Price of a kWh.")
@click.option(
    "--currency", metavar="NAME", default="currency", help="Name of the price's currency."
)
@click.option("--carbon", "carbon_kg_per_kwh", type=Positive(), help="kg CO2e a kWh.")
@click.option(
    "--other-power", "other_power_w", type=Watts(), help="Of a server that draws less, as a lever."
)
@click.option(
    "--device-bandwidth",
    "device_bandwidth_bytes_s",
    type=_RATE,
    help="Of one storage device.",
)
@click.option("--port-bandwidth", "port_bandwidth_bytes_s", type=_RATE, help="Of one network port.")
@click.option(
    "--base-utilisation",
    type=OneOf(["measured", "projected", "full"]),
    default="projected",
    show_default=True,
    help="Utilisation that levers start from.",
)
@click.option(
    "--base-cpio",
    type=OneOf(["desired", "today", "projected"]),
    default="projected",
    show_default=True,
    help="Cycles per I/O that levers start from.",
)
@click.option("--cpio", type=Positive(), help="Cycles per I/O, without RUNS.")
@click.option("--utilisation", type=Share(0, 1, min_open=True), help="Of the CPU, without RUNS.")
@level_option
@output_options
def size_command(
    runs: tuple[str, ...],
    format_: str,
    output: str,
    base_utilisation: str,
    base_cpio: str,
    **options: Any,
) -> None:
    """Servers, kWh and cost to sweep a data set once in a time, by application and scenario.

    Cycles per I/O and utilisation are those of RUNS, as for ppw cpio project, or typed with --cpio
    and --utilisation.
    """
    from ppw.cpio.report import sizing_page
    from ppw.cpio.sizing import size_servers

    if not runs:
        refuse_table_options(options, "no RUNS are named")
    with caveats_in_result():
        table = read_io_runs(runs, options) if runs else None
        result = size_servers(table, base=(base_utilisation, base_cpio), **options)
    emit(result, format_, output, sizing_page)
