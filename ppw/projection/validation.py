"""`validate`: projected against measured, on runs that the projection has not seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Unpack

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fitting.bayes.posterior import SAME_STEP, step_starts
from fitting.regression.lines import FloatArray, Prediction
from measurements import identity_columns
from ppw.errors import PpwError
from ppw.projection import caveats as cv, plots
from ppw.projection.answers import Answers, FitOptions, FittingOptions, TargetCells
from ppw.projection.runs import unfitted_groups
from ppw.results import axes
from ppw.results.axes import Axes
from ppw.results.result import PrintedTable, Result, Row, Table, plain, warn_caveats
from ppw.results.text import as_frequencies, as_names, check_choice, shown, shown_interval
from ppw.runs import prepare as pr
from ppw.runs.groups import Groups, Mask, canonical, run_count
from ppw.runs.metrics import Metric

# Validation schemes: which runs a projection may learn from, and which it is compared with.
SCHEMES = ("highest", "frequency", "host")


class Fold(NamedTuple):
    """Rows to learn from and rows to compare with; no row is both."""

    train: Mask
    test: Mask


class HoldOutPlan(NamedTuple):
    """What a validation learns from and what it tests: frequencies, hosts or a scheme."""

    train: list[float]
    test: list[float]
    scheme: str
    train_host: str | None
    test_host: str | None

    def folds(self, runs: pd.DataFrame, groups: Groups) -> Iterator[Fold]:
        """Yield the folds; raises `PpwError` for what the table does not hold."""
        frequency = runs["freq_hz"].to_numpy()
        if self.train_host is not None and self.test_host is not None:
            yield self._between_hosts(runs, self.train_host, self.test_host)
        elif self.train or self.test:
            yield self._between_frequencies(runs)
        elif self.scheme == "highest":
            highest = np.full(len(groups), -np.inf)
            np.maximum.at(highest, groups.codes, frequency)
            top = frequency > highest[groups.codes] * (1 - SAME_STEP)
            yield Fold(~top, top)
        elif self.scheme == "frequency":
            step = _step_in_group(frequency, groups)
            for left_out in range(int(step.max()) + 1):
                yield Fold(step != left_out, step == left_out)
        else:
            host = _host_names(runs)
            names = np.unique(host)
            if len(names) < 2:
                raise PpwError(
                    f"leaving one host out needs two hosts; the table has only {names[0]}"
                )
            yield from (Fold(host != name, host == name) for name in names)

    def _between_hosts(self, runs: pd.DataFrame, train: str, test: str) -> Fold:
        """Learn on one host and test on another, at the frequencies given or all."""
        host = _host_names(runs)
        for name in (train, test):
            if not (host == name).any():
                raise PpwError(f"no host {name!r}; the hosts are {', '.join(np.unique(host)[:12])}")
        if train == test:
            raise PpwError(
                f"{train!r} is the train host and the test host: name two different hosts"
            )
        learnt, tested = host == train, host == test
        return Fold(
            learnt & _at_any(runs, self.train) if self.train else learnt,
            tested & _at_any(runs, self.test) if self.test else tested,
        )

    def _between_frequencies(self, runs: pd.DataFrame) -> Fold:
        """Learn at some frequencies, test at others; one not given is all the others."""
        at_train = _at_any(runs, self.train)
        at_test = _at_any(runs, self.test) if self.test else ~at_train
        if not self.train:
            at_train = ~at_test
        if (at_train & at_test).any():
            both = shown(float(runs["freq_hz"].to_numpy()[at_train & at_test][0]), "Hz")
            raise PpwError(
                f"{both} is in --train and in --test: a run cannot be compared with itself"
            )
        return Fold(at_train, at_test)

    def describe(self) -> str:
        """Say in words what is learnt from and what is tested."""
        learnt = ", ".join(shown(f, "Hz") for f in self.train) or "all other frequencies"
        tested = ", ".join(shown(f, "Hz") for f in self.test) or "all other frequencies"
        if self.train_host is not None:
            at = f" ({learnt} to {tested})" if self.train or self.test else ""
            return f"learnt on {self.train_host}, tested on {self.test_host}{at}"
        if self.train or self.test:
            return f"learnt at {learnt}, tested at {tested}"
        return {
            "highest": "each group's highest frequency left out",
            "frequency": "each frequency left out in turn",
            "host": "each host left out in turn",
        }[self.scheme]


def refuse_contradiction(
    frequencies: bool, scheme: str | None, train_host: str | None, test_host: str | None
) -> None:
    """Refuse a choice of what to learn from and to test on that says two things at once."""
    if scheme is not None:
        check_choice("scheme", scheme, SCHEMES)
    if (train_host is None) != (test_host is None):
        raise PpwError("give both the train host and the test host")
    if scheme is not None and (frequencies or train_host is not None):
        raise PpwError("give a scheme, or the frequencies or hosts to train and test on, not both")


def _at_any(runs: pd.DataFrame, steps: Sequence[float]) -> Mask:
    """Mark rows at any of some frequencies (Hz). Raises `PpwError` for one without runs."""
    frequency = runs["freq_hz"].to_numpy()
    found = np.zeros(len(frequency), dtype=bool)
    for step in steps:
        at = np.abs(frequency / step - 1) < SAME_STEP
        if not at.any():
            distinct = np.unique(frequency)
            nearest = distinct[np.argmin(np.abs(np.log(distinct / step)))]
            raise PpwError(
                f"no run at {shown(step, 'Hz')}; the nearest is at {shown(float(nearest), 'Hz')} "
                f"and the table has {len(distinct)} frequencies from "
                f"{shown(float(distinct[0]), 'Hz')} to {shown(float(distinct[-1]), 'Hz')}"
            )
        found |= at
    return found


def _step_in_group(frequency: FloatArray, groups: Groups) -> NDArray[np.int64]:
    """Rank of each row's frequency among the distinct steps of its group, from 0."""
    order = np.lexsort((frequency, groups.codes))
    codes = groups.codes[order]
    running = np.cumsum(step_starts(codes, frequency[order])) - 1
    first = np.flatnonzero(np.diff(codes, prepend=-1))
    rank = np.empty(len(frequency), dtype=np.int64)
    rank[order] = running - np.repeat(running[first], np.diff(np.append(first, len(codes))))
    return rank


def _host_names(runs: pd.DataFrame) -> NDArray[np.object_]:
    """Host of each row. Raises `PpwError` without a column ``host``."""
    if "host" not in runs.columns:
        raise PpwError("the table has no column host: rename the column, or use --map host=COLUMN")
    return runs["host"].fillna("").to_numpy(dtype=object)


# Naive forecasts that a projection is compared with: all of the time scales with the core
# frequency, or none.
BASELINES = ("inverse_frequency", "unscaled")


def summarise(groups: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Summarise errors, coverage and baselines by metric, as `Validation.summary_by_metric`."""
    summaries = {}
    for name in dict.fromkeys(groups["metric"]):
        rows = groups[groups["metric"] == name]
        measured = rows["measured"]
        covered = rows["covered"].dropna()
        answered = rows["projected"].dropna()
        summaries[name] = {
            **_summarise_errors(100 * (rows["projected"] / measured - 1)),
            "coverage": float(covered.astype(float).mean()) if len(covered) else None,
            "with_interval": len(covered),
            "without_answer": len(rows) - len(answered),
            "baselines": {b: _summarise_errors(100 * (rows[b] / measured - 1)) for b in BASELINES},
        }
    return {name: plain(summary) for name, summary in summaries.items()}


def _summarise_errors(error_pct: pd.Series[float]) -> dict[str, float | int]:
    """Count, median, 90th percentile, mean, maximum and bias of errors (%)."""
    error = error_pct.dropna().to_numpy()
    if not error.size:
        return {"n": 0}
    size = np.abs(error)
    return {
        "n": len(error),
        "median_ape": float(np.median(size)),
        "p90_ape": float(np.percentile(size, 90)),
        "mean_ape": float(size.mean()),
        "max_ape": float(size.max()),
        "bias_pct": float(error.mean()),
        "within_10pct": float((size <= 10).mean()),
    }


_BASELINES_NOTE = (
    "1/f: only the core frequency counts, so time scales with 1/f, throughput and power with f. "
    "unscaled: time does not change. Both start from the nearest frequency that was fitted."
)


def _interval_text(row: Row) -> str:
    return shown_interval(row["projected"], row["lower"], row["upper"], row["unit"])


@dataclass(frozen=True, kw_only=True, eq=False)
class Validation(Result):
    """Projections compared with measurements.

    Attributes
    ----------
    groups : pandas.DataFrame
        One row a group, metric and test frequency.
    summary_by_metric : dict
        By metric: ``n``, ``median_ape``, ``p90_ape``, ``mean_ape``, ``max_ape``, ``bias_pct``
        (percent), ``within_10pct`` and ``coverage`` (shares; coverage among the projections that
        have an interval, None where none has), ``with_interval``, and the same errors for
        ``baselines``.
    by : tuple of str
        Columns that tell groups apart.
    scheme : str
        What was learnt from and what was tested.
    level : float
        Probability of the intervals.
    form, power_form, via, interval, pool
        As asked for; see `ppw.projection.answers.FitOptions`.
    """

    kind = "validation"
    tables = (
        Table(
            "groups",
            """
            metric    | text  | metric    | what was projected
            unit      | text  |           | unit of `projected` and `measured`
            freq_hz   | Hz    | frequency | frequency projected to
            projected | unit  | projected | projection
            measured  | unit  | measured  | mean of the test runs
            error_pct | % +.2f | error %  | (projected / measured - 1) in percent
            lower     | unit  | interval  | lower end of the prediction interval of that mean
            upper     | unit  |           | upper end of it
            covered   | flag  | covered   | whether the measured mean is inside; missing without one
            inverse_frequency | unit |    | baseline: time scales with 1/f, power with f
            unscaled  | unit  |           | baseline: nothing changes with frequency
            """,
            title="Groups, largest error first",
            most=0,
            show={"lower": _interval_text},
        ),
    )

    groups: pd.DataFrame
    summary_by_metric: dict[str, dict[str, Any]] = field(metadata={"key": "summary"})
    by: tuple[str, ...]
    scheme: str
    level: float
    form: str
    power_form: str | None
    via: str
    interval: str
    pool: bool

    def printed_tables(self, most: int | None = None) -> list[PrintedTable]:
        """Return errors and coverage by metric beside the baselines; on a page the groups too."""
        header = ["metric", "n", "median", "p90", "max", "bias", "within 10 %", "coverage"]
        header += ["1/f: median", "p90", "unscaled: median", "p90"]
        rows = [_error_row(name, s) for name, s in self.summary_by_metric.items()]
        errors = PrintedTable("Errors in percent", header, rows, 1, _BASELINES_NOTE)
        if most is None:
            return [errors]
        largest = self.groups["error_pct"].abs().sort_values(ascending=False, kind="stable").index
        return [errors, self.tables[0].print_rows(self, most, self.groups.reindex(largest))]

    def text_parts(self) -> list[str]:
        """Return what was compared, and the errors by metric."""
        title = f"Projected against measured, {self.scheme} (absolute errors in %)"
        return [title, *self.printed_tables()[0].lines()]

    def worst_error_pct(self) -> float:
        """Largest absolute error of all, in percent."""
        return float(self.groups["error_pct"].abs().max())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw projected against measured, as shares of the measured, metric by metric."""
        ax = axes.new_axes(ax)
        ax.axhspan(0.9, 1.1, color="#eef2f6", label="within 10 %")
        ax.axhline(1.0, color=axes.MEASURED, lw=0.8)
        names, rng = list(self.summary_by_metric), np.random.default_rng(0)
        for place, name in enumerate(names):
            rows = self.groups[self.groups["metric"] == name]
            ratio = (rows["projected"] / rows["measured"]).dropna().to_numpy()
            if ratio.size:
                # Points of one metric are spread sideways, so that they do not hide each other.
                spread = place + rng.uniform(-0.28, 0.28, len(ratio))
                ax.plot(spread, ratio, ".", color=axes.CURVE, alpha=0.6)
                ends = place - 0.35, place + 0.35
                ax.hlines(np.median(ratio), *ends, color=axes.PROJECTED, lw=2)
        ax.set_xticks(range(len(names)), names)
        ax.set_ylabel("projected / measured")
        ax.legend(frameon=False)
        return ax


def validate(
    runs: pd.DataFrame,
    *,
    train: float | str | Iterable[float | str] = (),
    test: float | str | Iterable[float | str] = (),
    scheme: str | None = None,
    train_host: str | None = None,
    test_host: str | None = None,
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
    level: float = 0.90,
    keep_all: bool = False,
    **fitting: Unpack[FittingOptions],
) -> Validation:
    """Compare projections with measurements that they have not seen.

    Parameters
    ----------
    runs : pandas.DataFrame
        As for `ppw.project`.
    train, test : float, str or several
        Frequencies to learn from and to test at (Hz, or text with a unit). With one of them
        alone the other is all remaining frequencies.
    scheme : {"highest", "frequency", "host"}, optional
        Instead: leave each group's highest frequency out (the default), each frequency in turn,
        or each host in turn.
    train_host, test_host : str, optional
        Learn on one host and test on another, within the frequencies given if any.
    by, metric, level, keep_all, **fitting
        As for `ppw.project`. Across hosts, ``host`` is taken out of ``by``.

    Returns
    -------
    Validation

    Raises
    ------
    MeasurementError, PpwError
        For bad values, unknown columns, frequencies or hosts, and when nothing can be tested.
    """
    at_train, at_test = several(train), several(test)
    refuse_contradiction(bool(at_train or at_test), scheme, train_host, test_host)
    across = scheme == "host" or train_host is not None
    options = FitOptions(**fitting)
    by = _columns_without_host(runs, by) if across else by
    prepared = pr.prepare(runs, by=by, metric=metric, keep_all=keep_all, drop=False)
    plan = HoldOutPlan(at_train, at_test, scheme or "highest", train_host, test_host)
    validation = validate_prepared(prepared, plan, options, level, keep_all=keep_all)
    warn_caveats(validation.caveats)
    return replace(validation, input_digest=runs)


def validate_prepared(
    prepared: pr.PreparedRuns,
    plan: HoldOutPlan,
    options: FitOptions,
    level: float,
    *,
    keep_all: bool,
) -> Validation:
    """Compare projections of prepared runs with what a plan leaves out; as `validate`."""
    parts: list[pd.DataFrame] = []
    findings: list[tuple[str, cv.Caveat]] = []
    unfitted: list[str] = []
    learnt, left_out = np.zeros((2, len(prepared.runs)), dtype=bool)
    for whole in plan.folds(prepared.runs, prepared.groups):
        fold = whole if keep_all else _without_flagged_rows(prepared, whole)
        left_out |= (whole.train & ~fold.train) | (whole.test & ~fold.test)
        made = _validate_fold(prepared, fold, options, level)
        parts, findings, unfitted = parts + made[0], findings + made[1], unfitted + made[2]
        learnt |= fold.train
    groups = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if groups.empty:
        raise PpwError(_nothing_to_test(prepared, plan))
    caveats = [*prepared.caveats(learnt), *unfitted, *_untested_caveats(prepared, plan, groups)]
    caveats += cv.tally(findings, "projections")
    if left_out.any():
        count, rows = (run_count(prepared.runs, which) for which in (left_out, None))
        keepable = not (left_out & pr.without_power(prepared.runs)).any()
        caveats.insert(
            0,
            f"{count} of {rows} rows left out, because they are probably wrong: "
            f"{pr.remedy_of_left_out(keepable)}",
        )
    return Validation(
        groups=groups,
        summary_by_metric=summarise(groups),
        by=tuple(prepared.groups.by),
        scheme=plan.describe(),
        level=level,
        **options.fields_of_results(),
        caveats=tuple(dict.fromkeys(caveats)),
        input_digest=prepared.runs,
    )


def several(frequencies: float | str | Iterable[float | str]) -> list[float]:
    """Read no frequency, one or several."""
    if isinstance(frequencies, Iterable):
        # Read once only: an iterator has no second time.
        frequencies = frequencies if isinstance(frequencies, str) else list(frequencies)
    return [] if frequencies == [] else as_frequencies(frequencies)


def _columns_without_host(runs: pd.DataFrame, by: Sequence[str] | None) -> list[str]:
    """Group columns for a comparison of hosts: ``by`` or identity, without host."""
    columns = identity_columns(canonical(runs)) if by is None else as_names(by)
    return [c for c in columns if c != "host"]


def _without_flagged_rows(prepared: pr.PreparedRuns, fold: Fold) -> Fold:
    """Take the rows that checks flag out of a fold's train and test rows.

    What is learnt from is judged without the tested rows, which it must not know; a tested row is
    not turned down for being slower than expected, which would flatter the result.
    """
    learnt = prepared.flagged_rows(~fold.test)
    every = np.ones(len(learnt), dtype=bool)
    tested = prepared.flagged_rows(every, but=("slower_when_faster", "half_or_third_frequency"))
    return Fold(fold.train & ~learnt, fold.test & ~tested)


def _validate_fold(
    prepared: pr.PreparedRuns, fold: Fold, options: FitOptions, level: float
) -> tuple[list[pd.DataFrame], list[tuple[str, cv.Caveat]], list[str]]:
    """Compare the projections of one fold: rows, caveats, and texts on unfitted groups."""
    answers = Answers.of(prepared, options, fold.train)
    parts, findings = [], {}
    for metric in prepared.metrics:
        cells = pr.measured_cells(prepared, metric, fold.test)
        if cells.empty:
            continue
        answer = answers.at(metric, TargetCells.of_table(cells), level)
        if options.interval == "conformal":
            cluster, measured = answers.posteriors.neighbours.cluster, cells["measured"].to_numpy()
            answer = answer.calibrate_interval(measured, answer, cluster, level)
        fitted = answer.has_curves()
        trained = pr.measured_cells(prepared, metric, fold.train)
        part = _compare_cells(prepared, metric, cells, answer.prediction)
        part = part.assign(**_baselines(metric, cells, trained))
        parts.append(part[fitted])
        for name, found in answers.findings(answer):
            findings[name, found.name] = (name, found._replace(groups=found.groups[fitted]))
    return parts, list(findings.values()), unfitted_groups(answers.curves, prepared)


def _compare_cells(
    prepared: pr.PreparedRuns, metric: Metric, cells: pd.DataFrame, prediction: Prediction
) -> pd.DataFrame:
    """Put each measured cell beside its projection, with error (%) and coverage."""
    value, lower, upper, *_ = prediction
    measured = cells["measured"].to_numpy()
    covered = ((lower <= measured) & (measured <= upper)).astype(object)
    covered[np.isnan(lower)] = None
    keys = prepared.groups.keys.take(cells["group"].to_numpy()).reset_index(drop=True)
    return keys.assign(
        metric=metric.name,
        unit=metric.unit,
        freq_hz=cells["freq_hz"],
        projected=value,
        measured=measured,
        error_pct=100 * (value / measured - 1),
        lower=lower,
        upper=upper,
        covered=covered,
        runs=cells["runs"],
    )


def _baselines(metric: Metric, cells: pd.DataFrame, trained: pd.DataFrame) -> dict[str, FloatArray]:
    """Naive predictions from the nearest training frequency, by name of the baseline."""
    near = pd.merge_asof(
        cells.reset_index().sort_values("freq_hz"),
        trained.assign(near_hz=trained["freq_hz"]).sort_values("freq_hz"),
        on="freq_hz",
        by="group",
        direction="nearest",
        suffixes=("_test", ""),
    ).sort_values("index")
    ratio = (near["freq_hz"] / near["near_hz"]).to_numpy()
    base = near["measured"].to_numpy()
    powers = (metric.clock_power, metric.stalled_power)
    return {b: base * ratio**p for b, p in zip(BASELINES, powers, strict=True)}


def _untested_caveats(
    prepared: pr.PreparedRuns, plan: HoldOutPlan, tested: pd.DataFrame
) -> list[str]:
    """Caveat on groups without usable runs at the frequencies asked; none if all are tested."""
    every = len(prepared.groups)
    count = len(tested[prepared.groups.by].drop_duplicates()) if prepared.groups.by else every
    if count == every or not (plan.train or plan.test):
        return []
    return [
        f"{every - count} of {every} groups are not tested, because they have no usable runs at "
        f"these frequencies: {_OWN_FREQUENCIES}"
    ]


_OWN_FREQUENCIES = (
    "--scheme highest, without --train and --test, tests each group at its own highest "
    "frequency; --where selects groups measured at the same frequencies"
)


def _nothing_to_test(prepared: pr.PreparedRuns, plan: HoldOutPlan) -> str:
    """Say that no run can be compared with a projection, and what to ask for instead."""
    source = prepared.runs.attrs.get("source", "runs")
    found = (
        f"{source}: nothing to test ({plan.describe()}): no group by "
        f"{', '.join(prepared.groups.by) or 'no column'} has two frequencies to learn from and a "
        "measurement to be compared with"
    )
    asked = len(prepared.groups) > 1 and (plan.train or plan.test)
    return f"{found}: {_OWN_FREQUENCIES}" if asked else found


def _error_row(name: str, s: Mapping[str, Any]) -> list[str]:
    """Texts of a metric's row in the table of errors; "–" where nothing was tested."""
    if not s["n"]:
        return [name, "0", *["–"] * 10]
    errors = [f"{s[k]:.2f}" for k in ("median_ape", "p90_ape", "max_ape")]
    coverage = "no interval" if s["coverage"] is None else f"{s['coverage']:.0%}"
    if s["coverage"] is not None and s["with_interval"] < s["n"]:
        coverage += f" of {s['with_interval']}"
    naive = [f"{s['baselines'][b][k]:.2f}" for b in BASELINES for k in ("median_ape", "p90_ape")]
    bias, within = f"{s['bias_pct']:+.2f}", f"{s['within_10pct']:.0%}"
    return [name, str(s["n"]), *errors, bias, within, coverage, *naive]


def plot_projected_against_measured(ax: Axes, rows: pd.DataFrame, metric: str) -> Axes:
    """Draw one metric of a validation, projected (with intervals) against measured."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    x, y = rows["measured"].to_numpy(), rows["projected"].to_numpy()
    ends = np.array([np.nanmin([x, y]) * 0.85, np.nanmax([x, y]) * 1.15])
    ax.fill_between(ends, ends * 0.9, ends * 1.1, color="#eef2f6", label="within 10 %")
    ax.plot(ends, ends, color=axes.MEASURED, lw=0.8)
    inside = rows[rows["lower"].notna() & np.isfinite(rows["upper"])]
    ax.vlines(inside["measured"], inside["lower"], inside["upper"], color=axes.BAND, lw=2)
    ax.plot(x, y, ".", color=axes.CURVE, alpha=0.7)
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    if ends[1] < 30 * ends[0]:
        # Logarithmic axes of about a decade have plain numbers that leave each other room.
        for axis in (ax.xaxis, ax.yaxis):
            few = MaxNLocator(4) if ends[1] < 5 * ends[0] else LogLocator(subs=(1.0, 2.0, 5.0))
            axis.set_major_locator(few)
            axis.set_major_formatter("{x:g}")
            axis.set_minor_locator(NullLocator())
    ax.set_xlabel(f"measured {plots._LABELS.get(metric, metric)}")
    ax.set_ylabel("projected")
    ax.legend(frameon=False)
    return ax
