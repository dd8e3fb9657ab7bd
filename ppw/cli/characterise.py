"""`ppw characterise`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.numbers import Price
from ppw.cli.options import output_options, pairs, table_options
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.quantities import Frequency
from ppw.cli.runs_table import read


def _prices(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, float]:
    named = pairs("HOST=PRICE, such as atom=450")(ctx, param, texts)
    return {host: Price(positive=True).convert(text, param, ctx) for host, text in named.items()}


@click.command(
    name="characterise",
    short_help="Set hosts side by side: times, ratios, perf per watt and price, CPI, memory.",
    epilog="Example: ppw characterise runs.csv --reference atom --price atom=450 --price xeon=6000",
)
@table_options
@click.option(
    "--reference", metavar="HOST", help="Host that ratios are to. Default: the slowest one."
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    callback=_prices,
    metavar="HOST=PRICE",
    help="Price of a host. Default: the column price.",
)
@click.option(
    "--freq", type=Frequency(), help="Frequency of all hosts. Default: the highest measured."
)
@click.option(
    "--mixed-scope", is_flag=True, help="Set watts of different scope against each other."
)
@output_options
def command(
    runs: tuple[str, ...],
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Set the hosts of RUNS side by side over the workloads that they ran.

    What was measured, the speed-up, power and cost ratios to one host, performance per watt and
    per price, and what processor and memory did; a cell that was not measured stays empty.
    """
    from ppw.characterisation import characterise
    from ppw.report.characterisation_page import characterisation_page

    with caveats_in_result():
        table = read(runs, options)
        result = characterise(table, **options)
        emit(result, format_, output, characterisation_page)
