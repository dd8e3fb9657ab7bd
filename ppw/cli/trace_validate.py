"""`ppw trace validate`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.numbers import Percent
from ppw.cli.options import output_options, seed_option
from ppw.cli.output import caveats_in_result, emit, say
from ppw.cli.trace_sources import DeviceModel, read, trace_options


@click.command(
    name="validate",
    short_help="Hold a synthetic trace against its original.",
    epilog="Example: ppw trace validate disk.csv made.parquet --format html -o f.html",
)
@click.argument("original")
@click.argument("synthetic", nargs=-1, required=True)
@trace_options
@click.option(
    "--device",
    type=DeviceModel(),
    default="ssd",
    show_default=True,
    help="Model that latency comes from where the traces do not record it: ssd or disk, with "
    "parameters if need be, as disk,average_seek=9ms.",
)
@click.option(
    "--features-tolerance",
    type=Percent(positive=True),
    default=5.0,
    show_default=True,
    help="Of shares, sizes and rates; a share may be off by half a point in any case.",
)
@click.option(
    "--performance-tolerance",
    type=Percent(positive=True),
    default=6.7,
    show_default=True,
    help="Of the worst figure of performance; their mean has 3.4.",
)
@click.option(
    "--hit-ratio-tolerance",
    type=Percent(positive=True),
    default=3.0,
    show_default=True,
    metavar="POINTS",
    help="Of LRU hits at 1, 5 and 20 % of the footprint.",
)
@click.option(
    "--no-locality",
    is_flag=True,
    help="Show beside it what becomes of the original when its places are uniform.",
)
@seed_option
@output_options
def command(
    original: str,
    synthetic: tuple[str, ...],
    trace_format: str | None,
    mapping: dict[str, str],
    format_: str,
    output: str,
    **options: Any,
) -> int:
    """Hold SYNTHETIC, made by a model of ORIGINAL, against it; exit with 3 where it is off.

    Several SYNTHETIC traces are repeats with other seeds: their mean is judged, and their spread.
    """
    from ppw.report.trace_fidelity_page import trace_fidelity_page
    from ppw.traces.fidelity import validate_trace

    for name in ("features_tolerance", "performance_tolerance", "hit_ratio_tolerance"):
        options[name] /= 100
    with caveats_in_result():
        result = validate_trace(read(original, trace_format, mapping), list(synthetic), **options)
        emit(result, format_, output, trace_fidelity_page)
    if result.passed:
        return 0
    say(f"check failed: {result.verdict()[0]}")
    return 3
