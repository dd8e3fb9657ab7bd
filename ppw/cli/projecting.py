"""`ppw project`, `ppw fit`, `ppw validate`, `ppw check` and `ppw pathlength`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

import ppw
from ppw.cli import options as opt

if TYPE_CHECKING:
    from collections.abc import Mapping


@opt.question(
    "project",
    "Project every group of a runs table to another frequency, core count or data size.",
    "ppw project runs.csv --freq 3.0GHz --metric time,power",
)
@opt.all_of(
    opt.TABLE_METRIC,
    opt.options("""
    --freq FREQUENCY[,…]: Frequencies to project to: 3.0GHz.
    --data SIZE as data_bytes: Instead of --freq, a data size: 512MB. The answer is the time that a
        job takes there, from runs with less data. Of the other options, only --map, --where, --by
        and --level matter then.
    --cores NUMBER>=1: Instead of --freq, a number of cores: the time that a job takes there, by
        Amdahl's law from runs on other numbers. The same options matter as with --data.
    """),
    opt.FIT,
    opt.INTERVAL,
    opt.LEVEL,
)
def project_command(
    runs: opt.Runs,
    freq: list[float] | None,
    data_bytes: float | None,
    cores: float | None,
    **options: Any,
) -> ppw.RunsProjection | ppw.CoreCountProjection | ppw.DataSizeProjection:
    """Project every group of RUNS to frequencies, cores or a data size that were not measured."""
    if sum(target is not None for target in (freq, data_bytes, cores)) != 1:
        raise click.UsageError("where to project to? Give --freq, --cores or --data, one of them")
    table = opt.read_table(runs, options)
    if freq is not None:
        return ppw.project_runs(table, freq=freq, **options)
    of_time = {"by": options["by"], "level": options["level"]}
    if cores is not None:
        return ppw.project_core_count(table, cores=cores, **of_time)
    assert data_bytes is not None
    return ppw.project_data_size(table, data_bytes=data_bytes, **of_time)


@opt.question(
    "fit",
    "Give the parameters of every curve, with standard errors.",
    "ppw fit runs.csv --metric cpi,power",
)
@opt.all_of(opt.TABLE_METRIC, opt.FIT)
def fit_command(runs: opt.Runs, **options: Any) -> ppw.FittedParameters:
    """Fit the curves of every group of RUNS and give their parameters."""
    return ppw.fit_runs(opt.read_table(runs, options), **options)


# `ppw validate`; a fleet has the same options.

VALIDATION = opt.all_of(
    opt.TABLE_METRIC,
    opt.options("""
    --train FREQUENCY[,…]: Frequencies to learn from.
    --test FREQUENCY[,…]: Frequencies to compare with.
    --scheme [highest|frequency|host]: Instead of --train and --test: leave out each group's highest
        frequency (the default), each frequency in turn, or each host in turn.
    --train-host HOST: Host to learn from, with --test-host.
    --test-host HOST: Host to compare with, with --train-host.
    """),
    opt.FIT,
    opt.INTERVAL,
    opt.LEVEL,
    opt.options("--max-error PERCENT: Exit with 3 when any projection is further off."),
)


@opt.question(
    "validate",
    "Compare projections with measurements that they have not seen.",
    "ppw validate runs.csv --train 1.2GHz,1.8GHz --test 2.4GHz --max-error 10",
)
@VALIDATION
def validate_command(
    runs: opt.Runs, max_error: float | None, **options: Any
) -> tuple[ppw.Validation, str | None]:
    """Project from some runs of RUNS and compare the result with others."""
    options |= splits_of(options)
    result = ppw.validate(opt.read_table(runs, options), **options)
    return result, excess_error(result, max_error)


def splits_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Frequencies to learn from and to test; options that contradict each other are wrong usage."""
    from ppw.projection import validation

    train, test = options["train"] or (), options["test"] or ()
    hosts = {name: options[name] for name in ("train_host", "test_host")}
    try:
        validation.refuse_contradiction(bool(train or test), options["scheme"], **hosts)
    except ppw.PpwError as error:
        raise click.UsageError(str(error)) from error
    return {"train": train, "test": test}


def excess_error(result: ppw.Validation, max_error: float | None) -> str | None:
    """Say how far a projection is off where that is more than --max-error."""
    worst = result.worst_error_pct()
    if max_error is None or worst <= max_error:
        return None
    found = "no projection to check" if math.isnan(worst) else f"largest error {worst:.2f} %"
    return f"{found}, asked for at most {max_error:g} %"


@opt.question(
    "check",
    "Name the rows of a runs table that cannot be right, with the evidence.",
    "ppw check runs.csv --strict",
)
@opt.all_of(opt.TABLE_METRIC, opt.options("--strict: Exit with 3 when any row is flagged."))
def check_command(runs: opt.Runs, strict: bool, **options: Any) -> tuple[ppw.Quality, str | None]:
    """Look through RUNS for rows that cannot be right and say what speaks against each.

    With --metric only for what spoils these metrics.
    """
    result = ppw.check_quality(opt.read_table(runs, options), **options)
    return result, str(result.verdict()) if strict and not result.passed.all() else None


@opt.question(
    "pathlength", "Instructions per byte against cores and data size.", "ppw pathlength counts.csv"
)
@opt.all_of(opt.TABLE_ALONE, opt.TOLERANCE, opt.LEVEL)
def pathlength_command(runs: opt.Runs, **options: Any) -> ppw.PathLengths:
    """Fit path lengths to RUNS with instructions and data_bytes, of ppw measure or ppw run count.

    Against cores a·ln(n) + b, against the data size a line; and the range of data sizes in which
    throughput is flat.
    """
    return ppw.path_lengths(opt.read_table(runs, options), **options)
