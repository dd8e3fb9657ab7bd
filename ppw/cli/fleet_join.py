"""`ppw fleet join`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.choices import OneOf
from ppw.cli.fleet_options import engine_options
from ppw.cli.numbers import Positive
from ppw.cli.options import map_option
from ppw.cli.output import refuse_an_input, say
from ppw.cli.quantities import Seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

_EPILOG = "Example: ppw fleet join runs/ watts/ --source prometheus:node -o runs-with-watts.parquet"


@click.command(name="join", epilog=_EPILOG)
@click.argument("runs")
@click.argument("samples")
@click.option("-o", "--output", required=True, metavar="FILE", help="Parquet to write.")
@map_option("Column of SAMPLES (host, at, value, label, own) by another name", "host=instance")
@click.option(
    "--quantity",
    type=OneOf(["power", "energy"]),
    default="power",
    show_default=True,
    help="What the values are: W, or J of a counter that only grows.",
)
@click.option(
    "--window",
    "window_s",
    type=Seconds(),
    default="0s",
    show_default=True,
    help="A value is the mean over so much time before it; 0s: of a moment.",
)
@click.option(
    "--range", "range_j", type=Positive(), help="Joules after which the counter restarts."
)
@click.option(
    "--offset",
    "offsets",
    multiple=True,
    metavar="[HOST=]SECONDS",
    help="Add to the samples' times, of one host or of all, to have the time of the runs.",
)
@click.option(
    "--label", "labels", metavar="NAME", multiple=True, help="Channel to take; several are added."
)
@click.option(
    "--source", metavar="NAME", default="telemetry", show_default=True, help="For power_source."
)
@engine_options
def command(
    runs: str,
    samples: str,
    output: str,
    mapping: dict[str, str],
    offsets: tuple[str, ...],
    labels: tuple[str, ...],
    keep_going: bool,
    **given: Any,
) -> int:
    """Add power_w and energy_j to the RUNS of a fleet from SAMPLES of its hosts.

    RUNS are files, a folder or a pattern with host, started_at and time_s; SAMPLES with host, at
    (ISO 8601, or seconds since 1970), value and, where a host has several channels, label. What
    the samples do not tell is missing, with the reason in notes.
    """
    from ppw.fleet.connection import connect
    from ppw.fleet.faults import Fault
    from ppw.fleet.source import open_runs
    from ppw.fleet.telemetry import Sensor, clocks_that_disagree, join_power
    from ppw.fleet.telemetry_files import open_samples, write_runs

    refuse_an_input(output)
    limits = {name: given.pop(name) for name in ("memory_limit", "temporary", "threads")}
    engine = connect(given.pop("engine"), **limits)
    sensor = Sensor(**given)
    offset = _offsets(offsets)
    read, faults = open_samples(samples, engine, mapping)
    fleet = open_runs(runs, engine=engine)
    faults += fleet.faults
    table = fleet.table
    faults += [
        Fault(f"host {host}", what)
        for host, what in clocks_that_disagree(table, read, sensor, offset).items()
    ]
    for fault in faults:
        say(f"fault: {fault}")
    joined = join_power(table, read, sensor, offset_s=offset, labels=labels or None)
    click.echo(write_runs(joined, Path(output)))
    return 1 if faults and not keep_going else 0


def _offsets(texts: tuple[str, ...]) -> float | Mapping[str, float]:
    by_host = {}
    for text in texts:
        host, _, number = text.rpartition("=")
        try:
            by_host[host] = float(number)
        except ValueError:
            raise click.BadParameter(
                f"{text!r} is not [HOST=]SECONDS", param_hint="--offset"
            ) from None
    if "" in by_host and len(by_host) > 1:
        raise click.BadParameter("give one for all hosts, or one a host", param_hint="--offset")
    return by_host.get("", by_host) if by_host else 0.0
