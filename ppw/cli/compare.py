"""`ppw compare`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.decisions import cost_options, draw_options
from ppw.cli.options import level_option, output_options, read, runs_options
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.quantities import Frequency


def _side(ctx: click.Context, param: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    side = {}
    for pair in pairs:
        column, equals, value = pair.partition("=")
        if not (column and equals and value):
            raise click.BadParameter(f"{pair!r} is not COLUMN=VALUE, such as host=atom", ctx, param)
        side[column] = value
    return side


@click.command(
    name="compare",
    short_help="Compare two hosts over the work that both did, and find where they tie.",
    epilog="Example: ppw compare runs.csv --a host=atom --b host=xeon --freq 2.4GHz",
)
@runs_options
@click.option(
    "--a",
    multiple=True,
    required=True,
    callback=_side,
    metavar="COLUMN=VALUE",
    help="What tells side A, such as host=atom; several where one column does not.",
)
@click.option(
    "--b", multiple=True, required=True, callback=_side, metavar="COLUMN=VALUE", help="Side B."
)
@click.option(
    "--freq", type=Frequency(), help="Frequency of both sides. Default: the highest measured."
)
@click.option("--freq-a", type=Frequency(), help="Frequency of A alone.")
@click.option("--freq-b", type=Frequency(), help="Frequency of B alone.")
@click.option(
    "--price-a",
    type=click.FloatRange(0, min_open=True),
    help="Price of one host A. Default: the column price.",
)
@click.option("--price-b", type=click.FloatRange(0, min_open=True), help="Price of one host B.")
@cost_options
@click.option(
    "--mixed-scope", is_flag=True, help="Compare watts of different scope, with a caveat."
)
@draw_options
@level_option
@output_options
def command(
    runs: tuple[str, ...],
    mapping: dict[str, str],
    freq: float | None,
    freq_a: float | None,
    freq_b: float | None,
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Compare side A of RUNS with side B, metric by metric, and say where they tie.

    Where it is undecided which is better, the measurement that would tell most is named.
    """
    from ppw.comparison import compare
    from ppw.report.comparison_page import comparison_page

    options |= {"freq_a": freq_a or freq, "freq_b": freq_b or freq}
    with caveats_in_result():
        result = compare(read(runs, mapping), **options)
        emit(result, format_, output, comparison_page)
