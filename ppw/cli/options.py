"""Options, declared as tables of text, and what their values read: runs, logs, traces, models."""

from __future__ import annotations

import dataclasses
import functools
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

import measurements
from ppw.cli import output as out
from ppw.cli import types

if TYPE_CHECKING:
    import pandas as pd

    from measurements.sweep.measure import HostOptions

T = TypeVar("T")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Given = dict[str, Any]
Runs = tuple[str, ...]


# Declarations: a line an option, as --help prints it.

_OPTION = re.compile(
    r"(?P<spellings>-\S+(?:, -\S+)*)(?: was (?P<former>-\S+))?"
    r"(?: (?P<kind>[^(a-z\s]\S*|\[[^]]+\](?:\[,…\])?))?(?: in (?P<unit>hours|minutes))?"
    r"(?: as (?P<name>\w+))?(?P<repeated> several times)?(?: \((?P<default>[^)]+)\))?"
    r": ?(?P<help>.*)"
)


def options(declaration: str, **kinds: click.ParamType[Any]) -> Decorator:
    """Make options of a declaration: SPELLINGS KIND as NAME (DEFAULT): HELP.

    KIND is a word of `types.kind`, or one of ``kinds``; an option without one is a flag. NAME is
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
    return all_of(*(_option(" ".join(text.split()), kinds) for text in texts))


def _option(text: str, kinds: dict[str, click.ParamType[Any]]) -> Decorator:
    match = _OPTION.fullmatch(text)
    assert match, text
    given: dict[str, Any] = {"help": match["help"], "hidden": not match["help"]}
    if match["former"]:
        given |= {"cls": Respelt, "former": match["former"]}
    if word := match["kind"]:
        given["type"] = kinds[word] if word in kinds else types.kind(word, match["unit"] or "")
        given["metavar"] = types.metavar(word)
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
    """Add several options, in this order."""
    return lambda function: functools.reduce(lambda f, add: add(f), reversed(options), function)


class Respelt(click.Option):
    """Option with a former spelling, which is taken and not listed."""

    def __init__(self, param_decls: Sequence[str], *, former: str, **attributes: Any) -> None:
        super().__init__([*param_decls, former], **attributes)
        self._former = former

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Lines of --help, by the present spelling."""
        taken = self.opts
        self.opts = [spelling for spelling in taken if spelling != self._former]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = taken

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """How an error names it."""
        return repr(self.opts[0])


def pick_fields(kind: type[T], given: Given, **others: Any) -> T:
    """Make a data class of the options that are called as its fields, and of others.

    A field keeps its default where the option is not given.
    """
    # An option that is not given is None, which few fields take: their defaults stand once, there.
    fields = [f for f in dataclasses.fields(kind) if f.name in given]  # type: ignore[arg-type]
    required = dataclasses.MISSING
    picked = {f.name: given[f.name] for f in fields}
    kept = {f.name for f in fields if picked[f.name] is None and f.default is not required}
    return kind(**{n: v for n, v in picked.items() if n not in kept} | others)


# Commands: what a function answers is printed in the format asked for.
def command(
    name: str,
    short: str,
    example: str,
    *added: Decorator,
    group: click.Group | None = None,
    **settings: Any,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command of a function whose docstring is its help, with a line for the list."""

    def make(function: Callable[..., Any]) -> click.Command:
        made = click.command if group is None else group.command
        add = made(name=name, short_help=short, epilog=f"Example: {example}", **settings)
        return add(all_of(*added)(function))

    return make


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

    def make(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def answer(*, format_: str, output: str, **given: Any) -> int:
            # The result prints its caveats: as warnings they would appear twice.
            with out.caveats_in_result():
                found = function(**given)
                result, failure = found if isinstance(found, tuple) else (found, None)
                out.emit(result, format_, output)
            return out.exit_code(failure)

        writing = output_options_of(*formats)
        return command(name, short, example, *added, writing, group=group)(answer)

    return make


def typed_options(ctx: click.Context, *understood: str) -> list[str]:
    """Spellings of the options that the user typed, but for those that are ``understood``."""
    return [
        param.opts[0]
        for param in ctx.command.params
        if ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
        and param.name not in understood
    ]


# Options of several commands.

LEVEL = options("--level 0<SHARE<1 (90%): Level of the prediction intervals.")
SEED = options("--seed N>=0 (0): Random seed.")
POOL = options("--pool/--no-pool: Pool the groups of the table, so that they inform each other.")
KEEP_ALL = options("--keep-all: Use rows that ppw check flags.")
COST = options("""
    --electricity PRICE: Price of a kWh, with --lifetime.
    --lifetime TIME>0 in hours as lifetime_hours: Lifetime over which the price of a host is spread:
        35000h, 4y, with --electricity.
""")
TOLERANCE = options(
    "--tolerance SHARE>0 (5%): Variation of throughput in data sizes that are called flat."
)


def pairs(shape: str) -> Callable[..., dict[str, str]]:
    """Make the callback of an option that is given several times: "COLUMN=HEADER: a=b"."""
    left = shape.partition("=")[0]

    def read_pairs(
        ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
    ) -> dict[str, str]:
        found: dict[str, str] = {}
        for text in texts:
            name, equals, value = text.partition("=")
            if not (name and equals and value):
                raise click.BadParameter(f"{text!r} is not {shape}", ctx, param)
            if name in found:
                raise click.BadParameter(f"{left.lower()} {name} is given twice", ctx, param)
            found[name] = value
        return found

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


def selection_option(name: str, meaning: str, *, one_value: bool = False) -> Decorator:
    """Make an option that selects runs: COLUMN=VALUE, several with commas or given again.

    Its value holds a list of values by column, of which a run has one; with ``one_value`` a column
    has no second one.
    """
    read_pairs = pairs("COLUMN=VALUE, like host=atom")

    def read_selection(
        ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
    ) -> dict[str, Any]:
        # A comma may stand in a value, and parts two pairs only before the next column=.
        parts = tuple(part for text in texts for part in re.split(r",(?=[^,=]+=)", text))
        if one_value:
            return dict(read_pairs(ctx, param, parts))
        found: dict[str, list[str]] = {}
        for part in parts:
            for column, value in read_pairs(ctx, param, (part,)).items():
                found.setdefault(column, []).append(value)
        return found

    return pairs_option(
        name,
        shape="COLUMN=VALUE[,…]",
        meaning=meaning,
        callback=read_selection,
        shell_complete=types.complete_selection,
    )


def _read_voltages(
    ctx: click.Context, param: click.Parameter, path: str | None
) -> pd.DataFrame | dict[float, float] | None:
    if path is None or path == "none":
        return None if path is None else {}
    table = measurements.read_runs(path, check=False)
    return measurements.check_runs(table, needed=["freq_hz", "voltage_v"])


VOLTAGES = click.option(
    "--vf",
    "voltages",
    metavar="FILE",
    callback=_read_voltages,
    help="Table of core voltage by frequency (columns freq_ghz, voltage_v, and host where it "
    "differs); none ignores the column voltage_v of the runs.",
)


def metric_option(default: str = "all that the columns allow") -> Decorator:
    """Make --metric, with what is answered where it is not given."""
    kind, listed = "|".join(types.METRIC_NAMES), ", ".join(types.METRIC_NAMES)
    return options(f"--metric [{kind}][,…]: One or several of {listed}. Default: {default}.")


def by_option(meaning: str) -> Decorator:
    """Make --by, with what it tells apart."""
    return options(f"--by COLUMN[,…]: {meaning}")


def table_options(
    by: str = "groups apart. Default: all of host, family, workload, cores, threads, data_bytes "
    "that are there.",
    *more: Decorator,
    required: bool = True,
) -> Decorator:
    """Add a runs table and its grouping: RUNS, --map, --where and, where ``by`` is given, --by."""
    return all_of(
        click.argument("runs", nargs=-1, required=required),
        map_option("Read a foreign header as a column of ppw's", "freq_khz='Clock (kHz)'"),
        selection_option(
            "--where",
            "Select runs: workload=sort,host=atom. A column named twice takes either value.",
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
        parameters at or above 0, Amdahl without bounds, or the published 1/CPI = c − k/f.
    --power-form [linear|cmos]: Power model: linear (P0 + s·f) or cmos (P0 + c·f^EXPONENT). Default:
        cmos with a fitted exponent for a bayes interval, linear for the others.
    --exponent 1<=NUMBER<=5: Exponent of --power-form cmos. Default: unknown, or 3 without a bayes
        interval.
    """),
    VOLTAGES,
    options("""
    --via [fits|ratio] (fits): Fit of perf_per_watt: quotient of two fits, or one regression
        on performance/power, as published.
    """),
)
INTERVAL = all_of(
    options("""
    --interval [bayes|conformal|t|none] (bayes): Interval from a posterior of bounded curves;
        calibrated on groups measured at the target; Student's t about the least-squares curve; or
        none.
    """),
    POOL,
    KEEP_ALL,
)


def draws_option(default: int, meaning: str) -> Decorator:
    """Make --draws, with what it draws."""
    return options(f"--draws N>=100 ({default}): {meaning}")


DRAWS = all_of(
    VOLTAGES, POOL, KEEP_ALL, draws_option(2000, "Number of posterior draws per group."), SEED
)


def steps_option(fewest: int, meaning: str) -> Decorator:
    """Make --steps: a range 1.2GHz:2.4GHz:0.2GHz, or a list with commas."""

    def read_steps(text: str) -> list[float]:
        from ppw.decision.objectives import as_steps

        return [float(step) for step in as_steps(text, fewest=fewest)]

    metavar = "FREQUENCY,…|LOW:HIGH:STEP"
    return click.option(
        "--steps", type=types.ValueReader(read_steps), metavar=metavar, help=meaning
    )


# Where an answer goes.

# Endings that promise what is never in the file.
_NEVER_WRITTEN = frozenset(("pdf", "png", "svg", "jpg", "xls", "xlsx", "ods", "docx", "parquet"))
# Endings of formats, which a command may have or not.
_FORMATS = frozenset(("json", "csv", "html", "htm"))


def _list_endings(formats: Sequence[str]) -> str:
    """List the endings of files in some formats."""
    endings = [f".{name}" for name in formats if name != "text"]
    return " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))


def output_options_of(*formats: str, elsewhere: Sequence[str] = ()) -> Decorator:
    """Add --format, of ``formats``, and --output, whose ending says the format where none is given.

    --output is read first, wherever it stands. Endings ``elsewhere`` are the command's own affair.
    """

    def by_ending(ctx: click.Context, param: click.Parameter, given: str) -> str:
        # --output is eager, so its value is known here wherever it stands on the line.
        if ctx.get_parameter_source("format_") is not ParameterSource.DEFAULT:
            return given
        ending = Path(ctx.params["output"]).suffix[1:].lower()
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
        type=types.OneOf(formats),
        default="text",
        show_default=True,
        callback=by_ending,
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
        help=f"Write there; - is standard output. {_list_endings(formats)} at its end is the "
        "format without --format.",
    )
    return all_of(form, output)


output_options = output_options_of("text", "json", "csv", "html")


# The runs tables that a command names.

# Options that name columns, and those whose values are told by columns.
_NAMING, _SELECTING = ("by", "over", "of"), ("a", "b")


def read_table(runs: Runs, given: Given) -> pd.DataFrame:
    """Read the runs that the options ask for; what is asked of them checks them.

    --map and --where are taken out of the options given. An option that names a header of the
    files' own names the column that it became from here on.
    """
    from ppw.runs.groups import choose_runs

    # Columns are checked where they are asked for: rows that are left out may hold anything.
    mapping, where = given.pop("mapping"), given.pop("where")
    table = measurements.read_runs(
        runs[0] if len(runs) == 1 else list(runs), columns=mapping, check=False
    )
    # A header that became a column of ours is taken under both names, wherever it is typed.
    selecting = [*where, *(name for side in _SELECTING for name in given.get(side) or ())]
    columns = {name: _column(table, name) for name in dict.fromkeys(selecting)}
    for option in _NAMING:
        if named := given.get(option):
            names = [named] if isinstance(named, str) else named
            columns |= {name: _column(table, name) for name in names if name not in columns}
            given[option] = (
                columns[named] if isinstance(named, str) else [columns[n] for n in names]
            )
    return choose_runs(table, where) if where else table


def refuse_table_options(given: Given, instead: str) -> None:
    """Take --map and --where out of the options, and refuse them where no runs table is read."""
    for option, name in (("mapping", "--map"), ("where", "--where")):
        if given.pop(option):
            raise click.UsageError(f"{name} is for runs tables, and {instead}")


def _column(table: pd.DataFrame, name: str) -> str:
    """Column that a header of the files' own became, which is said; else the name as it is."""
    from measurements.table.reading import renamed_headers

    became = renamed_headers(table).get(name)
    if became is None or name in table.columns:
        return name
    column = became.canonical
    # A column in another unit is no other column.
    if not name.lower().startswith(column.rpartition("_")[0] or column):
        out.say(f"{name} is read as the column {column}")
    return column


# Options of the commands that measure this host.

WORKLOAD = options("--workload NAME: Name of the workload. Default: that of the command.")
DATA = options("--data SIZE as data_bytes: Input size: 10GB.")
HOST = options("--host NAME: Name of this host in the table. Default: its own.")
FAMILY = options("--family NAME: Microarchitecture family: Westmere.")
KERNEL = options("""
    --sysfs FOLDER (/sys):
    --procfs FOLDER (/proc):
""")
POWER = options("""
    --power SOURCE[,…]: Source of power readings: rapl, ipmi@HOST, redfish@URL, meter@RESOURCE,
        log@FILE, …, or none; see ppw sensors. Default: what this host has.
""")
FREQUENCY = options("""
    --freq was --freqs FREQUENCY[,…] as freqs: Core frequencies to fix: 1.2GHz,1.8GHz.
    --clock FREQUENCY: Core frequency, if it is left as found and the host cannot tell it.
    --turbo [on|off]: Turbo state to set. Default: unchanged.
""")
ROW = all_of(HOST, FAMILY, options("--price PRICE>0: Price of this host."))
PACE = all_of(
    options("""
    --idle TIME as idle_s (10s): Idle time that is measured first, where power can be read.
    --settle TIME as settle_s (2s): Wait after each change of the core frequency.
    --every was --interval TIME (0.1s): Time between readings of a power source that is quick
        enough.
    --timeout TIME as timeout_s (10s): Time for a BMC or meter to answer.
    """),
    SEED,
    options("--resume: Continue an interrupted sweep."),
)


def repeats_option(default: int) -> Decorator:
    """Make --repeats."""
    return options(f"--repeats N>=1 ({default}): Number of runs of each set-up.")


def metrics_option(choices: Sequence[str], default: str) -> Decorator:
    """Make --metric: what has to be measured, of ``choices``."""
    return options(
        f"--metric [{'|'.join(choices)}][,…] as metrics: Metrics that must be measured: "
        f"{', '.join(choices)}. Others are measured if possible. Default: {default}."
    )


def table_option(*, required: bool) -> Decorator:
    """Make --output of the commands that write a runs table run by run."""
    return options(
        f"-o, --output FILE{' (required)' * required}: Runs table to write: .parquet, .csv or "
        ".jsonl. Raw readings are stored beside it."
    )


def refuse_two_frequencies(given: Given) -> None:
    """Refuse --clock beside --freq."""
    if given["freqs"] and given["clock"]:
        raise click.UsageError("--clock says what the clock is as found; with --freq it is set")


def refuse_standard_output(output: str) -> None:
    """Refuse -o -, for a table that grows."""
    if output == "-":
        raise click.UsageError("-o takes a file: the table is written anew after every run")


def measured_host_options(given: Given, metrics: Sequence[str], *, as_found: bool) -> HostOptions:
    """Options of `measurements.sweep.measure` for sensors and frequencies, from those given."""
    from measurements.sweep.measure import HostOptions

    return pick_fields(
        HostOptions,
        given,
        metrics=tuple(metrics),
        as_found=as_found,
        turbo={"on": True, "off": False, None: None}[given["turbo"]],
        interval_s=given["every"],
    )
