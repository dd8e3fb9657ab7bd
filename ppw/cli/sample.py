"""`ppw sample`."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.choices import Names
from ppw.cli.options import Respelt
from ppw.cli.output import say
from ppw.cli.quantities import Seconds

if TYPE_CHECKING:
    from types import FrameType

    from measurements.timeseries.live import Ended, LiveSampler


@click.command(
    name="sample",
    short_help="Record this host's CPU time, memory, disks and network while a command runs.",
    epilog="Example: ppw sample -o sort.parquet -- sort --parallel=4 big.txt",
)
@click.argument("command", nargs=-1)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    help="Time series to write, .csv, .parquet or .jsonl; - is standard output, as CSV, where no "
    "COMMAND uses it.",
)
@click.option("--duration", type=Seconds(), help="Record so long, without a COMMAND.")
@click.option(
    "--every",
    cls=Respelt,
    former="--interval",
    type=Seconds(),
    default="1s",
    show_default=True,
    help="Time from row to row.",
)
@click.option(
    "--disk",
    "disks",
    type=Names(),
    help="Disks whose transfers are the host's, such as loop0. Default: the physical ones.",
)
@click.option("--host", metavar="NAME", help="Name of this host in the series. Default: its own.")
@click.option("--sysfs", default="/sys", hidden=True)
@click.option("--procfs", default="/proc", hidden=True)
@click.option("--root", default="/", hidden=True)
def command(**given: Any) -> int:
    """Record this host, a row an interval, until COMMAND ends, the time is over or Ctrl-C.

    Each row is in the file before the next begins. Only the kernel's counts are read; nothing is
    changed.
    """
    from pathlib import Path

    from measurements.timeseries.live import LiveSampler

    program, output = given["command"], given["output"]
    if program and given["duration"] is not None:
        raise click.UsageError(
            "with a COMMAND it is recorded until that ends: leave out --duration"
        )
    if program and output == "-":
        raise click.UsageError("standard output is the COMMAND's: give -o a file")
    signal.signal(signal.SIGTERM, _interrupt)
    sampler = LiveSampler(
        interval_s=given["every"],
        disks=given["disks"],
        host=given["host"],
        procfs=Path(given["procfs"]),
        sysfs=Path(given["sysfs"]),
        root=Path(given["root"]),
    )
    for caveat in sampler.caveats:
        say(caveat)
    ended = _record(sampler, program, given["duration"], output)
    if output != "-":
        _say_what_was_recorded(output)
    if ended is not None:
        return _judge(program[0], ended)
    return 0


def _record(
    sampler: LiveSampler, program: tuple[str, ...], seconds: float | None, output: str
) -> Ended | None:
    from measurements.timeseries.live import Command, for_seconds
    from measurements.timeseries.own import Writer

    with Writer(output) as writer:
        if not program:
            for row in sampler.rows(for_seconds(float("inf") if seconds is None else seconds)):
                writer.write(row)
            return None
        running = Command(program)
        try:
            for row in sampler.rows(running.wait):
                writer.write(row)
        finally:
            ended = running.end()
        return ended


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say_what_was_recorded(output: str) -> None:
    from measurements.timeseries import read_time_series

    for line in read_time_series(output).summary().splitlines():
        say(line)


def _judge(name: str, ended: Ended) -> int:
    """Say how the command ended; 1 where it failed."""
    say(f"{name}: {ended.user_s:.6g} s user and {ended.system_s:.6g} s system CPU time of its own")
    if ended.exit_code == 0:
        return 0
    how = f"signal {-ended.exit_code}" if ended.exit_code < 0 else f"exit code {ended.exit_code}"
    say(f"error: {name}: ended with {how}")
    return 1
