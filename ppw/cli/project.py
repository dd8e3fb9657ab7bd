"""`ppw project`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.options import (
    fit_options,
    interval_options,
    level_option,
    output_options,
    runs_options,
)
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.quantities import Bytes, Frequencies
from ppw.cli.runs_table import read


@click.command(
    name="project",
    short_help="Project every group of a runs table to another frequency or data size.",
    epilog="Example: ppw project runs.csv --freq 3.0GHz --metric time,power",
)
@runs_options
@click.option("--freq", type=Frequencies(), help="Where to project to, such as 3.0GHz.")
@click.option(
    "--data",
    "data_bytes",
    type=Bytes(),
    help="Instead of --freq, a data size such as 512MB: the time that a job takes there, from runs "
    "with less data. Of the other options, only --map, --where, --by and --level matter then.",
)
@fit_options
@interval_options
@level_option
@output_options
def command(
    runs: tuple[str, ...],
    freq: list[float] | None,
    data_bytes: float | None,
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Project every group of RUNS to frequencies, or to a data size, that were not measured."""
    from ppw.data_size import project_data_size
    from ppw.report.data_size_page import data_size_page
    from ppw.report.projection_page import projection_page
    from ppw.runs_projection import project_runs

    if (freq is None) == (data_bytes is None):
        raise click.UsageError("where to project to? Give --freq or --data, one of them")
    with caveats_in_result():
        table = read(runs, options)
        if freq is not None:
            result = project_runs(table, freq=freq, **options)
            emit(result, format_, output, projection_page)
        elif data_bytes is not None:
            sized = project_data_size(
                table, data_bytes=data_bytes, by=options["by"], level=options["level"]
            )
            emit(sized, format_, output, data_size_page)
