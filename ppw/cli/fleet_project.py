"""`ppw fleet project`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.fleet_options import engine_options, leave, progress_bar
from ppw.cli.options import (
    fit_options,
    interval_options,
    level_option,
    output_options,
    runs_options,
)
from ppw.cli.output import caveats_in_result
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
@engine_options
@output_options
def command(
    runs: tuple[str, ...],
    mapping: dict[str, str],
    keep_going: bool,
    format_: str,
    output: str,
    **options: Any,
) -> int:
    """Project every group of RUNS to frequencies that were not measured.

    RUNS are Parquet, CSV or JSON-lines files, folders of them, patterns or URLs. FILE may end in
    .parquet.
    """
    from ppw.fleet import project
    from ppw.report.projection_page import projection_page

    def page(result: RunsProjection) -> Page:
        # What the page draws of single runs, and asks anew of them, cells do not hold.
        return projection_page(replace(result, prepared=None, known_digest=result.input_digest))

    with caveats_in_result():
        with progress_bar() as progress:
            answer = project(runs, columns=mapping, progress=progress, **options)
        return leave(answer, format_, output, page, keep_going=keep_going)
