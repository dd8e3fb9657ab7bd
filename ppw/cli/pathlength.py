"""`ppw pathlength`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.numbers import Share
from ppw.cli.options import level_option, output_options, runs_without_groups
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.runs_table import read


@click.command(
    name="pathlength",
    short_help="Instructions per byte against cores and data size.",
    epilog="Example: ppw pathlength counts.csv",
)
@runs_without_groups
@click.option(
    "--tolerance",
    type=Share(0, min_open=True),
    default="5%",
    show_default=True,
    help="By how much throughput may vary in a range of data sizes that is called flat.",
)
@level_option
@output_options
def command(
    runs: tuple[str, ...],
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Fit path lengths to RUNS with instructions and data_bytes, of ppw measure or ppw run count.

    Against cores a·ln(n) + b, against the data size a line; and the range of data sizes in which
    throughput is flat.
    """
    from ppw.path_length import path_lengths
    from ppw.report.path_length_page import path_length_page

    with caveats_in_result():
        table = read(runs, options)
        result = path_lengths(table, **options)
    emit(result, format_, output, path_length_page)
