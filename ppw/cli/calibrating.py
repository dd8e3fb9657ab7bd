"""`ppw calibrate` and `ppw powerload`: power sensors, and power against load."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import click

import ppw
from ppw.cli import options as opt
from ppw.cli.output import say, say_caveats

if TYPE_CHECKING:
    import pandas as pd

    from measurements.table.specpower import SpecPowerResult


@opt.question(
    "calibrate",
    "Compare one power sensor with another, and bring power to what a meter reads.",
    "ppw calibrate runs.parquet --sensor rapl --reference meter:wt310e --save",
)
@opt.all_of(
    opt.TABLE,
    opt.options("""
    --sensor LABEL: Sensor to calibrate: rapl (packages and memory), rapl:package, ipmi:dcmi; a sum
        with +.
    --reference LABEL: Sensor to compare with: meter:wt310e, ipmi.
    --host NAME: Host whose runs are taken, where there are several.
    --sensor-resolution POWER (0): Step in which the sensor counts: 1W.
    --reference-resolution POWER (0): Step in which the reference counts.
    """),
    opt.LEVEL,
    opt.options("""
    --save: Keep the calibration for this host and user.
    --stored: Take the calibration that was kept; RUNS need no reference.
    --apply FILE as target: Also write RUNS there with calibrated power: .csv, .parquet or .jsonl.
    """),
)
@click.pass_context
def calibrate_command(
    ctx: click.Context,
    /,
    runs: opt.Runs,
    sensor: str | None,
    reference: str | None,
    host: str | None,
    save: bool,
    stored: bool,
    target: str | None,
    **options: Any,
) -> ppw.Calibration:
    """Fit what --reference read in RUNS to what --sensor read there: offset and slope.

    RUNS are of ppw measure with both, at three loads or more from idle to full.
    """
    if stored and save:
        raise click.UsageError("--save and --stored: what is stored need not be saved")
    if not stored and not (sensor and reference):
        raise click.UsageError("give --sensor and --reference, or --stored")
    if target == ctx.params["output"] == "-":
        raise click.UsageError("--apply - and the result both go to standard output: use -o FILE")
    table = opt.read_table(runs, options)
    if stored:
        result = ppw.load_calibration(host or _only_host(table), sensor=sensor, reference=reference)
    else:
        options |= {"sensor": sensor, "reference": reference, "host": host}
        result = ppw.calibrate(table, **options)
    if save:
        say(f"calibration saved to {ppw.save_calibration(result, host=host)}")
    if target:
        _write_calibrated(table, result, target)
    return result


def _only_host(table: pd.DataFrame) -> str:
    names = sorted(table["host"].dropna().astype(str).unique()) if "host" in table else []
    if len(names) != 1:
        said = f"name {len(names)} hosts" if names else "name no host"
        raise ppw.PpwError(f"the runs {said}: choose whose calibration with --host")
    return str(names[0])


def _write_calibrated(table: pd.DataFrame, result: ppw.Calibration, target: str) -> None:
    """Write the runs with calibrated power; caveats, for which a table has no place, are said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ppw.CaveatWarning)
        calibrated = ppw.apply_calibration(table, result)
    ppw.write_runs(calibrated, target)
    say_caveats(w.message for w in caught if issubclass(w.category, ppw.CaveatWarning))
    counts = calibrated["power_label"].value_counts()
    labels = ", ".join(f"{count} {label}" for label, count in counts.items())
    say(f"runs written to {target}: {labels}")


# `ppw powerload`.


@opt.question(
    "powerload",
    "Power against load, and energy proportionality.",
    "ppw powerload power_ssj2008-20120312-00444.txt --at 30%,70%",
)
@opt.all_of(
    opt.TABLE_ALONE,
    opt.options("""
    --at SHARE[,…]<=1 (0%,50%,100%): Loads to give the power at.
    --levels SHARE[,…]<=1: Learn from the levels at these loads alone, to see what they would have
        said.
    """),
    opt.LEVEL,
)
def powerload_command(runs: opt.Runs, **options: Any) -> ppw.PowerLoads:
    """Draw power against load from RUNS at several loads, or from SPECpower_ssj2008 results.

    RUNS are tables with power_w and load (ppw run memcached --load), or results as SPEC publishes
    them: .html, .txt or a CSV of many.
    """
    return ppw.power_loads(_read_loads(runs, options), **options)


def _read_loads(paths: opt.Runs, given: opt.Given) -> pd.DataFrame | list[SpecPowerResult]:
    from measurements.table.specpower import is_specpower, read_specpower

    published = [path for path in paths if path != "-" and is_specpower(path)]
    if not published:
        return opt.read_table(paths, given)
    if len(published) < len(paths):
        other = next(path for path in paths if path not in published)
        raise click.UsageError(f"{other} is no SPECpower result, as {published[0]} is: ask apart")
    opt.refuse_table_options(given, f"{published[0]} is a SPECpower result")
    return read_specpower(published)
