"""`ppw fleet pathlength`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.fleet_options import engine_options, leave, progress_bar
from ppw.cli.numbers import Share
from ppw.cli.options import level_option, output_options, runs_without_groups
from ppw.cli.output import caveats_in_result


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
    """Fit path lengths to RUNS with instructions and data_bytes: against cores and data size.

    RUNS are Parquet, CSV or JSON-lines files, folders of them, patterns or URLs. FILE may end in
    .parquet.
    """
    from ppw.fleet import path_lengths
    from ppw.report.path_length_page import path_length_page

    with caveats_in_result():
        with progress_bar() as progress:
            answer = path_lengths(runs, columns=mapping, progress=progress, **options)
        return leave(answer, format_, output, path_length_page, keep_going=keep_going)
