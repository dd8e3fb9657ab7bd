"""`ppw project`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.options import (
    all_of,
    fit_options,
    interval_options,
    level_option,
    output_options,
    read_table,
    runs_options,
    runs_without_groups,
)
from ppw.cli.output import caveats_in_result, emit, say
from ppw.cli.types import Bytes, Frequencies, Number, OneOf, Percent, Share
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppw.projection.validation import Validation


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
def project_command(
    runs: tuple[str, ...],
    freq: list[float] | None,
    data_bytes: float | None,
    cores: float | None,
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Project every group of RUNS to frequencies, cores or a data size that were not measured."""
    from ppw.projection.runs import project_runs
    from ppw.projection.time import project_core_count, project_data_size

    if sum(asked is not None for asked in (freq, data_bytes, cores)) != 1:
        raise click.UsageError("where to project to? Give --freq, --cores or --data, one of them")
    with caveats_in_result():
        table = read_table(runs, options)
        if freq is not None:
            result = project_runs(table, freq=freq, **options)
            emit(result, format_, output)
            return
        of_time = {"by": options["by"], "level": options["level"]}
        if cores is not None:
            emit(project_core_count(table, cores=cores, **of_time), format_, output)
        elif data_bytes is not None:
            emit(project_data_size(table, data_bytes=data_bytes, **of_time), format_, output)


# `ppw fit`.


@click.command(
    name="fit",
    short_help="Give the parameters of every curve, with standard errors.",
    epilog="Example: ppw fit runs.csv --metric cpi,power",
)
@runs_options
@fit_options
@output_options
def fit_command(runs: tuple[str, ...], format_: str, output: str, **options: Any) -> None:
    """Fit the curves of every group of RUNS and give their parameters."""
    from ppw.projection.parameters import fit_runs

    with caveats_in_result():
        table = read_table(runs, options)
        result = fit_runs(table, **options)
        emit(result, format_, output)


# `ppw validate`.


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
def validate_command(
    runs: tuple[str, ...],
    train: list[float] | None,
    test: list[float] | None,
    max_error: float | None,
    format_: str,
    output: str,
    **options: Any,
) -> int:
    """Project from some runs of RUNS and hold the result against others."""
    from ppw.projection.validation import validate

    refuse_contradiction(train, test, options)
    with caveats_in_result():
        table = read_table(runs, options)
        result = validate(table, train=train or (), test=test or (), **options)
        emit(result, format_, output)
    return check_worst(result, max_error)


def refuse_contradiction(
    train: list[float] | None, test: list[float] | None, options: Mapping[str, Any]
) -> None:
    """Refuse, as wrong usage, options that say two things of what is learnt from and tested."""
    from ppw.projection import validation

    hosts = {name: options[name] for name in ("train_host", "test_host")}
    try:
        validation.refuse_contradiction(bool(train or test), options["scheme"], **hosts)
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


# `ppw check`.


@click.command(
    name="check",
    short_help="Name the rows of a runs table that cannot be right, with the evidence.",
    epilog="Example: ppw check runs.csv --strict",
)
@runs_options
@click.option("--strict", is_flag=True, help="Exit with 3 when any row is suspect.")
@output_options
def check_command(
    runs: tuple[str, ...],
    strict: bool,
    format_: str,
    output: str,
    **options: Any,
) -> int:
    """Look through RUNS for rows that cannot be right and say what speaks against each.

    With --metric only for what spoils these metrics.
    """
    from ppw.runs.quality import check_quality

    with caveats_in_result():
        table = read_table(runs, options)
        result = check_quality(table, **options)
        emit(result, format_, output)
    if not strict or result.passed.all():
        return 0
    say(f"check failed: {result.verdict()}")
    return 3


# `ppw pathlength`.


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
def pathlength_command(
    runs: tuple[str, ...],
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Fit path lengths to RUNS with instructions and data_bytes, of ppw measure or ppw run count.

    Against cores a·ln(n) + b, against the data size a line; and the range of data sizes in which
    throughput is flat.
    """
    from ppw.projection.path_length import path_lengths

    with caveats_in_result():
        table = read_table(runs, options)
        result = path_lengths(table, **options)
    emit(result, format_, output)
