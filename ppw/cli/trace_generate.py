"""`ppw trace generate`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.choices import OneOf
from ppw.cli.numbers import Positive, Whole
from ppw.cli.options import seed_option
from ppw.cli.output import say
from ppw.cli.quantities import Seconds
from ppw.cli.trace_sources import model_of
from ppw.cli.trace_writing import write_requests


@click.command(
    name="generate",
    short_help="Make a trace of a fitted model, as long as wanted.",
    epilog="Example: ppw trace generate disk.model.json --count 1000000 -o made.parquet",
)
@click.argument("model", type=click.Path())
@click.option(
    "-o", "--output", required=True, metavar="FILE", help="Ends in .parquet, .csv or .csv.gz."
)
@click.option("--count", type=Whole(1), help="Of requests. Default: as the original.")
@click.option("--duration", "duration_s", type=Seconds(positive=True), help="Length instead.")
@click.option(
    "--mode",
    type=OneOf(["walk", "round_robin"]),
    default="walk",
    show_default=True,
    help="Chains of states, or the published threads with fixed shares.",
)
@click.option(
    "--arrivals",
    type=OneOf(["cascade", "windows", "laws"]),
    default="cascade",
    show_default=True,
    help="Bursts drawn anew; window counts as they were; or inter-arrival laws and nothing else.",
)
@click.option(
    "--time-scale",
    type=Positive(),
    default=1.0,
    show_default=True,
    help="Factor of all times: 2 is twice as slow. Open loop.",
)
@click.option("--outstanding", type=Whole(1), help="Closed loop instead: no inter-arrival times.")
@click.option("--no-locality", is_flag=True, help="Uniform addresses, as an ablation.")
@seed_option
def command(model: str, output: str, no_locality: bool, **options: Any) -> None:
    """Make a trace of MODEL, which ppw trace fit wrote with --format json."""
    from ppw.traces.generation import generate_trace

    if options["count"] is not None and options["duration_s"] is not None:
        raise click.UsageError("--count and --duration both say how long: give one of them")
    generated = generate_trace(model_of(model), locality=not no_locality, **options)
    for finding in generated.findings:
        say(f"caveat: {finding}")
    write_requests(generated, output)
