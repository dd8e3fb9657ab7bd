"""Option types for quantities with units."""

from __future__ import annotations

import re
from typing import Any

import click

from measurements.errors import MeasurementError
from measurements.quantities import parse_frequency, parse_quantity


class Frequency(click.ParamType[float]):
    """A frequency with a unit: 1.66GHz."""

    name = "FREQUENCY"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Hz."""
        try:
            return parse_frequency(str(value))
        except MeasurementError as error:
            self.fail(str(error), param, ctx)


class _Quantity(click.ParamType[float]):
    """A quantity that is not negative, in its SI unit."""

    unit = ""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it."""
        try:
            number = parse_quantity(str(value), self.unit)
        except MeasurementError as error:
            self.fail(str(error), param, ctx)
        if number < 0:
            self.fail(f"{value!r} is negative", param, ctx)
        return number


class Seconds(_Quantity):
    """A time: 500ms, 2s, 5min; a plain number is seconds."""

    name, unit = "TIME", "s"


class Bytes(_Quantity):
    """A size: 128MiB, 10GB; a plain number is bytes."""

    name, unit = "SIZE", "bytes"


class Watts(_Quantity):
    """Power: 40W, 1.2kW; a plain number is watts."""

    name, unit = "POWER", "w"


class Counts(click.ParamType[list[int]]):
    """Whole numbers from 1, comma separated."""

    name = "N[,…]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        """List of the numbers."""
        try:
            counts = [int(part) for part in str(value).split(",")]
        except ValueError:
            counts = []
        if not counts or min(counts) < 1:
            self.fail(f"{value!r} is not whole numbers of at least 1, such as 1,2,5", param, ctx)
        return counts


_BITS = re.compile(r"(?P<number>[\d.]+(?:e[+-]?\d+)?)\s*(?P<prefix>[kMGT]?)(?:bit/s|bps)$")
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


class ByteRate(click.ParamType[float]):
    """Bytes a second: 102.4GB/s, 10Gbit/s; a plain number is bytes a second."""

    name = "RATE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Bytes per second."""
        text = str(value).strip()
        if match := _BITS.fullmatch(text):
            return float(match["number"]) * _PREFIXES[match["prefix"]] / 8
        return float(Bytes().convert(text.removesuffix("/s"), param, ctx))


class Positive(click.ParamType[float]):
    """A number above 0."""

    name = "N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Check it."""
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            self.fail(f"{value!r} is no number above 0", param, ctx)
        return number
