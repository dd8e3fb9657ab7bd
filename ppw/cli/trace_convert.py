"""`ppw trace convert`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.choices import OneOf
from ppw.cli.numbers import Whole
from ppw.cli.output import refuse_an_input, say
from ppw.cli.quantities import Bytes, Seconds
from ppw.cli.trace_sources import is_model, model_of, read, trace_options
from ppw.cli.trace_writing import write_requests
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Iterable

_FROM_MODELS = ("fio-job", "diskspd")


@click.command(
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
def command(
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
        write_requests(read(source, trace_format, mapping), output)
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
    from measurements.loads.iolog import write_iolog

    size = options["size_bytes"]
    written = write_iolog(
        read(source, trace_format, mapping).batches(),
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
    from ppw.traces.jobs import jobs_of

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
