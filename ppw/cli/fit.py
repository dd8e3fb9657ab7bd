"""`ppw fit`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.options import fit_options, output_options, runs_options
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.runs_table import read


@click.command(
    name="fit",
    short_help="Give the parameters of every curve, with standard errors.",
    epilog="Example: ppw fit runs.csv --metric cpi,power",
)
@runs_options
@fit_options
@output_options
def command(runs: tuple[str, ...], format_: str, output: str, **options: Any) -> None:
    """Fit the curves of every group of RUNS and give their parameters."""
    from ppw.parameters import fit_runs
    from ppw.report.pages import parameters_page

    with caveats_in_result():
        table = read(runs, options)
        result = fit_runs(table, **options)
        emit(result, format_, output, parameters_page)
