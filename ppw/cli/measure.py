"""`ppw measure`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.choices import Names
from ppw.cli.measure_progress import Progress
from ppw.cli.measuring_options import (
    clock_options,
    data_option,
    host_options,
    kernel_options,
    metrics_option,
    pace_options,
    power_option,
    refuse_standard_output,
    refuse_two_clocks,
    repeats_option,
    row_options,
    table_option,
    workload_option,
)
from ppw.cli.numbers import Counts, Whole
from ppw.cli.quantities import Seconds
from ppw.errors import PpwError

if TYPE_CHECKING:
    import pandas as pd

    from measurements.sweep import SweepOptions
    from ppw.measuring import HostOptions

_EPILOG = (
    "Example: ppw measure --freq 1.2GHz,1.8GHz --power rapl,ipmi@bmc-7 -o runs.parquet -- "
    "sort --parallel=4 big.txt"
)


@click.command(
    name="measure",
    short_help="Measure a command's time, watts and counters at several clocks.",
    epilog=_EPILOG,
    context_settings={"ignore_unknown_options": False},
)
@click.argument("command", nargs=-1)
@clock_options
@click.option("--as-found", is_flag=True, help="Leave the clock as it is.")
@click.option("--cores", type=Counts(), help="Numbers of physical cores to use. Default: all.")
@repeats_option(5)
@click.option(
    "--warm-ups",
    type=Whole(0),
    default=1,
    show_default=True,
    help="Executions before the first run, which are not kept.",
)
@click.option(
    "--at-least",
    type=Seconds(),
    default="0",
    help="What a run is to last; a shorter command is executed several times.",
)
@power_option
@metrics_option(("time", "cpi", "power"), "all")
@workload_option
@data_option
@row_options
@pace_options
@click.option("--probe-memory", is_flag=True, help="Measure memory bandwidth and latency first.")
@click.option(
    "--dry-run", is_flag=True, help="Print what would be written and run, and do nothing."
)
@click.option(
    "--replay",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Make the table again from the raw readings in FOLDER.",
)
@click.option("--ssh", metavar="HOST", help="Do it on another host, which has ppw.")
@click.option(
    "--simulate",
    type=Names(("inorder", "o3")),
    help="Simulate a small in-order core, a large out-of-order one (o3), or both; COMMAND is then "
    "kernels by name, or ELF files for the bare RISC-V machine.",
)
@click.option("--stream", is_flag=True, hidden=True)
@kernel_options
@table_option(required=False)
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Measure COMMAND's time, watts and counters, several times at each clock, in random order.

    Whatever is changed on the host is put back on every way out. Each run is in the table's file
    before the next begins.
    """
    if given["simulate"]:
        from ppw.cli.measure_simulated import measure_simulated

        return measure_simulated(ctx, given)
    if given["ssh"]:
        from ppw.remote import measure_on

        return measure_on(given["ssh"], sys.argv, given["output"])
    if given["replay"] is not None:
        return _replay(given["replay"], given["output"])
    if not given["command"] and not given["resume"]:
        raise click.UsageError("no COMMAND: give it after --, as in ppw measure … -- sort big.txt")
    if not (given["freqs"] or given["as_found"] or given["resume"]):
        raise click.UsageError("say which clocks: --freq 1.2GHz,1.8GHz, or --as-found")
    if given["freqs"] and given["as_found"]:
        raise click.UsageError("--freq sets the clock and --as-found leaves it: give one")
    refuse_two_clocks(given)
    return _measure(given)


def _measure(given: dict[str, Any]) -> int:
    from ppw import measuring

    options = _sweep_options(given)
    metrics = given["metrics"] or measuring.METRICS
    host = host_options(given, metrics, as_found=given["as_found"])
    if given["dry_run"]:
        for line in measuring.dry_run(options, host):
            click.echo(line)
        return 0
    if not given["output"]:
        raise click.UsageError("no -o FILE: where is the table to go?")
    refuse_standard_output(given["output"])
    if given["stream"]:
        from ppw.remote import end_with_input

        end_with_input()
    table = _sweep(options, host, given)
    if not given["stream"]:
        click.echo(measuring.summary(table))
    return 0


def _sweep_options(given: dict[str, Any]) -> SweepOptions:
    from measurements.sweep import SweepOptions
    from ppw.measuring import this_host

    program = given["command"]
    return SweepOptions(
        command=program,
        workload=given["workload"] or (Path(program[0]).name if program else ""),
        host=given["host"] or this_host(),
        family=given["family"],
        frequencies=tuple(given["freqs"] or ()),
        clock_hz=given["clock"],
        cores=tuple(given["cores"] or ()),
        repeats=given["repeats"],
        warm_ups=given["warm_ups"],
        idle_s=given["idle"],
        settle_s=given["settle"],
        at_least_s=given["at_least"],
        seed=given["seed"],
        data_bytes=given["data"],
        price=given["price"],
    )


def _sweep(options: SweepOptions, host: HostOptions, given: dict[str, Any]) -> pd.DataFrame:
    """Measure; with --stream each row is a line of JSON as soon as it is there."""
    from ppw.measuring import set_up

    stream = given["stream"]
    with Progress() as progress:
        with set_up(
            options,
            host,
            Path(given["output"]),
            resume=given["resume"],
            probe_memory=given["probe_memory"],
            tell=progress.tell,
        ) as sweep:
            progress.expect(sweep.left())
            for row in sweep.earlier() if stream else ():
                click.echo(json.dumps(row))
            for row in sweep.rows():
                progress.show(row)
                if stream:
                    click.echo(json.dumps(row))
        return sweep.table()


def _replay(folder: Path, output: str | None) -> int:
    from measurements import write_runs
    from measurements.run_rows import session_table
    from measurements.session import Session
    from ppw import measuring

    table = session_table(Session.open(folder))
    if table.empty:
        raise PpwError(f"{folder}: no run that went well is in there")
    if output:
        write_runs(table, output)
    if output != "-":
        click.echo(measuring.summary(table))
    return 0
