"""`ppw trace whatif`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ppw.cli.choices import Names, OneOf
from ppw.cli.numbers import Counts, Price, Whole
from ppw.cli.options import Respelt, output_options, seed_option
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.quantities import Bytes, Watts
from ppw.cli.trace_sources import DeviceModel, is_model, model_of, read, trace_options

if TYPE_CHECKING:
    from ppw.traces.source import Batches


@click.command(
    name="whatif",
    short_help="What SSD caches or a defragmentation would do for a load.",
    epilog="Example: ppw trace whatif disk.csv --cache 64GiB --caches 1,2,4 --policy lru,clock",
)
@click.argument("source")
@trace_options
@click.option(
    "--cache",
    "cache_bytes",
    type=Bytes(),
    help="Size of one cache drive. Default: a tenth of what the trace touches.",
)
@click.option(
    "--caches", type=Counts(), default="1,2,4", show_default=True, help="Numbers of drives."
)
@click.option(
    "--policy",
    "policies",
    type=Names(("lru", "fifo", "clock", "lfu")),
    default="lru",
    show_default=True,
    help="What a full cache evicts: lru, fifo, clock or lfu.",
)
@click.option(
    "--writes",
    type=OneOf(["through", "around", "back"]),
    default="through",
    show_default=True,
    help="To the storage at once and into the cache; past the cache; or to the cache, and to the "
    "storage when evicted.",
)
@click.option(
    "--block", "block_bytes", type=Bytes(), default="4KiB", show_default=True, help="Of the caches."
)
@click.option(
    "--defragment", is_flag=True, help="Every file in one piece; the trace has to name files."
)
@click.option(
    "--device",
    type=DeviceModel(),
    default="disk",
    show_default=True,
    help="Storage behind: disk or ssd, with parameters if need be, as disk,average_seek=9ms.",
)
@click.option(
    "--cache-device", type=DeviceModel(), default="ssd", show_default=True, help="A cache drive."
)
@click.option("--cache-price", type=Price(), help="Of a cache drive.")
@click.option("--cache-power", "cache_power_w", type=Watts(), help="Of a cache drive.")
@click.option(
    "--repeats",
    cls=Respelt,
    former="--runs",
    type=Whole(1),
    default=5,
    show_default=True,
    help="Of a trace, with other platter angles; of a model, with other seeds.",
)
@click.option(
    "--no-locality",
    is_flag=True,
    help="Take the locality away first, which has to take a cache's effect away.",
)
@seed_option
@output_options
def command(
    source: str,
    trace_format: str | None,
    mapping: dict[str, str],
    no_locality: bool,
    block_bytes: float,
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Say what caches of several sizes and policies are worth for SOURCE, a trace or a model."""
    from ppw.report.trace_whatif_page import trace_whatif_page
    from ppw.traces.whatif import trace_what_if

    with caveats_in_result():
        traces: Any
        # No trace is JSON.
        if is_model(source) or source.lower().endswith(".json"):
            traces = _generated(source, options["repeats"], options["seed"])
        else:
            traces = read(source, trace_format, mapping)
        if no_locality:
            traces = _without_locality(traces, options["seed"])
        result = trace_what_if(traces, block_bytes=int(block_bytes), **options)
        emit(result, format_, output, trace_whatif_page)


def _generated(path: str, repeats: int, seed: int) -> list[Batches]:
    from ppw.traces.generation import generate_trace

    model = model_of(path)
    return [generate_trace(model, seed=seed + k) for k in range(repeats)]


def _without_locality(traces: Any, seed: int) -> Any:
    from ppw.traces.source import WithoutLocality, survey

    if isinstance(traces, list):
        return [WithoutLocality(one, survey(one).survey, seed + k) for k, one in enumerate(traces)]
    return WithoutLocality(traces, survey(traces).survey, seed)
