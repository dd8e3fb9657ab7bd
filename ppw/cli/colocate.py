"""`ppw colocate`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.choices import Names, OneOf
from ppw.cli.log_options import host_of, host_options, read_log, read_named
from ppw.cli.numbers import Share
from ppw.cli.options import output_options, seed_option
from ppw.cli.output import caveats_in_result, emit


@click.command(
    name="colocate",
    short_help="What breaks first when recorded workloads share a host, and who can share.",
    epilog="Example: ppw colocate cache=c1.csv batch=b3.tab.gz --latency-critical cache",
)
@click.argument("logs", nargs=-1, required=True, metavar="[NAME=]LOG[,LOG]...")
@host_options
@click.option("--pairs", is_flag=True, help="Hold every two against the host, as a matrix.")
@click.option(
    "--latency-critical",
    type=Names(),
    default=None,
    help="Workloads whose answers must not wait.",
)
@click.option(
    "--align",
    type=OneOf(["start", "clock", "day", "any"]),
    default="start",
    show_default=True,
    help="Let all start together, keep the time of recording or of the day (UTC), or let any "
    "moment of one meet any of the others.",
)
@click.option(
    "--idle-log", "idle", metavar="LOG", help="The idle host: its own demand is counted once."
)
@click.option(
    "--ceiling",
    type=Share(0, 1, min_open=True),
    default="100%",
    show_default=True,
    help="Share of each capacity that may be used.",
)
@click.option(
    "--latency-ceiling",
    type=Share(0, 1, min_open=True),
    default="70%",
    show_default=True,
    help="The same for what a latency-critical workload queues for.",
)
@seed_option
@output_options
def command(logs: tuple[str, ...], format_: str, output: str, *, pairs: bool, **given: Any) -> None:
    """Add up what the workloads in LOGs ask for, and hold it against one host.

    The host is that of the first LOG, but for what options say. LOG is of collectl -P, sadf -j or
    -d, or ppw sample; NAME is the workload, by default the file's name.
    """
    from ppw.provisioning.co_location import co_locate
    from ppw.provisioning.pairing import pair_workloads
    from ppw.report.co_location_page import co_location_page
    from ppw.report.pairing_page import pairing_page

    recordings = read_named(logs, given)
    given["idle"] = read_log(given["idle"], given) if given["idle"] else None
    given["latency_critical"] = given["latency_critical"] or ()
    given.pop("timezone")
    capacity, host = host_of(given)
    with caveats_in_result():
        if pairs:
            paired = pair_workloads(recordings, capacity=capacity, host=host, **given)
        else:
            shared = co_locate(recordings, capacity=capacity, host=host, **given)
    if pairs:
        emit(paired, format_, output, pairing_page)
    else:
        emit(shared, format_, output, co_location_page)
