"""Options that several commands share, with their types."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from measurements.errors import MeasurementError
from measurements.host.files import parse_cpu_list
from ppw.cli.output import caveats_in_result, emit, refuse_an_input, say
from ppw.cli.types import (
    METRIC_NAMES,
    ByteRate,
    Bytes,
    Columns,
    Duration,
    Frequencies,
    Frequency,
    Memory,
    Names,
    Number,
    OneOf,
    Positive,
    Price,
    Seconds,
    Share,
    Whole,
    complete_host,
    complete_selection,
)
from ppw.errors import PpwError
from ppw.results.text import printable, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    import pandas as pd

    from measurements.sweep.measure import HostOptions
    from measurements.timeseries.series import TimeSeries
    from measurements.traces import Trace
    from measurements.traces.trace_writing import NamedRequests
    from measurements.workloads.service import Running, ServiceOptions
    from ppw.catalogue.hosts import Host
    from ppw.fleet.projections import FleetAnswer
    from ppw.storage.trace_model import TraceModel


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


# Options of the commands that decide something: `ppw best`, `ppw compare` and `ppw plan`.


_HOUR_S = 3600.0


class Steps(click.ParamType[list[float]]):
    """Frequencies to choose from: a range 1.2GHz:2.4GHz:0.2GHz, or a list with commas."""

    name = "FREQUENCY,…|LOW:HIGH:STEP"

    def __init__(self, fewest: int) -> None:
        self.fewest = fewest

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[float]:
        """Frequencies in Hz."""
        from ppw.decision.objectives import as_steps

        try:
            return [float(step) for step in as_steps(str(value), fewest=self.fewest)]
        except (MeasurementError, PpwError) as error:
            self.fail(str(error), param, ctx)


cost_options = all_of(
    click.option("--electricity", type=Price(), help="Price of a kWh; with --lifetime."),
    click.option(
        "--lifetime",
        "lifetime_hours",
        type=Duration(_HOUR_S),
        help="Work that a host's price is spread over: 35000h, 4y; with --electricity.",
    ),
)
draw_options = all_of(
    vf_option,
    pool_option,
    keep_all_option,
    draws_option(2000, "Curves drawn of each group."),
    seed_option,
)


# The runs tables that a command names: read, their columns by the files' headers, rows chosen.


# Options that name columns, and those whose values are told by columns.
_NAMING, _SELECTING = ("by", "over", "of"), ("a", "b")


def read_table(runs: tuple[str, ...], given: dict[str, Any]) -> pd.DataFrame:
    """Read the runs that the options ask for; what is asked of them checks them.

    --map and --where are taken out of the options given. An option that names a header of the
    files' own names the column that it became from here on.
    """
    from measurements import read_runs
    from ppw.runs.groups import choose_runs

    mapping, where = given.pop("mapping"), given.pop("where")
    table = read_runs(runs[0] if len(runs) == 1 else list(runs), columns=mapping, check=False)
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


def read_io_runs(runs: tuple[str, ...], given: dict[str, Any]) -> pd.DataFrame:
    """Read runs for cycles per I/O as `read` does; of a log, say how to make a table of it."""
    from measurements.timeseries.reading import is_log
    from ppw.errors import PpwError

    for path in runs:
        if path != "-" and is_log(path):
            raise PpwError(
                f"{path}: is a log of a host, no runs table: make one by ppw cpio {path} "
                f"--clock 2.4GHz -o {Path(path).name.partition('.')[0]}-cpio.csv, with its clock"
            )
    return read_table(runs, given)


def refuse_table_options(given: dict[str, Any], instead: str) -> None:
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
        say(f"{name} is read as the column {column}")
    return column


# Options of the commands that read logs of hosts: which logs, and what the host can do.


# Figure of `ppw.pressure.capacity.Capacity` by option.
_CAPACITIES = {
    "cores": "cores",
    "process_cores": "process_cores",
    "memory": "memory_bytes",
    "memory_bandwidth": "memory_bandwidth_bytes_s",
    "disk_bandwidth": "disk_bandwidth_bytes_s",
    "disk_iops": "disk_iops",
    "network": "network_bytes_s_each_way",
}
_CAPACITY_OPTIONS = (
    click.option(
        "--cpus",
        "cores",
        type=Positive(),
        help="Logical CPUs of the host to judge by. A log's shares are of its own CPUs, and of "
        "these only where it does not say.",
    ),
    click.option("--memory", type=Memory(), help="Memory of the host: 256GiB."),
    click.option("--memory-bandwidth", type=ByteRate(), help="Peak of the memory: 102.4GB/s."),
    click.option("--disk-bandwidth", type=ByteRate(), help="Of all disks together: 500MB/s."),
    click.option("--disk-iops", type=Positive(), help="I/Os a second of all disks together."),
    click.option("--network", type=ByteRate(), help="Line rate each way: 10Gbit/s, 1.25GB/s."),
)
_READING_OPTIONS = (
    click.option("--disk", "disks", type=Names(), help="Disks that count. Default: physical ones."),
    click.option(
        "--timezone", metavar="ZONE", help="Of logs in local time: +0200 or Europe/Berlin."
    ),
)
_HOST_OPTIONS = (
    *_CAPACITY_OPTIONS,
    click.option(
        "--catalogue-host",
        metavar="HOST",
        shell_complete=complete_host,
        help="Take cores and memory bandwidth from this host of the catalogue; see ppw hosts.",
    ),
    click.option(
        "--quantile",
        type=Share(0, 1, min_open=True),
        default="95%",
        show_default=True,
        help="Share of the time for which a resource must suffice.",
    ),
    *_READING_OPTIONS,
)


capacity_options = all_of(*_CAPACITY_OPTIONS)
reading_options = all_of(*_READING_OPTIONS)
host_options = all_of(*_HOST_OPTIONS)
thresholds_option = click.option(
    "--thresholds",
    metavar="FILE",
    help="TOML with thresholds to replace: a table a measure, with medium and high.",
)


def stated(given: dict[str, Any]) -> dict[str, float]:
    """Take the capacities that were stated out of the options."""
    taken = {figure: given.pop(option, None) for option, figure in _CAPACITIES.items()}
    return {figure: value for figure, value in taken.items() if value is not None}


def host_of(given: dict[str, Any]) -> tuple[dict[str, float] | None, Host | None]:
    """Take the capacities that were stated, and the host of the catalogue, out of the options."""
    from ppw.catalogue.hosts import find_host

    named = given.pop("catalogue_host")
    return stated(given) or None, find_host(named) if named else None


def named_logs(logs: tuple[str, ...]) -> dict[str, list[str]]:
    """Recordings and their logs; a file whose name has "=" or "," in it is a file."""
    found: dict[str, list[str]] = {}
    for text in logs:
        name, equals, rest = text.partition("=")
        if rest and Path(name).is_file() and not Path(rest).exists():
            raise click.UsageError(f"{text!r}: the name comes first, {rest}={name}")
        if not equals or "/" in name or Path(text).exists():
            name, rest = "", text
        paths = (
            [rest] if rest and Path(rest).exists() else [part for part in rest.split(",") if part]
        )
        if not paths:
            raise click.UsageError(f"{text!r} names no log")
        name = name or _stem(paths[0])
        if name in found:
            raise click.UsageError(f"two logs are called {name!r}: name them, NAME=LOG")
        found[name] = paths
    return found


def _stem(path: str) -> str:
    return "standard input" if path == "-" else Path(path).name.partition(".")[0]


def read_logs(paths: list[str], given: dict[str, Any]) -> TimeSeries:
    """Read the logs of one recording, which have the same intervals."""
    from measurements.timeseries import read_time_series
    from ppw.pressure.demand import LOG_COLUMNS

    # The totals of a series of ppw's own are of the disks that it was recorded with.
    chosen = None if log_format(paths[0]) == "ppw" else given["disks"]
    return read_time_series(
        paths[0] if len(paths) == 1 else paths,
        columns=LOG_COLUMNS,
        cpus=given["cores"],
        timezone=given["timezone"],
        disks=chosen,
    )


def read_named(logs: tuple[str, ...], given: dict[str, Any]) -> dict[str, TimeSeries]:
    """Read recordings by the name before "=", or that of the file."""
    return {name: read_logs(paths, given) for name, paths in named_logs(logs).items()}


def read_log(text: str, given: dict[str, Any]) -> TimeSeries:
    """Read one recording, whose logs have commas between them."""
    [paths] = named_logs((f"log={text}",)).values()
    return read_logs(paths, given)


def log_format(path: str) -> str:
    """Whether a log is perf's or ppw's own; standard input can be looked at only once."""
    from measurements.timeseries import own, perf
    from measurements.timeseries.log import open_source

    if path == "-":
        return ""
    with open_source(path) as source:
        known = (own, perf)
        return next((m.FORMAT for m in known if m.recognises(source.head)), "")


# Options of the commands that measure this host: what its rows say, clocks, sensors, order.


workload_option = click.option(
    "--workload", metavar="NAME", help="Name of the workload. Default: that of the command."
)
data_option = click.option("--data", type=Bytes(), help="Input size, such as 10GB.")
host_option = click.option(
    "--host", metavar="NAME", help="Name of this host in the table. Default: its own."
)
family_option = click.option(
    "--family", metavar="NAME", help="Microarchitecture family, such as Westmere."
)
row_options = all_of(
    host_option,
    family_option,
    click.option("--price", type=Price(positive=True), help="Of this host."),
)
clock_option = click.option(
    "--clock",
    type=Frequency(),
    help="What the clock is, where it is left as found and the host cannot tell.",
)
clock_options = all_of(
    click.option(
        "--freq",
        "freqs",
        cls=Respelt,
        former="--freqs",
        type=Frequencies(),
        help="Core frequencies to fix, such as 1.2GHz,1.8GHz.",
    ),
    clock_option,
    click.option("--turbo", type=OneOf(["on", "off"]), help="Switch turbo. Default: as it is."),
)
power_option = click.option(
    "--power",
    metavar="SOURCE[,…]",
    help="Where watts come from: rapl, ipmi@HOST, redfish@URL, meter@RESOURCE, log@FILE, …, or "
    "none; see ppw sensors. Default: what this host has.",
)
pace_options = all_of(
    click.option(
        "--idle",
        type=Seconds(),
        default="10s",
        show_default=True,
        help="Idling that is measured first, where there are watts to read.",
    ),
    click.option(
        "--settle",
        type=Seconds(),
        default="2s",
        show_default=True,
        help="Waited for after each change of the clock.",
    ),
    click.option(
        "--every",
        cls=Respelt,
        former="--interval",
        type=Seconds(),
        default="0.1s",
        show_default=True,
        help="Between readings of a power source, where it is quick enough.",
    ),
    click.option(
        "--timeout",
        type=Seconds(),
        default="10s",
        show_default=True,
        help="For a BMC or meter to answer.",
    ),
    seed_option,
    click.option("--resume", is_flag=True, help="Go on with a sweep that was interrupted."),
)
kernel_options = all_of(
    click.option("--sysfs", default="/sys", hidden=True),
    click.option("--procfs", default="/proc", hidden=True),
)


def repeats_option(default: int) -> Decorator:
    """Make --repeats."""
    return click.option(
        "--repeats", type=Whole(1), default=default, show_default=True, help="Runs a set-up."
    )


def metrics_option(choices: Sequence[str], default: str) -> Decorator:
    """Make --metric: what has to be measured, of ``choices``."""
    return click.option(
        "--metric",
        "metrics",
        type=Names(tuple(choices)),
        help=f"What must be measured, of {', '.join(choices)}; the rest is where it can be. "
        f"Default: {default}.",
    )


def table_option(*, required: bool) -> Decorator:
    """Make --output of the commands that write a runs table run by run."""
    return click.option(
        "-o",
        "--output",
        metavar="FILE",
        required=required,
        help="Runs table to write, .parquet, .csv or .jsonl; its raw readings go beside it.",
    )


def refuse_two_clocks(given: dict[str, Any]) -> None:
    """Refuse --clock beside --freq."""
    if given["freqs"] and given["clock"]:
        raise click.UsageError("--clock says what the clock is as found; with --freq it is set")


def refuse_standard_output(output: str) -> None:
    """Refuse -o -, for a table that grows."""
    if output == "-":
        raise click.UsageError("-o takes a file: the table is written anew after every run")


def measured_host_options(
    given: dict[str, Any], metrics: Sequence[str], *, as_found: bool
) -> HostOptions:
    """Options of `measurements.sweep.measure` for sensors and clocks, from those given."""
    from measurements.sweep.measure import HostOptions

    return HostOptions(
        power=given["power"],
        metrics=tuple(metrics),
        as_found=as_found,
        turbo={"on": True, "off": False, None: None}[given["turbo"]],
        interval_s=given["every"],
        timeout_s=given["timeout"],
        sysfs=given["sysfs"],
        procfs=given["procfs"],
    )


# Options that the workloads of `ppw run` share.


class CpuList(click.ParamType[tuple[int, ...]]):
    """Logical CPUs as the kernel writes them: 0-3,8."""

    name = "CPUS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Numbers of the CPUs."""
        try:
            return parse_cpu_list(str(value))
        except MeasurementError as error:
            self.fail(str(error), param, ctx)


_shared = (
    repeats_option(3),
    clock_options,
    power_option,
    metrics_option(("cpi", "power"), "none of them"),
    row_options,
    pace_options,
    kernel_options,
)
# A job ends by itself, which leaves no window to choose.
job_options = all_of(table_option(required=False), *_shared)
run_options = all_of(
    table_option(required=True),
    click.option(
        "--window",
        type=Seconds(positive=True),
        default="2s",
        show_default=True,
        help="Steady load that is measured in each run.",
    ),
    *_shared,
)


def service_options(given: dict[str, Any], *, host: str) -> ServiceOptions:
    """Options of `measurements.workloads.service`, from those given."""
    from measurements.workloads.service import ServiceOptions

    refuse_two_clocks(given)
    refuse_standard_output(given["output"])
    return ServiceOptions(
        host=given["host"] or host,
        family=given["family"],
        frequencies=tuple(given["freqs"] or ()),
        clock_hz=given["clock"],
        repeats=given["repeats"],
        seconds=given["window"],
        idle_s=given["idle"],
        settle_s=given["settle"],
        seed=given["seed"],
        price=given["price"],
    )


def sensor_options(given: dict[str, Any]) -> HostOptions:
    """Options of `measurements.sweep.measure` for sensors and clocks, from those given."""
    metrics = ("time", *(given["metrics"] or ()))
    return measured_host_options(given, metrics, as_found=not given["freqs"])


def running_on(
    given: dict[str, Any],
    service: ServiceOptions,
    workload: dict[str, Any],
    *,
    is_local: bool = True,
) -> AbstractContextManager[Running]:
    """Open what the runs of a service need; see `measurements.workloads.service.running`."""
    from measurements.workloads.service import running

    return running(
        service,
        sensor_options(given),
        Path(given["output"]),
        workload=workload,
        is_local=is_local,
        resume=given["resume"],
        tell=say,
    )


def show_progress(done: int, steps: int, what: str) -> None:
    """Say how far it is, on a terminal only."""
    import sys

    if sys.stderr.isatty():
        line = f"{done} of {steps} runs: {printable(what)}"
        click.echo(f"\r\x1b[K{line}", err=True, nl=done >= steps)


# Options that the commands of cycles per I/O share.


_by = by_option(
    "Columns that tell applications apart. Default: all of host, family, workload, data_bytes, "
    "load, instances, device, device_kind that are there."
)
io_options = table_options_of(by=_by)
optional_io_options = table_options_of(by=_by, required=False)
projection_options = all_of(
    click.option("--cores", type=Number(1), required=True, help="Of the server asked for."),
    click.option("--freq", type=Frequency(), help="Its clock. Default: that of the runs."),
    click.option(
        "--floor",
        type=Share(0, 1, min_open=True),
        default="1%",
        show_default=True,
        help="Lowest utilisation that a projection may fall to.",
    ),
    click.option(
        "--network-share",
        type=Share(),
        help="Bytes over the network for each byte read or written. Default: as measured, or 1.",
    ),
    draws_option(4000, "Lines drawn of each application."),
    seed_option,
)


# Options of the fleet commands, how a fleet is asked, and how its answer leaves.


_RUNS = (
    "RUNS are Parquet, CSV or JSON-lines files, folders of them, patterns or URLs. FILE may end in "
    ".parquet."
)
engine_options = all_of(
    click.option(
        "--engine",
        type=OneOf(["duckdb", "spark"]),
        default="duckdb",
        show_default=True,
        help="What reads the runs. Spark takes the session of spark-submit, or a local one.",
    ),
    click.option("--memory-limit", metavar="SIZE", help="Of the engine, such as 4GiB."),
    click.option(
        "--temporary", metavar="FOLDER", help="For what does not fit in the engine's memory."
    ),
    click.option("--threads", type=Whole(1), help="Of this machine. Default: all."),
    click.option(
        "--keep-going",
        is_flag=True,
        help="Exit with 0 even where files or runs could not be used.",
    ),
)


@dataclass(frozen=True)
class Fleet:
    """Runs that a command asks about, and where its answer goes."""

    runs: tuple[str, ...]
    mapping: dict[str, str]
    keep_going: bool
    format_: str
    output: str

    def ask(self, question: Callable[..., FleetAnswer[Any]], **options: Any) -> FleetAnswer[Any]:
        """Put a question of `ppw.fleet`, drawing on a terminal how far the engine is."""
        with caveats_in_result(), progress_bar() as progress:
            try:
                return question(self.runs, columns=self.mapping, progress=progress, **options)
            except PpwError as error:
                for note in getattr(error, "__notes__", ()):
                    say(note)
                raise

    def leave(self, answer: FleetAnswer[Any]) -> int:
        """Write an answer, name its faults on standard error, and choose the exit code."""
        with caveats_in_result():
            self._write(answer)
        for fault in answer.faults:
            say(f"fault: {fault}")
        if not answer.faults or self.keep_going:
            return 0
        say(f"{len(answer.faults)} faults: the answer is of the rest; --keep-going accepts that")
        return 1

    def _write(self, answer: FleetAnswer[Any]) -> None:
        if self.format_ == "text" and self.output == "-":
            # They follow on standard error.
            answer = replace(answer, faults=())
        if self.output.lower().endswith(".parquet"):
            for caveat in answer.caveats:
                say(f"caveat: {caveat}")
            answer.write(self.output)
        else:
            emit(answer, self.format_, self.output)


def asks_fleet(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options of all questions to a fleet, which ``function`` takes as one `Fleet`.

    What RUNS and FILE are is added to the help.
    """

    @engine_options
    @output_options_of("text", "json", "csv", "html", elsewhere=("parquet",))
    @functools.wraps(function)
    def command(
        runs: tuple[str, ...],
        mapping: dict[str, str],
        keep_going: bool,
        format_: str,
        output: str,
        **options: Any,
    ) -> int:
        return function(Fleet(runs, mapping, keep_going, format_, output), **options)

    command.__doc__ = f"{inspect.getdoc(function)}\n\n{_RUNS}"
    return command


@contextmanager
def progress_bar() -> Iterator[Callable[[float], None] | None]:
    """Draw how far the engine is, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1000, label="reading runs", file=sys.stderr) as bar:
        yield lambda share: bar.update(int(1000 * share) - bar.pos)


# Options of the commands that read block traces: format, columns, device models.


_FIT = "make one with: ppw trace fit TRACE --format json -o MODEL"


class DeviceModel(click.ParamType[str]):
    """A device model: disk, or ssd,units=16,read=70us."""

    name = "DEVICE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, which has been read once."""
        from ppw.storage.fitted_devices import parse_device

        try:
            parse_device(str(value))
        except PpwError as error:
            self.fail(str(error), param, ctx)
        return str(value)


trace_options = all_of(
    click.option(
        "--trace-format", metavar="FORMAT", help="Of the trace, where the guess is wrong."
    ),
    map_option("Read a header of a CSV or Parquet as a column of ppw's", "time_ms=t"),
)


def read_requests(path: str, trace_format: str | None, mapping: dict[str, str]) -> Trace:
    """Open a trace named on the command line."""
    from measurements.traces import read_trace

    if trace_format is None and is_model(path):
        raise PpwError(
            f"{path}: is a model, no trace: make one of it with ppw trace generate {path} -o TRACE"
        )
    return read_trace(path, format=trace_format, mapping=mapping or None)


def is_model(path: str) -> bool:
    """Whether a file holds a fitted model, not a trace."""
    if not Path(path).is_file():
        # blktrace's files go by a base name that is no file.
        return False
    with Path(path).open("rb") as file:
        return file.read(4096).lstrip().startswith(b"{")


def model_of(path: str) -> TraceModel:
    """Read a fitted model. Raises `PpwError` where there is none, with how to make one."""
    from ppw.storage.trace_model import TraceModel

    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise PpwError(f"{path}: {error.strerror or error}: {_FIT}") from error
    except UnicodeDecodeError as error:
        raise PpwError(f"{path} is no model: {_FIT}") from error
    if not text.lstrip().startswith("{"):
        raise PpwError(f"{path} is no model: {_FIT}")
    try:
        return TraceModel.from_json(text)
    except PpwError as error:
        reason = error.__cause__ if isinstance(error.__cause__, JSONDecodeError) else error
        raise PpwError(f"{path} is no model: {reason}; {_FIT}") from error


# Requests to a file of ppw's own: of a trace that was read, or one that is generated.


def write_requests(trace: NamedRequests, output: str) -> None:
    """Write requests as Parquet or CSV, by the output's ending, and say how many there were."""
    from measurements.traces import write_trace

    refuse_an_input(output)
    requests, last_s = write_trace(trace, output)
    # In a closed loop they have no times of their own.
    within = f" in {shown(last_s, 's')}" if last_s == last_s else ""
    say(f"{requests} requests{within} written to {output}")
