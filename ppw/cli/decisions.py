"""Options of the commands that decide something: `ppw best`, `ppw compare` and `ppw plan`."""

from __future__ import annotations

from typing import Any

import click

from measurements.errors import MeasurementError
from ppw.cli.numbers import Price
from ppw.cli.options import (
    all_of,
    draws_option,
    keep_all_option,
    pool_option,
    seed_option,
    vf_option,
)
from ppw.cli.quantities import Duration
from ppw.errors import PpwError

_HOUR_S = 3600.0


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


cost_options = all_of(
    click.option("--electricity", type=Price(), help="Price of a kWh; with --lifetime."),
    click.option(
        "--lifetime",
        "lifetime_hours",
        type=Duration(_HOUR_S),
        help="Work that a host's price is spread over: 35000h, 4y; with --electricity.",
    ),
)
draw_options = all_of(
    vf_option,
    pool_option,
    keep_all_option,
    draws_option(2000, "Curves drawn of each group."),
    seed_option,
)
