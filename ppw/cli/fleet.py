"""`ppw fleet`: the answers over more runs than fit in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ppw.cli import NamedCommands
from ppw.cli.options import (
    Fleet,
    asks_fleet,
    by_option,
    engine_options,
    fit_options,
    interval_options,
    level_option,
    map_option,
    runs_options,
    runs_without_groups,
)
from ppw.cli.output import refuse_an_input, say
from ppw.cli.projecting import check_worst, max_error_option, refuse_contradiction, split_options
from ppw.cli.types import Frequencies, OneOf, Positive, Seconds, Share

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.group(
    name="fleet",
    cls=NamedCommands,
    short_help="Answer over millions of runs, on DuckDB or Spark.",
    epilog="Example: ppw fleet project runs/ --freq 3.0GHz --output projected.parquet",
)
def fleet_command() -> None:
    """Fit, project and validate folders of Parquet, CSV or JSON-lines files that no memory holds.

    The engine condenses the runs to moments in one pass; the answers are those of ppw fit, project
    and validate. A file that cannot be read is named and left out; the exit code then is 1.
    """


# `ppw fleet fit`.


@fleet_command.command(
    name="fit",
    short_help="Give the parameters of every curve of a fleet.",
    epilog="Example: ppw fleet fit runs/ --metric time -o laws.parquet",
)
@runs_options
@fit_options
@asks_fleet
def fleet_fit_command(fleet: Fleet, **options: Any) -> int:
    """Fit the curves of every group of RUNS and give their parameters."""
    from ppw.fleet import fit

    return fleet.leave(fleet.ask(fit, **options))


# `ppw fleet project`.


@fleet_command.command(
    name="project",
    short_help="Project every group of a fleet to another frequency.",
    epilog="Example: ppw fleet project runs/ --freq 3.0GHz -o projected.parquet",
)
@runs_options
@click.option(
    "--freq", type=Frequencies(), required=True, help="Where to project to, such as 3.0GHz."
)
@fit_options
@interval_options
@level_option
@asks_fleet
def fleet_project_command(fleet: Fleet, **options: Any) -> int:
    """Project every group of RUNS to frequencies that were not measured."""
    from ppw.fleet import project

    return fleet.leave(fleet.ask(project, **options))


# `ppw fleet validate`.


@fleet_command.command(
    name="validate",
    short_help="Hold projections of a fleet against measurements they have not seen.",
    epilog="Example: ppw fleet validate runs/ --train 1.2GHz,1.8GHz --test 2.4GHz --max-error 10",
)
@runs_options
@split_options
@fit_options
@interval_options
@level_option
@max_error_option
@asks_fleet
def fleet_validate_command(
    fleet: Fleet,
    train: list[float] | None,
    test: list[float] | None,
    max_error: float | None,
    **options: Any,
) -> int:
    """Project from some runs of RUNS and hold the result against others."""
    from ppw.fleet import validate

    refuse_contradiction(train, test, options)
    answer = fleet.ask(validate, train=train or (), test=test or (), **options)
    return fleet.leave(answer) or check_worst(answer.answer, max_error)


# `ppw fleet pathlength`.


@fleet_command.command(
    name="pathlength",
    short_help="Instructions per byte of a fleet against cores and data size.",
    epilog="Example: ppw fleet pathlength counts/",
)
@runs_without_groups
@click.option(
    "--tolerance",
    type=Share(0, min_open=True),
    default="5%",
    show_default=True,
    help="By how much throughput may vary in a range of data sizes that is called flat.",
)
@level_option
@asks_fleet
def fleet_pathlength_command(fleet: Fleet, **options: Any) -> int:
    """Fit path lengths to RUNS with instructions and data_bytes: against cores and data size."""
    from ppw.fleet import path_lengths

    return fleet.leave(fleet.ask(path_lengths, **options))


# `ppw fleet check`.


@fleet_command.command(
    name="check",
    short_help="Name the runs of a fleet that cannot be right, with the evidence.",
    epilog="Example: ppw fleet check runs/ --strict",
)
@runs_options
@click.option("--strict", is_flag=True, help="Exit with 3 when any run is suspect.")
@asks_fleet
def fleet_check_command(fleet: Fleet, strict: bool, **options: Any) -> int:
    """Look through RUNS for what cannot be right and say what speaks against it."""
    from ppw.fleet import check

    answer = fleet.ask(check, **options)
    code = fleet.leave(answer)
    if code or not strict or not answer.answer.suspects:
        return code
    say(f"check failed: {answer.answer.verdict()}")
    return 3


# `ppw fleet update`.


_UPDATE_EPILOG = "Example: ppw fleet update /srv/fleet.state runs/2026-03-01/"


@fleet_command.command(
    name="update",
    short_help="Add new files to a fleet's saved state, each once.",
    epilog=_UPDATE_EPILOG,
)
@click.argument("state", type=click.Path(path_type=Path, file_okay=False))
@click.argument("new", nargs=-1, required=True)
@by_option("When STATE is made: what tells groups apart. Default: all that identifies a run.")
@map_option("Read a foreign header as a column of ppw's, in any unit", "freq_khz=scaling_cur_freq")
@engine_options
def fleet_update_command(
    state: Path,
    new: tuple[str, ...],
    by: list[str] | None,
    mapping: dict[str, str],
    keep_going: bool,
    **engine: Any,
) -> int:
    """Take the runs of NEW files, folders and patterns into STATE, a folder.

    What STATE holds is not read again, and a file whose content it holds is passed over, whatever
    its name. Killed, it leaves STATE as it was. A file that cannot be used is named, the others
    are taken in, and the exit code is 1.
    """
    from ppw.fleet.state import update_state

    done = update_state(state, new, by=by, columns=mapping, **engine)
    faults = (*done.faults, *done.partly)
    for fault in faults:
        say(f"fault: {fault}")
    click.echo(done.summary())
    return 1 if faults and not keep_going else 0


# `ppw fleet join`.


_JOIN_EPILOG = (
    "Example: ppw fleet join runs/ watts/ --source prometheus:node -o runs-with-watts.parquet"
)


@fleet_command.command(
    name="join",
    short_help="Give runs the watts that a power sensor recorded while they ran.",
    epilog=_JOIN_EPILOG,
)
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
def fleet_join_command(
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
    from ppw.fleet.engine import Fault, connect
    from ppw.fleet.run_files import open_runs
    from ppw.fleet.telemetry import (
        Sensor,
        clocks_that_disagree,
        join_power,
        open_samples,
        write_runs,
    )

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
