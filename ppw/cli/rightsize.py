"""`ppw rightsize`."""

from __future__ import annotations

from typing import Any

import click

from ppw.cli.log_options import host_of, host_options, read_log, thresholds_option
from ppw.cli.numbers import Share
from ppw.cli.options import output_options
from ppw.cli.output import caveats_in_result, emit


@click.command(
    name="rightsize",
    short_help="What a recorded workload needs more of, what is idle, and which hosts fit.",
    epilog="Example: ppw rightsize db7.tab.gz --disk-bandwidth 500MB/s --network 10Gbit/s",
)
@click.argument("log", metavar="LOG[,LOG]")
@host_options
@click.option(
    "--headroom",
    type=Share(0, 1, min_open=True, max_open=True),
    help="Share of each resource to keep free. Default: what is above its high threshold.",
)
@thresholds_option
@output_options
def command(log: str, format_: str, output: str, **given: Any) -> None:
    """Say for each resource of the host in LOG what to buy more of, what is idle, and by how much.

    LOG is of collectl -P, sadf -j or -d, or ppw sample.
    """
    from ppw.pressure.thresholds import read_thresholds
    from ppw.provisioning.right_sizing import right_size
    from ppw.report.right_sizing_page import right_sizing_page

    series = read_log(log, given)
    given.pop("timezone")
    capacity, host = host_of(given)
    file = given.pop("thresholds")
    with caveats_in_result():
        result = right_size(
            series,
            capacity=capacity,
            host=host,
            thresholds=read_thresholds(file) if file else None,
            **given,
        )
    emit(result, format_, output, right_sizing_page)
