"""Option types for quantities with units."""

from __future__ import annotations

import re
from typing import Any

import click

from measurements.errors import MeasurementError
from measurements.quantities import parse_frequency, parse_quantity

# A number above 0 alone.
_BARE = re.compile(r"0*[1-9][\d.]*|0*\.0*[1-9]\d*")


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


class Duration(Seconds):
    """A time above 0 as `Seconds` takes it, in another unit: one of ``unit_s`` seconds."""

    def __init__(self, unit_s: float) -> None:
        super().__init__(positive=True)
        self._unit_s = unit_s

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it, in that unit."""
        return super().convert(value, param, ctx) / self._unit_s


class Bytes(_Quantity):
    """A size: 128MiB, 10GB, 35ZB; a plain number is bytes."""

    name, unit = "SIZE", "bytes"


class Memory(Bytes):
    """Main memory, 256GiB: a plain number would hardly be meant as bytes."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Bytes."""
        if _BARE.fullmatch(str(value).strip()):
            self.fail(f"{value!r} has no unit: write one, such as 256GiB", param, ctx)
        return super().convert(value, param, ctx)


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


_BITS = re.compile(r"(?P<number>[\d.]+(?:e[+-]?\d+)?)\s*(?P<prefix>[kMGT]?)(?:bit/s|bps)$")
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


class ByteRate(click.ParamType[float]):
    """A rate with a unit: 102.4GB/s, 10Gbit/s; with ``positive``, above 0."""

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
        if _BARE.fullmatch(text):
            self.fail(f"{text!r} has no unit: write one, such as 500MB/s or 10Gbit/s", param, ctx)
        if re.search(r"[\d\s][kMGT]i?b$", text):
            self.fail(
                f"{text!r} may be bits or bytes: write {text[:-1]}bit/s or {text[:-1]}B/s",
                param,
                ctx,
            )
        return float(self._bytes.convert(text.removesuffix("/s"), param, ctx))
