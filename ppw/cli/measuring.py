"""`ppw measure` and `ppw sample`: what this host does, and what it can tell."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from dataclasses import asdict
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import ppw
from measurements import sweep, timeseries, workloads
from measurements.host import activity
from measurements.table.units import frequency_text
from ppw.cli import options as opt, output as out
from ppw.results.text import shown, text_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from rich.live import Live


# Options of the commands that measure this host.
WORKLOAD = opt.options("--workload NAME: Name of the workload. Default: the name of the command.")
DATA = opt.options("--data SIZE as data_bytes: Input size: 10GB.")
HOST = opt.options("--host NAME: Name of this host in the table. Default: its host name.")
FAMILY = opt.options("--family NAME: Microarchitecture family: Westmere.")
KERNEL = opt.options("""
    --sysfs FOLDER (/sys):
    --procfs FOLDER (/proc):
""")
POWER = opt.options("""
    --power SOURCE[,…]: Source of power readings: rapl, ipmi@HOST, redfish@HOST,ca=FILE,
        meter@RESOURCE, log@FILE, …, or none; ppw measure --list-sensors lists them and their
        options. Default: those that this host has.
""")
FREQUENCY = opt.options("""
    --freq was --freqs FREQUENCY[,…] as freqs: Core frequencies to fix: 1.2GHz,1.8GHz.
    --clock FREQUENCY: Core frequency, if ppw does not set it and cannot read it from the host.
    --turbo [on|off]: Turbo state to set. Default: unchanged.
""")
ROW = opt.all_of(HOST, FAMILY, opt.options("--price PRICE>0: Price of this host."))
PACE = opt.all_of(
    opt.options("""
    --idle TIME as idle_s (10s): Time for which idle power is measured first, if power can be read.
    --settle TIME as settle_s (2s): Time to wait after each change of the core frequency.
    --every was --interval TIME (0.1s): Time between power readings, if the power source is fast
        enough.
    --timeout TIME as timeout_s (10s): Time for a BMC or meter to answer.
    """),
    opt.SEED,
    opt.options("--resume: Continue an interrupted sweep."),
)


def repeats_option(default: int) -> opt.Decorator:
    """Make --repeats."""
    return opt.options(f"--repeats N>=1 ({default}): Number of runs per set-up.")


def metrics_option(choices: Sequence[str], default: str) -> opt.Decorator:
    """Make --metric: what has to be measured, of ``choices``."""
    return opt.options(
        f"--metric [{'|'.join(choices)}][,…] as metrics: Metrics that must be measured: "
        f"{', '.join(choices)}. ppw measures other metrics if possible. Default: {default}."
    )


def table_option(*, required: bool) -> opt.Decorator:
    """Make --output of the commands that write a runs table run by run."""
    return opt.options(
        f"-o, --output FILE{' (required)' * required}: Runs table to write: .parquet, .csv or "
        ".jsonl. ppw stores raw readings in a folder beside the table."
    )


def refuse_two_frequencies(given: opt.Given) -> None:
    """Refuse --clock beside --freq."""
    if given["freqs"] and given["clock"]:
        raise click.UsageError(
            "--clock states a core frequency that ppw does not set, but --freq sets one: give "
            "only one"
        )


def refuse_standard_output(output: str) -> None:
    """Refuse -o -, for a table that grows."""
    if output == "-":
        raise click.UsageError("-o needs a file, because ppw rewrites the table after every run")


def measured_host_options(
    given: opt.Given, metrics: Sequence[str], *, as_found: bool
) -> sweep.measure.HostOptions:
    """Make the host options of `measurements.sweep.measure` from command-line options."""
    return opt.pick_fields(
        sweep.measure.HostOptions,
        given,
        metrics=tuple(metrics),
        as_found=as_found,
        turbo={"on": True, "off": False, None: None}[given["turbo"]],
        interval_s=given["every"],
    )


# Progress of a sweep: a bar with the last runs on a terminal; elsewhere only what it says.
_ROWS = 8
_SHOWN = {"time_s": "s", "power_w": "W", "cpi": "1", "temperature_c": "°C"}


class Progress:
    """Live table of the last runs and the time that is left, on standard error."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._plain = False
        self._rows: list[dict[str, Any]] = []
        self._started = 0.0
        self._done = self._all = 0

    def __enter__(self) -> Progress:
        """Begin; without a terminal nothing is drawn."""
        # Without rich a terminal gets a line for each run.
        self._plain = sys.stderr.isatty() and find_spec("rich") is None
        if sys.stderr.isatty() and not self._plain:
            from rich import console, live

            errors = console.Console(stderr=True)
            self._live = live.Live(console=errors, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()

    def tell(self, text: str) -> None:
        """Print a line above the progress display, which stays there."""
        if self._live is not None:
            self._live.console.print(out.message_line(text), markup=False, highlight=False)
        else:
            out.say(text)

    def expect(self, runs: int) -> None:
        """Set the number of runs to do, and start the clock."""
        self._started, self._all = time.monotonic(), runs

    def show(self, row: dict[str, Any]) -> None:
        """Add a run that has ended to the progress display."""
        self._done += 1
        self._rows = [*self._rows[-_ROWS + 1 :], row]
        if self._live is not None:
            self._live.update(self._render_runs_and_bar())
        elif self._plain:
            out.say(self._done_text())

    def _done_text(self) -> str:
        each = (time.monotonic() - self._started) / max(self._done, 1)
        left = timedelta(seconds=round(each * (self._all - self._done)))
        return f"{self._done} of {self._all} runs, {left} left"

    def _render_runs_and_bar(self) -> Any:
        from rich import console, progress_bar, table

        runs = table.Table(box=None, pad_edge=False)
        columns = [c for c in _SHOWN if any(c in row for row in self._rows)]
        for name in ("clock", "cores", "repeat", *(c.rpartition("_")[0] or c for c in columns)):
            runs.add_column(name, justify="right")
        for row in self._rows:
            cells = [frequency_text(row["freq_hz"]), str(row.get("cores", "–")), str(row["repeat"])]
            runs.add_row(*cells, *(shown(row.get(c), _SHOWN[c]) for c in columns))
        bar = progress_bar.ProgressBar(total=self._all, completed=self._done, width=40)
        return console.Group(runs, bar, f" {self._done_text()}")


@opt.command(
    "measure",
    "Measure a command's time, power and counters at several frequencies.",
    "ppw measure --freq 1.2GHz,1.8GHz --power rapl,ipmi@bmc-7 -o runs.parquet -- "
    "sort --parallel=4 big.txt",
    click.argument("command", nargs=-1),
    FREQUENCY,
    opt.options("""
    --as-found: Leave the core frequency unchanged.
    --cores N[,…]: Number of physical cores to use, one or several: 1,2,4. Default: all.
    """),
    repeats_option(5),
    opt.options("""
    --warm-ups N>=0 (1): Number of executions before the first run that are not recorded.
    --at-least TIME as at_least_s (0): Shortest time of a run. A shorter command is executed several
        times in one run.
    """),
    POWER,
    metrics_option(("time", "cpi", "power"), "all"),
    WORKLOAD,
    DATA,
    ROW,
    PACE,
    opt.other_question(
        "--list-sensors", "List what this host can measure, and why it cannot measure the rest."
    ),
    opt.options(
        """
    --probe-memory: Measure memory bandwidth and latency first.
    --dry-run: Print the settings and runs of the sweep, and stop before the first run.
    --replay FOLDER: Compute the table again from this folder of raw readings.
    --ssh HOST: Measure on another host, where ppw is installed.
    --simulate [inorder|o3][,…]: Simulated cores: inorder (small), o3 (large, out of order), or
        both. COMMAND is a list of kernels or of ELF files for the bare RISC-V machine.
    --stream:
    """,
        FOLDER=click.Path(path_type=Path, file_okay=False),
    ),
    KERNEL,
    table_option(required=False),
    context_settings={"ignore_unknown_options": False},
)
@click.pass_context
def measure_command(ctx: click.Context, /, **given: Any) -> int:
    """Measure COMMAND's time, power and counters, several times at each frequency, in random order.

    ppw restores every changed setting of the host, also after an error or Ctrl-C. It writes each
    run to the file before the next run begins.
    """
    # These three change nothing on this host, so what it would need is not asked for.
    if given["simulate"]:
        return measure_simulated(ctx, given)
    if given["ssh"] is not None:
        return sweep.measure.measure_on(given["ssh"], sys.argv, given["output"])
    if given["replay"] is not None:
        return _export_session_runs(given["replay"], given["output"])
    if not given["command"] and not given["resume"]:
        raise click.UsageError("no COMMAND: give it after --, as in ppw measure … -- sort big.txt")
    if not (given["freqs"] or given["as_found"] or given["resume"]):
        raise click.UsageError("no core frequency: give --freq 1.2GHz,1.8GHz, or --as-found")
    if given["freqs"] and given["as_found"]:
        raise click.UsageError(
            "--freq sets the core frequency and --as-found leaves it unchanged: give one of them"
        )
    refuse_two_frequencies(given)
    return _measure_or_dry_run(given)


def _measure_or_dry_run(given: opt.Given) -> int:
    options = _make_sweep_options(given)
    metrics = given["metrics"] or sweep.measure.METRICS
    host = measured_host_options(given, metrics, as_found=given["as_found"])
    if given["dry_run"]:
        for line in sweep.measure.dry_run(options, host):
            click.echo(line)
        return 0
    if not given["output"]:
        raise click.UsageError("no -o FILE: where is the table to go?")
    refuse_standard_output(given["output"])
    # Behind --stream is another host's ppw: when its connection ends, so does the sweep.
    if given["stream"]:
        sweep.measure.end_with_input()
    table = _run_sweep(options, host, given)
    if not given["stream"]:
        click.echo(measure_summary(table))
    return 0


def _make_sweep_options(given: opt.Given) -> sweep.loop.SweepOptions:
    program = given["command"]
    return opt.pick_fields(
        sweep.loop.SweepOptions,
        given,
        workload=given["workload"] or (Path(program[0]).name if program else ""),
        host=given["host"] or socket.gethostname(),
        frequencies=tuple(given["freqs"] or ()),
        clock_hz=given["clock"],
    )


def _run_sweep(
    options: sweep.loop.SweepOptions, host: sweep.measure.HostOptions, given: opt.Given
) -> pd.DataFrame:
    """Run a sweep and return its table; with --stream print each row as a line of JSON at once."""
    stream = given["stream"]
    with Progress() as progress:
        with sweep.measure.set_up(
            options,
            host,
            Path(given["output"]),
            resume=given["resume"],
            probe_memory=given["probe_memory"],
            tell=progress.tell,
        ) as opened:
            progress.expect(opened.left())
            # Whoever reads the stream wants the whole table, rows before an interruption too.
            for row in opened.earlier() if stream else ():
                click.echo(json.dumps(row))
            for row in opened.rows():
                progress.show(row)
                if stream:
                    click.echo(json.dumps(row))
        return opened.table()


def _export_session_runs(folder: Path, output: str | None) -> int:
    table = sweep.session.session_table(sweep.session.Session.open(folder))
    if table.empty:
        raise ppw.PpwError(f"{folder}: the folder holds no successful run")
    if output:
        ppw.write_runs(table, output)
    if output != "-":
        click.echo(measure_summary(table))
    return 0


def measure_summary(table: pd.DataFrame) -> str:
    """Tabulate medians of time, power, CPI and energy by workload, cores and frequency, as text."""
    columns = {"time_s": "s", "power_w": "W", "cpi": "1", "energy_j": "J/run"}
    keys = [c for c in ("workload", "cores", "freq_hz") if c in table]

    def setup_cells(values: Any, part: pd.DataFrame) -> list[str]:
        pairs = zip(keys, values, strict=True)
        names = [frequency_text(k) if c == "freq_hz" else str(k) for c, k in pairs]
        return [*names, str(len(part))]

    def spread_text(part: pd.DataFrame) -> str:
        time = part["time_s"]
        return f"{(time.max() - time.min()) / time.median():.1%}"

    titles = {c: (c.rpartition("_")[0] or c, unit, 1.0) for c, unit in columns.items()}
    header = [*(c.removesuffix("_hz") for c in keys), "runs"]
    return out.medians_text(table, keys, header, setup_cells, titles, ("time spread", spread_text))


# `ppw measure --simulate CORE[,…]`: kernels or bare-metal programs on simulated cores.
def measure_simulated(ctx: click.Context, given: opt.Given) -> int:
    """Simulate the programs that were asked for and write their runs table; exit code 0."""
    # Other options mean nothing there.
    for name in opt.typed_options(ctx, "simulate", "command", "freqs", "data_bytes", "output"):
        raise click.UsageError(f"{name} has no effect on a simulated core", ctx)
    if not given["command"]:
        kernels = ", ".join(workloads.simulated.KERNELS)
        raise click.UsageError(f"no program: give one of {kernels}, or a bare-metal ELF file", ctx)
    if not given["freqs"]:
        raise click.UsageError("no core frequency: give --freq 1.2GHz,2GHz", ctx)
    if not given["output"]:
        raise click.UsageError("no -o FILE: where is the table to go?", ctx)
    _simulate_and_write(given)
    return 0


def _simulate_and_write(given: opt.Given) -> None:
    import pandas as pd

    from ppw.runs.prepare import SIMULATED

    programs, cores, clocks = given["command"], given["simulate"], given["freqs"]
    count = len(programs) * len(cores) * len(clocks)
    data_bytes = None if given["data_bytes"] is None else round(given["data_bytes"])
    processes = len(os.sched_getaffinity(0))
    rows: list[dict[str, Any]] = []
    texts: list[list[str]] = []
    simulated = workloads.simulated
    how: dict[str, Any] = {"processes": processes, "data_bytes": data_bytes}
    for cell, row in simulated.simulate_sweep(programs, cores, clocks, **how):
        rows.append(row)
        clock = frequency_text(cell.freq_hz)
        figures = shown(row["time_s"], "s"), f"{row['cpi']:.4g}"
        texts.append([row["workload"], cell.core, clock, *figures])
        out.say(f"{len(rows)} of {count}: {row['workload']} on {cell.core}, {clock}")
    ppw.write_runs(pd.DataFrame(rows), given["output"])
    out.say(f"caveat: {SIMULATED}")
    unmarked = dict.fromkeys(row["workload"] for row in rows if row["region"] == simulated.WHOLE)
    if unmarked:
        out.say(
            f"caveat: {', '.join(unmarked)}: the program marks no measured region, so its set-up "
            "counts too"
        )
    if given["output"] != "-":
        click.echo(text_table(["workload", "core", "freq", "time", "cpi"], texts))


# `ppw sample`.
@opt.command(
    "sample",
    "Record CPU time, memory, disk and network use of this host while a command runs.",
    "ppw sample -o sort.parquet -- sort --parallel=4 big.txt",
    click.argument("command", nargs=-1),
    opt.options("""
    -o, --output FILE (required): Time series to write: .csv, .parquet or .jsonl. Without a COMMAND,
        - writes CSV to standard output.
    --duration TIME: Length of the recording, without a COMMAND.
    --every was --interval TIME (1s): Time between two rows.
    --disk NAME[,…] as disks: Disks whose transfers to add up: loop0. Default: the physical disks.
    --host NAME: Name of this host in the series. Default: its host name.
    """),
    KERNEL,
    opt.options("--root FOLDER (/):"),
)
def sample_command(
    command: tuple[str, ...], output: str, duration: float | None, every: float, **given: Any
) -> int:
    """Record one row per interval on this host, until COMMAND or --duration ends, or Ctrl-C.

    ppw writes each row before the next interval begins. It only reads the kernel's counters and
    changes nothing.
    """
    if command and duration is not None:
        raise click.UsageError(
            "with a COMMAND, ppw records until COMMAND ends: leave out --duration"
        )
    if command and output == "-":
        raise click.UsageError("standard output is the COMMAND's: give -o a file")
    # SIGTERM ends a recording as Ctrl-C does: the file is complete either way.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    given |= {name: Path(given[name]) for name in ("procfs", "sysfs", "root")}
    sampler = timeseries.LiveSampler(interval_s=every, **given)
    for caveat in sampler.caveats:
        out.say(caveat)
    ended, host = _record_samples(sampler, command, duration, output)
    if output != "-":
        for line in timeseries.read_time_series(output).summary().splitlines():
            out.say(line)
    return 0 if ended is None else _report_command_end(command[0], ended, host)


def _record_samples(
    sampler: timeseries.LiveSampler, program: tuple[str, ...], seconds: float | None, output: str
) -> tuple[timeseries.live.CommandEnd | None, dict[str, float]]:
    """Record until the program or the seconds end; how the program ended, and host's totals (s)."""
    live, host = timeseries.live, dict[str, float]()
    with timeseries.series.Writer(output) as writer:
        if not program:
            for row in sampler.rows(live.for_seconds(float("inf") if seconds is None else seconds)):
                writer.write(row)
            return None, host
        running = live.Command(program)
        try:
            for row in running.rows(sampler):
                writer.write(row)
                for column in ("interval_s", *timeseries.series.CPU_COLUMNS):
                    host[column] = host.get(column, 0.0) + (row[column] or 0.0)
        finally:
            # Ctrl-C ends the recording; the command must not outlive it.
            ended = running.end()
        return ended, host


def _report_command_end(
    name: str, ended: timeseries.live.CommandEnd, host: Mapping[str, float]
) -> int:
    """Print CPU time of the command and of others, and how it failed; 1 where it failed, else 0."""
    out.say(
        f"{name}: {ended.user_s:.6g} s user and {ended.system_s:.6g} s system CPU time of its own"
    )
    others = activity.other_work(host, ended.user_s + ended.system_s, host["interval_s"])
    if others and others["other_cpu_share"] > activity.MOST_OTHER_WORK:
        out.say(
            f"other work took {others['other_cpu_share']:.0%} of the CPU time: the rows are of the "
            "whole host, so close other programs and record again"
        )
    code = ended.exit_code
    if code:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        out.say(f"error: {name}: ended with {how}")
    return 1 if code else 0


# `ppw measure --list-sensors`.
@opt.command(
    "sensors",
    "List what this host can measure, and why it cannot measure the rest.",
    "ppw measure --list-sensors --format json",
    opt.output_options_of("text", "json"),
    KERNEL,
)
def sensors_command(format_: str, sysfs: str, procfs: str, output: str) -> None:
    """Test all power sources, counters and frequency control of this host, and change nothing."""
    found = sweep.measure.find_sensors(Path(sysfs), Path(procfs))
    in_json = json.dumps([asdict(s) for s in found], indent=1, ensure_ascii=False)
    out.write((in_json if format_ == "json" else _sensors_text(found)) + "\n", output)


# What root writes once, so that power is read without root, also after the next boot.
_POWER_RULE = """
For a group named power, which may then see what others compute, as root:
  cat > /etc/udev/rules.d/60-ppw.rules <<'END'
SUBSYSTEM=="powercap", KERNEL=="intel-rapl:*", ACTION=="add", \
  RUN+="/bin/sh -c 'cd /sys%p && chgrp power energy_uj && chmod g+r energy_uj'"
END
  udevadm control --reload && udevadm trigger --subsystem-match=powercap --action=add"""


def _sensors_text(sensors: list[sweep.measure.HostSensor]) -> str:
    """Tabulate the sensors that are here, then say why the others are not."""
    # A BMC or a meter on the network is there only once its address is named.
    words = {True: "yes", False: "no", None: "by address"}
    there = [[s.name, words[s.available], s.detail] for s in sensors if s.available is not False]
    lines: list[str] = [text_table(["sensor", "here", "what"], there)]
    away = [s for s in sensors if s.available is False]
    lines += [f"{s.name}: not here: {s.detail}" for s in away]
    lines += [_POWER_RULE] * any("energy_uj" in s.detail and "only root" in s.detail for s in away)
    return "\n".join(lines)
