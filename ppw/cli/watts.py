"""`ppw calibrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ppw.cli.options import (
    level_option,
    output_options,
    read_table,
    refuse_table_options,
    runs_without_groups,
    table_options,
)
from ppw.cli.output import caveats_in_result, emit, say
from ppw.cli.types import Shares, Watts

if TYPE_CHECKING:
    import pandas as pd

    from measurements.table.specpower import SpecPowerResult
    from ppw.power.calibration import Calibration


@click.command(
    name="calibrate",
    short_help="Hold one power sensor against another, and bring watts to what a meter reads.",
    epilog="Example: ppw calibrate runs.parquet --sensor rapl --reference meter:wt310e --save",
)
@table_options
@click.option(
    "--sensor",
    metavar="LABEL",
    help="What is calibrated: rapl (packages and memory), rapl:package, ipmi:dcmi; a sum with +.",
)
@click.option("--reference", metavar="LABEL", help="What it is held against: meter:wt310e, ipmi.")
@click.option("--host", metavar="NAME", help="Which host's runs, where there are several.")
@click.option(
    "--sensor-resolution", type=Watts(), default="0", help="Step in which the sensor counts: 1W."
)
@click.option(
    "--reference-resolution", type=Watts(), default="0", help="The same of the reference."
)
@level_option
@click.option("--save", is_flag=True, help="Keep the calibration for this host and user.")
@click.option("--stored", is_flag=True, help="Take the one that was kept; RUNS need no reference.")
@click.option(
    "--apply",
    "target",
    metavar="FILE",
    help="Also write RUNS there with calibrated watts: .csv, .parquet or .jsonl.",
)
@output_options
def calibrate_command(
    runs: tuple[str, ...],
    sensor: str | None,
    reference: str | None,
    host: str | None,
    save: bool,
    stored: bool,
    target: str | None,
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Fit what --reference read in RUNS to what --sensor read there: offset and slope.

    RUNS are of ppw measure with both, at three loads or more from idle to full.
    """
    from ppw.power.calibration import calibrate
    from ppw.power.report import calibration_page

    if stored and save:
        raise click.UsageError("--save and --stored: what is stored need not be saved")
    if not stored and not (sensor and reference):
        raise click.UsageError("give --sensor and --reference, or --stored")
    if target == output == "-":
        raise click.UsageError("--apply - and the result both go to standard output: use -o FILE")
    table = read_table(runs, options)
    with caveats_in_result():
        if stored:
            result = _stored(table, host, sensor, reference)
        else:
            result = calibrate(
                table, sensor=str(sensor), reference=str(reference), host=host, **options
            )
        if save:
            _save(result, host)
    if target:
        _apply(table, result, target)
    emit(result, format_, output, calibration_page)


def _stored(
    table: pd.DataFrame, host: str | None, sensor: str | None, reference: str | None
) -> Calibration:
    from ppw.errors import PpwError
    from ppw.power.calibrated_runs import load_calibration

    names = sorted(table["host"].dropna().astype(str).unique()) if "host" in table else []
    if host is None and len(names) != 1:
        said = f"name {len(names)} hosts" if names else "name no host"
        raise PpwError(f"the runs {said}: choose whose calibration with --host")
    return load_calibration(host or names[0], sensor=sensor, reference=reference)


def _save(result: Calibration, host: str | None) -> None:
    from ppw.power.calibrated_runs import save_calibration

    say(f"calibration saved to {save_calibration(result, host=host)}")


def _apply(table: pd.DataFrame, result: Calibration, target: str) -> None:
    import warnings

    from measurements import write_runs
    from ppw.errors import CaveatWarning
    from ppw.power.calibrated_runs import apply_calibration

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CaveatWarning)
        calibrated = apply_calibration(table, result)
    write_runs(calibrated, target)
    # The table has no place for them.
    for warning in caught:
        if issubclass(warning.category, CaveatWarning):
            say(f"caveat: {warning.message}")
    counts = calibrated["power_label"].value_counts()
    said = ", ".join(f"{count} {label}" for label, count in counts.items())
    say(f"runs written to {target}: {said}")


# `ppw powerload`.


_LOADS = Shares(highest=1.0)


@click.command(
    name="powerload",
    short_help="Watts against load, and energy proportionality.",
    epilog="Example: ppw powerload power_ssj2008-20120312-00444.txt --at 30%,70%",
)
@runs_without_groups
@click.option(
    "--at",
    type=_LOADS,
    default="0%,50%,100%",
    show_default=True,
    help="Loads to give the watts at.",
)
@click.option(
    "--levels",
    type=_LOADS,
    help="Learn from the levels at these loads alone, to see what they would have said.",
)
@level_option
@output_options
def powerload_command(
    runs: tuple[str, ...],
    format_: str,
    output: str,
    **options: Any,
) -> None:
    """Draw watts against load from RUNS at several loads, or from SPECpower_ssj2008 results.

    RUNS are tables with power_w and load (ppw run memcached --load), or results as SPEC publishes
    them: .html, .txt or a CSV of many.
    """
    from ppw.power.power_loads import power_loads
    from ppw.power.report import power_load_page

    with caveats_in_result():
        source = _source(runs, options)
        result = power_loads(source, **options)
    emit(result, format_, output, power_load_page)


def _source(paths: tuple[str, ...], given: dict[str, Any]) -> pd.DataFrame | list[SpecPowerResult]:
    from measurements.table.specpower import is_specpower, read_specpower

    published = [path for path in paths if path != "-" and is_specpower(path)]
    if not published:
        return read_table(paths, given)
    if len(published) < len(paths):
        other = next(path for path in paths if path not in published)
        raise click.UsageError(f"{other} is no SPECpower result, as {published[0]} is: ask apart")
    refuse_table_options(given, f"{published[0]} is a SPECpower result")
    return read_specpower(published)
