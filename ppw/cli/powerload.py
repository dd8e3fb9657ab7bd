"""`ppw powerload`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ppw.cli.numbers import Shares
from ppw.cli.options import level_option, output_options, runs_without_groups
from ppw.cli.output import caveats_in_result, emit
from ppw.cli.runs_table import read, refuse_table_options

if TYPE_CHECKING:
    import pandas as pd

    from measurements.specpower import SpecPowerResult


_LOADS = Shares(highest=1.0)


@click.command(
    name="powerload",
    short_help="Watts against load, and energy proportionality.",
    epilog="Example: ppw powerload power_ssj2008-20120312-00444.txt --at 30%,70%",
)
@runs_without_groups
@click.option(
    "--at",
    type=_LOADS,
    default="0%,50%,100%",
    show_default=True,
    help="Loads to give the watts at.",
)
@click.option(
    "--levels",
    type=_LOADS,
    help="Learn from the levels at these loads alone, to see what they would have said.",
)
@level_option
@output_options
def command(
    runs: tuple[str, ...],
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Draw watts against load from RUNS at several loads, or from SPECpower_ssj2008 results.

    RUNS are tables with power_w and load (ppw run memcached --load), or results as SPEC publishes
    them: .html, .txt or a CSV of many.
    """
    from ppw.power_load_answer import power_loads
    from ppw.report.power_load_page import power_load_page

    with caveats_in_result():
        source = _source(runs, options)
        result = power_loads(source, **options)
    emit(result, format_, output, power_load_page)


def _source(paths: tuple[str, ...], given: dict[str, Any]) -> pd.DataFrame | list[SpecPowerResult]:
    from measurements.specpower import is_specpower, read_specpower

    published = [path for path in paths if path != "-" and is_specpower(path)]
    if not published:
        return read(paths, given)
    if len(published) < len(paths):
        other = next(path for path in paths if path not in published)
        raise click.UsageError(f"{other} is no SPECpower result, as {published[0]} is: ask apart")
    refuse_table_options(given, f"{published[0]} is a SPECpower result")
    return read_specpower(published)
