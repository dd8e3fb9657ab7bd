"""Option types for numbers without a unit: counts, shares, percentages, prices."""

from __future__ import annotations

import math
from typing import Any

import click


class Whole(click.IntRange):
    """A whole number, shown as N."""

    name = "whole number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """What stands for it in --help."""
        return "N"


class Number(click.FloatRange):
    """A finite number, shown as NUMBER."""

    name = "number"
    shown = "NUMBER"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """What stands for it in --help."""
        return self.shown

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Check that it is finite and in the range."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class Price(Number):
    """An amount of money of at least, or with ``positive`` above, 0."""

    name, shown = "price", "PRICE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """As a number."""
        try:
            float(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a price: write a number alone, all prices in one currency",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)

    def __init__(self, *, positive: bool = False) -> None:
        super().__init__(0, min_open=positive)


class Percent(Number):
    """A percentage of at least, or with ``positive`` above, 0: 3 or 3%."""

    name, shown = "percentage", "PERCENT"

    def __init__(self, *, positive: bool = False) -> None:
        super().__init__(0, min_open=positive)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """As a number, 3 for 3 %."""
        return super().convert(str(value).strip().removesuffix("%"), param, ctx)


class Positive(Number):
    """A number above 0."""

    def __init__(self) -> None:
        super().__init__(0, min_open=True)


class Share(Number):
    """One share, as 0.7 or 70%; by default of at least 0."""

    name, shown = "share", "SHARE"

    def __init__(self, lowest: float = 0, highest: float | None = None, **ends: bool) -> None:
        super().__init__(lowest, highest, **ends)

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
        if self.max is not None and self.max < share <= 100 and not text.endswith("%"):
            self.fail(
                f"{text!r} is more than the whole: write {text}% or {share / 100:g}", param, ctx
            )
        return super().convert(share, param, ctx)


class Shares(click.ParamType[tuple[float, ...]]):
    """Shares, comma separated: 10%,50%,0.9; each as `Share` takes it."""

    name = "SHARE[,…]"

    def __init__(self, lowest: float = 0, highest: float | None = None) -> None:
        self._one = Share(lowest, highest)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """As numbers, 1 for 100 %."""
        if isinstance(value, tuple):
            return value
        return tuple(self._one.convert(part, param, ctx) for part in str(value).split(","))


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
