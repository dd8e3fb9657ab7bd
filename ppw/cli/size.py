"""`ppw size`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.choices import OneOf
from ppw.cli.cpio_options import optional_io_options, projection_options
from ppw.cli.numbers import Number, Positive, Price, Share
from ppw.cli.options import level_option, output_options
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.quantities import ByteRate, Bytes, Seconds, Watts
from ppw.cli.runs_table import read_io_runs, refuse_table_options

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
def command(
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
    from ppw.cpio.sizing import size_servers
    from ppw.report.cpio_page import sizing_page

    if not runs:
        refuse_table_options(options, "no RUNS are named")
    with caveats_in_result():
        table = read_io_runs(runs, options) if runs else None
        result = size_servers(table, base=(base_utilisation, base_cpio), **options)
    emit(result, format_, output, sizing_page)
