"""`ppw validate`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.choices import OneOf
from ppw.cli.numbers import Percent
from ppw.cli.options import (
    all_of,
    fit_options,
    interval_options,
    level_option,
    output_options,
    runs_options,
)
from ppw.cli.output import caveats_in_result, emit, say
from ppw.cli.quantities import Frequencies
from ppw.cli.runs_table import read
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppw.validation import Validation


split_options = all_of(
    click.option("--train", type=Frequencies(), help="Frequencies to learn from."),
    click.option("--test", type=Frequencies(), help="Frequencies to be held against."),
    click.option(
        "--scheme",
        type=OneOf(["highest", "frequency", "host"]),
        help="Instead of --train and --test: leave out each group's highest frequency (the "
        "default), each frequency in turn, or each host in turn.",
    ),
    click.option("--train-host", metavar="HOST", help="Learn on this host …"),
    click.option("--test-host", metavar="HOST", help="… and test on this one."),
)
max_error_option = click.option(
    "--max-error", type=Percent(), help="Exit with 3 when any projection is further off."
)


@click.command(
    name="validate",
    short_help="Hold projections against measurements they have not seen.",
    epilog="Example: ppw validate runs.csv --train 1.2GHz,1.8GHz --test 2.4GHz --max-error 10",
)
@runs_options
@split_options
@fit_options
@interval_options
@level_option
@max_error_option
@output_options
def command(
    runs: tuple[str, ...],
    train: list[float] | None,
    test: list[float] | None,
    max_error: float | None,
    format_: str,
    output: str,
    **options: Any,
) -> int:
    """Project from some runs of RUNS and hold the result against others."""
    from ppw.report.pages import validation_page
    from ppw.validation import validate

    refuse_contradiction(train, test, options)
    with caveats_in_result():
        table = read(runs, options)
        result = validate(table, train=train or (), test=test or (), **options)
        emit(result, format_, output, validation_page)
    return check_worst(result, max_error)


def refuse_contradiction(
    train: list[float] | None, test: list[float] | None, options: Mapping[str, Any]
) -> None:
    """Refuse, as wrong usage, options that say two things of what is learnt from and tested."""
    from ppw import schemes

    hosts = {name: options[name] for name in ("train_host", "test_host")}
    try:
        schemes.refuse_contradiction(bool(train or test), options["scheme"], **hosts)
    except PpwError as error:
        raise click.UsageError(str(error)) from error


def check_worst(result: Validation, max_error: float | None) -> int:
    """Exit code of --max-error: 3, and the reason said, where a projection is further off."""
    worst = result.worst_error_pct()
    if max_error is None or worst <= max_error:
        return 0
    found = "no projection to check" if math.isnan(worst) else f"largest error {worst:.2f} %"
    say(f"check failed: {found}, asked for at most {max_error:g} %")
    return 3
