"""`project_runs`: every group of a runs table projected to frequencies that were not measured.

And `fit_runs`: the parameters of every curve of the table, with their standard errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fitting.bayes.posterior import SAME_STEP
from fitting.bayes.prediction import fewest_scores
from fitting.regression import lines
from measurements.table.schema import HEADERS
from ppw.errors import PpwError
from ppw.projection import caveats as cv, plots
from ppw.projection.answers import (
    Answers,
    CellAnswers,
    CurveFit,
    FitOptions,
    FittingOptions,
    ModelOptions,
    TargetCells,
)
from ppw.results import axes
from ppw.results.axes import Axes
from ppw.results.result import Result, Table, frame_digest, warn_caveats
from ppw.results.text import as_frequencies, check_choice, plot_label, shown
from ppw.runs.metrics import Metric
from ppw.runs.prepare import PreparedRuns, measured_cells, prepare

# Groups without a curve: how many, and why.


def unfitted_groups(curves: Mapping[str, CurveFit], prepared: PreparedRuns) -> list[str]:
    """Say how many groups each fit leaves out: not measured, or at one frequency only."""
    texts = []
    for name, curve in curves.items():
        line = curve.fit.line
        without = np.isnan(line.slope)
        unmeasured = int((without & (line.moments.points == 0)).sum())
        single = int(without.sum()) - unmeasured
        total = len(prepared.groups)
        if unmeasured:
            texts.append(f"{name}: {unmeasured} of {total} groups left out: not measured there")
        if single:
            texts.append(
                f"{name}: {single} of {total} groups left out: measured at only one frequency, "
                "and a curve needs two"
            )
    return texts


def nothing_to_fit(prepared: PreparedRuns) -> str:
    """Say that the table has one distinct frequency, so that no group has a curve."""
    source = prepared.runs.attrs.get("source", "runs")
    distinct = np.unique(prepared.runs["freq_hz"])
    found = ", ".join(shown(f, "Hz") for f in distinct[:6])
    by = ", ".join(prepared.groups.by)
    grouped = f"every group by {by}" if by else "all rows, which are one group"
    left_out = "".join(f"; {said}" for said in prepared.left_out_texts())
    headers = prepared.runs.attrs.get(HEADERS, {})
    named = next((h for h, became in headers.items() if became[0] == "freq_hz"), "freq_hz")
    where = "of the rows that are left" if left_out else "in the file"
    return (
        f"{source}: only one distinct frequency in {grouped} ({named} {where}: {found}): a curve "
        f"needs two; measure at one more, or group by fewer columns with --by{left_out}"
    )


# Columns of the error budget begin so.
WIDTH_FROM = "width_from_"
_OPTIONAL = ("other_form", "least_squares", "caveats", "pulled_pct")


@dataclass(frozen=True, kw_only=True, eq=False)
class RunsProjection(Result):
    """Projections of every group of a runs table.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a group, metric and frequency. A posterior adds the share that each source of width
        has in the variance of its logarithm (``width_from_time_fit`` …).
    by : tuple of str
        Columns that tell groups apart.
    level : float
        Probability of the intervals.
    form, power_form, via, interval, pool
        As asked for; ``power_form`` None is a posterior over CMOS curves.
    caveats : tuple of str
        With the number of groups that each concerns.
    left_out : pandas.DataFrame
        Rows of the input that cannot be right and took no part, with the evidence; as the table
        of `ppw.check`.
    prepared : ppw.runs.prepare.PreparedRuns or None
        The runs behind the answers; None when read from JSON.
    """

    kind = "runs_projection"
    tables = (
        Table(
            "table",
            """
            metric      | text  | metric    | what is projected
            unit        | text  |           | unit of `projected`
            freq_hz     | Hz    | at        | frequency projected to
            projected   | unit [lower, upper] | projected | projection
            lower       | unit  |           | lower end of the prediction interval, NaN without one
            upper       | unit  |           | upper end of it
            limit       | unit on pages | limit | limit of the metric as the frequency grows
            limit_share | share | of limit  | share of the limit that is reached
            points      | count |           | number of runs
            pulled_pct  | %     |           | how far the other groups moved the answer (posterior)
            other_form  | unit  | other form | answer of the reciprocal or bounded form
            least_squares | unit in text | least squares | its answer where it differs
            caveats     | text  |           | short names of the caveats
            """,
            title="Projections",
            key="groups",
        ),
        Table(
            "left_out",
            """
            file     | text | file      | file that the row stands in
            row      | count | row      | 1 is the first below the header of the file
            freq_hz  | Hz   | frequency | frequency of the row
            check    | text | check     | short name of the check
            evidence | text | evidence  | what is wrong, with the figures
            """,
            title="Rows left out",
            most=0,
        ),
    )

    table: pd.DataFrame
    by: tuple[str, ...]
    level: float
    form: str
    power_form: str | None
    via: str
    interval: str
    pool: bool
    left_out: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)
    prepared: PreparedRuns | None = field(default=None, repr=False, metadata={"json": False})
    options: FitOptions = field(default_factory=FitOptions, repr=False, metadata={"json": False})

    def plot(self, ax: Axes | None = None, metric: str | None = None) -> Axes:
        """Draw up to ten groups against frequency: measured, curve, interval and projections.

        ``metric`` is one of those projected; the first by default.
        """
        if self.prepared is None:
            raise PpwError("a projection read from JSON has no runs to draw: project them again")
        named = {m.name: m for m in self.prepared.metrics}
        check_choice("metric", metric := metric or next(iter(named)), tuple(named))
        ax, drawn = axes.new_axes(ax), named[metric]
        groups = plots.drawable_groups(self.prepared, drawn, 10)
        asked = np.unique(self.table["freq_hz"])
        table = (self.prepared, self.options, drawn)
        curves = plots.group_curves(*table, [*groups], float(asked[-1]), self.level)
        ends = []
        for group, label in groups.items():
            points, curve = curves[group]
            ghz = curve["freq_hz"] / 1e9
            (line,) = ax.plot(ghz, curve["value"])
            color = line.get_color()
            ax.fill_between(ghz, curve["lower"], curve["upper"], color=color, alpha=0.15, lw=0)
            ax.plot(points["freq_hz"] / 1e9, points["value"], "o", ms=4, color=color)
            projected = np.interp(asked, curve["freq_hz"], curve["value"])
            ax.plot(asked / 1e9, projected, "D", ms=6, mfc="white", color=color)
            ends.append((curve["value"].iloc[-1], plot_label(label), color))
        ax.set(xlabel="core frequency (GHz)", ylabel=plots._LABELS[metric])
        ax.set_ylim(bottom=0)
        axes.label_ends(ax, ends)
        return ax


def project_runs(
    runs: pd.DataFrame,
    *,
    freq: float | str | Iterable[float | str],
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
    level: float = 0.90,
    keep_all: bool = False,
    **fitting: Unpack[FittingOptions],
) -> RunsProjection:
    """Project every group of a runs table.

    Parameters
    ----------
    runs : pandas.DataFrame
        A runs table (`ppw.read_runs`), or a frame with columns such as ``freq_ghz``, ``time_ms``.
    freq : float, str or several
        Frequencies to project to, in Hz or with a unit ("3.0GHz").
    by : sequence of str, optional
        Columns that tell groups apart; by default all identity columns present.
    metric : str or several, optional
        Of "time", "cpi", "throughput", "power", "energy", "perf_per_watt",
        "perf_per_dollar" (from the column ``price``); by default all that
        the columns allow.
    level : float
        Probability of the prediction intervals, between 0 and 1.
    keep_all : bool
        Use the rows that `ppw.check` would leave out.
    **fitting
        ``form``, ``power_form``, ``exponent``, ``voltages``, ``via``, ``interval``, ``pool``: the
        attributes of `ppw.projection.answers.FitOptions`.

    Returns
    -------
    RunsProjection

    Raises
    ------
    MeasurementError
        For values that cannot be, all of them at once.
    PpwError
        For a frequency, metric or column that is not there, or when no group has two frequencies.
    """
    frequencies = as_frequencies(freq)
    options = FitOptions(**fitting)
    prepared = prepare(runs, by=by, metric=metric, keep_all=keep_all)
    projection = project_prepared(prepared, frequencies, options, level)
    warn_caveats(projection.caveats)
    return projection


def project_prepared(
    prepared: PreparedRuns, frequencies: Sequence[float], options: FitOptions, level: float
) -> RunsProjection:
    """Project every group of prepared runs; arguments as `project_runs`, and no warnings."""
    answers = Answers.of(prepared, options)
    tables, findings = [], []
    for metric in prepared.metrics:
        for frequency in frequencies:
            rows, found = _answer_rows(answers, metric, frequency, level)
            tables.append(rows)
            findings += found
    table = pd.concat(tables, ignore_index=True)
    if table.empty:
        raise PpwError(nothing_to_fit(prepared))
    caveats = prepared.caveats() + cv.tally(
        cv.join_frequencies(findings), name_of=prepared.groups.name
    )
    caveats += unfitted_groups(answers.curves, prepared)
    return RunsProjection(
        table=table.drop(columns=[c for c in _OPTIONAL if table[c].isna().all()]),
        by=tuple(prepared.groups.by),
        level=level,
        **options.fields_of_results(),
        caveats=tuple(caveats),
        left_out=prepared.left_out,
        prepared=prepared,
        options=options,
        input_digest=prepared.runs,
    )


def _answer_rows(
    answers: Answers, metric: Metric, frequency: float, level: float
) -> tuple[pd.DataFrame, list[tuple[str, cv.Caveat]]]:
    """Answer one metric at one frequency: a row for each group that was fitted, and caveats."""
    groups = answers.prepared.groups
    count = len(groups)
    every = TargetCells(np.arange(count), np.full(count, float(frequency)), np.ones(count))
    made = answers.at(metric, every, level)
    if answers.options.interval == "conformal":
        made = _make_conformal(answers, made, metric, frequency, level)
    apart, differing = made.compare_least_squares()
    findings, known = answers.findings(made) + differing, made.distribution
    widths = known.budget_shares() if known else {}
    fitted, refitted = made.has_curves(), answers.other_form(metric)
    columns = {
        **groups.keys,
        "metric": metric.name,
        "unit": metric.unit,
        "freq_hz": frequency,
        "projected": made.prediction.value,
        "lower": made.prediction.lower,
        "upper": made.prediction.upper,
        "limit": made.prediction.limit,
        "limit_share": made.prediction.limit_share,
        "points": np.minimum.reduce([f.fit.line.moments.points for f in made.factors]),
        "pulled_pct": np.nan if known is None else 100 * (known.pulled - 1),
        **{WIDTH_FROM + name.replace(" ", "_"): share for name, share in widths.items()},
        "other_form": refitted.curves[metric.name].fit.predict(frequency) if refitted else np.nan,
        "least_squares": made.prediction.value * apart,
        "caveats": _caveat_names([x for _, x in findings], count),
    }
    rows = pd.DataFrame(columns, index=groups.keys.index)
    return rows if fitted.all() else rows[fitted], findings


def _make_conformal(
    answers: Answers, made: CellAnswers, metric: Metric, frequency: float, level: float
) -> CellAnswers:
    """Widen intervals by the misses of groups measured at the frequency; raise if too few."""
    prepared = answers.prepared
    at = np.abs(prepared.runs["freq_hz"].to_numpy() / frequency - 1) < SAME_STEP
    cells = measured_cells(prepared, metric, at)
    if not cells.empty:
        unseen = Answers.of(prepared, answers.options, ~at)
        cluster = answers.posteriors.neighbours.cluster
        held = unseen.at(metric, TargetCells.of_table(cells), level)
        measured = cells["measured"].to_numpy()
        made = made.calibrate_interval(measured, held, cluster, level)
    if cells.empty or np.isnan(made.prediction.lower).all():
        raise PpwError(
            f"{metric.name} at {shown(frequency, 'Hz')}: a conformal interval at {level:.0%} "
            f"takes {fewest_scores(level)} groups of other workloads measured at the target "
            "frequency: use --interval bayes, or measure more of these groups there"
        )
    return made


def _caveat_names(findings: Sequence[cv.Caveat], groups: int) -> NDArray[np.object_]:
    """Short names of each group's caveats, joined; all None where no group has any."""
    findings = [f for f in findings if f.groups.any()]
    names = list(dict.fromkeys(f.name for f in findings))
    if not names:
        return np.full(groups, None)
    mask = np.zeros(groups, dtype=np.int64)
    for finding in findings:
        mask |= finding.groups.astype(np.int64) << names.index(finding.name)
    # Counted, not sorted: a million groups share a handful of combinations.
    combinations = 1 << len(names)
    present = np.flatnonzero(np.bincount(mask, minlength=combinations)[1:]) + 1
    texts = np.full(combinations, np.nan, dtype=object)
    texts[present] = ["; ".join(n for i, n in enumerate(names) if m >> i & 1) for m in present]
    return texts[mask]


# The parameters of the curves.


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedParameters(Result):
    """Parameters of the curves of every group.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a group and parameter.
    by : tuple of str
        Columns that tell groups apart.
    """

    kind = "parameters"
    tables = (
        Table(
            "table",
            """
            metric         | text  | metric         | what the curve is of
            equation       | text  |                | equation of the curve
            parameter      | text  | parameter      | name of the parameter, which carries its unit
            value          | 1     | least squares  | least-squares value
            standard_error | 1     | standard error | NaN without degrees of freedom, or held at 0
            posterior      | 1     | posterior      | law through both ends of the answering curve
            held           | flag  |                | whether its bound holds it at 0
            points         | count |                | number of runs
            degrees_of_freedom | count | freedom    | degrees of freedom of the fit
            """,
            title="Parameters",
            key="parameters",
            most=60,
            show={
                "standard_error": lambda row: (
                    "held at 0" if row["held"] else shown(row["standard_error"])
                )
            },
        ),
    )

    table: pd.DataFrame
    by: tuple[str, ...]

    def verdict(self) -> list[str]:
        """Return the equation of each metric."""
        laws = zip(self.table["metric"], self.table["equation"], strict=True)
        return list(dict.fromkeys(f"{metric}: {equation}" for metric, equation in laws))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw each parameter as a share of its median over the groups."""
        ax, names = axes.new_axes(ax), list(dict.fromkeys(self.table["parameter"]))
        for place, name in enumerate(names):
            value = self.table.loc[self.table["parameter"] == name, "value"].to_numpy()
            if middle := np.median(value):
                share = value / middle
                ax.plot(np.full(len(value), place), share, ".", color=axes.CURVE, alpha=0.5)
        ax.set_xticks(range(len(names)), names, rotation=20, ha="right")
        ax.set_ylabel("share of the median")
        return ax


def fit(
    runs: pd.DataFrame,
    *,
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
    keep_all: bool = False,
    **fitting: Unpack[ModelOptions],
) -> FittedParameters:
    """Fit the curves of a runs table and give their parameters.

    Parameters
    ----------
    runs : pandas.DataFrame
        A runs table (`ppw.read_runs`).
    by, metric, keep_all
        As for `ppw.project`.
    **fitting
        ``form``, ``power_form``, ``exponent``, ``voltages``, ``via``: as for `ppw.project`.

    Returns
    -------
    FittedParameters

    Raises
    ------
    MeasurementError, PpwError
        As `ppw.project`.
    """
    options = FitOptions(**fitting)
    fitted = fit_prepared(prepare(runs, by=by, metric=metric, keep_all=keep_all), options)
    warn_caveats(fitted.caveats)
    return fitted


def fit_prepared(prepared: PreparedRuns, options: FitOptions) -> FittedParameters:
    """Fit the curves of prepared runs, as `fit_runs` does, and without warnings."""
    answers, groups = Answers.of(prepared, options), prepared.groups
    curves = answers.curves
    tables = [_parameter_rows(answers, name) for name in curves]
    table = pd.concat(tables, ignore_index=True)
    if table.empty:
        raise PpwError(nothing_to_fit(prepared))
    held = {name: int((c.fit.line.bound != lines.FREE).sum()) for name, c in curves.items()}
    bounds = [
        f"{name} ({count} of {len(groups)} groups): a parameter is held at 0 by its bound; --form "
        "unbounded removes the bound"
        for name, count in held.items()
        if count
    ]
    caveats = [*prepared.caveats(), *bounds, *unfitted_groups(curves, prepared)]
    return FittedParameters(
        table=table,
        by=tuple(groups.by),
        caveats=tuple(caveats),
        input_digest=frame_digest(prepared.runs),
    )


def _parameter_rows(answers: Answers, name: str) -> pd.DataFrame:
    """Rows of group and parameter with values and error, of groups that have a curve."""
    fitted, lowest, highest = answers.curves[name]
    line, keys = fitted.line, answers.prepared.groups.keys
    several = np.flatnonzero(lowest < highest)
    ends = [TargetCells(several, end[several], np.ones(len(several))) for end in (lowest, highest)]
    law = answers.law_through(name, *ends) or {}
    bounds = (lines.INTERCEPT_AT_ZERO, lines.SLOPE_AT_ZERO)
    parts = []
    for (parameter, (value, error)), bound in zip(fitted.parameters().items(), bounds, strict=True):
        posterior = np.full(len(keys), np.nan)
        posterior[several] = law.get(parameter, np.nan)
        parts.append(
            keys.assign(
                metric=name,
                equation=fitted.model.equation,
                parameter=parameter,
                value=value,
                standard_error=error,
                posterior=posterior,
                held=line.bound == bound,
                points=line.moments.points,
                degrees_of_freedom=line.degrees_of_freedom,
            )
        )
    both = pd.concat([part[~np.isnan(line.slope)] for part in parts])
    return both.sort_index(kind="stable")
