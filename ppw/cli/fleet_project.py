"""`ppw fleet project`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.fleet_options import Fleet, asks_fleet
from ppw.cli.options import fit_options, interval_options, level_option, runs_options
from ppw.cli.quantities import Frequencies

if TYPE_CHECKING:
    from ppw.report.page import Page
    from ppw.runs_projection import RunsProjection


@click.command(
    name="project", epilog="Example: ppw fleet project runs/ --freq 3.0GHz -o projected.parquet"
)
@runs_options
@click.option(
    "--freq", type=Frequencies(), required=True, help="Where to project to, such as 3.0GHz."
)
@fit_options
@interval_options
@level_option
@asks_fleet
def command(fleet: Fleet, **options: Any) -> int:
    """Project every group of RUNS to frequencies that were not measured."""
    from ppw.fleet import project
    from ppw.report.projection_page import projection_page

    def page(result: RunsProjection) -> Page:
        # What the page draws of single runs, and asks anew of them, cells do not hold.
        return projection_page(replace(result, prepared=None, known_digest=result.input_digest))

    return fleet.leave(fleet.ask(project, **options), page)
