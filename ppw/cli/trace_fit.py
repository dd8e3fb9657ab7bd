"""`ppw trace fit`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.choices import OneOf
from ppw.cli.numbers import Whole
from ppw.cli.options import output_options, seed_option
from ppw.cli.output import caveats_in_result, emit, say
from ppw.cli.quantities import Bytes, Seconds
from ppw.cli.trace_sources import DeviceModel, read, trace_options


@click.command(
    name="fit",
    short_help="Learn a hierarchical state diagram from a block trace.",
    epilog="Example: ppw trace fit disk.vscsi --levels 4 --format json -o disk.model.json",
)
@click.argument("trace")
@trace_options
@click.option("--levels", type=Whole(1, 12), default=4, show_default=True, help="Of the diagram.")
@click.option(
    "--flat", is_flag=True, help="One level of as many states; says what that does to IOPS."
)
@click.option(
    "--choose", is_flag=True, help="Compare 1 to --levels levels instead, and choose one."
)
@click.option(
    "--space", "space_bytes", type=Bytes(), help="Provisioned space. Default: what was touched."
)
@click.option(
    "--window",
    "window_s",
    type=Seconds(positive=True),
    default="30min",
    show_default=True,
    help="Activity windows: load keeps its place in the day.",
)
@click.option(
    "--laws",
    metavar="NAME",
    default="likelihood",
    show_default=True,
    help="Of inter-arrival times: likelihood, published, or one law for all.",
)
@click.option("--reuse/--no-reuse", default=True, show_default=True, help="Learn reuse.")
@click.option(
    "--device",
    type=DeviceModel(),
    default="disk",
    show_default=True,
    help="Model that --choose and --flat take IOPS from: disk or ssd, with parameters if need be.",
)
@click.option(
    "--drift", is_flag=True, help="Fit the first half instead, and hold it against the second."
)
@seed_option
@click.option(
    "--engine",
    type=OneOf(["memory", "duckdb", "spark"]),
    default="memory",
    show_default=True,
    help="What counts; an engine takes ppw's own Parquet, a folder of it too, of any size.",
)
@click.option("--memory-limit", metavar="SIZE", help="Of the engine, such as 4GiB.")
@click.option("--temporary", metavar="FOLDER", help="For what does not fit in its memory.")
@output_options
def command(
    trace: str,
    trace_format: str | None,
    mapping: dict[str, str],
    levels: int,
    flat: bool,
    choose: bool,
    drift: bool,
    device: str,
    seed: int,
    engine: str,
    memory_limit: str | None,
    temporary: str | None,
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Learn a hierarchical state diagram from the block trace TRACE.

    With --format json the output is the model, which ppw trace generate takes.
    """
    from ppw.report.trace_page import drift_page, levels_page, trace_page
    from ppw.traces.drift import half_drift
    from ppw.traces.engine import fit_trace_in
    from ppw.traces.fit import fit_trace
    from ppw.traces.level_choice import choose_level

    if drift and (choose or flat):
        raise click.UsageError("--drift fits one model: leave --choose and --flat out")
    if engine != "memory" and (drift or choose or flat or trace_format or mapping):
        raise click.UsageError(
            "--engine fits one model to ppw's own Parquet: make it by ppw trace convert, and leave "
            "--drift, --choose, --flat, --trace-format and --map out"
        )
    with caveats_in_result():
        if engine != "memory":
            model = fit_trace_in(
                trace,
                engine=engine,
                memory_limit=memory_limit,
                temporary=temporary,
                levels=levels,
                **options,
            )
            emit(model, format_, output, trace_page)
            return
        source = read(trace, trace_format, mapping)
        say(f"{trace}: read as {source.described}")
        if drift:
            result = half_drift(source, levels=levels, seed=seed, **options)
            emit(result, format_, output, drift_page)
        elif choose or flat:
            choice = choose_level(
                source, levels=levels, flat=flat, device=device, seed=seed, **options
            )
            emit(choice, format_, output, levels_page)
        else:
            emit(fit_trace(source, levels=levels, **options), format_, output, trace_page)
