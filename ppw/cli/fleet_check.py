"""`ppw fleet check`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.fleet_options import engine_options, leave, progress_bar
from ppw.cli.options import output_options, runs_options
from ppw.cli.output import caveats_in_result, say


@click.command(name="check", epilog="Example: ppw fleet check runs/ --strict")
@runs_options
@click.option("--strict", is_flag=True, help="Exit with 3 when any run is suspect.")
@engine_options
@output_options
def command(
    runs: tuple[str, ...],
    mapping: dict[str, str],
    strict: bool,
    keep_going: bool,
    format_: str,
    output: str,
    **options: Any,
) -> int:
    """Look through RUNS for what cannot be right and say what speaks against it.

    RUNS are Parquet, CSV or JSON-lines files, folders of them, patterns or URLs. FILE may end in
    .parquet.
    """
    from ppw.fleet import check
    from ppw.report.pages import quality_page

    with caveats_in_result():
        with progress_bar() as progress:
            answer = check(runs, columns=mapping, progress=progress, **options)
        code = leave(answer, format_, output, quality_page, keep_going=keep_going)
    if code or not strict or not answer.answer.suspects:
        return code
    say(f"check failed: {answer.answer.verdict()}")
    return 3
