"""`ppw trace record`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ppw.cli.choices import OneOf
from ppw.cli.output import say

_EPILOG = "Example: ppw trace record /dev/nvme0n1 -o sort.parquet -- sort --parallel=4 big.txt"


@click.command(
    name="record",
    short_help="Record what a command asks of a block device.",
    epilog=_EPILOG,
)
@click.argument("device")
@click.argument("program", nargs=-1, required=True, metavar="-- COMMAND…")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Trace to write, .parquet or .csv; best on another device.",
)
@click.option(
    "--raw",
    type=click.Path(path_type=Path),
    metavar="NAME",
    help="Keep blktrace's own files too, NAME.blktrace.CPU, for blkparse, btt and fio.",
)
@click.option(
    "--method",
    type=OneOf(["auto", "blktrace", "blk tracer"]),
    default="auto",
    show_default=True,
    help="auto takes blktrace where the kernel lets it.",
)
def command(**given: Any) -> int:
    """Run COMMAND and record every request that reaches DEVICE meanwhile, with its latency.

    Requests of other programs are recorded too; the trace tells threads apart. What is set in the
    kernel is put back on every way out. Needs root.
    """
    from measurements.traces.record import record

    done = record(
        given["device"],
        given["program"],
        given["output"],
        raw=given["raw"],
        method=given["method"],
    )
    for caveat in done.caveats:
        say(f"caveat: {caveat}")
    rate = done.requests / done.elapsed_s
    click.echo(
        f"{done.path}: {done.requests} requests in {done.elapsed_s:.3g} s, {rate:.4g} a second, "
        f"by {done.method}"
    )
    return 1 if done.exit_code or done.lost else 0
