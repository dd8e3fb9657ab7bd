"""`ppw run cpio`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.choices import Names, OneOf
from ppw.cli.measuring_options import data_option, workload_option
from ppw.cli.numbers import Counts, Shares, Whole
from ppw.cli.output import say
from ppw.cli.quantities import Bytes
from ppw.cli.run_options import run_options, running_on, service_options, show_progress

if TYPE_CHECKING:
    import pandas as pd

    from measurements.workloads.io_study.options import StudyOptions

_PATTERNS = "randread,randwrite,read:128KiB,write:128KiB"


@click.command(
    name="cpio",
    short_help="CPU time and I/Os against cores, with and without the device.",
    epilog="Example: ppw run cpio --folder /data --size 8GiB --cores 1,2,4 --without-device -o "
    "study.csv; ppw cpio study.csv",
)
@click.argument("command", nargs=-1)
@click.option(
    "--folder",
    metavar="FOLDER",
    required=True,
    help="On the disk to study; what is made in it is removed afterwards.",
)
@click.option("--cores", type=Counts(), help="Physical cores. Default: 1, 2, 4 … and all.")
@click.option(
    "--threads-per-core", type=Counts(), default="1", show_default=True, help="Hardware threads."
)
@click.option(
    "--instances", type=Counts(), default="1", show_default=True, help="Equal programs at once."
)
@click.option(
    "--without-device",
    is_flag=True,
    help="The same again on a loop device over a file in memory. Needs root.",
)
@click.option(
    "--confine-kernel",
    is_flag=True,
    help="Keep the kernel's unbound workers on the cores of each run: they do part of the I/O. "
    "Put back afterwards. Needs root.",
)
@click.option(
    "--scope",
    type=OneOf(["host", "own"]),
    default="host",
    show_default=True,
    help="CPU time and I/O of the whole host, as published, or, where others use it too, CPU time "
    "of the programs and the kernel's threads alone and I/O of fio alone.",
)
@click.option(
    "--take-bandwidth",
    type=Shares(),
    default="0",
    help="Memory bandwidth to take from the workload, in shares of what the cores beside it can: "
    "0,50%,100%.",
)
@click.option(
    "--size", type=Bytes(), default="1GiB", show_default=True, help="Of each file of fio."
)
@click.option(
    "--pattern",
    "patterns",
    type=Names(),
    metavar="PATTERN[,…]",
    default=_PATTERNS,
    show_default=True,
    help="Of fio, each with the size of a request if need be.",
)
@click.option(
    "--depth",
    type=Whole(1),
    default=16,
    show_default=True,
    help="Requests in flight of each job of fio; there is one a logical CPU.",
)
@click.option(
    "--prepare", metavar="SHELL", help="Fills the fresh folder of each run of COMMAND beforehand."
)
@workload_option
@data_option
@run_options
def command(command: tuple[str, ...], **given: Any) -> int:
    """Run fio, or COMMAND, at several core counts, and count CPU time and sectors of the host.

    In COMMAND, {folder} is a fresh folder on the device, {threads} the number of logical CPUs
    and {instance} that of the program, from 0. The table is for ppw cpio.
    """
    from measurements.workloads.io_study.findings import findings
    from measurements.workloads.io_study.study import open_study, table
    from ppw.measuring import this_host

    options = _options(command, given)
    options.check()
    service = service_options(given, host=this_host())
    with (
        running_on(given, service, {"cpio": asdict(options)}) as opened,
        open_study(options, opened.runs) as study,
    ):
        found = opened.take(study, table, show_progress)
    for text in findings(found):
        say(text)
    click.echo(summary(found))
    return 0


def _options(command: tuple[str, ...], given: dict[str, Any]) -> StudyOptions:
    from measurements.workloads.fio import Pattern
    from measurements.workloads.io_study.options import StudyOptions

    return StudyOptions(
        folder=str(given["folder"]),
        cores=tuple(given["cores"] or _doubled()),
        threads_per_core=tuple(given["threads_per_core"]),
        instances=tuple(given["instances"]),
        without_device=given["without_device"],
        confine_kernel=given["confine_kernel"],
        own=given["scope"] == "own",
        taken=given["take_bandwidth"],
        size_bytes=round(given["size"]),
        patterns=() if command else tuple(map(Pattern.parse, given["patterns"])),
        depth=given["depth"],
        command=command,
        prepare=given["prepare"],
        workload=given["workload"],
        data_bytes=None if given["data"] is None else round(given["data"]),
    )


def _doubled() -> list[int]:
    """Counts of cores, each twice the one before, and all that there are."""
    from measurements.placement import read_topology

    there = len(read_topology().cores)
    return [*(1 << n for n in range(there.bit_length()) if 1 << n < there), there]


def summary(table: pd.DataFrame) -> str:
    """What `ppw cpio` says of the table."""
    import warnings

    from ppw.cpio.cycles import cycles_per_io
    from ppw.errors import CaveatWarning, PpwError

    with warnings.catch_warnings():
        # They are in the summary.
        warnings.simplefilter("ignore", CaveatWarning)
        try:
            return cycles_per_io(table).summary()
        except PpwError as error:
            # The table stands, whatever it says.
            return f"no cycles per I/O: {error}"
