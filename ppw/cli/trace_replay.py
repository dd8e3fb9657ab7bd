"""`ppw trace replay`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.numbers import Positive, Whole
from ppw.cli.options import output_options
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.quantities import Bytes
from ppw.cli.trace_sources import DeviceModel, read, trace_options


@click.command(
    name="replay",
    short_help="Play a trace back with fio, and say whose error is whose.",
    epilog="Example: ppw trace replay made.parquet --target /data/scratch --size 8GiB",
)
@click.argument("trace")
@trace_options
@click.option(
    "--target",
    required=True,
    metavar="FILE",
    help="Scratch file, made as long as need be and written over.",
)
@click.option(
    "--size",
    "size_bytes",
    type=Bytes(),
    help="Length of the target; places beyond it are taken modulo the length. Default: as long as "
    "the trace needs.",
)
@click.option("--original", metavar="TRACE", help="What TRACE was generated after.")
@click.option("--count", type=Whole(2), help="Requests at most.")
@click.option(
    "--time-scale",
    type=Positive(),
    default=1.0,
    show_default=True,
    help="Factor of all times: 2 is twice as slow.",
)
@click.option(
    "--depth",
    type=Whole(1),
    default=256,
    show_default=True,
    help="Requests in flight at most.",
)
@click.option("--ioengine", metavar="NAME", default="libaio", show_default=True, help="Of fio.")
@click.option("--direct/--buffered", default=True, show_default=True, help="Past the page cache.")
@click.option(
    "--device",
    type=DeviceModel(),
    help="A model to hold against it, as ssd or disk,average_seek=9ms.",
)
@click.option(
    "--allow-device", is_flag=True, help="Let the target be a device: what is on it is lost."
)
@output_options
def command(
    trace: str,
    trace_format: str | None,
    mapping: dict[str, str],
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Replay TRACE on a scratch file, after a calibration run that touches no device."""
    from ppw.report.trace_replay_page import trace_replay_page
    from ppw.traces.replay import replay_trace

    with caveats_in_result():
        result = replay_trace(read(trace, trace_format, mapping), **options)
        emit(result, format_, output, trace_replay_page)
