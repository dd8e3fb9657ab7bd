"""`ppw cpio`: cycles per I/O of runs; `ppw cpio project`, `ppw cpio compare` and `ppw size`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import measurements
import ppw
from measurements.table.headers import nearest
from ppw.cli import options as opt

if TYPE_CHECKING:
    import pandas as pd

_STUDY = "study"


class RunsOrCommand(click.Group):
    """Group whose first argument may be a runs table: then it is the study of that table."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leave all options but --help to the subcommand."""
        if args and args[0] not in ("-h", "--help") and args[0] not in self.commands:
            hint = nearest(args[0], self.list_commands(ctx))
            if hint and not Path(args[0]).exists():
                raise click.UsageError(f"no file and no command {args[0]!r}{hint}", ctx)
            args = [_STUDY, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the subcommands that are typed."""
        return [name for name in super().list_commands(ctx) if name != _STUDY]


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


_BY = (
    "applications apart. Default: all of host, family, workload, data_bytes, load, instances, "
    "device, device_kind that are there."
)
IO_TABLE = opt.table_options(_BY)
IO_TABLE_OPTIONAL = opt.table_options(_BY, required=False)
IO_PROJECTION = opt.all_of(
    opt.options("""
    --cores NUMBER>=1 (required): Cores of the server asked for.
    --freq FREQUENCY: Core frequency of the server. Default: that of the runs.
    --floor 0<SHARE<=1 (1%): Lowest utilisation that a projection may reach.
    --network-share SHARE: Bytes over the network for each byte read or written. Default: as
        measured, or 1.
    """),
    opt.draws_option(4000, "Number of posterior draws per application."),
    opt.SEED,
)


def read_io_runs(runs: opt.Runs, given: opt.Given) -> pd.DataFrame:
    """Read runs for cycles per I/O as `read` does; of a log, say how to make a table of it."""
    from measurements.timeseries.reading import is_log

    for path in runs:
        if path != "-" and is_log(path):
            raise ppw.PpwError(
                f"{path}: is a log of a host, no runs table: make one by ppw cpio {path} "
                f"--clock 2.4GHz -o {Path(path).name.partition('.')[0]}-cpio.csv, with its clock"
            )
    return opt.read_table(runs, given)


CLOCK = opt.options("--clock FREQUENCY as freq: Core frequency of runs that have none: 2.4GHz.")


@opt.question(
    _STUDY,
    "",
    "ppw cpio db7.tab.gz --logs --clock 2.4GHz",
    IO_TABLE,
    CLOCK,
    opt.options("""
    --logs: RUNS are logs of sadf -j, sadf -d or collectl -P; these are known by themselves, too.
    --window TIME: With --logs: one row for so much time.
    --cpus NUMBER>0: Logical CPUs of the host, where its log does not say.
    """),
    opt.LEVEL,
    opt.SEED,
    group=cpio_command,
)
def study(
    runs: opt.Runs, logs: bool, window: float | None, cpus: float | None, **options: Any
) -> ppw.CyclesPerIO:
    """Cycles per I/O of RUNS, against cores, hardware threads and memory bandwidth."""
    logs = logs or all(map(_is_log, runs))
    if not logs and (window or cpus):
        raise click.UsageError("--window and --cpus are for --logs")
    table = _read_logs(runs, window, cpus, options) if logs else opt.read_table(runs, options)
    return ppw.cycles_per_io(table, **options)


@opt.question(
    "project",
    "",
    "ppw cpio project study.csv --cores 64 --growth 70% --years 3",
    IO_TABLE,
    IO_PROJECTION,
    opt.options("""
    --growth SHARE[,…]>=-1: Growth of the market per year: 70%,90%.
    --years NUMBER>=0 (0): Years of growth.
    --base-iops NUMBER>0: I/Os per second that the market asks for now.
    """),
    opt.LEVEL,
    group=cpio_command,
)
def project(runs: opt.Runs, growth: tuple[float, ...] | None, **options: Any) -> ppw.CpioProjection:
    """I/O rate of a server with more cores, scenario by scenario, and what it asks for."""
    return ppw.project_cpio(read_io_runs(runs, options), growth=growth or (), **options)


@opt.question(
    "compare",
    "",
    "ppw cpio compare devices.csv --roof fio.csv --clock 2.4GHz",
    IO_TABLE,
    CLOCK,
    opt.options("--roof FILE: Table of fio runs on the same devices, written by ppw run fio."),
    opt.LEVEL,
    group=cpio_command,
)
def compare(runs: opt.Runs, roof: str | None, **options: Any) -> ppw.DeviceComparison:
    """One workload over devices, hosts and instances, beside the most each device can do."""
    ceiling = None if roof is None else measurements.read_runs(roof, check=False)
    return ppw.compare_devices(read_io_runs(runs, options), roof=ceiling, **options)


def _is_log(path: str) -> bool:
    from measurements.timeseries.reading import is_log

    return path != "-" and is_log(path)


def _read_logs(
    paths: opt.Runs, window: float | None, cpus: float | None, given: opt.Given
) -> pd.DataFrame:
    from measurements.timeseries import read_time_series
    from ppw.cpio.io_runs import runs_of_series

    opt.refuse_table_options(given, "these are logs")
    if given["freq"] is None:
        raise click.UsageError("a log has no core frequency: give --clock 2.4GHz")
    series = read_time_series(list(paths), cpus=cpus)
    stated = series.frame["cpus"].max() if "cpus" in series.frame else cpus
    if cpus and stated != cpus:
        raise click.UsageError(
            f"{series.source}: says {stated:g} CPUs, and --cpus {cpus:g}: --cpus is for a log that "
            "does not say"
        )
    return runs_of_series(series, freq=given["freq"], window_s=window)


@opt.question(
    "size",
    "Servers, energy and cost to sweep a data set, from cycles per I/O.",
    "ppw size study.csv --data 20PB --time 30d --cores 64 --server-power 400W --idle-share 60% "
    "--pue 1.3",
    IO_TABLE_OPTIONAL,
    opt.options("""
    --data SIZE>0 as data_bytes (required): Size of the data set: 35ZB.
    --time TIME>0 as time_s (required): Time to sweep it once: 1y.
    """),
    IO_PROJECTION,
    opt.options("""
    --power-per-core POWER as power_per_core_w: Power of a busy server per core; or --server-power.
    --server-power POWER as server_power_w: Power of a busy server.
    --idle-share 0<=SHARE<=1 (0): Idle power as a share of the power of a busy server.
    --pue NUMBER>=1 (1.0): Power usage effectiveness: power of the site over that of its servers.
    --electricity PRICE>0: Price of a kWh.
    --currency NAME (currency): Currency of the prices.
    --carbon NUMBER>0 as carbon_kg_per_kwh: kg CO2e per kWh.
    --other-power POWER as other_power_w: Power of a server that draws less, as an improvement.
    --device-bandwidth RATE>0 as device_bandwidth_bytes_s: Bandwidth of one storage device.
    --port-bandwidth RATE>0 as port_bandwidth_bytes_s: Bandwidth of one network port.
    --base-utilisation [measured|projected|full] (projected): CPU utilisation before any
        improvement.
    --base-cpio [desired|today|projected] (projected): Cycles per I/O before any improvement.
    --cpio NUMBER>0: Cycles per I/O, in place of RUNS.
    --utilisation 0<SHARE<=1: Utilisation of the CPU, without RUNS.
    """),
    opt.LEVEL,
)
def size_command(
    runs: opt.Runs, base_utilisation: str, base_cpio: str, **options: Any
) -> ppw.ServerSizing:
    """Servers, kWh and cost to sweep a data set once in a time, by application and scenario.

    Cycles per I/O and utilisation are those of RUNS, as for ppw cpio project, or typed with --cpio
    and --utilisation.
    """
    if not runs:
        opt.refuse_table_options(options, "no RUNS are named")
    table = read_io_runs(runs, options) if runs else None
    return ppw.size_servers(table, base=(base_utilisation, base_cpio), **options)
