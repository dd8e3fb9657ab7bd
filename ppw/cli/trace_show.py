"""`ppw trace show`."""

from __future__ import annotations

from functools import partial

import click

from ppw.cli.options import output_options
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.trace_sources import DeviceModel, model_of, read, trace_options


@click.command(
    name="show",
    short_help="Show a fitted model: its states, laws and load.",
    epilog="Example: ppw trace show disk.model.json --format html -o disk.html",
)
@click.argument("model", type=click.Path())
@click.option("--original", metavar="TRACE", help="Draw its places beside those generated (html).")
@trace_options
@click.option(
    "--scales", is_flag=True, help="What a device completes when times are scaled, instead."
)
@click.option(
    "--device",
    type=DeviceModel(),
    default="disk",
    show_default=True,
    help="Model for --scales: disk or ssd, with parameters if need be.",
)
@output_options
def command(
    model: str,
    original: str | None,
    trace_format: str | None,
    mapping: dict[str, str],
    scales: bool,
    device: str,
    format_: str,
    output: str,
) -> None:
    """Show MODEL, which ppw trace fit wrote with --format json.

    csv has its transitions, html the state diagram, the places and times of requests, their
    inter-arrival times and the load.
    """
    from ppw.report.trace_page import scales_page, trace_page
    from ppw.traces.time_scales import time_scales

    with caveats_in_result():
        fitted = model_of(model)
        if scales:
            emit(time_scales(fitted, device=device), format_, output, scales_page)
            return
        source = None if original is None else read(original, trace_format, mapping)
        emit(fitted, format_, output, partial(trace_page, original=source))
