"""`ppw sensors`."""

from __future__ import annotations

from pathlib import Path

import click

from ppw.cli.options import output_options_of
from ppw.cli.output import write


@click.command(
    name="sensors",
    short_help="List what this host can measure, and why not the rest.",
    epilog="Example: ppw sensors --format json",
)
@output_options_of("text", "json")
@click.option("--sysfs", default="/sys", hidden=True)
@click.option("--procfs", default="/proc", hidden=True)
def command(format_: str, sysfs: str, procfs: str, output: str) -> None:
    """Try every source of watts, the counters and the clock of this host; nothing is changed."""
    from ppw import sensors

    found = sensors.find_sensors(Path(sysfs), Path(procfs))
    text = sensors.as_json(found) if format_ == "json" else sensors.as_text(found)
    write(text + "\n", output)
