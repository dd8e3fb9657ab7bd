"""`project_runs`: every group of a runs table projected to frequencies that were not measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from ppw import caveats as cv
from ppw.arguments import as_frequencies
from ppw.curves import Curves, FitOptions, fit_curves, predict
from ppw.errors import PpwError
from ppw.estimate import shown, shown_interval
from ppw.prepare import Prepared, prepare
from ppw.result import (
    frame_digest,
    read_document,
    records,
    unbounded_where_null,
    write_document,
)
from ppw.tables import text_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fitting.line import FloatArray, IntArray
    from fitting.models import Prediction
    from ppw.grouping import Groups
    from ppw.metrics import Metric

    Mask = NDArray[np.bool_]

_NUMBERS = ("projected", "lower", "upper", "other_form", "limit", "limit_share")
_OPTIONAL = ("other_form", "caveats")


@dataclass(frozen=True, kw_only=True, eq=False)
class RunsProjection:
    """Projections of every group of a runs table.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a group, metric and frequency: the key columns, ``metric``, ``unit``,
        ``freq_hz``, ``projected``, ``lower``, ``upper`` (NaN without an interval), ``limit`` as
        frequency grows, ``limit_share`` reached, ``points`` measured, and ``other_form`` (the
        reciprocal form beside the bounded one, or the reverse) and ``caveats`` (short names) where
        there are any.
    by : tuple of str
        Key columns.
    level : float
        Of the intervals.
    form, power_form, via : str
    caveats : tuple of str
        With the number of groups that each concerns.
    prepared : ppw.prepare.Prepared or None
        The runs behind the answers; None when read from JSON.
    """

    table: pd.DataFrame
    by: tuple[str, ...]
    level: float
    form: str
    power_form: str
    via: str
    caveats: tuple[str, ...]
    prepared: Prepared | None = field(default=None, repr=False, compare=False)
    options: FitOptions = field(default_factory=FitOptions, repr=False, compare=False)
    known_digest: str | None = field(default=None, repr=False, compare=False)

    @property
    def input_digest(self) -> str | None:
        """Digest of the runs: of the file they were read from where known."""
        # Not computed before it is asked for: it costs more than the fits of a large table.
        return self.known_digest if self.prepared is None else frame_digest(self.prepared.runs)

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of ``table``."""
        return self.table.copy()

    def summary(self) -> str:
        """Show a table of projections, at most 40 rows, then the caveats."""
        shown_rows = [self._cells(row) for row in self.table.head(40).to_dict(orient="records")]
        header = [*self.by, "metric", "at", "projected", f"{self.level:.0%} interval", "of limit"]
        header += ["other form"] if "other_form" in self.table else []
        lines = [text_table(header, shown_rows)]
        if len(self.table) > 40:
            lines.append(f"… {len(self.table) - 40} more rows: use --format csv or to_frame()")
        return "\n".join(lines + [f"caveat: {c}" for c in self.caveats])

    def _cells(self, row: Mapping[Any, Any]) -> list[str]:
        interval = shown_interval(row["projected"], row["lower"], row["upper"], row["unit"])
        share = "–" if np.isnan(row["limit_share"]) else f"{row['limit_share']:.0%}"
        keys = [shown(v) if isinstance(v, float) else str(v) for v in (row[k] for k in self.by)]
        answers = [shown(row["freq_hz"], "Hz"), shown(row["projected"], row["unit"])]
        other = [shown(row["other_form"], row["unit"])] if "other_form" in row else []
        return [*keys, row["metric"], *answers, interval, share, *other]

    def to_json(self) -> str:
        """JSON document with ``schema_version``; one object a row in ``groups``."""
        body = {
            "by": self.by,
            "level": self.level,
            "form": self.form,
            "power_form": self.power_form,
            "via": self.via,
            "groups": records(self.table),
            "caveats": self.caveats,
        }
        return write_document("runs_projection", self.input_digest, body)

    @classmethod
    def from_json(cls, text: str) -> RunsProjection:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        d = read_document(text, "runs_projection")
        table = pd.DataFrame(d["groups"])
        numbers = {c: np.float64 for c in _NUMBERS if c in table}
        return cls(
            table=unbounded_where_null(table.astype(numbers)),
            by=tuple(d["by"]),
            level=d["level"],
            form=d["form"],
            power_form=d["power_form"],
            via=d["via"],
            caveats=tuple(d["caveats"]),
            known_digest=d["input_digest"],
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the first metric of each group, measured and projected, against frequency."""
        from ppw.plots import plot_runs_projection

        return plot_runs_projection(self, ax)


def project_runs(
    runs: pd.DataFrame,
    *,
    freq: float | str | Iterable[float | str],
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
    form: str = "amdahl",
    power_form: str = "linear",
    exponent: float = 3.0,
    voltages: Mapping[float, float] | None = None,
    via: str = "fits",
    level: float = 0.90,
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
    form, power_form, exponent, voltages, level
        As for `ppw.project`.
    via : {"fits", "ratio"}
        perf/W as the quotient of two fits, or by one regression on performance/power.

    Raises
    ------
    MeasurementError
        For values that cannot be, all of them at once.
    PpwError
        For a frequency, metric or column that is not there, or when no group has two frequencies.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    frequencies = as_frequencies(freq)
    options = FitOptions(
        form=form, power_form=power_form, exponent=exponent, voltages=voltages, via=via
    )
    prepared = prepare(runs, by=by, metric=metric)
    curves = fit_curves(prepared.runs, prepared.groups, prepared.metrics, options)
    asked = [(m, f) for m in prepared.metrics for f in frequencies]
    answers = [_Answer.of(prepared, curves, m, f, level) for m, f in asked]
    table = pd.concat([a.table(prepared.groups) for a in answers], ignore_index=True)
    if table.empty:
        raise PpwError(nothing_to_fit(prepared))
    findings = cv.over_frequencies(found for a in answers for found in a.findings)
    caveats = prepared.caveats() + cv.tally(findings)
    caveats += left_out(curves, prepared)
    cv.warn(caveats)
    return RunsProjection(
        table=table.drop(columns=[c for c in _OPTIONAL if table[c].isna().all()]),
        by=tuple(prepared.groups.by),
        level=level,
        form=form,
        power_form=power_form,
        via=via,
        caveats=tuple(caveats),
        prepared=prepared,
        options=options,
    )


class _Answer(NamedTuple):
    """One metric at one frequency, for all groups."""

    metric: Metric
    frequency: float
    prediction: Prediction
    points: IntArray
    fitted: Mask
    findings: list[tuple[str, cv.Finding]]
    other_form: FloatArray | None

    @classmethod
    def of(
        cls, prepared: Prepared, curves: Curves, metric: Metric, frequency: float, level: float
    ) -> _Answer:
        factors = curves.of(metric)
        prediction = predict(factors, frequency, level=level)
        findings = cv.fit_findings(factors, frequency)
        fitted = np.logical_and.reduce([~np.isnan(f.fit.line.slope) for f in factors])
        points = np.minimum.reduce([f.fit.line.moments.points for f in factors])
        other = _other_form(prepared, curves, metric, frequency)
        return cls(metric, frequency, prediction, points, fitted, findings, other)

    def table(self, groups: Groups) -> pd.DataFrame:
        """One row a group that could be fitted."""
        p = self.prediction
        rows = groups.keys.assign(
            metric=self.metric.name,
            unit=self.metric.unit,
            freq_hz=self.frequency,
            projected=p.value,
            lower=p.lower,
            upper=p.upper,
            limit=p.limit,
            limit_share=p.limit_share,
            points=self.points,
            other_form=np.nan if self.other_form is None else self.other_form,
            caveats=_names([x for _, x in self.findings], len(groups)),
        )
        return rows if self.fitted.all() else rows[self.fitted]


def _names(findings: Sequence[cv.Finding], groups: int) -> pd.Categorical[Any] | None:
    """Short names of each group's caveats, joined; few combinations serve many groups."""
    findings = [f for f in findings if f.groups.any()]
    names = list(dict.fromkeys(f.name for f in findings))
    if not names:
        return None
    mask = np.zeros(groups, dtype=np.int64)
    for finding in findings:
        mask |= finding.groups.astype(np.int64) << names.index(finding.name)
    # Counted, not sorted: a million groups share a handful of combinations.
    combinations = 1 << len(names)
    present = np.flatnonzero(np.bincount(mask, minlength=combinations)[1:]) + 1
    texts = ["; ".join(n for i, n in enumerate(names) if m >> i & 1) for m in present]
    code = np.full(combinations, -1)
    code[present] = np.arange(len(present))
    return pd.Categorical.from_codes(code[mask], pd.Index(texts))


def _other_form(
    prepared: Prepared, curves: Curves, metric: Metric, frequency: float
) -> FloatArray | None:
    """Prediction of the other form for the groups whose curve is faster than the clock."""
    if metric.name not in ("time", "cpi", "throughput"):
        return None
    line, form = curves.fits[metric.name].line, curves.options.form
    if form == "reciprocal":
        faster = line.slope < 0
    else:
        coefficient = line.slope if metric.name == "cpi" else line.intercept
        faster = coefficient <= 0 if form == "amdahl" else coefficient < 0
    if not faster.any():
        return None
    other = FitOptions(form="amdahl" if form == "reciprocal" else "reciprocal")
    rows = faster[prepared.groups.codes]
    refitted = fit_curves(prepared.runs, prepared.groups, [metric], other, rows)
    return refitted.fits[metric.name].predict(frequency)


def left_out(curves: Curves, prepared: Prepared) -> list[str]:
    """Say how many groups have no curve for a fit, because they have fewer than two frequencies."""
    texts = []
    for name, fitted in curves.fits.items():
        line = fitted.line
        without = np.isnan(line.slope)
        unmeasured = int((without & (line.moments.points == 0)).sum())
        single = int(without.sum()) - unmeasured
        total = len(prepared.groups)
        if unmeasured:
            texts.append(f"{name}: {unmeasured} of {total} groups left out: not measured there")
        if single:
            texts.append(
                f"{name}: {single} of {total} groups left out: only one distinct frequency, and a "
                "curve takes two"
            )
    return texts


def nothing_to_fit(prepared: Prepared) -> str:
    """Say why no group of the table has a curve."""
    source = prepared.runs.attrs.get("source", "runs")
    distinct = np.unique(prepared.runs["freq_hz"])
    found = ", ".join(shown(f, "Hz") for f in distinct[:6])
    by = ", ".join(prepared.groups.by)
    grouped = f"every group by {by}" if by else "all rows, which are one group"
    return (
        f"{source}: only one distinct frequency in {grouped} (freq_hz in the file: "
        f"{found}): a curve takes two; measure at one more, or group by fewer columns with --by"
    )
