"""`ppw fleet`: the answers over more runs than fit in memory."""

from __future__ import annotations

import click

from ppw.cli.lazy import LazyGroup

# By name, with the line that `ppw fleet --help` shows, so that listing them imports none.
MEMBERS = {
    "fit": "Give the parameters of every curve of a fleet.",
    "project": "Project every group of a fleet to another frequency.",
    "validate": "Hold projections of a fleet against measurements they have not seen.",
    "pathlength": "Instructions per byte of a fleet against cores and data size.",
    "check": "Name the runs of a fleet that cannot be right, with the evidence.",
    "update": "Add new files to a fleet's saved state, each once.",
    "join": "Give runs the watts that a power sensor recorded while they ran.",
}


class Members(LazyGroup):
    """The commands, each in ``ppw.cli.fleet_<name>``."""

    prefix = "ppw.cli.fleet_"
    members = MEMBERS


@click.group(
    name="fleet",
    cls=Members,
    short_help="Answer over millions of runs, on DuckDB or Spark.",
    epilog="Example: ppw fleet project runs/ --freq 3.0GHz --output projected.parquet",
)
def command() -> None:
    """Fit, project and validate folders of Parquet, CSV or JSON-lines files that no memory holds.

    The engine condenses the runs to moments in one pass; the answers are those of ppw fit, project
    and validate. A file that cannot be read is named and left out; the exit code then is 1.
    """
