"""Options: kinds of values, declarations as tables of text, and the runs that they name."""

from __future__ import annotations

import csv
import dataclasses
import functools
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

import measurements
from measurements.errors import MeasurementError, name_extra
from measurements.host.files import parse_cpu_list
from measurements.table import headers, units
from ppw import catalogue
from ppw.cli import output as out
from ppw.errors import PpwError
from ppw.results.text import join_words

if TYPE_CHECKING:
    import pandas as pd
    from click import Choice, ParamType
else:  # Those of click 8.1 take no type.
    by_type = {"__class_getitem__": classmethod(lambda kind, of: kind)}
    Choice, ParamType = (type(k.__name__, (k,), by_type) for k in (click.Choice, click.ParamType))


T = TypeVar("T")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Given = dict[str, Any]
Runs = tuple[str, ...]

# Kinds of values, by the words that stand for them in --help.

# Columns that tell groups apart where the user names none.
_IDENTITY = ("host", "family", "workload", "cores", "threads", "data_bytes")
METRIC_NAMES = ("time", "cpi", "throughput", "power", "energy", "perf_per_watt", "perf_per_dollar")


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
        """Read a percentage with or without %, as its number: 3 for "3%"."""
        return float(text.removesuffix("%"))


class Share(Number):
    """A share, 0.7 or 70%: the number 0.7."""

    wanted = "share: write 0.7 or 70%"

    def number_in(self, text: str) -> float:
        """Read 0.7 or 70% as 0.7; refuse a number above 1 that seems to lack its %."""
        share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
        if not math.isfinite(share):
            raise ValueError
        if self.max is not None and self.max < share <= 100 and not text.endswith("%"):
            self.fail(f"{text!r} is more than the whole: write {text}% or {share / 100:g}")
        return share


class ValueReader(ParamType[Any]):
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


class SiQuantity(ParamType[float]):
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
        # Zero is the same in every unit; of other numbers the unit is too easily mistaken.
        if self._needs_unit and re.fullmatch(r"0*[1-9][\d.]*|0*\.0*[1-9]\d*", text):
            self.fail(f"{text!r} has no unit: write one, as in {self._needs_unit}", param, ctx)
        try:
            number = self._parse_si_number(text)
        except MeasurementError as error:
            self.fail(str(error), param, ctx)
        if number < 0:
            self.fail(f"{value!r} is negative", param, ctx)
        if self._positive and number == 0:
            self.fail(f"{value!r} must be more than 0", param, ctx)
        return number / self._divisor

    def _parse_si_number(self, text: str) -> float:
        return units.parse_quantity(text, self._unit)


class Rate(SiQuantity):
    """Bytes per second: 102.4GB/s, 10Gbit/s."""

    def _parse_si_number(self, text: str) -> float:
        """Read bytes per second; bits are divided by 8, and Gb, which may be either, is refused."""
        # Networks are sold in bits, disks in bytes: Gb alone could be either.
        bits = re.fullmatch(r"([\d.]+(?:e[+-]?\d+)?)\s*([kMGT]?)(?:bit/s|bps)", text)
        if bits:
            return float(bits[1]) * 1000.0 ** " kMGT".index(bits[2] or " ") / 8
        if re.search(r"[\d\s][kMGT]i?b$", text):
            raise MeasurementError(
                f"{text!r} may be bits or bytes: write {text[:-1]}bit/s or {text[:-1]}B/s"
            )
        return super()._parse_si_number(text.removesuffix("/s"))


class Several(ParamType[tuple[Any, ...]]):
    """Values of one kind, comma separated."""

    name = "list"

    def __init__(self, one: ParamType[Any]) -> None:
        self._kind = one

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read each value."""
        if not isinstance(value, str):
            return value
        return tuple(self._kind.convert(part, param, ctx) for part in value.split(","))


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
        raise ValueError(f"{text!r} has a size of 0")
    return tuple(sizes)


def unknown_choice_text(name: str, choices: Sequence[str]) -> str:
    """Say that a name is unknown, which is near, and which there are."""
    return f"{name!r}{headers.nearest(name, choices)} is not one of {', '.join(choices)}"


class OneOf(Choice[str]):
    """One of a few names; a wrong one is answered with the nearest."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Suggest the nearest."""
        return unknown_choice_text(str(value), self.choices)


class NameList(ParamType[list[str]]):
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
                self.fail(unknown_choice_text(name, self.choices), param, ctx)
        return names

    def candidates(self, ctx: click.Context) -> Sequence[str]:
        """Names that completion may offer: the choices, none where any name goes."""
        return self.choices or ()

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Complete the last of the names with those that are not there yet."""
        # Shells replace the whole word, so the names typed already come back with each candidate.
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


class ColumnName(ParamType[str]):
    """A column of the runs table, completed from the header of a CSV."""

    name = "text"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """List the names in the header of RUNS that begin with what was typed."""
        return [CompletionItem(name) for name in header_of(ctx) if name.startswith(incomplete)]


def complete_selection(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the column of the last of several COLUMN=VALUE."""
    done, comma, last = incomplete.rpartition(",")
    return [f"{done}{comma}{name}=" for name in header_of(ctx) if name.startswith(last)]


def complete_host(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a host of the catalogue."""
    typed = incomplete.lower()
    return [name for name in catalogue.hosts.load_hosts() if name.lower().startswith(typed)]


def complete_dataset(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a public data set."""
    return [name for name in catalogue.datasets.datasets_by_name() if name.startswith(incomplete)]


def _read_device(text: str) -> str:
    """Check a device model, disk or ssd,units=16,read=70us; its text is kept."""
    from ppw.storage.fitted_devices import parse_device

    parse_device(text)
    return text


_RANGED: dict[str, Callable[..., ParamType[Any]]] = {
    "N": Whole,
    "NUMBER": Number,
    "BITS/S": Number,
    "PRICE": Price,
    "SHARE": Share,
    "PERCENT": Percent,
    "POINTS": Percent,
}
_UNITS = {"TIME": "s", "SIZE": "bytes", "POWER": "w", "MEMORY": "bytes", "RATE": "bytes"}
_OTHERS: dict[str, ParamType[Any]] = {
    "FREQUENCY": ValueReader(units.parse_frequency),
    "CPUS": ValueReader(parse_cpu_list),
    "DEVICE": ValueReader(_read_device),
    "N[,…]": ValueReader(read_counts),
    "SIZE[,…]": ValueReader(read_sizes),
    **{f"{word}[,…]": NameList() for word in ("NAME", "PATTERN", "HOST:PORT")},
    "COLUMN": ColumnName(),
    "COLUMN[,…]": ColumnList(),
    # Texts as they are typed.
    **dict.fromkeys(
        ("FILE", "FOLDER", "FORMAT", "HOST", "LABEL", "LIMIT", "LOG", "NAME", "PATTERN"),
        click.STRING,
    ),
    **dict.fromkeys(("SHELL", "STAMP", "TRACE", "URL", "ZONE"), click.STRING),
    **dict.fromkeys(("SOURCE[,…]", "[HOST=]SECONDS"), click.STRING),
}
_SPELLING = re.compile(
    r"(?:(?P<low>[\d.]+)(?P<above><=?))?(?P<word>\[[a-z][^]]+\]|[^<>]+?)(?P<several>\[,…\])?"
    r"(?:(?P<sign>[<>]=?)(?P<end>-?[\d.]+))?"
)
_PER = {"hours": 3600.0, "minutes": 60.0}


def kind(spelling: str, divisor: str = "") -> ParamType[Any]:
    """Make the parameter type that a spelling declares, as "0<SHARE<=1", with its range.

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
    one = _OTHERS.get(word) or _make_scalar_kind(word, match, _PER.get(divisor, 1.0))
    return Several(one) if several else one


def metavar(spelling: str) -> str | None:
    """Return the word that --help shows for a value; None for a choice, whose names stand there."""
    match = _SPELLING.fullmatch(spelling)
    assert match, spelling
    if "|" in match["word"]:
        return "NAME[,…]" if match["several"] else None
    return match["word"].replace("MEMORY", "SIZE") + (match["several"] or "")


def _make_scalar_kind(word: str, match: re.Match[str], divisor: float) -> ParamType[Any]:
    """Make the parameter type of one quantity or number, with its range."""
    if word in _UNITS:
        quantity = Rate if word == "RATE" else SiQuantity
        example = {"MEMORY": "256GiB", "RATE": "500MB/s or 10Gbit/s"}.get(word, "")
        positive = match["sign"] == ">"
        return quantity(_UNITS[word], positive=positive, divisor=divisor, needs_unit=example)
    low, high = _parse_range_end(match["low"]), None
    open_low, open_high = match["above"] == "<", match["sign"] == "<"
    if (match["sign"] or "").startswith(">"):
        low, open_low = _parse_range_end(match["end"]), match["sign"] == ">"
    else:
        high = _parse_range_end(match["end"])
    # Money, percentages and shares are never negative; other numbers may be.
    if low is None and word not in ("N", "NUMBER"):
        low = 0
    return _RANGED[word](low, high, min_open=open_low, max_open=open_high)


def _parse_range_end(text: str | None) -> Any:
    return text and (float(text) if "." in text else int(text))


# Declarations: a line an option, as --help prints it.
_OPTION = re.compile(
    r"(?P<spellings>-\S+(?:, -\S+)*)(?: was (?P<former>-\S+))?"
    r"(?: (?P<kind>[^(a-z\s]\S*|\[[^]]+\](?:\[,…\])?))?(?: in (?P<unit>hours|minutes))?"
    r"(?: as (?P<name>\w+))?(?P<repeated> several times)?(?: \((?P<default>[^)]+)\))?"
    r": ?(?P<help>.*)"
)


def options(declaration: str, **kinds: ParamType[Any]) -> Decorator:
    """Make options of a declaration: SPELLINGS KIND as NAME (DEFAULT): HELP.

    KIND is a word of `kind`, or one of ``kinds``; an option without one is a flag. NAME is
    its parameter in Python where that is called otherwise. DEFAULT may be "required". A former
    spelling, after "was", is taken and not listed; an option without a help is hidden.

    Examples
    --------
    >>> add = options("--data SIZE as data_bytes (1GiB): Size of the file.")
    >>> click.command()(add(lambda data_bytes: None)).params[0].opts
    ['--data']
    """
    # A line that goes on is indented more than its option.
    texts = re.split(r"\n(?=\S)", textwrap.dedent(declaration).strip())
    return all_of(*(_make_option(" ".join(text.split()), kinds) for text in texts))


def _make_option(text: str, kinds: dict[str, ParamType[Any]]) -> Decorator:
    match = _OPTION.fullmatch(text)
    assert match, text
    given: dict[str, Any] = {"help": match["help"], "hidden": not match["help"]}
    if match["former"]:
        given |= {"cls": Respelt, "former": match["former"]}
    if word := match["kind"]:
        given["type"] = kinds[word] if word in kinds else kind(word, match["unit"] or "")
        given["metavar"] = metavar(word)
    else:
        given["is_flag"] = True
        if "/" in match["spellings"]:
            given |= {"default": True, "show_default": True}
    if match["default"] == "required":
        given["required"] = True
    elif match["default"] is not None:
        given |= {"default": match["default"], "show_default": True}
    if match["repeated"]:
        given["multiple"] = True
    names = [match["name"]] if match["name"] else []
    return click.option(*match["spellings"].split(", "), *names, **given)


def all_of(*options: Decorator) -> Decorator:
    """Make one decorator that adds several options, in this order."""
    return lambda function: functools.reduce(lambda f, add: add(f), reversed(options), function)


class Respelt(click.Option):
    """Option with a former spelling, which is taken and not listed."""

    def __init__(self, param_decls: Sequence[str], *, former: str, **attributes: Any) -> None:
        super().__init__(param_decls, **attributes)
        self.former = former

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Tell the parser both spellings; help and errors know the present one alone."""
        present, self.opts = self.opts, [*self.opts, self.former]
        super().add_to_parser(parser, ctx)
        self.opts = present


def pick_fields(kind: type[T], given: Given, **others: Any) -> T:
    """Make a data class of the options named as its fields; one not given keeps its default."""
    # An option that is not given is None, which few fields take: their defaults stand once, there.
    fields = [f for f in dataclasses.fields(kind) if f.name in given]  # type: ignore[arg-type]
    required = dataclasses.MISSING
    picked = {f.name: given[f.name] for f in fields}
    kept = {f.name for f in fields if picked[f.name] is None and f.default is not required}
    return kind(**{n: v for n, v in picked.items() if n not in kept} | others)


# Commands: what a function answers is printed in the format asked for.
class _Context(click.Context):
    def __exit__(self, *raised: Any) -> Any:
        """Make a missing optional library wrong usage, with the line that installs it."""
        ended = super().__exit__(*raised)
        if isinstance(error := raised[1], ModuleNotFoundError):
            name_extra(error, self.command_path)
            if "'perf-per-watt[" in str(error):
                raise click.UsageError(str(error)) from error
        return ended


# Options that choose models and their statistics, which --help-all lists.
_STATISTICS = {
    *("form", "power_form", "exponent", "voltages", "via", "interval", "pool", "keep_all"),
    *("draws", "seed"),
}
_HELP_ALL = "ppw.help_all"


class _Command(click.Command):
    context_class = _Context

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Parameters of the command; with --help-all where --help leaves options out."""
        params = super().get_params(ctx)
        if not any(param.name in _STATISTICS for param in params):
            return params
        text = "Show this message with the options of models and statistics, and exit."
        flags: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False}
        added = click.Option(["--help-all"], callback=_print_all_help, help=text, **flags)
        return [*params, added]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options; those of models and statistics in a section of their own."""
        titled: dict[str, list[tuple[str, str]]] = {"Options": [], "Models and statistics": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record and isinstance(param, click.Option):
                titled[[*titled][param.name in _STATISTICS]].append(record)
        for title, records in [*titled.items()][: 2 if ctx.meta.get(_HELP_ALL) else 1]:
            with formatter.section(title):
                formatter.write_dl(records)


def _print_all_help(ctx: click.Context, param: click.Parameter, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        ctx.meta[_HELP_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


def command(
    name: str,
    short: str,
    example: str,
    *added: Decorator,
    group: click.Group | None = None,
    **settings: Any,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command of a function whose docstring is its help, with a line for the list."""

    def make_command(function: Callable[..., Any]) -> click.Command:
        # A group lists and finds its own commands; the commands of ppw itself are in COMMANDS.
        made = click.command if group is None else group.command
        texts = {"short_help": short, "epilog": f"Example: {example}"}
        add = made(name=name, cls=_Command, **texts, **settings)
        return add(all_of(*added)(function))

    return make_command


def question(
    name: str,
    short: str,
    example: str,
    *added: Decorator,
    group: click.Group | None = None,
    formats: Sequence[str] = ("text", "json", "csv", "html"),
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command of a function that returns an answer, which is written by --format and -o.

    With the answer the function may return why a check of it failed: the exit code then is 3.
    """

    def make_command(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def answer_and_write(*, format_: str, output: str, **given: Any) -> int:
            # The result prints its caveats: as warnings they would appear twice.
            with out.caveats_in_result():
                found = function(**given)
                result, failure = found if isinstance(found, tuple) else (found, None)
                out.emit(result, format_, output)
            return out.report_failed_check(failure) if failure else 0

        writing = output_options_of(*formats)
        return command(name, short, example, *added, writing, group=group)(answer_and_write)

    return make_command


def other_question(spelling: str, meaning: str, metavar: str | None = None) -> Decorator:
    """Make an option that `ppw.cli` answers by another command, so that --help lists it."""
    shape: dict[str, Any] = {"metavar": metavar} if metavar else {"is_flag": True}
    return click.option(spelling, expose_value=False, help=meaning, **shape)


def typed_options(ctx: click.Context, *understood: str) -> list[str]:
    """Spellings of the options that the user typed, but for those that are ``understood``."""
    return [
        "/".join([param.opts[0], *param.secondary_opts])
        for param in ctx.command.params
        if ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
        and param.name not in understood
    ]


# Options of several commands.
LEVEL = options("--level 0<SHARE<1 (90%): Level of the prediction intervals.")
SEED = options("--seed N>=0 (0): Random seed.")
POOL = options(
    "--pool/--no-pool: Fit all groups together, with partial pooling. Each group "
    "then borrows strength from the others."
)
KEEP_ALL = options("--keep-all: Use the rows that ppw check would leave out.")
COST = options("""
    --electricity PRICE: Price per kWh, with --lifetime.
    --lifetime TIME>0 in hours as lifetime_hours: Time of use over which the price of a host is
        spread: 35000h, 4y. Needs --electricity.
""")
TOLERANCE = options(
    "--tolerance SHARE>0 (5%): Largest variation of throughput within a range of "
    "data sizes that counts as flat."
)


def pairs(shape: str, *, commas: bool = False, lists: bool = False) -> Callable[..., Any]:
    """Make the callback that reads NAME=VALUE texts into a dict, each name once.

    With ``commas`` a text may hold several pairs; with ``lists`` a name may have several values.
    """
    # Messages call the left side by its word: "column freq_khz is given twice".
    left = shape.partition("=")[0]
    # A comma may stand in a value, and parts two pairs only before the next NAME=.
    between = re.compile(r",(?=[^,=]+=)" if commas else r"(?!)")

    def read_pairs(
        ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
    ) -> dict[str, Any]:
        found: dict[str, list[str]] = {}
        for text in (part for one in texts for part in between.split(one)):
            name, equals, value = text.partition("=")
            if not (name and equals and value):
                raise click.BadParameter(f"{text!r} is not {shape}", ctx, param)
            if name in found and not lists:
                raise click.BadParameter(f"{left.lower()} {name} is given twice", ctx, param)
            found.setdefault(name, []).append(value)
        return found if lists else {name: values[0] for name, values in found.items()}

    return read_pairs


def pairs_option(
    *names: str, shape: str, meaning: str, callback: Callable[..., Any] | None = None, **more: Any
) -> Decorator:
    """Make an option whose value is NAME=VALUE, several times; ``shape`` may end in an example."""
    metavar = shape.partition(", ")[0]
    read = callback or pairs(shape)
    return click.option(*names, multiple=True, callback=read, metavar=metavar, help=meaning, **more)


def map_option(meaning: str, example: str) -> Decorator:
    """Make --map, which reads headers as columns; ``meaning`` is its help, before an example."""
    shape = f"COLUMN=HEADER, like {example}"
    return pairs_option("--map", "mapping", shape=shape, meaning=f"{meaning}: {example}.")


def selection_option(name: str, meaning: str) -> Decorator:
    """Make an option that selects runs: COLUMN=VALUE, several with commas or given again.

    Its value holds a list of values by column, of which a run has one.
    """
    return pairs_option(
        name,
        shape="COLUMN=VALUE[,…]",
        meaning=meaning,
        callback=pairs("COLUMN=VALUE, like host=atom", commas=True, lists=True),
        shell_complete=complete_selection,
    )


class VoltageFile(ParamType[Any]):
    """A file with a V-f table."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the table; {} for "none"."""
        # An empty mapping says that no voltage is known; no option leaves that to the runs.
        if value == "none":
            return {}
        table = measurements.read_runs(value, check=False)
        return measurements.check_runs(table, needed=["freq_hz", "voltage_v"])


VOLTAGES = click.option(
    "--vf",
    "voltages",
    metavar="FILE",
    type=VoltageFile(),
    help="Table of core voltage by frequency (columns freq_ghz, voltage_v, and host "
    "if hosts differ). With --vf none, ppw ignores the column voltage_v of the runs.",
)


def metric_option(default: str = "all metrics that the columns allow") -> Decorator:
    """Make --metric, whose help says which metrics are the default."""
    kind, listed = "|".join(METRIC_NAMES), ", ".join(METRIC_NAMES)
    return options(f"--metric [{kind}][,…]: One or several of {listed}. Default: {default}.")


def by_option(meaning: str) -> Decorator:
    """Make --by, whose help says what it tells apart."""
    return options(f"--by COLUMN[,…]: {meaning}")


def table_options(
    by: str = "groups apart. Default: those of host, family, workload, cores, threads and "
    "data_bytes that the table has.",
    *more: Decorator,
    required: bool = True,
) -> Decorator:
    """Add a runs table and its grouping: RUNS, --map, --where and, where ``by`` is given, --by."""
    return all_of(
        click.argument("runs", nargs=-1, required=required),
        map_option("Map a header of your file to a column of ppw", "freq_khz='Clock (kHz)'"),
        selection_option(
            "--where",
            "Select runs: workload=sort,host=atom. If a column is named twice, "
            "either value matches.",
        ),
        *([by_option(f"Columns that tell {by}")] if by else []),
        *more,
    )


TABLE = table_options()
TABLE_METRIC = all_of(TABLE, metric_option())
# A table of one workload or set-up, without groups to tell apart.
TABLE_ALONE = table_options(by="")
FIT = all_of(
    options("""
    --form [amdahl|unbounded|reciprocal] (amdahl): Model of time and CPI: Amdahl with both
        parameters at or above 0, Amdahl without bounds, or the published model 1/CPI = c − k/f.
    --power-form [linear|cmos]: Power model: linear (P0 + s·f) or cmos (P0 + c·f^EXPONENT). Default:
        cmos with a fitted exponent for a bayes interval, linear for the others.
    --exponent 1<=NUMBER<=5: Exponent of --power-form cmos. Default: fitted with a bayes interval,
        otherwise 3.
    """),
    VOLTAGES,
    options("""
    --via [fits|ratio] (fits): Method for perf_per_watt: quotient of two fits (fits), or the
        published regression on the quotient performance/power (ratio).
    """),
)
INTERVAL = all_of(
    options("""
    --interval [bayes|conformal|t|none] (bayes): Method of the prediction intervals: a posterior of
        bounded curves (bayes), calibration on groups measured at the target (conformal), Student's
        t about the least-squares curve, or none.
    """),
    POOL,
    KEEP_ALL,
)


def draws_option(default: int, meaning: str) -> Decorator:
    """Make --draws, with what it draws."""
    return options(f"--draws N>=100 ({default}): {meaning}")


_DRAWS = draws_option(2000, "Number of posterior draws per group.")
DRAWS = all_of(VOLTAGES, POOL, KEEP_ALL, _DRAWS, SEED)


def steps_option(fewest: int, meaning: str) -> Decorator:
    """Make --steps: a range 1.2GHz:2.4GHz:0.2GHz, or a list with commas."""

    def read_steps(text: str) -> list[float]:
        from ppw.decision.objectives import as_steps

        return [float(step) for step in as_steps(text, fewest=fewest)]

    metavar = "FREQUENCY,…|LOW:HIGH:STEP"
    return click.option("--steps", type=ValueReader(read_steps), metavar=metavar, help=meaning)


# Where an answer goes.

# Endings that promise what is never in the file.
_NEVER_WRITTEN = frozenset(("pdf", "png", "svg", "jpg", "xls", "xlsx", "ods", "docx", "parquet"))
# Endings of formats, which a command may have or not.
_FORMATS = frozenset(("json", "csv", "html", "htm"))
# Endings that are not the name of their format.
_FORMAT_OF_ENDING = {"md": "markdown"}


def _list_endings(formats: Sequence[str]) -> str:
    """List the endings of files in some formats."""
    spelt = {name: ending for ending, name in _FORMAT_OF_ENDING.items()}
    return join_words([f".{spelt.get(name, name)}" for name in formats if name != "text"], "or")


def output_options_of(*formats: str, elsewhere: Sequence[str] = ()) -> Decorator:
    """Add --format, of ``formats``, and --output, whose ending says the format where none is given.

    --output is read first, wherever it stands. Endings ``elsewhere`` are the command's own affair.
    """

    def format_by_ending(ctx: click.Context, param: click.Parameter, given: str) -> str:
        # --output is eager, so its value is known here wherever it stands on the line.
        if ctx.get_parameter_source("format_") is not ParameterSource.DEFAULT:
            return given
        ending = Path(ctx.params["output"]).suffix[1:].lower()
        ending = _FORMAT_OF_ENDING.get(ending, ending)
        if ending in (_NEVER_WRITTEN | _FORMATS) - {*formats, *elsewhere}:
            raise click.BadParameter(
                f"{ctx.params['output']}: .{ending} is not written: end it in "
                f"{_list_endings(formats)}, or say --format",
                ctx,
                param_hint="'--output'",
            )
        return ending if ending in formats else given

    form = click.option(
        "--format",
        "format_",
        type=OneOf(formats),
        default="text",
        show_default=True,
        callback=format_by_ending,
        help="Output format. html is one self-contained page."
        if "html" in formats
        else "Format of the output.",
    )
    output = click.option(
        "-o",
        "--output",
        default="-",
        metavar="FILE",
        is_eager=True,
        help="File to write; - is standard output. Without --format, its ending "
        f"{_list_endings(formats)} sets the format.",
    )
    return all_of(form, output)


output_options = output_options_of("text", "json", "csv", "html")

# The runs tables that a command names.

# Options that name columns, and those whose values are told by columns.
_NAMING, _SELECTING = ("by", "over", "of"), ("a", "b")


def read_table(runs: Runs, given: Given) -> pd.DataFrame:
    """Read the runs that the options ask for, without checking their columns.

    --map and --where are taken out of the options given. An option that names a header of the
    files' own names the column that it became from here on.
    """
    from measurements.imports import importing
    from ppw.runs.groups import choose_runs

    # Columns are checked where they are asked for: rows that are left out may hold anything.
    mapping, where = given.pop("mapping"), given.pop("where")
    if runs and not mapping and all(map(importing.recognise_format, runs)):
        table = importing.import_runs(runs)
    else:
        files = runs[0] if len(runs) == 1 else list(runs)
        table = measurements.read_runs(files, columns=mapping, check=False)
    for said in table.attrs.get("read", ()):
        out.say(said)
    # A header that became a column of ours is taken under both names, wherever it is typed.
    selecting = [*where, *(name for side in _SELECTING for name in given.get(side) or ())]
    columns = {name: _renamed_column(table, name) for name in dict.fromkeys(selecting)}
    for option in _NAMING:
        if named := given.get(option):
            names = [named] if isinstance(named, str) else named
            columns |= {name: _renamed_column(table, name) for name in names if name not in columns}
            renamed = [columns[name] for name in names]
            given[option] = renamed[0] if isinstance(named, str) else renamed
    return choose_runs(table, where) if where else table


def refuse_table_options(given: Given, instead: str) -> None:
    """Take --map and --where out of the options. Raises `click.UsageError` where one was given."""
    for option, name in (("mapping", "--map"), ("where", "--where")):
        if given.pop(option):
            raise click.UsageError(f"{name} is for runs tables, and {instead}")


def _renamed_column(table: pd.DataFrame, name: str) -> str:
    """Return the column that a header of the file became, and print that; else the name itself."""
    from measurements.table.reading import renamed_headers

    became = renamed_headers(table).get(name)
    if became is None or name in table.columns:
        return name
    column = became.canonical
    # A column in another unit is no other column.
    if not name.lower().startswith(column.rpartition("_")[0] or column):
        out.say(f"{name} is read as the column {column}")
    return column
