"""`ppw fleet fit`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.fleet_options import Fleet, asks_fleet
from ppw.cli.options import fit_options, runs_options


@click.command(name="fit", epilog="Example: ppw fleet fit runs/ --metric time -o laws.parquet")
@runs_options
@fit_options
@asks_fleet
def command(fleet: Fleet, **options: Any) -> int:
    """Fit the curves of every group of RUNS and give their parameters."""
    from ppw.fleet import fit
    from ppw.report.pages import parameters_page

    return fleet.leave(fleet.ask(fit, **options), parameters_page)
