"""`ppw fleet check`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.fleet_options import Fleet, asks_fleet
from ppw.cli.options import runs_options
from ppw.cli.output import say


@click.command(name="check", epilog="Example: ppw fleet check runs/ --strict")
@runs_options
@click.option("--strict", is_flag=True, help="Exit with 3 when any run is suspect.")
@asks_fleet
def command(fleet: Fleet, strict: bool, **options: Any) -> int:
    """Look through RUNS for what cannot be right and say what speaks against it."""
    from ppw.fleet import check
    from ppw.report.pages import quality_page

    answer = fleet.ask(check, **options)
    code = fleet.leave(answer, quality_page)
    if code or not strict or not answer.answer.suspects:
        return code
    say(f"check failed: {answer.answer.verdict()}")
    return 3
