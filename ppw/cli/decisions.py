"""Options of the commands that decide something: `ppw best`, `ppw compare` and `ppw plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from measurements.errors import MeasurementError
from ppw.cli.options import keep_all_option, pool_option, runs_options, vf_option
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Callable


class Steps(click.ParamType[list[float]]):
    """Frequencies to choose from: a range 1.2GHz:2.4GHz:0.2GHz, or a list with commas."""

    name = "FREQUENCY,…|LOW:HIGH:STEP"

    def __init__(self, fewest: int) -> None:
        self.fewest = fewest

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[float]:
        """Frequencies in Hz."""
        from ppw.step_choice import as_steps

        try:
            return [float(step) for step in as_steps(str(value), fewest=self.fewest)]
        except (MeasurementError, PpwError) as error:
            self.fail(str(error), param, ctx)


def table_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the runs table and its grouping without --metric, which the question decides."""
    function = runs_options(function)
    parameters: list[click.Parameter] = function.__click_params__  # type: ignore[attr-defined]
    parameters[:] = [p for p in parameters if p.name != "metric"]
    return function


def cost_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what energy and hosts cost: --electricity, --lifetime-hours."""
    for decorate in (
        click.option(
            "--lifetime-hours",
            type=click.FloatRange(0, min_open=True),
            help="Hours of work that a host's price is spread over; with --electricity.",
        ),
        click.option(
            "--electricity",
            type=click.FloatRange(0),
            metavar="PRICE",
            help="Currency a kWh; with --lifetime-hours.",
        ),
    ):
        function = decorate(function)
    return function


def draw_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what the curves rest on and how they are drawn: --vf, --pool, --keep-all and so on."""
    for decorate in reversed(
        (
            vf_option,
            pool_option,
            keep_all_option,
            click.option(
                "--draws",
                type=click.IntRange(100),
                default=2000,
                show_default=True,
                help="Curves drawn of each group.",
            ),
            click.option(
                "--seed",
                type=click.IntRange(0),
                default=0,
                show_default=True,
                help="Where chance starts.",
            ),
        )
    ):
        function = decorate(function)
    return function
