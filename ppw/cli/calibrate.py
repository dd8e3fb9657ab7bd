"""`ppw calibrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ppw.cli.options import level_option, output_options, table_options
from ppw.cli.output import caveats_in_result, emit, say
from ppw.cli.quantities import Watts
from ppw.cli.runs_table import read

if TYPE_CHECKING:
    import pandas as pd

    from ppw.calibration import Calibration


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
def command(
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
    from ppw.calibration import calibrate
    from ppw.report.calibration_page import calibration_page

    if stored and save:
        raise click.UsageError("--save and --stored: what is stored need not be saved")
    if not stored and not (sensor and reference):
        raise click.UsageError("give --sensor and --reference, or --stored")
    if target == output == "-":
        raise click.UsageError("--apply - and the result both go to standard output: use -o FILE")
    table = read(runs, options)
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
    from ppw.calibration_store import load_calibration
    from ppw.errors import PpwError

    names = sorted(table["host"].dropna().astype(str).unique()) if "host" in table else []
    if host is None and len(names) != 1:
        said = f"name {len(names)} hosts" if names else "name no host"
        raise PpwError(f"the runs {said}: choose whose calibration with --host")
    return load_calibration(host or names[0], sensor=sensor, reference=reference)


def _save(result: Calibration, host: str | None) -> None:
    from ppw.calibration_store import save_calibration

    say(f"calibration saved to {save_calibration(result, host=host)}")


def _apply(table: pd.DataFrame, result: Calibration, target: str) -> None:
    import warnings

    from measurements import write_runs
    from ppw.calibrated_runs import apply_calibration
    from ppw.errors import CaveatWarning

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
