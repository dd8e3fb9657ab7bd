"""Option types for quantities with units."""

from __future__ import annotations

import math
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
    """A quantity that is not negative, in its SI unit; with ``positive``, above 0."""

    unit = ""

    def __init__(self, *, positive: bool = False) -> None:
        self._positive = positive

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
        if self._positive and number == 0:
            self.fail(f"{value!r} must be more than 0", param, ctx)
        return number


class Seconds(_Quantity):
    """A time: 500ms, 2s, 5min, 30d, 1y (365 days); a plain number is seconds."""

    name, unit = "TIME", "s"


class Bytes(_Quantity):
    """A size: 128MiB, 10GB, 35ZB; a plain number is bytes."""

    name, unit = "SIZE", "bytes"


class Sizes(click.ParamType[list[int]]):
    """Sizes, comma separated: 64,1KiB,64MB."""

    name = "SIZE[,…]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        """Bytes, whole and above 0."""
        sizes = [round(Bytes().convert(part, param, ctx)) for part in str(value).split(",")]
        if min(sizes) < 1:
            self.fail(f"{value!r} has a size of nothing", param, ctx)
        return sizes


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


class Share(click.ParamType[float]):
    """One share, as 0.7 or 70%.

    Parameters
    ----------
    lowest, highest : float
        What it may be.
    """

    name = "SHARE"

    def __init__(self, *, lowest: float = 0.0, highest: float = math.inf) -> None:
        self._lowest, self._highest = lowest, highest

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """As a number, 1 for 100 %."""
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
        except ValueError:
            share = math.nan
        if not math.isfinite(share):
            self.fail(f"{text!r} is not a share such as 0.7 or 70%", param, ctx)
        if not self._lowest <= share <= self._highest:
            self.fail(f"{text!r} is not a share {self._range()}", param, ctx)
        return share

    def _range(self) -> str:
        if math.isinf(self._highest):
            return f"of at least {self._lowest:.0%}"
        return f"from {self._lowest:.0%} to {self._highest:.0%}"


class Shares(click.ParamType[tuple[float, ...]]):
    """Shares, comma separated: 10%,50%,0.9; each as `Share` takes it."""

    name = "SHARE[,…]"

    def __init__(self, *, lowest: float = 0.0, highest: float = math.inf) -> None:
        self._one = Share(lowest=lowest, highest=highest)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """As numbers, 1 for 100 %."""
        if isinstance(value, tuple):
            return value
        return tuple(self._one.convert(part, param, ctx) for part in str(value).split(","))


_BITS = re.compile(r"(?P<number>[\d.]+(?:e[+-]?\d+)?)\s*(?P<prefix>[kMGT]?)(?:bit/s|bps)$")
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


class ByteRate(click.ParamType[float]):
    """A rate: 102.4GB/s, 10Gbit/s; a plain number is bytes a second; with ``positive``, above 0."""

    name = "RATE"

    def __init__(self, *, positive: bool = False) -> None:
        self._bytes = Bytes(positive=positive)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Bytes per second."""
        text = str(value).strip()
        if match := _BITS.fullmatch(text):
            return float(match["number"]) * _PREFIXES[match["prefix"]] / 8
        return float(self._bytes.convert(text.removesuffix("/s"), param, ctx))


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
