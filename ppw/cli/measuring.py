"""`ppw measure`."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ppw.cli.options import (
    Respelt,
    clock_options,
    data_option,
    kernel_options,
    measured_host_options,
    metrics_option,
    output_options_of,
    pace_options,
    power_option,
    refuse_standard_output,
    refuse_two_clocks,
    repeats_option,
    row_options,
    table_option,
    workload_option,
)
from ppw.cli.output import Progress, say, write
from ppw.cli.types import Counts, Names, Seconds, Whole
from ppw.errors import PpwError

if TYPE_CHECKING:
    from types import FrameType

    import pandas as pd

    from measurements.sweep.loop import SweepOptions
    from measurements.sweep.measure import HostOptions, HostSensor
    from measurements.timeseries.live import Ended, LiveSampler


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
def measure_command(ctx: click.Context, /, **given: Any) -> int:
    """Measure COMMAND's time, watts and counters, several times at each clock, in random order.

    Whatever is changed on the host is put back on every way out. Each run is in the table's file
    before the next begins.
    """
    if given["simulate"]:
        return measure_simulated(ctx, given)
    if given["ssh"]:
        from measurements.sweep.ssh import measure_on

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
    from measurements.sweep import measure

    options = _sweep_options(given)
    metrics = given["metrics"] or measure.METRICS
    host = measured_host_options(given, metrics, as_found=given["as_found"])
    if given["dry_run"]:
        for line in measure.dry_run(options, host):
            click.echo(line)
        return 0
    if not given["output"]:
        raise click.UsageError("no -o FILE: where is the table to go?")
    refuse_standard_output(given["output"])
    if given["stream"]:
        from measurements.sweep.ssh import end_with_input

        end_with_input()
    table = _sweep(options, host, given)
    if not given["stream"]:
        click.echo(measure_summary(table))
    return 0


def _sweep_options(given: dict[str, Any]) -> SweepOptions:
    from measurements.sweep.loop import SweepOptions
    from measurements.sweep.measure import this_host

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
    from measurements.sweep.measure import set_up

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
    from measurements.sweep.rows import session_table
    from measurements.sweep.session import Session

    table = session_table(Session.open(folder))
    if table.empty:
        raise PpwError(f"{folder}: no run that went well is in there")
    if output:
        write_runs(table, output)
    if output != "-":
        click.echo(measure_summary(table))
    return 0


def measure_summary(table: pd.DataFrame) -> str:
    """Medians by set-up, as text."""
    from measurements.table.units import frequency_text
    from ppw.results.text import shown, text_table

    columns = {"time_s": "s", "power_w": "W", "cpi": "1", "energy_j": "J/run"}
    columns = {name: unit for name, unit in columns.items() if name in table}
    keys = [c for c in ("workload", "cores", "freq_hz") if c in table]
    rows = []
    for key, part in table.groupby(keys, dropna=False, sort=True):
        values: Any = key
        pairs = zip(keys, values, strict=True)
        names = [frequency_text(k) if c == "freq_hz" else str(k) for c, k in pairs]
        medians = [shown(part[c].median(), u) for c, u in columns.items()]
        time = part["time_s"]
        spread = (time.max() - time.min()) / time.median()
        rows.append([*names, str(len(part)), *medians, f"{spread:.1%}"])
    header = [*(c.removesuffix("_hz") for c in keys), "runs"]
    header += [name.rpartition("_")[0] or name for name in columns]
    return text_table([*header, "time spread"], rows)


# `ppw measure --simulate CORE[,…]`: kernels or bare-metal programs on simulated cores.


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
        from measurements.workloads.simulated import KERNELS

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
    from measurements.table.units import frequency_text
    from measurements.workloads.simulated import WHOLE, simulate_sweep
    from ppw.results.text import shown, text_table
    from ppw.runs.caveats import SIMULATED

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


# `ppw sample`.


@click.command(
    name="sample",
    short_help="Record this host's CPU time, memory, disks and network while a command runs.",
    epilog="Example: ppw sample -o sort.parquet -- sort --parallel=4 big.txt",
)
@click.argument("command", nargs=-1)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    help="Time series to write, .csv, .parquet or .jsonl; - is standard output, as CSV, where no "
    "COMMAND uses it.",
)
@click.option("--duration", type=Seconds(), help="Record so long, without a COMMAND.")
@click.option(
    "--every",
    cls=Respelt,
    former="--interval",
    type=Seconds(),
    default="1s",
    show_default=True,
    help="Time from row to row.",
)
@click.option(
    "--disk",
    "disks",
    type=Names(),
    help="Disks whose transfers are the host's, such as loop0. Default: the physical ones.",
)
@click.option("--host", metavar="NAME", help="Name of this host in the series. Default: its own.")
@click.option("--sysfs", default="/sys", hidden=True)
@click.option("--procfs", default="/proc", hidden=True)
@click.option("--root", default="/", hidden=True)
def sample_command(**given: Any) -> int:
    """Record this host, a row an interval, until COMMAND ends, the time is over or Ctrl-C.

    Each row is in the file before the next begins. Only the kernel's counts are read; nothing is
    changed.
    """
    from pathlib import Path

    from measurements.timeseries.live import LiveSampler

    program, output = given["command"], given["output"]
    if program and given["duration"] is not None:
        raise click.UsageError(
            "with a COMMAND it is recorded until that ends: leave out --duration"
        )
    if program and output == "-":
        raise click.UsageError("standard output is the COMMAND's: give -o a file")
    signal.signal(signal.SIGTERM, _interrupt)
    sampler = LiveSampler(
        interval_s=given["every"],
        disks=given["disks"],
        host=given["host"],
        procfs=Path(given["procfs"]),
        sysfs=Path(given["sysfs"]),
        root=Path(given["root"]),
    )
    for caveat in sampler.caveats:
        say(caveat)
    ended = _record(sampler, program, given["duration"], output)
    if output != "-":
        _say_what_was_recorded(output)
    if ended is not None:
        return _judge(program[0], ended)
    return 0


def _record(
    sampler: LiveSampler, program: tuple[str, ...], seconds: float | None, output: str
) -> Ended | None:
    from measurements.timeseries.live import Command, for_seconds
    from measurements.timeseries.own import Writer

    with Writer(output) as writer:
        if not program:
            for row in sampler.rows(for_seconds(float("inf") if seconds is None else seconds)):
                writer.write(row)
            return None
        running = Command(program)
        try:
            for row in sampler.rows(running.wait):
                writer.write(row)
        finally:
            ended = running.end()
        return ended


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say_what_was_recorded(output: str) -> None:
    from measurements.timeseries import read_time_series

    for line in read_time_series(output).summary().splitlines():
        say(line)


def _judge(name: str, ended: Ended) -> int:
    """Say how the command ended; 1 where it failed."""
    say(f"{name}: {ended.user_s:.6g} s user and {ended.system_s:.6g} s system CPU time of its own")
    if ended.exit_code == 0:
        return 0
    how = f"signal {-ended.exit_code}" if ended.exit_code < 0 else f"exit code {ended.exit_code}"
    say(f"error: {name}: ended with {how}")
    return 1


# `ppw sensors`.


@click.command(
    name="sensors",
    short_help="List what this host can measure, and why not the rest.",
    epilog="Example: ppw sensors --format json",
)
@output_options_of("text", "json")
@click.option("--sysfs", default="/sys", hidden=True)
@click.option("--procfs", default="/proc", hidden=True)
def sensors_command(format_: str, sysfs: str, procfs: str, output: str) -> None:
    """Try every source of watts, the counters and the clock of this host; nothing is changed."""
    from measurements.sweep.measure import find_sensors

    found = find_sensors(Path(sysfs), Path(procfs))
    text = _sensors_json(found) if format_ == "json" else _sensors_text(found)
    write(text + "\n", output)


def _sensors_text(sensors: list[HostSensor]) -> str:
    """Table of what there is, then the reasons for what there is not."""
    from ppw.results.text import text_table

    words = {True: "yes", False: "no", None: "by address"}
    there = [[s.name, words[s.available], s.detail] for s in sensors if s.available is not False]
    lines: list[str] = [text_table(["sensor", "here", "what"], there)]
    lines += [f"{s.name}: not here: {s.detail}" for s in sensors if s.available is False]
    return "\n".join(lines)


def _sensors_json(sensors: list[HostSensor]) -> str:
    """The same as a JSON list."""
    return json.dumps([asdict(s) for s in sensors], indent=1, ensure_ascii=False)
