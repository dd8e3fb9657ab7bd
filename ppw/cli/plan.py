"""`ppw plan`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.decisions import Steps
from ppw.cli.numbers import Counts, Percent, Whole
from ppw.cli.options import (
    keep_all_option,
    level_option,
    metric_option,
    output_options,
    pool_option,
    seed_option,
    table_options_of,
    vf_option,
)
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.quantities import Duration, Frequencies
from ppw.cli.runs_table import read

_MINUTE_S = 60.0
_METRIC = "perf_per_watt"


@click.command(
    name="plan",
    short_help="Say which frequency to measure next, and how often, to be as sure as wanted.",
    epilog="Example: ppw plan runs.csv --freq 3.0GHz --metric perf_per_watt --within 3 "
    "--steps 1.2GHz:2.4GHz:0.2GHz --run-time 10min",
)
@table_options_of(metric=metric_option(f"{_METRIC}, and one at a time"))
@click.option("--freq", required=True, type=Frequencies(), help="What is asked, such as 3.0GHz.")
@click.option(
    "--within",
    type=Percent(positive=True),
    default=3.0,
    show_default=True,
    help="Half width of the interval that is wanted.",
)
@click.option(
    "--steps",
    type=Steps(1),
    help="What the host offers: a range, both ends included, or a list with commas. Default: the "
    "host's in the catalogue.",
)
@click.option(
    "--not-at-target",
    is_flag=True,
    help="Never advise to measure at --freq itself: for a machine that is not there.",
)
@click.option(
    "--run-time",
    "run_time_minutes",
    type=Duration(_MINUTE_S),
    help="What a run takes, setting up included: 10min.",
)
@click.option(
    "--budget",
    "budget_minutes",
    type=Duration(_MINUTE_S),
    help="Time not to go beyond: 4h; with --run-time.",
)
@click.option(
    "--repeats",
    type=Counts(),
    default="1,2,3,5",
    show_default=True,
    help="Numbers of runs to choose from.",
)
@click.option(
    "--target-runs",
    type=Whole(1),
    default=1,
    show_default=True,
    help="Ask for the mean of so many runs at --freq.",
)
@vf_option
@pool_option
@keep_all_option
@seed_option
@level_option
@output_options
def command(
    runs: tuple[str, ...],
    freq: list[float],
    metric: list[str] | None,
    not_at_target: bool,
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Say for every group of RUNS which frequency to measure next, and how many times.

    One metric at a time, perf_per_watt by default.
    """
    from ppw.planning import plan
    from ppw.report.plan_page import plan_page

    for what, given in (("--freq", freq), ("--metric", metric or [_METRIC])):
        if len(given) != 1:
            raise click.UsageError(f"{what}: a plan is for one, and {len(given)} were given")
    with caveats_in_result():
        table = read(runs, options)
        result = plan(
            table,
            freq=freq[0],
            metric=(metric or [_METRIC])[0],
            at_target=not not_at_target,
            **options,
        )
        emit(result, format_, output, plan_page)
