"""Options that the commands of cycles per I/O share."""

from __future__ import annotations

import click

from ppw.cli.numbers import Number, Share
from ppw.cli.options import all_of, by_option, draws_option, seed_option, table_options_of
from ppw.cli.quantities import Frequency

_by = by_option(
    "Columns that tell applications apart. Default: all of host, family, workload, data_bytes, "
    "load, instances, device, device_kind that are there."
)
io_options = table_options_of(by=_by)
optional_io_options = table_options_of(by=_by, required=False)
projection_options = all_of(
    click.option("--cores", type=Number(1), required=True, help="Of the server asked for."),
    click.option("--freq", type=Frequency(), help="Its clock. Default: that of the runs."),
    click.option(
        "--floor",
        type=Share(0, 1, min_open=True),
        default="1%",
        show_default=True,
        help="Lowest utilisation that a projection may fall to.",
    ),
    click.option(
        "--network-share",
        type=Share(),
        help="Bytes over the network for each byte read or written. Default: as measured, or 1.",
    ),
    draws_option(4000, "Lines drawn of each application."),
    seed_option,
)
