"""`ppw fleet`: the answers over more runs than fit in memory."""

from __future__ import annotations

import functools
import inspect
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import ppw.fleet
from ppw.cli import NamedCommands, options as opt, output as out, runs_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ppw.fleet.projections import FleetAnswer


@click.group(
    name="fleet",
    cls=NamedCommands,
    short_help="Fit, project and check millions of runs, on DuckDB or Spark.",
    epilog="Example: ppw fleet project runs/ --freq 3.0GHz --output projected.parquet",
)
def fleet_command() -> None:
    """Fit, project and validate folders of run files that are larger than memory.

    The engine aggregates the runs to moments in one pass. The results equal those of ppw fit,
    project and validate. If a file cannot be read, ppw names it, skips it and exits with code 1.
    """


ENGINE = opt.options(
    """
    --engine [duckdb|spark] (duckdb): Engine that reads the runs. With spark, ppw uses the session
        of spark-submit, or starts a local one.
    --memory-limit SIZE: Memory limit of the engine: 4GiB.
    --temporary FOLDER: Folder for temporary files of the engine, when data exceed its memory.
    --threads N>=1: Number of threads. Default: one per CPU of this machine.
    --keep-going: Exit 0 even if some files or runs could not be used.
    """,
    SIZE=click.STRING,
)
_ASKING = opt.all_of(
    ENGINE, opt.output_options_of("text", "json", "csv", "html", elsewhere=("parquet",))
)
_FILES = (
    "RUNS are Parquet, CSV or JSON-lines files, folders of them, patterns or URLs. FILE may end in "
    ".parquet."
)


@contextmanager
def progress_bar() -> Iterator[Callable[[float], None] | None]:
    """Draw a progress bar on a terminal; yields what sets its share (0 to 1), else None."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1000, label="reading runs", file=sys.stderr) as bar:
        yield lambda share: bar.update(int(1000 * share) - bar.pos)


def fleet_question(
    name: str, short: str, example: str, *added: opt.Decorator
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command of a function that asks a fleet, as `ppw.cli.options.question` does.

    The function takes what the questions of `ppw.fleet` take. Faults of files and runs are named on
    standard error and make the exit code 1. What RUNS and FILE are is added to the help.
    """

    def make_command(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def ask_fleet(
            *, mapping: dict[str, str], keep_going: bool, format_: str, output: str, **options: Any
        ) -> int:
            with out.caveats_in_result():
                found = _ask_with_progress(function, columns=mapping, **options)
                result, failure = found if isinstance(found, tuple) else (found, None)
                _write_answer(result, format_, output)
            # One line a fault, since each file needs its own mending.
            for fault in result.faults:
                out.say(f"fault: {fault}")
            if result.faults and not keep_going:
                count = f"{len(result.faults)} faults"
                out.say(f"{count}: the answer leaves these out; with --keep-going ppw exits 0")
                return 1
            return out.report_failed_check(failure) if failure else 0

        ask_fleet.__doc__ = f"{inspect.getdoc(function)}\n\n{_FILES}"
        return opt.command(name, short, example, *added, _ASKING, group=fleet_command)(ask_fleet)

    return make_command


def _ask_with_progress(function: Callable[..., Any], **options: Any) -> Any:
    """Call a fleet question with a progress bar; print the notes of an error before raising it."""
    with progress_bar() as progress:
        try:
            return function(progress=progress, **options)
        except ppw.PpwError as error:
            # The engine adds the files that it had to leave out, which may be the cause.
            for note in getattr(error, "__notes__", ()):
                out.say(note)
            raise


def _write_answer(answer: FleetAnswer[Any], format_: str, output: str) -> None:
    """Write an answer by format or ending; text on standard output leaves out the faults."""
    if output.lower().endswith(".parquet"):
        out.say_caveats(answer.caveats)
        answer.write(output)
        return
    # A person who reads the text sees the messages beside it: there they would stand twice.
    aside = format_ == "text" and output == "-"
    out.emit(replace(answer, faults=()) if aside else answer, format_, output)


@fleet_question(
    "fit",
    "Give the parameters of every curve of a fleet.",
    "ppw fleet fit runs/ --metric time -o laws.parquet",
    opt.TABLE_METRIC,
    opt.FIT,
    opt.KEEP_ALL,
)
def fleet_fit_command(runs: opt.Runs, **options: Any) -> FleetAnswer[Any]:
    """Fit the curves of every group of RUNS and give their parameters."""
    return ppw.fleet.fit(runs, **options)


@fleet_question(
    "project",
    "Project every group of a fleet to another frequency.",
    "ppw fleet project runs/ --freq 3.0GHz -o projected.parquet",
    opt.TABLE_METRIC,
    opt.options("--freq FREQUENCY[,…] (required): Frequencies to project to: 3.0GHz."),
    opt.FIT,
    opt.INTERVAL,
    opt.LEVEL,
)
def fleet_project_command(runs: opt.Runs, **options: Any) -> FleetAnswer[Any]:
    """Project every group of RUNS to frequencies that were not measured."""
    return ppw.fleet.project(runs, **options)


@fleet_question(
    "validate",
    "Compare projections of a fleet with measurements that were not used to fit them.",
    "ppw fleet validate runs/ --train 1.2GHz,1.8GHz --test 2.4GHz --max-error 10",
    runs_tables.VALIDATION,
)
def fleet_validate_command(
    runs: opt.Runs, max_error: float | None, **options: Any
) -> tuple[FleetAnswer[Any], str | None]:
    """Project from some runs of RUNS and compare the result with others."""
    answer = ppw.fleet.validate(runs, **(options | runs_tables.train_and_test(options)))
    return answer, runs_tables.excess_error(answer.answer, max_error)


@fleet_question(
    "pathlength",
    "Instructions per byte of a fleet against cores and data size.",
    "ppw fleet pathlength counts/",
    opt.TABLE_ALONE,
    opt.TOLERANCE,
    opt.LEVEL,
)
def fleet_pathlength_command(runs: opt.Runs, **options: Any) -> FleetAnswer[Any]:
    """Fit path length against cores and data size to RUNS with instructions and data_bytes."""
    return ppw.fleet.path_lengths(runs, **options)


@fleet_question(
    "check",
    "List the runs of a fleet that are probably wrong, with the evidence.",
    "ppw fleet check runs/ --strict",
    opt.TABLE_METRIC,
    opt.options("--strict: Exit 3 if any run is flagged."),
)
def fleet_check_command(
    runs: opt.Runs, strict: bool, **options: Any
) -> tuple[FleetAnswer[Any], str | None]:
    """Flag runs of RUNS that are probably wrong, with the evidence for each."""
    answer = ppw.fleet.check(runs, **options)
    return answer, answer.answer.verdict() if strict and answer.answer.suspects else None


@opt.command(
    "update",
    "Add the runs of new files to a fleet's saved state.",
    "ppw fleet update /srv/fleet.state runs/2026-03-01/",
    click.argument("state", type=click.Path(path_type=Path, file_okay=False)),
    click.argument("new", nargs=-1, required=True),
    opt.by_option(
        "Columns that tell groups apart, when STATE is made. Default: all "
        "columns that identify a group."
    ),
    opt.map_option(
        "Map a header of your files to a column of ppw, in any unit", "freq_khz=scaling_cur_freq"
    ),
    ENGINE,
    group=fleet_command,
)
def fleet_update_command(
    state: Path, new: tuple[str, ...], mapping: dict[str, str], keep_going: bool, **given: Any
) -> int:
    """Add the runs of NEW files, folders and patterns to STATE, a folder.

    ppw does not read runs again that STATE already holds. It skips a file whose content STATE
    already holds, under any name. If the command is killed, STATE stays unchanged. If a file cannot
    be used, ppw names it, adds the others and exits with code 1.
    """
    done = ppw.fleet.update_state(state, new, columns=mapping, **given)
    # A file of which some runs were taken is named too, as its other runs are lost.
    faults = (*done.faults, *done.partly)
    for fault in faults:
        out.say(f"fault: {fault}")
    click.echo(done.summary())
    return 1 if faults and not keep_going else 0


@opt.command(
    "join",
    "Add the power that a sensor recorded to the runs of a fleet.",
    "ppw fleet join runs/ watts/ --source prometheus:node -o runs-with-watts.parquet",
    click.argument("runs"),
    click.argument("samples"),
    opt.options("-o, --output FILE (required): Parquet file to write."),
    opt.map_option("Map a header of SAMPLES to host, at, value, label or own", "host=instance"),
    opt.options("""
    --quantity [power|energy] (power): Quantity of the values: power (W), or energy (J) of a counter
        that only grows.
    --window TIME as window_s (0s): Averaging window that ends at each value. 0s: instantaneous
        values.
    --range NUMBER>0 as range_j: Range of the energy counter in J, after which it restarts at 0.
    --offset [HOST=]SECONDS as offsets several times: Clock correction: seconds to add to the times
        of the samples, for one host or for all.
    --label NAME as labels several times: Channel to read. Several channels are summed.
    --source NAME (telemetry): Name of the sensor for the column power_source.
    """),
    ENGINE,
    group=fleet_command,
)
def fleet_join_command(
    runs: str, samples: str, output: str, mapping: dict[str, str], keep_going: bool, **given: Any
) -> int:
    """Add power_w and energy_j to the RUNS of a fleet from SAMPLES of its hosts.

    RUNS are files, a folder or a pattern with the columns host, started_at and time_s. SAMPLES have
    the columns host, at (ISO 8601, or seconds since 1970) and value. If a host has several
    channels, SAMPLES also have the column label. A value that cannot be computed from the samples
    stays empty. The column notes gives the reason.
    """
    out.refuse_input_as_output(output)
    limits = {name: given.pop(name) for name in ("memory_limit", "temporary", "threads")}
    offset, labels = _parse_clock_offsets(given.pop("offsets")), given.pop("labels") or None
    engine = ppw.fleet.connect(given.pop("engine"), **limits)
    # This needs the engine's library, which connect() says how to install.
    from ppw.fleet import telemetry

    sensor = telemetry.Sensor(**given)
    read, faults = telemetry.open_samples(samples, engine, mapping)
    fleet = ppw.fleet.open_runs(runs, engine=engine)
    apart = telemetry.contradicting_hosts(fleet.table, read, sensor, offset)
    faults += [*fleet.faults, *(ppw.fleet.Fault(f"host {h}", what) for h, what in apart.items())]
    for fault in faults:
        out.say(f"fault: {fault}")
    joined = telemetry.join_power(fleet.table, read, sensor, offset_s=offset, labels=labels)
    click.echo(telemetry.write_runs(joined, Path(output)))
    return 1 if faults and not keep_going else 0


def _parse_clock_offsets(texts: tuple[str, ...]) -> float | Mapping[str, float]:
    """Read [HOST=]SECONDS texts: one number for all hosts, or seconds by host; 0 for none."""
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
        raise click.BadParameter("give one for all hosts, or one per host", param_hint="--offset")
    return by_host.get("", by_host) if by_host else 0.0
