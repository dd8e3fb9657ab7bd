"""`ppw best`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.choices import OneOf
from ppw.cli.decisions import Steps, cost_options, draw_options
from ppw.cli.numbers import Price
from ppw.cli.options import level_option, output_options, table_options
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.quantities import Seconds, Watts
from ppw.cli.runs_table import read

_OBJECTIVES = ("energy", "edp", "ed2p", "perf_per_watt", "time", "perf_per_dollar")


@click.command(
    name="best",
    short_help="Find the best frequency step of every group, and how surely it is.",
    epilog="Example: ppw best runs.csv --objective edp --steps 1.2GHz:2.4GHz:0.1GHz; ppw best "
    "runs.csv --deadline 60s --power-cap 120W",
)
@table_options
@click.option(
    "--objective",
    type=OneOf(_OBJECTIVES),
    default="energy",
    show_default=True,
    help="Least energy, energy-delay or energy-delay² product, or time; most performance per watt "
    "or price.",
)
@click.option(
    "--steps",
    type=Steps(2),
    help="Steps to choose from. Default: those measured, and those of a host in the catalogue.",
)
@click.option(
    "--deadline",
    type=Seconds(positive=True),
    help="Only steps at which a run surely, by --level, takes no longer: 60s.",
)
@click.option(
    "--power-cap",
    type=Watts(positive=True),
    help="Only steps at which a run surely draws no more: 120W.",
)
@click.option(
    "--idle-power",
    type=Watts(),
    help="Drawn between jobs by a host that stays on: only what is above it counts.",
)
@click.option(
    "--price",
    type=Price(positive=True),
    help="Of one host, for perf_per_dollar. Default: the column price.",
)
@cost_options
@draw_options
@level_option
@output_options
def command(
    runs: tuple[str, ...],
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Find the frequency step at which each group of RUNS does its work best.

    A step's probability of being the best is counted over curves drawn through the runs; beside it
    is the answer of straight lines.
    """
    from ppw.best import best_frequency
    from ppw.report.best_page import best_page

    with caveats_in_result():
        table = read(runs, options)
        result = best_frequency(table, **options)
        emit(result, format_, output, best_page)
