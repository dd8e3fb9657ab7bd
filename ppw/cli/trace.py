"""`ppw trace`: storage workload models from block traces."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ppw.cli import NamedCommands
from ppw.cli.options import (
    DeviceModel,
    Respelt,
    is_model,
    model_of,
    output_options,
    read_requests,
    seed_option,
    trace_options,
    write_requests,
)
from ppw.cli.output import caveats_in_result, emit, refuse_an_input, say
from ppw.cli.types import (
    Bytes,
    Counts,
    Names,
    OneOf,
    Percent,
    Positive,
    Price,
    Seconds,
    Watts,
    Whole,
)
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ppw.storage.trace_source import Batches


@click.group(
    name="trace",
    cls=NamedCommands,
    short_help="Learn a storage workload from a block trace and generate it again.",
    epilog="Example: ppw trace fit disk.csv --format json -o disk.model.json",
)
def trace_command() -> None:
    """Storage workloads as models: fitted to block traces, regenerated, shown."""


# `ppw trace convert`.


_FROM_MODELS = ("fio-job", "diskspd")


@trace_command.command(
    name="convert",
    short_help="Write a trace for other tools, or a model for a load generator.",
    epilog="Example: ppw trace convert disk.model.json --target /data/scratch -o load.fio",
)
@click.argument("source")
@trace_options
@click.option(
    "--to",
    type=OneOf(["parquet", "csv", "iolog", "fio-job", "diskspd"]),
    help="Kind of file. Default: by the output's ending.",
)
@click.option("-o", "--output", required=True, metavar="FILE", help="File to write.")
@click.option("--target", metavar="FILE", help="Scratch file that the load goes to.")
@click.option(
    "--size",
    "size_bytes",
    type=Bytes(),
    help="Length of the target: a model's space is shrunk to it, a trace's places are taken modulo "
    "it.",
)
@click.option(
    "--jobs",
    "by",
    type=OneOf(["stream", "transition"]),
    help="Of a model: one a stream, or a transition. Default: stream for fio, transition for "
    "DiskSpd, which takes no other.",
)
@click.option(
    "--duration",
    "duration_s",
    type=Seconds(positive=True),
    help="Of a load. Default: that of the trace that the model is of.",
)
@click.option("--outstanding", type=Whole(1), help="Closed loop: requests in flight.")
@click.option(
    "--allow-device", is_flag=True, help="Let the target be a device: what is on it is lost."
)
def trace_convert_command(
    source: str,
    trace_format: str | None,
    mapping: dict[str, str],
    to: str | None,
    output: str,
    **options: Any,
) -> None:
    """Write SOURCE as a file for another tool.

    A trace becomes Parquet, CSV or fio's iolog; a model (of ppw trace fit) a job file of fio or a
    profile of DiskSpd. What the file cannot say is told.
    """
    refuse_an_input(output)
    kind = to or _by_ending(output)
    if kind in _FROM_MODELS and not Path(source).exists():
        raise PpwError(f"{source}: there is no such file")
    if (kind in _FROM_MODELS) != is_model(source):
        needed = "a model, made by ppw trace fit" if kind in _FROM_MODELS else "a trace"
        raise PpwError(f"{source}: {kind} is written from {needed}")
    if kind in ("parquet", "csv"):
        if _by_ending(output) != kind:
            raise click.UsageError(f"--to {kind}: end the name in .{kind}; {output} says otherwise")
        write_requests(read_requests(source, trace_format, mapping), output)
        return
    if not options["target"]:
        raise click.UsageError("Missing option '--target': a load needs a scratch file.")
    if kind == "iolog":
        said = _iolog(source, trace_format, mapping, output, options)
    else:
        said = _jobs(source, kind, output, options)
    for text in said:
        say(f"caveat: {text}")


def _by_ending(output: str) -> str:
    ending = Path(output.lower().removesuffix(".gz")).suffix
    known = {".parquet": "parquet", ".csv": "csv", ".fio": "fio-job", ".xml": "diskspd"}
    known |= {".iolog": "iolog", ".log": "iolog"}
    if ending not in known:
        raise click.UsageError(f"{output}: its ending says no format; give --to")
    return known[ending]


def _iolog(
    source: str,
    trace_format: str | None,
    mapping: dict[str, str],
    output: str,
    options: dict[str, Any],
) -> Iterable[str]:
    from measurements.loads.fio_replay import write_iolog

    size = options["size_bytes"]
    written = write_iolog(
        read_requests(source, trace_format, mapping).batches(),
        output,
        target=options["target"],
        size_bytes=None if size is None else int(size),
        allow_device=options["allow_device"],
    )
    if written.folded:
        share = written.folded / written.requests
        yield f"{share:.1%} of the requests lay beyond the target and were taken modulo its length"
    yield f"the target has to be {written.extent_bytes} bytes long before fio replays on it"


def _jobs(source: str, kind: str, output: str, options: dict[str, Any]) -> Iterable[str]:
    from measurements.loads.diskspd import write_diskspd
    from measurements.loads.fio_jobs import write_fio_jobs
    from ppw.storage.load_jobs import jobs_of

    model = model_of(source)
    by = options["by"] or ("transition" if kind == "diskspd" else "stream")
    jobs, notes = jobs_of(model, by=by, space_bytes=options["size_bytes"])
    write = write_diskspd if kind == "diskspd" else write_fio_jobs
    said = write(
        jobs,
        output,
        target=options["target"],
        duration_s=options["duration_s"] or model.survey.duration_s,
        outstanding=options["outstanding"],
        allow_device=options["allow_device"],
    )
    return (*notes, *said)


# `ppw trace fit`.


@trace_command.command(
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
def trace_fit_command(
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
    from ppw.fleet.trace_fit import fit_trace_in
    from ppw.storage.drift import half_drift
    from ppw.storage.fit import choose_level, fit_trace
    from ppw.storage.report import drift_page, levels_page, trace_page

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
        source = read_requests(trace, trace_format, mapping)
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


# `ppw trace generate`.


@trace_command.command(
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
def trace_generate_command(model: str, output: str, no_locality: bool, **options: Any) -> None:
    """Make a trace of MODEL, which ppw trace fit wrote with --format json."""
    from ppw.storage.generate import generate_trace

    if options["count"] is not None and options["duration_s"] is not None:
        raise click.UsageError("--count and --duration both say how long: give one of them")
    generated = generate_trace(model_of(model), locality=not no_locality, **options)
    for finding in generated.findings:
        say(f"caveat: {finding}")
    write_requests(generated, output)


# `ppw trace record`.


_EPILOG = "Example: ppw trace record /dev/nvme0n1 -o sort.parquet -- sort --parallel=4 big.txt"


@trace_command.command(
    name="record",
    short_help="Record the requests of a command on a block device.",
    epilog=_EPILOG,
)
@click.argument("device")
@click.argument("program", nargs=-1, required=True, metavar="-- COMMAND…")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Trace to write, .parquet or .csv; best on another device.",
)
@click.option(
    "--raw",
    type=click.Path(path_type=Path),
    metavar="NAME",
    help="Keep blktrace's own files too, NAME.blktrace.CPU, for blkparse, btt and fio.",
)
@click.option(
    "--method",
    type=OneOf(["auto", "blktrace", "blk tracer"]),
    default="auto",
    show_default=True,
    help="auto takes blktrace where the kernel lets it.",
)
def trace_record_command(**given: Any) -> int:
    """Run COMMAND and record every request that reaches DEVICE meanwhile, with its latency.

    Requests of other programs are recorded too; the trace tells threads apart. What is set in the
    kernel is put back on every way out. Needs root.
    """
    from measurements.traces.record import record

    done = record(
        given["device"],
        given["program"],
        given["output"],
        raw=given["raw"],
        method=given["method"],
    )
    for caveat in done.caveats:
        say(f"caveat: {caveat}")
    rate = done.requests / done.elapsed_s
    click.echo(
        f"{done.path}: {done.requests} requests in {done.elapsed_s:.3g} s, {rate:.4g} a second, "
        f"by {done.method}"
    )
    return 1 if done.exit_code or done.lost else 0


# `ppw trace replay`.


@trace_command.command(
    name="replay",
    short_help="Play a trace back with fio, and say whose error is whose.",
    epilog="Example: ppw trace replay made.parquet --target /data/scratch --size 8GiB",
)
@click.argument("trace")
@trace_options
@click.option(
    "--target",
    required=True,
    metavar="FILE",
    help="Scratch file, made as long as need be and written over.",
)
@click.option(
    "--size",
    "size_bytes",
    type=Bytes(),
    help="Length of the target; places beyond it are taken modulo the length. Default: as long as "
    "the trace needs.",
)
@click.option("--original", metavar="TRACE", help="What TRACE was generated after.")
@click.option("--count", type=Whole(2), help="Requests at most.")
@click.option(
    "--time-scale",
    type=Positive(),
    default=1.0,
    show_default=True,
    help="Factor of all times: 2 is twice as slow.",
)
@click.option(
    "--depth",
    type=Whole(1),
    default=256,
    show_default=True,
    help="Requests in flight at most.",
)
@click.option("--ioengine", metavar="NAME", default="libaio", show_default=True, help="Of fio.")
@click.option("--direct/--buffered", default=True, show_default=True, help="Past the page cache.")
@click.option(
    "--device",
    type=DeviceModel(),
    help="A model to hold against it, as ssd or disk,average_seek=9ms.",
)
@click.option(
    "--allow-device", is_flag=True, help="Let the target be a device: what is on it is lost."
)
@output_options
def trace_replay_command(
    trace: str,
    trace_format: str | None,
    mapping: dict[str, str],
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Replay TRACE on a scratch file, after a calibration run that touches no device."""
    from ppw.storage.replay import replay_trace
    from ppw.storage.report import trace_replay_page

    with caveats_in_result():
        result = replay_trace(read_requests(trace, trace_format, mapping), **options)
        emit(result, format_, output, trace_replay_page)


# `ppw trace show`.


@trace_command.command(
    name="show",
    short_help="Show a fitted model: its states, laws and load.",
    epilog="Example: ppw trace show disk.model.json --format html -o disk.html",
)
@click.argument("model", type=click.Path())
@click.option("--original", metavar="TRACE", help="Draw its places beside those generated (html).")
@trace_options
@click.option(
    "--scales", is_flag=True, help="What a device completes when times are scaled, instead."
)
@click.option(
    "--device",
    type=DeviceModel(),
    default="disk",
    show_default=True,
    help="Model for --scales: disk or ssd, with parameters if need be.",
)
@output_options
def trace_show_command(
    model: str,
    original: str | None,
    trace_format: str | None,
    mapping: dict[str, str],
    scales: bool,
    device: str,
    format_: str,
    output: str,
) -> None:
    """Show MODEL, which ppw trace fit wrote with --format json.

    csv has its transitions, html the state diagram, the places and times of requests, their
    inter-arrival times and the load.
    """
    from ppw.storage.drift import time_scales
    from ppw.storage.report import scales_page, trace_page

    with caveats_in_result():
        fitted = model_of(model)
        if scales:
            emit(time_scales(fitted, device=device), format_, output, scales_page)
            return
        source = None if original is None else read_requests(original, trace_format, mapping)
        emit(fitted, format_, output, partial(trace_page, original=source))


# `ppw trace validate`.


@trace_command.command(
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
def trace_validate_command(
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
    from ppw.storage.fidelity import validate_trace
    from ppw.storage.report import trace_fidelity_page

    for name in ("features_tolerance", "performance_tolerance", "hit_ratio_tolerance"):
        options[name] /= 100
    with caveats_in_result():
        result = validate_trace(
            read_requests(original, trace_format, mapping), list(synthetic), **options
        )
        emit(result, format_, output, trace_fidelity_page)
    if result.passed:
        return 0
    say(f"check failed: {result.verdict()[0]}")
    return 3


# `ppw trace whatif`.


@trace_command.command(
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
def trace_whatif_command(
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
    from ppw.storage.report import trace_whatif_page
    from ppw.storage.what_if import trace_what_if

    with caveats_in_result():
        traces: Any
        # No trace is JSON.
        if is_model(source) or source.lower().endswith(".json"):
            traces = _generated(source, options["repeats"], options["seed"])
        else:
            traces = read_requests(source, trace_format, mapping)
        if no_locality:
            traces = _without_locality(traces, options["seed"])
        result = trace_what_if(traces, block_bytes=int(block_bytes), **options)
        emit(result, format_, output, trace_whatif_page)


def _generated(path: str, repeats: int, seed: int) -> list[Batches]:
    from ppw.storage.generate import generate_trace

    model = model_of(path)
    return [generate_trace(model, seed=seed + k) for k in range(repeats)]


def _without_locality(traces: Any, seed: int) -> Any:
    from ppw.storage.trace_source import WithoutLocality, survey

    if isinstance(traces, list):
        return [WithoutLocality(one, survey(one).survey, seed + k) for k, one in enumerate(traces)]
    return WithoutLocality(traces, survey(traces).survey, seed)
