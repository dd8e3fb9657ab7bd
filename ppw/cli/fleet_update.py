"""`ppw fleet update`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ppw.cli.fleet_options import engine_options
from ppw.cli.options import by_option, map_option
from ppw.cli.output import say

_EPILOG = "Example: ppw fleet update /srv/fleet.state runs/2026-03-01/"


@click.command(name="update", epilog=_EPILOG)
@click.argument("state", type=click.Path(path_type=Path, file_okay=False))
@click.argument("new", nargs=-1, required=True)
@by_option("When STATE is made: what tells groups apart. Default: all that identifies a run.")
@map_option("Read a foreign header as a column of ppw's, in any unit", "freq_khz=scaling_cur_freq")
@engine_options
def command(
    state: Path,
    new: tuple[str, ...],
    by: list[str] | None,
    mapping: dict[str, str],
    keep_going: bool,
    **engine: Any,
) -> int:
    """Take the runs of NEW files, folders and patterns into STATE, a folder.

    What STATE holds is not read again, and a file whose content it holds is passed over, whatever
    its name. Killed, it leaves STATE as it was. A file that cannot be used is named, the others
    are taken in, and the exit code is 1.
    """
    from ppw.fleet.state_update import update_state

    done = update_state(state, new, by=by, columns=mapping, **engine)
    faults = (*done.faults, *done.partly)
    for fault in faults:
        say(f"fault: {fault}")
    click.echo(done.summary())
    return 1 if faults and not keep_going else 0
