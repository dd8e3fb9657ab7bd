"""`ppw run count`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ppw.cli.choices import OneOf
from ppw.cli.measuring_options import data_option, family_option, host_option, workload_option
from ppw.cli.numbers import Positive, Whole
from ppw.cli.output import say
from ppw.cli.quantities import Frequency
from ppw.errors import PpwError

_EPILOG = "Example: ppw run count --data 64MiB -o counts.csv -- wc -w words.txt"


@click.command(
    name="count", short_help="Instructions of a command, by what can count here.", epilog=_EPILOG
)
@click.argument("command", nargs=-1, required=True)
@click.option(
    "--method",
    type=OneOf(["perf", "callgrind", "qemu", "cpu-time"]),
    help="What counts. Default: the first that works here. callgrind and qemu execute the command "
    "once more, ten to a hundred times slower.",
)
@click.option("--clock", type=Frequency(), help="Core clock, for cpu-time.")
@click.option(
    "--cpi",
    type=Positive(),
    help="Cycles per instruction, for cpu-time.",
)
@click.option("--cores", type=Whole(1), help="Physical cores to use. Default: all there are.")
@data_option
@workload_option
@host_option
@family_option
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Runs table that the row is added to, .csv, .parquet or .jsonl.",
)
def command(command: tuple[str, ...], **given: Any) -> int:
    """Count the instructions that COMMAND retires, and say how: counted, emulated or estimated."""
    from measurements.instruction_counts import count_instructions
    from measurements.placement import place, read_topology
    from ppw.estimate import shown
    from ppw.measuring import this_host

    placement = place(read_topology(), given["cores"])
    found = count_instructions(
        command,
        method=given["method"],
        clock_hz=given["clock"],
        cpi=given["cpi"],
        cpus=placement.cpus,
    )
    for caveat in found.caveats:
        say(caveat)
    row: dict[str, Any] = {
        "host": given["host"] or this_host(),
        "family": given["family"],
        "workload": given["workload"] or Path(command[0]).name,
        "freq_hz": given["clock"],
        "cores": placement.cores,
        "data_bytes": given["data"],
        "cpi": given["cpi"] if found.method == "cpu-time" else None,
        **found.columns(),
    }
    if given["output"]:
        _add({name: value for name, value in row.items() if value is not None}, given["output"])
    data = given["data"]
    per_byte = f", {found.instructions / data:.4g} a byte" if data else ""
    click.echo(
        f"{found.instructions:,.0f} instructions{per_byte}, {found.label} by {found.method} "
        f"({found.modes}); {shown(found.time_s, 's')}"
    )
    return 0


def _add(row: dict[str, Any], output: str) -> None:
    import pandas as pd

    from measurements import read_runs, write_runs

    if output == "-":
        raise PpwError("-o takes a file, to which the row is added")
    new = pd.DataFrame([row])
    path = Path(output)
    write_runs(pd.concat([read_runs(path), new]) if path.exists() else new, path)
