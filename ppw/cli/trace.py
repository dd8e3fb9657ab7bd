"""`ppw trace`: storage workload models from block traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import click

import ppw
from measurements import traces
from measurements.errors import DAMAGE
from ppw.cli import NamedCommands, options as opt, output as out
from ppw.results.text import shown, text_table


@click.group(
    name="trace",
    cls=NamedCommands,
    short_help="Learn a storage workload from a block trace and generate it again.",
    epilog="Example: ppw trace fit disk.csv --format json -o disk.model.json",
)
def trace_command() -> None:
    """Fit models of storage workloads to block traces, and generate and replay traces from them."""


# Options of several commands.
TRACE = opt.all_of(
    opt.options("--trace-format FORMAT: Format of the trace. Default: recognised by its content."),
    opt.map_option("Map a header of a CSV or Parquet file to a column of ppw", "time_ms=t"),
)
SCALE = opt.options("""
--size SIZE as size_bytes: Scale the address space down to this length. Default: its own length.
--time-scale NUMBER>0 (1.0): Factor for all times, in an open loop: 2 is half the speed.
--streams N>=1 (1): Number of copies of the load, each with streams of its own, at the same time.
""")
MODEL = click.argument("model", type=click.Path())
ALLOW_DEVICE = opt.options(
    "--allow-device: Allow a block device as target. The load overwrites all its data."
)


def device_option(meaning: str, default: str = "") -> opt.Decorator:
    """Make --device, which takes a device model; its help is ``meaning``."""
    shown_default = f" ({default})" if default else ""
    return opt.options(f"--device DEVICE{shown_default}: {meaning}")


# Traces and models that a command names.
_FIT = "make one with: ppw trace fit TRACE --format json -o MODEL"


def read_requests(path: str, given: opt.Given) -> traces.Trace:
    """Open a block trace, and take --trace-format and --map out of the options given."""
    trace_format, mapping = given.pop("trace_format"), given.pop("mapping")
    if trace_format is None and is_model(path):
        raise ppw.PpwError(
            f"{path}: is a model, not a trace: make a trace with ppw trace generate {path} -o TRACE"
        )
    return traces.read_trace(path, format=trace_format, mapping=mapping or None)


def is_model(path: str) -> bool:
    """Tell whether a file holds a fitted model (JSON); False for what is no file."""
    if not Path(path).is_file():
        # blktrace's files go by a base name that is no file.
        return False
    with Path(path).open("rb") as file:
        return file.read(4096).lstrip().startswith(b"{")


def read_model(path: str) -> ppw.TraceModel:
    """Read a fitted model. Raises `PpwError` where there is none, with how to make one."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ppw.PpwError(f"{path}: {error.strerror or error}: {_FIT}") from error
    except UnicodeDecodeError as error:
        raise ppw.PpwError(f"{path} is no model: {_FIT}") from error
    if not text.lstrip().startswith("{"):
        raise ppw.PpwError(f"{path} is no model: {_FIT}")
    try:
        return ppw.TraceModel.from_json(text)
    except ppw.PpwError as error:
        reason = error.__cause__ if isinstance(error.__cause__, JSONDecodeError) else error
        raise ppw.PpwError(f"{path} is no model: {reason}; {_FIT}") from error


@contextmanager
def refuse_damage(path: str) -> Iterator[None]:
    """Make a `PpwError` of whatever the use of a damaged model leads to."""
    try:
        yield
    except ppw.PpwError:
        raise
    except DAMAGE as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ppw.PpwError(f"{path} is a damaged model ({reason}): {_FIT}") from error


def write_requests(trace: traces.trace_files.NamedRequests, output: str) -> None:
    """Write requests as Parquet or CSV, by the output's ending, and say how many there were."""
    out.refuse_input_as_output(output)
    requests, last_s = traces.write_trace(trace, output)
    # In a closed loop they have no times of their own.
    within = f" in {shown(last_s, 's')}" if last_s == last_s else ""
    out.say(f"{requests} requests{within} written to {output}")


# `ppw trace convert`.
# A share of the requests below this is not shown by --check.
_LEAST_SHOWN = 0.005

_KINDS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".oraclegeneral": "oracle-general",
    ".fio": "fio-job",
    ".xml": "diskspd",
    ".iolog": "iolog",
    ".log": "iolog",
}
_TRACES = ("parquet", "csv", "oracle-general")


@opt.command(
    "convert",
    "Write a trace for other tools, or a model for a load generator.",
    "ppw trace convert disk.model.json --target /data/scratch -o load.fio",
    click.argument("source"),
    TRACE,
    opt.options("""
    --to [parquet|csv|oracle-general|iolog|fio-job|diskspd]: Kind of file to write. Default: by the
        ending of the output.
    -o, --output FILE (required): File to write.
    --target FILE: Scratch file for the load.
    --size SIZE as size_bytes: Length of the target. A longer address space is scaled down to it.
    --jobs [stream|transition] as by: Jobs of a model: one per stream, or one per transition.
        Default: stream for fio. DiskSpd takes only transition.
    --duration TIME>0 as duration_s: Length of the load. Default: the length of the trace to which
        the model was fitted.
    --outstanding N>=1: Number of requests in flight, in a closed loop.
    --check: Let fio issue the requests of the job file, without a device, and compare their shares
        with the model.
    """),
    ALLOW_DEVICE,
    group=trace_command,
)
def trace_convert_command(source: str, to: str | None, output: str, **options: Any) -> None:
    """Convert SOURCE, a trace or a model, to a file for another tool.

    A trace becomes Parquet, CSV, an iolog of fio or a file of libCacheSim (.oracleGeneral). A model
    (from ppw trace fit) becomes a job file of fio or a profile of DiskSpd. ppw prints what the file
    format cannot express.
    """
    out.refuse_input_as_output(output)
    kind = to or _output_kind_by_ending(output)
    from_model = kind in ("fio-job", "diskspd")
    if options["check"] and kind != "fio-job":
        raise click.UsageError("--check runs a job file of fio: give a model and --to fio-job")
    if from_model and not Path(source).exists():
        raise ppw.PpwError(f"{source}: there is no such file")
    # A load generator plays a law, a tool of traces plays requests: neither takes the other.
    if from_model != is_model(source):
        model = f"a model: run ppw trace fit {source} -o MODEL.json, and convert MODEL.json"
        needed = model if from_model else "a trace"
        raise ppw.PpwError(f"{source}: {kind} is written from {needed}")
    if kind in _TRACES and _output_kind_by_ending(output) != kind:
        ending = next(ending for ending, of in _KINDS.items() if of == kind)
        raise click.UsageError(f"--to {kind}: end the name in {ending}; {output} says otherwise")
    if kind not in _TRACES and not options["target"]:
        raise click.UsageError("Missing option '--target': a load needs a scratch file.")
    if from_model:
        out.say_caveats(_write_jobs(source, kind, output, options))
        return
    trace = read_requests(source, options)
    if kind == "iolog":
        out.say_caveats(_write_fio_iolog(trace, output, options))
    else:
        write_requests(trace, output)


def _output_kind_by_ending(output: str) -> str:
    ending = Path(output.lower().removesuffix(".gz")).suffix
    if ending not in _KINDS:
        raise click.UsageError(f"{output}: its ending does not name a format: give --to")
    return _KINDS[ending]


def _write_fio_iolog(trace: traces.Trace, output: str, options: opt.Given) -> Iterable[str]:
    """Write a trace as fio's iolog; yield what to tell the user."""
    from measurements.loads.load_files import write_iolog
    from ppw.storage.scaling import Scale
    from ppw.storage.trace_source import survey

    size = options["size_bytes"]
    scale, space = Scale(size), survey(trace).survey
    written = write_iolog(
        scale.apply(trace, space).batches(),
        output,
        target=options["target"],
        size_bytes=None if size is None else int(size),
        first_byte=0 if size is None else 512 * space.low_lbn,
        allow_device=options["allow_device"],
    )
    yield from scale.notes(space)
    yield f"the target has to be {written.extent_bytes} bytes long before fio replays on it"


def _write_jobs(source: str, kind: str, output: str, given: opt.Given) -> Iterable[str]:
    """Write a model as fio or diskspd jobs; return what to tell the user."""
    from measurements.loads import load_files
    from ppw.storage.generate import check_jobs, jobs_of

    model = read_model(source)
    by = given["by"] or ("transition" if kind == "diskspd" else "stream")
    write = load_files.write_diskspd if kind == "diskspd" else load_files.write_fio_jobs
    seconds = given["duration_s"] or model.survey.duration_s
    options = {name: given[name] for name in ("target", "outstanding", "allow_device")}
    with refuse_damage(source):
        jobs, notes = jobs_of(model, by=by, space_bytes=given["size_bytes"])
        losses = (*notes, *write(jobs, output, duration_s=seconds, **options))
        if given["check"]:
            table = check_jobs(jobs, output)
            shares = table[["model", "issued"]].to_numpy()
            rows = [
                [feature, f"{a:.1%}", f"{b:.1%}", f"{100 * (b - a):+.1f} points"]
                for feature, (a, b) in zip(table["feature"], shares, strict=True)
                if max(a, b) >= _LEAST_SHOWN
            ]
            click.echo(text_table(["share of", "model", "issued by fio", "off"], rows))
        return losses


# `ppw trace fit`.
@opt.question(
    "fit",
    "Learn a hierarchical state diagram from a block trace.",
    "ppw trace fit disk.vscsi --levels 4 --format json -o disk.model.json",
    click.argument("trace"),
    TRACE,
    opt.options("""
    --levels 1<=N<=12 (4): Number of levels of the diagram.
    --flat: Also fit a model with one level and as many states, and show the effect on IOPS.
    --choose: Compare 1 to --levels levels and choose one.
    --space SIZE as space_bytes: Provisioned size of the device. Default: the range of accessed
        addresses.
    --window TIME>0 as window_s (30min): Length of an activity window. The model keeps the load of
        each window at its time of day.
    --laws NAME (likelihood): Distributions of inter-arrival times: chosen by likelihood, as
        published, or one for all.
    --reuse/--no-reuse: Model how blocks are accessed again.
    """),
    device_option(
        "Device model for the IOPS of --choose and --flat: disk or ssd, "
        "optionally with parameters.",
        "disk",
    ),
    opt.options(
        "--drift: Fit the first half of the trace, and compare the model with the second half."
    ),
    opt.SEED,
    opt.options(
        """
    --engine [memory|duckdb|spark] (memory): Program that reads the trace. duckdb and spark read
        Parquet files of ppw, or a folder of them, of any size.
    --memory-limit SIZE: Memory limit of the engine: 4GiB.
    --temporary FOLDER: Folder for temporary files of the engine, when data exceed its memory.
    """,
        SIZE=click.STRING,
    ),
    group=trace_command,
)
def trace_fit_command(
    trace: str, flat: bool, choose: bool, drift: bool, device: str, seed: int, **options: Any
) -> ppw.TraceModel | ppw.HalfDrift | ppw.LevelChoice:
    """Learn a hierarchical state diagram from the block trace TRACE.

    With --format json the output is the model, an input of ppw trace generate.
    """
    if drift and (choose or flat):
        raise click.UsageError("--drift fits one model: leave --choose and --flat out")
    # An engine counts what no memory holds, which the other questions about a trace need whole.
    if options["engine"] != "memory":
        of_files = options.pop("trace_format"), options.pop("mapping")
        if drift or choose or flat or any(of_files):
            raise click.UsageError(
                "--engine fits one model to ppw's own Parquet: make it by ppw trace convert, and "
                "leave --drift, --choose, --flat, --trace-format and --map out"
            )
        return ppw.fit_trace_in(trace, **options)
    for name in ("engine", "memory_limit", "temporary"):
        del options[name]
    source = read_requests(trace, options)
    out.say(f"{trace}: read as {source.described}")
    if drift:
        return ppw.half_drift(source, seed=seed, **options)
    if choose or flat:
        return ppw.choose_level(source, flat=flat, device=device, seed=seed, **options)
    return ppw.fit_trace(source, **options)


@opt.command(
    "generate",
    "Generate a trace of any length from a fitted model.",
    "ppw trace generate disk.model.json --count 1000000 -o made.parquet",
    MODEL,
    opt.options("""
    -o, --output FILE (required): Trace to write: .parquet, .csv or .csv.gz.
    --count N>=1: Number of requests. Default: the number in the original trace.
    --duration TIME>0 as duration_s: Duration of the synthetic trace, in place of --count.
    --mode NAME (walk): Order of the requests: walk, which plays passages of the trace in another
        order.
    --arrivals [cascade|windows|laws] (cascade): Model of arrivals: cascade (new bursts), windows
        (requests per window as recorded), or laws (only the distributions of inter-arrival times).
    --outstanding N>=1: Number of requests in flight, in a closed loop without inter-arrival times.
    --no-locality: Use uniform random addresses, to show the effect of locality.
    """),
    SCALE,
    opt.SEED,
    group=trace_command,
)
def trace_generate_command(model: str, output: str, no_locality: bool, **options: Any) -> None:
    """Generate a synthetic trace from MODEL, the output of ppw trace fit --format json."""
    if options["count"] is not None and options["duration_s"] is not None:
        raise click.UsageError("--count and --duration both set the length: give one of them")
    with refuse_damage(model):
        generated = ppw.generate_trace(read_model(model), locality=not no_locality, **options)
        out.say_caveats(generated.findings)
        write_requests(generated, output)


@opt.command(
    "record",
    "Record the requests of a command on a block device.",
    "ppw trace record /dev/nvme0n1 -o sort.parquet -- sort --parallel=4 big.txt",
    click.argument("device"),
    click.argument("program", nargs=-1, required=True, metavar="-- COMMAND…"),
    opt.options(
        """
    -o, --output FILE (required): Trace to write: .parquet or .csv. Choose a file on another device.
    --raw NAME: Also keep the files of blktrace, NAME.blktrace.CPU, for blkparse, btt and fio.
    --method [auto|blktrace|blk tracer] (auto): Recording method. auto uses blktrace if the kernel
        allows it.
    """,
        FILE=click.Path(path_type=Path, dir_okay=False),
        NAME=click.Path(path_type=Path),
    ),
    group=trace_command,
)
def trace_record_command(device: str, program: tuple[str, ...], output: Path, **how: Any) -> int:
    """Run COMMAND and record every request that reaches DEVICE in this time, with its latency.

    ppw records requests of other programs too; the trace has the thread of each request. ppw
    restores the settings of the kernel, also after an error or Ctrl-C. Needs root.
    """
    done = traces.record.record(device, program, output, **how)
    out.say_caveats(done.caveats)
    rate = done.requests / done.elapsed_s
    click.echo(
        f"{done.path}: {done.requests} requests in {done.elapsed_s:.3g} s, {rate:.4g} per second, "
        f"by {done.method}"
    )
    return 1 if done.exit_code or done.lost else 0


@opt.question(
    "replay",
    "Replay a trace with fio, and show how much each stage is off.",
    "ppw trace replay made.parquet --target /data/scratch --size 8GiB",
    click.argument("trace"),
    TRACE,
    opt.options("""
    --target FILE (required): Scratch file. ppw creates it as large as needed and overwrites it.
    --original TRACE: Original trace from which the model of TRACE was fitted.
    --count N>=2: Largest number of requests to replay.
    --depth N>=1 (256): Largest number of requests in flight.
    --ioengine NAME (libaio): I/O engine of fio.
    --direct/--buffered: Bypass the page cache.
    """),
    SCALE,
    device_option("Device model to compare the replay with: ssd or disk,average_seek=9ms."),
    ALLOW_DEVICE,
    group=trace_command,
)
def trace_replay_command(trace: str, **options: Any) -> ppw.TraceReplay:
    """Replay TRACE on a scratch file, after a calibration run that touches no device."""
    return ppw.replay_trace(read_requests(trace, options), **options)


@opt.command(
    "show",
    "Show a fitted model: its states, laws and load.",
    "ppw trace show disk.model.json --format html -o disk.html",
    MODEL,
    opt.options(
        "--original TRACE: Original trace whose addresses to plot beside the generated ones (html)."
    ),
    TRACE,
    opt.options(
        "--scales: Show the throughput of a device for several time scales, in place of the model."
    ),
    device_option("Device model for --scales: disk or ssd, optionally with parameters.", "disk"),
    opt.output_options,
    group=trace_command,
)
def trace_show_command(
    model: str, original: str | None, scales: bool, device: str, **given: Any
) -> None:
    """Show MODEL, the output of ppw trace fit --format json.

    The format csv has its transitions. The format html has the state diagram, the addresses, times
    and inter-arrival times of requests, and the load.
    """
    from ppw.storage.report import trace_page

    written = given["format_"], given["output"]
    with out.caveats_in_result():
        fitted = read_model(model)
        if scales:
            out.emit(ppw.time_scales(fitted, device=device), *written)
            return
        source = read_requests(original, given) if original else None
        out.emit(fitted, *written, page=lambda model: trace_page(model, original=source))


@opt.question(
    "validate",
    "Compare a synthetic trace with its original.",
    "ppw trace validate disk.csv made.parquet --format html -o f.html",
    click.argument("original"),
    click.argument("synthetic", nargs=-1, required=True),
    TRACE,
    device_option(
        "Device model for latency that the traces do not record: ssd, or disk,average_seek=9ms.",
        "ssd",
    ),
    opt.options("""
    --features-tolerance PERCENT>0 (5.0): Tolerance of shares, sizes and rates. Half a percentage
        point of a share is always allowed.
    --performance-tolerance PERCENT>0 (6.7): Tolerance of the worst performance figure. The
        tolerance of their mean is 3.4 %, or this one if it is smaller.
    --hit-ratio-tolerance POINTS>0 (3.0): Tolerance of LRU hit ratios at 1, 5 and 20 % of the
        footprint.
    --no-locality: Also show the original with uniform random addresses.
    """),
    SCALE,
    opt.SEED,
    group=trace_command,
)
def trace_validate_command(
    original: str, synthetic: tuple[str, ...], **options: Any
) -> tuple[ppw.TraceFidelity, str | None]:
    """Compare SYNTHETIC traces with ORIGINAL, and exit with 3 if they differ too much.

    A model of ORIGINAL generated SYNTHETIC. With the options by which it was scaled, ORIGINAL is
    scaled in the same way. Several SYNTHETIC traces are repeats with other seeds.
    ppw then judges their mean and gives their spread.
    """
    # Tolerances are typed as percentages and compared as shares.
    for name in ("features_tolerance", "performance_tolerance", "hit_ratio_tolerance"):
        options[name] /= 100
    trace = read_requests(original, options)
    result = ppw.validate_trace(trace, list(synthetic), **options)
    return result, None if result.passed else result.verdict()[0]


@opt.question(
    "drift",
    "Compare the parts of a load: hours, days or files.",
    "ppw trace drift week.parquet --period 1h",
    click.argument("trace"),
    click.argument("others", nargs=-1, metavar="[OTHER]…"),
    TRACE,
    opt.options("""
    --period TIME>0 as period_s: Length of the parts of TRACE: 1h, or 24h. Default: two halves.
    """),
    device_option("Device model for latency that the traces do not record.", "ssd"),
    opt.SEED,
    group=trace_command,
)
def trace_drift_command(
    trace: str, others: tuple[str, ...], **options: Any
) -> tuple[ppw.TraceDrift, str | None]:
    """Compare each part of a load with the part before, and exit with 3 if one differs too much.

    The parts are periods of TRACE, or TRACE and each OTHER trace. The bands are those of ppw trace
    validate.
    """
    named = {name: options[name] for name in ("trace_format", "mapping")}
    later = [read_requests(one, {**named}) for one in others]
    result = ppw.trace_drift(read_requests(trace, options), *later, **options)
    return result, None if result.passed else result.verdict()[0]


# `ppw trace whatif`.
@opt.question(
    "whatif",
    "Estimate how much SSD caches or a defragmentation would speed up a load.",
    "ppw trace whatif disk.csv --cache 64GiB --caches 1,2,4 --policy lru,clock",
    click.argument("source"),
    TRACE,
    opt.options("""
    --cache SIZE as cache_bytes: Size of one cache drive. Default: one tenth of the accessed range.
    --caches N[,…] (1,2,4): Number of cache drives, one or several.
    --policy [lru|fifo|clock|lfu|arc|s3fifo][,…] as policies (lru): Replacement policy of a full
        cache.
    --writes [through|around|back] (through): Path of writes: through (to storage and cache), around
        (to storage only), or back (to the cache, and to storage on eviction).
    --block SIZE as block_bytes (4KiB): Size of a block of the caches.
    --curves: Show the miss ratios of caches of ten sizes, by request, byte and block, in place of
        the options.
    --defragment: Store every file in one piece. The trace must name files.
    """),
    device_option(
        "Device model of the storage behind the cache: ssd, or disk,average_seek=9ms.", "disk"
    ),
    opt.options("""
    --cache-device DEVICE (ssd): Device model of a cache drive.
    --cache-price PRICE: Price of a cache drive.
    --cache-power POWER as cache_power_w: Power of a cache drive.
    --repeats was --runs N>=1 (5): Number of simulations: of a trace, with other platter angles; of
        a model, with other seeds.
    --no-locality: Remove locality from the trace first. A cache must then lose its effect.
    """),
    opt.SEED,
    group=trace_command,
)
def trace_whatif_command(
    source: str, no_locality: bool, block_bytes: float, curves: bool, **options: Any
) -> ppw.TraceWhatIf | ppw.MissRatioCurves:
    """Estimate the benefit of caches of several sizes and policies for a trace or a model."""
    seed = options["seed"]
    made: Any
    # No trace is JSON.
    if is_model(source) or source.lower().endswith(".json"):
        model = read_model(source)
        made = [ppw.generate_trace(model, seed=seed + k) for k in range(options["repeats"])]
        del options["trace_format"], options["mapping"]
    else:
        made = read_requests(source, options)
    if no_locality:
        made = _without_locality(made, seed)
    if curves:
        one = made[0] if isinstance(made, list) else made
        given = {name: options[name] for name in ("policies", "writes")}
        return ppw.miss_ratio_curves(one, block_bytes=int(block_bytes), **given)
    return ppw.trace_what_if(made, block_bytes=int(block_bytes), **options)


def _without_locality(made: Any, seed: int) -> Any:
    """Give the requests of one trace, or of each of several, uniform addresses."""
    from ppw.storage.trace_source import survey, without_locality

    if isinstance(made, list):
        return [without_locality(one, survey(one).survey, seed + k) for k, one in enumerate(made)]
    return without_locality(made, survey(made).survey, seed)
