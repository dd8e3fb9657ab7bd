"""`ppw project`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.options import (
    Frequencies,
    fit_options,
    interval_options,
    level_option,
    output_options,
    read,
    runs_options,
)
from ppw.cli.output import caveats_in_result, emit


@click.command(
    name="project",
    short_help="Project every group of a runs table to another frequency.",
    epilog="Example: ppw project runs.csv --freq 3.0GHz --metric time,power",
)
@runs_options
@click.option(
    "--freq", required=True, type=Frequencies(), help="Where to project to, such as 3.0GHz."
)
@fit_options
@interval_options
@level_option
@output_options
def command(
    runs: tuple[str, ...],
    mapping: dict[str, str],
    freq: list[float],
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Project every group of RUNS to frequencies that were not measured."""
    from ppw.report.pages import projection_page
    from ppw.runs_projection import project_runs

    with caveats_in_result():
        result = project_runs(read(runs, mapping), freq=freq, **options)
        emit(result, format_, output, projection_page)
