"""`ppw demo`."""

from __future__ import annotations

import click

from ppw.cli.options import output_options
from ppw.cli.output import emit, say, write


@click.command(
    name="demo",
    short_help="The published Atom and Westmere study again, and projections that are checked.",
    epilog="Example: ppw demo --report atom-or-westmere.html; ppw demo --runs runs.csv",
)
@output_options
@click.option(
    "--report",
    default="ppw-demo.html",
    show_default=True,
    metavar="FILE",
    help="Where the report page goes; - for none.",
)
@click.option(
    "--runs",
    metavar="FILE",
    help="Write the runs of the simulated cores there, a table to try the other commands on, and "
    "do nothing else.",
)
def command(format_: str, output: str, report: str, runs: str | None) -> None:
    """Reproduce the published figures of Issa & Figueira 2012, and check projections.

    Two simulated cores are projected from runs at two clocks to higher ones, and held against what
    was simulated there.
    """
    if runs is not None:
        _write_runs(runs)
        return
    from ppw.demo import demo, demo_page

    result = demo()
    emit(result, format_, output, demo_page)
    if report != "-":
        write(demo_page(result).render(), report)
        say(f"report written to {report}")


def _write_runs(target: str) -> None:
    from measurements import write_runs
    from ppw.samples import simulated_sweep
    from ppw.table_caveats import SIMULATED

    write_runs(simulated_sweep(), target)
    say(f"caveat: {SIMULATED}")
