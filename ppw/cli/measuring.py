"""`ppw measure`, `ppw sample` and `ppw sensors`: what this host does and can tell."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import ppw
from measurements.table.units import frequency_text
from ppw.cli import options as opt
from ppw.cli import output as out
from ppw.results.text import shown, text_table

if TYPE_CHECKING:
    from types import FrameType

    import pandas as pd

    from measurements.sweep.loop import SweepOptions
    from measurements.sweep.measure import HostOptions, HostSensor
    from measurements.timeseries.live import CommandEnd, LiveSampler


@opt.command(
    "measure",
    "Measure a command's time, power and counters at several frequencies.",
    "ppw measure --freq 1.2GHz,1.8GHz --power rapl,ipmi@bmc-7 -o runs.parquet -- "
    "sort --parallel=4 big.txt",
    click.argument("command", nargs=-1),
    opt.FREQUENCY,
    opt.options("""
    --as-found: Leave the core frequency as it is.
    --cores N[,…]: Numbers of physical cores to use. Default: all.
    """),
    opt.repeats_option(5),
    opt.options("""
    --warm-ups N>=0 (1): Number of executions before the first run; they are not recorded.
    --at-least TIME as at_least_s (0): Time that a run lasts; a shorter command is executed several
        times.
    """),
    opt.POWER,
    opt.metrics_option(("time", "cpi", "power"), "all"),
    opt.WORKLOAD,
    opt.DATA,
    opt.ROW,
    opt.PACE,
    opt.options(
        """
    --probe-memory: Measure memory bandwidth and latency first.
    --dry-run: Print what a sweep would write and run, and stop.
    --replay FOLDER: Folder of raw readings to make the table from again.
    --ssh HOST: Measure on another host, which has ppw.
    --simulate [inorder|o3][,…]: Simulated cores: inorder (small), o3 (large, out of order), or
        both. COMMAND names kernels or ELF files for the bare RISC-V machine.
    --stream:
    """,
        FOLDER=click.Path(path_type=Path, file_okay=False),
    ),
    opt.KERNEL,
    opt.table_option(required=False),
    context_settings={"ignore_unknown_options": False},
)
@click.pass_context
def measure_command(ctx: click.Context, /, **given: Any) -> int:
    """Measure COMMAND's time, power and counters, several times at each frequency, in random order.

    Whatever is changed on the host is put back on every way out. Each run is in the table's file
    before the next begins.
    """
    if given["simulate"]:
        return measure_simulated(ctx, given)
    if given["ssh"]:
        from measurements.sweep.measure import measure_on

        return measure_on(given["ssh"], sys.argv, given["output"])
    if given["replay"] is not None:
        return _replay_session(given["replay"], given["output"])
    if not given["command"] and not given["resume"]:
        raise click.UsageError("no COMMAND: give it after --, as in ppw measure … -- sort big.txt")
    if not (given["freqs"] or given["as_found"] or given["resume"]):
        raise click.UsageError("say which clocks: --freq 1.2GHz,1.8GHz, or --as-found")
    if given["freqs"] and given["as_found"]:
        raise click.UsageError("--freq sets the clock and --as-found leaves it: give one")
    opt.refuse_two_frequencies(given)
    return _measure(given)


def _measure(given: opt.Given) -> int:
    from measurements.sweep import measure

    options = _sweep_options(given)
    metrics = given["metrics"] or measure.METRICS
    host = opt.measured_host_options(given, metrics, as_found=given["as_found"])
    if given["dry_run"]:
        for line in measure.dry_run(options, host):
            click.echo(line)
        return 0
    if not given["output"]:
        raise click.UsageError("no -o FILE: where is the table to go?")
    opt.refuse_standard_output(given["output"])
    # Behind --stream is another host's ppw: when its connection ends, so does the sweep.
    if given["stream"]:
        from measurements.sweep.measure import end_with_input

        end_with_input()
    table = _run_sweep(options, host, given)
    if not given["stream"]:
        click.echo(measure_summary(table))
    return 0


def _sweep_options(given: opt.Given) -> SweepOptions:
    import socket

    from measurements.sweep.loop import SweepOptions

    program = given["command"]
    return opt.pick_fields(
        SweepOptions,
        given,
        workload=given["workload"] or (Path(program[0]).name if program else ""),
        host=given["host"] or socket.gethostname(),
        frequencies=tuple(given["freqs"] or ()),
        clock_hz=given["clock"],
    )


def _run_sweep(options: SweepOptions, host: HostOptions, given: opt.Given) -> pd.DataFrame:
    """Measure; with --stream each row is a line of JSON as soon as it is there."""
    from measurements.sweep.measure import set_up

    stream = given["stream"]
    with out.Progress() as progress:
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


def _replay_session(folder: Path, output: str | None) -> int:
    from measurements.sweep.session import Session, session_table

    table = session_table(Session.open(folder))
    if table.empty:
        raise ppw.PpwError(f"{folder}: no run that went well is in there")
    if output:
        ppw.write_runs(table, output)
    if output != "-":
        click.echo(measure_summary(table))
    return 0


def measure_summary(table: pd.DataFrame) -> str:
    """Medians by set-up, as text."""
    columns = {"time_s": "s", "power_w": "W", "cpi": "1", "energy_j": "J/run"}
    keys = [c for c in ("workload", "cores", "freq_hz") if c in table]

    def head(values: Any, part: pd.DataFrame) -> list[str]:
        pairs = zip(keys, values, strict=True)
        names = [frequency_text(k) if c == "freq_hz" else str(k) for c, k in pairs]
        return [*names, str(len(part))]

    def spread_text(part: pd.DataFrame) -> str:
        time = part["time_s"]
        return f"{(time.max() - time.min()) / time.median():.1%}"

    titles = {c: (c.rpartition("_")[0] or c, unit, 1.0) for c, unit in columns.items()}
    header = [*(c.removesuffix("_hz") for c in keys), "runs"]
    return out.medians_text(table, keys, header, head, titles, ("time spread", spread_text))


# `ppw measure --simulate CORE[,…]`: kernels or bare-metal programs on simulated cores.
def measure_simulated(ctx: click.Context, given: opt.Given) -> int:
    """Simulate the programs that were asked for, and write their runs table."""
    # Other options mean nothing there.
    for name in opt.typed_options(ctx, "simulate", "command", "freqs", "data_bytes", "output"):
        raise click.UsageError(f"{name} says nothing to a simulated core", ctx)
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


def _simulate(given: opt.Given) -> None:
    import pandas as pd

    from measurements.workloads.simulated import WHOLE, simulate_sweep
    from ppw.runs.caveats import SIMULATED

    programs, cores, clocks = given["command"], given["simulate"], given["freqs"]
    count = len(programs) * len(cores) * len(clocks)
    data_bytes = None if given["data_bytes"] is None else round(given["data_bytes"])
    processes = len(os.sched_getaffinity(0))
    rows: list[dict[str, Any]] = []
    texts: list[list[str]] = []
    sweep = simulate_sweep(programs, cores, clocks, processes=processes, data_bytes=data_bytes)
    for cell, row in sweep:
        rows.append(row)
        clock = frequency_text(cell.freq_hz)
        figures = shown(row["time_s"], "s"), f"{row['cpi']:.4g}"
        texts.append([row["workload"], cell.core, clock, *figures])
        out.say(f"{len(rows)} of {count}: {row['workload']} on {cell.core}, {clock}")
    ppw.write_runs(pd.DataFrame(rows), given["output"])
    out.say(f"caveat: {SIMULATED}")
    unmarked = dict.fromkeys(row["workload"] for row in rows if row["region"] == WHOLE)
    if unmarked:
        out.say(f"caveat: {', '.join(unmarked)}: without marks of a region, so set-up counts too")
    if given["output"] != "-":
        click.echo(text_table(["workload", "core", "freq", "time", "cpi"], texts))


# `ppw sample`.
@opt.command(
    "sample",
    "Record this host's CPU time, memory, disks and network while a command runs.",
    "ppw sample -o sort.parquet -- sort --parallel=4 big.txt",
    click.argument("command", nargs=-1),
    opt.options("""
    -o, --output FILE (required): Time series to write: .csv, .parquet or .jsonl. - writes CSV to
        standard output, if there is no COMMAND.
    --duration TIME: Time to record, without a COMMAND.
    --every was --interval TIME (1s): Time between two rows.
    --disk NAME[,…] as disks: Disks whose transfers are the host's: loop0. Default: the physical
        ones.
    --host NAME: Name of this host in the series. Default: its own.
    """),
    opt.KERNEL,
    opt.options("--root FOLDER (/):"),
)
def sample_command(
    command: tuple[str, ...], output: str, duration: float | None, every: float, **given: Any
) -> int:
    """Record this host, a row an interval, until COMMAND ends, the time is over or Ctrl-C.

    Each row is in the file before the next begins. Only the kernel's counts are read; nothing is
    changed.
    """
    from measurements.timeseries.live import LiveSampler

    if command and duration is not None:
        raise click.UsageError(
            "with a COMMAND it is recorded until that ends: leave out --duration"
        )
    if command and output == "-":
        raise click.UsageError("standard output is the COMMAND's: give -o a file")
    # SIGTERM ends a recording as Ctrl-C does: the file is complete either way.
    signal.signal(signal.SIGTERM, _raise_interrupt)
    given |= {name: Path(given[name]) for name in ("procfs", "sysfs", "root")}
    sampler = LiveSampler(interval_s=every, **given)
    for caveat in sampler.caveats:
        out.say(caveat)
    ended = _record(sampler, command, duration, output)
    if output != "-":
        _summarise_series(output)
    return 0 if ended is None else _exit_code_of(command[0], ended)


def _record(
    sampler: LiveSampler, program: tuple[str, ...], seconds: float | None, output: str
) -> CommandEnd | None:
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


def _raise_interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _summarise_series(output: str) -> None:
    from measurements.timeseries import read_time_series

    for line in read_time_series(output).summary().splitlines():
        out.say(line)


def _exit_code_of(name: str, ended: CommandEnd) -> int:
    """Say how the command ended; 1 where it failed."""
    out.say(
        f"{name}: {ended.user_s:.6g} s user and {ended.system_s:.6g} s system CPU time of its own"
    )
    if ended.exit_code == 0:
        return 0
    how = f"signal {-ended.exit_code}" if ended.exit_code < 0 else f"exit code {ended.exit_code}"
    out.say(f"error: {name}: ended with {how}")
    return 1


# `ppw sensors`.
@opt.command(
    "sensors",
    "List what this host can measure, and why not the rest.",
    "ppw sensors --format json",
    opt.output_options_of("text", "json"),
    opt.KERNEL,
)
def sensors_command(format_: str, sysfs: str, procfs: str, output: str) -> None:
    """Try every source of power, the counters and the clock of this host; nothing is changed."""
    from measurements.sweep.measure import find_sensors

    found = find_sensors(Path(sysfs), Path(procfs))
    in_json = json.dumps([asdict(s) for s in found], indent=1, ensure_ascii=False)
    out.write((in_json if format_ == "json" else _sensors_text(found)) + "\n", output)


def _sensors_text(sensors: list[HostSensor]) -> str:
    """Table of what there is, then the reasons for what there is not."""
    words = {True: "yes", False: "no", None: "by address"}
    there = [[s.name, words[s.available], s.detail] for s in sensors if s.available is not False]
    lines: list[str] = [text_table(["sensor", "here", "what"], there)]
    lines += [f"{s.name}: not here: {s.detail}" for s in sensors if s.available is False]
    return "\n".join(lines)
