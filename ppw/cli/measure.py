"""`ppw measure`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.measure_progress import Progress
from ppw.cli.options import Frequencies, Names
from ppw.cli.quantities import Bytes, Counts, Frequency, Seconds
from ppw.errors import PpwError

if TYPE_CHECKING:
    import pandas as pd

    from measurements.sweep import SweepOptions
    from ppw.measuring import HostOptions

_EPILOG = (
    "Example: ppw measure --freqs 1.2GHz,1.8GHz --power rapl,ipmi@bmc-7 -o runs.parquet -- "
    "sort --parallel=4 big.txt"
)


@click.command(
    name="measure",
    short_help="Measure a command's time, watts and counters at several clocks.",
    epilog=_EPILOG,
    context_settings={"ignore_unknown_options": False},
)
@click.argument("command", nargs=-1)
@click.option("--freqs", type=Frequencies(), help="Core frequencies to fix, such as 1.2GHz,1.8GHz.")
@click.option("--as-found", is_flag=True, help="Leave the clock as it is.")
@click.option(
    "--clock",
    type=Frequency(),
    help="What the clock is, where it is left as found and the host cannot tell.",
)
@click.option("--cores", type=Counts(), help="Numbers of physical cores to use. Default: all.")
@click.option("--turbo", type=click.Choice(["on", "off"]), help="Switch turbo. Default: as it is.")
@click.option(
    "--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Runs a set-up."
)
@click.option(
    "--warm-ups",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Executions before the first run, which are not kept.",
)
@click.option(
    "--power",
    metavar="SOURCE[,…]",
    help="Where watts come from: rapl, ipmi@HOST, redfish@URL, meter@RESOURCE, log@FILE, …, or "
    "none; see ppw sensors. Default: what this host has.",
)
@click.option(
    "--metric",
    "metrics",
    type=Names(("time", "cpi", "power")),
    help="What must be measured; the rest is where it can be. Default: time,cpi,power.",
)
@click.option("--workload", help="Name of the workload. Default: that of the command.")
@click.option("--host", help="Name of this host in the table. Default: its own.")
@click.option("--family", help="Microarchitecture family, such as Westmere.")
@click.option("--data", type=Bytes(), help="Input size, such as 10GB.")
@click.option("--price", type=click.FloatRange(min=0, min_open=True), help="Of this host.")
@click.option(
    "--at-least",
    type=Seconds(),
    default="0",
    help="What a run is to last; a shorter command is executed several times.",
)
@click.option(
    "--idle",
    type=Seconds(),
    default="10s",
    show_default=True,
    help="Idling that is measured before the sweep.",
)
@click.option(
    "--settle",
    type=Seconds(),
    default="2s",
    show_default=True,
    help="Waited for after each change of the clock.",
)
@click.option(
    "--interval",
    type=Seconds(),
    default="0.1s",
    show_default=True,
    help="Between readings of a power source, where it is quick enough.",
)
@click.option(
    "--timeout",
    type=Seconds(),
    default="10s",
    show_default=True,
    help="For a BMC or meter to answer.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the order of the runs.")
@click.option("--probe-memory", is_flag=True, help="Measure memory bandwidth and latency first.")
@click.option("--resume", is_flag=True, help="Go on with a sweep that was interrupted.")
@click.option(
    "--dry-run", is_flag=True, help="Print what would be written and run, and do nothing."
)
@click.option(
    "--replay",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Make the table again from the raw readings in DIR.",
)
@click.option("--ssh", metavar="HOST", help="Do it on another host, which has ppw.")
@click.option(
    "--simulate",
    type=Names(("inorder", "o3")),
    help="Simulate a small in-order core, a large out-of-order one (o3), or both; COMMAND is then "
    "kernels by name, or ELF files for the bare RISC-V machine.",
)
@click.option("--stream", is_flag=True, hidden=True)
@click.option("--sysfs", default="/sys", hidden=True)
@click.option("--procfs", default="/proc", hidden=True)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Runs table to write, .parquet, .csv or .jsonl; its raw readings go beside it.",
)
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
        raise click.UsageError("say which clocks: --freqs 1.2GHz,1.8GHz, or --as-found")
    if given["freqs"] and given["as_found"]:
        raise click.UsageError("--freqs sets the clock and --as-found leaves it: give one")
    if given["freqs"] and given["clock"]:
        raise click.UsageError("--clock says what the clock is as found; with --freqs it is set")
    return _measure(given)


def _measure(given: dict[str, Any]) -> int:
    from ppw import measuring

    options, host = _sweep_options(given), _host_options(given)
    if given["dry_run"]:
        for line in measuring.dry_run(options, host):
            click.echo(line)
        return 0
    if not given["output"]:
        raise click.UsageError("no -o FILE: where is the table to go?")
    if given["output"] == "-":
        raise click.UsageError("-o takes a file: the table is written anew after every run")
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


def _host_options(given: dict[str, Any]) -> HostOptions:
    from ppw.measuring import METRICS, HostOptions

    return HostOptions(
        power=given["power"],
        metrics=tuple(given["metrics"] or METRICS),
        as_found=given["as_found"],
        turbo={"on": True, "off": False, None: None}[given["turbo"]],
        interval_s=given["interval"],
        timeout_s=given["timeout"],
        sysfs=given["sysfs"],
        procfs=given["procfs"],
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
