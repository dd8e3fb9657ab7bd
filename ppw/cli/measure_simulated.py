"""`ppw measure --simulate CORE[,…]`: kernels or bare-metal programs on simulated cores."""

from __future__ import annotations

import os
from typing import Any

import click
from click.core import ParameterSource

from ppw.cli.output import say

# What of the options of `ppw measure` means something on a simulated core.
_UNDERSTOOD = ("simulate", "command", "freqs", "data", "output")


def measure_simulated(ctx: click.Context, given: dict[str, Any]) -> int:
    """Simulate the programs that were asked for, and write their runs table."""
    for param in ctx.command.params:
        name = str(param.name)
        typed = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if typed and name not in _UNDERSTOOD:
            raise click.UsageError(f"{param.opts[0]} says nothing to a simulated core", ctx)
    if not given["command"]:
        from measurements.simulated.kernels import KERNELS

        kernels = ", ".join(KERNELS)
        raise click.UsageError(f"which program? One of {kernels}, or a bare-metal ELF file", ctx)
    if not given["freqs"]:
        raise click.UsageError("say which clocks: --freq 1.2GHz,2GHz", ctx)
    if not given["output"]:
        raise click.UsageError("no -o FILE: where is the table to go?", ctx)
    _simulate(given)
    return 0


def _simulate(given: dict[str, Any]) -> None:
    import pandas as pd

    from measurements import write_runs
    from measurements.quantities import frequency_text
    from measurements.workloads.simulated import WHOLE, simulate_sweep
    from ppw.estimate import shown
    from ppw.table_caveats import SIMULATED
    from ppw.tables import text_table

    programs, cores, clocks = given["command"], given["simulate"], given["freqs"]
    count = len(programs) * len(cores) * len(clocks)
    data_bytes = None if given["data"] is None else round(given["data"])
    processes = len(os.sched_getaffinity(0))
    rows: list[dict[str, Any]] = []
    said: list[list[str]] = []
    sweep = simulate_sweep(programs, cores, clocks, processes=processes, data_bytes=data_bytes)
    for cell, row in sweep:
        rows.append(row)
        clock = frequency_text(cell.freq_hz)
        figures = shown(row["time_s"], "s"), f"{row['cpi']:.4g}"
        said.append([row["workload"], cell.core, clock, *figures])
        say(f"{len(rows)} of {count}: {row['workload']} on {cell.core}, {clock}")
    write_runs(pd.DataFrame(rows), given["output"])
    say(f"caveat: {SIMULATED}")
    unmarked = dict.fromkeys(row["workload"] for row in rows if row["region"] == WHOLE)
    if unmarked:
        say(f"caveat: {', '.join(unmarked)}: without marks of a region, so set-up counts too")
    if given["output"] != "-":
        click.echo(text_table(["workload", "core", "freq", "time", "cpi"], said))
