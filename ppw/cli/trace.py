"""`ppw trace`: storage workload models from block traces."""

from __future__ import annotations

import click

from ppw.cli.lazy import LazyGroup

# By name, with the line that `ppw trace --help` shows, so that listing them imports none.
ACTIONS = {
    "convert": "Write a trace for other tools, or a model for a load generator.",
    "fit": "Learn a hierarchical state diagram from a block trace.",
    "generate": "Make a trace of a fitted model, as long as wanted.",
    "record": "Record the requests of a command on a block device.",
    "replay": "Play a trace back with fio, and say whose error is whose.",
    "show": "Show a fitted model: its states, laws and load.",
    "validate": "Hold a synthetic trace against its original.",
    "whatif": "What SSD caches or a defragmentation would do for a load.",
}


class Actions(LazyGroup):
    """What is done with traces, each in ``ppw.cli.trace_<name>``."""

    prefix = "ppw.cli.trace_"
    members = ACTIONS


@click.group(
    name="trace",
    cls=Actions,
    short_help="Learn a storage workload from a block trace and generate it again.",
    epilog="Example: ppw trace fit disk.csv --format json -o disk.model.json",
)
def command() -> None:
    """Storage workloads as models: fitted to block traces, regenerated, shown."""
