"""`ppw best`."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from ppw.cli.options import (
    Steps,
    cost_options,
    draw_options,
    keep_all_option,
    level_option,
    metric_option,
    output_options,
    pairs,
    pool_option,
    read_table,
    runs_options,
    seed_option,
    selection_option,
    table_options,
    table_options_of,
    vf_option,
)
from ppw.cli.output import caveats_in_result, emit, write
from ppw.cli.types import (
    Counts,
    Duration,
    Frequencies,
    Frequency,
    OneOf,
    Percent,
    Price,
    Seconds,
    Watts,
    Whole,
)

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
def best_command(
    runs: tuple[str, ...],
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Find the frequency step at which each group of RUNS does its work best.

    A step's probability of being the best is counted over curves drawn through the runs; beside it
    is the answer of straight lines.
    """
    from ppw.decision.best import best_frequency

    with caveats_in_result():
        table = read_table(runs, options)
        result = best_frequency(table, **options)
        emit(result, format_, output)


# `ppw compare`: two sides of a runs table, or the candidates of a procurement scenario.


# What of the options a scenario leaves open; all else stands in its file.
_OF_SCENARIOS = ("runs", "draws", "seed", "level", "format_", "output")


def _show_schema(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from ppw.procurement.scenario_schema import schema_text

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
def compare_command(ctx: click.Context, /, runs: tuple[str, ...], **options: Any) -> None:
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
    from ppw.procurement.report import procurement_page

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
    from ppw.decision.compare import compare

    for side in ("a", "b"):
        if not options[side]:
            raise click.UsageError(f"Missing option '--{side}'.", ctx)
    options |= {"freq_a": freq_a or freq, "freq_b": freq_b or freq}
    with caveats_in_result():
        table = read_table(runs, options)
        result = compare(table, **options)
        emit(result, format_, output)


# `ppw plan`.


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
def plan_command(
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
    from ppw.decision.plan import plan

    for what, given in (("--freq", freq), ("--metric", metric or [_METRIC])):
        if len(given) != 1:
            raise click.UsageError(f"{what}: a plan is for one, and {len(given)} were given")
    with caveats_in_result():
        table = read_table(runs, options)
        result = plan(
            table,
            freq=freq[0],
            metric=(metric or [_METRIC])[0],
            at_target=not not_at_target,
            **options,
        )
        emit(result, format_, output)


# `ppw characterise`.


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
def characterise_command(
    runs: tuple[str, ...],
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Set the hosts of RUNS side by side over the workloads that they ran.

    What was measured, the speed-up, power and cost ratios to one host, performance per watt and
    per price, and what processor and memory did; a cell that was not measured stays empty.
    """
    from ppw.decision.characterise import characterise

    with caveats_in_result():
        table = read_table(runs, options)
        result = characterise(table, **options)
        emit(result, format_, output)
