"""Kinds of values that options take, by the words that stand for them in --help."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from measurements.errors import MeasurementError
from measurements.host.files import parse_cpu_list
from measurements.table import units
from measurements.table.headers import nearest
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Columns that tell groups apart where the user names none.
_IDENTITY = ("host", "family", "workload", "cores", "threads", "data_bytes")
METRIC_NAMES = (
    *("time", "cpi", "throughput", "power", "energy"),
    *("perf_per_watt", "perf_per_dollar"),
)


class Whole(click.IntRange):
    """A whole number."""

    name = "whole number"


class Number(click.FloatRange):
    """A finite number, read by `number_in`."""

    name = "number"
    wanted = "valid number."

    def number_in(self, text: str) -> float:
        """Read the number. Raises ValueError, with a message or without."""
        return float(text)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check that it is a finite number within the range."""
        try:
            number = self.number_in(str(value).strip())
        except ValueError:
            self.fail(f"{value!r} is not a {self.wanted}", param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return super().convert(number, param, ctx)


class Price(Number):
    """An amount of money, in the one currency of all prices."""

    wanted = "price: write a number alone, all prices in one currency"


class Percent(Number):
    """A percentage, 3 or 3%: the number 3."""

    wanted = "valid percentage."

    def number_in(self, text: str) -> float:
        """Read the number before %."""
        return float(text.removesuffix("%"))


class Share(Number):
    """A share, 0.7 or 70%: the number 0.7."""

    wanted = "share: write 0.7 or 70%"

    def number_in(self, text: str) -> float:
        """Read a share; one above 1 without % was meant as a percentage."""
        share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
        if not math.isfinite(share):
            raise ValueError
        if self.max is not None and self.max < share <= 100 and not text.endswith("%"):
            self.fail(f"{text!r} is more than the whole: write {text}% or {share / 100:g}")
        return share


class ValueReader(click.ParamType[Any]):
    """A value that a function reads from its text."""

    name = "text"

    def __init__(self, read: Callable[[str], Any]) -> None:
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a text; an error of reading is one of usage."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except (MeasurementError, PpwError, ValueError) as error:
            self.fail(str(error), param, ctx)


class SiQuantity(click.ParamType[float]):
    """A quantity in its SI unit, of at least 0; with ``positive`` above 0.

    ``divisor`` is the size of another unit to give it in; a quantity that ``needs_unit`` is
    refused as a number alone.
    """

    name = "quantity"

    def __init__(
        self, unit: str, *, positive: bool = False, divisor: float = 1.0, needs_unit: str = ""
    ) -> None:
        self._unit, self._positive, self._divisor = unit, positive, divisor
        self._needs_unit = needs_unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the quantity and check its sign."""
        text = str(value).strip()
        if self._needs_unit and re.fullmatch(r"0*[1-9][\d.]*|0*\.0*[1-9]\d*", text):
            self.fail(f"{text!r} has no unit: write one, as in {self._needs_unit}", param, ctx)
        try:
            number = self._number_in(text)
        except MeasurementError as error:
            self.fail(str(error), param, ctx)
        if number < 0:
            self.fail(f"{value!r} is negative", param, ctx)
        if self._positive and number == 0:
            self.fail(f"{value!r} must be more than 0", param, ctx)
        return number / self._divisor

    def _number_in(self, text: str) -> float:
        return units.parse_quantity(text, self._unit)


class Rate(SiQuantity):
    """Bytes per second: 102.4GB/s, 10Gbit/s."""

    def _number_in(self, text: str) -> float:
        # Networks are sold in bits, disks in bytes: Gb alone could be either.
        bits = re.fullmatch(r"([\d.]+(?:e[+-]?\d+)?)\s*([kMGT]?)(?:bit/s|bps)", text)
        if bits:
            return float(bits[1]) * 1000.0 ** " kMGT".index(bits[2] or " ") / 8
        if re.search(r"[\d\s][kMGT]i?b$", text):
            raise MeasurementError(
                f"{text!r} may be bits or bytes: write {text[:-1]}bit/s or {text[:-1]}B/s"
            )
        return super()._number_in(text.removesuffix("/s"))


class Several(click.ParamType[tuple[Any, ...]]):
    """Values of one kind, comma separated."""

    name = "list"

    def __init__(self, one: click.ParamType[Any]) -> None:
        self._one = one

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read each value."""
        if not isinstance(value, str):
            return value
        return tuple(self._one.convert(part, param, ctx) for part in value.split(","))


def read_counts(text: str) -> tuple[int, ...]:
    """Read whole numbers from 1, comma separated."""
    counts = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if min(counts) < 1:
        raise ValueError(f"{text!r} is not whole numbers of at least 1: write 1,2,5")
    return tuple(counts)


def read_sizes(text: str) -> tuple[int, ...]:
    """Read sizes above 0, comma separated, in whole bytes."""
    sizes = [round(SiQuantity("bytes").convert(part, None, None)) for part in text.split(",")]
    if min(sizes) < 1:
        raise ValueError(f"{text!r} has a size of nothing")
    return tuple(sizes)


def not_one_of(name: str, choices: Sequence[str]) -> str:
    """Say that a name is unknown, which is near, and which there are."""
    return f"{name!r}{nearest(name, choices)} is not one of {', '.join(choices)}"


class OneOf(click.Choice[str]):
    """One of a few names; a wrong one is answered with the nearest."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Suggest the nearest."""
        return not_one_of(str(value), self.choices)


class NameList(click.ParamType[list[str]]):
    """Names, comma separated; from a fixed choice where there is one."""

    name = "NAME[,…]"

    def __init__(self, choices: tuple[str, ...] | None = None) -> None:
        self.choices = choices

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """List the names."""
        names = [part.strip() for part in str(value).split(",") if part.strip()]
        if not names:
            self.fail("no name is given", param, ctx)
        for name in names:
            if self.choices and name not in self.choices:
                self.fail(not_one_of(name, self.choices), param, ctx)
        return names

    def candidates(self, ctx: click.Context) -> Sequence[str]:
        """Names to complete with."""
        return self.choices or ()

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Complete the last of the names with those that are not there yet."""
        done, comma, last = incomplete.rpartition(",")
        rest = [name for name in self.candidates(ctx) if name not in done.split(",")]
        return [CompletionItem(done + comma + name) for name in rest if name.startswith(last)]


class ColumnList(NameList):
    """Columns of the runs table, comma separated; completed from the header of a CSV."""

    def candidates(self, ctx: click.Context) -> Sequence[str]:
        """Header of the first of RUNS, or the columns that tell groups apart."""
        return header_of(ctx) or _IDENTITY


def header_of(ctx: click.Context) -> list[str]:
    """Header of the CSV that is the first of RUNS; empty where none can be read."""
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
    from ppw.catalogue.datasets import datasets_by_name

    return [name for name in datasets_by_name() if name.startswith(incomplete)]


def _read_device(text: str) -> str:
    """Check a device model, disk or ssd,units=16,read=70us; its text is kept."""
    from ppw.storage.fitted_devices import parse_device

    parse_device(text)
    return text


_RANGED: dict[str, Callable[..., click.ParamType[Any]]] = {
    "N": Whole,
    "NUMBER": Number,
    "BITS/S": Number,
    "PRICE": Price,
    "SHARE": Share,
    "PERCENT": Percent,
    "POINTS": Percent,
}
_UNITS = {"TIME": "s", "SIZE": "bytes", "POWER": "w", "MEMORY": "bytes", "RATE": "bytes"}
_OTHERS: dict[str, click.ParamType[Any]] = {
    "FREQUENCY": ValueReader(units.parse_frequency),
    "CPUS": ValueReader(parse_cpu_list),
    "DEVICE": ValueReader(_read_device),
    "N[,…]": ValueReader(read_counts),
    "SIZE[,…]": ValueReader(read_sizes),
    **{f"{word}[,…]": NameList() for word in ("NAME", "PATTERN", "HOST:PORT")},
    "COLUMN[,…]": ColumnList(),
    # Texts as they are typed.
    **dict.fromkeys(("FILE", "FOLDER", "FORMAT", "HOST", "LABEL", "LOG", "NAME"), click.STRING),
    **dict.fromkeys(("SHELL", "TRACE", "ZONE"), click.STRING),
    **dict.fromkeys(("COLUMN", "SOURCE[,…]", "[HOST=]SECONDS"), click.STRING),
}
_SPELLING = re.compile(
    r"(?:(?P<low>[\d.]+)(?P<above><=?))?(?P<word>\[[a-z][^]]+\]|[^<>]+?)(?P<several>\[,…\])?"
    r"(?:(?P<sign>[<>]=?)(?P<end>-?[\d.]+))?"
)
_PER = {"hours": 3600.0, "minutes": 60.0}


def kind(spelling: str, divisor: str = "") -> click.ParamType[Any]:
    """Make the kind of value that a word stands for, with its range.

    Examples
    --------
    >>> kind("0<SHARE<=1").convert("70%", None, None)
    0.7
    >>> kind("TIME>0", "minutes").convert("2h", None, None)
    120.0
    >>> kind("[lru|fifo][,…]").convert("fifo,lru", None, None)
    ['fifo', 'lru']
    """
    # A wrong word is a slip in a declaration, found when the module is imported.
    match = _SPELLING.fullmatch(spelling)
    assert match, spelling
    word, several = match["word"], match["several"] or ""
    if word + several in _OTHERS:
        return _OTHERS[word + several]
    if word.startswith("["):
        choices = tuple(word[1:-1].split("|"))
        return NameList(choices) if several else OneOf(choices)
    one = _OTHERS.get(word) or _one(word, match, _PER.get(divisor, 1.0))
    return Several(one) if several else one


def metavar(spelling: str) -> str | None:
    """Word that stands for a value in --help; None for a choice, whose names stand there."""
    match = _SPELLING.fullmatch(spelling)
    assert match, spelling
    if "|" in match["word"]:
        return "NAME[,…]" if match["several"] else None
    return match["word"].replace("MEMORY", "SIZE") + (match["several"] or "")


def _one(word: str, match: re.Match[str], divisor: float) -> click.ParamType[Any]:
    """Make the kind of one quantity or number, with its range."""
    if word in _UNITS:
        quantity = Rate if word == "RATE" else SiQuantity
        example = {"MEMORY": "256GiB", "RATE": "500MB/s or 10Gbit/s"}.get(word, "")
        positive = match["sign"] == ">"
        return quantity(_UNITS[word], positive=positive, divisor=divisor, needs_unit=example)
    low, high = _end(match["low"]), None
    open_low, open_high = match["above"] == "<", match["sign"] == "<"
    if (match["sign"] or "").startswith(">"):
        low, open_low = _end(match["end"]), match["sign"] == ">"
    else:
        high = _end(match["end"])
    # Money, percentages and shares are never negative; other numbers may be.
    if low is None and word not in ("N", "NUMBER"):
        low = 0
    return _RANGED[word](low, high, min_open=open_low, max_open=open_high)


def _end(text: str | None) -> Any:
    return text and (float(text) if "." in text else int(text))
