"""Commands that ask about a runs table: project, validate, compare, decide, calibrate."""

from __future__ import annotations

import importlib
import math
import warnings
from typing import TYPE_CHECKING, Any

import click

import ppw
from ppw.cli import options as opt, output as out

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from measurements.table import specpower


@opt.question(
    "project",
    "Project every group of a runs table to another frequency, core count or data size.",
    "ppw project runs.csv --freq 3.0GHz --metric time,power",
    opt.TABLE_METRIC,
    opt.options("""
    --freq FREQUENCY[,…]: Frequencies to project to: 3.0GHz.
    --data SIZE as data_bytes: Data size to project time to, in place of --freq: 512MB. ppw then
        fits runs with less data. Of the other options only --map, --where, --by and --level apply.
    --cores NUMBER>=1: Number of cores to project time to, in place of --freq, by an average of
        scaling laws. Uses the same options as --data, and --metric for throughput, power, energy or
        perf_per_watt in place of time.
    """),
    opt.FIT,
    opt.INTERVAL,
    opt.LEVEL,
)
@click.pass_context
def project_command(
    ctx: click.Context,
    /,
    runs: opt.Runs,
    freq: list[float] | None,
    data_bytes: float | None,
    cores: float | None,
    **options: Any,
) -> ppw.RunsProjection | ppw.CoreCountProjection | ppw.DataSizeProjection:
    """Project every group of RUNS to frequencies, cores or a data size that were not measured."""
    if sum(target is not None for target in (freq, data_bytes, cores)) != 1:
        raise click.UsageError("no target of the projection: give one of --freq, --cores or --data")
    table = opt.read_table(runs, options)
    if freq is not None:
        return ppw.project(table, freq=freq, **options)
    answered = ("runs", "freq", "cores", "data_bytes", "metric", "level")
    tables = ("mapping", "where", "by", "format_", "output")
    for name in opt.typed_options(ctx, *answered, *tables):
        raise click.UsageError(
            f"{name} has no effect with --cores and --data, whose laws are their own: leave it "
            "out, or project with --freq",
            ctx,
        )
    of_time = {"by": options["by"], "level": options["level"]}
    metric, *more = options["metric"] or ["time"]
    if more or (cores is None and metric != "time"):
        raise click.UsageError("--metric: give one with --cores; --data projects time alone")
    if cores is not None:
        return ppw.project(table, cores=cores, metric=metric, **of_time)
    assert data_bytes is not None
    return ppw.project(table, data_bytes=data_bytes, **of_time)


@opt.question(
    "fit",
    "Give the parameters of every curve, with standard errors.",
    "ppw fit runs.csv --metric cpi,power",
    opt.TABLE_METRIC,
    opt.other_question(
        "--over",
        "Column to fit over in place of the frequency: load (power against load), data (path "
        "length: instructions per byte), or one to find the knee over, like threads. Each has its "
        "own options: ppw fit --over load --help.",
        "COLUMN",
    ),
    opt.FIT,
    opt.KEEP_ALL,
)
def fit_command(runs: opt.Runs, **options: Any) -> ppw.FittedParameters:
    """Fit the curves of every group of RUNS and give their parameters."""
    return ppw.fit(opt.read_table(runs, options), **options)


# `ppw validate`; a fleet has the same options.
VALIDATION = opt.all_of(
    opt.TABLE_METRIC,
    opt.options("""
    --train FREQUENCY[,…]: Frequencies to fit.
    --test FREQUENCY[,…]: Frequencies to compare with.
    --scheme [highest|frequency|host]: Hold-out scheme, in place of --train and --test: each group's
        highest frequency (the default), each frequency in turn, or each host in turn.
    --train-host HOST: Host to learn from, with --test-host.
    --test-host HOST: Host to compare with, with --train-host.
    """),
    opt.FIT,
    opt.INTERVAL,
    opt.LEVEL,
    opt.options(
        "--max-error PERCENT: Largest allowed error of a projection, in percent. "
        "Exit 3 if one is larger."
    ),
)


@opt.question(
    "validate",
    "Compare projections with measurements that were not used to fit them.",
    "ppw validate runs.csv --train 1.2GHz,1.8GHz --test 2.4GHz --max-error 10",
    VALIDATION,
)
def validate_command(
    runs: opt.Runs, max_error: float | None, **options: Any
) -> tuple[ppw.Validation, str | None]:
    """Project from some runs of RUNS and compare the result with others."""
    options |= train_and_test(options)
    result = ppw.validate(opt.read_table(runs, options), **options)
    return result, excess_error(result, max_error)


def train_and_test(options: Mapping[str, Any]) -> dict[str, Any]:
    """Frequencies to learn from and to test. Raises `click.UsageError` where options contradict."""
    from ppw.projection import validation

    train, test = options["train"] or (), options["test"] or ()
    hosts = {name: options[name] for name in ("train_host", "test_host")}
    try:
        validation.refuse_contradiction(bool(train or test), options["scheme"], **hosts)
    except ppw.PpwError as error:
        raise click.UsageError(str(error)) from error
    return {"train": train, "test": test}


def excess_error(result: ppw.Validation, max_error: float | None) -> str | None:
    """Say how far the worst projection is off where that is above --max-error (%), else None."""
    worst = result.worst_error_pct()
    if max_error is None or worst <= max_error:
        return None
    found = "no projection to check" if math.isnan(worst) else f"largest error {worst:.2f} %"
    return f"{found}, but --max-error is {max_error:g} %"


@opt.question(
    "check",
    "List the rows of a runs table that are probably wrong, with the evidence.",
    "ppw check runs.csv --strict",
    opt.TABLE_METRIC,
    opt.options("--strict: Exit 3 if any row is flagged."),
)
def check_command(runs: opt.Runs, strict: bool, **options: Any) -> tuple[ppw.Quality, str | None]:
    """Flag rows of RUNS that are probably wrong, with the evidence for each.

    With --metric, flag only rows that would distort these metrics.
    """
    result = ppw.check(opt.read_table(runs, options), **options)
    return result, str(result.verdict()) if strict and not result.passed.all() else None


@opt.command(
    "import",
    "Read files of other programs as a runs table.",
    "ppw import perf sort-*.txt --names '{workload}-{freq_ghz}.txt' -o runs.csv",
    click.argument("words", nargs=-1, metavar="[FORMAT] FILES..."),
    opt.pairs_option(
        "--set",
        "values",
        shape="COLUMN=VALUE",
        callback=opt.pairs("COLUMN=VALUE", commas=True),
        meaning="Value of a column that the files lack: freq=2.4GHz,workload=sort.",
    ),
    opt.options("""
    --names PATTERN: Pattern of the file names, with columns in braces: {workload}-{freq_ghz}.txt.
    --url URL: Prometheus to ask instead of FILES: http://monitor:9090.
    --start STAMP: First time to ask for, as 2026-11-26T10:00:00Z or seconds since 1970 UTC.
    --end STAMP: Last time to ask for. Default: now.
    --step TIME>0 (15s): Time between two samples to ask for, at least that between two scrapes.
    -o, --output FILE (-): File for the runs table. Default: standard output, as CSV.
    """),
)
def import_command(words: tuple[str, ...], output: str, **given: Any) -> int:
    """Read FILES of another program as a runs table: a row a run.

    FORMAT is perf (perf stat: text, -x and -j), hyperfine, pyperf, codecarbon, turbostat, likwid,
    sacct, nvidia-smi, rocm-smi, prometheus (a range query), ear, geopm, pcm, or a log of the host:
    sar (text or binary), iostat, vmstat (both with -t), sadf-json, sadf-csv, collectl or pcp. By
    default the first bytes of each file tell it. What a format lacks, most often the core
    frequency, is never guessed: give it by --set or --names.
    """
    formats = importlib.import_module("measurements.imports.importing").format_names()
    source, files = (words[0], words[1:]) if words[:1] and words[0] in formats else (None, words)
    url, start, end, step = (given.pop(name) for name in ("url", "start", "end", "step"))
    if url and (start is None or files or not url.startswith(("http://", "https://"))):
        raise click.UsageError("--url http://HOST:PORT needs --start and takes the place of FILES")
    if url:
        prometheus = importlib.import_module("measurements.imports.prometheus")
        files = (prometheus.range_url(url, start, end, f"{step:g}"),)
    elif start or end or not files:
        raise click.UsageError(
            "--start and --end are for --url" if files else "give FILES or --url"
        )
    table = ppw.import_runs(files, source=source, **given)
    for said in table.attrs["read"]:
        out.say(said)
    ppw.write_runs(table, output)
    return 0


@opt.question(
    "pathlength",
    "Instructions per byte against cores and data size.",
    "ppw fit --over data counts.csv",
    opt.TABLE_ALONE,
    opt.TOLERANCE,
    opt.LEVEL,
)
def pathlength_command(runs: opt.Runs, **options: Any) -> ppw.PathLengths:
    """Fit path lengths to RUNS with instructions and data_bytes.

    ppw measure and ppw run count write such RUNS. The model is a·ln(n) + b against cores and a line
    against data size. The result also has the range of data sizes in which throughput is flat.
    """
    return ppw.path_lengths(opt.read_table(runs, options), **options)


# `ppw best`.
@opt.question(
    "best",
    "Find the best frequency step of every group, with its probability.",
    "ppw best runs.csv --objective edp --steps 1.2GHz:2.4GHz:0.1GHz; ppw best runs.csv --deadline "
    "60s --power-cap 120W",
    opt.TABLE,
    opt.options("""
    --objective [energy|edp|ed2p|perf_per_watt|time|perf_per_dollar] (energy): Objective: least
        energy, energy-delay product (edp), energy-delay² product (ed2p) or time; most performance
        per watt or per price.
    """),
    opt.steps_option(
        2,
        "Frequencies to choose from. Default: the measured frequencies, and the "
        "steps of the host if the catalogue has it.",
    ),
    opt.options("""
    --deadline TIME>0: Longest time of a run: 60s. A frequency qualifies if it meets the deadline
        with probability --level.
    --power-cap POWER>0: Highest power: 120W. A frequency qualifies if it stays below the cap with
        probability --level.
    --max-slowdown SHARE>0: Largest slowdown of a run against the fastest frequency: 5%. A frequency
        qualifies if it is slower by no more with probability --level.
    --idle-power POWER: Idle power of a host that stays on between jobs. Only power above it counts.
        With --deadline, energy includes idle time up to it. Default then: the column idle_power_w.
    --price PRICE>0: Price of one host, for perf_per_dollar. Default: the column price.
    """),
    opt.COST,
    opt.DRAWS,
    opt.LEVEL,
)
def best_command(runs: opt.Runs, **options: Any) -> ppw.BestFrequency:
    """Find the frequency step at which each group of RUNS does its work best.

    For each step, the table gives the probability that it is the best, from posterior draws of the
    curves. It also gives the answer of straight lines.
    """
    return ppw.best(opt.read_table(runs, options), **options)


# `ppw procure` and `ppw compare`.
def _print_file_option(name: str, file: str, what: str, *, hidden: bool = False) -> opt.Decorator:
    """Make an option that prints a file of `ppw.procurement` and ends the command."""

    def print_and_exit(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
        if asked and not ctx.resilient_parsing:
            from ppw.procurement.inputs import published_text

            out.write(published_text(file), "-")
            ctx.exit()

    return click.option(
        name,
        is_flag=True,
        is_eager=True,
        expose_value=False,
        hidden=hidden,
        callback=print_and_exit,
        help=f"Print {what} and exit.",
    )


_SCHEMA = ("--schema", "scenario.schema.json", "the JSON schema of scenario files")


@opt.question(
    "procure",
    "Find which servers to buy, keep or rent for a demand.",
    "ppw procure scenario.toml --format html -o report.html",
    click.argument("scenario", type=click.Path()),
    _print_file_option("--template", "template.toml", "a scenario with comments that runs"),
    _print_file_option(*_SCHEMA),
    opt.draws_option(2000, "Number of joint draws of all uncertain figures."),
    opt.SEED,
    opt.LEVEL,
)
def procure_command(scenario: str, **options: Any) -> ppw.Procurement:
    """Say which candidate of SCENARIO costs least over the years, and how surely.

    SCENARIO is a TOML file with a demand, a site, costs and candidates. The result has servers,
    racks, energy, carbon and cost of each candidate, and what would change the answer.
    """
    return ppw.procure(scenario, **options)


@opt.question(
    "compare",
    "Compare two hosts over the work that both did.",
    "ppw compare runs.csv --a host=atom --b host=xeon --freq 2.4GHz; ppw compare base.csv new.csv "
    "--fail-if 'time > 3%'",
    opt.TABLE_METRIC,
    opt.selection_option(
        "--a",
        "Columns that select side A: host=atom. Separate several by commas. Two RUNS without "
        "--a and --b are side A and side B.",
    ),
    opt.selection_option(
        "--b",
        "Columns that select side B: host=xeon. Default: each other value of the column of "
        "--a, one after the other.",
    ),
    opt.other_question(
        "--details",
        "All measures of all hosts: times, ratios, CPI, memory, performance per watt and price. It "
        "has its own options: ppw compare --details --help.",
    ),
    opt.options("""
    --freq FREQUENCY: Frequency of both sides. Default: the highest measured.
    --freq-a FREQUENCY: Frequency of side A, if other than --freq.
    --freq-b FREQUENCY: Frequency of side B, if other than --freq.
    --price-a PRICE>0: Price of one host of side A. Default: the column price.
    --price-b PRICE>0: Price of one host of side B. Default: the column price.
    """),
    opt.COST,
    opt.options("--mixed-scope: Compare power readings of different scope, with a caveat."),
    opt.options("""
    --fail-if LIMIT several times: Exit 3 if a metric of side B changed by more than LIMIT from side
        A, in any group: 'time > 3%', 'perf/W < -3%'.
    --confidence 0.5<SHARE<1 (95%): Confidence of --fail-if, corrected for the number of groups.
    """),
    opt.DRAWS,
    opt.LEVEL,
    _print_file_option(*_SCHEMA, hidden=True),
    formats=("text", "json", "csv", "html", "markdown"),
)
@click.pass_context
def compare_command(
    ctx: click.Context,
    /,
    runs: opt.Runs,
    fail_if: tuple[str, ...],
    confidence: float,
    **options: Any,
) -> ppw.Comparison | ppw.Procurement | tuple[ppw.ChangeCheck, str | None]:
    """Compare side A of RUNS with side B, metric by metric, and give break-even points.

    If the data do not decide which side is better, ppw names the most informative next measurement.

    With --fail-if, ppw instead checks the change from A (or the first of two RUNS) to B in every
    group and at every frequency that both sides measured.

    One file that ends in .toml is a procurement scenario, answered as by ppw procure.
    """
    if any(name.lower().endswith(".toml") for name in runs):
        _refuse_beside_scenario(ctx, runs)
        return ppw.procure(runs[0], **{name: options[name] for name in ("level", "draws", "seed")})
    table = opt.read_table(runs, options)
    if not (options["a"] or options["b"]) and len(runs) == 2:
        options |= dict(zip("ab", _sides_of_files(table), strict=True))
    for side in ("a", "b") if fail_if else "a":
        if not options[side]:
            raise click.UsageError(f"Missing option '--{side}'.", ctx)
    if fail_if:
        return _check_changes(ctx, table, options, fail_if=fail_if, confidence=confidence)
    if opt.typed_options(ctx, *({*ctx.params} - {"confidence"})):
        raise click.UsageError("--confidence has no effect without --fail-if: leave it out", ctx)
    options["b"] = options["b"] or None
    return ppw.compare(table, **options)


def _sides_of_files(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Sides A and B of two tables that were read as one. Raises `PpwError` where one is empty."""
    files = list(table["source_file"].unique())
    if len(files) != 2:
        raise ppw.PpwError(
            f"the sides are two tables, but all runs are of {' '.join(map(str, files))}: give two "
            "tables, loosen --where, or name the sides with --a and --b"
        )
    return [{"source_file": name} for name in files]


def _check_changes(
    ctx: click.Context, table: pd.DataFrame, options: Mapping[str, Any], **limits: Any
) -> tuple[ppw.ChangeCheck, str | None]:
    """Check the change from side A to side B, and say which rows fail."""
    from ppw.decision import changes

    answered = ("runs", "a", "b", "by", "mapping", "where", "fail_if", "confidence")
    for name in opt.typed_options(ctx, *answered, "format_", "output"):
        raise click.UsageError(f"{name} has no effect with --fail-if: leave it out", ctx)
    base, new = (changes.choose_side(table, options[side]) for side in ("a", "b"))
    try:
        result = ppw.check_changes(base, new, by=options["by"], **limits)
    except changes.LimitError as error:
        raise click.UsageError(str(error), ctx) from error
    return result, result.failure()


def _refuse_beside_scenario(ctx: click.Context, files: opt.Runs) -> None:
    """Refuse, beside a scenario file, a second file and options that the scenario itself states."""
    if len(files) > 1:
        raise click.UsageError(f"one scenario at a time, and {len(files)} files were given", ctx)
    for name in opt.typed_options(ctx, "runs", "draws", "seed", "level", "format_", "output"):
        raise click.UsageError(
            f"{name} works only with runs tables: with a scenario, take only --draws, --seed, "
            "--level, --format and --output; the rest is in the scenario file",
            ctx,
        )


# `ppw plan`.
_METRIC = "perf_per_watt"


@opt.question(
    "plan",
    "Recommend the frequency and number of runs to measure next for a wanted interval.",
    "ppw plan runs.csv --freq 3.0GHz --metric perf_per_watt --within 3 --steps "
    "1.2GHz:2.4GHz:0.2GHz --run-time 10min",
    opt.TABLE,
    opt.metric_option(f"{_METRIC}; ppw plan takes one metric at a time"),
    opt.options("""
    --freq FREQUENCY[,…] (required): Frequency to predict: 3.0GHz.
    --within PERCENT>0 (3.0): Wanted half width of the interval, in percent.
    """),
    opt.steps_option(
        1,
        "Frequency steps of the host: a range that includes both ends, or a list "
        "with commas. Default: the steps of the host in the catalogue, or else the measured "
        "frequencies.",
    ),
    opt.options("""
    --not-at-target: Never recommend runs at --freq itself. Use it for a machine that you do not
        have.
    --run-time TIME>0 in minutes as run_time_minutes: Time per run, including set-up: 10min.
    --budget TIME>0 in minutes as budget_minutes: Time budget: 4h, with --run-time.
    --repeats N[,…] (1,2,3,5): Number of runs to consider, one or several.
    --target-runs N>=1 (1): Number of runs at --freq whose mean is predicted.
    """),
    opt.VOLTAGES,
    opt.POOL,
    opt.KEEP_ALL,
    opt.SEED,
    opt.LEVEL,
)
def plan_command(
    runs: opt.Runs, freq: list[float], metric: list[str] | None, not_at_target: bool, **options: Any
) -> ppw.Plan:
    """Recommend for every group of RUNS the frequency to measure next, and the number of runs.

    One metric at a time, perf_per_watt by default.
    """
    # A plan is for one metric at one frequency: two would ask for different runs.
    metrics = metric or [_METRIC]
    for what, given in (("--freq", freq), ("--metric", metrics)):
        if len(given) != 1:
            raise click.UsageError(f"{what}: a plan is for one, and {len(given)} were given")
    at_target, table = not not_at_target, opt.read_table(runs, options)
    return ppw.plan(table, freq=freq[0], metric=metrics[0], at_target=at_target, **options)


# `ppw compare --details`.
def _parse_host_prices(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, float]:
    prices = opt.pairs("HOST=PRICE, like atom=450")(ctx, param, texts)
    price = opt.kind("PRICE>0")
    return {host: price.convert(text, param, ctx) for host, text in prices.items()}


@opt.question(
    "characterise",
    "Compare hosts: times, ratios, performance per watt and price, CPI, memory.",
    "ppw compare --details runs.csv --reference atom --price atom=450 --price xeon=6000",
    opt.TABLE,
    opt.options("--reference HOST: Host that the others are compared with. Default: the slowest."),
    opt.pairs_option(
        "--price",
        "prices",
        shape="HOST=PRICE",
        meaning="Price of a host. Default: the column price.",
        callback=_parse_host_prices,
    ),
    opt.options("""
    --freq FREQUENCY: Core frequency of all hosts. Default: the highest measured.
    --mixed-scope: Compare power readings of different scope.
    """),
    opt.KEEP_ALL,
)
def characterise_command(runs: opt.Runs, **options: Any) -> ppw.Characterisation:
    """Compare the hosts of RUNS in one table, workload by workload.

    The tables give the measurements, and the speed-up, power ratio and cost ratio to one host. They
    also give performance per watt and per price, and the activity of processor and memory. A value
    that was not measured stays empty.
    """
    return ppw.characterise(opt.read_table(runs, options), **options)


# `ppw calibrate`.
@opt.question(
    "calibrate",
    "Calibrate one power sensor by another, for example by a wall meter.",
    "ppw calibrate runs.parquet --sensor rapl --reference meter:wt310e --save",
    opt.TABLE,
    opt.options("""
    --sensor LABEL: Sensor to calibrate: rapl (packages and memory), rapl:package, ipmi:dcmi; a sum
        with +.
    --reference LABEL: Sensor to compare with: meter:wt310e, ipmi.
    --host NAME: Host to calibrate, if RUNS have several.
    --sensor-resolution POWER (0): Resolution of the sensor: 1W.
    --reference-resolution POWER (0): Resolution of the reference: 0.1W.
    """),
    opt.LEVEL,
    opt.options("""
    --save: Store the calibration for this host and user.
    --stored: Use the stored calibration. RUNS need no reference.
    --apply FILE as target: Also write RUNS with calibrated power to this file: .csv, .parquet or
        .jsonl.
    """),
)
@click.pass_context
def calibrate_command(
    ctx: click.Context, /, runs: opt.Runs, save: bool, stored: bool, **options: Any
) -> ppw.Calibration:
    """Fit the offset and slope that turn readings of --sensor in RUNS into those of --reference.

    Record RUNS with ppw measure and both sensors, at three or more loads from idle to full load.
    """
    if stored and save:
        raise click.UsageError(
            "--save and --stored exclude each other: a stored calibration is already saved"
        )
    sources, host = {name: options[name] for name in ("sensor", "reference")}, options["host"]
    target = options.pop("target")
    if not stored and not all(sources.values()):
        raise click.UsageError("give --sensor and --reference, or --stored")
    if target == ctx.params["output"] == "-":
        raise click.UsageError("--apply - and the result both go to standard output: use -o FILE")
    table = opt.read_table(runs, options)
    if stored:
        result = ppw.load_calibration(host or _only_host(table), **sources)
    else:
        result = ppw.calibrate(table, **options)
    if save:
        out.say(f"calibration saved to {ppw.save_calibration(result, host=host)}")
    if target:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ppw.CaveatWarning)
            calibrated = ppw.apply_calibration(table, result)
        ppw.write_runs(calibrated, target)
        out.say_caveats(w.message for w in caught if issubclass(w.category, ppw.CaveatWarning))
        counts = calibrated["power_label"].value_counts()
        labels = ", ".join(f"{count} {label}" for label, count in counts.items())
        out.say(f"runs written to {target}: {labels}")
    return result


def _only_host(table: pd.DataFrame) -> str:
    """Name of the one host of the runs. Raises `PpwError` for none or several."""
    names = sorted(table["host"].dropna().astype(str).unique()) if "host" in table else []
    if len(names) != 1:
        said = f"name {len(names)} hosts" if names else "name no host"
        raise ppw.PpwError(f"the runs {said}: choose one host with --host")
    return str(names[0])


# `ppw fit --over load`.
@opt.question(
    "powerload",
    "Power against load, and energy proportionality.",
    "ppw fit --over load power_ssj2008-20120312-00444.txt --at 30%,70%",
    opt.TABLE_ALONE,
    opt.options("""
    --at SHARE[,…]<=1 (0%,50%,100%): Loads at which to predict power.
    --levels SHARE[,…]<=1: Load levels to fit. The other levels test the fit.
    """),
    opt.LEVEL,
)
def powerload_command(runs: opt.Runs, **options: Any) -> ppw.PowerLoads:
    """Fit power against load to RUNS at several loads, or to SPECpower_ssj2008 results.

    RUNS are tables with power_w and load (ppw run memcached --load writes one). They may also be
    results as SPEC publishes them: .html, .txt, or one CSV with many results.
    """
    return ppw.power_loads(_read_loads(runs, options), **options)


def _read_loads(
    paths: opt.Runs, given: opt.Given
) -> pd.DataFrame | list[specpower.SpecPowerResult]:
    from measurements.table import specpower

    # Published results name their own columns, so --map and --where do not apply to them.
    published = [path for path in paths if path != "-" and specpower.is_specpower(path)]
    if not published:
        return opt.read_table(paths, given)
    if len(published) < len(paths):
        other = next(path for path in paths if path not in published)
        raise click.UsageError(
            f"{other} is no SPECpower result, but {published[0]} is: give only one kind"
        )
    opt.refuse_table_options(given, f"{published[0]} is a SPECpower result")
    return specpower.read_specpower(published)
