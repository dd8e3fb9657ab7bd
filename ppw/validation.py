"""`validate`: projected against measured, on runs that the projection has not seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from measurements import identity_columns
from ppw import caveats as cv
from ppw import schemes
from ppw.answers import Answers, Cells, calibrated
from ppw.arguments import as_frequencies, as_names
from ppw.condensed import run_count
from ppw.curves import FitOptions
from ppw.error_summary import BASELINES, summarise
from ppw.errors import PpwError
from ppw.prepare import (
    Prepared,
    canonical,
    measured_cells,
    prepare,
    remedy_of_left_out,
    without_watts,
)
from ppw.result import (
    frame_digest,
    read_document,
    reads_document,
    records,
    unbounded_where_null,
    write_document,
)
from ppw.schemes import Fold
from ppw.tables import summary_text, text_table
from ppw.unfitted import unfitted_groups

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from ppw.metrics import Metric

_NUMBERS = ("projected", "measured", "error_pct", "lower", "upper", *BASELINES)


@dataclass(frozen=True, kw_only=True, eq=False)
class Validation:
    """Projections held against measurements.

    Attributes
    ----------
    groups : pandas.DataFrame
        One row a group, metric and test frequency: key columns, ``metric``, ``unit``,
        ``freq_hz``, ``projected``, ``measured`` (mean of the test runs), ``error_pct``,
        ``lower``, ``upper`` (prediction interval for that mean; NaN without one), ``covered``
        (True, False or None without an interval), and what the two naive baselines answer:
        ``inverse_frequency`` (time scales as 1/f) and ``unscaled`` (time does not scale), both
        from the nearest frequency learnt from.
    summary_by_metric : dict
        By metric: ``n``, ``median_ape``, ``p90_ape``, ``mean_ape``, ``max_ape``, ``bias_pct``
        (percent), ``within_10pct`` and ``coverage`` (shares; coverage among the projections that
        have an interval, None where none has), ``with_interval``, and the same errors for
        ``baselines``.
    by : tuple of str
    scheme : str
        What was learnt from and what was tested.
    level : float
    form, power_form, via, interval, pool
    caveats : tuple of str
    """

    groups: pd.DataFrame
    summary_by_metric: dict[str, dict[str, Any]]
    by: tuple[str, ...]
    scheme: str
    level: float
    form: str
    power_form: str | None
    via: str
    interval: str
    pool: bool
    caveats: tuple[str, ...]
    input_digest: str = field(repr=False, compare=False)

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of ``groups``."""
        return self.groups.copy()

    def summary(self) -> str:
        """Show errors and coverage by metric, beside the naive baselines, then the caveats."""
        header = ["metric", "n", "median", "p90", "max", "bias", "within 10 %", "coverage"]
        header += ["1/f: median", "p90", "unscaled: median", "p90"]
        rows = [_cells(name, s) for name, s in self.summary_by_metric.items()]
        title = f"Projected against measured, {self.scheme} (absolute errors in %)"
        return summary_text([title, text_table(header, rows)], self.caveats)

    def worst_error_pct(self) -> float:
        """Largest absolute error of all, in percent."""
        return float(self.groups["error_pct"].abs().max())

    def to_json(self) -> str:
        """JSON document with ``schema_version``, ``groups`` and ``summary``."""
        body = {
            "scheme": self.scheme,
            "by": self.by,
            "level": self.level,
            "form": self.form,
            "power_form": self.power_form,
            "via": self.via,
            "interval": self.interval,
            "pool": self.pool,
            "groups": records(self.groups),
            "summary": self.summary_by_metric,
            "caveats": self.caveats,
        }
        return write_document("validation", self.input_digest, body)

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> Validation:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        d = read_document(text, "validation")
        groups = pd.DataFrame(d["groups"]).astype(dict.fromkeys(_NUMBERS, np.float64))
        names = ["scheme", "level", "form", "power_form", "via", "interval", "pool", "input_digest"]
        return cls(
            groups=unbounded_where_null(groups.astype({"covered": object})),
            summary_by_metric=d["summary"],
            by=tuple(d["by"]),
            caveats=tuple(d["caveats"]),
            **{name: d[name] for name in names},
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw projected against measured, as shares of the measured, metric by metric."""
        from ppw.plots import plot_validation

        return plot_validation(self, ax)


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
    form: str = "amdahl",
    power_form: str | None = None,
    exponent: float | None = None,
    voltages: Mapping[float, float] | pd.DataFrame | None = None,
    via: str = "fits",
    level: float = 0.90,
    interval: str = "bayes",
    pool: bool = True,
    keep_all: bool = False,
) -> Validation:
    """Hold projections against measurements that they have not seen.

    Parameters
    ----------
    runs : pandas.DataFrame
        As for `ppw.project_runs`.
    train, test : float, str or several
        Frequencies to learn from and to test at (Hz, or text with a unit). With one of them
        alone the other is all remaining frequencies.
    scheme : {"highest", "frequency", "host"}, optional
        Instead: leave each group's highest frequency out (the default), each frequency in turn,
        or each host in turn.
    train_host, test_host : str, optional
        Learn on one host and test on another, within the frequencies given if any.
    by, metric, form, power_form, exponent, voltages, via, level, interval, pool, keep_all
        As for `ppw.project_runs`. Across hosts, ``host`` is taken out of ``by``.

    Returns
    -------
    Validation
        Projections held against measurements.

    Raises
    ------
    MeasurementError, PpwError
        For bad values, unknown columns, frequencies or hosts, and when nothing can be tested.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    at_train, at_test = several(train), several(test)
    schemes.refuse_contradiction(bool(at_train or at_test), scheme, train_host, test_host)
    across = scheme == "host" or train_host is not None
    options = FitOptions(
        form=form,
        power_form=power_form,
        exponent=exponent,
        voltages=voltages,
        via=via,
        interval=interval,
        pool=pool,
    )
    by = _across_hosts(runs, by) if across else by
    prepared = prepare(runs, by=by, metric=metric, keep_all=keep_all, drop=False)
    plan = schemes.Plan(at_train, at_test, scheme or "highest", train_host, test_host)
    validation = validate_prepared(prepared, plan, options, level, keep_all=keep_all)
    cv.warn(validation.caveats)
    return replace(validation, input_digest=frame_digest(runs))


def validate_prepared(
    prepared: Prepared, plan: schemes.Plan, options: FitOptions, level: float, *, keep_all: bool
) -> Validation:
    """Hold projections of prepared runs against what a plan leaves out; as `validate`."""
    parts: list[pd.DataFrame] = []
    findings: list[tuple[str, cv.Finding]] = []
    unfitted: list[str] = []
    learnt = np.zeros(len(prepared.runs), dtype=bool)
    left_out = np.zeros(len(prepared.runs), dtype=bool)
    for whole in plan.folds(prepared.runs, prepared.groups):
        fold = whole if keep_all else _trusted(prepared, whole)
        left_out |= (whole.train & ~fold.train) | (whole.test & ~fold.test)
        part, found, without = _validate_fold(prepared, fold, options, level)
        parts += part
        findings += found
        unfitted += without
        learnt |= fold.train
    groups = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if groups.empty:
        raise PpwError(_nothing_to_test(prepared, plan))
    tallied = cv.tally(findings, "projections")
    caveats = [*prepared.caveats(learnt), *unfitted, *_untested(prepared, plan, groups), *tallied]
    if left_out.any():
        count, rows = (run_count(prepared.runs, which) for which in (left_out, None))
        keepable = not (left_out & without_watts(prepared.runs)).any()
        caveats.insert(0, _rows_left_out(count, rows, keepable))
    return Validation(
        groups=groups,
        summary_by_metric=summarise(groups),
        by=tuple(prepared.groups.by),
        scheme=plan.describe(),
        level=level,
        form=options.form,
        power_form=options.power_form,
        via=options.via,
        interval=options.interval,
        pool=options.pool,
        caveats=tuple(dict.fromkeys(caveats)),
        input_digest=frame_digest(prepared.runs),
    )


def several(frequencies: float | str | Iterable[float | str]) -> list[float]:
    """Read no frequency, one or several."""
    if isinstance(frequencies, Iterable):
        # Read once only: an iterator has no second time.
        frequencies = frequencies if isinstance(frequencies, str) else list(frequencies)
    return [] if frequencies == [] else as_frequencies(frequencies)


def _across_hosts(runs: pd.DataFrame, by: Sequence[str] | None) -> list[str]:
    columns = identity_columns(canonical(runs)) if by is None else as_names(by)
    return [c for c in columns if c != "host"]


def _trusted(prepared: Prepared, fold: Fold) -> Fold:
    """Fold without the rows that cannot be right.

    What is learnt from is judged without the tested rows, which it must not know; a tested row is
    not turned down for being slower than expected, which would flatter the result.
    """
    learnt = prepared.suspects(~fold.test)
    every = np.ones(len(learnt), dtype=bool)
    tested = prepared.suspects(every, but=("slower_when_faster",))
    return Fold(fold.train & ~learnt, fold.test & ~tested)


def _rows_left_out(count: int, rows: int, keepable: bool) -> str:
    return (
        f"{count} of {rows} rows left out, because they cannot be right: "
        f"{remedy_of_left_out(keepable)}"
    )


def _validate_fold(
    prepared: Prepared, fold: Fold, options: FitOptions, level: float
) -> tuple[list[pd.DataFrame], list[tuple[str, cv.Finding]], list[str]]:
    answers = Answers.of(prepared, options, fold.train)
    parts, findings = [], {}
    for metric in prepared.metrics:
        cells = measured_cells(prepared, metric, fold.test)
        if cells.empty:
            continue
        asked = Cells(*(cells[c].to_numpy() for c in ("group", "freq_hz", "runs")))
        answer = answers.at(metric, asked, level)
        if options.interval == "conformal":
            cluster = answers.posteriors.neighbours.cluster
            answer = calibrated(answer, cells["measured"].to_numpy(), answer, cluster, level)
        p = answer.prediction
        fitted = np.logical_and.reduce([~np.isnan(f.fit.line.slope) for f in answer.factors])
        part = _compared(prepared, metric, cells, p.value, p.lower, p.upper)
        trained = measured_cells(prepared, metric, fold.train)
        part = part.assign(**_baselines(metric, cells, trained))
        parts.append(part[fitted])
        for name, found in answers.findings(answer):
            findings[name, found.name] = (name, found._replace(groups=found.groups[fitted]))
    return parts, list(findings.values()), unfitted_groups(answers.curves, prepared)


def _compared(
    prepared: Prepared,
    metric: Metric,
    cells: pd.DataFrame,
    value: np.ndarray[Any, np.dtype[np.float64]],
    lower: np.ndarray[Any, np.dtype[np.float64]],
    upper: np.ndarray[Any, np.dtype[np.float64]],
) -> pd.DataFrame:
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


def _baselines(
    metric: Metric, cells: pd.DataFrame, trained: pd.DataFrame
) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """Naive answers from the nearest frequency learnt from."""
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


def _untested(prepared: Prepared, plan: schemes.Plan, tested: pd.DataFrame) -> list[str]:
    """Say how many groups have other frequencies than those that were asked for."""
    every = len(prepared.groups)
    count = len(tested[prepared.groups.by].drop_duplicates()) if prepared.groups.by else every
    if count == every or not (plan.train or plan.test):
        return []
    return [
        f"{every - count} of {every} groups are not tested, since they have no runs of use at "
        f"these frequencies: {_OWN_FREQUENCIES}"
    ]


_OWN_FREQUENCIES = (
    "--scheme highest, without --train and --test, leaves out each group's own highest one; "
    "--where chooses groups that were measured alike"
)


def _nothing_to_test(prepared: Prepared, plan: schemes.Plan) -> str:
    source = prepared.runs.attrs.get("source", "runs")
    found = (
        f"{source}: nothing to test ({plan.describe()}): no group by "
        f"{', '.join(prepared.groups.by) or 'no column'} has two frequencies to learn from and a "
        "measurement to be held against"
    )
    asked = len(prepared.groups) > 1 and (plan.train or plan.test)
    return f"{found}: {_OWN_FREQUENCIES}" if asked else found


def _cells(name: str, s: Mapping[str, Any]) -> list[str]:
    if not s["n"]:
        return [name, "0", *["–"] * 10]
    errors = [f"{s[k]:.2f}" for k in ("median_ape", "p90_ape", "max_ape")]
    coverage = "no interval" if s["coverage"] is None else f"{s['coverage']:.0%}"
    if s["coverage"] is not None and s["with_interval"] < s["n"]:
        coverage += f" of {s['with_interval']}"
    naive = [f"{s['baselines'][b][k]:.2f}" for b in BASELINES for k in ("median_ape", "p90_ape")]
    bias, within = f"{s['bias_pct']:+.2f}", f"{s['within_10pct']:.0%}"
    return [name, str(s["n"]), *errors, bias, within, coverage, *naive]
