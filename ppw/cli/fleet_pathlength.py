"""`ppw fleet pathlength`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.fleet_options import Fleet, asks_fleet
from ppw.cli.numbers import Share
from ppw.cli.options import level_option, runs_without_groups


@click.command(name="pathlength", epilog="Example: ppw fleet pathlength counts/")
@runs_without_groups
@click.option(
    "--tolerance",
    type=Share(0, min_open=True),
    default="5%",
    show_default=True,
    help="By how much throughput may vary in a range of data sizes that is called flat.",
)
@level_option
@asks_fleet
def command(fleet: Fleet, **options: Any) -> int:
    """Fit path lengths to RUNS with instructions and data_bytes: against cores and data size."""
    from ppw.fleet import path_lengths
    from ppw.report.path_length_page import path_length_page

    return fleet.leave(fleet.ask(path_lengths, **options), path_length_page)
