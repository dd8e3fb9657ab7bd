"""Options that the commands of cycles per I/O share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ppw.cli.decisions import table_options
from ppw.cli.quantities import Frequency

if TYPE_CHECKING:
    from collections.abc import Callable

_BY = (
    "Columns that tell applications apart. Default: all of host, family, workload, data_bytes, "
    "load, instances, device, device_kind that are there."
)


def io_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the runs table and what tells applications apart: RUNS, --map, --by."""
    function = table_options(function)
    for parameter in _parameters(function):
        if isinstance(parameter, click.Option) and parameter.name == "by":
            parameter.help = _BY
    return function


def optional_runs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make RUNS of `io_options` an argument that may be left out."""
    for parameter in _parameters(function):
        if parameter.name == "runs":
            parameter.required = False
    return function


def projection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the server asked for, and how it is projected to."""
    for decorate in reversed(
        (
            click.option(
                "--cores", type=click.FloatRange(1), required=True, help="Of the server asked for."
            ),
            click.option("--freq", type=Frequency(), help="Its clock. Default: that of the runs."),
            click.option(
                "--floor",
                type=click.FloatRange(0, 1, min_open=True),
                default=0.01,
                show_default=True,
                help="Lowest utilisation that a projection may fall to.",
            ),
            click.option(
                "--network-share",
                type=click.FloatRange(0),
                help="Bytes over the network for each byte read or written. Default: as measured, "
                "or 1.",
            ),
            click.option(
                "--draws",
                type=click.IntRange(100),
                default=4000,
                show_default=True,
                help="Lines drawn of each application.",
            ),
            seed_option,
        )
    ):
        function = decorate(function)
    return function


seed_option = click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Where chance starts."
)


def _parameters(function: Callable[..., Any]) -> list[click.Parameter]:
    found: list[click.Parameter] = function.__click_params__  # type: ignore[attr-defined]
    return found
