"""`ppw project`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.numbers import Number
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
    short_help="Project every group of a runs table to another frequency, core count or data size.",
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
@click.option(
    "--cores",
    type=Number(1),
    help="Instead of --freq, a number of cores: the time that a job takes there, by Amdahl's law "
    "from runs on other numbers. The same options matter as with --data.",
)
@fit_options
@interval_options
@level_option
@output_options
def command(
    runs: tuple[str, ...],
    freq: list[float] | None,
    data_bytes: float | None,
    cores: float | None,
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Project every group of RUNS to frequencies, cores or a data size that were not measured."""
    from ppw.core_count import project_core_count
    from ppw.data_size import project_data_size
    from ppw.report.projection_page import projection_page
    from ppw.report.time_projection_page import time_projection_page as page
    from ppw.runs_projection import project_runs

    if sum(asked is not None for asked in (freq, data_bytes, cores)) != 1:
        raise click.UsageError("where to project to? Give --freq, --cores or --data, one of them")
    with caveats_in_result():
        table = read(runs, options)
        if freq is not None:
            result = project_runs(table, freq=freq, **options)
            emit(result, format_, output, projection_page)
            return
        of_time = {"by": options["by"], "level": options["level"]}
        if cores is not None:
            emit(project_core_count(table, cores=cores, **of_time), format_, output, page)
        elif data_bytes is not None:
            emit(project_data_size(table, data_bytes=data_bytes, **of_time), format_, output, page)
