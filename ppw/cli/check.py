"""`ppw check`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.options import output_options, runs_options
from ppw.cli.output import caveats_in_result, emit, say
from ppw.cli.runs_table import read


@click.command(
    name="check",
    short_help="Name the rows of a runs table that cannot be right, with the evidence.",
    epilog="Example: ppw check runs.csv --strict",
)
@runs_options
@click.option("--strict", is_flag=True, help="Exit with 3 when any row is suspect.")
@output_options
def command(
    runs: tuple[str, ...],
    strict: bool,
    format_: str,
    output: str,
    **options: Any,
) -> int:
    """Look through RUNS for rows that cannot be right and say what speaks against each.

    With --metric only for what spoils these metrics.
    """
    from ppw.quality import check_quality
    from ppw.report.pages import quality_page

    with caveats_in_result():
        table = read(runs, options)
        result = check_quality(table, **options)
        emit(result, format_, output, quality_page)
    if not strict or result.passed.all():
        return 0
    say(f"check failed: {result.verdict()}")
    return 3
