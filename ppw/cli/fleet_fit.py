"""`ppw fleet fit`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.fleet_options import engine_options, leave, progress_bar
from ppw.cli.options import fit_options, output_options, runs_options
from ppw.cli.output import caveats_in_result


@click.command(name="fit", epilog="Example: ppw fleet fit runs/ --metric time -o laws.parquet")
@runs_options
@fit_options
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
    """Fit the curves of every group of RUNS and give their parameters.

    RUNS are Parquet, CSV or JSON-lines files, folders of them, patterns or URLs. FILE may end in
    .parquet.
    """
    from ppw.fleet import fit
    from ppw.report.pages import parameters_page

    with caveats_in_result():
        with progress_bar() as progress:
            answer = fit(runs, columns=mapping, progress=progress, **options)
        return leave(answer, format_, output, parameters_page, keep_going=keep_going)
