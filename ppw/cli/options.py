"""Options that several commands share, with their types."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ppw.cli.choices import METRIC_NAMES, Columns, Names, OneOf, complete_selection
from ppw.cli.numbers import Number, Share, Whole

if TYPE_CHECKING:
    import pandas as pd

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


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


def pairs(shape: str) -> Callable[..., dict[str, str]]:
    """Callback of an option that is given several times, as "COLUMN=HEADER, such as a=b"."""
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


_NEXT_PAIR = re.compile(r",(?=[^,=]+=)")


def selection_option(name: str, meaning: str, *, one_value: bool = False) -> Decorator:
    """Make an option that selects runs: COLUMN=VALUE, several with commas or given again.

    Its value holds a list of values by column, of which a run has one; with ``one_value`` a column
    has no second one.
    """

    def read_selection(
        ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
    ) -> dict[str, Any]:
        parts = tuple(part for text in texts for part in _NEXT_PAIR.split(text))
        if one_value:
            return dict(_SELECTED(ctx, param, parts))
        found: dict[str, list[str]] = {}
        for part in parts:
            for column, value in _SELECTED(ctx, param, (part,)).items():
                found.setdefault(column, []).append(value)
        return found

    return click.option(
        name,
        multiple=True,
        callback=read_selection,
        metavar="COLUMN=VALUE[,…]",
        shell_complete=complete_selection,
        help=meaning,
    )


_SELECTED = pairs("COLUMN=VALUE, such as host=atom")


def map_option(meaning: str, example: str) -> Decorator:
    """Make --map, which reads headers as columns; ``meaning`` is its help, before an example."""
    return click.option(
        "--map",
        "mapping",
        multiple=True,
        callback=pairs(f"COLUMN=HEADER, such as {example}"),
        metavar="COLUMN=HEADER",
        help=f"{meaning}: {example}.",
    )


def _voltages(
    ctx: click.Context, param: click.Parameter, path: str | None
) -> pd.DataFrame | dict[float, float] | None:
    if path is None:
        return None
    if path == "none":
        return {}
    from measurements import check_runs, read_runs

    return check_runs(read_runs(path, check=False), needed=["freq_hz", "voltage_v"])


vf_option = click.option(
    "--vf",
    "voltages",
    metavar="FILE",
    callback=_voltages,
    help="Table of core voltage by frequency (columns such as freq_ghz, voltage_v, and host where "
    "it differs); none ignores the column voltage_v of the runs.",
)


runs_map_option = map_option("Read a foreign header as a column of ppw's", "freq_khz='Clock (kHz)'")
where_option = selection_option(
    "--where",
    "Take only these runs: workload=sort,host=atom. A column that is named again takes either "
    "value.",
)


def metric_option(default: str = "all that the columns allow") -> Decorator:
    """Make --metric, with what is answered where it is not given."""
    return click.option(
        "--metric",
        type=Names(METRIC_NAMES),
        help=f"Of {', '.join(METRIC_NAMES)}. Default: {default}.",
    )


def by_option(meaning: str) -> Decorator:
    """Make --by, with what it tells apart."""
    return click.option("--by", type=Columns(), help=meaning)


runs_by_option = by_option(
    "Columns that tell groups apart. Default: all of host, family, workload, cores, threads, "
    "data_bytes that are there."
)


def table_options_of(
    *, by: Decorator = runs_by_option, metric: Decorator | None = None, required: bool = True
) -> Decorator:
    """Add a runs table and its grouping: RUNS, --map, --where, --by, and a --metric where given."""
    runs = click.argument("runs", nargs=-1, required=required)
    return all_of(runs, runs_map_option, where_option, by, *([metric] if metric else ()))


runs_options = table_options_of(metric=metric_option())
table_options = table_options_of()
# Of what belongs to a workload or set-up by itself, so that there is nothing to tell apart.
runs_without_groups = all_of(
    click.argument("runs", nargs=-1, required=True), runs_map_option, where_option
)
fit_options = all_of(
    click.option(
        "--form",
        type=OneOf(["amdahl", "unbounded", "reciprocal"]),
        default="amdahl",
        show_default=True,
        help="Amdahl with both parameters held at or above 0, or not; or the published "
        "1/CPI = c − k/f.",
    ),
    click.option(
        "--power-form",
        type=OneOf(["linear", "cmos"]),
        help="P0 + s·f, or P0 + c·f^EXPONENT. Default: cmos with the exponent unknown for a bayes "
        "interval, linear for the others.",
    ),
    click.option(
        "--exponent",
        type=Number(1, 5),
        help="Of --power-form cmos. Default: unknown, or 3 without a bayes interval.",
    ),
    vf_option,
    click.option(
        "--via",
        type=OneOf(["fits", "ratio"]),
        default="fits",
        show_default=True,
        help="perf_per_watt as the quotient of two fits, or by one regression on "
        "performance/power, as published.",
    ),
)
pool_option = click.option(
    "--pool/--no-pool",
    default=True,
    show_default=True,
    help="Let the groups of the table inform each other.",
)
keep_all_option = click.option(
    "--keep-all", is_flag=True, help="Use the rows that ppw check would leave out."
)


interval_options = all_of(
    click.option(
        "--interval",
        type=OneOf(["bayes", "conformal", "t", "none"]),
        default="bayes",
        show_default=True,
        help="From a posterior of bounded curves; calibrated on groups measured at the target; "
        "Student's t about the least-squares curve; or none.",
    ),
    pool_option,
    keep_all_option,
)
level_option = click.option(
    "--level",
    type=Share(0, 1, min_open=True, max_open=True),
    default="90%",
    show_default=True,
    help="Of the prediction intervals.",
)
seed_option = click.option(
    "--seed", type=Whole(0), default=0, show_default=True, help="Where chance starts."
)


def draws_option(default: int, of_what: str) -> Decorator:
    """Make --draws, of curves or lines."""
    return click.option(
        "--draws", type=Whole(100), default=default, show_default=True, help=of_what
    )


# Endings that promise what is never in the file.
_NEVER_WRITTEN = frozenset(("pdf", "png", "svg", "jpg", "xls", "xlsx", "ods", "docx", "parquet"))
# Endings of formats, which a command may have or not.
_FORMATS = frozenset(("json", "csv", "html", "htm"))


def _listed(formats: Sequence[str]) -> str:
    endings = [f".{name}" for name in formats if name != "text"]
    return " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))


def output_options_of(*formats: str, elsewhere: Sequence[str] = ()) -> Decorator:
    """Add --format, of ``formats``, and --output, whose ending says the format where none is given.

    --output is read first, wherever it stands. Endings ``elsewhere`` are the command's own affair.
    """

    def by_ending(ctx: click.Context, param: click.Parameter, given: str) -> str:
        if ctx.get_parameter_source("format_") is not ParameterSource.DEFAULT:
            return given
        ending = Path(ctx.params["output"]).suffix[1:].lower()
        if ending in (_NEVER_WRITTEN | _FORMATS) - {*formats, *elsewhere}:
            raise click.BadParameter(
                f"{ctx.params['output']}: .{ending} is not written: end it in "
                f"{_listed(formats)}, or say --format",
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
        callback=by_ending,
        help="html is one self-contained report page." if "html" in formats else "Of the output.",
    )
    output = click.option(
        "-o",
        "--output",
        default="-",
        metavar="FILE",
        is_eager=True,
        help=f"Write there; - is standard output. {_listed(formats)} at its end is the format "
        "without --format.",
    )
    return all_of(form, output)


output_options = output_options_of("text", "json", "csv", "html")
