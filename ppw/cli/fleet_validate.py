"""`ppw fleet validate`."""

from __future__ import annotations

from typing import Any

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
from ppw.cli.validate import check_worst, max_error_option, refuse_contradiction, split_options


@click.command(
    name="validate",
    epilog="Example: ppw fleet validate runs/ --train 1.2GHz,1.8GHz --test 2.4GHz --max-error 10",
)
@runs_options
@split_options
@fit_options
@interval_options
@level_option
@max_error_option
@engine_options
@output_options
def command(
    runs: tuple[str, ...],
    mapping: dict[str, str],
    train: list[float] | None,
    test: list[float] | None,
    max_error: float | None,
    keep_going: bool,
    format_: str,
    output: str,
    **options: Any,
) -> int:
    """Project from some runs of RUNS and hold the result against others.

    RUNS are Parquet, CSV or JSON-lines files, folders of them, patterns or URLs. FILE may end in
    .parquet.
    """
    from ppw.fleet import validate
    from ppw.report.pages import validation_page

    refuse_contradiction(train, test, options)
    with caveats_in_result():
        with progress_bar() as progress:
            answer = validate(
                runs,
                train=train or (),
                test=test or (),
                columns=mapping,
                progress=progress,
                **options,
            )
        code = leave(answer, format_, output, validation_page, keep_going=keep_going)
    return code or check_worst(answer.answer, max_error)
