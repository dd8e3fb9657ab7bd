"""Option types of large amounts: data sets in TB to ZB, times in days and years."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import click

from measurements.errors import MeasurementError
from measurements.quantities import parse_quantity

_DAY = 86400.0
_AMOUNT = re.compile(r"^\s*([\d.]+(?:[eE][-+]?\d+)?)\s*([A-Za-z]*)\s*$")


class _LargeAmount(click.ParamType[float]):
    """A quantity above 0 whose larger units `measurements.quantities` does not have."""

    unit: ClassVar[str]
    larger: ClassVar[dict[str, float]]

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it."""
        match = _AMOUNT.match(str(value))
        factor = self.larger.get(match[2].lower()) if match else None
        try:
            number = float(match[1]) * factor if match and factor else self._smaller(value)
        except (MeasurementError, ValueError) as error:
            known = ", ".join(self.larger)
            self.fail(f"{error}, {known}" if factor is None else f"{value!r}", param, ctx)
        if number <= 0:
            self.fail(f"{value!r} must be more than 0", param, ctx)
        return number

    def _smaller(self, value: Any) -> float:
        return parse_quantity(str(value), self.unit)


class DataSize(_LargeAmount):
    """A data set: 500GB, 20TB, 35ZB; a plain number is bytes."""

    name, unit = "SIZE", "bytes"
    larger: ClassVar = {
        "tb": 1e12,
        "pb": 1e15,
        "eb": 1e18,
        "zb": 1e21,
        "tib": 2.0**40,
        "pib": 2.0**50,
    }


class Span(_LargeAmount):
    """A time: 90s, 8h, 30d, 1y (365 days); a plain number is seconds."""

    name, unit = "TIME", "s"
    larger: ClassVar = {
        **dict.fromkeys(("d", "day", "days"), _DAY),
        **dict.fromkeys(("y", "yr", "year", "years"), 365 * _DAY),
    }


class Rate(_LargeAmount):
    """A bandwidth, bytes a second: 500MB, 12.5GB; /s may follow."""

    name, unit = "RATE", "bytes"
    larger: ClassVar = {"tb": 1e12}

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """B/s."""
        return super().convert(str(value).strip().removesuffix("/s"), param, ctx)


class Shares(click.ParamType[list[float]]):
    """Shares, comma separated, as numbers or percentages: 0.7,90%."""

    name = "SHARE[,…]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[float]:
        """Shares of 1."""
        try:
            return [_share(part.strip()) for part in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is not shares such as 0.7,90%", param, ctx)


class Share(click.ParamType[float]):
    """One share: 0.7 or 70%."""

    name = "SHARE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Share of 1."""
        try:
            return _share(str(value).strip())
        except ValueError:
            self.fail(f"{value!r} is not a share such as 0.7 or 70%", param, ctx)


def _share(text: str) -> float:
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)
