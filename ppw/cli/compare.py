"""`ppw compare`: two sides of a runs table, or the candidates of a procurement scenario."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from ppw.cli.decisions import cost_options, draw_options
from ppw.cli.numbers import Price
from ppw.cli.options import level_option, output_options, runs_options, selection_option
from ppw.cli.output import caveats_in_result, emit, write
from ppw.cli.quantities import Frequency
from ppw.cli.runs_table import read

# What of the options a scenario leaves open; all else stands in its file.
_OF_SCENARIOS = ("runs", "draws", "seed", "level", "format_", "output")


def _show_schema(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from ppw.procurement.schema import schema_text

        write(schema_text(), "-")
        ctx.exit()


@click.command(
    name="compare",
    short_help="Compare two hosts over the work that both did, or find which servers to buy.",
    epilog="Example: ppw compare runs.csv --a host=atom --b host=xeon --freq 2.4GHz; "
    "ppw compare scenario.toml --format html -o report.html",
)
@runs_options
@selection_option(
    "--a",
    "What tells side A, such as host=atom; several where one column does not.",
    one_value=True,
)
@selection_option("--b", "Side B.", one_value=True)
@click.option(
    "--freq", type=Frequency(), help="Frequency of both sides. Default: the highest measured."
)
@click.option("--freq-a", type=Frequency(), help="Frequency of A alone.")
@click.option("--freq-b", type=Frequency(), help="Frequency of B alone.")
@click.option(
    "--price-a",
    type=Price(positive=True),
    help="Price of one host A. Default: the column price.",
)
@click.option("--price-b", type=Price(positive=True), help="Price of one host B.")
@cost_options
@click.option(
    "--mixed-scope", is_flag=True, help="Compare watts of different scope, with a caveat."
)
@draw_options
@level_option
@output_options
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_schema,
    help="Print the JSON schema of scenario files and exit.",
)
@click.pass_context
def command(ctx: click.Context, /, runs: tuple[str, ...], **options: Any) -> None:
    """Compare side A of RUNS with side B, metric by metric, and say where they tie.

    Where it is undecided which is better, the measurement that would tell most is named.

    With one file that ends in .toml, a procurement scenario: which candidate to buy for a demand,
    its servers, racks, energy, carbon and cost over the years, and what would change the answer.
    """
    if any(name.lower().endswith(".toml") for name in runs):
        _procure(ctx, runs, **options)
    else:
        _compare(ctx, runs, **options)


def _procure(
    ctx: click.Context, files: tuple[str, ...], *, format_: str, output: str, **options: Any
) -> None:
    from ppw.procurement.procure import procure
    from ppw.report.procurement_page import procurement_page

    if len(files) > 1:
        raise click.UsageError(f"one scenario at a time, and {len(files)} files were given", ctx)
    for param in ctx.command.params:
        name = str(param.name)
        typed = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if typed and name not in _OF_SCENARIOS:
            raise click.UsageError(
                f"{param.opts[0]} is for runs tables: a scenario says all but "
                "--draws, --seed, --level, --format and --output itself",
                ctx,
            )
    with caveats_in_result():
        result = procure(files[0], **{name: options[name] for name in ("level", "draws", "seed")})
        emit(result, format_, output, procurement_page)


def _compare(
    ctx: click.Context,
    runs: tuple[str, ...],
    *,
    freq: float | None,
    freq_a: float | None,
    freq_b: float | None,
    format_: str,
    output: str,
    **options: Any,
) -> None:
    from ppw.comparison import compare
    from ppw.report.comparison_page import comparison_page

    for side in ("a", "b"):
        if not options[side]:
            raise click.UsageError(f"Missing option '--{side}'.", ctx)
    options |= {"freq_a": freq_a or freq, "freq_b": freq_b or freq}
    with caveats_in_result():
        table = read(runs, options)
        result = compare(table, **options)
        emit(result, format_, output, comparison_page)
