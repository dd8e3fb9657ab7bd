"""`ppw best`, `ppw compare`, `ppw plan` and `ppw characterise`."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

import ppw
from ppw.cli import options as opt
from ppw.cli import types
from ppw.cli.output import write


@opt.question(
    "best",
    "Find the best frequency step of every group, and how surely it is.",
    "ppw best runs.csv --objective edp --steps 1.2GHz:2.4GHz:0.1GHz; ppw best runs.csv --deadline "
    "60s --power-cap 120W",
)
@opt.all_of(
    opt.TABLE,
    opt.options("""
    --objective [energy|edp|ed2p|perf_per_watt|time|perf_per_dollar] (energy): Least energy,
        energy-delay or energy-delay² product, or time; most performance per watt or price.
    """),
    opt.steps_option(
        2,
        "Steps to choose from. Default: those measured, and those of a host in the catalogue.",
    ),
    opt.options("""
    --deadline TIME>0: Only steps at which a run surely, by --level, takes no longer: 60s.
    --power-cap POWER>0: Only steps at which a run surely draws no more: 120W.
    --idle-power POWER: Power between jobs of a host that stays on: only what is above it counts.
    --price PRICE>0: Price of one host, for perf_per_dollar. Default: the column price.
    """),
    opt.COST,
    opt.DRAWS,
    opt.LEVEL,
)
def best_command(runs: opt.Runs, **options: Any) -> ppw.BestFrequency:
    """Find the frequency step at which each group of RUNS does its work best.

    A step's probability of being the best is counted over curves drawn through the runs; beside it
    is the answer of straight lines.
    """
    return ppw.best_frequency(opt.read_table(runs, options), **options)


# `ppw compare`: two sides of a runs table, or the candidates of a procurement scenario.

# Options that a scenario leaves open; all else stands in its file.
_OF_SCENARIOS = ("runs", "draws", "seed", "level", "format_", "output")


def _show_schema(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from ppw.procurement.scenario_schema import schema_text

        write(schema_text(), "-")
        ctx.exit()


@opt.question(
    "compare",
    "Compare two hosts over the work that both did, or find which servers to buy.",
    "ppw compare runs.csv --a host=atom --b host=xeon --freq 2.4GHz; ppw compare scenario.toml "
    "--format html -o report.html",
)
@opt.all_of(
    opt.TABLE_METRIC,
    opt.selection_option(
        "--a",
        "What tells side A: host=atom; several where one column does not.",
        one_value=True,
    ),
    opt.selection_option("--b", "What tells side B.", one_value=True),
    opt.options("""
    --freq FREQUENCY: Frequency of both sides. Default: the highest measured.
    --freq-a FREQUENCY: Frequency of A alone.
    --freq-b FREQUENCY: Frequency of B alone.
    --price-a PRICE>0: Price of one host A. Default: the column price.
    --price-b PRICE>0: Price of one host B.
    """),
    opt.COST,
    opt.options("--mixed-scope: Compare power readings of different scope, with a caveat."),
    opt.DRAWS,
    opt.LEVEL,
    click.option(
        "--schema",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_schema,
        help="Print the JSON schema of scenario files and exit.",
    ),
)
@click.pass_context
def compare_command(
    ctx: click.Context, /, runs: opt.Runs, **options: Any
) -> ppw.Comparison | ppw.Procurement:
    """Compare side A of RUNS with side B, metric by metric, and say where they tie.

    Where it is undecided which is better, the measurement that would tell most is named.

    With one file that ends in .toml, a procurement scenario: which candidate to buy for a demand,
    its servers, racks, energy, carbon and cost over the years, and what would change the answer.
    """
    if any(name.lower().endswith(".toml") for name in runs):
        _refuse_beside_scenario(ctx, runs)
        return ppw.procure(runs[0], **{name: options[name] for name in ("level", "draws", "seed")})
    for side in ("a", "b"):
        if not options[side]:
            raise click.UsageError(f"Missing option '--{side}'.", ctx)
    freq = options.pop("freq")
    options |= {side: options[side] or freq for side in ("freq_a", "freq_b")}
    return ppw.compare(opt.read_table(runs, options), **options)


def _refuse_beside_scenario(ctx: click.Context, files: opt.Runs) -> None:
    """Refuse what a scenario says itself, and a second file."""
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


# `ppw plan`.

_METRIC = "perf_per_watt"


@opt.question(
    "plan",
    "Say which frequency to measure next, and how often, to be as sure as wanted.",
    "ppw plan runs.csv --freq 3.0GHz --metric perf_per_watt --within 3 --steps "
    "1.2GHz:2.4GHz:0.2GHz --run-time 10min",
)
@opt.all_of(
    opt.TABLE,
    opt.metric_option(f"{_METRIC}, and one at a time"),
    opt.options("""
    --freq FREQUENCY[,…] (required): Frequency that is asked for: 3.0GHz.
    --within PERCENT>0 (3.0): Half width of the interval that is wanted.
    """),
    opt.steps_option(
        1,
        "Steps that the host offers: a range, both ends included, or a list with commas. Default: "
        "the host's in the catalogue.",
    ),
    opt.options("""
    --not-at-target: Never advise to measure at --freq itself: for a machine that is not there.
    --run-time TIME>0 in minutes as run_time_minutes: Time of a run, setting up included: 10min.
    --budget TIME>0 in minutes as budget_minutes: Time not to go beyond: 4h; with --run-time.
    --repeats N[,…] (1,2,3,5): Numbers of runs to choose from.
    --target-runs N>=1 (1): Ask for the mean of so many runs at --freq.
    """),
    opt.VOLTAGES,
    opt.POOL,
    opt.KEEP_ALL,
    opt.SEED,
    opt.LEVEL,
)
def plan_command(
    runs: opt.Runs, freq: list[float], metric: list[str] | None, not_at_target: bool, **options: Any
) -> ppw.Plan:
    """Say for every group of RUNS which frequency to measure next, and how many times.

    One metric at a time, perf_per_watt by default.
    """
    metrics = metric or [_METRIC]
    for what, given in (("--freq", freq), ("--metric", metrics)):
        if len(given) != 1:
            raise click.UsageError(f"{what}: a plan is for one, and {len(given)} were given")
    at_target, table = not not_at_target, opt.read_table(runs, options)
    return ppw.plan(table, freq=freq[0], metric=metrics[0], at_target=at_target, **options)


# `ppw characterise`.


def _read_prices(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, float]:
    prices = opt.pairs("HOST=PRICE, such as atom=450")(ctx, param, texts)
    price = types.kind("PRICE>0")
    return {host: price.convert(text, param, ctx) for host, text in prices.items()}


@opt.question(
    "characterise",
    "Set hosts side by side: times, ratios, perf per watt and price, CPI, memory.",
    "ppw characterise runs.csv --reference atom --price atom=450 --price xeon=6000",
)
@opt.all_of(
    opt.TABLE,
    opt.options("--reference HOST: Host that ratios are to. Default: the slowest one."),
    opt.pairs_option(
        "--price",
        "prices",
        shape="HOST=PRICE",
        meaning="Price of a host. Default: the column price.",
        callback=_read_prices,
    ),
    opt.options("""
    --freq FREQUENCY: Frequency of all hosts. Default: the highest measured.
    --mixed-scope: Compare power readings of different scope.
    """),
)
def characterise_command(runs: opt.Runs, **options: Any) -> ppw.Characterisation:
    """Set the hosts of RUNS side by side over the workloads that they ran.

    What was measured, the speed-up, power and cost ratios to one host, performance per watt and
    per price, and what processor and memory did; a cell that was not measured stays empty.
    """
    return ppw.characterise(opt.read_table(runs, options), **options)
