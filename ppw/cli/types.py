"""Option types for numbers without a unit: counts, shares, percentages, prices."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from measurements.errors import MeasurementError
from measurements.table.headers import nearest
from measurements.table.units import parse_frequency, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Sequence


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


# Option types for quantities with units.


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


# Option types for names, one or several; a wrong one is answered with the nearest.


# What tells groups apart where nobody says.
_IDENTITY = ("host", "family", "workload", "cores", "threads", "data_bytes")
METRIC_NAMES = (
    "time",
    "cpi",
    "throughput",
    "power",
    "energy",
    "perf_per_watt",
    "perf_per_dollar",
)


def not_one_of(name: str, choices: Sequence[str]) -> str:
    """Say that a name is unknown, which is near, and which there are."""
    return f"{name!r}{nearest(name, choices)} is not one of {', '.join(choices)}"


class OneOf(click.Choice[str]):
    """One of a few names."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Suggest the nearest."""
        return not_one_of(str(value), self.choices)


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
                self.fail(not_one_of(name, self.choices), param, ctx)
        return names

    def known(self, ctx: click.Context) -> Sequence[str]:
        """Names to complete with."""
        return self.choices or ()

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Complete the last of the names with those that are not there yet."""
        done, comma, last = incomplete.rpartition(",")
        rest = [name for name in self.known(ctx) if name not in done.split(",")]
        return [CompletionItem(done + comma + name) for name in rest if name.startswith(last)]


class Columns(Names):
    """Columns of the runs table, comma separated; completed from the header of a CSV."""

    name = "COLUMN[,…]"

    def known(self, ctx: click.Context) -> Sequence[str]:
        """Header of the first of RUNS, or the columns that tell groups apart."""
        return header_of(ctx) or _IDENTITY


def header_of(ctx: click.Context) -> list[str]:
    """Header of the CSV that is the first of RUNS; nothing where there is none to be read."""
    # An option whose value is not typed yet leaves the arguments unread.
    paths = [*(ctx.params.get("runs") or ()), *ctx.args]
    if not paths or not paths[0].lower().endswith(".csv"):
        return []
    try:
        with Path(paths[0]).open(encoding="utf-8", newline="") as file:
            return next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def complete_column(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete one column of the runs table."""
    return [name for name in header_of(ctx) if name.startswith(incomplete)]


def complete_selection(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the column of the last of several COLUMN=VALUE."""
    done, comma, last = incomplete.rpartition(",")
    return [f"{done}{comma}{name}=" for name in header_of(ctx) if name.startswith(last)]


def complete_host(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a host of the catalogue."""
    from ppw.catalogue.hosts import load_hosts

    return [name for name in load_hosts() if name.lower().startswith(incomplete.lower())]


def complete_dataset(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a public data set."""
    from ppw.catalogue.datasets import known_datasets

    return [name for name in known_datasets() if name.startswith(incomplete)]
