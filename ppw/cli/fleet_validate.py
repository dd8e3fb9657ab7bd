"""`ppw fleet validate`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.fleet_options import Fleet, asks_fleet
from ppw.cli.options import fit_options, interval_options, level_option, runs_options
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
@asks_fleet
def command(
    fleet: Fleet,
    train: list[float] | None,
    test: list[float] | None,
    max_error: float | None,
    **options: Any,
) -> int:
    """Project from some runs of RUNS and hold the result against others."""
    from ppw.fleet import validate
    from ppw.report.pages import validation_page

    refuse_contradiction(train, test, options)
    answer = fleet.ask(validate, train=train or (), test=test or (), **options)
    return fleet.leave(answer, validation_page) or check_worst(answer.answer, max_error)
