"""`ppw trace generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ppw.cli.output import say
from ppw.errors import PpwError


@click.command(
    name="generate",
    short_help="Make a trace of a fitted model, as long as wanted.",
    epilog="Example: ppw trace generate disk.model.json --count 1000000 -o made.parquet",
)
@click.argument("model", type=click.Path())
@click.option(
    "--output", "-o", required=True, metavar="FILE", help="Ends in .parquet, .csv or .csv.gz."
)
@click.option("--count", type=click.IntRange(1), help="Of requests. Default: as the original.")
@click.option(
    "--duration", "duration_s", type=click.FloatRange(0, min_open=True), help="Length (s) instead."
)
@click.option(
    "--mode",
    type=click.Choice(["walk", "round_robin"]),
    default="walk",
    show_default=True,
    help="Chains of states, or the published threads with fixed shares.",
)
@click.option(
    "--arrivals",
    type=click.Choice(["cascade", "windows", "laws"]),
    default="cascade",
    show_default=True,
    help="Bursts drawn anew; window counts as they were; or inter-arrival laws and nothing else.",
)
@click.option(
    "--time-scale",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Factor of all times: 2 is twice as slow. Open loop.",
)
@click.option(
    "--outstanding", type=click.IntRange(1), help="Closed loop instead: no inter-arrival times."
)
@click.option("--no-locality", is_flag=True, help="Uniform addresses, as an ablation.")
@click.option("--seed", type=int, default=0, show_default=True)
def command(model: str, output: str, no_locality: bool, **options: Any) -> None:
    """Make a trace of MODEL, which ppw trace fit wrote with --format json."""
    from measurements.traces import write_trace
    from ppw.traces.generation import generate_trace
    from ppw.traces.model import TraceModel

    fitted = TraceModel.from_json(text_of(model))
    generated = generate_trace(fitted, locality=not no_locality, **options)
    for finding in generated.findings:
        say(f"caveat: {finding}")
    write_trace(generated.batches(), output)


def text_of(model: str) -> str:
    """Text of a model's file. Raises `PpwError` where it cannot be read."""
    try:
        return Path(model).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not text"
        raise PpwError(f"{model}: {reason}: give what ppw trace fit --format json wrote") from error
