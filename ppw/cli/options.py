"""Options that several commands share, with their types."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from measurements.errors import MeasurementError
from measurements.quantities import parse_frequency

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

METRIC_NAMES = (
    "time",
    "cpi",
    "throughput",
    "power",
    "energy",
    "perf_per_watt",
    "perf_per_dollar",
)


class Frequencies(click.ParamType[list[float]]):
    """One or several frequencies, comma separated, with units: 1.2GHz,1800MHz."""

    name = "FREQUENCY[,…]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[float]:
        """Frequencies in Hz."""
        try:
            return [parse_frequency(part) for part in str(value).split(",")]
        except MeasurementError as error:
            self.fail(str(error), param, ctx)


class Names(click.ParamType[list[str]]):
    """Names, comma separated; from a fixed choice where there is one."""

    name = "NAME[,…]"

    def __init__(self, choices: tuple[str, ...] | None = None) -> None:
        self.choices = choices

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """List of the names."""
        names = [part.strip() for part in str(value).split(",") if part.strip()]
        if not names:
            self.fail("no name is given", param, ctx)
        for name in names:
            if self.choices and name not in self.choices:
                from measurements.headers import nearest

                hint = nearest(name, self.choices)
                self.fail(f"{name!r}{hint} is not one of {', '.join(self.choices)}", param, ctx)
        return names


def _mapping(ctx: click.Context, param: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    mapping = {}
    for pair in pairs:
        target, equals, header = pair.partition("=")
        if not (target and equals and header):
            raise click.BadParameter(f"{pair!r} is not CANONICAL=COLUMN", ctx, param)
        if target in mapping:
            raise click.BadParameter(f"{target} is mapped twice", ctx, param)
        mapping[target] = header
    return mapping


def _voltages(
    ctx: click.Context, param: click.Parameter, path: str | None
) -> pd.DataFrame | dict[float, float] | None:
    if path is None:
        return None
    if path == "none":
        return {}
    from measurements import check_runs, read_runs

    return check_runs(read_runs(path, check=False), needed=["freq_hz", "voltage_v"])


vf_option = click.option(
    "--vf",
    "voltages",
    metavar="FILE",
    callback=_voltages,
    help="Table of core voltage by frequency (columns such as freq_ghz, voltage_v, and host where "
    "it differs); none ignores the column voltage_v of the runs.",
)


def runs_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the runs table and its grouping: RUNS, --map, --by, --metric."""
    for decorate in reversed(
        (
            click.argument("runs", nargs=-1, required=True),
            click.option(
                "--map",
                "mapping",
                multiple=True,
                callback=_mapping,
                metavar="CANONICAL=COLUMN",
                help="Read a foreign header as a canonical column: freq_khz='Frequency (kHz)'.",
            ),
            click.option(
                "--by",
                type=Names(),
                help="Columns that tell groups apart. Default: all of host, family, workload, "
                "cores, threads, data_bytes that are there.",
            ),
            click.option(
                "--metric",
                type=Names(METRIC_NAMES),
                help=f"Of {', '.join(METRIC_NAMES)}. Default: all that the columns allow.",
            ),
        )
    ):
        function = decorate(function)
    return function


def fit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add how curves are fitted: --form, --power-form, --exponent, --via."""
    for decorate in reversed(
        (
            click.option(
                "--form",
                type=click.Choice(["amdahl", "unbounded", "reciprocal"]),
                default="amdahl",
                show_default=True,
                help="Amdahl with both parameters held at or above 0, or not; or the published "
                "1/CPI = c − k/f.",
            ),
            click.option(
                "--power-form",
                type=click.Choice(["linear", "cmos"]),
                help="P0 + s·f, or P0 + c·f^EXPONENT. Default: cmos with the exponent unknown "
                "for a bayes interval, linear for the others.",
            ),
            click.option(
                "--exponent",
                type=click.FloatRange(1, 5),
                help="Of --power-form cmos. Default: unknown, or 3 without a bayes interval.",
            ),
            vf_option,
            click.option(
                "--via",
                type=click.Choice(["fits", "ratio"]),
                default="fits",
                show_default=True,
                help="perf_per_watt as the quotient of two fits, or by one regression on "
                "performance/power, as published.",
            ),
        )
    ):
        function = decorate(function)
    return function


pool_option = click.option(
    "--pool/--no-pool",
    default=True,
    show_default=True,
    help="Let the groups of the table inform each other.",
)
keep_all_option = click.option(
    "--keep-all", is_flag=True, help="Use the rows that ppw check would leave out."
)


def interval_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add how sure an answer is and what it rests on: --interval, --pool, --keep-all."""
    for decorate in reversed(
        (
            click.option(
                "--interval",
                type=click.Choice(["bayes", "conformal", "t", "none"]),
                default="bayes",
                show_default=True,
                help="From a posterior of bounded curves; calibrated on groups measured at the "
                "target; Student's t about the least-squares curve; or none.",
            ),
            pool_option,
            keep_all_option,
        )
    ):
        function = decorate(function)
    return function


level_option = click.option(
    "--level",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.90,
    show_default=True,
    help="Of the prediction intervals.",
)


def output_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --format and --output."""
    form = click.option(
        "--format",
        "format_",
        type=click.Choice(["text", "json", "csv", "html"]),
        default="text",
        show_default=True,
        help="html is one self-contained report page.",
    )
    output = click.option(
        "--output", "-o", default="-", metavar="FILE", help="Write there; - is standard output."
    )
    return functools.reduce(lambda f, decorate: decorate(f), (output, form), function)


def read(runs: tuple[str, ...], mapping: dict[str, str]) -> pd.DataFrame:
    """Read the runs tables named on the command line; what is asked of them checks them."""
    from measurements import read_runs

    return read_runs(runs[0] if len(runs) == 1 else list(runs), columns=mapping, check=False)
